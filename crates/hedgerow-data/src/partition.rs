//! Deals the samples of a data set to nodes.

use std::io;
use std::ops::Range;

use hedgerow::random::gamma;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Dataset;
use super::text::counted;

/// A way of dealing samples to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Partition {
    /// To the node that the data names, or else round-robin.
    #[default]
    Auto,
    /// Sample i to node i mod K.
    RoundRobin,
    /// In random order, then round-robin.
    Shuffled,
    /// Contiguous blocks of time.
    Blocks,
    /// Contiguous slices of the labels' range, each in order of time.
    SortedLabel,
    /// Contiguous slices along the direction in which the inputs vary most, each in order of time.
    SortedDirection,
    /// Nodes differ in which labels they see, and in how many: the samples of each tenth of the
    /// labels' range go to nodes in proportions drawn from a Dirichlet distribution. The smaller α,
    /// the more they differ.
    Dirichlet(f64),
    /// Nodes differ in how much they see, not in what: sizes are drawn from a Dirichlet
    /// distribution, and every sample goes to a node at random in these proportions. The smaller α,
    /// the more they differ.
    Unequal(f64),
}

/// Why samples can't be dealt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Zero nodes.
    #[error("samples can't be dealt to 0 nodes: at least 1 is needed")]
    NoNodes,
    /// Some node would have nothing.
    #[error(
        "{} can't be dealt to {}: each node needs at least 1",
        counted(*.samples, "sample"), counted(*.nodes, "node")
    )]
    TooFewSamples {
        /// Samples there are.
        samples: usize,
        /// Nodes asked for.
        nodes: usize,
    },
    /// Sample indices have 32 bits.
    #[error("{0} samples are too many: at most {max} can be dealt", max = u32::MAX)]
    TooManySamples(usize),
    /// The samples could not be read again.
    #[error("{0}")]
    Unreadable(String),
    /// The data speaks of a node that doesn't take part.
    #[error(
        "sample {sample} belongs to node {owner}, and the last of {nodes} nodes is {}",
        nodes - 1
    )]
    UnknownOwner {
        /// The sample, counted from 0.
        sample: usize,
        /// Its node, counted from 0.
        owner: u32,
        /// Nodes asked for.
        nodes: usize,
    },
    /// The data has nothing for one of the nodes.
    #[error("no sample belongs to node {node} of {nodes} nodes (counted from 0)")]
    OwnsNothing {
        /// The first such node.
        node: usize,
        /// Nodes asked for.
        nodes: usize,
    },
}

impl Partition {
    /// Those without a parameter.
    const PLAIN: [(&str, Self); 6] = [
        ("auto", Self::Auto),
        ("round-robin", Self::RoundRobin),
        ("shuffled", Self::Shuffled),
        ("blocks", Self::Blocks),
        ("sorted-label", Self::SortedLabel),
        ("sorted-direction", Self::SortedDirection),
    ];

    /// All names, as listed in messages.
    pub fn names() -> Vec<&'static str> {
        let plain = Self::PLAIN.into_iter().map(|(name, _)| name);
        plain.chain(["dirichlet:ALPHA", "unequal:ALPHA", "column:NAME"]).collect()
    }

    /// The partition of that name; α is a number from 0.001 to 1000. (`column:NAME` is
    /// [`Partition::Auto`] on data that names its nodes.)
    pub fn parse(name: &str) -> Option<Self> {
        if let Some((_, plain)) = Self::PLAIN.into_iter().find(|(known, _)| *known == name) {
            return Some(plain);
        }
        let (kind, alpha) = name.split_once(':')?;
        let alpha = alpha.parse().ok().filter(|alpha| (0.001..=1000.0).contains(alpha))?;
        match kind {
            "dirichlet" => Some(Self::Dirichlet(alpha)),
            "unequal" => Some(Self::Unequal(alpha)),
            _ => None,
        }
    }

    /// Name on the command line.
    pub fn name(self) -> String {
        match self {
            // Data that names no nodes is dealt so.
            Self::Auto => Self::RoundRobin.name(),
            Self::Dirichlet(alpha) => format!("dirichlet:{alpha}"),
            Self::Unequal(alpha) => format!("unequal:{alpha}"),
            _ => {
                let known = Self::PLAIN.into_iter().filter(|(_, known)| *known == self);
                known.map(|(name, _)| name).collect()
            }
        }
    }

    /// For each node the indices of its samples, in order. Every sample is dealt, so nodes can
    /// differ by one sample (by more if the data names the nodes or shares are drawn). `seed` is
    /// for random partitions.
    pub fn deal(
        self,
        data: &Dataset,
        nodes: usize,
        seed: u64,
    ) -> Result<Vec<Vec<u32>>, PartitionError> {
        let samples = data.len();
        if nodes == 0 {
            return Err(PartitionError::NoNodes);
        }
        if samples < nodes {
            return Err(PartitionError::TooFewSamples { samples, nodes });
        }
        let count = u32::try_from(samples).map_err(|_| PartitionError::TooManySamples(samples))?;
        let mut order: Vec<u32> = (0..count).collect();
        match (self, &data.owners) {
            (Self::Auto, Some(owners)) => by_owner(&owners.ids, nodes),
            (Self::Auto, None) | (Self::RoundRobin, _) => Ok(in_turn(&order, nodes)),
            (Self::Shuffled, _) => {
                order.shuffle(&mut shuffling(seed));
                Ok(in_turn(&order, nodes))
            }
            (Self::Blocks, _) => {
                Ok(blocks(samples, nodes).map(|block| order[block].to_vec()).collect())
            }
            (Self::SortedLabel, _) => Ok(slices(order, nodes, |at| f64::from(data.labels(at)[0]))),
            (Self::SortedDirection, _) => {
                let positions = along_principal_direction(data)
                    .map_err(|error| PartitionError::Unreadable(error.to_string()))?;
                Ok(slices(order, nodes, |sample| positions[sample]))
            }
            (Self::Dirichlet(alpha), _) => {
                let label = |at: &u32| data.labels(*at as usize)[0];
                order.sort_by(|a, b| label(a).total_cmp(&label(b)));
                Ok(by_proportions(order, LABEL_BINS, nodes, alpha, &mut shuffling(seed)))
            }
            (Self::Unequal(alpha), _) => {
                Ok(by_proportions(order, 1, nodes, alpha, &mut shuffling(seed)))
            }
        }
    }
}

/// Contiguous slices of the samples sorted by `key`, each in order of time.
fn slices(mut order: Vec<u32>, nodes: usize, key: impl Fn(usize) -> f64) -> Vec<Vec<u32>> {
    order.sort_by(|a, b| key(*a as usize).total_cmp(&key(*b as usize)));
    let slices = blocks(order.len(), nodes).map(|block| {
        let mut slice = order[block].to_vec();
        slice.sort_unstable();
        slice
    });
    slices.collect()
}

/// Where each sample lies along the first principal direction of the inputs, which power iteration
/// finds: a good approximation is all that sorting needs. A missing value counts as the mean.
fn along_principal_direction(data: &Dataset) -> io::Result<Vec<f64>> {
    const POWER_ITERATIONS: usize = 60;
    let d = data.features;
    let (mut sums, mut counts) = (vec![0.0; d], vec![0.0_f64; d]);
    for_each_row(data, |_, row| {
        for ((sum, count), x) in
            sums.iter_mut().zip(&mut counts).zip(row).filter(|(_, x)| !x.is_nan())
        {
            *sum += f64::from(*x);
            *count += 1.0;
        }
    })?;
    let mean: Vec<f64> =
        sums.iter().zip(&counts).map(|(sum, count)| sum / count.max(1.0)).collect();
    let centred = |x: f32, mean: f64| if x.is_nan() { 0.0 } else { f64::from(x) - mean };
    let along = |direction: &[f64], row: &[f32]| -> f64 {
        direction
            .iter()
            .zip(row)
            .zip(&mean)
            .map(|((direction, x), mean)| direction * centred(*x, *mean))
            .sum()
    };
    // No direction is preferred by a start whose entries all differ.
    let mut direction: Vec<f64> = (0..d).map(|i| 1.0 + 0.1 * (i as f64).sin()).collect();
    for _ in 0..POWER_ITERATIONS {
        let mut next = vec![0.0; d];
        for_each_row(data, |_, row| {
            let weight = along(&direction, row);
            let entries = next.iter_mut().zip(row).zip(&mean);
            entries.for_each(|((next, x), mean)| *next += weight * centred(*x, *mean));
        })?;
        let length = next.iter().map(|v| v * v).sum::<f64>().sqrt();
        if !(length > 0.0 && length.is_finite()) {
            break;
        }
        direction = next.into_iter().map(|v| v / length).collect();
    }
    let mut positions = vec![0.0; data.len()];
    for_each_row(data, |sample, row| positions[sample] = along(&direction, row))?;
    Ok(positions)
}

/// Reads the inputs from front to back, a block at a time.
fn for_each_row(data: &Dataset, mut see: impl FnMut(usize, &[f32])) -> io::Result<()> {
    const SAMPLES_PER_READ: usize = 1024;
    let indices: Vec<u32> = (0..data.len() as u32).collect();
    let mut x = Vec::new();
    for block in indices.chunks(SAMPLES_PER_READ) {
        x.clear();
        data.inputs(block, &mut x)?;
        block
            .iter()
            .zip(x.chunks_exact(data.features))
            .for_each(|(sample, row)| see(*sample as usize, row));
    }
    Ok(())
}

const LABEL_BINS: usize = 10;

/// Divides the samples into bins and deals each bin in its own proportions. A node without samples
/// gets one from the largest node.
fn by_proportions(
    mut order: Vec<u32>,
    bins: usize,
    nodes: usize,
    alpha: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<Vec<u32>> {
    let mut dealt = vec![Vec::new(); nodes];
    for bin in blocks(order.len(), bins) {
        let bin = &mut order[bin];
        bin.shuffle(rng);
        // Gamma variables over their sum are a Dirichlet draw; α was checked to be positive.
        let mut shares: Vec<f64> = (0..nodes).map(|_| gamma(rng, alpha)).collect();
        if shares.iter().sum::<f64>() <= 0.0 {
            // All of them underflowed: one node takes the bin, as it nearly would have.
            shares[rng.random_range(0..nodes)] = 1.0;
        }
        let total: f64 = shares.iter().sum();
        let (mut before, mut start) = (0.0, 0);
        for (node, share) in shares.iter().enumerate() {
            before += share / total;
            let is_last = node + 1 == nodes;
            let share = if is_last { 1.0 } else { before };
            let end = ((share * bin.len() as f64).round() as usize).clamp(start, bin.len());
            dealt[node].extend_from_slice(&bin[start..end]);
            start = end;
        }
    }
    for node in 0..nodes {
        let richest = (0..nodes).max_by_key(|node| dealt[*node].len()).unwrap_or(node);
        if dealt[node].is_empty()
            && let Some(sample) = dealt[richest].pop()
        {
            dealt[node].push(sample);
        }
    }
    dealt.iter_mut().for_each(|samples| samples.sort_unstable());
    dealt
}

/// A separate random stream, because generated data may use the same seed.
fn shuffling(seed: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    rng
}

fn in_turn(order: &[u32], nodes: usize) -> Vec<Vec<u32>> {
    (0..nodes).map(|node| order.iter().skip(node).step_by(nodes).copied().collect()).collect()
}

fn blocks(samples: usize, nodes: usize) -> impl Iterator<Item = Range<usize>> {
    let (size, larger) = (samples / nodes, samples % nodes);
    let start = move |node: usize| node * size + node.min(larger);
    (0..nodes).map(move |node| start(node)..start(node + 1))
}

fn by_owner(owners: &[u32], nodes: usize) -> Result<Vec<Vec<u32>>, PartitionError> {
    let mut dealt = vec![Vec::new(); nodes];
    for (sample, &owner) in owners.iter().enumerate() {
        let unknown = PartitionError::UnknownOwner { sample, owner, nodes };
        dealt.get_mut(owner as usize).ok_or(unknown)?.push(sample as u32);
    }
    match dealt.iter().position(Vec::is_empty) {
        Some(node) => Err(PartitionError::OwnsNothing { node, nodes }),
        None => Ok(dealt),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Owners;
    use super::*;

    fn labelled(y: Vec<f32>) -> Dataset {
        Dataset::in_memory("labels", 1, y.clone(), y)
    }

    fn owned(owner: Vec<u32>) -> Dataset {
        let names = vec![String::new(); 1 + owner.iter().copied().max().unwrap() as usize];
        let labels = vec![0.0; owner.len()];
        let mut data = labelled(labels);
        data.owners = Some(Owners { ids: owner, names });
        data
    }

    const ALL: [Partition; 7] = [
        Partition::RoundRobin,
        Partition::Shuffled,
        Partition::Blocks,
        Partition::SortedLabel,
        Partition::SortedDirection,
        Partition::Dirichlet(0.3),
        Partition::Unequal(0.5),
    ];

    fn message(partition: Partition, data: &Dataset, nodes: usize) -> String {
        partition.deal(data, nodes, 0).unwrap_err().to_string()
    }

    #[test]
    fn names_are_found_again() {
        for partition in ALL {
            assert_eq!(Partition::parse(&partition.name()), Some(partition));
        }
        for name in [
            "random",
            "dirichlet",
            "dirichlet:",
            "dirichlet:0",
            "dirichlet:-1",
            "dirichlet:NaN",
            "dirichlet:1e9",
        ] {
            assert_eq!(Partition::parse(name), None, "{name}");
        }
    }

    #[test]
    fn round_robin_deals_in_turn_and_keeps_the_rest() {
        let dealt = Partition::RoundRobin.deal(&labelled(vec![0.0; 7]), 3, 0).unwrap();
        assert_eq!(dealt, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
    }

    #[test]
    fn blocks_are_contiguous_in_time() {
        let dealt = Partition::Blocks.deal(&labelled(vec![0.0; 7]), 3, 0).unwrap();
        assert_eq!(dealt, [vec![0, 1, 2], vec![3, 4], vec![5, 6]]);
    }

    #[test]
    fn sorted_label_slices_the_labels_and_keeps_time_within_a_node() {
        let dealt = Partition::SortedLabel
            .deal(&labelled(vec![0.9, 0.1, 0.5, 0.5, 0.0, 0.5]), 3, 0)
            .unwrap();
        assert_eq!(dealt, [vec![1, 4], vec![2, 3], vec![0, 5]]);
    }

    #[test]
    fn sorted_direction_slices_where_the_inputs_vary_most() {
        // The second input varies a hundred times as much as the first.
        let x: Vec<f32> =
            (0..40).flat_map(|i| [0.01 * (i % 3) as f32, ((i * 7) % 40) as f32]).collect();
        let data = Dataset::in_memory("two", 2, x, vec![0.0; 40]);
        let dealt = Partition::SortedDirection.deal(&data, 4, 0).unwrap();
        let mut quarters: Vec<Vec<usize>> = dealt
            .iter()
            .map(|samples| {
                samples
                    .iter()
                    .map(|sample| data.sample(*sample as usize).0[1] as usize / 10)
                    .collect()
            })
            .collect();
        quarters.sort();
        assert_eq!(quarters, [vec![0; 10], vec![1; 10], vec![2; 10], vec![3; 10]]);
        assert!(dealt.iter().all(|samples| samples.is_sorted()));
    }

    #[test]
    fn dirichlet_nodes_differ_the_more_the_smaller_alpha_is() {
        let data = labelled((0..2000).map(|i| i as f32).collect());
        let spread = |alpha| {
            let dealt = Partition::Dirichlet(alpha).deal(&data, 10, 5).unwrap();
            let mean = |samples: &Vec<u32>| {
                samples.iter().map(|s| f64::from(*s)).sum::<f64>() / samples.len() as f64
            };
            let means: Vec<f64> = dealt.iter().map(mean).collect();
            let centre = means.iter().sum::<f64>() / 10.0;
            (means.iter().map(|mean| (mean - centre).powi(2)).sum::<f64>() / 10.0).sqrt()
        };
        assert!(spread(0.1) > 3.0 * spread(100.0), "{} {}", spread(0.1), spread(100.0));
        let deal = |seed| Partition::Dirichlet(0.3).deal(&data, 10, seed).unwrap();
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
    }

    #[test]
    fn unequal_nodes_differ_in_how_much_they_see_not_in_what() {
        let data = labelled((0..20_000).map(|i| i as f32).collect());
        let dealt = Partition::Unequal(0.5).deal(&data, 10, 5).unwrap();
        let sizes: Vec<usize> = dealt.iter().map(Vec::len).collect();
        assert!(sizes.iter().max().unwrap() > &(5 * sizes.iter().min().unwrap()), "{sizes:?}");
        for samples in dealt.iter().filter(|samples| samples.len() > 1000) {
            let mean = samples.iter().map(|s| f64::from(*s)).sum::<f64>() / samples.len() as f64;
            assert!((mean - 10_000.0).abs() < 1000.0 && samples.is_sorted(), "{mean}");
        }
    }

    #[test]
    fn shuffling_depends_on_the_seed_alone() {
        let data = labelled(vec![0.0; 50]);
        let deal = |seed| Partition::Shuffled.deal(&data, 4, seed).unwrap();
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        assert_ne!(deal(1), Partition::RoundRobin.deal(&data, 4, 1).unwrap());
    }

    #[test]
    fn owners_decide_unless_another_partition_is_asked_for() {
        let data = owned(vec![1, 1, 0, 1]);
        assert_eq!(Partition::Auto.deal(&data, 2, 0).unwrap(), [vec![2], vec![0, 1, 3]]);
        assert_eq!(Partition::Blocks.deal(&data, 2, 0).unwrap(), [vec![0, 1], vec![2, 3]]);
        assert_eq!(Partition::RoundRobin.deal(&data, 2, 0).unwrap(), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn owners_must_be_the_nodes() {
        let data = owned(vec![0, 1, 2, 1]);
        assert_eq!(
            message(Partition::Auto, &data, 2),
            "sample 2 belongs to node 2, and the last of 2 nodes is 1"
        );
        assert_eq!(
            message(Partition::Auto, &data, 4),
            "no sample belongs to node 3 of 4 nodes (counted from 0)"
        );
    }

    #[test]
    fn every_node_needs_a_sample() {
        for partition in ALL {
            let error = message(partition, &labelled(vec![0.0; 3]), 4);
            assert_eq!(error, "3 samples can't be dealt to 4 nodes: each node needs at least 1");
            let error = message(partition, &labelled(vec![]), 0);
            assert_eq!(error, "samples can't be dealt to 0 nodes: at least 1 is needed");
            assert!(partition.deal(&labelled(vec![0.0; 4]), 4, 0).is_ok());
        }
    }

    proptest! {
        #[test]
        fn every_sample_is_dealt_once_and_evenly(labels in prop::collection::vec(-1.0f32..1.0, 1..200), share in 0.0..1.0, seed: u64) {
            let nodes = 1 + (share * labels.len() as f64) as usize;
            let data = labelled(labels);
            for partition in ALL {
                let dealt = partition.deal(&data, nodes, seed).unwrap();
                prop_assert_eq!(dealt.len(), nodes);
                let lengths = || dealt.iter().map(Vec::len);
                let even = !matches!(partition, Partition::Dirichlet(_) | Partition::Unequal(_));
                prop_assert!(!even || lengths().max().unwrap() - lengths().min().unwrap() <= 1);
                prop_assert!(lengths().min().unwrap() > 0);
                let mut all = dealt.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..data.len() as u32).collect::<Vec<_>>());
            }
        }
    }
}

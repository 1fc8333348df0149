//! Who sees which sample: dealing a data set to nodes.

use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Dataset;

/// A way of dealing samples to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Partition {
    /// Sample i to node i mod K; but where the data names the node of each sample, to that one.
    #[default]
    RoundRobin,
    /// In random order, then round-robin.
    Shuffled,
    /// Contiguous blocks of time.
    Blocks,
    /// Contiguous slices of the labels' range, each in order of time.
    SortedLabel,
}

/// Why samples can't be dealt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Zero nodes.
    #[error("samples can't be dealt to 0 nodes: at least 1 is needed")]
    NoNodes,
    /// Some node would have nothing.
    #[error("{samples} samples are too few for {nodes} nodes: each needs at least 1")]
    TooFewSamples {
        /// Samples there are.
        samples: usize,
        /// Nodes asked for.
        nodes: usize,
    },
    /// Sample indices have 32 bits.
    #[error("{samples} samples are too many: at most {} can be dealt", u32::MAX)]
    TooManySamples {
        /// Samples there are.
        samples: usize,
    },
    /// The data speaks of a node that doesn't take part.
    #[error("sample {sample} belongs to node {owner}, and the last of {nodes} nodes is {}", nodes - 1)]
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
    /// All of them, in the order they are listed.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::Shuffled, Self::Blocks, Self::SortedLabel];

    /// The partition of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|partition| partition.name() == name)
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Shuffled => "shuffled",
            Self::Blocks => "blocks",
            Self::SortedLabel => "sorted-label",
        }
    }

    /// For each node the indices of its samples, in the order it sees them. Every sample is dealt, so streams can differ
    /// in length by one (by more only where the data names the owners). `seed` matters to `Shuffled` alone.
    pub fn deal(self, data: &Dataset, nodes: usize, seed: u64) -> Result<Vec<Vec<u32>>, PartitionError> {
        let samples = data.len();
        if nodes == 0 {
            return Err(PartitionError::NoNodes);
        }
        if samples < nodes {
            return Err(PartitionError::TooFewSamples { samples, nodes });
        }
        let count = u32::try_from(samples).map_err(|_| PartitionError::TooManySamples { samples })?;
        let mut order: Vec<u32> = (0..count).collect();
        match (self, &data.owner) {
            (Self::RoundRobin, Some(owner)) => by_owner(owner, nodes),
            (Self::RoundRobin, None) => Ok(in_turn(&order, nodes)),
            (Self::Shuffled, _) => {
                order.shuffle(&mut shuffling(seed));
                Ok(in_turn(&order, nodes))
            }
            (Self::Blocks, _) => Ok(blocks(samples, nodes).map(|block| order[block].to_vec()).collect()),
            (Self::SortedLabel, _) => {
                order.sort_by(|a, b| data.y[*a as usize].total_cmp(&data.y[*b as usize]));
                let slices = blocks(samples, nodes).map(|block| {
                    let mut slice = order[block].to_vec();
                    slice.sort_unstable();
                    slice
                });
                Ok(slices.collect())
            }
        }
    }
}

/// A stream of its own: generated data may come from the same seed.
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
        let node =
            dealt.get_mut(owner as usize).ok_or(PartitionError::UnknownOwner { sample, owner, nodes })?;
        node.push(sample as u32);
    }
    match dealt.iter().position(Vec::is_empty) {
        Some(node) => Err(PartitionError::OwnsNothing { node, nodes }),
        None => Ok(dealt),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labelled(y: Vec<f32>) -> Dataset {
        Dataset { name: "labels".into(), features: 1, x: y.clone(), y, owner: None }
    }

    fn owned(owner: Vec<u32>) -> Dataset {
        Dataset { owner: Some(owner.clone()), ..labelled(vec![0.0; owner.len()]) }
    }

    fn message(partition: Partition, data: &Dataset, nodes: usize) -> String {
        partition.deal(data, nodes, 0).unwrap_err().to_string()
    }

    #[test]
    fn names_are_found_again() {
        for partition in Partition::ALL {
            assert_eq!(Partition::parse(partition.name()), Some(partition));
        }
        assert_eq!(Partition::parse("random"), None);
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
        let dealt = Partition::SortedLabel.deal(&labelled(vec![0.9, 0.1, 0.5, 0.5, 0.0, 0.5]), 3, 0).unwrap();
        assert_eq!(dealt, [vec![1, 4], vec![2, 3], vec![0, 5]]);
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
        assert_eq!(Partition::RoundRobin.deal(&data, 2, 0).unwrap(), [vec![2], vec![0, 1, 3]]);
        assert_eq!(Partition::Blocks.deal(&data, 2, 0).unwrap(), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn owners_must_be_the_nodes() {
        let data = owned(vec![0, 1, 2, 1]);
        assert_eq!(
            message(Partition::RoundRobin, &data, 2),
            "sample 2 belongs to node 2, and the last of 2 nodes is 1"
        );
        assert_eq!(
            message(Partition::RoundRobin, &data, 4),
            "no sample belongs to node 3 of 4 nodes (counted from 0)"
        );
    }

    #[test]
    fn every_node_needs_a_sample() {
        for partition in Partition::ALL {
            let error = message(partition, &labelled(vec![0.0; 3]), 4);
            assert_eq!(error, "3 samples are too few for 4 nodes: each needs at least 1");
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
            for partition in Partition::ALL {
                let dealt = partition.deal(&data, nodes, seed).unwrap();
                prop_assert_eq!(dealt.len(), nodes);
                let lengths = || dealt.iter().map(Vec::len);
                prop_assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
                let mut all = dealt.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..data.len() as u32).collect::<Vec<_>>());
            }
        }
    }
}

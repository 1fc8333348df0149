//! [`RoundGenerator`]: what happens at each node in each round of a trial: which samples arrive,
//! and which nodes have contact.

use hedgerow::NodeId;
use hedgerow::federation::Contact;
use hedgerow::random::{CounterRng, Purpose};

use crate::settings::{Arrivals, Participation};

/// A node's part in a round: how many of the round's samples are its own, and its contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) node: NodeId,
    pub(crate) samples: usize,
    pub(crate) contact: Contact,
}

const CONTACT_DRAW: u64 = 0;
const LATENESS_DRAW: u64 = 1;
const ARRIVALS_DRAW: u64 = 2;

/// Generates the rounds of a trial, one after the other. The same seed gives the same rounds.
pub(crate) struct RoundGenerator<'a> {
    /// Indices of each node's samples, in order.
    streams: &'a [Vec<u32>],
    taken: Vec<usize>,
    joins: Vec<u64>,
    participation: Participation,
    randomness: Vec<CounterRng>,
    round: u64,
}

impl<'a> RoundGenerator<'a> {
    /// For so many rounds. `streams` is empty if samples come from elsewhere.
    pub(crate) fn new(
        streams: &'a [Vec<u32>],
        nodes: usize,
        participation: Participation,
        rounds: usize,
        randomness: CounterRng,
    ) -> Self {
        let of_node = |node: usize| randomness.derive(Purpose::Participation, node as u64);
        let randomness: Vec<CounterRng> = (0..nodes).map(of_node).collect();
        let last = participation.join_within * rounds as f64;
        let join = |stream: &CounterRng| (stream.uniform_at(u64::MAX) * last) as u64 + 1;
        let joins = randomness.iter().map(join).collect();
        Self { streams, taken: vec![0; nodes], joins, participation, randomness, round: 0 }
    }

    /// Writes the turns of the next round, and its samples in their order.
    pub(crate) fn next_round(&mut self, turns: &mut Vec<Turn>, samples: &mut Vec<u32>) {
        self.round += 1;
        turns.clear();
        samples.clear();
        for (node, stream) in self.streams.iter().enumerate() {
            if self.round < self.joins[node] {
                continue;
            }
            let arrivals = self.participation.arrivals;
            let arrived = match arrivals {
                Arrivals::Fixed(count) => count,
                Arrivals::Poisson(_) | Arrivals::Rates(..) => poisson(
                    arrivals.mean(node, self.streams.len()),
                    self.uniform(node, ARRIVALS_DRAW),
                ),
            };
            let new = &stream[self.taken[node]..];
            let new = &new[..arrived.min(new.len())];
            self.taken[node] += new.len();
            samples.extend_from_slice(new);
            turns.push(Turn {
                node: node as NodeId,
                samples: new.len(),
                contact: self.contact(node),
            });
        }
    }

    /// One of three random numbers that a node has per round.
    fn uniform(&self, node: usize, purpose: u64) -> f64 {
        self.randomness[node].uniform_at(3 * self.round + purpose)
    }

    fn contact(&self, node: usize) -> Contact {
        if self.uniform(node, CONTACT_DRAW) < self.participation.dropout {
            Contact::Lost
        } else if self.uniform(node, LATENESS_DRAW) < self.participation.late {
            Contact::Late
        } else {
            Contact::Full
        }
    }

    /// The contacts of the next round, in which the nodes in `turns` have samples.
    pub(crate) fn next_contacts(&mut self, turns: &mut [Turn]) {
        self.round += 1;
        turns.iter_mut().for_each(|turn| turn.contact = self.contact(turn.node as usize));
    }
}

/// The number at which the Poisson distribution function passes `uniform`.
fn poisson(mean: f64, uniform: f64) -> usize {
    let mut probability = (-mean).exp();
    let mut below = probability;
    let mut count = 0;
    while uniform >= below && probability > 1e-300 {
        count += 1;
        probability *= mean / count as f64;
        below += probability;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(participation: Participation, rounds: usize) -> Vec<(Vec<Turn>, Vec<u32>)> {
        let streams: Vec<Vec<u32>> =
            (0..10).map(|node| (0..200).map(|i| i * 10 + node).collect()).collect();
        let mut generator =
            RoundGenerator::new(&streams, 10, participation, rounds, CounterRng::from_seed(3));
        let mut turns = Vec::new();
        let mut samples = Vec::new();
        let rounds = (0..rounds).map(|_| {
            generator.next_round(&mut turns, &mut samples);
            (turns.clone(), samples.clone())
        });
        rounds.collect()
    }

    const EVERYONE: Participation =
        Participation { dropout: 0.0, late: 0.0, join_within: 0.0, arrivals: Arrivals::Fixed(1) };

    #[test]
    fn with_everyone_there_the_order_is_the_paper_s() {
        for (round, (turns, samples)) in play(EVERYONE, 200).into_iter().enumerate() {
            assert!(turns.iter().all(|turn| turn.samples == 1 && turn.contact == Contact::Full));
            assert_eq!(samples, (0..10).map(|node| round as u32 * 10 + node).collect::<Vec<_>>());
        }
    }

    #[test]
    fn shares_are_kept_on_average() {
        let rounds = play(Participation { dropout: 0.3, late: 0.2, ..EVERYONE }, 200);
        let count = |wanted| {
            rounds.iter().flat_map(|(turns, _)| turns).filter(|t| t.contact == wanted).count()
        };
        // Five standard deviations of a binomial with n = 2000.
        assert!(count(Contact::Lost).abs_diff(600) < 103);
        assert!(count(Contact::Late).abs_diff(280) < 78);
    }

    #[test]
    fn nodes_join_within_their_share_of_the_rounds() {
        let rounds = play(Participation { join_within: 0.5, ..EVERYONE }, 200);
        let present: Vec<usize> = rounds.iter().map(|(turns, _)| turns.len()).collect();
        assert!(present.is_sorted() && present[0] < 10 && present[100] == 10);
    }

    #[test]
    fn poisson_arrivals_have_their_mean_and_nothing_is_dealt_twice() {
        let rounds = play(Participation { arrivals: Arrivals::Poisson(1.0), ..EVERYONE }, 150);
        let mut all: Vec<u32> = rounds.iter().flat_map(|(_, samples)| samples.clone()).collect();
        assert!(all.len().abs_diff(1500) < 200, "{}", all.len());
        assert!(rounds.iter().any(|(turns, _)| turns.iter().any(|turn| turn.samples == 0)));
        assert!(rounds.iter().any(|(turns, _)| turns.iter().any(|turn| turn.samples > 1)));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn poisson_of_a_large_mean_ends() {
        assert!((60..140).contains(&poisson(100.0, 0.5)));
        assert!(poisson(100.0, 1.0 - 1e-16) < 300);
    }
}

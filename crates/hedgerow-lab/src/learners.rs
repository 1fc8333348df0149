//! [`Learners`]: the nodes of a method, and whom they learn with.

use hedgerow::features::Features;
use hedgerow::federation::{Contact, NodeRound, Observations, Prediction, RoundError};
use hedgerow::importance::ImportanceScope;
use hedgerow::method::NodeMethod;
use hedgerow::metrics::Traffic;
use hedgerow::scaling::Rescaling;
use hedgerow::{Federation, NodeId, Plan};

use crate::importance::Increases;
use crate::method_run::Batch;
use crate::parallelism::Parallelism;
use crate::preprocessor::Round;
use crate::settings::Scope;

/// The nodes of a method in a trial.
pub(crate) struct Learners {
    scope: Scope,
    /// One of all nodes; or one of a single node, for each device or for all samples.
    federations: Vec<Federation>,
    /// Whether each has learned in this round.
    has_learned: Vec<bool>,
}

impl Learners {
    /// `plan` is that of one federation of the scope.
    pub(crate) fn new(plan: &Plan, scope: Scope, nodes: usize) -> Self {
        let count = if scope == Scope::Alone { nodes } else { 1 };
        let federations = (0..count).map(|_| Federation::new(plan)).collect();
        Self { scope, federations, has_learned: vec![false; count] }
    }

    /// The samples as they are learned from: in one place, all are in the server's scale.
    pub(crate) fn view<'b>(&self, batch: &'b Batch<'b>) -> &'b Batch<'b> {
        if self.is_pooled() { batch.central() } else { batch }
    }

    /// Sums of the increases of the loss without each column, over all nodes, in the unit of the
    /// label that each node has in this round. Several outputs have no common unit: theirs stay
    /// scaled.
    pub(crate) fn importance(&self, round: &Round) -> Vec<Increases> {
        let nodes = self.federations[0].nodes();
        let mut sums = vec![Increases::default(); nodes[0].importance().len()];
        let has_unit = self.federations[0].plan().importance_has_unit();
        for node in nodes {
            let unit = round.unit_of(node.id(), 0);
            let size = if has_unit { unit.raw(1.0) - unit.raw(0.0) } else { 1.0 };
            for (sum, group) in sums.iter_mut().zip(node.importance()) {
                sum.0 += group.increase * size * size;
                sum.1 += group.measured;
            }
        }
        sums
    }

    /// Measures the importance of columns with the first sample of each node, before it is learned.
    fn measure_importance(&mut self, batch: &Batch<'_>) -> Result<(), RoundError> {
        let (federation, mut sample) = (&mut self.federations[0], batch.samples.start);
        let (inputs, outputs) = (federation.plan().inputs(), federation.plan().outputs());
        for round in batch.node_rounds {
            let first = round.z.samples(batch.width).next();
            if let (Some(z), Some(y)) = (first, round.y.get(..outputs)) {
                if round.contact != Contact::Lost {
                    federation.hear(round.node)?;
                }
                let x = &batch.round.x[sample * inputs..(sample + 1) * inputs];
                federation.measure_importance(round.node, x, z, y)?;
            }
            sample += round.y.len() / outputs;
        }
        Ok(())
    }

    /// Predicts and learns the samples of a batch; see [`Federation::run_nodes`].
    pub(crate) fn run(
        &mut self,
        batch: &Batch<'_>,
        executor: Parallelism,
        observations: Observations<'_>,
        observe: impl Fn(Prediction<'_>, &mut [f64]) + Sync,
    ) -> Result<(), RoundError> {
        if self.scope == Scope::Federated {
            if self.federations[0].plan().config().importance != ImportanceScope::None {
                self.measure_importance(batch)?;
            }
            return self.federations[0].run_nodes(
                batch.node_rounds,
                &executor,
                observations,
                observe,
            );
        }
        // Without contact: a federation of one node speaks once, when the round closes.
        let lone = |z, y| NodeRound { node: 0, z, y, contact: Contact::Lost };
        if self.is_pooled() {
            self.has_learned[0] = true;
            let labels = batch.round.labels(batch.samples.clone());
            let round = lone(batch.z, &batch.round.y[labels]);
            return self.federations[0].run_nodes(&[round], &executor, observations, observe);
        }
        let Observations { numbers, width } = observations;
        let mut rest = numbers;
        for &NodeRound { node, z, y, .. } in batch.node_rounds {
            let (numbers, more) = std::mem::take(&mut rest).split_at_mut(y.len() * width);
            rest = more;
            self.has_learned[node as usize] |= !y.is_empty();
            let observations = Observations { numbers, width };
            let federation = &mut self.federations[node as usize];
            federation.run_nodes(&[lone(z, y)], &executor, observations, &observe)?;
        }
        Ok(())
    }

    /// Ends the round.
    pub(crate) fn close(&mut self, executor: Parallelism) -> Result<(), RoundError> {
        if self.scope == Scope::Federated {
            return self.federations[0].close(&executor);
        }
        for (federation, has_learned) in self.federations.iter_mut().zip(&mut self.has_learned) {
            if std::mem::take(has_learned) {
                let z = Features::default();
                let speaks = NodeRound { node: 0, z, y: &[], contact: Contact::Full };
                federation.round(&[speaks], |_| {})?;
            }
        }
        Ok(())
    }

    /// Gives nodes in contact the latest broadcast, before they predict.
    pub(crate) fn hear(&mut self, node_rounds: &[NodeRound<'_>]) -> Result<(), RoundError> {
        if self.scope != Scope::Federated {
            return Ok(());
        }
        let mut heard = node_rounds.iter().filter(|round| round.contact != Contact::Lost);
        heard.try_for_each(|round| self.federations[0].hear(round.node))
    }

    /// What the method alone says of an output of a sample at a device, what its node says, and the
    /// method.
    pub(crate) fn predict(
        &mut self,
        device: NodeId,
        output: usize,
        z: Features<'_>,
    ) -> Result<(f32, f32, &dyn NodeMethod), RoundError> {
        let (at, node) = match self.scope {
            Scope::Federated => (0, device),
            Scope::Alone => (device as usize, 0),
            Scope::Pooled => (0, 0),
        };
        let (global, value) = self.federations[at].predict(node, output, z)?;
        Ok((global, value, self.federations[at].nodes()[node as usize].method(output)))
    }

    /// Takes the models of a device to another scale.
    pub(crate) fn rescale_node(
        &mut self,
        device: NodeId,
        rescalings: &[Option<Rescaling>],
    ) -> Result<(), RoundError> {
        match self.scope {
            Scope::Federated => self.federations[0].rescale_node(device, rescalings),
            Scope::Alone => rescale_all(&mut self.federations[device as usize], rescalings),
            Scope::Pooled => Ok(()),
        }
    }

    /// Takes the server's models to another scale.
    pub(crate) fn rescale_server(
        &mut self,
        rescalings: &[Option<Rescaling>],
    ) -> Result<(), RoundError> {
        match self.scope {
            Scope::Federated => self.federations[0].rescale_server(rescalings),
            Scope::Alone => {}
            Scope::Pooled => return rescale_all(&mut self.federations[0], rescalings),
        }
        Ok(())
    }

    /// The federation that all nodes are in, if they are in one.
    pub(crate) fn federation(&mut self) -> Option<&mut Federation> {
        self.federations.first_mut().filter(|_| self.scope == Scope::Federated)
    }

    /// Messages so far. A device alone sends nothing.
    pub(crate) fn traffic(&self) -> Traffic {
        match self.scope {
            Scope::Federated => *self.federations[0].traffic(),
            Scope::Alone | Scope::Pooled => Traffic::default(),
        }
    }

    /// Votes so far, per kernel.
    pub(crate) fn votes(&self) -> Vec<u64> {
        let mut votes = vec![0; self.federations[0].votes().len()];
        for federation in &self.federations {
            votes.iter_mut().zip(federation.votes()).for_each(|(sum, votes)| *sum += votes);
        }
        votes
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.scope == Scope::Pooled
    }
}

/// Takes a federation of one node to another scale.
fn rescale_all(
    federation: &mut Federation,
    rescalings: &[Option<Rescaling>],
) -> Result<(), RoundError> {
    federation.rescale_server(rescalings);
    federation.rescale_node(0, rescalings)
}

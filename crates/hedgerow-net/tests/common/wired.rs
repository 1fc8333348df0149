//! Plans and nodes for tests that look at single messages: methods without scaling around them, and
//! nodes that speak protocol messages.

use std::ops::{Deref, DerefMut};

use hedgerow::message::{Broadcast, Rejected};
use hedgerow::node::{Answer, BadInput};
pub(crate) use hedgerow::plan::Scaling;
use hedgerow::scaling::Scale;
use hedgerow::state::BadState;
use hedgerow::{NodeMethod, PlanConfig, PlanError, ServerMethod};
use hedgerow_net::plan_json::{plan_from_json, plan_to_json};
use hedgerow_net::session::{FromNode, FromServer};
use hedgerow_net::transport::convert::{from_node_to_wire, from_server_from_wire};
use hedgerow_net::transport::protocol::{numbers_to_bytes, wire};

/// A plan whose server and nodes are the halves of its method.
#[derive(Debug, Clone)]
pub(crate) struct Plan(pub(crate) hedgerow::Plan);

impl Plan {
    pub(crate) fn new(config: PlanConfig) -> Result<Self, PlanError> {
        hedgerow::Plan::new(config).map(Self)
    }

    pub(crate) fn from_json(json: &str) -> Self {
        Self(plan_from_json(json, &[]).unwrap())
    }

    pub(crate) fn to_json(&self) -> String {
        plan_to_json(&self.0)
    }

    pub(crate) fn server(&self) -> Box<dyn ServerMethod> {
        self.0.server_method()
    }

    pub(crate) fn node(&self, number: u32) -> Box<dyn NodeMethod> {
        self.0.node_method(number)
    }
}

impl Deref for Plan {
    type Target = hedgerow::Plan;

    fn deref(&self) -> &hedgerow::Plan {
        &self.0
    }
}

/// A node that hears and says protocol messages.
pub(crate) struct Engine(hedgerow::Node);

impl Engine {
    pub(crate) fn new(plan: Plan, run: &str, number: u32) -> Self {
        let mut node = plan.0.node(number);
        node.set_run(run);
        Self(node)
    }

    pub(crate) fn restore(plan: Plan, saved: &[u8]) -> Result<Self, BadState> {
        hedgerow::Node::restore(&plan.0, saved).map(Self)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn learn(&mut self, x: &[f32], y: f32) -> Result<Answer, BadInput> {
        self.0.learn(x, &[y])
    }

    pub(crate) fn learn_by_id(&mut self, id: &str, y: f32) -> Result<Answer, BadInput> {
        self.0.learn_by_id(id, &[y])
    }

    pub(crate) fn hear(&mut self, message: &wire::FromServer) -> Result<(), Rejected> {
        match from_server_from_wire(message.clone())? {
            FromServer::Message(message) => self.0.hear(&message),
            FromServer::Refusal { .. } => {
                self.0.refused();
                Ok(())
            }
            FromServer::Welcome(_) => Err(Rejected::Garbled { what: "a second welcome" }),
        }
    }

    pub(crate) fn speak(&mut self, even_so: bool, out: &mut Vec<wire::FromNode>) {
        self.0.speak(even_so, |said| out.push(from_node_to_wire(FromNode::Message(said))));
    }
}

impl Deref for Engine {
    type Target = hedgerow::Node;

    fn deref(&self) -> &hedgerow::Node {
        &self.0
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut hedgerow::Node {
        &mut self.0
    }
}

/// A broadcast that isn't compressed.
pub(crate) fn broadcast_to_wire(broadcast: &Broadcast) -> wire::Broadcast {
    let kernels = broadcast
        .kernels
        .map(|kernels| wire::Selection { current: kernels.current, next: kernels.next });
    let (round, numbers) = (broadcast.round, numbers_to_bytes(&broadcast.numbers));
    wire::Broadcast { round, kernels, numbers, ..wire::Broadcast::default() }
}

/// A scale and its version.
pub(crate) fn scale_to_wire(version: u64, scale: &Scale) -> wire::Scale {
    wire::Scale { version, scale: scale.to_bytes().into() }
}

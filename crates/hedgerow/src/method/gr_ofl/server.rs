//! The server half: the model, when to forget, and the messages about both.

mod errors;
mod ridge;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::server_shell::{ServerRule, ServerShell, ServerState};
use super::super::{ServerMethod, Setup};
use super::forgetting::Forgetting;
use super::ladder::{self, Stage};
use super::order::rescale_broadcast;
use super::{INFO, Order, Sizes, UploadShape};
use crate::aggregation::{Compared, Gathering};
use crate::limits::MAX_NUMBER;
use crate::linear_algebra::write_bounded;
use crate::math;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, read_body};
use ridge::{Ridge, Scratch};

/// Samples per feature before a model gets its full trust.
const SAMPLES_FOR_TRUST: f64 = 1.5;

/// The rate at which the usual number of samples in a round is learned.
const PACE_RATE: f64 = 0.1;

/// The server's rule. Other methods may own one.
pub(in crate::method) struct Growth {
    sizes: Sizes,
    scratch: Scratch,
}

/// What the server knows beyond its broadcast.
#[derive(Serialize, Deserialize)]
pub(in crate::method) struct Memory {
    ridge: Ridge,
    pub(in crate::method) forgetting: Forgetting,
}

pub(super) fn server(setup: &Setup) -> Box<dyn ServerMethod> {
    let (rule, memory, opening) = Growth::new(Sizes::new(setup.budget()));
    ServerShell::boxed(setup, (INFO.layout)(setup), rule, memory, opening)
}

impl Growth {
    /// Before the first round, with the broadcast that opens it.
    pub(in crate::method) fn new(sizes: Sizes) -> (Self, Memory, Broadcast) {
        let order = Order::opening(&sizes);
        let mut numbers = vec![0.0; sizes.first];
        order.write(&mut numbers);
        let opening = Broadcast { round: 1, kernels: None, numbers };
        let memory =
            Memory { ridge: Ridge::new(&sizes), forgetting: Forgetting::new(sizes.features) };
        (Self { sizes, scratch: Scratch::default() }, memory, opening)
    }

    /// Turns the sums of a round over some nodes into the numbers of the next broadcast. Whether H
    /// was taken from slices: then it is the mean Gram matrix, without what look-backs add to it
    /// later.
    pub(in crate::method) fn close_with(
        &mut self,
        memory: &mut Memory,
        (sums, nodes): (impl Iterator<Item = f64>, f64),
        broadcast: &mut Broadcast,
    ) -> bool {
        // The broadcast is the server's own.
        let Ok(mut order) = Order::read(&self.sizes, broadcast) else { return false };
        let Self { sizes, scratch } = self;
        scratch.sums.clear();
        scratch.sums.extend(sums);
        let is_first = order.is_first();
        // The next move is from the model.
        memory.ridge.replace_rival(&order, broadcast);
        let (count, is_renewed) = if is_first {
            (memory.ridge.begin(sizes, &mut order, scratch), false)
        } else {
            memory.go_on(sizes, &mut order, nodes, scratch)
        };
        let seen = (count / (SAMPLES_FOR_TRUST * order.len as f64)).clamp(0.0, 1.0);
        order.trust = (seen / (1.0 + math::exp(-memory.ridge.errors.trust()))) as f32;
        if order.stage == Stage::Rival {
            memory.write_rival(&order, broadcast);
        } else {
            memory.ridge.write(&mut order, broadcast, is_first, &mut scratch.sent);
        }
        is_renewed
    }
}

/// Version 4 asked for every slice once and had another rule of forgetting.
fn read_version_4(body: &[u8]) -> Result<ServerState<Memory>, BadState> {
    let (broadcast, gathering, ridge): ServerState<ridge::Version4> = read_body(body)?;
    let memory = Memory { ridge: ridge.into(), forgetting: Forgetting::default() };
    Ok((broadcast, gathering, memory))
}

impl ServerRule for Growth {
    type Memory = Memory;
    const OLDER: &'static [OlderVersion<ServerState<Memory>>] = &[(4, read_version_4)];

    fn kind(&self) -> StateKind {
        StateKind::new("gr-server").version(6)
    }

    fn close(&mut self, memory: &mut Memory, sums: &Gathering, broadcast: &mut Broadcast) {
        self.close_with(memory, (sums.totals(), sums.count() as f64), broadcast);
    }

    fn catch_up(&self, memory: &Memory, broadcast: &Broadcast) -> Option<Broadcast> {
        let order = Order::read(&self.sizes, broadcast).ok()?;
        (order.stage == Stage::Rival).then(|| memory.whole(broadcast).into_owned())
    }

    fn history_begin(&self, memory: &Memory) -> u64 {
        memory.forgetting.history_begin()
    }

    fn upload_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Order::read(&self.sizes, broadcast).ok().map(|order| order.layout(&self.sizes).len)
    }

    fn rescale(&self, memory: &mut Memory, broadcast: &mut Broadcast, rescaling: &Rescaling) {
        if let Ok(order) = Order::read(&self.sizes, broadcast) {
            memory.ridge.replace_rival(&order, broadcast);
        }
        memory.forgetting.rescale();
        let ridge = &mut memory.ridge;
        ridge.rescale_curvature(rescaling);
        // The broadcast is the server's own.
        let Some(order) = rescale_broadcast(&self.sizes, broadcast, rescaling) else { return };
        ridge.rescale(&self.sizes, &order, &broadcast.numbers, rescaling.gain());
    }

    fn check(&self, upload: &Upload, broadcast: &Broadcast) -> Result<(), Rejected> {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return Ok(()) };
        let UploadShape { len, .. } = order.layout(&self.sizes);
        // What every server checks is refused by its name.
        if upload.round != order.round || upload.numbers.len() != len {
            return Ok(());
        }
        order.check_upload(&upload.numbers)
    }

    fn compared(&self, broadcast: &Broadcast) -> Vec<Compared> {
        let order = Order::read(&self.sizes, broadcast);
        order.map_or_else(|_| Vec::new(), |order| order.compared(&self.sizes, broadcast.round))
    }

    fn members_changed(&self, memory: &mut Memory, _broadcast: &Broadcast) {
        memory.members_changed();
    }

    fn broadcast_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Some(broadcast.numbers.len()).filter(|_| Order::read(&self.sizes, broadcast).is_ok())
    }

    fn is_sound(&self, memory: &Memory, broadcast: &Broadcast) -> bool {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return false };
        memory.ridge.is_sound(&self.sizes, &order, &broadcast.numbers)
            && memory.forgetting.is_sound(&order)
    }
}

impl Memory {
    /// H, lower triangle row by row.
    pub(in crate::method) fn curvature(&self) -> &[f64] {
        &self.ridge.curvature
    }

    /// The broadcast with the model, where it has a rival: for nodes that have neither.
    pub(in crate::method) fn whole<'a>(&self, broadcast: &'a Broadcast) -> Cow<'a, Broadcast> {
        let last = broadcast.numbers.last().map_or(0, |last| *last as usize);
        let Some(code) = ladder::without_rival(last) else { return Cow::Borrowed(broadcast) };
        let mut whole = broadcast.clone();
        self.ridge.write_model(&mut whole.numbers);
        whole.numbers.pop();
        whole.numbers.push(code as f32);
        Cow::Owned(whole)
    }

    /// See [`ServerMethod::members_changed`].
    pub(in crate::method) fn members_changed(&mut self) {
        self.ridge.delivery.abandon();
    }

    /// Samples in the histories of all nodes, as far as is known.
    pub(in crate::method) fn known(&self) -> f64 {
        self.ridge.known
    }

    /// Rounds of the history that are left after orders to forget.
    pub(in crate::method) fn rounds_left(&self) -> f64 {
        self.forgetting.rounds_left() as f64
    }

    /// Samples in a usual round.
    pub(in crate::method) fn pace(&self) -> f64 {
        self.ridge.pace
    }

    /// A round of another method is over, in which the model stayed as it was.
    pub(in crate::method) fn pass(&mut self, error: f64, samples: f64) {
        let is_alarming = self.ridge.errors.hear(error, samples);
        self.forgetting.pass(is_alarming);
    }

    /// After every round but the first.
    fn go_on(
        &mut self,
        sizes: &Sizes,
        order: &mut Order,
        nodes: f64,
        scratch: &mut Scratch,
    ) -> (f64, bool) {
        let Self { ridge, forgetting } = self;
        let sums = &scratch.sums;
        let at = sums.len();
        let [vote, error, count, samples] = [at - 6, at - 5, at - 2, at - 1].map(|at| sums[at]);
        if count <= 0.0 {
            return (count, false);
        }
        let told = [sums[at - 4], sums[at - 3]];
        ridge.pace += PACE_RATE * (samples - ridge.pace);
        ridge.age = (count / ridge.pace.max(f64::MIN_POSITIVE)).clamp(1.0, f64::from(MAX_NUMBER));
        forgetting.pass(ridge.errors.hear(error, samples));
        ridge.hear(order, error, told, samples);
        let stage = order.stage;
        if let Stage::Check(window) = stage {
            order.stage = Stage::Nothing;
            if let Some(share) = ridge.rival(window, scratch) {
                let steps = ridge.model.iter().zip(&scratch.step);
                forgetting.try_rival(window, steps.map(|(w, step)| w - share * step));
                order.stage = Stage::Rival;
            }
            return (count, false);
        }
        let result = ridge.go_on(sizes, order, scratch);
        if stage.has_votes() && samples > 0.0 {
            // Nobody has more than one vote, whatever the number of samples that it tells of.
            let voters = nodes.min(samples).max(1.0);
            if forgetting.hear((vote / voters).clamp(-1.0, 1.0), order) {
                ridge.begin_anew(sizes, order, forgetting.rival(), forgetting.rounds_left());
            }
        }
        forgetting.plan(order, ridge.pace);
        result
    }

    /// Writes a broadcast that has the rival in the place of the model.
    fn write_rival(&self, order: &Order, broadcast: &mut Broadcast) {
        broadcast.numbers.truncate(self.ridge.model.len());
        write_bounded(self.forgetting.rival(), &mut broadcast.numbers);
        order.write(&mut broadcast.numbers);
    }
}

//! The server half: who gets the round, and what is broadcast.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::gr_ofl::ladder::Begin;
use super::super::gr_ofl::server::{Growth, Memory as RidgeMemory};
use super::super::gr_ofl::{self, triangle};
use super::super::server_shell::{ServerRule, ServerShell, ServerState};
use super::super::{ServerMethod, Setup};
use super::inputs::{InputMap, Moments, can_be_rescaled};
use super::order::{Asked, Form, Order, RidgeShape};
use super::synthetic::Synthetic;
use super::told::Told;
use super::tuner::{self, Curvature, SAMPLES_PER_PARAMETER, Tuner};
use super::units::{Base, Block, Units};
use super::{INFO, RIDGE_EXTRA, ROUND_NUMBERS, Sizes};
use crate::aggregation::{Compared, Gathering};
use crate::features::SampleMap;
use crate::limits::MAX_SUM;
use crate::math;
use crate::message::{Broadcast, Rejected, Upload};
use crate::scaling::Rescaling;
use crate::state::{BadState, OlderVersion, StateKind, is_count, read_body};

/// Log-odds of F against GR-OFL: at first, by how much less after each failure, their rate relative
/// to GR-OFL's usual error, and their bounds.
const FIRST_ODDS: f64 = -1.0;
const ODDS_PENALTY: f64 = 2.0;
const ODDS_RATE: f64 = 0.25;
const ODDS: (f64, f64) = (-30.0, 8.0);

/// Rounds for each round of GR-OFL: if F is ahead, at a draw, and if it is behind or GR-OFL still
/// improves; and the log-odds between which there is a draw.
const TURNS: [f64; 3] = [8.0, 2.0, 1.25];
const DRAW: (f64, f64) = (-2.0, 2.0);

/// F is abandoned if its log-odds are below those at its beginning by this much for so many rounds.
const BEHIND: f64 = 1.0;
const MOST_ROUNDS_BEHIND: u32 = 12;

/// The history is longer by this share of it before F begins again.
const RETRY: f64 = 0.5;

/// A round is a surprise if its error is so many times the usual one.
const SURPRISE: f64 = 2.0;

/// The least rate of the usual error.
const USUAL_RATE: f64 = 0.02;

/// GR-OFL's error over about a quarter and two thirds of all rounds, the latest: their rates times
/// the rounds. It is still falling if the first is less than this share of the second.
const RECENT: f64 = 4.0;
const LONGER: f64 = 1.5;
const FALLING: f64 = 0.85;

struct Tuning {
    setup: Setup,
    sizes: Sizes,
    map: InputMap,
    ridge: Growth,
    synthetic: Synthetic,
    scratch: Scratch,
}

/// Buffers.
#[derive(Default)]
struct Scratch {
    sums: Vec<f64>,
    tuner: tuner::Scratch,
}

/// What the server knows beyond its broadcast.
#[derive(Serialize, Deserialize)]
struct Memory {
    ridge: RidgeMemory,
    /// GR-OFL's latest broadcast.
    ridge_broadcast: Broadcast,
    /// Of the inputs; none before GR-OFL has seen them all.
    moments: Option<Moments>,
    tuner: Option<Tuner>,
    contest: Contest,
}

/// F against GR-OFL.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Contest {
    /// Log-odds of F.
    odds: f64,
    /// GR-OFL's usual squared error; none before the first report.
    usual: Option<f64>,
    /// The same over the last quarter of the rounds, and over two thirds of them.
    recent: f64,
    longer: f64,
    /// What GR-OFL is owed of a round.
    credit: f64,
    failures: u32,
    /// F doesn't begin before this round.
    next_try: f64,
    /// The last round that doesn't count in those errors.
    since: u64,
}

/// The errors of a round, in sums.
struct RoundErrors {
    samples: f64,
    ridge: f64,
    own: f64,
}

pub(super) fn server(setup: &Setup, map: Arc<SampleMap>) -> Box<dyn ServerMethod> {
    let sizes = Sizes::new(setup);
    let (ridge, ridge_memory, ridge_broadcast) = Growth::new(sizes.ridge);
    let mut opening = ridge_broadcast.clone();
    Order::opening(&sizes).write(&mut opening.numbers);
    let contest = Contest {
        odds: FIRST_ODDS,
        usual: None,
        recent: 0.0,
        longer: 0.0,
        credit: 0.0,
        failures: 0,
        next_try: 0.0,
        since: 0,
    };
    let memory =
        Memory { ridge: ridge_memory, ridge_broadcast, moments: None, tuner: None, contest };
    let rule = Tuning {
        setup: *setup,
        sizes,
        map: InputMap::new(&sizes, map),
        ridge,
        synthetic: Synthetic::new(&sizes, setup.seed()),
        scratch: Scratch::default(),
    };
    ServerShell::boxed(setup, (INFO.layout)(setup), rule, memory, opening)
}

/// Version 5 had errors over all rounds: the last number is zero.
fn read_version_5(body: &[u8]) -> Result<ServerState<Memory>, BadState> {
    read_body(&[body, &[0]].concat())
}

impl ServerRule for Tuning {
    type Memory = Memory;
    const OLDER: &'static [OlderVersion<ServerState<Memory>>] = &[(5, read_version_5)];

    fn kind(&self) -> StateKind {
        StateKind::new("tr-server").version(6)
    }

    fn close(&mut self, memory: &mut Memory, sums: &Gathering, broadcast: &mut Broadcast) {
        // The broadcast is the server's own.
        let Ok(mut order) = Order::read(&self.sizes, broadcast) else { return };
        let mut totals = core::mem::take(&mut self.scratch.sums);
        totals.clear();
        totals.extend(sums.totals());
        let errors = RoundErrors::read(&order, &totals, &self.sizes);
        let is_calm = memory.contest.hear(order.round, errors.as_ref(), memory.tuner.as_mut());
        if let (Some(RoundErrors { samples, ridge, .. }), false) =
            (errors, order.asked == Asked::Ridge)
        {
            memory.ridge.pass(ridge, samples);
        }
        let is_abandoned =
            memory.tuner.as_ref().is_some_and(|tuner| tuner.rounds_behind >= MOST_ROUNDS_BEHIND);
        if is_abandoned {
            memory.tuner = None;
            memory.contest.failures = memory.contest.failures.saturating_add(1);
            memory.contest.begin_anew(order.round, memory.ridge.rounds_left());
        }
        (order.share, order.step, order.form) = (0.0, None, Form::Empty);
        match order.asked {
            Asked::Ridge => {
                order.form = Form::Ridge;
                let nodes = sums.count() as f64;
                self.close_ridge(memory, &mut order, &totals, nodes, is_calm);
            }
            Asked::Errors => {
                order.asked = Asked::Ridge;
                if let (true, Some(moments)) = (is_calm, &memory.moments) {
                    self.synthetic.invalidate();
                    memory.tuner = Some(begin(&self.sizes, memory, moments, order.round + 1));
                    (order.form, order.asked) = (Form::Opening, Asked::Block(Block::Output));
                }
            }
            Asked::Block(_) => {
                let told = &totals[..totals.len() - ROUND_NUMBERS];
                // Otherwise the same block, at the same θ and s.
                if memory.tuner.as_mut().is_none_or(|tuner| tuner.told.add(told)) {
                    self.close_block(memory, &mut order);
                    memory.choose(&mut order, is_calm);
                }
            }
        }
        if is_abandoned && order.form != Form::Ridge {
            (order.form, order.asked) = (Form::Whole, Asked::Ridge);
        }
        order.units = memory.tuner.as_ref().map(|tuner| tuner.units.count(&self.sizes));
        order.weight = match memory.tuner {
            Some(_) => (1.0 / (1.0 + math::exp(-memory.contest.odds))) as f32,
            None => 0.0,
        };
        memory.write(&self.sizes, &order, broadcast);
        self.scratch.sums = totals;
    }

    fn rescale(&self, memory: &mut Memory, broadcast: &mut Broadcast, rescaling: &Rescaling) {
        let Ok(mut order) = Order::read(&self.sizes, broadcast) else { return };
        let (sizes, gain) = (&self.sizes, rescaling.gain());
        self.ridge.rescale(&mut memory.ridge, &mut memory.ridge_broadcast, rescaling);
        let keeps = can_be_rescaled(sizes, rescaling.inputs(), gain);
        memory.contest.rescale(gain * gain);
        if keeps {
            if let Some(moments) = &mut memory.moments {
                moments.rescale(rescaling.inputs());
            }
            if let Some(tuner) = &mut memory.tuner {
                tuner.units.rescale(sizes, rescaling);
                tuner.rescale_losses(gain * gain);
            }
        } else {
            (memory.moments, memory.tuner) = (None, None);
            memory.contest.odds = FIRST_ODDS;
        }
        if let Some(ridge) = memory.ridge_order(sizes) {
            order.rescale(&ridge, keeps);
        }
        memory.write(&self.sizes, &order, broadcast);
    }

    fn check(&self, upload: &Upload, broadcast: &Broadcast) -> Result<(), Rejected> {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return Ok(()) };
        // What every server checks is refused by its name.
        if upload.round != order.round || upload.numbers.len() != order.upload_len(&self.sizes) {
            return Ok(());
        }
        order.check_upload(&self.sizes, &upload.numbers)
    }

    fn compared(&self, broadcast: &Broadcast) -> Vec<Compared> {
        let order = Order::read(&self.sizes, broadcast);
        order.map_or_else(|_| Vec::new(), |order| order.compared(&self.sizes))
    }

    fn members_changed(&self, memory: &mut Memory, broadcast: &Broadcast) {
        memory.ridge.members_changed();
        memory.contest.begin_errors(broadcast.round);
    }

    fn history_begin(&self, memory: &Memory) -> u64 {
        memory.ridge.forgetting.history_begin()
    }

    fn upload_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Order::read(&self.sizes, broadcast).ok().map(|order| order.upload_len(&self.sizes))
    }

    fn broadcast_len(&self, broadcast: &Broadcast) -> Option<usize> {
        Some(broadcast.numbers.len()).filter(|_| Order::read(&self.sizes, broadcast).is_ok())
    }

    fn catch_up(&self, memory: &Memory, broadcast: &Broadcast) -> Option<Broadcast> {
        let order = Order::read(&self.sizes, broadcast).ok()?;
        if order.is_complete() {
            return None;
        }
        let units = memory.tuner.as_ref().map(|tuner| &tuner.units);
        let step = units.and_then(|units| units.step.as_ref()).map(|step| step.block);
        let mut order = Order { form: Form::Whole, share: 0.0, step, ..order };
        order.ridge.take_rival();
        let mut whole = Broadcast { numbers: Vec::new(), ..*broadcast };
        memory.write(&self.sizes, &order, &mut whole);
        Some(whole)
    }

    fn is_sound(&self, memory: &Memory, broadcast: &Broadcast) -> bool {
        let Ok(order) = Order::read(&self.sizes, broadcast) else { return false };
        let Memory { ridge, ridge_broadcast, moments, tuner, contest } = memory;
        let units = tuner.as_ref().map(|tuner| tuner.units.count(&self.sizes));
        let asks = match (order.asked, tuner) {
            (Asked::Block(asked), Some(tuner)) => tuner.asked == asked,
            (Asked::Block(_), None) => false,
            _ => true,
        };
        let Some(ridge_order) = memory.ridge_order(&self.sizes) else { return false };
        self.ridge.is_sound(ridge, ridge_broadcast)
            && RidgeShape::new(&ridge_order) == order.ridge
            && moments.as_ref().is_none_or(|moments| moments.is_sound(self.sizes.inputs))
            && (tuner.is_none() || moments.is_some())
            && tuner.as_ref().is_none_or(|tuner| tuner.is_sound(&self.sizes))
            && order.units == units
            && asks
            && contest.is_sound()
            && {
                let mut written = Broadcast { numbers: Vec::new(), ..*broadcast };
                memory.write(&self.sizes, &order, &mut written);
                written == *broadcast
            }
    }
}

impl Tuning {
    /// A round of GR-OFL; afterwards units may begin.
    fn close_ridge(
        &mut self,
        memory: &mut Memory,
        order: &mut Order,
        totals: &[f64],
        nodes: f64,
        is_calm: bool,
    ) {
        let sizes = &self.sizes;
        let ridge_sums = &totals[..totals.len() - RIDGE_EXTRA];
        let before = memory.ridge_order(sizes).map_or_else(Begin::default, |o| o.begin_of_history);
        let is_renewed = self.ridge.close_with(
            &mut memory.ridge,
            (ridge_sums.iter().copied(), nodes),
            &mut memory.ridge_broadcast,
        );
        memory.ridge_broadcast.round += 1;
        let Some(ridge) = memory.ridge_order(sizes) else { return };
        order.ridge = RidgeShape::new(&ridge);
        if ridge.begin_of_history.missed_since(before) > 0 {
            let left = (memory.ridge.rounds_left() * memory.ridge.pace())
                .min(nodes * sizes.capacity as f64);
            memory.forget(sizes, left, order.round);
        }
        let sees_all = ridge.len > sizes.inputs;
        if is_renewed && sees_all {
            let products = &memory.ridge.curvature()[..triangle(1 + sizes.inputs)];
            self.map.moments(products, memory.moments.get_or_insert_default());
            self.synthetic.invalidate();
        }
        let remembered = memory.ridge.known().min(nodes * sizes.capacity as f64);
        let can_begin = memory.tuner.is_none()
            && !order.ridge.is_special()
            && memory.moments.is_some()
            && order.round as f64 >= memory.contest.next_try
            && !memory.contest.is_ridge_improving()
            && remembered >= SAMPLES_PER_PARAMETER * sizes.parameters(sizes.group) as f64;
        if can_begin {
            order.asked = Asked::Errors;
        } else {
            memory.choose(order, is_calm);
        }
    }

    fn close_block(&mut self, memory: &mut Memory, order: &mut Order) {
        let (Some(tuner), Some(moments)) = (&mut memory.tuner, &memory.moments) else { return };
        let Self { sizes, setup, synthetic, scratch, .. } = self;
        let curvature = Curvature { moments, synthetic, scratch: &mut scratch.tuner };
        let before = tuner.units.count(sizes);
        order.share = tuner.close(sizes, setup.seed(), curvature);
        order.form = if tuner.units.count(sizes) > before { Form::Growth } else { Form::Step };
        order.step = tuner.units.step.as_ref().map(|step| step.block);
    }
}

/// Units begin: f₀ is GR-OFL's model as nodes have it.
fn begin(sizes: &Sizes, memory: &Memory, moments: &Moments, round: u64) -> Tuner {
    let numbers = &memory.ridge_broadcast.numbers;
    let len = numbers.len() - gr_ofl::BROADCAST_EXTRA;
    let [origin, _, low, high] = [0, 1, 2, 3].map(|at| numbers[len + at]);
    let base = Base::new(&numbers[..len], origin, low, high);
    Tuner::new(sizes, Units::new(sizes, base, moments.frame(), round), memory.contest.odds)
}

impl Memory {
    /// Decides who gets the next round.
    fn choose(&mut self, order: &mut Order, is_calm: bool) {
        self.contest.choose(order, self.tuner.as_ref(), is_calm);
        if self.ridge.forgetting.is_due() || order.ridge.is_special() {
            order.asked = Asked::Ridge;
        }
    }

    /// Nodes were told to forget: units that have too few samples left begin anew.
    fn forget(&mut self, sizes: &Sizes, left: f64, round: u64) {
        // Errors of a change say nothing of those that follow.
        self.contest.usual = None;
        let Some(tuner) = &mut self.tuner else {
            // Units that were abandoned during the change don't wait for the history of before.
            self.contest.failures = 0;
            self.contest.begin_anew(round, self.ridge.rounds_left());
            return;
        };
        tuner.told = Told::default();
        let parameters = sizes.parameters(tuner.units.count(sizes)) as f64;
        if left < SAMPLES_PER_PARAMETER * parameters {
            (self.tuner, self.contest.failures) = (None, 0);
            self.contest.begin_anew(round, self.ridge.rounds_left());
        }
    }

    fn ridge_order(&self, sizes: &Sizes) -> Option<gr_ofl::Order> {
        let Broadcast { round, numbers, .. } = &self.ridge_broadcast;
        gr_ofl::Order::parse(&sizes.ridge, *round, numbers).ok()
    }

    /// Writes the numbers of a broadcast.
    fn write(&self, sizes: &Sizes, order: &Order, broadcast: &mut Broadcast) {
        let numbers = &mut broadcast.numbers;
        numbers.clear();
        let units = self.tuner.as_ref().map(|tuner| &tuner.units);
        match (order.form, units) {
            (Form::Ridge, _) => numbers.extend_from_slice(&self.ridge_broadcast.numbers),
            (Form::Whole, units) => {
                let ridge = self.ridge.whole(&self.ridge_broadcast);
                numbers.extend_from_slice(&ridge.numbers);
                units.into_iter().for_each(|units| units.write(numbers));
            }
            (Form::Opening, Some(units)) => {
                numbers.extend_from_slice(&units.frame.centre);
                numbers.extend_from_slice(&units.frame.deviation);
            }
            (Form::Growth, Some(units)) => {
                let rows = &units.parameters.rows;
                let added = rows.len() - sizes.group * sizes.row();
                numbers.extend_from_slice(&rows[added..]);
            }
            (Form::Step, Some(units)) => {
                units.step.iter().for_each(|step| numbers.extend_from_slice(&step.numbers));
            }
            _ => {}
        }
        order.write(numbers);
    }
}

impl Contest {
    /// Learns from the errors of a round. Returns whether it was no surprise.
    fn hear(
        &mut self,
        round: u64,
        errors: Option<&RoundErrors>,
        tuner: Option<&mut Tuner>,
    ) -> bool {
        let Some(&RoundErrors { samples, ridge, own }) = errors else { return true };
        if samples <= 0.0 {
            return true;
        }
        let mean = (ridge / samples).clamp(0.0, MAX_SUM);
        let usual = self.usual.unwrap_or(mean);
        let is_calm = self.usual.is_none() || mean < SURPRISE * usual;
        let rate = USUAL_RATE.max(1.0 / round as f64);
        let usual = usual + rate * (mean - usual);
        self.usual = Some(usual);
        let rounds = round.saturating_sub(self.since).max(1);
        for (error, rate) in [(&mut self.recent, RECENT), (&mut self.longer, LONGER)] {
            *error += (rate / rounds as f64).min(1.0) * (mean - *error);
        }
        if let Some(tuner) = tuner {
            let gained = ODDS_RATE * (ridge - own) / usual.max(1e-300);
            let gained = if gained.is_nan() { 0.0 } else { gained };
            self.odds = (self.odds + gained).clamp(ODDS.0, ODDS.1);
            let is_behind = self.odds < tuner.first_odds - BEHIND;
            tuner.rounds_behind = if is_behind { tuner.rounds_behind + 1 } else { 0 };
        }
        is_calm
    }

    /// Whether GR-OFL's error is still falling: then every round without it has its price.
    fn is_ridge_improving(&self) -> bool {
        self.recent < FALLING * self.longer
    }

    /// Errors until now say nothing of those to come.
    fn begin_errors(&mut self, round: u64) {
        (self.usual, self.since) = (None, round.saturating_sub(1));
    }

    /// Follows a change of the label's unit, of which this is the square.
    fn rescale(&mut self, factor: f64) {
        let errors = [&mut self.recent, &mut self.longer];
        for error in errors.into_iter().chain(&mut self.usual) {
            *error = (*error * factor).clamp(0.0, MAX_SUM);
        }
    }

    /// F is abandoned, and begins again when the history is longer.
    fn begin_anew(&mut self, round: u64, history: f64) {
        self.odds = (FIRST_ODDS - ODDS_PENALTY * f64::from(self.failures)).max(ODDS.0);
        self.next_try = round as f64 + RETRY * history;
    }

    /// Decides who gets the next round.
    fn choose(&mut self, order: &mut Order, tuner: Option<&Tuner>, is_calm: bool) {
        let Some(tuner) = tuner else {
            (order.asked, self.credit) = (Asked::Ridge, 0.0);
            return;
        };
        let turns = match self.odds {
            odds if odds > DRAW.1 => TURNS[0],
            odds if odds > DRAW.0 && !self.is_ridge_improving() => TURNS[1],
            _ => TURNS[2],
        };
        self.credit += 1.0 / turns;
        if !is_calm && self.odds <= DRAW.1 {
            self.credit = self.credit.max(1.0);
        }
        if self.credit >= 1.0 {
            self.credit -= 1.0;
            order.asked = Asked::Ridge;
        } else {
            order.asked = Asked::Block(tuner.asked);
        }
    }

    fn is_sound(&self) -> bool {
        (ODDS.0..=ODDS.1).contains(&self.odds)
            && [&self.recent, &self.longer]
                .into_iter()
                .chain(&self.usual)
                .all(|error| (0.0..=MAX_SUM).contains(error))
            && (0.0..=2.0).contains(&self.credit)
            && (0.0..=MAX_SUM).contains(&self.next_try)
            && is_count(self.since)
    }
}

impl RoundErrors {
    /// None in GR-OFL's first round.
    fn read(order: &Order, totals: &[f64], sizes: &Sizes) -> Option<Self> {
        let len = totals.len();
        let [samples, ridge, own] = match order.asked {
            Asked::Ridge if order.ridge.is_first() => return None,
            Asked::Ridge => {
                let at = order.ridge_len(sizes);
                // GR-OFL's last numbers: error, two of its own, count, samples.
                [totals[at - 1], totals[at - 5], totals[at]]
            }
            Asked::Errors | Asked::Block(_) => [totals[len - 3], totals[len - 2], totals[len - 1]],
        };
        Some(Self { samples, ridge, own })
    }
}

//! What a node saves: its sums, and what it knows of messages.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::delivery::{Delivered, extended};
use super::super::{BROADCAST_EXTRA, Order, SEARCHED_MOVES, Sizes, triangle};
use super::history::History;
use crate::limits::{MAX_LABEL, MAX_NUMBER, MAX_SUM};
use crate::message::Broadcast;
use crate::state::{BadState, is_count, read_body};

/// What is saved.
#[derive(Serialize, Deserialize)]
pub(in crate::method) struct Saved {
    pub(super) state: State,
    pub(super) history: History,
}

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    pub(super) broadcast: Broadcast,
    /// The last moves of the model, the latest first, as far back as no broadcast was missed.
    pub(super) moves: Vec<Vec<f64>>,
    /// Σ z zᵀ, lower triangle row by row.
    pub(super) gram: Vec<f64>,
    /// Σ z y.
    pub(super) moment: Vec<f64>,
    /// Σ 1.
    pub(super) count: f64,
    /// Σ y².
    pub(super) energy: f64,
    pub(super) smallest: f64,
    pub(super) largest: f64,
    /// The Gram matrix when this epoch began, and the samples behind it.
    pub(super) snapshot: Vec<f32>,
    pub(super) snapshot_count: f64,
    pub(super) snapshot_epoch: u32,
    /// Aw − b + y₀·Ae₁ on the active features, and VᵀAV (lower triangle); every sample adds to
    /// both.
    pub(super) gradient: Vec<f64>,
    pub(super) curvature: [f64; CURVATURES],
    pub(super) round: RoundSums,
    pub(super) delivered: Delivered,
}

pub(super) const CURVATURES: usize = SEARCHED_MOVES * (SEARCHED_MOVES + 1) / 2;

/// Over the samples since the latest broadcast.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct RoundSums {
    pub(super) samples: u64,
    pub(super) error: f64,
    pub(super) constant_error: f64,
    pub(super) constant_offset: f64,
}

/// Version 4 had the round in the broadcast, and the number of samples in the sums of the round.
pub(super) fn read_version_4(body: &[u8]) -> Result<(u64, u64, Saved), BadState> {
    let state: State = read_body(&extended(body, &Delivered::default()))?;
    Ok((state.broadcast.round, state.round.samples, Saved { state, history: History::default() }))
}

/// Version 5 had no checkpoints and knew nothing of slices that were delivered.
pub(super) fn read_version_5(body: &[u8]) -> Result<(u64, u64, Saved), BadState> {
    let (round, learned, state) = read_body(&extended(body, &Delivered::default()))?;
    Ok((round, learned, Saved { state, history: History::default() }))
}

pub(super) fn is_number(number: &f64) -> bool {
    number.abs() <= MAX_SUM
}

/// Largest size of a number that follows from a broadcast and sums.
pub(super) const MAX_PRODUCT: f64 = 1e200;

pub(super) fn is_sound(sizes: &Sizes, state: &State) -> bool {
    let Ok(order) = Order::read(sizes, &state.broadcast) else { return false };
    let follows = |number: &f64| number.abs() <= MAX_PRODUCT;
    let is_label = |label: f64| label.abs() <= f64::from(MAX_LABEL);
    let entries = triangle(sizes.features);
    let range = (state.smallest, state.largest);
    let knows_no_label = state.count == 0.0 && range == (f64::INFINITY, f64::NEG_INFINITY);
    let needs_snapshot = !order.is_first() && order.begin > 0;
    state.gram.len() == entries
        && state.moment.len() == sizes.features
        && state.gram.iter().chain(&state.moment).all(is_number)
        && state.moves.len() <= SEARCHED_MOVES
        && state.moves.iter().all(|v| v.len() <= order.len && v.iter().all(is_number))
        && state.moves.windows(2).all(|pair| pair[1].len() <= pair[0].len())
        && [state.count, state.energy, state.snapshot_count]
            .iter()
            .all(|sum| *sum >= 0.0 && is_number(sum))
        && (is_label(state.smallest) && is_label(state.largest) || knows_no_label)
        && (state.snapshot.len() == entries
            || state.snapshot.is_empty() && state.snapshot_epoch == 0)
        && (!needs_snapshot || state.snapshot_epoch == order.epoch)
        && state.snapshot.iter().all(|a| a.abs() <= MAX_NUMBER)
        && state.gradient.len() == if order.is_first() { 0 } else { order.len }
        && state.gradient.iter().chain(&state.curvature).all(follows)
        && is_count(state.round.samples)
        && [state.round.error, state.round.constant_error]
            .iter()
            .all(|sum| *sum >= 0.0 && follows(sum))
        && follows(&state.round.constant_offset)
        && state.delivered.is_sound()
        && state.broadcast.numbers.len() <= sizes.features + BROADCAST_EXTRA
}

//! From samples to features: angles are projected tile by tile, and then become sines and cosines.
//! The two are compiled apart, so that each has all registers for itself.

use alloc::vec::Vec;

use super::dot;
use crate::simd::trig::{Waves, tame};
use crate::simd::vector::{LANES, Line, Vector};

/// Frequencies are stored in panels of [`LANES`], each panel input by input, and padded with zeros
/// to a multiple of this.
pub(crate) const PADDING: usize = 2 * LANES;

/// Panels that are projected on before their angles become features.
pub(crate) const TILE: usize = 8;

/// Samples that share what is loaded of the frequencies.
pub(crate) const GROUP: usize = 4;

/// Angles of one sample, as many as a tile has at most.
pub(crate) type Angles = [Line; TILE];

pub(crate) const NO_ANGLES: Angles = [Line([0.0; LANES]); TILE];

/// How angles become features: panels of frequencies, and where each frequency's sine and cosine
/// go.
pub(crate) struct Projection<'a> {
    /// One line per panel and input.
    pub(crate) panels: &'a [Line],
    /// Rows of frequencies after those of the panels, if there are any: each padded with zeros to
    /// whole lines.
    pub(crate) few: &'a [Line],
    pub(crate) inputs: usize,
    /// Which frequencies each kernel uses, kernel after kernel, and how it scales them, if they are
    /// shared; a base draw begins on a whole vector.
    pub(crate) uses: &'a [Use],
    /// The last few frequencies of kernels that share them; where there are none, each kernel's
    /// have a vector of their own.
    pub(crate) tails: &'a [Tail],
    /// Whether kernels share frequencies and scale them; else an angle serves one kernel only.
    pub(crate) shared: bool,
    /// The largest angle that no scale takes beyond [`crate::simd::trig::LARGEST_DIRECT`].
    pub(crate) largest_angle: f32,
    /// Sines (and cosines) per kernel, D.
    pub(crate) per_kernel: usize,
    /// Length of one sample's features.
    pub(crate) width: usize,
    /// Size of sines and cosines: 1/√D, or 1.
    pub(crate) amplitude: f32,
}

impl Projection<'_> {
    fn kernels(&self) -> usize {
        self.width / (2 * self.per_kernel)
    }
}

/// A kernel takes the frequencies from `start` on, times `scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    pub(crate) start: usize,
    pub(crate) scale: f32,
}

/// A vector of the last few frequencies of several kernels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tail {
    /// Where the angles come from.
    panel: usize,
    lanes: [u32; LANES],
    scales: Line,
    /// Where the sines go; the first so many are used.
    places: [usize; LANES],
    filled: usize,
}

impl Tail {
    /// At most this many lanes of a kernel's last block share a vector with those of other kernels.
    const FEW: usize = LANES / 4;

    /// Packs the last few frequencies of kernels with shared draws, if they are few.
    pub(crate) fn pack(uses: &[Use], per_kernel: usize) -> Vec<Self> {
        let count = per_kernel % LANES;
        let mut tails: Vec<Self> = Vec::new();
        if !(1..=Self::FEW).contains(&count) {
            return tails;
        }
        let last = per_kernel - count;
        for (kernel, user) in uses.iter().enumerate() {
            let panel = (user.start + last) / LANES;
            let room = |tail: &Self| tail.panel == panel && tail.filled + count <= LANES;
            let at = tails.iter().position(room).unwrap_or_else(|| {
                let scales = Line([0.0; LANES]);
                tails.push(Self {
                    panel,
                    lanes: [0; LANES],
                    scales,
                    places: [0; LANES],
                    filled: 0,
                });
                tails.len() - 1
            });
            let tail = &mut tails[at];
            for lane in 0..count {
                tail.lanes[tail.filled] = lane as u32;
                tail.scales.0[tail.filled] = user.scale;
                tail.places[tail.filled] = kernel * 2 * per_kernel + last + lane;
                tail.filled += 1;
            }
        }
        tails
    }
}

/// How many of the last frequencies of a draw that all kernels share would have a panel for
/// themselves though they are few. It is the last of a tile that has others.
pub(crate) fn few_frequencies(uses: &[Use], per_kernel: usize) -> usize {
    let (panels, count) = (per_kernel / LANES, per_kernel % LANES);
    let one_draw = uses.iter().all(|user| user.start == 0);
    if one_draw && count <= Tail::FEW && !panels.is_multiple_of(TILE) { count } else { 0 }
}

/// The angles of [`GROUP`] samples on the panels of one tile.
#[inline(always)]
pub(crate) fn project_together<V: Vector>(
    panels: &[Line],
    x: &[f32],
    angles: &mut [Angles; GROUP],
) {
    let inputs = x.len() / GROUP;
    if V::REGISTERS >= 32 {
        let fours = panels.chunks_exact(4 * inputs);
        let (done, rest) = (4 * fours.len(), fours.remainder());
        for (four, panels) in fours.enumerate() {
            project::<V, 4, GROUP>(panels, x, 4 * four, angles);
        }
        match rest.len() / inputs {
            0 => 0,
            1 => project::<V, 1, GROUP>(rest, x, done, angles),
            2 => project::<V, 2, GROUP>(rest, x, done, angles),
            _ => project::<V, 3, GROUP>(rest, x, done, angles),
        };
    } else {
        let pairs = panels.chunks_exact(2 * inputs);
        let (done, rest) = (2 * pairs.len(), pairs.remainder());
        let (first, second) = angles.split_at_mut(GROUP / 2);
        let (x, y) = x.split_at(GROUP / 2 * inputs);
        for (pair, panels) in pairs.enumerate() {
            project::<V, 2, { GROUP / 2 }>(panels, x, 2 * pair, first);
            project::<V, 2, { GROUP / 2 }>(panels, y, 2 * pair, second);
        }
        if !rest.is_empty() {
            project::<V, 1, { GROUP / 2 }>(rest, x, done, first);
            project::<V, 1, { GROUP / 2 }>(rest, y, done, second);
        }
    }
}

/// The angles of one or more samples on rows of frequencies that are too few for a panel; the
/// others of their line are zero.
#[inline(always)]
pub(crate) fn project_few<V: Vector>(few: &[Line], x: &[f32], line: usize, angles: &mut [Angles]) {
    let inputs = x.len() / angles.len();
    for (x, angles) in x.chunks_exact(inputs).zip(angles) {
        // In a register: a line that was stored in parts can't soon be loaded whole.
        let mut lanes = V::splat(0.0);
        for (lane, row) in few.chunks_exact(inputs.div_ceil(LANES)).enumerate() {
            lanes = lanes.with_lane(lane, dot::<V>(row, x));
        }
        lanes.store(&mut angles[line].0);
    }
}

/// The angles of one sample on the panels of one tile. Its few sums wait for their last addition
/// each: the more of them at a time, the better.
#[inline(always)]
pub(crate) fn project_alone<V: Vector>(panels: &[Line], x: &[f32], angles: &mut Angles) {
    let angles = core::slice::from_mut(angles);
    let most = if V::REGISTERS >= 32 { 8 } else { 4 };
    let (count, mut done) = (panels.len() / x.len(), 0);
    while done < count {
        let rest = &panels[done * x.len()..];
        done += match (count - done).min(most) {
            8.. => project::<V, 8, 1>(rest, x, done, angles),
            6.. => project::<V, 6, 1>(rest, x, done, angles),
            4.. => project::<V, 4, 1>(rest, x, done, angles),
            3 => project::<V, 3, 1>(rest, x, done, angles),
            2 => project::<V, 2, 1>(rest, x, done, angles),
            _ => project::<V, 1, 1>(rest, x, done, angles),
        };
    }
}

/// `B` panels for `S` samples: enough independent sums to keep the multipliers busy, few enough to
/// stay in registers. Slices are cut to length first so that the loop has no checks in it. Returns
/// `B`.
#[inline(always)]
fn project<V: Vector, const B: usize, const S: usize>(
    panels: &[Line],
    x: &[f32],
    first: usize,
    angles: &mut [Angles],
) -> usize {
    let d = x.len() / S;
    let panels: [&[Line]; B] = core::array::from_fn(|block| &panels[block * d..(block + 1) * d]);
    let samples: [&[f32]; S] = core::array::from_fn(|s| &x[s * d..(s + 1) * d]);
    let mut sums = [[V::splat(0.0); B]; S];
    for input in 0..d {
        for block in 0..B {
            let row = V::load(&panels[block][input].0);
            for s in 0..S {
                sums[s][block] = row.mul_add(V::splat(samples[s][input]), sums[s][block]);
            }
        }
    }
    for (angles, sums) in angles.iter_mut().zip(sums) {
        for (line, sum) in angles[first..first + B].iter_mut().zip(sums) {
            sum.store(&mut line.0);
        }
    }
    B
}

/// Writes the features of one or more samples that a tile's angles give; the tile has `count`
/// panels from frequency `first` on.
#[inline(always)]
pub(crate) fn write_features<V: Vector>(
    projection: &Projection<'_>,
    first: usize,
    count: usize,
    angles: &[Angles],
    z: &mut [f32],
) {
    let waves = Waves::<V>::new(projection.amplitude);
    for (angles, z) in angles.iter().zip(z.chunks_exact_mut(projection.width)) {
        let angles = &angles[..count];
        let mut largest = V::splat(0.0);
        for angles in angles {
            largest = largest.larger_size(V::load(&angles.0));
        }
        if largest.any_beyond(projection.largest_angle) {
            write_wild(projection, first, angles, z);
        } else if projection.shared {
            write_tails(projection, &waves, first, angles, z);
            write_scaled(projection, &waves, first, angles, z);
        } else {
            for (block, angles) in angles.iter().enumerate() {
                write_own(projection, &waves, first + block * LANES, V::load(&angles.0), z);
            }
        }
    }
}

/// The same for angles that are too large to be taken directly. Out of line, so that it costs
/// nothing where they aren't.
#[cold]
#[inline(never)]
fn write_wild(projection: &Projection<'_>, first: usize, angles: &[Line], z: &mut [f32]) {
    let waves = Waves::new(projection.amplitude);
    for (block, angles) in angles.iter().enumerate() {
        let first = first + block * LANES;
        if !projection.shared {
            write_own(projection, &waves, first, angles.0.map(tame), z);
            continue;
        }
        for (user, z) in projection.uses.iter().zip(z.chunks_exact_mut(2 * projection.per_kernel)) {
            let alone =
                Projection { uses: &[Use { scale: 1.0, ..*user }], tails: &[], ..*projection };
            let scaled = Line(angles.0.map(|angle| tame(angle * user.scale)));
            write_scaled::<[f32; LANES]>(&alone, &waves, first, &[scaled], z);
        }
    }
}

/// Writes the features that [`LANES`] frequencies from `first` on give one sample, where each
/// belongs to one kernel. A block may reach over the end of one kernel into the next.
#[inline(always)]
fn write_own<V: Vector>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    first: usize,
    angles: V,
    z: &mut [f32],
) {
    let per_kernel = projection.per_kernel;
    let (sines, cosines) = waves.of(angles);
    let (mut kernel, mut begin) = (first / per_kernel, first / per_kernel * per_kernel);
    while kernel < projection.kernels() && begin < first + LANES {
        let (low, high) = (begin.saturating_sub(first), (begin + per_kernel - first).min(LANES));
        // Where lane 0 would go.
        let into = kernel * 2 * per_kernel + first - begin;
        store(z, into, low, high, sines);
        store(z, into + per_kernel, low, high, cosines);
        kernel += 1;
        begin += per_kernel;
    }
}

/// Writes the features of every kernel that scales the frequencies from `first` on, but not those
/// that are packed.
#[inline(always)]
fn write_scaled<V: Vector>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    first: usize,
    angles: &[Line],
    z: &mut [f32],
) {
    let per_kernel = projection.per_kernel;
    for (user, model) in projection.uses.iter().zip(z.chunks_exact_mut(2 * per_kernel)) {
        // Where the kernel's frequencies begin in the tile, and where the tile begins in them.
        let (skip, done) = (user.start.saturating_sub(first), first.saturating_sub(user.start));
        let Some(angles) = angles.get(skip / LANES..).filter(|_| done < per_kernel) else {
            continue;
        };
        let count = (per_kernel - done).min(angles.len() * LANES);
        let scale = V::splat(user.scale);
        let (sines, cosines) = model.split_at_mut(per_kernel);
        let (sines, cosines) = (&mut sines[done..done + count], &mut cosines[done..done + count]);
        let (sine_blocks, sine_rest) = sines.as_chunks_mut();
        let (cosine_blocks, cosine_rest) = cosines.as_chunks_mut();
        let blocks = angles.iter().zip(sine_blocks).zip(cosine_blocks);
        let done = blocks.len();
        for ((angles, sines), cosines) in blocks {
            let (s, c) = waves.of(V::load(&angles.0).mul(scale));
            s.store(sines);
            c.store(cosines);
        }
        if !sine_rest.is_empty() && projection.tails.is_empty() {
            let (s, c) = waves.of(V::load(&angles[done].0).mul(scale));
            let count = sine_rest.len();
            store(sine_rest, 0, 0, count, s);
            store(cosine_rest, 0, 0, count, c);
        }
    }
}

/// Writes the last few frequencies of every kernel. They come first, because the next reader starts
/// at the beginning and should not wait for the last stores.
#[inline(always)]
fn write_tails<V: Vector>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    first: usize,
    angles: &[Line],
    z: &mut [f32],
) {
    for tail in projection.tails {
        let Some(angles) = tail.panel.checked_sub(first / LANES).and_then(|at| angles.get(at))
        else {
            continue;
        };
        let packed = V::load(&angles.0).pick(&tail.lanes);
        let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
        let (s, c) = waves.of(packed.mul(V::load(&tail.scales.0)));
        s.store(&mut sines);
        c.store(&mut cosines);
        for ((place, sine), cosine) in tail.places[..tail.filled].iter().zip(&sines).zip(&cosines) {
            z[*place] = *sine;
            z[*place + projection.per_kernel] = *cosine;
        }
    }
}

/// Stores lanes `low` to `high` of a block whose lane 0 belongs at `into`.
#[inline(always)]
fn store<V: Vector>(z: &mut [f32], into: usize, low: usize, high: usize, values: V) {
    match z[into..].first_chunk_mut() {
        Some(place) if high - low == LANES => values.store(place),
        Some(place) => values.store_part(place, low, high),
        None => {
            let mut lanes = [0.0; LANES];
            values.store(&mut lanes);
            z[into + low..into + high].copy_from_slice(&lanes[low..high]);
        }
    }
}

//! The loops that all time goes into, written once over [`Vector`] and called through `simd.rs`.

use crate::dictionary::COSINE_SIZE;
use crate::features::Features;
use crate::loss::Step;
use crate::trig::{LARGEST_DIRECT, Waves, tame};
use crate::vector::{LANES, Line, Vector};

/// Frequencies are stored in panels of [`LANES`], each panel input by input, and padded with zeros to a multiple of this.
pub(crate) const PADDING: usize = 2 * LANES;

/// How angles become features: panels of frequencies, and where each frequency's sine and cosine go.
pub(crate) struct Projection<'a> {
    /// One line per panel and input.
    pub(crate) panels: &'a [Line],
    pub(crate) inputs: usize,
    /// Which frequencies each kernel uses, and how it scales them, if they are shared; a base draw begins on a whole vector.
    pub(crate) uses: &'a [Use],
    /// Whether kernels share frequencies and scale them; else an angle serves one kernel only.
    pub(crate) shared: bool,
    /// The largest angle that no scale takes beyond [`crate::trig::LARGEST_DIRECT`].
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

/// Kernel `kernel` takes the frequencies from `start` on, times `scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    pub(crate) start: usize,
    pub(crate) kernel: usize,
    pub(crate) scale: f32,
}

/// Samples that share what is loaded of the frequencies.
#[inline(always)]
pub(crate) fn map_together<V: Vector>(projection: &Projection<'_>, x: &[f32], z: &mut [f32]) -> usize {
    let (d, width, group) = (projection.inputs, projection.width, V::SAMPLES);
    let waves = Waves::new(projection.amplitude);
    for (x, z) in x.chunks_exact(group * d).zip(z.chunks_exact_mut(group * width)) {
        match group {
            4 => map_group::<V, 2, 4>(projection, &waves, x, z),
            _ => map_group::<V, 2, 2>(projection, &waves, x, z),
        }
    }
    x.len() / d / group * group
}

/// One sample. Its few sums wait for their last addition each: the more of them at a time, the better. (A function of its own:
/// together with the other, both would run short of registers.)
#[inline(always)]
pub(crate) fn map_alone<V: Vector>(projection: &Projection<'_>, x: &[f32], z: &mut [f32]) {
    let waves = Waves::new(projection.amplitude);
    match V::SAMPLES {
        4 => map_group::<V, 8, 1>(projection, &waves, x, z),
        _ => map_group::<V, 4, 1>(projection, &waves, x, z),
    }
}

/// `B` vectors of frequencies at a time for `S` samples: enough independent sums to keep the multipliers busy, few enough to
/// stay in registers.
#[inline(always)]
fn map_group<V: Vector, const B: usize, const S: usize>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    x: &[f32],
    z: &mut [f32],
) {
    let padded = projection.panels.len() / projection.inputs * LANES;
    let mut start = 0;
    while start + B * LANES <= padded {
        map_block::<V, B, S>(projection, waves, start, x, z);
        start += B * LANES;
    }
    while S == 1 && start + 4 * LANES <= padded {
        map_block::<V, 4, S>(projection, waves, start, x, z);
        start += 4 * LANES;
    }
    while start < padded {
        map_block::<V, 2, S>(projection, waves, start, x, z);
        start += PADDING;
    }
}

#[inline(always)]
fn map_block<V: Vector, const B: usize, const S: usize>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    start: usize,
    x: &[f32],
    z: &mut [f32],
) {
    let angles = project::<V, B, S>(projection, start, x);
    for (angles, z) in angles.iter().zip(z.chunks_exact_mut(projection.width)) {
        let wild = angles.iter().fold(false, |any, angles| any | angles.any_beyond(projection.largest_angle));
        if wild {
            for (block, angles) in angles.iter().enumerate() {
                let mut lanes = [0.0; LANES];
                angles.store(&mut lanes);
                write_wild(projection, start + block * LANES, lanes, z);
            }
        } else if projection.shared {
            write_scaled(projection, waves, start, angles, z);
        } else {
            for (block, angles) in angles.iter().enumerate() {
                write_own(projection, waves, start + block * LANES, *angles, z);
            }
        }
    }
}

/// The same for angles that are too large to be taken directly. Out of line, so that it costs nothing where they aren't.
#[cold]
#[inline(never)]
fn write_wild(projection: &Projection<'_>, first: usize, angles: [f32; LANES], z: &mut [f32]) {
    let waves = Waves::new(projection.amplitude);
    if !projection.shared {
        write_own(projection, &waves, first, angles.map(tame), z);
        return;
    }
    for user in projection.uses {
        let alone = Projection { uses: &[Use { scale: 1.0, ..*user }], ..*projection };
        let scaled = angles.map(|angle| tame(angle * user.scale));
        write_scaled(&alone, &waves, first, &[scaled], z);
    }
}

/// The angles of `S` samples. Slices are cut to length first so that the loop has no checks in it.
#[inline(always)]
fn project<V: Vector, const B: usize, const S: usize>(
    projection: &Projection<'_>,
    start: usize,
    x: &[f32],
) -> [[V; B]; S] {
    let d = projection.inputs;
    let panels: [&[Line]; B] = std::array::from_fn(|block| {
        let first = (start / LANES + block) * d;
        &projection.panels[first..first + d]
    });
    let samples: [&[f32]; S] = std::array::from_fn(|s| &x[s * d..(s + 1) * d]);
    let mut angles = [[V::splat(0.0); B]; S];
    for input in 0..d {
        for block in 0..B {
            let row = V::load(&panels[block][input].0);
            for s in 0..S {
                angles[s][block] = row.mul_add(V::splat(samples[s][input]), angles[s][block]);
            }
        }
    }
    angles
}

/// Writes the features that [`LANES`] frequencies from `first` on give one sample, where each belongs to one kernel. A block may
/// reach over the end of one kernel into the next.
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

/// Writes the features that `B` blocks of frequencies from `start` on give one sample for every kernel that scales them.
#[inline(always)]
fn write_scaled<V: Vector, const B: usize>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    start: usize,
    angles: &[V; B],
    z: &mut [f32],
) {
    let per_kernel = projection.per_kernel;
    let few = per_kernel % LANES;
    let packs = (1..=FEW).contains(&few);
    for user in projection.uses {
        let scale = V::splat(user.scale);
        let model = &mut z[user.kernel * 2 * per_kernel..];
        for (block, angles) in angles.iter().enumerate() {
            // Wraps around, and so falls out, where the block belongs to another base draw.
            let into = (start + block * LANES).wrapping_sub(user.start);
            if into < per_kernel - if packs { few } else { 0 } {
                let (sines, cosines) = waves.of(angles.mul(scale));
                let high = (per_kernel - into).min(LANES);
                store(model, into, 0, high, sines);
                store(model, into + per_kernel, 0, high, cosines);
            }
        }
    }
    if packs {
        for (block, angles) in angles.iter().enumerate() {
            write_few(projection, waves, start + block * LANES, *angles, z);
        }
    }
}

/// At most this many lanes of a kernel's last block share a vector with those of other kernels.
const FEW: usize = LANES / 4;

/// The last few frequencies of every kernel, packed into as few vectors as they fill.
#[inline(always)]
fn write_few<V: Vector>(
    projection: &Projection<'_>,
    waves: &Waves<V>,
    first: usize,
    angles: V,
    z: &mut [f32],
) {
    let per_kernel = projection.per_kernel;
    let count = per_kernel % LANES;
    let last = per_kernel - count;
    let mut base = [0.0; LANES];
    angles.store(&mut base);
    // A base draw's last block is the same for all kernels that use it.
    let mut users = projection.uses.iter().filter(|user| first == user.start + last);
    loop {
        let (mut packed, mut places, mut filled) = ([0.0; LANES], [0; LANES], 0);
        while filled + count <= LANES {
            let Some(user) = users.next() else { break };
            for (lane, angle) in base[..count].iter().enumerate() {
                packed[filled] = angle * user.scale;
                places[filled] = user.kernel * 2 * per_kernel + last + lane;
                filled += 1;
            }
        }
        if filled == 0 {
            return;
        }
        let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
        let (s, c) = waves.of(V::load(&packed));
        s.store(&mut sines);
        c.store(&mut cosines);
        for ((place, sine), cosine) in places[..filled].iter().zip(sines).zip(cosines) {
            z[*place] = sine;
            z[*place + per_kernel] = cosine;
        }
    }
}

/// Features of one sample: a constant, `linear` projections, cosines; see [`crate::dictionary::Dictionary`].
#[inline(always)]
pub(crate) fn map_dictionary<V: Vector>(
    panels: &[Line],
    phases: &[Line],
    linear: usize,
    x: &[f32],
    z: &mut [f32],
) {
    let waves = Waves::<V>::new(COSINE_SIZE);
    let blocks = panels.chunks_exact(x.len()).zip(phases).zip(z.chunks_mut(LANES));
    for (block, ((rows, phases), z)) in blocks.enumerate() {
        let mut sum = V::load(&phases.0);
        for (row, x) in rows.iter().zip(x) {
            sum = V::load(&row.0).mul_add(V::splat(*x), sum);
        }
        let (mut sums, mut cosines) = ([0.0; LANES], [0.0; LANES]);
        sum.store(&mut sums);
        let angles = if sum.any_beyond(LARGEST_DIRECT) { V::load(&sums.map(tame)) } else { sum };
        waves.of(angles).1.store(&mut cosines);
        let first = block * LANES;
        for (lane, z) in z.iter_mut().enumerate() {
            *z = match first + lane {
                0 => 1.0,
                // What overflowed has no size that could be told.
                row if row <= linear && sums[lane].is_nan() => 0.0,
                row if row <= linear => sums[lane].clamp(-Features::LIMIT, Features::LIMIT),
                _ => cosines[lane],
            };
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

#[inline(always)]
fn largest_lane<V: Vector>(values: V) -> f32 {
    let mut lanes = [0.0; LANES];
    values.larger_size(values).store(&mut lanes);
    f32::from_bits(lanes.iter().fold(0, |largest, lane| lane.to_bits().max(largest)))
}

/// Calls `each` with the vectors of a model and those of its features; the last may be filled up with zeros.
#[inline(always)]
fn for_each_vector<V: Vector>(model: &[Line], z: &[f32], mut each: impl FnMut(V, V)) {
    let (blocks, rest) = z.as_chunks();
    let (whole, last) = model.split_at(blocks.len());
    for (weights, z) in whole.iter().zip(blocks) {
        each(V::load(&weights.0), V::load(z));
    }
    if let Some(weights) = last.first() {
        each(V::load(&weights.0), V::load_part(rest));
    }
}

#[inline(always)]
pub(crate) fn dot<V: Vector>(model: &[Line], z: &[f32]) -> f32 {
    let mut dot = V::splat(0.0);
    for_each_vector(model, z, |weights: V, z| dot = weights.mul_add(z, dot));
    dot.sum()
}

#[inline(always)]
pub(crate) fn norm2<V: Vector>(model: &[Line]) -> f32 {
    let mut norm2 = V::splat(0.0);
    for weights in model {
        let weights = V::load(&weights.0);
        norm2 = weights.mul_add(weights, norm2);
    }
    norm2.sum()
}

#[inline(always)]
pub(crate) fn descend_rows<V: Vector>(
    models: &mut [Line],
    z: &[f32],
    width: usize,
    step: &Step,
    losses: &mut [f64],
) {
    let rows = models.chunks_exact_mut(width.div_ceil(LANES)).zip(z.chunks_exact(width));
    // Row by row, so that the update of one overlaps with the prediction of the next.
    for ((model, z), loss) in rows.zip(losses) {
        // Two sums each, in turns, so that one addition needn't wait for the last.
        let (mut dot, mut norm2) = ([V::splat(0.0); 2], [V::splat(0.0); 2]);
        for_each_vector(model, z, |weights: V, z| {
            dot = [dot[1], weights.mul_add(z, dot[0])];
            norm2 = [norm2[1], weights.mul_add(weights, norm2[0])];
        });
        let (shrink, along);
        (*loss, shrink, along) = step.of(dot[0].add(dot[1]).sum(), norm2[0].add(norm2[1]).sum());
        let (shrink, along) = (V::splat(shrink), V::splat(along));
        let (blocks, rest) = z.as_chunks();
        let (whole, last) = model.split_at_mut(blocks.len());
        for (weights, z) in whole.iter_mut().zip(blocks) {
            along.mul_add(V::load(z), V::load(&weights.0).mul(shrink)).store(&mut weights.0);
        }
        if let Some(weights) = last.first_mut() {
            along.mul_add(V::load_part(rest), V::load(&weights.0).mul(shrink)).store(&mut weights.0);
        }
    }
}

#[inline(always)]
pub(crate) fn largest_size<V: Vector>(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks();
    // Four at a time, so that one maximum needn't wait for the last.
    let mut largest = [V::splat(0.0); 4];
    let (fours, few) = blocks.as_chunks::<4>();
    for four in fours {
        for (largest, block) in largest.iter_mut().zip(four) {
            *largest = largest.larger_size(V::load(block));
        }
    }
    for block in few {
        largest[0] = largest[0].larger_size(V::load(block));
    }
    let largest = largest[0].larger_size(largest[1]).larger_size(largest[2].larger_size(largest[3]));
    let sizes = rest.iter().map(|value| value.abs().to_bits());
    f32::from_bits(sizes.fold(largest_lane(largest).to_bits(), u32::max))
}

#[inline(always)]
pub(crate) fn add_exactly<V: Vector>(parts: &mut [Vec<f64>; 3], values: &[f32]) {
    // Adding and taking off 1.5·2^(52-b) rounds to a multiple of 2^-b; here b = 0, 35 and 70.
    const COARSE: f64 = 1.5 * (1u64 << 52) as f64;
    const MIDDLE: f64 = 1.5 * (1u64 << 17) as f64;
    const FINE: f64 = 1.5 / (1u64 << 18) as f64;
    let [coarse, middle, fine] = parts;
    let sums = coarse.iter_mut().zip(middle.iter_mut()).zip(fine.iter_mut());
    for (((coarse, middle), fine), &value) in sums.zip(values) {
        let value = f64::from(value);
        let head = (value + COARSE) - COARSE;
        let rest = value - head;
        let body = (rest + MIDDLE) - MIDDLE;
        let tail = rest - body;
        *coarse += head;
        *middle += body;
        *fine += (tail + FINE) - FINE;
    }
}

#[inline(always)]
pub(crate) fn add_gram<V: Vector>(gram: &mut [f64], moment: &mut [f64], z: &[f64], y: &[f64]) {
    let width = moment.len();
    let four = z.chunks_exact(4 * width).zip(y.chunks_exact(4));
    for (rows, labels) in four {
        add_gram_rows::<4>(gram, moment, rows, labels);
    }
    let done = y.len() / 4 * 4;
    for (row, label) in z[done * width..].chunks_exact(width).zip(y[done..].chunks_exact(1)) {
        add_gram_rows::<1>(gram, moment, row, label);
    }
}

/// `S` rows at once, so that each entry of the triangle is loaded and stored once for all of them.
#[inline(always)]
fn add_gram_rows<const S: usize>(gram: &mut [f64], moment: &mut [f64], rows: &[f64], y: &[f64]) {
    let width = moment.len();
    let mut at = 0;
    for i in 0..width {
        let mut factors = [0.0; S];
        for (s, factor) in factors.iter_mut().enumerate() {
            *factor = rows[s * width + i];
            moment[i] = factor.mul_add(y[s], moment[i]);
        }
        let triangle = &mut gram[at..=at + i];
        for (j, entry) in triangle.iter_mut().enumerate() {
            let mut sum = *entry;
            for (s, factor) in factors.iter().enumerate() {
                sum = factor.mul_add(rows[s * width + j], sum);
            }
            *entry = sum;
        }
        at += i + 1;
    }
}

/// Fused multiply-adds in one round of [`spin`].
#[cfg(feature = "probe")]
pub(crate) const SPIN_WIDTH: usize = 8 * LANES;

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn spin<V: Vector>(rounds: u64) -> f32 {
    // Different starts, or the compiler would see that one sum is enough.
    let mut sums: [V; SPIN_WIDTH / LANES] = std::array::from_fn(|i| V::splat(i as f32));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = sum.mul_add(V::splat(0.999), V::splat(0.001));
        }
    }
    sums.iter().map(|sum| sum.sum()).sum()
}

#[cfg(feature = "probe")]
#[inline(always)]
pub(crate) fn sin_cos_all<V: Vector>(angles: &[f32], sines: &mut [f32], cosines: &mut [f32]) {
    let waves = Waves::<V>::new(1.0);
    let outs = sines.as_chunks_mut().0.iter_mut().zip(cosines.as_chunks_mut().0);
    for (angles, (sines, cosines)) in angles.as_chunks().0.iter().zip(outs) {
        let (s, c) = waves.of(V::load(angles));
        s.store(sines);
        c.store(cosines);
    }
}

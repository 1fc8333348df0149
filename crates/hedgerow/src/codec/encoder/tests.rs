use core::num::NonZeroU16;

use super::super::decode;
use super::*;

fn coding(numbers: NumberFormat, part: u16) -> Coding {
    Coding { numbers, part: NonZeroU16::new(part).unwrap() }
}

fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let stream = CounterRng::from_seed(seed);
    (0..count as u64).map(|at| stream.uniform_at(at) as f32 - 0.5).collect()
}

/// Sends a message of one section and takes it.
fn send(
    encoder: &mut Encoder,
    round: u64,
    kind: Kind,
    numbers: &[f32],
    known: &Reference,
) -> Vec<f32> {
    let (mut bytes, mut read) = (vec![], vec![]);
    let sections = [Section { len: numbers.len(), kind }];
    let cost = encoder.encode(round, &sections, numbers, known, &mut bytes);
    assert_eq!(decode(&bytes, known, numbers.len(), &mut read), Ok(cost));
    encoder.acknowledge();
    read
}

#[test]
fn what_is_owed_keeps_the_mean_over_time() {
    const ROUNDS: u64 = 200;
    let (numbers, known) = (numbers(1, 100), Reference::default());
    for coding in
        NumberFormat::ALL.into_iter().flat_map(|format| [1, 3].map(|part| coding(format, part)))
    {
        let mut encoder = Encoder::for_node(coding, 1, 2);
        let mut sums = vec![0.0; 100];
        for round in 100..100 + ROUNDS {
            let read = send(&mut encoder, round, Kind::Steady { slot: 0 }, &numbers, &known);
            sums.iter_mut().zip(read).for_each(|(sum, read)| *sum += f64::from(read));
        }
        // At most a few units and turns are missing, however many rounds there were.
        let unit = if coding.numbers == NumberFormat::Bits4 { 0.25 } else { 0.02 };
        for (sum, number) in sums.iter().zip(&numbers) {
            let missing = (sum - ROUNDS as f64 * f64::from(*number)).abs();
            let waits = f64::from(coding.part.get() - 1) * f64::from(number.abs());
            assert!(missing <= unit + waits, "{coding:?}: {missing} of {number}");
        }
    }
}

#[test]
fn fresh_numbers_owe_nothing_and_have_half_precision() {
    let (numbers, known) = (numbers(1, 100), Reference::default());
    for format in NumberFormat::ALL {
        let mut encoder = Encoder::for_node(coding(format, 3), 1, 0);
        let mut sums = vec![0.0; 100];
        for round in 0..200 {
            let read = send(&mut encoder, round, Kind::Fresh, &numbers, &known);
            // Eleven binary digits of a half.
            assert!(
                read.iter()
                    .zip(&numbers)
                    .all(|(read, number)| (read - number).abs() <= 0.5 / 2048.0)
            );
            assert_eq!(read == numbers, matches!(format, NumberFormat::F32 | NumberFormat::F16));
            sums.iter_mut().zip(read).for_each(|(sum, read)| *sum += f64::from(read) / 200.0);
        }
        assert!(encoder.state.slots.is_empty());
        // Five standard deviations of a mean of 200.
        let near = sums
            .iter()
            .zip(&numbers)
            .all(|(mean, number)| (mean - f64::from(*number)).abs() < 1e-4);
        assert!(near, "{sums:?}");
    }
}

#[test]
fn numbers_rounds_and_senders_have_chances_of_their_own() {
    // Each number but the first is a third of a unit above zero.
    let mut numbers = [1.0 / 21.0; 64];
    numbers[0] = 1.0;
    let (coding, known) = (coding(NumberFormat::Bits4, 1), Reference::default());
    let ups = |encoder: &mut Encoder, round| -> Vec<usize> {
        // A slot of its own, so that nothing is owed.
        let read = send(encoder, round, Kind::Model { slot: round as usize }, &numbers, &known);
        (1..64).filter(|at| read[*at] > 0.0).collect()
    };
    let mut node = Encoder::for_node(coding, 1, 0);
    let first = ups(&mut node, 1);
    assert!((8..35).contains(&first.len()), "{first:?}");
    let others = [
        ups(&mut node, 2),
        ups(&mut Encoder::for_node(coding, 1, 1), 1),
        ups(&mut Encoder::for_node(coding, 2, 0), 1),
        ups(&mut Encoder::for_server(coding, 1), 1),
    ];
    assert!(others.iter().all(|other| *other != first));
    assert_eq!(ups(&mut Encoder::for_node(coding, 1, 0), 1), first);
}

#[test]
fn a_model_that_waits_stays_as_broadcast() {
    let (base, model) = (numbers(1, 10), numbers(2, 10));
    let mut known = Reference::default();
    known.set(&[Section { len: 10, kind: Kind::Model { slot: 4 } }], &base);
    let mut encoder = Encoder::for_node(coding(NumberFormat::F32, 2), 1, 1);
    // Node 1 starts with the odd numbers; the others come with the next message, without new
    // samples.
    let first = send(&mut encoder, 9, Kind::Model { slot: 4 }, &model, &known);
    for at in 0..10 {
        assert_eq!(first[at], if at % 2 == 1 { model[at] } else { base[at] });
    }
    known.set(&[Section { len: 10, kind: Kind::Model { slot: 4 } }], &first);
    let second = send(&mut encoder, 10, Kind::Model { slot: 4 }, &first, &known);
    let near = second.iter().zip(&model).all(|(read, model)| (read - model).abs() < 1e-6);
    assert!(near, "{second:?} is not {model:?}");
    // Where both sides know the model of another slot only, all of it travels.
    let third = send(&mut encoder, 11, Kind::Model { slot: 5 }, &base, &known);
    assert_eq!(third, base);
}

#[test]
fn differences_are_rounded_by_their_own_size() {
    let base = numbers(1, 98);
    let model: Vec<f32> =
        base.iter().zip(numbers(2, 98)).map(|(base, step)| base + 1e-3 * step).collect();
    let mut known = Reference::default();
    known.set(&[Section { len: 98, kind: Kind::Model { slot: 0 } }], &base);
    let mut encoder = Encoder::for_server(coding(NumberFormat::Bits4, 1), 1);
    let read = send(&mut encoder, 9, Kind::Model { slot: 0 }, &model, &known);
    assert!(read.iter().zip(&model).all(|(read, model)| (read - model).abs() < 1e-3 / 7.0));
    assert!(read != model);
}

#[test]
fn what_is_owed_belongs_to_its_slot() {
    let known = Reference::default();
    let [one, two] = [1, 2].map(|seed| numbers(seed, 20));
    let coding = coding(NumberFormat::Bits4, 1);
    let mut both = Encoder::for_node(coding, 1, 0);
    let mut alone = both.clone();
    for round in 1..6 {
        send(&mut both, 2 * round, Kind::Model { slot: 0 }, &one, &known);
        let read = send(&mut both, 2 * round + 1, Kind::Model { slot: 7 }, &two, &known);
        assert_eq!(read, send(&mut alone, 2 * round + 1, Kind::Model { slot: 7 }, &two, &known));
    }
}

#[test]
fn nothing_happens_until_a_message_is_taken() {
    let known = Reference::default();
    let sections = [Section { len: 20, kind: Kind::Steady { slot: 1 } }];
    let mut encoder = Encoder::for_node(coding(NumberFormat::Bits4, 2), 1, 0);
    send(&mut encoder, 8, Kind::Steady { slot: 1 }, &numbers(1, 20), &known);
    let mut bytes = [vec![], vec![], vec![]];
    for (bytes, seed) in bytes.iter_mut().zip([2, 3, 2]) {
        encoder.encode(9, &sections, &numbers(seed, 20), &known, bytes);
    }
    assert_eq!(bytes[0], bytes[2]);
    assert_ne!(bytes[0], bytes[1]);
    // After a save and restore it continues in the same way.
    let mut copy = Encoder::for_node(coding(NumberFormat::Bits4, 2), 1, 0);
    copy.restore(&encoder.save()).unwrap();
    for encoder in [&mut encoder, &mut copy] {
        encoder.acknowledge();
    }
    let next = send(&mut encoder, 10, Kind::Steady { slot: 1 }, &numbers(4, 20), &known);
    assert_eq!(next, send(&mut copy, 10, Kind::Steady { slot: 1 }, &numbers(4, 20), &known));
    assert_ne!(
        encoder.encode(10, &sections, &numbers(4, 20), &known, &mut bytes[0]),
        Cost::default()
    );
    encoder.forget();
    assert!(
        encoder.state.slots.iter().all(|slot| slot.owed.is_empty() && slot.owed_next.is_empty())
    );
}

#[test]
fn sections_may_grow() {
    let mut known = Reference::default();
    let mut encoder = Encoder::for_node(coding(NumberFormat::Bits8, 2), 1, 0);
    for (round, len) in [(9, 5), (10, 5), (11, 90), (12, 200)] {
        let sections =
            [(3, Kind::Exact), (len, Kind::Steady { slot: 0 }), (len, Kind::Model { slot: 1 })];
        let sections = sections.map(|(len, kind)| Section { len, kind });
        // One number more than the sections have.
        let numbers = numbers(round, 2 * len + 4);
        let (mut bytes, mut read) = (vec![], vec![]);
        let cost = encoder.encode(round, &sections, &numbers, &known, &mut bytes);
        assert_eq!(decode(&bytes, &known, numbers.len(), &mut read), Ok(cost));
        encoder.acknowledge();
        assert_eq!(read.len(), numbers.len());
        assert_eq!((&read[..3], read.last()), (&numbers[..3], numbers.last()));
        known.set(&sections, &read);
    }
}

#[test]
fn states_that_cannot_be_are_refused() {
    let mut encoder = Encoder::for_node(coding(NumberFormat::Bits4, 1), 1, 0);
    send(&mut encoder, 9, Kind::Steady { slot: 0 }, &numbers(1, 9), &Reference::default());
    let saved = encoder.save();
    encoder.state.slots[0].owed[3] = f32::NAN;
    let mut other = Encoder::for_node(coding(NumberFormat::Bits4, 1), 1, 0);
    assert!(other.restore(&encoder.save()).is_err());
    encoder.state.slots[0].owed[3] = 0.0;
    encoder.state.taken = u64::MAX;
    assert!(other.restore(&encoder.save()).is_err());
    (0..saved.len()).for_each(|len| assert!(other.restore(&saved[..len]).is_err()));
    other.restore(&saved).unwrap();
    assert_eq!(other.save(), saved);
}

use super::*;

fn upload(round: u64, vote: Option<u32>, numbers: &[f32]) -> Upload {
    Upload { round, vote, numbers: numbers.to_vec() }
}

#[test]
fn voters_have_means_of_their_own() {
    let mut gathering = Gathering::by_vote(Aggregation::Mean, 1, 3);
    for (node, vote, number) in [(1, 0, 5.0), (2, 2, 1.0), (3, 2, 4.0)] {
        gathering.accept(1, node, &upload(1, Some(vote), &[number])).unwrap();
    }
    let means = [0, 2].map(|kernel| {
        let mut mean = [0.0];
        gathering.mean_of_voters(kernel, &mut mean);
        mean[0]
    });
    assert_eq!(means, [5.0, 2.5]);
    assert!(gathering.is_sound(&Gathering::by_vote(Aggregation::Mean, 1, 3)));
    assert!(
        !gathering.is_sound(&Gathering::new(Aggregation::Mean, 1, 3))
            && !gathering.is_sound(&Gathering::by_vote(Aggregation::Mean, 1, 4))
    );
    gathering.clear();
    assert_eq!(
        gathering,
        Gathering { heard: gathering.heard.clone(), ..Gathering::by_vote(Aggregation::Mean, 1, 3) }
    );
}

#[test]
fn bad_uploads_are_refused_and_change_nothing() {
    let mut gathering = Gathering::new(Aggregation::Mean, 2, 3);
    gathering.accept(5, 1, &upload(5, Some(2), &[1.0, 2.0])).unwrap();
    let before = gathering.clone();
    let refused = [
        (2, upload(4, Some(0), &[1.0, 2.0])),
        (2, upload(6, Some(0), &[1.0, 2.0])),
        (1, upload(5, Some(0), &[1.0, 2.0])),
        (2, upload(5, Some(0), &[1.0])),
        (2, upload(5, Some(3), &[1.0, 2.0])),
        (2, upload(5, None, &[1.0, 2.0])),
        (2, upload(5, Some(0), &[f32::NAN, 2.0])),
        (2, upload(5, Some(0), &[1.0, f32::NEG_INFINITY])),
        (2, upload(5, Some(0), &[1e31, 2.0])),
    ];
    for (from, upload) in refused {
        assert!(gathering.accept(5, from, &upload).is_err(), "{upload:?}");
        assert_eq!(gathering, before);
    }
    gathering.accept(5, NodeId::MAX, &upload(5, Some(0), &[3.0, 4.0])).unwrap();
    assert!(gathering.accept(5, NodeId::MAX, &upload(5, Some(0), &[3.0, 4.0])).is_err());
    let mut mean = [0.0; 2];
    gathering.mean(&mut mean);
    assert_eq!((mean, gathering.count()), ([2.0, 3.0], 2));
    assert_eq!(gathering.votes(), [1, 0, 1]);
}

#[test]
fn merged_gatherings_are_one() {
    let uploads = [(70, 0, 5.0), (1, 2, 1.0), (NodeId::MAX, 2, 4.0), (200, 1, 3.0)];
    for aggregation in [Aggregation::Mean, Aggregation::Median] {
        for split in 0..=uploads.len() {
            let mut parts = [(); 3].map(|()| Gathering::by_vote(aggregation, 1, 3));
            for (at, (node, vote, number)) in uploads.into_iter().enumerate() {
                let upload = upload(1, Some(vote), &[number]);
                parts[usize::from(at >= split)].accept(1, node, &upload).unwrap();
                parts[2].accept(1, node, &upload).unwrap();
            }
            let [mut one, other, mut flat] = parts;
            one.merge(&other, 1).unwrap();
            assert!(one.is_sound(&Gathering::by_vote(aggregation, 1, 3)));
            assert_eq!((one.count(), one.votes()), (4, flat.votes()));
            assert!(uploads.iter().all(|(node, ..)| one.has_heard(*node)) && !one.has_heard(71));
            let before = one.clone();
            if other.count() > 0 {
                let refused = one.merge(&other, 1);
                assert!(matches!(refused, Err(Rejected::Duplicate { .. })), "{refused:?}");
                assert_eq!(one, before);
            }
            one.conclude();
            flat.conclude();
            for kernel in 0..3 {
                assert!(one.totals_of(kernel).eq(flat.totals_of(kernel)));
            }
        }
    }
}

#[test]
fn parts_of_an_upload_go_to_their_kernels() {
    let mut gathering = Gathering::by_vote(Aggregation::Mean, 2, 4).with_parts(3);
    // Kernels 2, 0 and 3; then 3 alone.
    let three = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 3.0];
    gathering.accept(1, 1, &upload(1, Some(2), &three)).unwrap();
    gathering.accept(1, 2, &upload(1, Some(3), &[10.0, 20.0])).unwrap();
    let totals: Vec<Vec<f64>> =
        (0..4).map(|kernel| gathering.totals_of(kernel).collect()).collect();
    assert_eq!(totals, [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0], [15.0, 26.0]]);
    assert_eq!((gathering.votes(), gathering.count()), (&[1, 0, 1, 2][..], 2));
    let known = Gathering::by_vote(Aggregation::Mean, 2, 4).with_parts(3);
    assert!(gathering.is_sound(&known) && !gathering.is_sound(&known.clone().with_parts(1)));
    let before = gathering.clone();
    let refused = [
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, 4.0]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, -1.0]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, 0.5]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, f32::NAN]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, 1e20]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, 2.0]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 1.0]),
        upload(1, Some(2), &[1.0, 2.0, 3.0, 4.0]),
        upload(1, None, &[1.0, 2.0, 3.0, 4.0, 1.0]),
        upload(1, Some(0), &[0.0; 11]),
        upload(1, Some(0), &[]),
    ];
    for upload in refused {
        assert!(gathering.accept(1, 9, &upload).is_err(), "{upload:?}");
        assert_eq!(gathering, before);
    }
}

#[test]
fn kept_uploads_become_sums_in_the_end() {
    let mut gathering = Gathering::new(Aggregation::Median, 2, 0);
    let known = gathering.clone();
    for (node, first) in [(4, 3.0), (1, -1e30), (9, 5.0), (2, 1e30), (3, 4.0)] {
        gathering.accept(1, node, &upload(1, None, &[first, 1.0])).unwrap();
    }
    assert!(gathering.is_sound(&known));
    let saved = postcard::to_allocvec(&gathering).unwrap();
    let mut restored: Gathering = postcard::from_bytes(&saved).unwrap();
    let mut mean = [0.0; 2];
    for gathering in [&mut gathering, &mut restored] {
        gathering.conclude();
        gathering.mean(&mut mean);
        assert_eq!((mean, gathering.totals().collect()), ([4.0, 1.0], vec![20.0, 5.0]));
    }
    // Uploads of another length, then of this one.
    gathering.expect(3);
    gathering.accept(2, 1, &upload(2, None, &[1.0; 3])).unwrap();
    gathering.expect(2);
    assert!(gathering.is_sound(&known) && gathering.count() == 0);
}

#[test]
fn states_of_kept_uploads_that_can_t_be_are_refused() {
    let known = Gathering::by_vote(Aggregation::Median, 1, 2);
    let mut sound = known.clone();
    sound.accept(1, 7, &upload(1, Some(1), &[2.5])).unwrap();
    assert!(sound.is_sound(&known));
    let other = Aggregation::TrimmedMean { share: 0.1 };
    assert!(!sound.is_sound(&Gathering::by_vote(other, 1, 2)));
    assert!(!sound.is_sound(&Gathering::by_vote(Aggregation::Mean, 1, 2)));
    let spoils: [fn(&mut Gathering); 8] = [
        |state| state.aggregation = Aggregation::TrimmedMean { share: f64::NAN },
        |state| state.aggregation = Aggregation::Mean,
        |state| drop(state.kept.pop()),
        |state| state.kept[0].push(&[1.0]),
        |state| state.kept[1].push(&[1.0]),
        |state| state.kept[1].clear(),
        |state| state.kept[0] = Columns::new(2),
        |state| state.sums[1].add(&[1.0]),
    ];
    for (which, spoil) in spoils.iter().enumerate() {
        let mut state = sound.clone();
        spoil(&mut state);
        assert!(!state.is_sound(&known), "{which}");
    }
    let mut state = known.clone();
    state.kept[1].push(&[f32::NAN]);
    (state.votes[1], state.heard) = (1, sound.heard.clone());
    assert!(!state.is_sound(&known));
}

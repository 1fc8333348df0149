//! Probabilities of classes, for any scores.

use hedgerow::learning::{Calibration, Classes, Loss};
use hedgerow::{Plan, PlanConfig};
use proptest::prelude::*;

fn score() -> impl Strategy<Value = f32> {
    prop_oneof![
        -2.0f32..2.0,
        any::<f32>(),
        Just(f32::NAN),
        Just(f32::INFINITY),
        Just(f32::NEG_INFINITY),
        Just(f32::MAX)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn probabilities_are_probabilities(
        count in 2usize..9,
        scores in prop::collection::vec((score(), 0usize..9), 18 * 20),
        is_logistic: bool,
    ) {
        let classes = Classes::new(count).unwrap();
        let loss = if is_logistic { Loss::Logistic } else { Loss::Squared };
        let (mut calibration, mut out) = (Calibration::default(), Vec::new());
        for sample in scores.chunks_exact(18) {
            let both: Vec<f32> = sample.iter().map(|one| one.0).take(2 * classes.outputs()).collect();
            calibration.probabilities(&both, loss, &mut out);
            prop_assert_eq!(out.len(), count);
            prop_assert!(out.iter().all(|p| *p > 0.0 && *p < 1.0), "{:?}", out);
            prop_assert!((out.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{:?}", out);
            calibration.learn(&both, loss, sample[0].1 % count);
        }
    }
}

#[test]
fn nodes_with_classes_survive_a_restart_and_count_wrong_classes() {
    let names = |count: usize| (0..count).map(|class| format!("c{class}")).collect::<Vec<_>>();
    for count in [2, 3] {
        let plan = PlanConfig::default().inputs(1).nodes(1).classes(names(count));
        let plan = Plan::new(plan.method("gr".parse().unwrap())).unwrap();
        let classes = plan.classes().unwrap();
        assert_eq!(plan.outputs(), classes.outputs());
        let mut node = plan.node(0);
        let mut wrong = 0;
        for t in 0..60 {
            let class = t % count;
            let labels: Vec<f32> = classes.labels(class).collect();
            let answer = node.learn(&[class as f32 / 4.0], &labels).unwrap();
            wrong += usize::from(answer.class != Some(class));
        }
        assert_eq!(node.tally().mse(), wrong as f64 / 60.0);
        node.predict_later("a", &[0.25]).unwrap();
        let mut again = hedgerow::Node::restore(&plan, &node.save()).unwrap();
        for node in [&mut node, &mut again] {
            node.predict(&[0.25]).unwrap();
        }
        assert_eq!(node.probabilities(), again.probabilities());
        let labels: Vec<f32> = classes.labels(1).collect();
        assert_eq!(
            node.learn_by_id("a", &labels).unwrap(),
            again.learn_by_id("a", &labels).unwrap()
        );
        assert!(node.learn(&[0.5], &vec![0.5; plan.outputs()]).is_err());
    }
    for bad in [names(1), vec!["a".into(), "a".into()], vec!["a".into(), String::new()], names(101)]
    {
        assert!(Plan::new(PlanConfig::default().classes(bad)).is_err());
    }
}

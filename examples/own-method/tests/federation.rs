//! The method obeys the laws of all methods, and learns in a federation.

#![allow(clippy::unwrap_used)]

use hedgerow::federation::{Contact, NodeRound, Prediction};
use hedgerow::{Federation, Plan, PlanConfig};
use own_method::ADAGRAD;

#[test]
fn it_obeys_the_laws() {
    hedgerow::testing::check_method(&ADAGRAD);
}

/// Mean squared error of the second half of 400 rounds; the third input is seldom seen.
fn error(method: &str) -> f64 {
    let config = PlanConfig::default().method(method.parse().unwrap()).inputs(3).nodes(2);
    let plan = Plan::with_methods(config.ridge(0.0), &[&ADAGRAD]).unwrap();
    let mut federation = Federation::new(&plan);
    let (mut sum, mut z) = (0.0, vec![0.0; plan.width()]);
    for round in 0..400_u32 {
        let angle = round as f32;
        let rare = if round % 10 == 0 { 1.0 } else { 0.0 };
        let x = [angle.sin(), (1.7 * angle).cos(), rare];
        let z = plan.map().map_batch(&x, &mut z);
        let y = [0.5 * x[0] - 0.3 * x[1] + 2.0 * x[2] + 0.2];
        let rounds = [0, 1].map(|node| NodeRound { node, z, y: &y, contact: Contact::Full });
        let count = |prediction: Prediction<'_>| {
            if round >= 200 {
                sum += f64::from(prediction.value - prediction.label).powi(2) / 400.0;
            }
        };
        federation.round(&rounds, count).unwrap();
    }
    sum
}

#[test]
fn rare_inputs_are_learned_as_fast_as_the_others() {
    let (own, plain) = (error("adagrad"), error("linear"));
    assert!(own < 0.5 * plain, "{own} against {plain}");
}

#[test]
fn only_plans_that_are_given_its_description_can_name_it() {
    let config = PlanConfig::default().method("adagrad".parse().unwrap()).inputs(3);
    let error = Plan::new(config.clone()).unwrap_err().to_string();
    assert!(error.contains("adagrad"), "{error}");
    let plan = Plan::with_methods(config, &[&ADAGRAD]).unwrap();
    assert_eq!(plan.method().title, ADAGRAD.title);
}

//! What nodes save stays below the bound that is known before a run.

#![allow(clippy::unwrap_used)]

use hedgerow::{Node, Plan};

use crate::common::{Case, World, config, methods, numbers};

#[test]
fn a_method_saves_no_more_than_it_says() {
    for method in methods(11) {
        let config = config(method, 11).nodes(2).budget(100).frequencies(Some(49));
        // Full after a hundred rounds.
        let case = Case::new(config.memory(30_000));
        let saved = World::after(&case, 1000).nodes[0].save().len();
        let bound = (case.plan.method().memory)(case.plan.setup());
        assert!(saved <= bound + 2048, "{method}: {saved} bytes, {bound} were said");
        // The bound is of use only near what is saved.
        assert!(4 * saved + 4096 >= bound, "{method}: {saved} bytes, {bound} were said");
    }
}

#[test]
fn a_node_saves_no_more_than_its_bound() {
    const INPUTS: usize = 100;
    const OUTPUTS: usize = 5;
    for method in ["gr", "mk"] {
        let config = config(method, 3).personal(true).inputs(INPUTS).outputs(OUTPUTS);
        let plan = Plan::new(config).unwrap();
        let mut node = plan.node(0);
        node.hold_unscaled(true);
        for t in 0..1000 {
            node.learn(&numbers(t, INPUTS), &numbers(t, OUTPUTS)).unwrap();
        }
        let mut waiting = 0;
        // Until old predictions are forgotten.
        for t in 0.. {
            node.predict_later(&format!("{t:0>250}"), &numbers(t, INPUTS)).unwrap();
            if node.waiting().0 == waiting {
                break;
            }
            waiting = node.waiting().0;
        }
        let (saved, bound) = (node.save().len(), Node::most_saved(&plan));
        assert!(waiting > 1000 && saved <= bound, "{method}: {saved} bytes of {bound}");
    }
}

//! Data sets by name, if they are available: each can be learned from and agrees with the
//! catalogue.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{hedgerow, json, real_data, skipped};

const NAMES: [&str; 10] = [
    "twitter",
    "toms-hardware",
    "conductivity",
    "wave",
    "naval",
    "air-quality",
    "traffic",
    "temperature",
    "appliances",
    "beijing",
];

#[test]
fn every_data_set_at_hand_is_learned_from_as_promised() {
    let Some(data) = real_data() else { return };
    let data = data.to_str().unwrap();
    let folder = TempDir::new().unwrap();
    let list = json(&hedgerow(folder.path(), &["data", "list", "--json", "--data-dir", data]));
    let run = |name: &str, variant: &str, rounds: &str| -> Value {
        let change = format!("data.variant={variant}");
        let flags =
            ["--trials", "1", "--rounds", rounds, "--method", "mk", "--json", "--set", &change];
        let flags = [&["simulate", "--data", name, "--data-dir", data], &flags[..]].concat();
        json(&hedgerow(folder.path(), &flags))
    };
    for name in NAMES {
        let entry = list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
        for variant in entry["variants"].as_array().unwrap() {
            let kind = variant["variant"].as_str().unwrap();
            if variant["files"].is_null() {
                skipped(&format!("no {kind} of {name}"));
                continue;
            }
            let summary = run(name, kind, "40");
            let found = &summary["data"];
            assert_eq!(found["features"], variant["features"], "{name}, {kind}");
            assert_eq!(found["provenance"], variant["provenance"], "{name}, {kind}");
            let nodes = if name == "beijing" { 12 } else { 20 };
            assert_eq!(
                (&summary["nodes"], &summary["rounds"]),
                (&nodes.into(), &40.into()),
                "{name}, {kind}"
            );
            let counted =
                found["samples"].as_u64().unwrap() + found["missing_labels"].as_u64().unwrap();
            assert_eq!(counted, 40 * nodes, "{name}, {kind}");
            let mse = summary["methods"][0]["mse"]["mean"].as_f64().unwrap();
            assert!(mse.is_finite() && mse > 0.0, "{name}, {kind}: {mse}");
            // By default it is the excerpt of the paper's authors.
            if kind == entry["variants"][0]["variant"] {
                let auto = run(name, "auto", "40");
                assert_eq!(auto["methods"][0]["mse"], summary["methods"][0]["mse"], "{name}");
            }
        }
    }
}

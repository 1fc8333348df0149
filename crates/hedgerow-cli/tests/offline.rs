//! `hedgerow export` and `hedgerow predict` as processes: an exported model predicts what nodes
//! predict.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use crate::process::{assert_refused, command, gzip, hedgerow, json, text, write};
use hedgerow::features::Draw;
use hedgerow::message::Upload;
use hedgerow::plan::Scaling;
use hedgerow::scaling::Scale;
use hedgerow::{NodeMethod, Plan, PlanConfig, ServerMethod};
use hedgerow_net::coordinator::records::{Commit, Run};
use hedgerow_net::plan_json::plan_to_json;
use hedgerow_net::storage::{Durability, Storage, Store};
use tempfile::TempDir;

/// Raw samples: a temperature, a load and what is to be predicted from them.
fn sample(at: u32) -> ([f32; 2], f32) {
    let x = [(at * 37 % 101) as f32 / 2.5, (at * 53 % 97) as f32 * 10.0];
    (x, 3.0 + (x[0] / 8.0).sin() * x[1] / 200.0)
}

/// A server that has learned something, and one of its nodes.
struct Trained {
    store: Store,
    plan: Plan,
    server: Box<dyn ServerMethod>,
    node: Box<dyn NodeMethod>,
    scale: Scale,
}

impl Trained {
    fn new(folder: &Path, columns: &[&str]) -> Self {
        let scale = Scale::from_ranges(&[(0.0, 40.0), (0.0, 960.0), (-2.0, 8.0)]).unwrap();
        let config = PlanConfig::default()
            .inputs(2)
            .nodes(2)
            .seed(2)
            .draw(Draw::Independent)
            .scaling(Scaling::Fixed(scale.clone()))
            .columns(columns.iter().map(|name| (*name).to_owned()).collect())
            .target("y".to_owned());
        let plan = Plan::new(config).unwrap();
        let (mut server, mut nodes) =
            (plan.server_method(), [plan.node_method(0), plan.node_method(1)]);
        let (mut z, mut upload) = (vec![0.0; plan.map().width()], Upload::default());
        for round in 0..60 {
            for (number, node) in nodes.iter_mut().enumerate() {
                let (x, y) = sample(2 * round + number as u32);
                node.learn(plan.map().map_batch(&scaled(&scale, x), &mut z), scale.scale_label(y))
                    .unwrap();
                assert!(node.upload(&mut upload));
                server.accept(number as u32, &upload).unwrap();
            }
            server.close_round();
            nodes.iter_mut().for_each(|node| node.adopt(server.broadcast()).unwrap());
        }
        let mut store = Store::open(&folder.join("server.db"), Durability::Kill).unwrap();
        store.begin(&Run { id: "run-1".to_owned(), learning: plan_to_json(&plan) }).unwrap();
        let (state, round) = (server.save(), server.broadcast().round);
        store.commit(&Commit { round, server: state, ..Commit::default() }).unwrap();
        let [_, node] = nodes;
        Self { store, plan, server, node, scale }
    }

    /// What the node predicts.
    fn predict(&self, x: [f32; 2]) -> f32 {
        let mut z = vec![0.0; self.plan.map().width()];
        let z = self.plan.map().map_batch(&scaled(&self.scale, x), &mut z);
        self.scale.unscale_label(self.node.predict(z))
    }
}

fn scaled(scale: &Scale, x: [f32; 2]) -> [f32; 2] {
    [0, 1].map(|input| scale.scale_input(input, f64::from(x[input])))
}

/// A folder with a model of these columns in it.
fn with_model(columns: &[&str]) -> (TempDir, Trained) {
    let folder = TempDir::new().unwrap();
    let trained = Trained::new(folder.path(), columns);
    let output = hedgerow(folder.path(), &["export", "server.db", "--out", "m.safetensors"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = "m.safetensors: the shared model of round 61 of run run-1 (mk, 98 numbers)\n";
    assert_eq!(text(&output.stdout), expected);
    (folder, trained)
}

fn predict(folder: &TempDir, more: &[&str]) -> std::process::Output {
    hedgerow(folder.path(), &[&["predict", "m.safetensors"], more].concat())
}

#[test]
fn offline_predictions_are_those_of_the_nodes_bit_for_bit() {
    let (folder, trained) = with_model(&["temp", "load"]);
    let mut table = String::from("load;when;y;temp\n");
    let samples: Vec<_> = (500..560).map(sample).collect();
    for ([temp, load], y) in &samples {
        table += &format!("{load};noon;{y};{temp}\n");
    }
    write(folder.path(), "new.csv.gz", gzip(table.as_bytes()));
    let output = predict(&folder, &["--data", "new.csv.gz"]);
    let told = text(&output.stderr);
    let shown = text(&output.stdout);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("row,prediction,label,squared_error"));
    let mut total = 0.0;
    for (at, (x, y)) in samples.iter().enumerate() {
        let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(cells[0], (at + 2).to_string(), "rows are counted as an editor does");
        let prediction = cells[1].parse::<f32>().unwrap();
        assert_eq!(prediction.to_bits(), trained.predict(*x).to_bits());
        assert_eq!(cells[2].parse::<f32>().unwrap(), *y);
        let error = (f64::from(prediction) - f64::from(*y)).powi(2);
        assert_eq!(cells[3].parse::<f64>().unwrap(), error);
        total += error;
    }
    assert_eq!(lines.next(), None);
    let mse = total / 60.0;
    assert!(mse < 2.0, "it has learned something: {mse}");
    assert!(told.starts_with("60 rows, MSE ") && told.ends_with(" over 60 labels\n"), "{told}");

    // The same as JSON Lines, to a file and with another label.
    let rows: String = samples
        .iter()
        .map(|([temp, load], y)| format!("{{\"temp\":{temp},\"load\":{load},\"truth\":{y}}}\n"))
        .collect();
    write(folder.path(), "new.jsonl", rows);
    write(folder.path(), "out.jsonl", "older predictions");
    let flags = ["--data", "new.jsonl", "--target", "truth", "--json", "--out", "out.jsonl"];
    let output = predict(&folder, &flags);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((summary["rows"].as_u64(), summary["labels"].as_u64()), (Some(60), Some(60)));
    assert!((summary["mse"].as_f64().unwrap() - mse).abs() < 1e-12);
    let written = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    for (line, (x, y)) in written.lines().zip(&samples) {
        let answer: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["prediction"].to_string().parse::<f32>().unwrap(), trained.predict(*x));
        assert_eq!(answer["label"].to_string().parse::<f32>().unwrap(), *y);
    }
    assert_eq!(written.lines().count(), 60);
    assert!(!folder.path().join("out.jsonl.new").exists());
}

#[test]
fn a_model_is_exported_while_the_server_runs_and_over_an_older_one_only() {
    let (folder, mut trained) = with_model(&["temp", "load"]);
    let flags = ["export", "--from", "server.db", "--out", "m.safetensors", "--json"];
    let first = hedgerow_model::Model::read(&folder.path().join("m.safetensors")).unwrap();
    let shown = json(&hedgerow(folder.path(), &flags));
    assert_eq!(
        (&shown["round"], &shown["run"], &shown["method"]),
        (&61.into(), &"run-1".into(), &"mk".into())
    );
    let again = hedgerow_model::Model::read(&folder.path().join("m.safetensors")).unwrap();
    assert_eq!(again.broadcasts(), first.broadcasts());
    // The server keeps running.
    let (mut z, mut upload) = (vec![0.0; trained.plan.map().width()], Upload::default());
    let z = trained.plan.map().map_batch(&scaled(&trained.scale, [20.0, 480.0]), &mut z);
    trained.node.learn(z, 0.5).unwrap();
    assert!(trained.node.upload(&mut upload));
    trained.server.accept(1, &upload).unwrap();
    trained.server.close_round();
    let server = trained.server.save();
    trained.store.commit(&Commit { round: 62, server, ..Commit::default() }).unwrap();
    assert_eq!(json(&hedgerow(folder.path(), &flags))["round"], 62);
    let refuses = |from: &str, out: &str, code, parts: &[&str]| {
        let output = hedgerow(folder.path(), &["export", "--from", from, "--out", out]);
        assert_refused(&output, code, parts, folder.path());
    };
    write(folder.path(), "notes.txt", "not a model");
    refuses("server.db", "notes.txt", 4, &["notes.txt: not a model of hedgerow", "left as it is"]);
    assert_eq!(std::fs::read(folder.path().join("notes.txt")).unwrap(), b"not a model");
    refuses("server.db", "no/such/m", 4, &["can't write no/such/m"]);
    refuses("nowhere.db", "n", 3, &["nowhere.db: there is no such store"]);
    refuses("notes.txt", "n", 3, &["notes.txt: not a store of hedgerow"]);
    assert!(!folder.path().join("n").exists());
}

#[test]
fn rows_are_answered_as_they_come() {
    let (folder, trained) = with_model(&["temp", "load"]);
    let mut command = command(folder.path(), &["predict", "--model", "m.safetensors"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    stdin.write_all(b"temp,load\n").unwrap();
    for at in 0..5 {
        let (x, _) = sample(at);
        stdin.write_all(format!("{},{}\n", x[0], x[1]).as_bytes()).unwrap();
        if at == 0 {
            assert_eq!(lines.next().unwrap(), "row,prediction");
        }
        assert_eq!(lines.next().unwrap(), format!("{},{}", at + 2, trained.predict(x)));
    }
    drop(stdin);
    assert_eq!(text(&child.wait_with_output().unwrap().stderr), "5 rows\n");
}

#[test]
fn what_is_missing_is_filled_in_and_told() {
    let (folder, trained) = with_model(&["temp", "load"]);
    write(folder.path(), "new.csv", "temp,load,y\n,480,1\nNA,480,\n20,-9,2\n20,480,3\n");
    let output = predict(&folder, &["--data", "new.csv", "--missing", "-9"]);
    // In the middle of 0 to 40, and of 0 to 960.
    let middle = trained.predict([20.0, 480.0]);
    let lines = text(&output.stdout);
    let lines: Vec<&str> = lines.lines().skip(1).collect();
    assert!(lines[0].starts_with(&format!("2,{middle},1,")), "{lines:?}");
    assert_eq!(lines[1], format!("3,{middle},,"));
    assert!(lines[2].starts_with(&format!("4,{middle},2,")), "{lines:?}");
    let told = text(&output.stderr);
    assert!(told.starts_with("4 rows, 3 missing values filled in, MSE "), "{told}");
    assert!(told.ends_with("over 3 labels\n"), "{told}");
}

#[test]
fn inputs_without_names_are_taken_in_order() {
    let (folder, trained) = with_model(&[]);
    let (x, y) = sample(7);
    write(folder.path(), "bare.csv", format!("{},{}\n{},{}\n", x[0], x[1], x[0], x[1]));
    let expected = format!("row,prediction\n1,{0}\n2,{0}\n", trained.predict(x));
    assert_eq!(text(&predict(&folder, &["--data", "bare.csv"]).stdout), expected);
    write(folder.path(), "label.csv", format!("a,y,b\n{},{y},{}\n", x[0], x[1]));
    let shown = text(&predict(&folder, &["--data", "label.csv"]).stdout);
    assert!(shown.contains(&format!("2,{},{y},", trained.predict(x))), "{shown}");
    write(folder.path(), "three.csv", "1,2,3\n1,2,3\n");
    let output = predict(&folder, &["--data", "three.csv"]);
    let parts = ["three.csv: 3 columns besides the label's", "takes 2 inputs", "--target"];
    assert_refused(&output, 3, &parts, folder.path());
}

#[test]
fn what_goes_wrong_is_named_with_its_place() {
    let (folder, _trained) = with_model(&["temp", "load"]);
    let good = "temp,load\n1,2\n";
    for (content, more, code, parts) in [
        (
            "temp,lod\n1,2\n",
            &[][..],
            3,
            &["new.csv: no column \"load\" (did you mean \"lod\"?); there are temp, lod"][..],
        ),
        (
            "temp,load\n1,2\n3,abc\n",
            &[],
            3,
            &["new.csv, row 3, column \"load\": \"abc\" is not a number"],
        ),
        (
            "temp,load\n1,1e39\n",
            &[],
            3,
            &["new.csv, row 2, column \"load\": 1e39 is beyond the bound of ±3.4"],
        ),
        (
            "temp,load,y\n1,2,1e13\n",
            &[],
            3,
            &["row 2, column \"y\": 1e13 is beyond the bound of ±1e12"],
        ),
        ("temp,load\n1\n", &[], 3, &["new.csv, row 2: 2 fields expected"]),
        ("", &[], 3, &["new.csv: empty"]),
        (good, &["--target", "truth"], 3, &["new.csv: no column \"truth\""]),
        (good, &["--out", "new.csv"], 2, &["--out new.csv: that is what --data reads"]),
        (good, &["--out", "m.safetensors"], 2, &["--out m.safetensors: that is the model"]),
        (good, &["--out", "no/such.csv"], 4, &["can't write no/such.csv"]),
        (good, &["--set", "data.separator=word"], 2, &["data.separator"]),
    ] {
        write(folder.path(), "new.csv", content);
        let out: &[&str] = if more.contains(&"--out") { &[] } else { &["--out", "out.csv"] };
        let flags = [&["--data", "new.csv"], out, more].concat();
        assert_refused(&predict(&folder, &flags), code, parts, folder.path());
        assert_eq!(std::fs::read_to_string(folder.path().join("new.csv")).unwrap(), content);
        assert!(
            !folder.path().join("out.csv").exists() && !folder.path().join("out.csv.new").exists()
        );
    }
    let mut damaged = std::fs::read(folder.path().join("m.safetensors")).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    write(folder.path(), "m.safetensors", damaged);
    let output = predict(&folder, &["--data", "new.csv"]);
    assert_refused(
        &output,
        3,
        &["m.safetensors: damaged: the checksum of its content is"],
        folder.path(),
    );
    let output = hedgerow(folder.path(), &["predict", "--model", "nowhere", "--data", "new.csv"]);
    assert_refused(&output, 3, &["can't read nowhere"], folder.path());
}

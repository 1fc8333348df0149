//! States that were saved before kinds had versions of their own (version 4 of everything) are
//! still read, and go on with the same bits.

#![allow(clippy::unwrap_used)]

use hedgerow::codec::{Coding, Encoder, Kind, NumberFormat, Reference, Section};
use hedgerow::features::{Features, Kernel};
use hedgerow::message::Upload;
use hedgerow::method::{self, MethodSpec};
use hedgerow::random::CounterRng;
use hedgerow::scaling::{NodeScaling, ScaleKind, ServerScaling};
use hedgerow::{Plan, PlanConfig};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/states");

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}/{name}.bin")).unwrap()
}

fn plan(method: MethodSpec) -> Plan {
    let kernels = Kernel::paper_dictionary()[..3].to_vec();
    let config = PlanConfig::default().kernels(kernels).frequencies(Some(2)).nodes(3);
    Plan::new(config.inputs(2).budget(24).method(method)).unwrap()
}

/// The sample of a time.
fn sample(width: usize, time: u64) -> (Vec<f32>, f32) {
    let noise = CounterRng::from_seed(time);
    let number = |at| if at == 0 { 1.0 } else { noise.uniform_at(at) as f32 - 0.5 };
    ((0..width as u64).map(number).collect(), noise.uniform_at(999) as f32)
}

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn nodes_and_servers_of_every_method_go_on() {
    // Later methods have no states of that version.
    let files = std::fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().file_name());
    let files = files.map(|file| file.into_string().unwrap()).collect::<Vec<_>>();
    let names = files.iter().filter_map(|file| file.strip_suffix("-server.bin"));
    let names = names.collect::<Vec<_>>();
    assert_eq!(names.len(), 10);
    for info in names.into_iter().map(|name| method::find(name).unwrap()) {
        let spec = MethodSpec::from(info);
        let plan = plan(if info.takes_kernel { spec.with_kernel(1) } else { spec });
        let (mut node, mut server) = (plan.node_method(0), plan.server_method());
        node.restore(&fixture(&format!("{}-node", info.name))).unwrap();
        server.restore(&fixture(&format!("{}-server", info.name))).unwrap();
        // What is saved now is read too, and is the same state.
        let saved = node.save();
        node = plan.node_method(0);
        node.restore(&saved).unwrap();
        assert_eq!(node.save(), saved, "{}", info.name);
        // Six rounds of three nodes with two samples each; then one sample at two nodes.
        let width = plan.width();
        let (z, y) = sample(width, 39);
        node.learn(Features::checked(&z).unwrap(), y).unwrap();
        let (mut upload, mut after) = (Upload::default(), Vec::new());
        if node.upload(&mut upload) {
            after.extend(&upload.numbers);
            server.accept(0, &upload).unwrap();
        }
        let broadcast = server.close_round().clone();
        after.extend(&broadcast.numbers);
        node.adopt(&broadcast).unwrap();
        after.push(node.predict(Features::checked(&sample(width, 77).0).unwrap()));
        assert_eq!(bytes(after), fixture(&format!("{}-after", info.name)), "{}", info.name);
    }
}

#[test]
fn partial_sums_are_read() {
    let mut server = plan("mk".parse().unwrap()).server_method();
    let mut sum = server.part();
    let stored = fixture("partial-sum");
    let read = sum.read(&stored).unwrap();
    assert_eq!((read.uploads(), read.to_bytes()), (2, stored));
    for id in 0..2 {
        let numbers = sample(4, u64::from(id)).0;
        let upload = Upload { round: 1, vote: Some(id), numbers };
        server.accept_into(&mut sum, id, &upload).unwrap();
    }
    assert_eq!(sum, read);
    server.merge(&read).unwrap();
}

#[test]
fn scales_go_on() {
    let mut node = NodeScaling::new(ScaleKind::Spread, 2);
    let mut server = ServerScaling::new(ScaleKind::Spread, 2);
    node.restore(&fixture("node-scaling")).unwrap();
    server.restore(&fixture("server-scaling")).unwrap();
    assert_eq!((node.version(), node.scale()), (server.version(), server.scale()));
    let mut scaled = [0.0; 2];
    node.prepare(&[0.25, -0.75], &mut scaled);
    assert_eq!(bytes(scaled), fixture("scaling-after"));
}

#[test]
fn encoders_go_on() {
    let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
    let mut encoder = Encoder::for_node(coding, 5, 2);
    encoder.restore(&fixture("encoder")).unwrap();
    let sections = [Section { len: 8, kind: Kind::Model { slot: 1 } }];
    let mut message = Vec::new();
    encoder.encode(9, &sections, &sample(8, 9).0, &Reference::default(), &mut message);
    assert_eq!(message, fixture("encoder-after"));
}

#[test]
fn later_versions_and_other_kinds_are_refused() {
    let coding = Coding { numbers: NumberFormat::Bits8, ..Coding::default() };
    let mut encoder = Encoder::for_node(coding, 5, 2);
    let mut later = fixture("encoder");
    later[0] = 99;
    let error = encoder.restore(&later).unwrap_err().to_string();
    assert!(error.contains("versions 4 to 4") && error.contains("it has 99"), "{error}");
    let error = encoder.restore(&fixture("personal")).unwrap_err().to_string();
    assert!(error.contains("\"encoder\"") && error.contains("\"personal\""), "{error}");
}

#[test]
fn a_server_of_tr_that_has_errors_over_all_rounds_goes_on() {
    let plan = plan("tr".parse().unwrap());
    let (mut node, mut server) = (plan.node_method(0), plan.server_method());
    let mut upload = Upload::default();
    for time in 0..9 {
        let (z, y) = sample(plan.width(), time);
        node.learn(Features::checked(&z).unwrap(), y).unwrap();
        assert!(node.upload(&mut upload));
        server.accept(0, &upload).unwrap();
        node.adopt(server.close_round()).unwrap();
    }
    // Version 5 lacked the last number, which is zero here.
    let saved = server.save();
    assert_eq!((saved[0], saved.last()), (6, Some(&0)));
    let older = [&[5], &saved[1..saved.len() - 1]].concat();
    let mut restored = plan.server_method();
    restored.restore(&older).unwrap();
    assert_eq!(restored.save(), saved);
}

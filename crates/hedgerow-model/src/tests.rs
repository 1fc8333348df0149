//! Files of models: damaged, hostile, and of other versions.

#![allow(clippy::unwrap_used)]

use hedgerow::features::Kernel;
use hedgerow::plan::Scaling;
use hedgerow::scaling::ScaleKind;
use hedgerow::{Federation, PlanConfig};
use hedgerow_data::schema::Encoding;
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// Trained a little, with two nodes.
fn model(method: &str, scaling: Scaling) -> Model {
    let config = PlanConfig::default()
        .method(method.parse().unwrap())
        .kernels(Kernel::paper_dictionary()[4..7].to_vec())
        .inputs(2)
        .nodes(2)
        .frequencies(Some(4))
        .budget(20)
        .seed(3)
        .scaling(scaling)
        .columns(vec!["wärme".to_owned(), "load \"kW\"".to_owned()])
        .target("y".to_owned());
    let mut federation = Federation::new(&Plan::new(config).unwrap());
    federation.connect();
    while federation.server().round() < 6 {
        for (node, at) in federation.nodes_mut().iter_mut().zip(1_u8..) {
            let t = u8::try_from(node.tally().samples).unwrap();
            let x = f32::from(t * at % 7) / 7.0;
            node.learn(&[x, 1.0 - x * x], &[2.0 * x + 0.1]).unwrap();
        }
        federation.exchange();
    }
    let mut model = Model::of_server(federation.server()).unwrap().with_run("run \u{1f33f}");
    for (node, name) in federation.nodes().iter().zip(["meter-17", "a \"b\""]) {
        model.add_node(name, node).unwrap();
    }
    let error =
        CardError { method: method.to_owned(), mse: Some(1.0 / 3.0), ..CardError::default() };
    model.set_card(Card { errors: vec![error], ..Card::default() });
    model
}

fn online() -> Scaling {
    Scaling::Online { kind: ScaleKind::Range }
}

fn models() -> Vec<Model> {
    let fixed = Scaling::Fixed(Scale::from_ranges(&[(0.0, 1.0), (0.0, 2.0), (-1.0, 3.0)]).unwrap());
    vec![
        model("mk", online()),
        model("gr", Scaling::None),
        model("naive", fixed),
        model("linear", online()),
    ]
}

fn parse(bytes: &[u8]) -> Result<Model, ModelError> {
    Model::from_bytes(Path::new("m"), bytes)
}

/// All that a model has, with every bit.
fn shown(model: &Model) -> String {
    let bits = model.broadcasts.iter().flat_map(|one| &one.numbers).map(|number| number.to_bits());
    format!("{model:?} {} {:?}", plan_json(model), bits.collect::<Vec<u32>>())
}

fn plan_json(model: &Model) -> String {
    serde_json::to_string(model.plan.config()).unwrap()
}

#[test]
fn models_survive_and_others_can_read_them() {
    for model in models() {
        let bytes = model.to_bytes();
        let read = parse(&bytes).unwrap();
        assert_eq!(shown(&read), shown(&model));
        assert_eq!(read.to_bytes(), bytes, "the same model is the same file");
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("model").unwrap();
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (Dtype::F32, &[model.broadcasts[0].numbers.len()][..])
        );
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().as_ref().unwrap();
        assert_eq!(metadata["format"], "hedgerow-model");
        assert_eq!(metadata["round"], "6");
        assert!(model.nodes().eq(["meter-17", "a \"b\""]));
        assert_eq!(metadata["learning"], plan_json(&model));
    }
}

#[test]
fn every_flipped_bit_and_every_missing_byte_is_seen() {
    let mut model = model("mk", online());
    // Quick to read.
    model.nodes.truncate(1);
    let whole = model.to_bytes();
    let truth = shown(&parse(&whole).unwrap());
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // An escape of JSON may be written in two ways.
        if let Ok(same) = parse(&flipped) {
            assert_eq!(shown(&same), truth, "bit {bit}");
        }
    }
    for end in 0..whole.len() {
        assert!(parse(&whole[..end]).is_err(), "{end} bytes");
    }
}

/// Names and contents of the tensors of a header, in the order of the file.
fn tensors<'a>(header: &'a Value, numbers: &'a [u8]) -> Vec<(&'a str, &'a [u8])> {
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let mut tensors: Vec<(u64, &str, &[u8])> = tensors
        .map(|(name, tensor)| {
            let [start, end] = [0, 1].map(|at| tensor["data_offsets"][at].as_u64().unwrap());
            let content = numbers.get(start as usize..end as usize).unwrap_or_default();
            (start, name.as_str(), content)
        })
        .collect();
    tensors.sort();
    tensors.into_iter().map(|(_, name, content)| (name, content)).collect()
}

/// The file with its header changed and its checksum right.
fn forged(model: &Model, change: impl FnOnce(&mut Value, &mut Vec<u8>)) -> Vec<u8> {
    let bytes = model.to_bytes();
    let (length, _) = SafeTensors::read_metadata(&bytes).unwrap();
    let (header, numbers) = bytes[8..].split_at(length);
    let (mut header, mut numbers): (Value, _) =
        (serde_json::from_slice(header).unwrap(), numbers.to_vec());
    change(&mut header, &mut numbers);
    if let Ok(metadata) = serde_json::from_value::<layout::Metadata>(header["__metadata__"].clone())
    {
        let checksum = metadata.checksum(tensors(&header, &numbers).into_iter());
        header["__metadata__"]["crc32"] = format!("{checksum:08x}").into();
    }
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text, &numbers].concat()
}

#[test]
fn hostile_files_are_refused_in_words() {
    let trained = model("mk", online());
    let mut wide = trained.schema.clone().unwrap();
    wide.inputs[0].encoding = Encoding::Hashed(3);
    let set = |key: &'static str, value: Value| {
        forged(&trained, move |header, _| header["__metadata__"][key] = value)
    };
    let learning = |change: &dyn Fn(&mut Value)| {
        let mut learning: Value = serde_json::from_str(&plan_json(&trained)).unwrap();
        change(&mut learning);
        set("learning", learning.to_string().into())
    };
    for (bytes, expected) in [
        (vec![], "m: not a model of hedgerow: not a safetensors file"),
        (vec![255; 100], "m: not a model of hedgerow: not a safetensors file"),
        (
            set("version", "3".into()),
            "m: written by a newer hedgerow: format 3, this one knows up to 2",
        ),
        (set("version", "one".into()), "m: not a model of hedgerow: there is no version \"one\""),
        (set("format", "pt".into()), "m: not a model of hedgerow: its format is \"pt\""),
        (set("round", "-1".into()), "m: not a model of hedgerow: there is no round \"-1\""),
        (
            set("round", u64::MAX.to_string().into()),
            "m: the model does not fit its configuration: there is no round 18446744073709551615",
        ),
        (set("kernels", "0".into()), "m: not a model of hedgerow: there are no kernels \"0\""),
        (
            set("kernels", "9 0".into()),
            "m: the model does not fit its configuration: kernel Some(9) named",
        ),
        (
            set("scale", "{}".into()),
            "m: not a model of hedgerow: its scale makes no sense: missing field",
        ),
        (
            set("scale", json!({"version": 1, "scale": Scale::identity(3)}).to_string().into()),
            "m: the model does not fit its configuration: the scale is of another kind",
        ),
        (
            set("learning", "{}".into()),
            "m: the learning configuration can't be read: missing field",
        ),
        (
            learning(&|learning| {
                learning["setup"]["frequencies"] = json!(1_000_000_000);
                learning["features"]["frequencies"] = json!(1_000_000_000);
            }),
            "m: kernels · frequencies · 2 must be at most",
        ),
        (
            learning(&|learning| {
                learning["setup"]["frequencies"] = json!(5);
                learning["features"]["frequencies"] = json!(5);
            }),
            "m: the model does not fit its configuration: 10 numbers expected, but 8 came",
        ),
        (
            learning(&|learning| learning["method"] = json!("local")),
            "m: not a model of hedgerow: the method local has no shared model",
        ),
        (set("card", "[1]".into()), "m: not a model of hedgerow: its model card makes no sense"),
        (set("schema", "{}".into()), "m: not a model of hedgerow: its table schema makes no sense"),
        (
            set("schema", serde_json::to_string(&wide).unwrap().into()),
            "m: not a model of hedgerow: its table schema makes no sense: its columns make 4 inputs",
        ),
        (
            forged(&trained, |header, _| {
                let tensor = header["node.meter-17"].take();
                header.as_object_mut().unwrap().remove("node.meter-17");
                header["other"] = tensor;
            }),
            "m: not a model of hedgerow: a tensor \"other\" of type U8",
        ),
        (
            learning(&|learning| learning["scaling"] = json!("none")),
            "m: not a model of hedgerow: a scale and an agreement",
        ),
        (
            forged(&trained, |header, _| header["model"]["data_offsets"] = json!([0, 7])),
            "m: not a model of hedgerow: not a safetensors file: ",
        ),
        (
            forged(&trained, |_, numbers| numbers[..4].copy_from_slice(&f32::NAN.to_le_bytes())),
            "m: the model does not fit its configuration: number 0 is NaN",
        ),
        (
            forged(&trained, |header, _| header["other"] = header["model"].clone()),
            "m: not a model of hedgerow: not a safetensors file: ",
        ),
        (
            forged(&trained, |header, _| header["model"]["shape"] = json!([u64::MAX / 4 + 3])),
            "m: not a model of hedgerow: not a safetensors file: ",
        ),
    ] {
        let error = parse(&bytes).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error} is not {expected}");
        assert!(error.len() < 300, "{error}");
    }
}

/// A model of three classes.
fn of_classes() -> Model {
    let config = PlanConfig::default().inputs(1).nodes(1).budget(20);
    let config = config.columns(vec!["x".to_owned()]).target("state".to_owned());
    let classes = ["fine", "loose", "hot"].map(str::to_owned).to_vec();
    let plan = Plan::new(config.classes(classes)).unwrap();
    let mut federation = Federation::new(&plan);
    federation.connect();
    for t in 0..30_u8 {
        let labels: Vec<f32> = plan.classes().unwrap().labels(usize::from(t % 3)).collect();
        federation.nodes_mut()[0].learn(&[f32::from(t % 3) / 3.0], &labels).unwrap();
        federation.exchange();
    }
    let mut model = Model::of_server(federation.server()).unwrap();
    model.add_node("a", &federation.nodes()[0]).unwrap();
    model
}

#[test]
fn classes_and_targets_that_do_not_fit_are_refused_in_words() {
    let trained = of_classes();
    let read = parse(&trained.to_bytes()).unwrap();
    assert_eq!(read.classes(), ["fine", "loose", "hot"]);
    assert_eq!(read.schema().unwrap().classes, ["fine", "loose", "hot"]);
    let schema = |change: &dyn Fn(&mut TableSchema)| {
        let mut schema = trained.schema.clone().unwrap();
        change(&mut schema);
        let text = serde_json::to_string(&schema).unwrap();
        forged(&trained, move |header, _| header["__metadata__"]["schema"] = text.into())
    };
    let learning = |change: &dyn Fn(&mut Value)| {
        let mut learning: Value = serde_json::from_str(&plan_json(&trained)).unwrap();
        change(&mut learning);
        let text = learning.to_string();
        forged(&trained, move |header, _| header["__metadata__"]["learning"] = text.into())
    };
    for (bytes, expected) in [
        (schema(&|schema| _ = schema.classes.pop()), "its 2 classes are not the 3 classes"),
        (schema(&|schema| schema.classes.swap(0, 1)), "its 3 classes are not the 3 classes"),
        (schema(&|schema| schema.targets.push("y".into())), "it has 2 targets, but the model"),
        (
            learning(&|learning| _ = learning["classes"].as_array_mut().unwrap().pop()),
            "1 models of outputs expected, but 3 found",
        ),
        (learning(&|learning| learning["classes"][1] = json!("fine")), "must differ"),
    ] {
        let error = parse(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("m: ") && error.contains(expected), "{error}");
    }
    // The weights of the calibration are the last numbers of a node.
    for weight in [f64::NAN, -0.5, 0.9] {
        let damaged = forged(&trained, |_, numbers| {
            let end = numbers.len();
            numbers[end - 8..].copy_from_slice(&weight.to_le_bytes());
        });
        let error = parse(&damaged).unwrap().node("a").err().unwrap().to_string();
        assert!(error.starts_with("node \"a\": ") && error.contains("out of bounds"), "{error}");
    }
}

/// Anything that could be made of a text by a slip, or by malice.
fn spoil(bytes: &mut Vec<u8>, edits: &[(prop::sample::Index, prop::sample::Index, u8, u8)]) {
    for (at, length, kind, byte) in edits {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        let end = at + length.index((bytes.len() - at).min(20)) + 1;
        match kind {
            0 => bytes[at] = *byte,
            1 => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, *byte),
            3 => bytes.extend_from_within(at..end),
            4 => bytes[at] = b"0123456789-.e{}[]\",:"[*byte as usize % 20],
            _ => bytes.truncate(at),
        }
    }
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, prop::sample::Index, u8, u8)>> {
    prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..6u8, any::<u8>()),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn spoiled_files_are_refused_or_the_same(which in 0..4usize, edits in edits()) {
        static MODELS: std::sync::LazyLock<Vec<(Vec<u8>, String)>> = std::sync::LazyLock::new(|| {
            models().iter().map(|model| (model.to_bytes(), shown(model))).collect()
        });
        let (whole, truth) = &MODELS[which];
        let mut bytes = whole.clone();
        spoil(&mut bytes, &edits);
        if let Ok(read) = parse(&bytes) {
            prop_assert_eq!(&shown(&read), truth);
        }
    }

    /// The checksum is no help against malice: what it holds for is refused or can be used.
    #[test]
    fn forged_files_are_refused_or_can_be_used(
        which in 0..4usize, key in 0..10usize, edits in edits(), numbers in prop::option::of(self::edits()),
    ) {
        static MODELS: std::sync::LazyLock<Vec<Model>> = std::sync::LazyLock::new(models);
        let key = [
            "run", "round", "kernels", "learning", "learning", "learning", "scale", "software",
            "schema", "card",
        ][key];
        let bytes = forged(&MODELS[which], |header, bytes| {
            if let Some(text) = header["__metadata__"][key].as_str() {
                let mut text = text.as_bytes().to_vec();
                spoil(&mut text, &edits);
                header["__metadata__"][key] = String::from_utf8_lossy(&text).into();
            }
            // Numbers and states of nodes stay where they are.
            let len = bytes.len();
            numbers.iter().for_each(|edits| spoil(bytes, edits));
            bytes.resize(len, 0);
        });
        if let Ok(read) = parse(&bytes) {
            let x = vec![0.3; read.plan().inputs()];
            let nodes = ["meter-17", "a \"b\""].map(|name| read.node(name).ok());
            for node in nodes.into_iter().flatten().chain([read.shared().unwrap()]).by_ref() {
                let mut node = node;
                prop_assert!(node.predict(&x).unwrap().value.is_finite());
            }
        }
    }
}

#[test]
fn a_model_replaces_a_model_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.safetensors");
    let missing = Model::read(&path).unwrap_err().to_string();
    assert!(missing.starts_with(&format!("can't read {}: ", path.display())), "{missing}");
    for model in models() {
        model.write(&path).unwrap();
        assert_eq!(shown(&Model::read(&path).unwrap()), shown(&model));
    }
    let mut newer = std::fs::read(&path).unwrap();
    let at = newer.windows(13).position(|text| text == b"\"version\":\"2\"").unwrap();
    newer[at + 11] = b'3';
    for bytes in [newer, b"a text".to_vec(), vec![]] {
        std::fs::write(&path, &bytes).unwrap();
        let error = models()[0].write(&path).unwrap_err().to_string();
        assert!(error.ends_with("; it is left as it is: move it away first"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    assert!(models()[0].write(folder.path()).is_err());
    assert!(models()[0].write(&folder.path().join("no/m")).is_err());
}

#[test]
fn unknown_nodes_and_missing_parts_are_named() {
    let mut model = model("mk", online());
    let error = model.node("meter17").err().unwrap().to_string();
    assert_eq!(
        error,
        "the model has no node \"meter17\" (did you mean \"meter-17\"?); there are meter-17, a \"b\""
    );
    let alone = Model::of_node("meter-17", &model.node("meter-17").unwrap()).unwrap();
    let read = parse(&alone.to_bytes()).unwrap();
    assert_eq!(shown(&read), shown(&alone));
    let error = read.shared().err().unwrap().to_string();
    assert!(error.ends_with("only that of a node: choose one of meter-17"), "{error}");
    model.nodes.clear();
    let error = model.node("meter-17").err().unwrap().to_string();
    assert!(error.contains("it is the shared model alone"), "{error}");
}

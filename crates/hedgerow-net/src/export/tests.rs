use hedgerow::PlanConfig;
use hedgerow::features::Kernel;
use hedgerow::message::Upload;
use hedgerow::plan::Scaling;
use hedgerow::scaling::ScaleKind;
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::plan_json::plan_to_json;

/// Trained a little.
fn model(method: &str, scaling: Scaling) -> Model {
    let is_online = matches!(scaling, Scaling::Online { .. });
    let config = PlanConfig::default()
        .method(method.parse().unwrap())
        .kernels(Kernel::paper_dictionary()[4..7].to_vec())
        .inputs(2)
        .frequencies(Some(4))
        .budget(20)
        .seed(3)
        .scaling(scaling)
        .columns(vec!["wärme".to_owned(), "load \"kW\"".to_owned()])
        .target("y".to_owned());
    let plan = Plan::new(config).unwrap();
    let (mut server, mut node) = (plan.server_method(), plan.node_method(0));
    let (mut z, mut upload) = (vec![0.0; plan.map().width()], Upload::default());
    for round in 0..5u8 {
        let x = f32::from(round) / 5.0;
        node.learn(plan.map().map_batch(&[x, 1.0 - x], &mut z), 2.0 * x + 0.1).unwrap();
        assert!(node.upload(&mut upload));
        server.accept(0, &upload).unwrap();
        node.adopt(server.close_round()).unwrap();
    }
    let ranges = [(0.1, 0.7), (-3.0, 1e6), (1.0 / 3.0, 9.9)];
    let scale = is_online.then(|| (7, Scale::from_ranges(&ranges).unwrap()));
    let (broadcast, run) = (server.broadcast().clone(), "run \u{1f33f}".to_owned());
    Model { plan, run, broadcast, scale, software: "hedgerow 0".to_owned() }
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

/// All that a model has.
fn shown(model: &Model) -> String {
    let Model { plan, run, broadcast, scale, software } = model;
    let bits: Vec<u32> = broadcast.numbers.iter().map(|number| number.to_bits()).collect();
    format!("{} {run} {broadcast:?} {bits:?} {scale:?} {software}", plan_to_json(plan))
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
            (Dtype::F32, &[model.broadcast.numbers.len()][..])
        );
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().as_ref().unwrap();
        assert_eq!(metadata["format"], "hedgerow-model");
        assert_eq!(metadata["round"], "6");
        assert_eq!(metadata["learning"], plan_to_json(&model.plan));
    }
}

#[test]
fn every_flipped_bit_and_every_missing_byte_is_seen() {
    let whole = model("mk", online()).to_bytes();
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
        header["__metadata__"]["crc32"] = format!("{:08x}", metadata.checksum(&numbers)).into();
    }
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text, &numbers].concat()
}

#[test]
fn hostile_files_are_refused_in_words() {
    let trained = model("mk", online());
    let set = |key: &'static str, value: Value| {
        forged(&trained, move |header, _| header["__metadata__"][key] = value)
    };
    let learning = |change: &dyn Fn(&mut Value)| {
        let mut learning: Value = serde_json::from_str(&plan_to_json(&trained.plan)).unwrap();
        change(&mut learning);
        set("learning", learning.to_string().into())
    };
    for (bytes, expected) in [
        (vec![], "m: not a model of hedgerow: not a safetensors file"),
        (vec![255; 100], "m: not a model of hedgerow: not a safetensors file"),
        (
            set("version", "2".into()),
            "m: written by a newer hedgerow: format 2, this one knows up to 1",
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
        (learning(&|learning| learning["method"] = json!("local")), "m: with the method local"),
        (
            learning(&|learning| learning["scaling"] = json!("none")),
            "m: not a model of hedgerow: a scale and an agreement",
        ),
        (
            forged(&trained, |header, numbers| {
                numbers.truncate(7);
                header["model"]["data_offsets"] = json!([0, 7]);
            }),
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
        which in 0..4usize, key in 0..8usize, edits in edits(), numbers in prop::option::of(self::edits()),
    ) {
        static MODELS: std::sync::LazyLock<Vec<Model>> = std::sync::LazyLock::new(models);
        let key = ["run", "round", "kernels", "learning", "learning", "learning", "scale", "software"][key];
        let bytes = forged(&MODELS[which], |header, bytes| {
            if let Some(text) = header["__metadata__"][key].as_str() {
                let mut text = text.as_bytes().to_vec();
                spoil(&mut text, &edits);
                header["__metadata__"][key] = String::from_utf8_lossy(&text).into();
            }
            if let Some(edits) = &numbers {
                spoil(bytes, edits);
                bytes.truncate(bytes.len() / 4 * 4);
                header["model"] = json!({"dtype": "F32", "shape": [bytes.len() / 4], "data_offsets": [0, bytes.len()]});
            }
        });
        if let Ok(read) = parse(&bytes) {
            let mut predictor = Predictor::new(&read).unwrap();
            let x = vec![0.3; predictor.inputs()];
            prop_assert!(predictor.predict(&x).is_finite());
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
    let at = newer.windows(13).position(|text| text == b"\"version\":\"1\"").unwrap();
    newer[at + 11] = b'2';
    for bytes in [newer, b"someone's thesis".to_vec(), vec![]] {
        std::fs::write(&path, &bytes).unwrap();
        let error = models()[0].write(&path).unwrap_err().to_string();
        assert!(error.ends_with("; it is left as it is: move it away first"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    assert!(models()[0].write(folder.path()).is_err());
    assert!(models()[0].write(&folder.path().join("no/m")).is_err());
}

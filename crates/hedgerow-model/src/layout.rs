//! A [`Model`] as bytes: a safetensors file with the numbers of the shared model (`model`, and
//! `model.2` and so on for further outputs), the state of each node (`node.NAME`), and the rest as
//! metadata.

use std::path::Path;

use hedgerow::message::{Broadcast, Selection};
use hedgerow::scaling::Scale;
use hedgerow::{Plan, PlanConfig};
use hedgerow_data::text::shortened;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Model, ModelError, SavedNode, check_schema};

/// The value of the key `format` in the metadata.
const FORMAT_NAME: &str = "hedgerow-model";
/// Version 1 had the shared model of one output alone.
const FORMAT_VERSION: u32 = 2;
const MODEL: &str = "model";
const NODE: &str = "node.";

/// The metadata. The format allows texts only.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metadata {
    format: String,
    version: String,
    software: String,
    run: String,
    round: String,
    /// Of each output, the kernel of the model and the one that nodes are asked for next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernels: Option<String>,
    learning: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    card: Option<String>,
    /// CRC-32 of the other fields, and of names and content of the tensors.
    crc32: String,
}

/// A scale as it is written. JSON keeps every bit of its f64 numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgreedScale {
    version: u64,
    scale: Scale,
}

/// A tensor and its name.
type Named<'a> = (String, Dtype, usize, &'a [u8]);

impl Metadata {
    pub(crate) fn checksum<'a>(&self, tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> u32 {
        let Self { format, version, software, run, round, learning, .. } = self;
        let mut hasher = crc32fast::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        [format, version, software, run, round, learning].into_iter().for_each(|text| add(text));
        let optional = [&self.kernels, &self.scale];
        optional.iter().for_each(|text| add(text.as_deref().unwrap_or_default()));
        // Version 1 had none of these.
        [&self.schema, &self.card].into_iter().flatten().for_each(|text| add(text));
        let tensors: Vec<(&str, &[u8])> = tensors.collect();
        tensors.iter().filter(|(name, _)| *name != MODEL).for_each(|(name, _)| add(name));
        tensors.iter().for_each(|(_, data)| hasher.update(data));
        hasher.finalize()
    }
}

impl Model {
    /// The content of its file. The same model has the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers: Vec<Vec<u8>> = self.broadcasts.iter().map(|one| bytes(&one.numbers)).collect();
        let models = numbers.iter().enumerate().map(|(output, bytes)| {
            (model_name(output), Dtype::F32, bytes.len() / 4, bytes.as_slice())
        });
        let nodes = self.nodes.iter().map(|SavedNode { name, state }| {
            (format!("{NODE}{name}"), Dtype::U8, state.len(), state.as_slice())
        });
        let tensors: Vec<Named<'_>> = models.chain(nodes).collect();
        let scale = self.scale.as_ref();
        let scale = scale.map(|(version, scale)| json!({ "version": version, "scale": scale }));
        let mut metadata = Metadata {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION.to_string(),
            software: self.software.clone(),
            run: self.run.clone(),
            round: self.round.to_string(),
            kernels: kernels(&self.broadcasts),
            // Writing to memory can't fail: all keys are strings and all numbers finite.
            learning: serde_json::to_string(self.plan.config()).unwrap_or_default(),
            scale: scale.map(|scale| scale.to_string()),
            schema: self.schema.as_ref().and_then(|schema| serde_json::to_string(schema).ok()),
            card: serde_json::to_string(&self.card).ok(),
            crc32: String::new(),
        };
        let named = tensors.iter().map(|(name, .., data)| (name.as_str(), *data));
        metadata.crc32 = format!("{:08x}", metadata.checksum(named));
        // The library's own writer has no stable order of metadata.
        let (mut header, mut end) = (Map::new(), 0);
        header.insert("__metadata__".to_owned(), json!(metadata));
        for (name, dtype, len, data) in &tensors {
            let offsets = [end, end + data.len()];
            end = offsets[1];
            let tensor = json!({ "dtype": dtype, "shape": [len], "data_offsets": offsets });
            header.insert(name.clone(), tensor);
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        tensors.iter().for_each(|(.., data)| bytes.extend_from_slice(data));
        bytes
    }

    /// Reads the content of a file and checks it. `path` is its name in messages.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ModelError> {
        let not_a_model = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
        let not_safetensors = |error: SafeTensorError| {
            not_a_model(short(&format!("not a safetensors file: {error}")))
        };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_safetensors)?;
        let texts = header.metadata().as_ref();
        let text = |key: &str| texts.and_then(|texts| texts.get(key)).map_or("", String::as_str);
        if text("format") != FORMAT_NAME {
            return Err(not_a_model(format!("its format is {:?}", short(text("format")))));
        }
        match text("version").parse::<u32>() {
            Ok(1..=FORMAT_VERSION) => {}
            Ok(found) if found > FORMAT_VERSION => {
                return Err(ModelError::Newer {
                    path: path.to_owned(),
                    found,
                    newest: FORMAT_VERSION,
                });
            }
            _ => {
                let version = short(text("version"));
                return Err(not_a_model(format!("there is no version {version:?}")));
            }
        }
        let metadata: Metadata = serde_json::to_value(texts)
            .and_then(serde_json::from_value)
            .map_err(|error| not_a_model(format!("its metadata is invalid: {error}")))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
        let tensors = in_order(&tensors, header.offset_keys());
        let found =
            metadata.checksum(tensors.iter().map(|(name, .., data)| (name.as_str(), *data)));
        let written = u32::from_str_radix(&metadata.crc32, 16).ok();
        let expected =
            written.ok_or_else(|| not_a_model("its checksum is no checksum".to_owned()))?;
        if found != expected {
            return Err(ModelError::Damaged { path: path.to_owned(), expected, found });
        }
        let invalid = |reason: String| ModelError::Invalid { path: path.to_owned(), reason };
        let learning = serde_json::from_str::<PlanConfig>(&metadata.learning).map_err(|error| {
            invalid(format!("the learning configuration can't be read: {error}"))
        })?;
        let plan = Plan::new(learning).map_err(|error| invalid(error.to_string()))?;
        let round = metadata.round.parse();
        let round = round
            .map_err(|_| not_a_model(format!("there is no round {:?}", short(&metadata.round))))?;
        let (mut broadcasts, mut nodes) = (Vec::new(), Vec::new());
        for (name, dtype, rank, data) in tensors {
            let is_row = |wanted| dtype == wanted && rank == 1;
            if name == model_name(broadcasts.len()) && is_row(Dtype::F32) {
                let (numbers, _) = data.as_chunks::<4>();
                let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                broadcasts.push(Broadcast { round, kernels: None, numbers });
            } else if let (Some(name), true) = (name.strip_prefix(NODE), is_row(Dtype::U8)) {
                nodes.push(SavedNode { name: name.to_owned(), state: data.to_vec() });
            } else {
                let name = short(&name);
                return Err(not_a_model(format!(
                    "a tensor {name:?} of type {dtype} and rank {rank}"
                )));
            }
        }
        if !plan.method().travels() && !broadcasts.is_empty() {
            let name = plan.method().name;
            return Err(not_a_model(format!("the method {name} has no shared model")));
        }
        let has_models = !broadcasts.is_empty() || nodes.is_empty();
        if has_models && broadcasts.len() != plan.outputs() {
            let (expected, found) = (plan.outputs(), broadcasts.len());
            let reason = format!("{expected} models of outputs expected, but {found} found");
            return Err(not_a_model(reason));
        }
        if let Some(kernels) = &metadata.kernels {
            let no_kernels = || not_a_model(format!("there are no kernels {:?}", short(kernels)));
            let selections = selections(kernels).ok_or_else(no_kernels)?;
            if selections.len() != broadcasts.len() {
                return Err(no_kernels());
            }
            let named = broadcasts.iter_mut().zip(selections);
            named.for_each(|(broadcast, one)| broadcast.kernels = Some(one));
        }
        let part = |what: &str, error: serde_json::Error| {
            not_a_model(format!("its {what} makes no sense: {}", short(&error.to_string())))
        };
        let agreed = metadata.scale.as_deref().map(serde_json::from_str::<AgreedScale>);
        let agreed = agreed.transpose().map_err(|error| part("scale", error))?;
        let is_online = plan.is_scaled_online() && !broadcasts.is_empty();
        if agreed.is_some() != is_online {
            return Err(not_a_model(
                "a scale and an agreement on it come together or not at all".to_owned(),
            ));
        }
        let schema = metadata.schema.as_deref().map(serde_json::from_str);
        let schema = schema.transpose().map_err(|error| part("table schema", error))?;
        let card = metadata.card.as_deref().map(serde_json::from_str);
        let card = card.transpose().map_err(|error| part("model card", error))?.unwrap_or_default();
        let model = Self {
            run: metadata.run,
            round,
            broadcasts,
            scale: agreed.map(|AgreedScale { version, scale }| (version, scale)),
            nodes,
            card,
            software: metadata.software,
            ..Self::empty(&plan)
        }
        .with_schema(schema);
        if let Some(Err(reason)) = model.schema.as_ref().map(|schema| check_schema(schema, &plan)) {
            return Err(not_a_model(format!("its table schema makes no sense: {reason}")));
        }
        if let Err(source) = model.check() {
            return Err(ModelError::Unfit { path: path.to_owned(), source });
        }
        Ok(model)
    }
}

/// Name, type, rank and content of all tensors, in the order of the file.
fn in_order<'a>(
    tensors: &SafeTensors<'a>,
    names: Vec<String>,
) -> Vec<(String, Dtype, usize, &'a [u8])> {
    let found = names.into_iter().filter_map(|name| {
        let tensor = tensors.tensor(&name).ok()?;
        Some((name, tensor.dtype(), tensor.shape().len(), tensor.data()))
    });
    found.collect()
}

fn model_name(output: usize) -> String {
    if output == 0 { MODEL.to_owned() } else { format!("{MODEL}.{}", output + 1) }
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn kernels(broadcasts: &[Broadcast]) -> Option<String> {
    let written = broadcasts.iter().map(|broadcast| {
        broadcast.kernels.map(|Selection { current, next }| format!("{current} {next}"))
    });
    let written = written.collect::<Option<Vec<String>>>().filter(|written| !written.is_empty());
    written.map(|written| written.join(","))
}

fn selections(text: &str) -> Option<Vec<Selection>> {
    let selection = |text: &str| {
        let (current, next) = text.split_once(' ')?;
        Some(Selection { current: current.parse().ok()?, next: next.parse().ok()? })
    };
    text.split(',').map(selection).collect()
}

/// Short enough for a message.
fn short(text: &str) -> String {
    shortened(text, 120)
}

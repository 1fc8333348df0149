//! A [`Model`] as bytes: a safetensors file with one tensor, `model`, and the rest as metadata.

use std::path::Path;

use hedgerow::message::{Broadcast, Selection};
use hedgerow::scaling::Scale;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};

use super::{Model, ModelError};
use crate::file::FileError;
use crate::plan_json::{plan_from_json, plan_to_json};
use crate::transport::protocol::{numbers_from_bytes, numbers_to_bytes};

/// The value of the key `format` in the metadata.
const FORMAT_NAME: &str = "hedgerow-model";
const FORMAT_VERSION: u32 = 1;
const TENSOR_NAME: &str = "model";

/// The header as it is written. The library's own writer has no stable order of metadata, and the
/// same model has to give the same file.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    metadata: &'a Metadata,
    model: Tensor,
}

#[derive(Serialize)]
struct Tensor {
    dtype: Dtype,
    shape: [usize; 1],
    data_offsets: [usize; 2],
}

/// The metadata of version 1. The format allows texts only.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    format: String,
    version: String,
    software: String,
    run: String,
    round: String,
    /// The kernel of the model, and the one that nodes are asked for next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernels: Option<String>,
    learning: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
    /// CRC-32 of the other fields and of the numbers.
    crc32: String,
}

/// A scale as it is written. JSON keeps every bit of its f64 numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgreedScale {
    version: u64,
    scale: Scale,
}

impl Metadata {
    pub(super) fn checksum(&self, numbers: &[u8]) -> u32 {
        let Self { format, version, software, run, round, kernels, learning, scale, crc32: _ } =
            self;
        let optional = [kernels, scale].map(|text| text.as_deref().unwrap_or_default());
        let mut hasher = crc32fast::Hasher::new();
        for text in [format, version, software, run, round, learning]
            .map(String::as_str)
            .into_iter()
            .chain(optional)
        {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(numbers);
        hasher.finalize()
    }
}

impl Model {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let numbers = numbers_to_bytes(&self.broadcast.numbers);
        let scale = self.scale.as_ref().map(|(version, scale)| {
            serde_json::json!({ "version": version, "scale": scale }).to_string()
        });
        let mut metadata = Metadata {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION.to_string(),
            software: self.software.clone(),
            run: self.run.clone(),
            round: self.broadcast.round.to_string(),
            kernels: self
                .broadcast
                .kernels
                .map(|Selection { current, next }| format!("{current} {next}")),
            learning: plan_to_json(&self.plan),
            scale,
            crc32: String::new(),
        };
        metadata.crc32 = format!("{:08x}", metadata.checksum(&numbers));
        let model = Tensor {
            dtype: Dtype::F32,
            shape: [self.broadcast.numbers.len()],
            data_offsets: [0, numbers.len()],
        };
        // Writing to memory can't fail: all keys are strings and no number is a float.
        let header = Header { metadata: &metadata, model };
        let mut header = serde_json::to_vec(&header).unwrap_or_default();
        header.resize(header.len().next_multiple_of(8), b' ');
        [&(header.len() as u64).to_le_bytes()[..], &header, &numbers].concat()
    }

    pub(super) fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ModelError> {
        let not_a_model = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
        let not_safetensors = |error: SafeTensorError| {
            not_a_model(shortened(&format!("not a safetensors file: {error}")))
        };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_safetensors)?;
        let texts = header.metadata().as_ref();
        let text = |key: &str| texts.and_then(|texts| texts.get(key)).map_or("", String::as_str);
        if text("format") != FORMAT_NAME {
            return Err(not_a_model(format!("its format is {:?}", shortened(text("format")))));
        }
        match text("version").parse::<u32>() {
            Ok(FORMAT_VERSION) => {}
            Ok(found) if found > FORMAT_VERSION => {
                let (found, newest) = (found.into(), FORMAT_VERSION.into());
                return Err(FileError::Newer { path: path.to_owned(), found, newest }.into());
            }
            _ => {
                let version = shortened(text("version"));
                return Err(not_a_model(format!("there is no version {version:?}")));
            }
        }
        let metadata: Metadata = serde_json::to_value(texts)
            .and_then(serde_json::from_value)
            .map_err(|error| not_a_model(format!("its metadata is invalid: {error}")))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
        let tensor = tensors.tensor(TENSOR_NAME).map_err(not_safetensors)?;
        if tensors.len() != 1 || tensor.dtype() != Dtype::F32 || tensor.shape().len() != 1 {
            return Err(not_a_model(format!(
                "one row of numbers of type F32 expected, but {} tensors found, `{TENSOR_NAME}` with \
                 type {} and shape {:?}",
                tensors.len(),
                tensor.dtype(),
                tensor.shape()
            )));
        }
        let numbers = tensor.data();
        let found = metadata.checksum(numbers);
        let written = u32::from_str_radix(&metadata.crc32, 16).ok();
        let expected =
            written.ok_or_else(|| not_a_model("its checksum is no checksum".to_owned()))?;
        if found != expected {
            return Err(FileError::Damaged {
                path: path.to_owned(),
                part: "content",
                expected,
                found,
            }
            .into());
        }
        let plan = plan_from_json(&metadata.learning, &[])
            .map_err(|error| ModelError::invalid(path, error))?;
        let unfit = |source| ModelError::Unfit { path: path.to_owned(), source };
        let mut broadcast = Broadcast::default();
        numbers_from_bytes(numbers, plan.most_numbers(), &mut broadcast.numbers).map_err(unfit)?;
        let no_round =
            || not_a_model(format!("there is no round {:?}", shortened(&metadata.round)));
        broadcast.round = metadata.round.parse().map_err(|_| no_round())?;
        if let Some(kernels) = &metadata.kernels {
            let no_kernels =
                || not_a_model(format!("there are no kernels {:?}", shortened(kernels)));
            broadcast.kernels = Some(selection(kernels).ok_or_else(no_kernels)?);
        }
        let agreed: Option<AgreedScale> = metadata
            .scale
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| not_a_model(format!("its scale makes no sense: {error}")))?;
        let is_online = plan.is_scaled_online();
        if agreed.is_some() != is_online {
            return Err(not_a_model(
                "a scale and an agreement on it come together or not at all".to_owned(),
            ));
        }
        let scale = agreed.map(|AgreedScale { version, scale }| (version, scale));
        Self { plan, run: metadata.run, broadcast, scale, software: metadata.software }
            .checked(path)
    }
}

fn selection(text: &str) -> Option<Selection> {
    let (current, next) = text.split_once(' ')?;
    Some(Selection { current: current.parse().ok()?, next: next.parse().ok()? })
}

/// Short enough for a message.
fn shortened(text: &str) -> String {
    hedgerow_data::text::shortened(text, 120)
}

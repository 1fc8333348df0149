//! A [`Model`] as bytes: safetensors with one tensor, `model`, and everything else as metadata.
//! Read by hand, since files are hostile and a single tensor needs little.

use std::path::Path;

use hedgerow::message::{Broadcast, Selection};
use hedgerow::scaling::Scale;
use serde::{Deserialize, Serialize};

use super::{Model, ModelError};
use crate::file::FileError;
use crate::learning::{Plan, Scaling};
use crate::transport::protocol::{numbers_from_bytes, numbers_to_bytes};

/// What the metadata call such files.
const FORMAT: &str = "hedgerow-model";
const VERSION: u32 = 1;

/// Most bytes of a header: thousands of columns with long names, and their scales.
const MAX_HEADER: usize = 8 << 20;

/// Mark of who wrote a file, whatever the version.
#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "__metadata__")]
    metadata: Marks,
}

#[derive(Deserialize)]
struct Marks {
    format: String,
    version: String,
}

/// The header of version 1.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(rename = "__metadata__")]
    metadata: Metadata,
    model: Tensor,
}

/// Texts only, as the format wants it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    format: String,
    version: String,
    software: String,
    run: String,
    round: String,
    /// The kernel of the model, and the one that is asked for next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernels: Option<String>,
    learning: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
    /// CRC-32 of all these and of the numbers.
    crc32: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tensor {
    dtype: String,
    shape: [usize; 1],
    data_offsets: [usize; 2],
}

/// A scale as it is written; numbers as f64, of which JSON keeps every bit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Agreed {
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
            format: FORMAT.to_owned(),
            version: VERSION.to_string(),
            software: self.software.clone(),
            run: self.run.clone(),
            round: self.broadcast.round.to_string(),
            kernels: self
                .broadcast
                .kernels
                .map(|Selection { current, next }| format!("{current} {next}")),
            learning: self.plan.to_json(),
            scale,
            crc32: String::new(),
        };
        metadata.crc32 = format!("{:08x}", metadata.checksum(&numbers));
        let model = Tensor {
            dtype: "F32".to_owned(),
            shape: [self.broadcast.numbers.len()],
            data_offsets: [0, numbers.len()],
        };
        file_bytes(&Header { metadata, model }, &numbers)
    }

    pub(super) fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ModelError> {
        let not_a_model = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
        let (header, numbers) =
            split(bytes).ok_or_else(|| not_a_model("not a safetensors file".to_owned()))?;
        let mark: Mark = serde_json::from_slice(header).map_err(|error| {
            not_a_model(format!("its header has no format and version: {error}"))
        })?;
        let Marks { format, version } = mark.metadata;
        if format != FORMAT {
            return Err(not_a_model(format!("its format is {:?}", shortened(&format))));
        }
        match version.parse::<u32>() {
            Ok(VERSION) => {}
            Ok(found) if found > VERSION => {
                let (found, newest) = (found.into(), VERSION.into());
                return Err(FileError::Newer { path: path.to_owned(), found, newest }.into());
            }
            _ => return Err(not_a_model(format!("there is no version {:?}", shortened(&version)))),
        }
        let Header { metadata, model } = serde_json::from_slice(header)
            .map_err(|error| not_a_model(format!("its header makes no sense: {error}")))?;
        let (length, bytes) = (model.shape[0], numbers.len());
        if model.dtype != "F32"
            || model.data_offsets != [0, bytes]
            || length.checked_mul(4) != Some(bytes)
        {
            let reason = format!(
                "{length} numbers of type {:?} announced, {bytes} bytes there",
                shortened(&model.dtype)
            );
            return Err(not_a_model(reason));
        }
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
        let plan = Plan::from_json(&metadata.learning)
            .map_err(|source| ModelError::Plan { path: path.to_owned(), source })?;
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
        let agreed: Option<Agreed> = metadata
            .scale
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| not_a_model(format!("its scale makes no sense: {error}")))?;
        let is_online = matches!(plan.learning().scaling, Scaling::Online { .. });
        if agreed.is_some() != is_online {
            return Err(not_a_model(
                "a scale and an agreement on it come together or not at all".to_owned(),
            ));
        }
        let scale = agreed.map(|Agreed { version, scale }| (version, scale));
        Self { plan, run: metadata.run, broadcast, scale, software: metadata.software }
            .checked(path)
    }
}

/// Length of the header, header, tensor.
fn file_bytes(header: &Header, numbers: &[u8]) -> Vec<u8> {
    // Writing to memory can't fail: all keys are strings and no number is a float.
    let mut header = serde_json::to_vec(header).unwrap_or_default();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, numbers].concat()
}

pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    (length <= MAX_HEADER).then(|| rest.split_at_checked(length)).flatten()
}

fn selection(text: &str) -> Option<Selection> {
    let (current, next) = text.split_once(' ')?;
    Some(Selection { current: current.parse().ok()?, next: next.parse().ok()? })
}

/// Short enough for a message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

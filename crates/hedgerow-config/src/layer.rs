//! [`Layer`]: settings from one source.

use std::path::Path;

use toml::{Table, Value};

use crate::ConfigError;

/// Settings from one source: a file, a `--set`, a flag, or a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    pub(crate) table: Table,
    pub(crate) origin: String,
}

impl Layer {
    /// Settings in a table. `origin` is named in errors unless it is empty.
    pub fn table(origin: &str, table: Table) -> Self {
        Self { table, origin: origin.to_owned() }
    }

    /// One setting, such as `federation.nodes`.
    pub fn value(origin: &str, key: &str, value: impl Into<Value>) -> Self {
        let mut parts = key.split('.').rev();
        let last = parts.next().unwrap_or_default();
        let table = Table::from_iter([(last.to_owned(), value.into())]);
        let nest = |inner, part: &str| Table::from_iter([(part.to_owned(), Value::Table(inner))]);
        Self::table(origin, parts.fold(table, nest))
    }

    /// What a TOML file says.
    pub fn file(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| ConfigError::Unreadable { file: file.to_owned(), source })?;
        Self::toml(&file.display().to_string(), &text)
    }

    /// What TOML text says.
    pub fn toml(origin: &str, text: &str) -> Result<Self, ConfigError> {
        let parsed = text.parse().map_err(|error: toml::de::Error| ConfigError::NotToml {
            origin: origin.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        });
        Ok(Self::table(origin, parsed?))
    }

    /// What `--set key=value` says. A value that isn't TOML is text.
    pub fn set(text: &str) -> Result<Self, ConfigError> {
        let origin = format!("--set {text}");
        let Some((key, value)) = text.split_once('=') else {
            let message = "it should look like key=value".to_owned();
            return Err(ConfigError::NotToml { origin, message });
        };
        let value = value.trim();
        let parsed = format!("value = {value}").parse::<Table>().ok();
        let parsed = parsed.and_then(|mut table| table.remove("value"));
        let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
        Ok(Self::value(&origin, key.trim(), value))
    }

    /// Several `--set`, in order.
    pub fn sets<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Self>, ConfigError> {
        texts.into_iter().map(|text| Self::set(text.as_ref())).collect()
    }

    /// Whether it changes this key, or a key in this section.
    pub fn changes(&self, key: &str) -> bool {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| self.table.get(part));
        parts.try_fold(first, |value, part| value.map(|value| value.get(part))).flatten().is_some()
    }

    /// The file or flag that it comes from; empty if there is none.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

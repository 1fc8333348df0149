//! Settings in layers: commented defaults, the user's file over them, single changes (`key=value`)
//! over both. What isn't in the defaults isn't a key.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Settings that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The file can't be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Text that isn't TOML, or a value of the wrong kind.
    #[error("{origin}: {message}")]
    NotToml {
        /// Where it was written.
        origin: String,
        /// What is wrong with it.
        message: String,
    },
    /// A key that the defaults don't have.
    #[error("{origin}: there is no key {key:?}; {section} has {known}")]
    UnknownKey {
        /// Where it was written.
        origin: String,
        /// Such as `rounds.quorum`.
        key: String,
        /// Where it was looked for.
        section: String,
        /// What there is.
        known: String,
    },
}

/// Reads settings. Tables that are empty in the defaults take any key.
pub fn read<T: DeserializeOwned>(
    defaults: &str,
    file: Option<&Path>,
    changes: &[String],
) -> Result<T, LayerError> {
    let shape = parse("the defaults", defaults)?;
    let mut table = shape.clone();
    if let Some(file) = file {
        let unreadable = |source| LayerError::Unreadable { file: file.to_owned(), source };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let origin = file.display().to_string();
        merge(&mut table, &shape, parse(&origin, &text)?, "", &origin)?;
    }
    for change in changes {
        let origin = format!("--set {change}");
        merge(&mut table, &shape, parse_change(change, &origin)?, "", &origin)?;
    }
    finish(table, file.map_or_else(|| "settings".to_owned(), |file| file.display().to_string()))
}

/// The defaults with changes over them that are a table already.
pub fn put_over<T: DeserializeOwned>(defaults: &str, changes: Table) -> Result<T, LayerError> {
    let shape = parse("the defaults", defaults)?;
    let mut table = shape.clone();
    merge(&mut table, &shape, changes, "", "settings")?;
    finish(table, "settings".to_owned())
}

fn finish<T: DeserializeOwned>(table: Table, origin: String) -> Result<T, LayerError> {
    let message = |error: toml::de::Error| error.to_string().trim_end().replace('\n', " ");
    table.try_into().map_err(|error| LayerError::NotToml { origin, message: message(error) })
}

fn parse(origin: &str, text: &str) -> Result<Table, LayerError> {
    text.parse().map_err(|error: toml::de::Error| LayerError::NotToml {
        origin: origin.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })
}

/// `a.b=value` as a table; a value that isn't TOML is text.
fn parse_change(text: &str, origin: &str) -> Result<Table, LayerError> {
    let Some((key, value)) = text.split_once('=') else {
        let message = "it should look like key=value".to_owned();
        return Err(LayerError::NotToml { origin: origin.to_owned(), message });
    };
    let value = value.trim();
    let parsed = format!("value = {value}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    let mut value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let mut parts = key.trim().split('.').rev();
    let first = parts.next_back().unwrap_or_default();
    for part in parts {
        value = Value::Table(Table::from_iter([(part.to_owned(), value)]));
    }
    Ok(Table::from_iter([(first.to_owned(), value)]))
}

/// Puts changes over `base`; `shape` is what the defaults have in its place.
fn merge(
    base: &mut Table,
    shape: &Table,
    changes: Table,
    prefix: &str,
    origin: &str,
) -> Result<(), LayerError> {
    let is_open = shape.is_empty() && !prefix.is_empty();
    for (key, value) in changes {
        let path = format!("{prefix}{key}");
        match (base.get_mut(&key), value) {
            (Some(Value::Table(known)), Value::Table(changes)) => {
                let shape = shape.get(&key).and_then(Value::as_table).cloned().unwrap_or_default();
                merge(known, &shape, changes, &format!("{path}."), origin)?;
            }
            (Some(Value::Table(_)), _) => {
                let message = format!("{path} is a section, not a value");
                return Err(LayerError::NotToml { origin: origin.to_owned(), message });
            }
            (Some(Value::Float(known)), Value::Integer(whole)) => *known = whole as f64,
            (Some(known), value) => *known = value,
            (None, value) if is_open => drop(base.insert(key, value)),
            (None, _) => {
                let section =
                    prefix.strip_suffix('.').map_or("the top".into(), |name| format!("[{name}]"));
                let known = base.keys().cloned().collect::<Vec<_>>().join(", ");
                return Err(LayerError::UnknownKey {
                    origin: origin.to_owned(),
                    key: path,
                    section,
                    known,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const DEFAULTS: &str = "name = \"a\"\n[rounds]\nquorum = 3\nshare = 0.5\n[ranges]\n";

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        name: String,
        rounds: Rounds,
        ranges: std::collections::BTreeMap<String, [f64; 2]>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Rounds {
        quorum: u32,
        share: f64,
    }

    fn read_with(file: &str, changes: &[&str]) -> Result<Settings, LayerError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.toml");
        std::fs::write(&path, file).unwrap();
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        read(DEFAULTS, Some(&path), &changes)
    }

    #[test]
    fn later_layers_win_and_change_only_what_they_name() {
        let settings = read_with(
            "[rounds]\nquorum = 7",
            &["rounds.share=1", "name=b c", "ranges.x=[0.0, 1.0]", "ranges.y=[2, 3]"],
        );
        let settings = settings.unwrap();
        assert_eq!(settings.rounds, Rounds { quorum: 7, share: 1.0 });
        assert_eq!(
            (settings.name.as_str(), settings.ranges["x"], settings.ranges["y"]),
            ("b c", [0.0, 1.0], [2.0, 3.0])
        );
        assert_eq!(read::<Settings>(DEFAULTS, None, &[]).unwrap().rounds.quorum, 3);
    }

    #[test]
    fn what_is_wrong_is_named_with_where_it_stands() {
        for (file, change, parts) in [
            ("[rounds]\nquorom = 7", "name=b", ["my.toml", "rounds.quorom", "quorum, share"]),
            ("quorum = 7", "name=b", ["my.toml", "quorum", "the top"]),
            ("[rounds]\nquorum = \"x\"", "name=b", ["my.toml", "quorum", "u32"]),
            ("rounds = 3", "name=b", ["my.toml", "rounds", "section"]),
            ("[rounds", "name=b", ["my.toml", "line 1", ""]),
            ("", "name", ["--set name", "key=value", ""]),
            ("", "a.b.c=1", ["--set a.b.c=1", "a", "rounds"]),
        ] {
            let message = read_with(file, &[change]).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        let message =
            read::<Settings>(DEFAULTS, Some(Path::new("/no/where.toml")), &[]).unwrap_err();
        assert!(message.to_string().starts_with("/no/where.toml"), "{message}");
    }
}

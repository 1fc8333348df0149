//! Layers of TOML: defaults, a file, flags. A layer may only change what the one below has, and
//! only to a value of the same kind.

use toml::{Table, Value};

use super::{DEFAULTS, SettingsError};

pub(super) fn parse(origin: &str, text: &str) -> Result<Table, SettingsError> {
    text.parse().map_err(|error: toml::de::Error| SettingsError::NotToml {
        origin: origin.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })
}

/// `a.b = value` as a table.
pub(super) fn nested(key: &str, value: Value) -> Table {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = if rest.is_empty() { value } else { Value::Table(nested(rest, value)) };
    Table::from_iter([(first.to_owned(), value)])
}

/// Puts `changes` over `base`, which knows every key and the kind of its value.
pub(super) fn merge(
    base: &mut Table,
    changes: Table,
    prefix: &str,
    origin: &str,
) -> Result<(), SettingsError> {
    for (key, value) in changes {
        let path = format!("{prefix}{key}");
        let Some(known) = base.get_mut(&key) else {
            return Err(unknown_key(&path, origin));
        };
        match (known, value) {
            (Value::Table(known), Value::Table(changes)) => {
                merge(known, changes, &format!("{path}."), origin)?;
            }
            (known, value) => match as_kind_of(known, value) {
                Ok(value) => *known = value,
                Err(found) => {
                    let (origin, expected) = (origin.to_owned(), kind(known));
                    return Err(SettingsError::WrongType {
                        origin,
                        key: path,
                        expected,
                        found: found.to_string(),
                    });
                }
            },
        }
    }
    Ok(())
}

/// The value, if it is of the same kind; whole numbers pass for numbers.
fn as_kind_of(known: &Value, value: Value) -> Result<Value, Value> {
    match (known, value) {
        (Value::Float(_), Value::Integer(whole)) => Ok(Value::Float(whole as f64)),
        (Value::Array(old), Value::Array(new)) => {
            let Some(example) = old.first() else { return Ok(Value::Array(new)) };
            new.into_iter()
                .map(|item| as_kind_of(example, item))
                .collect::<Result<_, _>>()
                .map(Value::Array)
        }
        // One name is a list of one.
        (Value::Array(old), Value::String(one)) if old.iter().all(Value::is_str) => {
            Ok(Value::Array(vec![Value::String(one)]))
        }
        (known, value) if known.same_type(&value) => Ok(value),
        (_, value) => Err(value),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::String(_) => "text in quotes",
        Value::Array(items) if items.first().is_some_and(Value::is_str) => "a list of texts",
        Value::Array(items) if items.is_empty() => "a list of texts",
        Value::Array(_) => "a list of numbers",
        Value::Table(_) => "a section",
        Value::Boolean(_) | Value::Datetime(_) => "another kind of value",
    }
}

fn unknown_key(path: &str, origin: &str) -> SettingsError {
    let known: Vec<String> =
        DEFAULTS.parse::<Table>().map(|table| all_keys(&table, "")).unwrap_or_default();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    // A key in the wrong section is as likely as a misspelt one.
    let likeness = |key: &String| {
        let whole = strsim::jaro_winkler(key, path);
        let of_last = strsim::jaro_winkler(&last(key), &last(path));
        // Nearly the same key, in the same section, is meant before the same one elsewhere.
        if whole > 0.95 { 1.0 + whole } else { whole.max(of_last) }
    };
    SettingsError::UnknownKey {
        origin: origin.to_owned(),
        key: path.to_owned(),
        suggestion: known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))),
    }
}

/// Every key and every section.
fn all_keys(table: &Table, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, value) in table {
        let path = format!("{prefix}{key}");
        if let Value::Table(inner) = value {
            keys.extend(all_keys(inner, &format!("{path}.")));
        }
        keys.push(path);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(changes: &str) -> Result<Table, SettingsError> {
        let mut table = parse("defaults", DEFAULTS)?;
        merge(&mut table, parse("my.toml", changes)?, "", "my.toml")?;
        Ok(table)
    }

    #[test]
    fn a_layer_changes_only_what_it_names() {
        let table = merged("[federation]\nnodes = 7").unwrap();
        assert_eq!(table["federation"]["nodes"].as_integer(), Some(7));
        assert_eq!(table["federation"]["budget"].as_integer(), Some(100));
    }

    #[test]
    fn unknown_keys_get_the_nearest_known_one() {
        for (changes, suggestion) in [
            ("[learning]\nrigde = 1.0", "learning.ridge"),
            ("[federation]\ntrials = 3", "run.trials"),
            ("nodes = 3", "federation.nodes"),
            ("[lerning]\nridge = 1.0", "\"learning\""),
        ] {
            let message = merged(changes).unwrap_err().to_string();
            assert!(message.contains(suggestion) && message.contains("my.toml"), "{message}");
        }
    }

    #[test]
    fn kinds_must_match_but_whole_numbers_are_numbers() {
        assert!(merged("[learning]\nridge = 1").is_ok());
        assert!(merged("[kernels]\nvariances = [1, 0.5]").is_ok());
        for changes in [
            "[federation]\nnodes = \"3\"",
            "[federation]\nnodes = 1.5",
            "learning = 3",
            "[kernels]\nvariances = [\"a\"]",
        ] {
            let message = merged(changes).unwrap_err().to_string();
            assert!(message.contains("must be a"), "{message}");
        }
    }

    #[test]
    fn dotted_keys_become_tables() {
        assert_eq!(nested("a.b.c", Value::Integer(1)), "a.b.c = 1".parse().unwrap());
    }
}

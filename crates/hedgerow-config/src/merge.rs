//! [`Merged`]: defaults and all layers over them.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::error::{did_you_mean, nearest};
use crate::read::read;
use crate::{ConfigError, Layer};

/// The defaults with layers over them. A later layer wins.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    table: Table,
    /// Where each key that isn't at its default comes from.
    origins: BTreeMap<String, String>,
}

impl Merged {
    /// Puts layers over the defaults, which must name every key. A section that is empty in the
    /// defaults takes any key.
    pub fn new(defaults: &str, layers: &[Layer]) -> Result<Self, ConfigError> {
        let shape = Layer::toml("the defaults", defaults)?.table;
        let mut merged = Self { table: shape.clone(), origins: BTreeMap::new() };
        for layer in layers {
            let mut over =
                Over { shape: &shape, origin: &layer.origin, origins: &mut merged.origins };
            over.merge(&mut merged.table, &shape, layer.table.clone(), "")?;
        }
        Ok(merged)
    }

    /// Everything, as a type of the program. Fields that the type doesn't have are left out.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        read(&Value::Table(self.table.clone())).map_err(|error| self.locate(error))
    }

    /// Everything, as TOML.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Whether a layer changed this key.
    pub fn is_given(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// Adds to an error where its key was set.
    pub fn locate(&self, mut error: ConfigError) -> ConfigError {
        if let ConfigError::OutOfBounds { origin, key, .. }
        | ConfigError::WrongType { origin, key, .. }
        | ConfigError::Rejected { origin, key, .. } = &mut error
            && let Some(known) = self.origins.get(key)
        {
            known.clone_into(origin);
        }
        error
    }
}

/// One layer on its way over the others.
struct Over<'a> {
    shape: &'a Table,
    origin: &'a str,
    origins: &'a mut BTreeMap<String, String>,
}

impl Over<'_> {
    /// Puts `changes` over `base`; `shape` is what the defaults have in its place.
    fn merge(
        &mut self,
        base: &mut Table,
        shape: &Table,
        changes: Table,
        prefix: &str,
    ) -> Result<(), ConfigError> {
        let is_open = shape.is_empty() && !prefix.is_empty();
        for (key, value) in changes {
            let path = format!("{prefix}{key}");
            match (base.get_mut(&key), shape.get(&key), value) {
                (Some(Value::Table(base)), Some(Value::Table(shape)), Value::Table(changes)) => {
                    self.merge(base, shape, changes, &format!("{path}."))?;
                }
                (Some(known), Some(default), value) => {
                    *known =
                        as_type_of(default, value).map_err(|found| ConfigError::WrongType {
                            origin: self.origin.to_owned(),
                            key: path.clone(),
                            expected: type_name(default).to_owned(),
                            found: found.to_string(),
                        })?;
                    self.origins.insert(path, self.origin.to_owned());
                }
                (_, _, value) if is_open => {
                    base.insert(key, value);
                    self.origins.insert(path, self.origin.to_owned());
                }
                _ => return Err(self.unknown_key(path, prefix, shape)),
            }
        }
        Ok(())
    }

    fn unknown_key(&self, key: String, prefix: &str, section: &Table) -> ConfigError {
        let section_end = |key: &str| key.rfind('.').map_or(0, |dot| dot + 1);
        let known = all_keys(self.shape, "");
        // A key in the wrong section is as likely as a misspelt one, but a nearly right key of the
        // same section goes before both.
        let suggestion = nearest(known.iter(), |known| {
            let (section, name) = known.split_at(section_end(known));
            let similarity = strsim::jaro_winkler(name, &key[prefix.len()..]);
            if section == prefix && similarity > 0.85 { 1.0 + similarity } else { similarity }
        });
        let hint = match suggestion {
            Some(suggestion) => did_you_mean(suggestion),
            None => {
                let place = prefix.strip_suffix('.').map(|name| format!("[{name}]"));
                let keys = section.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                format!(" ({} has {keys})", place.as_deref().unwrap_or("the top level"))
            }
        };
        ConfigError::UnknownKey { origin: self.origin.to_owned(), key, hint }
    }
}

/// The value, if it is of the default's type. Whole numbers pass for numbers, and one text for a
/// list of texts. A setting that is text by default may also be a number, or true or false: the
/// type that is read decides.
fn as_type_of(default: &Value, value: Value) -> Result<Value, Value> {
    match (default, value) {
        (Value::Float(_), Value::Integer(whole)) => Ok(Value::Float(whole as f64)),
        (Value::String(_), Value::Integer(whole)) => Ok(Value::Integer(whole)),
        (Value::String(_), Value::Float(number)) => Ok(Value::Float(number)),
        (Value::String(_), Value::Boolean(is_so)) => Ok(Value::Boolean(is_so)),
        (Value::Array(old), Value::Array(new)) => {
            let Some(example) = old.first() else { return Ok(Value::Array(new)) };
            let items = new.into_iter().map(|item| as_type_of(example, item));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        (Value::Array(old), Value::String(one)) if old.iter().all(Value::is_str) => {
            Ok(Value::Array(vec![Value::String(one)]))
        }
        (default, value) if default.same_type(&value) => Ok(value),
        (_, value) => Err(value),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(items) if items.iter().all(Value::is_str) => "a list of strings",
        Value::Array(_) => "a list of numbers",
        Value::Table(_) => "a section",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
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
    use std::path::Path;

    use serde::Deserialize;

    use super::*;

    const DEFAULTS: &str = "
        name = \"a\"
        [rounds]
        quorum = 3
        share = 0.5
        late = \"drop\"
        methods = [\"mk\"]
        variances = [1.0]
        [learning]
        ridge = 0.1
        [ranges]";

    #[derive(Debug, PartialEq, Deserialize)]
    struct Settings {
        name: String,
        rounds: Rounds,
        ranges: BTreeMap<String, [f64; 2]>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Rounds {
        #[serde(deserialize_with = "crate::within::<1, 100, _, _>")]
        quorum: u32,
        #[serde(deserialize_with = "crate::share")]
        share: f64,
        late: Late,
        methods: Vec<String>,
        variances: Vec<f64>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Late {
        Drop,
        Merge,
    }

    fn read(file: &str, sets: &[&str]) -> Result<Settings, ConfigError> {
        let mut layers = vec![Layer::toml("my.toml", file)?];
        layers.extend(Layer::sets(sets)?);
        Merged::new(DEFAULTS, &layers)?.read()
    }

    #[test]
    fn later_layers_win_and_change_only_what_they_name() {
        let sets = ["rounds.share=1", "name=b c", "ranges.x=[0.0, 1.0]", "ranges.y=[2, 3]"];
        let settings = read("name = \"x\"\n[rounds]\nquorum = 7", &sets).unwrap();
        assert_eq!((settings.rounds.quorum, settings.rounds.share), (7, 1.0));
        assert_eq!(settings.name, "b c");
        assert_eq!((settings.ranges["x"], settings.ranges["y"]), ([0.0, 1.0], [2.0, 3.0]));
        let settings = read("", &["rounds.late=merge", "rounds.methods=gr"]).unwrap();
        assert_eq!((settings.rounds.late, settings.rounds.quorum), (Late::Merge, 3));
        assert_eq!(settings.rounds.methods, ["gr"]);
    }

    #[test]
    fn unknown_keys_get_the_nearest_known_one() {
        for (file, parts) in [
            ("[rounds]\nquorom = 7", ["my.toml", "\"rounds.quorom\"", "mean \"rounds.quorum\"?"]),
            ("[rounds]\nridge = 7.0", ["my.toml", "\"rounds.ridge\"", "mean \"learning.ridge\"?"]),
            ("quorum = 7", ["my.toml", "\"quorum\"", "mean \"rounds.quorum\"?"]),
            ("[lerning]\nridge = 1.0", ["my.toml", "\"lerning\"", "mean \"learning\"?"]),
            ("[rounds]\nxyzzy = 1", ["\"rounds.xyzzy\"", "[rounds] has", "quorum, share"]),
            ("zzz.b = 1", ["\"zzz\"", "the top level has", "rounds"]),
        ] {
            let message = read(file, &[]).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{file}: {message}");
        }
    }

    #[test]
    fn wrong_values_are_named_with_origin_key_and_bound() {
        for (file, set, parts) in [
            ("[rounds]\nquorum = \"3\"", "name=b", "my.toml: rounds.quorum must be a whole number"),
            ("[rounds]\nquorum = 1.5", "name=b", "my.toml: rounds.quorum must be a whole number"),
            ("rounds = 3", "name=b", "my.toml: rounds must be a section, but is 3"),
            ("name = 3", "name=b", ""),
            ("name = 3", "rounds.quorum=3", "my.toml: name must be a string, but is 3"),
            ("", "rounds.quorum=0", "--set rounds.quorum=0: rounds.quorum must be at least 1"),
            ("", "rounds.quorum=101", "rounds.quorum must be at most 100, but is 101"),
            ("", "rounds.share=1.5", "rounds.share must be between 0 and 1, but is 1.5"),
            ("", "rounds.late=mergee", "one of drop, merge (did you mean \"merge\"?)"),
            ("", "rounds.late=mergee", "but is \"mergee\""),
            ("", "rounds.late=3", "rounds.late must be a string, but is 3"),
            ("", "rounds.variances=[\"a\"]", "rounds.variances must be a list of numbers"),
            ("", "ranges.x=[1.0]", "--set ranges.x=[1.0]: ranges.x must be an array of length 2"),
            ("[rounds", "name=b", "my.toml is not valid TOML: TOML parse error at line 1"),
            ("", "name", "--set name is not valid TOML: it should look like key=value"),
        ] {
            let message = read(file, &[set]).map_or_else(|e| e.to_string(), |_| String::new());
            assert!(message.contains(parts), "{file} {set}: {message}");
            assert_eq!(message.is_empty(), parts.is_empty(), "{file} {set}: {message}");
        }
        let message = Layer::file(Path::new("/no/where.toml")).unwrap_err().to_string();
        assert!(message.contains("/no/where.toml"), "{message}");
    }

    #[test]
    fn a_layer_knows_what_it_changes() {
        let layer = Layer::set("rounds.quorum=3").unwrap();
        assert!(layer.changes("rounds.quorum") && layer.changes("rounds"));
        assert!(!layer.changes("rounds.share") && !layer.changes("learning"));
        let merged = Merged::new(DEFAULTS, &[layer]).unwrap();
        assert!(merged.is_given("rounds.quorum") && !merged.is_given("rounds.share"));
    }
}

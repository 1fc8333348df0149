//! Samples from JSON objects, read in bounded memory and without copies of what isn't needed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use hedgerow_data::rows::Cell;
use hedgerow_data::text::{excerpt, shortened};

use super::sample::{BadRow, Builder, Role, Sample, Schema, not_a_number, to_number};

impl Schema {
    /// Reads a JSON object.
    pub fn read_object(&self, text: &[u8]) -> Result<Sample, BadRow> {
        let mut builder = Builder::new(self);
        let mut bad = None;
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let object = Object { schema: self, builder: &mut builder, bad: &mut bad };
        let read = object.deserialize(&mut deserializer).and_then(|()| deserializer.end());
        match (bad, read) {
            (Some(bad), _) => Err(bad),
            (None, Err(error)) => Err(not_an_object(error)),
            (None, Ok(())) => builder.finish(),
        }
    }
}

/// The parser's message without its own line number, because the reader counts lines itself.
fn not_an_object(error: serde_json::Error) -> BadRow {
    let text = error.to_string();
    let reason = match text.rsplit_once(" at line ") {
        Some((what, _)) if error.line() <= 1 => format!("{what} at byte {}", error.column()),
        _ => text,
    };
    BadRow::NotAnObject(shortened(&reason, 120))
}

/// The number that a JSON value is; NaN for null and for what stands for a missing value.
fn read_value(schema: &Schema, column: &str, value: &RawValue) -> Result<f32, BadRow> {
    match value.get() {
        "null" => Ok(f32::NAN),
        text if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            match schema.cell(text) {
                Ok(Cell::Missing) => Ok(f32::NAN),
                _ => to_number(column, text),
            }
        }
        text if text.starts_with('"') => {
            let said: String = serde_json::from_str(text).map_err(not_an_object)?;
            match schema.cell(said.trim()) {
                Ok(Cell::Missing) if !said.trim().is_empty() => Ok(f32::NAN),
                _ => Err(not_a_number(column, text)),
            }
        }
        text => Err(not_a_number(column, text)),
    }
}

/// The text that a JSON value is, if it is one.
fn read_string(value: &RawValue) -> Result<Option<String>, BadRow> {
    let is_text = value.get().starts_with('"');
    is_text.then(|| serde_json::from_str(value.get()).map_err(not_an_object)).transpose()
}

/// The text that a JSON value of a column of text is; none if it is missing.
fn read_text(schema: &Schema, column: &str, value: &RawValue) -> Result<Option<String>, BadRow> {
    let text = match value.get() {
        "null" => return Ok(None),
        text if text.starts_with('"') => serde_json::from_str(text).map_err(not_an_object)?,
        text if text.starts_with(['[', '{']) => return Err(not_a_number(column, text)),
        text => text.to_owned(),
    };
    let cell = schema.cell(text.trim()).map_err(|_| not_a_number(column, value.get()))?;
    Ok(cell.into_text())
}

/// The name of a class: a text, a number or a truth value; none if it is missing.
fn read_class(schema: &Schema, value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        text if text.starts_with('"') => {
            let said: String = serde_json::from_str(text).ok()?;
            (schema.cell(said.trim()) != Ok(Cell::Missing)).then_some(said)
        }
        text => Some(text.parse::<f64>().map_or_else(|_| text.to_owned(), |n| n.to_string())),
    }
}

/// Reads an object; what is wrong with it goes to `bad`.
struct Object<'r, 's> {
    schema: &'s Schema,
    builder: &'r mut Builder<'s>,
    bad: &'r mut Option<BadRow>,
}

impl Object<'_, '_> {
    fn take(&mut self, key: &str, value: &RawValue) -> Result<(), BadRow> {
        let is_list = value.get().starts_with('[');
        match self.schema.role(key) {
            Role::Input(_) if key == "x" && is_list => self.take_list(value),
            Role::Inputs if is_list => self.take_list(value),
            Role::Inputs => Err(not_a_number(key, value.get())),
            Role::Input(position) => {
                self.builder.input(position, key, read_value(self.schema, key, value)?)
            }
            Role::Category => self.builder.category(key, read_text(self.schema, key, value)?),
            Role::Label(_) if self.schema.has_classes() => {
                let class =
                    read_class(self.schema, value).map(|text| self.schema.class(key, &text));
                self.builder.all_labels(key, class.transpose()?)
            }
            Role::Label(target) => {
                self.builder.label(target, key, read_value(self.schema, key, value)?)
            }
            Role::Labels if value.get() == "null" => self.builder.all_labels(key, None),
            Role::Labels if is_list => self.take_labels(key, value),
            Role::Labels => Err(not_a_number(key, value.get())),
            Role::Lagged(place) => {
                self.builder.lagged(place, key, read_value(self.schema, key, value)?)
            }
            Role::Time(part) => {
                let text = read_string(value)?;
                let text = text.as_deref().unwrap_or(value.get()).trim();
                let cell = match value.get() {
                    "null" => Cell::Missing,
                    _ => self.schema.cell(text).unwrap_or(Cell::Text(text)),
                };
                self.builder.time(part, key, cell)
            }
            Role::Id => self.take_id(value),
            Role::Other => self.schema.check_other(key),
        }
    }

    fn take_list(&mut self, value: &RawValue) -> Result<(), BadRow> {
        let expected = self.schema.inputs();
        let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(not_an_object)?;
        let read = |(position, value)| read_value(self.schema, &format!("x[{position}]"), value);
        let numbers = values.iter().copied().take(expected).enumerate().map(read);
        let numbers = numbers.collect::<Result<_, _>>()?;
        if values.len() != expected {
            return Err(BadRow::WrongLength { expected, found: values.len() });
        }
        self.builder.inputs(numbers)
    }

    fn take_labels(&mut self, key: &str, value: &RawValue) -> Result<(), BadRow> {
        let (expected, column) = (self.schema.targets(), key.to_owned());
        let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(not_an_object)?;
        if values.len() != expected {
            return Err(BadRow::WrongLabels { column, expected, found: values.len() });
        }
        let read =
            |(position, value)| read_value(self.schema, &format!("{key}[{position}]"), value);
        let labels = values.iter().copied().enumerate().map(read).collect::<Result<_, _>>()?;
        self.builder.all_labels(key, Some(labels))
    }

    fn take_id(&mut self, value: &RawValue) -> Result<(), BadRow> {
        let text = value.get();
        if text == "null" {
            return Ok(());
        }
        let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_whole {
            return self.builder.id(Cow::Borrowed(text));
        }
        match serde_json::from_str::<String>(text) {
            Ok(id) => self.builder.id(Cow::Owned(id)),
            Err(_) => Err(BadRow::BadId { value: excerpt(text) }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with columns")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
            if let Err(bad) = self.take(&key, value) {
                *self.bad = Some(bad);
                return Err(A::Error::custom("a bad column"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hedgerow::PlanConfig;
    use proptest::prelude::*;

    use hedgerow_data::schema::TableSchema;

    use super::super::sample::{MAX_ID, Others};
    use super::*;

    fn schema(columns: &[&str], target: &str, others: Others) -> Schema {
        let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        Schema::named(2, &names, &[target], others)
    }

    fn weather() -> Schema {
        schema(&["temperature", "wind"], "load", Others::Refuse)
    }

    fn read(text: &str) -> Result<Sample, BadRow> {
        weather().read_object(text.as_bytes())
    }

    fn sample(id: Option<&str>, x: Option<[f32; 2]>, y: Option<f32>) -> Sample {
        let y = y.map(|y| vec![y]);
        Sample { id: id.map(str::to_owned), x: x.map(Vec::from), y, ..Sample::default() }
    }

    #[test]
    fn columns_come_by_name_or_in_a_list_and_with_or_without_labels_and_ids() {
        let x = Some([21.5, 3.0]);
        for (text, expected) in [
            (r#"{"temperature": 21.5, "wind": 3, "load": 7}"#, sample(None, x, Some(7.0))),
            (r#"{"load": 7.0, "wind": 3e0, "temperature": 215e-1}"#, sample(None, x, Some(7.0))),
            (r#"{"x": [21.5, 3], "y": -7}"#, sample(None, x, Some(-7.0))),
            (r#"{"x": [21.5, 3], "load": 7}"#, sample(None, x, Some(7.0))),
            (r#"{"x": [21.5, 3]}"#, sample(None, x, None)),
            (r#"{"x": [21.5, 3], "y": null}"#, sample(None, x, None)),
            (r#"{"id": "a1", "x": [21.5, 3]}"#, sample(Some("a1"), x, None)),
            (r#"{"id": 17, "x": [21.5, 3]}"#, sample(Some("17"), x, None)),
            (r#"{"id": "a\u00e4", "y": 3.25}"#, sample(Some("aä"), None, Some(3.25))),
            (r#"{"id": null, "x": [21.5, 3]}"#, sample(None, x, None)),
        ] {
            assert_eq!(read(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_not_a_number() {
        for text in [r#"{"temperature": null, "wind": 3}"#, r#"{"wind": 3}"#, r#"{"x": [null, 3]}"#]
        {
            let x = read(text).unwrap().x.unwrap();
            assert!(x[0].is_nan() && x[1] == 3.0, "{text}");
        }
        assert!(read(r#"{"wind": null}"#).unwrap().x.unwrap().iter().all(|x| x.is_nan()));
        // What isn't named at all may have been forgotten.
        for (text, absent) in [
            (r#"{"temperature": null, "wind": 3}"#, &[][..]),
            (r#"{"wind": 3}"#, &[0]),
            (r#"{"temperature": null, "load": 3}"#, &[1]),
            (r#"{"x": [null, 3]}"#, &[]),
            (r#"{"id": "a", "load": 3}"#, &[]),
        ] {
            assert_eq!(read(text).unwrap().absent, absent, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_column_and_value() {
        for (text, parts) in [
            (r#"{"temperature": "warm"}"#, &["\"temperature\"", "\"warm\" is not a number"][..]),
            (r#"{"temperature": true}"#, &["temperature", "true is not a number"]),
            (r#"{"temperature": [1]}"#, &["temperature", "[1] is not a number"]),
            (r#"{"load": {"a": 1}, "wind": 1}"#, &["load", "is not a number"]),
            (r#"{"x": 4}"#, &["\"x\"", "4 is not a number"]),
            (r#"{"x": [1, "2"]}"#, &["x[1]", "\"2\" is not a number"]),
            (r#"{"wind": 1e39}"#, &["wind", "1e39 is larger than 3.4028235e38"]),
            (r#"{"wind": -1e400}"#, &["wind", "-1e400 is larger than"]),
            (
                r#"{"wnid": 3}"#,
                &["no column \"wnid\"", "temperature, wind, and the label load", "samples.others"],
            ),
            (r#"{"wind": 3, "wind": 4}"#, &["\"wind\" comes twice"]),
            (r#"{"wind": 3, "x": [1, 2]}"#, &["\"x\" comes twice"]),
            (r#"{"x": [1, 2], "wind": 3}"#, &["\"wind\" comes twice"]),
            (r#"{"x": [1, 2], "y": 3, "load": 3}"#, &["\"load\" comes twice"]),
            (r#"{"id": "a", "id": "b", "y": 3}"#, &["\"id\" comes twice"]),
            (r#"{"x": [1]}"#, &["x has 1 number,", "has 2"]),
            (r#"{"x": [1, 2, 3, 4]}"#, &["x has 4 numbers", "has 2"]),
            (r#"{"id": "", "y": 1}"#, &["id must be"]),
            (r#"{"id": 1.5, "y": 1}"#, &["id must be", "1.5"]),
            ("{}", &["neither inputs nor a label"]),
            (r#"{"id": "a"}"#, &["neither inputs nor a label"]),
            (r#"{"load": 3}"#, &["needs the id"]),
            ("[1, 2]", &["no JSON object"]),
            ("{\"wind\": 3", &["no JSON object", "EOF", "at byte 10"]),
            ("{\"wind\": 3} x", &["no JSON object", "trailing"]),
            ("{\"wind\": NaN}", &["no JSON object"]),
            ("", &["no JSON object"]),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text} gives {error:?}");
        }
        assert!(!read("{]").unwrap_err().to_string().contains("line"));
        assert!(read("{\n]").unwrap_err().to_string().ends_with("at line 2 column 1"));
        let id = format!(r#"{{"id": "{}", "y": 1}}"#, "i".repeat(MAX_ID + 1));
        assert_eq!(read(&id).unwrap_err().field(), Some("id"));
        assert!(read(&id).unwrap_err().to_string().len() < 200);
        assert!(weather().read_object(b"{\"wind\": \"\xff\"}").is_err());
        let deep = format!("{{\"wind\": {}", "[".repeat(100_000));
        assert!(read(&deep).is_err());
    }

    #[test]
    fn other_columns_can_be_passed_over() {
        let schema = schema(&["temperature", "wind"], "load", Others::Ignore);
        let read =
            schema.read_object(br#"{"at": "noon", "deep": [[{}]], "wind": 2, "temperature": 1}"#);
        assert_eq!(read, Ok(sample(None, Some([1.0, 2.0]), None)));
    }

    fn schema_of(config: PlanConfig) -> Schema {
        let columns = ["temperature", "wind"].map(String::from).to_vec();
        let plan = hedgerow::Plan::new(config.inputs(2).columns(columns)).unwrap();
        Schema::new(&plan, &TableSchema::of_plan(plan.config()).unwrap(), Others::Refuse, &[])
    }

    #[test]
    fn classes_come_by_name() {
        let classes = ["no", "true", "3"].map(String::from).to_vec();
        let schema = schema_of(PlanConfig::default().target("state".into()).classes(classes));
        let read = |label: &str| {
            let text = format!(r#"{{"x": [1, 2], "state": {label}}}"#);
            schema.read_object(text.as_bytes()).map(|sample| sample.y)
        };
        assert_eq!(read("\"no\""), Ok(Some(vec![1.0, -1.0, -1.0])));
        assert_eq!(read("true"), Ok(Some(vec![-1.0, 1.0, -1.0])));
        assert_eq!(read("3.0"), Ok(Some(vec![-1.0, -1.0, 1.0])));
        assert_eq!(read("null"), Ok(None));
        assert_eq!(read("\"NA\""), Ok(None));
        let bad = read("\"maybe\"").unwrap_err();
        assert_eq!(bad.field(), Some("state"));
        let message = bad.to_string();
        assert!(
            message.contains("\"maybe\" is none of the classes no, true, 3")
                && message.contains("learning.classes"),
            "{message}"
        );
        assert!(schema.read_object(br#"{"x": [1, 2], "state": 3, "y": 3}"#).is_err());
    }

    #[test]
    fn several_labels_come_by_name_or_in_a_list() {
        let schema = schema_of(PlanConfig::default().target("load,cost".into()).outputs(2));
        let read = |text: &str| schema.read_object(text.as_bytes()).map(|sample| sample.y);
        for text in [
            r#"{"x": [1, 2], "cost": 4, "load": 3}"#,
            r#"{"x": [1, 2], "y": [3, 4]}"#,
            r#"{"temperature": 1, "wind": 2, "load": 3, "cost": 4}"#,
        ] {
            assert_eq!(read(text), Ok(Some(vec![3.0, 4.0])), "{text}");
        }
        for text in [r#"{"x": [1, 2], "y": null}"#, r#"{"x": [1, 2], "load": null}"#] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
        for (text, part) in [
            (r#"{"x": [1, 2], "load": 3}"#, "all or none"),
            (r#"{"x": [1, 2], "load": 3, "cost": null}"#, "load, but this federation has"),
            (r#"{"x": [1, 2], "y": [3]}"#, "y has 1 label,"),
            (r#"{"x": [1, 2], "y": 3}"#, "3 is not a number"),
            (r#"{"x": [1, 2], "y": [3, 4], "load": 3}"#, "comes twice"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn the_federation_s_own_names_go_first() {
        let schema = schema(&["x", "id"], "y", Others::Refuse);
        assert_eq!(
            schema.read_object(br#"{"x": 1, "id": 2, "y": 3}"#),
            Ok(sample(None, Some([1.0, 2.0]), Some(3.0)))
        );
        assert_eq!(
            schema.read_object(br#"{"x": [1, 2]}"#),
            Ok(sample(None, Some([1.0, 2.0]), None))
        );
    }

    #[test]
    fn samples_without_names_come_in_lists() {
        let schema = schema(&[], "", Others::Refuse);
        assert_eq!(
            schema.read_object(br#"{"x": [1, 2], "y": 3}"#),
            Ok(sample(None, Some([1.0, 2.0]), Some(3.0)))
        );
        assert!(schema.read_object(br#"{"wind": 2}"#).is_err());
    }

    proptest! {
        #[test]
        fn spoilt_objects_are_samples_or_refused(
            at in 0usize..100, with in prop::collection::vec(any::<u8>(), 0..4), cut in 0usize..6,
        ) {
            let mut text = br#"{"id": "a1", "temperature": 21.5, "wind": null, "load": -3e-2, "x": [1, 2]}"#.to_vec();
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, with);
            if let Ok(sample) = weather().read_object(&text) {
                prop_assert!(sample.x.is_some() || (sample.id.is_some() && sample.y.is_some()));
                prop_assert!(sample.x.is_none_or(|x| x.len() == 2 && x.iter().all(|x| !x.is_infinite())));
                prop_assert!(sample.y.is_none_or(|y| y.iter().all(|y| y.is_finite())));
            }
        }

        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..80)) {
            _ = weather().read_object(&text);
        }
    }
}

//! [`Rows`]: lines become samples. Lines are JSON objects, or rows of a table with a header in the
//! dialect of `hedgerow-data`.

use std::borrow::Cow;

use hedgerow_data::csv::LineReader;
use hedgerow_data::rows::{BadNumber, Cell};
use hedgerow_data::text::{excerpt, shortened};
use hedgerow_data::timestamp;

use super::lines::Line;
use super::sample::{BadRow, Builder, Role, Sample, Schema, not_a_number, to_f32};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Found from the first line: an object, or a header.
    Auto,
    /// One JSON object per line.
    Json,
    /// A header, then one row per line.
    Csv,
}

/// Reads lines.
#[derive(Debug)]
pub struct Rows {
    format: Format,
    header: Option<Header>,
    /// Whether the first line was no usable header: the rows below can't be read.
    has_bad_header: bool,
}

#[derive(Debug)]
struct Header {
    text: Vec<u8>,
    lines: LineReader,
    names: Vec<String>,
    roles: Vec<Role>,
}

impl Rows {
    /// A reader that has seen nothing.
    pub fn new(format: Format) -> Self {
        Self { format, header: None, has_bad_header: false }
    }

    /// A reader that continues under an earlier header.
    pub fn under(header: &[u8], schema: &Schema) -> Result<Self, BadRow> {
        let header = Some(Header::read(header, schema)?);
        Ok(Self { format: Format::Csv, header, has_bad_header: false })
    }

    /// The header that rows stand under.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_ref().map(|header| &header.text[..])
    }

    /// Whether no header has told what the cells of rows are, though there should have been one.
    pub fn has_bad_header(&self) -> bool {
        self.has_bad_header
    }

    /// Whether rows stand under a header that names no label.
    pub fn has_no_labels(&self) -> bool {
        let has_label = |header: &Header| header.roles.iter().any(is_label);
        self.header.as_ref().is_some_and(|header| !has_label(header))
    }

    /// What a line says, if it says something. The first line of a file may be a header.
    pub fn read(
        &mut self,
        schema: &Schema,
        line: &Line,
        is_first: bool,
    ) -> Result<Option<Sample>, BadRow> {
        let text = line.text.as_deref().ok_or(BadRow::TooLong)?;
        let text = if is_first { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        if self.format == Format::Auto {
            self.format = if text.starts_with(b"{") { Format::Json } else { Format::Csv };
        }
        if self.format == Format::Json {
            return schema.read_object(text).map(Some);
        }
        if self.has_bad_header && !is_first {
            return Err(BadRow::NoHeader);
        }
        // A file that was cut short may go on without a header.
        if self.header.is_none() || (is_first && !is_data(text, schema)) {
            // Until a header is read.
            self.has_bad_header = true;
            // Where inputs have no names, numbers would do for names.
            let may_be_header = is_first && schema.has_names();
            if self.header.is_none() && !may_be_header && is_data(text, schema) {
                return Err(BadRow::NoHeader);
            }
            self.header = Some(Header::read(text, schema)?);
            self.has_bad_header = false;
            return Ok(None);
        }
        self.header.as_mut().ok_or(BadRow::NoHeader)?.sample(text, schema).map(Some)
    }
}

impl Header {
    fn read(text: &[u8], schema: &Schema) -> Result<Self, BadRow> {
        let not_text = |_| BadRow::NotText { column: excerpt(&String::from_utf8_lossy(text)) };
        let header = std::str::from_utf8(text).map_err(not_text)?;
        let lines = LineReader::under_header(header, schema.missing());
        let names = lines.fields(header).map(|name| name.map(Cow::into_owned));
        let names: Vec<String> = names.collect::<Result<_, _>>()?;
        let mut roles: Vec<Role> = names.iter().map(|name| schema.role(name)).collect();
        let mut inputs = 0;
        let mut is_named = vec![false; schema.inputs()];
        for (position, name) in names.iter().enumerate() {
            if names[..position].contains(name) {
                return Err(BadRow::Twice { column: excerpt(name) });
            }
            // Without names, every column without another role is an input.
            if !schema.has_names() && matches!(roles[position], Role::Other | Role::Inputs) {
                roles[position] = Role::Input(inputs);
            }
            match roles[position] {
                Role::Input(input) => {
                    inputs += 1;
                    // Without names there may be too many.
                    is_named.get_mut(input).into_iter().for_each(|named| *named = true);
                }
                Role::Category => {
                    inputs += 1;
                    let positions = schema.category(name).into_iter().flatten();
                    positions.for_each(|(_, position)| is_named[*position] = true);
                }
                Role::Other | Role::Inputs => schema.check_other(name)?,
                Role::Label(_) | Role::Labels | Role::Id | Role::Time(_) | Role::Lagged(_) => {}
            }
        }
        let has_more = |(_, role): (&String, Role)| roles.contains(&role);
        let is_row = inputs > 0
            || schema.more_columns().any(has_more)
            || (schema.inputs() == 0 && !roles.contains(&Role::Id) && roles.iter().any(is_label));
        if !schema.has_names() && inputs != schema.inputs() {
            return Err(BadRow::WrongInputs { expected: schema.inputs(), found: inputs });
        }
        let shown = || format!("{:?}", shortened(header, 120));
        // Labels that come later have no inputs beside them.
        let is_late_label = roles.contains(&Role::Id) && roles.iter().any(is_label);
        if !is_row && !is_late_label {
            return Err(BadRow::NoInputs { header: shown(), known: schema.known().to_owned() });
        }
        let missing = is_named.iter().enumerate().filter(|(_, is_named)| !**is_named);
        let missing: Vec<String> = missing
            .filter_map(|(input, _)| schema.column(input))
            .chain(schema.more_columns().filter(|more| !has_more(*more)).map(|(name, _)| &name[..]))
            .map(|name| format!("{name:?}"))
            .collect();
        if is_row && !missing.is_empty() {
            let missing = shortened(&missing.join(", "), 200);
            return Err(BadRow::MissingColumns { missing, header: shown() });
        }
        Ok(Self { text: text.to_vec(), lines, names, roles })
    }

    fn sample(&mut self, text: &[u8], schema: &Schema) -> Result<Sample, BadRow> {
        let text = std::str::from_utf8(text).map_err(|error| self.not_text(text, error))?;
        self.lines.find_decimal(text);
        let cells: Vec<Cow<'_, str>> = self.lines.fields(text).collect::<Result<_, _>>()?;
        let (expected, found) = (self.roles.len(), cells.len());
        if found != expected {
            return Err(BadRow::WrongCells { expected, found });
        }
        let position_of = |role| self.roles.iter().position(|other| *other == role);
        let id = position_of(Role::Id).map(|position| &cells[position]);
        let id = id.filter(|id| !id.is_empty());
        let mut builder = Builder::new(schema);
        if let Some(id) = id {
            builder.id(Cow::Borrowed(id))?;
        }
        let is_input = |role: &Role| {
            matches!(role, Role::Input(_) | Role::Category | Role::Time(_) | Role::Lagged(_))
        };
        let mut filled = (0..expected).filter(|position| is_input(&self.roles[*position]));
        // The row of a label that comes later has nothing but its id and itself.
        let is_label_alone = id.is_some() && filled.all(|position| cells[position].is_empty());
        for (position, role) in self.roles.iter().enumerate() {
            let name = &self.names[position];
            match *role {
                Role::Input(input) if !is_label_alone => {
                    builder.input(input, name, read_cell(&self.lines, name, &cells[position])?)?;
                }
                Role::Category if !is_label_alone => {
                    let text = read_text(&self.lines, name, &cells[position])?;
                    builder.category(name, text)?;
                }
                Role::Time(part) if !is_label_alone => {
                    let text = &cells[position];
                    let cell = self.lines.cell(text).unwrap_or(Cell::Text(text));
                    builder.time(part, name, cell)?;
                }
                Role::Lagged(place) if !is_label_alone => {
                    let value = read_cell(&self.lines, name, &cells[position])?;
                    builder.lagged(place, name, value)?;
                }
                Role::Label(_) if schema.has_classes() => {
                    let class = read_class(&self.lines, &cells[position]);
                    let labels = class.map(|class| schema.class(name, &class)).transpose()?;
                    builder.all_labels(name, labels)?;
                }
                Role::Label(target) => {
                    builder.label(target, name, read_cell(&self.lines, name, &cells[position])?)?;
                }
                _ => {}
            }
        }
        builder.finish()
    }

    /// The column in which a row stops being UTF-8.
    fn not_text(&self, text: &[u8], error: std::str::Utf8Error) -> BadRow {
        let readable = String::from_utf8_lossy(&text[..error.valid_up_to()]);
        let position = self.lines.fields(&readable).count().saturating_sub(1);
        let column = self.names.get(position).map_or_else(String::new, |name| excerpt(name));
        BadRow::NotText { column }
    }
}

fn is_label(role: &Role) -> bool {
    matches!(role, Role::Label(_))
}

/// The name of the class in a cell; none if it is missing.
fn read_class(lines: &LineReader, text: &str) -> Option<String> {
    match lines.cell(text) {
        Ok(Cell::Missing) => None,
        Ok(Cell::Number(number)) => Some(number.to_string()),
        Ok(Cell::Text(_)) | Err(_) => Some(text.trim().to_owned()),
    }
}

/// Whether every cell is a number, a time or missing, so that the row is no header.
fn is_data(text: &[u8], schema: &Schema) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut lines = LineReader::under_header(text, schema.missing());
    lines.find_decimal(text);
    let is_time = |text: &str| schema.times() > 0 && timestamp::parse(text).is_some();
    lines.fields(text).all(|field| {
        field.is_ok_and(|field| read_cell(&lines, "", &field).is_ok() || is_time(&field))
    })
}

/// The text in a cell of a column of text; none if it is missing.
fn read_text(lines: &LineReader, column: &str, text: &str) -> Result<Option<String>, BadRow> {
    let cell = lines.cell(text).map_err(|_| not_a_number(column, &format!("{text:?}")))?;
    Ok(cell.into_text())
}

/// The number in a cell; NaN if it is missing.
fn read_cell(lines: &LineReader, column: &str, text: &str) -> Result<f32, BadRow> {
    match lines.cell(text) {
        Ok(Cell::Missing) => Ok(f32::NAN),
        Ok(Cell::Number(number)) => to_f32(column, text, number),
        Err(BadNumber::TooLarge) => to_f32(column, text, f64::INFINITY),
        Ok(Cell::Text(_)) | Err(BadNumber::NotFinite) => {
            Err(not_a_number(column, &format!("{text:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use hedgerow_data::csv::BadQuotes;

    use hedgerow_data::schema::TableSchema;

    use super::super::sample::Others;
    use super::*;

    fn schema(columns: &[&str], target: &str, others: Others) -> Schema {
        let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        Schema::named(2, &names, &[target], others)
    }

    fn weather() -> Schema {
        schema(&["temperature", "wind"], "load", Others::Refuse)
    }

    fn read(
        rows: &mut Rows,
        schema: &Schema,
        number: u64,
        text: &[u8],
    ) -> Result<Option<Sample>, BadRow> {
        rows.read(schema, &Line { number, text: Some(text.to_vec()) }, number == 1)
    }

    fn read_all(
        schema: &Schema,
        format: Format,
        text: &str,
    ) -> Vec<Result<Option<Sample>, BadRow>> {
        let mut rows = Rows::new(format);
        let lines = text.lines().zip(1..);
        lines.map(|(line, number)| read(&mut rows, schema, number, line.as_bytes())).collect()
    }

    fn sample(
        id: Option<&str>,
        x: Option<[f32; 2]>,
        y: Option<f32>,
    ) -> Result<Option<Sample>, BadRow> {
        let y = y.map(|y| vec![y]);
        Ok(Some(Sample { id: id.map(str::to_owned), x: x.map(Vec::from), y, ..Sample::default() }))
    }

    #[test]
    fn the_first_line_tells_the_format() {
        let json = read_all(&weather(), Format::Auto, "\n{\"x\": [1, 2], \"y\": 3}\nload,wind\n");
        assert_eq!((&json[0], &json[1]), (&Ok(None), &sample(None, Some([1.0, 2.0]), Some(3.0))));
        assert!(matches!(json[2], Err(BadRow::NotAnObject(_))));
        let csv = read_all(
            &weather(),
            Format::Auto,
            "\u{feff}load,wind,temperature\n3,2,1\n{\"wind\": 3}\n",
        );
        assert_eq!((&csv[0], &csv[1]), (&Ok(None), &sample(None, Some([1.0, 2.0]), Some(3.0))));
        assert_eq!(csv[2], Err(BadRow::BadQuotes(BadQuotes)));
    }

    #[test]
    fn rows_have_ids_quotes_blanks_and_other_separators() {
        let text = "\"id\" ; temperature;wind;load\na1;1;2;\na1;;;3.5\n\"b\";1;2;\" 4 \"\n;1;2;5\n";
        let rows = read_all(&weather(), Format::Csv, text);
        let x = Some([1.0, 2.0]);
        let expected = [
            Ok(None),
            sample(Some("a1"), x, None),
            sample(Some("a1"), None, Some(3.5)),
            sample(Some("b"), x, Some(4.0)),
            sample(None, x, Some(5.0)),
        ];
        assert_eq!(rows, expected);
        let commas = "temperature;wind;load\n1;2,5;3\n";
        let x = Some([1.0, 2.5]);
        assert_eq!(read_all(&weather(), Format::Csv, commas)[1], sample(None, x, Some(3.0)));
        assert_eq!(
            read_all(&weather(), Format::Csv, "id\tload\na1\t3\n")[1],
            sample(Some("a1"), None, Some(3.0))
        );
    }

    #[test]
    fn what_is_missing_is_not_a_number() {
        for row in [",2,3", "NA,2,3", "?,2,3", " NaN ,2,3"] {
            let rows = read_all(&weather(), Format::Csv, &format!("temperature,wind,load\n{row}"));
            let x = rows[1].as_ref().unwrap().as_ref().unwrap().x.as_ref().unwrap();
            assert!(x[0].is_nan() && x[1] == 2.0, "{row}");
        }
    }

    #[test]
    fn texts_are_inputs_and_markers_are_missing() {
        let columns = ["temperature", "sky=clear", "sky=rain", "sky=1"].map(String::from);
        let plan = hedgerow::PlanConfig::default()
            .inputs(4)
            .columns(columns.to_vec())
            .target("y".to_owned());
        let plan = hedgerow::Plan::new(plan).unwrap();
        let schema = Schema::new(
            &plan,
            &TableSchema::of_plan(plan.config()).unwrap(),
            Others::Refuse,
            &["-99".to_owned(), "gone".to_owned()],
        );
        let text = "temperature;sky;y\n2,5;rain;3\n-99; clear ;gone\n1;fog;3\n1;;3\n1;1;3\n";
        let rows = read_all(&schema, Format::Csv, text);
        let x = |row: usize| rows[row].as_ref().unwrap().as_ref().unwrap().x.clone().unwrap();
        assert_eq!(x(1), [2.5, 0.0, 1.0, 0.0]);
        assert!(x(2)[0].is_nan() && x(2)[1..] == [1.0, 0.0, 0.0]);
        assert_eq!(rows[2].as_ref().unwrap().as_ref().unwrap().y, None);
        assert_eq!((x(3), x(4)), (vec![1.0, 0.0, 0.0, 0.0], vec![1.0, 0.0, 0.0, 0.0]));
        assert_eq!(rows[3].as_ref().unwrap().as_ref().unwrap().unseen, ["fog"]);
        assert!(rows[4].as_ref().unwrap().as_ref().unwrap().unseen.is_empty());
        assert_eq!(x(5), [1.0, 0.0, 0.0, 1.0], "a number is a text as well");
        let object = |text: &str| schema.read_object(text.as_bytes());
        let found = object(r#"{"sky": "rain", "temperature": "gone", "y": -99}"#).unwrap();
        let (found, y) = (found.x.unwrap(), found.y);
        assert!(found[0].is_nan() && found[1..] == [0.0, 1.0, 0.0] && y.is_none());
        assert_eq!(object(r#"{"sky": 1, "temperature": 2}"#).unwrap().x.unwrap()[3], 1.0);
        assert_eq!(object(r#"{"sky": "fog", "temperature": 2}"#).unwrap().unseen, ["fog"]);
        assert!(object(r#"{"sky": null, "temperature": 2}"#).unwrap().unseen.is_empty());
        let inputs = |text: &str| object(text).unwrap().x;
        let absent = inputs(r#"{"temperature": 2}"#);
        assert_eq!(absent, inputs(r#"{"sky": null, "temperature": 2}"#));
        assert!(object(r#"{"sky": ["rain"], "temperature": 2}"#).is_err());
        // The inputs by their own names, and a column that is not there.
        let names = "temperature,sky=clear,sky=rain,sky=1,y\n1,0,1,0,2\n";
        assert_eq!(
            read_all(&schema, Format::Csv, names)[1].as_ref().unwrap().as_ref().unwrap().x,
            Some(vec![1.0, 0.0, 1.0, 0.0])
        );
        let error = read_all(&schema, Format::Csv, "temperature,y\n")[0].clone().unwrap_err();
        assert!(error.to_string().contains("sky=clear"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_and_the_next_row_is_read() {
        let text = "temperature,wind,load\n1,strong,3\n1,2\n1,inf,3\n1,1e99,3\n1,2,3\n";
        let rows = read_all(&weather(), Format::Csv, text);
        let errors: Vec<String> =
            rows[1..5].iter().map(|row| row.as_ref().unwrap_err().to_string()).collect();
        assert_eq!(errors[0], "column \"wind\": \"strong\" is not a number");
        assert_eq!(errors[1], "there are 2 cells, but the header has 3");
        assert_eq!(errors[2], "column \"wind\": \"inf\" is not a number");
        assert!(errors[3].starts_with("column \"wind\": 1e99 is larger than"), "{}", errors[3]);
        assert_eq!(rows[5], sample(None, Some([1.0, 2.0]), Some(3.0)));
        let mut rows = Rows::new(Format::Csv);
        assert_eq!(
            rows.read(&weather(), &Line { number: 1, text: None }, true),
            Err(BadRow::TooLong)
        );
        read(&mut rows, &weather(), 2, b"wind,temperature,load").unwrap();
        assert!(
            matches!(read(&mut rows, &weather(), 3, b"1,2,\xff"), Err(BadRow::NotText { column }) if column == "load")
        );
    }

    #[test]
    fn headers_must_make_sense() {
        for (header, part) in [
            ("temperature,wnid,load", "no column \"wnid\""),
            ("wind,wind,load", "\"wind\" comes twice"),
            ("load", "names no input"),
            ("id", "names no input"),
            ("load,wind", "no column \"temperature\"; the header has \"load,wind\""),
            ("temperature,id,load", "no column \"wind\""),
        ] {
            let rows = read_all(&weather(), Format::Csv, &format!("{header}\n1,2,3"));
            let error = rows[0].as_ref().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(rows[1], Err(BadRow::NoHeader));
        }
        let three = Schema::named(3, &["a", "b", "c"].map(String::from), &["y"], Others::Refuse);
        let error = read_all(&three, Format::Csv, "b,y\n1,2")[0].clone().unwrap_err();
        assert_eq!(error.to_string(), "no column \"a\", \"c\"; the header has \"b,y\"");
        let nameless = schema(&[], "", Others::Refuse);
        assert_eq!(
            read_all(&nameless, Format::Csv, "1,2\n3,4"),
            [Err(BadRow::NoHeader), Err(BadRow::NoHeader)]
        );
        assert_eq!(
            read_all(&nameless, Format::Csv, "a,y,b\n1,3,2")[1],
            sample(None, Some([1.0, 2.0]), Some(3.0))
        );
        let error = read_all(&nameless, Format::Csv, "a,b,c,y")[0].clone().unwrap_err();
        assert_eq!(error, BadRow::WrongInputs { expected: 2, found: 3 });
        let ignoring = schema(&["temperature", "wind"], "load", Others::Ignore);
        let rows = read_all(&ignoring, Format::Csv, "at,temperature,wind,load\nnoon,1,2,3");
        assert_eq!(rows[1], sample(None, Some([1.0, 2.0]), Some(3.0)));
    }

    #[test]
    fn later_files_have_headers_of_their_own_or_go_on() {
        let schema = weather();
        let mut rows = Rows::new(Format::Auto);
        read(&mut rows, &schema, 1, b"temperature,wind,load").unwrap();
        read(&mut rows, &schema, 2, b"1,2,3").unwrap();
        // A new file, in another order.
        assert_eq!(read(&mut rows, &schema, 1, b"wind,temperature,load"), Ok(None));
        assert_eq!(
            read(&mut rows, &schema, 2, b"2,1,3"),
            sample(None, Some([1.0, 2.0]), Some(3.0))
        );
        // One without a header.
        assert_eq!(
            read(&mut rows, &schema, 1, b"2,1,3"),
            sample(None, Some([1.0, 2.0]), Some(3.0))
        );
        // A restart.
        let header = rows.header().unwrap().to_vec();
        let mut rows = Rows::under(&header, &schema).unwrap();
        assert_eq!(
            read(&mut rows, &schema, 9, b"2,1,3"),
            sample(None, Some([1.0, 2.0]), Some(3.0))
        );
        assert!(Rows::under(b"a,b", &schema).is_err());
        // One whose rows are only asked about.
        assert!(!rows.has_no_labels() && !Rows::new(Format::Csv).has_no_labels());
        assert!(Rows::under(b"wind,temperature", &schema).unwrap().has_no_labels());
    }

    proptest! {
        #[test]
        fn spoilt_rows_are_samples_or_refused(
            at in 0usize..60, with in prop::collection::vec(any::<u8>(), 0..4), cut in 0usize..6,
        ) {
            let mut text = b"id,temperature,\"wind\",load\na1,2.5,NA,\na1,,,4\n,1,\"2\",3".to_vec();
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, with);
            let (schema, mut rows) = (weather(), Rows::new(Format::Auto));
            for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
                if let Ok(Some(sample)) = read(&mut rows, &schema, number, line) {
                    prop_assert!(sample.x.is_some() || (sample.id.is_some() && sample.y.is_some()));
                    prop_assert!(sample.x.is_none_or(|x| x.len() == 2 && x.iter().all(|x| !x.is_infinite())));
                }
            }
        }
    }
}

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
            let role = roles[position];
            let named: Vec<usize> = match role {
                Role::Input(input) => vec![input],
                Role::Category => {
                    schema.category(name).into_iter().flatten().map(|it| *it.1).collect()
                }
                // A cell is one number.
                Role::Other | Role::Inputs | Role::Labels => {
                    schema.check_other(name)?;
                    continue;
                }
                // `y` beside the label's own name.
                Role::Label(_) if roles[..position].contains(&role) => {
                    return Err(BadRow::Twice { column: excerpt(name) });
                }
                Role::Label(_) | Role::Id | Role::Time(_) | Role::Lagged(_) => continue,
            };
            inputs += 1;
            for input in named {
                // Without names there may be too many.
                let Some(is_named) = is_named.get_mut(input) else { continue };
                // A column of text beside one of its own inputs.
                if std::mem::replace(is_named, true) {
                    return Err(BadRow::Twice { column: excerpt(name) });
                }
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
mod tests;

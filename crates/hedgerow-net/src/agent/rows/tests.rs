use proptest::prelude::*;

use hedgerow_data::csv::BadQuotes;

use hedgerow_data::schema::TableSchema;

use super::*;
use crate::agent::sample::Others;

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

fn read_all(schema: &Schema, format: Format, text: &str) -> Vec<Result<Option<Sample>, BadRow>> {
    let mut rows = Rows::new(format);
    let lines = text.lines().zip(1..);
    lines.map(|(line, number)| read(&mut rows, schema, number, line.as_bytes())).collect()
}

fn sample(id: Option<&str>, x: Option<[f32; 2]>, y: Option<f32>) -> Result<Option<Sample>, BadRow> {
    let y = y.map(|y| vec![y]);
    Ok(Some(Sample { id: id.map(str::to_owned), x: x.map(Vec::from), y, ..Sample::default() }))
}

#[test]
fn the_first_line_tells_the_format() {
    let json = read_all(&weather(), Format::Auto, "\n{\"x\": [1, 2], \"y\": 3}\nload,wind\n");
    assert_eq!((&json[0], &json[1]), (&Ok(None), &sample(None, Some([1.0, 2.0]), Some(3.0))));
    assert!(matches!(json[2], Err(BadRow::NotAnObject(_))));
    let csv =
        read_all(&weather(), Format::Auto, "\u{feff}load,wind,temperature\n3,2,1\n{\"wind\": 3}\n");
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
    let plan =
        hedgerow::PlanConfig::default().inputs(4).columns(columns.to_vec()).target("y".to_owned());
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
    assert_eq!(errors[1], "the row has 2 cells, but the header 3");
    assert_eq!(errors[2], "column \"wind\": \"inf\" is not a number");
    assert!(errors[3].starts_with("column \"wind\": 1e99 is larger than"), "{}", errors[3]);
    assert_eq!(rows[5], sample(None, Some([1.0, 2.0]), Some(3.0)));
    let mut rows = Rows::new(Format::Csv);
    assert_eq!(rows.read(&weather(), &Line { number: 1, text: None }, true), Err(BadRow::TooLong));
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
    assert_eq!(read(&mut rows, &schema, 2, b"2,1,3"), sample(None, Some([1.0, 2.0]), Some(3.0)));
    // One without a header.
    assert_eq!(read(&mut rows, &schema, 1, b"2,1,3"), sample(None, Some([1.0, 2.0]), Some(3.0)));
    // A restart.
    let header = rows.header().unwrap().to_vec();
    let mut rows = Rows::under(&header, &schema).unwrap();
    assert_eq!(read(&mut rows, &schema, 9, b"2,1,3"), sample(None, Some([1.0, 2.0]), Some(3.0)));
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

/// A number, a text with its own kinds, and a label. One of the texts has a `=` in it.
fn with_sky() -> Schema {
    let columns = ["temperature", "sky=clear", "sky=a=b"].map(String::from);
    let config = hedgerow::PlanConfig::default().inputs(3).columns(columns.to_vec());
    let plan = hedgerow::Plan::new(config.target("load".to_owned())).unwrap();
    let table = TableSchema::of_plan(plan.config()).unwrap();
    Schema::new(&plan, &table, Others::Refuse, &[])
}

fn read_one(schema: &Schema, text: &str) -> Sample {
    read_all(schema, Format::Csv, text).pop().unwrap().unwrap().unwrap()
}

/// Why the header is refused.
fn refused_header(schema: &Schema, header: &str) -> String {
    let mut rows = Rows::new(Format::Csv);
    let error = read(&mut rows, schema, 1, header.as_bytes()).unwrap_err();
    assert!(rows.has_bad_header(), "{header}");
    error.to_string()
}

#[test]
fn columns_come_in_any_order() {
    let schema = with_sky();
    let cells = [("temperature", "2.5"), ("sky", "a=b"), ("load", "7"), ("id", "n1")];
    let mut orders = vec![Vec::new()];
    for _ in cells {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                let rest = (0..cells.len()).filter(|at| !order.contains(at)).collect::<Vec<_>>();
                rest.into_iter().map(move |at| [&order[..], &[at]].concat())
            })
            .collect();
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        let line = |cell: fn((&'static str, &'static str)) -> &'static str| {
            order.iter().map(|at| cell(cells[*at])).collect::<Vec<_>>().join(",")
        };
        let text = format!("{}\n{}\n", line(|cell| cell.0), line(|cell| cell.1));
        let expected = Sample {
            id: Some("n1".to_owned()),
            x: Some(vec![2.5, 0.0, 1.0]),
            y: Some(vec![7.0]),
            ..Sample::default()
        };
        assert_eq!(read_one(&schema, &text), expected, "{text}");
    }
}

#[test]
fn a_header_has_all_inputs_and_what_else_it_needs() {
    let schema = with_sky();
    // Rows without a label are questions; with an id, labels may come alone.
    assert_eq!(read_one(&schema, "sky,temperature\nclear,1\n").y, None);
    let label = read_one(&schema, "load,id\n3,n1\n");
    assert_eq!((label.x, label.y), (None, Some(vec![3.0])));
    for (header, part) in [
        ("temperature,load", "no column \"sky=clear\", \"sky=a=b\"; the header has"),
        ("sky,load", "no column \"temperature\"; the header has \"sky,load\""),
        ("temperature,sky=clear,load", "no column \"sky=a=b\"; the header has"),
        ("load", "names no input"),
        ("id,temperature,load", "no column \"sky=clear\", \"sky=a=b\""),
        ("temperature,sky,load,wind=max", "no column \"wind=max\" (there are temperature, sky,"),
        ("temperature,sky,load,sky=fog", "no column \"sky=fog\" (there are temperature, sky,"),
    ] {
        let said = refused_header(&schema, header);
        assert!(said.contains(part), "{header}: {said}");
    }
}

#[test]
fn a_header_that_says_something_twice_is_one_error() {
    let schema = with_sky();
    for (header, column) in [
        ("temperature,sky,sky=clear,load", "sky=clear"),
        ("temperature,sky=a=b,sky,load", "sky"),
        ("temperature,sky,load,y", "y"),
        ("temperature,sky,load,load", "load"),
    ] {
        let said = refused_header(&schema, header);
        assert_eq!(said, format!("column {column:?} comes twice"), "{header}");
    }
    // A cell is no list of labels.
    let several = Schema::named(1, &["a".to_owned()], &["one", "two"], Others::Refuse);
    assert!(refused_header(&several, "a,y").contains("no column \"y\""));
    assert_eq!(read_one(&several, "two,a,one\n2,0,1\n").y, Some(vec![1.0, 2.0]));
}

#[test]
fn names_with_equals_signs_are_texts_of_columns() {
    let schema = with_sky();
    let x = |text: &str| read_one(&schema, text).x.unwrap();
    assert_eq!(x("temperature,sky\n1,a=b\n"), [1.0, 0.0, 1.0]);
    assert_eq!(x("temperature,sky\n1,clear\n"), [1.0, 1.0, 0.0]);
    // By the names of the inputs themselves.
    assert_eq!(x("sky=a=b,temperature,sky=clear\n0.5,1,0.25\n"), [1.0, 0.25, 0.5]);
    // Neither the first part nor the whole name is a text of the column.
    for text in ["a", "b", "sky=a=b", "=", "sky=clear"] {
        let sample = read_one(&schema, &format!("temperature,sky\n1,{text}\n"));
        assert_eq!(sample.x.unwrap(), [1.0, 0.0, 0.0], "{text}");
        assert_eq!(sample.unseen, [text]);
    }
}

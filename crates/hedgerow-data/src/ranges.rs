//! Known ranges of columns, from a file: a scale that needs no learning.

use std::collections::BTreeMap;
use std::path::Path;

use hedgerow::scaling::{BadScale, Scale};
use serde::Deserialize;

use super::samples::InputColumns;

/// Why ranges can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RangesError {
    /// The file can't be read, and what the system said.
    #[error("can't read {0}: {1}")]
    Unreadable(String, std::io::Error),
    /// The file isn't what it should be.
    #[error(
        "{0} must have a section [ranges] with a line such as temperature = [-30, 50] for each column: {1}"
    )]
    NotRanges(String, String),
    /// A column without a range.
    #[error("{0}: no range for column {1:?}")]
    Missing(String, String),
    /// Data without names to look up.
    #[error("{0}: known ranges are for named columns, and a built-in stream has none")]
    Nameless(String),
    /// A range that is none.
    #[error("{0}, column {1:?}: {2}")]
    Bad(String, String, BadScale),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schema {
    ranges: BTreeMap<String, (f64, f64)>,
}

/// The scale for these columns. Columns of only 0 and 1 need no range.
pub fn read(file: &Path, columns: &InputColumns) -> Result<Scale, RangesError> {
    let place = || file.display().to_string();
    let text =
        std::fs::read_to_string(file).map_err(|error| RangesError::Unreadable(place(), error))?;
    let schema: Schema = toml::from_str(&text)
        .map_err(|error| RangesError::NotRanges(place(), error.message().to_owned()))?;
    if columns.targets.is_empty() {
        return Err(RangesError::Nameless(place()));
    }
    let known = |name: &String| {
        let range = schema.ranges.get(name).copied();
        let range = range.ok_or_else(|| RangesError::Missing(place(), name.clone()))?;
        Scale::from_ranges(&[range])
            .map_err(|error| RangesError::Bad(place(), name.clone(), error))?;
        Ok(range)
    };
    // An input that may come from several columns gets a range that contains all of theirs.
    let range = |names: &Vec<String>| match &names[..] {
        [] => Ok((0.0, 1.0)),
        [first, others @ ..] => others.iter().try_fold(known(first)?, |(min, max), name| {
            let (other_min, other_max) = known(name)?;
            Ok((min.min(other_min), max.max(other_max)))
        }),
    };
    let all = columns.inputs.iter().chain(&columns.labels);
    let ranges = all.map(range).collect::<Result<Vec<_>, _>>()?;
    let bad = |error| RangesError::Bad(place(), columns.targets.join(", "), error);
    Scale::from_ranges(&ranges).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> Result<Scale, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ranges.toml");
        std::fs::write(&file, text).unwrap();
        let inputs = vec![vec!["t".into()], vec![], vec!["y".into()]];
        let targets = vec!["y".into()];
        let labels = vec![targets.clone()];
        read_for(&file, InputColumns { inputs, labels, targets, ..InputColumns::default() })
    }

    fn read_for(file: &Path, columns: InputColumns) -> Result<Scale, String> {
        read(file, &columns)
            .map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
    }

    #[test]
    fn columns_go_to_the_unit_interval() {
        let scale = scale("[ranges]\nt = [-30, 50]\ny = [0.0, 10]\nunused = [1, 2]").unwrap();
        assert_eq!(
            [scale.scale_input(0, 50.0), scale.scale_input(1, 1.0), scale.scale_input(2, 5.0)],
            [1.0, 1.0, 0.5]
        );
        assert_eq!(scale.unscale_label(0.5), 5.0);
    }

    #[test]
    fn several_series_share_a_range_that_holds_them_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[ranges]\na = [0, 10]\nb = [-10, 5]").unwrap();
        let both: Vec<String> = vec!["a".into(), "b".into()];
        let columns = InputColumns {
            inputs: vec![both.clone(), vec!["a".into()]],
            labels: vec![both.clone()],
            targets: both,
            ..InputColumns::default()
        };
        let scale = read_for(file.path(), columns).unwrap();
        assert_eq!([scale.scale_input(0, 0.0), scale.scale_input(1, 0.0)], [0.5, 0.0]);
        assert_eq!(scale.unscale_label(0.0), -10.0);
        let message = read_for(file.path(), InputColumns::default()).unwrap_err();
        assert!(
            message.contains("FILE") && message.contains("built-in stream has none"),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_range_is_refused_by_name() {
        for (text, parts) in [
            ("[ranges]\nt = [-30, 50]", vec!["FILE", "no range", "\"y\""]),
            ("[ranges]\nt = [50, -30]\ny = [0, 1]", vec!["FILE", "\"t\"", "50 to -30"]),
            ("[ranges]\nt = [0, 1]\ny = [1, 1]", vec!["FILE", "\"y\"", "1 to 1"]),
            ("t = [0, 1]", vec!["FILE", "[ranges]"]),
            ("[ranges]\nt = 3", vec!["FILE", "[ranges]"]),
        ] {
            let message = scale(text).unwrap_err();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}

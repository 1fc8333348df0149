//! Data sets by name: their source, their files, how they are read (`catalog.toml`), and where they
//! are on this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use toml::Table;

use super::text::did_you_mean;

/// Folder of the authors' files within a folder of data sets.
const EXCERPT_FOLDER: &str = "authors_csv";
/// Endings of packed and plain files.
const PACKED_ENDINGS: [&str; 3] = ["", ".gz", ".zst"];
/// Most places that a message lists.
const LISTED_PLACES: usize = 6;
/// The similarity, from 0 to 1, from which a name is suggested.
const SUGGESTION_LIKENESS: f64 = 0.7;

static EMBEDDED: LazyLock<Catalog> =
    LazyLock::new(|| Catalog::parse(include_str!("catalog.toml")).unwrap_or_default());

/// The data sets by name, and their licences.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// The licence of UCI's files.
    pub licence_of_originals: String,
    /// The licence of the authors' files.
    pub licence_of_excerpts: String,
    #[serde(rename = "source")]
    sources: Vec<Source>,
    /// The data sets.
    #[serde(rename = "entry")]
    pub entries: Vec<Entry>,
}

/// A data set that goes by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name on the command line.
    pub name: String,
    /// Name in the paper.
    pub title: String,
    /// The prediction task, in one line.
    pub description: String,
    #[serde(rename = "source")]
    source_folder: String,
    /// Where UCI keeps it.
    #[serde(skip)]
    pub source: Source,
    /// The authors' excerpt first, if there is one; never empty.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

/// Where files come from: an archive at UCI, or a page where they can be found by hand.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Folder for its files within a folder of data sets.
    pub folder: String,
    /// UCI's number.
    pub uci: Option<u32>,
    /// Its title there.
    pub title: String,
    /// Path of the archive below UCI's folder of archives.
    #[serde(default)]
    pub archive: String,
    /// Where its files can be found if they aren't at UCI.
    #[serde(default)]
    pub page: String,
    /// Its licence if it isn't that of UCI.
    pub licence: Option<String>,
    /// Whom to cite.
    pub citation: String,
    /// The files to take out of it.
    pub files: Vec<SourceFile>,
}

/// A file in an archive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Its name, without folders.
    pub name: String,
    /// It is not larger than this.
    pub most_bytes: u64,
    /// Checksum of its content in hexadecimal digits, where it is known.
    pub sha256: Option<String>,
}

/// Which form of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What the authors made of UCI's file: what the paper used.
    Excerpt,
    /// UCI's own file.
    Original,
}

/// One form of a data set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Excerpt or original.
    pub kind: Kind,
    /// Alternative sets of files, the best first: those that `provenance` describes, then
    /// substitutes.
    pub candidates: Vec<Candidate>,
    /// Columns of a file.
    pub columns: usize,
    /// Samples to learn from, those with missing values included.
    pub samples: usize,
    /// Columns and lags that are learned from.
    pub features: usize,
    /// Settings between the defaults and the user's own.
    pub settings: Table,
}

/// Files that make up a variant: all of them are needed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Names of the files, without folders.
    pub files: Vec<String>,
    /// What they are, in words.
    pub provenance: String,
}

/// A variant that is on this machine.
#[derive(Debug, Clone)]
pub struct Located {
    /// Its files, in the catalogue's order.
    pub files: Vec<PathBuf>,
    /// What they are, in words.
    pub provenance: String,
    /// Settings between the defaults and the user's own.
    pub settings: Table,
    /// Excerpt or original; which of them was found.
    pub variant: Kind,
}

/// A name that is not in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no data set {name:?}{suggestion}; `hedgerow data list` shows all")]
pub struct UnknownName {
    /// What was asked for.
    pub name: String,
    /// The nearest name there is, as a question in parentheses; empty if none is near.
    pub suggestion: String,
}

/// A data set that is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} is not here: {}; {advice}",
    looked_at(.places, .incomplete.as_deref())
)]
pub struct NotFound {
    /// The data set.
    pub name: String,
    /// Every place that was looked at.
    pub places: Vec<PathBuf>,
    /// A missing file of an otherwise complete set.
    pub incomplete: Option<PathBuf>,
    /// How to get it.
    pub advice: String,
}

/// Why a catalogue can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Not TOML, or a key that is unknown or missing.
    #[error("catalogue: {0}")]
    NotToml(#[from] toml::de::Error),
    /// The entry first, then the source it names.
    #[error("catalogue: {0:?} names the source {1:?}, which there is not")]
    NoSource(String, String),
    /// An entry without a variant.
    #[error("catalogue: {0:?} has neither an excerpt nor an original")]
    NoVariant(String),
}

/// The data sets of the paper, two more, and three long streams.
pub fn entries() -> &'static [Entry] {
    &EMBEDDED.entries
}

/// The data set of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| entry.name == name)
}

/// The data set of this name, or the nearest name there is.
pub fn lookup(name: &str) -> Result<&'static Entry, UnknownName> {
    find(name).ok_or_else(|| {
        let names = entries().iter().map(|entry| entry.name.as_str());
        let suggestion = did_you_mean(name, names, SUGGESTION_LIKENESS);
        UnknownName { name: name.to_owned(), suggestion }
    })
}

/// The best variant of a data set, or the `wanted` one, that is in one of these folders, all its
/// files in the same one.
pub fn locate(
    entry: &Entry,
    wanted: Option<Kind>,
    folders: &[PathBuf],
) -> Result<Located, NotFound> {
    let (mut places, mut incomplete) = (Vec::new(), None);
    let is_wanted = |variant: &&Variant| wanted.is_none_or(|kind| variant.kind == kind);
    for variant in entry.variants.iter().filter(is_wanted) {
        for candidate in &variant.candidates {
            for place in folders.iter().flat_map(|folder| entry.places(variant.kind, folder)) {
                let files: Vec<_> =
                    candidate.files.iter().map(|name| packed_or_not(&place, name)).collect();
                if let Some(files) = files.iter().cloned().collect::<Option<Vec<_>>>() {
                    let Candidate { provenance, .. } = candidate.clone();
                    let settings = variant.settings.clone();
                    return Ok(Located { files, provenance, settings, variant: variant.kind });
                }
                let missing =
                    files.iter().position(Option::is_none).map(|first| &candidate.files[first]);
                if files.iter().any(Option::is_some) && incomplete.is_none() {
                    incomplete = missing.map(|name| place.join(name));
                }
                places.extend(candidate.files.first().map(|name| place.join(name)));
            }
        }
    }
    let (name, advice) = (entry.name.clone(), entry.source.advice(&entry.name));
    Err(NotFound { name, places, incomplete, advice })
}

/// The file of this name, packed or not.
pub fn packed_or_not(folder: &Path, name: &str) -> Option<PathBuf> {
    PACKED_ENDINGS
        .iter()
        .map(|ending| folder.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

impl Catalog {
    /// Reads a catalogue in the form of `catalog.toml`.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        let mut catalog: Self = toml::from_str(text)?;
        for entry in &mut catalog.entries {
            let name = || entry.name.clone();
            let known = catalog.sources.iter().find(|source| source.folder == entry.source_folder);
            let unknown = || CatalogError::NoSource(name(), entry.source_folder.clone());
            entry.source = known.ok_or_else(unknown)?.clone();
            if entry.variants.is_empty() {
                return Err(CatalogError::NoVariant(name()));
            }
        }
        Ok(catalog)
    }
}

impl Source {
    /// How to get a data set of this source.
    pub fn advice(&self, name: &str) -> String {
        match self.uci {
            Some(_) => format!("`hedgerow data fetch {name}` gets it from UCI"),
            None => {
                format!("its file is at {}; save it as {}/{name}.csv.gz", self.page, self.folder)
            }
        }
    }
}

impl Entry {
    /// Under which terms a variant is.
    pub fn licence(&self, kind: Kind) -> &str {
        match (kind, &self.source.licence) {
            (_, Some(licence)) => licence,
            (Kind::Excerpt, None) => &EMBEDDED.licence_of_excerpts,
            (Kind::Original, None) => &EMBEDDED.licence_of_originals,
        }
    }

    /// Where in a folder of data sets a variant may be.
    fn places(&self, kind: Kind, folder: &Path) -> [PathBuf; 2] {
        let own = match kind {
            Kind::Excerpt => EXCERPT_FOLDER,
            Kind::Original => &self.source.folder,
        };
        [folder.join(own), folder.to_owned()]
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Excerpt => "excerpt",
            Self::Original => "original",
        })
    }
}

fn looked_at(places: &[PathBuf], incomplete: Option<&Path>) -> String {
    if let Some(missing) = incomplete {
        return format!("{} is missing beside others that are there", missing.display());
    }
    if places.is_empty() {
        return "there is no folder to look in".to_owned();
    }
    let listed: Vec<_> =
        places.iter().take(LISTED_PLACES).map(|place| place.display().to_string()).collect();
    let more = places.len().saturating_sub(LISTED_PLACES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("there is no {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 14] = [
        "twitter",
        "twitter-large",
        "toms-hardware",
        "conductivity",
        "wave",
        "naval",
        "air-quality",
        "traffic",
        "temperature",
        "appliances",
        "beijing",
        "kin40k",
        "protein",
        "bike",
    ];

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn the_embedded_catalogue_has_the_data_sets_of_the_paper_and_more() {
        Catalog::parse(include_str!("catalog.toml")).unwrap();
        assert_eq!(entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), NAMES);
        let licence = |name, kind| find(name).unwrap().licence(kind);
        assert!(licence("wave", Kind::Original).contains("CC BY 4.0"));
        assert!(licence("wave", Kind::Excerpt).contains("none stated"));
        assert!(licence("bike", Kind::Original).contains("none read"));
    }

    #[test]
    fn every_entry_is_whole() {
        for entry in entries() {
            let Source { uci, archive, page, licence, citation, files, .. } = &entry.source;
            match uci {
                Some(uci) => assert!(
                    archive.starts_with(&format!("{uci}/")) && archive.ends_with(".zip"),
                    "{archive}"
                ),
                None => assert!(page.starts_with("https://") && licence.is_some(), "{page}"),
            }
            assert!(citation.ends_with(|digit: char| digit.is_ascii_digit()), "{citation}");
            for file in files {
                assert!(!file.name.contains(['/', '\\']) && file.most_bytes > 0, "{}", file.name);
                let hexadecimal = |sum: &String| {
                    sum.len() == 64 && sum.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
                };
                assert!(file.sha256.as_ref().is_none_or(hexadecimal), "{}", file.name);
            }
            for variant in &entry.variants {
                let target = variant.settings["data"]["target"].as_str().unwrap();
                assert!(
                    !target.is_empty() && variant.settings["data"]["scaling"].is_str(),
                    "{}",
                    entry.name
                );
            }
            // A fetched data set is found afterwards.
            let original =
                entry.variants.iter().find(|variant| variant.kind == Kind::Original).unwrap();
            let fetched: Vec<_> = files.iter().map(|file| &file.name).collect();
            assert!(
                original.candidates[0].files.iter().all(|name| fetched.contains(&name)),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn the_excerpt_comes_before_the_original_and_the_first_folder_before_the_second() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [first.path().to_owned(), second.path().to_owned()];
        let air = find("air-quality").unwrap();
        let found = |wanted| locate(air, wanted, &folders).map(|located| located.files);
        touch(&first.path().join("air_quality/AirQualityUCI.csv.gz"));
        assert_eq!(found(None).unwrap(), [first.path().join("air_quality/AirQualityUCI.csv.gz")]);
        touch(&second.path().join("AirData.csv.zst"));
        assert_eq!(found(None).unwrap(), [second.path().join("AirData.csv.zst")]);
        touch(&first.path().join("authors_csv/AirData.csv"));
        assert_eq!(found(None).unwrap(), [first.path().join("authors_csv/AirData.csv")]);
        let original = locate(air, Some(Kind::Original), &folders).unwrap();
        assert_eq!(original.variant, Kind::Original);
        assert_eq!(original.settings["data"]["target"].as_str(), Some("CO(GT)"));
    }

    #[test]
    fn a_stand_in_serves_until_the_original_is_there_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let conductivity = find("conductivity").unwrap();
        touch(&folder.path().join("superconductivity/train_rebuilt.csv.gz"));
        let rebuilt = locate(conductivity, None, &folders).unwrap();
        assert!(rebuilt.provenance.contains("rebuilt from formulas"), "{}", rebuilt.provenance);
        touch(&folder.path().join("train.csv"));
        let original = locate(conductivity, None, &folders).unwrap();
        assert_eq!(original.files, [folder.path().join("train.csv")]);
        assert!(!original.provenance.contains("rebuilt"));
    }

    #[test]
    fn all_files_of_a_variant_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let beijing = find("beijing").unwrap();
        let names: Vec<_> = beijing.source.files.iter().map(|file| file.name.clone()).collect();
        assert_eq!(names.len(), 12);
        for name in &names[..11] {
            touch(&folder.path().join("beijing_multisite").join(name));
        }
        let message = locate(beijing, None, &folders).unwrap_err().to_string();
        assert!(message.contains(&names[11]) && message.contains("missing beside"), "{message}");
        touch(&folder.path().join("beijing_multisite").join(format!("{}.gz", names[11])));
        let located = locate(beijing, None, &folders).unwrap();
        assert_eq!(located.files.len(), 12);
        assert!(
            located.files[11].to_string_lossy().ends_with("Wanshouxigong_20130301-20170228.csv.gz")
        );
    }

    #[test]
    fn a_data_set_that_is_not_here_names_the_places_and_the_command() {
        let folders = [PathBuf::from("/nowhere"), PathBuf::from("/elsewhere")];
        let error = locate(find("twitter").unwrap(), None, &folders).unwrap_err();
        assert_eq!(error.places.len(), 8);
        let message = error.to_string();
        for part in [
            "twitter is not here",
            "/nowhere/authors_csv/TwitterData.csv",
            "/elsewhere/TwitterData.csv",
            "and 2 more",
            "hedgerow data fetch twitter",
        ] {
            assert!(
                message.contains(&part.replace('/', std::path::MAIN_SEPARATOR_STR)),
                "{message}"
            );
        }
        let none = locate(find("naval").unwrap(), Some(Kind::Excerpt), &folders).unwrap_err();
        assert!(none.places.is_empty());
        let elsewhere = locate(find("bike").unwrap(), None, &folders).unwrap_err().to_string();
        assert!(elsewhere.ends_with("save it as long/bike.csv.gz"), "{elsewhere}");
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let message = lookup("air-qualty").unwrap_err().to_string();
        assert!(message.contains("did you mean \"air-quality\""), "{message}");
        assert_eq!(lookup("zzz").unwrap_err().suggestion, "");
        assert_eq!(lookup("naval").unwrap().source.uci, Some(316));
    }

    #[test]
    fn a_broken_catalogue_is_refused() {
        let refusal = |text: &str| Catalog::parse(text).unwrap_err().to_string();
        let head = "licence_of_originals = \"\"\nlicence_of_excerpts = \"\"\nsource = []\n";
        let entry = "[[entry]]\nname = \"a\"\ntitle = \"\"\nsource = \"b\"\ndescription = \"\"\n";
        assert!(refusal(&format!("{head}{entry}")).contains("\"b\""));
        assert!(refusal(&format!("{head}{entry}colour = 1\n")).contains("colour"));
        let source = "[[source]]\nfolder = \"b\"\nuci = 1\ntitle = \"\"\narchive = \"\"\ncitation = \"\"\nfiles = []\n";
        let head = head.replace("source = []\n", source);
        assert!(refusal(&format!("{head}{entry}")).contains("neither"));
    }
}

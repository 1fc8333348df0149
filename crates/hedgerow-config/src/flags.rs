//! Flags of a command line that change settings. One [`Flag`] describes its name, the key that it
//! changes, its value and its help; parser, help text, man page and completions follow from it.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use hedgerow::method::METHODS;
use toml::Value;

use crate::{ConfigError, Layer};

/// A flag that changes a setting.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The name without dashes, such as `nodes`.
    pub long: &'static str,
    /// The key that it changes, such as `federation.nodes`.
    pub key: &'static str,
    /// What follows the flag.
    pub takes: Takes,
    /// One or two sentences. `{methods}` stands for the names of all methods.
    pub help: &'static str,
    /// Another setting that it changes, and the text that it becomes.
    pub also: Option<(&'static str, &'static str)>,
    /// A flag that must not be there as well.
    pub conflicts_with: Option<&'static str>,
    /// A flag that must be there as well.
    pub requires: Option<&'static str>,
    /// Whether values may begin with a hyphen.
    pub allows_hyphens: bool,
}

/// What follows a flag. Each has the name of the value in help texts.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// Any text.
    Text(&'static str),
    /// Texts with commas between them.
    List(&'static str),
    /// A whole number.
    Whole(&'static str),
    /// A number.
    Number(&'static str),
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// Nothing: the flag sets the key to this text.
    NothingFor(&'static str),
    /// Nothing: the flag sets the key to this.
    Nothing(bool),
}

impl Flag {
    /// A flag that changes one key.
    pub const fn new(
        long: &'static str,
        key: &'static str,
        takes: Takes,
        help: &'static str,
    ) -> Self {
        Self {
            long,
            key,
            takes,
            help,
            also: None,
            conflicts_with: None,
            requires: None,
            allows_hyphens: false,
        }
    }

    fn arg(&self) -> Arg {
        let methods = METHODS.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
        let help = self.help.replace("{methods}", &methods);
        let arg = Arg::new(self.long).long(self.long).help(help);
        let arg = self.conflicts_with.into_iter().fold(arg, Arg::conflicts_with);
        let arg = self.requires.into_iter().fold(arg, Arg::requires);
        match self.takes {
            Takes::Text(name) => arg.value_name(name),
            Takes::List(name) => {
                let arg = arg.value_name(name).action(ArgAction::Append).value_delimiter(',');
                arg.allow_hyphen_values(self.allows_hyphens)
            }
            Takes::Whole(name) | Takes::Number(name) => {
                arg.value_name(name).allow_negative_numbers(true)
            }
            Takes::OneOf(known) => arg.value_parser(PossibleValuesParser::new(known)),
            Takes::Nothing(_) | Takes::NothingFor(_) => arg.action(ArgAction::SetTrue),
        }
    }

    /// What the user gave, if anything.
    fn value(&self, matches: &ArgMatches) -> Option<Value> {
        let text = || matches.get_one::<String>(self.long);
        match self.takes {
            Takes::Text(_) | Takes::OneOf(_) => text().map(|text| text.as_str().into()),
            Takes::List(_) => {
                let texts = matches.get_many::<String>(self.long)?;
                Some(texts.map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into())
            }
            Takes::Whole(_) => text().map(|text| number_or_text::<i64>(text)),
            Takes::Number(_) => text().map(|text| number_or_text::<f64>(text)),
            Takes::NothingFor(text) => matches.get_flag(self.long).then(|| text.into()),
            Takes::Nothing(value) => matches.get_flag(self.long).then(|| value.into()),
        }
    }

    fn layers(&self, matches: &ArgMatches) -> Vec<Layer> {
        let Some(value) = self.value(matches) else { return vec![] };
        let origin = format!("--{}", self.long);
        let also = self.also.map(|(key, text)| Layer::value(&origin, key, text));
        also.into_iter().chain([Layer::value(&origin, self.key, value)]).collect()
    }
}

/// A text that is no number stays one: the setting refuses it by its key, with what it may be.
fn number_or_text<N: FromStr + Into<Value>>(text: &str) -> Value {
    text.parse().map_or_else(|_| text.into(), N::into)
}

/// The flags of one command.
pub trait FlagSet {
    /// Groups of flags in the order of the help text. Commands share groups.
    const GROUPS: &'static [&'static [Flag]];
    /// Help of `--set`; empty if the command doesn't have it.
    const SET: &'static str;
}

fn all_flags<S: FlagSet>() -> impl Iterator<Item = &'static Flag> {
    S::GROUPS.iter().copied().flatten()
}

/// What the user said with flags and with `--set`: part of a command's arguments, by clap's
/// `flatten`.
#[derive(Clone)]
pub struct SettingFlags<S> {
    flags: Vec<Layer>,
    /// Names of flags, and their values as text.
    given: Vec<(&'static str, String)>,
    sets: Vec<String>,
    set: PhantomData<S>,
}

impl<S> SettingFlags<S> {
    /// All layers over the defaults: the file, then `--set`, then flags.
    pub fn layers(&self, file: Option<&Path>) -> Result<Vec<Layer>, ConfigError> {
        let mut layers: Vec<Layer> = file.map(Layer::file).transpose()?.into_iter().collect();
        layers.extend(Layer::sets(&self.sets)?);
        layers.extend(self.flags.iter().cloned());
        Ok(layers)
    }

    /// The value of a flag as the user wrote it.
    pub fn given(&self, long: &str) -> Option<String> {
        self.given.iter().find(|(name, _)| *name == long).map(|(_, text)| text.clone())
    }

    /// The texts of `--set`.
    pub fn sets(&self) -> &[String] {
        &self.sets
    }
}

impl<S> fmt::Debug for SettingFlags<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SettingFlags").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl<S: FlagSet> Args for SettingFlags<S> {
    fn augment_args(command: Command) -> Command {
        let command = command.args(all_flags::<S>().map(Flag::arg));
        if S::SET.is_empty() {
            return command;
        }
        let set = Arg::new("set").long("set").value_name("KEY=VALUE").help(S::SET);
        command.arg(set.action(ArgAction::Append))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: FlagSet> FromArgMatches for SettingFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = all_flags::<S>().flat_map(|flag| flag.layers(matches)).collect();
        let sets = match S::SET {
            "" => vec![],
            _ => matches.get_many("set").into_iter().flatten().cloned().collect(),
        };
        let text = |flag: &Flag| {
            let words = matches.get_raw(flag.long)?.map(|word| word.to_string_lossy());
            Some((flag.long, words.collect::<Vec<_>>().join(",")))
        };
        let given = all_flags::<S>().filter_map(text).collect();
        Ok(Self { flags, given, sets, set: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Merged;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        flags: SettingFlags<Flags>,
    }

    #[derive(Debug)]
    struct Flags;

    impl FlagSet for Flags {
        const GROUPS: &'static [&'static [Flag]] = &[&[
            Flag::new("nodes", "run.nodes", Takes::Whole("K"), "Nodes"),
            Flag::new("method", "run.methods", Takes::List("LIST"), "Methods"),
            Flag::new("pace", "run.pace", Takes::OneOf(&["free", "round"]), "Pace"),
            Flag::new("plain", "run.tls", Takes::Nothing(false), "No TLS"),
            Flag {
                also: Some(("run.source", "follow")),
                conflicts_with: Some("plain"),
                ..Flag::new("follow", "run.path", Takes::Text("FILE"), "A file")
            },
        ]];
        const SET: &'static str = "Any setting";
    }

    const DEFAULTS: &str = "[run]\nnodes = 1\nmethods = []\npace = \"auto\"\ntls = true\n\
        source = \"stdin\"\npath = \"\"";

    fn merged(line: &str) -> Result<Merged, String> {
        let words = std::iter::once("cli").chain(line.split(' ').filter(|word| !word.is_empty()));
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let layers = cli.flags.layers(None).map_err(|error| error.to_string())?;
        Merged::new(DEFAULTS, &layers).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_layers_that_go_over_set() {
        let run = merged("--nodes -3 --method mk,gr --set run.nodes=7 --plain").unwrap();
        let run = run.table()["run"].as_table().unwrap();
        assert_eq!((run["nodes"].as_integer(), run["tls"].as_bool()), (Some(-3), Some(false)));
        assert_eq!(run["methods"].as_array().unwrap().len(), 2);
        let run = merged("--follow a.csv --pace round").unwrap();
        let run = run.table()["run"].as_table().unwrap();
        assert_eq!((run["source"].as_str(), run["path"].as_str()), (Some("follow"), Some("a.csv")));
        assert_eq!(run["pace"].as_str(), Some("round"));
        assert_eq!(merged("").unwrap().table(), &DEFAULTS.parse::<toml::Table>().unwrap());
    }

    #[test]
    fn the_parser_refuses_what_no_value_can_be() {
        for line in ["--pace fast", "--follow a --plain", "--set nodes"] {
            assert!(merged(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_text_in_place_of_a_number_is_refused_by_its_key() {
        for text in ["x", "1.5", "9999999999999999999"] {
            let error = merged(&format!("--nodes {text}")).unwrap_err();
            let wanted = format!("--nodes: run.nodes must be a whole number, but is {text:?}");
            assert_eq!(error, wanted);
        }
    }
}

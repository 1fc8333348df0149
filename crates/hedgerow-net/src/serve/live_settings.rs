//! [`LiveSettings`]: the settings of a running server. Some can be changed without a restart, with
//! the checks and words of `serve.toml`. Changes are stored with the run and stay, also over
//! restarts, until they are taken back.

use hedgerow::method::MethodInfo;
use hedgerow_config::{ConfigError, Layer, Merged};

use super::config::ServeSettings;
use super::status::SettingStatus;
use crate::coordinator::rules::{Limits, Rules};
use crate::learning::config::DEFAULTS;
use crate::log::Log;
use crate::operations::ActionError;

/// Settings that can be changed without a restart.
pub const CHANGEABLE: &[&str] = &[
    "rounds.quorum",
    "rounds.least",
    "rounds.deadline",
    "rounds.cadence",
    "rounds.silent_after",
    "rounds.late",
    "rounds.late_rounds",
    "limits.nodes",
    "limits.norm",
    "limits.messages_per_second",
    "limits.bad_messages",
    "log.level",
];

/// What a server was told by file and flags, and what was changed since.
#[derive(Debug, Clone)]
pub struct LiveSettings {
    layers: Vec<Layer>,
    others: Vec<&'static MethodInfo>,
    /// Key and value.
    changed: Vec<(String, String)>,
    rules: Rules,
    limits: Limits,
    log: Log,
}

impl LiveSettings {
    /// Settings of which nothing was changed.
    pub fn new(settings: &ServeSettings) -> Self {
        Self {
            layers: settings.layers.clone(),
            others: settings.others.clone(),
            changed: Vec::new(),
            rules: settings.rules,
            limits: settings.limits,
            log: settings.log,
        }
    }

    /// When rounds close.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// What nodes may do.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Logging.
    pub fn log(&self) -> Log {
        self.log
    }

    /// The same with another value of a setting, or with that of the file; and its values before
    /// and after.
    pub fn with(
        &self,
        key: &str,
        value: Option<&str>,
    ) -> Result<(Self, String, String), ActionError> {
        if !CHANGEABLE.contains(&key) {
            return Err(ActionError::Fixed { key: key.to_owned(), known: CHANGEABLE });
        }
        let mut changed = self.changed.clone();
        changed.retain(|(known, _)| known != key);
        match value {
            Some(value) => changed.push((key.to_owned(), value.to_owned())),
            None if changed.len() == self.changed.len() => {
                return Err(ActionError::NotChanged { key: key.to_owned() });
            }
            None => {}
        }
        let before = self.value(key, &self.changed)?;
        let after = self.value(key, &changed)?;
        let live = self.changed_to(changed)?;
        Ok((live, before, after))
    }

    /// The same with changes that were stored. One that doesn't fit any more is left out, and
    /// returned with the reason.
    pub fn with_stored(self, stored: &[(String, String)]) -> (Self, Vec<(String, ConfigError)>) {
        let (mut live, mut unfit) = (self, Vec::new());
        for (key, value) in stored {
            let mut changed = live.changed.clone();
            changed.push((key.clone(), value.clone()));
            match live.changed_to(changed) {
                Ok(next) => live = next,
                Err(error) => unfit.push((key.clone(), error)),
            }
        }
        (live, unfit)
    }

    /// What differs from the file.
    pub fn differences(&self) -> Vec<SettingStatus> {
        let difference = |(key, _): &(String, String)| {
            let value = self.value(key, &self.changed).ok()?;
            Some(SettingStatus { key: key.clone(), value, in_file: self.value(key, &[]).ok()? })
        };
        self.changed.iter().filter_map(difference).collect()
    }

    fn changed_to(&self, changed: Vec<(String, String)>) -> Result<Self, ConfigError> {
        let settings = ServeSettings::with_methods(&self.layers_with(&changed)?, &self.others)?;
        let ServeSettings { rules, limits, log, .. } = settings;
        let (layers, others) = (self.layers.clone(), self.others.clone());
        // Listeners and connections keep theirs.
        let Limits { norm, nodes, messages_per_second, bad_messages, .. } = limits;
        let limits = Limits { norm, nodes, messages_per_second, bad_messages, ..self.limits };
        Ok(Self { layers, others, changed, rules, limits, log })
    }

    fn layers_with(&self, changed: &[(String, String)]) -> Result<Vec<Layer>, ConfigError> {
        let sets = changed.iter().map(|(key, value)| Layer::set(&format!("{key}={value}")));
        let mut layers = self.layers.clone();
        layers.extend(sets.collect::<Result<Vec<_>, _>>()?);
        Ok(layers)
    }

    /// A value as it stands in a file.
    fn value(&self, key: &str, changed: &[(String, String)]) -> Result<String, ConfigError> {
        let merged = Merged::new(DEFAULTS, &self.layers_with(changed)?)?;
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let value = merged.table().get(section).and_then(|section| section.get(name));
        Ok(value.map_or_else(String::new, |value| {
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        }))
    }
}

#[cfg(test)]
mod tests {
    use hedgerow_config::ConfigError;

    use super::*;
    use crate::coordinator::rules::Quorum;
    use crate::log::{Format, Level};

    impl LiveSettings {
        /// Settings that were read from nothing.
        pub(crate) fn of(rules: Rules, limits: Limits) -> Self {
            let log = Log { level: Level::Info, format: Format::Text };
            Self { layers: vec![], others: vec![], changed: vec![], rules, limits, log }
        }
    }

    fn live() -> LiveSettings {
        let layers = Layer::sets(["learning.inputs=1", "rounds.quorum=2"]).unwrap();
        LiveSettings::new(&ServeSettings::read(&layers).unwrap())
    }

    #[test]
    fn settings_change_and_go_back_to_the_file() {
        let (changed, before, after) = live().with("rounds.quorum", Some("80%")).unwrap();
        assert_eq!((before.as_str(), after.as_str()), ("2", "80%"));
        assert_eq!(changed.rules().quorum, Quorum::Share(0.8));
        let (changed, ..) = changed.with("limits.bad_messages", Some("3")).unwrap();
        assert_eq!(
            (changed.limits().bad_messages, changed.rules().quorum),
            (3, Quorum::Share(0.8))
        );
        let told: Vec<_> = changed
            .differences()
            .into_iter()
            .map(|setting| (setting.key, setting.value, setting.in_file))
            .collect();
        let expected = [("rounds.quorum", "80%", "2"), ("limits.bad_messages", "3", "10")];
        assert_eq!(told, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
        let (back, before, after) = changed.with("rounds.quorum", None).unwrap();
        assert_eq!((before.as_str(), after.as_str()), ("80%", "2"));
        assert_eq!((back.rules().quorum, back.differences().len()), (Quorum::Count(2), 1));
    }

    #[test]
    fn wrong_values_are_refused_in_the_words_of_the_file() {
        for (key, value, part) in [
            ("rounds.quorum", Some("none"), "80%"),
            ("rounds.least", Some("0"), "rounds.least"),
            ("rounds.deadline", Some("5x"), "rounds.deadline"),
            ("limits.norm", Some("0"), "limits.norm"),
            ("log.level", Some("loud"), "debug"),
            ("store.path", Some("x"), "can't be changed while the server runs"),
            ("rounds.qorum", Some("1"), "can't be changed while the server runs"),
            ("rounds.least", None, "that of the file already"),
        ] {
            let error = live().with(key, value).unwrap_err().to_string();
            assert!(error.contains(part), "{key}: {error}");
        }
    }

    #[test]
    fn stored_changes_that_fit_no_more_are_left_out() {
        let stored = [("rounds.least", "3"), ("rounds.deadline", "soon"), ("log.level", "warn")];
        let stored = stored.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (live, unfit) = live().with_stored(&stored);
        assert_eq!((live.rules().least, live.log().level), (3, Level::Warn));
        let [
            (
                key,
                ConfigError::Rejected { .. }
                | ConfigError::WrongType { .. }
                | ConfigError::OutOfBounds { .. },
            ),
        ] = &unfit[..]
        else {
            panic!("{unfit:?}")
        };
        assert_eq!(key, "rounds.deadline");
    }
}

//! The methods of a run: by name, and those that are possible.

use super::{MethodChoice, Scope, Settings, SettingsError, Wire, out_of_bounds, unknown_name};

/// Methods that a run goes without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Their names.
    pub methods: Vec<String>,
    /// What keeps them from being run, in words.
    pub why: String,
}

impl Settings {
    /// Those of these methods that can be run. The others are noted as left out.
    pub(crate) fn keep_possible(
        &mut self,
        choices: impl IntoIterator<Item = MethodChoice>,
    ) -> Vec<MethodChoice> {
        let mut possible = Vec::new();
        for choice in choices {
            let plain = MethodChoice { personal: None, reports_shared: false, ..choice };
            if let Err(error) = self.check_method(plain) {
                self.leave_out(choice, &error.to_string());
            } else {
                possible.push(choice);
            }
        }
        possible
    }

    /// Notes that a method is not run.
    pub(crate) fn leave_out(&mut self, choice: MethodChoice, why: &str) {
        match self.left_out.iter_mut().find(|known| known.why == why) {
            Some(known) => known.methods.push(choice.name()),
            None => {
                self.left_out.push(LeftOut { methods: vec![choice.name()], why: why.to_owned() })
            }
        }
    }
}

/// The name of the methods that the paper compares, and these methods.
pub(super) const PAPER: &str = "paper";
const PAPER_METHODS: [&str; 6] = ["mk", "sk", "naive", "central", "local", "hindsight"];

/// The methods of these names, each once.
pub(super) fn parse_methods(
    names: &[String],
    personal: bool,
) -> Result<Vec<MethodChoice>, SettingsError> {
    let names = names.iter().map(|name| name.trim());
    let names: Vec<&str> = names
        .flat_map(|name| if name == PAPER { PAPER_METHODS.to_vec() } else { vec![name] })
        .collect();
    let mut chosen: Vec<MethodChoice> = Vec::new();
    for name in names {
        let mut choice = MethodChoice::parse(name).ok_or_else(|| unknown_method(name))?;
        if personal && choice.can_be_personal() {
            (choice.personal, choice.reports_shared) = (Some(true), true);
        }
        match chosen.iter_mut().find(|known| known.plain_name() == choice.plain_name()) {
            Some(known) => *known = known.with(choice),
            None => chosen.push(choice),
        }
    }
    if chosen.is_empty() {
        return Err(out_of_bounds("federation.methods", "at least 1 method", "empty"));
    }
    Ok(chosen)
}

/// Why there is no method of that name.
fn unknown_method(name: &str) -> SettingsError {
    let (plain, layer) = MethodChoice::split_layer(name);
    let apart = Scope::SUFFIXES.iter().find_map(|(suffix, _)| plain.strip_suffix(suffix));
    if let Some(learner) = apart.filter(|learner| MethodChoice::parse(learner).is_some()) {
        let bound = format!(
            "{learner} without that: only a method with messages that travel as they are can be \
             alone or pooled, and a pooled one has no own layers"
        );
        return out_of_bounds("federation.methods", bound, format!("{name:?}"));
    }
    let plain = apart.unwrap_or(plain);
    let key = "federation.methods";
    if let Some((learner, suffix)) = plain.split_once('+')
        && MethodChoice::parse(learner).is_some()
    {
        let suffixes = MethodChoice::suffixes();
        let known = suffixes.map(|known| known.trim_start_matches('+'));
        let bound = format!(
            "{learner} alone, or with +SUFFIX, which is {}",
            hedgerow_config::one_of(suffix, &known)
        );
        return out_of_bounds(key, bound, format!("{name:?}"));
    }
    let (learner, wire) = plain.split_once('/').unwrap_or((plain, ""));
    match MethodChoice::parse(learner) {
        None => unknown_name(key, learner, &MethodChoice::names()),
        Some(known) if !wire.is_empty() && !known.info.travels() => out_of_bounds(
            key,
            format!("{learner} alone: nothing of it travels that could be compressed"),
            format!("{name:?}"),
        ),
        Some(_) if !wire.is_empty() && MethodChoice::parse(plain).is_none() => {
            let bound = format!(
                "a method, then each once of {}",
                Wire::OPTIONS.map(|option| format!("/{option}")).join(", ")
            );
            out_of_bounds(key, bound, format!("{name:?}"))
        }
        Some(_) => {
            let why = match layer {
                Some(false) => "its nodes have no own layer that could be left out",
                _ => "only single methods that learn at nodes can have an own layer",
            };
            out_of_bounds(key, format!("{plain} alone: {why}"), format!("{name:?}"))
        }
    }
}

//! What can be chosen: the methods, and how nodes take part.

use std::num::NonZeroU16;

use hedgerow::codec::{Coding, Compression, NumberFormat};
use hedgerow::method::{METHODS, MethodInfo, MethodSpec, Reference, Role, find};
use hedgerow_config::share;
use serde::Deserialize;

/// Something that can be run and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodChoice {
    /// A method or a reference.
    pub info: &'static MethodInfo,
    /// In what it differs from the paper, if it has variants.
    pub variant: MkVariant,
    /// How its messages travel.
    pub wire: Wire,
    /// Whom its nodes learn with.
    pub scope: Scope,
    /// Whether its nodes have a layer of their own over its predictions; none is what the method
    /// prefers.
    pub personal: Option<bool>,
    /// Whether the shared predictions are reported beside those of the layers.
    pub reports_shared: bool,
}

/// Whom the nodes of a method learn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// All learn together, through a server.
    #[default]
    Federated,
    /// Each device learns from its own samples only.
    Alone,
    /// One node learns from the samples of all devices.
    Pooled,
}

impl Scope {
    /// Names of the others, which follow that of a method.
    pub const SUFFIXES: [(&str, Self); 2] = [("+alone", Self::Alone), ("+pooled", Self::Pooled)];

    /// What follows the name of a method; empty for a federation.
    pub fn suffix(self) -> &'static str {
        Self::SUFFIXES.iter().find(|(_, scope)| *scope == self).map_or("", |(suffix, _)| suffix)
    }

    /// Nodes of one of its federations, if there are so many devices.
    pub(crate) fn nodes(self, devices: usize) -> usize {
        if self == Self::Federated { devices } else { 1 }
    }
}

/// In what MK-OFL follows the authors' published code instead of their paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MkVariant {
    /// Features without the factor 1/√D.
    pub unnormalised: bool,
    /// Frequencies multiplied by 10^(p-6) instead of divided by σ_p.
    pub frequencies: bool,
    /// No factor K in the weights.
    pub no_k: bool,
    /// The server averages only the models of those who voted for the drawn kernel.
    pub voters: bool,
    /// The step 1/√T.
    pub fixed_step: bool,
}

impl MkVariant {
    /// The authors' code.
    pub const AUTHORS: Self =
        Self { unnormalised: true, frequencies: true, no_k: true, voters: true, fixed_step: true };

    /// Names of the options, in the order of the fields.
    const OPTIONS: [&str; 5] = ["unnormalised", "frequencies", "no-k", "voters", "fixed-step"];

    fn flags(&mut self) -> [&mut bool; 5] {
        [
            &mut self.unnormalised,
            &mut self.frequencies,
            &mut self.no_k,
            &mut self.voters,
            &mut self.fixed_step,
        ]
    }

    /// Options joined by `+`.
    fn parse(text: &str) -> Option<Self> {
        if text == "authors" {
            return Some(Self::AUTHORS);
        }
        let mut variant = Self::default();
        for option in text.split('+') {
            let position = Self::OPTIONS.iter().position(|known| *known == option)?;
            *variant.flags()[position] = true;
        }
        Some(variant)
    }

    /// The name of a method in this variant.
    fn name(mut self, method: &str) -> String {
        if self == Self::AUTHORS {
            return format!("{method}:authors");
        }
        let flags = self.flags();
        let named = Self::OPTIONS.iter().zip(&flags).filter(|(_, flag)| ***flag);
        let options = named.map(|(name, _)| *name).collect::<Vec<_>>().join("+");
        if options.is_empty() { method.to_owned() } else { format!("{method}:{options}") }
    }
}

impl From<&'static MethodInfo> for MethodChoice {
    fn from(info: &'static MethodInfo) -> Self {
        Self {
            info,
            variant: MkVariant::default(),
            wire: Wire::default(),
            scope: Scope::Federated,
            personal: None,
            reports_shared: false,
        }
    }
}

impl MethodChoice {
    /// Names, as listed in messages.
    pub fn names() -> Vec<String> {
        let variants = |info: &&MethodInfo| {
            let options = ["authors"].into_iter().chain(MkVariant::OPTIONS);
            let name = info.name;
            info.has_variants.then(|| options.map(move |option| format!("{name}:{option}")))
        };
        let plain = METHODS.iter().map(|info| info.name.to_owned());
        plain.chain(METHODS.iter().filter_map(variants).flatten()).collect()
    }

    /// What follows the name of a choice whose nodes have a layer of their own that the method
    /// doesn't prefer, and of one without the layers that it prefers.
    const PERSONAL: &str = "+personal";
    const SHARED: &str = "+shared";

    /// Everything that can follow a name after its compression.
    pub(crate) fn suffixes() -> [&'static str; 4] {
        let [(alone, _), (pooled, _)] = Scope::SUFFIXES;
        [alone, pooled, Self::PERSONAL, Self::SHARED]
    }

    /// A name without what says whether nodes have layers of their own, and what that is.
    pub(crate) fn split_layer(name: &str) -> (&str, Option<bool>) {
        let suffixes = [(Self::PERSONAL, true), (Self::SHARED, false)];
        let found = suffixes
            .iter()
            .find_map(|(suffix, personal)| Some((name.strip_suffix(suffix)?, Some(*personal))));
        found.unwrap_or((name, None))
    }

    /// The one of that name: a learner, how its messages travel (`/q8`), `+alone` or `+pooled` if
    /// it isn't federated, `+personal` if its nodes have a layer of their own and both predictions
    /// are reported, `+shared` if they don't have the layer that the method prefers.
    pub fn parse(name: &str) -> Option<Self> {
        let (plain, personal) = Self::split_layer(name);
        let apart = |&(suffix, scope): &(&str, Scope)| Some((plain.strip_suffix(suffix)?, scope));
        let (plain, scope) =
            Scope::SUFFIXES.iter().find_map(apart).unwrap_or((plain, Scope::Federated));
        let mut parts = plain.split('/');
        let (name, variant) = match parts.next()?.split_once(':') {
            Some((name, options)) => (name, Some(MkVariant::parse(options)?)),
            None => (plain.split('/').next()?, None),
        };
        let info = find(name)?;
        if variant.is_some() && !info.has_variants {
            return None;
        }
        let wire = parts.try_fold(Wire::default(), |wire, part| wire.with(part))?;
        let reports_shared = personal == Some(true);
        let variant = variant.unwrap_or_default();
        let choice = Self { info, variant, wire, scope, personal, reports_shared };
        let is_federated = scope == Scope::Federated;
        let has_layer = match personal {
            Some(true) => choice.can_be_personal(),
            Some(false) => choice.prefers_personal(),
            None => true,
        };
        (has_layer
            && (is_federated || choice.info.travels())
            && (wire == Wire::default() || (is_federated && choice.info.travels())))
        .then_some(choice)
    }

    /// Name on the command line.
    pub fn name(self) -> String {
        match self.personal {
            None => self.plain_name(),
            Some(true) => self.own_name(),
            Some(false) => self.shared_name(),
        }
    }

    /// The same, whether or not nodes have layers of their own.
    pub(crate) fn plain_name(self) -> String {
        self.variant.name(self.info.name) + &self.wire.suffix() + self.scope.suffix()
    }

    /// The name with layers of the nodes' own.
    pub(crate) fn own_name(self) -> String {
        self.plain_name() + if self.prefers_personal() { "" } else { Self::PERSONAL }
    }

    /// The name of the predictions of the shared model.
    pub(crate) fn shared_name(self) -> String {
        self.plain_name() + if self.prefers_personal() { Self::SHARED } else { "" }
    }

    /// Whether nodes have layers of their own unless something else is said.
    fn prefers_personal(self) -> bool {
        self.info.prefers_personal && self.can_be_personal()
    }

    /// Both of two that differ in the nodes' own layers only: one run has both predictions.
    pub(super) fn with(self, other: Self) -> Self {
        let is_own = |choice: &Self| choice.personal.unwrap_or(choice.prefers_personal());
        let is_shared = |choice: &Self| choice.reports_shared || !is_own(choice);
        match [self, other].into_iter().find(is_own) {
            Some(own) => Self { reports_shared: is_shared(&self) || is_shared(&other), ..own },
            None => self,
        }
    }

    /// What its plan says of the nodes' own layers.
    pub(super) fn layers(self) -> Option<bool> {
        self.personal.or((!self.can_be_personal()).then_some(false))
    }

    /// Whether nodes can have a layer of their own over its predictions. A method with a single
    /// kernel stands for as many methods as there are kernels, and in one place there is one node.
    pub fn can_be_personal(self) -> bool {
        self.info.halves.is_some() && !self.info.takes_kernel && self.scope != Scope::Pooled
    }

    /// The method of its plan: a reference has the features of the default method, and a method
    /// with a single kernel begins with the first.
    pub fn spec(self) -> MethodSpec {
        match self.info.halves {
            None => MethodSpec::default(),
            Some(_) if self.info.takes_kernel => MethodSpec::from(self.info).with_kernel(0),
            Some(_) => MethodSpec::from(self.info),
        }
    }

    /// Whether it is this reference.
    pub fn is(self, reference: Reference) -> bool {
        self.info.reference == Some(reference)
    }

    /// Whether a report may be about it: one could choose it for a federation.
    pub(crate) fn may_be_subject(self) -> bool {
        self.info.role == Role::Choice && self.scope == Scope::Federated
    }

    /// Whether it needs no features: a forecast without learning.
    pub fn is_trivial(self) -> bool {
        self.info.role == Role::Trivial
    }
}

/// How messages travel: each as it is, unless something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// Formats of numbers to the server, and from it.
    up: NumberFormat,
    down: NumberFormat,
    /// Send only every N-th round.
    every: NonZeroU16,
    /// Send only every N-th number, in turn.
    part: NonZeroU16,
}

impl Default for Wire {
    fn default() -> Self {
        let (up, down) = (NumberFormat::F32, NumberFormat::F32);
        Self { up, down, every: NonZeroU16::MIN, part: NonZeroU16::MIN }
    }
}

impl Wire {
    /// What can follow a method's name, as listed in messages.
    pub const OPTIONS: [&str; 8] =
        ["f16", "q8", "q4", "f16-up", "q8-up", "q4-up", "everyN", "partN"];

    const FORMATS: [(&str, NumberFormat); 3] =
        [("f16", NumberFormat::F16), ("q8", NumberFormat::Bits8), ("q4", NumberFormat::Bits4)];

    /// The same with one more option, unless that has been chosen already.
    fn with(self, option: &str) -> Option<Self> {
        let count = |text: &str| text.parse::<NonZeroU16>().ok().filter(|count| count.get() > 1);
        if let Some(every) = option.strip_prefix("every") {
            let every = count(every).filter(|_| self.every == NonZeroU16::MIN)?;
            return Some(Self { every, ..self });
        }
        if let Some(part) = option.strip_prefix("part") {
            let part = count(part).filter(|_| self.part == NonZeroU16::MIN)?;
            return Some(Self { part, ..self });
        }
        let (name, both) = match option.strip_suffix("-up") {
            Some(name) => (name, false),
            None => (option, true),
        };
        let (_, format) = Self::FORMATS.into_iter().find(|(known, _)| *known == name)?;
        let down = if both { format } else { NumberFormat::F32 };
        (self.up == NumberFormat::F32).then_some(Self { up: format, down, ..self })
    }

    fn suffix(self) -> String {
        let mut suffix = String::new();
        if let Some((name, _)) = Self::FORMATS.iter().find(|(_, format)| *format == self.up) {
            let only_up = if self.down == self.up { "" } else { "-up" };
            suffix += &format!("/{name}{only_up}");
        }
        for (name, count) in [("every", self.every), ("part", self.part)] {
            if count.get() > 1 {
                suffix += &format!("/{name}{count}");
            }
        }
        suffix
    }

    /// The same for a plan.
    pub fn compression(self) -> Compression {
        let coding = |numbers| Coding { numbers, part: self.part };
        Compression { every: self.every, up: coding(self.up), down: coding(self.down) }
    }
}

/// How nodes take part.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Participation {
    /// Share of node-rounds without contact.
    #[serde(deserialize_with = "share")]
    pub dropout: f64,
    /// Share of uploads that come too late.
    #[serde(deserialize_with = "share")]
    pub late: f64,
    /// First share of the rounds within which nodes join.
    #[serde(deserialize_with = "share")]
    pub join_within: f64,
    /// Samples per node and round.
    pub arrivals: Arrivals,
}

/// How many samples reach a node in a round.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Arrivals {
    /// The same number in every round.
    Fixed(usize),
    /// A Poisson number with this mean.
    Poisson(f64),
    /// Poisson numbers with means from that of the first node to that of the last, evenly on a
    /// logarithmic scale.
    Rates(f64, f64),
}

impl TryFrom<String> for Arrivals {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let rate = |text: &str| text.parse().ok().filter(|mean| (0.001..=100.0).contains(mean));
        let count = |text: &str| text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
        let known = match text.split_once(':') {
            None if text == "one" => Some(Self::Fixed(1)),
            Some(("fixed", samples)) => count(samples).map(Self::Fixed),
            Some(("poisson", mean)) => rate(mean).map(Self::Poisson),
            Some(("rates", means)) => means
                .split_once("..")
                .and_then(|(low, high)| Some(Self::Rates(rate(low)?, rate(high)?))),
            _ => None,
        };
        known.ok_or("\"one\", \"fixed:N\" with N from 1 to 1000000, \"poisson:MEAN\" with a mean from 0.001 to 100, or \"rates:LOW..HIGH\" with such means")
    }
}

impl Arrivals {
    /// Mean number of samples that reach one of `nodes` nodes in a round.
    pub fn mean(self, node: usize, nodes: usize) -> f64 {
        match self {
            Self::Fixed(count) => count as f64,
            Self::Poisson(mean) => mean,
            Self::Rates(first, last) => {
                let share = node as f64 / (nodes.max(2) - 1) as f64;
                first * (last / first).powf(share)
            }
        }
    }

    /// The least mean of any node, and the greatest.
    pub fn bounds(self) -> (f64, f64) {
        match self {
            Self::Rates(first, last) => (first.min(last), first.max(last)),
            _ => (self.mean(0, 1), self.mean(0, 1)),
        }
    }
}

impl Participation {
    /// In words; empty if every node has contact and one sample in every round.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let percent = |share: f64| 100.0 * share;
        if self.dropout > 0.0 {
            parts.push(format!("{}% of node-rounds without contact", percent(self.dropout)));
        }
        if self.late > 0.0 {
            parts.push(format!("{}% of uploads late", percent(self.late)));
        }
        if self.join_within > 0.0 {
            parts.push(format!(
                "nodes join within the first {}% of the rounds",
                percent(self.join_within)
            ));
        }
        match self.arrivals {
            Arrivals::Fixed(1) => {}
            Arrivals::Fixed(count) => parts.push(format!("{count} samples per node and round")),
            Arrivals::Poisson(mean) => {
                parts.push(format!("Poisson({mean}) samples per node and round"))
            }
            Arrivals::Rates(first, last) => {
                parts.push(format!(
                    "Poisson({first}) samples per round at the first node to Poisson({last}) at the last"
                ));
            }
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for name in MethodChoice::names() {
            let name = name.as_str();
            assert_eq!(MethodChoice::parse(name).map(MethodChoice::name).as_deref(), Some(name));
        }
        for (alias, name) in
            [("linear-sgd", "linear"), ("gr-ofl/q8", "gr/q8"), ("mk-ofl:voters", "mk:voters")]
        {
            assert_eq!(MethodChoice::parse(alias).map(MethodChoice::name).as_deref(), Some(name));
        }
        let both = MethodChoice::parse("mk:voters+no-k").unwrap();
        assert_eq!(both.name(), "mk:no-k+voters");
        for (name, own, shared) in [
            ("mk:voters+personal", "mk:voters+personal", "mk:voters"),
            ("gr", "gr", "gr+shared"),
            ("tr+alone+shared", "tr+alone", "tr+alone+shared"),
            ("gr+pooled", "gr+pooled+personal", "gr+pooled"),
        ] {
            let choice = MethodChoice::parse(name).unwrap();
            assert_eq!(
                [choice.name(), choice.own_name(), choice.shared_name()],
                [name, own, shared]
            );
        }
        let own = MethodChoice::parse("gr+personal").unwrap();
        assert!(own.name() == "gr" && own.reports_shared, "both are reported");
        for name in ["gr+alone", "mk:voters+pooled", "sk+alone", "gr+alone+shared"] {
            assert_eq!(MethodChoice::parse(name).map(MethodChoice::name).as_deref(), Some(name));
        }
        for name in ["gr/q8", "mk/q4-up", "sk/f16/every4/part2", "mk:voters/q8", "gr/part3+shared"]
        {
            assert_eq!(MethodChoice::parse(name).map(MethodChoice::name).as_deref(), Some(name));
        }
        for name in [
            "gr/",
            "gr/q9",
            "gr/q8/q4",
            "mk/every1",
            "mk/every2/every4",
            "local/q8",
            "last/q8",
            "gr/q8+alone",
            "gr+personal+alone",
            "gr+pooled+personal",
            "gr+pooled+shared",
            "mk+shared",
            "local+alone",
            "last+pooled",
            "+alone",
            "gr/-up",
        ] {
            assert_eq!(MethodChoice::parse(name), None, "{name}");
        }
        for name in
            ["mk:", "mk:voter", "MK", "mk:voters+", "sk:voters", "sk+personal", "last+personal"]
        {
            assert_eq!(MethodChoice::parse(name), None, "{name}");
        }
    }

    #[test]
    fn rates_go_evenly_from_the_first_node_to_the_last() {
        let rates = Arrivals::Rates(0.25, 4.0);
        let means: Vec<f64> = (0..5).map(|node| rates.mean(node, 5)).collect();
        assert_eq!(means, [0.25, 0.5, 1.0, 2.0, 4.0]);
        assert_eq!((rates.mean(0, 1), rates.bounds()), (0.25, (0.25, 4.0)));
    }
}

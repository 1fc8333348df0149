//! What can be chosen: whom to run, and how nodes come and go.

use hedgerow::Method;

/// Something that can be run and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// MK-OFL.
    Mk(MkVariant),
    /// SK-OFL with every kernel in turn.
    Sk,
    /// The naive extension.
    Naive,
    /// Centralised, sample by sample.
    Central,
    /// Centralised, a round at a time.
    CentralBatch,
    /// Every node alone.
    Local,
    /// The best fixed function.
    Hindsight,
    /// The last value that was known.
    Last,
    /// The node's running mean.
    Mean,
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
    /// As the paper has it.
    pub const PAPER: Self =
        Self { unnormalised: false, frequencies: false, no_k: false, voters: false, fixed_step: false };
    /// As the authors' code has it.
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
        let mut variant = Self::PAPER;
        for option in text.split('+') {
            let position = Self::OPTIONS.iter().position(|known| *known == option)?;
            *variant.flags()[position] = true;
        }
        Some(variant)
    }

    fn name(mut self) -> String {
        match self {
            Self::PAPER => "mk".to_owned(),
            Self::AUTHORS => "mk:authors".to_owned(),
            _ => {
                let flags = self.flags();
                let named = Self::OPTIONS.iter().zip(&flags).filter(|(_, flag)| ***flag);
                format!("mk:{}", named.map(|(name, _)| *name).collect::<Vec<_>>().join("+"))
            }
        }
    }
}

impl Contestant {
    /// Names, as listed in messages.
    pub const NAMES: [&str; 15] = [
        "mk",
        "sk",
        "naive",
        "central",
        "central-batch",
        "local",
        "hindsight",
        "last",
        "mean",
        "mk:authors",
        "mk:unnormalised",
        "mk:frequencies",
        "mk:no-k",
        "mk:voters",
        "mk:fixed-step",
    ];

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "mk" => Self::Mk(MkVariant::PAPER),
            "sk" => Self::Sk,
            "naive" => Self::Naive,
            "central" => Self::Central,
            "central-batch" => Self::CentralBatch,
            "local" => Self::Local,
            "hindsight" => Self::Hindsight,
            "last" => Self::Last,
            "mean" => Self::Mean,
            _ => Self::Mk(MkVariant::parse(name.strip_prefix("mk:")?)?),
        })
    }

    /// Name on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Mk(variant) => variant.name(),
            Self::Sk => "sk".to_owned(),
            Self::Naive => "naive".to_owned(),
            Self::Central => "central".to_owned(),
            Self::CentralBatch => "central-batch".to_owned(),
            Self::Local => "local".to_owned(),
            Self::Hindsight => "hindsight".to_owned(),
            Self::Last => "last".to_owned(),
            Self::Mean => "mean".to_owned(),
        }
    }

    /// Whether it needs no features: a forecast that anybody can make.
    pub fn is_trivial(self) -> bool {
        matches!(self, Self::Last | Self::Mean)
    }

    /// The paper's way, unless it is an MK-OFL of another.
    pub fn variant(self) -> MkVariant {
        if let Self::Mk(variant) = self { variant } else { MkVariant::PAPER }
    }

    /// The method whose budget rule decides its number of features.
    pub fn budget_method(self) -> Method {
        match self {
            Self::Sk => Method::SkOfl { kernel: 0 },
            Self::Naive => Method::Naive,
            Self::Local => Method::Local,
            _ => Method::MkOfl,
        }
    }
}

/// How nodes come and go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Participation {
    /// Share of node-rounds without contact.
    pub dropout: f64,
    /// Share of uploads that come too late.
    pub late: f64,
    /// First share of the rounds within which nodes join.
    pub join_within: f64,
    /// Samples per node and round.
    pub arrivals: Arrivals,
}

/// How many samples reach a node in a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// The same number in every round.
    Fixed(usize),
    /// A Poisson number with this mean.
    Poisson(f64),
    /// Poisson numbers with means from that of the first node to that of the last, evenly on a logarithmic scale.
    Rates(f64, f64),
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
    /// In words; empty if everyone is always there with one sample.
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
            parts.push(format!("nodes join within the first {}% of the rounds", percent(self.join_within)));
        }
        match self.arrivals {
            Arrivals::Fixed(1) => {}
            Arrivals::Fixed(count) => parts.push(format!("{count} samples per node and round")),
            Arrivals::Poisson(mean) => parts.push(format!("Poisson({mean}) samples per node and round")),
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
        for name in Contestant::NAMES {
            assert_eq!(Contestant::parse(name).map(Contestant::name).as_deref(), Some(name));
        }
        let both = Contestant::parse("mk:voters+no-k").unwrap();
        assert_eq!(both.name(), "mk:no-k+voters");
        for name in ["mk:", "mk:voter", "MK", "mk:voters+", "sk:voters"] {
            assert_eq!(Contestant::parse(name), None, "{name}");
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

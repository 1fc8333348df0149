//! What can be chosen: whom to run, and how nodes come and go.

use hedgerow::Method;

/// Something that can be run and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// MK-OFL.
    Mk,
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
}

impl Contestant {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Mk, Self::Sk, Self::Naive, Self::Central, Self::CentralBatch, Self::Local, Self::Hindsight];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mk => "mk",
            Self::Sk => "sk",
            Self::Naive => "naive",
            Self::Central => "central",
            Self::CentralBatch => "central-batch",
            Self::Local => "local",
            Self::Hindsight => "hindsight",
        }
    }

    /// The method whose budget rule decides its number of features.
    pub fn budget_method(self) -> Method {
        match self {
            Self::Sk => Method::SkOfl { kernel: 0 },
            Self::Naive => Method::Naive,
            Self::Local => Method::Local,
            Self::Mk | Self::Central | Self::CentralBatch | Self::Hindsight => Method::MkOfl,
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
}

impl Arrivals {
    /// Mean number of samples per node and round.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(count) => count as f64,
            Self::Poisson(mean) => mean,
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
        }
        parts.join(", ")
    }
}

//! Whom one could choose, and what is shown beside them.

use serde::Serialize;

/// What a method is in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Somebody could run it: it is ranked.
    Choice,
    /// All samples in one place, which is what a federation is there to avoid.
    Central,
    /// Known only afterwards.
    Hindsight,
    /// A forecast that takes no learning.
    Trivial,
}

impl Role {
    /// That of a method by its name. Variants (`mk:voters`, `gr/q8`) have that of their method; a
    /// name that is not known is a method like others.
    pub fn of(name: &str) -> Self {
        match name.split([':', '/']).next().unwrap_or(name) {
            "central" | "central-batch" => Self::Central,
            "sk" | "hindsight" => Self::Hindsight,
            "last" | "mean" => Self::Trivial,
            _ => Self::Choice,
        }
    }

    /// What stands in a table instead of a rank.
    pub fn words(self) -> &'static str {
        match self {
            Self::Choice => "",
            Self::Central => "central",
            Self::Hindsight => "hindsight",
            Self::Trivial => "trivial",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_have_the_role_of_their_method() {
        for (name, role) in [
            ("mk", Role::Choice),
            ("mk:voters", Role::Choice),
            ("gr/q8", Role::Choice),
            ("linear-newton", Role::Choice),
            ("local", Role::Choice),
            ("sk", Role::Hindsight),
            ("sk/q8", Role::Hindsight),
            ("hindsight", Role::Hindsight),
            ("central", Role::Central),
            ("central-batch", Role::Central),
            ("last", Role::Trivial),
            ("mean", Role::Trivial),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}

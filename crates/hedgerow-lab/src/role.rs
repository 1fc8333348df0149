//! The role of a method in a comparison, by its name.

use hedgerow::method::{Role, find};

use crate::settings::Scope;

/// The role of a method by its name. Variants (`mk:voters`, `gr/q8`) have that of their method; a
/// name that is not known is a method like others. With all samples in one place (`gr+pooled`), any
/// method is central.
pub(crate) fn role_of(name: &str) -> Role {
    if name.ends_with(Scope::Pooled.suffix()) {
        return Role::Central;
    }
    let method = name.split([':', '/', '+']).next().unwrap_or(name);
    find(method).map_or(Role::Choice, |info| info.role)
}

#[cfg(test)]
mod tests {
    use hedgerow::method::Role;

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
            ("gr+pooled", Role::Central),
            ("gr+alone", Role::Choice),
            ("central-batch", Role::Central),
            ("last", Role::Trivial),
            ("mean", Role::Trivial),
            ("previous", Role::Trivial),
        ] {
            assert_eq!(role_of(name), role, "{name}");
        }
    }
}

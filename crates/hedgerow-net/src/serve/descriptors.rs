//! [`Places`]: how many connections of each kind the system's limit of open files allows. Each kind
//! has places of its own, so that none can take those of the others.

/// File descriptors that the server needs for itself: store, log, backups, sockets that listen, and
/// the socket of operators.
const OWN: u64 = 40;

/// Most connections of readers of the dashboard; others wait until one ends.
const MOST_READERS: u64 = 256;

/// Most connections whose other end is not known yet; the oldest gives way to a new one.
const MOST_STRANGERS: u64 = 128;

/// Most connections of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    /// Of nodes, and of operators on their port.
    pub(super) nodes: usize,
    /// Of those who have not said who they are.
    pub(super) strangers: usize,
    /// Of the dashboard, with metrics and health.
    pub(super) readers: usize,
}

impl Places {
    /// With so many nodes at most, and so many files open in all, if there is a limit.
    pub(super) fn new(nodes: usize, limit: Option<u64>) -> Self {
        let rest = limit.map_or(u64::MAX, |limit| limit.saturating_sub(OWN));
        let share = |most| (rest / 4).clamp(1, most);
        let (strangers, readers) = (share(MOST_STRANGERS), share(MOST_READERS));
        let left = rest.saturating_sub(strangers + readers).max(1);
        let nodes = usize::try_from(left).map_or(nodes, |left| nodes.min(left));
        Self { nodes, strangers: strangers as usize, readers: readers as usize }
    }
}

/// Raises the limit of open files to the system's maximum, because every connection needs one.
/// Returns the limit, if there is one.
#[cfg(unix)]
pub(super) fn raise_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum
        || setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
    {
        maximum
    } else {
        current
    }
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(super) fn raise_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared() {
        let places = |limit| Places::new(20_000, limit);
        let of = |nodes, strangers, readers| Places { nodes, strangers, readers };
        assert_eq!(places(None), of(20_000, 128, 256));
        assert_eq!(places(Some(1_048_576)), of(20_000, 128, 256));
        assert_eq!(places(Some(1_024)), of(610, 128, 246));
        assert_eq!(places(Some(64)), of(12, 6, 6));
        assert_eq!(places(Some(10)), of(1, 1, 1));
        for limit in 44..5_000 {
            let Places { nodes, strangers, readers } = places(Some(limit));
            assert!((nodes + strangers + readers) as u64 + OWN <= limit, "{limit}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn descriptors_are_as_many_as_can_be_had() {
        let after = raise_limit();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!((after, limit.current), (limit.maximum, limit.maximum));
    }
}

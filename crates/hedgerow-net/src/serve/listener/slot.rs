//! [`Slot`]: connections are limited, in all and from one address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::coordinator::rules::Limits;

/// The number of open connections.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) all: usize,
    /// By [`neighbourhood`].
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's slot among them.
#[derive(Debug)]
pub(super) struct Slot {
    count: Arc<Mutex<Count>>,
    address: IpAddr,
}

impl Slot {
    /// None if there are too many.
    pub(super) fn take(
        count: &Arc<Mutex<Count>>,
        address: IpAddr,
        limits: &Limits,
    ) -> Option<Self> {
        let address = neighbourhood(address);
        let mut taken = lock(count);
        let from_there = taken.by_address.get(&address).copied().unwrap_or(0);
        if taken.all >= limits.connections || from_there >= limits.connections_per_address {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, from_there + 1);
        Some(Self { count: Arc::clone(count), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        count.all -= 1;
        if let Entry::Occupied(mut from_there) = count.by_address.entry(self.address) {
            *from_there.get_mut() -= 1;
            if *from_there.get() == 0 {
                from_there.remove();
            }
        }
    }
}

/// What counts as one address: the /64 of an IPv6 address, because its owner has all of it; an IPv4
/// address, also if it is written as IPv6.
pub(crate) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_by_address() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let count = Arc::default();
        let take = |last: u8| Slot::take(&count, IpAddr::from([10, 0, 0, last]), &limits);
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none(), "two from one address");
        let third = take(2);
        assert!(third.is_some() && take(3).is_none(), "three in all");
        drop(first);
        let fourth = take(1);
        assert!(fourth.is_some());
        drop((second, third, fourth));
        let left = lock(&count);
        assert_eq!((left.all, left.by_address.len()), (0, 0));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let limits = Limits { connections: 100, connections_per_address: 2, ..Limits::default() };
        let count = Arc::default();
        let take = |address: &str| Slot::take(&count, address.parse().unwrap(), &limits);
        let places = ["2001:db8::1", "2001:db8:0:0:ffff:ffff:ffff:ffff"].map(take);
        assert!(places.iter().all(Option::is_some) && take("2001:db8::7:0:0:2").is_none());
        let elsewhere = ["2001:db8:0:1::1", "2001:db9::1", "::1"].map(take);
        assert!(elsewhere.iter().all(Option::is_some), "other networks");
        // Those of IPv4 look alike in their first half, on a socket for both.
        let old = ["::ffff:10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2", "10.0.0.2"].map(take);
        assert!(old.iter().all(Option::is_some) && take("::ffff:10.0.0.1").is_none());
        drop((places, elsewhere, old));
        let left = lock(&count);
        assert_eq!((left.all, left.by_address.len()), (0, 0));
    }

    #[test]
    fn a_panic_elsewhere_closes_no_door() {
        let count = Arc::<Mutex<Count>>::default();
        let slot = Slot::take(&count, IpAddr::from([10, 0, 0, 1]), &Limits::default());
        let held = Arc::clone(&count);
        let panicked = std::thread::spawn(move || {
            let _held = held.lock();
            panic!("while it is held");
        });
        assert!(panicked.join().is_err() && count.is_poisoned());
        drop(slot);
        assert_eq!(lock(&count).all, 0);
        assert!(Slot::take(&count, IpAddr::from([10, 0, 0, 1]), &Limits::default()).is_some());
    }
}

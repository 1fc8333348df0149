//! [`Slot`]: connections are limited: those of one address, those of strangers, and those in all.
//! A connection is a stranger's until it has proved who it is.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::reasons::TurnedAway;
use crate::serve::descriptors::Places;

/// The number of open connections.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Those that are no strangers.
    pub(super) admitted: usize,
    /// By [`neighbourhood`].
    by_address: HashMap<IpAddr, usize>,
    /// The oldest first.
    strangers: VecDeque<Arc<Notify>>,
}

/// One connection's slot among them.
#[derive(Debug)]
pub(super) struct Slot {
    count: Arc<Mutex<Count>>,
    address: IpAddr,
    /// Told when a newer stranger takes its place; none once it is admitted.
    displaced: Option<Arc<Notify>>,
}

impl Slot {
    /// A stranger's slot. If there are too many strangers, the oldest gives way. None if there are
    /// too many connections from its address.
    pub(super) fn take(
        count: &Arc<Mutex<Count>>,
        address: IpAddr,
        (most_from_address, places): (usize, &Places),
    ) -> Option<Self> {
        let address = neighbourhood(address);
        let mut taken = lock(count);
        let from_there = taken.by_address.get(&address).copied().unwrap_or(0);
        if from_there >= most_from_address {
            return None;
        }
        taken.by_address.insert(address, from_there + 1);
        if taken.strangers.len() >= places.strangers
            && let Some(oldest) = taken.strangers.pop_front()
        {
            oldest.notify_one();
        }
        let displaced = Arc::new(Notify::new());
        taken.strangers.push_back(Arc::clone(&displaced));
        Some(Self { count: Arc::clone(count), address, displaced: Some(displaced) })
    }

    /// It is known who this is: it needs a place among the nodes.
    pub(super) fn admit(&mut self, places: &Places) -> Result<(), TurnedAway> {
        let mut count = lock(&self.count);
        if count.admitted >= places.nodes {
            return Err(TurnedAway::TooMany);
        }
        if let Some(displaced) = self.displaced.take() {
            count.admitted += 1;
            count.remove_stranger(&displaced);
        }
        Ok(())
    }

    /// Waits until a newer stranger takes its place.
    pub(super) async fn taken(&self) {
        match &self.displaced {
            Some(displaced) => displaced.notified().await,
            None => pending().await,
        }
    }
}

impl Count {
    fn remove_stranger(&mut self, stranger: &Arc<Notify>) {
        self.strangers.retain(|other| !Arc::ptr_eq(other, stranger));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut count = lock(&self.count);
        match &self.displaced {
            Some(displaced) => count.remove_stranger(displaced),
            None => count.admitted -= 1,
        }
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
    use futures_util::FutureExt;

    use super::*;

    const PLACES: Places = Places { nodes: 3, strangers: 100, readers: 1 };

    fn is_empty(count: &Mutex<Count>) -> bool {
        let left = lock(count);
        left.admitted == 0 && left.by_address.is_empty() && left.strangers.is_empty()
    }

    #[test]
    fn places_are_limited_in_all_and_by_address() {
        let count = Arc::default();
        let take = |last: u8| {
            let mut slot = Slot::take(&count, IpAddr::from([10, 0, 0, last]), (2, &PLACES))?;
            slot.admit(&PLACES).ok().map(|()| slot)
        };
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none(), "two from one address");
        let third = take(2);
        assert!(third.is_some() && take(3).is_none(), "three in all");
        drop(first);
        let fourth = take(1);
        assert!(fourth.is_some());
        drop((second, third, fourth));
        assert!(is_empty(&count));
    }

    #[test]
    fn strangers_take_no_place_of_a_node_and_give_way_to_newer_ones() {
        let places = Places { strangers: 2, ..PLACES };
        let count = Arc::default();
        let take = || Slot::take(&count, IpAddr::from([10, 0, 0, 1]), (100, &places)).unwrap();
        let mut node = take();
        node.admit(&places).unwrap();
        let strangers: Vec<Slot> = (0..5).map(|_| take()).collect();
        let displaced = |slot: &Slot| slot.taken().now_or_never().is_some();
        let of: Vec<bool> = strangers.iter().map(displaced).collect();
        assert_eq!(of, [true, true, true, false, false]);
        assert!(!displaced(&node));
        // Who proves in time who it is has a place, whatever comes after.
        let mut late = take();
        late.admit(&places).unwrap();
        let more: Vec<Slot> = (0..5).map(|_| take()).collect();
        assert!(!displaced(&late) && !displaced(&node));
        drop((node, strangers, late, more));
        assert!(is_empty(&count));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let count = Arc::default();
        let take = |address: &str| Slot::take(&count, address.parse().unwrap(), (2, &PLACES));
        let places = ["2001:db8::1", "2001:db8:0:0:ffff:ffff:ffff:ffff"].map(take);
        assert!(places.iter().all(Option::is_some) && take("2001:db8::7:0:0:2").is_none());
        let elsewhere = ["2001:db8:0:1::1", "2001:db9::1", "::1"].map(take);
        assert!(elsewhere.iter().all(Option::is_some), "other networks");
        // Those of IPv4 look alike in their first half, on a socket for both.
        let old = ["::ffff:10.0.0.1", "10.0.0.1", "::ffff:10.0.0.2", "10.0.0.2"].map(take);
        assert!(old.iter().all(Option::is_some) && take("::ffff:10.0.0.1").is_none());
        drop((places, elsewhere, old));
        assert!(is_empty(&count));
    }

    #[test]
    fn a_panic_elsewhere_closes_no_door() {
        let count = Arc::<Mutex<Count>>::default();
        let slot = Slot::take(&count, IpAddr::from([10, 0, 0, 1]), (9, &PLACES));
        let held = Arc::clone(&count);
        let panicked = std::thread::spawn(move || {
            let _held = held.lock();
            panic!("while it is held");
        });
        assert!(panicked.join().is_err() && count.is_poisoned());
        drop(slot);
        assert!(is_empty(&count));
        assert!(Slot::take(&count, IpAddr::from([10, 0, 0, 1]), (9, &PLACES)).is_some());
    }
}

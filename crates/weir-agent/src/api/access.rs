//! Who may do what: a peer's role follows from the credentials that the kernel gives, and from the groups of the settings.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// What a peer may do. Each role contains those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Log in with a link.
    Guest,
    /// See the metrics.
    Metrics,
    /// See everything that `weir status` and `weir history` show.
    Read,
    /// Change edges.
    Operate,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Guest => "guest",
            Role::Metrics => "metrics",
            Role::Read => "read",
            Role::Operate => "operate",
        }
    }
}

/// Where a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The Unix socket, where the kernel knows the peer.
    Socket,
    /// The TCP address of the metrics.
    Metrics,
    /// The TCP address of the page, where a session says who it is.
    Page,
    /// The TCP address for other hosts, where a certificate says who it is.
    Remote,
}

impl Listener {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Listener::Socket => "socket",
            Listener::Metrics => "metrics",
            Listener::Page => "page",
            Listener::Remote => "remote",
        }
    }
}

/// A peer of the Unix socket, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// Primary and supplementary groups.
    pub(crate) groups: Vec<u32>,
}

/// Groups with a role; root needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) read: Option<u32>,
    pub(crate) operate: Option<u32>,
}

impl Access {
    /// `None`: it has no business here.
    pub(crate) fn role(&self, peer: &Peer) -> Option<Role> {
        let is_of = |group: Option<u32>| group.is_some_and(|group| peer.groups.contains(&group));
        if peer.uid == 0 || is_of(self.operate) {
            return Some(Role::Operate);
        }
        is_of(self.read).then_some(Role::Read)
    }

    /// Whether others than root have a role.
    pub(crate) fn is_shared(&self) -> bool {
        self.read.is_some() || self.operate.is_some()
    }
}

/// Open connections by whose they are. One client cannot take those of others.
#[derive(Debug)]
pub(crate) struct Connections<K>(Arc<Mutex<HashMap<K, usize>>>);

impl<K> Default for Connections<K> {
    fn default() -> Connections<K> {
        Connections(Arc::default())
    }
}

/// A place among the connections; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Eq + Hash> {
    of: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Clone + Eq + Hash> Connections<K> {
    /// A place, if the client has less than so many, and all have less than so many. `None`: there are enough.
    pub(crate) fn enter(&self, key: K, most_of_one: usize, most: usize) -> Option<Place<K>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&key).copied().unwrap_or_default();
        let all: usize = open.values().sum();
        if own >= most_of_one || all >= most {
            return None;
        }
        open.insert(key.clone(), own + 1);
        Some(Place {
            of: Arc::clone(&self.0),
            key,
        })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut open = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_follow_from_user_and_groups() {
        let access = Access {
            read: Some(10),
            operate: Some(20),
        };
        let role = |uid, groups: &[u32]| {
            let groups = groups.to_vec();
            access.role(&Peer { uid, groups })
        };
        assert_eq!(role(0, &[]), Some(Role::Operate));
        assert_eq!(role(1000, &[20]), Some(Role::Operate));
        assert_eq!(role(1000, &[5, 10]), Some(Role::Read));
        assert_eq!(role(1000, &[10, 20]), Some(Role::Operate));
        assert_eq!(role(1000, &[0]), None, "the group of root has no role");
        let closed = Access::default();
        let groups = vec![0, 10];
        assert_eq!(closed.role(&Peer { uid: 1, groups }), None);
        assert!(Role::Read < Role::Operate);
    }

    #[test]
    fn a_client_takes_no_place_of_another() {
        let all = Connections::default();
        let enter = |key| all.enter(key, 3, 5);
        let mut places: Vec<Place<u32>> = (0..3).map(|_| enter(1).expect("free")).collect();
        assert!(enter(1).is_none(), "it has enough");
        places.extend((0..2).map(|_| enter(2).expect("free")));
        assert!(enter(3).is_none(), "all are taken");
        places.truncate(2);
        assert!(enter(3).is_some(), "left places are free");
    }
}

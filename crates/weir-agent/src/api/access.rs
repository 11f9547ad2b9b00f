//! Who may do what: a peer's role follows from the credentials that the kernel gives, and from the groups of the settings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::Limits;

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
pub(crate) enum Door {
    /// The Unix socket, where the kernel knows the peer.
    Socket,
    /// The TCP address of the metrics.
    Metrics,
    /// The TCP address of the page, where a session says who it is.
    Page,
}

impl Door {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Door::Socket => "socket",
            Door::Metrics => "metrics",
            Door::Page => "page",
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

/// Open connections. One user cannot take those of others, and all others cannot take those of root.
#[derive(Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<u32, usize>>>);

/// A place among the connections; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    of: Arc<Mutex<HashMap<u32, usize>>>,
    uid: u32,
}

impl Connections {
    /// `None`: there are enough.
    pub(crate) fn enter(&self, uid: u32, limits: &Limits) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&uid).copied().unwrap_or_default();
        let others: usize = open
            .iter()
            .filter(|(uid, _)| **uid != 0)
            .map(|(_, n)| n)
            .sum();
        let is_full = own >= limits.of_user || (uid != 0 && others >= limits.connections);
        if is_full {
            return None;
        }
        open.insert(uid, own + 1);
        Some(Place {
            of: Arc::clone(&self.0),
            uid,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.uid);
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
    fn a_user_takes_no_place_of_another_and_nobody_that_of_root() {
        let limits = Limits {
            connections: 5,
            of_user: 3,
            ..Limits::default()
        };
        let all = Connections::default();
        let enter = |uid| all.enter(uid, &limits);
        let mut places: Vec<Place> = (0..3).map(|_| enter(1).expect("free")).collect();
        assert!(enter(1).is_none(), "the user has enough");
        places.extend((0..2).map(|_| enter(2).expect("free")));
        assert!(enter(3).is_none(), "all are taken");
        let _root: Vec<Place> = (0..3)
            .map(|_| enter(0).expect("root has its own"))
            .collect();
        assert!(enter(0).is_none());
        places.truncate(2);
        assert!(enter(3).is_some(), "left places are free");
    }
}

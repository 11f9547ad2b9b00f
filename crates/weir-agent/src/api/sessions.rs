//! Sessions of the page. A link, asked for at the Unix socket, opens one; it has the user and the role of whoever asked for it.
//!
//! A session is a token that the page sends with each request, not a cookie: browsers send cookies of 127.0.0.1 to every port of it, so any local
//! user who serves something there could collect them. Tokens live in this process only: they end with the agent, and with its settings.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::access::Role;

/// How long a link is valid.
pub(crate) const LINK_TIME: Duration = Duration::from_secs(60);

/// How long a session lasts at most, and without a request.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(8 * 60 * 60);
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(30 * 60);

/// Links and sessions of one user; a new one replaces the oldest.
const LINKS: usize = 4;
pub(crate) const SESSIONS: usize = 8;

/// Bytes of codes and tokens, which are random.
const BYTES: usize = 24;

/// Whose a link or a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) role: Role,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    owner: Owner,
    since: Instant,
    used: Instant,
}

impl Opened {
    fn left(&self, now: Instant) -> Option<Duration> {
        let whole = (self.since + SESSION_TIME).checked_duration_since(now)?;
        let idle = (self.used + IDLE_TIME).checked_duration_since(now)?;
        // Neither is over at its very end.
        (!whole.is_zero() && !idle.is_zero()).then_some(whole)
    }
}

#[derive(Debug, Default)]
struct All {
    links: HashMap<String, Opened>,
    sessions: HashMap<String, Opened>,
}

/// Links and sessions. A look-up hashes with a key of this process, so its time says nothing of what is there.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<All>);

impl Sessions {
    /// The code of a new link.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn link(&self, owner: Owner, now: Instant) -> io::Result<String> {
        let code = random()?;
        let mut all = self.lock();
        all.links.retain(|_, link| link.since + LINK_TIME > now);
        make_room(&mut all.links, owner.uid, LINKS);
        all.links.insert(code.clone(), opened(owner, now));
        Ok(code)
    }

    /// The token of a session for the code of a link, which is used up; `None`: there is no such link any more.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn open(&self, code: &str, now: Instant) -> io::Result<Option<(String, Owner)>> {
        let token = random()?;
        let mut all = self.lock();
        let link = all.links.remove(code);
        let Some(link) = link.filter(|link| link.since + LINK_TIME > now) else {
            return Ok(None);
        };
        all.sessions.retain(|_, one| one.left(now).is_some());
        make_room(&mut all.sessions, link.owner.uid, SESSIONS);
        all.sessions.insert(token.clone(), opened(link.owner, now));
        Ok(Some((token, link.owner)))
    }

    /// Whose a session is, and how long it lasts yet. It counts as used.
    pub(crate) fn find(&self, token: &str, now: Instant) -> Option<(Owner, Duration)> {
        let mut all = self.lock();
        let session = all.sessions.get_mut(token)?;
        let left = session.left(now)?;
        session.used = now;
        Some((session.owner, left))
    }

    /// Whether a session goes on; this does not keep it alive.
    pub(crate) fn is_open(&self, token: &str, now: Instant) -> bool {
        let all = self.lock();
        let session = all.sessions.get(token);
        session.is_some_and(|session| session.left(now).is_some())
    }

    pub(crate) fn end(&self, token: &str) {
        self.lock().sessions.remove(token);
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opened(owner: Owner, now: Instant) -> Opened {
    Opened {
        owner,
        since: now,
        used: now,
    }
}

/// Removes the oldest of a user, if it has as many as it may.
fn make_room(all: &mut HashMap<String, Opened>, uid: u32, most: usize) {
    let own = |one: &&Opened| one.owner.uid == uid;
    if all.values().filter(own).count() < most {
        return;
    }
    let oldest = all
        .iter()
        .filter(|(_, one)| one.owner.uid == uid)
        .min_by_key(|(_, one)| one.since);
    if let Some(name) = oldest.map(|(name, _)| name.clone()) {
        all.remove(&name);
    }
}

fn random() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIM: Owner = Owner {
        uid: 7,
        role: Role::Read,
    };

    #[test]
    fn a_link_opens_one_session_in_time() {
        let all = Sessions::default();
        let now = Instant::now();
        let code = all.link(KIM, now).expect("random");
        assert_eq!(all.open("other", now).expect("random"), None);
        let (token, owner) = all.open(&code, now).expect("random").expect("a session");
        assert_eq!(owner, KIM);
        assert_ne!(token, code);
        assert_eq!(all.open(&code, now).expect("random"), None, "used up");
        assert_eq!(all.find(&code, now), None, "a code is no token");
        assert_eq!(all.find(&token, now), Some((KIM, SESSION_TIME)));
        let late = all.link(KIM, now).expect("random");
        let after = now + LINK_TIME;
        assert_eq!(all.open(&late, after).expect("random"), None, "expired");
        all.end(&token);
        assert_eq!(all.find(&token, now), None);
    }

    #[test]
    fn sessions_end_when_idle_and_after_hours() {
        let all = Sessions::default();
        let now = Instant::now();
        let open = |at| {
            let code = all.link(KIM, at).expect("random");
            all.open(&code, at).expect("random").expect("a session").0
        };
        let (idle, busy) = (open(now), open(now));
        let step = IDLE_TIME / 2;
        for at in 1..=15 {
            assert!(all.find(&busy, now + step * at).is_some(), "step {at}");
            let lives = all.is_open(&idle, now + step * at);
            assert_eq!(lives, at < 2, "step {at}");
        }
        assert_eq!(all.find(&busy, now + SESSION_TIME), None);
    }

    #[test]
    fn a_user_replaces_its_own_oldest_session_only() {
        let all = Sessions::default();
        let now = Instant::now();
        let other = Owner { uid: 8, ..KIM };
        let open = |owner, at| {
            let code = all.link(owner, at).expect("random");
            all.open(&code, at).expect("random").expect("a session").0
        };
        let first = open(other, now);
        let own: Vec<String> = (0..=SESSIONS as u32)
            .map(|at| open(KIM, now + Duration::from_millis(at.into())))
            .collect();
        let at = now + Duration::from_secs(1);
        let found = own.iter().map(|token| all.find(token, at).is_some());
        let expected = (0..=SESSIONS).map(|number| number > 0);
        assert!(found.eq(expected));
        assert!(all.find(&first, at).is_some());
        let codes: Vec<String> = (0..=LINKS as u32)
            .map(|more| all.link(KIM, at + Duration::from_millis(more.into())))
            .collect::<io::Result<_>>()
            .expect("random");
        assert_eq!(all.open(&codes[0], at).expect("random"), None, "replaced");
        assert!(all.open(&codes[1], at).expect("random").is_some());
    }
}

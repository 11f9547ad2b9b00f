//! What agent and API share: how files and children stand, the latest events, and requests that the agent's loop carries out.
//!
//! Events are in one ring, whoever reads them: a client is a position in it. So a slow client takes no memory, and learns how many it missed.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agent::View;
use crate::event::Event;

/// Events that are kept for clients.
pub(crate) const KEPT: usize = 1024;

/// How the agent stands, as it is answered.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    view: &'a View,
    version: &'static str,
    newest_event: u64,
}

/// An event, as clients get it.
#[derive(Serialize)]
struct Published<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// In a sentence.
    text: String,
    number: u64,
    time: u64,
}

/// An event that is kept.
#[derive(Clone, Debug)]
struct Numbered {
    number: u64,
    /// Seconds since 1970.
    time: u64,
    name: String,
    data: String,
}

#[derive(Debug, Default)]
struct Ring {
    /// Number of the newest, from 1; 0: none was.
    newest: u64,
    events: VecDeque<Numbered>,
}

/// What is shared.
#[derive(Debug)]
pub(crate) struct Hub {
    view: Mutex<View>,
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub {
            view: Mutex::default(),
            ring: Mutex::default(),
            newest: watch::channel(0).0,
        }
    }
}

impl Hub {
    pub(crate) fn show(&self, view: View) {
        *lock(&self.view) = view;
    }

    pub(crate) fn publish(&self, event: &Event) {
        let time = now();
        let mut ring = lock(&self.ring);
        ring.newest += 1;
        let number = ring.newest;
        let data = json!(Published {
            event,
            text: event.to_string(),
            number,
            time
        });
        let name = data.get("event").and_then(Value::as_str);
        ring.events.push_back(Numbered {
            number,
            time,
            name: name.unwrap_or_default().to_owned(),
            data: data.to_string(),
        });
        if ring.events.len() > KEPT {
            ring.events.pop_front();
        }
        drop(ring);
        self.newest.send_replace(number);
    }

    pub(crate) fn current(&self) -> View {
        lock(&self.view).clone()
    }

    pub(crate) fn view(&self) -> Value {
        let newest_event = self.newest();
        json!(Shown {
            view: &lock(&self.view),
            version: env!("CARGO_PKG_VERSION"),
            newest_event,
        })
    }

    /// The file that an edge is held to.
    pub(crate) fn file_of(&self, edge: &str) -> Option<PathBuf> {
        let view = lock(&self.view);
        let mut files = view.files.iter();
        let found = files.find(|row| row.edge.as_deref() == Some(edge));
        found.map(|row| row.file.clone())
    }

    /// Number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        lock(&self.ring).newest
    }

    /// The number of the newest event, as it changes.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The events after a number, and not older than a time. Their number is bounded by what is kept.
    pub(crate) fn log(&self, after: u64, since: u64) -> Value {
        let ring = lock(&self.ring);
        let events = ring
            .events
            .iter()
            .filter(|one| one.number > after && one.time >= since);
        // They were made by `json!`: what is not JSON is not there.
        let events: Vec<Value> = events
            .filter_map(|one| serde_json::from_str(&one.data).ok())
            .collect();
        let oldest = ring.events.front();
        json!({
            "events": events,
            "newest": ring.newest,
            "missed": oldest.map_or(0, |one| (one.number - 1).saturating_sub(after)),
            "oldest_time": oldest.map_or(0, |one| one.time),
        })
    }

    /// The events after a number as text of an event stream, at most `most` of them, and the number of the last. Where some of them are not
    /// kept any more, an event `missed` says how many come first.
    pub(crate) fn after(&self, number: u64, most: usize) -> (String, u64) {
        let ring = lock(&self.ring);
        // A number of another agent's life is ahead of this one's: all that is kept is new to that client.
        let from = if number > ring.newest { 0 } else { number };
        let mut text = String::new();
        let mut last = from;
        let oldest = ring
            .events
            .front()
            .map_or(ring.newest + 1, |one| one.number);
        if oldest > from + 1 {
            let missed = oldest - from - 1;
            last = oldest - 1;
            text.push_str(&format!(
                "id: {last}\nevent: missed\ndata: {{\"event\":\"missed\",\"events\":{missed}}}\n\n"
            ));
        }
        for one in ring
            .events
            .iter()
            .filter(|one| one.number > last)
            .take(most)
        {
            text.push_str(&format!(
                "id: {}\nevent: {}\ndata: {}\n\n",
                one.number, one.name, one.data
            ));
        }
        let ahead = ring.newest.min(last + most as u64);
        (text, ahead.max(last))
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole at every step.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<u64> {
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.map(|id| id.parse().expect("a number")).collect()
    }

    #[test]
    fn a_slow_client_learns_how_many_it_missed() {
        let hub = Hub::default();
        let say = |hub: &Hub, at: usize| {
            hub.publish(&Event::Removed {
                edge: format!("e{at}\nid: 99"),
            });
        };
        assert_eq!(hub.after(0, 10), (String::new(), 0));
        (0..10).for_each(|at| say(&hub, at));
        let (text, last) = hub.after(0, 4);
        assert_eq!((numbers(&text), last), (vec![1, 2, 3, 4], 4));
        let (text, last) = hub.after(last, 100);
        assert_eq!((numbers(&text), last), ((5..=10).collect(), 10));
        assert_eq!(hub.after(last, 100), (String::new(), 10), "no event twice");
        (10..10 + KEPT).for_each(|at| say(&hub, at));
        let (text, last) = hub.after(4, 1);
        assert_eq!((numbers(&text), last), (vec![10, 11], 11));
        assert!(text.contains(r#"{"event":"missed","events":6}"#), "{text}");
        let log = hub.log(4, 0);
        let count = log["events"].as_array().map(Vec::len);
        assert_eq!((count, &log["missed"]), (Some(KEPT), &json!(6)));
        assert_eq!(
            log["events"][0]["text"],
            "edge e10\nid: 99: its file is gone, taken down"
        );
        let log = hub.log(hub.newest() - 1, 0);
        assert_eq!(
            (&log["events"][0]["number"], &log["missed"]),
            (&log["newest"], &json!(0))
        );
        assert_eq!(hub.log(0, now() + 9)["events"], json!([]));
        // The agent began again: its numbers did, too.
        let (text, _) = hub.after(5000, 2 * KEPT);
        assert_eq!(numbers(&text).len(), KEPT + 1);
    }
}

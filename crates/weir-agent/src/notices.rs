//! Drops as events of the API. Counters are read at an interval; a cause that goes on
//! is an event a minute, so noise does not push other events out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_engine::edge;
use weir_packet::{Fate, Reason};

use crate::event::Event;

/// Between two readings of counters.
const INTERVAL: Duration = Duration::from_secs(5);

/// Between two events of one cause.
const PAUSE: Duration = Duration::from_secs(60);

/// Causes that are reported at one reading, those with most packets first.
const CAUSES: usize = 20;

/// The edge, the port or function, and the index of the reason.
type Cause = (String, String, usize);

/// Counters of drops, as they were last reported.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    read: Option<Instant>,
    reported: BTreeMap<Cause, Reported>,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    packets: u64,
    at: Instant,
    /// An event was reported since counting began.
    is_known: bool,
}

impl Drops {
    /// Events of drops since the last ones. Edges that cannot be read have none: the agent reports those.
    pub(crate) fn look<'e>(
        &mut self,
        edges: impl Iterator<Item = &'e str>,
        now: Instant,
    ) -> Vec<Event> {
        if self.read.is_some_and(|read| read + INTERVAL > now) {
            return Vec::new();
        }
        self.read = Some(now);
        let mut counted = BTreeMap::new();
        for edge in edges {
            let Ok(status) = edge::status(edge) else {
                continue;
            };
            let ports = status.ports.iter().map(|port| (&port.name, &port.ledger));
            let functions = status.instances.iter().map(|one| (&one.name, &one.ledger));
            for (name, ledger) in ports.chain(functions) {
                for (index, packets) in ledger.reason.iter().enumerate() {
                    counted.insert((edge.to_owned(), name.clone(), index), *packets);
                }
            }
        }
        self.compare(counted, now)
    }

    fn compare(&mut self, counted: BTreeMap<Cause, u64>, now: Instant) -> Vec<Event> {
        // What is gone begins again, if it comes back.
        self.reported.retain(|cause, _| counted.contains_key(cause));
        let mut due = Vec::new();
        for (cause, packets) in counted {
            let reason = u32::try_from(cause.2).ok().and_then(Reason::from_index);
            let Some(reason) = reason.filter(|reason| reason.fate() == Fate::Drop) else {
                continue;
            };
            let reported = self.reported.entry(cause.clone()).or_insert(Reported {
                packets,
                at: now,
                is_known: false,
            });
            // Counters that begin again.
            reported.packets = reported.packets.min(packets);
            let new = packets - reported.packets;
            if new == 0 {
                // Quiet: the next packet is reported at once.
                if now.duration_since(reported.at) >= PAUSE {
                    reported.is_known = false;
                }
                continue;
            }
            if !reported.is_known || now.duration_since(reported.at) >= PAUSE {
                due.push((new, cause, reason));
            }
        }
        due.sort_by_key(|(new, ..)| std::cmp::Reverse(*new));
        let mut events = Vec::new();
        for (new, cause, reason) in due.into_iter().take(CAUSES) {
            let Some(reported) = self.reported.get_mut(&cause) else {
                continue;
            };
            let since = match reported.is_known {
                true => now.duration_since(reported.at),
                false => INTERVAL,
            };
            *reported = Reported {
                packets: reported.packets + new,
                at: now,
                is_known: true,
            };
            let (edge, stage, _) = cause;
            events.push(Event::Drops {
                edge,
                stage,
                reason: reason.name(),
                packets: new,
                seconds: since.as_secs(),
            });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_at_once_and_then_once_a_minute() {
        let drops = Reason::ALL.iter().filter(|one| one.fate() == Fate::Drop);
        let index = drops.map(|one| one.index()).next().expect("a reason") as usize;
        let mut all = Drops::default();
        let begin = Instant::now();
        let mut at = |seconds: u64, packets: u64| -> Vec<(u64, u64)> {
            let counted = [(("office".to_owned(), "wan".to_owned(), index), packets)];
            let events = all.compare(counted.into(), begin + Duration::from_secs(seconds));
            let figures = events.iter().map(|event| match event {
                Event::Drops {
                    packets, seconds, ..
                } => (*packets, *seconds),
                other => panic!("{other}"),
            });
            figures.collect()
        };
        assert_eq!(at(0, 1000), [], "what was before the agent");
        assert_eq!(at(5, 1000), []);
        assert_eq!(at(10, 1003), [(3, 5)]);
        assert_eq!(at(15, 1010), [], "it goes on");
        assert_eq!(at(70, 1020), [(17, 60)]);
        // Nothing for more than a minute, then again.
        assert_eq!(at(200, 1020), []);
        assert_eq!(at(205, 1021), [(1, 5)]);
        // The edge was applied again and counts from 0.
        assert_eq!(at(300, 0), []);
        assert_eq!(at(305, 2), [(2, 5)]);
    }
}

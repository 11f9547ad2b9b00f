//! The events of one packet put together: where it came in, what every function made of it, how it left.
//!
//! A CPU has one packet at a time and the ring keeps the order, so that one unfinished journey for each CPU is all there is to
//! remember. Invariant: a journey whose events were lost in part is never shown as whole.

use std::collections::HashMap;

use weir_bpf::abi::{WatchEvent, watch};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What was said.
    pub event: WatchEvent,
    /// The packet's first bytes there.
    pub bytes: Vec<u8>,
}

/// A packet's way through the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journey {
    /// Its stages in order.
    pub stages: Vec<Stage>,
}

impl Journey {
    /// Where it came in; `None` if that was not asked for, or lost.
    pub fn entry(&self) -> Option<&Stage> {
        self.stages
            .first()
            .filter(|stage| stage.event.kind == watch::ENTRY)
    }

    /// How it left; `None` if that event was lost.
    pub fn end(&self) -> Option<&Stage> {
        self.stages
            .last()
            .filter(|stage| stage.event.kind & watch::END != 0)
    }

    /// Whether no event of it is missing.
    pub fn is_whole(&self) -> bool {
        let Some(end) = self.end() else {
            return false;
        };
        let calls = self
            .stages
            .iter()
            .filter(|stage| stage.event.kind == watch::ON)
            .count();
        // A call that found no program was said to go on, and taken back.
        let was_dropped = end.event.kind & watch::DROP != 0;
        let slot = end.event.next_slot;
        let missed = was_dropped && slot != 0 && slot < weir_bpf::abi::panel::STACK;
        let taken_back = u32::from(missed && end.event.vid != 0);
        self.entry().is_some() && calls as u32 == end.event.hop + taken_back
    }
}

/// Journeys under way.
#[derive(Clone, Debug, Default)]
pub struct Journeys {
    by_cpu: HashMap<u32, Journey>,
}

impl Journeys {
    /// Adds an event. Returns journeys that ended: with it, or without an end because a later packet came to the CPU.
    pub fn add(&mut self, event: &WatchEvent, bytes: &[u8]) -> Vec<Journey> {
        let mut ended = Vec::new();
        let here = self.by_cpu.entry(event.cpu).or_default();
        let before = here.stages.first().map(|stage| stage.event.number);
        if before.is_some_and(|number| number != event.number) {
            ended.push(std::mem::take(here));
        }
        here.stages.push(Stage {
            event: *event,
            bytes: bytes.to_vec(),
        });
        if event.kind & watch::END != 0 {
            ended.push(std::mem::take(here));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cpu: u32, number: u64, kind: u32, hop: u32) -> WatchEvent {
        WatchEvent {
            time_ns: 0,
            number,
            generation: 1,
            session: 1,
            cpu,
            kind,
            hop,
            vid: hop + 1,
            port: 1,
            verdict: 2,
            out: 0,
            next_vid: 0,
            next_slot: 0,
            reason: 0,
            len: 60,
            snap: 0,
            queue: 0,
            path: [0; watch::PATH],
        }
    }

    #[test]
    fn packets_of_two_cpus_are_told_apart() {
        let mut journeys = Journeys::default();
        let end = watch::END;
        for (cpu, kind, hop, ended) in [
            (0, watch::ENTRY, 0, 0),
            (1, watch::ENTRY, 0, 0),
            (0, watch::ON, 0, 0),
            (1, end, 0, 1),
            (0, end, 1, 1),
        ] {
            let done = journeys.add(&event(cpu, 7, kind, hop), &[]);
            assert_eq!(done.len(), ended);
            assert!(done.iter().all(Journey::is_whole));
        }
    }

    #[test]
    fn a_lost_event_shows() {
        let mut journeys = Journeys::default();
        journeys.add(&event(0, 1, watch::ENTRY, 0), &[]);
        let ended = journeys.add(&event(0, 2, watch::ENTRY, 0), &[]);
        assert_eq!(ended.len(), 1);
        assert!(!ended[0].is_whole(), "its end is missing");
        // Its second function said so, its first did not.
        let ended = journeys.add(&event(0, 2, watch::END, 1), &[]);
        assert!(!ended[0].is_whole());
    }
}

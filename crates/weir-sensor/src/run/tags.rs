//! Packets after an alert that its rule wants logged (`tag`): found where alerts come together in the order of packets, as a host is tagged for all workers.
//!
//! Workers say of each frame which flow it is of, if any rule has a tag. While something is tagged, frames are decoded here once more for their addresses.

use std::net::IpAddr;

use foldhash::HashMap;

use weir_packet::pcap::LinkType;

use crate::decode::Decoder;
use crate::detect::Match;
use crate::output::eve::{self, EveOptions};
use crate::rules::{Tag, TagMetric, TagScope};
use crate::source::Frame;
use crate::worker::{packet_head, packet_link};

/// Flows and hosts that are tagged at a time; the one that was tagged first goes.
const MOST: usize = 4096;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// What is tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tagged {
    Flow(u64),
    Host(IpAddr),
}

/// How long it is tagged still, for one rule.
#[derive(Debug)]
struct Count {
    /// Rule, and which of its tags.
    of: (u32, usize),
    tag: Tag,
    /// The packet of the alert, and its time.
    packet: u64,
    since: u64,
    /// Packets or bytes from that packet on.
    done: u64,
}

impl Count {
    /// Counts a packet; returns whether it is logged, and whether others may be.
    fn take(&mut self, number: u64, time: u64, bytes: u64) -> bool {
        if number < self.packet {
            return true;
        }
        self.done += match self.tag.metric {
            TagMetric::Packets => 1,
            TagMetric::Bytes => bytes,
            TagMetric::Seconds => 0,
        };
        let seconds = time.saturating_sub(self.since) / SECOND;
        let spent = match self.tag.metric {
            TagMetric::Seconds => seconds,
            TagMetric::Packets | TagMetric::Bytes => self.done,
        };
        spent <= u64::from(self.tag.count)
    }
}

/// All that is tagged.
pub(super) struct Tags {
    decoder: Decoder,
    active: HashMap<Tagged, Vec<Count>>,
    /// In the order in which they were tagged.
    order: std::collections::VecDeque<Tagged>,
}

impl Tags {
    pub(super) fn new(decoder: Decoder) -> Tags {
        Tags {
            decoder,
            active: HashMap::default(),
            order: std::collections::VecDeque::new(),
        }
    }

    /// A rule with tags has alerted.
    pub(super) fn begin(&mut self, found: &Match, tags: &[Tag]) {
        for (place, tag) in tags.iter().enumerate() {
            let what = match tag.scope {
                TagScope::Session => match found.flow {
                    Some(flow) => Tagged::Flow(flow),
                    None => continue,
                },
                TagScope::Source => Tagged::Host(found.source.0),
                TagScope::Destination => Tagged::Host(found.destination.0),
            };
            let count = Count {
                of: (found.rule, place),
                tag: *tag,
                packet: found.packet,
                since: found.time,
                done: 0,
            };
            let list = self.active.entry(what).or_insert_with(|| {
                self.order.push_back(what);
                Vec::new()
            });
            // Another alert of the rule begins its count again.
            match list.iter_mut().find(|c| c.of == count.of) {
                Some(known) => *known = count,
                None => list.push(count),
            }
        }
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.active.remove(&oldest);
            }
        }
    }

    /// Whether nothing is tagged.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// A frame: writes its record, if it is of what is tagged. The packet of the alert itself has none.
    pub(super) fn frame(
        &mut self,
        (frame, number, flow): (&Frame, u64, u64),
        bytes: &[u8],
        out: &mut Vec<u8>,
        options: &EveOptions,
    ) -> bool {
        let link = LinkType(frame.link);
        let mut packet = (self.decoder).frame_with(link, frame.time, number, bytes, frame.sums);
        packet.interface = frame.interface;
        let ends = packet.ip.as_ref().map(|ip| (ip.source, ip.destination));
        let ends = ends.map_or([None; 2], |(a, b)| [Some(a), Some(b)]);
        let hosts = ends.into_iter().flatten().map(Tagged::Host);
        let (mut logged, mut alerted) = (false, false);
        for what in hosts.chain([Tagged::Flow(flow)]) {
            let Some(list) = self.active.get_mut(&what) else {
                continue;
            };
            list.retain_mut(|count| {
                let goes_on = count.take(number, frame.time, bytes.len() as u64);
                logged |= goes_on && number > count.packet;
                alerted |= number == count.packet;
                goes_on
            });
            if list.is_empty() {
                self.active.remove(&what);
                self.order.retain(|one| *one != what);
            }
        }
        if !logged || alerted {
            return false;
        }
        let head = packet_head(&packet, flow);
        let link = packet_link(&packet, frame.link);
        eve::tagged(out, &head, (packet.data, link), options);
        true
    }
}

//! Fragments to datagrams, as the receiver's system would put them together where fragments overlap ("Target-Based Fragmentation Reassembly", Novak 2005).
//!
//! Bounded: datagrams in progress, bytes of all, fragments of one; the oldest datagram goes first. Times are the capture's. Overlapping IPv6 fragments lose their datagram
//! (RFC 5722), exact copies excepted. A datagram given up stays known until its timeout, so that what follows of it is not taken for another. Not here: whose fragments
//! they are is decided by addresses, identification, protocol and VLAN; workers get all fragments of a pair of addresses.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::ops::Range;

use crate::decode::{bits, mix};
use crate::event::{Event, Events};
use crate::packet::{Ip, Packet};

/// No datagram is longer, headers included.
const LARGEST: usize = 65_535;

/// Which bytes win where fragments overlap. A rule compares offsets of a fragment held (what is left of it) and a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// What came first.
    First,
    /// What came last.
    Last,
    /// The one that begins first; of two that begin together, the one that came first.
    #[default]
    Bsd,
    /// The one that begins last; of two that begin together, the one that came last.
    BsdRight,
    /// The one that begins first; of two that begin together, the one that came last.
    Linux,
    /// What came first, unless the new one reaches beyond it at both ends.
    Windows,
    /// What came first, unless the new one begins before it and reaches its end.
    Solaris,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 7] = [
        Policy::First,
        Policy::Last,
        Policy::Bsd,
        Policy::BsdRight,
        Policy::Linux,
        Policy::Windows,
        Policy::Solaris,
    ];

    /// By its name in configurations, which is that of a system: as it was found to behave ("Target-Based Fragmentation Reassembly").
    pub fn named(word: &str) -> Option<Policy> {
        Some(match word {
            "first" | "hpux11" | "hpux" | "macos" | "mac" | "old-solaris" | "old_solaris" => {
                Policy::First
            }
            "last" => Policy::Last,
            "bsd" => Policy::Bsd,
            "bsd-right" | "bsd_right" => Policy::BsdRight,
            "linux" | "old-linux" | "old_linux" => Policy::Linux,
            "windows" | "vista" | "windows2003" | "windows2k3" | "win2003" => Policy::Windows,
            "solaris" => Policy::Solaris,
            "irix" | "hpux10" => Policy::Bsd,
            _ => return None,
        })
    }

    fn takes_new(self, held: &Range<usize>, new: &Range<usize>) -> bool {
        match self {
            Policy::First => false,
            Policy::Last => true,
            Policy::Bsd => new.start < held.start,
            Policy::BsdRight => new.start >= held.start,
            Policy::Linux => new.start <= held.start,
            Policy::Windows => new.start < held.start && new.end > held.end,
            Policy::Solaris => new.start < held.start && new.end >= held.end,
        }
    }
}

/// How fragments are put together.
#[derive(Clone, Debug)]
pub struct DefragConfig {
    /// The policy of receivers that `hosts` does not name.
    pub policy: Policy,
    /// Policies of receivers: address, length of its prefix; the longest prefix counts.
    pub hosts: Vec<(IpAddr, u8, Policy)>,
    /// Seconds that a datagram may take from its first fragment on.
    pub timeout: u32,
    /// Datagrams in progress.
    pub datagrams: usize,
    /// Bytes that they may occupy.
    pub memory: usize,
    /// Fragments of a datagram.
    pub fragments: usize,
}

impl Default for DefragConfig {
    fn default() -> Self {
        DefragConfig {
            policy: Policy::default(),
            hosts: Vec::new(),
            timeout: 60,
            datagrams: 65_536,
            memory: 32 << 20,
            fragments: 1024,
        }
    }
}

/// What became of fragments: `fragments == used + timeout + evicted + dropped + overlap + invalid + pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fragments given.
    pub fragments: u64,
    /// Those of IPv6.
    pub fragments6: u64,
    /// Those of datagrams that became whole.
    pub used: u64,
    /// Those of datagrams that took too long.
    pub timeout: u64,
    /// Those of datagrams that were the oldest at a cap.
    pub evicted: u64,
    /// Those over the cap of a datagram's fragments, and all others of such a datagram.
    pub dropped: u64,
    /// Those of IPv6 datagrams with overlaps.
    pub overlap: u64,
    /// Those that end beyond the largest datagram, or are not the last and no multiple of 8 bytes long, or contradict the datagram's end, or are empty.
    pub invalid: u64,
    /// Those of datagrams still known, whole or given up: counted elsewhere when it ends.
    pub pending: u64,
    /// Datagrams put together.
    pub whole: u64,
    /// The same, of IPv6.
    pub whole6: u64,
    /// The most bytes that were occupied.
    pub peak: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: u128,
    destination: u128,
    /// Identification, protocol (IPv4 only), version, depth.
    rest: u64,
    tags: u64,
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut hash = mix(self.tags, self.rest);
        for word in [
            self.source as u64,
            (self.source >> 64) as u64,
            self.destination as u64,
            (self.destination >> 64) as u64,
        ] {
            hash = mix(hash, word);
        }
        state.write_u64(hash);
    }
}

/// Keys are mixed already.
#[derive(Default)]
struct Pass(u64);

impl Hasher for Pass {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[derive(Debug)]
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }
}

#[derive(Debug)]
struct Datagram {
    /// Distinguishes it from later ones with the same key, in the queue of ages.
    serial: u64,
    /// Time of its first fragment.
    since: u64,
    policy: Policy,
    /// Header of the fragment with offset 0; of IPv6 without the fragment header.
    header: Vec<u8>,
    /// Sorted, not overlapping.
    pieces: Vec<Piece>,
    /// Length of what it carries, once the last fragment was seen.
    end: Option<usize>,
    fragments: usize,
    /// Given up; what follows of it is given up as well.
    dead: Option<Dead>,
    memory: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dead {
    Overlap,
    TooMany,
}

/// What a datagram costs beside its bytes.
const DATAGRAM: usize = size_of::<Datagram>() + size_of::<Key>() + 64;

/// Puts fragments together.
#[derive(Debug, Default)]
pub struct Defragmenter {
    config: DefragConfig,
    datagrams: HashMap<Key, Datagram, BuildHasherDefault<Pass>>,
    /// Datagrams by age; those that are done are still in it until they are first.
    ages: VecDeque<(u64, u64, Key)>,
    serial: u64,
    memory: usize,
    counts: Counts,
    now: u64,
    /// The datagram that became whole last.
    buffer: Vec<u8>,
}

impl Defragmenter {
    /// One of a worker.
    pub fn new(config: DefragConfig) -> Defragmenter {
        Defragmenter {
            config,
            ..Defragmenter::default()
        }
    }

    /// From here on, fragments may occupy so many bytes.
    pub(crate) fn limit(&mut self, memory: usize) {
        self.config.memory = memory;
    }

    /// What became of fragments.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes occupied.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Takes a fragment. If it makes its datagram whole, that is returned, from its IP header on; `events` are of this fragment.
    pub fn fragment(&mut self, packet: &Packet<'_>, events: &mut Events) -> Option<&[u8]> {
        let ip = packet.ip.as_ref().filter(|ip| ip.fragment)?;
        self.counts.fragments += 1;
        self.counts.fragments6 += u64::from(ip.source.is_ipv6());
        self.now = self.now.max(packet.time);
        self.expire();
        let v6 = ip.source.is_ipv6();
        let names = if v6 {
            [
                Event::Ipv6FragmentTooLarge,
                Event::Ipv6FragmentOverlap,
                Event::Ipv6FragmentIgnored,
            ]
        } else {
            [
                Event::Ipv4FragmentTooLarge,
                Event::Ipv4FragmentOverlap,
                Event::Ipv4FragmentIgnored,
            ]
        };
        let [too_large, overlapping, ignored] = names;
        let mut data = packet.payload();
        let more = ip.flags & 1 != 0;
        let offset = usize::from(ip.fragment_offset);
        if more && !v6 {
            // Systems cut it or drop it; cut, nothing is missed.
            data = &data[..data.len() & !7];
        }
        let new = offset..offset + data.len();
        let before = if v6 {
            ip.header.len().saturating_sub(48)
        } else {
            ip.header.len()
        };
        if before + new.end > LARGEST {
            events.insert(too_large);
            self.counts.invalid += 1;
            return None;
        }
        if packet.bad_checksum || data.is_empty() || more && !data.len().is_multiple_of(8) {
            if v6 && more && !data.len().is_multiple_of(8) {
                events.insert(Event::Ipv6FragmentLength);
            }
            self.counts.invalid += 1;
            return None;
        }
        let key = key(packet, ip);
        let policy = self.policy(ip.destination);
        // Of another capture, or long over.
        let stale = self.datagrams.get(&key).filter(|d| {
            packet.time.abs_diff(d.since) > u64::from(self.config.timeout) * 1_000_000_000
        });
        if let Some(serial) = stale.map(|d| d.serial) {
            self.end(serial, &key, |counts| &mut counts.timeout);
        }
        let cost = data.len() + size_of::<Piece>();
        self.make_room(cost + DATAGRAM, &key);
        let (serial, now) = (self.serial, self.now);
        let mut made = false;
        let datagram = self.datagrams.entry(key).or_insert_with(|| {
            made = true;
            Datagram {
                serial,
                since: packet.time,
                policy,
                header: Vec::new(),
                pieces: Vec::new(),
                end: None,
                fragments: 0,
                dead: None,
                memory: DATAGRAM,
            }
        });
        if made {
            self.serial += 1;
            self.memory += DATAGRAM;
            self.ages.push_back((now, serial, key));
        }
        let memory = datagram.memory;
        if datagram.dead.is_none() && datagram.fragments >= self.config.fragments {
            datagram.dead = Some(Dead::TooMany);
            datagram.strip();
        }
        // The end is where the last fragment says, and nothing lies beyond it.
        let furthest = datagram.pieces.last().map_or(0, |p| p.range().end);
        let contradicts = match datagram.end {
            Some(end) => new.end > end || !more && new.end != end,
            None => !more && new.end < furthest,
        };
        if datagram.dead.is_none() && contradicts {
            let held = |p: &Piece| p.start < new.end && new.start < p.range().end;
            let overlaps = datagram.pieces.iter().any(held);
            events.insert(if overlaps { overlapping } else { ignored });
            self.counts.invalid += 1;
            return None;
        }
        datagram.fragments += 1;
        self.counts.pending += 1;
        if datagram.dead.is_some() {
            events.insert(ignored);
        } else {
            if !more {
                datagram.end = Some(new.end);
            }
            if datagram.add(new, data, v6) {
                events.insert(overlapping);
            }
            if offset == 0 && datagram.dead.is_none() && datagram.header.is_empty() {
                datagram.header = header(packet, ip);
                datagram.memory += datagram.header.len();
            }
        }
        self.memory = self.memory + datagram.memory - memory;
        self.counts.peak = self.counts.peak.max(self.memory as u64);
        if !datagram.is_whole() {
            return None;
        }
        let datagram = self.datagrams.remove(&key)?;
        self.memory -= datagram.memory;
        self.counts.pending -= datagram.fragments as u64;
        self.counts.used += datagram.fragments as u64;
        self.counts.whole += 1;
        self.counts.whole6 += u64::from(v6);
        assemble(&datagram, v6, &mut self.buffer);
        Some(&self.buffer)
    }

    /// Ends all datagrams: nothing more will come.
    pub fn shutdown(&mut self) {
        while let Some((_, serial, key)) = self.ages.pop_front() {
            self.end(serial, &key, |counts| &mut counts.timeout);
        }
    }

    fn policy(&self, receiver: IpAddr) -> Policy {
        let mut found = (0, self.config.policy);
        for (network, length, policy) in &self.config.hosts {
            if *length >= found.0 && crate::stream::contains(*network, *length, receiver) {
                found = (*length, *policy);
            }
        }
        found.1
    }

    fn expire(&mut self) {
        let timeout = u64::from(self.config.timeout) * 1_000_000_000;
        while let Some(&(since, serial, key)) = self.ages.front() {
            let done = self.datagrams.get(&key).is_none_or(|d| d.serial != serial);
            if !done && self.now.saturating_sub(since) <= timeout {
                break;
            }
            self.ages.pop_front();
            self.end(serial, &key, |counts| &mut counts.timeout);
        }
    }

    /// Gives up the oldest datagrams, but not that of `key` if others are left.
    fn make_room(&mut self, cost: usize, key: &Key) {
        while self.memory + cost > self.config.memory
            || self.datagrams.len() >= self.config.datagrams.max(1)
                && !self.datagrams.contains_key(key)
        {
            let Some((_, serial, oldest)) = self.ages.pop_front() else {
                break;
            };
            self.end(serial, &oldest, |counts| &mut counts.evicted);
        }
        // Done ones must not pile up behind an old one.
        if self.ages.len() > 2 * self.datagrams.len() + 1024 {
            let datagrams = &self.datagrams;
            self.ages
                .retain(|(_, serial, key)| datagrams.get(key).is_some_and(|d| d.serial == *serial));
        }
    }

    fn end(&mut self, serial: u64, key: &Key, counter: fn(&mut Counts) -> &mut u64) {
        if self.datagrams.get(key).is_none_or(|d| d.serial != serial) {
            return;
        }
        if let Some(datagram) = self.datagrams.remove(key) {
            self.memory -= datagram.memory;
            self.counts.pending -= datagram.fragments as u64;
            match datagram.dead {
                None => *counter(&mut self.counts) += datagram.fragments as u64,
                Some(Dead::Overlap) => self.counts.overlap += datagram.fragments as u64,
                Some(Dead::TooMany) => self.counts.dropped += datagram.fragments as u64,
            }
        }
    }
}

fn key(packet: &Packet<'_>, ip: &Ip) -> Key {
    let v6 = ip.source.is_ipv6();
    let mut tags = u64::from(packet.vlans) << 48;
    for (i, tag) in packet.vlan.iter().enumerate() {
        tags |= u64::from(*tag) << (16 * i);
    }
    Key {
        source: bits(ip.source),
        destination: bits(ip.destination),
        rest: u64::from(ip.id) << 32
            | u64::from(if v6 { 0 } else { ip.protocol }) << 16
            | u64::from(v6) << 8
            | u64::from(packet.depth),
        // Of a tunnel's fragments, the tunnel's ends count as well, as for flows.
        tags: if packet.depth == 0 {
            tags
        } else {
            mix(tags, packet.spread)
        },
    }
}

/// The header that the whole datagram gets: of IPv6 what is before the fragment header, with the protocol that follows it.
fn header(packet: &Packet<'_>, ip: &Ip) -> Vec<u8> {
    let bytes = packet.data.get(ip.header.clone()).unwrap_or_default();
    if ip.source.is_ipv4() {
        return bytes.to_vec();
    }
    let mut header = bytes[..bytes.len().saturating_sub(8)].to_vec();
    // The byte that announced the fragment header: in the fixed header, or first in the last extension header.
    let mut announces = 6;
    let mut at = 40;
    while at + 2 <= header.len() {
        let kind = header[announces];
        let length = usize::from(header[at + 1]);
        announces = at;
        at += if kind == 51 {
            (length + 2) * 4
        } else {
            (length + 1) * 8
        };
    }
    if let Some(byte) = header.get_mut(announces) {
        *byte = ip.protocol;
    }
    header
}

impl Datagram {
    fn is_whole(&self) -> bool {
        let Some(end) = self.end else { return false };
        if self.dead.is_some() || self.header.is_empty() {
            return false;
        }
        let mut at = 0;
        for piece in &self.pieces {
            if piece.start != at {
                return false;
            }
            at = piece.range().end;
        }
        at == end
    }

    fn strip(&mut self) {
        self.pieces = Vec::new();
        self.header = Vec::new();
        self.memory = DATAGRAM;
    }

    /// Adds a fragment's bytes; whether they overlap others.
    fn add(&mut self, new: Range<usize>, data: &[u8], v6: bool) -> bool {
        let first = self.pieces.partition_point(|p| p.range().end <= new.start);
        let last = self.pieces.partition_point(|p| p.start < new.end);
        if first >= last {
            self.put(first, new.start, data);
            return false;
        }
        if v6 {
            let copy = last - first == 1
                && self.pieces[first].range() == new
                && self.pieces[first].bytes == data;
            if !copy {
                self.dead = Some(Dead::Overlap);
                self.strip();
            }
            return !copy;
        }
        let of_new = |range: &Range<usize>| &data[range.start - new.start..range.end - new.start];
        let old: Vec<Piece> = self.pieces.drain(first..last).collect();
        let (mut index, mut at) = (first, new.start);
        let mut run: Option<Range<usize>> = None;
        for piece in old {
            let held = piece.range();
            let shared = held.start.max(new.start)..held.end.min(new.end);
            self.memory -= piece.bytes.len() + size_of::<Piece>();
            if at < shared.start {
                run = Some(run.map_or(at, |r| r.start)..shared.start);
            }
            let of_held = |range: Range<usize>| {
                &piece.bytes[range.start - held.start..range.end - held.start]
            };
            if self.policy.takes_new(&held, &new) {
                if held.start < shared.start {
                    index += self.put(index, held.start, of_held(held.start..shared.start));
                }
                run = Some(run.map_or(shared.start, |r| r.start)..shared.end);
                if shared.end < held.end {
                    if let Some(range) = run.take() {
                        index += self.put(index, range.start, of_new(&range));
                    }
                    index += self.put(index, shared.end, of_held(shared.end..held.end));
                }
            } else {
                if let Some(range) = run.take() {
                    index += self.put(index, range.start, of_new(&range));
                }
                index += self.put(index, held.start, &piece.bytes);
            }
            at = shared.end;
        }
        if at < new.end {
            run = Some(run.map_or(at, |r| r.start)..new.end);
        }
        if let Some(range) = run {
            self.put(index, range.start, of_new(&range));
        }
        true
    }

    fn put(&mut self, index: usize, start: usize, bytes: &[u8]) -> usize {
        self.memory += bytes.len() + size_of::<Piece>();
        self.pieces.insert(
            index,
            Piece {
                start,
                bytes: bytes.to_vec(),
            },
        );
        1
    }
}

/// Writes the datagram with a header that says it is whole.
fn assemble(datagram: &Datagram, v6: bool, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(&datagram.header);
    for piece in &datagram.pieces {
        buffer.extend_from_slice(&piece.bytes);
    }
    let total = buffer.len();
    if v6 {
        let length = (total - 40) as u16;
        buffer[4..6].copy_from_slice(&length.to_be_bytes());
        return;
    }
    buffer[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    // The bit "do not fragment" stays as it was; offset and "more fragments" are gone.
    buffer[6] &= 0xc0;
    buffer[7] = 0;
    buffer[10..12].fill(0);
    let header = datagram.header.len();
    let sum = weir_packet::checksum::checksum(&buffer[..header]);
    buffer[10..12].copy_from_slice(&sum.to_be_bytes());
}

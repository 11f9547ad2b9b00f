//! Rewriting a packet that passes: docs/semantics.md section 4, except what a list of TCP options becomes.
//!
//! A packet of a connection is translated first (`translate`). Targets run one after the other over the bytes as left by those before; positions are always those of the packet
//! as received. Invariant: a write whose old bits equal the new ones changes nothing, checksums included.

use weir_packet::Reason;
use weir_packet::checksum::{self, fold, sum};
use weir_packet::parse::{Fragment, Ip, L4, Layout, Protocol, Version, protocol, word16};

use super::fields::{REACH, header_at, payload};
use super::options::OptionList;
use super::tags::Tags;
use super::translate::Translation;
use super::{ChecksumMode, Options};
use crate::field::{Field, Header, Kind};
use crate::model::{Subject, Target};

/// Translates a frame, then runs targets over it; notes go to `notes`.
pub(super) fn rewrite<'t>(
    frame: &[u8],
    layout: &Layout,
    translation: Option<&Translation>,
    targets: impl Iterator<Item = &'t Target>,
    options: &Options,
    notes: &mut Vec<Reason>,
) -> Vec<u8> {
    let mut edit = Edit {
        frame: frame.to_vec(),
        layout,
        received: frame,
        unfinished: options.checksums != ChecksumMode::Complete && is_unfinished(frame, layout),
        headers_stay: options.checksums == ChecksumMode::Tc,
        mtu: options.mtu,
        notes,
    };
    let mut tags = Tags::of(layout);
    if let Some(translation) = translation {
        edit.translate(translation);
    }
    let mut list = edit
        .tcp()
        .map(|tcp| OptionList::new(&edit.frame, tcp, edit.option_room(tcp)));
    for target in targets {
        match target {
            Target::Set { field, value } => edit.set(*field, *value),
            Target::SetPayload { subject, bytes } => edit.set_payload(*subject, bytes),
            Target::SetOption { kind, value } => {
                if list
                    .as_mut()
                    .is_some_and(|list| list.set(*kind, value).is_err())
                {
                    edit.notes.push(Reason::NoRoom);
                }
            }
            Target::AddOption { kind, value } => {
                if list
                    .as_mut()
                    .is_some_and(|list| list.add(*kind, value).is_err())
                {
                    edit.notes.push(Reason::NoRoom);
                }
            }
            Target::Strip(kinds) => {
                if let Some(list) = &mut list {
                    list.strip(*kinds);
                }
            }
            Target::PushTag { tci } => {
                if !tags.push(*tci) {
                    edit.notes.push(Reason::VlanNoRoom);
                }
            }
            Target::PopTag => {
                if !tags.pop() {
                    edit.notes.push(Reason::VlanAbsent);
                }
            }
            Target::DecrementTtl => edit.decrement_ttl(),
            // Not in the frame: `Meta::set`.
            Target::SetMeta { .. }
            | Target::Drop(_)
            | Target::Accept
            | Target::Log { .. }
            | Target::ChangeSet(_)
            | Target::Map { .. }
            | Target::Shuffle { .. } => {}
        }
    }
    if let Some(list) = list {
        edit.write_options(&list);
    }
    let of_kernel = options.checksums == ChecksumMode::Tc;
    if !tags.write(&mut edit.frame, of_kernel) {
        edit.notes.push(Reason::NoHeadroom);
    }
    edit.frame
}

/// A frame on its way from received to sent.
pub(super) struct Edit<'a> {
    pub(super) frame: Vec<u8>,
    layout: &'a Layout,
    received: &'a [u8],
    unfinished: bool,
    /// Even those of a finished packet.
    headers_stay: bool,
    mtu: u32,
    notes: &'a mut Vec<Reason>,
}

/// An L4 checksum that follows changes.
#[derive(Clone, Copy)]
struct L4Checksum {
    at: usize,
    zero: Zero,
}

/// What a checksum of 0 means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// A value like others: TCP, ICMP, DCCP.
    Plain,
    /// No checksum, and never computed: UDP.
    NoChecksum,
    /// Never computed: UDP-Lite.
    Forbidden,
}

impl Edit<'_> {
    /// Writes the bits of a fixed field, as the 32-bit words of its header that hold it.
    fn set(&mut self, field: Field, value: u128) {
        let info = field.info();
        let fixed = matches!(
            info.kind,
            Kind::Number | Kind::Is(_) | Kind::Addr4 | Kind::Addr6
        ) && info.writable;
        let Some(header) = header_at(self.layout, info.header).filter(|_| fixed) else {
            return;
        };
        let last_bit = info.offset + info.bits - 1;
        for word in info.offset / 32..=last_bit / 32 {
            let at = header + usize::from(word) * 4;
            let mut bytes = word32(&self.frame, at).to_be_bytes();
            for bit in (word * 32).max(info.offset)..=(word * 32 + 31).min(last_bit) {
                let mask = 0x80 >> (bit % 8);
                let byte = &mut bytes[usize::from(bit % 32 / 8)];
                if value >> (last_bit - bit) & 1 == 1 {
                    *byte |= mask;
                } else {
                    *byte &= !mask;
                }
            }
            self.write_word(info.header, usize::from(word) * 4, at, bytes);
        }
    }

    /// Writes one word of a header and lets the checksums follow. `offset` is that from the header's start.
    pub(super) fn write_word(&mut self, header: Header, offset: usize, at: usize, new: [u8; 4]) {
        let old = word32(&self.frame, at).to_be_bytes();
        if let Some(bytes) = self.frame.get_mut(at..at + 4) {
            bytes.copy_from_slice(&new);
        }
        match header {
            Header::Ip4 => {
                let half = |word: [u8; 4]| {
                    if offset == 8 {
                        sum(&word[..2])
                    } else {
                        sum(&word)
                    }
                };
                self.update_ip4(half(old), half(new));
                match offset {
                    8 => self.update_pseudo(u64::from(old[1]), u64::from(new[1])),
                    12 | 16 => self.update_pseudo(sum(&old), sum(&new)),
                    _ => {}
                }
            }
            Header::Ip6 => match offset {
                4 if self.ip().is_some_and(|ip| ip.extensions.is_empty()) => {
                    self.update_pseudo(u64::from(old[2]), u64::from(new[2]));
                }
                8.. => self.update_pseudo(sum(&old), sum(&new)),
                _ => {}
            },
            Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6 => {
                let Some(own) = self.layout.l4.as_ref().map(L4::checksum_at) else {
                    return;
                };
                let covered = |word: [u8; 4]| {
                    (0..2)
                        .filter(|half| at + half * 2 != own)
                        .map(|half| sum(&word[half * 2..half * 2 + 2]))
                        .sum()
                };
                self.update_l4(covered(old), covered(new));
            }
            Header::Meta
            | Header::Skb
            | Header::Clock
            | Header::Ether
            | Header::EtherAddr
            | Header::Vlan
            | Header::Vlan2
            | Header::Ip6Frag
            | Header::Ports => {}
        }
    }

    /// Takes 1 from the TTL or hop limit, unless rewriting left 1 or less.
    fn decrement_ttl(&mut self) {
        let Some(ip) = self.ip() else {
            return;
        };
        let (header, offset, byte) = match ip.version {
            Version::V4 => (Header::Ip4, 8, 0),
            Version::V6 => (Header::Ip6, 4, 3),
        };
        let at = ip.at + offset;
        let mut word = word32(&self.frame, at).to_be_bytes();
        if word[byte] > 1 {
            word[byte] -= 1;
            self.write_word(header, offset, at, word);
        }
    }

    fn set_payload(&mut self, subject: Subject, bytes: &[u8]) {
        let Some(range) = payload(self.layout, subject.field) else {
            return;
        };
        let start = range.start + usize::from(subject.at);
        let end = start + bytes.len();
        if end > range.end || start > REACH {
            self.notes.push(Reason::PayloadShort);
            return;
        }
        let before = self.covered(start, end);
        self.frame[start..end].copy_from_slice(bytes);
        let after = self.covered(start, end);
        self.update_l4(before, after);
    }

    /// What the bytes from `start` to `end` add to the L4 checksum: by parity from the start of the L4 header,
    /// without the checksum itself, and in UDP only up to its length.
    fn covered(&self, start: usize, end: usize) -> u64 {
        let Some(l4) = &self.layout.l4 else {
            return 0;
        };
        let own = l4.checksum_at();
        (start..end.min(l4.payload.end))
            .filter(|&at| at >= l4.at && at != own && at != own + 1)
            .map(|at| {
                u64::from(self.frame[at]) << if (at - l4.at).is_multiple_of(2) { 8 } else { 0 }
            })
            .sum()
    }

    /// Bytes that TCP options may take.
    fn option_room(&self, tcp: &L4) -> usize {
        if self.options_stay(tcp) {
            tcp.header_len - 20
        } else {
            40
        }
    }

    /// Whether options must keep their room, because bytes follow that may not move.
    fn options_stay(&self, tcp: &L4) -> bool {
        (self.unfinished || self.headers_stay) && self.has_tail(tcp)
    }

    /// Whether bytes follow the TCP header.
    fn has_tail(&self, tcp: &L4) -> bool {
        tcp.at + tcp.header_len < self.received.len()
    }

    /// Puts a list of options into the packet, the last step of rewriting.
    fn write_options(&mut self, list: &OptionList) {
        let (Some(tcp), Some(ip)) = (self.tcp(), self.ip()) else {
            return;
        };
        if list.unchanged() {
            return;
        }
        let options = tcp.at + 20..tcp.at + tcp.header_len;
        if let Some(values) = list.in_place() {
            let before = sum(&self.frame[options.clone()]);
            for (option, value) in values {
                self.frame[option.at + 2..option.at + option.len].copy_from_slice(value);
            }
            let after = sum(&self.frame[options]);
            self.update_l4(before, after);
            return;
        }
        if ip.fragment != Fragment::Whole {
            self.notes.push(Reason::FragResize);
            return;
        }
        let mut new = list.bytes();
        let room = if self.options_stay(tcp) {
            options.len()
        } else {
            new.len().next_multiple_of(4)
        };
        new.resize(room, 0);
        if new.len() == options.len() {
            let before = sum(&self.frame[options.clone()]);
            let after = sum(&new);
            self.frame[options].copy_from_slice(&new);
            self.update_l4(before, after);
            return;
        }
        self.resize(tcp, ip, &new);
    }

    /// Replaces the options by `new` of another length. Everything else in the frame keeps its bytes.
    fn resize(&mut self, tcp: &L4, ip: &Ip, new: &[u8]) {
        let old_len = tcp.header_len - 20;
        let resized = |length: usize| length - old_len + new.len();
        let packet = ip.payload.end - ip.at;
        // The length word of IPv4 counts its header, that of IPv6 does not.
        let (length_at, length) = match ip.version {
            Version::V4 => (ip.at + 2, packet),
            Version::V6 => (ip.at + 4, packet - 40),
        };
        let grows = new.len() > old_len;
        if grows && (resized(packet) > self.mtu as usize || resized(length) > 65_535) {
            self.notes.push(Reason::TooBig);
            return;
        }

        match ip.version {
            Version::V4 => {
                let before = u64::from(word16(&self.frame, length_at));
                self.write16(length_at, resized(length) as u16);
                self.update_ip4(before, resized(length) as u64);
            }
            Version::V6 => self.write16(length_at, resized(length) as u16),
        }

        let plen = ip.payload.len();
        let offset_at = tcp.at + 12;
        let offset_word = |frame: &[u8]| u64::from(word16(frame, offset_at));
        let options = tcp.at + 20..tcp.at + tcp.header_len;
        let mut before = sum(&self.frame[options.clone()]) + offset_word(&self.frame);
        let words = (20 + new.len()) / 4;
        self.frame[offset_at] = self.frame[offset_at] & 0x0f | (words as u8) << 4;
        let mut after = sum(new) + offset_word(&self.frame);
        if self.unfinished {
            // The field holds the pseudo-header only: of all this its length.
            (before, after) = (0, 0);
        }
        before += plen as u64;
        after += resized(plen) as u64;
        self.update_checksum_field(before, after);
        drop(self.frame.splice(options, new.iter().copied()));
    }

    /// The IPv4 header checksum follows words of its header.
    fn update_ip4(&mut self, before: u64, after: u64) {
        if let Some(ip) = self.ip() {
            let at = ip.at + 10;
            let old = word16(&self.frame, at);
            self.write16(at, checksum::update(old, before, after));
        }
    }

    /// The L4 checksum follows words of the pseudo-header, which ICMP has not.
    fn update_pseudo(&mut self, before: u64, after: u64) {
        if self
            .layout
            .l4
            .as_ref()
            .is_none_or(|l4| l4.protocol != Protocol::Icmp)
        {
            self.update_checksum_field(before, after);
        }
    }

    /// The L4 checksum follows covered words of header or payload; an unfinished one does not hold them.
    pub(super) fn update_l4(&mut self, before: u64, after: u64) {
        if self.layout.l4.is_some() && !self.unfinished {
            self.update_checksum_field(before, after);
        }
    }

    fn update_checksum_field(&mut self, before: u64, after: u64) {
        let Some(field) = self.l4_checksum() else {
            return;
        };
        let old = word16(&self.frame, field.at);
        if before == after {
            return;
        }
        if self.unfinished {
            self.write16(field.at, checksum::update_plain(old, before, after));
            return;
        }
        if old == 0 && field.zero == Zero::NoChecksum {
            return;
        }
        let new = checksum::update(old, before, after);
        let new = if new == 0 && field.zero != Zero::Plain {
            0xffff
        } else {
            new
        };
        self.write16(field.at, new);
    }

    fn l4_checksum(&self) -> Option<L4Checksum> {
        if let Some(l4) = &self.layout.l4 {
            let zero = if l4.protocol == Protocol::Udp {
                Zero::NoChecksum
            } else {
                Zero::Plain
            };
            return Some(L4Checksum {
                at: l4.checksum_at(),
                zero,
            });
        }
        let ip = self
            .ip()
            .filter(|ip| ip.carries_l4() && ip.payload.len() >= 8)?;
        let zero = match ip.protocol {
            protocol::DCCP => Zero::Plain,
            protocol::UDP_LITE => Zero::Forbidden,
            _ => return None,
        };
        Some(L4Checksum {
            at: ip.payload.start + 6,
            zero,
        })
    }

    fn write16(&mut self, at: usize, value: u16) {
        if let Some(bytes) = self.frame.get_mut(at..at + 2) {
            bytes.copy_from_slice(&value.to_be_bytes());
        }
    }
}

impl<'a> Edit<'a> {
    fn tcp(&self) -> Option<&'a L4> {
        self.l4().filter(|l4| l4.protocol == Protocol::Tcp)
    }

    pub(super) fn l4(&self) -> Option<&'a L4> {
        self.layout.l4.as_ref()
    }

    pub(super) fn ip(&self) -> Option<&'a Ip> {
        self.layout.ip.as_ref()
    }
}

/// Whether the checksum field holds the pseudo-header's sum: what a sender leaves for its device to finish.
pub(super) fn is_unfinished(frame: &[u8], layout: &Layout) -> bool {
    let (Some(ip), Some(l4)) = (&layout.ip, &layout.l4) else {
        return false;
    };
    if ip.fragment != Fragment::Whole || !matches!(l4.protocol, Protocol::Tcp | Protocol::Udp) {
        return false;
    }
    let addresses = match ip.version {
        Version::V4 => &frame[ip.at + 12..ip.at + 20],
        Version::V6 => &frame[ip.at + 8..ip.at + 40],
    };
    let pseudo = sum(addresses) + u64::from(ip.protocol) + ip.payload.len() as u64;
    word16(frame, l4.checksum_at()) == fold(pseudo)
}

fn word32(frame: &[u8], at: usize) -> u32 {
    u32::from(word16(frame, at)) << 16 | u32::from(word16(frame, at + 2))
}

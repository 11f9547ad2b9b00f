//! Translation of a packet of a flow, in front of all other rewriting: docs/semantics.md section 7, "Translating" and
//! "ICMP errors".
//!
//! Words are written as rewriting writes them, checksums included. A quote inside an ICMP error has checksums of its
//! own; what its bytes become is then one change of the error's payload. Nothing changes its length or its layout.

use weir_packet::checksum::{self, sum};
use weir_packet::parse::{Fragment, L4, Protocol, Version, word16};

use super::connections::{Change, Fit, Flow, Quote, Tuple, is_query};
use super::rewrite::Edit;
use crate::field::Header;

/// What a packet becomes.
#[derive(Clone, Debug)]
pub(super) enum Translation {
    /// A packet of a flow.
    Packet(Packet),
    /// An ICMP error that quotes one.
    Error(Error),
}

/// The new numbers of a packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    tuple: Tuple,
    identification: Option<Change>,
    label: Option<Change>,
    /// Added.
    sequence: u32,
    /// Subtracted.
    acknowledgement: u32,
}

/// The new numbers of an ICMP error and of what it quotes.
#[derive(Clone, Debug)]
pub(super) struct Error {
    source: Option<u128>,
    destination: u128,
    quote: Quote,
    tuple: Tuple,
    /// Subtracted.
    sequence: u32,
}

impl Translation {
    /// Of a packet that fits a flow so.
    pub(super) fn of_packet(flow: &Flow, fit: Fit) -> Translation {
        let chosen = flow.chosen;
        let (tuple, sequence, acknowledgement) = if fit.is_forward() {
            (flow.trans, chosen.sequence, chosen.acknowledgement)
        } else {
            let tuple = flow.orig.reversed();
            (tuple, chosen.acknowledgement, chosen.sequence)
        };
        Translation::Packet(Packet {
            tuple,
            identification: chosen.identification,
            label: chosen.label,
            sequence,
            acknowledgement,
        })
    }

    /// Of an error whose quote fits a flow so.
    pub(super) fn of_error(flow: &Flow, fit: Fit, quote: Quote) -> Translation {
        // With one tuple a direct quote is one of `trans`, a reversed one of `orig`; with two there are no others.
        let error = if fit.is_forward() {
            let reverse = flow.orig.reversed();
            Error {
                source: (flow.trans.destination != reverse.source).then_some(reverse.source),
                destination: reverse.destination,
                quote,
                tuple: flow.orig,
                sequence: flow.chosen.sequence,
            }
        } else {
            Error {
                source: (flow.orig.source != flow.trans.source).then_some(flow.trans.source),
                destination: flow.trans.destination,
                quote,
                tuple: flow.trans.reversed(),
                sequence: flow.chosen.acknowledgement,
            }
        };
        Translation::Error(error)
    }
}

impl Edit<'_> {
    /// Carries out a translation.
    pub(super) fn translate(&mut self, translation: &Translation) {
        match translation {
            Translation::Packet(packet) => self.translate_packet(packet),
            Translation::Error(error) => self.translate_error(error),
        }
    }

    fn translate_packet(&mut self, packet: &Packet) {
        let Some(ip) = self.ip() else {
            return;
        };
        self.write_address(Side::Source, packet.tuple.source);
        self.write_address(Side::Destination, packet.tuple.destination);
        match (ip.version, packet.identification, packet.label) {
            (Version::V4, Some(change), _) => {
                let word = self.word(ip.at + 4);
                let id = changed(word >> 16, change, 0xffff);
                self.write_word(Header::Ip4, 4, ip.at + 4, bytes(id << 16 | word & 0xffff));
            }
            (Version::V6, _, Some(change)) => {
                let word = self.word(ip.at);
                let label = changed(word & 0xf_ffff, change, 0xf_ffff);
                self.write_word(Header::Ip6, 0, ip.at, bytes(word & 0xfff0_0000 | label));
            }
            _ => {}
        }
        let Some(l4) = self.l4().filter(|_| ip.fragment != Fragment::Later) else {
            return;
        };
        let tuple = packet.tuple;
        match l4.protocol {
            Protocol::Tcp | Protocol::Udp => {
                let header = if l4.protocol == Protocol::Tcp {
                    Header::Tcp
                } else {
                    Header::Udp
                };
                let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
                self.write_word(header, 0, l4.at, bytes(ports));
            }
            Protocol::Icmp | Protocol::Icmp6 => {
                let header = if l4.protocol == Protocol::Icmp {
                    Header::Icmp
                } else {
                    Header::Icmp6
                };
                let identifier = identifier(l4.protocol, self.byte(l4.at), &tuple);
                let sequence = self.word(l4.at + 4) & 0xffff;
                let word = u32::from(identifier) << 16 | sequence;
                self.write_word(header, 4, l4.at + 4, bytes(word));
            }
        }
        if l4.protocol == Protocol::Tcp {
            self.translate_numbers(l4, packet);
        }
    }

    fn translate_numbers(&mut self, l4: &L4, packet: &Packet) {
        const ACK: u8 = 16;
        let sequence = self.word(l4.at + 4).wrapping_add(packet.sequence);
        self.write_word(Header::Tcp, 4, l4.at + 4, bytes(sequence));
        if self.byte(l4.at + 13) & ACK == 0 {
            return;
        }
        let acknowledgement = self.word(l4.at + 8).wrapping_sub(packet.acknowledgement);
        self.write_word(Header::Tcp, 8, l4.at + 8, bytes(acknowledgement));

        let options = l4.at + 20..l4.at + l4.header_len;
        let before = sum(&self.frame[options.clone()]);
        for option in &l4.options {
            if option.kind != 5 || option.len % 8 != 2 {
                continue;
            }
            for at in (option.at + 2..option.at + option.len).step_by(4) {
                let edge = self.word(at).wrapping_sub(packet.acknowledgement);
                self.frame[at..at + 4].copy_from_slice(&bytes(edge));
            }
        }
        let after = sum(&self.frame[options]);
        self.update_l4(before, after);
    }

    fn translate_error(&mut self, error: &Error) {
        if let Some(source) = error.source {
            self.write_address(Side::Source, source);
        }
        self.write_address(Side::Destination, error.destination);
        let quote = &error.quote;
        // As much of the L4 header as can change.
        let most = if quote.protocol == Some(Protocol::Tcp) {
            20
        } else {
            8
        };
        let len = (quote.end - quote.l4_at).min(most) & !1;
        let changed = quote.at..quote.l4_at + len;
        let before = sum(&self.frame[changed.clone()]);
        Quoted {
            frame: &mut self.frame,
            quote,
        }
        .translate(&error.tuple, error.sequence);
        let after = sum(&self.frame[changed]);
        self.update_l4(before, after);
    }

    fn write_address(&mut self, side: Side, address: u128) {
        let Some(ip) = self.ip() else {
            return;
        };
        let header = match ip.version {
            Version::V4 => Header::Ip4,
            Version::V6 => Header::Ip6,
        };
        for (offset, word) in address_words(ip.version, side, address) {
            self.write_word(header, offset, ip.at + offset, bytes(word));
        }
    }

    fn word(&self, at: usize) -> u32 {
        word32(&self.frame, at)
    }

    fn byte(&self, at: usize) -> u8 {
        self.frame.get(at).copied().unwrap_or_default()
    }
}

/// A quote that is being changed, with its own checksums.
struct Quoted<'a> {
    frame: &'a mut [u8],
    quote: &'a Quote,
}

impl Quoted<'_> {
    fn translate(&mut self, tuple: &Tuple, sequence: u32) {
        let Quote {
            version,
            at,
            l4_at,
            protocol,
            ..
        } = *self.quote;
        for (side, address) in [
            (Side::Source, tuple.source),
            (Side::Destination, tuple.destination),
        ] {
            for (offset, word) in address_words(version, side, address) {
                let old = self.write(at + offset, word);
                if version == Version::V4 {
                    self.update(at + 10, old, word);
                }
                if protocol != Some(Protocol::Icmp) {
                    self.update_l4(old, word);
                }
            }
        }
        match protocol {
            Some(Protocol::Tcp | Protocol::Udp) => {
                let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
                let old = self.write(l4_at, ports);
                self.update_l4(old, ports);
            }
            Some(protocol @ (Protocol::Icmp | Protocol::Icmp6)) => {
                let identifier = identifier(protocol, self.frame[l4_at], tuple);
                let word = u32::from(identifier) << 16 | word32(self.frame, l4_at + 4) & 0xffff;
                let old = self.write(l4_at + 4, word);
                self.update_l4(old, word);
            }
            None => {}
        }
        if protocol == Some(Protocol::Tcp) {
            let new = word32(self.frame, l4_at + 4).wrapping_sub(sequence);
            let old = self.write(l4_at + 4, new);
            self.update_l4(old, new);
        }
    }

    /// Writes a word and returns what was there.
    fn write(&mut self, at: usize, word: u32) -> u32 {
        let old = word32(self.frame, at);
        self.frame[at..at + 4].copy_from_slice(&bytes(word));
        old
    }

    fn update_l4(&mut self, old: u32, new: u32) {
        let (offset, is_udp) = match self.quote.protocol {
            Some(Protocol::Tcp) => (16, false),
            Some(Protocol::Udp) => (6, true),
            Some(Protocol::Icmp | Protocol::Icmp6) => (2, false),
            None => return,
        };
        let at = self.quote.l4_at + offset;
        if at + 2 > self.quote.end || old == new || is_udp && word16(self.frame, at) == 0 {
            return;
        }
        self.update(at, old, new);
        if is_udp && word16(self.frame, at) == 0 {
            self.frame[at..at + 2].copy_from_slice(&[0xff, 0xff]);
        }
    }

    fn update(&mut self, at: usize, old: u32, new: u32) {
        let field = word16(self.frame, at);
        let field = checksum::update(field, sum(&bytes(old)), sum(&bytes(new)));
        self.frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// The words of an address in its IP header, with their offsets.
fn address_words(version: Version, side: Side, address: u128) -> Vec<(usize, u32)> {
    let (first, words) = match (version, side) {
        (Version::V4, Side::Source) => (12, 1),
        (Version::V4, Side::Destination) => (16, 1),
        (Version::V6, Side::Source) => (8, 4),
        (Version::V6, Side::Destination) => (24, 4),
    };
    (0..words)
        .map(|word| {
            let value = address >> (32 * (words - 1 - word));
            (first + 4 * word, value as u32)
        })
        .collect()
}

/// The identifier that an ICMP query or answer of this type has by its tuple.
fn identifier(protocol: Protocol, kind: u8, tuple: &Tuple) -> u16 {
    if is_query(protocol, kind) {
        tuple.source_port
    } else {
        tuple.destination_port
    }
}

fn changed(value: u32, change: Change, mask: u32) -> u32 {
    match change {
        Change::Set(new) => new & mask,
        Change::Move(by) => value.wrapping_add(by) & mask,
    }
}

fn bytes(word: u32) -> [u8; 4] {
    word.to_be_bytes()
}

fn word32(frame: &[u8], at: usize) -> u32 {
    u32::from(word16(frame, at)) << 16 | u32::from(word16(frame, at + 2))
}

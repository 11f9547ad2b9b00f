//! DHCP of IPv4 (RFC 2131, options of RFC 2132): a frame of a client and what its workload was given -> the frame of the answer.
//!
//! Nothing is remembered: who asks is known by the interface the frame came in by, and every interface has one address, always the same.
//! So leases need no file, two edges never disagree, and a restart changes nothing. Not done: relays, BOOTP, options in `sname` and `file`,
//! options that nobody declared (name servers and the like).

use std::net::Ipv4Addr;

use weir_packet::checksum::{checksum, fold, pseudo_header4, sum};

use crate::plan::Lease;
use crate::values::Mac;

/// Offsets in a frame without a tag.
const IP: usize = 14;
const UDP: usize = IP + 20;
const MESSAGE: usize = UDP + 8;
/// Of a message: where options begin, behind their magic number.
const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Shortest message of an answer: what BOOTP clients expect (RFC 1542, 2.1).
const LEAST: usize = 300;
const BROADCAST_FLAG: u8 = 0x80;

mod option {
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const MTU: u8 = 26;
    pub(super) const REQUESTED: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const RENEWAL: u8 = 58;
    pub(super) const REBINDING: u8 = 59;
    pub(super) const CLIENT: u8 = 61;
    pub(super) const PAD: u8 = 0;
    pub(super) const END: u8 = 255;
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "RFC 2131, table 2")]
#[repr(u8)]
pub enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
    Inform = 8,
}

/// Why a client gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// Not a message that a client sends.
    #[error("it is not a DHCP request")]
    NotDhcp,
    /// It came by a relay.
    #[error("it was relayed")]
    Relayed,
    /// The hardware address in it is not the workload's.
    #[error("it asks for another station")]
    OtherStation,
    /// It takes what another server offered.
    #[error("it takes another server's offer")]
    OtherServer,
    /// It asks for nothing: the client gives its address back, or says that somebody else has it.
    #[error("it releases the address")]
    GivenBack,
    /// RFC 2131, 4.3.2: of INIT-REBOOT and renewal an address is named.
    #[error("it names no address")]
    NoAddress,
}

/// What a client asks, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    kind: Kind,
    transaction: [u8; 4],
    flags: [u8; 2],
    client: Ipv4Addr,
    station: Mac,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    identifier: Option<Vec<u8>>,
    /// The tag of its frame: the answer has the same.
    tag: Option<[u8; 4]>,
}

/// The answer to a client's frame, and what it is.
///
/// # Errors
/// It gets none.
pub fn answer(lease: &Lease, frame: &[u8]) -> Result<(Kind, Vec<u8>), Silence> {
    let question = read(frame)?;
    if lease.mac.is_some_and(|mac| mac != question.station) {
        return Err(Silence::OtherStation);
    }
    let kind = match question.kind {
        Kind::Discover => Kind::Offer,
        Kind::Inform => Kind::Ack,
        Kind::Request => {
            if question.server.is_some_and(|server| server != lease.server) {
                return Err(Silence::OtherServer);
            }
            let renewed = (!question.client.is_unspecified()).then_some(question.client);
            let wanted = question.requested.or(renewed).ok_or(Silence::NoAddress)?;
            match wanted == lease.address {
                true => Kind::Ack,
                false => Kind::Nak,
            }
        }
        Kind::Decline | Kind::Release => return Err(Silence::GivenBack),
        Kind::Offer | Kind::Ack | Kind::Nak => return Err(Silence::NotDhcp),
    };
    Ok((kind, write(lease, &question, kind)))
}

fn read(frame: &[u8]) -> Result<Question, Silence> {
    parse(frame)
        .ok_or(Silence::NotDhcp)
        .and_then(|question| question)
}

/// `None`: it is no message.
fn parse(frame: &[u8]) -> Option<Result<Question, Silence>> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let tag = match word(12)? {
        0x8100 | 0x88a8 => Some(frame.get(12..16)?.try_into().ok()?),
        _ => None,
    };
    let plain: Vec<u8> = match tag {
        Some(_) => [frame.get(..12)?, frame.get(16..)?].concat(),
        None => frame.to_vec(),
    };
    let frame = plain.as_slice();
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    if word(12)? != 0x0800 || *frame.get(IP)? != 0x45 || *frame.get(IP + 9)? != 17 {
        return None;
    }
    if (word(UDP)?, word(UDP + 2)?) != (68, 67) {
        return None;
    }
    let length = usize::from(word(UDP + 4)?);
    let message = frame.get(MESSAGE..UDP + length)?;
    let four = |at: usize| <[u8; 4]>::try_from(message.get(at..at + 4)?).ok();
    // A request, of Ethernet.
    if message.get(..3)? != [1, 1, 6] || four(OPTIONS - 4)? != COOKIE {
        return None;
    }
    if four(24)? != [0; 4] {
        return Some(Err(Silence::Relayed));
    }
    let options = options(message.get(OPTIONS..)?);
    let option = |code: u8| {
        let found = options.iter().find(|(known, _)| *known == code);
        found.map(|(_, value)| value.as_slice())
    };
    let address = |code: u8| {
        let value: [u8; 4] = option(code)?.try_into().ok()?;
        Some(Ipv4Addr::from(value))
    };
    let kind = match option(option::KIND)? {
        [1] => Kind::Discover,
        [3] => Kind::Request,
        [4] => Kind::Decline,
        [7] => Kind::Release,
        [8] => Kind::Inform,
        _ => return None,
    };
    Some(Ok(Question {
        kind,
        transaction: four(4)?,
        flags: [*message.get(10)?, *message.get(11)?],
        client: Ipv4Addr::from(four(12)?),
        station: Mac(message.get(28..34)?.try_into().ok()?),
        requested: address(option::REQUESTED),
        server: address(option::SERVER),
        identifier: option(option::CLIENT).map(<[u8]>::to_vec),
        tag,
    }))
}

/// Options up to the end, or to what is cut off; several of one code are one (RFC 3396).
fn options(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found: Vec<(u8, Vec<u8>)> = Vec::new();
    while let [code, rest @ ..] = bytes {
        match *code {
            option::PAD => bytes = rest,
            option::END => break,
            code => {
                let Some((length, rest)) = rest.split_first() else {
                    break;
                };
                let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                    break;
                };
                match found.iter_mut().find(|(known, _)| *known == code) {
                    Some((_, known)) => known.extend(value),
                    None => found.push((code, value.to_vec())),
                }
                bytes = rest;
            }
        }
    }
    found
}

fn write(lease: &Lease, question: &Question, kind: Kind) -> Vec<u8> {
    let refused = kind == Kind::Nak;
    let informed = question.kind == Kind::Inform;
    let given = match refused || informed {
        true => Ipv4Addr::UNSPECIFIED,
        false => lease.address,
    };
    let mut message = vec![2, 1, 6, 0];
    message.extend(question.transaction);
    message.extend([0, 0]);
    message.extend(question.flags);
    let client = match refused {
        true => Ipv4Addr::UNSPECIFIED,
        false => question.client,
    };
    message.extend(client.octets());
    message.extend(given.octets());
    // No next server, no relay.
    message.extend([0; 8]);
    message.extend(question.station.0);
    message.resize(OPTIONS - 4, 0);
    message.extend(COOKIE);
    let mut add = |code: u8, value: &[u8]| {
        message.extend([code, value.len() as u8]);
        message.extend(value);
    };
    add(option::KIND, &[kind as u8]);
    add(option::SERVER, &lease.server.octets());
    if !refused {
        if !informed {
            add(option::LEASE, &lease.seconds.to_be_bytes());
            add(option::RENEWAL, &(lease.seconds / 2).to_be_bytes());
            let rebinding = u64::from(lease.seconds) * 7 / 8;
            add(option::REBINDING, &(rebinding as u32).to_be_bytes());
        }
        let mask = u32::MAX
            .checked_shl(32 - u32::from(lease.length))
            .unwrap_or(0);
        add(option::MASK, &mask.to_be_bytes());
        if let Some(router) = lease.router {
            add(option::ROUTER, &router.octets());
        }
        add(option::MTU, &lease.mtu.to_be_bytes());
    }
    // RFC 6842: a client knows its own.
    if let Some(identifier) = question.identifier.as_ref().filter(|one| one.len() < 256) {
        add(option::CLIENT, identifier);
    }
    message.push(option::END);
    message.resize(message.len().max(LEAST), 0);
    // RFC 2131, 4.1: to the address that it has, to all if it cannot hear otherwise, else to the one that it gets.
    let (station, address) =
        if refused || (client.is_unspecified() && question.flags[0] & BROADCAST_FLAG != 0) {
            (Mac::BROADCAST, Ipv4Addr::BROADCAST)
        } else if client.is_unspecified() {
            (question.station, given)
        } else {
            (question.station, client)
        };
    packet(lease, question, station, address, &message)
}

fn packet(
    lease: &Lease,
    question: &Question,
    station: Mac,
    to: Ipv4Addr,
    message: &[u8],
) -> Vec<u8> {
    let length = (8 + message.len()) as u16;
    let mut frame = Vec::with_capacity(MESSAGE + 4 + message.len());
    frame.extend(station.0);
    frame.extend(lease.server_mac.0);
    frame.extend([8, 0]);
    frame.extend([0x45, 0xc0]);
    frame.extend((20 + length).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(lease.server.octets());
    frame.extend(to.octets());
    let header = checksum(&frame[IP..UDP]);
    frame[IP + 10..IP + 12].copy_from_slice(&header.to_be_bytes());
    frame.extend([0, 67, 0, 68]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(message);
    let pseudo = pseudo_header4(lease.server.octets(), to.octets(), 17, length.into());
    let value = !fold(pseudo + sum(&frame[UDP..]));
    // RFC 768: zero would mean that there is none.
    let value = if value == 0 { 0xffff } else { value };
    frame[UDP + 6..UDP + 8].copy_from_slice(&value.to_be_bytes());
    if let Some(tag) = question.tag {
        frame.splice(12..12, tag);
    }
    frame
}

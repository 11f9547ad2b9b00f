//! Symbolic packets as bytes: the addresses of a case, what a device chose for its ports, and what is expected to arrive.
//!
//! Invariant: the frame that is expected is built by the same code as the frame that is sent, under the view of the other side, so every byte
//! beyond the Ethernet header is compared.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_packet::build::Frame;

use super::script::{
    Arrival, Destination, End, Expect, Host, Icmp, L4, Packet, Policy, Port, Side, Tcp,
};

/// TTL of what is sent, and of what one router let through.
const TTL: u8 = 64;
const MORE_FRAGMENTS: u16 = 0x2000;
const ETHERNET: usize = 14;
/// Its packets are given a right checksum.
const SCTP: u8 = 132;

/// The addresses of a case, and what is known of it so far on one device.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Third byte of its addresses.
    block: u8,
    ip6: bool,
    near: (End, End),
    far: (End, End),
    vars: BTreeMap<String, u16>,
    /// The public address that the device chose of two.
    pooled: Option<Host>,
    isn: BTreeMap<Host, u32>,
}

/// A port that no arrival has bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unbound(pub(crate) String);

/// Numbers before they are shifted by `isn`.
const INITIAL: [(Host, u32); 5] = [
    (Host::C, 0x1234_5678),
    (Host::D, 0x7fff_ff00),
    (Host::S, 0xffff_fe00),
    (Host::T, 0x2000_0000),
    (Host::X, 0x4000_0000),
];

impl World {
    pub(crate) fn new(policy: &Policy, block: u8, ip6: bool) -> World {
        World {
            block,
            ip6,
            near: policy.near.clone(),
            far: policy.far.clone(),
            vars: BTreeMap::new(),
            pooled: None,
            isn: INITIAL.into_iter().collect(),
        }
    }

    pub(crate) fn set_isn(&mut self, host: Host, value: u32) {
        let host = self.behind(host, Host::S);
        self.isn.insert(host, value);
    }

    /// The side on which a packet enters the box.
    pub(crate) fn side(&self, packet: &Packet) -> Side {
        let opener = self.opener_side();
        match (packet.from.host, packet.to.host) {
            (Host::Opener, _) => opener,
            (Host::Responder, _) => opener.other(),
            // Somebody behind the other one of the two.
            (Host::X, Host::Opener) => opener.other(),
            (Host::X, Host::Responder) => opener,
            (Host::C | Host::D, _) => Side::Inside,
            _ => Side::Outside,
        }
    }

    /// The side that a datagram is put together on.
    pub(crate) fn destination(&self, to: Destination) -> Side {
        match to {
            Destination::Side(side) => side,
            Destination::Opener => self.opener_side(),
            Destination::Responder => self.opener_side().other(),
        }
    }

    fn opener_side(&self) -> Side {
        match self.near.0.host {
            Host::C | Host::D => Side::Inside,
            _ => Side::Outside,
        }
    }

    /// What a port is, if it is known.
    pub(crate) fn port(&self, port: &Port) -> Result<u16, Unbound> {
        match port {
            Port::Number(value) => Ok(*value),
            Port::Var(name) => self
                .vars
                .get(name)
                .copied()
                .ok_or_else(|| Unbound(name.clone())),
        }
    }

    /// The frame that enters the box on `side`; `nth` of several: with a stride on the sequence number, else with the next source port.
    pub(crate) fn frame(
        &self,
        packet: &Packet,
        side: Side,
        nth: u16,
        stride: u32,
    ) -> Result<Vec<u8>, Unbound> {
        let mut packet = packet.clone();
        if stride > 0 {
            if let L4::Tcp(tcp) = &mut packet.l4 {
                tcp.seq += i64::from(stride) * i64::from(nth);
            }
        } else if nth > 0 {
            let (_, port) = self.resolve(&packet.from, side, side)?;
            packet.from.port = Some(Port::Number(port.wrapping_add(nth)));
        }
        let numbers = (packet.from.host, packet.to.host);
        self.build(&packet, numbers, (side, side), packet.ip.ttl.unwrap_or(TTL))
    }

    /// The frame that must leave the box, of a packet that came in on `side`; binds ports that `came` names first. `None`: nothing must.
    pub(crate) fn expected(
        &mut self,
        packet: &Packet,
        side: Side,
        expect: &Expect,
        came: &[u8],
    ) -> Result<Option<Vec<u8>>, Unbound> {
        let numbers = (packet.from.host, packet.to.host);
        let mut packet = packet.clone();
        let mut shift = (0, 0);
        match expect {
            Expect::Drop(_) | Expect::Error(..) | Expect::Any => return Ok(None),
            Expect::Pass => {}
            Expect::As(arrival) => {
                shift = arrival.shift;
                rename(&mut packet, arrival);
            }
        }
        if let L4::Tcp(tcp) = &mut packet.l4 {
            tcp.seq += shift.0;
            tcp.ack = tcp.ack.map(|ack| ack + shift.1);
        }
        let out = side.other();
        self.bind(&packet, out, came);
        let ttl = packet.ip.ttl.unwrap_or(TTL).wrapping_sub(1);
        self.build(&packet, numbers, (out, side), ttl).map(Some)
    }

    /// Unbound ports of a packet are those of the frame.
    fn bind(&mut self, packet: &Packet, view: Side, came: &[u8]) {
        if self.pooled.is_none() {
            let is = |host| {
                let address = self.address(host, view);
                came.get(26..30)
                    .is_some_and(|b| address == IpAddr::from([b[0], b[1], b[2], b[3]]))
            };
            self.pooled = [Host::P, Host::Q].into_iter().find(|h| is(*h));
        }
        let Some((from, to)) = ports(came) else {
            return;
        };
        for (end, value) in [(&packet.from, from), (&packet.to, to)] {
            if let Some(Port::Var(name)) = self.seen_as(end, view).port {
                self.vars.entry(name).or_insert(value);
            }
        }
    }

    /// A role as the hosts on a side see it.
    fn seen_as(&self, end: &End, view: Side) -> End {
        let ends = match view == self.opener_side() {
            true => &self.near,
            false => &self.far,
        };
        let seen = match end.host {
            Host::Opener => &ends.0,
            Host::Responder => &ends.1,
            _ => end,
        };
        End {
            host: seen.host,
            port: end.port.clone().or_else(|| seen.port.clone()),
        }
    }

    /// Whose sequence numbers those of an end are. A public address stands for the other host inside, if it talks to one.
    fn behind(&self, host: Host, other: Host) -> Host {
        match (host, other) {
            (Host::Opener, _) => self.near.0.host,
            (Host::Responder, _) => self.far.1.host,
            (Host::P | Host::Q | Host::Pooled, Host::C) => Host::D,
            (Host::P | Host::Q | Host::Pooled, _) => Host::C,
            (host, _) => host,
        }
    }

    fn isn(&self, host: Host, other: Host) -> i64 {
        let value = self.isn.get(&self.behind(host, other));
        i64::from(value.copied().unwrap_or(0))
    }

    fn resolve(&self, end: &End, view: Side, sent: Side) -> Result<(IpAddr, u16), Unbound> {
        let seen = self.seen_as(end, view);
        let port = match &seen.port {
            Some(port) => self.port(port)?,
            None => match seen.host {
                Host::S | Host::T => 80,
                Host::X => 50_000,
                _ => 40_000,
            },
        };
        Ok((self.address(seen.host, sent), port))
    }

    /// `sent`: the side that X is on.
    pub(crate) fn address(&self, host: Host, sent: Side) -> IpAddr {
        let host = match host {
            Host::Pooled => self.pooled.unwrap_or(Host::P),
            host => host,
        };
        let (net, low) = match (host, sent) {
            (Host::C, _) => (1, 2),
            (Host::D, _) => (1, 3),
            (Host::X, Side::Inside) => (1, 4),
            (Host::S, _) => (2, 2),
            (Host::T, _) => (2, 3),
            (Host::X, Side::Outside) => (2, 4),
            (Host::P, _) => (3, 1),
            (Host::Q, _) => (3, 2),
            // Roles were resolved before.
            (Host::Opener | Host::Responder | Host::Pooled, _) => (2, 9),
        };
        if self.ip6 {
            let block = u16::from(self.block);
            return Ipv6Addr::new(0x2001, 0xdb8, net.into(), block, 0, 0, 0, low.into()).into();
        }
        match net {
            3 => Ipv4Addr::new(198, 18, self.block, low).into(),
            _ => Ipv4Addr::new(10, net, self.block, low).into(),
        }
    }

    /// `numbers`: whose sequence numbers count; `view`: who sees the packet; `sent`: the side that it was sent from.
    fn build(
        &self,
        packet: &Packet,
        numbers: (Host, Host),
        (view, sent): (Side, Side),
        ttl: u8,
    ) -> Result<Vec<u8>, Unbound> {
        let from = self.resolve(&packet.from, view, sent)?;
        let to = self.resolve(&packet.to, view, sent)?;
        let mut base = ip(from.0, to.0).ttl(ttl);
        if let Some(id) = packet.ip.id {
            base = base.id(id);
        }
        let whole = match &packet.l4 {
            L4::Tcp(tcp) => self.tcp(base.clone(), numbers, tcp, (from.1, to.1)),
            L4::Udp {
                payload,
                zero_checksum,
                bad_checksum,
            } => {
                let text = self.text(payload);
                let frame = base.clone().udp(from.1, to.1).payload(&text);
                match (zero_checksum, bad_checksum) {
                    (true, _) => frame.zero_checksum(),
                    (_, true) => frame.wrong_checksum(7),
                    _ => frame,
                }
            }
            L4::Icmp(icmp) => self.icmp(base.clone(), icmp, view, sent, (from.1, to.1))?,
            L4::Other { protocol, payload } => {
                let mut bytes = self.text(payload);
                if *protocol == SCTP && bytes.len() >= 12 {
                    bytes[8..12].fill(0);
                    let sum = crc32c(&bytes).to_le_bytes();
                    bytes[8..12].copy_from_slice(&sum);
                }
                base.clone().protocol(*protocol).payload(&bytes)
            }
        };
        let mut bytes = whole.build();
        let header = if self.ip6 { 40 } else { 20 };
        for (at, poked) in &packet.ip.pokes {
            let at = ETHERNET + header + at;
            if let Some(place) = bytes.get_mut(at..at + poked.len()) {
                place.copy_from_slice(poked);
            }
        }
        let Some((begin, end, more)) = packet.ip.piece else {
            return Ok(bytes);
        };
        let payload = &bytes[ETHERNET + header..];
        let piece = payload.get(begin..end.min(payload.len())).unwrap_or(&[]);
        let mut bytes = base
            .protocol(protocol(&packet.l4, self.ip6))
            .fragment((begin / 8) as u16, more)
            .payload(piece)
            .build();
        if self.ip6 {
            let id = u32::from(packet.ip.id.unwrap_or(1)).to_be_bytes();
            bytes[ETHERNET + 44..ETHERNET + 48].copy_from_slice(&id);
        }
        Ok(bytes)
    }

    fn tcp(&self, base: Frame, numbers: (Host, Host), tcp: &Tcp, (from, to): (u16, u16)) -> Frame {
        let own = self.isn(numbers.0, numbers.1);
        let other = self.isn(numbers.1, numbers.0);
        let acknowledgement = tcp.ack.map_or(0, |ack| (other + ack) as u32);
        let mut options = tcp.options.clone();
        if let Some((left, right)) = tcp.sack {
            options.extend([1, 1, 5, 10]);
            options.extend(((other + left) as u32).to_be_bytes());
            options.extend(((other + right) as u32).to_be_bytes());
        }
        let frame = base
            .tcp(from, to)
            .flags(tcp.flags)
            .numbers((own + tcp.seq) as u32, acknowledgement)
            .window(tcp.window)
            .tcp_bytes(&options)
            .payload(&self.text(&tcp.payload));
        match tcp.bad_checksum {
            true => frame.wrong_checksum(5),
            false => frame,
        }
    }

    fn icmp(
        &self,
        base: Frame,
        icmp: &Icmp,
        view: Side,
        sent: Side,
        ports: (u16, u16),
    ) -> Result<Frame, Unbound> {
        let mut payload = icmp.payload.clone();
        if let Some(quote) = &icmp.quote {
            let numbers = (quote.from.host, quote.to.host);
            let quoted = self.build(quote, numbers, (view, sent), TTL - 2)?;
            let end = (ETHERNET + icmp.quoted).min(quoted.len());
            payload = quoted[ETHERNET..end].to_vec();
        }
        let rest = match icmp.kind {
            // Queries, and answers to them.
            8 | 13 | 15 | 17 | 128 => (ports.0, icmp.rest as u16),
            0 | 14 | 16 | 18 | 129 => (ports.1, icmp.rest as u16),
            _ => ((icmp.rest >> 16) as u16, icmp.rest as u16),
        };
        let frame = base
            .icmp(icmp.kind, icmp.code)
            .echo(rest.0, rest.1)
            .payload(&payload);
        Ok(match icmp.bad_checksum {
            true => frame.wrong_checksum(3),
            false => frame,
        })
    }

    /// A text with addresses and ports put in: `<c>` is 10.1.2.3, `<c,>` 10,1,2,3, `<?m>` a number, `<?m,>` its two bytes.
    pub(crate) fn text(&self, text: &[u8]) -> Vec<u8> {
        let Ok(mut text) = String::from_utf8(text.to_vec()) else {
            return text.to_vec();
        };
        for (name, host) in [
            ("c", Host::C),
            ("d", Host::D),
            ("s", Host::S),
            ("t", Host::T),
            ("p", Host::P),
        ] {
            if !text.contains('<') {
                break;
            }
            let address = self.address(host, Side::Outside).to_string();
            text = text.replace(&format!("<{name},>"), &address.replace('.', ","));
            text = text.replace(&format!("<{name}>"), &address);
        }
        for (name, value) in &self.vars {
            let two = format!("{},{}", value >> 8, value & 0xff);
            text = text.replace(&format!("<?{name},>"), &two);
            text = text.replace(&format!("<?{name}>"), &value.to_string());
        }
        text.into_bytes()
    }
}

/// The block of addresses that a frame goes to.
pub(crate) fn block_of(frame: &[u8]) -> Option<u8> {
    match (frame.get(12..14)?, frame.get(30..34), frame.get(38..54)) {
        ([8, 0], Some([10, 1 | 2, block, _] | [198, 18, block, _]), _) => Some(*block),
        ([0x86, 0xdd], _, Some([0x20, 1, 0xd, 0xb8, 0, 1..=3, 0, block, ..])) => Some(*block),
        _ => None,
    }
}

/// Whether the box itself made a frame: its interfaces' addresses end the networks of the bed.
pub(crate) fn is_own(frame: &[u8]) -> bool {
    matches!(
        (frame.get(12..14), frame.get(26..30), frame.get(22..38)),
        (Some([8, 0]), Some([10, 255, ..]), _)
            | (
                Some([0x86, 0xdd]),
                _,
                Some([0xfd, 0, 2, 0x55, ..] | [0xfe, 0x80, ..])
            )
    )
}

/// Ports of a whole packet, or the identifier of a query as both.
fn ports(frame: &[u8]) -> Option<(u16, u16)> {
    let (l4, protocol) = match frame.get(12..14)? {
        [8, 0] => (ETHERNET + 20, *frame.get(23)?),
        [0x86, 0xdd] => (ETHERNET + 40, *frame.get(20)?),
        _ => return None,
    };
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    match protocol {
        6 | 17 => Some((word(l4)?, word(l4 + 2)?)),
        1 | 58 => Some((word(l4 + 4)?, word(l4 + 4)?)),
        _ => None,
    }
}

/// What a receiver puts together of the frames: the IP payloads of whole datagrams, with the first and with the last of overlapping pieces.
pub(crate) fn reassembled(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut pieces: BTreeMap<u32, Vec<(usize, bool, Vec<u8>)>> = BTreeMap::new();
    let mut whole = Vec::new();
    for frame in frames {
        match piece(frame) {
            Some((_, 0, false, bytes)) => whole.push(bytes),
            Some((id, at, more, bytes)) => pieces.entry(id).or_default().push((at, more, bytes)),
            None => {}
        }
    }
    for of in pieces.values() {
        let Some(len) = (of.iter().filter(|(_, more, _)| !more))
            .map(|(at, _, b)| at + b.len())
            .max()
        else {
            continue;
        };
        for last_wins in [false, true] {
            let mut bytes = vec![None; len];
            for (at, _, piece) in of {
                for (n, byte) in piece.iter().enumerate() {
                    if let Some(place) = bytes.get_mut(at + n)
                        && (last_wins || place.is_none())
                    {
                        *place = Some(*byte);
                    }
                }
            }
            whole.extend(bytes.into_iter().collect::<Option<Vec<u8>>>());
        }
    }
    whole
}

/// Identification, offset, whether more follow, and bytes of the IP payload.
fn piece(frame: &[u8]) -> Option<(u32, usize, bool, Vec<u8>)> {
    let packet = frame.get(ETHERNET..)?;
    let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    match frame.get(12..14)? {
        [8, 0] => {
            let field = word(6)?;
            let (header, total) = (usize::from(packet.first()? & 15) * 4, usize::from(word(2)?));
            let bytes = packet.get(header..total)?.to_vec();
            let offset = usize::from(field & 0x1fff) * 8;
            Some((word(4)?.into(), offset, field & MORE_FRAGMENTS != 0, bytes))
        }
        [0x86, 0xdd] => {
            let end = 40 + usize::from(word(4)?);
            if packet.get(6) != Some(&44) {
                return Some((0, 0, false, packet.get(40..end)?.to_vec()));
            }
            let field = word(42)?;
            let id = u32::from(word(44)?) << 16 | u32::from(word(46)?);
            let bytes = packet.get(48..end)?.to_vec();
            Some((id, usize::from(field & 0xfff8), field & 1 != 0, bytes))
        }
        _ => None,
    }
}

fn ip(from: IpAddr, to: IpAddr) -> Frame {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Frame::new().ip4(from.octets(), to.octets()),
        (IpAddr::V6(from), IpAddr::V6(to)) => Frame::new().ip6(from.octets(), to.octets()),
        // A case has one family.
        _ => Frame::new(),
    }
}

fn protocol(l4: &L4, ip6: bool) -> u8 {
    match l4 {
        L4::Tcp(_) => 6,
        L4::Udp { .. } => 17,
        L4::Icmp(_) if ip6 => 58,
        L4::Icmp(_) => 1,
        L4::Other { protocol, .. } => *protocol,
    }
}

/// The checksum of SCTP (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

/// The packet under the names that it arrives by.
fn rename(packet: &mut Packet, arrival: &Arrival) {
    packet.from = arrival.from.clone();
    packet.to = arrival.to.clone();
    match &mut packet.l4 {
        L4::Icmp(Icmp {
            quote: Some(quote), ..
        }) => {
            if let Some((from, to)) = &arrival.quote {
                quote.from = from.clone();
                quote.to = to.clone();
            }
        }
        L4::Tcp(Tcp { payload, .. }) | L4::Udp { payload, .. } | L4::Other { payload, .. } => {
            if let Some(text) = &arrival.text {
                payload.clone_from(text);
            }
        }
        L4::Icmp(_) => {}
    }
}

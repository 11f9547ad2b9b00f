//! What must come out of a balancer, by a naive reading of docs/balancer.md: an account of flows, and packets put together byte by byte.
//!
//! Shares the hash and the ring with the plan, which are part of the manual (edges must agree on them), and nothing with the C.

use std::collections::HashMap;
use std::net::IpAddr;

use weir_functions::balancer::ring::{self, Member};
use weir_functions::balancer::{Balancer, Mode, Protocol, Server, Service};
use weir_packet::Reason;

/// A packet in the words of whoever made it.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) frame: Vec<u8>,
    pub(crate) port: u32,
    /// Offset of the IP header, and of what is behind it.
    pub(crate) l3: usize,
    pub(crate) l4: usize,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Tcp {
        sport: u16,
        dport: u16,
        flags: u8,
    },
    Udp {
        sport: u16,
        dport: u16,
    },
    /// QUIC, with the server id of its connection id if a server can have chosen that.
    Quic {
        sport: u16,
        dport: u16,
        id: Option<u32>,
    },
    /// UDP, in fragments.
    First {
        sport: u16,
        dport: u16,
        id: u32,
    },
    /// `next`: of the header that it says to be behind.
    Later {
        id: u32,
        next: u8,
    },
    Echo,
    /// Quotes a packet from `dst`: protocol, its source port, its destination, the port there.
    Error {
        protocol: u8,
        sport: u16,
        to: IpAddr,
        dport: u16,
        quote: usize,
    },
    /// An error about a packet that `dst` sent from `dport` to `server` and its port: of the server itself, or of a station in front of it.
    Reply {
        protocol: u8,
        sport: u16,
        server: IpAddr,
        dport: u16,
        quote: usize,
    },
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// By this port.
    Out(u32, Vec<u8>),
    Stack(Vec<u8>),
    Drop(Reason),
}

type Flow = (u8, IpAddr, u16, IpAddr, u16);

pub(crate) struct Model<'a> {
    balancer: &'a Balancer,
    mtu: usize,
    flows: HashMap<Flow, (usize, usize)>,
    fragments: HashMap<(IpAddr, IpAddr, u32), (usize, usize, bool)>,
    pub(crate) seen: HashMap<String, u32>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(balancer: &'a Balancer, mtu: usize) -> Model<'a> {
        Model {
            balancer,
            mtu,
            flows: HashMap::new(),
            fragments: HashMap::new(),
            seen: HashMap::new(),
        }
    }

    pub(crate) fn packet(&mut self, made: &Made) -> Fate {
        match made.what.clone() {
            What::Tcp {
                sport,
                dport,
                flags,
            } => self.ported(made, 6, sport, dport, flags, None),
            What::Udp { sport, dport } => self.ported(made, 17, sport, dport, 0, None),
            What::Quic { sport, dport, id } => self.ported(made, 17, sport, dport, 0, id),
            What::First { sport, dport, id } => {
                let key = (made.src, made.dst, id);
                if let Some(service) = self.service(made.dst, 17, dport) {
                    let server = self.choose(service, (17, made.src, sport, made.dst, dport), 0);
                    self.fragments.insert(key, (service, server, true));
                } else if let Some((service, server)) =
                    self.answers(made.src, 17, sport, (made.dst, dport))
                {
                    self.fragments.insert(key, (service, server, false));
                }
                self.ported(made, 17, sport, dport, 0, None)
            }
            What::Later { id, next } => {
                match self.fragments.get(&(made.src, made.dst, id)).copied() {
                    Some((service, server, true)) => {
                        let hash = hash(made.src, made.dst, next.into());
                        self.forward(made, service, server, hash, true)
                    }
                    Some((service, _, false)) => self.back(made, service, true),
                    None if self.is_service(made.dst) => Fate::Drop(Reason::FragBeforeFirst),
                    None => Fate::Stack(made.frame.clone()),
                }
            }
            What::Echo if self.is_service(made.dst) => self.echo(made),
            What::Echo => Fate::Stack(made.frame.clone()),
            What::Error {
                protocol,
                sport,
                to,
                dport,
                ..
            } => {
                let service = self.service(made.dst, protocol, sport);
                let Some(service) = service else {
                    return Fate::Stack(made.frame.clone());
                };
                let flow = (protocol, to, dport, made.dst, sport);
                let server = match self.flows.get(&flow) {
                    Some((_, server)) => *server,
                    None => self.by_ring(service, flow),
                };
                *self.seen.entry("error".into()).or_default() += 1;
                self.forward(made, service, server, flow_hash(flow), false)
            }
            What::Reply {
                protocol,
                sport,
                server,
                dport,
                quote,
            } => {
                let Some((service, _)) = self.answers(server, protocol, sport, (made.dst, dport))
                else {
                    return Fate::Stack(made.frame.clone());
                };
                let is_between = made.src != server;
                let what = if is_between { "reply between" } else { "reply" };
                *self.seen.entry(what.into()).or_default() += 1;
                let service = &self.balancer.services[service];
                let (address, port) = (service.address.address(), service.port);
                Fate::Stack(error(made, quote, address, port, false, is_between))
            }
        }
    }

    fn ported(
        &mut self,
        made: &Made,
        protocol: u8,
        sport: u16,
        dport: u16,
        flags: u8,
        id: Option<u32>,
    ) -> Fate {
        let Some(service) = self.service(made.dst, protocol, dport) else {
            return match self.answers(made.src, protocol, sport, (made.dst, dport)) {
                Some((service, _)) => self.back(made, service, false),
                None => Fate::Stack(made.frame.clone()),
            };
        };
        let flow = (protocol, made.src, sport, made.dst, dport);
        let servers = &self.balancer.services[service].servers;
        let by_id = servers.iter().position(|s| id.is_some() && s.id == id);
        let server = match by_id {
            Some(server) => server,
            None => self.choose(service, flow, flags),
        };
        *self
            .seen
            .entry(format!(
                "{} to {}",
                self.balancer.services[service].name, servers[server].address
            ))
            .or_default() += 1;
        self.forward(made, service, server, flow_hash(flow), false)
    }

    /// The most specific one.
    fn service(&self, address: IpAddr, protocol: u8, port: u16) -> Option<usize> {
        let wanted = if protocol == 6 {
            Protocol::Tcp
        } else {
            Protocol::Udp
        };
        let fits = |s: &Service| {
            s.protocol == wanted && s.port.is_none_or(|p| p == port) && covers(s, address)
        };
        let all = self.balancer.services.iter().enumerate();
        let found = all
            .filter(|(_, s)| fits(s))
            .max_by_key(|(_, s)| (s.address.is_one(), s.port.is_some(), s.address.len));
        found.map(|(at, _)| at)
    }

    fn is_service(&self, address: IpAddr) -> bool {
        self.balancer.services.iter().any(|s| covers(s, address))
    }

    /// The NAT service and server that packets of this source belong to.
    fn behind(&self, address: IpAddr, protocol: u8, port: u16) -> Option<(usize, usize)> {
        let wanted = if protocol == 6 {
            Protocol::Tcp
        } else {
            Protocol::Udp
        };
        self.balancer
            .services
            .iter()
            .enumerate()
            .find_map(|(at, s)| {
                let server = s.servers.iter().position(|x| {
                    x.address == address && x.port.or(s.port).is_none_or(|p| p == port)
                });
                (s.mode == Mode::Nat && s.protocol == wanted).then_some((at, server?))
            })
    }

    /// The same, if the packet, or what it is about, is an answer to a flow that is remembered with that server.
    fn answers(
        &mut self,
        address: IpAddr,
        protocol: u8,
        port: u16,
        client: (IpAddr, u16),
    ) -> Option<(usize, usize)> {
        let (service, server) = self.behind(address, protocol, port)?;
        let it = &self.balancer.services[service];
        let at = (it.address.address(), it.port.unwrap_or(port));
        let flow = (protocol, client.0, client.1, at.0, at.1);
        let known = self.flows.get(&flow) == Some(&(service, server));
        if !known {
            *self.seen.entry("no answer".into()).or_default() += 1;
        }
        known.then_some((service, server))
    }

    fn choose(&mut self, service: usize, flow: Flow, flags: u8) -> usize {
        if let Some((_, server)) = self.flows.get(&flow) {
            return *server;
        }
        let server = self.by_ring(service, flow);
        // FIN and RST begin nothing.
        if flags & 5 == 0 {
            self.flows.insert(flow, (service, server));
        }
        server
    }

    fn by_ring(&self, service: usize, flow: Flow) -> usize {
        let it = &self.balancer.services[service];
        let members: Vec<Member> = (0..)
            .zip(&it.servers)
            .filter(|(_, s)| s.takes_flows())
            .map(|(number, s)| Member {
                identity: it.server_identity(s),
                weight: s.weight,
                number,
            })
            .collect();
        let ring = ring::build(&members, self.balancer.ring);
        let place = ((flow_hash(flow) >> 32) * ring.len() as u64) >> 32;
        ring[place as usize].into()
    }

    fn forward(
        &mut self,
        made: &Made,
        service: usize,
        server: usize,
        hash: u64,
        later: bool,
    ) -> Fate {
        let service = &self.balancer.services[service];
        let server = &service.servers[server];
        let mut frame = match service.mode {
            Mode::Dsr => made.frame.clone(),
            Mode::Nat => translated(made, server.address, server.port, true, later),
            mode => {
                let (outer, more) = tunnel(made, mode, server, hash, self.balancer);
                let inner = made.frame.len() - made.l3 - trailer(made);
                if inner + more > self.mtu {
                    return too_big(made, self.mtu - more);
                }
                outer
            }
        };
        let Some(mac) = server.mac else {
            return Fate::Stack(frame);
        };
        frame[6..12].copy_from_slice(&made.frame[..6]);
        frame[..6].copy_from_slice(&mac);
        Fate::Out(server.to.unwrap_or(made.port), frame)
    }

    fn back(&mut self, made: &Made, service: usize, later: bool) -> Fate {
        let service = &self.balancer.services[service];
        *self.seen.entry("back".into()).or_default() += 1;
        Fate::Stack(translated(
            made,
            service.address.address(),
            service.port,
            false,
            later,
        ))
    }

    fn echo(&mut self, made: &Made) -> Fate {
        let mut frame = made.frame.clone();
        frame[..6].copy_from_slice(&made.frame[6..12]);
        frame[6..12].copy_from_slice(&made.frame[..6]);
        let l3 = made.l3;
        if made.src.is_ipv4() {
            frame[l3 + 12..l3 + 16].copy_from_slice(&octets(made.dst));
            frame[l3 + 16..l3 + 20].copy_from_slice(&octets(made.src));
            frame[l3 + 8] = 64;
            ip_checksum(&mut frame, l3);
            frame[made.l4] = 0;
        } else {
            frame[l3 + 8..l3 + 24].copy_from_slice(&octets(made.dst));
            frame[l3 + 24..l3 + 40].copy_from_slice(&octets(made.src));
            frame[l3 + 7] = 64;
            frame[made.l4] = 129;
        }
        let end = frame.len();
        checksum_at(&mut frame, made, made.dst, made.src, 2, end);
        *self.seen.entry("echo".into()).or_default() += 1;
        Fate::Out(made.port, frame)
    }
}

fn covers(service: &Service, address: IpAddr) -> bool {
    service.address.contains(address)
}

/// Bytes behind the IP packet; generated packets have none.
fn trailer(_: &Made) -> usize {
    0
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn halves(address: IpAddr) -> (u64, u64) {
    match address {
        IpAddr::V4(a) => (0, u32::from(a).into()),
        IpAddr::V6(a) => ((u128::from(a) >> 64) as u64, u128::from(a) as u64),
    }
}

fn flow_hash((protocol, src, sport, dst, dport): Flow) -> u64 {
    let ports = u64::from(sport) << 16 | u64::from(dport);
    hash(src, dst, u64::from(protocol) << 32 | ports)
}

fn hash(src: IpAddr, dst: IpAddr, rest: u64) -> u64 {
    let ((src_high, src_low), (dst_high, dst_low)) = (halves(src), halves(dst));
    let (a, b, c) = (
        0x9e37_79b9_7f4a_7c15u64,
        0xbf58_476d_1ce4_e5b9u64,
        0x94d0_49bb_1331_11ebu64,
    );
    let mut h = (src_low ^ 0x51ed_270b_9f3c_a6d5).wrapping_mul(b);
    h = (h ^ h >> 32 ^ dst_low).wrapping_mul(a);
    if src_high | dst_high != 0 {
        h = (h ^ h >> 31 ^ src_high ^ dst_high.rotate_left(7)).wrapping_mul(b);
    }
    h = (h ^ h >> 29 ^ rest).wrapping_mul(c);
    h = (h ^ h >> 32).wrapping_mul(b);
    h ^ h >> 29
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    words.sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ip_checksum(frame: &mut [u8], l3: usize) {
    let end = l3 + usize::from(frame[l3] & 15) * 4;
    frame[l3 + 10..l3 + 12].fill(0);
    let value = fold(sum(&frame[l3..end]));
    frame[l3 + 10..l3 + 12].copy_from_slice(&value.to_be_bytes());
}

/// Computes the checksum at `made.l4 + at` anew, with a pseudo-header unless it is ICMP over IPv4.
fn checksum_at(frame: &mut [u8], made: &Made, src: IpAddr, dst: IpAddr, at: usize, end: usize) {
    let (l4, protocol) = (
        made.l4,
        match made.what {
            What::Tcp { .. } => 6u32,
            What::Udp { .. } | What::Quic { .. } | What::First { .. } | What::Later { .. } => 17,
            What::Echo | What::Error { .. } | What::Reply { .. } if made.src.is_ipv4() => 1,
            What::Echo | What::Error { .. } | What::Reply { .. } => 58,
        },
    );
    frame[l4 + at..l4 + at + 2].fill(0);
    let mut all = sum(&frame[l4..end]);
    if protocol != 1 {
        all += sum(&octets(src)) + sum(&octets(dst)) + protocol + (end - l4) as u32;
    }
    let mut value = fold(all);
    if protocol == 17 && value == 0 {
        value = 0xffff;
    }
    frame[l4 + at..l4 + at + 2].copy_from_slice(&value.to_be_bytes());
}

fn translated(
    made: &Made,
    address: IpAddr,
    port: Option<u16>,
    is_dst: bool,
    later: bool,
) -> Vec<u8> {
    if let What::Error { quote, .. } = made.what {
        return error(made, quote, address, port, is_dst, false);
    }
    let mut frame = made.frame.clone();
    let (width, first) = if address.is_ipv4() { (4, 12) } else { (16, 8) };
    let at = made.l3 + first + if is_dst { width } else { 0 };
    frame[at..at + width].copy_from_slice(&octets(address));
    if address.is_ipv4() {
        ip_checksum(&mut frame, made.l3);
    }
    if later {
        return frame;
    }
    let (src, dst) = if is_dst {
        (made.src, address)
    } else {
        (address, made.dst)
    };
    // The checksum of a first fragment is that of the whole datagram: what changed of it is known, not the rest.
    let at = if matches!(made.what, What::Tcp { .. }) {
        16
    } else {
        6
    };
    let before =
        sum(&octets(made.src)) + sum(&octets(made.dst)) + sum(&frame[made.l4..made.l4 + 4]);
    if let Some(port) = port {
        let at = made.l4 + if is_dst { 2 } else { 0 };
        frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    let after = sum(&octets(src)) + sum(&octets(dst)) + sum(&frame[made.l4..made.l4 + 4]);
    adjust(&mut frame, made.l4 + at, before, after, at == 6);
    frame
}

/// A checksum after a sum of what it covers became another one.
fn adjust(frame: &mut [u8], at: usize, before: u32, after: u32, is_udp: bool) {
    let had = u16::from_be_bytes([frame[at], frame[at + 1]]);
    if had == 0 && is_udp {
        return;
    }
    // 0xffff0 is 0 in one's complement, and more than any of the sums.
    let mut value = fold(u32::from(!had) + after + (0xffff * 64 - before));
    if value == 0 && is_udp {
        value = 0xffff;
    }
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// An ICMP error on its way to a server (`is_dst`) or from there, with its quote.
fn error(
    made: &Made,
    quote: usize,
    address: IpAddr,
    port: Option<u16>,
    is_dst: bool,
    is_between: bool,
) -> Vec<u8> {
    let mut frame = made.frame.clone();
    let is4 = address.is_ipv4();
    let (width, first) = if is4 { (4, 12) } else { (16, 8) };
    let (mut src, mut dst) = (made.src, made.dst);
    if !is_between {
        let at = made.l3 + first + if is_dst { width } else { 0 };
        frame[at..at + width].copy_from_slice(&octets(address));
        *(if is_dst { &mut dst } else { &mut src }) = address;
        if is4 {
            ip_checksum(&mut frame, made.l3);
        }
    }
    let ends = quote + first..quote + first + 2 * width;
    let l4 = quote + if is4 { 20 } else { 40 };
    let before = sum(&frame[ends.clone()]) + sum(&frame[l4..l4 + 4]);
    let at = quote + first + if is_dst { 0 } else { width };
    frame[at..at + width].copy_from_slice(&octets(address));
    if is4 {
        ip_checksum(&mut frame, quote);
    }
    if let Some(port) = port {
        let at = l4 + if is_dst { 0 } else { 2 };
        frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    let after = sum(&frame[ends]) + sum(&frame[l4..l4 + 4]);
    match frame[quote + if is4 { 9 } else { 6 }] {
        17 => adjust(&mut frame, l4 + 6, before, after, true),
        6 if frame.len() >= l4 + 18 => adjust(&mut frame, l4 + 16, before, after, false),
        _ => {}
    }
    let end = frame.len();
    checksum_at(&mut frame, made, src, dst, 2, end);
    frame
}

fn tunnel(
    made: &Made,
    mode: Mode,
    server: &Server,
    hash: u64,
    balancer: &Balancer,
) -> (Vec<u8>, usize) {
    let inner = &made.frame[made.l3..];
    let tos = match made.src.is_ipv4() {
        true => inner[1],
        false => inner[0] << 4 | inner[1] >> 4,
    };
    let next: u8 = if made.src.is_ipv4() { 4 } else { 41 };
    let mut udp = Vec::new();
    let mut protocol = next;
    if let Mode::Gue { port, version } = mode {
        let own = if version == 0 { 4 } else { 0 };
        udp.extend((0xc000 | hash as u16 & 0x3fff).to_be_bytes());
        udp.extend(port.to_be_bytes());
        udp.extend(((8 + own + inner.len()) as u16).to_be_bytes());
        udp.extend([0, 0]);
        if version == 0 {
            udp.extend([0, next, 0, 0]);
        }
        protocol = 17;
    }
    let low = |prefix: weir_value::Prefix, width: u8| -> u32 {
        let bits = u32::from(width - prefix.len).min(32);
        hash as u32
            & if bits == 32 {
                u32::MAX
            } else {
                (1 << bits) - 1
            }
    };
    let mut out = made.frame[..made.l3].to_vec();
    let payload = (udp.len() + inner.len()) as u16;
    let l3 = made.l3;
    if server.address.is_ipv4() {
        let source = balancer.source4.expect("given");
        let IpAddr::V4(first) = source.address() else {
            panic!("IPv4")
        };
        out.extend([0x45, tos]);
        out.extend((20 + payload).to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        out.extend((u32::from(first) | low(source, 32)).to_be_bytes());
        out.extend(octets(server.address));
        ip_checksum(&mut out, l3);
        out[l3 - 2..l3].copy_from_slice(&[0x08, 0x00]);
    } else {
        let source = balancer.source6.expect("given");
        let IpAddr::V6(first) = source.address() else {
            panic!("IPv6")
        };
        out.extend((6u32 << 28 | u32::from(tos) << 20 | hash as u32 & 0xfffff).to_be_bytes());
        out.extend(payload.to_be_bytes());
        out.extend([protocol, 64]);
        out.extend((u128::from(first) | u128::from(low(source, 128))).to_be_bytes());
        out.extend(octets(server.address));
        out[l3 - 2..l3].copy_from_slice(&[0x86, 0xdd]);
    }
    out.extend(udp);
    let more = out.len() - l3;
    out.extend(inner);
    (out, more)
}

/// The service says how large a packet may be.
fn too_big(made: &Made, mtu: usize) -> Fate {
    let l3 = made.l3;
    let mut out = made.frame[6..12].to_vec();
    out.extend(&made.frame[..6]);
    out.extend(&made.frame[12..l3]);
    let inner = &made.frame[l3..];
    if made.src.is_ipv4() {
        let quote = &inner[..inner.len().min(548)];
        out.extend([0x45, inner[1] & 0x1e | 0xc0]);
        out.extend((28 + quote.len() as u16).to_be_bytes());
        out.extend([0, 0, 0, 0, 64, 1, 0, 0]);
        out.extend(octets(made.dst));
        out.extend(octets(made.src));
        ip_checksum(&mut out, l3);
        out.extend([3, 4, 0, 0, 0, 0]);
        out.extend((mtu as u16).to_be_bytes());
        out.extend(quote);
        let value = fold(sum(&out[l3 + 20..]));
        out[l3 + 22..l3 + 24].copy_from_slice(&value.to_be_bytes());
    } else {
        let quote = &inner[..inner.len().min(1232)];
        out.extend([0x60, 0, 0, 0]);
        out.extend((8 + quote.len() as u16).to_be_bytes());
        out.extend([58, 64]);
        out.extend(octets(made.dst));
        out.extend(octets(made.src));
        out.extend([2, 0, 0, 0]);
        out.extend((mtu as u32).to_be_bytes());
        out.extend(quote);
        let pseudo =
            sum(&octets(made.src)) + sum(&octets(made.dst)) + 58 + (8 + quote.len()) as u32;
        let value = fold(sum(&out[l3 + 40..]) + pseudo);
        out[l3 + 42..l3 + 44].copy_from_slice(&value.to_be_bytes());
    }
    Fate::Out(made.port, out)
}

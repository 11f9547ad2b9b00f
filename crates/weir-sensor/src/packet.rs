//! A decoded packet, as every stage after decoding sees it: offsets into the captured bytes, nothing copied.

use std::net::IpAddr;
use std::ops::Range;

use crate::event::Events;

/// Which way a packet, a byte of a stream or half a transaction goes. The client is who opened the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From client to server.
    ToServer = 0,
    /// From server to client.
    ToClient = 1,
}

impl Direction {
    /// For arrays of two.
    pub fn index(self) -> usize {
        self as usize
    }

    /// What belongs to it of a pair: to the server first.
    pub fn of<T>(self, pair: &[T; 2]) -> &T {
        let [to_server, to_client] = pair;
        match self {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        }
    }

    /// The same, to change it.
    pub fn of_mut<T>(self, pair: &mut [T; 2]) -> &mut T {
        let [to_server, to_client] = pair;
        match self {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        }
    }

    /// The other one.
    pub fn reversed(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// A decoded packet. Of a tunnel, each inner packet is one of these as well, with `depth` above 0.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970, by the capture's clock: the only clock that detection knows.
    pub time: u64,
    /// Counted from 1 over all files of a run (`pcap_cnt`); inner and reassembled packets have the number of the last frame they needed.
    pub number: u64,
    /// What holds this packet from its link or IP header on; before a reassembled datagram stand the headers of its last fragment.
    pub data: &'a [u8],
    /// Which of several interfaces it was seen on.
    pub interface: u8,
    /// VLAN identifiers, outermost first; `vlans` of them count.
    pub vlan: [u16; 3],
    /// How many.
    pub vlans: u8,
    /// How many tunnels deep.
    pub depth: u8,
    /// What carries it, as logs name it (`gre tunnel`); none of a frame's own packet, and of a datagram that was put together.
    pub carrier: Option<&'static str>,
    /// Whether it was put together from fragments.
    pub reassembled: bool,
    /// Where its Ethernet header begins in `data`, if it has one; of several that lie over each other the innermost.
    pub ethernet: Option<usize>,
    /// The IP header; without one there is nothing but link rules and anomalies.
    pub ip: Option<Ip>,
    /// Its payload is a whole packet of ARP.
    pub arp: bool,
    /// The transport header, if whole and not of a later fragment.
    pub transport: Transport,
    /// What follows the last header known: offsets into `data`.
    pub payload: Range<usize>,
    /// Of an ICMP error, the packet it is about.
    pub quoted: Option<Quoted>,
    /// A packet that this one carries: `Decoder::inner` decodes it.
    pub inner: Option<(Carried, Range<usize>)>,
    /// Whether a checksum was looked at and is wrong: no host takes such a packet, so streams leave it out.
    pub bad_checksum: bool,
    /// What is odd about it.
    pub events: Events,
    /// The same for both directions of all flows between two hosts, computed from the outermost addresses: what spreads packets over workers ([`crate::decode::Spreader`]).
    pub spread: u64,
}

/// How a carried packet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// With an Ethernet header.
    Ethernet,
    /// With what follows the Ethertype of a VLAN tag.
    Tagged,
    /// With an IP header of whichever version.
    Ip,
    /// With the protocol number of PPP.
    Ppp,
}

/// What an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its sender.
    pub source: IpAddr,
    /// Its receiver.
    pub destination: IpAddr,
    /// Its upper protocol.
    pub protocol: u8,
    /// Its ports, or type and identifier of an echo; 0 where there are none.
    pub ports: (u16, u16),
}

impl<'a> Packet<'a> {
    /// A packet in which nothing is decoded yet.
    pub fn new(time: u64, number: u64, data: &'a [u8]) -> Packet<'a> {
        Packet {
            time,
            number,
            data,
            interface: 0,
            vlan: [0; 3],
            vlans: 0,
            depth: 0,
            carrier: None,
            reassembled: false,
            ethernet: None,
            ip: None,
            arp: false,
            transport: Transport::None,
            payload: 0..0,
            quoted: None,
            inner: None,
            bad_checksum: false,
            events: Events::default(),
            spread: 0,
        }
    }

    /// Its TCP header.
    pub fn tcp(&self) -> Option<&Tcp> {
        match &self.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Source and destination port of TCP, UDP and SCTP; 0 for others.
    pub fn ports(&self) -> (u16, u16) {
        match &self.transport {
            Transport::Tcp(tcp) => (tcp.source, tcp.destination),
            Transport::Udp {
                source,
                destination,
                ..
            }
            | Transport::Sctp {
                source,
                destination,
                ..
            } => (*source, *destination),
            Transport::Icmp { .. } | Transport::None => (0, 0),
        }
    }

    /// Whether it carries another packet, as far as that can be told from its first bytes: something else on a tunnel's port is payload.
    pub fn is_carrier(&self) -> bool {
        let Some((kind, range)) = &self.inner else {
            return false;
        };
        let carried = self.data.get(range.clone()).unwrap_or_default();
        match kind {
            Carried::Ip => matches!(carried.first().map(|b| b >> 4), Some(4 | 6)),
            Carried::Ethernet => matches!(
                carried.get(12..14),
                Some(
                    [0x08, 0x00 | 0x06]
                        | [0x86, 0xdd]
                        | [0x81, 0x00]
                        | [0x88, 0xa8 | 0x47 | 0x48 | 0x64]
                )
            ),
            Carried::Ppp | Carried::Tagged => true,
        }
    }

    /// Where its IGMP message is: whole, as all of them have 8 bytes at least (RFC 1112, RFC 2236, RFC 9776).
    pub(crate) fn igmp(&self) -> Option<Range<usize>> {
        let ip = self.ip.as_ref()?;
        let is = ip.protocol == 2 && ip.source.is_ipv4() && !ip.fragment;
        (is && self.payload.len() >= 8).then(|| self.payload.clone())
    }

    /// Bytes of `data`; none where it is shorter.
    pub(crate) fn within(&self, start: usize, end: usize) -> &'a [u8] {
        self.data.get(start..end).unwrap_or_default()
    }

    /// The bytes after the last known header.
    pub fn payload(&self) -> &[u8] {
        self.data.get(self.payload.clone()).unwrap_or_default()
    }
}

/// An IP header.
#[derive(Clone, Debug)]
pub struct Ip {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Offsets of the header in `data`, options and extension headers included.
    pub header: Range<usize>,
    /// The upper protocol (IANA number), after extension headers.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// Identification of IPv4 or of the fragment header.
    pub id: u32,
    /// Bits as in IPv4's header: 4 reserved, 2 don't fragment, 1 more fragments.
    pub flags: u8,
    /// Offset of a fragment in bytes.
    pub fragment_offset: u16,
    /// Set for a fragment that is not whole by itself.
    pub fragment: bool,
}

/// A transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP, ports.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Where its header begins.
        header: usize,
    },
    /// SCTP, ports.
    Sctp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Where its header begins.
        header: usize,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Whether it is ICMPv6.
        v6: bool,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Identifier and sequence of an echo and its like.
        echo: Option<(u16, u16)>,
        /// Where its header begins.
        header: usize,
    },
    /// Any other, or none that could be read.
    None,
}

/// Flags of a TCP header.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Sequence numbers begin.
    pub const SYN: u8 = 2;
    /// Give up.
    pub const RST: u8 = 4;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 16;
    /// The urgent pointer counts.
    pub const URG: u8 = 32;
}

/// A TCP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Window as in the header.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Offsets of the header in `data`, options included.
    pub header: Range<usize>,
    /// The timestamp option.
    pub timestamps: Option<(u32, u32)>,
    /// The window scale option.
    pub window_scale: Option<u8>,
    /// The maximum segment size option.
    pub mss: Option<u16>,
    /// Whether selective acknowledgements are offered.
    pub sack_permitted: bool,
    /// TCP Fast Open (RFC 7413): data of its SYN may be read before the handshake is done.
    pub fast_open: bool,
    /// What it is signed by.
    pub signature: Signature,
}

/// An option that signs a segment (RFC 2385, RFC 5925). Whether the signature is right only its two ends can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signature {
    /// There is none.
    #[default]
    None,
    /// MD5 (option 19).
    Md5,
    /// The authentication option (29).
    Authentication,
}

//! Reading fields of a parsed packet: is it there, and what is its value.
//!
//! Owns where each [`Header`] of the field table starts in a given packet. Knows nothing of rules.

use weir_packet::parse::{Fragment, Ip, L4, Layout, Opt, Protocol, Version};

use super::dynamic_sets::DynamicSets;
use super::{ConnectionState, Input};
use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Subject};

/// A packet as received, with everything known about it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) layout: &'a Layout,
    /// What it has to do with connections, in policies that keep some.
    pub(super) state: Option<ConnectionState>,
    /// What packets before it filled sets with; `None`: nothing.
    pub(super) sets: Option<&'a DynamicSets>,
    pub(super) clock: Clock,
}

/// From the clock of packets to the time that rules test.
#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    /// Nanoseconds since 1970 minus those of the clock of packets.
    pub(super) offset_ns: u64,
    /// Minutes that the time of the policy is ahead of UTC.
    pub(super) timezone: i16,
}

impl<'a> View<'a> {
    /// The header classes of the packet.
    pub(super) fn classes(&self) -> Classes {
        [
            (Classes::IP4, Header::Ip4),
            (Classes::IP6, Header::Ip6),
            (Classes::TCP, Header::Tcp),
            (Classes::UDP, Header::Udp),
            (Classes::ICMP, Header::Icmp),
            (Classes::ICMP6, Header::Icmp6),
            (Classes::VLAN, Header::Vlan),
            (Classes::VLAN2, Header::Vlan2),
            (Classes::IP6_FRAG, Header::Ip6Frag),
            (Classes::PORTS, Header::Ports),
        ]
        .into_iter()
        .filter(|&(_, header)| header_at(self.layout, header).is_some())
        .fold(Classes::NONE, |all, (class, _)| all.union(class))
    }

    /// Whether the field exists; for fields of the kind `Is` whether their header does.
    pub(super) fn exists(&self, subject: Subject) -> bool {
        let info = subject.field.info();
        match info.kind {
            Kind::TcpOption(kind) => self.tcp_option(subject.option.or(kind)).is_some(),
            Kind::Ip4Option(kind) => self
                .ip_version(Version::V4)
                .is_some_and(|ip| last(&ip.options, subject.option.or(kind)).is_some()),
            Kind::ExtHeader(number) => self.ip_version(Version::V6).is_some_and(|ip| {
                let number = subject.option.or(number);
                ip.extensions
                    .iter()
                    .any(|extension| number.is_none_or(|number| number == extension.protocol))
            }),
            Kind::Exists => match info.name {
                "frag" => self
                    .fragment()
                    .is_some_and(|fragment| fragment != Fragment::Whole),
                "frag-first" => self.fragment() == Some(Fragment::First),
                "frag-later" => self.fragment() == Some(Fragment::Later),
                _ => header_at(self.layout, info.header).is_some(),
            },
            Kind::NetProto | Kind::L4Proto => self.layout.ip.is_some(),
            Kind::CtState => self.state.is_some(),
            Kind::OutPort => false,
            Kind::InPort | Kind::All => true,
            Kind::Number | Kind::Is(_) | Kind::Addr4 | Kind::Addr6 | Kind::Mac | Kind::Payload => {
                matches!(
                    info.header,
                    Header::Meta | Header::Skb | Header::Clock | Header::Ether
                ) || header_at(self.layout, info.header).is_some()
            }
        }
    }

    /// The value of a field as a number; `None` if it is absent or has none.
    pub(super) fn number(&self, subject: Subject) -> Option<u128> {
        let info = subject.field.info();
        match info.kind {
            Kind::Number if info.header == Header::Meta => Some(u128::from(self.input.queue)),
            Kind::Number if info.header == Header::Skb => {
                let meta = self.input.meta;
                Some(u128::from(match info.offset {
                    0 => meta.mark,
                    _ => meta.priority,
                }))
            }
            Kind::Number if info.header == Header::Clock => {
                let (hour, day) = self.local_time();
                Some(u128::from(if info.name == "hour" { hour } else { day }))
            }
            Kind::Number if info.header == Header::Ether => {
                Some(u128::from(self.layout.ether_type))
            }
            Kind::Number | Kind::Is(_) | Kind::Addr4 | Kind::Addr6 | Kind::Mac => {
                let at = header_at(self.layout, info.header)?;
                Some(bits(self.input.frame, at, info.offset, info.bits))
            }
            Kind::NetProto => self
                .layout
                .ip
                .as_ref()
                .map(|ip| if ip.version == Version::V4 { 4 } else { 6 }),
            Kind::L4Proto => self.layout.ip.as_ref().map(|ip| ip.protocol.into()),
            Kind::CtState => self.state.map(|state| state as u128),
            Kind::TcpOption(_) => {
                let value = self.option_value(subject.option?)?;
                let fits = (1..=8).contains(&value.len());
                fits.then(|| {
                    value
                        .iter()
                        .fold(0, |number, &byte| number << 8 | u128::from(byte))
                })
            }
            _ => None,
        }
    }

    /// Second of the day and day of the week from Sunday, when the packet came in.
    fn local_time(&self) -> (u64, u64) {
        // 1 January 1970 was a Thursday.
        const FIRST_DAY: i64 = 4;
        let wall_ns = self.input.now_ns.wrapping_add(self.clock.offset_ns);
        let seconds = (wall_ns / 1_000_000_000) as i64 + i64::from(self.clock.timezone) * 60;
        let hour = seconds.rem_euclid(86_400);
        let day = (seconds.div_euclid(86_400) + FIRST_DAY).rem_euclid(7);
        (hour as u64, day as u64)
    }

    /// The value of the TCP option of a kind (the last one), if it has the length its kind prescribes.
    pub(super) fn option_value(&self, kind: u8) -> Option<&'a [u8]> {
        let value = self.tcp_option(Some(kind))?.value(self.input.frame);
        let prescribed = match kind {
            2 => Some(2),
            3 => Some(1),
            8 => Some(8),
            _ => None,
        };
        prescribed
            .is_none_or(|len| len == value.len())
            .then_some(value)
    }

    /// The bytes of a payload field.
    pub(super) fn payload(&self, field: Field) -> Option<&'a [u8]> {
        self.input.frame.get(payload(self.layout, field)?)
    }

    /// Where the payload of a field begins in the frame.
    pub(super) fn payload_start(&self, field: Field) -> Option<usize> {
        Some(payload(self.layout, field)?.start)
    }

    fn tcp_option(&self, kind: Option<u8>) -> Option<&'a Opt> {
        last(&l4(self.layout, Protocol::Tcp)?.options, kind)
    }

    fn ip_version(&self, version: Version) -> Option<&'a Ip> {
        ip(self.layout, version)
    }

    fn fragment(&self) -> Option<Fragment> {
        self.layout.ip.as_ref().map(|ip| ip.fragment)
    }
}

/// Offset of a header in the frame, if the packet has it.
pub(super) fn header_at(layout: &Layout, header: Header) -> Option<usize> {
    match header {
        Header::Meta | Header::Skb | Header::Clock | Header::Ether => None,
        Header::EtherAddr => Some(0),
        Header::Ports => ports_at(layout),
        Header::Vlan => layout.tags.first().copied(),
        Header::Vlan2 => layout.tags.get(1).copied(),
        Header::Ip4 => ip(layout, Version::V4).map(|ip| ip.at),
        Header::Ip6 => ip(layout, Version::V6).map(|ip| ip.at),
        Header::Ip6Frag => ip(layout, Version::V6)?.fragment_header(),
        Header::Icmp => l4(layout, Protocol::Icmp).map(|l4| l4.at),
        Header::Icmp6 => l4(layout, Protocol::Icmp6).map(|l4| l4.at),
        Header::Udp => l4(layout, Protocol::Udp).map(|l4| l4.at),
        Header::Tcp => l4(layout, Protocol::Tcp).map(|l4| l4.at),
    }
}

/// Where the two ports are: of TCP and UDP, and of other protocols that begin with them, if 8 bytes of the packet are there.
fn ports_at(layout: &Layout) -> Option<usize> {
    const OTHERS: [u8; 3] = [33, 132, 136];
    if let Some(l4) = &layout.l4 {
        return matches!(l4.protocol, Protocol::Tcp | Protocol::Udp).then_some(l4.at);
    }
    let ip = layout.ip.as_ref()?;
    let has_ports =
        ip.fragment != Fragment::Later && OTHERS.contains(&ip.protocol) && ip.payload.len() >= 8;
    has_ports.then_some(ip.payload.start)
}

/// Largest offset in a frame at which payload bytes may begin, docs/semantics.md section 2.
pub(super) const REACH: usize = 65_535;

/// Where the bytes of a payload field are.
pub(super) fn payload(layout: &Layout, field: Field) -> Option<std::ops::Range<usize>> {
    match field.info().header {
        Header::Ip4 => ip(layout, Version::V4).map(|ip| ip.payload.clone()),
        Header::Ip6 => ip(layout, Version::V6).map(|ip| ip.payload.clone()),
        header => {
            header_at(layout, header)?;
            layout.l4.as_ref().map(|l4| l4.payload.clone())
        }
    }
}

fn ip(layout: &Layout, version: Version) -> Option<&Ip> {
    layout.ip.as_ref().filter(|ip| ip.version == version)
}

fn l4(layout: &Layout, protocol: Protocol) -> Option<&L4> {
    layout.l4.as_ref().filter(|l4| l4.protocol == protocol)
}

fn last(options: &[Opt], kind: Option<u8>) -> Option<&Opt> {
    options
        .iter()
        .rev()
        .find(|option| kind.is_none_or(|kind| kind == option.kind))
}

/// `width` bits from bit `offset` of the header at `at`.
fn bits(frame: &[u8], at: usize, offset: u16, width: u16) -> u128 {
    (offset..offset + width).fold(0, |number, bit| {
        let byte = frame
            .get(at + usize::from(bit / 8))
            .copied()
            .unwrap_or_default();
        number << 1 | u128::from(byte >> (7 - bit % 8) & 1)
    })
}

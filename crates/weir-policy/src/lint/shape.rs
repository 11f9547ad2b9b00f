//! Shapes: the combinations of headers that a well-formed packet can have, and which values its fixed fields have in each.
//!
//! Follows docs/semantics.md section 1. Everything here may only be too generous: a shape or a value that no packet has costs a missed lint,
//! one that is left out makes a lint wrong.

use std::sync::LazyLock;

use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Ranges};
use crate::value::Domain;

/// IP version of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    None,
    V4,
    V6,
}

/// Which part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    First,
    Later,
}

/// Headers that a packet has together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) family: Family,
    /// Its L4 header: one class, or none. `PORTS` is one of a protocol that has no other class.
    pub(super) l4: Classes,
    pub(super) part: Part,
    /// VLAN tags; 2 stands for two or more.
    pub(super) tags: u16,
    /// All header classes.
    pub(super) classes: Classes,
}

/// All shapes, the usual ones first.
pub(super) static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let mut shapes = Vec::new();
    for tags in 0..=2 {
        for part in [Part::Whole, Part::First, Part::Later] {
            for (family, l4) in [
                (Family::V4, Classes::TCP),
                (Family::V6, Classes::TCP),
                (Family::V4, Classes::UDP),
                (Family::V6, Classes::UDP),
                (Family::V4, Classes::ICMP),
                (Family::V6, Classes::ICMP6),
                (Family::V4, Classes::PORTS),
                (Family::V6, Classes::PORTS),
                (Family::V4, Classes::NONE),
                (Family::V6, Classes::NONE),
                (Family::None, Classes::NONE),
            ] {
                if part == Part::Later && l4 != Classes::NONE
                    || family == Family::None && part != Part::Whole
                {
                    continue;
                }
                let shape = Shape {
                    family,
                    l4,
                    part,
                    tags,
                    classes: Classes::NONE,
                };
                // Fragments have a fragment header, whole packets may have one: RFC 6946.
                if family != Family::V6 || part == Part::Whole {
                    shapes.push(shape.with_fragment_header(false));
                }
                if family == Family::V6 {
                    shapes.push(shape.with_fragment_header(true));
                }
            }
        }
    }
    shapes
});

impl Shape {
    fn with_fragment_header(mut self, fragment_header: bool) -> Shape {
        let all = [
            (self.family == Family::V4, Classes::IP4),
            (self.family == Family::V6, Classes::IP6),
            (self.tags >= 1, Classes::VLAN),
            (self.tags >= 2, Classes::VLAN2),
            (fragment_header, Classes::IP6_FRAG),
            (
                matches!(self.l4, Classes::TCP | Classes::UDP),
                Classes::PORTS,
            ),
            (true, self.l4),
        ];
        let has = all.into_iter().filter(|&(has, _)| has);
        self.classes = has.fold(Classes::NONE, |all, (_, class)| all.union(class));
        self
    }

    pub(super) fn has_fragment_header(&self) -> bool {
        self.classes.contains(Classes::IP6_FRAG)
    }

    /// Whether packets of this shape have a header. Every packet has what is not a header.
    pub(super) fn has(&self, header: Header) -> bool {
        let class = match header {
            Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr => {
                return true;
            }
            Header::Ports => Classes::PORTS,
            Header::Vlan => Classes::VLAN,
            Header::Vlan2 => Classes::VLAN2,
            Header::Ip4 => Classes::IP4,
            Header::Ip6 => Classes::IP6,
            Header::Ip6Frag => Classes::IP6_FRAG,
            Header::Icmp => Classes::ICMP,
            Header::Icmp6 => Classes::ICMP6,
            Header::Udp => Classes::UDP,
            Header::Tcp => Classes::TCP,
        };
        self.classes.contains(class)
    }

    /// Whether a field without a value is there: of headers, tags, fragments.
    pub(super) fn exists(&self, field: Field) -> bool {
        let info = field.info();
        match (info.kind, info.name) {
            (Kind::Exists, "frag") => self.part != Part::Whole,
            (Kind::Exists, "frag-first") => self.part == Part::First,
            (Kind::Exists, "frag-later") => self.part == Part::Later,
            (Kind::NetProto | Kind::L4Proto | Kind::CtState, _) => self.family != Family::None,
            _ => self.has(info.header),
        }
    }

    /// Bytes of the L4 header, options left out.
    pub(super) fn l4_header(&self) -> u128 {
        match self.l4 {
            Classes::TCP => 20,
            Classes::NONE => 0,
            _ => 8,
        }
    }

    /// The protocol number that goes with the L4 header; `None` without one.
    pub(super) fn protocol(&self) -> Option<u128> {
        match self.l4 {
            Classes::TCP => Some(6),
            Classes::UDP => Some(17),
            Classes::ICMP => Some(1),
            Classes::ICMP6 => Some(58),
            _ => None,
        }
    }
}

/// Numbers of IPv6 extension headers that are walked, ESP included.
pub(super) const EXTENSIONS: [u8; 9] = [0, 43, 44, 50, 51, 60, 135, 139, 140];

/// Fewest bytes in front of and in the parts of a packet, as far as the other tests of a rule ask for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Least {
    /// IPv4 options.
    pub(super) ip4_options: u128,
    /// TCP options.
    pub(super) tcp_options: u128,
    /// L4 payload.
    pub(super) l4_payload: u128,
    /// IP payload, L4 header included.
    pub(super) ip_payload: u128,
    /// IPv6 extension headers.
    pub(super) extensions: u128,
}

/// Values of a field: from `lo` to `hi`, and in or not in a set.
pub(super) struct Values {
    pub(super) lo: u128,
    pub(super) hi: u128,
    pub(super) set: Option<(Ranges, bool)>,
}

/// The longest IP packet that fits a frame of the longest length.
const LONGEST: u128 = 65_535;

impl Shape {
    /// Values of a field that is a number in packets of this shape. `strict`: also without those that parsing drops.
    pub(super) fn values(&self, field: Field, least: &Least, strict: bool) -> Values {
        let info = field.info();
        let all = match info.bits {
            0 | 128.. => u128::MAX,
            bits => (1 << bits) - 1,
        };
        let between = |lo, hi| Values { lo, hi, set: None };
        let among = |set: Ranges, negated| Values {
            lo: 0,
            hi: all,
            set: Some((set, negated)),
        };
        let is_later = self.part == Part::Later;
        match info.name {
            "net-proto" => match self.family {
                Family::V4 => between(4, 4),
                _ => between(6, 6),
            },
            "hour" | "day" => between(0, Domain::of(field).map_or(all, Domain::max)),
            "ct-state" => among(points([1, 2, 4, 8, 64]), false),
            "eth-type" => match self.family {
                Family::V4 => between(0x0800, 0x0800),
                Family::V6 => between(0x86dd, 0x86dd),
                Family::None if strict => {
                    among(points([0x0800, 0x86dd, 0x8100, 0x88a8, 0x9100]), true)
                }
                Family::None => among(points([0x0800, 0x86dd]), true),
            },
            "ip-proto" | "l4-proto" => match self.protocol() {
                Some(number) => between(number, number),
                None if is_later => between(0, all),
                None if self.l4 == Classes::PORTS => among(points([33, 132, 136]), false),
                None if self.family == Family::V6 => among(points([6, 17, 58]), true),
                None => among(points([1, 6, 17]), true),
            },
            "ip-frag-offset" | "ip6-frag-offset" if is_later => between(1, all),
            "ip-frag-offset" | "ip6-frag-offset" => between(0, 0),
            _ if !strict => between(0, all),
            "ip-ver" => between(4, 4),
            "ip6-ver" => between(6, 6),
            "ip-ihl" => between(5 + words(least.ip4_options), 15),
            "ip-ttl" | "ip6-hop-limit" => between(1, all),
            "ip-len" => between(
                20 + words(least.ip4_options) * 4 + self.ip_payload(least),
                LONGEST - 4 * u128::from(self.tags),
            ),
            "ip6-len" => between(
                least.extensions + self.ip_payload(least),
                LONGEST - 40 - 4 * u128::from(self.tags),
            ),
            "udp-len" => between(8 + least.l4_payload, all),
            "tcp-offset" => between(5 + words(least.tcp_options), 15),
            _ => between(0, all),
        }
    }

    fn ip_payload(&self, least: &Least) -> u128 {
        let l4 = self.l4_header() + words(least.tcp_options) * 4 + least.l4_payload;
        l4.max(least.ip_payload)
    }

    /// Fewest bytes of a frame in front of a payload.
    pub(super) fn in_front(&self, header: Header, least: &Least) -> u128 {
        let ip = match self.family {
            Family::None => 0,
            Family::V4 => 20 + words(least.ip4_options) * 4,
            Family::V6 => 40 + least.extensions,
        };
        let l4 = match header {
            Header::Ip4 | Header::Ip6 => 0,
            _ => self.l4_header() + words(least.tcp_options) * 4,
        };
        14 + 4 * u128::from(self.tags) + ip + l4
    }
}

/// Words of 32 bits that hold so many bytes.
fn words(bytes: u128) -> u128 {
    bytes.div_ceil(4)
}

/// A set of single numbers.
pub(super) fn points(numbers: impl IntoIterator<Item = u128>) -> Ranges {
    Ranges::new(numbers.into_iter().map(|n| (n, n)).collect())
}

/// The first number from `lo` to `hi` that is in all sets, or outside those that are negated.
pub(super) fn first_in(lo: u128, hi: u128, sets: &[(&Ranges, bool)]) -> Option<u128> {
    let mut at = lo;
    'again: loop {
        if at > hi {
            return None;
        }
        for &(set, negated) in sets {
            let next = set.from(at);
            match (negated, next) {
                (false, Some((first, _))) if first <= at => {}
                (false, Some((first, _))) => {
                    at = first;
                    continue 'again;
                }
                (false, None) => return None,
                (true, Some((first, last))) if first <= at => {
                    at = last.checked_add(1)?;
                    continue 'again;
                }
                (true, _) => {}
            }
        }
        return Some(at);
    }
}

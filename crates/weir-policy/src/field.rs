//! The one table of fields: every spelling, where a field lies in a packet, and what may be done with it.
//!
//! The parser, `weir fmt`, the reference interpreter, the planner and the documentation all read this table.
//! Positions are given by header and bit offset from that header's start, which is also how
//! the data plane's flat key and its rewrites address them.

/// A part of a packet that fields live in. The class of a field decides which packets a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Header {
    /// Not in the packet: port, queue, and tests on the whole frame.
    Meta,
    /// What the kernel keeps with a packet, in its socket buffer: {mark, priority}. Known on tc.
    Skb,
    /// When the packet was received, in the time zone of the policy: {second of the day, day of the week}.
    Clock,
    /// EtherType behind the last VLAN tag.
    Ether,
    /// Destination and source address in front of it.
    EtherAddr,
    /// Outermost VLAN tag: {TCI, EtherType}.
    Vlan,
    /// Second VLAN tag.
    Vlan2,
    /// IPv4 header (RFC 791).
    Ip4,
    /// IPv6 fixed header (RFC 8200).
    Ip6,
    /// IPv6 fragment header (RFC 8200 section 4.5).
    Ip6Frag,
    /// ICMP (RFC 792), in IPv4 only.
    Icmp,
    /// ICMPv6 (RFC 4443), in IPv6 only.
    Icmp6,
    /// UDP (RFC 768).
    Udp,
    /// TCP (RFC 9293).
    Tcp,
    /// The two ports that TCP, UDP, UDP-Lite, SCTP and DCCP begin with.
    Ports,
}

/// What kind of thing a field is, which decides the values and conditions it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number of `bits` (1 to 32) bits, `offset` bits from the start of the header.
    Number,
    /// One bit or a fixed value of a number (`tcp-syn`, `ip-ce`): takes no value; "present" means the number equals this.
    Is(u32),
    /// IPv4 address; takes a prefix.
    Addr4,
    /// IPv6 address; takes a prefix.
    Addr6,
    /// MAC address; takes a prefix.
    Mac,
    /// Bytes behind the header: `F[n]`, == and != with up to 64 bytes.
    Payload,
    /// TCP option of this kind; `None`: the kind is written behind the name, or any option.
    TcpOption(Option<u8>),
    /// IPv4 option of this type byte; `None`: written behind the name, or any option. Presence only.
    Ip4Option(Option<u8>),
    /// IPv6 extension header with this protocol number; `None`: any. Presence only.
    ExtHeader(Option<u8>),
    /// Presence of the header itself or of a property of the frame (`vlan`, `frag-first`); takes no value.
    Exists,
    /// Interface the packet came in by: name or index.
    InPort,
    /// Interface the packet leaves by: name or index.
    OutPort,
    /// `ip4` or `ip6`.
    NetProto,
    /// The protocol behind the IP header and its extension headers.
    L4Proto,
    /// What the packet has to do with connections: a state, by its name.
    CtState,
    /// Every packet.
    All,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Canonical spelling, what `weir fmt` writes.
    pub name: &'static str,
    /// Other accepted spellings.
    pub aliases: &'static [&'static str],
    /// Where the field lies.
    pub header: Header,
    /// What it is.
    pub kind: Kind,
    /// Bits from the start of the header. For `Header::Meta` and presence-only fields 0.
    pub offset: u16,
    /// Width in bits; 0 for fields without a fixed width.
    pub bits: u16,
    /// Whether `mod` may write it.
    pub writable: bool,
    /// One line for help and documentation.
    pub text: &'static str,
}

/// A field, as an index into [`FIELDS`]. Cheap to copy and compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field(u8);

impl Field {
    /// The row of this field.
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[usize::from(self.0)]
    }

    /// Finds a field by any accepted spelling, in lower case.
    pub fn find(name: &str) -> Option<Field> {
        static INDEX: std::sync::LazyLock<std::collections::HashMap<&'static str, u8>> =
            std::sync::LazyLock::new(|| {
                let mut index = std::collections::HashMap::new();
                for (i, info) in (0u8..).zip(FIELDS) {
                    for name in std::iter::once(&info.name).chain(info.aliases) {
                        index.insert(*name, i);
                    }
                }
                index
            });
        INDEX.get(name).map(|&i| Field(i))
    }

    /// All fields in table order.
    pub fn all() -> impl Iterator<Item = Field> {
        (0u8..).take(FIELDS.len()).map(Field)
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info().name)
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one row of a table, written as one line"
)]
const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    header: Header,
    kind: Kind,
    offset: u16,
    bits: u16,
    writable: bool,
    text: &'static str,
) -> FieldInfo {
    FieldInfo {
        name,
        aliases,
        header,
        kind,
        offset,
        bits,
        writable,
        text,
    }
}

use Header::*;
use Kind::*;

/// The table.
#[rustfmt::skip]
pub static FIELDS: &[FieldInfo] = &[
    row("all", &[], Meta, All, 0, 0, false, "every packet; alone"),
    row("in", &[], Meta, InPort, 0, 0, false, "interface the packet came in by: name or index"),
    row("out", &[], Meta, OutPort, 0, 0, false, "interface the packet leaves by, on hooks that know it"),
    row("queue", &["in-queue"], Meta, Number, 0, 16, false, "receive queue of the device"),
    row("mark", &["skb-mark", "fwmark"], Skb, Number, 0, 32, false, "packet mark, that of `ip rule fwmark` and nftables; on tc"),
    row("priority", &["skb-priority"], Skb, Number, 32, 32, false, "packet priority, or a class of a queueing discipline: `1:10`; on tc"),
    row("hour", &["time-of-day"], Clock, Number, 15, 17, false, "time of day: `08:00`, `17:30:15`"),
    row("day", &["weekday"], Clock, Number, 45, 3, false, "day of the week: mon, tue, wed, thu, fri, sat, sun"),
    row("net-proto", &[], Meta, NetProto, 0, 0, false, "ip4 or ip6"),
    row("l4-proto", &["th-proto"], Meta, L4Proto, 0, 8, false, "protocol behind the IP headers, of either family"),
    row("ct-state", &[], Meta, CtState, 0, 8, false, "state of the connection: new, established, related, invalid, untracked"),
    row("sport", &["th-sport"], Ports, Number, 0, 16, false, "source port: TCP, UDP, UDP-Lite, SCTP, DCCP"),
    row("dport", &["th-dport"], Ports, Number, 16, 16, false, "destination port: TCP, UDP, UDP-Lite, SCTP, DCCP"),
    row("eth-saddr", &["eth-src", "ether-saddr"], EtherAddr, Mac, 48, 48, false, "source MAC address or prefix"),
    row("eth-daddr", &["eth-dst", "ether-daddr"], EtherAddr, Mac, 0, 48, false, "destination MAC address or prefix"),
    row("eth-type", &["ether-type"], Ether, Number, 0, 16, false, "EtherType behind the last VLAN tag"),
    row("vlan", &[], Vlan, Exists, 0, 0, false, "the frame has a VLAN tag"),
    row("vlan-id", &[], Vlan, Number, 4, 12, true, "VLAN identifier of the outermost tag"),
    row("vlan-pcp", &[], Vlan, Number, 0, 3, true, "priority of the outermost tag"),
    row("vlan-dei", &[], Vlan, Is(1), 3, 1, true, "drop-eligible bit of the outermost tag"),
    row("vlan2", &[], Vlan2, Exists, 0, 0, false, "the frame has a second VLAN tag"),
    row("vlan2-id", &[], Vlan2, Number, 4, 12, true, "VLAN identifier of the second tag"),
    row("vlan2-pcp", &[], Vlan2, Number, 0, 3, true, "priority of the second tag"),
    row("vlan2-dei", &[], Vlan2, Is(1), 3, 1, true, "drop-eligible bit of the second tag"),
    row("frag", &[], Meta, Exists, 0, 0, false, "a fragment, IPv4 or IPv6"),
    row("frag-first", &[], Meta, Exists, 0, 0, false, "a first fragment"),
    row("frag-later", &[], Meta, Exists, 0, 0, false, "a fragment behind the first"),

    row("ip-ver", &["ip4-ver"], Ip4, Number, 0, 4, true, "version"),
    row("ip-ihl", &["ip4-ihl"], Ip4, Number, 4, 4, true, "header length in 32-bit words"),
    row("ip-dscp", &["ip4-dscp"], Ip4, Number, 8, 6, true, "differentiated services code point"),
    row("ip-ecn", &["ip4-ecn"], Ip4, Number, 14, 2, true, "explicit congestion notification"),
    row("ip-non-ect", &["ip4-non-ect"], Ip4, Is(0), 14, 2, true, "ECN is 0"),
    row("ip-ect0", &["ip4-ect0"], Ip4, Is(2), 14, 2, true, "ECN is 2"),
    row("ip-ect1", &["ip4-ect1"], Ip4, Is(1), 14, 2, true, "ECN is 1"),
    row("ip-ce", &["ip4-ce"], Ip4, Is(3), 14, 2, true, "ECN is 3, congestion experienced"),
    row("ip-len", &["ip4-len"], Ip4, Number, 16, 16, true, "total length"),
    row("ip-id", &["ip4-id"], Ip4, Number, 32, 16, true, "identification"),
    row("ip-flags", &["ip4-flags"], Ip4, Number, 48, 3, true, "the three flag bits: reserved, DF, MF"),
    row("ip-res", &["ip4-res"], Ip4, Is(1), 48, 1, true, "reserved flag"),
    row("ip-df", &["ip4-df"], Ip4, Is(1), 49, 1, true, "do not fragment"),
    row("ip-mf", &["ip4-mf"], Ip4, Is(1), 50, 1, true, "more fragments"),
    row("ip-frag-offset", &["ip4-frag-offset"], Ip4, Number, 51, 13, true, "fragment offset in 8-byte units"),
    row("ip-ttl", &["ip4-ttl"], Ip4, Number, 64, 8, true, "time to live"),
    row("ip-proto", &["ip4-proto"], Ip4, Number, 72, 8, true, "protocol number, or tcp udp icmp ..."),
    row("ip-checksum", &["ip4-checksum"], Ip4, Number, 80, 16, true, "header checksum"),
    row("ip-saddr", &["ip4-saddr"], Ip4, Addr4, 96, 32, true, "source address or prefix"),
    row("ip-daddr", &["ip4-daddr"], Ip4, Addr4, 128, 32, true, "destination address or prefix"),
    row("ip-payload", &["ip4-payload"], Ip4, Payload, 0, 0, true, "bytes behind the IPv4 header"),
    row("ip-opt", &["ip4-opt"], Ip4, Ip4Option(None), 0, 0, false, "any IPv4 option, or `ip-opt TYPE`"),
    row("ip-opt-rr", &["ip4-opt-rr"], Ip4, Ip4Option(Some(7)), 0, 0, false, "record route"),
    row("ip-opt-timestamp", &["ip4-opt-timestamp"], Ip4, Ip4Option(Some(68)), 0, 0, false, "internet timestamp"),
    row("ip-opt-lsrr", &["ip4-opt-lsrr"], Ip4, Ip4Option(Some(131)), 0, 0, false, "loose source route"),
    row("ip-opt-ssrr", &["ip4-opt-ssrr"], Ip4, Ip4Option(Some(137)), 0, 0, false, "strict source route"),
    row("ip-opt-router-alert", &["ip4-opt-router-alert", "ip-opt-ra"], Ip4, Ip4Option(Some(148)), 0, 0, false, "router alert (RFC 2113)"),

    row("ip6-ver", &[], Ip6, Number, 0, 4, true, "version"),
    row("ip6-traffic-class", &["ip6-tc"], Ip6, Number, 4, 8, true, "traffic class"),
    row("ip6-dscp", &[], Ip6, Number, 4, 6, true, "differentiated services code point"),
    row("ip6-ecn", &[], Ip6, Number, 10, 2, true, "explicit congestion notification"),
    row("ip6-flow-label", &[], Ip6, Number, 12, 20, true, "flow label"),
    row("ip6-len", &["ip6-payload-len"], Ip6, Number, 32, 16, true, "payload length"),
    row("ip6-next", &["ip6-next-header"], Ip6, Number, 48, 8, true, "next header of the fixed header"),
    row("ip6-hop-limit", &[], Ip6, Number, 56, 8, true, "hop limit"),
    row("ip6-saddr", &[], Ip6, Addr6, 64, 128, true, "source address or prefix"),
    row("ip6-daddr", &[], Ip6, Addr6, 192, 128, true, "destination address or prefix"),
    row("ip6-payload", &[], Ip6, Payload, 0, 0, true, "bytes behind the last extension header"),
    row("ip6-eh", &[], Ip6, ExtHeader(None), 0, 0, false, "any extension header"),
    row("ip6-eh-hopbyhop", &[], Ip6, ExtHeader(Some(0)), 0, 0, false, "hop-by-hop options"),
    row("ip6-eh-routing", &[], Ip6, ExtHeader(Some(43)), 0, 0, false, "routing header"),
    row("ip6-eh-fragment", &[], Ip6, ExtHeader(Some(44)), 0, 0, false, "fragment header, atomic ones too"),
    row("ip6-eh-esp", &[], Ip6, ExtHeader(Some(50)), 0, 0, false, "encapsulating security payload"),
    row("ip6-eh-ah", &[], Ip6, ExtHeader(Some(51)), 0, 0, false, "authentication header"),
    row("ip6-eh-destopt", &[], Ip6, ExtHeader(Some(60)), 0, 0, false, "destination options"),
    row("ip6-eh-mobility", &[], Ip6, ExtHeader(Some(135)), 0, 0, false, "mobility header"),
    row("ip6-eh-hip", &[], Ip6, ExtHeader(Some(139)), 0, 0, false, "host identity protocol"),
    row("ip6-eh-shim6", &[], Ip6, ExtHeader(Some(140)), 0, 0, false, "Shim6"),
    row("ip6-frag-offset", &[], Ip6Frag, Number, 16, 13, false, "fragment offset in 8-byte units, of the fragment header"),
    row("ip6-mf", &[], Ip6Frag, Is(1), 31, 1, false, "more fragments, of the fragment header"),
    row("ip6-frag-id", &[], Ip6Frag, Number, 32, 32, false, "identification, of the fragment header"),

    row("icmp", &[], Icmp, Exists, 0, 0, false, "ICMP"),
    row("icmp-type", &[], Icmp, Number, 0, 8, true, "ICMP type"),
    row("icmp-code", &[], Icmp, Number, 8, 8, true, "ICMP code"),
    row("icmp-checksum", &[], Icmp, Number, 16, 16, true, "ICMP checksum"),
    row("icmp-payload", &[], Icmp, Payload, 0, 0, true, "bytes behind the 8-byte ICMP header"),
    row("icmp6", &["icmpv6"], Icmp6, Exists, 0, 0, false, "ICMPv6"),
    row("icmp6-type", &["icmpv6-type"], Icmp6, Number, 0, 8, true, "ICMPv6 type"),
    row("icmp6-code", &["icmpv6-code"], Icmp6, Number, 8, 8, true, "ICMPv6 code"),
    row("icmp6-checksum", &["icmpv6-checksum"], Icmp6, Number, 16, 16, true, "ICMPv6 checksum"),
    row("icmp6-payload", &["icmpv6-payload"], Icmp6, Payload, 0, 0, true, "bytes behind the 8-byte ICMPv6 header"),

    row("udp", &[], Udp, Exists, 0, 0, false, "UDP"),
    row("udp-sport", &[], Udp, Number, 0, 16, true, "source port"),
    row("udp-dport", &[], Udp, Number, 16, 16, true, "destination port"),
    row("udp-len", &[], Udp, Number, 32, 16, true, "UDP length"),
    row("udp-checksum", &[], Udp, Number, 48, 16, true, "UDP checksum"),
    row("udp-payload", &[], Udp, Payload, 0, 0, true, "bytes behind the UDP header"),

    row("tcp", &[], Tcp, Exists, 0, 0, false, "TCP"),
    row("tcp-sport", &[], Tcp, Number, 0, 16, true, "source port"),
    row("tcp-dport", &[], Tcp, Number, 16, 16, true, "destination port"),
    row("tcp-seq-num", &["tcp-seq"], Tcp, Number, 32, 32, true, "sequence number"),
    row("tcp-ack-num", &[], Tcp, Number, 64, 32, true, "acknowledgement number"),
    row("tcp-offset", &[], Tcp, Number, 96, 4, true, "data offset in 32-bit words"),
    row("tcp-reserved", &[], Tcp, Number, 100, 4, true, "the four reserved bits"),
    row("tcp-flags", &[], Tcp, Number, 104, 8, true, "the eight flag bits, CWR to FIN"),
    row("tcp-cwr", &[], Tcp, Is(1), 104, 1, true, "CWR"),
    row("tcp-ece", &[], Tcp, Is(1), 105, 1, true, "ECE"),
    row("tcp-urg", &[], Tcp, Is(1), 106, 1, true, "URG"),
    row("tcp-ack", &[], Tcp, Is(1), 107, 1, true, "ACK"),
    row("tcp-push", &["tcp-psh"], Tcp, Is(1), 108, 1, true, "PSH"),
    row("tcp-rst", &[], Tcp, Is(1), 109, 1, true, "RST"),
    row("tcp-syn", &[], Tcp, Is(1), 110, 1, true, "SYN"),
    row("tcp-fin", &[], Tcp, Is(1), 111, 1, true, "FIN"),
    row("tcp-win", &["tcp-window"], Tcp, Number, 112, 16, true, "window"),
    row("tcp-checksum", &[], Tcp, Number, 128, 16, true, "TCP checksum"),
    row("tcp-urg-ptr", &[], Tcp, Number, 144, 16, true, "urgent pointer"),
    row("tcp-payload", &[], Tcp, Payload, 0, 0, true, "bytes behind the TCP header and its options"),
    row("tcp-opt", &[], Tcp, TcpOption(None), 0, 0, true, "any TCP option, or `tcp-opt KIND`"),
    row("tcp-opt-mss", &[], Tcp, TcpOption(Some(2)), 0, 16, true, "maximum segment size"),
    row("tcp-opt-wscale", &["tcp-opt-ws"], Tcp, TcpOption(Some(3)), 0, 8, true, "window scale"),
    row("tcp-opt-sackp", &[], Tcp, TcpOption(Some(4)), 0, 0, true, "SACK permitted"),
    row("tcp-opt-sack", &[], Tcp, TcpOption(Some(5)), 0, 0, true, "SACK blocks"),
    row("tcp-opt-timestamp", &["tcp-opt-ts"], Tcp, TcpOption(Some(8)), 0, 64, true, "timestamps: value and echo"),
    row("tcp-opt-mptcp", &[], Tcp, TcpOption(Some(30)), 0, 0, true, "multipath TCP"),
    row("tcp-opt-fast-open", &["tcp-opt-tfo"], Tcp, TcpOption(Some(34)), 0, 0, true, "TCP fast open cookie"),
];

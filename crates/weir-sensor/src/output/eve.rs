//! EVE records: one JSON object a line, with the field names and types that readers of such logs know. What is said here is listed in `schema.json` beside the tests.
//!
//! Records are appended to a buffer; who calls decides where the buffer goes. Everything that a rule says of itself is written once, when it is loaded.

use std::io::Write;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::json::{self, Object};
use super::{community, time};
use crate::app::{File, Sums};
use crate::packet::Direction;
use crate::rules::{Action, Rule, Target};

/// Who sent what to whom: the part that all records of packets and flows have.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// When, ns since 1970.
    pub time: u64,
    /// Number of the flow; 0: none.
    pub flow: u64,
    /// Number of the flow that announced it; 0: none.
    pub parent: u64,
    /// Number of the frame; 0: none.
    pub number: u64,
    /// VLAN identifiers, outermost first.
    pub vlan: &'a [u16],
    /// Sender and receiver; none of a packet without an IP header.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Ports, of protocols that have some.
    pub ports: Option<(u16, u16)>,
    /// Type and code of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// Those of the first answer, of flows.
    pub answer: Option<(u8, u8)>,
    /// What names an ESP flow beside its addresses.
    pub spi: Option<u32>,
    /// IANA number.
    pub protocol: u8,
    /// Where the packet comes from (`pkt_src`); none of records that are about no packet.
    pub origin: Option<Origin>,
    /// What rules have set in the flow.
    pub marks: Option<&'a Marks<'a>>,
}

/// What rules have set in a flow.
#[derive(Clone, Debug, Default)]
pub struct Marks<'a> {
    /// Names of bits.
    pub bits: Vec<&'a str>,
    /// Counters with their values.
    pub counters: Vec<(&'a str, u32)>,
    /// What was captured in the flow.
    pub captured: Vec<(&'a str, &'a [u8])>,
    /// What was captured in the packet that the record is about.
    pub packet: Vec<(&'a str, &'a [u8])>,
}

/// Where a packet comes from: the wire, or what another one carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A frame.
    Wire,
    /// Put together from fragments.
    Fragments,
    /// No packet: the flow is over.
    FlowEnd,
    /// Carried by another packet, named as records name it.
    Tunnel(&'static str),
}

impl Origin {
    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Wire => "wire/pcap",
            Origin::Fragments => "defrag",
            Origin::FlowEnd => "stream (flow timeout)",
            Origin::Tunnel(name) => name,
        }
    }
}

/// The outermost packet of a tunnel, in alerts about what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    /// Sender and receiver.
    pub addresses: (IpAddr, IpAddr),
    /// Ports, of protocols that have some.
    pub ports: Option<(u16, u16)>,
    /// IANA number.
    pub protocol: u8,
    /// How deep the packet is in it.
    pub depth: u8,
    /// Number of the frame.
    pub number: u64,
    /// Where it comes from itself.
    pub origin: Origin,
}

/// A flow as records show it.
#[derive(Clone, Copy, Debug)]
pub struct FlowFacts {
    /// Who opened it.
    pub client: (IpAddr, u16),
    /// The other end.
    pub server: (IpAddr, u16),
    /// Packets to server and to client.
    pub packets: [u64; 2],
    /// Bytes to server and to client, of whole frames.
    pub bytes: [u64; 2],
    /// Time of the first packet, ns.
    pub start: u64,
    /// Time of the last one.
    pub end: u64,
    /// `new`, `established`, `closed`.
    pub state: &'static str,
    /// Whether a rule alerted in it.
    pub alerted: bool,
    /// Transactions of its application, if a parser reads it.
    pub transactions: Option<u64>,
    /// Whether it is a TCP session whose beginning was not seen.
    pub midstream: bool,
}

/// Of a TCP flow.
#[derive(Clone, Copy, Debug)]
pub struct TcpFacts {
    /// Flags of all packets to server, and to client.
    pub flags: [u8; 2],
    /// State, as `established`; none where no session was seen to begin.
    pub state: Option<&'static str>,
    /// Whether bytes were lost to server, and to client.
    pub gaps: [bool; 2],
}

impl TcpFacts {
    /// Whether there were packets of a session that was not seen to begin; a RST alone is none.
    fn is_passed_by(&self) -> bool {
        let talks = |flags: u8| flags != 0 && (flags & 4 == 0 || flags & 9 != 0);
        self.state.is_none() && self.flags.into_iter().any(talks)
    }
}

/// What a flow's application is called in records.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppNames {
    /// `app_proto`; none if not known.
    pub name: Option<&'static str>,
    /// By the bytes to server alone, if different.
    pub to_server: Option<&'static str>,
    /// By the bytes to client alone, if different.
    pub to_client: Option<&'static str>,
    /// Before it changed.
    pub before: Option<&'static str>,
}

/// What is said in every record, or not, by configuration.
#[derive(Clone, Debug, Default)]
pub struct EveOptions {
    /// `community_id`, with its seed.
    pub community: Option<u16>,
    /// `payload` in base64.
    pub payload: bool,
    /// `payload_printable`.
    pub printable: bool,
    /// `payload_length`.
    pub length: bool,
    /// `packet`: the frame in base64.
    pub packet: bool,
    /// `verdict`: what became of the packet.
    pub verdict: bool,
    /// Bytes of a payload that are written at most.
    pub payload_limit: usize,
    /// The application's fields in alerts.
    pub app_fields: bool,
    /// Rules' metadata in alerts.
    pub metadata: bool,
    /// What rules have set in a flow (`metadata`, `traffic`).
    pub marks: bool,
    /// Bodies of HTTP in alerts: in base64.
    pub http_body: bool,
    /// The same, printable.
    pub http_printable: bool,
    /// Sums of files.
    pub sums: Sums,
    /// `in_iface`.
    pub interface: Option<String>,
    /// `host`: the sensor's name.
    pub host: Option<String>,
}

impl EveOptions {
    /// Whether alerts show what was inspected.
    pub fn shows_payload(&self) -> bool {
        self.payload || self.printable || self.length
    }

    /// What is written where nothing is configured.
    pub fn usual() -> EveOptions {
        EveOptions {
            payload_limit: 4096,
            app_fields: true,
            metadata: true,
            marks: true,
            ..EveOptions::default()
        }
    }
}

/// What a rule says of itself, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// The inside of `alert`, without braces.
    pub eve: Vec<u8>,
    /// Of fast.log, from the action to the priority.
    pub fast: Vec<u8>,
    /// What a sensor beside the traffic does of what the rule asks, as JSON.
    verdict: &'static str,
    target: Option<Target>,
}

impl RuleText {
    /// Of a rule.
    pub fn new(rule: &Rule, options: &EveOptions) -> RuleText {
        let mut eve = Vec::new();
        let mut o = Object::new(&mut eve);
        // A sensor beside the traffic stops nothing; a reset would have been sent.
        o.string(
            "action",
            if rule.action == Action::Reject {
                "blocked"
            } else {
                "allowed"
            },
        );
        o.number("gid", u64::from(rule.gid));
        o.number("signature_id", u64::from(rule.sid));
        o.number("rev", u64::from(rule.rev));
        o.string("signature", &rule.message);
        o.string("category", &rule.category);
        o.number("severity", u64::from(rule.priority));
        if options.metadata && !rule.metadata.is_empty() {
            metadata(o.key("metadata"), &rule.metadata);
        }
        o.end();
        let mut fast = Vec::new();
        if rule.action == Action::Drop {
            fast.extend_from_slice(b"[wDrop] ");
        }
        let class = if rule.category.is_empty() {
            "(null)"
        } else {
            &rule.category
        };
        // Writing to memory does not fail.
        let _ = write!(
            fast,
            "[**] [{}:{}:{}] {} [**] [Classification: {class}] [Priority: {}] ",
            rule.gid, rule.sid, rule.rev, rule.message, rule.priority
        );
        fast.shrink_to_fit();
        let inside = eve[1..eve.len() - 1].to_vec();
        RuleText {
            eve: inside,
            fast,
            verdict: match rule.action {
                Action::Pass => r#"{"action":"pass"}"#,
                _ => r#"{"action":"alert"}"#,
            },
            target: rule.target,
        }
    }
}

/// Values of one key stand in one list, the last one first, as readers of such logs have them; keys in the order they first appear.
fn metadata(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in pairs {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    out.push(b'{');
    for (n, key) in keys.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        json::string(out, key);
        out.extend_from_slice(b":[");
        for (n, (_, value)) in pairs.iter().rev().filter(|(k, _)| k == key).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            json::string(out, value);
        }
        out.push(b']');
    }
    out.push(b'}');
}

/// What an alert record says beside its head and its rule.
#[derive(Clone, Debug, Default)]
pub struct AlertFacts<'a> {
    /// The transaction it is about.
    pub transaction: Option<u64>,
    /// `to_server` (true) or `to_client`, of packets that belong to a flow.
    pub to_server: Option<bool>,
    /// Names of the application.
    pub app: AppNames,
    /// The transaction's fields, under the application's name.
    pub record: Option<(&'static str, &'a Map<String, Value>)>,
    /// What the rule has captured for its alert, by name.
    pub context: Vec<(&'a str, &'a [u8])>,
    /// What stands beside them (`email`).
    pub beside: Option<&'a Map<String, Value>>,
    /// What carries the packet.
    pub tunnel: Option<Tunnel>,
    /// Link type of the packet's first header.
    pub link: u16,
    /// Files of the transaction, of which those of the alert's direction are listed.
    pub files: &'a [File],
    /// The flow so far.
    pub flow: Option<&'a FlowFacts>,
    /// The payload that was inspected, or as much of it as is kept.
    pub payload: &'a [u8],
    /// How long it was.
    pub length: usize,
    /// The frame.
    pub packet: &'a [u8],
    /// Whether the payload is of the stream rather than of the packet.
    pub stream: bool,
}

/// Writes addresses as the established logs do: of IPv6, all eight groups with all their digits.
pub fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => {
            for (n, octet) in a.octets().into_iter().enumerate() {
                if n > 0 {
                    out.push(b'.');
                }
                json::number(out, u64::from(octet));
            }
        }
        IpAddr::V6(a) => {
            for (n, group) in a.segments().into_iter().enumerate() {
                let _ = write!(out, "{}{group:04x}", if n > 0 { ":" } else { "" });
            }
        }
    }
}

/// Names of IP protocols by their IANA numbers, as records have them; those for any host's own use share a name.
const PROTOCOLS: [&str; 144] = [
    "HOPOPT",
    "ICMP",
    "IGMP",
    "GGP",
    "IP-in-IP",
    "ST",
    "TCP",
    "CBT",
    "EGP",
    "IGP",
    "BBN-RCC-MON",
    "NVP-II",
    "PUP",
    "ARGUS",
    "EMCON",
    "XNET",
    "CHAOS",
    "UDP",
    "MUX",
    "DCN-MEAS",
    "HMP",
    "PRM",
    "XNS-IDP",
    "TRUNK-1",
    "TRUNK-2",
    "LEAF-1",
    "LEAF-2",
    "RDP",
    "IRTP",
    "ISO-TP4",
    "NETBLT",
    "MFE-NSP",
    "MERIT-INP",
    "DCCP",
    "3PC",
    "IDPR",
    "XTP",
    "DDP",
    "IDPR-CMTP",
    "TP++",
    "IL",
    "IPv6",
    "SDRP",
    "IPv6-Route",
    "IPv6-Frag",
    "IDRP",
    "RSVP",
    "GRE",
    "DSR",
    "BNA",
    "ESP",
    "AH",
    "I-NLSP",
    "SwIPe",
    "NARP",
    "MOBILE",
    "TLSP",
    "SKIP",
    "IPv6-ICMP",
    "IPv6-NoNxt",
    "IPv6-Opts",
    "Any",
    "CFTP",
    "Any",
    "SAT-EXPAK",
    "KRYPTOLAN",
    "RVD",
    "IPPC",
    "Any",
    "SAT-MON",
    "VISA",
    "IPCU",
    "CPNX",
    "CPHB",
    "WSN",
    "PVP",
    "BR-SAT-MON",
    "SUN-ND",
    "WB-MON",
    "WB-EXPAK",
    "ISO-IP",
    "VMTP",
    "SECURE-VMTP",
    "VINES",
    "TTP",
    "NSFNET-IGP",
    "DGP",
    "TCF",
    "EIGRP",
    "OSPF",
    "Sprite-RPC",
    "LARP",
    "MTP",
    "AX.25",
    "OS",
    "MICP",
    "SCC-SP",
    "ETHERIP",
    "ENCAP",
    "Any",
    "GMTP",
    "IFMP",
    "PNNI",
    "PIM",
    "ARIS",
    "SCPS",
    "QNX",
    "A/N",
    "IPComp",
    "SNP",
    "Compaq-Peer",
    "IPX-in-IP",
    "VRRP",
    "PGM",
    "Any",
    "L2TP",
    "DDX",
    "IATP",
    "STP",
    "SRP",
    "UTI",
    "SMP",
    "SM",
    "PTP",
    "IS-IS",
    "FIRE",
    "CRTP",
    "CRUDP",
    "SSCOPMCE",
    "IPLT",
    "SPS",
    "PIPE",
    "SCTP",
    "FC",
    "RSVP-E2E-IGNORE",
    "Mobility",
    "UDPLite",
    "MPLS-in-IP",
    "manet",
    "HIP",
    "Shim6",
    "WESP",
    "ROHC",
    "Ethernet",
];

/// The name of an IP protocol in records; `None`: its number is written.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.get(usize::from(number)).copied()
}

/// The name of a link type, as tools that read captures know it; raw IP has several numbers.
fn link_name(link: u16) -> Option<&'static str> {
    Some(match link {
        0 => "NULL",
        1 => "EN10MB",
        9 => "PPP",
        12 | 14 | 101 => "RAW",
        50 => "PPP_SERIAL",
        51 => "PPP_ETHER",
        104 => "C_HDLC",
        105 => "IEEE802_11",
        107 => "FRELAY",
        108 => "LOOP",
        113 => "LINUX_SLL",
        127 => "IEEE802_11_RADIO",
        228 => "IPV4",
        229 => "IPV6",
        276 => "LINUX_SLL2",
        _ => return None,
    })
}

fn protocol(out: &mut Vec<u8>, number: u8) {
    match protocol_name(number) {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => {
            let _ = write!(out, "{number:03}");
        }
    }
}

/// Begins a record.
fn begin<'a>(
    out: &'a mut Vec<u8>,
    kind: &str,
    head: &Head<'_>,
    options: &EveOptions,
) -> Object<'a> {
    let mut o = Object::new(out);
    o.time("timestamp", head.time);
    if head.flow != 0 {
        o.number("flow_id", head.flow);
    }
    if head.parent != 0 {
        o.number("parent_id", head.parent);
    }
    if let Some(interface) = &options.interface {
        o.string("in_iface", interface);
    }
    if let Some(host) = &options.host {
        o.string("host", host);
    }
    if head.number != 0 {
        o.number("pcap_cnt", head.number);
    }
    o.string("event_type", kind);
    if !head.vlan.is_empty() {
        let out = o.key("vlan");
        out.push(b'[');
        for (n, id) in head.vlan.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            json::number(out, u64::from(*id));
        }
        out.push(b']');
    }
    if let Some((source, destination)) = head.addresses {
        quoted(o.key("src_ip"), |out| address(out, source));
        if let Some((port, _)) = head.ports {
            o.number("src_port", u64::from(port));
        }
        quoted(o.key("dest_ip"), |out| address(out, destination));
        if let Some((_, port)) = head.ports {
            o.number("dest_port", u64::from(port));
        }
        quoted(o.key("proto"), |out| protocol(out, head.protocol));
        if kind != "netflow" {
            o.number("ip_v", if source.is_ipv4() { 4 } else { 6 });
        }
        if let Some((kind, code)) = head.icmp {
            o.number("icmp_type", u64::from(kind));
            o.number("icmp_code", u64::from(code));
        }
        if let Some((kind, code)) = head.answer {
            o.number("response_icmp_type", u64::from(kind));
            o.number("response_icmp_code", u64::from(code));
        }
        if let Some(spi) = head.spi {
            o.number("spi", u64::from(spi));
        }
        if let Some(seed) = options.community
            && let Some(id) = community::id(seed, head)
        {
            o.string("community_id", &id);
        }
    }
    if let Some(origin) = head.origin {
        o.string("pkt_src", origin.name());
    }
    if let Some(marks) = head.marks {
        write_marks(&mut o, marks);
    }
    o
}

/// `metadata` with bits and counters; bits called `traffic/id/NAME` and `traffic/label/NAME` stand in `traffic`.
fn write_marks(o: &mut Object<'_>, marks: &Marks<'_>) {
    fn of<'a>(marks: &Marks<'a>, prefix: &'a str) -> Vec<&'a str> {
        let names = marks.bits.iter();
        names.filter_map(|b| b.strip_prefix(prefix)).collect()
    }
    let list = |out: &mut Vec<u8>, names: &[&str]| {
        out.push(b'[');
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            json::string(out, name);
        }
        out.push(b']');
    };
    let (ids, labels) = (of(marks, "traffic/id/"), of(marks, "traffic/label/"));
    let others: Vec<&str> = (marks.bits.iter().copied())
        .filter(|b| !b.starts_with("traffic/id/") && !b.starts_with("traffic/label/"))
        .collect();
    if !ids.is_empty() || !labels.is_empty() {
        let mut traffic = o.object("traffic");
        for (key, names) in [("id", &ids), ("label", &labels)] {
            if !names.is_empty() {
                list(traffic.key(key), names);
            }
        }
        traffic.end();
    }
    let captured = !marks.captured.is_empty() || !marks.packet.is_empty();
    if !others.is_empty() || !marks.counters.is_empty() || captured {
        let mut metadata = o.object("metadata");
        if !others.is_empty() {
            list(metadata.key("flowbits"), &others);
        }
        if !marks.counters.is_empty() {
            let mut counters = metadata.object("flowints");
            for (name, value) in &marks.counters {
                counters.number(name, u64::from(*value));
            }
            counters.end();
        }
        for (key, values) in [("flowvars", &marks.captured), ("pktvars", &marks.packet)] {
            if values.is_empty() {
                continue;
            }
            let out = metadata.key(key);
            for (n, (name, value)) in values.iter().enumerate() {
                out.push(if n == 0 { b'[' } else { b',' });
                let mut one = Object::new(out);
                json::printable(one.key(name), value);
                one.end();
            }
            out.push(b']');
        }
        metadata.end();
    }
}

/// Objects of a transaction that stand beside its own.
fn besides(o: &mut Object<'_>, beside: &Map<String, Value>) {
    for (name, inner) in beside {
        value(o.key(name), inner);
    }
}

fn quoted(out: &mut Vec<u8>, f: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    f(out);
    out.push(b'"');
}

fn app_names(o: &mut Object<'_>, app: &AppNames) {
    for (key, name) in [
        ("app_proto", app.name),
        ("app_proto_ts", app.to_server),
        ("app_proto_tc", app.to_client),
        ("app_proto_orig", app.before),
    ] {
        if let Some(name) = name {
            o.string(key, name);
        }
    }
}

fn value(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

/// An alert, with its newline.
pub fn alert(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    rule: &RuleText,
    facts: &AlertFacts<'_>,
    options: &EveOptions,
) {
    let mut o = begin(out, "alert", head, options);
    if let Some(id) = facts.transaction {
        o.number("tx_id", id);
    }
    if let Some(t) = &facts.tunnel {
        let mut inner = o.object("tunnel");
        quoted(inner.key("src_ip"), |out| address(out, t.addresses.0));
        quoted(inner.key("dest_ip"), |out| address(out, t.addresses.1));
        // 0 where the protocol has none.
        let (from, to) = t.ports.unwrap_or_default();
        inner.number("src_port", u64::from(from));
        inner.number("dest_port", u64::from(to));
        quoted(inner.key("proto"), |out| protocol(out, t.protocol));
        inner.number("depth", u64::from(t.depth));
        inner.number("pcap_cnt", t.number);
        inner.string("pkt_src", t.origin.name());
        inner.end();
    }
    let inner = o.key("alert");
    inner.push(b'{');
    inner.extend_from_slice(&rule.eve);
    if let (Some(target), Some((source, destination))) = (rule.target, head.addresses) {
        let ports = head.ports.unwrap_or_default();
        let (from, to) = ((source, ports.0), (destination, ports.1));
        let (attacker, victim) = match target {
            Target::Source => (to, from),
            Target::Destination => (from, to),
        };
        for (key, (ip, port)) in [("source", attacker), ("target", victim)] {
            let _ = write!(inner, ",\"{key}\":");
            let mut end = Object::new(inner);
            quoted(end.key("ip"), |out| address(out, ip));
            if head.ports.is_some() {
                end.number("port", u64::from(port));
            }
            end.end();
        }
    }
    if !facts.context.is_empty() {
        inner.extend_from_slice(b",\"context\":");
        let mut context = Object::new(inner);
        for (name, value) in &facts.context {
            json::printable(context.key(name), value);
        }
        context.end();
    }
    inner.push(b'}');
    if options.app_fields
        && let Some((name, record)) = facts.record
        && !record.is_empty()
    {
        value(o.key(name), record);
        if let Some(beside) = facts.beside {
            besides(&mut o, beside);
        }
    }
    if options.app_fields {
        files(&mut o, facts);
    }
    app_names(&mut o, &facts.app);
    if let Some(to_server) = facts.to_server {
        o.string(
            "direction",
            if to_server { "to_server" } else { "to_client" },
        );
    }
    if let Some(flow) = facts.flow {
        let mut f = o.object("flow");
        counts(&mut f, flow);
        f.time("start", flow.start);
        quoted(f.key("src_ip"), |out| address(out, flow.client.0));
        quoted(f.key("dest_ip"), |out| address(out, flow.server.0));
        if head.ports.is_some() {
            f.number("src_port", u64::from(flow.client.1));
            f.number("dest_port", u64::from(flow.server.1));
        }
        if flow.midstream {
            f.boolean("midstream", true);
        }
        f.end();
    }
    // The limit is one of streams: a packet's payload is shown whole.
    let most = match facts.stream {
        true => options.payload_limit,
        false => facts.payload.len(),
    };
    let payload = &facts.payload[..facts.payload.len().min(most)];
    if options.payload && !payload.is_empty() {
        json::base64(o.key("payload"), payload);
    }
    if options.length {
        o.number("payload_length", facts.length as u64);
    }
    if options.printable && !payload.is_empty() {
        json::printable(o.key("payload_printable"), payload);
    }
    if options.shows_payload() {
        o.number("stream", u64::from(facts.stream));
    }
    if options.packet {
        json::base64(o.key("packet"), facts.packet);
        let mut info = o.object("packet_info");
        // Raw IP has the number that programs give it, not the one of files.
        let link = if facts.link == 101 { 12 } else { facts.link };
        info.number("linktype", u64::from(link));
        if let Some(name) = link_name(link) {
            info.string("linktype_name", name);
        }
        info.end();
    }
    if options.verdict {
        o.key("verdict").extend_from_slice(rule.verdict.as_bytes());
    }
    o.end();
    out.push(b'\n');
}

fn counts(o: &mut Object<'_>, flow: &FlowFacts) {
    o.number("pkts_toserver", flow.packets[0]);
    o.number("pkts_toclient", flow.packets[1]);
    o.number("bytes_toserver", flow.bytes[0]);
    o.number("bytes_toclient", flow.bytes[1]);
}

fn flag_names(o: &mut Object<'_>, flags: u8) {
    for (bit, name) in [
        (2, "syn"),
        (1, "fin"),
        (4, "rst"),
        (8, "psh"),
        (16, "ack"),
        (32, "urg"),
        (64, "ecn"),
        (128, "cwr"),
    ] {
        if flags & bit != 0 {
            o.boolean(name, true);
        }
    }
}

/// What one direction of a flow sent, by its end: the head names that direction, which is `direction` (0: to server). `ttl` is the least and the greatest, `flags` those of TCP.
pub fn netflow(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (facts, ttl): (&FlowFacts, (u8, u8)),
    flags: u8,
    app: &AppNames,
    direction: usize,
    options: &EveOptions,
) {
    let mut o = begin(out, "netflow", head, options);
    o.string("app_proto", app.name.unwrap_or("unknown"));
    let mut f = o.object("netflow");
    f.number("pkts", facts.packets[direction]);
    f.number("bytes", facts.bytes[direction]);
    f.time("start", facts.start);
    f.time("end", facts.end);
    f.number("age", age(facts));
    f.number("min_ttl", u64::from(ttl.0));
    f.number("max_ttl", u64::from(ttl.1));
    if let Some(count) = facts.transactions {
        f.number("tx_cnt", count);
    }
    f.end();
    if head.protocol == 6 {
        let mut t = o.object("tcp");
        t.plain("tcp_flags", format_args!("{flags:02x}"));
        flag_names(&mut t, flags);
        t.end();
    }
    o.end();
    out.push(b'\n');
}

/// Whole seconds between the first and the last packet's.
fn age(facts: &FlowFacts) -> u64 {
    (facts.end / 1_000_000_000).saturating_sub(facts.start / 1_000_000_000)
}

/// The end of a flow. `reason`: `timeout`, `forced`, `shutdown`, `tcp_reuse`.
pub fn flow(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    facts: &FlowFacts,
    tcp: Option<&TcpFacts>,
    app: &AppNames,
    reason: &str,
    options: &EveOptions,
) {
    let mut o = begin(out, "flow", head, options);
    app_names(&mut o, app);
    let mut f = o.object("flow");
    counts(&mut f, facts);
    f.time("start", facts.start);
    f.time("end", facts.end);
    f.number("age", age(facts));
    f.string("state", facts.state);
    f.string("reason", reason);
    f.boolean("alerted", facts.alerted);
    if let Some(count) = facts.transactions {
        f.number("tx_cnt", count);
    }
    if facts.midstream {
        f.boolean("midstream", true);
    }
    if tcp.is_some_and(TcpFacts::is_passed_by) {
        // Packets of a session that was not seen to begin: why nothing of it was put together.
        f.key("exception_policy")
            .extend_from_slice(br#"[{"target":"stream_midstream","policy":"ignore"}]"#);
    }
    f.end();
    if let Some(tcp) = tcp {
        let mut t = o.object("tcp");
        // What no session was seen of says nothing but that.
        let flags = if tcp.state.is_some() {
            tcp.flags
        } else {
            [0; 2]
        };
        let all = flags[0] | flags[1];
        t.plain("tcp_flags", format_args!("{all:02x}"));
        t.plain("tcp_flags_ts", format_args!("{:02x}", flags[0]));
        t.plain("tcp_flags_tc", format_args!("{:02x}", flags[1]));
        flag_names(&mut t, all);
        if let Some(state) = tcp.state {
            t.string("state", state);
        }
        for (gap, name) in [(tcp.gaps[0], "ts_gap"), (tcp.gaps[1], "tc_gap")] {
            if gap {
                t.boolean(name, true);
            }
        }
        t.end();
    }
    o.end();
    out.push(b'\n');
}

/// A transaction of an application.
pub fn transaction(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    kind: &str,
    id: Option<u64>,
    (record, beside): (&Map<String, Value>, &Map<String, Value>),
    options: &EveOptions,
) {
    let mut o = begin(out, kind, head, options);
    if let Some(id) = id {
        o.number("tx_id", id);
    }
    value(o.key(kind), record);
    besides(&mut o, beside);
    o.end();
    out.push(b'\n');
}

/// The files that an alert's transaction carries in its direction.
fn files(o: &mut Object<'_>, facts: &AlertFacts<'_>) {
    let (Some(transaction), Some(to_server)) = (facts.transaction, facts.to_server) else {
        return;
    };
    let mine = |f: &&File| (f.direction == Direction::ToServer) == to_server;
    if !facts.files.iter().any(|f| mine(&f)) {
        return;
    }
    let out = o.key("files");
    out.push(b'[');
    for (n, file) in facts.files.iter().filter(mine).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        about_file(Object::new(out), file, transaction);
    }
    out.push(b']');
}

/// What records say of a file.
fn about_file(mut f: Object<'_>, file: &File, transaction: u64) {
    f.string("filename", &String::from_utf8_lossy(&file.name));
    f.boolean("gaps", file.gaps);
    f.string("state", if file.whole { "CLOSED" } else { "TRUNCATED" });
    for (name, sum) in &file.sums {
        quoted(f.key(name), |out| {
            for byte in sum {
                let _ = write!(out, "{byte:02x}");
            }
        });
    }
    f.boolean("stored", false);
    f.number("size", file.size);
    f.number("tx_id", transaction);
    f.end();
}

/// A file that was transferred, with the transaction it was in: names of its application, and of the application's records.
pub fn file(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (app, name): (&'static str, &'static str),
    (record, beside): (&Map<String, Value>, &Map<String, Value>),
    (file, transaction): (&File, u64),
    options: &EveOptions,
) {
    let mut o = begin(out, "fileinfo", head, options);
    if !record.is_empty() {
        value(o.key(name), record);
    }
    besides(&mut o, beside);
    o.string("app_proto", app);
    about_file(o.object("fileinfo"), file, transaction);
    o.end();
    out.push(b'\n');
}

/// Something that is not as protocols want it.
#[derive(Clone, Copy, Debug)]
pub struct Anomaly<'a> {
    /// `decode`, `stream`, `applayer`.
    pub kind: &'a str,
    /// Its name.
    pub event: &'a str,
    /// The application.
    pub app: Option<&'a str>,
    /// `proto_parser`, `proto_detect`.
    pub layer: Option<&'a str>,
    /// The transaction.
    pub transaction: Option<u64>,
}

/// An anomaly, with its newline.
pub fn anomaly(out: &mut Vec<u8>, head: &Head<'_>, what: &Anomaly<'_>, options: &EveOptions) {
    let mut o = begin(out, "anomaly", head, options);
    if let Some(id) = what.transaction {
        o.number("tx_id", id);
    }
    let mut a = o.object("anomaly");
    if let Some(app) = what.app {
        a.string("app_proto", app);
    }
    a.string("type", what.kind);
    a.string("event", what.event);
    if let Some(layer) = what.layer {
        a.string("layer", layer);
    }
    a.end();
    o.end();
    out.push(b'\n');
}

/// Counters, whose dotted names become objects. They are written by name, so each object stands once.
pub fn stats(
    out: &mut Vec<u8>,
    now: u64,
    uptime: u64,
    counters: &std::collections::BTreeMap<String, u64>,
) {
    let mut o = Object::new(out);
    o.time("timestamp", now);
    o.string("event_type", "stats");
    let mut stats = o.object("stats");
    stats.number("uptime", uptime);
    let rows: Vec<(&str, u64)> = counters.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    branch(&mut stats, &rows, 0);
    stats.end();
    o.end();
    out.push(b'\n');
}

/// Counters whose dotted names agree in their first bytes, sorted, as objects within each other. A name that is the beginning of others yields to them.
fn branch(object: &mut Object<'_>, mut rows: &[(&str, u64)], agree: usize) {
    while let Some((name, count)) = rows.first() {
        let own = name.get(agree..).unwrap_or_default();
        let head = own.split_once('.').map_or(own, |(head, _)| head);
        let within = |(name, _): &(&str, u64)| {
            let own = name.get(agree..).and_then(|own| own.strip_prefix(head));
            own.is_some_and(|own| own.starts_with('.'))
        };
        if head.len() == own.len() {
            rows = &rows[1..];
            if !rows.first().is_some_and(within) {
                object.number(head, *count);
            }
            continue;
        }
        let (those, others) = rows.split_at(rows.iter().take_while(|r| within(r)).count());
        let mut inner = object.object(head);
        branch(&mut inner, those, agree + head.len() + 1);
        inner.end();
        rows = others;
    }
}

/// A line of fast.log, with its newline.
pub fn fast(out: &mut Vec<u8>, head: &Head<'_>, rule: &RuleText) {
    time::fast(out, head.time);
    out.extend_from_slice(b"  ");
    out.extend_from_slice(&rule.fast);
    match head.addresses {
        Some((source, destination)) => {
            out.push(b'{');
            match protocol_name(head.protocol) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => {
                    let _ = write!(out, "PROTO:{:03}", head.protocol);
                }
            }
            out.extend_from_slice(b"} ");
            // Of ICMP, type and code stand where ports would.
            let icmp = head
                .icmp
                .map(|(kind, code)| (u16::from(kind), u16::from(code)));
            let ports = head.ports.or(icmp).unwrap_or_default();
            address(out, source);
            let _ = write!(out, ":{} -> ", ports.0);
            address(out, destination);
            let _ = writeln!(out, ":{}", ports.1);
        }
        None => {
            let _ = writeln!(out, "[pcap file packet: {}]", head.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_names_become_objects() {
        let names = ["a", "a.b", "a.c.d", "a.c.e", "a_b", "ab.c", "z"];
        let counters = names.map(str::to_owned).into_iter().zip(1..).collect();
        let mut out = Vec::new();
        stats(&mut out, 0, 9, &counters);
        let record: Value = serde_json::from_slice(&out).expect("JSON");
        let expected = serde_json::json!({
            "uptime": 9, "a": {"b": 2, "c": {"d": 3, "e": 4}}, "a_b": 5, "ab": {"c": 6}, "z": 7,
        });
        assert_eq!(record["stats"], expected);
    }
}

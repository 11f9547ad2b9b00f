//! EVE records: one JSON object a line, with the field names and types that readers of such logs know. What is said here is listed in `schema.json` beside the tests.
//!
//! Records are appended to a buffer; who calls decides where the buffer goes. Everything that a rule says of itself is written once, when it is loaded.
//! Here is what all records have; each group of them has a file.

mod alert;
mod app;
mod arp;
mod drop;
mod flow;
mod frame;
mod names;
mod stats;

pub use alert::{AlertFacts, Effect, RuleText, Tunnel, alert, tagged};
pub use app::{Anomaly, anomaly, file, transaction};
pub(crate) use arp::arp;
pub use drop::{DropFacts, dropped};
pub use flow::{FlowFacts, TcpFacts, flow, netflow};
pub(crate) use frame::counted;
pub use frame::{FrameFacts, frame};
pub use names::protocol_name;
pub use stats::{engine, stats};

use std::io::Write;
use std::net::IpAddr;

use serde_json::{Map, Value};

use self::names::protocol;
use super::community;
use super::json::{self, Object};
use crate::app::Sums;

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
    /// `tagged-packets`: packets after alerts whose rules want it.
    pub tagged: bool,
    /// `verdict`: what became of the packet.
    pub verdict: bool,
    /// Bytes of a payload that are written at most.
    pub payload_limit: usize,
    /// The application's fields in alerts.
    pub app_fields: bool,
    /// Who sent a request, where a proxy says so.
    pub forwarded: Option<Forwarded>,
    /// Rules' metadata in alerts.
    pub metadata: bool,
    /// Rules' references in alerts.
    pub references: bool,
    /// What rules have set in a flow (`metadata`, `traffic`).
    pub marks: bool,
    /// Bodies of HTTP in alerts: in base64.
    pub http_body: bool,
    /// The same, printable.
    pub http_printable: bool,
    /// Sums of files.
    pub sums: Sums,
    /// `in_iface`: names of the interfaces that are listened to, by their numbers.
    pub interfaces: Vec<String>,
    /// `host`: the sensor's name.
    pub host: Option<String>,
    /// `ether`: addresses of the link layer.
    pub ethernet: bool,
    /// `packet` in anomalies: the beginning of the frame.
    pub packet_header: bool,
    /// `pcap_filename`.
    pub file: bool,
}

/// How alerts name the client behind a proxy (`xff`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The header that proxies write.
    pub header: String,
    /// In place of the address of the proxy, not beside it.
    pub overwrite: bool,
    /// The first address of the header, as behind a forward proxy; else the last one.
    pub first: bool,
}

impl Forwarded {
    /// The client in the header lines of a request.
    pub fn client(&self, headers: &[u8]) -> Option<IpAddr> {
        let values = headers.split(|b| *b == b'\n').filter_map(|line| {
            let at = line.iter().position(|b| *b == b':')?;
            let (name, value) = line.split_at(at);
            let own = name
                .trim_ascii()
                .eq_ignore_ascii_case(self.header.as_bytes());
            own.then(|| std::str::from_utf8(value.get(1..)?).ok())?
        });
        let mut addresses = values
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let text = match self.first {
            true => addresses.next(),
            false => addresses.next_back(),
        }?;
        text.parse().ok()
    }
}

impl EveOptions {
    /// Whether alerts show what was inspected.
    pub fn shows_payload(&self) -> bool {
        self.payload || self.printable || self.length
    }

    /// What either of two asks for.
    pub(crate) fn join(&mut self, other: &EveOptions) {
        self.community = self.community.or(other.community);
        self.payload |= other.payload;
        self.printable |= other.printable;
        self.length |= other.length;
        self.packet |= other.packet;
        self.tagged |= other.tagged;
        self.verdict |= other.verdict;
        self.payload_limit = self.payload_limit.max(other.payload_limit);
        self.app_fields |= other.app_fields;
        if self.forwarded.is_none() {
            self.forwarded.clone_from(&other.forwarded);
        }
        self.metadata |= other.metadata;
        self.marks |= other.marks;
        self.http_body |= other.http_body;
        self.http_printable |= other.http_printable;
        self.sums.md5 |= other.sums.md5;
        self.sums.sha1 |= other.sums.sha1;
        self.sums.sha256 |= other.sums.sha256;
        self.sums.magic |= other.sums.magic;
        self.ethernet |= other.ethernet;
        self.packet_header |= other.packet_header;
        self.file |= other.file;
    }

    /// What is written where nothing is configured.
    pub fn usual() -> EveOptions {
        EveOptions {
            payload_limit: 4096,
            app_fields: true,
            metadata: true,
            references: false,
            marks: true,
            ..EveOptions::default()
        }
    }
}

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
    /// Number of the interface.
    pub interface: u8,
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
    /// Addresses of the link layer.
    pub ether: Option<Link<'a>>,
}

/// Addresses of an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ether {
    /// Sender.
    pub source: [u8; 6],
    /// Receiver.
    pub destination: [u8; 6],
    /// What the frame carries, of one that is there.
    pub kind: Option<u16>,
}

impl Ether {
    /// Of the first bytes of a frame.
    pub fn of(frame: &[u8]) -> Option<Ether> {
        let (destination, rest) = frame.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        let kind = u16::from_be_bytes(*rest.first_chunk()?);
        Some(Ether {
            source: *source,
            destination: *destination,
            kind: Some(kind),
        })
    }

    /// With its ends exchanged.
    pub fn reversed(self) -> Ether {
        Ether {
            source: self.destination,
            destination: self.source,
            kind: self.kind,
        }
    }
}

/// The link layer of what a record is about.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a> {
    /// A frame.
    Frame(Ether),
    /// A flow: all addresses of senders and of receivers.
    Flow([&'a [[u8; 6]]; 2]),
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
    /// No packet: what came until now is looked at.
    Flush,
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
            Origin::Flush => "stream (detect/log)",
            Origin::Tunnel(name) => name,
        }
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
    if let Some(interface) = options.interfaces.get(usize::from(head.interface)) {
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
        json::list(o.key("vlan"), head.vlan, |out, id| {
            json::number(out, u64::from(*id))
        });
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
    if let Some(link) = &head.ether {
        write_link(o.object("ether"), link);
    }
    o
}

/// An address of the link layer.
fn hardware(out: &mut Vec<u8>, address: &[u8; 6]) {
    quoted(out, |out| {
        for (n, byte) in address.iter().enumerate() {
            let _ = write!(out, "{}{byte:02x}", if n > 0 { ":" } else { "" });
        }
    });
}

/// The inside of `ether`.
fn write_link(mut o: Object<'_>, link: &Link<'_>) {
    match link {
        Link::Frame(frame) => {
            if let Some(kind) = frame.kind {
                o.number("ether_type", u64::from(kind));
            }
            hardware(o.key("src_mac"), &frame.source);
            hardware(o.key("dest_mac"), &frame.destination);
        }
        Link::Flow([sources, destinations]) => {
            json::list(o.key("dest_macs"), *destinations, hardware);
            json::list(o.key("src_macs"), *sources, hardware);
        }
    }
    o.end();
}

/// `metadata` with bits and counters; bits called `traffic/id/NAME` and `traffic/label/NAME` stand in `traffic`.
fn write_marks(o: &mut Object<'_>, marks: &Marks<'_>) {
    fn of<'a>(marks: &Marks<'a>, prefix: &'a str) -> Vec<&'a str> {
        let names = marks.bits.iter();
        names.filter_map(|b| b.strip_prefix(prefix)).collect()
    }
    let list = |out: &mut Vec<u8>, names: &[&str]| {
        json::list(out, names, |out, name| json::string(out, name));
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
            json::list(metadata.key(key), values, |out, (name, value)| {
                let mut one = Object::new(out);
                json::printable(one.key(name), value);
                one.end();
            });
        }
        metadata.end();
    }
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

/// Objects of a transaction that stand beside its own.
fn besides(o: &mut Object<'_>, beside: &Map<String, Value>) {
    for (name, inner) in beside {
        value(o.key(name), inner);
    }
}

fn value(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

fn quoted(out: &mut Vec<u8>, f: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    f(out);
    out.push(b'"');
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_behind_proxies() {
        let headers =
            b"Host: a\r\nx-forwarded-for: 10.1.1.1, 10.2.2.2\r\nX-Forwarded-For:2001:db8::1\r\n";
        let client = |first: bool, headers: &[u8]| {
            let forwarded = Forwarded {
                header: "X-Forwarded-For".to_owned(),
                overwrite: false,
                first,
            };
            forwarded.client(headers).map(|ip| ip.to_string())
        };
        assert_eq!(client(true, headers).as_deref(), Some("10.1.1.1"));
        assert_eq!(client(false, headers).as_deref(), Some("2001:db8::1"));
        assert_eq!(client(false, b"X-Forwarded-For: unknown\r\n"), None);
        assert_eq!(client(false, b"X-Forwarded: 10.1.1.1\r\n"), None);
        assert_eq!(client(true, b""), None);
    }
}

//! Dropped packets: their headers, as packet filters log them, and why they were dropped.

use super::{EveOptions, Head, Object, RuleText, begin};
use crate::packet::{Packet, Transport, flag};

/// What a record of a dropped packet says beside its head.
#[derive(Clone, Copy, Debug)]
pub struct DropFacts<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Why it was dropped.
    pub reason: &'static str,
    /// The rule that dropped it, if records say so.
    pub alert: Option<&'a RuleText>,
    /// `to_server` (true) or `to_client`, of packets that belong to a flow.
    pub to_server: Option<bool>,
}

/// A dropped packet, with its newline.
pub fn dropped(out: &mut Vec<u8>, head: &Head<'_>, facts: &DropFacts<'_>, options: &EveOptions) {
    let mut o = begin(out, "drop", head, options);
    if let Some(to_server) = facts.to_server {
        o.string(
            "direction",
            if to_server { "to_server" } else { "to_client" },
        );
    }
    let mut inner = o.object("drop");
    headers(&mut inner, facts.packet);
    inner.string("reason", facts.reason);
    inner.end();
    if let Some(rule) = facts.alert {
        let inside = o.key("alert");
        inside.extend_from_slice(b"{\"action\":\"blocked\",");
        inside.extend_from_slice(&rule.eve);
        inside.push(b'}');
    }
    o.end();
    out.push(b'\n');
}

fn headers(o: &mut Object<'_>, packet: &Packet<'_>) {
    let bytes = |at: usize, count: usize| {
        let bytes = packet.data.get(at..at + count).unwrap_or_default();
        bytes.iter().fold(0, |all, b| all << 8 | u64::from(*b))
    };
    let Some(ip) = &packet.ip else { return };
    let at = ip.header.start;
    let tos = u64::from(ip.tos);
    if ip.source.is_ipv4() {
        o.number("len", bytes(at + 2, 2));
        o.number("tos", tos);
        o.number("ttl", u64::from(ip.ttl));
        o.number("ipid", bytes(at + 4, 2));
    } else {
        o.number("len", bytes(at + 4, 2));
        o.number("tc", tos);
        o.number("hoplimit", u64::from(ip.ttl));
        o.number("flowlbl", bytes(at, 4) & 0xf_ffff);
    }
    match &packet.transport {
        Transport::Tcp(tcp) => {
            o.number("tcpseq", u64::from(tcp.sequence));
            o.number("tcpack", u64::from(tcp.acknowledgement));
            o.number("tcpwin", u64::from(tcp.window));
            for (bit, name) in [
                (flag::SYN, "syn"),
                (flag::ACK, "ack"),
                (flag::PSH, "psh"),
                (flag::RST, "rst"),
                (flag::URG, "urg"),
                (flag::FIN, "fin"),
            ] {
                o.boolean(name, tcp.flags & bit != 0);
            }
            // The four bits behind the data offset.
            o.number("tcpres", bytes(tcp.header.start + 12, 1) & 0xf);
            o.number("tcpurgp", u64::from(tcp.urgent));
        }
        Transport::Udp { header, .. } => o.number("udplen", bytes(header + 4, 2)),
        Transport::Icmp { echo, .. } => {
            if let Some((id, sequence)) = echo {
                o.number("icmp_id", u64::from(*id));
                o.number("icmp_seq", u64::from(*sequence));
            }
        }
        Transport::Sctp { .. } | Transport::None => {}
    }
}

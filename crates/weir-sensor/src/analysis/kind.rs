//! Of which kind a rule is, and what a packet must be for it to be asked at all.

use crate::buffer::Buffer;
use crate::rules::keywords::Word;
use crate::rules::{
    AlertTarget, Bit, BitOperation, Condition, HeaderProtocol, Hook, PacketCondition, Range,
};

use super::lists::{Lists, Place, is_of_transactions, place};
use super::patterns::Lead;

/// Bits of `flags` that begin or end a connection, and those that few packets have.
const INIT_DEINIT: u8 = 0x01 | 0x02 | 0x04;
const UNUSUAL: u8 = 0x20 | 0x40 | 0x80;

/// Whether packets, streams or both are inspected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub(super) packet: bool,
    pub(super) stream: bool,
}

impl Needs {
    pub(super) fn of(lists: &Lists<'_>) -> Needs {
        let rule = lists.rule;
        let protocol = rule.header.protocol;
        let of_packets = |c: &PacketCondition| matches!(place(c), Place::Header | Place::Size);
        let mut needs = Needs {
            packet: protocol == HeaderProtocol::TcpPacket
                || rule.flow.stream == Some(false)
                || rule.packet.iter().any(of_packets),
            stream: protocol == HeaderProtocol::TcpStream || rule.flow.stream == Some(true),
        };
        let Some((_, payload)) = lists.payload() else {
            return needs;
        };
        if !lists.has_tcp() {
            needs.packet = true;
        } else if !needs.packet && !needs.stream {
            needs.stream = true;
            let mut first = true;
            let placed = payload.conditions.iter().any(|c| {
                let first = std::mem::take(&mut first);
                let Condition::Content(c) = c else {
                    return false;
                };
                let relative = c.distance.is_some() || c.within.is_some();
                c.offset.is_some() || c.depth.is_some() || c.starts || first && relative
            });
            let sizes = |c: &PacketCondition| matches!(c, PacketCondition::StreamSize { .. });
            needs.packet = placed || rule.packet.iter().any(sizes);
        }
        needs
    }
}

/// The kind of a rule, as programs that read analyses name it.
pub(super) fn kind(lists: &Lists<'_>, needs: Needs) -> &'static str {
    let rule = lists.rule;
    let reached = |c: &PacketCondition| matches!(c, PacketCondition::Hook(Hook::Reached(..)));
    if rule.packet.iter().any(reached) {
        return "app_tx";
    }
    let bare = lists.app.is_none() && rule.groups.is_empty() && lists.transaction.is_empty();
    if bare && let Some(kind) = bare_kind(lists) {
        return kind;
    }
    let of_headers = |b: Buffer| b != Buffer::Payload && !is_of_transactions(b);
    if rule.groups.iter().any(|g| of_headers(g.buffer)) {
        return "pkt";
    }
    if lists.asks_transactions() {
        return "app_tx";
    }
    if lists.payload().is_some() {
        return match needs {
            Needs { stream: false, .. } => "pkt",
            Needs { packet: false, .. } => "stream",
            _ => "pkt_stream",
        };
    }
    match (lists.packet.is_empty(), lists.app) {
        (true, Some(_)) => "app_layer",
        _ => "pkt",
    }
}

/// Of a rule without an application and without bytes.
fn bare_kind(lists: &Lists<'_>) -> Option<&'static str> {
    let words: Vec<Option<Word>> = lists.packet.iter().map(|at| lists.word(*at)).collect();
    let of_hosts =
        |w: &Option<Word>| matches!(w, Some(Word::IpReputation | Word::Xbits | Word::Hostbits));
    let detects = |w: &Option<Word>| *w == Some(Word::AppLayerProtocol);
    if words.iter().any(detects) && words.iter().all(|w| detects(w) || of_hosts(w)) {
        return Some("pd_only");
    }
    let events = |w: &Option<Word>| matches!(w, Some(Word::DecodeEvent | Word::StreamEvent));
    if !words.is_empty() && words.iter().all(events) {
        return Some("de_only");
    }
    let header = &lists.rule.header;
    let with_ports = matches!(
        header.protocol,
        HeaderProtocol::Tcp
            | HeaderProtocol::TcpPacket
            | HeaderProtocol::TcpStream
            | HeaderProtocol::Udp
            | HeaderProtocol::Sctp
    );
    let all_ports = header.source_ports.any && header.destination_ports.any;
    if !words.iter().all(of_hosts) || with_ports && !all_ports {
        return None;
    }
    match header.source.negated || header.destination.negated {
        true => Some("like_ip_only"),
        false => Some("ip_only"),
    }
}

/// What a packet must have for the rule to be asked.
pub(super) fn requirements(lists: &Lists<'_>) -> Vec<&'static str> {
    let rule = lists.rule;
    let mut payload = lists.payload().is_some();
    let (mut empty, mut begins, mut unusual, mut event, mut real) =
        (false, false, false, false, false);
    for condition in &rule.packet {
        match condition {
            PacketCondition::PayloadSize(size) => {
                let none = Range::new(0, 0, false);
                empty |= *size == none;
                payload |= !size.has(0);
            }
            PacketCondition::Flags { bits, .. } => {
                begins |= bits & INIT_DEINIT != 0;
                unusual |= bits & UNUSUAL != 0;
            }
            PacketCondition::Event(_) => event = true,
            _ => {}
        }
        real |= place(condition) == Place::Header;
    }
    let asked = |at: &usize| {
        matches!(
            lists.word(*at),
            Some(Word::Flowbits | Word::Flowint | Word::Flow)
        )
    };
    let flow = lists.app.is_some() || lists.asks_transactions() || lists.packet.iter().any(asked);
    let all = [
        (payload, "payload"),
        (empty, "no_payload"),
        (flow, "flow"),
        (begins, "tcp_flags_init_deinit"),
        (unusual, "tcp_flags_unusual"),
        (event, "engine_event"),
        (real, "real_pkt"),
    ];
    chosen(&all)
}

/// What is known of a rule, by name.
pub(super) fn flags(lists: &Lists<'_>, needs: Needs, lead: Option<&Lead<'_>>) -> Vec<&'static str> {
    let rule = lists.rule;
    let header = &rule.header;
    let has = |name: &str| lists.source.options.iter().any(|o| o.name == name);
    let isset = |b: &Bit| {
        matches!(
            b,
            Bit::Flow {
                operation: BitOperation::IsSet,
                ..
            }
        )
    };
    let size = |c: &PacketCondition| matches!(c, PacketCondition::PayloadSize(_));
    let all = [
        (header.source.any, "src_any"),
        (header.destination.any, "dst_any"),
        (header.source_ports.any, "sp_any"),
        (header.destination_ports.any, "dp_any"),
        (rule.silent, "noalert"),
        (rule.packet.iter().any(size), "dsize"),
        (lists.app.is_some(), "applayer"),
        (needs.packet, "need_packet"),
        (needs.stream, "need_stream"),
        (lead.is_some_and(|l| l.content.negated), "negated_mpm"),
        (rule.bits.iter().any(isset), "need_flowvar"),
        (has("filestore"), "filestore"),
        (lists.directions[0], "toserver"),
        (lists.directions[1], "toclient"),
        (has("tls.store") || has("tls_store"), "tlsstore"),
        (has("bypass"), "bypass"),
        (lead.is_some() || has("prefilter"), "prefilter"),
        (rule.target == Some(AlertTarget::Source), "src_is_target"),
        (
            rule.target == Some(AlertTarget::Destination),
            "dest_is_target",
        ),
    ];
    chosen(&all)
}

fn chosen(all: &[(bool, &'static str)]) -> Vec<&'static str> {
    all.iter().filter(|(is, _)| *is).map(|(_, n)| *n).collect()
}

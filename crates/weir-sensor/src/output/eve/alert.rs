//! Alerts: what a rule says of itself, written once when it is loaded, and what is added of the packet that it holds for.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::app::files;
use super::flow::counts;
use super::frame::FrameFacts;
use super::names::{link_name, protocol};
use super::{
    AppNames, EveOptions, FlowFacts, Head, Object, Origin, address, app_names, begin, besides,
    json, quoted, value,
};
use crate::app::File;
use crate::rules::{Action, AlertTarget, Rule};

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

/// What a rule says of itself, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// The inside of `alert`, without braces and the action.
    pub eve: Vec<u8>,
    /// Of fast.log, from behind the action to the priority.
    pub fast: Vec<u8>,
    /// What the rule asks for.
    pub action: Action,
    target: Option<AlertTarget>,
}

impl RuleText {
    /// Of a rule. `prefixes` stand before the values of references, by their kinds; of another kind the kind itself does.
    pub fn new(rule: &Rule, options: &EveOptions, prefixes: &BTreeMap<String, String>) -> RuleText {
        let mut eve = Vec::new();
        let mut o = Object::new(&mut eve);
        o.number("gid", u64::from(rule.gid));
        o.number("signature_id", u64::from(rule.sid));
        o.number("rev", u64::from(rule.rev));
        o.string("signature", &rule.message);
        o.string("category", &rule.category);
        o.number("severity", u64::from(rule.priority));
        if options.metadata && !rule.metadata.is_empty() {
            metadata(o.key("metadata"), &rule.metadata);
        }
        if options.references && !rule.references.is_empty() {
            json::list(
                o.key("references"),
                &rule.references,
                |out, (kind, value)| match prefixes.get(&kind.to_ascii_lowercase()) {
                    Some(prefix) => json::string(out, &format!("{prefix}{value}")),
                    None => json::string(out, &format!("{kind}:{value}")),
                },
            );
        }
        o.end();
        let mut fast = Vec::new();
        let class = if rule.category.is_empty() {
            "(null)"
        } else {
            &rule.category
        };
        let message = if rule.message.is_empty() {
            "(null)"
        } else {
            &rule.message
        };
        // Writing to memory does not fail.
        let _ = write!(
            fast,
            "[**] [{}:{}:{}] {message} [**] [Classification: {class}] [Priority: {}] ",
            rule.gid, rule.sid, rule.rev, rule.priority
        );
        fast.shrink_to_fit();
        let inside = eve[1..eve.len() - 1].to_vec();
        RuleText {
            eve: inside,
            fast,
            action: rule.action,
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
        out.push(b':');
        let values = pairs.iter().rev().filter(|(k, _)| k == key);
        json::list(out, values, |out, (_, value)| json::string(out, value));
    }
    out.push(b'}');
}

/// What became of the packet of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// It passed.
    #[default]
    Allowed,
    /// It passed, and would have been dropped inline.
    WouldBlock,
    /// It was dropped, or a reset was sent.
    Blocked,
}

impl Effect {
    /// Of a rule with this action; `inline`: the sensor is inline.
    pub fn of(action: Action, inline: bool) -> Effect {
        match action {
            Action::Reject => Effect::Blocked,
            Action::Drop if inline => Effect::Blocked,
            Action::Drop => Effect::WouldBlock,
            Action::Alert | Action::Pass => Effect::Allowed,
        }
    }
}

/// What an alert record says beside its head and its rule.
#[derive(Clone, Debug, Default)]
pub struct AlertFacts<'a> {
    /// What was done of it.
    pub effect: Effect,
    /// The transaction it is about.
    pub transaction: Option<u64>,
    /// A rule has passed the packet.
    pub passed: bool,
    /// The rule did not ask for one: it is the only one of the flow.
    pub guessed: bool,
    /// `to_server` (true) or `to_client`, of packets that belong to a flow.
    pub to_server: Option<bool>,
    /// Names of the application.
    pub app: AppNames,
    /// The transaction's fields, under the application's name.
    pub record: Option<(&'static str, &'a Map<String, Value>)>,
    /// What the rule has captured for its alert, by name; `true`: it is JSON.
    pub context: Vec<(&'a str, &'a [u8], bool)>,
    /// What stands beside them (`email`).
    pub beside: Option<&'a Map<String, Value>>,
    /// What carries the packet.
    pub tunnel: Option<Tunnel>,
    /// Link type of the packet's first header.
    pub link: u16,
    /// The frame that the rule asks for, with its bytes and the number of its transaction.
    pub frame: Option<FrameFacts<'a>>,
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
    /// The client behind a proxy, where it stands beside the proxy's address.
    pub forwarded: Option<IpAddr>,
    /// Whether the sensor is inline.
    pub inline: bool,
    /// Whether the payload is of the stream rather than of the packet.
    pub stream: bool,
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
    if facts.guessed {
        o.boolean("tx_guessed", true);
    }
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
    inner.extend_from_slice(match facts.effect {
        Effect::Blocked => b"{\"action\":\"blocked\",",
        Effect::Allowed | Effect::WouldBlock => b"{\"action\":\"allowed\",",
    });
    inner.extend_from_slice(&rule.eve);
    if let (Some(target), Some((source, destination))) = (rule.target, head.addresses) {
        let ports = head.ports.unwrap_or_default();
        let (from, to) = ((source, ports.0), (destination, ports.1));
        let (attacker, victim) = match target {
            AlertTarget::Source => (to, from),
            AlertTarget::Destination => (from, to),
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
        for (name, value, is_json) in &facts.context {
            let out = context.key(name);
            match is_json {
                true => out.extend_from_slice(value),
                false => json::printable(out, value),
            }
        }
        context.end();
    }
    if let Some(client) = facts.forwarded {
        inner.extend_from_slice(b",\"xff\":");
        quoted(inner, |out| address(out, client));
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
    if let Some(frame) = &facts.frame {
        frame.write(&mut o);
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
        packet(&mut o, facts.packet, facts.link);
    }
    if options.verdict {
        let verdict = match (rule.action, facts.effect) {
            (Action::Pass, _) => r#"{"action":"pass"}"#,
            // A reset beside the traffic stops nothing that has passed.
            (_, Effect::Blocked) if facts.inline => r#"{"action":"drop"}"#,
            _ if facts.passed => r#"{"action":"pass"}"#,
            _ => r#"{"action":"alert"}"#,
        };
        o.key("verdict").extend_from_slice(verdict.as_bytes());
    }
    o.end();
    out.push(b'\n');
}

/// A packet after an alert, that the rule wants logged.
pub fn tagged(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (bytes, link): (&[u8], u16),
    options: &EveOptions,
) {
    let mut o = begin(out, "packet", head, options);
    packet(&mut o, bytes, link);
    o.end();
    out.push(b'\n');
}

/// A frame, with its link type.
pub(super) fn packet(o: &mut Object<'_>, bytes: &[u8], link: u16) {
    json::base64(o.key("packet"), bytes);
    let mut info = o.object("packet_info");
    // Raw IP has the number that programs give it, not the one of files.
    let link = if link == 101 { 12 } else { link };
    info.number("linktype", u64::from(link));
    if let Some(name) = link_name(link) {
        info.string("linktype_name", name);
    }
    info.end();
}

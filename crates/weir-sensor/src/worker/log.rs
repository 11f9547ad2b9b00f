//! The lines of a worker's report: matches, transactions, flows, anomalies, as they will stand in the logs.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::chosen::{brief, is_wanted, only, smb_type};
use super::prevention::{Dropped, Fate};
use super::{FlowAnalysis, Line, PipelineState};
use crate::app::{self, App, Conversation, Protocol, Transaction};
use crate::buffer::Buffer;
use crate::config::{Policy, Record, Wants};
use crate::decode::Arp;
use crate::detect::{FlowState, Match, Ruleset};
use crate::event::Events;
use crate::flow::{Flow, Info, Reason};
use crate::output::dump::{self, DebugFacts, FlowCounts};
use crate::output::eve::{
    self, AlertFacts, Anomaly, AppNames, DropFacts, Effect, Ether, EveOptions, FlowFacts,
    FrameFacts, Head, Link, Marks, Origin, TcpFacts, Tunnel,
};
use crate::output::{Stored, What, fast, json};
use crate::packet::{Direction, Packet, Transport};
use crate::stream::{Session, State};

/// The name under which records of an application stand.
pub(super) fn record_name(app: App) -> &'static str {
    app::protocol(app).map_or(app.name(), Protocol::record)
}

pub(super) fn names(talk: Option<&Conversation>) -> AppNames {
    let Some(talk) = talk else {
        return AppNames::default();
    };
    let known = |app: App| (app != App::Unknown).then(|| app.name());
    let app = talk.app();
    // That one direction alone shows nothing is no news, but of HTTP.
    let side = |direction| {
        let side = talk.side(direction);
        known(side).filter(|_| side != app && (side != App::Failed || app == App::Http1))
    };
    AppNames {
        name: talk.named().map(App::name),
        to_server: side(Direction::ToServer),
        to_client: side(Direction::ToClient),
        before: talk.before().and_then(known),
    }
}

/// The record of a transaction as alerts show it, if that is not the whole: of DNS without the answers by type, of HTTP without lists of all header lines, and with its bodies if they are wanted.
fn for_alert(t: &Transaction, options: &EveOptions) -> Option<Map<String, Value>> {
    if t.app == App::Dns && t.record.contains_key("grouped") {
        let mut record = t.record.clone();
        record.remove("grouped");
        return Some(record);
    }
    let lists = ["request_headers", "response_headers"];
    let listed = lists.iter().any(|list| t.record.contains_key(*list));
    if t.app != App::Http1 || !(options.http_body || options.http_printable || listed) {
        return None;
    }
    let mut record = t.record.clone();
    for list in lists {
        record.remove(list);
    }
    if !(options.http_body || options.http_printable) {
        return Some(record);
    }
    for (buffer, direction, name) in [
        (
            Buffer::HttpRequestBody,
            Direction::ToServer,
            "http_request_body",
        ),
        (
            Buffer::HttpResponseBody,
            Direction::ToClient,
            "http_response_body",
        ),
    ] {
        let Some(body) = t.get(buffer, direction).next() else {
            continue;
        };
        let mut add = |name: String, write: fn(&mut Vec<u8>, &[u8])| {
            let mut text = Vec::new();
            write(&mut text, body);
            if let Ok(value) = serde_json::from_slice(&text) {
                record.insert(name, value);
            }
        };
        if options.http_body {
            add(name.to_owned(), json::base64);
        }
        if options.http_printable {
            add(format!("{name}_printable"), json::printable);
        }
    }
    Some(record)
}

/// Fields that `email` always has.
pub(super) const MAIL: [&str; 6] = ["status", "from", "to", "cc", "attachment", "url"];

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

fn facts(info: &Info, alerted: bool, talk: Option<&Conversation>) -> FlowFacts {
    FlowFacts {
        action: None,
        exception: None,
        bypass: None,
        error: None,
        transactions: talk.map(|t| t.transactions.count).filter(|n| *n > 0),
        client: (info.client, info.client_port),
        server: (info.server, info.server_port),
        packets: info.packets,
        bytes: info.bytes,
        start: info.start,
        end: info.last,
        state: info.state.name(),
        alerted,
        midstream: info.midstream,
    }
}

/// The head of a record about a flow, from one of its ends.
pub(super) fn flow_head<'a>(
    info: &'a Info,
    direction: Direction,
    time: u64,
    number: u64,
) -> Head<'a> {
    let (client, server) = (
        (info.client, info.client_port),
        (info.server, info.server_port),
    );
    let (from, to) = match direction {
        Direction::ToServer => (client, server),
        Direction::ToClient => (server, client),
    };
    Head {
        time,
        flow: info.id,
        number,
        interface: info.interface,
        vlan: &info.vlan[..usize::from(info.vlans.min(3))],
        addresses: Some((from.0, to.0)),
        ports: has_ports(info.protocol).then_some((from.1, to.1)),
        icmp: info.icmp,
        answer: None,
        spi: None,
        parent: 0,
        protocol: info.protocol,
        origin: None,
        marks: None,
        ether: None,
    }
}

/// Addresses of the link layer that a flow was seen with: those of the client's side, and of the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Macs([Vec<[u8; 6]>; 2]);

impl Macs {
    /// The most of each side.
    const MOST: usize = 8;

    pub(super) fn add(&mut self, way: Direction, ether: Ether) {
        let (client, server) = match way {
            Direction::ToServer => (ether.source, ether.destination),
            Direction::ToClient => (ether.destination, ether.source),
        };
        for (list, address) in self.0.iter_mut().zip([client, server]) {
            if list.len() < Self::MOST && !list.contains(&address) {
                list.push(address);
            }
        }
    }

    /// Those of a record about the flow in one direction.
    fn of(&self, way: Direction) -> [&[[u8; 6]]; 2] {
        let [client, server] = &self.0;
        match way {
            Direction::ToServer => [client, server],
            Direction::ToClient => [server, client],
        }
    }

    /// The first ones, as of a frame to the server.
    fn first(&self) -> Option<Ether> {
        let [client, server] = &self.0;
        Some(Ether {
            source: *client.first()?,
            destination: *server.first()?,
            kind: None,
        })
    }
}

/// An event's name as records have it: those of some protocols, and of recognition, are in capitals.
fn event_name<'a>(app: Option<App>, event: &'a str, room: &'a mut String) -> &'a str {
    match app.and_then(app::protocol).is_none_or(|row| row.loud) {
        true => {
            *room = event.to_ascii_uppercase();
            room
        }
        false => event,
    }
}

/// Which way a record about a transaction goes.
fn way_of(done: &Transaction, packet: Direction) -> Direction {
    match app::protocol(done.app) {
        Some(row) => (row.log.direction)(done, packet),
        None => Direction::ToServer,
    }
}

pub(super) fn packet_origin(packet: &Packet<'_>) -> Origin {
    match packet.carrier {
        Some(name) => Origin::Tunnel(name),
        None if packet.reassembled => Origin::Fragments,
        None => Origin::Wire,
    }
}

/// A packet as what carries others.
pub(super) fn outermost(packet: &Packet<'_>) -> Option<Tunnel> {
    let ip = packet.ip.as_ref()?;
    let head = packet_head(packet, 0);
    Some(Tunnel {
        addresses: (ip.source, ip.destination),
        ports: head.ports,
        protocol: ip.protocol,
        depth: 0,
        number: packet.number,
        origin: packet_origin(packet),
    })
}

/// Link type of a packet's first header: of what is carried raw IP, unless it is Ethernet; of raw packets that were put together, IP of their version.
pub(crate) fn packet_link(packet: &Packet<'_>, frame: u16) -> u16 {
    const ETHERNET: u16 = 1;
    const RAW: u16 = 12;
    let at = packet.ip.as_ref().map_or(0, |ip| ip.header.start);
    match packet.depth {
        0 if packet.reassembled && at == 0 => {
            let v4 = packet.ip.as_ref().is_none_or(|ip| ip.source.is_ipv4());
            if v4 { 228 } else { 229 }
        }
        0 => frame,
        _ if at < 14 => RAW,
        _ => ETHERNET,
    }
}

/// The payload that alerts show: of protocols whose header is not known there is none.
fn shown<'a>(packet: &'a Packet<'_>) -> &'a [u8] {
    let known = !matches!(packet.transport, Transport::None)
        || packet.ip.as_ref().is_some_and(|ip| ip.protocol == 50);
    if known { packet.payload() } else { &[] }
}

pub(crate) fn packet_head<'a>(packet: &'a Packet<'_>, flow: u64) -> Head<'a> {
    let icmp = match packet.transport {
        Transport::Icmp { kind, code, .. } => Some((kind, code)),
        _ => None,
    };
    let has_transport = matches!(
        packet.transport,
        Transport::Tcp(_) | Transport::Udp { .. } | Transport::Sctp { .. }
    );
    Head {
        time: packet.time,
        flow,
        number: packet.number,
        interface: packet.interface,
        vlan: &packet.vlan[..usize::from(packet.vlans.min(3))],
        addresses: packet.ip.as_ref().map(|ip| (ip.source, ip.destination)),
        ports: has_transport.then(|| packet.ports()),
        icmp,
        answer: None,
        spi: None,
        parent: 0,
        protocol: packet.ip.as_ref().map_or(0, |ip| ip.protocol),
        origin: Some(packet_origin(packet)),
        marks: None,
        ether: None,
    }
}

/// Names and values that rules have captured.
fn named(list: &[(Arc<str>, Vec<u8>)]) -> Vec<(&str, &[u8])> {
    list.iter()
        .map(|(name, value)| (&**name, value.as_slice()))
        .collect()
}

/// What the rule of a match has captured for its alert; `true`: it is JSON.
fn context<'a>(state: &'a FlowState, one: &Match) -> Vec<(&'a str, &'a [u8], bool)> {
    let Some(said) = &state.said else {
        return Vec::new();
    };
    let (packet, values) = &said.alerts;
    let own = values
        .iter()
        .filter(|(rule, ..)| *packet == one.packet && *rule == one.rule);
    own.map(|(_, (name, value), json)| (&**name, value.as_slice(), *json))
        .collect()
}

impl PipelineState {
    /// What rules have set in a flow, if records say so.
    fn marks<'a>(&self, ruleset: &'a Ruleset, state: &'a FlowState) -> Option<Marks<'a>> {
        let said = self.logs.options.marks && !self.logs.eve.is_empty() && state.is_marked();
        said.then(|| {
            let (bits, counters) = ruleset.marks(state);
            let (captured, packet) = state.said.as_ref().map_or((&[][..], &[][..]), |said| {
                let (number, values) = &said.packet;
                let now = *number == self.number;
                (&said.flow, if now { values } else { &[] })
            });
            Marks {
                bits,
                counters,
                captured: named(captured),
                packet: named(packet),
            }
        })
    }

    /// Addresses of the link layer of a record about one direction of a flow: of the packet that is looked at, or the flow's first ones where there is none.
    pub(super) fn ether(&self, way: Direction, first: Option<Ether>) -> Option<Link<'static>> {
        let (ether, of) = match self.origin {
            Origin::FlowEnd | Origin::Flush => (first?, Direction::ToServer),
            _ => (self.ether?, self.way),
        };
        Some(Link::Frame(if way == of {
            ether
        } else {
            ether.reversed()
        }))
    }

    pub(super) fn line(
        &mut self,
        flow: u64,
        record: Record,
        matched: Option<Match>,
        eve: std::ops::Range<usize>,
        fast: std::ops::Range<usize>,
    ) {
        let flow = if self.phase == 1 { 0 } else { flow };
        self.lines.push(Line {
            number: self.number,
            phase: self.phase,
            flow,
            time: self.time,
            record,
            matched,
            decided: false,
            scripted: None,
            eve,
            fast,
            debug: 0..0,
        });
    }

    /// The client behind a proxy: of the transaction of an alert, or the last one that names one.
    fn client(&self, talk: &Conversation, found: Option<&Transaction>) -> Option<IpAddr> {
        let forwarded = self.logs.options.forwarded.as_ref()?;
        let of = |t: &Transaction| {
            let mut headers = t.get(Buffer::HttpHeaderRaw, Direction::ToServer);
            headers.find_map(|headers| forwarded.client(headers))
        };
        match found {
            Some(one) => of(one),
            None => talk.transactions.live.iter().rev().find_map(of),
        }
    }

    /// Takes the matches of what was inspected, with their lines.
    pub(super) fn alerts(
        &mut self,
        packet: Option<&Packet<'_>>,
        of: Option<(&Info, &mut FlowAnalysis)>,
    ) {
        if self.detector.matches().is_empty() {
            return;
        }
        let mut matches = self.detector.matches().to_vec();
        // Of more than that the last ones go.
        let mut left = self.alerts;
        let before = matches.len();
        matches.retain(|one| {
            let rule = self.engine.ruleset.rule(one.rule);
            let counts = rule.is_told();
            let fits = !counts || left > 0;
            left -= usize::from(counts && fits);
            self.prevention.discarded += u64::from(!fits && rule.firewall.is_some());
            fits
        });
        self.counts.beyond += (before - matches.len()) as u64;
        let passed = self.detector.has_passed();
        self.detector.clear();
        let (info, mut extra) = of.unzip();
        let ruleset = Arc::clone(&self.engine.ruleset);
        let state = extra
            .as_ref()
            .map(|e| e.state.clone())
            .filter(FlowState::is_marked);
        let marks = state.as_ref().and_then(|s| self.marks(&ruleset, s));
        let parent = extra.as_ref().map_or(0, |e| e.parent);
        let first = extra.as_ref().and_then(|e| e.macs.as_ref()?.first());
        let inline = self.prevention.is_inline();
        for one in matches {
            // Where packets are dropped, what reaches over flows is decided now.
            let (decided, action) = match inline {
                true => {
                    let standing = extra.as_mut().map(|e| &mut e.standing);
                    (true, self.prevention.decide(&self.engine, &one, standing))
                }
                false => (false, None),
            };
            let rule = self.engine.ruleset.rule(one.rule);
            if inline && action.is_none() && rule.is_told() {
                continue;
            }
            if let Some(extra) = &mut extra {
                extra.store(rule.store, &one);
                if rule.certificates
                    && self.logs.certificates.is_some()
                    && let Some(chain) = extra.certificates(&one)
                {
                    let key = self.key(info.map_or(0, |i| i.number));
                    let what = What::Certificates(chain);
                    self.files.push(Stored { key, what });
                }
            }
            let effect = Effect::of(action.unwrap_or(rule.action), inline);
            let silent = !rule.is_told();
            if !silent && let Some(extra) = &mut extra {
                extra.alerted = true;
            }
            let (start, mut middle) = (self.bytes.len(), self.bytes.len());
            let mut end = middle;
            if !silent {
                let text = &self.engine.texts[one.rule as usize];
                let mut head = match (packet, info) {
                    // Who sent what matched, which need not be who sent the packet that completed it.
                    (_, Some(info)) => {
                        let mut head = flow_head(
                            info,
                            one.direction.unwrap_or(Direction::ToServer),
                            one.time,
                            if packet.is_some_and(|p| packet_origin(p) != Origin::Fragments) {
                                one.packet
                            } else {
                                0
                            },
                        );
                        head.origin = Some(packet.map_or(self.origin, packet_origin));
                        head.marks = marks.as_ref();
                        head.ether =
                            self.ether(one.direction.unwrap_or(Direction::ToServer), first);
                        head.parent = parent;
                        head.addresses = Some((one.source.0, one.destination.0));
                        head.ports = head.ports.map(|_| (one.source.1, one.destination.1));
                        if let Some(Transport::Icmp { kind, code, .. }) =
                            packet.map(|p| &p.transport)
                        {
                            head.icmp = Some((*kind, *code));
                            head.ports = None;
                            head.protocol = one.protocol;
                        }
                        head
                    }
                    (Some(packet), None) => {
                        let mut head = packet_head(packet, 0);
                        head.ether = self.ether.map(Link::Frame);
                        head
                    }
                    (None, None) => continue,
                };
                if self.logs.kinds.alert && !self.logs.eve.is_empty() {
                    let talk = extra.as_ref().and_then(|e| e.talk.as_ref());
                    let flow = info.map(|info| facts(info, true, talk));
                    let tcp = one.protocol == 6;
                    let mut found = one
                        .transaction
                        .and_then(|id| talk?.transactions.live.iter().find(|t| t.id == id));
                    // A datagram of the rule's own protocol is a message of it, whether or not the rule looks into messages.
                    if found.is_none() && one.transaction.is_none() && !tcp && !rule.apps.is_empty()
                    {
                        found = talk.and_then(|t| t.transactions.live.iter().find(|t| !t.logged));
                    }
                    let guesses = self.guesses;
                    let guessed =
                        tcp && found.is_none() && one.transaction.is_none() && guesses > 0;
                    if guessed {
                        let way = one.direction.unwrap_or(Direction::ToServer);
                        let live = talk.into_iter().flat_map(|t| &t.transactions.live);
                        let mut open = live.filter(|t| !t.is_message() || way_of(t, way) == way);
                        found = match (open.next(), open.next()) {
                            (Some(only), None) if only.guessed < guesses => Some(only),
                            _ => None,
                        };
                    }
                    let guessed = found.filter(|_| guessed).map(|t| t.id);
                    // What a stream said is not what this packet says.
                    let streamed = tcp && (one.stream || one.transaction.is_some());
                    let said = extra.as_ref().zip(one.direction).filter(|_| streamed);
                    let (payload, length) = match said {
                        Some((e, d)) => {
                            let (bytes, length) = &e.said[d.index()];
                            (bytes.as_slice(), *length)
                        }
                        None => {
                            let bytes = packet.map_or(&[][..], shown);
                            (bytes, bytes.len())
                        }
                    };
                    let mut forwarded = talk.and_then(|t| self.client(t, found));
                    if self
                        .logs
                        .options
                        .forwarded
                        .as_ref()
                        .is_some_and(|f| f.overwrite)
                        && let Some(client) = forwarded.take()
                        && let Some((source, destination)) = &mut head.addresses
                    {
                        match one.direction {
                            Some(Direction::ToClient) => *destination = client,
                            _ => *source = client,
                        }
                    }
                    let with_bodies = found.and_then(|t| for_alert(t, &self.logs.options));
                    let record = found.map(|t| {
                        (
                            record_name(t.app),
                            with_bodies.as_ref().unwrap_or(&t.record),
                        )
                    });
                    let facts = AlertFacts {
                        effect,
                        inline,
                        forwarded,
                        transaction: found.map(|t| t.number).or(one.transaction),
                        passed: inline && passed,
                        guessed: guessed.is_some(),
                        to_server: info.and(one.direction).map(|d| d == Direction::ToServer),
                        app: names(talk),
                        record,
                        context: state.as_ref().map_or(Vec::new(), |s| context(s, &one)),
                        beside: found.map(|t| &t.beside),
                        frame: (found.zip(one.frame))
                            .and_then(|(t, n)| FrameFacts::of(t, n as usize)),
                        files: found.map_or(&[], |t| match one.file {
                            Some(n) => t.files.get(n as usize..=n as usize).unwrap_or_default(),
                            None => &t.files,
                        }),
                        tunnel: packet.and_then(|p| {
                            let outer = self.outer.as_ref()?;
                            Some(Tunnel {
                                depth: p.depth,
                                ..*outer
                            })
                        }),
                        link: packet.map_or(0, |p| packet_link(p, self.link)),
                        flow: flow.as_ref(),
                        payload,
                        length,
                        packet: packet.map_or(&[][..], |p| p.data),
                        stream: streamed,
                    };
                    eve::alert(&mut self.bytes, &head, text, &facts, &self.logs.options);
                    if let Some(id) = guessed
                        && let Some(talk) = extra.as_mut().and_then(|e| e.talk.as_mut())
                        && let Some(t) = talk.transactions.find(id)
                    {
                        t.guessed += 1;
                    }
                }
                middle = self.bytes.len();
                if self.logs.fast.is_some() {
                    fast::alert(&mut self.bytes, &head, text, effect);
                }
                end = self.bytes.len();
                if self.logs.debug.is_some() {
                    let of = info.zip(extra.as_deref());
                    self.debug_alert(&head, packet, of, &one);
                }
            }
            let debug = end..self.bytes.len();
            let view = (!silent && self.logs.calls(Wants::Alerts))
                .then(|| self.alert_view(packet, info.zip(extra.as_deref()), &one));
            self.line(
                info.map_or(0, |i| i.number),
                Record::Alert,
                Some(one),
                start..middle,
                middle..end,
            );
            if let Some(line) = self.lines.last_mut() {
                line.decided = decided;
                line.debug = debug;
                line.scripted = view.map(|view| (Wants::Alerts, view));
            }
        }
    }

    /// The block of alert-debug of an alert.
    fn debug_alert(
        &mut self,
        head: &Head<'_>,
        packet: Option<&Packet<'_>>,
        of: Option<(&Info, &FlowAnalysis)>,
        one: &Match,
    ) {
        let streamed = one.protocol == 6 && (one.stream || one.transaction.is_some());
        let (info, extra) = of.unzip();
        let said = extra.zip(one.direction).filter(|_| streamed);
        let talk = extra.and_then(|e| e.talk.as_ref());
        let facts = DebugFacts {
            packet,
            to_server: info.and(one.direction).map(|d| d == Direction::ToServer),
            flow: info.map(|info| FlowCounts {
                start: info.start,
                packets: info.packets,
                bytes: info.bytes,
                app: names(talk).name.unwrap_or("unknown"),
            }),
            transaction: one.transaction,
            stream: one.stream,
            payload: match said {
                Some((e, d)) => &e.said[d.index()].0,
                None => packet.map_or(&[], shown),
            },
        };
        let rule = self.engine.ruleset.rule(one.rule);
        dump::alert(&mut self.bytes, head, rule, &facts);
    }

    /// Records of transactions that are done; they are dropped.
    pub(super) fn log_transactions(&mut self, info: &Info, extra: &mut FlowAnalysis) {
        let FlowAnalysis { talk, state, .. } = extra;
        let Some(talk) = talk else { return };
        let ruleset = Arc::clone(&self.engine.ruleset);
        let marks = self.marks(&ruleset, state);
        let first = extra.macs.as_ref().and_then(|m| m.first());
        let app = talk.app().name();
        let events = &talk.transactions.events;
        if extra.logged_events < events.len() {
            if self.logs.kinds.anomaly_app && !self.logs.eve.is_empty() {
                for event in &events[extra.logged_events..] {
                    let start = self.bytes.len();
                    let mut head = flow_head(info, self.way, self.time, self.counted());
                    head.origin = Some(self.origin);
                    head.marks = marks.as_ref();
                    head.ether = self.ether(self.way, first);
                    head.parent = extra.parent;
                    let mut room = String::new();
                    eve::anomaly(
                        &mut self.bytes,
                        &head,
                        &Anomaly {
                            kind: "applayer",
                            event: event_name(None, event, &mut room),
                            app: Some(app),
                            layer: Some("proto_detect"),
                            transaction: None,
                            frame: None,
                        },
                        &self.logs.options,
                    );
                    let end = self.bytes.len();
                    self.lines.push(self.plain(info.number, start, end));
                }
            }
            extra.logged_events = events.len();
        }
        if self.logs.kinds.takes(Record::Frame) && !self.logs.eve.is_empty() {
            let flow = (marks.as_ref(), first, extra.parent);
            self.log_frames(info, talk, flow);
        }
        let live = &mut talk.transactions.live;
        let mut at = 0;
        while let Some(done) = live.get_mut(at) {
            if !(done.done || done.ready) {
                if app::protocol(done.app).is_none_or(|row| row.log.in_order) {
                    break;
                }
                at += 1;
                continue;
            }
            if !std::mem::replace(&mut done.logged, true) {
                *self
                    .counts
                    .transactions
                    .entry((done.app, info.protocol == 6))
                    .or_default() += 1;
                let unlogged = state
                    .said
                    .as_ref()
                    .is_some_and(|s| s.unlogged.contains(&done.id));
                if !unlogged && !self.logs.scripts.is_empty() {
                    self.script_transaction(info, extra.alerted, done);
                }
                if !self.logs.eve.is_empty() && !unlogged {
                    let flow = (marks.as_ref(), first, extra.parent);
                    self.log_transaction(info, done, flow);
                }
            }
            if !done.done {
                at += 1;
                continue;
            }
            for d in [0, 1] {
                done.stores[d] |= extra.stores[d].is_some_and(|from| done.id >= from);
            }
            if self.logs.store.is_some()
                || self.logs.calls(Wants::Files)
                || self.logs.kinds.files && !self.logs.eve.is_empty()
            {
                let flow = (marks.as_ref(), first, extra.parent);
                self.log_files(info, done, flow);
            }
            let waits = (0..2).any(|d| done.complete[d] && !done.inspected[d]);
            if done.kept == [false; 2] && !waits {
                let over = live.remove(at);
                if self.engine.scripted {
                    extra.last = over.map(Box::new);
                }
            } else {
                at += 1;
            }
        }
        self.counts.overflowed += std::mem::take(&mut talk.transactions.overflowed);
    }

    /// Number of the frame that records are about, 0 if it is none.
    pub(super) fn counted(&self) -> u64 {
        if matches!(
            self.origin,
            Origin::FlowEnd | Origin::Flush | Origin::Fragments
        ) {
            0
        } else {
            self.number
        }
    }

    fn plain(&self, flow: u64, start: usize, end: usize) -> Line {
        let flow = if self.phase == 1 { 0 } else { flow };
        Line {
            number: self.number,
            phase: self.phase,
            flow,
            time: self.time,
            record: Record::Application,
            matched: None,
            decided: false,
            scripted: None,
            eve: start..end,
            fast: 0..0,
            debug: 0..0,
        }
    }

    fn log_transaction(
        &mut self,
        info: &Info,
        done: &mut Transaction,
        (marks, first, parent): (Option<&Marks<'_>>, Option<Ether>, u64),
    ) {
        let kinds = &self.logs.kinds;
        let row = app::protocol(done.app);
        // What HTTP/2 carries of DNS is told with it.
        let carried = done.app == App::Doh2 && done.beside.contains_key("dns");
        let name = record_name(done.app);
        let kind = if carried { "dns" } else { name };
        let listed = match row {
            // Streams of the connection that carry none are HTTP/2.
            Some(row) if done.app == App::Doh2 && !carried && kinds.has_app("http2") => {
                app::protocol(App::Http2).unwrap_or(row).chosen()
            }
            Some(row) => row.chosen(),
            None => name,
        };
        let number = self.counted();
        let ethers = [Direction::ToServer, Direction::ToClient].map(|way| self.ether(way, first));
        let head = |way: Direction| {
            let mut head = flow_head(info, way, self.time, number);
            head.origin = Some(self.origin);
            head.marks = marks;
            head.ether = ethers[way.index()];
            head.parent = parent;
            head
        };
        let start = self.bytes.len();
        let wanted = match done.app {
            App::Dns => is_wanted(&kinds.dns, &done.record),
            App::Tls => {
                let resumed = done.record.contains_key("session_resumed");
                crate::app::tls::is_told(done) && (kinds.tls_resumed || !resumed)
            }
            App::Nfs => crate::app::nfs::is_told(done),
            App::Smb => (kinds.smb.as_ref())
                .is_none_or(|types| types.iter().any(|t| t == smb_type(&done.record))),
            // Who does not ask for all of them is told of leases.
            App::Dhcp => {
                let kind = done.record.get("dhcp_type").and_then(Value::as_str);
                kinds.said.dhcp_all || kind == Some("ack")
            }
            _ => true,
        };
        if done.app == App::Dns && kinds.has_app(name) && wanted {
            for (key, shown) in [
                ("answers", kinds.dns.detailed),
                ("authorities", kinds.dns.detailed),
                ("additionals", kinds.dns.detailed),
                ("grouped", kinds.dns.grouped),
            ] {
                if !shown {
                    done.record.remove(key);
                }
            }
        }
        // More may come for alerts: what is left out is left out of a copy.
        let chosen = match (done.app, &kinds.tls) {
            (App::Tls, Some(fields)) => {
                let mut record = done.record.clone();
                only(&mut record, fields);
                Some(record)
            }
            (App::Http1, _) if !kinds.http_extended => {
                let mut record = done.record.clone();
                brief(&mut record);
                Some(record)
            }
            _ => None,
        };
        let record = chosen.as_ref().unwrap_or(&done.record);
        if done.app == App::Smtp
            && kinds.said.mail
            && let Some(Value::Object(email)) = done.beside.get_mut("email")
        {
            email.retain(|name, _| {
                MAIL.contains(&name.as_str()) || kinds.mail.iter().any(|f| f == name)
            });
        }
        let mut ends = Vec::new();
        if kinds.has_app(listed) && wanted && !record.is_empty() {
            // Version 2 of DNS tells of answers as of questions: from the client.
            let way = match done.app {
                App::Dns if kinds.dns.older => Direction::ToServer,
                _ => way_of(done, self.way),
            };
            let head = head(way);
            // Records of some say which transaction it was in their own part, or not at all.
            let numbered = row.is_none_or(|row| row.log.numbered);
            let number = numbered.then_some(done.number);
            let older = match done.app {
                App::Dns if kinds.dns.older => crate::app::dns::older(&done.record),
                _ => Vec::new(),
            };
            let mut write = |record: &Map<String, Value>| {
                let inside = (record, &done.beside);
                let options = &self.logs.options;
                let names = (kind, name);
                eve::transaction(&mut self.bytes, &head, names, number, inside, options);
                ends.push((Record::App(listed), self.bytes.len()));
            };
            if done.app == App::Dns && kinds.dns.older {
                older.iter().for_each(&mut write);
            } else {
                write(record);
            }
        }
        if kinds.anomaly_app {
            for event in &done.events {
                let mut room = String::new();
                eve::anomaly(
                    &mut self.bytes,
                    &head(self.way),
                    &Anomaly {
                        kind: "applayer",
                        event: event_name(Some(done.app), event, &mut room),
                        app: Some(done.app.name()),
                        layer: Some("proto_parser"),
                        transaction: Some(done.number),
                        frame: None,
                    },
                    &self.logs.options,
                );
                ends.push((Record::Application, self.bytes.len()));
            }
        }
        let mut from = start;
        for (record, end) in ends {
            if end > from {
                self.line(info.number, record, None, from..end, 0..0);
                from = end;
            }
        }
    }

    /// Events of decoding or of a stream.
    pub(super) fn log_events(
        &mut self,
        packet: &Packet<'_>,
        events: Events,
        flow: Option<&Flow<FlowAnalysis>>,
    ) {
        if self.logs.eve.is_empty() {
            return;
        }
        let ruleset = Arc::clone(&self.engine.ruleset);
        let marks = flow.and_then(|f| self.marks(&ruleset, &f.extra.state));
        let mut head = packet_head(packet, flow.map_or(0, |f| f.info.id));
        head.marks = marks.as_ref();
        head.parent = flow.map_or(0, |f| f.extra.parent);
        head.ether = self.ether.map(Link::Frame);
        let shows = self.logs.options.packet_header;
        let frame = shows.then(|| (packet.data, packet_link(packet, self.link)));
        for event in events.iter() {
            let start = self.bytes.len();
            let (kind, prefix) = if event.is_stream() {
                ("stream", "stream.")
            } else {
                ("decode", "decoder.")
            };
            let name = format!("{prefix}{}", event.name());
            let what = Anomaly {
                kind,
                event: &name,
                app: None,
                layer: None,
                transaction: None,
                frame,
            };
            eve::anomaly(&mut self.bytes, &head, &what, &self.logs.options);
            let end = self.bytes.len();
            let record = match event.is_stream() {
                true => Record::Stream,
                false => Record::Decode,
            };
            let number = flow.map_or(0, |f| f.info.number);
            self.line(number, record, None, start..end, 0..0);
        }
    }

    /// The record of a packet of ARP.
    pub(super) fn log_arp(&mut self, packet: &Packet<'_>) {
        let Ok(arp) = Arp::read(packet.payload()) else {
            return;
        };
        let start = self.bytes.len();
        let mut head = packet_head(packet, 0);
        head.ether = self.ether.map(Link::Frame);
        eve::arp(&mut self.bytes, &head, &arp, &self.logs.options);
        let end = self.bytes.len();
        self.line(0, Record::Arp, None, start..end, 0..0);
    }

    /// The record of a dropped packet.
    pub(super) fn log_drop(
        &mut self,
        packet: &Packet<'_>,
        dropped: Dropped,
        of: Option<(&Flow<FlowAnalysis>, Direction)>,
    ) {
        if self.logs.eve.is_empty() {
            return;
        }
        let start = self.bytes.len();
        let (flow, direction) = of.unzip();
        let mut head = packet_head(packet, flow.map_or(0, |f| f.info.id));
        head.parent = flow.map_or(0, |f| f.extra.parent);
        let text = dropped
            .rule
            .and_then(|rule| self.engine.texts.get(rule as usize));
        let facts = DropFacts {
            packet,
            reason: dropped.reason.text(),
            alert: text.map(|text| &**text),
            to_server: direction.map(|d| d == Direction::ToServer),
        };
        eve::dropped(&mut self.bytes, &head, &facts, &self.logs.options);
        let end = self.bytes.len();
        let number = flow.map_or(0, |f| f.info.number);
        self.line(number, Record::Drop, None, start..end, 0..0);
    }

    /// The record of a flow that is over.
    pub(super) fn log_flow(
        &mut self,
        info: &Info,
        extra: &FlowAnalysis,
        session: Option<&Session>,
        reason: Reason,
    ) {
        if self.logs.eve.is_empty() {
            return;
        }
        // Not of one packet: it has no number.
        let mut head = flow_head(info, Direction::ToServer, self.time, 0);
        let ruleset = Arc::clone(&self.engine.ruleset);
        let mut marks = self.marks(&ruleset, &extra.state);
        if let Some(marks) = &mut marks {
            marks.packet.clear();
        }
        head.marks = marks.as_ref();
        head.parent = extra.parent;
        (head.answer, head.spi) = (info.answer, info.spi);
        let macs = extra.macs.as_deref();
        head.ether = macs.map(|m| Link::Flow(m.of(Direction::ToServer)));
        let tcp = session.map(|s| TcpFacts {
            flags: s.flags(),
            state: (s.state() != State::None).then(|| s.state().name()),
            gaps: extra.gaps,
            regions: [Direction::ToServer, Direction::ToClient].map(|d| s.most_regions(d)),
        });
        let mut facts = facts(info, extra.alerted, extra.talk.as_ref());
        facts.exception = extra.standing.exception.map(Policy::name);
        facts.error = extra.standing.error.map(Policy::name);
        let passed = || extra.state.is_passed().then_some("pass");
        facts.action = extra.standing.action().or_else(passed);
        if extra.standing.fate == Fate::Bypassed {
            facts.state = "bypassed";
            facts.bypass = Some(match extra.kept_away {
                true => "capture",
                false => "local",
            });
        }
        let app = names(extra.talk.as_ref());
        if self.logs.kinds.netflow {
            for direction in [Direction::ToServer, Direction::ToClient] {
                let d = direction.index();
                if info.packets[d] == 0 {
                    continue;
                }
                let start = self.bytes.len();
                let mut one = flow_head(info, direction, self.time, 0);
                (one.marks, one.parent, one.spi) = (head.marks, head.parent, info.spi);
                one.ether = macs.map(|m| Link::Flow(m.of(direction)));
                if direction == Direction::ToClient {
                    one.icmp = info.answer;
                }
                eve::netflow(
                    &mut self.bytes,
                    &one,
                    (&facts, info.ttl[d]),
                    tcp.as_ref()
                        .filter(|t| t.state.is_some())
                        .map_or(0, |t| t.flags[d]),
                    &app,
                    d,
                    &self.logs.options,
                );
                let end = self.bytes.len();
                self.line(info.number, Record::Netflow, None, start..end, 0..0);
            }
        }
        if self.logs.kinds.flow {
            let start = self.bytes.len();
            eve::flow(
                &mut self.bytes,
                &head,
                &facts,
                tcp.as_ref(),
                &app,
                reason.name(),
                &self.logs.options,
            );
            let end = self.bytes.len();
            self.line(info.number, Record::Flow, None, start..end, 0..0);
        }
    }
}

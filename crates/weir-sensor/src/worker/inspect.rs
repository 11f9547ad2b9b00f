//! What a pipeline does with a packet of a flow: parsers, rules and records are asked in turn; and what the stream and the end of a flow bring.

use crate::app::{App, Conversation, Expected, Ports};
use crate::config::{Record, Wants};
use crate::detect::{FlowState, FlowView, Moment, PacketFlow};
use crate::event::Event;
use crate::flow::{self, Flow, Info, Reason, Tracked};
use crate::output::dump;
use crate::output::eve::Origin;
use crate::packet::{Direction, Packet, Transport};
use crate::stream::End;

use super::prevention::{Arrival, Fate};
use super::{
    ANNOUNCED_FOR, Announced, ETHERNET, FlowAnalysis, MOST_ANNOUNCED, PipelineState, answer, log,
};

impl PipelineState {
    /// Asks rules of what a flow's transactions have of bodies until now.
    pub(super) fn look(&mut self, flow: &mut Flow<FlowAnalysis>) {
        if !std::mem::take(&mut flow.extra.unlooked) {
            return;
        }
        let grown = |t: &crate::app::Transaction| {
            [Direction::ToServer, Direction::ToClient]
                .iter()
                .any(|d| !t.complete[d.index()] && t.has_grown(*d))
        };
        let talk = flow.extra.talk.as_ref();
        if !talk.is_some_and(|t| t.transactions.live.iter().any(grown)) {
            return;
        }
        self.detector.turn();
        self.renew(&mut flow.extra);
        (self.way, self.origin) = (Direction::ToServer, Origin::Flush);
        let view = self.view(flow, flow.info.state != flow::State::New);
        let moment = Moment {
            time: self.time,
            number: self.number,
            packet: None,
        };
        let Flow { info, extra, .. } = flow;
        if let Some(talk) = &mut extra.talk {
            for transaction in &mut talk.transactions.live {
                (self.detector).grown(&moment, &view, &mut extra.state, transaction);
            }
        }
        self.alerts(None, Some((info, extra)));
        self.detector.turn();
    }

    pub(super) fn at(&mut self, time: u64, number: u64, phase: u8) {
        (self.time, self.number, self.phase) = (time, number, phase);
    }

    /// Whether a packet of a flow is inspected.
    pub(super) fn arrive(&mut self, packet: &Packet<'_>, flow: &mut Flow<FlowAnalysis>) -> bool {
        if flow.extra.standing.fate == Fate::Bypassed {
            self.count_let_go(packet, &flow.extra);
        }
        let session = flow.tcp.as_ref();
        let session = session.filter(|_| packet.tcp().is_some() && packet.quoted.is_none());
        let arrival = Arrival {
            unseen: session.is_some_and(|s| s.state() == crate::stream::State::None),
            taken_up: session.is_some_and(crate::stream::Session::is_midstream),
            passed: flow.extra.state.is_passed(),
            failed: std::mem::take(&mut flow.extra.failed),
        };
        let inspected = self.prevention.arrive(&mut flow.extra.standing, arrival);
        flow.extra.state.passed |= flow.extra.standing.fate == Fate::Passed;
        inspected
    }

    /// Alerts about a packet that was dropped before its stream took it.
    pub(super) fn alert(&mut self, packet: &Packet<'_>, flow: &mut Flow<FlowAnalysis>) {
        self.origin = log::packet_origin(packet);
        self.alerts(Some(packet), Some((&flow.info, &mut flow.extra)));
    }

    /// A packet is decided.
    pub(super) fn depart(
        &mut self,
        packet: &Packet<'_>,
        of: Option<(&mut Flow<FlowAnalysis>, Direction)>,
    ) {
        let mut of = of;
        if self.prevention.is_rejected()
            && self.link == ETHERNET
            && let Some(answers) = &mut self.answers
        {
            answers.extend(answer::to(packet, self.place));
        }
        let standing = of
            .as_mut()
            .map(|(flow, way)| (&mut flow.extra.standing, *way));
        let wanted = self.logs.kinds.drop.as_ref();
        if let Some(dropped) = self.prevention.depart(standing, wanted) {
            let of = of.map(|(flow, way)| (&*flow, way));
            self.log_drop(packet, dropped, of);
        }
    }

    /// A packet of a flow, after its stream has taken it.
    pub(super) fn inspect(
        &mut self,
        packet: &Packet<'_>,
        tracked: &Tracked,
        flow: &mut Flow<FlowAnalysis>,
    ) {
        let direction = tracked.direction;
        self.way = direction;
        self.origin = log::packet_origin(packet);
        if self.logs.kinds.anomaly_stream && !tracked.events.is_empty() {
            self.log_events(packet, tracked.events, Some(flow));
        }
        if let Some(ether) = self.ether {
            let macs = flow.extra.macs.get_or_insert_default();
            macs.add(direction, ether);
        }
        if self.logs.calls(Wants::Packets) {
            self.script_packet(packet, Some((&flow.info, &flow.extra)));
        }
        let payload = packet.payload();
        // Errors about a flow are no part of its conversation.
        if let Transport::Udp { .. } = packet.transport
            && !payload.is_empty()
            && packet.quoted.is_none()
        {
            self.talk(&flow.info, &mut flow.extra, direction, payload);
            if std::mem::take(&mut flow.extra.failed)
                && !self.prevention.fail(&mut flow.extra.standing)
            {
                return;
            }
        }
        let offset = stream_offset(packet, flow, direction);
        self.renew(&mut flow.extra);
        // The bare acknowledgement that ends a handshake still belongs to it, for rules.
        let bare = tracked.completes && packet.tcp().is_some() && packet.payload().is_empty();
        let mut view = self.view(flow, tracked.established && !bare);
        let Flow {
            info,
            extra,
            tcp: session,
        } = flow;
        let mut events = packet.events;
        events.extend(tracked.events);
        if let Some(talk) = &extra.talk {
            if talk.app() == App::Smb
                && let Some(session) = session
            {
                session.follow(self.smb_depth);
            }
            let all = &talk.transactions.events;
            let new = all.get(extra.told_events..).unwrap_or_default();
            for event in new.iter().filter_map(|name| Event::stream(name)) {
                events.insert(event);
            }
            extra.told_events = all.len();
        }
        if !self.wall_flow(packet, events, (&view, offset), extra, direction) {
            self.alerts(Some(packet), Some((info, extra)));
            return;
        }
        let in_flow = PacketFlow {
            view: &view,
            state: &mut extra.state,
            direction,
            offset,
            transaction: (self.engine.scripted)
                .then(|| {
                    let talk = extra.talk.as_ref();
                    let live = talk.and_then(|t| t.transactions.live.back());
                    live.or(extra.last.as_deref())
                })
                .flatten(),
        };
        self.detector.packet(packet, events, Some(in_flow));
        self.detector.before_stream(&extra.state);
        let established = view.established;
        view.established = info.state != flow::State::New;
        let moment = Moment {
            time: packet.time,
            number: packet.number,
            packet: Some(packet),
        };
        // What an end of a session has said is inspected with its next packet after it was acknowledged: then alerts name a packet of the right direction.
        let waits = session
            .as_ref()
            .is_some_and(|s| s.state() != crate::stream::State::Closed);
        let sides = match waits {
            true => &[direction][..],
            false => &[Direction::ToServer, Direction::ToClient],
        };
        let mut over = [false; 2];
        for side in sides.iter().copied() {
            // A message that is whole is inspected together with the stream that it is in.
            let d = side.index();
            let whole = extra.changed[d]
                && extra.talk.as_ref().is_some_and(|talk| {
                    let live = &talk.transactions.live;
                    live.iter().any(|t| t.complete[d] && !t.inspected[d])
                });
            let answered = std::mem::take(&mut extra.answered[d]);
            let all = whole || answered || self.inline;
            self.pieces(&moment, &view, extra, side, all);
            over[d] = (whole || answered)
                && (extra.talk.as_ref()).is_some_and(|talk| talk.is_between(side));
            if over[d] {
                extra.windows[d].forget();
            }
        }
        let now = std::mem::replace(&mut view.established, established);
        let in_flow = PacketFlow {
            view: &view,
            state: &mut extra.state,
            direction,
            offset,
            transaction: None,
        };
        self.detector.after_stream(packet, events, in_flow);
        view.established = now;
        self.transactions(&moment, &view, extra, sides, false);
        for side in sides.iter().copied().filter(|s| over[s.index()]) {
            let open = |t: &crate::app::Transaction| t.inspected != [true; 2];
            let talk = extra.talk.as_ref();
            let all = !talk.is_some_and(|t| t.transactions.live.iter().any(open));
            self.detector.message_over(&mut extra.state, side, all);
        }
        self.alerts(Some(packet), Some((info, extra)));
        self.log_transactions(info, extra);
    }

    pub(super) fn view(&self, flow: &Flow<FlowAnalysis>, established: bool) -> FlowView {
        let info = &flow.info;
        let stream = flow.tcp.as_ref().map_or([0; 2], |s| {
            [s.seen(Direction::ToServer), s.seen(Direction::ToClient)]
        });
        let talk = flow.extra.talk.as_ref();
        FlowView {
            id: info.id,
            client: info.client,
            client_port: info.client_port,
            server: info.server,
            server_port: info.server_port,
            protocol: info.protocol,
            established,
            app: talk.map_or(App::Unknown, Conversation::app),
            sides: talk.map_or([App::Unknown; 2], |t| {
                [Direction::ToServer, Direction::ToClient].map(|d| t.spoken(d))
            }),
            before: talk.and_then(Conversation::before),
            opaque: self.is_opaque(&flow.extra),
            packets: info.packets,
            bytes: info.bytes,
            stream,
            start: info.start,
            alerted: flow.extra.alerted,
        }
    }

    /// Whether both ends of a flow encrypt what they say, of an application where that is not inspected.
    pub(super) fn is_opaque(&self, extra: &FlowAnalysis) -> bool {
        extra
            .talk
            .as_ref()
            .is_some_and(|t| t.is_encrypted() && self.engine.opaque.contains(&Some(t.app())))
    }

    /// Forgets what a flow remembers of rules that are no more.
    pub(super) fn renew(&self, extra: &mut FlowAnalysis) {
        let rules = self.engine.number;
        if extra.rules != rules {
            if extra.rules != 0 {
                extra.state = FlowState::default();
            }
            extra.rules = rules;
        }
    }

    pub(super) fn pieces(
        &mut self,
        moment: &Moment<'_>,
        view: &FlowView,
        extra: &mut FlowAnalysis,
        side: Direction,
        all: bool,
    ) {
        let FlowAnalysis { windows, state, .. } = extra;
        let window = &mut windows[side.index()];
        if window.is_due(all) {
            let detector = &mut self.detector;
            window.take(side, all, |piece| {
                detector.stream(moment, view, state, piece)
            });
        }
    }

    pub(super) fn transactions(
        &mut self,
        moment: &Moment<'_>,
        view: &FlowView,
        extra: &mut FlowAnalysis,
        sides: &[Direction],
        ended: bool,
    ) {
        if !ended && sides.iter().all(|s| !extra.changed[s.index()]) {
            return;
        }
        for side in sides {
            extra.changed[side.index()] = false;
        }
        if let Some(talk) = &mut extra.talk {
            for transaction in &mut talk.transactions.live {
                self.detector.transaction(
                    moment,
                    view,
                    &mut extra.state,
                    transaction,
                    sides,
                    ended,
                );
            }
        }
    }

    /// Bytes of a stream, or a datagram, for the parser.
    pub(super) fn talk(
        &mut self,
        info: &Info,
        extra: &mut FlowAnalysis,
        direction: Direction,
        bytes: &[u8],
    ) {
        let tcp = info.protocol == 6;
        if extra.talk.is_none() {
            let ports = Ports {
                client: info.client_port,
                server: info.server_port,
            };
            let expected = if tcp { self.expected(info) } else { None };
            extra.talk = Some(match expected {
                Some((what, parent)) => {
                    extra.parent = parent;
                    *self.counts.flows.entry((what.app, tcp)).or_default() += 1;
                    Conversation::expected(&what, ports, &self.engine.wanted)
                }
                None if tcp => Conversation::stream(ports),
                None => Conversation::datagrams(ports),
            });
        }
        let Some(talk) = &mut extra.talk else { return };
        if talk.is_parsed() {
            let before = talk.app();
            talk.is_alone(tcp && self.one_sided && info.packets.contains(&0));
            talk.data(direction, bytes, self.time, &self.engine.wanted);
            extra.changed = [true; 2];
            extra.unlooked = true;
            if talk.transactions.failed {
                extra.failed = true;
                let what = (talk.app(), tcp, false);
                *self.counts.errors.entry(what).or_default() += 1;
            }
            if talk.app() != before {
                *self.counts.flows.entry((talk.app(), tcp)).or_default() += 1;
            }
            if !talk.transactions.expected.is_empty() {
                let list = std::mem::take(&mut talk.transactions.expected);
                self.announce(info, list);
            }
        }
    }

    /// Remembers flows that a flow announced; a later announcement of the same end replaces an earlier one.
    pub(super) fn announce(&mut self, info: &Info, list: Vec<Expected>) {
        let Some(announced) = self.announced.get_mut(self.slice) else {
            return;
        };
        for what in list {
            let (listener, other) = match what.direction {
                Direction::ToServer => (info.server, info.client),
                Direction::ToClient => (info.client, info.server),
            };
            if what
                .address
                .is_some_and(|a| a != listener && !a.is_unspecified())
            {
                continue;
            }
            announced.retain(|a| {
                a.time + ANNOUNCED_FOR > self.time
                    && (a.listener, a.other, a.what.port) != (listener, other, what.port)
            });
            if announced.len() >= MOST_ANNOUNCED {
                announced.pop_front();
            }
            announced.push_back(Announced {
                listener,
                other,
                what,
                parent: info.id,
                time: self.time,
            });
        }
    }

    /// Takes what a new flow was announced as, and by which flow.
    pub(super) fn expected(&mut self, info: &Info) -> Option<(Expected, u64)> {
        let announced = self.announced.get_mut(self.slice)?;
        if announced.is_empty() {
            return None;
        }
        let at = announced.iter().position(|a| {
            a.time + ANNOUNCED_FOR > self.time
                && (info.server, info.client, info.server_port)
                    == (a.listener, a.other, a.what.port)
        })?;
        announced.remove(at).map(|a| (a.what, a.parent))
    }

    /// Counts a flow's memory anew.
    pub(super) fn recount(&mut self, extra: &mut FlowAnalysis) {
        let talk = extra.talk.as_ref().map_or(0, |t| {
            t.memory()
                + t.transactions
                    .live
                    .iter()
                    .map(crate::app::Transaction::memory)
                    .sum::<usize>()
        });
        let now =
            talk + extra.windows[0].memory() + extra.windows[1].memory() + extra.state.memory();
        let last = extra.last.as_ref().map_or(0, |t| t.memory());
        let now = now + last + extra.said[0].0.capacity() + extra.said[1].0.capacity();
        let all = &mut self.memory[self.slice];
        *all = (*all + now).saturating_sub(extra.memory);
        extra.memory = now;
    }
}

impl PipelineState {
    /// Notes what an end says, as alerts show it.
    pub(super) fn said(&self, extra: &mut FlowAnalysis, direction: Direction, bytes: &[u8]) {
        let limit = self.logs.options.payload_limit;
        // What it said before the other end did is over.
        let turned = extra.speaker.replace(direction) != Some(direction);
        let (said, length) = &mut extra.said[direction.index()];
        if turned {
            said.clear();
            *length = 0;
        }
        let room = limit.saturating_sub(said.len()).min(bytes.len());
        said.extend_from_slice(&bytes[..room]);
        *length += bytes.len();
    }
}

impl flow::Sink<FlowAnalysis> for PipelineState {
    fn data(&mut self, info: &Info, extra: &mut FlowAnalysis, direction: Direction, bytes: &[u8]) {
        let other = direction.reversed().index();
        extra.answered[other] |= extra.windows[other].is_due(true);
        if self.engine.streams[direction.index()] && !self.is_opaque(extra) {
            extra.windows[direction.index()].push(bytes);
        }
        if self.logs.options.shows_payload() || self.logs.debug.is_some() {
            self.said(extra, direction, bytes);
        }
        if self.logs.data.is_some() {
            let ends = [
                (info.client, info.client_port),
                (info.server, info.server_port),
            ];
            let start = self.bytes.len();
            dump::stream(&mut self.bytes, ends, direction, bytes);
            let block = start..self.bytes.len();
            self.line(info.number, Record::Data, None, start..start, block);
        }
        if self.logs.calls(Wants::Streams) {
            self.script_stream(info, extra, (direction, bytes), false);
        }
        self.talk(info, extra, direction, bytes);
    }

    fn gap(&mut self, _: &Info, extra: &mut FlowAnalysis, direction: Direction, length: u64) {
        extra.windows[direction.index()].gap(length);
        self.counts.gaps += 1;
        extra.gaps[direction.index()] = true;
        if self.logs.options.shows_payload() {
            let text = format!("[{length} bytes missing]");
            self.said(extra, direction, text.as_bytes());
        }
        if let Some(talk) = &mut extra.talk {
            let known = talk.is_parsed() && talk.app() != App::Unknown;
            talk.gap(direction, length);
            extra.changed = [true; 2];
            if known && talk.transactions.failed {
                let what = (talk.app(), true, true);
                *self.counts.errors.entry(what).or_default() += 1;
            }
        }
    }

    fn enters(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowAnalysis>,
        direction: Direction,
    ) -> bool {
        self.wall_before_stream(packet, flow, direction)
    }

    fn kept_away(&self, extra: &FlowAnalysis) -> Option<u64> {
        self.last_kept_away(extra)
    }

    fn come_again(&mut self, info: &mut Info, extra: &mut FlowAnalysis) {
        self.read_again(info, extra);
    }

    fn is_let_go(&self, extra: &FlowAnalysis) -> bool {
        extra.standing.fate == Fate::Bypassed
    }

    fn is_left(&self, extra: &FlowAnalysis) -> bool {
        extra.standing.is_left()
    }

    fn end(&mut self, _: &Info, extra: &mut FlowAnalysis, direction: Direction, end: End) {
        // At its depth a stream goes on, unseen; that is no end for those who wait for one.
        extra.windows[direction.index()].end();
        extra.deep |= end == End::Depth;
        match &mut extra.talk {
            Some(talk) if end == End::Depth => talk.cut(direction),
            Some(talk) => {
                talk.end(direction);
                extra.changed = [true; 2];
            }
            None => {}
        }
    }

    fn finished(&mut self, flow: &mut Flow<FlowAnalysis>, reason: Reason) {
        // Flows that are over at the same packet have nothing to do with each other, nor with it.
        self.detector.turn();
        self.read_again(&mut flow.info, &mut flow.extra);
        self.counts.let_go.closed += u64::from(flow.extra.standing.fate == Fate::Bypassed);
        self.counts.ends[flow.info.state as usize] += 1;
        if let Some(session) = &flow.tcp {
            self.counts.tcp_ends[session.state() as usize] += 1;
        }
        self.renew(&mut flow.extra);
        (self.way, self.origin) = (Direction::ToServer, Origin::FlowEnd);
        let established = flow.info.state != flow::State::New;
        let before = flow.extra.talk.as_ref().map(Conversation::app);
        if let Some(talk) = &mut flow.extra.talk {
            talk.close();
            // What was too short to be recognized is nothing; a datagram is not.
            let failed = talk.named() == Some(App::Failed) && before == Some(App::Unknown);
            let tcp = flow.info.protocol == 6;
            if failed {
                *self.counts.flows.entry((App::Failed, tcp)).or_default() += 1;
            } else if Some(talk.app()) != before && talk.app() != App::Failed {
                *self.counts.flows.entry((talk.app(), tcp)).or_default() += 1;
            }
        }
        let view = self.view(flow, established);
        let moment = Moment {
            time: self.time,
            number: self.number,
            packet: None,
        };
        let Flow { info, extra, tcp } = flow;
        // What was dropped, or let go unseen, has no end that rules and records would be about.
        if !extra.standing.is_left() || extra.standing.let_go {
            for side in [Direction::ToServer, Direction::ToClient] {
                self.pieces(&moment, &view, extra, side, true);
            }
            // Each direction ends as with a packet of its own: so many alerts as that may have.
            for side in [Direction::ToServer, Direction::ToClient] {
                self.transactions(&moment, &view, extra, &[side], true);
                self.alerts(None, Some((info, extra)));
            }
            self.detector.turn();
            self.log_transactions(info, extra);
        }
        if self.logs.calls(Wants::Streams) && tcp.is_some() {
            for side in [Direction::ToServer, Direction::ToClient] {
                self.script_stream(info, extra, (side, &[]), true);
            }
        }
        if self.logs.calls(Wants::Flows) {
            self.script_flow(info, extra);
        }
        if self.logs.kinds.flow || self.logs.kinds.netflow {
            self.log_flow(info, extra, tcp.as_ref(), reason);
        }
        let all = &mut self.memory[self.slice];
        *all = all.saturating_sub(extra.memory);
        extra.memory = 0;
    }
}

/// Where a packet's payload begins in its stream, if it is part of it.
fn stream_offset(
    packet: &Packet<'_>,
    flow: &Flow<FlowAnalysis>,
    direction: Direction,
) -> Option<u64> {
    let (Some(tcp), Some(session)) = (packet.tcp(), &flow.tcp) else {
        return None;
    };
    if packet.quoted.is_some() || packet.payload().is_empty() {
        return None;
    }
    session.offset(tcp, direction)
}

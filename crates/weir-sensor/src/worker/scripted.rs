//! What scripts of outputs are shown: copies, as they are called where logs are written, in the order of packets.

use std::borrow::Cow;

use super::log::names;
use super::{FlowAnalysis, Line, PipelineState};
use crate::app::{App, Conversation, Transaction, hex};
use crate::buffer::Buffer;
use crate::config::{Record, Wants};
use crate::detect::{Match, action_name};
use crate::flow::Info;
use crate::packet::{Direction, Packet};
use crate::script::{FileView, FlowFacts, PacketView, RuleView, Streamed, View};

/// Names of a flow's protocols: its own, those of its directions, the one before a change.
fn protocols(talk: Option<&Conversation>) -> [&'static str; 4] {
    let names = names(talk);
    let app = names.name.unwrap_or("unknown");
    [
        app,
        names.to_server.unwrap_or(app),
        names.to_client.unwrap_or(app),
        names.before.unwrap_or("unknown"),
    ]
}

fn facts(info: &Info, alerted: bool, apps: [&'static str; 4]) -> FlowFacts {
    FlowFacts {
        id: info.id,
        client: (info.client, info.client_port),
        server: (info.server, info.server_port),
        protocol: info.protocol,
        times: [info.start, info.last],
        packets: info.packets,
        bytes: info.bytes,
        alerted,
        apps,
    }
}

impl PipelineState {
    /// A line that no log has, for scripts.
    fn script(&mut self, flow: u64, wants: Wants, view: View<'static>) {
        let at = self.bytes.len();
        let flow = if self.phase == 1 { 0 } else { flow };
        self.lines.push(Line {
            number: self.number,
            phase: self.phase,
            flow,
            time: self.time,
            record: Record::Application,
            matched: None,
            decided: false,
            scripted: Some((wants, Box::new(view))),
            eve: at..at,
            fast: at..at,
            debug: at..at,
        });
    }

    /// What stands for a packet where there is none.
    fn bare(&self, flow: &FlowFacts) -> PacketView<'static> {
        let mut packet = PacketView::bare(self.time, self.number, flow);
        if self.way == Direction::ToClient {
            packet.addresses = packet.addresses.map(|(a, b)| (b, a));
            packet.ports = packet.ports.map(|(a, b)| (b, a));
        }
        packet
    }

    /// What scripts see of an alert.
    pub(super) fn alert_view(
        &self,
        packet: Option<&Packet<'_>>,
        of: Option<(&Info, &FlowAnalysis)>,
        one: &Match,
    ) -> Box<View<'static>> {
        let rule = self.engine.ruleset.rule(one.rule);
        let flow = of.map(|(info, extra)| facts(info, true, protocols(extra.talk.as_ref())));
        let packet = match (packet, &flow) {
            (Some(packet), _) => Some(PacketView::of(packet).owned()),
            (None, Some(flow)) => Some(self.bare(flow)),
            (None, None) => None,
        };
        let live = of.and_then(|(_, extra)| Some(&extra.talk.as_ref()?.transactions.live));
        let found = live.zip(one.transaction);
        let found = found.and_then(|(live, id)| live.iter().find(|t| t.id == id));
        Box::new(View {
            packet,
            flow,
            transaction: found.map(|t| Cow::Owned(t.clone())),
            rule: Some(RuleView {
                sid: rule.sid,
                gid: rule.gid,
                rev: rule.rev,
                action: action_name(rule.action),
                message: Cow::Owned(rule.message.clone()),
                class: Cow::Owned(rule.category.clone()),
                priority: rule.priority,
            }),
            ..View::default()
        })
    }

    /// A packet, for scripts of all packets.
    pub(super) fn script_packet(
        &mut self,
        packet: &Packet<'_>,
        of: Option<(&Info, &FlowAnalysis)>,
    ) {
        let flow = of.map(|(info, extra)| {
            let apps = protocols(extra.talk.as_ref());
            facts(info, extra.alerted, apps)
        });
        let view = View {
            packet: Some(PacketView::of(packet).owned()),
            flow,
            ..View::default()
        };
        self.script(of.map_or(0, |(info, _)| info.number), Wants::Packets, view);
    }

    /// A flow that is over.
    pub(super) fn script_flow(&mut self, info: &Info, extra: &FlowAnalysis) {
        let apps = protocols(extra.talk.as_ref());
        let flow = facts(info, extra.alerted, apps);
        let view = View {
            packet: Some(self.bare(&flow)),
            flow: Some(flow),
            ..View::default()
        };
        self.script(info.number, Wants::Flows, view);
    }

    /// A transaction that is logged.
    pub(super) fn script_transaction(&mut self, info: &Info, alerted: bool, done: &Transaction) {
        let app = match done.app {
            App::Doh2 => App::Dns,
            app => app,
        };
        let told = done.app != App::Tls || crate::app::tls::is_told(done);
        let apps = [done.app.name(), done.app.name(), done.app.name(), "unknown"];
        if self.logs.calls(Wants::Transactions(app)) && told {
            let flow = facts(info, alerted, apps);
            let view = View {
                packet: Some(self.bare(&flow)),
                flow: Some(flow),
                transaction: Some(Cow::Owned(done.clone())),
                ..View::default()
            };
            self.script(info.number, Wants::Transactions(app), view);
        }
        if self.logs.calls(Wants::Bodies) && done.app == App::Http1 {
            for (buffer, direction) in [
                (Buffer::HttpRequestBody, Direction::ToServer),
                (Buffer::HttpResponseBody, Direction::ToClient),
            ] {
                let Some(body) = done.get(buffer, direction).next() else {
                    continue;
                };
                let flow = facts(info, alerted, apps);
                let view = View {
                    packet: Some(self.bare(&flow)),
                    flow: Some(flow),
                    arguments: vec![("data", Cow::Owned(body.to_vec()))],
                    streamed: Some(Streamed {
                        direction,
                        opens: true,
                        closes: true,
                    }),
                    ..View::default()
                };
                self.script(info.number, Wants::Bodies, view);
            }
        }
    }

    /// A file that is over.
    pub(super) fn script_file(&mut self, info: &Info, done: &Transaction, number: usize) {
        let Some(file) = done.files.get(number) else {
            return;
        };
        let name = done.app.name();
        let flow = facts(info, false, [name, name, name, "unknown"]);
        let sums = file.sums.iter().map(|(name, sum)| (*name, hex(sum)));
        let view = View {
            packet: Some(self.bare(&flow)),
            flow: Some(flow),
            file: Some(FileView {
                id: number as u64 + 1,
                transaction: done.number,
                name: file.name.clone(),
                size: file.size,
                magic: file.magic.clone(),
                sums: sums.collect(),
                state: if file.whole { "CLOSED" } else { "TRUNCATED" },
                stored: file.stored,
            }),
            transaction: Some(Cow::Owned(done.clone())),
            ..View::default()
        };
        self.script(info.number, Wants::Files, view);
    }

    /// A part of a stream, or its end.
    pub(super) fn script_stream(
        &mut self,
        info: &Info,
        extra: &mut FlowAnalysis,
        (direction, bytes): (Direction, &[u8]),
        closes: bool,
    ) {
        let opens = !std::mem::replace(direction.of_mut(&mut extra.shown), true);
        if opens && closes {
            return;
        }
        let flow = facts(info, extra.alerted, protocols(extra.talk.as_ref()));
        let view = View {
            packet: Some(self.bare(&flow)),
            flow: Some(flow),
            arguments: vec![("data", Cow::Owned(bytes.to_vec()))],
            streamed: Some(Streamed {
                direction,
                opens,
                closes,
            }),
            ..View::default()
        };
        self.script(info.number, Wants::Streams, view);
    }
}

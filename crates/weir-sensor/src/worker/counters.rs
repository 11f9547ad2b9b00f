//! A pipeline's counters by the dotted names of the stats record; those that users know, where there are such. What slices have is summed: also their peaks, so that a sum of
//! peaks is at least the peak of sums, and the same for any number of workers.

use std::collections::BTreeMap;

use super::{AppCounts, Pipeline};
use crate::app::{App, PROTOCOLS, Protocol, both_counter, protocol};
use crate::detect::RuleCost;
use crate::event::{Event, EventCounts};
use crate::flow;
use crate::run::Ledger;
use crate::stream::State;

/// States of flows, and of TCP sessions, in the order of their numbers.
const FLOW_ENDS: [flow::State; 3] = [
    flow::State::New,
    flow::State::Established,
    flow::State::Closed,
];
const TCP_ENDS: [State; 11] = [
    State::None,
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
    State::Closed,
];

/// The counters of some pipelines, which are numbers until a record needs their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Always the same names in the same order.
    numbers: Vec<(&'static str, u64)>,
    decoding: EventCounts,
    streams: EventCounts,
    apps: AppCounts,
    /// Exception policies, and packets by what became of them where they are dropped.
    verdicts: BTreeMap<String, u64>,
    /// By generator and number of a rule: how often it was given up.
    limited: BTreeMap<(u32, u32), u64>,
    costs: BTreeMap<(u32, u32), RuleCost>,
    ledger: Ledger,
}

impl Totals {
    /// Adds others; of the one that is a highest value, the higher one counts.
    pub(crate) fn add(&mut self, other: &Totals) {
        for ((name, mine), (_, others)) in self.numbers.iter_mut().zip(&other.numbers) {
            *mine = match *name {
                "decoder.max_depth" | "decoder.max_pkt_size" => (*mine).max(*others),
                _ => *mine + others,
            };
        }
        self.decoding.merge(&other.decoding);
        self.streams.merge(&other.streams);
        for (all, others) in [
            (&mut self.apps.flows, &other.apps.flows),
            (&mut self.apps.transactions, &other.apps.transactions),
        ] {
            for (key, count) in others {
                *all.entry(*key).or_default() += count;
            }
        }
        for (key, count) in &other.apps.errors {
            *self.apps.errors.entry(*key).or_default() += count;
        }
        for (name, count) in &other.verdicts {
            *self.verdicts.entry(name.clone()).or_default() += count;
        }
        for (rule, count) in &other.limited {
            *self.limited.entry(*rule).or_default() += count;
        }
        for (rule, cost) in &other.costs {
            self.costs.entry(*rule).or_default().add(cost);
        }
        for (all, others) in self.apps.ends.iter_mut().zip(other.apps.ends) {
            *all += others;
        }
        for (all, others) in self.apps.tcp_ends.iter_mut().zip(other.apps.tcp_ends) {
            *all += others;
        }
        self.ledger.not_ip += other.ledger.not_ip;
        self.ledger.invalid += other.ledger.invalid;
        self.ledger.fragments += other.ledger.fragments;
        self.ledger.bad_checksum += other.ledger.bad_checksum;
        self.ledger.inspected += other.ledger.inspected;
    }

    /// Where frames ended.
    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// What each rule cost, if that was asked for.
    pub(crate) fn costs(&self) -> &BTreeMap<(u32, u32), RuleCost> {
        &self.costs
    }

    /// All of them by name.
    pub(crate) fn named(&self) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = (self.numbers.iter())
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        for ((gid, sid), count) in &self.limited {
            all.insert(format!("detect.limited.rule.{gid}:{sid}"), *count);
        }
        all.extend(self.verdicts.iter().map(|(name, n)| (name.clone(), *n)));
        for event in Event::ALL.iter().filter(|e| e.is_stream()) {
            let count = self.streams.get(*event);
            all.insert(format!("stream.{}", event.name()), count);
        }
        for tcp in [true, false] {
            let name = counted(App::Failed, tcp);
            all.insert(format!("app_layer.flow.{name}"), 0);
        }
        for ((app, tcp), count) in &self.apps.flows {
            all.insert(format!("app_layer.flow.{}", counted(*app, *tcp)), *count);
        }
        for ((app, tcp), count) in &self.apps.transactions {
            all.insert(format!("app_layer.tx.{}", counted(*app, *tcp)), *count);
        }
        // Those of parsers and of decoding are always there, so that who draws them finds all.
        for (row, tcp) in parsed() {
            let name = row.counter(tcp);
            for key in [
                format!("app_layer.flow.{name}"),
                format!("app_layer.tx.{name}"),
                format!("app_layer.error.{name}.gap"),
                format!("app_layer.error.{name}.parser"),
            ] {
                all.entry(key).or_default();
            }
        }
        for event in Event::ALL.iter().filter(|e| !e.is_stream()) {
            let count = self.decoding.get(*event);
            all.insert(format!("decoder.event.{}", event.name()), count);
        }
        for ((app, tcp, gap), count) in &self.apps.errors {
            let what = if *gap { "gap" } else { "parser" };
            let name = format!("app_layer.error.{}.{what}", counted(*app, *tcp));
            all.insert(name, *count);
        }
        for (state, count) in FLOW_ENDS.iter().zip(self.apps.ends) {
            all.insert(format!("flow.end.state.{}", state.name()), count);
        }
        // Sessions whose beginning was not seen are none.
        for (state, count) in TCP_ENDS.iter().zip(self.apps.tcp_ends).skip(1) {
            all.insert(format!("flow.end.tcp_state.{}", state.name()), count);
        }
        let of = |name: &str| all.get(name).copied().unwrap_or_default();
        let average = of("decoder.bytes").checked_div(of("decoder.pkts"));
        all.insert("decoder.avg_pkt_size".to_owned(), average.unwrap_or(0));
        // Some of them have names of their own.
        for (name, event) in [
            ("decoder.too_many_layers", Event::TooManyLayers),
            ("decoder.unknown_ethertype", Event::EthernetUnknownType),
        ] {
            all.insert(name.to_owned(), self.decoding.get(event));
        }
        for (name, event) in [
            ("tcp.invalid_checksum", Event::TcpChecksum),
            ("tcp.overlap_diff_data", Event::OverlapDifferentData),
        ] {
            let count = self.decoding.get(event) + self.streams.get(event);
            all.insert(name.to_owned(), count);
        }
        all
    }
}

impl Pipeline {
    /// All of them.
    pub(super) fn totals(&self) -> Totals {
        let d = self.decoder.counts();
        let x = self.state.detector.counts();
        let let_go = &self.state.counts.let_go;
        let mut numbers = vec![
            ("decoder.pkts", d.frames),
            ("decoder.bytes", d.bytes),
            ("decoder.max_pkt_size", d.max_size),
            ("tcp.syn", d.syn),
            ("tcp.synack", d.synack),
            ("tcp.rst", d.rst),
            ("decoder.packets", d.packets),
            ("decoder.invalid", d.invalid),
            ("decoder.not_ip", d.not_ip),
            ("decoder.ipv4", d.ipv4),
            ("decoder.ipv6", d.ipv6),
            ("decoder.ethernet", d.ethernet),
            ("decoder.tcp", d.tcp),
            ("decoder.udp", d.udp),
            ("decoder.sctp", d.sctp),
            ("decoder.icmpv4", d.icmpv4),
            ("decoder.icmpv6", d.icmpv6),
            ("decoder.esp", d.esp),
            ("decoder.fragments", d.fragments),
            ("decoder.vlan", d.vlan),
            ("decoder.vlan_qinq", d.vlan_qinq),
            ("decoder.mpls", d.mpls),
            ("decoder.vntag", d.vntag),
            ("decoder.nsh", d.nsh),
            ("decoder.pppoe", d.pppoe),
            ("decoder.ppp", d.ppp),
            ("decoder.vlan_qinqinq", d.vlan_qinqinq),
            ("decoder.sll", d.sll),
            ("decoder.sll2", d.sll2),
            ("decoder.chdlc", d.chdlc),
            ("decoder.null", d.null),
            ("decoder.raw", d.raw),
            ("decoder.arp", d.arp),
            ("decoder.gre", d.gre),
            ("decoder.erspan", d.erspan),
            ("decoder.ipv4_in_ipv4", d.ip_in_ip[0][0]),
            ("decoder.ipv6_in_ipv4", d.ip_in_ip[0][1]),
            ("decoder.ipv4_in_ipv6", d.ip_in_ip[1][0]),
            ("decoder.ipv6_in_ipv6", d.ip_in_ip[1][1]),
            ("decoder.vxlan", d.vxlan),
            ("decoder.geneve", d.geneve),
            ("decoder.teredo", d.teredo),
            ("decoder.max_depth", u64::from(d.max_depth)),
            ("app_layer.overflowed", self.state.counts.overflowed),
            ("flow_bypassed.local_pkts", let_go.local[0]),
            ("flow_bypassed.local_bytes", let_go.local[1]),
            ("flow_bypassed.local_capture_pkts", let_go.capture[0]),
            ("flow_bypassed.local_capture_bytes", let_go.capture[1]),
            ("flow_bypassed.closed", let_go.closed),
            ("flow_bypassed.pkts", let_go.kept_away[0]),
            ("flow_bypassed.bytes", let_go.kept_away[1]),
            ("detect.alert_queue_overflow", self.state.counts.beyond),
            ("detect.packets", x.packets),
            ("detect.stream_pieces", x.pieces),
            ("detect.transactions", x.transactions),
            ("detect.passed", x.passed),
            ("detect.candidates", x.candidates),
            ("detect.evaluations", x.evaluations),
            ("detect.pcre.calls", x.evaluation.pcre_calls),
            ("detect.pcre.limited", x.evaluation.pcre_limited),
            ("detect.limited.buffers", x.evaluation.limited),
            ("detect.lua.errors", x.scripts.errors),
            ("detect.lua.blocked_function_errors", x.scripts.blocked),
            (
                "detect.lua.instruction_limit_errors",
                x.scripts.instructions,
            ),
            ("detect.lua.memory_limit_errors", x.scripts.memory),
        ];
        let of_pipeline = numbers.len();
        let mut events = EventCounts::default();
        for (number, slice) in self.slices.iter().enumerate() {
            let g = slice.defragmenter.counts();
            let f = slice.tracker.counts();
            let streams = slice.tracker.streams();
            let s = streams.ledger();
            let of_slice = [
                ("defrag.fragments", g.fragments),
                ("defrag.ipv4.fragments", g.fragments - g.fragments6),
                ("defrag.ipv6.fragments", g.fragments6),
                ("defrag.used", g.used),
                ("defrag.timeout", g.timeout),
                ("defrag.mgr.tracker_timeout", g.timeout),
                ("defrag.over_cap", g.evicted + g.dropped),
                ("defrag.overlap", g.overlap),
                ("defrag.invalid", g.invalid),
                ("defrag.pending", g.pending),
                ("defrag.ipv4.reassembled", g.whole - g.whole6),
                ("defrag.ipv6.reassembled", g.whole6),
                ("flow.total", f.made),
                ("flow.active", f.active),
                ("flow.tcp", f.tcp),
                ("flow.udp", f.udp),
                ("flow.icmp", f.icmp),
                ("flow.icmpv4", f.icmp - f.icmp6),
                ("flow.icmpv6", f.icmp6),
                ("flow.tcp_reuse", f.reuse),
                ("flow.packets", f.packets),
                ("flow.no_flow_packets", f.no_flow),
                ("flow.end.timeout", f.timeout),
                ("flow.end.forced", f.forced),
                ("flow.end.forced_for_sessions", f.sessions_over_cap),
                ("flow.end.shutdown", f.shutdown),
                ("flow.end.tcp_reuse", f.reuse),
                ("flow.evicted_for_memory", slice.evicted),
                ("tcp.sessions", s.sessions),
                ("tcp.midstream_pickups", s.midstream),
                ("tcp.sessions_reset", s.resets),
                ("tcp.segments", s.segments),
                ("tcp.reassembly_gap", s.gaps),
                ("tcp.gap_bytes", s.gap_bytes),
                ("tcp.bytes.payload", s.payload),
                ("tcp.bytes.delivered", s.delivered),
                ("tcp.bytes.urgent", s.urgent),
                ("tcp.bytes.overlapped", s.overlapped),
                ("tcp.bytes.beyond_depth", s.beyond_depth),
                ("tcp.bytes.over_cap", s.over_cap),
                ("tcp.bytes.out_of_window", s.out_of_window),
                ("tcp.bytes.bad_checksum", s.bad_checksum),
                ("tcp.bytes.untracked", s.untracked),
                ("tcp.bytes.closed", s.closed),
                ("tcp.sessions_relieved", f.relieved),
                ("flow.memuse", slice.tracker.memory() as u64),
                ("flow.memuse_peak", slice.tracker.peak() as u64),
                ("tcp.memuse", slice.tracker.session_memory() as u64),
                ("tcp.reassembly_memuse", streams.memory().0 as u64),
                ("tcp.reassembly_memuse_peak", streams.memory().1 as u64),
                ("defrag.memuse", slice.defragmenter.memory() as u64),
                ("defrag.memuse_peak", g.peak),
                ("app_layer.memuse", self.state.memory[number] as u64),
                ("app_layer.memuse_peak", slice.memory_peak as u64),
            ];
            events.merge(streams.events());
            match number {
                0 => numbers.extend(of_slice),
                _ => {
                    for ((_, all), (_, count)) in numbers[of_pipeline..].iter_mut().zip(of_slice) {
                        *all += count;
                    }
                }
            }
        }
        Totals {
            numbers,
            decoding: self.decoder.events().clone(),
            streams: events,
            apps: self.state.counts.clone(),
            verdicts: self.state.prevention.counters(),
            limited: self.state.detector.limited().clone(),
            costs: self.state.detector.costs().clone(),
            ledger: self.ledger,
        }
    }
}

/// Protocols whose transactions are told apart, over TCP (`true`) or UDP.
fn parsed() -> impl Iterator<Item = (&'static Protocol, bool)> {
    let over = |row: &'static Protocol| [true, false].map(|tcp| (row, tcp));
    let all = PROTOCOLS.iter().flat_map(over);
    all.filter(|(row, tcp)| row.is_parsed(*tcp))
}

/// The name of an application's counters.
fn counted(app: App, tcp: bool) -> String {
    match protocol(app) {
        Some(row) => row.counter(tcp),
        None => both_counter(app, tcp),
    }
}

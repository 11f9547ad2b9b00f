//! A pipeline: every stage from a frame to matches and records, for all frames, or for those of one slice.
//!
//! Nothing here knows of other pipelines. What reaches over flows is decided where the reports of all meet (`run`); a report says of each line which packet it belongs to, so
//! that the order of lines is that of packets however many workers there are.
//!
//! Memory is bounded in slices: pairs of addresses are spread over a fixed number of them, each has its share of every cap. A worker that is alone has one pipeline with all of
//! them; several take turns at pipelines of one slice each (`worker_pool`). What a cap takes is therefore the same for any number of workers, and a flood between two hosts takes nothing
//! of the flows of most others.

mod answer;
mod chosen;
mod counters;
mod engine;
mod firewall;
mod log;
mod prevention;
mod report;
mod scripted;
mod stored;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use weir_packet::pcap::LinkType;

use crate::app::{App, Conversation, Expected, Ports};
use crate::config::{SensorConfig, Wants};
use crate::decode::Decoder;
use crate::defragment::Defragmenter;
use crate::detect::{Detector, FlowState, FlowView, Moment, PacketFlow, Ruleset};
use crate::event::{Event, Events};
use crate::flow::{self, Flow, Info, Reason, Tracked, Tracker};
use crate::matcher;
use crate::output::Stored;
use crate::output::eve::{self, Origin, Tunnel};
use crate::packet::{Direction, Packet, Transport};
use crate::rules::Expressions;
use crate::run::{Amounts, Ledger, Tick, Work};
use crate::source::{Answer, Frame};
use crate::stream::End;
pub use engine::{Engine, Uncompiled};
pub(crate) use log::{packet_head, packet_link};
use prevention::{Arrival, Fate, Prevention, Standing};
pub(crate) use report::{Line, Report};
use window::Window;

/// What is kept of a flow beside its counters and its session.
#[derive(Default)]
struct FlowAnalysis {
    talk: Option<Conversation>,
    state: FlowState,
    windows: [Window; 2],
    /// Whether the other end has said something since: what is in the window is then decided, before the answer is.
    answered: [bool; 2],
    /// The engine whose rules `state` speaks of; 0: of none.
    rules: u64,
    alerted: bool,
    /// The conversation was given something since bodies of it were looked at that are not whole.
    unlooked: bool,
    /// The conversation was given something since each direction of it was looked at last.
    changed: [bool; 2],
    /// Bytes of memory, when it was last counted.
    memory: usize,
    /// Number of the flow that announced this one.
    parent: u64,
    /// Directions in which bytes were lost.
    gaps: [bool; 2],
    /// What each side said since the other did last, if alerts are to show it: the beginning, and the length of all.
    said: [(Vec<u8>, usize); 2],
    /// Who spoke last, as far as that is needed for it.
    speaker: Option<Direction>,
    /// Addresses of the link layer, if records have them.
    macs: Option<Box<log::Macs>>,
    /// Events of the conversation that were logged.
    logged_events: usize,
    /// And those that rules were asked about.
    told_events: usize,
    /// A stream of it has reached its depth.
    deep: bool,
    /// Its parser gave up, and the policy for that was not applied yet.
    failed: bool,
    /// What was decided of all its packets.
    standing: Standing,
    /// From which transaction on files of each direction are written out.
    stores: [Option<u64>; 2],
    /// The last transaction that is over, if scripts may ask about it.
    last: Option<Box<crate::app::Transaction>>,
    /// Directions of which scripts were shown a part of the stream.
    shown: [bool; 2],
}

/// What the flow tracker state everything to; it keeps what belongs to no single flow.
struct PipelineState {
    engine: Arc<Engine>,
    /// In a box: a pipeline of one slice has one only while a worker lends it its own.
    detector: Box<Detector>,
    logs: Arc<crate::config::Logs>,
    /// Where and when it is: of the packet that is looked at.
    time: u64,
    number: u64,
    phase: u8,
    /// The slice of the packet that is looked at.
    slice: usize,
    /// Memory of all flows' conversations, windows and states, of each slice.
    memory: Vec<usize>,
    /// Which way the packet goes in its flow, where it comes from, its frame's link type, and the outermost packet if it is carried by one.
    way: Direction,
    origin: Origin,
    link: u16,
    outer: Option<Tunnel>,
    /// Addresses of the frame, if records have them; what a tunnel carries has none.
    ether: Option<eve::Ether>,
    /// Flows that others announced, oldest first, of each slice.
    announced: Vec<VecDeque<Announced>>,
    counts: AppCounts,
    /// Alerts that one packet may give.
    alerts: usize,
    /// What becomes of packets.
    prevention: Prevention,
    /// Flows are let go when a stream has reached its depth; and applications whose flows are once both ends encrypt.
    bypass: (bool, Vec<App>),
    /// Streams are looked at with each packet, as packets may be dropped; and sessions of which one end is seen are followed.
    inline: bool,
    one_sided: bool,
    /// How often the only transaction of a flow is shown with alerts of rules that do not ask for one; 0: not at all.
    guesses: u8,
    /// Place in its batch of the frame that is looked at, and what is sent for those that are rejected; none where nobody would send it.
    place: u32,
    answers: Option<Vec<Answer>>,
    /// How far streams of SMB are followed; 0: all of them.
    smb_depth: u64,
    bytes: Vec<u8>,
    lines: Vec<Line>,
    /// Files that are to be written out.
    files: Vec<Stored>,
    /// Flows of frames by their numbers, if packets may be tagged.
    flows: Vec<(u64, u64)>,
}

/// A flow that another one announced. Both are between the same two hosts, so that they are of the same slice; an announcement that names another host is not believed.
struct Announced {
    /// Who waits.
    listener: IpAddr,
    /// Who will come.
    other: IpAddr,
    /// What it will carry.
    what: Expected,
    /// Number of the flow that says so.
    parent: u64,
    time: u64,
}

/// Seconds in which a flow must have had packets for its bodies to be looked at: one, and the one that lists of flows are exact to.
const RECENT: u64 = 2;
/// Announcements that a slice remembers; the oldest goes.
const MOST_ANNOUNCED: usize = 256;
/// Link type of frames with an Ethernet header.
const ETHERNET: u16 = 1;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// For so long, nanoseconds.
const ANNOUNCED_FOR: u64 = 60_000_000_000;

/// What applications did.
#[derive(Clone, Debug, Default)]
struct AppCounts {
    /// By application, and whether it was on TCP.
    flows: BTreeMap<(App, bool), u64>,
    transactions: BTreeMap<(App, bool), u64>,
    overflowed: u64,
    gaps: u64,
    /// Alerts beyond those that one packet may give.
    beyond: u64,
    /// Packets of flows that were let go, and their bytes.
    let_go: [u64; 2],
    /// Flows that are over, by their last state.
    ends: [u64; 3],
    /// Those with a TCP session, by its last state.
    tcp_ends: [u64; 11],
    /// Parsers that gave up: at lost bytes (`true`), or at what they did not understand.
    errors: BTreeMap<(App, bool, bool), u64>,
}

/// What has caps, of the pairs of addresses that share them.
struct Slice {
    defragmenter: Defragmenter,
    tracker: Tracker<FlowAnalysis>,
    /// Bytes of conversations, windows and states.
    memory_cap: usize,
    /// The most they were.
    memory_peak: usize,
    /// Flows ended for that.
    evicted: u64,
}

impl Slice {
    /// What it has of each cap; `held`: of applications.
    fn uses(&self, held: usize) -> Amounts {
        let tracker = &self.tracker;
        [
            tracker.counts().active,
            tracker.memory() as u64,
            tracker.session_memory() as u64,
            tracker.streams().memory().0 as u64,
            self.defragmenter.memory() as u64,
            held as u64,
        ]
    }

    /// From here on it may have so much.
    fn limit(&mut self, limits: &Amounts) {
        let [flows, memory, sessions, held, fragments, apps] =
            limits.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        self.tracker.limit([flows, memory, sessions], held);
        self.defragmenter.limit(fragments);
        self.memory_cap = apps;
    }
}

/// All stages from a frame to matches and records, with the state of some slices.
pub(crate) struct Pipeline {
    decoder: Decoder,
    slices: Vec<Slice>,
    state: PipelineState,
    ledger: Ledger,
    clock: u64,
    /// Something of the frame that is looked at was left out for its checksum.
    left_out: bool,
}

impl Pipeline {
    /// One with all slices, for a worker that is alone.
    pub(crate) fn of_all(config: &SensorConfig, engine: &Arc<Engine>) -> Pipeline {
        let logs = Arc::new(config.logs.clone());
        let detector = Box::new(Detector::new(Arc::clone(&engine.ruleset)));
        Pipeline::new(
            config,
            engine,
            &logs,
            0..usize::from(config.slices),
            detector,
        )
    }

    /// One for each slice. They have no scratch memory for detection; who works on one lends it his.
    pub(crate) fn of_each(config: &SensorConfig, engine: &Arc<Engine>) -> Vec<Pipeline> {
        let logs = Arc::new(config.logs.clone());
        let none = Expressions::new(0);
        let (none, _) =
            Ruleset::build(Vec::new(), none, Arc::default(), matcher::Engine::default());
        let none = Arc::new(none);
        (0..usize::from(config.slices))
            .map(|number| {
                let detector = Box::new(Detector::new(Arc::clone(&none)));
                let slices = number..number + 1;
                Pipeline::new(config, engine, &logs, slices, detector)
            })
            .collect()
    }

    fn new(
        config: &SensorConfig,
        engine: &Arc<Engine>,
        logs: &Arc<crate::config::Logs>,
        slices: Range<usize>,
        detector: Box<Detector>,
    ) -> Pipeline {
        let slices: Vec<Slice> = slices
            .map(|number| Slice {
                defragmenter: Defragmenter::new(config.defragmenter(number)),
                tracker: Tracker::new(config.tracker(number), config.reassembler(number)),
                memory_cap: config.share(config.app.memory, number),
                memory_peak: 0,
                evicted: 0,
            })
            .collect();
        Pipeline {
            decoder: Decoder::new(config.decoder()),
            state: PipelineState {
                engine: Arc::clone(engine),
                detector,
                logs: Arc::clone(logs),
                time: 0,
                number: 0,
                phase: 0,
                slice: 0,
                memory: vec![0; slices.len()],
                way: Direction::ToServer,
                origin: Origin::Wire,
                link: 0,
                outer: None,
                ether: None,
                announced: std::iter::repeat_with(VecDeque::new)
                    .take(slices.len())
                    .collect(),
                counts: AppCounts::default(),
                alerts: config.alerts,
                prevention: Prevention::new(config),
                bypass: (config.stream.bypass, config.app.bypass.clone()),
                inline: config.stream.inline,
                one_sided: config.stream.one_sided,
                guesses: config.guesses,
                place: 0,
                answers: config.inline.is_some().then(Vec::new),
                smb_depth: config.stream.smb_depth,
                bytes: Vec::new(),
                lines: Vec::new(),
                files: Vec::new(),
                flows: Vec::new(),
            },
            slices,
            ledger: Ledger::default(),
            clock: 0,
            left_out: false,
        }
    }

    /// Works on all frames of a batch, with the engine of the batch.
    pub(crate) fn work(&mut self, work: &Work, report: &mut Report) {
        if !Arc::ptr_eq(&work.engine, &self.state.engine) {
            self.take_engine(&work.engine);
            let mut detector = Detector::new(Arc::clone(&work.engine.ruleset));
            detector.swap_counts(&mut self.state.detector);
            *self.state.detector = detector;
        }
        if let Some(limits) = &work.limits {
            for (slice, limits) in self.slices.iter_mut().zip(limits.iter()) {
                slice.limit(limits);
            }
        }
        self.begin(report);
        for (at, frame) in work.batch.frames.iter().enumerate() {
            let number = work.batch.first + at as u64;
            if frame.time / SECOND > self.clock {
                self.clock = frame.time / SECOND;
                self.state.at(frame.time, number, 0);
                self.advance(frame.time);
                self.look();
            }
            self.state.at(frame.time, number, 1);
            self.state.place = at as u32;
            let bytes = work.batch.bytes(frame);
            self.frame(frame, number, bytes);
            if self.state.prevention.end_frame() {
                report.dropped.push(at as u32);
            }
        }
        if let Some(answers) = &mut self.state.answers {
            report.answers.append(answers);
        }
        if work.batch.frames.is_empty() && work.now / SECOND > self.clock {
            self.clock = work.now / SECOND;
            self.state.at(work.now, work.last, 2);
            self.advance(work.now);
            self.look();
        }
        if work.ends {
            self.end_flows(work);
        }
        if work.stats {
            report.add_totals(self.totals());
        }
        let held = self.state.memory.iter();
        let slices = (0..).zip(self.slices.iter().zip(held));
        (report.uses).extend(slices.map(|(number, (s, held))| (number, s.uses(*held))));
        self.end(report);
    }

    /// Works on the frames of a batch that are about this slice, and ends its flows at all ticks of the batch.
    pub(crate) fn share(&mut self, work: &Work, share: usize, detector: &mut Box<Detector>) {
        self.swap_detector(detector);
        let number = work.shares().get(share).map_or(0, |s| s.slice);
        if let Some(limits) = &work.limits
            && let Some(limits) = limits.get(usize::from(number))
            && let Some(slice) = self.slices.first_mut()
        {
            slice.limit(limits);
        }
        // A slice that had no frame until now was told no time.
        self.state.at(work.before, work.batch.first, 0);
        self.advance(work.before);
        let mut ticks = work.ticks().iter();
        let mut next = ticks.next();
        for at in work.shares().get(share).map_or(&[][..], |s| work.of(s)) {
            while let Some(tick) = next.filter(|tick| tick.at <= *at) {
                self.tick(work, tick);
                next = ticks.next();
            }
            let Some(frame) = work.batch.frames.get(*at as usize) else {
                continue;
            };
            let number = work.batch.first + u64::from(*at);
            self.state.at(frame.time, number, 1);
            let bytes = work.batch.bytes(frame);
            self.frame(frame, number, bytes);
        }
        for tick in next.into_iter().chain(ticks) {
            self.tick(work, tick);
        }
        if work.ends {
            self.end_flows(work);
        }
        let told = self.state.detector.take_told();
        self.swap_detector(detector);
        self.hand_over(work, number, told);
    }

    fn tick(&mut self, work: &Work, tick: &Tick) {
        match work.batch.frames.is_empty() {
            true => self.state.at(tick.time, work.last, 2),
            false => {
                let number = work.batch.first + u64::from(tick.at);
                self.state.at(tick.time, number, 0);
            }
        }
        self.advance(tick.time);
        self.look();
    }

    /// Adds what was found to what others found in the batch.
    fn hand_over(&mut self, work: &Work, number: u16, mut told: Vec<String>) {
        let totals = work.stats.then(|| self.totals());
        let held = self.state.memory.first().copied().unwrap_or_default();
        let uses = self.slices.first().map(|s| s.uses(held));
        let mut found = work
            .found
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let base = found.bytes.len();
        found.bytes.append(&mut self.state.bytes);
        let lines = self.state.lines.drain(..).map(|line| Line {
            eve: line.eve.start + base..line.eve.end + base,
            fast: line.fast.start + base..line.fast.end + base,
            ..line
        });
        found.lines.extend(lines);
        found.files.append(&mut self.state.files);
        found.told.append(&mut told);
        found.flows.append(&mut self.state.flows);
        found.uses.extend(uses.map(|uses| (number, uses)));
        if let Some(totals) = totals {
            found.add_totals(totals);
        }
    }

    /// Takes a worker's detector, with the counts of this pipeline; or gives it back.
    fn swap_detector(&mut self, detector: &mut Box<Detector>) {
        self.state.detector.swap_counts(detector);
        std::mem::swap(&mut self.state.detector, detector);
    }

    fn end_flows(&mut self, work: &Work) {
        self.state.at(work.now, work.last, 2);
        for (number, slice) in self.slices.iter_mut().enumerate() {
            self.state.slice = number;
            slice.tracker.shutdown(&mut self.state);
        }
    }

    /// Ends the flows whose time is over.
    fn advance(&mut self, now: u64) {
        for (number, slice) in self.slices.iter_mut().enumerate() {
            self.state.slice = number;
            slice.tracker.advance(now, &mut self.state);
        }
    }

    /// Asks rules of bodies that have grown and are not whole: of those that come slowly, nobody knows when they will be.
    fn look(&mut self) {
        if !self.state.engine.grows {
            return;
        }
        for (number, slice) in self.slices.iter_mut().enumerate() {
            self.state.slice = number;
            for at in slice.tracker.recent(RECENT) {
                self.state.look(slice.tracker.flow_mut(at));
            }
        }
    }

    fn begin(&mut self, report: &mut Report) {
        std::mem::swap(&mut self.state.bytes, &mut report.bytes);
        std::mem::swap(&mut self.state.files, &mut report.files);
        std::mem::swap(&mut self.state.lines, &mut report.lines);
    }

    fn end(&mut self, report: &mut Report) {
        std::mem::swap(&mut self.state.bytes, &mut report.bytes);
        std::mem::swap(&mut self.state.files, &mut report.files);
        std::mem::swap(&mut self.state.lines, &mut report.lines);
        report.flows.append(&mut self.state.flows);
        report.told.append(&mut self.state.detector.take_told());
    }

    /// From here on, these rules. What flows remember of the old ones is forgotten when they are looked at next.
    pub(crate) fn take_engine(&mut self, engine: &Arc<Engine>) {
        self.state.engine = Arc::clone(engine);
    }

    fn frame(&mut self, frame: &Frame, number: u64, bytes: &[u8]) {
        self.state.link = frame.link;
        self.state.outer = None;
        self.left_out = false;
        if self.state.logs.options.ethernet {
            self.state.ether = eve::Ether::of(bytes).filter(|_| frame.link == 1);
        }
        let link = LinkType(frame.link);
        let mut packet = (self.decoder).frame_with(link, frame.time, number, bytes, frame.sums);
        packet.interface = frame.interface;
        // If there is one slice only, the reader has found that the frame is about it, in the same way.
        self.state.slice = match self.slices.len() {
            0 | 1 => 0,
            all => (packet.spread % all as u64) as usize,
        };
        let ip = packet.ip.as_ref().map(|ip| ip.fragment);
        let is_odd = !packet.events.is_empty();
        self.layers(packet, 0);
        let end = match ip {
            None if !is_odd => &mut self.ledger.not_ip,
            None => &mut self.ledger.invalid,
            // Whatever it carries: something of it was left out.
            Some(_) if self.left_out => &mut self.ledger.bad_checksum,
            Some(true) => &mut self.ledger.fragments,
            Some(false) => &mut self.ledger.inspected,
        };
        *end += 1;
    }

    /// A packet and those that it carries, put together from fragments where needed.
    fn layers(&mut self, mut packet: Packet<'_>, depth: u8) {
        loop {
            if packet.ip.as_ref().is_some_and(|ip| ip.fragment) {
                let mut events = Events::default();
                // Copied out: what it carries may be fragments again.
                let datagram = self.slices[self.state.slice]
                    .defragmenter
                    .fragment(&packet, &mut events)
                    .map(|d| Decoder::whole(&packet, d));
                self.decoder.count(events);
                // Rules on overlaps are about the fragment that made one.
                packet.events.extend(events);
                self.packet(&packet);
                // A datagram may carry fragments in its turn, but not for ever.
                if let Some(datagram) = datagram
                    && depth < 8
                {
                    if self.state.outer.is_none() {
                        self.state.outer = log::outermost(&packet);
                    }
                    let whole = self.decoder.datagram(&packet, &datagram);
                    self.layers(whole, depth + 1);
                }
                return;
            }
            self.packet(&packet);
            match self.decoder.inner(&packet) {
                Some(inner) => {
                    if self.state.outer.is_none() {
                        self.state.outer = log::outermost(&packet);
                    }
                    self.state.ether = None;
                    packet = inner;
                }
                None => return,
            }
        }
    }

    fn packet(&mut self, packet: &Packet<'_>) {
        let part = packet.ip.as_ref().is_some_and(|ip| ip.fragment);
        // No receiver takes it: it is no part of its stream, or of its datagram.
        self.left_out |= packet.bad_checksum && (part || packet.tcp().is_some());
        let state = &mut self.state;
        let slice = &mut self.slices[state.slice];
        let tracked = slice.tracker.packet(packet, state);
        let events = tracked.map_or(Events::default(), |t| t.events);
        if state.logs.kinds.anomaly_decode && !packet.events.is_empty() {
            let flow = tracked.as_ref().map(|t| slice.tracker.flow_mut(t.flow));
            state.log_events(packet, packet.events, flow.as_deref());
        }
        let Some(tracked) = tracked else {
            let mut all = packet.events;
            all.extend(events);
            if state.wall(packet, all) {
                state.detector.packet(packet, all, None);
            }
            state.alerts(Some(packet), None);
            if state.logs.calls(Wants::Packets) {
                state.script_packet(packet, None);
            }
            state.depart(packet, None);
            return;
        };
        let flow = slice.tracker.flow_mut(tracked.flow);
        if state.engine.tags && state.logs.options.tagged {
            state.flows.push((packet.number, flow.info.id));
        }
        if state.arrive(packet, flow) {
            state.inspect(packet, &tracked, flow);
            state.let_go(packet, &mut flow.extra);
        }
        state.depart(packet, Some((flow, tracked.direction)));
        state.recount(&mut flow.extra);
        slice.memory_peak = slice.memory_peak.max(state.memory[state.slice]);
        // The flows that have been quiet for longest go first.
        while state.memory[state.slice] > slice.memory_cap && slice.tracker.evict(state) {
            slice.evicted += 1;
        }
    }
}

impl PipelineState {
    /// Asks rules of what a flow's transactions have of bodies until now.
    fn look(&mut self, flow: &mut Flow<FlowAnalysis>) {
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

    fn at(&mut self, time: u64, number: u64, phase: u8) {
        (self.time, self.number, self.phase) = (time, number, phase);
    }

    /// Whether a packet of a flow is inspected.
    fn arrive(&mut self, packet: &Packet<'_>, flow: &mut Flow<FlowAnalysis>) -> bool {
        if flow.extra.standing.fate == Fate::Bypassed {
            self.count_let_go(packet);
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

    /// Lets a flow go that was inspected as far as it is to be.
    fn let_go(&mut self, packet: &Packet<'_>, extra: &mut FlowAnalysis) {
        let (depth, apps) = &self.bypass;
        let deep = *depth && extra.deep;
        let encrypted = || {
            let talk = extra.talk.as_ref();
            talk.is_some_and(|t| t.is_encrypted() && apps.contains(&t.app()))
        };
        if extra.standing.fate != Fate::Inspected || !deep && !encrypted() {
            return;
        }
        extra.standing.fate = Fate::Bypassed;
        extra.standing.let_go = true;
        // The depth was reached by the packet before, which this one acknowledges.
        if deep {
            self.count_let_go(packet);
        }
    }

    fn count_let_go(&mut self, packet: &Packet<'_>) {
        let [packets, bytes] = &mut self.counts.let_go;
        *packets += 1;
        *bytes += packet.data.len() as u64;
    }

    /// A packet is decided.
    fn depart(&mut self, packet: &Packet<'_>, of: Option<(&mut Flow<FlowAnalysis>, Direction)>) {
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
    fn inspect(&mut self, packet: &Packet<'_>, tracked: &Tracked, flow: &mut Flow<FlowAnalysis>) {
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

    fn view(&self, flow: &Flow<FlowAnalysis>, established: bool) -> FlowView {
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
    fn is_opaque(&self, extra: &FlowAnalysis) -> bool {
        extra
            .talk
            .as_ref()
            .is_some_and(|t| t.is_encrypted() && self.engine.opaque.contains(&Some(t.app())))
    }

    /// Forgets what a flow remembers of rules that are no more.
    fn renew(&self, extra: &mut FlowAnalysis) {
        let rules = self.engine.number;
        if extra.rules != rules {
            if extra.rules != 0 {
                extra.state = FlowState::default();
            }
            extra.rules = rules;
        }
    }

    fn pieces(
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

    fn transactions(
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
    fn talk(&mut self, info: &Info, extra: &mut FlowAnalysis, direction: Direction, bytes: &[u8]) {
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
    fn announce(&mut self, info: &Info, list: Vec<Expected>) {
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
    fn expected(&mut self, info: &Info) -> Option<(Expected, u64)> {
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
    fn recount(&mut self, extra: &mut FlowAnalysis) {
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
    fn said(&self, extra: &mut FlowAnalysis, direction: Direction, bytes: &[u8]) {
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
        if self.logs.options.shows_payload() {
            self.said(extra, direction, bytes);
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

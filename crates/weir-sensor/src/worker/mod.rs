//! A pipeline: every stage from a frame to matches and records, for all frames, or for those of one slice.
//!
//! Nothing here knows of other pipelines. What reaches over flows is decided where the reports of all meet (`run`); a report says of each line which packet it belongs to, so
//! that the order of lines is that of packets however many workers there are.
//!
//! Memory is bounded in slices: pairs of addresses are spread over a fixed number of them, each has its share of every cap. A worker that is alone has one pipeline with all of
//! them; several take turns at pipelines of one slice each (`worker_pool`). What a cap takes is therefore the same for any number of workers, and a flood between two hosts takes nothing
//! of the flows of most others.

mod answer;
mod bypass;
mod chosen;
mod counters;
mod engine;
mod firewall;
mod frames;
mod inspect;
mod log;
mod prevention;
mod ranges;
mod report;
mod scripted;
mod stored;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use weir_packet::pcap::LinkType;

use crate::app::{App, Conversation, Expected};
use crate::config::{SensorConfig, Wants};
use crate::decode::Decoder;
use crate::defragment::Defragmenter;
use crate::detect::{Detector, FlowState, Ruleset};
use crate::event::Events;
use crate::flow::Tracker;
use crate::matcher;
use crate::output::Stored;
use crate::output::eve::{self, Origin, Tunnel};
use crate::packet::{Direction, Packet};
use crate::rules::Expressions;
use crate::run::{Amounts, Ledger, Tick, Work};
use crate::source::{Answer, Bypass, Frame};
pub(crate) use counters::Totals;
pub use engine::{Engine, Uncompiled};
pub(crate) use log::{packet_head, packet_link};
use prevention::{Asked, LetGo, Prevention, Standing};
use ranges::RangeFiles;
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
    /// If they are let go: what the source was asked, and whether it kept some away.
    asked: Asked,
    kept_away: bool,
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
    /// Files of which parts have come, of each slice.
    ranges: Vec<RangeFiles>,
    counts: AppCounts,
    /// Alerts that one packet may give.
    alerts: usize,
    /// What becomes of packets.
    prevention: Prevention,
    /// Flows are let go when a stream has reached its depth; and applications whose flows are once both ends encrypt.
    bypass: (bool, Vec<App>),
    /// What keeps their packets away.
    source: Option<Arc<dyn Bypass>>,
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
    /// Packets of flows that were let go.
    let_go: LetGo,
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
                ranges: std::iter::repeat_with(|| {
                    let (memory, timeout) = config.app.ranges;
                    RangeFiles::new(config.share(memory, 0), timeout * 1_000_000_000)
                })
                .take(slices.len())
                .collect(),
                counts: AppCounts::default(),
                alerts: config.alerts,
                prevention: Prevention::new(config),
                bypass: (config.stream.bypass, config.app.bypass.clone()),
                source: None,
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

    /// From here on packets of flows that are let go may be kept away.
    pub(crate) fn bypass_at(&mut self, source: Option<Arc<dyn Bypass>>) {
        self.state.source = source;
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
            debug: line.debug.start + base..line.debug.end + base,
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
        if !state.wall_before_flow(packet) {
            state.alerts(Some(packet), None);
            state.depart(packet, None);
            return;
        }
        let slice = &mut self.slices[state.slice];
        let tracked = slice.tracker.packet(packet, state);
        let events = tracked.map_or(Events::default(), |t| t.events);
        if state.logs.kinds.anomaly_decode && !packet.events.is_empty() {
            let flow = tracked.as_ref().map(|t| slice.tracker.flow_mut(t.flow));
            state.log_events(packet, packet.events, flow.as_deref());
        }
        if packet.arp && state.logs.kinds.arp {
            state.log_arp(packet);
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
        if state.prevention.is_dropped() {
            // Before its stream.
            state.alert(packet, flow);
        } else if state.arrive(packet, flow) {
            state.inspect(packet, &tracked, flow);
            state.let_go(packet, &mut flow.extra);
        }
        let kept_away = state.keep_away(packet, flow);
        state.depart(packet, Some((flow, tracked.direction)));
        state.recount(&mut flow.extra);
        if kept_away {
            slice.tracker.keeps_away(tracked.flow);
        }
        slice.memory_peak = slice.memory_peak.max(state.memory[state.slice]);
        // The flows that have been quiet for longest go first.
        while state.memory[state.slice] > slice.memory_cap && slice.tracker.evict(state) {
            slice.evicted += 1;
        }
    }
}

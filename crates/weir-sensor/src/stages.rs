//! The first stages of the pipeline without those after them: what measuring needs to tell what each stage costs, by differences, without a clock in the hot path.
//!
//! The stages are driven in the order in which a worker that is alone drives them, with the same slices and caps. What they yield goes nowhere. Connections that another one announced (data of
//! FTP) are parsed as what they look like: the worker, which knows of both, is not part of it.

use weir_packet::pcap::LinkType;

use crate::app::{Asked, Conversation, Ports};
use crate::config::SensorConfig;
use crate::decode::{Decoder, Spreader};
use crate::defragment::Defragmenter;
use crate::event::Events;
use crate::flow::{self, Flow, Info, Reason, Tracker};
use crate::packet::{Direction, Packet, Transport};
use crate::source::{Batch, Filled, Source, SourceError};
use crate::stream::End;
use crate::worker::Engine;

/// The last stage that frames pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upto {
    /// Reading only.
    Read,
    /// Reading, and finding the worker of each frame, as the reader does for several workers.
    Spread,
    /// Headers, of tunnels, too.
    Decode,
    /// Fragments put together.
    Defragment,
    /// Flows and reassembled streams.
    Streams,
    /// Parsers of applications, which fill what the rules of an engine ask for.
    Apps,
}

/// What passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames read.
    pub frames: u64,
    /// Packets decoded, carried ones and reassembled ones among them.
    pub packets: u64,
    /// Bytes that streams handed on.
    pub streamed: u64,
    /// Transactions that are complete.
    pub transactions: u64,
}

/// Takes all frames of a source through the stages up to one.
///
/// # Errors
/// The source fails.
pub fn pass(
    config: &SensorConfig,
    engine: &Engine,
    source: &mut dyn Source,
    upto: Upto,
) -> Result<Passed, SourceError> {
    let mut line = Line {
        upto,
        decoder: Decoder::new(config.decoder()),
        slices: (0..usize::from(config.slices))
            .map(|number| {
                (
                    Defragmenter::new(config.defragmenter(number)),
                    Tracker::new(config.tracker(number), config.reassembler(number)),
                )
            })
            .collect(),
        pipeline: ParserPipeline {
            wanted: (upto >= Upto::Apps).then(|| engine.wanted.clone()),
            time: 0,
            streamed: 0,
            transactions: 0,
        },
        clock: 0,
        packets: 0,
    };
    let mut spreader = Spreader::default();
    let mut passed = Passed::default();
    let mut batch = Batch::default();
    loop {
        batch.clear();
        match source.fill(&mut batch)? {
            Filled::Frames => {}
            Filled::Idle | Filled::End => break,
        }
        batch.first = passed.frames + 1;
        for (at, frame) in batch.frames.iter().enumerate() {
            let bytes = batch.bytes(frame);
            match upto {
                Upto::Read => {}
                Upto::Spread => {
                    std::hint::black_box(spreader.of(LinkType(frame.link), bytes));
                }
                _ => line.frame(
                    LinkType(frame.link),
                    frame.time,
                    batch.first + at as u64,
                    bytes,
                ),
            }
        }
        passed.frames += batch.frames.len() as u64;
    }
    for (_, tracker) in &mut line.slices {
        tracker.shutdown(&mut line.pipeline);
    }
    Ok(Passed {
        packets: line.packets,
        streamed: line.pipeline.streamed,
        transactions: line.pipeline.transactions,
        ..passed
    })
}

struct Line {
    upto: Upto,
    decoder: Decoder,
    slices: Vec<(Defragmenter, Tracker<Option<Conversation>>)>,
    pipeline: ParserPipeline,
    clock: u64,
    packets: u64,
}

impl Line {
    fn frame(&mut self, link: LinkType, time: u64, number: u64, bytes: &[u8]) {
        self.pipeline.time = time;
        if self.upto >= Upto::Streams && time / 1_000_000_000 > self.clock {
            self.clock = time / 1_000_000_000;
            for (_, tracker) in &mut self.slices {
                tracker.advance(time, &mut self.pipeline);
            }
        }
        let packet = self.decoder.frame(link, time, number, bytes);
        let slice = (packet.spread % self.slices.len().max(1) as u64) as usize;
        self.layers(packet, slice, 0);
    }

    fn layers(&mut self, mut packet: Packet<'_>, slice: usize, depth: u8) {
        loop {
            self.packets += 1;
            if self.upto >= Upto::Streams {
                self.track(&packet, slice);
            }
            if self.upto >= Upto::Defragment && packet.ip.as_ref().is_some_and(|ip| ip.fragment) {
                let mut events = Events::default();
                let whole = self.slices[slice]
                    .0
                    .fragment(&packet, &mut events)
                    .map(|d| Decoder::whole(&packet, d));
                self.decoder.count(events);
                if let Some(whole) = whole
                    && depth < 8
                {
                    let datagram = self.decoder.datagram(&packet, &whole);
                    self.layers(datagram, slice, depth + 1);
                }
                return;
            }
            match self.decoder.inner(&packet) {
                Some(inner) => packet = inner,
                None => return,
            }
        }
    }

    fn track(&mut self, packet: &Packet<'_>, slice: usize) {
        let tracker = &mut self.slices[slice].1;
        let Some(tracked) = tracker.packet(packet, &mut self.pipeline) else {
            return;
        };
        let flow = tracker.flow_mut(tracked.flow);
        if let Transport::Udp { .. } = packet.transport
            && !packet.payload().is_empty()
            && packet.quoted.is_none()
        {
            self.pipeline.talk(
                &flow.info,
                &mut flow.extra,
                tracked.direction,
                packet.payload(),
            );
        }
        self.pipeline.settle(&mut flow.extra);
    }
}

struct ParserPipeline {
    /// What parsers fill, if there are parsers.
    wanted: Option<Asked>,
    time: u64,
    streamed: u64,
    transactions: u64,
}

impl ParserPipeline {
    fn talk(
        &mut self,
        info: &Info,
        talk: &mut Option<Conversation>,
        direction: Direction,
        bytes: &[u8],
    ) {
        let Some(wanted) = &self.wanted else { return };
        let talk = talk.get_or_insert_with(|| {
            let ports = Ports {
                client: info.client_port,
                server: info.server_port,
            };
            if info.protocol == 6 {
                Conversation::stream(ports)
            } else {
                Conversation::datagrams(ports)
            }
        });
        if talk.is_parsed() {
            talk.data(direction, bytes, self.time, wanted);
        }
    }

    /// Lets go of what is complete, as logging does.
    fn settle(&mut self, talk: &mut Option<Conversation>) {
        let Some(talk) = talk else { return };
        while talk.transactions.live.front().is_some_and(|t| t.done) {
            talk.transactions.live.pop_front();
            self.transactions += 1;
        }
    }
}

impl flow::Sink<Option<Conversation>> for ParserPipeline {
    fn data(
        &mut self,
        info: &Info,
        talk: &mut Option<Conversation>,
        direction: Direction,
        bytes: &[u8],
    ) {
        self.streamed += bytes.len() as u64;
        self.talk(info, talk, direction, bytes);
    }

    fn gap(
        &mut self,
        _: &Info,
        talk: &mut Option<Conversation>,
        direction: Direction,
        length: u64,
    ) {
        if let Some(talk) = talk {
            talk.gap(direction, length);
        }
    }

    fn end(&mut self, _: &Info, talk: &mut Option<Conversation>, direction: Direction, end: End) {
        match talk {
            Some(talk) if end == End::Depth => talk.cut(direction),
            Some(talk) => talk.end(direction),
            None => {}
        }
    }

    fn finished(&mut self, flow: &mut Flow<Option<Conversation>>, _: Reason) {
        if let Some(talk) = &mut flow.extra {
            talk.close();
        }
        self.settle(&mut flow.extra);
    }
}

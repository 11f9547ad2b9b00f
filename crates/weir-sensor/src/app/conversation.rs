//! The application's side of one flow: its protocol is recognized, its parser fed, and followed when the stream changes to another protocol.
//! What flows own one of; everything else of this module is behind it.

use super::framed::{Frames, Framing};
use super::names::App;
use super::probe::{First, Ports, Recognized};
use super::protocol::{Parser, Sides, Start};
use super::recognize::Recognizer;
use super::transaction::{Expected, Transactions, Upgrade};
use super::wanted::Asked;
use crate::event::Event;
use crate::packet::Direction;

/// Changes of protocol that one flow may make: SMTP to TLS is one, a chain of proxies a few.
const MOST_CHANGES: u8 = 4;

/// Datagrams of a flow that recognition looks at.
const MOST_DATAGRAMS: u8 = 4;

/// What is known of the application of a flow.
pub struct Conversation {
    app: App,
    /// As recognized from the bytes of each direction alone.
    sides: [App; 2],
    /// Protocol before a change.
    before: Option<App>,
    /// Protocol that carries the one it proved to be.
    within: Option<App>,
    recognizer: Option<Box<Recognizer>>,
    parser: Option<Box<dyn Parser>>,
    ports: Ports,
    datagrams: bool,
    changes: u8,
    /// Datagrams that were not recognized.
    tries: u8,
    /// What the stream said that it would go on with, until its bytes were looked at.
    announced: Option<App>,
    /// It ended before a direction had said enough to be recognized by.
    short: bool,
    /// Frames of each direction so far.
    framing: [Framing; 2],
    /// Transactions and what else parsers say.
    pub transactions: Transactions,
}

impl Conversation {
    /// Of a stream (TCP).
    pub fn stream(ports: Ports) -> Conversation {
        Conversation::new(ports, false)
    }

    /// Of datagrams (UDP).
    pub fn datagrams(ports: Ports) -> Conversation {
        Conversation::new(ports, true)
    }

    /// Of a stream whose protocol another flow announced.
    pub fn expected(expected: &Expected, ports: Ports, wanted: &Asked) -> Conversation {
        let mut c = Conversation::new(ports, false);
        c.take(expected.app, Some(expected), None, wanted);
        c.sides = [c.app; 2];
        c
    }

    fn new(ports: Ports, datagrams: bool) -> Conversation {
        Conversation {
            app: App::Unknown,
            sides: [App::Unknown; 2],
            before: None,
            within: None,
            recognizer: None,
            parser: None,
            ports,
            datagrams,
            changes: 0,
            tries: 0,
            announced: None,
            short: false,
            framing: [Framing::default(); 2],
            transactions: Transactions::default(),
        }
    }

    /// Its protocol, `Unknown` until it is recognized, `Failed` if it is not.
    pub fn app(&self) -> App {
        self.app
    }

    /// What the bytes of one direction alone look like (`app_proto_ts`, `app_proto_tc`).
    pub fn side(&self, direction: Direction) -> App {
        *direction.of(&self.sides)
    }

    /// What a direction speaks, for rules: where nobody looks at the bytes any more, what the flow does.
    pub fn spoken(&self, direction: Direction) -> App {
        match self.side(direction) {
            App::Unknown if !self.is_parsed() => self.app,
            side => side,
        }
    }

    /// Whether the last message of a direction is over and nothing of the next has come, as far as its parser can tell.
    pub fn is_between(&self, direction: Direction) -> bool {
        self.parser
            .as_ref()
            .is_some_and(|p| p.is_between(direction))
    }

    /// What records call its protocol; `None`: too little was said to name one, or to say that it has none.
    pub fn named(&self) -> Option<App> {
        match self.app {
            // Each datagram is whole: what was not recognized at once is of no known protocol.
            App::Unknown => (self.datagrams && self.tries > 0).then_some(App::Failed),
            App::Failed => (!self.short).then_some(App::Failed),
            app => Some(app),
        }
    }

    /// The protocol it had before it changed (`app_proto_orig`).
    pub fn before(&self) -> Option<App> {
        self.before
    }

    /// Whether a parser looks at it (or may yet): otherwise bytes need not be given to it.
    pub fn is_parsed(&self) -> bool {
        self.parser.is_some() || self.app == App::Unknown
    }

    /// Whether nothing more of the flow can be understood by anyone.
    pub fn is_encrypted(&self) -> bool {
        self.transactions.encrypted
    }

    /// Only one end of the flow is seen: no request is ever answered.
    pub(crate) fn is_alone(&mut self, alone: bool) {
        self.transactions.alone = alone;
    }

    /// The next bytes of a stream in one direction, or one datagram.
    pub fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, wanted: &Asked) {
        if self.parser.is_some() {
            if *direction.of(&self.sides) == App::Unknown {
                if self.datagrams {
                    self.correct(direction, bytes, wanted);
                }
                if *direction.of(&self.sides) == App::Unknown {
                    self.check_side(direction, bytes, wanted);
                }
            }
            self.feed(direction, bytes, time, wanted);
            return;
        }
        if self.app != App::Unknown || bytes.is_empty() {
            return;
        }
        if self.datagrams {
            let found =
                Recognizer::datagram(direction, bytes, self.ports, wanted.switches.off(false));
            if let Recognized::App(app) = found {
                *direction.of_mut(&mut self.sides) = app;
                self.take(app, None, None, wanted);
                self.feed(direction, bytes, time, wanted);
            } else {
                self.tries += 1;
                if self.tries >= MOST_DATAGRAMS {
                    self.app = App::Failed;
                }
            }
            return;
        }
        let mut recognizer = self
            .recognizer
            .take()
            .unwrap_or_else(|| Box::new(Recognizer::new(self.ports)));
        recognizer.without(wanted.switches.off(true));
        match recognizer.stream(direction, bytes, time) {
            Recognized::More => self.recognizer = Some(recognizer),
            Recognized::App(app) => {
                self.sides = recognizer.sides();
                let first = recognizer.seen().next().map(|(direction, ..)| direction);
                if first == Some(Direction::ToClient)
                    && self.changes == 0
                    && super::protocol(app).is_some_and(|row| row.client_first)
                {
                    self.transactions
                        .event(Event::WrongDirectionApplication.name());
                }
                self.take(app, None, None, wanted);
                let odd = |d: Direction| match sides_of(app) {
                    Sides::Like(like) => !like(d, recognizer.first(d)),
                    Sides::Both | Sides::Either => false,
                };
                if odd(Direction::ToServer) || odd(Direction::ToClient) {
                    self.transactions
                        .event(Event::OneDirectionApplication.name());
                }
                for (direction, bytes, time) in recognizer.seen() {
                    self.feed(direction, bytes, time, wanted);
                }
            }
            Recognized::Failed => {
                if recognizer.first(direction.reversed()).is_empty() {
                    self.transactions.event(Event::RecognitionSkipped.name());
                }
                self.recognizer = Some(recognizer);
                self.fail();
            }
        }
    }

    /// So many bytes of a stream were lost.
    pub fn gap(&mut self, direction: Direction, length: u64) {
        let framing = direction.of_mut(&mut self.framing);
        framing.given = framing.given.saturating_add(length);
        if let Some(parser) = &mut self.parser {
            parser.gap(direction, length, &mut self.transactions);
            if self.transactions.failed {
                self.parser = None;
            }
        } else if self.app == App::Unknown {
            // What comes after the gap is no beginning that could be recognized.
            let all = match &mut self.recognizer {
                Some(r) => r.gap(direction),
                None => {
                    let mut r = Box::new(Recognizer::new(self.ports));
                    let all = r.gap(direction);
                    self.recognizer = Some(r);
                    all
                }
            };
            if all {
                self.fail();
            }
        }
    }

    /// The stream goes on in one direction, but nobody looks at it any more.
    pub fn cut(&mut self, direction: Direction) {
        self.transactions.cut(direction);
    }

    /// The stream has ended in one direction.
    pub fn end(&mut self, direction: Direction) {
        if let Some(parser) = &mut self.parser {
            parser.end(direction, &mut self.transactions);
        } else if self.recognizer.as_mut().is_some_and(|r| r.gap(direction)) {
            self.fail();
        }
    }

    /// The flow is over: every transaction is as complete as it will be.
    pub fn close(&mut self) {
        self.end(Direction::ToServer);
        self.end(Direction::ToClient);
        for t in &mut self.transactions.live {
            t.finish();
        }
    }

    /// Memory it holds beyond its transactions' buffers.
    pub fn memory(&self) -> usize {
        self.parser.as_ref().map_or(0, |p| p.memory())
            + self.recognizer.as_ref().map_or(0, |r| r.memory())
    }

    fn fail(&mut self) {
        self.app = App::Failed;
        if let Some(r) = self.recognizer.take() {
            self.sides = r.sides();
            self.short = r.is_short();
        }
    }

    fn take(
        &mut self,
        app: App,
        expected: Option<&Expected>,
        upgraded: Option<&Upgrade>,
        asked: &Asked,
    ) {
        let tcp = !self.datagrams;
        if asked.switches.off(tcp).has(app) {
            (self.app, self.parser) = (App::Failed, None);
            return;
        }
        self.app = app;
        self.transactions.most = asked.limits.of(app);
        let start = Start {
            stream: !self.datagrams,
            asked,
            expected,
            upgraded,
        };
        let make = super::protocol(app).and_then(|row| row.parser);
        let make = make.filter(|_| asked.switches.parses(app, tcp));
        self.parser = make.map(|make| make(&start));
    }

    /// The first datagram of the other end is of another protocol, and not of the one that the first end seemed to speak: that was chance, or junk.
    fn correct(&mut self, direction: Direction, bytes: &[u8], wanted: &Asked) {
        let off = wanted.switches.off(false);
        let Recognized::App(app) = Recognizer::datagram(direction, bytes, self.ports, off) else {
            return;
        };
        let first = First::new(direction, bytes, &[], self.ports);
        let is = super::protocol(self.app).and_then(|row| row.datagram);
        if app == self.app || self.within.is_some() || is.is_none_or(|is| is(&first)) {
            return;
        }
        for t in &mut self.transactions.live {
            t.finish();
        }
        self.before = Some(self.app);
        self.transactions.before = self.transactions.count;
        self.transactions.from = self.before;
        self.sides = [App::Unknown; 2];
        *direction.of_mut(&mut self.sides) = app;
        self.take(app, None, None, wanted);
    }

    /// The other direction's first bytes may look like something else: the protocol stays, the difference is noted.
    fn check_side(&mut self, direction: Direction, bytes: &[u8], wanted: &Asked) {
        let mut r = Recognizer::new(self.ports);
        r.without(wanted.switches.off(true));
        let announced = self.announced.take();
        match r.stream(direction, bytes, 0) {
            Recognized::App(app) if Some(app) == self.within => {
                *direction.of_mut(&mut self.sides) = self.app;
            }
            Recognized::App(app) if app != self.app && !self.datagrams => {
                *direction.of_mut(&mut self.sides) = app;
                let event = match announced {
                    Some(_) => Event::UnexpectedApplication,
                    None => Event::MismatchedApplications,
                };
                self.transactions.event(event.name());
            }
            // Alone a direction leaves the decision to the other; what it shows by itself is enough here.
            _ if announced == Some(App::Tls) && *direction.of(&r.sides()) == App::Failed => {
                *direction.of_mut(&mut self.sides) = App::Failed;
                self.transactions.event(Event::NoTlsAfterStarttls.name());
            }
            // One look is all.
            found => {
                let sides = sides_of(self.app);
                let odd = match sides {
                    Sides::Like(like) => !like(direction, bytes),
                    Sides::Both => found == Recognized::Failed,
                    Sides::Either => false,
                };
                if odd {
                    self.transactions
                        .event(Event::OneDirectionApplication.name());
                }
                let speaks = !matches!(sides, Sides::Either);
                *direction.of_mut(&mut self.sides) = match found {
                    Recognized::App(app) => app,
                    Recognized::Failed if speaks => App::Failed,
                    _ => self.app,
                };
            }
        }
    }

    fn feed(&mut self, direction: Direction, bytes: &[u8], time: u64, wanted: &Asked) {
        let Some(parser) = &mut self.parser else {
            return;
        };
        let framing = direction.of_mut(&mut self.framing);
        framing.given += bytes.len() as u64;
        parser.data(direction, bytes, time, &mut self.transactions);
        let frames = wanted.said.frames;
        if frames != Frames::None {
            // The first frame is the stream itself.
            if frames == Frames::All && !self.datagrams && framing.count == 0 {
                framing.count = 1;
            }
            if self.datagrams {
                framing.given = bytes.len() as u64;
            }
            let loose = self.transactions.loose.as_deref_mut();
            for t in self.transactions.live.iter_mut().chain(loose) {
                t.number_frames(direction, framing);
            }
        }
        if let Some(app) = self.transactions.becomes.take().filter(|a| *a != self.app) {
            for side in self.sides.iter_mut().filter(|s| **s == self.app) {
                *side = app;
            }
            self.within = Some(std::mem::replace(&mut self.app, app));
            self.before = self.within;
        }
        if self.transactions.failed || self.transactions.encrypted {
            self.parser = None;
            return;
        }
        let Some(change) = self.transactions.change.take() else {
            return;
        };
        self.parser = None;
        self.changes += 1;
        self.before = Some(self.app);
        self.transactions.before = self.transactions.count;
        self.transactions.from = self.before;
        for t in &mut self.transactions.live {
            t.finish();
        }
        if self.changes > MOST_CHANGES {
            self.app = App::Failed;
            return;
        }
        self.sides = [App::Unknown; 2];
        self.app = App::Unknown;
        self.announced = change.to;
        if let Some(app) = change.to {
            self.take(app, None, change.upgraded.as_deref(), wanted);
        }
        for d in [Direction::ToServer, Direction::ToClient] {
            if !d.of(&change.rest).is_empty() {
                // They are given again.
                let framing = d.of_mut(&mut self.framing);
                framing.given = framing
                    .given
                    .saturating_sub(d.of(&change.rest).len() as u64);
                self.data(d, d.of(&change.rest).as_slice(), time, wanted);
            }
        }
    }
}

fn sides_of(app: App) -> Sides {
    super::protocol(app).map_or(Sides::Either, |row| row.sides)
}

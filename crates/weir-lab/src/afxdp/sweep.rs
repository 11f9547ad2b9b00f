//! The document of a sweep: which values each knob takes, how long a run lasts, how often all is repeated.
//!
//! TOML. `[base]` gives each knob the one value that it has where nothing else is said; each `[[product]]` lists values of some knobs, and stands for every
//! combination of them. The sweep is what all products stand for, each combination once. Every mistake is told with its line, unknown names with those there are. Whether a
//! combination can be on this machine is none of this module's business: see `space`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_value::duration;
use weir_xsk::Wait;

/// Pings of [`Sweep::text`]'s default where nothing is said.
const USUAL_COUNT: u64 = 3000;

/// A sweep, read and checked.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What it is called.
    pub name: String,
    /// Seed of the order.
    pub seed: u64,
    /// How often every cell runs.
    pub blocks: u32,
    /// Pings of a run.
    pub count: u64,
    /// The longest that a run may take; what was sent by then is the run.
    pub duration: Duration,
    /// Pings before those that count; at most a tenth of what a run can hold.
    pub warm_up: u64,
    /// When a ping is given up.
    pub timeout: Duration,
    /// All of it may take so long; what is missing then is missing.
    pub time_limit: Option<Duration>,
    /// Load points and chains of some cells are measured after the blocks.
    pub extras: bool,
    /// What a knob is where nothing is said; controls take packets and intervals from it.
    pub base: Combination,
    /// Combinations, in the order of the document.
    pub combinations: Vec<Combination>,
    /// The document.
    pub text: String,
}

/// How packets get to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The XDP program runs in the stack.
    Generic,
    /// It runs in the driver; frames are copied.
    Copy,
    /// It runs in the driver; frames are not copied.
    ZeroCopy,
}

/// Where the two programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// On CPUs of their own.
    Split,
    /// Both on one.
    Same,
}

/// Interrupts put off (`napi_defer_hard_irqs`, `gro_flush_timeout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deferral {
    /// How many empty polls until interrupts are on again.
    pub irqs: u32,
    /// Until the timer polls.
    pub timeout: Duration,
}

/// One value for each knob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Combination {
    /// How packets get to the socket.
    pub mode: Mode,
    /// `XDP_USE_NEED_WAKEUP`.
    pub need_wakeup: bool,
    /// Microseconds and budget of busy polling.
    pub busy_poll: Option<(u32, u16)>,
    /// How the forwarder waits.
    pub forwarder_wait: WaitBy,
    /// How the prober waits: the paper's receiver.
    pub prober_wait: WaitBy,
    /// Interrupts put off.
    pub deferral: Deferral,
    /// NAPI in threads of its own.
    pub threaded: bool,
    /// CPUs.
    pub placement: Placement,
    /// Real-time priority of both programs; 0: ordinary.
    pub priority: u8,
    /// Packets sent at once, and handled at once.
    pub batch: u32,
    /// Entries of each ring.
    pub ring: u32,
    /// Bytes of a frame in memory.
    pub frame_size: u32,
    /// Bytes of a packet without its check sequence.
    pub size: u32,
    /// From batch to batch; zero: as soon as one is back.
    pub interval: Duration,
    /// Microseconds that the device gathers interrupts; none: as it was.
    pub coalescing: Option<u32>,
    /// Microseconds that a CPU may take to wake; none: as it was.
    pub c_state: Option<u32>,
    /// Queues of both interfaces.
    pub queues: u32,
}

/// [`Wait`], to be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitBy {
    /// Looks again.
    Spin,
    /// Looks again, calling the kernel.
    Call,
    /// Sleeps in `poll`.
    Poll,
}

impl From<WaitBy> for Wait {
    fn from(by: WaitBy) -> Wait {
        match by {
            WaitBy::Spin => Wait::Spin,
            WaitBy::Call => Wait::SpinCalling,
            WaitBy::Poll => Wait::Poll,
        }
    }
}

impl WaitBy {
    /// Whether it takes a CPU while nothing comes.
    pub fn spins(self) -> bool {
        self != WaitBy::Poll
    }
}

impl Default for Combination {
    fn default() -> Combination {
        Combination {
            mode: Mode::Copy,
            need_wakeup: true,
            busy_poll: None,
            forwarder_wait: WaitBy::Spin,
            prober_wait: WaitBy::Spin,
            deferral: Deferral {
                irqs: 0,
                timeout: Duration::ZERO,
            },
            threaded: false,
            placement: Placement::Split,
            priority: 0,
            batch: 1,
            ring: 2048,
            frame_size: 4096,
            size: 60,
            interval: Duration::ZERO,
            coalescing: None,
            c_state: None,
            queues: 1,
        }
    }
}

/// A knob: its name, its values in words, and how text gets in and out.
struct Knob {
    name: &'static str,
    /// In an id, before its value.
    short: &'static str,
    values: &'static str,
    set: fn(&mut Combination, &str) -> bool,
    tell: fn(&Combination) -> String,
}

fn assign<T>(to: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *to = value;
            true
        }
        None => false,
    }
}

fn number(text: &str, from: u32, to: u32) -> Option<u32> {
    text.parse().ok().filter(|n| (from..=to).contains(n))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "true" | "on" => Some(true),
        "false" | "off" => Some(false),
        _ => None,
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn wait(text: &str) -> Option<WaitBy> {
    Some(match text {
        "spin" => WaitBy::Spin,
        "call" => WaitBy::Call,
        "poll" => WaitBy::Poll,
        _ => return None,
    })
}

fn tell_wait(by: WaitBy) -> String {
    match by {
        WaitBy::Spin => "spin",
        WaitBy::Call => "call",
        WaitBy::Poll => "poll",
    }
    .to_owned()
}

/// As a duration is read, in the largest unit that leaves a whole number.
fn tell_time(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        0 => "0".to_owned(),
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ if ns.is_multiple_of(1_000) => format!("{}us", ns / 1_000),
        _ => format!("{ns}ns"),
    }
}

fn micros(text: &str, unchanged: &str) -> Option<Option<u32>> {
    if text == unchanged {
        return Some(None);
    }
    let us = duration(text).ok()?.as_micros();
    u32::try_from(us)
        .ok()
        .filter(|us| *us <= 1_000_000)
        .map(Some)
}

fn tell_micros(us: Option<u32>) -> String {
    us.map_or_else(
        || "unchanged".to_owned(),
        |us| tell_time(Duration::from_micros(us.into())),
    )
}

/// In the order of a document, and of ids.
const KNOBS: [Knob; 17] = [
    Knob {
        name: "mode",
        short: "",
        values: "\"generic\" (XDP in the stack), \"copy\" (in the driver), \"zero-copy\"",
        set: |c, v| {
            assign(
                &mut c.mode,
                match v {
                    "generic" => Some(Mode::Generic),
                    "copy" => Some(Mode::Copy),
                    "zero-copy" => Some(Mode::ZeroCopy),
                    _ => None,
                },
            )
        },
        tell: |c| {
            match c.mode {
                Mode::Generic => "generic",
                Mode::Copy => "copy",
                Mode::ZeroCopy => "zero-copy",
            }
            .to_owned()
        },
    },
    Knob {
        name: "forwarder_wait",
        short: "fwd",
        values: "\"spin\", \"call\" (looks and calls the kernel), \"poll\"",
        set: |c, v| assign(&mut c.forwarder_wait, wait(v)),
        tell: |c| tell_wait(c.forwarder_wait),
    },
    Knob {
        name: "prober_wait",
        short: "rx",
        values: "\"spin\", \"call\" (looks and calls the kernel), \"poll\"",
        set: |c, v| assign(&mut c.prober_wait, wait(v)),
        tell: |c| tell_wait(c.prober_wait),
    },
    Knob {
        name: "need_wakeup",
        short: "nw",
        values: "true, false",
        set: |c, v| assign(&mut c.need_wakeup, switch(v)),
        tell: |c| on_off(c.need_wakeup),
    },
    Knob {
        name: "busy_poll",
        short: "bp",
        values: "\"off\", or time and budget as in \"20us/64\"",
        set: |c, v| {
            let read = || {
                if v == "off" {
                    return Some(None);
                }
                let (us, budget) = v.split_once('/')?;
                let us = duration(us).ok()?.as_micros();
                let us = u32::try_from(us)
                    .ok()
                    .filter(|us| (1..=1_000_000).contains(us))?;
                let budget = budget.parse().ok().filter(|n| *n > 0)?;
                Some(Some((us, budget)))
            };
            assign(&mut c.busy_poll, read())
        },
        tell: |c| match c.busy_poll {
            Some((us, budget)) => {
                format!("{}/{budget}", tell_time(Duration::from_micros(us.into())))
            }
            None => "off".to_owned(),
        },
    },
    Knob {
        name: "deferral",
        short: "defer",
        values: "napi_defer_hard_irqs and gro_flush_timeout as in \"2/200us\", \"0/0\"",
        set: |c, v| {
            let read = || {
                let (irqs, timeout) = v.split_once('/')?;
                Some(Deferral {
                    irqs: number(irqs, 0, 1000)?,
                    timeout: duration(timeout)
                        .ok()
                        .filter(|t| *t <= Duration::from_secs(1))?,
                })
            };
            assign(&mut c.deferral, read())
        },
        tell: |c| format!("{}/{}", c.deferral.irqs, tell_time(c.deferral.timeout)),
    },
    Knob {
        name: "threaded",
        short: "threaded",
        values: "true, false",
        set: |c, v| assign(&mut c.threaded, switch(v)),
        tell: |c| on_off(c.threaded),
    },
    Knob {
        name: "placement",
        short: "cpus",
        values: "\"split\" (a CPU each), \"same\" (one for both)",
        set: |c, v| {
            assign(
                &mut c.placement,
                match v {
                    "split" => Some(Placement::Split),
                    "same" => Some(Placement::Same),
                    _ => None,
                },
            )
        },
        tell: |c| {
            match c.placement {
                Placement::Split => "split",
                Placement::Same => "same",
            }
            .to_owned()
        },
    },
    Knob {
        name: "priority",
        short: "prio",
        values: "0 (ordinary), 1 to 99 (real time)",
        set: |c, v| assign(&mut c.priority, number(v, 0, 99).map(|n| n as u8)),
        tell: |c| c.priority.to_string(),
    },
    Knob {
        name: "batch",
        short: "batch",
        values: "1 to 1024 packets",
        set: |c, v| assign(&mut c.batch, number(v, 1, 1024)),
        tell: |c| c.batch.to_string(),
    },
    Knob {
        name: "ring",
        short: "ring",
        values: "a power of two from 2 to 32768",
        set: |c, v| {
            assign(
                &mut c.ring,
                number(v, 2, 32_768).filter(|n| n.is_power_of_two()),
            )
        },
        tell: |c| c.ring.to_string(),
    },
    Knob {
        name: "frame_size",
        short: "frame",
        values: "2048, 4096",
        set: |c, v| {
            assign(
                &mut c.frame_size,
                number(v, 2048, 4096).filter(|n| n.is_power_of_two()),
            )
        },
        tell: |c| c.frame_size.to_string(),
    },
    Knob {
        name: "size",
        short: "size",
        values: "60 to 3500 bytes, without the check sequence",
        set: |c, v| assign(&mut c.size, number(v, 60, 3500)),
        tell: |c| c.size.to_string(),
    },
    Knob {
        name: "interval",
        short: "every",
        values: "a time as in \"1ms\"; \"0\": the next packet as soon as one is back",
        set: |c, v| {
            assign(
                &mut c.interval,
                duration(v).ok().filter(|t| *t <= Duration::from_secs(60)),
            )
        },
        tell: |c| tell_time(c.interval),
    },
    Knob {
        name: "coalescing",
        short: "coalesce",
        values: "\"unchanged\", or a time as in \"0\", \"50us\"",
        set: |c, v| assign(&mut c.coalescing, micros(v, "unchanged")),
        tell: |c| tell_micros(c.coalescing),
    },
    Knob {
        name: "c_state",
        short: "wake",
        values: "\"unchanged\", or the longest that a CPU may take to wake, as in \"0\", \"10us\"",
        set: |c, v| assign(&mut c.c_state, micros(v, "unchanged")),
        tell: |c| tell_micros(c.c_state),
    },
    Knob {
        name: "queues",
        short: "queues",
        values: "1 to 64",
        set: |c, v| assign(&mut c.queues, number(v, 1, 64)),
        tell: |c| c.queues.to_string(),
    },
];

impl Combination {
    /// Knobs and values, as in a document.
    pub fn knobs(&self) -> BTreeMap<String, String> {
        KNOBS
            .iter()
            .map(|knob| (knob.name.to_owned(), (knob.tell)(self)))
            .collect()
    }

    /// Its name: mode, waits and wakeup, and whatever else is non-default.
    pub fn id(&self) -> String {
        let usual = Combination::default();
        let mut id = String::new();
        for (n, knob) in KNOBS.iter().enumerate() {
            let value = (knob.tell)(self);
            if n >= 4 && value == (knob.tell)(&usual) {
                continue;
            }
            if n > 0 {
                id.push(',');
                id.push_str(knob.short);
                id.push('=');
            }
            id.push_str(&value);
        }
        id
    }

    /// The combination of these knobs; knobs that are left out have their usual value.
    ///
    /// # Errors
    /// The knob and value that are none.
    pub fn from_knobs<'a>(
        knobs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Combination, String> {
        let mut combination = Combination::default();
        for (name, value) in knobs {
            let knob = knob_of(name)?;
            if !(knob.set)(&mut combination, value) {
                return Err(format!(
                    "invalid value `{value}` for {name}: {}",
                    knob.values
                ));
            }
        }
        Ok(combination)
    }
}

fn knob_of(name: &str) -> Result<&'static Knob, String> {
    KNOBS.iter().find(|knob| knob.name == name).ok_or_else(|| {
        let names: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
        format!("unknown parameter `{name}`: {}", names.join(", "))
    })
}

/// What is wrong with a document: one line for each mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Mistakes {}

const KEYS: [&str; 9] = [
    "name",
    "seed",
    "blocks",
    "count",
    "duration",
    "warm_up",
    "timeout",
    "time_limit",
    "extras",
];

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    mistakes: Vec<String>,
}

impl Reader<'_> {
    fn wrong(&mut self, at: usize, what: impl fmt::Display) {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        self.mistakes.push(format!("{}:{line}: {what}", self.name));
    }

    fn wrong_value(&mut self, at: usize, key: &str, want: &str) {
        self.wrong(at, format!("{key}: {want}"));
    }

    /// Values of a knob: one, or a list.
    fn values(&mut self, knob: &Knob, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        let one = std::slice::from_ref(value);
        let all: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => one.iter().collect(),
        };
        if all.is_empty() {
            self.wrong_value(
                value.span().start,
                knob.name,
                "an empty list: leave the knob out, or give it a value",
            );
        }
        let mut values = Vec::new();
        for each in all {
            let text = scalar(each.get_ref());
            let mut probe = Combination::default();
            match text {
                Some(text) if (knob.set)(&mut probe, &text) => values.push((knob.tell)(&probe)),
                other => {
                    let shown = other.unwrap_or_else(|| each.get_ref().type_str().to_owned());
                    self.wrong(
                        each.span().start,
                        format!("invalid value `{shown}` for {}: {}", knob.name, knob.values),
                    );
                }
            }
        }
        values
    }
}

/// A value as knobs read it.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(n) => Some(n.as_str().replace('_', "")),
        DeValue::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

impl Sweep {
    /// Reads a document. `name` is what messages call it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, name: &str) -> Result<Sweep, Mistakes> {
        let mut reader = Reader {
            name,
            text,
            mistakes: Vec::new(),
        };
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(e) => {
                reader.wrong(
                    e.span().map_or(0, |s| s.start),
                    e.message().replace('\n', " "),
                );
                return Err(Mistakes(reader.mistakes));
            }
        };
        let mut sweep = Sweep {
            name: "sweep".to_owned(),
            seed: 1,
            blocks: 3,
            count: USUAL_COUNT,
            duration: Duration::from_millis(500),
            warm_up: 200,
            timeout: Duration::from_millis(200),
            time_limit: None,
            extras: false,
            base: Combination::default(),
            combinations: Vec::new(),
            text: text.to_owned(),
        };
        let mut products = None;
        for (key, value) in table.get_ref() {
            let (at, here) = (key.span().start, value.span().start);
            match key.get_ref().as_ref() {
                "base" => read_base(&mut reader, value, &mut sweep.base),
                "product" => products = Some(value),
                known if KEYS.contains(&known) => {
                    read_plain(&mut reader, &mut sweep, known, value.get_ref(), here)
                }
                other => reader.wrong(
                    at,
                    format!(
                        "unknown key `{other}`: {}, [base], [[product]]",
                        KEYS.join(", ")
                    ),
                ),
            }
        }
        // Base first, wherever it stands.
        match products {
            Some(products) => read_products(&mut reader, products, &mut sweep),
            None => reader.wrong(
                0,
                "no [[product]]: it lists the values of the knobs that are swept",
            ),
        }
        // The largest document that would still end this year.
        const MOST: usize = 100_000;
        if sweep.combinations.len() > MOST {
            reader.wrong(0, format!("more than {MOST} combinations"));
        }
        if reader.mistakes.is_empty() {
            Ok(sweep)
        } else {
            reader.mistakes.sort_by_key(|line| line_of(line));
            Err(Mistakes(reader.mistakes))
        }
    }

    /// A document that comes with weir.
    pub fn preset(name: &str) -> Option<&'static str> {
        PRESETS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| *text)
    }

    /// Pings of a run of a combination, those of the warm-up: as many as there is time for.
    pub fn pings(&self, combination: &Combination) -> (u64, u64) {
        let mut count = self.count;
        if !combination.interval.is_zero() {
            let batches = self.duration.as_nanos() / combination.interval.as_nanos().max(1);
            count = count.min(
                (batches as u64)
                    .max(1)
                    .saturating_mul(combination.batch.into()),
            );
        }
        (count, self.warm_up.min(count / 10))
    }
}

fn line_of(mistake: &str) -> u64 {
    mistake
        .split(':')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// Documents that come with weir.
pub const PRESETS: [(&str, &str); 3] = [
    ("default", include_str!("presets/default.toml")),
    ("paper", include_str!("presets/paper.toml")),
    ("quick", include_str!("presets/quick.toml")),
];

fn read_plain(
    reader: &mut Reader<'_>,
    sweep: &mut Sweep,
    key: &str,
    value: &DeValue<'_>,
    at: usize,
) {
    let text = scalar(value).unwrap_or_default();
    let whole: Option<u64> = value.is_integer().then(|| text.parse().ok()).flatten();
    let span = value
        .is_str()
        .then(|| duration(&text).ok())
        .flatten()
        .filter(|t| !t.is_zero());
    let some_time = "a time as in \"500ms\", \"2s\"";
    match key {
        "name" if value.is_str() && !text.is_empty() => sweep.name = text,
        "name" => reader.wrong_value(at, key, "a text"),
        "seed" => match whole {
            Some(n) => sweep.seed = n,
            None => reader.wrong_value(at, key, "a whole number"),
        },
        "blocks" => match whole.filter(|n| (1..=1000).contains(n)) {
            Some(n) => sweep.blocks = n as u32,
            None => reader.wrong_value(at, key, "1 to 1000"),
        },
        "count" => match whole.filter(|n| (10..=10_000_000).contains(n)) {
            Some(n) => sweep.count = n,
            None => reader.wrong_value(at, key, "10 to 10000000 pings of a run"),
        },
        "warm_up" => match whole.filter(|n| *n <= 1_000_000) {
            Some(n) => sweep.warm_up = n,
            None => reader.wrong_value(at, key, "0 to 1000000 pings"),
        },
        "extras" => match value.as_bool() {
            Some(on) => sweep.extras = on,
            None => reader.wrong_value(at, key, "true or false"),
        },
        "duration" => match span {
            Some(t) => sweep.duration = t,
            None => reader.wrong_value(at, key, some_time),
        },
        "timeout" => match span {
            Some(t) => sweep.timeout = t,
            None => reader.wrong_value(at, key, some_time),
        },
        _ => match span {
            Some(t) => sweep.time_limit = Some(t),
            None => reader.wrong_value(at, key, some_time),
        },
    }
}

fn read_base(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, base: &mut Combination) {
    let Some(table) = value.get_ref().as_table() else {
        reader.wrong(value.span().start, "[base] is a table of knobs");
        return;
    };
    for (key, value) in table {
        match knob_of(key.get_ref()) {
            Err(text) => reader.wrong(key.span().start, text),
            Ok(knob) => {
                if value.get_ref().is_array() {
                    reader.wrong(
                        value.span().start,
                        format!(
                            "{}: one value in [base]; lists belong in a [[product]]",
                            knob.name
                        ),
                    );
                } else if let Some(value) = reader.values(knob, value).first() {
                    (knob.set)(base, value);
                }
            }
        }
    }
}

fn read_products(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, sweep: &mut Sweep) {
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong(
            value.span().start,
            "write [[product]], with two brackets: there may be several",
        );
        return;
    };
    let mut seen = BTreeSet::new();
    for product in list.iter() {
        let Some(table) = product.get_ref().as_table() else {
            reader.wrong(product.span().start, "a [[product]] is a table of knobs");
            continue;
        };
        let mut lists: Vec<(&Knob, Vec<String>)> = Vec::new();
        for (key, value) in table {
            match knob_of(key.get_ref()) {
                Err(text) => reader.wrong(key.span().start, text),
                Ok(knob) => {
                    let values = reader.values(knob, value);
                    lists.push((knob, values));
                }
            }
        }
        let many = lists
            .iter()
            .try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
        if many.is_none_or(|n| n > 1_000_000) {
            reader.wrong(product.span().start, "more than 1000000 combinations");
            continue;
        }
        // In the order of the knobs, so that it does not hang on that of the document's lines.
        lists.sort_by_key(|(knob, _)| KNOBS.iter().position(|k| k.name == knob.name));
        let mut all = vec![sweep.base.clone()];
        for (knob, values) in &lists {
            all = all
                .iter()
                .flat_map(|one| {
                    values.iter().map(|value| {
                        let mut next = one.clone();
                        (knob.set)(&mut next, value);
                        next
                    })
                })
                .collect();
        }
        for one in all {
            if seen.insert(one.id()) {
                sweep.combinations.push(one);
            }
        }
    }
}

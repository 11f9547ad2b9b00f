//! The sensor's parsers of application protocols, each as a conversation of two ends. An input is a list of steps: a byte (bit 0 the direction, bit 1 a gap, bit 2 the end of
//! the direction), a length of two bytes, and that many bytes. Streams are given twice, as they are and one byte at a time: both must come to the same transactions.

use weir_sensor::app::{
    Asked, Conversation, PROTOCOLS, Parser, Ports, Protocol, Said, Sums, Transactions, Wanted,
    parser,
};
use weir_sensor::buffer::BufferSet;
use weir_sensor::packet::Direction;

fn wanted() -> Asked {
    Asked::from(Wanted {
        buffers: BufferSet::all(),
        request_body: 20_000,
        response_body: 20_000,
        decompressed: 100_000,
        records: true,
        sums: Sums {
            md5: true,
            sha1: true,
            sha256: true,
            magic: true,
            kept: true,
        },
        whole_files: false,
        keys: true,
        said: Said::ALL,
    })
}

enum Step<'a> {
    Data(Direction, &'a [u8]),
    Gap(Direction, u64),
    End(Direction),
}

fn steps(mut data: &[u8]) -> Vec<Step<'_>> {
    let mut out = Vec::new();
    while let [kind, a, b, rest @ ..] = data {
        let direction = if kind & 1 == 0 {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        let length = usize::from(u16::from_le_bytes([*a, *b]));
        if kind & 2 != 0 {
            out.push(Step::Gap(direction, length as u64));
            data = rest;
            continue;
        }
        let length = length.min(rest.len());
        out.push(Step::Data(direction, &rest[..length]));
        if kind & 4 != 0 {
            out.push(Step::End(direction));
        }
        data = &rest[length..];
    }
    out
}

fn run(mut p: Box<dyn Parser>, steps: &[Step<'_>], piece: usize) -> Transactions {
    let mut out = Transactions::default();
    let mut over = [false; 2];
    for step in steps {
        if out.failed || out.encrypted || out.change.is_some() {
            break;
        }
        match step {
            Step::Data(d, bytes) if !over[d.index()] => {
                for part in bytes.chunks(piece) {
                    if !out.failed && !out.encrypted && out.change.is_none() {
                        p.data(*d, part, 1, &mut out);
                    }
                }
            }
            Step::Gap(d, n) if !over[d.index()] => p.gap(*d, *n, &mut out),
            Step::End(d) if !over[d.index()] => {
                over[d.index()] = true;
                p.end(*d, &mut out);
            }
            _ => {}
        }
        assert!(p.memory() < 4 << 20, "{} bytes held", p.memory());
    }
    out
}

fn dump(out: &Transactions) -> Vec<String> {
    out.live
        .iter()
        .map(|t| {
            let buffers: Vec<_> = t.all().collect();
            format!(
                "{} {:?} {:?} {:?} {:?} {buffers:?} {:?}",
                t.id, t.app, t.events, t.facts, t.files, t.record
            )
        })
        .collect()
}

/// The names of the parsers' targets.
pub fn targets() -> impl Iterator<Item = String> {
    let parsed = PROTOCOLS.iter().filter(|row| row.parser.is_some());
    parsed.map(|row| format!("sensor_{}", row.app.name()))
}

/// The protocol whose parser a target is for, by its name without `sensor_`.
pub fn protocol(name: &str) -> Option<&'static Protocol> {
    let parsed = |row: &&Protocol| row.parser.is_some() && row.app.name() == name;
    PROTOCOLS.iter().find(parsed)
}

/// The parser of a protocol, over what carries it.
pub fn parse(row: &Protocol, data: &[u8]) {
    let w = wanted();
    let steps = steps(data);
    for stream in [true, false] {
        if !row.carrier.has(stream) {
            continue;
        }
        let make = || parser(row.app, stream, &w).expect("it has a parser");
        let whole = run(make(), &steps, usize::MAX);
        if stream {
            let cut = run(make(), &steps, 1);
            assert_eq!(dump(&cut), dump(&whole));
        }
    }
}

/// Recognition, and whatever it leads to, over a stream and over datagrams.
pub fn recognize(data: &[u8]) {
    let w = wanted();
    let ports = Ports {
        client: 40_000,
        server: data.first().copied().map_or(80, u16::from),
    };
    for mut c in [Conversation::stream(ports), Conversation::datagrams(ports)] {
        for step in steps(data) {
            match step {
                Step::Data(d, bytes) => c.data(d, bytes, 1, &w),
                Step::Gap(d, n) => c.gap(d, n),
                Step::End(d) => c.end(d),
            }
            assert!(c.memory() < 4 << 20, "{} bytes held", c.memory());
        }
        c.close();
        assert!(c.transactions.live.iter().all(|t| t.done));
    }
}

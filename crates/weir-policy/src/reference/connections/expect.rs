//! What helpers expect: docs/semantics.md section 7, "Expectations".
//!
//! Owns which packets of no flow are let in because another flow asked for them. Nothing is swept, as in the table of flows.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use weir_packet::parse::{Fragment, Layout, Protocol, word16};

use super::mapping::Clock;
use super::tuple::Tuple;

/// Ports of servers, which no helper opens (RFC 6335 section 6).
const PRIVILEGED: u16 = 1024;

/// Opcodes of requests to read and to write a file (RFC 1350 section 5).
const REQUESTS: RangeInclusive<u16> = 1..=2;

/// Opcodes of data, acknowledgement, error (RFC 1350) and of accepted options (RFC 2347).
const ANSWERS: RangeInclusive<u16> = 3..=6;

/// Bytes of a request: opcode, a name of one character, the mode `mail` and two zeros at least; RFC 2347 says how many at most.
const REQUEST_BYTES: RangeInclusive<usize> = 9..=512;

/// Bytes of the shortest answer.
const ANSWER_BYTES: usize = 4;

/// Live and dead expectations.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectations {
    /// By the tuple of what is expected, with a source port of 0.
    by_tuple: HashMap<Tuple, Expectation>,
}

#[derive(Clone, Debug)]
struct Expectation {
    expected: Expected,
    last_ns: u64,
}

/// What becomes of a packet that is expected.
#[derive(Clone, Debug)]
pub(in crate::reference) struct Expected {
    /// Indices of the rules of the flow that it belongs to.
    pub(in crate::reference) rules: Vec<usize>,
    /// The source address that it gets.
    source: u128,
    /// The destination that it gets.
    destination: u128,
    destination_port: u16,
}

impl Expected {
    /// The tuple that the packet is sent on with.
    pub(super) fn translated(&self, orig: Tuple) -> Tuple {
        Tuple {
            source: self.source,
            destination: self.destination,
            destination_port: self.destination_port,
            ..orig
        }
    }
}

impl Expectations {
    /// The live expectation that a packet of no flow meets.
    pub(super) fn of(&self, tuple: &Tuple, clock: Clock) -> Option<Expected> {
        let found = self.by_tuple.get(&from_any_port(*tuple))?;
        (!clock.is_over(found.last_ns)).then(|| found.expected.clone())
    }

    /// A packet with this tuple opens a flow.
    pub(super) fn use_up(&mut self, tuple: &Tuple) {
        self.by_tuple.remove(&from_any_port(*tuple));
    }

    /// A flow with these tuples asks for an answer from another port.
    pub(super) fn add(&mut self, orig: Tuple, trans: Tuple, rules: &[usize], now_ns: u64) {
        if orig.source_port < PRIVILEGED || trans.source_port < PRIVILEGED {
            return;
        }
        let expectation = Expectation {
            expected: Expected {
                rules: rules.to_vec(),
                source: orig.destination,
                destination: orig.source,
                destination_port: orig.source_port,
            },
            last_ns: now_ns,
        };
        self.by_tuple
            .insert(from_any_port(trans.reversed()), expectation);
    }
}

fn from_any_port(tuple: Tuple) -> Tuple {
    Tuple {
        source_port: 0,
        ..tuple
    }
}

/// Whether a packet asks a TFTP server for a file.
pub(super) fn is_request(frame: &[u8], layout: &Layout) -> bool {
    let whole = (layout.ip.as_ref()).is_some_and(|ip| ip.fragment == Fragment::Whole);
    let payload = udp_payload(frame, layout);
    whole
        && REQUEST_BYTES.contains(&payload.len())
        && REQUESTS.contains(&word16(payload, 0))
        && payload.last() == Some(&0)
}

/// Whether a packet can be what a TFTP server answers.
pub(super) fn answers_request(frame: &[u8], layout: &Layout) -> bool {
    let payload = udp_payload(frame, layout);
    payload.len() >= ANSWER_BYTES && ANSWERS.contains(&word16(payload, 0))
}

fn udp_payload<'a>(frame: &'a [u8], layout: &Layout) -> &'a [u8] {
    let l4 = (layout.l4.as_ref()).filter(|l4| l4.protocol == Protocol::Udp);
    l4.and_then(|l4| frame.get(l4.payload.clone()))
        .unwrap_or_default()
}

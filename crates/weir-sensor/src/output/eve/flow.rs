//! Ends of flows: as one record, and as one for each direction (`netflow`).

use std::net::IpAddr;

use super::{AppNames, EveOptions, Head, Object, app_names, begin, json};

/// A flow as records show it.
#[derive(Clone, Copy, Debug)]
pub struct FlowFacts {
    /// Who opened it.
    pub client: (IpAddr, u16),
    /// The other end.
    pub server: (IpAddr, u16),
    /// Packets to server and to client.
    pub packets: [u64; 2],
    /// Bytes to server and to client, of whole frames.
    pub bytes: [u64; 2],
    /// Time of the first packet, ns.
    pub start: u64,
    /// Time of the last one.
    pub end: u64,
    /// `new`, `established`, `closed`.
    pub state: &'static str,
    /// Whether a rule alerted in it.
    pub alerted: bool,
    /// Transactions of its application, if a parser reads it.
    pub transactions: Option<u64>,
    /// What is done with its packets, if that was decided for all of them.
    pub action: Option<&'static str>,
    /// The exception policy that was applied because its beginning was not seen.
    pub exception: Option<&'static str>,
    /// Where its packets were let by, if they were: `local`, `capture`.
    pub bypass: Option<&'static str>,
    /// And the one that was because its parser gave up.
    pub error: Option<&'static str>,
    /// Whether it is a TCP session whose beginning was not seen.
    pub midstream: bool,
}

/// Of a TCP flow.
#[derive(Clone, Copy, Debug)]
pub struct TcpFacts {
    /// Flags of all packets to server, and to client.
    pub flags: [u8; 2],
    /// State, as `established`; none where no session was seen to begin.
    pub state: Option<&'static str>,
    /// Whether bytes were lost to server, and to client.
    pub gaps: [bool; 2],
    /// Stretches that bytes which waited lay in at once, at most, to server and to client.
    pub regions: [u64; 2],
}

impl TcpFacts {
    /// Whether there were packets of a session that was not seen to begin; a RST alone is none.
    fn is_passed_by(&self) -> bool {
        let talks = |flags: u8| flags != 0 && (flags & 4 == 0 || flags & 9 != 0);
        self.state.is_none() && self.flags.into_iter().any(talks)
    }
}

/// The end of a flow. `reason`: `timeout`, `forced`, `shutdown`, `tcp_reuse`.
pub fn flow(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    facts: &FlowFacts,
    tcp: Option<&TcpFacts>,
    app: &AppNames,
    reason: &str,
    options: &EveOptions,
) {
    let mut o = begin(out, "flow", head, options);
    app_names(&mut o, app);
    let mut f = o.object("flow");
    counts(&mut f, facts);
    f.time("start", facts.start);
    f.time("end", facts.end);
    f.number("age", age(facts));
    f.string("state", facts.state);
    if let Some(place) = facts.bypass {
        f.string("bypass", place);
    }
    f.string("reason", reason);
    f.boolean("alerted", facts.alerted);
    if let Some(action) = facts.action {
        f.string("action", action);
    }
    if let Some(count) = facts.transactions {
        f.number("tx_cnt", count);
    }
    if facts.midstream {
        f.boolean("midstream", true);
    }
    // Packets of a session that was not seen to begin: why nothing of it was put together.
    let passed_by = tcp.is_some_and(TcpFacts::is_passed_by).then_some("ignore");
    let applied = [
        ("stream_midstream", facts.exception.or(passed_by)),
        ("app_layer_error", facts.error),
    ];
    let applied = applied.into_iter().filter_map(|(of, p)| Some((of, p?)));
    let applied: Vec<_> = applied.collect();
    if !applied.is_empty() {
        json::list(f.key("exception_policy"), applied, |out, (of, policy)| {
            let mut one = Object::new(out);
            one.string("target", of);
            one.string("policy", policy);
            one.end();
        });
    }
    f.end();
    if let Some(tcp) = tcp {
        let mut t = o.object("tcp");
        // What no session was seen of says nothing but that.
        let flags = if tcp.state.is_some() {
            tcp.flags
        } else {
            [0; 2]
        };
        let all = flags[0] | flags[1];
        t.plain("tcp_flags", format_args!("{all:02x}"));
        t.plain("tcp_flags_ts", format_args!("{:02x}", flags[0]));
        t.plain("tcp_flags_tc", format_args!("{:02x}", flags[1]));
        flag_names(&mut t, all);
        if let Some(state) = tcp.state {
            t.string("state", state);
        }
        for (gap, name) in [(tcp.gaps[0], "ts_gap"), (tcp.gaps[1], "tc_gap")] {
            if gap {
                t.boolean(name, true);
            }
        }
        if tcp.state.is_some() {
            t.number("ts_max_regions", tcp.regions[0]);
            t.number("tc_max_regions", tcp.regions[1]);
        }
        t.end();
    }
    o.end();
    out.push(b'\n');
}

/// What one direction of a flow sent, by its end: the head names that direction, which is `direction` (0: to server). `ttl` is the least and the greatest, `flags` those of TCP.
pub fn netflow(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    (facts, ttl): (&FlowFacts, (u8, u8)),
    flags: u8,
    app: &AppNames,
    direction: usize,
    options: &EveOptions,
) {
    let mut o = begin(out, "netflow", head, options);
    o.string("app_proto", app.name.unwrap_or("unknown"));
    let mut f = o.object("netflow");
    f.number("pkts", facts.packets[direction]);
    f.number("bytes", facts.bytes[direction]);
    f.time("start", facts.start);
    f.time("end", facts.end);
    f.number("age", age(facts));
    f.number("min_ttl", u64::from(ttl.0));
    f.number("max_ttl", u64::from(ttl.1));
    if let Some(count) = facts.transactions {
        f.number("tx_cnt", count);
    }
    f.end();
    if head.protocol == 6 {
        let mut t = o.object("tcp");
        t.plain("tcp_flags", format_args!("{flags:02x}"));
        flag_names(&mut t, flags);
        t.end();
    }
    o.end();
    out.push(b'\n');
}

/// Whole seconds between the first and the last packet's.
fn age(facts: &FlowFacts) -> u64 {
    (facts.end / 1_000_000_000).saturating_sub(facts.start / 1_000_000_000)
}

pub(super) fn counts(o: &mut Object<'_>, flow: &FlowFacts) {
    o.number("pkts_toserver", flow.packets[0]);
    o.number("pkts_toclient", flow.packets[1]);
    o.number("bytes_toserver", flow.bytes[0]);
    o.number("bytes_toclient", flow.bytes[1]);
}

fn flag_names(o: &mut Object<'_>, flags: u8) {
    for (bit, name) in [
        (2, "syn"),
        (1, "fin"),
        (4, "rst"),
        (8, "psh"),
        (16, "ack"),
        (32, "urg"),
        (64, "ecn"),
        (128, "cwr"),
    ] {
        if flags & bit != 0 {
            o.boolean(name, true);
        }
    }
}

//! A filter on an edge: a changed list replaces it while its counters go on, and sources it blocked stay blocked.

use std::time::Duration;

use crate::edge_bed;
use crate::edge_bed::{Bed, Down, chain, edge_name, root, wired};
use crate::filters;
use crate::filters::{compiled, filter, planned};
use weir_engine::edge;
use weir_functions::filter::FilterReport;
use weir_kernel::FrameSocket;
use weir_packet::build::Frame;

/// What the filter of an edge counted, what was carried over included.
fn report(bed: &Bed, edge: &str, text: &str) -> FilterReport {
    let filter = filter(text);
    let compiled = compiled(&filter).expect("compiles");
    bed.on_edge(|| {
        let status = edge::status(edge).expect("runs");
        let counters = status.instances[0].filter_counters().expect("read");
        counters.expect("a filter").report(&filter, &compiled)
    })
}

#[test]
fn a_list_is_replaced_and_counters_and_blocks_go_on() {
    if !root("a_list_is_replaced_and_counters_and_blocks_go_on") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("filter");
    let _down = Down::of(&bed, &name);
    let rules = r#"rules = ["deny from @bad", "limit udp rate 1/h burst 5 per source block 1h"]"#;
    let before = format!("{rules}\nsets.bad = [\"10.0.0.0/24\", \"10.0.0.1\", \"10.0.0.2\"]");
    let after = format!(
        "{rules}\nsets.bad = [\"172.16.0.0/12\", \"10.0.0.2\", \"10.0.0.3\", \"10.0.0.0/24\", \"192.0.2.0/24\"]"
    );
    let mut plan = chain(&name, 1);
    let apply = |plan: &weir_graph::Model| {
        bed.on_edge(|| edge::apply(&wired(plan), "text"))
            .expect("applies")
    };
    plan.instances[0].planned = planned(&before);
    apply(&plan);

    let socket =
        FrameSocket::open(&bed.sender, "a0", 1 << 20, Duration::from_millis(10)).expect("a socket");
    let send = |source: [u8; 4], count: usize| {
        let frame = Frame::new()
            .ip4(source, [198, 51, 100, 1])
            .udp(1000, 2000)
            .payload(&[0; 20])
            .build();
        for _ in 0..count {
            socket.send(&frame).expect("sent");
        }
    };
    let counted = |text: &str| {
        let report = edge_bed::settled(|| report(&bed, &name, text));
        let rules: Vec<(u64, u64, u64)> = report
            .rules
            .iter()
            .map(|r| (r.packets, r.dropped, r.blocked))
            .collect();
        let entries: Vec<(String, u64)> = report
            .entries
            .iter()
            .map(|e| (e.prefix.clone(), e.packets))
            .collect();
        (rules, entries)
    };
    let entry = |prefix: &str, packets| (prefix.to_owned(), packets);
    send([10, 0, 0, 1], 10);
    send([10, 0, 0, 2], 20);
    send([10, 0, 0, 9], 3);
    // Five pass, the sixth is over the limit and blocks its source.
    send([203, 0, 113, 1], 8);
    let (counts, entries) = counted(&before);
    assert_eq!(counts, [(33, 33, 0), (6, 1, 1)]);
    assert_eq!(
        entries,
        [
            entry("10.0.0.0/24", 3),
            entry("10.0.0.1", 10),
            entry("10.0.0.2", 20)
        ]
    );

    plan.instances[0].planned = planned(&after);
    let applied = apply(&plan);
    assert_eq!(applied.replaced, ["f0"]);
    // An entry that is gone takes its hits with it; the rule keeps them.
    let (counts, entries) = counted(&after);
    assert_eq!(counts, [(33, 33, 0), (6, 1, 1)]);
    assert_eq!(entries, [entry("10.0.0.2", 20), entry("10.0.0.0/24", 3)]);
    send([10, 0, 0, 2], 1);
    send([10, 0, 0, 1], 2);
    send([172, 20, 0, 1], 4);
    send([203, 0, 113, 1], 7);
    let (counts, entries) = counted(&after);
    assert_eq!(
        counts,
        [(40, 40, 0), (6, 1, 1)],
        "the blocked source asks no rule"
    );
    assert_eq!(
        entries,
        [
            entry("172.16.0.0/12", 4),
            entry("10.0.0.2", 21),
            entry("10.0.0.0/24", 5)
        ]
    );
    let reasons = bed.on_edge(|| edge::status(&name)).expect("runs").instances[0].reasons();
    assert!(reasons.contains(&("blocked", 9)), "{reasons:?}");

    // Once more, over what was carried already.
    plan.instances[0].planned = planned(&before);
    apply(&plan);
    let (counts, entries) = counted(&before);
    assert_eq!(counts, [(40, 40, 0), (6, 1, 1)]);
    assert_eq!(entries, [entry("10.0.0.0/24", 5), entry("10.0.0.2", 21)]);
}

#[test]
fn hits_are_exact_beyond_what_small_counters_hold() {
    const PACKETS: u64 = 2 * 65_536 + 7;
    // One entry alone in its part of the address space, one beside others, one of IPv6.
    let filter = filter(
        "rules = [\"deny from @bad\"]\n[sets]\nbad = [\"198.51.0.0/16\", \"192.0.2.1\", \"192.0.2.7\", \"2001:db8::/32\"]\n",
    );
    let compiled = compiled(&filter).expect("compiles");
    let frames = [
        Frame::new().ip4([198, 51, 100, 1], [192, 0, 2, 2]),
        Frame::new().ip4([192, 0, 2, 1], [192, 0, 2, 2]),
        Frame::new().ip6(
            std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets(),
            [1; 16],
        ),
    ]
    .map(|frame| frame.udp(1, 2).build());
    for mut run in filters::engines(&compiled) {
        let mut out = Vec::new();
        for frame in &frames {
            for _ in 0..PACKETS {
                assert_eq!(run.packet(frame, 1, &mut out), 1);
            }
        }
        let (_, counts, hits) = filters::runs::counted(run.as_ref(), &compiled);
        let report = compiled.report(&filter, &counts, &hits);
        let entries: Vec<_> = report
            .entries
            .iter()
            .map(|entry| (entry.prefix.as_str(), entry.packets))
            .collect();
        let wanted = ["198.51.0.0/16", "192.0.2.1", "2001:db8::/32"].map(|p| (p, PACKETS));
        assert_eq!(entries, wanted, "{}", run.name());
        let rule = &report.rules[0];
        assert_eq!((rule.packets, rule.dropped), (3 * PACKETS, 3 * PACKETS));
    }
}

#[test]
fn crowded_parts_of_the_address_space_are_told_apart() {
    // Every other address of a /20: more intervals than a block of a /16 holds. On both sides of the packet.
    let lines: Vec<String> = (0..2048u32)
        .map(|n| format!("\"10.1.{}.{}\"", n >> 7, (n & 127) * 2))
        .collect();
    let list = lines.join(", ");
    let filter = filter(&format!(
        "rules = [\"deny from @bad\", \"deny to @bad\"]\n[sets]\nbad = [{list}]\n"
    ));
    let compiled = compiled(&filter).expect("compiles");
    for mut run in filters::engines(&compiled) {
        let mut out = Vec::new();
        let mut dropped = 0;
        for n in (0..4096u32).step_by(13) {
            let inside = [10, 1, (n >> 8) as u8, n as u8];
            for (from, to) in [(inside, [192, 0, 2, 1]), ([192, 0, 2, 1], inside)] {
                let frame = Frame::new().ip4(from, to).udp(1, 2).build();
                let is_bad = n % 2 == 0;
                let wanted = if is_bad { 1 } else { 2 };
                let name = run.name();
                assert_eq!(
                    run.packet(&frame, 1, &mut out),
                    wanted,
                    "{name}: {from:?} > {to:?}"
                );
                dropped += u64::from(is_bad);
            }
        }
        let (_, counts, hits) = filters::runs::counted(run.as_ref(), &compiled);
        let report = compiled.report(&filter, &counts, &hits);
        assert!(report.entries.iter().all(|entry| entry.packets == 2));
        assert_eq!(report.entries.len() as u64 * 2, dropped, "{}", run.name());
    }
}

#[test]
fn hits_of_many_lists_over_one_address_are_told_apart() {
    // More than have room beside an interval.
    const LISTS: u16 = 40;
    let rules: Vec<String> = (0..LISTS)
        .map(|n| format!("\"deny from @s{n:02} to-port {}\"", 1000 + n))
        .collect();
    let sets: String = (0..LISTS)
        .map(|n| format!("s{n:02} = [\"192.0.2.0/24\"]\n"))
        .collect();
    let filter = filter(&format!("rules = [{}]\n[sets]\n{sets}", rules.join(", ")));
    let compiled = compiled(&filter).expect("compiles");
    for mut run in filters::engines(&compiled) {
        let mut out = Vec::new();
        for n in 0..LISTS {
            for _ in 0..=n {
                let frame = Frame::new().ip4([192, 0, 2, 9], [192, 0, 2, 1]);
                let frame = frame.udp(1, 1000 + n).build();
                assert_eq!(run.packet(&frame, 1, &mut out), 1);
            }
        }
        let (_, counts, hits) = filters::runs::counted(run.as_ref(), &compiled);
        let report = compiled.report(&filter, &counts, &hits);
        let found: Vec<u64> = report.entries.iter().map(|entry| entry.packets).collect();
        let wanted: Vec<u64> = (1..=u64::from(LISTS)).collect();
        assert_eq!(found, wanted, "{}", run.name());
    }
}

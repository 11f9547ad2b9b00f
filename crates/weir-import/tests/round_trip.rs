//! A policy exported to nftables and loaded in the kernel: the same verdicts and the same bytes on random packets, and every rule that is not in
//! it named.

use weir_import::{Effect, export_nft};
use weir_packet::Verdict;
use weir_packet::build::Frame;
use weir_policy::reference::{Input, Meta, Options, PortId, Reference};
use weir_policy::{NoFiles, Source, parse};

use crate::packets::{INTERFACES, Numbers, Packet};
use crate::verdicts::{can_ask, compare, kernel};

/// Everything that has a verdict on a packet alone, and what has none.
const POLICY: &str = "\
set web = { 80, 443, 8000-8999 }
set bogons = { 10.9.0.0/16, 172.16.0.0/12, 192.0.2.0/24 }
in wan0 ip-saddr in @bogons drop
in != lan0 eth-saddr 02:00:00:00:66:01 drop
l4-proto in { gre, esp } ip-daddr 10.20.0.0/24 accept
! l4-proto in { 1, 6, 17, 58 } drop
tcp-dport in @web tcp-syn accept
sport 5060 dport 5000-5100 log \"sip\" accept
dport in { 135, 137-139 } drop
! sport l4-proto 58 ip6-hop-limit < 3 drop
tcp-flags syn/syn,ack ip-dscp ef drop
icmp-type 8 in wan0 drop
icmp6-type in { 1-4 } accept
ip-len > 1400 udp drop
ip6-daddr 2001:db8:20::/64 udp-dport != 53 drop
! ip-ttl 64-255 ip-saddr 192.168.10.0/24 drop
net-proto in { ip4, ip6 } ip-res drop
net-proto in { ip4, ip6 } ip6-traffic-class 4 udp drop
";

/// With rules that nftables has no words for.
const MORE: &str = "\
add-stateful in lan0 tcp accept
udp-dport 53 drop over 100/s
ip-ttl < 5 ttl dec
queue 3 drop
";

#[test]
fn an_exported_policy_judges_as_the_policy() {
    if !can_ask("nft") {
        return;
    }
    let parsed = parse(&Source::new("test", POLICY), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &INTERFACES.map(str::to_owned));
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(made.rules, parsed.policy.rules.len());
    let router = kernel();
    router.feed("nft", &["-f", "-"], &made.ruleset);
    compare("exported", POLICY, true, |_, frames| router.passed(frames));
}

#[test]
fn a_log_with_a_limit_is_exported_with_it() {
    let text = "udp-dport 53 log \"dns\" limit 7/m burst 4 drop\nudp drop over 1M bytes\n";
    let parsed = parse(&Source::new("test", text), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["eth0".to_owned()]);
    let line = "udp dport == 53 limit rate 7/minute burst 4 packets log prefix \"dns\"";
    assert!(made.ruleset.contains(line), "{}", made.ruleset);
    let found: Vec<(u32, Effect)> = (made.findings.iter())
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(found, [(2, Effect::Wider)]);
    if can_ask("nft") {
        kernel().feed("nft", &["-f", "-"], &made.ruleset);
    }
}

#[test]
fn what_nftables_cannot_say_is_named() {
    let parsed = parse(&Source::new("test", MORE), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["eth0".to_owned()]);
    let found: Vec<(u32, Effect)> = made
        .findings
        .iter()
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(
        found,
        [
            (1, Effect::Narrower),
            (2, Effect::Wider),
            (3, Effect::NoChange),
            (4, Effect::Wider)
        ]
    );
    assert_eq!(made.rules, 0);
}

/// Writes of every kind that nftables has, on packets that come by `lan0`, and tests that need several lines.
const WRITES: &str = "\
ip-ttl 2 drop
in lan0 tcp-dport in { 22, 3389 } mod ip-dscp cs6 mod ip-ttl 64 priority set 1:10
udp-dport 53 mod ip-dscp ef mod ip-ect1
udp-dport 5000-9000 mod ip6-dscp af41 mod ip6-hop-limit 9
ip6-saddr 2001:db8:10::/64 mod ip6-flow-label x54321
! frag ip-payload[0] == x00 mod ip-id 7
vlan-id 100-199 mod vlan-id 42 mod vlan-pcp 5
vlan-dei mod vlan-dei 0
tcp-syn tcp-opt-mss > 1400 mod tcp-opt-mss 1400
tcp-dport < 1024 mark set x10
udp mark set x23/xff
ip-saddr 192.168.20.0/24 mark set x4500/xff00
ip-dscp ef accept
icmp-type 8 ip-len > 30 drop
";

/// VLAN identifiers of packets, and what they become.
const TAGS: [u16; 6] = [5, 42, 100, 150, 200, 250];

/// What stands beside a packet shows in its addresses, since a packet socket receives neither: the mark in the destination, priority and tag in
/// the source.
fn shown() -> String {
    let mut lines = Vec::new();
    for mark in [0u32, 0x10, 0x23, 0x4500, 0x4510, 0x4523] {
        lines.push(format!("meta mark {mark:#x} @ll,32,16 set {mark}"));
    }
    lines.push("meta priority 1:10 @ll,64,8 set 0x11".to_owned());
    for top in 0..16 {
        let set = top + 0x40;
        lines.push(format!(
            "@ll,96,16 0x8100 @ll,112,4 == {top} @ll,72,8 set {set}"
        ));
    }
    for id in TAGS {
        lines.push(format!(
            "@ll,96,16 0x8100 @ll,116,12 == {id} @ll,80,16 set {id}"
        ));
    }
    lines.push("fwd to \"dmz0\"".to_owned());
    format!(
        "table netdev shown {{\nchain beside {{ type filter hook ingress device \"lan0\" priority 10; policy accept;\n{}\n}}\n}}\n",
        lines.join("\n")
    )
}

/// The same of a packet that weir lets through.
fn as_shown(mut frame: Vec<u8>, meta: Meta) -> Vec<u8> {
    frame[4..6].copy_from_slice(&(meta.mark as u16).to_be_bytes());
    if meta.priority == 0x1_0010 {
        frame[8] = 0x11;
    }
    if frame[12..14] == [0x81, 0] {
        let tci = u16::from_be_bytes([frame[14], frame[15]]);
        frame[9] = 0x40 + (tci >> 12) as u8;
        frame[10..12].copy_from_slice(&(tci & 0xfff).to_be_bytes());
        frame.drain(12..16);
    }
    frame
}

#[test]
fn an_exported_policy_writes_as_the_policy() {
    if !can_ask("nft") {
        return;
    }
    let parsed = parse(&Source::new("test", WRITES), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["lan0".to_owned()]);
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(made.rules, parsed.policy.rules.len());
    let router = kernel();
    router.feed("nft", &["-f", "-"], &made.ruleset);
    router.feed("nft", &["-f", "-"], &shown());

    let mut weir = Reference::new(parsed.policy, Options::default());
    let mut numbers = Numbers(17);
    let mut changed = vec![0; made.rules];
    let (mut passed, mut compared) = (0, 0);
    for batch in 0..100u16 {
        let frames: Vec<Vec<u8>> = (1..=200)
            .map(|number| tagged(&mut numbers, batch * 200 + number))
            .collect();
        let expected: Vec<Vec<u8>> = (frames.iter())
            .filter_map(|frame| {
                compared += 1;
                let outcome = weir.run(Input {
                    port: PortId {
                        name: Some("lan0"),
                        index: 2,
                    },
                    number: compared,
                    ..Input::new(frame)
                });
                for id in outcome.matched {
                    changed[id as usize - 1] += 1;
                }
                let frame = as_shown(outcome.frame, outcome.meta);
                (outcome.verdict == Verdict::Pass).then_some(frame)
            })
            .collect();
        let came = router.bounced(&frames);
        for (n, (came, expected)) in came.iter().zip(&expected).enumerate() {
            assert_eq!(
                came,
                expected,
                "packet {n} of batch {batch}: {}\n{}",
                weir_packet::summary(came),
                made.ruleset
            );
        }
        assert_eq!(came.len(), expected.len());
        passed += came.len();
    }
    // Each rule had its packets.
    assert!(changed.iter().all(|packets| *packets > 20), "{changed:?}");
    assert!(passed > 10_000, "{passed}");
}

/// A packet, one in two with a tag.
fn tagged(numbers: &mut Numbers, number: u16) -> Vec<u8> {
    let mut frame = match numbers.below(3) {
        0 => of_fields(numbers),
        _ => Packet::any(numbers, true).frame(number),
    };
    if numbers.below(2) == 0 {
        let id = TAGS[numbers.below(TAGS.len() as u64) as usize];
        let tci = (numbers.below(16) as u16) << 12 | id;
        let bytes = tci.to_be_bytes();
        frame.splice(12..12, [0x81, 0, bytes[0], bytes[1]]);
    }
    frame
}

/// A packet with what others have not: a maximum segment size, fragments, ECN.
fn of_fields(numbers: &mut Numbers) -> Vec<u8> {
    let net = [10, 20][numbers.below(2) as usize];
    let frame = Frame::new()
        .ip4([192, 168, net, 7], [10, 20, 0, 10])
        .ttl([2, 3, 64, 255][numbers.below(4) as usize])
        .traffic_class(numbers.below(256) as u8);
    match numbers.below(3) {
        0 => {
            let size = [536u16, 1400, 1401, 9000][numbers.below(4) as usize];
            let port = [22, 443, 8080][numbers.below(3) as usize];
            (frame.tcp(40_000, port).flags(2))
                .tcp_option(2, &size.to_be_bytes())
                .build()
        }
        1 => (frame.fragment(0, true).udp(53, 53))
            .payload(&[7; 16])
            .build(),
        _ => frame.udp(200, 6000).payload(b"data").build(),
    }
}

#[test]
fn what_a_rule_tests_is_not_written_before() {
    let text = "ip-ttl < 5 mod ip-ttl 64\nip-ttl 64 mod ip-dscp 8\nudp mark set 5\nfrag mod ip-id 1\nfrag mark set 6\n";
    let parsed = parse(&Source::new("test", text), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["eth0".to_owned()]);
    let found: Vec<u32> = made.findings.iter().map(|one| one.line).collect();
    // The third test of `frag` needs the mark that line 3 wrote.
    assert_eq!(found, [2, 4, 5], "{}", made.ruleset);
    assert_eq!(made.rules, 2);
}

#[test]
fn bits_of_tests_do_not_stay_in_the_mark() {
    let text = "frag udp drop\ntcp-dport 22 accept\nall drop\n";
    let parsed = parse(&Source::new("test", text), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["eth0".to_owned()]);
    let text = &made.ruleset;
    assert!(
        text.contains("chain passed {\n        meta mark set 0\n    }"),
        "{text}"
    );
    assert!(text.contains("tcp dport == 22 goto passed"), "{text}");
    if can_ask("nft") {
        kernel().feed("nft", &["-f", "-"], text);
    }
}

/// Rejections of all kinds, behind silent drops and in front of them, and with an accept that overrides them.
const REJECTS: &str = "\
udp-dport 137-139 drop
tcp-dport 22 ip-saddr 192.168.10.0/28 accept
tcp-dport { 25, 110, 143 } reject with tcp-reset
ip-daddr 10.20.0.0/28 udp reject with icmp host-prohibited
ip6-daddr 2001:db8:20::/64 udp reject with icmp6 policy-fail
tcp-dport 443 reject with icmpx port-unreachable
icmp-type 8 reject with icmp net-unreachable
dport 1-1023 reject
l4-proto in { gre, esp } reject with icmpx no-route
tcp-dport 25 drop
";

/// What both answers say: addresses, ports, numbers and flags of a reset; type, code and the begin of the quote of an error.
fn essence(frame: &[u8]) -> Vec<u8> {
    let (ip, l4) = match frame[14] >> 4 {
        4 => (&frame[26..34], 34),
        _ => (&frame[22..54], 54),
    };
    let protocol = if l4 == 34 { frame[23] } else { frame[20] };
    let body = match protocol {
        6 => [&frame[l4..l4 + 12], &frame[l4 + 13..l4 + 14]].concat(),
        // No router is on the path, so TTL and checksum of the quoted header are unchanged.
        _ => [
            &frame[l4..l4 + 2],
            &frame[l4 + 8..(l4 + 8 + 28).min(frame.len())],
        ]
        .concat(),
    };
    [&frame[..14], &[protocol], ip, &body].concat()
}

#[test]
fn an_exported_policy_answers_as_the_policy() {
    if !can_ask("nft") {
        return;
    }
    let policy = REJECTS.replace("{ 25, 110, 143 }", "in { 25, 110, 143 }");
    let parsed = parse(&Source::new("test", policy.as_str()), &NoFiles).expect("a policy");
    let made = export_nft(&parsed.policy, &["lan0".to_owned()]);
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    let router = kernel();
    router.feed("nft", &["-f", "-"], &made.ruleset);
    // Only answers come back.
    let nothing = "table inet nothing {\nchain passes { type filter hook prerouting priority 0; policy drop; }\n}\n";
    router.feed("nft", &["-f", "-"], nothing);
    let mut weir = Reference::new(parsed.policy, Options::default());
    let mut numbers = Numbers(23);
    let (mut number, mut resets, mut errors) = (0, 0, 0);
    for batch in 0..100u16 {
        let frames: Vec<Vec<u8>> = (1..=100)
            .map(|number| (Packet::any(&mut numbers, true), batch * 100 + number))
            // nftables answers a reset with an error, weir does not.
            .filter(|(packet, _)| packet.protocol != 6 || packet.flags & 4 == 0)
            .map(|(packet, number)| packet.frame(number))
            .collect();
        let expected: Vec<Vec<u8>> = (frames.iter())
            .filter_map(|frame| {
                number += 1;
                let outcome = weir.run(Input {
                    port: PortId {
                        name: Some("lan0"),
                        index: 2,
                    },
                    number,
                    // Below the rate of answers.
                    now_ns: number * 2_000_000,
                    ..Input::new(frame)
                });
                (outcome.verdict == Verdict::Tx).then_some(outcome.frame)
            })
            .collect();
        let came = router.answers(&frames);
        for (came, expected) in came.iter().zip(&expected) {
            assert_eq!(
                essence(came),
                essence(expected),
                "{}\n{}\n{}",
                weir_packet::summary(came),
                weir_packet::summary(expected),
                made.ruleset
            );
            let is_reset = came[if came[14] >> 4 == 4 { 23 } else { 20 }] == 6;
            resets += usize::from(is_reset);
            errors += usize::from(!is_reset);
        }
        assert_eq!(came.len(), expected.len(), "batch {batch}");
    }
    assert!(
        resets > 300 && errors > 300,
        "{resets} resets, {errors} errors"
    );
}

//! How senders are told: `REJECT`, `reject` and `block return` as `reject` of weir.

use weir_import::{Effect, Format, Imported, Options, import};
use weir_packet::Verdict;
use weir_packet::build::Frame;
use weir_policy::reference::{Input, Options as Run, Reference};
use weir_policy::{NoFiles, Source};

fn imported(format: Format, text: &str) -> Imported {
    let options = Options {
        chain: Some("forward".to_owned()),
        ..Options::default()
    };
    let made = import(format, text, "test", &options).expect("it is read");
    if let Err(errors) = weir_policy::parse(&Source::new("test", made.policy.as_str()), &NoFiles) {
        panic!("{}\n{}", errors.render(false), made.policy);
    }
    made
}

fn iptables(format: Format, rules: &str) -> Imported {
    let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n{rules}COMMIT\n");
    imported(format, &text)
}

fn nft(family: &str, rules: &str) -> Imported {
    let text = format!(
        "table {family} t {{\n chain c {{\n type filter hook forward priority 0; policy accept;\n{rules}}}\n}}\n"
    );
    imported(Format::Nft, &text)
}

/// Rules without comments.
fn rules(made: &Imported) -> Vec<&str> {
    let is_rule = |line: &&str| !line.is_empty() && !line.starts_with('#');
    made.policy.lines().filter(is_rule).collect()
}

/// What the policy sends back: `reset`, type and code of an ICMP error, or nothing; and the verdict.
fn told(made: &Imported, frame: &[u8]) -> String {
    let source = Source::new("test", made.policy.as_str());
    let policy = weir_policy::parse(&source, &NoFiles)
        .expect("a policy")
        .policy;
    let outcome = Reference::new(policy, Run::default()).run(Input::new(frame));
    match outcome.verdict {
        Verdict::Pass => "passes".to_owned(),
        Verdict::Drop => "silent".to_owned(),
        _ => {
            let frame = outcome.frame;
            let (protocol, at) = match frame[14] >> 4 {
                4 => (frame[23], 34),
                _ => (frame[20], 54),
            };
            match protocol {
                6 => format!("flags {:#x}", frame[at + 13]),
                _ => format!("{} {}", frame[at], frame[at + 1]),
            }
        }
    }
}

fn tcp(port: u16) -> Vec<u8> {
    (Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(4000, port)
        .flags(2))
    .build()
}

fn udp(port: u16) -> Vec<u8> {
    Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(4000, port)
        .build()
}

fn echo() -> Vec<u8> {
    Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .icmp(8, 0)
        .build()
}

const RESET: &str = "flags 0x14";

#[test]
fn every_answer_of_iptables_has_its_counterpart() {
    for (format, word, told) in [
        (
            Format::IptablesSave,
            "icmp-net-unreachable",
            "icmp net-unreachable",
        ),
        (
            Format::IptablesSave,
            "icmp-host-unreachable",
            "icmp host-unreachable",
        ),
        (
            Format::IptablesSave,
            "icmp-proto-unreachable",
            "icmp prot-unreachable",
        ),
        (
            Format::IptablesSave,
            "icmp-port-unreachable",
            "icmp port-unreachable",
        ),
        (
            Format::IptablesSave,
            "icmp-net-prohibited",
            "icmp net-prohibited",
        ),
        (
            Format::IptablesSave,
            "icmp-host-prohibited",
            "icmp host-prohibited",
        ),
        (
            Format::IptablesSave,
            "icmp-admin-prohibited",
            "icmp admin-prohibited",
        ),
        (Format::IptablesSave, "host-prohib", "icmp host-prohibited"),
        (Format::Ip6tablesSave, "icmp6-no-route", "icmp6 no-route"),
        (
            Format::Ip6tablesSave,
            "icmp6-adm-prohibited",
            "icmp6 admin-prohibited",
        ),
        (
            Format::Ip6tablesSave,
            "icmp6-addr-unreachable",
            "icmp6 addr-unreachable",
        ),
        (
            Format::Ip6tablesSave,
            "icmp6-port-unreachable",
            "icmp6 port-unreachable",
        ),
        (
            Format::Ip6tablesSave,
            "icmp6-policy-fail",
            "icmp6 policy-fail",
        ),
        (
            Format::Ip6tablesSave,
            "icmp6-reject-route",
            "icmp6 reject-route",
        ),
    ] {
        let text = format!("-A FORWARD -p udp -m udp --dport 9 -j REJECT --reject-with {word}\n");
        let made = iptables(format, &text);
        assert_eq!(made.findings, [], "{word}");
        let [rule] = rules(&made)[..] else {
            panic!("{}", made.policy);
        };
        assert!(
            rule.ends_with(&format!("udp-dport 9 reject with {told}")),
            "{rule}"
        );
    }
    let made = iptables(
        Format::IptablesSave,
        "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset\n-A FORWARD -j REJECT\n",
    );
    assert_eq!(made.findings, []);
    assert_eq!(told(&made, &tcp(80)), RESET);
    assert_eq!(told(&made, &udp(80)), "3 3");
    assert_eq!(told(&made, &echo()), "3 3");
}

#[test]
fn every_answer_of_nftables_has_its_counterpart() {
    for (family, with, frame, expected) in [
        ("inet", "", tcp(80), "3 3"),
        ("ip", "", udp(80), "3 3"),
        ("inet", "with tcp reset", tcp(80), RESET),
        // nft tests the protocol of the answer itself.
        ("inet", "with tcp reset", udp(80), "passes"),
        ("inet", "with icmp type host-prohibited", udp(80), "3 10"),
        ("inet", "with icmp 9", udp(80), "3 9"),
        ("inet", "with icmpv6 type no-route", udp(80), "passes"),
        ("inet", "with icmpx type admin-prohibited", tcp(80), "3 13"),
        (
            "inet",
            "with icmpx host-unreachable comment \"x\"",
            tcp(80),
            "3 1",
        ),
    ] {
        let made = nft(family, &format!("reject {with}\n"));
        assert_eq!(made.findings, [], "{with}");
        assert_eq!(told(&made, &frame), expected, "{with}: {}", made.policy);
    }
    let made = nft("inet", "udp dport 9 reject with icmp type frag-needed\n");
    assert_eq!(made.findings[0].effect, Effect::NoAnswer);
    assert_eq!(told(&made, &udp(9)), "silent");
}

#[test]
fn every_answer_of_pf_has_its_counterpart() {
    for (rules, frame, expected) in [
        ("block return all\n", tcp(80), RESET),
        ("block return all\n", udp(80), "3 3"),
        ("block return all\n", echo(), "silent"),
        ("block return-rst all\n", tcp(80), RESET),
        ("block return-rst all\n", udp(80), "silent"),
        ("block return-icmp all\n", tcp(80), "3 3"),
        ("block return-icmp(host-unr) all\n", udp(80), "3 1"),
        (
            "block return-icmp(filter-prohib, admin-unr) all\n",
            udp(80),
            "3 13",
        ),
        ("block return-icmp6 all\n", udp(80), "silent"),
        ("set block-policy return\nblock all\n", tcp(80), RESET),
        (
            "set block-policy return\nblock drop all\n",
            tcp(80),
            "silent",
        ),
        (
            "set block-policy return\nblock return-icmp all\n",
            tcp(80),
            "3 3",
        ),
        ("block all\n", tcp(80), "silent"),
    ] {
        let made = imported(Format::Pf, rules);
        assert_eq!(made.findings, [], "{rules}");
        assert_eq!(told(&made, &frame), expected, "{rules}{}", made.policy);
    }
    let made = imported(Format::Pf, "block return-rst(ttl 5) all\n");
    assert_eq!(made.findings[0].effect, Effect::NoAnswer);
    assert_eq!(told(&made, &tcp(80)), "silent");
}

/// All rules of weir match, and any that rejects a packet answers it.
#[test]
fn what_an_earlier_rule_drops_stays_silent() {
    let made = iptables(
        Format::IptablesSave,
        "-A FORWARD -p udp -m udp --dport 5 -j DROP\n-A FORWARD -p udp -m udp --dport 7 -j REJECT --reject-with icmp-host-unreachable\n-A FORWARD -p udp -j REJECT\n-A FORWARD -p udp -j DROP\n",
    );
    assert_eq!(made.findings, []);
    assert_eq!(told(&made, &udp(5)), "silent", "{}", made.policy);
    assert_eq!(told(&made, &udp(7)), "3 1");
    assert_eq!(told(&made, &udp(9)), "3 3");
}

#[test]
fn answers_at_a_rate_are_named() {
    let made = nft("inet", "udp dport 9 limit rate over 5/second reject\n");
    let found: Vec<Effect> = made.findings.iter().map(|one| one.effect).collect();
    assert_eq!(found, [Effect::NoAnswer], "{}", made.policy);
    assert!(
        made.policy.contains("udp-dport 9 drop over 5/s"),
        "{}",
        made.policy
    );

    let made = nft(
        "inet",
        "udp dport 9 limit rate 5/second accept\nudp dport 9 reject\n",
    );
    let found: Vec<(u32, Effect)> = (made.findings.iter())
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(found, [(4, Effect::NoAnswer)], "{}", made.policy);

    // A drop above a rate, then a reject: who is above would be told.
    let made = nft(
        "inet",
        "udp dport 9 limit rate over 5/second drop\nmeta l4proto udp reject\n",
    );
    let found: Vec<(u32, Effect)> = (made.findings.iter())
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(found, [(5, Effect::NoAnswer)], "{}", made.policy);
    assert_eq!(told(&made, &udp(9)), "silent");
}

//! Sets that packets fill: what is written, what it means, and what is refused with which advice.

use std::sync::Arc;

use weir_packet::Verdict;
use weir_packet::build::Frame;
use weir_policy::dynamic::{Address, Change, ChangeSet, DynamicSet, Element};
use weir_policy::model::{Classes, Target, Test};
use weir_policy::reference::{Input, Meta, Options, PortId, Reference};
use weir_policy::{NoFiles, Parsed, SetLoader, Source, describe, format, parse};

fn read(text: &str) -> Parsed {
    parse(&Source::new("p.weir", text), &NoFiles).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Message and advice of the first error.
fn refused(text: &str) -> (String, String) {
    let found = parse(&Source::new("p.weir", text), &NoFiles).expect_err(text);
    let first = found.iter().next().expect("an error");
    let help = first.help.clone().unwrap_or_default();
    (first.message.clone(), help)
}

fn set(name: &str, size: u32, seconds: Option<u64>) -> Arc<DynamicSet> {
    Arc::new(DynamicSet {
        group: false,
        name: name.to_owned(),
        size,
        timeout_ns: seconds.map(|seconds| seconds * 1_000_000_000),
    })
}

#[test]
fn a_set_has_a_size_and_a_time_out() {
    for (line, size, seconds) in [
        ("set s = dynamic", 65_536, None),
        ("set s = DYNAMIC Timeout 10M", 65_536, Some(600)),
        ("set s = dynamic size 5 timeout 90", 5, Some(90)),
        ("set s = dynamic timeout 2h size x10", 16, Some(7200)),
    ] {
        let parsed = read(&format!("{line}\nip-saddr in @s drop\n"));
        let want = Test::Dynamic(set("s", size, seconds));
        assert_eq!(parsed.policy.rules[0].matches[0].test, want, "{line}");
    }
}

#[test]
fn six_fields_are_tested() {
    for field in [
        "ip-saddr",
        "ip-daddr",
        "ip6-saddr",
        "ip6-daddr",
        "eth-saddr",
        "eth-daddr",
    ] {
        let text = format!("set s = dynamic\n{field} in @s drop\n! {field} in @s log\n");
        let parsed = read(&text);
        let negated: Vec<bool> = parsed
            .policy
            .rules
            .iter()
            .map(|r| r.matches[0].negated)
            .collect();
        assert_eq!(negated, [false, true], "{field}");
        assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
    }
}

#[test]
fn targets_change_sets() {
    let minutes = |n: u64| Some(n * 60_000_000_000);
    for (target, address, change, classes) in [
        (
            "add @s source",
            Address::Source,
            Change::Add {
                timeout_ns: minutes(10),
            },
            Classes::NONE,
        ),
        (
            "ADD @s Destination 1H",
            Address::Destination,
            Change::Add {
                timeout_ns: minutes(60),
            },
            Classes::NONE,
        ),
        (
            "add @s ip6-daddr",
            Address::Destination,
            Change::Add {
                timeout_ns: minutes(10),
            },
            Classes::IP6,
        ),
        (
            "delete @s ip-saddr",
            Address::Source,
            Change::Delete,
            Classes::IP4,
        ),
        (
            "delete @s eth-src",
            Address::EthSource,
            Change::Delete,
            Classes::NONE,
        ),
    ] {
        let parsed = read(&format!("set s = dynamic timeout 10m\nall {target} drop\n"));
        let rule = &parsed.policy.rules[0];
        let set = set("s", 65_536, Some(600));
        let want = ChangeSet {
            set,
            address,
            change,
        };
        assert_eq!(rule.targets[0], Target::ChangeSet(want), "{target}");
        assert_eq!(rule.requires, classes, "{target}");
    }
    // `add` of an option is what it was.
    let parsed = read("tcp-syn add tcp-opt-mss 1460\n");
    assert!(matches!(
        parsed.policy.rules[0].targets[0],
        Target::AddOption { kind: 2, .. }
    ));
}

#[test]
fn formatted_and_described() {
    let text = "set  s=Dynamic  Timeout 10M size  7\nset gone = dynamic\nudp-dport 23 ADD @s SOURCE 1H delete @gone ip-src drop\nip-saddr IN @s drop\n";
    let text = text.replace("ip-src", "ip4-saddr");
    let parsed = read(&text);
    let written = format(&parsed.ast);
    let want = "set s    = dynamic size 7 timeout 10m\nset gone = dynamic\nudp-dport 23   add @s source 1h delete @gone ip-saddr drop\nip-saddr in @s drop\n";
    assert_eq!(written, want);
    assert_eq!(read(&written).policy, parsed.policy);
    let sentences: Vec<String> = parsed.policy.rules.iter().map(describe).collect();
    assert_eq!(
        sentences,
        [
            "Rule 1: every IPv4 UDP packet whose destination port is 23 (telnet) has its source address put into the set s for 1 h, has its source address taken out of the set gone and is dropped unless a matching rule accepts it.",
            "Rule 2: every IPv4 packet whose source address is in the set s is dropped unless a matching rule accepts it.",
        ]
    );
}

#[test]
fn mistakes_are_answered_with_what_to_write() {
    const SET: &str = "set s = dynamic timeout 10m\nset fixed = { 10.0.0.1 }\nip-saddr in @s ip-saddr in @fixed drop\n";
    for (line, message, help) in [
        ("udp add @s", "expected an address", "add @NAME source"),
        (
            "udp add @s ip-ttl",
            "expected an address",
            "add @NAME source",
        ),
        (
            "udp add @s source timeout 5m",
            "without a word",
            "`add @s source 5m`",
        ),
        ("udp add @s source 0", "longer than no time", "above 0"),
        ("udp delete @s source 5m", "no time-out", "leave this out"),
        (
            "udp delete source",
            "expected a set behind `delete`",
            "delete @NAME source",
        ),
        (
            "udp add @s { ip saddr timeout 5m }",
            "without braces",
            "`add @s source 5m`",
        ),
        (
            "udp add @s { ip daddr }",
            "without braces",
            "`add @s destination`",
        ),
        (
            "udp delete @s { ether saddr }",
            "without braces",
            "`delete @s eth-saddr`",
        ),
        ("udp add @other source", "no set named `other`", "define it"),
        (
            "udp add @fixed source",
            "packets cannot change it",
            "set fixed = dynamic",
        ),
        (
            "tcp-dport in @s drop",
            "`s` holds addresses, and `tcp-dport` is none",
            "test `ip-saddr`",
        ),
        (
            "in @s drop",
            "`s` holds addresses, and `in` is none",
            "set lan",
        ),
        (
            "add-stateful udp add @s source",
            "a stateful rule cannot add",
            "without `add-stateful`",
        ),
        (
            "add-stateful udp map ip-saddr @s",
            "packets fill the set `s`",
            "another set",
        ),
        (
            "set t = dynamic size 0",
            "`0` is not a number of elements",
            "1 to 4194304",
        ),
        (
            "set t = dynamic timeout",
            "expected a duration behind `timeout`",
            "",
        ),
        ("set t = dynamic timeout ever", "ever", ""),
        ("set t = dynamic size 5 size 6", "written twice", ""),
        (
            "set t = dynamic flags timeout",
            "expected `size` or `timeout`",
            "size 65536 timeout 10m",
        ),
        (
            "set t = 5",
            "expected `{`, `file` or `dynamic`",
            "dynamic timeout 10m",
        ),
    ] {
        let (said, advice) = refused(&format!("{SET}{line}\n"));
        assert!(said.contains(message), "{line}: {said}");
        assert!(advice.contains(help), "{line}: {said}: {advice}");
    }
}

/// Lines of other firewalls, and the rule that stands for them, which is valid.
#[test]
fn habits_are_answered_with_a_rule() {
    const SETS: &str = "set s = dynamic timeout 60s\nip-saddr in @s drop\n";
    for (line, rule) in [
        (
            "tcp dport 22 ct state new add @s { ip saddr timeout 5m }",
            "tcp-dport 22 ct-state new add @s source 5m",
        ),
        (
            "tcp dport 22 update @s { ip saddr } drop",
            "tcp-dport 22 add @s source drop",
        ),
        ("ip saddr @s drop", "ip-saddr in @s drop"),
        (
            "udp dport 9 delete @s { ip daddr }",
            "udp-dport 9 delete @s destination",
        ),
        (
            "-A INPUT -p tcp --dport 22 -m recent --name s --set -j DROP",
            "tcp-dport 22 add @s source drop",
        ),
        (
            "-A INPUT -m recent --rcheck --seconds 60 --name s -j DROP",
            "ip-saddr in @s drop",
        ),
        (
            "-A INPUT -p tcp --dport 22 -m recent --update --name s --seconds 60 --hitcount 4 --rsource -j DROP",
            "tcp-dport 22 drop over 3/m burst 3 per source",
        ),
        (
            "-A INPUT -p tcp --dport 22 -m recent --remove --name s",
            "tcp-dport 22 ip-saddr in @s delete @s source",
        ),
        (
            "-A INPUT -m set --match-set s src -j DROP",
            "ip-saddr in @s drop",
        ),
        (
            "-A INPUT -m set ! --match-set s dst -j ACCEPT",
            "! ip-daddr in @s accept",
        ),
        (
            "-A INPUT -p tcp --dport 23 -j SET --add-set s src",
            "tcp-dport 23 add @s source",
        ),
    ] {
        let (message, help) = refused(&format!("{SETS}{line}\n"));
        assert!(
            message.starts_with("this is ") || message.contains("set of values"),
            "{line}: {message}"
        );
        assert!(help.contains(&format!("`{rule}`")), "{line}: {help}");
        read(&format!("{SETS}{rule}\n"));
    }
    for (line, part) in [
        ("ipset create s hash:ip timeout 600", "weir set add"),
        ("ipset add s 192.0.2.1", "weir set add"),
        (
            "set t { type ipv4_addr; flags dynamic; }",
            "`set t = dynamic timeout 10m`",
        ),
    ] {
        let (_, help) = refused(&format!("{SETS}{line}\n"));
        assert!(help.contains(part), "{line}: {help}");
    }
}

#[test]
fn elements_are_addresses() {
    for (text, number) in [
        ("10.0.0.1", 0x0a00_0001),
        ("::1", 1),
        ("02:00:00:00:00:01", 0x0200_0000_0001),
    ] {
        let element: Element = text.parse().expect(text);
        assert_eq!(element.number(), number);
        assert_eq!(element.to_string(), text);
    }
    for (text, why) in [
        ("10.0.0.0/8", "single addresses"),
        ("host", "expected an IPv4, IPv6 or MAC address"),
        ("10.0.0.256", "expected an IPv4"),
    ] {
        let said = text.parse::<Element>().expect_err(text);
        assert!(said.contains(why), "{said}");
    }
}

/// A network that the policy is for, with these groups.
struct InNetwork(&'static [&'static str]);

impl SetLoader for InNetwork {
    fn load(&self, _: &str) -> std::io::Result<Source> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn groups(&self) -> Vec<String> {
        self.0.iter().map(|name| (*name).to_owned()).collect()
    }
}

#[test]
fn groups_of_the_network_are_tested_like_sets() {
    let text = "v4: ip-saddr in @web drop\nv6: ! ip6-daddr in @web drop\n";
    let source = Source::new("p.weir", text);
    let parsed = parse(&source, &InNetwork(&["web", "db"])).unwrap_or_else(|e| panic!("{e}"));
    assert!(
        parsed.warnings.is_empty(),
        "one that is not used is none of the policy's"
    );
    let said: Vec<String> = parsed.policy.rules.iter().map(describe).collect();
    assert!(said[0].contains("is in the group web"), "{said:?}");
    assert!(said[1].contains("is not in the group web"), "{said:?}");
    let unknown = parse(&source, &InNetwork(&["wbe"])).expect_err("no such group");
    let first = unknown.iter().next().expect("an error");
    assert_eq!(first.message, "there is no set or group named `web`");
    assert_eq!(first.help.as_deref(), Some("did you mean `@wbe`?"));

    let mut reference = Reference::new(parsed.policy, Options::default());
    let v6 = |last: u8| {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, last);
        address
    };
    let frames = [
        Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .build(),
        Frame::new().ip6(v6(1), v6(2)).udp(1, 2).build(),
    ];
    let drops = |reference: &mut Reference| {
        frames.each_ref().map(|frame| {
            let port = PortId {
                name: None,
                index: 1,
            };
            let input = Input {
                frame,
                now_ns: 0,
                number: 0,
                port,
                queue: 0,
                meta: Meta::default(),
            };
            reference.run(input).verdict == Verdict::Drop
        })
    };
    assert_eq!(drops(&mut reference), [false, true], "the group is empty");
    let elements = ["10.0.0.1", "fd00::2"].map(|text| text.parse::<Element>().expect("an address"));
    reference.set_group("web", elements);
    assert_eq!(drops(&mut reference), [true, false]);
    // The same number, in the other family.
    reference.set_group("web", ["::a00:1".parse::<Element>().expect("an address")]);
    assert_eq!(drops(&mut reference), [false, true]);
}

//! Address translation of each format: chains with jumps, what rules say of translated packets, types of addresses, translations of pf.

use weir_import::{Effect, Format, Imported, Options};

use crate::translations::{filter, forward, options, rules};

/// As container engines write it: a chain of their own, entered for addresses of the host, left by what comes from the containers.
#[test]
fn translations_stand_in_chains_that_are_jumped_to() {
    let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n:UNUSED - [0:0]\n\
        -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n\
        -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n\
        -A POSTROUTING -s 10.0.0.0/8 -o eth0 -j MASQUERADE\n\
        -A DOCKER -i docker0 -j RETURN\n\
        -A DOCKER -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n\
        -A UNUSED -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.3\nCOMMIT\n";
    let text =
        nat.to_owned() + &filter("-A FORWARD -d 10.0.0.2/32 -p tcp -m tcp --dport 80 -j ACCEPT\n");
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines[..2],
        [
            "add-stateful ! in docker0 ip-daddr 192.0.2.1 tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80",
            "add-stateful in docker0 ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 map ip-saddr 192.0.2.1",
        ]
    );
    assert_eq!(
        lines[lines.len() - 3..],
        [
            "! in docker0 ip-daddr 192.0.2.1 tcp-dport 8080 accept",
            "ip-daddr 10.0.0.2 tcp-dport 80 accept",
            "net-proto ip4 drop",
        ]
    );
    let named: Vec<(u32, Effect)> = (made.findings.iter())
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(named, [(8, Effect::NotMapped), (12, Effect::NotMapped)]);
    assert!(made.findings[1].reason.contains("jumps to chain UNUSED"));
}

/// Without an interface in the rule, the address is that of each interface that packets may leave by.
#[test]
fn masquerading_without_an_interface_is_that_of_each() {
    let text = |rule: &str| {
        format!("*nat\n:POSTROUTING ACCEPT [0:0]\n{rule}\nCOMMIT\n")
            + &filter("-A FORWARD -j ACCEPT\n")
    };
    let maps = |options: &Options, rule: &str| {
        let (lines, made) = rules(Format::IptablesSave, &text(rule), options);
        let maps = lines.into_iter().filter(|line| line.contains("map"));
        (maps.collect::<Vec<_>>(), made.findings)
    };
    let one = forward();
    let all_but = "-A POSTROUTING -s 10.1.0.0/16 ! -o eth1 -j MASQUERADE";
    let wanted = ["add-stateful ip-saddr 10.1.0.0/16 ! ip-daddr 10.0.0.0/8 map ip-saddr 192.0.2.1"];
    for rule in [
        all_but,
        "-A POSTROUTING -s 10.1.0.0/16 -o eth0 -j MASQUERADE",
    ] {
        let (lines, findings) = maps(&one, rule);
        assert_eq!(lines, wanted, "{findings:?}");
    }
    // Two ways out, each with an address.
    let mut two = forward();
    two.routes.push((
        "ppp0".to_owned(),
        "198.51.100.0/24".parse().expect("a prefix"),
    ));
    let (_, findings) = maps(&two, all_but);
    assert!(
        findings[0].reason.contains("`--local ppp0=ADDRESS`"),
        "{findings:?}"
    );
    two.local.push((
        Some("ppp0".to_owned()),
        "203.0.113.9/32".parse().expect("a prefix"),
    ));
    let (lines, findings) = maps(&two, all_but);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(
        lines,
        [
            "add-stateful ip-saddr 10.1.0.0/16 ! ip-daddr in { 10.0.0.0/8, 198.51.100.0/24 } map ip-saddr 192.0.2.1",
            "add-stateful ip-saddr 10.1.0.0/16 ip-daddr 198.51.100.0/24 map ip-saddr 203.0.113.9",
        ]
    );
    // Nothing that is received leaves by the loopback interface.
    let (lines, _) = maps(&one, "-A POSTROUTING -s 10.1.0.0/16 ! -o lo -j MASQUERADE");
    assert_eq!(lines.len(), 0, "eth1 has no address: {lines:?}");
    let (lines, findings) = maps(&one, "-A POSTROUTING -o lo -j MASQUERADE");
    assert!(
        lines.is_empty() && findings.is_empty(),
        "{lines:?} {findings:?}"
    );
}

/// Types of addresses, where they are known without a routing table.
#[test]
fn types_of_addresses_are_those_that_are_given() {
    let nft = |rule: &str| {
        let text =
            format!("table ip t {{ chain f {{ type filter hook forward priority 0; {rule} }} }}");
        rules(Format::Nft, &text, &forward())
    };
    for (rule, wanted) in [
        ("fib daddr type local drop", "ip-daddr 192.0.2.1 drop"),
        (
            "fib saddr type { local, multicast } drop",
            "ip-saddr in { 192.0.2.1, 224.0.0.0/4 } drop",
        ),
        (
            "fib daddr type != local tcp dport 22 drop",
            "! ip-daddr 192.0.2.1 tcp-dport 22 drop",
        ),
    ] {
        let (lines, made) = nft(rule);
        assert_eq!(lines, [wanted], "{:?}", made.findings);
    }
    for rule in [
        "fib daddr type broadcast drop",
        "fib saddr . iif oif missing drop",
        "fib daddr . iif type local drop",
    ] {
        let (lines, made) = nft(rule);
        assert!(
            lines.is_empty() && made.findings.len() == 1,
            "{rule}: {lines:?}"
        );
    }
    let (lines, _) = rules(
        Format::IptablesSave,
        &filter("-A FORWARD -m addrtype --dst-type LOCAL,MULTICAST -j ACCEPT\n"),
        &forward(),
    );
    assert_eq!(lines[0], "ip-daddr in { 192.0.2.1, 224.0.0.0/4 } accept");
    let text = "table ip6 t { chain f { type filter hook forward priority 0; ip6 nexthdr icmpv6 accept\n drop } }";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(lines, ["ip6-next icmp6 accept", "net-proto ip6 drop"]);
}

/// Port forwards of firewalld and OpenWrt are accepted by what they are, not by their addresses.
#[test]
fn translated_destinations_are_a_test() {
    let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n";
    let established = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";
    let of = |rule: &str| {
        let text = nat.to_owned() + &filter(&format!("{established}{rule}\n"));
        rules(Format::IptablesSave, &text, &forward())
    };
    for rule in [
        "-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT",
        "-A FORWARD -m conntrack --ctstatus DNAT -j ACCEPT",
    ] {
        let (lines, made) = of(rule);
        assert!(made.findings.is_empty(), "{:?}", made.findings);
        let has = lines.iter().any(|line| {
            line.starts_with("in eth0 net-proto ip4 tcp-dport 8080") && line.ends_with("accept")
        });
        assert!(has, "{rule}: {lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("net-proto ip4 drop"));
    }
    let (lines, made) = of("-A FORWARD -m conntrack ! --ctstate DNAT -d 10.0.0.0/8 -j ACCEPT");
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("ip-daddr 10.0.0.0/8") && line.ends_with("accept")),
        "{lines:#?}"
    );
    assert!(
        !lines.iter().any(|line| line.starts_with("in eth0")
            && line.ends_with("accept")
            && !line.contains("ct-state")),
        "{lines:#?}"
    );
    // Answers would have to be accepted by it, too.
    let text = nat.to_owned() + &filter("-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n");
    let (_, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        made.findings
            .iter()
            .map(|one| one.effect)
            .collect::<Vec<_>>(),
        [Effect::Narrower]
    );
    let text = "table ip t {\n chain p { type nat hook prerouting priority dstnat; iifname \"eth0\" tcp dport 8080 dnat to 10.0.0.2:80 }\n\
        chain f { type filter hook forward priority filter; policy drop; ct state established,related accept\n ct status dnat accept\n ct status snat accept }\n}\n";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert_eq!(made.findings.len(), 1, "{:?}", made.findings);
    assert!(made.findings[0].reason.contains("ct status snat"));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("tcp-dport 8080") && line.ends_with("accept")),
        "{lines:#?}"
    );
}

/// As routers write it: chains of zones behind those of the hooks, rules without an interface of their own, families by `nfproto`.
#[test]
fn translations_take_the_interface_of_the_jump() {
    let text = "table inet fw4 {\n\
        chain srcnat { type nat hook postrouting priority srcnat; policy accept; oifname \"eth1\" goto srcnat_lan\n jump srcnat_wan }\n\
        chain srcnat_lan { }\n\
        chain srcnat_wan { ip saddr 10.9.0.0/16 return\n meta nfproto ipv4 masquerade }\n\
        chain dstnat { type nat hook prerouting priority dstnat; policy accept; iifname \"eth0\" jump dstnat_wan\n tcp dport 81 dnat ip to 10.0.0.9 }\n\
        chain dstnat_wan { meta nfproto ipv4 tcp dport 81 accept\n meta nfproto ipv4 tcp dport 8443 counter packets 0 bytes 0 dnat ip to 10.0.0.2:443 }\n\
        chain forward { type filter hook forward priority filter; policy drop; ip daddr 10.0.0.2 tcp dport 443 accept }\n\
        }\n";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(
        lines[..3],
        [
            "add-stateful in eth0 net-proto ip4 tcp-dport 8443 map ip-daddr 10.0.0.2 map tcp-dport 443",
            "add-stateful ! in eth0 net-proto ip4 tcp-dport 81 map ip-daddr 10.0.0.9",
            "add-stateful ! in eth0 ! ip-saddr 10.9.0.0/16 ! ip-daddr 10.0.0.0/8 ! dport 81 map ip-saddr 192.0.2.1",
        ]
    );
    assert!(lines.contains(&"in eth0 net-proto ip4 tcp-dport 8443 accept".to_owned()));
}

/// Rules of pf.conf of today: translations and scrubbing are options of rules.
#[test]
fn rules_of_pf_translate_and_scrub() {
    let text = "match in all scrub (no-df random-id max-mss 1440)\n\
        match out on eth0 inet from 10.0.0.0/8 to any nat-to (eth0)\n\
        block all\n\
        pass in on eth0 inet proto tcp from any to 192.0.2.1 port 8080 rdr-to 10.0.0.2 port 80\n\
        block in quick from 198.51.100.0/24\n\
        pass in on eth1\n";
    let (lines, made) = rules(Format::Pf, text, &options());
    let wanted = [
        "add-stateful in eth0 ! ip-saddr 198.51.100.0/24 ip-daddr 192.0.2.1 tcp-dport 8080 tcp-flags syn/syn,ack map ip-daddr 10.0.0.2 map tcp-dport 80",
        "l4-proto tcp tcp-opt-mss > 1440 mod tcp-opt-mss 1440",
        "ip-saddr 198.51.100.0/24 drop",
    ];
    for line in wanted {
        assert!(lines.contains(&line.to_owned()), "{line}: {lines:#?}");
    }
    let named: Vec<&str> = (made.findings.iter())
        .map(|one| one.reason.as_str())
        .collect();
    assert!(
        named.contains(&"`scrub` is not translated: no-df, random-id"),
        "{named:?}"
    );
    assert_eq!(named.len(), 2, "{named:?}");
    // A name without a number is that of several interfaces.
    let (_, made) = rules_of_pf("pass in on egress\npass in on { egress eth1 } proto tcp\n");
    let group = made
        .findings
        .iter()
        .filter(|one| one.reason.contains("group"));
    assert_eq!(group.map(|one| one.line).collect::<Vec<_>>(), [1]);
}

/// Only the last rule about what leaves that matches translates; where another one may be it, the line is named.
#[test]
fn translations_of_pf_that_another_rule_may_decide_are_named() {
    let of = |rules: &str| {
        let (lines, made) = rules_of_pf(rules);
        let named = made
            .findings
            .iter()
            .find(|one| one.effect == Effect::NotMapped);
        (lines, named.map(|one| one.reason.clone()))
    };
    let (lines, named) = of("pass out on eth0 inet from 10.0.0.0/8 to any nat-to (eth0)\n");
    assert!(named.is_none(), "{named:?}");
    let map = "map ip-saddr 192.0.2.1";
    assert!(
        lines[0].ends_with(map) && lines[0].contains("tcp-flags syn/syn,ack"),
        "{lines:?}"
    );
    let overridden = "pass out on eth0 inet from 10.0.0.0/8 to any nat-to (eth0)\npass out on eth0 inet proto tcp from 10.0.0.0/8 to any port 25\n";
    let (lines, named) = of(overridden);
    assert!(named.is_some_and(|reason| reason.starts_with("line 2 decides")));
    assert!(!lines.iter().any(|line| line.contains("map")), "{lines:?}");
    let quick = overridden.replacen("pass out", "pass out quick", 1);
    assert!(of(&quick).1.is_none());
    for (rule, reason) in [
        (
            "pass in on eth0 inet from any to any nat-to 192.0.2.1",
            "write `out`",
        ),
        (
            "pass out on eth0 inet from any to any rdr-to 10.0.0.2",
            "what is received",
        ),
        (
            "pass in on eth0 inet from any to any rdr-to <servers>",
            "one address or a range",
        ),
        (
            "pass in on eth0 inet proto tcp from any to any tag X rdr-to 10.0.0.2",
            "sets a tag",
        ),
    ] {
        let (_, made) = rules_of_pf(&format!("table <servers> {{ 10.0.0.2 }}\n{rule}\n"));
        let named = made.findings.iter().any(|one| one.reason.contains(reason));
        assert!(named, "{rule}: {:?}", made.findings);
    }
}

fn rules_of_pf(text: &str) -> (Vec<String>, Imported) {
    rules(Format::Pf, text, &options())
}

//! Single features of each format, and the rules that they become.

use weir_import::{Effect, Error, Format, Imported, Options, import};
use weir_policy::{NoFiles, Source};

pub(crate) fn options() -> Options {
    let prefix = |text: &str| text.parse().expect("a prefix");
    Options {
        chain: None,
        local: vec![(Some("eth0".to_owned()), prefix("192.0.2.1/32"))],
        routes: vec![
            ("eth0".to_owned(), prefix("0.0.0.0/0")),
            ("eth1".to_owned(), prefix("10.0.0.0/8")),
        ],
        mtu: None,
    }
}

/// The rules without comments, and the findings; the policy is valid.
pub(crate) fn rules(format: Format, text: &str, options: &Options) -> (Vec<String>, Imported) {
    let made = import(format, text, "test", options).expect("imported");
    if let Err(errors) = weir_policy::parse(&Source::new("test", made.policy.as_str()), &NoFiles) {
        panic!("{}\n{}", errors.render(false), made.policy);
    }
    let lines = made.policy.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    (lines.map(str::to_owned).collect(), made)
}

pub(crate) fn forward() -> Options {
    Options {
        chain: Some("forward".to_owned()),
        ..options()
    }
}

pub(crate) fn filter(rules: &str) -> String {
    format!(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:SUB - [0:0]\n{rules}COMMIT\n"
    )
}

#[test]
fn an_accept_behind_a_drop_is_the_rest_of_it() {
    let text = filter(
        "-A FORWARD -s 10.1.0.0/16 -j DROP\n-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "ip-saddr 10.1.0.0/16 drop",
            "! ip-saddr 10.1.0.0/16 tcp-dport 22 accept",
            "net-proto ip4 drop",
        ]
    );
    assert!(made.findings.is_empty(), "{:?}", made.findings);
}

#[test]
fn chains_return_where_they_were_entered() {
    let text = filter(
        "-A FORWARD -i eth0 -j SUB\n-A FORWARD -p udp -m udp --dport 53 -j ACCEPT\n-A SUB -s 10.0.0.0/8 -j RETURN\n-A SUB -p udp -j DROP\n",
    );
    let (lines, _) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "in eth0 l4-proto udp ! ip-saddr 10.0.0.0/8 drop",
            "! in eth0 net-proto ip4 udp-dport 53 accept",
            "ip-saddr 10.0.0.0/8 udp-dport 53 accept",
            "net-proto ip4 drop",
        ]
    );
}

#[test]
fn what_is_not_translated_is_named_with_what_that_means() {
    let text = filter(
        "-A FORWARD -p icmp -m quota --quota 1000 -j ACCEPT\n-A FORWARD -m set --match-set bad src -j DROP\n-A FORWARD -i eth+ -g SUB\n-A FORWARD -j REJECT --reject-with icmp-source-quench\n",
    );
    let (_, made) = rules(Format::IptablesSave, &text, &forward());
    let found: Vec<(u32, Effect)> = made
        .findings
        .iter()
        .map(|one| (one.line, one.effect))
        .collect();
    assert_eq!(
        found,
        [
            (6, Effect::Narrower),
            (7, Effect::Wider),
            (8, Effect::Either),
            (9, Effect::NoAnswer)
        ]
    );
    for finding in &made.findings {
        assert!(
            made.policy.contains(&format!("# {}", finding.words())),
            "{finding}"
        );
    }
}

#[test]
fn chains_that_enter_each_other_end() {
    let loops = "-A FORWARD -j SUB\n".to_owned() + &"-A SUB -s 10.0.0.0/8 -j SUB\n".repeat(8);
    let (_, made) = rules(Format::IptablesSave, &filter(&loops), &forward());
    assert!(!made.findings.is_empty());
}

#[test]
fn outgoing_interfaces_need_routes() {
    let text = filter("-A FORWARD -i eth1 -o eth0 -j ACCEPT\n");
    let unknown = Options {
        routes: Vec::new(),
        ..forward()
    };
    let (lines, made) = rules(Format::IptablesSave, &text, &unknown);
    assert_eq!(lines, ["net-proto ip4 drop"]);
    assert!(
        made.findings[0].reason.contains("--route eth0=PREFIX"),
        "{}",
        made.findings[0]
    );
    let (lines, _) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(lines[0], "in eth1 ! ip-daddr 10.0.0.0/8 accept");
}

#[test]
fn one_file_for_two_paths_needs_the_addresses_of_the_host() {
    let text = filter("-A INPUT -p tcp -m tcp --dport 23 -j DROP\n-A FORWARD -i eth1 -j ACCEPT\n");
    let nothing = Options::default();
    let error =
        import(Format::IptablesSave, &text, "test", &nothing).expect_err("it says too little");
    assert_eq!(error, Error::TwoPaths);
    let (lines, _) = rules(Format::IptablesSave, &text, &options());
    assert_eq!(
        lines,
        [
            "ip-daddr in { 192.0.2.1, 224.0.0.0/4, 255.255.255.255 } tcp-dport 23 drop",
            "in eth1 ! ip-daddr in { 192.0.2.1, 224.0.0.0/4, 255.255.255.255 } accept",
            "! ip-daddr in { 192.0.2.1, 224.0.0.0/4, 255.255.255.255 } drop",
        ]
    );
}

#[test]
fn the_ttl_that_forward_sees_is_one_less() {
    let (lines, _) = rules(
        Format::IptablesSave,
        &filter("-A FORWARD -m ttl --ttl-eq 1 -j ACCEPT\n"),
        &forward(),
    );
    assert_eq!(lines[0], "ip-ttl 2 accept");
}

/// Filters of Linux see destinations behind the translation, those of weir in front of it.
#[test]
fn port_forwards_take_their_filter_rules_along() {
    let text = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
        -A PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n\
        -A POSTROUTING -s 10.0.0.0/8 -o eth0 -j MASQUERADE\nCOMMIT\n"
        .to_owned()
        + &filter("-A FORWARD -d 10.0.0.2/32 -p tcp -m tcp --dport 80 -j ACCEPT\n");
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(
        lines,
        [
            "add-stateful in eth0 net-proto ip4 tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80",
            "add-stateful ! in eth0 ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 map ip-saddr 192.0.2.1",
            "add-stateful ! l4-proto tcp ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 map ip-saddr 192.0.2.1",
            "add-stateful ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 ! sport map ip-saddr 192.0.2.1",
            "add-stateful ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.0/8 ! dport 8080 map ip-saddr 192.0.2.1",
            "in eth0 net-proto ip4 tcp-dport 8080 accept",
            "ip-daddr 10.0.0.2 tcp-dport 80 accept",
            "net-proto ip4 drop",
        ]
    );
}

/// Table raw sees packets in front of the translation, table filter behind it.
#[test]
fn what_stands_before_the_translation_sees_the_packet_as_received() {
    let text = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1/32 -p tcp -m tcp --dport 8080 -s 10.0.0.0/8 -j DROP\nCOMMIT\n\
        *nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.1/32 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n"
        .to_owned()
        + &filter("-A FORWARD -d 10.0.0.2/32 -j ACCEPT\n");
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(
        lines[1],
        "ip-saddr 10.0.0.0/8 ip-daddr 192.0.2.1 tcp-dport 8080 drop"
    );
    assert!(
        lines
            .contains(&"! ip-saddr 10.0.0.0/8 ip-daddr 192.0.2.1 tcp-dport 8080 accept".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn tables_of_two_families_may_both_drop_by_default() {
    let text = "table ip a { chain f { type filter hook forward priority 0; policy drop; tcp dport 22 accept\n } }\n\
        table ip6 b { chain f { type filter hook forward priority 0; policy drop; tcp dport 23 accept\n } }\n";
    let (lines, made) = rules(Format::Nft, text, &options());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(
        lines,
        [
            "net-proto ip4 tcp-dport 22 accept",
            "net-proto ip6 tcp-dport 23 accept",
            "net-proto ip4 drop",
            "net-proto ip6 drop"
        ]
    );
}

#[test]
fn a_chain_of_the_device_alone_is_the_policy() {
    let text = "table netdev t { chain i { type filter hook ingress device \"eth0\" priority 0; policy drop; ip saddr 10.0.0.0/8 accept\n } }\n";
    let (lines, _) = rules(Format::Nft, text, &options());
    assert_eq!(
        lines,
        ["in eth0 ip-saddr 10.0.0.0/8 accept", "in eth0 drop"]
    );
}

#[test]
fn states_of_connections_are_asked_for_where_every_packet_is_tracked() {
    let text = filter("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n");
    let (lines, _) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "add-stateful net-proto ip4 l4-proto tcp timeout 4h",
            "add-stateful net-proto ip4 l4-proto udp timeout 300s",
            "add-stateful net-proto ip4 l4-proto in { icmp, icmp6 } timeout 60s",
            "add-stateful net-proto ip4 ! l4-proto in { icmp, tcp, udp, icmp6 } timeout 600s",
            "net-proto ip4 ct-state in { established, related } accept",
            "net-proto ip4 drop",
        ]
    );
}

fn nft(rules: &str) -> String {
    format!(
        "table inet t {{\n set hosts {{ type ipv4_addr; flags interval; elements = {{ 10.0.0.1, 10.0.1.0/24 }} }}\n \
         chain sub {{ drop\n }}\n chain f {{ type filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    )
}

#[test]
fn nft_sets_maps_and_tuples() {
    let text = nft("ip saddr @hosts tcp dport { 22, 80-90 } drop\n\
        tcp dport vmap { 1 : drop, 2 : jump sub, 3 : accept }\n\
        ip saddr . udp dport { 10.0.0.9 . 53, 10.0.0.8 . 54 } drop\n\
        meta nfproto ipv6 th dport != 5 drop\n\
        tcp flags & (syn | ack) == syn drop\n\
        iifname != \"eth0\" icmpv6 type echo-request counter packets 1 bytes 2 log prefix \"x \" drop comment \"y\"");
    let (lines, made) = rules(Format::Nft, &text, &options());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(
        lines,
        [
            "ip-saddr in { 10.0.0.1, 10.0.1.0/24 } tcp-dport in { 22, 80-90 } drop",
            "tcp-dport 1 drop",
            "tcp-dport 2 drop",
            "tcp-dport 3 accept",
            "ip-saddr 10.0.0.9 udp-dport 53 drop",
            "ip-saddr 10.0.0.8 udp-dport 54 drop",
            "net-proto ip6 ! dport 5 drop",
            "tcp-flags syn/syn,ack drop",
            "! in eth0 icmp6-type 128 log \"x\"",
            "! in eth0 icmp6-type 128 drop",
        ]
    );
}

#[test]
fn pf_has_the_last_match_and_quick() {
    let text = "int = \"eth1\"\ntable <bad> { 10.6.6.0/24, !10.6.6.6 }\n\
        block all\npass in on $int proto tcp to port { 80 443 }\nblock in quick from <bad>\npass in on $int inet proto icmp\n";
    let (lines, made) = rules(Format::Pf, text, &options());
    let effects: Vec<Effect> = made.findings.iter().map(|one| one.effect).collect();
    assert_eq!(effects, [Effect::Wider], "packets with IP options");
    assert_eq!(
        lines,
        [
            "ip-saddr in { 10.6.6.0-10.6.6.5, 10.6.6.7-10.6.6.255 } drop",
            "in eth1 l4-proto icmp ! ip-saddr in { 10.6.6.0-10.6.6.5, 10.6.6.7-10.6.6.255 } accept",
            "add-stateful in eth1 l4-proto icmp ! ip-saddr in { 10.6.6.0-10.6.6.5, 10.6.6.7-10.6.6.255 } accept",
            "add-stateful in eth1 net-proto ip6 tcp-dport in { 80, 443 } tcp-flags syn/syn,ack accept",
            "add-stateful in eth1 ! ip-saddr in { 10.6.6.0-10.6.6.5, 10.6.6.7-10.6.6.255 } tcp-dport in { 80, 443 } tcp-flags syn/syn,ack accept",
            "eth-type in { ip4, ip6 } drop",
        ]
    );
}

#[test]
fn xdp_filter_drops_what_is_listed_or_passes_nothing_else() {
    let status = include_str!("../../../fuzz/corpus/import_xdp_filter/status");
    let (lines, _) = rules(Format::XdpFilter, status, &options());
    assert_eq!(
        lines,
        [
            "in eth0 tcp-dport 80 drop",
            "in eth0 udp-dport 80 drop",
            "in eth0 udp-sport 53 drop",
            "in eth0 udp-dport 53 drop",
            "in eth0 ip-saddr 192.0.2.9 drop",
            "in eth0 ip6-saddr 2001:db8::9 drop",
            "in eth0 ip6-daddr 2001:db8::9 drop",
            "in eth0 eth-saddr 02:00:00:00:00:09 drop",
        ]
    );
    let commands = include_str!("../../../fuzz/corpus/import_xdp_filter/commands");
    let (lines, _) = rules(Format::XdpFilter, commands, &options());
    assert_eq!(lines.last().map(String::as_str), Some("in eth1 drop"));
}

#[test]
fn what_a_limit_counts_passes_without_a_rule() {
    let text = filter(
        "-A FORWARD -p icmp -m limit --limit 2/day --limit-burst 9 -j ACCEPT\n\
         -A FORWARD -p udp -m udp --dport 53 -m hashlimit --hashlimit-above 24/day --hashlimit-mode srcip --hashlimit-srcmask 24 --hashlimit-name d -j DROP\n\
         -A FORWARD -p udp -j ACCEPT\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(made.findings.len(), 1, "{:?}", made.findings);
    assert!(made.findings[0].reason.contains("2 in 24 hours"));
    assert_eq!(
        lines,
        [
            "net-proto ip4 udp-dport 53 drop over 1/h burst 5 per source/24/128",
            // What the limit counts passes without a rule; `accept` would override it.
            "net-proto ip4 l4-proto udp ! sport accept",
            "net-proto ip4 ! udp-dport 53 accept",
            "net-proto ip4 ! l4-proto udp drop",
            "net-proto ip4 ! sport drop",
            "net-proto ip4 ! dport 53 drop",
        ]
    );
}

#[test]
fn connections_at_a_time_are_counted_where_they_open() {
    let trackers = [
        "add-stateful net-proto ip4 l4-proto tcp timeout 4h",
        "add-stateful net-proto ip4 l4-proto udp timeout 300s",
        "add-stateful net-proto ip4 l4-proto in { icmp, icmp6 } timeout 60s",
        "add-stateful net-proto ip4 ! l4-proto in { icmp, tcp, udp, icmp6 } timeout 600s",
    ];
    let limits = [
        "net-proto ip4 tcp-dport 22 ct-state new drop over 3 connections per source",
        "net-proto ip4 tcp-dport 80 ct-state new drop over 20 connections per source/24/128",
        "net-proto ip4 tcp-dport 81 ct-state new drop over 50 connections",
    ];
    let text = filter(
        "-A FORWARD -p tcp -m tcp --dport 22 -m connlimit --connlimit-above 3 --connlimit-mask 32 --connlimit-saddr -j DROP\n\
         -A FORWARD -p tcp -m tcp --dport 80 -m connlimit --connlimit-above 20 --connlimit-mask 24 --connlimit-saddr -j DROP\n\
         -A FORWARD -p tcp -m tcp --dport 81 -m connlimit --connlimit-above 50 --connlimit-mask 0 --connlimit-saddr -j DROP\n\
         -A FORWARD -p tcp -j ACCEPT\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert_eq!(lines[..4], trackers);
    assert_eq!(lines[4..7], limits);
    // What the limits judge passes without a rule; `accept` would override them.
    let accepts = lines.iter().filter(|line| line.ends_with(" accept"));
    for line in accepts {
        assert!(line.contains("! "), "{line}");
    }
    let text = "table ip t {\nset m { type ipv4_addr; flags dynamic; }\n\
         chain f {\ntype filter hook forward priority 0; policy accept;\n\
         tcp dport 22 add @m { ip saddr ct count over 3 } drop\n\
         tcp dport 81 ct count over 50 drop\n}\n}\n";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    assert!(lines.contains(&limits[0].to_owned()), "{lines:?}");
    assert!(lines.contains(&limits[2].to_owned()), "{lines:?}");
}

#[test]
fn a_set_that_packets_fill_is_seen_as_it_was_before_the_packet() {
    let table = |rules: &str| {
        format!(
            "table ip t {{\nset s {{ type ipv4_addr; flags dynamic,timeout; }}\nchain f {{\ntype filter hook forward priority 0; policy drop;\n{rules}}}\n}}\n"
        )
    };
    let before =
        table("ip saddr @s accept\nudp dport 9 update @s { ip saddr timeout 1h30m } drop\n");
    let (lines, made) = rules(Format::Nft, &before, &forward());
    assert_eq!(made.findings, []);
    assert_eq!(
        lines,
        [
            "set s = dynamic",
            "ip-saddr in @s accept",
            "udp-dport 9 ! ip-saddr in @s add @s ip-saddr 90m",
            "net-proto ip4 udp-dport 9 drop",
            "net-proto ip4 drop",
        ]
    );
    // The packet that is added would be tested itself.
    let behind = table("udp dport 9 update @s { ip saddr timeout 1h }\nip saddr @s accept\n");
    let (_, made) = rules(Format::Nft, &behind, &forward());
    assert_eq!(made.findings[0].effect, Effect::NotAdded);
    assert!(made.findings[0].reason.contains("line 6 tests the set"));
}

#[test]
fn a_log_within_a_limit_has_the_limit() {
    let text = filter(
        "-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT\n\
         -A FORWARD -p udp -m limit --limit 6/min --limit-burst 9 -j LOG --log-prefix \"udp: \"\n\
         -A FORWARD -m limit --limit 1/hour -j LOG\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines[..2],
        [
            "net-proto ip4 tcp-dport 22 accept",
            "net-proto ip4 l4-proto udp log \"udp:\" limit 6/m burst 9",
        ]
    );
    // Without SSH it is more than one rule.
    let reasons: Vec<&str> = made.findings.iter().map(|one| &*one.reason).collect();
    assert_eq!(
        reasons,
        ["it becomes several rules of weir, each of which would count on its own"]
    );
    // A chain that is entered twice counts once.
    for (rule, target) in [
        ("limit --limit", "LOG"),
        ("hashlimit --hashlimit-name h --hashlimit-above", "DROP"),
    ] {
        let text = filter(&format!(
            "-A FORWARD -i eth0 -j SUB\n-A FORWARD -i eth1 -j SUB\n-A SUB -m {rule} 5/min -j {target}\n"
        ));
        let (_, made) = rules(Format::IptablesSave, &text, &forward());
        let reason = made.findings.first().map(|one| one.reason.as_str());
        assert!(
            reason.is_some_and(|reason| reason.contains("in more than one way")),
            "{reason:?}"
        );
    }
    let table = |rule: &str| {
        format!(
            "table ip t {{\nchain f {{\ntype filter hook forward priority 0; policy accept;\n{rule}\n}}\n}}\n"
        )
    };
    let within =
        table("udp dport 53 limit rate 5/minute burst 10 packets log prefix \"dns\" counter");
    let (lines, made) = rules(Format::Nft, &within, &forward());
    assert_eq!(made.findings, []);
    assert_eq!(
        lines,
        ["net-proto ip4 udp-dport 53 log \"dns\" limit 5/m burst 10"]
    );
}

/// Lines that count packets or fill sets in another way than weir, and a word of the reason of each.
#[test]
fn what_counts_otherwise_is_named() {
    let iptables = [
        (
            "-m limit --limit 5/sec -m tcp --dport 22 -j ACCEPT",
            "put `-m limit` last",
        ),
        (
            "-m limit --limit 5/sec -j MARK --set-mark 1",
            "nothing else",
        ),
        ("-m quota --quota 5000 -j ACCEPT", "14 more a packet"),
        ("-m limit --limit 5/sec -j SUB", "in front of a jump"),
        ("-m limit --limit 5/sec -j DROP", "weir drops what is above"),
        (
            "-m hashlimit --hashlimit-above 5/sec --hashlimit-mode srcip,dstport --hashlimit-name a -j DROP",
            "not ports",
        ),
        (
            "-m hashlimit --hashlimit-above 1mb/s --hashlimit-mode srcip --hashlimit-name b -j DROP",
            "limits of bytes",
        ),
        (
            "-m hashlimit --hashlimit-above 3/min --hashlimit-mode srcip --hashlimit-name c -j DROP",
            "after 60000 ms",
        ),
        (
            "-m hashlimit --hashlimit-above 3/sec --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-name twice -j DROP",
            "table twice together",
        ),
        (
            "-m recent --update --seconds 60 --hitcount 4 --name H --rsource -j DROP",
            "one by one",
        ),
        (
            "-m recent --rcheck --seconds 60 --rttl --name R --rsource -j DROP",
            "TTLs",
        ),
        (
            "-m recent --set --name M --mask 255.255.255.0 --rsource -j DROP",
            "whole addresses",
        ),
        ("-m recent --remove --name N --rsource -j DROP", "forgotten"),
        (
            "-m recent --rcheck --seconds 9 --name TWO --rsource -j DROP",
            "different times",
        ),
        (
            "-m connlimit --connlimit-above 300 -j DROP",
            "1 to 128 connections",
        ),
        (
            "-m connlimit --connlimit-upto 3 -j ACCEPT",
            "only those that open one",
        ),
    ];
    for (rule, reason) in iptables {
        let text = filter(&format!(
            "-A FORWARD -p tcp {rule}\n\
             -A FORWARD -p udp -m recent --rcheck --seconds 8 --name TWO --rsource -j DROP\n\
             -A FORWARD -p udp -m hashlimit --hashlimit-above 3/sec --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-name twice -j DROP\n\
             -A SUB -j DROP\n"
        ));
        let (_, made) = rules(Format::IptablesSave, &text, &forward());
        let found = made.findings.iter().find(|one| one.line == 6);
        let found = found.unwrap_or_else(|| panic!("{rule} is not named"));
        assert!(found.reason.contains(reason), "{rule}: {found}");
    }
    let nft = [
        ("limit rate 10 mbytes/second accept", "limits of bytes"),
        (
            "limit rate over 5/second log prefix \"x\"",
            "no other limit",
        ),
        ("log prefix \"x\" limit rate 5/second", "no other limit"),
        ("limit rate 5/second log prefix \"x\" accept", "not of both"),
        ("quota over 5 mbytes drop", "14 more a packet"),
        ("limit name \"x\" accept", "has a name"),
        ("limit rate 5/second tcp dport 22 accept", "tested behind"),
        ("limit rate over 5/second jump sub", "in front of a jump"),
        (
            "add @k { ip saddr . tcp dport limit rate over 5/second } drop",
            "count sources",
        ),
        (
            "add @s { ip saddr timeout 1h limit rate over 5/second } drop",
            "after it was made",
        ),
        (
            "update @s { ip saddr timeout 1s limit rate over 1/minute } drop",
            "ends after 1000 ms",
        ),
        (
            "add @s { ip saddr timeout 1m ct count over 3 } drop",
            "counted anew",
        ),
        (
            "limit rate over 3/minute add @s { ip saddr } drop",
            "not for those that a limit",
        ),
        (
            "add @k { ip saddr . tcp dport timeout 1s } drop",
            "single addresses",
        ),
        ("ip saddr . tcp dport @k accept", "only single addresses"),
    ];
    for (rule, reason) in nft {
        let text = format!(
            "table ip t {{\nset s {{ type ipv4_addr; flags dynamic,timeout; }}\nset k {{ type ipv4_addr . inet_service; flags dynamic,timeout; }}\n\
             chain sub {{ }}\nchain f {{\ntype filter hook forward priority 0; policy drop;\n{rule}\n}}\n}}\n"
        );
        let (_, made) = rules(Format::Nft, &text, &forward());
        let found = made.findings.iter().find(|one| one.line == 7);
        let found = found.unwrap_or_else(|| panic!("{rule} is not named"));
        assert!(found.reason.contains(reason), "{rule}: {found}");
    }
}

fn mangle(rules: &str) -> String {
    format!("*mangle\n:PREROUTING ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n{rules}COMMIT\n")
}

fn reasons(made: &Imported) -> Vec<(Effect, &str)> {
    let findings = made.findings.iter();
    findings
        .map(|one| (one.effect, one.reason.as_str()))
        .collect()
}

#[test]
fn what_iptables_writes_is_written() {
    let text = mangle(
        "-A PREROUTING -i eth1 -p udp -m udp --dport 5060 -j MARK --set-xmark 0x10/0xff\n\
         -A PREROUTING -i eth1 -j MARK --set-xmark 0x20/0xffffffff\n\
         -A PREROUTING -p tcp -m tcp --dport 22 -j CLASSIFY --set-class 0001:0010\n\
         -A PREROUTING -p tcp -m tcp --dport 22 -j DSCP --set-dscp 0x2e\n\
         -A PREROUTING -i eth0 -j TTL --ttl-set 64\n\
         -A PREROUTING -i eth1 -j TTL --ttl-dec 1\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "in eth1 net-proto ip4 udp-dport 5060 mark set x10/xff",
            "in eth1 net-proto ip4 mark set x20",
            "net-proto ip4 tcp-dport 22 priority set 1:10",
            "net-proto ip4 tcp-dport 22 mod ip-dscp 46",
            "in eth0 net-proto ip4 mod ip-ttl 64",
            "in eth1 ip-ttl 2-255 ttl dec",
        ]
    );
    assert!(made.findings.is_empty(), "{:?}", made.findings);
    let text = mangle(
        "-A PREROUTING -i eth1 -j HL --hl-dec 1\n-A PREROUTING -p udp -j DSCP --set-dscp-class EF\n",
    );
    let (lines, _) = rules(Format::Ip6tablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "in eth1 ip6-hop-limit 2-255 ttl dec",
            "net-proto ip6 l4-proto udp mod ip6-dscp 46",
        ]
    );
}

#[test]
fn segments_are_clamped_to_a_size_or_to_the_path() {
    let syn = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS";
    let text = filter(&format!(
        "{syn} --set-mss 1400\n{syn} --clamp-mss-to-pmtu\n"
    ));
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    let set = "net-proto ip4 tcp-flags syn/syn,rst tcp-opt-mss > 1400 mod tcp-opt-mss 1400";
    assert_eq!(lines, [set, "net-proto ip4 drop"]);
    let found = reasons(&made);
    assert_eq!(found.len(), 2, "{found:?}");
    for (part, effect) in [
        ("segments that have none", Effect::NoChange),
        ("--mtu 1492", Effect::NoChange),
    ] {
        let named = |(said, reason): &(Effect, &str)| *said == effect && reason.contains(part);
        assert!(found.iter().any(named), "{part}: {found:?}");
    }
    let known = Options {
        mtu: Some(1492),
        ..forward()
    };
    let (lines, _) = rules(Format::Ip6tablesSave, &text, &known);
    let clamped = "net-proto ip6 tcp-flags syn/syn,rst tcp-opt-mss > 1432 mod tcp-opt-mss 1432";
    assert!(lines.iter().any(|line| line == clamped), "{lines:?}");
    let text = "table inet f { chain c { type filter hook forward priority 0; policy accept;
        tcp flags syn tcp option maxseg size set rt mtu
    } }";
    let (lines, made) = rules(Format::Nft, text, &known);
    assert_eq!(
        lines,
        [
            "net-proto ip4 tcp-flags syn/syn tcp-opt-mss > 1452 mod tcp-opt-mss 1452",
            "net-proto ip6 tcp-flags syn/syn tcp-opt-mss > 1432 mod tcp-opt-mss 1432",
        ]
    );
    assert!(made.findings.is_empty(), "{:?}", made.findings);
}

#[test]
fn other_targets_that_write_are_translated() {
    let text = mangle(
        "-A PREROUTING -p tcp -m tcp --dport 22 -j TOS --set-tos 0xb8/0xff\n\
         -A PREROUTING -p udp -m udp --dport 53 -j TOS --set-tos 0x10/0x3f\n\
         -A PREROUTING -p tcp -m tcp --dport 80 -j ECN --ecn-tcp-remove\n\
         -A PREROUTING -p tcp -m tcp --dport 179 -j TCPOPTSTRIP --strip-options timestamp,sack-permitted,19\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "net-proto ip4 tcp-dport 22 mod ip-dscp 46 mod ip-ecn 0",
            "net-proto ip4 tcp-dport 80 mod tcp-ece 0 mod tcp-cwr 0",
            "net-proto ip4 tcp-dport 179 strip tcp-opt 8 strip tcp-opt 4 strip tcp-opt 19",
        ]
    );
    let found = reasons(&made);
    assert!(
        matches!(found[..], [(Effect::NoChange, reason)] if reason.contains("--set-dscp")),
        "{found:?}"
    );
    let text = "table inet f { chain c { type filter hook forward priority 0; policy accept;
        tcp dport 179 reset tcp option timestamp
    } }";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert_eq!(lines, ["tcp-dport 179 strip tcp-opt 8"]);
    assert!(made.findings.is_empty(), "{:?}", made.findings);
}

#[test]
fn tags_of_pf_are_the_rules_that_set_them() {
    let text = "pass in quick on eth1 proto tcp to port 22 tag ADMIN\n\
        match in on eth1 from 10.1.0.0/16 tag TRUSTED\n\
        match in on eth1 from 10.1.9.0/24 tag GUEST\n\
        block in on eth1 ! tagged TRUSTED\n\
        pass in on eth1 proto udp to port 53 tagged GUEST no state\n\
        pass out on eth0 tagged TRUSTED\n\
        block in proto icmp tagged NOBODY\n";
    let (lines, made) = rules(Format::Pf, text, &forward());
    let has = |wanted: &str| {
        assert!(
            lines.iter().any(|line| line == wanted),
            "{wanted}: {lines:#?}"
        );
    };
    has("in eth1 ip-saddr 10.1.9.0/24 udp-dport 53 accept");
    // A packet has the last of its tags.
    let blocks: Vec<&String> = lines.iter().filter(|line| line.ends_with("drop")).collect();
    assert!(
        blocks
            .iter()
            .any(|line| line.contains("ip-saddr in {") || line.contains("! ip-saddr")),
        "{lines:#?}"
    );
    let found = reasons(&made);
    let of = |effect: Effect, part: &str| {
        let named = |(said, reason): &(Effect, &str)| *said == effect && reason.contains(part);
        assert!(found.iter().any(named), "{part}: {found:?}");
    };
    of(Effect::Elsewhere, "about what leaves");
    of(Effect::Wider, "no rule before it sets the tag NOBODY");
}

#[test]
fn what_iptables_writes_and_weir_does_not_is_named() {
    let text = mangle(
        "-A PREROUTING -j MARK --set-xmark 0x11/0x1\n\
         -A PREROUTING -j TTL --ttl-inc 1\n\
         -A PREROUTING -j TTL --ttl-dec 2\n\
         -A PREROUTING -j CONNMARK --restore-mark\n\
         -A PREROUTING -i eth0 -j MARK --set-xmark 0x1/0xffffffff\n\
         -A PREROUTING -i eth0 -m mark --mark 0x1 -j DROP\n\
         -A FORWARD -j TTL --ttl-set 64\n\
         -A PREROUTING -m limit --limit 5/min -j MARK --set-xmark 0x1/0xffffffff\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(lines, ["in eth0 net-proto ip4 mark 1 drop"]);
    let found = reasons(&made);
    for part in [
        "it inverts bits of the mark",
        "weir does not increment a TTL",
        "weir decrements by 1 only",
        "weir has no target like `CONNMARK`",
        "line 9 tests what it writes",
        "the kernel decrements the TTL before this chain",
        "weir limits what a rule logs or drops",
    ] {
        let named = |(effect, reason): &(Effect, &str)| {
            *effect == Effect::NoChange && reason.contains(part)
        };
        assert!(found.iter().any(named), "{part}: {found:?}");
    }
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn marks_are_tested() {
    let text = filter(
        "-A FORWARD -m mark --mark 0x10 -j ACCEPT\n-A FORWARD -m mark --mark 0x1000/0xf000 -j ACCEPT\n-A FORWARD -m mark ! --mark 0xffff0000/0xffff0000 -p udp -j ACCEPT\n",
    );
    let (lines, made) = rules(Format::IptablesSave, &text, &forward());
    assert_eq!(
        lines,
        [
            "net-proto ip4 mark 16 accept",
            "net-proto ip4 l4-proto udp ! mark 4294901760-4294967295 accept",
            "net-proto ip4 drop",
        ]
    );
    let found = reasons(&made);
    assert!(
        matches!(found[..], [(Effect::Narrower, reason)] if reason.contains("a mask of leading bits")),
        "{found:?}"
    );
}

#[test]
fn what_nftables_writes_is_written() {
    let text =
        "table inet mangle { chain pre { type filter hook prerouting priority -150; policy accept;
        iifname \"eth1\" udp dport 5060 meta mark set 0x00000010 meta priority set 1:10 counter
        iifname \"eth1\" meta mark set meta mark & 0xffffff00 | 0x00000020 tcp dport 22 drop
        ip dscp set ef
        ip6 hoplimit set 64
        tcp flags & (syn | rst) == syn tcp option maxseg size set 1400
        ct mark set meta mark
        tcp option maxseg size set rt mtu
    } }";
    let (lines, made) = rules(Format::Nft, text, &forward());
    assert_eq!(
        lines,
        [
            "in eth1 udp-dport 5060 mark set x10",
            "in eth1 udp-dport 5060 priority set 1:10",
            "in eth1 eth-type in { ip4, ip6 } mark set x20/xff",
            "in eth1 tcp-dport 22 drop",
            "net-proto ip4 mod ip-dscp 46",
            "net-proto ip6 mod ip6-hop-limit 64",
            "tcp-flags syn/syn,rst tcp-opt-mss > 1400 mod tcp-opt-mss 1400",
        ]
    );
    let found = reasons(&made);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].1.contains("belongs to a connection"), "{found:?}");
    assert!(
        found[1]
            .1
            .contains("the MTU of the paths is not in the file"),
        "{found:?}"
    );
}

#[test]
fn times_of_iptables() {
    for (line, wanted) in [
        (
            "-m time --timestart 08:00:00 --timestop 17:00:00 --weekdays Mon,Tue,Wed,Thu,Fri",
            "hour 08:00-17:00 day mon-fri accept",
        ),
        (
            "-m time --timestart 22:00 --timestop 06:00:30",
            "! hour 06:00:31-21:59:59 accept",
        ),
        (
            "-m time --timestop 12:00 ! --weekdays 6,7 --utc",
            "hour 00:00-12:00 day mon-fri accept",
        ),
        ("-m time --weekdays Su", "day sun accept"),
        (
            "-p udp -m time --timestart 08:00 --timestop 08:00 -m udp --dport 53",
            "udp-dport 53 accept",
        ),
    ] {
        let (lines, made) = rules(
            Format::IptablesSave,
            &filter(&format!("-A FORWARD {line} -j ACCEPT\n")),
            &forward(),
        );
        assert!(made.findings.is_empty(), "{line}: {:?}", made.findings);
        let lines: Vec<String> = lines
            .iter()
            .map(|one| one.replace("net-proto ip4 ", ""))
            .collect();
        assert!(
            lines
                .iter()
                .any(|one| one.contains(wanted) || one == wanted),
            "{line}: {lines:?}"
        );
    }
    for (line, said) in [
        (
            "-m time --timestart 08:00 --kerneltz",
            "time zone of the host",
        ),
        (
            "-m time --timestart 22:00 --timestop 06:00 --weekdays Fri --contiguous",
            "the day of the packet",
        ),
        ("-m time --datestart 2027-01-01T00:00:00", "no dates"),
        ("-m time --monthdays 1,15", "no dates"),
        ("-m time --timestart 25:00", "is not understood"),
    ] {
        let (_, made) = rules(
            Format::IptablesSave,
            &filter(&format!("-A FORWARD {line} -j ACCEPT\n")),
            &forward(),
        );
        let found: Vec<String> = made.findings.iter().map(|one| one.reason.clone()).collect();
        assert!(
            found.iter().any(|one| one.contains(said)),
            "{line}: {found:?}"
        );
    }
}

#[test]
fn times_of_nftables() {
    let table = |rule: &str| {
        format!(
            "table ip t {{ chain c {{ type filter hook forward priority 0; policy drop; {rule} }} }}"
        )
    };
    for (rule, wanted) in [
        (
            r#"meta hour "08:00"-"17:00" meta day "Monday" accept"#,
            "hour 08:00-17:00 day mon accept",
        ),
        (
            r#"meta hour >= "22:00" accept"#,
            "hour 22:00-23:59:59 accept",
        ),
        (
            r#"meta hour != "06:00"-"22:00" accept"#,
            "! hour 06:00-22:00 accept",
        ),
        (
            r#"meta hour "22:00"-"06:00" accept"#,
            "! hour 06:00-22:00 accept",
        ),
        (
            r#"meta hour { "00:00"-"06:00", "22:00"-"23:59:59" } accept"#,
            "! hour 06:00:01-21:59:59 accept",
        ),
        ("meta hour 28800-61200 accept", "hour 08:00-17:00 accept"),
        (
            r#"meta day { "Saturday", "Sunday" } accept"#,
            "! day mon-fri accept",
        ),
        ("meta day 1-5 accept", "day mon-fri accept"),
    ] {
        let (lines, made) = rules(Format::Nft, &table(rule), &forward());
        let lines: Vec<String> = lines
            .iter()
            .map(|one| one.replace("net-proto ip4 ", ""))
            .collect();
        assert!(lines.iter().any(|one| one == wanted), "{rule}: {lines:?}");
        let hour = rule.contains("hour");
        let zone = made
            .findings
            .iter()
            .any(|one| one.reason.contains("timezone +02:00") && one.effect == Effect::NoChange);
        assert_eq!(
            (hour, made.findings.len()),
            (zone, usize::from(hour)),
            "{rule}: {:?}",
            made.findings
        );
    }
    let (_, made) = rules(
        Format::Nft,
        &table(r#"meta time >= "2027-01-01 00:00:00" accept"#),
        &forward(),
    );
    assert!(
        made.findings
            .iter()
            .any(|one| one.reason.contains("no dates")),
        "{:?}",
        made.findings
    );
}

#[test]
fn times_become_those_of_nftables_in_utc_only() {
    let export = |text: &str| {
        let parsed = weir_policy::parse(&Source::new("test", text), &NoFiles).expect("a policy");
        weir_import::export_nft(&parsed.policy, &["eth0".to_owned()])
    };
    let utc = export("hour 22:00-06:00 day mon-fri accept\nday != sun drop\nhour 08:00 accept\n");
    assert!(utc.findings.is_empty(), "{:?}", utc.findings);
    for line in [
        "meta hour == { 0-21600, 79200-86399 } meta day == 1-5 accept",
        "meta day != 0-0 drop",
        "meta hour == 28800 accept",
    ] {
        assert!(utc.ruleset.contains(line), "{line}\n{}", utc.ruleset);
    }
    let zoned = export("timezone +02:00\nhour 08:00-17:00 accept\nudp drop\n");
    assert_eq!(zoned.findings.len(), 1);
    assert!(
        zoned.findings[0].reason.contains("another time zone"),
        "{:?}",
        zoned.findings
    );
}

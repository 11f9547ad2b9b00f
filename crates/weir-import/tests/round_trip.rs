//! A policy exported to nftables and loaded in the kernel: the same verdicts on random packets, and every rule that is not in it named.

use weir_import::{Effect, export_nft};
use weir_policy::{NoFiles, Source, parse};

use crate::packets::INTERFACES;
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
ip-ttl < 5 mod ip-ttl 64
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

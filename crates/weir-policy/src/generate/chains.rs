//! Chains in generated policies: some of the rules move into one, and jumps and choices lead there. Whatever stands in a chain is valid: a
//! way that excludes a rule is left out when the policy is laid flat.

/// Choices; each leads into the chain `moved` or past it.
const CHOICES: &[&str] = &[
    "choose tcp-dport { 80: jump moved, 443: accept, else: drop 20% }",
    "all choose ip-saddr { 10.0.0.1: jump moved, 10.0.0.4-10.0.0.9: log, 192.0.2.0/28: drop }",
    "chosen: choose in { eth0: jump moved, else: log \"else\" }",
    "tcp choose sport { @few: log \"few\", 80: jump moved, 1024-65535: accept }",
    "choose net-proto { ip4: log \"4\", ip6: jump moved }",
    "chosen: choose l4-proto { tcp: jump moved, udp: mod udp-checksum 0, else: accept }",
    "choose ip6-hop-limit { 1-63: jump moved, 64: mod ip6-dscp ef, else: drop 50% }",
    "choose vlan-id { 1: mod vlan-pcp 5, 2-9: jump moved, else: log }",
    "choose eth-saddr { 02:00:00:00:00:01: jump moved, 02:00:00:00:00:02: drop 10% }",
];

/// Moves up to three of these rules into a chain, one time in three. `below` draws a number below another, `tests` the tests of a rule.
pub(super) fn moved<D>(
    mut rules: Vec<String>,
    draws: &mut D,
    below: impl Fn(&mut D, usize) -> usize,
    tests: impl Fn(&mut D) -> String,
) -> String {
    if below(draws, 3) < 2 {
        return rules.concat();
    }
    let first = below(draws, rules.len());
    let count = 1 + below(draws, (rules.len() - first).min(3));
    let inside: String = rules.splice(first..first + count, None).collect();
    let chain = format!("chain moved {{\n{inside}}}\n");
    let mut ways = Vec::new();
    for _ in 0..=below(draws, 2) {
        if below(draws, 3) == 2 {
            ways.push(format!("{}\n", CHOICES[below(draws, CHOICES.len())]));
            break;
        }
        ways.push(format!("{} jump moved\n", tests(draws)));
    }
    for way in ways {
        rules.insert(below(draws, rules.len() + 1), way);
    }
    rules.insert(below(draws, rules.len() + 1), chain);
    rules.concat()
}

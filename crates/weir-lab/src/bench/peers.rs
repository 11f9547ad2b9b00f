//! What users could pick instead: the same rules in the words of nftables, iptables and xdp-filter, and how to put them onto a box.
//!
//! Invariant: a program that is not installed is told, never replaced by another one in silence.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use weir_kernel::NetNs;

use super::bed::INSIDE;
use super::rules::{self, ANY, Rule, TCP, span};
use crate::LabError;
use crate::process::{Running, Scratch, missing};

/// What stands on the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// `weir run --hook tc`.
    WeirTc,
    /// `weir run --hook xdp`.
    WeirXdp,
    /// nftables, one rule after the other, in the forward hook.
    NftRules,
    /// nftables, one rule that looks into a set, in the forward hook.
    NftSet,
    /// The same in the ingress hook of the interface: nftables' best form.
    NftIngress,
    /// iptables, one rule after the other, in the FORWARD chain.
    Iptables,
    /// xdp-filter of xdp-tools.
    XdpFilter,
}

impl Contender {
    /// The series in figures' names.
    pub(crate) fn series(self) -> &'static str {
        match self {
            Contender::WeirTc => "weir-tc",
            Contender::WeirXdp => "weir-xdp",
            Contender::NftRules => "nft-rules",
            Contender::NftSet => "nft-set",
            Contender::NftIngress => "nft-ingress",
            Contender::Iptables => "iptables",
            Contender::XdpFilter => "xdp-filter",
        }
    }

    /// Whether it takes one rule after the other: beyond 10,000 a packet takes ms, and loading minutes.
    pub(crate) fn is_linear(self) -> bool {
        matches!(self, Contender::NftRules | Contender::Iptables)
    }

    /// Program and package that it needs, if it is not installed.
    pub(crate) fn absent(self) -> Option<(&'static str, &'static str)> {
        let (program, package) = match self {
            Contender::WeirTc | Contender::WeirXdp => return None,
            Contender::NftRules | Contender::NftSet | Contender::NftIngress => ("nft", "nftables"),
            Contender::Iptables => ("iptables-legacy-restore", "iptables"),
            Contender::XdpFilter => ("xdp-filter", "xdp-tools"),
        };
        (!missing(&[program]).is_empty()).then_some((program, package))
    }
}

/// Rules that a filter is to hold; all of them drop, but for the stateful ones.
#[derive(Clone, Debug)]
pub(crate) enum RuleSet {
    /// Disjoint five-tuple rules.
    Tuples(Vec<Rule>),
    /// Source addresses.
    Sources(Vec<Rule>),
    /// Values of the maximum segment size.
    Mss(Vec<(u16, u16)>),
    /// Disjoint five-tuple rules on who may open a connection; its packets pass in both directions, everything else is dropped.
    Stateful(Vec<Rule>),
    /// Values that the sender's timestamp has.
    Timestamps(Vec<u32>),
}

/// A filter that stands. Dropping it ends weir; everything else ends with its namespace.
pub(crate) struct Standing {
    weir: Option<Running>,
}

/// Loads xdp-filter onto an interface, then a file of addresses. It pins its maps by the interface's name, whatever the network namespace:
/// a file system of its own, which ends with the shell, keeps several of them, and others' of the host, apart.
const XDP_FILTER: &str = r#"
set -e
mount --make-rprivate /
mount -t bpf bpf /sys/fs/bpf
xdp-filter load "$1" -m native -p allow -f ipv4
while read -r address; do xdp-filter ip -m src "$address" >/dev/null; done <"$2"
"#;

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(weir) = &mut self.weir {
            let _ = weir.signal(Signal::INT);
            let _ = weir.wait(Duration::from_secs(10));
        }
    }
}

/// Puts a filter with these rules onto a box, as far as it knows interfaces onto these.
pub(crate) fn stand(
    filter: Contender,
    set: &RuleSet,
    ns: &NetNs,
    ports: &[&str],
    weir: &Path,
    scratch: &Scratch,
) -> Result<Standing, LabError> {
    let mut standing = Standing { weir: None };
    match filter {
        Contender::WeirTc | Contender::WeirXdp => {
            let hook = if filter == Contender::WeirTc {
                "tc"
            } else {
                "xdp"
            };
            let path = scratch.fresh("policy", "weir");
            write(&path, &set.weir())?;
            let mut command = ns.command(&weir.to_string_lossy())?;
            command.args(["run", "--json", "--hook", hook]);
            for port in ports {
                command.args(["-i", port]);
            }
            // Its own looking at counters is not to be measured.
            command.args(["--interval", "3600"]).arg(&path);
            command.stdout(std::process::Stdio::null());
            let mut running = Running::start(&mut command, "weir run", scratch)?;
            let attached = running.wait_until(Duration::from_secs(60), |r| {
                Ok(r.stderr().contains("attached to"))
            });
            if let Err(error) = attached {
                // A refused policy says what is wrong with it first, and last how often.
                let words = running.stderr();
                let first = words.lines().find(|line| line.starts_with("error"));
                return Err(first.map_or(error, |line| LabError::Child {
                    what: "weir run".to_owned(),
                    why: line.to_owned(),
                }));
            }
            standing.weir = Some(running);
        }
        Contender::NftRules | Contender::NftSet | Contender::NftIngress => {
            let path = scratch.fresh("rules", "nft");
            write(&path, &set.nft(filter))?;
            ns.output("nft", &["-f", &path.to_string_lossy()])?;
        }
        Contender::Iptables => {
            let path = scratch.fresh("rules", "iptables");
            write(&path, &set.iptables())?;
            ns.output("iptables-legacy-restore", &[&path.to_string_lossy()])?;
        }
        Contender::XdpFilter => {
            let path = scratch.fresh("addresses", "txt");
            let mut addresses = String::new();
            for rule in set.sources() {
                let _ = writeln!(addresses, "{}", Ipv4Addr::from(rule.source.0));
            }
            write(&path, &addresses)?;
            let path = path.to_string_lossy();
            ns.output(
                "unshare",
                &["-m", "sh", "-c", XDP_FILTER, "sh", INSIDE, &path],
            )?;
        }
    }
    Ok(standing)
}

impl RuleSet {
    /// A policy of weir.
    pub(crate) fn weir(&self) -> String {
        match self {
            RuleSet::Tuples(rules) | RuleSet::Sources(rules) => rules::policy(rules, "drop"),
            RuleSet::Mss(values) => rules::mss_policy(values, "drop"),
            RuleSet::Stateful(rules) => {
                // Neighbours must find each other: other filters do not see ARP.
                let mut text = String::from("eth-type arp accept\n");
                for rule in rules {
                    text.push_str("add-stateful ");
                    rule.policy_line("accept", &mut text);
                }
                text.push_str("all drop\n");
                text
            }
            RuleSet::Timestamps(values) => {
                let mut text = String::new();
                for value in values {
                    // The option's number has the echoed value below.
                    let low = u64::from(*value) << 32;
                    let _ = writeln!(
                        text,
                        "tcp-opt-timestamp {low}-{} drop",
                        low | u64::from(u32::MAX)
                    );
                }
                text
            }
        }
    }

    fn sources(&self) -> &[Rule] {
        match self {
            RuleSet::Sources(rules) => rules,
            _ => &[],
        }
    }

    fn nft(&self, filter: Contender) -> String {
        let mut text = String::new();
        let (family, chain) = match filter {
            Contender::NftIngress => (
                "netdev",
                format!("type filter hook ingress device \"{INSIDE}\" priority 0;"),
            ),
            _ => ("ip", "type filter hook forward priority 0;".to_owned()),
        };
        let _ = writeln!(text, "table {family} bench {{");
        let rule = if filter == Contender::NftRules {
            None
        } else {
            Some(self.nft_set(&mut text))
        };
        let _ = writeln!(text, " chain filter {{ {chain} policy accept;");
        let stateful = matches!(self, RuleSet::Stateful(_));
        if stateful {
            text.push_str("  ct state established,related accept\n");
        }
        let target = if stateful { "accept" } else { "drop" };
        match rule {
            Some(rule) => {
                let _ = writeln!(text, "  {rule} {target}");
            }
            None => self.nft_rules(target, &mut text),
        }
        if stateful {
            text.push_str("  drop\n");
        }
        text.push_str(" }\n}\n");
        text
    }

    /// Writes the set; returns the rule that looks into it.
    fn nft_set(&self, text: &mut String) -> &'static str {
        let prefix = |(network, bits)| format!("{}/{bits}", Ipv4Addr::from(network));
        let exact = |rule: &Rule| {
            rule.source.1 == 32
                && rule.destination.1 == 32
                && rule.sport.0 == rule.sport.1
                && rule.dport.0 == rule.dport.1
        };
        let (kind, rule, elements): (&str, &str, Vec<String>) = match self {
            RuleSet::Tuples(rules) if rules.iter().all(exact) => (
                "type ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service;",
                "ip saddr . ip daddr . ip protocol . th sport . th dport @rules",
                rules
                    .iter()
                    .map(|r| {
                        let (s, d) = (Ipv4Addr::from(r.source.0), Ipv4Addr::from(r.destination.0));
                        format!("{s} . {d} . {} . {} . {}", r.protocol, r.sport.0, r.dport.0)
                    })
                    .collect(),
            ),
            RuleSet::Tuples(rules) | RuleSet::Stateful(rules) => (
                "type ipv4_addr . ipv4_addr . inet_proto . inet_service; flags interval;",
                "ip saddr . ip daddr . ip protocol . th dport @rules",
                rules
                    .iter()
                    .map(|r| {
                        let (s, d) = (prefix(r.source), prefix(r.destination));
                        format!("{s} . {d} . {} . {}", r.protocol, span(r.dport))
                    })
                    .collect(),
            ),
            RuleSet::Sources(rules) => (
                "type ipv4_addr;",
                "ip saddr @rules",
                rules
                    .iter()
                    .map(|r| Ipv4Addr::from(r.source.0).to_string())
                    .collect(),
            ),
            RuleSet::Mss(values) if values.iter().all(|(low, high)| low == high) => (
                "typeof tcp option maxseg size;",
                "tcp option maxseg size @rules",
                values.iter().map(|v| span(*v)).collect(),
            ),
            RuleSet::Mss(values) => (
                "typeof tcp option maxseg size; flags interval;",
                "tcp option maxseg size @rules",
                values.iter().map(|v| span(*v)).collect(),
            ),
            RuleSet::Timestamps(values) => (
                "typeof tcp option timestamp tsval;",
                "tcp option timestamp tsval @rules",
                values.iter().map(u32::to_string).collect(),
            ),
        };
        let _ = writeln!(
            text,
            " set rules {{ {kind}\n  elements = {{\n{}\n  }}\n }}",
            elements.join(",\n")
        );
        rule
    }

    fn nft_rules(&self, target: &str, text: &mut String) {
        match self {
            RuleSet::Tuples(rules) | RuleSet::Sources(rules) | RuleSet::Stateful(rules) => {
                for rule in rules {
                    let name = if rule.protocol == TCP { "tcp" } else { "udp" };
                    for (field, (network, bits)) in
                        [("saddr", rule.source), ("daddr", rule.destination)]
                    {
                        if bits > 0 {
                            let _ = write!(text, "ip {field} {}/{bits} ", Ipv4Addr::from(network));
                        }
                    }
                    if rule.protocol != 0 {
                        let _ = write!(text, "ip protocol {} ", rule.protocol);
                    }
                    for (field, range) in [("sport", rule.sport), ("dport", rule.dport)] {
                        if range != ANY {
                            let _ = write!(text, "{name} {field} {} ", span(range));
                        }
                    }
                    let _ = writeln!(text, "{target}");
                }
            }
            RuleSet::Mss(values) => {
                for value in values {
                    let _ = writeln!(text, "tcp option maxseg size {} {target}", span(*value));
                }
            }
            RuleSet::Timestamps(values) => {
                for value in values {
                    let _ = writeln!(text, "tcp option timestamp tsval {value} {target}");
                }
            }
        }
    }

    fn iptables(&self) -> String {
        let mut text = String::from("*filter\n");
        let target = match self {
            RuleSet::Stateful(_) => "ACCEPT",
            _ => "DROP",
        };
        if matches!(self, RuleSet::Stateful(_)) {
            text.push_str("-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n");
        }
        match self {
            RuleSet::Tuples(rules) | RuleSet::Sources(rules) | RuleSet::Stateful(rules) => {
                for rule in rules {
                    text.push_str("-A FORWARD ");
                    for (flag, (network, bits)) in [("-s", rule.source), ("-d", rule.destination)] {
                        if bits > 0 {
                            let _ = write!(text, "{flag} {}/{bits} ", Ipv4Addr::from(network));
                        }
                    }
                    if rule.protocol != 0 {
                        let name = if rule.protocol == TCP { "tcp" } else { "udp" };
                        let _ = write!(text, "-p {name} ");
                        for (flag, (low, high)) in
                            [("--sport", rule.sport), ("--dport", rule.dport)]
                        {
                            if (low, high) != ANY {
                                let _ = write!(text, "{flag} {low}:{high} ");
                            }
                        }
                    }
                    let _ = writeln!(text, "-j {target}");
                }
            }
            RuleSet::Mss(values) => {
                for (low, high) in values {
                    let _ = writeln!(
                        text,
                        "-A FORWARD -p tcp -m tcpmss --mss {low}:{high} -j DROP"
                    );
                }
            }
            RuleSet::Timestamps(values) => {
                for value in values {
                    // iptables does not look for options: this is where Linux puts the timestamp in data segments.
                    let _ = writeln!(
                        text,
                        "-A FORWARD -p tcp -m u32 --u32 \"0>>22&0x3C@24={value}\" -j DROP"
                    );
                }
            }
        }
        if matches!(self, RuleSet::Stateful(_)) {
            text.push_str("-A FORWARD -j DROP\n");
        }
        text.push_str("COMMIT\n");
        text
    }
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        vec![
            Rule {
                source: (0x0b00_0000, 8),
                destination: (0x0c00_0001, 32),
                dport: (80, 443),
                ..Rule::everything(TCP)
            },
            Rule {
                source: (0x0d01_0000, 16),
                destination: (0x0c00_0001, 32),
                dport: (53, 53),
                ..Rule::everything(rules::UDP)
            },
        ]
    }

    #[test]
    fn the_same_rules_in_every_language() {
        let set = RuleSet::Tuples(rules());
        let plain = set.nft(Contender::NftRules);
        assert!(plain.contains(
            "ip saddr 11.0.0.0/8 ip daddr 12.0.0.1/32 ip protocol 6 tcp dport 80-443 drop"
        ));
        assert!(plain.contains("udp dport 53 drop"));
        let best = set.nft(Contender::NftIngress);
        assert!(best.contains("table netdev") && best.contains("hook ingress"));
        assert!(best.contains("11.0.0.0/8 . 12.0.0.1/32 . 6 . 80-443"));
        let iptables = set.iptables();
        assert!(
            iptables
                .contains("-A FORWARD -s 11.0.0.0/8 -d 12.0.0.1/32 -p tcp --dport 80:443 -j DROP")
        );
        assert_eq!(iptables.matches("-j DROP").count(), 2);
        assert_eq!(set.weir().lines().count(), 2);
    }

    #[test]
    fn known_connections_come_first_and_strangers_last() {
        let set = RuleSet::Stateful(rules());
        let at = |text: &str, what: &str| text.find(what).expect("is there");
        for nft in [Contender::NftRules, Contender::NftSet].map(|c| set.nft(c)) {
            assert!(at(&nft, "ct state established") < at(&nft, "  drop\n"));
            assert_eq!(nft.matches("drop").count(), 1);
        }
        let iptables = set.iptables();
        assert!(at(&iptables, "--ctstate ESTABLISHED") < at(&iptables, "-j DROP"));
        assert_eq!(iptables.matches("-j ACCEPT").count(), 3);
        let weir = set.weir();
        assert_eq!(weir.matches("add-stateful ").count(), 2);
        assert!(weir.ends_with("all drop\n"));
    }

    #[test]
    fn a_set_of_exact_values_is_hashed() {
        let values = |ranges| RuleSet::Mss(rules::mss_values(10, ranges));
        assert!(!values(false).nft(Contender::NftSet).contains("interval"));
        assert!(values(true).nft(Contender::NftSet).contains("interval"));
        let exact = RuleSet::Tuples(rules::exact(3)).nft(Contender::NftSet);
        assert!(!exact.contains("interval") && exact.contains("th sport"));
    }
}

//! The stable names of all figures with their targets: the one list that docs/figures.md is made from and tests compare outcomes with.
//!
//! A name is PART.SET.SERIES.SIZE.KIND, or PART.SERIES.KIND where there is no size. In this list SIZE is written `N`, or `SET` where it
//! is the name of a rule set.

/// Figures with one pattern of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name with placeholders; kinds separated by `|`.
    pub pattern: &'static str,
    /// What is measured.
    pub meaning: &'static str,
    /// What it must be; empty: for comparison.
    pub target: &'static str,
}

/// All figures of `weir bench middlebox`.
pub const MIDDLEBOX: &[Row] = &[
    Row {
        pattern: "testrun.rules.weir.N.hot|cold|any",
        meaning: "N rules between sites (prefixes, ranges, flags); N = 0: a program without rules",
        target: "100,000 at most 2x of 1,000 (hot and cold; any is reported beside it)",
    },
    Row {
        pattern: "testrun.rules.table-per-mask.N.hot|cold|any",
        meaning: "the same rules, one table for each mask: the scheme of mmb",
        target: "at 100,000 at least 10x weir's",
    },
    Row {
        pattern: "testrun.rules.linear.N.hot|cold|any",
        meaning: "the same rules, every one compared",
        target: "",
    },
    Row {
        pattern: "testrun.exact.weir.N.hot|cold|any",
        meaning: "N exact five-tuples",
        target: "",
    },
    Row {
        pattern: "testrun.exact.tuple-hash.N.hot|cold|any",
        meaning: "the same in one hash map: the mmb paper's XDP firewall",
        target: "",
    },
    Row {
        pattern: "testrun.exact.tracker.N.hot|cold|any",
        meaning: "rules and connections in three hash maps: the mmb paper's XDP tracker",
        target: "",
    },
    Row {
        pattern: "testrun.masks.weir.N.hot|cold|any",
        meaning: "2,000 rules of N masks",
        target: "1,000 at most 2x of 26",
    },
    Row {
        pattern: "testrun.masks.table-per-mask.N.hot|cold|any",
        meaning: "the same, one table for each mask",
        target: "",
    },
    Row {
        pattern: "testrun.mss.weir.N.hot|cold",
        meaning: "N values of a TCP option",
        target: "10,000 at most 1.2x of 10",
    },
    Row {
        pattern: "testrun.mss-range.weir.N.hot|cold",
        meaning: "N ranges of a TCP option's value",
        target: "1,000 at most 1.5x of 10",
    },
    Row {
        pattern: "testrun.classbench.weir.SET.hot|cold|any",
        meaning: "a rule set of ClassBench",
        target: "100,000 rules at most 2x of 1,000 of the family",
    },
    Row {
        pattern: "testrun.classbench.table-per-mask.SET.hot|cold|any",
        meaning: "the same, one table for each mask",
        target: "at 100,000 rules at least 10x weir's",
    },
    Row {
        pattern: "testrun.connections.plain.N.zipf|uniform|uniform-more",
        meaning: "a packet of one of N open UDP connections of a reflexive rule; uniform-more: 1,000,000 without 1,000",
        target: "zipf: 1,000,000 at most 1.3x of 1,000; uniform: at most 300 ns more",
    },
    Row {
        pattern: "testrun.connections.nat.N.zipf|uniform|uniform-more",
        meaning: "the same with translated source addresses",
        target: "zipf: 1,000,000 at most 1.3x of 1,000; uniform: at most 300 ns more",
    },
    Row {
        pattern: "live.floor.pass|drop",
        meaning: "generating a packet and delivering it to the box, where it is dropped at once; subtracted from all other live figures",
        target: "",
    },
    Row {
        pattern: "live.tuples.forwarding.N.pass",
        meaning: "the packets of the following figures through a box without any filter",
        target: "",
    },
    Row {
        pattern: "live.tuples.weir-tc.N.pass|drop|added",
        meaning: "N disjoint rules on addresses, protocol and port; weir on tc. added: pass without the forwarding",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.tuples.weir-xdp.N.pass|drop|added",
        meaning: "the same on XDP",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.tuples.nft-rules.N.pass|drop|added",
        meaning: "nftables, rule by rule",
        target: "",
    },
    Row {
        pattern: "live.tuples.nft-set.N.pass|drop|added",
        meaning: "nftables, one concatenated set, forward hook",
        target: "",
    },
    Row {
        pattern: "live.tuples.nft-ingress.N.pass|drop|added",
        meaning: "nftables, one concatenated set, ingress hook: its best form",
        target: "",
    },
    Row {
        pattern: "live.tuples.iptables.N.pass|drop|added",
        meaning: "iptables (the kernel's own, not its nftables front end), rule by rule",
        target: "",
    },
    Row {
        pattern: "live.exact.forwarding.N.pass",
        meaning: "the packets of the following figures through a box without any filter",
        target: "",
    },
    Row {
        pattern: "live.exact.weir-tc.N.pass|drop|added",
        meaning: "N exact five-tuples, the rules of the paper's firewall; weir on tc",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.exact.weir-xdp.N.pass|drop|added",
        meaning: "the same on XDP",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.exact.nft-set.N.pass|drop|added",
        meaning: "nftables, one hashed set, forward hook",
        target: "",
    },
    Row {
        pattern: "live.exact.nft-ingress.N.pass|drop|added",
        meaning: "nftables, one hashed set, ingress hook",
        target: "",
    },
    Row {
        pattern: "live.sources.forwarding.N.pass",
        meaning: "the packets of the following figures through a box without any filter",
        target: "",
    },
    Row {
        pattern: "live.sources.weir-tc.N.pass|drop|added",
        meaning: "N source addresses; weir on tc",
        target: "",
    },
    Row {
        pattern: "live.sources.weir-xdp.N.pass|drop|added",
        meaning: "the same on XDP",
        target: "",
    },
    Row {
        pattern: "live.sources.nft-set.N.pass|drop|added",
        meaning: "nftables, one set, forward hook",
        target: "",
    },
    Row {
        pattern: "live.sources.nft-ingress.N.pass|drop|added",
        meaning: "nftables, one set, ingress hook",
        target: "",
    },
    Row {
        pattern: "live.sources.xdp-filter.N.pass|drop|added",
        meaning: "xdp-filter, whose rules can say no more than this",
        target: "",
    },
    Row {
        pattern: "live.mss.forwarding.N.pass",
        meaning: "the packets of the following figures through a box without any filter",
        target: "",
    },
    Row {
        pattern: "live.mss.weir-tc.N.pass|drop|added",
        meaning: "N values of a TCP option on SYNs; weir on tc",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.mss.weir-xdp.N.pass|drop|added",
        meaning: "the same on XDP",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.mss.nft-rules.N.pass|drop|added",
        meaning: "nftables, rule by rule",
        target: "",
    },
    Row {
        pattern: "live.mss.nft-set.N.pass|drop|added",
        meaning: "nftables, one set, forward hook",
        target: "",
    },
    Row {
        pattern: "live.mss.nft-ingress.N.pass|drop|added",
        meaning: "nftables, one set, ingress hook",
        target: "",
    },
    Row {
        pattern: "live.mss.iptables.N.pass|drop|added",
        meaning: "iptables, rule by rule",
        target: "",
    },
    Row {
        pattern: "live.stateful.forwarding.N.pass",
        meaning: "the packets of the following figures through a box without any filter",
        target: "",
    },
    Row {
        pattern: "live.stateful.weir-tc.N.pass|drop|added",
        meaning: "N disjoint rules on who may open a connection (reflexive access list); pass: established UDP flows in both directions, drop: what no rule allows; weir on tc",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.stateful.weir-xdp.N.pass|drop|added",
        meaning: "the same on XDP",
        target: "from 10 rules on at most 1x of nftables' fastest form and of iptables (pass and drop)",
    },
    Row {
        pattern: "live.stateful.nft-set.N.pass|drop|added",
        meaning: "nftables with its connection tracking, one set",
        target: "",
    },
    Row {
        pattern: "live.stateful.nft-rules.N.pass|drop|added",
        meaning: "the same, rule by rule",
        target: "",
    },
    Row {
        pattern: "live.stateful.iptables.N.pass|drop|added",
        meaning: "iptables with connection tracking, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.direct.bandwidth|cpu",
        meaning: "7 iperf3 flows without a box: Figure 6 of the paper. bandwidth in Gbit/s, cpu in CPU-ms for a gigabit, both ends included",
        target: "",
    },
    Row {
        pattern: "bandwidth.forwarding.bandwidth|cpu",
        meaning: "through a box that forwards",
        target: "",
    },
    Row {
        pattern: "bandwidth.weir-tc.bandwidth|cpu",
        meaning: "through weir without rules, tc",
        target: "",
    },
    Row {
        pattern: "bandwidth.weir-xdp.bandwidth|cpu",
        meaning: "through weir without rules, XDP: on veth the senders lose segmentation offload",
        target: "",
    },
    Row {
        pattern: "bandwidth.tuples.weir-tc.N.bandwidth|cpu",
        meaning: "N rules that match no stream: Figure 7a; weir, tc",
        target: "",
    },
    Row {
        pattern: "bandwidth.tuples.weir-xdp.N.bandwidth|cpu",
        meaning: "N rules that match no stream: Figure 7a; weir, XDP",
        target: "",
    },
    Row {
        pattern: "bandwidth.tuples.nft-set.N.bandwidth|cpu",
        meaning: "N rules that match no stream: Figure 7a; nftables, one set",
        target: "",
    },
    Row {
        pattern: "bandwidth.tuples.nft-rules.N.bandwidth|cpu",
        meaning: "N rules that match no stream: Figure 7a; nftables, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.tuples.iptables.N.bandwidth|cpu",
        meaning: "N rules that match no stream: Figure 7a; iptables, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.stateful.weir-tc.N.bandwidth|cpu",
        meaning: "N rules on who may open a connection and one that the streams match: Figure 7b; weir, tc",
        target: "",
    },
    Row {
        pattern: "bandwidth.stateful.nft-set.N.bandwidth|cpu",
        meaning: "N rules on who may open a connection and one that the streams match: Figure 7b; nftables, one set",
        target: "",
    },
    Row {
        pattern: "bandwidth.stateful.nft-rules.N.bandwidth|cpu",
        meaning: "N rules on who may open a connection and one that the streams match: Figure 7b; nftables, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.stateful.iptables.N.bandwidth|cpu",
        meaning: "N rules on who may open a connection and one that the streams match: Figure 7b; iptables, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.timestamps.weir-tc.N.bandwidth|cpu",
        meaning: "N rules on values of a TCP option that every segment has: Figure 7c; weir, tc",
        target: "",
    },
    Row {
        pattern: "bandwidth.timestamps.weir-xdp.N.bandwidth|cpu",
        meaning: "N rules on values of a TCP option that every segment has: Figure 7c; weir, XDP",
        target: "",
    },
    Row {
        pattern: "bandwidth.timestamps.nft-set.N.bandwidth|cpu",
        meaning: "N rules on values of a TCP option that every segment has: Figure 7c; nftables, one set",
        target: "",
    },
    Row {
        pattern: "bandwidth.timestamps.nft-rules.N.bandwidth|cpu",
        meaning: "N rules on values of a TCP option that every segment has: Figure 7c; nftables, rule by rule",
        target: "",
    },
    Row {
        pattern: "bandwidth.timestamps.iptables.N.bandwidth|cpu",
        meaning: "N rules on values of a TCP option that every segment has: Figure 7c; iptables, rule by rule; finds the option at its usual place only",
        target: "",
    },
];

/// All figures of `weir bench vm`.
pub const VM: &[Row] = &[
    Row {
        pattern: "floor",
        meaning: "the empty program in a test run of the kernel; subtracted from the kernel's figures",
        target: "",
    },
    Row {
        pattern: "lookup.kernel",
        meaning: "parse Ethernet, IPv4 and UDP, look the destination up in a hash of 1,024 hosts, count: the kernel, net",
        target: "",
    },
    Row {
        pattern: "lookup.jit",
        meaning: "the same as native code of the user engine, its call included",
        target: "at most 0.5x of the kernel",
    },
    Row {
        pattern: "floor.jit",
        meaning: "the empty program as native code: what a run of the user engine costs by itself",
        target: "",
    },
    Row {
        pattern: "lookup.jit.net",
        meaning: "lookup.jit less floor.jit, as the kernel's figures are less their floor",
        target: "",
    },
    Row {
        pattern: "lookup.interpreter",
        meaning: "the same in the checked interpreter",
        target: "",
    },
    Row {
        pattern: "lookup.rbpf",
        meaning: "the same in rbpf's JIT with a fast hash table as helper (builds with the feature `rbpf`)",
        target: "at least 2x of lookup.jit",
    },
    Row {
        pattern: "middlebox.kernel",
        meaning: "the middlebox with 1,000 rules between sites, hot packets that match two: the kernel, net",
        target: "",
    },
    Row {
        pattern: "middlebox.jit",
        meaning: "the same as native code of the user engine, its call included",
        target: "at most 0.7x of the kernel",
    },
    Row {
        pattern: "middlebox.interpreter",
        meaning: "the same in the checked interpreter",
        target: "",
    },
    Row {
        pattern: "verify.kernel",
        meaning: "loading the middlebox with every feature into the kernel: maps, verifier and JIT",
        target: "",
    },
    Row {
        pattern: "verify.weir",
        meaning: "the same program through weir's verifier",
        target: "at most 1x of the kernel",
    },
    Row {
        pattern: "compile.jit",
        meaning: "native code of it",
        target: "at most 5 ms",
    },
];

/// Whether a figure's name follows one of the patterns.
pub fn is_known(name: &str) -> bool {
    MIDDLEBOX.iter().chain(VM).any(|row| row.covers(name))
}

impl Row {
    fn covers(&self, name: &str) -> bool {
        let (pattern, name): (Vec<&str>, Vec<&str>) =
            (self.pattern.split('.').collect(), name.split('.').collect());
        pattern.len() == name.len()
            && pattern.iter().zip(name).all(|(p, n)| match *p {
                "N" => n.parse::<u64>().is_ok(),
                "SET" => !n.is_empty(),
                kinds => kinds.split('|').any(|kind| kind == n),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_patterns() {
        assert!(is_known("testrun.rules.weir.100000.hot"));
        assert!(is_known("testrun.classbench.weir.acl1_1000.cold"));
        assert!(is_known("live.floor.pass"));
        for wrong in [
            "testrun.rules.weir.many.hot",
            "testrun.rules.weir.10.warm",
            "testrun.rules.weir.10",
            "live.floor",
        ] {
            assert!(!is_known(wrong), "{wrong}");
        }
    }

    /// docs/figures.md has these tables; `WEIR_UPDATE=1` renews them.
    #[test]
    fn the_documented_tables_are_these() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures.md");
        for (name, rows) in [("middlebox", MIDDLEBOX), ("vm", VM)] {
            let page = std::fs::read_to_string(path).expect("docs/figures.md");
            let mut table = String::from("| figure | what | target |\n|---|---|---|\n");
            for row in rows {
                let target = if row.target.is_empty() {
                    "-"
                } else {
                    row.target
                };
                let pattern = row.pattern.replace('|', "\\|");
                table.push_str(&format!("| `{pattern}` | {} | {target} |\n", row.meaning));
            }
            let (start, end) = (format!("<!-- {name} -->\n"), "<!-- end -->");
            let from = page.find(&start).expect("a start mark") + start.len();
            let to = from + page[from..].find(end).expect("an end mark");
            if page[from..to] != table && std::env::var_os("WEIR_UPDATE").is_some() {
                let renewed = format!("{}{table}{}", &page[..from], &page[to..]);
                std::fs::write(path, renewed).expect("docs/figures.md can be written");
                continue;
            }
            assert_eq!(page[from..to], table, "renew it with WEIR_UPDATE=1");
        }
    }
}

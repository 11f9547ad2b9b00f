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
        pattern: "testrun.connections.tcp.N.zipf|uniform|uniform-more",
        meaning: "the same of TCP, segments with data whose numbers rise, so that each moves the window",
        target: "zipf: 1,000,000 at most 1.3x of 1,000; uniform: at most 300 ns more",
    },
    Row {
        pattern: "testrun.connections.tcp.1000.window",
        meaning: "tcp.1000.uniform without plain.1000.uniform: what following sequence numbers adds",
        target: "at most 15 ns",
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

/// All figures of `weir bench limits`.
pub const LIMITS: &[Row] = &[
    Row {
        pattern: "testrun",
        meaning: "the empty program in a test run: the floor of all test runs",
        target: "",
    },
    Row {
        pattern: "memory.N",
        meaning: "a look-up in an array and a load from N KiB, where each load says which line is next",
        target: "",
    },
    Row {
        pattern: "lookup.percpu-array",
        meaning: "a look-up in a per-CPU array that is in the cache, and a count",
        target: "",
    },
    Row {
        pattern: "lookup.hash.N",
        meaning: "a look-up in a hash of N entries with keys of 16 bytes, each of another entry",
        target: "",
    },
    Row {
        pattern: "lookup.lpm-trie.N",
        meaning: "a look-up in the kernel's prefix trie of N host routes",
        target: "",
    },
    Row {
        pattern: "atomic",
        meaning: "an atomic addition to a line that no other CPU has",
        target: "",
    },
    Row {
        pattern: "call",
        meaning: "a call of a function of the program, and its return",
        target: "",
    },
    Row {
        pattern: "helper",
        meaning: "a call of the shortest helper (`bpf_get_numa_node_id`)",
        target: "",
    },
    Row {
        pattern: "clock",
        meaning: "`bpf_ktime_get_ns`",
        target: "",
    },
    Row {
        pattern: "tail-call",
        meaning: "a tail call through a program array",
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

/// All figures of `weir bench xdp`.
pub const XDP: &[Row] = &[
    Row {
        pattern: "testrun.chain.weir.N.total|hop",
        meaning: "a chain of N functions that do nothing but count, joined as the edge engine joins them: entry, N functions, drop. total: ns a packet, the test run's own cost included; hop: the slope from one function to N, so that entry and drop are not in it",
        target: "hop of 32: at most 5 ns",
    },
    Row {
        pattern: "testrun.chain.looked-up.N.total|hop",
        meaning: "the same with links that are looked up, as in loops and very large graphs",
        target: "",
    },
    Row {
        pattern: "testrun.chain.tail-calls.N.total|hop",
        meaning: "N programs written by hand that call each other by constant numbers and do nothing",
        target: "",
    },
    Row {
        pattern: "testrun.chain.counting.N.total|hop",
        meaning: "the same, each counting packets, bytes and verdicts as weir's functions do",
        target: "",
    },
    Row {
        pattern: "testrun.chain.panel.N.hop",
        meaning: "the patch panel's own share: weir's hop less that of `counting`",
        target: "of 32: at most 3 ns",
    },
    Row {
        pattern: "verified.empty.graph|watched",
        meaning: "instructions that the verifier walks for the empty function in a graph, and in the form that can be watched",
        target: "",
    },
    Row {
        pattern: "verified.entry.graph|watched",
        meaning: "the same for the program of a port",
        target: "",
    },
    Row {
        pattern: "verified.filter.graph|watched",
        meaning: "the same for the filter without rules",
        target: "",
    },
    Row {
        pattern: "live.floor.N.ipv4|ipv6",
        meaning: "generating a packet (of N random sources) without any device; subtracted from all other live figures",
        target: "",
    },
    Row {
        pattern: "live.floor.cpu",
        meaning: "the same in the small portions that `live.minimal.cpu` is measured in",
        target: "",
    },
    Row {
        pattern: "live.minimal.drop|read|tx|redirect|cpu|pass",
        meaning: "the least program that does it: drop without a look at the packet, drop after one, back out of the interface, out of another one, to another CPU, to the stack (which drops in iptables' raw table)",
        target: "",
    },
    Row {
        pattern: "live.graph.drop|tx|redirect|pass",
        meaning: "the same by a graph of weir's: entry, the empty function, a way out",
        target: "",
    },
    Row {
        pattern: "live.over.drop|tx|redirect",
        meaning: "the graph less the least program (drop: the one without a look)",
        target: "at most 20 ns",
    },
    Row {
        pattern: "live.over.pass",
        meaning: "the same on the way to the stack",
        target: "",
    },
    Row {
        pattern: "live.chain.N.drop",
        meaning: "a chain of N empty functions on a device, which ends in a drop; 40 are more than the kernel calls in a row, so that packets are recirculated once",
        target: "",
    },
    Row {
        pattern: "live.recirculation.extra",
        meaning: "what the chain of 40 takes beyond 8 more hops of the chain of 32",
        target: "",
    },
    Row {
        pattern: "live.kernel.redirect",
        meaning: "the kernel's own forwarding of the same packets",
        target: "",
    },
    Row {
        pattern: "live.none.pass",
        meaning: "packets to the same stack without any XDP program",
        target: "",
    },
    Row {
        pattern: "live.minimal.pass-overhead",
        meaning: "what the least XDP program adds to a packet that goes on to the stack",
        target: "",
    },
    Row {
        pattern: "live.graph.pass-overhead",
        meaning: "what a graph of one function adds to it",
        target: "",
    },
    Row {
        pattern: "live.prefixes.minimal.N.ipv4|ipv6",
        meaning: "packets of N random sources dropped by the least program after one look",
        target: "",
    },
    Row {
        pattern: "live.prefixes.filter.N.ipv4|ipv6",
        meaning: "the same dropped by weir's filter: N prefixes of mixed lengths, sources random over all of them",
        target: "",
    },
    Row {
        pattern: "live.prefixes.filter-over-drop.N.ipv4|ipv6",
        meaning: "the filter less the least program",
        target: "100,000: at most 90 ns",
    },
    Row {
        pattern: "live.prefixes.filter-over-small.N.ipv4|ipv6",
        meaning: "the filter with N prefixes less the filter with 1,000",
        target: "1,000,000: at most 80 ns",
    },
    Row {
        pattern: "live.prefixes.iptables-raw.N.ipv4|ipv6",
        meaning: "one rule in iptables' raw table, the paper's comparison",
        target: "at least 4x of filter.1",
    },
    Row {
        pattern: "live.prefixes.nft-ingress.N.ipv4|ipv6",
        meaning: "nftables in the interface's ingress hook; from 1,000 on one interval set",
        target: "",
    },
    Row {
        pattern: "live.prefixes.xdp-filter.N.ipv4|ipv6",
        meaning: "xdp-filter with one address",
        target: "",
    },
    Row {
        pattern: "load.drop.minimal.N.busy|lost",
        meaning: "N thousand packets a second for a receive queue with its own CPU, dropped by the least program. busy: percent of its time that the queue's thread worked; lost: percent of packets that found the queue full",
        target: "",
    },
    Row {
        pattern: "load.drop.graph.N.busy|lost",
        meaning: "the same dropped by a graph of the empty function",
        target: "",
    },
    Row {
        pattern: "load.drop.filter.N.busy|lost",
        meaning: "the same dropped by the filter with one prefix",
        target: "",
    },
    Row {
        pattern: "cores.drop.minimal.N.cpu|rate",
        meaning: "N CPUs generate at once, each for its own interface, and the least program drops. cpu: ns of CPU time a packet, net; rate: million packets a second by the clock on the wall, generating included",
        target: "",
    },
    Row {
        pattern: "cores.drop.graph.N.cpu|rate",
        meaning: "the same dropped by a graph of the empty function",
        target: "",
    },
];

/// All figures of `weir bench ddos`.
pub const DDOS: &[Row] = &[
    Row {
        pattern: "flood.tcp.none.N.transactions|offered|arrived|lost|busy",
        meaning: "a TCP service under N thousand UDP packets a second; nothing in front of it. transactions: requests answered a second over one connection, one at a time; offered: packets of the flood sent; arrived: those that came out of the receive queue; lost: percent that found it full; busy: percent of its time that the queue's thread worked. N = 20,000: all that the generator has; N = 1: as good as no flood",
        target: "",
    },
    Row {
        pattern: "flood.tcp.minimal.N.transactions|offered|arrived|lost|busy",
        meaning: "the least program that drops UDP",
        target: "",
    },
    Row {
        pattern: "flood.tcp.minimal-cpu.N.transactions|offered|arrived|lost|busy",
        meaning: "the same, and what is left moved to another CPU",
        target: "",
    },
    Row {
        pattern: "flood.tcp.filter.N.transactions|offered|arrived|lost|dropped|busy",
        meaning: "weir's filter with the rule `deny udp`; dropped: what its ledger says",
        target: "transactions at every rate at least 0.9x of minimal; at least 5x of none where none has lost 90 %",
    },
    Row {
        pattern: "flood.tcp.filter-cpu.N.transactions|offered|arrived|lost|dropped|busy",
        meaning: "the same, and what it accepts moved to another CPU",
        target: "",
    },
];

/// All figures of `weir bench router`.
pub const ROUTER: &[Row] = &[
    Row {
        pattern: "router.floor.N.ipv4|ipv6",
        meaning: "generating a packet to one of N destinations at random; subtracted from all other figures in ns",
        target: "",
    },
    Row {
        pattern: "router.one.kernel.N.ipv4|ipv6",
        meaning: "packets to N destinations through a box that forwards by itself; one route",
        target: "",
    },
    Row {
        pattern: "router.one.minimal.N.ipv4|ipv6",
        meaning: "the same by the least XDP program that asks the kernel's table (`bpf_fib_lookup`, what xdp-forward does)",
        target: "",
    },
    Row {
        pattern: "router.one.fib.N.ipv4|ipv6",
        meaning: "the same by weir's router with the kernel's tables",
        target: "kernel's at least 2.5x at 4,000 and 20,000 destinations",
    },
    Row {
        pattern: "router.one.own.N.ipv4|ipv6",
        meaning: "the same by weir's router with its own table",
        target: "",
    },
    Row {
        pattern: "router.one.xdp-forward.N.ipv4|ipv6",
        meaning: "the same by xdp-forward (fib, direct), where it is installed",
        target: "",
    },
    Row {
        pattern: "router.full.kernel.N.ipv4",
        meaning: "packets to N destinations through a box that forwards by itself; 750,000 prefixes (quick: 100,000). The largest N: one destination in every prefix, at random",
        target: "",
    },
    Row {
        pattern: "router.full.minimal.N.ipv4",
        meaning: "the same by the least XDP program",
        target: "",
    },
    Row {
        pattern: "router.full.fib.N.ipv4",
        meaning: "the same by weir's router with the kernel's tables",
        target: "kernel's at least 2.5x at 4,000 and 20,000 destinations",
    },
    Row {
        pattern: "router.full.own.N.ipv4",
        meaning: "the same by weir's router with its own table",
        target: "at 4,000 destinations at most 1.3x of one route's",
    },
    Row {
        pattern: "router.full.xdp-forward.N.ipv4",
        meaning: "the same by xdp-forward, where it is installed",
        target: "",
    },
    Row {
        pattern: "router.load.kernel|own.seconds",
        meaning: "loading the full table: the kernel's by `ip -batch`, weir's own by applying an edge whose routes are in a file; one sample",
        target: "own at most 5 s",
    },
    Row {
        pattern: "router.load.own.cpu",
        meaning: "CPU time of that, for machines that others use, too",
        target: "",
    },
    Row {
        pattern: "router.changes.own.rate|lost|sent",
        meaning: "routes of a full table of weir's own changed while packets go through it. rate: changes a second; sent: packets sent meanwhile; lost: those that did not come out",
        target: "rate at least 1,000, lost 0",
    },
];

/// All figures of `weir bench balancer`.
pub const BALANCER: &[Row] = &[
    Row {
        pattern: "balancer.floor.N",
        meaning: "generating a packet of one of N clients at random; subtracted from all other figures in ns",
        target: "",
    },
    Row {
        pattern: "balancer.floor.attacked",
        meaning: "the same of 60,000 clients among nine times as many packets of attackers",
        target: "",
    },
    Row {
        pattern: "balancer.tx.N",
        meaning: "packets of N flows sent back unchanged by the least program",
        target: "",
    },
    Row {
        pattern: "balancer.redirect.N",
        meaning: "the same by redirect to the same device",
        target: "",
    },
    Row {
        pattern: "balancer.nft.N",
        meaning: "packets of N known flows to 100 servers by nftables: address translation by a hash of the client, with connection tracking",
        target: "",
    },
    Row {
        pattern: "balancer.katran.N",
        meaning: "the same by Katran, which encapsulates in IP, from an object that `--katran` names; its cache holds as many flows",
        target: "",
    },
    Row {
        pattern: "balancer.ipip|gue|nat|dsr.N",
        meaning: "the same by weir's balancer: encapsulated in IP or GUE, translated, or with the server's link-layer address. N = 1: a bare hit",
        target: "nft's at least 3x at 60,000 flows; ipip at most 1x of katran",
    },
    Row {
        pattern: "balancer.over-tx.ipip|gue|nat|dsr.N",
        meaning: "what that takes more than the bare TX of the same round",
        target: "at 60,000 flows at most 150 ns",
    },
    Row {
        pattern: "balancer.attack.balancer.quiet|attacked",
        meaning: "a packet of 60,000 flows through the balancer (ipip) alone; attacked: nine of ten packets are of 65,536 addresses that attack, and all go to servers",
        target: "",
    },
    Row {
        pattern: "balancer.attack.composed.quiet|attacked",
        meaning: "the same with the filter in front, which drops the attackers' packets",
        target: "",
    },
    Row {
        pattern: "balancer.load.equal|weighted.deviation",
        meaning: "a million flows, none known, over 100 servers with equal weights, or 1 and 2: how far the worst server is off its part",
        target: "at most 5 %",
    },
    Row {
        pattern: "balancer.moved.unknown|known.percent",
        meaning: "flows of the other 99 servers that have another server when one of 100 is gone; unknown: chosen again by a balancer that knows no flow; known: by one that runs and has 100,000 of them",
        target: "unknown at most 2 %, known none",
    },
];

/// All figures of `weir bench network`.
pub const NETWORK: &[Row] = &[
    Row {
        pattern: "network.rtt.direct.N.p50|p99|first|cold",
        meaning: "us that a datagram of 64 bytes takes there and back between two workloads on one veth pair (N = 0); first: the first one after a pause of 20 ms; cold: the same, and the caches were used for something else in between",
        target: "",
    },
    Row {
        pattern: "network.rtt.redirect.N.p50|p99|first|cold",
        meaning: "the same on two pairs that the least program on tc joins",
        target: "",
    },
    Row {
        pattern: "network.rtt.weir.N.p50|p99|first|cold",
        meaning: "the same through a row of N functions, bridges and routers in turn: weir's networks; 31 and 101 functions are recirculated",
        target: "of 21: p50 at most 0.65x of linux, at most 0.1x of user; first at most 3x of p50",
    },
    Row {
        pattern: "network.rtt.linux.N.p50|p99|first|cold",
        meaning: "the same row of the kernel's bridges and of routers in namespaces, neighbours known",
        target: "",
    },
    Row {
        pattern: "network.rtt.user.N.p50|p99|first|cold",
        meaning: "N processes one behind the other, each with packet sockets, that do nothing but forward",
        target: "",
    },
    Row {
        pattern: "network.rtt.ovs.N.p50|p99|first|cold",
        meaning: "the same row as bridges of Open vSwitch's user-space datapath, joined by patch ports; first and cold: its flows are gone, as after ten seconds without a packet",
        target: "",
    },
    Row {
        pattern: "network.crr.direct.N.N",
        meaning: "connections a second: opened, a byte there, a byte back, closed. The last number: pairs of workloads that do so at once",
        target: "",
    },
    Row {
        pattern: "network.crr.weir.N.N",
        meaning: "the same through a row of so many functions: weir's networks",
        target: "of 21: at least 1.8x linux",
    },
    Row {
        pattern: "network.crr.linux.N.N",
        meaning: "the kernel's bridges and routers in namespaces",
        target: "",
    },
    Row {
        pattern: "network.crr.hairpin.N.N",
        meaning: "the same with both workloads on one host and the router on another one, reached by VXLAN: the paper's baseline",
        target: "",
    },
    Row {
        pattern: "network.flow.direct|redirect|weir|linux.N.rate|cpu",
        meaning: "one TCP stream through a row of N functions. rate: Gbit/s; cpu: ms of CPU time for a gigabit, both ends included",
        target: "weir's rate through 21 functions at least 0.9x of redirect",
    },
    Row {
        pattern: "network.tunnel.bridged|linux|vxlan|geneve|gre|kernel-vxlan|linux6|vxlan6|geneve6|gre6|kernel-vxlan6.p50|p99",
        meaning: "us that a datagram of 64 bytes takes between workloads of two hosts and back. bridged: by the kernel's bridges without a tunnel; linux: with the kernel's VXLAN devices in them; others: weir's networks by each kind of tunnel; 6: over IPv6",
        target: "",
    },
    Row {
        pattern: "network.tunnel.bridged|linux|vxlan|geneve|gre|kernel-vxlan|linux6|vxlan6|geneve6|gre6|kernel-vxlan6.crr",
        meaning: "connections a second between them",
        target: "",
    },
    Row {
        pattern: "network.tunnel.bridged|linux|vxlan|geneve|gre|kernel-vxlan|linux6|vxlan6|geneve6|gre6|kernel-vxlan6.rate|cpu",
        meaning: "Gbit/s of one TCP stream, and ms of CPU time for a gigabit, both hosts included",
        target: "",
    },
    Row {
        pattern: "network.hop.empty.N.total|hop",
        meaning: "a workload's program and N functions of a network that only count, in test runs. total: ns a packet, the test run's own cost included; hop: the slope from one function to N",
        target: "",
    },
    Row {
        pattern: "network.hop.counting.N.total|hop",
        meaning: "programs written by hand that count the same and call each other by constant numbers",
        target: "",
    },
    Row {
        pattern: "network.hop.panel.N.hop",
        meaning: "the patch panel's own share: empty's hop less that of counting",
        target: "at most 3 ns",
    },
    Row {
        pattern: "network.scale.N.document",
        meaning: "s to read and check a document of networks with N workloads together, ten a network; one sample",
        target: "",
    },
    Row {
        pattern: "network.scale.N.apply",
        meaning: "s from there until packets follow it: planning, maps, programs, devices (made before); one sample",
        target: "at most 10 s",
    },
    Row {
        pattern: "network.scale.N.change|change-from-text",
        meaning: "ms to take one workload out or put it back; from-text: with reading and checking the document",
        target: "change at most 50 ms",
    },
    Row {
        pattern: "network.scale.N.memory",
        meaning: "MB of the maps",
        target: "",
    },
];

/// All figures of `weir bench xsk`.
pub const XSK: &[Row] = &[
    Row {
        pattern: "xsk.receive.weir|c.own",
        meaning: "ns of CPU time of the receiver for one more frame of 64 bytes that waits in its ring: bursts of 16,000 less bursts of 1,000; c: the least C program for the same rings",
        target: "weir at most 1.1x of c",
    },
    Row {
        pattern: "xsk.receive.weir|c|packet.cpu",
        meaning: "ns of its CPU time for a frame under all that the generator sends, waiting in poll: being woken is most of it; packet: a packet socket with rings (TPACKET_V3), which is woken once a millisecond",
        target: "weir at most 1.1x of c",
    },
    Row {
        pattern: "xsk.receive.weir|c|packet.rate",
        meaning: "million frames a second received, spinning; frames come as a driver hands them over",
        target: "weir at least 1x of packet",
    },
    Row {
        pattern: "xsk.forward.weir|packet.rate",
        meaning: "million frames a second sent back with their addresses swapped",
        target: "weir at least 1x of packet",
    },
    Row {
        pattern: "xsk.receive.weir|packet.local",
        meaning: "million frames a second received of those that a socket of this host sends: for the program a veth copies each of them once more",
        target: "",
    },
    Row {
        pattern: "xsk.forward.weir|packet.local",
        meaning: "million of those sent back",
        target: "",
    },
    Row {
        pattern: "xsk.trip.weir|udp|udp-blocking.p50",
        meaning: "median round trip in us, one frame under way; weir and udp spin, udp-blocking sleeps",
        target: "weir at most 1.1x of udp and 0.35x of udp-blocking",
    },
];

/// All figures of `weir bench sensor`.
pub const SENSOR: &[Row] = &[
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.none|one|all|open.prefilter|aho-corasick.N.packets",
        meaning: "thousand packets that the sensor takes in a second of CPU time, all its threads and reading included, loading rules not; with no rule, one and all, and all with every address at home and abroad (open), by engine and N workers; alerts and counters written as EVE",
        target: "",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.none|one|all|open.prefilter|aho-corasick.N.bits",
        meaning: "the same in Gbit of frames on the wire",
        target: "",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.none|one|all|open.prefilter|aho-corasick.N.wall",
        meaning: "thousand packets a second by the clock on the wall; with more than one worker, reading is a separate thread",
        target: "all rules, prefilter: 2 workers at least 1.6x of 1",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.all.peer.1.packets",
        meaning: "thousand packets that the peer, Suricata, takes in a second of CPU time of its packet thread, the same packets and rules, alerts and counters written as EVE; where it is installed, or named by `--peer`",
        target: "weir with all rules, prefilter, one worker, all its threads: at least 1.5x",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.none|one|all|open.alerts",
        meaning: "alerts, which engine and number of workers do not change: a run that finds others ends the bench with an error",
        target: "",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.none|one|all|open.prefilter|aho-corasick.memory",
        meaning: "the most memory of a sensor that loaded its rules and ran once with one worker, MB",
        target: "",
    },
    Row {
        pattern: "sensor.load.none|one|all|open.prefilter|aho-corasick.read|compile|total",
        meaning: "s to read and check rules, to compile them, and both",
        target: "10,000 rules and more, prefilter: total at most 1.5 s",
    },
    Row {
        pattern: "sensor.load.none|one|all|open.prefilter|aho-corasick.memory",
        meaning: "the most memory until then, MB",
        target: "10,000 rules and more, prefilter: at most 300 MB",
    },
    Row {
        pattern: "sensor.scan.dfa|prefilter|aho-corasick.long|all.rate",
        meaning: "Gbit a second of CPU time that are searched for the fast patterns of all rules, payload by payload. dfa: one DFA of the crate aho-corasick, the measure of the machine; the others: the sensor's engines. long: patterns of four bytes and more",
        target: "",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.stage.read|decode|defragment|flow-stream|application|worker|packet-rules|stream-rules|transactions|log|spread|whole.time",
        meaning: "ns of CPU time for a packet that a stage adds, one worker, all rules, prefilter, all logs. worker: what detection costs without rules; spread: finding the worker of a frame, with several workers only and not in whole",
        target: "",
    },
    Row {
        pattern: "sensor.capture|mix|own|html|web|filler|apps|hostile.stage.read|decode|defragment|flow-stream|application|worker|packet-rules|stream-rules|transactions|log.share",
        meaning: "the same in percent of the whole",
        target: "",
    },
];

/// Whether a figure's name follows one of the patterns.
pub fn is_known(name: &str) -> bool {
    let all = [
        LIMITS, MIDDLEBOX, VM, XDP, DDOS, ROUTER, BALANCER, NETWORK, XSK, SENSOR,
    ];
    all.iter().copied().flatten().any(|row| row.covers(name))
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
        assert!(is_known("flood.tcp.filter-cpu.20000.transactions"));
        assert!(is_known("balancer.over-tx.ipip.60000"));
        assert!(is_known("router.full.own.750000.ipv4"));
        assert!(is_known("network.crr.weir.21.16"));
        assert!(is_known("sensor.mix.all.prefilter.2.packets"));
        assert!(is_known("live.prefixes.filter-over-drop.100000.ipv6"));
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
        let benches = [
            ("limits", LIMITS),
            ("middlebox", MIDDLEBOX),
            ("vm", VM),
            ("xdp", XDP),
            ("ddos", DDOS),
            ("router", ROUTER),
            ("balancer", BALANCER),
            ("network", NETWORK),
            ("xsk", XSK),
            ("sensor", SENSOR),
        ];
        for (name, rows) in benches {
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

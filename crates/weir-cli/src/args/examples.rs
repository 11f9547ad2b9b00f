//! Examples of all commands, shown in their help and man pages. A test parses each, and finds one for every command.

/// Command and examples; what is behind `#` is a remark.
pub(crate) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "check",
        &[
            "weir check policy.weir",
            "weir check edge.toml net.toml --json",
        ],
    ),
    ("fmt", &["weir fmt policy.weir", "weir fmt --check *.weir"]),
    (
        "import",
        &[
            "weir import iptables-save rules.v4 --chain input -o host.weir",
            "nft list ruleset | weir import nft - --route wan0=0.0.0.0/0 --route lan0=10.0.0.0/8 --local 192.0.2.1",
            "weir import pf /etc/pf.conf --strict",
        ],
    ),
    (
        "export",
        &[
            "weir export nft policy.weir -i eth0 | nft -f -",
            "weir export nft policy.weir -i eth0 -i eth1 --strict -o policy.nft",
        ],
    ),
    (
        "explain",
        &[
            "weir explain policy.weir",
            "weir explain policy.weir --in a.pcap --packet 7",
        ],
    ),
    (
        "tables",
        &["weir tables policy.weir", "weir tables -i eth0"],
    ),
    ("rule add", &["weir rule add tcp-dport 23 drop"]),
    (
        "rule add-stateful",
        &["weir rule add-stateful in eth0 tcp-syn accept"],
    ),
    ("rule replace", &["weir rule replace 7 tcp-dport 23 drop"]),
    ("rule delete", &["weir rule delete 7 9"]),
    (
        "rule list",
        &["weir rule list -i eth0", "weir rule list --json"],
    ),
    ("rule flush", &["weir rule flush"]),
    ("rule load", &["weir rule load policy.weir"]),
    ("rule save", &["weir rule save running.weir"]),
    ("rule compact", &["weir rule compact"]),
    (
        "connections",
        &[
            "weir connections --address 192.0.2.1",
            "weir connections --protocol tcp --json",
        ],
    ),
    ("connections list", &["weir connections list --port 443"]),
    ("connections count", &["weir connections count"]),
    (
        "connections delete",
        &[
            "weir connections delete --address 192.0.2.1",
            "weir connections delete --all",
        ],
    ),
    ("set list", &["weir set list", "weir set list bad --json"]),
    (
        "set add",
        &[
            "weir set add bad 192.0.2.1 2001:db8::1 --timeout 1h",
            "weir set add bad 192.0.2.1 --permanent",
        ],
    ),
    ("set delete", &["weir set delete bad 192.0.2.1"]),
    ("set flush", &["weir set flush bad"]),
    (
        "replay",
        &[
            "weir replay policy.weir --in a.pcap -o b.pcap",
            "weir replay edge.toml --in a.pcap --port wan --json",
            "weir replay new.weir --against old.weir --in a.pcap",
        ],
    ),
    (
        "run",
        &[
            "weir run policy.weir -i eth0",
            "weir run policy.weir -i eth0 --duration 30s --json",
        ],
    ),
    (
        "init firewall",
        &["weir init firewall -i eth0 --tcp http,https --udp 51820"],
    ),
    (
        "init gateway",
        &["weir init gateway --wan eth0 --lan eth1 --forward 8080=10.1.0.5:80"],
    ),
    (
        "init guard",
        &["weir init guard -i eth0 --friends 192.0.2.0/24"],
    ),
    (
        "init balancer",
        &["weir init balancer -i eth0 --address 192.0.2.10 --server 10.0.0.1,10.0.0.2"],
    ),
    ("init networks", &["weir init networks --devices tap1,tap2"]),
    (
        "init sensor",
        &["weir init sensor -i eth0 --home 10.0.0.0/8"],
    ),
    (
        "plan",
        &["weir plan edge.toml", "weir plan net.toml --edge e1"],
    ),
    (
        "apply",
        &[
            "weir apply edge.toml",
            "weir apply edge.toml --dry-run",
            "weir apply edge.toml --confirm 60s",
            "weir apply edge.toml --check-with a.pcap",
        ],
    ),
    ("diff", &["weir diff edge.toml"]),
    (
        "agent",
        &["weir agent", "weir agent ./edges --interval 5s --json"],
    ),
    (
        "page",
        &[
            "weir page",
            "weir page --socket /run/weir/agent.sock --json",
        ],
    ),
    (
        "history",
        &["weir history", "weir history 12 --edge office --json"],
    ),
    (
        "rollback",
        &["weir rollback --dry-run", "weir rollback 11 --edge office"],
    ),
    ("status", &["weir status", "weir status edge.toml --hits"]),
    (
        "route list",
        &["weir route list", "weir route list 10.0.0.0/8 --json"],
    ),
    ("route get", &["weir route get 10.0.0.1"]),
    ("route hops", &["weir route hops"]),
    (
        "route add",
        &[
            "weir route add 10.0.0.0/8 via 192.0.2.1 dev lan",
            "ip route | weir route add -",
        ],
    ),
    ("route delete", &["weir route delete 10.0.0.0/8 metric 10"]),
    ("route sync", &["weir route sync --table main"]),
    ("route follow", &["weir route follow"]),
    (
        "service",
        &[
            "weir service -A -t 192.0.2.1:80",
            "weir service -a -t 192.0.2.1:80 -r 10.0.0.1 -w 2 -i",
        ],
    ),
    ("service list", &["weir service list --stats"]),
    (
        "service add",
        &["weir service add -t 192.0.2.1:80 --mode ipip"],
    ),
    (
        "service edit",
        &["weir service edit -t 192.0.2.1:80 --name web"],
    ),
    ("service delete", &["weir service delete -t 192.0.2.1:80"]),
    (
        "service add-server",
        &["weir service add-server -t 192.0.2.1:80 -r 10.0.0.1 -w 2"],
    ),
    (
        "service edit-server",
        &["weir service edit-server -t 192.0.2.1:80 -r 10.0.0.1 -w 5"],
    ),
    (
        "service delete-server",
        &["weir service delete-server -t 192.0.2.1:80 -r 10.0.0.1"],
    ),
    (
        "service drain",
        &["weir service drain -t 192.0.2.1:80 -r 10.0.0.1"],
    ),
    (
        "service check",
        &["weir service check --http /healthz --interval 2s"],
    ),
    ("service save", &["weir service save -o edge.toml"]),
    (
        "net workload add",
        &["weir net workload add shop/web3 --subnet web --device tap3 --address 10.1.0.9"],
    ),
    (
        "net workload move",
        &["weir net workload move shop/web3 --to e2 --device tap7"],
    ),
    (
        "net workload groups",
        &["weir net workload groups shop/web3 web monitored"],
    ),
    (
        "net workload delete",
        &["weir net workload delete shop/web3"],
    ),
    (
        "net store push",
        &[
            "weir net store push net.toml --wait 30s",
            "weir net store push net.toml --dry-run",
        ],
    ),
    ("net store diff", &["weir net store diff net.toml"]),
    (
        "net store status",
        &[
            "weir net store status",
            "weir net store status --wait 30s --json",
        ],
    ),
    (
        "net store export",
        &["weir net store export --edge e1 > e1.toml"],
    ),
    (
        "net store workload add",
        &[
            "weir net store workload add shop/web3 --subnet web --on e2 --device tap3 --address 10.1.0.9",
        ],
    ),
    (
        "net store workload move",
        &["weir net store workload move shop/web3 --to e1 --device tap7"],
    ),
    (
        "net store workload groups",
        &["weir net store workload groups shop/web3 web monitored"],
    ),
    (
        "net store workload delete",
        &["weir net store workload delete shop/web3"],
    ),
    ("net store accept", &["weir net store accept"]),
    ("net delete", &["weir net delete shop"]),
    ("net show", &["weir net show shop"]),
    (
        "net trace",
        &[
            "weir net trace net.toml shop/w1 10.1.0.8",
            "weir net trace net.toml shop/w1 10.1.0.8 tcp 443",
        ],
    ),
    (
        "net ping",
        &[
            "weir net ping shop/w1 10.1.0.8",
            "weir net ping shop/w1 w2 -c 100 -i 10ms",
        ],
    ),
    ("net cni", &["weir net cni < /etc/cni/net.d/10-weir.conf"]),
    ("net helper", &["weir net helper --edge e1"]),
    ("net export", &["weir net export > running.toml"]),
    (
        "logs",
        &[
            "weir logs --since 1h",
            "weir logs -f --event drops --event health --json",
        ],
    ),
    ("top", &["weir top", "weir top --once --json"]),
    (
        "capture",
        &[
            "weir capture --at drops -o drops.pcapng",
            "weir capture | tshark -r -",
        ],
    ),
    (
        "drops",
        &[
            "weir drops",
            "weir drops --duration 1m --filter 'ip-saddr 192.0.2.0/24' --json",
        ],
    ),
    (
        "trace",
        &[
            "weir trace --drops",
            "weir trace --filter 'tcp-dport 80' --count 10",
        ],
    ),
    ("down", &["weir down edge.toml", "weir down --all"]),
    (
        "prog verify",
        &[
            "weir prog verify prog.o",
            "weir prog verify prog.o --kernel 5.15,6.1,6.12",
            "weir prog verify prog.o --counterexample bad.pcap",
        ],
    ),
    (
        "prog run",
        &["weir prog run prog.o --in a.pcap -o b.pcap -v"],
    ),
    (
        "prog serve",
        &["weir prog serve prog.o -i eth0 -i eth1 --wire"],
    ),
    ("prog disasm", &["weir prog disasm prog.o"]),
    ("prog maps", &["weir prog maps prog.o"]),
    ("prog load", &["weir prog load prog.o --name guard"]),
    ("prog attach", &["weir prog attach guard -i eth0"]),
    ("prog detach", &["weir prog detach guard -i eth0"]),
    ("prog replace", &["weir prog replace guard prog.o"]),
    ("prog list", &["weir prog list"]),
    ("prog unload", &["weir prog unload guard"]),
    ("prog exec", &["weir prog exec 0011 < program.hex"]),
    (
        "generate",
        &[
            "weir generate -i v0 --rate 1M/s --duration 10s",
            "weir generate -i v0 --flows 1000 --count-on v1",
            "weir generate -i v0 --capture a.pcap --loop 10",
        ],
    ),
    (
        "sensor",
        &[
            "weir sensor -r a.pcap -S local.rules -l logs",
            "weir sensor -i eth0 -c suricata.yaml",
        ],
    ),
    (
        "sensor rules check",
        &["weir sensor rules check local.rules"],
    ),
    (
        "sensor rules analyse",
        &["weir sensor rules analyse rules/"],
    ),
    (
        "xsk send",
        &["weir xsk send -i v0 --rate 1M/s --duration 10s"],
    ),
    ("xsk receive", &["weir xsk receive -i v1 --idle 2s"]),
    ("xsk forward", &["weir xsk forward -i v1 --stamp"]),
    (
        "xsk ping",
        &["weir xsk ping -i v0 --count 10k --interval 1ms --warm-up 100"],
    ),
    (
        "doctor",
        &[
            "weir doctor",
            "weir doctor --json",
            "weir doctor --report weir-report.json",
        ],
    ),
    (
        "completions",
        &["weir completions bash > /etc/bash_completion.d/weir"],
    ),
    ("man", &["weir man man1 && man man1/weir-run.1"]),
    ("lab demo", &["weir lab demo", "weir lab demo --replay"]),
    (
        "lab afxdp",
        &[
            "weir lab afxdp -o sweep",
            "weir lab afxdp --preset quick --dry-run",
        ],
    ),
    ("lab sensor", &["weir lab sensor -q"]),
    ("lab firewall", &["weir lab firewall --case 'TCP'"]),
    (
        "bench middlebox",
        &["weir bench middlebox --quick -o results"],
    ),
    ("bench vm", &["weir bench vm --quick"]),
    ("bench xdp", &["weir bench xdp --only live"]),
    (
        "bench all",
        &[
            "weir bench all --quick",
            "weir bench all --quick --output results --only limits,middlebox",
        ],
    ),
    ("bench limits", &["weir bench limits"]),
    ("bench ddos", &["weir bench ddos --quick"]),
    ("bench router", &["weir bench router --quick"]),
    ("bench balancer", &["weir bench balancer --quick"]),
    ("bench network", &["weir bench network --only network.rtt"]),
    ("bench xsk", &["weir bench xsk --quick"]),
    ("bench sensor", &["weir bench sensor --traffic web --quick"]),
];

/// Those of a command.
pub(crate) fn of(path: &str) -> &'static [&'static str] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == path);
    found.map_or(&[], |(_, lines)| lines)
}

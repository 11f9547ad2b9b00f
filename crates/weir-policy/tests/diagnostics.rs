//! What users see: every class of error and warning, rendered, against `diagnostics.snap`.
//!
//! `WEIR_UPDATE=1 cargo test -p weir-policy diagnostics::` writes the file anew; read the difference before keeping it.

use std::io;

use weir_policy::{
    Diagnostics, NoFiles, PolicyError, SetLoader, Severity, Source, parse, parse_file,
};

#[test]
fn severities_have_the_names_that_compilers_print() {
    assert_eq!(Severity::Error.text(), "error");
    assert_eq!(Severity::Warning.text(), "warning");
}

/// One policy for each class of error or warning; some hold several.
const CASES: &[&str] = &[
    // Words.
    "tcp-dprot 80 drop",
    "tcp-dport 80 dorp",
    "xyzzy drop",
    "tcp-dport 80 foo bar drop",
    "80 tcp-dport drop",
    "ip-proto tpc drop",
    "tcp-dport 80 mod tcp-dpotr 81",
    "enable eth0\nmmb list",
    "9x: tcp-syn drop",
    "x: tcp-syn drop\nx: udp-dport 5 drop",
    "a:tcp-syn drop",
    "net-proto 80 drop",
    // Shape of a rule.
    "tcp-dport 80",
    "drop",
    "tcp-syn accept tcp-dport 5",
    "tcp-syn drop fast",
    "! drop",
    "! ! tcp-syn drop",
    "tcp-dport == drop",
    "tcp-dport = 80 drop",
    "tcp-dport 80 \\ drop",
    "tcp-dport 80, drop",
    "tcp-dport[4] 5 drop",
    "udp-payload[x] == x01 drop",
    "udp-payload[ == x01 drop",
    // Stateful words.
    "tcp-syn map ip-saddr 10.0.0.1\ntcp-syn map ip-saddr { 10.0.0.1 } accept\ntcp-syn accept timeout 5m",
    "tcp-syn shuffle tcp-seq-num drop",
    "add-stateful tcp-syn lb 1 2 accept",
    "add-stateful tcp-syn",
    "add-stateful accept",
    "add-stateful ip-saddr 10.0.0.0/8 map ip6-saddr 2001:db8::1",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 2001:db8::1",
    "add-stateful ip-saddr 10.0.0.0/8 map tcp-sport 1024-65535 shuffle udp-sport",
    "add-stateful tcp-syn map tcp-sport 5 shuffle tcp-sport",
    "add-stateful all map ip-saddr 10.0.0.1 map ip-daddr 10.0.0.2 map ip-saddr 10.0.0.3",
    "add-stateful all map ip6-saddr 2001:db8::/95\nadd-stateful all map ip6-daddr ::/0\nadd-stateful all map ip6-saddr 2001:db8::/96",
    "set none = file \"empty.txt\"\nadd-stateful all map ip-saddr @none\nadd-stateful all map ip-saddr { }",
    "add-stateful all map ip-saddr\nadd-stateful all map ip-saddr accept\nadd-stateful all map\nadd-stateful all map ip-saddr in drop",
    "add-stateful all map ip-saddr 10.0.0.1/8 accept",
    "add-stateful all map ip-ttl 5\nadd-stateful all map tcp-seq-num 5\nadd-stateful all map tcp-opt-mss 5",
    "add-stateful all shuffle ip-saddr\nadd-stateful all shuffle ip-ttl\nadd-stateful all shuffle tcp-sport 5",
    "add-stateful tcp-syn shuffle tcp-opt-sack",
    "add-stateful tcp-syn shuffle tcp-seq-num shuffle tcp-opt-sack shuffle tcp-opt-sack",
    "add-stateful tcp-syn map tcp-dport 80 mod tcp-dport 81",
    "add-stateful ip-proto gre accept\nadd-stateful frag-later accept\nadd-stateful icmp-type 0 accept\nadd-stateful tcp-syn tcp-ack accept\nadd-stateful ip6-eh-esp accept\nadd-stateful eth-type arp accept",
    "add-stateful all map ip-saddr 192.0.2.1 mapping\nadd-stateful all map ip-saddr 192.0.2.1 mapping random\nadd-stateful all accept mapping endpoint-independent",
    "add-stateful all map ip-saddr 192.0.2.1 filtering address-dependent\nadd-stateful all map ip-saddr 192.0.2.1 mapping endpoint-independent filtering none\nall mapping endpoint-independent",
    "add-stateful tcp-dport 21 helper ftp\nadd-stateful udp-dport 5060 accept helper SIP\nadd-stateful ip-proto udp accept helper irc\nadd-stateful ip-proto udp helper tfpt",
    "add-stateful udp-dport 69 helper tftp helper tftp\nudp-dport 69 helper tftp\nadd-stateful tcp-dport 69 helper tftp\nadd-stateful udp-dport 69 helper",
    "add-stateful tcp-syn drop accept",
    "add-stateful all accept timeout\nadd-stateful all accept timeout 5w\nadd-stateful all accept timeout 0\nadd-stateful all accept timeout 5s timeout 6s",
    "connections 0\nconnections 100000000\nconnections\nconnections 5 6\nadd-stateful all accept",
    "connections 100\nconnections 200\ntimeout udp 5m\ntimeout udp 6m\nadd-stateful all accept",
    "timeout upd 5m\ntimeout tcp 5m\ntimeout udp\ntimeout udp 5m 6m\ntimeout udp 0s\ntimeout udp 9999999h\nadd-stateful all accept",
    "timeout udp 5m\nconnections 5\nall accept",
    "add-stateful tcp-syn accept\nadd-stateful tcp-syn accept timeout 5m\ntcp-syn accept\nadd-stateful tcp-syn accept",
    // Values.
    "tcp-dport 65536 drop",
    "ip-dscp 64 ip-ttl x100 drop",
    "ip6-flow-label 1048576 drop",
    "tcp-dport 8o drop",
    "tcp-dport 10.0.0.1 drop",
    "tcp-dport 80/4 drop",
    "tcp-dport 5-3 drop",
    "tcp-dport 5- drop",
    "tcp-dport < 5-7 drop",
    "ip-saddr 300.0.0.1 drop",
    "ip-saddr ::1 drop",
    "ip6-saddr 10.0.0.1 drop",
    "ip-saddr 10.0.0.0/33 drop",
    "ip-saddr > 10.0.0.0/8 drop",
    "net-proto ip5 drop",
    "net-proto 5 drop",
    "net-proto < 6 drop",
    "tcp-syn 2 drop",
    "ip-ce 1 drop",
    "vlan 5 drop",
    "ip6-eh-routing 5 drop",
    "ip-opt-rr x01 drop",
    "udp-payload 80 drop",
    "udp-payload < x01 drop",
    "udp-payload[4] drop",
    "udp-payload x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001 drop",
    // Interfaces.
    "in drop",
    "in < eth0 drop",
    "in interface-name-too-long drop",
    "in 0 drop",
    // Options.
    "tcp-opt == 5 drop",
    "tcp-opt 1 drop",
    "tcp-opt 256 drop",
    "ip-opt 0 drop",
    "tcp-opt-sackp 5 drop",
    "tcp-opt-wscale 256 drop",
    "tcp-opt 254 > x000000000000000001ff drop\ntcp-opt 254 > x010000000000000000 drop",
    // `all` and families.
    "all tcp-dport 5 drop",
    "! all drop",
    "ip-saddr 10.0.0.1 ip6-saddr ::1 drop",
    "tcp-dport 80 mod udp-dport 5",
    "net-proto ip6 icmp-type 8 drop",
    "ip-ttl 1 \\\n  icmp6-type 128 drop",
    // Sets.
    "set web = { 80, 99999 }\ntcp-dport in @web drop\nudp-dport in @web drop",
    "set 80 = { 1 }\ntcp-syn drop",
    "set web = { 80 }\ntcp-dport in @wbe drop",
    "tcp-dport in @none drop",
    "set a = { 1 }\nset a = { 2 }\ntcp-dport in @a drop",
    "set f = file \"nope.txt\"\ntcp-dport in @f drop",
    "set f = file \"ports.txt\"\ntcp-dport in @f drop",
    "set f = file \"empty.txt\"\ntcp-dport in @f drop",
    "set = { 80 }\nset a { 80 }\nset b = 80\nset c = { }\nset d = file nope\nset e = { 1 } 2",
    "tcp-dport in { 5, drop",
    "tcp-dport in { 5 6 } drop\ntcp-dport in { @a } drop\ntcp-dport in { 5, ! } drop",
    "tcp-dport == { 5 } drop\ntcp-dport != @x drop\ntcp-dport { 5 } drop\ntcp-dport @x drop",
    // Targets.
    "tcp-syn mod in 5\nip6-eh mod ip6-eh-routing\nip6-mf mod ip6-frag-id 5\nall mod vlan\nip-opt mod ip-opt-rr\nall mod queue 1",
    "tcp-syn mod tcp-dport",
    "tcp-syn mod tcp-dport == 80",
    "tcp-syn mod tcp-dport 80-90",
    "tcp-syn mod ip-saddr 10.0.0.0/8",
    "tcp-syn mod tcp-dport { 80 }",
    "tcp-syn mod ip-ce 1",
    "tcp-syn mod tcp-opt-mss 99999",
    "tcp-syn mod tcp-opt-sackp x01",
    "tcp-syn mod tcp-opt 5",
    "tcp-syn add ip-ttl 5\ntcp-syn strip ip-opt",
    "tcp-syn add tcp-opt 1",
    "tcp-syn add tcp-opt-mss",
    "tcp-syn add tcp-opt-sackp 1",
    "tcp-syn add tcp-opt 253 x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223242526",
    "tcp-syn add tcp-opt",
    "tcp-syn strip tcp-opt",
    "tcp-syn strip ! all",
    "tcp-syn strip tcp-opt-mss strip ! tcp-opt-ts",
    "tcp-syn strip all strip tcp-opt 5",
    "tcp-syn drop accept",
    "tcp-syn drop drop over 5/s\ntcp-syn accept accept",
    "tcp-syn drop 0.0001\ntcp-syn drop 0\ntcp-syn drop 100.1%\ntcp-syn drop -1",
    "tcp-syn drop over\ntcp-syn drop over 5/w\ntcp-syn drop over 0/s\ntcp-syn drop over 2000000000/s",
    "tcp-syn drop over 5/s burst\ntcp-syn drop over 5/s burst 0\ntcp-syn drop over 1/h burst 4000000000",
    "tcp-syn log \"unclosed",
    "tcp-syn log \"this prefix is longer than it may be\"",
    // Warnings.
    "tcp-dport 80 accept\nudp-dport 80 accept\nx: tcp-dport 80 accept",
    "ip-ttl < 0 drop\nip-ttl > 255 drop\n! ip-ttl 0-255 drop\nip-ttl >= 0 drop",
    "ip-saddr 10.0.0.1/8 drop",
    "set s = { 10.0.0.1/8 }\nip-saddr in @s drop",
    "set s = { 10.0.0.0/8 }\nset unused = { 5 }\nip-saddr in @s drop",
    "! eth-type drop",
    "ip-proto udp tcp-dport 80 drop\nip-proto != tcp tcp-syn drop\nip-proto in { tcp, udp } tcp-syn drop",
    "tcp-syn add tcp-opt 253 x00112233445566778899aabbccddeeff add tcp-opt 253 x00112233445566778899aabbccddeeff0011223344",
];

/// Policies that cannot work, each for another reason: refused where the text alone shows it, or else warned about.
const CANNOT_WORK: &[&str] = &[
    // Contradictions in one rule.
    "web: tcp-dport 80 tcp-dport 443 accept",
    "tcp-dport < 100 tcp-dport > 1000 accept",
    "ip-saddr 10.0.0.0/8 ip-saddr 192.168.0.0/16 drop",
    "set inside = { 10.0.0.0/8 }\nip-saddr in @inside ! ip-saddr 10.0.0.0/8 drop",
    "in eth0 in eth1 drop",
    "ip-ttl > 255 drop\n! ip-ttl 0-255 drop",
    "ip-proto tcp udp-dport 53 drop\neth-type ip6 ip-saddr 10.0.0.1 drop",
    "ip-proto tcp ip-proto udp drop",
    "tcp-dport ! udp-dport ! tcp-sport accept",
    "frag-later tcp-dport 80 drop",
    "frag-later ip-proto udp mod udp-dport 53",
    "frag-first frag-later drop",
    "ip-mf ! frag drop",
    "tcp-flags 2 tcp-ack drop\nip6-dscp ef ip6-traffic-class 0 drop",
    "! tcp-opt tcp-opt-mss > 1400 mod tcp-opt-mss 1400",
    "tcp-opt 254 == x0102 tcp-opt 254 == x0103 drop",
    "udp-payload[4] == x0102 udp-payload[5] == xff drop",
    "ip6-next 0 ! ip6-eh-hopbyhop drop",
    // What parsing drops before.
    "ip-ttl 0 drop\nip-ver 6 drop\ntcp-offset < 5 drop",
    "eth-type x8100 drop",
    "tcp-syn ip-len < 40 drop\nudp-len 10 udp-payload[8] == x01 drop",
    "tcp-offset 5 tcp-opt-mss drop",
    // Verdicts.
    "web: tcp-dport in { 80, 443 } accept\ntelnet: tcp-dport 23 drop\nadmin: ip-saddr 192.0.2.7 tcp-dport 443 drop",
    "tcp-dport 25 drop over 10/s\nlan: in { eth0, eth1 } accept\nin eth0 udp-dport 53 drop",
    "tcp-dport 8080 mod tcp-dport 80 drop",
    "out: add-stateful in lan0 accept\nrest: all drop",
    "ssh: add-stateful ip-saddr 192.0.2.0/24 tcp-dport 22 accept\neth-type arp accept\n! udp-dport drop",
    "dns: udp-dport 53 accept\narp: eth-type arp accept\nnd: icmp6-type in { 133-136 } accept\nrest: all drop",
    "udp-dport 53 ip-daddr 192.0.2.1 mod ip-daddr 10.0.0.53",
    // Connections.
    "nat: add-stateful in lan0 ip-saddr 10.0.0.0/8 map ip-saddr 198.51.100.1\narp: eth-type arp accept\nrest: all drop",
    "nat: add-stateful in lan0 ip-saddr 10.0.0.0/8 map ip-saddr 198.51.100.1\nweb: ip-daddr 192.0.2.0/24 accept\narp: eth-type arp accept\nrest: all drop",
    "add-stateful tcp-rst accept\nadd-stateful tcp-syn tcp-ack drop\nadd-stateful icmp-type 3 accept",
    "add-stateful all accept\ntcp-syn tcp-fin drop\ntcp-flags 0 drop",
    "timeout udp 5m\ntimeout icmp 1m\nloose tcp\nadd-stateful udp-dport 53 accept",
    // Targets.
    "tcp-syn ! tcp-opt-mss mod tcp-opt-mss 1400\ntcp-syn ! tcp-opt 254 strip tcp-opt 254",
    "tcp-syn tcp-opt-mss add tcp-opt-mss 1400",
    "tcp-dport 80 add tcp-opt 254 x0102",
    "tcp-dport 80 mod ip-dscp 1 mod ip-dscp 2",
    "tcp-dport 80 ip-ttl 64 mod ip-ttl 64",
    // Sets.
    "set web = { 80, 443 }\nset old = { 8080 }\ntcp-dport in @web drop",
    "set none = file \"empty.txt\"\ntcp-dport in @none drop",
];

/// What people write who know other firewalls, or guess: each is answered with what to write.
const MISTAKES: &[&str] = &[
    // Alternatives and lists.
    "tcp-dport 80 tcp-dport 443 accept",
    "tcp-dport 80,443 accept",
    "tcp-dport 80, 443 accept",
    "tcp-dport 80 443 accept",
    "tcp-dport http https accept",
    "tcp-dport 80 || tcp-dport 443 accept",
    "tcp-dport 80 or 443 drop",
    "tcp-dport { 80, 443 } drop",
    "tcp-dport in 80, 443 drop",
    "tcp-dport 80:90 drop",
    "tcp-dport :1023 drop",
    "ip-saddr 10.0.0.1 ip-saddr 10.0.0.2 drop",
    "in eth0 in eth1 drop",
    // Operators.
    "tcp-dport 22 && ip-saddr 10.0.0.0/8 accept",
    "tcp-dport 22 and ip-saddr 10.0.0.0/8 accept",
    "not tcp-dport 22 drop",
    "tcp-dport not 22 drop",
    "tcp-dport 22 => drop",
    "tcp-dport 22 -> drop",
    "if tcp-dport 22 then drop",
    "tcp-dport = 22 drop",
    "tcp-dport is 22 drop",
    "tcp-dport eq 22 drop",
    "tcp-dport gt 1024 drop",
    "tcp-dport 22 drop;",
    // Values of the wrong kind.
    "tcp-dport htpp drop",
    "tcp-dport eth0 drop",
    "tcp-dport 10.0.0.1 drop",
    "ip-saddr 80 drop",
    "ip-saddr example.com drop",
    "ip-saddr 10.0.0.0/255.0.0.0 drop",
    "ip-saddr 10.0.0.256 drop",
    "ip-saddr any tcp-dport 80 drop",
    "ip-saddr 2001:db8::1 drop",
    "ip-proto tcpp drop",
    "icmp-type echo drop",
    "tcp-flags syn,akc drop",
    "tcp-flags syn/ack drop",
    "tcp-flags syn, ack drop",
    "eth-type ipx drop",
    "ip-dscp ef1 drop",
    // Names of fields.
    "tcp-port 80 drop",
    "port 80 drop",
    "src-ip 10.0.0.1 drop",
    "ip-src 10.0.0.1 drop",
    "src 10.0.0.1 dst 10.0.0.2 drop",
    "proto udp drop",
    "ttl 1 drop",
    "smac 02:00:00:00:00:01 drop",
    "eth-saddr 10.0.0.1 drop",
    "eth-saddr 02:00:00:00:01 drop",
    "eth-daddr 02-00-00-00-00-01 drop",
    "dport 80 icmp drop",
    "l4-proto udp tcp-dport 80 drop",
    "interface eth0 drop",
    "syn drop",
    "any drop",
    // Targets.
    "tcp-dport 22 refuse",
    "tcp-dport 22 reject with",
    "tcp-dport 22 reject with rst",
    "tcp-dport 22 reject with icmp",
    "ip-saddr 10.0.0.1 reject with icmp no-route",
    "ip6-saddr 2001:db8::1 reject with icmp port-unreachable",
    "udp-dport 53 reject with tcp-reset",
    "tcp-dport 22 reject accept",
    "add-stateful tcp-dport 22 reject",
    "tcp-dport 22 rst",
    "tcp-dport 22 deny",
    "tcp-dport 22 allow",
    "tcp-dport 22 counter drop",
    "tcp-dport 22 return",
    "-A web -p tcp --dport 80 -j ACCEPT",
    "-A INPUT -i wan0 -j web",
    "-A INPUT -p tcp -g TCP",
    "-N web",
    "-A POSTROUTING -o wan0 -j MASQUERADE",
    "iifname \"wan0\" tcp dport 80 jump web",
    "tcp dport 80 goto web",
    "tcp dport vmap { 22 : jump admin, 80 : accept, * : drop }",
    "ct state vmap { established : accept, related : accept, invalid : drop }",
    "tcp-dport 22 goto web",
    "table inet filter {\nchain input {\ntype filter hook input priority 0; policy drop;\ntcp dport 22 accept\n}\n}",
    "chain web { tcp-dport 80 accept }",
    "chain {\nall drop\n}",
    "chain web {\n    allow: tcp-dport 80 accept\n    http-only: udp-dport 53 accept\n}\ntcp jump web",
    "in wan0 choose tcp-dport { 22: jump admin, 80: accept log }\nchain admin {\nip-saddr 10.0.0.0/8 accept\ntcp-dport 23 drop\n}",
    "choose tcp-dport { 22 }\nchoose tcp-dport 22\nchoose tcp-dport { 22: }\nchoose tcp-dport { 22: drop\nchoose { 22: drop }\nchoose tcp-flags { syn: drop }",
    "tcp-dport 22 limit 5/s accept",
    // Limits of addresses.
    "udp drop over 10/s per",
    "udp drop over 10/s per src",
    "udp drop over 10/s per daddr",
    "udp drop over 10/s per sorce",
    "udp drop over 10/s per port",
    "udp drop over 10/s per rule",
    "udp drop over 10/s per country",
    "udp drop over 10/s per source/33",
    "udp drop over 10/s per source/24/200",
    "udp drop over 10/s per pair/24",
    "udp drop over 10/s per source per pair",
    "udp drop 10/s per source",
    "udp reject over 10/s",
    "udp log over 10/s",
    "udp accept over 10/s per source",
    "udp log \"dns\" over 10/s",
    "udp log limit",
    "udp log limit 5/m burst 0",
    "udp log limit 5/m per source",
    "udp log \"a\" limit 5/m log \"b\" limit 5/m",
    "udp log limit 5/m drop over 10/s",
    "udp reject log limit 5/m",
    "udp drop over 500 mbytes",
    "udp drop over 5x bytes",
    "udp drop over 0 bytes",
    "udp drop over 1G bytes burst 5",
    "udp drop over 1G bytes per source",
    "udp quota over 25 mbytes drop",
    "-A INPUT -p udp -m limit --limit 5/min -j LOG --log-prefix \"udp: \"",
    "-A INPUT -p udp -m quota --quota 1000000 -j ACCEPT",
    "udp dport 53 limit rate 5/minute burst 10 packets log prefix \"dns\"",
    "add-stateful tcp-dport 22 drop over 3/m per source",
    "limits",
    "limits 0",
    "limits 2000000\nudp drop over 10/s per source",
    "limits 1000\nlimits 2000\nudp drop over 10/s per source",
    "limits 1000\nudp drop over 10/s",
    "-A INPUT -p udp -m hashlimit --hashlimit-above 10/sec --hashlimit-burst 20 --hashlimit-mode srcip --hashlimit-name dns -j DROP",
    "-A INPUT -p udp --dport 53 -m hashlimit --hashlimit-above 10/minute --hashlimit-mode srcip --hashlimit-srcmask 24 --hashlimit-name dns -j DROP",
    "-A INPUT -p tcp --dport 22 -m hashlimit --hashlimit-upto 3/min --hashlimit-mode srcip,dstip --hashlimit-name ssh -j ACCEPT",
    "-A INPUT -p tcp --dport 22 -m limit --limit 3/min --limit-burst 3 -j ACCEPT",
    "-A INPUT -p tcp --dport 22 -m hashlimit --hashlimit-above 3/day --hashlimit-mode srcip --hashlimit-name ssh -j DROP",
    "-A INPUT -p tcp --dport 22 -m recent --update --seconds 60 --hitcount 4 -j DROP",
    "-A INPUT -p tcp --dport 22 -m connlimit --connlimit-above 20 -j DROP",
    "udp dport 53 limit rate over 10/second burst 20 packets drop",
    "udp dport 53 limit rate 10/second accept",
    "udp dport 53 meter dns { ip saddr limit rate over 10/second burst 20 packets } drop",
    "udp dport 53 update @seen { ip6 saddr timeout 60s limit rate over 10/minute } drop",
    "tcp dport 22 add @seen { ip saddr . ip daddr limit rate over 3/hour } counter drop",
    "udp dport 53 limit rate over 10 mbytes/second drop",
    "tcp dport 22 ct count over 20 drop",
    // Connections at a time.
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 conns per source",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 sessions",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 states per source",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 200 connections per source",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 0 connections",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over five connections",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 connections burst 3",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 connections/s",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop 5 connections",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop connections over 5",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 reject over 5 connections",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 accept over 5 connections per source",
    "add-stateful tcp-dport 22 accept\ntcp-dport 22 drop over 5 connections per source",
    "add-stateful tcp-dport 22 timeout 1h\ntcp-dport 22 drop over 5 connections per port",
    "add-stateful tcp-dport 22 drop over 5 connections per source",
    "tcp-dport 22 drop over 5 connections per source",
    "tcp-dport 22 connlimit 5 drop",
    "tcp-dport 22 max-connections 5 drop",
    "-A INPUT -p tcp --syn --dport 22 -m connlimit --connlimit-above 3 --connlimit-mask 24 -j REJECT --reject-with tcp-reset",
    "-A INPUT -p tcp --dport 80 -m connlimit --connlimit-above 20 --connlimit-mask 0 -j DROP",
    "-A INPUT -p tcp --dport 80 -m connlimit --connlimit-above 20 --connlimit-daddr -j DROP",
    "-A INPUT -p tcp --dport 22 -m connlimit --connlimit-upto 3 -j ACCEPT",
    "-A INPUT -p tcp --dport 22 -m connlimit ! --connlimit-above 3 -j ACCEPT",
    "ip6tables -A INPUT -p tcp --dport 22 -m connlimit --connlimit-above 3 --connlimit-mask 64 -j DROP",
    "-A INPUT -p tcp --dport 80 -m connlimit --connlimit-above 1000 -j DROP",
    "-A INPUT -p udp -m hashlimit --hashlimit-above 10/sec --hashlimit-mode srcip --hashlimit-name dns -j REJECT",
    "-A INPUT -p tcp --dport 22 -m recent --name ssh --update --seconds 300 --hitcount 10 -j DROP",
    "tcp dport 22 ct state new ct count over 3 reject with tcp reset",
    "tcp dport 22 ct count 3 accept",
    "tcp dport 22 meter ssh { ip saddr ct count over 3 } drop",
    "tcp dport 22 add @ssh { ip saddr ct count over 3 } drop",
    "tcp dport 22 ct state new add @ssh { ip6 saddr ct count over 3 } reject",
    "tcp dport 22 ct count over 500 drop",
    "pass in on em0 proto tcp from any to any port 22 keep state (max-src-conn 10)",
    "pass in on em0 proto tcp from any to any port 22 keep state (max-src-conn 10, max-src-conn-rate 5/60, overload <bad> flush global)",
    "pass in on em0 proto tcp to any port 25 keep state (max 100)",
    "in lan0 masquerade",
    "default drop",
    // nftables.
    "ip saddr 10.0.0.0/8 drop",
    "ip saddr != 10.0.0.0/8 drop",
    "ip6 saddr 2001:db8::/32 accept",
    "tcp dport { 80, 443 } accept",
    "ip daddr 10.0.0.1 tcp dport 80 drop",
    "ether saddr 02:00:00:00:00:01 drop",
    "th dport 53 drop",
    "tcp dport {22,80} ip saddr 10.0.0.0/8 counter accept",
    "tcp dport != { 22, 80 } drop",
    "tcp flags syn drop",
    "tcp flags & (fin|syn|rst|ack) == syn accept",
    "tcp flags syn / syn,ack drop",
    "iifname \"eth0\" tcp dport ssh accept",
    "iifname { \"eth0\", \"eth1\" } drop",
    "ip saddr @blocked drop",
    "meta l4proto udp drop",
    "icmp type echo-request accept",
    "icmpv6 type { nd-neighbor-solicit, nd-router-advert } accept",
    "ether type arp accept",
    "ct state established,related accept",
    "ct state new tcp dport 22 accept",
    "ct state invalid drop",
    "ct state != { established, related } drop",
    "ct-state established,related accept",
    "ct-state open drop",
    "ct-state established accept",
    "established accept",
    "nft add rule inet filter input tcp dport 22 counter drop",
    "table inet filter {",
    "type filter hook input priority 0; policy drop;",
    "policy drop",
    "policy accept",
    "tcp dport 22 log prefix \"ssh\" drop",
    "ip protocol icmp drop",
    "ip ttl < 5 drop",
    "tcp dport 8080 dnat to 10.0.0.2:80",
    "ip saddr 10.0.0.0/8 oifname \"wan0\" snat to 198.51.100.1",
    "udp dport 53 queue num 1",
    // iptables.
    "iptables -A INPUT -p tcp --dport 22 -j ACCEPT",
    "-A INPUT -p tcp --dport 22",
    "-A INPUT -p tcp -m tcp --dport 22 -j DROP",
    "-A INPUT -s 10.0.0.0/8 -j DROP",
    "-A INPUT ! -s 10.0.0.0/8 -p udp --dport 53 -j REJECT --reject-with icmp-port-unreachable",
    "-A INPUT -p tcp -m multiport --dports 80,443,8000:8080 -j ACCEPT",
    "-A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT",
    "-A INPUT -m conntrack --ctstate INVALID -j DROP",
    "-A INPUT -p tcp -m conntrack --ctstate NEW --dport 22 -j ACCEPT",
    "-A INPUT -p tcp --tcp-flags SYN,ACK SYN -j DROP",
    "-A INPUT -p tcp --tcp-flags ALL NONE -j DROP",
    "-A INPUT -p tcp --syn -j DROP",
    "-A INPUT -i eth0 -p icmp --icmp-type echo-request -j ACCEPT",
    "-A INPUT -p icmp --icmp-type 3/4 -j ACCEPT",
    "-A FORWARD -i eth0 -o eth1 -p tcp -j DROP",
    "ip6tables -A INPUT -p icmpv6 -j ACCEPT",
    "-A INPUT -p gre -j ACCEPT",
    "-P INPUT DROP",
    "-A INPUT -j LOG --log-prefix \"dropped \"",
    "tcp-dport 80 -j DROP",
    "*filter",
    ":INPUT DROP [0:0]",
    "-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j DROP",
    "-t nat -A POSTROUTING -o wan0 -j MASQUERADE",
    // pf.
    "block in on em0",
    "block in all",
    "block drop in quick on em0 proto tcp from any to any port 22",
    "pass in on em0 proto tcp from any to 192.0.2.1 port 80 keep state",
    "pass in proto { tcp, udp } from 10.0.0.0/8 to any port 53",
    "pass out on em0 proto udp from any to any port 123 no state",
    "block in from <blocked> to any",
    "block in on em0 from ! 10.0.0.0/8 to any",
    "pass in on em0 inet proto icmp icmp-type echoreq",
    "block return in log on em0 proto tcp from any to any port 6000:6010",
    "pass in on $ext_if",
    // Guesses in weir's own manner.
    "tcp 443 accept",
    "udp-dport 53 vlan 10 drop",
    "new accept",
    "tcp-flags null drop",
    "echo-request accept",
    "country cn drop",
    "udp drop over 100 per second per source",
    "udp drop over 10/s per src-ip",
    "set seen = dynamic\nudp add @seen source for 10m",
    "tcp-dport 22 log prefix \"x\"",
    "bandwidth 10mbit drop",
    "tcp-dport 22 drop with port-unreachable",
    "tcp-dport 22 reject with port-unreachable",
    "ip-saddr in @blocklist drop",
];

/// The answers were read one by one. What they say to write instead of a whole line is a rule.
#[test]
fn mistakes_are_answered_with_what_to_write() {
    assert!(MISTAKES.len() >= 80);
    for text in MISTAKES {
        let found = said(text);
        for one in &found {
            let help = one.help.as_deref().unwrap_or_default();
            assert!(!help.is_empty(), "{text}: {one:?}");
            if !one.message.starts_with("this is ") || !help.starts_with("write `") {
                continue;
            }
            let quoted = help.split('`').skip(1).step_by(2);
            let quoted = quoted.filter(|q| q.contains(' ') && !q.starts_with("weir "));
            for rule in quoted.filter(|q| !q.contains("ADDRESS")) {
                let mut sets = "set blocked = { 192.0.2.0/24 }\n".to_owned();
                for name in ["DEFAULT", "seen"] {
                    if rule.contains(&format!("@{name}")) {
                        sets.push_str(&format!("set {name} = dynamic\n"));
                    }
                }
                for chain in ["web", "admin", "TCP"] {
                    if rule.contains(&format!("jump {chain}")) {
                        sets.push_str(&format!("chain {chain} {{\nall log\n}}\n"));
                    }
                }
                let parses = |rule: &str| {
                    let text = format!("{sets}{rule}\n");
                    parse(&Source::new("p.weir", text.as_str()), &NoFiles).map(drop)
                };
                let outcome = parses(rule)
                    .or_else(|_| parses(&format!("{rule} log")))
                    .or_else(|_| parses(&format!("{rule}\n}}")));
                assert!(outcome.is_ok(), "{text}: {rule}: {outcome:?}");
            }
        }
    }
    compare(&rendered(MISTAKES), "mistakes.snap");
}

/// Set files that the cases name.
struct Files;

impl SetLoader for Files {
    fn load(&self, path: &str) -> io::Result<Source> {
        match path {
            "ports.txt" => Ok(Source::new(
                path,
                "# ports\n80\n  443 # https\nhttp\n70000\n",
            )),
            "empty.txt" => Ok(Source::new(path, "# nothing\n")),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "No such file")),
        }
    }
}

#[test]
fn rendered_diagnostics() {
    let seen = rendered(CASES);
    compare(&seen, "diagnostics.snap");
}

/// Each is refused or warned about, with a place and what to do.
#[test]
fn policies_that_cannot_work() {
    assert!(CANNOT_WORK.len() >= 40);
    for text in CANNOT_WORK {
        for one in &said(text) {
            assert!(one.line > 0 && one.help.is_some(), "{text}: {one:?}");
        }
    }
    compare(&rendered(CANNOT_WORK), "lints.snap");
}

/// Errors or else warnings.
fn said(text: &str) -> Diagnostics {
    match parse(&Source::new("p.weir", text), &Files) {
        Ok(parsed) => parsed.warnings,
        Err(errors) => errors,
    }
}

fn rendered(cases: &[&str]) -> String {
    let mut seen = String::new();
    for text in cases {
        let found = said(text);
        assert!(!found.is_empty(), "nothing is wrong with: {text}");
        seen.push_str(&format!(
            "---- {}\n{}\n",
            text.replace('\n', "\n     "),
            found.render(false)
        ));
    }
    seen
}

fn compare(seen: &str, name: &str) {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, seen).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let different = seen.lines().zip(kept.lines()).position(|(a, b)| a != b);
    assert!(
        seen == kept,
        "line {} of {path} differs; WEIR_UPDATE=1 writes it anew\n{seen}",
        different.map_or(0, |n| n + 1)
    );
}

#[test]
fn all_errors_of_a_file_at_once_with_their_places() {
    let text = "# é\ntcp-dprot 80 ip-ttl 256 drop\n\nip-saddr 10.0.0.1\nudp-dport 5 \\\n  mod udp-dport 65536 mod ip-ttl 300\n";
    let errors = match parse(&Source::new("p.weir", text), &NoFiles) {
        Ok(_) => panic!("accepted"),
        Err(errors) => errors,
    };
    let places: Vec<_> = errors
        .iter()
        .map(|e| (e.line, e.column, e.severity))
        .collect();
    let error = Severity::Error;
    assert_eq!(
        places,
        [
            (2, 1, error),
            (2, 21, error),
            (4, 18, error),
            (6, 17, error),
            (6, 34, error)
        ]
    );
    assert_eq!(errors.len(), 5);
    let first = errors
        .iter()
        .next()
        .map(|e| (e.file.as_str(), e.message.as_str(), e.help.as_deref()));
    assert_eq!(
        first,
        Some((
            "p.weir",
            "`tcp-dprot` is not a field or a target",
            Some("did you mean `tcp-dport`?")
        ))
    );
    assert!(errors.render(true).contains('\u{1b}') && !errors.render(false).contains('\u{1b}'));
    assert!(errors.to_string().starts_with("error: `tcp-dprot`"));
}

#[test]
fn very_many_errors_are_counted() {
    let text = "tcp-dport 65536 drop\n".repeat(5000);
    let Err(errors) = parse(&Source::new("p.weir", text), &NoFiles) else {
        panic!("accepted")
    };
    assert_eq!((errors.len(), errors.iter().count()), (5000, 1000));
    assert!(errors.render(false).ends_with("... and 4000 more\n"));
}

#[test]
fn policy_files() {
    let folder = std::env::temp_dir().join(format!("weir-policy-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sub")).unwrap_or_else(|e| panic!("{e}"));
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{e}"));
        path
    };
    write("sub/hosts.txt", b"10.0.0.1\n");
    let good = write(
        "good.weir",
        b"set h = file \"sub/hosts.txt\"\nip-saddr in @h drop\n",
    );
    let latin = write("latin.weir", b"# caf\xe9\n");
    let bad = write("bad.weir", b"tcp-dport drop drop\n");
    assert!(parse_file(&good).is_ok());
    let message = |path: &std::path::Path| match parse_file(path) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    assert!(message(&folder.join("none.weir")).contains("there is no policy file"));
    assert!(message(&folder).contains("is a folder"));
    assert!(message(&latin).contains("byte 5 is not UTF-8"));
    assert!(message(&bad).contains("a rule has one `drop`"));
    assert!(matches!(parse_file(&bad), Err(PolicyError::Invalid(_))));
    std::fs::remove_dir_all(&folder).unwrap_or_else(|e| panic!("{e}"));
}

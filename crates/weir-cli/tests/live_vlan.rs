//! VLAN tags on veth, in the frame and hidden in packet metadata: the same verdict for policies that name none, a
//! refusal for those that do.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::live_bed::{Run, file, matched, prog_on, root, stderr, weir};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_kernel::netns::run_command;

/// A UDP datagram to port 9, once with tag 5 in the frame.
const PLAIN: &str =
    "0200000000020200000000010800 4500001c00000000401166cf0a0000010a000002 0001000900080000";
const TAGGED: &str = "020000000002020000000001 81000005 0800 4500001c00000000401166cf0a0000010a000002 0001000900080000";

/// A tc program that gives every frame tag 5 the way the stack does: beside the data.
const PUSH: &str = r#"
struct __sk_buff;
static long (*vlan_push)(struct __sk_buff *skb, unsigned short proto, unsigned short tci) = (void *)18;
__attribute__((section("tc"), used)) int push(struct __sk_buff *skb)
{
	vlan_push(skb, 0x0081, 5); /* 802.1Q in network order */
	return 0;
}
char LICENSE[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
"#;

fn pair(prefix: &str) -> (NetNs, NetNs) {
    let left = NetNs::create(prefix).expect("namespace");
    let right = NetNs::create(prefix).expect("namespace");
    bed::veth(
        End {
            ns: &left,
            name: "left0",
            addresses: &[],
        },
        End {
            ns: &right,
            name: "right0",
            addresses: &[],
        },
    )
    .expect("veth");
    (left, right)
}

/// Sends one frame as it is.
fn send(ns: &NetNs, hex: &str) {
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind(('left0', 0))\ns.send(bytes.fromhex('{}'))\n",
        hex.replace(' ', "")
    );
    let mut child = ns
        .command("python3")
        .expect("namespace")
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(script.as_bytes())
        .expect("written");
    assert!(child.wait().expect("ends").success());
}

/// From now on every frame the namespace sends on left0 gets a tag.
fn push_tags(ns: &NetNs) {
    let source = file("push.c", PUSH);
    let object: PathBuf = source.with_extension("o");
    run_command(
        Command::new("clang")
            .args(["-O2", "-target", "bpf", "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object),
    )
    .expect("compiles");
    ns.output("tc", &["qdisc", "add", "dev", "left0", "clsact"])
        .expect("clsact");
    let object = object.to_str().expect("text");
    ns.output(
        "tc",
        &[
            "filter", "add", "dev", "left0", "egress", "bpf", "da", "obj", object, "sec", "tc",
        ],
    )
    .expect("filter");
}

#[test]
fn a_policy_without_vlans_treats_both_kinds_of_tag_alike() {
    if !root("a_policy_without_vlans_treats_both_kinds_of_tag_alike") {
        return;
    }
    for hook in ["xdp", "tc", "clsact"] {
        let (left, right) = pair("weirl-vlan");
        let run = Run::start(
            &right,
            "discard: udp-dport 9 drop\n",
            &["right0"],
            &["--hook", hook],
        );
        send(&left, PLAIN);
        send(&left, TAGGED);
        push_tags(&left);
        send(&left, PLAIN);
        let report = run.stop();
        assert_eq!(matched(&report, "discard"), 3, "{hook}: {report}");
        assert_eq!(report["reasons"]["rule_drop"], 3, "{hook}: {report}");
    }
}

/// A datagram with tag 5 of 802.1ad around tag 7 of 802.1Q.
const TWICE: &str = "020000000002020000000001 88a80005 81000007 0800 4500001c00000000401166cf0a0000010a000002 0001000900080000";

/// What weir writes into tags, beside the frame and in it, is what the next host gets.
#[test]
fn tags_are_rewritten_on_tc() {
    if !root("tags_are_rewritten_on_tc") {
        return;
    }
    for flags in [&["--hook", "tc"][..], &["--hook", "clsact"]] {
        let (left, middle) = pair("weirl-vmod");
        let far = NetNs::create("weirl-vmod").expect("namespace");
        bed::veth(
            End {
                ns: &middle,
                name: "box1",
                addresses: &[],
            },
            End {
                ns: &far,
                name: "far0",
                addresses: &[],
            },
        )
        .expect("veth");
        for args in [
            &["link", "add", "br0", "type", "bridge", "stp_state", "0"][..],
            &["link", "set", "right0", "master", "br0"],
            &["link", "set", "box1", "master", "br0"],
            &["link", "set", "br0", "up"],
        ] {
            middle.ip(args).expect("bridge");
        }
        let policy = "one: vlan-id 5 ! vlan2 udp-dport 9 mod vlan-id 6\n\
                      two: vlan-id 5 vlan2-id 7 udp-dport 9 mod vlan-id 10 mod vlan2-id 8 mod udp-dport 10\n";
        let run = Run::start(&middle, policy, &["right0"], flags);
        let policy = "one: vlan-id 6 ! vlan2 udp-dport 9 accept\ntwo: vlan-id 10 vlan2-id 8 udp-dport 10 accept\n";
        let seen = Run::start(&far, policy, &["far0"], &[]);
        for _ in 0..2 {
            send(&left, TAGGED);
        }
        send(&left, TWICE);
        // The bridge does not learn before its ports are up.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let (report, seen) = (run.stop(), seen.stop());
        for report in [&report, &seen] {
            assert_eq!(
                ["one", "two"].map(|rule| matched(report, rule)),
                [2, 1],
                "{flags:?}: {report}"
            );
        }
    }
}

/// tc has tags beside the frame wherever they came from; a policy matches, counts and rewrites them as if they were in it.
#[test]
fn tags_beside_the_frame_are_seen_on_tc() {
    if !root("tags_beside_the_frame_are_seen_on_tc") {
        return;
    }
    let (left, right) = pair("weirl-vtc");
    let text = "five: vlan-id 5 udp-dport 9 mod vlan-id 6\nnone: ! vlan udp-dport 9 accept\nsix: vlan-id 6 accept\n";
    let first = Run::start(&right, text, &["right0"], &["--hook", "tc"]);
    // Behind weir: sees what weir made of it.
    let text = "five: vlan-id 5 accept\nsix: vlan-id 6 udp-dport 9 accept\n";
    let seen = file("seen.weir", text);
    let refused = weir(
        &right,
        &[
            "run",
            "--hook",
            "clsact",
            "-i",
            "right0",
            seen.to_str().expect("text"),
        ],
    );
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("right0 already carries"),
        "{}",
        stderr(&refused)
    );
    send(&left, PLAIN);
    send(&left, TAGGED);
    push_tags(&left);
    send(&left, PLAIN);
    let report = first.stop();
    assert_eq!(
        ["five", "none", "six"].map(|rule| matched(&report, rule)),
        [2, 1, 0],
        "{report}"
    );
    // Two frames of 46 bytes: the tag counts, wherever it is.
    assert_eq!(report["rules"][0]["bytes"], 92, "{report}");
}

#[test]
fn a_policy_that_names_vlans_is_refused_until_tags_are_in_the_frame() {
    if !root("a_policy_that_names_vlans_is_refused_until_tags_are_in_the_frame") {
        return;
    }
    let (left, right) = pair("weirl-vlanp");
    let text = "five: vlan-id 5 udp-dport 9 drop\n";
    let policy = file("vlan.weir", text);
    let refused = weir(
        &right,
        &[
            "run",
            "--hook",
            "xdp",
            "-i",
            "right0",
            policy.to_str().expect("text"),
        ],
    );
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("txvlan off"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(prog_on(&right, "right0"), None);

    // The cure that the message names, and what the flag is about.
    push_tags(&left);
    for (txvlan, expected) in [("off", 1), ("on", 0)] {
        left.output("ethtool", &["-K", "left0", "txvlan", txvlan])
            .expect("ethtool");
        let run = Run::start(&right, text, &["right0"], &["--vlan-in-frame"]);
        send(&left, PLAIN);
        let report = run.stop();
        assert_eq!(
            matched(&report, "five"),
            expected,
            "txvlan {txvlan}: {report}"
        );
    }
}

//! `weir generate` as a user runs it: the report in words and as JSON, exit statuses, and what cannot be.

use std::io::Write as _;
use std::process::Output;

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// `near` and `far` joined in one namespace; `None` without privileges.
fn pair() -> Option<NetNs> {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "this test needs root, and in CI it may not skip"
        );
        let _ = std::io::stderr().write_all(b"skipped, it needs root\n");
        return None;
    }
    let ns = NetNs::create("weir-cli-gen").expect("namespace");
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
            .expect("IPv6 off");
    }
    let end = |name| End {
        ns: &ns,
        name,
        addresses: &[],
    };
    bed::veth(end("near"), end("far")).expect("veth");
    Some(ns)
}

fn weir(ns: &NetNs, args: &[&str]) -> Output {
    let mut command = ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace");
    command
        .arg("generate")
        .args(args)
        .output()
        .expect("weir runs")
}

#[test]
fn the_report_in_words_and_as_json() {
    let Some(ns) = pair() else { return };
    let args = [
        "-i",
        "near",
        "--frames",
        "2k",
        "--flows",
        "10",
        "--size",
        "64,200",
        "--count-on",
        "far",
    ];
    let out = weir(&ns, &args);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    for line in [
        "sent      2000 frames (",
        "taken     2000 frames by the device",
        "arrived   2000 (",
        "lost      0",
        "reordered 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let out = weir(
        &ns,
        &[
            "-i",
            "near",
            "--duration",
            "100ms",
            "--rate",
            "10k/s",
            "--ipv6",
            "--tcp-syn",
            "--count-on",
            "far",
            "--json",
        ],
    );
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(json["arrived"]["lost"], 0, "{json}");
    assert_eq!(json["sent"], json["taken"]);
    assert!(
        json["sent"]
            .as_u64()
            .is_some_and(|sent| (100..=1_001).contains(&sent)),
        "{json}"
    );
}

#[test]
fn what_cannot_be_is_told_with_status_1_or_2() {
    let Some(ns) = pair() else { return };
    ns.ip(&["link", "add", "br0", "type", "bridge"])
        .expect("a bridge");
    ns.output("ethtool", &["-K", "far", "gro", "off"])
        .expect("ethtool");
    for (args, status, words) in [
        (
            &["-i", "near", "--frames", "10"][..],
            1,
            "`ethtool -K far gro on`",
        ),
        (&["-i", "nera", "--frames", "10"], 2, "near"),
        (&["-i", "br0", "--frames", "10"], 2, "--i-own-this-network"),
        (
            &["-i", "near", "--size", "20"],
            2,
            "such frames have 60 to 2016 bytes",
        ),
        (&["-i", "near", "--flows", "0"], 2, "0 flows"),
        (
            &[
                "-i",
                "near",
                "--src",
                "10.0.0.0/8",
                "--dst",
                "2001:db8::/32",
            ],
            2,
            "not of one family",
        ),
        (&["-i", "near", "--rate", "fast"], 2, "invalid rate `fast`"),
        (&["-i", "near", "--udp", "--icmp"], 2, "cannot be used with"),
        (&["-i", "near", "--capture", "none.pcap"], 2, "none.pcap"),
        (&["-i", "near", "--cpu", "900"], 2, "--cpu 900"),
    ] {
        let out = weir(&ns, args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

/// Whatever has the index of the far end here: in a namespace made at the same time it is the interface itself.
#[test]
fn a_far_end_in_another_namespace_is_told_with_it() {
    let Some(ns) = pair() else { return };
    let other = NetNs::create("weir-cli-gen").expect("namespace");
    let end = |ns, name| End {
        ns,
        name,
        addresses: &[],
    };
    bed::veth(end(&ns, "wire"), end(&other, "beyond")).expect("veth");
    other
        .output("ethtool", &["-K", "beyond", "gro", "off"])
        .expect("ethtool");
    // The interface here that has the index there.
    let index = |ns: &NetNs, name: &str| {
        ns.run(|| weir_kernel::iface::index_of(name))
            .expect("namespace")
            .expect("an index")
    };
    let far = index(&other, "beyond").to_string();
    ns.ip(&[
        "link", "add", "name", "same", "index", &far, "type", "dummy",
    ])
    .or_else(|_| ns.ip(&["link", "show", "dev", "wire"]))
    .expect("an interface of that index");
    let out = weir(&ns, &["-i", "wire", "--frames", "10"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    let cure = format!("`ip netns exec {} ethtool -K beyond gro on`", other.name());
    assert!(text.contains(&cure), "{text}");
    assert!(!text.contains("--count-on"), "{text}");
}

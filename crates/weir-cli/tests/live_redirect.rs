//! A graph with function `redirect` as a user runs it: applied, flooded by `weir generate`, and every packet accounted for by `weir status`.

use std::fs;

use crate::live_bed::{file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

#[test]
fn every_packet_of_a_flood_is_in_the_status() {
    if !root("every_packet_of_a_flood_is_in_the_status") {
        return;
    }
    let ns = NetNs::create("weir-cli-redir").expect("namespace");
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
            .expect("IPv6 off");
    }
    for (near, far) in [("far0", "in0"), ("out0", "end0"), ("out1", "end1")] {
        let end = |name| End {
            ns: &ns,
            name,
            addresses: &[],
        };
        bed::veth(end(near), end(far)).expect("veth");
    }
    // The far end of out0 takes frames, that of out1 does not.
    ns.output("ethtool", &["-K", "end0", "gro", "on"])
        .expect("ethtool");
    ns.output("ethtool", &["-K", "end1", "gro", "off"])
        .expect("ethtool");
    let edge = format!("redir-{}", std::process::id());
    let config = file("redirect.toml", "");
    let text = format!(
        "edge = \"{edge}\"\n[[port]]\nname = \"in\"\ndevice = \"in0\"\n[[function]]\nname = \"spread\"\nkind = \"redirect\"\n\
         device = [\"out0\", \"out1\"]\nspread = \"round-robin\"\n[[link]]\nfrom = \"in\"\nto = \"spread\"\n"
    );
    fs::write(&config, text).expect("cargo's folder is writable");
    let config = config.to_str().expect("UTF-8");
    let applied = weir(&ns, &["apply", config]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let sent = weir(
        &ns,
        &[
            "generate", "-i", "far0", "--frames", "1000", "--flows", "50",
        ],
    );
    assert!(sent.status.success(), "{}", stderr(&sent));
    let status = weir(&ns, &["status", "--edge", &edge, "--json"]);
    let words = weir(&ns, &["status", "--edge", &edge]);
    let down = weir(&ns, &["down", "--edge", &edge]);
    assert!(down.status.success(), "{}", stderr(&down));
    let json: Value = serde_json::from_slice(&status.stdout).expect("one object");
    let edge = &json["edges"][0];
    assert_eq!(edge["functions"][0]["ledger"]["received"], 1000, "{json}");
    assert!(edge["functions"][0]["maps"]["devices"].is_u64(), "{json}");
    let second = &edge["second_stage"];
    let targets = second["instances"][0]["targets"].as_array();
    let targets = targets.expect("a list");
    assert_eq!(targets.len(), 2, "{second}");
    for target in targets {
        assert_eq!(target["handed"], 500, "{second}");
        assert_eq!(target["untold"], 0, "{second}");
    }
    let words = String::from_utf8_lossy(&words.stdout);
    assert!(words.contains("redirected to out0: 500 sent"), "{words}");
    // The note of apply and the status say the same: the far end of out1 takes nothing.
    let note = [&applied.stdout[..], &applied.stderr].concat();
    let note = String::from_utf8_lossy(&note);
    assert!(note.contains("ethtool -K end1 gro on"), "{note}");
    assert!(
        words.contains("500 not, because the device takes no XDP frames"),
        "{words}"
    );
}

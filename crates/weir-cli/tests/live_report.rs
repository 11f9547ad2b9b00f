//! `weir doctor --report`: the shape of what runs, and nothing that names anyone.

use std::fs;

use crate::live_bed::{Run, file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::NetNs;

/// Names, addresses and payloads that a report must not have.
const SECRETS: [&str; 9] = [
    "secretif",
    "secretedge",
    "secretport",
    "secretset",
    "secretname",
    "192.0.2.77",
    "02:00:5e:99:88:77",
    "4711",
    "736563726574",
];

#[test]
fn a_report_has_shapes_and_no_secrets() {
    if !root("a_report_has_shapes_and_no_secrets") {
        return;
    }
    let ns = NetNs::create("weirreport").expect("a namespace");
    for device in ["secretif0", "secretif1"] {
        ns.ip(&["link", "add", device, "type", "veth"])
            .expect("a pair");
        ns.ip(&["link", "set", device, "address", "02:00:5e:99:88:77", "up"])
            .expect("up");
        ns.ip(&["address", "add", "192.0.2.77/32", "dev", device])
            .expect("an address");
    }
    let edge = format!("secretedge-{}", std::process::id());
    let config = file(
        "secretname.toml",
        &format!(
            "edge = \"{edge}\"\n[[port]]\nname = \"secretport\"\ndevice = \"secretif1\"\n[[function]]\nname = \"secretname\"\n\
             kind = \"middlebox\"\nrules = \"secretname: ip-saddr 192.0.2.77 drop\"\n[[link]]\nfrom = \"secretport\"\nto = \"secretname\"\n"
        ),
    );
    let applied = weir(&ns, &["apply", config.to_str().expect("a path")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let run = Run::start(
        &ns,
        "set secretset = { 192.0.2.77, 198.51.100.0/24 }\n\
         secretname: ip-saddr in @secretset udp-dport 4711 udp-payload 0x736563726574 drop log \"secretname\"\n",
        &["secretif0"],
        &[],
    );
    let path = file("report.json", "");
    let written = weir(&ns, &["doctor", "--report", path.to_str().expect("a path")]);
    drop(run);
    weir(&ns, &["down", "--all"]);
    assert!(written.status.success(), "{}", stderr(&written));
    let text = fs::read_to_string(&path).expect("a report");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rule = &report["policies"][0]["file"]["rules"][0];
    assert_eq!(rule["targets"][0], "drop", "{text}");
    assert_eq!(rule["matches"][0], "ip-saddr: in 2", "{text}");
    let function = &report["edges"][0]["graph"]["functions"][0];
    assert_eq!(function["kind"], "middlebox", "{text}");
    let attached = report["devices"].as_array().expect("a list");
    let attached = attached
        .iter()
        .filter(|one| one["programs_of_weir_run"] == 1);
    assert_eq!(attached.count(), 1, "{text}");
    let held = report["capabilities"]["effective"]
        .as_array()
        .expect("a list");
    assert!(held.contains(&Value::from("BPF")), "{text}");
}

/// The report of an upgraded host is about an edge that another version applied, whose name is in the message.
#[test]
fn a_report_of_an_unreadable_edge_has_the_reason_and_no_name() {
    if !root("a_report_of_an_unreadable_edge_has_the_reason_and_no_name") {
        return;
    }
    let ns = NetNs::create("weirreportu").expect("a namespace");
    ns.ip(&["link", "add", "secretif0", "type", "veth"])
        .expect("a pair");
    let config = file(
        "secretname.toml",
        "edge = \"secretedge\"\n[[port]]\nname = \"secretport\"\ndevice = \"secretif0\"\n[[function]]\nname = \"secretname\"\n\
         kind = \"middlebox\"\nrules = \"all drop\"\n[[link]]\nfrom = \"secretport\"\nto = \"secretname\"\n",
    );
    let path = file("unreadable.json", "");
    // Private mounts, because other tests run at the same time. The state becomes another object.
    let script = r#"mount -t tmpfs none /run && mount -t bpf none /sys/fs/bpf || exit 9
        "$1" apply "$2" > /dev/null || exit 8
        cd "$(dirname "$(find /sys/fs/bpf/weir -path "*secretedge*" -name "state-*")")" && state="$(ls | grep -m1 ^state-)" && mv "$(ls | grep -m1 -v ^state-)" "$state" || exit 6
        "$1" doctor --report "$3""#;
    let output = ns
        .command("unshare")
        .expect("namespace")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args([&config, &path])
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(&path).expect("a report");
    assert!(!text.contains("secret"), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let error = &report["edges"][0]["graph"]["error"];
    let error = error.as_str().expect("why it cannot be read");
    assert!(error.contains("edge <name>"), "{error}");
}

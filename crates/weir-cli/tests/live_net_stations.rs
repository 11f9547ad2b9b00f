//! Workloads whose devices have another MAC address than the document derives: `weir net` says so before and after, with the way out.

use std::process::Output;

use crate::live_bed::{file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::NetNs;

fn name() -> String {
    format!("net-mac-{}", std::process::id())
}

/// Two workloads on one edge: what is left open of the first one, and what the second one takes.
fn document(second: &str) -> String {
    let edge = name();
    format!(
        r#"
[[edge]]
name = "{edge}"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.workload]]
name = "a"
subnet = "web"
edge = "{edge}"
device = "wa"
address = "10.1.0.10"
[[network.workload]]
name = "b"
subnet = "web"
edge = "{edge}"
device = "wb"
mac = {second}
address = "10.1.0.11"
"#
    )
}

/// A workload behind a veth with the MAC addresses that the kernel gave it.
fn workload(edge: &NetNs, device: &str, address: &str) -> NetNs {
    let ns = NetNs::create("vmw").expect("a namespace");
    let pair = [
        "link",
        "add",
        device,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        ns.name(),
    ];
    edge.ip(&pair).expect("a pair");
    edge.ip(&["link", "set", device, "up"]).expect("up");
    ns.ip(&["link", "set", "eth0", "up"]).expect("up");
    ns.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])
        .expect("an address");
    ns
}

/// What the device of a workload has.
fn mac_of(ns: &NetNs) -> String {
    let shown = ns.ip(&["-json", "link", "show", "eth0"]).expect("shown");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["address"].as_str().expect("a text").to_owned()
}

/// Takes the networks away, whatever happens.
struct Gone<'n>(&'n NetNs);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        weir(self.0, &["net", "delete", "--edge", &name()]);
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn a_device_with_another_mac_is_named_before_and_after() {
    if !root("a_device_with_another_mac_is_named_before_and_after") {
        return;
    }
    let edge = NetNs::create("vme").expect("a namespace");
    let _gone = Gone(&edge);
    let a = workload(&edge, "wa", "10.1.0.10");
    let b = workload(&edge, "wb", "10.1.0.11");
    let made = weir_network::values::mac_of_name("n/a").to_string();
    let (has, of_b) = (mac_of(&a), mac_of(&b));
    assert_ne!(made, has);
    let path = file("net-mac.toml", &document("\"device\""));
    let path = path.to_str().expect("a path");
    let warning = format!("workload n/a sends from {has} (eth0, the other end of wa)");
    let cure = format!("ip link set dev eth0 address {made}");
    // Before anything runs, and when it does.
    for args in [&["plan", path][..], &["apply", path]] {
        let output = weir(&edge, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        let (text, said) = (stdout(&output), stderr(&output));
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found
                .unwrap_or_else(|| panic!("{args:?}: {text}"))
                .to_owned()
        };
        assert!(
            line("n/a").contains(&made) && line("n/a").contains(&has),
            "{text}"
        );
        assert!(
            line("n/b").contains(&of_b) && line("n/b").contains("the same"),
            "{text}"
        );
        assert!(said.contains(&warning) && said.contains(&cure), "{said}");
        assert!(!said.contains("n/b"), "{said}");
    }
    let planned = json(&weir(&edge, &["plan", path, "--json"]));
    let [first, second] = [&planned["stations"][0], &planned["stations"][1]];
    assert_eq!(first["workload"], "n/a", "{planned}");
    assert_eq!(first["mac"], made.as_str(), "{planned}");
    assert_eq!(first["mac_from"], "names", "{planned}");
    assert_eq!(first["device_mac"], has.as_str(), "{planned}");
    assert_eq!(first["differs"], true, "{planned}");
    assert_eq!(second["mac"], of_b.as_str(), "{planned}");
    assert_eq!(second["mac_from"], "device", "{planned}");
    assert_eq!(second["differs"], false, "{planned}");
    let applied = json(&weir(&edge, &["apply", path, "--json"]));
    assert_eq!(applied["stations"], planned["stations"], "{applied}");
    // What it sends is lost, and everybody who is asked says why, and what to do.
    let lost = a.output("ping", &["-c", "1", "-W", "1", "10.1.0.11"]);
    assert!(lost.is_err(), "{lost:?}");
    let shown = stdout(&weir(&edge, &["net", "show", "--edge", &name()]));
    assert!(shown.contains("dropped at n workload a:"), "{shown}");
    assert!(shown.contains("spoofed_mac"), "{shown}");
    assert!(shown.contains(&cure), "{shown}");
    let shown = json(&weir(&edge, &["net", "show", "--json", "--edge", &name()]));
    let rows = shown["interfaces"].as_array().expect("a list");
    let row = rows
        .iter()
        .find(|row| row["interface"] == "workload a")
        .expect("there");
    let cures = row["cures"]["spoofed_mac"].as_str().expect("a text");
    assert!(cures.contains(&cure), "{row}");
    let pinged = weir(
        &edge,
        &[
            "net",
            "ping",
            "n/b",
            "a",
            "-c",
            "2",
            "-i",
            "0.02",
            "-W",
            "0.5",
            "--edge",
            &name(),
        ],
    );
    let pinged = stdout(&pinged);
    assert!(
        pinged.contains("spoofed_mac") && pinged.contains(&cure),
        "{pinged}"
    );
    let traced = stdout(&weir(&edge, &["net", "trace", path, "n/a", "10.1.0.11"]));
    assert!(
        traced.contains(&warning) && traced.contains(&cure),
        "{traced}"
    );
    let traced = stdout(&weir(
        &edge,
        &[
            "net",
            "trace",
            path,
            "n/b",
            "10.1.0.10",
            "--source",
            "10.1.0.99",
        ],
    ));
    assert!(
        traced.contains("spoofed") && traced.contains("add the one that it has to `address`"),
        "{traced}"
    );
    // The way out works.
    a.ip(&["link", "set", "dev", "eth0", "address", &made])
        .expect("set");
    let shown = a.output("ping", &["-c", "2", "-i", "0.2", "-W", "2", "10.1.0.11"]);
    assert!(shown.is_ok(), "{shown:?}");
    let output = weir(&edge, &["apply", path]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        !stderr(&output).contains("spoofed_mac"),
        "{}",
        stderr(&output)
    );
    // What was read stays what holds until the next apply, which reads again.
    b.ip(&["link", "set", "dev", "eth0", "address", "02:00:00:00:77:77"])
        .expect("set");
    let before = json(&weir(
        &edge,
        &[
            "net",
            "ping",
            "n/b",
            "a",
            "-c",
            "1",
            "-W",
            "1",
            "--json",
            "--edge",
            &name(),
        ],
    ));
    assert!(
        before["why"].to_string().contains("02:00:00:00:77:77"),
        "{before}"
    );
    assert!(weir(&edge, &["apply", path]).status.success());
    // It knows the address from before.
    a.ip(&["neigh", "flush", "dev", "eth0"]).expect("flushed");
    let shown = b.output("ping", &["-c", "2", "-i", "0.2", "-W", "2", "10.1.0.10"]);
    assert!(shown.is_ok(), "{shown:?}");
}

#[test]
fn an_address_that_no_device_tells_is_asked_for() {
    if !root("an_address_that_no_device_tells_is_asked_for") {
        return;
    }
    let edge = NetNs::create("vme").expect("a namespace");
    // The other end of a pair in the same namespace can be read, whom a tap leads to cannot.
    edge.ip(&["link", "add", "wa", "type", "veth", "peer", "name", "far"])
        .expect("a pair");
    edge.ip(&["tuntap", "add", "dev", "wb", "mode", "tap"])
        .expect("a tap");
    let text =
        document("\"device\"").replace("device = \"wa\"\n", "device = \"wa\"\nmac = \"device\"\n");
    let path = file("net-mac-none.toml", &text);
    let path = path.to_str().expect("a path");
    for command in ["plan", "apply"] {
        let output = weir(&edge, &[command, path]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("workload n/b has `mac = \"device\"`"),
            "{said}"
        );
        assert!(said.contains("write its MAC address"), "{said}");
    }
    let shown = edge.ip(&["-json", "link", "show", "far"]).expect("shown");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let far = shown[0]["address"].as_str().expect("a text");
    let text = text.replace(
        "mac = \"device\"\naddress = \"10.1.0.11\"",
        "address = \"10.1.0.11\"",
    );
    let path = file("net-mac-same.toml", &text);
    let planned = json(&weir(
        &edge,
        &["plan", path.to_str().expect("a path"), "--json"],
    ));
    assert_eq!(planned["stations"][0]["mac"], far, "{planned}");
    assert_eq!(
        planned["stations"][1]["device_mac"],
        Value::Null,
        "{planned}"
    );
}

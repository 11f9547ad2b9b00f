//! Prefixes with one or two addresses (RFC 3021, RFC 6164): every address of them is a host's.

use crate::bench::NoFiles;
use weir_network::trace::{Described, Payload, trace};
use weir_network::{Networks, check, parse};

/// A workload in a subnet with a router, and another one behind that router.
fn document(prefix: &str, host: &str, router: &str) -> String {
    let length = prefix.split_once('/').expect("a length").1;
    let (far, far_router) = match prefix.contains(':') {
        true => ("fd00:9::7", "fd00:9::1/64"),
        false => ("10.9.0.7", "10.9.0.1/24"),
    };
    let far_prefix = if prefix.contains(':') {
        "fd00:9::/64"
    } else {
        "10.9.0.0/24"
    };
    format!(
        r#"
[[edge]]
name = "e"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "wire"
prefix = "{prefix}"
[[network.subnet]]
name = "far"
prefix = "{far_prefix}"
[[network.function]]
name = "gw"
kind = "router"
interface = [{{ name = "wire", address = "{router}/{length}" }}, {{ name = "far", address = "{far_router}" }}]
[[network.link]]
from = "wire"
to = "gw.wire"
[[network.link]]
from = "far"
to = "gw.far"
[[network.workload]]
name = "w"
subnet = "wire"
edge = "e"
device = "w"
address = "{host}"
[[network.workload]]
name = "f"
subnet = "far"
edge = "e"
device = "f"
address = "{far}"
"#
    )
}

fn checked(text: &str) -> Result<Networks, String> {
    let document = parse(text, "test").map_err(|found| found.render(false))?;
    let found = check(document, &NoFiles).map_err(|found| found.render(false))?;
    Ok(found.0)
}

fn reaches(networks: &Networks, from: &str, to: &str) -> bool {
    let described = Described {
        network: "n".to_owned(),
        workload: from.to_owned(),
        to: to.parse().expect("an address"),
        from: None,
        mac: None,
        payload: Payload::Echo,
        ttl: 64,
        length: 0,
    };
    let trace = trace(networks, &described).expect("traced");
    trace.delivered.len() == 1 && trace.dropped.is_empty()
}

#[test]
fn both_addresses_of_a_link_are_hosts() {
    for (prefix, one, other) in [
        ("10.1.0.0/31", "10.1.0.0", "10.1.0.1"),
        ("10.1.0.254/31", "10.1.0.254", "10.1.0.255"),
        ("fd00:1::/127", "fd00:1::", "fd00:1::1"),
        ("fd00:1::fffe/127", "fd00:1::fffe", "fd00:1::ffff"),
    ] {
        for (host, router) in [(one, other), (other, one)] {
            let networks = checked(&document(prefix, host, router));
            let networks = networks.unwrap_or_else(|e| panic!("{prefix} {host}: {e}"));
            let far = if prefix.contains(':') {
                "fd00:9::7"
            } else {
                "10.9.0.7"
            };
            assert!(reaches(&networks, "w", far), "{prefix} {host}");
            assert!(reaches(&networks, "f", host), "{prefix} {host}");
        }
    }
}

#[test]
fn the_only_address_of_a_prefix_is_a_host() {
    for (prefix, address) in [
        ("10.1.0.0/32", "10.1.0.0"),
        ("10.1.0.255/32", "10.1.0.255"),
        ("fd00:1::/128", "fd00:1::"),
    ] {
        let text = document(prefix, address, address);
        // Without the router, who cannot have the same address.
        let begin = text.find("[[network.function]]").expect("there");
        let end = text.find("[[network.workload]]").expect("there");
        let text = format!("{}{}", &text[..begin], &text[end..]);
        let networks = checked(&text).unwrap_or_else(|e| panic!("{prefix}: {e}"));
        let plan = networks
            .plan("e", &weir_network::Numbers::default())
            .expect("planned");
        assert_eq!(plan.devices.len(), 2, "{prefix}");
    }
}

#[test]
fn longer_prefixes_keep_their_first_and_last_address() {
    for (host, why) in [
        ("10.1.0.0", "it is the network address"),
        ("10.1.0.3", "it is the broadcast address"),
    ] {
        let refused = checked(&document("10.1.0.0/30", host, "10.1.0.1")).expect_err("refused");
        assert!(refused.contains(why), "{refused}");
        let refused = checked(&document("10.1.0.0/30", "10.1.0.1", host)).expect_err("refused");
        assert!(refused.contains(why), "{refused}");
    }
    for (host, router) in [("10.1.0.1", "10.1.0.2"), ("10.1.0.2", "10.1.0.1")] {
        checked(&document("10.1.0.0/30", host, router)).unwrap_or_else(|e| panic!("{host}: {e}"));
    }
}

#[test]
fn an_address_of_a_device_is_for_networks_of_one_edge() {
    let text = document("10.1.0.0/24", "10.1.0.7", "10.1.0.1")
        .replace("device = \"w\"\n", "device = \"w\"\nmac = \"device\"\n");
    let networks = checked(&text).expect("one edge");
    assert_eq!(networks.document.unread(), ["n/w"]);
    // It is written again as it was.
    let again = weir_network::export(&networks.document);
    assert!(again.contains("mac = \"device\""), "{again}");
    let two = text.replace(
        "[[tenant]]",
        "underlay = \"192.0.2.1\"\ndevice = \"u\"\nmtu = 1600\n[[edge]]\nname = \"e2\"\nunderlay = \"192.0.2.2\"\ndevice = \"u\"\nmtu = 1600\n[[tenant]]",
    );
    let two = format!(
        "{two}[[network.workload]]\nname = \"x\"\nsubnet = \"far\"\nedge = \"e2\"\ndevice = \"x\"\naddress = \"10.9.0.8\"\n"
    );
    let refused = checked(&two).expect_err("refused");
    assert!(
        refused.contains("can be read on edge `e` only"),
        "{refused}"
    );
    assert!(refused.contains("weir plan"), "{refused}");
}

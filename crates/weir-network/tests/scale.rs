//! A thousand networks with ten thousand workloads: what is planned is counted; times are printed, not asserted.

use std::fmt::Write;
use std::time::Instant;

use crate::bench::{NoFiles, Numbered};
use weir_network::{Numbers, check, parse};

/// Networks of two subnets, a router and `each` workloads, on two edges.
fn document(networks: usize, each: usize) -> String {
    let mut text = String::from(
        "version = 3\n[[edge]]\nname = \"e1\"\nunderlay = \"192.0.2.1\"\ndevice = \"eth0\"\nmtu = 1600\n\
         [[edge]]\nname = \"e2\"\nunderlay = \"192.0.2.2\"\ndevice = \"eth0\"\nmtu = 1600\n",
    );
    for n in 0..networks {
        let _ = write!(
            text,
            "[[tenant]]\nname = \"t{n}\"\n[[network]]\nname = \"n{n}\"\ntenant = \"t{n}\"\n\
             [[network.subnet]]\nname = \"a\"\nprefix = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n\
             [[network.subnet]]\nname = \"b\"\nprefix = \"10.2.0.0/24\"\n\
             [[network.function]]\nname = \"r\"\nkind = \"router\"\n\
             interface = [{{ name = \"a\", address = [\"10.1.0.1/24\", \"fd00:1::1/64\"] }}, {{ name = \"b\", address = \"10.2.0.1/24\" }}]\n\
             [[network.link]]\nfrom = \"a\"\nto = \"r.a\"\n[[network.link]]\nfrom = \"b\"\nto = \"r.b\"\n"
        );
        for w in 0..each {
            let (subnet, address) = match w % 2 {
                0 => (
                    "a",
                    format!("[\"10.1.0.{}\", \"fd00:1::{}\"]", w + 10, w + 10),
                ),
                _ => ("b", format!("\"10.2.0.{}\"", w + 10)),
            };
            let edge = if w == 0 && n % 10 == 0 { "e2" } else { "e1" };
            let _ = write!(
                text,
                "[[network.workload]]\nname = \"w{w}\"\nsubnet = \"{subnet}\"\nedge = \"{edge}\"\ndevice = \"t{n}w{w}\"\naddress = {address}\n"
            );
        }
    }
    text
}

#[test]
fn ten_thousand_workloads_are_planned() {
    let text = document(1000, 10);
    let begin = Instant::now();
    let read = parse(&text, "net.toml").expect("read");
    let parsed = begin.elapsed();
    let begin = Instant::now();
    let (networks, _) = check(read, &NoFiles).expect("checked");
    let checked = begin.elapsed();
    let begin = Instant::now();
    let plan = networks.plan("e1", &Numbers::default()).expect("planned");
    let planned = begin.elapsed();
    let begin = Instant::now();
    let tables = plan.tables(&Numbered, 0).expect("tables");
    let placed = begin.elapsed();
    println!(
        "{} kB of text: read {parsed:?}, checked {checked:?}, planned {planned:?}, tables {placed:?}; {} exact matches in {} buckets",
        text.len() / 1000,
        plan.exact.len() + plan.devices.len(),
        tables.exact.mask + 1
    );
    assert_eq!(plan.devices.len(), 9900);
    // Two for each workload here, two ends of each link, and both ends of tunnels of subnets with somebody on the other edge.
    assert_eq!(tables.interfaces.len(), 1 + 2 * 9900 + 4 * 1000 + 4 * 100);
    assert_eq!((tables.bridges.len(), tables.routers.len()), (2001, 1001));
    assert_eq!(tables.remotes.len(), 2);
    let again = networks.plan("e1", &plan.numbers).expect("planned");
    assert_eq!(again.numbers, plan.numbers);
}

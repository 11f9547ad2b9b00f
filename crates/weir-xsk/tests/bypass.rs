//! Flows that the kernel keeps away from a packet socket: room for them, and what is counted.

use std::net::IpAddr;
use std::time::Duration;

use weir_xsk::{Bypass, BypassConfig, BypassFlow};

use crate::sockets::root;

fn flow(client: u8) -> BypassFlow {
    BypassFlow {
        ends: [
            IpAddr::from([10, 0, 0, client]),
            IpAddr::from([10, 0, 1, 1]),
        ],
        ports: [4000, 443],
        protocol: 6,
        vlan: [0; 2],
        vlans: 0,
    }
}

#[test]
fn a_slot_rests_before_it_is_used_again() {
    if !root() {
        return;
    }
    let bypass = Bypass::load(BypassConfig {
        flows: 2,
        vlans: true,
        rings: 1,
        sheds: false,
    })
    .expect("loaded");
    assert!(!bypass.is_wanted());
    let slots: Vec<_> = (1..=3)
        .map(|n| bypass.begin(flow(n)).expect("asked"))
        .collect();
    assert_eq!(slots, [Some(0), Some(1), None]);
    assert!(bypass.is_wanted());
    // Who talks to himself has no two directions.
    let mut own = flow(1);
    own.ends[1] = own.ends[0];
    own.ports[1] = own.ports[0];
    assert_eq!(bypass.begin(own).expect("asked"), None);
    let counted = bypass.end(0).expect("it was there");
    assert_eq!((counted.packets, counted.last_ns), ([0; 2], 0));
    assert_eq!(bypass.begin(flow(3)).expect("asked"), None);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(bypass.begin(flow(3)).expect("asked"), Some(0));
    // A key that another flow has.
    bypass.end(1).expect("it was there");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(bypass.begin(flow(3)).expect("asked"), None);
    let total = bypass.total().expect("read");
    assert_eq!((total.packets, total.late, total.full), (0, 0, 4));
}

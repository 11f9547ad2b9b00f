//! The interface of a tunnel counts what arrives from the underlay in packets and in bytes, as the interfaces behind it do.

use crate::network_bed;
use weir_engine::Packet;
use weir_engine::network::user::{End, Port, User};
use weir_network::{EdgeNetworks, Numbers};
use weir_packet::build::Frame;

/// A workload on each of two edges, in one subnet.
fn document(kind: &str) -> String {
    let mut text = String::from("[[tenant]]\nname = \"red\"\n");
    for at in 1..=2 {
        text.push_str(&format!(
            "[[edge]]\nname = \"e{at}\"\nunderlay = \"192.0.2.{at}\"\ndevice = \"under\"\nmtu = 1600\ntunnel = \"{kind}\"\n"
        ));
    }
    text.push_str("[[network]]\nname = \"n\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n");
    for at in 1..=2 {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"w{at}\"\nsubnet = \"web\"\nedge = \"e{at}\"\ndevice = \"w{at}\"\nmac = \"02:00:00:00:00:0{at}\"\naddress = \"10.1.0.{at}\"\n"
        ));
    }
    text
}

/// Packets and bytes of the interface with a name.
fn counted(user: &mut User, plan: &EdgeNetworks, name: &str) -> (u64, u64) {
    let mut labels = plan.labels.interfaces.iter();
    let vid = labels.position(|label| label.name.starts_with(name));
    let totals = user.totals().expect("counted");
    let count = totals.interfaces[vid.unwrap_or_else(|| panic!("{name}"))];
    (count.packets, count.bytes)
}

#[test]
fn what_arrives_by_a_tunnel_is_counted_with_its_bytes() {
    for kind in ["vxlan", "geneve", "gre"] {
        let networks = network_bed::checked(&document(kind));
        let plan = |edge| networks.plan(edge, &Numbers::default()).expect("planned");
        let (one, two) = (plan("e1"), plan("e2"));
        let [mut near, mut far] = [&one, &two].map(|plan| User::new(plan, 0).expect("an engine"));
        let mut bytes = 0;
        for number in 0..10_u64 {
            let mut frame = Frame::new()
                .ip4([10, 1, 0, 1], [10, 1, 0, 2])
                .udp(1000, 2000)
                .payload(&vec![7; 100 + number as usize * 100])
                .build();
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            bytes += frame.len() as u64;
            let packet = |frame| Packet {
                frame,
                now_ns: (number + 1) * 1_000_000,
                number,
                port: 0,
                queue: 0,
            };
            let ends = near
                .packet(Port::Workload(0), &packet(&frame))
                .expect("run");
            let [
                End::Left {
                    by: Port::Underlay,
                    frame: outer,
                },
            ] = ends.as_slice()
            else {
                panic!("{kind}: {ends:?}");
            };
            let ends = far.packet(Port::Underlay, &packet(outer)).expect("run");
            let [
                End::Left {
                    by: Port::Workload(0),
                    frame: inner,
                },
            ] = ends.as_slice()
            else {
                panic!("{kind}: {ends:?}");
            };
            assert_eq!(*inner, frame, "{kind}");
        }
        assert_eq!(
            counted(&mut near, &one, "tunnel web"),
            (10, bytes),
            "{kind}: sent"
        );
        assert_eq!(
            counted(&mut far, &two, "tunnel web"),
            (10, bytes),
            "{kind}: arrived"
        );
        assert_eq!(
            counted(&mut far, &two, "web -> other edges"),
            (10, bytes),
            "{kind}"
        );
    }
}

/// Live, and by a device of the kernel's, too: both directions are in the count of the tunnel's interface.
#[test]
fn live_tunnels_count_the_bytes_of_both_directions() {
    if !network_bed::root("live_tunnels_count_the_bytes_of_both_directions") {
        return;
    }
    for kind in ["geneve", "kernel-vxlan"] {
        let text = document(kind).replace("device = \"under\"", "device = \"under0\"");
        let bed = network_bed::Bed::new(&weir_network::parse(&text, "test").expect("read"));
        bed.apply(&text);
        let said = bed.ping(
            "n/w1",
            &["-c", "20", "-i", "0.01", "-W", "2", "-s", "200", "10.1.0.2"],
        );
        assert!(
            said.contains("20 received") || said.contains("19 received"),
            "{kind}: {said}"
        );
        let look = bed.look("e1");
        let networks = network_bed::checked(&text);
        let plan = networks.plan("e1", &look.numbers).expect("planned");
        let count = |name: &str| {
            let mut labels = plan.labels.interfaces.iter();
            let vid = labels.position(|label| label.name.starts_with(name));
            let vid = vid.unwrap_or_else(|| panic!("{name}")) as u32;
            look.set.count(vid).expect("counted")
        };
        let (tunnel, port) = (count("tunnel web"), count("web -> other edges"));
        // Ethernet, IPv4 and ICMP headers around 200 bytes.
        let sent = 19 * (14 + 20 + 8 + 200);
        eprintln!("{kind}: {tunnel:?}, behind it {port:?}");
        assert!(port.bytes >= sent, "{kind}: {port:?}");
        assert!(
            tunnel.bytes >= port.bytes + sent,
            "{kind}: {tunnel:?} {port:?}"
        );
    }
}

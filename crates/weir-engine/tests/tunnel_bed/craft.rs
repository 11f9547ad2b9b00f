//! Packets of tunnels made by hand, right ones and forged ones.

use std::net::IpAddr;

use weir_bpf::abi::{self, tunnel_kind};
use weir_kernel::{NetNs, PacketSocket};

/// What a forged outer packet says.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) kind: u8,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) identifier: u32,
    /// Geneve: options as they are on the wire.
    pub(crate) options: Vec<u8>,
    pub(crate) ecn: u8,
    /// VXLAN: the first byte.
    pub(crate) flags: u8,
}

/// The packet that carries `inner`, from and to MAC addresses that do not matter to a device in promiscuous mode.
pub(crate) fn packet(o: &Outer, to: [u8; 6], inner: &[u8]) -> Vec<u8> {
    let mut tunnel = Vec::new();
    let id = (o.identifier << 8).to_be_bytes();
    match o.kind {
        tunnel_kind::GRE => {
            tunnel.extend([0x20, 0, 0x65, 0x58]);
            tunnel.extend(o.identifier.to_be_bytes());
        }
        tunnel_kind::GENEVE => {
            tunnel.extend([(o.options.len() / 4) as u8, 0, 0x65, 0x58]);
            tunnel.extend(id);
            tunnel.extend(&o.options);
        }
        _ => {
            tunnel.extend([o.flags, 0, 0, 0]);
            tunnel.extend(id);
        }
    }
    tunnel.extend(inner);
    let mut proto = 47;
    if o.kind != tunnel_kind::GRE {
        proto = 17;
        let port = match o.kind {
            tunnel_kind::GENEVE => abi::tunnel::GENEVE_PORT,
            _ => abi::tunnel::VXLAN_PORT,
        };
        let mut udp = Vec::from(50_000u16.to_be_bytes());
        udp.extend(port.to_be_bytes());
        udp.extend((tunnel.len() as u16 + 8).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&tunnel);
        tunnel = udp;
    }
    let mut frame = Vec::from(to);
    frame.extend([2, 0, 0, 0, 0, 0x77]);
    match (o.src, o.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame.extend([8, 0]);
            let mut ip = vec![0x45, o.ecn];
            ip.extend((tunnel.len() as u16 + 20).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, proto, 0, 0]);
            ip.extend(src.octets());
            ip.extend(dst.octets());
            let sum = header_sum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(ip);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            frame.extend([0x86, 0xdd, 0x60, o.ecn << 4, 0, 0]);
            frame.extend((tunnel.len() as u16).to_be_bytes());
            frame.extend([proto, 64]);
            frame.extend(src.octets());
            frame.extend(dst.octets());
        }
        _ => panic!("addresses of two families"),
    }
    frame.extend(tunnel);
    frame
}

/// The checksum of a header whose own field is 0.
pub(crate) fn header_sum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame inside: UDP over IPv4 with a mark that tells it from all else, and the ECN field given.
pub(crate) fn inner_frame(ecn: u8, mark: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 7, 1, 2, 0, 0, 0, 7, 2, 8, 0];
    let mut ip = vec![0x45, ecn, 0, 40];
    ip.extend(mark.to_be_bytes());
    ip.extend([0, 0, 64, 17, 0, 0, 10, 7, 0, 2, 10, 7, 0, 1]);
    let sum = header_sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend([0, 9, 0, 9, 0, 20, 0, 0]);
    frame.extend([0xa5; 12]);
    frame
}

/// Sends frames out of a namespace's `ul`.
pub(crate) fn inject(ns: &NetNs, frames: &[Vec<u8>]) {
    let socket = ns
        .run(|| PacketSocket::open("ul"))
        .expect("namespace")
        .expect("a packet socket");
    for frame in frames {
        socket.send(frame).expect("sends");
    }
}

/// The MAC address of a device.
pub(crate) fn mac(ns: &NetNs, device: &str) -> [u8; 6] {
    let said = ns.ip(&["-o", "link", "show", device]).expect("shown");
    let mut words = said.split_whitespace().skip_while(|w| *w != "link/ether");
    let text = words.nth(1).expect("an Ethernet device");
    let mut bytes = text
        .split(':')
        .map(|b| u8::from_str_radix(b, 16).expect("hex"));
    std::array::from_fn(|_| bytes.next().expect("six bytes"))
}

//! Packets of every common shape, for searches that have none given.

use weir_packet::build::Frame;

const V4: ([u8; 4], [u8; 4]) = ([10, 0, 0, 1], [192, 0, 2, 1]);

/// Whole frames; a search also cuts and changes them.
pub(super) fn packets() -> Vec<Vec<u8>> {
    let mut a6 = [0; 16];
    a6[..2].copy_from_slice(&[0x20, 0x01]);
    let mut b6 = a6;
    b6[15] = 1;
    let v4 = || Frame::new().ip4(V4.0, V4.1);
    let v6 = || Frame::new().ip6(a6, b6);
    let data = [0x41; 32];
    let frames = [
        v4().udp(5000, 53).payload(&data),
        v4().tcp(40_000, 80).flags(2).tcp_option(2, &[5, 180]),
        v4().tcp(40_000, 443).flags(16).payload(&data),
        v4().icmp(8, 0).echo(1, 1).payload(&data),
        v4().ip_options(&[1; 40]).udp(5000, 53).payload(&data),
        v4().ip_options(&[1; 40]).tcp(1, 80),
        v4().fragment(0, true).udp(5000, 53).payload(&data),
        v4().fragment(64, false).payload(&data),
        v4().protocol(47).payload(&data),
        v4().protocol(4).payload(&data),
        v6().udp(5000, 53).payload(&data),
        v6().tcp(40_000, 80).flags(2),
        v6().icmp(128, 0).echo(1, 1),
        v6().extension(0, &[0; 6]).udp(5000, 53),
        v4().vlan(7).udp(5000, 53),
        v6().vlan(7).vlan(8).tcp(1, 80),
        Frame::new().ether_type(0x0806).payload(&[1; 28]),
        Frame::new().ether_type(0x88cc).payload(&data),
        v4().udp(5000, 4789).payload(&[8; 1_400]),
    ];
    frames.iter().map(Frame::build).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_shapes_are_built() {
        let packets = super::packets();
        assert!(packets.len() > 15);
        assert!(packets.iter().all(|p| p.len() >= 14));
    }
}

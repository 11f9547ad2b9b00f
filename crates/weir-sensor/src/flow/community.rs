//! Community ID, version 1: a flow's name that other sensors compute as well (SHA-1 over the ordered ends, base64).

use std::net::IpAddr;

use super::Info;

/// The identifier of a flow, `1:` and base64; `seed` as configured in all sensors of a site.
pub fn id(flow: &Info, seed: u16) -> String {
    let (mut source, mut destination) = (flow.client, flow.server);
    let mut ports = match flow.protocol {
        6 | 17 | 132 => Some((flow.client_port, flow.server_port)),
        1 | 58 => flow.icmp.map(|(kind, code)| {
            icmp(flow.protocol == 58, kind).map_or((u16::from(kind), u16::from(code)), |other| {
                (u16::from(kind), other)
            })
        }),
        _ => None,
    };
    // An ICMP message that nobody answers keeps its direction.
    let one_way = matches!(flow.protocol, 1 | 58)
        && flow
            .icmp
            .is_some_and(|(kind, _)| icmp(flow.protocol == 58, kind).is_none());
    let order = |a: IpAddr| match a {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    };
    let (from, to) = ports.unwrap_or_default();
    if !one_way && (order(source), from) > (order(destination), to) {
        std::mem::swap(&mut source, &mut destination);
        ports = ports.map(|(a, b)| (b, a));
    }
    let mut bytes = Vec::with_capacity(40);
    bytes.extend_from_slice(&seed.to_be_bytes());
    for address in [source, destination] {
        match address {
            IpAddr::V4(a) => bytes.extend_from_slice(&a.octets()),
            IpAddr::V6(a) => bytes.extend_from_slice(&a.octets()),
        }
    }
    bytes.extend_from_slice(&[flow.protocol, 0]);
    if let Some((from, to)) = ports {
        bytes.extend_from_slice(&from.to_be_bytes());
        bytes.extend_from_slice(&to.to_be_bytes());
    }
    format!("1:{}", base64(&sha1(&bytes)))
}

/// The kind of message that answers, as its port.
fn icmp(v6: bool, kind: u8) -> Option<u16> {
    Some(match (v6, kind) {
        (false, 0) => 8,
        (false, 8) => 0,
        (false, 9) => 10,
        (false, 10) => 9,
        (false, 13 | 15 | 17) | (true, 128 | 130 | 133 | 135 | 139 | 144) => u16::from(kind) + 1,
        (false, 14 | 16 | 18) | (true, 129 | 131 | 134 | 136 | 140 | 145) => u16::from(kind) - 1,
        _ => return None,
    })
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |word, (i, b)| word | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            text.push(if i <= chunk.len() {
                char::from(LETTERS[(word >> (18 - 6 * i) & 63) as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// SHA-1 (RFC 3174). Broken as a signature; here it only names.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state = [
        0x6745_2301_u32,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |w, b| w << 8 | u32::from(*b));
        }
        for t in 16..80 {
            words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (t, word) in words.iter().enumerate() {
            let (f, k) = match t / 20 {
                0 => (b & c | !b & d, 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(f)
                .wrapping_add(e)
                .wrapping_add(k)
                .wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (mine, theirs) in state.iter_mut().zip([a, b, c, d, e]) {
            *mine = mine.wrapping_add(theirs);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_of_known_messages() {
        let hex = |m: &[u8]| {
            sha1(m)
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        };
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
    }

    #[test]
    fn a_known_identifier_from_both_directions() {
        let mut flow = Info {
            client: [128, 232, 110, 120].into(),
            server: [66, 35, 250, 204].into(),
            client_port: 34855,
            server_port: 80,
            protocol: 6,
            ..Info::new()
        };
        assert_eq!(id(&flow, 0), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        (flow.client, flow.server) = (flow.server, flow.client);
        (flow.client_port, flow.server_port) = (80, 34855);
        assert_eq!(id(&flow, 0), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(id(&flow, 1), "1:3V71V58M3Ksw/yuFALMcW0LAHvc=");
    }
}

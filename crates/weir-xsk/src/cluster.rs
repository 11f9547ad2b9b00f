//! Packet sockets that share what an interface receives (`PACKET_FANOUT`), so that each has a ring of its own and no reader stands between.
//!
//! Which socket a packet comes to is decided by a program of classic BPF over its outermost IP addresses, the same for both directions. So a flow, its fragments and what its two hosts
//! have between them otherwise stay together. The kernel's own hashes do not do that: they include ports, which later fragments do not have.
//!
//! What is no IP, or has a VLAN tag that the kernel left in the packet, comes to the first socket. An ICMP error goes by its own addresses, not by those of the packet that it is about.

/// Where loads of ancillary data, and loads relative to the network header, begin (`SKF_AD_OFF`, `SKF_NET_OFF`).
const ANCILLARY: u32 = -0x1000_i32 as u32;
const NETWORK: u32 = -0x10_0000_i32 as u32;
/// `SKF_AD_PROTOCOL`.
const PROTOCOL: u32 = ANCILLARY;
/// Spreads neighbouring addresses (2^32 divided by the golden ratio).
const GOLDEN: u32 = 0x9e37_79b1;

/// A program that returns a number for a packet, of which the kernel takes the remainder by the number of sockets. Every member gives the same.
pub(crate) fn program() -> Vec<libc::sock_filter> {
    let line = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = |at: u32| line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    // The exclusive or of some words of the network header.
    let words = |from: u32, count: u32| {
        let mut lines = vec![load(NETWORK.wrapping_add(from))];
        for n in 1..count {
            lines.push(line(libc::BPF_MISC | libc::BPF_TAX, 0));
            lines.push(load(NETWORK.wrapping_add(from + 4 * n)));
            lines.push(line(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0));
        }
        lines.push(line(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, GOLDEN));
        lines.push(line(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16));
        lines.push(line(libc::BPF_RET | libc::BPF_A, 0));
        lines
    };
    // Unless the kind is this one, over the lines that are for it.
    let only = |kind: u32, lines: Vec<libc::sock_filter>| {
        let skip = libc::sock_filter {
            jf: lines.len() as u8,
            ..line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, kind)
        };
        std::iter::once(skip).chain(lines)
    };
    let mut all = vec![load(PROTOCOL)];
    all.extend(only(libc::ETH_P_IP as u32, words(12, 2)));
    all.extend(only(libc::ETH_P_IPV6 as u32, words(8, 8)));
    all.push(line(libc::BPF_RET | libc::BPF_K, 0));
    all
}

/// A program that takes nothing: a member leaves only when it is closed, and what would come to it until then nobody has.
pub(crate) fn nothing() -> Vec<libc::sock_filter> {
    vec![libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program returns for a packet with these addresses, in another way of counting.
    fn runs(words: &[u32]) -> u32 {
        words.iter().fold(0, |a, w| a ^ w).wrapping_mul(GOLDEN) >> 16
    }

    #[test]
    fn both_directions_are_one_number_and_neighbours_are_not() {
        let (a, b) = (0x0a00_0001_u32, 0x0a00_0002);
        assert_eq!(runs(&[a, b]), runs(&[b, a]));
        let mut members = [0; 4];
        for host in 0..64 {
            members[runs(&[a, 0x0a00_0100 + host]) as usize % 4] += 1;
        }
        assert!(members.iter().all(|n| *n >= 8), "{members:?}");
    }

    #[test]
    fn jumps_lead_to_what_is_meant() {
        let all = program();
        let returns: Vec<usize> = (0..all.len())
            .filter(|at| u32::from(all[*at].code) & 7 == libc::BPF_RET)
            .collect();
        // One for each version, and one for what is neither.
        assert_eq!(returns.len(), 3);
        let jump = |at: usize| at + 1 + usize::from(all[at].jf);
        assert_eq!(jump(1), returns[0] + 1);
        assert_eq!(jump(returns[0] + 1), returns[2]);
    }
}

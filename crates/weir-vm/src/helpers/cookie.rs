//! SYN cookies without a socket: `bpf_tcp_raw_gen_syncookie_*` and `bpf_tcp_raw_check_syncookie_*`.
//!
//! Owns what a cookie says and for how long it holds. The layout is Linux's: addresses and ports, hashed, plus the client's sequence
//! number, the minute in the upper eight bits, and the segment size class hidden in the lower 24; results and error numbers are
//! Linux's, too. The key comes from `Env::random_seed` (the kernel draws its own), so cookies of one engine mean nothing to another.
//! Invariant: a cookie checks out in the minute it was made in and in the next one, and then no more.

use super::fault;
use crate::errno::{EACCES, EINVAL};
use crate::interp::{Registers, Run, Step};

/// Bytes of a TCP header without options.
const TCP_BYTES: usize = 20;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes a cookie holds.
const AGE_MAX: u32 = 2;
const CLASS_BITS: u32 = 24;
const CLASS_MASK: u32 = (1 << CLASS_BITS) - 1;

/// What differs between the families.
struct Family {
    /// Bytes of the IP header.
    header: usize,
    /// Where its addresses are: source, then destination.
    addresses: std::ops::Range<usize>,
    /// Segment sizes a cookie can say, smallest first.
    sizes: [u16; 4],
    /// Segment size of a client that names none.
    unnamed: u16,
}

const IPV4: Family = Family {
    header: 20,
    addresses: 12..20,
    sizes: [536, 1300, 1440, 1460],
    unnamed: 536,
};
const IPV6: Family = Family {
    header: 40,
    addresses: 8..40,
    sizes: [1220, 1420, 1440, 8940],
    unnamed: 1220,
};

fn family(number: u32) -> &'static Family {
    match number {
        204 | 206 => &IPV4,
        _ => &IPV6,
    }
}

impl Run<'_> {
    /// `bpf_tcp_raw_gen_syncookie_ipv4`, `_ipv6`: the cookie, and above it the segment size it stands for.
    pub(super) fn make_cookie(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        let family = family(number);
        let length = regs[3] as u32 as usize;
        let ip = self.memory.bytes(regs[1], family.header).map_err(fault)?;
        let tcp = self.memory.bytes(regs[2], length).map_err(fault)?;
        let claimed = tcp.get(12).map_or(0, |b| usize::from(b >> 4) * 4);
        if length < TCP_BYTES || length != claimed {
            return Ok(EINVAL as u64);
        }
        let named = segment_size(tcp.get(TCP_BYTES..).unwrap_or_default());
        let wanted = named.unwrap_or(family.unnamed);
        let fitting = family.sizes.iter().rposition(|s| *s <= wanted);
        let class = fitting.unwrap_or(0);
        let size = family.sizes.get(class).copied().unwrap_or(family.unnamed);
        let hashes = Hashes::of(self.env.random_seed, family, ip, tcp);
        let minute = self.minute();
        let hidden = hashes.of_minute(minute).wrapping_add(class as u32) & CLASS_MASK;
        let cookie = hashes
            .plain
            .wrapping_add(word(tcp, 4))
            .wrapping_add(minute << CLASS_BITS)
            .wrapping_add(hidden);
        Ok(u64::from(cookie) | u64::from(size) << 32)
    }

    /// `bpf_tcp_raw_check_syncookie_ipv4`, `_ipv6`: 0 where the acknowledgement answers one of our cookies.
    pub(super) fn check_cookie(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        let family = family(number);
        let ip = self.memory.bytes(regs[1], family.header).map_err(fault)?;
        let tcp = self.memory.bytes(regs[2], TCP_BYTES).map_err(fault)?;
        let hashes = Hashes::of(self.env.random_seed, family, ip, tcp);
        // Both numbers went on by one since the segment that was answered.
        let cookie = word(tcp, 8).wrapping_sub(1);
        let sequence = word(tcp, 4).wrapping_sub(1);
        let rest = cookie.wrapping_sub(hashes.plain).wrapping_sub(sequence);
        let now = self.minute();
        let age = now.wrapping_sub(rest >> CLASS_BITS) & (u32::MAX >> CLASS_BITS);
        if age >= AGE_MAX {
            return Ok(EACCES as u64);
        }
        let hidden = hashes.of_minute(now.wrapping_sub(age));
        let class = rest.wrapping_sub(hidden) & CLASS_MASK;
        let known = (class as usize) < family.sizes.len();
        Ok(if known { 0 } else { EACCES as u64 })
    }

    fn minute(&self) -> u32 {
        (self.env.now_ns / MINUTE_NS) as u32
    }
}

/// What the key makes of a connection's addresses and ports.
struct Hashes {
    key: u64,
    tuple: u64,
    plain: u32,
}

impl Hashes {
    fn of(key: u64, family: &Family, ip: &[u8], tcp: &[u8]) -> Hashes {
        let addresses = ip.get(family.addresses.clone()).unwrap_or_default();
        let ports = tcp.get(..4).unwrap_or_default();
        let mut tuple = key;
        for part in addresses.chunks(4).chain([ports]) {
            let mut bytes = [0; 4];
            for (to, from) in bytes.iter_mut().zip(part) {
                *to = *from;
            }
            tuple = mix(tuple ^ u64::from(u32::from_le_bytes(bytes)));
        }
        Hashes {
            key,
            tuple,
            plain: mix(tuple) as u32,
        }
    }

    fn of_minute(&self, minute: u32) -> u32 {
        mix(self.tuple ^ mix(self.key ^ u64::from(minute))) as u32
    }
}

/// The finisher of splitmix64, with its step in front so that zero does not stay zero.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The last non-zero segment size that TCP options name, read as Linux reads them: up to the first that does not fit.
fn segment_size(options: &[u8]) -> Option<u16> {
    let mut rest = options;
    let mut size = None;
    while let Some((kind, behind)) = rest.split_first() {
        match kind {
            0 => break,
            1 => rest = behind,
            _ => {
                let length = behind.first().map_or(0, |l| usize::from(*l));
                if length < 2 || length > rest.len() {
                    break;
                }
                if let ([2, 4, high, low], 4) = (rest.get(..4).unwrap_or_default(), length) {
                    let named = u16::from_be_bytes([*high, *low]);
                    size = Some(named).filter(|n| *n != 0).or(size);
                }
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
    size
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|w| w.first_chunk::<4>());
    word.map_or(0, |w| u32::from_be_bytes(*w))
}

#[cfg(test)]
mod tests {
    use super::segment_size;

    #[test]
    fn segment_sizes_are_read_up_to_the_first_option_that_does_not_fit() {
        assert_eq!(segment_size(&[]), None);
        assert_eq!(segment_size(&[2, 4, 5, 0xb4]), Some(1460));
        assert_eq!(segment_size(&[1, 1, 2, 4, 5, 0xb4, 0, 0]), Some(1460));
        assert_eq!(segment_size(&[0, 2, 4, 5, 0xb4]), None);
        assert_eq!(segment_size(&[3, 3, 7, 2, 4, 2, 0x18]), Some(536));
        // Another length is another option, zero is none, the last one counts.
        assert_eq!(segment_size(&[2, 3, 1, 2, 4, 0, 9, 2, 4, 0, 0]), Some(9));
        assert_eq!(segment_size(&[2, 4, 0, 9, 2, 4, 0, 7]), Some(7));
        assert_eq!(segment_size(&[2, 4, 5]), None);
        assert_eq!(segment_size(&[8, 1, 2, 4, 5, 0xb4]), None);
        assert_eq!(segment_size(&[2]), None);
    }
}

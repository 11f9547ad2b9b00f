//! A routing table as the Internet has one: prefixes drawn from a seed, with the shares of lengths that such tables have and as crowded, and where
//! packets to them go.
//!
//! No table of anybody's is copied: only the shares are known. Invariant: prefixes differ, none covers an address of the bed, and the same seed
//! gives the same table.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::bench::edge::Function;

/// Prefixes of a full table: the paper's had 752,138.
pub(crate) const FULL: usize = 750_000;
/// Those of a quick run.
pub(crate) const FULL_QUICK: usize = 100_000;
/// Next hops that routes have in turn.
pub(crate) const HOPS: u32 = 16;
/// Blocks of 65,536 addresses that anything is announced of.
const BLOCKS: usize = 35_000;

/// In ten thousandths, by length from /8 on: more than half are /24.
const SHARES: [u32; 17] = [
    1, 1, 2, 3, 8, 14, 25, 45, 145, 85, 150, 290, 470, 520, 1110, 1020, 6111,
];

/// A prefix: network and bits.
pub(crate) type Prefix = (u32, u8);

/// So many prefixes.
pub(crate) fn prefixes(count: usize) -> Vec<Prefix> {
    let mut random = Random(0x0bad_cafe_f00d);
    let blocks: Vec<u32> = std::iter::repeat_with(|| random.bits() as u32 >> 16)
        .filter(|block| is_free(block << 16, 16))
        .take(BLOCKS)
        .collect();
    let mut seen = HashSet::with_capacity(count);
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let bits = 8 + random.share() as u8;
        // Some blocks are cut into many pieces, most into few.
        let crowd = random.unit() * random.unit();
        let block = blocks[(crowd * BLOCKS as f64) as usize % BLOCKS];
        let address = block << 16 | random.bits() as u32 & 0xffff;
        let prefix = (address & u32::MAX << (32 - bits), bits);
        if is_free(prefix.0, bits) && seen.insert(prefix) {
            all.push(prefix);
        }
    }
    all
}

/// An address of each prefix; a closer one may cover it, too.
pub(crate) fn addresses(prefixes: &[Prefix]) -> Vec<u32> {
    let mut random = Random(7);
    let within =
        |(network, bits): &Prefix| network | (random.bits() as u32 & !(u32::MAX << (32 - bits)));
    prefixes.iter().map(within).collect()
}

/// So many of the addresses, at equal distances.
pub(crate) fn some(addresses: &[u32], count: usize) -> Vec<u32> {
    let step = (addresses.len() / count).max(1);
    addresses
        .iter()
        .copied()
        .step_by(step)
        .take(count)
        .collect()
}

/// The routes, as `ip route` writes them: next hops in turn, all behind one device.
pub(crate) fn lines(prefixes: &[Prefix], device: &str, before: &str) -> String {
    let mut text = String::with_capacity(prefixes.len() * 52);
    for (n, (network, bits)) in (0..).zip(prefixes) {
        let (network, hop) = (Ipv4Addr::from_bits(*network), hop4(n % HOPS));
        let _ = writeln!(text, "{before}{network}/{bits} via {hop} dev {device}");
    }
    text
}

/// weir's router with its own table: a default route of each family, and these.
pub(crate) fn own(prefixes: &[Prefix], device: &str) -> Function {
    let mut text = lines(prefixes, device, "");
    let _ = writeln!(text, "0.0.0.0/0 via {} dev {device}", hop4(0));
    let _ = writeln!(text, "::/0 via fd0f::2 dev {device}");
    let capacity = prefixes.len() + 1024;
    Function {
        kind: "router",
        keys: format!(
            "table = \"own\"\nroutes = {{ file = \"routes.txt\" }}\nprefixes = {capacity}\n"
        ),
        files: vec![("routes.txt".into(), text.into_bytes())],
    }
}

/// The address of a next hop.
pub(crate) fn hop4(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 255, 0, 2]) + n)
}

/// Neither the bed's, nor nobody's, nor a group's.
fn is_free(network: u32, bits: u8) -> bool {
    let last = network | u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    let [from, to] = [network >> 24, last >> 24];
    from >= 1 && to <= 223 && ![10, 127].iter().any(|n| (from..=to).contains(n))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A place of [`SHARES`].
    fn share(&mut self) -> usize {
        let mut at = (self.bits() % u64::from(SHARES.iter().sum::<u32>())) as u32;
        for (place, share) in SHARES.iter().enumerate() {
            if at < *share {
                return place;
            }
            at -= share;
        }
        SHARES.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_like_the_internets() {
        let all = prefixes(50_000);
        assert_eq!(all, prefixes(50_000));
        let distinct: HashSet<&Prefix> = all.iter().collect();
        assert_eq!(distinct.len(), 50_000);
        let of = |bits| all.iter().filter(|p| p.1 == bits).count() * 100 / all.len();
        assert!((55..66).contains(&of(24)), "{} % are /24", of(24));
        assert!((8..14).contains(&of(22)), "{} % are /22", of(22));
        for (network, bits) in &all {
            assert!((8..=24).contains(bits));
            assert_eq!(network & !(u32::MAX << (32 - bits)), 0);
            assert!(network >> 24 != 10 && network >> 24 != 127 && network >> 24 < 224);
        }
    }

    #[test]
    fn addresses_lie_in_their_prefixes() {
        let all = prefixes(1000);
        for ((network, bits), address) in all.iter().zip(addresses(&all)) {
            assert_eq!(address & u32::MAX << (32 - bits), *network);
        }
        assert_eq!(some(&addresses(&all), 100).len(), 100);
        assert_eq!(some(&addresses(&all), 1).len(), 1);
        let text = lines(&all[..17], "b1", "route add ");
        assert!(
            text.lines()
                .all(|l| l.starts_with("route add ") && l.ends_with(" dev b1"))
        );
        assert!(text.contains(" via 10.255.0.17 ") && !text.contains("10.255.0.18"));
    }
}

//! Which addresses of a subnet a container gets.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_network::model::{Network, Subnet};
use weir_value::Prefix;

/// Limit of addresses tried in a prefix: an IPv6 prefix has too many to try all.
const TRIED: u128 = 1 << 16;

/// Addresses in use: those of workloads, gateways and routers of the network.
fn taken(network: &Network) -> BTreeSet<IpAddr> {
    let workloads = network.workloads.iter();
    let workloads = workloads.flat_map(|one| one.addresses.known());
    let gateways = network.subnets.iter().flat_map(|subnet| &subnet.gateway);
    let routers = network.functions.iter().flat_map(|one| &one.interfaces);
    let routers = routers.flat_map(|one| &one.addresses);
    workloads
        .chain(gateways)
        .map(|one| one.value)
        .chain(routers.map(|one| one.value.address))
        .collect()
}

/// One free address of each prefix of a subnet; `None`: one of them has none. The search begins at a place that follows from the digest of the
/// attachment: edges that add at the same time rarely choose the same, and an address is not reused at once.
pub(super) fn free(network: &Network, subnet: &Subnet, digest: &str) -> Option<Vec<IpAddr>> {
    let taken = taken(network);
    let start = u128::from_str_radix(digest, 16).unwrap_or_default();
    let prefixes = subnet.prefixes.iter().map(|prefix| &prefix.value);
    prefixes
        .map(|prefix| one_of(prefix, start, &taken))
        .collect()
}

fn one_of(prefix: &Prefix, start: u128, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let width: u32 = if prefix.is_ip6 { 128 } else { 32 };
    let bits = width - u32::from(prefix.len).min(width);
    let size = 1_u128.checked_shl(bits).unwrap_or(u128::MAX);
    // The first address is that of the network or of any router (RFC 4291, section 2.6.1), the last one of IPv4 is the broadcast. Of two or one
    // all are of hosts (RFC 3021, RFC 6164).
    let (first, last) = match (size, prefix.is_ip6) {
        (..=2, _) => (0, size - 1),
        (_, false) => (1, size - 2),
        (_, true) => (1, size - 1),
    };
    let count = last - first + 1;
    (0..count.min(TRIED))
        .map(|step| first + (start % count + step) % count)
        .map(|host| address(prefix, host))
        .find(|one| !taken.contains(one))
}

fn address(prefix: &Prefix, host: u128) -> IpAddr {
    let number = prefix.first + host;
    match prefix.is_ip6 {
        true => Ipv6Addr::from_bits(number).into(),
        false => Ipv4Addr::from_bits(number as u32).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, start: u128) -> Vec<String> {
        let (address, len) = text.split_once('/').expect("a prefix");
        let prefix = Prefix::around(
            address.parse().expect("an address"),
            len.parse().expect("a length"),
        );
        let mut taken = BTreeSet::new();
        let next = || {
            let one = one_of(&prefix, start, &taken)?;
            taken.insert(one);
            Some(one.to_string())
        };
        std::iter::from_fn(next).take(10).collect()
    }

    #[test]
    fn every_host_is_chosen_once() {
        assert_eq!(all("10.1.0.0/30", 0), ["10.1.0.1", "10.1.0.2"]);
        assert_eq!(all("10.1.0.0/30", 1), ["10.1.0.2", "10.1.0.1"]);
        assert_eq!(all("10.1.0.4/31", 0), ["10.1.0.4", "10.1.0.5"]);
        assert_eq!(all("10.1.0.4/32", 9), ["10.1.0.4"]);
        assert_eq!(all("fd00::/126", 2), ["fd00::3", "fd00::1", "fd00::2"]);
        assert_eq!(all("fd00::/64", 0).len(), 10);
        assert_eq!(all("0.0.0.0/0", u128::MAX).len(), 10);
        assert_eq!(all("::/0", u128::MAX).len(), 10);
    }
}

//! One service with many servers: as weir is told of it, and as nftables is, the means that every distribution has.
//!
//! Server n has the address 10.77.0.0 + n and a link-layer address that ends in n. Invariant: both spread the same clients over the same servers.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::traffic::{PORT, SERVICE};
use crate::bench::edge::Function;

/// Servers of the service.
pub(crate) const SERVERS: u32 = 100;
/// Modes in which packets get to servers.
pub(crate) const MODES: [&str; 4] = ["ipip", "gue", "nat", "dsr"];

/// The servers by number, with their weights.
pub(crate) fn servers() -> Vec<(u32, u32)> {
    (1..=SERVERS).map(|n| (n, 1)).collect()
}

/// weir's balancer in front of these servers.
pub(crate) fn balancer(mode: &str, servers: &[(u32, u32)], connections: u32) -> Function {
    let mut keys = format!("connections = {connections}\nsource4 = \"10.99.0.0/16\"\n");
    let _ = writeln!(
        keys,
        "[[service]]\nname = \"web\"\naddress = \"{SERVICE}\"\nprotocol = \"udp\"\nport = {PORT}\nmode = \"{mode}\""
    );
    for (n, weight) in servers {
        let [high, low] = (*n as u16).to_be_bytes();
        let _ = writeln!(
            keys,
            "[[service.server]]\naddress = \"{}\"\nweight = {weight}\nmac = \"02:00:00:00:{high:02x}:{low:02x}\"",
            address(*n)
        );
    }
    Function {
        kind: "balancer",
        keys,
        files: Vec::new(),
    }
}

/// The same by address translation with a hash of the client, which connection tracking remembers.
pub(crate) fn nft(servers: &[(u32, u32)]) -> String {
    let all: Vec<String> = servers
        .iter()
        .enumerate()
        .map(|(place, (n, _))| format!("{place} : {}", address(*n)))
        .collect();
    format!(
        "table ip lb {{\n chain pre {{\n  type nat hook prerouting priority dstnat; policy accept;\n  \
         ip daddr {SERVICE} udp dport {PORT} dnat to jhash ip saddr . udp sport mod {} map {{ {} }}\n }}\n}}\n",
        servers.len(),
        all.join(", ")
    )
}

fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 77, 0, 0]) + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_in_both() {
        let function = balancer("ipip", &servers(), 1000);
        let rules = nft(&servers());
        for address in ["10.77.0.1", "10.77.0.100"] {
            assert!(
                function
                    .keys
                    .contains(&format!("address = \"{address}\"\n"))
            );
            assert!(rules.contains(address));
        }
        assert!(!rules.contains("10.77.0.101") && rules.contains("mod 100 map"));
        assert_eq!(function.keys.matches("[[service.server]]").count(), 100);
    }
}

//! Test beds: namespaces joined by veth pairs.
//!
//! Built with the `ip` command, so that a failure shows the command and what it
//! said. A bed owns nothing of its own: links vanish with their namespaces.

use crate::{KernelError, NetNs};

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Namespace in which the end lives.
    pub ns: &'a NetNs,
    /// Interface name there, at most 15 bytes.
    pub name: &'a str,
    /// Addresses with prefix length, `10.0.0.1/24` or `fd00::1/64`; may be empty.
    pub addresses: &'a [&'a str],
}

/// Joins two namespaces with a veth pair, gives both ends their addresses and
/// sets them up. IPv6 addresses are usable at once (no duplicate detection).
pub fn veth(a: End<'_>, b: End<'_>) -> Result<(), KernelError> {
    a.ns.ip(&[
        "link",
        "add",
        a.name,
        "type",
        "veth",
        "peer",
        "name",
        b.name,
        "netns",
        b.ns.name(),
    ])?;
    for end in [a, b] {
        for address in end.addresses {
            let mut args = vec!["address", "add", address, "dev", end.name];
            if address.contains(':') {
                args.push("nodad");
            }
            end.ns.ip(&args)?;
        }
        end.ns.ip(&["link", "set", end.name, "up"])?;
    }
    Ok(())
}

/// A namespace that forwards between its interfaces, for boxes in the middle.
pub fn forward(ns: &NetNs) -> Result<(), KernelError> {
    ns.sysctl("net.ipv4.ip_forward", "1")?;
    ns.sysctl("net.ipv6.conf.all.forwarding", "1")
}

/// Switches IPv6 off, before the namespace has devices: a device that comes up then sends nothing of its own (neighbour discovery, reports of
/// multicast listeners, router solicitations), so that a test may count every packet.
pub fn without_ipv6(ns: &NetNs) -> Result<(), KernelError> {
    for which in ["all", "default"] {
        ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
    }
    Ok(())
}

/// Sends everything without a better route through `via`.
pub fn default_route(ns: &NetNs, via: &str) -> Result<(), KernelError> {
    let family = if via.contains(':') { "-6" } else { "-4" };
    ns.ip(&[family, "route", "add", "default", "via", via])
        .map(drop)
}

/// The `nstat`-style counter of a namespace (`TcpInCsumErrors` is
/// `("Tcp", "InCsumErrors")`), from /proc/net/snmp and /proc/net/netstat.
/// `None` if the kernel has no such counter.
pub fn counter(ns: &NetNs, group: &str, name: &str) -> Result<Option<u64>, KernelError> {
    // `thread-self`, not `self`: the file shows the namespace of that task.
    let files = [
        "/proc/thread-self/net/snmp",
        "/proc/thread-self/net/netstat",
    ];
    for file in files {
        let text = ns
            .run(|| std::fs::read_to_string(file))?
            .map_err(|e| KernelError::sys(format!("read {file}"), e))?;
        if let Some(value) = snmp_value(&text, group, name) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Finds a value in the kernel's two-line format: names, then numbers.
fn snmp_value(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut rows = text
        .lines()
        .filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let names = rows.next()?;
    let values = rows.next()?;
    let at = names.split_whitespace().position(|n| n == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snmp_rows_pair_names_with_values() {
        let text = "Ip: Forwarding InReceives\nIp: 1 77\nTcp: InSegs InCsumErrors\nTcp: 5 3\n";
        assert_eq!(snmp_value(text, "Tcp", "InCsumErrors"), Some(3));
        assert_eq!(snmp_value(text, "Ip", "InReceives"), Some(77));
        assert_eq!(snmp_value(text, "Udp", "InErrors"), None);
        assert_eq!(snmp_value(text, "Tcp", "Nothing"), None);
        assert_eq!(snmp_value("Tcp: A B\nTcp: 1\n", "Tcp", "B"), None);
    }
}

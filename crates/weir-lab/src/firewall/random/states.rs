//! Tables of connections: those of weir and of nf_conntrack, by the tuple that opened each.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::Value;
use weir_kernel::NetNs;

use super::model::Key;
use crate::LabError;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) state: String,
    /// As what the other side sees the client.
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

pub(super) type Table = BTreeMap<Key, Entry>;

/// By `weir connections --json`.
pub(super) fn of_weir(ns: &NetNs, weir: &Path) -> Result<Table, LabError> {
    let weir = weir.to_string_lossy();
    let text = ns.output(&weir, &["connections", "--json"])?;
    let listed: Value = serde_json::from_str(&text).map_err(|error| LabError::Child {
        what: "weir connections".to_owned(),
        why: error.to_string(),
    })?;
    let mut table = Table::new();
    for connection in listed["connections"].as_array().into_iter().flatten() {
        if let Some((key, entry)) = of_json(connection) {
            table.insert(key, entry);
        }
    }
    Ok(table)
}

fn of_json(connection: &Value) -> Option<(Key, Entry)> {
    let protocol = match connection["protocol"].as_str()? {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        _ => return None,
    };
    let address = |v: &Value| match v.as_str()?.parse().ok()? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let port = |v: &Value| u16::try_from(v.as_u64()?).ok();
    let original = &connection["original"];
    let sent = match &connection["translated"] {
        Value::Null => original,
        translated => translated,
    };
    let key = (
        protocol,
        address(&original["source"])?,
        port(&original["source_port"])?,
        address(&original["destination"])?,
        port(&original["destination_port"])?,
    );
    let entry = Entry {
        state: connection["state"].as_str()?.to_owned(),
        address: address(&sent["source"])?,
        port: port(&sent["source_port"])?,
    };
    Some((key, entry))
}

/// By /proc/net/nf_conntrack.
pub(super) fn of_conntrack(ns: &NetNs) -> Result<Table, LabError> {
    let text = ns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack"))?
        .map_err(LabError::io("read /proc/net/nf_conntrack"))?;
    Ok(text.lines().filter_map(of_line).collect())
}

/// `ipv4 2 tcp 6 431999 ESTABLISHED src=.. dst=.. sport=.. dport=.. [UNREPLIED] src=.. dst=.. sport=.. dport=.. ..`.
fn of_line(line: &str) -> Option<(Key, Entry)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let all = |name: &str| -> Vec<&str> {
        (words.iter())
            .filter_map(|w| w.strip_prefix(name)?.strip_prefix('='))
            .collect()
    };
    let (sources, destinations) = (all("src"), all("dst"));
    let original: Ipv4Addr = sources.first()?.parse().ok()?;
    let server: Ipv4Addr = destinations.first()?.parse().ok()?;
    let address: Ipv4Addr = destinations.get(1)?.parse().ok()?;
    let number = |values: &[&str], at: usize| values.get(at)?.parse::<u16>().ok();
    let unreplied = words.contains(&"[UNREPLIED]");
    let protocol: u8 = words.get(3)?.parse().ok()?;
    let (port, to, seen, state) = match protocol {
        1 => {
            let ids = all("id");
            (
                number(&ids, 0)?,
                number(&all("type"), 0)?,
                number(&ids, 1)?,
                "icmp".to_owned(),
            )
        }
        _ => {
            let (sports, dports) = (all("sport"), all("dport"));
            let state = match (protocol, unreplied) {
                (6, _) => (*words.get(5)?).to_owned(),
                (_, true) => "UNREPLIED".to_owned(),
                (_, false) => "REPLIED".to_owned(),
            };
            (
                number(&sports, 0)?,
                number(&dports, 0)?,
                number(&dports, 1)?,
                state,
            )
        }
    };
    let entry = Entry {
        state,
        address,
        port: seen,
    };
    Some(((protocol, original, port, server, to), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_conntrack() {
        let line = "ipv4     2 tcp      6 119 SYN_SENT src=10.1.0.2 dst=10.2.0.2 sport=5000 dport=80 [UNREPLIED] src=10.2.0.2 dst=198.18.0.1 sport=80 dport=6000 mark=0 zone=0 use=2";
        let (key, entry) = of_line(line).expect("a connection");
        let (c, s) = (Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2));
        assert_eq!(key, (6, c, 5000, s, 80));
        assert_eq!((entry.state.as_str(), entry.port), ("SYN_SENT", 6000));
        let line = "ipv4 2 icmp 1 29 src=10.1.0.2 dst=10.2.0.2 type=8 code=0 id=5000 src=10.2.0.2 dst=10.1.0.2 type=0 code=0 id=5000 mark=0 use=2";
        let (key, entry) = of_line(line).expect("a connection");
        assert_eq!((key.0, key.2, key.4, entry.port), (1, 5000, 8, 5000));
    }
}

//! `kind = "decapsulate"`: the far end of a balancer's tunnels, on a server.
//!
//! Keys: `address` (where tunnels end), `accept` ("ipip", "gue"), `gue_port`, `from` (where tunnels may begin).

use std::net::IpAddr;

use weir_bpf::abi::{TunnelEnd, TunnelFrom, decapsulate as abi};
use weir_value::Prefix;
use zerocopy::IntoBytes;

use crate::plan::{Constant, MapPlan};
use crate::request::{FunctionError, Key, Kind, Planned, Request, suggest};

const KEYS: &[Key] = &[
    Key::new(
        "address",
        "required",
        "local tunnel endpoints: the address that the balancer has for this server",
    ),
    Key::new("accept", "`[\"ipip\", \"gue\"]`", "accepted encapsulations"),
    Key::new("gue_port", "6080", "UDP port of GUE"),
    Key::new(
        "from",
        "any, with a note",
        "prefixes that outer sources must be in",
    ),
];
const KINDS: &[&str] = &["ipip", "gue"];

/// The kind's row in `kind`.
pub const KIND: Kind = Kind::new("decapsulate", plan, &[("", KEYS)]);

/// Plans an instance.
///
/// # Errors
/// Keys that are wrong.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    request.only(KEYS)?;
    let mut ends = Vec::new();
    for text in request.texts("address")? {
        let address = weir_value::address(text).map_err(|invalid| {
            FunctionError::key("address", invalid.to_string())
                .advice("write the server's own addresses, those that the balancer has of it")
        })?;
        ends.push(address);
    }
    ends.sort_unstable();
    ends.dedup();
    if ends.is_empty() {
        return Err(
            FunctionError::new("it has no `address` that tunnels could end at")
                .advice("write address = [\"10.0.0.1\"]: the server's address in the balancer"),
        );
    }
    let mut features = 0;
    let accept = request.texts("accept")?;
    for kind in &accept {
        features |= match *kind {
            "ipip" => abi::IPIP,
            "gue" => abi::GUE,
            other => {
                return Err(
                    FunctionError::key("accept", format!("unknown tunnel kind `{other}`"))
                        .advice(suggest(other, KINDS)),
                );
            }
        };
    }
    if accept.is_empty() {
        features = abi::IPIP | abi::GUE;
    }
    let port = request.number("gue_port", 1..=65_535)?;
    if port.is_some() && features & abi::GUE == 0 {
        return Err(FunctionError::key(
            "gue_port",
            "`gue_port` says nothing where GUE is not accepted",
        ));
    }
    let from: Vec<Prefix> = request
        .texts("from")?
        .into_iter()
        .map(|text| crate::balancer::prefix("from", text))
        .collect::<Result<_, _>>()?;
    if !from.is_empty() {
        features |= abi::FROM;
    }
    let mut planned = Planned::embedded("decapsulate");
    let word = |name: &'static str, value: u32| -> Constant {
        (name.into(), value.to_ne_bytes().to_vec())
    };
    planned.instance.constants = vec![
        word("weir_dc_features", features),
        word("weir_dc_gue_port", port.unwrap_or(6080) as u32),
    ];
    let mut map = MapPlan::empty("tunnel_ends", ends.len(), 4);
    map.key_size = size_of::<TunnelEnd>();
    for address in &ends {
        let value = match address {
            IpAddr::V4(a) => u128::from(u32::from(*a)),
            IpAddr::V6(a) => u128::from(*a),
        };
        let end = TunnelEnd {
            high: (value >> 64) as u64,
            low: value as u64,
            family: if address.is_ipv4() { 4 } else { 6 },
            pad: 0,
        };
        map.keys.extend(end.as_bytes());
        map.values.extend(1u32.to_ne_bytes());
    }
    planned.instance.maps.push(map);
    let mut map = MapPlan::empty("tunnel_begins", from.len(), 4);
    map.key_size = size_of::<TunnelFrom>();
    for prefix in &from {
        let key = TunnelFrom {
            bits: 32 + u32::from(prefix.len),
            family: if prefix.is_ip6 { 6 } else { 4 },
            address: crate::balancer::bytes(prefix.address()),
        };
        map.keys.extend(key.as_bytes());
        map.values.extend(1u32.to_ne_bytes());
    }
    planned.instance.maps.push(map);
    if from.is_empty() {
        planned.notes.push(
            "tunnels are accepted from anywhere: any host that reaches its address can send packets with any source past the filters in front of the server; from = [\"10.99.0.0/16\"] (the balancer's source4) closes that"
                .to_owned(),
        );
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::request::Files;

    struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn planned(keys: &str) -> Result<Planned, FunctionError> {
        let keys = keys.parse().expect("TOML");
        plan(&Request {
            name: "it",
            keys: &keys,
            files: &NoFiles,
            ports: &[],
            transmits: false,
        })
    }

    #[test]
    fn ends_and_beginnings_become_tables() {
        let it = planned("address = [\"10.0.0.1\", \"2001:db8::1\"]\nfrom = \"10.99.0.0/16\"")
            .expect("planned");
        assert_eq!(it.instance.maps[0].max_entries, 2);
        assert_eq!(it.instance.maps[1].keys[0], 48);
        assert!(it.notes.is_empty());
        assert!(planned("address = \"10.0.0.1\"").expect("planned").notes[0].contains("from = "));
    }

    #[test]
    fn mistakes_are_told() {
        let error = planned("").expect_err("refused");
        assert_eq!(
            error.message,
            "it has no `address` that tunnels could end at"
        );
        let error = planned("address = \"10.0.0.1\"\naccept = \"gre\"").expect_err("refused");
        assert_eq!(error.message, "unknown tunnel kind `gre`");
        let error = planned("address = \"10.0.0.1\"\nfrom = \"10.0.0.1/8\"").expect_err("refused");
        assert_eq!(
            error.message,
            "invalid prefix `10.0.0.1/8`: host bits are set; write 10.0.0.0/8 or 10.0.0.1"
        );
    }
}

//! What rules look at, for deciding which packets weir and nftables see alike.

use std::collections::BTreeSet;

use weir_policy::field::{Header, Kind};
use weir_policy::model::{Classes, Rule, Test};

/// What the rules look at, for deciding which packets both sides see alike.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Names of the fields.
    pub(crate) fields: BTreeSet<&'static str>,
    /// A field of IP or of what it carries.
    pub(crate) ip: bool,
    /// Values of payloads.
    pub(crate) payload: bool,
    /// TCP options.
    pub(crate) tcp_options: bool,
    /// IPv4 options.
    pub(crate) ip_options: bool,
}

/// What the rules look at.
pub(crate) fn looks(rules: &[Rule]) -> Looks {
    let mut looks = Looks::default();
    for rule in rules {
        let tags = Classes::VLAN.union(Classes::VLAN2);
        looks.ip |= !tags.contains(rule.requires);
        for one in &rule.matches {
            let info = one.subject.field.info();
            looks.fields.insert(info.name);
            looks.ip |= !matches!(
                info.header,
                Header::Meta | Header::Ether | Header::Vlan | Header::Vlan2
            );
            looks.ip |= info.name.starts_with("frag")
                || info.name == "l4-proto"
                || info.kind == Kind::NetProto;
            looks.payload |= matches!(one.test, Test::Bytes(_)) && info.kind == Kind::Payload;
            looks.tcp_options |= matches!(info.kind, Kind::TcpOption(_));
            looks.ip_options |= matches!(info.kind, Kind::Ip4Option(_));
        }
    }
    looks
}

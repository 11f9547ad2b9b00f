//! The feature sets that both verifiers are asked about, and the record of the kernel's counts.

use weir_bpf::abi::feature;

/// Counts of the kernel's verifier, kept in the tree.
#[allow(dead_code, reason = "not every test file compares with the record")]
pub(crate) const RECORD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../benches/record/verified-insns.tsv"
);

/// Everything at once.
const ALL: u32 = feature::TCPOPT
    | feature::SLOTS
    | feature::REWRITE
    | feature::OPTION_OPS
    | feature::PAYLOAD_OPS
    | feature::LOG
    | feature::STATE
    | feature::TRANSLATE
    | feature::NAT
    | feature::SEQUENCE
    | feature::REJECT
    | feature::METER;

/// Feature sets that policies lead to, from a bare firewall to everything. All of them with as many pruning pieces as there can be.
pub(crate) const SETS: &[(&str, u32)] = &[
    ("none", 0),
    ("option-tests", feature::TCPOPT | feature::SLOTS),
    ("header-rewrites", feature::REWRITE),
    ("option-rewrites", feature::REWRITE | feature::OPTION_OPS),
    ("payload-rewrites", feature::REWRITE | feature::PAYLOAD_OPS),
    ("log", feature::LOG),
    ("connections", feature::STATE),
    ("nat", feature::STATE | feature::TRANSLATE | feature::NAT),
    (
        "helpers",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::EXPECT,
    ),
    (
        "states",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::EXPECT | feature::CT,
    ),
    ("marks", feature::REWRITE | feature::META),
    ("vlan-tags", feature::REWRITE | feature::VLAN),
    ("ttl", feature::REWRITE | feature::TTL),
    ("reject", feature::REJECT),
    ("limits-apart", feature::METER),
    ("log-limit", feature::LOG | feature::LOG_LIMIT),
    ("quota", feature::QUOTA),
    ("dynamic-sets", feature::SETS),
    (
        "dynamic-sets-connections",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::SETS,
    ),
    (
        "reject-connections",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::REJECT | feature::CT,
    ),
    ("time", feature::CLOCK),
    (
        "time-connections",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::CLOCK,
    ),
    ("counted", feature::STATE | feature::COUNT),
    (
        "nat-counted",
        feature::STATE | feature::TRANSLATE | feature::NAT | feature::COUNT,
    ),
    ("all-time", ALL | feature::COUNT | feature::CLOCK),
    ("all", ALL),
    ("all-counted", ALL | feature::COUNT),
];

//! What users could pick instead to drop packets by source: iptables, nftables and xdp-filter, and how to put them onto a box.
//!
//! Invariant: a program that is not installed is told, never replaced by another one in silence.

use std::fmt::Write as _;

use weir_kernel::NetNs;

use super::bed::INSIDE;
use super::traffic::Traffic;
use crate::LabError;
use crate::process::{Scratch, missing};

/// What drops on the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The raw table's PREROUTING chain: the paper's comparison, the first thing that the stack does with a packet.
    IptablesRaw,
    /// nftables in the interface's ingress hook, before the stack; from two prefixes on one interval set.
    NftIngress,
    /// xdp-filter of xdp-tools; it knows single addresses only.
    XdpFilter,
}

impl Peer {
    /// The series in figures' names.
    pub(crate) fn series(self) -> &'static str {
        match self {
            Peer::IptablesRaw => "iptables-raw",
            Peer::NftIngress => "nft-ingress",
            Peer::XdpFilter => "xdp-filter",
        }
    }

    /// Program and package that it needs, if it is not installed.
    pub(crate) fn absent(self) -> Option<(&'static str, &'static str)> {
        let (program, package) = match self {
            Peer::IptablesRaw => ("iptables-legacy-restore", "iptables"),
            Peer::NftIngress => ("nft", "nftables"),
            Peer::XdpFilter => ("xdp-filter", "xdp-tools"),
        };
        (!missing(&[program]).is_empty()).then_some((program, package))
    }

    /// Whether packets that it drops reach IP.
    pub(crate) fn is_in_the_stack(self) -> bool {
        self == Peer::IptablesRaw
    }

    /// Drops the traffic's sources by their prefixes.
    pub(crate) fn stand(
        self,
        traffic: Traffic,
        ns: &NetNs,
        scratch: &Scratch,
    ) -> Result<(), LabError> {
        match self {
            Peer::IptablesRaw => {
                let mut text = String::from("*raw\n");
                for prefix in traffic.prefixes() {
                    let _ = writeln!(text, "-A PREROUTING -s {prefix} -j DROP");
                }
                text.push_str("COMMIT\n");
                let path = scratch.write("raw.rules", text.as_bytes())?;
                let program = match traffic.ipv6 {
                    true => "ip6tables-legacy-restore",
                    false => "iptables-legacy-restore",
                };
                ns.output(program, &[&path.to_string_lossy()])?;
            }
            Peer::NftIngress => {
                let path = scratch.write("ingress.nft", nft(traffic).as_bytes())?;
                ns.output("nft", &["-f", &path.to_string_lossy()])?;
            }
            Peer::XdpFilter => {
                let feature = if traffic.ipv6 { "ipv6" } else { "ipv4" };
                let source = traffic.source(0).to_string();
                let script = ["-m", "sh", "-c", XDP_FILTER, "sh", INSIDE, feature, &source];
                ns.output("unshare", &script)?;
            }
        }
        Ok(())
    }
}

/// Loads xdp-filter onto an interface, then an address. It pins its maps by the interface's name, whatever the network namespace:
/// a file system of its own, which ends with the shell, keeps several of them, and others' of the host, apart.
const XDP_FILTER: &str = r#"
set -e
mount --make-rprivate /
mount -t bpf bpf /sys/fs/bpf
xdp-filter load "$1" -m native -p allow -f "$2"
xdp-filter ip -m src "$3" >/dev/null
"#;

fn nft(traffic: Traffic) -> String {
    let family = if traffic.ipv6 { "ip6" } else { "ip" };
    let kind = if traffic.ipv6 {
        "ipv6_addr"
    } else {
        "ipv4_addr"
    };
    let mut text = String::from("table netdev bench {\n");
    let mut wanted: Vec<String> = traffic.prefixes().collect();
    let rule = if wanted.len() == 1 {
        wanted.remove(0)
    } else {
        let _ = writeln!(
            text,
            " set sources {{ type {kind}; flags interval; elements = {{\n{}\n }} }}",
            wanted.join(",\n")
        );
        "@sources".to_owned()
    };
    let _ = writeln!(
        text,
        " chain ingress {{ type filter hook ingress device \"{INSIDE}\" priority 0; policy accept;\n  {family} saddr {rule} drop\n }}\n}}"
    );
    text
}

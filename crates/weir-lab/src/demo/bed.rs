//! The demo's test bed: client, box and server, joined by two veth pairs, IPv4 and IPv6.
//!
//! The transmit checksum offload of the box's own interfaces is off, so that the kernels at both ends see finished
//! checksums and judge them; that is what makes their InCsumErrors counters honest.

use weir_kernel::bed::{self, End};
use weir_kernel::iface::{self, Feature, Interface};
use weir_kernel::{KernelError, NetNs};

/// Interfaces of the box: to the client, to the server.
pub(crate) const PORTS: [&str; 2] = ["box0", "box1"];
/// The server's addresses.
pub(crate) const SERVER: [&str; 2] = ["10.0.2.2", "fd00:2::2"];

/// The three namespaces; the veth pairs end with them.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) client: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) server: NetNs,
}

impl Bed {
    pub(crate) fn build() -> Result<Bed, KernelError> {
        let bed = Bed {
            client: NetNs::create("weir-demo-client")?,
            middle: NetNs::create("weir-demo-box")?,
            server: NetNs::create("weir-demo-server")?,
        };
        let [to_client, to_server] = PORTS;
        bed::veth(
            End {
                ns: &bed.client,
                name: "cl0",
                addresses: &["10.0.1.2/24", "fd00:1::2/64"],
            },
            End {
                ns: &bed.middle,
                name: to_client,
                addresses: &["10.0.1.1/24", "fd00:1::1/64"],
            },
        )?;
        bed::veth(
            End {
                ns: &bed.server,
                name: "sv0",
                addresses: &["10.0.2.2/24", "fd00:2::2/64"],
            },
            End {
                ns: &bed.middle,
                name: to_server,
                addresses: &["10.0.2.1/24", "fd00:2::1/64"],
            },
        )?;
        bed::forward(&bed.middle)?;
        for (ns, via4, via6) in [
            (&bed.client, "10.0.1.1", "fd00:1::1"),
            (&bed.server, "10.0.2.1", "fd00:2::1"),
        ] {
            bed::default_route(ns, via4)?;
            bed::default_route(ns, via6)?;
        }
        for port in PORTS {
            bed.middle.offloads_off(port, &["tx"])?;
        }
        Ok(bed)
    }

    /// Switches the senders' transmit checksum offload, and with it their segmentation offload, off.
    pub(crate) fn senders_finish_checksums(&self) -> Result<(), KernelError> {
        self.client.offloads_off("cl0", &["tx"])?;
        self.server.offloads_off("sv0", &["tx"])
    }

    /// Everything about the four interfaces that weir may not leave changed.
    pub(crate) fn interfaces(&self) -> Result<Vec<(Interface, Vec<bool>)>, KernelError> {
        let mut all = Vec::new();
        for (ns, name) in self.ends() {
            all.push(ns.run(|| look_at(name))??);
        }
        Ok(all)
    }

    /// The offloads as they are set, a line for each interface.
    pub(crate) fn offloads(&self) -> Result<Vec<String>, KernelError> {
        let mut lines = Vec::new();
        for (ns, name) in self.ends() {
            let (_, states) = ns.run(|| look_at(name))??;
            let list: Vec<String> = Feature::ALL
                .iter()
                .zip(states)
                .map(|(feature, on)| {
                    format!(
                        "{} {}",
                        feature.ethtool_name(),
                        if on { "on" } else { "off" }
                    )
                })
                .collect();
            lines.push(format!("{name}: {}", list.join(", ")));
        }
        Ok(lines)
    }

    /// Packets that either end found to have a wrong L4 checksum, so far.
    pub(crate) fn checksum_errors(&self) -> Result<u64, KernelError> {
        let mut sum = 0;
        for ns in [&self.client, &self.server] {
            for group in ["Tcp", "Udp"] {
                sum += bed::counter(ns, group, "InCsumErrors")?.unwrap_or(0);
            }
            sum += ns.run(udp6_checksum_errors)?;
        }
        Ok(sum)
    }

    /// Whether a program is on both ports of the box.
    pub(crate) fn is_attached(&self) -> Result<bool, KernelError> {
        for port in PORTS {
            if self
                .middle
                .run(|| iface::find(port))??
                .xdp_prog_id
                .is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn ends(&self) -> [(&NetNs, &'static str); 4] {
        [
            (&self.client, "cl0"),
            (&self.middle, PORTS[0]),
            (&self.middle, PORTS[1]),
            (&self.server, "sv0"),
        ]
    }
}

fn look_at(name: &str) -> Result<(Interface, Vec<bool>), KernelError> {
    let features = Feature::ALL
        .iter()
        .map(|f| iface::feature(name, *f))
        .collect::<Result<_, _>>()?;
    Ok((iface::find(name)?, features))
}

/// IPv6 keeps its own file, one name and number a line; UDP-Lite has other names.
fn udp6_checksum_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Udp6InCsumErrors"));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

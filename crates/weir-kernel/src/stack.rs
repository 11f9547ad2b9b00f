//! What the network stack of this host does with packets that programs hand to it: whether it sends them on, and whether it believes their source.
//! It drops the others without a word, so who hands them over asks here first.

use std::fmt;
use std::fs;
use std::net::IpAddr;

use crate::routes::{self, KernelRouteKind};
use crate::{KernelError, iface};

/// Why the stack drops packets with some source that come in by some device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disbelief {
    /// The reverse path filter: the way back to the source is not by that device.
    ReversePath {
        /// The device.
        device: String,
    },
    /// The source is an address of this host.
    Own {
        /// The device.
        device: String,
    },
}

impl fmt::Display for Disbelief {
    /// The reason, with the command that changes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disbelief::ReversePath { device } => write!(
                f,
                "its reverse path filter is on: `sysctl net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{}.rp_filter=0`",
                dotted(device)
            ),
            Disbelief::Own { device } => write!(
                f,
                "that is an address of this host: `sysctl net.ipv4.conf.{}.accept_local=1`",
                dotted(device)
            ),
        }
    }
}

/// Whether the stack forwards what comes in by a device; `None`: it does not know the device, or the family there.
pub fn forwards(device: &str, is_ipv6: bool) -> Option<bool> {
    let family = if is_ipv6 { "ipv6" } else { "ipv4" };
    setting(family, device, "forwarding").map(|value| value != 0)
}

/// Whether the stack drops packets with this source that come in by this device. IPv6 has no such check.
///
/// # Errors
/// What the kernel refused.
pub fn disbelieves(device: &str, source: IpAddr) -> Result<Option<Disbelief>, KernelError> {
    if source.is_ipv6() {
        return Ok(None);
    }
    let of = |name: &str| {
        let values = ["all", device].map(|which| setting("ipv4", which, name).unwrap_or(0));
        values[0].max(values[1])
    };
    // 1: by this very device; 2: by any.
    let filter = of("rp_filter");
    let way = routes::way_to(source)?;
    let is_believed = match &way {
        Some(way) if way.kind == KernelRouteKind::Local => {
            let device = device.to_owned();
            return Ok((of("accept_local") == 0).then_some(Disbelief::Own { device }));
        }
        Some(way) => {
            let own = iface::find_index(device);
            filter != 1 || way.hops.iter().any(|hop| Some(hop.device) == own)
        }
        None => filter == 0,
    };
    let device = device.to_owned();
    Ok((!is_believed).then_some(Disbelief::ReversePath { device }))
}

/// A number of /proc/sys/net/FAMILY/conf/DEVICE.
fn setting(family: &str, device: &str, name: &str) -> Option<u32> {
    let path = format!("/proc/sys/net/{family}/conf/{device}/{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A device in the name of a sysctl: dots separate there, and a slash stands for one in a name.
fn dotted(device: &str) -> String {
    device.replace('.', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_dot_can_be_typed() {
        let device = "eth0.7".to_owned();
        assert_eq!(
            Disbelief::ReversePath { device }.to_string(),
            "its reverse path filter is on: `sysctl net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0/7.rp_filter=0`"
        );
    }
}

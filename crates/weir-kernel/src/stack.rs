//! What the network stack of this host does with packets that programs hand to it: whether it sends them on, and whether it believes their source.
//! It drops the others without a word, so who hands them over asks here first.

use std::fmt;
use std::fs;
use std::net::IpAddr;

use crate::routes::{self, KernelRoute, KernelRouteKind};
use crate::{KernelError, iface};

/// Why the stack drops packets with some source that come in by some device: one of the two at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disbelief {
    device: String,
    /// The source is an address of this host.
    is_own: bool,
    /// The reverse path filter: the way back to the source is not by that device.
    is_elsewhere: bool,
}

impl fmt::Display for Disbelief {
    /// The reason, with the command that changes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In the name of a sysctl a slash stands for a dot.
        let device = self.device.replace('.', "/");
        let (mut why, mut cure) = (Vec::new(), Vec::new());
        if self.is_own {
            why.push("that is an address of this host");
            cure.push(format!("net.ipv4.conf.{device}.accept_local=1"));
        }
        if self.is_elsewhere {
            why.push("its reverse path filter is on");
            cure.push(format!(
                "net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{device}.rp_filter=0"
            ));
        }
        write!(f, "{}: `sysctl {}`", why.join(", and "), cure.join(" "))
    }
}

/// Whether the stack forwards what comes in by a device; `None`: it does not know the device, or the family there.
pub fn forwards(device: &str, is_ipv6: bool) -> Option<bool> {
    let family = if is_ipv6 { "ipv6" } else { "ipv4" };
    setting(family, device, "forwarding").map(|value| value != 0)
}

/// Whether the stack answers every SYN with a cookie, also without a flood (`net.ipv4.tcp_syncookies` is 2); `None`: it knows none.
pub fn always_sends_cookies() -> Option<bool> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies").ok()?;
    Some(text.trim() == "2")
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
    let own = iface::find_index(device);
    let is_local = way
        .as_ref()
        .is_some_and(|way| way.kind == KernelRouteKind::Local);
    let is_back = |way: &KernelRoute| way.hops.iter().any(|hop| Some(hop.device) == own);
    let found = Disbelief {
        device: device.to_owned(),
        is_own: is_local && of("accept_local") == 0,
        is_elsewhere: match &way {
            Some(way) => filter == 1 && (is_local || !is_back(way)),
            None => filter != 0,
        },
    };
    Ok((found.is_own || found.is_elsewhere).then_some(found))
}

/// A number of /proc/sys/net/FAMILY/conf/DEVICE.
pub(crate) fn setting(family: &str, device: &str, name: &str) -> Option<u32> {
    let path = format!("/proc/sys/net/{family}/conf/{device}/{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_changes_all_that_is_in_the_way() {
        let why = Disbelief {
            device: "eth0.7".to_owned(),
            is_own: true,
            is_elsewhere: true,
        };
        assert_eq!(
            why.to_string(),
            "that is an address of this host, and its reverse path filter is on: \
             `sysctl net.ipv4.conf.eth0/7.accept_local=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0/7.rp_filter=0`"
        );
    }
}

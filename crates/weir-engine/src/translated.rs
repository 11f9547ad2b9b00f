//! Policies that translate on the way in hand packets to the stack, which must send them on and believe their new source. It drops the others
//! without a word, so users are told before, with the command that changes it.

use weir_functions::middlebox::translations::Translation;
use weir_kernel::routes::{self, KernelRouteKind};
use weir_kernel::{KernelError, stack};

/// An interface that packets come in by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrance<'a> {
    /// What rules may call it.
    pub(crate) names: [&'a str; 2],
    pub(crate) device: &'a str,
    pub(crate) ifindex: u32,
}

/// A sentence for each reason why this host's stack would drop what is translated, and each interface.
pub(crate) fn dropped_by_stack(
    translations: &[Translation],
    entrances: &[Entrance<'_>],
) -> Result<Vec<String>, KernelError> {
    // Of rules with the same reason the first is named.
    let mut found: Vec<(u32, String)> = Vec::new();
    let mut add = |line: u32, what: String| {
        if !found.iter().any(|(_, known)| *known == what) {
            found.push((line, what));
        }
    };
    for one in translations {
        if let Some(what) = unforwarded(one, entrances)? {
            add(one.line, what);
        }
        if !one.is_source {
            continue;
        }
        let by = entrances.iter();
        for by in by.filter(|by| one.comes_in_by(&by.names, by.ifindex)) {
            if let Some(why) = stack::disbelieves(by.device, one.address)? {
                let what = format!(
                    "the stack drops packets that get the source {} and came in by {}: {why}",
                    one.address, by.device
                );
                add(one.line, what);
            }
        }
    }
    let sentence = |(line, what)| format!("line {line}: {what}");
    Ok(found.into_iter().map(sentence).collect())
}

/// What is translated is for other hosts, unless its destination becomes an address of this one.
fn unforwarded(
    one: &Translation,
    entrances: &[Entrance<'_>],
) -> Result<Option<String>, KernelError> {
    if !one.is_source {
        let way = routes::way_to(one.address)?;
        if way.is_some_and(|way| way.kind == KernelRouteKind::Local) {
            return Ok(None);
        }
    }
    let (is_ipv6, family, cure) = match one.address.is_ipv6() {
        false => (false, "IPv4", "net.ipv4.ip_forward=1"),
        true => (true, "IPv6", "net.ipv6.conf.all.forwarding=1"),
    };
    let devices = entrances.iter().map(|by| by.device);
    let off: Vec<&str> = devices
        .filter(|device| stack::forwards(device, is_ipv6) == Some(false))
        .collect();
    Ok((!off.is_empty()).then(|| {
        format!(
            "this host does not forward {family} that comes in by {}, so what the policy translates is lost in its stack: `sysctl {cure}`",
            off.join(", ")
        )
    }))
}

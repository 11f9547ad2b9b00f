//! Policies that translate on the way in hand packets to the stack, which must send them on and believe their new source. Where the new source is an address of
//! this host, the stack is told to believe it (`weir_kernel::own_source`); of everything else that it would drop users are told before, with the command that
//! changes it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_functions::middlebox::translations::Translation;
use weir_kernel::own_source::{self, OwnSource};
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

/// An address of this host, and the device that has it.
type Own = (IpAddr, u32);

/// Lets the stack take what rules give an address of this host as source, on the interfaces where such packets come in. Returns what is held, with a
/// sentence for each.
///
/// # Errors
/// The stack cannot be told.
pub(crate) fn take_own_sources(
    translations: &[Translation],
    entrances: &[Entrance<'_>],
    owner: &str,
) -> Result<Vec<(OwnSource, String)>, KernelError> {
    let mut held = Vec::new();
    let needs = own_sources(translations, entrances)?;
    for (ifindex, (line, why)) in &needs {
        let Some(by) = entrances.iter().find(|by| by.ifindex == *ifindex) else {
            continue;
        };
        let Some(one) = own_source::allow(owner, by.device, by.ifindex)? else {
            continue;
        };
        let settings: Vec<String> = one
            .changed()
            .iter()
            .map(|c| format!("net.ipv4.conf.{}.{}={}", by.device, c.name, c.now))
            .collect();
        let sentence = format!(
            "line {line}: {why}: set {}; the old value is restored when weir stops",
            settings.join(" ")
        );
        held.push((one, sentence));
    }
    Ok(held)
}

/// Interfaces whose packets get an address of this host as source, each with the line of the first rule and the reason.
fn own_sources(
    translations: &[Translation],
    entrances: &[Entrance<'_>],
) -> Result<BTreeMap<u32, (u32, String)>, KernelError> {
    let mut found = BTreeMap::new();
    // IPv6 has no such check.
    let four = translations.iter().filter(|one| one.address.is_ipv4());
    let own = match four.clone().next() {
        Some(_) => own_addresses()?,
        None => return Ok(found),
    };
    for one in four {
        if one.is_source {
            let Some((address, _)) = own.iter().find(|(address, _)| one.writes(*address)) else {
                continue;
            };
            for by in entrances
                .iter()
                .filter(|by| one.comes_in_by(&by.names, by.ifindex))
            {
                found.entry(by.ifindex).or_insert_with(|| {
                    let why = format!(
                        "packets that come in by {} get {address} as source, an address of this host",
                        by.device
                    );
                    (one.line, why)
                });
            }
        } else if one.is_stateful
            && let Some((address, _)) = own.iter().find(|(a, _)| one.matches_destination(*a))
        {
            for end in one.ends() {
                let way = routes::way_to(end)?;
                let hops = way.iter().flat_map(|way| &way.hops);
                for hop in hops {
                    let Some(by) = entrances.iter().find(|by| by.ifindex == hop.device) else {
                        continue;
                    };
                    found.entry(by.ifindex).or_insert_with(|| {
                        let why = format!(
                            "answers of {end} that come in by {} get {address} as source, an address of this host",
                            by.device
                        );
                        (one.line, why)
                    });
                }
            }
        }
    }
    Ok(found)
}

/// IPv4 addresses of this host but those of the loopback network, each with its device.
fn own_addresses() -> Result<Vec<Own>, KernelError> {
    let mut found: Vec<Own> = Vec::new();
    for route in routes::read(routes::LOCAL)? {
        let is_own = route.kind == KernelRouteKind::Local && route.len == 32;
        let device = route.hops.first().map_or(0, |hop| hop.device);
        if is_own && route.destination.is_ipv4() && !route.destination.is_loopback() {
            // A broadcast address has a route like this, too, and is no source.
            let way = routes::way_to(route.destination)?;
            if way.is_some_and(|way| way.kind == KernelRouteKind::Local) {
                found.push((route.destination, device));
            }
        }
    }
    Ok(found)
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
    let own = match translations.is_empty() {
        true => Vec::new(),
        false => own_addresses()?,
    };
    for one in translations {
        if let Some(what) = unforwarded(one, entrances)? {
            add(one.line, what);
        }
        if let Some(what) = answered_here(one, entrances, &own)? {
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
    if !one.is_source && is_here(one.address)? {
        return Ok(None);
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
            "this host does not forward {family} that comes in by {}, so translated packets are lost in its stack: `sysctl {cure}`",
            off.join(", ")
        )
    }))
}

/// Connections with this host itself: its answers leave without passing weir, so nothing is translated back.
fn answered_here(
    one: &Translation,
    entrances: &[Entrance<'_>],
    own: &[Own],
) -> Result<Option<String>, KernelError> {
    if !one.is_stateful {
        return Ok(None);
    }
    if !one.is_source {
        return Ok(is_here(one.address)?.then(|| {
            format!(
                "{} is an address of this host, whose answers do not pass weir and are not translated back: translate to another host, or run with --egress",
                one.address
            )
        }));
    }
    let by = entrances.iter();
    let mut by = by.filter(|by| one.comes_in_by(&by.names, by.ifindex));
    // Hosts behind an interface talk to its own address.
    let reached = by.find_map(|by| {
        let mut here = own.iter().filter(|(_, device)| *device == by.ifindex);
        here.find(|(address, _)| one.matches_destination(*address))
    });
    Ok(reached.map(|(address, _)| {
        format!(
            "packets to {address}, this host itself, get another source, too, and its answers do not pass weir: exclude them by adding ! ip-daddr {address}, or run with --egress"
        )
    }))
}

fn is_here(address: IpAddr) -> Result<bool, KernelError> {
    let way = routes::way_to(address)?;
    Ok(way.is_some_and(|way| way.kind == KernelRouteKind::Local))
}

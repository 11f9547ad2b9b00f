//! What weir finds out about interfaces, and changes on them, before it attaches: which hook, which checksum mode, where VLAN
//! tags are.
//!
//! Invariant: an offload that was switched off comes back when its value is dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_functions::plan::ChecksumMode;
use weir_kernel::iface::{self, Feature, Interface};
use weir_kernel::routes::{self, KernelRouteKind};
use weir_kernel::{KernelError, XdpMode, stack};
use weir_policy::model::{PortName, Rule, Target, Test};

use super::{Hook, LiveError, Options};

/// An offload that weir switched off; it comes back on drop.
#[derive(Debug)]
pub(crate) struct SwitchedOff {
    iface: String,
    feature: Feature,
}

impl SwitchedOff {
    /// Switches an offload off, unless it is off or the device has none of the kind.
    pub(crate) fn new(iface: &str, feature: Feature) -> Result<Option<SwitchedOff>, KernelError> {
        if !iface::feature(iface, feature).unwrap_or(false) {
            return Ok(None);
        }
        iface::set_feature(iface, feature, false)?;
        Ok(Some(SwitchedOff {
            iface: iface.to_owned(),
            feature,
        }))
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        // The device may be gone; then there is nothing to restore.
        let _ = iface::set_feature(&self.iface, self.feature, true);
    }
}

pub(crate) fn find_all(names: &[String]) -> Result<Vec<Interface>, LiveError> {
    let mut interfaces: Vec<Interface> = Vec::with_capacity(names.len());
    for name in names {
        let interface = iface::find(name)?;
        if interfaces.iter().any(|i| i.ifindex == interface.ifindex) {
            return Err(LiveError::NamedTwice(name.clone()));
        }
        interfaces.push(interface);
    }
    Ok(interfaces)
}

/// A veth's tag hides by the offload of its other end, which is not weir's to change.
pub(crate) fn refuse_hidden_tags<'a>(
    mut interfaces: impl Iterator<Item = &'a Interface>,
) -> Result<(), LiveError> {
    let Some(veth) = interfaces.find(|i| i.is_veth()) else {
        return Ok(());
    };
    let peer = match veth.veth_peer {
        Some(index) => format!(" (interface {index} of its namespace)"),
        None => String::new(),
    };
    Err(LiveError::VlanHidden {
        iface: veth.name.clone(),
        peer,
    })
}

/// Generic XDP runs behind receive offloads, and a segment that GRO put together carries an unfinished checksum whatever
/// the driver.
pub(crate) fn checksums_of(interface: &Interface, hook: Hook) -> ChecksumMode {
    if hook != Hook::Xdp(XdpMode::Native) || interface.may_carry_unfinished_checksums() {
        ChecksumMode::Offloaded
    } else {
        ChecksumMode::Complete
    }
}

/// Warnings about `in` interfaces that are not among the ports: such matches never hold.
pub(crate) fn unattached_ports<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    interfaces: &[Interface],
) -> Vec<String> {
    let is_port = |name: &PortName| {
        interfaces.iter().any(|i| match name {
            PortName::Name(text) => *text == i.name,
            PortName::Index(index) => *index == i.ifindex,
        })
    };
    let mut missing: Vec<String> = Vec::new();
    for rule in rules {
        for one in &rule.matches {
            let Test::Port(names) = &one.test else {
                continue;
            };
            for name in names.iter().filter(|name| !is_port(name)) {
                let text = match name {
                    PortName::Name(text) => text.clone(),
                    PortName::Index(index) => index.to_string(),
                };
                let note = format!(
                    "line {}: the policy names interface {text}, which weir is not attached to: no packet comes in or leaves by it as far as weir knows; add `-i {text}`",
                    rule.line
                );
                if !missing.contains(&note) {
                    missing.push(note);
                }
            }
        }
    }
    missing
}

/// Rules that translate on the way in hand packets to the stack, which must send them on and believe their new source. Sentences about those that
/// it would drop.
pub(super) fn dropped_by_stack(
    rules: &[Rule],
    interfaces: &[Interface],
) -> Result<Vec<String>, KernelError> {
    let mut notes = Vec::new();
    for rule in rules {
        for target in &rule.targets {
            let Target::Map { field, pool } = target else {
                continue;
            };
            let Some(first) = pool.nth(0) else {
                continue;
            };
            let (address, is_source) = match field.info().name {
                "ip-saddr" => (Ipv4Addr::from(first as u32).into(), true),
                "ip-daddr" => (Ipv4Addr::from(first as u32).into(), false),
                "ip6-saddr" => (Ipv6Addr::from(first).into(), true),
                "ip6-daddr" => (Ipv6Addr::from(first).into(), false),
                _ => continue,
            };
            notes.extend(unforwarded(rule, address, is_source, interfaces)?);
            if !is_source {
                continue;
            }
            for interface in interfaces.iter().filter(|i| comes_in_by(rule, i)) {
                if let Some(why) = stack::disbelieves(&interface.name, address)? {
                    notes.push(format!(
                        "line {}: the stack drops packets that get the source {address} and came in by {}: {why}",
                        rule.line, interface.name
                    ));
                }
            }
        }
    }
    // One sentence for all rules of a kind.
    let mut told = Vec::new();
    notes.retain(|note| {
        let what = note
            .split_once(": ")
            .map_or("", |(_, what)| what)
            .to_owned();
        let is_new = !told.contains(&what);
        told.push(what);
        is_new
    });
    Ok(notes)
}

/// What is translated is for other hosts, unless its destination becomes an address of this one.
fn unforwarded(
    rule: &Rule,
    address: IpAddr,
    is_source: bool,
    interfaces: &[Interface],
) -> Result<Option<String>, KernelError> {
    let is_here = || -> Result<bool, KernelError> {
        let way = routes::way_to(address)?;
        Ok(way.is_some_and(|way| way.kind == KernelRouteKind::Local))
    };
    if !is_source && is_here()? {
        return Ok(None);
    }
    let is_ipv6 = address.is_ipv6();
    let off: Vec<&str> = interfaces
        .iter()
        .map(|i| i.name.as_str())
        .filter(|name| stack::forwards(name, is_ipv6) == Some(false))
        .collect();
    let (family, cure) = match is_ipv6 {
        false => ("IPv4", "net.ipv4.ip_forward=1"),
        true => ("IPv6", "net.ipv6.conf.all.forwarding=1"),
    };
    Ok((!off.is_empty()).then(|| {
        format!(
            "line {}: this host does not forward {family} that comes in by {}, so what the policy translates is lost in its stack: `sysctl {cure}`",
            rule.line,
            off.join(", ")
        )
    }))
}

/// Whether a rule's packets can come in by an interface.
fn comes_in_by(rule: &Rule, interface: &Interface) -> bool {
    rule.matches.iter().all(|one| {
        let (Test::Port(names), "in") = (&one.test, one.subject.field.info().name) else {
            return true;
        };
        let is_named = names.iter().any(|name| match name {
            PortName::Name(text) => *text == interface.name,
            PortName::Index(index) => *index == interface.ifindex,
        });
        is_named != one.negated
    })
}

/// The hook for an interface, by what was asked for and by the device.
pub(super) fn choose_hook(interface: &Interface, options: Options) -> Result<Hook, LiveError> {
    let xdp_only = options.checksums.is_some() || options.vlan_in_frame;
    let hook = options.hook.unwrap_or(match (options.egress, xdp_only) {
        (true, _) => Hook::Tc,
        (false, true) => Hook::Xdp(XdpMode::Native),
        (false, false) if interface.is_veth() => Hook::Tc,
        (false, false) => Hook::Xdp(XdpMode::Native),
    });
    let what = match hook {
        Hook::Xdp(_) if options.egress => {
            "packets on their way out (--egress) are not to be had from"
        }
        Hook::Tc | Hook::Clsact if options.checksums.is_some() => {
            "--checksums is for XDP; which checksums are finished is known without on"
        }
        Hook::Tc | Hook::Clsact if options.vlan_in_frame => {
            "--vlan-in-frame is for XDP; VLAN tags are seen without on"
        }
        _ => return Ok(hook),
    };
    Err(LiveError::NotThere { what, hook })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::NetNs;

    #[test]
    fn an_offload_that_was_switched_off_comes_back() {
        if !rustix::process::geteuid().is_root() {
            let in_ci = std::env::var("CI").as_deref() == Ok("true");
            assert!(!in_ci, "this test needs root, and in CI it may not skip");
            let line = b"an_offload_that_was_switched_off_comes_back: skipped, it needs root\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line);
            return;
        }
        let ns = NetNs::create("weir-offload").expect("namespace");
        ns.ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"])
            .expect("veth");
        ns.run(|| {
            let is_on = || iface::feature("one", Feature::RxVlan).expect("readable");
            assert!(is_on());
            let off = SwitchedOff::new("one", Feature::RxVlan)
                .expect("switches")
                .expect("was on");
            assert!(!is_on());
            assert!(
                SwitchedOff::new("one", Feature::RxVlan)
                    .expect("nothing to do")
                    .is_none()
            );
            drop(off);
            assert!(is_on());
        })
        .expect("namespace");
    }
}

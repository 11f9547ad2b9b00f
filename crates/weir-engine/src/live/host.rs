//! What weir finds out about interfaces, and changes on them, before it attaches: which hook, which checksum mode, where VLAN
//! tags are.
//!
//! Invariant: an offload that was switched off comes back when its value is dropped.

use weir_functions::plan::ChecksumMode;
use weir_kernel::iface::{self, Feature, Interface};
use weir_kernel::{KernelError, XdpMode};
use weir_policy::model::{PortName, Rule, Test};

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
                    "{}: the policy names interface {text}, which weir is not attached to: no packet comes in or leaves by it as far as weir knows; add `-i {text}`",
                    rule.line_text()
                );
                if !missing.contains(&note) {
                    missing.push(note);
                }
            }
        }
    }
    missing
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
        Hook::Xdp(_) if options.egress => "transmitted packets (--egress) are not available from",
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

//! One policy running on interfaces of the kernel: loading a copy of the program for each port, filling the shared maps,
//! attaching all copies or none, reading counters and events, taking everything off again.
//!
//! Prints nothing: what the user should know comes back as notes and errors. Invariant: whatever [`Live::start`] changed
//! on the host (programs, offloads) is undone by [`Live::stop`] or by dropping; only a killed process leaves
//! programs, each complete with its maps, for `weir down`.

use std::time::Duration;

use weir_bpf::abi::{self, Event};
use weir_functions::middlebox::{self, PlanError};
use weir_functions::plan::{ChecksumMode, InstancePlan, MapPlan, Port, PortConstants};
use weir_functions::report::Report;
use weir_kernel::iface::{self, Feature, Interface};
use weir_kernel::pins::{self, HeldFilter, HeldLink};
use weir_kernel::{Direction, Filter, KernelError, KernelObject, Link, LoadedProgram, XdpMode};
use weir_policy::model::{Policy, PortName, Test};
use zerocopy::FromBytes;

/// Where programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// XDP: in front of the stack, received packets only.
    Xdp(XdpMode),
    /// Traffic control through tcx, or clsact where the kernel has no tcx. Senders keep their offloads.
    Tc,
    /// Traffic control through a clsact filter.
    Clsact,
}

impl std::fmt::Display for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Hook::Xdp(mode) => write!(f, "{mode} XDP"),
            Hook::Tc => f.write_str("tc"),
            Hook::Clsact => f.write_str("tc (clsact)"),
        }
    }
}

/// How to attach.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `None`: by device and by what else is asked for. A veth is given tc, because native XDP takes its other end's segmentation
    /// offload; everything else native XDP. What only XDP has (checksum mode, tags in the frame) asks for XDP, `egress` for tc.
    pub hook: Option<Hook>,
    /// Packets that leave by the interfaces, too.
    pub egress: bool,
    /// `None`: by driver.
    pub checksums: Option<ChecksumMode>,
    /// The user vouches that VLAN tags are in the frame.
    pub vlan_in_frame: bool,
}

/// Why a policy does not run.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The policy has no plan.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// The same interface twice.
    #[error("interface {0} is named twice: name each once")]
    NamedTwice(String),
    /// The policy names VLANs and the tag would not be in the frame.
    #[error(
        "the policy names VLANs, and {iface} is one end of a veth pair: its other end hides the tag from XDP. \
         Run `ethtool -K PEER txvlan off` on the other end{peer}, then add --vlan-in-frame; or use --hook tc, which sees it"
    )]
    VlanHidden {
        /// Interface.
        iface: String,
        /// What is known of the other end.
        peer: String,
    },
    /// Something that only one of the hooks has.
    #[error("{what} {hook}")]
    NotThere {
        /// What was asked for, and that it is not there.
        what: &'static str,
        /// Where.
        hook: Hook,
    },
    /// See [`KernelError`].
    #[error("{0}")]
    Kernel(#[from] KernelError),
}

impl LiveError {
    /// Whether what the user asked for is wrong, rather than the host.
    pub fn is_usage(&self) -> bool {
        !matches!(self, LiveError::Kernel(e) if !matches!(e, KernelError::NoSuchInterface { .. }))
    }
}

/// A running policy.
#[derive(Debug)]
pub struct Live {
    // Fields drop in order: programs leave the interfaces before offloads come back.
    links: Vec<(usize, Attachment)>,
    offloads: Vec<SwitchedOff>,
    copies: Vec<LoadedCopy>,
    policy: Policy,
    ports: Vec<AttachedPort>,
    notes: Vec<String>,
}

/// A port as it runs.
#[derive(Clone, Debug)]
pub struct AttachedPort {
    /// The interface before weir attached.
    pub interface: Interface,
    /// Hook in use.
    pub hook: Hook,
    /// Checksum mode in use; of XDP only, tc asks each packet.
    pub checksums: ChecksumMode,
    /// weir's number of the port.
    number: u32,
}

/// One log line of a rule.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Kernel's monotonic clock, ns.
    pub now_ns: u64,
    /// Rule number.
    pub rule: u32,
    /// Interface name.
    pub port: String,
    /// Text of the log target.
    pub prefix: String,
    /// `pass` or `drop`.
    pub verdict: &'static str,
    /// The packet in one line.
    pub packet: String,
}

#[derive(Debug)]
enum Attachment {
    /// Survives a killed process, for `weir down`.
    Pinned(HeldLink),
    /// Ends with the process.
    Plain(Link),
    /// Survives a killed process.
    Filter(HeldFilter),
}

impl Attachment {
    fn is_attached(&self) -> bool {
        let attached = match self {
            Attachment::Pinned(link) => link.is_attached(),
            Attachment::Plain(link) => link.is_attached(),
            Attachment::Filter(filter) => filter.is_attached(),
        };
        attached.unwrap_or(false)
    }

    fn release(self) -> Result<(), KernelError> {
        match self {
            Attachment::Pinned(link) => link.release(),
            Attachment::Plain(link) => link.detach(),
            Attachment::Filter(filter) => filter.release(),
        }
    }
}

/// One program to attach: a port has one, or one for each direction.
#[derive(Debug)]
struct LoadedCopy {
    program: LoadedProgram,
    /// Index into the ports.
    port: usize,
    direction: Direction,
}

/// An offload that weir switched off; it comes back on drop.
#[derive(Debug)]
struct SwitchedOff {
    iface: String,
    feature: Feature,
}

impl SwitchedOff {
    /// Switches an offload off, unless it is off or the device has none of the kind.
    fn new(iface: &str, feature: Feature) -> Result<Option<SwitchedOff>, KernelError> {
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

impl Live {
    /// Plans the policy for these interfaces, loads everything, then attaches to all of them or to none.
    pub fn start(policy: &Policy, names: &[String], options: Options) -> Result<Live, LiveError> {
        let interfaces = find_all(names)?;
        let ports: Vec<Port> = (1u32..)
            .zip(&interfaces)
            .map(|(number, i)| Port {
                number,
                name: Some(i.name.clone()),
                index: i.ifindex,
            })
            .collect();
        let hooks = interfaces
            .iter()
            .map(|interface| choose_hook(interface, options))
            .collect::<Result<Vec<Hook>, LiveError>>()?;
        let (plan, _) = middlebox::plan_for(policy, &ports, options.egress)?;
        let sees_tags = options.vlan_in_frame || !middlebox::names_vlan(policy);
        let on_xdp = || {
            let both = interfaces.iter().zip(&hooks);
            both.filter(|(_, hook)| matches!(hook, Hook::Xdp(_)))
                .map(|(interface, _)| interface)
        };
        if !sees_tags {
            refuse_hidden_tags(on_xdp())?;
        }
        for interface in on_xdp() {
            if let Some(prog_id) = interface.xdp_prog_id {
                return Err(KernelError::AlreadyAttached {
                    iface: interface.name.clone(),
                    prog_id,
                }
                .into());
            }
        }

        // XDP and tc may both be on an interface; weir is on it once.
        for pin in pins::list()? {
            let held = interfaces.iter().find(|i| i.ifindex == pin.ifindex);
            if let (Some(interface), Some(prog_id)) = (held, pin.prog_id) {
                return Err(KernelError::AlreadyRunning {
                    iface: interface.name.clone(),
                    prog_id,
                }
                .into());
            }
        }

        let mut copies: Vec<LoadedCopy> = Vec::with_capacity(interfaces.len());
        let mut attached = Vec::with_capacity(interfaces.len());
        for ((port, interface), hook) in ports.iter().zip(&interfaces).zip(hooks) {
            let checksums = options
                .checksums
                .unwrap_or_else(|| checksums_of(interface, hook));
            let constants = PortConstants {
                port: port.number,
                checksums,
                mtu: Some(interface.mtu),
                replay: false,
            };
            let directions: &[Direction] = match options.egress {
                false => &[Direction::Ingress],
                true => &[Direction::Ingress, Direction::Egress],
            };
            for &direction in directions {
                let program = load(&plan, hook, direction, constants, &ports, &copies)?;
                copies.push(LoadedCopy {
                    program,
                    port: attached.len(),
                    direction,
                });
            }
            attached.push(AttachedPort {
                interface: interface.clone(),
                hook,
                checksums,
                number: port.number,
            });
        }
        let mut live = Live {
            links: Vec::new(),
            offloads: Vec::new(),
            copies,
            policy: policy.clone(),
            notes: unattached_ports(policy, &interfaces),
            ports: attached,
        };
        if !sees_tags {
            live.uncover_tags()?;
        }
        // From here on an early return drops `live`, which undoes what was done.
        live.attach()?;
        live.say_costs();
        Ok(live)
    }

    /// What the user should know about this run, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The ports in the order given.
    pub fn ports(&self) -> &[AttachedPort] {
        &self.ports
    }

    /// The counters of all ports and CPUs. While traffic flows `received` is ahead of the verdicts by the packets that are
    /// being processed during the read.
    pub fn report(&self) -> Result<Report, LiveError> {
        let Some(LoadedCopy { program, .. }) = self.copies.first() else {
            return Ok(Report::new("kernel", &self.policy, &crate::no_stats(), &[]));
        };
        let (stats, counters) = crate::kernel::totals(program, self.policy.rules.len())?;
        Ok(Report::new("kernel", &self.policy, &stats, &counters))
    }

    /// Waits up to `timeout` for log lines and returns all that are there. A signal ends the wait early.
    pub fn logs(&mut self, timeout: Duration) -> Result<Vec<LogLine>, LiveError> {
        let Some(LoadedCopy { program, .. }) = self.copies.first_mut() else {
            return Ok(Vec::new());
        };
        let mut events = Vec::new();
        program.drain("events", timeout, |record| {
            if let Ok((event, _)) = Event::read_from_prefix(record) {
                events.push(event);
            }
        })?;
        Ok(events.iter().map(|event| self.line(event)).collect())
    }

    /// The interfaces that no longer carry their program: the device went away, or somebody else detached it.
    pub fn lost(&self) -> Vec<&str> {
        let mut lost: Vec<usize> = self
            .links
            .iter()
            .filter(|(_, link)| !link.is_attached())
            .map(|(port, _)| *port)
            .collect();
        lost.dedup();
        lost.iter()
            .filter_map(|port| self.ports.get(*port))
            .map(|port| port.interface.name.as_str())
            .collect()
    }

    /// Detaches, restores offloads, and reads the counters once no packet is on its way through the programs.
    pub fn stop(mut self) -> Result<Report, LiveError> {
        let mut failed = None;
        for (_, link) in self.links.drain(..) {
            failed = failed.or(link.release().err());
        }
        self.offloads.clear();
        if let Some(error) = failed {
            return Err(error.into());
        }
        let mut report = self.report()?;
        // Generic XDP and tc are taken off without waiting for packets inside it; a grace period is a few ms.
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(5));
            let again = self.report()?;
            let quiet = again == report && again.packets.balanced();
            report = again;
            if quiet {
                break;
            }
        }
        Ok(report)
    }

    fn attach(&mut self) -> Result<(), LiveError> {
        let mut links = Vec::with_capacity(self.copies.len());
        let mut filters = Vec::new();
        let mut made_qdisc_of = None;
        for (index, copy) in self.copies.iter().enumerate() {
            let port = &mut self.ports[copy.port];
            let ifindex = port.interface.ifindex;
            if let Hook::Xdp(mode) = port.hook {
                links.push((copy.port, copy.program.attach_xdp(ifindex, mode)?));
                continue;
            }
            if port.hook == Hook::Tc {
                match copy.program.attach_tcx(ifindex, copy.direction) {
                    Ok(link) => {
                        links.push((copy.port, link));
                        continue;
                    }
                    Err(KernelError::NoTcx) => port.hook = Hook::Clsact,
                    Err(error) => return Err(error.into()),
                }
            }
            let made_before = made_qdisc_of == Some(ifindex);
            let filter = Filter::attach(&copy.program, ifindex, copy.direction, made_before)?;
            if filter.made_qdisc() {
                made_qdisc_of = Some(ifindex);
            }
            filters.push((index, filter));
        }
        // Pinned only when all are attached: of links a process killed before leaves nothing.
        let pinning = pins::ensure_bpffs();
        for (index, filter) in filters {
            let copy = &self.copies[index];
            let held = pins::hold_filter(filter, &copy.program)?;
            self.links.push((copy.port, Attachment::Filter(held)));
        }
        for (port, link) in links {
            let link = match pinning {
                Ok(()) => Attachment::Pinned(pins::hold(link)?),
                Err(_) => Attachment::Plain(link),
            };
            self.links.push((port, link));
        }
        if let Err(error) = pinning {
            self.notes.push(format!(
                "running without pins: a killed `weir run` detaches itself, or leaves clsact filters that `tc filter del` removes: {error}"
            ));
        }
        Ok(())
    }

    /// Switches off what would take VLAN tags out of frames before XDP sees them.
    fn uncover_tags(&mut self) -> Result<(), LiveError> {
        for port in self.ports.iter().filter(|p| p.is_xdp()) {
            let name = &port.interface.name;
            if let Some(off) = SwitchedOff::new(name, Feature::RxVlan)? {
                self.offloads.push(off);
                self.notes.push(format!(
                    "{name}: rx-vlan-offload is off while weir runs, so that VLAN tags stay in the frame; it comes back at the end"
                ));
            }
        }
        Ok(())
    }

    fn say_costs(&mut self) {
        let names = |keep: &dyn Fn(&AttachedPort) -> bool| {
            let names: Vec<&str> = self
                .ports
                .iter()
                .filter(|p| keep(p))
                .map(|p| p.interface.name.as_str())
                .collect();
            names.join(", ")
        };
        let mut notes = Vec::new();
        let veth = names(&|p| p.interface.is_veth() && p.hook == Hook::Xdp(XdpMode::Native));
        if !veth.is_empty() {
            notes.push(format!(
                "{veth}: native XDP on veth switches off TCP segmentation offload at the other end; measured between \
                 namespaces: 5.5-8 Gbit/s instead of 34-40 (with --hook tc nothing is switched off)"
            ));
        }
        let offloaded = names(&|p| p.is_xdp() && p.checksums == ChecksumMode::Offloaded);
        if !offloaded.is_empty() && middlebox::rewrites(&self.policy) {
            notes.push(format!(
                "{offloaded}: local senders leave checksums unfinished here. weir tells by the checksum itself, so of packets that are \
                 complete one in 65,536 is taken for unfinished and leaves with a wrong checksum. Cure: --hook tc, or \
                 `ethtool -K PEER tx off` at the other end and --checksums complete here"
            ));
        }
        self.notes.extend(notes);
    }

    fn line(&self, event: &Event) -> LogLine {
        let name = self.ports.iter().find(|p| p.number == event.port);
        let text = event.prefix.split(|b| *b == 0).next().unwrap_or_default();
        let data = event.data.get(..event.snap as usize).unwrap_or(&event.data);
        LogLine {
            now_ns: event.now_ns,
            rule: event.rule,
            port: name.map_or_else(|| event.port.to_string(), |p| p.interface.name.clone()),
            prefix: String::from_utf8_lossy(text).into_owned(),
            verdict: if event.verdict == XDP_DROP {
                "drop"
            } else {
                "pass"
            },
            packet: describe(data, event.len as usize),
        }
    }
}

impl AttachedPort {
    fn is_xdp(&self) -> bool {
        matches!(self.hook, Hook::Xdp(_))
    }
}

/// The middlebox as compiled for tc.
pub(crate) const TC_OBJECT: &str = "middlebox_tc";

/// `XDP_DROP` of `enum xdp_action`.
const XDP_DROP: u32 = 1;

/// One line about a packet of which only the first bytes are there: the rest is taken as zeros, so that lengths are right.
fn describe(data: &[u8], len: usize) -> String {
    let mut frame = data.to_vec();
    frame.resize(len.clamp(data.len(), abi::FRAME_MAX), 0);
    weir_packet::summary(&frame)
}

fn find_all(names: &[String]) -> Result<Vec<Interface>, LiveError> {
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
fn refuse_hidden_tags<'a>(
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
fn checksums_of(interface: &Interface, hook: Hook) -> ChecksumMode {
    if hook != Hook::Xdp(XdpMode::Native) || interface.may_carry_unfinished_checksums() {
        ChecksumMode::Offloaded
    } else {
        ChecksumMode::Complete
    }
}

/// Warnings about `in` interfaces that are not among the ports: such matches never hold.
fn unattached_ports(policy: &Policy, interfaces: &[Interface]) -> Vec<String> {
    let is_port = |name: &PortName| {
        interfaces.iter().any(|i| match name {
            PortName::Name(text) => *text == i.name,
            PortName::Index(index) => *index == i.ifindex,
        })
    };
    let mut missing: Vec<String> = Vec::new();
    for rule in &policy.rules {
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

/// The hook for an interface, by what was asked for and by the device.
fn choose_hook(interface: &Interface, options: Options) -> Result<Hook, LiveError> {
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

/// Loads one copy of the program. Maps that an earlier copy has are shared, the others are filled.
fn load(
    plan: &InstancePlan,
    hook: Hook,
    direction: Direction,
    constants: PortConstants,
    ports: &[Port],
    earlier: &[LoadedCopy],
) -> Result<LoadedProgram, KernelError> {
    let is_tc = !matches!(hook, Hook::Xdp(_));
    let name = if is_tc { TC_OBJECT } else { plan.object };
    let elf = weir_bpf::object(name).ok_or_else(|| KernelError::BadObject {
        why: format!("there is none named {name}"),
    })?;
    let mut object = KernelObject::open(elf)?;
    for (symbol, value) in plan.constants.iter().cloned().chain(constants.constants()) {
        object.set_rodata(symbol, &value)?;
    }
    if is_tc {
        let egress = u32::from(direction == Direction::Egress);
        object.set_rodata("weir_egress", &egress.to_ne_bytes())?;
        object.set_map_entries("ports", ports.len() as u32)?;
    }
    for map in &plan.maps {
        object.set_map_entries(map.name, map.max_entries)?;
    }
    let mut own = Vec::new();
    // Sections hold this copy's own constants.
    for map in object.maps().into_iter().filter(|m| !m.starts_with('.')) {
        match earlier
            .iter()
            .find(|copy| copy.program.map_sizes(&map).is_ok())
        {
            Some(copy) => object.reuse_map(&map, &copy.program)?,
            None => own.push(map),
        }
    }
    let program = object.load(plan.program)?;
    let planned = plan.maps.iter().filter(|map| !map.keys.is_empty());
    for map in planned.filter(|map| own.iter().any(|name| name == map.name)) {
        fill(&program, map)?;
    }
    if own.iter().any(|name| name == "ports") {
        for port in ports {
            program.update(
                "ports",
                &port.index.to_ne_bytes(),
                &port.number.to_ne_bytes(),
                0,
            )?;
        }
    }
    Ok(program)
}

fn fill(program: &LoadedProgram, map: &MapPlan) -> Result<(), KernelError> {
    program
        .update_batch(map.name, &map.keys, &map.values)
        .map(drop)
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

    #[test]
    fn a_cut_packet_is_described_with_its_length() {
        let mut frame = vec![0u8; 14];
        frame[12] = 0x08;
        frame.extend([
            0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([0, 9, 0, 7, 0, 108, 0, 0]);
        let mut sum: u32 = frame[14..34]
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        sum = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        assert_eq!(
            describe(&frame, 142),
            "IP 10.0.0.1.9 > 10.0.0.2.7: UDP, length 100"
        );
    }
}

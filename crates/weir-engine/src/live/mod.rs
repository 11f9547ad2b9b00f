//! One policy running on interfaces of the kernel: loading a copy of the program for each port, filling the shared maps,
//! attaching all copies or none, changing rules while packets flow, reading counters and events, taking everything off again.
//!
//! What is asked of interfaces is in `host`, copies and their sharing of maps in `copies`, changes of rules in `running` and `maps`.
//! Prints nothing: what the user should know comes back as notes and errors. Invariant: whatever [`Live::start`] changed
//! on the host (programs, offloads) is undone by [`Live::stop`] or by dropping; only a killed process leaves
//! programs, each complete with its maps, for `weir down`.

mod copies;
mod dynamic_sets;
mod flows;
mod host;
mod kept;
mod limits;
mod maps;
mod running;
mod takeover;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_bpf::abi::{self, Event};
use weir_functions::middlebox::dynamic::SetPlan;
use weir_functions::middlebox::{
    self, EditError, PlanError, RuleBook, Succession, Written, translations,
};
use weir_functions::plan::{ChecksumMode, Port, PortConstants};
use weir_functions::report::Report;
use weir_kernel::iface::{Feature, Interface};
use weir_kernel::{Direction, EventRing, KernelError, XdpMode};
use weir_policy::Parsed;
use weir_policy::model::Rule;
use zerocopy::FromBytes;

use crate::translated::{Entrance, dropped_by_stack};
use copies::{AttachPoint, Attachment, Keep, LoadedCopy, Packets, Sharing, load};
use host::choose_hook;
pub(crate) use host::{SwitchedOff, checksums_of, find_all, refuse_hidden_tags, unattached_ports};

pub use dynamic_sets::{Added, ElementsAdded, Listed, SetError, SetInfo, SetPage, SetTable, Stay};
pub use flows::{FlowTable, Page};
pub use limits::{LimitInUse, OpenConnections};
pub use maps::RuleMaps;
use running::Start;
pub use running::{Edited, Followed, OWNER, Running};
use takeover::Left;

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
    /// The rules cannot be changed like that.
    #[error("{0}")]
    Edit(#[from] EditError),
    /// A rule names VLANs, and weir was not started for that.
    #[error(
        "the rule names VLANs, and weir was started on XDP for rules that name none, so tags may be hidden: put the rule into the policy and restart `weir run`, or start it with --vlan-in-frame or on --hook tc"
    )]
    VlanLater,
    /// A rule may make fragments of whole packets, and weir was not started for that.
    #[error(
        "the rule sets fields that tell fragments from whole packets, and weir was started on XDP for rules that set none: put the rule into the policy and restart `weir run`, or start it with --hook tc"
    )]
    FragmentsLater,
    /// A killed run was on the interface by another hook.
    #[error(
        "a `weir run` that was killed left its program on {iface} at {had}, which is not among what this one attaches to: add {options} to take it over with its connections, or run `weir down -i {iface}`, which ends them"
    )]
    OtherHook {
        /// Interface.
        iface: String,
        /// Where the program is.
        had: String,
        /// Options that lead there.
        options: &'static str,
    },
    /// A killed run had more interfaces.
    #[error(
        "a `weir run` that was killed left its programs on {others}, too, and they share connections with those on {here}: add{add} to take over all of them, or run `weir down` for {others} first"
    )]
    MoreInterfaces {
        /// Interfaces of this run.
        here: String,
        /// The others.
        others: String,
        /// Options that name them.
        add: String,
    },
    /// Two killed runs.
    #[error(
        "two runs that were killed left programs on these interfaces, each with its own connections; one can be taken over: run `weir down -i {iface}` first"
    )]
    TwoRuns {
        /// An interface of the second one.
        iface: String,
    },
    /// The table of connections would have another size.
    #[error(
        "the policy asks for `connections {want}`, and the table that runs was made for {have}: connections cannot move to another one; keep `connections {have}`, or end them with --flush-connections"
    )]
    CapacityChanged {
        /// Of what runs.
        have: u32,
        /// Of the policy.
        want: u32,
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
    running: Arc<Mutex<Running>>,
    events: EventRing,
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
    /// Its name.
    pub name: Option<String>,
    /// Interface name.
    pub port: String,
    /// Text of the log target.
    pub prefix: String,
    /// `pass` or `drop`.
    pub verdict: &'static str,
    /// The packet in one line.
    pub packet: String,
}

impl Live {
    /// Plans the policy for these interfaces, loads everything, then attaches to all of them or to none.
    pub fn start(parsed: &Parsed, names: &[String], options: Options) -> Result<Live, LiveError> {
        let policy = &parsed.policy;
        let interfaces = find_all(names)?;
        let ports: Vec<Port> = (1u32..)
            .zip(&interfaces)
            .map(|(number, i)| Port {
                number,
                name: Some(i.name.clone()),
                index: i.ifindex,
            })
            .collect();
        let asked = with_marks(options, policy.rules.iter());
        let hooks = interfaces
            .iter()
            .map(|interface| choose_hook(interface, asked))
            .collect::<Result<Vec<Hook>, LiveError>>()?;
        let names_vlan = middlebox::names_vlan(&policy.rules);
        let sees_tags = options.vlan_in_frame || !names_vlan;
        let on_xdp = || {
            let both = interfaces.iter().zip(&hooks);
            both.filter(|(_, hook)| matches!(hook, Hook::Xdp(_)))
                .map(|(interface, _)| interface)
        };
        if !sees_tags {
            refuse_hidden_tags(on_xdp())?;
        }
        refuse_meta(policy.rules.iter(), &hooks)?;
        // A fragment that XDP made would be judged once more on tc.
        let fragments_wait = middlebox::connections::is_stateful(policy)
            && !middlebox::makes_fragments(&policy.rules);
        let mut attached = Vec::with_capacity(interfaces.len());
        let mut places = Vec::with_capacity(interfaces.len());
        for ((port, interface), &hook) in ports.iter().zip(&interfaces).zip(&hooks) {
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
            let place = |hook, direction, packets| AttachPoint {
                port: attached.len(),
                hook,
                direction,
                packets,
                constants,
            };
            // Behind generic XDP tc may see a packet without its Ethernet header (Linux 6.18: `skb_pp_cow_data()` loses `mac_len`).
            if fragments_wait && hook == Hook::Xdp(XdpMode::Native) {
                // In this order they are attached: what XDP leaves is judged from the first packet on.
                places.push(place(Hook::Tc, Direction::Ingress, Packets::Fragments));
                places.push(place(hook, Direction::Ingress, Packets::ButFragments));
            } else {
                let all = |&direction| place(hook, direction, Packets::All);
                places.extend(directions.iter().map(all));
            }
            attached.push(AttachedPort {
                interface: interface.clone(),
                hook,
                checksums,
                number: port.number,
            });
        }
        let mut notes = unattached_ports(policy.rules.iter(), &interfaces);
        notes.extend(one_direction(&policy.rules, &interfaces, options.egress));
        let blind_to_vlan = !options.vlan_in_frame && !names_vlan && on_xdp().next().is_some();
        // A policy that cannot be planned is refused for that, whoever asks.
        let claims = takeover::claim_all(&interfaces);
        let mut left = match &claims {
            Ok(_) => takeover::find(&interfaces, &places)?,
            Err(_) => None,
        };
        let mut start = begin(
            parsed,
            ports,
            places,
            options.egress,
            left.as_ref(),
            &mut notes,
        )?;
        start.claims = claims?;
        start.blind_to_vlan = blind_to_vlan;
        for (port, interface) in interfaces.iter().enumerate() {
            if let (Hook::Xdp(_), Some(prog_id)) = (hooks[port], interface.xdp_prog_id)
                && !left.as_ref().is_some_and(|left| left.is_on(port))
            {
                return Err(KernelError::AlreadyAttached {
                    iface: interface.name.clone(),
                    prog_id,
                }
                .into());
            }
        }
        if let Some(left) = &mut left
            && start.keep.stats
            && !start.keep.counters
        {
            left.carried_but = Some(start.fresh.iter().copied().collect());
        }
        let mut running = Running::load(start, left.as_ref())?;
        // Before anything is attached: where the stack cannot be told, what is translated would be lost.
        notes.extend(running.settle_host()?);
        // On the way out the stack is behind weir's programs.
        if !options.egress {
            let entrances: Vec<Entrance<'_>> = interfaces.iter().map(entrance).collect();
            notes.extend(dropped_by_stack(
                &translations::of(&policy.rules),
                &entrances,
            )?);
        }
        let mut live = Live {
            events: running.event_ring()?,
            running: Arc::new(Mutex::new(running)),
            notes,
            ports: attached,
        };
        // From here on an early return drops `live`, which undoes what was done.
        if !sees_tags {
            live.uncover_tags()?;
        }
        let mut running = lock(&live.running);
        let noted = running.attach(&mut live.ports, left)?;
        drop(running);
        live.notes.extend(noted);
        live.say_costs(&policy.rules);
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

    /// The part that changes while it runs, for other threads.
    pub fn running(&self) -> &Arc<Mutex<Running>> {
        &self.running
    }

    /// The same, locked.
    pub fn lock(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }

    /// The counters of all ports and CPUs. While traffic flows `received` is ahead of the verdicts by the packets that are
    /// being processed during the read.
    pub fn report(&self) -> Result<Report, LiveError> {
        lock(&self.running).report()
    }

    /// Waits up to `timeout` for log lines and returns all that are there. A signal ends the wait early.
    pub fn logs(&mut self, timeout: Duration) -> Result<Vec<LogLine>, LiveError> {
        let mut events = Vec::new();
        self.events.drain(timeout, |record| {
            if let Ok((event, _)) = Event::read_from_prefix(record) {
                events.push(event);
            }
        })?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let running = lock(&self.running);
        Ok(events
            .iter()
            .map(|event| self.line(event, &running))
            .collect())
    }

    /// The interfaces that no longer carry their program: the device went away, or somebody else detached it.
    pub fn lost(&self) -> Vec<&str> {
        let lost = lock(&self.running).lost();
        lost.iter()
            .filter_map(|port| self.ports.get(*port))
            .map(|port| port.interface.name.as_str())
            .collect()
    }

    /// Keeps the time that rules test that of the host. Steps of its clock need none of this, only a new distance between UTC and TAI.
    ///
    /// # Errors
    /// The kernel does not say, or a map cannot be written.
    pub fn follow_clock(&self) -> Result<(), LiveError> {
        Ok(lock(&self.running).follow_clock()?)
    }

    /// Detaches, restores offloads, and reads the counters once no packet is on its way through the programs.
    pub fn stop(self) -> Result<Report, LiveError> {
        lock(&self.running).detach()?;
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

    /// Switches off what would take VLAN tags out of frames before XDP sees them.
    fn uncover_tags(&mut self) -> Result<(), LiveError> {
        let mut running = lock(&self.running);
        for port in self.ports.iter().filter(|p| p.is_xdp()) {
            let name = &port.interface.name;
            if let Some(off) = SwitchedOff::new(name, Feature::RxVlan)? {
                running.keep_off(off);
                self.notes.push(format!(
                    "{name}: rx-vlan-offload is off while weir runs, so that VLAN tags stay in the frame; it is restored at the end"
                ));
            }
        }
        Ok(())
    }

    fn say_costs(&mut self, rules: &[Rule]) {
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
        if !offloaded.is_empty() && middlebox::rewrites(rules) {
            notes.push(format!(
                "{offloaded}: local senders leave checksums unfinished here. weir tells by the checksum itself, so of packets that are \
                 complete one in 65,536 is taken for unfinished and leaves with a wrong checksum. Cure: --hook tc, or \
                 `ethtool -K PEER tx off` at the other end and --checksums complete here"
            ));
        }
        self.notes.extend(notes);
    }

    fn line(&self, event: &Event, running: &Running) -> LogLine {
        let rule = running.book().entry(event.rule);
        let name = self.ports.iter().find(|p| p.number == event.port);
        let text = event.prefix.split(|b| *b == 0).next().unwrap_or_default();
        let data = event.data.get(..event.snap as usize).unwrap_or(&event.data);
        LogLine {
            now_ns: event.now_ns,
            rule: event.rule,
            name: rule.and_then(|entry| entry.rule.name.clone()),
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

/// What is to run, going on with what was left as far as that goes. Says what does not.
fn begin(
    parsed: &Parsed,
    ports: Vec<Port>,
    places: Vec<AttachPoint>,
    egress: bool,
    left: Option<&Left>,
    notes: &mut Vec<String>,
) -> Result<Start, LiveError> {
    let connections = &parsed.policy.connections;
    let rules = written(parsed);
    let none = |book, plan| Start {
        book,
        plan,
        fresh: Vec::new(),
        keep: Keep::default(),
        seed: random(),
        ports: ports.clone(),
        places: places.clone(),
        blind_to_vlan: false,
        claims: Vec::new(),
    };
    let kept = match left.map(|left| &left.kept) {
        Some(Ok(kept)) => kept,
        other => {
            if let Some(Err(why)) = other {
                notes.push(format!(
                    "a `weir run` that was killed left its programs here; they are replaced, and connections and counters start from zero: {why}"
                ));
            }
            let (book, plan) = RuleBook::new(rules, connections, &ports, egress)?;
            return Ok(none(book, plan));
        }
    };
    let past = &kept.past;
    let keep_connections = !past.is_stateful() || past.capacity == connections.capacity;
    let Succession {
        rebuild,
        kept: same,
        removed,
        added,
        ..
    } = RuleBook::following(past, rules, connections, &ports, egress, keep_connections)?;
    notes.push(format!(
        "taking over from a killed `weir run`: {same} rules kept, {added} added, {removed} removed"
    ));
    if !keep_connections {
        notes.push(format!(
            "connections are lost: the policy asks for `connections {}`, and the table that was left is for {}",
            connections.capacity, past.capacity
        ));
    }
    let (fresh, grew, plan) = (
        rebuild.fresh.clone(),
        rebuild.counters_grew,
        rebuild.plan.clone(),
    );
    Ok(Start {
        fresh,
        keep: Keep {
            stats: true,
            counters: !grew,
            connections: keep_connections,
            counts: rebuild.counts_lie_as_past(past),
            sets: rebuild
                .sets()
                .lies_as(&SetPlan::of_former(&past.sets, |_| true)),
            process: false,
        },
        seed: kept.seed,
        ..none(rebuild.into_book(), plan)
    })
}

/// Options under which a policy that names mark or priority gets tc, unless something else asks for a hook.
fn with_marks<'a>(options: Options, rules: impl Iterator<Item = &'a Rule>) -> Options {
    let asks_for_xdp = options.checksums.is_some() || options.vlan_in_frame;
    let is_free = options.hook.is_none() && !asks_for_xdp;
    Options {
        hook: match is_free && middlebox::names_meta(rules).is_some() {
            true => Some(Hook::Tc),
            false => options.hook,
        },
        ..options
    }
}

/// Refuses rules that name mark or priority if a hook is in front of them.
fn refuse_meta<'a>(rules: impl Iterator<Item = &'a Rule>, hooks: &[Hook]) -> Result<(), PlanError> {
    match hooks.iter().find(|hook| matches!(hook, Hook::Xdp(_))) {
        Some(hook) => middlebox::refuse_meta(rules, || hook.to_string()),
        None => Ok(()),
    }
}

/// A number that nobody can guess.
fn random() -> u64 {
    // The standard library's hashers are keyed by the system's randomness.
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64)
}

/// The rules of a policy with their text.
pub fn written(parsed: &Parsed) -> Vec<Written> {
    let rules = parsed.policy.rules.iter().cloned();
    rules
        .zip(parsed.texts())
        .map(|(rule, text)| Written { rule, text })
        .collect()
}

/// A panic elsewhere does not keep the programs from being taken off.
pub(crate) fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Connections of which weir sees one direction only.
fn one_direction(rules: &[Rule], interfaces: &[Interface], egress: bool) -> Option<String> {
    let [only] = interfaces else {
        return None;
    };
    let line = rules.iter().find(|rule| rule.stateful)?.line_text();
    (!egress).then(|| {
        format!(
            "{line}: connections are tracked in both directions, but packets that leave by {0} or come in by other interfaces do not pass weir: add --egress, or -i for the interface where answers come in",
            only.name
        )
    })
}

fn entrance(interface: &Interface) -> Entrance<'_> {
    let name = interface.name.as_str();
    Entrance {
        names: [name; 2],
        device: name,
        ifindex: interface.ifindex,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

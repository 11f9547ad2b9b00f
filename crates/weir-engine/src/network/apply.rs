//! Making the networks of an edge what a plan says: the other half is written, new devices are attached, and one word switches.
//!
//! Invariants: until the word is stored packets find nothing that is new; after it, nothing that is old. What a killed process left is told
//! from what holds by the state that the word names, and removed by whoever comes next.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use foldhash::{HashMap, HashSet};
use serde::{Deserialize, Serialize};
use weir_functions::balancer;
use weir_graph::Digest;
use weir_kernel::links;
use weir_kernel::pinned::{self, Folder};
use weir_kernel::{Direction, Filter, KernelError, Map, grace_period, iface, netlink, netns};
use weir_network::values::Kind;
use weir_network::{EdgeNetworks, Host as _, NO_NUMBERS, Numbers, Tables};

use super::attach;
use super::error::NetworkError;
use super::layout::{self, Capacity};
use super::private;
use super::set::Set;
use super::state::{self, DeviceState, LAYOUT, State, Taking};
use crate::edge::state::InstanceState;
use crate::edge::{self, BalancerCounts};

/// Where the networks of edges are pinned.
pub(super) const FOLDER: &str = "/sys/fs/bpf/weir/net";

/// What a device is to the networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A workload's: its packets enter the network that it belongs to.
    Workload,
    /// Of the underlay: packets of tunnels come in by it.
    Underlay,
    /// The VXLAN device of the kernel's that weir made: what it took out of tunnels comes in by it.
    FromKernel,
}

impl Role {
    /// Name of the program that such a device runs.
    pub(super) fn program(self) -> &'static str {
        match self {
            Role::Workload => "workload",
            Role::Underlay => "underlay",
            Role::FromKernel => "from_kernel",
        }
    }
}

/// Devices of the namespace, as far as a plan names them.
#[derive(Debug)]
pub(super) struct Host {
    devices: HashMap<String, weir_network::Device>,
    /// Index of the VXLAN device of the kernel's.
    tunnel: Option<u32>,
}

/// So many devices are asked for one by one; more by a list of all that there are.
const SINGLE: usize = 64;

impl Host {
    /// Looks at devices by their names, but for those that are `known` to be what they were.
    ///
    /// # Errors
    /// What the kernel refused.
    fn look<'a>(
        names: impl Iterator<Item = &'a str>,
        known: &HashMap<&str, &DeviceState>,
    ) -> Result<Host, NetworkError> {
        let mut devices = HashMap::default();
        let mut new = Vec::new();
        for name in names {
            match known.get(name) {
                Some(known) => {
                    let (index, peer) = (known.ifindex, known.elsewhere);
                    devices.insert(name.to_owned(), weir_network::Device { index, peer });
                }
                None => new.push(name),
            }
        }
        let found = match new.len() > SINGLE {
            true => links::all()?,
            false => {
                let found: Result<Vec<_>, _> = new.iter().map(|name| links::named(name)).collect();
                found?.into_iter().flatten().collect()
            }
        };
        for device in found {
            let facts = weir_network::Device {
                index: device.ifindex,
                peer: device.is_veth_to_elsewhere,
            };
            devices.entry(device.name).or_insert(facts);
        }
        Ok(Host {
            devices,
            tunnel: None,
        })
    }
}

impl Host {
    /// Names of devices of workloads that do not exist.
    fn missing(&self, plan: &EdgeNetworks) -> Vec<String> {
        let names = plan.devices.iter().map(|one| &one.device);
        names
            .filter(|name| !self.devices.contains_key(*name))
            .cloned()
            .collect()
    }
}

impl weir_network::Host for Host {
    fn device(&self, name: &str) -> Option<weir_network::Device> {
        self.devices.get(name).copied()
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        self.tunnel
    }
}

/// What an apply did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Applied {
    /// The generation that packets follow now.
    pub generation: u64,
    /// Names of devices.
    pub attached: Vec<String>,
    /// Names of devices.
    pub detached: Vec<String>,
    /// Names of devices of workloads that do not exist yet ([`Networks::wait_for_devices`]).
    pub waiting: Vec<String>,
    /// Functions whose programs were loaded, as `network/function`.
    pub loaded: Vec<String>,
    /// Whether maps and programs were made anew: at first, and to grow.
    pub remade: bool,
    /// Bytes of the maps.
    pub memory: u64,
}

/// Steps of an apply, for tests that stop it before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Maps and programs are made anew, if they must be.
    Make,
    /// The other half is written.
    Write,
    /// New devices are attached.
    Attach,
    /// The state of the new generation is pinned.
    Remember,
    /// The word is stored.
    Switch,
    /// Devices that ran programs of another set get the new ones.
    Replace,
    /// What only the old generation had is removed.
    Clean,
    /// All is done.
    Done,
}

impl Step {
    /// In order.
    pub const ALL: [Step; 8] = [
        Step::Make,
        Step::Write,
        Step::Attach,
        Step::Remember,
        Step::Switch,
        Step::Replace,
        Step::Clean,
        Step::Done,
    ];
}

/// Is told each step before it begins, and may end the apply there.
pub type Watcher<'w> = &'w mut dyn FnMut(Step) -> Result<(), NetworkError>;

/// The networks of an edge, held for changes: no other process changes them meanwhile.
#[derive(Debug)]
pub struct Networks {
    pub(super) edge: String,
    pub(super) folder: Folder,
    pub(super) running: Option<Running>,
    /// Workloads whose devices do not exist are attached later.
    waits: bool,
    /// Asks whether the running generation's devices are what they were while its successor is planned: of thousands it takes as long.
    asked: Option<JoinHandle<Same>>,
}

/// Of devices in the order of the state's: whether name and index still belong together.
type Same = Result<Vec<bool>, KernelError>;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) state: Arc<State>,
    pub(super) set: Set,
}

impl Running {
    /// Begins to ask for its devices.
    fn ask(&self) -> JoinHandle<Same> {
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            let devices = state.devices.iter();
            iface::still_named(devices.map(|device| (device.ifindex, device.name.as_str())))
        })
    }
}

impl Networks {
    /// Opens those of an edge, ends that they are watched, and removes what a killed process left. Nothing may run yet.
    ///
    /// # Errors
    /// Another process holds them, they run in another namespace, or the kernel refused.
    pub fn open(edge: &str) -> Result<Networks, NetworkError> {
        let path = folder_of(edge)?;
        let folder = Folder::lock(&path)?.ok_or_else(|| NetworkError::Busy {
            edge: edge.to_owned(),
        })?;
        let running = find(&path)?;
        if let Some(running) = &running {
            here(edge, &running.state)?;
        }
        let mut networks = Networks {
            edge: edge.to_owned(),
            folder,
            running,
            waits: false,
            asked: None,
        };
        networks.unwatch()?;
        networks.clean(None)?;
        networks.asked = networks.running.as_ref().map(Running::ask);
        Ok(networks)
    }

    /// The numbers that the plan of the running generation gave out, for the next one.
    #[must_use]
    pub fn numbers(&self) -> &Numbers {
        let running = self.running.as_ref();
        running.map_or(&NO_NUMBERS, |r| &r.state.numbers)
    }

    /// Version of the document of the running generation; 0: nothing runs.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.running.as_ref().map_or(0, |r| r.state.version)
    }

    /// The generation that packets follow; 0: nothing runs.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.running.as_ref().map_or(0, |r| r.state.generation)
    }

    /// The document of the running generation; `None`: nothing runs.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self) -> Result<Option<String>, NetworkError> {
        let generation = self.generation();
        if generation == 0 {
            return Ok(None);
        }
        let text = state::read_document(self.folder.path(), generation);
        text.map(Some)
            .map_err(|why| NetworkError::OtherVersion { why })
    }

    /// What a map of a function with a program of its own holds, all elements one behind the other; `None` if it does not run, or has no
    /// such array. For what a new plan must agree with; `function`: as of [`weir_network::instance_name`].
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn held(&self, function: &str, map: &str) -> Result<Option<Vec<u8>>, NetworkError> {
        let running = self.running.as_ref();
        running.map_or(Ok(None), |r| held(&r.state.functions, function, map))
    }

    /// The maps and programs that run.
    #[must_use]
    pub fn set(&self) -> Option<&Set> {
        self.running.as_ref().map(|r| &r.set)
    }

    /// From now on a workload whose device does not exist is left out, not a mistake. [`Look::device_changes`] tells when it exists, and applying the same
    /// plan then attaches it.
    pub fn wait_for_devices(&mut self) {
        self.waits = true;
    }

    /// Makes them what is planned; `text` is the document that the plan comes from.
    ///
    /// # Errors
    /// What ran before runs on, unchanged.
    pub fn apply(&mut self, plan: &EdgeNetworks, text: &str) -> Result<Applied, NetworkError> {
        self.apply_watched(plan, text, &mut |_| Ok(()))
    }

    /// The same, telling each step.
    ///
    /// # Errors
    /// What ran before runs on, unless the word was stored; what the watcher returned.
    pub fn apply_watched(
        &mut self,
        plan: &EdgeNetworks,
        text: &str,
        watch: Watcher<'_>,
    ) -> Result<Applied, NetworkError> {
        let outcome = self.change(plan, text, watch);
        if outcome.is_err() {
            // What is told is why it failed; what could not be removed now is removed by who opens it next.
            let _ = self.clean(None);
        }
        outcome
    }

    fn change(
        &mut self,
        plan: &EdgeNetworks,
        text: &str,
        watch: Watcher<'_>,
    ) -> Result<Applied, NetworkError> {
        // Packets of the generation before the one that runs may still read the half that will be written.
        let grace = std::thread::spawn(grace_period);
        let asked = match self.asked.take() {
            Some(asked) => Some(asked),
            None => self.running.as_ref().map(Running::ask),
        };
        let same = asked.map_or(Ok(Ok(Vec::new())), JoinHandle::join);
        let same = same.map_err(|_| thread_ended())??;
        // A name that means another device by now is that of a new one.
        let known: HashMap<&str, &DeviceState> = self
            .running
            .iter()
            .flat_map(|running| &running.state.devices)
            .zip(same)
            .filter(|(_, same)| *same)
            .map(|(device, _)| (device.name.as_str(), device))
            .collect();
        let underlay = plan.underlay.device.iter();
        let names = plan.devices.iter().map(|one| &one.device).chain(underlay);
        let mut host = Host::look(names.map(String::as_str), &known)?;
        host.tunnel = self.kernel_tunnel(plan)?;
        let waiting = match self.waits {
            true => host.missing(plan),
            false => Vec::new(),
        };
        let rest = (!waiting.is_empty()).then(|| plan.without_devices(&waiting));
        let plan = rest.as_ref().unwrap_or(plan);
        let buckets = self.set().map_or(0, |set| set.capacity().buckets);
        let mut half = plan.tables(&host, buckets)?;
        let devices = self.devices(plan, &host)?;
        let generation = self.running.as_ref().map_or(0, |r| r.state.generation) + 1;
        watch(Step::Make)?;
        let (number, made) = self.fitting(&half, plan.learned)?;
        let (set, functions) = match (&made, &self.running) {
            (Some(set), running) => {
                // A larger table has its keys elsewhere.
                half = plan.tables(&host, set.capacity().buckets)?;
                // Connections and counters go on in larger maps of the same weir. What another one left is not looked into.
                let same = running.as_ref().filter(|r| r.state.digest == digest());
                let before = same.map_or(&[][..], |r| &r.state.functions);
                (set, private::make(plan, set, before, true)?)
            }
            (None, Some(running)) => {
                let set = &running.set;
                let before = &running.state.functions;
                (set, private::make(plan, set, before, false)?)
            }
            (None, None) => return Err(NetworkError::TooSmall),
        };
        private::place(&mut half, plan, &functions.states);
        watch(Step::Write)?;
        grace.join().map_err(|_| thread_ended())??;
        set.write(generation, &half)?;
        watch(Step::Attach)?;
        let (kept, mut new): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(|(_, is_new)| !is_new);
        let tcx = attach::by_tcx(new.len(), kept.len() + new.len());
        for (device, _) in &mut new {
            device.tcx = tcx;
        }
        let taking = Taking {
            devices: new.iter().map(|(device, _)| device.clone()).collect(),
        };
        state::write(&self.folder, &state::taking_pin(generation), &taking)?;
        for (device, _) in &mut new {
            attach::put(&self.folder, device, set.program(device.role.program())?)?;
        }
        let attached = new.iter().map(|(device, _)| device.name.clone()).collect();
        watch(Step::Remember)?;
        let staying = kept.len();
        let all = kept.into_iter().chain(new);
        let all: Vec<DeviceState> = all.map(|(device, _)| device).collect();
        let state = Arc::new(State {
            layout: LAYOUT,
            netns: netns::current_inode()?,
            generation,
            set: number,
            pair: set.pair(),
            capacity: set.capacity(),
            digest: digest().to_owned(),
            devices: all,
            waiting: waiting.clone(),
            functions: functions.states,
            version: plan.version,
            numbers: Arc::clone(&plan.numbers),
        });
        state::write_document(&self.folder, generation, text)?;
        state::write(&self.folder, &state::state_pin(generation), &*state)?;
        if let (None, Some(running)) = (&made, &self.running) {
            // Left by an apply that was killed behind its switch: what is gone since may get its VID back now.
            let known = running.state.numbers.interfaces.names.iter();
            set.keep_flows(|| known.map(|(_, vid)| *vid).collect())?;
        }
        watch(Step::Switch)?;
        set.switch(generation)?;
        watch(Step::Replace)?;
        if let Some(set) = &made {
            for device in &state.devices[..staying] {
                attach::replace(&self.folder, device, set.program(device.role.program())?)?;
            }
        }
        let memory = state.capacity.bytes(cpus());
        let before = self.running.take();
        let gone = before.as_ref().map_or_else(Vec::new, |before| {
            let held: HashSet<(u32, Role)> = attachments(&state).collect();
            let gone = before.state.devices.iter();
            gone.filter(|was| !held.contains(&attachment(was)))
                .map(|was| was.name.clone())
                .collect()
        });
        let remade = made.is_some();
        let (past, set) = match before {
            Some(before) => (Some(before.state), Some(before.set)),
            None => (None, None),
        };
        let set = made.or(set);
        self.running = set.map(|set| Running { state, set });
        watch(Step::Clean)?;
        self.clean(past.as_deref())?;
        let (tunnel, mtu) = (tunnel_name(&self.edge), tunnel_mtu(plan));
        if host.tunnel.is_some() && iface::find(&tunnel)?.mtu != mtu {
            netlink::set_mtu(&tunnel, mtu)?;
        }
        if let Some(running) = &self.running {
            let functions = plan.punt_functions.iter();
            running
                .set
                .keep_flows(|| functions.flat_map(|one| one.sides).collect())?;
        }
        watch(Step::Done)?;
        Ok(Applied {
            generation,
            attached,
            detached: gone,
            waiting,
            loaded: functions.loaded,
            remade,
            memory,
        })
    }

    /// The devices that are wanted, as they would stand in the state, and whether each is to be attached.
    fn devices(
        &self,
        plan: &EdgeNetworks,
        host: &Host,
    ) -> Result<Vec<(DeviceState, bool)>, NetworkError> {
        let running: HashMap<(Role, u32), &DeviceState> = self
            .running
            .iter()
            .flat_map(|running| &running.state.devices)
            .map(|device| ((device.role, device.ifindex), device))
            .collect();
        let workloads = plan.devices.iter().map(|one| (&one.device, Role::Workload));
        let underlay = plan.underlay.device.iter();
        // Without another edge nothing comes in by tunnels.
        let reached = plan.remotes.iter().any(|remote| remote.family != 0);
        let underlay = underlay
            .filter(|_| reached)
            .map(|name| (name, Role::Underlay));
        let tunnel = tunnel_name(&self.edge);
        let by_kernel = host.tunnel.map(|_| (&tunnel, Role::FromKernel));
        let wanted: Vec<(&String, Role)> = workloads.chain(underlay).chain(by_kernel).collect();
        let ask_all = self.ask_all(wanted.len())?;
        let mut devices = Vec::with_capacity(wanted.len());
        for (name, role) in &wanted {
            let device = match host.device(name) {
                Some(device) => device,
                // Tells names that are near.
                None => weir_network::Device {
                    index: iface::index_of(name)?,
                    peer: false,
                },
            };
            let ifindex = device.index;
            let before = running.get(&(*role, ifindex)).copied();
            let there = match before {
                // A filter or link may have been taken off by hand. Asking for each of thousands takes longer than all the rest.
                Some(before) => !ask_all || attach::is_there(&self.folder, before)?,
                None => false,
            };
            devices.push((
                match before.filter(|_| there) {
                    Some(before) => DeviceState {
                        name: (*name).clone(),
                        ..before.clone()
                    },
                    None => DeviceState {
                        name: (*name).clone(),
                        ifindex,
                        role: *role,
                        elsewhere: device.peer,
                        tcx: true,
                        made_qdisc: false,
                    },
                },
                !there,
            ));
        }
        Ok(devices)
    }

    /// Index of the VXLAN device of the kernel's where the plan needs one, which is made if it is not there.
    fn kernel_tunnel(&self, plan: &EdgeNetworks) -> Result<Option<u32>, NetworkError> {
        let reached = plan.remotes.iter().any(|remote| remote.family != 0);
        if !reached || !plan.underlay.kinds.contains(&Kind::KernelVxlan) {
            return Ok(None);
        }
        let name = tunnel_name(&self.edge);
        let mtu = tunnel_mtu(plan);
        if let Some(index) = iface::find_index(&name) {
            // Before the switch nothing may become too large for it that fits today.
            if iface::find(&name)?.mtu < mtu {
                netlink::set_mtu(&name, mtu)?;
            }
            return Ok(Some(index));
        }
        netlink::create_vxlan(&name, Kind::KernelVxlan.port(), mtu)?;
        Ok(iface::find_index(&name))
    }

    /// Whether every device is asked if it still runs its program. Of very many only some are, and all if one of those does not: numbers of
    /// namespaces and devices come again after a namespace is gone.
    fn ask_all(&self, wanted: usize) -> Result<bool, NetworkError> {
        if wanted <= ASKED {
            return Ok(true);
        }
        for device in self
            .running
            .iter()
            .flat_map(|r| &r.state.devices)
            .take(SAMPLE)
        {
            if !attach::is_there(&self.folder, device)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A set that holds the half: the running one (`None`), or a new one, pinned under its number.
    fn fitting(&self, half: &Tables, learned: u32) -> Result<(u64, Option<Set>), NetworkError> {
        let needs = Capacity::of(half, learned);
        if let Some(running) = &self.running
            && running.state.digest == digest()
            && running.set.capacity().holds(&needs)
        {
            return Ok((running.state.set, None));
        }
        let number = self.running.as_ref().map_or(0, |r| r.state.set) + 1;
        // Each set has a pair of its own: what goes around in the old one's must come back to the old one's maps.
        let pair = pair_name(&self.edge, number);
        netlink::create_veth(&pair, &far_end(&pair), PAIR_MTU)?;
        let index = iface::index_of(&pair)?;
        let set = Set::make(needs.with_room(), index)?;
        set.pin(self.folder.path(), &set_prefix(number))?;
        let resume = set.program("resume")?;
        Filter::attach(resume, index, Direction::Ingress, false)?.keep();
        Ok((number, Some(set)))
    }

    /// Removes everything that the valid state does not name. `before`: the state that held until now, so that it need not be read again.
    fn clean(&self, before: Option<&State>) -> Result<(), NetworkError> {
        let valid = self.running.as_ref();
        let names = self.folder.names()?;
        let held: HashSet<(u32, Role)> = valid.iter().flat_map(|v| attachments(&v.state)).collect();
        let mut stale: Vec<DeviceState> = Vec::new();
        for name in &names {
            let path = self.folder.path().join(name);
            let devices = if let Some(generation) = state::generation_of(name, "state-") {
                if valid.is_some_and(|v| v.state.generation == generation) {
                    continue;
                }
                if let Some(before) = before.filter(|b| b.generation == generation) {
                    let gone = before.devices.iter();
                    stale.extend(gone.filter(|was| !held.contains(&attachment(was))).cloned());
                    continue;
                }
                Map::open(&path)?.and_then(|map| state::read::<State>(&map).ok().map(|s| s.devices))
            } else if state::generation_of(name, "taking-").is_some() {
                Map::open(&path)?
                    .and_then(|map| state::read::<Taking>(&map).ok().map(|t| t.devices))
            } else {
                continue;
            };
            stale.extend(devices.unwrap_or_default());
        }
        for device in &stale {
            if !held.contains(&attachment(device)) {
                attach::remove(&self.folder, device)?;
            }
        }
        let prefix = valid.map(|valid| set_prefix(valid.state.set));
        let of_set = |name: &str| {
            prefix
                .as_ref()
                .is_some_and(|prefix| name.starts_with(prefix))
        };
        let another = names.iter().any(|name| is_of_a_set(name) && !of_set(name));
        if let Some(valid) = valid.filter(|_| another) {
            // Devices that a killed process did not get round to give the new set's programs.
            for device in &valid.state.devices {
                if attach::is_there(&self.folder, device)? {
                    attach::replace(
                        &self.folder,
                        device,
                        valid.set.program(device.role.program())?,
                    )?;
                }
            }
        }
        let mut keep: HashSet<String> = HashSet::default();
        if let Some(valid) = valid {
            keep.insert(state::state_pin(valid.state.generation));
            keep.insert(state::text_pin(valid.state.generation));
            let links = valid.state.devices.iter().filter(|device| device.tcx);
            keep.extend(links.map(attach::pin_name));
        }
        for name in &names {
            if !of_set(name) && !keep.contains(name) {
                self.folder.unlink(name)?;
            }
        }
        let is_used = |valid: &Running| {
            let mut devices = valid.state.devices.iter();
            devices.any(|device| device.role == Role::FromKernel)
        };
        if !valid.is_some_and(is_used) {
            netlink::remove(&tunnel_name(&self.edge))?;
        }
        // Of the set before, and of one that was not reached.
        let now = valid.map_or(0, |valid| valid.state.set);
        for number in [now.saturating_sub(1), now, now + 1] {
            if valid.is_none() || number != now {
                netlink::remove(&pair_name(&self.edge, number))?;
            }
        }
        Ok(())
    }

    /// Takes all networks of the edge off their devices and removes everything.
    ///
    /// # Errors
    /// What the kernel refused; calling it again goes on.
    pub fn remove(mut self) -> Result<(), NetworkError> {
        if let Some(running) = self.running.take() {
            for device in &running.state.devices {
                attach::remove(&self.folder, device)?;
            }
        }
        self.clean(None)?;
        Ok(self.folder.remove()?)
    }
}

/// So many devices are asked whether they still run their program; of more, only those are attached anew that are other devices now.
const ASKED: usize = 512;

/// ... and so many of more.
const SAMPLE: usize = 8;

/// What tells one attachment from another: device and program.
fn attachment(device: &DeviceState) -> (u32, Role) {
    (device.ifindex, device.role)
}

fn attachments(state: &State) -> impl Iterator<Item = (u32, Role)> {
    state.devices.iter().map(attachment)
}

/// Frames of any workload fit.
const PAIR_MTU: u32 = 65_535;

/// Name of the near end of the pair of a set: devices need short ones.
fn pair_name(edge: &str, set: u64) -> String {
    let digest = Digest::new().text(edge).number(set).finish();
    format!("wn{}n", &digest[digest.len() - 7..])
}

/// Name of the edge's VXLAN device of the kernel's.
fn tunnel_name(edge: &str) -> String {
    let digest = Digest::new().text(edge).finish();
    format!("wx{}", &digest[digest.len() - 7..])
}

/// What fits into its packets on the underlay.
fn tunnel_mtu(plan: &EdgeNetworks) -> u32 {
    let is_v6 = plan.underlay.addresses.iter().any(IpAddr::is_ipv6);
    let room = Kind::KernelVxlan.overhead(is_v6);
    plan.underlay.mtu.saturating_sub(room).into()
}

pub(super) fn set_prefix(number: u64) -> String {
    format!("s{number}-")
}

/// Whether a pin is a map or program of some set.
fn is_of_a_set(name: &str) -> bool {
    let number = name.strip_prefix('s').and_then(|rest| rest.split_once('-'));
    number.is_some_and(|(number, _)| number.parse::<u64>().is_ok())
}

/// Of all programs that a set has, as this weir was built with them.
pub(super) fn digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(digest_of_objects);
    &DIGEST
}

fn digest_of_objects() -> String {
    let mut digest = Digest::new();
    let shared = layout::SHARED.iter().map(|(name, _)| *name);
    for name in shared.chain(layout::ON_DEVICES.iter().copied()) {
        digest.bytes(weir_bpf::object(&format!("net_{name}")).unwrap_or_default());
    }
    digest.finish()
}

fn thread_ended() -> NetworkError {
    NetworkError::Incomplete {
        what: "what a thread was to find out".to_owned(),
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn folder_of(edge: &str) -> Result<PathBuf, NetworkError> {
    let fine = !edge.is_empty()
        && edge.len() <= 32
        && edge
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match fine {
        true => Ok(Path::new(FOLDER).join(edge)),
        false => Err(NetworkError::Name {
            edge: edge.to_owned(),
        }),
    }
}

fn here(edge: &str, state: &State) -> Result<(), NetworkError> {
    match state.netns == netns::current_inode()? {
        true => Ok(()),
        false => Err(NetworkError::OtherNamespace {
            edge: edge.to_owned(),
            there: state.netns,
        }),
    }
}

/// What runs: the latest state whose generation its set's word has.
///
/// Takes no lock. A change that happens meanwhile may remove a state between the moments when its name and its word are read, so that none
/// or half of one is found. Such an answer holds only if a second reading finds the same pins and words.
fn find(path: &Path) -> Result<Option<Running>, NetworkError> {
    let mut before = None;
    loop {
        let mut seen = Seen {
            names: pinned::names(path)?,
            words: Vec::new(),
        };
        let found = find_among(path, &mut seen);
        if matches!(&found, Ok(Some(running)) if running.set.is_whole())
            || before.as_ref() == Some(&seen)
        {
            return found;
        }
        before = Some(seen);
    }
}

/// What a reading of an edge's folder saw: names of pins, and the words of the sets that it opened.
#[derive(PartialEq, Eq)]
struct Seen {
    names: Vec<String>,
    words: Vec<u64>,
}

fn find_among(path: &Path, seen: &mut Seen) -> Result<Option<Running>, NetworkError> {
    let names = seen.names.iter();
    let mut generations: Vec<u64> = names
        .filter_map(|name| state::generation_of(name, "state-"))
        .collect();
    generations.sort_unstable();
    for generation in generations.into_iter().rev() {
        let Some(map) = Map::open(&path.join(state::state_pin(generation)))? else {
            continue;
        };
        let state: State = state::read(&map).map_err(|why| NetworkError::OtherVersion { why })?;
        if state.layout != LAYOUT {
            return Err(NetworkError::OtherVersion {
                why: format!("its layout is {}, this weir writes {LAYOUT}", state.layout),
            });
        }
        let pair = state.pair;
        let Some(set) = Set::open(path, &set_prefix(state.set), state.capacity, pair)? else {
            continue;
        };
        let word = set.generation()?;
        seen.words.push(word);
        if word == generation {
            let state = Arc::new(state);
            return Ok(Some(Running { state, set }));
        }
    }
    Ok(None)
}

/// How the devices of an edge's workloads differ from those that its generation was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChanges {
    /// Names that no device has any more, or not yet.
    pub missing: Vec<String>,
    /// Names that are to be attached: those of devices that were missing, and of other devices than before.
    pub new: Vec<String>,
}

/// What runs of an edge's networks, without holding it: the set, the document, the numbers, and names of devices.
///
/// # Errors
/// Its state cannot be read.
pub fn look(edge: &str) -> Result<Option<Look>, NetworkError> {
    let folder = folder_of(edge)?;
    let mut running = find(&folder)?;
    loop {
        let Some(found) = running else {
            return Ok(None);
        };
        let generation = found.state.generation;
        match state::read_document(&folder, generation) {
            Ok(text) => {
                let devices = found.state.devices.iter();
                return Ok(Some(Look {
                    generation,
                    capacity: found.state.capacity,
                    text,
                    numbers: Arc::clone(&found.state.numbers),
                    devices: devices.map(|device| device.name.clone()).collect(),
                    set: found.set,
                    state: found.state,
                }));
            }
            // The document of a generation that has ended goes with it.
            Err(why) => {
                running = find(&folder)?;
                let now = running.as_ref().map(|now| now.state.generation);
                if now == Some(generation) {
                    return Err(NetworkError::OtherVersion { why });
                }
            }
        }
    }
}

/// The latest generation that an edge's folder knows of, which may not be followed yet; `None`: nothing runs.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn latest(edge: &str) -> Result<Option<u64>, NetworkError> {
    let names = pinned::names(&folder_of(edge)?)?;
    let generations = names.iter();
    Ok(generations
        .filter_map(|name| state::generation_of(name, "state-"))
        .max())
}

/// The far end of the pair that packets go around by, where helpers send. Its name differs in the last letter.
pub(super) fn far_end(near: &str) -> String {
    format!(
        "{}f",
        near.get(..near.len().saturating_sub(1)).unwrap_or("")
    )
}

fn held(
    functions: &[InstanceState],
    function: &str,
    map: &str,
) -> Result<Option<Vec<u8>>, NetworkError> {
    let found = functions.iter().find(|one| one.name == function);
    match found.and_then(|one| one.maps.get(map)) {
        Some(state) => Ok(edge::elements(state.id, map)?),
        None => Ok(None),
    }
}

/// The networks of an edge as they run.
#[derive(Debug)]
pub struct Look {
    /// The generation that packets follow.
    pub generation: u64,
    /// How large its maps are.
    pub capacity: Capacity,
    /// The document.
    pub text: String,
    /// The planner's numbers.
    pub numbers: Arc<Numbers>,
    /// Devices by name.
    pub devices: Vec<String>,
    /// Maps and programs.
    pub set: Set,
    state: Arc<State>,
}

impl Look {
    /// As [`Networks::held`].
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn held(&self, function: &str, map: &str) -> Result<Option<Vec<u8>>, NetworkError> {
        held(&self.state.functions, function, map)
    }

    /// Compares the devices of workloads with those that are attached.
    ///
    /// # Errors
    /// The kernel refused a socket.
    pub fn device_changes(&self) -> Result<DeviceChanges, NetworkError> {
        let workloads = self.state.devices.iter();
        let workloads: Vec<&DeviceState> = workloads
            .filter(|device| device.role == Role::Workload)
            .collect();
        let all = workloads.iter();
        let same = iface::still_named(all.map(|device| (device.ifindex, device.name.as_str())))?;
        let other = workloads.iter().zip(same).filter(|(_, same)| !same);
        let other = other.map(|(device, _)| &device.name);
        let (new, missing) = other
            .chain(&self.state.waiting)
            .cloned()
            .partition(|name| iface::find_index(name).is_some());
        Ok(DeviceChanges { missing, new })
    }

    /// The constant of a function that is random, if it has one.
    pub fn secret(&self, function: &str) -> Option<[u8; 8]> {
        let found = self.state.functions.iter().find(|one| one.name == function);
        found.and_then(|one| one.secret)
    }

    /// Kernel id of a map of a function with a program of its own; `None` if it does not run here, or has no such map. `function`: as of
    /// [`weir_network::instance_name`].
    #[must_use]
    pub fn map_id(&self, function: &str, map: &str) -> Option<u32> {
        let found = self
            .state
            .functions
            .iter()
            .find(|one| one.name == function)?;
        found.maps.get(map).map(|map| map.id)
    }

    /// What a balancer counted; `None` if none of that name runs here. `function`: as of [`weir_network::instance_name`].
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn balancer(&self, function: &str) -> Result<Option<BalancerCounts>, NetworkError> {
        let mut functions = self.state.functions.iter();
        let found = functions.find(|one| one.name == function && one.object == balancer::OBJECT);
        let Some(found) = found else {
            return Ok(None);
        };
        let id = |map: &str| found.maps.get(map).map(|map| map.id);
        Ok(Some(BalancerCounts::read(&id)?))
    }
}

/// Whether networks of an edge run in the current namespace. Of other edges nothing is read.
///
/// # Errors
/// Its state cannot be read.
pub fn runs_here(edge: &str) -> Result<bool, NetworkError> {
    let here = netns::current_inode()?;
    let found = find(&folder_of(edge)?)?;
    Ok(found.is_some_and(|running| running.state.netns == here))
}

/// Names of edges whose networks run in the current namespace, and of those whose state cannot be read: they may be of this namespace, and
/// [`look`] says why not.
///
/// # Errors
/// The folder of all edges cannot be read.
pub fn list_here() -> Result<Vec<String>, NetworkError> {
    let here = netns::current_inode()?;
    let mut names = Vec::new();
    for name in pinned::names(Path::new(FOLDER))? {
        match find(&Path::new(FOLDER).join(&name)) {
            Ok(Some(running)) if running.state.netns != here => {}
            Ok(None) => {}
            // One that cannot be read does not hide the others.
            Ok(Some(_)) | Err(_) => names.push(name),
        }
    }
    Ok(names)
}

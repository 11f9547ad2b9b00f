//! A described packet followed over functions and edges, with every decision named.
//!
//! Works on the tables that edges would have, not on the document: what it says is what the data plane would do after an apply. What edges have
//! learned and which flows balancers remember is not known here; middleboxes and filters are taken to let packets pass.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use weir_bpf::abi::exact_kind;
use weir_packet::Reason;
use weir_packet::build::Frame;

use crate::check::{BALANCER, Networks};
use crate::cure::cure;
use crate::exact::scope;
use crate::model::Network;
use crate::numbers::Numbers;
use crate::plan::{EdgeNetworks, Label, PlanError};
use crate::reference::{Arrival, Balanced, Functions, Question, Reference, Step, To, What};
use crate::tables::{Device, Host, Tables, TablesError};
use crate::values::{Kind, Mac, mac_of_name, number, words};

/// Most frames that one is followed as: copies, and what is sent around.
const MOST_FRAMES: usize = 4096;

/// Who sends which packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Network of the workload.
    pub network: String,
    /// The workload that sends it.
    pub workload: String,
    /// Where to.
    pub to: IpAddr,
    /// The address it comes from; `None`: the workload's first of that family.
    pub from: Option<IpAddr>,
    /// The station it is sent to; `None`: whom the workload would find by ARP, the destination or its gateway.
    pub mac: Option<Mac>,
    /// What it carries.
    pub payload: Payload,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Bytes behind the Ethernet header; 0: no more than the headers need.
    pub length: u16,
}

/// What a described packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An echo request.
    Echo,
    /// TCP, from and to ports.
    Tcp(u16, u16),
    /// UDP, from and to ports.
    Udp(u16, u16),
    /// Another protocol.
    Protocol(u8),
}

/// Why a packet cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// No such network.
    #[error("no network is named `{0}`")]
    Network(String),
    /// No such workload.
    #[error("network `{0}` has no workload named `{1}`")]
    Workload(String, String),
    /// The workload has no address to send from.
    #[error("workload `{0}` has no address of the family of `{1}`; name one to send from")]
    NoSource(String, IpAddr),
    /// Nobody would tell the workload where to send it.
    #[error(
        "workload `{0}` would not know where to send packets to `{1}`: it is not in its subnet, and no router is; name a MAC address"
    )]
    NoWay(String, IpAddr),
    /// An edge has no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An edge has no tables.
    #[error(transparent)]
    Tables(#[from] TablesError),
}

/// What became of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Decisions, in order.
    pub steps: Vec<TraceStep>,
    /// Workloads that got it, or what was made of it.
    pub delivered: Vec<Delivered>,
    /// Drops: their reasons.
    pub dropped: Vec<String>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// Edge it is made on.
    pub edge: String,
    /// Network.
    pub network: String,
    /// Function that decides.
    pub function: String,
    /// Interface that the packet came in by.
    pub interface: String,
    /// What is decided, in one word.
    pub decision: &'static str,
    /// In a sentence.
    pub text: String,
}

/// A frame that reached a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivered {
    /// Edge.
    pub edge: String,
    /// Network.
    pub network: String,
    /// Workload.
    pub workload: String,
    /// Device of the edge.
    pub device: String,
    /// Bytes of the frame.
    #[serde(skip)]
    pub frame: Vec<u8>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut edge = "";
        for step in &self.steps {
            if step.edge != edge {
                writeln!(f, "edge {}", step.edge)?;
                edge = &step.edge;
            }
            writeln!(f, "  {}: {}", step.function, step.text)?;
        }
        Ok(())
    }
}

/// Numbers of devices are VIDs here: nobody's kernel is asked.
struct NoHost<'a>(BTreeMap<&'a str, u32>);

impl Host for NoHost<'_> {
    fn device(&self, name: &str) -> Option<Device> {
        let index = self.0.get(name).copied().unwrap_or(u32::MAX);
        Some(Device { index, peer: false })
    }

    fn kernel_tunnel(&self) -> Option<u32> {
        Some(u32::MAX)
    }
}

/// The tables of an edge as they would be after an apply, whatever indexes its devices have: those of workloads are their VIDs.
///
/// # Errors
/// The edge has no plan, or no tables.
pub fn tables_of(networks: &Networks, edge: &str) -> Result<(EdgeNetworks, Tables), TraceError> {
    let plan = networks.plan(edge, &Numbers::default())?;
    let devices = plan
        .devices
        .iter()
        .map(|one| (one.device.as_str(), one.vid))
        .collect();
    let tables = plan.tables(&NoHost(devices), 0)?;
    Ok((plan, tables))
}

/// Follows a described packet.
///
/// # Errors
/// The description names what is not there, or lacks what cannot be guessed.
pub fn trace(networks: &Networks, described: &Described) -> Result<Trace, TraceError> {
    let (edge, vid) = place(networks, &described.network, &described.workload)?;
    let mut fabric = Fabric::default();
    fabric.need(networks, &edge)?;
    let frame = frame_of(networks, &fabric, &edge, described)?;
    fabric.run(networks, edge, vid, frame)
}

/// The frame that a described packet is, as its workload would send it, and the edge that the workload sits on.
///
/// # Errors
/// As of [`trace`].
pub fn frame(networks: &Networks, described: &Described) -> Result<(String, Vec<u8>), TraceError> {
    let (edge, _) = place(networks, &described.network, &described.workload)?;
    let mut fabric = Fabric::default();
    fabric.need(networks, &edge)?;
    let frame = frame_of(networks, &fabric, &edge, described)?;
    Ok((edge, frame))
}

/// Follows a frame that a workload sends, byte for byte as given.
///
/// # Errors
/// There is no such workload.
pub fn trace_frame(
    networks: &Networks,
    network: &str,
    workload: &str,
    frame: &[u8],
) -> Result<Trace, TraceError> {
    let (edge, vid) = place(networks, network, workload)?;
    Fabric::default().run(networks, edge, vid, frame.to_vec())
}

fn network_of<'a>(networks: &'a Networks, name: &str) -> Result<&'a Network, TraceError> {
    let all = &networks.document.networks;
    all.iter()
        .find(|one| one.name.value == name)
        .ok_or_else(|| TraceError::Network(name.to_owned()))
}

/// The edge of a workload, and the name of its interface there.
fn place(
    networks: &Networks,
    network: &str,
    workload: &str,
) -> Result<(String, String), TraceError> {
    let found = network_of(networks, network)?
        .workloads
        .iter()
        .find(|one| one.name.value == workload);
    let none = || TraceError::Workload(network.to_owned(), workload.to_owned());
    let edge = found.ok_or_else(none)?.edge.value.clone();
    Ok((edge, format!("{network}/workload {workload}")))
}

/// The edges that a packet has come to.
#[derive(Default)]
struct Fabric {
    edges: BTreeMap<String, (EdgeNetworks, Tables)>,
}

/// What happens next.
enum Ahead {
    Device(String, u32, Vec<u8>),
    Tunnel(String, Arrival),
}

impl Fabric {
    fn need(&mut self, networks: &Networks, edge: &str) -> Result<(), TraceError> {
        if !self.edges.contains_key(edge) {
            self.edges
                .insert(edge.to_owned(), tables_of(networks, edge)?);
        }
        Ok(())
    }

    fn run(
        mut self,
        networks: &Networks,
        edge: String,
        name: String,
        frame: Vec<u8>,
    ) -> Result<Trace, TraceError> {
        self.need(networks, &edge)?;
        let vid = self.edges[&edge].0.numbers.interfaces.of(&name);
        let mut trace = Trace::default();
        let mut ahead = VecDeque::from([Ahead::Device(edge, vid, frame)]);
        let mut frames = 0;
        while let Some(next) = ahead.pop_front() {
            frames += 1;
            if frames > MOST_FRAMES {
                break;
            }
            let edge = match &next {
                Ahead::Device(edge, ..) | Ahead::Tunnel(edge, _) => edge.clone(),
            };
            self.need(networks, &edge)?;
            let (plan, tables) = &self.edges[&edge];
            let mut reference = Reference::new(tables);
            let mut functions = Functions::presuming(plan);
            let walk = match next {
                Ahead::Device(_, index, frame) => {
                    reference.from_device(index, &frame, &mut functions)
                }
                Ahead::Tunnel(_, arrival) => reference.from_tunnel(&arrival, &mut functions),
            };
            trace
                .dropped
                .extend(walk.drops().into_iter().map(str::to_owned));
            trace
                .steps
                .extend(walk.steps.iter().map(|step| tell(plan, tables, step)));
            for leaving in walk.leaving {
                match leaving.to {
                    To::Device { vid, .. } => {
                        trace.delivered.extend(delivered(plan, vid, leaving.frame))
                    }
                    To::Remote {
                        remote,
                        identifier,
                        tenant,
                        ..
                    } => {
                        let arrival = arrival(plan, remote, identifier, tenant, leaving.frame);
                        let to = plan.labels.remotes.get(remote as usize).cloned();
                        ahead.extend(
                            to.zip(arrival)
                                .map(|(to, arrival)| Ahead::Tunnel(to, arrival)),
                        );
                    }
                    To::Process { .. } => {}
                }
            }
        }
        Ok(trace)
    }
}

fn delivered(plan: &EdgeNetworks, port: u32, frame: Vec<u8>) -> Option<Delivered> {
    let device = plan.devices.iter().find(|one| one.port == port)?;
    Some(Delivered {
        edge: plan.edge.clone(),
        network: device.network.clone(),
        workload: device.workload.clone(),
        device: device.device.clone(),
        frame,
    })
}

/// What the other edge gets of a frame that leaves for it.
fn arrival(
    plan: &EdgeNetworks,
    remote: u32,
    identifier: u32,
    tenant: u32,
    frame: Vec<u8>,
) -> Option<Arrival> {
    let record = plan.remotes.get(remote as usize)?;
    let (_, kind) = *Kind::ALL
        .iter()
        .find(|(_, kind)| kind.number() == record.kind)?;
    let bytes: Vec<u8> = record
        .local
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let from: IpAddr = match record.family {
        4 => <[u8; 4]>::try_from(&bytes[..4]).ok()?.into(),
        _ => <[u8; 16]>::try_from(&bytes[..]).ok()?.into(),
    };
    Some(Arrival {
        from,
        kind,
        identifier,
        tenant: (kind == Kind::Geneve).then_some(tenant),
        frame,
    })
}

/// The frame that a workload would send.
fn frame_of(
    networks: &Networks,
    fabric: &Fabric,
    edge: &str,
    described: &Described,
) -> Result<Vec<u8>, TraceError> {
    let network = network_of(networks, &described.network)?;
    let name = &described.workload;
    let none = || TraceError::Workload(described.network.clone(), name.clone());
    let workload = network
        .workloads
        .iter()
        .find(|one| one.name.value == *name)
        .ok_or_else(none)?;
    let subnet = network
        .subnets
        .iter()
        .find(|one| one.name == workload.subnet)
        .ok_or_else(none)?;
    let (plan, tables) = &fabric.edges[edge];
    let own = plan
        .devices
        .iter()
        .find(|one| one.network == described.network && one.workload == *name);
    let source_mac = own
        .and_then(|one| one.mac)
        .unwrap_or_else(|| mac_of_name(name));
    let same = |address: &IpAddr| address.is_ipv4() == described.to.is_ipv4();
    let first = || {
        workload
            .addresses
            .known()
            .iter()
            .map(|one| one.value)
            .find(same)
    };
    let source = described.from.or_else(first).filter(same);
    let source = source.ok_or_else(|| TraceError::NoSource(name.clone(), described.to))?;
    let bridge = format!("{}/{}", described.network, subnet.name.value);
    let bridge = plan.numbers.bridges.of(&bridge);
    let ask = |address: IpAddr| {
        let found = tables
            .exact
            .find(scope(exact_kind::ARP, bridge, 0), words(number(address)))?;
        Some(Mac::from_number(found.extra))
    };
    let gateway = || {
        let given = subnet.gateway.iter().map(|one| one.value);
        let routers = network
            .functions
            .iter()
            .flat_map(|one| &one.interfaces)
            .flat_map(|one| &one.addresses);
        given
            .chain(routers.map(|net| net.address))
            .filter(same)
            .find_map(ask)
    };
    let near = subnet.prefixes.iter().any(|net| net.contains(described.to));
    let found = match (described.mac, near) {
        (Some(mac), _) => Some(mac),
        (None, true) => ask(described.to),
        (None, false) => gateway(),
    };
    let mac = found.ok_or_else(|| TraceError::NoWay(name.clone(), described.to))?;
    let frame = Frame::new();
    let frame = match (source, described.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ip4(from.octets(), to.octets()),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ip6(from.octets(), to.octets()),
        _ => return Err(TraceError::NoSource(name.clone(), described.to)),
    };
    let (head, frame) = match described.payload {
        Payload::Echo if described.to.is_ipv4() => (8, frame.icmp(8, 0).echo(1, 1)),
        Payload::Echo => (8, frame.icmp(128, 0).echo(1, 1)),
        Payload::Tcp(from, to) => (20, frame.tcp(from, to)),
        Payload::Udp(from, to) => (8, frame.udp(from, to)),
        Payload::Protocol(protocol) => (0, frame.protocol(protocol)),
    };
    let head = head + if described.to.is_ipv4() { 20 } else { 40 };
    let payload = vec![0; usize::from(described.length).saturating_sub(head)];
    let mut bytes = frame.ttl(described.ttl).payload(&payload).build();
    bytes[..6].copy_from_slice(&mac.0);
    bytes[6..12].copy_from_slice(&source_mac.0);
    Ok(bytes)
}

/// A decision in words.
fn tell(plan: &EdgeNetworks, tables: &Tables, step: &Step) -> TraceStep {
    let labels = &plan.labels;
    let label = |vid: u32| {
        labels
            .interfaces
            .get(vid as usize)
            .cloned()
            .unwrap_or_default()
    };
    let remote = |remote: u32| {
        labels
            .remotes
            .get(remote as usize)
            .cloned()
            .unwrap_or_default()
    };
    let Label {
        network,
        name,
        function,
    } = label(step.vid);
    let (decision, text) = match &step.what {
        What::Entered => ("entered", "the packet's source is its own".to_owned()),
        What::Arrived {
            remote: from,
            identifier,
        } => (
            "arrived",
            format!(
                "edge {} may send identifier {identifier}, and it is known here",
                remote(*from)
            ),
        ),
        What::Station {
            mac,
            vlan,
            to,
            remote: far,
            learned,
        } => {
            let how = if *learned { "has learned" } else { "knows" };
            let vlan = if *vlan == 0 {
                String::new()
            } else {
                format!(" in VLAN {vlan}")
            };
            let far = match far {
                0 => String::new(),
                far => format!(", on edge {}", remote(*far)),
            };
            (
                "station",
                format!("{how} {mac}{vlan}: {}{far}", behind(&label(*to).name)),
            )
        }
        What::Answered {
            question,
            address,
            mac,
        } => {
            let text = match question {
                Question::Arp => format!("answers ARP: {address} is at {mac}"),
                Question::Solicitation => {
                    format!("answers the solicitation: {address} is at {mac}")
                }
                Question::Echo => format!("answers echo to its own address {address}"),
            };
            ("answered", text)
        }
        What::Flooded { members, remotes } => {
            let mut to: Vec<String> = members
                .iter()
                .map(|vid| behind(&label(*vid).name).to_owned())
                .collect();
            to.extend(remotes.iter().map(|far| format!("edge {}", remote(*far))));
            ("flooded", format!("copies to {}", to.join(", ")))
        }
        What::Routed {
            length,
            next,
            to,
            mac,
            ttl,
        } => {
            let route = match length {
                None => format!("{next} is a neighbour"),
                Some(length) => format!("route of {length} bits, next hop {next}"),
            };
            (
                "routed",
                format!("{route}: by {} to {mac}, TTL {ttl}", label(*to).name),
            )
        }
        What::Asked { next, to } => (
            "asked",
            format!(
                "does not know the MAC address of {next}, and asks by {} instead of sending",
                label(*to).name
            ),
        ),
        What::Error { kind, code, reason } => (
            "error",
            format!(
                "{}; answers by ICMP type {kind}, code {code}",
                explained(reason)
            ),
        ),
        What::Passed { slot } => {
            let kind = plan
                .functions
                .iter()
                .find(|one| one.slot == *slot)
                .map_or("", |one| one.kind.as_str());
            let text = match kind {
                BALANCER => "is for none of its services and passes unchanged".to_owned(),
                _ => format!("{kind}, taken to let it pass"),
            };
            ("passed", text)
        }
        What::Balanced(Balanced::Given { service, server }) => (
            "balanced",
            format!(
                "a new flow to service {service} goes to server {server}, by its place in the ring"
            ),
        ),
        What::Balanced(Balanced::Returned { server, service }) => (
            "balanced",
            format!("an answer of server {server} goes on as one of service {service}"),
        ),
        What::Balanced(Balanced::Quoted { about, now }) => (
            "balanced",
            format!("the ICMP error quotes {about}, which becomes {now}"),
        ),
        What::Balanced(Balanced::Echoed { address }) => (
            "answered",
            format!("answers echo to the service's address {address}"),
        ),
        What::Steered { to, ways } => {
            let to = &label(*to).name;
            let text = match ways {
                0 => format!("goes onward by {to}"),
                1 => format!("into the chain by {to}"),
                ways => format!("into the chain by {to}, one of {ways} for this flow"),
            };
            ("steered", text)
        }
        What::Recirculated => (
            "recirculated",
            "all calls are taken: the packet goes around".to_owned(),
        ),
        What::Left(To::Device { vid, .. }) => {
            let device = plan.devices.iter().find(|one| one.port == *vid);
            let text = device.map_or_else(String::new, |one| {
                format!(
                    "delivered to workload {} by device {}",
                    one.workload, one.device
                )
            });
            ("delivered", text)
        }
        What::Left(To::Remote {
            remote: far,
            identifier,
            ..
        }) => {
            let kind = tables.remotes.get(*far as usize).map_or(0, |one| one.kind);
            let kind = Kind::ALL
                .iter()
                .find(|(_, one)| one.number() == kind)
                .map_or("", |(name, _)| name);
            (
                "sent",
                format!(
                    "by {kind} to edge {}, identifier {identifier}",
                    remote(*far)
                ),
            )
        }
        What::Left(To::Process { .. }) => (
            "punted",
            format!("punted to the helper of edge {}", plan.edge),
        ),
        What::Dropped(reason) => {
            let cure = Reason::from_name(reason).and_then(cure);
            let cure = cure.map_or_else(String::new, |cure| format!("; {cure}"));
            ("dropped", format!("dropped: {}{cure}", explained(reason)))
        }
    };
    TraceStep {
        edge: plan.edge.clone(),
        network: network.to_string(),
        function: match function.is_empty() {
            true => "edge".to_owned(),
            false => function.to_string(),
        },
        interface: name,
        decision,
        text,
    }
}

/// What an interface of a bridge leads to.
fn behind(name: &str) -> &str {
    name.split_once(" -> ").map_or(name, |(_, to)| to)
}

fn explained(reason: &str) -> String {
    match Reason::from_name(reason) {
        Some(known) => format!("{reason} ({})", known.text()),
        None => reason.to_owned(),
    }
}

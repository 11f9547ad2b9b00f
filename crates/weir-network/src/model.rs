//! A document of virtual networks as it is written: who there is, by name. What it means is found out by `check` and `plan`.
//!
//! Every value that a message may point at has its place. Two documents are equal if they say the same.

use std::collections::BTreeMap;
use std::net::IpAddr;

use toml::Table;
use weir_functions::joined::Joined;
use weir_policy::ast::Span;

use weir_value::{InterfaceAddress, PortRange, Prefix};

use crate::values::{At, Kind, Mac};

/// What is wanted: of all edges, at one version.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Of the document: a later one has a higher number.
    pub version: u64,
    /// Hosts.
    pub edges: Vec<Edge>,
    /// Whose networks there are.
    pub tenants: Vec<Tenant>,
    /// Their networks.
    pub networks: Vec<Network>,
    /// The edge whose configuration contains it; `None`: it is a separate file.
    pub configured: Option<String>,
    /// The text, for messages.
    pub(crate) source: Joined,
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        self.version == other.version
            && self.edges == other.edges
            && self.tenants == other.tenants
            && self.networks == other.networks
    }
}

impl Document {
    /// Reads the MAC addresses that workloads of an edge take from their devices. `read`: full name and device of a workload; `None`: its device
    /// does not exist.
    ///
    /// # Errors
    /// What `read` returned.
    pub fn read_devices<E>(
        &mut self,
        edge: &str,
        mut read: impl FnMut(&str, &str) -> Result<Option<Mac>, E>,
    ) -> Result<(), E> {
        for network in &mut self.networks {
            for workload in &mut network.workloads {
                if let (Station::Device(mac), true) =
                    (&mut workload.mac, workload.edge.value == edge)
                {
                    let name = format!("{}/{}", network.name.value, workload.name.value);
                    mac.value = read(&name, &workload.device)?;
                }
            }
        }
        Ok(())
    }

    /// Fills in those that were read before, by full name.
    pub fn fill_devices(&mut self, read: &BTreeMap<String, Mac>) {
        for network in &mut self.networks {
            for workload in &mut network.workloads {
                if let Station::Device(mac) = &mut workload.mac {
                    let name = format!("{}/{}", network.name.value, workload.name.value);
                    mac.value = read.get(&name).copied();
                }
            }
        }
    }

    /// Full names of workloads whose MAC addresses are still to be read from their devices.
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        let all = self.networks.iter().flat_map(|network| {
            let workloads = network.workloads.iter();
            let unread = workloads
                .filter(|one| matches!(&one.mac, Station::Device(mac) if mac.value.is_none()));
            unread.map(|one| format!("{}/{}", network.name.value, one.name.value))
        });
        all.collect()
    }
}

/// A host that runs weir.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Its name.
    pub name: At<String>,
    /// Where tunnels end: at most one address of each family.
    pub underlay: Vec<At<IpAddr>>,
    /// Interface of the underlay.
    pub device: Option<At<String>>,
    /// Largest packet of the underlay, Ethernet header not counted.
    pub mtu: At<u16>,
    /// What it sends.
    pub tunnel: At<Kind>,
    /// What it takes; empty: what it sends.
    pub accepts: Vec<At<Kind>>,
    /// Its Geneve packets name their tenant.
    pub names_tenant: bool,
}

impl Edge {
    /// What it takes.
    pub fn accepted(&self) -> Vec<Kind> {
        match self.accepts.is_empty() {
            true => vec![self.tunnel.value],
            false => self.accepts.iter().map(|one| one.value).collect(),
        }
    }

    /// Whether it takes what another edge sends.
    pub fn takes(&self, kind: Kind) -> bool {
        self.accepted().into_iter().any(|one| kind.is_taken_as(one))
    }

    /// The addresses by which packets from here reach another edge: of the first family here that both have.
    pub fn way_to(&self, other: &Edge) -> Option<(IpAddr, IpAddr)> {
        self.underlay.iter().find_map(|own| {
            let same = |one: &&At<IpAddr>| one.is_ipv4() == own.is_ipv4();
            Some((own.value, other.underlay.iter().find(same)?.value))
        })
    }
}

/// Whose networks.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: At<String>,
}

/// A tenant's graph of functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name, of all tenants' networks.
    pub name: At<String>,
    /// Whose it is.
    pub tenant: At<String>,
    /// Largest packet of its workloads, Ethernet header not counted.
    pub mtu: At<u16>,
    /// Bridges.
    pub subnets: Vec<Subnet>,
    /// Other functions.
    pub functions: Vec<Function>,
    /// What is linked to what.
    pub links: Vec<Link>,
    /// Functions put into links.
    pub chains: Vec<Chain>,
    /// Files that its functions name, carried by the document.
    pub files: Vec<File>,
    /// Security groups, which workloads are in and policies test.
    pub groups: Vec<Group>,
    /// Devices with a place in a subnet.
    pub workloads: Vec<Workload>,
}

/// A security group: policies of its network test the addresses of its workloads by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, of the network's groups.
    pub name: At<String>,
}

/// A file that a document carries: a policy, what that includes, a set or a list.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its path as functions and policies name it.
    pub name: At<String>,
    /// What it holds.
    pub text: String,
}

/// A segment: a bridge and its addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Subnet {
    /// Its name, of the subnets and functions of the network.
    pub name: At<String>,
    /// Its addresses.
    pub prefixes: Vec<At<Prefix>>,
    /// Where hosts send what is for others, as they are told: addresses of routers.
    pub gateway: Vec<At<IpAddr>>,
    /// On the wire; `None`: given out.
    pub identifier: Option<At<u32>>,
    /// What happens to packets for stations that nobody declared; `None`: dropped unless an interface learns.
    pub unknown: Option<Unknown>,
    /// Packets to all that an interface may send a second; 0: no limit.
    pub storm: u32,
    /// Seconds that what was learned lasts.
    pub age: u32,
    /// The helper of each edge answers DHCP clients among its workloads; seconds that it leases their addresses for.
    pub dhcp: Option<At<u32>>,
}

/// What happens to packets for stations that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// They are dropped.
    Drop,
    /// They go to all.
    Flood,
}

impl Unknown {
    /// Names in documents.
    pub const ALL: [(&'static str, Unknown); 2] =
        [("drop", Unknown::Drop), ("flood", Unknown::Flood)];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Unknown::Drop => "drop",
            Unknown::Flood => "flood",
        }
    }
}

/// A router, or a function with the interfaces `a` and `b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name, of the subnets and functions of the network.
    pub name: At<String>,
    /// Its kind.
    pub kind: At<String>,
    /// The one edge that it is on; `None`: on every edge of the network.
    pub home: Option<At<String>>,
    /// Of a router.
    pub interfaces: Vec<Interface>,
    /// Of a router.
    pub routes: Vec<At<Route>>,
    /// Of a punt function.
    pub punt: Option<Punt>,
    /// Keys of its kind.
    pub keys: Table,
    /// Where they stand, by path.
    pub(crate) places: Places,
    /// It is made of a chain.
    pub(crate) steer: Option<Box<Steer>>,
}

/// What leads packets into and out of a chain: a function with the interfaces `a` and `b`, and two for each function of the chain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steer {
    /// Names of all interfaces.
    pub(crate) sides: Vec<String>,
    /// The first of the two interfaces of each function, in order.
    pub(crate) stages: Vec<Vec<usize>>,
    /// What is sent through the chain, from `a` to `b`.
    pub(crate) selections: Vec<Selection>,
}

/// What a function hands to the helper of its edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Punt {
    /// What goes to the helper of what comes in by `a`, and its answers by `b`, unless an installed flow takes it; none: all IP packets.
    pub selections: Vec<Selection>,
    /// Packets a second that each interface may send there; 0: no limit.
    pub rate: u32,
    /// Flows that may be installed.
    pub flows: u32,
}

/// Places of keys, which do not count when documents are compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(pub(crate) BTreeMap<String, Span>);

impl PartialEq for Places {
    fn eq(&self, _: &Places) -> bool {
        true
    }
}

/// The kind of functions that hand packets to a helper.
pub const PUNT: &str = "punt";

/// The kind of functions that are routers.
pub const ROUTER: &str = "router";

/// Interfaces of functions that are no routers.
pub const SIDES: [&str; 2] = ["a", "b"];

impl Function {
    /// Whether it has interfaces with addresses.
    pub fn is_router(&self) -> bool {
        self.kind.value == ROUTER
    }

    /// How many interfaces it has.
    pub fn sides(&self) -> usize {
        match (self.is_router(), &self.steer) {
            (true, _) => self.interfaces.len(),
            (false, Some(steer)) => steer.sides.len(),
            (false, None) => SIDES.len(),
        }
    }

    /// The name of an interface.
    pub fn side_name(&self, side: usize) -> &str {
        match (self.is_router(), &self.steer) {
            (true, _) => self.interfaces.get(side).map_or("", |one| &one.name),
            (false, Some(steer)) => steer.sides.get(side).map_or("", |name| name),
            (false, None) => SIDES.get(side).copied().unwrap_or(""),
        }
    }
}

/// An interface of a router.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name, of the router's.
    pub name: At<String>,
    /// Its addresses, with the networks they are in.
    pub addresses: Vec<At<InterfaceAddress>>,
    /// `None`: made of the names.
    pub mac: Option<At<Mac>>,
    /// Largest packet that leaves here; `None`: that of the network.
    pub mtu: Option<At<u16>>,
}

/// A route: where packets to addresses of a network go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which packets.
    pub to: Prefix,
    /// Where they go.
    pub way: Way,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To gateways, each with an equal part of the flows.
    Via(Vec<IpAddr>),
    /// Dropped without a word.
    Blackhole,
    /// Dropped, and the sender is told that there is no such network.
    Unreachable,
    /// Dropped, and the sender is told that it must not.
    Prohibit,
}

/// What is linked to what.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// `SUBNET`, `FUNCTION.INTERFACE`, or `FUNCTION` for its `b`.
    pub from: At<String>,
    /// `SUBNET`, `FUNCTION.INTERFACE`, or `FUNCTION` for its `a`.
    pub to: At<String>,
    /// The VLAN of the subnets that it is in; 0: untagged.
    pub vlan: u16,
    /// On the wire, where an end has its home elsewhere; `None`: given out.
    pub identifier: Option<At<u32>>,
}

/// Functions that selected packets of a link pass, in order; their answers pass them in the opposite order.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Its name, of the subnets and functions of the network.
    pub name: At<String>,
    /// The interface of a function whose link it is put into. The order is that of packets which go there.
    pub at: At<String>,
    /// Names of functions with the interfaces `a` and `b`; of several in one place each flow passes one.
    pub through: Vec<Vec<At<String>>>,
    /// What passes them; none: all IP packets.
    pub select: Vec<Selection>,
}

/// Packets: those for which all holds that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Protocol of IP.
    pub protocol: Option<u8>,
    /// Where they come from.
    pub from: Option<Prefix>,
    /// Where they go.
    pub to: Option<Prefix>,
    /// Ports of TCP, UDP or SCTP that they come from.
    pub from_port: Option<PortRange>,
    /// Ports that they go to.
    pub port: Option<PortRange>,
}

impl Selection {
    /// The answers to what is selected.
    #[must_use]
    pub fn reversed(self) -> Selection {
        Selection {
            protocol: self.protocol,
            from: self.to,
            to: self.from,
            from_port: self.port,
            port: self.from_port,
        }
    }
}

/// A device with a place in a subnet.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name, of the network's workloads.
    pub name: At<String>,
    /// Where it is linked.
    pub subnet: At<String>,
    /// The edge it sits on.
    pub edge: At<String>,
    /// Interface of that edge.
    pub device: At<String>,
    /// What it may send from.
    pub mac: Station,
    /// What it may send from.
    pub addresses: Addresses,
    /// VLANs of the subnet that it has.
    pub vlan: Vlan,
    /// It is no workload but a way out of the virtual network.
    pub external: bool,
    /// What it may send that workloads may not.
    pub allow: Vec<Allowed>,
    /// Names of the security groups that it is in.
    pub groups: Vec<At<String>>,
}

/// Messages that only those may send whom the document lets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowed {
    /// Router advertisements and redirects (RFC 4861).
    Ra,
    /// What servers send to DHCP clients (RFC 2131, 8415).
    DhcpServer,
}

impl Allowed {
    /// Names in documents.
    pub const ALL: [(&'static str, Allowed); 2] =
        [("ra", Allowed::Ra), ("dhcp-server", Allowed::DhcpServer)];

    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Allowed::Ra => "ra",
            Allowed::DhcpServer => "dhcp-server",
        }
    }
}

/// MAC addresses of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Station {
    /// Made of the names.
    Made,
    /// This one.
    Given(At<Mac>),
    /// That of the workload's end of its device, as far as it was read ([`Document::read_devices`]); made of the names until then.
    Device(At<Option<Mac>>),
    /// Any: they are learned.
    Any,
}

impl Station {
    /// Where its MAC address comes from, in one word.
    #[must_use]
    pub fn origin(&self) -> &'static str {
        match self {
            Station::Made => "names",
            Station::Given(_) => "document",
            Station::Device(_) => "device",
            Station::Any => "any",
        }
    }
}

/// IP addresses of a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Addresses {
    /// These, and no other.
    Given(Vec<At<IpAddr>>),
    /// Any.
    Any,
}

impl Addresses {
    /// Those that are known.
    pub fn known(&self) -> &[At<IpAddr>] {
        match self {
            Addresses::Given(list) => list,
            Addresses::Any => &[],
        }
    }
}

/// VLANs of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// Its packets have no tag and belong to this one; 0: to none.
    Access(u16),
    /// Its packets have tags, of these; 0 among them: untagged ones, too.
    Trunk(Vec<u16>),
}

impl Vlan {
    /// Those it has.
    pub fn list(&self) -> &[u16] {
        match self {
            Vlan::Access(one) => std::slice::from_ref(one),
            Vlan::Trunk(list) => list,
        }
    }
}

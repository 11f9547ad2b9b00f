//! `weir-cni`: containers as workloads of virtual networks, by the Container Network Interface (specification 1.1.0).
//!
//! An addition makes a veth pair into the container's namespace, then the workload, then addresses and the default route inside. Names of device and
//! workload follow from the container's ID, so that a deletion finds what a killed addition left. Invariant: whatever ends in between, deleting
//! removes it, and adding again completes it.

mod addresses;
mod backing;
mod call;

use std::io::Read as _;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_kernel::addresses::OwnAddress;
use weir_kernel::{ForeignNetNs, KernelError, iface, links, netlink, routes};
use weir_network::model::{Document, Network, Subnet, Workload};
use weir_network::values::mac_of_name;
use weir_runtime::workloads;
use weir_value::Prefix;

use self::backing::Backing;
use self::call::{Attachment, Call, CniError, Command, Read, VERSIONS};
use crate::output;

/// How long an addition waits until the edge carries the container's packets. Runtimes give a call some minutes.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// How often an address is chosen again because another addition was faster.
const TRIES: usize = 8;

/// Most bytes of a configuration.
const INPUT_MAX: u64 = 1 << 20;

impl From<KernelError> for CniError {
    fn from(error: KernelError) -> CniError {
        CniError::host(error.to_string())
    }
}

/// Serves one call: the answer goes to standard output, also that of a failure, as the specification asks.
pub(super) fn run() -> ExitCode {
    let mut input = String::new();
    let read = std::io::stdin().take(INPUT_MAX).read_to_string(&mut input);
    let read = match read {
        Ok(_) => call::read(&|name| std::env::var_os(name), &input),
        Err(error) => return answer(Err((CniError::io(&error), VERSIONS[VERSIONS.len() - 1]))),
    };
    answer(match read {
        Ok(Read::Version(version)) => Ok(Some(json!({
            "cniVersion": if version.is_empty() { VERSIONS[VERSIONS.len() - 1] } else { &version },
            "supportedVersions": VERSIONS,
        }))),
        Ok(Read::Call(call)) => serve(&call).map_err(|error| (error, call.version)),
        Err(error) => Err((error, VERSIONS[VERSIONS.len() - 1])),
    })
}

fn answer(outcome: Result<Option<Value>, (CniError, &str)>) -> ExitCode {
    let (value, code) = match outcome {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(value)) => (value, ExitCode::SUCCESS),
        Err((error, version)) => (error.json(version), ExitCode::FAILURE),
    };
    match output::json(&value) {
        Ok(()) => code,
        // Standard output is closed.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(call: &Call) -> Result<Option<Value>, CniError> {
    match call.command {
        Command::Add => add(call).map(Some),
        Command::Del => delete(call).map(|()| None),
        Command::Check => check(call).map(|()| None),
        Command::Gc => collect(call).map(|()| None),
        Command::Status => match Backing::of(&call.config).and_then(|mut all| all.document()) {
            Ok(document) => place(call, &document).map(|_| None),
            Err(error) => Err(CniError::unavailable(error.text())),
        },
    }
}

/// The network and the subnet that containers join.
fn place<'d>(call: &Call, document: &'d Document) -> Result<(&'d Network, &'d Subnet), CniError> {
    let config = &call.config;
    let mut networks = document.networks.iter();
    let network = networks.find(|one| one.name.value == config.network);
    let Some(network) = network else {
        let names: Vec<&str> = document
            .networks
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        return Err(CniError::config(format!(
            "no network named `{}`; available: {}",
            config.network,
            names.join(", ")
        )));
    };
    let subnet = network
        .subnets
        .iter()
        .find(|one| one.name.value == config.subnet);
    match subnet {
        Some(subnet) => Ok((network, subnet)),
        None => {
            let names: Vec<&str> = network
                .subnets
                .iter()
                .map(|one| one.name.as_str())
                .collect();
            Err(CniError::config(format!(
                "network {} has no subnet named `{}`; available: {}",
                config.network,
                config.subnet,
                names.join(", ")
            )))
        }
    }
}

/// The workload of an attachment, if it was added.
fn workload_of<'n>(network: &'n Network, attachment: &Attachment) -> Option<&'n Workload> {
    let mut workloads = network.workloads.iter();
    workloads.find(|one| attachment.owns(one.name.as_str()))
}

/// What an addition gave a container.
struct Joined {
    workload: String,
    /// Each with the length of its prefix and the router of the subnet.
    addresses: Vec<(IpAddr, u8, Option<IpAddr>)>,
    mtu: u16,
}

impl Joined {
    fn of(network: &Network, subnet: &Subnet, workload: String, addresses: &[IpAddr]) -> Joined {
        let interfaces = network.functions.iter().flat_map(|one| &one.interfaces);
        let routers = interfaces.flat_map(|one| &one.addresses);
        let routers = routers.map(|one| one.value.address);
        // As what DHCP tells: a gateway of the subnet, else a router that has an address in its prefix.
        let routers: Vec<IpAddr> = (subnet.gateway.iter().map(|one| one.value))
            .chain(routers)
            .collect();
        let one = |address: &IpAddr| {
            let mut prefixes = subnet.prefixes.iter().map(|prefix| prefix.value);
            let prefix = prefixes
                .find(|prefix| prefix.contains(*address))
                .unwrap_or_else(|| Prefix::one(*address));
            let mut routers = routers.iter().copied();
            let router = routers.find(|one| prefix.contains(*one) && one != address);
            (*address, prefix.len, router)
        };
        Joined {
            workload,
            addresses: addresses.iter().map(one).collect(),
            mtu: network.mtu.value,
        }
    }
}

fn add(call: &Call) -> Result<Value, CniError> {
    let netns = open(call)?.ok_or_else(|| gone(call))?;
    let attachment = call.attachment();
    let mut backing = Backing::of(&call.config)?;
    let document = backing.document()?;
    let (network, _) = place(call, &document)?;
    let is_new = workload_of(network, &attachment).is_none();
    let name = match workload_of(network, &attachment) {
        Some(there) => there.name.value.clone(),
        None => attachment.workload(&call.args),
    };
    let mac = mac_of_name(&format!("{}/{name}", network.name.value));
    let made = connect(call, &attachment, &netns, mac.0, network.mtu.value)?;
    let outcome = register(call, &mut backing, &attachment, &name).and_then(|joined| {
        backing.settle(&attachment.device, Instant::now() + PATIENCE, PAUSE)?;
        let configured = netns.run(|| configure(&call.interface, &joined))?;
        configured.map(|()| joined)
    });
    match outcome {
        Ok(joined) => Ok(result(call, &attachment, mac.to_string(), &joined)),
        Err(error) => {
            // The error to report is why the addition failed. Runtimes call DEL before they add again.
            if is_new {
                let _ = backing.delete(&call.config.network, &name);
            }
            if made {
                let _ = netlink::remove(&attachment.device);
            }
            Err(error)
        }
    }
}

fn open(call: &Call) -> Result<Option<ForeignNetNs>, CniError> {
    match &call.netns {
        Some(path) => Ok(ForeignNetNs::open(path)?),
        None => Ok(None),
    }
}

fn gone(call: &Call) -> CniError {
    let path = call.netns.as_deref().unwrap_or(Path::new(""));
    CniError::unknown_container(format!("{} is not a network namespace", path.display()))
}

/// The pair between host and container; `false`: it is there.
fn connect(
    call: &Call,
    attachment: &Attachment,
    netns: &ForeignNetNs,
    mac: [u8; 6],
    mtu: u16,
) -> Result<bool, CniError> {
    let device = &attachment.device;
    if iface::find_index(device).is_some() {
        let inside = netns.run(|| links::named(&call.interface))??;
        let far = links::far_end(device)?;
        let is_same = match (&inside, &far) {
            (Some(inside), Some(far)) => far.name == inside.name && far.mac == inside.mac,
            _ => false,
        };
        if is_same {
            return Ok(false);
        }
        // Of an addition that was killed, or of a namespace that is gone.
        netlink::remove(device)?;
    }
    netlink::create_veth_into(device, mtu.into(), netns.as_fd(), &call.interface, mac)?;
    Ok(true)
}

/// The workload, with the addresses that it has or gets.
fn register(
    call: &Call,
    backing: &mut Backing,
    attachment: &Attachment,
    name: &str,
) -> Result<Joined, CniError> {
    let wanted = call.wanted()?;
    let mut tries = 0;
    loop {
        let document = backing.document()?;
        let (network, subnet) = place(call, &document)?;
        let there = workload_of(network, attachment);
        let addresses = match there {
            Some(there) => there
                .addresses
                .known()
                .iter()
                .map(|one| one.value)
                .collect(),
            None if !wanted.is_empty() => wanted.clone(),
            None => addresses::free(network, subnet, &attachment.digest).ok_or_else(|| {
                CniError::host(format!(
                    "subnet {} of network {} has no free address",
                    call.config.subnet, call.config.network
                ))
            })?,
        };
        // As with addresses, what was added stays: only a command changes its groups.
        let groups = match there {
            Some(there) => (there.groups.iter())
                .map(|group| group.value.clone())
                .collect(),
            None => call.groups(),
        };
        let joined = Joined::of(network, subnet, name.to_owned(), &addresses);
        let added = backing.add(workloads::Workload {
            network: call.config.network.clone(),
            name: name.to_owned(),
            subnet: call.config.subnet.clone(),
            device: attachment.device.clone(),
            addresses,
            mac: None,
            edge: None,
            groups,
        });
        tries += 1;
        match added {
            Ok(()) => return Ok(joined),
            // Another addition took the address since the document was read.
            Err(_)
                if wanted.is_empty() && there.is_none() && tries < TRIES && {
                    let now = backing.document()?;
                    is_taken(place(call, &now)?.0, &joined)
                } => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_taken(network: &Network, joined: &Joined) -> bool {
    let mut known = network
        .workloads
        .iter()
        .flat_map(|one| one.addresses.known());
    known.any(|one| {
        joined
            .addresses
            .iter()
            .any(|(address, ..)| *address == one.value)
    })
}

/// Inside the container's namespace.
fn configure(interface: &str, joined: &Joined) -> Result<(), CniError> {
    netlink::set_up("lo")?;
    let device = iface::index_of(interface)?;
    netlink::set_up(interface)?;
    for (address, len, _) in &joined.addresses {
        weir_kernel::addresses::add(&OwnAddress {
            device,
            address: *address,
            len: *len,
        })?;
    }
    for (_, _, router) in &joined.addresses {
        if let Some(router) = router {
            routes::set_default(device, *router)?;
        }
    }
    Ok(())
}

/// The answer to an addition.
fn result(call: &Call, attachment: &Attachment, mac: String, joined: &Joined) -> Value {
    let host = links::named(&attachment.device).ok().flatten();
    let host = host.map(|device| weir_value::Mac(device.mac).to_string());
    // Before 1.0.0 an address has its family beside it.
    let is_old = call.version.starts_with("0.");
    let ips = joined.addresses.iter().map(|(address, len, router)| {
        let mut one = json!({ "address": format!("{address}/{len}"), "interface": 1 });
        if let Some(router) = router {
            one["gateway"] = json!(router);
        }
        if is_old {
            one["version"] = json!(if address.is_ipv4() { "4" } else { "6" });
        }
        one
    });
    let ips: Vec<Value> = ips.collect();
    let routes = joined.addresses.iter().filter_map(|(address, _, router)| {
        let all = if address.is_ipv4() {
            "0.0.0.0/0"
        } else {
            "::/0"
        };
        router.map(|router| json!({ "dst": all, "gw": router }))
    });
    let routes: Vec<Value> = routes.collect();
    let mut inside = json!({ "name": call.interface, "mac": mac, "sandbox": call.netns });
    let mut outside = json!({ "name": attachment.device, "mac": host });
    if call.version == "1.1.0" {
        for one in [&mut inside, &mut outside] {
            one["mtu"] = json!(joined.mtu);
        }
    }
    json!({
        "cniVersion": call.version,
        "interfaces": [outside, inside],
        "ips": ips,
        "routes": routes,
        "dns": call.config.dns.clone().unwrap_or_else(|| json!({})),
    })
}

/// Succeeds if nothing is left to delete.
fn delete(call: &Call) -> Result<(), CniError> {
    let attachment = call.attachment();
    // First, so that nothing of the container is sent any more; of a namespace that is gone it is gone, too.
    netlink::remove(&attachment.device)?;
    let mut backing = match Backing::of(&call.config) {
        Err(error) if error.is_absent() => return Ok(()),
        other => other?,
    };
    let document = backing.document()?;
    let mut networks = document.networks.iter();
    let network = networks.find(|one| one.name.value == call.config.network);
    let Some(there) = network.and_then(|network| workload_of(network, &attachment)) else {
        return Ok(());
    };
    backing.delete(&call.config.network, there.name.as_str())
}

fn check(call: &Call) -> Result<(), CniError> {
    let netns = open(call)?.ok_or_else(|| gone(call))?;
    let attachment = call.attachment();
    let mut backing = Backing::of(&call.config)?;
    let document = backing.document()?;
    let (network, subnet) = place(call, &document)?;
    let Some(there) = workload_of(network, &attachment) else {
        return Err(CniError::unknown_container(format!(
            "container {} has no workload in network {}",
            call.container, call.config.network
        )));
    };
    let known: Vec<IpAddr> = there
        .addresses
        .known()
        .iter()
        .map(|one| one.value)
        .collect();
    let joined = Joined::of(network, subnet, there.name.value.clone(), &known);
    told_before(call, &joined)?;
    if !backing.carries(&attachment.device)? {
        return Err(CniError::host(format!(
            "the edge does not carry packets of {}: `weir net show` and `weir agent` say why",
            attachment.device
        )));
    }
    let interface = &call.interface;
    let wrong = |what: String| {
        Err(CniError::host(format!(
            "{interface} of container {}: {what}",
            call.container
        )))
    };
    let inside = netns.run(|| links::named(interface))??;
    let Some(inside) = inside else {
        return wrong("no such interface".to_owned());
    };
    let mac = mac_of_name(&format!("{}/{}", network.name.value, joined.workload));
    if inside.mac != mac.0 {
        return wrong(format!("its MAC address is not {mac}"));
    }
    if !inside.up {
        return wrong("it is down".to_owned());
    }
    let has = netns.run(weir_kernel::addresses::read)??;
    for (address, ..) in &joined.addresses {
        let is_there = |one: &OwnAddress| one.device == inside.ifindex && one.address == *address;
        if !has.iter().any(is_there) {
            return wrong(format!("it does not have the address {address}"));
        }
    }
    Ok(())
}

/// The addresses that the runtime was told are those of the workload.
fn told_before(call: &Call, joined: &Joined) -> Result<(), CniError> {
    let Some(before) = &call.config.before else {
        return Ok(());
    };
    let ips = before["ips"].as_array().into_iter().flatten();
    for one in ips.filter(|one| one["interface"].as_u64().is_none_or(|at| at == 1)) {
        let told = one["address"].as_str().unwrap_or_default();
        let mut known = joined.addresses.iter();
        if !known.any(|(address, len, _)| format!("{address}/{len}") == told) {
            return Err(CniError::host(format!(
                "the workload of container {} does not have the address {told}",
                call.container
            )));
        }
    }
    Ok(())
}

/// Deletes what additions to this network left whose containers are gone.
fn collect(call: &Call) -> Result<(), CniError> {
    let Some(valid) = &call.config.valid else {
        return Err(CniError::config("`cni.dev/valid-attachments` is missing"));
    };
    let valid: Vec<Attachment> = valid
        .iter()
        .map(|one| Attachment::of(&one.container, &one.ifname))
        .collect();
    let mut backing = Backing::of(&call.config)?;
    let document = backing.document()?;
    let (network, subnet) = place(call, &document)?;
    let edge = backing.edge().to_owned();
    for one in &network.workloads {
        let is_here = one.edge.value == edge && one.subnet.value == subnet.name.value;
        let (device, name) = (one.device.as_str(), one.name.as_str());
        let is_wanted = valid.iter().any(|attachment| attachment.owns(name));
        if is_here && Attachment::is_one(device, name) && !is_wanted {
            netlink::remove(device)?;
            backing.delete(&call.config.network, name)?;
        }
    }
    Ok(())
}

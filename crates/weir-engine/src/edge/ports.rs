//! Attaching ports: the copies of `entry` that a device runs, the tc program that takes metadata over, and the pair for recirculation.
//!
//! Invariant: a mode is never another one than was asked for. What is attached here gives packets to the stack until the generation is
//! switched to.

use weir_bpf::abi::away;
use weir_functions::plan::ChecksumMode;
use weir_graph::{Digest, EdgePlan, Instance, Mode, PortPlan};
use weir_kernel::iface::{self, Interface};
use weir_kernel::pinned::PinnedLink;
use weir_kernel::{Direction, Filter, KernelError, LoadedProgram, Map, XdpMode, netlink};

use super::building::Building;
use super::error::EdgeError;
use super::form::{Form, Hook};
use super::load::{csum_mode, load_own};
use super::maps::{EdgeMaps, PAIR_PLACE, STACK};
use super::state::{PairState, PortState, State};

/// A port as it is to be, and its device.
#[derive(Debug)]
pub(super) struct Wanted<'p> {
    pub(super) plan: &'p PortPlan,
    pub(super) device: Interface,
    pub(super) offloaded: bool,
    /// As it runs already.
    pub(super) running: Option<PortState>,
}

/// Looks the ports' devices up and compares them with what runs. Nothing is changed.
pub(super) fn find<'p>(
    ports: &'p [PortPlan],
    running: Option<&State>,
    folder: &std::path::Path,
) -> Result<Vec<Wanted<'p>>, EdgeError> {
    let mut wanted: Vec<Wanted<'p>> = Vec::with_capacity(ports.len());
    for plan in ports {
        if plan.number == 0 || plan.number >= PAIR_PLACE {
            return Err(EdgeError::Range {
                what: format!("the number of port {}", plan.name),
                value: plan.number.into(),
                range: format!("1 to {}", PAIR_PLACE - 1),
            });
        }
        let device = iface::find(&plan.device).map_err(|error| EdgeError::Of {
            who: format!("port {}", plan.name),
            error,
        })?;
        let twice = |what, name: &str| EdgeError::Twice {
            what,
            name: name.to_owned(),
        };
        for other in &wanted {
            if other.plan.name == plan.name {
                return Err(twice("port", &plan.name));
            }
            if other.device.ifindex == device.ifindex {
                return Err(twice("device", &plan.device));
            }
            if other.plan.number == plan.number {
                return Err(twice("port number", &plan.number.to_string()));
            }
        }
        refuse_offload(plan, &device)?;
        let offloaded = match plan.checksums {
            Some(mode) => mode == ChecksumMode::Offloaded,
            // A socket buffer says so itself.
            None if plan.mode == Mode::Tc => false,
            None => plan.mode == Mode::Generic || device.may_carry_unfinished_checksums(),
        };
        let found = running
            .into_iter()
            .flat_map(|state| &state.ports)
            .find(|port| port.ifindex == device.ifindex);
        let mut kept = None;
        if let Some(port) = found {
            let attached = match PinnedLink::open(&folder.join(&port.pin))? {
                Some(link) => link.is_attached()?,
                None => false,
            };
            if attached && port.number != plan.number {
                return Err(EdgeError::Renumbered {
                    port: plan.name.clone(),
                    device: plan.device.clone(),
                    have: port.number,
                    want: plan.number,
                });
            }
            if attached && port.mode != plan.mode.text() {
                return Err(EdgeError::ModeChanged {
                    port: plan.name.clone(),
                    device: plan.device.clone(),
                    have: port.mode.clone(),
                    want: plan.mode.text(),
                });
            }
            kept = attached.then(|| port.clone());
        }
        wanted.push(Wanted {
            plan,
            device,
            offloaded,
            running: kept,
        });
    }
    Ok(wanted)
}

/// Refuses ports whose packets are not what a function behind them asks for.
pub(super) fn suit(plan: &EdgePlan, wanted: &[Wanted<'_>]) -> Result<(), EdgeError> {
    let one_buffer = iface::linear_mtu();
    for instance in &plan.instances {
        let least = instance.planned.asks.least_mtu;
        // What goes out by one port came in by another: the smallest of all counts.
        if let Some(port) = wanted.iter().find(|port| port.device.mtu < least) {
            return Err(EdgeError::SmallMtu {
                instance: instance.name.clone(),
                port: port.plan.name.clone(),
                device: port.device.name.clone(),
                mtu: port.device.mtu,
                least,
            });
        }
    }
    for (port, instance) in meetings(plan, wanted) {
        let asks = instance.planned.asks;
        let device = &port.device;
        let hides = || iface::feature(&device.name, iface::Feature::RxVlan).unwrap_or(false);
        // Programs on tc see a tag that lies beside the frame.
        if asks.vlan_in_frame && port.plan.mode != Mode::Tc && hides() {
            return Err(EdgeError::VlanHidden {
                instance: instance.name.clone(),
                port: port.plan.name.clone(),
                device: device.name.clone(),
                veth: match device.is_veth() {
                    true => ", and `ethtool -K PEER txvlan off` at its other end",
                    false => "",
                },
            });
        }
        let (why, cure) = match port.plan.mode {
            Mode::Generic => (
                "in generic mode the stack has put segments together".to_owned(),
                "use mode = \"native\"".to_owned(),
            ),
            Mode::Tc => continue,
            _ if device.mtu > one_buffer => (
                format!("its MTU is {}", device.mtu),
                format!("run `ip link set dev {} mtu {one_buffer}`", device.name),
            ),
            _ => continue,
        };
        if asks.linear_frames {
            return Err(EdgeError::SeveralBuffers {
                instance: instance.name.clone(),
                port: port.plan.name.clone(),
                why,
                cure,
            });
        }
    }
    Ok(())
}

/// Each port with each instance that its packets can come to.
fn meetings<'a>(
    plan: &'a EdgePlan,
    wanted: &'a [Wanted<'a>],
) -> impl Iterator<Item = (&'a Wanted<'a>, &'a Instance)> {
    let all = wanted.iter().enumerate();
    all.flat_map(|(at, port)| {
        let instances = plan.instances.iter().zip(plan.met_by(at));
        instances.filter_map(move |(one, is_met)| is_met.then_some((port, one)))
    })
}

fn refuse_offload(plan: &PortPlan, device: &Interface) -> Result<(), EdgeError> {
    if plan.mode != Mode::Offload {
        return Ok(());
    }
    match weir_kernel::offers_offload(device.ifindex)? {
        true => Err(EdgeError::GraphOffload {
            port: plan.name.clone(),
            device: plan.device.clone(),
        }),
        false => Err(EdgeError::NoOffload {
            port: plan.name.clone(),
            device: plan.device.clone(),
            driver: device.driver.clone(),
        }),
    }
}

/// Which packets of a port are meant: a port on tc sees both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// Those that come in.
    Received,
    /// Those that leave, on tc.
    Transmitted,
}

impl PortState {
    /// The copy of `entry` for it. `ledger`: the counters of the one that it replaces.
    pub(super) fn entry(
        &self,
        sees: Sees,
        form: Form,
        edge: &EdgeMaps,
        ledger: Option<&Map>,
    ) -> Result<LoadedProgram, EdgeError> {
        let transmit = match sees {
            Sees::Received => 0,
            Sees::Transmitted => away::TRANSMIT,
        };
        let constants = [
            ("weir_port", self.number),
            ("weir_csum_mode", csum_mode(self.offloaded)),
            ("weir_away", self.away | transmit),
        ];
        load_own("entry", self.hook(), form, &constants, edge, ledger)
    }

    /// Its attachments that run a copy of `entry`: pins, and what the copies see.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, Sees)> {
        let transmit = self.transmit.as_deref();
        let transmit = transmit.map(|pin| (pin, Sees::Transmitted));
        std::iter::once((self.pin.as_str(), Sees::Received)).chain(transmit)
    }
}

impl Wanted<'_> {
    /// What the state says of it once it runs, but for its pins.
    pub(super) fn state(&self) -> PortState {
        PortState {
            name: self.plan.name.clone(),
            device: self.plan.device.clone(),
            ifindex: self.device.ifindex,
            number: self.plan.number,
            mode: self.plan.mode.text().to_owned(),
            offloaded: self.offloaded,
            away: self.away(),
            metadata: self.plan.metadata,
            pin: String::new(),
            handover: None,
            transmit: None,
        }
    }

    /// What its programs must know of the device when they send a packet back by it ([`away`]).
    pub(super) fn away(&self) -> u32 {
        match self.plan.mode {
            Mode::Generic | Mode::Tc => away::GENERIC,
            _ if self.device.is_veth() => away::VETH,
            _ => 0,
        }
    }

    /// Attaches a copy of `entry`; yields the name of the pin of its link.
    pub(super) fn attach(
        &self,
        sees: Sees,
        generation: u64,
        form: Form,
        edge: &EdgeMaps,
        building: &mut Building<'_>,
    ) -> Result<String, EdgeError> {
        let of = |error| match error {
            KernelError::NoTcx => EdgeError::NoTcx {
                port: self.plan.name.clone(),
            },
            error => EdgeError::Of {
                who: format!("port {}", self.plan.name),
                error,
            },
        };
        let number = self.plan.number;
        let (pin, direction) = match sees {
            Sees::Received => (format!("port-{number}-{generation}"), Direction::Ingress),
            Sees::Transmitted => {
                // Until the switch, as received packets of a new port: no generation before had anything here.
                edge.set_transmit(number, generation - 1, STACK)?;
                (format!("port-{number}-out-{generation}"), Direction::Egress)
            }
        };
        let entry = self.state().entry(sees, form, edge, None)?;
        let path = building.link(&pin);
        let index = self.device.ifindex;
        let link = match self.plan.mode {
            Mode::Tc => entry.attach_tcx(index, direction),
            Mode::Generic => entry.attach_xdp(index, XdpMode::Generic),
            Mode::Native | Mode::Offload => entry.attach_xdp(index, XdpMode::Native),
        };
        link.map_err(of)?.pin(&path).map_err(of)?;
        Ok(pin)
    }

    /// Attaches the tc program that gives packets their mark back.
    pub(super) fn hand_over(
        &self,
        generation: u64,
        building: &mut Building<'_>,
    ) -> Result<String, EdgeError> {
        let of = |error| EdgeError::Of {
            who: format!("port {}", self.plan.name),
            error,
        };
        let elf = weir_bpf::object("handover_tc").ok_or_else(|| EdgeError::NoObject {
            instance: "handover".to_owned(),
            object: "handover_tc".to_owned(),
        })?;
        let object = weir_kernel::KernelObject::open(elf).map_err(of)?;
        let program = object.load("handover").map_err(of)?;
        let pin = format!("tc-{}-{generation}", self.plan.number);
        let path = building.link(&pin);
        let link = program
            .attach_tcx(self.device.ifindex, Direction::Ingress)
            .map_err(|error| match error {
                KernelError::NoTcx => EdgeError::NoHandover {
                    port: self.plan.name.clone(),
                },
                error => of(error),
            })?;
        link.pin(&path).map_err(of)?;
        Ok(pin)
    }
}

/// Names of the ends of an edge's pair, 10 bytes each: devices need short ones.
pub(super) fn pair_names(edge: &str) -> (String, String) {
    let digest = Digest::new().text(edge).finish();
    let tail = &digest[digest.len() - 7..];
    (format!("wr{tail}n"), format!("wr{tail}f"))
}

/// Makes the pair and attaches `resume` to its far end.
pub(super) fn make_pair(
    name: &str,
    generation: u64,
    form: Form,
    edge: &EdgeMaps,
    building: &mut Building<'_>,
) -> Result<PairState, EdgeError> {
    /// Frames of any port must fit.
    const MTU: u32 = 65_535;
    let (near, far) = pair_names(name);
    building.pair(&near);
    netlink::create_veth(&near, &far, MTU)?;
    let ifindex = iface::index_of(&near)?;
    let far_ifindex = iface::index_of(&far)?;
    take_home(&near, ifindex, "to_device")?;
    take_home(&far, far_ifindex, "to_stack")?;
    let near_pin = format!("pair-near-{generation}");
    let path = building.link(&near_pin);
    let near_end = load_own("near", Hook::Xdp, form, &[], edge, None)?;
    let link = near_end.attach_xdp(ifindex, XdpMode::Native)?;
    link.pin(&path)?;
    let resume = load_own("resume", Hook::Xdp, form, RESUME, edge, None)?;
    let pin = format!("pair-{generation}");
    let path = building.link(&pin);
    let link = resume.attach_xdp(far_ifindex, XdpMode::Native)?;
    link.pin(&path)?;
    building.device(PAIR_PLACE);
    edge.set_device(PAIR_PLACE, Some(ifindex))?;
    Ok(PairState {
        near,
        far,
        ifindex,
        far_ifindex,
        pin,
        near_pin,
    })
}

/// Constants of the program of the pair's far end.
pub(super) const RESUME: &[(&str, u32)] = &[("weir_homecoming", 1)];

/// Lets packets that leave the graph by an end of the pair leave by the device that they came in by. The filter needs no pin, as it goes
/// with the pair.
fn take_home(name: &str, ifindex: u32, program: &'static str) -> Result<(), EdgeError> {
    let of = |error| EdgeError::Of {
        who: format!("recirculation through {name}"),
        error,
    };
    let object = "homecoming_tc";
    let elf = weir_bpf::object(object).ok_or_else(|| EdgeError::NoObject {
        instance: "homecoming".to_owned(),
        object: object.to_owned(),
    })?;
    let object = weir_kernel::KernelObject::open(elf).map_err(of)?;
    let program = object.load(program).map_err(of)?;
    let filter = Filter::attach(&program, ifindex, Direction::Ingress, false).map_err(of)?;
    filter.keep();
    Ok(())
}

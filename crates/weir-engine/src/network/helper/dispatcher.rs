//! What becomes of packets that are handed over, and of what controllers ask. Holds who listens to what.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, TrySendError};

use weir_bpf::abi::{NetFlow, NetFlowKey, NetRecord, punt};
use weir_network::dhcp::{self, Kind};
use weir_network::values::{address, number, words};
use weir_packet::checksum::checksum;
use zerocopy::{FromBytes, IntoBytes};

use super::generation::{HelperGeneration, SIDES};
use super::line::{
    self, Action, Answer, Flow, Function, Handed, Installed, Interface, Packet, Request,
};
use super::{Counts, now_ns};

/// A packet that waited for longer is nobody's any more: a helper before this one was killed.
const STALE_NS: u64 = punt::HEARD_NS;
const SECOND_NS: u64 = 1_000_000_000;

/// A controller that listens.
#[derive(Debug)]
struct Listener {
    client: u64,
    lines: SyncSender<String>,
    lost: u64,
}

/// The helper's knowledge.
#[derive(Debug)]
pub(super) struct PuntDispatcher {
    dhcp: bool,
    place: Option<HelperGeneration>,
    /// By network and function.
    listeners: BTreeMap<(String, String), Listener>,
    counts: Counts,
}

impl PuntDispatcher {
    pub(super) fn new(dhcp: bool) -> PuntDispatcher {
        PuntDispatcher {
            dhcp,
            place: None,
            listeners: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn generation(&self) -> Option<u64> {
        self.place.as_ref().map(HelperGeneration::generation)
    }

    /// What runs now. Controllers stay with their functions, by name.
    pub(super) fn place(&mut self, place: Option<HelperGeneration>) {
        self.place = place;
        self.beat();
    }

    /// Tells the data plane who listens.
    pub(super) fn beat(&self) {
        let Some(place) = &self.place else {
            return;
        };
        if self.dhcp {
            place.leases().for_each(|vid| place.heard(vid, true));
        }
        for (network, name) in self.listeners.keys() {
            self.say(place, network, name, true);
        }
    }

    /// Tells it that nobody does any more.
    pub(super) fn hush(&mut self) {
        let Some(place) = &self.place else {
            return;
        };
        let sides = place.functions().iter().flat_map(|one| one.sides);
        for vid in place.leases().chain(sides).filter(|vid| *vid != 0) {
            place.heard(vid, false);
        }
    }

    fn say(&self, place: &HelperGeneration, network: &str, name: &str, listens: bool) {
        if let Some(at) = place.function(network, name) {
            let sides = place.functions()[at].sides.into_iter();
            sides
                .filter(|vid| *vid != 0)
                .for_each(|vid| place.heard(vid, listens));
        }
    }

    /// Removes flows that are past.
    pub(super) fn sweep(&mut self) {
        if let Some(place) = &mut self.place {
            // What could not be removed is not followed either, and is tried again.
            let _ = place.sweep();
        }
    }

    /// Whether a record is of a generation that is not known yet.
    pub(super) fn is_behind(&self, record: &[u8]) -> bool {
        let said = NetRecord::read_from_prefix(record).map(|(record, _)| record.generation);
        said.is_ok_and(|generation| self.generation().is_none_or(|known| known < generation))
    }

    /// A packet that the data plane handed over.
    pub(super) fn take(&mut self, record: &[u8]) {
        self.counts.received += 1;
        let Ok((record, bytes)) = NetRecord::read_from_prefix(record) else {
            self.counts.stale += 1;
            return;
        };
        let (Some(place), Some(frame)) = (&self.place, bytes.get(..record.len as usize)) else {
            self.counts.stale += 1;
            return;
        };
        if now_ns().saturating_sub(record.time_ns) > STALE_NS {
            self.counts.stale += 1;
            return;
        }
        if let Some(lease) = place.lease(record.vid) {
            match dhcp::answer(lease, frame) {
                Ok((kind, answer)) => {
                    match kind {
                        Kind::Offer => self.counts.offered += 1,
                        Kind::Nak => self.counts.refused += 1,
                        _ => self.counts.leased += 1,
                    }
                    match place.send(record.vid, &answer) {
                        Ok(()) => self.counts.sent += 1,
                        Err(_) => self.counts.unsent += 1,
                    }
                }
                Err(_) => self.counts.silent += 1,
            }
            return;
        }
        let Some((at, interface)) = place.side(record.vid) else {
            self.counts.stale += 1;
            return;
        };
        let function = &place.functions()[at];
        let key = (function.network.clone(), function.name.clone());
        let Some(listener) = self.listeners.get_mut(&key) else {
            self.counts.lost += 1;
            return;
        };
        let handed = Handed {
            packet: Packet {
                tenant: &function.tenant,
                network: &function.network,
                function: &function.name,
                interface,
                data: line::hex(&finished(frame, &record)),
            },
        };
        let Ok(text) = serde_json::to_string(&handed) else {
            return;
        };
        match listener.lines.try_send(text) {
            Ok(()) => self.counts.given += 1,
            Err(TrySendError::Full(_)) => {
                listener.lost += 1;
                self.counts.lost += 1;
            }
            Err(TrySendError::Disconnected(_)) => self.counts.lost += 1,
        }
    }

    /// A controller is gone.
    pub(super) fn leave(&mut self, client: u64) {
        let gone: Vec<(String, String)> = (self.listeners.iter())
            .filter(|(_, listener)| listener.client == client)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.listeners.remove(&key);
            if let Some(place) = &self.place {
                self.say(place, &key.0, &key.1, false);
            }
        }
    }

    /// What a line of a controller asks; `lines` leads back to it.
    pub(super) fn answer(&mut self, client: u64, line: &str, lines: &SyncSender<String>) -> Answer {
        let request: Request = match serde_json::from_str(line) {
            Ok(request) => request,
            Err(error) => return Answer::refused(format!("not understood: {error}")),
        };
        self.obey(client, request, lines)
            .unwrap_or_else(Answer::refused)
    }

    fn obey(
        &mut self,
        client: u64,
        request: Request,
        lines: &SyncSender<String>,
    ) -> Result<Answer, String> {
        let place = self.place.as_mut().ok_or("no networks run on this edge")?;
        match request {
            Request::List {} => {
                let listed = place.functions().iter().map(|one| Function {
                    tenant: one.tenant.clone(),
                    network: one.network.clone(),
                    function: one.name.clone(),
                    heard: (self.listeners).contains_key(&(one.network.clone(), one.name.clone())),
                });
                Ok(Answer {
                    functions: Some(listed.collect()),
                    ..Answer::done()
                })
            }
            Request::Listen { network, function } => {
                function_of(place, &network, &function)?;
                let key = (network, function);
                if let Some(other) = self.listeners.get(&key) {
                    return match other.client == client {
                        true => Ok(Answer::done()),
                        false => Err("another controller listens to this function".to_owned()),
                    };
                }
                let listener = Listener {
                    client,
                    lines: lines.clone(),
                    lost: 0,
                };
                self.listeners.insert(key, listener);
                self.beat();
                Ok(Answer::done())
            }
            Request::Send {
                network,
                function,
                interface,
                data,
            } => {
                let at = function_of(place, &network, &function)?;
                let vid = side_of(place, at, &interface)?;
                let frame =
                    line::bytes(&data).ok_or("`data` is not pairs of hexadecimal digits")?;
                match place.send(vid, &frame) {
                    Ok(()) => self.counts.sent += 1,
                    Err(error) => {
                        self.counts.unsent += 1;
                        return Err(error);
                    }
                }
                Ok(Answer::done())
            }
            Request::Install {
                network,
                function,
                interface,
                flow,
                action,
                by,
                idle,
            } => {
                let at = function_of(place, &network, &function)?;
                let vid = side_of(place, at, &interface)?;
                let to = match (action, by) {
                    (Action::Forward, Some(by)) => side_of(place, at, &by)?,
                    (Action::Forward, None) => {
                        return Err(
                            "`forward` needs `by`: the interface that packets leave by".into()
                        );
                    }
                    (Action::Drop, None) => 0,
                    (Action::Drop, Some(_)) => return Err("`drop` takes no `by`".into()),
                };
                let value = NetFlow {
                    action: match action {
                        Action::Forward => punt::FORWARD,
                        Action::Drop => punt::DROP,
                    },
                    vid: to,
                    idle_ns: u64::from(idle) * SECOND_NS,
                    seen_ns: now_ns(),
                    packets: 0,
                    bytes: 0,
                };
                place.install(at, &key_of(vid, &flow)?, &value)?;
                Ok(Answer::done())
            }
            Request::Remove {
                network,
                function,
                interface,
                flow,
            } => {
                let at = function_of(place, &network, &function)?;
                let vid = side_of(place, at, &interface)?;
                let key = key_of(vid, &flow)?;
                let removed = place.remove(at, key.as_bytes());
                match removed.map_err(|error| error.to_string())? {
                    true => Ok(Answer::done()),
                    false => Err("no such flow is installed".to_owned()),
                }
            }
            Request::Flows { network, function } => {
                let at = function_of(place, &network, &function)?;
                let flows = place.flows(at).map_err(|error| error.to_string())?;
                let told = flows
                    .iter()
                    .filter_map(|(key, flow)| tell(place, key, flow));
                Ok(Answer {
                    flows: Some(told.collect()),
                    ..Answer::done()
                })
            }
            Request::Counters { network, function } => {
                let at = function_of(place, &network, &function)?;
                let interfaces: Result<Vec<Interface>, _> = SIDES
                    .iter()
                    .filter_map(|side| Some((*side, place.vid(at, side)?)))
                    .map(|(side, vid)| interface(place, side, vid))
                    .collect();
                let lost = self.listeners.get(&(network, function));
                Ok(Answer {
                    interfaces: Some(interfaces.map_err(|error| error.to_string())?),
                    lost: Some(lost.map_or(0, |listener| listener.lost)),
                    ..Answer::done()
                })
            }
        }
    }
}

fn interface(
    place: &HelperGeneration,
    side: &'static str,
    vid: u32,
) -> Result<Interface, crate::network::NetworkError> {
    let [packets, bytes, dropped] = place.count(vid)?;
    let own = place.punted(vid)?;
    Ok(Interface {
        interface: side,
        packets,
        bytes,
        dropped,
        reasons: place.drops(vid)?,
        punted: own.punted,
        sent: own.injected,
    })
}

fn function_of(place: &HelperGeneration, network: &str, name: &str) -> Result<usize, String> {
    let none = || format!("network `{network}` has no punt function `{name}` on this edge");
    place.function(network, name).ok_or_else(none)
}

fn side_of(place: &HelperGeneration, function: usize, side: &str) -> Result<u32, String> {
    let none =
        || format!("the function has no interface `{side}` on this edge: they are `a` and `b`");
    place.vid(function, side).ok_or_else(none)
}

fn key_of(vid: u32, flow: &Flow) -> Result<NetFlowKey, String> {
    if flow.from.is_ipv4() != flow.to.is_ipv4() {
        return Err(format!("no packet goes from {} to {}", flow.from, flow.to));
    }
    if !matches!(flow.protocol, 6 | 17 | 132) && (flow.from_port, flow.port) != (0, 0) {
        return Err(format!("protocol {} has no ports", flow.protocol));
    }
    Ok(NetFlowKey {
        source: words(number(flow.from)),
        target: words(number(flow.to)),
        vid,
        from: flow.from_port,
        to: flow.port,
        protocol: flow.protocol,
        pad: [0; 7],
    })
}

fn tell(place: &HelperGeneration, key: &NetFlowKey, flow: &NetFlow) -> Option<Installed> {
    let (_, interface) = place.side(key.vid)?;
    Some(Installed {
        interface,
        flow: Flow {
            protocol: key.protocol,
            from: address_of(key.source),
            to: address_of(key.target),
            from_port: key.from,
            port: key.to,
        },
        action: match flow.action {
            punt::FORWARD => Action::Forward,
            _ => Action::Drop,
        },
        by: place.side(flow.vid).map(|(_, side)| side),
        idle: (flow.idle_ns / SECOND_NS) as u32,
        packets: flow.packets,
        bytes: flow.bytes,
    })
}

fn address_of([high, low]: [u64; 2]) -> IpAddr {
    let bytes = [high.to_ne_bytes(), low.to_ne_bytes()].concat();
    let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
    address(u128::from_be_bytes(bytes))
}

/// The frame with the checksum that its sender left to a device: the field holds the plain sum of the pseudo-header.
fn finished(frame: &[u8], record: &NetRecord) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (field, from) = (usize::from(record.unfinished), usize::from(record.l4));
    if field == 0 || field + 2 > frame.len() || from > field {
        return frame;
    }
    // What lies behind the IP packet (padding of short frames) is zeros, which add nothing.
    let value = match checksum(&frame[from..]) {
        0 => 0xffff,
        value => value,
    };
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    frame
}

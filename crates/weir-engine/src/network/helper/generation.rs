//! What runs, as a helper sees it: names of interfaces, who is leased what, and the ways to the data plane.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::{NetFlow, NetFlowKey, NetInject, NetPunted, punt};
use weir_kernel::{KernelError, Map, MmapArray, PacketSocket, iface};
use weir_network::{EdgeNetworks, Lease, PuntFunction};
use weir_packet::Reason;
use zerocopy::{FromBytes, IntoBytes};

use super::now_ns;
use crate::network::apply::far_end;
use crate::network::{Look, NetworkError};

/// Names of the interfaces of punt functions.
pub(super) const SIDES: [&str; 2] = ["a", "b"];

/// Shortest frame.
const HEADER: usize = 14;

/// One generation of an edge's networks.
pub(super) struct HelperGeneration {
    look: Look,
    functions: Vec<PuntFunction>,
    leases: BTreeMap<u32, Lease>,
    /// Function and side of interfaces.
    sides: BTreeMap<u32, (usize, usize)>,
    punted: MmapArray,
    far: PacketSocket,
    /// Flows that are installed, of each function.
    flows: Vec<BTreeSet<Vec<u8>>>,
}

impl std::fmt::Debug for HelperGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HelperGeneration").finish_non_exhaustive()
    }
}

impl HelperGeneration {
    /// What is there; flows that were installed before are known.
    pub(super) fn new(look: Look, plan: EdgeNetworks) -> Result<HelperGeneration, NetworkError> {
        let near = iface::name_of(look.set.pair()).ok_or_else(|| NetworkError::Incomplete {
            what: "the pair that packets go around by".to_owned(),
        })?;
        let far = PacketSocket::open(&far_end(&near))?;
        let mut sides = BTreeMap::new();
        for (at, function) in plan.punt_functions.iter().enumerate() {
            for (side, vid) in function.sides.into_iter().enumerate() {
                sides.insert(vid, (at, side));
            }
        }
        sides.remove(&0);
        let mut flows = vec![BTreeSet::new(); plan.punt_functions.len()];
        for key in look.set.map("net_flows")?.keys()? {
            let vid = NetFlowKey::read_from_bytes(&key).map_or(0, |flow| flow.vid);
            if let Some((at, _)) = sides.get(&vid) {
                flows[*at].insert(key);
            }
        }
        Ok(HelperGeneration {
            punted: look.set.map("net_punted")?.mmap()?,
            functions: plan.punt_functions,
            leases: plan.leases.into_iter().map(|one| (one.vid, one)).collect(),
            sides,
            far,
            flows,
            look,
        })
    }

    pub(super) fn generation(&self) -> u64 {
        self.look.generation
    }

    pub(super) fn functions(&self) -> &[PuntFunction] {
        &self.functions
    }

    /// A function by its names.
    pub(super) fn function(&self, network: &str, name: &str) -> Option<usize> {
        let is = |one: &PuntFunction| one.network == network && one.name == name;
        self.functions.iter().position(is)
    }

    /// VID of an interface of a function.
    pub(super) fn vid(&self, function: usize, side: &str) -> Option<u32> {
        let side = SIDES.iter().position(|name| *name == side)?;
        Some(self.functions[function].sides[side]).filter(|vid| *vid != 0)
    }

    /// The function, and the name of its interface.
    pub(super) fn side(&self, vid: u32) -> Option<(usize, &'static str)> {
        let (function, side) = self.sides.get(&vid)?;
        Some((*function, SIDES[*side]))
    }

    pub(super) fn lease(&self, vid: u32) -> Option<&Lease> {
        self.leases.get(&vid)
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = u32> {
        self.leases.keys().copied()
    }

    /// Tells the data plane that somebody listens at an interface, or that nobody does.
    pub(super) fn heard(&self, vid: u32, listens: bool) {
        let word = if listens { now_ns() } else { 0 };
        // Beyond the map lies no interface.
        let _ = self
            .punted
            .write(vid as usize * size_of::<NetPunted>(), &word.to_ne_bytes());
    }

    /// What went to the helper and came from it.
    pub(super) fn punted(&self, vid: u32) -> Result<NetPunted, NetworkError> {
        let mut bytes = [0; size_of::<NetPunted>()];
        let at = vid as usize * bytes.len();
        self.punted.read(at, &mut bytes)?;
        Ok(NetPunted::read_from_bytes(&bytes).unwrap_or_default())
    }

    /// Packets, bytes and drops of an interface.
    pub(super) fn count(&self, vid: u32) -> Result<[u64; 3], NetworkError> {
        let count = self.look.set.count(vid)?;
        Ok([count.packets, count.bytes, count.dropped])
    }

    /// Drops at an interface by reason.
    pub(super) fn drops(&self, vid: u32) -> Result<BTreeMap<String, u64>, NetworkError> {
        let drops = self.look.set.drops()?.into_iter();
        let here = drops.filter(|(drop, _)| drop.vid == vid);
        Ok(here
            .map(|(drop, count)| {
                let known = Reason::ALL.get(drop.reason as usize);
                let name = known.map_or_else(|| drop.reason.to_string(), |one| one.name().into());
                (name, count)
            })
            .collect())
    }

    /// Sends a frame out by an interface, to whatever it is linked to.
    pub(super) fn send(&self, vid: u32, frame: &[u8]) -> Result<(), String> {
        if !(HEADER..=punt::MOST_BYTES as usize).contains(&frame.len()) {
            return Err(format!(
                "a frame has {HEADER} to {} bytes, this one has {}",
                punt::MOST_BYTES,
                frame.len()
            ));
        }
        let said = NetInject {
            generation: self.look.generation,
            vid,
            magic: punt::MAGIC,
        };
        let whole = [frame, said.as_bytes()].concat();
        self.far.send(&whole).map_err(|error| error.to_string())
    }

    fn map(&self) -> Result<&Map, NetworkError> {
        self.look.set.map("net_flows")
    }

    /// Puts a flow in, or in the place of one with the same key.
    pub(super) fn install(
        &mut self,
        function: usize,
        key: &NetFlowKey,
        flow: &NetFlow,
    ) -> Result<(), String> {
        let key = key.as_bytes();
        let most = self.functions[function].flows as usize;
        if !self.flows[function].contains(key) && self.flows[function].len() >= most {
            return Err(format!(
                "the function has {most} flows, which are as many as its document allows (`flows`)"
            ));
        }
        let map = self.map().map_err(|error| error.to_string())?;
        map.update(key, flow.as_bytes())
            .map_err(|error| error.to_string())?;
        self.flows[function].insert(key.to_vec());
        Ok(())
    }

    /// Takes a flow out; `false`: it is not there.
    pub(super) fn remove(&mut self, function: usize, key: &[u8]) -> Result<bool, NetworkError> {
        let found = self.map()?.delete(key)?;
        self.flows[function].remove(key);
        Ok(found)
    }

    /// The flows of a function.
    pub(super) fn flows(&self, function: usize) -> Result<Vec<(NetFlowKey, NetFlow)>, KernelError> {
        let Ok(map) = self.map() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for key in &self.flows[function] {
            let value = map.lookup(key)?;
            let flow = value.and_then(|bytes| NetFlow::read_from_bytes(&bytes).ok());
            found.extend(NetFlowKey::read_from_bytes(key).ok().zip(flow));
        }
        Ok(found)
    }

    /// Removes flows without packets for longer than they said.
    pub(super) fn sweep(&mut self) -> Result<(), NetworkError> {
        let now = now_ns();
        for function in 0..self.functions.len() {
            for (key, flow) in self.flows(function)? {
                if flow.idle_ns != 0 && now.saturating_sub(flow.seen_ns) > flow.idle_ns {
                    self.remove(function, key.as_bytes())?;
                }
            }
        }
        Ok(())
    }
}

//! The graph in the running kernel: all programs loaded, none attached, one `BPF_PROG_TEST_RUN` of a port's entry program a packet.
//!
//! Redirects end in the verdict, so that every place of the map of devices can be the loopback device, which every namespace has.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_bpf::abi::{Chain, Stats, panel};
use weir_functions::plan::HostElement;
use weir_kernel::{
    KernelError, KernelObject, LoadedProgram, Map, MapDefinition, MmapArray, TestCtx,
};
use weir_packet::Verdict;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    CHAIN, Contents, DEVICES, EDGE, EVENTS, GENERATION, GraphEngine, GraphLog, Hook, Outcome, Own,
    PAIR_PLACE, PROGRAMS, Program, REPLAY, ROUNDS, STATS, Sees, TC_PROGRAMS, Totals, Wiring, slot,
    summed,
};
use crate::{EngineError, Packet};

/// Interface of the loopback device in every namespace.
const LOOPBACK: u32 = 1;

pub(super) struct Kernel {
    wiring: Wiring,
    own: Own,
    entries: Vec<LoadedProgram>,
    transmits: Vec<Option<LoadedProgram>>,
    instances: Vec<LoadedProgram>,
    resume: Option<LoadedProgram>,
    shared: Shared,
    replay: Option<MmapArray>,
    /// The word of generations. Each packet has one of its own, which tells whose way is whose.
    word: MmapArray,
    generation: u64,
    logs: Vec<GraphLog>,
    /// Any instance writes log lines.
    logging: bool,
}

/// Maps that several programs use, by the names they are shared by, with what the first object declared.
#[derive(Default)]
struct Shared(BTreeMap<String, (Map, MapDefinition)>);

impl Shared {
    /// Loads a program with the shared maps there are; those it is first to declare are shared from then on.
    fn load(&mut self, program: &Program) -> Result<LoadedProgram, EngineError> {
        let mut object = KernelObject::open(program.elf()?)?;
        for (symbol, bytes) in &program.constants {
            object.set_rodata(symbol, bytes)?;
        }
        for (symbol, bytes) in &program.offered {
            if object.constants().any(|known| *known == **symbol) {
                object.set_rodata(symbol, bytes)?;
            }
        }
        for map in &program.maps {
            object.set_map_entries(&map.name, map.max_entries)?;
        }
        let mut first = Vec::new();
        for map in object.maps() {
            let Some(name) = program.shared_as(&map) else {
                continue;
            };
            let definition = object.map_definition(&map)?;
            match self.0.get(&name) {
                Some((shared, known)) if *known == definition => object.share_map(&map, shared)?,
                Some((_, known)) => {
                    return Err(EngineError::Graph(format!(
                        "shared map {name}: {known}, but {} declares {definition}; give both the same definition or do not share it",
                        program.name
                    )));
                }
                None => first.push((map, name, definition)),
            }
        }
        let loaded = object.load(&program.program)?;
        for (map, name, definition) in first {
            self.0.insert(name, (Map::of(&loaded, &map)?, definition));
        }
        Ok(loaded)
    }

    fn map(&self, name: &str) -> Result<&Map, EngineError> {
        let found = self.0.get(name).map(|(map, _)| map);
        found.ok_or_else(|| EngineError::Object {
            what: format!("map {name}"),
        })
    }
}

impl Kernel {
    pub(super) fn new(wiring: Wiring) -> Result<Kernel, EngineError> {
        let mut shared = Shared::default();
        let entries: Vec<LoadedProgram> = wiring
            .entries
            .iter()
            .map(|p| shared.load(p))
            .collect::<Result<_, _>>()?;
        let transmits = wiring.transmits.iter();
        let transmits = transmits.map(|p| p.as_ref().map(|p| shared.load(p)).transpose());
        let transmits: Vec<Option<LoadedProgram>> = transmits.collect::<Result<_, _>>()?;
        let mut instances = Vec::with_capacity(wiring.instances.len());
        for (place, program) in wiring.instances.iter().enumerate() {
            let loaded = shared.load(program)?;
            for map in program.maps.iter().filter(|map| map.has_contents()) {
                loaded.update_batch(&map.name, &map.keys, &map.values)?;
                for (place, _) in &map.devices {
                    let (place, index) = (place.to_ne_bytes(), LOOPBACK.to_ne_bytes());
                    loaded.update(&map.name, &place, &index, 0)?;
                }
                for (key, value) in map.host.iter().filter_map(HostElement::alone) {
                    loaded.update(&map.name, &key, &value, 0)?;
                }
            }
            let array = match program.hook {
                Hook::Xdp => PROGRAMS,
                Hook::Tc => TC_PROGRAMS,
            };
            shared.map(array)?.set_program(slot(place), &loaded)?;
            if let Some(Some(copy)) = wiring.copies.get(place) {
                let copy = shared.load(copy)?;
                shared.map(TC_PROGRAMS)?.set_program(slot(place), &copy)?;
            }
            instances.push(loaded);
        }
        for (map, at, value) in &wiring.elements {
            shared.map(map)?.update(&at.to_ne_bytes(), value)?;
        }
        let resume = match &wiring.resume {
            Some(program) => Some(shared.load(program)?),
            None => None,
        };
        for number in wiring.ports.iter().chain(&[PAIR_PLACE]) {
            // Where all ports are on tc there is no such map.
            if let Ok(devices) = shared.map(DEVICES) {
                devices.update(&number.to_ne_bytes(), &LOOPBACK.to_ne_bytes())?;
            }
        }
        let replay = match shared.map(REPLAY) {
            Ok(map) => Some(map.mmap()?),
            Err(_) => None,
        };
        Ok(Kernel {
            word: shared.map(EDGE)?.mmap()?,
            generation: GENERATION,
            logging: wiring.instances.iter().any(|p| p.logs),
            own: Own::new(&wiring),
            wiring,
            entries,
            transmits,
            instances,
            resume,
            shared,
            replay,
            logs: Vec::new(),
        })
    }

    /// The place in the map of devices that the packet's way ended with; `None` if an instance redirected it by itself.
    fn device(&self, verdict: Verdict) -> Result<Option<u32>, EngineError> {
        if verdict != Verdict::Redirect {
            return Ok(None);
        }
        let place = self.last_vid()?;
        Ok(place.filter(|place| (*place as usize) < panel::DEVICES))
    }

    /// What the chain of the packet names last.
    fn last_vid(&self) -> Result<Option<u32>, EngineError> {
        let chains = self.shared.map(CHAIN)?.lookup_percpu(&0u32.to_ne_bytes())?;
        let mut chains = chains.iter().filter_map(|c| Chain::read_from_bytes(c).ok());
        let ours = chains.find(|c| c.generation == self.generation);
        Ok(ours.map(|c| c.vid))
    }

    fn drain(&mut self) -> Result<(), EngineError> {
        let programs = self.wiring.instances.iter().zip(&mut self.instances);
        for (instance, (program, loaded)) in programs.enumerate() {
            if !program.logs {
                continue;
            }
            let logs = &mut self.logs;
            loaded.drain(EVENTS, Duration::ZERO, |bytes| {
                let line = crate::log_line(bytes);
                logs.extend(line.map(|line| GraphLog { instance, line }));
            })?;
        }
        Ok(())
    }
}

impl GraphEngine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn packet_of(
        &mut self,
        packet: &Packet<'_>,
        sees: Sees,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, EngineError> {
        let port = self.wiring.port(packet.port)?;
        let hook = self.wiring.entry(port, sees)?.hook;
        out.clear();
        if let Some(outcome) = self.own.refuse(port, sees, packet.frame) {
            return Ok(outcome);
        }
        if let Some(replay) = &self.replay {
            let input = crate::replay_input(packet, crate::Meta::default(), self.wiring.seed, 0);
            replay.write(0, input.as_bytes())?;
        }
        // An odd one again: links and entries stay those of the graph.
        self.generation += 2;
        self.word.publish(0, self.generation)?;
        let entry = match sees {
            Sees::Received => self.entries.get_mut(port),
            Sees::Transmitted => self.transmits.get_mut(port).and_then(Option::as_mut),
        };
        let Some(entry) = entry else {
            return Err(EngineError::Graph(format!("no port {}", packet.port)));
        };
        let mut outcome = entry.test_run(packet.frame, out, TestCtx::default())?;
        if hook == Hook::Tc {
            if self.logging {
                self.drain()?;
            }
            let (verdict, port) = super::tc_end(outcome.retval, self.last_vid()?);
            return Ok(self.own.left(verdict, port));
        }
        let mut port = self.device(crate::verdict(outcome.retval))?;
        let mut rounds = 0;
        while let (Some(PAIR_PLACE), Some(resume)) = (port, &mut self.resume) {
            let frame = std::mem::take(out);
            let ctx = TestCtx {
                metadata: outcome.metadata as u32,
                ..TestCtx::default()
            };
            outcome = resume.test_run(&frame, out, ctx)?;
            port = self.device(crate::verdict(outcome.retval))?;
            rounds += 1;
            if rounds > ROUNDS {
                return Err(super::endless(packet));
            }
        }
        // What is left in front of the frame is for the stack, not for the wire.
        out.drain(..outcome.metadata);
        if self.logging {
            // The ring is smaller than a capture can make it: empty it as we go.
            self.drain()?;
        }
        Ok(self.own.left(crate::verdict(outcome.retval), port))
    }

    fn logs(&mut self) -> Result<Vec<GraphLog>, EngineError> {
        Ok(std::mem::take(&mut self.logs))
    }

    fn totals(&mut self) -> Result<Totals, EngineError> {
        let ledger = |program: &LoadedProgram| {
            let values = program.lookup_percpu(STATS, &0u32.to_ne_bytes())?;
            Ok(crate::sum_stats(values.iter().map(Vec::as_slice)))
        };
        let ports: Result<Vec<Stats>, KernelError> = self.entries.iter().map(ledger).collect();
        let instances: Result<Vec<Stats>, KernelError> =
            self.instances.iter().map(ledger).collect();
        let resumed = self.resume.as_ref().map(ledger).transpose()?;
        let transmits = self.transmits.iter();
        let transmits = transmits.map(|program| program.as_ref().map(ledger).transpose());
        let transmits = transmits.collect::<Result<_, KernelError>>()?;
        Ok(self.own.totals(ports?, transmits, instances?, resumed))
    }

    fn contents(&mut self, instance: usize, map: &str) -> Result<Option<Contents>, EngineError> {
        let Some(program) = self.instances.get(instance) else {
            return Ok(None);
        };
        if !program.map_names().contains(&map) {
            return Ok(None);
        }
        let percpu = Map::of(program, map)?.is_percpu();
        let mut contents = Contents::new();
        for key in program.keys(map)? {
            let values = program.lookup_percpu(map, &key)?;
            let value = match percpu {
                true => summed(values.iter().map(Vec::as_slice)),
                false => values.into_iter().next().unwrap_or_default(),
            };
            contents.push((key, value));
        }
        contents.sort();
        Ok(Some(contents))
    }
}

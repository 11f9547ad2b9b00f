//! The graph in one machine of weir-vm: every port and instance is a part, tail calls go from one to another.

use std::collections::BTreeSet;

use weir_bpf::abi::{Chain, Stats};
use weir_functions::plan::{HostElement, MapPlan};
use weir_packet::Verdict;
use weir_vm::jit::Execution;
use weir_vm::verify::{Verified, VerifyOptions, verify};
use weir_vm::{
    BPF_ANY, Env, Frame, Join, LoadError, Machine, MapKind, Object, Redirect, Routes, Skb,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    CHAIN, Contents, DEVICES, EVENTS, GraphEngine, GraphLog, Hook, Outcome, Own, PAIR_PLACE,
    PROGRAMS, Program, REPLAY, ROUNDS, STATS, Sees, TC_PROGRAMS, Totals, Wiring, slot, summed,
};
use crate::{EngineError, Packet};

pub(super) struct User {
    machine: Machine,
    frame: Frame,
    /// The packet of a port on tc.
    skb: Box<Skb>,
    wiring: Wiring,
    own: Own,
    /// Place of the port whose entry program is selected, and for which of its packets.
    selected: Option<(usize, Sees)>,
    /// Some instance reads the map of the packet's circumstances.
    replays: bool,
}

impl User {
    pub(super) fn new(wiring: Wiring, execution: Execution) -> Result<User, EngineError> {
        let mut join = Join::new();
        for program in wiring.programs() {
            join.add(&program.name, object(program)?, |map| {
                program.shared_as(map)
            })?;
        }
        let first = wiring
            .entries
            .first()
            .ok_or_else(|| EngineError::Graph("a graph without ports".to_owned()))?;
        let mut machine = join.load(&called(first, &first.program))?;
        for (map, at, value) in &wiring.elements {
            update(&mut machine, map, &at.to_ne_bytes(), value)?;
        }
        for (place, program) in wiring.instances.iter().enumerate() {
            let copy = wiring.copies.get(place).and_then(Option::as_ref);
            for program in std::iter::once(program).chain(copy) {
                let array = match program.hook {
                    Hook::Xdp => PROGRAMS,
                    Hook::Tc => TC_PROGRAMS,
                };
                machine.set_tail_call(array, slot(place), &called(program, &program.program))?;
            }
            for map in &program.maps {
                let name = program
                    .shared_as(&map.name)
                    .unwrap_or_else(|| called(program, &map.name));
                fill(&mut machine, &name, map)?;
            }
        }
        for number in wiring.ports.iter().chain(&[PAIR_PLACE]) {
            // Where all ports are on tc there is no such map.
            if machine.map(DEVICES).is_some() {
                let number = number.to_ne_bytes();
                update(&mut machine, DEVICES, &number, &number)?;
            }
        }
        if execution == Execution::Jit {
            compile(&mut machine, &wiring)?;
        }
        Ok(User {
            replays: machine.map(REPLAY).is_some(),
            machine,
            frame: Frame::new(&[]),
            skb: Box::new(Skb::new(&[])),
            own: Own::new(&wiring),
            wiring,
            selected: Some((0, Sees::Received)),
        })
    }

    /// Runs the selected program over the frame as it is; also the place of the device it was redirected to.
    fn run(&mut self, number: u64, env: &Env) -> Result<(Verdict, Option<u32>), EngineError> {
        let action = self
            .machine
            .run_xdp(&mut self.frame, env)
            .map_err(|fault| EngineError::Fault {
                number: number + 1,
                fault: Box::new(fault),
            })?;
        let verdict = crate::verdict(action);
        let place = match self.machine.redirect() {
            Some(Redirect::Map { map, key, .. })
                if verdict == Verdict::Redirect && map == DEVICES =>
            {
                u32::try_from(*key).ok()
            }
            _ => None,
        };
        Ok((verdict, place))
    }

    /// The same of a packet on tc, which is a socket buffer.
    fn run_tc(&mut self, number: u64, env: &Env) -> Result<(Verdict, Option<u32>), EngineError> {
        let action =
            self.machine
                .run_tc(&mut self.skb, env)
                .map_err(|fault| EngineError::Fault {
                    number: number + 1,
                    fault: Box::new(fault),
                })?;
        let chain = self.machine.map(CHAIN);
        let chain = chain.and_then(|map| map.lookup(&0u32.to_ne_bytes()));
        let chain = chain.and_then(|value| Some(Chain::read_from_prefix(&value).ok()?.0));
        Ok(super::tc_end(action, chain.map(|chain| chain.vid)))
    }

    fn stats(&self, program: &Program) -> Result<Stats, EngineError> {
        let name = called(program, STATS);
        let map = self.machine.map(&name).ok_or_else(|| missing(&name))?;
        let value = map
            .lookup(&0u32.to_ne_bytes())
            .ok_or_else(|| missing(&name))?;
        Ok(crate::sum_stats(value.chunks_exact(size_of::<Stats>())))
    }
}

impl GraphEngine for User {
    fn name(&self) -> &'static str {
        match self.machine.execution() {
            Execution::Interpreter => "user",
            Execution::Jit => "user-jit",
        }
    }

    fn packet_of(
        &mut self,
        packet: &Packet<'_>,
        sees: Sees,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, EngineError> {
        let port = self.wiring.port(packet.port)?;
        let entry = self.wiring.entry(port, sees)?;
        let hook = entry.hook;
        out.clear();
        if let Some(outcome) = self.own.refuse(port, sees, packet.frame) {
            return Ok(outcome);
        }
        if self.selected != Some((port, sees)) {
            self.machine.select(&called(entry, &entry.program))?;
            self.selected = Some((port, sees));
        }
        if self.replays {
            let input = crate::replay_input(packet, crate::Meta::default(), self.wiring.seed, 0);
            let map = self.machine.map_mut(REPLAY);
            let value = map.and_then(|m| m.value_mut(&0u32.to_ne_bytes()));
            value
                .ok_or_else(|| missing(REPLAY))?
                .copy_from_slice(input.as_bytes());
        }
        let env = Env {
            now_ns: packet.now_ns,
            rx_queue: packet.queue.into(),
            random_seed: self.wiring.seed,
            ..Env::default()
        };
        if hook == Hook::Tc {
            self.skb.reset(packet.frame);
            let (verdict, port) = self.run_tc(packet.number, &env)?;
            out.extend_from_slice(self.skb.data());
            return Ok(self.own.left(verdict, port));
        }
        self.frame.reset(packet.frame);
        let (mut verdict, mut port) = self.run(packet.number, &env)?;
        let mut rounds = 0;
        while let (Some(PAIR_PLACE), Some(resume)) = (port, &self.wiring.resume) {
            self.machine.select(&called(resume, &resume.program))?;
            self.selected = None;
            (verdict, port) = self.run(packet.number, &env)?;
            rounds += 1;
            if rounds > ROUNDS {
                return Err(super::endless(packet));
            }
        }
        out.extend_from_slice(self.frame.data());
        Ok(self.own.left(verdict, port))
    }

    fn logs(&mut self) -> Result<Vec<GraphLog>, EngineError> {
        let mut logs = Vec::new();
        for (instance, program) in self.wiring.instances.iter().enumerate() {
            if !program.logs {
                continue;
            }
            let records = self.machine.drain_ringbuf(&called(program, EVENTS));
            let lines = records.iter().filter_map(|r| crate::log_line(r));
            logs.extend(lines.map(|line| GraphLog { instance, line }));
        }
        Ok(logs)
    }

    fn totals(&mut self) -> Result<Totals, EngineError> {
        let ledgers = |programs: &[Program]| programs.iter().map(|p| self.stats(p)).collect();
        let ports: Result<Vec<Stats>, EngineError> = ledgers(&self.wiring.entries);
        let instances: Result<Vec<Stats>, EngineError> = ledgers(&self.wiring.instances);
        let resumed = self.wiring.resume.as_ref().map(|p| self.stats(p));
        let transmits = self.wiring.transmits.iter();
        let transmits = transmits.map(|p| p.as_ref().map(|p| self.stats(p)).transpose());
        let transmits = transmits.collect::<Result<_, _>>()?;
        Ok((self.own).totals(ports?, transmits, instances?, resumed.transpose()?))
    }

    fn set_routes(&mut self, routes: Routes) {
        self.machine.set_routes(routes);
    }

    fn contents(&mut self, instance: usize, map: &str) -> Result<Option<Contents>, EngineError> {
        let Some(program) = self.wiring.instances.get(instance) else {
            return Ok(None);
        };
        let name = program
            .shared_as(map)
            .unwrap_or_else(|| called(program, map));
        let Some(map) = self.machine.map(&name) else {
            return Ok(None);
        };
        let width = map.definition().value_size as usize;
        let mut contents: Contents = map
            .keys()
            .filter_map(|key| {
                let value = map.lookup(&key)?;
                if !map.kind().is_percpu() {
                    return Some((key, value));
                }
                let each = value.chunks_exact(width.next_multiple_of(8).max(1));
                Some((
                    key,
                    summed(each.map(|v| v.get(..width).unwrap_or_default())),
                ))
            })
            .collect();
        contents.sort();
        Ok(Some(contents))
    }
}

fn object(program: &Program) -> Result<Object, EngineError> {
    let mut object = Object::parse(program.elf()?)?;
    for (symbol, bytes) in &program.constants {
        object.set_rodata(symbol, bytes)?;
    }
    for (symbol, bytes) in &program.offered {
        match object.set_rodata(symbol, bytes) {
            Ok(()) | Err(LoadError::NoConstant(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for map in &program.maps {
        object.set_map_entries(&map.name, map.max_entries)?;
    }
    Ok(object)
}

/// Verifies every program of the graph and what their own tail calls reach, and makes native code of all.
fn compile(machine: &mut Machine, wiring: &Wiring) -> Result<(), EngineError> {
    let options = VerifyOptions::default();
    let ours = wiring.programs().map(|p| called(p, &p.program));
    let mut names: BTreeSet<String> = ours.collect();
    for name in machine.map_names() {
        let map = machine.map(name);
        let array = map.filter(|map| map.kind() == MapKind::ProgArray);
        let keys = array.into_iter().flat_map(|map| map.keys());
        names.extend(keys.filter_map(|key| machine.reference(name, &key).map(str::to_owned)));
    }
    let verified: Vec<Verified> = names
        .iter()
        .map(|name| verify(machine, name, &options))
        .collect::<Result<_, _>>()
        .map_err(weir_vm::jit::CompileError::from)?;
    machine
        .compile(&verified.iter().collect::<Vec<_>>())
        .map_err(weir_vm::jit::CompileError::from)?;
    Ok(())
}

fn called(program: &Program, what: &str) -> String {
    format!("{}/{what}", program.name)
}

/// Puts the planned contents into a map of the machine.
pub(crate) fn fill(machine: &mut Machine, name: &str, map: &MapPlan) -> Result<(), EngineError> {
    for (key, value) in map.entries() {
        update(machine, name, key, value)?;
    }
    // Which device it would be does not matter: nothing is sent.
    for (place, _) in &map.devices {
        let place = place.to_ne_bytes();
        update(machine, name, &place, &1u32.to_ne_bytes())?;
    }
    for (key, value) in map.host.iter().filter_map(HostElement::alone) {
        update(machine, name, &key, &value)?;
    }
    Ok(())
}

pub(crate) fn update(
    machine: &mut Machine,
    map: &str,
    key: &[u8],
    value: &[u8],
) -> Result<(), EngineError> {
    let target = machine.map_mut(map).ok_or_else(|| missing(map))?;
    target
        .update_all(key, value, BPF_ANY)
        .map_err(|error| EngineError::Map {
            map: map.to_owned(),
            error,
        })
}

pub(crate) fn missing(map: &str) -> EngineError {
    EngineError::Object {
        what: format!("map {map}"),
    }
}

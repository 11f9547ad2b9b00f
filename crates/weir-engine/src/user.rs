//! The compiled data plane in weir's own interpreter, or as native code of weir's making.

use weir_bpf::abi::{Counter, Stats};
use weir_functions::plan::InstancePlan;
use weir_packet::Verdict;
use weir_vm::jit::Execution;
use weir_vm::verify::VerifyOptions;
use weir_vm::{BPF_ANY, Env, Fault, Frame, Machine, Object, ProgramKind, Skb};
use zerocopy::IntoBytes;

use crate::{Engine, EngineError, LogLine, Meta, Packet, ReplayOptions};

pub(crate) struct User {
    machine: Machine,
    buffer: Buffer,
    seed: u64,
    wall_offset: u64,
    rules: usize,
}

/// What the packet is in: which one says the hook.
enum Buffer {
    Xdp(Frame),
    Tc(Box<Skb>),
}

impl Buffer {
    fn data(&self) -> &[u8] {
        match self {
            Buffer::Xdp(frame) => frame.data(),
            Buffer::Tc(skb) => skb.data(),
        }
    }

    /// Runs the program over a packet.
    fn run(&mut self, machine: &mut Machine, data: &[u8], env: &Env) -> Result<Verdict, Fault> {
        match self {
            Buffer::Xdp(frame) => {
                frame.reset(data);
                machine.run_xdp(frame, env).map(crate::verdict)
            }
            Buffer::Tc(skb) => {
                skb.reset(data);
                machine.run_tc(skb, env).map(crate::tc_verdict)
            }
        }
    }
}

impl User {
    pub(crate) fn new(
        plan: &InstancePlan,
        options: &ReplayOptions,
        rules: usize,
        execution: Execution,
    ) -> Result<User, EngineError> {
        let mut object = Object::parse(crate::object(plan)?)?;
        for (symbol, bytes) in crate::constants(plan, options) {
            object.set_rodata(&symbol, &bytes)?;
        }
        for map in &plan.maps {
            object.set_map_entries(&map.name, map.max_entries)?;
        }
        let mut machine = object.load(&plan.program)?;
        for map in &plan.maps {
            let target = machine
                .map_mut(&map.name)
                .ok_or_else(|| missing(&map.name))?;
            for (key, value) in map.entries() {
                target
                    .update_all(key, value, BPF_ANY)
                    .map_err(|error| EngineError::Map {
                        map: map.name.to_string(),
                        error,
                    })?;
            }
        }
        if execution == Execution::Jit {
            machine.verify_and_compile(&VerifyOptions::default())?;
        }
        let buffer = match machine.program_kind() {
            ProgramKind::SchedCls => Buffer::Tc(Box::new(Skb::new(&[]))),
            _ => Buffer::Xdp(Frame::new(&[])),
        };
        Ok(User {
            machine,
            buffer,
            seed: options.seed,
            wall_offset: 0,
            rules,
        })
    }
}

impl Engine for User {
    fn name(&self) -> &'static str {
        match self.machine.execution() {
            Execution::Interpreter => "user",
            Execution::Jit => "user-jit",
        }
    }

    fn marked(
        &mut self,
        packet: &Packet<'_>,
        meta: Meta,
        out: &mut Vec<u8>,
    ) -> Result<(Verdict, Meta), EngineError> {
        let replay = crate::replay_input(packet, meta, self.seed, self.wall_offset);
        let map = self
            .machine
            .map_mut("replay")
            .ok_or_else(|| missing("replay"))?;
        let value = map
            .value_mut(&0u32.to_ne_bytes())
            .ok_or_else(|| missing("replay"))?;
        value.copy_from_slice(replay.as_bytes());
        let env = Env {
            now_ns: packet.now_ns,
            rx_queue: packet.queue.into(),
            random_seed: self.seed,
            ..Env::default()
        };
        let verdict = self
            .buffer
            .run(&mut self.machine, packet.frame, &env)
            .map_err(|fault| EngineError::Fault {
                number: packet.number + 1,
                fault: Box::new(fault),
            })?;
        out.clear();
        out.extend_from_slice(self.buffer.data());
        let after = (self.machine.map("replay")).and_then(|map| map.lookup(&0u32.to_ne_bytes()));
        let after = after.map_or(meta, |bytes| crate::replay_output(&bytes, meta));
        Ok((verdict, after))
    }

    fn set_wall_offset(&mut self, ns: u64) {
        self.wall_offset = ns;
    }

    fn logs(&mut self) -> Result<Vec<LogLine>, EngineError> {
        Ok(self
            .machine
            .drain_ringbuf("events")
            .iter()
            .filter_map(|e| crate::log_line(e))
            .collect())
    }

    fn totals(&mut self) -> Result<(Stats, Vec<Counter>), EngineError> {
        let per_cpu = |map: &str, index: u32| -> Result<Vec<u8>, EngineError> {
            let map = self.machine.map(map).ok_or_else(|| missing(map))?;
            map.lookup(&index.to_ne_bytes())
                .ok_or_else(|| missing(map.name()))
        };
        let stats = per_cpu("stats", 0)?;
        let counters = (0..self.rules as u32)
            .map(|i| {
                Ok(crate::sum_counter(
                    per_cpu("counters", i)?.chunks_exact(size_of::<Counter>()),
                ))
            })
            .collect::<Result<_, EngineError>>()?;
        Ok((
            crate::sum_stats(stats.chunks_exact(size_of::<Stats>())),
            counters,
        ))
    }
}

fn missing(map: &str) -> EngineError {
    EngineError::Object {
        what: format!("map {map}"),
    }
}

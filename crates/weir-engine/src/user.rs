//! The compiled data plane in weir's own interpreter.

use weir_bpf::abi::{Counter, Stats};
use weir_functions::plan::InstancePlan;
use weir_packet::Verdict;
use weir_vm::{BPF_ANY, Env, Frame, Machine, Object};
use zerocopy::IntoBytes;

use crate::{Engine, EngineError, LogLine, Packet, ReplayOptions};

pub(crate) struct User {
    machine: Machine,
    frame: Frame,
    seed: u64,
    rules: usize,
}

impl User {
    pub(crate) fn new(
        plan: &InstancePlan,
        options: &ReplayOptions,
        rules: usize,
    ) -> Result<User, EngineError> {
        let mut object = Object::parse(crate::object(plan)?)?;
        for (symbol, bytes) in crate::constants(plan, options) {
            object.set_rodata(symbol, &bytes)?;
        }
        for map in &plan.maps {
            object.set_map_entries(map.name, map.max_entries)?;
        }
        let mut machine = object.load(plan.program)?;
        for map in &plan.maps {
            let target = machine.map_mut(map.name).ok_or_else(|| missing(map.name))?;
            for (key, value) in map.entries() {
                target
                    .update(key, value, BPF_ANY)
                    .map_err(|error| EngineError::Map {
                        map: map.name.to_owned(),
                        error,
                    })?;
            }
        }
        Ok(User {
            machine,
            frame: Frame::new(&[]),
            seed: options.seed,
            rules,
        })
    }
}

impl Engine for User {
    fn name(&self) -> &'static str {
        "user"
    }

    fn packet(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<Verdict, EngineError> {
        let replay = crate::replay_input(packet, self.seed);
        let map = self
            .machine
            .map_mut("replay")
            .ok_or_else(|| missing("replay"))?;
        let value = map
            .value_mut(&0u32.to_ne_bytes())
            .ok_or_else(|| missing("replay"))?;
        value.copy_from_slice(replay.as_bytes());
        self.frame.reset(packet.frame);
        let env = Env {
            now_ns: packet.now_ns,
            rx_queue: packet.queue.into(),
            random_seed: self.seed,
            ..Env::default()
        };
        let action = self
            .machine
            .run_xdp(&mut self.frame, &env)
            .map_err(|fault| EngineError::Fault {
                number: packet.number + 1,
                fault: Box::new(fault),
            })?;
        out.clear();
        out.extend_from_slice(self.frame.data());
        Ok(crate::verdict(action))
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

//! The compiled data plane in the running kernel, one `BPF_PROG_TEST_RUN` a packet.
//!
//! A test run takes no frame under 14 bytes and none over 65,549: the program would drop those for `frame_short` and
//! `frame_long`, and so does this module, in the same ledger.

use weir_bpf::abi::{self, Counter, Stats};
use weir_functions::plan::InstancePlan;
use weir_kernel::{Hook, KernelError, KernelObject, LoadedProgram, MmapArray, TestCtx};
use weir_packet::{Reason, Verdict};
use zerocopy::IntoBytes;

use crate::{Engine, EngineError, LogLine, Meta, Packet, ReplayOptions};

pub(crate) struct Kernel {
    program: LoadedProgram,
    replay: MmapArray,
    /// Frames the kernel was not asked about.
    refused: Stats,
    logs: Vec<LogLine>,
    logging: bool,
    /// Rules may change mark and priority.
    marking: bool,
    seed: u64,
    wall_offset: u64,
    rules: usize,
}

impl Kernel {
    pub(crate) fn new(
        plan: &InstancePlan,
        options: &ReplayOptions,
        rules: usize,
    ) -> Result<Kernel, EngineError> {
        let mut object = KernelObject::open(crate::object(plan)?)?;
        for (symbol, bytes) in crate::constants(plan, options) {
            object.set_rodata(&symbol, &bytes)?;
        }
        for map in &plan.maps {
            object.set_map_entries(&map.name, map.max_entries)?;
        }
        let program = object.load(&plan.program)?;
        for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
            program.update_batch(&map.name, &map.keys, &map.values)?;
        }
        let replay = program.mmap_array("replay")?;
        let logging = crate::logs(&plan.constants);
        let marking = crate::has_feature(&plan.constants, abi::feature::META);
        Ok(Kernel {
            program,
            replay,
            refused: crate::no_stats(),
            logs: Vec::new(),
            logging,
            marking,
            seed: options.seed,
            wall_offset: 0,
            rules,
        })
    }

    fn drain(&mut self) -> Result<(), EngineError> {
        let logs = &mut self.logs;
        self.program
            .drain("events", std::time::Duration::ZERO, |bytes| {
                logs.extend(crate::log_line(bytes))
            })?;
        Ok(())
    }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn marked(
        &mut self,
        packet: &Packet<'_>,
        meta: Meta,
        out: &mut Vec<u8>,
    ) -> Result<(Verdict, Meta), EngineError> {
        let reason = match packet.frame.len() {
            0..14 => Some(Reason::FrameShort),
            len if len > abi::FRAME_MAX => Some(Reason::FrameLong),
            _ => None,
        };
        if let Some(reason) = reason {
            self.refused.received += 1;
            self.refused.bytes += packet.frame.len() as u64;
            self.refused.verdict[1] += 1;
            self.refused.reason[reason as usize] += 1;
            return Ok((Verdict::Drop, meta));
        }
        self.replay.write(
            0,
            crate::replay_input(packet, meta, self.seed, self.wall_offset).as_bytes(),
        )?;
        let ctx = TestCtx {
            ingress_ifindex: 0,
            rx_queue: 0,
            ..TestCtx::default()
        };
        let outcome = self.program.test_run(packet.frame, out, ctx)?;
        if self.logging {
            // The ring is smaller than a capture can make it: empty it as we go.
            self.drain()?;
        }
        let verdict = match (self.program.hook(), outcome.retval) {
            (Hook::Xdp, action) => crate::verdict(action),
            (Hook::Tc, action) => crate::tc_verdict(action),
        };
        let mut after = meta;
        if self.marking {
            let mut replay = [0; size_of::<abi::Replay>()];
            self.replay.read(0, &mut replay)?;
            after = crate::replay_output(&replay, meta);
        }
        Ok((verdict, after))
    }

    fn set_wall_offset(&mut self, ns: u64) {
        self.wall_offset = ns;
    }

    fn logs(&mut self) -> Result<Vec<LogLine>, EngineError> {
        self.drain()?;
        Ok(std::mem::take(&mut self.logs))
    }

    fn totals(&mut self) -> Result<(Stats, Vec<Counter>), EngineError> {
        let (mut stats, counters) = totals(&self.program, self.rules)?;
        crate::add_stats(&mut stats, &self.refused);
        Ok((stats, counters))
    }
}

/// The ledger and the rules' counters of a program, summed over all CPUs.
pub(crate) fn totals(
    program: &LoadedProgram,
    rules: usize,
) -> Result<(Stats, Vec<Counter>), KernelError> {
    let counters = (0..rules as u32).map(|slot| counter(program, slot));
    Ok((stats(program)?, counters.collect::<Result<_, _>>()?))
}

/// The ledger, summed over all CPUs.
pub(crate) fn stats(program: &LoadedProgram) -> Result<Stats, KernelError> {
    let values = program.lookup_percpu("stats", &0u32.to_ne_bytes())?;
    Ok(crate::sum_stats(values.iter().map(Vec::as_slice)))
}

/// One rule's counters, summed over all CPUs.
pub(crate) fn counter(program: &LoadedProgram, slot: u32) -> Result<Counter, KernelError> {
    let values = program.lookup_percpu("counters", &slot.to_ne_bytes())?;
    Ok(crate::sum_counter(values.iter().map(Vec::as_slice)))
}

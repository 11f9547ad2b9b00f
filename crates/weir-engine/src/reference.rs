//! The reference interpreter behind the engine trait, with the ledger it does not keep itself.

use std::sync::Arc;

use weir_bpf::abi::{Counter, Stats};
use weir_functions::plan::{ChecksumMode, Port};
use weir_packet::Verdict;
use weir_policy::model::Policy;
use weir_policy::reference::{self, Input, Options, PortId, Reference};

use crate::{Engine, EngineError, LogLine, Meta, Packet, ReplayHook, ReplayOptions};

pub(crate) struct Oracle {
    reference: Reference,
    ports: Vec<Port>,
    stats: Stats,
    counters: Vec<Counter>,
    logs: Vec<LogLine>,
}

impl Oracle {
    pub(crate) fn new(hook: ReplayHook, policy: &Arc<Policy>, options: &ReplayOptions) -> Oracle {
        let checksums = match (hook, options.checksums) {
            (ReplayHook::Tc, _) => reference::ChecksumMode::Tc,
            (ReplayHook::Xdp, ChecksumMode::Complete) => reference::ChecksumMode::Complete,
            (ReplayHook::Xdp, ChecksumMode::Offloaded) => reference::ChecksumMode::Offloaded,
        };
        let settings = Options {
            checksums,
            mtu: options.mtu.unwrap_or(u32::MAX),
            seed: options.seed,
        };
        Oracle {
            reference: Reference::new(Arc::clone(policy), settings),
            ports: options.ports.clone(),
            stats: crate::no_stats(),
            counters: vec![Counter::default(); policy.rules.len()],
            logs: Vec::new(),
        }
    }
}

impl Engine for Oracle {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn marked(
        &mut self,
        packet: &Packet<'_>,
        meta: Meta,
        out: &mut Vec<u8>,
    ) -> Result<(Verdict, Meta), EngineError> {
        let port = self.ports.iter().find(|port| port.number == packet.port);
        let outcome = self.reference.run(Input {
            frame: packet.frame,
            now_ns: packet.now_ns,
            number: packet.number,
            // A packet of no known port must not look like one of index 0.
            port: port.map_or(
                PortId {
                    name: None,
                    index: u32::MAX,
                },
                |port| PortId {
                    name: port.name.as_deref(),
                    index: port.index,
                },
            ),
            queue: packet.queue,
            meta,
        });
        let bytes = packet.frame.len() as u64;
        self.stats.received += 1;
        self.stats.bytes += bytes;
        self.stats.verdict[match outcome.verdict {
            Verdict::Drop => 1,
            Verdict::Tx => 3,
            _ => 2,
        }] += 1;
        for reason in &outcome.reasons {
            self.stats.reason[*reason as usize] += 1;
        }
        for id in &outcome.matched {
            let counter = &mut self.counters[*id as usize - 1];
            counter.packets += 1;
            counter.bytes += bytes;
        }
        self.logs
            .extend(outcome.logs.into_iter().map(|line| LogLine {
                now_ns: packet.now_ns,
                rule: line.rule,
                prefix: line.prefix,
                verdict: line.verdict,
                port: packet.port,
                len: packet.frame.len() as u32,
            }));
        *out = outcome.frame;
        Ok((outcome.verdict, outcome.meta))
    }

    fn set_wall_offset(&mut self, ns: u64) {
        self.reference.set_wall_offset(ns);
    }

    fn logs(&mut self) -> Result<Vec<LogLine>, EngineError> {
        Ok(std::mem::take(&mut self.logs))
    }

    fn totals(&mut self) -> Result<(Stats, Vec<Counter>), EngineError> {
        Ok((self.stats, self.counters.clone()))
    }
}

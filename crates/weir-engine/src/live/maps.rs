//! Changing rules in the maps of a running instance, step by step, so that no packet sees half of a change.
//!
//! A step writes where packets do not look, then one word, which packets read once. Invariant: the half that is written was left by every
//! packet: the word of each CPU in the `depth` map says so (docs/design/updates.md).

use std::mem::offset_of;
use std::time::{Duration, Instant};

use weir_bpf::abi::{self, Counter, LiveWord};
use weir_functions::middlebox::Step;
use weir_kernel::{KernelError, LoadedProgram, MmapArray};
use zerocopy::IntoBytes;

/// The maps that change while packets flow, as memory.
#[derive(Debug)]
pub struct RuleMaps {
    rules: MmapArray,
    live: MmapArray,
    /// When the word was last written.
    switched: Option<Instant>,
}

/// A store has left the store buffer of its CPU long before.
const STORED: Duration = Duration::from_micros(50);
/// Between two looks at a CPU that is inside of a packet.
const LOOK: Duration = Duration::from_micros(20);
/// After so long the kernel is asked, which takes milliseconds but needs no luck.
const PATIENCE: Duration = Duration::from_millis(5);

impl RuleMaps {
    /// Of the copies that share them with `program`.
    pub fn of(program: &LoadedProgram) -> Result<RuleMaps, KernelError> {
        Ok(RuleMaps {
            rules: program.mmap_array("rules")?,
            live: program.mmap_array("live")?,
            switched: None,
        })
    }

    /// Does a step. On error packets see what they saw before.
    pub fn apply(&mut self, program: &LoadedProgram, step: &Step) -> Result<(), KernelError> {
        self.settle(program)?;
        for write in &step.writes {
            program.write_array(write.map, write.first, &write.values)?;
        }
        clear(program, &step.fresh)?;
        if let Some((half, header)) = &step.half {
            let at = offset_of!(LiveWord, half) + half * size_of::<abi::Half>();
            self.live.write(at, &header.as_bytes()[..8])?;
            self.live.write(at + 8, &header.as_bytes()[8..])?;
        }
        for &place in &step.ends {
            let at = place as usize * size_of::<abi::Rule>() + offset_of!(abi::Rule, dead_from);
            self.rules.write(at, &step.generation.to_ne_bytes())?;
        }
        if cfg!(not(target_arch = "x86_64")) {
            // Loads may be reordered there: packets must not see the word before the rest.
            weir_kernel::grace_period()?;
        }
        self.live.publish(offset_of!(LiveWord, now), step.now)?;
        self.switched = Some(Instant::now());
        Ok(())
    }

    /// Returns once every packet that may have read an older word has left.
    pub fn settle(&self, program: &LoadedProgram) -> Result<(), KernelError> {
        let Some(switched) = self.switched else {
            return Ok(());
        };
        if cfg!(not(target_arch = "x86_64")) {
            return weir_kernel::grace_period();
        }
        std::thread::sleep(STORED.saturating_sub(switched.elapsed()));
        let began = Instant::now();
        let before = depths(program)?;
        let mut busy: Vec<usize> = (0..before.len())
            .filter(|&cpu| before[cpu] & abi::DEPTH_MASK != 0)
            .collect();
        while !busy.is_empty() {
            if began.elapsed() > PATIENCE {
                return weir_kernel::grace_period();
            }
            std::thread::sleep(LOOK);
            let now = depths(program)?;
            // Nested packets put the word back as they found it, so a change above the nesting is an outermost one that left.
            busy.retain(|&cpu| {
                now[cpu] & abi::DEPTH_MASK != 0 && (now[cpu] ^ before[cpu]) & !abi::DEPTH_MASK == 0
            });
        }
        Ok(())
    }
}

/// Sets counters and rate words to zero.
pub(super) fn clear(program: &LoadedProgram, slots: &[u32]) -> Result<(), KernelError> {
    for slot in slots {
        let key = slot.to_ne_bytes();
        program.update("counters", &key, Counter::default().as_bytes(), 0)?;
        program.update("rates", &key, &0u64.to_ne_bytes(), 0)?;
    }
    Ok(())
}

/// The word of each CPU.
fn depths(program: &LoadedProgram) -> Result<Vec<u32>, KernelError> {
    let values = program.lookup_percpu("depth", &0u32.to_ne_bytes())?;
    let word =
        |bytes: &Vec<u8>| <[u8; 4]>::try_from(bytes.as_slice()).map_or(0, u32::from_ne_bytes);
    Ok(values.iter().map(word).collect())
}

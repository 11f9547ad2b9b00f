//! One thing that balances, or only generates, with its packets: bursts and what they come to.

use weir_kernel::LoadedProgram;

use super::bed::{Bed, Burst};
use super::traffic::Traffic;
use crate::LabError;
use crate::bench::Bench;
use crate::bench::edge::Standing;
use crate::bench::measure::Samples;
use crate::bench::report::Figure;

/// Packets of the first burst.
const FIRST: u32 = 256;

/// Packets of so many clients.
pub(crate) struct Packets {
    pub(crate) traffic: Traffic,
    pub(crate) generator: LoadedProgram,
    pub(crate) floor: LoadedProgram,
}

/// Something to measure.
pub(crate) struct Variant {
    name: String,
    /// Index of its bed; `None`: packets are only generated.
    pub(crate) bed: Option<usize>,
    /// Index of its packets.
    pub(crate) packets: usize,
    /// The attackers' packets must not come back.
    pub(crate) dropped: bool,
    /// Stands on the bed as long as this lives.
    _edge: Option<Standing>,
    count: u32,
    ns: Samples,
    wrong: Option<String>,
}

impl Variant {
    pub(crate) fn new(
        name: String,
        bed: Option<usize>,
        packets: usize,
        edge: Option<Standing>,
    ) -> Variant {
        Variant {
            name,
            bed,
            packets,
            dropped: false,
            _edge: edge,
            count: FIRST,
            ns: Samples::default(),
            wrong: None,
        }
    }

    /// A burst. Round 0 only finds its size.
    pub(crate) fn measure(
        &mut self,
        bed: &Bed,
        packets: &Packets,
        round: usize,
        budget_ns: f64,
        cpu: usize,
    ) -> Result<(), LabError> {
        if self.wrong.is_some() {
            return Ok(());
        }
        let generator = match self.bed {
            Some(_) => &packets.generator,
            None => &packets.floor,
        };
        // Flows are known, as most packets' are: what the first packets of a turn pay for is not in the figure.
        if round > 0 {
            let warm = packets.traffic.clients.saturating_mul(2).max(FIRST);
            bed.burst(generator, warm, 0, cpu)?;
        }
        let expected = match (self.bed, self.dropped) {
            (Some(_), false) => u64::from(self.count),
            // How many they are is seen afterwards.
            _ => 0,
        };
        let before = bad(generator)?;
        let burst = bed.burst(generator, self.count, expected, cpu)?;
        let attackers = bad(generator)? - before;
        if let Some(why) = self.judge(&burst, attackers) {
            self.wrong = Some(why);
            return Ok(());
        }
        let each = burst.ns / f64::from(self.count);
        match round {
            0 => self.count = ((budget_ns / each) as u32).clamp(FIRST, 2_000_000),
            _ => self.ns.push(each),
        }
        Ok(())
    }

    /// What went wrong with a burst.
    fn judge(&self, burst: &Burst, attackers: u64) -> Option<String> {
        let n = match self.bed {
            Some(_) => u64::from(self.count),
            None => 0,
        };
        let wanted = if self.dropped { n - attackers } else { n };
        let seen = (burst.entered, burst.back());
        (seen != (n, wanted)).then(|| {
            format!(
                "of {n} packets {wanted} must come back: {} entered, {} came back",
                seen.0, seen.1
            )
        })
    }

    pub(crate) fn report(&self, floor: Option<&Variant>, bench: &mut Bench<'_>) {
        if let Some(why) = &self.wrong {
            bench.refuse(&self.name, why);
            return;
        }
        let net = match floor {
            Some(floor) => self.ns.minus(&floor.ns),
            None => self.ns.clone(),
        };
        bench.figure(Figure::new(self.name.clone(), "ns/packet", net));
    }
}

/// Attackers' packets that a generator made so far.
fn bad(generator: &LoadedProgram) -> Result<u64, LabError> {
    // `struct state` of callers.c: random, next, bad.
    let states = generator.lookup_percpu("states", &[0; 4])?;
    let sent = |state: &Vec<u8>| {
        let bytes = state.get(16..24).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    Ok(states.iter().map(sent).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attackers_are_to_be_dropped_and_nobody_else() {
        let burst = |entered, back| Burst {
            ns: 1.0,
            entered,
            servers: vec![back],
        };
        let mut variant = Variant::new("x".to_owned(), Some(0), 0, None);
        variant.count = 10;
        assert_eq!(variant.judge(&burst(10, 10), 0), None);
        assert!(variant.judge(&burst(10, 9), 0).is_some());
        variant.dropped = true;
        assert_eq!(variant.judge(&burst(10, 3), 7), None);
        assert!(variant.judge(&burst(10, 4), 7).is_some());
        assert!(variant.judge(&burst(9, 3), 7).is_some());
    }
}

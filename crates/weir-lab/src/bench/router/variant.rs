//! One thing that routes, or only generates, with its packets: bursts and what they come to.

use weir_kernel::LoadedProgram;

use super::bed::{Bed, Burst, Counts};
use crate::LabError;
use crate::bench::Bench;
use crate::bench::edge::Standing;
use crate::bench::measure::Samples;
use crate::bench::report::Figure;

/// Packets of the first burst.
const FIRST: u32 = 256;

/// Packets to so many destinations.
pub(crate) struct Packets {
    pub(crate) ipv6: bool,
    pub(crate) count: usize,
    pub(crate) generator: LoadedProgram,
    pub(crate) floor: LoadedProgram,
}

impl Packets {
    pub(crate) fn family(&self) -> &'static str {
        if self.ipv6 { "ipv6" } else { "ipv4" }
    }
}

/// Something to measure.
pub(crate) struct Variant {
    name: String,
    /// Index of its bed; `None`: packets are only generated.
    pub(crate) bed: Option<usize>,
    /// Index of its packets.
    pub(crate) packets: usize,
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
        let (generator, part) = match self.bed {
            Some(_) => (&packets.generator, 1),
            None => (&packets.floor, 0),
        };
        // What the first packets of a turn pay for is not in the figure: traffic finds the tables as the packets before left them.
        if round > 0 {
            let warm = (packets.count as u32)
                .saturating_mul(2)
                .clamp(FIRST, 100_000);
            bed.burst(generator, warm, u64::from(warm) * part, cpu)?;
        }
        let expected = u64::from(self.count) * part;
        let burst = bed.burst(generator, self.count, expected, cpu)?;
        if let Some(why) = judge(expected, &burst) {
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

/// What went wrong with a burst.
fn judge(expected: u64, burst: &Burst) -> Option<String> {
    let right = Counts {
        entered: expected,
        right: expected,
        wrong: 0,
    };
    let seen = burst.counts;
    (seen != right)
        .then(|| format!("{expected} packets that must be forwarded were seen so: {seen:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_wrong_packet_is_told() {
        let burst = |entered, right, wrong| Burst {
            ns: 1.0,
            counts: Counts {
                entered,
                right,
                wrong,
            },
        };
        assert_eq!(judge(5, &burst(5, 5, 0)), None);
        assert_eq!(judge(0, &burst(0, 0, 0)), None);
        for (entered, right, wrong) in [(5, 4, 0), (4, 4, 0), (5, 5, 1), (5, 4, 1)] {
            assert!(judge(5, &burst(entered, right, wrong)).is_some());
        }
    }
}

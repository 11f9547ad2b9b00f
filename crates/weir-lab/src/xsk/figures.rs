//! Delays as figures: exact ones from the samples that are kept, a histogram of all of them, jitter, and what measuring itself costs.

use std::time::Instant;

use serde::Serialize;

/// Parts of each power of two in a histogram: a delay is known to 1.6 %.
const PARTS: u64 = 64;
/// Bits of a part's number.
const PART_BITS: u32 = PARTS.ilog2();

/// Delays in nanoseconds.
#[derive(Clone, Debug)]
pub struct Delays {
    kept: Vec<u64>,
    room: usize,
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
    squares: f64,
    min: u64,
    max: u64,
    last: Option<u64>,
    differences: f64,
    compared: u64,
}

/// What they come to. All in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How many delays.
    pub count: u64,
    /// Whether the quantiles are exact; else they are read off the histogram, to 1.6 %.
    pub exact: bool,
    /// The shortest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Mean difference between one delay and the next (RFC 5481's delay variation, without its sign).
    pub jitter: f64,
    /// First quartile.
    pub q1: u64,
    /// Median.
    pub median: u64,
    /// Third quartile.
    pub q3: u64,
    /// 90 % are at most so long.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// Delays from one value (included) to the next entry's, for those that occurred.
    pub histogram: Vec<Bucket>,
}

/// A part of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// From, included.
    pub from: u64,
    /// To, excluded.
    pub to: u64,
    /// How many.
    pub count: u64,
}

impl Delays {
    /// Keeps up to `room` samples; beyond that quantiles come from the histogram. Memory is taken now, not while measuring.
    pub fn new(room: usize) -> Delays {
        Delays {
            kept: Vec::with_capacity(room),
            room,
            buckets: vec![0; index(u64::MAX) + 1],
            count: 0,
            sum: 0.0,
            squares: 0.0,
            min: u64::MAX,
            max: 0,
            last: None,
            differences: 0.0,
            compared: 0,
        }
    }

    /// Notes one.
    pub fn note(&mut self, ns: u64) {
        self.count += 1;
        if self.kept.len() < self.room {
            self.kept.push(ns);
        }
        self.buckets[index(ns)] += 1;
        self.sum += ns as f64;
        self.squares += ns as f64 * ns as f64;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        if let Some(last) = self.last.replace(ns) {
            self.differences += last.abs_diff(ns) as f64;
            self.compared += 1;
        }
    }

    /// The samples that were kept, in their order.
    pub fn kept(&self) -> &[u64] {
        &self.kept
    }

    /// Adds those of another stream.
    pub fn join(&mut self, other: &Delays) {
        let room = self.room.max(other.room).saturating_sub(self.kept.len());
        if other.kept.len() as u64 == other.count {
            self.room = self.room.max(other.room);
            self.kept.extend(other.kept.iter().take(room));
        }
        for (a, b) in self.buckets.iter_mut().zip(&other.buckets) {
            *a += b;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.differences += other.differences;
        self.compared += other.compared;
    }

    /// What they come to; `None` without any.
    pub fn summary(&self) -> Option<Summary> {
        if self.count == 0 {
            return None;
        }
        let exact = self.kept.len() as u64 == self.count;
        let mut sorted = self.kept.clone();
        if exact {
            sorted.sort_unstable();
        }
        // The smallest value that at least so many are not above.
        let quantile = |part: f64| {
            let rank = ((part * self.count as f64).ceil() as u64).clamp(1, self.count);
            if exact {
                return sorted[rank as usize - 1];
            }
            let mut below = 0;
            for (at, count) in self.buckets.iter().enumerate() {
                below += count;
                if below >= rank {
                    return from(at + 1).saturating_sub(1).clamp(self.min, self.max);
                }
            }
            self.max
        };
        let n = self.count as f64;
        let mean = self.sum / n;
        let variance = if self.count > 1 {
            ((self.squares - self.sum * mean) / (n - 1.0)).max(0.0)
        } else {
            0.0
        };
        Some(Summary {
            count: self.count,
            exact,
            min: self.min,
            mean,
            deviation: variance.sqrt(),
            jitter: if self.compared > 0 {
                self.differences / self.compared as f64
            } else {
                0.0
            },
            q1: quantile(0.25),
            median: quantile(0.5),
            q3: quantile(0.75),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.max,
            histogram: (0..self.buckets.len())
                .filter(|at| self.buckets[*at] > 0)
                .map(|at| Bucket {
                    from: from(at),
                    to: from(at + 1),
                    count: self.buckets[at],
                })
                .collect(),
        })
    }
}

/// The bucket of a delay: exact below [`PARTS`], then [`PARTS`] for each power of two.
fn index(ns: u64) -> usize {
    if ns < PARTS {
        return ns as usize;
    }
    let shift = ns.ilog2() - PART_BITS;
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// The smallest delay of a bucket.
fn from(index: usize) -> u64 {
    let index = index as u64;
    if index < PARTS {
        return index;
    }
    let shift = index / PARTS - 1;
    u64::try_from(u128::from(index - shift * PARTS) << shift).unwrap_or(u64::MAX)
}

/// What measuring costs on this machine, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Calibration {
    /// One reading of the clock. A round trip holds one: the packet's time is read before it is sent, the arrival's after it was seen.
    pub clock_ns: f64,
    /// Reading a mark and noting a delay. It comes after the time was taken, and holds up what arrives next.
    pub note_ns: f64,
}

/// The clock of all times.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64
}

/// Measures the measuring: the least of five rounds, because everything else that runs only adds.
pub fn calibrate() -> Calibration {
    const TIMES: u32 = 20_000;
    let least = |work: &mut dyn FnMut()| {
        (0..5)
            .map(|_| {
                let begun = Instant::now();
                for _ in 0..TIMES {
                    work();
                }
                begun.elapsed().as_nanos() as f64 / f64::from(TIMES)
            })
            .fold(f64::MAX, f64::min)
    };
    let clock_ns = least(&mut || {
        std::hint::black_box(now_ns());
    });
    let mut frame = vec![0; super::payload::SHORTEST];
    let mark = super::payload::Mark {
        run: 1,
        stream: 0,
        number: 0,
        sent_ns: 1,
        arrived_ns: 0,
        left_ns: 0,
    };
    super::payload::write(&mut frame, &[[0; 6]; 2], super::payload::ETHERTYPE, &mark);
    let mut delays = Delays::new(TIMES as usize * 5);
    let mut numbers = super::payload::Numbers::default();
    let mut at = 0;
    let note_ns = least(&mut || {
        if let Some(mark) = super::payload::read(std::hint::black_box(&frame)) {
            delays.note(mark.sent_ns + at % 5_000);
            numbers.note(at);
            at += 1;
        }
    });
    Calibration { clock_ns, note_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX / 2, u64::MAX]) {
            let at = index(ns);
            assert!(from(at) <= ns, "{ns} in {at}");
            assert!(ns < from(at + 1) || ns == u64::MAX, "{ns} in {at}");
            assert!(from(at + 1).saturating_sub(from(at)) <= ns / 64 + 1, "{ns}");
        }
    }

    #[test]
    fn summaries_are_exact_until_samples_run_out() {
        let mut all = Delays::new(1000);
        let mut few = Delays::new(10);
        for ns in (1..=1000u64).rev() {
            all.note(ns * 10);
            few.note(ns * 10);
        }
        let s = all.summary().expect("samples");
        assert!(s.exact);
        assert_eq!((s.min, s.q1, s.median, s.q3), (10, 2500, 5000, 7500));
        assert_eq!((s.p99, s.p999, s.max), (9900, 9990, 10_000));
        assert!((s.mean - 5005.0).abs() < 1e-9 && (s.jitter - 10.0).abs() < 1e-9);
        assert!((s.deviation - 2888.194).abs() < 0.01, "{}", s.deviation);
        assert_eq!(s.histogram.iter().map(|b| b.count).sum::<u64>(), 1000);
        let rough = few.summary().expect("samples");
        assert!(!rough.exact);
        assert!(rough.median.abs_diff(5000) <= 5000 / 60, "{}", rough.median);
        assert!(Delays::new(1).summary().is_none());
        let mut joined = Delays::new(1000);
        joined.join(&all);
        assert_eq!(
            joined.summary().map(|s| (s.median, s.exact)),
            Some((5000, true))
        );
    }
}

//! Part B of the middlebox benchmark: ns of CPU time that a packet takes through a box, by what stands on it.
//!
//! Every variant has a bed and rules of its own; all of them are measured in turn in every round. *pass*: packets that no rule matches are
//! forwarded; *drop*: each packet matches one rule; *added*: pass without what forwarding the same packets costs anyway. The floor (generating a frame and delivering it to the box) is measured in the same
//! rounds and subtracted. Invariant: a variant that loses or misjudges a single packet has no figure.

use weir_kernel::LoadedProgram;
use weir_packet::build::Frame;

use super::bed::{self, Bed, FRAME, INSIDE};
use super::measure::Samples;
use super::peers::{self, Contender, RuleSet, Standing};
use super::report::{Absent, Figure, Promise};
use super::rules::{self, Rule, UDP};
use super::{Bench, Group};
use crate::LabError;
use crate::process::Scratch;

/// Different frames of each kind.
const FRAMES: usize = 4096;
/// Frames of the first burst of a variant, and of a block: every burst sends whole blocks.
const FIRST: u32 = 256;

const PASS: usize = 0;
const DROP: usize = 1;
const KINDS: [&str; 2] = ["pass", "drop"];

/// Measures everything that is selected.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    let groups = [
        Group::LiveTuples,
        Group::LiveExact,
        Group::LiveSources,
        Group::LiveMss,
        Group::LiveStateful,
    ];
    if !groups.iter().any(|g| bench.wants(*g)) {
        return Ok(());
    }
    let scratch = Scratch::create("weir-bench")?;
    let mut sets = Vec::new();
    let mut variants = Vec::new();
    let mut make = Maker {
        bench,
        scratch: &scratch,
        sets: &mut sets,
        variants: &mut variants,
    };
    make.all()?;
    let cpu = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let mut floor = Variant::bare("live.floor", Bed::build()?.with_floor()?, 0);
    floor.arriving = [Some(0), Some(0)];
    let (rounds, total) = (bench.scale.rounds, variants.len());
    bench.say(&format!(
        "packets through a box: {total} boxes, {rounds} rounds"
    ))?;
    for round in 0..=rounds {
        // The first round finds how many packets fit the budget.
        let budget = bench.scale.budget_ns;
        floor.measure(&sets, round, budget, cpu)?;
        for (n, variant) in variants.iter_mut().enumerate() {
            bench.progress(&format!(
                "live packets, round {round}: {} of {total}",
                n + 1
            ))?;
            variant.measure(&sets, round, budget, cpu)?;
        }
    }
    floor.report(None, bench);
    for variant in &variants {
        variant.report(Some(&floor), bench);
        let forwarding = &variants[variant.forwarding];
        if variant.standing.is_some() && variant.wrong.is_none() && forwarding.wrong.is_none() {
            let added = variant.ns[PASS].minus(&forwarding.ns[PASS]);
            let name = format!("{}.added", variant.name);
            bench.figure(Figure::new(name, "ns/packet", added));
        }
    }
    targets(bench);
    Ok(())
}

fn targets(bench: &mut Bench<'_>) {
    let outcome = &mut bench.outcome;
    for set in ["tuples", "exact", "mss", "stateful"] {
        for count in [10, 78, 100, 1000, 10_000, 100_000] {
            for kind in KINDS {
                let name = |series: &str| format!("live.{set}.{series}.{count}.{kind}");
                // Whichever form of nftables is fastest here.
                let nft = ["nft-ingress", "nft-set", "nft-rules"]
                    .into_iter()
                    .filter_map(|series| outcome.figure(&name(series)))
                    .min_by(|a, b| a.value.total_cmp(&b.value))
                    .map(|figure| figure.name.clone());
                for weir in ["weir-xdp", "weir-tc"] {
                    if let Some(nft) = &nft {
                        outcome.compare(&name(weir), nft, Promise::AtMost(1.0));
                    }
                    outcome.compare(&name(weir), &name("iptables"), Promise::AtMost(1.0));
                }
            }
        }
    }
}

/// Packets for a rule set.
struct Traffic {
    generators: [LoadedProgram; 2],
}

struct Maker<'a, 'b> {
    bench: &'a mut Bench<'b>,
    scratch: &'a Scratch,
    sets: &'a mut Vec<Traffic>,
    variants: &'a mut Vec<Variant>,
}

impl Maker<'_, '_> {
    fn all(&mut self) -> Result<(), LabError> {
        use Contender::{Iptables, NftIngress, NftRules, NftSet, WeirTc, WeirXdp, XdpFilter};
        // The floor uses the first traffic.
        let few = rules::disjoint(10);
        self.traffic(&few)?;
        if self.bench.wants(Group::LiveTuples) {
            for count in self
                .bench
                .scale
                .counts(&[1, 10, 100, 1000, 10_000, 100_000])
            {
                let rules = rules::disjoint(count);
                let at = self.traffic(&rules)?;
                let set = RuleSet::Tuples(rules);
                let all = [WeirTc, WeirXdp, NftSet, NftIngress, NftRules, Iptables];
                self.variants("tuples", &set, count, at, &all)?;
            }
        }
        if self.bench.wants(Group::LiveExact) {
            for count in self.bench.scale.counts(&[10, 1000, 100_000]) {
                let rules = rules::exact(count);
                let at = self.traffic(&rules)?;
                let set = RuleSet::Tuples(rules);
                let all = [WeirTc, WeirXdp, NftSet, NftIngress];
                self.variants("exact", &set, count, at, &all)?;
            }
        }
        if self.bench.wants(Group::LiveSources) {
            // One process and 5 ms for each address of xdp-filter.
            let count = self.bench.scale.largest.min(100);
            let rules = rules::sources(count);
            let at = self.traffic(&rules)?;
            let set = RuleSet::Sources(rules);
            let all = [WeirTc, WeirXdp, NftSet, NftIngress, XdpFilter];
            self.variants("sources", &set, count, at, &all)?;
        }
        if self.bench.wants(Group::LiveMss) {
            for count in self.bench.scale.counts(&[10, 78, 1000, 10_000]) {
                let values = rules::mss_values(count, false);
                let at = self.mss_traffic(&values)?;
                let set = RuleSet::Mss(values);
                let all = [WeirTc, WeirXdp, NftSet, NftIngress, NftRules, Iptables];
                self.variants("mss", &set, count, at, &all)?;
            }
        }
        if self.bench.wants(Group::LiveStateful) {
            for count in self.bench.scale.counts(&[10, 1000, 10_000]) {
                let rules = rules::disjoint(count);
                let at = self.stateful_traffic(&rules)?;
                let set = RuleSet::Stateful(rules);
                let all = [WeirTc, WeirXdp, NftSet, NftRules, Iptables];
                self.variants("stateful", &set, count, at, &all)?;
            }
        }
        Ok(())
    }

    fn variants(
        &mut self,
        set_name: &str,
        set: &RuleSet,
        count: usize,
        traffic: usize,
        filters: &[Contender],
    ) -> Result<(), LabError> {
        let mut forwarding = Variant::bare(
            &format!("live.{set_name}.forwarding.{count}"),
            Bed::build()?,
            traffic,
        );
        forwarding.arriving = [Some(1), None];
        let at = self.variants.len();
        forwarding.forwarding = at;
        self.variants.push(forwarding);
        for &filter in filters {
            let name = format!("live.{set_name}.{}.{count}", filter.series());
            self.bench.progress(&format!("building {name}"))?;
            if let Some((program, package)) = filter.absent() {
                self.bench.absent(program, package);
                continue;
            }
            if filter.is_linear() && count > 10_000 {
                self.bench.refuse(
                    &name,
                    "one rule after the other: a packet takes ms, and loading minutes",
                );
                continue;
            }
            let bed = Bed::build()?;
            match peers::stand(
                filter,
                set,
                &bed.middle,
                &[INSIDE],
                &self.bench.options.weir,
                self.scratch,
            ) {
                Ok(standing) => {
                    let mut variant = Variant::bare(&name, bed, traffic);
                    variant.standing = Some(standing);
                    variant.forwarding = at;
                    if matches!(set, RuleSet::Stateful(_)) {
                        // All connections are open before the first round that counts.
                        variant.counts[PASS] = FRAMES as u32;
                    }
                    self.variants.push(variant);
                }
                Err(error) => self.bench.refuse(&name, &error.to_string()),
            }
        }
        Ok(())
    }

    fn traffic(&mut self, rules: &[Rule]) -> Result<usize, LabError> {
        let pass = rules::packets_missing(rules, FRAMES);
        let (drop, _) = rules::packets_any(rules, FRAMES);
        let frames = |packets: &[rules::Packet]| -> Vec<Vec<u8>> {
            packets.iter().map(|p| padded(p.frame())).collect()
        };
        self.add(&frames(&pass), &frames(&drop))
    }

    fn mss_traffic(&mut self, values: &[(u16, u16)]) -> Result<usize, LabError> {
        let frame = |i: usize, mss: u16| padded(rules::syn(0x0b00_0001 + i as u32, mss));
        // Values above all rules' do not match.
        let pass: Vec<_> = (0..FRAMES)
            .map(|i| frame(i, 60_001 + (i % 5000) as u16))
            .collect();
        let drop: Vec<_> = (0..FRAMES)
            .map(|i| frame(i, values[i * 7919 % values.len()].0))
            .collect();
        self.add(&pass, &drop)
    }

    /// Both directions of connections that a rule allows; what no rule allows is dropped. Answers come a block behind what they answer: the stack takes
    /// packets that arrive together through one hook after the other, so that an answer among them would meet no connection yet.
    fn stateful_traffic(&mut self, rules: &[Rule]) -> Result<usize, LabError> {
        let mut pass = Vec::with_capacity(FRAMES);
        let (allowed, _) = rules::packets_any(rules, 8 * FRAMES);
        // TCP in the middle of nowhere would not be tracked as established. With few rules and ports flows repeat.
        let udp: Vec<_> = allowed.iter().filter(|p| p.protocol == UDP).collect();
        for block in udp[..FRAMES / 2].chunks(FIRST as usize / 2) {
            pass.extend(block.iter().map(|p| padded(p.frame())));
            pass.extend(block.iter().map(|p| padded(p.answer().frame())));
        }
        let drop: Vec<Vec<u8>> = rules::packets_missing(rules, FRAMES)
            .iter()
            .map(|p| padded(p.frame()))
            .collect();
        self.add(&pass, &drop)
    }

    fn add(&mut self, pass: &[Vec<u8>], drop: &[Vec<u8>]) -> Result<usize, LabError> {
        self.sets.push(Traffic {
            generators: [bed::generator(pass)?, bed::generator(drop)?],
        });
        Ok(self.sets.len() - 1)
    }
}

/// Filled up to the generator's length.
fn padded(frame: Frame) -> Vec<u8> {
    let bare = frame.build().len();
    frame.payload(&vec![0x5a; FRAME - bare]).build()
}

/// A box with something on it.
struct Variant {
    name: String,
    // Taken off before the bed goes.
    standing: Option<Standing>,
    bed: Bed,
    traffic: usize,
    /// Of each packet sent, how many must come out; `None`: no such packets are sent.
    arriving: [Option<u64>; 2],
    /// Index of the box that only forwards the same packets.
    forwarding: usize,
    counts: [u32; 2],
    ns: [Samples; 2],
    wrong: Option<String>,
}

impl Variant {
    fn bare(name: &str, bed: Bed, traffic: usize) -> Variant {
        Variant {
            name: name.to_owned(),
            standing: None,
            bed,
            traffic,
            arriving: [Some(1), Some(0)],
            forwarding: 0,
            counts: [FIRST; 2],
            ns: Default::default(),
            wrong: None,
        }
    }

    /// A burst of each kind. Round 0 only finds the size of a burst.
    fn measure(
        &mut self,
        sets: &[Traffic],
        round: usize,
        budget_ns: f64,
        cpu: usize,
    ) -> Result<(), LabError> {
        for kind in [PASS, DROP] {
            let Some(arriving) = self.arriving[kind].filter(|_| self.wrong.is_none()) else {
                continue;
            };
            let generator = &sets[self.traffic].generators[kind];
            let count = self.counts[kind];
            let expected = u64::from(count) * arriving;
            let burst = self.bed.burst(generator, count, expected, cpu)?;
            let each = burst.ns / f64::from(count);
            if burst.entered != u64::from(count) || burst.arrived != expected {
                self.wrong = Some(format!(
                    "of {count} packets to {}, {} reached the box and {} came out, {expected} should have",
                    KINDS[kind], burst.entered, burst.arrived
                ));
                continue;
            }
            if round == 0 {
                // Whole blocks, so that the next burst starts with one, too.
                let count = ((budget_ns / each) as u32).clamp(FIRST, 400_000);
                self.counts[kind] = count - count % FIRST;
            } else {
                self.ns[kind].push(each);
            }
        }
        Ok(())
    }

    fn report(&self, floor: Option<&Variant>, bench: &mut Bench<'_>) {
        if let Some(why) = &self.wrong {
            bench.refuse(&self.name, why);
            return;
        }
        for (kind, name) in KINDS.iter().enumerate() {
            if self.arriving[kind].is_none() {
                continue;
            }
            let net = match floor {
                Some(floor) => self.ns[kind].minus(&floor.ns[kind]),
                None => self.ns[kind].clone(),
            };
            bench.figure(Figure::new(
                format!("{}.{name}", self.name),
                "ns/packet",
                net,
            ));
        }
    }
}

impl Bench<'_> {
    /// Records a peer that is not installed, once.
    pub(crate) fn absent(&mut self, program: &str, package: &str) {
        let absent = Absent {
            program: program.to_owned(),
            package: package.to_owned(),
        };
        if !self.outcome.absent.contains(&absent) {
            self.outcome.absent.push(absent);
        }
    }
}

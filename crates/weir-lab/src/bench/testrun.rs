//! Part A of the middlebox benchmark: ns that a program takes for a packet in test runs of the running kernel.
//!
//! All variants run in turn in every round, the empty program among them, whose time is subtracted. *hot*: 64 packets, each many times in a row.
//! *cold*: 1,000 packets once each, so that the rules they match are not in the caches. Both match the same number of rules
//! in every size. *any*: packets made from any rules, once each, whatever they match.
//! Every run is a call of its own: the kernel's repeated runs wait tens of ms each for its XDP dispatcher.

use std::time::Instant;

use weir_classify::Scheme;
use weir_functions::middlebox::{Bounds, plan_with};
use weir_functions::plan::{InstancePlan, PortConstants};
use weir_kernel::{KernelObject, LoadedProgram, TestCtx};
use weir_policy::{FileSets, Source, parse};
use weir_vm::{Env, Frame};

use super::measure::Samples;
use super::report::{Budget, Figure, Promise};
use super::rules::{self, Packet, Random, Rule};
use super::user::{engine, user_machine};
use super::{Bench, Group, classbench};
use crate::LabError;

/// Packets repeated in a row.
const HOT: usize = 64;
/// Packets of the cold and any figures.
const COLD: usize = 1000;

/// Measures everything that is selected.
pub(crate) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    let mut variants = Vec::new();
    let mut sets = Sets { bench };
    sets.site_rules(&mut variants)?;
    sets.exact(&mut variants)?;
    sets.masks(&mut variants)?;
    sets.options(&mut variants)?;
    sets.classbench(&mut variants)?;
    if variants.is_empty() {
        return Ok(());
    }
    let mut harness = Variant::baseline("harness", load_baseline("harness", &[], &[])?, Vec::new());
    let some = rules::packets_matching(&rules::sites(1000), 2, HOT);
    harness.hot = some.iter().map(|p| p.frame().build()).collect();
    harness.cold = harness.hot.clone();
    harness.any = harness.hot.clone();
    bench.say(&format!(
        "test runs: {} programs, {} rounds",
        variants.len(),
        bench.scale.rounds
    ))?;
    let total = variants.len();
    for round in 0..bench.scale.rounds {
        harness.measure(bench.scale.repeat)?;
        for (n, variant) in variants.iter_mut().enumerate() {
            bench.progress(&format!(
                "test runs, round {}: {} of {total}",
                round + 1,
                n + 1
            ))?;
            variant.measure(bench.scale.repeat)?;
        }
    }
    for variant in &variants {
        variant.report(&harness, bench)?;
    }
    targets(bench);
    Ok(())
}

fn targets(bench: &mut Bench<'_>) {
    let outcome = &mut bench.outcome;
    for (kind, big, limit) in [
        ("hot", 100_000, Promise::AtMost(2.0)),
        ("cold", 100_000, Promise::AtMost(2.0)),
        ("any", 100_000, Promise::Reported),
    ] {
        let name = |count| format!("testrun.rules.weir.{count}.{kind}");
        outcome.compare(&name(big), &name(1000), limit);
    }
    let pairs = [
        ("masks.weir", 1000, 26, 2.0),
        ("mss.weir", 10_000, 10, 1.2),
        ("mss-range.weir", 1000, 10, 1.5),
    ];
    for (series, big, small, limit) in pairs {
        for kind in ["hot", "cold"] {
            let name = |count| format!("testrun.{series}.{count}.{kind}");
            outcome.compare(&name(big), &name(small), Promise::AtMost(limit));
        }
    }
    for kind in ["hot", "cold"] {
        outcome.compare(
            &format!("testrun.rules.table-per-mask.100000.{kind}"),
            &format!("testrun.rules.weir.100000.{kind}"),
            Promise::AtLeast(10.0),
        );
        for family in ["acl1", "fw1", "ipc1"] {
            let name = |series, size| format!("testrun.classbench.{series}.{family}_{size}.{kind}");
            outcome.compare(
                &name("weir", 100_000),
                &name("weir", 1000),
                Promise::AtMost(2.0),
            );
            outcome.compare(
                &name("table-per-mask", 100_000),
                &name("weir", 100_000),
                Promise::AtLeast(10.0),
            );
        }
    }
}

/// Builds the variants.
struct Sets<'a, 'b> {
    bench: &'a mut Bench<'b>,
}

impl Sets<'_, '_> {
    /// Filters between sites: weir, one table for each mask, and every rule one after the other.
    fn site_rules(&mut self, variants: &mut Vec<Variant>) -> Result<(), LabError> {
        if !self.bench.wants(Group::TestRules) {
            return Ok(());
        }
        let some = frames(&rules::packets_matching(&rules::sites(1000), 2, COLD));
        let mut none = Variant::weir("testrun.rules.weir.0", "", Scheme::Merged)?;
        none.hot = some[..HOT].to_vec();
        none.cold = some;
        variants.push(none);
        for count in self
            .bench
            .scale
            .counts(&[1, 10, 100, 1000, 10_000, 100_000])
        {
            self.bench
                .progress(&format!("building {count} rules between sites"))?;
            let rules = rules::sites(count);
            let traffic = Traffic::of(&rules, count.min(2));
            for (series, scheme, from) in [
                ("weir", Scheme::Merged, 0),
                ("table-per-mask", Scheme::TablePerMask, 1000),
            ] {
                if count < from {
                    continue;
                }
                let name = format!("testrun.rules.{series}.{count}");
                let text = rules::policy(&rules, "accept");
                variants.push(Variant::weir(&name, &text, scheme)?.with(&traffic));
            }
            let name = format!("testrun.rules.linear.{count}");
            variants.push(Variant::baseline(&name, linear(&rules)?, Vec::new()).with(&traffic));
        }
        Ok(())
    }

    /// Exact five-tuples: the mmb paper's firewall and tracker for XDP beside weir.
    fn exact(&mut self, variants: &mut Vec<Variant>) -> Result<(), LabError> {
        if !self.bench.wants(Group::TestExact) {
            return Ok(());
        }
        for count in self.bench.scale.counts(&[10, 100, 1000, 10_000, 100_000]) {
            let rules = rules::exact(count);
            let traffic = Traffic::of(&rules, 1);
            let text = rules::policy(&rules, "drop");
            let name = |series: &str| format!("testrun.exact.{series}.{count}");
            let weir = Variant::weir(&name("weir"), &text, Scheme::Merged)?;
            variants.push(weir.with(&traffic));
            for (series, program) in [
                ("tuple-hash", tuple_hash(&rules)?),
                ("tracker", tracker(&rules)?),
            ] {
                let variant = Variant::baseline(&name(series), program, Vec::new());
                variants.push(variant.with(&traffic));
            }
        }
        Ok(())
    }

    fn masks(&mut self, variants: &mut Vec<Variant>) -> Result<(), LabError> {
        if !self.bench.wants(Group::TestMasks) {
            return Ok(());
        }
        for count in self.bench.scale.counts(&[1, 10, 26, 100, 300, 1000]) {
            self.bench.progress(&format!("building {count} masks"))?;
            let rules = rules::masks(count);
            let traffic = Traffic::of(&rules, 2);
            let text = rules::policy(&rules, "accept");
            for (series, scheme) in [
                ("weir", Scheme::Merged),
                ("table-per-mask", Scheme::TablePerMask),
            ] {
                let name = format!("testrun.masks.{series}.{count}");
                variants.push(Variant::weir(&name, &text, scheme)?.with(&traffic));
            }
        }
        Ok(())
    }

    fn options(&mut self, variants: &mut Vec<Variant>) -> Result<(), LabError> {
        for (group, set, ranges) in [
            (Group::TestMss, "mss", false),
            (Group::TestMssRange, "mss-range", true),
        ] {
            if !self.bench.wants(group) {
                continue;
            }
            for count in self.bench.scale.counts(&[1, 10, 78, 100, 1000, 10_000]) {
                let values = rules::mss_values(count, ranges);
                let text = rules::mss_policy(&values, "accept");
                let name = format!("testrun.{set}.weir.{count}");
                let mut variant = Variant::weir(&name, &text, Scheme::Merged)?;
                variant.cold = (0..COLD)
                    .map(|i| {
                        let (low, high) = values[i * 7919 % values.len()];
                        rules::syn(0x0a00_0001, low + (high - low) / 2).build()
                    })
                    .collect();
                variant.hot = variant.cold[..HOT].to_vec();
                variants.push(variant);
            }
        }
        Ok(())
    }

    fn classbench(&mut self, variants: &mut Vec<Variant>) -> Result<(), LabError> {
        if !self.bench.wants(Group::TestClassbench) {
            return Ok(());
        }
        let Some(path) = self.bench.options.rules.clone() else {
            self.bench.refuse(
                "testrun.classbench",
                "no ClassBench sets in ../shared/data/classbench; name a file or folder with --rules",
            );
            return Ok(());
        };
        let mut sets = classbench::read(&path)?;
        sets.retain(|set| set.rules.len() <= self.bench.scale.largest);
        if self.bench.scale.quick {
            // The ends that targets compare.
            sets.retain(|set| !(2_000..50_000).contains(&set.rules.len()));
        }
        let families: Vec<String> = sets.iter().map(|s| family(&s.name).to_owned()).collect();
        for (set, family_name) in sets.iter().zip(&families) {
            self.bench
                .progress(&format!("building ClassBench set {}", set.name))?;
            let of_family = sets.iter().filter(|s| family(&s.name) == family_name);
            let matching = common_matches(of_family.map(|s| s.rules.as_slice()));
            let mut traffic = Traffic::of(&set.rules, matching);
            let found = traffic.hot.len();
            if found < HOT {
                traffic.hot.clear();
                traffic.cold.clear();
                let why = format!(
                    "only {found} packets match {matching} rules, as those of the family's other sets do"
                );
                let name = format!("testrun.classbench.weir.{}.hot|cold", set.name);
                self.bench.refuse(&name, &why);
            }
            self.bench.note(format!(
                "{}: {} rules; hot and cold packets match {matching}, any packets {:.1} on average",
                set.name,
                set.rules.len(),
                traffic.met
            ));
            let text = rules::policy(&set.rules, "accept");
            for (series, scheme) in [
                ("weir", Scheme::Merged),
                ("table-per-mask", Scheme::TablePerMask),
            ] {
                let name = format!("testrun.classbench.{series}.{}", set.name);
                variants.push(Variant::weir(&name, &text, scheme)?.with(&traffic));
            }
        }
        Ok(())
    }
}

/// `acl1` of `acl1_1000`.
fn family(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// How many matches the packets of all these sets can have in common: the number with most packets where there are fewest.
fn common_matches<'a>(sets: impl Iterator<Item = &'a [Rule]>) -> usize {
    const MOST: usize = 12;
    let mut fewest = [usize::MAX; MOST];
    for rules in sets {
        let mut found = [0; MOST];
        let mut random = Random(5);
        for _ in 0..1000 {
            let packet = rules[random.below(rules.len())].packet(&mut random);
            let met = rules.iter().filter(|r| r.matches(&packet)).take(MOST);
            if let Some(n) = found.get_mut(met.count()) {
                *n += 1;
            }
        }
        for (fewest, found) in fewest.iter_mut().zip(found) {
            *fewest = found.min(*fewest);
        }
    }
    (1..MOST).max_by_key(|m| fewest[*m]).unwrap_or(1)
}

/// Packets for a rule set.
struct Traffic {
    hot: Vec<Vec<u8>>,
    cold: Vec<Vec<u8>>,
    any: Vec<Vec<u8>>,
    /// Rules that an *any* packet matches on average.
    met: f64,
}

impl Traffic {
    fn of(rules: &[Rule], matching: usize) -> Traffic {
        let cold = frames(&rules::packets_matching(rules, matching, COLD));
        let (any, met) = rules::packets_any(rules, COLD);
        Traffic {
            hot: cold.iter().take(HOT).cloned().collect(),
            cold,
            any: frames(&any),
            met,
        }
    }
}

fn frames(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(|p| p.frame().build()).collect()
}

/// A loaded program with packets for it.
struct Variant {
    /// Name of its figures but for the kind of traffic.
    name: String,
    program: LoadedProgram,
    hot: Vec<Vec<u8>>,
    cold: Vec<Vec<u8>>,
    any: Vec<Vec<u8>>,
    met: Option<f64>,
    /// Of weir's programs.
    built: Option<Built>,
    ns: [Samples; 3],
}

/// How one of weir's programs came about.
struct Built {
    bounds: Bounds,
    /// ms.
    planned: f64,
    /// ms.
    loaded: f64,
    /// For the user engine, which counts what packets do.
    plan: InstancePlan,
}

/// Packets that budgets are counted for.
const COUNTED: usize = 256;

const KINDS: [&str; 3] = ["hot", "cold", "any"];

impl Variant {
    /// A policy of weir.
    fn weir(name: &str, text: &str, scheme: Scheme) -> Result<Variant, LabError> {
        let bad = |why: String| LabError::Policy {
            name: name.to_owned(),
            why,
        };
        let source = Source::new("bench.weir", text);
        let policy = parse(&source, &FileSets::relative_to("."))
            .map_err(|diagnostics| bad(diagnostics.to_string()))?
            .policy;
        let started = Instant::now();
        let (plan, bounds) =
            plan_with(&policy, &[], scheme).map_err(|error| bad(error.to_string()))?;
        let planned = started.elapsed().as_secs_f64() * 1e3;
        let started = Instant::now();
        let program = load(&plan)?;
        let loaded = started.elapsed().as_secs_f64() * 1e3;
        let mut variant = Variant::baseline(name, program, Vec::new());
        variant.built = Some(Built {
            bounds,
            planned,
            loaded,
            plan,
        });
        Ok(variant)
    }

    fn baseline(name: &str, program: LoadedProgram, hot: Vec<Vec<u8>>) -> Variant {
        Variant {
            name: name.to_owned(),
            program,
            hot,
            cold: Vec::new(),
            any: Vec::new(),
            met: None,
            built: None,
            ns: Default::default(),
        }
    }

    fn with(mut self, traffic: &Traffic) -> Variant {
        self.hot.clone_from(&traffic.hot);
        self.cold.clone_from(&traffic.cold);
        self.any.clone_from(&traffic.any);
        self.met = Some(traffic.met);
        self
    }

    /// One round: means over the packets, of hot ones each packet's median of `repeat` runs.
    fn measure(&mut self, repeat: usize) -> Result<(), LabError> {
        if !self.hot.is_empty() {
            let mut medians = Samples::default();
            for packet in &self.hot {
                let mut runs = Samples::default();
                for _ in 0..=repeat {
                    runs.push(run_once(&mut self.program, packet)?);
                }
                // The first run warms up.
                runs.0.remove(0);
                medians.push(runs.median());
            }
            self.ns[0].push(medians.trimmed_mean());
        }
        for (kind, packets) in [(1, &self.cold), (2, &self.any)] {
            if packets.is_empty() {
                continue;
            }
            let mut runs = Samples::default();
            for packet in packets {
                runs.push(run_once(&mut self.program, packet)?);
            }
            self.ns[kind].push(runs.trimmed_mean());
        }
        Ok(())
    }

    fn report(&self, harness: &Variant, bench: &mut Bench<'_>) -> Result<(), LabError> {
        let budgets = self.budgets()?;
        for (kind, name) in KINDS.iter().enumerate() {
            if self.ns[kind].0.is_empty() {
                continue;
            }
            let net = self.ns[kind].minus(&harness.ns[kind]);
            let mut figure = Figure::new(format!("{}.{name}", self.name), "ns/packet", net);
            figure.budget = budgets[kind];
            bench.figure(figure);
        }
        if let Some(Built {
            bounds,
            planned,
            loaded,
            ..
        }) = &self.built
        {
            let met = self.met.map_or_else(String::new, |met| {
                format!(", an any packet matches {met:.1}")
            });
            bench.note(format!(
                "{}: {} tables, at most {} probed and {} rules compared{met}; planned in {planned:.0} ms, loaded in {loaded:.0} ms",
                self.name, bounds.tables, bounds.probes, bounds.candidates
            ));
        }
        Ok(())
    }

    /// What packets of each kind of traffic do, in weir's programs.
    fn budgets(&self) -> Result<[Option<Budget>; 3], LabError> {
        let mut budgets = [None; 3];
        let Some(built) = &self.built else {
            return Ok(budgets);
        };
        let mut counted = user_machine(&built.plan)?;
        counted.count_costs();
        for (budget, packets) in budgets.iter_mut().zip([&self.hot, &self.cold, &self.any]) {
            let mut costs = Vec::new();
            for packet in packets.iter().take(COUNTED) {
                let mut frame = Frame::new(packet);
                let run = counted.run_xdp(&mut frame, &Env::default());
                run.map_err(engine)?;
                costs.extend(counted.take_cost());
            }
            *budget = (!costs.is_empty()).then(|| weir_vm::Budget::of(&costs).into());
        }
        Ok(budgets)
    }
}

/// ns of one test run, the kernel's clock included.
fn run_once(program: &mut LoadedProgram, packet: &[u8]) -> Result<f64, LabError> {
    let mut out = Vec::new();
    let outcome = program.test_run(packet, &mut out, TestCtx::default())?;
    Ok(outcome.duration.as_nanos() as f64)
}

pub(super) fn load(plan: &InstancePlan) -> Result<LoadedProgram, LabError> {
    let elf = plan.object.bytes().unwrap_or_default();
    let mut object = KernelObject::open(elf)?;
    let port = PortConstants::default().constants();
    for (symbol, bytes) in plan.constants.iter().chain(&port) {
        object.set_rodata(symbol, bytes)?;
    }
    for map in &plan.maps {
        object.set_map_entries(&map.name, map.max_entries)?;
    }
    let program = object.load(&plan.program)?;
    for map in plan.maps.iter().filter(|map| !map.keys.is_empty()) {
        program.update_batch(&map.name, &map.keys, &map.values)?;
    }
    Ok(program)
}

/// Loads an object of bpf/baselines, whose program has its name, with constants and sizes of maps.
pub(crate) fn load_baseline(
    name: &str,
    constants: &[(&str, u32)],
    sizes: &[(&str, usize)],
) -> Result<LoadedProgram, LabError> {
    let mut object = KernelObject::open(weir_bpf::baseline(name).unwrap_or_default())?;
    for (symbol, value) in constants {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    for (map, entries) in sizes {
        object.set_map_entries(map, (*entries as u32).max(1))?;
    }
    Ok(object.load(name)?)
}

/// `struct tuple` of bpf/baselines/tuple.h.
fn tuple_key(rule: &Rule) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    key.extend(rule.source.0.to_be_bytes());
    key.extend(rule.destination.0.to_be_bytes());
    key.extend(rule.sport.0.to_be_bytes());
    key.extend(rule.dport.0.to_be_bytes());
    key.extend([rule.protocol, 0, 0, 0]);
    key
}

fn tuple_hash(rules: &[Rule]) -> Result<LoadedProgram, LabError> {
    let program = load_baseline("tuple_hash", &[], &[("rules", rules.len())])?;
    let keys: Vec<u8> = rules.iter().flat_map(tuple_key).collect();
    let value = [1u64, 0].map(u64::to_ne_bytes).concat();
    program.update_batch("rules", &keys, &value.repeat(rules.len()))?;
    Ok(program)
}

/// The three-map tracker: none of the five-tuple rules holds for the traffic, every packet opens or continues a connection.
fn tracker(rules: &[Rule]) -> Result<LoadedProgram, LabError> {
    let sizes = [
        ("tuples", rules.len()),
        ("triples", rules.len()),
        ("connections", (2 * rules.len()).max(4096)),
    ];
    let program = load_baseline("tracker", &[], &sizes)?;
    let elsewhere = |rule: &Rule| {
        tuple_key(&Rule {
            source: (!rule.source.0, 32),
            ..*rule
        })
    };
    let keys: Vec<u8> = rules.iter().flat_map(elsewhere).collect();
    program.update_batch("tuples", &keys, &1u64.to_ne_bytes().repeat(rules.len()))?;
    let mut keys = Vec::new();
    for rule in rules {
        keys.extend(rule.source.0.to_be_bytes());
        keys.extend(rule.destination.0.to_be_bytes());
        keys.extend([rule.protocol, 0, 0, 0]);
    }
    program.update_batch("triples", &keys, &1u64.to_ne_bytes().repeat(rules.len()))?;
    Ok(program)
}

fn linear(rules: &[Rule]) -> Result<LoadedProgram, LabError> {
    let constants = [("weir_rules", rules.len() as u32)];
    let program = load_baseline("linear", &constants, &[("rules", rules.len())])?;
    let keys: Vec<u8> = (0..rules.len() as u32).flat_map(u32::to_ne_bytes).collect();
    let mut values = Vec::with_capacity(rules.len() * 40);
    for rule in rules {
        for (network, bits) in [rule.source, rule.destination] {
            values.extend(network.to_be_bytes());
            values.extend(rules::mask(bits).to_be_bytes());
        }
        for (low, high) in [rule.sport, rule.dport] {
            values.extend(low.to_ne_bytes());
            values.extend(high.to_ne_bytes());
        }
        values.extend([rule.protocol, rule.flags.0, rule.flags.1, 0]);
        values.extend(0u32.to_ne_bytes());
        values.extend(0u64.to_ne_bytes());
    }
    program.update_batch("rules", &keys, &values)?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_a_family_have_matches_in_common() {
        let (small, large) = (rules::sites(200), rules::sites(2000));
        let matching = common_matches([small.as_slice(), &large].into_iter());
        assert_eq!(matching, 2);
        assert_eq!(family("acl1_1000"), "acl1");
    }
}

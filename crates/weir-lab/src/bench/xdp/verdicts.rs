//! Sections 4.1 to 4.3 of the paper and more: ns of CPU time that a packet takes through a box, by what the box does with it.
//!
//! All variants take turns in every round. What generating the same packets costs without any device is measured in the same rounds and
//! subtracted. Invariant: a variant that loses or misjudges a single packet has no figure.

use weir_kernel::{LoadedProgram, iface};

use super::Xdp;
use super::bed::{self, BEHIND, Bed, Burst, Counts, INSIDE};
use super::peers::Peer;
use super::traffic::{Generator, Traffic};
use crate::LabError;
use crate::bench::edge::{End, Function, Standing};
use crate::bench::measure::{Samples, processes};
use crate::bench::report::{Figure, Promise};
use crate::bench::testrun::load_baseline;
use crate::process::Scratch;

/// Packets of the first burst of a variant.
const FIRST: u32 = 256;
/// Packets in a call, where no queue is in the way.
const WHOLE: u32 = u32::MAX;
/// Places of a queue between CPUs, and packets sent before it is seen empty: none can be lost.
const QUEUE: u32 = 8192;
/// Targets in ns: over the minimal program, of a graph of one function and of a large filter; of the largest filter over a small one.
const OVER_MINIMAL: f64 = 20.0;
const OVER_DROP: f64 = 90.0;
const OVER_SMALL: f64 = 80.0;

/// Chains on a device. The kernel makes 33 calls in a row: the longest one is recirculated.
const CHAINS: [u32; 3] = [1, 32, 40];

/// Where packets of a variant must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Dropped,
    DroppedInStack,
    Back,
    Out,
    Moved,
    /// Only generated.
    Nowhere,
}

/// Something to measure.
struct Variant {
    name: String,
    /// Index of its bed.
    bed: usize,
    /// Attached while it has its turn.
    program: Option<LoadedProgram>,
    /// Stands on the bed as long as this lives.
    _edge: Option<Standing>,
    /// Index of its packets.
    traffic: usize,
    goal: Goal,
    chunk: u32,
    /// Counts what reached another CPU, and the threads that took it there.
    moved: Option<LoadedProgram>,
    helpers: Vec<u32>,
    count: u32,
    ns: Samples,
    wrong: Option<String>,
}

struct Packets {
    traffic: Traffic,
    generator: Generator,
    floor: Generator,
}

/// Measures verdicts and filters.
pub(crate) fn run(xdp: &mut Xdp<'_, '_>, verdicts: bool, prefixes: bool) -> Result<(), LabError> {
    let scratch = Scratch::create("weir-xdp")?;
    let mut make = Maker {
        xdp,
        scratch: &scratch,
        beds: vec![Bed::build()?],
        packets: Vec::new(),
        variants: Vec::new(),
    };
    let one = make.packets(false, 1)?;
    if verdicts {
        make.verdicts(one)?;
    }
    if prefixes {
        make.prefixes(one)?;
    }
    let Maker {
        mut beds,
        packets,
        mut variants,
        ..
    } = make;
    let mut floors = Vec::new();
    for (at, p) in packets.iter().enumerate() {
        let family = if p.traffic.ipv6 { "ipv6" } else { "ipv4" };
        floors.push(Variant::new(
            format!("live.floor.{}.{family}", p.traffic.sources),
            at,
            Goal::Nowhere,
        ));
    }
    let mut queued = Variant::new("live.floor.cpu".to_owned(), one, Goal::Nowhere);
    queued.chunk = QUEUE;
    floors.push(queued);

    let rounds = xdp.rounds;
    let budget_ns = xdp.bench.scale.budget_ns;
    xdp.bench.say(&format!(
        "packets through a box: {} variants, {rounds} rounds",
        variants.len()
    ))?;
    let total = floors.len() + variants.len();
    for round in 0..=rounds {
        // The first round finds how many packets fit the budget.
        for (n, variant) in floors.iter_mut().chain(&mut variants).enumerate() {
            xdp.bench.progress(&format!(
                "live packets, round {round}: {} of {total}",
                n + 1
            ))?;
            variant.measure(&mut beds, &packets, round, budget_ns, xdp.cpu)?;
        }
    }
    for floor in &floors {
        floor.report(None, xdp);
    }
    for variant in &variants {
        let floor = floors
            .iter()
            .find(|f| f.traffic == variant.traffic && f.chunk == variant.chunk);
        variant.report(floor, xdp);
    }
    targets(xdp);
    Ok(())
}

fn targets(xdp: &mut Xdp<'_, '_>) {
    let difference = |xdp: &Xdp<'_, '_>, above: &str, below: &str| {
        let outcome = &xdp.bench.outcome;
        let (above, below) = (outcome.figure(above)?, outcome.figure(below)?);
        Some(above.samples.minus(&below.samples))
    };
    for verdict in ["drop", "tx", "redirect", "pass"] {
        let (graph, minimal) = (
            format!("live.graph.{verdict}"),
            format!("live.minimal.{verdict}"),
        );
        if let Some(more) = difference(xdp, &graph, &minimal) {
            let figure = Figure::new(format!("live.over.{verdict}"), "ns/packet", more);
            match verdict {
                "pass" => xdp.bench.figure(figure),
                _ => xdp.bench.outcome.bound(figure, OVER_MINIMAL),
            }
        }
    }
    let [short, long, longest] = CHAINS.map(|length| format!("live.chain.{length}.drop"));
    if let (Some(hops), Some(more)) = (
        difference(xdp, &long, &short),
        difference(xdp, &longest, &long),
    ) {
        // What the longest chain takes beyond its further functions.
        let [one, thirty_two, forty] = CHAINS.map(f64::from);
        let further = hops
            .0
            .iter()
            .map(|ns| ns / (thirty_two - one) * (forty - thirty_two));
        let extra = more.minus(&Samples(further.collect()));
        xdp.bench
            .figure(Figure::new("live.recirculation.extra", "ns/packet", extra));
    }
    for series in ["minimal", "graph"] {
        let name = format!("live.{series}.pass");
        if let Some(more) = difference(xdp, &name, "live.none.pass") {
            let figure = Figure::new(format!("live.{series}.pass-overhead"), "ns/packet", more);
            xdp.bench.figure(figure);
        }
    }
    for family in ["ipv4", "ipv6"] {
        let name = |series: &str, n: u32| format!("live.prefixes.{series}.{n}.{family}");
        for n in [1, 1000, 100_000, 1_000_000] {
            if let Some(more) = difference(xdp, &name("filter", n), &name("minimal", n)) {
                let figure = Figure::new(name("filter-over-drop", n), "ns/packet", more);
                match n {
                    100_000 => xdp.bench.outcome.bound(figure, OVER_DROP),
                    _ => xdp.bench.figure(figure),
                }
            }
        }
        let (large, small) = (name("filter", 1_000_000), name("filter", 1000));
        if let Some(more) = difference(xdp, &large, &small) {
            let figure = Figure::new(name("filter-over-small", 1_000_000), "ns/packet", more);
            xdp.bench.outcome.bound(figure, OVER_SMALL);
        }
        let outcome = &mut xdp.bench.outcome;
        for (peer, promise) in [
            ("iptables-raw", Promise::AtLeast(4.0)),
            ("nft-ingress", Promise::Reported),
            ("xdp-filter", Promise::Reported),
        ] {
            outcome.compare(&name(peer, 1), &name("filter", 1), promise);
            // The paper's own comparison: 24 to 4.8 million packets a second.
            outcome.compare(&name(peer, 1), &name("minimal", 1), Promise::Reported);
        }
    }
}

struct Maker<'x, 'a, 'b> {
    xdp: &'x mut Xdp<'a, 'b>,
    scratch: &'x Scratch,
    beds: Vec<Bed>,
    packets: Vec<Packets>,
    variants: Vec<Variant>,
}

/// The bed that XDP programs take turns on.
const SHARED: usize = 0;

impl Maker<'_, '_, '_> {
    fn packets(&mut self, ipv6: bool, sources: u32) -> Result<usize, LabError> {
        let traffic = Traffic { ipv6, sources };
        if let Some(at) = self.packets.iter().position(|p| p.traffic == traffic) {
            return Ok(at);
        }
        self.packets.push(Packets {
            traffic,
            generator: traffic.generator()?,
            floor: traffic.floor()?,
        });
        Ok(self.packets.len() - 1)
    }

    fn add(
        &mut self,
        name: &str,
        traffic: usize,
        goal: Goal,
        program: LoadedProgram,
    ) -> &mut Variant {
        let mut variant = Variant::new(name.to_owned(), traffic, goal);
        variant.program = Some(program);
        self.variants.push(variant);
        let last = self.variants.len() - 1;
        &mut self.variants[last]
    }

    /// A graph of one function on a bed of its own.
    fn graph(
        &mut self,
        name: &str,
        traffic: usize,
        goal: Goal,
        function: &Function,
        end: End<'_>,
    ) -> Result<&mut Variant, LabError> {
        let at = self.bed()?;
        let edge = Standing::apply(&self.beds[at].middle, &[INSIDE], function, end)?;
        let variant = self.standing(name, traffic, goal, at);
        variant._edge = Some(edge);
        Ok(variant)
    }

    /// One verdict after the other, each by the least program and by a graph of one function.
    fn verdicts(&mut self, one: usize) -> Result<(), LabError> {
        let minimal = |name: &str| load_baseline(name, &[], &[]);
        let empty = Function::empty();
        self.add(
            "live.minimal.drop",
            one,
            Goal::Dropped,
            minimal("xdp_drop")?,
        );
        let read = load_baseline("xdp_drop", &[("weir_read", 1)], &[])?;
        self.add("live.minimal.read", one, Goal::Dropped, read);
        self.graph("live.graph.drop", one, Goal::Dropped, &empty, End::Drop)?;

        self.add("live.minimal.tx", one, Goal::Back, minimal("xdp_tx")?);
        self.graph("live.graph.tx", one, Goal::Back, &empty, End::Tx)?;

        // A device is looked up in the namespace of whoever writes the map.
        let redirect = self.beds[SHARED].middle.run(|| {
            let behind = iface::index_of(BEHIND)?;
            let redirect = minimal("xdp_redirect")?;
            redirect.update("devices", &[0; 4], &behind.to_ne_bytes(), 0)?;
            Ok::<_, LabError>(redirect)
        })??;
        self.add("live.minimal.redirect", one, Goal::Out, redirect);
        let behind = End::Device(BEHIND);
        self.graph("live.graph.redirect", one, Goal::Out, &empty, behind)?;
        let forwarding = self.bed()?;
        self.standing("live.kernel.redirect", one, Goal::Out, forwarding);

        for length in CHAINS {
            let at = self.bed()?;
            let functions = vec![Function::empty(); length as usize];
            let edge =
                Standing::apply_chain(&self.beds[at].middle, &[INSIDE], &functions, End::Drop)?;
            let name = format!("live.chain.{length}.drop");
            self.standing(&name, one, Goal::Dropped, at)._edge = Some(edge);
        }

        self.another_cpu(one)?;
        self.pass(one)
    }

    /// To the CPU beside the one that generates.
    fn another_cpu(&mut self, one: usize) -> Result<(), LabError> {
        let cpus = self.xdp.cpus;
        let cpu: u32 = if self.xdp.cpu == 0 { 1 } else { 0 };
        if cpus < 2 {
            self.xdp
                .bench
                .refuse("live.minimal.cpu", "there is one CPU only");
            return Ok(());
        }
        let end = load_baseline("cpu_drop", &[], &[])?;
        let program = load_baseline("xdp_cpu", &[("weir_cpu", cpu)], &[("cpus", cpus)])?;
        let place = [QUEUE, fd(&end)].map(u32::to_ne_bytes).concat();
        program.update("cpus", &cpu.to_ne_bytes(), &place, 0)?;
        let map = program.map_id("cpus")?;
        let variant = self.add("live.minimal.cpu", one, Goal::Moved, program);
        variant.chunk = QUEUE;
        variant.helpers = processes(|comm| comm == format!("cpumap/{cpu}/map:{map}"));
        variant.moved = Some(end);
        Ok(())
    }

    /// Into a stack that drops at its first hook, with and without programs that let packets pass.
    fn pass(&mut self, one: usize) -> Result<(), LabError> {
        if let Some((program, package)) = Peer::IptablesRaw.absent() {
            self.absent(program, package);
            self.xdp.bench.refuse(
                "live.none.pass",
                "without iptables nothing drops at the stack's first hook",
            );
            return Ok(());
        }
        let traffic = self.packets[one].traffic;
        let goal = Goal::DroppedInStack;
        let at = self.bed()?;
        Peer::IptablesRaw.stand(traffic, &self.beds[at].middle, self.scratch)?;
        self.standing("live.none.pass", one, goal, at);

        let at = self.bed()?;
        Peer::IptablesRaw.stand(traffic, &self.beds[at].middle, self.scratch)?;
        let program = load_baseline("xdp_pass", &[], &[])?;
        self.add("live.minimal.pass", one, goal, program).bed = at;

        let variant = self.graph("live.graph.pass", one, goal, &Function::empty(), End::Stack)?;
        let at = variant.bed;
        Peer::IptablesRaw.stand(traffic, &self.beds[at].middle, self.scratch)
    }

    /// Sources dropped by their prefixes.
    fn prefixes(&mut self, _one: usize) -> Result<(), LabError> {
        let sizes: &[u32] = match self.xdp.bench.scale.quick {
            true => &[1, 1000, 100_000],
            false => &[1, 1000, 100_000, 1_000_000],
        };
        for ipv6 in [false, true] {
            let family = if ipv6 { "ipv6" } else { "ipv4" };
            for &n in sizes {
                let at = self.packets(ipv6, n)?;
                let name = |series: &str| format!("live.prefixes.{series}.{n}.{family}");
                let read = load_baseline("xdp_drop", &[("weir_read", 1)], &[])?;
                self.add(&name("minimal"), at, Goal::Dropped, read);
                self.filter(&name("filter"), at)?;
                for peer in [Peer::IptablesRaw, Peer::NftIngress, Peer::XdpFilter] {
                    // One rule after the other in iptables, and single addresses in xdp-filter; sets of nftables take minutes to load.
                    let most = match peer {
                        Peer::NftIngress if !self.xdp.bench.scale.quick => 100_000,
                        _ => 1,
                    };
                    if n > most {
                        continue;
                    }
                    if let Some((program, package)) = peer.absent() {
                        self.absent(program, package);
                        continue;
                    }
                    self.xdp
                        .bench
                        .progress(&format!("building {}", name(peer.series())))?;
                    let bed = self.bed()?;
                    let traffic = self.packets[at].traffic;
                    if let Err(error) = peer.stand(traffic, &self.beds[bed].middle, self.scratch) {
                        self.xdp
                            .bench
                            .refuse(&name(peer.series()), &error.to_string());
                        continue;
                    }
                    let goal = match peer.is_in_the_stack() {
                        true => Goal::DroppedInStack,
                        false => Goal::Dropped,
                    };
                    self.standing(&name(peer.series()), at, goal, bed);
                }
            }
        }
        Ok(())
    }

    /// weir's filter with these prefixes.
    fn filter(&mut self, name: &str, at: usize) -> Result<(), LabError> {
        let traffic = self.packets[at].traffic;
        let function = super::filter_of(traffic);
        if !function.is_known() {
            self.xdp.bench.refuse(name, "this build has no filter");
            return Ok(());
        }
        self.xdp.bench.progress(&format!("building {name}"))?;
        self.graph(name, at, Goal::Dropped, &function, End::Stack)?;
        Ok(())
    }

    /// A variant without an XDP program of ours.
    fn standing(&mut self, name: &str, traffic: usize, goal: Goal, bed: usize) -> &mut Variant {
        let mut variant = Variant::new(name.to_owned(), traffic, goal);
        variant.bed = bed;
        self.variants.push(variant);
        let last = self.variants.len() - 1;
        &mut self.variants[last]
    }

    fn bed(&mut self) -> Result<usize, LabError> {
        self.beds.push(Bed::build()?);
        Ok(self.beds.len() - 1)
    }

    fn absent(&mut self, program: &str, package: &str) {
        self.xdp.bench.absent(program, package);
    }
}

fn fd(program: &LoadedProgram) -> u32 {
    use std::os::fd::{AsFd, AsRawFd};
    program.as_fd().as_raw_fd() as u32
}

impl Variant {
    fn new(name: String, traffic: usize, goal: Goal) -> Variant {
        Variant {
            name,
            bed: SHARED,
            program: None,
            _edge: None,
            traffic,
            goal,
            chunk: WHOLE,
            moved: None,
            helpers: Vec::new(),
            count: FIRST,
            ns: Samples::default(),
            wrong: None,
        }
    }

    /// A burst. Round 0 only finds its size.
    fn measure(
        &mut self,
        beds: &mut [Bed],
        packets: &[Packets],
        round: usize,
        budget_ns: f64,
        cpu: usize,
    ) -> Result<(), LabError> {
        if self.wrong.is_some() {
            return Ok(());
        }
        let bed = &mut beds[self.bed];
        if let Some(program) = &self.program {
            bed.attach(program)?;
        }
        let moved = || match &self.moved {
            Some(program) => bed::counter(program, "arrived"),
            None => Ok(0),
        };
        let packets = &packets[self.traffic];
        let generator = match self.goal {
            Goal::Nowhere => &packets.floor,
            _ => &packets.generator,
        };
        // What the first packets of a turn pay for is not in the figure: a flood finds its tables as the packets before left them.
        if round > 0 {
            let warm = packets.traffic.sources.saturating_mul(2);
            bed.burst(
                generator,
                self.chunk.min(warm.max(FIRST)),
                self.chunk,
                cpu,
                &self.helpers,
                &moved,
            )?;
        }
        let burst = bed.burst(
            generator,
            self.count,
            self.chunk,
            cpu,
            &self.helpers,
            &moved,
        )?;
        if let Some(why) = self.judge(&burst) {
            self.wrong = Some(why);
            return Ok(());
        }
        let each = burst.ns / f64::from(self.count);
        if round == 0 {
            self.count = ((budget_ns / each) as u32).clamp(FIRST, 2_000_000);
            if self.chunk != WHOLE {
                // Whole chunks, and not many: each call takes tens of ms.
                self.count = (self.count / self.chunk).clamp(1, 8) * self.chunk;
            }
        } else {
            self.ns.push(each);
        }
        Ok(())
    }

    /// What went wrong with a burst.
    fn judge(&self, burst: &Burst) -> Option<String> {
        let n = u64::from(self.count);
        let seen = burst.counts;
        let nowhere = Counts {
            entered: n,
            ..Counts::default()
        };
        let right = match self.goal {
            Goal::Dropped => seen == nowhere,
            Goal::DroppedInStack => {
                seen == Counts {
                    stack: n,
                    ..nowhere
                }
            }
            Goal::Back => seen == Counts { back: n, ..nowhere },
            Goal::Moved => {
                seen == Counts {
                    moved: n,
                    ..nowhere
                }
            }
            Goal::Out => (seen.entered, seen.out) == (n, n),
            Goal::Nowhere => seen == Counts::default(),
        };
        (!right).then(|| {
            format!(
                "{n} packets that must end as {:?} were seen so: {seen:?}",
                self.goal
            )
        })
    }

    fn report(&self, floor: Option<&Variant>, xdp: &mut Xdp<'_, '_>) {
        if let Some(why) = &self.wrong {
            xdp.bench.refuse(&self.name, why);
            return;
        }
        let net = match floor {
            Some(floor) => self.ns.minus(&floor.ns),
            None => self.ns.clone(),
        };
        xdp.bench
            .figure(Figure::new(self.name.clone(), "ns/packet", net));
    }
}

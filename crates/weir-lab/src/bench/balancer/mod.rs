//! `weir bench balancer`: one service with a hundred servers, by weir's balancer in each of its modes, by nftables' hash over servers with connection
//! tracking, and by the least program that only sends packets back. With the filter in front under attack, and how flows are spread and stay.
//!
//! A packet's cost is measured in ns of CPU time through a box, net of generating it; all variants take turns in every round. Invariant: a variant
//! that loses a packet has no figure.

pub(crate) mod bed;
mod katran;
mod service;
mod spread;
mod traffic;
mod variant;

use std::io::Write;

use weir_kernel::iface;

use self::bed::{Bed, DEVICE};
use self::service::{MODES, balancer, nft, servers};
use self::traffic::{ATTACKERS, Traffic};
use self::variant::{Packets, Variant};
use super::edge::{End, Function, Standing};
use super::report::{Figure, Promise};
use super::testrun::load_baseline;
use super::xdp::select;
use super::{Bench, BenchOptions, Outcome, Scale};
use crate::LabError;
use crate::process::{Scratch, missing};

/// Figures that are measured or left out together.
const GROUPS: [&str; 3] = ["balancer.cost", "balancer.attack", "balancer.spread"];
/// Flows: one that is always in the cache, and more.
const FLOWS: [u32; 3] = [1, 1000, 60_000];
/// Those that targets are about.
const MANY: u32 = 60_000;
/// Of 256 packets under attack: nine in ten.
const BAD: u32 = 230;
/// Targets: ns over the bare TX; nftables over weir.
const OVER_TX: f64 = 150.0;
const OVER_NFT: f64 = 3.0;
/// Connections that the balancer has room for: its default.
const CONNECTIONS: u32 = 1_000_000;

/// Runs the benchmark of the balancer, tells about it on `out`.
///
/// # Errors
/// When it could not be carried out. Missed targets, missing peers and refused figures are results.
pub fn balancer_bench(
    options: &BenchOptions<'_>,
    out: &mut dyn Write,
) -> Result<Outcome, LabError> {
    let groups = select(&GROUPS, &options.only)?;
    let mut bench = Bench {
        options,
        groups: Vec::new(),
        scale: Scale::of(options),
        outcome: Outcome::new("balancer", options.quick),
        out,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut balancing = Balancing {
        bench: &mut bench,
        beds: Vec::new(),
        packets: Vec::new(),
        variants: Vec::new(),
        cpu: cpus - 1,
    };
    if groups.contains(&"balancer.cost") {
        balancing.cost()?;
    }
    if groups.contains(&"balancer.attack") {
        balancing.attack()?;
    }
    if !balancing.variants.is_empty() {
        balancing.measure()?;
    }
    if groups.contains(&"balancer.spread") {
        spread::run(&mut balancing)?;
    }
    targets(&mut bench);
    bench.progress("")?;
    Ok(bench.outcome)
}

/// A run under way.
pub(crate) struct Balancing<'x, 'b> {
    pub(crate) bench: &'x mut Bench<'b>,
    beds: Vec<Bed>,
    packets: Vec<Packets>,
    variants: Vec<Variant>,
    pub(crate) cpu: usize,
}

impl Balancing<'_, '_> {
    /// The edge, or why there is none, told.
    pub(crate) fn stood(
        &mut self,
        name: &str,
        stood: Result<Standing, LabError>,
    ) -> Option<Standing> {
        match stood {
            Ok(standing) => Some(standing),
            Err(error) => {
                self.bench.refuse(name, &error.to_string());
                None
            }
        }
    }

    /// Every way to a server, with few flows and many.
    fn cost(&mut self) -> Result<(), LabError> {
        let mut bed = Bed::build(false, 0)?;
        bed.attach(&load_baseline("xdp_tx", &[], &[])?)?;
        self.all_flows("balancer.tx", bed, None)?;

        let mut bed = Bed::build(false, 0)?;
        let back = load_baseline("xdp_redirect", &[], &[])?;
        bed.middle.run(|| {
            let here = iface::index_of(DEVICE)?.to_ne_bytes();
            back.update("devices", &[0; 4], &here, 0)
        })??;
        bed.attach(&back)?;
        self.all_flows("balancer.redirect", bed, None)?;

        if missing(&["nft"]).is_empty() {
            let scratch = Scratch::create("weir-balancer")?;
            let rules = scratch.write("lb.nft", nft(&servers()).as_bytes())?;
            let bed = Bed::build(false, 0)?;
            bed.middle
                .output("nft", &["-f", &rules.to_string_lossy()])?;
            self.all_flows("balancer.nft", bed, None)?;
        } else {
            self.bench.absent("nft", "nftables");
        }
        if let Some(path) = self.bench.options.peer.clone() {
            self.bench.progress("building balancer.katran")?;
            let elf =
                std::fs::read(&path).map_err(LabError::io(format!("read {}", path.display())))?;
            let mut bed = Bed::build(false, 0)?;
            bed.attach(&katran::katran(&elf, &servers(), CONNECTIONS)?)?;
            self.all_flows("balancer.katran", bed, None)?;
        } else {
            self.bench.refuse(
                "balancer.katran",
                "no object of Katran in ../shared/data/katran; name one with --katran",
            );
        }
        for mode in MODES {
            let name = format!("balancer.{mode}");
            self.bench.progress(&format!("building {name}"))?;
            let bed = Bed::build(mode == "dsr", 0)?;
            let function = balancer(mode, &servers(), CONNECTIONS);
            let stood = Standing::apply(&bed.middle, &[DEVICE], &function, End::Drop);
            if let Some(edge) = self.stood(&name, stood) {
                self.all_flows(&name, bed, Some(edge))?;
            }
        }
        Ok(())
    }

    fn all_flows(
        &mut self,
        name: &str,
        bed: Bed,
        mut edge: Option<Standing>,
    ) -> Result<(), LabError> {
        self.beds.push(bed);
        for clients in FLOWS {
            let packets = self.packets(clients, 0)?;
            self.add(format!("{name}.{clients}"), packets, edge.take());
        }
        Ok(())
    }

    /// The filter in front of the balancer, and nine in ten packets from sources that it denies.
    fn attack(&mut self) -> Result<(), LabError> {
        let filter = Function {
            kind: "filter",
            keys: format!("rules = [\"deny from {ATTACKERS}\"]\n"),
            files: Vec::new(),
        };
        for (series, chain) in [
            ("balancer", vec![balancer("ipip", &servers(), CONNECTIONS)]),
            (
                "composed",
                vec![filter, balancer("ipip", &servers(), CONNECTIONS)],
            ),
        ] {
            let name = format!("balancer.attack.{series}");
            let bed = Bed::build(false, 0)?;
            let stood = Standing::apply_chain(&bed.middle, &[DEVICE], &chain, End::Drop);
            let Some(edge) = self.stood(&name, stood) else {
                continue;
            };
            self.beds.push(bed);
            let mut edge = Some(edge);
            for (kind, bad) in [("quiet", 0), ("attacked", BAD)] {
                let packets = self.packets(MANY, bad)?;
                // Without a filter all of them go to servers.
                let dropped = series == "composed" && bad > 0;
                self.add(format!("{name}.{kind}"), packets, edge.take());
                if let Some(variant) = self.variants.last_mut() {
                    variant.dropped = dropped;
                }
            }
        }
        Ok(())
    }

    fn packets(&mut self, clients: u32, bad: u32) -> Result<usize, LabError> {
        let traffic = Traffic {
            clients,
            in_turn: false,
            bad,
        };
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

    fn add(&mut self, name: String, packets: usize, edge: Option<Standing>) {
        let bed = self.beds.len() - 1;
        self.variants
            .push(Variant::new(name, Some(bed), packets, edge));
    }

    fn measure(&mut self) -> Result<(), LabError> {
        let name = |p: &Packets| match p.traffic.bad {
            0 => format!("balancer.floor.{}", p.traffic.clients),
            _ => "balancer.floor.attacked".to_owned(),
        };
        let mut floors: Vec<Variant> = (0..)
            .zip(&self.packets)
            .map(|(at, p)| Variant::new(name(p), None, at, None))
            .collect();
        let (rounds, budget) = (self.bench.scale.rounds, self.bench.scale.budget_ns);
        self.bench.say(&format!(
            "packets through a balancer: {} variants, {rounds} rounds",
            self.variants.len()
        ))?;
        let total = floors.len() + self.variants.len();
        for round in 0..=rounds {
            let all = floors.iter_mut().chain(&mut self.variants);
            for (n, variant) in all.enumerate() {
                self.bench.progress(&format!(
                    "balanced packets, round {round}: {} of {total}",
                    n + 1
                ))?;
                // Packets that are only generated need no bed of their own.
                let bed = &self.beds[variant.bed.unwrap_or(0)];
                let packets = &self.packets[variant.packets];
                variant.measure(bed, packets, round, budget, self.cpu)?;
            }
        }
        for floor in &floors {
            floor.report(None, self.bench);
        }
        for variant in &self.variants {
            let floor = floors.iter().find(|f| f.packets == variant.packets);
            variant.report(floor, self.bench);
        }
        Ok(())
    }
}

fn targets(bench: &mut Bench<'_>) {
    let outcome = &mut bench.outcome;
    for mode in MODES {
        for flows in FLOWS {
            let (name, tx) = (
                format!("balancer.{mode}.{flows}"),
                format!("balancer.tx.{flows}"),
            );
            let (Some(above), Some(below)) = (outcome.figure(&name), outcome.figure(&tx)) else {
                continue;
            };
            let more = above.samples.minus(&below.samples);
            let figure = Figure::new(
                format!("balancer.over-tx.{mode}.{flows}"),
                "ns/packet",
                more,
            );
            match flows {
                MANY => outcome.bound(figure, OVER_TX),
                _ => outcome.figures.push(figure),
            }
            let promise = match flows {
                MANY => Promise::AtLeast(OVER_NFT),
                _ => Promise::Reported,
            };
            outcome.compare(&format!("balancer.nft.{flows}"), &name, promise);
        }
    }
    // Both encapsulate in IP.
    for flows in FLOWS {
        outcome.compare(
            &format!("balancer.ipip.{flows}"),
            &format!("balancer.katran.{flows}"),
            Promise::AtMost(1.0),
        );
    }
    let attack = |series: &str| format!("balancer.attack.{series}.attacked");
    outcome.compare(&attack("balancer"), &attack("composed"), Promise::Reported);
    let quiet = |series: &str| format!("balancer.attack.{series}.quiet");
    outcome.compare(&quiet("composed"), &quiet("balancer"), Promise::Reported);
}

//! Scaling over cores: as many generators as CPUs take part, each with an interface of its own into the same box, one program for all.
//!
//! What a packet costs when others are at work beside it says whether the work scales; packets a second by the clock on the wall say what two cores of a
//! shared machine happened to give. The floor is measured with as many generators.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use weir_kernel::bed::{self, End as VethEnd};
use weir_kernel::{KernelError, Link, LoadedProgram, NetNs, XdpMode, iface};

use super::Xdp;
use super::bed::received;
use super::traffic::{BOX_MAC, Generator, Traffic};
use crate::LabError;
use crate::bench::edge::{End, Function, Standing};
use crate::bench::measure::{CpuClock, Samples};
use crate::bench::report::{Figure, Promise};
use crate::bench::testrun::load_baseline;

/// A box with an interface for each CPU.
struct Box {
    middle: Arc<NetNs>,
    outside: NetNs,
    /// Of the outside's interfaces.
    at: Vec<u32>,
    inside: Vec<String>,
    links: Vec<Link>,
    edge: Option<Standing>,
}

struct Series {
    name: &'static str,
    /// `None`: packets are only generated.
    bed: Option<Box>,
    /// ns of CPU time for a packet, and millions of packets a second, by number of CPUs.
    ns: Vec<Samples>,
    rate: Vec<Samples>,
    wrong: Option<String>,
}

/// Measures 1 to all CPUs.
pub(crate) fn run(xdp: &mut Xdp<'_, '_>) -> Result<(), LabError> {
    let most = xdp.cpus.min(8);
    let count: u32 = if xdp.bench.scale.quick {
        200_000
    } else {
        1_000_000
    };
    let traffic = Traffic {
        ipv6: false,
        sources: 1,
    };
    let senders = (0..most)
        .map(|_| traffic.generator())
        .collect::<Result<Vec<_>, _>>()?;
    let floors = (0..most)
        .map(|_| traffic.floor())
        .collect::<Result<Vec<_>, _>>()?;
    let program = load_baseline("xdp_drop", &[("weir_read", 1)], &[])?;
    let series = |name, bed| Series {
        name,
        bed,
        ns: vec![Samples::default(); most],
        rate: vec![Samples::default(); most],
        wrong: None,
    };
    let mut minimal = Box::build(most)?;
    minimal.attach(&program)?;
    let mut graph = Box::build(most)?;
    let devices: Vec<&str> = graph.inside.iter().map(String::as_str).collect();
    let edge = Standing::apply(&graph.middle, &devices, &Function::empty(), End::Drop)?;
    graph.edge = Some(edge);
    // Generated on the interfaces of another box, where nothing arrives.
    let mut all = vec![
        series("floor", None),
        series("minimal", Some(minimal)),
        series("graph", Some(graph)),
    ];
    let idle = Box::build(most)?;
    xdp.bench
        .say(&format!("scaling: 1 to {most} CPUs, {} rounds", xdp.rounds))?;
    for round in 1..=xdp.rounds {
        for cpus in 1..=most {
            for one in &mut all {
                xdp.bench.progress(&format!(
                    "scaling, round {round}: {} on {cpus} CPUs",
                    one.name
                ))?;
                let (bed, generators) = match &one.bed {
                    Some(bed) => (bed, &senders),
                    None => (&idle, &floors),
                };
                let before = bed.entered()?;
                let (ns, seconds) = bed.send(generators, cpus, count)?;
                let all = u64::from(count) * cpus as u64;
                let entered = bed.entered()? - before;
                if one.bed.is_some() && entered != all {
                    one.wrong = Some(format!("of {all} packets {entered} reached the box"));
                }
                one.ns[cpus - 1].push(ns / all as f64);
                one.rate[cpus - 1].push(all as f64 / seconds / 1e6);
            }
        }
    }
    let floor = all.remove(0);
    for one in &all {
        if let Some(why) = &one.wrong {
            xdp.bench.refuse(&format!("cores.drop.{}", one.name), why);
            continue;
        }
        for at in 0..most {
            let name = |kind: &str| format!("cores.drop.{}.{}.{kind}", one.name, at + 1);
            let net = one.ns[at].minus(&floor.ns[at]);
            xdp.bench.figure(Figure::new(name("cpu"), "ns/packet", net));
            let rate = one.rate[at].clone();
            xdp.bench
                .figure(Figure::new(name("rate"), "Mpackets/s", rate));
        }
        let name = |cpus: usize, kind: &str| format!("cores.drop.{}.{cpus}.{kind}", one.name);
        for kind in ["cpu", "rate"] {
            if most > 1 {
                xdp.bench
                    .outcome
                    .compare(&name(most, kind), &name(1, kind), Promise::Reported);
            }
        }
    }
    Ok(())
}

impl Box {
    fn build(interfaces: usize) -> Result<Box, LabError> {
        let middle = Arc::new(NetNs::create("weir-cores-box")?);
        let outside = NetNs::create("weir-cores-out")?;
        for ns in [middle.as_ref(), &outside] {
            ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        }
        let mac = BOX_MAC.map(|b| format!("{b:02x}")).join(":");
        let (mut at, mut inside) = (Vec::new(), Vec::new());
        for n in 0..interfaces {
            let (near, far) = (format!("g{n}"), format!("b{n}"));
            let end = |ns, name| VethEnd {
                ns,
                name,
                addresses: &[],
            };
            bed::veth(end(&outside, &near), end(middle.as_ref(), &far))?;
            middle.ip(&["link", "set", &far, "address", &mac])?;
            at.push(outside.run(|| iface::index_of(&near))??);
            inside.push(far);
        }
        Ok(Box {
            middle,
            outside,
            at,
            inside,
            links: Vec::new(),
            edge: None,
        })
    }

    /// One program on all interfaces.
    fn attach(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        self.links = self.middle.run(|| {
            let attach =
                |name: &String| program.attach_xdp(iface::index_of(name)?, XdpMode::Native);
            self.inside
                .iter()
                .map(attach)
                .collect::<Result<Vec<_>, KernelError>>()
        })??;
        Ok(())
    }

    /// Sends so many packets on each of the first CPUs at once. CPU time in ns of all, and seconds by the clock on the wall.
    fn send(
        &self,
        generators: &[Generator],
        cpus: usize,
        count: u32,
    ) -> Result<(f64, f64), LabError> {
        let barrier = Barrier::new(cpus);
        let sent: Vec<Result<(f64, f64), LabError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cpus)
                .map(|cpu| {
                    let (barrier, generator, at) = (&barrier, &generators[cpu], self.at[cpu]);
                    scope.spawn(move || {
                        self.outside.run(|| {
                            let clock = CpuClock::on(cpu);
                            barrier.wait();
                            let (clock, start) = (clock?, Instant::now());
                            let before = clock.ns();
                            generator.pace(None)?;
                            generator.send(at, count)?;
                            Ok((clock.ns() - before, start.elapsed().as_secs_f64()))
                        })?
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let sent = sent.into_iter().collect::<Result<Vec<_>, _>>()?;
        let ns = sent.iter().map(|(ns, _)| ns).sum();
        Ok((ns, sent.iter().map(|(_, s)| *s).fold(0.0, f64::max)))
    }

    fn entered(&self) -> Result<u64, LabError> {
        // Frames of the last batch may still be on their way through a kernel thread.
        let read = || -> Result<u64, LabError> {
            let dev = self
                .middle
                .run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default())?;
            Ok(self.inside.iter().map(|name| received(&dev, name)).sum())
        };
        let mut last = read()?;
        for _ in 0..50 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let now = read()?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }
}

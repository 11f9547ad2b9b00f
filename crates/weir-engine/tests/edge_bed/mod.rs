//! A test bed for edges: a sender, the edge's namespace with two ports, and a receiver that checks a numbered stream.
//!
//! sender a0 -- m0 [edge] m1 -- b0 receiver. Names of edges are unique, so that tests run side by side.

#![allow(clippy::print_stderr, reason = "a skip is said where the test runs")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_engine::edge::{self};
use weir_functions::kind::Planned;
use weir_graph::{EdgePlan, Instance, Mode, Model, PortPlan, Source, Target};
use weir_kernel::bed::{self, End};
use weir_kernel::{KernelObject, Link, LoadedProgram, NetNs, XdpMode, iface};

/// Whether this process is root. In CI it must be.
pub(crate) fn root(test: &str) -> bool {
    // Through procfs, to stay free of unsafe code.
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let uids = status.lines().find(|line| line.starts_with("Uid:"));
    if uids.and_then(|line| line.split_whitespace().nth(2)) == Some("0") {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "in CI {test} must run: be root"
    );
    eprintln!("{test}: skipped, it needs root");
    false
}

/// Ends the thread that waits for it, also when its holder panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a stream came to, by the words of bpf/baselines/sequence.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) next: u64,
    pub(crate) received: u64,
    pub(crate) missing: u64,
    pub(crate) late: u64,
    pub(crate) twice: u64,
}

impl Tally {
    /// Nothing lost, out of order or twice.
    pub(crate) fn is_whole(&self, sent: u64) -> bool {
        *self
            == Tally {
                next: sent,
                received: sent,
                ..Tally::default()
            }
    }
}

/// The bed.
pub(crate) struct Bed {
    pub(crate) sender: NetNs,
    pub(crate) edge: NetNs,
    _receiver: NetNs,
    number: LoadedProgram,
    check: LoadedProgram,
    _sink: Link,
    a0: u32,
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let sender = NetNs::create("weire-a").expect("namespace");
        let edge = NetNs::create("weire-m").expect("namespace");
        let receiver = NetNs::create("weire-b").expect("namespace");
        for ns in [&sender, &edge, &receiver] {
            // No frames but those of the tests.
            for what in ["default", "all"] {
                ns.sysctl(&format!("net.ipv6.conf.{what}.disable_ipv6"), "1")
                    .expect("sysctl");
            }
        }
        let end = |ns, name| End {
            ns,
            name,
            addresses: &[],
        };
        bed::veth(end(&sender, "a0"), end(&edge, "m0")).expect("veth");
        bed::veth(end(&edge, "m1"), end(&receiver, "b0")).expect("veth");
        let program = |name| {
            let elf = weir_bpf::baseline("sequence").expect("compiled");
            let object = KernelObject::open(elf).expect("opens");
            object.load(name).expect("loads")
        };
        let (number, check) = (program("number"), program("check"));
        let attach = |ns: &NetNs, name: &str, program: &LoadedProgram| {
            let attached = ns.run(|| program.attach_xdp(iface::index_of(name)?, XdpMode::Native));
            attached.expect("namespace").expect("attaches")
        };
        let sink = attach(&receiver, "b0", &check);
        let a0 = sender.run(|| iface::index_of("a0")).expect("namespace");
        // Carriers are noticed a moment after.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while edge
            .ip(&["link", "show"])
            .expect("shown")
            .contains("NO-CARRIER")
        {
            assert!(std::time::Instant::now() < until, "no carrier");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Bed {
            a0: a0.expect("there"),
            sender,
            edge,
            _receiver: receiver,
            number,
            check,
            _sink: sink,
        }
    }

    /// Sends so many numbered frames at once.
    pub(crate) fn send(&self, count: u32) {
        let frame = [0u8; 64];
        let sent = self
            .sender
            .run(|| self.number.run_live(&frame, self.a0, count));
        sent.expect("namespace").expect("sent");
    }

    /// Sends so many and tells the CPU time of the sender, in whose context the whole way to the receiver runs.
    pub(crate) fn send_timed(&self, count: u32) -> std::time::Duration {
        use rustix::time::{ClockId, clock_gettime};
        let cpu = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
        };
        let frame = [0u8; 64];
        let spent = self.sender.run(|| {
            let before = cpu();
            self.number.run_live(&frame, self.a0, count).expect("sent");
            cpu() - before
        });
        spent.expect("namespace")
    }

    /// Sends bursts as long as `work` takes; its failure ends them, too.
    pub(crate) fn sending<T>(
        &self,
        burst: u32,
        pause: std::time::Duration,
        work: impl FnOnce() -> T,
    ) -> T {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    self.send(burst);
                    std::thread::sleep(pause);
                }
            });
            let stops = Stops(&stop);
            let done = work();
            drop(stops);
            sender.join().expect("sent");
            done
        })
    }

    pub(crate) fn sent(&self) -> u64 {
        tally(&self.number).next
    }

    /// What arrived, once nothing more does.
    pub(crate) fn arrived(&self) -> Tally {
        settled(|| tally(&self.check))
    }

    /// Runs something in the namespace of the edge.
    pub(crate) fn on_edge<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.edge.run(f).expect("namespace")
    }

    /// Sends the stream over one plain veth pair of its own, in bursts as given: what arrives at its far end, and how many were sent.
    pub(crate) fn plain(bursts: u32, burst: u32) -> (u64, Tally) {
        let bed = Bed::new();
        let elf = weir_bpf::baseline("sequence").expect("compiled");
        let check = KernelObject::open(elf)
            .and_then(|object| object.load("check"))
            .expect("loads");
        let link = bed.on_edge(|| check.attach_xdp(iface::index_of("m0")?, XdpMode::Native));
        let _link = link.expect("attaches");
        for _ in 0..bursts {
            bed.send(burst);
        }
        (bed.sent(), settled(|| tally(&check)))
    }
}

/// A reading that no longer changes: the same for 150 ms. On a busy machine packets wait tens of milliseconds for a softirq.
pub(crate) fn settled<T: PartialEq>(read: impl Fn() -> T) -> T {
    let mut last = read();
    let mut same = 0;
    while same < 15 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let now = read();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

fn tally(program: &LoadedProgram) -> Tally {
    let value = program.lookup("tally", &0u32.to_ne_bytes());
    let value = value.expect("readable").expect("there");
    let word = |at: usize| {
        let bytes = value[at * 8..at * 8 + 8].try_into().expect("8 bytes");
        u64::from_ne_bytes(bytes)
    };
    Tally {
        next: word(0),
        received: word(1),
        missing: word(2),
        late: word(3),
        twice: word(4),
    }
}

/// A name for an edge that nobody else has.
pub(crate) fn edge_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test-{what}-{}-{n}", std::process::id())
}

/// Takes the edge down when a test ends, however it ends.
pub(crate) struct Down<'b> {
    pub(crate) bed: &'b Bed,
    pub(crate) name: String,
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let gone = self.bed.on_edge(|| weir_engine::edge::down(&self.name));
        if !std::thread::panicking() {
            gone.expect("goes down");
        }
    }
}

impl<'b> Down<'b> {
    pub(crate) fn of(bed: &'b Bed, name: &str) -> Down<'b> {
        Down {
            bed,
            name: name.to_owned(),
        }
    }
}

/// Everything that runs of an edge, for comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    generation: u64,
    text: String,
    pins: Vec<String>,
    /// (name, number, program, maps) of instances.
    instances: Vec<Running>,
    /// (name, program, whether attached) of ports.
    ports: Vec<(String, Option<u32>, bool)>,
    devices: String,
}

/// Name, number, program and maps of an instance.
type Running = (String, u32, u32, Vec<(String, u32)>);

/// Programs and maps of an edge by the kernel's numbers.
pub(crate) struct Owned {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl Owned {
    pub(crate) fn of(bed: &Bed, name: &str) -> Owned {
        bed.on_edge(|| {
            let status = edge::status(name).expect("runs");
            let mut programs: BTreeSet<u32> = status.instances.iter().map(|i| i.program).collect();
            let instances = status.instances.iter();
            let mut maps: BTreeSet<u32> = instances
                .flat_map(|i| &i.maps)
                .map(|(_, id)| *id)
                .chain(status.maps.iter().map(|(_, id)| *id))
                .collect();
            let pair = status.recirculation.map(|r| r.devices.1);
            let devices = status.ports.into_iter().map(|p| p.device).chain(pair);
            for device in devices {
                let found = iface::find(&device).expect("there").xdp_prog_id;
                programs.extend(found);
            }
            for &id in &programs {
                let program = LoadedProgram::by_id(id).expect("there");
                for map in program.map_names() {
                    maps.insert(program.map_id(map).expect("there"));
                }
            }
            Owned { programs, maps }
        })
    }

    /// The kernel frees things a moment after their last user is gone.
    pub(crate) fn are_gone(&self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let programs = weir_kernel::ids::programs().expect("listed");
            let maps = weir_kernel::ids::maps().expect("listed");
            let programs: Vec<u32> = self.programs.intersection(&programs).copied().collect();
            let maps: Vec<u32> = self.maps.intersection(&maps).copied().collect();
            if programs.is_empty() && maps.is_empty() {
                return;
            }
            assert!(
                std::time::Instant::now() < until,
                "programs {programs:?} and maps {maps:?} are left"
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Bed {
    /// Devices and qdiscs of the edge's namespace as `ip` and `tc` show them.
    pub(crate) fn devices(&self) -> String {
        let links = self.edge.ip(&["-d", "link", "show"]).expect("shown");
        let qdiscs = self.edge.output("tc", &["qdisc", "show"]).expect("shown");
        // Counters of programs' lengths of life and queues are no part of what is configured.
        format!("{links}{qdiscs}")
    }

    pub(crate) fn snapshot(&self, name: &str) -> Snapshot {
        let pins = weir_kernel::pinned::names(&std::path::Path::new(edge::FOLDER).join(name));
        let devices = self.devices();
        self.on_edge(|| {
            let status = edge::status(name).expect("runs");
            Snapshot {
                generation: status.generation,
                text: status.text,
                pins: pins.expect("readable"),
                instances: (status.instances.into_iter())
                    .map(|i| (i.name, i.vid, i.program, i.maps))
                    .collect(),
                ports: (status.ports.into_iter())
                    .map(|p| {
                        let found = iface::find(&p.device).ok();
                        (p.name, found.and_then(|f| f.xdp_prog_id), p.attached)
                    })
                    .collect(),
                devices,
            }
        })
    }
}

/// A port of native mode.
pub(crate) fn port(name: &str, device: &str, number: u32) -> PortPlan {
    PortPlan {
        name: name.to_owned(),
        device: device.to_owned(),
        number,
        mode: Mode::Native,
        checksums: None,
        metadata: false,
    }
}

/// Ports m0 and m1, and a chain of `empty` functions from m0 to m1.
pub(crate) fn chain(name: &str, functions: usize) -> Model {
    let mut plan = Model {
        edge: name.to_owned(),
        ports: vec![port("in", "m0", 1), port("out", "m1", 2)],
        ..Model::default()
    };
    for i in 0..functions {
        plan.instances.push(empty(&format!("f{i}")));
    }
    for i in 0..=functions {
        let from = match i {
            0 => Source::Port(1),
            _ => Source::Out {
                instance: i - 1,
                out: 0,
            },
        };
        let to = match i < functions {
            true => Target::Instance(i),
            false => Target::Device(2),
        };
        plan.links.push(weir_graph::Link {
            from,
            to,
            guard: None,
        });
    }
    plan
}

/// An instance that does nothing.
pub(crate) fn empty(name: &str) -> Instance {
    Instance::new(name, "empty", Planned::embedded("empty"))
}

/// The plan of a model that has one.
pub(crate) fn wired(model: &Model) -> EdgePlan {
    model.clone().plan().unwrap_or_else(|e| panic!("{e}"))
}

/// Another version of a function: the same but for a constant that its program never reads.
pub(crate) fn replace(plan: &mut Model, instance: usize, version: u32) {
    plan.instances[instance].planned.instance.constants =
        vec![("weir_port".into(), version.to_ne_bytes().to_vec())];
}

//! A box with an entrance and two ways out, their far ends, a monitor, and instances of `redirect` in the box.
//!
//! ```text
//! far: in_far ===== in :box: da ===== da_far :far
//!                       box: db ===== db_far :far
//! ```

#![allow(
    dead_code,
    reason = "each test file that includes this module uses some of it"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_bpf::abi::{Counter, Stats};
use weir_engine::monitor::{self, Monitor, Readings};
use weir_functions::kind::{EdgePort, Files, Request};
use weir_functions::plan::{ChecksumMode, ObjectSource, PortConstants};
use weir_functions::redirect;
use weir_kernel::bed::{self, End};
use weir_kernel::{KernelObject, Link, LoadedProgram, Map, NetNs, XdpMode, iface, pins};
use weir_packet::Reason;
use zerocopy::FromBytes;

/// Frames of a test.
pub(crate) const FRAMES: u32 = 4096;

/// The bed; nothing of it outlives the value.
pub(crate) struct Bed {
    pub(crate) middle: NetNs,
    /// Inode number of the box' namespace.
    pub(crate) netns: u32,
    /// Where the far ends are.
    pub(crate) far: NetNs,
    sinks: Vec<(&'static str, LoadedProgram, Option<Link>)>,
    monitor: Monitor,
    folder: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = monitor::remove(&self.folder);
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Bed {
    /// `None` without privileges; `name` distinguishes the beds of tests that run at once.
    pub(crate) fn new(name: &str) -> Option<Bed> {
        if !root(name) {
            return None;
        }
        let middle = NetNs::create("weir-redir-box").expect("namespace");
        let far = NetNs::create("weir-redir-far").expect("namespace");
        for ns in [&middle, &far] {
            for which in ["all", "default"] {
                ns.sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")
                    .expect("IPv6 off");
            }
        }
        let mut sinks = Vec::new();
        for (near, distant) in [("in", "in_far"), ("da", "da_far"), ("db", "db_far")] {
            let addresses: &[&str] = if near == "in" { &["10.9.9.2/24"] } else { &[] };
            let end = |ns, name, addresses| End {
                ns,
                name,
                addresses,
            };
            bed::veth(end(&middle, near, addresses), end(&far, distant, &[])).expect("veth");
            let sink =
                KernelObject::open(weir_bpf::baseline("sink").expect("compiled")).expect("opens");
            let sink = sink.load("sink").expect("loads");
            let link = far
                .run(|| sink.attach_xdp(iface::index_of(distant)?, XdpMode::Native))
                .expect("namespace");
            sinks.push((near, sink, Some(link.expect("attached"))));
        }
        let folder = pins_root().join(format!("test-redirect-{name}-{}", std::process::id()));
        pins::ensure_bpffs().expect("bpffs");
        fs::create_dir_all(&folder).expect("a folder");
        let monitor = monitor::attach(&folder).expect("attached");
        Some(Bed {
            netns: middle.inode().expect("known") as u32,
            middle,
            far,
            sinks,
            monitor,
            folder,
        })
    }

    /// Where the monitor is pinned.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn readings(&self) -> Readings {
        let readings = self.monitor.read().expect("readable");
        assert_eq!(readings.unseen.sent + readings.unseen.dropped, 0);
        readings
    }

    /// Index of an interface of the box.
    pub(crate) fn index(&self, name: &str) -> u32 {
        self.middle
            .run(|| iface::index_of(name))
            .expect("namespace")
            .expect("exists")
    }

    /// Frames that came out at the far end of an interface of the box.
    pub(crate) fn arrived(&self, near: &str) -> u64 {
        let (_, sink, _) = self.sinks.iter().find(|s| s.0 == near).expect("a far end");
        let values = sink
            .lookup_percpu("arrived", &0u32.to_ne_bytes())
            .expect("readable");
        values
            .iter()
            .map(|v| u64::from_ne_bytes(v.as_slice().try_into().expect("8 bytes")))
            .sum()
    }

    /// Takes the program off a far end.
    pub(crate) fn leave_far_end(&mut self, near: &str) {
        let sink = self
            .sinks
            .iter_mut()
            .find(|s| s.0 == near)
            .expect("a far end");
        sink.2 = None;
    }

    /// IPv4 packets that the box' stack saw.
    pub(crate) fn at_the_stack(&self) -> u64 {
        bed::counter(&self.middle, "Ip", "InReceives")
            .expect("readable")
            .expect("a counter")
    }

    /// The frame with the address of the box' entrance.
    pub(crate) fn to_the_box(&self, frame: &[u8]) -> Vec<u8> {
        let mac = self
            .middle
            .run(|| iface::find("in"))
            .expect("namespace")
            .expect("exists")
            .mac;
        let mut frame = frame.to_vec();
        frame[..6].copy_from_slice(&mac);
        frame
    }
}

/// An instance of `redirect` with the maps that configuration asks for.
pub(crate) struct Instance {
    program: LoadedProgram,
}

/// No file is read.
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

impl Instance {
    pub(crate) fn new(bed: &Bed, keys: &str) -> Instance {
        Instance::with_checksums(bed, keys, ChecksumMode::Offloaded)
    }

    pub(crate) fn with_checksums(bed: &Bed, keys: &str, checksums: ChecksumMode) -> Instance {
        let keys = keys.parse().expect("TOML");
        let port = |(number, name): (u32, &str)| EdgePort {
            number,
            name: name.to_owned(),
            device: name.to_owned(),
        };
        let ports = [(1, "in"), (2, "da"), (3, "db")].map(port);
        let planned = redirect::plan(&Request {
            name: "it",
            keys: &keys,
            files: &NoFiles,
            ports: &ports,
            transmits: false,
        });
        let plan = planned.expect("planned").instance;
        assert_eq!(plan.object, ObjectSource::Embedded("redirect"));
        let mut object = KernelObject::open(plan.object.bytes().expect("compiled")).expect("opens");
        let port = PortConstants {
            port: 1,
            checksums,
            ..PortConstants::default()
        };
        let known: Vec<String> = object.constants().map(str::to_owned).collect();
        let constants = plan.constants.iter().cloned().chain(port.constants());
        for (symbol, bytes) in constants.filter(|(symbol, _)| known.iter().any(|k| k == symbol)) {
            object.set_rodata(&symbol, &bytes).expect("a constant");
        }
        for map in &plan.maps {
            object
                .set_map_entries(&map.name, map.max_entries)
                .expect("a map");
        }
        let program = object.load(&plan.program).expect("loads");
        for map in &plan.maps {
            for (key, value) in map.entries() {
                program.update(&map.name, key, value, 0).expect("in range");
            }
            for (place, device) in &map.devices {
                let index = bed.index(device).to_ne_bytes();
                // A map of devices takes those of the namespace of the writer.
                let put = || program.update(&map.name, &place.to_ne_bytes(), &index, 0);
                bed.middle.run(put).expect("namespace").expect("a device");
            }
        }
        Instance { program }
    }

    /// Lets all [`FRAMES`] arrive at the entrance.
    pub(crate) fn send(&self, bed: &Bed, frame: &[u8]) {
        self.send_some(bed, frame, FRAMES);
    }

    pub(crate) fn send_some(&self, bed: &Bed, frame: &[u8], count: u32) {
        bed.middle
            .run(|| self.send_here(bed, frame, count))
            .expect("namespace");
    }

    /// As [`Instance::send_some`], by a thread that is in the box.
    pub(crate) fn send_here(&self, bed: &Bed, frame: &[u8], count: u32) {
        self.program
            .run_live(frame, bed.index("in"), count)
            .expect("sent");
    }

    pub(crate) fn verified(&self) -> u32 {
        self.program.verified_insns().expect("told")
    }

    pub(crate) fn map_id(&self, map: &str) -> u32 {
        Map::of(&self.program, map).expect("a map").id()
    }

    /// What was handed over to a target.
    pub(crate) fn handed(&self, place: u32) -> Counter {
        let values = self
            .program
            .lookup_percpu("handed", &place.to_ne_bytes())
            .expect("readable");
        redirect::handed(values.iter().map(Vec::as_slice))
    }

    pub(crate) fn stats(&self) -> Stats {
        let values = self
            .program
            .lookup_percpu("stats", &0u32.to_ne_bytes())
            .expect("readable");
        let mut all = values
            .iter()
            .map(|v| Stats::read_from_bytes(v).expect("its size"));
        let first = all.next().expect("a CPU");
        all.fold(first, |mut sum, one| {
            sum.received += one.received;
            sum.verdict
                .iter_mut()
                .zip(one.verdict)
                .for_each(|(a, b)| *a += b);
            sum.reason
                .iter_mut()
                .zip(one.reason)
                .for_each(|(a, b)| *a += b);
            sum
        })
    }

    /// Received = redirected + dropped, and drops have their reason.
    pub(crate) fn check_ledger(&self, redirected: u64, failed: u64) {
        let stats = self.stats();
        assert_eq!(stats.received, redirected + failed);
        assert_eq!((stats.verdict[4], stats.verdict[1]), (redirected, failed));
        assert_eq!(
            stats.reason[Reason::RedirectFailed.index() as usize],
            failed
        );
    }
}

/// Waits until something holds, half a minute at most.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "not in 30 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn pins_root() -> PathBuf {
    PathBuf::from("/sys/fs/bpf/weir")
}

/// Without root it says that it skips; in CI that is a failure.
fn root(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test} needs root, and in CI it may not skip"
    );
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(format!("{test}: skipped, it needs root\n").as_bytes());
    false
}

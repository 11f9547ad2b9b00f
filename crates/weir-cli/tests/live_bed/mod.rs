//! What the live tests share: the rule for tests that need root, namespaces with weir between them, and `weir run` as a
//! child process that ends with its value.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::iface::{self, Feature, Interface};
use weir_kernel::{NetNs, pins};

/// Whether this process may run live tests. Without root it says that it skips; in CI that is a failure.
pub(crate) fn root(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test} needs root, and in CI it may not skip"
    );
    let line = format!("{test}: skipped, it needs root\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// A TCP listener in a namespace, at an address where one may have listened just before.
///
/// A child of another test holds a copy of each descriptor between its fork and its exec, so the former listener may outlive its value.
pub(crate) fn listen(ns: &NetNs, address: impl ToSocketAddrs + Copy + Send + Sync) -> TcpListener {
    let since = Instant::now();
    loop {
        match ns.run(|| TcpListener::bind(address)).expect("namespace") {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && since.elapsed().as_secs() < 10 => {
                std::thread::sleep(Duration::from_millis(5));
            }
            listener => return listener.expect("binds"),
        }
    }
}

/// A file of this test process, in cargo's folder for that.
pub(crate) fn file(name: &str, contents: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("live-{}-{n}-{name}", std::process::id()));
    fs::write(&path, contents).expect("cargo's folder is writable");
    path
}

/// `weir` inside a namespace.
pub(crate) fn weir(ns: &NetNs, args: &[&str]) -> Output {
    ns.command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace")
        .args(args)
        .output()
        .expect("weir starts")
}

/// What a command wrote to standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `weir run --json`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Run {
    child: Child,
    stderr: PathBuf,
}

impl Run {
    /// Starts it and waits until it says that it is attached.
    pub(crate) fn start(ns: &NetNs, policy: &str, ports: &[&str], more: &[&str]) -> Run {
        let policy = file("policy.weir", policy);
        let stderr = file("stderr", "");
        let mut command = ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace");
        command.args(["run", "--json"]).arg(&policy).args(more);
        for port in ports {
            command.args(["-i", port]);
        }
        let errors = File::create(&stderr).expect("created before");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("weir starts");
        let mut run = Run { child, stderr };
        let end = Instant::now() + Duration::from_secs(20);
        while !run.words().contains("attached to") {
            if let Some(status) = run.child.try_wait().expect("waits") {
                panic!("weir run ended early ({status}): {}", run.words());
            }
            assert!(
                Instant::now() < end,
                "weir run is not ready: {}",
                run.words()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        run
    }

    /// What it said so far.
    pub(crate) fn words(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The most memory that it had so far, KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let digits = line.and_then(|line| line.split_whitespace().next());
        digits.expect("the kernel tells").parse().expect("a number")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; returns status and standard output.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                let mut text = String::new();
                let mut stdout = self.child.stdout.take().expect("piped");
                std::io::Read::read_to_string(&mut stdout, &mut text).expect("readable");
                return (status, text);
            }
            assert!(
                Instant::now() < end,
                "weir run does not end: {}",
                self.words()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ctrl-C; it must end well, and its ledger must balance. Returns its report.
    pub(crate) fn stop(self) -> Value {
        self.signal(Signal::INT);
        let words = self.words();
        let (status, text) = self.wait();
        assert!(status.success(), "{status}: {words}");
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let part = |name: &str| report["packets"][name].as_u64().expect("a number");
        let sum: u64 = ["pass", "drop", "tx", "redirect", "aborted"]
            .iter()
            .map(|n| part(n))
            .sum();
        assert_eq!(part("received"), sum, "{report}");
        assert_eq!(report["engine"], "kernel");
        report
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packets that matched a rule.
pub(crate) fn matched(report: &Value, rule: &str) -> u64 {
    let rules = report["rules"].as_array().expect("rules");
    let found = rules
        .iter()
        .find(|r| r["name"] == rule)
        .unwrap_or_else(|| panic!("no rule {rule}: {report}"));
    found["packets"].as_u64().expect("a number")
}

/// Everything weir may not leave changed.
pub(crate) fn look_at(ns: &NetNs, name: &str) -> (Interface, Vec<bool>) {
    ns.run(|| {
        let features = Feature::ALL.map(|f| iface::feature(name, f).expect("readable"));
        (iface::find(name).expect("exists"), features.to_vec())
    })
    .expect("namespace")
}

/// Id of the program on an interface.
pub(crate) fn prog_on(ns: &NetNs, name: &str) -> Option<u32> {
    look_at(ns, name).0.xdp_prog_id
}

/// Pins of a namespace; empty is what a test must leave.
pub(crate) fn pinned(ns: &NetNs) -> usize {
    ns.run(|| pins::list().expect("readable").len())
        .expect("namespace")
}

/// Client and server with a box between them, IPv4 and IPv6, the box's transmit checksum offload off: so both ends see
/// finished checksums and their InCsumErrors are honest.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) client: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) server: NetNs,
}

impl Bed {
    pub(crate) fn build(prefix: &str) -> Bed {
        let name = |part: &str| NetNs::create(&format!("{prefix}-{part}")).expect("namespace");
        let bed = Bed {
            client: name("c"),
            middle: name("m"),
            server: name("s"),
        };
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&bed.client, "cl0", &["10.0.1.2/24", "fd00:1::2/64"]),
            end(&bed.middle, "box0", &["10.0.1.1/24", "fd00:1::1/64"]),
        )
        .expect("veth");
        bed::veth(
            end(&bed.server, "sv0", &["10.0.2.2/24", "fd00:2::2/64"]),
            end(&bed.middle, "box1", &["10.0.2.1/24", "fd00:2::1/64"]),
        )
        .expect("veth");
        bed::forward(&bed.middle).expect("forwards");
        for (ns, vias) in [
            (&bed.client, ["10.0.1.1", "fd00:1::1"]),
            (&bed.server, ["10.0.2.1", "fd00:2::1"]),
        ] {
            for via in vias {
                bed::default_route(ns, via).expect("route");
            }
        }
        for port in ["box0", "box1"] {
            bed.middle.offloads_off(port, &["tx"]).expect("offload");
        }
        bed
    }

    /// Packets that either end found to have a wrong L4 checksum.
    pub(crate) fn checksum_errors(&self) -> u64 {
        [&self.client, &self.server]
            .into_iter()
            .map(|ns| {
                let of = |group| {
                    bed::counter(ns, group, "InCsumErrors")
                        .expect("readable")
                        .expect("exists")
                };
                of("Tcp") + of("Udp") + ns.run(udp6_checksum_errors).expect("namespace")
            })
            .sum()
    }
}

fn udp6_checksum_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp6").expect("readable");
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Udp6InCsumErrors"))
        .expect("exists");
    line.trim().parse().expect("a number")
}

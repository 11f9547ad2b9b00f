//! The user engine over AF_XDP sockets, with real clients: `weir run --engine user` and `weir prog serve --xsk` on veths between namespaces. What passes reaches the stack,
//! what is dropped is counted as the kernel engine counts it, every frame is accounted for, and nothing stays behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Folder, WEIR, long, root_for, say};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, iface};

const PATIENCE: Duration = Duration::from_secs(10);
const POLICY: &str =
    "discard: udp-dport 9 drop\necho: udp-dport 7 accept\nweb: tcp-dport 80 accept\n";

/// Two hosts joined by a veth: `near` with an address, `far` without.
struct Bed {
    near: NetNs,
    far: NetNs,
    folder: Folder,
}

impl Bed {
    fn new(what: &str) -> Option<Bed> {
        if !root_for(what) {
            return None;
        }
        let bed = Bed {
            near: NetNs::create("weir-xp-a").expect("namespace"),
            far: NetNs::create("weir-xp-b").expect("namespace"),
            folder: Folder::new(),
        };
        for ns in [&bed.near, &bed.far] {
            // Their packets would be counted with those of the test.
            for which in ["all", "default"] {
                let key = format!("net.ipv6.conf.{which}.disable_ipv6");
                ns.sysctl(&key, "1").expect("IPv6 off");
            }
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&bed.near, "near", &["10.81.0.1/24"]),
            end(&bed.far, "far", &[]),
        )
        .expect("veth");
        Some(bed)
    }

    /// `weir` at the far end, until it says that it serves.
    fn serve(&self, args: &[&str]) -> Serving {
        let mut serving = Serving::begin(&self.far, args);
        let mut line = String::new();
        while !serving.said.contains("Ctrl-C stops") {
            line.clear();
            if serving.stderr.read_line(&mut line).expect("reads") == 0 {
                let (status, _) = serving.wait();
                panic!("{args:?} did not start ({status}): {}", serving.said);
            }
            serving.said.push_str(&line);
        }
        serving
    }

    /// `weir run` of the policy with an engine of the user's, and an address on its tap.
    fn run_policy(&self, engine: &str) -> Serving {
        let policy = self.folder.write("policy.weir", POLICY);
        let policy = policy.to_str().expect("UTF-8").to_owned();
        let serving = self.serve(&[
            "run",
            &policy,
            "-i",
            "far",
            "--engine",
            engine,
            "--to-stack",
            "tap:stack0",
            "--json",
        ]);
        self.far
            .ip(&["address", "add", "10.81.0.2/24", "dev", "stack0"])
            .expect("an address");
        serving
    }

    /// Datagrams to a port of the far end.
    fn datagrams(&self, port: u16, count: usize) {
        self.near
            .run(|| {
                let socket = UdpSocket::bind("10.81.0.1:0").expect("bind");
                for _ in 0..count {
                    socket.send_to(b"weir", ("10.81.0.2", port)).expect("sent");
                }
            })
            .expect("namespace");
    }

    fn has(&self, name: &str) -> bool {
        self.far
            .run(|| iface::find_index(name).is_some())
            .expect("namespace")
    }

    fn program(&self) -> bool {
        self.far
            .run(|| iface::find("far").expect("there").xdp_prog_id.is_some())
            .expect("namespace")
    }

    /// Waits until nothing is left: the kernel takes programs and taps of a killed process down by itself, but not at once.
    fn gone(&self) {
        let end = Instant::now() + PATIENCE;
        while self.program() || self.has("stack0") {
            assert!(Instant::now() < end, "a program or a tap is left");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A command that is ended with the test.
struct Serving {
    child: Option<Child>,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Serving {
    fn begin(ns: &NetNs, args: &[&str]) -> Serving {
        let mut child = ns
            .command(WEIR)
            .expect("namespace")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Serving {
            child: Some(child),
            stderr,
            said: String::new(),
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("running");
        kill_process(Pid::from_child(child), signal).expect("it runs");
    }

    /// Waits until it ends: its status and what it printed.
    fn wait(&mut self) -> (std::process::ExitStatus, String) {
        let mut child = self.child.take().expect("running");
        let mut stdout = String::new();
        let mut pipe = child.stdout.take().expect("a pipe");
        pipe.read_to_string(&mut stdout).expect("reads");
        self.stderr.read_to_string(&mut self.said).expect("reads");
        (child.wait().expect("ends"), stdout)
    }

    /// Stops it; the account it printed, which must add up.
    #[track_caller]
    fn account(mut self) -> Value {
        self.signal(Signal::INT);
        let (status, text) = self.wait();
        assert!(status.success(), "{status}: {}", self.said);
        let account: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(account["balanced"], true, "{account}");
        account
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

fn matched(account: &Value, rule: &str) -> u64 {
    let rules = account["rules"].as_array().expect("rules");
    let found = rules.iter().find(|r| r["name"] == rule);
    count(&found.expect("a rule of the policy")["packets"])
}

fn engines() -> Vec<&'static str> {
    match weir_vm::jit::available() {
        true => vec!["user", "user-jit"],
        false => vec!["user"],
    }
}

fn compile(folder: &Folder, name: &str) -> String {
    let source = format!("{}/tests/objects/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let object = folder.join(&format!("{name}.o"));
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let mut command = Command::new(clang);
    command.args([
        "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", &source, "-o",
    ]);
    let run = common::run(command.arg(&object));
    assert_eq!(run.status, 0, "{run:?}");
    object.to_str().expect("UTF-8").to_owned()
}

/// Echoes a megabyte over TCP and compares.
fn echo(client: &NetNs, server: &NetNs, to: &str, port: u16) {
    let listener = server
        .run(|| TcpListener::bind(("0.0.0.0", port)))
        .expect("namespace")
        .expect("bind");
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let _ = std::io::copy(&mut &stream, &mut &stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let address = format!("{to}:{port}").parse().expect("an address");
    let stream = client
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))
        .expect("namespace")
        .expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let sent: Vec<u8> = (0..1 << 20).map(|n: u32| (n * 7 + n / 251) as u8).collect();
    let copy = sent.clone();
    let mut writing = stream.try_clone().expect("a clone");
    let writer = thread::spawn(move || {
        writing.write_all(&copy).expect("written");
        writing.shutdown(Shutdown::Write).expect("shut down");
    });
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).expect("read");
    writer.join().expect("written");
    server.join().expect("served");
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
}

#[test]
fn clients_reach_the_stack_through_a_policy() {
    let Some(bed) = Bed::new("a policy over AF_XDP") else {
        return;
    };
    for engine in engines() {
        let serving = bed.run_policy(engine);
        assert!(bed.program() && bed.has("stack0"));
        let ping = bed
            .near
            .command("ping")
            .expect("namespace")
            .args(["-c", "3", "-i", "0.05", "-W", "5", "10.81.0.2"])
            .output()
            .expect("ping runs");
        assert!(ping.status.success(), "{ping:?}");
        let heard = bed
            .far
            .run(|| UdpSocket::bind("10.81.0.2:7"))
            .expect("namespace")
            .expect("bind");
        heard.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        bed.datagrams(9, 7);
        // In order, behind the others, with checksums that the sender had left to its device.
        bed.near
            .run(|| {
                let socket = UdpSocket::bind("10.81.0.1:0").expect("bind");
                for n in 0..50u8 {
                    socket.send_to(&[n], "10.81.0.2:7").expect("sent");
                }
            })
            .expect("namespace");
        for n in 0..50u8 {
            let mut byte = [0xff];
            heard.recv(&mut byte).expect("heard");
            assert_eq!(byte, [n], "out of order");
        }
        echo(&bed.near, &bed.far, "10.81.0.2", 80);
        for ns in [&bed.near, &bed.far] {
            for (group, name) in [("Tcp", "InCsumErrors"), ("Udp", "InCsumErrors")] {
                let wrong = bed::counter(ns, group, name).expect("readable");
                assert_eq!(wrong.unwrap_or(0), 0, "{group} {name}");
            }
        }
        let account = serving.account();
        assert_eq!(account["engine"], engine, "{account}");
        assert_eq!(matched(&account, "discard"), 7, "{account}");
        assert_eq!(matched(&account, "echo"), 50, "{account}");
        assert_eq!(account["reasons"]["rule_drop"], 7, "{account}");
        let port = &account["ports"][0];
        // The policy's own ledger and that of the ports are counted apart.
        for verdict in ["received", "pass", "drop", "tx", "redirect", "aborted"] {
            assert_eq!(port[verdict], account["packets"][verdict], "{account}");
        }
        assert_eq!(port["stack"], port["pass"], "{account}");
        assert!(count(&port["from_stack"]) > 3, "{account}");
        bed.gone();
    }
}

#[test]
fn the_kernel_engine_counts_the_same() {
    let Some(bed) = Bed::new("engines on one interface") else {
        return;
    };
    let mut accounts = Vec::new();
    for engine in ["user", "kernel"] {
        let serving = if engine == "user" {
            bed.run_policy("user")
        } else {
            let policy = bed.folder.write("policy.weir", POLICY);
            let policy = policy.to_str().expect("UTF-8").to_owned();
            bed.serve(&["run", &policy, "-i", "far", "--hook", "xdp", "--json"])
        };
        // Without asking for addresses, so that only what is sent comes.
        let mac = bed
            .far
            .run(|| iface::find("far").expect("there").mac)
            .expect("namespace");
        let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        bed.near
            .ip(&[
                "neighbour",
                "replace",
                "10.81.0.2",
                "lladdr",
                &mac.join(":"),
                "dev",
                "near",
                "nud",
                "permanent",
            ])
            .expect("a neighbour");
        bed.datagrams(9, 40);
        bed.datagrams(11, 20);
        bed.datagrams(7, 30);
        let sent = 90;
        // The program of either engine is behind the same ring; nothing tells when it has seen all but time.
        thread::sleep(Duration::from_millis(200));
        let account = serving.account_or_report();
        assert!(count(&account["packets"]["received"]) >= sent, "{account}");
        accounts.push(account);
    }
    for rule in ["discard", "echo", "web"] {
        assert_eq!(
            matched(&accounts[0], rule),
            matched(&accounts[1], rule),
            "{accounts:?}"
        );
    }
    assert_eq!(accounts[0]["reasons"], accounts[1]["reasons"]);
    assert_eq!(
        accounts[0]["packets"]["drop"], accounts[1]["packets"]["drop"],
        "{accounts:?}"
    );
}

impl Serving {
    /// As [`Serving::account`], of the kernel engine, too, which says nothing of ports.
    fn account_or_report(mut self) -> Value {
        self.signal(Signal::INT);
        let (status, text) = self.wait();
        assert!(status.success(), "{status}: {}", self.said);
        let account: Value = serde_json::from_str(&text).expect("one object");
        assert_ne!(account["balanced"], false, "{account}");
        account
    }
}

#[test]
fn a_program_sends_back_in_place() {
    let Some(bed) = Bed::new("an object over AF_XDP") else {
        return;
    };
    let object = compile(&bed.folder, "swap");
    let serving = bed.serve(&[
        "prog",
        "serve",
        &object,
        "-i",
        "far",
        "--xsk",
        "--to-stack",
        "none",
        "--json",
        "--dump-maps",
        "-",
    ]);
    let ping = bed
        .near
        .command(WEIR)
        .expect("namespace")
        .args([
            "xsk",
            "ping",
            "-i",
            "near",
            "--count",
            "200",
            "--interval",
            "1ms",
            "--wait",
            "poll",
            "--json",
        ])
        .output()
        .expect("weir runs");
    assert!(ping.status.success(), "{ping:?}");
    let pinged: Value = serde_json::from_slice(&ping.stdout).expect("one object");
    assert_eq!(pinged["received"], 200, "{pinged}");
    assert_eq!(pinged["reordered"], 0, "{pinged}");
    let account = serving.account();
    let port = &account["ports"][0];
    assert_eq!(port["tx"], 200, "{account}");
    assert_eq!(port["leaving"], 200, "{account}");
    assert_eq!(port["sent"], 200, "{account}");
    assert_eq!(port["no_stack"], port["pass"], "{account}");
    let variables = &account["maps"][".bss"]["variables"];
    assert_eq!(variables["swapped"], 200, "{account}");
    bed.gone();
}

#[test]
fn a_flood_is_accounted_for() {
    let Some(bed) = Bed::new("a flood over AF_XDP") else {
        return;
    };
    let frames = if long() { 2_000_000 } else { 100_000 };
    let policy = bed.folder.write("policy.weir", "everything: all drop\n");
    let policy = policy.to_str().expect("UTF-8").to_owned();
    let engine = *engines().last().expect("one at least");
    let serving = bed.serve(&[
        "run",
        &policy,
        "-i",
        "far",
        "--engine",
        engine,
        "--to-stack",
        "none",
        "--json",
    ]);
    let sent = bed
        .near
        .command(WEIR)
        .expect("namespace")
        .args([
            "xsk",
            "send",
            "-i",
            "near",
            "--json",
            "--count",
            &frames.to_string(),
        ])
        .output()
        .expect("weir runs");
    assert!(sent.status.success(), "{sent:?}");
    let sent: Value = serde_json::from_slice(&sent.stdout).expect("one object");
    let account = serving.account();
    let port = &account["ports"][0];
    let arrived = count(&sent["sent"]) - count(&sent["losses"]["refused"]);
    assert_eq!(count(&port["steered"]), arrived, "{sent} {account}");
    assert_eq!(
        count(&port["received"]) + count(&port["rx_dropped"]) + count(&port["rx_ring_full"]),
        arrived,
        "{account}"
    );
    assert_eq!(port["drop"], port["received"], "{account}");
    say(&format!(
        "{engine}: {frames} frames, {} refused by the device, {} judged, {} rx_dropped, {} rx_ring_full",
        sent["losses"]["refused"], port["received"], port["rx_dropped"], port["rx_ring_full"]
    ));
}

#[test]
fn a_killed_process_leaves_nothing() {
    let Some(bed) = Bed::new("SIGKILL of ports") else {
        return;
    };
    let mut serving = bed.run_policy("user");
    bed.datagrams(7, 5);
    assert!(bed.program() && bed.has("stack0"));
    serving.signal(Signal::KILL);
    let (status, _) = serving.wait();
    assert!(!status.success());
    bed.gone();
    // The interface is free again.
    let serving = bed.run_policy("user");
    serving.account();
    bed.gone();
}

#[test]
fn a_tap_that_is_there_is_used_and_stays() {
    let Some(bed) = Bed::new("a tap that is there") else {
        return;
    };
    bed.far
        .ip(&["tuntap", "add", "dev", "stack0", "mode", "tap"])
        .expect("a tap");
    let policy = bed.folder.write("policy.weir", POLICY);
    let policy = policy.to_str().expect("UTF-8").to_owned();
    let serving = bed.serve(&[
        "run",
        &policy,
        "-i",
        "far",
        "--engine",
        "user",
        "--to-stack",
        "tap:stack0",
        "--json",
    ]);
    // It is down: what passes is lost by that name.
    let broadcast = |count: usize| {
        bed.near
            .run(|| {
                let socket = UdpSocket::bind("10.81.0.1:0").expect("bind");
                socket.set_broadcast(true).expect("broadcasts");
                for _ in 0..count {
                    socket.send_to(b"weir", "10.81.0.255:7").expect("sent");
                }
            })
            .expect("namespace");
    };
    broadcast(4);
    thread::sleep(Duration::from_millis(200));
    bed.far
        .ip(&["link", "set", "stack0", "up"])
        .expect("set up");
    broadcast(6);
    thread::sleep(Duration::from_millis(200));
    let account = serving.account();
    let port = &account["ports"][0];
    assert_eq!(port["stack_down"], 4, "{account}");
    assert_eq!(port["stack"], 6, "{account}");
    assert!(bed.has("stack0") && !bed.program());
}

#[test]
fn what_cannot_be_is_refused() {
    let Some(bed) = Bed::new("refusals of ports") else {
        return;
    };
    let policy = bed.folder.write("policy.weir", POLICY);
    let policy = policy.to_str().expect("UTF-8").to_owned();
    let user = ["--engine", "user"];
    let tap = ["--to-stack", "tap:stack0"];
    let cases: &[(&[&[&str]], i32, &str)] = &[
        (&[&user], 2, "--to-stack tap:NAME"),
        (&[&tap], 2, "add --engine user"),
        (&[&["--sockets", "2"]], 2, "add --engine user"),
        (&[&user, &tap, &tap], 2, "once for each -i"),
        (&[&user, &tap, &["--egress"]], 2, "leave --egress out"),
        (&[&user, &["--to-stack", "tap:far"]], 1, "driver veth"),
        (&[&user, &tap, &["--ring", "1000"]], 2, "power of two"),
        (&[&user, &tap, &["--queue", "5"]], 2, "has no queue 5"),
        (
            &[&user, &tap, &["--mode", "zero-copy"]],
            1,
            "cannot do zero-copy",
        ),
        (
            &[&user, &tap, &["--frames", "4294967295"]],
            1,
            "more than can be had",
        ),
    ];
    for (more, status, words) in cases {
        let mut args = vec!["run", &policy, "-i", "far", "--json"];
        args.extend(more.iter().copied().flatten());
        let mut serving = Serving::begin(&bed.far, &args);
        let (ended, _) = serving.wait();
        assert_eq!(ended.code(), Some(*status), "{args:?}: {}", serving.said);
        assert!(serving.said.contains(words), "{args:?}: {}", serving.said);
        bed.gone();
    }
    // Another program has the interface.
    let held = bed.serve(&["run", &policy, "-i", "far", "--hook", "xdp", "--json"]);
    let mut serving = Serving::begin(
        &bed.far,
        &[
            "run",
            &policy,
            "-i",
            "far",
            "--engine",
            "user",
            "--to-stack",
            "tap:stack0",
        ],
    );
    let (ended, _) = serving.wait();
    assert_eq!(ended.code(), Some(1), "{}", serving.said);
    assert!(serving.said.contains("already carries"), "{}", serving.said);
    assert!(!bed.has("stack0"));
    held.account_or_report();
    // The interface goes down, and goes away, while it is served: an error, and the account all the same.
    let changes: [(&[&str], &str); 2] = [
        (&["link", "set", "far", "down"], "far is down"),
        (&["link", "delete", "far"], "far is gone"),
    ];
    for (change, words) in changes {
        bed.far.ip(&["link", "set", "far", "up"]).expect("up");
        let mut serving = bed.run_policy("user");
        bed.far.ip(change).expect("changed");
        let (ended, text) = serving.wait();
        assert_eq!(ended.code(), Some(1), "{}", serving.said);
        assert!(serving.said.contains(words), "{}", serving.said);
        let account: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(account["balanced"], true, "{account}");
        assert!(!bed.has("stack0"));
    }
}

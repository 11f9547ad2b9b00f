//! `weir prog serve` between two hosts: a redirecting program over packet sockets, its maps set up and dumped as JSON (root),
//! and refusals.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Folder, WEIR, root_for, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, iface};

const PATIENCE: Duration = Duration::from_secs(10);

fn compile(folder: &Folder) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/serve.c");
    let object = folder.join("serve.o");
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let mut command = Command::new(clang);
    command.args([
        "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", source, "-o",
    ]);
    let run = common::run(command.arg(&object));
    assert_eq!(run.status, 0, "{run:?}");
    object.to_str().expect("test paths are UTF-8").to_owned()
}

#[test]
fn refusals_say_what_to_do() {
    let folder = Folder::new();
    let object = compile(&folder);
    let run = weir(["prog", "serve", &object, "-i", "lo", "--wire"]);
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.stderr.contains("give -i twice"), "{run:?}");
    let run = weir(["prog", "serve", &object, "-i", "no-such-if"]);
    assert_eq!(run.status, 1, "{run:?}");
    assert!(
        run.stderr.contains("no such interface: no-such-if"),
        "{run:?}"
    );
    let run = weir(["prog", "serve", &object]);
    assert_eq!(run.status, 2, "{run:?}");
    if root_for("two sockets on one interface") {
        let run = weir(["prog", "serve", &object, "-i", "lo", "-i", "lo", "--wire"]);
        assert_eq!(run.status, 1, "{run:?}");
        assert!(run.stderr.contains("named twice"), "{run:?}");
    }
}

#[test]
fn a_program_joins_two_hosts() {
    if !root_for("weir prog serve on interfaces") {
        return;
    }
    let xsk: &[&str] = &["--xsk", "--to-stack", "none", "--to-stack", "none"];
    for (more, engine) in [
        (&["--workers", "1"][..], "interpreter"),
        (&["--workers", "2"], "interpreter"),
        (&["--workers", "2"], "jit"),
        (xsk, "interpreter"),
        (xsk, "jit"),
    ] {
        if engine == "jit" && !weir_vm::jit::available() {
            continue;
        }
        let report = joined(more, engine);
        assert_ne!(report["balanced"], false, "{report}");
        assert_eq!(report["engine"], engine, "{report}");
        let ports = report["ports"].as_array().expect("ports");
        for (a, b) in [(0, 1), (1, 0)] {
            assert_eq!(
                ports[a]["redirect"], ports[b]["sent"],
                "what one redirects the other sends: {report}"
            );
        }
        let received: u64 = ports
            .iter()
            .map(|p| p["received"].as_u64().unwrap_or(0))
            .sum();
        let variables = &report["maps"][".bss"]["variables"];
        assert_eq!(variables["seen"], received, "{report}");
        assert_eq!(variables["dropped"], 5, "{report}");
        assert_eq!(report["faults"], 0, "{report}");
    }
}

fn joined(more: &[&str], engine: &str) -> Value {
    let name = |part: &str| NetNs::create(&format!("weir-serve-{part}")).expect("namespace");
    let (client, middle, server) = (name("c"), name("m"), name("s"));
    let end = |ns, name, addresses| End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&client, "cl0", &["10.0.1.1/24"]),
        end(&middle, "in0", &[]),
    )
    .expect("veth");
    bed::veth(
        end(&server, "sv0", &["10.0.1.2/24"]),
        end(&middle, "in1", &[]),
    )
    .expect("veth");
    let number = |port| {
        let found = middle.run(|| iface::index_of(port)).expect("namespace");
        found.expect("an interface")
    };
    let (in0, in1) = (number("in0"), number("in1"));
    let folder = Folder::new();
    let object = compile(&folder);
    let peers = json!({"maps": {"peers": {"elements": [
        {"key": in0, "value": in1}, {"key": in1, "value": in0}]}}});
    let peers = folder.write("peers.json", peers.to_string());
    let child = middle
        .command(WEIR)
        .expect("namespace")
        .args(["prog", "serve", &object, "-i", "in0", "-i", "in1", "--json"])
        .args(["--engine", engine])
        .args(more)
        .args(["--dump-maps", "-", "--maps"])
        .arg(&peers)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir starts");
    let served = std::panic::catch_unwind(|| talk(&client, &server));
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    if let Err(panic) = served {
        std::panic::resume_unwind(panic);
    }
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn talk(client: &NetNs, server: &NetNs) {
    let listener = server
        .run(|| TcpListener::bind("0.0.0.0:80"))
        .expect("namespace")
        .expect("bind");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::copy(&mut &stream, &mut &stream);
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    let to = "10.0.1.2:80".parse().expect("an address");
    let end = Instant::now() + PATIENCE;
    // Weir may not serve yet.
    let stream = loop {
        let tried = client
            .run(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)))
            .expect("namespace");
        match tried {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
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
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
    let socket = client
        .run(|| UdpSocket::bind("0.0.0.0:0"))
        .expect("namespace")
        .expect("bind");
    for _ in 0..5 {
        socket
            .send_to(b"to be dropped", "10.0.1.2:9")
            .expect("sent");
    }
    // The dropped ones are still under way; nothing tells when they are done but time.
    thread::sleep(Duration::from_millis(300));
}

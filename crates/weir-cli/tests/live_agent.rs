//! `weir agent` with real edges and devices: files that come, change and go, damage, edits, kills of the agent and of its children.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_agent::api::{AgentClient, Target};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

use crate::live_bed::{file, listen, pinned, root, stderr};
use crate::live_farm::Farm;

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running agent; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    events: Receiver<Value>,
}

impl Running {
    pub(crate) fn start(ns: &NetNs, folder: &Path, state: &Path) -> Running {
        Running::start_program(Path::new(env!("CARGO_BIN_EXE_weir")), ns, folder, state)
    }

    /// The agent of some build.
    pub(crate) fn start_program(
        program: &Path,
        ns: &NetNs,
        folder: &Path,
        state: &Path,
    ) -> Running {
        let program = program.to_str().expect("UTF-8");
        let mut command = ns.command(program).expect("namespace");
        command
            .args(["agent", "--interval", "200ms", "--json"])
            .arg(folder);
        // Its socket, too: agents of other tests run at the same time.
        let command = command
            .env("STATE_DIRECTORY", state)
            .env("RUNTIME_DIRECTORY", state);
        let command = command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("weir starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("JSON");
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Running { child, events }
    }

    /// Waits for an event; those before it are passed over.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) if event["event"] == name => return event,
                Ok(event) => seen.push(event),
                Err(error) => panic!("no event `{name}` ({error}), but {seen:?}"),
            }
        }
    }

    /// Waits for an event of some state.
    #[track_caller]
    pub(crate) fn event_of(&self, name: &str, state: &str) -> Value {
        loop {
            let event = self.event(name);
            if event["state"] == state {
                return event;
            }
        }
    }

    /// Passes over all events so far.
    pub(crate) fn skip(&self) {
        while self.events.try_recv().is_ok() {}
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(process, signal).expect("it lives");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two hosts, and the folders of an agent on the second.
pub(crate) struct Bed {
    pub(crate) left: NetNs,
    pub(crate) right: NetNs,
    pub(crate) edge: String,
    pub(crate) folder: PathBuf,
    pub(crate) state: PathBuf,
}

impl Bed {
    pub(crate) fn new(name: &str) -> Bed {
        let ns = |part: &str| NetNs::create(&format!("weira-{name}-{part}")).expect("namespace");
        let folder = file("agent", "").with_extension("d");
        fs::create_dir_all(&folder).expect("cargo's folder is writable");
        let bed = Bed {
            left: ns("l"),
            right: ns("r"),
            edge: format!("a{}-{name}", std::process::id()),
            state: folder.with_extension("state"),
            folder,
        };
        bed.cable();
        bed
    }

    fn cable(&self) {
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&self.left, "left0", &["10.79.0.1/24"]),
            end(&self.right, "right0", &["10.79.0.2/24"]),
        )
        .expect("veth");
    }

    /// Replaces the edge's file by rename, as editors do.
    pub(crate) fn write(&self, rules: &str) {
        let text = format!(
            "edge = \"{}\"\n[[port]]\nname = \"in\"\ndevice = \"right0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\n\
             rules = [{rules}]\n[[link]]\nfrom = \"in\"\nto = \"shield\"\n",
            self.edge
        );
        let beside = self.folder.join("edge.new");
        fs::write(&beside, text).expect("writable");
        fs::rename(&beside, self.file()).expect("writable");
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("edge.toml")
    }

    pub(crate) fn agent(&self) -> Running {
        Running::start(&self.right, &self.folder, &self.state)
    }

    pub(crate) fn weir(&self, args: &[&str]) -> Output {
        let mut command = self
            .right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let command = command.args(args).env("STATE_DIRECTORY", &self.state);
        command.output().expect("weir starts")
    }

    /// What the agent answers at its socket.
    pub(crate) fn ask(&self, path: &str) -> Value {
        let target = Target::Socket(self.state.join("agent.sock"));
        let mut agent = AgentClient::new(target).expect("a client");
        agent.get(path).expect("an answer")
    }

    pub(crate) fn generation(&self) -> u64 {
        let output = self.weir(&["status", "--edge", &self.edge, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["edges"][0]["generation"].as_u64().expect("a number")
    }

    /// Whether a port of the second host can be connected to.
    pub(crate) fn connects(&self, port: u16) -> bool {
        let address = SocketAddr::from(([10, 79, 0, 2], port));
        let _listener = listen(&self.right, address);
        let patience = Duration::from_millis(700);
        let connect = || TcpStream::connect_timeout(&address, patience).is_ok();
        self.left.run(connect).expect("namespace")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
        let _ = fs::remove_dir_all(&self.state);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn files_that_come_change_and_go() {
    if !root("files_that_come_change_and_go") {
        return;
    }
    let bed = Bed::new("files");
    let agent = bed.agent();
    bed.write("\"deny tcp to-port 7001\"");
    assert_eq!(agent.event("applied")["edge"], bed.edge.as_str());
    assert!(!bed.connects(7001) && bed.connects(7002), "the first rules");
    bed.write("\"deny tcp to-port 7002\"");
    assert_eq!(agent.event("applied")["why"], "file changed");
    assert!(
        bed.connects(7001) && !bed.connects(7002),
        "the second rules"
    );
    metrics_are_those_of_the_status(&bed);
    // A mistake changes nothing, and is told with its place.
    bed.write("\"deny tpc to-port 7003\"");
    let failed = agent.event("failed");
    assert!(
        failed["error"].as_str().is_some_and(|e| e.contains("tpc")),
        "{failed}"
    );
    assert!(
        bed.connects(7001) && !bed.connects(7002),
        "the second rules"
    );
    bed.write("\"deny tcp to-port 7001\"");
    agent.event("applied");
    let output = bed.weir(&["history", "--edge", &bed.edge, "--json"]);
    let history: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        history["changes"].as_array().map(Vec::len),
        Some(3),
        "{history}"
    );
    assert_eq!(history["changes"][2]["user"], "agent");
    // A file that is renamed is not gone.
    fs::rename(bed.file(), bed.folder.join("other.toml")).expect("renamed");
    let applied = agent.event("applied");
    assert!(
        applied["file"]
            .as_str()
            .is_some_and(|f| f.ends_with("other.toml"))
    );
    assert!(!bed.connects(7001), "still the first rules");
    fs::remove_file(bed.folder.join("other.toml")).expect("removed");
    agent.event("removed");
    assert!(
        bed.connects(7001) && pinned(&bed.right) == 0,
        "nothing stays"
    );
}

/// Metrics and `weir status` say the same. A host is never quite silent: a packet may come between two readings.
#[track_caller]
fn metrics_are_those_of_the_status(bed: &Bed) {
    let read = |args: &[&str]| {
        let output = bed.weir(args);
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let same = || {
        let status = read(&["status", "--edge", &bed.edge, "--json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let edge = &status["edges"][0];
        let metrics = read(&["status", "--openmetrics"]);
        let value = |start: &str| {
            let line = metrics.lines().find(|line| line.starts_with(start));
            let line = line.unwrap_or_else(|| panic!("no {start} in\n{metrics}"));
            line.rsplit(' ')
                .next()
                .and_then(|value| value.parse::<u64>().ok())
        };
        let edge_label = format!("edge=\"{}\"", bed.edge);
        let port = format!("{{{edge_label},port=\"in\",direction=\"received\"");
        let function = format!("{{{edge_label},function=\"shield\"");
        let pairs = [
            (
                &edge["generation"],
                format!("weir_edge_generation{{{edge_label}}}"),
            ),
            (
                &edge["ports"][0]["ledger"]["received"],
                format!("weir_port_packets_total{port}}}"),
            ),
            (
                &edge["ports"][0]["ledger"]["bytes"],
                format!("weir_port_bytes_total{port}}}"),
            ),
            (
                &edge["functions"][0]["ledger"]["verdicts"]["drop"],
                format!("weir_function_verdicts_total{function},verdict=\"drop\"}}"),
            ),
        ];
        let dropped = pairs[3].0.as_u64();
        assert!(dropped.is_some_and(|packets| packets > 0), "{status}");
        assert_eq!(value(&format!("weir_port_attached{{{edge_label}")), Some(1));
        pairs
            .iter()
            .all(|(number, start)| number.as_u64() == value(start))
    };
    assert!((0..20).any(|_| same()), "they differ each time");
}

#[test]
fn damage_is_repaired_and_edits_are_left_alone() {
    if !root("damage_is_repaired_and_edits_are_left_alone") {
        return;
    }
    let bed = Bed::new("damage");
    bed.write("\"deny tcp to-port 7001\"");
    let agent = bed.agent();
    agent.event("applied");
    // The device is replaced by another of its name: while there is none, it is tried again and again.
    bed.right.ip(&["link", "del", "right0"]).expect("ip");
    agent.event("failed");
    bed.cable();
    agent.event("applied");
    assert!(!bed.connects(7001) && bed.connects(7002), "attached again");
    // An edge that was taken down by hand stays down until SIGHUP.
    let output = bed.weir(&["down", "--edge", &bed.edge]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(agent.event("edited")["how"], "it was taken down");
    assert!(bed.connects(7001), "no edge any more");
    agent.signal(Signal::HUP);
    agent.event("applied");
    assert!(!bed.connects(7001), "applied again");
    // Another configuration is applied by hand: the agent reports it.
    let other = bed.folder.join("edge.bak");
    let text = fs::read_to_string(bed.file())
        .expect("readable")
        .replace("7001", "7002");
    fs::write(&other, text).expect("writable");
    let renamed = bed.state.join("by-hand.toml");
    fs::rename(&other, &renamed).expect("renamed");
    let by_hand = |file: &PathBuf| {
        let output = bed.weir(&["apply", file.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    by_hand(&renamed);
    agent.event("edited");
    assert!(
        bed.connects(7001) && !bed.connects(7002),
        "what was applied by hand"
    );
    // `edits = "revert"` is for those who want it.
    fs::write(bed.folder.join("agent.toml"), "edits = \"revert\"\n").expect("writable");
    agent.event("applied");
    assert!(
        !bed.connects(7001) && bed.connects(7002),
        "what the file says"
    );
    by_hand(&renamed);
    assert_eq!(agent.event("applied")["why"], "edits are reverted");
}

#[test]
fn an_edge_outlives_its_agent_and_is_adopted() {
    if !root("an_edge_outlives_its_agent_and_is_adopted") {
        return;
    }
    let bed = Bed::new("adopt");
    bed.write("\"deny tcp to-port 7001\"");
    let agent = bed.agent();
    agent.event("applied");
    let generation = bed.generation();
    drop(agent);
    assert!(!bed.connects(7001), "killed, and the edge runs on");
    let agent = bed.agent();
    agent.event("adopted");
    assert_eq!(bed.generation(), generation, "nothing was applied");
    let second = bed.weir(&["agent", bed.folder.to_str().expect("UTF-8")]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("another agent runs"),
        "{}",
        stderr(&second)
    );
    // Edited while no agent ran, and taken down while none ran: the first stays, the second is a boot for all that can be seen.
    agent.signal(Signal::TERM);
    drop(agent);
    let output = bed.weir(&["down", "--edge", &bed.edge]);
    assert!(output.status.success(), "{}", stderr(&output));
    let agent = bed.agent();
    assert_eq!(agent.event("applied")["why"], "first look");
    assert!(!bed.connects(7001), "back after a boot");
}

#[test]
fn health_checks_are_children_that_come_back() {
    if !root("health_checks_are_children_that_come_back") {
        return;
    }
    let mut farm = Farm::new("agent");
    let keys =
        "mode = \"nat\"\ncheck = { kind = \"tcp\", interval = \"100ms\", timeout = \"500ms\" }";
    farm.write(&farm.service("192.0.2.1", keys, &[0, 1, 2]));
    let folder = file("agent", "").with_extension("d");
    let state = folder.with_extension("state");
    fs::create_dir_all(&folder).expect("writable");
    fs::copy(&farm.config, folder.join("farm.toml")).expect("copied");
    let agent = Running::start(&farm.edge, &folder, &state);
    agent.event("applied");
    let started = agent.event("started");
    let command = started["command"].as_str().expect("text");
    assert!(command.starts_with("service check --edge "), "{command}");
    let process = started["process"].as_u64().expect("a number") as i32;
    // It has few rights, and no way to more.
    let is_set_up = || {
        // Until it is the command itself it is a copy of the agent, or setpriv.
        let words = fs::read_to_string(format!("/proc/{process}/cmdline")).expect("it runs");
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        (words.split('\0').nth(1) == Some("service")).then_some(status)
    };
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match is_set_up() {
            Some(status) => break status,
            None => assert!(Instant::now() < until, "no weir"),
        }
    };
    let field = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a line");
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    // CAP_NET_ADMIN 12, CAP_SYS_ADMIN 21, CAP_PERFMON 38, CAP_BPF 39: those of them that the agent has.
    let allowed = 1 << 12 | 1 << 21 | 1 << 38 | 1u64 << 39;
    let bounding = u64::from_str_radix(&field("CapBnd:"), 16).expect("hexadecimal");
    assert_eq!(bounding & !allowed, 0, "{bounding:x}");
    kill_process(Pid::from_raw(process).expect("a process"), Signal::KILL).expect("it lives");
    agent.event("ended");
    let again = agent.event("started")["process"]
        .as_u64()
        .expect("a number");
    assert_ne!(again, process as u64);
    // What the child finds is an event.
    let health = |state: &str| {
        let event = agent.event("health");
        assert_eq!(event["state"], state, "{event}");
        assert_eq!(event["service"], "tcp 192.0.2.1:80", "{event}");
        let server = event["server"].as_str().expect("an address").to_owned();
        assert!(server.starts_with("10.2.1.2"), "{event}");
    };
    farm.kill(0);
    health("down");
    farm.start(0);
    health("up");
    // A killed agent leaves no child behind.
    drop(agent);
    let until = Instant::now() + PATIENCE;
    while PathBuf::from(format!("/proc/{again}")).exists() {
        assert!(Instant::now() < until, "the child {again} lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_dir_all(&state);
}

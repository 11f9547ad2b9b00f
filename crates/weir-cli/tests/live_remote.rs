//! Commands through an agent on another host, by TLS: what they print, which of them certificates allow, and what is refused.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use weir_testdata::etcd::{Authority, has_openssl};

use crate::live_agent::{Bed, Running};
use crate::live_bed::{root, stderr};

/// Where the agent listens.
const ADDRESS: &str = "https://10.79.0.2:9479";

/// Two hosts: an agent on one, who asks it on the other.
struct Hosts {
    agent: Running,
    bed: Bed,
    authority: Authority,
}

impl Hosts {
    fn new(name: &str) -> Hosts {
        let bed = Bed::new(name);
        let authority = Authority::new(&bed.state.with_extension("tls"));
        authority.issue("agent", "/CN=agent", "IP:10.79.0.2", 2);
        authority.issue("noc", "/CN=noc", "DNS:noc.example.net", 2);
        authority.issue("ops", "/CN=kim", "URI:urn:weir:ops", 2);
        authority.issue("guest", "/CN=guest", "DNS:a", 2);
        let path = |name: &str| authority.path(name);
        let settings = format!(
            "[api]\nlisten = \"10.79.0.2:9479\"\ntls-certificate = \"{}\"\ntls-key = \"{}\"\nclient-ca = \"{}\"\n\
             [api.clients]\nnoc = \"read\"\n\"urn:weir:ops\" = \"operate\"\n",
            path("agent.pem"),
            path("agent.key"),
            path("ca.pem")
        );
        fs::write(bed.folder.join("agent.toml"), settings).expect("writable");
        bed.write("\"deny tcp to-port 7001\"");
        let agent = bed.agent();
        agent.event("applied");
        serves(&agent);
        Hosts {
            bed,
            authority,
            agent,
        }
    }

    /// weir on the other host.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self
            .bed
            .left
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.args(args);
        command
    }

    fn as_client(&self, name: &str, args: &[&str]) -> Output {
        let [cert, key, ca] = [&format!("{name}.pem"), &format!("{name}.key"), "ca.pem"]
            .map(|name| self.authority.path(name));
        let options = [
            "--agent", ADDRESS, "--cert", &cert, "--key", &key, "--ca", &ca,
        ];
        let mut command = self.command(&options);
        command.args(args).output().expect("weir starts")
    }

    fn text(&self, name: &str, args: &[&str]) -> String {
        let output = self.as_client(name, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn json(&self, name: &str, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(name, args)).expect("JSON")
    }

    #[track_caller]
    fn fails(&self, name: &str, args: &[&str], status: i32, why: &str) {
        let output = self.as_client(name, args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

/// Waits until other hosts are served.
fn serves(agent: &Running) {
    let place = format!("{ADDRESS}/");
    while agent.event("serving")["at"] != place.as_str() {}
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.authority.folder);
    }
}

#[test]
fn commands_go_through_an_agent_elsewhere() {
    if !root("commands_go_through_an_agent_elsewhere") || !has_openssl() {
        return;
    }
    let hosts = Hosts::new("remote");
    let edge = hosts.bed.edge.as_str();
    // What it prints is what the host prints.
    let here = |args: &[&str]| {
        let output = hosts.bed.weir(args);
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    for args in [
        &["status", "--edge", edge][..],
        &["status", "--edge", edge, "--hits", "--json"],
        &["history"],
        &["history", "--json"],
        &["history", "1"],
        &["rollback", "1", "--dry-run", "--json"],
    ] {
        // The request itself passes the edge.
        let uncounted = |text: String| text.replace(|c: char| c.is_ascii_digit(), "");
        let (there, own) = (hosts.text("ops", args), here(args));
        assert_eq!(uncounted(there), uncounted(own), "{args:?}");
    }
    assert!(
        hosts
            .text("noc", &["status", "--openmetrics"])
            .ends_with("# EOF\n")
    );
    // A reader changes nothing.
    hosts.bed.write("\"deny tcp to-port 7002\"");
    hosts.agent.event("applied");
    hosts.fails("noc", &["rollback"], 1, "`\"noc\" = \"operate\"`");
    assert_eq!(hosts.bed.generation(), 2);
    let back = hosts.json("ops", &["rollback", "--json"]);
    assert_eq!((&back["to"], &back["applied"]), (&1.into(), &true.into()));
    assert_eq!(hosts.bed.generation(), 3);
    let history = hosts.json("noc", &["history", "--json"]);
    assert_eq!(history["changes"][2]["user"], "tls:urn:weir:ops");
    hosts.fails("ops", &["apply", "--confirm-now"], 1, "is waiting");
    let drops = hosts.json("ops", &["drops", "--duration", "1s", "--json"]);
    assert_eq!(drops["packets"], 0);
    let drops = hosts.text("ops", &["drops", "--duration", "1s"]);
    assert!(drops.starts_with("no packet was dropped in "), "{drops}");
    // Rates and events, as on the host.
    let table = hosts.json("noc", &["top", "--once", "--json", "--interval", "0.2"]);
    assert_eq!(table["ports"][0]["name"], "in");
    hosts.fails("noc", &["top", "--time"], 2, "without --agent");
    let logs = hosts.text("noc", &["logs", "--event", "applied"]);
    assert_eq!(logs.lines().count(), 2, "{logs}");
    assert!(logs.contains("(file changed)"), "{logs}");
    let logs = hosts.text("noc", &["logs", "--event", "requested", "--json"]);
    assert!(logs.contains("requested by tls:urn:weir:ops"), "{logs}");
    // What does not go there is refused, and does not happen here.
    hosts.fails(
        "ops",
        &["down", "--all"],
        2,
        "run it there, without --agent",
    );
    hosts.fails(
        "ops",
        &["drops", "--count", "1"],
        2,
        "--count works on the host itself",
    );
    hosts.fails(
        "ops",
        &["status", "edge.toml"],
        2,
        "name the agent's with --edge",
    );
    hosts.fails("ops", &["status", "--edge", "nowhere"], 1, "running edges");
    hosts.fails("guest", &["status"], 1, "[api.clients]");
    let file = hosts.bed.file();
    let file = file.to_str().expect("UTF-8");
    assert!(hosts.as_client("guest", &["check", file]).status.success());
}

#[test]
fn agents_have_names_in_a_file() {
    if !root("agents_have_names_in_a_file") || !has_openssl() {
        return;
    }
    let hosts = Hosts::new("named");
    let file = hosts.authority.folder.join("client.toml");
    let path = |name: &str| hosts.authority.path(name);
    let text = format!(
        "cert = \"{}\"\nkey = \"{}\"\nca = \"{}\"\n[agents]\noffice = \"{ADDRESS}\"\n",
        path("noc.pem"),
        path("noc.key"),
        path("ca.pem")
    );
    fs::write(&file, text).expect("writable");
    let run = |args: &[&str], agent: Option<&str>| {
        let mut command = hosts.command(args);
        command.env("WEIR_CLIENT", &file);
        if let Some(agent) = agent {
            command.env("WEIR_REMOTE", agent);
        }
        let output = command.output().expect("weir starts");
        (output.status.code(), stderr(&output))
    };
    for (args, agent) in [
        (&["--agent", "office", "history"][..], None),
        (&["history"], Some("office")),
    ] {
        let (status, said) = run(args, agent);
        assert_eq!(status, Some(0), "{said}");
    }
    // The option is nearer than the file.
    let guest = path("guest.pem");
    let key = path("guest.key");
    let (status, said) = run(
        &[
            "--agent", "office", "--cert", &guest, "--key", &key, "history",
        ],
        None,
    );
    assert_eq!(status, Some(1));
    assert!(said.contains("`guest`"), "{said}");
    let (status, said) = run(&["--agent", "ofice", "history"], None);
    assert_eq!(status, Some(2));
    assert!(said.contains("has office"), "{said}");
    // A variable does not lead a change of this host astray.
    let (status, said) = run(&["down", "--all"], Some("office"));
    assert_eq!(status, Some(2));
    assert!(said.contains("without --agent"), "{said}");
    // Over the socket of the same host it is the same.
    let socket = hosts.bed.state.join("agent.sock");
    let socket = socket.to_str().expect("UTF-8");
    let output = hosts.bed.weir(&["--agent", socket, "history", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn logs_follow_what_happens() {
    if !root("logs_follow_what_happens") || !has_openssl() {
        return;
    }
    let hosts = Hosts::new("logs");
    let sensor = hosts.bed.folder.join("logs").join("eth0");
    fs::create_dir_all(&sensor).expect("writable");
    let settings = hosts.bed.folder.join("agent.toml");
    let text = fs::read_to_string(&settings).expect("there");
    let folder = hosts.bed.folder.join("logs");
    let named = format!("[api]\nalerts = \"{}\"\n", folder.display());
    fs::write(&settings, text.replace("[api]\n", &named)).expect("writable");
    serves(&hosts.agent);
    let path = |name: &str| hosts.authority.path(name);
    let mut command = hosts.command(&["--agent", ADDRESS]);
    command.args(["--cert", &path("noc.pem"), "--key", &path("noc.key")]);
    command.args([
        "--ca",
        &path("ca.pem"),
        "logs",
        "-f",
        "--event",
        "drops",
        "--event",
        "alert",
    ]);
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.expect("weir starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // The filter denies them; counters are read every five seconds, and the first reading is where counting begins.
    let is_over = AtomicBool::new(false);
    let drops = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let address = SocketAddr::from(([10, 79, 0, 2], 7001));
                let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
                let refused = hosts.bed.left.run(connect).expect("namespace");
                assert!(refused.is_err(), "the filter denies it");
            }
        });
        let line = lines.next().expect("a line").expect("UTF-8");
        is_over.store(true, Ordering::Relaxed);
        line
    });
    assert!(drops.contains("shield dropped "), "{drops}");
    let record = r#"{"event_type":"alert","src_ip":"10.0.0.1","dest_ip":"10.0.0.2","proto":"ICMP","flow_id":7,"alert":{"gid":1,"signature_id":5,"rev":1,"signature":"ping","severity":3}}"#;
    let mut file = fs::File::create(sensor.join("eve.json")).expect("writable");
    writeln!(file, "{record}").expect("written");
    let alert = lines.next().expect("a line").expect("UTF-8");
    assert!(
        alert.ends_with("sensor eth0: alert 1:5:1 \"ping\", severity 3: ICMP 10.0.0.1 > 10.0.0.2"),
        "{alert}"
    );
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

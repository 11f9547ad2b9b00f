//! Function `balancer` with real HTTP: a client, an edge that balances, and two servers that answer directly, in every mode. Connections live
//! through changes of the configuration, and packets that do not fit into a tunnel teach the client a smaller MTU.
//! `live_services` has the bed.

use std::io::Write;
use std::net::TcpStream;
use std::process::Output;
use std::time::Duration;

use crate::live_bed::{file, root, stderr, weir};
use crate::live_services::{Answers, Bed, SERVICE, SERVICE6, ask};
use weir_engine::edge;
use weir_kernel::bed;

#[test]
fn http_works_in_every_mode_and_servers_answer_directly() {
    if !root("http_works_in_every_mode_and_servers_answer_directly") {
        return;
    }
    for (what, mode, outer, service) in [
        ("ipip", "mode = \"ipip\"", 4, SERVICE),
        ("ipip46", "mode = \"ipip\"", 6, SERVICE),
        ("ipip64", "mode = \"ipip\"", 4, SERVICE6),
        ("gue", "mode = \"gue\"", 4, SERVICE),
        ("gue0", "mode = \"gue\"\ngue_version = 0", 6, SERVICE6),
        ("dsr", "mode = \"dsr\"", 4, SERVICE),
        ("nat", "mode = \"nat\"", 4, SERVICE),
        ("nat6", "mode = \"nat\"", 6, SERVICE6),
    ] {
        let bed = Bed::new(what);
        let is_nat = what.starts_with("nat");
        bed.answer_directly(!is_nat);
        if what.starts_with("ipip") || what.starts_with("gue") {
            bed.decapsulate(outer);
        }
        let port = if is_nat { "\nport = 8080" } else { "" };
        let ways = [0, 1].map(|k| format!("{}{port}", bed.way(k)));
        bed.configure(service, mode, outer, &[(0, &ways[0]), (1, &ways[1])]);
        bed.apply();
        let names = bed.spread(service, 24);
        assert_eq!(names, ["one", "two"], "{what}: {}", bed.status());
        // More than fits into a packet, and into a tunnel.
        let mut stream = bed.connect(service).expect("connects");
        let name =
            ask(&mut stream, 100_000).unwrap_or_else(|e| panic!("{what}: {e}: {}", bed.status()));
        assert!(names.contains(&name), "{what}: {name}");
        let through = bed.status()["ledger"]["received"]
            .as_u64()
            .expect("counted");
        assert!(through > 100, "{what}: {through}");
        let errors = bed
            .servers
            .iter()
            .map(|ns| bed::counter(ns, "Tcp", "InCsumErrors").expect("readable"));
        assert_eq!(errors.map(|e| e.unwrap_or(0)).sum::<u64>(), 0, "{what}");
    }
}

#[test]
fn connections_stay_with_their_servers_through_changes() {
    if !root("connections_stay_with_their_servers_through_changes") {
        return;
    }
    let bed = Bed::new("stay");
    bed.decapsulate(4);
    let ways = [0, 1].map(|k| bed.way(k));
    let drained = format!("{}\ndrain = true", ways[0]);
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &ways[0]), (1, &ways[1])],
    );
    bed.apply();
    let mut open = Open::new(&bed);
    // The other way round, another weight, another object: all is made anew but what is remembered.
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(1, &format!("{}\nweight = 7", ways[1])), (0, &ways[0])],
    );
    bed.apply();
    open.stay("turned round");
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &drained), (1, &ways[1])],
    );
    bed.apply();
    open.stay("drained");
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, &ways[0])]);
    bed.apply();
    assert_eq!(bed.spread(SERVICE, 12), ["one"]);
    // Connections of the one that is left stayed; the others lost theirs.
    for (stream, name) in &mut open.0 {
        if name == "one" {
            assert_eq!(ask(stream, 10).expect("answered"), "one");
        }
    }
    // A mistake changes nothing.
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, "weight = 0")]);
    let refused = weir(&bed.edge, &["apply", bed.config.to_str().expect("UTF-8")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("a server of weight 0 gets no flows"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(bed.spread(SERVICE, 4), ["one"]);
}

/// Open connections with the names of their servers.
struct Open(Vec<(TcpStream, String)>);

impl Open {
    /// Some at either server.
    fn new(bed: &Bed) -> Open {
        let all: Vec<(TcpStream, String)> = (0..16)
            .map(|_| {
                let mut stream = bed.connect(SERVICE).expect("connects");
                let name = ask(&mut stream, 10).expect("answered");
                (stream, name)
            })
            .collect();
        for server in ["one", "two"] {
            assert!(all.iter().any(|(_, name)| name == server), "{server}");
        }
        Open(all)
    }

    fn stay(&mut self, what: &str) {
        for (stream, name) in &mut self.0 {
            let now = ask(stream, 10).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(now, *name, "{what}");
        }
    }
}

#[test]
fn connections_stay_with_their_servers_through_restarts() {
    if !root("connections_stay_with_their_servers_through_restarts") {
        return;
    }
    let bed = Bed::new("again");
    bed.decapsulate(4);
    let ways = [0, 1].map(|k| bed.way(k));
    let both = [(0, ways[0].as_str()), (1, ways[1].as_str())];
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &both);
    bed.apply();
    let mut open = Open::new(&bed);
    let program = |bed: &Bed| bed.status()["program"].as_u64().expect("an id");
    let config = bed.config.to_str().expect("UTF-8").to_owned();
    // No process of weir runs between two calls: each one finds what runs in the kernel.
    let first = program(&bed);
    bed.apply();
    open.stay("the same again");
    // Constants of the program: another one takes its place.
    let text = std::fs::read_to_string(&config).expect("readable");
    let changed = text.replace(
        "connections = 4096\n",
        "connections = 4096\nidle = { tcp = \"20m\" }\nsource6 = \"fd98::/64\"\n",
    );
    let changed = changed.replacen("source6 = \"fd99::/64\"\n", "", 1);
    assert_ne!(changed, text);
    std::fs::write(&config, &changed).expect("writable");
    bed.apply();
    assert_ne!(program(&bed), first, "another program");
    open.stay("another program");
    // Processes that are killed in the middle of their work.
    for (n, wait) in [5, 15, 30, 60, 100, 150].into_iter().enumerate() {
        let text = changed.replace("\"20m\"", &format!("\"{}m\"", 30 + n));
        std::fs::write(&config, text).expect("writable");
        let mut child = bed
            .edge
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args(["apply", &config])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("weir starts");
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        let _ = child.wait();
        open.stay(&format!("killed after {wait} ms"));
    }
    // The next one cleans up, and takes flows as before.
    let turned = [(1, ways[1].as_str()), (0, ways[0].as_str())];
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &turned);
    bed.apply();
    open.stay("another configuration after a crash");
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
}

#[test]
fn services_are_changed_while_they_run() {
    if !root("services_are_changed_while_they_run") {
        return;
    }
    let bed = Bed::new("edit");
    bed.decapsulate(4);
    let way = bed.way(0);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, &way)]);
    bed.apply();
    let service = |args: &[&str]| {
        weir(
            &bed.edge,
            &[&["service", "--edge", &bed.name], args].concat(),
        )
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(bed.spread(SERVICE, 6), ["one"]);
    // As ipvsadm would say it.
    let place = format!("{SERVICE}:80");
    let mac = bed.mac(1);
    let added = service(&[
        "-a",
        "-t",
        &place,
        "-r",
        "10.2.2.2:80",
        "-w",
        "3",
        "-i",
        "--mac",
        &mac,
        "--to",
        "s2",
    ]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(
        text(&added).contains("the file of the configuration was not changed"),
        "{}",
        text(&added)
    );
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
    let drained = service(&["drain", "-r", "10.2.1.2"]);
    assert!(drained.status.success(), "{}", stderr(&drained));
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    let listed = text(&service(&["-L", "-n", "--stats"]));
    assert!(listed.contains("tcp 192.0.2.1:80 (web)"), "{listed}");
    let line = listed
        .lines()
        .find(|line| line.contains("10.2.2.2"))
        .expect("listed");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..4], ["3", "up"], "{listed}");
    assert!(words[6].parse::<u64>().expect("a number") >= 12, "{listed}");
    assert!(
        listed
            .lines()
            .any(|line| line.contains("10.2.1.2") && line.contains("drain")),
        "{listed}"
    );
    // The edge says it in short.
    let carried = bed.status()["carried"].clone();
    assert_eq!(carried[0]["to"], "tcp 192.0.2.1:80 (web)", "{carried}");
    assert_eq!(
        carried[0]["servers"],
        serde_json::json!([1, 2]),
        "{carried}"
    );
    assert!(carried[0]["flows"].as_u64() >= Some(42), "{carried}");
    let status = text(&weir(&bed.edge, &["status", "--edge", &bed.name]));
    assert!(
        status.contains(" flows, 1 of 2 servers take new ones\n"),
        "{status}"
    );
    // What does not fit is refused, and what runs runs on.
    for (args, what) in [
        (
            vec!["-a", "-t", &place, "-r", "10.2.2.2"],
            "is already in tcp 192.0.2.1:80",
        ),
        (
            vec!["-e", "-t", &place, "-r", "10.2.2.2", "-w", "0"],
            "a server of weight 0 gets no flows",
        ),
        (
            vec!["-D", "-t", "192.0.2.9:80"],
            "no service tcp 192.0.2.9:80",
        ),
        (
            vec!["-a", "-t", &place, "-r", "10.2.9.2", "-m"],
            "has mode ipip",
        ),
    ] {
        let before = text(&service(&["--json"]));
        let refused = service(&args);
        let told = stderr(&refused);
        assert!(
            !refused.status.success() && told.contains(what),
            "{args:?}: {told}"
        );
        assert_eq!(text(&service(&["--json"])).len(), before.len(), "{args:?}");
    }
    let saved = file("saved.toml", "");
    let done = service(&["save", "-o", saved.to_str().expect("UTF-8")]);
    assert!(done.status.success(), "{}", stderr(&done));
    let checked = weir(&bed.edge, &["diff", saved.to_str().expect("UTF-8")]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(!text(&checked).contains("10.2"), "{}", text(&checked));
    assert_eq!(bed.spread(SERVICE, 6), ["two"]);
}

#[test]
fn services_are_saved_and_restored_as_lines() {
    if !root("services_are_saved_and_restored_as_lines") {
        return;
    }
    let bed = Bed::new("lines");
    bed.decapsulate(4);
    let way = bed.way(0);
    let drained = format!("{}\ndrain = true", bed.way(1));
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, &way), (1, &drained)]);
    bed.apply();
    let service = |args: &[&str]| {
        weir(
            &bed.edge,
            &[&["service", "--edge", &bed.name], args].concat(),
        )
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let restore = |lines: &str| {
        let mut child = bed
            .edge
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args(["service", "--edge", &bed.name, "-R"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("weir starts");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(lines.as_bytes()).expect("written");
        drop(stdin);
        child.wait_with_output().expect("it ends")
    };
    let (one, two) = (bed.mac(0), bed.mac(1));
    let saved = text(&service(&["-S", "-n"]));
    let wanted = format!(
        "-A -t 192.0.2.1:80 -s mh\n-a -t 192.0.2.1:80 -r 10.2.1.2:80 -i -w 1 --mac {one} --to s1\n-a -t 192.0.2.1:80 -r 10.2.2.2:80 -i -w 0 --mac {two} --to s2\n"
    );
    assert_eq!(saved, wanted);
    // Counters of a service, and what it carries in a second.
    assert_eq!(bed.spread(SERVICE, 6), ["one"]);
    let counted = || -> u64 {
        let output = service(&["--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        let of = |v: &serde_json::Value| v["counted"]["packets"].as_u64().expect("a number");
        let service = &json["services"][0];
        of(service) + of(&service["servers"][0])
    };
    assert!(counted() > 12, "{}", counted());
    let other = service(&["-Z", "-t", "192.0.2.9:80"]);
    assert!(stderr(&other).contains("no service"), "{}", stderr(&other));
    let zeroed = service(&["-Z", "-t", "192.0.2.1:80"]);
    assert_eq!(text(&zeroed), "counters of 1 services are 0\n");
    assert_eq!(counted(), 0);
    let rate = text(&service(&["-L", "-n", "--rate"]));
    assert!(rate.contains("Packets/s"), "{rate}");
    // Away, and back: the ring of identities is the same one, so flows have the same servers.
    let ring = || edge::held(&bed.name, "lb", "ring").expect("readable");
    let before = ring();
    let cleared = service(&["-C"]);
    assert!(cleared.status.success(), "{}", stderr(&cleared));
    assert_eq!(text(&service(&["-S"])), "");
    let nobody = bed.client.run(|| {
        let to = format!("{SERVICE}:80").parse().expect("an address");
        TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_err()
    });
    assert!(nobody.expect("namespace"), "no service");
    // A mistake in one line, and nothing of all happens.
    for (line, why) in [
        (
            "-A -t 192.0.2.5:80 -s wlc",
            "line 4 (`-A -t 192.0.2.5:80 -s wlc`): -s wlc: weir spreads flows by Maglev hashing",
        ),
        ("-L", "a line begins with -A"),
        (
            "-a -t 192.0.2.9:80 -r 10.0.0.1",
            "no service tcp 192.0.2.9:80",
        ),
        ("-A --nonsense", "--nonsense"),
    ] {
        let refused = restore(&format!("{saved}{line}\n"));
        let told = stderr(&refused);
        assert!(
            !refused.status.success() && told.contains(why),
            "{line}: {told}"
        );
        assert_eq!(text(&service(&["-S"])), "");
    }
    let restored = restore(&saved);
    assert!(restored.status.success(), "{}", stderr(&restored));
    assert!(text(&restored).contains("3 lines were restored"));
    assert_eq!(text(&service(&["-S"])), saved);
    assert_eq!(bed.spread(SERVICE, 6), ["one"]);
    assert_eq!(ring(), before);
    // What ipvsadm writes for GUE, IPv6, UDP and NAT; and what cannot be said.
    let more = "-A -u [2001:db8::80]:53 -s mh\n-a -u [2001:db8::80]:53 -r [fd02:1::2]:53 -m -w 1\n-A -t 192.0.2.7:443 -s mh\n-a -t 192.0.2.7:443 -r 10.2.1.2:443 -i --tun-type gue --tun-port 6081 --tun-nocsum -w 2\n";
    let restored = restore(more);
    assert!(restored.status.success(), "{}", stderr(&restored));
    let now = text(&service(&["-S"]));
    assert_eq!(now, format!("{saved}{more}"));
    for (args, why) in [
        (
            vec!["-A", "-t", "192.0.2.8:80", "-p", "300"],
            "-p: flows of a client",
        ),
        (vec!["-L", "-c"], "-c: flows are stored as hashes"),
        (
            vec!["-L", "--timeout"],
            "--timeout, --set: times are `idle`",
        ),
        (
            vec!["-L", "--thresholds"],
            "servers have no connection limits",
        ),
        (vec!["-A", "-f", "1"], "-f: name services by address"),
    ] {
        let refused = service(&args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
    // What lines cannot say is named.
    bed.configure(
        SERVICE,
        "mode = \"gue\"\ncheck = { kind = \"tcp\" }",
        4,
        &[(0, &way)],
    );
    bed.apply();
    let told = stderr(&service(&["-S"]));
    assert!(told.contains("its check of tcp 192.0.2.1:80"), "{told}");
}

#[test]
fn what_cannot_work_here_is_refused_or_told() {
    if !root("what_cannot_work_here_is_refused_or_told") {
        return;
    }
    let bed = Bed::new("cannot");
    bed.decapsulate(4);
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, ""), (1, "")]);
    // Without MAC addresses the kernel says the way.
    let applied = bed.apply();
    assert_eq!(stderr(&applied), "", "both servers are reached");
    assert_eq!(bed.spread(SERVICE, 24), ["one", "two"]);
    let before = bed.status();
    bed.edge
        .ip(&["link", "set", "dev", "s2", "mtu", "590"])
        .expect("an MTU");
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, "")]);
    let refused = weir(&bed.edge, &["apply", bed.config.to_str().expect("UTF-8")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("run `ip link set dev s2 mtu 596` or more"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(bed.status()["program"], before["program"]);
    bed.edge
        .ip(&["link", "set", "dev", "s2", "mtu", "1500"])
        .expect("an MTU");
    let away = "[[function.service.server]]\naddress = \"203.0.113.77\"";
    bed.configure(SERVICE, "mode = \"ipip\"", 4, &[(0, away)]);
    let told = stderr(&bed.apply());
    assert!(
        told.contains("this host has no route to 203.0.113.77") && told.contains("ip route add"),
        "{told}"
    );
}

#[test]
fn servers_that_do_not_answer_get_no_new_flows_until_they_do() {
    if !root("servers_that_do_not_answer_get_no_new_flows_until_they_do") {
        return;
    }
    let mut bed = Bed::new("check");
    bed.decapsulate(4);
    let ways = [0, 1].map(|k| bed.way(k));
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &ways[0]), (1, &ways[1])],
    );
    bed.apply();
    // The first server stops listening: its answers are the first two.
    bed.answers.drain(..2);
    std::thread::sleep(Duration::from_millis(200));
    let check = |bed: &Bed, kind: &[&str]| {
        let args = [
            "service",
            "--edge",
            &bed.name,
            "check",
            "--interval",
            "0.1",
            "--fall",
            "2",
            "--rise",
            "1",
            "--for",
            "1",
        ];
        let output = weir(&bed.edge, &[&args[..], kind].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ring = |bed: &Bed| edge::held(&bed.name, "lb", "ring").expect("readable");
    let states = |bed: &Bed| {
        let output = weir(&bed.edge, &["service", "--edge", &bed.name, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        let servers = json["services"][0]["servers"].as_array().expect("servers");
        let down = servers.iter().map(|s| s["down"].as_bool().expect("said"));
        down.collect::<Vec<bool>>()
    };
    let (program, whole) = (bed.status()["program"].clone(), ring(&bed));
    let generation = edge::generation(&bed.name).expect("readable");
    let text = std::fs::read_to_string(&bed.config).expect("readable");
    let said = check(&bed, &["--http", "/"]);
    eprintln!("{said}");
    assert!(
        said.contains("server 10.2.1.2 of tcp 192.0.2.1:80 is down"),
        "{said}"
    );
    assert!(!said.contains("10.2.2.2"), "{said}");
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    assert_eq!(states(&bed), [true, false]);
    // In place: nothing was loaded, and no configuration is another one.
    assert_eq!(bed.status()["program"], program);
    assert_eq!(edge::generation(&bed.name).expect("readable"), generation);
    assert_ne!(ring(&bed), whole);
    let config = bed.config.to_str().expect("UTF-8");
    assert_eq!(std::fs::read_to_string(config).expect("readable"), text);
    let same = weir(&bed.edge, &["diff", config]);
    let same = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(!same.contains("lb"), "{same}");
    // It is known to tables that are made anew.
    let heavy = format!("{}\nweight = 3", ways[0]);
    bed.configure(
        SERVICE,
        "mode = \"ipip\"\nall_down = \"drop\"\ncheck = { kind = \"tcp\", interval = \"50ms\", rise = 2, fall = 1 }",
        4,
        &[(0, &heavy), (1, &ways[1])],
    );
    let told = stderr(&bed.apply());
    assert!(
        told.contains("1 of its servers failed their last health check"),
        "{told}"
    );
    assert_ne!(bed.status()["program"], program);
    assert_eq!(bed.spread(SERVICE, 12), ["two"]);
    assert_eq!(states(&bed), [true, false]);
    // All of them: new flows are dropped, and the others go on.
    let second: Vec<Answers> = bed.answers.drain(..1).collect();
    drop(second);
    std::thread::sleep(Duration::from_millis(200));
    let said = check(&bed, &[]);
    assert!(said.contains("server 10.2.2.2 of"), "{said}");
    assert!(
        said.contains(
            "all servers of tcp 192.0.2.1:80 are down: new flows are dropped (all_down = \"drop\")"
        ),
        "{said}"
    );
    assert_eq!(states(&bed), [true, true]);
    let dropped = |bed: &Bed| bed.status()["ledger"]["reasons"].to_string();
    let _ = bed.client.run(|| {
        let to = format!("{SERVICE}:80").parse().expect("an address");
        TcpStream::connect_timeout(&to, Duration::from_millis(300))
    });
    assert!(dropped(&bed).contains("no_server"), "{}", dropped(&bed));
    // They come back, to the places they had.
    for (at, name) in ["one", "two"].into_iter().enumerate() {
        let again = Answers::start(&bed.servers[at], name, 80);
        bed.answers.push(again);
    }
    let said = check(&bed, &[]);
    for server in ["10.2.1.2", "10.2.2.2"] {
        let back = format!("server {server} of tcp 192.0.2.1:80 is back");
        assert!(said.contains(&back), "{said}");
    }
    assert_eq!(states(&bed), [false, false]);
    // The second one gets a quarter of the flows: of 24 it got none once in a thousand runs.
    assert_eq!(bed.spread(SERVICE, 96), ["one", "two"]);
    let bent = ring(&bed);
    bed.configure(
        SERVICE,
        "mode = \"ipip\"",
        4,
        &[(0, &ways[0]), (1, &ways[1])],
    );
    assert_eq!(stderr(&bed.apply()), "");
    assert_ne!(bent, whole, "by weight");
    assert_eq!(ring(&bed), whole);
    // What a service says goes before options.
    bed.configure(
        SERVICE,
        "mode = \"ipip\"\ncheck = { kind = \"none\" }",
        4,
        &[(0, &ways[0])],
    );
    bed.apply();
    let args = ["service", "--edge", &bed.name, "check", "--http", "/"];
    let refused = weir(&bed.edge, &args);
    assert!(
        stderr(&refused).contains("no server to check"),
        "{}",
        stderr(&refused)
    );
}

//! `weir top`, `trace`, `drops` and `capture` on virtual networks between two edges with real traffic, and that the edge is as before behind them.

use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_engine::network;
use weir_kernel::NetNs;
use weir_packet::pcap::Capture;

use crate::live_bed::{file, root, stderr, weir};
use crate::live_net_ping::Pair;

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

fn run(ns: &NetNs, program: &str, args: &[&str]) -> Output {
    let mut command = ns.command(program).expect("namespace");
    command.args(args).output().expect("it runs")
}

/// Starts weir and gives its output when it ends.
fn begin(ns: &NetNs, args: &[&str]) -> Child {
    let mut command = ns.command(env!("CARGO_BIN_EXE_weir")).expect("namespace");
    let command = command.args(args).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("weir starts")
}

fn found<'v>(rows: &'v Value, name: &str) -> &'v Value {
    let mut all = rows.as_array().into_iter().flatten();
    all.find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {rows}"))
}

/// How long something that must happen is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

impl Pair {
    /// What `weir status` says of the networks of an edge.
    fn status(&self, edge: usize) -> Value {
        let output = weir(
            &self.edges[edge],
            &["status", "--json", "--edge", &self.names[edge]],
        );
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["networks"][0].clone()
    }

    /// Kernel ids of the programs that packets are handed to, and of those on devices.
    fn programs(&self, edge: usize) -> Vec<Option<u32>> {
        let look = network::look(&self.names[edge]).expect("read");
        let look = look.expect("runs");
        let called = look.set.map("net_programs").expect("a map");
        let called = (0..64).map(|slot| called.program_at(slot).expect("read"));
        // So few devices have links, which are pinned.
        let folder = format!("/sys/fs/bpf/weir/net/{}", self.names[edge]);
        let pins = std::fs::read_dir(&folder).expect("its pins");
        let pins = pins.map(|pin| pin.expect("a pin").path());
        let mut links: Vec<_> = pins
            .filter(|pin| pin.to_string_lossy().contains("/on-"))
            .collect();
        links.sort();
        assert_eq!(links.len(), 3 - edge, "{links:?}");
        let on_devices = links.into_iter().map(|pin| {
            let pin = pin.to_str().expect("UTF-8");
            let args = ["-j", "link", "show", "pinned", pin];
            let shown = run(&self.edges[edge], "bpftool", &args);
            let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
            let id = shown["prog_id"].as_u64();
            assert!(id.is_some(), "{pin}: {shown}");
            id.map(|id| id as u32)
        });
        called.chain(on_devices).collect()
    }

    /// Starts a watcher and waits until it watches.
    fn watch(&self, edge: usize, args: &[&str]) -> Child {
        let child = begin(
            &self.edges[edge],
            &[args, &["--edge", &self.names[edge]]].concat(),
        );
        let began = Instant::now();
        while self.status(edge)["watched"]["process"] != child.id() {
            assert!(began.elapsed() < PATIENCE, "{}", self.status(edge));
            sleep(Duration::from_millis(50));
        }
        child
    }
}

fn outcome(child: Child) -> Output {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let mut kill = std::process::Command::new("kill");
    let done = kill.args(["-INT", &id]).status().expect("it runs");
    assert!(done.success());
}

#[test]
fn a_trace_names_links_functions_reasons_and_tunnels() {
    if !root("a_trace_names_links_functions_reasons_and_tunnels") {
        return;
    }
    let pair = Pair::new("trace");
    let [a, _, _] = &pair.workloads;
    // Neighbours are known before.
    run(a, "ping", &["-c2", "-W2", "10.1.0.12"]);
    run(a, "ping", &["-c2", "-W2", "10.2.0.11"]);
    let before = [pair.programs(0), pair.programs(1)];
    let traces = [
        pair.watch(0, &["trace", "--json", "--filter", "icmp-type 8"]),
        pair.watch(1, &["trace", "--json", "--filter", "icmp-type 8"]),
    ];
    assert_ne!(pair.programs(0), before[0], "other programs run");
    run(a, "ping", &["-c1", "-W2", "10.1.0.12"]);
    run(a, "ping", &["-c1", "-W2", "10.2.0.11"]);
    run(a, "ping", &["-c1", "-W1", "10.8.0.1"]);
    a.ip(&["address", "add", "10.1.0.99/24", "dev", "eth0"])
        .expect("an address");
    run(a, "ping", &["-c1", "-W1", "-I", "10.1.0.99", "10.1.0.12"]);
    sleep(Duration::from_millis(300));
    let [here, there] = traces.map(|trace| {
        interrupt(&trace);
        lines(&outcome(trace))
    });
    assert_eq!(here.len(), 4, "{here:?}");
    assert!(here.iter().all(|one| one["whole"] == true), "{here:?}");
    let path = |one: &Value| one["path"].as_str().unwrap_or_default().to_owned();
    let tunnel = path(&here[0]);
    let identifier = tunnel.rsplit("VNI ").next().unwrap_or_default();
    assert!(identifier.parse::<u32>().is_ok(), "{tunnel}");
    assert_eq!(
        tunnel,
        format!(
            "shop/a > shop/web -> workload a: pass > shop/tunnel web: to edge {} (192.0.2.2, geneve), VNI {identifier}",
            pair.names[1]
        )
    );
    let routed = path(&here[1]);
    for part in ["> shop/gw.web: pass", "> shop/list", "> shop/wall"] {
        assert!(routed.contains(part), "{part}: {routed}");
    }
    assert!(routed.ends_with(": to shop/b"), "{routed}");
    let dropped = path(&here[2]);
    assert!(dropped.ends_with("shop/gw.web: drop no_route"), "{dropped}");
    assert!(here[2]["why"].to_string().contains("no_route: "));
    assert_eq!(path(&here[3]), "shop/a > drop spoofed");
    // The other edge says where it came from, with the same identifier.
    assert_eq!(there.len(), 1, "{there:?}");
    let first = there[0]["stages"][0]["what"].as_str();
    assert_eq!(first, Some(&*format!("came in, VNI {identifier}")));
    assert!(path(&there[0]).ends_with(": to shop/c"), "{there:?}");
    for (edge, before) in before.iter().enumerate() {
        assert_eq!(pair.programs(edge), *before, "exactly those of before");
        assert!(pair.status(edge)["watched"].is_null());
    }
    // Each cause of a drop once.
    let drops = pair.watch(0, &["drops", "--json", "--duration", "3s"]);
    run(a, "ping", &["-c3", "-i", "0.2", "-W1", "10.8.0.1"]);
    let report: Value = serde_json::from_slice(&outcome(drops).stdout).expect("JSON");
    let first = &report["drops"][0];
    assert_eq!(
        (&first["packets"], &first["stage"]),
        (&3.into(), &"shop/gw.web".into()),
        "{report}"
    );
}

#[test]
fn a_capture_at_a_workload_has_what_it_sends_and_gets() {
    if !root("a_capture_at_a_workload_has_what_it_sends_and_gets") {
        return;
    }
    let pair = Pair::new("capture");
    let [a, _, _] = &pair.workloads;
    run(a, "ping", &["-c2", "-W2", "10.1.0.12"]);
    run(a, "ping", &["-c2", "-W2", "10.2.0.11"]);
    let out = file("net.pcapng", "");
    let path = out.to_str().expect("UTF-8");
    let read = |stage: &str, filter: &str| {
        let capture = pair.watch(
            0,
            &[
                "capture", "--at", stage, "--filter", filter, "--output", path,
            ],
        );
        run(a, "ping", &["-c3", "-i", "0.2", "-W2", "10.1.0.12"]);
        run(a, "ping", &["-c3", "-i", "0.2", "-W2", "10.2.0.11"]);
        sleep(Duration::from_millis(300));
        interrupt(&capture);
        outcome(capture);
        let bytes = std::fs::read(&out).expect("written");
        let mut capture = Capture::open(&bytes[..]).expect("a capture");
        let mut packets = Vec::new();
        while let Some(packet) = capture.next_packet().expect("whole") {
            let name = packet.interface.name.clone().unwrap_or_default();
            packets.push((name, packet.data.to_vec()));
        }
        packets
    };
    let packets = read("shop/a", "ip-proto 1");
    let of = |name: &str| packets.iter().filter(|(at, _)| at == name).count();
    // Requests as they come in; answers as they leave, the router's with one hop less.
    assert_eq!((of("shop/a"), of("shop/a.transmit")), (6, 6));
    assert_eq!(packets.len(), 12);
    let hops: Vec<u8> = (packets.iter())
        .filter(|(at, _)| at == "shop/a.transmit")
        .map(|(_, frame)| frame[22])
        .collect();
    assert_eq!(hops, [64, 64, 64, 63, 63, 63]);
    // Behind the tunnel's interface frames are in their outer packets.
    let packets = read("shop/tunnel web", "icmp-type 8");
    assert_eq!(packets.len(), 3);
    for (name, frame) in packets {
        assert_eq!(name, "shop/tunnel web");
        // UDP to Geneve's port.
        assert_eq!((frame[23], &frame[36..38]), (17, &[0x17, 0xc1][..]));
    }
}

#[test]
fn whatever_ends_a_watcher_of_networks_the_edge_goes_back() {
    if !root("whatever_ends_a_watcher_of_networks_the_edge_goes_back") {
        return;
    }
    let pair = Pair::new("watchers");
    let [a, _, _] = &pair.workloads;
    let (edge, name) = (&pair.edges[0], &pair.names[0]);
    run(a, "ping", &["-c2", "-W2", "10.1.0.12"]);
    let before = pair.programs(0);
    let counted = |value: Value| value["totals"][0]["packets"].as_u64().expect("a number");
    let packets = counted(pair.status(0));
    // No packet is lost and no counter goes back, whoever begins and ends.
    let mut command = a.command("ping").expect("namespace");
    let command = command.args(["-q", "-i", "0.01", "-c", "500", "10.1.0.12"]);
    let pings = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let trace = pair.watch(0, &["trace", "--json"]);
    let second = weir(edge, &["trace", "--edge", name]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains(&format!("process {}", trace.id())),
        "{}",
        stderr(&second)
    );
    interrupt(&trace);
    outcome(trace);
    assert_eq!(pair.programs(0), before);
    let said = outcome(pings);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("500 received"), "{said}");
    assert!(counted(pair.status(0)) >= packets + 1000);
    // An apply holds, and ends the watcher.
    let trace = pair.watch(0, &["trace"]);
    let applied = weir(edge, &["apply", &pair.document, "--edge", name]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let output = outcome(trace);
    assert!(
        stderr(&output).contains("another configuration was applied"),
        "{}",
        stderr(&output)
    );
    assert_eq!(pair.programs(0), before);
    // Killed: the networks go on, and anybody ends it.
    let mut trace = pair.watch(0, &["trace"]);
    trace.kill().expect("killed");
    trace.wait().expect("it ended");
    assert_ne!(pair.programs(0), before);
    let said = run(a, "ping", &["-c3", "-i", "0.1", "-W2", "10.1.0.12"]);
    assert!(said.status.success(), "{said:?}");
    let off = weir(edge, &["trace", "--off", "--edge", name]);
    assert!(off.status.success(), "{}", stderr(&off));
    assert_eq!(pair.programs(0), before);
    assert!(pair.status(0)["watched"].is_null());
}

#[test]
fn top_shows_networks_with_workloads_and_reasons() {
    if !root("top_shows_networks_with_workloads_and_reasons") {
        return;
    }
    let pair = Pair::new("top");
    let [a, _, c] = &pair.workloads;
    // Questions for neighbours are over before rates are taken.
    run(a, "ping", &["-c1", "-W2", "10.1.0.12"]);
    let tops: Vec<_> = (pair.edges.iter())
        .map(|edge| begin(edge, &["top", "--once", "--json", "--interval", "3"]))
        .collect();
    // One every 100 ms: through the tunnel, and into a route that drops.
    let mut sent = Vec::new();
    for to in ["10.1.0.12", "10.8.0.1"] {
        let mut command = a.command("ping").expect("namespace");
        let command = command.args(["-i", "0.1", "-w", "5", to]);
        sent.push(command.stdout(Stdio::null()).spawn().expect("it starts"));
    }
    let tables: Vec<Value> = tops
        .into_iter()
        .map(|top| {
            let output = top.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", stderr(&output));
            lines(&output).remove(0)
        })
        .collect();
    for mut one in sent {
        one.wait().expect("it ends");
    }
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let shop = found(&tables[0]["networks"], "shop");
    // Requests to both, and answers by the tunnel.
    assert!(number(&shop["packets"]) > 20.0, "{shop}");
    assert!(number(&shop["reasons"]["no_route"]) > 5.0, "{shop}");
    assert!(number(&shop["drops"]) > 5.0, "{shop}");
    let workload = found(&shop["workloads"], "a");
    assert!(number(&workload["packets"]) > 14.0, "{workload}");
    assert!(number(&workload["bits"]) > 8.0 * 98.0 * 14.0, "{workload}");
    assert_eq!(number(&found(&shop["workloads"], "b")["drops"]), 0.0);
    let router = found(&shop["functions"], "gw");
    assert!(number(&router["reasons"]["no_route"]) > 5.0, "{router}");
    assert_eq!(tables[0]["ports"], serde_json::json!([]));
    let other = found(&tables[1]["networks"], "shop");
    assert!(number(&other["packets"]) > 10.0, "{other}");
    assert!(
        number(&found(&other["workloads"], "c")["packets"]) > 5.0,
        "{other}"
    );
    // In a pipe it is a table, and an address that is not the workload's shows at its port.
    let spoof = ["address", "add", "10.1.0.99/24", "dev", "eth0"];
    c.ip(&spoof).expect("an address");
    let table = begin(
        &pair.edges[1],
        &["top", "--once", "--interval", "3", "--edge", &pair.names[1]],
    );
    run(
        c,
        "ping",
        &["-i", "0.2", "-w", "4", "-I", "10.1.0.99", "10.1.0.10"],
    );
    let output = table.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("  shop/c"));
    assert!(line.is_some_and(|line| line.contains("spoofed")), "{text}");
    let shown = weir(&pair.edges[0], &["status", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let total = &shown["networks"][0]["totals"][0];
    assert_eq!(total["workloads"], 2, "{total}");
    assert!(number(&total["reasons"]["no_route"]) > 10.0, "{total}");
}

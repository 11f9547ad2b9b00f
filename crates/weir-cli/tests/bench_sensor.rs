//! `weir bench sensor` at its smallest, on traffic of its own: its JSON has the promised shape, its names are documented, alerts are those that its traffic was made for, and a mix has the
//! packets that its templates say. Times are not looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use weir_lab::bench::catalogue;
use weir_packet::build::Frame;
use weir_packet::pcap::{Capture, Writer};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("bench-sensor-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("cargo's folder is writable");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["bench", "sensor", "--quick", "--json"])
        .args(args)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("starts")
}

fn outcome(args: &[&str]) -> Value {
    let output = bench(args);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn value(outcome: &Value, name: &str) -> f64 {
    let figures = outcome["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|f| f["name"] == name);
    figure.unwrap_or_else(|| panic!("no {name}"))["value"]
        .as_f64()
        .expect("a number")
}

#[test]
fn own_traffic_has_its_alerts_and_every_figure_a_documented_name() {
    let folder = Folder::new("own");
    let (profile, out) = (folder.file("profile"), folder.file("out"));
    let outcome = outcome(&[
        "--own",
        "--seconds",
        "1",
        "--callgrind",
        &profile,
        "--out",
        &out,
    ]);
    assert_eq!(outcome["bench"], "sensor");
    for text in ["machine", "commit", "date"] {
        assert!(outcome[text].as_str().is_some_and(|t| !t.is_empty()));
    }
    let figures = outcome["figures"].as_array().expect("figures");
    for figure in figures {
        let name = figure["name"].as_str().expect("a name");
        assert!(catalogue::is_known(name), "{name} is in no list");
        assert!(
            figure["value"].is_number() && figure["unit"].is_string(),
            "{figure}"
        );
    }
    // A second of the mix: 5 flows with a web shell's path and a scanner's agent, 5 with a secret, 5 with bytes over two segments, 10 names; of names, packets alert once for each client.
    assert_eq!(
        value(&outcome, "sensor.own.all.alerts"),
        5.0 * 4.0 + 10.0 + 10.0
    );
    assert_eq!(value(&outcome, "sensor.own.none.alerts"), 0.0);
    assert_eq!(value(&outcome, "sensor.own.one.alerts"), 5.0);
    for name in [
        "sensor.own.none.prefilter.1.packets",
        "sensor.own.one.prefilter.1.bits",
        "sensor.own.all.prefilter.2.wall",
        "sensor.own.all.aho-corasick.1.packets",
        "sensor.own.all.prefilter.memory",
        "sensor.load.all.prefilter.total",
        "sensor.load.all.aho-corasick.memory",
        "sensor.scan.dfa.long.rate",
        "sensor.scan.prefilter.long.rate",
        "sensor.own.stage.whole.time",
    ] {
        assert!(value(&outcome, name) > 0.0, "{name}");
    }
    let shares: f64 = figures
        .iter()
        .filter(|f| f["name"].as_str().is_some_and(|n| n.ends_with(".share")))
        .filter_map(|f| f["value"].as_f64())
        .sum();
    assert!(
        (20.0..500.0).contains(&shares),
        "about a hundred percent: {shares}"
    );
    let targets = outcome["targets"].as_array().expect("targets");
    assert!(
        targets
            .iter()
            .any(|t| t["figure"] == "sensor.own.all.prefilter.2.wall")
    );

    let text = fs::read_to_string(&profile).expect("written");
    assert!(text.starts_with("# callgrind format") && text.contains("fn=transactions"));
    for file in ["sensor.json", "sensor.tsv"] {
        assert!(Path::new(&out).join(file).is_file(), "{file}");
    }
}

#[test]
fn a_mix_and_rules_of_the_user() {
    let folder = Folder::new("mix");
    let mut template = Writer::new(Vec::new()).expect("memory");
    for (n, to_server) in [true, false, true].into_iter().enumerate() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let frame = match to_server {
            true => Frame::new()
                .ip4(a, b)
                .udp(4000, 5000)
                .payload(b"a needle in hay"),
            false => Frame::new()
                .ip4(b, a)
                .udp(5000, 4000)
                .payload(b"nothing of note"),
        };
        let frame = frame.build();
        template
            .write(1_000_000_000 + n as u64, &frame, frame.len() as u32)
            .expect("memory");
    }
    let template = template.finish().expect("memory");
    fs::write(folder.file("one.pcap"), template).expect("written");
    let document = "- duration: 1\n  cap_info:\n  - name: one.pcap\n    cps: 100.0\n    ipg: 10000\n    rtt: 20000\n    w: 1\n";
    fs::write(folder.file("mix.yaml"), document).expect("written");
    let rules = "alert udp any any -> any 5000 (msg:\"m\"; content:\"needle\"; sid:1;)\nalert udp any any -> any any (msg:\"n\"; content:\"elephant\"; sid:2;)\n";
    fs::write(folder.file("one.rules"), rules).expect("written");
    let (kept, mix) = (folder.file("kept.pcap"), folder.file("mix.yaml"));
    let rules = folder.file("one.rules");
    let outcome = outcome(&[
        "--mix",
        &mix,
        "--rules",
        &rules,
        "--multiple",
        "2",
        "--seconds",
        "0.5",
        "--gaps",
        "3ms",
        "--keep",
        &kept,
    ]);
    assert_eq!(value(&outcome, "sensor.mix.all.alerts"), 200.0);
    let bytes = fs::read(&kept).expect("left there");
    let mut capture = Capture::open(&bytes[..]).expect("a capture");
    let mut packets = 0;
    while capture.next_packet().expect("whole").is_some() {
        packets += 1;
    }
    assert_eq!(
        packets, 300,
        "2 x 100 flows a second of 3 packets for half a second"
    );
}

/// One rule for each protocol of the traffic that the bench makes.
const RULES: &str =
    "alert http any any -> any any (msg:\"page\"; http.uri; content:\"/object0.\"; sid:1;)
alert dns any any -> any any (msg:\"name\"; dns.query; content:\"weir.example\"; sid:2;)
alert tls any any -> any any (msg:\"server\"; tls.sni; content:\"weir.example\"; sid:3;)
alert smtp any any -> any any (msg:\"mail\"; content:\"MAIL FROM\"; sid:4;)
alert smb any any -> any 445 (msg:\"file\"; flow:to_server; app-layer-protocol:smb; sid:5;)
";

#[test]
fn traffic_that_the_bench_makes() {
    let folder = Folder::new("made");
    let rules = folder.file("made.rules");
    fs::write(&rules, RULES).expect("written");
    let fifth = ["--seconds", "0.2", "--rules", &rules];
    // New flows of a fifth of a second; of applications also names (twice, as the answer repeats the question), and what else has a rule.
    for (traffic, alerts) in [
        ("html", 80.0),
        ("web", 80.0),
        ("filler", 20.0),
        ("apps", 444.0),
        ("hostile", 10.0),
    ] {
        let outcome = outcome(&[&["--traffic", traffic][..], &fifth].concat());
        for form in ["all", "open"] {
            let name = format!("sensor.{traffic}.{form}.alerts");
            assert_eq!(value(&outcome, &name), alerts, "{name}");
        }
        assert_eq!(
            value(&outcome, &format!("sensor.{traffic}.none.alerts")),
            0.0
        );
        let one = value(&outcome, &format!("sensor.{traffic}.one.alerts"));
        assert!(one > 0.0 && one <= alerts, "{traffic}: {one}");
        for form in ["none", "one", "all", "open"] {
            let name = format!("sensor.{traffic}.{form}.prefilter.1.packets");
            assert!(value(&outcome, &name) > 0.0, "{name}");
        }
        for figure in outcome["figures"].as_array().expect("figures") {
            let name = figure["name"].as_str().expect("a name");
            assert!(catalogue::is_known(name), "{name} is in no list");
            assert!(!name.contains(".peer."), "{name}: no peer was named");
        }
        let notes: Vec<&str> = notes(&outcome).collect();
        let count = |word: &str| notes.iter().filter(|n| n.contains(word)).count();
        for word in [
            "HOME_NET is [",
            "the one rule is 1:",
            "rules: 5 loaded",
            traffic,
        ] {
            assert_eq!(count(word), 1, "{traffic}, {word}: {notes:?}");
        }
    }
    // Without an alert there is no rule to run alone, which is said once.
    let quiet = folder.file("quiet.rules");
    let rule = "alert tcp any any -> any any (content:\"nothing like this\"; sid:9;)\n";
    fs::write(&quiet, rule).expect("written");
    let outcome = outcome(&["--traffic", "filler", "--flows", "10", "--rules", &quiet]);
    assert_eq!(value(&outcome, "sensor.filler.all.alerts"), 0.0);
    let said = notes(&outcome).filter(|n| n.contains("no rule alerts"));
    assert_eq!(said.count(), 1);
}

fn notes(outcome: &Value) -> impl Iterator<Item = &str> {
    let notes = outcome["notes"].as_array().expect("notes");
    notes.iter().filter_map(Value::as_str)
}

/// A program that answers as the peer does: it has its version, a packet thread, and a log of what it was given.
const PEER: &str = r#"#!/bin/sh
if [ "$1" = -V ]; then echo "This is Suricata version 0.0.7 RELEASE"; exit; fi
while [ $# -gt 0 ]; do
  case "$1" in
    -c) config=$2 ;; -S) rules=$2 ;; -r) capture=$2 ;; -l) log=$2 ;;
  esac
  shift
done
[ -s "$capture" ] && grep -q 'sid:5' "$rules" || exit 3
grep -q '^marked: yes' "$config" && grep -q 'filename: eve.json' "$config" || exit 4
grep -q 'not-wanted' "$config" && exit 5
printf 'W#01' > /proc/$$/comm
i=0
while [ $i -lt 30000 ]; do i=$((i+1)); done
echo '{"event_type":"alert"}' > "$log/eve.json"
echo '{"event_type":"stats","stats":{"decoder":{"pkts":1234}}}' >> "$log/eve.json"
i=0
while [ $i -lt 30000 ]; do i=$((i+1)); done
"#;

#[test]
fn a_peer_runs_on_the_same_packets_and_rules() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("peer");
    let [peer, config, rules] = ["peer", "peer.yaml", "made.rules"].map(|name| folder.file(name));
    fs::write(&rules, RULES).expect("written");
    fs::write(&peer, PEER).expect("written");
    fs::set_permissions(&peer, fs::Permissions::from_mode(0o755)).expect("an executable");
    let text = "%YAML 1.1\n---\noutputs:\n  - not-wanted:\n      enabled: yes\nmarked: yes\n";
    fs::write(&config, text).expect("written");
    let made = ["--traffic", "html", "--flows", "10", "--rules", &rules];
    let peered = ["--peer", &peer, "--peer-config", &config];
    let outcome = outcome(&[&made[..], &peered].concat());
    assert!(value(&outcome, "sensor.html.all.peer.1.packets") > 0.0);
    let targets = outcome["targets"].as_array().expect("targets");
    let against = |t: &&Value| t["against"] == "sensor.html.all.peer.1.packets";
    let target = targets.iter().find(against).expect("compared with it");
    assert_eq!(target["figure"], "sensor.html.all.prefilter.1.packets");
    assert_eq!(target["promise"], "at least 1.5");
    let note = notes(&outcome).find(|n| n.starts_with("peer:"));
    let note = note.expect("said");
    for part in ["0.0.7", "1234 packets", "1 alerts"] {
        assert!(note.contains(part), "{note}");
    }
    // One that fails is an error, not a figure.
    fs::write(&config, "marked: no\n").expect("written");
    let output = bench(&[&made[..], &peered].concat());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && words.contains("exit status: 4"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let folder = Folder::new("refused");
    fs::write(folder.file("none.yaml"), "- duration: 1\n").expect("written");
    let none = folder.file("none.yaml");
    for (args, word) in [
        (vec!["--mix", "/nonexistent.yaml"], "/nonexistent.yaml"),
        (vec!["--mix", &none], "cap_info"),
        (vec!["--capture", "/nonexistent.pcap"], "/nonexistent.pcap"),
        (vec!["--own", "--multiple", "0"], "--multiple"),
        (vec!["--own", "--gaps", "long"], "templates"),
        (vec!["--own", "--rules", "x"], "--rules"),
        (vec!["--traffic", "pages"], "html, web, filler"),
        (vec!["--traffic", "html", "--own"], "--own"),
        (vec!["--traffic", "html", "--mix", &none], "--mix"),
        (vec!["--traffic", "html", "--capture", &none], "--capture"),
        // What only traffic that is made knows.
        (vec!["--capture", &none, "--flows", "3"], "--flows"),
        (vec!["--capture", &none, "--duration", "1"], "--duration"),
        (vec!["--capture", &none, "--gaps", "3ms"], "--gaps"),
        (vec!["--capture", &none, "--multiple", "2"], "--multiple"),
        (vec!["--flows", "3"], "--traffic"),
        (
            vec!["--own", "--peer", "/nonexistent/peer"],
            "/nonexistent/peer",
        ),
        (vec!["--own", "--peer", "/bin/false"], "/bin/false"),
        (
            vec!["--own", "--peer-config", "/nonexistent.yaml"],
            "--peer-config",
        ),
        (
            vec![
                "--own",
                "--peer",
                "/bin/true",
                "--peer-config",
                "/nonexistent.yaml",
            ],
            "/nonexistent.yaml",
        ),
        // It reads nothing and writes no log.
        (
            vec!["--own", "--peer", "/bin/true", "--peer-config", &none],
            "the peer",
        ),
    ] {
        let output = bench(&args);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && words.contains(word),
            "{args:?}: {words}"
        );
    }
}

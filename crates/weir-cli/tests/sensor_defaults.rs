//! What `weir sensor` does where nothing is said: folders of logs, keys of configurations, rules that break while it runs.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, WEIR, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_packet::build::Frame;

const RULE: &str = "alert udp any any -> any any (msg:\"needle\"; content:\"needle\"; sid:1;)\n";

fn frame() -> Vec<u8> {
    Frame::new()
        .ip4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(4_000, 4_001)
        .payload(b"the needle")
        .build()
}

#[test]
fn the_folder_of_logs_is_made() {
    let folder = Folder::new();
    let capture = folder.capture("x.pcap", &[frame()]);
    let rules = folder.write("r.rules", RULE);
    let logs = folder.join("some/where/logs");
    let run = |log: &std::path::Path| {
        let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
        weir([
            "sensor",
            "-r",
            &path(&capture),
            "-S",
            &path(&rules),
            "-l",
            &path(log),
        ])
    };
    run(&logs).succeeded();
    assert!(logs.join("eve.json").is_file());
    // A file of that name is no folder.
    let file = folder.write("file", "");
    let failed = run(&file);
    assert_eq!(failed.status, 2);
    assert!(failed.stderr.contains("cannot write logs to"), "{failed:?}");
}

#[test]
fn keys_of_a_configuration_that_change_nothing() {
    let folder = Folder::new();
    let capture = folder.capture("x.pcap", &[frame()]);
    let rules = folder.write("r.rules", RULE);
    let run = |config: &str, more: &[&str]| {
        let config = folder.write("c.yaml", config);
        let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
        let mut args = vec![
            "sensor".to_owned(),
            "-r".to_owned(),
            path(&capture),
            "-S".to_owned(),
            path(&rules),
            "-l".to_owned(),
            path(folder.path()),
            "-c".to_owned(),
            path(&config),
        ];
        args.extend(more.iter().map(|m| (*m).to_owned()));
        weir(args)
    };
    // Threads and the like: not a word.
    let harmless =
        "max-pending-packets: 1024\nthreading:\n  set-cpu-affinity: no\nrunmode: autofp\n";
    let quiet = run(harmless, &[]).succeeded();
    assert_eq!(quiet.stderr, "");
    run(harmless, &["--strict"]).succeeded();
    let listed = run(harmless, &["-v"]).succeeded();
    assert!(
        listed.stderr.contains("runmode has no effect"),
        "{listed:?}"
    );
    // What somebody counts on is named, and an error where everything is to be right.
    let vital = format!(
        "{harmless}outputs:\n  - pcap-log:\n      enabled: yes\n  - eve-log:\n      enabled: yes\nstream:\n  memcap-policy: drop-flow\n"
    );
    let loud = run(&vital, &[]).succeeded();
    assert!(
        loud.stderr
            .contains("pcap-log.enabled: true: packets are not written to captures"),
        "{loud:?}"
    );
    assert!(
        loud.stderr.contains("stream.memcap-policy: drop-flow: "),
        "{loud:?}"
    );
    assert_eq!(loud.stderr.lines().count(), 2, "{loud:?}");
    let strict = run(&vital, &["--strict"]);
    assert_eq!(strict.status, 2);
    assert!(strict.stderr.contains("2 configuration keys"), "{strict:?}");
}

/// `logging.outputs`: what is said of the run, in files.
#[test]
fn what_is_said_stands_in_the_files_that_are_asked_for() {
    let folder = Folder::new();
    let capture = folder.capture("x.pcap", &[frame()]);
    let broken = "alert udp any any -> any any (contentt:\"x\"; sid:2;)";
    let rules = folder.write("r.rules", format!("{RULE}{broken}\n"));
    let config = folder.write(
        "c.yaml",
        "logging:\n  default-log-level: info\n  outputs:\n  - console:\n      enabled: yes\n  - file:\n      enabled: yes\n      filename: own.log\n  - file:\n      enabled: yes\n      filename: own.json\n      type: json\n      level: error\n  - file:\n      enabled: no\n      filename: none.log\n",
    );
    let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
    let args = |more: &[&str]| {
        let mut args = vec!["sensor".to_owned()];
        for (option, value) in [("-r", &capture), ("-S", &rules), ("-c", &config)] {
            args.extend([option.to_owned(), path(value)]);
        }
        args.extend(["-l".to_owned(), path(folder.path())]);
        args.extend(more.iter().map(|m| (*m).to_owned()));
        args
    };
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    weir(args(&["--data-dir", &path(&data)])).succeeded();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
    let text = read("own.log").expect("written");
    for part in [
        "Error: detect: ",
        &format!("error parsing signature \"{broken}\" from file "),
        " at line 2\n",
        "Info: detect: 1 rule files processed. 1 rules successfully loaded, 1 rules failed, 0 rules skipped",
        "Info: detect: 1 signatures processed\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let records = read("own.json").expect("written");
    let records: Vec<serde_json::Value> = (records.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records.len(), 2, "only errors: {records:?}");
    for record in &records {
        assert_eq!(record["event_type"], "engine");
        assert_eq!(record["log_level"], "Error");
    }
    // The reason, and the rule.
    let modules = [0, 1].map(|at: usize| records[at]["engine"]["module"].clone());
    assert_eq!(modules, ["detect-parse", "detect"]);
    assert!(read("none.log").is_err());
    // Why a run failed stands there as well.
    assert_eq!(weir(args(&["--strict"])).status, 1);
    let text = read("own.log").expect("written");
    assert!(
        text.contains("Error: sensor: 1 rules are rejected"),
        "{text}"
    );
    // A file that cannot be opened is worth a word, and not the run.
    let closed = args(&[
        "--set",
        "logging.outputs.1.file.filename=no/such/folder.log",
    ]);
    let closed = weir(closed).succeeded();
    assert!(closed.stderr.contains("logging: "), "{closed:?}");
    let wrong = args(&["--set", "logging.outputs.1.file.type=xml"]);
    assert_eq!(weir(wrong).status, 2);
}

#[test]
fn lines_beside_rules_are_no_rules() {
    let folder = Folder::new();
    let capture = folder.capture("x.pcap", &[frame()]);
    let rules = folder.write("r.rules", RULE);
    let thresholds = folder.write(
        "threshold.config",
        "suppress gen_id 1, sig_id 9\nthreshold of nothing\nsuppress gen_id x\n",
    );
    let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
    let set = format!("threshold-file={}", path(&thresholds));
    let args = [
        "sensor",
        "--json",
        "-r",
        &path(&capture),
        "-S",
        &path(&rules),
        "-l",
        &path(folder.path()),
        "--set",
        &set,
    ]
    .map(str::to_owned);
    let run = weir(args.clone()).succeeded();
    let summary = run.json();
    assert_eq!(
        (
            &summary["rules"]["refused"],
            &summary["rules"]["refused_lines"]
        ),
        (&0.into(), &2.into()),
        "{run:?}"
    );
    let strict = weir(args.into_iter().chain(["--strict".to_owned()]));
    assert_eq!(strict.status, 1);
    assert!(strict.stderr.contains("2 other lines"), "{strict:?}");
}

#[test]
fn nothing_to_look_at_is_an_error() {
    let run = weir(["sensor"]);
    assert_eq!(run.status, 2);
    assert!(
        run.stderr.contains("-r") && run.stderr.contains("af-packet"),
        "{run:?}"
    );
}

/// A sensor that goes with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{what}: not within a minute"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rules_that_break_while_it_runs_are_not_taken() {
    for taken in [false, true] {
        let folder = Folder::new();
        let capture = folder.capture("x.pcap", &[frame()]);
        let rules = folder.write(
            "r.rules",
            format!("{RULE}{}", RULE.replace("sid:1", "sid:2")),
        );
        let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
        let mut command = Command::new(WEIR);
        command.args([
            "sensor",
            "--json",
            "--follow",
            "-r",
            &path(&capture),
            "-S",
            &path(&rules),
            "-l",
            &path(folder.path()),
        ]);
        if taken {
            command.args(["--set", "rule-reload.broken=load"]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let mut sensor = Running(child);
        let eve = folder.join("eve.json");
        let records = |kind: &str| -> Vec<Value> {
            let text = fs::read_to_string(&eve).unwrap_or_default();
            // A line that is being written may be cut off anywhere.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            whole
                .lines()
                .map(|l| serde_json::from_str::<Value>(l).expect("JSON"))
                .filter(|r| r["event_type"] == kind)
                .collect()
        };
        let pid = Pid::from_child(&sensor.0);
        let append = || {
            let whole = folder.capture("y.pcap", &[frame()]);
            let bytes = fs::read(whole).expect("there");
            let mut file = fs::OpenOptions::new()
                .append(true)
                .open(&capture)
                .expect("there");
            std::io::Write::write_all(&mut file, &bytes[24..]).expect("written");
        };
        until("the first alerts", || records("alert").len() == 2);
        // A page of an error, where the rules were: one is left.
        fs::write(&rules, format!("{RULE}<html><body>503</body></html>\n")).expect("written");
        kill_process(pid, Signal::USR2).expect("it runs");
        match taken {
            false => until("the alarm", || records("engine").len() == 1),
            true => std::thread::sleep(Duration::from_millis(800)),
        }
        append();
        until("alerts of old rules", || {
            records("alert").len() == 2 + if taken { 1 } else { 2 }
        });
        // One more rule than before, and one that is broken: better than before.
        let more = format!(
            "{RULE}{}{}alert broken\n",
            RULE.replace("sid:1", "sid:2"),
            RULE.replace("sid:1", "sid:3")
        );
        fs::write(&rules, more).expect("written");
        let before = records("alert").len();
        kill_process(pid, Signal::USR2).expect("it runs");
        std::thread::sleep(Duration::from_millis(800));
        append();
        until("alerts of new rules", || {
            records("alert").len() == before + 3
        });
        kill_process(pid, Signal::INT).expect("it runs");
        let mut out = String::new();
        sensor
            .0
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut out)
            .expect("text");
        assert!(sensor.0.wait().expect("it ends").success());
        let summary: Value = serde_json::from_str(&out).expect("JSON");
        let refused = u64::from(!taken);
        assert_eq!(summary["counters"]["detect.reloads_refused"], refused);
        assert_eq!(records("engine").len() as u64, refused);
    }
}

#[test]
fn a_configuration_is_tested_without_traffic() {
    let folder = Folder::new();
    let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
    let logs = path(folder.path());
    let test = |rules: &str, more: &[&str]| {
        let rules = folder.write("r.rules", rules);
        let mut args = vec!["sensor".to_owned(), "-T".to_owned(), "-l".to_owned()];
        args.extend([logs.clone(), "-S".to_owned(), path(&rules)]);
        args.extend(more.iter().map(|m| (*m).to_owned()));
        weir(args)
    };
    let right = test(RULE, &["--strict"]).succeeded();
    assert_eq!(
        right.stdout,
        "1 rules loaded, 0 rejected; the configuration is valid\n"
    );
    assert!(!folder.join("eve.json").exists());
    let broken = format!("{RULE}alert udp any any -> any any (no_such_word; sid:2;)\n");
    let loose = test(&broken, &["--json"]).succeeded();
    let found: Value = serde_json::from_str(&loose.stdout).expect("JSON");
    assert_eq!(found["rules"]["loaded"], 1);
    assert_eq!(found["rules"]["refused"], 1);
    assert_eq!(test(&broken, &["--strict"]).status, 1);
    assert_eq!(test(RULE, &["--set", "action-order.0=drop"]).status, 2);
}

#[test]
fn only_captures_can_be_as_if_in_line() {
    let folder = Folder::new();
    let capture = folder.capture("x.pcap", &[frame(), frame()]);
    let rules = folder.write("r.rules", RULE.replace("alert", "drop"));
    let path = |p: &std::path::Path| p.to_str().expect("UTF-8").to_owned();
    let run = |from: [&str; 2], more: &[&str]| {
        let mut args = vec!["sensor", from[0], from[1], "--json"];
        let (rules, log) = (path(&rules), path(folder.path()));
        args.extend(["-S", &rules, "-l", &log]);
        args.extend(more);
        weir(args.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let capture = path(&capture);
    let found = run(["-r", &capture], &["--simulate-ips", "--workers", "4"]).succeeded();
    let found: Value = serde_json::from_str(&found.stdout).expect("JSON");
    assert_eq!(found["counters"]["ips.blocked"], 2);
    let live = run(["-i", "lo"], &["--simulate-ips"]);
    assert_eq!(live.status, 2);
    let live = run(["-i", "lo"], &["--set", "ips.simulate=yes"]);
    assert_eq!(live.status, 2);
    assert!(live.stderr.contains("read captures (-r)"), "{live:?}");
    // No rule of a firewall can accept ARP, so it is for captures only.
    let walled = ["--set", "firewall.enabled=yes"];
    run(["-r", &capture], &["--simulate-ips", walled[0], walled[1]]).succeeded();
    let live = run(["--inline", "a0:b0"], &walled);
    assert_eq!(live.status, 2);
    assert!(live.stderr.contains("would drop ARP"), "{live:?}");
}

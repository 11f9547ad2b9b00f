//! Sensors with the privileges they need and no others: `weir sensor --confine`, and sensors that the agent keeps.
//!
//! What code in such a process is refused, `confine` of weir-kernel tests. Here: that each thread of a sensor is such a process, and does its work.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::live_agent::Bed as AgentBed;
use crate::live_bed::root;
use crate::live_sensor::{Bed, Folder, RULES, Sensor, until};

/// A number that no account has.
const USER: u32 = 61_184;

/// Each thread has no capability, no way to one, and a filter of system calls.
#[track_caller]
fn assert_confined(process: u32, user: u32) {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut count = 0;
    for thread in threads.flatten() {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        count += 1;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("no {name}"));
            line.split_whitespace().next().expect("a value").to_owned()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set} {status}");
        }
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
        assert_eq!(field("Seccomp:"), "2", "{status}");
        assert_eq!(field("Uid:"), user.to_string(), "{status}");
    }
    assert!(count > 1, "signals have a thread");
}

/// Whether the sensor has entered its confinement.
fn is_confined(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    status.contains("Seccomp:\t2") && tasks > 1
}

#[test]
fn a_confined_sensor_does_its_work() {
    if !root("a_confined_sensor_does_its_work") {
        return;
    }
    for workers in ["1", "2"] {
        let bed = Bed::new(1);
        let folder = Folder::new(&format!("confined-{workers}"));
        let args = [
            "-i",
            "cl0",
            "--confine",
            "--memory-limit",
            "4096",
            "--workers",
            workers,
        ];
        let sensor = Sensor::start(&bed.client, &folder, &args);
        let process = sensor.0.id();
        until("it is confined", || is_confined(process));
        assert_confined(process, 0);
        bed.talk(0, 3);
        until("alerts", || folder.alerts() == [3; 3]);
        // New rules, by a thread that is started now, and new log files.
        let one = RULES.lines().next().expect("a rule");
        fs::write(folder.0.join("new.rules"), one.replace("sid:1;", "sid:3;")).expect("written");
        fs::rename(folder.0.join("new.rules"), folder.0.join("test.rules")).expect("replaced");
        let signal = |signal| kill_process(Pid::from_child(&sensor.0), signal).expect("it runs");
        signal(Signal::USR2);
        // Only the new rule is heard from then on. When it holds is not told to other processes.
        let mut talks = 3;
        until("the new rule", || {
            bed.talk(0, 1);
            talks += 1;
            std::thread::sleep(std::time::Duration::from_millis(300));
            folder.alerts()[2] > folder.alerts()[1]
        });
        fs::rename(folder.0.join("logs/eve.json"), folder.0.join("logs/eve.1")).expect("moved");
        signal(Signal::HUP);
        until("a new log", || {
            bed.talk(0, 1);
            folder.0.join("logs/eve.json").exists()
        });
        assert_confined(process, 0);
        let (_, err) = sensor.stop();
        assert!(err.contains("rules reloaded"), "{err}");
    }
}

#[test]
fn what_a_confined_sensor_cannot_do_is_an_error() {
    if !root("what_a_confined_sensor_cannot_do_is_an_error") {
        return;
    }
    let bed = Bed::new(1);
    let folder = Folder::new("confined-gone");
    let mut sensor = Sensor::start(&bed.client, &folder, &["-i", "cl0", "--confine"]);
    let process = sensor.0.id();
    until("it is confined", || is_confined(process));
    bed.client.ip(&["link", "del", "cl0"]).expect("ip");
    until("it ends", || sensor.0.try_wait().expect("waits").is_some());
    let mut err = String::new();
    let mut stderr = sensor.0.stderr.take().expect("piped");
    std::io::Read::read_to_string(&mut stderr, &mut err).expect("text");
    assert!(err.contains("cl0: the interface was removed"), "{err}");
    // Outputs that would need sockets later.
    let socket = folder.0.join("sensor.yaml");
    fs::write(&socket, "outputs:\n  - eve-log:\n      enabled: yes\n      filetype: unix_stream\n      filename: /run/none.sock\n")
        .expect("written");
    let output = crate::common::weir([
        "sensor".as_ref(),
        "--confine".as_ref(),
        "-i".as_ref(),
        "lo".as_ref(),
        "-c".as_ref(),
        socket.as_os_str(),
    ]);
    assert_eq!(output.status, 2, "{}", output.stderr);
    assert!(
        output.stderr.contains("/run/none.sock"),
        "{}",
        output.stderr
    );
}

#[test]
fn sensors_are_children_of_the_agent_with_a_user_and_no_capabilities() {
    if !root("sensors_are_children_of_the_agent_with_a_user_and_no_capabilities") {
        return;
    }
    let bed = AgentBed::new("sensor");
    // The sensor's user reads the rules, and enters the folder of its logs.
    let folder = std::env::temp_dir().join(format!("weir-sensor-child-{}", std::process::id()));
    fs::create_dir_all(folder.join("rules")).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
    let rules = folder.join("rules/local.rules");
    let rule =
        |sid: u32| format!("alert icmp any any -> any any (msg:\"ping\"; itype:8; sid:{sid};)\n");
    fs::write(&rules, rule(1)).expect("written");
    let settings = |memory: u32| {
        format!(
            "[api]\nalerts = \"{0}/logs\"\n[sensor.lan]\ninterfaces = [\"right0\"]\nrules = [\"{0}/rules/local.rules\"]\nlog = \"{0}/logs/lan\"\nuser = {USER}\nmemory = {memory}\n",
            folder.display()
        )
    };
    fs::write(bed.folder.join("agent.toml"), settings(2048)).expect("written");
    let agent = bed.agent();
    let started = agent.event("started");
    assert_eq!(started["edge"], Value::Null, "{started}");
    let command = started["command"].as_str().expect("text");
    assert!(
        command.starts_with("sensor --confine --memory-limit 2048 "),
        "{command}"
    );
    let process = u32::try_from(started["process"].as_u64().expect("a number")).expect("a process");
    until("it is confined", || is_confined(process));
    assert_confined(process, USER);
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"))
        .expect("a line");
    assert!(data.contains(&(2048u64 << 20).to_string()), "{data}");
    let logs = fs::metadata(folder.join("logs/lan")).expect("made");
    assert_eq!(
        (logs.uid(), logs.gid(), logs.mode() & 0o777),
        (USER, USER, 0o750)
    );
    // The agent says the same, as the kernel tells it.
    let status = || {
        let output = bed.ask("/v1/agent");
        output["children"][0]["privileges"].clone()
    };
    until("the agent says so", || status()["seccomp"] == true);
    let privileges = status();
    assert_eq!(privileges["user"], USER, "{privileges}");
    assert_eq!(
        privileges["capabilities"],
        serde_json::json!([]),
        "{privileges}"
    );
    assert_eq!(privileges["memory"], 2048u64 << 20, "{privileges}");
    let alerts = |sid: u32| {
        let text = fs::read_to_string(folder.join("logs/lan/eve.json")).unwrap_or_default();
        text.contains(&format!("\"signature_id\":{sid},"))
    };
    let ping = || {
        let mut ping = bed.left.command("ping").expect("namespace");
        let _ = ping.args(["-c", "1", "-W", "1", "10.79.0.2"]).output();
    };
    until("an alert", || {
        ping();
        alerts(1)
    });
    // Rules that change are read again, by the same process; a configuration that changes starts another.
    fs::write(folder.join("rules/new"), rule(2)).expect("written");
    fs::rename(folder.join("rules/new"), &rules).expect("replaced");
    let told = agent.event("reloaded");
    assert_eq!(told["process"], process, "{told}");
    until("an alert of the new rule", || {
        ping();
        alerts(2)
    });
    fs::write(bed.folder.join("agent.toml"), settings(1024)).expect("written");
    agent.event("ended");
    let again = agent.event("started");
    assert!(
        again["command"]
            .as_str()
            .expect("text")
            .contains("--memory-limit 1024 ")
    );
    let again = again["process"].as_u64().expect("a number");
    drop(agent);
    until("no child is left behind", || {
        !Path::new(&format!("/proc/{again}")).exists()
    });
    let _ = fs::remove_dir_all(&folder);
}

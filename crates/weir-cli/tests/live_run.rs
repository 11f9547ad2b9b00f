//! `weir run` and `weir down` as processes: what they attach, what they leave, how they refuse.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::live_bed::{Run, file, look_at, matched, pinned, prog_on, root, stderr, weir};
use rustix::process::Signal;
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{NetNs, pins};

/// A veth is given tc unless told otherwise; see live_tc.rs for that.
const XDP: &[&str] = &["--hook", "xdp"];
const POLICY: &str = "discard: udp-dport 9 drop log \"gone\"\necho: udp-dport 7 log \"here\"\n";

fn pair(prefix: &str) -> (NetNs, NetNs) {
    let left = NetNs::create(prefix).expect("namespace");
    let right = NetNs::create(prefix).expect("namespace");
    bed::veth(
        End {
            ns: &left,
            name: "left0",
            addresses: &["10.78.0.1/24"],
        },
        End {
            ns: &right,
            name: "right0",
            addresses: &["10.78.0.2/24"],
        },
    )
    .expect("veth");
    (left, right)
}

fn send(from: &NetNs, port: u16, count: usize) {
    from.run(|| {
        let socket = UdpSocket::bind("10.78.0.1:0").expect("bind");
        for _ in 0..count {
            socket.send_to(b"weir", ("10.78.0.2", port)).expect("send");
        }
    })
    .expect("namespace");
}

fn refused(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
    let last = text.lines().last().expect("one line");
    assert!(last.starts_with("weir: "), "{text}");
}

#[test]
fn signals_leave_the_interface_as_it_was() {
    if !root("signals_leave_the_interface_as_it_was") {
        return;
    }
    let (left, right) = pair("weirl-sig");
    let before = (look_at(&left, "left0"), look_at(&right, "right0"));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let run = Run::start(&right, POLICY, &["right0"], XDP);
        assert!(prog_on(&right, "right0").is_some());
        assert_eq!(pinned(&right), 1);
        assert!(
            run.words().contains("TCP segmentation offload"),
            "{}",
            run.words()
        );
        send(&left, 9, 3);
        run.signal(signal);
        let (status, text) = run.wait();
        assert!(status.success(), "{signal:?}: {status}");
        let report: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(matched(&report, "discard"), 3);
        assert_eq!(report["reasons"]["rule_drop"], 3);
        assert_eq!(
            (look_at(&left, "left0"), look_at(&right, "right0")),
            before,
            "{signal:?}"
        );
        assert_eq!(pinned(&right), 0);
    }
}

#[test]
fn two_ports_share_counters_and_generic_works() {
    if !root("two_ports_share_counters_and_generic_works") {
        return;
    }
    let (left, right) = pair("weirl-two");
    let policy = "from-left: in right0 udp-dport 9 accept\nfrom-here: in lo udp-dport 9 accept\nall: udp-dport 9 accept\n";
    // Loopback has no native XDP.
    let run = Run::start(&right, policy, &["right0", "lo"], &["--generic"]);
    send(&left, 9, 5);
    right
        .run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
            socket.send_to(b"weir", "127.0.0.1:9").expect("send");
        })
        .expect("namespace");
    let report = run.stop();
    let counts = ["from-left", "from-here", "all"].map(|rule| matched(&report, rule));
    assert_eq!(counts, [5, 1, 6], "{report}");
}

#[test]
fn log_lines_and_the_final_table_are_printed() {
    if !root("log_lines_and_the_final_table_are_printed") {
        return;
    }
    let (left, right) = pair("weirl-log");
    let policy = file("log.weir", POLICY);
    let report = file("report.json", "");
    let mut command = right
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    command
        .args([
            "run", "-i", "right0", "--hook", "xdp", "--for", "2", "--report",
        ])
        .arg(&report)
        .arg(&policy);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    while prog_on(&right, "right0").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    send(&left, 9, 1);
    send(&left, 7, 1);
    let output = child.wait_with_output().expect("ends by itself");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "right0 discard drop gone: IP 10.78.0.1.",
        "right0 echo pass here: IP 10.78.0.1.",
        "length 4",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("received = "), "{text}");
    assert!(text.contains("rule_drop"), "{text}");
    assert!(
        !text.contains('\x1b'),
        "no redrawing where nobody looks: {text}"
    );
    let written = std::fs::read_to_string(&report).expect("written");
    let report: serde_json::Value = serde_json::from_str(&written).expect("one object");
    assert_eq!(matched(&report, "echo"), 1);
}

#[test]
fn a_killed_run_leaves_the_complete_program_and_down_removes_it() {
    if !root("a_killed_run_leaves_the_complete_program_and_down_removes_it") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let (left, right) = pair("weirl-kill");
    let before = (look_at(&left, "left0"), look_at(&right, "right0"));
    let run = Run::start(&right, POLICY, &["right0"], XDP);
    run.signal(Signal::KILL);
    drop(run.wait());
    assert!(prog_on(&right, "right0").is_some(), "pinned, so it stays");

    // What stays still works: datagrams to the open port arrive, to the closed one they do not.
    let socket = right
        .run(|| UdpSocket::bind("10.78.0.2:9"))
        .expect("namespace")
        .expect("bind");
    let open = right
        .run(|| UdpSocket::bind("10.78.0.2:7"))
        .expect("namespace")
        .expect("bind");
    send(&left, 9, 3);
    send(&left, 7, 1);
    for one in [&socket, &open] {
        one.set_read_timeout(Some(std::time::Duration::from_millis(500)))
            .expect("timeout");
    }
    let mut buffer = [0; 64];
    assert_eq!(open.recv(&mut buffer).expect("arrives"), 4);
    assert!(socket.recv(&mut buffer).is_err(), "dropped");

    // Another run goes on with it, in its place.
    let again = Run::start(&right, POLICY, &["right0"], XDP);
    assert!(
        again.words().contains("taking over from a killed"),
        "{}",
        again.words()
    );
    assert_eq!(pinned(&right), 1);
    again.signal(Signal::KILL);
    drop(again.wait());

    let inode = right.run(weir_kernel::netns::current_inode);
    let inode = inode.expect("namespace").expect("its number").to_string();
    let sockets = || {
        let entries = std::fs::read_dir("/run/weir").into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&inode)).count()
    };
    assert_eq!(sockets(), 1, "a killed run leaves its socket");
    let down = weir(&right, &["down"]);
    assert!(down.status.success(), "{}", stderr(&down));
    assert_eq!(sockets(), 0);
    assert!(String::from_utf8_lossy(&down.stdout).contains("right0: removed program"));
    assert_eq!((look_at(&left, "left0"), look_at(&right, "right0")), before);
    assert_eq!(pinned(&right), 0);
    let nothing = weir(&right, &["down", "-i", "right0"]);
    assert!(nothing.status.success());
    assert!(String::from_utf8_lossy(&nothing.stdout).contains("nothing to remove"));
}

#[test]
fn folders_go_with_the_last_run() {
    if !root("folders_go_with_the_last_run") {
        return;
    }
    let (_left, right) = pair("weirl-tidy");
    let policy = file("tidy.weir", POLICY);
    // Folders of its own: others run at the same time.
    let script = "mount -t tmpfs none /run && mount -t bpf none /sys/fs/bpf || exit 9
        \"$1\" run \"$2\" --hook xdp -i right0 --duration 300ms --json > /dev/null || exit 8
        find /run /sys/fs/bpf -path '*weir*'";
    let output = right
        .command("unshare")
        .expect("namespace")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .arg(&policy)
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn kills_at_any_moment_leave_nothing_or_a_whole_program() {
    if !root("kills_at_any_moment_leave_nothing_or_a_whole_program") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let (_left, right) = pair("weirl-any");
    let policy = file("any.weir", POLICY);
    let mut stayed = 0;
    for delay in (0..200).step_by(10) {
        let mut child = right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace")
            .args(["run", "--json", "--hook", "xdp", "-i", "right0"])
            .arg(&policy)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(delay));
        child.kill().expect("killed");
        child.wait().expect("ends");
        // A link that was not pinned ends with its last descriptor, which the kernel may do a little later.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while prog_on(&right, "right0").is_some()
            && pinned(&right) == 0
            && std::time::Instant::now() < end
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(
            prog_on(&right, "right0").is_some(),
            pinned(&right) == 1,
            "after {delay} ms"
        );
        stayed += pinned(&right);
        assert!(weir(&right, &["down"]).status.success());
        assert_eq!(
            (prog_on(&right, "right0"), pinned(&right)),
            (None, 0),
            "after {delay} ms"
        );
    }
    assert!(
        stayed < 20,
        "some kills came before the program was attached"
    );
}

#[test]
fn what_a_killed_run_left_is_named_and_removed_when_its_namespace_is_gone() {
    if !root("what_a_killed_run_left_is_named_and_removed_when_its_namespace_is_gone") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let elsewhere = NetNs::create("weirl-else").expect("namespace");
    let all = || fs::read_dir(pins::RUN).into_iter().flatten().flatten();
    for hook in ["xdp", "tc", "clsact"] {
        let (_left, right) = pair("weirl-lost");
        let prefix = format!("{}-", right.inode().expect("readable"));
        let is_left = || all().any(|e| e.file_name().to_string_lossy().starts_with(&prefix));
        let run = Run::start(&right, POLICY, &["right0"], &["--hook", hook]);
        // It runs: another namespace neither names nor removes it.
        let named = |ns: &NetNs| -> Vec<Value> {
            let status = weir(ns, &["status", "--json"]);
            assert!(status.status.success(), "{}", stderr(&status));
            let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
            let all = status["remains"].as_array().expect("a list").clone();
            let netns = right.inode().expect("readable");
            all.into_iter()
                .filter(|one| one["netns"] == netns)
                .collect()
        };
        assert_eq!(
            (named(&right), named(&elsewhere)),
            (vec![], vec![]),
            "{hook}"
        );
        run.signal(Signal::KILL);
        drop(run.wait());
        // Killed, with its namespace there: that names and removes it, no other one does.
        let there = named(&right);
        assert_eq!(there.len(), 1, "{hook}: {there:?}");
        assert_eq!(there[0]["interface"], "right0", "{hook}");
        assert!(there[0]["program"].is_u64(), "{hook}: {there:?}");
        assert_eq!(named(&elsewhere), Vec::<Value>::new(), "{hook}");
        let down = weir(&elsewhere, &["down", "--all"]);
        assert!(down.status.success(), "{}", stderr(&down));
        assert_eq!(pinned(&right), 1, "{hook}");
        drop(right);
        // The kernel takes a namespace away a while after its last user.
        let end = Instant::now() + Duration::from_secs(10);
        let words = format!("of network namespace {}", prefix.trim_end_matches('-'));
        while !said(&elsewhere, &["status"]).contains(&words) {
            assert!(Instant::now() < end, "{hook}: status does not name it");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Only `--all` reaches beyond this namespace.
        drop(said(&elsewhere, &["down"]));
        assert!(is_left(), "{hook}");
        let removed = said(&elsewhere, &["down", "--all"]);
        assert!(removed.contains(&words), "{hook}: {removed}");
        assert!(!is_left(), "{hook}");
        assert!(!said(&elsewhere, &["status"]).contains(&words), "{hook}");
    }
}

/// What a command that ends well prints.
fn said(ns: &NetNs, args: &[&str]) -> String {
    let output = weir(ns, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_second_run_is_refused_and_changes_nothing() {
    if !root("a_second_run_is_refused_and_changes_nothing") {
        return;
    }
    let (_left, right) = pair("weirl-twice");
    let run = Run::start(&right, POLICY, &["right0"], XDP);
    let id = prog_on(&right, "right0");
    let policy = file("second.weir", POLICY);
    // `lo` is free, yet nothing may be attached to it.
    let args = [
        "run",
        "--generic",
        "-i",
        "lo",
        "-i",
        "right0",
        policy.to_str().expect("text"),
    ];
    refused(&weir(&right, &args), 1, &["right0 already carries"]);
    assert_eq!(
        (prog_on(&right, "lo"), prog_on(&right, "right0")),
        (None, id)
    );
    run.stop();
}

#[test]
fn native_is_refused_whole_where_one_driver_has_none() {
    if !root("native_is_refused_whole_where_one_driver_has_none") {
        return;
    }
    let (_left, right) = pair("weirl-native");
    let policy = file("native.weir", POLICY);
    let args = [
        "run",
        "-i",
        "right0",
        "-i",
        "lo",
        policy.to_str().expect("text"),
    ];
    refused(&weir(&right, &args), 1, &["lo", "--generic"]);
    assert_eq!(
        (prog_on(&right, "right0"), pinned(&right)),
        (None, 0),
        "all or none"
    );
}

#[test]
fn down_stops_a_run_that_is_alive() {
    if !root("down_stops_a_run_that_is_alive") {
        return;
    }
    let (_left, right) = pair("weirl-down");
    let run = Run::start(&right, POLICY, &["right0"], XDP);
    assert!(weir(&right, &["down", "--json"]).status.success());
    let (status, _) = run.wait();
    assert_eq!(status.code(), Some(1), "it says that it lost its interface");
    assert_eq!((prog_on(&right, "right0"), pinned(&right)), (None, 0));
}

#[test]
fn a_run_ends_with_its_interface() {
    if !root("a_run_ends_with_its_interface") {
        return;
    }
    let (left, right) = pair("weirl-gone");
    let run = Run::start(&right, POLICY, &["right0"], XDP);
    left.ip(&["link", "delete", "left0"])
        .expect("the pair goes away");
    let (status, text) = run.wait();
    assert_eq!(status.code(), Some(1), "{text}");
    assert_eq!(pinned(&right), 0);
}

#[test]
fn bad_input_is_one_line_and_a_status() {
    if !root("bad_input_is_one_line_and_a_status") {
        return;
    }
    let ns = NetNs::create("weirl-bad").expect("namespace");
    let good = file("good.weir", POLICY);
    let good = good.to_str().expect("text");
    let bad = file("bad.weir", "x: tcp-dprt 80 drop\n");
    let out = file("out.weir", "x: out eth7 drop\n");
    refused(
        &weir(&ns, &["run", good, "-i", "eth77"]),
        2,
        &["no such interface: eth77"],
    );
    refused(
        &weir(&ns, &["run", "/nonexistent.weir", "-i", "lo"]),
        2,
        &["/nonexistent.weir"],
    );
    refused(
        &weir(&ns, &["run", bad.to_str().expect("text"), "-i", "lo"]),
        2,
        &["tcp-dport", "bad.weir:1"],
    );
    refused(
        &weir(&ns, &["run", out.to_str().expect("text"), "-i", "lo"]),
        2,
        &["out"],
    );
    refused(
        &weir(&ns, &["run", good, "-i", "lo", "-i", "lo"]),
        2,
        &["named twice"],
    );
    // Told by the parser of options, with how they are written.
    let zero = weir(&ns, &["run", good, "-i", "lo", "--interval", "0"]);
    assert_eq!(zero.status.code(), Some(2), "{}", stderr(&zero));
    assert!(
        stderr(&zero).contains("'0' for '--interval <TIME>'"),
        "{}",
        stderr(&zero)
    );
    refused(
        &weir(&ns, &["down", "-i", "eth77"]),
        2,
        &["no such interface: eth77"],
    );
    let warned = weir(
        &ns,
        &[
            "run",
            "--generic",
            "--for",
            "0.2",
            "-i",
            "lo",
            file("in.weir", "x: in eth7 drop\n").to_str().expect("text"),
        ],
    );
    assert!(warned.status.success(), "{}", stderr(&warned));
    assert!(
        stderr(&warned).contains("names interface eth7"),
        "{}",
        stderr(&warned)
    );
}

#[test]
fn without_privileges_the_line_says_what_to_do() {
    if !root("without_privileges_the_line_says_what_to_do") {
        return;
    }
    // A copy where nobody may read it: cargo's folders may be closed to others.
    let weir = std::env::temp_dir().join(format!("weir-nobody-{}", std::process::id()));
    let policy = weir.with_extension("weir");
    // By another process: see the same in bad_input.rs.
    let copied = std::process::Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_weir"))
        .arg(&weir)
        .status();
    assert!(copied.expect("cp runs").success(), "copied");
    std::fs::write(&policy, POLICY).expect("written");
    let output = Command::new(&weir)
        .args(["run", "-i", "lo"])
        .arg(&policy)
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output();
    let doctor = Command::new(&weir)
        .arg("doctor")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output();
    let _ = std::fs::remove_file(&weir);
    let _ = std::fs::remove_file(&policy);
    let output = output.expect("starts");
    refused(&output, 1, &["no permission"]);
    // The cure first: a path of a lock says nothing to who may not look at it.
    assert!(
        stderr(&output).starts_with("weir: run as root or grant CAP_NET_ADMIN"),
        "{}",
        stderr(&output)
    );
    let doctor = doctor.expect("starts");
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("MISSING"));
}

#[test]
fn doctor_finds_what_run_needs() {
    if !root("doctor_finds_what_run_needs") {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["doctor", "--json"])
        .output()
        .expect("starts");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(answer["kernel_engine"], output.status.success());
    let features = answer["features"].as_array().expect("features");
    assert!(
        features
            .iter()
            .any(|f| f["name"] == "xdp" && f["needed"] == true),
        "{answer}"
    );
}

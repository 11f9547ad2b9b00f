//! `weir rule` and `weir tables` on a running instance: edits take effect, errors say what to do and change nothing, drift is shown until
//! it is saved, and saving keeps what no edit concerns. Needs root.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::live_bed::{Run, root, stderr, weir};
use rustix::process::Signal;
use serde_json::Value;
use weir_kernel::{NetNs, bed, pins};

const POLICY: &str = "# the closed port\nclosed: udp-dport 9 drop   # discard\n\nset lan = { 10.81.0.0/24 }\n# the open one\nudp-dport 7 \\\n  ip-saddr in @lan accept\n";

#[test]
fn edits_take_effect_at_once_and_keep_ids_and_counters() {
    if !root("edits_take_effect_at_once_and_keep_ids_and_counters") {
        return;
    }
    let (left, right) = pair("weirr-edit");
    let run = Run::start(&right, POLICY, &["right0"], &[]);
    let open = listen(&right, 7);
    assert!(arrives(&left, &open, 7));

    assert_eq!(
        done(&right, &["add", "udp-dport", "7", "drop"]),
        "rule 3, generation 2"
    );
    // The policy's rule accepts, and that wins.
    assert!(arrives(&left, &open, 7));
    assert_eq!(done(&right, &["delete", "2"]), "generation 3");
    assert!(!arrives(&left, &open, 7));
    // mmb's spelling, and a set of the policy file.
    assert_eq!(
        done(
            &right,
            &["add", "mmb add ip-saddr in @lan udp-dport 7 accept"]
        ),
        "rule 4, generation 4"
    );
    assert!(arrives(&left, &open, 7));
    let rules = list(&right);
    assert_eq!(rules["generation"], 4);
    assert_eq!(rules["drifted"], true);
    let states: Vec<(u64, &str, u64)> = (rules["rules"].as_array().expect("rules").iter())
        .map(|r| {
            let number = |name: &str| r[name].as_u64().expect("a number");
            (
                number("id"),
                r["state"].as_str().expect("text"),
                number("packets"),
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            (1, "configured", 0),
            (2, "deleted-live", 0),
            (3, "added-live", 3),
            (4, "added-live", 1)
        ]
    );
    // A rewrite was not compiled in: everything is laid out anew, and counts on.
    let said = done(
        &right,
        &["replace", "3", "udp-dport", "7", "mod", "ip-ttl", "9"],
    );
    assert_eq!(said, "rule 5, generation 5, classifier rebuilt");
    assert!(arrives(&left, &open, 7));
    assert_eq!(list(&right)["rules"][2]["packets"], 2, "{}", list(&right));
    assert!(done(&right, &["flush"]).starts_with("generation 7"));
    assert!(arrives(&left, &open, 7));

    let tables = weir(&right, &["tables", "--json"]);
    let tables: Value = serde_json::from_slice(&tables.stdout).expect("one JSON object");
    assert_eq!((&tables["rules"], &tables["dead"]), (&0.into(), &0.into()));
    let report = run.stop();
    assert_eq!(report["rules"].as_array().expect("rules").len(), 0);
    assert!(!sockets(&right), "the socket goes with the run");
}

#[test]
fn what_is_refused_says_why_and_changes_nothing() {
    if !root("what_is_refused_says_why_and_changes_nothing") {
        return;
    }
    let (_left, right) = pair("weirr-bad");
    let alone = weir(&right, &["rule", "list"]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(
        stderr(&alone).contains("no `weir run` is running"),
        "{}",
        stderr(&alone)
    );

    let run = Run::start(&right, POLICY, &["right0"], &[]);
    let before = list(&right);
    for (arguments, code, message) in [
        (&["delete", "7"][..], 2, "no rule 7"),
        (&["delete", "1", "7"], 2, "no rule 7"),
        (&["delete", "one"], 2, "invalid value 'one'"),
        (&["add", "udp-dport 9 dorp"], 2, "dorp"),
        (&["add", "udp-dport 9"], 2, "this rule has no target"),
        (&["add", "set x = { 1 }"], 2, "expected a rule"),
        (
            &["add", "udp-dport 9 drop\nudp-dport 8 drop"],
            2,
            "a rule is one line",
        ),
        (&["add", "ip-saddr in @wan drop"], 2, "no set named `wan`"),
        (
            &["add", "closed: udp-dport 8 drop"],
            2,
            "rule 1 is already named `closed`",
        ),
        (&["add", "out right0 drop"], 2, "`out` cannot be known here"),
        (
            &["replace", "1", "udp-dport 9"],
            2,
            "this rule has no target",
        ),
        (&["replace", "8", "udp-dport 9 drop"], 2, "no rule 8"),
        (
            &["--if-generation", "0", "flush"],
            1,
            "at generation 1, not 0",
        ),
        (
            &["-i", "left0", "flush"],
            2,
            "no `weir run` is running on left0; running on: right0",
        ),
        (
            &["save", "/nowhere/at/all.weir"],
            1,
            "cannot write /nowhere/at/all.weir",
        ),
    ] {
        let output = weir(&right, &[&["rule"], arguments].concat());
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(message),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(list(&right), before, "{arguments:?}");
    }
    // All lines of standard input, or none.
    let mixed = fed(&right, "udp-dport 5 drop\n# fine\nudp-dport 6 dorp\n");
    assert_eq!(mixed.status.code(), Some(2));
    assert_eq!(list(&right), before);
    let both = fed(&right, "udp-dport 5 drop\n\nudp-dport 6 drop\n");
    assert!(
        stdout(&both).starts_with("rules 3 to 4, generation 2 "),
        "{}",
        stdout(&both)
    );

    // A second instance: from now on it must be said which one is meant.
    right
        .ip(&[
            "link", "add", "other0", "type", "veth", "peer", "name", "other1",
        ])
        .expect("veth");
    let second = Run::start(&right, POLICY, &["other0"], &[]);
    let which = weir(&right, &["rule", "list"]);
    assert_eq!(which.status.code(), Some(2));
    assert!(
        stderr(&which).contains("name one with -i"),
        "{}",
        stderr(&which)
    );
    assert!(done(&right, &["-i", "other0", "delete", "1"]).starts_with("generation 2"));
    second.stop();
    assert_eq!(list(&right)["generation"], 2);
    run.stop();
}

#[test]
fn writers_take_turns_and_only_one_wins_a_generation() {
    if !root("writers_take_turns_and_only_one_wins_a_generation") {
        return;
    }
    let (_left, right) = pair("weirr-turns");
    let run = Run::start(&right, POLICY, &["right0"], &[]);
    let at_once = |arguments: &'static [&'static str]| -> Vec<Output> {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| weir(&right, arguments)))
                .collect();
            all.into_iter()
                .map(|one| one.join().expect("runs"))
                .collect()
        })
    };
    for output in at_once(&["rule", "add", "udp-dport", "5", "drop"]) {
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let rules = list(&right);
    assert_eq!(rules["generation"], 9);
    assert_eq!(rules["rules"].as_array().expect("rules").len(), 10);
    let raced = at_once(&[
        "rule",
        "--if-generation",
        "9",
        "add",
        "udp-dport",
        "5",
        "drop",
    ]);
    let (won, lost): (Vec<_>, Vec<_>) = raced.iter().partition(|o| o.status.success());
    assert_eq!(won.len(), 1);
    for output in lost {
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(output).contains("at generation 10, not 9"),
            "{}",
            stderr(output)
        );
    }
    run.stop();
}

#[test]
fn saving_keeps_what_no_edit_concerns() {
    if !root("saving_keeps_what_no_edit_concerns") {
        return;
    }
    let (_left, right) = pair("weirr-save");
    let run = Run::start(&right, POLICY, &["right0"], &[]);
    let path = policy_of(&right);
    assert_eq!(list(&right)["drifted"], false);
    done(&right, &["delete", "2"]);
    done(&right, &["add", "ping: icmp-type 8 log \"seen\""]);
    let shown = stdout(&weir(&right, &["rule", "list"]));
    assert!(
        shown.contains("not saved: 1 added (+), 1 deleted (-)"),
        "{shown}"
    );
    assert!(shown.contains("\n-       2"), "{shown}");

    // A copy is no configuration.
    let copy = path.with_extension("copy");
    done(&right, &["save", copy.to_str().expect("text")]);
    assert_eq!(list(&right)["drifted"], true);
    let again = weir(&right, &["rule", "save", copy.to_str().expect("text")]);
    assert!(stderr(&again).contains("exists"), "{}", stderr(&again));

    let text = done(&right, &["save"]);
    assert!(text.ends_with("2 rules, 1 added, 1 removed"), "{text}");
    assert_eq!(
        read(&path),
        "# the closed port\nclosed: udp-dport 9 drop   # discard\n\nset lan = { 10.81.0.0/24 }\n# the open one\nping: icmp-type 8 log \"seen\"\n"
    );
    assert_eq!(read(&copy), read(&path));
    assert_eq!(list(&right)["drifted"], false);

    // Somebody edits the file meanwhile.
    fs::write(&path, "udp-dport 1 drop\n").expect("writable");
    done(&right, &["delete", "1"]);
    let refused = weir(&right, &["rule", "save"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("changed since it was read"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(read(&path), "udp-dport 1 drop\n");
    assert_eq!(list(&right)["drifted"], true);
    done(&right, &["save", "--force"]);
    assert!(read(&path).ends_with("# the open one\nping: icmp-type 8 log \"seen\"\n"));
    assert_eq!(list(&right)["drifted"], false);
    run.stop();
}

#[test]
fn rules_of_chains_are_edited_one_way_at_a_time_and_saved_whole() {
    if !root("rules_of_chains_are_edited_one_way_at_a_time_and_saved_whole") {
        return;
    }
    let (left, right) = pair("weirr-chain");
    let policy = "# what is open\nchain web {\n    # the port\n    open: udp-dport 7 accept\n    udp-dport 9 drop\n}\n\na: ip-saddr 10.81.0.0/24 jump web\nb: ip-saddr 10.82.0.0/24 jump web\nudp-dport 7 drop\n";
    let run = Run::start(&right, policy, &["right0"], &[]);
    let path = policy_of(&right);
    let open = listen(&right, 7);
    assert!(arrives(&left, &open, 7));
    let texts = |right: &NetNs| -> Vec<String> {
        let rules = list(right);
        let rules = rules["rules"].as_array().expect("rules").iter();
        rules
            .map(|r| r["rule"].as_str().expect("text").to_owned())
            .collect()
    };
    assert_eq!(
        texts(&right),
        [
            "ip-saddr 10.81.0.0/24 udp-dport 7 accept  # web/open@a",
            "ip-saddr 10.81.0.0/24 udp-dport 9 drop  # chain web",
            "ip-saddr 10.82.0.0/24 udp-dport 7 accept  # web/open@b",
            "ip-saddr 10.82.0.0/24 udp-dport 9 drop  # chain web",
            "udp-dport 7 drop",
        ]
    );
    for line in [
        "udp-dport 1 jump web",
        "choose udp-dport { 1: drop, 2: accept }",
    ] {
        let refused = weir(&right, &["rule", "add", line]);
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(
            stderr(&refused).contains("`weir rule load`"),
            "{}",
            stderr(&refused)
        );
    }
    // One of two ways cannot be written down.
    done(&right, &["delete", "1"]);
    assert!(!arrives(&left, &open, 7));
    let refused = weir(&right, &["rule", "save"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("rule 1 was deleted and rule 3, which stands on the same line 4"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(read(&path), policy);
    done(&right, &["delete", "3"]);
    let text = done(&right, &["save"]);
    assert!(text.ends_with("3 rules, 0 added, 2 removed"), "{text}");
    assert_eq!(
        read(&path),
        policy.replace("    open: udp-dport 7 accept\n", "")
    );
    assert_eq!(list(&right)["drifted"], false);
    run.stop();
}

#[test]
fn a_policy_of_several_files_is_saved_to_another_one() {
    if !root("a_policy_of_several_files_is_saved_to_another_one") {
        return;
    }
    let (_left, right) = pair("weirr-include");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let part = folder.join(format!("part-{}.weir", std::process::id()));
    fs::write(
        &part,
        "set open = { 7 }\n# of the part\nudp-dport in @open accept\nudp-dport 8 accept\n",
    )
    .expect("writable");
    let policy = format!("include \"{}\"\nudp drop\n", part.display());
    let run = Run::start(&right, &policy, &["right0"], &[]);
    let path = policy_of(&right);
    done(&right, &["delete", "2"]);
    done(
        &right,
        &["add", "ip-saddr 10.81.0.0/24 udp-dport in @open log"],
    );
    let refused = weir(&right, &["rule", "save"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("includes other files"),
        "{}",
        stderr(&refused)
    );
    let refused = weir(&right, &["rule", "save", "--force"]);
    assert!(stderr(&refused).contains("includes other files"));
    assert_eq!(read(&path), policy);
    let copy = path.with_extension("copy");
    done(&right, &["save", copy.to_str().expect("text")]);
    assert_eq!(
        read(&copy),
        "set open = { 7 }\n# of the part\nudp-dport in @open accept\nudp                drop\nip-saddr 10.81.0.0/24 udp-dport in @open log\n"
    );
    // Another file is read again.
    fs::write(&part, "udp-dport 9 accept\n").expect("writable");
    let loaded = stdout(&weir(&right, &["rule", "load"]));
    assert!(
        loaded.contains("2 rules") || loaded.contains("1 added"),
        "{loaded}"
    );
    run.stop();
    let _ = fs::remove_file(&part);
    let _ = fs::remove_file(&copy);
}

#[test]
fn the_socket_of_a_killed_run_is_no_instance() {
    if !root("the_socket_of_a_killed_run_is_no_instance") {
        return;
    }
    let (_left, right) = pair("weirr-dead");
    let run = Run::start(&right, POLICY, &["right0"], &[]);
    assert!(sockets(&right));
    run.signal(Signal::KILL);
    drop(run.wait());
    let output = weir(&right, &["rule", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no `weir run` is running"),
        "{}",
        stderr(&output)
    );
    assert!(!sockets(&right), "it is cleared away");
    assert!(weir(&right, &["down"]).status.success());
}

fn pair(prefix: &str) -> (NetNs, NetNs) {
    pins::ensure_bpffs().expect("bpffs");
    let left = NetNs::create(&format!("{prefix}-l")).expect("namespace");
    let right = NetNs::create(&format!("{prefix}-r")).expect("namespace");
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.81.0.1/24"]),
        end(&right, "right0", &["10.81.0.2/24"]),
    )
    .expect("veth");
    (left, right)
}

fn listen(ns: &NetNs, port: u16) -> UdpSocket {
    let socket = ns
        .run(|| UdpSocket::bind(("10.81.0.2", port)))
        .expect("namespace")
        .expect("bind");
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("timeout");
    socket
}

/// Whether a datagram arrives.
fn arrives(from: &NetNs, at: &UdpSocket, port: u16) -> bool {
    from.run(|| {
        let socket = UdpSocket::bind("10.81.0.1:0").expect("bind");
        socket.send_to(b"weir", ("10.81.0.2", port)).expect("sends");
    })
    .expect("namespace");
    at.recv(&mut [0; 64]).is_ok()
}

/// `weir rule` that must succeed; what it said, without the time.
fn done(ns: &NetNs, arguments: &[&str]) -> String {
    let output = weir(ns, &[&["rule"], arguments].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    let text = stdout(&output);
    text.split(" (")
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

fn list(ns: &NetNs) -> Value {
    let output = weir(ns, &["rule", "list", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// `weir rule add -` with this standard input.
fn fed(ns: &NetNs, text: &str) -> Output {
    let mut child = ns
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace")
        .args(["rule", "add", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("reads it");
    drop(stdin);
    child.wait_with_output().expect("ends")
}

fn policy_of(ns: &NetNs) -> PathBuf {
    let rules = list(ns);
    PathBuf::from(rules["instance"]["policy"].as_str().expect("a path"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a socket of the namespace is there.
fn sockets(ns: &NetNs) -> bool {
    let prefix = format!("{}-", ns.inode().expect("readable"));
    let entries = fs::read_dir("/run/weir").expect("the folder of sockets");
    let mut names = entries.map(|e| e.expect("readable").file_name());
    names.any(|name| name.to_string_lossy().starts_with(&prefix))
}

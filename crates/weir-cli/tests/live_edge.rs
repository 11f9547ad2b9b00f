//! `weir apply`, `diff`, `status` and `down` as processes: what they make of an edge, what they leave, how they refuse.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::live_bed::{file, look_at, prog_on, root, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// An edge of its own in a namespace of its own; taken down when dropped.
struct Bed {
    left: NetNs,
    right: NetNs,
    edge: String,
    config: PathBuf,
    policy: PathBuf,
}

impl Bed {
    /// `name` is of the test; the edge drops UDP to port 9 and counts in `rules`.
    fn new(name: &str) -> Bed {
        let left = NetNs::create(&format!("weire-{name}")).expect("namespace");
        let right = NetNs::create(&format!("weire-{name}")).expect("namespace");
        let end = |ns, name, address| End {
            ns,
            name,
            addresses: address,
        };
        bed::veth(
            end(&left, "left0", &["10.79.0.1/24"]),
            end(&right, "right0", &["10.79.0.2/24"]),
        )
        .expect("veth");
        let policy = file("rules.weir", "udp-dport 9 drop\n");
        let bed = Bed {
            edge: format!("t{}-{name}", std::process::id()),
            config: file("edge.toml", ""),
            left,
            right,
            policy,
        };
        bed.configure("");
        bed
    }

    /// Writes the configuration, with `more` at its end.
    fn configure(&self, more: &str) {
        let policy = self.policy.file_name().expect("a file").to_string_lossy();
        let text = format!(
            "edge = \"{}\"\n[[port]]\nname = \"in\"\ndevice = \"right0\"\n[[function]]\nname = \"rules\"\nkind = \"middlebox\"\n\
             policy = \"{policy}\"\n[[link]]\nfrom = \"in\"\nto = \"rules\"\n{more}",
            self.edge
        );
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.right, args)
    }

    fn config(&self) -> &str {
        self.config.to_str().expect("UTF-8")
    }

    fn apply(&self, more: &[&str]) -> Output {
        self.weir(&[&["apply", self.config()], more].concat())
    }

    /// The edge as `weir status --json` shows it; `None` if it does not run.
    fn status(&self) -> Option<Value> {
        let output = self.weir(&["status", "--edge", &self.edge, "--json"]);
        match output.status.success() {
            true => Some(json(&output)["edges"][0].clone()),
            false => None,
        }
    }

    fn generation(&self) -> u64 {
        let status = self.status().expect("it runs");
        status["generation"].as_u64().expect("a number")
    }

    /// Whether a datagram to that port arrives.
    fn arrives(&self, port: u16) -> bool {
        let receiver = self
            .right
            .run(|| UdpSocket::bind(("10.79.0.2", port)).expect("bind"))
            .expect("namespace");
        receiver
            .set_read_timeout(Some(Duration::from_millis(400)))
            .expect("a time");
        self.left
            .run(|| {
                let sender = UdpSocket::bind("10.79.0.1:0").expect("bind");
                sender.send_to(b"weir", ("10.79.0.2", port)).expect("send");
            })
            .expect("namespace");
        receiver.recv(&mut [0; 16]).is_ok()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
    }
}

/// A `weir` that stays; killed when dropped.
struct Staying {
    child: Child,
    errors: PathBuf,
}

impl Staying {
    fn start(bed: &Bed, more: &[&str]) -> Staying {
        let errors = file("stderr", "");
        let mut command = bed
            .right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.args(["apply", bed.config()]).args(more);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors).expect("writable"))
            .spawn()
            .expect("weir starts");
        Staying { child, errors }
    }

    fn words(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    #[track_caller]
    fn says(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.words().contains(text) {
            let status = self.child.try_wait().expect("waits");
            assert!(
                Instant::now() < end && status.is_none_or(|_| self.words().contains(text)),
                "it never said `{text}` ({status:?}): {}",
                self.words()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; its exit status.
    fn end(mut self) -> i32 {
        self.child.wait().expect("waits").code().unwrap_or(-1)
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {}", stderr(output)))
}

#[track_caller]
fn good(output: Output) -> Output {
    assert!(output.status.success(), "{output:?}");
    output
}

#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn an_edge_is_applied_changed_looked_at_and_taken_down() {
    if !root("an_edge_is_applied_changed_looked_at_and_taken_down") {
        return;
    }
    let bed = Bed::new("life");
    let before = look_at(&bed.right, "right0");
    assert!(bed.arrives(9));

    // A dry run touches nothing.
    let output = good(bed.apply(&["--dry-run"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains(
            "nothing of it runs:\n+ port in (right0, native)\n+ function rules (middlebox)\n"
        ),
        "{text}"
    );
    assert_eq!(bed.status(), None);
    assert_eq!(prog_on(&bed.right, "right0"), None);

    let output = good(bed.apply(&["--json"]));
    let report = json(&output);
    assert_eq!(
        (&report["generation"], &report["edge"]),
        (&1.into(), &bed.edge.clone().into())
    );
    assert_eq!(report["added"], serde_json::json!(["rules"]));
    assert!(!bed.arrives(9) && bed.arrives(10));

    let status = bed.status().expect("it runs");
    let (port, rules) = (&status["ports"][0], &status["functions"][0]);
    assert_eq!(
        (&port["name"], &port["device"]),
        (&"in".into(), &"right0".into())
    );
    assert_eq!(
        (&rules["name"], &rules["kind"]),
        (&"rules".into(), &"middlebox".into())
    );
    let drops = &rules["ledger"]["verdicts"]["drop"];
    assert_eq!(drops, 1, "{rules}");
    assert_eq!(rules["ledger"]["reasons"][0]["reason"], "rule_drop");
    for ledger in [&port["ledger"], &rules["ledger"]] {
        let verdicts = ledger["verdicts"].as_object().expect("verdicts");
        let sum: u64 = verdicts
            .values()
            .map(|count| count.as_u64().expect("a number"))
            .sum();
        assert_eq!(ledger["received"], sum, "{ledger}");
    }

    // What is the same changes nothing.
    let output = good(bed.weir(&["diff", bed.config()]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing changes\n");

    // Another rule and another function: one is replaced, one is new.
    fs::write(&bed.policy, "udp-dport 10 drop\n").expect("writable");
    bed.configure("[[function]]\nname = \"more\"\nkind = \"empty\"\n[[link]]\nfrom = \"rules\"\nto = \"more\"\n");
    let output = good(bed.weir(&["diff", bed.config(), "--json"]));
    let changes = &json(&output)["changes"];
    assert_eq!(changes["instances"][0]["change"], "changed", "{changes}");
    assert_eq!(changes["instances"][1]["name"], "more");
    let output = good(bed.apply(&[]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "~ function rules: map ",
        "+ function more (empty)\n",
        "~ link rules: stack -> more\n",
    ] {
        assert!(text.contains(line), "no `{line}` in: {text}");
    }
    assert!(
        text.ends_with("is at generation 2: 1 port, 2 functions\n"),
        "{text}"
    );
    assert!(bed.arrives(9) && !bed.arrives(10));
    // Its ledger went on over the replacement.
    let status = bed.status().expect("it runs");
    assert_eq!(status["functions"][0]["ledger"]["verdicts"]["drop"], 2);
    let text =
        String::from_utf8_lossy(&good(bed.weir(&["status", bed.config()])).stdout).into_owned();
    assert!(
        text.starts_with(&format!("edge {}, generation 2, from ", bed.edge)),
        "{text}"
    );
    assert!(
        text.contains("\nfunction rules (middlebox) > more: "),
        "{text}"
    );

    // Only what is named goes down.
    good(bed.weir(&["down"]));
    assert_eq!(bed.generation(), 2);
    let output = good(bed.weir(&["down", bed.config()]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("edge {}: down\n", bed.edge)
    );
    assert_eq!(bed.status(), None);
    assert_eq!(look_at(&bed.right, "right0"), before);
    assert!(!Path::new("/sys/fs/bpf/weir/edge").join(&bed.edge).exists());
}

#[test]
fn what_is_wrong_leaves_what_runs_untouched() {
    if !root("what_is_wrong_leaves_what_runs_untouched") {
        return;
    }
    let bed = Bed::new("bad");
    good(bed.apply(&[]));
    let before = (prog_on(&bed.right, "right0"), bed.generation());
    let device = "[[port]]\nname = \"other\"\ndevice = \"rihgt1\"\n";
    let two = "[[function]]\nname = \"a\"\nkind = \"empty\"\n[[link]]\nfrom = \"rules\"\nto = \"a\"\n[[link]]\nfrom = \"a\"\nto = \"";
    let offload = "[[port]]\nname = \"other\"\ndevice = \"lo\"\nmode = \"offload\"\n";
    for (more, words) in [
        (device, &["no such interface: rihgt1"][..]),
        (
            &format!("{two}rules\"\n"),
            &[
                "packets could loop forever: rules > a > rules",
                "guard = N",
                "edge.toml:",
            ],
        ),
        (
            &format!("{two}nowhere\"\n"),
            &["no port or function is named `nowhere`"],
        ),
        (offload, &["port other: lo", "cannot run XDP in hardware"]),
    ] {
        bed.configure(more);
        refused(&bed.apply(&[]), 2, words);
        // A dry run says it, too; what only this host refuses may be right on another one.
        let dry = bed.apply(&["--dry-run"]);
        let said = stderr(&dry);
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        if dry.status.success() {
            assert!(said.contains("would fail here now"), "{said}");
        }
        assert_eq!(
            (prog_on(&bed.right, "right0"), bed.generation()),
            before,
            "{more}"
        );
        assert!(!bed.arrives(9));
    }
    bed.configure("");
    fs::write(&bed.policy, "udp-dport 9 drop\nupd-dport 10 drop\n").expect("writable");
    let place = format!(
        "{}:2:1",
        bed.policy.file_name().expect("a file").to_string_lossy()
    );
    refused(
        &bed.apply(&[]),
        2,
        &[
            "did you mean `udp-dport`?",
            &place,
            "1 mistake in the configuration; nothing was changed",
        ],
    );
    assert_eq!((prog_on(&bed.right, "right0"), bed.generation()), before);
    refused(
        &bed.weir(&["status", "--edge", "no-such-edge"]),
        2,
        &["no edge no-such-edge is running"],
    );
    refused(&bed.weir(&["apply"]), 2, &["weir apply FILE"]);
    refused(
        &bed.weir(&["apply", "/none.toml"]),
        2,
        &["cannot read the configuration `/none.toml`"],
    );
}

#[test]
fn what_nobody_confirms_is_gone_back_on() {
    if !root("what_nobody_confirms_is_gone_back_on") {
        return;
    }
    let bed = Bed::new("confirm");
    // Nothing ran before: going back is going down.
    let mut first = Staying::start(&bed, &["--confirm", "30"]);
    first.says("confirm within 30 s");
    assert!(!bed.arrives(9));
    first.signal(Signal::INT);
    first.says("it was rejected: the edge was taken down");
    assert_eq!(first.end(), 1);
    assert_eq!(bed.status(), None);
    assert!(bed.arrives(9));

    good(bed.apply(&[]));
    // The policy is edited in place: what ran must come from what was kept.
    fs::write(&bed.policy, "udp-dport 10 drop\n").expect("writable");
    let mut late = Staying::start(&bed, &["--confirm", "1.5"]);
    late.says("confirm within");
    assert!(bed.arrives(9));
    // A lost connection keeps nothing from coming back.
    late.signal(Signal::HUP);
    late.says("not confirmed in time: the previous configuration is restored");
    assert_eq!(late.end(), 1);
    assert_eq!(bed.generation(), 3);
    assert!(!bed.arrives(9) && bed.arrives(10));

    // Another edge on the same device: who holds it is said.
    let text = fs::read_to_string(&bed.config).expect("readable");
    let other = file(
        "other.toml",
        &text.replace(&bed.edge, &format!("{}-2", bed.edge)),
    );
    refused(
        &bed.weir(&["apply", other.to_str().expect("UTF-8")]),
        1,
        &[
            "port in: right0 is occupied",
            &format!("`weir down --edge {}`", bed.edge),
        ],
    );

    let mut right = Staying::start(&bed, &["--confirm", "30"]);
    right.says("confirm within");
    refused(
        &bed.apply(&["--confirm", "1"]),
        1,
        &["is waiting (process "],
    );
    let output = good(bed.weir(&["apply", "--confirm-now", "--edge", &bed.edge]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("edge {}: confirmed\n", bed.edge)
    );
    assert_eq!(right.end(), 0);
    assert_eq!(bed.generation(), 4);
    assert!(bed.arrives(9) && !bed.arrives(10));
    refused(
        &bed.weir(&["apply", "--confirm-now", "--edge", &bed.edge]),
        1,
        &["is waiting"],
    );

    // What somebody else applies meanwhile is not undone, and an edge that was taken down does not come back.
    fs::write(&bed.policy, "udp-dport 9 drop\n").expect("writable");
    let mut other = Staying::start(&bed, &["--confirm", "3"]);
    other.says("confirm within");
    fs::write(&bed.policy, "udp-dport 11 drop\n").expect("writable");
    good(bed.apply(&[]));
    other.says("was modified by another command meanwhile");
    assert_eq!(other.end(), 1);
    assert_eq!(bed.generation(), 6);
    assert!(bed.arrives(9) && bed.arrives(10) && !bed.arrives(11));
    fs::write(&bed.policy, "udp-dport 9 drop\n").expect("writable");
    let mut gone = Staying::start(&bed, &["--confirm", "3"]);
    gone.says("confirm within");
    good(bed.weir(&["down", "--edge", &bed.edge]));
    gone.says("was modified by another command meanwhile");
    assert_eq!(gone.end(), 1);
    assert_eq!(bed.status(), None);
}

#[test]
fn what_rules_and_entries_of_a_filter_counted_is_shown() {
    if !root("what_rules_and_entries_of_a_filter_counted_is_shown") {
        return;
    }
    let bed = Bed::new("hits");
    let list = file("block.txt", "192.0.2.0/24\n10.79.0.0/24\n");
    let list_name = list.file_name().expect("a file").to_string_lossy();
    let text = format!(
        "edge = \"{}\"\n[[port]]\nname = \"in\"\ndevice = \"right0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\n\
         rules = [\"deny from 10.79.0.0/24 to-port 10\", \"deny from @bad to-port 9\"]\nsets.bad = {{ file = \"{list_name}\" }}\n\
         [[link]]\nfrom = \"in\"\nto = \"shield\"\n",
        bed.edge
    );
    fs::write(&bed.config, text).expect("cargo's folder is writable");
    good(bed.apply(&[]));
    assert!(!bed.arrives(9) && !bed.arrives(10) && bed.arrives(11));
    let shown = || {
        let output = good(bed.weir(&["status", "--edge", &bed.edge, "--hits", "--json"]));
        json(&output)["edges"][0]["functions"][0].clone()
    };
    let first = shown();
    let count = |value: &Value, what: &str| value[what].as_u64().expect("a number");
    let (ports, listed) = (&first["rules"][0], &first["rules"][1]);
    assert_eq!(ports["rule"], "deny from 10.79.0.0/24 to-port 10");
    assert!(count(ports, "packets") > 0 && count(listed, "packets") > 0);
    assert_eq!(count(listed, "packets"), count(listed, "dropped"));
    assert_eq!(
        count(ports, "dropped") + count(listed, "dropped"),
        count(&first["ledger"]["verdicts"], "drop")
    );
    let entry = &first["entries"][0];
    assert_eq!(
        (&entry["prefix"], &entry["line"]),
        (&"10.79.0.0/24".into(), &2.into())
    );
    assert_eq!(count(entry, "packets"), count(listed, "packets"));
    // Another list: what was counted goes along.
    fs::write(&list, "10.79.0.0/24\n198.51.100.0/24\n").expect("writable");
    good(bed.apply(&[]));
    let second = shown();
    assert_eq!(second["rules"], first["rules"]);
    assert_eq!(second["entries"][0]["line"], 1);
    assert_eq!(second["entries"][0]["packets"], entry["packets"]);
    let output = good(bed.weir(&["status", bed.config(), "--hits"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("  rule 2 `deny from @bad to-port 9`: "),
        "{text}"
    );
    assert!(
        text.contains("  entry 10.79.0.0/24 of @bad, line 1: "),
        "{text}"
    );
    // The first limit of a running filter, and the last one that goes: what it would remember is not there yet, or not any more.
    let written = fs::read_to_string(&bed.config).expect("readable");
    let limited = written.replace(
        "rules = [",
        "rules = [\"limit udp rate 1/h burst 1 per source\", ",
    );
    for (text, second) in [(&limited, false), (&written, true)] {
        fs::write(&bed.config, text).expect("writable");
        good(bed.apply(&[]));
        assert!(bed.arrives(11) && bed.arrives(12) == second, "{text}");
    }
    let kept = shown();
    assert_eq!(kept["entries"][0]["packets"], entry["packets"]);
    // Without the option nothing of it is read.
    assert_eq!(
        bed.status().expect("runs")["functions"][0]["rules"],
        Value::Null
    );
}

#[test]
fn a_running_policy_gets_its_first_stateful_rule() {
    if !root("a_running_policy_gets_its_first_stateful_rule") {
        return;
    }
    let bed = Bed::new("state");
    good(bed.apply(&[]));
    assert!(!bed.arrives(9));
    fs::write(
        &bed.policy,
        "add-stateful udp-dport 10 accept\nudp-dport 9 drop\n",
    )
    .expect("writable");
    good(bed.apply(&[]));
    assert!(!bed.arrives(9) && bed.arrives(10));
    // Connections are not lost by mistake.
    fs::write(&bed.policy, "udp-dport 9 drop\n").expect("writable");
    refused(
        &bed.apply(&[]),
        2,
        &["so its state cannot be kept", "fresh = true"],
    );
}

/// Behind a recirculation packets come out of a device of the edge's own; the stack sees them as if they had come by their port.
#[test]
fn a_path_that_is_recirculated_ends_at_the_stack_or_where_it_began() {
    if !root("a_path_that_is_recirculated_ends_at_the_stack_or_where_it_began") {
        return;
    }
    let bed = Bed::new("long");
    let devices = || {
        let shown = bed.right.ip(&["-br", "link"]).expect("shown");
        let names = shown.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = devices();
    // Reverse paths are checked: an answer to the sender leaves by the port.
    bed.right
        .run(|| {
            for name in ["all", "default", "right0"] {
                let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
                fs::write(path, "1").expect("writable");
            }
        })
        .expect("namespace");
    let chain = |end: &str| {
        let mut text = format!(
            "edge = \"{}\"\n[[port]]\nname = \"in\"\ndevice = \"right0\"\n",
            bed.edge
        );
        let mut from = "in".to_owned();
        for at in 0..70 {
            text += &format!(
                "[[function]]\nname = \"f{at}\"\nkind = \"empty\"\n[[link]]\nfrom = \"{from}\"\nto = \"f{at}\"\n"
            );
            from = format!("f{at}");
        }
        text + &format!("[[link]]\nfrom = \"{from}\"\nto = \"{end}\"\n")
    };
    fs::write(&bed.config, chain("stack")).expect("writable");
    good(bed.apply(&[]));
    let status = bed.status().expect("it runs");
    assert_ne!(status["recirculation"], Value::Null);
    assert!(bed.arrives(9) && bed.arrives(10));

    fs::write(&bed.config, chain("tx")).expect("writable");
    good(bed.apply(&[]));
    let received = || {
        let shown = bed
            .left
            .ip(&["-s", "-j", "link", "show", "left0"])
            .expect("shown");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown[0]["stats64"]["rx"]["packets"]
            .as_u64()
            .expect("a number")
    };
    let start = received();
    for port in 20..30 {
        assert!(!bed.arrives(port));
    }
    let functions = bed.status().expect("it runs")["functions"].clone();
    let functions = functions.as_array().expect("a list");
    let last = functions.iter().find(|one| one["name"] == "f69");
    let sent = last.expect("the last one")["ledger"]["verdicts"]["tx"].clone();
    let sent = sent.as_u64().expect("a number");
    assert!(
        sent > 0 && received() >= start + sent,
        "{sent}, {start}, {}",
        received()
    );
    good(bed.weir(&["down", "--edge", &bed.edge]));
    assert_eq!(devices(), before);
}

#[test]
fn a_watched_configuration_follows_its_files() {
    if !root("a_watched_configuration_follows_its_files") {
        return;
    }
    let bed = Bed::new("watch");
    let mut watching = Staying::start(&bed, &["--watch"]);
    watching.says("watching 2 files");
    assert_eq!(bed.generation(), 1);
    fs::write(&bed.policy, "udp-dport 9 drp\n").expect("writable");
    watching.says("nothing was changed; the running state is unchanged");
    assert_eq!(bed.generation(), 1);
    fs::write(&bed.policy, "udp-dport 10 drop\n").expect("writable");
    let end = Instant::now() + Duration::from_secs(20);
    while bed.generation() == 1 {
        assert!(Instant::now() < end, "{}", watching.words());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(bed.arrives(9) && !bed.arrives(10));
    // The watch ends, the edge does not.
    watching.signal(Signal::INT);
    assert_eq!(watching.end(), 0);
    assert_eq!(bed.generation(), 2);
}

#[test]
fn an_edge_whose_namespace_is_gone_is_taken_down_from_another() {
    if !root("an_edge_whose_namespace_is_gone_is_taken_down_from_another") {
        return;
    }
    let folder = |name: &str| Path::new("/sys/fs/bpf/weir/edge").join(name);
    let dead = |edge: &str| -> (String, PathBuf) {
        let mut bed = Bed::new(edge);
        let applied = bed.apply(&[]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        // While its devices are there, it is for its own namespace to take it down.
        let refused = weir(&bed.left, &["down", "--edge", &bed.edge]);
        assert!(!refused.status.success());
        let all = weir(&bed.left, &["down", "--all"]);
        assert!(all.status.success(), "{}", stderr(&all));
        assert!(folder(&bed.edge).exists());
        let name = std::mem::take(&mut bed.edge);
        (name, bed.config.clone())
    };
    let elsewhere = Bed::new("orphan-other");
    // The kernel takes a namespace away a while after its last user.
    let down = |args: &[&str], what: &str| {
        let end = Instant::now() + Duration::from_secs(10);
        while folder(what).exists() {
            assert!(Instant::now() < end, "{what} stays");
            let _ = weir(&elsewhere.left, args);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let (name, _) = dead("orphan-1");
    assert!(folder(&name).exists());
    down(&["down", "--edge", &name], &name);
    let (name, _) = dead("orphan-2");
    down(&["down", "--all"], &name);
    // Or it is applied anew, somewhere else.
    let (name, _) = dead("orphan-3");
    let text = fs::read_to_string(&elsewhere.config).expect("readable");
    let moved = text.replace(&elsewhere.edge, &name);
    fs::write(&elsewhere.config, moved).expect("writable");
    let end = Instant::now() + Duration::from_secs(10);
    while !elsewhere.apply(&[]).status.success() {
        assert!(Instant::now() < end, "{name} cannot be applied");
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = elsewhere.weir(&["down", "--edge", &name]);
    assert!(gone.status.success(), "{}", stderr(&gone));
    assert!(!folder(&name).exists());
}

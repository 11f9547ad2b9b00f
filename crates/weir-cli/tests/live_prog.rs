//! `weir prog load|attach|replace|detach|list|unload` with real packets: what stays in the kernel, what is refused, and that nothing is
//! lost while a program is replaced.
//!
//! Needs root. Programs are kept in one place for the whole machine, so each test has names of its own and takes them away.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Folder;
use crate::live_bed::{prog_on, root, stderr, weir};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{Map, NetNs};

const PROGRAMS: &str = "/sys/fs/bpf/weir/prog";

#[test]
fn a_program_is_loaded_attached_listed_detached_and_unloaded() {
    let Some(bed) = Bed::build("life") else {
        return;
    };
    let object = bed.compile("kept", &[]);
    let name = bed.name("life");
    let loaded = bed.ok(&[
        "load",
        &object,
        "--program",
        "kept",
        "--name",
        &name,
        "--constant",
        "verdict=2",
    ]);
    assert!(
        loaded.contains(&name) && loaded.contains("weir prog attach"),
        "{loaded}"
    );
    bed.ok(&["attach", &name, "-i", "in0"]);
    bed.ok(&["attach", &name, "-i", "in1", "--mode", "generic"]);
    assert!(prog_on(&bed.ns, "in0").is_some());

    let row = bed.row(&name);
    let modes: Vec<&str> = row["interfaces"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|i| i["mode"].as_str().expect("text"))
        .collect();
    assert_eq!(modes, ["native", "generic"]);
    assert_eq!(row["interfaces"][0]["interface"], "in0");
    assert_eq!(row["program"], "kept");
    let maps: Vec<&str> = row["maps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|m| m["name"].as_str().expect("text"))
        .collect();
    assert_eq!(maps, ["notes", "seen"]);
    let id = row["id"].to_string();

    // Each is one of the ways to say which program; none of them leaves the other interface without it.
    bed.ok(&["detach", &id, "-i", "in0"]);
    assert_eq!(prog_on(&bed.ns, "in0"), None);
    assert!(prog_on(&bed.ns, "in1").is_some());
    let twice = bed.fails(&["detach", &name, "-i", "in0"]);
    assert!(twice.contains("is not on in0; it is on in1"), "{twice}");
    let busy = bed.fails(&["unload", &name]);
    assert!(
        busy.contains("in1") && busy.contains("weir prog detach"),
        "{busy}"
    );
    bed.ok(&["detach", &name, "-i", "in1"]);
    // Lifecycle after the last detach: it is still loaded, and can be attached again.
    bed.ok(&["attach", &name, "-i", "in0"]);
    bed.ok(&["detach", &name, "-i", "in0"]);
    bed.ok(&["unload", &name]);
    let gone = bed.fails(&["attach", &name, "-i", "in0"]);
    assert!(gone.contains("is loaded"), "{gone}");
}

#[test]
fn a_replacement_loses_nothing_and_keeps_the_maps() {
    let Some(bed) = Bed::build("swap") else {
        return;
    };
    let object = bed.compile("kept", &[]);
    let name = bed.name("swap");
    bed.ok(&["load", &object, "--program", "kept", "--name", &name]);
    bed.ok(&["attach", &name, "-i", "in0"]);
    bed.ok(&["attach", &name, "-i", "in1", "--mode", "generic"]);
    let before = bed.row(&name);

    let (stop, arrived) = (AtomicBool::new(false), &AtomicU32::new(0));
    let (replacements, sent, received) = std::thread::scope(|scope| {
        // Bound before the first datagram leaves: one that nobody listens for would count as lost.
        let listening = bed.ns.run(|| UdpSocket::bind("10.9.0.1:7000"));
        let listening = listening.expect("namespace").expect("the address is there");
        let receiver = scope.spawn(move || receive(&listening, arrived));
        let _stops = common::Stops(&stop);
        let stop = &stop;
        let sender = scope.spawn(|| {
            bed.far
                .run(|| send("10.9.0.1:7000", arrived, stop))
                .expect("namespace")
        });
        std::thread::sleep(Duration::from_millis(100));
        let mut replacements = 0;
        let end = Instant::now() + Duration::from_secs(if long() { 60 } else { 3 });
        while Instant::now() < end || replacements < 3 {
            let constant = if replacements % 2 == 0 {
                "verdict=0x2"
            } else {
                "verdict=2"
            };
            bed.ok(&["replace", &name, &object, "--constant", constant]);
            replacements += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("sends");
        (replacements, sent, receiver.join().expect("receives"))
    });
    common::say(&format!(
        "{replacements} replacements under {sent} datagrams"
    ));
    assert_eq!(
        received,
        (0..sent).collect::<Vec<u32>>(),
        "nothing lost, doubled or out of order"
    );

    let after = bed.row(&name);
    assert_eq!(before["id"], after["id"]);
    assert_ne!(before["program_id"], after["program_id"]);
    assert_eq!(before["maps"], after["maps"], "the same maps");
    assert_eq!(after["interfaces"].as_array().map(Vec::len), Some(2));
    let counted = bed.seen(&name);
    assert!(counted >= u64::from(sent), "{counted} counted of {sent}");
}

#[test]
fn a_map_that_changed_is_refused_with_both_definitions() {
    let Some(bed) = Bed::build("map") else { return };
    let name = bed.name("map");
    let object = bed.compile("kept", &[]);
    let larger = bed.compile("kept", &["-DENTRIES=8"]);
    bed.ok(&["load", &object, "--program", "kept", "--name", &name]);
    bed.ok(&["attach", &name, "-i", "in0"]);
    let before = (bed.row(&name), prog_on(&bed.ns, "in0"));
    let refused = bed.fails(&["replace", &name, &larger]);
    assert!(
        refused.contains("array of 8 entries") && refused.contains("array of 4 entries"),
        "{refused}"
    );
    assert_eq!(
        before,
        (bed.row(&name), prog_on(&bed.ns, "in0")),
        "the running state is as it was"
    );
    // Asked for, it starts anew; the other map is the same one.
    bed.ok(&["replace", &name, &larger, "--fresh"]);
    let after = bed.row(&name);
    let map = |row: &Value, at: usize| row["maps"][at]["id"].clone();
    assert_eq!(map(&before.0, 0), map(&after, 0));
    assert_ne!(map(&before.0, 1), map(&after, 1));
    assert_eq!(bed.seen(&name), 0);
}

#[test]
fn what_is_refused_says_why_and_changes_nothing() {
    let Some(bed) = Bed::build("no") else { return };
    let name = bed.name("no");
    let object = bed.compile("kept", &[]);
    let broken = bed.compile("kept", &["-DBROKEN"]);
    let tc = bed.compile("kept", &["-DTC"]);
    for (args, says) in [
        (vec!["load", &tc, "--name", &name], "XDP"),
        (
            vec!["load", &object, "--name", &name],
            "several XDP programs",
        ),
        (
            vec!["load", &object, "--program", "kept", "--name", "a b"],
            "not a valid program name",
        ),
        (
            vec![
                "load",
                &object,
                "--program",
                "kept",
                "--name",
                &name,
                "--constant",
                "verdct=1",
            ],
            "it has verdict",
        ),
        (
            vec![
                "load",
                &object,
                "--program",
                "kept",
                "--name",
                &name,
                "--constant",
                "verdict=4294967296",
            ],
            "not between",
        ),
        (
            vec![
                "load",
                &object,
                "--program",
                "kept",
                "--name",
                &name,
                "--map",
                "seen=/sys/fs/bpf/none",
            ],
            "no map is pinned",
        ),
        (
            vec!["load", &broken, "--program", "kept", "--name", &name],
            "--unverified",
        ),
        (
            vec![
                "load",
                &broken,
                "--program",
                "kept",
                "--name",
                &name,
                "--unverified",
            ],
            "kept.c",
        ),
        (vec!["attach", "nothing", "-i", "in0"], "is loaded"),
    ] {
        let said = bed.fails(&args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(bed.rows().iter().all(|r| r["name"] != *name));

    bed.ok(&["load", &object, "--program", "kept", "--name", &name]);
    let program = bed.row(&name)["program_id"].clone();
    for (args, says) in [
        (
            vec!["load", &object, "--program", "kept", "--name", &name],
            "weir prog replace",
        ),
        (vec!["attach", &name, "-i", "in9"], "no such interface"),
        (
            vec!["attach", &name, "-i", "in0", "--mode", "offload"],
            "--mode native",
        ),
        (vec!["replace", &name, &broken], "--unverified"),
        (vec!["replace", &name, &tc], "XDP"),
    ] {
        let said = bed.fails(&args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert_eq!(bed.row(&name)["program_id"], program);
    assert_eq!(prog_on(&bed.ns, "in0"), None);

    // Slots are not shared: who is there is named, and what to do.
    let second = bed.name("second");
    bed.ok(&["load", &object, "--program", "other", "--name", &second]);
    bed.ok(&["attach", &name, "-i", "in0"]);
    let occupied = bed.fails(&["attach", &second, "-i", "in0"]);
    assert!(
        occupied.contains(&name) && occupied.contains("weir prog detach"),
        "{occupied}"
    );
    let again = bed.fails(&["attach", &name, "-i", "in0"]);
    assert!(again.contains("already"), "{again}");
    // The slot is free again after a detach.
    bed.ok(&["detach", &name, "-i", "in0"]);
    bed.ok(&["attach", &second, "-i", "in0"]);
}

#[test]
fn a_native_mode_that_is_not_there_is_never_replaced_by_another() {
    let Some(bed) = Bed::build("mode") else {
        return;
    };
    let name = bed.name("mode");
    let object = bed.compile("kept", &[]);
    bed.ok(&["load", &object, "--program", "other", "--name", &name]);
    bed.ns
        .ip(&["link", "add", "br0", "type", "bridge"])
        .expect("a bridge");
    let refused = bed.fails(&["attach", &name, "-i", "br0"]);
    assert!(
        refused.contains("--mode generic") && refused.contains("bridge"),
        "{refused}"
    );
    assert_eq!(prog_on(&bed.ns, "br0"), None);
    bed.ok(&["attach", &name, "-i", "br0", "--mode", "generic"]);
    assert!(prog_on(&bed.ns, "br0").is_some());
    // `other` was not built for packets of several buffers.
    for (ns, device) in [(&bed.ns, "in0"), (&bed.far, "out0")] {
        ns.ip(&["link", "set", device, "mtu", "9000"])
            .expect("an MTU");
    }
    let large = bed.fails(&["attach", &name, "-i", "in0"]);
    assert!(
        large.contains("xdp.frags") && large.contains("MTU"),
        "{large}"
    );
}

#[test]
fn maps_are_shared_with_another_program() {
    let Some(bed) = Bed::build("share") else {
        return;
    };
    let (first, second) = (bed.name("share1"), bed.name("share2"));
    let object = bed.compile("kept", &[]);
    let larger = bed.compile("kept", &["-DENTRIES=8"]);
    bed.ok(&["load", &object, "--program", "kept", "--name", &first]);
    bed.ok(&[
        "load",
        &object,
        "--program",
        "kept",
        "--name",
        &second,
        "--map",
        &format!("seen={first}:seen"),
    ]);
    let id = |name: &str, at: usize| bed.row(name)["maps"][at]["id"].clone();
    assert_eq!(id(&first, 1), id(&second, 1));
    assert_ne!(id(&first, 0), id(&second, 0));
    let third = bed.name("share3");
    let differs = bed.fails(&[
        "load",
        &larger,
        "--program",
        "kept",
        "--name",
        &third,
        "--map",
        &format!("seen={first}:seen"),
    ]);
    assert!(
        differs.contains("array of 8 entries") && differs.contains("array of 4 entries"),
        "{differs}"
    );
}

/// Whatever moment a command is killed at: the interface keeps a program, and the next command finds everything in order.
#[test]
fn a_killed_command_leaves_nothing_half_done() {
    let Some(bed) = Bed::build("kill") else {
        return;
    };
    let name = bed.name("kill");
    let object = bed.compile("kept", &[]);
    bed.ok(&["load", &object, "--program", "kept", "--name", &name]);
    bed.ok(&["attach", &name, "-i", "in0"]);
    let whole = Instant::now();
    bed.ok(&["replace", &name, &object]);
    let whole = whole.elapsed();
    let rounds: u32 = if long() { 200 } else { 12 };
    for round in 0..rounds {
        let mut child = bed
            .command(&["replace", &name, &object])
            .spawn()
            .expect("starts");
        std::thread::sleep(whole * round / rounds);
        child.kill().expect("killed or over");
        child.wait().expect("over");
        assert!(prog_on(&bed.ns, "in0").is_some(), "round {round}");
    }
    bed.ok(&["replace", &name, &object]);
    let row = bed.row(&name);
    let on = prog_on(&bed.ns, "in0").expect("there");
    assert_eq!(row["program_id"], on);
    let mut files = weir_kernel::pinned::names(&bed.folder_of(&name)).expect("listed");
    files.retain(|f| !f.starts_with("link-"));
    assert_eq!(files, ["map-notes", "map-seen", "program"]);
    // A device that went took its attachment along; nobody has to detach it.
    bed.ns.ip(&["link", "del", "in0"]).expect("deleted");
    bed.ok(&["unload", &name]);
}

fn long() -> bool {
    std::env::var("WEIR_LONG").as_deref() == Ok("1")
}

/// Sends numbered datagrams until told to stop: how many. No more are under way than a socket's
/// buffer holds, or a receiver that waits for a busy processor would lose some by itself.
fn send(to: &str, arrived: &AtomicU32, stop: &AtomicBool) -> u32 {
    const UNDER_WAY: u32 = 100;
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(to).expect("a route");
    let mut number = 0u32;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..20 {
            if number.saturating_sub(arrived.load(Ordering::Relaxed)) < UNDER_WAY {
                socket.send(&number.to_be_bytes()).expect("sent");
                number += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    number
}

/// Numbers as they come in, until none has come for a while.
fn receive(socket: &UdpSocket, arrived: &AtomicU32) -> Vec<u32> {
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("a timeout");
    let mut numbers = Vec::new();
    let mut bytes = [0; 64];
    while let Ok(length) = socket.recv(&mut bytes) {
        let number = bytes[..length].try_into().expect("four bytes");
        numbers.push(u32::from_be_bytes(number));
        arrived.fetch_add(1, Ordering::Relaxed);
    }
    numbers
}

/// A namespace with two interfaces, and one at their other ends. Programs of the test go with it.
struct Bed {
    ns: NetNs,
    far: NetNs,
    folder: Folder,
    tag: String,
}

impl Bed {
    /// `None` without root.
    fn build(test: &str) -> Option<Bed> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !root(test) {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let ns = |part: &str| NetNs::create(&format!("prog-{test}-{part}")).expect("namespace");
        let bed = Bed {
            ns: ns("n"),
            far: ns("f"),
            folder: Folder::new(),
            tag: format!("t{}n{number}", std::process::id()),
        };
        for end in [&bed.ns, &bed.far] {
            // The kernel's own router solicitations would be counted among the packets of a test.
            bed::without_ipv6(end).expect("sysctl");
        }
        for (near, far, addresses) in [
            ("in0", "out0", [["10.9.0.1/24"], ["10.9.0.2/24"]]),
            ("in1", "out1", [["10.9.1.1/24"], ["10.9.1.2/24"]]),
        ] {
            bed::veth(
                End {
                    ns: &bed.ns,
                    name: near,
                    addresses: &addresses[0],
                },
                End {
                    ns: &bed.far,
                    name: far,
                    addresses: &addresses[1],
                },
            )
            .expect("veth");
        }
        Some(bed)
    }

    /// A name that no other test has.
    fn name(&self, word: &str) -> String {
        format!("{word}-{}", self.tag)
    }

    fn compile(&self, name: &str, flags: &[&str]) -> String {
        let source = format!("{}/tests/objects/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let words: String = flags
            .concat()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let object = self.folder.path().join(format!("{name}{words}.o"));
        let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
        let mut command = Command::new(clang);
        command
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3"])
            .args(flags);
        let run = common::run(command.args(["-c", &source, "-o"]).arg(&object));
        assert_eq!(run.status, 0, "{run:?}");
        object.to_str().expect("UTF-8").to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self
            .ns
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command.arg("prog").args(args);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = weir(&self.ns, &[&["prog"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn fails(&self, args: &[&str]) -> String {
        let output = weir(&self.ns, &[&["prog"], args].concat());
        assert!(!output.status.success(), "{args:?} succeeded");
        stderr(&output)
    }

    fn rows(&self) -> Vec<Value> {
        let text = self.ok(&["list", "--json"]);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["programs"].as_array().expect("a list").clone()
    }

    fn row(&self, name: &str) -> Value {
        let rows = self.rows();
        let found = rows.iter().find(|r| r["name"] == name);
        found
            .unwrap_or_else(|| panic!("{name} is not among {rows:?}"))
            .clone()
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        Path::new(PROGRAMS).join(format!("{}-{name}", self.row(name)["id"]))
    }

    /// Packets that the program counted.
    fn seen(&self, name: &str) -> u64 {
        let map = Map::open(&self.folder_of(name).join("map-seen"))
            .expect("opens")
            .expect("is there");
        let value = map.lookup(&[0; 4]).expect("readable").expect("in range");
        u64::from_ne_bytes(value.try_into().expect("eight bytes"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (ns, device) in [(&self.ns, "in0"), (&self.ns, "in1"), (&self.ns, "br0")] {
            // Its attachments go with it, so that the programs can be unloaded.
            let _ = ns.ip(&["link", "del", device]);
        }
        let folders = weir_kernel::pinned::names(Path::new(PROGRAMS)).unwrap_or_default();
        for folder in folders
            .iter()
            .filter(|f| f.ends_with(&format!("-{}", self.tag)))
        {
            let name = folder.split_once('-').map_or("", |(_, name)| name);
            let _ = weir(&self.ns, &["prog", "unload", name]);
        }
    }
}

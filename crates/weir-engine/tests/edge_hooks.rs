//! What an edge shares with the rest of the host: maps with programs on tracepoints and cgroups, and the marks of packets with tc
//! and the stack.

#![allow(clippy::print_stderr, reason = "a skip is said where the test runs")]

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::edge_bed;
use crate::edge_bed::{Bed, Down, chain, edge_name, root, wired};
use weir_engine::edge::{self, EdgeError};
use weir_functions::kind::{self, Files, Planned, Request};
use weir_graph::{Attach, CgroupHook, HookPlan, Instance, MapType, Mode, Model, SharedMap, Target};
use weir_kernel::Map;

/// How long packets may be on their way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where this kernel has its cgroups of version 2.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Places in the shared map of bpf/baselines/load.c.
const CALLS: u32 = 0;
const SWITCHES: u32 = 1;
const CONNECTS: u32 = 2;

struct Embedded;

impl Files for Embedded {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let found = weir_bpf::baseline(&name);
        found
            .map(<[u8]>::to_vec)
            .ok_or(io::ErrorKind::NotFound.into())
    }
}

fn planned(of: &str, keys: &str) -> Planned {
    let keys = keys.parse().expect("TOML");
    let request = Request {
        name: "it",
        keys: &keys,
        files: &Embedded,
        ports: &[],
        transmits: false,
    };
    kind::plan(of, &request).expect("planned")
}

fn hook(name: &str, program: &str, attach: Attach) -> HookPlan {
    HookPlan {
        name: name.to_owned(),
        file: "load.o".into(),
        object: weir_bpf::baseline("load").expect("compiled").into(),
        program: program.to_owned(),
        attach,
        shares: [("load".to_owned(), "shared".to_owned())].into(),
    }
}

fn tracepoint(category: &str, name: &str) -> Attach {
    Attach::Tracepoint {
        category: category.to_owned(),
        name: name.to_owned(),
    }
}

/// Packets pass `gate` until somebody asked `limit` times for his parent.
fn gated(name: &str, limit: u64, cgroup: &Path) -> Model {
    let mut plan = chain(name, 1);
    plan.instances = vec![Instance {
        shares: [("load".to_owned(), "shared".to_owned())].into(),
        ..Instance::new(
            "gate",
            "object",
            planned(
                "object",
                &format!(
                    "file = \"load.o\"\nprogram = \"gate\"\nconstants = {{ limit = {limit} }}"
                ),
            ),
        )
    }];
    plan.maps = vec![SharedMap {
        name: "shared".to_owned(),
        kind: MapType::Array,
        key: 4,
        value: 8,
        entries: 3,
        fresh: false,
    }];
    plan.hooks = vec![
        hook(
            "calls",
            "on_call",
            tracepoint("syscalls", "sys_enter_getppid"),
        ),
        hook("switches", "on_switch", tracepoint("sched", "sched_switch")),
        hook(
            "connects",
            "on_connect",
            Attach::Cgroup {
                path: cgroup.to_owned(),
                hook: CgroupHook::Connect4,
            },
        ),
    ];
    plan
}

fn word(bed: &Bed, name: &str, at: u32) -> u64 {
    let status = bed.on_edge(|| edge::status(name)).expect("runs");
    let (_, id) = status.maps.first().expect("there is one");
    let map = Map::by_id(*id, "shared").expect("there");
    let value = map.lookup(&at.to_ne_bytes()).expect("readable");
    u64::from_ne_bytes(value.expect("there").try_into().expect("8 bytes"))
}

/// A cgroup that is removed again.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn new() -> Cgroup {
        let root = CGROUPS.map(Path::new);
        let root = root.iter().find(|p| p.join("cgroup.controllers").exists());
        let folder = root.expect("cgroups of version 2 are mounted");
        let folder = folder.join(format!("weir-test-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("made");
        Cgroup(folder)
    }

    /// A process in it connects somewhere.
    fn connect(&self) {
        let procs = self.0.join("cgroup.procs");
        let script = format!(
            "echo $$ > {} && exec 3<>/dev/udp/127.0.0.1/9",
            procs.display()
        );
        let ended = Command::new("bash").args(["-c", &script]).status();
        assert!(ended.expect("runs").success());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn objects_on_other_hooks_share_maps_with_functions() {
    if !root("objects_on_other_hooks_share_maps_with_functions") {
        return;
    }
    let bed = Bed::new();
    let cgroup = Cgroup::new();
    let name = edge_name("hooks");
    let down = Down::of(&bed, &name);
    let far = gated(&name, i64::MAX as u64, &cgroup.0);
    bed.on_edge(|| edge::apply(&wired(&far), ""))
        .expect("applies");
    let before = word(&bed, &name, CALLS);
    for _ in 0..100 {
        let _ = std::os::unix::process::parent_id();
    }
    assert!(word(&bed, &name, CALLS) >= before + 100);
    assert!(word(&bed, &name, SWITCHES) > 0);
    cgroup.connect();
    assert_eq!(word(&bed, &name, CONNECTS), 1);
    bed.send(10);
    assert_eq!(bed.arrived().received, 10);
    // The function reads what the tracepoint has written, also after it was replaced; hooks that stay are not attached anew.
    let calls = word(&bed, &name, CALLS);
    let near = gated(&name, calls + 50, &cgroup.0);
    let applied = bed
        .on_edge(|| edge::apply(&wired(&near), ""))
        .expect("applies");
    assert_eq!(applied.replaced, ["gate"]);
    assert_eq!(word(&bed, &name, CONNECTS), 1);
    for _ in 0..100 {
        let _ = std::os::unix::process::parent_id();
    }
    bed.send(10);
    assert_eq!(bed.arrived().received, 10);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.instances[0].ledger.verdict[1], 10);
    assert_eq!(status.hooks.len(), 3);
    // Another shape would lose what is in it.
    let mut wide = near.clone();
    wide.maps[0].entries = 4;
    let e = bed
        .on_edge(|| edge::apply(&wired(&wide), ""))
        .expect_err("refused");
    assert!(matches!(e, EdgeError::SharedMapChanged { .. }), "{e}");
    let mut missing = near.clone();
    missing.maps.clear();
    let e = bed
        .on_edge(|| edge::apply(&wired(&missing), ""))
        .expect_err("refused");
    assert!(matches!(e, EdgeError::NoSharedMap { .. }), "{e}");
    let mut nowhere = near.clone();
    nowhere.hooks[0] = hook(
        "calls",
        "on_call",
        tracepoint("syscalls", "sys_enter_nothing"),
    );
    let e = bed
        .on_edge(|| edge::apply(&wired(&nowhere), ""))
        .expect_err("refused");
    assert!(e.to_string().contains("hook calls"), "{e}");
    assert!(e.to_string().contains("sys_enter_nothing"), "{e}");
    // A hook that goes is gone: nobody counts connections any more.
    let mut fewer = near.clone();
    fewer.hooks.truncate(2);
    bed.on_edge(|| edge::apply(&wired(&fewer), ""))
        .expect("applies");
    cgroup.connect();
    assert_eq!(word(&bed, &name, CONNECTS), 1);
    let owned = edge_bed::Owned::of(&bed, &name);
    drop(down);
    owned.are_gone();
}

#[test]
fn state_of_another_shape_is_refused_unless_it_may_begin_anew() {
    if !root("state_of_another_shape_is_refused_unless_it_may_begin_anew") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("shape");
    let _down = Down::of(&bed, &name);
    let gate = |entries: u32, fresh: bool| {
        let mut plan = chain(&name, 1);
        let mut planned = planned("object", "file = \"load.o\"\nprogram = \"gate\"");
        planned.instance.maps = vec![weir_functions::plan::MapPlan::empty(
            "load",
            entries as usize,
            8,
        )];
        plan.instances = vec![Instance {
            fresh,
            ..Instance::new("gate", "object", planned)
        }];
        plan
    };
    let map = || {
        let status = bed.on_edge(|| edge::status(&name)).expect("runs");
        let maps = &status.instances[0].maps;
        let found = maps.iter().find(|(name, _)| name == "load");
        found.expect("there").1
    };
    bed.on_edge(|| edge::apply(&wired(&gate(3, false)), ""))
        .expect("applies");
    let (before, first) = (bed.snapshot(&name), map());
    let e = bed.on_edge(|| edge::apply(&wired(&gate(4, false)), ""));
    let e = e.expect_err("refused").to_string();
    assert!(
        e.contains("function gate") && e.contains("load") && e.contains("fresh = true"),
        "{e}"
    );
    assert!(e.contains("3 entries") && e.contains("4 entries"), "{e}");
    assert_eq!(bed.snapshot(&name), before);
    bed.on_edge(|| edge::apply(&wired(&gate(4, true)), ""))
        .expect("applies");
    assert_ne!(map(), first);
}

#[test]
fn marks_go_on_to_the_stack() {
    if !root("marks_go_on_to_the_stack") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("marks");
    let _down = Down::of(&bed, &name);
    for (ns, device, address) in [
        (&bed.sender, "a0", "10.9.0.1/24"),
        (&bed.edge, "m0", "10.9.0.2/24"),
    ] {
        ns.ip(&["address", "add", address, "dev", device])
            .expect("address");
    }
    for rule in [
        "add table ip t",
        "add chain ip t in { type filter hook input priority 0; }",
        "add rule ip t in meta mark 7 counter",
        "add rule ip t in udp dport 9 counter",
    ] {
        bed.edge.output("nft", &[rule]).expect("nft");
    }
    let counted = || -> Vec<u64> {
        let shown = bed
            .edge
            .output("nft", &["list chain ip t in"])
            .expect("nft");
        let counts = shown
            .lines()
            .filter_map(|line| line.split_once("counter packets "));
        counts
            .map(|(_, rest)| {
                let count = rest.split(' ').next().expect("a word");
                count.parse().expect("a number")
            })
            .collect()
    };
    // All of them reach the stack, once the neighbour is known.
    let send = |count: usize| {
        let all = counted()[1] + count as u64;
        let sent = bed.sender.run(|| {
            let socket = std::net::UdpSocket::bind("10.9.0.1:0")?;
            for _ in 0..count {
                socket.send_to(b"weir", "10.9.0.2:9")?;
            }
            Ok::<_, io::Error>(())
        });
        sent.expect("namespace").expect("sent");
        let end = Instant::now() + PATIENCE;
        while counted()[1] < all && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        edge_bed::settled(counted)
    };
    // The addresses are found out before anything is counted.
    send(1);
    let mut plan = chain(&name, 1);
    plan.instances[0].planned = planned("filter", "rules = [\"allow udp to-port 9 mark 7\"]");
    plan.links[1].to = Target::Stack;
    plan.ports.truncate(1);
    let before = send(0);
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    assert_eq!(send(10), [before[0], before[1] + 10]);
    plan.ports[0].metadata = true;
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    assert_eq!(send(10), [before[0] + 10, before[1] + 20]);
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!(status.instances[0].reasons(), []);
    // And off again: nothing is left at tc.
    plan.ports[0].metadata = false;
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    assert_eq!(send(10), [before[0] + 10, before[1] + 30]);
    // On tc the mark is the socket buffer's at once.
    bed.on_edge(|| edge::down(&name)).expect("goes down");
    plan.ports[0].mode = Mode::Tc;
    plan.ports[0].metadata = true;
    bed.on_edge(|| edge::apply(&wired(&plan), ""))
        .expect("applies");
    assert_eq!(send(10), [before[0] + 20, before[1] + 40]);
}

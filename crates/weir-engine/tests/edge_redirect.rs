//! Function `redirect` in a running edge: its devices are found by name, the status tells what became of every packet, and nothing of
//! the monitor is left behind.

use std::path::Path;

use crate::edge_bed::wired;
use crate::redirect_bed::{Bed, NoFiles, eventually};
use weir_engine::edge::{self, Edge, Form, SecondStage, Status};
use weir_functions::kind::{self, EdgePort, Planned, Request};
use weir_graph::{Instance, Link, Mode, Model, PortPlan, Source, Target};
use weir_kernel::{FrameSocket, NetNs};
use weir_packet::build::Frame;

const N: u64 = 500;

/// Takes the edge down with the test.
struct Running<'a> {
    bed: &'a Bed,
    name: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.bed.middle.run(|| edge::down(&self.name));
    }
}

fn planned(kind: &str, keys: &str) -> Planned {
    let port = |(number, name): (u32, &str)| EdgePort {
        number,
        name: name.to_owned(),
        device: name.to_owned(),
    };
    let request = Request {
        name: "it",
        keys: &keys.parse().expect("TOML"),
        files: &NoFiles,
        ports: &[(1, "in"), (2, "da"), (3, "db")].map(port),
        transmits: false,
    };
    kind::plan(kind, &request).expect("planned")
}

/// `in` leads to an instance of `redirect`; `da` and `db` are ports, too.
fn apply<'a>(bed: &'a Bed, name: &str, keys: &str) -> Running<'a> {
    let (running, notes) = apply_with_notes(bed, name, keys);
    assert!(notes.is_empty(), "{notes:?}");
    running
}

fn apply_with_notes<'a>(bed: &'a Bed, name: &str, keys: &str) -> (Running<'a>, Vec<String>) {
    let name = format!("{name}-{}", std::process::id());
    let plan = plan_of(&name, keys);
    let applied = bed.middle.run(|| edge::apply(&wired(&plan), keys));
    let applied = applied.expect("namespace").expect("applied");
    (Running { bed, name }, applied.notes)
}

fn plan_of(name: &str, keys: &str) -> Model {
    let port = |(number, name): (u32, &str)| PortPlan {
        name: name.to_owned(),
        device: name.to_owned(),
        number,
        mode: Mode::Native,
        checksums: None,
        metadata: false,
    };
    Model {
        edge: name.to_owned(),
        ports: [(1, "in"), (2, "da"), (3, "db")].map(port).to_vec(),
        instances: vec![Instance::new("it", "redirect", planned("redirect", keys))],
        links: vec![Link {
            from: Source::Port(1),
            to: Target::Instance(0),
            guard: None,
        }],
        ..Model::default()
    }
}

impl Running<'_> {
    fn status(&self) -> Status {
        let status = self.bed.middle.run(|| edge::status(&self.name));
        status.expect("namespace").expect("runs")
    }
}

fn send(far: &NetNs, frame: &[u8]) {
    let patience = std::time::Duration::from_millis(100);
    let socket = FrameSocket::open(far, "in_far", 1 << 16, patience).expect("socket");
    for _ in 0..N {
        socket.send(frame).expect("sent");
    }
}

#[test]
fn the_status_accounts_for_devices_in_turn_and_one_that_goes_down() {
    let Some(bed) = Bed::new("edge") else { return };
    let edge = apply(
        &bed,
        "redir",
        "to = [\"da\", \"db\"]\nspread = \"round-robin\"",
    );
    let frame = Frame::new().ip4([10, 9, 9, 1], [198, 51, 100, 1]).udp(1, 2);
    send(
        &bed.far,
        &frame.clone().payload(&[1; 33]).unfinished().build(),
    );
    eventually("all frames arrive", || {
        bed.arrived("da") + bed.arrived("db") == N
    });
    bed.middle.ip(&["link", "set", "db", "down"]).expect("down");
    send(&bed.far, &frame.payload(&[1; 33]).build());
    eventually("the rest arrives", || {
        bed.arrived("da") + bed.arrived("db") == N + N / 2
    });
    let status = edge.status();
    let second = status.second.expect("the kernel tells");
    assert!(second.absent.is_empty(), "{:?}", second.absent);
    let targets = &second.instances[0].targets;
    let handed: u64 = targets.iter().map(|t| t.handed).sum();
    let lost: u64 = targets.iter().map(|t| t.account.lost()).sum();
    let untold: u64 = targets.iter().map(|t| t.untold).sum();
    let sent: u64 = second.devices.iter().map(|d| d.redirected.sent).sum();
    assert_eq!(
        (handed, sent, lost, untold),
        (2 * N, N + N / 2, N / 2, 0),
        "{second:?}"
    );
    assert_eq!(targets[1].target, "device db");
    assert_eq!(targets[1].account.dropped["the device is down"], N / 2);
    let text = serde_json::to_string(&second).expect("JSON");
    assert!(text.contains("\"target\":\"device da\""), "{text}");

    // Being watched meanwhile changes no account.
    let text_of = |second: &SecondStage| serde_json::to_string(second).expect("JSON");
    let change = |keys: &str, form: Form| {
        let plan = plan_of(&edge.name, keys);
        let changed = bed.middle.run(|| {
            let mut running = Edge::open(&edge.name)?;
            running.set_form(form);
            running.apply(&wired(&plan), keys)
        });
        changed.expect("namespace").expect("applied");
        edge.status().second.expect("the kernel tells")
    };
    for form in [Form::Watched, Form::Graph] {
        let keys = "to = [\"da\", \"db\"]\nspread = \"round-robin\"";
        assert_eq!(text_of(&change(keys, form)), text, "{form:?}");
    }
    // With other targets their accounts begin anew: nothing is told of one that another did. Those of devices go on.
    let second = change(
        "to = [\"db\", \"da\"]\nspread = \"round-robin\"",
        Form::Graph,
    );
    for target in &second.instances[0].targets {
        assert_eq!((target.handed, target.untold), (0, 0), "{target:?}");
        assert_eq!(target.account.lost(), 0, "{target:?}");
    }
    let sent: u64 = second.devices.iter().map(|d| d.redirected.sent).sum();
    assert_eq!(sent, N + N / 2);
}

#[test]
fn a_device_that_is_no_port_and_cpus_work_in_a_graph() {
    let Some(bed) = Bed::new("edgecpu") else {
        return;
    };
    bed.middle
        .ip(&["tuntap", "add", "tap9", "mode", "tap"])
        .expect("a tap");
    bed.middle.ip(&["link", "set", "tap9", "up"]).expect("up");
    let bare = bed
        .middle
        .run(|| weir_kernel::iface::takes_xdp_frames(bed.index("tap9")));
    assert_eq!(bare.expect("namespace").expect("told"), Some(true));
    let (edge, notes) = apply_with_notes(&bed, "redirtap", "device = \"tap9\"");
    assert_eq!(
        notes,
        ["tap9 takes no redirected frames until a virtual machine, or another process, opens it"]
    );
    let frame = Frame::new()
        .ip4([10, 9, 9, 1], [198, 51, 100, 1])
        .udp(1, 2)
        .build();
    send(&bed.far, &bed.to_the_box(&frame));
    let lost = || {
        let second = edge.status().second.expect("the kernel tells");
        let tap = second
            .devices
            .iter()
            .find(|d| d.device == "tap9")
            .expect("listed");
        let target = &second.instances[0].targets[0];
        assert_eq!(target.target, "device tap9");
        tap.redirected.lost() + target.account.lost()
    };
    eventually("nobody opened the tap", || lost() == N);
    let edge = {
        drop(edge);
        apply(&bed, "redircpu", "cpu = [1, 0]\nspread = \"round-robin\"")
    };
    let before = bed.at_the_stack();
    send(&bed.far, &bed.to_the_box(&frame));
    eventually("all frames reach the stack", || {
        bed.at_the_stack() - before == N
    });
    let second = edge.status().second.expect("the kernel tells");
    let targets = &second.instances[0].targets;
    assert_eq!(targets.iter().map(|t| t.handed).sum::<u64>(), N);
    for target in targets {
        assert_eq!(
            (target.account.sent, target.untold),
            (target.handed, 0),
            "{second:?}"
        );
    }
    let name = edge.name.clone();
    drop(edge);
    let folder = Path::new("/sys/fs/bpf/weir/monitor").join(name);
    assert!(!folder.exists(), "{} is left", folder.display());
}

#[test]
fn a_veth_that_takes_no_frames_is_told_with_the_cure() {
    let Some(mut bed) = Bed::new("edgecure") else {
        return;
    };
    bed.leave_far_end("da");
    if bed
        .middle
        .run(|| weir_kernel::iface::takes_xdp_frames(bed.index("da")))
        .expect("namespace")
        .expect("told")
        .is_none()
    {
        return;
    }
    let (_edge, notes) = apply_with_notes(&bed, "redircure", "to = \"da\"");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("da takes no redirected frames until its far end"),
        "{notes:?}"
    );
    assert!(notes[0].contains("ethtool -K"), "{notes:?}");
}

#[test]
fn a_device_that_is_not_there_leaves_the_host_as_it_was() {
    let Some(bed) = Bed::new("edgenone") else {
        return;
    };
    let instance = planned("redirect", "device = \"nowhere0\"");
    let name = format!("redirnone-{}", std::process::id());
    let plan = Model {
        edge: name.clone(),
        ports: vec![PortPlan {
            name: "in".to_owned(),
            device: "in".to_owned(),
            number: 1,
            mode: Mode::Native,
            checksums: None,
            metadata: false,
        }],
        instances: vec![Instance::new("it", "redirect", instance)],
        links: vec![Link {
            from: Source::Port(1),
            to: Target::Instance(0),
            guard: None,
        }],
        ..Model::default()
    };
    let error = bed
        .middle
        .run(|| edge::apply(&wired(&plan), ""))
        .expect("namespace");
    let error = error.expect_err("no such device").to_string();
    assert!(error.contains("nowhere0"), "{error}");
    let shown = bed.middle.ip(&["link", "show", "in"]).expect("shown");
    assert!(!shown.contains("xdp"), "{shown}");
    let down = bed.middle.run(|| edge::down(&name)).expect("namespace");
    assert!(down.is_ok(), "{down:?}");
    assert!(!Path::new("/sys/fs/bpf/weir/monitor").join(&name).exists());
}

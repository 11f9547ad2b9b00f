//! Function `redirect` with live frames: every packet is accounted for, delivered or counted with the reason why not, whatever the
//! target and whatever goes wrong there.
//!
//! The instance stands by itself (no graph) on frames that the kernel makes up; the far ends count what arrives.

use std::net::UdpSocket;
use std::time::Duration;

use crate::redirect_bed::{Bed, FRAMES, Instance, eventually};
use weir_bpf::abi::redirect::{TARGETS, TO_ALL};
use weir_functions::plan::ChecksumMode;
use weir_kernel::{Tap, bed};
use weir_packet::Reason;
use weir_packet::build::Frame;

const N: u64 = FRAMES as u64;

fn udp(len: usize) -> Frame {
    Frame::new()
        .ip4([10, 9, 9, 1], [198, 51, 100, 1])
        .udp(4000, 9)
        .payload(&vec![7; len])
}

#[test]
fn devices_in_turn_get_equal_shares() {
    let Some(bed) = Bed::new("a_device") else {
        return;
    };
    let it = Instance::new(&bed, "to = [\"da\", \"db\"]\nspread = \"round-robin\"");
    it.send(&bed, &udp(18).build());
    for (place, far) in ["da", "db"].iter().enumerate() {
        eventually("all frames arrive", || bed.arrived(far) == N / 2);
        assert_eq!(it.handed(place as u32).packets, N / 2);
        let account = bed.readings().device(bed.netns, bed.index(far));
        assert_eq!(
            (account.sent, account.lost(), account.untold(N / 2)),
            (N / 2, 0, 0)
        );
    }
    it.check_ledger(N, 0);
}

#[test]
fn flows_spread_over_devices_and_stay_together() {
    let Some(bed) = Bed::new("flows") else { return };
    let it = Instance::new(&bed, "to = [\"da\", \"db\"]");
    let there = |n: u8| {
        Frame::new()
            .ip4([10, 9, 9, n], [198, 51, 100, 1])
            .tcp(4000, 80)
    };
    let back = |n: u8| {
        Frame::new()
            .ip4([198, 51, 100, 1], [10, 9, 9, n])
            .tcp(80, 4000)
    };
    let mut sides = [0u64; 2];
    for n in 0..32 {
        let before = [0, 1].map(|place| it.handed(place).packets);
        it.send_some(&bed, &there(n).build(), 64);
        it.send_some(&bed, &back(n).build(), 64);
        let after = [0, 1].map(|place| it.handed(place).packets);
        let side = usize::from(after[1] > before[1]);
        assert_eq!(after[side] - before[side], 128, "a flow went both ways");
        sides[side] += 1;
    }
    assert!(
        sides.iter().all(|flows| *flows >= 6),
        "{sides:?} flows on the two devices"
    );
}

#[test]
fn a_device_that_is_down_refuses_and_is_counted() {
    let Some(bed) = Bed::new("down") else { return };
    let it = Instance::new(&bed, "to = \"da\"");
    bed.middle.ip(&["link", "set", "da", "down"]).expect("down");
    it.send(&bed, &udp(18).build());
    assert_eq!(it.handed(0).packets, N);
    let refused = bed.readings().refused(it.map_id("devices"), 0);
    assert_eq!(refused.dropped["the device is down"], N);
    assert_eq!(bed.arrived("da"), 0);
}

#[test]
fn a_frame_over_the_mtu_is_refused_and_counted() {
    let Some(bed) = Bed::new("mtu") else { return };
    let it = Instance::new(&bed, "to = \"da\"");
    bed.middle
        .ip(&["link", "set", "da", "mtu", "200"])
        .expect("mtu");
    it.send(&bed, &udp(600).build());
    let refused = bed.readings().refused(it.map_id("devices"), 0);
    assert_eq!(
        refused.dropped["the frame is larger than the device's MTU"],
        N
    );
    assert_eq!(bed.arrived("da"), 0);
}

#[test]
fn a_veth_whose_far_end_has_no_program_is_told() {
    let Some(mut bed) = Bed::new("bare") else {
        return;
    };
    let it = Instance::new(&bed, "to = \"da\"");
    bed.leave_far_end("da");
    it.send(&bed, &udp(18).build());
    let (readings, map) = (bed.readings(), it.map_id("devices"));
    // Linux 6.3 and later refuse before the device is asked, earlier ones in the device.
    let accounts = [
        readings.refused(map, 0),
        readings.device(bed.netns, bed.index("da")),
    ];
    assert_eq!(accounts.iter().map(|a| a.sent).sum::<u64>(), 0);
    assert_eq!(accounts.iter().map(|a| a.lost()).sum::<u64>(), N);
    let mut reasons = accounts.iter().flat_map(|a| a.dropped.keys());
    assert!(
        reasons.all(|why| why.contains("neither an XDP program nor its GRO")),
        "{accounts:?}"
    );
}

#[test]
fn a_device_that_is_gone_is_a_reason_of_the_function() {
    let Some(bed) = Bed::new("gone") else { return };
    let it = Instance::new(&bed, "to = \"da\"");
    bed.middle.ip(&["link", "delete", "da"]).expect("deleted");
    it.send(&bed, &udp(18).build());
    it.check_ledger(0, N);
    assert_eq!(it.handed(0).packets, 0);
}

#[test]
fn a_broadcast_reaches_every_device_but_the_one_it_came_from() {
    let Some(bed) = Bed::new("all") else { return };
    let it = Instance::new(
        &bed,
        "to = [\"in\", \"da\", \"db\"]\nbroadcast = true\nexclude_ingress = true",
    );
    it.send(&bed, &udp(18).build());
    eventually("all frames arrive", || {
        bed.arrived("da") == N && bed.arrived("db") == N
    });
    assert_eq!(bed.readings().device(bed.netns, bed.index("in")).sent, 0);
    assert_eq!(it.handed(TO_ALL).packets, N);
    it.check_ledger(N, 0);
}

#[test]
fn a_broadcast_leaves_out_a_device_that_is_down_and_the_account_shows_it() {
    let Some(bed) = Bed::new("allbutone") else {
        return;
    };
    let it = Instance::new(&bed, "to = [\"da\", \"db\"]\nbroadcast = true");
    bed.middle.ip(&["link", "set", "db", "down"]).expect("down");
    it.send(&bed, &udp(18).build());
    eventually("all frames arrive", || bed.arrived("da") == N);
    let readings = bed.readings();
    assert_eq!(readings.device(bed.netns, bed.index("da")).untold(N), 0);
    // No tracepoint tells of it.
    assert_eq!(readings.device(bed.netns, bed.index("db")).untold(N), N);
}

#[test]
fn a_cpu_gets_packets_with_finished_checksums() {
    let Some(bed) = Bed::new("cpu") else { return };
    let it = Instance::new(&bed, "cpu = 1\nqueue = 8192");
    let frame = Frame::new()
        .ip4([10, 9, 9, 1], [10, 9, 9, 2])
        .udp(4000, 4001)
        .payload(&[9; 101]);
    let frame = bed.to_the_box(&frame.unfinished().build());
    let received = bed
        .middle
        .run(|| {
            let socket = UdpSocket::bind("10.9.9.2:4001").expect("bind");
            socket
                .set_read_timeout(Some(Duration::from_millis(300)))
                .expect("timeout");
            it.send_here(&bed, &frame, 32);
            let mut buffer = [0; 256];
            let mut received = 0;
            while received < 32 && socket.recv(&mut buffer).is_ok() {
                received += 1;
            }
            received
        })
        .expect("namespace");
    assert_eq!(received, 32);
    assert_eq!(
        bed::counter(&bed.middle, "Udp", "InCsumErrors").expect("readable"),
        Some(0)
    );
    let account = bed.readings().cpu(it.map_id("cpus"), 1);
    assert_eq!((account.sent, account.lost()), (32, 0));
}

#[test]
fn a_cpu_whose_queue_overflows_is_accounted_for() {
    let Some(bed) = Bed::new("queue") else { return };
    let it = Instance::new(&bed, "cpu = 0\nqueue = 1");
    let before = bed.at_the_stack();
    it.send(&bed, &bed.to_the_box(&udp(18).build()));
    let map = it.map_id("cpus");
    eventually("every frame is accounted for", || {
        let account = bed.readings().cpu(map, 0);
        account.sent + account.lost() == N
    });
    let account = bed.readings().cpu(map, 0);
    assert_eq!(it.handed(0).packets, N);
    assert!(
        account.dropped["the CPU's queue was full"] > N / 2,
        "{account:?}"
    );
    eventually("what was taken reaches the stack", || {
        bed.at_the_stack() - before == account.sent
    });
}

#[test]
fn cpus_share_flows_without_loss() {
    let Some(bed) = Bed::new("cpus") else { return };
    let it = Instance::new(
        &bed,
        "cpu = [0, 1]\nqueue = 16384\nspread = \"round-robin\"",
    );
    let before = bed.at_the_stack();
    it.send(&bed, &bed.to_the_box(&udp(18).build()));
    let map = it.map_id("cpus");
    eventually("all frames reach the stack", || {
        bed.at_the_stack() - before == N
    });
    for cpu in 0..2 {
        let account = bed.readings().cpu(map, cpu);
        assert_eq!(
            (it.handed(cpu).packets, account.sent, account.lost()),
            (N / 2, N / 2, 0)
        );
    }
}

#[test]
fn a_queue_without_a_socket_drops_or_passes_as_told() {
    let Some(bed) = Bed::new("xsk") else { return };
    let dropping = Instance::new(&bed, "xsk = true");
    dropping.send(&bed, &udp(18).build());
    dropping.check_ledger(0, N);
    let passing = Instance::new(&bed, "xsk = true\nmissing = \"pass\"");
    let before = bed.at_the_stack();
    passing.send(&bed, &bed.to_the_box(&udp(18).build()));
    eventually("all frames reach the stack", || {
        bed.at_the_stack() - before == N
    });
    let stats = passing.stats();
    assert_eq!((stats.received, stats.verdict[2]), (N, N));
    assert_eq!(stats.reason[Reason::RedirectFailed.index() as usize], 0);
    let handed: u64 = (0..TARGETS as u32)
        .map(|queue| passing.handed(queue).packets)
        .sum();
    assert_eq!(handed, 0);
}

#[test]
fn a_tap_takes_frames_and_one_that_nobody_opened_does_not() {
    let Some(bed) = Bed::new("tap") else { return };
    let mut tap = bed
        .middle
        .run(|| Tap::open("tap7"))
        .expect("namespace")
        .expect("a tap");
    bed.middle.ip(&["link", "set", "tap7", "up"]).expect("up");
    bed.middle
        .ip(&["tuntap", "add", "tap8", "mode", "tap"])
        .expect("a tap");
    bed.middle.ip(&["link", "set", "tap8", "up"]).expect("up");
    let it = Instance::new(
        &bed,
        "device = [\"tap7\", \"tap8\"]\nspread = \"round-robin\"",
    );
    // A tap's ring holds 500 frames.
    let frame = udp(60).unfinished().build();
    it.send_some(&bed, &frame, 512);
    let mut received = Vec::new();
    while let Some(frame) = tap.receive().expect("readable") {
        received.push(frame);
    }
    assert_eq!(received.len(), 256);
    assert!(
        received.iter().all(|got| *got == udp(60).build()),
        "checksums are finished"
    );
    let readings = bed.readings();
    let open = readings.device(bed.netns, bed.index("tap7"));
    assert_eq!((open.sent, open.lost()), (256, 0));
    let (refused, device) = (
        readings.refused(it.map_id("devices"), 1),
        readings.device(bed.netns, bed.index("tap8")),
    );
    assert_eq!(
        refused.lost() + device.lost(),
        256,
        "{refused:?} {device:?}"
    );
}

#[test]
fn the_monitor_survives_its_process_and_leaves_nothing() {
    let Some(bed) = Bed::new("pins") else { return };
    let it = Instance::new(&bed, "to = \"da\"");
    let again = weir_engine::monitor::attach(bed.folder()).expect("adopted");
    it.send(&bed, &udp(18).build());
    eventually("all frames arrive", || bed.arrived("da") == N);
    let opened = weir_engine::monitor::open(bed.folder())
        .expect("readable")
        .expect("pinned");
    for monitor in [&again, &opened] {
        assert_eq!(
            monitor
                .read()
                .expect("readable")
                .device(bed.netns, bed.index("da"))
                .sent,
            N
        );
        assert!(monitor.is_attached().expect("told"));
        assert!(monitor.absent().is_empty(), "{:?}", monitor.absent());
    }
    weir_engine::monitor::remove(bed.folder()).expect("removed");
    assert_eq!(
        weir_kernel::pinned::names(bed.folder()).expect("listed"),
        Vec::<String>::new()
    );
    for probed in weir_engine::monitor::probe() {
        assert_eq!(probed.ok, Ok(()), "{}", probed.name);
    }
}

/// Prints; what is held to is that nothing of finishing is left where checksums are complete.
#[test]
fn verified_instructions_are_shown() {
    let Some(bed) = Bed::new("verified") else {
        return;
    };
    let mut counts = Vec::new();
    for (name, keys) in [
        ("one device", "to = \"da\""),
        ("flows over two devices", "to = [\"da\", \"db\"]"),
        ("CPUs in turn", "cpu = [0, 1]\nspread = \"round-robin\""),
        ("sockets", "xsk = true"),
    ] {
        let [offloaded, complete] = [ChecksumMode::Offloaded, ChecksumMode::Complete]
            .map(|mode| Instance::with_checksums(&bed, keys, mode).verified());
        counts.push(format!("{name}: {complete} verified instructions, {offloaded} where checksums may be unfinished"));
        assert!(
            complete < 2_000 && complete < offloaded,
            "{name}: {complete}, {offloaded}"
        );
        assert!(offloaded < 10_000, "{name}: {offloaded}");
    }
    eprintln!("{}", counts.join("\n"));
}

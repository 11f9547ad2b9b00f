//! Attachments on real interfaces in namespaces of their own: counting,
//! refusing a second program, leaving nothing behind, surviving SIGKILL whole.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{load_sample, root};
use weir_kernel::bed::{self, End};
use weir_kernel::iface::{self, Feature};
use weir_kernel::{KernelError, LoadedProgram, NetNs, XdpMode, pins};

const LEFT_MAC: &str = "02:00:00:00:00:01";
const RIGHT_MAC: &str = "02:00:00:00:00:02";

/// Two namespaces joined by a veth pair whose ends know each other, so that
/// one datagram is exactly one IPv4 frame.
fn pair(prefix: &str) -> (NetNs, NetNs) {
    let left = NetNs::create(prefix).expect("namespace");
    let right = NetNs::create(prefix).expect("namespace");
    let end = |ns, name, addresses| End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.77.0.1/24"]),
        end(&right, "right0", &["10.77.0.2/24"]),
    )
    .expect("veth pair");
    for (ns, name, mac) in [(&left, "left0", LEFT_MAC), (&right, "right0", RIGHT_MAC)] {
        ns.ip(&["link", "set", name, "address", mac])
            .expect("address");
    }
    let neighbour = |ns: &NetNs, ip, mac, dev| {
        ns.ip(&["neigh", "replace", ip, "lladdr", mac, "dev", dev])
            .expect("neighbour");
    };
    neighbour(&left, "10.77.0.2", RIGHT_MAC, "left0");
    neighbour(&right, "10.77.0.1", LEFT_MAC, "right0");
    (left, right)
}

fn ipv4_hits(program: &LoadedProgram) -> u64 {
    program
        .lookup_percpu("hits", &1u32.to_ne_bytes())
        .expect("readable")
        .iter()
        .map(|v| u64::from_ne_bytes(v.as_slice().try_into().expect("8 bytes")))
        .sum()
}

fn send_datagrams(from: &NetNs, n: usize) {
    from.run(|| {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("bind");
        for _ in 0..n {
            socket.send_to(b"weir", "10.77.0.2:9").expect("send");
        }
    })
    .expect("namespace");
}

fn prog_on(ns: &NetNs, name: &str) -> Option<u32> {
    ns.run(|| iface::find(name).expect("exists").xdp_prog_id)
        .expect("namespace")
}

#[test]
fn native_and_generic_count_packets_and_leave_nothing() {
    if !root("native_and_generic_count_packets_and_leave_nothing") {
        return;
    }
    let (left, right) = pair("weirk-attach");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let drop_all = 1u32.to_ne_bytes();
        let program = load_sample(&[("verdict", &drop_all)]);
        let link = right
            .run(|| program.attach_xdp(iface::index_of("right0")?, mode))
            .expect("namespace")
            .expect("attaches");
        let id = program.info().expect("readable").id;
        assert_eq!(prog_on(&right, "right0"), Some(id));
        assert_eq!(link.prog_id().expect("readable"), id);
        send_datagrams(&left, 5);
        let deadline = Instant::now() + Duration::from_secs(30);
        while ipv4_hits(&program) < 5 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ipv4_hits(&program), 5, "{mode}");

        match mode {
            XdpMode::Native => link.detach().expect("detaches"),
            XdpMode::Generic => drop(link),
        }
        // A child that another test is just starting holds a copy of the descriptor until its exec.
        let deadline = Instant::now() + Duration::from_secs(30);
        while prog_on(&right, "right0").is_some() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(prog_on(&right, "right0"), None);
        let shown = right.ip(&["-d", "link", "show", "right0"]).expect("shown");
        assert!(!shown.contains("xdp"), "{shown}");
    }
}

#[test]
fn a_second_attach_is_refused_and_an_update_is_not() {
    if !root("a_second_attach_is_refused_and_an_update_is_not") {
        return;
    }
    let (_left, right) = pair("weirk-second");
    let (first, second) = (load_sample(&[]), load_sample(&[]));
    let id = first.info().expect("readable").id;
    let attach = |p: &LoadedProgram, mode| {
        right
            .run(|| p.attach_xdp(iface::index_of("right0")?, mode))
            .expect("namespace")
    };
    let mut link = attach(&first, XdpMode::Native).expect("free");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        match attach(&second, mode).unwrap_err() {
            KernelError::AlreadyAttached { iface, prog_id } => {
                // The error is made inside the namespace, where the name is known.
                assert_eq!((iface.as_str(), prog_id), ("right0", id), "{mode}");
            }
            other => panic!("{mode}: {other:?}"),
        }
    }
    link.update(&second).expect("replaces in one step");
    assert_eq!(
        prog_on(&right, "right0"),
        Some(second.info().expect("readable").id)
    );
}

#[test]
fn native_is_refused_where_the_driver_has_none() {
    if !root("native_is_refused_where_the_driver_has_none") {
        return;
    }
    let ns = NetNs::create("weirk-native").expect("namespace");
    let program = load_sample(&[]);
    let attach = |ifindex, mode| {
        ns.run(|| program.attach_xdp(ifindex, mode).map(drop))
            .expect("ns")
    };
    let e = attach(1, XdpMode::Native).unwrap_err();
    assert!(matches!(e, KernelError::NativeUnsupported { .. }), "{e:?}");
    assert!(e.to_string().contains("--generic"), "{e}");
    attach(1, XdpMode::Generic).expect("works on every device");
    let e = attach(9999, XdpMode::Native).unwrap_err();
    assert!(matches!(e, KernelError::NoSuchInterface { .. }), "{e:?}");
}

#[test]
fn interfaces_tell_driver_mtu_peer_and_offloads() {
    if !root("interfaces_tell_driver_mtu_peer_and_offloads") {
        return;
    }
    let (left, right) = pair("weirk-iface");
    left.ip(&["link", "set", "left0", "mtu", "1400"])
        .expect("mtu");
    let there = right
        .run(|| iface::find("right0"))
        .expect("ns")
        .expect("found");
    let here = left
        .run(|| iface::find("left0"))
        .expect("ns")
        .expect("found");
    assert_eq!(
        (here.driver.as_str(), here.mtu, here.up),
        ("veth", 1400, true)
    );
    assert_eq!(here.mac, [2, 0, 0, 0, 0, 1]);
    assert_eq!(here.veth_peer, Some(there.ifindex));
    assert!(here.is_veth() && here.may_carry_unfinished_checksums());
    assert_eq!(
        left.run(|| iface::list().expect("listed").len())
            .expect("ns"),
        2
    );
    left.run(|| {
        for feature in Feature::ALL {
            let name = feature.ethtool_name();
            let before = iface::feature("left0", feature).expect(name);
            match iface::set_feature("left0", feature, !before) {
                Ok(()) => {
                    assert_eq!(iface::feature("left0", feature).expect(name), !before);
                    iface::set_feature("left0", feature, before).expect(name);
                }
                Err(e) => assert!(
                    feature == Feature::RxChecksum && matches!(e, KernelError::FeatureFixed { .. }),
                    "{name}: {e}"
                ),
            }
        }
        iface::set_feature("left0", Feature::TxChecksum, false).expect("veth can");
    })
    .expect("ns");
    let shown = left.output("ethtool", &["-k", "left0"]).expect("ethtool");
    assert!(shown.contains("tx-checksumming: off"), "{shown}");
    right
        .offloads_off("right0", &["tx", "tso", "gso", "gro"])
        .expect("ethtool");
    let on = right
        .run(|| iface::feature("right0", Feature::TxChecksum))
        .expect("ns");
    assert!(!on.expect("readable"));
    let e = left.run(|| iface::find("lef0")).expect("ns").unwrap_err();
    assert_eq!(
        e.to_string(),
        "no such interface: lef0, did you mean left0?"
    );
}

#[test]
fn a_namespace_ends_with_its_value_also_in_a_panic() {
    if !root("a_namespace_ends_with_its_value_also_in_a_panic") {
        return;
    }
    let name = std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let died = scope
            .spawn(move || {
                let ns = NetNs::create("weirk-panic").expect("namespace");
                assert!(Path::new("/run/netns").join(ns.name()).exists());
                tell.send(ns.name().to_owned()).expect("listener");
                ns.run(|| panic!("on purpose")).expect("unreachable");
            })
            .join();
        assert!(died.is_err(), "the panic goes on");
        told.recv().expect("a name")
    });
    assert!(!Path::new("/run/netns").join(name).exists());
}

#[test]
fn commands_threads_and_sysctls_are_inside() {
    if !root("commands_threads_and_sysctls_are_inside") {
        return;
    }
    let (left, right) = pair("weirk-inside");
    assert_ne!(left.inode().expect("inode"), right.inode().expect("inode"));
    let printed = left.output("ip", &["-o", "link"]).expect("ip");
    assert!(printed.contains("left0") && !printed.contains("right0"));
    bed::forward(&left).expect("sysctl");
    let text = left
        .run(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward"))
        .expect("ns");
    assert_eq!(text.expect("readable").trim(), "1");
    assert_eq!(
        bed::counter(&left, "Tcp", "InCsumErrors").expect("counters"),
        Some(0)
    );
    let e = left.ip(&["link", "set", "nothing", "up"]).unwrap_err();
    let text = e.to_string();
    assert!(
        text.contains("link set nothing up") && text.contains("nothing"),
        "{text}"
    );
    assert!(left.output("no-such-program", &[]).is_err());
}

/// Not a test of its own: the process that the next test kills. It does
/// nothing unless that test starts it.
#[test]
fn holder_process() {
    let Ok(interface) = std::env::var("WEIR_TEST_HOLD") else {
        return;
    };
    let program = load_sample(&[("verdict", &1u32.to_ne_bytes())]);
    let ifindex = iface::index_of(&interface).expect("exists");
    let link = program
        .attach_xdp(ifindex, XdpMode::Native)
        .expect("attaches");
    pins::pin(&link).expect("pins");
    let mut out = std::io::stdout();
    writeln!(out, "holding")
        .and_then(|()| out.flush())
        .expect("parent listens");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_pinned_is_found_and_removed() {
    if !root("what_a_killed_process_pinned_is_found_and_removed") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    assert!(pins::is_bpffs_mounted());
    let (left, right) = pair("weirk-kill");
    let exe = std::env::current_exe().expect("own path");
    let mut holder = right
        .command(&exe.to_string_lossy())
        .expect("command")
        .args(["--exact", "attach::holder_process", "--nocapture"])
        .env("WEIR_TEST_HOLD", "right0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let held = lines
        .map_while(Result::ok)
        .any(|line| line.contains("holding"));
    holder.kill().expect("kills");
    holder.wait().expect("reaped");
    assert!(held, "the holder never attached");

    let id = prog_on(&right, "right0").expect("the complete program stays");
    assert_eq!(left.run(pins::list).expect("ns").expect("listed"), []);
    let found = right.run(pins::list).expect("ns").expect("listed");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].name.as_deref(), Some("right0"));
    assert_eq!(found[0].prog_id, Some(id));
    assert_eq!(found[0].netns, right.inode().expect("inode"));
    // A newcomer learns who is there.
    let program = load_sample(&[]);
    let e = right
        .run(|| {
            program
                .attach_xdp(found[0].ifindex, XdpMode::Native)
                .map(drop)
        })
        .expect("ns")
        .unwrap_err();
    assert!(matches!(e, KernelError::AlreadyAttached { .. }), "{e:?}");

    let removed = right.run(|| pins::remove_one("right0")).expect("ns");
    assert_eq!(removed.expect("removed").as_ref(), Some(&found[0]));
    assert_eq!(prog_on(&right, "right0"), None);
    assert!(!found[0].path.exists());
    let again = right.run(|| pins::remove_one("right0")).expect("ns");
    assert_eq!(again.expect("nothing to do"), None);
}

#[test]
fn a_pin_outlives_the_link_and_a_dead_pin_is_replaced() {
    if !root("a_pin_outlives_the_link_and_a_dead_pin_is_replaced") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let (_left, right) = pair("weirk-pin");
    let program = load_sample(&[]);
    let attach = || program.attach_xdp(iface::index_of("right0")?, XdpMode::Native);
    right
        .run(|| {
            let link = attach().expect("free");
            pins::pin(&link).expect("pins");
            drop(link);
            assert_eq!(pins::list().expect("listed").len(), 1, "the pin holds it");

            // Detached behind the pin's back: dead, and no obstacle.
            let pinned = pins::list().expect("listed").remove(0);
            assert!(attach().is_err());
            pins::remove(&pinned).expect("removed");
            let link = attach().expect("free again");
            let path = pins::pin(&link).expect("pins");
            link.detach().expect("detaches");
            assert_eq!(pins::list().expect("listed")[0].prog_id, None, "dead");
            let link = attach().expect("free again");
            assert_eq!(pins::pin(&link).expect("replaces the dead pin"), path);
            assert_eq!(pins::remove_all().expect("removed").len(), 1);
            assert!(!path.exists());

            // What a process holds goes with it, on either way out.
            let held = pins::hold(attach().expect("free again")).expect("pins");
            assert!(path.exists());
            drop(held);
            assert!(!path.exists());
            let mut held = pins::hold(attach().expect("free again")).expect("pins");
            held.link().update(&program).expect("replaces");
            held.release().expect("detaches");
            assert!(!path.exists());
            drop(link);
            assert_eq!(pins::list().expect("listed"), []);
            assert_eq!(iface::find("right0").expect("exists").xdp_prog_id, None);
        })
        .expect("ns");
}

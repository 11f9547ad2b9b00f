//! `tunnel` and `underlay` in the user engine and in the kernel's test runs, over captures: the same verdicts and bytes, and what went into a tunnel
//! comes out of it as it was. Live traffic, with segments and unfinished checksums, is judged by tunnel_live.rs.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use crate::common;
use crate::pair::{Pair, frames};
use weir_bpf::abi::{self, exact_kind, net_slot, tunnel_kind, vi_flag};
use weir_engine::EngineKind;
use weir_network::exact::{place, scope};
use zerocopy::{FromBytes, IntoBytes};

/// `TC_ACT_SHOT`, `TC_ACT_REDIRECT`.
const SHOT: u32 = 2;
const REDIRECT: u32 = 7;
/// Buckets of exact matches in a half.
const BUCKETS: u32 = 8;
/// The record of everything.
const ONE: [u8; 4] = 1u32.to_le_bytes();

/// Loopback is in every namespace.
const DEVICE: u32 = 1;

fn load(name: &str, kind: u8, v6: bool) -> Pair {
    let elf = weir_bpf::object(&format!("net_{name}")).expect("compiled");
    let constants: Vec<(&str, Vec<u8>)> = [
        ("net_half_interfaces", 2),
        ("net_half_remotes", 2),
        ("net_half_tunnels", 2),
        ("net_half_buckets", BUCKETS),
        ("weir_replay", 1),
    ]
    .iter()
    .map(|(name, value): &(&str, u32)| (*name, value.to_le_bytes().to_vec()))
    .collect();
    let sizes = [
        ("net_interfaces", 4),
        ("net_remotes", 4),
        ("net_tunnels", 4),
        ("net_exact", 2 * BUCKETS),
    ];
    let mut pair = Pair::load_sized((elf, elf), name, &constants, &sizes);
    let vi = abi::Vi {
        slot: net_slot::DEVICE,
        device: DEVICE,
        instance: 1,
        tenant: 7,
        flags: vi_flag::TUNNEL,
        ..Default::default()
    };
    pair.update("net_interfaces", &ONE, vi.as_bytes());
    let address = |last: u8| match v6 {
        false => [u32::from_ne_bytes([192, 0, 2, last]), 0, 0, 0],
        true => [0xfd, 0, 0, u32::from_ne_bytes([0, 0, 0, last])],
    };
    // The far end is the near end, too: what is sent comes back.
    let remote = abi::NetRemote {
        family: if v6 { 6 } else { 4 },
        kind,
        port: match kind {
            tunnel_kind::GENEVE => abi::tunnel::GENEVE_PORT,
            _ => abi::tunnel::VXLAN_PORT,
        },
        device: DEVICE,
        local: address(1),
        address: address(1),
        mtu: 0,
        accepts: 1 << kind,
        state: 1,
        pad: [0; 4],
    };
    pair.update("net_remotes", &ONE, remote.as_bytes());
    let net = abi::NetTunnel {
        identifier: 100,
        tenant: 7,
        remote: 1,
        pad: 0,
    };
    pair.update("net_tunnels", &ONE, net.as_bytes());
    let [a, b, c, d] = address(1).map(u64::from);
    let own = match v6 {
        false => [0, a << 32 | 0xffff_0000],
        true => [b << 32 | a, d << 32 | c],
    };
    let cell = |kind, key| abi::Exact {
        value: 1,
        scope: scope(kind, 0, 0),
        key,
        extra: 0,
    };
    let cells = [
        cell(exact_kind::LOCAL, own),
        cell(exact_kind::PEER, own),
        cell(exact_kind::TUNNEL, [100, 0]),
        cell(exact_kind::MEMBER, [100, 1]),
    ];
    let table = place(&cells, BUCKETS).expect("room");
    for (n, bucket) in table.cells.chunks(abi::exact::WAYS as usize).enumerate() {
        pair.update("net_exact", &(n as u32).to_le_bytes(), bucket.as_bytes());
    }
    pair
}

#[test]
fn what_goes_into_a_tunnel_comes_out_in_both_engines() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let frames = frames(400);
    let ns = weir_kernel::NetNs::create("weir-tunnel").expect("namespace");
    for kind in [tunnel_kind::VXLAN, tunnel_kind::GENEVE, tunnel_kind::GRE] {
        for v6 in [false, true] {
            let crossed = ns.run(|| cross(&frames, kind, v6));
            let (whole, padded, dropped) = crossed.expect("namespace");
            eprintln!(
                "kind {kind}, IPv6 {v6}: {whole} came out as they were, {padded} padded, {dropped} not taken"
            );
            assert!(whole > 300, "{whole} of {}", frames.len());
        }
    }
}

/// Sends frames into a tunnel and takes them out of it: how many are as they were, were padded, and were dropped on their way in.
fn cross(frames: &[Vec<u8>], kind: u8, v6: bool) -> (usize, usize, usize) {
    let (mut tunnel, mut underlay) = (load("tunnel", kind, v6), load("underlay", kind, v6));
    let chain = abi::NetChain {
        vid: 1,
        ..Default::default()
    };
    let (mut whole, mut padded, mut dropped) = (0, 0, 0);
    for (number, frame) in frames.iter().enumerate() {
        tunnel.update("net_chain", &[0; 4], chain.as_bytes());
        let verdict = run(&mut tunnel, number, frame);
        if verdict != Some(REDIRECT) {
            dropped += 1;
            continue;
        }
        let outer = tunnel.left().data().to_vec();
        assert!(outer.len() > frame.len());
        assert_eq!(
            run(&mut underlay, number, &outer),
            Some(REDIRECT),
            "frame {number}: {outer:02x?}"
        );
        let back = underlay.left();
        let mut bytes = back.data().to_vec();
        if let Some((protocol, tci)) = back.vlan() {
            // Out of the tunnel a tag lies beside the data.
            let tag = [protocol.to_be_bytes(), tci.to_be_bytes()].concat();
            bytes.splice(12..12, tag);
        }
        if bytes.len() > frame.len() {
            // As a device would do to a frame that is too short.
            assert!(bytes.len() == 60 || back.vlan().is_some(), "frame {number}");
            assert!(bytes[frame.len()..].iter().all(|b| *b == 0));
            bytes.truncate(frame.len());
            padded += 1;
        } else {
            whole += 1;
        }
        assert_eq!(&bytes, frame, "frame {number}");
    }
    (whole, padded, dropped)
}

/// What does not fit becomes the error that tells its sender so, with right checksums.
#[test]
fn what_does_not_fit_is_answered_alike_in_both_engines() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    const MTU: u16 = 110;
    let frames = frames(400);
    let ns = weir_kernel::NetNs::create("weir-tunnel").expect("namespace");
    let answered = ns.run(|| {
        let mut tunnel = load("tunnel", tunnel_kind::VXLAN, false);
        let remote = tunnel.kernel.lookup("net_remotes", &ONE).expect("readable");
        let mut remote =
            abi::NetRemote::read_from_bytes(&remote.expect("there")).expect("its size");
        remote.mtu = MTU;
        tunnel.update("net_remotes", &ONE, remote.as_bytes());
        let chain = abi::NetChain {
            vid: 1,
            ..Default::default()
        };
        let mut answered = [0, 0];
        for (number, frame) in frames.iter().enumerate() {
            tunnel.update("net_chain", &[0; 4], chain.as_bytes());
            // A second later each: errors are limited.
            let now = abi::Replay {
                now_ns: number as u64 * 1_000_000_000,
                ..Default::default()
            };
            tunnel.update("replay", &[0; 4], now.as_bytes());
            let verdict = run(&mut tunnel, number, frame);
            let left = tunnel.left().data();
            // What fits goes into the tunnel, from and to the edge itself.
            let fits = left.get(26..34) == Some(&[192, 0, 2, 1, 192, 0, 2, 1][..]);
            if verdict != Some(REDIRECT) || fits {
                continue;
            }
            assert_eq!(left.get(6..12), frame.get(..6));
            let icmp = match left.get(12..14) {
                Some([8, 0]) => {
                    assert_eq!(sum(left.get(14..34).expect("a header"), 0), 0xffff);
                    answered[0] += 1;
                    assert_eq!(left.get(34..36), Some(&[3, 4][..]));
                    left.get(34..).expect("an error")
                }
                _ => {
                    answered[1] += 1;
                    assert_eq!(left.get(54..56), Some(&[2, 0][..]));
                    left.get(54..).expect("an error")
                }
            };
            let pseudo = match left.get(12..14) {
                Some([8, 0]) => 0,
                _ => u32::from(sum(
                    left.get(22..54).expect("addresses"),
                    58 + icmp.len() as u32,
                )),
            };
            assert_eq!(sum(icmp, pseudo), 0xffff, "frame {number}: {left:02x?}");
            // 110 less 50 of the tunnel.
            assert_eq!(icmp.get(6..8), Some(&60u16.to_be_bytes()[..]));
        }
        answered
    });
    let answered = answered.expect("namespace");
    eprintln!("answered: {} of IPv4, {} of IPv6", answered[0], answered[1]);
    assert!(answered.iter().all(|n| *n > 5), "{answered:?}");
}

/// Sum of 16-bit words with end-around carry.
fn sum(bytes: &[u8], begin: u32) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum = words.sum::<u32>() + begin;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Runs a frame in both engines, which must agree; the verdict, nothing where the kernel's test run does not take the frame.
fn run(pair: &mut Pair, number: usize, frame: &[u8]) -> Option<u32> {
    let before = pair.verdicts.clone();
    if let Err(difference) = pair.packet(frame) {
        panic!("frame {number}: {difference}\n{frame:02x?}");
    }
    let verdict = pair.verdicts.iter().find(|(v, n)| before.get(v) != Some(n));
    let verdict = verdict.map(|(verdict, _)| *verdict);
    assert!(
        matches!(verdict, None | Some(SHOT | REDIRECT)),
        "frame {number}: {verdict:?}"
    );
    verdict
}

//! Packets that are plain, and all that are nearly so: each byte of their headers changed, each length, bytes behind their end. The
//! data plane parses plain ones in place (`bpf/include/plain.h`) and all others in the header window; the reference knows no such difference.

use crate::common::{Coverage, Sample, disagreement_on, engines, is_taken, policy, tc_engines};
use weir_engine::{ReplayHook, ReplayOptions};
use weir_functions::plan::{ChecksumMode, Port};
use weir_packet::build::Frame;

/// Policies of each kind of features that may meet packets without a header window.
const POLICIES: &[&str] = &[
    "tcp-dport 80 accept\nip-saddr 10.0.0.0/8 udp drop\nip-ttl 3 drop\nip6-saddr 2001:db8::/32 tcp-sport 1234 drop",
    "ip-saddr 10.0.0.1 tcp-dport 80 drop",
    "tcp-dport 80 mod ip-dscp 9\nudp-dport 53 mod udp-sport 99\nip6-saddr 2001:db8::/32 mod ip6-hop-limit 7",
    "tcp-dport 80 log \"web\"\nudp log \"udp\"",
    "tcp-dport 80 reject\nudp reject with icmp admin-prohibited",
    "set seen = dynamic timeout 10m\nudp-dport 53 add @seen source\nip-saddr in @seen eth-type 0x0800 drop over 3/s",
    "eth-saddr 02:00:00:00:00:01 drop over 5/s per source\nl4-proto tcp drop over 900 bytes",
    "add-stateful tcp accept\nadd-stateful udp accept\nall drop",
    "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.200 accept\nct-state invalid drop\nall drop",
];

#[test]
fn packets_near_plain_ones_are_the_same_in_every_engine() {
    let engines = engines();
    let samples = samples();
    let tc_engines = tc_engines();
    let mut taken = samples.clone();
    taken.retain(|sample| is_taken(&sample.frame));
    let options = ReplayOptions {
        checksums: ChecksumMode::Complete,
        mtu: None,
        seed: 7,
        ports: vec![Port {
            number: 1,
            name: Some("eth0".to_owned()),
            index: 2,
        }],
    };
    let mut coverage = Coverage::default();
    for text in POLICIES {
        let policy = policy(text);
        let on_xdp = (ReplayHook::Xdp, &engines, &samples);
        for (hook, engines, samples) in [on_xdp, (ReplayHook::Tc, &tc_engines, &taken)] {
            let found = disagreement_on(hook, engines, &policy, &options, samples, &mut coverage);
            assert_eq!(found, None, "{hook:?}\npolicy:\n{text}");
        }
    }
    eprintln!(
        "{} policies x {} packets: reference and {engines:?} agree\n{coverage}",
        POLICIES.len(),
        samples.len()
    );
}

fn samples() -> Vec<Sample> {
    let frames = plain().into_iter().flat_map(|frame| near(&frame));
    frames
        .enumerate()
        .map(|(i, frame)| Sample {
            frame,
            now_ns: 1_000_000 * i as u64,
            port: 1,
            queue: 0,
        })
        .collect()
}

/// Frames that [`near`] changes; the timestamps are laid out as RFC 7323, appendix A, has them.
fn plain() -> Vec<Vec<u8>> {
    let timestamps = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6];
    let ip4 = || Frame::new().ip4([10, 0, 0, 1], [192, 0, 2, 1]);
    let mut source = [0; 16];
    source[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    let ip6 = || Frame::new().ip6(source, [0xfd; 16]);
    let mut frames = Vec::new();
    for ip in [&ip4 as &dyn Fn() -> Frame, &ip6] {
        frames.push(ip().tcp(1234, 80).flags(0x02).build());
        frames.push(ip().tcp(1234, 80).flags(0x10).payload(b"GET /").build());
        frames.push(
            ip().tcp(1234, 80)
                .flags(0x18)
                .tcp_bytes(&timestamps)
                .payload(b"GET /")
                .build(),
        );
        frames.push(ip().udp(1234, 53).payload(b"question").build());
        frames.push(ip().udp(1234, 53).zero_checksum().build());
    }
    frames
}

/// A frame, each of its lengths, with bytes behind it, and with each byte of its headers changed, under a right checksum and a wrong one.
fn near(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = vec![frame.to_vec()];
    frames.extend((14..frame.len()).map(|len| frame[..len].to_vec()));
    for more in [1, 2, 6, 46] {
        frames.push([frame, &vec![0xa5; more]].concat());
    }
    for at in 0..frame.len().min(86) {
        let was = frame[at];
        for value in [0, 0xff, was ^ 1, was.wrapping_add(1), was ^ 0x80] {
            let mut changed = frame.to_vec();
            changed[at] = value;
            if (14..34).contains(&at) && frame[12..14] == [8, 0] {
                frames.push(changed.clone());
                finish_ip4(&mut changed);
            }
            frames.push(changed);
        }
    }
    frames
}

/// Gives the IPv4 header at 14 the checksum that it should have.
fn finish_ip4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

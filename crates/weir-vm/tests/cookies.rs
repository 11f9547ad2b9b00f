//! Raw SYN cookies: what a client answers checks out for two minutes and for that client only.

use crate::object::{compile, machine, results};
use weir_vm::{Env, Frame, Machine};

const EACCES: i64 = -13;
const EINVAL: i64 = -22;
const MINUTE: u64 = 60_000_000_000;

/// Segment of a connection; IPv4 for addresses of four bytes.
#[derive(Clone)]
struct Segment {
    ends: Vec<u8>,
    ports: [u8; 4],
    seq: u32,
    ack: u32,
    syn: bool,
    options: Vec<u8>,
}

impl Segment {
    fn frame(&self) -> Frame {
        let mut bytes = vec![0; 14];
        if self.ends.len() == 8 {
            bytes.extend([0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0]);
        } else {
            bytes.extend([0x60, 0, 0, 0, 0, 40, 6, 64]);
        }
        bytes.extend(&self.ends);
        bytes.extend(self.ports);
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        let words = (20 + self.options.len()) / 4;
        bytes.extend([(words as u8) << 4, if self.syn { 2 } else { 16 }]);
        bytes.extend([0; 6]);
        bytes.extend(&self.options);
        bytes.resize(14 + 40 + 60 + 4, 0);
        Frame::new(&bytes)
    }

    fn run(&self, machine: &mut Machine, seed: u64, now_ns: u64) -> Vec<i64> {
        let env = Env {
            random_seed: seed,
            now_ns,
            ..Env::default()
        };
        assert_eq!(machine.run_xdp(&mut self.frame(), &env), Ok(2));
        results(machine, 3)
    }
}

#[test]
fn an_answer_checks_out_for_two_minutes() {
    let elf = compile("cookie");
    for (program, ends) in [("cookie4", 8), ("cookie6", 32)] {
        let mut machine = machine(&elf, program);
        let syn = Segment {
            ends: (1..=ends).collect(),
            ports: [0x12, 0x34, 0, 80],
            seq: 0xffff_ffff,
            ack: 0,
            syn: true,
            options: vec![2, 4, 5, 0xb4],
        };
        let now = 77 * MINUTE + 59_000_000_000;
        let made = syn.run(&mut machine, 5, now)[0] as u64;
        let (cookie, size) = (made as u32, made >> 32);
        assert_eq!(size, if ends == 8 { 1460 } else { 1440 });
        let answer = Segment {
            syn: false,
            seq: syn.seq.wrapping_add(1),
            ack: cookie.wrapping_add(1),
            options: Vec::new(),
            ..syn.clone()
        };
        let mut check = |segment: &Segment, seed, now| segment.run(&mut machine, seed, now)[2];
        assert_eq!(check(&answer, 5, now), 0);
        assert_eq!(check(&answer, 5, 78 * MINUTE + 59_999_999_999), 0);
        assert_eq!(check(&answer, 5, 79 * MINUTE), EACCES);
        assert_eq!(check(&answer, 5, 76 * MINUTE), EACCES);
        assert_eq!(check(&answer, 6, now), EACCES, "another key");
        let changed: [fn(&mut Segment); 5] = [
            |s| s.ends[0] ^= 1,
            |s| *s.ends.last_mut().expect("has bytes") ^= 1,
            |s| s.ports[1] ^= 1,
            |s| s.ports[3] ^= 1,
            |s| s.ack ^= 1 << 20,
        ];
        for change in changed {
            let mut other = answer.clone();
            change(&mut other);
            assert_eq!(check(&other, 5, now), EACCES);
        }
    }
}

#[test]
fn sizes_are_rounded_down_to_those_a_cookie_can_say() {
    let elf = compile("cookie");
    let (mut v4, mut v6) = (machine(&elf, "cookie4"), machine(&elf, "cookie6"));
    let mut size = |named: Option<u16>| -> (i64, i64) {
        let options = named.map(|n| [&[2, 4][..], &n.to_be_bytes()].concat());
        let mut syn = Segment {
            ends: vec![1; 8],
            ports: [9; 4],
            seq: 7,
            ack: 0,
            syn: true,
            options: options.unwrap_or_default(),
        };
        let first = syn.run(&mut v4, 1, 0)[0] >> 32;
        syn.ends = vec![1; 32];
        (first, syn.run(&mut v6, 1, 0)[0] >> 32)
    };
    assert_eq!(size(None), (536, 1220));
    assert_eq!(size(Some(1)), (536, 1220));
    assert_eq!(size(Some(1299)), (536, 1220));
    assert_eq!(size(Some(1440)), (1440, 1440));
    assert_eq!(size(Some(9000)), (1460, 8940));
}

#[test]
fn the_length_must_be_the_headers() {
    let mut machine = machine(&compile("cookie"), "cookie4");
    let syn = Segment {
        ends: vec![1; 8],
        ports: [9; 4],
        seq: 7,
        ack: 0,
        syn: true,
        options: vec![1; 8],
    };
    assert_eq!(syn.run(&mut machine, 1, 0)[1], EINVAL);
}

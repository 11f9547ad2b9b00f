//! Packets for rule sets: fields from what the sets name, so that every rule has its packets, and some from anywhere.

use weir_packet::build::Frame;
use weir_packet::parse::protocol;

/// Interfaces of the router, in the order of its sockets.
pub(crate) const INTERFACES: [&str; 3] = ["wan0", "lan0", "dmz0"];

/// A source of numbers that is the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A packet before it is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Index in [`INTERFACES`].
    pub(crate) interface: usize,
    pub(crate) six: bool,
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) protocol: u8,
    /// Of ICMP: type and code.
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) flags: u8,
    pub(crate) numbers: (u32, u32),
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    pub(crate) mac: u8,
    pub(crate) payload: usize,
}

/// Which interface a destination is reached by.
pub(crate) fn leaves_by(six: bool, destination: u128) -> usize {
    let four = |a: u32| (destination as u32) >> 8 == a;
    match six {
        false if four(0xc0_a80a) || four(0xc0_a814) => 1,
        false if four(0x0a_1400) => 2,
        true if destination >> 64 == 0x2001_0db8_0010_0000 => 1,
        true if destination >> 64 == 0x2001_0db8_0020_0000 => 2,
        _ => 0,
    }
}

const PORTS: &[u16] = &[
    21, 22, 25, 53, 80, 110, 113, 123, 135, 137, 138, 139, 143, 389, 443, 445, 465, 500, 587, 593,
    636, 853, 993, 995, 1023, 1024, 1194, 1900, 3306, 3389, 3478, 3481, 4500, 5060, 5090, 5222,
    5223, 5357, 5432, 5900, 5905, 5910, 7001, 7002, 7003, 7006, 7011, 7020, 8006, 8078, 8080, 8443,
    8444, 9090, 9100, 49151, 49152, 51820, 65535,
];

/// Addresses that the rule sets name, or their neighbours.
const OUTSIDE: &[[u8; 4]] = &[
    [8, 8, 8, 8],
    [5, 188, 10, 9],
    [5, 188, 12, 1],
    [45, 155, 207, 255],
    [93, 184, 216, 9],
    [93, 184, 216, 20],
    [93, 184, 216, 33],
    [93, 184, 216, 41],
    [93, 184, 216, 160],
    [93, 184, 217, 9],
    [195, 185, 37, 40],
    [195, 185, 38, 1],
    [203, 0, 113, 7],
    [203, 0, 113, 25],
    [203, 0, 113, 30],
    [203, 0, 113, 70],
    [203, 0, 113, 200],
    [198, 51, 100, 129],
    [198, 51, 100, 150],
    [198, 51, 101, 7],
    [172, 16, 3, 4],
    [10, 9, 9, 9],
    [100, 64, 0, 1],
    [192, 0, 2, 77],
    [212, 70, 149, 1],
];

fn four(numbers: &mut Numbers, side: usize) -> u128 {
    let bytes = match side {
        1 => {
            let host = numbers.one_of(&[
                2, 3, 5, 6, 7, 16, 17, 31, 32, 40, 41, 99, 100, 110, 120, 121,
            ]);
            [192, 168, numbers.one_of(&[10, 10, 10, 20]), host]
        }
        2 => [
            10,
            20,
            0,
            numbers.one_of(&[
                10, 11, 12, 13, 14, 20, 21, 22, 24, 26, 30, 31, 34, 40, 45, 51, 56, 57,
            ]),
        ],
        _ => numbers.one_of(OUTSIDE),
    };
    u32::from_be_bytes(bytes).into()
}

fn six(numbers: &mut Numbers, side: usize) -> u128 {
    let host = u128::from(numbers.one_of(&[1u16, 0x10, 0x12, 0x13, 0x77]));
    let net: u128 = match side {
        1 => 0x2001_0db8_0010_0000,
        2 => 0x2001_0db8_0020_0000,
        _ => numbers.one_of(&[
            0x2a00_1450_4001_0000,
            0x2600_9000_0000_0001,
            0x2001_0db8_0077_0000,
        ]),
    };
    net << 64 | host
}

impl Packet {
    /// A packet that belongs to nothing before it, as far as chance has it.
    pub(crate) fn any(numbers: &mut Numbers, six_too: bool) -> Packet {
        let interface = numbers.below(3) as usize;
        let is_six = six_too && numbers.below(3) == 0;
        // Now and then a source that does not belong there.
        let from = if numbers.below(8) == 0 {
            numbers.below(3) as usize
        } else {
            interface
        };
        let to = match numbers.below(10) {
            0 => interface,
            n => (interface + 1 + n as usize % 2) % 3,
        };
        let icmp = if is_six {
            protocol::ICMP6
        } else {
            protocol::ICMP
        };
        let protocol = numbers.one_of(&[6, 6, 6, 6, 6, 17, 17, 17, 17, icmp, icmp, 47, 50]);
        // A forged answer that is dropped makes a connection established for the kernel, and for weir not (docs/import.md); without ports forged
        // packets would often be answers, and so would packets of one host to itself.
        let has_ports = matches!(protocol, 6 | 17);
        let (from, to) = match has_ports {
            true => (from, to),
            false if to == interface => (interface, (interface + 1) % 3),
            false => (interface, to),
        };
        let address = if is_six { six } else { four };
        let (source, destination) = (address(numbers, from), address(numbers, to));
        let mut port = || match numbers.below(5) {
            0 => numbers.next() as u16,
            _ => numbers.one_of(PORTS),
        };
        let (mut sport, mut dport) = (port(), port());
        if protocol == 6 {
            // No tuple twice: what happens then is for the comparison of conversations.
            sport = (numbers.next() as u16).max(1);
        }
        if protocol == icmp {
            sport = match is_six {
                true => numbers.one_of(&[1, 2, 3, 4, 128, 128, 128, 129]),
                false => numbers.one_of(&[0, 3, 8, 8, 8, 8, 11, 12]),
            };
            // ICMP errors have the code that they go with; type 8 code 1 is nobody's.
            dport = match sport {
                3 => numbers.one_of(&[0, 1, 3]),
                _ => 0,
            };
        }
        Packet {
            interface,
            six: is_six,
            source,
            destination,
            protocol,
            sport,
            dport,
            flags: match numbers.below(6) {
                0 => numbers.next() as u8 & 0x3f,
                1 => 0x10,
                2 => numbers.one_of(&[0x12, 0x04, 0x11, 0x14, 0x18]),
                _ => 0x02,
            },
            numbers: (numbers.next() as u32, numbers.next() as u32),
            ttl: numbers.one_of(&[1, 2, 3, 64, 64, 64, 128, 255]).max(2),
            dscp: numbers.one_of(&[0, 0, 46, 10]),
            mac: if has_ports {
                numbers.one_of(&[1, 2, 3, 4])
            } else {
                3
            },
            payload: numbers.one_of(&[0, 4, 40, 1330, 1380]),
        }
    }

    /// What the other side says to it, if that is known.
    pub(crate) fn answer(&self, numbers: &mut Numbers) -> Option<Packet> {
        let mut answer = Packet {
            interface: leaves_by(self.six, self.destination),
            source: self.destination,
            destination: self.source,
            sport: self.dport,
            dport: self.sport,
            payload: 0,
            ..*self
        };
        match (self.protocol, self.flags, self.sport) {
            (6, 0x02, _) => {
                answer.flags = 0x12;
                answer.numbers = (
                    numbers.next() as u32,
                    self.numbers.0.wrapping_add(1 + self.payload as u32),
                );
            }
            (17, ..) => {}
            (protocol::ICMP, _, 8) => (answer.sport, answer.dport) = (0, 0),
            (protocol::ICMP6, _, 128) => (answer.sport, answer.dport) = (129, 0),
            _ => return None,
        }
        // It comes from where the question went.
        (leaves_by(self.six, self.source) == self.interface).then_some(answer)
    }

    /// As bytes; `number` stands in the identification or flow label.
    pub(crate) fn frame(&self, number: u16) -> Vec<u8> {
        let frame = Frame::new();
        let mut frame = match self.six {
            false => frame
                .ip4(
                    (self.source as u32).to_be_bytes(),
                    (self.destination as u32).to_be_bytes(),
                )
                .id(number),
            true => frame
                .ip6(self.source.to_be_bytes(), self.destination.to_be_bytes())
                .flow_label(number.into()),
        };
        frame = frame.ttl(self.ttl).traffic_class(self.dscp << 2);
        let payload = vec![b'.'; self.payload];
        frame = match self.protocol {
            6 => frame
                .tcp(self.sport, self.dport)
                .flags(self.flags)
                .numbers(self.numbers.0, self.numbers.1)
                .window(60_000)
                .payload(&payload),
            17 => frame.udp(self.sport, self.dport).payload(&payload),
            protocol::ICMP | protocol::ICMP6 => self.icmp(frame),
            other => frame
                .protocol(other)
                .payload(&[0x30, 0, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 2]),
        };
        let mut bytes = frame.build();
        bytes[..6].copy_from_slice(&gate_mac(self.interface));
        bytes[6..12].copy_from_slice(&match self.mac {
            1 => [2, 0, 0, 0, 0x66, 1],
            2 => [2, 0, 0, 0, 0, 0xaa],
            other => [2, 0, 0, 0, 0, other],
        });
        bytes
    }

    fn icmp(&self, frame: Frame) -> Frame {
        let (kind, code) = (self.sport as u8, self.dport as u8);
        let is_error = match self.six {
            true => kind < 128,
            false => matches!(kind, 3 | 11 | 12),
        };
        let frame = frame.icmp(kind, code);
        if !is_error {
            return frame.echo(self.numbers.0 as u16, 1).payload(b"ping");
        }
        // It quotes a datagram that nobody sent.
        let quoted = Packet {
            source: self.destination,
            destination: self.source,
            protocol: 17,
            sport: self.numbers.0 as u16 | 1,
            dport: 33434,
            payload: 4,
            ..*self
        };
        let quoted = quoted.frame(1);
        frame.payload(&quoted[14..])
    }
}

/// The MAC address of an interface of the router.
pub(crate) fn gate_mac(interface: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, interface as u8]
}

//! A production balancer's objects with filled maps, in the user engine and in the running kernel: verdicts, bytes and counters of
//! thousands of packets.
//!
//! The objects are data of another project and as published: rings of 33 million places, so that this also shows that maps cost what is
//! written, not what is declared. Needs root for the kernel's side; says when it skips.

#![allow(
    clippy::print_stderr,
    reason = "what is skipped is said where the test runs"
)]

use crate::common;
use crate::pair::Pair;
use weir_engine::EngineKind;
use weir_packet::build::Frame;

/// Packets of each object and execution.
const PACKETS: usize = 3_000;
/// Places of one ring, as the balancer is compiled.
const RING: u32 = 65_537;
/// Servers, numbered from 1; odd ones have an IPv6 address.
const SERVERS: u32 = 40;
/// Clients of a service, and ports of each: so few flows that no cache forgets one, which the kernel does in its own order.
const CLIENTS: u32 = 6;
const PORTS: u32 = 4;
/// Server ids in connection ids and TCP options.
const SERVER_IDS: u32 = 64;

/// A virtual service: IPv4 (IPv6 where the last byte is even), port, protocol, flags.
type Service = (u8, u16, u8, u32);

/// A service for each flag that changes where packets go, and one without flags.
const SERVICES: [Service; 12] = [
    (1, 80, 6, 0),
    (2, 80, 6, 0),
    (3, 443, 17, 1 << 2),
    (4, 443, 17, 1 << 2),
    (5, 0, 6, 1 << 0),
    (6, 53, 17, 1 << 1),
    (7, 8080, 6, 1 << 3),
    (8, 25, 6, 1 << 4),
    (9, 25, 6, 1 << 4),
    (10, 4500, 17, 1 << 8),
    (11, 4500, 17, 1 << 8),
    (12, 90, 6, 1 << 7),
];

/// Counters that depend on packets alone, not on time or on which flows a cache forgets.
const COUNTERS: [&str; 2] = ["reals_stats", "decap_vip_stats"];

#[test]
fn a_production_balancer_forwards_as_in_the_kernel() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let Some(folder) = weir_testdata::find("katran") else {
        return;
    };
    for (file, program) in [
        ("balancer.bpf.o", "balancer_ingress"),
        ("balancer.bpf.full.o", "balancer_ingress"),
        ("decap.bpf.o", "xdpdecap"),
    ] {
        let elf = std::fs::read(folder.join(file)).expect("the object can be read");
        let mut pair = Pair::load(&elf, program, &[]);
        fill(&mut pair);
        // Entries of a cache are told old by the kernel's clock.
        pair.env.now_ns = since_boot();
        let natives = [false, true].into_iter();
        for native in natives.filter(|native| !native || weir_vm::jit::available()) {
            pair.start(native);
            pair.verdicts.clear();
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            for number in 0..PACKETS {
                let frame = packet(&mut random);
                if let Err(difference) = pair.packet(&frame) {
                    let execution = pair.execution();
                    panic!("{file} ({execution}), packet {number}: {difference}\n{frame:02x?}");
                }
            }
            let mut entries = 0;
            for map in COUNTERS {
                if pair.user.map(map).is_some() {
                    entries += pair
                        .compare_map(map)
                        .unwrap_or_else(|e| panic!("{file}: {e}"));
                }
            }
            eprintln!(
                "{file}, {}: verdicts {:?}, {} not taken, {entries} counters",
                pair.execution(),
                pair.verdicts,
                pair.skipped
            );
            // 3 is TX: most packets go to a server, and the tunnel's end passes what it unpacked.
            let forwarded = pair.verdicts.get(&3).copied().unwrap_or(0);
            assert!(file == "decap.bpf.o" || forwarded as usize > PACKETS / 2);
        }
    }
}

/// The kernel's clock in nanoseconds, but for some hundredths of a second.
fn since_boot() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells");
    let seconds = text.split(['.', ' ']).next().and_then(|s| s.parse().ok());
    seconds.map_or(0, |s: u64| s * 1_000_000_000)
}

/// What the published controller writes.
fn fill(pair: &mut Pair) {
    let has = |pair: &Pair, map: &str| pair.user.map(map).is_some();
    pair.update("ctl_array", &[0; 4], &[2, 0, 0, 0, 0xaa, 1, 0, 0]);
    if !has(pair, "vip_map") {
        return;
    }
    for (number, (last, port, protocol, flags)) in SERVICES.into_iter().enumerate() {
        let number = number as u32;
        let mut key = [0; 20];
        match last % 2 {
            1 => key[..4].copy_from_slice(&address4(last)),
            _ => key[..16].copy_from_slice(&address6(last)),
        }
        key[16..18].copy_from_slice(&port.to_be_bytes());
        key[18] = protocol;
        let meta = [flags.to_le_bytes(), number.to_le_bytes()].concat();
        pair.update("vip_map", &key, &meta);
        // Any order of servers will do; the published one spreads them by weight.
        let places: Vec<u8> = (0..RING)
            .flat_map(|place| (number * RING + place).to_le_bytes())
            .collect();
        let servers: Vec<u8> = (0..RING)
            .flat_map(|place| (1 + place.wrapping_mul(2_654_435_761) % SERVERS).to_le_bytes())
            .collect();
        pair.kernel
            .update_batch("ch_rings", &places, &servers)
            .expect("the kernel's ring is filled");
        let ring = pair.user.map_mut("ch_rings").expect("the map is in both");
        for (place, server) in places.chunks(4).zip(servers.chunks(4)) {
            ring.update(place, server, 0).expect("a place of the ring");
        }
    }
    for server in 1..=SERVERS {
        let mut real = [0; 20];
        match server % 2 {
            0 => real[..4].copy_from_slice(&[10, 0, 0, server as u8]),
            _ => {
                real[..16].copy_from_slice(&address6(server as u8));
                real[16] = 1;
            }
        }
        pair.update("reals", &server.to_le_bytes(), &real);
    }
    for id in 1..SERVER_IDS {
        // Some ids name servers that are gone.
        let server = if id % 7 == 0 { 0 } else { 1 + id % SERVERS };
        pair.update("server_id_map", &id.to_le_bytes(), &server.to_le_bytes());
    }
    if has(pair, "pckt_srcs") {
        let mut source6 = [0; 20];
        source6[..16].copy_from_slice(&address6(200));
        source6[16] = 1;
        let mut source4 = [0; 20];
        source4[..4].copy_from_slice(&[10, 9, 9, 9]);
        pair.update("pckt_srcs", &[0; 4], &source4);
        pair.update("pckt_srcs", &1u32.to_le_bytes(), &source6);
    }
    if has(pair, "lpm_src_v4") {
        let prefix4 = [&20u32.to_le_bytes()[..], &[172, 16, 0, 0]].concat();
        pair.update("lpm_src_v4", &prefix4, &7u32.to_le_bytes());
        let prefix6 = [&128u32.to_le_bytes()[..], &address6(100)].concat();
        pair.update("lpm_src_v6", &prefix6, &8u32.to_le_bytes());
    }
    if has(pair, "decap_dst") {
        let mut end = [0; 16];
        end[..4].copy_from_slice(&[10, 8, 8, 8]);
        pair.update("decap_dst", &end, &1u32.to_le_bytes());
        pair.update("decap_dst", &address6(250), &1u32.to_le_bytes());
    }
    if has(pair, "subprograms") {
        // What was unpacked goes through the balancer once more.
        pair.user
            .set_tail_call("subprograms", 0, "balancer_ingress")
            .expect("the program is there");
        pair.kernel
            .install_in(&pair.kernel, "subprograms", 0)
            .expect("the kernel takes it");
    }
}

/// A packet of a client to a service, sometimes to another address, of another protocol, in a tunnel, cut or too long.
fn packet(random: &mut Random) -> Vec<u8> {
    let (last, port, protocol, _) = SERVICES[random.below(SERVICES.len() as u32) as usize];
    let client = random.below(CLIENTS) as u8;
    let mut frame = Frame::new();
    let elsewhere = random.below(20) == 0;
    frame = match last % 2 {
        1 => frame.ip4(
            [172, 16, client, 9],
            address4(if elsewhere { 99 } else { last }),
        ),
        _ => frame.ip6(
            address6(100 + client),
            address6(if elsewhere { 99 } else { last }),
        ),
    };
    frame = frame.ttl(random.below(65) as u8);
    let sport = 1024 + random.below(PORTS) as u16;
    let port = if port == 0 { 5000 } else { port };
    frame = match (random.below(16), protocol) {
        (0, _) if last % 2 == 1 => frame.icmp(8, 0).echo(7, client.into()),
        (0, _) => frame.icmp(128, 0).echo(7, client.into()),
        (1, _) => frame.protocol(47),
        (2, _) if last % 2 == 1 => frame.fragment(8, true).udp(sport, port),
        (_, 6) => {
            let flags = [Frame::SYN, Frame::ACK, Frame::ACK | Frame::FIN, Frame::RST];
            let tcp = frame.tcp(sport, port);
            let tcp = tcp.flags(flags[random.below(4) as usize]);
            match random.below(3) {
                0 => tcp.tcp_option(0xb7, &random.below(SERVER_IDS + 8).to_le_bytes()),
                1 => tcp.tcp_option(1, &[]),
                _ => tcp,
            }
        }
        _ => frame.udp(sport, port),
    };
    let long = random.below(40) == 0;
    let length = if long { 1_480 } else { random.below(90) };
    let mut payload: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    if let (17, Some(head)) = (protocol, payload.first_chunk_mut::<12>()) {
        quic(head, random);
    }
    let mut bytes = frame.payload(&payload).build();
    if random.below(12) == 0 {
        bytes = tunnelled(&bytes, random);
    }
    if random.below(30) == 0 {
        bytes.truncate(14 + random.below(60) as usize);
    }
    bytes
}

/// Short and long headers whose connection id names a server, in the versions that the balancer knows.
fn quic(head: &mut [u8; 12], random: &mut Random) {
    let id = random.below(SERVER_IDS + 8);
    let long = random.below(4) == 0;
    head[0] = if long {
        0xc0 | head[0] & 0x3f
    } else {
        0x40 | head[0] & 0x3f
    };
    let at = if long { 6 } else { 1 };
    if long {
        head[5] = 8;
    }
    let id = id.to_be_bytes();
    match random.below(3) {
        // Two bits of version, sixteen of id.
        0 => {
            head[at] = 0x40 | id[2] >> 2;
            head[at + 1] = id[2] << 6 | id[3] >> 2;
            head[at + 2] = id[3] << 6;
        }
        // Versions 2 and 3: three and four bytes of id.
        1 => {
            head[at] = 0x80;
            head[at + 1..at + 4].copy_from_slice(&id[1..]);
        }
        _ => {
            head[at] = 0xc0;
            head[at + 1..at + 5].copy_from_slice(&id);
        }
    }
}

/// The packet of a frame in IPIP or in UDP, as balancers in front send it.
fn tunnelled(frame: &[u8], random: &mut Random) -> Vec<u8> {
    let inner = frame.get(14..).unwrap_or_default();
    let is6 = frame.get(12) == Some(&0x86);
    let outer = match random.below(2) {
        0 if !is6 => Frame::new().ip4([10, 7, 7, 7], [10, 8, 8, 8]),
        _ => Frame::new().ip6(address6(240), address6(250)),
    };
    let outer = match random.below(2) {
        0 => outer.protocol(if is6 { 41 } else { 4 }),
        _ => outer.udp(
            random.next() as u16,
            if random.below(2) == 0 { 6080 } else { 9886 },
        ),
    };
    outer.payload(inner).build()
}

fn address4(last: u8) -> [u8; 4] {
    [192, 0, 2, last]
}

fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0x20, 1]);
    address[15] = last;
    address
}

/// The same packets in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() >> 32) as u32 % bound
    }
}

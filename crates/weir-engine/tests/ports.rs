//! Programs over ports: verdicts, redirects to ports and workers, their counted failures, and real clients through a wire made
//! of packet sockets (root).

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::ports::{
    Arrival, MemoryPort, Pass, Port, Service, ServiceError, SocketPort, Totals,
};
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};
use weir_vm::{BPF_ANY, INSN_BYTES, Insn, Machine, MapDefinition, MapKind};

const BUDGET: u64 = 10_000;
const BROADCAST_BUT_NOT_BACK: i32 = 8 | 16;

fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; INSN_BYTES] {
    Insn {
        opcode,
        dst,
        src,
        off,
        imm,
    }
    .to_bytes()
}

const MOV: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A program that returns a number.
fn returns(verdict: i32) -> Machine {
    let code = [insn(MOV, 0, 0, 0, verdict), insn(EXIT, 0, 0, 0, 0)];
    Machine::from_program(&code.concat(), Vec::new(), 4).expect("it links")
}

/// A program that redirects by a map: the key is the first byte of the frame.
fn redirects(kind: MapKind, flags: i32) -> Machine {
    let value = if kind == MapKind::XskMap { 4 } else { 8 };
    let map = MapDefinition::new("targets", kind, 4, value, 8);
    let code = [
        insn(0x61, 2, 1, 0, 0), // r2 = data
        insn(0x71, 2, 2, 0, 0), // r2 = its first byte
        insn(0x18, 1, 1, 0, 0), // r1 = map 0
        insn(0, 0, 0, 0, 0),
        insn(MOV, 3, 0, 0, flags),
        insn(CALL, 0, 0, 0, 51),
        insn(EXIT, 0, 0, 0, 0),
    ];
    Machine::from_program(&code.concat(), vec![map], 4).expect("it links")
}

fn entry(machine: &mut Machine, key: u32, value: u32) {
    let map = machine.map_mut("targets").expect("the map");
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(map.definition().value_size as usize, 0);
    map.update(&key.to_le_bytes(), &bytes, BPF_ANY)
        .expect("an entry");
}

/// Frames whose first byte is the key and whose second their number.
fn frames(key: u8, count: u8) -> Vec<Arrival> {
    (0..count)
        .map(|n| {
            let mut frame = vec![0; 60];
            frame[0] = key;
            frame[1] = n;
            Arrival {
                frame,
                now_ns: n.into(),
            }
        })
        .collect()
}

fn serve(
    machine: &mut Machine,
    ports: &[&dyn Port],
    workers: usize,
    pass: Pass,
) -> Result<Totals, ServiceError> {
    let service = Service {
        ports,
        workers,
        pass,
        instruction_budget: BUDGET,
    };
    service.run(machine, &AtomicBool::new(false))
}

/// Every frame received has one verdict, and every frame that was to leave has one fate.
fn assert_balanced(totals: &Totals) {
    for port in &totals.ports {
        let verdicts = port.aborted + port.drop + port.pass + port.tx + port.redirect;
        assert_eq!(port.received, verdicts, "{totals:?}");
    }
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|f| f[1]).collect()
}

#[test]
fn verdicts_have_their_fates() {
    for (verdict, sent, passed) in [(0, 0, 0), (1, 0, 0), (2, 0, 100), (3, 100, 0), (77, 0, 0)] {
        let port = MemoryPort::new("one", 1, frames(0, 100));
        let totals = serve(&mut returns(verdict), &[&port], 1, Pass::Port).expect("it runs");
        assert_balanced(&totals);
        assert_eq!(totals.ports[0].received, 100);
        assert_eq!(totals.ports[0].sent, sent);
        assert_eq!(numbers(&port.take_sent()).len() as u64, sent);
        let passing = numbers(&port.take_passed());
        assert_eq!(passing.len(), passed);
        assert!(passing.is_sorted(), "in order");
        assert_eq!(totals.failed(), 0);
    }
}

#[test]
fn a_wire_sends_what_passes_by_the_other_end() {
    let (a, b) = (
        MemoryPort::new("a", 1, frames(0, 100)),
        MemoryPort::new("b", 2, frames(0, 40)),
    );
    for workers in [1, 2, 4] {
        let (a, b) = match workers {
            1 => (&a, &b),
            _ => (
                &MemoryPort::new("a", 1, frames(0, 100)),
                &MemoryPort::new("b", 2, frames(0, 40)),
            ),
        };
        let totals = serve(&mut returns(2), &[a, b], workers, Pass::Across).expect("it runs");
        assert_balanced(&totals);
        assert_eq!(numbers(&a.take_sent()), (0..40).collect::<Vec<u8>>());
        assert_eq!(numbers(&b.take_sent()), (0..100).collect::<Vec<u8>>());
        assert_eq!((totals.ports[0].sent, totals.ports[1].sent), (40, 100));
    }
}

#[test]
fn redirects_reach_ports_by_device_maps() {
    for kind in [MapKind::DevMap, MapKind::DevMapHash] {
        let mut machine = redirects(kind, 0);
        entry(&mut machine, 3, 20);
        entry(&mut machine, 4, 99);
        let mut arrivals = frames(3, 50);
        arrivals.extend(frames(4, 7));
        arrivals.extend(frames(5, 5));
        let (a, b) = (
            MemoryPort::new("a", 10, arrivals),
            MemoryPort::new("b", 20, []),
        );
        let totals = serve(&mut machine, &[&a, &b], 2, Pass::Port).expect("it runs");
        assert_balanced(&totals);
        assert_eq!(b.take_sent().len(), 50, "{kind:?}");
        // An empty entry makes the helper return the flags' low bits: aborted, as in the kernel.
        assert_eq!((totals.ports[0].redirect, totals.ports[0].aborted), (57, 5));
        assert_eq!((totals.no_port, totals.failed()), (7, 7));
    }
}

#[test]
fn a_broadcast_leaves_by_every_port_but_its_own() {
    let mut machine = redirects(MapKind::DevMap, BROADCAST_BUT_NOT_BACK);
    for (key, port) in [(0, 10), (1, 20), (2, 30), (3, 99)] {
        entry(&mut machine, key, port);
    }
    let (a, b, c) = (
        MemoryPort::new("a", 10, frames(0, 9)),
        MemoryPort::new("b", 20, []),
        MemoryPort::new("c", 30, []),
    );
    let totals = serve(&mut machine, &[&a, &b, &c], 1, Pass::Port).expect("it runs");
    assert_balanced(&totals);
    let sent = [&a, &b, &c].map(|port| port.take_sent().len());
    assert_eq!(sent, [0, 9, 9]);
    assert_eq!(totals.no_port, 9, "port 99 is not here");
}

#[test]
fn cpu_maps_steer_to_workers_and_overflow_is_counted() {
    let mut machine = redirects(MapKind::CpuMap, 0);
    entry(&mut machine, 1, 1_000);
    entry(&mut machine, 2, 1_000);
    entry(&mut machine, 7, 1_000);
    let mut arrivals = frames(1, 100);
    arrivals.extend(frames(2, 60));
    arrivals.extend(frames(7, 5));
    let port = MemoryPort::new("a", 1, arrivals);
    let totals = serve(&mut machine, &[&port], 3, Pass::Port).expect("it runs");
    assert_balanced(&totals);
    assert_eq!((totals.steered, totals.no_worker), (160, 5));
    assert_eq!(port.take_passed().len(), 160);

    // The worker steers to itself and is not at its queue before the batch of 32 is out.
    let mut machine = redirects(MapKind::CpuMap, 0);
    entry(&mut machine, 0, 10);
    let port = MemoryPort::new("a", 1, frames(0, 32));
    let totals = serve(&mut machine, &[&port], 1, Pass::Port).expect("it runs");
    assert_eq!((totals.steered, totals.queue_full), (10, 22));
    assert_eq!(port.take_passed().len(), 10);
}

#[test]
fn what_the_service_does_not_have_is_counted() {
    let mut machine = redirects(MapKind::XskMap, 0);
    entry(&mut machine, 1, 1);
    let port = MemoryPort::new("a", 1, frames(1, 8));
    let totals = serve(&mut machine, &[&port], 1, Pass::Port).expect("it runs");
    assert_eq!((totals.no_socket, totals.failed()), (8, 8));

    let mut machine = redirects(MapKind::DevMap, 0);
    let map = machine.map_mut("targets").expect("the map");
    let value = [1, 0, 0, 0, 5, 0, 0, 0];
    map.update(&1u32.to_le_bytes(), &value, BPF_ANY)
        .expect("an entry");
    let port = MemoryPort::new("a", 1, frames(1, 8));
    let totals = serve(&mut machine, &[&port], 1, Pass::Port).expect("it runs");
    assert_eq!((totals.second_program, totals.failed()), (8, 8));
}

#[test]
fn a_faulting_program_drops_and_says_so() {
    let code = [insn(0x79, 0, 2, 0, 0), insn(EXIT, 0, 0, 0, 0)];
    let mut machine = Machine::from_program(&code.concat(), Vec::new(), 1).expect("it links");
    let port = MemoryPort::new("a", 1, frames(0, 3));
    let totals = serve(&mut machine, &[&port], 1, Pass::Port).expect("it runs");
    assert_balanced(&totals);
    assert_eq!((totals.faults, totals.ports[0].aborted), (3, 3));
    assert!(totals.first_fault.is_some());

    // An endless loop ends with its budget.
    let code = [insn(0x05, 0, 0, -1, 0)];
    let mut machine = Machine::from_program(&code.concat(), Vec::new(), 1).expect("it links");
    let port = MemoryPort::new("a", 1, frames(0, 3));
    let totals = serve(&mut machine, &[&port], 1, Pass::Port).expect("it runs");
    assert_eq!(totals.faults, 3);
}

#[test]
fn impossible_services_are_refused() {
    let (a, b) = (MemoryPort::new("a", 1, []), MemoryPort::new("b", 1, []));
    let one: [&dyn Port; 1] = [&a];
    let twice: [&dyn Port; 2] = [&a, &b];
    assert!(serve(&mut returns(2), &one, 0, Pass::Port).is_err());
    assert!(serve(&mut returns(2), &one, 1, Pass::Across).is_err());
    assert!(serve(&mut returns(2), &twice, 1, Pass::Port).is_err());
    assert!(serve(&mut returns(2), &one, 5, Pass::Port).is_err());
    assert!(serve(&mut returns(2), &[], 1, Pass::Port).is_err());
}

struct BrokenPort;

impl Port for BrokenPort {
    fn name(&self) -> &str {
        "broken"
    }
    fn ifindex(&self) -> u32 {
        9
    }
    fn receive(&self, _: &mut Vec<Arrival>) -> std::io::Result<weir_engine::ports::Look> {
        Err(std::io::Error::other("gone"))
    }
    fn send(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Err(rustix::io::Errno::MSGSIZE.into())
    }
}

#[test]
fn what_a_port_refuses_is_counted_by_its_reason() {
    struct Refuses(rustix::io::Errno);
    impl Port for Refuses {
        fn name(&self) -> &str {
            "refuses"
        }
        fn ifindex(&self) -> u32 {
            2
        }
        fn receive(&self, _: &mut Vec<Arrival>) -> std::io::Result<weir_engine::ports::Look> {
            Ok(weir_engine::ports::Look::Over)
        }
        fn send(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            Err(self.0.into())
        }
    }
    use rustix::io::Errno;
    for (errno, counts) in [
        (Errno::MSGSIZE, [5, 0, 0]),
        (Errno::NOBUFS, [0, 5, 0]),
        (Errno::NETDOWN, [0, 0, 5]),
    ] {
        let a = MemoryPort::new("a", 1, frames(0, 5));
        let b = Refuses(errno);
        let totals = serve(&mut returns(2), &[&a, &b], 1, Pass::Across).expect("it runs");
        assert_eq!([totals.too_big, totals.no_room, totals.not_sent], counts);
        assert_eq!((totals.ports[1].sent, totals.failed()), (0, 5));
    }
}

#[test]
fn a_port_that_fails_ends_the_service_of_all_workers() {
    let waits = ForeverPort;
    let ports: [&dyn Port; 2] = [&waits, &BrokenPort];
    let error = serve(&mut returns(2), &ports, 2, Pass::Port).expect_err("a port is gone");
    assert!(error.to_string().contains("broken: gone"), "{error}");
}

struct PanickingPort;

impl Port for PanickingPort {
    fn name(&self) -> &str {
        "defect"
    }
    fn ifindex(&self) -> u32 {
        7
    }
    fn receive(&self, _: &mut Vec<Arrival>) -> std::io::Result<weir_engine::ports::Look> {
        panic!("a defect of a port")
    }
    fn send(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_worker_that_ends_in_a_defect_ends_the_others() {
    let ports: [&dyn Port; 2] = [&ForeverPort, &PanickingPort];
    let error = serve(&mut returns(2), &ports, 2, Pass::Port).expect_err("a worker is gone");
    assert!(error.to_string().contains("defect"), "{error}");
}

/// A port at which nothing comes, ever.
struct ForeverPort;

impl Port for ForeverPort {
    fn name(&self) -> &str {
        "quiet"
    }
    fn ifindex(&self) -> u32 {
        8
    }
    fn receive(&self, _: &mut Vec<Arrival>) -> std::io::Result<weir_engine::ports::Look> {
        Ok(weir_engine::ports::Look::Nothing)
    }
    fn send(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// Two hosts whose only connection is a program over two packet sockets: TCP with every offload on, and UDP, over IPv4 and IPv6.
#[test]
fn real_clients_work_through_a_wire() {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "this test needs root, and in CI it may not skip"
        );
        let _ = std::io::stderr()
            .write_all(b"real_clients_work_through_a_wire: skipped, it needs root\n");
        return;
    }
    let name = |part: &str| NetNs::create(&format!("weir-ports-{part}")).expect("namespace");
    let (client, middle, server) = (name("c"), name("m"), name("s"));
    let end = |ns, name, addresses| End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&client, "cl0", &["10.0.1.1/24", "fd00:1::1/64"]),
        end(&middle, "in0", &[]),
    )
    .expect("veth");
    bed::veth(
        end(&server, "sv0", &["10.0.1.2/24", "fd00:1::2/64"]),
        end(&middle, "in1", &[]),
    )
    .expect("veth");
    let stop = AtomicBool::new(false);
    let totals = thread::scope(|scope| {
        let stop = &stop;
        let middle = &middle;
        let service = scope.spawn(move || {
            middle.run(|| {
                let (a, b) = (
                    SocketPort::open("in0").expect("a port"),
                    SocketPort::open("in1").expect("a port"),
                );
                let ports: [&dyn Port; 2] = [&a, &b];
                let service = Service {
                    ports: &ports,
                    workers: 2,
                    pass: Pass::Across,
                    instruction_budget: BUDGET,
                };
                service.run(&mut returns(2), stop).expect("it runs")
            })
        });
        let served = std::panic::catch_unwind(|| exchange(&client, &server));
        stop.store(true, Ordering::Release);
        let totals = service.join().expect("no defect").expect("namespace");
        if let Err(panic) = served {
            std::panic::resume_unwind(panic);
        }
        totals
    });
    assert_balanced(&totals);
    assert_eq!(totals.failed(), 0, "{totals:?}");
    for counter in ["TcpInCsumErrors", "UdpInCsumErrors"] {
        let (group, name) = counter.split_at(3);
        for ns in [&client, &server] {
            let wrong = bed::counter(ns, group, name).expect("counters");
            assert_eq!(wrong.unwrap_or(0), 0, "{counter}");
        }
    }
}

fn exchange(client: &NetNs, server: &NetNs) {
    const BYTES: usize = 4 << 20;
    let bound = server
        .run(|| (TcpListener::bind("[::]:80"), UdpSocket::bind("[::]:53")))
        .expect("namespace");
    let (listener, socket) = (bound.0.expect("bind"), bound.1.expect("bind"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let _ = std::io::copy(&mut &stream, &mut &stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..n], from);
        }
    });
    for address in ["10.0.1.2", "fd00:1::2"] {
        let patience = Duration::from_secs(10);
        let to = SocketAddr::new(address.parse().expect("an address"), 80);
        let stream = connect(client, to, patience);
        stream.set_read_timeout(Some(patience)).expect("a timeout");
        let sent: Vec<u8> = (0..BYTES).map(|n| (n * 7 + n / 251) as u8).collect();
        let copy = sent.clone();
        let mut writing = stream.try_clone().expect("a clone");
        let writer = thread::spawn(move || {
            writing.write_all(&copy).expect("written");
            writing.shutdown(Shutdown::Write).expect("shut down");
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).expect("read");
        writer.join().expect("written");
        assert!(
            back == sent,
            "{address}: {} of {} bytes",
            back.len(),
            sent.len()
        );
        let socket = client
            .run(|| UdpSocket::bind("[::]:0"))
            .expect("namespace")
            .expect("bind");
        socket.set_read_timeout(Some(patience)).expect("a timeout");
        // An IPv6 socket knows IPv4 addresses in their mapped form.
        let datagrams = match to.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), 53),
            ip => SocketAddr::new(ip, 53),
        };
        for n in 0..50u8 {
            socket
                .send_to(&vec![n; 100 + usize::from(n) * 20], datagrams)
                .expect("sent");
            let mut buffer = [0; 2048];
            let (len, _) = socket.recv_from(&mut buffer).expect("an answer");
            assert_eq!(buffer[..len], vec![n; 100 + usize::from(n) * 20]);
        }
    }
}

/// A new bed's IPv6 needs a moment.
fn connect(client: &NetNs, to: SocketAddr, patience: Duration) -> TcpStream {
    let end = Instant::now() + patience;
    loop {
        let tried = client
            .run(|| TcpStream::connect_timeout(&to, Duration::from_secs(1)))
            .expect("namespace");
        match tried {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < end, "{to}: {error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

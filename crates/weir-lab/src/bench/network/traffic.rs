//! Traffic between two workloads: a datagram there and back, a connection for every request, and one stream.
//!
//! All threads have real-time priority, both ends of what goes back and forth on one CPU: what else the machine does waits, and no wake-up of another CPU is in the
//! figures. Invariant: threads end with the measurement.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::time::{ClockId, clock_gettime};

use super::bed::{Bed, Pair};
use crate::LabError;
use crate::bench::ddos::bed::{Precedence, bind, this_thread};
use crate::bench::measure::ksoftirqd_ns;

const PORT: u16 = 7007;
/// Bytes of a datagram.
const DATAGRAM: usize = 64;
/// How long a socket waits before its thread looks whether it should end; a datagram that takes longer is lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// What is read to push everything else out of the caches, bytes.
const CACHES: usize = 96 << 20;
/// Nothing happens for so long before a cold datagram.
const IDLE: Duration = Duration::from_millis(20);

/// Round trips in us.
pub(super) struct RoundTrips {
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// After a pause in which the row forgot what it had learned of packets.
    pub(super) first: Option<f64>,
    /// The same, and the caches were used for something else.
    pub(super) cold: Option<f64>,
}

/// Sends `count` datagrams there and back, one at a time, and `cold` after a pause each. `None`: one was lost.
pub(super) fn round_trips(
    bed: &Bed,
    count: usize,
    cold: usize,
    cpu: usize,
) -> Result<Option<RoundTrips>, LabError> {
    let pair = &bed.pairs[0];
    let over = AtomicBool::new(false);
    let echo = bound(pair)?;
    let client = pair.a.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((pair.to, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    })?;
    let client = client.map_err(LabError::io("open a socket of a workload"))?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            bind(this_thread(), cpu, Precedence::Service)?;
            let mut bytes = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                if let Ok((len, from)) = echo.recv_from(&mut bytes) {
                    let _ = echo.send_to(&bytes[..len], from);
                }
            }
            Ok::<(), LabError>(())
        });
        let asked = scope.spawn(|| {
            bind(this_thread(), cpu, Precedence::Service)?;
            let measured = ask(bed, &client, count, cold);
            over.store(true, Ordering::Relaxed);
            measured
        });
        let measured = join(asked);
        over.store(true, Ordering::Relaxed);
        join(server)?;
        measured
    })
}

fn bound(pair: &Pair) -> Result<UdpSocket, LabError> {
    let echo = pair.b.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    })?;
    echo.map_err(LabError::io("open a socket of a workload"))
}

fn ask(
    bed: &Bed,
    client: &UdpSocket,
    count: usize,
    cold: usize,
) -> Result<Option<RoundTrips>, LabError> {
    // The first ones find neighbours.
    for _ in 0..3 {
        let _ = one(client);
    }
    let warm_up = (count / 10).max(20);
    let mut all = Vec::with_capacity(count);
    for n in 0..warm_up + count {
        match one(client) {
            Some(time) if n >= warm_up => all.push(time),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    all.sort_unstable();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3;
    let mut after = [Vec::with_capacity(cold), Vec::with_capacity(cold)];
    let mut memory = vec![0u8; if cold > 0 { CACHES } else { 0 }];
    for (flushed, times) in [false, true].into_iter().zip(&mut after) {
        for _ in 0..cold {
            std::thread::sleep(IDLE);
            bed.forget()?;
            let bytes = if flushed { memory.len() } else { 0 };
            for byte in memory[..bytes].iter_mut().step_by(64) {
                *byte = byte.wrapping_add(1);
            }
            std::hint::black_box(&memory);
            match one(client) {
                Some(time) => times.push(time),
                None => return Ok(None),
            }
        }
        times.sort_unstable();
    }
    let [first, cold] = after.map(|times| {
        let middle = times.get(times.len() / 2);
        middle.map(|time| time.as_nanos() as f64 / 1e3)
    });
    Ok(Some(RoundTrips {
        p50: at(0.5),
        p99: at(0.99),
        first,
        cold,
    }))
}

fn one(client: &UdpSocket) -> Option<Duration> {
    let mut bytes = [0; DATAGRAM];
    let start = Instant::now();
    client.send(&[0x5a; DATAGRAM]).ok()?;
    let got = client.recv(&mut bytes).ok()?;
    (got == DATAGRAM).then(|| start.elapsed())
}

/// Connections a second, of all pairs together: each is opened, asked one byte, answered with one, and closed.
pub(super) fn connections(bed: &Bed, lasting: Duration, cpu: usize) -> Result<f64, LabError> {
    let over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let mut listeners = Vec::new();
    for pair in &bed.pairs {
        let listener = pair.b.run(|| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
            // accept() waits no longer than that.
            set_socket_timeout(&listener, Timeout::Recv, Some(PATIENCE))?;
            Ok(listener)
        })?;
        listeners.push(listener.map_err(LabError::io("listen in a workload"))?);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for listener in &listeners {
            threads.push(scope.spawn(|| {
                bind(this_thread(), cpu, Precedence::Service)?;
                while !over.load(Ordering::Relaxed) {
                    if let Ok((stream, _)) = listener.accept() {
                        let _ = answer(stream);
                    }
                }
                Ok::<(), LabError>(())
            }));
        }
        for pair in &bed.pairs {
            let (over, done) = (&over, &done);
            threads.push(scope.spawn(move || {
                pair.a.run(|| {
                    bind(this_thread(), cpu, Precedence::Service)?;
                    while !over.load(Ordering::Relaxed) {
                        if request(pair.to).is_ok() {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Ok::<(), LabError>(())
                })?
            }));
        }
        let measured = scope.spawn(|| {
            bind(this_thread(), cpu, Precedence::Observer)?;
            std::thread::sleep(lasting / 5);
            let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
            std::thread::sleep(lasting);
            let more = done.load(Ordering::Relaxed) - before;
            Ok::<f64, LabError>(more as f64 / start.elapsed().as_secs_f64())
        });
        let measured = join(measured);
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            join(thread)?;
        }
        measured
    })
}

/// The server closes first: the client's port is free again at once.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    stream.write_all(&byte)
}

fn request(to: Ipv4Addr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((to, PORT)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[1])?;
    let mut bytes = [0; 2];
    let mut got = 0;
    loop {
        match stream.read(&mut bytes)? {
            0 if got == 1 => return Ok(()),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => got += n,
        }
    }
}

/// What one stream came to.
pub(super) struct Stream {
    /// Gbit/s.
    pub(super) rate: f64,
    /// ms of CPU time for a gigabit, both ends and ksoftirqd.
    pub(super) cpu: f64,
}

/// One TCP stream as fast as it goes, sender and receiver on a CPU each.
pub(super) fn stream(bed: &Bed, lasting: Duration, cpus: [usize; 2]) -> Result<Stream, LabError> {
    let pair = &bed.pairs[0];
    let over = AtomicBool::new(false);
    let got = AtomicU64::new(0);
    let listener = pair
        .b
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)))?
        .map_err(LabError::io("listen in a workload"))?;
    let sender = pair
        .a
        .run(|| TcpStream::connect_timeout(&SocketAddr::from((pair.to, PORT)), 5 * PATIENCE))?
        .map_err(LabError::io("connect two workloads"))?;
    let receiver = listener
        .accept()
        .map_err(LabError::io("accept a connection of a workload"))?
        .0;
    for end in [&sender, &receiver] {
        end.set_read_timeout(Some(PATIENCE))
            .and_then(|()| end.set_write_timeout(Some(PATIENCE)))
            .map_err(LabError::io("prepare a connection of a workload"))?;
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            bind(this_thread(), cpus[0], Precedence::Service)?;
            let block = vec![0x5a; 128 << 10];
            while !over.load(Ordering::Relaxed) {
                let _ = (&sender).write(&block);
            }
            // The receiver reads to the end of it.
            let _ = sender.shutdown(std::net::Shutdown::Write);
            Ok::<(), LabError>(())
        });
        let receiving = scope.spawn(|| {
            bind(this_thread(), cpus[1], Precedence::Service)?;
            let mut block = vec![0; 256 << 10];
            while !over.load(Ordering::Relaxed) {
                if let Ok(n) = (&receiver).read(&mut block) {
                    got.fetch_add(n as u64, Ordering::Relaxed);
                }
            }
            Ok::<(), LabError>(())
        });
        std::thread::sleep(lasting / 3);
        let (before, start) = (got.load(Ordering::Relaxed), Instant::now());
        let cpu = process_ns() + ksoftirqd_ns();
        std::thread::sleep(lasting);
        let cpu = process_ns() + ksoftirqd_ns() - cpu;
        let gbit = (got.load(Ordering::Relaxed) - before) as f64 * 8.0 / 1e9;
        let seconds = start.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        join(sending)?;
        join(receiving)?;
        Ok(Stream {
            rate: gbit / seconds,
            cpu: cpu / 1e6 / gbit,
        })
    })
}

/// CPU time of this process so far, in ns.
fn process_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

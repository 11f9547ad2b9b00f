//! A bed for translated traffic: client, box, a router behind it and server in a row, with servers that echo and remember who
//! spoke to them, and exchanges that compare every byte.
//!
//! The transmit checksum offload of both last hops is off, so what an end finds wrong is counted by its kernel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

/// The server, as the router behind the box reaches it.
pub(crate) const SERVER: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
/// Addresses that nobody has; what is sent to them comes to the box.
pub(crate) const ALIAS: [&str; 2] = ["10.9.9.1", "fd00:9::1"];
pub(crate) const TCP: u16 = 80;
pub(crate) const UDP: u16 = 53;
const PATIENCE: Duration = Duration::from_secs(8);

/// Client and server with two routers between them; weir is meant for `middle`, on box0 (client) and box1.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) client: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) far: NetNs,
    pub(crate) server: NetNs,
}

impl Path {
    pub(crate) fn build(prefix: &str) -> Path {
        let name = |part: &str| NetNs::create(&format!("{prefix}-{part}")).expect("namespace");
        let path = Path {
            client: name("c"),
            middle: name("m"),
            far: name("f"),
            server: name("s"),
        };
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&path.client, "cl0", &["10.0.1.2/24", "fd00:1::2/64"]),
            end(&path.middle, "box0", &["10.0.1.1/24", "fd00:1::1/64"]),
        )
        .expect("veth");
        bed::veth(
            end(&path.middle, "box1", &["10.0.4.1/24", "fd00:4::1/64"]),
            end(&path.far, "far0", &["10.0.4.2/24", "fd00:4::2/64"]),
        )
        .expect("veth");
        bed::veth(
            end(&path.far, "far1", &["10.0.2.1/24", "fd00:2::1/64"]),
            end(&path.server, "sv0", &["10.0.2.2/24", "fd00:2::2/64"]),
        )
        .expect("veth");
        for (ns, vias) in [
            (&path.client, ["10.0.1.1", "fd00:1::1"]),
            (&path.middle, ["10.0.4.2", "fd00:4::2"]),
            (&path.far, ["10.0.4.1", "fd00:4::1"]),
            (&path.server, ["10.0.2.1", "fd00:2::1"]),
        ] {
            for via in vias {
                bed::default_route(ns, via).expect("route");
            }
        }
        for ns in [&path.middle, &path.far] {
            bed::forward(ns).expect("forwards");
        }
        path.middle.offloads_off("box0", &["tx"]).expect("offload");
        path.far.offloads_off("far1", &["tx"]).expect("offload");
        path
    }

    /// Both senders finish their checksums and cut their segments themselves.
    pub(crate) fn without_offloads(self) -> Path {
        self.client.offloads_off("cl0", &["tx"]).expect("offload");
        self.server.offloads_off("sv0", &["tx"]).expect("offload");
        self
    }

    /// Packets that either end found to have a wrong checksum.
    pub(crate) fn checksum_errors(&self) -> u64 {
        [&self.client, &self.server]
            .into_iter()
            .map(|ns| {
                let four = ["Tcp", "Udp", "Icmp"].map(|group| {
                    bed::counter(ns, group, "InCsumErrors")
                        .expect("readable")
                        .expect("exists")
                });
                four.iter().sum::<u64>()
                    + snmp6(ns, "Udp6InCsumErrors")
                    + snmp6(ns, "Icmp6InCsumErrors")
            })
            .sum()
    }
}

/// A counter of /proc/net/snmp6.
pub(crate) fn snmp6(ns: &NetNs, name: &str) -> u64 {
    let text = ns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp6"))
        .expect("namespace")
        .expect("readable");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Who spoke to a server, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(Arc<Mutex<Vec<SocketAddr>>>);

impl Peers {
    fn add(&self, mut peer: SocketAddr) {
        if let SocketAddr::V6(six) = peer
            && let Some(four) = six.ip().to_ipv4_mapped()
        {
            peer = SocketAddr::new(four.into(), six.port());
        }
        self.0.lock().expect("whole").push(peer);
    }

    /// All since the last call.
    pub(crate) fn take(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.0.lock().expect("whole"))
    }
}

/// Echo over TCP and UDP in a namespace, both families; threads end with the test process. Gives TCP's and UDP's peers.
pub(crate) fn serve(ns: &NetNs, tcp: u16, udp: u16) -> [Peers; 2] {
    let peers = [Peers::default(), Peers::default()];
    let bound = ns
        .run(|| (TcpListener::bind(("::", tcp)), UdpSocket::bind(("::", udp))))
        .expect("namespace");
    let (listener, socket) = (bound.0.expect("bind"), bound.1.expect("bind"));
    let heard = peers[0].clone();
    thread::spawn(move || {
        while let Ok((stream, from)) = listener.accept() {
            heard.add(from);
            thread::spawn(move || echo(stream));
        }
    });
    let heard = peers[1].clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            heard.add(from);
            let _ = socket.send_to(&buffer[..n], from);
        }
    });
    peers
}

fn echo(stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_nodelay(true)?;
    io::copy(&mut &stream, &mut &stream)?;
    stream.shutdown(Shutdown::Write)
}

/// Waits until both families work: a new bed's IPv6 needs a moment.
pub(crate) fn settle(from: &NetNs) {
    let end = Instant::now() + Duration::from_secs(10);
    for address in SERVER {
        // The answer comes when the server has noted who asked.
        let answered = || {
            let stream = connect(from, (address, TCP), Duration::from_millis(500))?;
            ask(&stream, b"ready?")
        };
        while answered().is_err() {
            assert!(Instant::now() < end, "no way to {address} without weir");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn socket_address(to: (&str, u16)) -> SocketAddr {
    SocketAddr::new(to.0.parse().expect("an address"), to.1)
}

pub(crate) fn connect(ns: &NetNs, to: (&str, u16), patience: Duration) -> io::Result<TcpStream> {
    let to = socket_address(to);
    let stream = ns
        .run(|| TcpStream::connect_timeout(&to, patience))
        .map_err(io::Error::other)??;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One question and its answer on a connection that stays open.
pub(crate) fn ask(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut stream = stream;
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back)?;
    same(&back, bytes)
}

/// A connection with this many bytes in both directions at once, closed in order.
pub(crate) fn tcp(ns: &NetNs, to: (&str, u16), bytes: usize) -> io::Result<()> {
    let stream = connect(ns, to, PATIENCE)?;
    let sent = message(bytes);
    let mut back = Vec::with_capacity(bytes);
    thread::scope(|scope| -> io::Result<()> {
        let writer = scope.spawn(|| -> io::Result<()> {
            (&stream).write_all(&sent)?;
            stream.shutdown(Shutdown::Write)
        });
        (&stream).read_to_end(&mut back)?;
        writer
            .join()
            .map_err(|_| io::Error::other("the writer panicked"))?
    })?;
    same(&back, &sent)
}

/// A socket that is connected to a UDP server.
pub(crate) fn udp_socket(ns: &NetNs, to: (&str, u16)) -> io::Result<UdpSocket> {
    let to = socket_address(to);
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = ns
        .run(|| UdpSocket::bind(any))
        .map_err(io::Error::other)??;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(socket)
}

/// Datagrams of these lengths, echoed.
pub(crate) fn udp(ns: &NetNs, to: (&str, u16), lens: &[usize]) -> io::Result<()> {
    let socket = udp_socket(ns, to)?;
    let mut back = vec![0; 1 << 16];
    for &len in lens {
        let sent = message(len);
        socket.send(&sent)?;
        let n = socket
            .recv(&mut back)
            .map_err(|e| io::Error::other(format!("{len} bytes: {e}")))?;
        same(&back[..n], &sent)?;
    }
    Ok(())
}

/// Three echo requests of this many bytes; all must be answered.
pub(crate) fn ping(ns: &NetNs, to: &str, bytes: usize) -> io::Result<()> {
    let bytes = bytes.to_string();
    // Without -w ping waits for the last answer only as long as two earlier ones took.
    let args = ["-c", "3", "-i", "0.2", "-w", "4", "-s", &bytes, to];
    let output = run(ns, "ping", &args)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("3 packets transmitted, 3 received") {
        return Ok(());
    }
    Err(io::Error::other(text.into_owned()))
}

pub(crate) fn run(ns: &NetNs, program: &str, args: &[&str]) -> io::Result<Output> {
    ns.command(program)
        .map_err(io::Error::other)?
        .args(args)
        .output()
}

/// Bytes without a pattern.
pub(crate) fn message(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32 ^ len as u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn same(back: &[u8], sent: &[u8]) -> io::Result<()> {
    if back == sent {
        return Ok(());
    }
    let at = back.iter().zip(sent).position(|(a, b)| a != b);
    Err(io::Error::other(format!(
        "{} bytes came back of {}, first difference {at:?}",
        back.len(),
        sent.len()
    )))
}

/// The error that a datagram (or a SYN) of this TTL meets on its way, as the sender's kernel tells it: its name, what it was sent to and by
/// whom it was stopped.
pub(crate) fn error_of(ns: &NetNs, protocol: &str, to: (&str, u16), ttl: u8) -> String {
    let script = format!(
        r"
import socket, errno
six = ':' in '{address}'
tcp = '{protocol}' == 'tcp'
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
s.setsockopt(level, 25 if six else 11, 1)
s.setsockopt(level, socket.IPV6_UNICAST_HOPS if six else socket.IP_TTL, {ttl})
s.settimeout(3)
try:
    s.connect(('{address}', {port}))
    s.send(b'who is there')
    s.recv(1)
    print('answered')
except OSError as e:
    text = errno.errorcode.get(e.errno, str(e))
    if not tcp:
        data, ancillary, flags, name = s.recvmsg(100, 500, socket.MSG_ERRQUEUE)
        extended = ancillary[0][2][16:]
        text += ' %s %d' % (name[0], name[1])
        text += ' ' + (socket.inet_ntop(socket.AF_INET6, extended[8:24]) if six else socket.inet_ntop(socket.AF_INET, extended[4:8]))
        text += ' ' + data.decode()
    print(text)
",
        address = to.0,
        port = to.1,
    );
    match run(ns, "python3", &["-c", &script]) {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).trim().to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// The IPv4 address as bytes, for frames.
pub(crate) fn octets(address: &str) -> [u8; 4] {
    address
        .parse::<Ipv4Addr>()
        .expect("an IPv4 address")
        .octets()
}

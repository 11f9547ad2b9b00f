//! Two sites joined by an underlay, each with a workload behind it. A site is an edge of weir (workload, tunnel and underlay with maps filled by
//! hand), a VXLAN device of the kernel, or Open vSwitch in user space.
//!
//! ```text
//! work: eth0 ==== w0 [site a] ul ==== ul [site b] w0 ==== eth0 :work
//! ```

mod craft;
mod ovs;

pub(crate) use craft::{Outer, inject, inner_frame, mac, packet};
pub(crate) use ovs::Ovs;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_bpf::abi::{self, exact_kind, net_slot, tunnel_kind, vi_flag};
use weir_engine::network::{Capacity, Set};
use weir_kernel::bed::{self, End};
use weir_kernel::{Direction, Filter, Frames, NetNs, PacketSocket, iface};
use weir_network::Tables;
use weir_network::exact::{place, scope};
use weir_packet::Reason;

/// The identifier of the tunnel that all tests use.
pub(crate) const IDENTIFIER: u32 = 100;
/// The tenant it belongs to.
pub(crate) const TENANT: u32 = 7;
/// VID of the workload's interface, and of the tunnel's.
pub(crate) const WORKLOAD: u32 = 1;
pub(crate) const TUNNEL: u32 = 2;

/// Where a site is: the last byte of all its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(pub(crate) u8);

impl HostId {
    /// Of the underlay.
    pub(crate) fn underlay(self, v6: bool) -> IpAddr {
        match v6 {
            false => format!("192.0.2.{}", self.0),
            true => format!("fd00:ee::{}", self.0),
        }
        .parse()
        .expect("an address")
    }

    /// Of the workload.
    pub(crate) fn inner(self, v6: bool) -> IpAddr {
        match v6 {
            false => format!("10.7.0.{}", self.0),
            true => format!("fd07::{}", self.0),
        }
        .parse()
        .expect("an address")
    }
}

/// How a site of weir sends, and what it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sends {
    pub(crate) kind: u8,
    pub(crate) v6: bool,
    pub(crate) mtu: u16,
    pub(crate) accepts: u16,
}

impl Sends {
    pub(crate) fn new(kind: u8, v6: bool) -> Sends {
        Sends {
            kind,
            v6,
            mtu: 1600,
            // Far ends that are not weir name no tenants.
            accepts: 1 << kind | abi::ACCEPTS_NO_TENANT,
        }
    }

    fn port(self) -> u16 {
        match self.kind {
            tunnel_kind::GENEVE => abi::tunnel::GENEVE_PORT,
            _ => abi::tunnel::VXLAN_PORT,
        }
    }
}

/// Whether this process is root. In CI it must be.
pub(crate) fn root(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test} needs root, and in CI it may not skip"
    );
    say(&format!("{test}: skipped, it needs root"));
    false
}

/// A line for who reads the test's output.
pub(crate) fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// An address as in keys of exact matches.
pub(crate) fn key(address: IpAddr) -> [u64; 2] {
    let v6: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let o = v6.octets();
    [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| o[at + i])))
}

fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [u32::from_ne_bytes(v4.octets()), 0, 0, 0],
        IpAddr::V6(v6) => {
            let o = v6.octets();
            std::array::from_fn(|i| u32::from_ne_bytes(std::array::from_fn(|b| o[i * 4 + b])))
        }
    }
}

/// A namespace with the underlay's device `ul`, and one with the workload.
pub(crate) struct Site {
    pub(crate) place: HostId,
    pub(crate) ns: NetNs,
    pub(crate) work: NetNs,
}

/// Both sites, joined by devices of that MTU. Nothing runs in them yet.
pub(crate) fn sites(mtu: u32) -> (Site, Site) {
    let site = |n| Site {
        place: HostId(n),
        ns: NetNs::create("weir-tn-site").expect("namespace"),
        work: NetNs::create("weir-tn-work").expect("namespace"),
    };
    let (a, b) = (site(1), site(2));
    let (of_a, of_b) = (a.underlay_addresses(), b.underlay_addresses());
    let of_a: Vec<&str> = of_a.iter().map(String::as_str).collect();
    let of_b: Vec<&str> = of_b.iter().map(String::as_str).collect();
    bed::veth(
        End {
            ns: &a.ns,
            name: "ul",
            addresses: &of_a,
        },
        End {
            ns: &b.ns,
            name: "ul",
            addresses: &of_b,
        },
    )
    .expect("underlay");
    for site in [&a, &b] {
        let mtu = mtu.to_string();
        site.ns
            .ip(&["link", "set", "ul", "mtu", &mtu])
            .expect("mtu");
    }
    (a, b)
}

impl Site {
    fn underlay_addresses(&self) -> [String; 2] {
        let p = self.place;
        [
            format!("{}/24", p.underlay(false)),
            format!("{}/64", p.underlay(true)),
        ]
    }

    pub(crate) fn inner_addresses(&self) -> [String; 2] {
        let p = self.place;
        [
            format!("{}/24", p.inner(false)),
            format!("{}/64", p.inner(true)),
        ]
    }

    fn index(&self, name: &str) -> u32 {
        let found = self.ns.run(|| iface::index_of(name));
        found.expect("namespace").expect("exists")
    }

    /// The workload behind a veth pair: `w0` here, `eth0` there.
    fn workload(&self) {
        let addresses = self.inner_addresses();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        bed::veth(
            End {
                ns: &self.ns,
                name: "w0",
                addresses: &[],
            },
            End {
                ns: &self.work,
                name: "eth0",
                addresses: &addresses,
            },
        )
        .expect("workload");
    }
}

/// A VXLAN device of the kernel's as the far site; its namespace is the workload's, too.
pub(crate) fn kernel_vxlan(site: &Site, v6: bool) {
    let (remote, local) = (
        HostId(3 - site.place.0).underlay(v6).to_string(),
        site.place.underlay(v6).to_string(),
    );
    let id = IDENTIFIER.to_string();
    let mut args = vec![
        "link", "add", "vx", "type", "vxlan", "id", &id, "remote", &remote, "local", &local,
        "dstport", "4789", "dev", "ul",
    ];
    if v6 {
        args.push("udp6zerocsumrx");
    }
    site.ns.ip(&args).expect("a VXLAN device");
    for address in site.inner_addresses() {
        let mut args = vec!["address", "add", &address, "dev", "vx"];
        if address.contains(':') {
            args.push("nodad");
        }
        site.ns.ip(&args).expect("an address");
    }
    site.ns
        .ip(&["link", "set", "vx", "mtu", "1500", "up"])
        .expect("up");
}

/// The site whose host forwards.
pub(crate) const FORWARDS: HostId = HostId(2);

/// Buckets of exact matches.
const BUCKETS: u32 = 16;

/// What the arrays of a site hold, before exact matches are placed.
pub(crate) struct Half {
    pub(crate) interfaces: Vec<abi::Vi>,
    pub(crate) exact: Vec<abi::Exact>,
    pub(crate) remotes: Vec<abi::NetRemote>,
    pub(crate) tunnels: Vec<abi::NetTunnel>,
}

/// weir at a site.
pub(crate) struct Weir {
    pub(crate) site: Site,
    pub(crate) set: Set,
    pub(crate) half: Half,
    generation: u64,
    _filters: Vec<Filter>,
}

impl Weir {
    /// One tunnel to the other site, one workload.
    pub(crate) fn start(site: Site, sends: Sends) -> Weir {
        site.workload();
        // Where the host forwards, the data plane asks for the way itself; elsewhere the kernel does, packet by packet. Sites do one each.
        if site.place == FORWARDS {
            bed::forward(&site.ns).expect("forwards");
        }
        let capacity = Capacity {
            interfaces: 16,
            bridges: 4,
            routers: 4,
            hops: 4,
            remotes: 8,
            tunnels: 8,
            lists: 8,
            steers: 1,
            selections: 1,
            punts: 1,
            buckets: BUCKETS,
            learned: 4,
        };
        let set = Set::make(capacity, 0).expect("loads");
        let mut on = vec![("w0", "workload"), ("ul", "underlay")];
        if sends.kind == tunnel_kind::KERNEL {
            site.ns
                .ip(&[
                    "link",
                    "add",
                    "vxk",
                    "type",
                    "vxlan",
                    "external",
                    "dstport",
                    "4789",
                    "nolearning",
                    "udp6zerocsumrx",
                ])
                .expect("a VXLAN device");
            site.ns
                .ip(&["link", "set", "vxk", "mtu", "1500", "up"])
                .expect("up");
            on.push(("vxk", "from_kernel"));
        }
        let filters = on
            .iter()
            .map(|(device, program)| {
                let index = site.index(device);
                let program = set.program(program).expect("loaded");
                let attached = site
                    .ns
                    .run(|| Filter::attach(program, index, Direction::Ingress, false));
                attached.expect("namespace").expect("attached")
            })
            .collect();
        let half = half(&site, sends);
        let mut weir = Weir {
            site,
            set,
            half,
            generation: 0,
            _filters: filters,
        };
        weir.apply();
        weir
    }

    /// Lets packets follow what `half` says.
    pub(crate) fn apply(&mut self) {
        self.generation += 1;
        let tables = Tables {
            interfaces: self.half.interfaces.clone(),
            exact: place(&self.half.exact, BUCKETS).expect("room"),
            bridges: Vec::new(),
            routers: Vec::new(),
            hops: Vec::new(),
            remotes: self.half.remotes.clone(),
            tunnels: self.half.tunnels.clone(),
            lists: Vec::new(),
            steers: Vec::new(),
            selections: Vec::new(),
            punts: Vec::new(),
        };
        self.set.write(self.generation, &tables).expect("written");
        self.set.switch(self.generation).expect("switched");
    }

    /// Whether a CPU knows the way to the other site.
    pub(crate) fn knows_the_way(&self) -> bool {
        let map = self.set.map("net_near").expect("there");
        let values = map.lookup_percpu(&1u32.to_ne_bytes()).expect("readable");
        values.iter().any(|near| near[4..8] != [0; 4])
    }

    /// Drops of a reason, whatever the interface.
    pub(crate) fn dropped(&self, reason: Reason) -> u64 {
        let drops = self.set.drops().expect("readable");
        let of_reason = drops.iter().filter(|(d, _)| d.reason == reason.index());
        of_reason.map(|(_, n)| n).sum()
    }

    /// All reasons to drop and notes of a program, with their numbers.
    pub(crate) fn reasons(&self, program: &str) -> Vec<(Reason, u64)> {
        let stats = self.stats(program);
        Reason::ALL
            .iter()
            .map(|r| (*r, stats.reason[r.index() as usize]))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    pub(crate) fn stats(&self, program: &str) -> abi::Stats {
        use zerocopy::FromBytes;
        let program = self.set.program(program).expect("loaded");
        let values = program
            .lookup_percpu("stats", &0u32.to_ne_bytes())
            .expect("readable");
        let mut sum = abi::Stats::read_from_bytes(&values[0]).expect("its size");
        for value in values.iter().skip(1) {
            let one = abi::Stats::read_from_bytes(value).expect("its size");
            sum.received += one.received;
            sum.bytes += one.bytes;
            for (to, from) in sum.verdict.iter_mut().zip(one.verdict) {
                *to += from;
            }
            for (to, from) in sum.reason.iter_mut().zip(one.reason) {
                *to += from;
            }
        }
        sum
    }
}

/// What the site's half says.
pub(crate) fn half(site: &Site, sends: Sends) -> Half {
    let far = HostId(3 - site.place.0).underlay(sends.v6);
    let vi = |peer, slot| abi::Vi {
        peer,
        slot,
        instance: 1,
        device: site.index("w0"),
        flags: vi_flag::ANY_MAC | vi_flag::ANY_ADDRESS,
        tenant: TENANT,
        ..Default::default()
    };
    let cell = |kind, key: [u64; 2], value| abi::Exact {
        value,
        scope: scope(kind, 0, 0),
        key,
        extra: 0,
    };
    Half {
        interfaces: vec![
            abi::Vi::default(),
            vi(TUNNEL, net_slot::TUNNEL),
            abi::Vi {
                flags: vi_flag::TUNNEL,
                ..vi(WORKLOAD, net_slot::DEVICE)
            },
        ],
        exact: vec![
            cell(exact_kind::DEVICE, [site.index("w0").into(), 0], WORKLOAD),
            cell(exact_kind::LOCAL, key(site.place.underlay(sends.v6)), 1),
            cell(exact_kind::PEER, key(far), 1),
            cell(exact_kind::TUNNEL, [IDENTIFIER.into(), 0], TUNNEL),
            cell(exact_kind::MEMBER, [IDENTIFIER.into(), 1], 1),
        ],
        remotes: vec![
            abi::NetRemote::default(),
            abi::NetRemote {
                family: if sends.v6 { 6 } else { 4 },
                kind: sends.kind,
                port: sends.port(),
                device: match sends.kind {
                    tunnel_kind::KERNEL => site.index("vxk"),
                    _ => site.index("ul"),
                },
                local: words(site.place.underlay(sends.v6)),
                address: words(far),
                mtu: sends.mtu,
                accepts: sends.accepts,
                state: 1,
                pad: [0; 4],
            },
        ],
        tunnels: vec![
            abi::NetTunnel::default(),
            abi::NetTunnel {
                identifier: IDENTIFIER,
                tenant: TENANT,
                remote: 1,
                pad: 0,
            },
        ],
    }
}

// ---- traffic ----

/// How long anything in a bed may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends so many bytes over TCP from one namespace to another and has the other say how many came.
pub(crate) fn transfer(
    from: &NetNs,
    to: &NetNs,
    address: IpAddr,
    bytes: usize,
) -> Result<(), String> {
    let told = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let listener = to
        .run(|| TcpListener::bind(SocketAddr::new(address, 0)))
        .map_err(|e| e.to_string())?
        .map_err(told("bind"))?;
    let at = listener.local_addr().map_err(told("address"))?;
    let server = thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut buffer, mut came, mut sum) = (vec![0; 1 << 16], 0u64, 0u64);
        loop {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            for byte in buffer.iter().take(n) {
                sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
            came += n as u64;
        }
        stream.write_all(&came.to_le_bytes())?;
        stream.write_all(&sum.to_le_bytes())
    });
    let connected = from
        .run(|| TcpStream::connect_timeout(&at, PATIENCE))
        .map_err(|e| e.to_string())?;
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(e) => return Err(format!("connect to {at}: {e}")),
    };
    stream
        .set_write_timeout(Some(PATIENCE))
        .map_err(told("time"))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(told("time"))?;
    let data: Vec<u8> = (0..bytes as u32)
        .map(|i| (i >> 3) as u8 ^ i as u8)
        .collect();
    let sum = data.iter().fold(0u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    stream.write_all(&data).map_err(told("write"))?;
    stream
        .shutdown(std::net::Shutdown::Write)
        .map_err(told("shut down"))?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).map_err(told("read"))?;
    let mut want = Vec::from((bytes as u64).to_le_bytes());
    want.extend(sum.to_le_bytes());
    if answer[..] != want[..] {
        return Err("other bytes came than were sent".to_owned());
    }
    match server.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(format!("server: {e}")),
        Err(_) => Err("the server panicked".to_owned()),
    }
}

/// TCP both ways, over IPv4 and IPv6.
pub(crate) fn transfers(a: (&NetNs, HostId), b: (&NetNs, HostId), bytes: usize) {
    for v6 in [false, true] {
        for ((from, _), (to, there)) in [(a, b), (b, a)] {
            transfer(from, to, there.inner(v6), bytes)
                .unwrap_or_else(|e| panic!("to {}: {e}", there.inner(v6)));
        }
    }
}

/// Three echo requests, if there is a program to send them.
pub(crate) fn ping(from: &NetNs, to: IpAddr) {
    if Command::new("ping").arg("-V").output().is_err() {
        say("no ping here: echo requests are skipped");
        return;
    }
    let to = to.to_string();
    let said = from.output("ping", &["-n", "-c", "3", "-i", "0.2", "-W", "2", &to]);
    if let Err(e) = said {
        panic!("ping {to}: {e}");
    }
}

/// What came in by a device while something ran.
#[derive(Default)]
pub(crate) struct Seen {
    /// The first frames, whole.
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) count: u64,
    /// Bytes of the longest, and how many were over 60,000.
    pub(crate) longest: usize,
    pub(crate) huge: u64,
}

/// Runs `f` and looks at what `device` of the namespace receives meanwhile.
pub(crate) fn watched<T>(ns: &NetNs, device: &str, f: impl FnOnce() -> T) -> (T, Seen) {
    let socket = ns
        .run(|| PacketSocket::open(device))
        .expect("namespace")
        .expect("a packet socket");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut frames, mut seen) = (Frames::new(), Seen::default());
            loop {
                let last = stop.load(Ordering::Relaxed);
                while socket.receive(&mut frames).expect("receives") > 0 {
                    for (frame, _) in frames.iter() {
                        seen.count += 1;
                        seen.longest = seen.longest.max(frame.len());
                        seen.huge += u64::from(frame.len() > 60_000);
                        if seen.frames.len() < 2_000 {
                            seen.frames.push(frame.to_vec());
                        }
                    }
                }
                if last {
                    return seen;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        stop.store(true, Ordering::Relaxed);
        let seen = watcher.join().expect("the watcher ends");
        match result {
            Ok(result) => (result, seen),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Waits until `f` holds; says whether it ever did.
pub(crate) fn eventually(f: impl Fn() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        if f() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What tcpdump says of frames, a block of lines for each.
pub(crate) fn tcpdump(frames: &[Vec<u8>]) -> Option<String> {
    let path = scratch("tcpdump").join("frames.pcap");
    let mut writer = weir_packet::pcap::Writer::new(Vec::new()).expect("memory");
    for frame in frames {
        writer.write(0, frame, frame.len() as u32).expect("memory");
    }
    std::fs::write(&path, writer.finish().expect("memory")).expect("written");
    let said = Command::new("tcpdump")
        .args(["-n", "-vv", "-r"])
        .arg(&path)
        .output();
    let _ = std::fs::remove_dir_all(path.parent().expect("a folder"));
    match said {
        Ok(said) => Some(String::from_utf8_lossy(&said.stdout).into_owned()),
        Err(_) => {
            say("no tcpdump here: decoding is skipped");
            None
        }
    }
}

/// A folder of this process.
pub(crate) fn scratch(name: &str) -> PathBuf {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("weir-{name}-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

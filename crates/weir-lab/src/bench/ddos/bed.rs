//! The bed of the flood: a server and the outside world, joined by one link with one receive queue.
//!
//! ```text
//! outside (client, flood): wnPID ===== wdPID :server
//! ```
//!
//! The server's receive queue is worked on by a kernel thread (NAPI in threaded mode) that is bound to the server's CPU, as the paper binds all packets to
//! one receive queue. On a veth the sender would do the receiver's work otherwise. Flood and client have another CPU. Invariant: everything vanishes
//! with the namespaces.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use weir_kernel::bed::{self, End};
use weir_kernel::{Link, LoadedProgram, NetNs, XdpMode, iface, sched};

use crate::LabError;
use crate::bench::edge::{self, Function, Standing};
use crate::bench::measure::{processes, schedstat_ns};
use crate::bench::xdp::bed::received;
use crate::bench::xdp::traffic::{BOX_MAC, TARGET_V4};

/// Where the client is.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 255, 1, 1);
/// Where the service listens.
const PORT: u16 = 7;

/// A server with its link.
pub(crate) struct Bed {
    server: Arc<NetNs>,
    outside: NetNs,
    name: String,
    server_at: u32,
    flood_at: u32,
    /// The thread that works on the receive queue.
    queue: Vec<u32>,
    protection: Option<Protection>,
}

/// What stands in front of the server.
enum Protection {
    Program { _link: Link },
    Edge(Standing),
}

/// What one end saw so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Frames that came out of the receive queue.
    pub(crate) arrived: u64,
    /// CPU time of the receive queue's thread, ns.
    pub(crate) busy_ns: f64,
}

impl Bed {
    /// `server_cpu` works on the receive queue, `client_cpu` on what comes back.
    pub(crate) fn build(server_cpu: usize, client_cpu: usize) -> Result<Bed, LabError> {
        let server = Arc::new(NetNs::create("weir-dos-server")?);
        let outside = NetNs::create("weir-dos-out")?;
        for ns in [server.as_ref(), &outside] {
            ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
            // The flood's sources are anywhere.
            ns.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            ns.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        }
        // The names of kernel threads carry the interface's, so each bed has its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let this = format!(
            "{}x{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let (name, near) = (format!("wd{this}"), format!("wn{this}"));
        let (here, there) = (format!("{TARGET_V4}/24"), format!("{CLIENT}/24"));
        bed::veth(
            End {
                ns: &outside,
                name: &near,
                addresses: &[&there],
            },
            End {
                ns: &server,
                name: &name,
                addresses: &[&here],
            },
        )?;
        let mac = BOX_MAC.map(|b| format!("{b:02x}")).join(":");
        server.ip(&["link", "set", &name, "address", &mac])?;
        bed::default_route(&server, &CLIENT.to_string())?;
        server.output("ethtool", &["-K", &name, "gro", "on"])?;
        outside.output("ethtool", &["-K", &near, "gro", "on"])?;
        // A checksum that the sender leaves to the device is lost on the way to another CPU.
        outside.offloads_off(&near, &["tx", "tso", "gso"])?;
        server.offloads_off(&name, &["tx", "tso", "gso"])?;
        threaded(&server, &name)?;
        threaded(&outside, &near)?;
        let server_at = server.run(|| iface::index_of(&name))??;
        let flood_at = outside.run(|| iface::index_of(&near))??;
        let queue = bind_queue(&name, server_cpu)?;
        bind_queue(&near, client_cpu)?;
        Ok(Bed {
            server,
            outside,
            name,
            server_at,
            flood_at,
            queue,
            protection: None,
        })
    }

    /// Puts a program in front of the server.
    pub(crate) fn protect(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        let at = self.server_at;
        let link = self
            .server
            .run(|| program.attach_xdp(at, XdpMode::Native))??;
        self.protection = Some(Protection::Program { _link: link });
        Ok(())
    }

    /// Puts a function of weir's in front of the server.
    pub(crate) fn protect_by(
        &mut self,
        function: &Function,
        end: edge::End<'_>,
    ) -> Result<(), LabError> {
        let edge = Standing::apply(&self.server, &[&self.name], function, end)?;
        self.protection = Some(Protection::Edge(edge));
        Ok(())
    }

    /// What weir's function dropped so far, and why.
    pub(crate) fn dropped(&self) -> Result<Vec<(&'static str, u64)>, LabError> {
        match &self.protection {
            Some(Protection::Edge(edge)) => edge.reasons(),
            _ => Ok(Vec::new()),
        }
    }

    /// A socket of the service.
    pub(crate) fn listen(&self) -> Result<TcpListener, LabError> {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
        self.server
            .run(|| TcpListener::bind(address))?
            .map_err(LabError::io("listen in the server's namespace"))
    }

    /// A connection to the service.
    pub(crate) fn connect(&self) -> Result<TcpStream, LabError> {
        let address = SocketAddr::new(IpAddr::V4(TARGET_V4), PORT);
        self.outside
            .run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))?
            .map_err(LabError::io("connect to the server"))
    }

    /// The namespace of flood and client, and the interface that the flood leaves by.
    pub(crate) fn outside(&self) -> (&NetNs, u32) {
        (&self.outside, self.flood_at)
    }

    pub(crate) fn seen(&self) -> Result<Seen, LabError> {
        let dev = self
            .server
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default())?;
        Ok(Seen {
            arrived: received(&dev, &self.name),
            busy_ns: self.queue.iter().filter_map(|t| schedstat_ns(*t)).sum(),
        })
    }
}

/// The threads that work on an interface's receive queues, bound to a CPU.
fn bind_queue(name: &str, cpu: usize) -> Result<Vec<u32>, LabError> {
    let prefix = format!("napi/{name}-");
    let threads = processes(|comm| comm.starts_with(&prefix));
    if threads.is_empty() {
        return Err(LabError::Engine(format!(
            "the kernel started no thread for the receive queue of {name}: threaded NAPI is not available"
        )));
    }
    for thread in &threads {
        bind(*thread, cpu, Precedence::Queue)?;
    }
    Ok(threads)
}

/// Who goes first on a CPU: receive queues as interrupts would, then those who serve and ask, and the flood last; who counts sleeps nearly always. What else the machine does waits
/// for all of them: these are priorities of real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    Flood = 5,
    Service = 10,
    Queue = 15,
    Observer = 20,
}

/// Gives a thread its precedence.
pub(crate) fn prefer(thread: u32, precedence: Precedence) -> Result<(), LabError> {
    Ok(sched::realtime(thread, precedence as u8)?)
}

/// The same, bound to a CPU.
pub(crate) fn bind(thread: u32, cpu: usize, precedence: Precedence) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    sched_setaffinity(pid, &set).map_err(|e| LabError::Io {
        what: format!("bind thread {thread} to CPU {cpu}"),
        source: e.into(),
    })?;
    prefer(thread, precedence)
}

/// Number of the calling thread.
pub(crate) fn this_thread() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Lets kernel threads of their own work on the interface's receive queues. /sys shows the interfaces of the namespace it was mounted in.
fn threaded(ns: &NetNs, name: &str) -> Result<(), LabError> {
    let script = r#"mount --make-rprivate / && mount -t sysfs sysfs /sys && echo 1 >"/sys/class/net/$1/threaded""#;
    ns.output("unshare", &["-m", "sh", "-c", script, "sh", name])?;
    Ok(())
}

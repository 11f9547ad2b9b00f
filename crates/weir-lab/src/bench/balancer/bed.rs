//! The bed of the balancer's figures: a box with one interface and, outside, its far end, where clients send and servers are.
//!
//! ```text
//! outside: g0 ===== b0 :box
//! ```
//!
//! A program at g0 counts what the box sends to which server. Everything vanishes with the namespaces.

use std::sync::Arc;
use std::time::Duration;

use weir_kernel::bed::{self, End};
use weir_kernel::{KernelError, Link, LoadedProgram, NetNs, XdpMode, iface};

use super::traffic::{BOX_MAC, FIRST, FRAME};
use crate::LabError;
use crate::bench::measure::CpuClock;
use crate::bench::testrun::load_baseline;
use crate::bench::xdp::bed::received;

/// The box's interface.
pub(crate) const DEVICE: &str = "b0";
/// Places of the counters of servers in `placed.c`.
const PLACES: usize = 1024;

/// A box and what surrounds it.
pub(crate) struct Bed {
    pub(crate) middle: Arc<NetNs>,
    outside: NetNs,
    placed: LoadedProgram,
    clients: u32,
    generator_at: u32,
    _links: Vec<Link>,
}

/// What a burst came to.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    /// CPU time in ns.
    pub(crate) ns: f64,
    /// Packets that reached the box.
    pub(crate) entered: u64,
    /// Packets that came back, by the server's number.
    pub(crate) servers: Vec<u64>,
}

impl Burst {
    /// Packets that came back.
    pub(crate) fn back(&self) -> u64 {
        self.servers.iter().sum()
    }
}

impl Bed {
    /// `by_mac`: servers are told apart by their link-layer addresses. `clients`: remembers where each of so many went; 0: does not.
    pub(crate) fn build(by_mac: bool, clients: u32) -> Result<Bed, LabError> {
        let middle = Arc::new(NetNs::create("weir-lb-box")?);
        let outside = NetNs::create("weir-lb-out")?;
        // Nothing but the generator may send.
        for ns in [&*middle, &outside] {
            ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        }
        for (name, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            ("net.ipv4.conf.all.send_redirects", "0"),
            ("net.ipv4.conf.default.send_redirects", "0"),
        ] {
            middle.sysctl(name, value)?;
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        let inside = ["10.254.0.1/24"];
        bed::veth(end(&outside, "g0", &[]), end(&middle, DEVICE, &inside))?;
        let mac = BOX_MAC.map(|b| format!("{b:02x}")).join(":");
        middle.ip(&["link", "set", DEVICE, "address", &mac])?;
        let next = ["10.254.0.2", "lladdr", "02:00:00:00:00:01", "dev", DEVICE];
        middle.ip(&[&["neigh", "add"], &next[..], &["nud", "permanent"]].concat())?;
        bed::default_route(&middle, "10.254.0.2")?;
        middle.output("ethtool", &["-K", DEVICE, "gro", "on"])?;
        let constants = [
            ("weir_first", FIRST.to_bits()),
            ("weir_clients", clients),
            ("weir_keep", u32::from(clients > 0)),
            ("weir_by_mac", u32::from(by_mac)),
        ];
        let placed = load_baseline("placed", &constants, &[("where", clients as usize)])?;
        let (link, generator_at) = outside.run(|| {
            let at = iface::index_of("g0")?;
            Ok::<_, KernelError>((placed.attach_xdp(at, XdpMode::Native)?, at))
        })??;
        Ok(Bed {
            middle,
            outside,
            placed,
            clients,
            generator_at,
            _links: vec![link],
        })
    }

    /// Puts a program of ours onto the box's interface for good.
    pub(crate) fn attach(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        let link = self
            .middle
            .run(|| program.attach_xdp(iface::index_of(DEVICE)?, XdpMode::Native))??;
        self._links.push(link);
        Ok(())
    }

    /// Sends so many packets on one CPU and waits until all that is under way has settled, of which so many must come back.
    pub(crate) fn burst(
        &self,
        generator: &LoadedProgram,
        count: u32,
        expected: u64,
        cpu: usize,
    ) -> Result<Burst, LabError> {
        let before = (self.entered()?, self.servers()?, self.arrived()?);
        let ns = self.outside.run(|| {
            let clock = CpuClock::on(cpu)?;
            let start = clock.ns();
            generator.run_live(&[0; FRAME], self.generator_at, count)?;
            // What ksoftirqd took over belongs to the cost.
            for _ in 0..50 {
                if self.arrived()? >= before.2 + expected {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<f64, LabError>(clock.ns() - start)
        })??;
        let mut last = self.arrived()?;
        for _ in 0..1000 {
            std::thread::sleep(Duration::from_millis(1));
            let now = self.arrived()?;
            if std::mem::replace(&mut last, now) == now {
                break;
            }
        }
        let after = self.servers()?;
        let more = after.iter().zip(&before.1).map(|(a, b)| a - b);
        Ok(Burst {
            ns,
            entered: self.entered()? - before.0,
            servers: more.collect(),
        })
    }

    /// The server of each client that had a packet; 0: none came back.
    pub(crate) fn places(&self) -> Result<Vec<u32>, LabError> {
        let place = |n: u32| -> Result<u32, LabError> {
            let value = self.placed.lookup("where", &n.to_ne_bytes())?;
            let word = value.and_then(|v| v.try_into().ok());
            Ok(word.map_or(0, u32::from_ne_bytes))
        };
        (0..self.clients).map(place).collect()
    }

    fn servers(&self) -> Result<Vec<u64>, LabError> {
        (0..PLACES as u32)
            .map(|n| self.counter("servers", n))
            .collect()
    }

    fn arrived(&self) -> Result<u64, LabError> {
        self.counter("arrived", 0)
    }

    fn counter(&self, map: &str, place: u32) -> Result<u64, LabError> {
        let values = self.placed.lookup_percpu(map, &place.to_ne_bytes())?;
        let number = |v: &Vec<u8>| v.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(values.iter().map(number).sum())
    }

    /// Packets that the box received so far, dropped ones included.
    fn entered(&self) -> Result<u64, LabError> {
        let dev = self
            .middle
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(LabError::io("read /proc/net/dev"))?;
        Ok(received(&dev, DEVICE))
    }
}

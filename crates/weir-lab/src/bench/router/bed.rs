//! The bed of the router's figures: a box that routes between two interfaces, and one outside namespace that has both far ends.
//!
//! ```text
//! outside: g0 ===== b0 :box: b1 ===== s0 :outside
//! ```
//!
//! The generator sends from g0. s0 stands for all next hops, whose link-layer addresses are known: a program counts there what was forwarded
//! as it must be. Everything vanishes with the namespaces.

use std::sync::Arc;
use std::time::Duration;

use weir_kernel::bed::{self, End};
use weir_kernel::{KernelError, Link, LoadedProgram, NetNs, XdpMode, iface};

use super::table::{HOPS, hop4};
use super::traffic::{BOX_MAC, FRAME};
use crate::LabError;
use crate::bench::measure::CpuClock;
use crate::bench::testrun::load_baseline;
use crate::bench::xdp::bed::received;
use crate::process::Scratch;

/// The box's interface that packets come in by.
pub(crate) const INSIDE: &str = "b0";
/// The one they leave by.
pub(crate) const BEHIND: &str = "b1";

/// A box and what surrounds it.
pub(crate) struct Bed {
    pub(crate) middle: Arc<NetNs>,
    outside: NetNs,
    far: LoadedProgram,
    generator_at: u32,
    _links: Vec<Link>,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Reached the box.
    pub(crate) entered: u64,
    /// Came out behind it as they must.
    pub(crate) right: u64,
    /// Came out otherwise.
    pub(crate) wrong: u64,
}

/// What a burst came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// CPU time in ns.
    pub(crate) ns: f64,
    pub(crate) counts: Counts,
}

impl Bed {
    /// A box whose only route goes to the first next hop.
    pub(crate) fn build(scratch: &Scratch) -> Result<Bed, LabError> {
        let middle = Arc::new(NetNs::create("weir-route-box")?);
        let outside = NetNs::create("weir-route-out")?;
        // Nothing but the generator may send.
        outside.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        outside.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        for (name, value) in [
            ("net.ipv6.conf.default.addr_gen_mode", "1"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ] {
            middle.sysctl(name, value)?;
        }
        bed::forward(&middle)?;
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        let inside = ["10.254.0.1/24", "fd0e::1/64"];
        let behind = ["10.255.0.1/24", "fd0f::1/64"];
        bed::veth(end(&outside, "g0", &[]), end(&middle, INSIDE, &inside))?;
        bed::veth(end(&outside, "s0", &[]), end(&middle, BEHIND, &behind))?;
        let mac = BOX_MAC.map(|b| format!("{b:02x}")).join(":");
        let mut lines = format!("link set {INSIDE} address {mac}\n");
        for n in 0..HOPS {
            for address in [hop4(n).to_string(), hop6(n)] {
                lines += &format!(
                    "neigh add {address} lladdr 02:00:00:00:05:{n:02x} dev {BEHIND} nud permanent\n"
                );
            }
        }
        lines += &format!("route add default via {} dev {BEHIND}\n", hop4(0));
        lines += &format!("-6 route add default via {} dev {BEHIND}\n", hop6(0));
        batch(
            &middle,
            scratch,
            &lines.replace("-6 route add default", "route add ::/0"),
        )?;
        middle.output("ethtool", &["-K", INSIDE, "gro", "on"])?;
        let far = load_baseline("far", &[], &[])?;
        let (link, generator_at) = outside.run(|| {
            let link = far.attach_xdp(iface::index_of("s0")?, XdpMode::Native)?;
            Ok::<_, KernelError>((link, iface::index_of("g0")?))
        })??;
        Ok(Bed {
            middle,
            outside,
            far,
            generator_at,
            _links: vec![link],
        })
    }

    /// Puts a program of ours onto the box's entrance for good.
    pub(crate) fn attach(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        let link = self
            .middle
            .run(|| program.attach_xdp(iface::index_of(INSIDE)?, XdpMode::Native))??;
        self._links.push(link);
        Ok(())
    }

    /// Sends so many packets on one CPU and waits until all that is under way has settled, of which so many must come out behind the box.
    pub(crate) fn burst(
        &self,
        generator: &LoadedProgram,
        count: u32,
        expected: u64,
        cpu: usize,
    ) -> Result<Burst, LabError> {
        let before = self.counts()?;
        let ns = self.outside.run(|| {
            let clock = CpuClock::on(cpu)?;
            let start = clock.ns();
            generator.run_live(&[0; FRAME], self.generator_at, count)?;
            // What ksoftirqd took over belongs to the cost.
            for _ in 0..50 {
                if self.place(RIGHT)? >= before.right + expected {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<f64, LabError>(clock.ns() - start)
        })??;
        let mut last = self.counts()?;
        for _ in 0..1000 {
            std::thread::sleep(Duration::from_millis(1));
            let now = self.counts()?;
            if std::mem::replace(&mut last, now) == now {
                break;
            }
        }
        Ok(Burst {
            ns,
            counts: Counts {
                entered: last.entered - before.entered,
                right: last.right - before.right,
                wrong: last.wrong - before.wrong,
            },
        })
    }

    fn place(&self, place: u32) -> Result<u64, LabError> {
        let values = self.far.lookup_percpu("forwarded", &place.to_ne_bytes())?;
        let number = |v: &Vec<u8>| v.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(values.iter().map(number).sum())
    }

    fn counts(&self) -> Result<Counts, LabError> {
        let dev = self
            .middle
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(LabError::io("read /proc/net/dev"))?;
        Ok(Counts {
            entered: received(&dev, INSIDE),
            right: self.place(RIGHT)?,
            wrong: self.place(WRONG)?,
        })
    }
}

/// Places of the far end's counters.
const RIGHT: u32 = 0;
const WRONG: u32 = 1;

/// Runs lines of `ip` in a namespace.
pub(crate) fn batch(ns: &NetNs, scratch: &Scratch, lines: &str) -> Result<(), LabError> {
    let path = scratch.write("ip.batch", lines.as_bytes())?;
    ns.ip(&["-batch", &path.to_string_lossy()])?;
    Ok(())
}

fn hop6(n: u32) -> String {
    format!("fd0f::{:x}", n + 2)
}

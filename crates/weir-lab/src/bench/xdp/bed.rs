//! The bed of the live XDP figures: a box between two interfaces, and one outside namespace that has both far ends.
//!
//! ```text
//! outside: g0 ===== b0 :box: b1 ===== s0 :outside
//! ```
//!
//! The generator sends from g0. Programs that count stand on g0 (what the box sends back) and s0 (what comes out behind it); XDP programs under test
//! take turns on b0. Without one b0 still has NAPI (its GRO is on). Everything vanishes with the namespaces.

use std::sync::Arc;
use std::time::Duration;

use weir_kernel::bed::{self, End};
use weir_kernel::{KernelError, Link, LoadedProgram, NetNs, XdpMode, iface};

use super::traffic::{self, Generator};
use crate::LabError;
use crate::bench::measure::CpuClock;
use crate::bench::testrun::load_baseline;

/// The box's interface that packets come in by.
pub(crate) const INSIDE: &str = "b0";
/// The one they leave by.
pub(crate) const BEHIND: &str = "b1";

/// A bed with its counting ends.
pub(crate) struct Bed {
    pub(crate) middle: Arc<NetNs>,
    outside: NetNs,
    /// On g0 and s0.
    sinks: [LoadedProgram; 2],
    generator_at: u32,
    inside_at: u32,
    /// Of the program under test.
    under_test: Option<Link>,
    _links: Vec<Link>,
}

/// Where packets went, or were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Reached the box.
    pub(crate) entered: u64,
    /// Came back to the generator's end.
    pub(crate) back: u64,
    /// Came out behind the box.
    pub(crate) out: u64,
    /// Reached IPv4 or IPv6 of the box's stack.
    pub(crate) stack: u64,
    /// Were handed to another CPU and seen there.
    pub(crate) moved: u64,
}

/// What a burst came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// CPU time in ns.
    pub(crate) ns: f64,
    pub(crate) counts: Counts,
}

impl Bed {
    pub(crate) fn build() -> Result<Bed, LabError> {
        let middle = Arc::new(NetNs::create("weir-xdp-box")?);
        let outside = NetNs::create("weir-xdp-out")?;
        // Nothing but the generator may send.
        outside.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        outside.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        for (name, value) in [
            ("net.ipv6.conf.default.addr_gen_mode", "1"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            ("net.ipv4.ip_forward", "1"),
        ] {
            middle.sysctl(name, value)?;
        }
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(end(&outside, "g0", &[]), end(&middle, INSIDE, &[]))?;
        bed::veth(
            end(&outside, "s0", &[]),
            end(&middle, BEHIND, &["10.255.0.1/30"]),
        )?;
        let mac = traffic::BOX_MAC.map(|b| format!("{b:02x}")).join(":");
        middle.ip(&["link", "set", INSIDE, "address", &mac])?;
        let next = [
            "10.255.0.2",
            "lladdr",
            "02:00:00:00:00:05",
            "dev",
            BEHIND,
            "nud",
            "permanent",
        ];
        middle.ip(&[&["neigh", "add"], &next[..]].concat())?;
        bed::default_route(&middle, "10.255.0.2")?;
        middle.output("ethtool", &["-K", INSIDE, "gro", "on"])?;
        let sinks = [
            load_baseline("sink", &[], &[])?,
            load_baseline("sink", &[], &[])?,
        ];
        let (links, generator_at) = outside.run(|| {
            let at = iface::index_of("g0")?;
            let links = vec![
                sinks[0].attach_xdp(at, XdpMode::Native)?,
                sinks[1].attach_xdp(iface::index_of("s0")?, XdpMode::Native)?,
            ];
            Ok::<_, KernelError>((links, at))
        })??;
        let inside_at = middle.run(|| iface::index_of(INSIDE))??;
        Ok(Bed {
            middle,
            outside,
            sinks,
            generator_at,
            inside_at,
            under_test: None,
            _links: links,
        })
    }

    /// Puts a program onto the box's entrance, in the place of the one before.
    pub(crate) fn attach(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        match &mut self.under_test {
            Some(link) => link.update(program)?,
            None => {
                let at = self.inside_at;
                let link = self
                    .middle
                    .run(|| program.attach_xdp(at, XdpMode::Native))??;
                self.under_test = Some(link);
            }
        }
        Ok(())
    }

    /// Sends so many packets on one CPU, at most `chunk` in a call, and waits until all that is under way has settled. CPU time of `helpers` counts,
    /// too. `moved` counts what was handed to another CPU.
    pub(crate) fn burst(
        &self,
        generator: &Generator,
        count: u32,
        chunk: u32,
        cpu: usize,
        helpers: &[u32],
        moved: &(dyn Fn() -> Result<u64, LabError> + Sync),
    ) -> Result<Burst, LabError> {
        let before = self.counts(moved)?;
        let at = self.generator_at;
        generator.pace(None)?;
        let ns = self.outside.run(|| {
            let clock = CpuClock::on(cpu)?.and(helpers.iter().copied());
            let start = clock.ns();
            let mut left = count;
            while left > 0 {
                let now = left.min(chunk);
                generator.send(at, now)?;
                left -= now;
                if !helpers.is_empty() {
                    // Another CPU has a queue to empty, when it gets to it.
                    let sent = u64::from(count - left);
                    wait_until(|| Ok(moved()? - before.moved >= sent))?;
                }
            }
            Ok::<f64, LabError>(clock.ns() - start)
        })??;
        self.settle(moved)?;
        let after = self.counts(moved)?;
        Ok(Burst {
            ns,
            counts: after.since(before),
        })
    }

    /// Waits until no counter moves any more.
    fn settle(&self, moved: &dyn Fn() -> Result<u64, LabError>) -> Result<(), LabError> {
        let seen =
            || -> Result<u64, LabError> { Ok(self.arrived(0)? + self.arrived(1)? + moved()?) };
        let mut last = seen()?;
        std::thread::sleep(Duration::from_millis(1));
        wait_until(|| {
            let now = seen()?;
            Ok(std::mem::replace(&mut last, now) == now)
        })
    }

    pub(crate) fn counts(
        &self,
        moved: &dyn Fn() -> Result<u64, LabError>,
    ) -> Result<Counts, LabError> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let [dev, v4, v6] = self
            .middle
            .run(|| ["dev", "snmp", "snmp6"].map(|file| read(file).unwrap_or_default()))?;
        Ok(Counts {
            entered: received(&dev, INSIDE),
            back: self.arrived(0)?,
            out: self.arrived(1)?,
            stack: ip_received(&v4) + ip6_received(&v6),
            moved: moved()?,
        })
    }

    fn arrived(&self, sink: usize) -> Result<u64, LabError> {
        counter(&self.sinks[sink], "arrived")
    }
}

impl Counts {
    fn since(self, before: Counts) -> Counts {
        Counts {
            entered: self.entered - before.entered,
            back: self.back - before.back,
            out: self.out - before.out,
            stack: self.stack - before.stack,
            moved: self.moved - before.moved,
        }
    }
}

/// Waits for something, a second at most.
fn wait_until(mut done: impl FnMut() -> Result<bool, LabError>) -> Result<(), LabError> {
    for _ in 0..1000 {
        if done()? {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The sum of a per-CPU counter.
pub(crate) fn counter(program: &LoadedProgram, map: &str) -> Result<u64, LabError> {
    let values = program.lookup_percpu(map, &[0; 4])?;
    let number = |v: &Vec<u8>| v.as_slice().try_into().map_or(0, u64::from_ne_bytes);
    Ok(values.iter().map(number).sum())
}

/// Packets that an interface received, dropped ones included, from /proc/net/dev.
pub(crate) fn received(dev: &str, name: &str) -> u64 {
    let line = dev
        .lines()
        .find_map(|l| l.trim().strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// `InReceives` of /proc/net/snmp.
fn ip_received(snmp: &str) -> u64 {
    let mut rows = snmp.lines().filter_map(|l| l.strip_prefix("Ip:"));
    let at = rows
        .next()
        .and_then(|names| names.split_whitespace().position(|n| n == "InReceives"));
    at.and_then(|at| rows.next()?.split_whitespace().nth(at)?.parse().ok())
        .unwrap_or(0)
}

/// `Ip6InReceives` of /proc/net/snmp6.
fn ip6_received(snmp6: &str) -> u64 {
    let line = snmp6.lines().find_map(|l| l.strip_prefix("Ip6InReceives"));
    line.and_then(|l| l.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_tables() {
        let dev = "Inter-|   Receive\n    lo:  10  1 0\n  b0: 640 10 0 0\n";
        assert_eq!(received(dev, "b0"), 10);
        assert_eq!(received(dev, "b1"), 0);
        let snmp = "Ip: Forwarding DefaultTTL InReceives\nIp: 1 64 77\nTcp: InReceives\nTcp: 3\n";
        assert_eq!(ip_received(snmp), 77);
        assert_eq!(
            ip6_received("Ip6InReceives                   \t5\nIp6InHdrErrors 0\n"),
            5
        );
    }
}

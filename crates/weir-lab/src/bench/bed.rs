//! The test beds of live measurements: a box between two interfaces, and one outside namespace that has both far ends.
//!
//! ```text
//! outside: g0 ===== b0 :box: b1 ===== s0 :outside
//! ```
//!
//! The generator sends from g0, the box forwards everything to s0, where a program counts and drops. b0 has NAPI (its GRO is
//! on), so that frames without a program on b0 arrive, too. Everything vanishes with the namespaces.

use weir_kernel::bed::{self, End};
use weir_kernel::{KernelError, Link, LoadedProgram, NetNs, XdpMode, iface};

use super::measure::CpuClock;
use super::testrun::load_baseline;
use crate::LabError;

/// The box's interface that packets come in by.
pub(crate) const INSIDE: &str = "b0";
/// Bytes of every generated frame.
pub(crate) const FRAME: usize = 96;

/// A bed with its counting far end.
pub(crate) struct Bed {
    pub(crate) middle: NetNs,
    outside: NetNs,
    sink: LoadedProgram,
    generator_at: u32,
    _links: Vec<Link>,
}

/// What a burst came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// CPU time in ns.
    pub(crate) ns: f64,
    /// Frames that reached the box.
    pub(crate) entered: u64,
    /// Frames that came out of it.
    pub(crate) arrived: u64,
}

impl Bed {
    pub(crate) fn build() -> Result<Bed, LabError> {
        let middle = NetNs::create("weir-bench-box")?;
        let outside = NetNs::create("weir-bench-out")?;
        for ns in [&middle, &outside] {
            // Nothing but the generator may send.
            ns.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
            ns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
            ns.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            ns.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        }
        middle.sysctl("net.ipv4.ip_forward", "1")?;
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(end(&outside, "g0", &[]), end(&middle, INSIDE, &[]))?;
        bed::veth(
            end(&outside, "s0", &[]),
            end(&middle, "b1", &["10.255.0.1/30"]),
        )?;
        // The destination of every built frame, and a neighbour that never answers.
        middle.ip(&["link", "set", INSIDE, "address", "02:00:00:00:00:02"])?;
        middle.ip(&[
            "neigh",
            "add",
            "10.255.0.2",
            "lladdr",
            "02:00:00:00:00:05",
            "dev",
            "b1",
            "nud",
            "permanent",
        ])?;
        bed::default_route(&middle, "10.255.0.2")?;
        middle.output("ethtool", &["-K", INSIDE, "gro", "on"])?;
        let sink = load_baseline("sink", &[], &[])?;
        let (link, generator_at) = outside.run(|| {
            let far = iface::index_of("s0")?;
            let link = sink.attach_xdp(far, XdpMode::Native)?;
            Ok::<_, KernelError>((link, iface::index_of("g0")?))
        })??;
        Ok(Bed {
            middle,
            outside,
            sink,
            generator_at,
            _links: vec![link],
        })
    }

    /// Drops everything at the box's entrance: what is left is the cost of generating and delivering.
    pub(crate) fn with_floor(mut self) -> Result<Bed, LabError> {
        let floor = load_baseline("sink", &[], &[])?;
        self.attach(&floor)?;
        Ok(self)
    }

    /// Puts a program of our own onto the box's entrance.
    pub(crate) fn attach(&mut self, program: &LoadedProgram) -> Result<(), LabError> {
        let link = self.middle.run(|| {
            let at = iface::index_of(INSIDE)?;
            program.attach_xdp(at, XdpMode::Native)
        })??;
        self._links.push(link);
        Ok(())
    }

    /// Sends so many frames on one CPU and waits until all that is under way has arrived, or `expected` frames have.
    pub(crate) fn burst(
        &self,
        generator: &LoadedProgram,
        count: u32,
        expected: u64,
        cpu: usize,
    ) -> Result<Burst, LabError> {
        let entered = self.entered()?;
        let arrived = self.arrived()?;
        let ns = self.outside.run(|| {
            let clock = CpuClock::on(cpu)?;
            let before = clock.ns();
            generator.run_live(&[0; FRAME], self.generator_at, count)?;
            // Packets that ksoftirqd took over are done within its next turns.
            for _ in 0..100 {
                if self.arrived()? - arrived >= expected {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Ok::<f64, LabError>(clock.ns() - before)
        })??;
        Ok(Burst {
            ns,
            entered: self.entered()? - entered,
            arrived: self.arrived()? - arrived,
        })
    }

    fn arrived(&self) -> Result<u64, KernelError> {
        let values = self.sink.lookup_percpu("arrived", &0u32.to_ne_bytes())?;
        let number = |v: &Vec<u8>| v.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(values.iter().map(number).sum())
    }

    /// Packets that b0 received so far, dropped ones included.
    fn entered(&self) -> Result<u64, LabError> {
        let text = self
            .middle
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(LabError::io("read /proc/net/dev"))?;
        let line = text.lines().find_map(|l| l.trim().strip_prefix("b0:"));
        let number = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
        Ok(number.unwrap_or(0))
    }
}

/// A generator of these frames, in turn.
pub(crate) fn generator(frames: &[Vec<u8>]) -> Result<LoadedProgram, LabError> {
    let constants = [("weir_frames", frames.len() as u32)];
    let program = load_baseline("generator", &constants, &[("frames", frames.len())])?;
    let keys: Vec<u8> = (0..frames.len() as u32)
        .flat_map(u32::to_ne_bytes)
        .collect();
    program.update_batch("frames", &keys, &frames.concat())?;
    Ok(program)
}

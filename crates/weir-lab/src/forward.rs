//! A process that is a function of a network in user space: frames that come in by one interface leave by the other, both ways, by packet sockets.
//!
//! What the networks' benchmark compares with. It does nothing to a frame, so it is the least that such a function costs; segments that a device has still to
//! cut and unfinished checksums travel with their frame.

use rustix::io::{read, write};
use rustix::thread::{CpuSet, sched_setaffinity};
use weir_kernel::{PacketSocket, sched};

use crate::LabError;

/// Longest frame with what the kernel says of it.
const FRAME: usize = 1 << 17;
/// That of everything the benchmark measures.
const PRIORITY: u8 = 10;

/// Forwards until the process ends, on one CPU and with real-time priority.
///
/// # Errors
/// An interface is not there, or went away.
pub fn forward(devices: [&str; 2], cpu: usize) -> Result<(), LabError> {
    let [a, b] = devices.map(PacketSocket::open);
    let (a, b) = (a?, b?);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| pass(&a, &b, cpu));
        let other = scope.spawn(|| pass(&b, &a, cpu));
        for thread in [one, other] {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}

fn pass(from: &PacketSocket, to: &PacketSocket, cpu: usize) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| LabError::Io {
        what: format!("bind a thread to CPU {cpu}"),
        source: e.into(),
    })?;
    let thread = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    sched::realtime(thread, PRIORITY)?;
    let mut frame = vec![0; FRAME];
    loop {
        let received = match read(from, &mut frame) {
            Ok(bytes) => bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => {
                return Err(LabError::Io {
                    what: format!("receive on {}", from.name()),
                    source: e.into(),
                });
            }
        };
        // What the device does not take is lost, as in any forwarder.
        let _ = write(to, &frame[..received]);
    }
}

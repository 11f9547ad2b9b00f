//! What can go wrong with sockets: each entry carries the offending value and the next step.

use std::io;

use weir_kernel::KernelError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum XskError {
    /// The process may not do that.
    #[error(
        "run as root or grant CAP_NET_RAW (sockets), CAP_NET_ADMIN and CAP_BPF (steering, busy polling): no permission to {what}"
    )]
    NoPermission {
        /// The refused operation, an infinitive without "to".
        what: String,
    },
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): use AF_PACKET")]
    NoSockets,
    /// A ring's size is not a power of two.
    #[error("{entries} entries for the {ring} ring: rings have a power of two, {} or {}", below(*.entries), above(*.entries))]
    RingSize {
        /// Which ring.
        ring: &'static str,
        /// What was asked for.
        entries: u32,
    },
    /// A frame size that frames cannot have.
    #[error("frames of {size} bytes: {why}")]
    FrameSize {
        /// What was asked for.
        size: u32,
        /// What frames can have.
        why: String,
    },
    /// Too few frames, or too many.
    #[error("{frames} frames: {why}")]
    FrameCount {
        /// What was asked for.
        frames: u32,
        /// How many there can be.
        why: &'static str,
    },
    /// The frames' memory cannot be had.
    #[error(
        "{bytes} bytes of frames are more than can be had ({why}): use fewer or smaller frames, or raise the limit with `ulimit -l unlimited`"
    )]
    UmemTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said, and the limit.
        why: String,
    },
    /// No huge pages are reserved.
    #[error(
        "{needed} huge pages of {page} kB are needed and {free} are free: `sysctl vm.nr_hugepages={needed}` reserves them, or leave huge pages out"
    )]
    NoHugePages {
        /// Pages that the frames need.
        needed: u64,
        /// Pages that are free.
        free: u64,
        /// Bytes of a page, in kB.
        page: u64,
    },
    /// The interface has no such queue.
    #[error(
        "{iface} has no queue {queue}: it has {queues} (0 to {}){}", queues.saturating_sub(1),
        if *.most > *.queues { format!("; `ethtool -L {iface} combined N`, on a veth `rx N tx N`, makes up to {most}") } else { String::new() }
    )]
    NoSuchQueue {
        /// Interface name.
        iface: String,
        /// The queue asked for.
        queue: u32,
        /// Queues in use.
        queues: u32,
        /// Queues there can be.
        most: u32,
    },
    /// Another socket holds the queue.
    #[error(
        "queue {queue} of {iface} is busy: another AF_XDP socket holds it (`ss --xdp` lists them); tried for {waited_ms} ms"
    )]
    QueueBusy {
        /// Interface name.
        iface: String,
        /// The queue.
        queue: u32,
        /// How long it was tried.
        waited_ms: u128,
    },
    /// Zero-copy was demanded and cannot be.
    #[error(
        "{iface} (driver {driver}) cannot do zero-copy: {why}; ask for copy mode, or for the kernel's choice"
    )]
    NoZeroCopy {
        /// Interface name.
        iface: String,
        /// Its driver.
        driver: String,
        /// The reason.
        why: String,
    },
    /// Frames of several buffers were demanded and cannot be.
    #[error(
        "{iface} (driver {driver}) gives no frames of several buffers to sockets: Linux 6.6 can, with drivers that have them; lower the MTU, or leave multi-buffer out"
    )]
    NoMultiBuffer {
        /// Interface name.
        iface: String,
        /// Its driver.
        driver: String,
    },
    /// The interface is down.
    #[error("{iface} is down: `ip link set {iface} up`")]
    LinkDown {
        /// Interface name.
        iface: String,
    },
    /// The interface is up and has no carrier.
    #[error("{iface} has no carrier: its cable is out, or its far end is down")]
    NoCarrier {
        /// Interface name.
        iface: String,
    },
    /// The interface went away.
    #[error("{iface} is gone: it was removed, or moved to another namespace")]
    Gone {
        /// Interface name.
        iface: String,
    },
    /// A frame of another UMEM.
    #[error("a frame of another UMEM was given to a socket of {iface}")]
    ForeignFrame {
        /// Interface name.
        iface: String,
    },
    /// The kernel returned what it was not given: a defect of the kernel or of weir.
    #[error(
        "the kernel returned a frame that lies outside of the UMEM: address {address:#x}, {len} bytes"
    )]
    BadDescriptor {
        /// As it stood in the ring.
        address: u64,
        /// Its length.
        len: u32,
    },
    /// A socket does not have the ring.
    #[error("the socket on {iface} has no {ring} ring")]
    NoRing {
        /// Interface name.
        iface: String,
        /// Which ring.
        ring: &'static str,
    },
    /// A setting that the other settings exclude.
    #[error("{0}")]
    Excluded(String),
    /// Interfaces, programs and maps.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A system call failed in a way that has no entry of its own.
    #[error("cannot {what}: {source}")]
    Sys {
        /// The refused operation, an infinitive without "to".
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl XskError {
    /// Sorts an error number: missing privilege gets its own entry.
    pub(crate) fn sys(what: impl Into<String>, source: io::Error) -> XskError {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XskError::NoPermission { what },
            _ => XskError::Sys { what, source },
        }
    }
}

fn below(entries: u32) -> u32 {
    match entries {
        0 => 1,
        n => 1 << n.ilog2(),
    }
}

fn above(entries: u32) -> u32 {
    entries
        .checked_next_power_of_two()
        .map_or(1 << 31, |n| n.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_value_and_the_next_step() {
        let ring = |entries| {
            XskError::RingSize {
                ring: "TX",
                entries,
            }
            .to_string()
        };
        assert_eq!(
            ring(1000),
            "1000 entries for the TX ring: rings have a power of two, 512 or 1024"
        );
        assert!(ring(0).ends_with("1 or 2") && ring(u32::MAX).contains("2147483648"));
        let e = XskError::NoSuchQueue {
            iface: "v0".into(),
            queue: 3,
            queues: 1,
            most: 4,
        };
        assert!(
            e.to_string()
                .starts_with("v0 has no queue 3: it has 1 (0 to 0); `ethtool -L v0")
        );
        let e = XskError::sys("open a socket", io::Error::from_raw_os_error(libc::EPERM));
        assert!(matches!(e, XskError::NoPermission { .. }));
    }
}

//! The mirror of bpf/include/generate.h. A test compares both through the objects' BTF.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Longest frame, in bytes (`GENERATE_FRAME`).
pub const FRAME: usize = 2016;
/// Bytes of tag, number and time in a frame's payload (`GENERATE_MARK`).
pub const MARK: usize = 16;

/// What a template is (`GENERATE_*`).
#[expect(missing_docs, reason = "documented in generate.h")]
pub mod flag {
    pub const ICMP4: u32 = 1;
    pub const TCP: u32 = 2;
    pub const ECHO: u32 = 4;
    pub const UDP: u32 = 8;
    pub const RAW: u32 = 16;
}

/// `struct generate_template`.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Template {
    /// Bytes of the frame.
    pub len: u32,
    /// [`flag`].
    pub flags: u32,
    /// 4 or 6.
    pub family: u32,
    /// Sum of the IPv4 header without addresses and checksum.
    pub ip_sum: u32,
    /// Sum of what the L4 checksum covers, without addresses, ports and mark.
    pub l4_sum: u64,
    /// The frame; zero behind `len`.
    pub bytes: [u8; FRAME],
    /// Zero.
    pub pad: u64,
}

impl Template {
    /// All zeros.
    pub fn empty() -> Template {
        Template::new_zeroed()
    }
}

/// `struct generate_flow`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Flow {
    /// Source address; one of IPv4 is the first four bytes.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Source port, network order; identifier of ICMP.
    pub sport: [u8; 2],
    /// Destination port, network order.
    pub dport: [u8; 2],
    /// Sum of both addresses.
    pub addresses_sum: u32,
}

/// `struct generate_state`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct State {
    /// Frames a second, 0: as fast as it goes.
    pub rate: u64,
    /// Frames to be sent, 0: until the time is over.
    pub frames: u64,
    /// ns, 0: no limit.
    pub lasting: u64,
    /// By the kernel's clock, 0: not yet.
    pub start: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that may be sent without a look at the clock.
    pub credit: u64,
    /// Not 0: it is over.
    pub over: u64,
    /// When it was over.
    pub end: u64,
    /// Runs that could not write their frame.
    pub failed: u64,
}

/// `struct generate_arrived`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Arrived {
    /// Frames of the run.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames whose number had arrived before.
    pub repeated: u64,
    /// Frames behind one with a larger number, on the same CPU.
    pub reordered: u64,
    /// Frames whose number is beyond the map of numbers.
    pub untracked: u64,
    /// Frames of others.
    pub other: u64,
    /// Largest number + 1.
    pub next: u64,
    /// Frames whose delay was taken.
    pub delays: u64,
    /// Sum of the delays, ns.
    pub delay_sum: u64,
    /// The longest, ns.
    pub delay_max: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use weir_vm::{Btf, Object};

    use super::*;

    fn btf(tool: &str) -> Btf {
        let object = Object::parse(weir_bpf::tool(tool).expect("compiled")).expect("well formed");
        object.btf().expect("objects carry BTF").clone()
    }

    macro_rules! same_layout {
        ($btf:expr, $c:literal, $rust:ty, $($member:ident),+) => {
            let layout = $btf.layout($c).unwrap_or_else(|e| panic!("{}: {e}", $c));
            assert_eq!(layout.size as usize, size_of::<$rust>(), "size of {}", $c);
            $(
                let member = layout.member(stringify!($member)).unwrap_or_else(|| panic!("{} has no {}", $c, stringify!($member)));
                assert_eq!(member.offset() as usize, offset_of!($rust, $member), "{}.{}", $c, stringify!($member));
            )+
        };
    }

    #[test]
    fn structures_have_the_same_layout_in_c_and_rust() {
        let generator = btf("generator");
        same_layout!(
            generator,
            "generate_template",
            Template,
            len,
            flags,
            family,
            ip_sum,
            l4_sum,
            bytes,
            pad
        );
        same_layout!(
            generator,
            "generate_flow",
            Flow,
            src,
            dst,
            sport,
            dport,
            addresses_sum
        );
        same_layout!(
            generator,
            "generate_state",
            State,
            rate,
            frames,
            lasting,
            start,
            sent,
            bytes,
            credit,
            over,
            end,
            failed
        );
        same_layout!(
            btf("sink"),
            "generate_arrived",
            Arrived,
            frames,
            bytes,
            repeated,
            reordered,
            untracked,
            other,
            next,
            delays,
            delay_sum,
            delay_max
        );
    }
}

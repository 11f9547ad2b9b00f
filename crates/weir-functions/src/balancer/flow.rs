//! Flows as numbers, by which rings are asked. The same on every edge and in bpf/include/sticky.h, so that all balancers of a service choose
//! alike.

use std::net::IpAddr;

use weir_bpf::abi::hash::{END, SEED, TABLE, WORD};

use super::number;

/// A flow of a protocol with ports: `ports` are those it comes from and goes to.
pub fn hash(from: IpAddr, to: IpAddr, protocol: u8, ports: (u16, u16)) -> u64 {
    let halves = |address| {
        let (value, _) = number(address);
        ((value >> 64) as u64, value as u64)
    };
    let ((from_high, from_low), (to_high, to_low)) = (halves(from), halves(to));
    let rest = u64::from(protocol) << 32 | u64::from(ports.0) << 16 | u64::from(ports.1);
    let mut h = (from_low ^ SEED).wrapping_mul(WORD);
    h = (h ^ h >> 32 ^ to_low).wrapping_mul(TABLE);
    if from_high | to_high != 0 {
        h = (h ^ h >> 31 ^ from_high ^ to_high.rotate_left(7)).wrapping_mul(WORD);
    }
    h = (h ^ h >> 29 ^ rest).wrapping_mul(END);
    h = (h ^ h >> 32).wrapping_mul(WORD);
    h ^ h >> 29
}

/// Which of so many places of a ring a flow falls to.
pub fn place(hash: u64, places: u32) -> u32 {
    (((hash >> 32) * u64::from(places)) >> 32) as u32
}

//! `bpf_fib_lookup` and `bpf_check_mtu`, answered from [`Routes`](crate::Routes).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fault;
use crate::errno::{EAFNOSUPPORT, EINVAL, ENODEV};
use crate::interp::{Registers, Run, Step};
use crate::routes::{Route, RouteKind, Routes, TABLE_MAIN};

/// Bytes of `struct bpf_fib_lookup`.
const PARAMS: usize = 64;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const DIRECT: u32 = 1;
const OUTPUT: u32 = 2;
const SKIP_NEIGHBOUR: u32 = 4;
const TABLE: u32 = 8;
const SOURCE: u32 = 16;
const ALL_FLAGS: u32 = 63;

const SUCCESS: i64 = 0;
const BLACKHOLE: i64 = 1;
const UNREACHABLE: i64 = 2;
const PROHIBIT: i64 = 3;
const NOT_FORWARDED: i64 = 4;
const FORWARDING_OFF: i64 = 5;
const NO_NEIGHBOUR: i64 = 7;
const TOO_LONG: i64 = 8;
const NO_SOURCE: i64 = 9;

/// `BPF_MTU_CHK_RET_FRAG_NEEDED`.
const MTU_TOO_LONG: u64 = 1;

impl Run<'_> {
    pub(super) fn fib_lookup(&mut self, regs: &Registers) -> Step<u64> {
        self.context(69, regs)?;
        let length = regs[3] as u32 as usize;
        let given = self.memory.bytes(regs[2], length).map_err(fault)?;
        let Some(given) = given.first_chunk::<PARAMS>() else {
            return Ok(EINVAL as u64);
        };
        let flags = regs[4] as u32;
        if regs[4] & !u64::from(ALL_FLAGS) != 0 {
            return Ok(EINVAL as u64);
        }
        let mut params = *given;
        // Of a socket buffer whose L3 length is not given the buffer itself is judged.
        let given = params[6] != 0 || params[7] != 0;
        let whole = self.memory.frame.as_deref().map_or(0, |f| f.len());
        let buffer = (self.memory.skb.is_some() && !given).then_some(whole);
        let answer = lookup(&self.scratch.routes, &mut params, flags, buffer);
        self.memory
            .store::<PARAMS>(regs[2], params)
            .map_err(fault)?;
        Ok(answer as u64)
    }

    pub(super) fn check_mtu(&mut self, regs: &Registers) -> Step<u64> {
        self.context(163, regs)?;
        let word = self.memory.load::<4>(regs[3]).map_err(fault)?;
        let given = u32::from_le_bytes(word);
        // Socket buffers have a flag for segments, which linear ones here are not made of.
        let known = u64::from(self.memory.skb.is_some());
        if regs[5] & !known != 0 || (regs[5] != 0 && (given != 0 || regs[4] != 0)) {
            return Ok(EINVAL as u64);
        }
        let Some(link) = self.scratch.routes.link(regs[2] as u32) else {
            return Ok(ENODEV as u64);
        };
        let (mtu, header) = (i64::from(link.mtu), i64::from(link.header));
        let mut length = match given {
            0 => self.memory.frame.as_deref().map_or(0, |f| f.len() as i64),
            given => i64::from(given) + header,
        };
        length += i64::from(regs[4] as i32);
        self.memory
            .store::<4>(regs[3], (mtu as u32).to_le_bytes())
            .map_err(fault)?;
        Ok(if length > mtu + header {
            MTU_TOO_LONG
        } else {
            0
        })
    }
}

/// Answers one lookup, writing into the parameters what the kernel writes. `buffer`: bytes of the socket buffer to judge.
fn lookup(routes: &Routes, params: &mut [u8; PARAMS], flags: u32, buffer: Option<usize>) -> i64 {
    let family = params[0];
    let (source, to) = match family {
        AF_INET => (ipv4(params, 16), ipv4(params, 32)),
        AF_INET6 => (ipv6(params, 16), ipv6(params, 32)),
        _ => return EAFNOSUPPORT,
    };
    // Link-local addresses are never forwarded.
    if [source, to].iter().any(is_strict) {
        return NOT_FORWARDED;
    }
    let ifindex = word(params, 8);
    let Some(link) = routes.link(ifindex) else {
        return ENODEV;
    };
    let forwards = if family == AF_INET {
        link.forwards_ipv4
    } else {
        link.forwards_ipv6
    };
    if !forwards {
        return FORWARDING_OFF;
    }
    let mut table = (flags & DIRECT != 0).then_some(TABLE_MAIN);
    if flags & DIRECT != 0 && flags & TABLE != 0 {
        let number = word(params, 48);
        params[48..52].fill(0);
        if !routes.has_table(number) {
            return NOT_FORWARDED;
        }
        table = Some(number);
    }
    let oif = (flags & OUTPUT != 0).then_some(ifindex);
    let Some(route) = routes.find(to, table, oif) else {
        return NOT_FORWARDED;
    };
    match route.kind {
        RouteKind::Unicast => {}
        RouteKind::Blackhole => return BLACKHOLE,
        RouteKind::Unreachable => return UNREACHABLE,
        RouteKind::Prohibit => return PROHIBIT,
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Multicast => return NOT_FORWARDED,
    }
    let Some(out) = routes.link(route.ifindex) else {
        return NOT_FORWARDED;
    };
    let mtu = route.locked_mtu.unwrap_or(out.mtu).min(65_535);
    let total = u32::from(u16::from_le_bytes([params[6], params[7]]));
    if buffer.is_none() && total > mtu {
        params[6..8].copy_from_slice(&(mtu as u16).to_le_bytes());
        return TOO_LONG;
    }
    params[12..16].copy_from_slice(&route.metric.to_le_bytes());
    params[8..12].copy_from_slice(&out.ifindex.to_le_bytes());
    if flags & SOURCE != 0
        && let Err(answer) = write_source(params, route)
    {
        return answer;
    }
    let next = write_next_hop(params, route, to);
    if flags & SKIP_NEIGHBOUR == 0 {
        let Some(neighbour) = routes.neighbour(out.ifindex, next) else {
            return NO_NEIGHBOUR;
        };
        params[52..58].copy_from_slice(&out.address);
        params[58..64].copy_from_slice(&neighbour);
    }
    // No VLAN.
    params[48..52].fill(0);
    let mtu = if buffer.is_some() { out.mtu } else { mtu };
    params[6..8].copy_from_slice(&(mtu as u16).to_le_bytes());
    // A VLAN tag's worth more is let through.
    match buffer {
        Some(len) if len as u64 > u64::from(out.mtu) + u64::from(out.header) + 4 => TOO_LONG,
        _ => SUCCESS,
    }
}

/// Writes the next hop over the destination and yields it.
fn write_next_hop(params: &mut [u8; PARAMS], route: &Route, to: IpAddr) -> IpAddr {
    let next = route.via.unwrap_or(to);
    match next {
        IpAddr::V4(a) => params[32..36].copy_from_slice(&a.octets()),
        IpAddr::V6(a) => {
            params[32..48].copy_from_slice(&a.octets());
            params[0] = AF_INET6;
        }
    }
    next
}

fn write_source(params: &mut [u8; PARAMS], route: &Route) -> Result<(), i64> {
    match route.source {
        Some(IpAddr::V4(a)) => params[16..20].copy_from_slice(&a.octets()),
        Some(IpAddr::V6(a)) => params[16..32].copy_from_slice(&a.octets()),
        None => return Err(NO_SOURCE),
    }
    Ok(())
}

fn is_strict(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local(),
    }
}

fn ipv4(params: &[u8; PARAMS], at: usize) -> IpAddr {
    let mut octets = [0; 4];
    octets.copy_from_slice(&params[at..at + 4]);
    IpAddr::V4(Ipv4Addr::from(octets))
}

fn ipv6(params: &[u8; PARAMS], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&params[at..at + 16]);
    IpAddr::V6(Ipv6Addr::from(octets))
}

fn word(params: &[u8; PARAMS], at: usize) -> u32 {
    u32::from_le_bytes([params[at], params[at + 1], params[at + 2], params[at + 3]])
}

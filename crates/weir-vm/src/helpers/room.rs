//! Helpers of tc programs that tunnels are made with: room for headers, protocols, keys of the kernel's own tunnel devices.
//!
//! As in `net/core/filter.c`, in the order in which it looks at arguments: which error comes first is what programs see. A test run's packet has no
//! kind of GSO that these take.

use super::fault;
use crate::errno::{EACCES, EALREADY, EFAULT, EINVAL, ENOMEM, ENOTSUPP, EPROTO};
use crate::interp::{Registers, Run, Step};
use crate::skb::{Known, SKB_LEN_MAX, SkbField, TunnelKey};

const FIXED_GSO: u64 = 1;
const ENCAP_L3_IPV4: u64 = 1 << 1;
const ENCAP_L3_IPV6: u64 = 1 << 2;
const ENCAP_L4_GRE: u64 = 1 << 3;
const ENCAP_L4_UDP: u64 = 1 << 4;
const NO_CSUM_RESET: u64 = 1 << 5;
const ENCAP_L2_ETH: u64 = 1 << 6;
const DECAP_L3_IPV4: u64 = 1 << 7;
const DECAP_L3_IPV6: u64 = 1 << 8;
const ENCAP_L2_SHIFT: u32 = 56;
const ENCAP_L2: u64 = 0xff << ENCAP_L2_SHIFT;
const ENCAP_L3: u64 = ENCAP_L3_IPV4 | ENCAP_L3_IPV6;
const ENCAP_L4: u64 = ENCAP_L4_GRE | ENCAP_L4_UDP;
const DECAP_L3: u64 = DECAP_L3_IPV4 | DECAP_L3_IPV6;
/// Bytes that may be put in or taken out at once.
const ROOM_MOST: u32 = 0xfff;
const BEHIND_NETWORK: u64 = 0;
const BEHIND_MAC: u64 = 1;
const ETH_HEADER: u64 = 14;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const IP4: usize = 20;
const IP6: usize = 40;
/// Largest type of a packet that may be set: for another host.
const OTHER_HOST: u64 = 3;

const TUNINFO_IPV6: u64 = 1;
const TUNINFO_FLAGS: u64 = 1 << 4;
/// IPv6, no checksum, no fragments, a sequence number, no key.
const SET_KEY: u64 = 0x1f;
/// Bytes of `struct bpf_tunnel_key`, now and as it grew.
const KEY: usize = 44;
const KEYS: [usize; 4] = [8, 22, 24, 28];

impl Run<'_> {
    pub(super) fn adjust_room(&mut self, regs: &Registers) -> Step<u64> {
        self.context(50, regs)?;
        self.memory.invalidate_packet();
        let (by, mode, flags) = (regs[2] as u32 as i32, regs[3] & 0xffff_ffff, regs[4]);
        let result = self.room(by, mode, flags);
        Ok(result.err().unwrap_or(0) as u64)
    }

    fn room(&mut self, by: i32, mode: u64, flags: u64) -> Result<(), i64> {
        let more = by.unsigned_abs();
        let shrink = by < 0;
        let known = self.known();
        let protocol = self.skb_protocol();
        if flags
            & !(FIXED_GSO
                | NO_CSUM_RESET
                | ENCAP_L3
                | ENCAP_L4
                | ENCAP_L2_ETH
                | ENCAP_L2
                | DECAP_L3)
            != 0
        {
            return Err(EINVAL);
        }
        if more > ROOM_MOST {
            return Err(EFAULT);
        }
        let header = base(protocol).ok_or(ENOTSUPP)?;
        let at = match mode {
            BEHIND_NETWORK => known.network + header,
            BEHIND_MAC => known.network,
            _ => return Err(ENOTSUPP),
        };
        let least = match (flags & DECAP_L3, shrink) {
            (0, _) => header,
            (_, false) => return Err(EINVAL),
            (DECAP_L3_IPV4, true) => IP4,
            (DECAP_L3_IPV6, true) => IP6,
            _ => return Err(EINVAL),
        };
        let (more, length) = (more as usize, self.packet().len());
        let rest = length.saturating_sub(known.network);
        if shrink && (more >= rest || rest - more < least) {
            return Err(ENOTSUPP);
        }
        if !shrink && length + more > SKB_LEN_MAX {
            return Err(ENOTSUPP);
        }
        match shrink {
            true => self.shrink(at, more, flags)?,
            false => self.grow(at, more, flags)?,
        }
        if flags & NO_CSUM_RESET == 0
            && let Some(known) = self.known_mut()
        {
            known.checksums = None;
        }
        Ok(())
    }

    fn shrink(&mut self, at: usize, less: usize, flags: u64) -> Result<(), i64> {
        if flags & !(DECAP_L3 | FIXED_GSO | NO_CSUM_RESET) != 0 {
            return Err(EINVAL);
        }
        if self.is_gso() {
            return Err(ENOTSUPP);
        }
        self.pop_bytes(at, less)?;
        match (self.skb_protocol(), flags & DECAP_L3) {
            (ETH_P_IP, DECAP_L3_IPV6) => self.set_skb_protocol(ETH_P_IPV6),
            (ETH_P_IPV6, DECAP_L3_IPV4) => self.set_skb_protocol(ETH_P_IP),
            _ => {}
        }
        Ok(())
    }

    fn grow(&mut self, at: usize, more: usize, flags: u64) -> Result<(), i64> {
        if self.is_gso() {
            return Err(ENOTSUPP);
        }
        let (l3, inner_l2) = (flags & ENCAP_L3, flags >> ENCAP_L2_SHIFT);
        let encapsulate = l3 != 0;
        if encapsulate {
            let two_l4 = flags & ENCAP_L4 == ENCAP_L4;
            if l3 == ENCAP_L3 || two_l4 || (flags & ENCAP_L2_ETH != 0 && inner_l2 < ETH_HEADER) {
                return Err(EINVAL);
            }
            if self.known().encapsulated {
                return Err(EALREADY);
            }
            if inner_l2 as usize > more {
                return Err(EINVAL);
            }
        }
        self.push_zeros(at, more);
        if !encapsulate {
            return Ok(());
        }
        let v6 = l3 == ENCAP_L3_IPV6;
        if let Some(known) = self.known_mut() {
            known.encapsulated = true;
            if flags & ENCAP_L4 != 0 {
                let header = if v6 { IP6 } else { IP4 };
                known.transport = Some((known.network + header) as isize);
            }
        }
        self.set_skb_protocol(if v6 { ETH_P_IPV6 } else { ETH_P_IP });
        Ok(())
    }

    /// `bpf_skb_net_hdr_push`: zeros behind the first `at` bytes. The network header keeps its distance from the start.
    fn push_zeros(&mut self, at: usize, more: usize) {
        let mut data = self.packet().to_vec();
        let at = at.min(data.len());
        data.splice(at..at, std::iter::repeat_n(0, more));
        self.replace_packet(&data);
        self.header_moved(more as isize);
    }

    /// `bpf_skb_net_hdr_pop`.
    fn pop_bytes(&mut self, at: usize, less: usize) -> Result<(), i64> {
        let mut data = self.packet().to_vec();
        if at + less > data.len() {
            return Err(ENOMEM);
        }
        data.drain(at..at + less);
        self.replace_packet(&data);
        self.header_moved(-(less as isize));
        Ok(())
    }

    /// The transport header stays where it was, unless it was the network header.
    fn header_moved(&mut self, by: isize) {
        if let Some(known) = self.known_mut()
            && let Some(transport) = known.transport
            && transport != known.network as isize
        {
            known.transport = Some(transport + by);
        }
    }

    /// All headers are `by` bytes further from the start.
    pub(super) fn moved(&mut self, by: isize) {
        if let Some(known) = self.known_mut() {
            known.network = known.network.saturating_add_signed(by);
            known.transport = known.transport.map(|at| at + by);
        }
    }

    /// A tag of `by` bytes went into the data, or came out: putting one in moves the network header along, taking one out does not.
    pub(super) fn tagged(&mut self, by: isize) {
        const HEADER: usize = ETH_HEADER as usize;
        if let Some(known) = self.known_mut() {
            if by < 0 {
                known.network = known.network.saturating_add_signed(by).max(HEADER);
            }
            known.transport = known.transport.map(|at| at + by);
        }
    }

    pub(super) fn change_proto(&mut self, regs: &Registers) -> Step<u64> {
        self.context(31, regs)?;
        self.memory.invalidate_packet();
        let to = (regs[2] as u16).swap_bytes();
        if regs[3] != 0 {
            return Ok(EINVAL as u64);
        }
        let between = IP6 - IP4;
        let at = self.known().network;
        let result = match (self.skb_protocol(), to) {
            (ETH_P_IP, ETH_P_IPV6) | (ETH_P_IPV6, ETH_P_IP) if self.is_gso() => Err(ENOTSUPP),
            (ETH_P_IP, ETH_P_IPV6) => {
                self.push_zeros(at, between);
                Ok(())
            }
            (ETH_P_IPV6, ETH_P_IP) => self.pop_bytes(at, between),
            _ => Err(ENOTSUPP),
        };
        if result.is_ok() {
            self.set_skb_protocol(to);
            if let Some(fields) = self.fields() {
                fields.set(SkbField::Hash, 0);
            }
        }
        Ok(result.err().unwrap_or(0) as u64)
    }

    pub(super) fn change_type(&mut self, regs: &Registers) -> Step<u64> {
        self.context(32, regs)?;
        let wanted = regs[2] & 0xffff_ffff;
        let Some(fields) = self.fields() else {
            return Ok(EINVAL as u64);
        };
        if wanted > OTHER_HOST || u64::from(fields.get(SkbField::PacketType)) > OTHER_HOST {
            return Ok(EINVAL as u64);
        }
        fields.set(SkbField::PacketType, wanted as u32);
        Ok(0)
    }

    pub(super) fn csum_level(&mut self, regs: &Registers) -> Step<u64> {
        self.context(135, regs)?;
        const MOST: u8 = 3;
        let Some(known) = self.known_mut() else {
            return Ok(EINVAL as u64);
        };
        let now = known.checksums;
        known.checksums = match regs[2] {
            0 => return Ok(now.map_or(EACCES as u64, u64::from)),
            1 => Some(now.map_or(0, |level| (level + 1).min(MOST))),
            2 => now.and_then(|level| level.checked_sub(1)),
            3 => None,
            _ => return Ok(EINVAL as u64),
        };
        Ok(0)
    }

    pub(super) fn set_tunnel_key(&mut self, regs: &Registers) -> Step<u64> {
        self.context(21, regs)?;
        let (size, flags) = (regs[3] as u32 as usize, regs[4]);
        let given = self.memory.bytes(regs[2], size).map_err(fault)?;
        if flags & !SET_KEY != 0 || (size != KEY && !KEYS.contains(&size)) {
            return Ok(EINVAL as u64);
        }
        let mut b = [0; KEY];
        for (to, from) in b.iter_mut().zip(given) {
            *to = *from;
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| b[at + i]));
        let v6 = flags & TUNINFO_IPV6 != 0;
        if (!v6 && word(24) != 0) || b[22] != 0 || b[23] != 0 {
            return Ok(EINVAL as u64);
        }
        let address = |at: usize| {
            let mut address: [u8; 16] = std::array::from_fn(|i| b[at + i]);
            if !v6 {
                address = [0; 16];
                address[..4].copy_from_slice(&word(at).to_be_bytes());
            }
            address
        };
        let key = TunnelKey {
            id: word(0),
            v6,
            source: address(28),
            destination: address(4),
            tos: b[20],
            ttl: b[21],
            label: if v6 { word(24) & 0xf_ffff } else { 0 },
        };
        if let Some(known) = self.known_mut() {
            known.tunnel = Some(key);
        }
        Ok(0)
    }

    pub(super) fn tunnel_key(&mut self, regs: &Registers) -> Step<u64> {
        self.context(20, regs)?;
        let (size, flags) = (regs[3] as u32 as usize, regs[4]);
        let key = self.known().tunnel;
        let v6 = flags & TUNINFO_IPV6 != 0;
        let target = self.memory.bytes_mut(regs[2], size).map_err(fault)?;
        let key = match key {
            Some(key) if flags & !(TUNINFO_IPV6 | TUNINFO_FLAGS) == 0 => key,
            _ => {
                target.fill(0);
                return Ok(EINVAL as u64);
            }
        };
        if key.v6 != v6 {
            target.fill(0);
            return Ok(EPROTO as u64);
        }
        if size != KEY && (!KEYS.contains(&size) || (size == 8 && v6)) {
            target.fill(0);
            return Ok(EINVAL as u64);
        }
        let mut b = [0; KEY];
        b[..4].copy_from_slice(&key.id.to_le_bytes());
        let mut put = |at: usize, address: [u8; 16]| match v6 {
            true => b[at..at + 16].copy_from_slice(&address),
            false => {
                for (to, from) in b[at..at + 4].iter_mut().zip(address[..4].iter().rev()) {
                    *to = *from;
                }
            }
        };
        put(4, key.source);
        put(28, key.destination);
        b[20] = key.tos;
        b[21] = key.ttl;
        b[24..28].copy_from_slice(&key.label.to_le_bytes());
        for (to, from) in target.iter_mut().zip(b) {
            *to = from;
        }
        Ok(0)
    }

    pub(super) fn known(&self) -> Known {
        self.memory
            .skb
            .as_deref()
            .map_or(Known::default(), |fields| fields.known)
    }

    fn known_mut(&mut self) -> Option<&mut Known> {
        self.fields().map(|fields| &mut fields.known)
    }

    fn skb_protocol(&self) -> u16 {
        self.memory
            .skb
            .as_deref()
            .map_or(0, |fields| fields.protocol())
    }

    fn set_skb_protocol(&mut self, protocol: u16) {
        if let Some(fields) = self.fields() {
            fields.set_protocol(protocol);
        }
    }

    fn is_gso(&self) -> bool {
        self.memory
            .skb
            .as_deref()
            .is_some_and(|fields| fields.get(SkbField::GsoSize) != 0)
    }
}

/// Bytes of the plain header of a protocol that room is made in.
fn base(protocol: u16) -> Option<usize> {
    match protocol {
        ETH_P_IP => Some(IP4),
        ETH_P_IPV6 => Some(IP6),
        _ => None,
    }
}

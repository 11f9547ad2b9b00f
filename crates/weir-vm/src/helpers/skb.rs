//! Helpers of tc programs: bytes of the packet, checksums, VLAN tags, lengths, redirection.
//!
//! Results and error numbers are those of the kernel for a linear buffer whose checksum is finished. Clones and what is sent elsewhere are noted,
//! not sent. Every helper that may move the packet makes packet pointers stale, also when it fails, as for the verifier.

use super::fault;
use crate::errno::{EFAULT, EINVAL, ENOMEM, ENOTSUPP, ERANGE};
use crate::frame::Frame;
use crate::interp::{Redirect, Registers, Run, Step, Way, legacy_access};
use crate::skb::{SKB_HEADROOM, SKB_LEN_MAX, Sent, Skb, SkbField, SkbFields, protocol};

const RECOMPUTE_CSUM: u64 = 1;
const INVALIDATE_HASH: u64 = 2;
const FIELD_SIZE: u64 = 15;
const PSEUDO_HEADER: u64 = 16;
const MANGLED_0: u64 = 32;
const ENFORCE: u64 = 64;
const IPV6: u64 = 128;

/// `SKF_NET_OFF`: offsets from here up count from the network header.
const NETWORK_OFFSET: i32 = -0x10_0000;
/// `SKF_LL_OFF`: offsets from here up count from the link-layer header.
const LINK_OFFSET: i32 = -0x20_0000;

/// Addresses in front of the EtherType.
const ADDRESSES: usize = 12;
/// A link-layer header: nothing is cut below it.
const ETH_HEADER: usize = 14;
const TAG: usize = 4;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;

/// Bytes of `struct bpf_redir_neigh`.
const NEXT_HOP: usize = 20;
/// Copies that are kept.
const SENT_MOST: usize = 4096;

const TC_ACT_SHOT: u64 = 2;
const TC_ACT_REDIRECT: u64 = 7;
const BPF_F_INGRESS: u64 = 1;

impl Run<'_> {
    /// Runs a helper that only tc programs have; nothing for other numbers.
    pub(super) fn tc_helper(&mut self, number: u32, regs: &Registers) -> Step<Option<u64>> {
        let result = match number {
            9 => self.skb_store_bytes(regs)?,
            10 | 11 => self.csum_replace(number, regs)?,
            13 => self.clone_redirect(regs)?,
            18 => self.vlan_push(regs)?,
            19 => self.vlan_pop(regs)?,
            20 => self.tunnel_key(regs)?,
            21 => self.set_tunnel_key(regs)?,
            23 => {
                let way = if regs[2] & BPF_F_INGRESS != 0 {
                    Way::In
                } else {
                    Way::Out
                };
                self.tc_redirect(regs[1], regs[2] & !BPF_F_INGRESS, way)
            }
            26 => self.skb_load_bytes(regs)?,
            31 => self.change_proto(regs)?,
            32 => self.change_type(regs)?,
            38 => self.change_tail(regs)?,
            39 => self.pull_data(regs)?,
            40 => {
                self.context(40, regs)?;
                // Only of a sum over all of the packet, which nobody made.
                ENOTSUPP as u64
            }
            41 | 48 => {
                self.context(number, regs)?;
                let hash = if number == 48 { regs[2] as u32 } else { 0 };
                if let Some(fields) = self.fields() {
                    fields.set(SkbField::Hash, hash);
                }
                0
            }
            43 => self.change_head(regs)?,
            50 => self.adjust_room(regs)?,
            135 => self.csum_level(regs)?,
            152 => self.redirect_neigh(regs)?,
            // Neither has a flag.
            155 => self.tc_redirect(regs[1], regs[2], Way::Peer),
            _ => return Ok(None),
        };
        Ok(Some(result))
    }

    /// Bytes of the packet as `LD_ABS` reads them, in host order: negative offsets count from its network or link-layer header.
    pub(crate) fn packet_bytes(&mut self, at: u32, width: usize) -> Step<Option<u64>> {
        if self.memory.skb.is_none() {
            return Err(Box::new(legacy_access()));
        }
        let offset = match at as i32 {
            at @ 0.. => at as usize,
            at if at >= NETWORK_OFFSET => ETH_HEADER + (at - NETWORK_OFFSET) as usize,
            at if at >= LINK_OFFSET => (at - LINK_OFFSET) as usize,
            _ => return Ok(None),
        };
        let bytes = self.packet().get(offset..offset.saturating_add(width));
        Ok(bytes.map(|bytes| {
            bytes
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        }))
    }

    fn skb_load_bytes(&mut self, regs: &Registers) -> Step<u64> {
        self.context(26, regs)?;
        let (from, len) = (regs[2] as u32 as usize, regs[4] as u32 as usize);
        self.memory.bytes_mut(regs[3], len).map_err(fault)?;
        let part = self.packet().get(from..from.saturating_add(len));
        let found = part.map(<[u8]>::to_vec);
        let target = self.memory.bytes_mut(regs[3], len).map_err(fault)?;
        match found {
            Some(bytes) => {
                target.copy_from_slice(&bytes);
                Ok(0)
            }
            None => {
                target.fill(0);
                Ok(EFAULT as u64)
            }
        }
    }

    fn skb_store_bytes(&mut self, regs: &Registers) -> Step<u64> {
        self.context(9, regs)?;
        let (to, len) = (regs[2] as u32 as usize, regs[4] as u32 as usize);
        let source = self.memory.bytes(regs[3], len).map_err(fault)?.to_vec();
        self.memory.invalidate_packet();
        if regs[5] & !(RECOMPUTE_CSUM | INVALIDATE_HASH) != 0 {
            return Ok(EINVAL as u64);
        }
        match self.packet_mut().get_mut(to..to.saturating_add(len)) {
            Some(target) => {
                target.copy_from_slice(&source);
                Ok(0)
            }
            None => Ok(EFAULT as u64),
        }
    }

    /// `bpf_l3_csum_replace` (10) and `bpf_l4_csum_replace`.
    fn csum_replace(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        self.context(number, regs)?;
        self.memory.invalidate_packet();
        let (offset, from, to, flags) = (regs[2] as u32 as usize, regs[3], regs[4], regs[5]);
        let known = match number {
            10 => FIELD_SIZE,
            _ => FIELD_SIZE | PSEUDO_HEADER | MANGLED_0 | ENFORCE | IPV6,
        };
        if flags & !known != 0 {
            return Ok(EINVAL as u64);
        }
        if offset > 0xffff || offset & 1 != 0 {
            return Ok(EFAULT as u64);
        }
        let field = self.packet_mut().get_mut(offset..);
        let Some(field) = field.and_then(|b| b.first_chunk_mut::<2>()) else {
            return Ok(EFAULT as u64);
        };
        let old = u16::from_le_bytes(*field);
        if flags & MANGLED_0 != 0 && flags & ENFORCE == 0 && old == 0 {
            return Ok(0);
        }
        let unfolded = u32::from(old);
        let mut new = match flags & FIELD_SIZE {
            0 if from == 0 => fold(add32(to as u32, !unfolded)),
            2 => !add16(add16(!old, !(from as u16)), to as u16),
            4 => fold(add32(add32(!unfolded, !(from as u32)), to as u32)),
            _ => return Ok(EINVAL as u64),
        };
        if flags & MANGLED_0 != 0 && new == 0 {
            new = 0xffff;
        }
        *field = new.to_le_bytes();
        Ok(0)
    }

    fn change_tail(&mut self, regs: &Registers) -> Step<u64> {
        self.context(38, regs)?;
        self.memory.invalidate_packet();
        let length = regs[2] as u32 as usize;
        let known = self.known();
        let least = known.transport.filter(|at| *at > 0);
        let least = least.map_or(known.network, |at| at as usize);
        if regs[3] != 0 || !(least..=SKB_LEN_MAX).contains(&length) {
            return Ok(EINVAL as u64);
        }
        if known.encapsulated {
            return Ok(ENOTSUPP as u64);
        }
        let mut data = self.packet().to_vec();
        data.resize(length, 0);
        self.replace_packet(&data);
        Ok(0)
    }

    fn change_head(&mut self, regs: &Registers) -> Step<u64> {
        self.context(43, regs)?;
        self.memory.invalidate_packet();
        let (more, old) = (regs[2] as u32 as usize, self.packet().len());
        if regs[3] != 0 || more.saturating_add(old) > SKB_LEN_MAX {
            return Ok(EINVAL as u64);
        }
        let mut data = vec![0; more];
        data.extend_from_slice(self.packet());
        self.replace_packet(&data);
        self.moved(more as isize);
        Ok(0)
    }

    fn pull_data(&mut self, regs: &Registers) -> Step<u64> {
        self.context(39, regs)?;
        self.memory.invalidate_packet();
        // All of the packet is in one piece already.
        let fits = regs[2] as u32 as usize <= self.packet().len();
        Ok(if fits { 0 } else { ENOMEM as u64 })
    }

    fn vlan_push(&mut self, regs: &Registers) -> Step<u64> {
        self.context(18, regs)?;
        self.memory.invalidate_packet();
        let wanted = (regs[2] as u16).swap_bytes();
        let proto = match wanted {
            ETH_P_8021AD => ETH_P_8021AD,
            _ => ETH_P_8021Q,
        };
        let old = self.fields().and_then(|f| f.vlan());
        if let Some((outer, tci)) = old {
            // The tag that was beside the data goes into it.
            let mut data = self.packet().to_vec();
            if data.len() < ADDRESSES || data.len() + TAG > SKB_LEN_MAX {
                return Ok(ERANGE as u64);
            }
            let [a, b] = outer.to_be_bytes();
            let [c, d] = tci.to_be_bytes();
            data.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
            self.replace_packet(&data);
            self.tagged(TAG as isize);
            if let Some(fields) = self.fields() {
                fields.set_protocol(outer);
            }
        }
        if let Some(fields) = self.fields() {
            fields.set_vlan(Some((proto, regs[3] as u16)));
        }
        Ok(0)
    }

    fn vlan_pop(&mut self, regs: &Registers) -> Step<u64> {
        self.context(19, regs)?;
        self.memory.invalidate_packet();
        let is_tag = |p: u16| p == ETH_P_8021Q || p == ETH_P_8021AD;
        let Some(fields) = self.fields() else {
            return Ok(EINVAL as u64);
        };
        if fields.vlan().is_some() {
            fields.set_vlan(None);
        } else {
            if !is_tag(fields.protocol()) {
                return Ok(0);
            }
            if self.take_tag().is_none() {
                return Ok(ENOMEM as u64);
            }
        }
        // The next tag moves from the data to beside it.
        let Some(next) = self.fields().map(|f| f.protocol()).filter(|p| is_tag(*p)) else {
            return Ok(0);
        };
        let Some(tci) = self.take_tag() else {
            return Ok(ENOMEM as u64);
        };
        if let Some(fields) = self.fields() {
            fields.set_vlan(Some((next, tci)));
        }
        Ok(0)
    }

    /// Takes the tag behind the addresses out of the data and yields its control information.
    fn take_tag(&mut self) -> Option<u16> {
        let mut data = self.packet().to_vec();
        let tci = data.get(ETH_HEADER..)?.first_chunk::<2>().copied()?;
        data.get(..ADDRESSES + TAG + 2)?;
        data.drain(ADDRESSES..ADDRESSES + TAG);
        let now = protocol(&data);
        self.replace_packet(&data);
        self.tagged(-(TAG as isize));
        self.fields()?.set_protocol(now);
        Some(u16::from_be_bytes(tci))
    }

    fn tc_redirect(&mut self, ifindex: u64, flags: u64, way: Way) -> u64 {
        if flags != 0 {
            return TC_ACT_SHOT;
        }
        self.redirect = Some(Redirect::Device {
            ifindex: ifindex as u32,
            way,
        });
        TC_ACT_REDIRECT
    }

    /// `bpf_redirect_neigh`. A next hop that is given is read and believed.
    fn redirect_neigh(&mut self, regs: &Registers) -> Step<u64> {
        let len = regs[3] as u32 as usize;
        if len != 0 {
            self.memory.bytes(regs[2], len).map_err(fault)?;
            if len < NEXT_HOP {
                return Ok(TC_ACT_SHOT);
            }
        }
        Ok(self.tc_redirect(regs[1], regs[4], Way::Neighbour))
    }

    /// Every device there may be takes its copy; the host's are not known here.
    fn clone_redirect(&mut self, regs: &Registers) -> Step<u64> {
        self.context(13, regs)?;
        self.memory.invalidate_packet();
        let (ifindex, flags) = (regs[2] as u32, regs[3]);
        if flags & !BPF_F_INGRESS != 0 || i32::try_from(ifindex).unwrap_or(0) <= 0 {
            return Ok(EINVAL as u64);
        }
        let (Some(frame), Some(fields)) = (&self.memory.frame, &self.memory.skb) else {
            return Ok(EINVAL as u64);
        };
        if self.scratch.sent.len() >= SENT_MOST {
            return Ok(ENOMEM as u64);
        }
        self.scratch.sent.push(Sent {
            ifindex,
            ingress: flags & BPF_F_INGRESS != 0,
            skb: Skb {
                frame: (**frame).clone(),
                fields: (**fields).clone(),
            },
        });
        Ok(0)
    }

    pub(super) fn packet(&self) -> &[u8] {
        self.memory.frame.as_deref().map_or(&[][..], |f| f.data())
    }

    fn packet_mut(&mut self) -> &mut [u8] {
        let frame = self.memory.frame.as_deref_mut();
        frame.map(Frame::data_mut).unwrap_or_default()
    }

    pub(super) fn fields(&mut self) -> Option<&mut SkbFields> {
        self.memory.skb.as_deref_mut()
    }

    pub(super) fn replace_packet(&mut self, data: &[u8]) {
        if let Some(frame) = self.memory.frame.as_deref_mut() {
            *frame = Frame::with_room(data, SKB_HEADROOM, 0);
        }
    }
}

/// A 32-bit sum as a checksum field.
fn fold(sum: u32) -> u16 {
    !((sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16)
}

/// One's complement sums with end-around carry, of 16 and 32 bits.
fn add16(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

fn add32(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

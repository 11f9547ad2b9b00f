//! Limits that count sources, destinations or pairs apart: docs/semantics.md section 3, "Limits apart".
//!
//! Each rule has a table of its own: buckets of four words of GCRA, which forget the one that is furthest behind. Buckets that no packet met are not there.

use std::collections::HashMap;

use weir_packet::parse::{Ip, Version};

use super::draw::splitmix64;
use crate::model::Per;

/// Words of a bucket.
const WAYS: usize = 4;

/// The tables of all rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    /// By rule and number of the bucket.
    buckets: HashMap<(u32, u64), [Word; WAYS]>,
}

/// What one name was counted to; the name 0 is nobody's.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    name: u64,
    tat: u64,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// It is above the limit.
    pub(super) above: bool,
    /// Its word took the place of one that was still in use.
    pub(super) displaces: bool,
}

/// A limit of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) rule: u32,
    pub(super) per: Per,
    pub(super) period_ns: u64,
    pub(super) burst: u32,
    /// `limits N` of the policy.
    pub(super) room: u32,
}

impl Tables {
    /// Counts a packet; `ip` is its IP header, which begins in this frame.
    pub(super) fn judge(
        &mut self,
        limit: &Limit,
        frame: &[u8],
        ip: Option<&Ip>,
        now_ns: u64,
    ) -> Judged {
        let Some(ip) = ip else {
            return Judged::default();
        };
        let name = name(limit.rule, limit.per, frame, ip);
        let bucket = (name >> 32) % buckets(limit.room);
        let words = self.buckets.entry((limit.rule, bucket)).or_default();
        if let Some(word) = words.iter_mut().find(|word| word.name == name) {
            let above = !within(limit.period_ns, limit.burst, &mut word.tat, now_ns);
            return Judged {
                above,
                displaces: false,
            };
        }
        // The first of those that are furthest behind; one that was never used is at 0.
        let furthest = (0..WAYS).min_by_key(|&i| words[i].tat).unwrap_or(0);
        let displaces = words[furthest].tat > now_ns;
        words[furthest] = Word {
            name,
            tat: now_ns.wrapping_add(limit.period_ns),
        };
        Judged {
            above: false,
            displaces,
        }
    }
}

/// GCRA: whether a packet is within the rate, and counts.
pub(super) fn within(period_ns: u64, burst: u32, tat: &mut u64, now_ns: u64) -> bool {
    let limit = period_ns.saturating_mul(u64::from(burst.saturating_sub(1)));
    let base = now_ns.max(*tat);
    if base - now_ns > limit {
        return false;
    }
    *tat = base.wrapping_add(period_ns);
    true
}

/// Buckets of a rule's table.
pub(super) fn buckets(room: u32) -> u64 {
    u64::from(room).next_power_of_two()
}

/// What a packet is counted under. The key is that of replay.
pub(super) fn name(rule: u32, per: Per, frame: &[u8], ip: &Ip) -> u64 {
    let (source, destination, bits, counted, version) = match ip.version {
        Version::V4 => (12..16, 16..20, 32, per.len4, 4u64),
        Version::V6 => (8..24, 24..40, 128, per.len6, 6),
    };
    let number = |at: std::ops::Range<usize>| {
        let bytes = &frame[ip.at..][at];
        let address = bytes.iter().fold(0, |n, byte| n << 8 | u128::from(*byte));
        let host = bits - u32::from(counted).min(bits);
        address
            .checked_shr(host)
            .unwrap_or(0)
            .checked_shl(host)
            .unwrap_or(0)
    };
    let mut hash = splitmix64((version << 32).wrapping_add(u64::from(rule)));
    let mut count = |address: u128| {
        let (high, low) = ((address >> 64) as u64, address as u64);
        hash = splitmix64(splitmix64(hash.wrapping_add(high)).wrapping_add(low));
    };
    if per.source {
        count(number(source));
    }
    if per.destination {
        count(number(destination));
    }
    hash | 1
}

//! Statements that depend on packets before: `limit`, meters, and sets that rules fill.
//!
//! The kernel's limit of packets and weir's are one arithmetic, so it is translated wherever it is the last test of a rule. An element of a set ends
//! after its time-out; where its bucket is full by then, a meter is a limit for each address.

use std::time::Duration;

use super::rule::{Reader, Selector};
use super::table::{Uses, duration};
use crate::condition::{CT_NEW, Condition, Field, product};
use crate::numbers::Numbers;
use crate::packets_before::{Change, Limit, Limited, Per, WITHIN_CONNECTIONS};
use crate::policy;

impl Reader<'_, '_> {
    /// What stands behind `limit`.
    pub(super) fn limit(&mut self) -> Result<Limited, String> {
        if !self.skip("rate") {
            return Err("a limit that has a name counts for several rules, and each limit of weir counts its own packets".to_owned());
        }
        let over = self.skip("over");
        if !over {
            self.skip("until");
        }
        let rate = self.take().to_owned();
        let bytes =
            || format!("`limit rate {rate}` is not a rate of packets; weir has no limits of bytes");
        let (number, unit) = rate.split_once('/').ok_or_else(bytes)?;
        let seconds = match unit {
            "second" => 1,
            "minute" => 60,
            "hour" => 3600,
            "day" => 86_400,
            "week" => 604_800,
            _ => return Err(bytes()),
        };
        let packets = number.parse().map_err(|_| bytes())?;
        let mut burst = 5;
        if self.skip("burst") {
            burst = self.take().parse().map_err(|_| bytes())?;
            if !self.skip("packets") {
                return Err(bytes());
            }
            // The kernel has 5 for 0.
            burst = if burst == 0 { 5 } else { burst };
        }
        let limit = Limit::new(packets, seconds, burst, Per::Rule)?;
        Ok(Limited {
            limit,
            over,
            returns: false,
        })
    }

    /// What stands behind `ct`: `count [over] N`. Only packets that may open a connection are judged, so those of others are left alone.
    pub(super) fn connections(&mut self) -> Result<Limited, String> {
        self.take();
        let over = self.skip("over");
        if !over {
            return Err(WITHIN_CONNECTIONS.to_owned());
        }
        let number = self.take().to_owned();
        let most = number
            .parse()
            .map_err(|_| format!("`ct count {number}` is not understood"))?;
        self.narrow(&[Condition::of(Field::CtState, Numbers::one(CT_NEW))])?;
        Ok(Limited {
            limit: Limit::connections(most, Per::Rule)?,
            over,
            returns: false,
        })
    }

    /// `add @SET { KEY timeout T limit ... }`, `update`, `delete`, and `meter NAME size N { ... }`.
    pub(super) fn changes_set(&mut self, verb: &str) -> Result<(), String> {
        let name = self.take().trim_start_matches('@').to_owned();
        let mut size = None;
        if verb == "meter" && self.skip("size") {
            size = self.take().parse().ok();
        }
        if !self.skip("{") {
            return Err(format!("`{verb}` names no element"));
        }
        let keys = self.keys()?;
        let mut timeout = None;
        let mut limited = None;
        while !self.skip("}") {
            match self.take().to_owned().as_str() {
                "timeout" => {
                    let word = self.take().to_owned();
                    let time = duration(&word);
                    timeout =
                        Some(time.ok_or_else(|| format!("`timeout {word}` is not understood"))?);
                }
                "limit" => limited = Some(self.limit()?),
                "counter" => self.skip_pairs(&["packets", "bytes"]),
                "comment" => {
                    self.take();
                }
                "ct" if self.peek() == "count" => limited = Some(self.connections()?),
                "" => return Err("an element does not end".to_owned()),
                other => return Err(format!("`{other}` of an element has no counterpart")),
            }
        }
        let set = self.table.sets.get(&name).cloned().unwrap_or_default();
        let uses = self.table.uses.get(&name).cloned().unwrap_or_default();
        // 0 is for good.
        let timeout = timeout.or(set.timeout).filter(|time| !time.is_zero());
        let size = size.or(set.size);
        match limited {
            Some(limited) => {
                if uses.limits > 1 {
                    return Err(format!(
                        "several rules count in the elements of `{name}`, and each limit of weir counts its own packets"
                    ));
                }
                let renews = verb == "update";
                self.meter(limited, &keys, timeout.map(|time| (time, renews)))?;
                self.state.names.count(size.unwrap_or_default());
            }
            None => self.fill(verb, &name, size, &keys, timeout, &uses)?,
        }
        self.closed = Some(if verb == "meter" { "meter" } else { "a set" });
        Ok(())
    }

    /// Fields of a key, and how many of their first bits count.
    fn keys(&mut self) -> Result<Vec<(Field, u32)>, String> {
        let mut keys = Vec::new();
        loop {
            let selector = self.selector()?;
            let Some(Selector::Field(field, _)) = selector else {
                return Err("elements of weir are addresses".to_owned());
            };
            let mut length = field.bits();
            if self.skip("&") || self.skip("and") {
                let mask = self.take().to_owned();
                length = mask_length(&mask)
                    .ok_or_else(|| format!("`& {mask}` is not a prefix length"))?;
            }
            keys.push((field, length));
            if !self.skip(".") {
                return Ok(keys);
            }
        }
    }

    fn meter(
        &mut self,
        limited: Limited,
        keys: &[(Field, u32)],
        timeout: Option<(Duration, bool)>,
    ) -> Result<(), String> {
        let whole = |field: Field, length: u32| length == field.bits();
        let per = match *keys {
            [(Field::Saddr4, length)] => Per::Source(length, 128),
            [(Field::Saddr6, length)] => Per::Source(32, length),
            [(Field::Daddr4, length)] => Per::Destination(length, 128),
            [(Field::Daddr6, length)] => Per::Destination(32, length),
            [(Field::Saddr4, a), (Field::Daddr4, b)] | [(Field::Daddr4, a), (Field::Saddr4, b)]
                if a == 32 && b == 32 =>
            {
                Per::Pair
            }
            [(one @ Field::Saddr6, a), (other @ Field::Daddr6, b)]
            | [(one @ Field::Daddr6, a), (other @ Field::Saddr6, b)]
                if whole(one, a) && whole(other, b) =>
            {
                Per::Pair
            }
            _ => {
                return Err("limits of weir count sources, destinations or both".to_owned());
            }
        };
        let mut limited = limited;
        limited.limit.per = per;
        if let Some((time, renews)) = timeout {
            if limited.limit.connections {
                return Err("an element ends some time after it was made, and connections of its address are counted anew; in weir none is forgotten that is open".to_owned());
            }
            if !renews {
                return Err("an element ends some time after it was made, and its address then has its whole burst at once; with `update` it ends some time after its last packet".to_owned());
            }
            if time.as_nanos() < limited.limit.refill_ns() {
                return Err(format!(
                    "an element ends after {} ms without packets, and its address then has its whole burst at once; in weir it has that after {} ms",
                    time.as_millis(),
                    limited.limit.refill_ns() / 1_000_000
                ));
            }
        }
        let present = keys
            .iter()
            .map(|&(field, _)| Condition::of(field, field.domain()));
        for one in present {
            self.narrow(&[one])?;
        }
        self.limited = Some(limited);
        Ok(())
    }

    fn fill(
        &mut self,
        verb: &str,
        name: &str,
        size: Option<u64>,
        keys: &[(Field, u32)],
        timeout: Option<Duration>,
        uses: &Uses,
    ) -> Result<(), String> {
        let [(address, length)] = *keys else {
            return Err("elements of weir are single addresses".to_owned());
        };
        if length != address.bits() {
            return Err("elements of weir are whole addresses".to_owned());
        }
        if uses.updates > 0 && uses.timeouts.len() > 1 {
            return Err(format!(
                "rules fill `{name}` with different times, and `update` may shorten one, which weir does not"
            ));
        }
        if self.change.is_some() {
            return Err("a rule changes two sets".to_owned());
        }
        let set = self.dynamic(name, size)?;
        self.narrow(&[Condition::of(address, address.domain())])?;
        let mut when = self.when.clone();
        // What is there keeps its time, while weir's `add` renews it.
        if verb == "add" && timeout.is_some() {
            let test = self.state.names.dynamic.test(set, address)?;
            let absent: Vec<Condition> = Condition::of(test, Numbers::one(0)).into_iter().collect();
            when = product(&when, &absent).map_err(super::rule::too_many)?;
        }
        let delete = verb == "delete";
        let change = Change {
            set,
            delete,
            field: policy::name(address),
            timeout: timeout.filter(|_| !delete),
        };
        self.change = Some((when, change));
        Ok(())
    }

    /// The number of a set of the table.
    fn dynamic(&mut self, name: &str, size: Option<u64>) -> Result<u8, String> {
        let key = format!("{} {}/{name}", self.table.family, self.table.name);
        let size = size.or(self.table.sets.get(name).and_then(|set| set.size));
        // So many unless told, in both.
        let size = size.filter(|&size| size != 65_535 && size != 65_536);
        (self.state.names.dynamic).set(&key, &policy::identifier(name), size)
    }

    /// `ip saddr @SET` of a set that packets or programs fill: whether the address is in it.
    pub(super) fn membership(
        &mut self,
        name: &str,
        address: Field,
        is_in: bool,
    ) -> Result<(), String> {
        if self
            .table
            .uses
            .get(name)
            .is_some_and(|uses| uses.limits > 0)
        {
            return Err(format!(
                "the elements of `{name}` are those that limits count, and limits of weir are no set"
            ));
        }
        let set = self.dynamic(name, None)?;
        let test = self.state.names.dynamic.test(set, address)?;
        self.narrow(&[Condition::of(test, Numbers::one(u128::from(is_in)))])
    }
}

/// The length of a prefix that is written as a mask.
fn mask_length(mask: &str) -> Option<u32> {
    let (bits, number) = match mask.parse::<std::net::IpAddr>().ok()? {
        std::net::IpAddr::V4(mask) => (32, u128::from(u32::from(mask)) << 96),
        std::net::IpAddr::V6(mask) => (128, u128::from(mask)),
    };
    let length = number.leading_ones();
    let is_prefix = number.checked_shl(length).unwrap_or(0) == 0 && (1..=bits).contains(&length);
    is_prefix.then_some(length)
}

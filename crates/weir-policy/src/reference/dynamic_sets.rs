//! Sets that packets fill, as docs/semantics.md section 9 states them: which addresses are in, until when, and what gives way where a set is
//! full.
//!
//! Buckets are made when something is put into them, so that a set costs what it holds.

use std::collections::{BTreeMap, BTreeSet};

use weir_packet::Reason;
use weir_packet::parse::{Layout, Version};
use weir_value::Mac;

use crate::dynamic::{Address, Change, ChangeSet, DynamicSet, Element};
use crate::field::Field;

/// Places of a bucket.
const PLACES: usize = 8;

/// The end of an element that stays for good.
const NEVER: u64 = u64::MAX;

/// An element, and when it ends, ns.
type Place = Option<(Element, u64)>;

/// All sets of a policy, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct DynamicSets {
    sets: BTreeMap<String, BTreeMap<u64, [Place; PLACES]>>,
    /// Members of security groups, by name.
    groups: BTreeMap<String, BTreeSet<Element>>,
}

impl DynamicSets {
    /// Whether the address that a field has is in a set at a time, ns; `None`: the field is no address.
    pub(super) fn has(
        &self,
        set: &DynamicSet,
        field: Field,
        number: u128,
        now_ns: u64,
    ) -> Option<bool> {
        let element = match Address::of(field)? {
            Address::EthSource | Address::EthDestination => {
                Element::Mac(Mac::from_number(number as u64))
            }
            _ if field.info().bits == 32 => Element::Ip4((number as u32).into()),
            _ => Element::Ip6(number.into()),
        };
        if set.group {
            let members = self.groups.get(&set.name);
            return Some(members.is_some_and(|members| members.contains(&element)));
        }
        let buckets = self.sets.get(&set.name);
        let bucket = buckets.and_then(|buckets| buckets.get(&bucket_of(set, element)));
        let lives = |(other, until): &(Element, u64)| *other == element && now_ns < *until;
        Some(bucket.is_some_and(|places| places.iter().flatten().any(lives)))
    }

    /// Gives a group these members, and no others.
    pub(super) fn set_group(&mut self, name: &str, members: BTreeSet<Element>) {
        self.groups.insert(name.to_owned(), members);
    }

    /// Does what a rule says about an address of a packet that it matches.
    pub(super) fn change(
        &mut self,
        change: &ChangeSet,
        frame: &[u8],
        layout: &Layout,
        now: u64,
        notes: &mut Vec<Reason>,
    ) {
        let Some(element) = address_of(change.address, frame, layout) else {
            return;
        };
        let set = &change.set;
        let buckets = self.sets.entry(set.name.clone()).or_default();
        let places = buckets.entry(bucket_of(set, element)).or_default();
        let timeout_ns = match change.change {
            Change::Add { timeout_ns } => timeout_ns,
            Change::Delete => {
                for place in places {
                    if place.is_some_and(|(other, _)| other == element) {
                        *place = None;
                    }
                }
                return;
            }
        };
        let ends = timeout_ns.map_or(NEVER, |timeout| now.saturating_add(timeout));
        let mut there = places.iter_mut().flatten();
        if let Some((_, until)) = there.find(|(other, until)| *other == element && now < *until) {
            *until = ends.max(*until);
            return;
        }
        // Free places and those of dead elements come first.
        let end_of =
            |place: &Place| place.map_or(0, |(_, until)| if now < until { until } else { 0 });
        let Some(victim) = places.iter_mut().min_by_key(|place| end_of(place)) else {
            return;
        };
        match end_of(victim) {
            NEVER => notes.push(Reason::SetFull),
            first if first > ends => notes.push(Reason::SetFull),
            first => {
                if first > 0 {
                    notes.push(Reason::SetDisplaced);
                }
                *victim = Some((element, ends));
            }
        }
    }
}

/// The bucket of an element.
fn bucket_of(set: &DynamicSet, element: Element) -> u64 {
    let number = element.number();
    let (high, low) = ((number >> 64) as u64, number as u64);
    let mut h = low.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 32 ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ h >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    let buckets = u64::from(set.size.div_ceil(2));
    ((h >> 32) * buckets) >> 32
}

/// An address of a packet.
fn address_of(address: Address, frame: &[u8], layout: &Layout) -> Option<Element> {
    let bytes = |at: usize| frame.get(at..);
    let mac = |at: usize| Some(Element::Mac(Mac(*bytes(at)?.first_chunk()?)));
    let second = match address {
        Address::EthSource => return mac(6),
        Address::EthDestination => return mac(0),
        Address::Source => 0,
        Address::Destination => 1,
    };
    let ip = layout.ip.as_ref()?;
    match ip.version {
        Version::V4 => {
            let octets: [u8; 4] = *bytes(ip.at + 12 + 4 * second)?.first_chunk()?;
            Some(Element::Ip4(octets.into()))
        }
        Version::V6 => {
            let octets: [u8; 16] = *bytes(ip.at + 8 + 16 * second)?.first_chunk()?;
            Some(Element::Ip6(octets.into()))
        }
    }
}

//! Sets that packets fill -> where each lies, which bit of the flat key says what, and where an element belongs.
//!
//! Sets have numbers in the order in which rules name them, and keep them while an instance runs. Invariant: a set's place follows from the
//! sets in front of it, so that two plans with the same sets in the same order lay them out alike.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{self, Elements, Op, SetBit, SetPlace, feature, op_kind};
use weir_policy::dynamic::{Address, Change, ChangeSet, DynamicSet, Element};
use weir_policy::model::{Place, Policy, Rule, Target, Test};
use zerocopy::IntoBytes;

use crate::plan::{Constant, MapPlan};

/// Why sets cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetsError {
    /// More sets than the data plane has numbers for.
    #[error("{at}: rules name more than {max} dynamic sets")]
    TooManySets {
        /// The rule that names one too many.
        at: Place,
        /// Limit.
        max: usize,
    },
    /// More tests of membership than the flat key has bits for.
    #[error(
        "{at}: rules test more than {max} pairs of a dynamic set and an address; IPv4 and IPv6 sources are one address"
    )]
    TooManyTests {
        /// The rule that needs one too many.
        at: Place,
        /// Limit.
        max: usize,
    },
}

/// A set that packets fill as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastSet {
    /// Its name.
    pub name: String,
    /// The elements that it is made for.
    pub size: u32,
}

/// The map of all elements.
pub const ELEMENTS: &str = "elements";

/// The sets of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetPlan {
    sets: Vec<Arc<DynamicSet>>,
    /// What each bit of the key says: a set, by its number, and an address that may be in it.
    bits: Vec<(u8, Address)>,
}

impl SetPlan {
    /// The same sets, none of them tested yet.
    pub(super) fn without_tests(&self) -> SetPlan {
        SetPlan {
            sets: self.sets.clone(),
            bits: Vec::new(),
        }
    }

    /// Of former sets those that still have a use.
    pub fn of_former(former: &[PastSet], is_used: impl Fn(&str) -> bool) -> SetPlan {
        let sets = former.iter().filter(|set| is_used(&set.name));
        let set = |past: &PastSet| {
            Arc::new(DynamicSet {
                name: past.name.clone(),
                size: past.size,
                timeout_ns: None,
                group: false,
            })
        };
        SetPlan {
            sets: sets.map(set).collect(),
            bits: Vec::new(),
        }
    }

    /// What is to be remembered.
    pub(super) fn past(&self) -> Vec<PastSet> {
        let past = |set: &Arc<DynamicSet>| PastSet {
            name: set.name.clone(),
            size: set.size,
        };
        self.sets.iter().map(past).collect()
    }

    /// Its security groups, each with its number among the sets.
    pub(super) fn groups(&self) -> Vec<(usize, String)> {
        let sets = self.sets.iter().enumerate();
        sets.filter(|(_, set)| set.group)
            .map(|(at, set)| (at, set.name.clone()))
            .collect()
    }

    /// In order.
    pub fn sets(&self) -> &[Arc<DynamicSet>] {
        &self.sets
    }

    /// Whether elements lie where they do in the other plan.
    pub fn lies_as(&self, other: &SetPlan) -> bool {
        let place = |set: &Arc<DynamicSet>| (set.name.clone(), set.size);
        self.sets.iter().map(place).eq(other.sets.iter().map(place))
    }

    /// The number of a set. One of another size takes the place of a former one of its name.
    pub(super) fn number(&mut self, set: &Arc<DynamicSet>, rule: &Rule) -> Result<u8, SetsError> {
        let at = match self.sets.iter().position(|other| other.name == set.name) {
            Some(at) => {
                self.sets[at] = Arc::clone(set);
                at
            }
            None if self.sets.len() == abi::DYNSETS => {
                return Err(SetsError::TooManySets {
                    at: rule.place(),
                    max: abi::DYNSETS,
                });
            }
            None => {
                self.sets.push(Arc::clone(set));
                self.sets.len() - 1
            }
        };
        Ok(at as u8)
    }

    /// The bit of the key that says whether an address is in a set.
    pub(super) fn bit(
        &mut self,
        set: &Arc<DynamicSet>,
        address: Address,
        rule: &Rule,
    ) -> Result<usize, SetsError> {
        let pair = (self.number(set, rule)?, address);
        if let Some(at) = self.bits.iter().position(|other| *other == pair) {
            return Ok(at);
        }
        if self.bits.len() == abi::SET_BITS {
            return Err(SetsError::TooManyTests {
                at: rule.place(),
                max: abi::SET_BITS,
            });
        }
        self.bits.push(pair);
        Ok(self.bits.len() - 1)
    }

    pub(super) fn features(&self) -> u32 {
        match self.sets.is_empty() {
            true => 0,
            false => feature::SETS,
        }
    }

    /// Where each set lies.
    pub fn places(&self) -> Vec<SetPlace> {
        let mut first = 0;
        let place = |set: &Arc<DynamicSet>| {
            let place = SetPlace {
                first,
                buckets: set.size.div_ceil(2),
                tag: tag(&set.name) << abi::element::TAG,
            };
            first += place.buckets;
            place
        };
        self.sets.iter().map(place).collect()
    }

    pub(super) fn maps(&self) -> [MapPlan; 1] {
        let buckets = self
            .places()
            .iter()
            .map(|place| place.buckets as usize)
            .sum();
        [MapPlan::empty(ELEMENTS, buckets, size_of::<Elements>())]
    }

    pub(super) fn constants(&self) -> Vec<Constant> {
        let mut places = self.places();
        places.resize(abi::DYNSETS, SetPlace::default());
        let mut bits: Vec<SetBit> = (self.bits.iter())
            .map(|&(set, address)| SetBit {
                set,
                address: address as u8,
            })
            .collect();
        let used = bits.len() as u32;
        bits.resize(abi::SET_BITS, SetBit::default());
        vec![
            ("weir_set".into(), places.as_bytes().to_vec()),
            ("weir_set_bit".into(), bits.as_bytes().to_vec()),
            ("weir_set_bits".into(), used.to_ne_bytes().to_vec()),
        ]
    }
}

/// The operation of a target; `number` is that of its set.
pub(super) fn operation(change: &ChangeSet, number: u8) -> Op {
    let mut op = Op {
        kind: op_kind::SET_DELETE,
        base: change.address as u8,
        flags: 0,
        option: 0,
        off: number.into(),
        len: 0,
        u: [0; abi::VALUE_MAX],
    };
    if let Change::Add { timeout_ns } = change.change {
        op.kind = op_kind::SET_ADD;
        let timeout = timeout_ns.unwrap_or(u64::MAX);
        op.u[..8].copy_from_slice(&timeout.to_ne_bytes());
    }
    op
}

/// 24 bits that tell sets of different names apart: FNV-1a.
fn tag(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 24) & 0xff_ffff
}

/// Whether rules name sets that packets fill: a security group is no state of the function.
pub fn has_sets(policy: &Policy) -> bool {
    let mut named = policy.rules.iter().flat_map(named_by);
    named.any(|set| !set.group)
}

/// The sets and groups that a rule names.
pub fn named_by(rule: &Rule) -> impl Iterator<Item = &Arc<DynamicSet>> {
    let tested = rule.matches.iter().filter_map(|one| match &one.test {
        Test::Dynamic(set) => Some(set),
        _ => None,
    });
    let changed = rule.targets.iter().filter_map(|target| match target {
        Target::ChangeSet(change) => Some(&change.set),
        _ => None,
    });
    tested.chain(changed)
}

/// The sets of a policy, as an instance of it has them at start.
///
/// # Errors
/// [`SetsError`].
pub fn of_policy(policy: &Policy) -> Result<SetPlan, SetsError> {
    let mut plan = SetPlan::default();
    for rule in &policy.rules {
        for set in named_by(rule) {
            plan.number(set, rule)?;
        }
    }
    Ok(plan)
}

/// The element in a place of a set, whether it lives or not; `None`: there is none, or one is being written.
pub fn read(record: &abi::Element, place: &SetPlace) -> Option<Element> {
    let number = u128::from(record.high) << 64 | u128::from(record.low);
    let low = record.what & 0xffff_ffff;
    match low.checked_sub(place.tag.into())? {
        abi::element::IP4 => Some(Element::Ip4((record.low as u32).into())),
        abi::element::IP6 => Some(Element::Ip6(number.into())),
        abi::element::MAC => Some(Element::Mac(weir_value::Mac::from_number(record.low))),
        _ => None,
    }
}

/// The bucket of an element in its set, as `elements_of` in `bpf/include/dynset.h` finds it.
pub fn bucket_of(element: Element, place: &SetPlace, seed: u64) -> u32 {
    let number = element.number();
    let (high, low) = ((number >> 64) as u64, number as u64);
    let mut hash = (low ^ seed).wrapping_mul(abi::hash::WORD);
    hash = (hash ^ hash >> 32 ^ high).wrapping_mul(abi::hash::TABLE);
    hash = (hash ^ hash >> 29).wrapping_mul(abi::hash::END);
    let spread = ((hash >> 32) * u64::from(place.buckets)) >> 32;
    place.first + spread as u32
}

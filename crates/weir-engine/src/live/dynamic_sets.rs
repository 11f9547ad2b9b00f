//! Dynamic sets of a running instance, read and changed from outside while packets use them.
//!
//! A place is changed as the data plane changes it: claimed by exchanging the word that was seen, so that a packet that meets it sees the
//! element of before, none, or the new one. Clock: the kernel's monotonic one.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use weir_bpf::abi::{self, Elements, SetPlace, element};
use weir_functions::middlebox::dynamic::{ELEMENTS, SetPlan, bucket_of, read};
use weir_kernel::{KernelError, LoadedProgram, Map, MmapArray};
use weir_policy::dynamic::{DynamicSet, Element};
use zerocopy::FromBytes;

/// The sets as memory.
#[derive(Debug)]
pub struct SetTable {
    places: MmapArray,
    sets: Vec<(Arc<DynamicSet>, SetPlace)>,
    /// Key of the hash.
    seed: u64,
}

/// Why a set cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// No rule names it.
    #[error("unknown dynamic set `{name}`: {}", known(.others))]
    Unknown {
        /// As given.
        name: String,
        /// Those that rules name.
        others: Vec<String>,
    },
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

fn known(others: &[String]) -> String {
    match others {
        [] => "no rule that runs names a dynamic set".to_owned(),
        some => format!("rules that run name {}", some.join(", ")),
    }
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetInfo {
    /// Its name.
    pub name: String,
    /// How many elements it is made for.
    pub size: u32,
    /// How long elements stay unless something else is said, ms; `None`: for good.
    pub timeout_ms: Option<u64>,
    /// How many it holds.
    pub count: u64,
}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The address.
    pub element: String,
    /// Until it leaves the set, ms; `None`: it stays for good.
    pub expires_ms: Option<u64>,
}

/// Part of a set.
#[derive(Clone, Debug, Default)]
pub struct SetPage {
    /// Elements, in no order.
    pub elements: Vec<Listed>,
    /// Where to go on; `None`: this was the end.
    pub next: Option<u32>,
}

/// How long an element is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// As long as the set says.
    AsSet,
    /// So many ms.
    For(u64),
    /// For good.
    ForGood,
}

/// What became of an element that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was not there.
    New,
    /// It was there, and has another time-out now.
    Renewed,
    /// The element that ended first gave way to it.
    Displaced,
    /// It is not there: all that share its bucket stay for good.
    Full,
}

/// What became of elements that were to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementsAdded {
    /// That were not there.
    pub added: u64,
    /// That were there, and have another time-out now.
    pub renewed: u64,
    /// Others that gave way.
    pub displaced: u64,
    /// That found no place: all that share their buckets stay for good.
    pub refused: Vec<String>,
}

/// Tries against packets that change the same place.
const TRIES: usize = 16;

impl SetTable {
    /// Of the copies that share it with `program`.
    pub(super) fn of(
        program: &LoadedProgram,
        sets: &SetPlan,
        seed: u64,
    ) -> Result<SetTable, KernelError> {
        Ok(SetTable::new(program.mmap_array(ELEMENTS)?, sets, seed))
    }

    /// Of an instance of a graph or of a network, by its map of elements.
    ///
    /// # Errors
    /// The map cannot be mapped.
    pub fn of_map(map: &Map, sets: &SetPlan, seed: u64) -> Result<SetTable, KernelError> {
        Ok(SetTable::new(map.mmap()?, sets, seed))
    }

    fn new(places: MmapArray, sets: &SetPlan, seed: u64) -> SetTable {
        let all = sets.sets().iter().cloned().zip(sets.places());
        SetTable {
            places,
            // Who is in a group, the networks' document says.
            sets: all.filter(|(set, _)| !set.group).collect(),
            seed,
        }
    }

    /// All sets, and how many elements each holds.
    ///
    /// # Errors
    /// The map does not hold what was planned.
    pub fn sets(&self) -> Result<Vec<SetInfo>, SetError> {
        let info = |(set, _): &(Arc<DynamicSet>, SetPlace)| {
            Ok(SetInfo {
                name: set.name.clone(),
                size: set.size,
                timeout_ms: set.timeout_ns.map(|ns| ns / MS),
                count: self.page(&set.name, 0, usize::MAX)?.elements.len() as u64,
            })
        };
        self.sets.iter().map(info).collect()
    }

    /// Elements of a set from a bucket on, at most `limit` and those that share a bucket with the last. What comes and goes meanwhile may be missing or there.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn page(&self, set: &str, from: u32, limit: usize) -> Result<SetPage, SetError> {
        let (_, place) = self.find(set)?;
        let now = monotonic_ns();
        let mut page = SetPage::default();
        for bucket in from..place.buckets {
            if page.elements.len() >= limit {
                page.next = Some(bucket);
                break;
            }
            let mut here: BTreeMap<Element, u64> = BTreeMap::new();
            for at in self.places_of(place.first + bucket) {
                let Some((element, until)) = self.element(at, &place)? else {
                    continue;
                };
                if now < until {
                    // Two CPUs may have added it at the same time.
                    let latest = here.entry(element).or_default();
                    *latest = until.max(*latest);
                }
            }
            page.elements
                .extend(here.into_iter().map(|(element, until)| Listed {
                    element: element.to_string(),
                    expires_ms: (until != u64::MAX).then(|| (until - now).div_ceil(MS)),
                }));
        }
        Ok(page)
    }

    /// Puts an element in, for just so long, whatever it had before. Unlike one that a packet brings it is never the one that gives way.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn add(&self, set: &str, element: Element, stay: Stay) -> Result<Added, SetError> {
        let (set, place) = self.find(set)?;
        let now = monotonic_ns();
        let timeout = match stay {
            Stay::AsSet => set.timeout_ns,
            Stay::For(ms) => Some(Duration::from_millis(ms).as_nanos() as u64),
            Stay::ForGood => None,
        };
        let until = timeout.map_or(u64::MAX, |timeout| now.saturating_add(timeout));
        Ok(self.put(element, until, now, &place, true)?)
    }

    /// [`SetTable::add`] of several.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn add_all(
        &self,
        set: &str,
        elements: &[Element],
        stay: Stay,
    ) -> Result<ElementsAdded, SetError> {
        let mut done = ElementsAdded::default();
        for element in elements {
            match self.add(set, *element, stay)? {
                Added::New => done.added += 1,
                Added::Renewed => done.renewed += 1,
                Added::Displaced => {
                    done.added += 1;
                    done.displaced += 1;
                }
                Added::Full => done.refused.push(element.to_string()),
            }
        }
        Ok(done)
    }

    /// [`SetTable::delete`] of several. Returns how many were there.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn delete_all(&self, set: &str, elements: &[Element]) -> Result<u64, SetError> {
        self.find(set)?;
        elements.iter().try_fold(0, |gone, element| {
            Ok(gone + u64::from(self.delete(set, *element)?))
        })
    }

    /// Takes an element out. Returns whether it was there.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn delete(&self, set: &str, element: Element) -> Result<bool, SetError> {
        let (_, place) = self.find(set)?;
        let now = monotonic_ns();
        let mut was_there = false;
        for at in self.places_of(bucket_of(element, &place, self.seed)) {
            let what = self.word(at)?;
            if let Some((other, until)) = self.element(at, &place)?
                && other == element
                && self
                    .places
                    .compare_exchange(at, what, next(what, element::FREE))?
            {
                was_there |= now < until;
            }
        }
        Ok(was_there)
    }

    /// Takes all elements out. Returns how many there were.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn flush(&self, set: &str) -> Result<u64, SetError> {
        let (_, place) = self.find(set)?;
        let now = monotonic_ns();
        let mut gone = 0;
        for bucket in 0..place.buckets {
            for at in self.places_of(place.first + bucket) {
                let what = self.word(at)?;
                if what as u32 == 0 {
                    continue;
                }
                let lived = matches!(self.element(at, &place)?, Some((_, until)) if now < until);
                if self
                    .places
                    .compare_exchange(at, what, next(what, element::FREE))?
                {
                    gone += u64::from(lived);
                }
            }
        }
        Ok(gone)
    }

    /// All elements that live, with their times, by the names of their sets.
    pub(super) fn snapshot(&self) -> Result<Vec<(String, Element, u64)>, KernelError> {
        let now = monotonic_ns();
        let mut all = Vec::new();
        for (set, place) in &self.sets {
            for bucket in 0..place.buckets {
                for at in self.places_of(place.first + bucket) {
                    if let Some((element, until)) = self.element(at, place)?
                        && now < until
                    {
                        all.push((set.name.clone(), element, until));
                    }
                }
            }
        }
        Ok(all)
    }

    /// Puts in what another table holds and this one has a set for.
    pub(super) fn take_over(&self, elements: &[(String, Element, u64)]) -> Result<(), KernelError> {
        let now = monotonic_ns();
        for (name, element, until) in elements {
            if let Ok((_, place)) = self.find(name) {
                self.put(*element, *until, now, &place, false)?;
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<(&DynamicSet, SetPlace), SetError> {
        let found = self.sets.iter().find(|(set, _)| set.name == name);
        let unknown = || SetError::Unknown {
            name: name.to_owned(),
            others: self.sets.iter().map(|(set, _)| set.name.clone()).collect(),
        };
        found
            .map(|(set, place)| (&**set, *place))
            .ok_or_else(unknown)
    }

    /// Puts an element in. `exactly`: its time-out becomes this one, and the element that ends first gives way even if it would end later; else as packets do it.
    fn put(
        &self,
        element: Element,
        until: u64,
        now: u64,
        place: &SetPlace,
        exactly: bool,
    ) -> Result<Added, KernelError> {
        let bucket = bucket_of(element, place, self.seed);
        for _ in 0..TRIES {
            for at in self.places_of(bucket) {
                let Some((other, ends)) = self.element(at, place)? else {
                    continue;
                };
                if other != element || ends <= now {
                    continue;
                }
                let until = if exactly { until } else { until.max(ends) };
                let at = at + offset_of!(abi::Element, until_ns);
                if self.places.compare_exchange(at, ends, until)? {
                    return Ok(Added::Renewed);
                }
            }
            let mut victim: Option<(u64, usize, u64)> = None;
            for at in self.places_of(bucket) {
                let what = self.word(at)?;
                if what & element::CLAIMED != 0 {
                    continue;
                }
                let ends = match self.element(at, place)? {
                    Some((_, ends)) if now < ends => ends,
                    _ => 0,
                };
                if victim.is_none_or(|(least, ..)| ends < least) {
                    victim = Some((ends, at, what));
                }
            }
            let Some((ends, at, what)) = victim else {
                continue;
            };
            if ends == u64::MAX || !exactly && ends > until {
                return Ok(Added::Full);
            }
            if !self
                .places
                .compare_exchange(at, what, what | element::CLAIMED)?
            {
                continue;
            }
            let number = element.number();
            let write = |offset: usize, word: u64| self.places.publish(at + offset, word);
            write(offset_of!(abi::Element, until_ns), 0)?;
            write(offset_of!(abi::Element, high), (number >> 64) as u64)?;
            write(offset_of!(abi::Element, low), number as u64)?;
            write(offset_of!(abi::Element, until_ns), until)?;
            let low = u64::from(place.tag) | kind(element);
            write(offset_of!(abi::Element, what), next(what, low))?;
            return Ok(if ends == 0 {
                Added::New
            } else {
                Added::Displaced
            });
        }
        Ok(Added::Full)
    }

    /// Offsets of the places of a bucket.
    fn places_of(&self, bucket: u32) -> impl Iterator<Item = usize> + use<> {
        let first = bucket as usize * size_of::<Elements>();
        (0..abi::ELEMENTS).map(move |n| first + n * size_of::<abi::Element>())
    }

    fn word(&self, at: usize) -> Result<u64, KernelError> {
        let mut word = [0u8; 8];
        self.places.read(at, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// The element in a place that was not changed while it was read, and when it ends.
    fn element(&self, at: usize, place: &SetPlace) -> Result<Option<(Element, u64)>, KernelError> {
        let before = self.word(at)?;
        let mut bytes = [0u8; size_of::<abi::Element>()];
        for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
            self.places.read(at + n * 8, word)?;
        }
        let same = self.word(at)? == before;
        let record = abi::Element::read_from_bytes(&bytes).ok();
        let record = record.filter(|record| same && record.what == before);
        Ok(record.and_then(|record| Some((read(&record, place)?, record.until_ns))))
    }
}

const MS: u64 = 1_000_000;

/// `what` of a place once it holds something else.
fn next(what: u64, low: u64) -> u64 {
    ((what >> 32) + 1) << 32 | low
}

fn kind(element: Element) -> u64 {
    match element {
        Element::Ip4(_) => element::IP4,
        Element::Ip6(_) => element::IP6,
        Element::Mac(_) => element::MAC,
    }
}

/// The clock that elements are kept by.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

//! What filters of an edge counted, read from their maps, and carried over when an instance is replaced: what the old one counted for a rule or an entry
//! goes to the new one's, once no packet reaches the old one any more.
//!
//! Everything that is needed lies in the maps of the instances; whoever applied the old one need not be asked.

use weir_bpf::abi::FilterCount;
use weir_functions::filter::carry::{self, Counters};
use weir_functions::filter::{self, hits};
use weir_kernel::{KernelError, Map};
use zerocopy::{FromBytes, IntoBytes};

use super::state::{InstanceState, State};
use super::status::InstanceStatus;

impl InstanceStatus {
    /// What a filter counted; `None` if the instance is no filter.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn filter_counters(&self) -> Result<Option<Counters>, KernelError> {
        if !filter::OBJECTS.contains(&self.object.as_str()) {
            return Ok(None);
        }
        let map = |name: &str| self.maps.iter().find(|map| map.0 == name).map(|map| map.1);
        read(&map).map(Some)
    }
}

/// Carries the counters of all filters over that `new` has in the place of others of `old`.
pub(super) fn carry_over(old: &State, new: &State) -> Result<(), KernelError> {
    let is_filter = |i: &&InstanceState| filter::OBJECTS.contains(&i.object.as_str());
    for instance in new.instances.iter().filter(is_filter) {
        let before = old.instances.iter().find(|i| i.name == instance.name);
        let Some(before) = before.filter(is_filter) else {
            continue;
        };
        let (from, to) = (map_of(before), map_of(instance));
        // Of an instance whose program moved only, the maps are the same.
        let moved =
            |name: &str| from(name).is_some() && to(name).is_some() && from(name) != to(name);
        if moved("counts") || moved("hits") {
            leave_to(&read(&from)?, &to)?;
        }
    }
    Ok(())
}

fn map_of(instance: &InstanceState) -> impl Fn(&str) -> Option<u32> {
    |name| instance.maps.get(name).map(|map| map.id)
}

/// `map`: id of a map of the instance.
fn read(map: &dyn Fn(&str) -> Option<u32>) -> Result<Counters, KernelError> {
    let open = |name: &str| map(name).map(|id| Map::by_id(id, name)).transpose();
    let words = |name: &str| open(name)?.map_or(Ok(Vec::new()), |map| words(&map));
    let homes: Vec<u32> = words("homes")?
        .iter()
        .flat_map(|word| [*word as u32, (*word >> 32) as u32])
        .collect();
    let blocks = open("blocks4")?;
    let mut hits = hits::sum(
        &words("hits")?,
        &words("wide_hits")?,
        &homes,
        |element| match &blocks {
            Some(blocks) => values(blocks, element),
            None => Ok(Vec::new()),
        },
    )?;
    let carried = words("carried_hits")?;
    hits.iter_mut()
        .zip(carried)
        .for_each(|(sum, more)| *sum += more);
    let mut counts: Vec<FilterCount> = elements(&words("counts")?);
    let carried: Vec<FilterCount> = elements(&words("carried_counts")?);
    for (sum, more) in counts.iter_mut().zip(&carried) {
        carry::add(sum, more);
    }
    Ok(Counters {
        rules: elements(&words("rules")?),
        counts,
        owners: words("owners")?,
        hits,
    })
}

/// Adds them to what another instance counts for the same rules and entries.
fn leave_to(counted: &Counters, map: &dyn Fn(&str) -> Option<u32>) -> Result<(), KernelError> {
    let open = |name: &str| map(name).map(|id| Map::by_id(id, name)).transpose();
    if let (Some(to), Some(owners)) = (open("carried_hits")?, open("owners")?) {
        let carried = carry::hits(&counted.owners, &counted.hits, &words(&owners)?);
        let size = to.definition().value as usize / 8;
        for (index, element) in (0u32..to.definition().entries).zip(carried.chunks(size)) {
            if element.iter().any(|hits| *hits > 0) {
                let mut value = element.to_vec();
                value.resize(size, 0);
                to.update(&index.to_ne_bytes(), value.as_bytes())?;
            }
        }
    }
    if let (Some(to), Some(rules)) = (open("carried_counts")?, open("rules")?) {
        let carried = carry::counts(&counted.rules, &counted.counts, &elements(&words(&rules)?));
        for (index, count) in (0u32..to.definition().entries).zip(carried) {
            to.update(&index.to_ne_bytes(), count.as_bytes())?;
        }
    }
    Ok(())
}

/// The words of all elements, those of all CPUs added up.
fn words(map: &Map) -> Result<Vec<u64>, KernelError> {
    let mut out = Vec::new();
    for index in 0..map.definition().entries {
        let mut sums = vec![0u64; map.definition().value as usize / 8];
        for one in values(map, index)? {
            let words = one
                .chunks_exact(8)
                .filter_map(|word| u64::read_from_bytes(word).ok());
            sums.iter_mut()
                .zip(words)
                .for_each(|(sum, word)| *sum += word);
        }
        out.append(&mut sums);
    }
    Ok(out)
}

fn elements<T: FromBytes>(words: &[u64]) -> Vec<T> {
    words
        .as_bytes()
        .chunks_exact(size_of::<T>())
        .filter_map(|bytes| T::read_from_bytes(bytes).ok())
        .collect()
}

fn values(map: &Map, index: u32) -> Result<Vec<Vec<u8>>, KernelError> {
    match map.is_percpu() {
        true => map.lookup_percpu(&index.to_ne_bytes()),
        false => Ok(map.lookup(&index.to_ne_bytes())?.into_iter().collect()),
    }
}

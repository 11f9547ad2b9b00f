//! Counters of filters over a replacement: what the old instance counted for a rule or an entry goes to the new one's, once no packet
//! reaches the old one any more.
//!
//! Everything that is needed lies in the maps of the two instances; whoever applied the old one need not be asked.

use weir_bpf::abi::{FilterCount, FilterRule};
use weir_functions::filter::carry;
use weir_kernel::{KernelError, Map};
use zerocopy::{FromBytes, IntoBytes};

use super::state::{InstanceState, State};

/// Carries the counters of all filters over that `new` has in the place of others of `old`.
pub(super) fn over(old: &State, new: &State) -> Result<(), KernelError> {
    for instance in new.instances.iter().filter(|i| i.object == "filter") {
        let before = old.instances.iter().find(|i| i.name == instance.name);
        if let Some(before) = before.filter(|b| b.object == "filter") {
            hits(before, instance)?;
            counts(before, instance)?;
        }
    }
    Ok(())
}

/// A map of both instances; nothing if it is one and the same, or one of them lacks it.
fn both(
    old: &InstanceState,
    new: &InstanceState,
    name: &str,
) -> Result<Option<(Map, Map)>, KernelError> {
    match (old.maps.get(name), new.maps.get(name)) {
        (Some(a), Some(b)) if a.id != b.id => {
            Ok(Some((Map::by_id(a.id, name)?, Map::by_id(b.id, name)?)))
        }
        _ => Ok(None),
    }
}

fn hits(old: &InstanceState, new: &InstanceState) -> Result<(), KernelError> {
    let Some((hits, _)) = both(old, new, "hits")? else {
        return Ok(());
    };
    let (Some((carried, to)), Some((owners, new_owners))) =
        (both(old, new, "carried_hits")?, both(old, new, "owners")?)
    else {
        return Ok(());
    };
    let mut sums = words(&carried)?;
    sums.iter_mut()
        .zip(words(&hits)?)
        .for_each(|(sum, hits)| *sum += hits);
    let carried = carry::hits(&words(&owners)?, &sums, &words(&new_owners)?);
    let size = to.definition().value as usize / 8;
    for (index, element) in (0u32..to.definition().entries).zip(carried.chunks(size)) {
        if element.iter().any(|hits| *hits > 0) {
            let mut value = element.to_vec();
            value.resize(size, 0);
            to.update(&index.to_ne_bytes(), value.as_bytes())?;
        }
    }
    Ok(())
}

fn counts(old: &InstanceState, new: &InstanceState) -> Result<(), KernelError> {
    let Some((counts, _)) = both(old, new, "counts")? else {
        return Ok(());
    };
    let (Some((carried, to)), Some((rules, new_rules))) =
        (both(old, new, "carried_counts")?, both(old, new, "rules")?)
    else {
        return Ok(());
    };
    let mut sums = elements::<FilterCount>(&carried)?;
    for (sum, one) in sums.iter_mut().zip(elements::<FilterCount>(&counts)?) {
        carry::add(sum, &one);
    }
    let (rules, new_rules) = (
        elements::<FilterRule>(&rules)?,
        elements::<FilterRule>(&new_rules)?,
    );
    for (index, count) in
        (0u32..to.definition().entries).zip(carry::counts(&rules, &sums, &new_rules))
    {
        to.update(&index.to_ne_bytes(), count.as_bytes())?;
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

/// All elements; of a per-CPU map, which has words only, the sums.
fn elements<T: FromBytes>(map: &Map) -> Result<Vec<T>, KernelError> {
    let size = map.definition().value as usize;
    let words = words(map)?;
    Ok(words
        .as_bytes()
        .chunks_exact(size)
        .filter_map(|bytes| T::read_from_bytes(bytes).ok())
        .collect())
}

fn values(map: &Map, index: u32) -> Result<Vec<Vec<u8>>, KernelError> {
    match map.is_percpu() {
        true => map.lookup_percpu(&index.to_ne_bytes()),
        false => Ok(map.lookup(&index.to_ne_bytes())?.into_iter().collect()),
    }
}

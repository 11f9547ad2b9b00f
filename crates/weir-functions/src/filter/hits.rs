//! Hits by counter, from the maps of a filter.
//!
//! Most counters of IPv4 lie in the blocks of the address table (`homes` says where), with 16 bits for each CPU; what goes over those is in `wide_hits`. All others
//! are in `hits`.

use weir_bpf::abi::filter;

/// Adds up what each counter stands at. `hits` and `wide`: words of these maps, those of all CPUs added up; `homes`: of this map; `block`: an
/// element of `blocks4`, by CPU.
///
/// # Errors
/// What `block` returns.
pub fn sum<E>(
    hits: &[u64],
    wide: &[u64],
    homes: &[u32],
    mut block: impl FnMut(u32) -> Result<Vec<Vec<u8>>, E>,
) -> Result<Vec<u64>, E> {
    let mut sums = vec![0u64; homes.len().max(hits.len())];
    for words in [hits, wide] {
        sums.iter_mut()
            .zip(words)
            .for_each(|(sum, word)| *sum += word);
    }
    let mut here: Option<(u32, Vec<Vec<u8>>)> = None;
    for (sum, home) in sums.iter_mut().zip(homes) {
        let Some(place) = home.checked_sub(1).map(|place| place as usize * 2) else {
            continue;
        };
        let (element, at) = ((place / filter::BLOCKS) as u32, place % filter::BLOCKS);
        let copies = match here.take() {
            Some((number, copies)) if number == element => copies,
            _ => block(element)?,
        };
        for copy in &copies {
            if let Some(small) = copy.get(at..).and_then(|rest| rest.first_chunk()) {
                *sum += u64::from(u16::from_ne_bytes(*small));
            }
        }
        here = Some((element, copies));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_counters_of_all_cpus_are_added_to_what_they_went_over_by() {
        let mut asked = Vec::new();
        let sums = sum(
            &[7, 0, 0],
            &[0, 65_536, 0, 0],
            &[0, 3, 4, filter::BLOCKS as u32 / 2 + 1],
            |element| {
                asked.push(element);
                let mut first = vec![0u8; filter::BLOCKS];
                let at = [4, 0][element as usize];
                first[at..at + 4].copy_from_slice(&[1, 0, 2, 0]);
                Ok::<_, ()>(vec![first.clone(), first])
            },
        );
        assert_eq!(sums, Ok(vec![7, 65_536 + 2, 4, 2]));
        assert_eq!(asked, [0, 1]);
    }
}

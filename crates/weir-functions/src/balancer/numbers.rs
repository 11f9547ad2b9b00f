//! Numbers of servers and services. Remembered flows hold numbers of servers, so a server keeps its number through every change, and
//! one that is gone leaves its number to others last.
//!
//! What had which number is read from the map of the instance that runs; without one, numbers are given in the order of the
//! configuration, the same on every machine.

use std::collections::HashMap;

/// What a number stood for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Former {
    /// 0: never given.
    pub identity: u64,
    /// 0: in use; else when it was given up: later ones are higher.
    pub gone_at: u32,
}

/// Numbers for these identities below `room`; `None` if they do not fit.
pub fn assign(former: &[Former], wanted: &[u64], room: usize) -> Option<Vec<usize>> {
    let mut numbers: Vec<Option<usize>> = vec![None; wanted.len()];
    let former = former.get(..room.min(former.len())).unwrap_or_default();
    let had: HashMap<u64, usize> = former
        .iter()
        .enumerate()
        .filter(|(_, f)| f.identity != 0)
        .map(|(number, f)| (f.identity, number))
        .collect();
    let mut taken = vec![false; room];
    for (place, identity) in wanted.iter().enumerate() {
        if let Some(&number) = had.get(identity) {
            numbers[place] = Some(number);
            taken[number] = true;
        }
    }
    let never = (0..room).filter(|n| former.get(*n).is_none_or(|f| f.identity == 0));
    let mut left: Vec<(u32, usize)> = former
        .iter()
        .enumerate()
        .filter(|(number, f)| f.identity != 0 && !taken[*number])
        .map(|(number, f)| (if f.gone_at == 0 { u32::MAX } else { f.gone_at }, number))
        .collect();
    left.sort_unstable();
    let mut free = never.chain(left.into_iter().map(|(_, number)| number));
    numbers
        .into_iter()
        .map(|number| number.or_else(|| free.next()))
        .collect()
}

/// 64 bits that tell these bytes from others (FNV-1a, finished), never 0.
pub fn identity(bytes: &[u8]) -> u64 {
    let fold = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    super::ring::mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use(identity: u64) -> Former {
        Former {
            identity,
            gone_at: 0,
        }
    }

    #[test]
    fn who_stays_keeps_its_number() {
        assert_eq!(assign(&[], &[7, 8, 9], 4), Some(vec![0, 1, 2]));
        let former = [in_use(7), in_use(8), in_use(9)];
        assert_eq!(assign(&former, &[9, 7], 4), Some(vec![2, 0]));
        // 8 is gone; a new one gets the number that nobody ever had.
        assert_eq!(assign(&former, &[9, 5, 7], 4), Some(vec![2, 3, 0]));
        assert_eq!(assign(&former, &[9, 8, 7, 6, 5], 4), None);
    }

    #[test]
    fn numbers_of_those_that_are_gone_are_given_last_and_the_oldest_first() {
        let gone = |identity, gone_at| Former { identity, gone_at };
        let former = [gone(1, 5), in_use(2), gone(3, 2), Former::default()];
        assert_eq!(assign(&former, &[10, 2], 4), Some(vec![3, 1]));
        assert_eq!(assign(&former, &[10, 11, 12, 2], 4), Some(vec![3, 2, 0, 1]));
        // One that comes back has its old number.
        assert_eq!(assign(&former, &[3], 4), Some(vec![2]));
    }
}

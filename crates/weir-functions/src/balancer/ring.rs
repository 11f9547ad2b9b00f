//! The ring of a service: which server a flow's hash falls to, after Maglev (Eisenbud et al., NSDI 2016), with weights.
//!
//! Each server has a permutation of the places from a hash of its identity; servers take their next free place in turn, as often as their
//! weights say. Invariant: the ring depends on identities and weights only, not on order or numbers, so that every edge builds the same.

/// A server that takes flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What tells it from all others, on every edge.
    pub identity: u64,
    /// At least 1.
    pub weight: u32,
    /// What stands in the ring.
    pub number: u16,
}

/// Whether a number of places can be permuted by steps of any width.
pub fn is_prime(n: u32) -> bool {
    n >= 2
        && (2..)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}

/// A ring of `size` places, which is prime; empty if there are no members.
pub fn build(members: &[Member], size: u32) -> Vec<u16> {
    let mut members = members.to_vec();
    members.sort_by_key(|member| member.identity);
    let Some(most) = members.iter().map(|member| member.weight.max(1)).max() else {
        return Vec::new();
    };
    struct Walk {
        at: u32,
        step: u32,
        credit: u64,
    }
    let mut walks: Vec<Walk> = members
        .iter()
        .map(|member| Walk {
            at: (mix(member.identity) % u64::from(size)) as u32,
            step: (mix(!member.identity) % u64::from(size - 1)) as u32 + 1,
            credit: 0,
        })
        .collect();
    let mut ring: Vec<Option<u16>> = vec![None; size as usize];
    let mut free = size;
    while free > 0 {
        for (member, walk) in members.iter().zip(&mut walks) {
            walk.credit += u64::from(member.weight.max(1));
            if walk.credit < u64::from(most) || free == 0 {
                continue;
            }
            walk.credit -= u64::from(most);
            while ring[walk.at as usize].is_some() {
                walk.at = (walk.at + walk.step) % size;
            }
            ring[walk.at as usize] = Some(member.number);
            free -= 1;
        }
    }
    ring.into_iter().flatten().collect()
}

/// A finaliser that spreads every bit.
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 65_537;

    fn members(weights: &[u32]) -> Vec<Member> {
        (0..)
            .zip(weights)
            .map(|(number, weight)| Member {
                identity: mix(u64::from(number) + 1000),
                weight: *weight,
                number,
            })
            .collect()
    }

    /// Flows of a million that fall to each number, by the arithmetic of the data plane.
    fn load(ring: &[u16], servers: usize) -> Vec<u64> {
        let mut counts = vec![0; servers];
        for flow in 0..1_000_000u64 {
            let hash = mix(flow);
            let place = ((hash >> 32) * ring.len() as u64) >> 32;
            counts[usize::from(ring[place as usize])] += 1;
        }
        counts
    }

    #[test]
    fn load_follows_the_weights_within_a_twentieth() {
        let equal = vec![1; 100];
        let mixed: Vec<u32> = (0..100).map(|n| [1, 2, 3, 5][n % 4]).collect();
        for weights in [equal, mixed, vec![100, 1000, 10_000]] {
            let ring = build(&members(&weights), SIZE);
            assert_eq!(ring.len(), SIZE as usize);
            let all: u64 = weights.iter().map(|w| u64::from(*w)).sum();
            for (number, flows) in load(&ring, weights.len()).into_iter().enumerate() {
                let fair = 1e6 * f64::from(weights[number]) / all as f64;
                let off = (flows as f64 - fair).abs() / fair;
                assert!(off < 0.05, "server {number}: {flows} flows, {fair} wanted");
            }
        }
    }

    #[test]
    fn removing_one_of_a_hundred_moves_few_others() {
        let all = members(&[1; 100]);
        let before = build(&all, SIZE);
        let mut worst = 0.0f64;
        for gone in [0u16, 17, 50, 99] {
            let left: Vec<Member> = all.iter().copied().filter(|m| m.number != gone).collect();
            let after = build(&left, SIZE);
            let others = before.iter().filter(|n| **n != gone).count();
            let moved = before.iter().zip(&after);
            let moved = moved.filter(|(a, b)| **a != gone && a != b).count();
            worst = worst.max(moved as f64 / others as f64);
        }
        assert!(worst <= 0.02, "{worst} of the others' places moved");
    }

    #[test]
    fn order_and_numbers_do_not_matter() {
        let all = members(&[3, 1, 2, 5, 1]);
        let mut turned = all.clone();
        turned.reverse();
        assert_eq!(build(&all, 251), build(&turned, 251));
        let renumbered: Vec<Member> = all
            .iter()
            .map(|m| Member {
                number: m.number + 10,
                ..*m
            })
            .collect();
        let other: Vec<u16> = build(&renumbered, 251).iter().map(|n| n - 10).collect();
        assert_eq!(build(&all, 251), other);
        assert!(build(&[], 251).is_empty());
        assert!(is_prime(65_537) && is_prime(251) && !is_prime(65_536) && !is_prime(1));
    }
}

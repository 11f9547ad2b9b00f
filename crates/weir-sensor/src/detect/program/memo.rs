//! What is known of a condition in the buffer at hand: at which places the rest of its chain failed, and where there is nothing to find. Nothing is tried or searched for twice.

use std::collections::BTreeMap;

/// So many stretches are kept in a row.
const FEW: usize = 16;

/// Of one condition of a chain.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The values that it holds for: another number is another set of values.
    epoch: u32,
    /// Places from which the rest fails, or where there is nothing: from the first on, below the second.
    failed: (usize, usize),
    /// More of them, by their first, where places do not come from left to right.
    scattered: Stretches,
    /// From the first on and below the second nothing is found, and what is found there, if so.
    searched: Option<(usize, usize, Option<usize>)>,
}

impl Memo {
    /// What failed did so with other values.
    pub(super) fn renew(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.failed = (0, 0);
            self.scattered.clear();
        }
    }

    /// The first place from this one on that is not known to fail, and the one that is again, behind it.
    pub(super) fn open(&self, from: usize) -> (usize, usize) {
        let (first, end) = self.failed;
        if (first..end).contains(&from) {
            return (end, usize::MAX);
        }
        let next = if first > from && end > first {
            first
        } else {
            usize::MAX
        };
        let (end, first) = self.scattered.around(from);
        match end {
            Some(end) if end > from => (end, usize::MAX),
            _ => (from, next.min(first.unwrap_or(usize::MAX))),
        }
    }

    /// Places from the first on, below the second, fail.
    pub(super) fn fail(&mut self, first: usize, end: usize, scattered: bool) {
        if end <= first {
            return;
        }
        if scattered {
            self.scattered.insert(first, end);
        } else if (self.failed.0..=self.failed.1).contains(&first) && self.failed.1 > self.failed.0
        {
            self.failed.1 = self.failed.1.max(end);
        } else {
            self.failed = (first, end);
        }
    }

    /// Where the first is from `low` on that begins below `end`, as far as that is known; if not, from where on it is to be searched for.
    pub(super) fn known(&self, low: usize, end: usize) -> Result<Option<usize>, usize> {
        match self.searched {
            Some((from, to, found)) if (from..=to).contains(&low) => match found {
                Some(_) if end <= to => Ok(None),
                Some(at) => Ok((at < end).then_some(at)),
                None if end <= to => Ok(None),
                None => Err(to),
            },
            _ => Err(low),
        }
    }

    /// It was searched for from `low` on, below `end`.
    pub(super) fn search(&mut self, low: usize, end: usize, found: Option<usize>) {
        let to = found.unwrap_or(end);
        let from = match self.searched {
            Some((from, before, None)) if before == low => from,
            _ => low,
        };
        self.searched = Some((from, to, found));
    }
}

/// Stretches that neither overlap nor touch. Mostly there are few, often forgotten: those are kept in a row, without asking for memory again.
#[derive(Debug, Default)]
struct Stretches {
    few: Vec<(usize, usize)>,
    /// All of them, when they are more.
    many: BTreeMap<usize, usize>,
}

impl Stretches {
    fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    /// The end of the last that begins at this place or before it, and the beginning of the next.
    fn around(&self, from: usize) -> (Option<usize>, Option<usize>) {
        if self.many.is_empty() {
            let behind = self
                .few
                .iter()
                .take_while(|(first, _)| *first <= from)
                .count();
            let before = behind.checked_sub(1).and_then(|at| self.few.get(at));
            let next = self.few.get(behind);
            return (before.map(|(_, end)| *end), next.map(|(first, _)| *first));
        }
        let before = self.many.range(..=from).next_back();
        let next = self.many.range(from + 1..).next();
        (before.map(|(_, end)| *end), next.map(|(first, _)| *first))
    }

    fn insert(&mut self, mut first: usize, mut end: usize) {
        if self.many.is_empty() {
            // Those that it joins are replaced by it.
            let from = self.few.iter().take_while(|(_, e)| *e < first).count();
            let joined = self.few.iter().skip(from).take_while(|(f, _)| *f <= end);
            let to = from + joined.count();
            let joined = self.few.get(from..to).unwrap_or_default();
            first = joined.first().map_or(first, |(f, _)| first.min(*f));
            end = joined.last().map_or(end, |(_, e)| end.max(*e));
            self.few.splice(from..to, [(first, end)]);
            if self.few.len() > FEW {
                self.many.extend(self.few.drain(..));
            }
            return;
        }
        if let Some((f, e)) = self.many.range(..=first).next_back()
            && *e >= first
        {
            (first, end) = (*f, end.max(*e));
        }
        while let Some((f, e)) = self.many.range(first..=end).next() {
            let (f, e) = (*f, *e);
            end = end.max(e);
            self.many.remove(&f);
        }
        self.many.insert(first, end);
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Memo, Stretches};

    #[test]
    fn few_and_many_stretches_say_the_same() {
        let mut number = 5_u64;
        let mut below = |most: usize| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
            (number >> 33) as usize % most
        };
        for places in [12, 40, 300] {
            let mut most = 0;
            for _ in 0..200 {
                let mut stretches = Stretches::default();
                let mut plain = vec![false; places + 8];
                for _ in 0..below(80) {
                    let first = below(places);
                    let end = first + 1 + below(4);
                    stretches.insert(first, end);
                    plain[first..end].fill(true);
                    let from = below(places);
                    let (end, next) = stretches.around(from);
                    let inside = end.is_some_and(|end| end > from);
                    assert_eq!(inside, plain[from], "{from}: {stretches:?}");
                    if inside {
                        let wanted = plain[from..].iter().position(|p| !p).map(|at| from + at);
                        assert_eq!(end, wanted);
                    } else {
                        let wanted = plain[from..].iter().position(|p| *p).map(|at| from + at);
                        assert_eq!(next, wanted);
                    }
                    most = most.max(stretches.few.len() + stretches.many.len());
                }
            }
            assert_eq!(most > FEW, places == 300, "{places}: {most}");
        }
    }

    #[test]
    fn failed_places_are_joined() {
        let mut memo = Memo::default();
        for (first, end) in [(10, 20), (30, 40), (18, 31), (2, 3)] {
            memo.fail(first, end, true);
        }
        assert_eq!(memo.open(10), (40, usize::MAX));
        assert_eq!(memo.open(39), (40, usize::MAX));
        assert_eq!(memo.open(40), (40, usize::MAX));
        assert_eq!(memo.open(4), (4, 10));
        assert_eq!(memo.open(2), (3, usize::MAX));
        memo.renew(1);
        assert_eq!(memo.open(10), (10, usize::MAX));
        // From left to right the last stretch is kept, and what joins it.
        memo.fail(5, 8, false);
        memo.fail(6, 12, false);
        assert_eq!(memo.open(5), (12, usize::MAX));
        memo.fail(20, 30, false);
        assert_eq!(memo.open(5), (5, 20));
        assert_eq!(memo.open(25), (30, usize::MAX));
    }

    #[test]
    fn what_was_searched_is_known() {
        let mut memo = Memo::default();
        assert_eq!(memo.known(5, 10), Err(5));
        memo.search(5, 10, None);
        assert_eq!(memo.known(6, 10), Ok(None));
        assert_eq!(memo.known(6, 20), Err(10));
        memo.search(10, 20, Some(15));
        assert_eq!(memo.known(5, 20), Ok(Some(15)));
        assert_eq!(memo.known(15, 16), Ok(Some(15)));
        assert_eq!(memo.known(5, 15), Ok(None));
        assert_eq!(memo.known(16, 30), Err(16));
        assert_eq!(memo.known(4, 30), Err(4));
    }
}

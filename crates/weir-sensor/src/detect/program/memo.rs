//! What is known of a condition in the buffer at hand: at which places the rest of its chain failed, and where there is nothing to find. Nothing is tried or searched for twice.

use std::collections::BTreeMap;

/// Of one condition of a chain.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The values that it holds for: another number is another set of values.
    epoch: u32,
    /// Places from which the rest fails, or where there is nothing: from the first on, below the second.
    failed: (usize, usize),
    /// More of them, by their first, where places do not come from left to right.
    scattered: BTreeMap<usize, usize>,
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
        let mut next = if first > from && end > first {
            first
        } else {
            usize::MAX
        };
        if let Some((_, end)) = self.scattered.range(..=from).next_back()
            && *end > from
        {
            return (*end, usize::MAX);
        }
        if let Some((first, _)) = self.scattered.range(from..).next() {
            next = next.min(*first);
        }
        (from, next)
    }

    /// Places from the first on, below the second, fail.
    pub(super) fn fail(&mut self, first: usize, end: usize, scattered: bool) {
        if end <= first {
            return;
        }
        if scattered {
            self.insert(first, end);
        } else if (self.failed.0..=self.failed.1).contains(&first) && self.failed.1 > self.failed.0
        {
            self.failed.1 = self.failed.1.max(end);
        } else {
            self.failed = (first, end);
        }
    }

    fn insert(&mut self, mut first: usize, mut end: usize) {
        if let Some((f, e)) = self.scattered.range(..=first).next_back()
            && *e >= first
        {
            (first, end) = (*f, end.max(*e));
        }
        while let Some((f, e)) = self.scattered.range(first..=end).next() {
            let (f, e) = (*f, *e);
            end = end.max(e);
            self.scattered.remove(&f);
        }
        self.scattered.insert(first, end);
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

#[cfg(test)]
mod tests {
    use super::Memo;

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

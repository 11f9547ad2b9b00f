//! Conditions in one buffer, evaluated: which choice of occurrences makes a chain hold. Tried for every candidate of every packet.

use std::sync::Arc;

use crate::base64;
use crate::rules::{Anchoring, Expression, Found, MathOperator, NotFound, TestOperator};

use super::super::in_range;
use super::asn1;
use super::memo::Memo;
use super::{
    Ask, Extract, Find, Get, Jump, Math, Order, OverBudget, Scratch, Search, Step, Subject,
    VARIABLES, Value,
};

/// Bytes of a capture that are kept.
const MOST_CAPTURED: usize = 4096;
/// Units of work of a place that is tried, of a number that is read, and of a call of the library of expressions.
const TRY: u64 = 4;
const CALL: u64 = 16;
/// Bytes that an expression passes at one place for a unit.
const PASSED: usize = 4;
/// And of a place where what failed is kept in a tree.
const SCATTERED: u64 = 12;
/// And of an expression that is given up at its limit of steps.
const GIVEN_UP: usize = 4096;

/// Why the rest of a chain does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fail {
    /// It may from another place.
    Here,
    /// It does from no place behind this one either, with the numbers extracted so far.
    Beyond,
    /// Nothing is tried any more.
    OverBudget,
}

pub(super) struct Run<'a, 'b> {
    subject: &'a Subject<'a>,
    scratch: &'b mut Scratch,
    variables: [i64; VARIABLES],
    /// When each variable got another value, counted by changes of any.
    epochs: [u32; VARIABLES],
    epoch: u32,
    /// Two for each condition of the chain at hand: `usize::from(true)` if what was found reaches beyond the bound before it.
    memos: Vec<Memo>,
    /// Units of work left.
    left: u64,
    /// A chain must reach beyond this index.
    beyond: usize,
    /// Programs within programs.
    depth: usize,
}

impl<'a, 'b> Run<'a, 'b> {
    pub(super) fn new(
        subject: &'a Subject<'a>,
        scratch: &'b mut Scratch,
        memos: Vec<Memo>,
        budget: u64,
        depth: usize,
    ) -> Run<'a, 'b> {
        Run {
            subject,
            scratch,
            variables: [0; VARIABLES],
            epochs: [0; VARIABLES],
            epoch: 0,
            memos,
            left: budget,
            beyond: 0,
            depth,
        }
    }

    /// Its memory, to be used again, and the work that is left.
    pub(super) fn finish(mut self) -> (Vec<Memo>, u64) {
        self.memos.clear();
        (self.memos, self.left)
    }

    /// Hands numbers on.
    pub(super) fn export(&mut self, numbers: &[(u8, Arc<str>)]) {
        for (variable, name) in numbers {
            let value = self.value(Value::Variable(*variable));
            self.scratch.numbers.push((Arc::clone(name), value));
        }
    }

    pub(super) fn fresh(&self) -> usize {
        self.subject.fresh
    }

    /// Whether a chain holds, reaching beyond an index; returns the furthest end of what was found.
    pub(super) fn whole_chain(&mut self, chain: &[Step], beyond: usize) -> Result<usize, Fail> {
        self.beyond = beyond;
        self.memos.clear();
        self.chain(chain, 0, 0, 0)
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Is(n) => n,
            Value::Variable(i) => self.variables[usize::from(i) % VARIABLES],
        }
    }

    fn spend(&mut self, units: u64) -> Result<(), Fail> {
        match self.left.checked_sub(units) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Fail::OverBudget)
            }
        }
    }

    /// What is remembered of a condition, with these variables as they are.
    fn memo(&mut self, index: usize, variables: u16) -> &mut Memo {
        let mut epoch = 0;
        if variables != 0 {
            let mut used = variables;
            while used != 0 {
                epoch = epoch.max(self.epochs[used.trailing_zeros() as usize % VARIABLES]);
                used &= used - 1;
            }
        }
        if self.memos.len() <= index {
            self.memos.resize_with(index + 1, Memo::default);
        }
        let memo = &mut self.memos[index];
        memo.renew(epoch);
        memo
    }

    /// The first place of a content from `low` on that begins below `end`: what was searched before is known.
    fn first(
        &mut self,
        find: &Find,
        index: usize,
        low: usize,
        end: usize,
    ) -> Result<Option<usize>, Fail> {
        let known = match self.scratch.forgets() {
            true => Err(low),
            false => self.memo(index, 0).known(low, end),
        };
        let from = match known {
            Ok(known) => return Ok(known),
            Err(from) => from,
        };
        let found = self.search(find, from, end)?;
        self.memo(index, 0).search(from, end, found);
        Ok(found)
    }

    fn search(&mut self, find: &Find, from: usize, end: usize) -> Result<Option<usize>, Fail> {
        let size = find.needle.len();
        let found = find
            .needle
            .find(self.subject.bytes, from, end.saturating_sub(1) + size);
        self.spend((found.unwrap_or(end).saturating_sub(from) + size) as u64)?;
        Ok(found)
    }

    /// Whether the rest of a chain holds with the match before ending at `cursor`; returns the furthest end of what was found.
    fn chain(
        &mut self,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        at: usize,
    ) -> Result<usize, Fail> {
        let Some(step) = rest.get(at) else {
            return match self.beyond == 0 || reached > self.beyond {
                true => Ok(reached),
                false => Err(Fail::Here),
            };
        };
        self.spend(1)?;
        let next = at + 1;
        match step {
            Step::Content(find) => self.content(find, rest, cursor, reached, at),
            Step::Pcre(search) => self.pcre(search, rest, cursor, reached, at),
            Step::IsDataAt {
                offset,
                relative,
                negated,
            } => {
                let length = self.subject.bytes.len() as i64;
                let offset = self.value(*offset);
                let there = if *relative {
                    (cursor as i64).saturating_add(offset) <= length
                } else {
                    offset < length.saturating_add_unsigned(self.subject.base)
                };
                if there == *negated {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Test(test) => {
                self.spend(TRY)?;
                let (value, _) = self.get(&test.get, cursor).ok_or(Fail::Here)?;
                let wanted = self.value(test.value);
                let held = match test.operator {
                    TestOperator::Less => value < i128::from(wanted),
                    TestOperator::Greater => value > i128::from(wanted),
                    TestOperator::Equal => value == i128::from(wanted),
                    TestOperator::LessEqual => value <= i128::from(wanted),
                    TestOperator::GreaterEqual => value >= i128::from(wanted),
                    TestOperator::And => value & i128::from(wanted) != 0,
                    TestOperator::Xor => value ^ i128::from(wanted) != 0,
                };
                if held == test.negated {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Jump(jump) => {
                self.spend(TRY)?;
                let to = self.jump(jump, cursor).ok_or(Fail::Here)?;
                here(self.chain(rest, to, reached, next))
            }
            Step::Extract(extract) => {
                self.spend(TRY)?;
                let (value, end) = self.extracted(extract, cursor).ok_or(Fail::Here)?;
                self.keep(extract.variable, value);
                here(self.chain(rest, end, reached, next))
            }
            Step::Math(math) => {
                self.spend(TRY)?;
                let (value, end) = self.computed(math, cursor).ok_or(Fail::Here)?;
                self.keep(math.variable, value);
                here(self.chain(rest, end, reached, next))
            }
            Step::Size(range) => {
                let size = self.subject.bytes.len() as u64;
                if !in_range(range, size) {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Asn1(asked) => {
                self.spend(TRY)?;
                let from = i64::from(asked.offset);
                let from = match asked.relative {
                    true => from.saturating_add(cursor as i64),
                    false => from,
                };
                let bytes = usize::try_from(from).ok();
                let bytes = bytes.and_then(|from| self.subject.bytes.get(from..));
                let bytes = bytes.ok_or(Fail::Here)?;
                // Each element has two bytes at least.
                self.spend(bytes.len().min(512) as u64)?;
                if !asn1::has(bytes, asked) {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Entropy(entropy) => {
                let from = entropy.offset as usize;
                let bytes = self.subject.bytes.get(from..).ok_or(Fail::Here)?;
                let bytes = match entropy.bytes {
                    Some(count) => bytes.get(..count as usize).ok_or(Fail::Here)?,
                    None => bytes,
                };
                self.spend(bytes.len() as u64)?;
                if !in_range(&entropy.value, bits_a_byte(bytes)) {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Dataset(set) => {
                self.spend(self.subject.bytes.len() as u64)?;
                if set.live.is_changed() {
                    let value = self.subject.bytes;
                    if !set.live.takes(value) {
                        return Err(Fail::Here);
                    }
                    let place = self.scratch.asked.len();
                    self.scratch.asked.push(Ask {
                        set: Arc::clone(set),
                        value: value.to_vec(),
                    });
                    let held = self.chain(rest, cursor, reached, next);
                    if held.is_err() {
                        self.scratch.asked.truncate(place);
                    }
                    return held;
                }
                if !set.holds(self.subject.bytes) {
                    return Err(Fail::Here);
                }
                let place = self.scratch.captured.len();
                let reached = self.chain(rest, cursor, reached, next)?;
                if let Some((capture, value)) = set.says(self.subject.bytes) {
                    let place = place.min(self.scratch.captured.len());
                    let kept = (capture, value.as_bytes().to_vec());
                    self.scratch.captured.insert(place, kept);
                }
                Ok(reached)
            }
            Step::Base64(how, inner) => {
                let from = if how.relative { cursor } else { 0 };
                let bytes = self.subject.bytes;
                let from = from.saturating_add(how.offset as usize);
                let mut encoded = bytes.get(from..).ok_or(Fail::Here)?;
                if let Some(most) = how.bytes {
                    encoded = encoded.get(..most as usize).unwrap_or(encoded);
                }
                let mut decoded = self.scratch.decoded.pop().unwrap_or_default();
                let looked_at = base64::decode_whole_bytes(encoded, &mut decoded);
                let mut held = self.spend(looked_at as u64 + TRY).map(|()| false);
                if held.is_ok() && !decoded.is_empty() && self.depth < 4 {
                    let subject = Subject::whole(&decoded);
                    let (answer, left) =
                        inner.holds_within(&subject, self.scratch, self.left, self.depth + 1);
                    self.left = left;
                    held = answer.map_err(|OverBudget| Fail::OverBudget);
                }
                decoded.clear();
                self.scratch.decoded.push(decoded);
                if !held? {
                    return Err(Fail::Here);
                }
                self.chain(rest, cursor, reached, next)
            }
        }
    }

    /// A content: each place that the rest fails from is tried once.
    fn content(
        &mut self,
        find: &Find,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        at: usize,
    ) -> Result<usize, Fail> {
        let next = at + 1;
        let size = find.needle.len();
        let (low, high) = self.limits(find, cursor)?;
        let end = (high + 1).saturating_sub(size);
        if find.negated {
            let there = low < end && self.first(find, 2 * at, low, end)?.is_some();
            return match there {
                true => Err(Fail::Here),
                false => self.chain(rest, cursor, reached, next),
            };
        }
        let far = self.beyond == 0 || reached > self.beyond;
        // Whether it stands at its only place is seen at once: nothing of that is remembered.
        if end == low + 1 && !self.scratch.forgets() {
            let all = find.within.is_none() || high == self.subject.bytes.len();
            let fail = if far && all { Fail::Beyond } else { Fail::Here };
            let bytes = self.subject.bytes.get(low..high).unwrap_or_default();
            if !find.needle.is_at(bytes) {
                self.spend(size as u64 + 1)?;
                return Err(fail);
            }
            // Another match before leads to another place, so what fails behind this one is not met again.
            if find.is_bound() {
                self.spend(size as u64 + TRY)?;
                return match self.chain(rest, high, reached.max(high), next) {
                    Err(Fail::Here) => Err(fail),
                    Err(Fail::Beyond) if !far => Err(Fail::Here),
                    held => held,
                };
            }
        }
        if find.after.scattered {
            self.spend(SCATTERED)?;
        }
        let variables = find.after.variables;
        let index = 2 * at + usize::from(far);
        let mut from = low;
        let mut failed = end;
        let mut beyond = false;
        while from < end {
            let (open, again) = self.memo(index, variables).open(from);
            if open > from {
                from = open;
                continue;
            }
            let until = again.min(end);
            let Some(start) = self.search(find, from, until)? else {
                from = until;
                continue;
            };
            self.spend(TRY)?;
            let stop = start + size;
            match self.chain(rest, stop, reached.max(stop), next) {
                Err(Fail::Here) => from = start + 1,
                Err(Fail::Beyond) => {
                    (failed, beyond) = (usize::MAX, true);
                    break;
                }
                decided => return decided,
            }
        }
        if self.scratch.forgets() {
            return Err(Fail::Here);
        }
        let scattered = find.after.scattered;
        self.memo(index, variables).fail(low, failed, scattered);
        // From places behind this one nothing can be reached that could not be from here.
        let all = beyond || find.within.is_none() || high == self.subject.bytes.len();
        Err(if far && all { Fail::Beyond } else { Fail::Here })
    }

    fn extracted(&self, extract: &Extract, cursor: usize) -> Option<(i64, usize)> {
        let (value, end) = self.get(&extract.get, cursor)?;
        let mut value = value.checked_mul(i128::from(extract.multiplier))?;
        let align = i128::from(extract.align);
        if align > 1 {
            value += (align - value % align) % align;
        }
        Some((i64::try_from(value).ok()?, end))
    }

    fn computed(&self, math: &Math, cursor: usize) -> Option<(i64, usize)> {
        let (value, end) = self.get(&math.get, cursor)?;
        let other = i128::from(self.value(math.value));
        let shift = || u32::try_from(other).ok().filter(|s| *s < 64);
        let value = match math.operator {
            MathOperator::Add => value + other,
            MathOperator::Subtract => value - other,
            MathOperator::Multiply => value.checked_mul(other)?,
            MathOperator::Divide => value.checked_div(other)?,
            MathOperator::Left => i128::from((value as u64) << shift()?),
            MathOperator::Right => value >> shift()?,
        };
        Some((i64::try_from(value).ok()?, end))
    }

    fn keep(&mut self, variable: u8, value: i64) {
        let variable = usize::from(variable) % VARIABLES;
        if self.variables[variable] != value {
            self.epoch += 1;
            self.epochs[variable] = self.epoch;
            self.variables[variable] = value;
        }
    }

    /// From where a content may begin, and where it must have ended. Fails if that is nowhere, and it is not negated.
    fn limits(&self, find: &Find, cursor: usize) -> Result<(usize, usize), Fail> {
        let length = self.subject.bytes.len() as i64;
        let base = i64::try_from(self.subject.base).unwrap_or(i64::MAX);
        let size = find.needle.len() as i64;
        let (mut low, mut high) = (0, length);
        if find.is_relative() {
            let begin = (cursor as i64).saturating_add(find.distance.map_or(0, |d| self.value(d)));
            low = begin;
            if let Some(within) = find.within {
                high = high.min(begin.saturating_add(self.value(within)));
            }
        }
        if find.offset.is_some() || find.depth.is_some() || find.starts {
            let begin = find
                .offset
                .map_or(0, |o| self.value(o))
                .saturating_sub(base);
            low = low.max(begin);
            if let Some(depth) = find.depth {
                high = high.min(begin.saturating_add(self.value(depth)));
            }
            if find.starts {
                high = high.min(begin.saturating_add(size));
            }
        }
        if find.ends {
            low = low.max(length - size);
            if high < length {
                high = -1;
            }
        }
        let low = low.max(0);
        if high < low.saturating_add(size) {
            // Nowhere: a negated content holds, another does not.
            return match find.negated {
                true => Ok((1, 0)),
                false => Err(Fail::Here),
            };
        }
        Ok((low as usize, high as usize))
    }

    /// An expression. Where what is before a match makes no difference to it, each match is tried once, as places of a content are.
    fn pcre(
        &mut self,
        search: &Search,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        at: usize,
    ) -> Result<usize, Fail> {
        let next = at + 1;
        let from = if search.relative { cursor } else { 0 };
        let bytes = self.subject.bytes;
        let subject = bytes.get(from..).ok_or(Fail::Here)?;
        // A match may be empty, at the end.
        let end = bytes.len() + 1;
        let alike = (!search.relative || search.expression.reach().place == Anchoring::Ahead)
            && !self.scratch.forgets();
        let far = self.beyond == 0 || reached > self.beyond;
        if search.negated {
            let known = match alike {
                true => self.memo(2 * at, 0).known(from, end),
                false => Err(from),
            };
            let found = match known {
                Ok(found) => found,
                Err(on) => {
                    let found = self.matched(search, subject, on - from)?;
                    let found = found.map(|(start, _)| from + start);
                    if alike {
                        self.memo(2 * at, 0).search(on, end, found);
                    }
                    found
                }
            };
            return match found {
                Some(_) => Err(Fail::Here),
                None => self.chain(rest, cursor, reached, next),
            };
        }
        let variables = search.after.variables;
        let index = 2 * at + usize::from(far);
        // Another match only helps what is relative to this one, or must lie in new bytes.
        let may_help = self.beyond > 0 || rest.get(next).is_some();
        let mut on = from;
        let held = loop {
            if alike {
                let (open, _) = self.memo(index, variables).open(on);
                if open > on {
                    on = open;
                    continue;
                }
            }
            if on >= end {
                break Err(Fail::Here);
            }
            let Some((found, found_end)) = self.matched(search, subject, on - from)? else {
                break Err(Fail::Here);
            };
            self.spend(TRY)?;
            let stop = from + found_end;
            let place = self.scratch.captured.len();
            match self.chain(rest, stop, reached.max(stop), next) {
                Err(Fail::OverBudget) => return Err(Fail::OverBudget),
                Ok(reached) => {
                    if !search.captures.is_empty() {
                        self.capture(search, subject, on - from, place);
                    }
                    return Ok(reached);
                }
                Err(_) => {}
            }
            if !may_help || search.anchored || found >= subject.len() {
                break Err(Fail::Here);
            }
            on = from + found + 1;
        };
        if !alike || search.anchored {
            return held;
        }
        let scattered = search.after.scattered;
        self.memo(index, variables).fail(from, end, scattered);
        match far {
            true => Err(Fail::Beyond),
            false => held,
        }
    }

    /// The first match from `start` on. One that is given up at the library's limit is none.
    fn matched(
        &mut self,
        search: &Search,
        subject: &[u8],
        start: usize,
    ) -> Result<Option<(usize, usize)>, Fail> {
        let reach = search.expression.reach();
        let rest = subject.get(start..).unwrap_or_default();
        let one_place = reach.place == Anchoring::Here;
        if one_place && let Some(looked_at) = reach.fails_within(rest) {
            self.spend(looked_at as u64)?;
            return Ok(None);
        }
        if let Some(linear) = search.expression.linear() {
            let mut on = start;
            loop {
                let searched = linear.find_at(subject, on);
                self.spend(CALL + searched.looked_at as u64)?;
                let at = match searched.found {
                    Found::Perhaps => break,
                    Found::Nothing => {
                        self.scratch.counts.pcre_calls += 1;
                        return Ok(None);
                    }
                    Found::Match(begin, end) => {
                        self.scratch.counts.pcre_calls += 1;
                        return Ok(Some((begin, end)));
                    }
                    Found::From(at) => at,
                };
                // A wider expression says where this one may begin: only there it is tried.
                let looked_at = reach.from(subject.get(at..).unwrap_or_default()) / PASSED;
                let found = self.tried(looked_at, at, subject, search)?;
                if found.is_some() || search.anchored || at >= subject.len() {
                    return Ok(found);
                }
                on = at + 1;
            }
        }
        match reach.place {
            Anchoring::Here if search.anchored || start == 0 => {
                self.tried(reach.from(rest), start, subject, search)
            }
            Anchoring::Here => {
                let looked_at = reach.from(rest);
                self.called(looked_at, start, |e| e.find_at(subject, start), search)
            }
            Anchoring::Ahead | Anchoring::Around => {
                let most = usize::try_from(self.left).unwrap_or(usize::MAX);
                let looked_at = reach.everywhere(rest, most);
                self.called(looked_at, start, |e| e.find_at(subject, start), search)
            }
        }
    }

    /// Whether there is a match that begins at a place: first with few steps of the library, and if these do not say it, with more, which cost more.
    fn tried(
        &mut self,
        looked_at: usize,
        at: usize,
        subject: &[u8],
        search: &Search,
    ) -> Result<Option<(usize, usize)>, Fail> {
        for (level, steps) in search.expression.steps().enumerate() {
            let found = |e: &Expression| e.find_here(subject, at, level);
            let found = self.ask(looked_at, at, found, search)?;
            if found != Err(NotFound::GivenUp) {
                return Ok(found.ok());
            }
            self.spend(u64::from(steps))?;
        }
        let found = |e: &Expression| e.find_here(subject, at, usize::MAX);
        self.called(looked_at, at, found, search)
    }

    /// Calls the library, which may look at so many bytes from `start` on.
    fn called(
        &mut self,
        looked_at: usize,
        start: usize,
        find: impl FnOnce(&Expression) -> Result<(usize, usize), NotFound>,
        search: &Search,
    ) -> Result<Option<(usize, usize)>, Fail> {
        let found = self.ask(looked_at, start, find, search)?;
        if found == Err(NotFound::GivenUp) {
            self.scratch.counts.pcre_limited += 1;
            self.scratch.gave_up = true;
            self.spend(GIVEN_UP.saturating_sub(looked_at) as u64)?;
            return Err(Fail::Here);
        }
        Ok(found.ok())
    }

    /// What the library says, and what it looked at for that; more for a match that is given up is the caller's.
    fn ask(
        &mut self,
        looked_at: usize,
        start: usize,
        find: impl FnOnce(&Expression) -> Result<(usize, usize), NotFound>,
        search: &Search,
    ) -> Result<Result<(usize, usize), NotFound>, Fail> {
        // What would cost more than there is left is not begun.
        if looked_at as u64 > self.left {
            self.spend(looked_at as u64)?;
        }
        self.scratch.counts.pcre_calls += 1;
        let found = find(&search.expression);
        let looked_at = match found {
            Ok((found, end)) => looked_at.min(end.max(found + 1).saturating_sub(start)),
            Err(_) => looked_at,
        };
        self.spend(CALL + looked_at as u64)?;
        Ok(found)
    }

    /// Keeps what was captured by the match from `start` on, before what later conditions have captured.
    fn capture(&mut self, search: &Search, subject: &[u8], start: usize, place: usize) {
        let groups = search.captures.iter().map(|c| c.group);
        let parts = search.expression.parts_at(subject, start, groups);
        let kept = search.captures.iter().zip(parts).filter_map(|(c, part)| {
            let part = part?;
            let part = part.get(..MOST_CAPTURED).unwrap_or(part);
            Some((c.clone(), part.to_vec()))
        });
        let place = place.min(self.scratch.captured.len());
        self.scratch.captured.splice(place..place, kept);
    }

    /// Reads a number; returns it and where it ended.
    fn get(&self, get: &Get, cursor: usize) -> Option<(i128, usize)> {
        let bytes = self.subject.bytes;
        let count = usize::try_from(self.value(get.bytes)).ok()?;
        let offset = self.value(get.offset);
        let from = if get.relative {
            (cursor as i64).checked_add(offset)?
        } else {
            offset.checked_sub(i64::try_from(self.subject.base).ok()?)?
        };
        let from = usize::try_from(from).ok()?;
        let end = match get.string {
            // No number of digits given: as far as they go.
            Some(_) if count == 0 => bytes.len().min(from.checked_add(MOST_DIGITS)?),
            _ => from.checked_add(count)?,
        };
        let digits = bytes.get(from..end)?;
        let mut read = digits.len();
        let value = match get.string {
            Some(base) => {
                let (value, length) = number(digits, base)?;
                // What is relative to a number in digits stands behind the last of them, however many were allowed.
                read = length;
                i128::from(value)
            }
            None if count > 8 => return None,
            None => {
                let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
                let little = match get.order {
                    Order::Big => false,
                    Order::Little => true,
                    Order::Call => self.scratch.little,
                };
                i128::from(if little {
                    digits.iter().rev().fold(0, fold)
                } else {
                    digits.iter().fold(0, fold)
                })
            }
        };
        let value = match get.bitmask {
            Some(mask) if mask != 0 => (value & i128::from(mask)) >> mask.trailing_zeros(),
            Some(_) => 0,
            None => value,
        };
        Some((value, from + read))
    }

    /// Where a jump leads: inside of the buffer or to its end. Before its start is its start.
    fn jump(&self, jump: &Jump, cursor: usize) -> Option<usize> {
        let length = self.subject.bytes.len() as i128;
        let (value, end) = self.get(&jump.get, cursor)?;
        let mut distance = value.checked_mul(i128::from(jump.multiplier))?;
        if jump.align {
            distance += (4 - distance % 4) % 4;
        }
        distance += i128::from(self.value(jump.post_offset));
        let to = if jump.from_beginning {
            distance - i128::from(self.subject.base)
        } else if jump.from_end {
            length + distance
        } else {
            end as i128 + distance
        };
        // What was before a window of a stream is not there any more.
        let to = if self.subject.base == 0 {
            to.max(0)
        } else {
            to
        };
        (0..=length).contains(&to).then_some(to as usize)
    }
}

/// What fails from one place may hold from another, as places behind are not led to in this order.
fn here(held: Result<usize, Fail>) -> Result<usize, Fail> {
    held.map_err(|fail| match fail {
        Fail::Beyond => Fail::Here,
        fail => fail,
    })
}

/// The entropy of bytes by how often each is there, in millionths of a bit for each byte.
fn bits_a_byte(bytes: &[u8]) -> u64 {
    let mut counts = [0_u32; 256];
    for b in bytes {
        counts[usize::from(*b)] += 1;
    }
    let all = bytes.len() as f64;
    let sum: f64 = counts
        .iter()
        .filter(|c| **c > 0)
        .map(|c| f64::from(*c) / all)
        .map(|share| -share * share.log2())
        .sum();
    (sum * 1e6).round() as u64
}

/// The longest number of 64 bits, in octal digits with a sign.
const MOST_DIGITS: usize = 23;

/// A number written in digits, as C's `strtoull` reads one: blanks, a sign, digits as far as they go; at least one digit. With the length of all that was read.
fn number(text: &[u8], base: u32) -> Option<(i64, usize)> {
    let all = text.len();
    let blank = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
    let mut text = &text[text.iter().take_while(|b| blank(b)).count()..];
    let mut negative = false;
    if let Some((sign @ (b'-' | b'+'), rest)) = text.split_first() {
        negative = *sign == b'-';
        text = rest;
    }
    if base == 16
        && let Some(rest) = text
            .strip_prefix(b"0x")
            .or_else(|| text.strip_prefix(b"0X"))
        && rest.first().is_some_and(u8::is_ascii_hexdigit)
    {
        text = rest;
    }
    let mut value: Option<i64> = None;
    while let Some((b, rest)) = text.split_first() {
        let Some(digit) = char::from(*b).to_digit(base.clamp(2, 36)) else {
            break;
        };
        text = rest;
        let so_far = value.unwrap_or(0);
        value = Some(
            so_far
                .checked_mul(i64::from(base))?
                .checked_add(i64::from(digit))?,
        );
    }
    value.map(|v| (if negative { -v } else { v }, all - text.len()))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(number(b"12ab", 10), Some((12, 2)));
        assert_eq!(number(b" -12", 10), Some((-12, 4)));
        assert_eq!(number(b"0x1F ", 16), Some((31, 4)));
        assert_eq!(number(b"0x", 16), Some((0, 1)));
        assert_eq!(number(b"zz", 10), None);
        assert_eq!(number(b"", 10), None);
        assert_eq!(number(b"777", 8), Some((511, 3)));
        assert_eq!(number(b"99999999999999999999", 10), None);
    }
}

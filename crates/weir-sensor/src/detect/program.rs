//! The conditions of one buffer, compiled: exact evaluation with backtracking.
//!
//! Conditions form chains: a chain begins at one that says where it stands by itself and goes on through those relative to the match before. A chain holds if some choice of
//! occurrences makes all of its conditions hold; chains do not influence each other and are decided one by one, unless a number extracted in one is used in another, which makes them
//! one. Every decision is bounded: after `STEPS` tried occurrences the buffer does not match, and a counter says so.

use std::sync::Arc;

use crate::base64;
use crate::matcher::byte_cost;
use crate::rules::{
    Base64, ByteExtract, ByteJump, ByteMath, ByteTest, Condition, Content, Dataset, Entropy,
    Expression, Expressions, MathOperator, NotFound, Number, Range, Read, TestOperator,
};

/// Most occurrences that are tried for one rule in one buffer.
const STEPS: u32 = 3000;
/// Most conditions of one buffer of one rule: the depth of recursion.
const CONDITIONS: usize = 256;
/// Most numbers that one rule extracts from one buffer.
const VARIABLES: usize = 16;

/// What evaluation counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Searches by regular expressions.
    pub pcre_calls: u64,
    /// Searches that PCRE2 gave up at its limit: they count as no match.
    pub pcre_limited: u64,
    /// Buffers given up after too many occurrences were tried.
    pub steps_limited: u64,
}

/// Memory that evaluation reuses.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) counts: EvaluationCounts,
    decoded: Vec<Vec<u8>>,
}

/// A buffer to inspect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) bytes: &'a [u8],
    /// Of streams: offset of `bytes` in the stream, from which `offset` and `depth` count.
    pub(super) base: u64,
    /// Of streams: a match must reach beyond this index; 0 asks nothing.
    pub(super) fresh: usize,
}

impl<'a> Subject<'a> {
    pub(super) fn whole(bytes: &'a [u8]) -> Subject<'a> {
        Subject {
            bytes,
            base: 0,
            fresh: 0,
        }
    }
}

/// Compiled conditions. Rule sets that follow each other share the chains of rules that stayed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    chains: Arc<[Box<[Step]>]>,
    /// Whether there is a condition that says where it was found: without one, `fresh` asks nothing.
    found_somewhere: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Is(i64),
    Variable(u8),
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Content(Box<Find>),
    Pcre(Box<Search>),
    IsDataAt {
        offset: Value,
        relative: bool,
        negated: bool,
    },
    Test(Box<Test>),
    Jump(Box<Jump>),
    Extract(Box<Extract>),
    Math(Box<Math>),
    Size(Range),
    Base64(Base64, Program),
    Dataset(Arc<Dataset>),
    Entropy(Entropy),
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

/// A content and where it may stand.
#[derive(Debug, PartialEq, Eq)]
struct Find {
    needle: Needle,
    negated: bool,
    offset: Option<Value>,
    depth: Option<Value>,
    distance: Option<Value>,
    within: Option<Value>,
    starts: bool,
    ends: bool,
    /// `fast_pattern:only`: nothing is relative to it.
    still: bool,
}

impl Find {
    fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Search {
    expression: Arc<Expression>,
    anchored: bool,
    relative: bool,
    negated: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Get {
    bytes: Value,
    offset: Value,
    relative: bool,
    little: bool,
    string: Option<u32>,
    bitmask: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct Test {
    get: Get,
    negated: bool,
    operator: TestOperator,
    value: Value,
}

#[derive(Debug, PartialEq, Eq)]
struct Jump {
    get: Get,
    multiplier: u32,
    align: bool,
    from_beginning: bool,
    from_end: bool,
    post_offset: Value,
}

#[derive(Debug, PartialEq, Eq)]
struct Extract {
    get: Get,
    multiplier: u32,
    align: u8,
    variable: u8,
}

#[derive(Debug, PartialEq, Eq)]
struct Math {
    get: Get,
    operator: MathOperator,
    value: Value,
    variable: u8,
}

/// Builds the steps of one buffer.
struct Builder<'a> {
    expressions: &'a mut Expressions,
    names: Vec<String>,
}

impl Builder<'_> {
    fn value(&self, number: &Number) -> Result<Value, String> {
        match number {
            Number::Is(n) => Ok(Value::Is(*n)),
            Number::Variable(name) => self
                .names
                .iter()
                .rposition(|n| n == name)
                .map(|i| Value::Variable(i as u8))
                .ok_or_else(|| format!("nothing before it extracts `{name}` from this buffer")),
        }
    }

    fn maybe(&self, number: &Option<Number>) -> Result<Option<Value>, String> {
        number.as_ref().map(|n| self.value(n)).transpose()
    }

    fn name(&mut self, name: &str) -> Result<u8, String> {
        if let Some(known) = self.names.iter().position(|n| n == name) {
            return Ok(known as u8);
        }
        if self.names.len() == VARIABLES {
            return Err(format!("more than {VARIABLES} numbers are extracted"));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() as u8 - 1)
    }

    fn get(&self, read: &Read) -> Result<Get, String> {
        if read.dce {
            return Err("the byte order of a DCE/RPC header (`dce`) is not known here".into());
        }
        Ok(Get {
            bytes: self.value(&read.bytes)?,
            offset: self.value(&read.offset)?,
            relative: read.relative,
            little: read.little,
            string: read.string,
            bitmask: read.bitmask,
        })
    }

    fn find(&self, content: &Content) -> Result<Find, String> {
        Ok(Find {
            needle: Needle::new(&content.bytes, content.nocase),
            negated: content.negated,
            offset: self.maybe(&content.offset)?,
            depth: self.maybe(&content.depth)?,
            distance: self.maybe(&content.distance)?,
            within: self.maybe(&content.within)?,
            starts: content.starts,
            ends: content.ends,
            still: content.only && !content.negated,
        })
    }

    fn steps(&mut self, conditions: &[Condition]) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        let mut rest = conditions;
        while let Some((condition, after)) = rest.split_first() {
            rest = after;
            steps.push(match condition {
                Condition::Content(c) if c.bytes.is_empty() => continue,
                Condition::Content(c) => Step::Content(Box::new(self.find(c)?)),
                Condition::Pcre(p) => Step::Pcre(Box::new(Search {
                    expression: self.expressions.of(p).map_err(|e| e.to_string())?,
                    anchored: p.anchored,
                    relative: p.relative,
                    negated: p.negated,
                })),
                Condition::IsDataAt {
                    offset,
                    relative,
                    negated,
                } => Step::IsDataAt {
                    offset: self.value(offset)?,
                    relative: *relative,
                    negated: *negated,
                },
                Condition::ByteTest(ByteTest {
                    read,
                    negated,
                    operator,
                    value,
                }) => Step::Test(Box::new(Test {
                    get: self.get(read)?,
                    negated: *negated,
                    operator: *operator,
                    value: self.value(value)?,
                })),
                Condition::ByteJump(ByteJump {
                    read,
                    multiplier,
                    align,
                    from_beginning,
                    from_end,
                    post_offset,
                }) => Step::Jump(Box::new(Jump {
                    get: self.get(read)?,
                    multiplier: *multiplier,
                    align: *align,
                    from_beginning: *from_beginning,
                    from_end: *from_end,
                    post_offset: self.value(post_offset)?,
                })),
                Condition::ByteExtract(ByteExtract {
                    read,
                    multiplier,
                    align,
                    name,
                }) => Step::Extract(Box::new(Extract {
                    get: self.get(read)?,
                    multiplier: *multiplier,
                    align: *align,
                    variable: self.name(name)?,
                })),
                Condition::ByteMath(ByteMath {
                    read,
                    operator,
                    value,
                    name,
                }) => Step::Math(Box::new(Math {
                    get: self.get(read)?,
                    operator: *operator,
                    value: self.value(value)?,
                    variable: self.name(name)?,
                })),
                Condition::Size(range) => Step::Size(*range),
                Condition::Dataset(set) => Step::Dataset(set.clone()),
                Condition::Entropy(entropy) => Step::Entropy(*entropy),
                // The buffer's absence is decided before there is anything to evaluate.
                Condition::Absent(_) => continue,
                Condition::Base64Decode(how) => {
                    let data = rest.iter().position(|c| matches!(c, Condition::Base64Data));
                    let inner = match data {
                        Some(at) => {
                            let (between, inner) = rest.split_at(at);
                            rest = between;
                            inner.get(1..).unwrap_or_default()
                        }
                        None => &[],
                    };
                    Step::Base64(how.clone(), Program::new(inner, self.expressions)?)
                }
                Condition::Base64Data => {
                    return Err("base64_data without a base64_decode before it".into());
                }
            });
        }
        Ok(steps)
    }
}

impl Step {
    /// Whether it stands by itself and later conditions may be relative to it: a chain begins here.
    fn begins(&self) -> bool {
        match self {
            Step::Content(f) => !f.negated && !f.is_relative() && !f.still,
            Step::Pcre(s) => !s.negated && !s.relative,
            Step::Jump(j) => !j.get.relative,
            Step::Extract(e) => !e.get.relative,
            Step::Math(m) => !m.get.relative,
            _ => false,
        }
    }

    /// Whether it neither depends on the match before nor is there anything after that depends on it.
    fn is_alone(&self) -> bool {
        match self {
            Step::Content(f) => (f.negated || f.still) && !f.is_relative(),
            Step::Pcre(s) => s.negated && !s.relative,
            Step::IsDataAt { relative, .. } => !relative,
            Step::Test(t) => !t.get.relative,
            Step::Size(_) | Step::Dataset(_) | Step::Entropy(_) => true,
            Step::Base64(how, _) => !how.relative,
            _ => false,
        }
    }

    fn values(&self) -> Vec<Value> {
        match self {
            Step::Content(f) => [f.offset, f.depth, f.distance, f.within]
                .into_iter()
                .flatten()
                .collect(),
            Step::IsDataAt { offset, .. } => vec![*offset],
            Step::Test(t) => vec![t.value, t.get.bytes, t.get.offset],
            Step::Jump(j) => vec![j.post_offset, j.get.bytes, j.get.offset],
            Step::Extract(e) => vec![e.get.bytes, e.get.offset],
            Step::Math(m) => vec![m.value, m.get.bytes, m.get.offset],
            _ => Vec::new(),
        }
    }

    fn uses_variables(&self) -> bool {
        self.values()
            .iter()
            .any(|v| matches!(v, Value::Variable(_)))
    }

    fn extracts(&self) -> bool {
        matches!(self, Step::Extract(_) | Step::Math(_))
    }

    /// Rough cost, for the order of chains.
    fn cost(&self) -> u32 {
        match self {
            Step::Size(_) | Step::IsDataAt { .. } => 0,
            Step::Test(_) | Step::Jump(_) | Step::Extract(_) | Step::Math(_) => 1,
            Step::Content(f) if f.starts || f.ends || f.depth.is_some() => 2,
            Step::Content(_) => 4,
            Step::Dataset(_) => 8,
            Step::Entropy(_) => 50,
            Step::Base64(..) => 50,
            Step::Pcre(_) => 100,
        }
    }
}

impl Program {
    /// Compiles the conditions of one buffer.
    pub(super) fn new(
        conditions: &[Condition],
        expressions: &mut Expressions,
    ) -> Result<Program, String> {
        if conditions.len() > CONDITIONS {
            return Err(format!("more than {CONDITIONS} conditions on one buffer"));
        }
        let mut builder = Builder {
            expressions,
            names: Vec::new(),
        };
        let steps = builder.steps(conditions)?;
        let found_somewhere = steps.iter().any(|s| match s {
            Step::Content(f) => !f.negated,
            Step::Pcre(p) => !p.negated,
            _ => false,
        });
        // A number that is used outside of its chain joins the chains between.
        let has_variables = steps.iter().any(Step::extracts);
        let mut chains: Vec<Vec<Step>> = Vec::new();
        let mut alone = Vec::new();
        let mut current: Vec<Step> = Vec::new();
        let mut bound = false;
        for step in steps {
            if step.is_alone() && !step.uses_variables() {
                alone.push(vec![step]);
                continue;
            }
            if step.begins() && !bound && !current.is_empty() {
                chains.push(std::mem::take(&mut current));
            }
            // From the first extraction on everything is one chain.
            bound |= step.extracts() && has_variables;
            current.push(step);
        }
        if !current.is_empty() {
            chains.push(current);
        }
        alone.append(&mut chains);
        let mut chains = alone;
        // Chains are independent, so the order is free: cheap ones first.
        chains.sort_by_key(|c| c.iter().map(Step::cost).sum::<u32>());
        Ok(Program {
            chains: chains.into_iter().map(Vec::into_boxed_slice).collect(),
            found_somewhere,
        })
    }

    /// Takes the chains of a program that says the same.
    pub(super) fn share(&mut self, before: &Program) {
        if self.chains == before.chains {
            self.chains = Arc::clone(&before.chains);
        }
    }

    /// Its expressions.
    pub(super) fn expressions(&self, each: &mut impl FnMut(&Arc<Expression>)) {
        for step in self.chains.iter().flatten() {
            match step {
                Step::Pcre(search) => each(&search.expression),
                Step::Base64(_, inner) => inner.expressions(each),
                _ => {}
            }
        }
    }

    /// Whether the conditions hold.
    pub(super) fn holds(&self, subject: &Subject<'_>, scratch: &mut Scratch) -> bool {
        self.holds_at(subject, scratch, 0)
    }

    fn holds_at(&self, subject: &Subject<'_>, scratch: &mut Scratch, depth: usize) -> bool {
        let mut run = Run {
            subject,
            scratch,
            variables: [0; VARIABLES],
            steps: 0,
            beyond: 0,
            depth,
        };
        let mut reached = 0;
        for chain in self.chains.iter() {
            match run.chain(chain, 0, 0, 0) {
                Some(end) => reached = reached.max(end),
                None => return run.failed(),
            }
        }
        if reached > subject.fresh || subject.fresh == 0 || !self.found_somewhere {
            return true;
        }
        // All of it was found in bytes that were inspected before: does some chain hold with a part of it in the new ones?
        run.beyond = subject.fresh;
        self.chains
            .iter()
            .any(|chain| run.chain(chain, 0, 0, 0).is_some())
            || run.failed()
    }
}

struct Run<'a, 'b> {
    subject: &'a Subject<'a>,
    scratch: &'b mut Scratch,
    variables: [i64; VARIABLES],
    steps: u32,
    /// A chain must reach beyond this index.
    beyond: usize,
    /// Programs within programs, for scratch memory.
    depth: usize,
}

impl Run<'_, '_> {
    fn failed(&mut self) -> bool {
        if self.steps > STEPS {
            self.scratch.counts.steps_limited += 1;
        }
        false
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Is(n) => n,
            Value::Variable(i) => self.variables[usize::from(i) % VARIABLES],
        }
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= STEPS
    }

    /// Whether the rest of a chain holds with the match before ending at `cursor`; returns the furthest end of what was found.
    fn chain(&mut self, rest: &[Step], cursor: usize, reached: usize, at: usize) -> Option<usize> {
        let Some(step) = rest.get(at) else {
            return (self.beyond == 0 || reached > self.beyond).then_some(reached);
        };
        let next = at + 1;
        match step {
            Step::Content(find) => {
                let (low, high) = self.limits(find, cursor)?;
                if find.negated {
                    let found =
                        high >= low && find.needle.find(self.subject.bytes, low, high).is_some();
                    return if found {
                        None
                    } else {
                        self.chain(rest, cursor, reached, next)
                    };
                }
                let mut from = low;
                while let Some(start) = find.needle.find(self.subject.bytes, from, high) {
                    if !self.step() {
                        return None;
                    }
                    let end = start + find.needle.bytes.len();
                    let stand = if find.still { cursor } else { end };
                    let held = self.chain(rest, stand, reached.max(end), next);
                    if held.is_some() {
                        return held;
                    }
                    from = start + 1;
                }
                None
            }
            Step::Pcre(search) => self.pcre(search, rest, cursor, reached, next),
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
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Test(test) => {
                let (value, _) = self.get(&test.get, cursor)?;
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
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Jump(jump) => {
                let to = self.jump(jump, cursor)?;
                self.chain(rest, to, reached, next)
            }
            Step::Extract(extract) => {
                let (value, end) = self.get(&extract.get, cursor)?;
                let mut value = value.checked_mul(i128::from(extract.multiplier))?;
                let align = i128::from(extract.align);
                if align > 1 {
                    value += (align - value % align) % align;
                }
                self.keep(extract.variable, i64::try_from(value).ok()?);
                self.chain(rest, end, reached, next)
            }
            Step::Math(math) => {
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
                self.keep(math.variable, i64::try_from(value).ok()?);
                self.chain(rest, end, reached, next)
            }
            Step::Size(range) => {
                let size = self.subject.bytes.len() as u64;
                if !super::in_range(range, size) {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Entropy(entropy) => {
                let from = entropy.offset as usize;
                let bytes = self.subject.bytes.get(from..)?;
                let bytes = match entropy.bytes {
                    Some(count) => bytes.get(..count as usize)?,
                    None => bytes,
                };
                if !super::in_range(&entropy.value, bits_a_byte(bytes)) {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Dataset(set) => {
                if set.members.contains(self.subject.bytes) == set.negated {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
            Step::Base64(how, inner) => {
                let from = if how.relative { cursor } else { 0 };
                let bytes = self.subject.bytes;
                let mut encoded = bytes.get(from + how.offset as usize..)?;
                if let Some(most) = how.bytes {
                    encoded = encoded.get(..most as usize).unwrap_or(encoded);
                }
                let mut decoded = self.scratch.decoded.pop().unwrap_or_default();
                base64::decode_until_invalid(encoded, &mut decoded);
                let held = !decoded.is_empty()
                    && self.depth < 4
                    && inner.holds_at(&Subject::whole(&decoded), self.scratch, self.depth + 1);
                decoded.clear();
                self.scratch.decoded.push(decoded);
                if !held {
                    return None;
                }
                self.chain(rest, cursor, reached, next)
            }
        }
    }

    fn keep(&mut self, variable: u8, value: i64) {
        self.variables[usize::from(variable) % VARIABLES] = value;
    }

    /// From where a content may begin, and where it must have ended; `None`: nowhere, and it is not negated.
    fn limits(&self, find: &Find, cursor: usize) -> Option<(usize, usize)> {
        let length = self.subject.bytes.len() as i64;
        let base = i64::try_from(self.subject.base).unwrap_or(i64::MAX);
        let size = find.needle.bytes.len() as i64;
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
            return find.negated.then_some((1, 0));
        }
        Some((low as usize, high as usize))
    }

    fn pcre(
        &mut self,
        search: &Search,
        rest: &[Step],
        cursor: usize,
        reached: usize,
        next: usize,
    ) -> Option<usize> {
        let from = if search.relative { cursor } else { 0 };
        let subject = self.subject.bytes.get(from..)?;
        let mut start = 0;
        loop {
            self.scratch.counts.pcre_calls += 1;
            let found = search.expression.find_at(subject, start);
            if found == Err(NotFound::GivenUp) {
                self.scratch.counts.pcre_limited += 1;
                return None;
            }
            if search.negated {
                return match found {
                    Ok(_) => None,
                    Err(_) => self.chain(rest, cursor, reached, next),
                };
            }
            let (found, found_end) = found.ok()?;
            if !self.step() {
                return None;
            }
            let end = from + found_end;
            let held = self.chain(rest, end, reached.max(end), next);
            if held.is_some() {
                return held;
            }
            // Another match only helps what is relative to this one, or must lie in new bytes.
            let may_help = self.beyond > 0 || rest.get(next).is_some();
            if !may_help || search.anchored || found >= subject.len() {
                return None;
            }
            start = found + 1;
        }
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
        let value = match get.string {
            Some(base) => i128::from(number(digits, base)?),
            None if count > 8 => return None,
            None => {
                let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
                i128::from(if get.little {
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
        Some((value, end))
    }

    /// Where a jump leads: inside of the buffer.
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
        (0..length).contains(&to).then_some(to as usize)
    }
}

/// The longest number of 64 bits, in octal digits with a sign.
const MOST_DIGITS: usize = 23;

/// A number written in digits, as C's `strtoull` reads one: blanks, a sign, digits as far as they go; at least one digit.
fn number(text: &[u8], base: u32) -> Option<i64> {
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
    for b in text {
        let Some(digit) = char::from(*b).to_digit(base.clamp(2, 36)) else {
            break;
        };
        let so_far = value.unwrap_or(0);
        value = Some(
            so_far
                .checked_mul(i64::from(base))?
                .checked_add(i64::from(digit))?,
        );
    }
    value.map(|v| if negative { -v } else { v })
}

/// A content as it is searched for: by its rarest byte.
#[derive(Debug, PartialEq, Eq)]
struct Needle {
    /// In lower case if `nocase`.
    bytes: Box<[u8]>,
    nocase: bool,
    /// Index of the byte to look for.
    rare: usize,
}

impl Needle {
    fn new(bytes: &[u8], nocase: bool) -> Needle {
        let bytes: Box<[u8]> = if nocase {
            bytes.to_ascii_lowercase().into()
        } else {
            bytes.into()
        };
        let cost = |b: u8| {
            if nocase {
                byte_cost(b).min(byte_cost(b.to_ascii_uppercase()))
            } else {
                byte_cost(b)
            }
        };
        let rare = (0..bytes.len())
            .max_by_key(|i| cost(bytes[*i]))
            .unwrap_or(0);
        Needle {
            bytes,
            nocase,
            rare,
        }
    }

    fn is_at(&self, there: &[u8]) -> bool {
        if self.nocase {
            self.bytes
                .iter()
                .zip(there)
                .all(|(a, b)| *a == b.to_ascii_lowercase())
        } else {
            *self.bytes == *there
        }
    }

    /// The first place from `low` on where it is found and has ended by `high`.
    fn find(&self, haystack: &[u8], low: usize, high: usize) -> Option<usize> {
        let size = self.bytes.len();
        let high = high.min(haystack.len());
        // Where its rare byte may be.
        let last = high.checked_sub(size)?;
        if low > last {
            return None;
        }
        if low == last {
            return self.is_at(&haystack[low..high]).then_some(low);
        }
        let rare = self.bytes[self.rare];
        let upper = rare.to_ascii_uppercase();
        let mut at = low;
        while at <= last {
            let range = &haystack[at + self.rare..=last + self.rare];
            let found = if self.nocase && upper != rare {
                memchr::memchr2(rare, upper, range)
            } else {
                memchr::memchr(rare, range)
            };
            let start = at + found?;
            if self.is_at(&haystack[start..start + size]) {
                return Some(start);
            }
            at = start + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(number(b"12ab", 10), Some(12));
        assert_eq!(number(b" -12", 10), Some(-12));
        assert_eq!(number(b"0x1F ", 16), Some(31));
        assert_eq!(number(b"0x", 16), Some(0));
        assert_eq!(number(b"zz", 10), None);
        assert_eq!(number(b"", 10), None);
        assert_eq!(number(b"777", 8), Some(511));
        assert_eq!(number(b"99999999999999999999", 10), None);
    }
}

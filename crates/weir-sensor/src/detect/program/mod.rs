//! The conditions of one buffer, compiled: exact evaluation with backtracking.
//!
//! Conditions form chains: a chain begins at one that says where it stands by itself and goes on through those relative to the match before. A chain holds if some choice of
//! occurrences makes all of its conditions hold; chains do not influence each other and are decided one by one, unless a number extracted in one is used in another, which makes them
//! one. A place that a condition was found at, and from which the rest failed, is not tried again (`memo`). Every decision is bounded by a budget of work in proportion to the buffer and
//! the rule: where it is used up the buffer does not match, and the rule is named in a counter.

mod asn1;
mod memo;
mod run;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::matcher::Needle;
use crate::rules::{
    Asn1, Base64, ByteExtract, ByteJump, ByteMath, ByteTest, Capture, Condition, Content, Dataset,
    Entropy, Expression, Expressions, MathOperator, Number, Range, Read, TestOperator,
};
use memo::Memo;
use run::{Fail, Run};

/// Units of work that one rule may spend on one buffer, for each of the buffer's bytes and each unit of the rule's length.
const BUDGET: u64 = 16;
/// What a condition adds to a rule's length, besides its bytes.
const CONDITION: u64 = 64;
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
    /// Buffers given up as a rule's budget of work was used up: they count as no match.
    pub limited: u64,
    /// Units of work: one for each byte that was searched, some for each place that was tried.
    pub work: u64,
}

/// Memory that evaluation reuses.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) counts: EvaluationCounts,
    decoded: Vec<Vec<u8>>,
    /// What failed, of the conditions of the chain at hand.
    memos: Vec<Vec<Memo>>,
    /// A limit was reached since this was last cleared.
    pub(super) gave_up: bool,
    /// What is inspected are arguments of a DCE/RPC call in little-endian order.
    pub(super) little: bool,
    /// Nothing is remembered: what is decided so must be the same.
    #[cfg(test)]
    forget: bool,
    /// What expressions of the rule at hand have captured, to be kept if the rule holds.
    pub(super) captured: Vec<(Capture, Vec<u8>)>,
    /// What the buffer at hand asks of sets that rules change: decided where matches come together.
    pub(super) asked: Vec<Ask>,
    /// Numbers that the rule at hand has extracted, for its scripts.
    pub(super) numbers: Vec<(Arc<str>, i64)>,
}

impl Scratch {
    #[cfg(test)]
    fn forgets(&self) -> bool {
        self.forget
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have something to ask")]
    const fn forgets(&self) -> bool {
        false
    }
}

/// What is asked of a set that rules change, and for which value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub(crate) set: Arc<Dataset>,
    pub(crate) value: Vec<u8>,
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

/// Variables by their place, and their names.
type Exports = Box<[(u8, Arc<str>)]>;

/// Compiled conditions. Rule sets that follow each other share the chains of rules that stayed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    chains: Arc<[Box<[Step]>]>,
    /// Bytes of its contents, and `CONDITION` for each condition.
    length: u64,
    /// Whether there is a condition that says where it was found: without one, `fresh` asks nothing.
    found_somewhere: bool,
    /// Numbers that scripts of the rule ask for, by the place of their variable.
    exports: Option<Exports>,
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
    Asn1(Asn1),
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
    after: After,
}

/// What a condition needs to know of its chain to remember what failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct After {
    /// Variables, by bit, whose values decide what follows.
    variables: u16,
    /// What comes before does not lead here from left to right: by a jump, an expression, a number.
    scattered: bool,
}

impl Find {
    fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }

    /// Whether the match before alone says where it may stand, and another match another place.
    fn is_bound(&self) -> bool {
        let elsewhere = self.offset.is_some() || self.depth.is_some() || self.starts || self.ends;
        self.is_relative() && !elsewhere && !self.after.scattered
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Search {
    expression: Arc<Expression>,
    anchored: bool,
    relative: bool,
    negated: bool,
    captures: Box<[Capture]>,
    after: After,
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
    /// As the call says whose arguments are inspected.
    Call,
}

#[derive(Debug, PartialEq, Eq)]
struct Get {
    bytes: Value,
    offset: Value,
    relative: bool,
    order: Order,
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
        let order = match (read.dce, read.little) {
            (true, _) => Order::Call,
            (false, true) => Order::Little,
            (false, false) => Order::Big,
        };
        Ok(Get {
            bytes: self.value(&read.bytes)?,
            offset: self.value(&read.offset)?,
            relative: read.relative,
            order,
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
            after: After::default(),
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
                    captures: p.captures.as_slice().into(),
                    after: After::default(),
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
                Condition::Asn1(asked) => Step::Asn1(*asked),
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
            Step::Content(f) => !f.negated && !f.is_relative(),
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
            Step::Content(f) => f.negated && !f.is_relative(),
            Step::Pcre(s) => s.negated && !s.relative,
            Step::IsDataAt { relative, .. } => !relative,
            Step::Test(t) => !t.get.relative,
            Step::Size(_) | Step::Dataset(_) | Step::Entropy(_) => true,
            Step::Base64(how, _) => !how.relative,
            Step::Asn1(asked) => !asked.relative,
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

    /// The variable that it sets.
    fn sets(&self) -> Option<u8> {
        match self {
            Step::Extract(e) => Some(e.variable),
            Step::Math(m) => Some(m.variable),
            _ => None,
        }
    }

    /// Whether the places that it leads to are not in the order of the places that led to it.
    fn scatters(&self) -> bool {
        let number = |get: &Get| get.string.is_some();
        match self {
            Step::Pcre(_) | Step::Jump(_) => true,
            Step::Extract(e) => number(&e.get),
            Step::Math(m) => number(&m.get),
            _ => false,
        }
    }

    fn length(&self) -> u64 {
        CONDITION
            + match self {
                Step::Content(f) => f.needle.len() as u64,
                Step::Base64(_, inner) => inner.length,
                _ => 0,
            }
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
            Step::Entropy(_) | Step::Asn1(_) => 50,
            Step::Base64(..) => 50,
            Step::Pcre(_) => 100,
        }
    }
}

/// Tells the conditions of a chain what comes before and after them.
fn look_around(chain: &mut [Step]) {
    let mut scattered = false;
    for step in chain.iter_mut() {
        scattered |= step.uses_variables();
        match step {
            Step::Content(f) => f.after.scattered = scattered,
            Step::Pcre(s) => s.after.scattered = scattered,
            _ => {}
        }
        scattered |= step.scatters();
    }
    let mut variables = 0_u16;
    for step in chain.iter_mut().rev() {
        match step {
            Step::Content(f) => f.after.variables = variables,
            Step::Pcre(s) => s.after.variables = variables,
            _ => {}
        }
        if let Some(set) = step.sets() {
            variables &= !(1 << set);
        }
        for value in step.values() {
            if let Value::Variable(used) = value {
                variables |= 1 << used;
            }
        }
    }
}

impl Program {
    /// Compiles the conditions of one buffer.
    pub(super) fn new(
        conditions: &[Condition],
        expressions: &mut Expressions,
    ) -> Result<Program, String> {
        Program::exporting(conditions, expressions, &[])
    }

    /// The same, with numbers that are handed on when the conditions hold.
    pub(super) fn exporting(
        conditions: &[Condition],
        expressions: &mut Expressions,
        numbers: &[&str],
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
        chains.iter_mut().for_each(|c| look_around(c));
        let exports: Box<[_]> = (builder.names.iter().zip(0_u8..))
            .filter(|(name, _)| numbers.contains(&name.as_str()))
            .map(|(name, at)| (at, Arc::from(name.as_str())))
            .collect();
        Ok(Program {
            exports: (!exports.is_empty()).then_some(exports),
            length: chains.iter().flatten().map(Step::length).sum(),
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

    /// Whether it asks something of a set that rules change.
    pub(super) fn asks_live(&self) -> bool {
        self.chains.iter().flatten().any(|step| match step {
            Step::Dataset(set) => set.live.is_changed(),
            Step::Base64(_, inner) => inner.asks_live(),
            _ => false,
        })
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

    /// Whether it says where something was found, so that it holds once for the same bytes.
    pub(super) fn finds(&self) -> bool {
        self.found_somewhere
    }

    /// Whether the conditions hold.
    pub(super) fn holds(&self, subject: &Subject<'_>, scratch: &mut Scratch) -> bool {
        let budget = BUDGET * (subject.bytes.len() as u64 + self.length);
        let (held, left) = self.holds_within(subject, scratch, budget, 0);
        scratch.counts.work += budget - left;
        match held {
            Ok(held) => held,
            Err(OverBudget) => {
                scratch.counts.limited += 1;
                scratch.gave_up = true;
                false
            }
        }
    }

    /// With so much work at most; also what is left of it.
    fn holds_within(
        &self,
        subject: &Subject<'_>,
        scratch: &mut Scratch,
        budget: u64,
        depth: usize,
    ) -> (Result<bool, OverBudget>, u64) {
        let memos = scratch.memos.pop().unwrap_or_default();
        let asked = scratch.asked.len();
        let mut run = Run::new(subject, scratch, memos, budget, depth);
        let held = self.decide(&mut run);
        if let (Ok(true), Some(exports)) = (&held, &self.exports) {
            run.export(exports);
        }
        let (memos, left) = run.finish();
        scratch.memos.push(memos);
        if !matches!(held, Ok(true)) {
            scratch.asked.truncate(asked);
        }
        (held, left)
    }

    fn decide(&self, run: &mut Run<'_, '_>) -> Result<bool, OverBudget> {
        let mut reached = 0;
        for chain in self.chains.iter() {
            match run.whole_chain(chain, 0) {
                Ok(end) => reached = reached.max(end),
                Err(Fail::OverBudget) => return Err(OverBudget),
                Err(_) => return Ok(false),
            }
        }
        let fresh = run.fresh();
        if reached > fresh || fresh == 0 || !self.found_somewhere {
            return Ok(true);
        }
        // All of it was found in bytes that were inspected before: does some chain hold with a part of it in the new ones?
        for chain in self.chains.iter() {
            match run.whole_chain(chain, fresh) {
                Ok(_) => return Ok(true),
                Err(Fail::OverBudget) => return Err(OverBudget),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}

/// The budget of a rule for a buffer was used up.
#[derive(Clone, Copy, Debug)]
struct OverBudget;

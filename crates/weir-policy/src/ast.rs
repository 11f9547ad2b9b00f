//! The syntax tree: what was written, and where.
//!
//! Nothing here is checked against widths or classes; that is lowering's work. The tree keeps every comment and
//! blank line, so that `weir fmt` can write the file anew. Spans are byte ranges of [`File::text`].

use std::path::PathBuf;
use std::sync::Arc;

use crate::dynamic::Address;
use crate::field::Field;

/// A byte range of the source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end.max(self.start),
        }
    }

    /// The text at this span.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or("")
    }
}

/// A policy file.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The text that spans point into.
    pub text: Arc<str>,
    /// Lines in order; a continued line is one item. In place of an `include` that was read stand the lines of its file.
    pub items: Vec<Item>,
    /// The files that the text is made of: the policy first, then those that it includes. Empty if none was looked for.
    pub parts: Vec<Part>,
}

/// A file of a policy.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it begins in the text.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// Its name in messages.
    pub name: Arc<str>,
    /// Its path from the folder of the policy on; `None` of the policy itself.
    pub path: Option<PathBuf>,
}

/// One logical line.
#[derive(Clone, Debug)]
pub enum Item {
    /// An empty line.
    Blank,
    /// A line with only a comment.
    Comment(Span),
    /// A rule.
    Rule(Rule),
    /// A set definition.
    Set(Set),
    /// How connections and limits are kept.
    Setting(Setting),
    /// `chain NAME {`: the rules up to the next [`Item::End`] are its own.
    Chain(Chain),
    /// `}` of a chain.
    End(End),
    /// `include "file.weir"` that was not read.
    Include(Include),
}

/// A rule as written.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The whole rule without its comment.
    pub span: Span,
    /// Line, from 1.
    pub line: u32,
    /// Name, without the colon.
    pub name: Option<Span>,
    /// `add-stateful`, where it stands.
    pub stateful: Option<Span>,
    /// Matches in order.
    pub matches: Vec<Match>,
    /// Targets in order.
    pub targets: Vec<Target>,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// `set NAME = ...`.
#[derive(Clone, Debug)]
pub struct Set {
    /// The whole definition without its comment.
    pub span: Span,
    /// The name.
    pub name: Span,
    /// What it holds.
    pub body: SetBody,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// What a set holds.
#[derive(Clone, Debug)]
pub enum SetBody {
    /// `{ a, b, c-d }`: one span an element.
    List(Vec<Span>),
    /// `file "path"`: the span of the string, with its quotes.
    File(Span),
    /// `dynamic [size N] [timeout DURATION]`
    Dynamic {
        /// Number of elements.
        size: Option<Span>,
        /// How long they stay.
        timeout: Option<Span>,
    },
}

/// `chain NAME {`
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The whole line without its comment.
    pub span: Span,
    /// The name.
    pub name: Span,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// `include "file.weir"`
#[derive(Clone, Copy, Debug)]
pub struct Include {
    /// The whole line without its comment.
    pub span: Span,
    /// The path with its quotes.
    pub path: Span,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// `}`
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The brace.
    pub span: Span,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// A line about connections or limits.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The whole line without its comment.
    pub span: Span,
    /// What it sets.
    pub what: SettingKind,
    /// Comment at the end of the line.
    pub comment: Option<Span>,
}

/// What such a line sets.
#[derive(Clone, Copy, Debug)]
pub enum SettingKind {
    /// `connections N`
    Connections(Span),
    /// `timeout STATE DURATION`
    Timeout(Span, Span),
    /// `loose tcp`
    LooseTcp,
    /// `min-pmtu N`
    MinPmtu(Span),
    /// `limits N`
    Limits(Span),
    /// `timezone OFFSET`
    Timezone(Span),
}

/// A field and what stands directly behind its name.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef {
    /// The name, and the kind or offset behind it.
    pub span: Span,
    /// The field.
    pub field: Field,
    /// Kind of `tcp-opt`, type of `ip-opt`, or the offset of a payload, as written.
    pub arg: Option<Span>,
}

/// One match.
#[derive(Clone, Debug)]
pub struct Match {
    /// All of it.
    pub span: Span,
    /// `!` stands in front.
    pub negated: bool,
    /// The field.
    pub field: FieldRef,
    /// The test.
    pub test: Test,
}

/// The test of a match.
#[derive(Clone, Debug)]
pub enum Test {
    /// No value.
    Present,
    /// A condition and a value; none written is `==`.
    Compare(Cond, Span),
    /// `in { ... }`
    List(Box<[Span]>),
    /// `in @name`: the span without the `@`.
    Set(Span),
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<=`
    Le,
    /// `>=`
    Ge,
    /// `<`
    Lt,
    /// `>`
    Gt,
}

impl Cond {
    /// How it is written.
    pub fn text(self) -> &'static str {
        match self {
            Cond::Eq => "==",
            Cond::Ne => "!=",
            Cond::Le => "<=",
            Cond::Ge => ">=",
            Cond::Lt => "<",
            Cond::Gt => ">",
        }
    }
}

/// One target.
#[derive(Clone, Debug)]
pub struct Target {
    /// All of it.
    pub span: Span,
    /// What it does.
    pub action: Action,
}

/// What a target does.
#[derive(Clone, Debug)]
pub enum Action {
    /// `mod FIELD [VALUE]`
    Mod(FieldRef, Option<Span>),
    /// `mark set VALUE[/MASK]`, `priority set VALUE`
    SetMeta(FieldRef, Span),
    /// `vlan push ID [pcp N] [dei]`
    PushTag {
        /// VLAN identifier.
        id: Span,
        /// Priority.
        pcp: Option<Span>,
        /// `dei`
        dei: bool,
    },
    /// `vlan pop`
    PopTag,
    /// `ttl dec`
    DecrementTtl,
    /// `add OPT [VALUE]`
    Add(FieldRef, Option<Span>),
    /// `strip [!] OPT`; true: with `!`
    Strip(bool, FieldRef),
    /// `strip all`
    StripAll,
    /// `drop [RATE]`
    Drop(Option<Span>),
    /// `reject [with KIND [CODE]]`
    Reject(Option<(Span, Option<Span>)>),
    /// `drop over RATE [burst N] [per WHAT]`
    DropOver(Span, Option<Span>, Option<Span>),
    /// `accept`
    Accept,
    /// `drop over N bytes`, and what a quota has not got: `burst N`, `per WHAT`
    DropQuota(Span, Option<Span>, Option<Span>),
    /// `drop over N connections [per WHAT]`, and what such a limit has not got: `burst N`
    DropConnections(Span, Option<Span>, Option<Span>),
    /// `log ["prefix"] [limit RATE [burst N]]`, the span with its quotes
    Log(Option<Span>, Option<(Span, Option<Span>)>),
    /// `map FIELD POOL`
    Map(FieldRef, Pool),
    /// `shuffle FIELD`
    Shuffle(FieldRef),
    /// `timeout DURATION`
    Timeout(Span),
    /// `mapping WORD`
    Mapping(Span),
    /// `filtering WORD`
    Filtering(Span),
    /// `helper WORD`
    Helper(Span),
    /// `add @SET ADDRESS [DURATION]`, `delete @SET ADDRESS`
    ChangeSet {
        /// `delete`
        deletes: bool,
        /// The name without the `@`.
        set: Span,
        /// What goes in or out.
        address: ChangedAddress,
        /// How long it stays.
        timeout: Option<Span>,
    },
    /// `jump CHAIN`
    Jump(Span),
    /// `choose FIELD { VALUE: targets, ... }`
    Choose(FieldRef, Box<[Choice]>),
}

/// What a `choose` does for some values of its field.
#[derive(Clone, Debug)]
pub struct Choice {
    /// All of it.
    pub span: Span,
    /// The values.
    pub key: Key,
    /// What happens to packets with one of them.
    pub targets: Vec<Target>,
}

/// Which packets a choice is for.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// A value, a range or a prefix.
    Value(Span),
    /// `@name`: the span without the `@`.
    Set(Span),
    /// `else`: packets that have the field, with another value.
    Else(Span),
}

/// The address that a rule puts into a set or takes out of it.
#[derive(Clone, Copy, Debug)]
pub struct ChangedAddress {
    /// The word.
    pub span: Span,
    /// Which address.
    pub address: Address,
    /// The field that the word names; `None`: it stands for an address of either family.
    pub field: Option<Field>,
}

/// What a `map` chooses from.
#[derive(Clone, Debug)]
pub enum Pool {
    /// A value, a range or a prefix.
    One(Span),
    /// `{ ... }`
    List(Box<[Span]>),
    /// `@name`: the span without the `@`.
    Set(Span),
}

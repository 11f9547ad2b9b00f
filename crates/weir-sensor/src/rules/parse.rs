//! A rule's options, one after another, into a draft: which buffer is current, which content was last. What options mean for each other is `check`'s.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::app::{self, App, PROTOCOLS};
use crate::buffer::{Buffer, Sides};
use crate::packet::Direction;

use super::addresses::Groups;
use super::check;
use super::content;
use super::expression::Expressions;
use super::header;
use super::keywords::{self, SNORT_BUFFERS, Word};
use super::live::LiveSet;
use super::load::{Dialect, LoadSettings};
use super::model::{
    Condition, Content, Number, PacketCondition, Range, Rule, Said, SourceLocation, Transform,
};
use super::options;
use super::phrase::Phrase;
use super::problem::{Kind, Parsed, Problem};
use super::scan::{Opt, commas, divide};
use super::text::Text;
use super::trail;
use super::values::{number, quoted};

/// The farthest place that a content may name.
pub(super) const FAR: i64 = 1 << 20;

/// The most conditions in one rule.
const CONDITIONS: usize = 512;

/// What a rule is parsed with.
pub(super) struct Context<'a> {
    pub(super) settings: &'a LoadSettings,
    pub(super) groups: &'a mut Groups,
    pub(super) expressions: &'a mut Expressions,
    pub(super) datasets: Option<&'a Path>,
    /// Those that rules have loaded.
    pub(super) sets: &'a mut Sets,
    /// Those that cannot be loaded, as rules define them.
    pub(super) broken_sets: &'a mut HashSet<String>,
    /// The file is one of the firewall.
    pub(super) firewall: bool,
}

/// Sets of values by the name that rules give them: later rules may leave out where one comes from.
pub(super) type Sets = HashMap<String, (Arc<LiveSet>, Option<Said>)>;

/// A condition with where it was written.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) condition: Condition,
    pub(super) at: Text<'a>,
    /// `fast_pattern`, with its part.
    pub(super) fast: Option<Option<(u16, u16)>>,
}

/// A group of conditions while it is written.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) buffer: Buffer,
    /// Of which direction, if that is said.
    pub(super) way: Option<Direction>,
    pub(super) transforms: Vec<Transform>,
    pub(super) items: Vec<Item<'a>>,
    /// The sticky keyword, if there was one.
    pub(super) at: Option<Text<'a>>,
    /// Whether `base64_data` is in it: nothing about the buffer itself can be added.
    pub(super) decoded: bool,
}

/// A rule while it is written.
pub(super) struct Draft<'a> {
    pub(super) dialect: Dialect,
    pub(super) rule: Rule,
    pub(super) parts: Vec<Part<'a>>,
    /// The sticky buffer in force.
    pub(super) current: Option<usize>,
    /// Where its keyword is.
    pub(super) sticky_at: usize,
    /// The content that modifiers are about.
    pub(super) last: Option<(usize, usize)>,
    /// The part of the last condition that moved the place of matching.
    pub(super) mover: Option<usize>,
    /// Names extracted so far.
    pub(super) names: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Where options were written that only packets have.
    pub(super) packet_only: Option<Text<'a>>,
    pub(super) class_at: Option<Text<'a>>,
    pub(super) flow_at: Option<Text<'a>>,
    pub(super) protocol_at: Text<'a>,
    /// The applications of the header; `apps` of the rule comes from them, buffers and options.
    pub(super) header_apps: Vec<App>,
    /// `=>`: buffers of requests and of responses together.
    pub(super) whole: bool,
    pub(super) priority_set: bool,
    pub(super) fast_at: Option<Text<'a>>,
    seen: Vec<Word>,
}

/// Parses a rule; gives it with notes about it.
pub(super) fn rule(
    text: Text<'_>,
    place: SourceLocation,
    context: &mut Context<'_>,
) -> Parsed<(Rule, Vec<String>)> {
    let dialect = context.settings.dialect;
    let (head_text, opts) = divide(text, dialect)?;
    let head = header::head(
        head_text,
        context.settings,
        context.groups,
        context.firewall,
    )?;
    let mut rule = Rule::new(head.header, place);
    rule.action = head.action;
    if let Some(number) = head.number {
        let number = u64::from(number);
        rule.packet
            .push(PacketCondition::Protocol(Range::new(number, number, false)));
    }
    rule.silent = head.silent;
    rule.scope = head.scope;
    rule.alerts = head.alerts;
    rule.firewall = head.firewall.map(Box::new);
    if let Some(hook) = head.hook {
        rule.packet.push(PacketCondition::Hook(hook));
    }
    let mut draft = Draft {
        dialect,
        rule,
        parts: Vec::new(),
        current: None,
        sticky_at: 0,
        last: None,
        mover: None,
        names: Vec::new(),
        notes: head.notes,
        packet_only: None,
        class_at: None,
        flow_at: None,
        protocol_at: head_text.words().get(1).copied().unwrap_or(head_text),
        header_apps: head.apps,
        whole: head.whole,
        priority_set: false,
        fast_at: None,
        seen: Vec::new(),
    };
    if context.settings.written {
        let options = opts.iter().map(|o| (o.name, o.value));
        let source = trail::begin(text, draft.protocol_at, options);
        draft.rule.source = Some(Box::new(source));
        trail::note(&mut draft.rule, None);
    }
    for (at, opt) in opts.iter().enumerate() {
        draft.option(*opt, context).map_err(|mut problem| {
            if problem.keyword.is_none() {
                problem.keyword = Some(opt.name.lossy());
            }
            match opt.value.filter(|value| is_open(*value)) {
                Some(value) => {
                    let phrase = Phrase::Semicolon(opt.name.lossy(), value.lossy());
                    problem.called(phrase)
                }
                None => problem,
            }
        })?;
        trail::note(&mut draft.rule, Some(at));
    }
    check::finish(draft, text, context.settings)
}

/// Whether something stands behind the closing quotation mark of a value.
fn is_open(value: Text<'_>) -> bool {
    let (value, _) = value.negation();
    value.bytes.starts_with(b"\"") && (value.len() == 1 || !value.bytes.ends_with(b"\""))
}

/// The number of a rule that may be broken.
pub(super) fn sid_of(text: Text<'_>, dialect: Dialect) -> Option<u32> {
    if let Ok((_, options)) = divide(text, dialect) {
        let sid = options.iter().find(|o| o.name.is("sid"))?;
        return sid.value?.number(0, u32::MAX.into()).ok().map(|n| n as u32);
    }
    let at = text.bytes.windows(4).rposition(|w| w == b"sid:")?;
    let rest = text.from(at + 4).trim();
    let digits = rest.bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = rest.part(0..digits).number(0, u32::MAX.into());
    number.ok().map(|n| n as u32)
}

impl<'a> Opt<'a> {
    /// The value, which must be there.
    pub(super) fn need(self) -> Parsed<Text<'a>> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => {
                let name = self.name.lossy();
                let reason = format!("`{name}` needs a value");
                let problem = self.whole.fail(Kind::Syntax, reason);
                Err(problem.called(Phrase::NoValue(name, self.whole.lossy())))
            }
        }
    }

    /// That there is no value.
    pub(super) fn bare(self) -> Parsed<()> {
        match self.value {
            None => Ok(()),
            Some(value) => {
                let name = self.name.lossy();
                let reason = format!("`{name}` has no value");
                let problem = value.fail(Kind::Syntax, reason);
                Err(problem.called(Phrase::Value(name, value.lossy())))
            }
        }
    }
}

impl<'a> Draft<'a> {
    fn option(&mut self, opt: Opt<'a>, context: &mut Context<'_>) -> Parsed<()> {
        let name = opt.name.str()?;
        if let Some(word) = Word::named(name, self.dialect) {
            let once = matches!(
                word,
                Word::Message
                    | Word::Sid
                    | Word::Gid
                    | Word::Rev
                    | Word::Class
                    | Word::Priority
                    | Word::Target
                    | Word::Threshold
                    | Word::DetectionFilter
            );
            if once && self.seen.contains(&word) {
                return Err(opt
                    .whole
                    .fail(Kind::Conflict, format!("`{name}` is given twice")));
            }
            if once {
                self.seen.push(word);
            }
            return self.word(word, opt, context);
        }
        if self.dialect == Dialect::Suricata
            && let Some(fact) = app::fact(name)
        {
            return options::fact(self, fact, opt);
        }
        let sticky = match self.dialect {
            Dialect::Suricata => Buffer::sticky(name),
            Dialect::Snort => {
                let known = SNORT_BUFFERS.iter().find(|(n, _)| *n == name);
                known.map(|(_, b)| *b)
            }
        };
        if let Some(buffer) = sticky {
            return match self.dialect {
                Dialect::Suricata => self.sticky(buffer, opt),
                Dialect::Snort => self.snort_buffer(buffer, opt),
            };
        }
        if self.dialect == Dialect::Suricata
            && let Some(buffer) = Buffer::modifier(name)
        {
            return self.modifier(buffer, opt);
        }
        if let Some(what) = keywords::note(name) {
            self.notes.push(format!("`{name}`: {what}"));
            return Ok(());
        }
        if let Some(why) = keywords::refusal(name) {
            let reason = format!("`{name}` is not supported: {why}");
            let phrase = Phrase::UnknownKeyword(name.to_owned());
            return Err(opt.name.fail(Kind::Unsupported, reason).called(phrase));
        }
        let other = match self.dialect {
            Dialect::Suricata => Dialect::Snort,
            Dialect::Snort => Dialect::Suricata,
        };
        let foreign = Word::named(name, other).is_some()
            || match other {
                Dialect::Suricata => {
                    app::fact(name).is_some()
                        || Buffer::sticky(name).is_some()
                        || Buffer::modifier(name).is_some()
                }
                Dialect::Snort => SNORT_BUFFERS.iter().any(|(n, _)| *n == name),
            };
        let reason = match foreign {
            true => format!("`{name}` is a keyword of the dialect {} only", other.name()),
            false => format!("`{name}` is not a keyword"),
        };
        let phrase = Phrase::UnknownKeyword(name.to_owned());
        Err(opt.name.fail(Kind::Unknown, reason).called(phrase))
    }

    /// `frame:NAME`, with the protocol in front or that of the header.
    pub(super) fn frame(&mut self, opt: Opt<'a>) -> Parsed<()> {
        let value = opt.need()?.unquoted()?;
        let name = value.lossy();
        let of_header = self.header_apps.iter();
        let of_header = of_header.map(|app| {
            let app = match app {
                App::Http1 => "http1",
                other => other.name(),
            };
            format!("frame:{app}.{name}")
        });
        // The stream itself, in which frames are.
        let app = name.strip_suffix(".stream");
        let known = |app: &str| app == "http1" || PROTOCOLS.iter().any(|row| row.app.name() == app);
        if app.is_some_and(known) {
            self.leave()?;
            self.rule.flow.stream = Some(true);
            return self.select(Buffer::Payload, None, opt);
        }
        let mut names = std::iter::once(format!("frame:{name}")).chain(of_header);
        let Some(buffer) = names.find_map(|name| Buffer::sticky(&name)) else {
            let reason =
                format!("frames `{name}` are not kept; docs/sensor-rules.md lists those that are");
            return Err(value.fail(Kind::Unsupported, reason));
        };
        self.select(buffer, None, opt)
    }

    /// A sticky buffer of Suricata: for what comes after it.
    fn sticky(&mut self, buffer: Buffer, opt: Opt<'a>) -> Parsed<()> {
        let mut way = None;
        if let Some(value) = opt.value {
            // `filename:"..."` is an old content; of a buffer that both directions have, a rule about both may say which.
            way = match value.trim().bytes {
                b"to_server" if self.whole => Some(Direction::ToServer),
                b"to_client" if self.whole => Some(Direction::ToClient),
                _ if opt.name.is("filename") => {
                    return self.old_content(Buffer::FileName, value, true);
                }
                _ => {
                    opt.bare()?;
                    None
                }
            };
            if way.is_some() && buffer.sides() != Sides::Both {
                let reason = format!("{} is of one direction only", buffer.name());
                return Err(value.fail(Kind::Conflict, reason));
            }
        }
        self.select(buffer, way, opt)
    }

    /// Conditions behind this are about a buffer.
    fn select(&mut self, buffer: Buffer, way: Option<Direction>, opt: Opt<'a>) -> Parsed<()> {
        self.leave()?;
        self.last = None;
        self.sticky_at = opt.whole.start;
        if buffer == Buffer::Payload {
            self.current = None;
            return Ok(());
        }
        // Several of one transaction: each keyword begins a search of its own. Otherwise the same buffer goes on.
        let again = self.parts.iter().position(|p| {
            (p.buffer, p.way) == (buffer, way)
                && p.transforms.is_empty()
                && !p.decoded
                && !buffer.is_multiple()
        });
        self.current = Some(match again {
            Some(at) => at,
            None => self.begin(buffer, Some(opt.whole)),
        });
        if let Some(part) = self.current.and_then(|at| self.parts.get_mut(at)) {
            part.way = way;
        }
        Ok(())
    }

    /// A sticky buffer of Snort 3: each begins at the start of its buffer anew.
    fn snort_buffer(&mut self, buffer: Buffer, opt: Opt<'a>) -> Parsed<()> {
        self.last = None;
        let mut transforms = Vec::new();
        for part in opt.value.map(commas).unwrap_or_default() {
            match part.words()[..] {
                [word, field] if word.is("field") && buffer == Buffer::HttpHeader => {
                    let field = field.unquoted()?.str()?.to_ascii_lowercase();
                    transforms.push(Transform::Field(field));
                }
                // In which part of a response something is known decides nothing here: transactions are inspected whole.
                [word]
                    if word.is("with_header")
                        || word.is("with_body")
                        || word.is("with_trailer") => {}
                _ => {
                    let reason = format!("`{}` is not supported with this buffer", part.lossy());
                    return Err(part.fail(Kind::Unsupported, reason));
                }
            }
        }
        let at = self.begin(buffer, Some(opt.whole));
        self.parts[at].transforms = transforms;
        self.current = Some(at);
        Ok(())
    }

    pub(super) fn begin(&mut self, buffer: Buffer, at: Option<Text<'a>>) -> usize {
        self.parts.push(Part {
            buffer,
            way: None,
            transforms: Vec::new(),
            items: Vec::new(),
            at,
            decoded: false,
        });
        self.parts.len() - 1
    }

    /// Another buffer begins, or the rule ends: the one in force must have been used.
    pub(super) fn leave(&mut self) -> Parsed<()> {
        if self.dialect == Dialect::Snort {
            return Ok(());
        }
        let Some(part) = self.current.map(|c| &self.parts[c]) else {
            return Ok(());
        };
        match (part.items.is_empty(), part.at) {
            (true, Some(at)) => {
                let reason = "no condition follows this buffer";
                let mut problem = at.fail(Kind::Conflict, reason);
                problem.keyword = Some(at.lossy());
                Err(problem)
            }
            _ => Ok(()),
        }
    }

    /// The part of a buffer without transforms, made if it is not there.
    pub(super) fn part_of(&mut self, buffer: Buffer) -> usize {
        let found = self
            .parts
            .iter()
            .position(|p| p.buffer == buffer && p.transforms.is_empty() && !p.decoded);
        found.unwrap_or_else(|| self.begin(buffer, None))
    }

    /// Where a condition goes: the sticky buffer, or what was moved in last if it is relative, or the payload.
    pub(super) fn place(&mut self, relative: bool) -> usize {
        match (
            self.current,
            self.mover,
            relative && self.dialect == Dialect::Suricata,
        ) {
            (Some(at), _, _) => at,
            (None, Some(at), true) => at,
            _ => match self.dialect {
                Dialect::Suricata => {
                    // After `base64_data` the payload goes on with the decoded bytes until `pkt_data`.
                    self.part_of(Buffer::Payload)
                }
                Dialect::Snort => {
                    let at = self.begin(Buffer::Payload, None);
                    self.current = Some(at);
                    at
                }
            },
        }
    }

    /// Whether a condition that is relative would have one before it, in its buffer, to count from.
    pub(super) fn has_place(&self) -> bool {
        let part = self
            .current
            .or(self.mover)
            .and_then(|at| self.parts.get(at));
        part.is_some_and(|p| !p.items.is_empty())
    }

    /// Adds a condition; returns its place.
    pub(super) fn add(&mut self, part: usize, condition: Condition, at: Text<'a>) -> Parsed<usize> {
        if self.parts.iter().map(|p| p.items.len()).sum::<usize>() >= CONDITIONS {
            let reason = format!("more than {CONDITIONS} conditions in a rule");
            return Err(at.fail(Kind::Value, reason));
        }
        self.parts[part].items.push(Item {
            condition,
            at,
            fast: None,
        });
        Ok(self.parts[part].items.len() - 1)
    }

    /// An old modifier: the content before it is about this buffer.
    fn modifier(&mut self, buffer: Buffer, opt: Opt<'a>) -> Parsed<()> {
        opt.bare()?;
        if self.current.is_some() {
            let reason = "an old modifier cannot be used while a sticky buffer is in force: write `pkt_data` before the content, or the sticky name";
            return Err(opt.whole.fail(Kind::Conflict, reason));
        }
        let Some((part, item)) = self.last else {
            let problem = opt.whole.fail(Kind::Syntax, "no content before this");
            return Err(problem.called(Phrase::NoContent(opt.name.lossy())));
        };
        let before = &self.parts[part];
        if before.buffer != Buffer::Payload {
            let reason = format!("the content is already about {}", before.buffer.name());
            return Err(opt.whole.fail(Kind::Conflict, reason));
        }
        if let Condition::Content(Content { raw: true, .. }) = before.items[item].condition {
            let reason = "rawbytes and a buffer exclude each other";
            return Err(opt.whole.fail(Kind::Conflict, reason));
        }
        let item = self.parts[part].items.remove(item);
        let to = self.part_of(buffer);
        self.parts[to].items.push(item);
        self.last = Some((to, self.parts[to].items.len() - 1));
        self.mover = Some(to);
        Ok(())
    }

    /// `tls.subject:"..."` and the like: a content of a buffer.
    pub(super) fn old_content(
        &mut self,
        buffer: Buffer,
        text: Text<'a>,
        nocase: bool,
    ) -> Parsed<()> {
        let (negated, bytes) = content::content(text)?;
        let part = self.part_of(buffer);
        let content = Content {
            negated,
            nocase,
            ..Content::new(bytes)
        };
        self.add(part, Condition::Content(content), text)?;
        Ok(())
    }

    /// The content that was added last is in lower case: it is looked for in either.
    pub(super) fn lower_last(&mut self) {
        let items = self.parts.iter_mut().flat_map(|part| &mut part.items);
        if let Some(item) = items.max_by_key(|item| item.at.start)
            && let Condition::Content(content) = &mut item.condition
        {
            content.bytes.make_ascii_lowercase();
        }
    }

    /// `content`, and `uricontent`.
    pub(super) fn content(&mut self, opt: Opt<'a>, buffer: Option<Buffer>) -> Parsed<()> {
        let value = opt.need()?;
        let (pattern, rest) = match self.dialect {
            Dialect::Suricata => (value, Vec::new()),
            Dialect::Snort => {
                let mut parts = commas(value).into_iter();
                (parts.next().unwrap_or(value), parts.collect())
            }
        };
        if !pattern.negation().0.bytes.starts_with(b"\"") {
            let reason = "a content is in quotation marks";
            let phrase = Phrase::Unquoted(opt.name.lossy(), value.lossy());
            return Err(pattern.fail(Kind::Syntax, reason).called(phrase));
        }
        let (negated, bytes) = content::content(pattern)?;
        let part = match buffer {
            Some(_) if self.current.is_some() => {
                let reason = "uricontent cannot be used while a sticky buffer is in force";
                return Err(opt.whole.fail(Kind::Conflict, reason));
            }
            Some(buffer) => self.part_of(buffer),
            None => self.place(false),
        };
        let mut content = Content::new(bytes);
        content.negated = negated;
        let item = self.add(part, Condition::Content(content), pattern)?;
        self.last = Some((part, item));
        self.mover = Some(part);
        for modifier in rest {
            self.snort_modifier(modifier)?;
        }
        Ok(())
    }

    /// `nocase`, `depth 5`, ... behind a content of Snort 3.
    fn snort_modifier(&mut self, text: Text<'a>) -> Parsed<()> {
        let words = text.words();
        let (Some(word), value) = (words.first().copied(), words.get(1).copied()) else {
            return Err(text.fail(Kind::Syntax, "something is missing between commas"));
        };
        if let Some(extra) = words.get(2) {
            return Err(extra.fail(Kind::Syntax, "one value is expected"));
        }
        let need = || value.ok_or_else(|| text.fail(Kind::Syntax, "a value is missing"));
        let (part, item) = self.last_content(text)?;
        let entry = &mut self.parts[part].items[item];
        match word.bytes {
            b"nocase" if value.is_none() => self.set_nocase(text),
            b"rawbytes" if value.is_none() => Ok(()),
            b"offset" | b"depth" | b"distance" | b"within" => self.set_place(word, need()?),
            b"fast_pattern" if value.is_none() => self.set_fast(text, None),
            b"fast_pattern_offset" => {
                let offset = need()?.number(0, i64::from(u16::MAX))? as u16;
                let length = entry.fast.flatten().map_or(0, |p| p.1);
                entry.fast = Some(Some((offset, length)));
                self.fast_at.get_or_insert(text);
                Ok(())
            }
            b"fast_pattern_length" => {
                let length = need()?.number(1, i64::from(u16::MAX))? as u16;
                let offset = entry.fast.flatten().map_or(0, |p| p.0);
                entry.fast = Some(Some((offset, length)));
                self.fast_at.get_or_insert(text);
                Ok(())
            }
            _ => {
                let reason = format!("`{}` is no modifier of a content", text.lossy());
                Err(text.fail(Kind::Syntax, reason))
            }
        }
    }

    fn last_content(&self, at: Text<'a>) -> Parsed<(usize, usize)> {
        let reason = "no content before this";
        let none = || {
            let words = at.words();
            let word = words.first().map_or_else(String::new, |w| w.lossy());
            let word = word.split(':').next().unwrap_or_default().to_owned();
            at.fail(Kind::Syntax, reason)
                .called(Phrase::NoContent(word))
        };
        self.last.ok_or_else(none)
    }

    /// The content that modifiers are about.
    pub(super) fn last_mut(&mut self, at: Text<'a>) -> Parsed<&mut Content> {
        let (part, item) = self.last_content(at)?;
        match &mut self.parts[part].items[item].condition {
            Condition::Content(content) => Ok(content),
            _ => Err(at.fail(Kind::Syntax, "no content before this")),
        }
    }

    pub(super) fn set_nocase(&mut self, at: Text<'a>) -> Parsed<()> {
        let content = self.last_mut(at)?;
        match std::mem::replace(&mut content.nocase, true) {
            true => {
                let problem = at.fail(Kind::Conflict, "`nocase` is given twice for this content");
                Err(problem.called(Phrase::NocaseTwice))
            }
            false => Ok(()),
        }
    }

    /// `offset`, `depth`, `distance`, `within`.
    pub(super) fn set_place(&mut self, word: Text<'a>, value: Text<'a>) -> Parsed<()> {
        let value_at = value;
        let least = if word.is("distance") || word.is("within") || self.dialect == Dialect::Snort {
            -FAR
        } else {
            0
        };
        let bound = || Phrase::Bound(word.lossy(), value_at.lossy());
        let value = number(value, least, FAR).map_err(|problem| problem.called(bound()))?;
        if let Number::Variable(name) = &value
            && !self.names.contains(name)
        {
            let phrase = Phrase::UnknownName(word.lossy(), name.clone());
            return Err(unknown_name(value_at, name).called(phrase));
        }
        let content = self.last_mut(word)?;
        let length = content.bytes.len() as i64;
        if let (b"depth" | b"within", Number::Is(n)) = (word.bytes, &value)
            && *n < length
        {
            let name = word.lossy();
            let reason = format!("{name} {n} is less than the content's {length} bytes");
            let phrase = Phrase::TooShort(name, *n, length);
            return Err(value_at.fail(Kind::Conflict, reason).called(phrase));
        }
        if content.starts {
            let reason = "startswith and a place exclude each other";
            let phrase = match word.bytes {
                b"offset" | b"depth" => Phrase::Twice(word.lossy()),
                _ => Phrase::AbsoluteAndRelative,
            };
            return Err(word.fail(Kind::Conflict, reason).called(phrase));
        }
        let absolute = content.offset.is_some() || content.depth.is_some();
        let relative = content.distance.is_some() || content.within.is_some();
        let (slot, excluded) = match word.bytes {
            b"offset" => (&mut content.offset, relative),
            b"depth" => (&mut content.depth, relative),
            b"distance" => (&mut content.distance, absolute),
            _ => (&mut content.within, absolute),
        };
        if excluded {
            let reason = "offset and depth exclude distance and within: places are from the buffer's start or from the match before";
            let problem = word.fail(Kind::Conflict, reason);
            return Err(problem.called(Phrase::AbsoluteAndRelative));
        }
        match slot.replace(value) {
            Some(_) => {
                let reason = format!("`{}` is given twice for this content", word.lossy());
                let problem = word.fail(Kind::Conflict, reason);
                Err(problem.called(Phrase::Twice(word.lossy())))
            }
            None => Ok(()),
        }
    }

    pub(super) fn set_fast(&mut self, at: Text<'a>, value: Option<Text<'a>>) -> Parsed<()> {
        let (part, item) = self.last_content(at)?;
        if let Some(before) = self.fast_at {
            let same = self.parts[part].items[item].fast.is_some();
            if !(same && self.dialect == Dialect::Snort) {
                let _ = before;
                return Err(at.fail(Kind::Conflict, "a rule has one fast_pattern"));
            }
        }
        self.fast_at = Some(at);
        let mut chosen = None;
        if let Some(value) = value {
            if value.is("only") {
                self.last_mut(at)?.only = true;
            } else {
                let [offset, length] = commas(value)[..] else {
                    let reason = "the forms are `fast_pattern`, `fast_pattern:only` and `fast_pattern:OFFSET,LENGTH`";
                    return Err(value.fail(Kind::Syntax, reason));
                };
                let top = i64::from(u16::MAX);
                let (o, l) = (offset.number(0, top)?, length.number(1, top)?);
                chosen = Some((o as u16, l as u16));
            }
        }
        let entry = &mut self.parts[part].items[item];
        entry.fast = Some(chosen.or(entry.fast.flatten()));
        Ok(())
    }

    /// Notes that a condition is about packets, not streams or transactions.
    pub(super) fn packet(&mut self, condition: PacketCondition, at: Text<'a>) -> Parsed<()> {
        self.packet_only.get_or_insert(at);
        self.rule.packet.push(condition);
        Ok(())
    }

    fn word(&mut self, word: Word, opt: Opt<'a>, context: &mut Context<'_>) -> Parsed<()> {
        match word {
            Word::Content => self.content(opt, None),
            Word::UriContent => self.content(opt, Some(Buffer::HttpUri)),
            Word::Nocase => {
                opt.bare()?;
                self.set_nocase(opt.whole)
            }
            Word::Offset | Word::Depth | Word::Distance | Word::Within => {
                self.set_place(opt.name, opt.need()?)
            }
            Word::StartsWith => {
                opt.bare()?;
                let content = self.last_mut(opt.whole)?;
                let placed = content.offset.is_some()
                    || content.depth.is_some()
                    || content.distance.is_some()
                    || content.within.is_some();
                if placed || std::mem::replace(&mut content.starts, true) {
                    let reason = "startswith and a place exclude each other";
                    return Err(opt.whole.fail(Kind::Conflict, reason));
                }
                Ok(())
            }
            Word::EndsWith => {
                opt.bare()?;
                let content = self.last_mut(opt.whole)?;
                match std::mem::replace(&mut content.ends, true) {
                    true => Err(opt.whole.fail(Kind::Conflict, "`endswith` is given twice")),
                    false => Ok(()),
                }
            }
            Word::Rawbytes => {
                opt.bare()?;
                self.last_mut(opt.whole)?.raw = true;
                Ok(())
            }
            Word::FastPattern => self.set_fast(opt.whole, opt.value),
            Word::Message => {
                self.rule.message = quoted(opt.need()?)?;
                Ok(())
            }
            _ => options::option(self, word, opt, context),
        }
    }
}

pub(super) fn unknown_name(at: Text<'_>, name: &str) -> Problem {
    let reason =
        format!("`{name}` is neither a number nor extracted before by byte_extract or byte_math");
    at.fail(Kind::Variable, reason)
}

//! Options about flows and their ends: direction and state, sizes of streams, counts, reputation, and which of their packets are logged.

use crate::app::{self, App, Protocol, Stage};
use crate::packet::Direction;
use crate::rules::header;
use crate::rules::load::Dialect;
use crate::rules::model::{
    Hook, PacketCondition, Range, Spoken, StreamSide, Tag, TagMetric, TagScope,
};
use crate::rules::parse::{Context, Draft};
use crate::rules::phrase::Phrase;
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::range;

pub(super) fn flow<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    draft.flow_at = Some(opt.whole);
    let flow = &mut draft.rule.flow;
    for part in commas(opt.need()?) {
        let set = |slot: &mut Option<bool>, value: bool| match slot.replace(value) {
            Some(before) if before != value => {
                let reason = format!("`{}` contradicts what is before it", part.lossy());
                Err(part.fail(Kind::Conflict, reason))
            }
            _ => Ok(()),
        };
        let word = part.lossy().to_ascii_lowercase();
        match word.as_str() {
            "to_server" | "from_client" => set(&mut flow.to_server, true)?,
            "to_client" | "from_server" => set(&mut flow.to_server, false)?,
            "established" => set(&mut flow.established, true)?,
            "not_established" => set(&mut flow.established, false)?,
            "stateless" => flow.stateless = true,
            "only_stream" => set(&mut flow.stream, true)?,
            "no_stream" => set(&mut flow.stream, false)?,
            "only_frag" => set(&mut flow.fragment, true)?,
            "no_frag" => set(&mut flow.fragment, false)?,
            _ => {
                let reason = format!("`{word}` is no condition of a flow");
                return Err(part.fail(Kind::Value, reason));
            }
        }
    }
    if flow.stateless && flow.established.is_some() {
        let reason = "stateless excludes established and not_established";
        return Err(opt.whole.fail(Kind::Conflict, reason));
    }
    Ok(())
}

pub(super) fn stream_size<'a>(draft: &mut Draft<'a>, value: Text<'a>) -> Parsed<()> {
    let parts = commas(value);
    let dialect = draft.dialect;
    let side = |at: Text<'_>| {
        Ok(match at.bytes {
            b"server" => StreamSide::Server,
            b"client" => StreamSide::Client,
            // In Snort 3 the direction in which bytes go.
            b"to_client" if dialect == Dialect::Snort => StreamSide::Server,
            b"to_server" if dialect == Dialect::Snort => StreamSide::Client,
            b"both" => StreamSide::Both,
            b"either" => StreamSide::Either,
            _ => return Err(at.fail(Kind::Value, "a side is server, client, both or either")),
        })
    };
    let (side, size) = match (dialect, &parts[..]) {
        (Dialect::Suricata, [at, operator, number]) => {
            let side = side(*at)?;
            let n = number.number(0, u32::MAX.into())? as u64;
            let top = u64::MAX;
            let nothing = || number.fail(Kind::Value, "no size is in this range");
            let (low, high, negated) = match operator.bytes {
                b"<" => (0, n.checked_sub(1).ok_or_else(nothing)?, false),
                b">" => (n + 1, top, false),
                b"=" => (n, n, false),
                b"!=" | b"!" => (n, n, true),
                b"<=" => (0, n, false),
                b">=" => (n, top, false),
                _ => {
                    let reason = "an operator is `< > = != <= >=`";
                    return Err(operator.fail(Kind::Value, reason));
                }
            };
            (side, Range::new(low, high, negated))
        }
        (Dialect::Snort, [size]) => (StreamSide::Either, range(*size, u32::MAX.into(), dialect)?),
        (Dialect::Snort, [size, at]) => (side(*at)?, range(*size, u32::MAX.into(), dialect)?),
        _ => return Err(value.fail(Kind::Syntax, "the form is `side,operator,number`")),
    };
    let condition = PacketCondition::StreamSize { side, size };
    draft.rule.packet.push(condition);
    Ok(())
}

pub(super) fn flow_count(
    draft: &mut Draft<'_>,
    packets: bool,
    side: u8,
    value: Text<'_>,
) -> Parsed<()> {
    let span = range(value, u64::MAX, draft.dialect)?;
    draft.rule.packet.push(match packets {
        true => PacketCondition::FlowPackets(side, span),
        false => PacketCondition::FlowBytes(side, span),
    });
    Ok(())
}

pub(super) fn iprep(draft: &mut Draft<'_>, value: Text<'_>, context: &Context<'_>) -> Parsed<()> {
    let parts = commas(value);
    let form = "the form is `side,category,operator,score`";
    let (side, category, rest) = match parts[..] {
        [side, category, operator, score] => (side, category, Some((operator, score))),
        [side, category, word] if word.is("isset") || word.is("isnotset") => (side, category, None),
        _ => return Err(value.fail(Kind::Syntax, form)),
    };
    if !["src", "dst", "any", "both"].iter().any(|s| side.is(s)) {
        return Err(side.fail(Kind::Value, "a side is src, dst, any or both"));
    }
    let Some(number) = context.settings.reputation.categories.get(category.str()?) else {
        let reason = format!(
            "no table of reputation has the category `{}`",
            category.lossy()
        );
        let phrase = Phrase::IpCategory(category.lossy());
        return Err(category.fail(Kind::File, reason).called(phrase));
    };
    let Some((operator, score)) = rest else {
        draft.rule.packet.push(PacketCondition::Reputation {
            side: side.lossy(),
            category: *number,
            value: Range::new(0, 127, false),
            absent: parts[2].is("isnotset"),
        });
        return Ok(());
    };
    let n = score.number(0, 127)? as u64;
    let nothing = || score.fail(Kind::Value, "no score is in this range");
    let (low, high) = match operator.bytes {
        b"<" => (0, n.checked_sub(1).ok_or_else(nothing)?),
        b">" if n == 127 => return Err(nothing()),
        b">" => (n + 1, 127),
        b"=" => (n, n),
        b"<=" => (0, n),
        b">=" => (n, 127),
        _ => return Err(operator.fail(Kind::Value, "an operator is `< > = <= >=`")),
    };
    draft.rule.packet.push(PacketCondition::Reputation {
        side: side.lossy(),
        category: *number,
        value: Range::new(low, high, false),
        absent: false,
    });
    Ok(())
}

/// Counts of one side or both.
pub(super) fn flow_counts<'a>(draft: &mut Draft<'a>, packets: bool, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?;
    let Some((side, rest)) = value.cut(b',') else {
        let reason = "the form is `side,number`";
        return Err(value.fail(Kind::Syntax, reason));
    };
    let side = match side.trim().bytes {
        b"toserver" => 0,
        b"toclient" => 1,
        b"both" => 2,
        b"either" => 3,
        _ => {
            let reason = "a side is toserver, toclient, both or either";
            return Err(side.fail(Kind::Value, reason));
        }
    };
    flow_count(draft, packets, side, rest.trim())?;
    Ok(())
}

/// The application that a flow is told to be.
pub(super) fn app_protocol<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let (value, negated) = opt.need()?.negation();
    let parts = commas(value);
    let value = parts[0];
    let mut spoken = None;
    for part in &parts[1..] {
        let which = match part.bytes {
            // And no kin of it: what is asked here in any case.
            b"exact" => continue,
            b"final" => Spoken::Final,
            b"direction" => Spoken::Direction,
            b"to_server" => Spoken::ToServer,
            b"to_client" => Spoken::ToClient,
            b"either" => Spoken::Either,
            b"original" => Spoken::Original,
            _ => {
                let reason = "a mode is direction, to_server, to_client, either, final or original";
                return Err(part.fail(Kind::Value, reason));
            }
        };
        if spoken.replace(which).is_some() {
            return Err(part.fail(Kind::Conflict, "a second mode"));
        }
    }
    let mut apps = Vec::new();
    for name in value.split(b'|').into_iter().map(Text::trim) {
        match name.bytes {
            // Of no protocol that is told.
            b"failed" => apps.push(App::Failed),
            b"unknown" if negated => {
                let reason = "that a protocol is known is asked with `!failed`";
                return Err(name.fail(Kind::Value, reason));
            }
            b"unknown" => apps.push(App::Unknown),
            _ => {
                let Some(named) = header::apps(name.str()?) else {
                    let reason = format!("`{}` is no protocol that is told here", name.lossy());
                    return Err(name.fail(Kind::Unsupported, reason));
                };
                apps.extend(named);
            }
        }
    }
    // The flow's own is asked before anything else of the rule, and what a header names is the flow's own.
    let unknown = apps.contains(&App::Unknown);
    if spoken.is_none() && draft.header_apps.is_empty() && draft.dialect == Dialect::Suricata {
        spoken = Some(Spoken::Direction);
    }
    if let Some(spoken) = spoken.filter(|s| *s != Spoken::Final || unknown) {
        let condition = PacketCondition::Application(spoken, apps, negated);
        draft.rule.packet.push(condition);
        return Ok(());
    }
    let apps = apps.into_iter().map(|app| (app, negated));
    draft.rule.apps.extend(apps);
    Ok(())
}

/// Packets of a tag that names no number.
const PACKETS: u32 = 256;

/// `tag:session|host[,COUNT,packets|bytes|seconds][,src|dst]`.
pub(super) fn tag<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?;
    let parts = commas(value);
    if draft.dialect == Dialect::Snort {
        return snort_tag(draft, &parts);
    }
    let [scope, rest @ ..] = &parts[..] else {
        return Err(value.fail(Kind::Syntax, "a scope is expected"));
    };
    let (limit, end) = match rest {
        [] => (None, None),
        [end] => (None, Some(end)),
        [count, metric] => (Some((count, metric)), None),
        [count, metric, end] => (Some((count, metric)), Some(end)),
        [.., last] => return Err(last.fail(Kind::Syntax, "nothing is expected here")),
    };
    let scope = match (scope.bytes, end.map(|e| e.bytes)) {
        (b"session", None) => TagScope::Session,
        (b"host", Some(b"src")) => TagScope::Source,
        (b"host", None | Some(b"dst")) => TagScope::Destination,
        (b"host", _) => {
            return Err(value.fail(Kind::Value, "a host is the packet's src or dst"));
        }
        (b"session", _) => {
            return Err(value.fail(Kind::Conflict, "a session has both ends"));
        }
        _ => return Err(scope.fail(Kind::Value, "a scope is session or host")),
    };
    let (count, metric) = match limit {
        None => (PACKETS, TagMetric::Packets),
        Some((count, metric)) => {
            let count = count.number(1, u32::MAX.into())? as u32;
            (count, self::metric(*metric)?)
        }
    };
    draft.rule.tags.push(Tag {
        scope,
        count,
        metric,
    });
    Ok(())
}

fn metric(word: Text<'_>) -> Parsed<TagMetric> {
    match word.bytes {
        b"packets" => Ok(TagMetric::Packets),
        b"bytes" => Ok(TagMetric::Bytes),
        b"seconds" => Ok(TagMetric::Seconds),
        _ => Err(word.fail(Kind::Value, "a number is of packets, bytes or seconds")),
    }
}

/// `session|host_src|host_dst[, packets|bytes|seconds COUNT]`, of which Snort may have several.
fn snort_tag<'a>(draft: &mut Draft<'a>, parts: &[Text<'a>]) -> Parsed<()> {
    let Some((scope, limits)) = parts.split_first() else {
        return Ok(());
    };
    let scope = match scope.bytes {
        b"session" => TagScope::Session,
        b"host_src" => TagScope::Source,
        b"host_dst" => TagScope::Destination,
        _ => {
            let reason = "a scope is session, host_src or host_dst";
            return Err(scope.fail(Kind::Value, reason));
        }
    };
    let (mut count, mut unit) = (PACKETS, TagMetric::Packets);
    if let Some(limit) = limits.first() {
        let [word, number] = limit.words()[..] else {
            return Err(limit.fail(Kind::Syntax, "a unit and a number are expected"));
        };
        unit = metric(word)?;
        count = number.number(1, u32::MAX.into())? as u32;
    }
    if limits.len() > 1 {
        let note = "`tag`: of several limits the first one holds";
        draft.notes.push(note.to_owned());
    }
    draft.rule.tags.push(Tag {
        scope,
        count,
        metric: unit,
    });
    Ok(())
}

/// `app-layer-state:[<>]STATE`.
pub(super) fn app_state<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?;
    let (sign, name_at) = match value.bytes.first() {
        Some(sign @ (b'<' | b'>')) => (*sign, value.from(1).trim()),
        _ => (b'=', value),
    };
    let name = name_at.str()?;
    let hooked = |c: &PacketCondition| matches!(c, PacketCondition::Hook(Hook::Reached(..)));
    if draft.rule.packet.iter().any(hooked) {
        let reason = "a rule asks for one state: in its header, or by app-layer-state";
        return Err(opt.whole.fail(Kind::Conflict, reason));
    }
    let [app] = draft.header_apps[..] else {
        let reason = format!(
            "states are those of one protocol, which `{}` does not name",
            draft.protocol_at.lossy()
        );
        return Err(opt.whole.fail(Kind::Conflict, reason));
    };
    let row = app::protocol(app).filter(|row| row.kind.is_some());
    let states = row.and_then(|row| states(row, name));
    let Some((direction, stages, at)) = states else {
        let reason = format!("transactions of {} have no state `{name}`", app.name());
        return Err(name_at.fail(Kind::Value, reason));
    };
    let here = stages[at];
    let never = |reason: &str| Err(value.fail(Kind::Value, reason));
    let (reached, not_yet) = match sign {
        b'<' if at == 0 => return never("no state is before this one"),
        b'<' => (stages[0], Some(here)),
        b'>' => match stages.get(at + 1) {
            Some(stage) => (*stage, None),
            None => return never("no state is behind this one"),
        },
        // States that are reached together are one.
        _ => (here, stages[at..].iter().copied().find(|s| *s != here)),
    };
    if not_yet == Some(reached) {
        let note = format!(
            "`app-layer-state`: the states before `{name}` are not told apart from it here: the rule never matches"
        );
        draft.notes.push(note);
    }
    let reached = Hook::Reached(direction, reached);
    draft.rule.packet.push(PacketCondition::Hook(reached));
    if let Some(stage) = not_yet {
        let condition = PacketCondition::NotReached(direction, stage);
        draft.rule.packet.push(condition);
    }
    Ok(())
}

/// The direction that has a state, the stages of all states of that direction, and which one it is.
fn states(row: &Protocol, name: &str) -> Option<(Direction, Vec<Stage>, usize)> {
    [Direction::ToServer, Direction::ToClient]
        .into_iter()
        .find_map(|direction| {
            let names = direction.of(&row.states);
            let at = names.iter().position(|state| *state == name)?;
            let stages = names.iter().map(|state| row.hook(state).map(|(_, s)| s));
            Some((direction, stages.collect::<Option<Vec<_>>>()?, at))
        })
}

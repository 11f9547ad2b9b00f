//! Datasets: sets of values in files beside the rules.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::base64;
use crate::rules::live::{LiveSet, LiveSets};
use crate::rules::model::{Condition, Dataset, Members, PacketCondition, Said, SetTest};
use crate::rules::parse::{Context, Draft};
use crate::rules::phrase::Phrase;
use crate::rules::problem::{Kind, Parsed, Problem};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::name;

use super::in_buffer;

/// The largest file of a dataset, bytes.
const DATASET: u64 = 64 << 20;
/// The most that a file in JSON may say of a member, bytes: alerts repeat it.
const MOST_SAID: usize = 16 << 10;

pub(super) fn dataset<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let value = opt.need()?;
    let part = in_buffer(draft, opt)?;
    let parts = commas(value);
    let [operation, name_at, rest @ ..] = &parts[..] else {
        let reason = "the form is `isset,NAME,type TYPE,load FILE`";
        return Err(value.fail(Kind::Syntax, reason));
    };
    let test = match operation.bytes {
        b"isset" => SetTest::In,
        b"isnotset" => SetTest::NotIn,
        b"set" => SetTest::Add,
        b"unset" => SetTest::Remove,
        _ => {
            let reason = "only set, unset, isset and isnotset are possible";
            return Err(operation.fail(Kind::Value, reason));
        }
    };
    let dataset = set(draft, (value, *name_at, rest), test, context)?;
    draft.add(part, Condition::Dataset(Arc::new(dataset)), opt.whole)?;
    Ok(())
}

/// `datarep`: a value of the buffer has a number in a file, and that compares as the rule says.
pub(super) fn datarep<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let value = opt.need()?;
    let part = in_buffer(draft, opt)?;
    let parts = commas(value);
    let [name_at, operator, than, rest @ ..] = &parts[..] else {
        let reason = "the form is `NAME,OPERATOR,NUMBER,load FILE,type TYPE`";
        return Err(value.fail(Kind::Syntax, reason));
    };
    let order = match operator.bytes {
        b"<" => Ordering::Less,
        b">" => Ordering::Greater,
        b"==" => Ordering::Equal,
        _ => return Err(operator.fail(Kind::Value, "only <, > and == are possible")),
    };
    let than = than.number(0, u16::MAX.into())? as u16;
    let test = SetTest::Score(order, than);
    let dataset = set(draft, (value, *name_at, rest), test, context)?;
    draft.add(part, Condition::Dataset(Arc::new(dataset)), opt.whole)?;
    Ok(())
}

/// A set by its name: as the rule says where it comes from, or as one before it did.
fn set<'a>(
    draft: &mut Draft<'a>,
    (value, name_at, rest): (Text<'a>, Text<'a>, &[Text<'a>]),
    test: SetTest,
    context: &mut Context<'_>,
) -> Parsed<Dataset> {
    // What is wrong with a set is said with the first rule that says where it comes from.
    let name = name_at.lossy();
    let of_scores = matches!(test, SetTest::Score(..));
    let definition: Vec<String> = rest.iter().map(|part| part.lossy()).collect();
    let definition = format!("{of_scores} {name} {}", definition.join(","));
    if context.broken_sets.contains(&definition) {
        let reason = format!("the set `{name}` was rejected with a rule before this");
        return Err(name_at.fail(Kind::File, reason));
    }
    let result = read_set(draft, (value, name_at, rest), test, context);
    let is_broken = |problem: &Problem| {
        matches!(
            problem.phrase.as_deref(),
            Some(
                Phrase::SetEncoding(..)
                    | Phrase::SetReputation(_)
                    | Phrase::SetMixed(_)
                    | Phrase::SetNotText
                    | Phrase::SetTooLarge
            )
        )
    };
    if result.as_ref().err().is_some_and(is_broken) {
        context.broken_sets.insert(definition);
    }
    result
}

fn read_set<'a>(
    draft: &mut Draft<'a>,
    (value, name_at, rest): (Text<'a>, Text<'a>, &[Text<'a>]),
    test: SetTest,
    context: &mut Context<'_>,
) -> Parsed<Dataset> {
    let scored = matches!(test, SetTest::Score(..));
    let (mut kind, mut file, mut subdomains) = (None, None, false);
    let (mut state, mut save, mut memcap) = (None, None, None);
    let mut form = Form::default();
    for field in rest {
        let words = field.words();
        if let Some((word, sizes)) = words.split_first()
            && word.is("memcap")
        {
            let size: String = sizes.iter().map(|w| w.lossy()).collect();
            let bytes = crate::settings::bytes(&size);
            let wrong = || word.fail(Kind::Value, "a size is expected, as in 10mb");
            memcap = Some(bytes.ok_or_else(wrong)?);
            continue;
        }
        match words[..] {
            [word, what] if word.is("type") => kind = Some(what),
            [word, what] if word.is("load") => file = Some(what),
            [word, what] if word.is("match") && what.is("subdomain") && !scored => {
                subdomains = true;
            }
            // The size of the table of another implementation.
            [word, _] if word.is("hashsize") => {
                let what = "`hashsize` of a dataset has no effect: its table grows".to_owned();
                draft.notes.push(what);
            }
            [word, what] if word.is("format") && !scored => {
                form.lines = match what.bytes {
                    b"csv" => None,
                    b"json" => Some(false),
                    b"ndjson" | b"jsonline" => Some(true),
                    _ => return Err(what.fail(Kind::Value, "the formats are csv, json, ndjson")),
                };
            }
            [word, what] if word.is("value_key") && !scored => form.value = Some(what),
            [word, what] if word.is("context_key") && !scored => form.context = Some(what),
            [word, what] if word.is("array_key") && !scored => form.array = Some(what),
            [word] if word.is("remove_key") && !scored => form.remove = Some(word),
            [word, what] if word.is("save") && !scored => save = Some(what),
            [word, what] if word.is("state") && !scored => state = Some(what),
            _ => {
                let reason = format!("`{}` is not known here", field.lossy());
                return Err(field.fail(Kind::Syntax, reason));
            }
        }
    }
    let name = name(name_at)?.to_owned();
    let missing = |what: &str| value.fail(Kind::Syntax, format!("`{what}` is missing"));
    form.check(value)?;
    let clash = match (state, file, save) {
        (Some(_), Some(other), _) | (Some(_), _, Some(other)) => Some(other),
        _ => None,
    };
    if let Some(at) = clash {
        let reason = "`state` stands for `load` and `save`, and excludes them";
        return Err(at.fail(Kind::Conflict, reason));
    }
    let written = state.or(save);
    let path = match written {
        Some(file) => {
            let path = context.settings.set_files.path(Path::new(file.str()?));
            let failed = |why| {
                let problem = file.fail(Kind::File, why);
                match is_outside(file) {
                    true => problem.called(outside(file)),
                    false => problem,
                }
            };
            Some(path.map_err(failed)?)
        }
        None => None,
    };
    // A set of values and one of their reputations may have the same name.
    let key = format!("{}{name}", if scored { "datarep:" } else { "" });
    // What rules change is what it was when rules before these were loaded.
    let kept = context.settings.sets.get(&key).map(|set| (set, None));
    let known = match context.sets.get(&key).filter(|_| file.is_none()) {
        Some((live, said)) => Some((Arc::clone(live), said.clone())),
        None => kept,
    };
    let (live, said) = match known {
        Some((live, said)) => {
            if let Some(kind) = kind.filter(|k| !k.is(live.kind())) {
                let reason = format!("the set `{name}` is one of type {}", live.kind());
                let phrase = Phrase::SetType(name.clone());
                return Err(kind.fail(Kind::Conflict, reason).called(phrase));
            }
            agreed(draft, &live, path, memcap);
            (live, said)
        }
        None => {
            let changes = matches!(test, SetTest::Add | SetTest::Remove);
            if file.is_none() && path.is_none() && !changes {
                return Err(missing(if kind.is_none() { "type" } else { "load" }));
            }
            let kind = kind.ok_or_else(|| missing("type"))?;
            let (members, said) = match (file, &path, form.lines) {
                (Some(file), _, Some(lines)) => {
                    let (members, said) =
                        form.members(draft, (file, &name, kind), lines, context)?;
                    (members, Some(said))
                }
                (Some(file), _, None) => {
                    let text = dataset_file(file, context.datasets)?;
                    (members(file, &text, (&name, kind), scored)?, None)
                }
                // What it was when the run before was over; nothing before the first.
                (None, Some(path), _) if state.is_some() && path.exists() => {
                    let at = written.unwrap_or(value);
                    let text = fs::read(path).map_err(|e| {
                        at.fail(Kind::File, format!("cannot read {}: {e}", path.display()))
                    })?;
                    (members(at, &text, (&name, kind), scored)?, None)
                }
                _ => {
                    decoded(b"", kind)?;
                    (Members::new(), None)
                }
            };
            // Rules that name the same members share the set, so that all see what one of them changes.
            let same = context.sets.get(&key).filter(|(live, before)| {
                kind.is(live.kind()) && **live.base() == members && *before == said
            });
            match same.cloned() {
                Some((live, said)) => {
                    agreed(draft, &live, path, memcap);
                    (live, said)
                }
                None => {
                    let memcap = memcap.unwrap_or(context.settings.set_memory);
                    let live = LiveSet::new(&key, &kind.lossy(), Arc::new(members), memcap, path);
                    if live.is_too_large() {
                        let reason = format!("the set `{name}` is larger than its memcap");
                        let problem = value.fail(Kind::Value, reason);
                        return Err(problem.called(Phrase::SetTooLarge));
                    }
                    let live = Arc::new(live);
                    context.sets.insert(key, (Arc::clone(&live), said.clone()));
                    (live, said)
                }
            }
        }
    };
    if matches!(test, SetTest::Add | SetTest::Remove) {
        live.change();
        context.settings.sets.keep(&live);
    }
    let (members, kind) = (Arc::clone(live.base()), live.kind());
    if subdomains && kind != "string" {
        let reason = "subdomains are of sets of strings only";
        return Err(value.fail(Kind::Conflict, reason));
    }
    Ok(Dataset {
        name,
        test,
        subdomains,
        members,
        live: Arc::clone(&live),
        said,
    })
}

/// What a rule says of a set that is there already: where it is written, if nobody has said so; else a note of what has no effect.
fn agreed(draft: &mut Draft<'_>, live: &LiveSet, path: Option<PathBuf>, memcap: Option<u64>) {
    if let Some(path) = path {
        let written = live.save_to(path.clone());
        if written != path {
            let (path, written) = (path.display(), written.display());
            let note = format!("the set is written to {written}, not to {path}");
            draft.notes.push(note);
        }
    }
    if memcap.is_some_and(|memcap| memcap != live.memcap()) {
        let note = format!("`memcap`: the set has {} bytes already", live.memcap());
        draft.notes.push(note);
    }
}

/// How a file in JSON holds a set.
#[derive(Default)]
struct Form<'a> {
    /// `false`: the file is one array, or has it; `true`: each line is an object. `None`: it is not in JSON.
    lines: Option<bool>,
    /// Where the array is, with dots between names.
    array: Option<Text<'a>>,
    /// Where an object has the member.
    value: Option<Text<'a>>,
    /// What alerts call the object.
    context: Option<Text<'a>>,
    /// Alerts do not repeat the member.
    remove: Option<Text<'a>>,
}

impl<'a> Form<'a> {
    /// Keys belong to JSON, and JSON needs two of them.
    fn check(&self, whole: Text<'a>) -> Parsed<()> {
        let keys = [self.array, self.value, self.context, self.remove];
        match self.lines {
            None => match keys.into_iter().flatten().next() {
                Some(key) => Err(key.fail(Kind::Conflict, "keys need `format json`")),
                None => Ok(()),
            },
            Some(true) if self.array.is_some() => {
                Err(whole.fail(Kind::Conflict, "`array_key` is of `format json` only"))
            }
            Some(_) if self.value.is_none() || self.context.is_none() => {
                let reason = "JSON needs `value_key` and `context_key`";
                Err(whole.fail(Kind::Syntax, reason))
            }
            Some(_) => Ok(()),
        }
    }

    /// The members of a file, and what it says of each. Of several objects with one member the first counts.
    fn members(
        &self,
        draft: &mut Draft<'_>,
        (file, set, kind): (Text<'a>, &str, Text<'a>),
        lines: bool,
        context: &Context<'_>,
    ) -> Parsed<(Members, Said)> {
        let text = dataset_file(file, context.datasets)?;
        let wrong = |what: String| file.fail(Kind::File, what);
        let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes);
        let mut objects = Vec::new();
        if lines {
            for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
                if !line.trim_ascii().is_empty() {
                    let object = parse(line);
                    objects
                        .push(object.map_err(|_| {
                            wrong(format!("line {number} of the file is not JSON"))
                        })?);
                }
            }
        } else {
            let mut whole =
                parse(&text).map_err(|e| wrong(format!("the file is not JSON: {e}")))?;
            let array = match self.array {
                Some(path) => at(&mut whole, path.str()?).map(serde_json::Value::take),
                None => Some(whole),
            };
            match array {
                Some(serde_json::Value::Array(list)) => objects = list,
                _ => return Err(wrong("the file has no array there".to_owned())),
            }
        }
        let key = self.value.map_or(Ok(""), |v| v.str())?;
        let name = self.context.map_or(Ok(""), |v| v.str())?;
        let (mut members, mut values) = (Members::new(), HashMap::new());
        let mut without = 0;
        for (mut object, number) in objects.into_iter().zip(1..) {
            let Some(value) = at(&mut object, key) else {
                without += 1;
                continue;
            };
            let member = match value.as_str() {
                Some(text) if kind.is("string") => Some(text.as_bytes().to_vec()),
                Some(text) => decoded(text.as_bytes(), kind)?,
                None => None,
            };
            let Some(member) = member else {
                let what = kind.lossy();
                let reason = format!("`{key}` of object {number} of the file is no {what}");
                return Err(wrong(reason).called(match value.is_string() {
                    true => Phrase::SetEncoding(set.to_owned(), encoding(kind)),
                    false => Phrase::SetNotText,
                }));
            };
            if self.remove.is_some() {
                take_out(&mut object, key);
            }
            let said = object.to_string();
            if said.len() > MOST_SAID {
                let most = MOST_SAID >> 10;
                let reason = format!("object {number} of the file is larger than {most} KiB");
                return Err(wrong(reason));
            }
            if members.insert(member.clone(), 0).is_none() {
                values.insert(member, said.into_boxed_str());
            }
        }
        if without > 0 {
            let note = format!("{without} objects of `{}` have no `{key}`", file.lossy());
            draft.notes.push(note);
        }
        let said = Said {
            name: name.into(),
            values: Arc::new(values),
        };
        Ok((members, said))
    }
}

/// What an object has at a path of names with dots between them.
fn at<'v>(value: &'v mut serde_json::Value, path: &str) -> Option<&'v mut serde_json::Value> {
    path.split('.').try_fold(value, |v, name| v.get_mut(name))
}

/// Takes that out.
fn take_out(value: &mut serde_json::Value, path: &str) {
    let (parent, name) = match path.rsplit_once('.') {
        Some((parent, name)) => (at(value, parent), name),
        None => (Some(value), path),
    };
    if let Some(object) = parent.and_then(serde_json::Value::as_object_mut) {
        object.remove(name);
    }
}

/// A member as buffers hold it; `None`: it is none of that type. Strings are in base64.
fn decoded(line: &[u8], kind: Text<'_>) -> Parsed<Option<Vec<u8>>> {
    Ok(match kind.bytes {
        b"string" => decode_base64(line),
        b"md5" => decode_hex(line, 16),
        b"sha256" => decode_hex(line, 32),
        b"ipv4" | b"ipv6" | b"ip" => std::str::from_utf8(line)
            .ok()
            .and_then(|l| l.parse::<IpAddr>().ok())
            .filter(|a| kind.is("ip") || a.is_ipv4() == kind.is("ipv4"))
            .map(octets),
        _ => {
            let reason = format!("the type `{}` is not supported", kind.lossy());
            return Err(kind.fail(Kind::Unsupported, reason));
        }
    })
}

/// The members that a file lists, one a line; `scored`: each with its reputation behind a comma.
fn members(
    file: Text<'_>,
    text: &[u8],
    (name, kind): (&str, Text<'_>),
    scored: bool,
) -> Parsed<Members> {
    let mut members = Members::new();
    // Whether there is a reputation behind members: all lines or none, and what a set has no use for is not kept.
    let mut with_scores = None;
    for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let fail = |reason: String, phrase: Phrase| {
            let reason = format!("line {number} of the file {reason}");
            Err(file.fail(Kind::File, reason).called(phrase))
        };
        let (word, score) = match line.iter().position(|b| *b == b',') {
            Some(at) => (line[..at].trim_ascii(), Some(line[at + 1..].trim_ascii())),
            None => (line, None),
        };
        if *with_scores.get_or_insert(score.is_some()) != score.is_some() {
            let reason = "has a reputation and the line before it has none, or the other way round";
            return fail(reason.to_owned(), Phrase::SetMixed(name.to_owned()));
        }
        let Some(member) = decoded(word, kind)? else {
            let reason = format!("is no {}", kind.lossy());
            let phrase = Phrase::SetEncoding(name.to_owned(), encoding(kind));
            return fail(reason, phrase);
        };
        let number = score.map(|score| std::str::from_utf8(score).ok()?.parse().ok());
        let score = match number {
            Some(Some(score)) => score,
            None if !scored => 0,
            _ => {
                let reason = "has no reputation from 0 to 65,535".to_owned();
                return fail(reason, Phrase::SetReputation(name.to_owned()));
            }
        };
        members.insert(member, score);
    }
    if !scored {
        members.values_mut().for_each(|score| *score = 0);
    }
    Ok(members)
}

/// What logs call the form of members of a type.
fn encoding(kind: Text<'_>) -> &'static str {
    match kind.bytes {
        b"string" => "base64 encoding",
        b"md5" | b"sha256" => "hash for set",
        _ => "address for set",
    }
}

/// Whether a path leaves its folder.
fn is_outside(file: Text<'_>) -> bool {
    let path = file.lossy();
    let is_below = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    !Path::new(&path).components().all(is_below)
}

/// What logs call a path that leaves its folder.
fn outside(file: Text<'_>) -> Phrase {
    let path = file.lossy();
    match Path::new(&path).is_absolute() {
        true => Phrase::AbsolutePath(path),
        false => Phrase::ParentPath(path),
    }
}

/// Adds a set of a configuration to those that outlive rules, with what its file has.
///
/// # Errors
/// What the file has are no members of that type, or too many.
pub(crate) fn configure(
    sets: &LiveSets,
    (name, kind): (&str, &str),
    text: &[u8],
    memcap: u64,
    save: Option<PathBuf>,
) -> Result<(), String> {
    let word = Text::new(kind.as_bytes());
    let members = members(word, text, (name, word), false).map_err(|problem| problem.reason)?;
    let set = LiveSet::new(name, kind, Arc::new(members), memcap, save);
    if set.is_too_large() {
        return Err("it is larger than its memcap".to_owned());
    }
    sets.keep(&Arc::new(set));
    Ok(())
}

/// `filemd5` and its like: a list of sums in a file beside the rules, one a line; what follows a sum is a comment, as in the output of the programs that compute them.
pub(super) fn file_sums<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    context: &Context<'_>,
    (sum, length): (&'static str, usize),
) -> Parsed<()> {
    let value = opt.need()?;
    let (file, negated) = value.negation();
    let file = file.unquoted()?;
    let text = dataset_file(file, context.datasets)?;
    let mut sums = HashSet::new();
    for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let word = line.split(u8::is_ascii_whitespace).next();
        let Some(one) = word.and_then(|w| decode_hex(w, length)) else {
            let reason = format!("line {number} of the file begins with no {sum}");
            return Err(file.fail(Kind::File, reason));
        };
        sums.insert(one);
    }
    let condition = PacketCondition::FileSum(sum, Arc::new(sums), negated);
    draft.rule.packet.push(condition);
    Ok(())
}

/// An address as its buffer holds it; of version 4 in version 6, the part of version 4.
fn octets(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// The bytes of a file that a rule names; below the folder of datasets, for rules come from elsewhere.
fn dataset_file(file: Text<'_>, folder: Option<&Path>) -> Parsed<Vec<u8>> {
    let path = Path::new(file.str()?);
    if is_outside(file) {
        let reason = "a rule may name files below the folder of datasets only";
        return Err(file.fail(Kind::File, reason).called(outside(file)));
    }
    let Some(folder) = folder else {
        let reason = "there is no folder of datasets";
        return Err(file.fail(Kind::File, reason));
    };
    let path = folder.join(path);
    let failed =
        |e: std::io::Error| file.fail(Kind::File, format!("cannot read {}: {e}", path.display()));
    let size = fs::metadata(&path).map_err(failed)?.len();
    if size > DATASET {
        let reason = format!("{} is larger than {} MiB", path.display(), DATASET >> 20);
        return Err(file.fail(Kind::File, reason));
    }
    fs::read(&path).map_err(failed)
}

fn decode_hex(text: &[u8], length: usize) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16);
    if text.len() != length * 2 {
        return None;
    }
    let pair = |p: &[u8]| Some((digit(p[0])? * 16 + digit(p[1])?) as u8);
    text.chunks(2).map(pair).collect()
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let body = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    let (mut bits, mut held) = (0u32, 0);
    let mut out = Vec::with_capacity(body.len() * 3 / 4);
    for b in body {
        bits = bits << 6 | base64::digit(*b)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (body.len() % 4 != 1 && bits == 0).then_some(out)
}

//! What the options of a rule mean for each other: which applications it is about, which directions, what contradicts what. The last step before a rule is loaded.

use crate::app::{self, App, Protocol};
use crate::buffer::{Buffer, Sides};
use crate::packet::Direction;

use super::load::{Dialect, LoadSettings};
use super::model::{
    Condition, Content, FastPattern, Group, HeaderProtocol, Hook, Number, PacketCondition, Range,
    Rule, Transform,
};
use super::parse::{Draft, Part};
use super::phrase::{Phrase, Room};
use super::problem::{Kind, Parsed, Problem};
use super::text::Text;

/// Completes a rule.
pub(super) fn finish(
    mut draft: Draft<'_>,
    text: Text<'_>,
    settings: &LoadSettings,
) -> Parsed<(Rule, Vec<String>)> {
    draft.leave()?;
    // Contents that old modifiers moved away leave nothing behind; a buffer of Snort without conditions must be there.
    let snort = draft.dialect == Dialect::Snort;
    draft
        .parts
        .retain(|p| !p.items.is_empty() || snort && p.at.is_some() && p.buffer != Buffer::Payload);
    if draft.rule.sid == 0 {
        let at = text.part(text.len().saturating_sub(1)..text.len());
        let mut problem = at.fail(Kind::Syntax, "the rule has no sid");
        problem = problem.called(Phrase::Missing("sid"));
        problem.keyword = Some("sid".to_owned());
        return Err(problem);
    }
    class(&mut draft, settings);
    letters(&mut draft)?;
    applications(&mut draft)?;
    transport(&draft)?;
    hooked(&mut draft)?;
    directions(&draft)?;
    packets(&draft)?;
    sizes(&draft)?;
    changed(&draft)?;
    fast_pattern(&mut draft)?;
    let mut rule = draft.rule;
    if let Some(source) = &mut rule.source {
        let options = |part: &Part<'_>| {
            let starts = part.items.iter().map(|item| item.at.start);
            starts.map(|start| source.option_at(start)).collect()
        };
        let conditions = draft.parts.iter().map(options).collect();
        source.conditions = conditions;
    }
    rule.groups = draft.parts.into_iter().map(group).collect();
    rule.groups.shrink_to_fit();
    Ok((rule, draft.notes))
}

fn group(part: Part<'_>) -> Group {
    Group {
        way: part.way,
        buffer: part.buffer,
        transforms: part.transforms,
        conditions: part.items.into_iter().map(|i| i.condition).collect(),
    }
}

fn class(draft: &mut Draft<'_>, settings: &LoadSettings) {
    let Some(name) = &draft.rule.class else {
        return;
    };
    match settings.classes.get(name) {
        Some(class) => {
            draft.rule.category.clone_from(&class.description);
            if !draft.priority_set {
                draft.rule.priority = class.priority;
            }
        }
        // Without a table no class is known, which is said once by who loads it and not for each rule.
        None if settings.classes.is_empty() => {}
        None => draft
            .notes
            .push(format!("the class `{name}` is not defined: priority 3")),
    }
}

/// Contents of buffers that have only one case: what is written in the other is meant in this one. For a host whoever writes it must know that it has no capital letters.
fn letters(draft: &mut Draft<'_>) -> Parsed<()> {
    let suricata = draft.dialect == Dialect::Suricata;
    for part in draft.parts.iter_mut().filter(|p| p.transforms.is_empty()) {
        for item in &mut part.items {
            let Condition::Content(content) = &mut item.condition else {
                continue;
            };
            match part.buffer {
                Buffer::Ja3Hash
                | Buffer::Ja3sHash
                | Buffer::TlsCertFingerprint
                | Buffer::EmailBodyMd5
                | Buffer::QuicCyuHash => {
                    content.bytes.make_ascii_lowercase();
                }
                Buffer::TlsCertSerial => content.bytes.make_ascii_uppercase(),
                Buffer::HttpHost if suricata => {
                    let upper = content.bytes.iter().any(u8::is_ascii_uppercase);
                    let (reason, phrase) = match content.nocase {
                        true => (
                            "`nocase` has no effect in http.host, which is in lower case: remove it",
                            Phrase::HostNocase,
                        ),
                        false if upper => (
                            "http.host is in lower case: write the content without capital letters",
                            Phrase::HostCapitals,
                        ),
                        false => continue,
                    };
                    let mut problem = item.at.fail(Kind::Conflict, reason).called(phrase);
                    problem.keyword = Some("http.host".to_owned());
                    return Err(problem);
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Applications whose transactions have a buffer; empty: it is not of transactions, or of many.
pub(crate) fn carriers(buffer: Buffer) -> Vec<App> {
    match (buffer, buffer.app()) {
        // Fingerprints of TLS are QUIC's as well.
        _ if buffer.name().starts_with("ja") => vec![App::Tls, App::Quic],
        (Buffer::DcerpcStub, _) => vec![App::Dcerpc, App::Smb],
        (_, Some(App::Http1)) => vec![App::Http1, App::Http2],
        (_, Some(app)) => vec![app],
        (_, None) => Vec::new(),
    }
}

/// Whether transactions of a protocol have buffers of these: DNS in HTTP/2 has those of both.
fn carries(app: App, carriers: &[App]) -> bool {
    let both = [App::Http2, App::Dns];
    carriers.contains(&app) || app == App::Doh2 && both.iter().any(|a| carriers.contains(a))
}

/// Whether files are taken out of an application's transactions.
fn has_files(app: App) -> bool {
    app::protocol(app).is_some_and(|row| row.files)
}

/// What a problem about a group points at.
fn at_part<'a>(part: &Part<'a>) -> Option<Text<'a>> {
    part.at.or_else(|| part.items.first().map(|i| i.at))
}

fn fail_part(part: &Part<'_>, kind: Kind, reason: String) -> Problem {
    let at = at_part(part).unwrap_or(Text::new(b""));
    let mut problem = at.fail(kind, reason);
    problem.keyword = Some(part.buffer.name().to_owned());
    problem
}

/// The applications of the rule, from header, options and buffers.
fn applications(draft: &mut Draft<'_>) -> Parsed<()> {
    let mut apps: Vec<App> = draft.header_apps.clone();
    let named: Vec<(App, bool)> = std::mem::take(&mut draft.rule.apps);
    let asked: Vec<App> = named.iter().filter(|n| !n.1).map(|n| n.0).collect();
    if !asked.is_empty() {
        match apps.is_empty() {
            true => apps = asked,
            false => apps.retain(|a| asked.contains(a)),
        }
        if apps.is_empty() {
            let reason = "app-layer-protocol names another protocol than the header";
            let mut problem = draft.protocol_at.fail(Kind::Conflict, reason);
            problem.keyword = Some("app-layer-protocol".to_owned());
            return Err(problem);
        }
    }
    let mut from = draft.protocol_at.lossy();
    let mut of_files = draft.rule.packet.iter().any(|c| {
        matches!(
            c,
            PacketCondition::FileSize(..) | PacketCondition::FileSum(..)
        )
    });
    for part in &draft.parts {
        let carriers = carriers(part.buffer);
        let fits = match (carriers.is_empty(), part.buffer) {
            (true, Buffer::FileData | Buffer::FileName | Buffer::FileMagic) => {
                apps.is_empty() || apps.iter().any(|a| has_files(*a))
            }
            (true, _) => true,
            (false, _) => apps.is_empty() || apps.iter().any(|a| carries(*a, &carriers)),
        };
        if !fits {
            let what = part.buffer.name();
            let reason = format!("{what} is not a buffer of {from}");
            return Err(fail_part(part, Kind::Conflict, reason));
        }
        if carriers.is_empty() {
            of_files |= matches!(
                part.buffer,
                Buffer::FileData | Buffer::FileName | Buffer::FileMagic
            );
            continue;
        }
        match apps.is_empty() {
            true => {
                apps = carriers;
                from = format!("{}, which {} is of", apps[0].name(), part.buffer.name());
            }
            false => apps.retain(|a| carries(*a, &carriers)),
        }
    }
    if draft.dialect == Dialect::Suricata
        && of_files
        && apps.is_empty()
        && draft.rule.header.protocol != HeaderProtocol::Udp
    {
        apps.extend(App::ALL.iter().copied().filter(|a| has_files(*a)));
        apps.retain(|a| !named.iter().any(|(n, negated)| *negated && n == a));
    }
    let refused = |a: App| named.iter().any(|(n, negated)| *negated && *n == a);
    if apps.iter().any(|a| refused(*a)) {
        let reason = "app-layer-protocol excludes the protocol that the rule is about";
        let mut problem = draft.protocol_at.fail(Kind::Conflict, reason);
        problem.keyword = Some("app-layer-protocol".to_owned());
        return Err(problem);
    }
    draft.rule.apps = apps.into_iter().map(|a| (a, false)).collect();
    let negated = named.into_iter().filter(|n| n.1);
    draft.rule.apps.extend(negated);
    Ok(())
}

/// Applications are carried by what the header says.
fn transport(draft: &Draft<'_>) -> Parsed<()> {
    let protocol = draft.rule.header.protocol;
    for part in &draft.parts {
        let carriers = carriers(part.buffer);
        let (tcp, udp) = match carriers.is_empty() {
            false => {
                let mut rows = carriers.iter().filter_map(|app| app::protocol(*app));
                let over = |tcp| move |row: &Protocol| row.carrier.has(tcp);
                (rows.clone().any(over(true)), rows.any(over(false)))
            }
            true if matches!(
                part.buffer,
                Buffer::FileData | Buffer::FileName | Buffer::FileMagic
            ) =>
            {
                (true, false)
            }
            true => continue,
        };
        let fits = match protocol {
            HeaderProtocol::Tcp | HeaderProtocol::TcpStream => tcp,
            HeaderProtocol::Udp => udp,
            HeaderProtocol::Ip
            | HeaderProtocol::Ipv4
            | HeaderProtocol::Ipv6
            | HeaderProtocol::App => true,
            HeaderProtocol::TcpPacket
            | HeaderProtocol::Icmp
            | HeaderProtocol::Icmpv4
            | HeaderProtocol::Icmpv6
            | HeaderProtocol::Sctp
            | HeaderProtocol::PacketHeader => false,
        };
        if !fits {
            let word = draft.protocol_at.lossy();
            let reason = format!("{} is not a buffer of `{word}`", part.buffer.name());
            return Err(fail_part(part, Kind::Conflict, reason));
        }
    }
    Ok(())
}

/// The direction of transactions whose state a hook in the header waits for.
fn hook(draft: &Draft<'_>) -> Option<bool> {
    draft.rule.packet.iter().find_map(|c| match c {
        PacketCondition::Hook(Hook::Reached(d, _)) => Some(*d == Direction::ToServer),
        _ => None,
    })
}

/// A hook is of one direction, and it is the flow's.
fn hooked(draft: &mut Draft<'_>) -> Parsed<()> {
    let Some(to_server) = hook(draft) else {
        return Ok(());
    };
    let flow = &mut draft.rule.flow.to_server;
    if draft.whole || flow.is_some_and(|f| f != to_server) {
        let reason = "the hook is of the other direction";
        return Err(draft.protocol_at.fail(Kind::Conflict, reason));
    }
    *flow = Some(to_server);
    Ok(())
}

/// Buffers are of one direction, and it is the flow's.
fn directions(draft: &Draft<'_>) -> Parsed<()> {
    // Snort's inspector keeps a request's buffers for its response.
    if draft.dialect == Dialect::Snort {
        return Ok(());
    }
    if draft.whole {
        return match draft
            .flow_at
            .filter(|_| draft.rule.flow.to_server.is_some())
        {
            Some(at) => {
                let reason = "a rule with `=>` is about both directions";
                Err(at
                    .fail(Kind::Conflict, reason)
                    .called(Phrase::FlowDirection))
            }
            None => both_directions(draft),
        };
    }
    let mut first: Option<(Sides, &Part<'_>)> = None;
    for part in &draft.parts {
        let sides = part.buffer.sides();
        if sides == Sides::Both {
            continue;
        }
        let name = part.buffer.name();
        if let Some((before, other)) = first
            && before != sides
        {
            let reason = format!(
                "{name} and {} are of different directions: a rule is about one",
                other.buffer.name()
            );
            let problem = fail_part(part, Kind::Conflict, reason);
            return Err(problem.called(Phrase::Directions));
        }
        first.get_or_insert((sides, part));
        let wrong = match (sides, draft.rule.flow.to_server) {
            (Sides::Request, Some(false)) => Some("to_client"),
            (Sides::Response, Some(true)) => Some("to_server"),
            _ => None,
        };
        if let Some(flow) = wrong {
            let reason = format!("{name} never is in the direction {flow} that `flow` asks for");
            let problem = fail_part(part, Kind::Conflict, reason);
            return Err(problem.called(Phrase::Directions));
        }
    }
    Ok(())
}

/// A rule with `=>` asks for something of each direction, and says of which one where both have it.
fn both_directions(draft: &Draft<'_>) -> Parsed<()> {
    let mut asked = [false; 2];
    let mut mark =
        |direction: Direction| asked[usize::from(direction == Direction::ToClient)] = true;
    for part in &draft.parts {
        match (part.buffer.sides(), part.way) {
            (Sides::Request, _) => mark(Direction::ToServer),
            (Sides::Response, _) => mark(Direction::ToClient),
            (Sides::Both, Some(way)) => mark(way),
            (Sides::Both, None) if carriers(part.buffer).is_empty() => {}
            (Sides::Both, None) => {
                let name = part.buffer.name();
                let reason = format!(
                    "both directions have {name}: say which is meant, as in `{name}: to_client`"
                );
                let problem = fail_part(part, Kind::Conflict, reason);
                return Err(problem.called(Phrase::EitherDirection));
            }
        }
    }
    let mut numbers = false;
    for condition in &draft.rule.packet {
        match condition {
            PacketCondition::FileSize(_, Some(way)) => mark(*way),
            // Numbers of transactions are of either direction.
            PacketCondition::Record(..) | PacketCondition::Placed(..) => numbers = true,
            _ => {}
        }
    }
    if numbers || asked == [true, true] {
        return Ok(());
    }
    let reason = "a rule with `=>` asks for something of each direction, and this one does not";
    let problem = draft.protocol_at.fail(Kind::Conflict, reason);
    Err(problem.called(Phrase::OneDirection))
}

/// What only packets have cannot be asked together with what only transactions have.
fn packets(draft: &Draft<'_>) -> Parsed<()> {
    let flow = &draft.rule.flow;
    let protocol = draft.rule.header.protocol;
    let streams = flow.stream == Some(true) || protocol == HeaderProtocol::TcpStream;
    // What a packet is, rather than what is in it.
    let of_flow = draft
        .flow_at
        .filter(|_| flow.stream == Some(false) || flow.fragment.is_some());
    let Some(at) = draft.packet_only.or(of_flow) else {
        return Ok(());
    };
    let suricata = draft.dialect == Dialect::Suricata;
    if suricata && streams && (draft.packet_only.is_some() || flow.stream == Some(false)) {
        let reason = "a condition on packets in a rule about streams only";
        return Err(at.fail(Kind::Conflict, reason));
    }
    if hook(draft).is_some() {
        let reason = "a condition on packets together with a hook of transactions";
        return Err(at.fail(Kind::Conflict, reason));
    }
    if draft.dialect == Dialect::Snort {
        return Ok(());
    }
    let of_transaction = |p: &&Part<'_>| {
        !carriers(p.buffer).is_empty()
            || matches!(
                p.buffer,
                Buffer::FileData | Buffer::FileName | Buffer::FileMagic
            )
    };
    match draft.parts.iter().find(of_transaction) {
        Some(part) => {
            let reason = format!(
                "a condition on packets together with {}, which is a transaction's",
                part.buffer.name()
            );
            Err(at.fail(Kind::Conflict, reason))
        }
        None => Ok(()),
    }
}

/// Contents that their buffer's length cannot hold: each with its offset, and those that follow each other with what is between them.
fn sizes(draft: &Draft<'_>) -> Parsed<()> {
    for part in &draft.parts {
        let spans = part.items.iter().filter_map(|i| match &i.condition {
            Condition::Size(span) if !span.negated && span.mask == u64::MAX => Some(span),
            _ => None,
        });
        let Some(span) = spans.min_by_key(|span| span.high) else {
            continue;
        };
        // What the contents that follow each other take up to here.
        let mut chain: i64 = 0;
        for item in part
            .items
            .iter()
            .take_while(|i| !matches!(i.condition, Condition::Base64Data))
        {
            let content = match &item.condition {
                Condition::Content(content) => content,
                Condition::Size(_) | Condition::IsDataAt { .. } => continue,
                // Others may move the place.
                _ => {
                    chain = 0;
                    continue;
                }
            };
            if content.negated {
                continue;
            }
            let length = content.bytes.len() as i64;
            let offset = match content.offset {
                Some(Number::Is(n)) => n.max(0),
                _ => 0,
            };
            let relative = content.distance.is_some() || content.within.is_some();
            chain = match (&content.distance, relative) {
                (Some(Number::Is(n)), _) => (chain + n).max(0) + length,
                (None, true) => chain + length,
                _ => length,
            };
            let top = i64::try_from(span.high).unwrap_or(i64::MAX);
            let needed = match chain > top {
                true => chain,
                false => chain.max(length + offset),
            };
            if needed > top {
                let reason = format!(
                    "a buffer of at most {top} bytes cannot hold this content, which needs {needed}"
                );
                let needed = needed as u64;
                let phrase = Phrase::Longer(needed, room(span));
                let mut problem = item.at.fail(Kind::Conflict, reason).called(phrase);
                problem.keyword = Some("content".to_owned());
                return Err(problem);
            }
        }
    }
    Ok(())
}

/// A length as it was written: `a<>b` has neither end.
fn room(span: &Range) -> Room {
    match span.low {
        0 => Room::Size(span.high + 1),
        low if low == span.high => Room::Size(low),
        low => Room::Range(low - 1, span.high + 1),
    }
}

/// Contents that the last transform of their buffer leaves no room for.
fn changed(draft: &Draft<'_>) -> Parsed<()> {
    for part in &draft.parts {
        let Some(transform) = part.transforms.last() else {
            continue;
        };
        let own = part.items.iter();
        let own = own.take_while(|i| !matches!(i.condition, Condition::Base64Data));
        for item in own {
            let Condition::Content(content) = &item.condition else {
                continue;
            };
            if let Some(what) = never_after(transform, content) {
                let reason = format!("{what}: the content is never there");
                let written = String::from_utf8_lossy(&content.bytes).into_owned();
                let phrase = Phrase::Transformed(written, keyword(transform));
                let mut problem = item.at.fail(Kind::Conflict, reason).called(phrase);
                problem.keyword = Some("content".to_owned());
                return Err(problem);
            }
        }
    }
    Ok(())
}

/// The keyword of a transform that leaves no room for some contents.
fn keyword(transform: &Transform) -> &'static str {
    match transform {
        Transform::StripWhitespace => "strip_whitespace",
        Transform::CompressWhitespace => "compress_whitespace",
        Transform::Lowercase => "to_lowercase",
        Transform::Uppercase => "to_uppercase",
        Transform::Md5 => "to_md5",
        Transform::Sha1 => "to_sha1",
        Transform::Sha256 => "to_sha256",
        _ => "other",
    }
}

/// Why a content cannot be in what a transform yields.
fn never_after(transform: &Transform, content: &Content) -> Option<&'static str> {
    let bytes = &content.bytes;
    // As C's `isspace`: with the vertical tab.
    let blank = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
    let longer = |most: usize| bytes.len() > most;
    let cased = |is: fn(&u8) -> bool| !content.nocase && bytes.iter().any(is);
    match transform {
        Transform::StripWhitespace if bytes.iter().any(blank) => {
            Some("`strip_whitespace` takes blanks out")
        }
        Transform::CompressWhitespace if bytes.windows(2).any(|w| w.iter().all(blank)) => {
            Some("`compress_whitespace` leaves one blank of several")
        }
        Transform::Lowercase if cased(u8::is_ascii_uppercase) => {
            Some("`to_lowercase` leaves no capital letters")
        }
        Transform::Uppercase if cased(u8::is_ascii_lowercase) => {
            Some("`to_uppercase` leaves no small letters")
        }
        Transform::Md5 if longer(16) => Some("`to_md5` yields 16 bytes"),
        Transform::Sha1 if longer(20) => Some("`to_sha1` yields 20 bytes"),
        Transform::Sha256 if longer(32) => Some("`to_sha256` yields 32 bytes"),
        _ => None,
    }
}

/// Where the content marked `fast_pattern` is, and whether it may be it.
fn fast_pattern(draft: &mut Draft<'_>) -> Parsed<()> {
    for part in &draft.parts {
        // Of a content that may be anywhere nobody knows where it was found.
        let mut only = false;
        for item in &part.items {
            let Condition::Content(content) = &item.condition else {
                only = false;
                continue;
            };
            if only && (content.distance.is_some() || content.within.is_some()) {
                let reason = "the content before it is fast_pattern:only, and no content is relative to that";
                let problem = item.at.fail(Kind::Conflict, reason);
                return Err(problem.called(Phrase::PlacedOnly));
            }
            only = content.only && draft.dialect == Dialect::Suricata;
        }
    }
    let mut found = None;
    for (group, part) in draft.parts.iter_mut().enumerate() {
        let mut decoded = false;
        for (condition, item) in part.items.iter_mut().enumerate() {
            decoded |= matches!(item.condition, Condition::Base64Data);
            let Some(chosen) = item.fast else { continue };
            let Condition::Content(content) = &mut item.condition else {
                continue;
            };
            let fail = |reason: String| {
                let mut problem = item.at.fail(Kind::Conflict, reason);
                problem.keyword = Some("fast_pattern".to_owned());
                problem
            };
            if decoded {
                return Err(fail(
                    "what is decoded behind base64_data is not searched for the fast_pattern"
                        .to_owned(),
                )
                .called(Phrase::FastDecoded));
            }
            if content.negated {
                if placed(content) || content.only {
                    return Err(fail(
                        "a negated content with a place cannot be the fast_pattern".to_owned(),
                    )
                    .called(Phrase::FastNegated));
                }
                let what = "`fast_pattern` of a negated content has no effect";
                draft.notes.push(what.to_owned());
                continue;
            }
            if content.only && (placed(content) || content.starts || content.ends) {
                return Err(fail(
                    "fast_pattern:only excludes places: the content may be anywhere".to_owned(),
                )
                .called(Phrase::PlacedOnly));
            }
            let length = content.bytes.len();
            // Snort lets the length be given without the offset and the other way round.
            let chosen = chosen.map(|(o, l)| match l {
                0 => (o, length.saturating_sub(o.into()) as u16),
                l => (o, l),
            });
            if let Some((o, l)) = chosen
                && (l == 0 || usize::from(o) + usize::from(l) > length)
            {
                let reason = format!("the part {o},{l} is not within the content's {length} bytes");
                let end = u64::from(o) + u64::from(l);
                let phrase = Phrase::FastPart(end, length as u64);
                return Err(fail(reason).called(phrase));
            }
            found = Some(FastPattern {
                group,
                condition,
                part: chosen,
            });
        }
    }
    draft.rule.fast_pattern = found;
    Ok(())
}

fn placed(content: &Content) -> bool {
    content.offset.is_some()
        || content.depth.is_some()
        || content.distance.is_some()
        || content.within.is_some()
}

//! What each keyword does to the draft, apart from contents and buffers: numbers of packets, bits, thresholds, regular expressions, transforms, tables.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path};
use std::sync::Arc;

use crate::app::App;
use crate::buffer::Buffer;

use super::bytes;
use super::content;
use super::files;
use super::header;
use super::keywords::Word;
use super::load::Dialect;
use super::model::{
    Bit, BitOperation, BitsMode, Condition, Dataset, Number, PacketCondition, Pcre, Range,
    StreamSide, Target, ThresholdKind, Track, Transform,
};
use super::parse::{Context, Draft, unknown_name};
use super::problem::{Kind, Parsed};
use super::scan::{Opt, commas};
use super::text::Text;
use super::values::{bits, name, quoted, range};

/// The largest file of a dataset, bytes.
const DATASET: u64 = 64 << 20;

const TCP_FLAGS: &[(u8, u8)] = &[
    (b'F', 1),
    (b'S', 2),
    (b'R', 4),
    (b'P', 8),
    (b'A', 16),
    (b'U', 32),
    (b'E', 64),
    (b'2', 64),
    (b'C', 128),
    (b'1', 128),
    (b'0', 0),
];

const IP_OPTIONS: &[&str] = &[
    "rr", "lsrr", "lsrre", "eol", "nop", "ts", "sec", "ssrr", "satid", "esec", "cipso", "any",
];

const IP_PROTOCOLS: &[(&str, u8)] = &[
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipip", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// Handles a keyword that is neither a buffer nor about the content before it.
pub(super) fn option<'a>(
    draft: &mut Draft<'a>,
    word: Word,
    opt: Opt<'a>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let dialect = draft.dialect;
    let span = |top: u64| range(opt.need()?, top, dialect);
    match word {
        Word::Sid => draft.rule.sid = opt.need()?.number(1, u32::MAX.into())? as u32,
        Word::Gid => draft.rule.gid = opt.need()?.number(1, u32::MAX.into())? as u32,
        Word::Rev => draft.rule.rev = opt.need()?.number(0, u32::MAX.into())? as u32,
        Word::Class => {
            let value = opt.need()?;
            draft.rule.class = Some(value.str()?.to_owned());
            draft.class_at = Some(value);
        }
        Word::Priority => {
            draft.rule.priority = opt.need()?.number(1, 255)? as u8;
            draft.priority_set = true;
        }
        Word::Reference => {
            let value = opt.need()?;
            let Some((kind, rest)) = value.cut(b',') else {
                let reason = "a reference is `kind,value`";
                return Err(value.fail(Kind::Syntax, reason));
            };
            let rest = quoted(rest.trim())?;
            draft.rule.references.push((kind.trim().lossy(), rest));
        }
        Word::Metadata => metadata(draft, opt.need()?),
        Word::Remark => {
            opt.need()?;
        }
        Word::Target => {
            let value = opt.need()?;
            draft.rule.target = Some(match value.bytes {
                b"src_ip" => Target::Source,
                b"dest_ip" => Target::Destination,
                _ => return Err(value.fail(Kind::Value, "a target is src_ip or dest_ip")),
            });
        }
        Word::Service => {
            let services = draft.rule.services.get_or_insert_default();
            for part in commas(opt.need()?) {
                let known = header::service(part.str()?).unwrap_or_default();
                services.extend(known);
            }
        }
        Word::Flow => flow(draft, opt)?,
        Word::Flowbits => flowbits(draft, opt.need()?)?,
        Word::Xbits => xbits(draft, opt.need()?)?,
        Word::Hostbits => hostbits(draft, opt.need()?)?,
        Word::Flowint => flowint(draft, opt.need()?)?,
        Word::NoAlert => {
            opt.bare()?;
            draft.rule.silent = true;
        }
        Word::Threshold => {
            draft.rule.threshold = Some(files::threshold(opt.need()?, None)?);
            if draft.rule.detection_filter.is_some() {
                return Err(both_counts(opt));
            }
        }
        Word::DetectionFilter => {
            let kind = Some(ThresholdKind::Filter);
            draft.rule.detection_filter = Some(files::threshold(opt.need()?, kind)?);
            if draft.rule.threshold.is_some() {
                return Err(both_counts(opt));
            }
        }
        Word::StreamSize => stream_size(draft, opt.need()?)?,
        Word::FlowAge => {
            let span = span(u32::MAX.into())?;
            draft.rule.packet.push(PacketCondition::FlowAge(span));
        }
        Word::FlowPackets | Word::FlowBytes => {
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
            flow_count(draft, word == Word::FlowPackets, side, rest.trim())?;
        }
        Word::FlowPacketsToServer => flow_count(draft, true, 0, opt.need()?)?,
        Word::FlowPacketsToClient => flow_count(draft, true, 1, opt.need()?)?,
        Word::FlowBytesToServer => flow_count(draft, false, 0, opt.need()?)?,
        Word::FlowBytesToClient => flow_count(draft, false, 1, opt.need()?)?,
        Word::AppLayerProtocol => {
            let (value, negated) = opt.need()?.negation();
            let apps = match value.bytes {
                // Of no protocol that is told.
                b"failed" => Some(vec![App::Failed]),
                _ => header::apps(value.str()?),
            };
            let Some(apps) = apps else {
                let reason = format!("`{}` is no protocol that is told here", value.lossy());
                return Err(value.fail(Kind::Unsupported, reason));
            };
            let apps = apps.into_iter().map(|app| (app, negated));
            draft.rule.apps.extend(apps);
        }
        Word::AppLayerEvent => {
            let value = opt.need()?.str()?;
            let (app, event) = value.split_once('.').unwrap_or(("", value));
            let event = PacketCondition::AppEvent(app.to_owned(), event.to_owned());
            draft.rule.packet.push(event);
        }
        Word::DecodeEvent => {
            let event = format!("decoder.{}", name(opt.need()?)?);
            draft.packet(PacketCondition::Event(event), opt.whole)?;
        }
        Word::StreamEvent => {
            let event = format!("stream.{}", name(opt.need()?)?);
            draft.rule.packet.push(PacketCondition::Event(event));
        }
        Word::IpReputation => iprep(draft, opt.need()?, context)?,
        Word::Pcre | Word::Regex => pcre(draft, opt, word == Word::Regex, context)?,
        Word::IsDataAt => {
            let condition = bytes::is_data_at(opt.need()?)?;
            reading(draft, condition, opt)?;
        }
        Word::ByteTest => {
            let condition = bytes::byte_test(opt.need()?)?;
            reading(draft, condition, opt)?;
        }
        Word::ByteJump => {
            let condition = bytes::byte_jump(opt.need()?)?;
            reading(draft, condition, opt)?;
        }
        Word::ByteExtract => {
            let condition = bytes::byte_extract(opt.need()?)?;
            reading(draft, condition, opt)?;
        }
        Word::ByteMath => {
            let condition = bytes::byte_math(opt.need()?)?;
            reading(draft, condition, opt)?;
        }
        Word::Base64Decode => {
            let decode = bytes::base64(opt.value, false, dialect)?;
            let part = draft.place(decode.relative);
            draft.add(part, Condition::Base64Decode(decode), opt.whole)?;
        }
        Word::Base64Data => {
            opt.bare()?;
            let decodes = |c: &Condition| matches!(c, Condition::Base64Decode(_));
            let found = draft
                .parts
                .iter()
                .rposition(|p| p.items.iter().any(|i| decodes(&i.condition)));
            let Some(part) = found else {
                let reason = "there is no base64_decode before this";
                return Err(opt.whole.fail(Kind::Syntax, reason));
            };
            draft.leave()?;
            draft.add(part, Condition::Base64Data, opt.whole)?;
            draft.parts[part].decoded = true;
            draft.current = Some(part);
            draft.last = None;
        }
        Word::Size => {
            let part = in_buffer(draft, opt)?;
            let size = span(u64::MAX)?;
            draft.add(part, Condition::Size(size), opt.whole)?;
        }
        Word::BufferLength => {
            let parts = commas(opt.need()?);
            if let Some(extra) = parts.get(1) {
                let reason = "a length relative to the place of matching is not supported";
                return Err(extra.fail(Kind::Unsupported, reason));
            }
            let size = range(parts[0], u64::from(u16::MAX), dialect)?;
            let part = draft.place(false);
            draft.add(part, Condition::Size(size), opt.whole)?;
        }
        Word::UriLength => {
            let parts = commas(opt.need()?);
            let raw = match parts.get(1).map(|p| p.bytes) {
                None | Some(b"norm") => false,
                Some(b"raw") => true,
                Some(_) => {
                    return Err(parts[1].fail(Kind::Value, "only `norm` and `raw` are possible"));
                }
            };
            let size = range(parts[0], u64::from(u16::MAX), dialect)?;
            let buffer = if raw {
                Buffer::HttpUriRaw
            } else {
                Buffer::HttpUri
            };
            let part = draft.part_of(buffer);
            draft.add(part, Condition::Size(size), opt.whole)?;
        }
        Word::Absent => {
            let or_else = match opt.value {
                None => false,
                Some(value) if value.is("or_else") => true,
                Some(value) => return Err(value.fail(Kind::Value, "only `or_else` is possible")),
            };
            let part = in_buffer(draft, opt)?;
            if !draft.parts[part].items.is_empty() {
                let reason = "absent comes first behind its buffer";
                return Err(opt.whole.fail(Kind::Conflict, reason));
            }
            draft.add(part, Condition::Absent(or_else), opt.whole)?;
        }
        Word::Dataset => dataset(draft, opt, context)?,
        Word::DotPrefix => transform(draft, opt, Transform::DotPrefix)?,
        Word::Lowercase => transform(draft, opt, Transform::Lowercase)?,
        Word::Uppercase => transform(draft, opt, Transform::Uppercase)?,
        Word::StripWhitespace => transform(draft, opt, Transform::StripWhitespace)?,
        Word::CompressWhitespace => transform(draft, opt, Transform::CompressWhitespace)?,
        Word::UrlDecode => transform(draft, opt, Transform::UrlDecode)?,
        Word::ToMd5 => transform(draft, opt, Transform::Md5)?,
        Word::ToSha1 => transform(draft, opt, Transform::Sha1)?,
        Word::ToSha256 => transform(draft, opt, Transform::Sha256)?,
        Word::HeaderLowercase => transform(draft, opt, Transform::HeaderLowercase)?,
        Word::StripPseudoHeaders => transform(draft, opt, Transform::StripPseudoHeaders)?,
        Word::Domain => transform(draft, opt, Transform::Domain)?,
        Word::Tld => transform(draft, opt, Transform::Tld)?,
        Word::Xor => {
            let key = opt.need()?.unquoted()?;
            let mut bytes = Vec::new();
            for pair in key.bytes.chunks(2) {
                let digits = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2);
                let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
                let reason = "a key is pairs of hexadecimal digits";
                bytes.push(byte.ok_or_else(|| key.fail(Kind::Value, reason))?);
            }
            change(draft, opt, Transform::Xor(bytes))?;
        }
        Word::PcreXform => {
            let pattern = opt.need()?.unquoted()?;
            let pcre = expression(escape_bytes(pattern.bytes));
            let compiled = context.expressions.of(&pcre);
            let compiled = compiled.map_err(|e| pattern.fail(Kind::Expression, e.to_string()))?;
            if compiled.groups() != 1 {
                let reason = "the expression must have one capture";
                return Err(pattern.fail(Kind::Value, reason));
            }
            change(draft, opt, Transform::Pcre(pcre.pattern))?;
        }
        Word::FromBase64 => {
            let decode = bytes::base64(opt.value, true, dialect)?;
            change(draft, opt, Transform::Base64(decode))?;
        }
        Word::PayloadSize => {
            let size = span(u64::from(u16::MAX))?;
            draft.packet(PacketCondition::PayloadSize(size), opt.whole)?;
        }
        Word::Ttl => {
            let ttl = span(255)?;
            draft.packet(PacketCondition::Ttl(ttl), opt.whole)?;
        }
        Word::Tos => {
            // Hexadecimal is written `x10`.
            let (value, negated) = opt.need()?.negation();
            let n = match value.strip("x") {
                Some(hex) => u8::from_str_radix(hex.str()?, 16)
                    .map_err(|_| value.fail(Kind::Value, "not a hexadecimal number"))?,
                None => value.number(0, 255)? as u8,
            };
            let tos = Range {
                low: n.into(),
                high: n.into(),
                negated,
            };
            draft.packet(PacketCondition::Tos(tos), opt.whole)?;
        }
        Word::Id => {
            let value = opt.need()?.unquoted()?;
            let id = range(value, u64::from(u16::MAX), dialect)?;
            draft.packet(PacketCondition::Id(id), opt.whole)?;
        }
        Word::IpProtocol => {
            let protocol = ip_protocol(opt.need()?.unquoted()?, dialect)?;
            draft.rule.packet.push(PacketCondition::Protocol(protocol));
        }
        Word::FragmentBits => {
            let letters = &[(b'M', 1), (b'D', 2), (b'R', 4)];
            let (bits, mode) = bits(opt.need()?, letters)?;
            draft.packet(PacketCondition::FragmentBits { bits, mode }, opt.whole)?;
        }
        Word::FragmentOffset => {
            let offset = span(u64::from(u16::MAX))?;
            draft.packet(PacketCondition::FragmentOffset(offset), opt.whole)?;
        }
        Word::IpOptions => {
            let value = opt.need()?;
            let word = value.str()?;
            if !IP_OPTIONS.contains(&word) {
                let reason = format!("an option is one of {}", IP_OPTIONS.join(", "));
                return Err(value.fail(Kind::Value, reason));
            }
            let condition = PacketCondition::IpOption(word.to_owned());
            draft.packet(condition, opt.whole)?;
        }
        Word::Flags => {
            let parts = commas(opt.need()?);
            let (bits_, mode) = bits(parts[0], TCP_FLAGS)?;
            let ignored = match parts.get(1).map(|p| (p, bits(*p, TCP_FLAGS))) {
                None => 0,
                Some((_, Ok((ignored, BitsMode::Exact)))) => ignored,
                Some((_, Err(problem))) => return Err(problem),
                Some((part, Ok(_))) => {
                    let reason = "`+ * !` belong to the flags, not to those ignored";
                    return Err(part.fail(Kind::Syntax, reason));
                }
            };
            let condition = PacketCondition::Flags {
                bits: bits_,
                ignored,
                mode,
            };
            draft.packet(condition, opt.whole)?;
        }
        Word::Sequence => {
            let n = opt.need()?.number(0, u32::MAX.into())? as u32;
            draft.packet(PacketCondition::Sequence(n), opt.whole)?;
        }
        Word::Acknowledgement => {
            let n = opt.need()?.number(0, u32::MAX.into())? as u32;
            draft.packet(PacketCondition::Acknowledgement(n), opt.whole)?;
        }
        Word::Window => {
            let window = span(u64::from(u16::MAX))?;
            draft.packet(PacketCondition::Window(window), opt.whole)?;
        }
        Word::Mss => {
            let mss = span(u64::from(u16::MAX))?;
            draft.packet(PacketCondition::Mss(mss), opt.whole)?;
        }
        Word::IcmpType => {
            let kind = span(255)?;
            draft.packet(PacketCondition::IcmpType(kind), opt.whole)?;
        }
        Word::IcmpCode => {
            let code = span(255)?;
            draft.packet(PacketCondition::IcmpCode(code), opt.whole)?;
        }
        Word::IcmpId => {
            let n = opt.need()?.unquoted()?.number(0, 65535)? as u16;
            draft.packet(PacketCondition::IcmpId(n), opt.whole)?;
        }
        Word::IcmpSequence => {
            let n = opt.need()?.unquoted()?.number(0, 65535)? as u16;
            draft.packet(PacketCondition::IcmpSequence(n), opt.whole)?;
        }
        Word::SameAddress => {
            opt.bare()?;
            draft.packet(PacketCondition::SameAddress, opt.whole)?;
        }
        Word::Vlan => {
            let value = opt.need()?;
            let parts = commas(value);
            let layer = match parts.get(1) {
                None => None,
                Some(p) if p.is("any") => None,
                Some(p) => Some(p.number(0, 2)? as u8),
            };
            let id = range(parts[0], 4095, dialect)?;
            draft.rule.packet.push(PacketCondition::Vlan(layer, id));
        }
        Word::Rpc => {
            let parts = commas(opt.need()?);
            let part = |i: usize| match parts.get(i) {
                None => Ok(None),
                Some(p) if p.is("*") => Ok(None),
                Some(p) => p.number(0, u32::MAX.into()).map(|n| Some(n as u32)),
            };
            let program = parts[0].number(0, u32::MAX.into())? as u32;
            let condition = PacketCondition::Rpc(program, part(1)?, part(2)?);
            draft.packet(condition, opt.whole)?;
        }
        Word::TlsVersion => {
            let value = opt.need()?.unquoted()?;
            let (value, negated) = value.negation();
            let known = ["1.0", "1.1", "1.2", "1.3"];
            if !known.iter().any(|k| value.is(k)) {
                let reason = "a version is 1.0, 1.1, 1.2 or 1.3";
                return Err(value.fail(Kind::Value, reason));
            }
            record(draft, "tls.version", value.lossy(), negated);
        }
        Word::SslVersion => {
            let known = &["sslv2", "sslv3", "tls1.0", "tls1.1", "tls1.2", "tls1.3"];
            alternatives(draft, "ssl_version", opt.need()?, known)?;
        }
        Word::SslState => {
            let known = &[
                "client_hello",
                "server_hello",
                "client_keyx",
                "server_keyx",
                "unknown",
            ];
            alternatives(draft, "ssl_state", opt.need()?, known)?;
        }
        Word::DnsOpcode => number_record(draft, "dns.opcode", opt.need()?)?,
        Word::DnsRcode => number_record(draft, "dns.rcode", opt.need()?)?,
        Word::DnsRrtype => number_record(draft, "dns.rrtype", opt.need()?)?,
        Word::FtpBounce => {
            opt.bare()?;
            record(draft, "ftpbounce", String::new(), false);
        }
        Word::TlsSubject => draft.old_content(Buffer::TlsCertSubject, opt.need()?, false)?,
        Word::TlsIssuer => draft.old_content(Buffer::TlsCertIssuer, opt.need()?, false)?,
        Word::TlsFingerprint => {
            draft.old_content(Buffer::TlsCertFingerprint, opt.need()?, true)?;
        }
        Word::SshProtoVersion => {
            let value = opt.need()?.unquoted()?;
            if value.is("2_compat") {
                let reason = "`2_compat` is not supported: use ssh.proto with pcre";
                return Err(value.fail(Kind::Unsupported, reason));
            }
            draft.old_content(Buffer::SshProto, value, true)?;
        }
        Word::SshSoftwareVersion => draft.old_content(Buffer::SshSoftware, opt.need()?, true)?,
        Word::FileExtension => {
            let value = opt.need()?;
            let (negated, extension) = content::content(value)?;
            let bytes = [b".", extension.as_slice()].concat();
            let part = draft.part_of(Buffer::FileName);
            let mut content = super::parse::plain(bytes, negated);
            (content.nocase, content.ends) = (true, true);
            draft.add(part, Condition::Content(content), value)?;
        }
        Word::Content
        | Word::UriContent
        | Word::Nocase
        | Word::Offset
        | Word::Depth
        | Word::Distance
        | Word::Within
        | Word::StartsWith
        | Word::EndsWith
        | Word::Rawbytes
        | Word::FastPattern
        | Word::Message => {
            return Err(opt.whole.fail(Kind::Syntax, "not expected here"));
        }
    }
    Ok(())
}

fn both_counts(opt: Opt<'_>) -> super::problem::Problem {
    let reason = "threshold and detection_filter exclude each other";
    opt.whole.fail(Kind::Conflict, reason)
}

fn metadata(draft: &mut Draft<'_>, value: Text<'_>) {
    for part in value.split(b',') {
        let words = part.words();
        let Some(key) = words.first() else { continue };
        let rest = part.from(key.len()).trim();
        draft.rule.metadata.push((key.lossy(), rest.lossy()));
    }
}

fn flow<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
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

fn operation(text: Text<'_>) -> Parsed<BitOperation> {
    Ok(match text.bytes {
        b"set" => BitOperation::Set,
        b"unset" => BitOperation::Unset,
        b"toggle" => BitOperation::Toggle,
        b"isset" => BitOperation::IsSet,
        b"isnotset" => BitOperation::IsNotSet,
        _ => {
            let reason = format!(
                "`{}` is none of set, unset, toggle, isset, isnotset",
                text.lossy()
            );
            return Err(text.fail(Kind::Value, reason));
        }
    })
}

fn flowbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") {
        draft.rule.silent = true;
        return match parts.get(1) {
            None => Ok(()),
            Some(extra) => Err(extra.fail(Kind::Syntax, "noalert names no bit")),
        };
    }
    let operation = operation(parts[0])?;
    let Some(names) = parts.get(1).filter(|n| !n.is_empty()) else {
        return Err(value.fail(Kind::Syntax, "the name of a bit is missing"));
    };
    if let Some(group) = parts.get(2) {
        let reason = "groups of bits are not supported";
        return Err(group.fail(Kind::Unsupported, reason));
    }
    let asks = matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet);
    let several = |by: u8| -> Parsed<Vec<String>> {
        let one = |n: Text<'_>| name(n).map(str::to_owned);
        names.split(by).into_iter().map(one).collect()
    };
    let has = |b: u8| names.bytes.contains(&b);
    if has(b'&') {
        // Each of them: a condition, or a change, of its own.
        for name in several(b'&')? {
            draft.rule.bits.push(Bit::Flow {
                operation,
                names: vec![name],
            });
        }
        return Ok(());
    }
    let names = several(b'|')?;
    if names.len() > 1 && !asks {
        let reason = "alternatives are possible with isset and isnotset only";
        return Err(parts[1].fail(Kind::Conflict, reason));
    }
    draft.rule.bits.push(Bit::Flow { operation, names });
    Ok(())
}

fn xbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") && parts.len() == 1 {
        draft.rule.silent = true;
        return Ok(());
    }
    let operation = operation(parts[0])?;
    let [_, name_at, rest @ ..] = &parts[..] else {
        return Err(value.fail(Kind::Syntax, "the form is `operation,name,track WHAT`"));
    };
    let name = name(*name_at)?.to_owned();
    let (mut track, mut expire) = (None, 30);
    for part in rest {
        match part.words()[..] {
            [word, what] if word.is("track") => {
                track = Some(match what.bytes {
                    b"ip_src" => Track::Source,
                    b"ip_dst" => Track::Destination,
                    b"ip_pair" => Track::Pair,
                    b"tx" => {
                        let reason = "bits of transactions are not supported";
                        return Err(what.fail(Kind::Unsupported, reason));
                    }
                    _ => {
                        let reason = "bits are of ip_src, ip_dst or ip_pair";
                        return Err(what.fail(Kind::Value, reason));
                    }
                });
            }
            [word, seconds] if word.is("expire") => {
                if operation != BitOperation::Set && operation != BitOperation::Toggle {
                    draft
                        .notes
                        .push("`expire` matters only where a bit is set".to_owned());
                }
                expire = seconds.number(1, u32::MAX.into())? as u32;
            }
            _ => {
                let reason = format!("`{}` is not known here", part.lossy());
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    let Some(track) = track else {
        return Err(value.fail(Kind::Syntax, "`track` is missing"));
    };
    draft.rule.bits.push(Bit::Host {
        operation,
        name,
        track,
        expire,
    });
    Ok(())
}

fn hostbits(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    if parts[0].is("noalert") && parts.len() == 1 {
        draft.rule.silent = true;
        return Ok(());
    }
    let operation = operation(parts[0])?;
    let Some(name_at) = parts.get(1) else {
        return Err(value.fail(Kind::Syntax, "the name of a bit is missing"));
    };
    let track = match parts.get(2).map(|p| (*p, p.bytes)) {
        None | Some((_, b"src")) => Track::Source,
        Some((_, b"dst")) => Track::Destination,
        Some((at, b"both")) => {
            let reason = "bits of both hosts at once are not supported";
            return Err(at.fail(Kind::Unsupported, reason));
        }
        Some((at, _)) => return Err(at.fail(Kind::Value, "a side is src or dst")),
    };
    draft.rule.bits.push(Bit::Host {
        operation,
        name: name(*name_at)?.to_owned(),
        track,
        expire: 300,
    });
    Ok(())
}

fn flowint(draft: &mut Draft<'_>, value: Text<'_>) -> Parsed<()> {
    let parts = commas(value);
    let [name_at, operator, rest @ ..] = &parts[..] else {
        return Err(value.fail(Kind::Syntax, "the form is `name,operator[,value]`"));
    };
    let counter = name(*name_at)?.to_owned();
    let operator_text = operator.lossy();
    let asks = ["isset", "isnotset", "notset"].contains(&operator_text.as_str());
    let computes = ["+", "-", "=", "<", ">", "<=", ">=", "==", "!="];
    let with = match (asks, rest) {
        (true, []) => None,
        (false, [with]) if computes.contains(&operator_text.as_str()) => {
            let number = with.bytes.first().is_some_and(u8::is_ascii_digit);
            Some(match number {
                true => Number::Is(with.number(0, u32::MAX.into())?),
                false => Number::Variable(name(*with)?.to_owned()),
            })
        }
        _ => {
            let reason = "an operator is `+ - = < > <= >= == !=` with a value, or isset, isnotset";
            return Err(operator.fail(Kind::Value, reason));
        }
    };
    draft.rule.bits.push(Bit::Counter {
        name: counter,
        operator: operator_text,
        value: with,
    });
    Ok(())
}

fn stream_size<'a>(draft: &mut Draft<'a>, value: Text<'a>) -> Parsed<()> {
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
            (side, Range { low, high, negated })
        }
        (Dialect::Snort, [size]) => (StreamSide::Either, range(*size, u32::MAX.into(), dialect)?),
        (Dialect::Snort, [size, at]) => (side(*at)?, range(*size, u32::MAX.into(), dialect)?),
        _ => return Err(value.fail(Kind::Syntax, "the form is `side,operator,number`")),
    };
    let condition = PacketCondition::StreamSize { side, size };
    draft.rule.packet.push(condition);
    Ok(())
}

fn flow_count(draft: &mut Draft<'_>, packets: bool, side: u8, value: Text<'_>) -> Parsed<()> {
    let span = range(value, u64::MAX, draft.dialect)?;
    draft.rule.packet.push(match packets {
        true => PacketCondition::FlowPackets(side, span),
        false => PacketCondition::FlowBytes(side, span),
    });
    Ok(())
}

fn iprep(draft: &mut Draft<'_>, value: Text<'_>, context: &Context<'_>) -> Parsed<()> {
    let parts = commas(value);
    let form = "the form is `side,category,operator,score`";
    let (side, category, rest) = match parts[..] {
        [side, category, operator, score] => (side, category, Some((operator, score))),
        // Suricata 8: `isset` and `isnotset`.
        [_, _, word] if word.is("isset") || word.is("isnotset") => {
            let reason = "isset and isnotset of reputation are not supported";
            return Err(word.fail(Kind::Unsupported, reason));
        }
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
        return Err(category.fail(Kind::File, reason));
    };
    let Some((operator, score)) = rest else {
        return Err(value.fail(Kind::Syntax, form));
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
        value: Range {
            low,
            high,
            negated: false,
        },
    });
    Ok(())
}

/// Names that a condition uses, which must be extracted before it.
fn names_used(condition: &Condition) -> Vec<&Number> {
    match condition {
        Condition::IsDataAt { offset, .. } => vec![offset],
        Condition::ByteTest(t) => vec![&t.read.bytes, &t.read.offset, &t.value],
        Condition::ByteJump(j) => vec![&j.read.bytes, &j.read.offset, &j.post_offset],
        Condition::ByteExtract(e) => vec![&e.read.bytes, &e.read.offset],
        Condition::ByteMath(m) => vec![&m.read.bytes, &m.read.offset, &m.value],
        _ => Vec::new(),
    }
}

/// Adds a condition that reads bytes.
fn reading<'a>(draft: &mut Draft<'a>, condition: Condition, opt: Opt<'a>) -> Parsed<()> {
    for number in names_used(&condition) {
        if let Number::Variable(name) = number
            && !draft.names.contains(name)
        {
            return Err(unknown_name(opt.whole, name));
        }
    }
    let relative = match &condition {
        Condition::IsDataAt { relative, .. } => *relative,
        Condition::ByteTest(t) => t.read.relative,
        Condition::ByteJump(j) => j.read.relative,
        Condition::ByteExtract(e) => e.read.relative,
        Condition::ByteMath(m) => m.read.relative,
        _ => false,
    };
    let new = match &condition {
        Condition::ByteExtract(e) => Some(e.name.clone()),
        Condition::ByteMath(m) => Some(m.name.clone()),
        _ => None,
    };
    if let Some(name) = new {
        draft.names.push(name);
    }
    let part = draft.place(relative);
    draft.add(part, condition, opt.whole)?;
    draft.mover = Some(part);
    Ok(())
}

/// The sticky buffer that an option needs.
fn in_buffer<'a>(draft: &Draft<'a>, opt: Opt<'a>) -> Parsed<usize> {
    draft.current.ok_or_else(|| {
        let reason = format!("`{}` needs a sticky buffer before it", opt.name.lossy());
        opt.whole.fail(Kind::Conflict, reason)
    })
}

fn transform<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, transform: Transform) -> Parsed<()> {
    opt.bare()?;
    change(draft, opt, transform)
}

/// Adds a transform to the sticky buffer: its conditions are then apart from those of the buffer as it is.
fn change<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, transform: Transform) -> Parsed<()> {
    let at = in_buffer(draft, opt)?;
    let part = &draft.parts[at];
    // Conditions of an earlier use of the buffer are none of this one.
    if part.items.iter().any(|i| i.at.start > draft.sticky_at) {
        let reason = "a transform comes before the conditions of its buffer";
        return Err(opt.whole.fail(Kind::Conflict, reason));
    }
    let at = match part.items.is_empty() {
        true => at,
        false => {
            let (buffer, word) = (part.buffer, part.at);
            draft.begin(buffer, word)
        }
    };
    draft.parts[at].transforms.push(transform);
    draft.current = Some(at);
    Ok(())
}

fn expression(pattern: String) -> Pcre {
    Pcre {
        pattern,
        negated: false,
        caseless: false,
        multiline: false,
        dotall: false,
        extended: false,
        anchored: false,
        dollar_end_only: false,
        ungreedy: false,
        relative: false,
        captures: Vec::new(),
    }
}

/// Text stays; in what is not UTF-8 every byte above ASCII becomes an escape, which the library reads as that byte.
fn escape_bytes(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for b in bytes {
        match b.is_ascii() {
            true => out.push(*b as char),
            false => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}

fn pcre<'a>(
    draft: &mut Draft<'a>,
    opt: Opt<'a>,
    hyperscan: bool,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let (value, negated) = opt.need()?.negation();
    let mut parts = commas(value);
    let first = if hyperscan { parts.remove(0) } else { value };
    let inner = first.unquoted()?;
    let inner = match inner.strip("m") {
        Some(rest) if draft.dialect == Dialect::Snort && !inner.bytes.starts_with(b"/") => rest,
        _ => inner,
    };
    let Some(delimiter) = inner
        .bytes
        .first()
        .copied()
        .filter(|b| !b.is_ascii_alphanumeric())
    else {
        return Err(first.fail(Kind::Syntax, "an expression is `\"/.../flags\"`"));
    };
    let end = inner.bytes.iter().rposition(|b| *b == delimiter);
    let Some(end) = end.filter(|e| *e > 0) else {
        return Err(first.fail(Kind::Syntax, "the expression has no closing delimiter"));
    };
    let pattern = inner.part(1..end);
    if pattern.is_empty() {
        return Err(first.fail(Kind::Syntax, "an empty expression"));
    }
    let mut flags = inner.from(end + 1).split(b',').into_iter();
    let mut pcre = expression(escape_bytes(pattern.bytes));
    pcre.negated = negated;
    let letters = flags.next().unwrap_or(inner.from(inner.len()));
    let buffer = pcre_flags(draft, &mut pcre, letters)?;
    pcre.captures = captures(draft, flags)?;
    if hyperscan {
        for part in &parts {
            match part.bytes {
                b"nocase" => pcre.caseless = true,
                b"dotall" => pcre.dotall = true,
                b"multiline" => pcre.multiline = true,
                b"relative" => pcre.relative = true,
                b"fast_pattern" => {
                    let what = "`fast_pattern` of a regular expression has no effect";
                    draft.notes.push(what.to_owned());
                }
                _ => {
                    let reason = format!("`{}` is not known here", part.lossy());
                    return Err(part.fail(Kind::Syntax, reason));
                }
            }
        }
    }
    let compiled = context.expressions.of(&pcre).map_err(|e| {
        let at = match e.offset {
            // Offsets hold for the text as written unless bytes were escaped.
            Some(o) if pcre.pattern.len() == pattern.len() => {
                let from = o.min(pattern.len()).saturating_sub(1);
                pattern.part(from..(from + 1).min(pattern.len()))
            }
            _ => pattern,
        };
        at.fail(Kind::Expression, e.reason.clone())
    })?;
    if pcre.captures.len() > compiled.groups() {
        let reason = "more variables than captures";
        return Err(first.fail(Kind::Value, reason));
    }
    let part = match (buffer, draft.current) {
        (Some((buffer, at)), Some(current)) if draft.parts[current].buffer != buffer => {
            let reason = format!(
                "the flag is for {} while {} is in force",
                buffer.name(),
                draft.parts[current].buffer.name()
            );
            return Err(at.fail(Kind::Conflict, reason));
        }
        (Some((buffer, _)), None) => draft.part_of(buffer),
        _ => draft.place(false),
    };
    draft.add(part, Condition::Pcre(pcre), opt.whole)?;
    draft.mover = Some(part);
    Ok(())
}

fn pcre_flags<'a>(
    draft: &mut Draft<'a>,
    pcre: &mut Pcre,
    letters: Text<'a>,
) -> Parsed<Option<(Buffer, Text<'a>)>> {
    let mut buffer: Option<(Buffer, Text<'a>)> = None;
    for (i, letter) in letters.bytes.iter().enumerate() {
        let at = letters.part(i..i + 1);
        let moved = match letter {
            b'i' => {
                pcre.caseless = true;
                continue;
            }
            b'm' => {
                pcre.multiline = true;
                continue;
            }
            b's' => {
                pcre.dotall = true;
                continue;
            }
            b'x' => {
                pcre.extended = true;
                continue;
            }
            b'A' => {
                pcre.anchored = true;
                continue;
            }
            b'E' => {
                pcre.dollar_end_only = true;
                continue;
            }
            b'G' => {
                pcre.ungreedy = true;
                continue;
            }
            b'R' => {
                pcre.relative = true;
                continue;
            }
            b'O' => {
                let what = "the flag `O` of an expression has no effect: limits hold for all";
                draft.notes.push(what.to_owned());
                continue;
            }
            // Bytes as they are: the payload has no other.
            b'B' => continue,
            _ if draft.dialect == Dialect::Snort => {
                let reason = format!("`{}` is no flag of an expression", at.lossy());
                return Err(at.fail(Kind::Value, reason));
            }
            b'U' => Buffer::HttpUri,
            b'I' => Buffer::HttpUriRaw,
            b'P' => Buffer::HttpRequestBody,
            b'Q' => Buffer::HttpResponseBody,
            b'H' => Buffer::HttpHeader,
            b'D' => Buffer::HttpHeaderRaw,
            b'M' => Buffer::HttpMethod,
            b'C' | b'K' => Buffer::HttpCookie,
            b'S' => Buffer::HttpStatusCode,
            b'Y' => Buffer::HttpStatusMessage,
            b'V' => Buffer::HttpUserAgent,
            b'W' => Buffer::HttpHost,
            b'Z' => Buffer::HttpHostRaw,
            _ => {
                let reason = format!("`{}` is no flag of an expression", at.lossy());
                return Err(at.fail(Kind::Value, reason));
            }
        };
        if let Some((before, _)) = buffer
            && before != moved
        {
            let reason = "two flags for different buffers";
            return Err(at.fail(Kind::Conflict, reason));
        }
        buffer = Some((moved, at));
    }
    Ok(buffer)
}

/// `flow:name`, `pkt:name` behind the flags.
fn captures<'a>(draft: &Draft<'a>, parts: impl Iterator<Item = Text<'a>>) -> Parsed<Vec<String>> {
    let mut captures = Vec::new();
    for part in parts {
        let good = part.strip("flow:").or_else(|| part.strip("pkt:"));
        match good {
            Some(rest) if draft.dialect == Dialect::Suricata => {
                name(rest)?;
                captures.push(part.lossy());
            }
            _ => {
                let reason = "a variable is `flow:NAME` or `pkt:NAME`";
                return Err(part.fail(Kind::Syntax, reason));
            }
        }
    }
    Ok(captures)
}

fn ip_protocol(text: Text<'_>, dialect: Dialect) -> Parsed<Range> {
    let named = |t: Text<'_>| {
        let word = t.lossy().to_ascii_lowercase();
        IP_PROTOCOLS
            .iter()
            .find(|(n, _)| *n == word)
            .map(|(_, p)| u64::from(*p))
    };
    let (value, negated) = text.negation();
    match named(value) {
        Some(n) => Ok(Range {
            low: n,
            high: n,
            negated,
        }),
        None => range(text, 255, dialect),
    }
}

fn record(draft: &mut Draft<'_>, keyword: &str, value: String, negated: bool) {
    let condition = PacketCondition::Record(keyword.to_owned(), value, negated);
    draft.rule.packet.push(condition);
}

/// Words with commas or bars between them, all negated or none.
fn alternatives(
    draft: &mut Draft<'_>,
    keyword: &str,
    value: Text<'_>,
    known: &[&str],
) -> Parsed<()> {
    let mut words = Vec::new();
    let mut negations = HashSet::new();
    for part in value.split(b',').into_iter().flat_map(|p| p.split(b'|')) {
        let (part, negated) = part.negation();
        let word = part.lossy().to_ascii_lowercase();
        if !known.contains(&word.as_str()) {
            let reason = format!("`{word}` is none of {}", known.join(", "));
            return Err(part.fail(Kind::Value, reason));
        }
        words.push(word);
        negations.insert(negated);
    }
    if negations.len() > 1 {
        let reason = "either all alternatives are negated or none";
        return Err(value.fail(Kind::Unsupported, reason));
    }
    record(draft, keyword, words.join("|"), negations.contains(&true));
    Ok(())
}

/// An exact number of a transaction's record.
fn number_record(draft: &mut Draft<'_>, keyword: &str, value: Text<'_>) -> Parsed<()> {
    let (value, negated) = value.negation();
    let n = value.number(0, 65535).map_err(|mut e| {
        e.reason = format!("{}; only exact numbers are supported", e.reason);
        e
    })?;
    record(draft, keyword, n.to_string(), negated);
    Ok(())
}

fn dataset<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, context: &Context<'_>) -> Parsed<()> {
    let value = opt.need()?;
    let part = in_buffer(draft, opt)?;
    let parts = commas(value);
    let [operation, name_at, rest @ ..] = &parts[..] else {
        let reason = "the form is `isset,NAME,type TYPE,load FILE`";
        return Err(value.fail(Kind::Syntax, reason));
    };
    let negated = match operation.bytes {
        b"isset" => false,
        b"isnotset" => true,
        b"set" | b"unset" => {
            let reason = "datasets do not change while the sensor runs";
            return Err(operation.fail(Kind::Unsupported, reason));
        }
        _ => return Err(operation.fail(Kind::Value, "only isset and isnotset are possible")),
    };
    let (mut kind, mut file) = (None, None);
    for field in rest {
        match field.words()[..] {
            [word, what] if word.is("type") => kind = Some(what),
            [word, what] if word.is("load") => file = Some(what),
            // Sizes of the tables of another implementation.
            [word, _] if word.is("memcap") || word.is("hashsize") => {
                let what = format!("`{}` of a dataset has no effect", word.lossy());
                draft.notes.push(what);
            }
            [word, ..] if word.is("save") || word.is("state") => {
                let reason = "datasets are not written";
                return Err(word.fail(Kind::Unsupported, reason));
            }
            _ => {
                let reason = format!("`{}` is not known here", field.lossy());
                return Err(field.fail(Kind::Syntax, reason));
            }
        }
    }
    let missing = |what: &str| value.fail(Kind::Syntax, format!("`{what}` is missing"));
    let kind = kind.ok_or_else(|| missing("type"))?;
    let file = file.ok_or_else(|| missing("load"))?;
    let text = dataset_file(file, context.datasets)?;
    let mut members = HashSet::new();
    for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let member = match kind.bytes {
            b"string" => decode_base64(line),
            b"md5" => decode_hex(line, 16),
            b"sha256" => decode_hex(line, 32),
            b"ipv4" => std::str::from_utf8(line)
                .ok()
                .and_then(|l| l.parse::<std::net::Ipv4Addr>().ok())
                .map(|a| a.octets().to_vec()),
            _ => {
                let reason = format!("the type `{}` is not supported", kind.lossy());
                return Err(kind.fail(Kind::Unsupported, reason));
            }
        };
        let Some(member) = member else {
            let reason = format!("line {number} of the file is no {}", kind.lossy());
            return Err(file.fail(Kind::File, reason));
        };
        members.insert(member);
    }
    let dataset = Dataset {
        name: name(*name_at)?.to_owned(),
        negated,
        members,
    };
    let condition = Condition::Dataset(Arc::new(dataset));
    draft.add(part, condition, opt.whole)?;
    Ok(())
}

/// The bytes of a file that a rule names; below the folder of datasets, for rules come from elsewhere.
fn dataset_file(file: Text<'_>, folder: Option<&Path>) -> Parsed<Vec<u8>> {
    let path = Path::new(file.str()?);
    let below = path
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !below {
        let reason = "a rule may name files below the folder of datasets only";
        return Err(file.fail(Kind::File, reason));
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
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (body.len() % 4 != 1 && bits == 0).then_some(out)
}

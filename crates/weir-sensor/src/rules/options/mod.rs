//! What each keyword does to the draft, apart from contents and buffers: one arm for each, or the name of the function that is about its subject.

mod bits;
mod dataset;
mod flow;
mod packet;
mod pcre;
mod reading;
mod record;
mod requires;
mod transform;

use crate::app;
use crate::buffer::Buffer;
use crate::event::{self, Event};
use crate::packet::Direction::{ToClient, ToServer};
use crate::rules::keywords::Word;
use crate::rules::model::{
    AlertTarget, Condition, Content, FileStore, PacketCondition, Range, StoreScope, ThresholdKind,
    Transform,
};
use crate::rules::parse::{Context, Draft};
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::{bits, name, quoted, range};
use crate::rules::{bytes, content, files, header};

use self::bits::{config, flowbits, flowint, hostbits, xbits};
pub(crate) use self::dataset::configure;
use self::dataset::{datarep, dataset, file_sums};
use self::flow::{app_protocol, flow, flow_count, flow_counts, iprep, stream_size};
use self::packet::ip_protocol;
use self::pcre::pcre;
use self::reading::{absent, base64_data, buffer_length, reading, uri_length};
pub(super) use self::record::fact;
use self::record::{alternatives, record};
use self::requires::requires;
use self::transform::{change, pcre_transform, transform, xor};

/// The note of a rule that asks for an event which nothing raises.
fn unraised(event: &str) -> Option<String> {
    event::is_unraised(event).then(|| format!("nothing raises `{event}`: the rule never matches"))
}

/// `filestore`, `filestore:direction`, `filestore:direction,scope`: the rule is about files, and they are written out.
fn files_out<'a>(draft: &mut Draft<'a>, opt: Opt<'a>, stores: bool) -> Parsed<()> {
    let mut store = FileStore {
        sides: None,
        scope: StoreScope::File,
    };
    if let Some(value) = opt.value {
        let parts = commas(value);
        let [side, scope @ ..] = &parts[..] else {
            return Err(value.fail(Kind::Syntax, "a direction is expected"));
        };
        store.sides = Some(match side.bytes {
            b"request" | b"to_server" => [true, false],
            b"response" | b"to_client" => [false, true],
            b"both" => [true, true],
            _ => {
                let reason = "a direction is request, to_server, response, to_client or both";
                return Err(side.fail(Kind::Value, reason));
            }
        });
        store.scope = match scope {
            [] => StoreScope::File,
            [scope] if scope.is("file") => StoreScope::File,
            [scope] if scope.is("tx") => StoreScope::Transaction,
            [scope] if scope.is("ssn") || scope.is("flow") => StoreScope::Flow,
            [scope, ..] => return Err(scope.fail(Kind::Value, "a scope is file, tx, ssn or flow")),
        };
    }
    draft.rule.store = Some(store);
    if !stores {
        let note = "`filestore`: files are not stored, the output `file-store` is not enabled";
        draft.notes.push(note.to_owned());
    }
    let any = Range::new(0, u64::MAX, false);
    draft.rule.packet.push(PacketCondition::FileSize(any, None));
    Ok(())
}

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
                b"src_ip" => AlertTarget::Source,
                b"dest_ip" => AlertTarget::Destination,
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
        Word::Config => config(draft, opt.need()?)?,
        Word::NoAlert => {
            opt.bare()?;
            draft.rule.silent = true;
        }
        Word::Bypass => {
            opt.bare()?;
            draft.rule.bypass = true;
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
        Word::FlowPackets | Word::FlowBytes => flow_counts(draft, word == Word::FlowPackets, opt)?,
        Word::FlowPacketsToServer => flow_count(draft, true, 0, opt.need()?)?,
        Word::FlowPacketsToClient => flow_count(draft, true, 1, opt.need()?)?,
        Word::FlowBytesToServer => flow_count(draft, false, 0, opt.need()?)?,
        Word::FlowBytesToClient => flow_count(draft, false, 1, opt.need()?)?,
        Word::AppLayerProtocol => app_protocol(draft, opt)?,
        Word::AppLayerState => flow::app_state(draft, opt)?,
        Word::AppLayerEvent => {
            let value = opt.need()?.str()?;
            let condition = match value.split_once('.') {
                Some((app, event)) => app::event(app, event).map(|found| {
                    if !found.raised {
                        let note = format!("nothing raises `{value}`: the rule never matches");
                        draft.notes.push(note);
                    }
                    PacketCondition::AppEvent(found.app.to_owned(), found.event.to_owned())
                }),
                // Of a flow rather than of a transaction.
                None => {
                    Event::stream(value).map(|_| PacketCondition::Event(format!("stream.{value}")))
                }
            };
            let unknown = || {
                opt.whole
                    .fail(Kind::Value, format!("no parser reports `{value}`"))
            };
            draft.rule.packet.push(condition.ok_or_else(unknown)?);
        }
        Word::DecodeEvent => {
            let event = format!("decoder.{}", name(opt.need()?)?);
            draft.notes.extend(unraised(&event));
            draft.packet(PacketCondition::Event(event), opt.whole)?;
        }
        Word::StreamEvent => {
            let event = format!("stream.{}", name(opt.need()?)?);
            draft.notes.extend(unraised(&event));
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
        Word::Asn1 => {
            let condition = reading::asn1(opt)?;
            reading(draft, condition, opt)?;
        }
        Word::Base64Decode => {
            let decode = bytes::base64(opt.value, false, dialect)?;
            let part = draft.place(decode.relative);
            draft.add(part, Condition::Base64Decode(decode), opt.whole)?;
        }
        Word::Base64Data => base64_data(draft, opt)?,
        Word::Size => {
            let part = in_buffer(draft, opt)?;
            let size = span(u64::MAX)?;
            draft.add(part, Condition::Size(size), opt.whole)?;
        }
        Word::BufferLength => buffer_length(draft, opt)?,
        Word::UriLength => uri_length(draft, opt)?,
        Word::Absent => absent(draft, opt)?,
        Word::Dataset => dataset(draft, opt, context)?,
        Word::Datarep => datarep(draft, opt, context)?,
        Word::FileMd5 => file_sums(draft, opt, context, ("md5", 16))?,
        Word::FileSha1 => file_sums(draft, opt, context, ("sha1", 20))?,
        Word::FileSha256 => file_sums(draft, opt, context, ("sha256", 32))?,
        Word::Entropy => reading::entropy(draft, opt)?,
        Word::Subslice => change(draft, opt, reading::subslice(opt)?)?,
        Word::Gunzip => change(draft, opt, reading::inflate(opt, true)?)?,
        Word::Inflate => change(draft, opt, reading::inflate(opt, false)?)?,
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
        Word::Xor => xor(draft, opt)?,
        Word::PcreXform => pcre_transform(draft, opt, context)?,
        Word::Tag => flow::tag(draft, opt)?,
        Word::Lua => transform::script(draft, opt, context)?,
        Word::LuaTransform => transform::lua_transform(draft, opt, context)?,
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
        Word::Tos => packet::tos(draft, opt)?,
        Word::Id => {
            let value = opt.need()?.unquoted()?;
            let id = range(value, u64::from(u16::MAX), dialect)?;
            draft.packet(PacketCondition::Id(id), opt.whole)?;
        }
        Word::IpProtocol => {
            let protocol = ip_protocol(opt.need()?.unquoted()?, dialect)?;
            draft.rule.packet.push(PacketCondition::Protocol(protocol));
        }
        Word::Version => packet::version(draft, opt)?,
        Word::Checksum => packet::checksum(draft, opt)?,
        Word::FragmentBits => {
            let letters = &[(b'M', 1), (b'D', 2), (b'R', 4)];
            let (bits, mode) = bits(opt.need()?, letters)?;
            draft.packet(PacketCondition::FragmentBits { bits, mode }, opt.whole)?;
        }
        Word::FragmentOffset => {
            let offset = span(u64::from(u16::MAX))?;
            draft.packet(PacketCondition::FragmentOffset(offset), opt.whole)?;
        }
        Word::IpOptions => packet::ip_options(draft, opt)?,
        Word::Flags => packet::flags(draft, opt)?,
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
        Word::IgmpType => {
            let kind = span(255)?;
            draft.packet(PacketCondition::IgmpType(kind), opt.whole)?;
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
        Word::Vlan => packet::vlan(draft, opt)?,
        Word::Rpc => packet::rpc(draft, opt)?,
        Word::TlsVersion => {
            let value = opt.need()?.unquoted()?;
            let (value, negated) = value.negation();
            let known = ["1.0", "1.1", "1.2", "1.3"];
            let number = value
                .strip("0x")
                .and_then(|hex| u16::from_str_radix(hex.str().ok()?, 16).ok());
            if number.is_none() && !known.iter().any(|k| value.is(k)) {
                let reason = "a version is 1.0, 1.1, 1.2, 1.3, or a number as 0x7f12";
                return Err(value.fail(Kind::Value, reason));
            }
            record(draft, "tls.version", value.lossy(), negated);
        }
        Word::SslVersion => {
            let known = &["sslv2", "sslv3", "tls1.0", "tls1.1", "tls1.2", "tls1.3"];
            alternatives(draft, "ssl_version", opt.need()?, known)?;
        }
        Word::DceInterface => record::interface(draft, opt)?,
        Word::Modbus => record::modbus(draft, opt)?,
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
        Word::Alert => {
            opt.bare()?;
            draft.rule.alerts = true;
            draft.rule.silent &= draft.rule.firewall.is_none();
        }
        Word::Requires => requires(opt.need()?, dialect, context.settings.features)?,
        Word::WindowScale => {
            let scale = span(255)?;
            draft.packet(PacketCondition::WindowScale(scale), opt.whole)?;
        }
        Word::Mtu => {
            let mtu = span(u32::MAX.into())?;
            draft.packet(PacketCondition::Mtu(mtu), opt.whole)?;
        }
        Word::Frame => draft.frame(opt)?,
        Word::TlsStore => {
            opt.bare()?;
            draft.rule.certificates = true;
            if !context.settings.certificates {
                let note = "`tls.store`: certificates are not stored, the output `tls-store` is not enabled";
                draft.notes.push(note.to_owned());
            }
        }
        Word::FileStore => files_out(draft, opt, context.settings.stores)?,
        Word::FileSize => {
            let value = opt.need()?;
            let parts = commas(value);
            // A rule about both directions says whose files it means.
            let (way, size) = match &parts[..] {
                [way, size] if draft.whole && way.is("to_client") => (Some(ToClient), *size),
                [way, size] if draft.whole && way.is("to_server") => (Some(ToServer), *size),
                _ => (None, value),
            };
            let size = range(size, u64::MAX, dialect)?;
            draft.rule.packet.push(PacketCondition::FileSize(size, way));
        }
        Word::VlanLayers => {
            let layers = span(3)?;
            draft.rule.packet.push(PacketCondition::VlanLayers(layers));
        }
        Word::CertificateExpired | Word::CertificateValid => {
            opt.bare()?;
            let valid = word == Word::CertificateValid;
            draft
                .rule
                .packet
                .push(PacketCondition::CertificateValid(valid));
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
        Word::FileMagic => {
            draft.old_content(Buffer::FileMagic, opt.need()?, true)?;
            // Analyses show it as it is looked for.
            draft.lower_last();
        }
        Word::FileExtension => {
            let value = opt.need()?;
            let (negated, extension) = content::content(value)?;
            let bytes = [b".", extension.as_slice()].concat();
            let part = draft.part_of(Buffer::FileName);
            let mut content = Content::new(bytes);
            (content.negated, content.nocase, content.ends) = (negated, true, true);
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

/// The sticky buffer that an option needs.
fn in_buffer<'a>(draft: &Draft<'a>, opt: Opt<'a>) -> Parsed<usize> {
    draft.current.ok_or_else(|| {
        let reason = format!("`{}` needs a sticky buffer before it", opt.name.lossy());
        opt.whole.fail(Kind::Conflict, reason)
    })
}

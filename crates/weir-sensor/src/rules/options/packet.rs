//! Options about headers of packets: flags, options, protocols.

use crate::event::Event;
use crate::rules::load::Dialect;
use crate::rules::model::{BitsMode, PacketCondition, Range, VlanLayer};
use crate::rules::parse::Draft;
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::{Opt, commas};
use crate::rules::text::Text;
use crate::rules::values::{bits, range};

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
    "rr", "lsrr", "lsrre", "eol", "nop", "ts", "sec", "ssrr", "satid", "esec", "cipso", "qs",
    "rtralt", "any",
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

pub(super) fn ip_protocol(text: Text<'_>, dialect: Dialect) -> Parsed<Range> {
    let named = |t: Text<'_>| {
        let word = t.lossy().to_ascii_lowercase();
        IP_PROTOCOLS
            .iter()
            .find(|(n, _)| *n == word)
            .map(|(_, p)| u64::from(*p))
    };
    let (value, negated) = text.negation();
    match named(value) {
        Some(n) => Ok(Range::new(n, n, negated)),
        None => range(text, 255, dialect),
    }
}

/// Flags of TCP, and those that are left aside.
pub(super) fn flags<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
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
    Ok(())
}

/// The version of IP.
pub(super) fn version<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?;
    let six = match value.str()?.to_ascii_lowercase().as_str() {
        "ipv4" | "ip4" => false,
        "ipv6" | "ip6" => true,
        _ => return Err(value.fail(Kind::Value, "`ipv4` or `ipv6` is possible")),
    };
    draft.rule.packet.push(PacketCondition::Version(six));
    Ok(())
}

/// Whether a checksum is right.
pub(super) fn checksum<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let (event, six) = match opt.name.str()? {
        "ipv4-csum" => (Event::Ipv4Checksum, false),
        "tcpv4-csum" => (Event::TcpChecksum, false),
        "tcpv6-csum" => (Event::TcpChecksum, true),
        "udpv4-csum" => (Event::UdpChecksum, false),
        "udpv6-csum" => (Event::UdpChecksum, true),
        "icmpv4-csum" => (Event::Icmpv4Checksum, false),
        _ => (Event::Icmpv6Checksum, true),
    };
    let value = opt.need()?;
    let right = match value.str()? {
        "valid" => true,
        "invalid" => false,
        _ => return Err(value.fail(Kind::Value, "`valid` or `invalid` is possible")),
    };
    let condition = PacketCondition::Checksum { event, six, right };
    draft.packet(condition, opt.whole)?;
    Ok(())
}

/// The name of an option of IPv4.
pub(super) fn ip_options<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let value = opt.need()?;
    let word = value.str()?;
    if !IP_OPTIONS.contains(&word) {
        let reason = format!("an option is one of {}", IP_OPTIONS.join(", "));
        return Err(value.fail(Kind::Value, reason));
    }
    let condition = PacketCondition::IpOption(word.to_owned());
    draft.packet(condition, opt.whole)?;
    Ok(())
}

/// The type of service, decimal or hexadecimal.
pub(super) fn tos<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    // Hexadecimal is written `x10`.
    let (value, negated) = opt.need()?.negation();
    let n = match value.strip("x") {
        Some(hex) => u8::from_str_radix(hex.str()?, 16)
            .map_err(|_| value.fail(Kind::Value, "not a hexadecimal number"))?,
        None => value.number(0, 255)? as u8,
    };
    let tos = Range::new(n.into(), n.into(), negated);
    draft.packet(PacketCondition::Tos(tos), opt.whole)?;
    Ok(())
}

/// The number of a tag, and at which depth.
pub(super) fn vlan<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let dialect = draft.dialect;
    let value = opt.need()?;
    let parts = commas(value);
    let layer = match parts.get(1) {
        None => VlanLayer::Any,
        Some(p) if p.is("any") => VlanLayer::Any,
        Some(p) if p.is("all") => VlanLayer::All,
        Some(p) => VlanLayer::At(p.number(-3, 2)? as i8),
    };
    let id = range(parts[0], 4095, dialect)?;
    draft.rule.packet.push(PacketCondition::Vlan(layer, id));
    Ok(())
}

/// Program, version and procedure of a call.
pub(super) fn rpc<'a>(draft: &mut Draft<'a>, opt: Opt<'a>) -> Parsed<()> {
    let parts = commas(opt.need()?);
    let part = |i: usize| match parts.get(i) {
        None => Ok(None),
        Some(p) if p.is("*") => Ok(None),
        Some(p) => p.number(0, u32::MAX.into()).map(|n| Some(n as u32)),
    };
    let program = parts[0].number(0, u32::MAX.into())? as u32;
    let condition = PacketCondition::Rpc(program, part(1)?, part(2)?);
    draft.packet(condition, opt.whole)?;
    Ok(())
}

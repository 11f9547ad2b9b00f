//! Where the conditions of a rule are decided: of the packet, of the payload, of transactions, and after the match.

use crate::app::{self, App, Protocol};
use crate::buffer::{Buffer, Sides};
use crate::packet::Direction;
use crate::rules::keywords::Word;
use crate::rules::{
    Bit, BitOperation, Condition, Dialect, FlowCondition, Group, HeaderProtocol, Hook,
    PacketCondition, Rule, Source, carriers,
};

/// What a condition on a packet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A header of the packet.
    Header,
    /// The size of its payload.
    Size,
    /// Its flow, or its addresses.
    Flow,
    /// An anomaly of the packet or its stream.
    Event,
    /// A transaction.
    Transaction,
}

/// Where a condition is decided.
pub(super) fn place(condition: &PacketCondition) -> Place {
    match condition {
        PacketCondition::PayloadSize(_) => Place::Size,
        PacketCondition::Ttl(_)
        | PacketCondition::Tos(_)
        | PacketCondition::Id(_)
        | PacketCondition::Version(_)
        | PacketCondition::Checksum { .. }
        | PacketCondition::FragmentBits { .. }
        | PacketCondition::FragmentOffset(_)
        | PacketCondition::IpOption(_)
        | PacketCondition::Flags { .. }
        | PacketCondition::Sequence(_)
        | PacketCondition::Acknowledgement(_)
        | PacketCondition::Window(_)
        | PacketCondition::Mss(_)
        | PacketCondition::IcmpType(_)
        | PacketCondition::IcmpCode(_)
        | PacketCondition::IgmpType(_)
        | PacketCondition::IcmpId(_)
        | PacketCondition::IcmpSequence(_)
        | PacketCondition::SameAddress
        | PacketCondition::Vlan(..)
        | PacketCondition::VlanLayers(_)
        | PacketCondition::WindowScale(_)
        | PacketCondition::Mtu(_)
        | PacketCondition::Rpc(..) => Place::Header,
        PacketCondition::Protocol(_)
        | PacketCondition::StreamSize { .. }
        | PacketCondition::FlowAge(_)
        | PacketCondition::FlowPackets(..)
        | PacketCondition::FlowBytes(..)
        | PacketCondition::Reputation { .. }
        | PacketCondition::Application(..)
        | PacketCondition::Hook(Hook::All | Hook::PreFlow | Hook::PreStream | Hook::FlowStart) => {
            Place::Flow
        }
        PacketCondition::Event(_) => Place::Event,
        PacketCondition::AppEvent(..)
        | PacketCondition::Record(..)
        | PacketCondition::Placed(..)
        | PacketCondition::Modbus(_)
        | PacketCondition::NotReached(..)
        | PacketCondition::FileSize(..)
        | PacketCondition::FileSum(..)
        | PacketCondition::CertificateValid(_)
        | PacketCondition::Hook(Hook::Reached(..)) => Place::Transaction,
    }
}

/// A rule with its conditions sorted by where they are decided. Numbers are those of options.
pub(super) struct Lists<'a> {
    pub(super) rule: &'a Rule,
    pub(super) source: &'a Source,
    /// Conditions of packets and flows.
    pub(super) packet: Vec<usize>,
    /// Conditions of transactions that are about no buffer.
    pub(super) transaction: Vec<usize>,
    /// What changes when the rule matches.
    pub(super) post: Vec<usize>,
    /// The application that the rule is about, as records of rules name it; `None`: no single one.
    pub(super) app: Option<&'static str>,
    /// To the server, to the client.
    pub(super) directions: [bool; 2],
    pub(super) dialect: Dialect,
}

impl<'a> Lists<'a> {
    pub(super) fn new(rule: &'a Rule, source: &'a Source, dialect: Dialect) -> Lists<'a> {
        let mut lists = Lists {
            rule,
            source,
            packet: Vec::new(),
            transaction: Vec::new(),
            post: Vec::new(),
            app: None,
            directions: [true, true],
            dialect,
        };
        for (condition, option) in rule.packet.iter().zip(&source.packet) {
            let Some(option) = *option else { continue };
            let to = match place(condition) {
                Place::Transaction => &mut lists.transaction,
                _ => &mut lists.packet,
            };
            if to.last() != Some(&option) {
                to.push(option);
            }
        }
        for (bit, option) in rule.bits.iter().zip(&source.bits) {
            let to = match asks(bit) {
                true => &mut lists.packet,
                false => &mut lists.post,
            };
            if to.last() != Some(option) {
                to.push(*option);
            }
        }
        let only_direction = FlowCondition {
            to_server: rule.flow.to_server,
            ..FlowCondition::default()
        };
        for at in 0..source.options.len() {
            let own = match lists.word(at) {
                Some(Word::Flow) => rule.flow != only_direction,
                Some(Word::AppLayerProtocol) => true,
                _ => false,
            };
            if own && !lists.packet.contains(&at) {
                lists.packet.push(at);
            }
        }
        lists.packet.sort_unstable();
        lists.app = lists.application();
        lists.directions = lists.both_directions();
        lists
    }

    /// The keyword of an option.
    pub(super) fn word(&self, option: usize) -> Option<Word> {
        let option = self.source.options.get(option)?;
        Word::named(&option.name, self.dialect)
    }

    /// The name of an option's keyword, whichever of its names was written.
    pub(super) fn name(&self, option: usize) -> &str {
        if let Some(word) = self.word(option) {
            return word.name();
        }
        let written = self.source.options.get(option);
        let written = written.map_or("", |o| o.name.as_str());
        app::fact(written).map_or(written, |fact| fact.keyword)
    }

    /// Groups of conditions about transactions or files.
    pub(super) fn of_transactions(&self) -> impl Iterator<Item = (usize, &'a Group)> {
        let groups = self.rule.groups.iter().enumerate();
        groups.filter(|(_, g)| is_of_transactions(g.buffer))
    }

    /// The number and the group of conditions about the payload.
    pub(super) fn payload(&self) -> Option<(usize, &'a Group)> {
        let mut groups = self.rule.groups.iter().enumerate();
        groups.find(|(_, g)| g.buffer == Buffer::Payload)
    }

    /// Whether transactions are asked, rather than packets and streams alone.
    pub(super) fn asks_transactions(&self) -> bool {
        !self.transaction.is_empty() || self.of_transactions().next().is_some()
    }

    /// Whether the header lets TCP by.
    pub(super) fn has_tcp(&self) -> bool {
        match self.rule.header.protocol {
            HeaderProtocol::Tcp
            | HeaderProtocol::TcpPacket
            | HeaderProtocol::TcpStream
            | HeaderProtocol::Ip
            | HeaderProtocol::Ipv4
            | HeaderProtocol::Ipv6 => true,
            HeaderProtocol::App => app::named(&self.source.protocol).any(|r| r.carrier.has(true)),
            HeaderProtocol::Udp
            | HeaderProtocol::Icmp
            | HeaderProtocol::Icmpv4
            | HeaderProtocol::Icmpv6
            | HeaderProtocol::Sctp
            | HeaderProtocol::PacketHeader => false,
        }
    }

    /// Whether the header lets UDP by.
    pub(super) fn has_udp(&self) -> bool {
        match self.rule.header.protocol {
            HeaderProtocol::Udp
            | HeaderProtocol::Ip
            | HeaderProtocol::Ipv4
            | HeaderProtocol::Ipv6 => true,
            HeaderProtocol::App => app::named(&self.source.protocol).any(|r| r.carrier.has(false)),
            _ => false,
        }
    }

    /// Applications whose transactions a buffer of this rule is of.
    pub(super) fn carriers(&self, buffer: Buffer) -> Vec<App> {
        let asked = |app: &App| self.rule.apps.contains(&(*app, false));
        let of_rule = || self.rule.apps.iter().filter(|a| !a.1).map(|a| a.0);
        match carriers(buffer) {
            all if all.is_empty() => of_rule().collect(),
            all => all.into_iter().filter(asked).collect(),
        }
    }

    /// Applications that an option about transactions is of: the rule's, else those of its keyword or its event.
    pub(super) fn apps_of(&self, option: usize) -> Vec<App> {
        let of_rule: Vec<App> = self
            .rule
            .apps
            .iter()
            .filter(|a| !a.1)
            .map(|a| a.0)
            .collect();
        if !of_rule.is_empty() {
            return of_rule;
        }
        let keyword = self.name(option);
        if keyword.starts_with("dcerpc.") {
            return carriers(Buffer::DcerpcStub);
        }
        let has = |row: &&Protocol| row.facts.iter().any(|f| f.keyword == keyword);
        if let Some(row) = app::PROTOCOLS.iter().find(has) {
            return vec![row.app];
        }
        let value = self.source.options.get(option).map(|o| o.value.as_str());
        let named = value.and_then(|v| v.split('.').next()).unwrap_or_default();
        match self.word(option) {
            Some(Word::AppLayerEvent) => app::named(named).map(|row| row.app).collect(),
            _ => Vec::new(),
        }
    }

    /// Both versions of HTTP have one name, unless the rule is about one of them.
    fn application(&self) -> Option<&'static str> {
        let header = app::named(&self.source.protocol).map(|r| r.app).collect();
        let buffers = self.of_transactions().map(|(_, g)| carriers(g.buffer));
        let options = self.transaction.iter().map(|at| self.apps_of(*at));
        let mut all = std::iter::once(header).chain(buffers).chain(options);
        let mut apps: Vec<App> = all.find(|apps: &Vec<App>| !apps.is_empty())?;
        let asked = |app: &App| self.rule.apps.contains(&(*app, false));
        if self.rule.apps.iter().any(|(_, negated)| !negated) {
            apps.retain(asked);
        }
        match apps[..] {
            [App::Http1, App::Http2] => Some("http_any"),
            [one] => Some(one.name()),
            _ => None,
        }
    }

    /// The flow's direction, or that of the buffers.
    fn both_directions(&self) -> [bool; 2] {
        let hook = self.rule.packet.iter().find_map(|c| match c {
            PacketCondition::Hook(Hook::Reached(d, _)) => Some(*d == Direction::ToServer),
            _ => None,
        });
        let buffers = self
            .rule
            .groups
            .iter()
            .find_map(|g| match g.buffer.sides() {
                Sides::Request => Some(true),
                Sides::Response => Some(false),
                Sides::Both => None,
            });
        match self.rule.flow.to_server.or(hook).or(buffers) {
            Some(to_server) => [to_server, !to_server],
            None => [true, true],
        }
    }
}

/// Whether a bit is asked rather than changed.
pub(super) fn asks(bit: &Bit) -> bool {
    match bit {
        Bit::Flow { operation, .. }
        | Bit::Host { operation, .. }
        | Bit::Transaction { operation, .. } => {
            matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet)
        }
        Bit::Counter { operator, .. } => !matches!(operator.as_str(), "+" | "-" | "="),
        Bit::Unlog => false,
    }
}

/// Whether a buffer is of transactions or of their files.
pub(super) fn is_of_transactions(buffer: Buffer) -> bool {
    !carriers(buffer).is_empty()
        || matches!(
            buffer,
            Buffer::FileData | Buffer::FileName | Buffer::FileMagic
        )
}

/// The conditions of a group that are about its buffer, and those about what is decoded of it.
pub(super) fn decoded(group: &Group) -> (usize, usize) {
    let all = group.conditions.len();
    let data = |c: &Condition| matches!(c, Condition::Base64Data);
    let at = group.conditions.iter().position(data);
    at.map_or((all, all), |at| (at, at + 1))
}

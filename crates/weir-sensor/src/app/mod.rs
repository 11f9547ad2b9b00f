//! Application protocols: who speaks what, and what is in it. Parsers turn streams and datagrams into transactions, whose buffers rules inspect.
//!
//! [`PROTOCOLS`] lists the rows that stand next to the parsers; a new protocol is a module with a row, a name in `names`, and a line here.

#![warn(clippy::indexing_slicing)]

mod ber;
mod bittorrent;
mod bytes;
mod carry;
mod conversation;
pub(crate) mod dcerpc;
mod dhcp;
mod digest;
mod dnp3;
pub(crate) mod dns;
mod enip;
mod framed;
mod ftp;
mod http;
mod http2;
mod ike;
mod kept;
mod krb5;
mod ldap;
mod limits;
mod lines;
mod magic;
mod mail;
mod mime;
mod modbus;
mod mqtt;
mod names;
pub(crate) mod nfs;
mod ntp;
mod pgsql;
mod pop3;
mod probe;
mod protocol;
mod quic;
mod rdp;
mod recognize;
mod recognized;
mod rfb;
mod sdp;
mod sip;
mod smb;
mod smtp;
mod snmp;
mod ssh;
mod switches;
mod text;
mod tftp;
pub(crate) mod tls;
mod transaction;
mod wanted;
mod websocket;

pub use conversation::Conversation;
pub(crate) use digest::Digests;
pub use digest::Sums;
pub use framed::{Framed, Frames};
pub use http::{HttpWanted, Invalid, PathRules};
pub(crate) use kept::Kept;
pub use limits::Limits;
pub(crate) use magic::{HEAD as MAGIC_HEAD, magic};
pub(crate) use mime::SCHEMES as URL_SCHEMES;
pub use modbus::request::{ModbusAsked, ModbusFunctions, ModbusTable, ModbusWhat};
pub use names::App;
pub use probe::{Ports, Recognized};
pub use protocol::{
    COMMON_HOOKS, Carrier, Fact, NewParser, Parser, Protocol, Start, UNTOLD, Written, both_counter,
};
pub use recognize::Recognizer;
pub use switches::{Switch, Switches};
pub(crate) use text::hex;
pub use transaction::{
    Change, Expected, File, MOST_LIVE, Stage, TOO_MANY, Transaction, Transactions, Upgrade,
};
pub use wanted::{Asked, Said, Wanted};

/// All protocols. Datagrams are of the first one whose probe knows them, and so are streams among equally sure probes.
pub static PROTOCOLS: &[Protocol] = &[
    http::HTTP1,
    http2::HTTP2,
    http2::DOH2,
    dns::DNS,
    dns::MDNS,
    quic::QUIC,
    tls::TLS,
    ssh::SSH,
    // Also the one that events of `dcerpc` are looked up in: before SMB, which has the name as well.
    dcerpc::DCERPC,
    smb::SMB,
    smtp::SMTP,
    ftp::FTP,
    ftp::FTP_DATA,
    pop3::POP3,
    pgsql::PGSQL,
    mail::IMAP,
    dhcp::DHCP,
    ntp::NTP,
    ike::IKE,
    tftp::TFTP,
    snmp::SNMP,
    sip::SIP,
    rfb::RFB,
    recognized::TELNET,
    rdp::RDP,
    ldap::LDAP,
    mqtt::MQTT,
    dnp3::DNP3,
    modbus::MODBUS,
    enip::ENIP,
    krb5::KRB5,
    nfs::NFS,
    websocket::WEBSOCKET,
    bittorrent::BITTORRENT_DHT,
];

/// The row of a protocol; `None`: it is not known yet, or will not be.
pub fn protocol(app: App) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|p| p.app == app)
}

/// The protocols that the header of a rule names: `http` is either version.
pub fn named(word: &str) -> impl Iterator<Item = &'static Protocol> {
    let is = move |p: &&Protocol| p.app.name() == word || p.aliases.contains(&word);
    PROTOCOLS.iter().filter(is)
}

/// An event that a rule may ask for (`app-layer-event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// The protocol.
    pub app: &'static str,
    /// The event.
    pub event: &'static str,
    /// Something raises it: else the rule never matches.
    pub raised: bool,
}

/// The protocol and the event that a rule (`app-layer-event`) names; `None`: there is no such event.
pub fn event(app: &str, event: &str) -> Option<Asking> {
    let row = named(app).find(|p| p.kind.is_some())?;
    let mut older = row.older_events.iter();
    let event = older.find(|(old, _)| *old == event).map_or(event, |o| o.1);
    let raised = row.kind?.events.iter().chain([&TOO_MANY]);
    let unraised = row.unraised_events.iter().map(|name| (false, name));
    let mut known = raised.map(|name| (true, name)).chain(unraised);
    let (raised, event) = known.find(|(_, known)| **known == event)?;
    Some(Asking {
        app: row.app.name(),
        event,
        raised,
    })
}

/// The keyword of a number of transactions, with its protocol.
pub fn fact(keyword: &str) -> Option<&'static Fact> {
    let mut all = PROTOCOLS.iter().flat_map(|p| p.facts);
    all.find(|f| f.keyword == keyword || f.aliases.contains(&keyword))
}

/// A parser of one flow of a protocol, of a stream or of datagrams; `None`: the protocol is recognized, and rules inspect its stream.
pub fn parser(app: App, stream: bool, asked: &Asked) -> Option<Box<dyn Parser>> {
    let start = Start {
        stream,
        asked,
        expected: None,
        upgraded: None,
    };
    Some((protocol(app)?.parser?)(&start))
}

#[cfg(test)]
pub(crate) mod tests;

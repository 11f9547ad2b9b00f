//! Application protocols: who speaks what, and what is in it. Parsers turn streams and datagrams into transactions, whose buffers rules inspect.

mod bytes;
mod conversation;
mod digest;
pub(crate) mod dns;
pub(crate) mod events;
mod ftp;
mod http;
mod mail;
mod mime;
mod quic;
mod recognize;
mod smb;
mod smtp;
mod snmp;
mod ssh;
mod text;
mod tftp;
pub(crate) mod tls;
mod transaction;

pub use conversation::Conversation;
pub use digest::Sums;
pub use http::{HttpWanted, Invalid, PathRules};
pub use recognize::{Ports, Recognized, Recognizer};
pub use transaction::{Change, Expected, File, MOST_LIVE, Transaction, Transactions};

use std::ops::Deref;
use std::sync::Arc;

use crate::buffer::BufferSet;
use crate::packet::Direction;

macro_rules! apps {
    ($($variant:ident: $name:literal;)*) => {
        /// An application protocol.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum App {
            /// Not known yet.
            #[default]
            Unknown,
            /// Not known, and will not be.
            Failed,
            $(#[doc = $name] $variant,)*
        }

        impl App {
            /// All of them.
            pub const ALL: &'static [App] = &[App::Unknown, App::Failed, $(App::$variant,)*];

            /// As rules and EVE name it.
            pub fn name(self) -> &'static str {
                match self {
                    App::Unknown => "unknown",
                    App::Failed => "failed",
                    $(App::$variant => $name,)*
                }
            }

            /// The protocol that a rule's header names.
            pub fn named(word: &str) -> Option<App> {
                Some(match word { $($name => App::$variant,)* _ => return None })
            }
        }
    };
}

apps! {
    Http1: "http";
    Http2: "http2";
    Dns: "dns";
    Tls: "tls";
    Smtp: "smtp";
    Ftp: "ftp";
    FtpData: "ftp-data";
    Ssh: "ssh";
    Smb: "smb";
    Dcerpc: "dcerpc";
    Quic: "quic";
    Imap: "imap";
    Pop3: "pop3";
    Tftp: "tftp";
    Snmp: "snmp";
    Sip: "sip";
    Ntp: "ntp";
    Dhcp: "dhcp";
    Krb5: "krb5";
    Rdp: "rdp";
    Rfb: "rfb";
    Nfs: "nfs";
    Ike: "ike";
    Mqtt: "mqtt";
    Telnet: "telnet";
    Ldap: "ldap";
    Mdns: "mdns";
    Websocket: "websocket";
}

/// What parsers need to know of the rules and the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Buffers that rules inspect; others may be left out.
    pub buffers: BufferSet,
    /// How much of a request's body is kept for inspection, bytes.
    pub request_body: usize,
    /// How much of a response's body.
    pub response_body: usize,
    /// The most that a compressed body may become.
    pub decompressed: usize,
    /// Whether records for the event log are to be filled.
    pub records: bool,
    /// Sums of files.
    pub sums: Sums,
    /// Rules ask for sums: they are decided when files are whole, not when no more of them is inspected.
    pub whole_files: bool,
    /// Rules ask whether a client of TLS has sent its part of the key, which comes long after its hello was decided.
    pub keys: bool,
    /// What records of other protocols are asked for.
    pub said: Said,
}

/// What parsers need to know, with what only one of them needs: a flow of another protocol keeps a copy of the rest.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Of all parsers.
    pub wanted: Wanted,
    /// Of HTTP.
    pub http: Arc<HttpWanted>,
}

impl Deref for Asked {
    type Target = Wanted;

    fn deref(&self) -> &Wanted {
        &self.wanted
    }
}

impl From<Wanted> for Asked {
    /// With what is asked of HTTP where nothing is configured.
    fn from(wanted: Wanted) -> Asked {
        Asked {
            wanted,
            http: Arc::new(HttpWanted::USUAL),
        }
    }
}

/// What records are asked for beyond the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// JA3 and JA3S of TLS.
    pub ja3: bool,
    /// JA4 of TLS.
    pub ja4: bool,
    /// HASSH of SSH.
    pub hassh: bool,
    /// Certificates of TLS, as they are.
    pub certificates: bool,
    /// What hellos of TLS offer and choose.
    pub handshakes: bool,
    /// All header lines of mails that records can have, and sums of subjects.
    pub mail: bool,
    /// Addresses of pages in the texts of mails.
    pub urls: bool,
    /// The longest line of FTP, bytes; 0: the usual.
    pub ftp_line: u32,
}

impl Said {
    /// Everything.
    pub const ALL: Said = Said {
        ja3: true,
        ja4: true,
        hassh: true,
        certificates: true,
        handshakes: true,
        mail: true,
        urls: true,
        ftp_line: 0,
    };
}

/// A parser of one flow. Nothing it is given may panic it; what it cannot understand it counts as an event of the transaction.
pub trait Parser: Send {
    /// The next bytes of a stream in one direction, or one datagram.
    fn data(&mut self, direction: Direction, bytes: &[u8], time: u64, out: &mut Transactions);

    /// So many bytes of a stream were lost.
    fn gap(&mut self, direction: Direction, length: u64, out: &mut Transactions);

    /// The stream has ended in one direction: what waits for more is complete now.
    fn end(&mut self, direction: Direction, out: &mut Transactions);

    /// Memory it holds, bytes, for the cap of all parsers.
    fn memory(&self) -> usize;

    /// Whether the last message of a direction is over and nothing of the next has come. `false` where messages are not told apart.
    fn is_between(&self, _: Direction) -> bool {
        false
    }
}

/// A parser of one flow of a protocol, of a stream or of datagrams; `None`: the protocol is recognized, and rules inspect its stream.
pub fn parser(app: App, stream: bool, wanted: &Asked) -> Option<Box<dyn Parser>> {
    Some(match app {
        App::Http1 => Box::new(http::Http1::new(wanted)),
        App::Dns if stream => Box::new(dns::Dns::of_stream(wanted)),
        App::Dns => Box::new(dns::Dns::new(wanted)),
        App::Tls => Box::new(tls::Tls::new(wanted)),
        App::Smtp => Box::new(smtp::Smtp::new(wanted)),
        App::Ftp => Box::new(ftp::Ftp::new(wanted)),
        App::FtpData => Box::new(ftp::FtpData::new(wanted, None)),
        App::Ssh => Box::new(ssh::Ssh::new(wanted)),
        App::Smb => Box::new(smb::Smb::new(wanted)),
        App::Quic => Box::new(quic::Quic::new(wanted)),
        App::Tftp => Box::new(tftp::Tftp::new(wanted)),
        App::Imap | App::Pop3 => Box::new(mail::Mail::default()),
        App::Snmp => Box::new(snmp::Snmp::new(wanted)),
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests;

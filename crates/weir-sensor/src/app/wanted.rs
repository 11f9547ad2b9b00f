//! What parsers are asked for by the loaded rules and the configuration.

use std::ops::Deref;
use std::sync::Arc;

use super::digest::Sums;
use super::framed::Frames;
use super::http::HttpWanted;
use super::limits::Limits;
use super::switches::Switches;
use crate::buffer::BufferSet;

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
    /// Which protocols are recognized and parsed.
    pub switches: Switches,
    /// How many transactions of a flow may wait.
    pub limits: Limits,
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
            switches: Switches::default(),
            limits: Limits::default(),
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
    /// The MD5 sum of what follows the headers of a mail, as it was sent.
    pub mail_body_md5: bool,
    /// Addresses of pages in the texts of mails.
    pub urls: bool,
    /// Which schemes those have, in bits of `mime::SCHEMES`.
    pub schemes: u8,
    /// They are written with their scheme.
    pub url_scheme: bool,
    /// The longest line of FTP, bytes; 0: the usual.
    pub ftp_line: u32,
    /// The longest message of MQTT, bytes; 0: the usual.
    pub mqtt_message: u32,
    /// Leave out passwords of MQTT.
    pub mqtt_no_passwords: bool,
    /// All messages of DHCP, and all of their options that records can have; else acknowledgements, in brief.
    pub dhcp_all: bool,
    /// Numbers of IKE beside their names.
    pub ike_extended: bool,
    /// The longest payload of WebSocket, bytes; 0: the usual.
    pub websocket_payload: u32,
    /// Passwords of PostgreSQL.
    pub pgsql_passwords: bool,
    /// Frames: parts of messages as sent.
    pub frames: Frames,
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
        mail_body_md5: true,
        urls: true,
        schemes: 1,
        url_scheme: false,
        ftp_line: 0,
        mqtt_message: 0,
        mqtt_no_passwords: false,
        dhcp_all: true,
        ike_extended: true,
        websocket_payload: 0,
        pgsql_passwords: true,
        frames: Frames::OfRules,
    };
}

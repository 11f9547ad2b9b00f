//! The one list of keywords: the parser dispatches by it, refusals and notes take their reasons from it, and docs/sensor-rules.md is generated from it.

use crate::app::{Carrier, PROTOCOLS, TOO_MANY, Written};
use crate::buffer::Buffer;

use super::load::Dialect;

/// `Variant: "name" ["other names"] dialects, "what";`, and before the semicolon `=> Show "key"` if `rules.json` has details of it.
macro_rules! words {
    (@shown) => { None };
    (@shown $show:ident $key:literal) => { Some((Show::$show, $key)) };
    ($($variant:ident: $name:literal [$($alias:literal),*] $dialect:ident, $what:literal $(=> $show:ident $key:literal)?;)*) => {
        /// A keyword with a meaning of its own; buffers are in `Buffer`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Word {
            $(#[doc = $what] $variant,)*
        }

        /// All of them, with their other names, dialects and what they are.
        pub const WORDS: &[(Word, &str, &[&str], Dialects, &str)] = &[
            $((Word::$variant, $name, &[$($alias),*], Dialects::$dialect, $what),)*
        ];

        impl Word {
            /// The keyword of a name in a dialect.
            pub fn named(name: &str, dialect: Dialect) -> Option<Word> {
                Some(match name {
                    $($name $(| $alias)* if Dialects::$dialect.has(dialect) => Word::$variant,)*
                    _ => return None,
                })
            }

            /// Its first name.
            pub fn name(self) -> &'static str {
                match self { $(Word::$variant => $name,)* }
            }

            /// How `rules.json` shows its value, and under which key; `None`: its name says all.
            pub fn shown(self) -> Option<(Show, &'static str)> {
                match self { $(Word::$variant => words!(@shown $($show $key)?),)* }
            }
        }
    };
}

/// How the value of a keyword is shown in `rules.json` (`--engine-analysis`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// The number that is compared with, under the name of the comparison.
    Number,
    /// The number itself.
    Exact,
    /// The number, and whether it must be another.
    Other,
    /// The word behind the keyword.
    Word,
    /// What the condition, the bit or the protocols of the model say.
    Model,
}

/// Which dialects have a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialects {
    /// Both.
    Both,
    /// Suricata's.
    Suricata,
    /// Snort 3's.
    Snort,
}

impl Dialects {
    /// Whether a dialect is one of them.
    pub fn has(self, dialect: Dialect) -> bool {
        match self {
            Dialects::Both => true,
            Dialects::Suricata => dialect == Dialect::Suricata,
            Dialects::Snort => dialect == Dialect::Snort,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Dialects::Both => "both",
            Dialects::Suricata => "Suricata",
            Dialects::Snort => "Snort 3",
        }
    }
}

words! {
    Message: "msg" [] Both, "text of the alert";
    Sid: "sid" [] Both, "number of the rule; required";
    Gid: "gid" [] Both, "generator, 1 unless given";
    Rev: "rev" [] Both, "revision";
    Class: "classtype" [] Both, "class, from classification.config";
    Priority: "priority" [] Both, "1 to 255, instead of the class's";
    Reference: "reference" [] Both, "kind and value";
    Metadata: "metadata" [] Both, "keys and values";
    Remark: "rem" [] Snort, "a remark";
    Target: "target" [] Suricata, "`src_ip` or `dest_ip`";
    Service: "service" [] Snort, "protocols of applications; ports decide only while the protocol is not known";
    Flow: "flow" [] Both, "direction, establishment, stream or packet, fragments";
    Flowbits: "flowbits" [] Both, "`set unset toggle isset isnotset noalert`, alternatives with a bar, several with `&` in Snort 3" => Model "flowbits";
    Xbits: "xbits" [] Suricata, "bits of addresses and pairs, with `expire` (30 s unless given); `track tx`: of transactions" => Model "xbits";
    Hostbits: "hostbits" [] Suricata, "bits of addresses (300 s)" => Model "hostbits";
    Flowint: "flowint" [] Suricata, "counters of flows" => Model "flowint";
    NoAlert: "noalert" [] Suricata, "no alert when it matches";
    Bypass: "bypass" [] Suricata, "the rest of the flow passes uninspected, and is kept away from the sensor where that can be";
    Threshold: "threshold" [] Suricata, "`limit`, `threshold`, `both`, `backoff`";
    DetectionFilter: "detection_filter" [] Both, "alerts after a count in a period";
    Tag: "tag" [] Both, "packets after the alert that are logged, if `tagged-packets` asks for it: of a `session` or a `host`, so many `packets`, `bytes` or `seconds` (256 packets), `src` or `dst` (`dst`); in Snort 3 `session`, `host_src` or `host_dst`, with the number behind its unit";
    StreamSize: "stream_size" [] Both, "bytes of a stream";
    FlowAge: "flow.age" [] Suricata, "seconds since the flow's first packet" => Number "flow_age";
    FlowPackets: "flow.pkts" [] Suricata, "packets of a flow: `toserver`, `toclient`, `both`, `either`" => Number "flow_pkts";
    FlowPacketsToServer: "flow.pkts_toserver" [] Suricata, "packets of a flow to the server" => Number "flow_pkts";
    FlowPacketsToClient: "flow.pkts_toclient" [] Suricata, "packets of a flow to the client" => Number "flow_pkts";
    FlowBytes: "flow.bytes" [] Suricata, "bytes of a flow" => Number "flow_bytes";
    FlowBytesToServer: "flow.bytes_toserver" [] Suricata, "bytes of a flow to the server" => Number "flow_bytes";
    FlowBytesToClient: "flow.bytes_toclient" [] Suricata, "bytes of a flow to the client" => Number "flow_bytes";
    AppLayerProtocol: "app-layer-protocol" [] Suricata, "protocol of the application, or not that; of a side (`direction`, `to_server`, `to_client`, `either`), before a change (`original`), or at the end (`final`); without a mode of the direction that is inspected. Alternatives with a bar" => Model "app_layer_protocol";
    AppLayerState: "app-layer-state" [] Suricata, "a direction of a transaction has got to a state and no further; with `<` not so far, with `>` beyond it. States are hooks of the protocol in the header";
    AppLayerEvent: "app-layer-event" [] Suricata, "an anomaly of a transaction";
    DecodeEvent: "decode-event" ["engine-event"] Suricata, "an anomaly of a packet";
    StreamEvent: "stream-event" [] Suricata, "an anomaly of a stream";
    IpReputation: "iprep" [] Suricata, "score of an address in a category of the reputation lists";
    Content: "content" [] Both, "bytes; in Snort 3 with its modifiers behind commas" => Model "content";
    UriContent: "uricontent" [] Suricata, "old: content of http.uri" => Model "content";
    Nocase: "nocase" [] Suricata, "the content before in either case";
    Offset: "offset" [] Suricata, "first place of the content before, a number or a name";
    Depth: "depth" [] Suricata, "how many bytes from there may hold it";
    Distance: "distance" [] Suricata, "first place after the match before";
    Within: "within" [] Suricata, "how many bytes from there may hold it";
    StartsWith: "startswith" [] Suricata, "at the buffer's start";
    EndsWith: "endswith" [] Suricata, "at the buffer's end";
    Rawbytes: "rawbytes" [] Both, "accepted, without a meaning in either dialect";
    FastPattern: "fast_pattern" [] Suricata, "the content for the prefilter; `only`, or offset and length";
    Pcre: "pcre" [] Both, "Perl regular expression (PCRE2); in Suricata's dialect flags may name a buffer, and captures are kept as `flow:`, `pkt:` and `alert:` variables" => Model "pcre";
    Regex: "regex" [] Snort, "a regular expression; compiled as pcre is";
    IsDataAt: "isdataat" [] Both, "there are bytes at a place" => Model "isdataat";
    ByteTest: "byte_test" [] Both, "a number in the bytes compared" => Model "byte_test";
    ByteJump: "byte_jump" [] Both, "the place moved by a number in the bytes" => Model "byte_jump";
    ByteExtract: "byte_extract" [] Both, "a number in the bytes named" => Model "byte_extract";
    ByteMath: "byte_math" [] Both, "a number in the bytes computed with and named" => Model "byte_math";
    Asn1: "asn1" [] Suricata, "an element of ASN.1 is out of the ordinary: `bitstring_overflow`, `double_overflow`, `oversize_length N` (longer than that); from `absolute_offset N` or `relative_offset N` on";
    Base64Decode: "base64_decode" [] Both, "the bytes from here decoded";
    Base64Data: "base64_data" [] Both, "what follows is about the decoded bytes";
    Size: "bsize" [] Suricata, "length of the buffer" => Number "bsize";
    BufferLength: "bufferlen" [] Snort, "length of the buffer";
    UriLength: "urilen" [] Suricata, "length of http.uri (`norm`, the default) or http.uri.raw (`raw`)" => Number "urilen";
    Absent: "absent" [] Suricata, "the buffer is not there; `or_else`" => Model "absent";
    Dataset: "dataset" [] Suricata, "`isset` and `isnotset` in a file of strings (base64), md5, sha256 or addresses; `match subdomain`; `format json` or `ndjson` with `value_key`, `context_key`, `array_key`, `remove_key`";
    Datarep: "datarep" [] Suricata, "the same with a number for each value, compared by `<`, `>` or `==`";
    Entropy: "entropy" [] Suricata, "bits that each byte of the buffer tells: `value`, `bytes`, `offset`";
    DotPrefix: "dotprefix" [] Suricata, "transform: a dot before the buffer";
    Lowercase: "to_lowercase" [] Suricata, "transform";
    Uppercase: "to_uppercase" [] Suricata, "transform";
    StripWhitespace: "strip_whitespace" [] Suricata, "transform";
    CompressWhitespace: "compress_whitespace" [] Suricata, "transform";
    UrlDecode: "url_decode" [] Suricata, "transform";
    ToMd5: "to_md5" [] Suricata, "transform";
    ToSha1: "to_sha1" [] Suricata, "transform";
    ToSha256: "to_sha256" [] Suricata, "transform";
    Xor: "xor" [] Suricata, "transform: with a key of hexadecimal digits";
    PcreXform: "pcrexform" [] Suricata, "transform: the first capture";
    HeaderLowercase: "header_lowercase" [] Suricata, "transform";
    StripPseudoHeaders: "strip_pseudo_headers" [] Suricata, "transform";
    Gunzip: "gunzip" [] Suricata, "transform: `max-size` (1024)";
    Inflate: "zlib_deflate" [] Suricata, "transform: `max-size` (1024)";
    Subslice: "subslice" [] Suricata, "transform: `offset[, nbytes][, truncate]`, a part of the buffer; a negative offset counts from its end, negative nbytes end so many bytes before it";
    Domain: "domain" [] Suricata, "transform; rejected, as no list of public suffixes is included";
    Tld: "tld" [] Suricata, "transform; rejected, as no list of public suffixes is included";
    FromBase64: "from_base64" [] Suricata, "transform: `bytes`, `offset`, `mode`";
    LuaTransform: "luaxform" [] Suricata, "transform: by a script in Lua, with the words behind its name";
    Lua: "lua" ["luajit"] Suricata, "a script in Lua beside the rules, whose function `match` returns 1 (`!`: not); decided after all else";
    PayloadSize: "dsize" [] Both, "size of the packet's payload" => Number "dsize";
    Ttl: "ttl" [] Both, "time to live, hop limit" => Number "ttl";
    Tos: "tos" [] Both, "type of service" => Number "tos";
    Id: "id" [] Both, "identification of IPv4" => Number "id";
    IpProtocol: "ip_proto" [] Both, "protocol of IP, number or name";
    Version: "l3_proto" [] Suricata, "`ipv4` or `ipv6`";
    Checksum: "ipv4-csum" ["tcpv4-csum", "tcpv6-csum", "udpv4-csum", "udpv6-csum", "icmpv4-csum", "icmpv6-csum"] Suricata, "`valid` or `invalid`; with `-k none` all are valid";
    FragmentBits: "fragbits" [] Both, "`M`, `D`, `R` with `+ * !`";
    FragmentOffset: "fragoffset" [] Both, "offset of a fragment" => Number "fragoffset";
    IpOptions: "ipopts" [] Both, "an option of IPv4" => Word "ipopts";
    Flags: "tcp.flags" ["flags"] Both, "flags of TCP with `+ * !`, and those ignored";
    Sequence: "tcp.seq" ["seq"] Both, "sequence number, exactly" => Exact "seq";
    Acknowledgement: "tcp.ack" ["ack"] Both, "acknowledgement number, exactly" => Exact "ack";
    Window: "tcp.window" ["window"] Both, "window of TCP" => Other "window";
    Mss: "tcp.mss" [] Suricata, "maximum segment size" => Number "tcp_mss";
    IcmpType: "itype" [] Both, "type of ICMP" => Number "type";
    IcmpCode: "icode" [] Both, "code of ICMP" => Number "code";
    IgmpType: "igmp.type" [] Suricata, "type of IGMP" => Number "igmp_type";
    IcmpId: "icmp_id" [] Both, "identifier of ICMP" => Exact "icmp_id";
    IcmpSequence: "icmp_seq" [] Both, "sequence number of ICMP" => Exact "icmp_seq";
    SameAddress: "sameip" [] Both, "both addresses are one";
    Vlan: "vlan.id" [] Suricata, "number of a VLAN, and its layer" => Number "vlan_id";
    Rpc: "rpc" [] Both, "program, version, procedure of a call of SunRPC";
    TlsVersion: "tls.version" [] Suricata, "version of TLS";
    SslVersion: "ssl_version" [] Both, "versions, alternatives with commas";
    DceInterface: "dcerpc.iface" ["dce_iface"] Both, "interface of a call of DCE/RPC that its server has accepted: UUID, and version (`=`, `!`, `<`, `>`); `any_frag` means nothing, as all fragments are of their call";
    Modbus: "modbus" [] Suricata, "of a request of Modbus: `unit N`; behind it `function N[, subfunction N]`, `function [!]assigned` (`unassigned`, `public`, `user`, `reserved`, `all`), or `access read` or `write` with a table (`discretes`, `coils`, `input`, `holding`), `address` (from 1) and, of what is written, `value`";
    SslState: "ssl_state" [] Both, "state of the handshake, alternatives with a bar or commas";
    Requires: "requires" [] Suricata, "versions of the language (this is 8.0), keywords, features (none has a name); a rule that requires others is rejected";
    Alert: "alert" [] Suricata, "an alert when it matches, also of a rule with the action `pass`";
    Config: "config" [] Suricata, "`logging disable, type tx, scope tx`: the transaction that the rule holds of is not written to the log; as an action, no alert";
    WindowScale: "tcp.wscale" [] Suricata, "window scale option of TCP" => Number "tcp_wscale";
    Mtu: "icmpv6.mtu" [] Suricata, "size that a packet-too-big message names" => Number "icmpv6_mtu";
    VlanLayers: "vlan.layers" [] Suricata, "how many VLAN tags" => Number "vlan_layers";
    CertificateExpired: "tls_cert_expired" [] Suricata, "it has ended, by the packet's time";
    CertificateValid: "tls_cert_valid" [] Suricata, "it has not";
    TlsSubject: "tls.subject" [] Suricata, "old: content of tls.cert_subject";
    TlsIssuer: "tls.issuerdn" [] Suricata, "old: content of tls.cert_issuer";
    TlsFingerprint: "tls.fingerprint" [] Suricata, "old: content of tls.cert_fingerprint";
    SshProtoVersion: "ssh.protoversion" [] Suricata, "old: content of ssh.proto";
    SshSoftwareVersion: "ssh.softwareversion" [] Suricata, "old: content of ssh.software";
    FileSize: "filesize" [] Suricata, "size of a file; of one that did not come whole, only whether it is larger" => Number "filesize";
    FileMd5: "filemd5" [] Suricata, "MD5 of a whole file, in a list beside the rules (`!`: not in it)";
    FileSha1: "filesha1" [] Suricata, "SHA-1 of a whole file, in a list";
    FileSha256: "filesha256" [] Suricata, "SHA-256 of a whole file, in a list";
    FileStore: "filestore" [] Suricata, "it is about files, and those of its matches are written out (`file-store`): direction (`request`, `response`, `both`), scope (`file`, `tx`, `flow`)";
    TlsStore: "tls.store" ["tls_store"] Suricata, "certificates of the end that it matches are written out (`tls-store`)";
    Frame: "frame" [] Suricata, "part of a message as sent, by the name of its protocol and its own: one of the buffers that begin with `frame:`";
    FileMagic: "filemagic" [] Suricata, "old: content of file.magic, in either case";
    FileExtension: "fileext" [] Suricata, "old: end of file.name";
}

/// Sticky buffers of Snort 3; the arguments each takes are in `parse`.
pub const SNORT_BUFFERS: &[(&str, Buffer)] = &[
    ("pkt_data", Buffer::Payload),
    ("raw_data", Buffer::Payload),
    ("file_data", Buffer::FileData),
    ("http_uri", Buffer::HttpUri),
    ("http_raw_uri", Buffer::HttpUriRaw),
    ("http_header", Buffer::HttpHeader),
    ("http_raw_header", Buffer::HttpHeaderRaw),
    ("http_cookie", Buffer::HttpCookie),
    ("http_raw_cookie", Buffer::HttpCookie),
    ("http_client_body", Buffer::HttpRequestBody),
    ("http_method", Buffer::HttpMethod),
    ("http_version", Buffer::HttpProtocol),
    ("http_stat_code", Buffer::HttpStatusCode),
    ("http_stat_msg", Buffer::HttpStatusMessage),
    ("http_raw_request", Buffer::HttpRequestLine),
    ("http_raw_status", Buffer::HttpResponseLine),
    ("dce_stub_data", Buffer::DcerpcStub),
];

/// Keywords that decide nothing about a match here: the rule is loaded, and a note says what is not done.
pub const NOTED: &[(&str, &str)] = &[
    ("logto", "alerts go to the configured outputs"),
    (
        "nfq_set_mark",
        "there is no queue whose packets could be marked",
    ),
    ("prefilter", "the prefilter is chosen by the sensor"),
];

/// Keywords of the languages that this sensor does not have: rules with them are refused.
pub const REFUSED: &[(&str, &str)] = &[
    ("ber_data", "ASN.1 is not decoded"),
    ("ber_skip", "ASN.1 is not decoded"),
    (
        "replace",
        "packets are not changed: `drop` or `reject` keeps them out",
    ),
    (
        "geoip",
        "no geographic database is read: write a country's networks in a variable of addresses, or in a list for `iprep`",
    ),
    (
        "flowvar",
        "variables are kept for records: `flowbits` or a script (`lua`) asks for what was there before",
    ),
    (
        "pktvar",
        "variables are kept for records: ask for the bytes in the same rule",
    ),
    (
        "flow.elephant",
        "rates of flows are not measured: `flow.bytes` and `flow.age` ask for large ones",
    ),
    ("file_type", "file types are not identified by content"),
    ("file_meta", "file types are not identified by content"),
    ("md5", "hashes of buffers are not compared"),
    ("sha256", "hashes of buffers are not compared"),
    ("sha512", "hashes of buffers are not compared"),
    ("activated_by", "rules do not activate each other"),
    ("activates", "rules do not activate each other"),
    ("count", "rules do not activate each other"),
    ("session", "sessions are not logged"),
    ("react", "no answers are sent"),
    ("resp", "no answers are sent"),
    ("stream_reassemble", "rules do not change reassembly"),
    ("sip_method", "keyword of Snort; `sip.method` is the buffer"),
    (
        "sip_header",
        "keyword of Snort; `sip.from`, `sip.to`, `sip.via` are buffers",
    ),
    ("sip_body", "bodies of SIP are not inspected"),
    (
        "sip_stat_code",
        "keyword of Snort; `sip.stat_code` is the buffer",
    ),
    ("http_param", "parameters are not taken apart"),
    ("http_num_headers", "headers are not counted"),
    ("http_num_cookies", "cookies are not counted"),
    ("http_num_trailers", "trailers are not counted"),
    ("http_header_test", "headers are not compared as numbers"),
    ("http_trailer_test", "trailers are not compared as numbers"),
    ("http_version_match", "versions are not compared as a set"),
    ("http_max_header_line", "lines of headers are not measured"),
    (
        "http_max_trailer_line",
        "lines of trailers are not measured",
    ),
    ("http_raw_trailer", "trailers are not kept"),
    ("http_trailer", "trailers are not kept"),
    ("http_true_ip", "proxies' headers are not followed"),
    ("http_raw_body", "bodies are kept decoded only"),
    ("http_encode", "encodings are not kept"),
    ("js_data", "scripts are not normalized"),
    ("script_data", "scripts are not normalized"),
    ("vba_data", "macros are not extracted"),
    ("sd_pattern", "kinds of personal data are not identified"),
    ("appids", "applications are identified by protocol only"),
    ("cvs", "CVS is not parsed"),
    (
        "modbus_data",
        "functions and addresses of Modbus are in records only",
    ),
    (
        "modbus_func",
        "functions and addresses of Modbus are in records only",
    ),
    (
        "modbus_unit",
        "functions and addresses of Modbus are in records only",
    ),
    ("gtp_info", "GTP is not parsed"),
    ("gtp_type", "GTP is not parsed"),
    ("gtp_version", "GTP is not parsed"),
];

/// The reason for refusing a keyword that the language has.
pub fn refusal(name: &str) -> Option<&'static str> {
    REFUSED
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, why)| *why)
}

/// What is not done about a keyword that decides nothing.
pub fn note(name: &str) -> Option<&'static str> {
    NOTED
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, what)| *what)
}

/// What rules write behind a keyword about a number.
fn value(written: Written) -> String {
    let names = |names: &[(&str, u64)]| {
        let names: Vec<String> = names.iter().map(|(n, _)| format!("`{n}`")).collect();
        names.join(", ")
    };
    match written {
        Written::Number([]) => "number".to_owned(),
        Written::Number(known) => format!("number, or {}", names(known)),
        Written::Placed(known) => format!(
            "number, or {}; behind a comma `any`, `all`, or the place of the response, from the end if negative",
            names(known)
        ),
        Written::Inclusive => "number; `a<>b` has its ends".to_owned(),
        Written::Keyed(known) => format!(
            "one of {}, and behind it `=`, `>`, `<` or a range",
            names(known)
        ),
        Written::Pair => "two numbers with a comma between them".to_owned(),
        Written::List => "numbers and ranges with commas between them".to_owned(),
        Written::Choice(known) => format!("some of {}, with commas between them", names(known)),
        Written::Word(known) => names(known),
        Written::Flags(known) => format!("some of {}", names(known)),
        Written::Bits(known) => format!("number, or some of {}", names(known)),
        Written::Names(known, words) => {
            let words: Vec<String> = words.iter().map(|(w, _)| format!("`{w}`")).collect();
            format!(
                "numbers with commas between them, {}, or {}",
                words.join(", "),
                names(known)
            )
        }
        Written::Attribute(known) => format!("`=` between one of {} and a number", names(known)),
        Written::Steps(_) => "one to three numbers with commas between them".to_owned(),
        Written::Date => "date".to_owned(),
        Written::Bare => "none".to_owned(),
    }
}

/// The table of docs/sensor-rules.md that says which protocols there are.
fn protocols() -> String {
    let mut out = String::new();
    out += "\n### Protocols\n\nThose with events have a parser, transactions and records; the stream of the others is inspected.\n\n| protocol | other names | services of Snort | over | events |\n|---|---|---|---|---|\n";
    let code = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        names.join(", ")
    };
    for row in PROTOCOLS {
        let over = match row.carrier {
            Carrier::Tcp => "TCP",
            Carrier::Udp => "UDP",
            Carrier::Both => "TCP, UDP",
        };
        let events = row.kind.map(|kind| [kind.events, &[TOO_MANY]].concat());
        out += &format!(
            "| `{}` | {} | {} | {over} | {} |\n",
            row.app.name(),
            code(row.aliases),
            code(row.services),
            code(&events.unwrap_or_default())
        );
    }
    out
}

/// All keywords that rules of a dialect may have, sorted.
pub fn names(dialect: Dialect) -> Vec<&'static str> {
    let words = WORDS
        .iter()
        .filter(|(.., dialects, _)| dialects.has(dialect));
    let mut names: Vec<&str> = words
        .flat_map(|(_, name, aliases, ..)| std::iter::once(*name).chain(aliases.iter().copied()))
        .collect();
    match dialect {
        Dialect::Suricata => {
            for fact in PROTOCOLS.iter().flat_map(|row| row.facts) {
                names.push(fact.keyword);
                names.extend(fact.aliases);
            }
            for buffer in Buffer::ALL {
                let (sticky, modifiers) = buffer.words();
                // A frame is a value of `frame`.
                names.extend(sticky.iter().filter(|name| !name.contains(':')));
                names.extend(modifiers);
            }
        }
        Dialect::Snort => names.extend(SNORT_BUFFERS.iter().map(|(name, _)| name)),
    }
    names.extend(NOTED.iter().map(|(name, _)| name));
    names.sort_unstable();
    names.dedup();
    names
}

/// The protocols that rules may name, sorted.
pub fn protocol_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = PROTOCOLS.iter().map(|row| row.app.name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The tables of docs/sensor-rules.md.
pub fn tables() -> String {
    let mut out = String::new();
    out += "### Keywords\n\n| keyword | other names | dialect | what it is |\n|---|---|---|---|\n";
    let code = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        names.join(", ")
    };
    for (_, name, aliases, dialects, what) in WORDS {
        out += &format!(
            "| `{name}` | {} | {} | {what} |\n",
            code(aliases),
            dialects.name()
        );
    }
    out += "\n### Numbers of transactions\n\nOf Suricata's dialect. `&` and `!` as with other numbers.\n\n| keyword | other names | protocol | value | what it is |\n|---|---|---|---|---|\n";
    for row in PROTOCOLS {
        for fact in row.facts {
            out += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                fact.keyword,
                code(fact.aliases),
                row.app.name(),
                value(fact.written),
                fact.what
            );
        }
    }
    out += "\n### Buffers\n\nIn `suricata` a sticky name is for the contents after it, an old name for the one before. In `snort3` all are sticky.\n\n";
    out += "| sticky | old modifier | Snort 3 | what it holds |\n|---|---|---|---|\n";
    for buffer in Buffer::ALL {
        let (sticky, modifiers) = buffer.words();
        let of = |(name, b): &(&'static str, Buffer)| (b == buffer).then_some(*name);
        let snort: Vec<&str> = SNORT_BUFFERS.iter().filter_map(of).collect();
        out += &format!(
            "| {} | {} | {} | {} |\n",
            code(&sticky),
            code(modifiers),
            code(&snort),
            buffer.what()
        );
    }
    out += &protocols();
    out += "\n### Accepted with a note\n\nThe rule is loaded; a note says what is not done.\n\n| keyword | not done |\n|---|---|\n";
    for (name, what) in NOTED {
        out += &format!("| `{name}` | {what} |\n");
    }
    out += "\n### Rejected\n\nA rule with one of these is not loaded, and listed with the reason.\n\n| keyword | reason |\n|---|---|\n";
    for (name, why) in REFUSED {
        if Buffer::sticky(name).is_none() {
            out += &format!("| `{name}` | {why} |\n");
        }
    }
    out
}

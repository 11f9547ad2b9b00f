//! Inspection buffers: the parts of packets, streams and transactions that rules name. The one list; parsers fill them, rules select them, the matcher groups patterns by them.

use crate::app::App;
use crate::packet::Direction;

/// Which directions a buffer exists in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// Of requests.
    Request,
    /// Of responses.
    Response,
    /// Of both.
    Both,
}

impl Sides {
    /// Whether a direction has it.
    pub fn has(self, direction: Direction) -> bool {
        match self {
            Sides::Request => direction == Direction::ToServer,
            Sides::Response => direction == Direction::ToClient,
            Sides::Both => true,
        }
    }
}

/// `Variant: "sticky name" ["other sticky names"] ("old modifier") App sides multiple "what"`.
macro_rules! buffers {
    ($($variant:ident: $name:literal [$($alias:literal),*] ($($modifier:literal),*) $app:expr, $sides:ident, $multiple:literal, $what:literal;)*) => {
        /// A buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Buffer {
            $(#[doc = $what] $variant,)*
        }

        impl Buffer {
            /// All of them, in the order of the list.
            pub const ALL: &'static [Buffer] = &[$(Buffer::$variant),*];

            /// The sticky name of the rule language.
            pub fn name(self) -> &'static str {
                match self { $(Buffer::$variant => $name,)* }
            }

            /// The buffer that a sticky keyword selects.
            pub fn sticky(word: &str) -> Option<Buffer> {
                Some(match word { $($name $(| $alias)* => Buffer::$variant,)* _ => return None })
            }

            /// The buffer that an old keyword gives to the content before it.
            pub fn modifier(word: &str) -> Option<Buffer> {
                $($(if word == $modifier { return Some(Buffer::$variant); })*)*
                None
            }

            /// The names it has as a sticky buffer, and as a modifier.
            pub fn words(self) -> (Vec<&'static str>, &'static [&'static str]) {
                match self { $(Buffer::$variant => (vec![$name $(, $alias)*], &[$($modifier),*]),)* }
            }

            /// What it holds.
            pub fn what(self) -> &'static str {
                match self { $(Buffer::$variant => $what,)* }
            }

            /// The protocol whose transactions have it; `None`: of packets and streams, or of several protocols.
            pub fn app(self) -> Option<App> {
                match self { $(Buffer::$variant => $app,)* }
            }

            /// The directions that have it.
            pub fn sides(self) -> Sides {
                match self { $(Buffer::$variant => Sides::$sides,)* }
            }

            /// Of a frame (a part of a message as sent): its name within its protocol.
            pub fn frame(self) -> Option<&'static str> {
                let (_, name) = self.name().strip_prefix("frame:")?.split_once('.')?;
                Some(name)
            }

            /// Whether a transaction may have several of one direction; conditions then hold for one of them together.
            pub fn is_multiple(self) -> bool {
                match self { $(Buffer::$variant => $multiple,)* }
            }
        }
    };
}

const HTTP: Option<App> = Some(App::Http1);
const DNS: Option<App> = Some(App::Dns);
const TLS: Option<App> = Some(App::Tls);
const SSH: Option<App> = Some(App::Ssh);
const SMB: Option<App> = Some(App::Smb);
const SMTP: Option<App> = Some(App::Smtp);
const FTP: Option<App> = Some(App::Ftp);
const LDAP: Option<App> = Some(App::Ldap);
const MQTT: Option<App> = Some(App::Mqtt);
const QUIC: Option<App> = Some(App::Quic);
const IKE: Option<App> = Some(App::Ike);
const MDNS: Option<App> = Some(App::Mdns);
const SIP: Option<App> = Some(App::Sip);

buffers! {
    Payload: "pkt_data" [] () None, Both, false, "The payload of a packet, or of a stream as reassembled.";
    FileData: "file.data" ["file_data"] () None, Both, true, "Bodies after transfer and content encodings are undone: HTTP bodies, SMTP attachments, FTP and SMB files.";
    FileName: "file.name" ["filename"] () None, Both, true, "Name of a transferred file.";
    FileMagic: "file.magic" [] () None, Both, true, "What a file is by its first 4 KiB, in the words of libmagic.";
    EtherHeader: "ether.hdr" [] () None, Both, false, "Ethernet header: both addresses and the type, 14 bytes; of a tunnel that carries Ethernet, that of the packet inside.";
    Ipv4Header: "ipv4.hdr" [] () None, Both, false, "IPv4 header.";
    Ipv6Header: "ipv6.hdr" [] () None, Both, false, "IPv6 header.";
    TcpHeader: "tcp.hdr" [] () None, Both, false, "TCP header.";
    UdpHeader: "udp.hdr" [] () None, Both, false, "UDP header.";
    Icmpv4Header: "icmpv4.hdr" [] () None, Both, false, "ICMP header.";
    Icmpv6Header: "icmpv6.hdr" [] () None, Both, false, "ICMPv6 header.";
    IgmpHeader: "igmp.hdr" [] () None, Both, false, "IGMP message.";
    IpSource: "ip.src" [] () None, Both, false, "Address of the sender, 4 or 16 bytes.";
    IpDestination: "ip.dst" [] () None, Both, false, "Address of the receiver, 4 or 16 bytes.";
    HttpUri: "http.uri" [] ("http_uri") HTTP, Request, false, "Normalized request target.";
    HttpUriRaw: "http.uri.raw" [] ("http_raw_uri") HTTP, Request, false, "Request target as sent.";
    HttpMethod: "http.method" [] ("http_method") HTTP, Request, false, "Method.";
    HttpProtocol: "http.protocol" ["http_protocol"] () HTTP, Both, false, "Version of the request or status line.";
    HttpRequestLine: "http.request_line" ["http_request_line"] () HTTP, Request, false, "Whole request line.";
    HttpResponseLine: "http.response_line" ["http_response_line"] () HTTP, Response, false, "Whole status line.";
    HttpHost: "http.host" [] ("http_host") HTTP, Request, false, "Host, in lower case, without port.";
    HttpHostRaw: "http.host.raw" [] ("http_raw_host") HTTP, Request, false, "Host as sent.";
    HttpHeader: "http.header" [] ("http_header") HTTP, Both, false, "All header lines, normalized, cookies left out.";
    HttpHeaderRaw: "http.header.raw" [] ("http_raw_header") HTTP, Both, false, "All header lines as sent.";
    HttpHeaderNames: "http.header_names" ["http_header_names"] () HTTP, Both, false, "Names of headers in their order: CRLF before each and twice at the end.";
    HttpCookie: "http.cookie" [] ("http_cookie") HTTP, Both, false, "Cookie or Set-Cookie.";
    HttpUserAgent: "http.user_agent" [] ("http_user_agent") HTTP, Request, false, "User-Agent.";
    HttpReferer: "http.referer" ["http_referer"] () HTTP, Request, false, "Referer.";
    HttpAccept: "http.accept" ["http_accept"] () HTTP, Request, false, "Accept.";
    HttpAcceptEncoding: "http.accept_enc" ["http_accept_enc"] () HTTP, Request, false, "Accept-Encoding.";
    HttpAcceptLanguage: "http.accept_lang" ["http_accept_lang"] () HTTP, Request, false, "Accept-Language.";
    HttpConnection: "http.connection" ["http_connection"] () HTTP, Both, false, "Connection.";
    HttpContentType: "http.content_type" ["http_content_type"] () HTTP, Both, false, "Content-Type.";
    HttpContentLength: "http.content_len" ["http_content_len"] () HTTP, Both, false, "Content-Length.";
    HttpServer: "http.server" [] () HTTP, Response, false, "Server.";
    HttpLocation: "http.location" [] () HTTP, Response, false, "Location.";
    HttpStart: "http.start" ["http_start"] () HTTP, Both, false, "First line and header lines, normalized, with the empty line.";
    HttpRequestBody: "http.request_body" [] ("http_client_body") HTTP, Request, false, "Body of a request.";
    HttpResponseBody: "http.response_body" [] ("http_server_body") HTTP, Response, false, "Body of a response.";
    HttpStatusCode: "http.stat_code" [] ("http_stat_code") HTTP, Response, false, "Status code.";
    HttpStatusMessage: "http.stat_msg" [] ("http_stat_msg") HTTP, Response, false, "Reason phrase.";
    HttpRequestHeader: "http.request_header" [] () HTTP, Request, true, "One header of a request: `name: value`.";
    HttpResponseHeader: "http.response_header" [] () HTTP, Response, true, "One header of a response: `name: value`.";
    Http2HeaderName: "http2.header_name" [] () Some(App::Http2), Both, true, "Name of a header field of HTTP/2, those of the message's line among them.";
    DnsQuery: "dns.query" ["dns_query"] () DNS, Request, true, "Name of a question of a query.";
    DnsQueryName: "dns.queries.rrname" ["dns.query.name"] () DNS, Both, true, "Name of a question, of a query or an answer.";
    DnsResponseName: "dns.response.rrname" [] () DNS, Response, true, "Any name of a response: of questions and of all records.";
    DnsAnswerName: "dns.answers.rrname" ["dns.answer.name"] () DNS, Both, true, "Name of an answer record.";
    DnsAuthorityName: "dns.authorities.rrname" [] () DNS, Both, true, "Name of an authority record.";
    DnsAdditionalName: "dns.additionals.rrname" [] () DNS, Both, true, "Name of an additional record.";
    TlsSni: "tls.sni" ["tls_sni"] () TLS, Request, false, "Server name asked for.";
    TlsAlpn: "tls.alpn" [] () TLS, Both, true, "A protocol offered or chosen.";
    TlsRandom: "tls.random" [] () TLS, Both, false, "Random bytes of a hello, all 32.";
    TlsRandomTime: "tls.random_time" [] () TLS, Both, false, "Their first four, once a time.";
    TlsRandomBytes: "tls.random_bytes" [] () TLS, Both, false, "The other 28.";
    TlsCerts: "tls.certs" [] () TLS, Both, true, "A certificate of either end, as sent (DER).";
    TlsCertSubject: "tls.cert_subject" ["tls_cert_subject"] () TLS, Both, false, "Subject of the first certificate of either end.";
    TlsCertIssuer: "tls.cert_issuer" ["tls_cert_issuer"] () TLS, Both, false, "Issuer of the first certificate of either end.";
    TlsCertSerial: "tls.cert_serial" ["tls_cert_serial"] () TLS, Both, false, "Serial number, hexadecimal with colons.";
    TlsCertFingerprint: "tls.cert_fingerprint" ["tls_cert_fingerprint"] () TLS, Both, false, "SHA-1 of the first certificate of either end, hexadecimal with colons.";
    TlsSubjectAltName: "tls.subjectaltname" [] () TLS, Response, true, "A subject alternative name of the server's certificate.";
    Ja3Hash: "ja3.hash" ["ja3_hash"] () TLS, Request, false, "JA3.";
    Ja3String: "ja3.string" ["ja3_string"] () TLS, Request, false, "What JA3 hashes.";
    Ja3sHash: "ja3s.hash" [] () TLS, Response, false, "JA3S.";
    Ja3sString: "ja3s.string" [] () TLS, Response, false, "What JA3S hashes.";
    Ja4Hash: "ja4.hash" [] () None, Request, false, "JA4, of TLS and QUIC.";
    SshProto: "ssh.proto" ["ssh_proto"] () SSH, Both, false, "Protocol version.";
    SshSoftware: "ssh.software" ["ssh_software"] () SSH, Both, false, "Software version.";
    SshHassh: "ssh.hassh" [] () SSH, Request, false, "HASSH.";
    SshHasshString: "ssh.hassh.string" [] () SSH, Request, false, "What HASSH hashes.";
    SshHasshServer: "ssh.hassh.server" [] () SSH, Response, false, "HASSH of the server.";
    SshHasshServerString: "ssh.hassh.server.string" [] () SSH, Response, false, "What HASSH of the server hashes.";
    SmbNamedPipe: "smb.named_pipe" ["smb_named_pipe"] () SMB, Both, false, "Named pipe.";
    SmbShare: "smb.share" ["smb_share"] () SMB, Both, false, "Share.";
    SmbNtlmUser: "smb.ntlmssp_user" [] () SMB, Request, false, "User of NTLMSSP.";
    SmbNtlmDomain: "smb.ntlmssp_domain" [] () SMB, Request, false, "Domain of NTLMSSP.";
    DcerpcStub: "dcerpc.stub_data" ["dce_stub_data"] () None, Both, false, "Arguments of a call of DCE/RPC, over TCP, UDP or a pipe of SMB, and those of its answer.";
    LdapRequestName: "ldap.request.dn" [] () LDAP, Request, false, "Distinguished name that a request of LDAP is about.";
    LdapRequestAttribute: "ldap.request.attribute_type" [] () LDAP, Request, true, "Type of an attribute that a request of LDAP names.";
    LdapResponseName: "ldap.responses.dn" [] () LDAP, Response, true, "Distinguished name of a response of LDAP: of an entry, or the one that a result names.";
    LdapResponseAttribute: "ldap.responses.attribute_type" [] () LDAP, Response, true, "Type of an attribute of an entry that LDAP found.";
    LdapResponseMessage: "ldap.responses.message" [] () LDAP, Response, true, "Message of a result of LDAP.";
    SmtpHelo: "smtp.helo" [] () SMTP, Request, false, "HELO or EHLO.";
    SmtpMailFrom: "smtp.mail_from" [] () SMTP, Request, false, "MAIL FROM.";
    SmtpRcptTo: "smtp.rcpt_to" [] () SMTP, Request, true, "RCPT TO.";
    FtpCommand: "ftp.command" [] () FTP, Request, false, "Command.";
    FtpCommandData: "ftp.command_data" [] () FTP, Request, false, "What follows a command.";
    FtpReply: "ftp.reply" [] () FTP, Response, true, "Text of a reply.";
    FtpCompletionCode: "ftp.completion_code" [] () FTP, Response, true, "Code of a reply.";
    EmailFrom: "email.from" [] () SMTP, Request, false, "From of a message.";
    EmailTo: "email.to" [] () SMTP, Request, false, "To of a message.";
    EmailCc: "email.cc" [] () SMTP, Request, false, "Cc of a message.";
    EmailSubject: "email.subject" [] () SMTP, Request, false, "Subject of a message.";
    EmailDate: "email.date" [] () SMTP, Request, false, "Date of a message.";
    EmailMessageId: "email.message_id" [] () SMTP, Request, false, "Message-Id of a message.";
    EmailXMailer: "email.x_mailer" [] () SMTP, Request, false, "X-Mailer of a message.";
    EmailBodyMd5: "email.body_md5" [] () SMTP, Request, false, "MD5 sum of what follows the headers of a message as it was sent, in hexadecimal digits.";
    EmailReceived: "email.received" [] () SMTP, Request, true, "A Received line of a message.";
    EmailUrl: "email.url" [] () SMTP, Request, true, "Address of a page in the text of a message, without `http://`.";
    SnmpCommunity: "snmp.community" [] () Some(App::Snmp), Both, false, "Community of SNMP 1 and 2c.";
    SnmpUser: "snmp.usm" [] () Some(App::Snmp), Both, false, "User of SNMP 3.";
    NtpReferenceId: "ntp.reference_id" [] () Some(App::Ntp), Both, false, "Reference identifier of a message of NTP, four bytes.";
    MqttConnectProtocol: "mqtt.connect.protocol_string" [] () MQTT, Request, false, "Name of the protocol in CONNECT.";
    MqttConnectClient: "mqtt.connect.clientid" [] () MQTT, Request, false, "Identifier of a client.";
    MqttConnectUser: "mqtt.connect.username" [] () MQTT, Request, false, "User in CONNECT.";
    MqttConnectPassword: "mqtt.connect.password" [] () MQTT, Request, false, "Password in CONNECT.";
    MqttConnectWillTopic: "mqtt.connect.willtopic" [] () MQTT, Request, false, "Topic of a will.";
    MqttConnectWillMessage: "mqtt.connect.willmessage" [] () MQTT, Request, false, "Message of a will.";
    MqttPublishTopic: "mqtt.publish.topic" [] () MQTT, Both, false, "Topic of what is published.";
    MqttPublishMessage: "mqtt.publish.message" [] () MQTT, Both, false, "What is published.";
    MqttSubscribeTopic: "mqtt.subscribe.topic" [] () MQTT, Request, true, "A topic that is subscribed to.";
    MqttUnsubscribeTopic: "mqtt.unsubscribe.topic" [] () MQTT, Request, true, "A topic that is given up.";
    QuicSni: "quic.sni" [] () QUIC, Request, false, "Server name asked for.";
    QuicUserAgent: "quic.ua" [] () QUIC, Request, false, "User agent.";
    QuicCyuHash: "quic.cyu.hash" [] () QUIC, Request, true, "MD5 sum of quic.cyu.string, in hexadecimal digits.";
    QuicCyuString: "quic.cyu.string" [] () QUIC, Request, true, "Version and tags of a hello of Google's QUIC (Q030 to Q048), as `46,PAD-SNI-VER`.";
    QuicVersion: "quic.version" [] () QUIC, Both, false, "Version, four bytes.";
    RfbName: "rfb.name" [] () Some(App::Rfb), Response, false, "Name of a desktop of RFB.";
    WebsocketPayload: "websocket.payload" [] () Some(App::Websocket), Both, false, "Payload of a message of WebSocket, unmasked, decompressed, and put together of its fragments.";
    EnipProduct: "enip.product_name" [] () Some(App::Enip), Response, true, "Name of a device of EtherNet/IP.";
    EnipService: "enip.service_name" [] () Some(App::Enip), Response, true, "Name of a service of EtherNet/IP.";
    MdnsQuery: "mdns.queries.rrname" [] () MDNS, Both, true, "Name of a question of multicast DNS.";
    MdnsAnswer: "mdns.answers.rrname" [] () MDNS, Both, true, "Name of an answer record of multicast DNS.";
    MdnsAuthority: "mdns.authorities.rrname" [] () MDNS, Both, true, "Name of an authority record of multicast DNS.";
    MdnsAdditional: "mdns.additionals.rrname" [] () MDNS, Both, true, "Name of an additional record of multicast DNS.";
    MdnsResponse: "mdns.response.rrname" [] () MDNS, Both, true, "Any name of a response of multicast DNS: of questions, of all records, and those that records name.";
    Dnp3Data: "dnp3_data" ["dnp3.data"] () Some(App::Dnp3), Both, false, "A message of DNP3 put together of its frames, without their sums.";
    PgsqlQuery: "pgsql.query" [] () Some(App::Pgsql), Request, false, "A simple query of PostgreSQL.";
    Krb5Client: "krb5.cname" ["krb5_cname"] () Some(App::Krb5), Response, true, "A part of the client's name in an answer of Kerberos.";
    Krb5Server: "krb5.sname" ["krb5_sname"] () Some(App::Krb5), Response, true, "A part of the server's name in an answer of Kerberos.";
    IkeInitiator: "ike.init_spi" [] () IKE, Request, false, "Index of the initiator of IKE, hexadecimal.";
    IkeResponder: "ike.resp_spi" [] () IKE, Response, false, "Index of the responder of IKE, hexadecimal.";
    IkeVendor: "ike.vendor" [] () IKE, Request, true, "An identifier of a vendor that the initiator of IKE sends, hexadecimal.";
    IkeKey: "ike.key_exchange_payload" [] () IKE, Both, false, "Data of a key exchange of IKE.";
    IkeNonce: "ike.nonce_payload" [] () IKE, Both, false, "A nonce of IKE.";
    FrameDnsPdu: "frame:dns.pdu" [] () DNS, Both, true, "A message of DNS as sent; over TCP without its length.";
    FrameTlsPdu: "frame:tls.pdu" [] () TLS, Both, true, "A record of TLS as sent, until its end encrypts.";
    FrameTlsHeader: "frame:tls.hdr" [] () TLS, Both, true, "Its head of 5 bytes.";
    FrameTlsData: "frame:tls.data" [] () TLS, Both, true, "What is behind its head.";
    FrameTlsAlert: "frame:tls.alert" [] () TLS, Both, true, "An alert in the clear, behind the head of its record.";
    FrameTlsHeartbeat: "frame:tls.hb" [] () TLS, Both, true, "A heartbeat, behind the head of its record.";
    FrameSshPdu: "frame:ssh.record_pdu" [] () SSH, Both, true, "A packet of SSH as sent, until its end encrypts.";
    FrameSshHeader: "frame:ssh.record_hdr" [] () SSH, Both, true, "Its lengths and its type, 6 bytes.";
    FrameSshData: "frame:ssh.record_data" [] () SSH, Both, true, "What is behind these.";
    FrameRfbPdu: "frame:rfb.pdu" [] () Some(App::Rfb), Both, true, "A message of the handshake of RFB as sent.";
    FramePgsqlPdu: "frame:pgsql.pdu" [] () Some(App::Pgsql), Both, true, "A message of PostgreSQL as sent; of rows and copies only the beginning.";
    FrameModbusPdu: "frame:modbus.pdu" [] () Some(App::Modbus), Both, true, "A message of Modbus as sent.";
    FrameHttp2Pdu: "frame:http2.pdu" [] () Some(App::Http2), Both, true, "A frame of HTTP/2 as sent; of one with more than 512 bytes of a body only the beginning.";
    FrameHttp2Header: "frame:http2.hdr" [] () Some(App::Http2), Both, true, "Its head of 9 bytes.";
    FrameHttp2Data: "frame:http2.data" [] () Some(App::Http2), Both, true, "What is behind its head.";
    FrameHttpRequest: "frame:http1.request" [] () HTTP, Request, true, "A request of HTTP/1 as sent, with 64 KiB of its body at most.";
    FrameHttpResponse: "frame:http1.response" [] () HTTP, Response, true, "A response of HTTP/1 as sent, with 64 KiB of its body at most.";
    FrameSmtpCommand: "frame:smtp.command_line" [] () SMTP, Request, true, "A line of an SMTP client outside of mails, with its end.";
    FrameSmtpReply: "frame:smtp.response_line" [] () SMTP, Response, true, "A line of an SMTP server, with its end.";
    FrameSmtpData: "frame:smtp.data" [] () SMTP, Request, true, "A mail as sent after DATA, 64 KiB of it at most.";
    FrameLdapPdu: "frame:ldap.pdu" [] () LDAP, Both, true, "A message of LDAP as sent.";
    FrameSmb1Pdu: "frame:smb.smb1.pdu" [] () SMB, Both, true, "A message of SMB 1 as sent; of what carries more than 512 bytes with contents of a file only the beginning.";
    FrameSmb1Header: "frame:smb.smb1.hdr" [] () SMB, Both, true, "Its head of 32 bytes.";
    FrameSmb1Data: "frame:smb.smb1.data" [] () SMB, Both, true, "What is behind its head.";
    FrameSmb2Pdu: "frame:smb.smb2.pdu" [] () SMB, Both, true, "A message of SMB 2 as sent; of what carries more than 512 bytes with contents of a file only the beginning.";
    FrameSmb2Header: "frame:smb.smb2.hdr" [] () SMB, Both, true, "Its head of 64 bytes.";
    FrameSmb2Data: "frame:smb.smb2.data" [] () SMB, Both, true, "What is behind its head.";
    FrameWebsocketPdu: "frame:websocket.pdu" [] () Some(App::Websocket), Both, true, "A frame of WebSocket as sent, as far as its payload is kept.";
    FrameWebsocketHeader: "frame:websocket.header" [] () Some(App::Websocket), Both, true, "The head of a frame of WebSocket.";
    FrameWebsocketData: "frame:websocket.data" [] () Some(App::Websocket), Both, true, "Its payload as sent.";
    FrameEnipPdu: "frame:enip.pdu" [] () Some(App::Enip), Both, true, "A message of EtherNet/IP as sent.";
    FrameEnipHeader: "frame:enip.hdr" [] () Some(App::Enip), Both, true, "Its head.";
    FrameEnipData: "frame:enip.data" [] () Some(App::Enip), Both, true, "What is behind its head.";
    FrameEnipItem: "frame:enip.enip.item" [] () Some(App::Enip), Both, true, "An item of a message of EtherNet/IP, with its type and length.";
    FrameEnipCip: "frame:enip.cip" [] () Some(App::Enip), Both, true, "A message of CIP, also one among several in another.";
    FrameSipPdu: "frame:sip.pdu" [] () Some(App::Sip), Both, true, "A message of SIP as sent; over TCP without a body of more than 64 KiB.";
    FrameSipRequestLine: "frame:sip.request.line" [] () Some(App::Sip), Request, true, "Its first line with its end, of a request.";
    FrameSipRequestHeaders: "frame:sip.request.headers" [] () Some(App::Sip), Request, true, "Its header fields, without the empty line.";
    FrameSipRequestBody: "frame:sip.request.body" [] () Some(App::Sip), Request, true, "Its body.";
    FrameSipResponseLine: "frame:sip.response.line" [] () Some(App::Sip), Response, true, "The first line of a response with its end.";
    FrameSipResponseHeaders: "frame:sip.response.headers" [] () Some(App::Sip), Response, true, "Its header fields, without the empty line.";
    FrameSipResponseBody: "frame:sip.response.body" [] () Some(App::Sip), Response, true, "Its body.";
    FrameMqttPdu: "frame:mqtt.pdu" [] () Some(App::Mqtt), Both, true, "A message of MQTT as sent.";
    FrameMqttHeader: "frame:mqtt.header" [] () Some(App::Mqtt), Both, true, "Its fixed header.";
    FrameMqttData: "frame:mqtt.data" [] () Some(App::Mqtt), Both, true, "What is behind its fixed header.";
    FrameDcerpcPdu: "frame:dcerpc.pdu" [] () Some(App::Dcerpc), Both, true, "A message of DCE/RPC over TCP as sent.";
    FrameDcerpcHeader: "frame:dcerpc.hdr" [] () Some(App::Dcerpc), Both, true, "Its head of 16 bytes.";
    FrameDcerpcData: "frame:dcerpc.data" [] () Some(App::Dcerpc), Both, true, "What is behind its head.";
    SipMethod: "sip.method" [] () SIP, Both, false, "Method of a request of SIP, which either end may send.";
    SipUri: "sip.uri" [] () SIP, Both, false, "What a request of SIP is about.";
    SipProtocol: "sip.protocol" [] () SIP, Both, false, "Version of a message of SIP.";
    SipRequestLine: "sip.request_line" [] () SIP, Both, false, "First line of a request of SIP.";
    SipResponseLine: "sip.response_line" [] () SIP, Both, false, "First line of a response of SIP.";
    SipStatusCode: "sip.stat_code" [] () SIP, Both, false, "Status code of SIP.";
    SipStatusMessage: "sip.stat_msg" [] () SIP, Both, false, "Reason phrase of SIP.";
    SipFrom: "sip.from" [] () SIP, Both, true, "From, also in its compact form.";
    SipTo: "sip.to" [] () SIP, Both, true, "To, also in its compact form.";
    SipVia: "sip.via" [] () SIP, Both, true, "A Via, also in its compact form.";
    SipUserAgent: "sip.user_agent" [] () SIP, Both, true, "User-Agent of SIP.";
    SipContentType: "sip.content_type" [] () SIP, Both, true, "Content-Type of SIP, also in its compact form.";
    SipContentLength: "sip.content_length" [] () SIP, Both, true, "Content-Length of SIP, also in its compact form.";
    SdpOrigin: "sdp.origin" [] () SIP, Both, true, "Who made a description of a session (SDP), its number and address.";
    SdpSessionName: "sdp.session_name" [] () SIP, Both, true, "Name of the session.";
    SdpSessionInfo: "sdp.session_info" [] () SIP, Both, true, "What the session is about.";
    SdpUri: "sdp.uri" [] () SIP, Both, true, "Where more is said of the session.";
    SdpEmail: "sdp.email" [] () SIP, Both, true, "An address for questions about the session.";
    SdpPhoneNumber: "sdp.phone_number" [] () SIP, Both, true, "A number for questions about the session.";
    SdpConnectionData: "sdp.connection_data" [] () SIP, Both, true, "Address of the session.";
    SdpBandwidth: "sdp.bandwidth" [] () SIP, Both, true, "A bandwidth, of the session or of a medium.";
    SdpTime: "sdp.time" [] () SIP, Both, true, "When the session begins and ends.";
    SdpRepeatTime: "sdp.repeat_time" [] () SIP, Both, true, "When it repeats.";
    SdpTimezone: "sdp.timezone" [] () SIP, Both, true, "Changes of its time zone.";
    SdpEncryptionKey: "sdp.encryption_key" [] () SIP, Both, true, "Key of the session.";
    SdpAttribute: "sdp.attribute" [] () SIP, Both, true, "An attribute, of the session or of a medium.";
    SdpMedia: "sdp.media.media" [] () SIP, Both, true, "A medium: kind, port, transport, formats.";
    SdpMediaInfo: "sdp.media.media_info" [] () SIP, Both, true, "What the medium is about.";
    SdpMediaConnectionData: "sdp.media.connection_data" [] () SIP, Both, true, "Address of the medium.";
    SdpMediaEncryptionKey: "sdp.media.encryption_key" [] () SIP, Both, true, "Key of the medium.";
}

/// A set of buffers: what the loaded rules need, so that parsers fill no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSet([u64; 4]);

const _: () = assert!(Buffer::ALL.len() <= 256);

impl BufferSet {
    /// Every buffer.
    pub fn all() -> BufferSet {
        BufferSet([u64::MAX; 4])
    }

    /// Adds one.
    pub fn insert(&mut self, buffer: Buffer) {
        let [word, bit] = BufferSet::place(buffer);
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << bit;
        }
    }

    /// Whether it is there.
    pub fn has(self, buffer: Buffer) -> bool {
        let [word, bit] = BufferSet::place(buffer);
        self.0.get(word).is_some_and(|word| word & 1 << bit != 0)
    }

    /// In which word it is, and in which bit.
    fn place(buffer: Buffer) -> [usize; 2] {
        let number = buffer as usize;
        [number / 64, number % 64]
    }
}

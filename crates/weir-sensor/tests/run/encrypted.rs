//! What TLS and SSH encrypt is searched only if it is asked for; what the rules of headers say holds as ever.

use super::bed::{CLIENT, Folder, How, SERVER, Tape, sense_tape, sense_within};

const RULES: &str = r#"
alert tcp any any -> any any (msg:"in the stream"; flow:to_server,established; content:"needle in it"; sid:1;)
alert tcp-pkt any any -> any any (msg:"in a packet"; flow:to_server,established; content:"needle in it"; sid:2;)
alert tcp any any -> any any (msg:"of this size"; flow:to_server,established; dsize:34; sid:3;)
alert tcp any any -> any any (msg:"before"; flow:to_server,established; content:"begins here"; sid:4;)
"#;

/// 34 bytes, as a record of TLS or a packet of SSH might look.
const SECRET: &[u8] = b"\x17\x03\x03\x00\x1dthere is a needle in it, once";

/// A record of TLS.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut all = vec![kind, 3, 3, (body.len() >> 8) as u8, body.len() as u8];
    all.extend_from_slice(body);
    all
}

/// A hello in a record: of the client (1) or the server (2).
fn hello(kind: u8) -> Vec<u8> {
    hello_of(kind, &[])
}

/// The same of a session with an identifier.
fn hello_of(kind: u8, session: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(b"begins here, and is 32 bytes now");
    body.push(session.len() as u8);
    body.extend_from_slice(session);
    body.extend_from_slice(match kind {
        1 => &[0, 2, 0, 0x2f, 1, 0],
        _ => &[0, 0x2f, 0],
    });
    let mut message = vec![kind, 0, 0, body.len() as u8];
    message.extend_from_slice(&body);
    record(22, &message)
}

fn seen(server: u16, said: &[&[u8]], how: &How) -> Vec<u64> {
    assert_eq!(SECRET.len(), 34);
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, server), said);
    let mut sids = sense_tape(&tape, how).sids();
    sids.sort_unstable();
    sids.dedup();
    sids
}

#[test]
fn what_tls_encrypts() {
    let change = record(20, &[1]);
    let [client, server] = [hello(1), hello(2)].map(|mut hello| {
        hello.extend_from_slice(&change);
        hello
    });
    let said: [&[u8]; 5] = [&client, &server, SECRET, SECRET, SECRET];
    let how = How::rules(RULES);
    assert_eq!(seen(443, &said, &how), [3, 4]);
    let full = how.set("app-layer.protocols.tls.encryption-handling=full");
    assert_eq!(seen(443, &said, &full), [1, 2, 3, 4]);
}

#[test]
fn what_ssh_encrypts() {
    // The message that new keys are used from here on, with ten bytes of padding.
    let keys = b"\x00\x00\x00\x0c\x0a\x15\0\0\0\0\0\0\0\0\0\0";
    let banner = |name: &str| [b"SSH-2.0-", name.as_bytes(), b"\r\n", keys].concat();
    let (client, server) = (banner("begins here"), banner("there"));
    let said: [&[u8]; 3] = [&client, &server, SECRET];
    let how = How::rules(RULES);
    assert_eq!(seen(22, &said, &how), [3, 4]);
    let full = how.set("app-layer.protocols.ssh.encryption-handling=full");
    assert_eq!(seen(22, &said, &full), [1, 2, 3, 4]);
}

#[test]
fn a_server_that_never_answered_has_no_version() {
    let rules = "alert tls any any -> any any (msg:\"r\"; flow:to_client; tls.version:1.2; sid:1;)
alert tls any any -> any any (msg:\"r\"; flow:to_client; ssl_state:!client_hello; sid:2;)
alert tls any any -> any any (msg:\"r\"; flow:to_client; ssl_version:!sslv3; sid:3;)
alert tls any any -> any any (msg:\"r\"; flow:to_server; tls.version:1.2; sid:4;)
alert tls any any -> any any (msg:\"r\"; flow:to_server; ssl_state:!server_hello; sid:5;)\n";
    let [client, server] = [hello(1), hello(2)];
    let how = How::rules(rules);
    assert_eq!(seen(443, &[&client], &how), [4, 5]);
    assert_eq!(seen(443, &[&client, &server], &how), [1, 2, 3, 4, 5]);
}

#[test]
fn what_only_looks_like_tls_is_searched() {
    let said: [&[u8]; 3] = [b"begins here", b"answer", SECRET];
    assert_eq!(seen(443, &said, &How::rules(RULES)), [1, 2, 3, 4]);
}

/// An element of DER of up to 255 bytes.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let mut all = vec![tag, 0x81, content.len() as u8];
    all.extend_from_slice(&content);
    all
}

/// A handshake message, in a record.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    record(22, &[&[kind], &length[1..], body].concat())
}

fn certificate(name: &[u8]) -> Vec<u8> {
    let name = der(0x0c, &[name]);
    let name = der(0x30, &[&der(6, &[&[0x55, 4, 3]]), &name]);
    let name = der(0x30, &[&der(0x31, &[&name])]);
    let times = [b"200101000000Z", b"480101000000Z"].map(|t| der(0x17, &[t]));
    let empty = der(0x30, &[]);
    let times = der(0x30, &[&times[0], &times[1]]);
    let all = [&der(2, &[&[7]])[..], &empty, &name, &times, &name, &empty];
    let der = der(0x30, &[&der(0x30, &all)]);
    let list = |body: &[u8]| [&(body.len() as u32).to_be_bytes()[1..], body].concat();
    message(11, &list(&list(&der)))
}

/// What is said of a certificate is the server's, and is told once; so is a heartbeat that comes late; and a record says what was spoken before.
#[test]
fn certificates_and_heartbeats_are_told_once() {
    let rules = r#"
alert tls any any -> any any (msg:"valid"; tls_cert_valid; sid:1;)
alert tls any any -> any any (msg:"one"; tls.cert_chain_len:1; sid:2;)
alert tls any any -> any any (msg:"new"; tls_cert_notbefore:>2019; sid:3;)
alert tls any any -> any any (msg:"of the client"; tls.cert_chain_len:1; flow:to_server; sid:4;)
alert tls any any -> any any (msg:"bleeds"; app-layer-event:tls.overflow_heartbeat_message; sid:5;)
alert tcp any any -> any any (msg:"mail"; app-layer-protocol:smtp; flow:to_server; sid:6;)
alert tcp any any -> any any (msg:"then TLS \d\."; app-layer-protocol:tls; flow:to_server; sid:7;)
"#;
    let server = [hello(2), certificate(b"a.example"), message(14, &[])].concat();
    let beat = record(24, &[1, 0x40, 0]);
    let exchanged = [message(16, &[0; 8]), record(20, &[1])].concat();
    let end = record(20, &[1]);
    let said: &[&[u8]] = &[
        b"EHLO me\r\n",
        b"220 mx ESMTP\r\n250 you\r\n",
        b"STARTTLS\r\n",
        b"220 go\r\n",
        &hello(1),
        &server,
        &beat,
        b"",
        &exchanged,
        &end,
        SECRET,
    ];
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 25), said);
    let left = sense_tape(&tape, &How::rules(rules));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3, 5, 6, 7]);
    let said = |a: &&&serde_json::Value| a["alert"]["signature"] == "then TLS d.";
    assert_eq!(left.of("alert").iter().filter(said).count(), 1);
    let [record] = left.of("tls")[..] else {
        panic!("one record, not {}", left.of("tls").len());
    };
    assert_eq!(record["tls"]["from_proto"], "smtp");
    assert_eq!(record["tls"]["subject"], "CN=a.example");
}

/// A configuration names what records of TLS have, as of other protocols.
#[test]
fn records_of_tls_are_brief_unless_more_is_asked_for() {
    let server = [hello(2), certificate(b"a.example"), message(14, &[])].concat();
    let end = record(20, &[1]);
    let exchanged = [message(16, &[0; 8]), end.clone()].concat();
    let whole: &[&[u8]] = &[&hello(1), &server, &exchanged, &end, SECRET];
    // The server names the client's session again, and shows no certificate.
    let short = [hello_of(2, &[7; 32]), end.clone()].concat();
    let resumed: &[&[u8]] = &[&hello_of(1, &[7; 32]), &short, &end, SECRET];
    let types = "outputs.0.eve-log.types.1";
    for (settings, extended, tells_resumed) in [
        (format!("{types}=tls"), false, false),
        (format!("{types}.tls.extended=no"), false, true),
        (format!("{types}.tls.extended=yes"), true, true),
        (format!("{types}.tls.session-resumption=no"), false, false),
        (format!("{types}.tls.session-resumption=yes"), false, true),
    ] {
        let told = |said: &[&[u8]]| {
            let mut tape = Tape::default();
            tape.session((CLIENT, 40_000), (SERVER, 443), said);
            let how = How::rules("")
                .set("outputs.1.fast.enabled=yes")
                .set("outputs.0.eve-log.types.0=alert");
            let left = sense_tape(&tape, &how.set(&settings));
            left.of("tls").into_iter().cloned().collect::<Vec<_>>()
        };
        let [record] = &told(whole)[..] else {
            panic!("one record: {settings}");
        };
        assert_eq!(record["tls"]["subject"], "CN=a.example", "{settings}");
        for field in ["version", "fingerprint", "serial", "notbefore"] {
            let has = record["tls"].get(field).is_some();
            assert_eq!(has, extended, "{field} {settings}");
        }
        let of_resumed = told(resumed);
        assert_eq!(of_resumed.len(), usize::from(tells_resumed), "{settings}");
        let is_said = |r: &serde_json::Value| r["tls"]["session_resumed"] == true;
        assert!(of_resumed.iter().all(is_said), "{settings} {of_resumed:?}");
    }
}

/// What a client shows and sends after its hello is of its direction; what was said of its hello is not said again.
#[test]
fn certificates_and_keys_of_clients() {
    let rules = r#"
alert tls any any -> any any (msg:"r"; flow:to_server; tls.cert_subject; content:"b.client"; sid:1;)
alert tls any any -> any any (msg:"r"; tls.cert_subject; content:"b.client"; sid:2;)
alert tls any any -> any any (msg:"both"; tls.cert_issuer; content:"CN="; sid:3;)
alert tls any any -> any any (msg:"no"; flow:to_client; tls.cert_subject; content:"b.client"; sid:4;)
alert tls any any -> any any (msg:"r"; flow:to_server; tls.random; content:"begins"; sid:5;)
alert tls any any -> any any (msg:"r"; ssl_state:client_keyx; sid:6;)
alert tls any any -> any any (msg:"r"; ssl_state:client_hello; sid:7;)
alert tls any any -> any any (msg:"r"; flow:to_server; tls.certs; content:"b.client"; sid:8;)
alert tls any any -> any any (msg:"r"; flow:to_server; tls.cert_serial; content:"07"; tls.random; content:"begins"; sid:9;)
alert tls any any -> any any (msg:"no"; flow:to_server; tls.cert_subject; content:"a.example"; sid:10;)
alert tls any any -> any any (msg:"both"; tls.cert_fingerprint; pcre:"/^([0-9a-f]{2}:){19}[0-9a-f]{2}$/"; sid:11;)
"#;
    let server = [certificate(b"a.example"), message(13, &[1, 1, 0, 0])].concat();
    let server = [hello(2), server, message(14, &[])].concat();
    let end = record(20, &[1]);
    let client = [certificate(b"b.client"), message(16, &[0; 8]), end.clone()].concat();
    let said: &[&[u8]] = &[&hello(1), &server, &client, &end, SECRET];
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 443), said);
    let left = sense_tape(&tape, &How::rules(rules));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3, 3, 5, 6, 7, 8, 9, 11, 11]);
    let [record] = left.of("tls")[..] else {
        panic!("one record, not {}", left.of("tls").len());
    };
    assert_eq!(record["tls"]["client"]["subject"], "CN=b.client");
}

/// A hello that nobody answered is no connection to tell of, though rules see it.
#[test]
fn a_handshake_that_came_to_nothing_is_no_record() {
    let rules =
        r#"alert tls any any -> any any (msg:"a hello"; tls.random; content:"begins"; sid:1;)"#;
    let mut tape = Tape::default();
    let refusal = record(21, &[2, 40]);
    tape.session((CLIENT, 40_000), (SERVER, 443), &[&hello(1), &refusal]);
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1]);
    assert!(left.of("tls").is_empty());
}

/// `tls.store`: the chain of the end that a rule is about, once, with what is said of it.
#[test]
fn certificates_are_written_out() {
    let server = [hello(2), certificate(b"a.example"), message(14, &[])].concat();
    let client = [certificate(b"b.client"), message(16, &[0; 8])].concat();
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 443),
        &[&hello(1), &server, &client],
    );
    let rules = "alert tls any any -> any any (msg:\"s\"; tls.cert_subject; content:\"a.example\"; tls.store; sid:1;)
alert tls any any -> any any (msg:\"again\"; tls.cert_subject; content:\"example\"; tls_store; sid:2;)
alert tls any any -> any any (msg:\"c\"; tls.cert_subject; content:\"b.client\"; tls.store; sid:3;)
alert tls any any -> any any (msg:\"none\"; tls.cert_subject; content:\"c.example\"; tls.store; sid:4;)\n";
    let how = How::rules(rules)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.1.fast.enabled=yes");
    for (workers, enabled) in [(1, true), (4, true), (1, false)] {
        let folder = Folder::new();
        let capture = folder.0.join("tape.pcap");
        std::fs::write(&capture, tape.pcap()).expect("written");
        let enabled_key = format!("outputs.2.tls-store.enabled={enabled}");
        let how = how.clone().workers(workers).set(&enabled_key);
        sense_within(&folder, &[capture], &how);
        let certs = folder.0.join("certs");
        let mut names: Vec<String> = std::fs::read_dir(&certs)
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("an entry").file_name().display().to_string())
            .collect();
        names.sort();
        if !enabled {
            assert!(names.is_empty(), "{names:?}");
            continue;
        }
        let [meta, pem, client_meta, client_pem] = &names[..] else {
            panic!("two chains: {names:?}");
        };
        assert!(client_pem.starts_with("client-") && client_pem.ends_with("-2.pem"));
        assert!(pem.starts_with("1704067200.") && pem.ends_with("-1.pem"));
        let read = |name: &str| std::fs::read_to_string(certs.join(name)).expect("text");
        let text = read(pem);
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----\n"), "{text}");
        assert!(text.ends_with("-----END CERTIFICATE-----\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 64));
        let about = read(meta);
        assert!(
            about.contains("SRC IP:            198.51.100.80\n"),
            "{about}"
        );
        assert!(
            about.contains("TLS SUBJECT:       CN=a.example\n"),
            "{about}"
        );
        assert!(read(client_meta).contains("TLS CLIENT SUBJECT:CN=b.client"));
    }
}

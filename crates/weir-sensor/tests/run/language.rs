//! Words of the rule language that say when a rule is decided, what it keeps and what it keeps out of the log: each with what must alert, and what must not.

use weir_packet::build::Frame;

use super::bed::{ANSWER, CLIENT, How, Left, SERVER, Tape, sense_tape, web};

fn sids(left: &Left) -> Vec<u64> {
    let mut sids = left.sids();
    sids.sort_unstable();
    sids
}

/// Rules of headers and options, numbered from 1.
fn rules(list: &[(&str, &str)]) -> String {
    let numbered = list.iter().zip(1..);
    numbered
        .map(|((head, options), sid)| {
            format!("{head} any any -> any any (msg:\"r\"; {options} sid:{sid};)\n")
        })
        .collect()
}

const GET: &str = "GET /one HTTP/1.1\r\nHost: www.example\r\nUser-Agent: agent/7 beta\r\n\r\n";

#[test]
fn hooks_of_transactions() {
    let list = [
        ("alert http1:request_line", "http.method; content:\"GET\";"),
        ("alert http1:request_complete", ""),
        ("alert http1:response_started", ""),
        ("alert http1:response_complete", ""),
        ("alert http:request_complete", "http.uri; content:\"/one\";"),
        (
            "alert http1:request_headers",
            "http.host; content:\"elsewhere\";",
        ),
        ("alert dns:request_complete", ""),
        ("alert tls:client_hello_done", ""),
    ];
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER);
    assert_eq!(
        sids(&sense_tape(&tape, &How::rules(&rules(&list)))),
        [1, 2, 3, 4, 5]
    );
    // The answer never comes, and the request never ends.
    let mut tape = Tape::default();
    let begun = b"POST /one HTTP/1.1\r\nHost: www.example\r\nContent-Length: 100\r\n\r\nten bytes!";
    tape.session((CLIENT, 40_001), (SERVER, 80), &[begun]);
    tape.frames.truncate(5);
    let list = [
        ("alert http1:request_started", ""),
        ("alert http1:request_complete", ""),
        ("alert http1:response_started", ""),
        ("alert http1:response_complete", ""),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1], "{}", left.text);
}

#[test]
fn hooks_of_packets() {
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER);
    let datagram = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 9);
    tape.push(&datagram.payload(b"one"));
    let list = [
        ("alert tcp:all", "flags:S;"),
        ("alert tcp:flow_start", ""),
        ("alert udp:flow_start", ""),
        ("alert ip:all", "content:\"one\";"),
        ("alert tcp:pre_flow", "flags:SA;"),
        ("alert icmp:all", ""),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    // The first packet of each direction; the content in the stream and in the datagram.
    assert_eq!(sids(&left), [1, 2, 2, 3, 4, 4, 5], "{}", left.text);
}

#[test]
fn what_a_flow_spoke_before_and_each_side_speaks() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[GET.as_bytes(), b"SSH-2.0-server\r\n"],
    );
    let list = [
        ("alert tcp", "app-layer-protocol:http,to_server;"),
        ("alert tcp", "app-layer-protocol:http,to_client;"),
        ("alert tcp", "app-layer-protocol:ssh,to_client;"),
        ("alert tcp", "app-layer-protocol:ssh,either;"),
        ("alert tcp", "app-layer-protocol:smtp,either;"),
        ("alert tcp", "app-layer-protocol:http,original;"),
        ("alert tcp", "app-layer-protocol:!http,to_client;"),
        (
            "alert tcp",
            "app-layer-protocol:!ssh,to_server; flow:to_server;",
        ),
        ("alert tcp", "app-layer-protocol:ssh,final;"),
        ("alert tcp", "app-layer-protocol:unknown; flags:S;"),
        ("alert tcp", "app-layer-protocol:unknown; content:\"SSH\";"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    let mut found = sids(&left);
    found.dedup();
    assert_eq!(found, [1, 3, 4, 7, 8, 10], "{}", left.text);
}

#[test]
fn captures_are_kept() {
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER);
    let list = [
        (
            "alert http",
            "http.user_agent; pcre:\"/^(\\w+).(.*)$/, flow:agent, pkt:rest\";",
        ),
        (
            "alert http",
            "http.user_agent; pcre:\"/(?P<alert_name>[a-z]+)\\/(?P<flow_number>\\d+)/\";",
        ),
        // What does not hold keeps nothing.
        (
            "alert http",
            "http.user_agent; pcre:\"/(agent)/, flow:never\"; content:\"gamma\";",
        ),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2]);
    for alert in left.of("alert") {
        let kept = &alert["metadata"];
        assert_eq!(kept["pktvars"][0]["rest"], "7 beta", "{alert}");
        assert_eq!(kept["flowvars"][0]["agent"], "agent", "{alert}");
        assert_eq!(kept["flowvars"][1]["number"], "7", "{alert}");
        let named = alert["alert"]["signature_id"] == 2;
        let context = &alert["alert"]["context"];
        assert_eq!(context["name"] == "agent", named, "{alert}");
    }
    let flow = &left.of("flow")[0]["metadata"];
    assert_eq!(flow["flowvars"].as_array().map(Vec::len), Some(2), "{flow}");
    assert!(flow.get("pktvars").is_none(), "{flow}");
}

#[test]
fn transactions_kept_out_of_the_log() {
    let mut tape = Tape::default();
    let two = format!("{GET}GET /two HTTP/1.1\r\nHost: www.example\r\n\r\n");
    web(&mut tape, 40_000, &two, &ANSWER.repeat(2));
    let list = [
        (
            "config http",
            "http.uri; content:\"/two\"; config:logging disable, type tx, scope tx;",
        ),
        ("alert http", "http.stat_code; content:\"200\";"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    // Alerts there are all the same, and none of the first rule.
    assert_eq!(sids(&left), [2, 2], "{}", left.text);
    let records = left.of("http");
    assert_eq!(records.len(), 1, "{}", left.text);
    assert_eq!(records[0]["http"]["url"], "/one");
}

#[test]
fn bits_and_units_of_numbers() {
    let mut tape = Tape::default();
    for ttl in [0x41, 0x52] {
        let datagram = Frame::new().ip4(CLIENT, SERVER).udp(40_000 + ttl, 9);
        let mut frame = datagram.payload(&[b'x'; 1025]).build();
        frame[22] = ttl as u8;
        tape.frames.push((super::bed::START, frame));
    }
    let list = [
        ("alert udp", "ttl:&0xf0=0x40;"),
        ("alert udp", "ttl:&0xf0!=0x40;"),
        ("alert udp", "ttl:&0x80=0x80;"),
        ("alert udp", "dsize:>1KiB;"),
        ("alert udp", "dsize:>2kb;"),
        ("alert udp", "dsize:&1=1;"),
        ("alert udp", "dsize:&1=0;"),
    ];
    let left = sense_tape(
        &tape,
        &How::rules(&rules(&list)).set("stream.checksum-validation=no"),
    );
    assert_eq!(sids(&left), [1, 2, 4, 4, 6, 6], "{}", left.text);
}

#[test]
fn pages_and_stations_of_mail() {
    let message = b"Received: from one (helo=CLUB) by two\r\nReceived: from zero by one\r\nFrom: A <a@example.org>\r\nContent-Type: text/plain\r\n\r\nsee http://Site.example/Blah and\r\nhttp://other.example/\r\n.\r\n";
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 43_000),
        (SERVER, 25),
        &[
            b"EHLO me\r\n",
            b"220 hi\r\n250 ok\r\n",
            b"MAIL FROM:<a@example.org>\r\n",
            b"250 ok\r\n",
            b"RCPT TO:<b@example.org>\r\n",
            b"250 ok\r\n",
            b"DATA\r\n",
            b"354 go\r\n",
            message,
            b"250 ok\r\n",
            b"QUIT\r\n",
            b"221 bye\r\n",
        ],
    );
    let list = [
        (
            "alert smtp",
            "email.url; content:\"Site.example/Blah\"; bsize:17;",
        ),
        (
            "alert smtp",
            "email.url; content:\"other.example/\"; startswith;",
        ),
        ("alert smtp", "email.url; content:\"third.example\";"),
        ("alert smtp", "email.received; content:\"helo=CLUB\";"),
        (
            "alert smtp",
            "email.received; content:\"from zero\"; startswith;",
        ),
        ("alert smtp", "email.received; content:\"from two\";"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2, 4, 5], "{}", left.text);
}

#[test]
fn what_passes_may_be_told() {
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER);
    let list = [
        ("pass http", "http.uri; content:\"/one\"; alert;"),
        ("drop http", "http.method; content:\"GET\";"),
        ("alert http", "http.stat_code; content:\"200\";"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1], "{}", left.text);
    let quiet = rules(&list).replace(" alert;", "");
    assert!(sense_tape(&tape, &How::rules(&quiet)).sids().is_empty());
}

const GET_TWO: &str = "GET /two HTTP/1.1\r\nHost: www.example\r\nReferer: one\r\n\r\n";
const ANSWER_TWO: &str = "HTTP/1.1 404 Gone\r\nContent-Length: 5\r\n\r\nworld";

#[test]
fn raw_contents_are_about_one_message() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[
            GET.as_bytes(),
            ANSWER.as_bytes(),
            GET_TWO.as_bytes(),
            ANSWER_TWO.as_bytes(),
        ],
    );
    let list = [
        // Of two requests, or two answers.
        ("alert tcp", "content:\"/one\"; content:\"/two\";"),
        ("alert tcp", "content:\"hello\"; content:\"world\";"),
        (
            "alert http",
            "content:\"/one\"; http.uri; content:\"/two\";",
        ),
        (
            "alert http",
            "content:\"hello\"; http.stat_code; content:\"404\";",
        ),
        // Of a request and its answer.
        (
            "alert http",
            "content:\"agent\"; http.protocol; content:\"HTTP/1.1\"; flow:to_client;",
        ),
        // What the first has and the second has not.
        ("alert tcp", "content:\"/two\"; content:!\"agent\";"),
        (
            "alert http",
            "content:!\"hello\"; http.stat_code; content:\"404\";",
        ),
        (
            "alert http",
            "content:\"agent\"; http.uri; content:\"/one\";",
        ),
        // Once for each message, and not again at the end.
        ("alert tcp", "flow:to_server; content:!\"nowhere\";"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [6, 7, 8, 9, 9], "{}", left.text);
    // A message in two segments is one; so are two in one segment.
    for parts in [
        [GET, GET_TWO],
        ["GET /on", &GET[7..]],
        [&GET[..30], &GET[30..]],
    ] {
        let whole = parts[0].len() + parts[1].len() == GET.len();
        let mut tape = Tape::default();
        let mut said: Vec<&[u8]> = vec![parts[0].as_bytes()];
        let both = [GET, GET_TWO].concat();
        if whole {
            said.extend([&b""[..], parts[1].as_bytes()]);
        } else {
            said = vec![both.as_bytes()];
        }
        tape.session((CLIENT, 40_000), (SERVER, 80), &said);
        let list = [
            ("alert tcp", "content:\"GET /one\"; content:\"agent\";"),
            ("alert tcp", "content:\"/one\"; content:\"/two\";"),
        ];
        let left = sense_tape(&tape, &How::rules(&rules(&list)));
        let wanted = if whole { &[1][..] } else { &[1, 2] };
        assert_eq!(sids(&left), wanted, "{parts:?} {}", left.text);
    }
}

#[test]
fn an_answer_that_never_came_lacks_nothing() {
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 80), &[GET.as_bytes()]);
    let list = [
        ("alert http", "http.server; absent;"),
        ("alert http", "http.cookie; absent; flow:to_client;"),
        ("alert http", "http.cookie; absent; flow:to_server;"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [3], "{}", left.text);
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER_TWO);
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2, 3], "{}", left.text);
    // Nor does a greeting lack a command.
    for (said, wanted) in [(&b"USER a\r\n"[..], &[][..]), (b"PWD\r\n", &[1])] {
        let mut tape = Tape::default();
        tape.session(
            (CLIENT, 40_000),
            (SERVER, 21),
            &[b"", b"220 hi\r\n", said, b"331 so\r\n"],
        );
        let list = [("alert ftp", "ftp.command_data; absent;")];
        let left = sense_tape(&tape, &How::rules(&rules(&list)));
        assert_eq!(sids(&left), wanted, "{}", left.text);
    }
    // Who says nothing, and replies, which carry no files.
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 22), &[b"SSH-2.0-me\r\n"]);
    let mail: [&[u8]; 6] = [
        b"",
        b"220 hi\r\n",
        b"EHLO me\r\n",
        b"250 ok\r\n",
        b"QUIT\r\n",
        b"221 bye\r\n",
    ];
    tape.session((CLIENT, 40_001), (SERVER, 25), &mail);
    let list = [
        ("alert ssh", "ssh.software; absent;"),
        ("alert smtp", "file.data; absent; flow:to_client;"),
        ("alert smtp", "file.data; absent; flow:to_server;"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [3], "{}", left.text);
}

#[test]
fn sizes_of_streams_count_sequence_numbers() {
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 9), &[b"12345", b"123"]);
    let list = [
        (
            "alert tcp",
            "flags:A; flow:to_server; stream_size:client,=,1;",
        ),
        (
            "alert tcp",
            "flags:PA; flow:to_server; stream_size:client,=,6;",
        ),
        (
            "alert tcp",
            "flags:FA; flow:to_client; stream_size:server,=,5;",
        ),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2, 3], "{}", left.text);
}

#[test]
fn a_protocol_is_that_of_the_direction() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[GET.as_bytes(), b"SSH-2.0-server\r\n"],
    );
    // Nothing ever comes back.
    tape.session((CLIENT, 40_001), (SERVER, 80), &[GET.as_bytes()]);
    web(&mut tape, 40_002, GET, ANSWER);
    let list = [
        ("alert tcp", "flow:to_client; app-layer-protocol:http;"),
        ("alert tcp", "flow:to_client; app-layer-protocol:!http;"),
        ("alert tcp", "flow:to_server; app-layer-protocol:http|ftp;"),
        ("alert tcp", "app-layer-protocol:ssh|http,direction,exact;"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    let mut found = sids(&left);
    found.dedup();
    assert_eq!(found, [1, 2, 3, 4], "{}", left.text);
    let ports = |sid: u64| {
        let mut ports: Vec<u64> = (left.of("alert").iter())
            .filter(|a| a["alert"]["signature_id"] == sid)
            .map(|a| {
                let port = |k: &str| a[k].as_u64().unwrap_or(0);
                port("src_port").max(port("dest_port"))
            })
            .collect();
        ports.dedup();
        ports
    };
    assert_eq!(ports(1), [40_002]);
    assert_eq!(ports(2), [40_000]);
}

#[test]
fn that_nothing_is_known_yet_is_asked_of_packets_only() {
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER);
    let list = [
        // Nothing happens that these could hold of.
        ("alert tcp", "app-layer-protocol:unknown;"),
        ("alert tcp", "flow:to_server; app-layer-protocol:unknown;"),
        ("alert tcp", "app-layer-protocol:unknown,to_client;"),
        // What is in the stream is looked for when it is known.
        ("alert tcp", "app-layer-protocol:unknown; content:\"GET\";"),
        (
            "alert tcp",
            "app-layer-protocol:unknown; content:\"GET\"; startswith;",
        ),
        (
            "alert tcp",
            "flow:established; app-layer-protocol:unknown; dsize:>0;",
        ),
        ("alert tcp", "app-layer-protocol:http; content:\"GET\";"),
        ("alert tcp", "app-layer-protocol:http;"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    // The request and the answer come before it is known what they are.
    assert_eq!(sids(&left), [5, 6, 6, 7, 8, 8], "{}", left.text);
}

#[test]
fn what_has_no_ports_is_at_none() {
    let mut tape = Tape::default();
    tape.push(&Frame::new().ip4(CLIENT, SERVER).icmp(8, 0).echo(1, 1));
    let (six, other) = ([0x20; 16], [0x21; 16]);
    tape.push(&Frame::new().ip6(six, other).udp(40_000, 9).payload(b"six"));
    let rules = "alert ip any any -> any :1000 (msg:\"r\"; itype:8; sid:1;)
alert ip any any -> any !80 (msg:\"r\"; itype:8; sid:2;)
alert icmp any 0 -> any any (msg:\"r\"; itype:8; sid:3;)
alert icmp any any -> any any (msg:\"r\"; itype:8; sid:4;)
alert ip any any -> any !80 (msg:\"r\"; content:\"six\"; sid:5;)
alert ip any any -> any any (msg:\"r\"; content:\"six\"; fragoffset:<3; sid:6;)
alert ip any any -> any any (msg:\"r\"; content:\"six\"; fragoffset:!3; sid:7;)
alert ip any any -> any any (msg:\"r\"; itype:8; fragoffset:<3; sid:8;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(sids(&left), [4, 5, 8], "{}", left.text);
}

#[test]
fn after_decoded_bytes_the_payload_goes_on() {
    let mut tape = Tape::default();
    let datagram = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 9);
    tape.push(&datagram.payload(b"key: YWJj end"));
    let decoded =
        "content:\"key: \"; base64_decode:relative; base64_data; content:\"ab\"; startswith;";
    let options = [
        format!("{decoded} pkt_data; content:\"end\";"),
        format!("{decoded} pkt_data; content:\"abc\";"),
        format!("{decoded} content:\"abc\";"),
        format!("{decoded} content:\"end\";"),
    ];
    let list: Vec<(&str, &str)> = options.iter().map(|o| ("alert udp", o.as_str())).collect();
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 3], "{}", left.text);
}

#[test]
fn fragments_are_of_their_protocol() {
    let mut tape = Tape::default();
    let of = |protocol: u8, offset: u16, more: bool, bytes: &[u8]| {
        let frame = Frame::new().ip4(CLIENT, SERVER).id(7);
        frame
            .fragment(offset, more)
            .protocol(protocol)
            .payload(bytes)
    };
    tape.push(&of(17, 0, true, b"\x9c\x40\0\x09\0\x18\0\0abcdefgh"));
    tape.push(&of(17, 2, false, b"abcdefgh"));
    let list = [
        ("alert udp", "fragbits:M;"),
        ("alert udp", "fragoffset:2;"),
        ("alert tcp", "fragbits:M;"),
        // Once, in the whole.
        ("alert udp", "content:\"abcdefghabcdefgh\";"),
        ("alert udp", "content:\"abcdefgh\"; fragbits:M;"),
    ];
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2, 4], "{}", left.text);
    let narrow = "alert udp any any -> any 9 (msg:\"r\"; fragbits:M; sid:1;)
alert udp any any -> any !80 (msg:\"r\"; fragbits:M; sid:2;)\n";
    let left = sense_tape(&tape, &How::rules(narrow));
    assert!(left.sids().is_empty(), "{}", left.text);
}

#[test]
fn what_is_relative_to_a_fast_pattern_only_stands_behind_it() {
    let mut tape = Tape::default();
    let datagram = Frame::new().ip4(CLIENT, SERVER).udp(40_000, 9);
    tape.push(&datagram.payload(b"one ... two7x"));
    let only = "content:\"one\"; content:\"two\"; fast_pattern:only;";
    let options = [
        format!("{only} isdataat:!3,relative;"),
        format!("{only} byte_test:1,=,7,0,string,dec,relative;"),
        format!("{only} pcre:\"/^7x/R\";"),
        format!("{only} isdataat:3,relative;"),
    ];
    let list: Vec<(&str, &str)> = options.iter().map(|o| ("alert udp", o.as_str())).collect();
    let left = sense_tape(&tape, &How::rules(&rules(&list)));
    assert_eq!(sids(&left), [1, 2, 3], "{}", left.text);
}

/// A rule about packets that asks for a bit holds of the packet with which a rule about the stream sets it, whichever stands first; once.
#[test]
fn bits_that_the_stream_of_a_packet_sets() {
    let mut tape = Tape::default();
    web(&mut tape, 40_000, GET, ANSWER_TWO);
    let size = ANSWER_TWO.len();
    let asks = format!("flowbits:isset,seen; dsize:{size};");
    let list = [
        ("alert tcp", &*asks),
        (
            "alert tcp",
            "flow:to_client; content:\"HTTP\"; flowbits:set,seen;",
        ),
        ("alert tcp", "flowbits:isset,never; dsize:>0;"),
        (
            "alert tcp",
            "flowbits:isnotset,seen; flow:to_client; dsize:>0;",
        ),
        (
            "alert tcp",
            "flow:to_client; content:\"404\"; flowbits:toggle,turned;",
        ),
        (
            "alert tcp",
            "flowbits:isset,turned; dsize:>0; content:\"Gone\";",
        ),
    ];
    for setting in ["stream.inline=no", "stream.inline=yes"] {
        let left = sense_tape(&tape, &How::rules(&rules(&list)).set(setting));
        let mut found = sids(&left);
        found.sort_unstable();
        let inline = setting.ends_with("yes");
        // Not inline, the stream is inspected with the acknowledgement, whose size is another.
        let wanted: &[u64] = if inline { &[1, 2, 4, 5, 6] } else { &[2, 4, 5] };
        assert_eq!(found, wanted, "{setting} {}", left.text);
    }
}

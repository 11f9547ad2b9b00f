//! Rules written by hand, in both dialects, to the exact model; what is refused, where and why; tables beside the rules; properties of values.

use proptest::prelude::*;
use weir_sensor::app::App;
use weir_sensor::buffer::Buffer;
use weir_sensor::rules::*;

fn loaded_with(settings: &Settings, text: &str) -> Loaded {
    let mut loader = Loader::new(settings);
    loader.text("test.rules", text.as_bytes());
    loader.finish()
}

fn loaded(dialect: Dialect, text: &str) -> Loaded {
    let settings = Settings {
        dialect,
        ..Settings::default()
    };
    loaded_with(&settings, text)
}

/// The rule with these options, in a dialect and under a header.
fn rule_of(dialect: Dialect, head: &str, options: &str) -> Rule {
    let text = format!("{head} ({options} sid:7;)");
    let mut loaded = loaded(dialect, &text);
    if let Some(refused) = loaded.refused.first() {
        panic!("{}", refused.explain());
    }
    assert_eq!(loaded.rules.len(), 1, "{text}");
    loaded.rules.remove(0)
}

const TCP: &str = "alert tcp any any -> any any";
const HTTP: &str = "alert http any any -> any any";

fn suricata(options: &str) -> Rule {
    rule_of(Dialect::Suricata, TCP, options)
}

fn http(options: &str) -> Rule {
    rule_of(Dialect::Suricata, HTTP, options)
}

fn snort(options: &str) -> Rule {
    rule_of(Dialect::Snort, TCP, options)
}

/// Line, column, sort and reason of the only rule, which must be refused.
fn refused_of(dialect: Dialect, text: &str) -> Refused {
    let mut loaded = loaded(dialect, text);
    assert!(loaded.rules.is_empty(), "this loads: {text}");
    assert_eq!(loaded.refused.len(), 1, "{text}");
    loaded.refused.remove(0)
}

/// What the carets are under, the sort and the reason.
fn problem(head: &str, options: &str) -> (String, Kind, String) {
    problem_in(Dialect::Suricata, head, options)
}

fn problem_in(dialect: Dialect, head: &str, options: &str) -> (String, Kind, String) {
    let text = format!("{head} ({options} sid:7;)");
    let refused = refused_of(dialect, &text);
    assert_eq!(refused.sid, Some(7));
    let from = refused.column as usize - 1;
    let marked = text
        .chars()
        .skip(from)
        .take(refused.width as usize)
        .collect();
    (marked, refused.kind, refused.reason)
}

fn content(bytes: &[u8]) -> Content {
    Content {
        bytes: bytes.to_vec(),
        negated: false,
        nocase: false,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        starts: false,
        ends: false,
        raw: false,
        only: false,
    }
}

fn group(buffer: Buffer, conditions: Vec<Condition>) -> Group {
    Group {
        buffer,
        transforms: Vec::new(),
        conditions,
    }
}

fn exactly(n: u64) -> Range {
    Range {
        low: n,
        high: n,
        negated: false,
    }
}

fn read(bytes: i64, offset: i64) -> Read {
    Read {
        bytes: Number::Is(bytes),
        offset: Number::Is(offset),
        relative: false,
        little: false,
        string: None,
        dce: false,
        bitmask: None,
    }
}

#[test]
fn a_rule_of_suricata_in_full() {
    let rule = rule_of(
        Dialect::Suricata,
        "drop http [10.0.0.0/8,!10.1.0.0/16] any <> $HOME_NET [80,8080:8081]",
        r#"msg:"a \"quoted\" one\; two"; flow:established,to_server; http.method; content:"GET"; http.uri; content:"/a"; startswith; nocase; content:"|3a 3A|b\;"; distance:1; within:5; fast_pattern:1,2; http.host; dotprefix; content:".example.com"; endswith; reference:url,example.com/a,b; reference:cve,2020-1; classtype:c; metadata:k v w, tag x; target:dest_ip; threshold:type limit, track by_src, count 2, seconds 60; gid:3; rev:4; priority:2;"#,
    );
    assert_eq!(rule.action, Action::Drop);
    assert_eq!(rule.message, "a \"quoted\" one; two");
    assert_eq!((rule.gid, rule.sid, rule.rev, rule.priority), (3, 7, 4, 2));
    assert_eq!(rule.class.as_deref(), Some("c"));
    assert_eq!(rule.apps, [(App::Http1, false), (App::Http2, false)]);
    assert!(rule.header.both_ways);
    assert_eq!(rule.header.protocol, HeaderProtocol::App);
    assert_eq!(
        &*rule.header.source.v4,
        [(0x0a00_0000, 0x0a00_ffff), (0x0a02_0000, 0x0aff_ffff)]
    );
    assert!(rule.header.source.v6.is_empty() && rule.header.source_ports.any);
    assert_eq!(
        &*rule.header.destination_ports.ranges,
        [(80, 80), (8080, 8081)]
    );
    assert_eq!(
        rule.flow,
        FlowCondition {
            to_server: Some(true),
            established: Some(true),
            ..FlowCondition::default()
        }
    );
    let url = ("url".to_owned(), "example.com/a,b".to_owned());
    assert_eq!(
        rule.references,
        [url, ("cve".to_owned(), "2020-1".to_owned())]
    );
    let pair = ("k".to_owned(), "v w".to_owned());
    assert_eq!(rule.metadata, [pair, ("tag".to_owned(), "x".to_owned())]);
    assert_eq!(rule.target, Some(Target::Destination));
    assert_eq!(
        rule.threshold,
        Some(Threshold {
            kind: ThresholdKind::Limit,
            track: Track::Source,
            count: 2,
            seconds: 60
        })
    );
    let start = Content {
        nocase: true,
        starts: true,
        ..content(b"/a")
    };
    let next = Content {
        distance: Some(Number::Is(1)),
        within: Some(Number::Is(5)),
        ..content(b"::b;")
    };
    let end = Content {
        ends: true,
        ..content(b".example.com")
    };
    assert_eq!(
        rule.groups,
        [
            group(
                Buffer::HttpMethod,
                vec![Condition::Content(content(b"GET"))]
            ),
            group(
                Buffer::HttpUri,
                vec![Condition::Content(start), Condition::Content(next)]
            ),
            Group {
                buffer: Buffer::HttpHost,
                transforms: vec![Transform::DotPrefix],
                conditions: vec![Condition::Content(end)],
            },
        ]
    );
    assert_eq!(
        rule.fast_pattern,
        Some(FastPattern {
            group: 1,
            condition: 1,
            part: Some((1, 2))
        })
    );
}

#[test]
fn old_modifiers_move_the_content_before_them() {
    let rule = suricata(
        r#"content:"a"; http_uri; content:"b"; fast_pattern; content:"c"; nocase; http_uri; distance:0; uricontent:"d"; content:"e"; http_cookie; pcre:"/x/Ri"; isdataat:3,relative; pcre:"/y/U";"#,
    );
    let relative = Content {
        nocase: true,
        distance: Some(Number::Is(0)),
        ..content(b"c")
    };
    let [payload, uri, cookie] = &rule.groups[..] else {
        panic!("{:?}", rule.groups)
    };
    assert_eq!(uri.buffer, Buffer::HttpUri);
    assert_eq!(
        uri.conditions[..3],
        [
            Condition::Content(content(b"a")),
            Condition::Content(relative),
            Condition::Content(content(b"d")),
        ]
    );
    let Condition::Pcre(y) = &uri.conditions[3] else {
        panic!()
    };
    assert_eq!(y.pattern, "y");
    assert_eq!(
        (payload.buffer, payload.conditions.len()),
        (Buffer::Payload, 3)
    );
    let Condition::Pcre(x) = &payload.conditions[1] else {
        panic!()
    };
    assert!(x.relative && x.caseless && x.pattern == "x");
    assert!(matches!(
        payload.conditions[2],
        Condition::IsDataAt {
            relative: true,
            negated: false,
            ..
        }
    ));
    assert_eq!(
        *cookie,
        group(Buffer::HttpCookie, vec![Condition::Content(content(b"e"))])
    );
    // What is in a buffer of HTTP makes the rule one of HTTP; the fast pattern is found after everything moved.
    assert_eq!(rule.apps, [(App::Http1, false), (App::Http2, false)]);
    assert_eq!(rule.header.protocol, HeaderProtocol::Tcp);
    let fast = rule.fast_pattern.expect("one");
    assert_eq!((fast.group, fast.condition), (0, 0));
}

#[test]
fn a_relative_option_follows_the_content_that_was_moved() {
    let rule =
        suricata(r#"content:"a"; http_header; isdataat:!4,relative; byte_test:2,>,5,0,relative;"#);
    assert_eq!(rule.groups.len(), 1);
    assert_eq!(rule.groups[0].buffer, Buffer::HttpHeader);
    assert_eq!(rule.groups[0].conditions.len(), 3);
}

#[test]
fn sticky_buffers_go_on_or_begin_anew() {
    // One of a transaction: contents join. Several of one: each keyword asks for one of them.
    let rule = http(
        r#"http.uri; content:"a"; http.method; content:"b"; http.uri; content:"c"; distance:0;"#,
    );
    let uri = &rule.groups[0];
    assert_eq!((rule.groups.len(), uri.conditions.len()), (2, 2));
    let rule = rule_of(
        Dialect::Suricata,
        "alert dns any any -> any any",
        r#"dns.query; content:"a"; dns.query; content:"c"; dns.query; to_md5; content:"d";"#,
    );
    let of: Vec<_> = rule
        .groups
        .iter()
        .map(|g| (g.buffer, g.transforms.len()))
        .collect();
    assert_eq!(
        of,
        [
            (Buffer::DnsQuery, 0),
            (Buffer::DnsQuery, 0),
            (Buffer::DnsQuery, 1)
        ]
    );
    // A transform after conditions of an earlier use of the buffer belongs to the later use.
    let rule = http(r#"http.uri; content:"a"; http.uri; to_lowercase; url_decode; content:"c";"#);
    assert!(rule.groups[0].transforms.is_empty());
    assert_eq!(
        rule.groups[1].transforms,
        [Transform::Lowercase, Transform::UrlDecode]
    );
    // pkt_data and the beginning of a rule are one buffer.
    let rule = suricata(
        r#"content:"a"; file_data; content:"b"; within:9; pkt_data; content:"c"; distance:0;"#,
    );
    let of: Vec<_> = rule
        .groups
        .iter()
        .map(|g| (g.buffer, g.conditions.len()))
        .collect();
    assert_eq!(of, [(Buffer::Payload, 2), (Buffer::FileData, 1)]);
}

#[test]
fn the_same_words_mean_other_things_to_snort() {
    let rule = snort(
        r#"msg:"a; b"; http_uri; content:"/x;y",fast_pattern,nocase; content:!"z",distance 1,within 8; pkt_data; content:"p",offset 2,depth 9; http_uri; bufferlen:4<=>10; http_header:field User-Agent; content:"q"; service:http, ssl; flowbits:set,a&b; rem:"why";"#,
    );
    assert_eq!(rule.message, "a; b");
    let first = Content {
        nocase: true,
        ..content(b"/x;y")
    };
    let second = Content {
        negated: true,
        distance: Some(Number::Is(1)),
        within: Some(Number::Is(8)),
        ..content(b"z")
    };
    let third = Content {
        offset: Some(Number::Is(2)),
        depth: Some(Number::Is(9)),
        ..content(b"p")
    };
    let size = Range {
        low: 4,
        high: 10,
        negated: false,
    };
    assert_eq!(
        rule.groups,
        [
            group(
                Buffer::HttpUri,
                vec![Condition::Content(first), Condition::Content(second)]
            ),
            group(Buffer::Payload, vec![Condition::Content(third)]),
            group(Buffer::HttpUri, vec![Condition::Size(size)]),
            Group {
                buffer: Buffer::HttpHeader,
                transforms: vec![Transform::Field("user-agent".to_owned())],
                conditions: vec![Condition::Content(content(b"q"))],
            },
        ]
    );
    assert_eq!(rule.services, Some(vec![App::Http1, App::Http2, App::Tls]));
    let set = |name: &str| Bit::Flow {
        operation: BitOperation::Set,
        names: vec![name.to_owned()],
    };
    assert_eq!(rule.bits, [set("a"), set("b")]);
    assert_eq!(
        rule.fast_pattern.map(|f| (f.group, f.condition)),
        Some((0, 0))
    );
    let rule = rule_of(
        Dialect::Snort,
        "alert http",
        r#"http_method; content:"PUT";"#,
    );
    assert!(rule.header.source.any && rule.header.destination_ports.any);
    assert_eq!(rule.apps, [(App::Http1, false), (App::Http2, false)]);
    let rule = rule_of(
        Dialect::Snort,
        "block file",
        r#"file_data; content:"MZ",depth 2;"#,
    );
    assert_eq!((rule.action, rule.apps.len()), (Action::Drop, 0));
}

#[test]
fn numbers_read_out_of_bytes() {
    let rule = suricata(
        r#"byte_extract:2,4,len,relative,little,multiplier 2,align 4; byte_test:4,!<=,len,-2,string,hex,relative; byte_jump:1,0,from_beginning,align,post_offset -3,bitmask 0xf0; byte_math:bytes 2, offset 1, oper <<, rvalue 3, result out, endian little; content:"x"; offset:len; depth:out; isdataat:!out,relative,rawbytes; byte_test:0,>,10,0,string,dec;"#,
    );
    let conditions = &rule.groups[0].conditions;
    let expected = [
        Condition::ByteExtract(ByteExtract {
            read: Read {
                relative: true,
                little: true,
                ..read(2, 4)
            },
            multiplier: 2,
            align: 4,
            name: "len".to_owned(),
        }),
        Condition::ByteTest(ByteTest {
            read: Read {
                relative: true,
                string: Some(16),
                ..read(4, -2)
            },
            negated: true,
            operator: TestOperator::LessEqual,
            value: Number::Variable("len".to_owned()),
        }),
        Condition::ByteJump(ByteJump {
            read: Read {
                bitmask: Some(0xf0),
                ..read(1, 0)
            },
            multiplier: 1,
            align: true,
            from_beginning: true,
            from_end: false,
            post_offset: Number::Is(-3),
        }),
        Condition::ByteMath(ByteMath {
            read: Read {
                little: true,
                ..read(2, 1)
            },
            operator: MathOperator::Left,
            value: Number::Is(3),
            name: "out".to_owned(),
        }),
        Condition::Content(Content {
            offset: Some(Number::Variable("len".to_owned())),
            depth: Some(Number::Variable("out".to_owned())),
            ..content(b"x")
        }),
        Condition::IsDataAt {
            offset: Number::Variable("out".to_owned()),
            relative: true,
            negated: true,
        },
        Condition::ByteTest(ByteTest {
            read: Read {
                string: Some(10),
                ..read(0, 0)
            },
            negated: false,
            operator: TestOperator::Greater,
            value: Number::Is(10),
        }),
    ];
    assert_eq!(conditions[..], expected);
}

#[test]
fn decoded_bytes_are_inspected_after_base64_data() {
    let rule = http(
        r#"http.uri; content:"d="; base64_decode:bytes 12, offset 1, relative; base64_data; content:"cmd"; within:9; http.uri; content:"/";"#,
    );
    let Condition::Base64Decode(decode) = &rule.groups[0].conditions[1] else {
        panic!()
    };
    assert_eq!(
        (decode.bytes, decode.offset, decode.relative),
        (Some(12), 1, true)
    );
    assert_eq!(rule.groups[0].conditions[2], Condition::Base64Data);
    assert_eq!(rule.groups[0].conditions.len(), 4);
    // The buffer itself again, apart from what is decoded.
    assert_eq!(
        rule.groups[1],
        group(Buffer::HttpUri, vec![Condition::Content(content(b"/"))])
    );
}

#[test]
fn conditions_on_packets() {
    let rule = suricata(
        "dsize:10<>20; ttl:<5; tos:!x10; id:1; ip_proto:tcp; fragbits:!MD; fragoffset:>3; flags:*SA,12; seq:1; ack:2; window:!55808; tcp.mss:<=536; sameip; stream_size:both,>=,7;",
    );
    let not = |n| Range {
        negated: true,
        ..exactly(n)
    };
    let between = |low, high| Range {
        low,
        high,
        negated: false,
    };
    let expected = [
        PacketCondition::PayloadSize(between(11, 19)),
        PacketCondition::Ttl(between(0, 4)),
        PacketCondition::Tos(not(16)),
        PacketCondition::Id(exactly(1)),
        PacketCondition::Protocol(exactly(6)),
        PacketCondition::FragmentBits {
            bits: 3,
            mode: BitsMode::None,
        },
        PacketCondition::FragmentOffset(between(4, 65535)),
        PacketCondition::Flags {
            bits: 18,
            ignored: 0xc0,
            mode: BitsMode::Any,
        },
        PacketCondition::Sequence(1),
        PacketCondition::Acknowledgement(2),
        PacketCondition::Window(not(55808)),
        PacketCondition::Mss(between(0, 536)),
        PacketCondition::SameAddress,
        PacketCondition::StreamSize {
            side: StreamSide::Both,
            size: between(7, u64::MAX),
        },
    ];
    assert_eq!(rule.packet, expected);
    let icmp = "alert icmp any any -> any any";
    let rule = rule_of(
        Dialect::Suricata,
        icmp,
        "itype:8; icode:>0; icmp_id:1; icmp_seq:2;",
    );
    assert_eq!(rule.packet[1], PacketCondition::IcmpCode(between(1, 255)));
    let rule = rule_of(
        Dialect::Suricata,
        "alert tls any any -> any any",
        "ssl_version:!sslv2,!SSLv3; ssl_state:client_hello|unknown; tls.version:1.2; app-layer-event:tls.invalid_record; stream-event:pkt_broken_ack; decode-event:ipv4.trunc_pkt;",
    );
    let record = |k: &str, v: &str, n| PacketCondition::Record(k.to_owned(), v.to_owned(), n);
    assert_eq!(rule.packet[0], record("ssl_version", "sslv2|sslv3", true));
    assert_eq!(
        rule.packet[1],
        record("ssl_state", "client_hello|unknown", false)
    );
    assert_eq!(
        rule.packet[3],
        PacketCondition::AppEvent("tls".to_owned(), "invalid_record".to_owned())
    );
    assert_eq!(
        rule.packet[4],
        PacketCondition::Event("stream.pkt_broken_ack".to_owned())
    );
    assert_eq!(
        rule.packet[5],
        PacketCondition::Event("decoder.ipv4.trunc_pkt".to_owned())
    );
}

#[test]
fn bits_and_counters() {
    let rule = suricata(
        "flowbits:isset,a|b; flowbits:noalert; xbits:set,x,track ip_pair,expire 5; xbits:isset,x,track ip_src; hostbits:unset,h,dst; flowint:c,+,1; flowint:c,isnotset;",
    );
    assert!(rule.silent);
    let host = |operation, name: &str, track, expire| Bit::Host {
        operation,
        name: name.to_owned(),
        track,
        expire,
    };
    let counter = |operator: &str, value| Bit::Counter {
        name: "c".to_owned(),
        operator: operator.to_owned(),
        value,
    };
    let expected = [
        Bit::Flow {
            operation: BitOperation::IsSet,
            names: vec!["a".to_owned(), "b".to_owned()],
        },
        host(BitOperation::Set, "x", Track::Pair, 5),
        host(BitOperation::IsSet, "x", Track::Source, 30),
        host(BitOperation::Unset, "h", Track::Destination, 300),
        counter("+", Some(Number::Is(1))),
        counter("isnotset", None),
    ];
    assert_eq!(rule.bits, expected);
}

#[test]
fn expressions_keep_their_flags_and_find() {
    let mut loaded = loaded(
        Dialect::Suricata,
        "alert http any any -> any any (http.uri; content:\"x\"; pcre:!\"/^a\\/b$/Rmsix, flow:v\"; sid:1;)\n\
         alert tcp any any -> any any (pcre:\"/(b+)$/AEG, pkt:w\"; sid:2;)\n\
         alert tcp any any -> any any (pcre:\"/\\\\x00\\;\\\"a|b/\"; sid:3;)",
    );
    assert_eq!(loaded.refused.len(), 1, "a variable without a capture");
    let Condition::Pcre(two) = loaded.rules[0].groups[0].conditions[0].clone() else {
        panic!()
    };
    assert!(two.anchored && two.dollar_end_only && two.ungreedy);
    assert_eq!(two.captures, ["pkt:w"]);
    let known = loaded.expressions.len();
    let compiled = loaded.expressions.of(&two).expect("it was compiled");
    assert_eq!(loaded.expressions.len(), known, "and is not compiled again");
    assert_eq!(compiled.find(b"bbb"), Ok((0, 3)));
    assert_eq!(
        compiled.find(b"abb"),
        Err(NotFound::None),
        "A: at the start only"
    );
    assert_eq!(
        compiled.find(b"bbb\n"),
        Err(NotFound::None),
        "E: not before a last line end"
    );
    let mut captures = compiled.locations();
    assert_eq!(compiled.captures(b"bb", &mut captures), Ok((0, 2)));
    assert_eq!(captures.get(1), Some((0, 2)));
    let Condition::Pcre(three) = &loaded.rules[1].groups[0].conditions[0] else {
        panic!()
    };
    let three = loaded.expressions.of(three).expect("it compiles");
    assert_eq!(three.find(b"..\\x00;\"a"), Ok((2, 9)));
    assert_eq!(three.find(b"zb"), Ok((1, 2)));
}

#[test]
fn matches_that_take_too_long_are_given_up() {
    let mut expressions = Expressions::new(1000);
    let rule = suricata(r#"pcre:"/(a+)+$/";"#);
    let Condition::Pcre(pcre) = &rule.groups[0].conditions[0] else {
        panic!()
    };
    let slow = expressions.of(pcre).expect("it compiles");
    let text = [b'a'; 40].iter().copied().chain([b'!']).collect::<Vec<_>>();
    assert_eq!(slow.find(&text), Err(NotFound::GivenUp));
}

#[test]
fn bytes_that_are_not_utf8_are_kept() {
    let settings = Settings::default();
    let mut loader = Loader::new(&settings);
    loader.text(
        "latin",
        b"alert tcp any any -> any any (msg:\"\xe9\"; content:\"\xe9\"; pcre:\"/\xe9+/\"; sid:1;)",
    );
    let mut loaded = loader.finish();
    assert_eq!(loaded.refused, []);
    let [Condition::Content(c), Condition::Pcre(p)] = &loaded.rules[0].groups[0].conditions[..]
    else {
        panic!()
    };
    assert_eq!(c.bytes, [0xe9]);
    let e = loaded.expressions.of(p).expect("it compiles");
    assert_eq!(e.find(b"a\xe9\xe9"), Ok((1, 3)));
}

#[test]
fn lines_comments_and_places() {
    let text = "\u{feff}# alert tcp any any -> any any (sid:1;)\r\n\
        #not a rule (at all)\r\n\
        \r\n\
        alert tcp any any -> any any \\\r\n   (msg:\"two lines\"; \\\r\n   contents:\"x\"; sid:2;)\r\n\
        nonsense\n\
        alert tcp any any -> any any (sid:3;)\n";
    let loaded = loaded(Dialect::Suricata, text);
    assert_eq!(
        (loaded.rules.len(), loaded.refused.len(), loaded.disabled),
        (1, 2, 1)
    );
    assert_eq!(loaded.rules[0].place.line, 8);
    let first = &loaded.refused[0];
    assert_eq!(
        (first.place.line, first.column, first.width, first.sid),
        (6, 4, 8, Some(2))
    );
    assert_eq!(
        first.to_string(),
        "test.rules:6:4: rule 2: `contents` is not a keyword"
    );
    assert_eq!(
        first.explain(),
        "test.rules:6:4: rule 2: `contents` is not a keyword\n6 |    contents:\"x\"; sid:2;)\n  |    ^^^^^^^^"
    );
    assert_eq!(
        (loaded.refused[1].place.line, loaded.refused[1].kind),
        (7, Kind::Syntax)
    );
    // Snort 3 needs no backslash; a rule that is not closed does not swallow the next.
    let text = "alert tcp any any -> any any\n(\n  msg:\"a\";\n  # a remark\n  sid:1;\n)\nalert tcp any any -> any any ( sid:2;\nalert tcp any any -> any any (sid:3;)";
    let loaded = self::loaded(Dialect::Snort, text);
    let sids: Vec<u32> = loaded.rules.iter().map(|r| r.sid).collect();
    assert_eq!((sids, loaded.refused.len()), (vec![1, 3], 1));
    assert_eq!(loaded.refused[0].place.line, 7);
}

#[test]
fn of_two_rules_with_a_number_the_later_revision_stays() {
    let rule = |rev: u32, gid: u32| {
        format!("alert tcp any any -> any any (gid:{gid}; sid:5; rev:{rev};)\n")
    };
    let text = rule(2, 1) + &rule(1, 1) + &rule(2, 1) + &rule(3, 1) + &rule(1, 9);
    let loaded = loaded(Dialect::Suricata, &text);
    let kept: Vec<_> = loaded.rules.iter().map(|r| (r.gid, r.rev)).collect();
    assert_eq!(kept, [(1, 3), (9, 1)]);
    assert_eq!(loaded.active(), 5);
    let mut lines: Vec<u32> = loaded.refused.iter().map(|r| r.place.line).collect();
    lines.sort_unstable();
    assert_eq!(lines, [1, 2, 3]);
    assert!(loaded.refused.iter().all(|r| r.kind == Kind::Duplicate));
    assert_eq!(loaded.reasons(), [("duplicate: sid".to_owned(), 3)]);
}

#[test]
fn refusals_point_at_what_they_are_about() {
    let cases: &[(&str, &str, &str, Kind)] = &[
        (TCP, r#"content:"abc"; depth:2;"#, "2", Kind::Conflict),
        (
            TCP,
            r#"content:"abc"; depth:5; distance:1;"#,
            "distance",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"content:"abc"; startswith; depth:5;"#,
            "depth",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"content:"abc"; nocase; nocase;"#,
            "nocase",
            Kind::Conflict,
        ),
        (TCP, "nocase;", "nocase", Kind::Syntax),
        (TCP, r#"content:"a|0|";"#, "|0|", Kind::Value),
        (TCP, r#"content:"a|0g|";"#, "g", Kind::Value),
        (TCP, r#"content:"a\x";"#, "\\x", Kind::Value),
        (TCP, r#"content:"";"#, "\"\"", Kind::Value),
        (TCP, r#"content:abc;"#, "abc", Kind::Syntax),
        (TCP, r#"content:"abc"; offset:len;"#, "len", Kind::Variable),
        (
            TCP,
            r#"content:!"abc"; offset:3; fast_pattern;"#,
            "!\"abc\"",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"content:"abc"; fast_pattern:2,2;"#,
            "\"abc\"",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"content:"a"; fast_pattern; content:"b"; fast_pattern;"#,
            "fast_pattern",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"content:"abc"; distance:1; fast_pattern:only;"#,
            "\"abc\"",
            Kind::Conflict,
        ),
        (TCP, r#"pcre:"/a(/";"#, "(", Kind::Expression),
        (TCP, r#"pcre:"/a/q";"#, "q", Kind::Value),
        (TCP, "lua:script.lua;", "lua", Kind::Unsupported),
        (TCP, "bsize:1;", "bsize:1", Kind::Conflict),
        (TCP, "rem:\"x\";", "rem", Kind::Unknown),
        (
            TCP,
            "flow:to_server,to_client;",
            "to_client",
            Kind::Conflict,
        ),
        (TCP, "flow:sideways;", "sideways", Kind::Value),
        (TCP, "flowbits:isset;", "isset", Kind::Syntax),
        (TCP, "flags:SX;", "X", Kind::Value),
        (TCP, "flags:S,+12;", "+12", Kind::Syntax),
        (TCP, "dsize:5<>6;", "5<>6", Kind::Value),
        (TCP, "ttl:300;", "300", Kind::Value),
        (TCP, "byte_test:9,>,1,0;", "9", Kind::Value),
        (TCP, "byte_test:4,=>,1,0;", "=>", Kind::Value),
        (TCP, "byte_jump:4,0,dce;", "dce", Kind::Unsupported),
        (TCP, "iprep:src,Bad,>,10;", "Bad", Kind::File),
        (TCP, "base64_data;", "base64_data", Kind::Syntax),
        (TCP, "msg:\"a\"; msg:\"b\";", "msg:\"b\"", Kind::Conflict),
        (
            TCP,
            "http.uri; http.method; content:\"a\";",
            "http.uri",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"a\"; http_header;",
            "http_header",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"a\"; tls.sni; content:\"b\";",
            "tls.sni",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"a\"; dotprefix;",
            "dotprefix",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"a\"; dsize:1;",
            "dsize:1",
            Kind::Conflict,
        ),
        (
            TCP,
            "flow:to_client; http.uri; content:\"a\";",
            "http.uri",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"a\"; http.stat_code; content:\"200\";",
            "http.stat_code",
            Kind::Conflict,
        ),
        (
            TCP,
            "http.uri; content:\"abc\"; bsize:2;",
            "\"abc\"",
            Kind::Conflict,
        ),
        (
            "alert dns any any -> any any",
            "http.uri; content:\"a\";",
            "http.uri",
            Kind::Conflict,
        ),
        (
            "alert udp any any -> any any",
            "http.uri; content:\"a\";",
            "http.uri",
            Kind::Conflict,
        ),
        (
            "alert tls any any -> any any",
            "file.data; content:\"a\";",
            "file.data",
            Kind::Conflict,
        ),
        ("alert tcp any any => any any", "", "=>", Kind::Unsupported),
        ("alert tcp any any <- any any", "", "<-", Kind::Syntax),
        (
            "alert tcp any -> any any",
            "",
            "alert tcp any -> any any",
            Kind::Syntax,
        ),
        ("alter tcp any any -> any any", "", "alter", Kind::Syntax),
        (
            "alert modbus any any -> any any",
            "",
            "modbus",
            Kind::Unsupported,
        ),
        (
            "alert nothing any any -> any any",
            "",
            "nothing",
            Kind::Value,
        ),
        (
            "alert tcp $NOWHERE any -> any any",
            "",
            "$NOWHERE",
            Kind::Variable,
        ),
        (
            "alert tcp $HTTP_PORTS any -> any any",
            "",
            "$HTTP_PORTS",
            Kind::Variable,
        ),
        (
            "alert tcp 10.0.0.0/33 any -> any any",
            "",
            "10.0.0.0/33",
            Kind::Value,
        ),
        ("alert tcp !any any -> any any", "", "!any", Kind::Value),
        (
            "alert tcp [1.2.3.4,!1.2.3.4] any -> any any",
            "",
            "[1.2.3.4,!1.2.3.4]",
            Kind::Value,
        ),
        ("alert tcp any 70000 -> any any", "", "70000", Kind::Value),
        ("alert tcp any [80:70] -> any any", "", "80:70", Kind::Value),
        (
            "alert tcp any [80 -> any any",
            "",
            "alert tcp any [80 -> any any",
            Kind::Syntax,
        ),
    ];
    for (head, options, marked, kind) in cases {
        let (at, sort, reason) = problem(head, options);
        assert_eq!(
            (at.as_str(), sort),
            (*marked, *kind),
            "{head} {options}: {reason}"
        );
        assert!(!reason.is_empty());
    }
    let snort = [
        (r#"content:"a",nocase,upwards;"#, "upwards", Kind::Syntax),
        (
            r#"content:"a",offset 1,within 3;"#,
            "within",
            Kind::Conflict,
        ),
        ("http.uri;", "http.uri", Kind::Unknown),
        ("dce_iface:uuid 1;", "dce_iface", Kind::Unsupported),
        ("http_header:field x,size 3;", "size 3", Kind::Unsupported),
    ];
    for (options, marked, kind) in snort {
        let (at, sort, reason) = problem_in(Dialect::Snort, TCP, options);
        assert_eq!((at.as_str(), sort), (marked, kind), "{options}: {reason}");
    }
}

#[test]
fn rules_without_form_are_refused() {
    for text in [
        "alert tcp any any -> any any",
        "alert tcp any any -> any any (sid:1;",
        "alert tcp any any -> any any (sid:1)",
        "alert tcp any any -> any any (msg:\"open; sid:1;)",
        "alert tcp any any -> any any (msg:\"no number\";)",
        "alert tcp any any -> any any (;sid:1;)",
        "alert (sid:1;)",
        "(sid:1;)",
        "alert",
        "((((",
    ] {
        let refused = refused_of(Dialect::Suricata, text);
        assert_eq!(refused.kind, Kind::Syntax, "{text}: {}", refused.reason);
        assert!(refused.explain().contains('^'));
        let _ = refused_of(Dialect::Snort, text);
    }
}

#[test]
fn what_decides_nothing_is_noted() {
    let settings = Settings {
        classes: read_classes("c", b"config classification: known,Known thing,2\n").0,
        ..Settings::default()
    };
    let text = "alert http any any -> any any (filestore; classtype:unknown; sid:1;)\nalert tcp any any -> any any (tag:session,5,packets; classtype:known; sid:2;)";
    let loaded = loaded_with(&settings, text);
    assert_eq!(loaded.refused, []);
    let notes: Vec<_> = loaded
        .notes
        .iter()
        .map(|n| (n.sid, n.text.as_str()))
        .collect();
    assert_eq!(
        notes,
        [
            (1, "`filestore`: files are not stored"),
            (1, "the class `unknown` is not defined: priority 3"),
            (2, "`tag`: packets after the alert are not logged"),
        ]
    );
    assert_eq!(
        (loaded.rules[1].category.as_str(), loaded.rules[1].priority),
        ("Known thing", 2)
    );
}

#[test]
fn applications_come_from_header_options_and_buffers() {
    let apps = |head: &str, options: &str| rule_of(Dialect::Suricata, head, options).apps;
    let http = [(App::Http1, false), (App::Http2, false)];
    assert_eq!(apps(TCP, ""), []);
    assert_eq!(apps(HTTP, ""), http);
    assert_eq!(apps(TCP, r#"http.host; content:"a";"#), http);
    assert_eq!(
        apps(
            "alert http2 any any -> any any",
            r#"http.host; content:"a";"#
        ),
        [(App::Http2, false)]
    );
    assert_eq!(
        apps(TCP, "app-layer-protocol:!http;"),
        [(App::Http1, true), (App::Http2, true)]
    );
    assert_eq!(
        apps(TCP, "app-layer-protocol:failed;"),
        [(App::Failed, false)]
    );
    assert_eq!(
        apps("alert ip any any -> any any", r#"ja3.hash; content:"AB";"#),
        [(App::Tls, false), (App::Quic, false)]
    );
    assert_eq!(
        apps(
            "alert quic any any -> any any",
            r#"ja3.hash; content:"AB";"#
        ),
        [(App::Quic, false)]
    );
    let (marked, kind, _) = problem(HTTP, "app-layer-protocol:dns;");
    assert_eq!((marked.as_str(), kind), ("http", Kind::Conflict));
    // Letters that a buffer never has.
    let rule = rule_of(Dialect::Suricata, TCP, r#"ja3.hash; content:"AB";"#);
    assert_eq!(
        rule.groups[0].conditions[0],
        Condition::Content(content(b"ab"))
    );
}

#[test]
fn groups_of_addresses() {
    let vars = Variables::conventional();
    let has = |text: &str, address: &str| {
        let set = parse_addresses(text, &vars).unwrap_or_else(|e| panic!("{text}: {e}"));
        set.has(address.parse().expect("an address"))
    };
    for (text, address, expected) in [
        ("any", "::1", true),
        ("$HOME_NET", "192.168.255.255", true),
        ("$EXTERNAL_NET", "192.168.255.255", false),
        ("$EXTERNAL_NET", "8.8.8.8", true),
        ("$EXTERNAL_NET", "fe80::1", true),
        ("!10.0.0.0/8", "11.0.0.0", true),
        ("!10.0.0.0/8", "9.255.255.255", true),
        ("[10.0.0.0/8,![10.1.0.0/16,!10.1.2.3]]", "10.1.2.3", true),
        ("[10.0.0.0/8,![10.1.0.0/16,!10.1.2.3]]", "10.1.2.4", false),
        ("10.0.0.0/255.255.0.0", "10.0.9.9", true),
        ("10.0.0.5-10.0.0.9", "10.0.0.9", true),
        ("10.0.0.5-10.0.0.9", "10.0.0.10", false),
        ("[2001:db8::/32, 1.2.3.4]", "2001:db8:ffff::1", true),
        ("[2001:db8::/32, 1.2.3.4]", "2001:db9::1", false),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("0.0.0.0/0", "::", false),
    ] {
        assert_eq!(has(text, address), expected, "{text} {address}");
    }
    let mut circle = Variables::default();
    circle.addresses.insert("A".to_owned(), "$B".to_owned());
    circle.addresses.insert("B".to_owned(), "[$A]".to_owned());
    assert!(parse_addresses("$A", &circle).is_err_and(|e| e.contains("names itself")));
    let deep = "[".repeat(100_000) + "1.1.1.1" + &"]".repeat(100_000);
    assert!(parse_addresses(&deep, &vars).is_err());
    assert!(parse_addresses(&"!".repeat(100_000), &vars).is_err());
}

#[test]
fn equal_groups_share_memory() {
    let loaded = loaded(
        Dialect::Suricata,
        "alert tcp [1.1.1.1,2.2.2.2] any -> any [1:3,4] (sid:1;)\nalert tcp [2.2.2.2, 1.1.1.1] any -> any 1:4 (sid:2;)",
    );
    let [a, b] = &loaded.rules[..] else { panic!() };
    assert!(std::sync::Arc::ptr_eq(
        &a.header.source.v4,
        &b.header.source.v4
    ));
    assert!(std::sync::Arc::ptr_eq(
        &a.header.destination_ports.ranges,
        &b.header.destination_ports.ranges
    ));
}

#[test]
fn thresholds_of_a_file() {
    let text = b"# comment\n\
        suppress gen_id 1, sig_id 2\n\
        suppress gen_id 1, sig_id 0, track by_either, ip [$HOME_NET,!10.0.0.1]\n\
        threshold gen_id 1, sig_id 3, type both, track by_dst, \\\n   count 5, seconds 60\n\
        rate_filter gen_id 0, sig_id 0, track by_rule, count 1, seconds 2, new_action drop, timeout 0\n\
        event_filter gen_id 1, sig_id 3, type limit, track by_src, count 0, seconds 1\n\
        suppress gen_id 0, sig_id 9\n\
        suppress gen_id 1, sig_id 9, ip 1.1.1.1\n\
        nonsense\n";
    let (filters, bad) = read_filters("threshold.config", text, &Variables::conventional());
    let lines: Vec<u32> = bad.iter().map(|b| b.place.line).collect();
    assert_eq!(lines, [7, 8, 9, 10]);
    assert_eq!(
        bad[0].to_string(),
        "threshold.config:7:66: 0 is not within 1 and 4294967295"
    );
    assert_eq!(filters.len(), 4);
    assert!(filters[0].is_about(1, 2) && !filters[0].is_about(1, 3));
    assert!(
        matches!(&filters[0].kind, FilterKind::Suppress { track: None, addresses } if addresses.any)
    );
    assert!(filters[1].is_about(1, 77) && !filters[1].is_about(2, 77));
    let FilterKind::Suppress { track, addresses } = &filters[1].kind else {
        panic!()
    };
    assert_eq!(*track, Some(Track::Pair));
    assert!(addresses.has([10, 0, 0, 2].into()) && !addresses.has([10, 0, 0, 1].into()));
    assert_eq!(
        filters[2].kind,
        FilterKind::Threshold(Threshold {
            kind: ThresholdKind::Both,
            track: Track::Destination,
            count: 5,
            seconds: 60
        })
    );
    assert!(filters[3].is_about(9, 9));
    assert!(matches!(
        filters[3].kind,
        FilterKind::Rate {
            action: Action::Drop,
            timeout: 0,
            ..
        }
    ));
}

#[test]
fn reputation_decides_by_the_smallest_network() {
    let mut reputation = Reputation::default();
    assert_eq!(
        reputation.add_categories("c", b"1,Bad,Bad hosts\n2,Dark,x\n"),
        []
    );
    let list = b"10.0.0.0/8,1,20\n10.1.0.0/16,1,0\n10.1.2.3,1,127\n2001:db8::/32,2,5\n10.0.0.0/8,2,7\n1.1.1.1-1.1.1.3,1,1\nx\n";
    let bad = reputation.add_list("list", list);
    assert_eq!(bad.iter().map(|b| b.place.line).collect::<Vec<_>>(), [6, 7]);
    let score = |a: &str, c| reputation.score(a.parse().expect("an address"), c);
    assert_eq!(score("10.9.9.9", 1), Some(20));
    assert_eq!(score("10.1.9.9", 1), Some(0));
    assert_eq!(score("10.1.2.3", 1), Some(127));
    assert_eq!(score("10.1.2.3", 2), Some(7));
    assert_eq!(score("11.0.0.0", 1), None);
    assert_eq!(score("2001:db8::1", 2), Some(5));
    assert_eq!(score("2001:db9::1", 2), None);
    let settings = Settings {
        reputation: std::sync::Arc::new(reputation),
        ..Settings::default()
    };
    let loaded = loaded_with(
        &settings,
        "alert ip any any -> any any (iprep:any,Dark,>,4; sid:1;)",
    );
    assert_eq!(
        loaded.rules[0].packet,
        [PacketCondition::Reputation {
            side: "any".to_owned(),
            category: 2,
            value: Range {
                low: 5,
                high: 127,
                negated: false
            }
        }]
    );
}

#[test]
fn datasets_are_read_below_their_folder() {
    let folder = std::env::temp_dir().join(format!("weir-datasets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(folder.join("names"), "ZXhhbXBsZS5jb20=\nYQ==\n").expect("written");
    std::fs::write(folder.join("hashes"), "00112233445566778899aabbccddeeff\n").expect("written");
    let settings = Settings {
        datasets: Some(folder.clone()),
        ..Settings::default()
    };
    let rule = |n: u32, what: &str| {
        format!("alert dns any any -> any any (dns.query; dataset:{what}; sid:{n};)\n")
    };
    let text = rule(1, "isset,n,type string,load names")
        + &rule(2, "isnotset,h,type md5,load hashes")
        + &rule(3, "isset,n,type string,load ../names")
        + &rule(4, "isset,n,type string,load /etc/hosts")
        + &rule(5, "isset,n,type string,load absent")
        + &rule(6, "isset,n,type md5,load names")
        + &rule(7, "set,n,type string,load names")
        + &rule(8, "isset,n,type ja3,load names");
    let loaded = loaded_with(&settings, &text);
    let _ = std::fs::remove_dir_all(&folder);
    let refused: Vec<_> = loaded.refused.iter().map(|r| (r.sid, r.kind)).collect();
    assert_eq!(
        refused,
        [
            (Some(3), Kind::File),
            (Some(4), Kind::File),
            (Some(5), Kind::File),
            (Some(6), Kind::File),
            (Some(7), Kind::Unsupported),
            (Some(8), Kind::Unsupported),
        ]
    );
    let set = |i: usize| match &loaded.rules[i].groups[0].conditions[0] {
        Condition::Dataset(set) => set.clone(),
        other => panic!("{other:?}"),
    };
    assert!(set(0).members.contains(&b"example.com"[..]) && set(0).members.contains(&b"a"[..]));
    assert!(set(1).negated && set(1).members.iter().all(|m| m.len() == 16));
}

#[test]
fn files_that_are_not_there() {
    let nowhere = std::path::PathBuf::from("/nonexistent/a.rules");
    let error = load(&[nowhere], &Settings::default()).expect_err("it is not there");
    assert_eq!(
        error.to_string(),
        "cannot read rules from /nonexistent/a.rules"
    );
}

/// A content as a rule file may write it: each byte as text, escaped, or in hexadecimal.
fn written(bytes: &[u8], ways: &[u8]) -> String {
    let mut out = String::new();
    for (i, b) in bytes.iter().enumerate() {
        let way = ways.get(i).copied().unwrap_or(0) % 3;
        match b {
            b'\\' | b'"' | b';' | b':' if way == 0 => out.extend(['\\', *b as char]),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'/' | b'.' if way < 2 => {
                out.push(*b as char);
            }
            b => out.push_str(&format!("|{b:02X}|")),
        }
    }
    out.replace(
        "||",
        if ways.len().is_multiple_of(2) {
            " "
        } else {
            ""
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn contents_are_read_as_they_were_written(bytes in prop::collection::vec(any::<u8>(), 1..40), ways in prop::collection::vec(any::<u8>(), 0..40)) {
        let text = written(&bytes, &ways);
        for dialect in [Dialect::Suricata, Dialect::Snort] {
            let rule = rule_of(dialect, TCP, &format!("content:\"{text}\";"));
            prop_assert_eq!(&rule.groups[0].conditions[0], &Condition::Content(content(&bytes)));
        }
    }

    #[test]
    fn groups_hold_what_their_parts_say(with in prop::collection::vec((any::<u8>(), 20u32..=32), 1..6), without in prop::collection::vec((any::<u8>(), 24u32..=32), 0..6), probes in prop::collection::vec(any::<u16>(), 20)) {
        let network = |(byte, bits): &(u8, u32)| (u32::from_be_bytes([10, 0, *byte, byte.wrapping_mul(37)]), *bits);
        let show = |n: &(u8, u32)| { let (a, bits) = network(n); format!("{}/{bits}", std::net::Ipv4Addr::from(a)) };
        let holds = |n: &(u8, u32), a: u32| { let (base, bits) = network(n); let mask = u32::MAX << (32 - bits); a & mask == base & mask };
        let parts: Vec<String> = with.iter().map(&show).chain(without.iter().map(|n| format!("!{}", show(n)))).collect();
        let text = format!("[{}]", parts.join(","));
        let expected = |a: u32| with.iter().any(|n| holds(n, a)) && !without.iter().any(|n| holds(n, a));
        match parse_addresses(&text, &Variables::default()) {
            Ok(set) => {
                for low in probes {
                    let a = 0x0a00_0000 | u32::from(low);
                    prop_assert_eq!(set.has(std::net::Ipv4Addr::from(a).into()), expected(a), "{} in {}", a, text);
                }
                prop_assert!(set.v4.windows(2).all(|w| u64::from(w[0].1) + 1 < u64::from(w[1].0)), "sorted, apart: {:?}", set.v4);
            }
            Err(_) => prop_assert!((0..=0xffffu32).all(|low| !expected(0x0a00_0000 | low))),
        }
    }

    #[test]
    fn ranges_hold_what_they_say(low in 0u64..300, high in 0u64..300, probe in 0u64..65536) {
        let size = |text: String| {
            let loaded = loaded(Dialect::Suricata, &format!("{TCP} (dsize:{text}; sid:1;)"));
            loaded.rules.first().map(|r| r.packet[0].clone())
        };
        let holds = |text: String| match size(text) {
            Some(PacketCondition::PayloadSize(r)) => ((r.low..=r.high).contains(&probe)) != r.negated,
            _ => false,
        };
        prop_assert_eq!(holds(format!("{low}<>{high}")), low < probe && probe < high);
        prop_assert_eq!(holds(format!("<{low}")), probe < low);
        prop_assert_eq!(holds(format!(">{low}")), probe > low);
        prop_assert_eq!(holds(format!("<={low}")), probe <= low);
        prop_assert_eq!(holds(format!("!{low}")), probe != low);
        prop_assert_eq!(holds(format!("{low}")), probe == low);
    }

    #[test]
    fn any_text_is_loaded_or_refused_with_a_place(text in "(alert|drop) (tcp|http) (any|\\[1.1.1.1,!2.2.2.2\\]|\\$HOME_NET) any -> any (80|\\[1:5,!3\\]) \\(([a-z_.]{1,9}(:[!-~ ]{0,12})?;){0,5} sid:1;\\)") {
        for dialect in [Dialect::Suricata, Dialect::Snort] {
            let loaded = loaded(dialect, &text);
            prop_assert_eq!(loaded.active(), 1, "{}", &text);
            for refused in &loaded.refused {
                prop_assert!(refused.column as usize <= text.chars().count() + 1);
                prop_assert!(refused.explain().contains('^'));
            }
        }
    }
}

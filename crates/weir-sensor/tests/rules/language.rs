//! Whole rules to the exact model: modifiers, sticky buffers, the two dialects, lines and places, applications.

use weir_sensor::app::App;
use weir_sensor::buffer::Buffer;
use weir_sensor::rules::*;

use super::{HTTP, TCP, content, group, http, loaded, problem, rule_of, snort, suricata};

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
    assert_eq!(rule.target, Some(AlertTarget::Destination));
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
                way: None,
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
    // What is in a buffer of HTTP makes the rule one of HTTP, flags of an expression one of HTTP/1; the fast pattern is found after everything moved.
    assert_eq!(rule.apps, [(App::Http1, false)]);
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
    let size = Range::new(4, 10, false);
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
                way: None,
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
    let reasons = [
        ("duplicate: sid".to_owned(), 2),
        ("duplicate: rev".to_owned(), 1),
    ];
    assert_eq!(loaded.reasons(), reasons);
    // One that was replaced is not in error.
    let skipped = loaded.refused.iter().filter(|r| r.is_skipped());
    let lines: Vec<u32> = skipped.map(|r| r.place.line).collect();
    assert_eq!(lines, [1]);
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
        apps(TCP, "app-layer-protocol:!http,final;"),
        [(App::Http1, true), (App::Http2, true)]
    );
    assert_eq!(
        apps(TCP, "app-layer-protocol:failed|ssh,final,exact;"),
        [(App::Failed, false), (App::Ssh, false)]
    );
    // Without a mode it is about the direction that is inspected.
    let rule = rule_of(Dialect::Suricata, TCP, "app-layer-protocol:!ssh|ftp;");
    assert_eq!(
        rule.packet,
        [PacketCondition::Application(
            Spoken::Direction,
            vec![App::Ssh, App::Ftp],
            true
        )]
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
fn no_data_after_a_content_is_its_end() {
    let conditions = |options: &str| {
        let rule = rule_of(Dialect::Suricata, HTTP, options);
        rule.groups[0].conditions.clone()
    };
    let ends = conditions(r#"http.host.raw; content:!".com"; nocase; endswith;"#);
    let written = conditions(r#"http.host.raw; content:!".com"; nocase; isdataat:!1,relative;"#);
    assert_eq!(written, ends);
    let old = conditions(r#"content:!".com"; nocase; http_raw_host; isdataat:!1,relative;"#);
    assert_eq!(old, ends);
    // After something else, or another number, it is what it says.
    for options in [
        r#"http.host.raw; content:!".com"; isdataat:!2,relative;"#,
        r#"http.host.raw; content:!".com"; pcre:"/a/"; isdataat:!1,relative;"#,
        r#"http.host.raw; content:!".com"; isdataat:!1;"#,
    ] {
        assert!(
            conditions(options)
                .iter()
                .any(|c| matches!(c, Condition::IsDataAt { .. })),
            "{options}"
        );
    }
}

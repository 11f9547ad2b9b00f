//! What is refused, where and why, and what is only noted.

use weir_sensor::rules::*;

use super::{HTTP, TCP, loaded_with, problem, problem_in, refused_of};

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
        (
            TCP,
            "app-layer-event:http.no_such_event;",
            "app-layer-event:http.no_such_event",
            Kind::Value,
        ),
        (
            TCP,
            "app-layer-event:pkt_broken;",
            "app-layer-event:pkt_broken",
            Kind::Value,
        ),
        (TCP, "igmp.type:256;", "256", Kind::Value),
        (TCP, "ipopts:none;", "none", Kind::Value),
        (TCP, "modbus:function 0;", "0", Kind::Value),
        (TCP, "modbus:function !all;", "!all", Kind::Value),
        (TCP, "modbus:unit 1, 5;", "5", Kind::Syntax),
        (
            TCP,
            "modbus:function 3, subfunction 1;",
            "3",
            Kind::Conflict,
        ),
        (TCP, "modbus:access write input;", "input", Kind::Conflict),
        (TCP, "modbus:access read, address 3;", "3", Kind::Syntax),
        (
            TCP,
            "modbus:access read holding, address 3, value 3;",
            "3",
            Kind::Conflict,
        ),
        (
            HTTP,
            "modbus:function 3;",
            "modbus:function 3",
            Kind::Conflict,
        ),
        (
            TCP,
            "asn1:relative_offset 0;",
            "relative_offset 0",
            Kind::Syntax,
        ),
        (
            TCP,
            "asn1:oversize_length;",
            "oversize_length",
            Kind::Syntax,
        ),
        (TCP, "asn1:overflow;", "overflow", Kind::Value),
        (HTTP, "http.uri; subslice:0,0;", "0", Kind::Value),
        (HTTP, "http.uri; subslice:0,1,cut;", "cut", Kind::Value),
        (
            TCP,
            "app-layer-state:request_started;",
            "app-layer-state:request_started",
            Kind::Conflict,
        ),
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
        (
            TCP,
            r#"file.data; strip_whitespace; content:"a b";"#,
            "\"a b\"",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"file.data; compress_whitespace; content:"a  b";"#,
            "\"a  b\"",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"file.data; to_lowercase; content:"Ab";"#,
            "\"Ab\"",
            Kind::Conflict,
        ),
        (
            TCP,
            r#"file.data; to_md5; content:"0123456789abcdef0";"#,
            "\"0123456789abcdef0\"",
            Kind::Conflict,
        ),
        (
            HTTP,
            r#"http.request_body; base64_decode; base64_data; content:"a"; fast_pattern;"#,
            "\"a\"",
            Kind::Conflict,
        ),
        (
            TCP,
            "tcp.hdr; byte_math:bytes 1, offset 1, oper +, rvalue 2, result r, relative;",
            "byte_math:bytes 1, offset 1, oper +, rvalue 2, result r, relative",
            Kind::Conflict,
        ),
        (TCP, r#"pcre:"/a(/";"#, "(", Kind::Expression),
        (TCP, r#"pcre:"/a/q";"#, "q", Kind::Value),
        (TCP, "lua:script.lua;", "script.lua", Kind::File),
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
        (TCP, "byte_jump:4,0,dce,big;", "4,0,dce,big", Kind::Conflict),
        (TCP, "tcp.mss:&0xf0=1;", "1", Kind::Value),
        (TCP, "tcp.mss:&0xf0;", "&0xf0", Kind::Syntax),
        (TCP, "dsize:>64KiB;", "64", Kind::Value),
        (
            TCP,
            "config:tracking disable, type tx, scope tx;",
            "tracking disable, type tx, scope tx",
            Kind::Unsupported,
        ),
        (
            TCP,
            "flow:no_stream; http.uri; content:\"a\";",
            "flow:no_stream",
            Kind::Conflict,
        ),
        (
            TCP,
            "flow:only_stream; content:\"a\"; flags:S;",
            "flags:S",
            Kind::Conflict,
        ),
        (
            "alert tcp-stream any any -> any any",
            "flow:no_stream; content:\"a\";",
            "flow:no_stream",
            Kind::Conflict,
        ),
        (
            TCP,
            "content:\"abc\"; fast_pattern:only; content:\"def\"; distance:0;",
            "\"def\"",
            Kind::Conflict,
        ),
        (
            TCP,
            "app-layer-protocol:http,sideways;",
            "sideways",
            Kind::Value,
        ),
        (
            "alert http1:request_line any any -> any any",
            "flow:to_client;",
            "http1:request_line",
            Kind::Conflict,
        ),
        (
            "alert http1:whenever any any -> any any",
            "",
            "whenever",
            Kind::Value,
        ),
        (
            "alert tls:client_finished any any -> any any",
            "",
            "client_finished",
            Kind::Unsupported,
        ),
        (
            "alert http1:request_line any any -> any any",
            "ttl:1;",
            "ttl:1",
            Kind::Conflict,
        ),
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
            "http.uri",
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
        ("alert tcp any any => any any", "", "=>", Kind::Conflict),
        ("alert tcp any any <- any any", "", "<-", Kind::Syntax),
        (
            "alert tcp any -> any any",
            "",
            "alert tcp any -> any any",
            Kind::Syntax,
        ),
        ("alter tcp any any -> any any", "", "alter", Kind::Syntax),
        (
            "alert s7commplus any any -> any any",
            "",
            "s7commplus",
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
        ("dce_iface:uuid 1;", "1", Kind::Value),
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
fn frames_that_are_not_kept() {
    let text = "alert krb5 any any -> any any (frame:pdu; content:\"a\"; sid:1;)";
    let refused = refused_of(Dialect::Suricata, text);
    assert_eq!(refused.kind, Kind::Unsupported, "{}", refused.reason);
    assert!(refused.reason.contains("`pdu`"), "{}", refused.reason);
}

#[test]
fn what_decides_nothing_is_noted() {
    let settings = LoadSettings {
        classes: read_classes("c", b"config classification: known,Known thing,2\n").0,
        ..LoadSettings::default()
    };
    let text = "alert http any any -> any any (filestore; classtype:unknown; sid:1;)\nalert tcp any any -> any any (logto:\"x\"; classtype:known; sid:2;)";
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
            (
                1,
                "`filestore`: files are not stored, the output `file-store` is not enabled",
            ),
            (1, "the class `unknown` is not defined: priority 3"),
            (2, "`logto`: alerts go to the configured outputs"),
        ]
    );
    assert_eq!(
        (loaded.rules[1].category.as_str(), loaded.rules[1].priority),
        ("Known thing", 2)
    );
}

//! Options to the exact model: numbers, decoded bytes, packets, bits, expressions.

use weir_sensor::buffer::Buffer;
use weir_sensor::rules::*;

use super::{content, exactly, group, http, loaded, read, rule_of, suricata};

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
    let between = |low, high| Range::new(low, high, false);
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
        "ssl_version:!sslv2,!SSLv3; ssl_state:client_hello|unknown; tls.version:1.2; app-layer-event:tls.invalid_record_type; stream-event:pkt_broken_ack; decode-event:ipv4.trunc_pkt;",
    );
    let record = |k: &str, v: &str, n| PacketCondition::Record(k.to_owned(), v.to_owned(), n);
    assert_eq!(rule.packet[0], record("ssl_version", "sslv2|sslv3", true));
    assert_eq!(
        rule.packet[1],
        record("ssl_state", "client_hello|unknown", false)
    );
    assert_eq!(
        rule.packet[3],
        PacketCondition::AppEvent("tls".to_owned(), "invalid_record_type".to_owned())
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
    let kept = Capture {
        group: 1,
        keep: Kept::Packet,
        name: "w".into(),
    };
    assert_eq!(two.captures, [kept]);
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
    let settings = LoadSettings::default();
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
fn dates_are_seconds() {
    let record = |options: &str| {
        let rule = rule_of(
            Dialect::Suricata,
            "alert tls any any -> any any",
            &format!("{options};"),
        );
        match &rule.packet[..] {
            [PacketCondition::Record(name, value, false)] => format!("{name} {value}"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        record("tls_cert_notbefore:1998-05-01<>2008-05-01"),
        "tls.cert_notbefore 893980801-1209599999"
    );
    assert_eq!(
        record("tls_cert_notafter:>2015"),
        format!("tls.cert_notafter 1420070401-{}", u64::MAX)
    );
    assert_eq!(
        record("tls_cert_notafter:<2024-02-29 12:30:01"),
        "tls.cert_notafter 0-1709209800"
    );
    assert_eq!(
        record("tls_cert_notbefore:2024-02-29T12"),
        "tls.cert_notbefore 1709208000-1709208000"
    );
    let numbers = "tls.cert_chain_len:0<>4";
    assert_eq!(record(numbers), "tls.cert_chain_len 1-3");
}

#[test]
fn what_a_rule_requires() {
    for (requires, met) in [
        ("version >= 7", true),
        ("version >= 7.0.3 < 8 | >= 8.0.0", true),
        ("version >= 7 < 8", false),
        ("version > 8.0.0", false),
        ("version >= 7, keyword dns.query, keyword flow", true),
        ("keyword dns.never", false),
        ("feature ja3", true),
        ("feature geoip", false),
    ] {
        let text = format!("{} (requires:{requires}; sid:1;)", super::TCP);
        let loaded = loaded(Dialect::Suricata, &text);
        assert_eq!(loaded.rules.len(), usize::from(met), "{requires}");
        assert!(
            met || loaded.refused[0].kind == Kind::Unsupported,
            "{requires}"
        );
    }
}

#[test]
fn bits_units_and_layers_of_numbers() {
    let masked = |mask, n, negated| Range {
        mask,
        ..Range::new(n, n, negated)
    };
    let rule = suricata(
        "tcp.mss:&0xF=4; ttl:&0xc0!=0x40; dsize:>1KiB; vlan.id:&0xf=1,all; vlan.id:!1,-1; ipopts:qs;",
    );
    let expected = [
        PacketCondition::Mss(masked(15, 4, false)),
        PacketCondition::Ttl(masked(0xc0, 0x40, true)),
        PacketCondition::PayloadSize(Range::new(1025, 65535, false)),
        PacketCondition::Vlan(VlanLayer::All, masked(15, 1, false)),
        PacketCondition::Vlan(VlanLayer::At(-1), Range::new(1, 1, true)),
        PacketCondition::IpOption("qs".into()),
    ];
    assert_eq!(rule.packet, expected);
    let rule = http("filesize:2MB<>1gb; http.uri; bsize:&1=1; content:\"abcd\";");
    let size = Range::new((2 << 20) + 1, (1 << 30) - 1, false);
    assert_eq!(rule.packet, [PacketCondition::FileSize(size, None)]);
    assert_eq!(
        rule.groups[0].conditions[0],
        Condition::Size(masked(1, 1, false)),
        "a content longer than the number is no contradiction"
    );
    let mask = Range {
        mask: 0xc0,
        ..Range::new(0x40, 0x40, false)
    };
    assert_eq!(
        [0x40, 0x7f, 0x80, 0].map(|n| mask.has(n)),
        [true, true, false, false]
    );
}

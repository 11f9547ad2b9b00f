//! What the log of a run says of rejected rules: sites search it for these phrases.

use weir_sensor::rules::*;

use super::loaded;

fn said(head: &str, options: &str) -> (String, String) {
    let text = format!("{head} ({options})\n");
    let mut loaded = loaded(Dialect::Suricata, &text);
    assert!(loaded.rules.is_empty(), "this loads: {text}");
    loaded.refused.remove(0).logged()
}

#[test]
fn each_reason_has_its_phrase() {
    let tcp = "alert tcp any any -> any any";
    let http = "alert http any any -> any any";
    let both = "alert http any any => any any";
    let cases = [
        (
            tcp,
            r#"content:"a"; depth:5; depth:6; sid:1;"#,
            "detect-depth",
            "can't use multiple depths for the same content.",
        ),
        (
            tcp,
            r#"content:"a"; within:5; within:6; sid:1;"#,
            "detect-within",
            "can't use multiple withins for the same content.",
        ),
        (
            tcp,
            r#"content:"a"; distance:5; distance:6; sid:1;"#,
            "detect-distance",
            "can't use multiple distances for the same content.",
        ),
        (
            tcp,
            r#"content:"a"; offset:5; distance:6; sid:1;"#,
            "detect-content",
            "can't use a relative keyword like within/distance with a absolute relative keyword like depth/offset for the same content.",
        ),
        (
            tcp,
            r#"content:"a"; content:"b"; fast_pattern:only; offset:6; sid:1;"#,
            "detect-content",
            "can't have a relative keyword set along with 'fast_pattern:only;'.",
        ),
        (
            tcp,
            r#"content:"a"; depth:-5; sid:1;"#,
            "detect-depth",
            "invalid value for depth: -5.",
        ),
        (
            tcp,
            r#"content:"a"; offset:-5; sid:1;"#,
            "detect-offset",
            "invalid value for offset: -5.",
        ),
        (
            tcp,
            r#"content:"a"; within:1048577; sid:1;"#,
            "detect-within",
            "invalid value for within: 1048577",
        ),
        (
            tcp,
            r#"content:"a"; distance:-1048577; sid:1;"#,
            "detect-distance",
            "invalid value for distance: -1048577",
        ),
        (
            tcp,
            r#"content:"a"; depth:d; sid:1;"#,
            "detect-depth",
            "unknown byte_ keyword var seen in depth - d.",
        ),
        (
            tcp,
            r#"content:"a"; within:w; sid:1;"#,
            "detect-within",
            "unknown byte_ keyword var seen in within - w",
        ),
        (
            tcp,
            "byte_jump:no_var,0; sid:1;",
            "detect-byte-jump",
            "Unknown byte_extract var seen in byte_jump - no_var",
        ),
        (
            tcp,
            "byte_test:1,=,no_var,0; sid:1;",
            "detect-byte-test",
            "Unknown byte_extract var seen in byte_test - no_var",
        ),
        (
            tcp,
            "isdataat:no_var; sid:1;",
            "detect-isdataat",
            "Unknown byte_extract var seen in isdataat - no_var",
        ),
        (
            tcp,
            "depth:5; sid:1;",
            "detect-depth",
            "depth needs preceding content option",
        ),
        (
            tcp,
            r#"content:"AA" depth:20; sid:1;"#,
            "detect-parse",
            "bad option value formatting (possible missing semicolon) for keyword content: '\"AA\" depth:20'",
        ),
        (
            tcp,
            r#"content:"AA";; sid:1;"#,
            "detect-parse",
            "unknown rule keyword ''.",
        ),
        (
            tcp,
            "nothing:1; sid:1;",
            "detect-parse",
            "unknown rule keyword 'nothing'.",
        ),
        (
            tcp,
            r#"content:"a";"#,
            "detect-parse",
            "Signature missing required value \"sid\".",
        ),
        (
            tcp,
            r#"content:"|l0 01|"; sid:1;"#,
            "detect-content",
            "Invalid hex code in content - |l0 01|, hex l. Invalidating signature.",
        ),
        (
            tcp,
            r#"content:"|22 2|"; sid:1;"#,
            "detect-content",
            "Incomplete hex code in content - |22 2|. Invalidating signature.",
        ),
        (
            tcp,
            r#"content:"|1"; sid:1;"#,
            "detect-content",
            "Invalid hex code assembly in content - |1.  Invalidating signature.",
        ),
        (
            http,
            r#"http.host; content:"A.com"; sid:7;"#,
            "detect-http-host",
            "rule 7: A pattern with uppercase characters detected for http.host. The hostname buffer is normalized to lowercase, please specify a lowercase pattern.",
        ),
        (
            http,
            r#"content:"a.com"; http_host; nocase; sid:7;"#,
            "detect-http-host",
            "rule 7: http.host keyword specified along with \"nocase\". The hostname buffer is normalized to lowercase, specifying nocase is redundant.",
        ),
        (
            http,
            r#"http.uri; content:"abc"; bsize:2; sid:1;"#,
            "detect-bsize",
            "signature can't match as required content length 3 exceeds bsize value: 2",
        ),
        (
            http,
            r#"http.uri; content:"abc"; bsize:<3; sid:1;"#,
            "detect-bsize",
            "signature can't match as required content length 3 exceeds bsize value: 3",
        ),
        (
            http,
            r#"http.uri; content:"abcd"; bsize:1<>4; sid:1;"#,
            "detect-bsize",
            "signature can't match as required content length 4 exceeds bsize range: 1-4",
        ),
        (
            http,
            r#"http.uri; content:"abc"; offset:3; depth:3; bsize:3; sid:1;"#,
            "detect-bsize",
            "signature can't match as required content length 6 exceeds bsize value: 3",
        ),
        (
            http,
            r#"http.uri; content:"abc"; content:"d"; distance:2; bsize:5; sid:1;"#,
            "detect-bsize",
            "signature can't match as required content length 6 exceeds bsize value: 5",
        ),
        (
            http,
            r#"file.data; strip_whitespace; content:"a b"; sid:1;"#,
            "detect-content",
            "content string \"a b\" incompatible with strip_whitespace transform",
        ),
        (
            http,
            "http.uri; pcrexform; content:\"a\"; sid:1;",
            "detect-parse",
            "invalid formatting or malformed option to pcrexform keyword: 'pcrexform'",
        ),
        (
            http,
            r#"http.uri; pcre:"/a/P"; sid:1;"#,
            "detect-pcre",
            "Expression seen with a sticky buffer still set; use pkt_data, or use a sticky buffer of \"http request body\"",
        ),
        (
            http,
            r#"flow:to_client; http.uri; content:"a"; sid:9;"#,
            "detect-parse",
            "rule 9 mixes keywords with conflicting directions",
        ),
        (
            both,
            r#"http.uri; content:"a"; sid:9;"#,
            "detect-parse",
            "rule 9 should use both directions, but does not",
        ),
        (
            both,
            r#"content:"a"; sid:9;"#,
            "detect-parse",
            "rule 9 should use both directions, but does not",
        ),
        (
            both,
            r#"http.uri; content:"a"; http.stat_code; content:"2"; http.connection; content:"e"; sid:9;"#,
            "detect-parse",
            "rule 9 means to use both directions, cannot have keywords ambiguous about directions",
        ),
        (
            both,
            r#"http.uri; content:"a"; http.stat_code; content:"2"; flow:to_server; sid:9;"#,
            "detect-parse",
            "rule 9 means to use both directions, cannot specify a flow direction",
        ),
        (
            http,
            r#"http.request_body; base64_decode:bytes 28; base64_data; content:"a"; fast_pattern; sid:1;"#,
            "detect-fast-pattern",
            "fast_pattern cannot be used with base64_data",
        ),
        (
            http,
            "requires: feature fortune; sid:1;",
            "detect-requires",
            "missing a required feature: feature fortune",
        ),
        (
            http,
            "http.host; dataset:set,s,type string,state /a; sid:1;",
            "detect-dataset",
            "Absolute paths not allowed: /a",
        ),
        (
            http,
            "http.host; dataset:set,s,type string,save b/../a; sid:1;",
            "detect-dataset",
            "Directory traversals not allowed: b/../a",
        ),
    ];
    for (head, options, module, text) in cases {
        let (by, found) = said(head, options);
        assert_eq!((by.as_str(), found.as_str()), (module, text), "{options}");
    }
}

/// The first rule with a set says what is wrong with it.
#[test]
fn a_broken_set_is_told_once() {
    let folder = std::env::temp_dir().join(format!("weir-phrases-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("folder");
    let settings = LoadSettings {
        datasets: Some(folder.clone()),
        ..LoadSettings::default()
    };
    let cases = [
        ("", "YQ==\nYg\x01=\n", "bad base64 encoding s"),
        (
            "",
            "YQ==\nYg==,1\n",
            "Cannot mix dataset and datarep values for set s",
        ),
        (
            "datarep",
            "YQ==,1\nYg==\n",
            "Cannot mix dataset and datarep values for set s",
        ),
        ("datarep", "YQ==,-1\n", "invalid datarep value s"),
        ("datarep", "YQ==,65536\n", "invalid datarep value s"),
    ];
    for (keyword, file, text) in cases {
        std::fs::write(folder.join("s.lst"), file).expect("file");
        let of = match keyword {
            "" => "dataset:isset,s,type string,load s.lst",
            _ => "datarep:s,>,1,type string,load s.lst",
        };
        let rule =
            |sid: u32| format!("alert http any any -> any any (http.host; {of}; sid:{sid};)\n");
        let loaded = super::loaded_with(&settings, &[rule(1), rule(2)].concat());
        let said: Vec<_> = loaded.refused.iter().map(|r| r.logged().1).collect();
        assert_eq!(said.len(), 2, "{file:?}");
        assert_eq!(said[0], text);
        assert!(!said[1].contains(text), "{}", said[1]);
    }
    // Reputations that a set has no use for.
    std::fs::write(folder.join("s.lst"), "YQ==,1\nYg==,2\n").expect("file");
    let rule = "alert http any any -> any any (http.host; dataset:isset,s,type string,load s.lst; sid:1;)\n";
    assert!(super::loaded_with(&settings, rule).refused.is_empty());
    std::fs::remove_dir_all(&folder).expect("removed");
}

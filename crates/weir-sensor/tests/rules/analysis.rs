//! What an analysis says of rules: kinds, flags, where conditions are looked for, what leads, which bits rules wait for, and the files that it writes.

use std::path::PathBuf;

use serde_json::{Value, json};
use weir_sensor::analysis::analyze;
use weir_sensor::config::SensorConfig;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("weir-analysis-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    Folder(path)
}

/// The files of an analysis: what each of its lines says.
fn analyzed(name: &str, rules: &str, sets: &[&str]) -> impl Fn(&str) -> Vec<Value> {
    let folder = folder(name);
    let file = folder.0.join("test.rules");
    std::fs::write(&file, rules).expect("rules");
    let mut settings = Settings::default();
    for set in [
        &[
            "engine-analysis.rules=yes",
            "engine-analysis.rules-fast-pattern=yes",
        ],
        sets,
    ]
    .concat()
    {
        settings.set(set).expect(set);
    }
    let config = SensorConfig::from_settings(&settings).expect("right");
    let analysis = analyze(&config, Dialect::Suricata, &[file], &folder.0).expect("an analysis");
    assert!(
        analysis.book.loaded.refused.is_empty(),
        "{:?}",
        analysis.book.loaded.refused
    );
    move |file| {
        let text = std::fs::read_to_string(folder.0.join(file)).expect(file);
        let line = |l: &str| serde_json::from_str(l).expect("JSON");
        text.lines().map(line).collect()
    }
}

/// The rules of these options, numbered from 1, as `rules.json` has them.
fn rules(name: &str, rules: &[&str]) -> Vec<Value> {
    let numbered = rules.iter().zip(1..);
    let text: String = numbered
        .map(|(rule, sid)| format!("{} sid:{sid};)\n", rule.strip_suffix(')').expect("a rule")))
        .collect();
    analyzed(name, &text, &[])("rules.json")
}

#[test]
fn each_kind_of_rule() {
    let kinds = [
        ("alert ip any any -> any any (hostbits:set,a;)", "ip_only"),
        (
            "alert tcp !10.0.0.1 any -> any any (msg:\"m\";)",
            "like_ip_only",
        ),
        ("alert tcp any any -> any 80 (msg:\"m\";)", "pkt"),
        (
            "alert tcp any any -> any any (app-layer-protocol:!http;)",
            "pd_only",
        ),
        (
            "alert pkthdr any any -> any any (decode-event:ipv4.pkt_too_small;)",
            "de_only",
        ),
        ("alert dns any any -> any any (msg:\"m\";)", "app_layer"),
        (
            "alert http any any -> any any (http.uri; content:\"a\";)",
            "app_tx",
        ),
        ("alert tcp any any -> any any (content:\"a\";)", "stream"),
        (
            "alert tcp any any -> any any (content:\"a\"; depth:9;)",
            "pkt_stream",
        ),
        ("alert tcp-pkt any any -> any any (content:\"a\";)", "pkt"),
        ("alert udp any any -> any any (content:\"a\";)", "pkt"),
        (
            "alert tcp any any -> any any (tcp.hdr; content:\"a\";)",
            "pkt",
        ),
        ("alert http any any -> any any (dsize:0;)", "pkt"),
    ];
    let texts: Vec<&str> = kinds.iter().map(|(rule, _)| *rule).collect();
    for (found, (rule, kind)) in rules("kinds", &texts).iter().zip(kinds) {
        assert_eq!(found["type"], kind, "{rule}");
    }
}

#[test]
fn numbers_are_shown_as_they_are_compared() {
    let cases = [
        ("19", json!({"equal": 19})),
        ("!0x14", json!({"diff": 20})),
        (">21", json!({"gt": 21})),
        (">=21", json!({"gte": 21})),
        ("<22", json!({"lt": 22})),
        ("<=22", json!({"lte": 22})),
        ("19-22", json!({"range": {"min": 19, "max": 22}})),
        ("!19<>22", json!({"negated_range": {"min": 19, "max": 22}})),
        (
            "&0xc0!=0",
            json!({"negated_bitmask": {"mask": 192, "value": 0}}),
        ),
    ];
    let texts: Vec<String> = cases
        .iter()
        .map(|(value, _)| format!("alert tcp any any -> any any (flow.age:{value};)"))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for (found, (value, expected)) in rules("numbers", &texts).iter().zip(cases) {
        let condition = json!({"name": "flow.age", "flow_age": expected});
        assert_eq!(
            found["lists"]["packet"]["matches"],
            json!([condition]),
            "{value}"
        );
    }
    let found = rules(
        "exact",
        &["alert tcp any any -> any any (seq:624; tcp.window:!1024; flags:S,CE;)"],
    );
    let expected = json!([
        {"name": "tcp.seq", "seq": {"number": 624}},
        {"name": "tcp.window", "window": {"size": 1024, "negated": true}},
        {"name": "tcp.flags"},
    ]);
    assert_eq!(found[0]["lists"]["packet"]["matches"], expected);
    let requires = json!(["tcp_flags_init_deinit", "real_pkt"]);
    assert_eq!(found[0]["requirements"], requires);
}

#[test]
fn buffers_by_protocol_and_direction() {
    let found = rules(
        "buffers",
        &[
            "alert http any any -> any any (flow:to_server; urilen:<70; http.uri; content:\".php?\"; content:\"=01&\"; distance:4; within:4; fast_pattern;)",
            "alert http1 any any -> any any (urilen:44; content:\"abc\";)",
            "alert tcp any any -> any any (content:\"one\"; distance:8; within:3; isdataat:4,relative;)",
            "alert http any any -> any any (content:\"a\"; http_uri; pcre:\"/b/V\";)",
            "alert tcp any any -> any any (ftpbounce;)",
        ],
    );
    let names = |at: usize| {
        let engines = found[at]["engines"].as_array().expect("engines").iter();
        let name = |e: &Value| format!("{} {}", e["name"], e["app_proto"]).replace('"', "");
        engines.map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(0), ["http_uri http2", "http_uri http"]);
    assert_eq!(found[0]["app_proto"], "http_any");
    assert_eq!(
        (&found[0]["mpm"]["buffer"], &found[0]["mpm"]["pattern"]),
        (&json!("http_uri"), &json!("=01&"))
    );
    assert_eq!(found[0]["engines"][0]["matches"][0]["name"], "urilen");
    assert_eq!(names(1), ["stream unknown", "http_uri http"]);
    assert_eq!(found[1]["app_proto"], "http");
    // A first content counts from the start.
    let content = &found[2]["lists"]["payload"]["matches"][0]["content"];
    assert_eq!(
        (&content["offset"], &content["depth"]),
        (&json!(8), &json!(11))
    );
    assert_eq!(content["relative_next"], true);
    // The flags of an expression are HTTP/1's.
    assert_eq!(names(3), ["http_uri http", "http_user_agent http"]);
    // A number of a transaction is known at its end.
    assert_eq!(
        names(4),
        [
            "ftp:request_complete:generic ftp",
            "ftp:response_complete:generic ftp"
        ]
    );
    assert_eq!(found[4]["app_proto"], "ftp");
}

/// Only where the bit comes from a transaction and no rule about transactions asks for it in time.
#[test]
fn rules_wait_for_bits_of_transactions() {
    let found = rules(
        "bits",
        &[
            "alert http any any -> any any (http.uri; content:\"x\"; flowbits:set,a;)",
            "alert http any any -> any any (http.uri; content:\"y\"; flowbits:set,b;)",
            "alert ip any any -> any any (flowbits:isset,b|a;)",
            "alert http any any -> any any (http.uri; content:\"z\"; flowbits:isset,b;)",
            "alert tcp any any -> any any (content:\"w\"; flowbits:set,c;)",
            "alert tcp any any -> any any (flowbits:isset,c;)",
        ],
    );
    let of =
        |at: usize| &found[at]["dependencies"]["flowbits"]["upstream"]["state_modifying_rules"];
    assert_eq!(*of(2), json!({"sids": [1], "names": ["a"]}));
    for at in [0, 1, 3, 4, 5] {
        assert_eq!(*of(at), Value::Null, "{at}");
    }
}

#[test]
fn contents_and_groups_of_ports() {
    let text = "alert tcp any any -> any 1:10 (flow:to_server; content:\"abc\"; sid:1;)\nalert tcp any any -> any 5:20 (flow:to_server; content:\"abc\"; nocase; sid:2;)\nalert tcp any any -> any 80 (flow:to_server; http.uri; content:\"u\"; sid:3;)\n";
    let files = analyzed(
        "groups",
        text,
        &[
            "detect.profiling.grouping.dump-to-disk=yes",
            "detect.profiling.grouping.include-rules=yes",
        ],
    );
    let groups = &files("rule_group.json")[0];
    let spans: Vec<(u64, u64, u64)> = groups["tcp"]["toserver"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|g| {
            let number = |v: &Value| v.as_u64().expect("a number");
            let rules = g["rulegroup"]["rules"].as_array().expect("rules").len();
            (number(&g["port"]), number(&g["port2"]), rules as u64)
        })
        .collect();
    assert_eq!(spans, [(80, 80, 1), (5, 10, 2), (1, 4, 1), (11, 20, 1)]);
    assert_eq!(groups["tcp"]["toclient"], json!([]));
    let patterns = &files("patterns.json")[0]["buffers"];
    let names: Vec<&Value> = patterns
        .as_array()
        .expect("buffers")
        .iter()
        .map(|b| &b["name"])
        .collect();
    assert_eq!(names, ["http_uri", "payload"]);
    assert_eq!(patterns[1]["patterns"].as_array().map(Vec::len), Some(2));
}

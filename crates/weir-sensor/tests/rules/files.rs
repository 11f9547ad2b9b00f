//! Tables and files beside the rules: thresholds, reputation, datasets.

use weir_sensor::rules::*;

use super::loaded_with;

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
    let settings = LoadSettings {
        reputation: std::sync::Arc::new(reputation),
        ..LoadSettings::default()
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
            value: Range::new(5, 127, false),
            absent: false,
        }]
    );
}

#[test]
fn datasets_are_read_below_their_folder() {
    let folder = std::env::temp_dir().join(format!("weir-datasets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(folder.join("names"), "ZXhhbXBsZS5jb20=\nYQ==\n").expect("written");
    std::fs::write(folder.join("hashes"), "00112233445566778899aabbccddeeff\n").expect("written");
    std::fs::write(folder.join("scores"), "ZXhhbXBsZS5jb20=,7\nYQ==, 65535\n").expect("written");
    let settings = LoadSettings {
        datasets: Some(folder.clone()),
        ..LoadSettings::default()
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
        + &rule(7, "clear,n,type string,load names")
        + &rule(8, "isset,n,type ja3,load names")
        + &rule(9, "isnotset,n")
        + &rule(10, "isset,n,type md5")
        + &rule(11, "isset,unknown,type string")
        + &rule(12, "isset,n,match subdomain")
        + &rule(13, "isset,h,match subdomain");
    let rep = |n: u32, what: &str| {
        format!("alert dns any any -> any any (dns.query; datarep:{what}; sid:{n};)\n")
    };
    let text = text
        + &rep(21, "n, >, 6, load scores, type string")
        + &rep(22, "n, ==, 65535")
        + &rep(23, "n, >=, 6")
        + &rep(24, "n, <, 65536")
        + &rep(25, "m, <, 7, load names, type string")
        // Reputations that a set has no use for.
        + &rule(26, "isset,s,type string,load scores");
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
            (Some(7), Kind::Value),
            (Some(8), Kind::Unsupported),
            (Some(10), Kind::Conflict),
            (Some(11), Kind::Syntax),
            (Some(13), Kind::Conflict),
            (Some(23), Kind::Value),
            (Some(24), Kind::Value),
            (Some(25), Kind::File),
        ]
    );
    let set = |i: usize| match &loaded.rules[i].groups[0].conditions[0] {
        Condition::Dataset(set) => set.clone(),
        other => panic!("{other:?}"),
    };
    assert!(set(0).holds(b"example.com") && set(0).holds(b"a") && !set(0).holds(b".a"));
    assert!(set(1).holds(b"a") && set(1).members.keys().all(|m| m.len() == 16));
    // The set that another rule has loaded.
    assert!(!set(2).holds(b"a") && set(2).holds(b"b"));
    let subdomains = std::sync::Arc::new(Members::from([(b".evil.example".to_vec(), 0)]));
    let subdomains = Dataset {
        members: subdomains,
        ..(*set(3)).clone()
    };
    assert!(subdomains.holds(b".a.evil.example") && subdomains.holds(b".evil.example"));
    assert!(!subdomains.holds(b".devil.example") && !subdomains.holds(b".evil.example.org"));
    assert!(set(4).holds(b"example.com") && set(4).holds(b"a") && !set(4).holds(b"b"));
    assert!(set(5).holds(b"a") && !set(5).holds(b"example.com") && !set(5).holds(b"b"));
}

#[test]
fn sets_in_json_that_are_wrong_are_refused() {
    let folder = std::env::temp_dir().join(format!("weir-json-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let hosts = r#"{"list": {"bad": [{"name": {"host": "a"}}, {"name": {}}]}}"#;
    std::fs::write(folder.join("hosts"), hosts).expect("written");
    std::fs::write(folder.join("lines"), "{\"ip\": \"192.0.2.1\"}\n\n").expect("written");
    std::fs::write(folder.join("broken"), "[1").expect("written");
    let long = format!(
        "{{\"ip\": \"192.0.2.1\", \"x\": \"{}\"}}",
        "x".repeat(17_000)
    );
    std::fs::write(folder.join("long"), long).expect("written");
    let settings = LoadSettings {
        datasets: Some(folder.clone()),
        ..LoadSettings::default()
    };
    let text: String = [
        "type string,load hosts,format json,value_key name.host,context_key b,array_key list.bad",
        "type ip,load lines,format ndjson,value_key ip,context_key b",
        "type ip,load lines,format csv",
        "type string,load broken,format json,value_key a,context_key b",
        "type string,load broken,format ndjson,value_key a,context_key b",
        "type string,load hosts,format json,value_key name,context_key b,array_key list.bad",
        "type string,load hosts,format json,value_key name.host,context_key b",
        "type ipv6,load lines,format ndjson,value_key ip,context_key b",
        "type ip,load lines,format ndjson,value_key ip",
        "type ip,load lines,format xml,value_key ip,context_key b",
        "type ip,load lines,value_key ip,context_key b",
        "type ip,load lines,format ndjson,value_key ip,context_key b,array_key c",
        "type ip,load long,format ndjson,value_key ip,context_key b",
    ]
    .iter()
    .zip(1..)
    .map(|(set, n)| {
        format!("alert dns any any -> any any (dns.query; dataset:isset,s{n},{set}; sid:{n};)\n")
    })
    .collect();
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
            (Some(7), Kind::File),
            (Some(8), Kind::File),
            (Some(9), Kind::Syntax),
            (Some(10), Kind::Value),
            (Some(11), Kind::Conflict),
            (Some(12), Kind::Conflict),
            (Some(13), Kind::File),
        ]
    );
    let Condition::Dataset(set) = &loaded.rules[0].groups[0].conditions[0] else {
        panic!("a set");
    };
    let (_, said) = set.says(b"a").expect("a member");
    assert_eq!(said, r#"{"name":{"host":"a"}}"#);
    assert!(set.says(b"b").is_none());
}

#[test]
fn files_that_are_not_there() {
    let nowhere = std::path::PathBuf::from("/nonexistent/a.rules");
    let error = load(&[nowhere], &LoadSettings::default()).expect_err("it is not there");
    assert_eq!(
        error.to_string(),
        "cannot read rules from /nonexistent/a.rules"
    );
}

/// A file is read in pieces: wherever they end, its rules, their lines and what is refused are those of the whole.
#[test]
fn long_files_are_read_as_short_ones() {
    for dialect in [Dialect::Suricata, Dialect::Snort] {
        let settings = LoadSettings {
            dialect,
            ..LoadSettings::default()
        };
        let mut text = String::from("\u{feff}# rules\n");
        for n in 1..3_000 {
            text += &match (n % 7, dialect) {
                (0, _) => format!(
                    "alert tcp any any -> any any \\\r\n  (msg:\"{n}\"; \\\n content:\"abc {n}\"; sid:{n};)\n"
                ),
                (1, _) => format!(
                    "# a comment of line {n} \\\n#alert tcp any any -> any any (sid:{n};)\n\n"
                ),
                (2, Dialect::Snort) => format!(
                    "alert tcp any any -> any any\n(\n  msg:\"{n}\";\n # why\n  content:\"abc {n}\";\n\n  sid:{n};\n)\n"
                ),
                (3, _) => {
                    format!("alert tcp any any -> any any (msg:\"{n}\"; nonsense; sid:{n};)\n")
                }
                _ => format!(
                    "alert tcp any any -> any any (msg:\"{n}\"; content:\"{}\"; sid:{n};)\n",
                    "x".repeat(n % 90)
                ),
            };
        }
        // One that is longer than a piece, and a last line without an end.
        let long = "y".repeat(8_000);
        for n in 3_000..3_020 {
            text += &format!("alert tcp any any -> any any (msg:\"{n}\"; \\\n");
            text += &format!("content:\"{long}\"; \\\n").repeat(if n == 3_010 { 20 } else { 1 });
            text += &format!("sid:{n};)\n");
        }
        text += "alert tcp any any -> any any (msg:\"last\"; content:\"last\"; sid:9999;)";
        let path = std::env::temp_dir().join(format!("weir-pieces-{}.rules", std::process::id()));
        std::fs::write(&path, &text).expect("written");
        let mut whole = Loader::new(&settings);
        whole.text(&path.display().to_string(), text.as_bytes());
        let whole = whole.finish();
        let pieces = load(std::slice::from_ref(&path), &settings);
        std::fs::remove_file(&path).expect("there");
        let pieces = pieces.expect("a file");
        assert!(
            whole.rules.len() > 1_500 && whole.refused.len() > 400,
            "{:?}",
            whole.reasons()
        );
        assert!(whole.rules.last().is_some_and(|r| r.sid == 9999));
        assert!(pieces.rules == whole.rules, "{dialect:?}");
        let refused = |l: &Loaded| -> Vec<String> {
            l.refused.iter().map(|r| r.explain().to_string()).collect()
        };
        assert_eq!(refused(&pieces), refused(&whole));
        assert_eq!((pieces.disabled, pieces.files), (whole.disabled, 1));
    }
}

#[test]
fn what_a_second_rule_says_of_a_set_and_has_no_effect_is_noted() {
    let folder = std::env::temp_dir().join(format!("weir-set-notes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(folder.join("names"), "YQ==\n").expect("written");
    let settings = LoadSettings {
        datasets: Some(folder.clone()),
        set_files: SetFiles {
            folder: Some(folder.clone()),
            ..SetFiles::default()
        },
        ..LoadSettings::default()
    };
    let rule = |n: u32, what: &str| {
        format!("alert dns any any -> any any (dns.query; dataset:{what}; sid:{n};)\n")
    };
    let text = rule(1, "isset,n,type string,load names")
        + &rule(2, "set,n,type string,load names,save a.lst")
        + &rule(3, "unset,n,save a.lst,memcap 100mb")
        + &rule(4, "set,n,save b.lst")
        + &rule(5, "isset,n,type string,load names,memcap 1mb");
    let loaded = loaded_with(&settings, &text);
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(loaded.refused, []);
    let notes: Vec<_> = (loaded.notes.iter())
        .map(|n| (n.sid, n.text.clone()))
        .collect();
    let [a, b] = ["a.lst", "b.lst"].map(|name| folder.join(name).display().to_string());
    let expected = [
        (4, format!("the set is written to {a}, not to {b}")),
        (
            5,
            "`memcap`: the set has 104857600 bytes already".to_owned(),
        ),
    ];
    assert_eq!(notes, expected);
}

//! Chains: what they are laid flat to, what their rules are called, and what is said of them.

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use weir_packet::generate::well_formed;
use weir_policy::ast::Item;
use weir_policy::model::Rule;
use weir_policy::reference::{Input, Meta, PortId, matches};
use weir_policy::{NoFiles, Parsed, Source, describe, format_source, parse};

fn read(text: &str) -> Parsed {
    match parse(&Source::new("p.weir", text), &NoFiles) {
        Ok(parsed) => parsed,
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

/// Rules with what they mean, without ids, names and lines.
fn meaning(parsed: &Parsed) -> Vec<Rule> {
    let bare = |rule: &Rule| Rule {
        id: 0,
        name: None,
        line: 0,
        ..rule.clone()
    };
    parsed.policy.rules.iter().map(bare).collect()
}

fn names(parsed: &Parsed) -> Vec<&str> {
    let rules = parsed.policy.rules.iter();
    rules
        .map(|rule| rule.name.as_deref().unwrap_or("-"))
        .collect()
}

fn said(text: &str) -> Vec<String> {
    let found = match parse(&Source::new("p.weir", text), &NoFiles) {
        Ok(parsed) => parsed.warnings,
        Err(errors) => errors,
    };
    found
        .iter()
        .map(|one| format!("{}:{}: {}", one.line, one.column, one.message))
        .collect()
}

#[test]
fn a_chain_is_its_rules_behind_the_matches_of_the_jump() {
    let chained = read(
        "chain web {\n    allow-http: tcp-dport 80 accept\n    tcp-dport 443 log \"tls\" accept\n}\n\nssh: tcp-dport 22 accept\nin wan0 ip-saddr 192.0.2.0/24 jump web\nall drop\n",
    );
    let flat = read(
        "tcp-dport 22 accept\nin wan0 ip-saddr 192.0.2.0/24 tcp-dport 80 accept\nin wan0 ip-saddr 192.0.2.0/24 tcp-dport 443 log \"tls\" accept\nall drop\n",
    );
    assert_eq!(meaning(&chained), meaning(&flat));
    assert_eq!(names(&chained), ["ssh", "web/allow-http", "web/2", "-"]);
    let lines: Vec<u32> = chained.policy.rules.iter().map(|rule| rule.line).collect();
    assert_eq!(lines, [6, 2, 3, 8]);
    let texts: Vec<String> = chained.texts().collect();
    assert_eq!(
        texts,
        [
            "ssh: tcp-dport 22 accept",
            "in wan0 ip-saddr 192.0.2.0/24 tcp-dport 80 accept  # web/allow-http",
            "in wan0 ip-saddr 192.0.2.0/24 tcp-dport 443 log \"tls\" accept  # chain web",
            "all drop",
        ]
    );
    assert_eq!(chained.sources().collect::<Vec<_>>(), [2, 0, 1, 4]);
    assert!(describe(&chained.policy.rules[1]).contains("(web/allow-http)"));
}

#[test]
fn several_ways_into_a_chain_have_the_names_of_their_jumps() {
    let parsed = read(
        "chain web {\n    http: tcp-dport 80 accept\n}\nchain both {\n    in wan0 jump web\n    lan: in lan0 jump web\n}\nfrom-dmz: in dmz0 jump web\nall jump both\n",
    );
    assert_eq!(
        names(&parsed),
        ["web/http@from-dmz", "web/http@2", "web/http@both/lan"]
    );
    // What `all` adds to other tests is nothing.
    let flat = read(
        "in dmz0 tcp-dport 80 accept\nin wan0 tcp-dport 80 accept\nin lan0 tcp-dport 80 accept\n",
    );
    assert_eq!(meaning(&parsed), meaning(&flat));
}

#[test]
fn a_choice_is_a_rule_for_its_values() {
    let parsed = read(
        "set admins = { 10.0.0.1, 10.0.0.2 }\nchain admin {\n    tcp-dport 22 accept\n}\nby: in wan0 choose ip-saddr { @admins: jump admin, 192.0.2.0/24: log accept, else: drop }\nchoose in { lan0: accept, else: log }\nchoose net-proto { ip4: log \"4\", ip6: log \"6\" }\n",
    );
    let flat = read(
        "set admins = { 10.0.0.1, 10.0.0.2 }\nin wan0 ip-saddr in @admins tcp-dport 22 accept\nin wan0 ip-saddr 192.0.2.0/24 log accept\nin wan0 ! ip-saddr in { 10.0.0.1, 10.0.0.2, 192.0.2.0/24 } drop\nin lan0 accept\n! in { lan0 } log\nnet-proto ip4 log \"4\"\nnet-proto ip6 log \"6\"\n",
    );
    let (have, want) = (meaning(&parsed), meaning(&flat));
    assert_eq!(have.len(), want.len());
    for (n, (have, want)) in have.iter().zip(&want).enumerate() {
        // `else` behind a set is two tests.
        if n != 2 {
            assert_eq!(have, want);
        }
    }
    assert_eq!(
        names(&parsed),
        [
            "admin/1",
            "by[192.0.2.0/24]",
            "by[else]",
            "-",
            "-",
            "-",
            "-"
        ]
    );
}

/// Whether a rule of a chain matches is asked of its two parts, each read as a rule of its own.
#[test]
fn a_rule_of_a_chain_matches_what_the_jump_and_it_match() {
    let mut runner = TestRunner::deterministic();
    let rules = weir_policy::generate::policy_text();
    let frames: Vec<Vec<u8>> = (0..300)
        .map(|_| drawn(&mut runner, well_formed()))
        .collect();
    let (mut met, mut left_out) = (0, 0);
    for _ in 0..150 {
        let parsed = read(&drawn(&mut runner, &rules));
        if parsed.flat.is_some() {
            continue;
        }
        let (text, file) = (&parsed.ast.text, &parsed.ast);
        let sets = file.items.iter().filter_map(|item| match item {
            Item::Set(set) => Some(format!("{}\n", set.span.of(text))),
            _ => None,
        });
        let sets: String = sets.collect();
        // Tests alone, so that the jump asks for nothing that targets need.
        let tests: Vec<String> = parsed
            .written()
            .map(|rule| {
                let tests = rule.matches.iter().map(|one| one.span.of(text));
                tests.collect::<Vec<_>>().join(" ")
            })
            .collect();
        for pair in tests.windows(2) {
            let [jump, own] = pair else { continue };
            let alone = |tests: &str| read(&format!("{sets}{tests} log\n")).policy.rules.remove(0);
            let (first, second) = (alone(jump), alone(own));
            let chained = read(&format!("{sets}chain c {{\n{own} log\n}}\n{jump} jump c\n"));
            for frame in &frames {
                let input = Input {
                    frame,
                    now_ns: 0,
                    number: 0,
                    port: PortId {
                        name: Some("eth0"),
                        index: 1,
                    },
                    queue: 0,
                    meta: Meta::default(),
                };
                let both = matches(&first, &input) && matches(&second, &input);
                met += usize::from(both);
                match chained.policy.rules.as_slice() {
                    [] => {
                        assert!(!both, "left out: {jump} | {own}");
                        left_out += 1;
                    }
                    [rule] => assert_eq!(matches(rule, &input), both, "{jump} | {own}"),
                    _ => panic!("{jump} | {own}"),
                }
            }
        }
    }
    assert!(met > 100 && left_out > 1000, "{met} {left_out}");
}

fn drawn<S: Strategy>(runner: &mut TestRunner, strategy: S) -> S::Value {
    let tree = strategy.new_tree(runner);
    tree.expect("a value").current()
}

#[test]
fn mistakes_about_chains_are_named() {
    let cases: &[(&str, &[&str])] = &[
        (
            "chain a {\nall jump b\n}\nchain b {\ntcp jump c\n}\nchain c {\nudp jump a\n}\nall jump a",
            &["8:10: chains jump in a circle: `a` -> `b` -> `c` -> `a`"],
        ),
        (
            "all jump wbe\nchain web {\nall drop\n}",
            &["1:10: there is no chain named `wbe`"],
        ),
        (
            "chain web {\nall drop\n}\nall accept",
            &["1:7: nothing jumps to the chain `web`, so its rules apply to no packet"],
        ),
        (
            "chain web {\nall drop\n}\nall log jump web",
            &["4:9: `jump` and `choose` are the only target of their rule"],
        ),
        ("chain web {\nall drop", &["1:1: this chain is not closed"]),
        ("all drop\n}", &["2:1: this `}` closes nothing"]),
        (
            "chain a {\nchain b {\nall drop\n}\n}",
            &[
                "2:1: a chain cannot stand in another one",
                "5:1: this `}` closes nothing",
            ],
        ),
        (
            "chain a {\nset x = { 1 }\n}\nall jump a",
            &["2:1: a chain holds rules only"],
        ),
        (
            "chain a {\nx: tcp drop\nx: udp drop\n}\nall jump a",
            &["3:1: two rules are named `x`"],
        ),
        (
            "chain a {\nall drop\n}\nchain a {\nall drop\n}\nall jump a",
            &["4:7: the chain `a` is defined twice"],
        ),
        (
            "chain a {\n}\nall jump a",
            &["1:7: the chain `a` has no rules"],
        ),
        (
            "chain a {\nadd-stateful tcp jump b\n}\nchain b {\nall accept\n}\nall jump a",
            &["2:1: a rule that jumps opens no connections"],
        ),
        // Said once, at the rule, however many ways lead there.
        (
            "chain a {\ntcp-dprot 80 drop\n}\nin x jump a\nin y jump a",
            &["2:1: `tcp-dprot` is not a field or a target"],
        ),
        (
            "chain a {\ntcp-dport 80 tcp-dport 81 drop\n}\nin x jump a\nin y jump a",
            &["2:14: no value of `tcp-dport` passes both tests, so this rule never matches"],
        ),
        // One way that leads to a rule is enough.
        (
            "chain a {\nudp-dport 53 accept\ntcp-dport 53 accept\n}\ntcp jump a\nudp jump a",
            &[],
        ),
        (
            "chain a {\nudp-dport 53 accept\ntcp-dport 53 accept\n}\ntcp jump a",
            &["2:1: no packet reaches this rule: it excludes what leads to it"],
        ),
        (
            "choose tcp-dport { 22: accept, 22: drop }",
            &["1:32: two choices are for the same value"],
        ),
        (
            "choose ip-saddr { 10.0.0.0/8: accept, 10.1.0.0/16: drop }",
            &["1:39: two choices are for the same value"],
        ),
        (
            "choose tcp-dport { else: accept }",
            &["1:20: `else` needs another choice in front of it"],
        ),
        (
            "choose tcp-payload { x41: accept }",
            &["1:8: `choose` cannot choose by `tcp-payload`"],
        ),
        (
            "choose tcp-dport { 22 accept }",
            &["1:22: expected `:` behind this value of `tcp-dport`"],
        ),
        (
            "choose tcp-dport { 70000: accept }",
            &["1:20: `70000` is too large for a field of 16 bits"],
        ),
        // A drop that is overridden for one of two ways only is not warned of.
        (
            "chain a {\ntcp-dport 80 drop\n}\nin x jump a\nin y jump a\nin x accept",
            &[],
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(&said(text), wanted, "{text}");
    }
    // Depth and number are bounded.
    let mut deep = String::new();
    for n in 0..40 {
        deep.push_str(&format!("chain c{n} {{\nall jump c{}\n}}\n", n + 1));
    }
    deep.push_str("chain c40 {\nall drop\n}\nall jump c0\n");
    assert!(
        said(&deep).concat().contains("through more than 16 chains"),
        "{:?}",
        said(&deep)
    );
    let mut wide = String::new();
    for n in 0..12 {
        wide.push_str(&format!("chain w{n} {{\n"));
        for port in 1..=8 {
            wide.push_str(&format!("tcp-dport {port} jump w{}\n", n + 1));
        }
        wide.push_str("}\n");
    }
    wide.push_str("chain w12 {\nall drop\n}\nall jump w0\n");
    assert!(
        said(&wide).concat().contains("make more than 200000 rules"),
        "{:?}",
        said(&wide)
    );
}

#[test]
fn formatting_keeps_chains() {
    let text = "chain   web {   # the web\n\n\n  a: tcp-dport 80   ACCEPT # plain\n\n   longer: tcp-dport 443 accept\n\n}\nx: in wan0 JUMP web\n all choose tcp-dport {22 : drop,@s: jump web , ELSE: log}\nset s = { 80 }\n";
    let once = format_source(&Source::new("p", text)).expect("valid");
    assert_eq!(
        once,
        "chain web {  # the web\n    a: tcp-dport 80 accept  # plain\n\n    longer: tcp-dport 443 accept\n}\nx: in wan0 jump web\n   all     choose tcp-dport { 22: drop, @s: jump web, else: log }\nset s = { 80 }\n"
    );
    let again = format_source(&Source::new("p", once.as_str())).expect("valid");
    assert_eq!(once, again);
    assert_eq!(meaning(&read(text)), meaning(&read(&once)));
}

//! Properties of the language: generated policies are valid, formatting keeps their meaning and is stable, and no text
//! makes the parser panic.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use weir_policy::field::{FIELDS, FieldInfo, Header, Kind};
use weir_policy::generate::{broken_text, policy_text, stateful_policy_text};
use weir_policy::model::Policy;
use weir_policy::{NoFiles, Source, describe, format, format_source, parse};

fn source(text: &str) -> Source {
    Source::new("generated.weir", text)
}

/// The policy without its line numbers, which formatting changes.
fn meaning(text: &str) -> Result<Policy, String> {
    let mut policy = parse(&source(text), &NoFiles)
        .map_err(|e| e.render(false))?
        .policy;
    for rule in &mut policy.rules {
        rule.line = 0;
    }
    Ok(policy)
}

fn any_policy_text() -> impl Strategy<Value = String> {
    prop_oneof![2 => policy_text(), 1 => stateful_policy_text()]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1000),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/properties.seeds"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn generated_policies_are_valid(text in any_policy_text()) {
        let parsed = parse(&source(&text), &NoFiles);
        prop_assert!(parsed.is_ok(), "{text}\n{}", parsed.map(|_| String::new()).unwrap_or_else(|e| e.render(false)));
    }

    #[test]
    fn formatting_keeps_the_meaning_and_is_stable(text in any_policy_text()) {
        let Ok(parsed) = parse(&source(&text), &NoFiles) else { return Err(TestCaseError::fail("invalid")) };
        let once = format(&parsed.ast);
        prop_assert_eq!(meaning(&text), meaning(&once), "{}\n{}", text, once);
        let twice = format_source(&source(&once)).map_err(|e| TestCaseError::fail(e.render(false)))?;
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(text.matches('#').count(), once.matches('#').count());
    }

    #[test]
    fn every_rule_can_be_described(text in any_policy_text()) {
        for rule in meaning(&text).map_err(TestCaseError::fail)?.rules {
            let sentence = describe(&rule);
            prop_assert!(sentence.ends_with('.') && !sentence.contains('\n'), "{}", sentence);
        }
    }

    #[test]
    fn broken_policies_do_not_panic(text in broken_text()) {
        check_any_text(&text)?;
    }

    #[test]
    fn random_text_does_not_panic(text in any::<String>()) {
        check_any_text(&text)?;
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check_any_text(&String::from_utf8_lossy(&bytes))?;
    }
}

/// The generator is only worth something if everything comes up.
#[test]
fn generated_policies_cover_the_language() {
    let mut runner = TestRunner::deterministic();
    let strategy = any_policy_text();
    let mut text = String::new();
    for _ in 0..3000 {
        let tree = strategy
            .new_tree(&mut runner)
            .unwrap_or_else(|e| panic!("{e}"));
        let Ok(formatted) = format_source(&source(&tree.current())) else {
            panic!("invalid")
        };
        text.push_str(&formatted);
    }
    let words: HashSet<&str> = text.split([' ', '\n', '[']).collect();
    // Not every hook has these; tests of those that do write them.
    let everywhere = |i: &&FieldInfo| i.kind != Kind::OutPort && i.header != Header::Skb;
    for info in FIELDS.iter().filter(everywhere) {
        assert!(words.contains(info.name), "no rule tests {}", info.name);
        if info.writable && info.name != "tcp-opt-sackp" {
            assert!(
                text.contains(&format!("mod {}", info.name)),
                "no rule writes {}",
                info.name
            );
        }
    }
    for piece in [
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in {",
        "in @",
        "!",
        "drop over",
        "%",
        "burst",
        "accept",
        "log",
        "strip !",
        "strip all",
        "strip tcp",
        "add",
        "\\",
        "#",
        "Rule-0:",
        "@lan",
        "all",
        "ip6-frag-id",
        "net-proto != ip4",
    ] {
        assert!(text.contains(piece), "no rule has {piece}");
    }
}

/// What holds for every text: errors point into it, and a text that has none can be formatted.
fn check_any_text(text: &str) -> Result<(), TestCaseError> {
    match parse(&source(text), &NoFiles) {
        Ok(parsed) => {
            let once = format(&parsed.ast);
            prop_assert_eq!(meaning(text), meaning(&once), "{}\n{}", text, once);
            prop_assert_eq!(
                &once,
                &format_source(&source(&once)).map_err(|e| TestCaseError::fail(e.render(false)))?
            );
            let _ = parsed.warnings.render(true);
        }
        Err(errors) => {
            prop_assert!(!errors.is_empty());
            let lines = text.split('\n').count();
            for error in &errors {
                prop_assert!(error.line >= 1 && error.line as usize <= lines && error.column >= 1);
            }
            let _ = (errors.render(false), errors.render(true));
        }
    }
    Ok(())
}

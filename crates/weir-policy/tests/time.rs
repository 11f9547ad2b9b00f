//! What `hour`, `day` and `timezone` mean once they are read, how they are written and described, and what is refused.
//! Which packets they match is in the tests of the reference.

use weir_policy::model::{Rule, Test};
use weir_policy::{NoFiles, Parsed, Source, describe, format_source, parse};

const NIGHT: [(u128, u128); 2] = [(0, 21_600), (79_200, 86_399)];

fn read(text: &str) -> Parsed {
    match parse(&Source::new("test.weir", text), &NoFiles) {
        Ok(parsed) => parsed,
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

fn first(text: &str) -> Rule {
    let parsed = read(text);
    assert!(parsed.warnings.is_empty(), "{text}\n{}", parsed.warnings);
    parsed.policy.rules[0].clone()
}

/// Whether the test of the first rule is negated, and its values.
fn values(text: &str) -> (bool, Vec<(u128, u128)>) {
    let rule = first(&format!("{text} drop"));
    match &rule.matches[0].test {
        Test::In(ranges) => (rule.matches[0].negated, ranges.intervals().to_vec()),
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    let errors = parse(&Source::new("test.weir", text), &NoFiles);
    let errors = errors.expect_err(text).to_string();
    assert!(
        !errors.contains("17 bits") && !errors.contains("3 bits"),
        "{errors}"
    );
    errors
}

#[test]
fn times_of_day_are_seconds() {
    for (text, wanted) in [
        ("hour 08:00", vec![(28_800, 28_800)]),
        ("hour 8:00-17:00", vec![(28_800, 61_200)]),
        ("HOUR == 08:00:01-17:30:59", vec![(28_801, 63_059)]),
        ("time-of-day 22:00-06:00", NIGHT.to_vec()),
        (
            "hour in { 12:00-13:00, 22:00-06:00 }",
            vec![(0, 21_600), (43_200, 46_800), (79_200, 86_399)],
        ),
        ("hour >= 22:00", vec![(79_200, 86_399)]),
        ("hour > 23:59:58", vec![(86_399, 86_399)]),
        ("hour < 06:00", vec![(0, 21_599)]),
        ("hour 00:00:01-00:00", vec![(0, 0), (1, 86_399)]),
    ] {
        if text.ends_with("00:00:01-00:00") {
            // The whole day, which a warning says.
            let warnings = read(&format!("{text} drop")).warnings.to_string();
            assert!(warnings.contains("true for every packet"), "{warnings}");
            continue;
        }
        assert_eq!(values(text), (false, wanted), "{text}");
    }
    assert_eq!(values("hour != 22:00-06:00"), (true, NIGHT.to_vec()));
    assert_eq!(values("! hour 22:00-06:00"), (true, NIGHT.to_vec()));
    let set = "set work = { 08:00-12:00, 13:00-17:00 }\nhour in @work";
    assert_eq!(
        values(set),
        (false, vec![(28_800, 43_200), (46_800, 61_200)])
    );
}

#[test]
fn days_have_names_and_the_numbers_of_nftables() {
    for (text, wanted) in [
        ("day mon", vec![(1, 1)]),
        ("day Sunday", vec![(0, 0)]),
        ("weekday mon-fri", vec![(1, 5)]),
        ("day fri-mon", vec![(0, 1), (5, 6)]),
        ("day sat-sun", vec![(0, 0), (6, 6)]),
        ("day in { sat, 0 }", vec![(0, 0), (6, 6)]),
        ("day saturday-tuesday", vec![(0, 2), (6, 6)]),
        ("day >= fri", vec![(5, 6)]),
    ] {
        assert_eq!(values(text), (false, wanted), "{text}");
    }
    assert_eq!(values("day != sat-sun"), (true, vec![(0, 0), (6, 6)]));
    let set =
        "set weekend = { sat, sun }\nset sundays = { sunday }\nday in @weekend ! day in @sundays";
    assert_eq!(values(set), (false, vec![(0, 0), (6, 6)]));
}

#[test]
fn a_policy_has_one_time_zone() {
    for (text, minutes) in [
        ("", 0),
        ("timezone utc\n", 0),
        ("TIMEZONE +02:00\n", 120),
        ("timezone +5:45   # Nepal\n", 345),
        ("timezone -03:30\n", -210),
        ("timezone +14:00\n", 840),
        ("timezone -12:00\n", -720),
    ] {
        let parsed = read(&format!("{text}hour 08:00-17:00 accept\nall drop"));
        assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
        assert_eq!(parsed.policy.connections.timezone, minutes, "{text}");
    }
    let unused = read("timezone +02:00\nall drop").warnings.to_string();
    assert!(unused.contains("no rule tests the time"), "{unused}");
    for (text, said) in [
        (
            "timezone Europe/Berlin",
            "the offset of a named zone changes over the year",
        ),
        ("timezone 02:00", "`timezone +02:00`"),
        ("timezone +14:01", "from -12:00 to +14:00"),
        ("timezone -12:30", "from -12:00 to +14:00"),
        ("timezone +02:00:30", "from -12:00 to +14:00"),
        ("timezone", "expected an offset from UTC behind `timezone`"),
        (
            "timezone +01:00\ntimezone +02:00",
            "`timezone` is written twice",
        ),
    ] {
        let errors = refused(&format!("{text}\nday mon drop"));
        assert!(errors.contains(said), "{text}\n{errors}");
    }
}

#[test]
fn what_is_no_time_is_refused_with_what_to_write() {
    for (text, said) in [
        ("hour 25:00", "`25:00` is not a time of day"),
        (
            "hour 08:60",
            "hours are 00 to 23, minutes and seconds 00 to 59",
        ),
        (
            "hour 08:00:60",
            "hours are 00 to 23, minutes and seconds 00 to 59",
        ),
        ("hour 08:5", "hours are 00 to 23"),
        ("hour 18:00-24:00", "write `18:00-23:59:59`"),
        ("hour 8-17", "write `08:00`"),
        ("hour 08:00-", "has no end"),
        ("hour x10", "`x10` is not a time of day"),
        ("hour < 22:00-06:00", "takes one value, not a range"),
        ("day 7", "`7` is not a day of the week"),
        ("day fry", "did you mean `fri`?"),
        ("day thurs", "did you mean `thu`?"),
        ("day mon day tue", "never"),
        ("hour 08:00-12:00 hour 13:00-17:00", "never"),
        ("! hour", "every packet has `hour`"),
        ("day mon,tue", "write `day in { mon, tue }`"),
        ("all mod hour 08:00", "hour"),
    ] {
        let errors = refused(&format!("{text} drop"));
        assert!(errors.contains(said), "{text}\n{errors}");
    }
}

#[test]
fn they_are_written_in_one_style() {
    for (text, wanted) in [
        ("Timezone +2:00", "timezone +02:00"),
        ("timezone UTC", "timezone utc"),
        ("HOUR 8:00-17:00:00 accept", "hour 08:00-17:00 accept"),
        ("time-of-day != 22:00-6:00 drop", "hour != 22:00-06:00 drop"),
        (
            "Weekday in {Mon-FRI,0} accept",
            "day in { mon-fri, 0 } accept",
        ),
    ] {
        let source = Source::new("test.weir", format!("{text}\n"));
        let formatted = format_source(&source).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(formatted, format!("{wanted}\n"), "{text}");
    }
}

#[test]
fn they_are_described() {
    let said = |text: &str| describe(&first(text));
    assert_eq!(
        said("hour 22:00-06:00 day mon-fri tcp-dport 22 drop"),
        "Rule 1: every TCP packet whose time of day is at most 06:00 or at least 22:00, whose day of the week is from Monday to Friday and whose destination port is 22 (ssh) is dropped unless a matching rule accepts it."
    );
    assert_eq!(
        said("day != sun hour 08:00:30 accept"),
        "Rule 1: every packet whose day of the week is not Sunday and whose time of day is 08:00:30 is accepted whatever other rules drop."
    );
}

#[test]
fn lines_of_other_firewalls_are_answered_with_the_rule() {
    for (line, rule) in [
        (
            "-A FORWARD -m time --timestart 08:00 --timestop 17:00 --weekdays Mon,Tue -j ACCEPT",
            "`day in { mon, tue } hour 08:00-17:00 accept`",
        ),
        (
            "-A FORWARD -p tcp -m tcp --dport 22 -m time --timestart 22:00 --timestop 06:00 ! --weekdays 6,7 -j DROP",
            "`tcp-dport 22 ! day in { sat, sun } hour 22:00-06:00 drop`",
        ),
        ("-A FORWARD -m time --weekdays Su -j DROP", "`day sun drop`"),
        (
            r#"meta hour "08:00"-"17:00" meta day "Monday" accept"#,
            "`hour 08:00-17:00 day monday accept`",
        ),
        (
            r#"meta day { "Saturday", "Sunday" } meta hour >= "22:00" drop"#,
            "`day in { saturday, sunday } hour >= 22:00 drop`",
        ),
    ] {
        let errors = refused(line);
        assert!(errors.contains(rule), "{line}\n{errors}");
        assert_eq!(
            errors.contains("timezone"),
            line.contains("meta hour"),
            "{errors}"
        );
        // What is advised is a policy.
        first(rule.trim_matches('`'));
    }
}

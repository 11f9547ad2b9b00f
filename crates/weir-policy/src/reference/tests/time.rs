//! `hour` and `day`: which packets they match, at the borders of days, weeks and zones. The expected days are those of the calendar.

use weir_packet::Verdict;

use super::*;

const DAY_NS: u64 = 86_400_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;

fn read(text: &str) -> Policy {
    let source = crate::Source::new("test.weir", text);
    let parsed = crate::parse(&source, &crate::NoFiles).unwrap_or_else(|e| panic!("{text}\n{e}"));
    parsed.policy
}

/// Whether the first rule matches a packet that comes in at this time.
fn holds(text: &str, now_ns: u64) -> bool {
    let frame = ip4().tcp(1, 2).build();
    let mut reference = Reference::new(read(&format!("{text} log")), Options::default());
    let outcome = reference.run(Input {
        now_ns,
        ..Input::new(&frame)
    });
    !outcome.matched.is_empty()
}

#[test]
fn ends_of_a_range_belong_to_it_to_the_nanosecond_in_front_of_the_next_second() {
    let (eight, seventeen) = (8 * HOUR_NS, 17 * HOUR_NS);
    for (now, expected) in [
        (eight - 1, false),
        (eight, true),
        (seventeen, true),
        (seventeen + 999_999_999, true),
        (seventeen + 1_000_000_000, false),
    ] {
        assert_eq!(holds("hour 08:00-17:00", now), expected, "{now}");
        assert_eq!(holds("! hour 08:00-17:00", now), !expected, "{now}");
        assert_eq!(holds("hour 17:00:01-07:59:59", now), !expected, "{now}");
        assert_eq!(holds("hour 08:00-17:00", now + 20_000 * DAY_NS), expected);
    }
    assert!(holds("hour", 0) && holds("day", 0));
}

#[test]
fn days_are_those_of_the_calendar() {
    // 1 January 1970, 29 February 2024, 31 December 1999, 1 January 2000, 26 October 2026.
    for (day, number) in [
        ("thu", 0),
        ("thu", 19_782),
        ("fri", 10_956),
        ("sat", 10_957),
        ("mon", 20_752),
    ] {
        let noon = number * DAY_NS + 12 * HOUR_NS;
        assert!(holds(&format!("day {day}"), noon), "{day} {number}");
        assert!(!holds(&format!("day != {day}"), noon), "{day} {number}");
    }
    let saturday = 10_957 * DAY_NS;
    assert!(!holds("day sat-sun", saturday - 1));
    assert!(holds("day sat-sun", saturday) && holds("day sat-sun", saturday + 2 * DAY_NS - 1));
    assert!(!holds("day sat-sun", saturday + 2 * DAY_NS));
}

#[test]
fn a_zone_moves_hours_and_days() {
    let midnight = 10_957 * DAY_NS; // Saturday in UTC
    for (zone, day, hour) in [
        ("utc", "sat", "00:00"),
        ("+05:30", "sat", "05:30"),
        ("-00:01", "fri", "23:59"),
        ("+14:00", "sat", "14:00"),
        ("-12:00", "fri", "12:00"),
    ] {
        let text = format!("timezone {zone}\nday {day} hour {hour}");
        assert!(holds(&text, midnight), "{text}");
    }
    assert!(
        holds("timezone -05:30\nday wed hour 18:30", 0),
        "a day in front of 1970"
    );
}

/// The day is that of the packet: behind midnight a range over it is tested on the next day.
#[test]
fn a_range_over_midnight_has_the_day_of_the_packet() {
    let friday = 10_956 * DAY_NS;
    let text = "day fri hour 22:00-06:00";
    assert!(holds(text, friday + HOUR_NS) && holds(text, friday + 23 * HOUR_NS));
    assert!(!holds(text, friday + 25 * HOUR_NS), "Saturday at one");
}

/// Packets of a connection have its rules, whatever the time is by then.
#[test]
fn connections_outlive_the_time_in_which_they_open() {
    let policy = read("add-stateful hour 08:00-17:00 udp accept\nall drop");
    let mut reference = Reference::new(policy, Options::default());
    let frame = ip4().udp(1, 2).build();
    let mut verdict = |now_ns| {
        let outcome = reference.run(Input {
            now_ns,
            ..Input::new(&frame)
        });
        outcome.verdict
    };
    let before = 17 * HOUR_NS + 999_999_999;
    assert_eq!(verdict(before), Verdict::Pass);
    assert_eq!(verdict(before + 60_000_000_000), Verdict::Pass);
    assert_eq!(
        verdict(before + 600_000_000_000),
        Verdict::Drop,
        "a new one"
    );
}

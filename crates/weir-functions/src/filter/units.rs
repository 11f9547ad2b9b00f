//! Values of the rule text in the ranges that filters have for them, and points in time.
//!
//! Every function says in one line what it did not understand.

use weir_value::decimal;

/// Whether the data plane reads ports of this protocol.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// Packets a unit of time, as nanoseconds a packet.
pub(super) fn interval_ns(word: &str) -> Result<u64, String> {
    let rate = weir_value::rate(word)?;
    let unit = rate.seconds * 1_000_000_000;
    let interval = (unit + rate.count / 2) / rate.count;
    if interval < 10 {
        return Err(format!(
            "`{word}` is above 100M/s, the highest rate that is measured"
        ));
    }
    Ok(interval)
}

/// A duration that something lasts: from 1 ms to 100 years, in nanoseconds.
pub(super) fn duration_ns(word: &str) -> Result<u64, String> {
    let ns = weir_value::duration(word)?.as_nanos() as u64;
    match (1_000_000..=100 * 366 * 86_400_000_000_000).contains(&ns) {
        true => Ok(ns),
        false => Err(format!("`{word}` is not from 1ms to 100 years")),
    }
}

/// Seconds since 1970, or `2026-12-01T00:00:00Z` (RFC 3339, UTC; the day alone is its beginning).
pub(super) fn time(word: &str) -> Result<u32, String> {
    let wrong = || {
        format!(
            "`{word}` is not a time: write 2026-12-01T12:00:00Z, 2026-12-01, or seconds since 1970"
        )
    };
    if let Some(seconds) = decimal(word.as_bytes()) {
        return u32::try_from(seconds)
            .ok()
            .filter(|s| *s > 0)
            .ok_or_else(wrong);
    }
    let (day, clock) = match word.split_once(['T', 't']) {
        Some((day, clock)) => (day, clock.strip_suffix(['Z', 'z']).ok_or_else(wrong)?),
        None => (word, "00:00:00"),
    };
    let parts = |text: &str, separator: char| -> Option<[u64; 3]> {
        let mut parts = text.split(separator).map(|part| decimal(part.as_bytes()));
        let three = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(three)
    };
    let [year, month, day] = parts(day, '-').ok_or_else(wrong)?;
    let [hour, minute, second] = parts(clock, ':').ok_or_else(wrong)?;
    let leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let days_of = |month: u64| match month {
        2 => 28 + u64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1970..=2105).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=days_of(month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return Err(wrong());
    }
    let years: u64 = (1970..year).map(|y| 365 + u64::from(leap(y))).sum();
    let months: u64 = (1..month).map(days_of).sum();
    let seconds = (years + months + day - 1) * 86_400 + hour * 3600 + minute * 60 + second;
    u32::try_from(seconds)
        .ok()
        .filter(|s| *s > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time("1970-01-02"), Ok(86_400));
        assert_eq!(time("2000-02-29T12:34:56Z"), Ok(951_827_696));
        assert_eq!(time("2026-12-01T00:00:00Z"), Ok(1_796_083_200));
        assert_eq!(time("1700000000"), Ok(1_700_000_000));
        for wrong in [
            "2026-02-29",
            "2026-13-01",
            "tomorrow",
            "2026-12-01T00:00:00",
            "0",
            "1970-01-01",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_and_durations() {
        assert_eq!(interval_ns("10k/s"), Ok(100_000));
        assert_eq!(interval_ns("3/s"), Ok(333_333_333));
        assert_eq!(interval_ns("600/m"), Ok(100_000_000));
        assert_eq!(interval_ns("5"), Ok(200_000_000));
        assert!(interval_ns("1G/s").is_err() && interval_ns("0/s").is_err());
        assert_eq!(duration_ns("500ms"), Ok(500_000_000));
        assert_eq!(duration_ns("2d"), Ok(172_800_000_000_000));
        assert!(duration_ns("1y").is_err() && duration_ns("0s").is_err());
    }
}

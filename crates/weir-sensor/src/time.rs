//! Points in time as logs write them, in UTC whatever the machine's zone is: a replay gives the same bytes everywhere.

/// Year, month, day, hour, minute, second, microsecond.
fn civil(nanoseconds: u64) -> (u64, u64, u64, u64, u64, u64, u64) {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years; years begin in March, so that the leap day is their last.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (
        year,
        month,
        day,
        rest / 3_600,
        rest / 60 % 60,
        rest % 60,
        nanoseconds / 1_000 % 1_000_000,
    )
}

fn digits(out: &mut Vec<u8>, value: u64, count: u32) {
    for place in (0..count).rev() {
        out.push(b'0' + (value / 10_u64.pow(place) % 10) as u8);
    }
}

/// A date in the order given, each part with its digits and what follows it; then the time of day.
fn write(out: &mut Vec<u8>, date: [(u64, u32, u8); 3], clock: [u64; 3], micro: u64) {
    let clock = clock
        .into_iter()
        .zip(*b"::.")
        .map(|(v, after)| (v, 2, after));
    for (value, count, after) in date.into_iter().chain(clock) {
        digits(out, value, count);
        out.push(after);
    }
    digits(out, micro, 6);
}

/// `2024-01-01T00:00:00.000000+0000`.
pub(crate) fn eve(out: &mut Vec<u8>, nanoseconds: u64) {
    let (year, month, day, hour, minute, second, micro) = civil(nanoseconds);
    let date = [(year, 4, b'-'), (month, 2, b'-'), (day, 2, b'T')];
    write(out, date, [hour, minute, second], micro);
    out.extend_from_slice(b"+0000");
}

/// `01/01/2024-00:00:00.000000`, as in fast.log.
pub(crate) fn fast(out: &mut Vec<u8>, nanoseconds: u64) {
    let (year, month, day, hour, minute, second, micro) = civil(nanoseconds);
    let date = [(month, 2, b'/'), (day, 2, b'/'), (year, 4, b'-')];
    write(out, date, [hour, minute, second], micro);
}

/// `01/01/2024 -- 00:00:00`, as in stats.log.
pub(crate) fn table(out: &mut Vec<u8>, nanoseconds: u64) {
    let (year, month, day, hour, minute, second, _) = civil(nanoseconds);
    for (value, count, after) in [
        (month, 2, "/"),
        (day, 2, "/"),
        (year, 4, " -- "),
        (hour, 2, ":"),
        (minute, 2, ":"),
        (second, 2, ""),
    ] {
        digits(out, value, count);
        out.extend_from_slice(after.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000+0000"),
            (951_782_400, "2000-02-29T00:00:00.000000+0000"),
            (1_704_067_199, "2023-12-31T23:59:59.000000+0000"),
            (4_107_542_400, "2100-03-01T00:00:00.000000+0000"),
        ] {
            let mut out = Vec::new();
            eve(&mut out, seconds * 1_000_000_000);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
        let mut out = Vec::new();
        fast(&mut out, 1_704_067_199_123_456_789);
        assert_eq!(String::from_utf8_lossy(&out), "12/31/2023-23:59:59.123456");
        // The greatest time that 64 bits hold does not overflow.
        eve(&mut out, u64::MAX);
    }
}

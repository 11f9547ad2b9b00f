//! Durations: a number with a unit, or of seconds.

use std::time::Duration;

use crate::{Invalid, is_number, scaled};

const WHAT: &str = "invalid duration";

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("", 1_000_000_000),
];

/// `250ms`, `1.5s`, `5m`, `2d`, or `30`: seconds. Below 292 years, so that sums of two fit 64 bits of nanoseconds; it can be 0.
///
/// # Errors
/// The text is not a duration.
pub fn duration(text: &str) -> Result<Duration, Invalid> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let size = UNITS.iter().find(|(name, _)| *name == unit);
    let ns = size.and_then(|(_, size)| scaled(number, *size));
    match ns.filter(|ns| *ns < 1 << 63) {
        Some(ns) => Ok(Duration::from_nanos(ns)),
        // Whatever else is a number with a unit.
        None if size.is_some() && is_number(number) => Err(Invalid::new(
            WHAT,
            text,
            "whole nanoseconds, less than 292 years of them",
        )),
        None => Err(Invalid::new(
            WHAT,
            text,
            "a number with a unit such as 250ms, 30s, 5m or 2d, or a number of seconds",
        )),
    }
}

/// A duration of whole seconds, where nothing finer is kept.
///
/// # Errors
/// The text is not such a duration.
pub fn whole_seconds(text: &str) -> Result<u64, Invalid> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err(Invalid::new(WHAT, text, "whole seconds")),
    }
}

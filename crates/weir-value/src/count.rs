//! Numbers of things, with k, M or G behind them, and rates: such a number in a unit of time.

use crate::{Invalid, scaled};

/// `5000`, `500k`, `1.5M`, `2G`: powers of 1000. It can be 0.
///
/// # Errors
/// The text is not a number.
pub fn count(text: &str) -> Result<u64, Invalid> {
    amount(text).ok_or_else(|| {
        Invalid::new(
            "invalid number",
            text,
            "a whole number such as 5000, 500k or 2M",
        )
    })
}

fn amount(text: &str) -> Option<u64> {
    match text.as_bytes().last()? {
        b'k' | b'K' => scaled(&text[..text.len() - 1], 1_000),
        b'M' => scaled(&text[..text.len() - 1], 1_000_000),
        b'G' => scaled(&text[..text.len() - 1], 1_000_000_000),
        _ => scaled(text, 1),
    }
}

/// Packets in a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Packets, at least 1.
    pub count: u64,
    /// Seconds of the unit: 1, 60 or 3600.
    pub seconds: u64,
}

impl Rate {
    /// Packets in a second, if that is a whole number.
    pub fn per_second(self) -> Option<u64> {
        self.count
            .is_multiple_of(self.seconds)
            .then_some(self.count / self.seconds)
    }
}

/// `1000/s`, `10k/s`, `600/m`, `100/h`; a number alone: per second.
///
/// # Errors
/// The text is not a rate, or it is 0.
pub fn rate(text: &str) -> Result<Rate, Invalid> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit {
        "s" | "sec" => Some(1),
        "m" | "min" => Some(60),
        "h" | "hour" => Some(3600),
        _ => None,
    };
    match (amount(number), seconds) {
        (Some(count @ 1..), Some(seconds)) => Ok(Rate { count, seconds }),
        _ => Err(Invalid::new(
            "invalid rate",
            text,
            "packets per unit of time, at least 1, such as 1000/s, 10k/s, 600/m or 100/h",
        )),
    }
}

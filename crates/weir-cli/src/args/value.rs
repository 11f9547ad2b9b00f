//! Values of options: those of `weir-value` in the ranges that commands have for them.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use weir_lab::generate::Gaps;
use weir_policy::model::FlowState;

/// A duration above 0.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = weir_value::duration(text)?;
    match time.is_zero() {
        false => Ok(time),
        true => Err(format!("`{text}` must be above 0")),
    }
}

/// A duration from 1 ms to 1 h.
pub(crate) fn up_to_an_hour(text: &str) -> Result<Duration, String> {
    let time = weir_value::duration(text)?;
    match (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&time) {
        true => Ok(time),
        false => Err(format!("`{text}` is not from 1ms to 1h")),
    }
}

/// A duration of up to 1 s, in whole microseconds: how long a call polls; 0: not at all.
pub(crate) fn micros(text: &str) -> Result<u32, String> {
    let ns = weir_value::duration(text)?.as_nanos();
    match ns.is_multiple_of(1000) && ns <= 1_000_000_000 {
        true => Ok((ns / 1000) as u32),
        false => Err(format!(
            "`{text}` is not from 0 to 1s, in whole microseconds"
        )),
    }
}

/// A duration of 1 ms to 1 s, in whole milliseconds.
pub(crate) fn millis(text: &str) -> Result<u32, String> {
    let ns = weir_value::duration(text)?.as_nanos();
    match ns.is_multiple_of(1_000_000) && (1..=1000).contains(&(ns / 1_000_000)) {
        true => Ok((ns / 1_000_000) as u32),
        false => Err(format!(
            "`{text}` is not from 1ms to 1s, in whole milliseconds"
        )),
    }
}

/// A duration of whole seconds, from 1 s to a day.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    match weir_value::whole_seconds(text)? {
        seconds @ 1..=86_400 => Ok(seconds as u32),
        _ => Err(format!("`{text}` is not from 1s to 1d")),
    }
}

/// A protocol by name or number, as it is written.
pub(crate) fn protocol(text: &str) -> Result<String, weir_value::Invalid> {
    weir_value::protocol(text).map(|_| text.to_owned())
}

/// Names that states of connections had in earlier versions.
const FORMER_STATES: [&str; 5] = [
    "tcp-syn-received",
    "tcp-fin",
    "tcp-closed",
    "udp-new",
    "udp",
];

/// States that a connection can be in; former names are accepted and not shown.
pub(crate) fn states() -> PossibleValuesParser {
    // What shortens a timeout is no state to be in, and fragments are not listed.
    let states = FlowState::ALL.into_iter().filter(|state| {
        !matches!(
            state,
            FlowState::Fragment | FlowState::TcpRetrans | FlowState::TcpUnack
        )
    });
    let shown = states.map(|state| PossibleValue::new(state.name()));
    let former = FORMER_STATES.map(|name| PossibleValue::new(name).hide(true));
    PossibleValuesParser::new(shown.chain(former))
}

#[test]
fn former_states_are_known() {
    for name in FORMER_STATES {
        assert!(!FlowState::named(name).is_empty(), "{name}");
    }
}

/// Number of frames, at least 1.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match weir_value::count(text)? {
        0 => Err("the least is 1".to_owned()),
        count => Ok(count),
    }
}

/// Frames per second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let rate = weir_value::rate(text)?;
    rate.per_second()
        .ok_or_else(|| format!("`{text}` is not a whole number of frames per second"))
}

/// What is between the packets of a flow of a mix.
pub(crate) fn gaps(text: &str) -> Result<Gaps, String> {
    match text {
        "mix" => Ok(Gaps::Mix),
        "templates" => Ok(Gaps::Templates),
        _ => duration(text)
            .map(Gaps::Fixed)
            .map_err(|why| format!("{why}; or write mix or templates")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_commands() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("0").is_err() && duration("soon").is_err());
        assert_eq!(up_to_an_hour("0.001"), Ok(Duration::from_millis(1)));
        assert!(up_to_an_hour("2h").is_err() && up_to_an_hour("1us").is_err());
        assert_eq!(micros("20us"), Ok(20));
        assert_eq!(micros("0"), Ok(0));
        assert!(micros("20").is_err() && micros("1500ns").is_err());
        assert_eq!(millis("20ms"), Ok(20));
        assert!(millis("20").is_err() && millis("1500us").is_err());
        assert_eq!(count("1.5k"), Ok(1500));
        assert!(count("0").is_err());
        assert_eq!(rate("600/m"), Ok(10));
        assert!(rate("100/h").is_err());
        assert_eq!(gaps("10ms"), Ok(Gaps::Fixed(Duration::from_millis(10))));
    }
}

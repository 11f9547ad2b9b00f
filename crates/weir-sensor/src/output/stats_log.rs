//! stats.log: the counters as a table, one table each interval.

use std::collections::BTreeMap;
use std::io::Write;

use crate::time;

/// A line between parts of the table.
const RULE: &str =
    "------------------------------------------------------------------------------------\n";

/// The table of the counters at `now` (nanoseconds since 1970): those that are not zero, by name. `uptime` is in seconds.
pub fn table(out: &mut Vec<u8>, now: u64, uptime: u64, counters: &BTreeMap<String, u64>) {
    out.extend_from_slice(RULE.as_bytes());
    out.extend_from_slice(b"Date: ");
    time::table(out, now);
    let (minutes, hours, days) = (uptime / 60 % 60, uptime / 3_600 % 24, uptime / 86_400);
    let seconds = uptime % 60;
    let _ = writeln!(
        out,
        " (uptime: {days}d, {hours:02}h {minutes:02}m {seconds:02}s)"
    );
    out.extend_from_slice(RULE.as_bytes());
    row(out, "Counter", "TM Name", "Value");
    out.extend_from_slice(RULE.as_bytes());
    for (name, count) in counters.iter().filter(|(_, count)| **count > 0) {
        row(out, name, "Total", &count.to_string());
    }
    out.extend_from_slice(RULE.as_bytes());
}

fn row(out: &mut Vec<u8>, counter: &str, thread: &str, value: &str) {
    let _ = writeln!(out, "{counter:<45} | {thread:<25} | {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_not_zero_have_a_row() {
        let names = [("decoder.pkts", 7), ("flow.memcap", 0), ("tcp.syn", 12)];
        let counters = names.map(|(name, count)| (name.to_owned(), count)).into();
        let mut out = Vec::new();
        table(&mut out, 1_704_067_199_123_456_789, 90_061, &counters);
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "Date: 12/31/2023 -- 23:59:59 (uptime: 1d, 01h 01m 01s)"
        );
        let rows: Vec<Vec<&str>> = (lines.iter())
            .filter(|line| line.contains(" | "))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(
            rows,
            [
                ["Counter", "TM Name", "Value"],
                ["decoder.pkts", "Total", "7"],
                ["tcp.syn", "Total", "12"],
            ]
        );
    }
}

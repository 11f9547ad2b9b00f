//! Prints how long 100,000 five-tuple rules take to parse, and how much memory the process then has had at most.
//!
//! `cargo run --release -p weir-policy --example parse-speed [RULES]`

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use weir_policy::{NoFiles, Source, parse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(100_000), |n| n.parse())?;
    let mut text = String::new();
    for i in 0..count {
        let (a, b) = (
            i.wrapping_mul(2_654_435_761),
            i.wrapping_mul(40_503).rotate_left(9),
        );
        let [a1, a2, a3, a4] = a.to_be_bytes();
        let [b1, b2, b3, _] = b.to_be_bytes();
        let (sport, dport) = (i % 60_000 + 1024, b % 10_000);
        writeln!(
            text,
            "ip-saddr {a1}.{a2}.{a3}.{a4} ip-daddr {b1}.{b2}.{b3}.0/24 ip-proto tcp tcp-sport {sport} tcp-dport {dport}-{} drop",
            dport + 10
        )?;
    }
    let source = Source::new("generated", text);
    let start = Instant::now();
    let parsed = parse(&source, &NoFiles)?;
    let elapsed = start.elapsed();
    let peak = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            s.lines()
                .find(|l| l.starts_with("VmHWM"))
                .map(str::to_owned)
        })
        .unwrap_or_default();
    writeln!(
        std::io::stdout(),
        "{} rules, {} bytes of text: {} ms; {}",
        parsed.policy.rules.len(),
        source.text.len(),
        elapsed.as_millis(),
        peak.split_whitespace().collect::<Vec<_>>().join(" ")
    )?;
    Ok(())
}

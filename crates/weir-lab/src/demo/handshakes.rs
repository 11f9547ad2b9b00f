//! TCP handshakes as tcpdump decodes them: a judge of weir's rewrites that shares no code with weir.
//!
//! Reads the text of `tcpdump -nn -vv`. Lines it does not understand are skipped; a capture without any
//! handshake gives an empty list, which the checks do not accept.

use std::path::Path;
use std::process::Command;

use weir_kernel::netns::run_command;

use crate::LabError;

/// One SYN or SYN-ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// Whether it is the answer (SYN-ACK).
    pub(crate) answer: bool,
    /// Source port.
    pub(crate) from: u16,
    /// Destination port.
    pub(crate) to: u16,
    /// Options by tcpdump's names, padding left out.
    pub(crate) options: Vec<String>,
}

/// What tcpdump says about a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// SYNs and SYN-ACKs in order.
    pub(crate) handshakes: Vec<Handshake>,
    /// Checksums it found right.
    pub(crate) right: usize,
    /// Checksums it found wrong.
    pub(crate) wrong: usize,
}

impl Handshake {
    /// Whether MSS (of this value) and window scale are its only options.
    pub(crate) fn is_normal(&self, mss: u16) -> bool {
        let clamped = format!("mss {mss}");
        self.options.contains(&clamped)
            && self
                .options
                .iter()
                .all(|o| *o == clamped || o.starts_with("wscale "))
    }
}

/// Has tcpdump decode a capture.
pub(crate) fn decode(capture: &Path) -> Result<Decoded, LabError> {
    let text = run_command(
        Command::new("tcpdump")
            .args(["-nn", "-vv", "-r"])
            .arg(capture),
    )?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Decoded {
    let mut decoded = Decoded::default();
    for line in text.lines() {
        // TCP: `cksum 0x1234 (correct)`; UDP: `[udp sum ok]`, `[bad udp cksum ..]`; IPv4: `bad cksum ..`.
        decoded.right += line.matches("(correct)").count() + line.matches("[udp sum ok]").count();
        decoded.wrong += line.matches("(incorrect").count()
            + line.matches("bad udp cksum").count()
            + line.matches("bad cksum").count();
        decoded.handshakes.extend(handshake(line));
    }
    decoded
}

fn handshake(line: &str) -> Option<Handshake> {
    let (before, after) = line.split_once(": Flags [")?;
    let (flags, rest) = after.split_once(']')?;
    if !flags.contains('S') {
        return None;
    }
    let (from, to) = before.rsplit_once(" > ")?;
    let options = rest
        .split_once("options [")
        .and_then(|(_, o)| o.split_once(']'))
        .map_or("", |(o, _)| o);
    Some(Handshake {
        answer: flags.contains('.'),
        from: port(from)?,
        to: port(to)?,
        options: options
            .split(',')
            .filter(|o| !matches!(*o, "" | "nop" | "eol"))
            .map(str::to_owned)
            .collect(),
    })
}

/// The port behind the last dot of `10.0.0.1.80`.
fn port(endpoint: &str) -> Option<u16> {
    endpoint
        .split_whitespace()
        .last()?
        .rsplit_once('.')?
        .1
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
12:00:00.000001 IP (tos 0x0, ttl 63, id 7, offset 0, flags [DF], proto TCP (6), length 48)
    10.0.1.2.43210 > 10.0.2.2.80: Flags [S], cksum 0x1a2b (correct), seq 1, win 64240, options [mss 1400,wscale 7,eol], length 0
12:00:00.000002 IP6 (flowlabel 0x1, hlim 63, next-header TCP (6) payload length: 40) fd00:2::2.80 > fd00:1::2.43212: Flags [S.], cksum 0xffff (incorrect -> 0x1), seq 1, ack 2, win 1, options [mss 1440,sackOK,TS val 1 ecr 0,nop,wscale 7], length 0
12:00:00.000003 IP (tos 0x0) 10.0.1.2.5 > 10.0.2.2.7: [udp sum ok] UDP, length 3
12:00:00.000004 IP 10.0.1.2.43210 > 10.0.2.2.80: Flags [P.], cksum 0x1 (correct), length 3
";

    #[test]
    fn tcpdumps_words_are_understood() {
        let decoded = parse(TEXT);
        assert_eq!((decoded.right, decoded.wrong), (3, 1));
        let [first, second] = &decoded.handshakes[..] else {
            panic!("{decoded:?}")
        };
        assert_eq!((first.answer, first.from, first.to), (false, 43210, 80));
        assert!(first.is_normal(1400) && !first.is_normal(1460));
        assert_eq!((second.answer, second.from, second.to), (true, 80, 43212));
        assert!(!second.is_normal(1440), "{:?}", second.options);
    }

    #[test]
    fn a_handshake_without_options_is_not_normal() {
        let line =
            "    1.2.3.4.1 > 1.2.3.5.2: Flags [S], cksum 0x1 (correct), seq 1, win 1, length 0";
        let found = handshake(line).expect("a SYN");
        assert!(found.options.is_empty() && !found.is_normal(1400));
    }
}

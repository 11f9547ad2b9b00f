//! Sets of prefixes, as lists are written: one entry a line.
//!
//! ```text
//! 192.0.2.0/24                     # a block
//! 198.51.100.7 udp 53              # a source (or destination) with protocol and port of its side
//! [2001:db8::1]:443                # the same without the protocol
//! 203.0.113.0/24 until 2026-12-01T00:00:00Z
//! 203.0.113.9 for 1h               # counted from the time the file was last changed
//! ```
//!
//! All errors of a list are found in one pass; the text of a million lines is read in a fraction of a second.

use super::units;
use weir_value::Prefix;

/// One line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Addresses.
    pub prefix: Prefix,
    /// What packets must have besides.
    pub only: Only,
    /// Seconds since 1970 from which on it no longer holds; 0: for ever.
    pub until: u32,
    /// Line of the list from 1, or place in it.
    pub line: u32,
}

/// Protocol and port that an entry is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Only {
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Port on the entry's side of the packet: the source port in `from @set`, the destination port in `to @set`.
    pub port: Option<u16>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Line from 1.
    pub line: u32,
    /// In one sentence.
    pub message: String,
}

/// Errors of a list that are told; of more only the number.
pub const TOLD: usize = 20;

/// Longest line that is looked at, in bytes without its comment; entries need far less.
const LONGEST: usize = 200;

/// Reads a list. `modified`: seconds since 1970 at which it was changed, which `for` counts from.
///
/// # Errors
/// The first [`TOLD`] lines that are wrong; where there are more, the next one with their number.
pub fn parse(text: &[u8], modified: Option<u64>) -> Result<Vec<Entry>, Vec<LineError>> {
    // Some editors begin a file with the mark of UTF-8.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (mut entries, mut errors, mut wrong) = (Vec::new(), Vec::new(), 0);
    for (number, line) in (1u32..).zip(text.split(|b| *b == b'\n')) {
        let line = line.split(|b| *b == b'#').next().unwrap_or_default();
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let read = match std::str::from_utf8(line) {
            Ok(line) if line.len() > LONGEST => Err(format!(
                "a line of {} characters is not an entry: write one entry a line",
                line.len()
            )),
            Ok(line) => entry(line, number, modified),
            Err(_) => Err("the line is not UTF-8 text".to_owned()),
        };
        match read {
            Ok(entry) => entries.push(entry),
            Err(message) => {
                wrong += 1;
                if errors.len() <= TOLD {
                    errors.push(LineError {
                        line: number,
                        message,
                    });
                }
            }
        }
    }
    if let (Some(last), true) = (errors.last_mut(), wrong > TOLD + 1) {
        last.message = format!("this line and {} more are wrong", wrong - TOLD - 1);
    }
    match errors.is_empty() {
        true => Ok(entries),
        false => Err(errors),
    }
}

/// One entry without its comment.
pub(super) fn entry(text: &str, line: u32, modified: Option<u64>) -> Result<Entry, String> {
    let mut words = text.split_ascii_whitespace().peekable();
    let first = words.next().unwrap_or_default();
    let (prefix, port) = place(first)?;
    let mut only = Only {
        protocol: None,
        port,
    };
    let mut until = 0;
    let named = words
        .peek()
        .filter(|word| !word.as_bytes()[0].is_ascii_digit());
    if let Some(protocol) = named.and_then(|word| weir_value::protocol(word).ok()) {
        only.protocol = Some(protocol);
        words.next();
    }
    if let Some(word) = words.peek()
        && word.as_bytes()[0].is_ascii_digit()
    {
        if only.port.is_some() {
            return Err(format!(
                "`{first}` names a port already, and `{word}` is another one"
            ));
        }
        only.port = Some(weir_value::port(word)?);
        words.next();
    }
    match (words.next(), words.next()) {
        (None, _) => {}
        (Some("until"), Some(time)) => until = units::time(time)?,
        (Some("for"), Some(span)) => {
            let Some(modified) = modified else {
                return Err(
                    "`for` counts from the time a file was changed, and this is not a file: write `until TIME`"
                        .to_owned(),
                );
            };
            let seconds = units::duration_ns(span)?.div_ceil(1_000_000_000);
            until = u32::try_from(modified + seconds)
                .map_err(|_| format!("`{span}` ends after the year 2106"))?;
        }
        (Some(word @ ("until" | "for")), None) => {
            return Err(format!("`{word}` wants a time behind it"));
        }
        (Some(word), _) => return Err(unknown(word)),
    }
    if let Some(word) = words.next() {
        return Err(unknown(word));
    }
    if let (Some(protocol), Some(port)) = (only.protocol, only.port)
        && !units::has_ports(protocol)
    {
        return Err(format!(
            "protocol {protocol} has no ports, and port {port} is given"
        ));
    }
    Ok(Entry {
        prefix,
        only,
        until,
        line,
    })
}

fn unknown(word: &str) -> String {
    let known = ["until", "for"]
        .into_iter()
        .chain(weir_value::PROTOCOLS.iter().map(|(name, _)| *name));
    let near = match weir_policy::nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    };
    format!(
        "`{word}` is not understood here: a line is PREFIX [protocol] [port] [until TIME | for DURATION]{near}"
    )
}

/// A prefix, perhaps with a port: `192.0.2.1:53`, `[2001:db8::1]:53`.
fn place(word: &str) -> Result<(Prefix, Option<u16>), String> {
    if let Some(rest) = word.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return Err(format!("`{word}` lacks its `]`"));
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(weir_value::port(port)?),
            None if rest.is_empty() => None,
            None => return Err(format!("`{rest}` behind `]` is not `:PORT`")),
        };
        return Ok((address.parse::<Prefix>()?, port));
    }
    match word.split_once(':') {
        Some((address, port)) if address.contains('.') && !port.contains(':') => {
            Ok((address.parse::<Prefix>()?, Some(weir_value::port(port)?)))
        }
        _ => Ok((word.parse::<Prefix>()?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Entry {
        entry(text, 1, Some(1000)).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn forms_of_an_entry() {
        let only = |protocol, port| Only { protocol, port };
        assert_eq!(one("10.0.0.0/8").only, only(None, None));
        assert_eq!(one("10.1.2.3:53").only, only(None, Some(53)));
        assert_eq!(one("10.1.2.3 udp 53").only, only(Some(17), Some(53)));
        assert_eq!(one("10.1.2.3 53").only, only(None, Some(53)));
        assert_eq!(one("[2001:db8::1]:443 tcp").only, only(Some(6), Some(443)));
        assert_eq!(one("2001:db8::/32").prefix.len, 32);
        assert_eq!(one("10.0.0.1 until 1970-01-01T00:01:00Z").until, 60);
        assert_eq!(one("10.0.0.1 icmp until 77").until, 77);
        assert_eq!(one("10.0.0.1 for 2m").until, 1120);
    }

    #[test]
    fn what_editors_add_is_no_part_of_a_list() {
        let text = b"\xef\xbb\xbf10.0.0.0/8\r\n\r\n # a comment\r\n\t2001:db8::/32 udp \r\n1.2.3.4";
        let entries = parse(text, None).expect("read");
        let lines: Vec<u32> = entries.iter().map(|e| e.line).collect();
        assert_eq!(lines, [1, 4, 5]);
        // Not at the beginning it is no mark.
        let errors = parse(b"1.2.3.4\n\xef\xbb\xbf1.2.3.5", None).expect_err("refused");
        assert_eq!(errors[0].line, 2);
        let long = [b"1.2.3.4\n".repeat(2), vec![b'a'; 100_000]].concat();
        let errors = parse(&long, None).expect_err("refused");
        assert!(
            errors[0].line == 3 && errors[0].message.len() < 200,
            "{errors:?}"
        );
    }

    #[test]
    fn all_wrong_lines_are_told_up_to_a_number() {
        let text = b"10.0.0.0/8\n10.0.0.1/8 # no\n\n1.2.3.4 udpp\n1.2.3.4 icmp 53\n1.2.3.4:53 54\n1.2.3.4 until\n".to_vec();
        let errors = parse(&text, None).expect_err("refused");
        let told: Vec<String> = errors
            .iter()
            .map(|e| format!("{}: {}", e.line, e.message))
            .collect();
        assert_eq!(told.len(), 5);
        assert_eq!(
            told[0],
            "2: invalid prefix `10.0.0.1/8`: host bits are set; write 10.0.0.0/8 or 10.0.0.1"
        );
        assert!(
            told[1].starts_with("4: `udpp` is not understood here")
                && told[1].ends_with("did you mean `udp`?"),
            "{}",
            told[1]
        );
        assert_eq!(told[2], "5: protocol 1 has no ports, and port 53 is given");
        assert_eq!(
            told[3],
            "6: `1.2.3.4:53` names a port already, and `54` is another one"
        );
        assert_eq!(told[4], "7: `until` wants a time behind it");
        for (lines, last) in [
            (
                TOLD,
                "invalid prefix `x`: expected an address or a prefix such as 192.0.2.0/24 or 2001:db8::/32",
            ),
            (
                TOLD + 1,
                "invalid prefix `x`: expected an address or a prefix such as 192.0.2.0/24 or 2001:db8::/32",
            ),
            (30, "this line and 9 more are wrong"),
        ] {
            let many = "x\n".repeat(lines);
            let errors = parse(many.as_bytes(), None).expect_err("refused");
            assert_eq!(errors.len(), lines.min(TOLD + 1));
            assert_eq!(errors.last().map(|e| &*e.message), Some(last));
        }
        assert!(
            entry("10.0.0.1 for 1h", 1, None)
                .expect_err("refused")
                .contains("write `until TIME`")
        );
    }
}

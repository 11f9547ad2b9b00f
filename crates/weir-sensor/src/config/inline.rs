//! Inline: which two interfaces the sensor stands between, as `af-packet` says it (`copy-mode: ips`, `copy-iface`), and what becomes of frames that it cannot take.

use crate::settings::{Settings, SettingsError};

/// The key of `--fail-open` and `--fail-closed`.
pub const FAIL_OPEN: &str = "inline.fail-open";
/// The key of `--inline`: two interfaces with a colon between them, before what `af-packet` says.
pub const JOINED: &str = "inline.interfaces";
/// Frames that may wait.
const QUEUE: &str = "inline.queue";
/// How many, if not said, and at most: of each interface there may be so many of 64 KiB.
const FRAMES: u64 = 1024;
const MOST: u64 = 65_536;

/// What becomes of frames of joined interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The two interfaces.
    pub interfaces: [String; 2],
    /// What the sensor cannot take passes; else it is dropped.
    pub fail_open: bool,
    /// Frames that may wait for the sensor, of each interface.
    pub queue: u32,
}

/// The interfaces that the settings join, if they do.
///
/// # Errors
/// A value means nothing for its key; the copies of two interfaces do not go to each other.
pub fn joined(s: &Settings) -> Result<Option<Joined>, SettingsError> {
    let mut copies: Vec<(String, String)> = Vec::new();
    for n in s.keys("af-packet") {
        let (mode, to) = (
            format!("af-packet.{n}.copy-mode"),
            format!("af-packet.{n}.copy-iface"),
        );
        let (Some(from), other) = (s.text(&format!("af-packet.{n}.interface")), s.text(&to)) else {
            continue;
        };
        match (s.text(&mode).as_deref(), other) {
            (None | Some("none"), _) => {}
            (Some("ips"), Some(other)) => copies.push((from, other)),
            (Some("ips"), None) => {
                return Err(SettingsError::Value {
                    key: to,
                    value: String::new(),
                    expected: "the other interface",
                });
            }
            (Some(other), _) => {
                return Err(SettingsError::Value {
                    key: mode,
                    value: other.to_owned(),
                    expected: "ips, or none; frames are not copied without their being decided",
                });
            }
        }
    }
    let queue = s.number(QUEUE)?.unwrap_or(FRAMES);
    let fail_open = s.truth(FAIL_OPEN)?.unwrap_or(false);
    let queue = match u32::try_from(queue) {
        Ok(frames) if (1..=MOST).contains(&queue) => frames,
        _ => {
            return Err(SettingsError::Value {
                key: QUEUE.to_owned(),
                value: queue.to_string(),
                expected: "1 to 65536 frames",
            });
        }
    };
    if let Some(pair) = s.text(JOINED) {
        copies.clear();
        if let Some((a, b)) = pair.split_once(':').filter(|(a, b)| a != b) {
            copies = vec![(a.to_owned(), b.to_owned()), (b.to_owned(), a.to_owned())];
        } else {
            return Err(SettingsError::Value {
                key: JOINED.to_owned(),
                value: pair,
                expected: "two interfaces with a colon between them, as eth1:eth2",
            });
        }
    }
    let interfaces = match copies.as_slice() {
        [] => return Ok(None),
        [(a, to_b), (b, to_a)] if a == to_a && b == to_b && a != b => [a.clone(), b.clone()],
        _ => {
            let all: Vec<String> = copies.iter().map(|(a, b)| format!("{a} to {b}")).collect();
            return Err(SettingsError::Value {
                key: "af-packet".to_owned(),
                value: all.join(", "),
                expected: "two interfaces with copy-mode: ips, each the copy-iface of the other",
            });
        }
    };
    Ok(Some(Joined {
        interfaces,
        fail_open,
        queue,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Joined>, SettingsError> {
        joined(&Settings::parse(text, false).expect("YAML"))
    }

    #[test]
    fn two_interfaces_each_the_copy_of_the_other() {
        let both = "af-packet:\n  - interface: a\n    copy-mode: ips\n    copy-iface: b\n  - interface: b\n    copy-mode: ips\n    copy-iface: a\n";
        let expected = Joined {
            interfaces: ["a".to_owned(), "b".to_owned()],
            fail_open: false,
            queue: 1024,
        };
        assert_eq!(read(both).expect("right"), Some(expected.clone()));
        let open = format!("{both}inline:\n  fail-open: yes\n  queue: 64\n");
        let expected = Joined {
            fail_open: true,
            queue: 64,
            ..expected
        };
        assert_eq!(read(&open).expect("right"), Some(expected));
        assert_eq!(
            read("af-packet:\n  - interface: a\n  - interface: b\n    copy-mode: none\n")
                .expect("right"),
            None
        );
        let said = read(&format!("{both}inline:\n  interfaces: c:d\n")).expect("right");
        assert_eq!(
            said.expect("joined").interfaces,
            ["c".to_owned(), "d".to_owned()]
        );
        for wrong in [
            "af-packet:\n  - interface: a\n    copy-mode: ips\n    copy-iface: b\n",
            "af-packet:\n  - interface: a\n    copy-mode: ips\n",
            "af-packet:\n  - interface: a\n    copy-mode: tap\n    copy-iface: b\n",
            &both.replace("copy-iface: a", "copy-iface: c"),
            &format!("{both}inline:\n  queue: 0\n"),
            "inline:\n  interfaces: a:a\n",
            "inline:\n  interfaces: a\n",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

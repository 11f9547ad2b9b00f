//! docs/sensor-rules.md lists the words that the loader has, and each word does what its list says. `WEIR_UPDATE=1` writes the page.

use std::path::Path;

use weir_sensor::buffer::Buffer;
use weir_sensor::rules::keywords::{NOTED, REFUSED, SNORT_BUFFERS, WORDS, tables};
use weir_sensor::rules::{Dialect, Kind, LoadSettings, Loader};

const MARK: &str = "<!-- generated -->\n";

#[test]
fn the_page_lists_the_words() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sensor-rules.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (head, old) = page.split_once(MARK).expect("a mark in the page");
    let new = format!("\n{}", tables());
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, format!("{head}{MARK}{new}")).expect("written");
    } else {
        assert!(
            old == new,
            "docs/sensor-rules.md is out of date: WEIR_UPDATE=1 cargo test -p weir-sensor rules::words"
        );
    }
}

fn refusal(dialect: Dialect, option: &str) -> Option<(Kind, String)> {
    let settings = LoadSettings {
        dialect,
        ..LoadSettings::default()
    };
    let mut loader = Loader::new(&settings);
    loader.text(
        "one",
        format!("alert ip any any -> any any ({option}; sid:1;)").as_bytes(),
    );
    let loaded = loader.finish();
    loaded.refused.first().map(|r| (r.kind, r.reason.clone()))
}

/// A word of the list is never unknown in its dialect, and always in the other.
#[test]
fn words_are_known_in_their_dialects() {
    for (_, name, aliases, dialects, _) in WORDS {
        for word in std::iter::once(name).chain(*aliases) {
            for (_, dialect) in Dialect::ALL {
                let unknown = matches!(refusal(*dialect, word), Some((Kind::Unknown, _)));
                // A name may be a buffer in the other dialect.
                let buffer = SNORT_BUFFERS.iter().any(|(n, _)| n == word);
                let listed = REFUSED.iter().any(|(n, _)| n == word);
                assert!(
                    unknown != dialects.has(*dialect) || buffer || listed,
                    "{word} in {}",
                    dialect.name()
                );
            }
        }
    }
}

#[test]
fn buffers_are_known_in_their_dialects() {
    for buffer in Buffer::ALL {
        let (sticky, modifiers) = buffer.words();
        for word in sticky.iter().chain(modifiers) {
            let refused = refusal(Dialect::Suricata, word);
            assert!(
                !matches!(refused, Some((Kind::Unknown | Kind::Unsupported, _))),
                "{word}: {refused:?}"
            );
        }
    }
    for (word, buffer) in SNORT_BUFFERS {
        let carried = refusal(Dialect::Snort, &format!("{word}; content:\"a\""));
        assert_eq!(carried, None, "{word} is {}", buffer.name());
    }
}

#[test]
fn noted_words_load_and_refused_words_do_not() {
    for (word, _) in NOTED {
        assert_eq!(refusal(Dialect::Suricata, word), None, "{word}");
    }
    for (word, why) in REFUSED {
        if Buffer::sticky(word).is_some() {
            continue;
        }
        for (_, dialect) in Dialect::ALL {
            let (kind, reason) = refusal(*dialect, word).expect("it is refused");
            assert_eq!(kind, Kind::Unsupported, "{word}");
            assert!(reason.contains(why), "{word}: {reason}");
        }
    }
}

//! What a rule requires of who reads it: a version of the language, keywords, features.

use crate::app;
use crate::buffer::Buffer;
use crate::rules::keywords::Word;
use crate::rules::load::{Dialect, Features};
use crate::rules::problem::{Kind, Parsed};
use crate::rules::scan::commas;
use crate::rules::text::Text;

/// The version of the language that is read here.
const VERSION: [u64; 3] = [8, 0, 0];

/// `version >= 7.0.3 < 8 | >= 8.0.1, keyword NAME, feature NAME`: all of it, or the rule is none of ours.
pub(super) fn requires(value: Text<'_>, dialect: Dialect, features: Features) -> Parsed<()> {
    for part in commas(value) {
        let words = part.words();
        let Some(what) = words.first() else { continue };
        let rest = part.from(what.len()).trim();
        let met = match what.bytes {
            b"version" => versions(rest)?,
            b"keyword" => {
                let name = rest.str()?;
                Word::named(name, dialect).is_some()
                    || app::fact(name).is_some()
                    || Buffer::sticky(name).is_some()
                    || Buffer::modifier(name).is_some()
            }
            b"feature" => match rest.bytes {
                b"ja3" => features.ja3,
                b"ja4" => features.ja4,
                _ => false,
            },
            _ => {
                let reason = "what is required is a version, a keyword or a feature";
                return Err(what.fail(Kind::Syntax, reason));
            }
        };
        if !met {
            let kind = what.lossy();
            let reason = format!("missing a required {kind}: {}", part.lossy());
            return Err(part.fail(Kind::Unsupported, reason));
        }
    }
    Ok(())
}

/// Whether one of the alternatives holds.
fn versions(text: Text<'_>) -> Parsed<bool> {
    let mut any = false;
    for alternative in text.split(b'|') {
        let words = alternative.words();
        if words.is_empty() || words.len() % 2 != 0 {
            let reason = "versions are `>= 7.0.3 < 8`, alternatives with a bar";
            return Err(alternative.fail(Kind::Syntax, reason));
        }
        let mut all = true;
        for pair in words.chunks(2) {
            let with = version(pair[1])?;
            all &= match pair[0].bytes {
                b">=" => VERSION >= with,
                b">" => VERSION > with,
                b"<=" => VERSION <= with,
                b"<" => VERSION < with,
                _ => {
                    let reason = "an operator is `>= > <= <`";
                    return Err(pair[0].fail(Kind::Value, reason));
                }
            };
        }
        any |= all;
    }
    Ok(any)
}

fn version(text: Text<'_>) -> Parsed<[u64; 3]> {
    let wrong = || text.fail(Kind::Value, "a version is as 8 or 8.0.1");
    let mut parts = [0; 3];
    let words = text.split(b'.');
    if words.len() > parts.len() {
        return Err(wrong());
    }
    for (slot, word) in parts.iter_mut().zip(words) {
        *slot = word.str()?.parse().map_err(|_| wrong())?;
    }
    Ok(parts)
}

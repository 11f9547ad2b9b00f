//! Why a text is not a value: the one message, with the offending text and what is expected.

use std::fmt;

/// A text that is not a value of its kind. Its text is the whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: &'static str,
    text: String,
    expected: String,
}

impl Invalid {
    /// `what` as in "invalid MAC address"; `expected` continues "expected ...".
    pub(crate) fn new(what: &'static str, text: &str, expected: &str) -> Invalid {
        Invalid::because(what, text, format!("expected {expected}"))
    }

    /// With another reason.
    pub(crate) fn because(what: &'static str, text: &str, why: String) -> Invalid {
        Invalid {
            what,
            text: text.to_owned(),
            expected: why,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.what, self.text, self.expected)
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for String {
    fn from(invalid: Invalid) -> String {
        invalid.to_string()
    }
}

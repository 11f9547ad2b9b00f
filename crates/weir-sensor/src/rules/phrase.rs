//! What the log of a run calls a reason for which a rule is rejected. Sites search that log for these phrases, so they are an interface: the one table of them. The reason of a
//! [`Refused`](super::Refused) says the same with its place, for who writes the rule.

/// A reason, with what is named in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phrase {
    /// A modifier of a content is given twice.
    Twice(String),
    /// `nocase` is.
    NocaseTwice,
    /// Places from the start and from the match before, of one content.
    AbsoluteAndRelative,
    /// A place with `fast_pattern:only`.
    PlacedOnly,
    /// A modifier, and a value of it that is out of bounds.
    Bound(String, String),
    /// A modifier, and the name in it that nothing extracts.
    UnknownName(String, String),
    /// `byte_test` and its like, with such a name.
    UnknownVariable(String, String),
    /// A modifier without a content.
    NoContent(String),
    /// A modifier, its value and the length of the content that does not fit.
    TooShort(String, i64, i64),
    /// A content that is not in quotation marks: keyword and value.
    Unquoted(String, String),
    /// Something stands behind the closing quotation mark: keyword and value.
    Semicolon(String, String),
    /// A keyword without the value that it needs.
    NoValue(String, String),
    /// A keyword with a value, which it has not.
    Value(String, String),
    /// A word that is no keyword.
    UnknownKeyword(String),
    /// The last option has no end.
    NoEnd,
    /// An option that a rule must have.
    Missing(&'static str),
    /// A content, and the character in it that is no hexadecimal digit.
    HexCode(String, char),
    /// A content with half a byte in it.
    HexHalf(String),
    /// A content with an open bar.
    HexOpen(String),
    /// A content for `http.host` in capital letters.
    HostCapitals,
    /// `nocase` of one.
    HostNocase,
    /// `relative` without a match before it.
    NothingBefore,
    /// The length of contents, and that of the buffer: one number or a range.
    Longer(u64, Room),
    /// A content and the transform that it cannot be found behind.
    Transformed(String, &'static str),
    /// `fast_pattern` behind `base64_data`.
    FastDecoded,
    /// `fast_pattern` of a negated content that has a place.
    FastNegated,
    /// Offset, length, and length of the content.
    FastPart(u64, u64),
    /// An expression with a flag for a buffer, whose description is named, while another is in force.
    ExpressionBuffer(&'static str),
    /// Keywords of requests and of responses in one rule, or against `flow`.
    Directions,
    /// A rule about both directions, of which it has one.
    OneDirection,
    /// Such a rule, with a keyword that either direction has.
    EitherDirection,
    /// Such a rule, with `flow` naming one.
    FlowDirection,
    /// The name of a set whose file has a line that is not in base64, or no sum or address: what it should be.
    SetEncoding(String, &'static str),
    /// The name of a set with a wrong reputation.
    SetReputation(String),
    /// The name of a set that has reputations and should not, or the other way round.
    SetMixed(String),
    /// A member in JSON is no text.
    SetNotText,
    /// A set larger than its memcap.
    SetTooLarge,
    /// A set that is named with another type than before.
    SetType(String),
    /// An absolute path.
    AbsolutePath(String),
    /// A path with `..`.
    ParentPath(String),
    /// A category that no table of reputation has.
    IpCategory(String),
    /// Another rule has number and revision.
    Duplicate,
}

/// What a content has room in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// `bsize` of one number, or below or above it.
    Size(u64),
    /// `bsize:a<>b`.
    Range(u64, u64),
}

impl Phrase {
    /// The part of the sensor that says it, as that log names parts.
    pub fn module(&self) -> String {
        let keyword = |word: &str| format!("detect-{}", word.replace(['.', '_'], "-"));
        match self {
            Phrase::Twice(word)
            | Phrase::Bound(word, _)
            | Phrase::UnknownName(word, _)
            | Phrase::UnknownVariable(word, _)
            | Phrase::NoContent(word)
            | Phrase::TooShort(word, ..) => keyword(word),
            Phrase::NocaseTwice => keyword("nocase"),
            Phrase::AbsoluteAndRelative | Phrase::PlacedOnly => keyword("content"),
            Phrase::HexCode(..) | Phrase::HexHalf(_) | Phrase::HexOpen(_) => keyword("content"),
            Phrase::HostCapitals | Phrase::HostNocase => keyword("http.host"),
            Phrase::NothingBefore => keyword("content"),
            Phrase::Longer(..) => keyword("bsize"),
            Phrase::Transformed(..) => keyword("content"),
            Phrase::FastDecoded | Phrase::FastNegated | Phrase::FastPart(..) => {
                keyword("fast_pattern")
            }
            Phrase::ExpressionBuffer(_) => keyword("pcre"),
            // What ends a run at once is said there.
            Phrase::SetEncoding(..) | Phrase::SetReputation(_) | Phrase::SetMixed(_) => {
                "debug".to_owned()
            }
            Phrase::SetNotText | Phrase::SetTooLarge | Phrase::SetType(_) => "datasets".to_owned(),
            Phrase::AbsolutePath(_) | Phrase::ParentPath(_) => keyword("dataset"),
            Phrase::IpCategory(_) => keyword("iprep"),
            _ => "detect-parse".to_owned(),
        }
    }

    /// What it says of the rule of this number.
    pub fn text(&self, sid: u32) -> String {
        match self {
            Phrase::Twice(word) => format!("can't use multiple {word}s for the same content."),
            Phrase::NocaseTwice => "can't use multiple nocase modifiers with the same content".to_owned(),
            Phrase::AbsoluteAndRelative => "can't use a relative keyword like within/distance with a absolute relative keyword like depth/offset for the same content.".to_owned(),
            Phrase::PlacedOnly => "can't have a relative keyword set along with 'fast_pattern:only;'.".to_owned(),
            Phrase::Bound(word, value) => format!("invalid value for {word}: {value}{}", stop(word)),
            Phrase::UnknownName(word, name) => {
                format!("unknown byte_ keyword var seen in {word} - {name}{}", stop(word))
            }
            Phrase::UnknownVariable(word, name) => {
                format!("Unknown byte_extract var seen in {word} - {name}")
            }
            Phrase::NoContent(word) => format!("{word} needs preceding content option"),
            Phrase::TooShort(word, value, length) => {
                format!("{word}:{value} smaller than content of len {length}")
            }
            Phrase::Unquoted(word, value) => {
                format!("invalid formatting to {word} keyword: value must be double quoted '{value}'")
            }
            Phrase::Semicolon(word, value) => format!("bad option value formatting (possible missing semicolon) for keyword {word}: '{value}'"),
            Phrase::NoValue(word, rule) => {
                format!("invalid formatting or malformed option to {word} keyword: '{rule}'")
            }
            Phrase::Value(word, value) => format!("unexpected option to {word} keyword: '{value}'"),
            Phrase::UnknownKeyword(word) => format!("unknown rule keyword '{word}'."),
            Phrase::NoEnd => "no terminating \";\" found".to_owned(),
            Phrase::Missing(word) => format!("Signature missing required value \"{word}\"."),
            Phrase::HexCode(content, c) => {
                format!("Invalid hex code in content - {content}, hex {c}. Invalidating signature.")
            }
            Phrase::HexHalf(content) => {
                format!("Incomplete hex code in content - {content}. Invalidating signature.")
            }
            Phrase::HexOpen(content) => {
                format!("Invalid hex code assembly in content - {content}.  Invalidating signature.")
            }
            Phrase::HostCapitals => format!("rule {sid}: A pattern with uppercase characters detected for http.host. The hostname buffer is normalized to lowercase, please specify a lowercase pattern."),
            Phrase::HostNocase => format!("rule {sid}: http.host keyword specified along with \"nocase\". The hostname buffer is normalized to lowercase, specifying nocase is redundant."),
            Phrase::NothingBefore => "relative specified without previous pattern match".to_owned(),
            Phrase::Longer(length, room) => {
                let room = match room {
                    Room::Size(size) => format!("value: {size}"),
                    Room::Range(low, high) => format!("range: {low}-{high}"),
                };
                format!("signature can't match as required content length {length} exceeds bsize {room}")
            }
            Phrase::Transformed(content, transform) => {
                format!("content string \"{content}\" incompatible with {transform} transform")
            }
            Phrase::FastDecoded => "fast_pattern cannot be used with base64_data".to_owned(),
            Phrase::FastNegated => "fast_pattern cannot be used with a negated content that has a place".to_owned(),
            Phrase::FastPart(end, length) => {
                format!("Fast pattern (length + offset ({end})) exceeds pattern length ({length})")
            }
            Phrase::ExpressionBuffer(what) => format!("Expression seen with a sticky buffer still set; use pkt_data, or use a sticky buffer of \"{what}\""),
            Phrase::Directions => format!("rule {sid} mixes keywords with conflicting directions"),
            Phrase::OneDirection => format!("rule {sid} should use both directions, but does not"),
            Phrase::EitherDirection => format!("rule {sid} means to use both directions, cannot have keywords ambiguous about directions"),
            Phrase::FlowDirection => format!("rule {sid} means to use both directions, cannot specify a flow direction"),
            Phrase::SetEncoding(name, what) => format!("bad {what} {name}"),
            Phrase::SetReputation(name) => format!("invalid datarep value {name}"),
            Phrase::SetMixed(name) => {
                format!("Cannot mix dataset and datarep values for set {name}")
            }
            Phrase::SetNotText => "failed to get value because it is not a string".to_owned(),
            Phrase::SetTooLarge => "dataset too large for set memcap".to_owned(),
            Phrase::SetType(name) => format!("dataset {name} already exists with another type"),
            Phrase::AbsolutePath(path) => format!("Absolute paths not allowed: {path}"),
            Phrase::ParentPath(path) => format!("Directory traversals not allowed: {path}"),
            Phrase::IpCategory(name) => format!("unknown iprep category \"{name}\""),
            Phrase::Duplicate => format!("Duplicate signature \"{sid}\""),
        }
    }
}

/// The final stop that the messages about some keywords have.
fn stop(word: &str) -> &'static str {
    match word {
        "depth" | "offset" => ".",
        _ => "",
    }
}

/// What the log calls the buffer of an old keyword or of a flag of an expression.
pub(super) fn described(buffer: crate::buffer::Buffer) -> &'static str {
    use crate::buffer::Buffer;
    match buffer {
        Buffer::HttpUri => "http request uri",
        Buffer::HttpUriRaw => "raw http uri",
        Buffer::HttpRequestBody => "http request body",
        // Bodies of responses are files.
        Buffer::HttpResponseBody | Buffer::FileData => "data from tracked files",
        Buffer::HttpHeader => "http headers",
        Buffer::HttpHeaderRaw => "raw http headers",
        Buffer::HttpMethod => "http request method",
        Buffer::HttpCookie => "http cookie header",
        Buffer::HttpStatusCode => "http response status code",
        Buffer::HttpStatusMessage => "http response status message",
        Buffer::HttpUserAgent => "http user agent",
        Buffer::HttpHost => "http host",
        Buffer::HttpHostRaw => "http raw host header",
        other => other.name(),
    }
}

//! What is asked of HTTP: how targets are normalized, how far bodies are decoded, what records say.

use crate::settings::{Settings, SettingsError};

/// What is asked of HTTP beyond the limits of bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpWanted {
    /// Layers of encodings that are undone.
    pub layers: usize,
    /// Bytes of LZMA's window; 0: LZMA is not undone.
    pub lzma_memory: usize,
    /// Header lines of one message.
    pub headers: usize,
    /// Normalization of paths.
    pub path: PathRules,
    /// The query is decoded twice.
    pub double_query: bool,
    /// A plus in the query is a space.
    pub plus: bool,
    /// `http.uri` has scheme, credentials, host and port too.
    pub whole_target: bool,
    /// Records list the header lines of requests, and of responses.
    pub lines: [bool; 2],
    /// Headers that records have by name: in lower case, with the field that is theirs alone. Others stand in the lists of header lines.
    pub custom: Vec<(String, Option<&'static str>)>,
}

/// How paths are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// Backslashes are slashes.
    pub backslashes: bool,
    /// Repeated slashes are one.
    pub compress: bool,
    /// Encoded slashes are slashes.
    pub separators: bool,
    /// Letters are made small.
    pub lowercase: bool,
    /// `%uXXXX` is decoded.
    pub wide: bool,
    /// UTF-8 that stands for ASCII is made that.
    pub utf8: bool,
    /// A NUL, as it is or encoded, ends the path.
    pub ends_at_nul: [bool; 2],
    /// What is decoded is decoded once more.
    pub double: bool,
    /// What is no encoding.
    pub invalid: Invalid,
    /// Stands for characters that have no byte.
    pub replacement: u8,
}

/// What becomes of a percent sign that encodes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Invalid {
    /// It stays.
    #[default]
    Keep,
    /// It goes.
    Remove,
    /// The two characters are decoded all the same.
    Decode,
}

impl HttpWanted {
    /// What is asked where nothing is configured.
    pub const USUAL: HttpWanted = HttpWanted {
        layers: 2,
        lzma_memory: 0,
        headers: 1024,
        path: PathRules {
            backslashes: true,
            compress: true,
            separators: true,
            lowercase: false,
            wide: true,
            utf8: true,
            ends_at_nul: [false, false],
            double: false,
            invalid: Invalid::Keep,
            replacement: b'?',
        },
        double_query: false,
        plus: false,
        whole_target: false,
        lines: [false, false],
        custom: Vec::new(),
    };
}

/// More layers than this are never undone, whatever is configured.
const MOST_LAYERS: u64 = 8;

/// Fields of records that are one header.
const FIELDS: &[(&str, &str)] = &[
    ("x-forwarded-for", "xff"),
    ("true-client-ip", "true_client_ip"),
    ("org-src-ip", "org_src_ip"),
    ("x-bluecoat-via", "x_bluecoat_via"),
];

impl HttpWanted {
    /// What settings ask.
    pub(crate) fn read(s: &Settings) -> Result<HttpWanted, SettingsError> {
        let at = |key: &str| format!("app-layer.protocols.http.libhtp.default-config.{key}");
        let truth = |key: &str, usual: bool| Ok(s.truth(&at(key))?.unwrap_or(usual));
        let mut w = HttpWanted::USUAL;
        match s.number(&at("response-body-decompress-layer-limit"))? {
            None => {}
            Some(0) => w.layers = MOST_LAYERS as usize,
            Some(n) => w.layers = n.min(MOST_LAYERS) as usize,
        }
        if truth("lzma-enabled", false)? {
            let memory = s.bytes(&at("lzma-memlimit"))?.unwrap_or(1 << 20).max(4096);
            w.lzma_memory = usize::try_from(memory).unwrap_or(usize::MAX);
        }
        if let Some(n) = s.number(&at("headers-limit"))? {
            w.headers = usize::try_from(n).unwrap_or(usize::MAX);
        }
        let key = at("personality");
        if let Some(name) = s.text(&key) {
            w.path = PathRules::of(&name).ok_or(SettingsError::Value {
                key,
                value: name,
                expected: "a kind of server that is known",
            })?;
        }
        let p = &mut w.path;
        p.backslashes = truth("path-convert-backslash-separators", p.backslashes)?;
        p.compress = truth("path-separators-compress", p.compress)?;
        p.separators = truth("path-separators-decode", p.separators)?;
        p.lowercase = truth("path-convert-lowercase", p.lowercase)?;
        p.wide = truth("path-u-encoding-decode", p.wide)?;
        p.utf8 = truth("path-utf8-convert-bestfit", p.utf8)?;
        p.ends_at_nul[0] = truth("path-nul-raw-terminates", p.ends_at_nul[0])?;
        p.ends_at_nul[1] = truth("path-nul-encoded-terminates", p.ends_at_nul[1])?;
        p.double = truth("double-decode-path", p.double)?;
        let key = at("path-url-encoding-invalid-handling");
        p.invalid = match s.text(&key).as_deref() {
            None | Some("preserve_percent") => Invalid::Keep,
            Some("remove_percent") => Invalid::Remove,
            Some("decode_invalid") => Invalid::Decode,
            Some(other) => {
                return Err(SettingsError::Value {
                    value: other.to_owned(),
                    key,
                    expected: "preserve_percent, remove_percent or decode_invalid",
                });
            }
        };
        if let Some(text) = s.text(&at("path-bestfit-replacement-char"))
            && let [byte] = text.as_bytes()
        {
            p.replacement = *byte;
        }
        w.double_query = truth("double-decode-query", w.double_query)?;
        w.plus = truth("query-plusspace-decode", w.plus)?;
        w.whole_target = truth("uri-include-all", w.whole_target)?;
        for n in s.keys("outputs") {
            let types = format!("outputs.{n}.eve-log.types");
            for n in s.keys(&types) {
                for at in [format!("{types}.http"), format!("{types}.{n}.http")] {
                    w.record(s, &at)?;
                }
            }
        }
        Ok(w)
    }

    /// What the log's settings for records of HTTP ask.
    fn record(&mut self, s: &Settings, at: &str) -> Result<(), SettingsError> {
        let key = |name: &str| format!("{at}.{name}");
        let dump = key("dump-all-headers");
        if let Some(which) = s.text(&dump) {
            self.lines = match which.as_str() {
                "both" => [true, true],
                "request" => [true, false],
                "response" => [false, true],
                "none" | "no" | "false" => [false, false],
                _ => {
                    return Err(SettingsError::Value {
                        key: dump,
                        value: which,
                        expected: "both, request, response or none",
                    });
                }
            };
        }
        for name in s.list(&key("custom")).unwrap_or_default() {
            let names = name.trim_matches(['[', ']']).split(',').map(str::trim);
            for name in names.filter(|n| !n.is_empty()) {
                let header = name.to_ascii_lowercase().replace('_', "-");
                // The name of the field names it too.
                let known =
                    (FIELDS.iter()).find(|(h, f)| *h == header || f.replace('_', "-") == header);
                self.custom.push(match known {
                    Some((header, field)) => ((*header).to_owned(), Some(*field)),
                    None => (header, None),
                });
            }
        }
        Ok(())
    }
}

impl PathRules {
    /// Of a kind of server.
    fn of(name: &str) -> Option<PathRules> {
        let ids = HttpWanted::USUAL.path;
        let minimal = PathRules {
            backslashes: false,
            compress: false,
            separators: false,
            wide: false,
            utf8: false,
            ..ids
        };
        let apache = PathRules {
            compress: true,
            ..minimal
        };
        let generic = PathRules {
            backslashes: true,
            separators: true,
            ..apache
        };
        Some(match name.to_ascii_uppercase().as_str() {
            "IDS" => ids,
            "MINIMAL" => minimal,
            "GENERIC" => generic,
            "APACHE" | "APACHE_2" | "APACHE_2_2" => apache,
            // These decode %u and fold UTF-8.
            "IIS_4_0" | "IIS_5_0" => ids,
            "IIS_5_1" | "IIS_7_0" | "IIS_7_5" => generic,
            "IIS_6_0" => PathRules {
                wide: true,
                ..generic
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let text = "app-layer:\n  protocols:\n    http:\n      libhtp:\n        default-config:\n          response-body-decompress-layer-limit: 3\n          lzma-enabled: yes\n          double-decode-path: yes\n          personality: Apache_2\n          path-u-encoding-decode: yes\noutputs:\n  - eve-log:\n      enabled: yes\n      types:\n        - http:\n            extended: no\n            custom: [Accept-Encoding, x-forwarded-for]\n            dump-all-headers: request\n";
        let w = HttpWanted::read(&Settings::parse(text, false).unwrap()).unwrap();
        assert_eq!((w.layers, w.lzma_memory), (3, 1 << 20));
        assert!(w.path.double && w.path.wide && w.path.compress && !w.path.backslashes);
        assert_eq!(w.lines, [true, false]);
        let custom = |name: &str, field| (name.to_owned(), field);
        assert_eq!(
            w.custom,
            [
                custom("accept-encoding", None),
                custom("x-forwarded-for", Some("xff"))
            ]
        );
        assert_eq!(
            HttpWanted::read(&Settings::default()).unwrap(),
            HttpWanted::USUAL
        );
        let wrong = "app-layer:\n  protocols:\n    http:\n      libhtp:\n        default-config:\n          personality: what\n";
        assert!(HttpWanted::read(&Settings::parse(wrong, false).unwrap()).is_err());
    }
}

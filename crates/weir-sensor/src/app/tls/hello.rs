//! Hello messages of TLS (also those that QUIC carries): names, versions, protocols, and the fingerprints made of them.

use md5::{Digest, Md5};
use sha2::Sha256;

use crate::app::text::hex;

/// A reader of fields; reading past the end gives `None`.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    /// A big-endian number of up to eight bytes.
    pub(crate) fn number(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some(taken.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.number(1).map(|n| n as u8)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|n| n as u16)
    }

    /// Bytes after their length, which has so many bytes.
    pub(crate) fn list(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let n = self.number(bytes)?;
        self.take(n as usize)
    }
}

/// A ClientHello or ServerHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// As in its header, which stays at 1.2 in later versions.
    pub(crate) legacy_version: u16,
    /// Offered or chosen in an extension.
    pub(crate) versions: Vec<u16>,
    /// 32 bytes: a time, once, and random ones.
    pub(crate) random: Vec<u8>,
    pub(crate) session: Vec<u8>,
    /// Offered, or the one chosen.
    pub(crate) ciphers: Vec<u16>,
    pub(crate) extensions: Vec<u16>,
    pub(crate) groups: Vec<u16>,
    pub(crate) formats: Vec<u8>,
    pub(crate) signatures: Vec<u16>,
    pub(crate) sni: Option<Vec<u8>>,
    pub(crate) alpn: Vec<Vec<u8>>,
    /// The client has a ticket of an earlier session.
    pub(crate) ticket: bool,
    /// What was odd about it.
    pub(crate) events: Vec<&'static str>,
}

fn pairs(bytes: &[u8]) -> Vec<u16> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|pair| u16::from_be_bytes(*pair))
        .collect()
}

pub(crate) fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

impl Hello {
    /// Parses the body of a ClientHello.
    pub(crate) fn client(body: &[u8]) -> Option<Hello> {
        let mut r = Reader(body);
        let mut h = Hello {
            legacy_version: r.u16()?,
            random: r.take(32)?.to_vec(),
            session: r.list(1)?.to_vec(),
            ciphers: pairs(r.list(2)?),
            ..Hello::default()
        };
        r.list(1)?;
        h.extensions_of(r, true);
        Some(h)
    }

    /// Parses the body of a ServerHello.
    pub(crate) fn server(body: &[u8]) -> Option<Hello> {
        let mut r = Reader(body);
        let legacy_version = r.u16()?;
        let random = r.take(32)?.to_vec();
        // Drafts of TLS 1.3 up to 21 have neither a session nor a compression. They stand here by their number; the first ones as the version they became.
        let short = matches!(legacy_version, 0x0304 | 0x7f00..=0x7f15);
        let session = if short { &[] } else { r.list(1)? };
        let mut h = Hello {
            legacy_version,
            random,
            session: session.to_vec(),
            ciphers: vec![r.u16()?],
            ..Hello::default()
        };
        if !short {
            r.u8()?;
        }
        h.extensions_of(r, false);
        Some(h)
    }

    /// Extensions may be absent; those that break off keep what came before.
    fn extensions_of(&mut self, mut r: Reader<'_>, client: bool) {
        if r.0.is_empty() {
            return;
        }
        let Some(all) = r.list(2) else {
            self.events.push("handshake_invalid_length");
            return;
        };
        let mut r = Reader(all);
        while !r.0.is_empty() {
            let (Some(kind), Some(data)) = (r.u16(), r.list(2)) else {
                self.events.push("handshake_invalid_length");
                return;
            };
            self.extensions.push(kind);
            if self.extension(kind, Reader(data), client).is_none() {
                self.events.push(if kind == 0 {
                    "invalid_sni_length"
                } else {
                    "handshake_invalid_length"
                });
            }
        }
    }

    fn extension(&mut self, kind: u16, mut data: Reader<'_>, client: bool) -> Option<()> {
        match kind {
            // Nothing in it asks for nothing, as servers answer.
            0 if client && data.0.is_empty() => {}
            0 if client => {
                let length = usize::from(data.u16()?);
                let mut names = data;
                // A name is a name whatever is said of the length of the list.
                if length < 3 || length > names.0.len() {
                    self.events.push("invalid_sni_length");
                }
                if self.sni.is_some() {
                    self.events.push("multiple_sni_extensions");
                    return Some(());
                }
                if names.u8()? != 0 {
                    self.events.push("invalid_sni_type");
                    return Some(());
                }
                let name = names.list(2)?;
                // Names of hosts have up to 255 bytes.
                if name.is_empty() || name.len() > 255 {
                    self.events.push("invalid_sni_length");
                }
                if !name.is_empty() {
                    self.sni = Some(name.to_vec());
                }
            }
            10 if client => self.groups = pairs(data.list(2)?),
            11 if client => self.formats = data.list(1)?.to_vec(),
            13 if client => self.signatures = pairs(data.list(2)?),
            16 => {
                let mut names = Reader(data.list(2)?);
                while !names.0.is_empty() {
                    self.alpn.push(names.list(1)?.to_vec());
                }
            }
            35 if client => self.ticket = !data.0.is_empty(),
            43 if client => self.versions = pairs(data.list(1)?),
            43 => self.versions = vec![data.u16()?],
            _ => {}
        }
        Some(())
    }

    /// The highest version offered, or the one chosen.
    pub(crate) fn version(&self) -> u16 {
        let named = self.versions.iter().filter(|v| !is_grease(**v));
        named.max().copied().unwrap_or(self.legacy_version)
    }

    /// What JA3 hashes.
    pub(crate) fn ja3(&self) -> String {
        let join = |list: &[u16]| {
            let words: Vec<String> = list
                .iter()
                .filter(|v| !is_grease(**v))
                .map(u16::to_string)
                .collect();
            words.join("-")
        };
        let formats: Vec<u16> = self.formats.iter().map(|f| u16::from(*f)).collect();
        format!(
            "{},{},{},{},{}",
            self.legacy_version,
            join(&self.ciphers),
            join(&self.extensions),
            join(&self.groups),
            join(&formats)
        )
    }

    /// What JA3S hashes.
    pub(crate) fn ja3s(&self) -> String {
        let extensions: Vec<String> = self.extensions.iter().map(u16::to_string).collect();
        format!(
            "{},{},{}",
            self.legacy_version,
            self.ciphers.first().copied().unwrap_or_default(),
            extensions.join("-")
        )
    }

    /// JA4: over TCP (`t`) or QUIC (`q`).
    pub(crate) fn ja4(&self, quic: bool) -> String {
        let version = match self.version() {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        };
        let plain = |list: &[u16]| -> Vec<u16> {
            list.iter().copied().filter(|v| !is_grease(*v)).collect()
        };
        let mut ciphers = plain(&self.ciphers);
        let extensions = plain(&self.extensions);
        let alpn = match self.alpn.first().map(Vec::as_slice) {
            None | Some([]) => "00".to_string(),
            Some(name @ [a, ..]) => {
                let (a, b) = (*a, name.last().copied().unwrap_or(*a));
                if a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric() {
                    format!("{}{}", a as char, b as char)
                } else {
                    format!("{:x}{:x}", a >> 4, b & 15)
                }
            }
        };
        let words = |list: &[u16]| {
            let w: Vec<String> = list.iter().map(|v| format!("{v:04x}")).collect();
            w.join(",")
        };
        let short = |text: &str| match text {
            "" => "000000000000".to_string(),
            _ => hex(Sha256::digest(text.as_bytes()).get(..6).unwrap_or_default()),
        };
        let head = format!(
            "{}{version}{}{:02}{:02}{alpn}",
            if quic { 'q' } else { 't' },
            if self.extensions.contains(&0) {
                'd'
            } else {
                'i'
            },
            ciphers.len().min(99),
            extensions.len().min(99),
        );
        ciphers.sort_unstable();
        let mut sorted: Vec<u16> = extensions
            .into_iter()
            .filter(|e| !matches!(e, 0 | 16))
            .collect();
        sorted.sort_unstable();
        let mut second = words(&sorted);
        if !self.signatures.is_empty() && !second.is_empty() {
            second.push('_');
            second.push_str(&words(&plain(&self.signatures)));
        }
        format!("{head}_{}_{}", short(&words(&ciphers)), short(&second))
    }
}

/// MD5 in hexadecimal.
pub(crate) fn md5_hex(text: &str) -> String {
    hex(&Md5::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What senders put in to keep the other end patient is in no fingerprint, wherever it stands.
    #[test]
    fn reserved_numbers_are_in_no_fingerprint() {
        let plain = Hello {
            legacy_version: 0x0303,
            versions: vec![0x0304, 0x0303],
            ciphers: vec![0x1301, 0xc02f],
            extensions: vec![0, 10, 11, 13, 16, 43],
            groups: vec![29, 23],
            formats: vec![0],
            signatures: vec![0x0403, 0x0804],
            sni: Some(b"a.example".to_vec()),
            alpn: vec![b"h2".to_vec()],
            ..Hello::default()
        };
        assert_eq!(plain.ja3(), "771,4865-49199,0-10-11-13-16-43,29-23,0");
        for grease in [0x0a0a, 0x1a1a, 0x2a2a, 0x9a9a, 0xfafa] {
            for place in [0, 2] {
                let with = |list: &[u16]| {
                    let mut list = list.to_vec();
                    list.insert(place, grease);
                    list
                };
                let hello = Hello {
                    versions: with(&plain.versions),
                    ciphers: with(&plain.ciphers),
                    extensions: with(&plain.extensions),
                    groups: with(&plain.groups),
                    signatures: with(&plain.signatures),
                    ..plain.clone()
                };
                assert_eq!(hello.ja3(), plain.ja3(), "{grease:04x}");
                assert_eq!(hello.ja4(false), plain.ja4(false), "{grease:04x}");
                assert_eq!(hello.version(), 0x0304, "{grease:04x}");
            }
        }
        // Numbers that only look like them count.
        for number in [0x0a1a, 0x0b0b, 0x1a0a, 0x0aaa] {
            let hello = Hello {
                ciphers: vec![number, 0x1301, 0xc02f],
                ..plain.clone()
            };
            assert!(
                hello.ja3().starts_with(&format!("771,{number}-")),
                "{number:04x}"
            );
            assert_ne!(hello.ja4(false), plain.ja4(false), "{number:04x}");
        }
    }
}

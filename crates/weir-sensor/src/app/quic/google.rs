//! Hellos of Google's QUIC before it took TLS over (Q000 to Q049): a list of tags with values, in the clear. Its tags make the fingerprint CYU.

use crate::app::tls::hello::md5_hex;

/// Tags of a hello; hosts have about twenty.
const MOST_TAGS: usize = 128;
/// Frames that are looked through for the hello.
const MOST_FRAMES: usize = 2048;
/// What a packet in the clear is protected by, before its frames.
const HASH: usize = 12;

/// A datagram of such a version.
pub(super) struct Google<'a> {
    /// As sent.
    pub(super) version: u32,
    /// What follows its header; nothing where that is of a form that no published version has.
    frames: &'a [u8],
}

/// A hello of a client.
pub(super) struct GoogleHello<'a> {
    tags: Vec<[u8; 4]>,
    /// The name of the server that is asked for.
    pub(super) sni: Option<&'a [u8]>,
    /// What the client says it is.
    pub(super) agent: Option<&'a [u8]>,
}

/// The number in the name of a version, if it is one of those.
fn number(version: &[u8]) -> Option<u8> {
    match version {
        [b'Q', b'0', a @ b'0'..=b'4', b @ b'0'..=b'9'] => Some((a - b'0') * 10 + (b - b'0')),
        _ => None,
    }
}

impl Google<'_> {
    /// Reads the header of a datagram that names its version: those of a client until the server has taken it.
    pub(super) fn parse(b: &[u8]) -> Option<Google<'_>> {
        let first = *b.first()?;
        let (at, number, header) = if first & 0x80 == 0 {
            // A version, and an identifier of eight bytes.
            if first & 0xc9 != 0x09 {
                return None;
            }
            let number = number(b.get(9..13)?)?;
            let packet = [1, 2, 4, 6].get(usize::from(first >> 4 & 3))?;
            (9, number, 13 + packet)
        } else {
            let number = number(b.get(1..5)?)?;
            let lengths = *b.get(5)?;
            let identifier = |n: u8| if n == 0 { 0 } else { usize::from(n) + 3 };
            let identifiers = identifier(lengths >> 4) + identifier(lengths & 15);
            let packet = match number {
                46.. => usize::from(first & 3) + 1,
                _ => 4,
            };
            (1, number, 6 + identifiers + packet)
        };
        let version = b.get(at..at + 4)?;
        let known = (if first & 0x80 == 0 { 30..44 } else { 44..49 }).contains(&number);
        let frames = b.get(header + HASH..).filter(|_| known);
        Some(Google {
            version: version.iter().fold(0, |n, b| n << 8 | u32::from(*b)),
            frames: frames.unwrap_or_default(),
        })
    }
}

impl<'a> Google<'a> {
    /// The hello in its frames.
    pub(super) fn hello(&self) -> Option<GoogleHello<'a>> {
        let mut rest = self.frames;
        for _ in 0..MOST_FRAMES {
            let (kind, behind) = rest.split_first()?;
            match kind {
                // Padding, ping.
                0 | 7 => rest = behind,
                // A part of a stream: identifier, place and length have as many bytes as the type says.
                0x80.. => {
                    let place = usize::from(kind >> 2 & 7);
                    let place = if place == 0 { 0 } else { place + 1 };
                    let behind = behind.get(usize::from(kind & 3) + 1 + place..)?;
                    let data = if kind & 0x20 == 0 {
                        rest = &[];
                        behind
                    } else {
                        let (length, behind) = behind.split_first_chunk::<2>()?;
                        let length = usize::from(u16::from_be_bytes(*length));
                        let (data, behind) = behind.split_at_checked(length)?;
                        rest = behind;
                        data
                    };
                    if let Some(body) = data.strip_prefix(b"CHLO") {
                        return tags(body);
                    }
                }
                _ => return None,
            }
        }
        None
    }
}

/// Reads what follows the name of a hello: how many tags there are, the tags with the end of each value, the values.
fn tags(body: &[u8]) -> Option<GoogleHello<'_>> {
    let (head, rest) = body.split_first_chunk::<4>()?;
    let count = usize::from(u16::from_le_bytes([head[0], head[1]]));
    if count > MOST_TAGS {
        return None;
    }
    let (index, values) = rest.split_at_checked(count * 8)?;
    let mut hello = GoogleHello {
        tags: Vec::with_capacity(count),
        sni: None,
        agent: None,
    };
    let mut from = 0;
    for entry in index.chunks_exact(8) {
        let &[a, b, c, d, e0, e1, e2, e3] = entry.first_chunk::<8>()?;
        let end = u32::from_le_bytes([e0, e1, e2, e3]) as usize;
        // What is padded behind the datagram's end has tags all the same.
        let value = values.get(from..end);
        match &[a, b, c, d] {
            b"SNI\0" => hello.sni = value,
            b"UAID" => hello.agent = value,
            _ => {}
        }
        hello.tags.push([a, b, c, d]);
        from = end;
    }
    Some(hello)
}

impl GoogleHello<'_> {
    /// Version and tags as CYU writes them, and the sum of that.
    pub(super) fn cyu(&self, version: u32) -> (String, String) {
        let [_, _, a, b] = version.to_be_bytes();
        let mut string: String = [a, b].map(char::from).iter().collect();
        for (i, tag) in self.tags.iter().enumerate() {
            string.push(if i == 0 { ',' } else { '-' });
            let end = tag.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
            string.extend(tag.iter().take(end).map(|b| char::from(*b)));
        }
        let hash = md5_hex(&string);
        (string, hash)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A datagram with a hello, as a client of a version sends it.
    pub(in crate::app::quic) fn datagram(version: u8, values: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut name = *b"Q000";
        name[2] += version / 10;
        name[3] += version % 10;
        let mut d = match version {
            44.. => [&[0xc3][..], &name, &[0x50], &[7; 8], &[0, 0, 0, 1]].concat(),
            _ => [&[0x0d & !4 | 0x20][..], &[7; 8], &name, &[0, 0, 0, 1]].concat(),
        };
        d.extend_from_slice(&[9; HASH]);
        let mut hello = b"CHLO".to_vec();
        hello.extend_from_slice(&(values.len() as u16).to_le_bytes());
        hello.extend_from_slice(&[0, 0]);
        let mut end = 0;
        for (tag, value) in values {
            end += value.len() as u32;
            hello.extend_from_slice(*tag);
            hello.extend_from_slice(&end.to_le_bytes());
        }
        hello.extend(values.iter().flat_map(|(_, value)| value.iter()));
        // A stream of one byte, at its beginning, with a length; padding before it and behind.
        d.extend_from_slice(&[0, 0, 0xa0, 1]);
        d.extend_from_slice(&(hello.len() as u16).to_be_bytes());
        d.extend_from_slice(&hello);
        d.extend_from_slice(&[0; 40]);
        d
    }

    #[test]
    fn a_hello_is_read_with_its_tags_in_order() {
        for version in [30, 43, 44, 46] {
            let d = datagram(
                version,
                &[
                    (b"PAD\0", &[b'-'; 300]),
                    (b"SNI\0", b"q.example"),
                    (b"UAID", b"agent 1"),
                ],
            );
            let found = Google::parse(&d).expect("a header");
            let hello = found.hello().expect("a hello");
            assert_eq!(hello.sni, Some(&b"q.example"[..]));
            assert_eq!(hello.agent, Some(&b"agent 1"[..]));
            let (string, hash) = hello.cyu(found.version);
            assert_eq!(string, format!("{version},PAD-SNI-UAID"));
            assert_eq!(hash.len(), 32);
            for cut in 0..d.len() {
                if let Some(found) = Google::parse(&d[..cut]) {
                    let _ = found.hello();
                }
            }
        }
        // More tags than there is room for, and other forms.
        assert!(tags(&[200, 0, 0, 0]).is_none());
        assert!(tags(&[2, 0, 0, 0, b'S', b'N', b'I', 0, 9, 0, 0, 0]).is_none());
        assert!(Google::parse(b"\x0d1234567Q043").is_none());
        assert!(Google::parse(b"\x0912345678Q05012").is_none());
    }

    #[test]
    fn the_fingerprint_is_that_of_its_definition() {
        let tags =
            "PAD-SNI-VER-CCS-UAID-TCID-PDMD-SMHL-ICSL-NONP-MIDS-SCLS-CSCT-COPT-IRTT-CFCW-SFCW";
        let padded = |tag: &str| {
            let mut bytes = [0; 4];
            bytes[..tag.len()].copy_from_slice(tag.as_bytes());
            bytes
        };
        let hello = GoogleHello {
            tags: tags.split('-').map(padded).collect(),
            sni: None,
            agent: None,
        };
        let (string, hash) = hello.cyu(u32::from_be_bytes(*b"Q046"));
        assert_eq!(string, format!("46,{tags}"));
        assert_eq!(hash, "910a5e3a4d51593bd59a44611544f209");
    }
}

//! One message: what its header says, and where its paths and names are.

use super::names::dialect;

/// What a header says.
pub(super) struct Message<'a> {
    pub(super) version: u8,
    pub(super) command: u16,
    pub(super) status: u32,
    /// The status is a class and a code of DOS, as the flags of version 1 say.
    pub(super) dos: bool,
    pub(super) response: bool,
    pub(super) unicode: bool,
    pub(super) number: u64,
    pub(super) tree: u32,
    pub(super) session: u64,
    /// The whole message, which offsets count from.
    pub(super) all: &'a [u8],
    /// What follows the header.
    pub(super) body: &'a [u8],
}

pub(super) fn first_version(b: &[u8]) -> Option<Message<'_>> {
    Some(Message {
        version: 1,
        command: u16::from(*b.get(4)?),
        status: le32(b, 5)?,
        dos: le16(b, 10)? & 0x4000 == 0,
        response: b.get(9)? & 0x80 != 0,
        unicode: le16(b, 10)? & 0x8000 != 0,
        number: (le16(b, 30)? | le16(b, 26)? << 16) as u64,
        tree: le16(b, 24)? as u32,
        session: le16(b, 28)? as u64,
        all: b,
        body: b.get(32..)?,
    })
}

/// The next command of a chain (ANDX) in a message of version 1: its number, and where its words begin. `None`: this is the last one, or it leads nowhere.
pub(super) fn next_of_chain(m: &Message<'_>) -> Option<(u16, usize)> {
    const CHAINS: [u16; 7] = [0x24, 0x2d, 0x2e, 0x2f, 0x73, 0x75, 0xa2];
    let (words, ..) = words(m)?;
    if m.version != 1 || !CHAINS.contains(&m.command) || words.len() < 4 {
        return None;
    }
    let next = u16::from(words[0]);
    let at = le16(words, 2)?;
    // Forward only: a chain that turns back would have no end.
    let words_end = m.all.len() - m.body.len() + 1 + words.len() + 2;
    (next != 0xff && at >= words_end && at < m.all.len()).then_some((next, at))
}

/// A message of versions 2 and 3.
pub(super) fn second_version(b: &[u8]) -> Option<Message<'_>> {
    if b.get(..4)? != b"\xfeSMB" {
        return None;
    }
    Some(Message {
        version: 2,
        command: le16(b, 12)? as u16,
        status: le32(b, 8)?,
        dos: false,
        response: le32(b, 16)? & 1 != 0,
        unicode: true,
        number: le64(b, 24)?,
        tree: le32(b, 36)?,
        session: le64(b, 40)?,
        all: b,
        body: b.get(64..)?,
    })
}

/// Words and bytes of a message of version 1, and where the bytes begin.
pub(super) fn words<'a>(m: &Message<'a>) -> Option<(&'a [u8], &'a [u8], usize)> {
    let n = usize::from(*m.body.first()?) * 2;
    let words = m.body.get(1..1 + n)?;
    // Of a command that is chained, what is behind it counts from where it stands.
    let start = m.all.len() - m.body.len();
    let bytes = m.body.get(3 + n..)?;
    Some((words, bytes, start + 3 + n))
}

pub(super) fn tree_path(m: &Message<'_>) -> Option<Vec<u8>> {
    if m.version == 2 {
        let (at, length) = (le16(m.body, 4)?, le16(m.body, 6)?);
        return Some(narrow(m.all.get(at..at + length)?, true));
    }
    let (words, bytes, at) = words(m)?;
    let password = le16(words, 6)?;
    let mut path = bytes.get(password..)?;
    if m.unicode && (at + password) % 2 == 1 {
        path = path.get(1..)?;
    }
    Some(narrow(path, m.unicode))
}

/// The service that a client of version 1 asks for, or that it gets.
pub(super) fn service<'a>(m: &Message<'a>) -> Option<&'a [u8]> {
    let (words, bytes, at) = words(m)?;
    let rest = if m.response {
        bytes
    } else {
        // Behind the password and the path, which alone may be of wide characters.
        let password = le16(words, 6)?;
        let wide = m.unicode;
        let path = bytes.get(password + usize::from(wide && (at + password) % 2 == 1)..)?;
        let end = match wide {
            true => path.chunks_exact(2).position(|c| c == [0, 0])? * 2 + 2,
            false => memchr::memchr(0, path)? + 1,
        };
        path.get(end..)?
    };
    let end = memchr::memchr(0, rest).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// System and program of an end of version 1, as it names them when a session is set up.
pub(super) fn natives(m: &Message<'_>) -> Option<[Vec<u8>; 2]> {
    let (words, bytes, at) = words(m)?;
    // What comes before: tokens of the security in use, or passwords and then names.
    let (skip, names) = match (m.response, words.len() / 2) {
        (false, 12) => (le16(words, 14)?, 0),
        (false, 13) => (le16(words, 14)? + le16(words, 16)?, 2),
        (true, 4) => (le16(words, 6)?, 0),
        (true, 3) => (0, 0),
        _ => return None,
    };
    let pad = usize::from(m.unicode && (at + skip) % 2 == 1);
    let mut rest = bytes.get(skip + pad..)?;
    let mut next = || {
        let name = narrow(rest, m.unicode);
        let end = match m.unicode {
            true => rest
                .chunks_exact(2)
                .position(|c| c == [0, 0])
                .map(|n| n * 2 + 2),
            false => memchr::memchr(0, rest).map(|n| n + 1),
        };
        rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
        name
    };
    for _ in 0..names {
        next();
    }
    Some([next(), next()])
}

pub(super) fn file_name(m: &Message<'_>) -> Option<Vec<u8>> {
    if m.version == 2 {
        let (at, length) = (le16(m.body, 44)?, le16(m.body, 46)?);
        return Some(narrow(m.all.get(at..at + length)?, true));
    }
    let (words, bytes, at) = words(m)?;
    let length = le16(words, 5)?;
    let pad = usize::from(m.unicode && at % 2 == 1);
    Some(narrow(bytes.get(pad..pad + length)?, m.unicode))
}

/// The dialects that a client offers, by name.
pub(super) fn dialects(m: &Message<'_>) -> Vec<Vec<u8>> {
    if m.version == 2 {
        let count = le16(m.body, 2).unwrap_or_default().min(64);
        let numbers = m.body.get(36..).unwrap_or_default().chunks_exact(2);
        return numbers
            .take(count)
            .map(|v| dialect([v[0], v[1]]).into_bytes())
            .collect();
    }
    let Some((_, bytes, _)) = words(m) else {
        return Vec::new();
    };
    let names = bytes.split(|b| *b == 0).take(32);
    names
        .filter_map(|n| n.strip_prefix(b"\x02"))
        .map(<[u8]>::to_vec)
        .collect()
}

/// Text of the wire in one-byte characters, up to its NUL; others are replaced.
pub(super) fn narrow(bytes: &[u8], unicode: bool) -> Vec<u8> {
    if !unicode {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        return bytes[..end].to_vec();
    }
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|p| u16::from_le_bytes([p[0], p[1]]))
        .take_while(|u| *u != 0)
        .collect();
    String::from_utf16_lossy(&units).into_bytes()
}

pub(super) fn le16(b: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes([
        *b.get(at)?,
        *b.get(at + 1)?,
    ])))
}

pub(super) fn le32(b: &[u8], at: usize) -> Option<u32> {
    Some(le16(b, at)? as u32 | (le16(b, at + 2)? as u32) << 16)
}

pub(super) fn le64(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(le32(b, at)?) | u64::from(le32(b, at + 4)?) << 32)
}

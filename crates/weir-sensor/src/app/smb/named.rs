//! What requests say of names: files that get another one or are to go, and for whom a ticket of Kerberos is.

use super::message::{Message, le16, le32, narrow, words};
use super::names::identifier;
use crate::app::krb5::ticket_of;
use crate::app::text::text;

type Record = serde_json::Map<String, serde_json::Value>;

/// What follows the mechanism of Kerberos (RFC 4121, 4.1) in a token: the number of an AP-REQ, and its tag.
const TICKET: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00\x6e";

/// `SET_INFO` of version 2 about a file, whose name `name_of` knows by what the server calls it: another name (class 10), or that it goes when it is closed (class 13). `None`: something else, or cut off.
pub(super) fn set_info(
    m: &Message<'_>,
    name_of: impl FnOnce([u8; 16]) -> Vec<u8>,
) -> Option<Record> {
    let [1, level] = *m.body.get(2..4)? else {
        return None;
    };
    let (length, at) = (le32(m.body, 4)? as usize, le16(m.body, 8)?);
    let id: [u8; 16] = m.body.get(16..32)?.try_into().ok()?;
    let data = m.all.get(at..at.checked_add(length)?)?;
    let known = name_of(id);
    let fuid = identifier(&id);
    match level {
        10 => {
            let length = le32(data, 16)? as usize;
            let name = narrow(data.get(20..20usize.checked_add(length)?)?, true);
            let mut said = renamed(&known, &name, &fuid);
            let about = Record::from_iter([
                ("class".to_owned(), "FILE_INFO".into()),
                ("info_level".to_owned(), "SMB2_FILE_RENAME_INFO".into()),
            ]);
            said.insert("set_info".into(), about.into());
            Some(said)
        }
        13 => Some(disposed(&known, data.first()? & 1 != 0, &fuid)),
        _ => None,
    }
}

/// The same of version 1: `TRANS2` with the subcommands `SET_PATH_INFO` and `SET_FILE_INFO`, at the levels that are passed on to the file system.
pub(super) fn set_information(
    m: &Message<'_>,
    name_of: impl FnOnce(usize) -> Vec<u8>,
) -> Option<Record> {
    const RENAME: usize = 1010;
    const DISPOSITION: usize = 1013;
    let (words, ..) = words(m)?;
    let part = |at: usize, length: usize| {
        let (at, length) = (le16(words, at)?, le16(words, length)?);
        m.all.get(at..at + length)
    };
    let (parameters, data) = (part(20, 18)?, part(24, 22)?);
    let subcommand = le16(words, 28)?;
    let (level, name, fuid) = match subcommand {
        6 => {
            let name = narrow(parameters.get(6..)?, m.unicode);
            (le16(parameters, 0)?, name, String::new())
        }
        8 => {
            let file = le16(parameters, 0)?;
            let level = le16(parameters, 2)?;
            (level, name_of(file), format!("{file:04x}"))
        }
        _ => return None,
    };
    let mut said = match level {
        RENAME => {
            let length = le32(data, 8)? as usize;
            let to = data.get(12..12usize.checked_add(length)?)?;
            renamed(&name, &narrow(to, m.unicode), &fuid)
        }
        DISPOSITION => {
            let mut said = disposed(&name, data.first()? & 1 != 0, &fuid);
            let level = "Set Disposition Information";
            said.insert("level_of_interest".into(), level.into());
            said
        }
        _ => return None,
    };
    if level == DISPOSITION {
        let name = ["SET_PATH_INFO", "SET_FILE_INFO"][usize::from(subcommand == 8)];
        said.insert("subcmd".into(), name.into());
    }
    Some(said)
}

/// `RENAME` of version 1: both names, each behind a byte for its form.
pub(super) fn rename(m: &Message<'_>) -> Option<Record> {
    let (_, bytes, at) = words(m)?;
    let (from, next) = formed(m, bytes, at, 0)?;
    let (to, _) = formed(m, bytes, at, next)?;
    Some(renamed(&from, &to, ""))
}

/// A name behind a byte for its form (4), and where the next one begins; wide characters begin at an even place of the message.
fn formed(m: &Message<'_>, bytes: &[u8], at: usize, from: usize) -> Option<(Vec<u8>, usize)> {
    if bytes.get(from) != Some(&4) {
        return None;
    }
    let start = from + 1 + usize::from(m.unicode && (at + from + 1) % 2 == 1);
    let rest = bytes.get(start..)?;
    let length = match m.unicode {
        true => rest.chunks_exact(2).position(|c| c == [0, 0])? * 2 + 2,
        false => memchr::memchr(0, rest)? + 1,
    };
    Some((narrow(rest.get(..length)?, m.unicode), start + length))
}

fn renamed(from: &[u8], to: &[u8], fuid: &str) -> Record {
    let names = Record::from_iter([("from".to_owned(), text(from)), ("to".to_owned(), text(to))]);
    Record::from_iter([
        ("rename".to_owned(), names.into()),
        ("fuid".to_owned(), fuid.into()),
    ])
}

fn disposed(name: &[u8], goes: bool, fuid: &str) -> Record {
    let shown = match name {
        b"" => b"<share_root>",
        name => name,
    };
    let access = if goes { "delete on close" } else { "normal" };
    Record::from_iter([
        ("filename".to_owned(), text(shown)),
        ("access".to_owned(), access.into()),
        ("fuid".to_owned(), fuid.into()),
    ])
}

/// Realm and server of the ticket of Kerberos that a session is set up with.
pub(super) fn kerberos(all: &[u8]) -> Option<Record> {
    let at = memchr::memmem::find(all, TICKET)?;
    let request = all.get(at + TICKET.len() - 1..)?;
    let (realm, server) = ticket_of(request)?;
    let server: Vec<_> = server.into_iter().map(text).collect();
    Some(Record::from_iter([
        ("realm".to_owned(), text(realm)),
        ("snames".to_owned(), server.into()),
    ]))
}

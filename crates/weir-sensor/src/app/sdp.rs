//! SDP (RFC 8866), as SIP carries it: what a session is about, and each of its media. A line is a letter, an equals sign and a value; those behind an `m=` are of that medium.

use serde_json::{Map, Value};

use super::lines::trimmed;
use super::text::text;
use super::transaction::Transaction;
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Lines of a description that are read.
const MOST_LINES: usize = 512;

/// Buffers that a description fills.
const BUFFERS: [Buffer; 17] = [
    Buffer::SdpOrigin,
    Buffer::SdpSessionName,
    Buffer::SdpSessionInfo,
    Buffer::SdpUri,
    Buffer::SdpEmail,
    Buffer::SdpPhoneNumber,
    Buffer::SdpConnectionData,
    Buffer::SdpBandwidth,
    Buffer::SdpTime,
    Buffer::SdpRepeatTime,
    Buffer::SdpTimezone,
    Buffer::SdpEncryptionKey,
    Buffer::SdpAttribute,
    Buffer::SdpMedia,
    Buffer::SdpMediaInfo,
    Buffer::SdpMediaConnectionData,
    Buffer::SdpMediaEncryptionKey,
];

/// Whether records or rules want descriptions.
pub(super) fn is_wanted(w: &Wanted) -> bool {
    w.records || BUFFERS.iter().any(|b| w.buffers.has(*b))
}

/// Where a value goes: its buffer and its key, of the session or of a medium.
fn place(letter: u8, of_medium: bool) -> Option<(Buffer, &'static str)> {
    Some(match (letter, of_medium) {
        (b'o', false) => (Buffer::SdpOrigin, "origin"),
        (b's', false) => (Buffer::SdpSessionName, "session_name"),
        (b'i', false) => (Buffer::SdpSessionInfo, "session_info"),
        (b'u', false) => (Buffer::SdpUri, "uri"),
        (b'e', false) => (Buffer::SdpEmail, "email"),
        (b'p', false) => (Buffer::SdpPhoneNumber, "phone_number"),
        (b'c', false) => (Buffer::SdpConnectionData, "connection_data"),
        (b'z', false) => (Buffer::SdpTimezone, "timezone"),
        (b'k', false) => (Buffer::SdpEncryptionKey, "encryption_key"),
        (b't', false) => (Buffer::SdpTime, "time"),
        (b'r', false) => (Buffer::SdpRepeatTime, "repeat_time"),
        (b'b', _) => (Buffer::SdpBandwidth, "bandwidths"),
        (b'a', _) => (Buffer::SdpAttribute, "attributes"),
        (b'm', _) => (Buffer::SdpMedia, "media"),
        (b'i', true) => (Buffer::SdpMediaInfo, "media_info"),
        (b'c', true) => (Buffer::SdpMediaConnectionData, "connection_data"),
        (b'k', true) => (Buffer::SdpMediaEncryptionKey, "encryption_key"),
        _ => return None,
    })
}

/// Adds to a list of a record.
fn push(record: &mut Map<String, Value>, key: &str, value: Value) {
    let list = record
        .entry(key)
        .or_insert_with(|| Vec::<Value>::new().into());
    if let Value::Array(list) = list {
        list.push(value);
    }
}

/// Tells rules and the log of a description. What does not begin with its version is none.
pub(super) fn note(t: &mut Transaction, d: Direction, body: &[u8], w: &Wanted) {
    let lines = body.split(|b| *b == b'\n').map(trimmed);
    let mut lines = lines.filter(|l| !l.is_empty()).take(MOST_LINES);
    let version = lines.next().and_then(|line| line.strip_prefix(b"v="));
    let version = version.and_then(|v| std::str::from_utf8(v).ok()?.trim().parse::<u32>().ok());
    let Some(version) = version else { return };
    let mut session = Map::new();
    session.insert("version".into(), version.into());
    let mut times: Vec<Map<String, Value>> = Vec::new();
    let mut media: Vec<Map<String, Value>> = Vec::new();
    for line in lines {
        let [letter, b'=', value @ ..] = line else {
            continue;
        };
        let Some((buffer, key)) = place(*letter, !media.is_empty()) else {
            continue;
        };
        let value = value.trim_ascii();
        if w.buffers.has(buffer) {
            t.push(buffer, d, value);
        }
        if !w.records {
            continue;
        }
        match key {
            "media" => media.push(Map::new()),
            "time" => times.push(Map::new()),
            _ => {}
        }
        let record = match key {
            "time" | "repeat_time" => times.last_mut(),
            _ => media.last_mut(),
        };
        let record = record.unwrap_or(&mut session);
        match key {
            "bandwidths" | "attributes" => push(record, key, text(value)),
            // Of several the first counts.
            _ => {
                record.entry(key).or_insert_with(|| text(value));
            }
        }
    }
    if w.records {
        // A time that repeats, without the time, is none.
        session.remove("repeat_time");
        for (key, list) in [("time_descriptions", times), ("media_descriptions", media)] {
            if !list.is_empty() {
                session.insert(key.into(), list.into());
            }
        }
        t.record.insert("sdp".into(), session.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::wanted;

    #[test]
    fn descriptions_are_told() {
        let body = b"v=0\r\no=a 1 2 IN IP4 192.0.2.1\r\ns=call\r\ni=about\r\nc=IN IP4 192.0.2.1\r\nb=AS:84\r\nt=0 0\r\nr=7d 1h 0 25h\r\nt=5 6\r\na=recvonly\r\n\
            m=audio 4000 RTP/AVP 0\r\ni=voice\r\nc=IN IP4 192.0.2.2\r\na=rtpmap:0 PCMU/8000\r\na=ptime:20\r\nm=video 4002 RTP/AVP 31\r\nbad\r\nx=1\r\n";
        let mut t = Transaction::default();
        note(&mut t, Direction::ToServer, body, &wanted());
        let sdp = &t.record["sdp"];
        assert_eq!(
            *sdp,
            serde_json::json!({
                "version": 0,
                "origin": "a 1 2 IN IP4 192.0.2.1",
                "session_name": "call",
                "session_info": "about",
                "connection_data": "IN IP4 192.0.2.1",
                "bandwidths": ["AS:84"],
                "attributes": ["recvonly"],
                "time_descriptions": [{"time": "0 0", "repeat_time": "7d 1h 0 25h"}, {"time": "5 6"}],
                "media_descriptions": [
                    {
                        "media": "audio 4000 RTP/AVP 0",
                        "media_info": "voice",
                        "connection_data": "IN IP4 192.0.2.2",
                        "attributes": ["rtpmap:0 PCMU/8000", "ptime:20"],
                    },
                    {"media": "video 4002 RTP/AVP 31"},
                ],
            })
        );
        let attributes: Vec<&[u8]> = t.get(Buffer::SdpAttribute, Direction::ToServer).collect();
        assert_eq!(attributes.len(), 3);
        for wrong in [&b"s=call\r\n"[..], b"v=x\r\ns=call\r\n", b""] {
            let mut t = Transaction::default();
            note(&mut t, Direction::ToServer, wrong, &wanted());
            assert!(t.record.is_empty());
        }
    }
}

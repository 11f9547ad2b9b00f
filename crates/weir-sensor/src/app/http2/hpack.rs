//! HPACK (RFC 7541): the header fields of a block, with the table that a direction of a connection has.

use std::collections::VecDeque;

use super::huffman;

/// The largest table that is kept, bytes as the standard counts them. Of a larger one the oldest fields are not known.
const MOST_TABLE: usize = 64 * 1024;
/// The table of a connection that has not said otherwise.
const USUAL_TABLE: usize = 4096;
/// What a field counts beside its bytes.
const OVERHEAD: usize = 32;
/// Bytes of fields that are read of one block: a byte of it may stand for a field as large as the table.
const MOST_FIELDS: usize = 256 * 1024;

/// What was wrong with a block. What stood in front of it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// An index that is in no table, or an invalid Huffman code.
    Field,
    /// A number that is too large to be one.
    Number,
    /// It ends within a field.
    Cut,
    /// Its fields are too many bytes.
    Large,
}

/// What stands in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A field: name and value.
    Field(&'a [u8], &'a [u8]),
    /// The table has another size from here on.
    Size(u32),
}

/// Name and value of a field.
type Kept = (Box<[u8]>, Box<[u8]>);

/// The fields that a direction has sent and may point at, the last one first.
#[derive(Debug)]
pub(super) struct Table {
    fields: VecDeque<Kept>,
    size: usize,
    most: usize,
}

impl Table {
    pub(super) fn new() -> Table {
        Table {
            fields: VecDeque::new(),
            size: 0,
            most: USUAL_TABLE,
        }
    }

    /// Reads a whole block.
    pub(super) fn read(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(Item<'_>),
    ) -> Result<(), Wrong> {
        let mut rest = block;
        let mut bytes = 0usize;
        let (mut name, mut value) = (Vec::new(), Vec::new());
        while let Some(first) = rest.first().copied() {
            if first & 0x80 != 0 {
                let index = number(&mut rest, 7)?;
                let (name, value) = self.field(index).ok_or(Wrong::Field)?;
                bytes += name.len() + value.len() + 1;
                if bytes > MOST_FIELDS {
                    return Err(Wrong::Large);
                }
                each(Item::Field(name, value));
                continue;
            }
            if first & 0xe0 == 0x20 {
                let size = number(&mut rest, 5)?;
                self.most = (size as usize).min(MOST_TABLE);
                self.shrink(0);
                each(Item::Size(size));
                continue;
            }
            let kept = first & 0x40 != 0;
            let index = number(&mut rest, if kept { 6 } else { 4 })?;
            name.clear();
            value.clear();
            match index {
                0 => string(&mut rest, &mut name)?,
                _ => name.extend_from_slice(self.field(index).ok_or(Wrong::Field)?.0),
            }
            string(&mut rest, &mut value)?;
            bytes += name.len() + value.len() + 1;
            if bytes > MOST_FIELDS {
                return Err(Wrong::Large);
            }
            each(Item::Field(&name, &value));
            if kept {
                self.keep(&name, &value);
            }
        }
        Ok(())
    }

    fn field(&self, index: u32) -> Option<(&[u8], &[u8])> {
        let index = (index as usize).checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.fields.get(index - STATIC.len())?;
        Some((name, value))
    }

    fn keep(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        self.shrink(size);
        // One that is larger than the table empties it.
        if size <= self.most {
            self.size += size;
            self.fields.push_front((name.into(), value.into()));
        }
    }

    /// Lets go of the oldest until there is so much room.
    fn shrink(&mut self, room: usize) {
        while self.size + room > self.most
            && let Some((name, value)) = self.fields.pop_back()
        {
            self.size -= name.len() + value.len() + OVERHEAD;
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.size
    }
}

/// A number whose first byte has so many bits of it (5.1).
fn number(rest: &mut &[u8], bits: u32) -> Result<u32, Wrong> {
    let (first, mut after) = rest.split_first().ok_or(Wrong::Cut)?;
    let mask = (1u32 << bits) - 1;
    let mut value = u32::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (byte, next) = after.split_first().ok_or(Wrong::Cut)?;
            after = next;
            let part = u32::from(byte & 0x7f);
            if shift > 28 || part.leading_zeros() < shift {
                return Err(Wrong::Number);
            }
            value = value.checked_add(part << shift).ok_or(Wrong::Number)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    *rest = after;
    Ok(value)
}

/// A string (5.2), appended.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Wrong> {
    let coded = rest.first().is_some_and(|b| b & 0x80 != 0);
    let length = number(rest, 7)? as usize;
    let (bytes, after) = rest.split_at_checked(length).ok_or(Wrong::Cut)?;
    *rest = after;
    if coded {
        return huffman::decode(bytes, out).ok_or(Wrong::Field);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// Fields that need not be sent (appendix A).
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &mut Table, hex: &str) -> (Vec<String>, Result<(), Wrong>) {
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let mut out = Vec::new();
        let done = table.read(&bytes, |item| {
            out.push(match item {
                Item::Field(name, value) => {
                    let text = |b| String::from_utf8_lossy(b).into_owned();
                    format!("{}: {}", text(name), text(value))
                }
                Item::Size(n) => format!("size {n}"),
            });
        });
        (out, done)
    }

    #[test]
    fn requests_of_the_standard_are_read() {
        // RFC 7541, C.3 as it is and C.4 with Huffman's code.
        for blocks in [
            [
                "828684410f7777772e6578616d706c652e636f6d",
                "828684be58086e6f2d6361636865",
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            ],
            [
                "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                "828684be5886a8eb10649cbf",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
        ] {
            let mut table = Table::new();
            let common = [":method: GET", ":scheme: http", ":path: /"];
            let host = ":authority: www.example.com";
            let (fields, done) = read(&mut table, blocks[0]);
            assert_eq!(
                (fields, done),
                (
                    [&common[..], &[host]]
                        .concat()
                        .iter()
                        .map(|s| s.to_string())
                        .collect(),
                    Ok(())
                )
            );
            let (fields, _) = read(&mut table, blocks[1]);
            assert_eq!(fields[3..], [host, "cache-control: no-cache"]);
            let (fields, _) = read(&mut table, blocks[2]);
            assert_eq!(
                fields,
                [
                    ":method: GET",
                    ":scheme: https",
                    ":path: /index.html",
                    host,
                    "custom-key: custom-value"
                ]
            );
            assert_eq!(table.size, 164);
        }
    }

    #[test]
    fn a_small_table_forgets() {
        // RFC 7541, C.6, with a table of 256 bytes.
        let mut table = Table::new();
        let (fields, _) = read(
            &mut table,
            "3fe101488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        );
        assert_eq!(fields[0], "size 256");
        assert_eq!(fields[4], "location: https://www.example.com");
        let (fields, _) = read(&mut table, "4883640effc1c0bf");
        assert_eq!(fields[0], ":status: 307");
        assert_eq!(fields[2], "date: Mon, 21 Oct 2013 20:13:21 GMT");
        assert_eq!(table.size, 222);
        let (fields, _) = read(
            &mut table,
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        );
        assert_eq!(
            fields[5],
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
        );
        assert_eq!(table.size, 215);
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let wrong = |hex: &str| read(&mut Table::new(), hex).1;
        assert_eq!(wrong("80"), Err(Wrong::Field));
        assert_eq!(wrong("be"), Err(Wrong::Field));
        assert_eq!(wrong("ffffffffffff7f"), Err(Wrong::Number));
        assert_eq!(wrong("ffffffffff0f"), Err(Wrong::Number));
        assert_eq!(wrong("4003616263"), Err(Wrong::Cut));
        assert_eq!(wrong("40"), Err(Wrong::Cut));
        assert_eq!(wrong("4081ff0161"), Err(Wrong::Field));
    }

    #[test]
    fn a_small_block_does_not_become_large() {
        let mut table = Table::new();
        let mut block = vec![
            0x3f, 0xe1, 0xff, 0x03, 0x40, 1, b'x', 0x7f, 0x81, 0xee, 0x01,
        ];
        block.extend([b'a'; 30_464]);
        block.extend([0xbe; 100_000]);
        let mut bytes = 0;
        let done = table.read(&block, |item| {
            if let Item::Field(name, value) = item {
                bytes += name.len() + value.len();
            }
        });
        assert_eq!(done, Err(Wrong::Large));
        assert!(bytes <= MOST_FIELDS && table.memory() <= MOST_TABLE);
    }
}

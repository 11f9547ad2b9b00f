//! Files that a server sends in parts (`Content-Range`), put together whatever the connections. Parts that one client fetches of one server belong together: all of them are of one slice,
//! so that the same files come of any number of workers.
//!
//! What has come from the beginning without a hole goes into the sums, and to the store. Only parts that wait for earlier ones are held in memory, up to the slice's share of `byterange.memcap`.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::IpAddr;

use crate::app::{Digests, File, Kept, MAGIC_HEAD, Sums, Transaction, magic};
use crate::packet::Direction;

/// Files that are begun, of one slice.
const MOST_OPEN: usize = 256;
/// Bytes of a part beyond which it is not put together with others.
pub(super) const MOST_PART: u64 = 64 << 20;

/// What the parts of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    client: IpAddr,
    server: IpAddr,
    host: String,
    name: Vec<u8>,
    size: u64,
}

/// Where a part lies in its file: first and last byte, and the size of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    first: u64,
    last: u64,
    size: u64,
}

impl Part {
    /// What a record says of it. `None`: it is no part of a file of known size, or all of it.
    pub(super) fn of(done: &Transaction) -> Option<Part> {
        let range = done.record.get("content_range")?;
        let number = |key: &str| range.get(key).and_then(serde_json::Value::as_u64);
        let (first, last, size) = (number("start")?, number("end")?, number("size")?);
        let length = last.checked_sub(first)?.checked_add(1)?;
        (last < size && length < size && length <= MOST_PART).then_some(Part { first, last, size })
    }

    fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// A file of which parts have come.
#[derive(Debug)]
struct Open {
    key: Key,
    /// Time of its last part.
    time: u64,
    /// Bytes that have come from the beginning without a hole.
    next: u64,
    head: Option<Vec<u8>>,
    digests: Option<Box<Digests>>,
    kept: Option<Kept>,
    /// Parts behind a hole, by their first bytes.
    ahead: BTreeMap<u64, Vec<u8>>,
}

impl Open {
    fn new(key: Key, time: u64, sums: Sums) -> Open {
        Open {
            key,
            time,
            next: 0,
            head: sums.magic.then(Vec::new),
            digests: Digests::new(sums),
            kept: sums.kept.then(Kept::default),
            ahead: BTreeMap::new(),
        }
    }

    fn waiting(&self) -> usize {
        self.ahead.values().map(Vec::len).sum()
    }

    /// A part that begins at `first`, of which some may have come before.
    fn add(&mut self, first: u64, bytes: Vec<u8>) {
        if first > self.next {
            let held = self.ahead.entry(first).or_default();
            if held.len() < bytes.len() {
                *held = bytes;
            }
            return;
        }
        self.advance(first, &bytes);
        while let Some(entry) = self.ahead.first_entry()
            && *entry.key() <= self.next
        {
            let (first, bytes) = entry.remove_entry();
            self.advance(first, &bytes);
        }
    }

    fn advance(&mut self, first: u64, bytes: &[u8]) {
        let known = usize::try_from(self.next - first).unwrap_or(usize::MAX);
        let new = bytes.get(known..).unwrap_or_default();
        self.next += new.len() as u64;
        if let Some(head) = &mut self.head {
            let room = MAGIC_HEAD - head.len();
            head.extend_from_slice(new.get(..room).unwrap_or(new));
        }
        if let Some(digests) = &mut self.digests {
            digests.update(new);
        }
        if let Some(kept) = &mut self.kept {
            kept.append(new);
        }
    }

    fn finish(self) -> (File, Option<Kept>) {
        let file = File {
            name: self.key.name,
            direction: Direction::ToClient,
            size: self.key.size,
            whole: true,
            gaps: false,
            magic: self.head.map(|head| magic(&head)),
            sums: self.digests.map_or_else(Vec::new, |d| d.finish()),
            stored: false,
            body: None,
        };
        (file, self.kept)
    }
}

/// Files of one slice.
#[derive(Debug)]
pub(super) struct RangeFiles {
    open: VecDeque<Open>,
    /// Bytes that wait.
    waiting: usize,
    limit: usize,
    /// Nanoseconds after which a file without a new part is forgotten.
    timeout: u64,
}

impl RangeFiles {
    /// At most so many bytes wait.
    pub(super) fn new(limit: usize, timeout: u64) -> RangeFiles {
        RangeFiles {
            open: VecDeque::new(),
            waiting: 0,
            limit,
            timeout,
        }
    }

    fn forget(&mut self, at: usize) {
        if let Some(open) = self.open.remove(at) {
            self.waiting = self.waiting.saturating_sub(open.waiting());
        }
    }

    /// Another part; returns the file that is whole with it.
    fn add(
        &mut self,
        key: Key,
        (part, bytes): (Part, Vec<u8>),
        (time, sums): (u64, Sums),
    ) -> Option<(File, Option<Kept>)> {
        while let Some(first) = self.open.front()
            && first.time.saturating_add(self.timeout) < time
        {
            self.forget(0);
        }
        // The one with the latest part stands last.
        let at = self.open.iter().position(|o| o.key == key);
        let mut open = match at.and_then(|at| self.open.remove(at)) {
            Some(open) => open,
            None => {
                if self.open.len() == MOST_OPEN {
                    self.forget(0);
                }
                Open::new(key, time, sums)
            }
        };
        open.time = time;
        let before = open.waiting();
        open.add(part.first, bytes);
        self.waiting = (self.waiting + open.waiting()).saturating_sub(before);
        if open.next >= open.key.size {
            return Some(open.finish());
        }
        self.open.push_back(open);
        while self.waiting > self.limit && !self.open.is_empty() {
            self.forget(0);
        }
        None
    }
}

/// Takes bytes up to so many.
struct Taken(Vec<u8>);

impl Write for Taken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RangeFiles {
    /// A part of a file is over: returns the file, if it is whole now.
    pub(super) fn part(
        &mut self,
        (client, server): (IpAddr, IpAddr),
        (done, number): (&Transaction, usize),
        kept: Option<&Kept>,
        (time, sums): (u64, Sums),
    ) -> Option<(File, Option<Kept>)> {
        let file = done.files.get(number)?;
        let part = Part::of(done).filter(|p| file.whole && file.size == p.length())?;
        let mut taken = Taken(Vec::new());
        kept?.write_to(&mut taken).ok()?;
        // With the name of the host, but not its port: some clients leave that out.
        let host = done.record.get("hostname").and_then(|host| host.as_str());
        let key = Key {
            client,
            server,
            host: host.unwrap_or_default().to_owned(),
            name: file.name.clone(),
            size: part.size,
        };
        self.add(key, (part, taken.0), (time, sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: Sums = Sums {
        md5: true,
        sha1: false,
        sha256: false,
        magic: false,
        kept: true,
    };

    fn key(size: u64) -> Key {
        let address = IpAddr::from([192, 0, 2, 1]);
        Key {
            client: address,
            server: address,
            host: "a.example".into(),
            name: b"/f".to_vec(),
            size,
        }
    }

    fn part(first: u64, bytes: &[u8], size: u64) -> (Part, Vec<u8>) {
        let last = first + bytes.len() as u64 - 1;
        (Part { first, last, size }, bytes.to_vec())
    }

    /// In any order, and where parts overlap.
    #[test]
    fn parts_become_a_file() {
        let parts: [(u64, &[u8]); 4] = [(0, b"abc"), (2, b"cde"), (6, b"gh"), (4, b"efg")];
        let mut orders = Vec::new();
        for a in 0..4 {
            for b in (0..4).filter(|b| *b != a) {
                for c in (0..4).filter(|c| *c != a && *c != b) {
                    orders.push([a, b, c, 6 - a - b - c]);
                }
            }
        }
        for order in orders {
            let mut files = RangeFiles::new(100, 60);
            let mut whole = None;
            for at in order {
                let (first, bytes) = parts[at];
                assert!(whole.is_none(), "{order:?}");
                whole = files.add(key(8), part(first, bytes, 8), (1, SUMS));
            }
            let (file, kept) = whole.expect("a whole file");
            let mut bytes = Vec::new();
            kept.expect("bytes").write_to(&mut bytes).unwrap();
            assert_eq!((file.size, &bytes[..]), (8, &b"abcdefgh"[..]), "{order:?}");
            assert_eq!(file.sums.len(), 1);
            assert_eq!((files.waiting, files.open.len()), (0, 0));
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut files = RangeFiles::new(100, 60);
        for n in 0..1_000_u64 {
            let mut key = key(1_000);
            key.name = n.to_string().into_bytes();
            assert!(
                files
                    .add(key, part(500, &[7; 30], 1_000), (1, SUMS))
                    .is_none()
            );
            assert!(files.waiting <= 100 && files.open.len() <= MOST_OPEN);
        }
        // Too late.
        assert!(files.add(key(9), part(0, b"x", 9), (100, SUMS)).is_none());
        assert_eq!(files.open.len(), 1);
    }
}

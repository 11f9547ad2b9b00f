//! Calls and answers of ONC RPC (RFC 5531), and what those of NFS (RFC 1094, 1813, 7530) say: handles, names, and where bytes of files are.

use crate::app::bytes::be32;

/// Bytes of a message that are read before those of a file.
pub(super) const HEAD: usize = 2048;
/// Bytes of a handle.
const MOST_HANDLE: usize = 128;
/// Operations of a compound that are looked at.
const MOST_OPERATIONS: usize = 32;

/// Reads values of XDR (RFC 4506) one behind the other.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let number = be32(self.0, 0)?;
        self.bytes(4)?;
        Some(number)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.number()?) << 32 | u64::from(self.number()?))
    }

    /// Bytes behind their length, filled up to a multiple of four.
    fn opaque(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        if length > most {
            return None;
        }
        let bytes = self.bytes(length)?;
        // The last ones of a message may be left out.
        let filled = (4 - length % 4) % 4;
        self.bytes(filled.min(self.0.len()))?;
        Some(bytes)
    }

    fn handle(&mut self, version: u32) -> Option<&'a [u8]> {
        match version {
            2 => self.bytes(32),
            _ => self.opaque(MOST_HANDLE),
        }
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        self.opaque(1024)
    }

    /// Attributes of a file behind a mark that they are there, of version 3.
    fn attributes(&mut self) -> Option<()> {
        if self.number()? != 0 {
            self.bytes(84)?;
        }
        Some(())
    }
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    pub(super) flavor: u32,
    pub(super) machine: Vec<u8>,
    pub(super) user: u32,
    pub(super) group: u32,
}

/// A call of NFS.
pub(super) struct Call<'a> {
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) credentials: Credentials,
    pub(super) arguments: Reader<'a>,
}

impl<'a> Call<'a> {
    /// Reads what is behind the number and the kind of a message; `None`: it is malformed, or of another program.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Call<'a>> {
        let mut r = Reader(bytes);
        if (r.number()?, r.number()?) != (2, 100_003) {
            return None;
        }
        let (version, procedure) = (r.number()?, r.number()?);
        let flavor = r.number()?;
        let mut credentials = Credentials {
            flavor,
            ..Credentials::default()
        };
        let said = r.opaque(400)?;
        if flavor == 1 {
            let mut said = Reader(said);
            said.number()?;
            credentials.machine = said.name()?.to_vec();
            credentials.user = said.number()?;
            credentials.group = said.number()?;
        }
        // The verifier.
        r.number()?;
        r.opaque(400)?;
        matches!(version, 2..=4).then_some(Call {
            version,
            procedure,
            credentials,
            arguments: r,
        })
    }
}

/// What a call is about.
#[derive(Default)]
pub(super) struct About<'a> {
    pub(super) handle: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    /// The new name.
    pub(super) to: Option<&'a [u8]>,
    /// Operations of version 4.
    pub(super) operations: Vec<u32>,
    /// Bytes of a file are read from here, or written to here.
    pub(super) offset: Option<u64>,
    /// They are behind so many bytes that are left, and are so many.
    pub(super) data: Option<(usize, u32)>,
    /// It begins to write what was written so far.
    pub(super) commits: bool,
}

impl<'a> About<'a> {
    /// What arguments say, as far as they are there and known.
    pub(super) fn read(call: &Call<'a>) -> About<'a> {
        let mut about = About::default();
        let mut r = Reader(call.arguments.0);
        match call.version {
            4 => _ = about.compound(call.procedure, &mut r),
            _ => _ = about.simple(call.version, call.procedure, &mut r),
        }
        about
    }

    fn simple(&mut self, version: u32, procedure: u32, r: &mut Reader<'a>) -> Option<()> {
        if procedure == 0 {
            return None;
        }
        self.handle = Some(r.handle(version)?);
        match (version, procedure) {
            // Lookup, create, make a folder, a link, a device; remove both.
            (3, 3 | 8..=13) | (2, 4 | 9 | 10 | 13..=15) => self.name = Some(r.name()?),
            (3, 14) | (2, 11) => {
                self.name = Some(r.name()?);
                r.handle(version)?;
                self.to = Some(r.name()?);
            }
            (3, 6) => self.offset = Some(r.long()?),
            (2, 6) => self.offset = Some(r.number()?.into()),
            (3, 7) => {
                self.offset = Some(r.long()?);
                // A count, and whether to write at once.
                r.bytes(8)?;
                self.data = Some((4, r.number()?));
                self.data = self.data.map(|(_, count)| (r.0.len(), count));
            }
            (2, 8) => {
                // The first is not used, and neither is the count behind it.
                r.number()?;
                self.offset = Some(r.number()?.into());
                r.number()?;
                let count = r.number()?;
                self.data = Some((r.0.len(), count));
            }
            (3, 21) => self.commits = true,
            _ => {}
        }
        Some(())
    }

    /// The operations of a compound, up to the first whose arguments are not known here.
    fn compound(&mut self, procedure: u32, r: &mut Reader<'a>) -> Option<()> {
        if procedure != 1 {
            return None;
        }
        r.opaque(1024)?;
        r.number()?;
        let count = r.number()? as usize;
        for _ in 0..count.min(MOST_OPERATIONS) {
            let operation = r.number()?;
            self.operations.push(operation);
            match operation {
                3 => _ = r.bytes(4)?,
                4 => _ = r.bytes(20)?,
                5 => {
                    r.bytes(12)?;
                    self.commits = true;
                }
                9 => bitmap(r)?,
                10 | 16 | 23 | 24 | 27 | 31 | 32 => {}
                15 | 28 | 33 => self.name = Some(r.name()?),
                22 => self.handle = Some(r.opaque(MOST_HANDLE)?),
                25 => {
                    r.bytes(16)?;
                    self.offset = Some(r.long()?);
                    r.bytes(4)?;
                }
                26 => {
                    r.bytes(24)?;
                    bitmap(r)?;
                }
                29 => {
                    self.name = Some(r.name()?);
                    self.to = Some(r.name()?);
                }
                30 | 44 => _ = r.bytes(if operation == 30 { 8 } else { 16 })?,
                38 => {
                    r.bytes(16)?;
                    self.offset = Some(r.long()?);
                    r.bytes(4)?;
                    let count = r.number()?;
                    self.data = Some((r.0.len(), count));
                    // What follows is behind the bytes of the file.
                    return Some(());
                }
                53 => _ = r.bytes(32)?,
                _ => return Some(()),
            }
        }
        Some(())
    }
}

fn bitmap(r: &mut Reader<'_>) -> Option<()> {
    let words = r.number()? as usize;
    r.bytes(4 * words.min(64))?;
    Some(())
}

/// What an answer says.
#[derive(Default)]
pub(super) struct Answer<'a> {
    /// Of the call.
    pub(super) accepted: bool,
    pub(super) status: Option<u32>,
    /// The handle of what was looked up or made.
    pub(super) handle: Option<&'a [u8]>,
    /// Bytes of a file are behind so many bytes that are left, and are so many.
    pub(super) data: Option<(usize, u32)>,
    /// They are the last ones.
    pub(super) last: bool,
}

impl<'a> Answer<'a> {
    /// Reads what is behind the number and the kind of a message; `None`: it is malformed.
    pub(super) fn read(bytes: &'a [u8], version: u32, procedure: u32) -> Option<Answer<'a>> {
        let mut r = Reader(bytes);
        let mut answer = Answer::default();
        if r.number()? != 0 {
            return Some(answer);
        }
        r.number()?;
        r.opaque(400)?;
        if r.number()? != 0 {
            return Some(answer);
        }
        answer.accepted = true;
        if procedure == 0 {
            return Some(answer);
        }
        let status = r.number()?;
        answer.status = Some(status);
        if status == 0 {
            // What is not there in full is not known.
            let _ = answer.result(version, procedure, &mut r);
        }
        Some(answer)
    }

    fn result(&mut self, version: u32, procedure: u32, r: &mut Reader<'a>) -> Option<()> {
        match (version, procedure) {
            (3, 3) | (2, 4 | 9 | 14) => self.handle = Some(r.handle(version)?),
            (3, 8..=11) if r.number()? != 0 => self.handle = Some(r.handle(version)?),
            (3, 6) => {
                r.attributes()?;
                r.number()?;
                self.last = r.number()? != 0;
                let count = r.number()?;
                self.data = Some((r.0.len(), count));
            }
            (2, 6) => {
                r.bytes(68)?;
                let count = r.number()?;
                self.data = Some((r.0.len(), count));
            }
            _ => {}
        }
        Some(())
    }
}

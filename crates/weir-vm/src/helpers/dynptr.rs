//! Dynptrs at run time: 16 bytes that describe memory, as the kernel lays them out.
//!
//! Owns the layout (`struct bpf_dynptr_kern`: address, size with kind and flags in its upper byte, offset) and the bounds of
//! every access. A dynptr of a packet has the context's address, and finds its bytes anew each time. Invariant: a dynptr
//! that nobody made is one without memory.

use super::{bad, fault};
use crate::catalogue::DynptrKind;
use crate::errno::{E2BIG, EINVAL, ERANGE};
use crate::interp::{Registers, Run, Step};

/// Bytes of a `struct bpf_dynptr`.
const BYTES: usize = 16;
/// Bytes described at most (`DYNPTR_MAX_SIZE`).
const SIZE_MAX: u32 = (1 << 24) - 1;
const KIND_SHIFT: u32 = 28;
const READ_ONLY: u32 = 1 << 31;
const NULL: Dynptr = Dynptr {
    data: 0,
    size: 0,
    kind: None,
    read_only: false,
    offset: 0,
};

/// What a dynptr describes.
#[derive(Clone, Copy, Debug)]
struct Dynptr {
    data: u64,
    size: u32,
    kind: Option<DynptrKind>,
    read_only: bool,
    offset: u32,
}

impl Dynptr {
    fn new(kind: DynptrKind, data: u64, size: u32) -> Dynptr {
        Dynptr {
            data,
            size,
            kind: Some(kind),
            read_only: false,
            offset: 0,
        }
    }

    /// Whether `len` bytes at an offset are described.
    fn holds(&self, offset: u32, len: u32) -> bool {
        len <= self.size && offset <= self.size - len
    }

    /// Error number of a write of so many bytes that is none.
    fn refuses_write(&self, offset: u32, len: u32) -> Option<i64> {
        if self.data == 0 || self.read_only {
            return Some(EINVAL);
        }
        (!self.holds(offset, len)).then_some(E2BIG)
    }

    fn is_packet(&self) -> bool {
        self.kind.is_some_and(DynptrKind::is_packet)
    }
}

impl Run<'_> {
    /// Helpers 197 to 203.
    pub(super) fn dynptr_helper(&mut self, number: u32, regs: &mut Registers) -> Step<u64> {
        Ok(match number {
            197 => {
                let size = regs[2] as u32;
                self.memory.bytes(regs[1], size as usize).map_err(fault)?;
                let made = if size > SIZE_MAX {
                    Err(E2BIG)
                } else if regs[3] != 0 {
                    Err(EINVAL)
                } else {
                    Ok(Dynptr::new(DynptrKind::Local, regs[1], size))
                };
                self.make(regs[4], made)?
            }
            198 => self.reserve_dynptr(regs)?,
            199 | 200 => {
                let dynptr = self.dynptr(regs[1])?;
                if dynptr.data != 0 {
                    let mut call = *regs;
                    call[1] = dynptr.data;
                    let number = if number == 199 { 132 } else { 133 };
                    self.ringbuf_finish(number, &call, number == 132)?;
                }
                self.put(regs[1], NULL)?;
                0
            }
            201 => {
                let (dynptr, len) = (self.dynptr(regs[3])?, regs[2] as u32);
                if dynptr.data == 0 || regs[5] != 0 {
                    EINVAL as u64
                } else {
                    match self.read_dynptr(&dynptr, regs[4] as u32, len)? {
                        Err(errno) => errno as u64,
                        Ok(bytes) => {
                            let target = self.memory.bytes_mut(regs[1], len as usize);
                            target.map_err(fault)?.copy_from_slice(&bytes);
                            0
                        }
                    }
                }
            }
            202 => {
                let (dynptr, len) = (self.dynptr(regs[1])?, regs[4] as u32 as usize);
                let bytes = self.memory.bytes(regs[3], len).map_err(fault)?.to_vec();
                if dynptr.is_packet() && self.memory.skb.is_some() {
                    self.memory.invalidate_packet();
                } else if regs[5] != 0 {
                    return Ok(EINVAL as u64);
                }
                self.write_dynptr(&dynptr, regs[2] as u32, &bytes)?
            }
            203 => {
                let dynptr = self.dynptr(regs[1])?;
                let hidden = dynptr.is_packet() || dynptr.read_only || dynptr.data == 0;
                if hidden || !dynptr.holds(regs[2] as u32, regs[3] as u32) {
                    0
                } else {
                    place(&dynptr, regs[2] as u32)
                }
            }
            _ => return Err(bad(number, 1, regs, "no helper of dynptrs")),
        })
    }

    /// Kernel functions of dynptrs; nothing for others.
    pub(super) fn dynptr_function(&mut self, name: &str, regs: &Registers) -> Step<Option<u64>> {
        let packet = |kind| {
            (
                kind,
                self.memory.frame.as_deref().map_or(0, |f| f.len() as u32),
            )
        };
        let from = match name {
            "dynptr_from_xdp" => Some(packet(DynptrKind::Xdp)),
            "dynptr_from_skb" => Some(packet(DynptrKind::Skb)),
            _ => None,
        };
        if let Some((kind, size)) = from {
            self.context(0, regs)?;
            let made = if regs[2] == 0 {
                Ok(Dynptr::new(kind, regs[1], size))
            } else {
                Err(EINVAL)
            };
            return self.make(regs[3], made).map(Some);
        }
        let known = matches!(
            name,
            "dynptr_slice"
                | "dynptr_slice_rdwr"
                | "dynptr_adjust"
                | "dynptr_is_null"
                | "dynptr_is_rdonly"
                | "dynptr_size"
                | "dynptr_clone"
                | "dynptr_copy"
                | "dynptr_memset"
        );
        if !known {
            return Ok(None);
        }
        let dynptr = self.dynptr(regs[1])?;
        let null = dynptr.data == 0;
        Ok(Some(match name {
            "dynptr_is_null" => u64::from(null),
            "dynptr_is_rdonly" => u64::from(!null && dynptr.read_only),
            "dynptr_size" if null => u64::from(EINVAL as u32),
            "dynptr_size" => u64::from(dynptr.size),
            "dynptr_adjust" => {
                let (start, end) = (regs[2] as u32, regs[3] as u32);
                let errno = if null || start > end {
                    EINVAL
                } else if end > dynptr.size {
                    ERANGE
                } else {
                    let adjusted = Dynptr {
                        size: end - start,
                        offset: dynptr.offset.wrapping_add(start),
                        ..dynptr
                    };
                    self.put(regs[1], adjusted)?;
                    0
                };
                u64::from(errno as u32)
            }
            "dynptr_clone" => {
                self.put(regs[2], if null { NULL } else { dynptr })?;
                u64::from(if null { EINVAL as u32 } else { 0 })
            }
            "dynptr_slice" | "dynptr_slice_rdwr" => {
                let writes = name.ends_with("rdwr");
                self.slice(&dynptr, writes, regs)?
            }
            "dynptr_memset" => {
                let (offset, len) = (regs[2] as u32, regs[3] as u32);
                // Before anything is made of the length that the program gives.
                let errno = match dynptr.refuses_write(offset, len) {
                    Some(errno) => errno as u64,
                    None => {
                        let bytes = vec![regs[4] as u8; len as usize];
                        self.write_dynptr(&dynptr, offset, &bytes)?
                    }
                };
                u64::from(errno as u32)
            }
            _ => {
                let source = self.dynptr(regs[3])?;
                let errno = if null || source.data == 0 {
                    EINVAL as u64
                } else {
                    match self.read_dynptr(&source, regs[4] as u32, regs[5] as u32)? {
                        Err(errno) => errno as u64,
                        Ok(bytes) => self.write_dynptr(&dynptr, regs[2] as u32, &bytes)?,
                    }
                };
                u64::from(errno as u32)
            }
        }))
    }

    /// A pointer to r4 bytes at offset r2: where they lie, or in the buffer r3 that they are copied to.
    fn slice(&mut self, dynptr: &Dynptr, writes: bool, regs: &Registers) -> Step<u64> {
        let (offset, len) = (regs[2] as u32, regs[4] as u32);
        if dynptr.data == 0 || (writes && dynptr.read_only) || !dynptr.holds(offset, len) {
            return Ok(0);
        }
        if !dynptr.is_packet() {
            return Ok(place(dynptr, offset));
        }
        let start = dynptr.offset as usize + offset as usize;
        if let Some(pointer) = self.memory.packet_pointer(start, len as usize) {
            return Ok(pointer);
        }
        if regs[3] == 0 {
            return Ok(0);
        }
        match self.read_dynptr(dynptr, offset, len)? {
            Err(_) => Ok(0),
            Ok(bytes) => {
                let buffer = self.memory.bytes_mut(regs[3], len as usize);
                buffer.map_err(fault)?.copy_from_slice(&bytes);
                Ok(regs[3])
            }
        }
    }

    fn reserve_dynptr(&mut self, regs: &mut Registers) -> Step<u64> {
        if regs[3] != 0 {
            return self.make(regs[4], Err(EINVAL));
        }
        let size = regs[2] as u32;
        if size > SIZE_MAX {
            return self.make(regs[4], Err(E2BIG));
        }
        let record = self.ringbuf_reserve(regs)?;
        let made = if record == 0 {
            Err(EINVAL)
        } else {
            Ok(Dynptr::new(DynptrKind::Record, record, size))
        };
        self.make(regs[4], made)
    }

    /// Bytes at an offset, or the kernel's error number.
    fn read_dynptr(&self, dynptr: &Dynptr, offset: u32, len: u32) -> Step<Result<Vec<u8>, i64>> {
        if !dynptr.holds(offset, len) {
            return Ok(Err(E2BIG));
        }
        let start = dynptr.offset as usize + offset as usize;
        if dynptr.is_packet() {
            let data = self.memory.frame.as_deref().map_or(&[][..], |f| f.data());
            let part = data.get(start..start + len as usize);
            return Ok(part.map(<[u8]>::to_vec).ok_or(crate::errno::EFAULT));
        }
        let bytes = self.memory.bytes(place(dynptr, offset), len as usize);
        Ok(Ok(bytes.map_err(fault)?.to_vec()))
    }

    /// Writes bytes at an offset; 0 or the kernel's error number.
    fn write_dynptr(&mut self, dynptr: &Dynptr, offset: u32, bytes: &[u8]) -> Step<u64> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(errno) = dynptr.refuses_write(offset, len) {
            return Ok(errno as u64);
        }
        let start = dynptr.offset as usize + offset as usize;
        if dynptr.is_packet() {
            let frame = self.memory.frame.as_deref_mut();
            let target = frame.and_then(|f| f.data_mut().get_mut(start..start + bytes.len()));
            return Ok(match target {
                Some(target) => {
                    target.copy_from_slice(bytes);
                    0
                }
                None => crate::errno::EFAULT as u64,
            });
        }
        let target = self.memory.bytes_mut(place(dynptr, offset), bytes.len());
        target.map_err(fault)?.copy_from_slice(bytes);
        Ok(0)
    }

    /// Writes a new dynptr, or one without memory and the error number.
    fn make(&mut self, address: u64, made: Result<Dynptr, i64>) -> Step<u64> {
        let (dynptr, result) = match made {
            Ok(dynptr) => (dynptr, 0),
            Err(errno) => (NULL, errno as u64),
        };
        self.put(address, dynptr)?;
        Ok(result)
    }

    fn dynptr(&self, address: u64) -> Step<Dynptr> {
        let bytes = self.memory.bytes(address, BYTES).map_err(fault)?;
        let word = |at: usize| {
            let bytes = bytes.get(at..).and_then(|b| b.first_chunk::<4>());
            bytes.map_or(0, |b| u32::from_le_bytes(*b))
        };
        let size = word(8);
        Ok(Dynptr {
            data: u64::from(word(0)) | u64::from(word(4)) << 32,
            size: size & SIZE_MAX,
            kind: DynptrKind::from_number((size & !READ_ONLY) >> KIND_SHIFT),
            read_only: size & READ_ONLY != 0,
            offset: word(12),
        })
    }

    fn put(&mut self, address: u64, dynptr: Dynptr) -> Step<()> {
        let kind = dynptr.kind.map_or(0, |kind| kind as u32);
        let read_only = if dynptr.read_only { READ_ONLY } else { 0 };
        let size = dynptr.size | kind << KIND_SHIFT | read_only;
        let target = self.memory.bytes_mut(address, BYTES).map_err(fault)?;
        let words = dynptr.data.to_le_bytes().into_iter();
        let words = words
            .chain(size.to_le_bytes())
            .chain(dynptr.offset.to_le_bytes());
        for (to, from) in target.iter_mut().zip(words) {
            *to = from;
        }
        Ok(())
    }
}

/// Address of an offset of a dynptr's own memory.
fn place(dynptr: &Dynptr, offset: u32) -> u64 {
    let start = u64::from(dynptr.offset) + u64::from(offset);
    dynptr.data.wrapping_add(start)
}

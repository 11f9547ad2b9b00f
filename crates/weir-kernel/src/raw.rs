//! Programs and maps without an object: bare instructions handed to the kernel's verifier, and its answer.
//!
//! For comparing the kernel with the user engine on programs nobody compiled. A refusal is a value here, not an error.
//! Instructions name maps by index (16-byte loads with source 1 or 2), which this module replaces by descriptors.
//! Invariant: nothing outlives the values returned; nothing is attached or pinned.

#![expect(unsafe_code, reason = "program and map calls take raw pointers")]

use std::ffi::{CStr, c_char};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use crate::KernelError;
use crate::sys;

/// Room for the verifier's log.
const LOG_BYTES: usize = 1 << 18;
/// Bytes a test run may add to a packet.
const GROWTH: usize = 256 + 4096;
/// Opcode of the 16-byte load.
const LDDW: u8 = 0x18;

/// What a map is created from; numbers as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMapSpec {
    /// `BPF_MAP_TYPE_` number.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of one CPU's value.
    pub value_size: u32,
    /// Entries; bytes of a ring buffer.
    pub max_entries: u32,
    /// Creation flags.
    pub flags: u32,
}

/// A map of the kernel.
#[derive(Debug)]
pub struct RawMap {
    fd: OwnedFd,
    spec: RawMapSpec,
    /// Bytes user space reads and writes for one element.
    value_bytes: usize,
}

impl RawMap {
    /// Creates an empty map.
    pub fn create(spec: RawMapSpec) -> Result<RawMap, KernelError> {
        sys::silence_libbpf();
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: mem::size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: spec.flags,
            ..Default::default()
        };
        // SAFETY: `opts` is valid and zeroed beyond its flags; the name is a C string.
        let fd = sys::own_fd(unsafe {
            libbpf_sys::bpf_map_create(
                spec.kind,
                c"raw".as_ptr(),
                spec.key_size,
                spec.value_size,
                spec.max_entries,
                &opts,
            )
        })
        .map_err(|e| KernelError::sys(format!("create a map of kind {}", spec.kind), e))?;
        let value = spec.value_size as usize;
        let percpu = matches!(
            spec.kind,
            libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
                | libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH
                | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
        );
        let value_bytes = if percpu {
            // SAFETY: no pointers.
            let cpus = sys::check(unsafe { libbpf_sys::libbpf_num_possible_cpus() })
                .map_err(|e| KernelError::sys("count possible CPUs", e))?;
            value.next_multiple_of(8) * cpus as usize
        } else {
            value
        };
        Ok(RawMap {
            fd,
            spec,
            value_bytes,
        })
    }

    /// What the map was created from.
    pub fn spec(&self) -> RawMapSpec {
        self.spec
    }

    /// Bytes of a value as user space sees it: of per-CPU maps one 8-byte-aligned block for each possible CPU.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The value of a key, if there is one.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KernelError> {
        self.check_key(key)?;
        let mut value = vec![0u8; self.value_bytes];
        // SAFETY: `key` has the map's key size and `value` what the kernel writes for one element.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        };
        match sys::check(ret) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(KernelError::sys("look up in a map", e)),
        }
    }

    /// Sets the value of a key.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), KernelError> {
        self.check_key(key)?;
        if value.len() != self.value_bytes {
            return Err(KernelError::WrongSize {
                what: "value".to_owned(),
                want: self.value_bytes,
                got: value.len(),
            });
        }
        // SAFETY: `key` has the map's key size and `value` the size the kernel reads for one element.
        let ret = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_ptr().cast(),
                0,
            )
        };
        sys::check(ret)
            .map(drop)
            .map_err(|e| KernelError::sys("update a map", e))
    }

    /// Removes a key; false if it was not there.
    pub fn delete(&self, key: &[u8]) -> Result<bool, KernelError> {
        self.check_key(key)?;
        // SAFETY: `key` has the map's key size.
        let ret =
            unsafe { libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) };
        match sys::check(ret) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(KernelError::sys("delete from a map", e)),
        }
    }

    /// All keys, in no order.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, KernelError> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let previous = keys.last().map_or(ptr::null(), |key| key.as_ptr().cast());
            let mut next = vec![0u8; self.spec.key_size as usize];
            // SAFETY: `previous` is null or a key, and `next` has room for one.
            let ret = unsafe {
                libbpf_sys::bpf_map_get_next_key(
                    self.fd.as_raw_fd(),
                    previous,
                    next.as_mut_ptr().cast(),
                )
            };
            match sys::check(ret) {
                Ok(_) => keys.push(next),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(keys),
                Err(e) => return Err(KernelError::sys("list the keys of a map", e)),
            }
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), KernelError> {
        let want = self.spec.key_size as usize;
        if key.len() == want {
            return Ok(());
        }
        Err(KernelError::WrongSize {
            what: "key".to_owned(),
            want,
            got: key.len(),
        })
    }
}

/// Why the kernel did not take a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error number, positive.
    pub errno: i32,
    /// The verifier's log, its end if it is long.
    pub log: String,
}

impl Refusal {
    /// The line that says what is wrong: the last one before the figures.
    pub fn line(&self) -> &str {
        let figures = ["processed ", "stack depth ", "verification time "];
        let said = |line: &&str| {
            !line.is_empty() && !figures.iter().any(|figure| line.starts_with(figure))
        };
        self.log.lines().rev().find(said).unwrap_or("no log")
    }
}

/// A program of the kernel that is attached to nothing.
#[derive(Debug)]
pub struct RawProgram {
    fd: OwnedFd,
    log: String,
}

impl RawProgram {
    /// Asks the kernel to verify XDP instructions (`code`, eight bytes each); `verbose` makes it log every step.
    ///
    /// # Errors
    /// [`KernelError`] if it cannot be asked: no permission, or instructions that name no map. A program that the
    /// verifier refuses is the inner error.
    pub fn load_xdp(
        code: &[u8],
        maps: &[RawMap],
        verbose: bool,
    ) -> Result<Result<RawProgram, Refusal>, KernelError> {
        RawProgram::load(libbpf_sys::BPF_PROG_TYPE_XDP, code, maps, verbose)
    }

    /// As [`RawProgram::load_xdp`], for instructions of a tc program (`sched_cls`).
    ///
    /// # Errors
    /// As [`RawProgram::load_xdp`].
    pub fn load_tc(
        code: &[u8],
        maps: &[RawMap],
        verbose: bool,
    ) -> Result<Result<RawProgram, Refusal>, KernelError> {
        RawProgram::load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, code, maps, verbose)
    }

    fn load(
        kind: libbpf_sys::bpf_prog_type,
        code: &[u8],
        maps: &[RawMap],
        verbose: bool,
    ) -> Result<Result<RawProgram, Refusal>, KernelError> {
        sys::silence_libbpf();
        let insns = linked(code, maps)?;
        let mut log = vec![0u8; LOG_BYTES];
        // Level 4 prints figures and why a program is refused, level 2 every step.
        let level = if verbose { 2 | 4 } else { 4 };
        let mut opts = libbpf_sys::bpf_prog_load_opts {
            sz: mem::size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            attempts: 1,
            log_level: level,
            log_size: log.len() as u32,
            log_buf: log.as_mut_ptr().cast::<c_char>(),
            ..Default::default()
        };
        // SAFETY: `insns` is valid for its length, the strings are C strings, and `opts` states the log's size.
        let ret = unsafe {
            libbpf_sys::bpf_prog_load(
                kind,
                c"raw".as_ptr(),
                c"GPL".as_ptr(),
                insns.as_ptr(),
                insns.len() as libbpf_sys::size_t,
                &mut opts,
            )
        };
        let log = CStr::from_bytes_until_nul(&log).map_or_else(
            |_| String::from_utf8_lossy(&log).into_owned(),
            |text| text.to_string_lossy().into_owned(),
        );
        match sys::own_fd(ret) {
            Ok(fd) => Ok(Ok(RawProgram { fd, log })),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) && log.is_empty() => {
                Err(KernelError::sys("load a program", e))
            }
            Err(e) => Ok(Err(Refusal {
                errno: e.raw_os_error().unwrap_or_default(),
                log,
            })),
        }
    }

    /// Instructions the verifier walked.
    pub fn processed(&self) -> Option<u64> {
        let figures = self
            .log
            .lines()
            .find_map(|l| l.strip_prefix("processed "))?;
        figures.split(' ').next()?.parse().ok()
    }

    /// The verifier's log.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Runs the program once over a frame of 14 bytes or more; yields r0 and the frame afterwards.
    pub fn test_run(&self, data: &[u8]) -> Result<(u32, Vec<u8>), KernelError> {
        let mut out: Vec<u8> = Vec::with_capacity(data.len() + GROWTH);
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: mem::size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: data.as_ptr().cast(),
            data_size_in: data.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.capacity() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: both buffers are valid for the sizes stated beside them.
        let ret = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.fd.as_raw_fd(), &mut opts) };
        sys::check(ret).map_err(|e| {
            KernelError::sys(format!("test-run on a frame of {} bytes", data.len()), e)
        })?;
        let written = (opts.data_size_out as usize).min(out.capacity());
        // SAFETY: the kernel wrote `data_size_out` bytes from the start.
        unsafe { out.set_len(written) };
        Ok((opts.retval, out))
    }
}

/// The instructions with descriptors in place of map indices.
fn linked(code: &[u8], maps: &[RawMap]) -> Result<Vec<libbpf_sys::bpf_insn>, KernelError> {
    let invalid = |why: String| KernelError::sys(why, io::Error::from_raw_os_error(libc::EINVAL));
    let (slots, rest) = code.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(invalid(format!(
            "read {} bytes as instructions",
            code.len()
        )));
    }
    let mut second_half = false;
    let mut insns = Vec::with_capacity(slots.len());
    for slot in slots {
        let [opcode, registers, a, b, c, d, e, f] = *slot;
        let mut imm = i32::from_le_bytes([c, d, e, f]);
        let source = registers >> 4;
        let load = opcode == LDDW && !second_half;
        if load && matches!(source, 1 | 2) {
            let map = usize::try_from(imm).ok().and_then(|index| maps.get(index));
            let map = map.ok_or_else(|| invalid(format!("find map {imm}")))?;
            imm = map.fd.as_raw_fd();
        }
        second_half = load;
        let mut insn = libbpf_sys::bpf_insn {
            code: opcode,
            off: i16::from_le_bytes([a, b]),
            imm,
            ..Default::default()
        };
        insn.set_dst_reg(registers & 15);
        insn.set_src_reg(source);
        insns.push(insn);
    }
    Ok(insns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(opcode: u8, registers: u8, off: i16, imm: i32) -> [u8; 8] {
        let [a, b] = off.to_le_bytes();
        let [c, d, e, f] = imm.to_le_bytes();
        [opcode, registers, a, b, c, d, e, f]
    }

    #[test]
    fn instructions_that_name_no_map_are_told() {
        let load = [insn(LDDW, 0x11, 0, 3), [0; 8]].concat();
        let error = linked(&load, &[]).expect_err("there is no map 3");
        assert!(error.to_string().contains("map 3"), "{error}");
        assert!(linked(&load[..12], &[]).is_err());
    }

    #[test]
    fn a_refusal_is_told_by_its_last_words() {
        let refusal = Refusal {
            errno: 13,
            log: "0: (95) exit\nR0 !read_ok\nverification time 3 usec\nstack depth 0\nprocessed 1 insns\n".to_owned(),
        };
        assert_eq!(refusal.line(), "R0 !read_ok");
    }
}

//! A verified program and its maps: reading and writing them, draining ring
//! buffers, running the program on test frames, attaching it.
//!
//! Keys and values are bytes whose sizes are checked against the object before
//! the kernel sees a pointer. Invariant: the maps live as long as the program
//! does, or longer where another program shares them.

#![expect(unsafe_code, reason = "map and test-run calls take raw pointers")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use libbpf_rs::{AsRawLibbpf, MapCore, Object};

use crate::KernelError;
use crate::error::near_names;
use crate::link::{Direction, Link, XdpMode};
use crate::note::{self, Note};
use crate::perf::PerfReader;
use crate::ring::{EventRing, Ring};
use crate::sys;
use crate::view::MmapArray;

/// Shortest frame that the kernel's test run accepts: an Ethernet header.
pub const TEST_RUN_MIN: usize = 14;
/// Longest frame for which the whole packet is linear, as seen by a program;
/// of longer ones the program sees this many bytes and reaches the rest with
/// `bpf_xdp_load_bytes` (and only an `xdp.frags` program gets them at all).
pub const TEST_RUN_LINEAR: usize = 3520;
/// Longest frame that weir feeds to a test run: an IP packet of 65,535 bytes
/// behind an Ethernet header. All of it comes back; the program's own byte
/// helpers reach offsets up to 65,535 only.
pub const TEST_RUN_MAX: usize = 65_549;
/// Bytes a program may add: 256 of headroom, and the tail of the last page.
const TEST_RUN_GROWTH: usize = 256 + 4096;
/// Longest frame that a test run of a tc program takes on every kernel of weir's: a page with the kernel's own room in it.
pub const TC_TEST_RUN_MAX: usize = 3_400;
/// Where a program is made to run, as its section in the object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver or at the start of the stack, on receive.
    Xdp,
    /// At the traffic control layer, on receive or on transmit.
    Tc,
}

/// How large a map's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSizes {
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value; of one CPU's value in a per-CPU map.
    pub value: usize,
    /// Entries the map holds at most.
    pub entries: u32,
}

/// How a batch of updates reached the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// In one system call.
    Whole,
    /// Entry by entry, because this kernel or map type has no batch operation.
    OneByOne,
}

/// Where a test-run packet claims to come from.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestCtx {
    /// `ingress_ifindex`: 0, or an interface; of XDP one that exists in the current
    /// namespace, the kernel refuses others.
    pub ingress_ifindex: u32,
    /// `xdp_md.rx_queue_index`: below the number of queues of that interface;
    /// 0 if there is none.
    pub rx_queue: u32,
    /// XDP only: how many of the bytes given are metadata, which lies in front of the frame: a multiple of 4, at most 32.
    pub metadata: u32,
    /// tc only: `gso_size` and `gso_segs` of the socket buffer, for what a sender or a receiver has put together.
    pub gso: Option<(u32, u32)>,
    /// tc only, Linux 6.11 and later (else EINVAL): the socket buffer carries the sum of the bytes behind its Ethernet header, as some devices
    /// deliver it (CHECKSUM_COMPLETE), and the run fails with EBADMSG if the program leaves another sum than that of the bytes.
    pub checksum_complete: bool,
}

/// What a test run answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestOutcome {
    /// The program's return value: an `xdp_action`, or of a tc program a `TC_ACT_*`.
    pub retval: u32,
    /// How many of the bytes that came back are metadata in front of the frame.
    pub metadata: usize,
    /// Time inside the program as the kernel measured it; coarse for one run.
    pub duration: Duration,
}

/// Facts about a loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The kernel's number for it.
    pub id: u32,
    /// Name, cut to 15 bytes by the kernel.
    pub name: String,
    /// Hash of the instructions.
    pub tag: [u8; 8],
    /// Instructions after the verifier's rewriting.
    pub xlated_insns: u32,
    /// Bytes of machine code; 0 if the JIT is off.
    pub jited_len: u32,
    /// Instructions the verifier walked; deterministic for one kernel and object.
    pub verified_insns: u32,
    /// When it was loaded, nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub loaded_ns: u64,
    /// How often it ran while the kernel counted that (`kernel.bpf_stats_enabled`); 0 if it never did.
    pub runs: u64,
    /// Nanoseconds of those runs, those of the programs that it called included.
    pub run_time_ns: u64,
}

/// A verified program and its maps.
pub struct LoadedProgram {
    /// What keeps the descriptors of the program and its maps open: the object they were loaded from ...
    _object: Option<Object>,
    /// ... or they themselves, where another process loaded them.
    _adopted: Vec<OwnedFd>,
    name: String,
    fd: i32,
    hook: Hook,
    maps: HashMap<String, MapShape>,
    rings: HashMap<String, Ring>,
    perfs: HashMap<String, PerfReader>,
    /// What a program of another process carries.
    notes: Vec<Note>,
    cpus: usize,
}

#[derive(Clone, Copy, Debug)]
struct MapShape {
    fd: i32,
    kind: u32,
    key: usize,
    value: usize,
    entries: u32,
}

impl MapShape {
    /// The map's descriptor, borrowed from the program that owns it.
    fn fd(self, _owner: &LoadedProgram) -> BorrowedFd<'_> {
        // SAFETY: `_owner` keeps the descriptor open for the borrow.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn is_percpu(self) -> bool {
        matches!(
            self.kind,
            libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
                | libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH
                | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
        )
    }

    /// Bytes the kernel reads or writes for one value.
    fn value_bytes(self, cpus: usize) -> usize {
        if self.is_percpu() {
            self.value.next_multiple_of(8) * cpus
        } else {
            self.value
        }
    }
}

impl std::fmt::Debug for LoadedProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedProgram")
            .field("name", &self.name)
            .field("maps", &self.maps)
            .finish_non_exhaustive()
    }
}

impl AsFd for LoadedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `self` keeps the descriptor open for the borrow.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl LoadedProgram {
    pub(crate) fn new(object: Object, name: &str) -> Result<Self, KernelError> {
        let (fd, hook) = object
            .progs_mut()
            .find(|p| p.name().to_str() == Some(name))
            .map(|p| {
                let hook = match p.prog_type() {
                    libbpf_rs::ProgramType::SchedCls => Hook::Tc,
                    _ => Hook::Xdp,
                };
                (p.as_fd().as_raw_fd(), hook)
            })
            .ok_or_else(|| KernelError::MissingProgram {
                program: name.to_owned(),
                near: Vec::new(),
            })?;
        let mut maps = HashMap::new();
        for m in object.maps() {
            let raw = m.as_libbpf_object().as_ptr();
            // SAFETY: the map belongs to `object`, which is alive; these only read its description.
            let (fd, kind, key, value, entries) = unsafe {
                (
                    libbpf_sys::bpf_map__fd(raw),
                    libbpf_sys::bpf_map__type(raw),
                    libbpf_sys::bpf_map__key_size(raw),
                    libbpf_sys::bpf_map__value_size(raw),
                    libbpf_sys::bpf_map__max_entries(raw),
                )
            };
            let shape = MapShape {
                fd,
                kind,
                key: key as usize,
                value: value as usize,
                entries,
            };
            maps.insert(section_name(&m.name().to_string_lossy()), shape);
        }
        Ok(Self {
            _object: Some(object),
            _adopted: Vec::new(),
            name: name.to_owned(),
            fd,
            hook,
            maps,
            rings: HashMap::new(),
            perfs: HashMap::new(),
            notes: Vec::new(),
            cpus: sys::possible_cpus()?,
        })
    }

    /// A program that another process loaded, with the maps it uses and the notes it carries.
    pub(crate) fn adopt(program: OwnedFd) -> Result<Self, KernelError> {
        let failed = |e| KernelError::sys("look at a program that was left behind", e);
        let info = sys::program_info(program.as_fd()).map_err(failed)?;
        let hook = match info.type_ {
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS => Hook::Tc,
            _ => Hook::Xdp,
        };
        let name: Vec<u8> = info.name.iter().map(|c| *c as u8).collect();
        let mut adopted = Self {
            _object: None,
            name: sys::text_until_nul(&name),
            fd: program.as_raw_fd(),
            hook,
            maps: HashMap::new(),
            rings: HashMap::new(),
            perfs: HashMap::new(),
            notes: Vec::new(),
            cpus: sys::possible_cpus()?,
            _adopted: Vec::new(),
        };
        for id in sys::map_ids(program.as_fd()).map_err(failed)? {
            let fd = sys::map_by_id(id).map_err(failed)?;
            let info = sys::map_info(fd.as_fd()).map_err(failed)?;
            let name: Vec<u8> = info.name.iter().map(|c| *c as u8).collect();
            let name = sys::text_until_nul(&name);
            if name == note::NAME {
                let len = info.value_size as usize * info.max_entries as usize;
                adopted.notes.push(Note::open(fd, len)?);
                continue;
            }
            let shape = MapShape {
                fd: fd.as_raw_fd(),
                kind: info.type_,
                key: info.key_size as usize,
                value: info.value_size as usize,
                entries: info.max_entries,
            };
            adopted.maps.insert(section_name(&name), shape);
            adopted._adopted.push(fd);
        }
        adopted._adopted.push(program);
        Ok(adopted)
    }

    /// A program of whatever process by the kernel's number for it, with the maps it uses, by the names the kernel has (15 bytes).
    pub fn by_id(id: u32) -> Result<Self, KernelError> {
        let fd = sys::program_by_id(id)
            .map_err(|e| KernelError::sys(format!("open program {id}"), e))?;
        Self::adopt(fd)
    }

    /// What the program carries, if another process loaded it.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The kernel's number for a map: programs that share it name the same.
    pub fn map_id(&self, map: &str) -> Result<u32, KernelError> {
        let shape = self.map(map)?;
        sys::map_info(shape.fd(self))
            .map(|info| info.id)
            .map_err(|e| KernelError::sys(format!("inspect map {map}"), e))
    }

    /// The hook it was compiled for.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// The program's name in its object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the maps, sorted; sections appear as `.rodata`, `.bss`.
    pub fn map_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.maps.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Values each element of a per-CPU map has.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Sizes of a map as its object declares them.
    pub fn map_sizes(&self, map: &str) -> Result<MapSizes, KernelError> {
        let shape = self.map(map)?;
        Ok(MapSizes {
            key: shape.key,
            value: shape.value,
            entries: shape.entries,
        })
    }

    /// The value under `key`, `None` if absent. Per-CPU maps are read with
    /// [`Self::lookup_percpu`].
    pub fn lookup(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, KernelError> {
        let shape = self.map(map)?;
        check_size(|| format!("a key of map {map}"), shape.key, key.len())?;
        let mut value = vec![0u8; shape.value_bytes(self.cpus)];
        // SAFETY: `key` has the map's key size, `value` what the kernel writes for one lookup.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                shape.fd,
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        };
        match sys::check(ret) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(KernelError::sys(format!("read map {map}"), e)),
        }
    }

    /// The values under `key`, one per possible CPU; empty if the key is absent.
    pub fn lookup_percpu(&self, map: &str, key: &[u8]) -> Result<Vec<Vec<u8>>, KernelError> {
        let shape = self.map(map)?;
        let Some(all) = self.lookup(map, key)? else {
            return Ok(Vec::new());
        };
        if !shape.is_percpu() {
            return Ok(vec![all]);
        }
        Ok(all
            .chunks_exact(shape.value.next_multiple_of(8).max(1))
            .map(|one| one[..shape.value].to_vec())
            .collect())
    }

    /// Stores `value` under `key`. `flags`: 0 any, 1 only new, 2 only existing.
    ///
    /// For a per-CPU map `value` is either one value, stored for every CPU, or
    /// the values of all CPUs, each padded to 8 bytes.
    pub fn update(
        &self,
        map: &str,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), KernelError> {
        let shape = self.map(map)?;
        check_size(|| format!("a key of map {map}"), shape.key, key.len())?;
        let value = self.widened(map, shape, value)?;
        // SAFETY: key and value have the sizes that the kernel reads (checked above).
        let ret = unsafe {
            libbpf_sys::bpf_map_update_elem(
                shape.fd,
                key.as_ptr().cast(),
                value.as_ptr().cast(),
                flags,
            )
        };
        sys::check(ret)
            .map(drop)
            .map_err(|e| write_error(map, shape, e))
    }

    /// Stores many entries: `keys` and `values` are packed back to back. One value for an element of a per-CPU map becomes that of every CPU.
    /// Returns whether the kernel took them in one call.
    pub fn update_batch(
        &self,
        map: &str,
        keys: &[u8],
        values: &[u8],
    ) -> Result<Batch, KernelError> {
        let shape = self.map(map)?;
        let n = keys.len() / shape.key.max(1);
        let one_by_one = |width: usize| -> Result<Batch, KernelError> {
            let keys = keys.chunks_exact(shape.key.max(1));
            for (key, value) in keys.zip(values.chunks_exact(width)) {
                self.update(map, key, value, 0)?;
            }
            Ok(Batch::OneByOne)
        };
        let width = shape.value_bytes(self.cpus).max(1);
        if shape.is_percpu() && n > 0 && values.len() == n * shape.value {
            return one_by_one(shape.value.max(1));
        }
        check_size(
            || format!("the keys of a batch for map {map}"),
            n * shape.key,
            keys.len(),
        )?;
        check_size(
            || format!("the values of a batch for map {map}"),
            n * width,
            values.len(),
        )?;
        if n == 0 {
            return Ok(Batch::Whole);
        }
        let mut count = u32::try_from(n).map_err(|_| KernelError::WrongSize {
            what: format!("a batch for map {map}"),
            want: u32::MAX as usize,
            got: n,
        })?;
        let opts = libbpf_sys::bpf_map_batch_opts {
            sz: mem::size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        // SAFETY: both arrays hold `count` elements of the map's sizes (checked above).
        let ret = unsafe {
            libbpf_sys::bpf_map_update_batch(
                shape.fd,
                keys.as_ptr().cast(),
                values.as_ptr().cast(),
                &mut count,
                &opts,
            )
        };
        // The kernel's own ENOTSUPP, which libc does not name.
        const ENOTSUPP: i32 = 524;
        match sys::check(ret).map_err(|e| (e.raw_os_error(), e)) {
            Ok(_) => Ok(Batch::Whole),
            Err((Some(ENOTSUPP | libc::EOPNOTSUPP | libc::EINVAL), _)) => one_by_one(width),
            Err((_, e)) => Err(write_error(map, shape, e)),
        }
    }

    /// Stores elements of an array from index `first` on: `values` are packed back to back.
    pub fn write_array(&self, map: &str, first: u32, values: &[u8]) -> Result<(), KernelError> {
        let width = self.map(map)?.value_bytes(self.cpus).max(1);
        let count = (values.len() / width) as u32;
        let keys: Vec<u8> = (first..first.saturating_add(count))
            .flat_map(u32::to_ne_bytes)
            .collect();
        self.update_batch(map, &keys, values).map(drop)
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&self, map: &str, key: &[u8]) -> Result<bool, KernelError> {
        let shape = self.map(map)?;
        check_size(|| format!("a key of map {map}"), shape.key, key.len())?;
        // SAFETY: `key` has the map's key size.
        let ret = unsafe { libbpf_sys::bpf_map_delete_elem(shape.fd, key.as_ptr().cast()) };
        match sys::check(ret) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(KernelError::sys(format!("delete from map {map}"), e)),
        }
    }

    /// All keys. Of a hash map that changes meanwhile, some may be missed or
    /// seen twice; at most twice the map's size are returned.
    pub fn keys(&self, map: &str) -> Result<Vec<Vec<u8>>, KernelError> {
        let shape = self.map(map)?;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0u8; shape.key];
        while keys.len() < shape.entries as usize * 2 {
            let previous = keys.last().map_or(ptr::null(), |k| k.as_ptr());
            // SAFETY: `previous` is null or a key, `next` has the map's key size.
            let ret = unsafe {
                libbpf_sys::bpf_map_get_next_key(
                    shape.fd,
                    previous.cast::<c_void>(),
                    next.as_mut_ptr().cast(),
                )
            };
            match sys::check(ret) {
                Ok(_) => keys.push(next.clone()),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => break,
                Err(e) => return Err(KernelError::sys(format!("list map {map}"), e)),
            }
        }
        Ok(keys)
    }

    /// Waits up to `timeout` (zero: not at all) for records of a ring buffer
    /// map and hands over every one that is there, oldest first. Returns how many.
    pub fn drain(
        &mut self,
        map: &str,
        timeout: Duration,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, KernelError> {
        let failed = |e| KernelError::sys(format!("read ring buffer {map}"), e);
        if !self.rings.contains_key(map) {
            let shape = self.map(map)?;
            let ring = Ring::open(shape.fd(self)).map_err(failed)?;
            self.rings.insert(map.to_owned(), ring);
        }
        match self.rings.get_mut(map) {
            Some(ring) => ring.drain(timeout, &mut sink).map_err(failed),
            None => Ok(0),
        }
    }

    /// Starts reading a perf event array: from now on programs' output is kept for [`Self::drain_perf`].
    pub fn open_perf(&mut self, map: &str) -> Result<(), KernelError> {
        let shape = self.map(map)?;
        let reader = PerfReader::open(shape.fd(self))
            .map_err(|e| KernelError::sys(format!("read perf event array {map}"), e))?;
        self.perfs.insert(map.to_owned(), reader);
        Ok(())
    }

    /// Takes the records of a perf event array that is being read: (CPU, bytes), those of a CPU oldest first. Each may end in up to seven
    /// bytes of the kernel's padding.
    pub fn drain_perf(&mut self, map: &str) -> Result<Vec<(u32, Vec<u8>)>, KernelError> {
        match self.perfs.get_mut(map) {
            Some(reader) => reader
                .drain()
                .map_err(|e| KernelError::sys(format!("read perf event array {map}"), e)),
            None => Ok(Vec::new()),
        }
    }

    /// Takes the next value of a queue or stack; `None` when it is empty.
    pub fn pop(&self, map: &str) -> Result<Option<Vec<u8>>, KernelError> {
        let shape = self.map(map)?;
        let mut value = vec![0u8; shape.value];
        // SAFETY: such a map has no key, and `value` has its value size.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_and_delete_elem(
                shape.fd,
                ptr::null(),
                value.as_mut_ptr().cast(),
            )
        };
        match sys::check(ret) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(KernelError::sys(format!("take from map {map}"), e)),
        }
    }

    /// A reader of a ring buffer map, on its own.
    pub fn event_ring(&self, map: &str) -> Result<EventRing, KernelError> {
        let shape = self.map(map)?;
        EventRing::open(shape.fd(self))
            .map_err(|e| KernelError::sys(format!("read ring buffer {map}"), e))
    }

    /// The values of an array map declared `BPF_F_MMAPABLE` (or of `.bss`,
    /// `.data`) as memory.
    pub fn mmap_array(&self, map: &str) -> Result<MmapArray, KernelError> {
        let shape = self.map(map)?;
        let len = shape.value.next_multiple_of(8) * shape.entries as usize;
        MmapArray::new(shape.fd(self), len).map_err(|e| {
            KernelError::sys(
                format!("map the memory of {map} (is it an array with BPF_F_MMAPABLE?)"),
                e,
            )
        })
    }

    /// Runs the program once on `data` with `BPF_PROG_TEST_RUN` and puts the
    /// frame as it left the program into `out`, whatever the verdict: metadata that the program left first, then the frame.
    ///
    /// Frames are 14 to 65,549 bytes; above [`TEST_RUN_LINEAR`] the program
    /// must be an `xdp.frags` one. For a tc program they are at most [`TC_TEST_RUN_MAX`] bytes, and the kernel refuses IPv4 frames of
    /// less than 34 and IPv6 frames of less than 54. Clock and random helpers are the real ones.
    pub fn test_run(
        &mut self,
        data: &[u8],
        out: &mut Vec<u8>,
        ctx: TestCtx,
    ) -> Result<TestOutcome, KernelError> {
        self.test_run_repeated(data, out, ctx, 1)
    }

    /// [`LoadedProgram::test_run`], `repeat` times in a row; the duration is that of one run on average. The frame is not restored
    /// between runs, so this is for programs that leave it as it is.
    pub fn test_run_repeated(
        &mut self,
        data: &[u8],
        out: &mut Vec<u8>,
        ctx: TestCtx,
        repeat: u32,
    ) -> Result<TestOutcome, KernelError> {
        let max = match self.hook {
            Hook::Xdp => TEST_RUN_MAX,
            Hook::Tc => TC_TEST_RUN_MAX,
        };
        if !(TEST_RUN_MIN..=max).contains(&data.len()) {
            return Err(KernelError::FrameLength {
                len: data.len(),
                min: TEST_RUN_MIN,
                max,
            });
        }
        out.clear();
        out.reserve(data.len() + TEST_RUN_GROWTH);
        let mut md = libbpf_sys::xdp_md {
            data: ctx.metadata,
            data_end: data.len() as u32,
            ingress_ifindex: ctx.ingress_ifindex,
            rx_queue_index: ctx.rx_queue,
            ..Default::default()
        };
        let (gso_size, gso_segs) = ctx.gso.unwrap_or_default();
        // `struct __sk_buff` as 32-bit words: ingress_ifindex is at byte 36, gso_segs at 164, gso_size at 176.
        let mut skb = [0u32; 48];
        skb[9] = ctx.ingress_ifindex;
        skb[41] = gso_segs;
        skb[44] = gso_size;
        // Of XDP's context the kernel's answer is wanted, too: it says where the frame begins.
        let (ctx_in, ctx_size) = match self.hook {
            Hook::Xdp => (
                ptr::from_mut(&mut md).cast::<c_void>(),
                mem::size_of_val(&md) as u32,
            ),
            Hook::Tc => (
                ptr::from_mut(&mut skb).cast(),
                mem::size_of_val(&skb) as u32,
            ),
        };
        let (ctx_out, ctx_size_out) = match self.hook {
            Hook::Xdp => (ctx_in, ctx_size),
            Hook::Tc => (ptr::null_mut(), 0),
        };
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: mem::size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: data.as_ptr().cast(),
            data_out: out.as_mut_ptr().cast(),
            data_size_in: data.len() as u32,
            data_size_out: out.capacity() as u32,
            ctx_in,
            ctx_size_in: ctx_size,
            ctx_out,
            ctx_size_out,
            repeat: repeat as i32,
            flags: match ctx.checksum_complete {
                true => libbpf_sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE,
                false => 0,
            },
            ..Default::default()
        };
        // SAFETY: all pointers are valid for the sizes beside them; `out` has that capacity.
        let ret =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.as_fd().as_raw_fd(), &mut opts) };
        sys::check(ret).map_err(|e| {
            KernelError::sys(
                format!("test-run {} on a frame of {} bytes", self.name, data.len()),
                e,
            )
        })?;
        let written = (opts.data_size_out as usize).min(out.capacity());
        // SAFETY: the kernel wrote `data_size_out` bytes from the start; a larger frame than the
        // buffer would have been an error (ENOSPC).
        unsafe { out.set_len(written) };
        Ok(TestOutcome {
            retval: opts.retval,
            metadata: match self.hook {
                Hook::Xdp => (md.data as usize).min(written),
                Hook::Tc => 0,
            },
            duration: Duration::from_nanos(u64::from(opts.duration)),
        })
    }

    /// Runs an XDP program on `count` live copies of `data` that seem to arrive at an interface of the current namespace, and does with
    /// them what the program says: pass into the stack, transmit (through that interface), redirect. What this sets in motion on
    /// the way (a peer's receive path) runs mostly in the calling thread, whose CPU time is the cost. A call takes about 25 ms to set up.
    ///
    /// Frames come back to the program as it left them. A signal ends the call early, with an error.
    pub fn run_live(&self, data: &[u8], ifindex: u32, count: u32) -> Result<(), KernelError> {
        let md = libbpf_sys::xdp_md {
            data_end: data.len() as u32,
            ingress_ifindex: ifindex,
            ..Default::default()
        };
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: mem::size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: data.as_ptr().cast(),
            data_size_in: data.len() as u32,
            ctx_in: ptr::from_ref(&md).cast(),
            ctx_size_in: mem::size_of_val(&md) as u32,
            repeat: count as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            ..Default::default()
        };
        // SAFETY: all pointers are valid for the sizes beside them, and the kernel writes no data back in this mode.
        let ret =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.as_fd().as_raw_fd(), &mut opts) };
        sys::check(ret).map(drop).map_err(|e| {
            KernelError::sys(format!("send {count} live frames with {}", self.name), e)
        })
    }

    /// Makes it outlive the process, under a path of a bpffs.
    pub fn pin(&self, path: &Path) -> Result<(), KernelError> {
        sys::pin_object(self.as_fd(), path).map_err(|e| {
            KernelError::sys(
                format!("pin program {} at {}", self.name, path.display()),
                e,
            )
        })
    }

    /// The program pinned at `path`, with its maps under the names the kernel knows (15 bytes of them); `None` if nothing is there.
    pub fn open(path: &Path) -> Result<Option<Self>, KernelError> {
        match sys::open_pinned(path) {
            Ok(fd) => Self::adopt(fd).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(KernelError::sys(format!("open {}", path.display()), e)),
        }
    }

    /// Attaches to an interface of the current namespace until the link is
    /// dropped, or longer if it is pinned.
    pub fn attach_xdp(&self, ifindex: u32, mode: XdpMode) -> Result<Link, KernelError> {
        Link::attach(self.as_fd(), ifindex, mode)
    }

    /// Attaches a tc program to one direction of an interface of the current namespace with tcx, until the link is dropped, or longer
    /// if it is pinned. [`KernelError::NoTcx`] where the kernel is older than that.
    pub fn attach_tcx(&self, ifindex: u32, direction: Direction) -> Result<Link, KernelError> {
        Link::attach_tcx(self.as_fd(), ifindex, direction)
    }

    /// What the kernel says about the program.
    pub fn info(&self) -> Result<ProgramInfo, KernelError> {
        let info = sys::program_info(self.as_fd())
            .map_err(|e| KernelError::sys(format!("inspect program {}", self.name), e))?;
        let name: Vec<u8> = info.name.iter().map(|c| *c as u8).collect();
        Ok(ProgramInfo {
            id: info.id,
            name: sys::text_until_nul(&name),
            tag: info.tag,
            xlated_insns: info.xlated_prog_len / 8,
            jited_len: info.jited_prog_len,
            verified_insns: info.verified_insns,
            loaded_ns: info.load_time,
            runs: info.run_cnt,
            run_time_ns: info.run_time_ns,
        })
    }

    /// Instructions the verifier walked to accept the program.
    pub fn verified_insns(&self) -> Result<u32, KernelError> {
        Ok(self.info()?.verified_insns)
    }

    /// Puts this program into slot `index` of a program array of `holder`.
    /// The array keeps it alive as long as the array itself is held.
    pub fn install_in(
        &self,
        holder: &LoadedProgram,
        map: &str,
        index: u32,
    ) -> Result<(), KernelError> {
        let fd = self.as_fd().as_raw_fd() as u32;
        holder.update(map, &index.to_ne_bytes(), &fd.to_ne_bytes(), 0)
    }

    /// The descriptor of a map, for sharing it.
    pub(crate) fn map_fd(&self, name: &str) -> Result<BorrowedFd<'_>, KernelError> {
        Ok(self.map(name)?.fd(self))
    }

    fn map(&self, name: &str) -> Result<MapShape, KernelError> {
        self.maps.get(name).copied().ok_or_else(|| {
            let mut known: Vec<String> = self.maps.keys().cloned().collect();
            known.sort_unstable();
            KernelError::MissingMap {
                map: name.to_owned(),
                near: near_names(name, &known),
            }
        })
    }

    /// One value repeated for every CPU where the map wants that.
    fn widened<'v>(
        &self,
        map: &str,
        shape: MapShape,
        value: &'v [u8],
    ) -> Result<std::borrow::Cow<'v, [u8]>, KernelError> {
        if shape.is_percpu() && value.len() == shape.value {
            let mut one = value.to_vec();
            one.resize(shape.value.next_multiple_of(8), 0);
            return Ok(one.repeat(self.cpus).into());
        }
        check_size(
            || format!("a value of map {map}"),
            shape.value_bytes(self.cpus),
            value.len(),
        )?;
        Ok(value.into())
    }
}

/// libbpf names the map of a section `<object>.rodata`; the part from the dot
/// is its name in C terms.
pub(crate) fn section_name(map: &str) -> String {
    match map.find('.') {
        Some(dot) => map[dot..].to_owned(),
        None => map.to_owned(),
    }
}

/// Names a full map, which the kernel calls an argument list that is too long.
fn write_error(map: &str, shape: MapShape, e: io::Error) -> KernelError {
    let is_array = matches!(
        shape.kind,
        libbpf_sys::BPF_MAP_TYPE_ARRAY
            | libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
            | libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY
    );
    match e.raw_os_error() {
        Some(libc::E2BIG | libc::ENOSPC) if is_array => KernelError::sys(
            format!(
                "write map {map}: the index is not below its {} entries",
                shape.entries
            ),
            e,
        ),
        Some(libc::E2BIG | libc::ENOSPC) => KernelError::MapFull {
            map: map.to_owned(),
            entries: shape.entries,
        },
        Some(libc::ENODEV) if shape.kind == libbpf_sys::BPF_MAP_TYPE_CPUMAP => KernelError::sys(
            format!("write map {map}: it names a CPU that this host does not have"),
            e,
        ),
        _ => KernelError::sys(format!("write map {map}"), e),
    }
}

fn check_size(what: impl FnOnce() -> String, want: usize, got: usize) -> Result<(), KernelError> {
    if want == got {
        return Ok(());
    }
    Err(KernelError::WrongSize {
        what: what(),
        want,
        got,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_named_from_their_dot() {
        assert_eq!(section_name("weir.rodata"), ".rodata");
        assert_eq!(section_name("rules"), "rules");
    }
}

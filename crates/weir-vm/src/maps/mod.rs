//! Maps with the kernel's semantics: kinds, flags, error numbers, element lifetimes.
//!
//! Owns definitions and operations; values, and indexing by hash, prefix and ring buffer live in the modules below. Does not know
//! virtual addresses beyond promising stable element numbers. Invariant: an element's memory is never handed to
//! another key while the run that may still point at it lasts (`epoch`); until then it is stale, as in the kernel.

mod bloom;
mod definition;
mod hash;
mod lpm;
mod perf;
mod queue;
mod ring;
mod values;

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::errno::{E2BIG, EEXIST, EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use crate::memory::{SLOT_SHIFT, slot_shift, slots_at};
pub(crate) use bloom::Bloom;
use definition::check;
pub use definition::{MapDefinition, MapDefinitionError};
use hash::HashIndex;
pub(crate) use hash::{MULTIPLIER, TAGGED};
use lpm::PrefixIndex;
pub(crate) use perf::PerfArray;
pub(crate) use queue::Queue;
pub(crate) use ring::Ring;
pub(crate) use values::Layout;
use values::Values;

/// Create or replace.
pub const BPF_ANY: u64 = 0;
/// Create only.
pub const BPF_NOEXIST: u64 = 1;
/// Replace only.
pub const BPF_EXIST: u64 = 2;
/// Take the element's spin lock while copying; allowed for values with a `struct bpf_spin_lock`.
pub const BPF_F_LOCK: u64 = 4;

/// Creation flag: do not preallocate; required for prefix maps.
pub const BPF_F_NO_PREALLOC: u32 = 1;
/// Creation flag: only programs may write.
pub const BPF_F_RDONLY: u32 = 1 << 3;
/// Creation flag: only programs may read.
pub const BPF_F_WRONLY: u32 = 1 << 4;
/// Creation flag: programs may only read.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Creation flag: programs may only write.
pub const BPF_F_WRONLY_PROG: u32 = 1 << 8;

/// Epoch of changes made between runs, when no program can hold a pointer.
pub(crate) const BETWEEN_RUNS: u64 = u64::MAX;

/// Largest value in bytes; the limit of one element's address range.
pub const VALUE_SIZE_MAX: u32 = 1 << 23;
/// Most bytes that the arrays of a machine may have together. Pages exist once they are written, so this bounds addresses, not memory.
pub(crate) const MEMORY_MAX: u64 = 1 << 38;

/// The kinds of maps this engine has, with Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are Linux's own; each is BPF_MAP_TYPE_ in capitals"
)]
#[repr(u32)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    ProgArray = 3,
    PerfEventArray = 4,
    PercpuHash = 5,
    PercpuArray = 6,
    StackTrace = 7,
    CgroupArray = 8,
    LruHash = 9,
    LruPercpuHash = 10,
    LpmTrie = 11,
    ArrayOfMaps = 12,
    HashOfMaps = 13,
    DevMap = 14,
    SockMap = 15,
    CpuMap = 16,
    XskMap = 17,
    SockHash = 18,
    Queue = 22,
    Stack = 23,
    SkStorage = 24,
    DevMapHash = 25,
    RingBuf = 27,
    TaskStorage = 29,
    BloomFilter = 30,
    UserRingBuf = 31,
    CgrpStorage = 32,
}

impl MapKind {
    /// The kind with Linux's number `number`.
    pub fn from_number(number: u32) -> Option<MapKind> {
        use MapKind::*;
        const ALL: [MapKind; 27] = [
            Hash,
            Array,
            ProgArray,
            PerfEventArray,
            PercpuHash,
            PercpuArray,
            StackTrace,
            CgroupArray,
            LruHash,
            LruPercpuHash,
            LpmTrie,
            ArrayOfMaps,
            HashOfMaps,
            DevMap,
            SockMap,
            CpuMap,
            XskMap,
            SockHash,
            Queue,
            Stack,
            SkStorage,
            DevMapHash,
            RingBuf,
            TaskStorage,
            BloomFilter,
            UserRingBuf,
            CgrpStorage,
        ];
        ALL.into_iter().find(|k| *k as u32 == number)
    }

    /// Whether each CPU has a value of its own.
    pub fn is_percpu(self) -> bool {
        matches!(
            self,
            MapKind::PercpuHash | MapKind::PercpuArray | MapKind::LruPercpuHash
        )
    }

    /// Whether values name maps.
    pub fn holds_maps(self) -> bool {
        matches!(self, MapKind::ArrayOfMaps | MapKind::HashOfMaps)
    }

    /// Whether values name sockets.
    pub fn holds_sockets(self) -> bool {
        matches!(self, MapKind::SockMap | MapKind::SockHash)
    }

    /// Whether elements belong to an object of the kernel: they are no more than declared here, and nothing is ever found in them.
    pub fn is_storage(self) -> bool {
        matches!(
            self,
            MapKind::SkStorage | MapKind::TaskStorage | MapKind::CgrpStorage
        )
    }

    /// Whether it holds what only a kernel has, so that it is empty here and runs that use it fault.
    pub fn is_of_kernel(self) -> bool {
        use MapKind::*;
        self.holds_sockets()
            || self.is_storage()
            || matches!(self, StackTrace | CgroupArray | UserRingBuf)
    }

    /// Whether `bpf_redirect_map` accepts it.
    pub fn redirects(self) -> bool {
        matches!(
            self,
            MapKind::DevMap | MapKind::DevMapHash | MapKind::CpuMap | MapKind::XskMap
        )
    }

    /// Whether programs reach values of this kind through pointers.
    pub(crate) fn has_plain_values(self) -> bool {
        use MapKind::*;
        matches!(
            self,
            Hash | Array
                | PercpuHash
                | PercpuArray
                | LruHash
                | LruPercpuHash
                | LpmTrie
                | DevMap
                | DevMapHash
                | XskMap
        )
    }
}

/// Why a map operation from outside a program failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MapError {
    /// The key has another length than the map's.
    #[error("map {map}: key of {got} bytes, expected {expected}")]
    KeySize {
        /// Map.
        map: String,
        /// Given length.
        got: usize,
        /// Needed length.
        expected: usize,
    },
    /// The value has another length than the map's; per-CPU values are one 8-byte-aligned block for each CPU.
    #[error("map {map}: value of {got} bytes, expected {expected}")]
    ValueSize {
        /// Map.
        map: String,
        /// Given length.
        got: usize,
        /// Needed length.
        expected: usize,
    },
    /// The kernel would return this error number.
    #[error("map {map}: {operation} fails with errno {errno}")]
    Kernel {
        /// Map.
        map: String,
        /// What was tried.
        operation: &'static str,
        /// Negative error number.
        errno: i64,
    },
    /// Values of this kind name maps or programs: use the machine's own functions for that.
    #[error("map {map} holds references; set them with Machine::set_inner_map or set_tail_call")]
    References {
        /// Map.
        map: String,
    },
}

/// A map and its contents.
#[derive(Debug)]
pub struct Map {
    /// No other map of this process has it.
    identity: u64,
    definition: MapDefinition,
    cpus: u32,
    /// Bits of the offset in addresses of values.
    slot_shift: u32,
    values: Values,
    index: Index,
    /// Nobody outside may change it any more.
    frozen: bool,
}

static IDENTITIES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
enum Index {
    /// Every element exists.
    Dense,
    /// Array whose slots may be empty.
    Sparse(Vec<bool>),
    Hash(HashIndex),
    Prefix(PrefixIndex),
    /// What only a kernel could put in.
    Nothing,
    Ring(Ring),
    Queue(Queue),
    Bloom(Bloom),
    Perf(PerfArray),
}

impl Map {
    /// Creates an empty map for `cpus` CPUs.
    ///
    /// # Errors
    /// [`MapDefinitionError`] for what the kernel refuses and for sizes above this engine's limits.
    pub fn new(definition: MapDefinition, cpus: u32) -> Result<Map, MapDefinitionError> {
        check(&definition)?;
        let per_cpu = if definition.kind.is_percpu() { cpus } else { 1 };
        let too_large = || MapDefinitionError::TooLarge {
            map: definition.name.clone(),
            entries: definition.max_entries,
            value_size: definition.value_size,
        };
        let (value_size, key_size) = (definition.value_size, definition.key_size);
        let entries = definition.max_entries;
        let slot_shift = match definition.kind {
            kind if kind == MapKind::RingBuf || kind.is_of_kernel() => SLOT_SHIFT,
            _ => slot_shift(u64::from(entries) * u64::from(per_cpu), value_size)
                .filter(|_| value_size <= VALUE_SIZE_MAX)
                .ok_or_else(too_large)?,
        };
        let most = slots_at(slot_shift) / u64::from(per_cpu);
        use MapKind::*;
        let index = match definition.kind {
            Array | PercpuArray => Some(Index::Dense),
            ProgArray | ArrayOfMaps | DevMap | CpuMap | XskMap => {
                Some(Index::Sparse(vec![false; entries as usize]))
            }
            Hash | PercpuHash | HashOfMaps | DevMapHash => {
                HashIndex::new(false, most).map(Index::Hash)
            }
            LruHash | LruPercpuHash => HashIndex::new(true, most).map(Index::Hash),
            LpmTrie => PrefixIndex::new(key_size as usize, most).map(Index::Prefix),
            RingBuf => Some(Index::Ring(Ring::new(entries))),
            PerfEventArray => Some(Index::Perf(PerfArray::new(entries))),
            Queue => Some(Index::Queue(self::Queue::new(false, entries))),
            Stack => Some(Index::Queue(self::Queue::new(true, entries))),
            StackTrace | CgroupArray | SockMap | SockHash | SkStorage | TaskStorage
            | UserRingBuf | CgrpStorage => Some(Index::Nothing),
            BloomFilter => Some(Index::Bloom(Bloom::new(entries, definition.extra))),
        };
        let index = index.ok_or_else(too_large)?;
        let values = match index {
            Index::Dense | Index::Sparse(_) => Values::fixed(value_size, per_cpu, entries as usize),
            Index::Nothing => Some(Values::growing(8, 1, 0, 0)),
            _ => Some(Values::growing(value_size, per_cpu, key_size, entries)),
        };
        let values = values.ok_or_else(too_large)?;
        Ok(Map {
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            definition,
            cpus: per_cpu,
            slot_shift,
            values,
            index,
            frozen: false,
        })
    }

    /// The definition, with sizes as loaded.
    pub fn definition(&self) -> &MapDefinition {
        &self.definition
    }

    /// Name of the map.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Kind of the map.
    pub fn kind(&self) -> MapKind {
        self.definition.kind
    }

    /// Number of values an element has: CPUs of a per-CPU map, else 1.
    pub fn values_per_element(&self) -> u32 {
        self.cpus
    }

    /// Number of elements that exist.
    pub fn len(&self) -> usize {
        match &self.index {
            Index::Dense => self.definition.max_entries as usize,
            Index::Sparse(present) => present.iter().filter(|p| **p).count(),
            Index::Hash(h) => h.len(),
            Index::Prefix(p) => p.len(),
            Index::Queue(q) => q.len(),
            Index::Perf(p) => p.len(),
            Index::Ring(_) | Index::Bloom(_) | Index::Nothing => 0,
        }
    }

    /// Whether no element exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copy of an element's value. Per-CPU maps yield one block of `value_size` rounded up to 8 for each CPU, as the
    /// system call does. Looking from outside does not refresh an element of an LRU map.
    /// Of a queue or stack, whose key is empty, it is the value that would be taken next. Nothing of a map created with
    /// [`BPF_F_WRONLY`].
    pub fn lookup(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.definition.flags & BPF_F_WRONLY != 0 {
            return None;
        }
        if let Index::Queue(queue) = &self.index {
            return queue.peek().ok().map(<[u8]>::to_vec);
        }
        if !self.kind().is_percpu() {
            return self.value(key).map(<[u8]>::to_vec);
        }
        self.values.all(self.find(key)?).map(<[u8]>::to_vec)
    }

    /// An element's value; of a per-CPU map CPU 0's.
    pub fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.value_on(key, 0)
    }

    /// An element's value on one CPU; `cpu` is 0 for maps that are not per-CPU.
    pub fn value_on(&self, key: &[u8], cpu: u32) -> Option<&[u8]> {
        let slot = self.slot(self.find(key)?, cpu)?;
        self.slot_value(slot)
    }

    /// An element's value to change in place; of a per-CPU map CPU 0's. Nothing of a map that may not be changed from outside.
    pub fn value_mut(&mut self, key: &[u8]) -> Option<&mut [u8]> {
        if self.is_protected() {
            return None;
        }
        let slot = self.slot(self.find(key)?, 0)?;
        self.slot_value_mut(slot)
    }

    /// Creates or replaces an element of which every CPU of a per-CPU map is to have this same value.
    ///
    /// # Errors
    /// As of [`Self::update`].
    pub fn update_all(&mut self, key: &[u8], value: &[u8], flags: u64) -> Result<(), MapError> {
        if !self.kind().is_percpu() || value.len() != self.definition.value_size as usize {
            return self.update(key, value, flags);
        }
        let mut one = value.to_vec();
        one.resize(self.values.stride(), 0);
        self.update(key, &one.repeat(self.cpus as usize), flags)
    }

    /// Creates or replaces an element as the system call does; `flags` are [`BPF_ANY`] and so on.
    ///
    /// # Errors
    /// [`MapError`] with the kernel's error number, or for sizes that do not fit.
    pub fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> Result<(), MapError> {
        self.check_key(key)?;
        if self.kind().holds_maps() || self.kind() == MapKind::ProgArray {
            return Err(MapError::References {
                map: self.name().to_owned(),
            });
        }
        if self.is_protected() {
            return Err(self.kernel_error("update", EPERM));
        }
        let size = self.definition.value_size as usize;
        let stride = self.values.stride();
        let (expected, step) = if self.kind().is_percpu() {
            (stride * self.cpus as usize, stride)
        } else {
            (size, size)
        };
        if value.len() != expected {
            return Err(MapError::ValueSize {
                map: self.name().to_owned(),
                got: value.len(),
                expected,
            });
        }
        if matches!(self.index, Index::Queue(_) | Index::Bloom(_)) {
            return self
                .push(value, flags)
                .map_err(|errno| self.kernel_error("push", errno));
        }
        let element = self
            .place(key, flags, BETWEEN_RUNS)
            .map_err(|errno| self.kernel_error("update", errno))?;
        if step == 0 {
            return Ok(());
        }
        for (cpu, block) in (0..self.cpus).zip(value.chunks(step)) {
            self.write_value(element, cpu, block);
        }
        if self.kind().redirects()
            && value.iter().take(4).all(|b| *b == 0)
            && self.kind() != MapKind::XskMap
        {
            // Linux takes interface 0 and queue size 0 as "no target".
            let removed = self.remove(key, BETWEEN_RUNS);
            return removed.map_err(|errno| self.kernel_error("update", errno));
        }
        Ok(())
    }

    /// Removes an element.
    ///
    /// # Errors
    /// [`MapError`] with `-ENOENT` when it is not there, `-EINVAL` for arrays.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        self.check_key(key)?;
        if self.is_protected() {
            return Err(self.kernel_error("delete", EPERM));
        }
        self.remove(key, BETWEEN_RUNS)
            .map_err(|errno| self.kernel_error("delete", errno))
    }

    /// Takes the next value of a queue or stack; nothing when it is empty or the map is of another kind.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        if self.is_protected() {
            return None;
        }
        self.queue_mut()?.pop().ok()
    }

    /// Whether a Bloom filter may hold `value`; no for maps of other kinds.
    pub fn may_contain(&self, value: &[u8]) -> bool {
        self.bloom().is_some_and(|b| b.peek(value).is_ok())
    }

    /// Lets nobody but programs change the map from now on, as `BPF_MAP_FREEZE` does.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Whether the map can be changed by programs only.
    pub fn is_protected(&self) -> bool {
        self.frozen || self.definition.flags & BPF_F_RDONLY != 0
    }

    /// Whether a map is frozen and programs cannot write it either: its contents are constants.
    pub fn is_constant(&self) -> bool {
        self.is_protected() && !self.writable_by_programs()
    }

    /// The keys that exist, in an order that depends only on the operations so far.
    pub fn keys(&self) -> Box<dyn Iterator<Item = Vec<u8>> + '_> {
        match &self.index {
            Index::Dense => {
                Box::new((0..self.definition.max_entries).map(|i| i.to_le_bytes().to_vec()))
            }
            Index::Sparse(present) => Box::new(
                present
                    .iter()
                    .zip(0u32..)
                    .filter(|(p, _)| **p)
                    .map(|(_, i)| i.to_le_bytes().to_vec()),
            ),
            Index::Hash(h) => Box::new(h.elements().map(|e| self.values.key(e).to_vec())),
            Index::Prefix(p) => Box::new(p.elements().map(|e| p.key(e).to_vec())),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), MapError> {
        let expected = self.definition.key_size as usize;
        if key.len() != expected {
            return Err(MapError::KeySize {
                map: self.name().to_owned(),
                got: key.len(),
                expected,
            });
        }
        Ok(())
    }

    fn kernel_error(&self, operation: &'static str, errno: i64) -> MapError {
        MapError::Kernel {
            map: self.name().to_owned(),
            operation,
            errno,
        }
    }
}

/// How generated code finds a value without a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// By index.
    Array(Layout),
    /// By hash: seed, and address of {table, mask}.
    Hash(Layout, u64, u64),
    /// Only the helper can.
    Helper,
}

/// What the interpreter needs.
impl Map {
    /// How generated code may look values up; it holds as long as the map exists.
    pub(crate) fn lookup_method(&self) -> Lookup {
        let layout = self.values.layout();
        match &self.index {
            Index::Dense => Lookup::Array(layout),
            Index::Hash(h) if self.kind().has_plain_values() => {
                // Elements of hashes come and go with their blocks; buckets have their addresses.
                let layout = Layout { start: 0, ..layout };
                h.native().map_or(Lookup::Helper, |(seed, head)| {
                    Lookup::Hash(layout, seed, head)
                })
            }
            _ => Lookup::Helper,
        }
    }

    /// What tells this map from every other one, exchanged ones too.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Bits of the offset in addresses of values, as the interpreter writes them.
    #[inline(always)]
    pub(crate) fn slot_shift(&self) -> u32 {
        self.slot_shift
    }

    /// Where a value is in the host's memory.
    pub(crate) fn slot_address(&self, slot: u32) -> u64 {
        self.values.address(slot)
    }

    /// Whether an address range of the host lies in a value or a reserved record.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        match &self.index {
            Index::Ring(ring) => ring.holds(address, len),
            _ => self.values.holds(address, len),
        }
    }

    pub(crate) fn writable_by_programs(&self) -> bool {
        self.definition.is_writable_by_programs()
    }

    pub(crate) fn readable_by_programs(&self) -> bool {
        self.definition.flags & BPF_F_WRONLY_PROG == 0
    }

    pub(crate) fn queue(&self) -> Option<&Queue> {
        match &self.index {
            Index::Queue(q) => Some(q),
            _ => None,
        }
    }

    pub(crate) fn queue_mut(&mut self) -> Option<&mut Queue> {
        match &mut self.index {
            Index::Queue(q) => Some(q),
            _ => None,
        }
    }

    pub(crate) fn bloom(&self) -> Option<&Bloom> {
        match &self.index {
            Index::Bloom(b) => Some(b),
            _ => None,
        }
    }

    pub(crate) fn perf_mut(&mut self) -> Option<&mut PerfArray> {
        match &mut self.index {
            Index::Perf(p) => Some(p),
            _ => None,
        }
    }

    /// `bpf_map_push_elem` on a queue, stack or Bloom filter.
    pub(crate) fn push(&mut self, value: &[u8], flags: u64) -> Result<(), i64> {
        match &mut self.index {
            Index::Queue(q) => q.push(value, flags),
            Index::Bloom(b) => b.push(value, flags),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Element number of a key, without refreshing it.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.definition.key_size as usize {
            return None;
        }
        match &self.index {
            Index::Dense => array_index(key).filter(|i| *i < self.definition.max_entries),
            Index::Sparse(present) => {
                array_index(key).filter(|i| present.get(*i as usize) == Some(&true))
            }
            Index::Hash(h) => h.find(&self.values, key),
            Index::Prefix(p) => p.find(&self.values, key),
            _ => None,
        }
    }

    /// As [`Map::find`], by a program: refreshes an element of an LRU map.
    #[inline]
    pub(crate) fn find_from_program(&mut self, key: &[u8]) -> Option<u32> {
        let element = self.find(key)?;
        if let Index::Hash(h) = &mut self.index {
            h.touch(element);
        }
        Some(element)
    }

    /// Element number of an array's index, without a key buffer.
    #[inline]
    pub(crate) fn dense_index(&self, index: u32) -> Option<u32> {
        (matches!(self.index, Index::Dense) && index < self.definition.max_entries).then_some(index)
    }

    pub(crate) fn is_dense(&self) -> bool {
        matches!(self.index, Index::Dense)
    }

    /// Slot of an element's value on `cpu`.
    #[inline]
    pub(crate) fn slot(&self, element: u32, cpu: u32) -> Option<u32> {
        if self.cpus == 1 {
            return Some(element);
        }
        if cpu >= self.cpus {
            return None;
        }
        element.checked_mul(self.cpus)?.checked_add(cpu)
    }

    #[inline]
    pub(crate) fn slot_value(&self, slot: u32) -> Option<&[u8]> {
        self.values.value(slot)
    }

    #[inline]
    pub(crate) fn slot_value_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        self.values.value_mut(slot)
    }

    /// `bpf_map_update_elem` on `cpu`; other CPUs' values of a new element are zero.
    pub(crate) fn update_from_program(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u64,
        cpu: u32,
        epoch: u64,
    ) -> Result<(), i64> {
        let fresh = self.find(key).is_none();
        let element = self.place(key, flags, epoch)?;
        if fresh && self.kind().is_percpu() {
            for other in 0..self.cpus {
                self.write_value(element, other, &[]);
            }
        }
        self.write_value(element, cpu, value);
        Ok(())
    }

    /// `bpf_map_delete_elem`.
    pub(crate) fn remove(&mut self, key: &[u8], epoch: u64) -> Result<(), i64> {
        match &mut self.index {
            Index::Dense => Err(EINVAL),
            Index::Sparse(present) => {
                let index = array_index(key).ok_or(EINVAL)?;
                let slot = present.get_mut(index as usize).ok_or(EINVAL)?;
                if !*slot
                    && matches!(
                        self.definition.kind,
                        MapKind::ProgArray | MapKind::ArrayOfMaps
                    )
                {
                    return Err(ENOENT);
                }
                *slot = false;
                self.show_reference(index, 0);
                Ok(())
            }
            Index::Hash(h) => h.remove(&self.values, key, epoch).map(|_| ()).ok_or(ENOENT),
            Index::Prefix(p) => p.remove(&self.values, key, epoch),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Elements as they are now, for `bpf_for_each_map_elem`.
    pub(crate) fn elements(&self) -> Vec<u32> {
        match &self.index {
            Index::Dense => (0..self.definition.max_entries).collect(),
            Index::Hash(h) => h.elements().collect(),
            _ => Vec::new(),
        }
    }

    /// Key of a live element of an array or hash.
    pub(crate) fn element_key(&self, element: u32) -> Option<Vec<u8>> {
        match &self.index {
            Index::Dense => Some(element.to_le_bytes().to_vec()),
            Index::Hash(h) => h
                .is_live(element)
                .then(|| self.values.key(element).to_vec()),
            _ => None,
        }
    }

    /// The map or program number an element names.
    pub(crate) fn reference(&self, key: &[u8]) -> Option<u32> {
        let value = self.slot_value(self.find(key)?)?;
        value.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
    }

    /// Makes an element name a map or program.
    pub(crate) fn set_reference(&mut self, key: &[u8], target: u32) -> Result<(), MapError> {
        self.check_key(key)?;
        if self.is_protected() {
            return Err(self.kernel_error("update", EPERM));
        }
        let element = self
            .place(key, BPF_ANY, BETWEEN_RUNS)
            .map_err(|errno| self.kernel_error("update", errno))?;
        self.write_value(element, 0, &target.to_le_bytes());
        self.show_reference(element, target + 1);
        Ok(())
    }

    /// Keeps the reference plus one, or 0 for none, where generated code finds it: behind the value.
    fn show_reference(&mut self, element: u32, shown: u32) {
        if self.definition.kind == MapKind::ProgArray {
            self.values.write_padding(element, &shown.to_le_bytes());
        }
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.index {
            Index::Ring(r) => Some(r),
            _ => None,
        }
    }

    pub(crate) fn ring_mut(&mut self) -> Option<&mut Ring> {
        match &mut self.index {
            Index::Ring(r) => Some(r),
            _ => None,
        }
    }

    /// Finds or makes the element for `key`, by the rules of `flags`.
    fn place(&mut self, key: &[u8], flags: u64, epoch: u64) -> Result<u32, i64> {
        if key.len() != self.definition.key_size as usize {
            return Err(EINVAL);
        }
        let lock = flags & BPF_F_LOCK != 0;
        let flags = flags & !BPF_F_LOCK;
        if flags > BPF_EXIST || (lock && !self.definition.has_spin_lock) {
            return Err(EINVAL);
        }
        let in_place = self.definition.kind.is_percpu() || lock;
        let max_entries = self.definition.max_entries;
        let values = &mut self.values;
        let element = match &mut self.index {
            Index::Dense => {
                let index = array_index(key).ok_or(EINVAL)?;
                if index >= max_entries {
                    return Err(E2BIG);
                }
                if flags == BPF_NOEXIST {
                    return Err(EEXIST);
                }
                index
            }
            Index::Sparse(present) => {
                let index = array_index(key).ok_or(EINVAL)?;
                let slot = present.get_mut(index as usize).ok_or(E2BIG)?;
                if flags == BPF_NOEXIST {
                    return Err(EEXIST);
                }
                *slot = true;
                index
            }
            Index::Hash(h) => h.place(values, key, flags, max_entries, in_place, epoch)?,
            Index::Prefix(p) => p.place(values, key, flags, max_entries, epoch)?,
            _ => return Err(EOPNOTSUPP),
        };
        Ok(element)
    }

    /// Writes one CPU's value, zero behind a short `value`.
    fn write_value(&mut self, element: u32, cpu: u32, value: &[u8]) {
        let Some(slot) = self.slot(element, cpu) else {
            return;
        };
        let Some(target) = self.slot_value_mut(slot) else {
            return;
        };
        let n = value.len().min(target.len());
        let (head, tail) = target.split_at_mut(n);
        head.copy_from_slice(value.get(..n).unwrap_or_default());
        tail.fill(0);
    }
}

fn array_index(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests;

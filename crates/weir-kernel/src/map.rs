//! A map by itself: created, opened from a pin or by its number, shared between objects, read and written as bytes.
//!
//! What programs bring along is read through [`LoadedProgram`]; this is for maps that outlive programs or belong to none.
//! Invariant: keys and values are checked against the map's sizes before the kernel sees a pointer.

#![expect(unsafe_code, reason = "map calls take raw pointers")]

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::{EventRing, KernelError, LoadedProgram, MmapArray, sys};

/// What a map is, as its object declares it: two maps of equal definition can stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapDefinition {
    /// `BPF_MAP_TYPE_` number.
    pub kind: u32,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value; of one CPU's value in a per-CPU map.
    pub value: u32,
    /// Entries it holds at most; bytes of a ring buffer.
    pub entries: u32,
    /// Creation flags.
    pub flags: u32,
}

impl MapDefinition {
    /// Whether two maps are the same to programs, though the values of only one of them are mapped memory.
    pub fn differs_in_place_only(self, other: MapDefinition) -> bool {
        let flags = self.flags ^ other.flags;
        flags == libbpf_sys::BPF_F_MMAPABLE
            && MapDefinition {
                flags: other.flags,
                ..self
            } == other
    }

    /// Name of the kind as the eBPF documentation has it: `array`, `lru_hash`.
    pub fn kind_name(&self) -> &'static str {
        KINDS.get(self.kind as usize).copied().unwrap_or("unknown")
    }

    /// The number of a kind by its name.
    pub fn kind_named(name: &str) -> Option<u32> {
        KINDS
            .iter()
            .position(|kind| *kind == name && *kind != "unknown")
            .map(|at| at as u32)
    }
}

/// Names of kinds by number (include/uapi/linux/bpf.h).
const KINDS: [&str; 34] = [
    "unknown",
    "hash",
    "array",
    "prog_array",
    "perf_event_array",
    "percpu_hash",
    "percpu_array",
    "stack_trace",
    "cgroup_array",
    "lru_hash",
    "lru_percpu_hash",
    "lpm_trie",
    "array_of_maps",
    "hash_of_maps",
    "devmap",
    "sockmap",
    "cpumap",
    "xskmap",
    "sockhash",
    "cgroup_storage",
    "reuseport_sockarray",
    "percpu_cgroup_storage",
    "queue",
    "stack",
    "sk_storage",
    "devmap_hash",
    "struct_ops",
    "ringbuf",
    "inode_storage",
    "task_storage",
    "bloom_filter",
    "user_ringbuf",
    "cgrp_storage",
    "arena",
];

impl std::fmt::Display for MapDefinition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} entries, key {} bytes, value {} bytes",
            self.kind_name(),
            self.entries,
            self.key,
            self.value
        )?;
        match self.flags {
            0 => Ok(()),
            flags => write!(f, ", flags {flags:#x}"),
        }
    }
}

/// A map of the kernel.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    name: String,
    id: u32,
    definition: MapDefinition,
    cpus: usize,
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Map {
    /// Creates one; `name` is cut to 15 bytes by the kernel.
    pub fn create(name: &str, definition: MapDefinition) -> Result<Map, KernelError> {
        sys::silence_libbpf();
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: mem::size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: definition.flags,
            ..Default::default()
        };
        let failed = |e| KernelError::sys(format!("create map {name} ({definition})"), e);
        let short: String = name.chars().take(15).collect();
        let c_name = sys::c_string(&short).map_err(failed)?;
        // SAFETY: a C string, and options that are valid for the call and state their size.
        let ret = unsafe {
            libbpf_sys::bpf_map_create(
                definition.kind,
                c_name.as_ptr(),
                definition.key,
                definition.value,
                definition.entries,
                &opts,
            )
        };
        Map::named(sys::own_fd(ret).map_err(failed)?, name)
    }

    /// The map pinned at `path`; `None` if nothing is.
    pub fn open(path: &Path) -> Result<Option<Map>, KernelError> {
        match sys::open_pinned(path) {
            Ok(fd) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Map::named(fd, &name).map(Some)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(KernelError::sys(format!("open {}", path.display()), e)),
        }
    }

    /// A map by the kernel's number for it.
    pub fn by_id(id: u32, name: &str) -> Result<Map, KernelError> {
        let fd = sys::map_by_id(id)
            .map_err(|e| KernelError::sys(format!("open map {name} (id {id})"), e))?;
        Map::named(fd, name)
    }

    /// A map that a program uses, or that its object declares.
    pub fn of(program: &LoadedProgram, name: &str) -> Result<Map, KernelError> {
        let fd = program
            .map_fd(name)?
            .try_clone_to_owned()
            .map_err(|e| KernelError::sys(format!("duplicate map {name}"), e))?;
        Map::named(fd, name)
    }

    fn named(fd: OwnedFd, name: &str) -> Result<Map, KernelError> {
        let info = sys::map_info(fd.as_fd())
            .map_err(|e| KernelError::sys(format!("inspect map {name}"), e))?;
        Ok(Map {
            fd,
            name: name.to_owned(),
            id: info.id,
            definition: MapDefinition {
                kind: info.type_,
                key: info.key_size,
                value: info.value_size,
                entries: info.max_entries,
                flags: info.map_flags,
            },
            cpus: sys::possible_cpus()?,
        })
    }

    /// The name it was created, opened or found by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// As the kernel holds it: flags and entries may differ from what its object declared.
    pub fn definition(&self) -> MapDefinition {
        self.definition
    }

    /// Makes it outlive the process, under a path of a bpffs.
    pub fn pin(&self, path: &Path) -> Result<(), KernelError> {
        sys::pin_object(self.fd.as_fd(), path).map_err(|e| {
            KernelError::sys(format!("pin map {} at {}", self.name, path.display()), e)
        })
    }

    /// The value under `key`: of a per-CPU map those of all CPUs, each padded to 8 bytes; of a program array the program's id.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KernelError> {
        self.check("key", self.definition.key as usize, key.len())?;
        let mut value = vec![0u8; self.value_bytes()];
        // SAFETY: `key` has the map's key size, `value` what the kernel writes for one lookup.
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
            Err(e) => Err(KernelError::sys(format!("read map {}", self.name), e)),
        }
    }

    /// The values under `key`, one per possible CPU, without padding; empty if the key is absent.
    pub fn lookup_percpu(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, KernelError> {
        let value = self.definition.value as usize;
        Ok(self.lookup(key)?.map_or_else(Vec::new, |all| {
            all.chunks_exact(value.next_multiple_of(8).max(1))
                .map(|one| one[..value].to_vec())
                .collect()
        }))
    }

    /// Stores `value` under `key`; one value of a per-CPU map is stored for every CPU.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), KernelError> {
        self.check("key", self.definition.key as usize, key.len())?;
        let mut wide = value.to_vec();
        if self.is_percpu() && value.len() == self.definition.value as usize {
            wide.resize(value.len().next_multiple_of(8), 0);
            wide = wide.repeat(self.cpus);
        }
        self.check("value", self.value_bytes(), wide.len())?;
        // SAFETY: key and value have the sizes that the kernel reads (checked above).
        let ret = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                wide.as_ptr().cast(),
                0,
            )
        };
        sys::check(ret)
            .map(drop)
            .map_err(|e| KernelError::sys(format!("write map {}", self.name), e))
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&self, key: &[u8]) -> Result<bool, KernelError> {
        self.check("key", self.definition.key as usize, key.len())?;
        // SAFETY: `key` has the map's key size.
        let ret =
            unsafe { libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) };
        match sys::check(ret) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(KernelError::sys(
                format!("delete from map {}", self.name),
                e,
            )),
        }
    }

    /// All keys. Of a hash map that changes meanwhile, some may be missed or seen twice; at most twice the map's size are returned.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, KernelError> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0u8; self.definition.key as usize];
        while keys.len() < self.definition.entries as usize * 2 {
            let previous = keys.last().map_or(std::ptr::null(), |k| k.as_ptr());
            // SAFETY: `previous` is null or a key, and `next` has room for one.
            let ret = unsafe {
                libbpf_sys::bpf_map_get_next_key(
                    self.fd.as_raw_fd(),
                    previous.cast(),
                    next.as_mut_ptr().cast(),
                )
            };
            match sys::check(ret) {
                Ok(_) => keys.push(next.clone()),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => break,
                Err(e) => return Err(KernelError::sys(format!("list map {}", self.name), e)),
            }
        }
        Ok(keys)
    }

    /// Puts a program into slot `index` of a program array. The array keeps it as long as the array itself is held by a
    /// descriptor or a pin.
    pub fn set_program(&self, index: u32, program: &LoadedProgram) -> Result<(), KernelError> {
        let fd = program.as_fd().as_raw_fd() as u32;
        self.update(&index.to_ne_bytes(), &fd.to_ne_bytes())
    }

    /// Id of the program in slot `index` of a program array.
    pub fn program_at(&self, index: u32) -> Result<Option<u32>, KernelError> {
        let found = self.lookup(&index.to_ne_bytes())?;
        Ok(found
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes))
    }

    /// The values of an array map declared `BPF_F_MMAPABLE` as memory.
    pub fn mmap(&self) -> Result<MmapArray, KernelError> {
        let value = (self.definition.value as usize).next_multiple_of(8);
        MmapArray::new(self.fd.as_fd(), value * self.definition.entries as usize).map_err(|e| {
            KernelError::sys(
                format!(
                    "map the memory of {} (is it an array with BPF_F_MMAPABLE?)",
                    self.name
                ),
                e,
            )
        })
    }

    /// A reader, of a ring buffer.
    pub fn event_ring(&self) -> Result<EventRing, KernelError> {
        EventRing::open(self.fd.as_fd())
            .map_err(|e| KernelError::sys(format!("read ring buffer {}", self.name), e))
    }

    /// Whether it has a value for each CPU.
    pub fn is_percpu(&self) -> bool {
        matches!(
            self.definition.kind,
            libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY
                | libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH
                | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
        )
    }

    fn value_bytes(&self) -> usize {
        let value = self.definition.value as usize;
        if self.is_percpu() {
            value.next_multiple_of(8) * self.cpus
        } else {
            value
        }
    }

    fn check(&self, what: &str, want: usize, got: usize) -> Result<(), KernelError> {
        if want == got {
            return Ok(());
        }
        Err(KernelError::WrongSize {
            what: format!("a {what} of map {}", self.name),
            want,
            got,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_the_values_lie_may_differ() {
        let one = MapDefinition {
            kind: 2,
            key: 4,
            value: 64,
            entries: 8,
            flags: 0,
        };
        let mapped = MapDefinition {
            flags: libbpf_sys::BPF_F_MMAPABLE,
            ..one
        };
        assert!(one.differs_in_place_only(mapped) && mapped.differs_in_place_only(one));
        assert!(!one.differs_in_place_only(one));
        let larger = MapDefinition {
            entries: 16,
            ..mapped
        };
        assert!(!one.differs_in_place_only(larger));
        let other = MapDefinition {
            flags: libbpf_sys::BPF_F_MMAPABLE | 1,
            ..one
        };
        assert!(!one.differs_in_place_only(other));
    }

    #[test]
    fn kinds_have_names_both_ways() {
        assert_eq!(
            MapDefinition::kind_named("ringbuf"),
            Some(libbpf_sys::BPF_MAP_TYPE_RINGBUF)
        );
        assert_eq!(
            MapDefinition::kind_named("lpm_trie"),
            Some(libbpf_sys::BPF_MAP_TYPE_LPM_TRIE)
        );
        assert_eq!(MapDefinition::kind_named("unknown"), None);
        let array = MapDefinition {
            kind: libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY,
            key: 4,
            value: 8,
            entries: 1,
            flags: 0x400,
        };
        assert_eq!(
            array.to_string(),
            "percpu_array of 1 entries, key 4 bytes, value 8 bytes, flags 0x400"
        );
    }
}

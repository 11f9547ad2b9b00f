//! What a map is created from, and which definitions the kernel refuses.
//!
//! Invariant: a definition that [`check`] lets pass is one `BPF_MAP_CREATE` takes, sizes aside.

use thiserror::Error;

use super::{
    BPF_F_NO_PREALLOC, BPF_F_RDONLY, BPF_F_RDONLY_PROG, BPF_F_WRONLY, BPF_F_WRONLY_PROG, MapKind,
};

/// What a map is created from.
#[derive(Clone, Debug)]
pub struct MapDefinition {
    /// Name of the variable in the object.
    pub name: String,
    /// Kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of one CPU's value.
    pub value_size: u32,
    /// Elements; bytes for a ring buffer.
    pub max_entries: u32,
    /// Creation flags as in Linux.
    pub flags: u32,
    /// The value has a `struct bpf_spin_lock`.
    pub has_spin_lock: bool,
    /// Offset of that lock in the value.
    pub(crate) lock_at: u32,
    /// Kind of map the values name, for maps of maps.
    pub inner: Option<Box<MapDefinition>>,
    /// Type of the key in the object's BTF, where the definition names one.
    pub key_type: Option<u32>,
    /// Type of the value, or the data section's.
    pub value_type: Option<u32>,
    /// `map_extra`: number of hash functions of a Bloom filter (its low four bits).
    pub extra: u64,
}

impl MapDefinition {
    /// Whether programs may write values: not those of device maps, whatever the flags.
    pub(crate) fn is_writable_by_programs(&self) -> bool {
        self.flags & BPF_F_RDONLY_PROG == 0
            && !matches!(self.kind, MapKind::DevMap | MapKind::DevMapHash)
    }

    /// A definition without flags, types and inner map.
    pub fn new(
        name: &str,
        kind: MapKind,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> MapDefinition {
        MapDefinition {
            name: name.to_owned(),
            kind,
            key_size,
            value_size,
            max_entries,
            flags: 0,
            has_spin_lock: false,
            lock_at: 0,
            inner: None,
            key_type: None,
            value_type: None,
            extra: 0,
        }
    }
}

/// Why a definition cannot become a map.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MapDefinitionError {
    /// The kernel refuses this combination.
    #[error("map {map}: {reason}")]
    Invalid {
        /// Map.
        map: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Above a limit of this engine.
    #[error(
        "map {map}: {entries} entries of {value_size} bytes exceed this engine's limit; set fewer entries before loading"
    )]
    TooLarge {
        /// Map.
        map: String,
        /// Elements.
        entries: u32,
        /// Bytes per value.
        value_size: u32,
    },
}

pub(super) fn check(d: &MapDefinition) -> Result<(), MapDefinitionError> {
    use MapKind::*;
    let invalid = |reason| {
        Err(MapDefinitionError::Invalid {
            map: d.name.clone(),
            reason,
        })
    };
    if d.kind == RingBuf {
        if d.max_entries < 4096 || !d.max_entries.is_power_of_two() {
            return invalid("a ring buffer's size must be a power of two and at least 4096");
        }
        if d.key_size != 0 || d.value_size != 0 {
            return invalid("a ring buffer has neither key nor value size");
        }
        return Ok(());
    }
    if d.kind.is_storage() {
        if d.key_size != 4 || d.max_entries != 0 || d.flags & BPF_F_NO_PREALLOC == 0 {
            return invalid(
                "storage has keys of 4 bytes, no max_entries, and needs the flag BPF_F_NO_PREALLOC",
            );
        }
        if d.value_size == 0 {
            return invalid("value size is 0");
        }
        return Ok(());
    }
    if d.kind == UserRingBuf {
        if d.max_entries < 4096 || !d.max_entries.is_power_of_two() {
            return invalid("a ring buffer's size must be a power of two and at least 4096");
        }
        if d.key_size != 0 || d.value_size != 0 {
            return invalid("a ring buffer has neither key nor value size");
        }
        return Ok(());
    }
    if d.max_entries == 0 {
        return invalid("max_entries is 0; set it before loading");
    }
    let both = |a, b| d.flags & (a | b) == (a | b);
    if both(BPF_F_RDONLY, BPF_F_WRONLY) || both(BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG) {
        return invalid("a map that can neither be read nor written");
    }
    if matches!(d.kind, Queue | Stack | BloomFilter) {
        if d.key_size != 0 {
            return invalid("a map of this kind has no key");
        }
        if d.kind == BloomFilter && d.extra & !15 != 0 {
            return invalid(
                "map_extra of a Bloom filter is the number of its hash functions, at most 15",
            );
        }
        return if d.value_size == 0 {
            invalid("value size is 0")
        } else {
            Ok(())
        };
    }
    if d.key_size == 0 || d.key_size > 512 {
        return invalid("key size must be 1 to 512 bytes");
    }
    if d.value_size == 0 {
        return invalid("value size is 0");
    }
    match d.kind {
        Array | PercpuArray | ProgArray | PerfEventArray | ArrayOfMaps | DevMap | CpuMap
        | XskMap | SockMap | CgroupArray | StackTrace
            if d.key_size != 4 =>
        {
            invalid("keys of arrays have 4 bytes")
        }
        StackTrace if !d.value_size.is_multiple_of(8) => {
            invalid("values of stack traces are a multiple of 8 bytes long")
        }
        SockMap | SockHash if d.value_size != 4 && d.value_size != 8 => {
            invalid("values of this kind have 4 or 8 bytes")
        }
        ProgArray | PerfEventArray | ArrayOfMaps | HashOfMaps | XskMap | CgroupArray
            if d.value_size != 4 =>
        {
            invalid("values of this kind have 4 bytes")
        }
        DevMap | DevMapHash | CpuMap if d.value_size != 4 && d.value_size != 8 => {
            invalid("values of this kind have 4 or 8 bytes")
        }
        LpmTrie if d.key_size < 5 || d.key_size > 260 => {
            invalid("a prefix map's key is a 4-byte length and 1 to 256 bytes of data")
        }
        LpmTrie if d.flags & BPF_F_NO_PREALLOC == 0 => {
            invalid("a prefix map needs the flag BPF_F_NO_PREALLOC")
        }
        _ => Ok(()),
    }
}

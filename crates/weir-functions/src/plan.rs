//! What an engine needs to run one instance of a function: object, constants, map contents.

use zerocopy::{Immutable, IntoBytes};

/// One instance of a function, ready for any engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancePlan {
    /// Name of the object in `weir_bpf::OBJECTS`.
    pub object: &'static str,
    /// Name of the program in it.
    pub program: &'static str,
    /// Load-time constants: symbol and bytes. A port adds its own (see [`PortConstants`]).
    pub constants: Vec<(&'static str, Vec<u8>)>,
    /// Maps with contents or a size of their own.
    pub maps: Vec<MapPlan>,
}

/// Size and contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPlan {
    /// Name in the object.
    pub name: &'static str,
    /// Elements to make room for, at least 1.
    pub max_entries: u32,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Keys, one behind the other.
    pub keys: Vec<u8>,
    /// Values in the order of the keys.
    pub values: Vec<u8>,
}

impl MapPlan {
    /// An array with these elements from index 0.
    pub fn array<T: IntoBytes + Immutable>(name: &'static str, elements: &[T]) -> MapPlan {
        MapPlan {
            name,
            max_entries: (elements.len() as u32).max(1),
            key_size: 4,
            value_size: size_of::<T>(),
            keys: (0..elements.len() as u32)
                .flat_map(u32::to_ne_bytes)
                .collect(),
            values: elements.as_bytes().to_vec(),
        }
    }

    /// With room for so many elements behind its contents.
    #[must_use]
    pub fn with_room(mut self, elements: u32) -> MapPlan {
        let filled = (self.keys.len() / self.key_size) as u32;
        self.max_entries = (filled + elements).max(1);
        self
    }

    /// A map of this size without contents.
    pub fn empty(name: &'static str, max_entries: usize, value_size: usize) -> MapPlan {
        MapPlan {
            name,
            max_entries: (max_entries as u32).max(1),
            key_size: 4,
            value_size,
            keys: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Pairs of key and value.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys
            .chunks_exact(self.key_size)
            .zip(self.values.chunks_exact(self.value_size))
    }
}

/// How checksums of packets at a port are to be read (DESIGN section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumMode {
    /// Packets carry finished checksums: hardware, captures.
    #[default]
    Complete,
    /// Local packets may carry the pseudo-header sum only: veth, tap, virtio.
    Offloaded,
}

/// The constants that differ between the ports of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConstants {
    /// weir's number of the port.
    pub port: u32,
    /// Checksum mode.
    pub checksums: ChecksumMode,
    /// Largest L3 packet the port carries, in bytes; `None`: no limit.
    pub mtu: Option<u32>,
    /// Time, randomness, port and queue come from the replay map.
    pub replay: bool,
}

impl PortConstants {
    /// Symbols and bytes.
    pub fn constants(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mode = match self.checksums {
            ChecksumMode::Complete => weir_bpf::abi::csum::COMPLETE,
            ChecksumMode::Offloaded => weir_bpf::abi::csum::OFFLOADED,
        };
        vec![
            ("weir_port", self.port.to_ne_bytes().to_vec()),
            ("weir_csum_mode", mode.to_ne_bytes().to_vec()),
            ("weir_mtu", self.mtu.unwrap_or(0).to_ne_bytes().to_vec()),
            ("weir_replay", u32::from(self.replay).to_ne_bytes().to_vec()),
        ]
    }
}

/// A port a policy may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// weir's number, 0 to 65,535.
    pub number: u32,
    /// Interface name, if it has one.
    pub name: Option<String>,
    /// Interface index, as `in 3` names it.
    pub index: u32,
}

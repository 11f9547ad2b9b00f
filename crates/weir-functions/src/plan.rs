//! What an engine needs to run one instance of a function: object, constants, map contents.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

/// One instance of a function, ready for any engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancePlan {
    /// The object that holds the program.
    pub object: ObjectSource,
    /// Name of the program in it.
    pub program: Cow<'static, str>,
    /// Load-time constants: symbol and bytes. A port adds its own (see [`PortConstants`]).
    pub constants: Vec<Constant>,
    /// Maps with contents or a size of their own.
    pub maps: Vec<MapPlan>,
}

/// A load-time constant: symbol and bytes.
pub type Constant = (Cow<'static, str>, Vec<u8>);

/// Where the object of an instance comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum ObjectSource {
    /// One of weir's own, by its name in `weir_bpf::OBJECTS`.
    Embedded(&'static str),
    /// Somebody's object, made part of a chain.
    Linked {
        /// The object as it is to be loaded, in ELF.
        bytes: Arc<[u8]>,
        /// The same for a graph that is watched.
        watched: Arc<[u8]>,
        /// The file it was made from.
        from: PathBuf,
    },
}

impl ObjectSource {
    /// The object in ELF; `None` if none is embedded under its name.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            ObjectSource::Embedded(name) => weir_bpf::object(name),
            ObjectSource::Linked { bytes, .. } => Some(bytes),
        }
    }

    /// The object in the form for graphs, or for graphs that are watched; `None` if none is embedded under its name.
    pub fn for_graph(&self, watched: bool) -> Option<&[u8]> {
        match self {
            ObjectSource::Embedded(name) => {
                let form = if watched { "watched" } else { "graph" };
                weir_bpf::object(&format!("{name}_{form}"))
            }
            ObjectSource::Linked { watched: it, .. } if watched => Some(it),
            ObjectSource::Linked { bytes, .. } => Some(bytes),
        }
    }

    /// The object in the form for ports of graphs on tc, or of graphs that are watched; `None` if it has none.
    pub fn for_graph_on_tc(&self, watched: bool) -> Option<&[u8]> {
        match self {
            ObjectSource::Embedded(name) => {
                let form = if watched { "watched" } else { "graph" };
                weir_bpf::object(&format!("{name}_{form}_tc"))
            }
            ObjectSource::Linked { .. } => None,
        }
    }

    /// The object in the form for virtual networks, or for those that are watched; `None` if it has none.
    pub fn for_networks(&self, watched: bool) -> Option<&[u8]> {
        let form = if watched { "net_watched" } else { "net" };
        match self {
            ObjectSource::Embedded(name) => weir_bpf::object(&format!("{name}_{form}")),
            ObjectSource::Linked { .. } => None,
        }
    }
}

impl fmt::Display for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectSource::Embedded(name) => f.write_str(name),
            ObjectSource::Linked { from, .. } => from.display().fmt(f),
        }
    }
}

impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectSource::Embedded(name) => write!(f, "Embedded({name})"),
            ObjectSource::Linked { bytes, from, .. } => {
                write!(f, "Linked({}, {} bytes)", from.display(), bytes.len())
            }
        }
    }
}

/// Size and contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPlan {
    /// Name in the object.
    pub name: Cow<'static, str>,
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
    /// More values, each the index of an interface, which only the host knows: key and name of the interface.
    pub devices: Vec<(u32, String)>,
    /// More elements with parts that only the host knows.
    pub host: Vec<HostElement>,
}

/// An element of a map in which a device is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostElement {
    /// Name of the device.
    pub device: String,
    /// weir's number of its port, which stands for its index where there is no host; 0: it is no port.
    pub port: u32,
    /// The key; `None`: the index of the device.
    pub key: Option<Vec<u8>>,
    /// The value, zero where the host completes it.
    pub value: Vec<u8>,
    /// Where it does.
    pub fields: Vec<(usize, DeviceField)>,
    /// The element is there only if the index of the device is below this; 0: whatever it is.
    pub below: u32,
}

/// What the host knows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceField {
    /// Its index, 4 bytes.
    Index,
    /// Its link-layer address, 6 bytes; zeros where there is no host.
    Mac,
    /// The largest L3 packet it carries, 4 bytes; 0 where there is no host.
    Mtu,
}

/// A device as a host, or a replay without one, describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its index.
    pub index: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// The largest L3 packet it carries.
    pub mtu: u32,
}

impl HostElement {
    /// Key and value on a host; `None`: the element is not there.
    pub fn complete(&self, facts: &DeviceFacts) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.below != 0 && facts.index >= self.below {
            return None;
        }
        let mut value = self.value.clone();
        for (at, field) in &self.fields {
            let bytes: Vec<u8> = match field {
                DeviceField::Index => facts.index.to_ne_bytes().to_vec(),
                DeviceField::Mac => facts.mac.to_vec(),
                DeviceField::Mtu => facts.mtu.to_ne_bytes().to_vec(),
            };
            if let Some(place) = value.get_mut(*at..*at + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
        let key = self.key.clone();
        let key = key.unwrap_or_else(|| facts.index.to_ne_bytes().to_vec());
        Some((key, value))
    }

    /// Key and value where there is no host: weir's number of the port is the index.
    pub fn alone(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.complete(&DeviceFacts {
            index: self.port,
            ..DeviceFacts::default()
        })
    }
}

impl MapPlan {
    /// A map of devices with these from index 0.
    pub fn devices(name: impl Into<Cow<'static, str>>, devices: &[String]) -> MapPlan {
        MapPlan {
            devices: (0..).zip(devices.iter().cloned()).collect(),
            ..MapPlan::empty(name, devices.len(), 4)
        }
    }

    /// An array with these elements from index 0.
    pub fn array<T: IntoBytes + Immutable>(
        name: impl Into<Cow<'static, str>>,
        elements: &[T],
    ) -> MapPlan {
        MapPlan {
            name: name.into(),
            max_entries: (elements.len() as u32).max(1),
            key_size: 4,
            value_size: size_of::<T>(),
            keys: (0..elements.len() as u32)
                .flat_map(u32::to_ne_bytes)
                .collect(),
            values: elements.as_bytes().to_vec(),
            devices: Vec::new(),
            host: Vec::new(),
        }
    }

    /// With room for so many elements behind its contents.
    #[must_use]
    pub fn with_room(mut self, elements: u32) -> MapPlan {
        let filled = self.keys.len() / self.key_size + self.devices.len() + self.host.len();
        let filled = filled as u32;
        self.max_entries = (filled + elements).max(1);
        self
    }

    /// A map of this size without contents.
    pub fn empty(
        name: impl Into<Cow<'static, str>>,
        max_entries: usize,
        value_size: usize,
    ) -> MapPlan {
        MapPlan {
            name: name.into(),
            max_entries: (max_entries as u32).max(1),
            key_size: 4,
            value_size,
            keys: Vec::new(),
            values: Vec::new(),
            devices: Vec::new(),
            host: Vec::new(),
        }
    }

    /// Whether configuration says what is in it, so that it is no state.
    pub fn has_contents(&self) -> bool {
        !self.keys.is_empty() || !self.devices.is_empty() || !self.host.is_empty()
    }

    /// Pairs of key and value, without those of `devices`.
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
    pub fn constants(&self) -> Vec<Constant> {
        let mode = match self.checksums {
            ChecksumMode::Complete => weir_bpf::abi::csum::COMPLETE,
            ChecksumMode::Offloaded => weir_bpf::abi::csum::OFFLOADED,
        };
        vec![
            ("weir_port".into(), self.port.to_ne_bytes().to_vec()),
            ("weir_csum_mode".into(), mode.to_ne_bytes().to_vec()),
            (
                "weir_mtu".into(),
                self.mtu.unwrap_or(0).to_ne_bytes().to_vec(),
            ),
            (
                "weir_replay".into(),
                u32::from(self.replay).to_ne_bytes().to_vec(),
            ),
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

//! What the networks of an edge remember of themselves, in pinned maps for each generation: the numbers that were given out and what is
//! attached where; and the document, by itself, because changes need not read it.
//!
//! Invariant: the state that holds is the latest one whose generation its set's word has. All others are of applies that did not reach
//! their switch, or are past.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_kernel::pinned::{self, Folder};
use weir_kernel::{KernelError, Map};
use weir_network::Numbers;

use super::apply::Role;
use super::layout::Capacity;
use crate::edge::state::InstanceState;

/// Version of this text and of what it describes.
pub(super) const LAYOUT: u32 = 2;

/// Everything about one generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) layout: u32,
    /// Inode of the namespace of its devices.
    pub(super) netns: u64,
    pub(super) generation: u64,
    /// Which set of maps and programs, how large it is, and what it was made from.
    pub(super) set: u64,
    pub(super) capacity: Capacity,
    pub(super) digest: String,
    pub(super) devices: Vec<DeviceState>,
    /// Names of devices of workloads that did not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<String>,
    /// Index of the end of the pair that packets go around by.
    pub(super) pair: u32,
    /// Functions with programs of their own.
    pub(super) functions: Vec<InstanceState>,
    /// Version of the document.
    pub(super) version: u64,
    /// What the planner gave out.
    pub(super) numbers: Arc<Numbers>,
}

/// A device that runs a program of the set's. There may be many thousands: they are written as lists, not by the names of their fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "DeviceText", into = "DeviceText")]
pub(super) struct DeviceState {
    pub(super) name: String,
    pub(super) ifindex: u32,
    /// Which program it runs.
    pub(super) role: Role,
    /// Whether it is a veth whose other end lies in another namespace.
    pub(super) elsewhere: bool,
    /// Whether a pinned tcx link holds it; else it is a filter of clsact.
    pub(super) tcx: bool,
    /// Of a filter: weir made the qdisc.
    pub(super) made_qdisc: bool,
}

/// In the order of the fields.
type DeviceText = (String, u32, Role, bool, bool, bool);

impl From<DeviceText> for DeviceState {
    fn from((name, ifindex, role, elsewhere, tcx, made_qdisc): DeviceText) -> DeviceState {
        DeviceState {
            name,
            ifindex,
            role,
            elsewhere,
            tcx,
            made_qdisc,
        }
    }
}

impl From<DeviceState> for DeviceText {
    fn from(one: DeviceState) -> DeviceText {
        (
            one.name,
            one.ifindex,
            one.role,
            one.elsewhere,
            one.tcx,
            one.made_qdisc,
        )
    }
}

/// What an apply is about to attach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Taking {
    pub(super) devices: Vec<DeviceState>,
}

pub(super) fn state_pin(generation: u64) -> String {
    format!("state-{generation}")
}

pub(super) fn text_pin(generation: u64) -> String {
    format!("text-{generation}")
}

pub(super) fn taking_pin(generation: u64) -> String {
    format!("taking-{generation}")
}

/// The generation in the name of a pin that begins with `prefix`.
pub(super) fn generation_of(pin: &str, prefix: &str) -> Option<u64> {
    pin.strip_prefix(prefix)?.parse().ok()
}

/// Puts a text into a pinned map.
pub(super) fn write<T: Serialize>(folder: &Folder, pin: &str, what: &T) -> Result<(), KernelError> {
    let text = serde_json::to_vec(what).map_err(|e| KernelError::Sys {
        what: format!("write down {pin}"),
        source: e.into(),
    })?;
    pinned::write_text(&folder.path().join(pin), "net_state", &text)
}

/// Puts the document of a generation beside its state.
pub(super) fn write_document(
    folder: &Folder,
    generation: u64,
    text: &str,
) -> Result<(), KernelError> {
    let path = folder.path().join(text_pin(generation));
    pinned::write_text(&path, "net_document", text.as_bytes())
}

/// The document of a generation, or why there is none.
pub(super) fn read_document(folder: &Path, generation: u64) -> Result<String, String> {
    let map = Map::open(&folder.join(text_pin(generation))).map_err(|e| e.to_string())?;
    let text = pinned::read_text(&map.ok_or("the document is missing")?)?;
    String::from_utf8(text).map_err(|e| e.to_string())
}

/// The text in a pinned map, or why it is none.
pub(super) fn read<T: for<'de> Deserialize<'de>>(map: &Map) -> Result<T, String> {
    let text = pinned::read_text(map)?;
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

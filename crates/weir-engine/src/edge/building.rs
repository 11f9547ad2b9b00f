//! What an apply has made so far, so that it can be unmade: pins of links and maps, slots, the pair.
//!
//! Invariant: dropped before [`Building::keep`], it leaves the edge as it was; what a killed process could not unmade is told from
//! what runs by the state, which names everything that does.

use std::path::PathBuf;

use weir_kernel::pinned::{Folder, PinnedLink};
use weir_kernel::{LoadedProgram, Map, netlink};

use super::maps::EdgeMaps;

/// Things made since the last generation.
#[derive(Debug)]
pub(super) struct Building<'e> {
    folder: &'e Folder,
    /// The arrays of programs, each with what fills slots of it that no instance has.
    arrays: Vec<(&'e Map, &'e LoadedProgram)>,
    links: Vec<PathBuf>,
    pins: Vec<String>,
    slots: Vec<u32>,
    devices: Vec<u32>,
    maps: &'e EdgeMaps,
    pair: Option<String>,
    kept: bool,
}

impl<'e> Building<'e> {
    pub(super) fn new(
        folder: &'e Folder,
        arrays: Vec<(&'e Map, &'e LoadedProgram)>,
        maps: &'e EdgeMaps,
    ) -> Building<'e> {
        Building {
            folder,
            arrays,
            links: Vec::new(),
            pins: Vec::new(),
            slots: Vec::new(),
            devices: Vec::new(),
            maps,
            pair: None,
            kept: false,
        }
    }

    /// The path of a link that is about to be pinned.
    pub(super) fn link(&mut self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        self.links.push(path.clone());
        path
    }

    /// A pin of something that is no attachment.
    pub(super) fn pin(&mut self, name: &str) -> PathBuf {
        self.pins.push(name.to_owned());
        self.folder.path().join(name)
    }

    /// A slot that is about to be filled.
    pub(super) fn slot(&mut self, slot: u32) {
        self.slots.push(slot);
    }

    /// A place of the map of devices that is about to be filled.
    pub(super) fn device(&mut self, place: u32) {
        self.devices.push(place);
    }

    /// A device that is about to be made.
    pub(super) fn pair(&mut self, near: &str) {
        self.pair = Some(near.to_owned());
    }

    /// It runs now.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // What fails here is found and removed by the next apply or by `weir down`: the state does not name it.
        for path in &self.links {
            if let Ok(Some(link)) = PinnedLink::open(path) {
                let _ = link.remove();
            }
        }
        for place in &self.devices {
            let _ = self.maps.set_device(*place, None);
        }
        if let Some(near) = &self.pair {
            let _ = netlink::remove(near);
        }
        for name in &self.pins {
            let _ = self.folder.unlink(name);
        }
        for (programs, stub) in &self.arrays {
            for slot in &self.slots {
                let _ = programs.set_program(*slot, stub);
            }
        }
    }
}

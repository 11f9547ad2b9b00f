//! Where edges lie in bpffs: their names, the lock of one, and the state that holds.

use std::path::{Path, PathBuf};

use weir_kernel::pinned::{self, Folder};
use weir_kernel::{Map, netns};

use super::error::EdgeError;
use super::maps::EdgeMaps;
use super::state::{self, State};

/// The folder of all edges.
pub const FOLDER: &str = "/sys/fs/bpf/weir/edge";

/// Names of the edges that run in the current namespace, and of those whose state cannot be read.
///
/// # Errors
/// The folder cannot be read.
pub fn list() -> Result<Vec<String>, EdgeError> {
    let here = netns::current_inode()?;
    let mut found = Vec::new();
    for name in pinned::names(Path::new(FOLDER))? {
        match state_of(&name) {
            Ok(Some(state)) if state.netns != here => {}
            Ok(None) => {}
            // One that cannot be read does not hide the others.
            Ok(Some(_)) | Err(_) => found.push(name),
        }
    }
    Ok(found)
}

/// [`read_state`] of an edge by its name; `None` as well where its folder lacks maps.
pub(super) fn state_of(name: &str) -> Result<Option<State>, EdgeError> {
    let folder = Path::new(FOLDER).join(name);
    match EdgeMaps::open(&folder)? {
        Some(maps) => read_state(name, &folder, &maps),
        None => Ok(None),
    }
}

/// The state of the generation that packets follow; `None` if there never was one.
pub(super) fn read_state(
    name: &str,
    folder: &Path,
    maps: &EdgeMaps,
) -> Result<Option<State>, EdgeError> {
    let mut generation = maps.generation()?;
    if generation == 0 {
        return Ok(None);
    }
    let damaged = |why: String| EdgeError::Damaged {
        name: name.to_owned(),
        why,
    };
    let map = loop {
        let pin = state::pin_name(generation);
        if let Some(map) = Map::open(&folder.join(&pin))? {
            break map;
        }
        // A generation that is switched away from meanwhile takes its state with it.
        let now = maps.generation()?;
        if now == generation {
            return Err(damaged(format!("{pin} is gone")));
        }
        generation = now;
    };
    let state = state::read(&map).map_err(damaged)?;
    if state.maps_layout != weir_bpf::abi::STATE_LAYOUT {
        return Err(EdgeError::OtherVersion {
            name: name.to_owned(),
            what: format!(
                "its maps have layout {}, those of this one {}",
                state.maps_layout,
                weir_bpf::abi::STATE_LAYOUT
            ),
        });
    }
    Ok(Some(state))
}

pub(super) fn lock(name: &str, path: &Path) -> Result<Folder, EdgeError> {
    Folder::lock(path)?.ok_or_else(|| EdgeError::Busy(name.to_owned()))
}

pub(super) fn folder_of(name: &str) -> Result<PathBuf, EdgeError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (1..=32).contains(&name.len()) && name.chars().all(fits) {
        true => Ok(Path::new(FOLDER).join(name)),
        false => Err(EdgeError::BadName(name.to_owned())),
    }
}

pub(super) fn not_running(name: &str) -> Result<EdgeError, EdgeError> {
    Ok(EdgeError::NotRunning {
        name: name.to_owned(),
        others: list()?,
    })
}

//! Where loaded programs are kept: `/sys/fs/bpf/weir/prog/<id>-<name>/` with `program`, `map-<name>` for each map and
//! `link-<netns inode>-<ifindex>-<mode>` for each interface.
//!
//! Owns these names and what they mean. Commands that change something hold the folder's lock. Invariant: a folder without `program`
//! was never finished; a `program-next` in it is a replacement that was begun, and is carried on by the next command that has the lock.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_kernel::pinned::{self, Folder, PinnedLink};
use weir_kernel::{KernelError, LoadedProgram, Map, iface, netns};

use crate::failure::Failure;

/// The folder of all of them.
const PROGRAMS: &str = "/sys/fs/bpf/weir/prog";
/// How long a command waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest name.
const NAME_MAX: usize = 64;

const PROGRAM: &str = "program";
const NEXT: &str = "program-next";
const MAP: &str = "map-";
const LINK: &str = "link-";

/// All loaded programs, for one command at a time.
pub(super) struct ProgramStore {
    folder: Folder,
}

impl ProgramStore {
    /// Waits for its turn, and tidies up behind commands that were killed.
    pub(super) fn lock() -> Result<ProgramStore, Failure> {
        let end = Instant::now() + PATIENCE;
        let folder = loop {
            if let Some(folder) = Folder::lock(Path::new(PROGRAMS)).map_err(Failure::failed)? {
                break folder;
            }
            if Instant::now() > end {
                return Err(Failure::failed(format!(
                    "another `weir prog` has held {PROGRAMS} for {} s: wait for it, or end it",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let store = ProgramStore { folder };
        for name in store.folder.names().map_err(Failure::failed)? {
            tidy(&store.folder.path().join(name)).map_err(Failure::failed)?;
        }
        Ok(store)
    }

    /// A new place under the lowest free number. It counts for nothing until it has its program.
    pub(super) fn make(&self, name: &str) -> Result<Kept, Failure> {
        let permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(permitted) {
            return Err(Failure::usage(format!(
                "{name:?} is not a valid program name: at most {NAME_MAX} letters, digits, - and _"
            )));
        }
        if name.chars().all(|c| c.is_ascii_digit()) {
            return Err(Failure::usage(format!(
                "{name:?} is a number, and numbers are assigned by weir; choose a name"
            )));
        }
        let all = kept()?;
        if let Some(other) = all.iter().find(|k| k.name == name) {
            return Err(Failure::usage(format!(
                "program {other} is loaded under that name: `weir prog replace {} OBJ` replaces it, --name keeps this one under another",
                other.id
            )));
        }
        let id = (1..)
            .find(|id| all.iter().all(|k| k.id != *id))
            .unwrap_or(u32::MAX);
        let path = self.folder.path().join(format!("{id}-{name}"));
        fs::create_dir(&path)
            .map_err(|e| Failure::failed(format!("cannot create {}: {e}", path.display())))?;
        Ok(Kept {
            id,
            name: name.to_owned(),
            path,
        })
    }

    /// Gives the folder up, and away if nothing is in it.
    pub(super) fn close(self) {
        // Not empty is as good as gone.
        let _ = self.folder.remove();
    }
}

/// A program that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: u32,
    pub(super) name: String,
    path: PathBuf,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.id, self.name)
    }
}

/// An interface that a kept program is on.
pub(super) struct ProgramAttachment {
    file: PathBuf,
    /// Inode of the network namespace.
    pub(super) netns: u64,
    pub(super) ifindex: u32,
    pub(super) mode: String,
}

impl ProgramAttachment {
    /// Name of the interface, if it is in this network namespace.
    pub(super) fn interface(&self) -> Option<String> {
        let here = netns::current_inode().ok()? == self.netns;
        here.then(|| iface::name_of(self.ifindex)).flatten()
    }

    /// The attachment.
    pub(super) fn link(&self) -> Result<Option<PinnedLink>, KernelError> {
        PinnedLink::open(&self.file)
    }
}

impl std::fmt::Display for ProgramAttachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.interface() {
            Some(name) => f.write_str(&name),
            None => write!(
                f,
                "interface {} of network namespace {}",
                self.ifindex, self.netns
            ),
        }
    }
}

/// All programs that are kept, by number.
pub(super) fn kept() -> Result<Vec<Kept>, Failure> {
    let names = pinned::names(Path::new(PROGRAMS)).map_err(Failure::failed)?;
    let mut all: Vec<Kept> = names
        .iter()
        .filter_map(|folder| {
            let (id, name) = folder.split_once('-')?;
            let path = Path::new(PROGRAMS).join(folder);
            let kept = Kept {
                id: id.parse().ok()?,
                name: name.to_owned(),
                path,
            };
            kept.path.join(PROGRAM).exists().then_some(kept)
        })
        .collect();
    all.sort_by_key(|k| k.id);
    Ok(all)
}

/// The program of that number or name.
pub(super) fn find(word: &str) -> Result<Kept, Failure> {
    let all = kept()?;
    let found = all
        .iter()
        .find(|k| k.name == word || k.id.to_string() == word);
    found.cloned().ok_or_else(|| {
        let known: Vec<String> = all.iter().map(Kept::to_string).collect();
        Failure::usage(match known.is_empty() {
            true => format!("no program {word:?} is loaded; `weir prog load OBJ` loads one"),
            false => format!(
                "no program {word:?} is loaded; there is {}",
                known.join(", ")
            ),
        })
    })
}

impl Kept {
    /// The program itself.
    pub(super) fn program(&self) -> Result<LoadedProgram, Failure> {
        let path = self.path.join(PROGRAM);
        let found = LoadedProgram::open(&path).map_err(Failure::failed)?;
        found.ok_or_else(|| Failure::failed(format!("{} is gone", path.display())))
    }

    /// Its maps by name; data sections are not among them.
    pub(super) fn maps(&self) -> Result<Vec<(String, Map)>, Failure> {
        let mut maps = Vec::new();
        for file in self.files(MAP)? {
            if let Some(map) = Map::open(&self.path.join(&file)).map_err(Failure::failed)? {
                maps.push((file[MAP.len()..].to_owned(), map));
            }
        }
        Ok(maps)
    }

    /// Where it runs.
    pub(super) fn places(&self) -> Result<Vec<ProgramAttachment>, Failure> {
        let place = |file: &String| {
            let mut parts = file[LINK.len()..].splitn(3, '-');
            Some(ProgramAttachment {
                file: self.path.join(file),
                netns: parts.next()?.parse().ok()?,
                ifindex: parts.next()?.parse().ok()?,
                mode: parts.next()?.to_owned(),
            })
        };
        Ok(self.files(LINK)?.iter().filter_map(place).collect())
    }

    /// Where it runs on an interface of this network namespace.
    pub(super) fn place_on(&self, ifindex: u32) -> Result<Option<ProgramAttachment>, Failure> {
        let here = netns::current_inode().map_err(Failure::failed)?;
        let mut all = self.places()?.into_iter();
        Ok(all.find(|p| p.netns == here && p.ifindex == ifindex))
    }

    /// Keeps an attachment to an interface of this network namespace.
    pub(super) fn keep_link(&self, link: &weir_kernel::Link, mode: &str) -> Result<(), Failure> {
        let here = netns::current_inode().map_err(Failure::failed)?;
        let file = format!("{LINK}{here}-{}-{mode}", link.ifindex());
        link.pin(&self.path.join(file)).map_err(Failure::failed)
    }

    /// Keeps a program for the first time, its maps first: the folder counts from the moment its program is there.
    pub(super) fn keep(&self, program: &LoadedProgram) -> Result<(), Failure> {
        self.keep_maps(program, &[])?;
        program
            .pin(&self.path.join(PROGRAM))
            .map_err(Failure::failed)
    }

    /// Puts `program` in the place of the one that is kept, on all its interfaces; `shared` are the maps that both have.
    /// If an interface refuses it, all have the old one again.
    pub(super) fn exchange(
        &self,
        program: &LoadedProgram,
        shared: &[String],
    ) -> Result<(), Failure> {
        let old = self.program()?;
        program
            .pin(&self.path.join(NEXT))
            .map_err(Failure::failed)?;
        let mut done = Vec::new();
        for place in self.places()? {
            let Some(link) = place.link().map_err(Failure::failed)? else {
                continue;
            };
            if !link.is_attached().map_err(Failure::failed)? {
                continue;
            }
            if let Err(error) = link.update(program) {
                for link in done {
                    let _: Result<(), KernelError> = PinnedLink::update(&link, &old);
                }
                let _ = fs::remove_file(self.path.join(NEXT));
                return Err(Failure::failed(format!(
                    "{place} does not take it, so nothing was replaced: {error}"
                )));
            }
            done.push(link);
        }
        self.keep_maps(program, shared)?;
        rename(&self.path, NEXT, PROGRAM).map_err(Failure::failed)
    }

    /// Pins the maps of a program but those that are pinned already, and removes the pins of maps that it does not have.
    fn keep_maps(&self, program: &LoadedProgram, shared: &[String]) -> Result<(), Failure> {
        let names: Vec<&str> = program
            .map_names()
            .into_iter()
            .filter(|n| !n.starts_with('.'))
            .collect();
        for file in self.files(MAP)? {
            let name = &file[MAP.len()..];
            if !names.contains(&name) || !shared.iter().any(|s| s == name) {
                remove(&self.path.join(&file)).map_err(Failure::failed)?;
            }
        }
        for name in names {
            let path = self.path.join(format!("{MAP}{name}"));
            if !path.exists() {
                let map = Map::of(program, name).map_err(Failure::failed)?;
                map.pin(&path).map_err(Failure::failed)?;
            }
        }
        Ok(())
    }

    /// Takes everything away: the program first, so that what may be left counts for nothing.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        remove(&self.path.join(PROGRAM)).map_err(Failure::failed)?;
        clear(&self.path).map_err(Failure::failed)
    }

    fn files(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let mut names = pinned::names(&self.path).map_err(Failure::failed)?;
        names.retain(|n| n.starts_with(prefix));
        Ok(names)
    }
}

/// Brings a folder in order that a killed command left: one without a program goes, a replacement that was begun is carried on, and
/// links whose device is gone go.
fn tidy(folder: &Path) -> Result<(), KernelError> {
    if !folder.join(PROGRAM).exists() {
        return clear(folder);
    }
    let next = LoadedProgram::open(&folder.join(NEXT))?;
    for file in pinned::names(folder)? {
        if !file.starts_with(LINK) {
            continue;
        }
        let Some(link) = PinnedLink::open(&folder.join(file))? else {
            continue;
        };
        match (&next, link.is_attached()?) {
            (_, false) => link.remove()?,
            (Some(next), true) => link.update(next)?,
            (None, true) => {}
        }
    }
    match next {
        Some(_) => rename(folder, NEXT, PROGRAM),
        None => Ok(()),
    }
}

/// Takes programs off interfaces, unpins all, removes the folder.
fn clear(folder: &Path) -> Result<(), KernelError> {
    for file in pinned::names(folder)? {
        let path = folder.join(&file);
        match PinnedLink::open(&path)? {
            Some(link) if file.starts_with(LINK) => link.remove()?,
            _ => remove(&path)?,
        }
    }
    fs::remove_dir(folder).map_err(|source| KernelError::Sys {
        what: format!("remove {}", folder.display()),
        source,
    })
}

fn remove(path: &Path) -> Result<(), KernelError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(KernelError::Sys {
            what: format!("remove {}", path.display()),
            source,
        }),
        _ => Ok(()),
    }
}

fn rename(folder: &Path, from: &str, to: &str) -> Result<(), KernelError> {
    fs::rename(folder.join(from), folder.join(to)).map_err(|source| KernelError::Sys {
        what: format!("rename {from} to {to} in {}", folder.display()),
        source,
    })
}

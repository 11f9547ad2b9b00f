//! Second programs: those in elements of device and CPU maps, which run on what is redirected there.
//!
//! Owns putting them in and running them; the redirection itself is whoever moves the frames. Invariant: an element holds only
//! a program that was compiled for its kind of map, and it stands in the second word of the value as its number plus one.

use crate::frame::Frame;
use crate::interp::{Env, Fault};
use crate::machine::Machine;
use crate::maps::{BPF_ANY, MapKind};
use crate::object::LoadError;
use crate::program::{ProgramKind, XdpAttach};

impl Machine {
    /// Stores an element of a device map (`target` is an interface) or CPU map (a queue's length) with a program of this object that runs on
    /// what is redirected through it.
    ///
    /// # Errors
    /// [`LoadError::Reference`] when the map is of another kind, its values have no room for a program, or the program was not compiled for it;
    /// [`LoadError::NoProgram`].
    pub fn set_second_program(
        &mut self,
        map: &str,
        key: &[u8],
        target: u32,
        program: &str,
    ) -> Result<(), LoadError> {
        let (number, _) = self.program(program)?;
        let wrong = |reason: String| LoadError::Reference {
            map: map.to_owned(),
            reason,
        };
        let kind = self.map(map).map(|m| m.kind());
        let wanted = match kind {
            Some(MapKind::DevMap | MapKind::DevMapHash) => XdpAttach::Devmap,
            Some(MapKind::CpuMap) => XdpAttach::Cpumap,
            _ => {
                return Err(wrong(
                    "is not a device or CPU map of this object".to_owned(),
                ));
            }
        };
        match self.kind_of(number) {
            Some(ProgramKind::Xdp { attach, .. }) if *attach == wanted => {}
            other => {
                let other = other.map_or_else(String::new, ToString::to_string);
                let section = match wanted {
                    XdpAttach::Cpumap => "xdp/cpumap",
                    _ => "xdp/devmap",
                };
                return Err(wrong(format!(
                    "program {program} is {other}, its section must be {section}"
                )));
            }
        }
        let mut value = target.to_le_bytes().to_vec();
        value.extend_from_slice(&(number + 1).to_le_bytes());
        self.map_mut(map)
            .ok_or_else(|| wrong("is gone".to_owned()))?
            .update(key, &value, BPF_ANY)
            .map_err(|e| wrong(e.to_string()))
    }

    /// The program of an element of a device or CPU map; nothing when the element has none.
    pub fn second_program(&self, map: &str, key: &[u8]) -> Option<&str> {
        let map = self.map(map).filter(|m| m.kind().redirects())?;
        let word = map.value(key)?.get(4..)?.first_chunk::<4>()?;
        let number = u32::from_le_bytes(*word).checked_sub(1)?;
        self.program_name(number)
    }

    /// Runs the program of an element over a frame that was redirected there; nothing when it has none. Of the verdicts only pass and drop
    /// are of use behind a device map, and redirection, too, behind a CPU map.
    pub fn run_second(
        &mut self,
        map: &str,
        key: &[u8],
        frame: &mut Frame,
        env: &Env,
    ) -> Option<Result<u32, Fault>> {
        let second = self.second_program(map, key)?.to_owned();
        let first = self.selected_name()?.to_owned();
        // Both are programs of this machine: selecting cannot fail.
        self.select(&second).ok()?;
        let verdict = self.run_xdp(frame, env);
        self.select(&first).ok()?;
        Some(verdict)
    }
}

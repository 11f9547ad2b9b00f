//! Several objects in one machine: chains of functions that share maps and reach each other by tail calls.
//!
//! Owns the names things have in such a machine: `part/program`, `part/map`, and the plain name of what is shared. Linking is in `link`.
//! Invariant: maps of one shared name have one definition, and nothing but those maps is shared.

use std::collections::BTreeSet;

use crate::link::{self, MapName, Part};
use crate::machine::Machine;
use crate::object::{LoadError, Object};

/// Objects that will run in one machine.
///
/// A program called `program` of the part `shield` is `shield/program` to [`Machine::select`], [`Machine::set_tail_call`] and
/// [`verify`](crate::verify::verify), and its private maps are `shield/map`. Maps that several parts share are one, under the name
/// they share it by; programs of all parts can be put into program arrays of any.
#[derive(Debug, Default)]
pub struct Join {
    parts: Vec<Joined>,
}

#[derive(Debug)]
struct Joined {
    name: String,
    object: Object,
    maps: Vec<MapName>,
}

impl Join {
    /// Nothing yet.
    pub fn new() -> Join {
        Join::default()
    }

    /// Adds an object. `shared` is asked about each of its maps by the name in the object: the name it is shared under, or nothing
    /// for a map of its own. Sizes and constants are those set on the object.
    ///
    /// # Errors
    /// [`LoadError::Reference`] for a data section that is to be shared, for a name with a slash, and for a part of the same name.
    pub fn add(
        &mut self,
        name: &str,
        object: Object,
        shared: impl Fn(&str) -> Option<String>,
    ) -> Result<(), LoadError> {
        if name.contains('/') {
            return Err(LoadError::Reference {
                map: name.to_owned(),
                reason: "the name of a part cannot have a slash".to_owned(),
            });
        }
        if self.parts.iter().any(|p| p.name == name) {
            return Err(LoadError::Reference {
                map: name.to_owned(),
                reason: "two objects of one machine have this name".to_owned(),
            });
        }
        let mut maps = Vec::with_capacity(object.maps.len());
        for declared in &object.maps {
            let own = &declared.definition.name;
            maps.push(match shared(own) {
                None => MapName::Own(format!("{name}/{own}")),
                Some(_) if declared.is_data() => {
                    return Err(LoadError::Reference {
                        map: format!("{name}/{own}"),
                        reason: "data sections belong to their object and cannot be shared"
                            .to_owned(),
                    });
                }
                Some(shared) => MapName::Shared(shared),
            });
        }
        self.parts.push(Joined {
            name: name.to_owned(),
            object,
            maps,
        });
        Ok(())
    }

    /// Names of the parts, in the order they were added.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|p| p.name.as_str())
    }

    /// Links all parts and makes `program`, such as `shield/filter`, the one that runs. Per-CPU maps have values for as many CPUs
    /// as the part with most of them.
    ///
    /// # Errors
    /// [`LoadError`] as of [`Object::load`], in [`LoadError::Part`] where one object is to blame; [`LoadError::Shared`] for maps
    /// of one shared name that differ.
    pub fn load(self, program: &str) -> Result<Machine, LoadError> {
        let names: BTreeSet<&str> = self.parts().collect();
        let found = program.split_once('/');
        let Some((part, local)) = found.filter(|(part, _)| names.contains(part)) else {
            return Err(LoadError::NoProgram {
                name: program.to_owned(),
                known: names
                    .iter()
                    .map(|n| format!("{n}/..."))
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        };
        let parts: Vec<Part<'_>> = self
            .parts
            .iter()
            .map(|p| Part {
                name: Some(&p.name),
                object: &p.object,
                maps: p.maps.clone(),
            })
            .collect();
        let first = self.parts.iter().position(|p| p.name == part);
        link::link(&parts, first.unwrap_or(0), local)
    }
}

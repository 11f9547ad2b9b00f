//! What changes while a policy runs: its rules, the programs that carry them out, and their attachments.
//!
//! An edit is done in place where it fits; else all copies are loaded anew with new maps of rules and the maps of state they had, and take
//! the place of the old ones at every hook. Invariant: on error the rules, programs and maps that packets meet are those of before.

use std::collections::HashMap;

use weir_bpf::abi::Counter;
use weir_functions::middlebox::{self, Edit, Rebuild, RuleBook, Staged};
use weir_functions::plan::{InstancePlan, Port};
use weir_functions::report::Report;
use weir_kernel::pins;
use weir_kernel::{EventRing, Filter, KernelError, LoadedProgram};

use super::maps::clear;
use super::{
    AttachedPort, Attachment, FlowTable, Hook, LiveError, LoadedCopy, Place, RuleMaps, Sharing,
    SwitchedOff, load,
};

/// The part of a running policy that changes.
#[derive(Debug)]
pub struct Running {
    // Fields drop in order: programs leave the interfaces before offloads come back.
    /// Of each copy, by its index.
    links: Vec<(usize, Attachment)>,
    offloads: Vec<SwitchedOff>,
    copies: Vec<LoadedCopy>,
    maps: RuleMaps,
    book: RuleBook,
    ports: Vec<Port>,
    places: Vec<Place>,
    /// Counts of maps that grew, by slot.
    carried: HashMap<u32, Counter>,
    /// Tags may be hidden from some port.
    blind_to_vlan: bool,
}

/// What an edit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// Ids of the rules added.
    pub added: Vec<u32>,
    /// The state of the rules that began.
    pub generation: u64,
    /// The whole was laid out anew.
    pub rebuilt: bool,
}

impl Running {
    /// Loads all copies; nothing is attached yet.
    pub(super) fn load(
        book: RuleBook,
        plan: &InstancePlan,
        ports: Vec<Port>,
        places: Vec<Place>,
        blind_to_vlan: bool,
    ) -> Result<Running, LiveError> {
        let copies = load_all(plan, &places, &ports, &[], false)?;
        let maps = RuleMaps::of(first(&copies)?)?;
        Ok(Running {
            links: Vec::new(),
            offloads: Vec::new(),
            copies,
            maps,
            book,
            ports,
            places,
            carried: HashMap::new(),
            blind_to_vlan,
        })
    }

    /// The rules.
    pub fn book(&self) -> &RuleBook {
        &self.book
    }

    /// Maps of the present layout: name, entries, bytes of keys and values.
    pub fn map_sizes(&self) -> Vec<(String, u32, u64)> {
        let Some(copy) = self.copies.first() else {
            return Vec::new();
        };
        let names = copy.program.map_names().into_iter();
        let sizes = names.filter(|name| !name.starts_with('.')).map(|name| {
            let sizes = copy.program.map_sizes(name).ok()?;
            let bytes = u64::from(sizes.entries) * (sizes.key + sizes.value) as u64;
            Some((name.to_owned(), sizes.entries, bytes))
        });
        sizes.flatten().collect()
    }

    /// The table of connections; `None` if the rules keep none.
    pub fn flows(&self) -> Result<Option<FlowTable>, LiveError> {
        if !self.book.keeps_connections() {
            return Ok(None);
        }
        let table = FlowTable::of(first(&self.copies)?, self.book.connections())?;
        Ok(Some(table))
    }

    /// The policy file has become what runs.
    pub fn saved(&mut self) {
        self.book.saved();
    }

    /// Changes rules: all edits at once or, on error, none.
    pub fn edit(&mut self, edits: Vec<Edit>) -> Result<Edited, LiveError> {
        let rules = edits.iter().filter_map(|edit| match edit {
            Edit::Add(written) => Some(&written.rule),
            _ => None,
        });
        if self.blind_to_vlan && middlebox::names_vlan(rules) {
            return Err(LiveError::VlanLater);
        }
        let flushes = edits.iter().any(|edit| matches!(edit, Edit::Flush));
        let before = self.book.next_id();
        let mut rebuilt = match self.book.stage(edits)? {
            Staged::InPlace(step) => {
                self.maps.apply(first(&self.copies)?, &step)?;
                for slot in &step.fresh {
                    self.carried.remove(slot);
                }
                self.book.commit(*step);
                false
            }
            Staged::Rebuild(rebuild) => {
                self.rebuild(*rebuild)?;
                true
            }
        };
        if flushes && !rebuilt {
            // Dead rules cost their probes until they are laid out of the way; that it fails is no failure of the edit.
            rebuilt = self.compact().is_ok();
        }
        Ok(Edited {
            added: (before..self.book.next_id()).collect(),
            generation: self.book.generation(),
            rebuilt,
        })
    }

    /// Lays the whole out anew, so that what was added is found as fast as the rest and what was deleted costs nothing.
    pub fn compact(&mut self) -> Result<(), LiveError> {
        let rebuild = self.book.stage_compaction()?;
        self.rebuild(rebuild)
    }

    /// The counters of all ports and CPUs.
    pub fn report(&self) -> Result<Report, LiveError> {
        let counters = self.counters()?;
        let rules = self
            .book
            .entries()
            .map(|e| (e.rule.id, e.rule.name.as_deref()));
        let program = first(&self.copies)?;
        let stats = crate::kernel::stats(program)?;
        Ok(Report::of("kernel", rules.zip(counters), &stats))
    }

    /// The counters of each rule, in the order of the book.
    pub fn counters(&self) -> Result<Vec<Counter>, LiveError> {
        let program = first(&self.copies)?;
        let of = |slot: u32| -> Result<Counter, LiveError> {
            let mut counter = crate::kernel::counter(program, slot)?;
            if let Some(carried) = self.carried.get(&slot) {
                counter.packets += carried.packets;
                counter.bytes += carried.bytes;
            }
            Ok(counter)
        };
        self.book.entries().map(|entry| of(entry.slot)).collect()
    }

    pub(super) fn event_ring(&self) -> Result<EventRing, LiveError> {
        Ok(first(&self.copies)?.event_ring("events")?)
    }

    pub(super) fn keep_off(&mut self, off: SwitchedOff) {
        self.offloads.push(off);
    }

    /// Ports that no longer carry their program.
    pub(super) fn lost(&self) -> Vec<usize> {
        let mut lost: Vec<usize> = (self.links.iter())
            .filter(|(_, link)| !link.is_attached())
            .filter_map(|(index, _)| Some(self.copies.get(*index)?.port))
            .collect();
        lost.dedup();
        lost
    }

    /// Attaches all copies or none. Returns what the user should know.
    pub(super) fn attach(&mut self, ports: &mut [AttachedPort]) -> Result<Vec<String>, LiveError> {
        let mut links = Vec::with_capacity(self.copies.len());
        let mut filters = Vec::new();
        let mut made_qdisc_of = None;
        for (index, copy) in self.copies.iter().enumerate() {
            let port = &mut ports[copy.port];
            let ifindex = port.interface.ifindex;
            if let Hook::Xdp(mode) = port.hook {
                links.push((index, copy.program.attach_xdp(ifindex, mode)?));
                continue;
            }
            if port.hook == Hook::Tc {
                match copy.program.attach_tcx(ifindex, copy.direction) {
                    Ok(link) => {
                        links.push((index, link));
                        continue;
                    }
                    Err(KernelError::NoTcx) => port.hook = Hook::Clsact,
                    Err(error) => return Err(error.into()),
                }
            }
            let made_before = made_qdisc_of == Some(ifindex);
            let filter = Filter::attach(&copy.program, ifindex, copy.direction, made_before)?;
            if filter.made_qdisc() {
                made_qdisc_of = Some(ifindex);
            }
            filters.push((index, filter));
        }
        // Pinned only when all are attached: of links a process killed before leaves nothing.
        let pinning = pins::ensure_bpffs();
        for (index, filter) in filters {
            let held = pins::hold_filter(filter, &self.copies[index].program)?;
            self.links.push((index, Attachment::Filter(held)));
        }
        for (index, link) in links {
            let link = match pinning {
                Ok(()) => Attachment::Pinned(pins::hold(link)?),
                Err(_) => Attachment::Plain(link),
            };
            self.links.push((index, link));
        }
        Ok(match pinning {
            Ok(()) => Vec::new(),
            Err(error) => vec![format!(
                "running without pins: a killed `weir run` detaches itself, or leaves clsact filters that `tc filter del` removes: {error}"
            )],
        })
    }

    /// Takes everything off and restores offloads.
    pub(super) fn detach(&mut self) -> Result<(), LiveError> {
        let mut failed = None;
        for (_, link) in self.links.drain(..) {
            failed = failed.or(link.release().err());
        }
        self.offloads.clear();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn rebuild(&mut self, rebuild: Rebuild) -> Result<(), LiveError> {
        let grew = rebuild.counters_grew;
        let copies = load_all(&rebuild.plan, &self.places, &self.ports, &self.copies, grew)?;
        let program = first(&copies)?;
        let maps = RuleMaps::of(program)?;
        clear(program, &rebuild.fresh)?;
        if grew {
            self.hand_over_rates(program)?;
        }
        for done in 0..self.links.len() {
            let (index, link) = &mut self.links[done];
            if let Err(error) = link.replace(&copies[*index].program) {
                // Back to what ran before, everywhere.
                for (index, link) in &mut self.links[..done] {
                    let _ = link.replace(&self.copies[*index].program);
                }
                return Err(error.into());
            }
        }
        if grew {
            // Packets on their way count in the old maps.
            weir_kernel::grace_period()?;
            self.carry_counters()?;
        }
        for slot in &rebuild.fresh {
            self.carried.remove(slot);
        }
        self.copies = copies;
        self.maps = maps;
        self.book.commit_rebuild(rebuild);
        Ok(())
    }

    /// Rate words of maps that grew. A packet that meets the old one meanwhile is not remembered.
    fn hand_over_rates(&self, to: &LoadedProgram) -> Result<(), LiveError> {
        let from = first(&self.copies)?;
        for entry in self.book.entries() {
            let key = entry.slot.to_ne_bytes();
            if let Some(word) = from.lookup("rates", &key)?
                && word.iter().any(|byte| *byte != 0)
            {
                to.update("rates", &key, &word, 0)?;
            }
        }
        Ok(())
    }

    fn carry_counters(&mut self) -> Result<(), LiveError> {
        let counters = self.counters()?;
        self.carried = (self.book.entries().zip(counters))
            .map(|(entry, counter)| (entry.slot, counter))
            .collect();
        Ok(())
    }
}

fn load_all(
    plan: &InstancePlan,
    places: &[Place],
    ports: &[Port],
    replaced: &[LoadedCopy],
    counters_grew: bool,
) -> Result<Vec<LoadedCopy>, LiveError> {
    let mut copies: Vec<LoadedCopy> = Vec::with_capacity(places.len());
    for &place in places {
        let sharing = Sharing {
            same: &copies,
            replaced,
            counters_grew,
        };
        let copy = load(plan, place, ports, sharing)?;
        copies.push(copy);
    }
    Ok(copies)
}

/// The copy that maps are reached through.
fn first(copies: &[LoadedCopy]) -> Result<&LoadedProgram, KernelError> {
    let found = copies.first().map(|copy| &copy.program);
    found.ok_or_else(|| KernelError::BadObject {
        why: "no copy of it is loaded".to_owned(),
    })
}

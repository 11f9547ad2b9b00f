//! What changes while a policy runs: its rules, the programs that carry them out, and their attachments.
//!
//! An edit is done in place where it fits; else all copies are loaded anew with new maps of rules and the maps of state they had, and take
//! the place of the old ones at every hook. Invariant: on error the rules, programs and maps that packets meet are those of before.

use std::collections::{HashMap, HashSet};

use weir_bpf::abi::Counter;
use weir_functions::middlebox::dynamic::SetPlan;
use weir_functions::middlebox::{
    self, Edit, LimitTable, Rebuild, RuleBook, Staged, Succession, Written, translations,
};
use weir_functions::plan::{InstancePlan, Port};
use weir_functions::report::Report;
use weir_kernel::own_source::{self, OwnSource};
use weir_kernel::pins::{self, Claim};
use weir_kernel::{EventRing, Filter, KernelError, LoadedProgram};
use weir_policy::dynamic::Element;
use weir_policy::model::{Connections, Rule};

use super::copies::{Keep, Packets};
use super::kept::Memory;
use super::limits::CountTables;
use super::maps::clear;
use super::takeover::Left;
use super::{
    AttachPoint, AttachedPort, Attachment, FlowTable, Hook, LimitInUse, LiveError, LoadedCopy,
    RuleMaps, SetTable, Sharing, SwitchedOff, load,
};
use crate::translated::{Entrance, take_own_sources};

/// By which records of own sources are found.
pub const OWNER: &str = "run";

/// The part of a running policy that changes.
#[derive(Debug)]
pub struct Running {
    // Fields drop in order: programs leave the interfaces before offloads come back.
    /// Of each copy, by its index.
    links: Vec<(usize, Attachment)>,
    offloads: Vec<SwitchedOff>,
    /// What the stack was told about sources, with the sentence about it.
    own_sources: Vec<(OwnSource, String)>,
    /// Rules changed that may make a difference to the stack.
    is_unsettled: bool,
    copies: Vec<LoadedCopy>,
    maps: RuleMaps,
    book: RuleBook,
    ports: Vec<Port>,
    places: Vec<AttachPoint>,
    /// Counts of maps that grew, by slot.
    carried: HashMap<u32, Counter>,
    /// Tags may be hidden from some port.
    blind_to_vlan: bool,
    memory: Memory,
    /// Others may have the interfaces once all else is gone.
    claims: Vec<Claim>,
}

/// What runs at first.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) book: RuleBook,
    pub(super) plan: InstancePlan,
    /// Slots whose counters start at zero, where the old ones go on.
    pub(super) fresh: Vec<u32>,
    pub(super) keep: Keep,
    /// Of the table of connections.
    pub(super) seed: u64,
    pub(super) ports: Vec<Port>,
    pub(super) places: Vec<AttachPoint>,
    pub(super) blind_to_vlan: bool,
    pub(super) claims: Vec<Claim>,
}

/// What another policy changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Rules that stay.
    pub kept: usize,
    /// Of them, those that have other ids now.
    pub renumbered: usize,
    /// Rules that went.
    pub removed: usize,
    /// Rules that came.
    pub added: usize,
    /// The whole was laid out anew.
    pub rebuilt: bool,
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
    /// Loads all copies, with what goes on of `left`; nothing is attached yet.
    pub(super) fn load(start: Start, left: Option<&Left>) -> Result<Running, LiveError> {
        let Start {
            book,
            plan,
            fresh,
            keep,
            seed,
            ports,
            places,
            blind_to_vlan,
            claims,
        } = start;
        let plan = seeded(plan, seed);
        let replaced = left.map_or(&[][..], |left| &left.copies);
        let copies = load_all(&plan, &places, &ports, replaced, keep)?;
        let maps = RuleMaps::of(first(&copies)?)?;
        if keep.counters {
            clear(first(&copies)?, &fresh)?;
        }
        if let (Some(left), false) = (left, keep.sets)
            && let Ok(kept) = &left.kept
        {
            let past = SetPlan::of_former(&kept.past.sets, |_| true);
            let from = (!past.sets().is_empty())
                .then(|| SetTable::of(first(&left.copies)?, &past, kept.seed));
            Moved::begin(from.transpose()?, first(&copies)?, book.sets(), seed)?;
        }
        let memory = Memory::new(seed, book.past(), &copies)?;
        Ok(Running {
            links: Vec::new(),
            offloads: Vec::new(),
            own_sources: Vec::new(),
            is_unsettled: true,
            copies,
            maps,
            book,
            ports,
            places,
            carried: HashMap::new(),
            blind_to_vlan,
            memory,
            claims,
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

    /// Limits that count addresses apart, or connections, and what the latter count now.
    ///
    /// # Errors
    /// The kernel does not show a table.
    pub fn limits(&self) -> Result<Vec<LimitInUse>, LiveError> {
        let tables = self.book.limits();
        let counts = match tables.iter().any(|table| table.connections.is_some()) {
            true => self.count_tables()?,
            false => None,
        };
        let in_use = |table: LimitTable| -> Result<LimitInUse, LiveError> {
            let counts = counts.as_ref().filter(|_| table.connections.is_some());
            Ok(LimitInUse {
                rule: table.rule,
                connections: table.connections,
                names: table.names,
                bytes: table.bytes,
                open: counts.map(|counts| counts.open(&table)).transpose()?,
            })
        };
        tables.into_iter().map(in_use).collect()
    }

    fn count_tables(&self) -> Result<Option<CountTables>, LiveError> {
        let Some(flows) = self.flows()? else {
            return Ok(None);
        };
        Ok(Some(CountTables::of(first(&self.copies)?, flows)?))
    }

    /// The table of connections; `None` if the rules keep none.
    pub fn flows(&self) -> Result<Option<FlowTable>, LiveError> {
        if !self.book.keeps_connections() {
            return Ok(None);
        }
        let table = FlowTable::of(
            first(&self.copies)?,
            self.book.connections(),
            self.book.aliases(),
        )?;
        Ok(Some(table))
    }

    /// The sets that packets fill; `None` if the rules name none.
    pub fn sets(&self) -> Result<Option<SetTable>, LiveError> {
        if self.book.sets().sets().is_empty() {
            return Ok(None);
        }
        let seed = self.memory.seed();
        let table = SetTable::of(first(&self.copies)?, self.book.sets(), seed)?;
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
        self.refuse_late(rules)?;
        let translates = edits.iter().any(|edit| match edit {
            Edit::Add(written) => !translations::of([&written.rule]).is_empty(),
            Edit::Delete(_) | Edit::Flush => !self.own_sources.is_empty(),
        });
        let flushes = edits.iter().any(|edit| matches!(edit, Edit::Flush));
        let before = self.book.next_id();
        let mut rebuilt = match self.book.stage(edits)? {
            Staged::InPlace(step) => {
                let (book, copies) = (&self.book, &self.copies);
                self.memory
                    .follow(step.past_change(), || book.past(), copies)?;
                self.maps.apply(first(&self.copies)?, &step)?;
                for slot in &step.fresh {
                    self.carried.remove(slot);
                }
                self.book.commit(*step);
                false
            }
            Staged::Rebuild(rebuild) => {
                self.rebuild(*rebuild, true)?;
                true
            }
        };
        self.is_unsettled |= translates;
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

    /// Refuses rules that weir would have had to be attached differently for.
    fn refuse_late<'a>(
        &self,
        rules: impl Iterator<Item = &'a Rule> + Clone,
    ) -> Result<(), LiveError> {
        let hooks: Vec<_> = self.places.iter().map(|place| place.hook).collect();
        super::refuse_meta(rules.clone(), &hooks)?;
        if self.blind_to_vlan && middlebox::names_vlan(rules.clone()) {
            return Err(LiveError::VlanLater);
        }
        let splits = |place: &AttachPoint| place.packets == Packets::ButFragments;
        if self.places.iter().any(splits) && middlebox::makes_fragments(rules) {
            return Err(LiveError::FragmentsLater);
        }
        Ok(())
    }

    /// Lays the whole out anew, so that what was added is found as fast as the rest and what was deleted costs nothing.
    pub fn compact(&mut self) -> Result<(), LiveError> {
        let rebuild = self.book.stage_compaction()?;
        self.rebuild(rebuild, true)
    }

    /// Puts another policy in place of the present one. Rules that are in both go on; with `flush_connections` no connection does.
    pub fn follow(
        &mut self,
        rules: Vec<Written>,
        connections: &Connections,
        flush_connections: bool,
    ) -> Result<Followed, LiveError> {
        self.refuse_late(rules.iter().map(|w| &w.rule))?;
        self.is_unsettled = true;
        let past = self.book.past();
        if !flush_connections && past.is_stateful() && connections.capacity != past.capacity {
            return Err(LiveError::CapacityChanged {
                have: past.capacity,
                want: connections.capacity,
            });
        }
        let succession = if flush_connections {
            None
        } else {
            self.book.edits_to(&past, &rules, connections)?
        };
        if let Some((edits, kept)) = succession {
            let (removed, added) = (past.rules.len() - kept, rules.len() - kept);
            let rebuilt = match edits.is_empty() {
                true => false,
                false => self.edit(edits)?.rebuilt,
            };
            self.book.saved();
            return Ok(Followed {
                kept,
                renumbered: 0,
                removed,
                added,
                rebuilt,
            });
        }
        let keep = !flush_connections;
        let egress = self.book.sees_egress();
        let Succession {
            rebuild,
            kept,
            renumbered,
            removed,
            added,
        } = RuleBook::following(&past, rules, connections, &self.ports, egress, keep)?;
        self.rebuild(rebuild, keep)?;
        Ok(Followed {
            kept,
            renumbered,
            removed,
            added,
            rebuilt: true,
        })
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

    /// Lets the stack take what the rules give an address of this host as source, and no longer what no rule does. Returns what is new of it.
    ///
    /// # Errors
    /// The stack cannot be told; the rules hold all the same.
    pub fn settle_host(&mut self) -> Result<Vec<String>, LiveError> {
        if !self.is_unsettled {
            return Ok(Vec::new());
        }
        let rules = self.book.entries().map(|entry| &entry.rule);
        let entrances: Vec<Entrance<'_>> = (self.ports.iter())
            .filter_map(|port| {
                let name = port.name.as_deref()?;
                Some(Entrance {
                    names: [name; 2],
                    device: name,
                    ifindex: port.index,
                })
            })
            .collect();
        let held = take_own_sources(&translations::of(rules), &entrances, OWNER)?;
        self.is_unsettled = false;
        let is_attached = !self.links.is_empty();
        let mut notes = Vec::new();
        let mut before = std::mem::take(&mut self.own_sources);
        for (mut one, sentence) in held {
            let same = |(old, _): &(OwnSource, String)| old.ifindex() == one.ifindex();
            match before.iter().position(same) {
                // It has the record now.
                Some(at) => before.swap_remove(at).0.leave(),
                None => notes.push(sentence.clone()),
            }
            if is_attached {
                one.own();
            }
            self.own_sources.push((one, sentence));
        }
        Ok(notes)
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

    /// Keeps the time that programs test that of the host.
    pub(super) fn follow_clock(&self) -> Result<(), KernelError> {
        // All copies have the map in common.
        match self.copies.first() {
            Some(copy) => crate::tai::write(&copy.program),
            None => Ok(()),
        }
    }

    /// Attaches all copies or none, in place of what was left. Returns what the user should know.
    pub(super) fn attach(
        &mut self,
        ports: &mut [AttachedPort],
        left: Option<Left>,
    ) -> Result<Vec<String>, LiveError> {
        let (old, mut taken, mut surplus, carried_but) =
            left.map_or_else(Default::default, |left| {
                let Left {
                    copies,
                    attachments,
                    surplus,
                    carried_but,
                    ..
                } = left;
                (copies, attachments, surplus, carried_but)
            });
        let mut links = Vec::with_capacity(self.copies.len());
        let mut filters = Vec::new();
        let mut made_qdisc_of = None;
        for (index, copy) in self.copies.iter().enumerate() {
            let place = self.places[index];
            let port = &mut ports[copy.port];
            let ifindex = port.interface.ifindex;
            if let Some((_, there)) = taken.iter().find(|(place, _)| *place == index) {
                if let Attachment::Filter(filter) = there {
                    if place.packets == Packets::All {
                        port.hook = Hook::Clsact;
                    }
                    if filter.made_qdisc() {
                        made_qdisc_of = Some(ifindex);
                    }
                }
                continue;
            }
            if let Hook::Xdp(mode) = place.hook {
                links.push((index, copy.program.attach_xdp(ifindex, mode)?));
                continue;
            }
            if place.hook == Hook::Tc {
                match copy.program.attach_tcx(ifindex, copy.direction) {
                    Ok(link) => {
                        links.push((index, link));
                        continue;
                    }
                    Err(KernelError::NoTcx) if place.packets == Packets::Fragments => {}
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
        let carried: Vec<u32> = carried_but.map_or_else(Vec::new, |but| {
            let slots = self.book.entries().map(|entry| entry.slot);
            slots.filter(|slot| !but.contains(slot)).collect()
        });
        if let (Some(old), false) = (old.first(), carried.is_empty()) {
            let slots = carried.iter().copied();
            hand_over_rates(&old.program, first(&self.copies)?, slots)?;
        }
        for done in 0..taken.len() {
            let (index, there) = &mut taken[done];
            if let Err(error) = there.replace(&self.copies[*index].program) {
                for ((_, there), old) in taken[..done].iter_mut().zip(&old) {
                    let _ = there.replace(&old.program);
                }
                return Err(error.into());
            }
        }
        for (index, mut there) in taken {
            there.own();
            self.links.push((index, there));
        }
        for mut there in surplus.drain(..) {
            there.own();
            there.release()?;
        }
        if let (Some(old), false) = (old.first(), carried.is_empty()) {
            // Packets on their way count in the old maps.
            weir_kernel::grace_period()?;
            for slot in carried {
                let counter = crate::kernel::counter(&old.program, slot)?;
                self.carried.insert(slot, counter);
            }
        }
        self.own_sources.iter_mut().for_each(|(one, _)| one.own());
        // What a killed run told the stack and this one does not need.
        for port in &self.ports {
            let is_held = |(one, _): &(OwnSource, String)| one.ifindex() == port.index;
            if !self.own_sources.iter().any(is_held)
                && let Some(mut old) = own_source::left(OWNER, port.index)?
            {
                old.own();
            }
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
        // Copies for fragments are attached before those that leave fragments to them, and go after them.
        for (_, link) in self.links.drain(..).rev() {
            failed = failed.or(link.release().err());
        }
        self.offloads.clear();
        self.own_sources.clear();
        self.claims.clear();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn rebuild(&mut self, mut rebuild: Rebuild, connections: bool) -> Result<(), LiveError> {
        let grew = rebuild.counters_grew;
        let keep = Keep {
            counters: !grew,
            connections,
            counts: rebuild.counts_lie_as(&self.book),
            sets: rebuild.sets().lies_as(self.book.sets()),
            ..Keep::ALL
        };
        let seed = self.memory.seed();
        rebuild.plan = seeded(rebuild.plan, seed);
        let copies = load_all(&rebuild.plan, &self.places, &self.ports, &self.copies, keep)?;
        let program = first(&copies)?;
        let memory = Memory::new(seed, rebuild.past(), &copies)?;
        let maps = RuleMaps::of(program)?;
        let moved = (!keep.sets)
            .then(|| Moved::begin(self.sets()?, program, rebuild.sets(), seed))
            .transpose()?
            .flatten();
        clear(program, &rebuild.fresh)?;
        if grew {
            let slots = self.book.entries().map(|entry| entry.slot);
            hand_over_rates(first(&self.copies)?, program, slots)?;
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
        if grew || moved.is_some() {
            // Packets on their way count in the old maps.
            weir_kernel::grace_period()?;
        }
        if let Some(moved) = moved {
            moved.finish()?;
        }
        if grew {
            self.carry_counters()?;
        }
        for slot in &rebuild.fresh {
            self.carried.remove(slot);
        }
        self.copies = copies;
        self.maps = maps;
        self.memory = memory;
        self.book.commit_rebuild(rebuild);
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

/// Sets whose elements lie elsewhere from now on: what the old maps hold is put into the new ones before packets meet these, and once more what came meanwhile.
struct Moved {
    from: SetTable,
    to: SetTable,
    before: HashSet<(String, Element, u64)>,
}

impl Moved {
    /// `Ok` of a table that holds nothing if there were no sets.
    fn begin(
        from: Option<SetTable>,
        program: &LoadedProgram,
        sets: &SetPlan,
        seed: u64,
    ) -> Result<Option<Moved>, LiveError> {
        let Some(from) = from.filter(|_| !sets.sets().is_empty()) else {
            return Ok(None);
        };
        let to = SetTable::of(program, sets, seed)?;
        let before = from.snapshot()?;
        to.take_over(&before)?;
        Ok(Some(Moved {
            from,
            to,
            before: before.into_iter().collect(),
        }))
    }

    fn finish(self) -> Result<(), LiveError> {
        let mut since = self.from.snapshot()?;
        since.retain(|one| !self.before.contains(one));
        Ok(self.to.take_over(&since)?)
    }
}

/// Rate words of maps that grew. A packet that meets the old one meanwhile is not remembered.
fn hand_over_rates(
    from: &LoadedProgram,
    to: &LoadedProgram,
    slots: impl Iterator<Item = u32>,
) -> Result<(), LiveError> {
    for slot in slots {
        let key = slot.to_ne_bytes();
        if let Some(word) = from.lookup("rates", &key)?
            && word.iter().any(|byte| *byte != 0)
        {
            to.update("rates", &key, &word, 0)?;
        }
    }
    Ok(())
}

/// With the key of the table of connections, so that nobody can choose tuples that share a bucket.
fn seeded(mut plan: InstancePlan, seed: u64) -> InstancePlan {
    plan.constants
        .push(("weir_flow_seed".into(), seed.to_ne_bytes().to_vec()));
    plan
}

fn load_all(
    plan: &InstancePlan,
    places: &[AttachPoint],
    ports: &[Port],
    replaced: &[LoadedCopy],
    keep: Keep,
) -> Result<Vec<LoadedCopy>, LiveError> {
    let mut copies: Vec<LoadedCopy> = Vec::with_capacity(places.len());
    for &place in places {
        let sharing = Sharing {
            same: &copies,
            replaced,
            keep,
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

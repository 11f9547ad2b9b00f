//! The rules of a running instance: which there are, where each lies in the maps, and what a change of them writes.
//!
//! Pure: [`RuleBook::stage`] says what an edit takes, an engine does it, [`RuleBook::commit`] makes it true here. An edit is staged in
//! place if its rules fit the room beside the plan; else the whole is laid out anew. Invariants: ids are never given twice; a
//! step writes only where no packet of the present generation looks, except for marks that the present generation does not heed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir_bpf::abi::{self, feature, rule_flag};
use weir_classify::Scheme;
use weir_policy::model::{Connections, Rule};
use zerocopy::IntoBytes;

use super::conditions::Lowering;
use super::connections;
use super::counts::LimitTable;
use super::dynamic::{self, SetPlan};
use super::past::{self, Past, PastChange, PastRule, PastTables, Succession};
use super::{
    Bounds, EditCapacity, Layout, Lowered, PlanError, Seat, Sizes, StateOf, Worst, lay_out, lower,
    ordered,
};
use super::{counts, meters};
use crate::plan::{InstancePlan, Port};

/// A rule and its text.
#[derive(Clone, Debug)]
pub struct Written {
    /// What it means. Its id is given by the book.
    pub rule: Rule,
    /// How it was written, on one line.
    pub text: String,
}

/// A change.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Adds a rule behind all others.
    Add(Box<Written>),
    /// Deletes a rule by its id.
    Delete(u32),
    /// Deletes all rules.
    Flush,
}

/// Why rules cannot be changed like that. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No rule has this id.
    #[error("no rule {id}; `weir rule list` shows the rules and their ids")]
    UnknownRule {
        /// As given.
        id: u32,
    },
    /// Names are unique.
    #[error("rule {id} is already named `{name}`; choose another name, or delete that rule first")]
    NameTaken {
        /// The name.
        name: String,
        /// Its rule.
        id: u32,
    },
    /// All 2^32 ids were given.
    #[error("no rule ids are left; restart `weir run`")]
    NoIds,
    /// The data plane cannot hold the rules.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The policy file.
    Configured,
    /// A live edit that is not saved.
    Added,
}

/// A rule of the book.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it means, with its id.
    pub rule: Rule,
    /// How it was written.
    pub text: String,
    /// Where its counters and rate word lie.
    pub slot: u32,
    /// Whether the policy file has it.
    pub origin: Origin,
    /// Place in the rule array if it belongs to the plan.
    planned_at: Option<u32>,
    /// Its table if it is a limit that counts addresses apart.
    table: Option<u32>,
    /// Its table if it limits connections at a time.
    count: Option<counts::Place>,
    /// The id that its limits count under: the first that it had.
    counts_as: u32,
}

impl Entry {
    fn new(written: Written, slot: u32, origin: Origin) -> Entry {
        Entry {
            counts_as: written.rule.id,
            rule: written.rule,
            text: written.text,
            slot,
            origin,
            planned_at: None,
            table: None,
            count: None,
        }
    }

    fn past(&self) -> PastRule {
        PastRule {
            counts_as: self.counts_as,
            table: self.table,
            count: self.count,
            ..PastRule::new(&self.rule, &self.text, self.slot)
        }
    }

    fn seated(&self) -> (&Rule, Seat) {
        let seat = Seat {
            slot: self.slot,
            table: self.table,
            count: self.count,
            counts_as: self.counts_as,
        };
        (&self.rule, seat)
    }
}

/// The rules of a running instance.
#[derive(Clone, Debug)]
pub struct RuleBook {
    ports: Vec<Port>,
    sees_egress: bool,
    entries: BTreeMap<u32, Entry>,
    names: HashMap<String, u32>,
    /// Rules beside the plan, ascending.
    beside: Vec<u32>,
    /// Configured rules that were deleted: id and text.
    missing: BTreeMap<u32, String>,
    next_id: u32,
    generation: u64,
    half: u32,
    slots: Slots,
    connections: Connections,
    /// Former ids with present ones.
    aliases: Vec<(u32, u32)>,
    /// Stateful rules beside the plan, as `rule_at` has them for each half.
    found: [Found; 2],
    layout: Layout,
}

/// Place + 1 of rules by id.
type Found = BTreeMap<u32, u32>;

/// What an edit takes.
#[derive(Debug)]
pub enum Staged {
    /// Writing to the maps as they are.
    InPlace(Box<Step>),
    /// New maps, and program copies that read them.
    Rebuild(Box<Rebuild>),
}

/// A change in place. To be done in this order, once no packet is on its way that saw the generation before the present one.
#[derive(Debug)]
pub struct Step {
    /// Elements that no packet reads yet.
    pub writes: Vec<Write>,
    /// Slots whose counters and rate words start at zero.
    pub fresh: Vec<u32>,
    /// The half that was written, and what packets are to read of it.
    pub half: Option<(usize, abi::Half)>,
    /// Places in the rule array whose rules end: [`abi::Rule::dead_from`] is set to [`Step::generation`].
    pub ends: Vec<u32>,
    /// The word that makes all of it true at once ([`abi::LiveWord::now`]).
    pub now: u64,
    /// The generation that begins.
    pub generation: u64,
    change: Change,
}

/// Elements of an array to write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The map.
    pub map: &'static str,
    /// Index of the first.
    pub first: u32,
    /// Bytes of an element.
    pub width: usize,
    /// All of them.
    pub values: Vec<u8>,
}

/// The whole laid out anew.
#[derive(Debug)]
pub struct Rebuild {
    /// The plan. Maps of state are to be shared with the running instance.
    pub plan: InstancePlan,
    /// `counters` and `rates` have grown: they cannot be shared, what they counted must be carried over. Slots stay.
    pub counters_grew: bool,
    /// Slots whose counters and rate words start at zero.
    pub fresh: Vec<u32>,
    book: RuleBook,
}

impl Step {
    /// What it changes of what is remembered.
    pub fn past_change(&self) -> PastChange {
        let added = self.change.added.iter();
        PastChange {
            gone: self.change.gone.clone(),
            added: added.map(Entry::past).collect(),
            generation: self.generation,
        }
    }
}

impl Rebuild {
    /// What is to be remembered once it is done.
    pub fn past(&self) -> Past {
        self.book.past()
    }

    /// Whether tables of connections at a time lie as they do now, for the same rules.
    pub fn counts_lie_as(&self, now: &RuleBook) -> bool {
        self.book.counts().eq(now.counts())
    }

    /// The same of what a former process left.
    pub fn counts_lie_as_past(&self, past: &Past) -> bool {
        let former = past.rules.iter();
        let former = former.filter_map(|rule| Some((rule.counts_as, rule.count?)));
        self.book.counts().eq(former)
    }

    /// Sets that packets fill, as they will lie.
    pub fn sets(&self) -> &SetPlan {
        self.book.sets()
    }

    /// The book as it will be.
    pub fn into_book(self) -> RuleBook {
        self.book
    }
}

#[derive(Debug)]
struct Change {
    gone: BTreeSet<u32>,
    added: Vec<Entry>,
    beside: Vec<u32>,
    half: u32,
    /// What `rule_at` has for the half that was written.
    found: Option<Found>,
}

impl RuleBook {
    /// The book of a policy at start, and the plan to load. Ids of the rules are kept.
    pub fn new(
        rules: Vec<Written>,
        connections: &Connections,
        ports: &[Port],
        sees_egress: bool,
    ) -> Result<(RuleBook, InstancePlan), PlanError> {
        let mut slots = Slots::default();
        slots.grow_for(rules.len());
        let entries = rules.into_iter().map(|written| {
            let slot = slots.take().unwrap_or_default();
            let entry = Entry::new(written, slot, Origin::Configured);
            (entry.rule.id, entry)
        });
        let entries = entries.collect();
        let next_id = last_id(&entries) + 1;
        let blank = Blank {
            ports: ports.to_vec(),
            sees_egress,
            missing: BTreeMap::new(),
            next_id,
            generation: 1,
            connections: connections.clone(),
            keep: 0,
            aliases: Vec::new(),
            sets: SetPlan::default(),
            tables: 0,
        };
        blank.laid_out(entries, slots)
    }

    /// A policy that takes the place of what is remembered of another one: rules that are in both keep counters, rate words and, with
    /// `keep_connections`, connections.
    pub fn following(
        past: &Past,
        rules: Vec<Written>,
        connections: &Connections,
        ports: &[Port],
        sees_egress: bool,
        keep_connections: bool,
    ) -> Result<Succession, EditError> {
        let named: BTreeSet<String> = (rules.iter())
            .flat_map(|written| dynamic::named_by(&written.rule))
            .map(|set| set.name.clone())
            .collect();
        let sets = SetPlan::of_former(&past.sets, |name| named.contains(name));
        let heirs = past::inherit(past, rules)?;
        let used: BTreeSet<u32> = past.rules.iter().map(|rule| rule.slot).collect();
        // Those of rules that go still count packets on their way.
        let mut slots = Slots {
            free: (0..past.slots)
                .rev()
                .filter(|slot| !used.contains(slot))
                .collect(),
            resting: Vec::new(),
            capacity: past.slots,
        };
        let count = heirs.rules.len();
        let added = count - heirs.kept;
        if slots.free.len() < added {
            slots.grow_for(count);
        }
        let counters_grew = slots.capacity > past.slots;
        let mut fresh = Vec::with_capacity(added);
        let mut kept = BTreeSet::new();
        let mut entries = BTreeMap::new();
        for (written, old) in heirs.rules {
            let slot = match old.map(|old| old.slot) {
                Some(slot) => {
                    kept.insert(slot);
                    slot
                }
                None => {
                    let slot = slots.take().unwrap_or_default();
                    fresh.push(slot);
                    slot
                }
            };
            let mut entry = Entry::new(written, slot, Origin::Configured);
            if let Some(old) = old {
                // What an earlier release remembers has none.
                entry.counts_as = if old.counts_as == 0 {
                    old.id
                } else {
                    old.counts_as
                };
                entry.table = old
                    .table
                    .filter(|_| past.tables.limits == connections.limits);
            }
            entries.insert(entry.rule.id, entry);
        }
        let blank = Blank {
            ports: ports.to_vec(),
            sees_egress,
            missing: BTreeMap::new(),
            next_id: heirs.next_id,
            generation: past.generation + 1,
            connections: connections.clone(),
            keep: match keep_connections {
                true => past.features & OF_CONNECTIONS,
                false => 0,
            },
            aliases: heirs.aliases,
            sets,
            tables: match past.tables.limits == connections.limits {
                true => past.tables.tables,
                false => 0,
            },
        };
        let (mut book, plan) = blank.laid_out(entries, slots)?;
        book.slots.free.extend(used.difference(&kept));
        Ok(Succession {
            rebuild: Rebuild {
                plan,
                counters_grew,
                fresh,
                book,
            },
            kept: heirs.kept,
            renumbered: heirs.renumbered,
            removed: past.rules.len() - heirs.kept,
            added,
        })
    }

    /// What is to be remembered for a policy or a control program that follows.
    pub fn past(&self) -> Past {
        let rules = self.entries.values();
        Past {
            rules: rules.map(Entry::past).collect(),
            aliases: self.aliases.clone(),
            next_id: self.next_id,
            generation: self.generation,
            slots: self.slots.capacity,
            features: self.layout.features,
            capacity: self.connections.capacity,
            sets: self.layout.sets.past(),
            tables: PastTables {
                limits: self.connections.limits,
                tables: self.layout.all_tables,
            },
        }
    }

    /// Sets that packets fill.
    pub fn sets(&self) -> &SetPlan {
        &self.layout.sets
    }

    /// The edits that lead to another policy, and how many rules stay, if no rule that stays needs another id and connections are
    /// kept alike.
    pub fn edits_to(
        &self,
        past: &Past,
        rules: &[Written],
        connections: &Connections,
    ) -> Result<Option<(Vec<Edit>, usize)>, EditError> {
        if *connections != self.connections {
            return Ok(None);
        }
        let heirs = past::inherit(past, rules.to_vec())?;
        if heirs.renumbered > 0 {
            return Ok(None);
        }
        let (stay, come): (Vec<_>, Vec<_>) =
            (heirs.rules.into_iter()).partition(|(_, slot)| slot.is_some());
        let stay: BTreeSet<u32> = stay.iter().map(|(written, _)| written.rule.id).collect();
        let gone = self.entries.keys().filter(|id| !stay.contains(id));
        let edits = gone.map(|id| Edit::Delete(*id));
        let edits = edits.chain(
            come.into_iter()
                .map(|(written, _)| Edit::Add(Box::new(written))),
        );
        Ok(Some((edits.collect(), heirs.kept)))
    }

    /// Whether packets on their way out are seen.
    pub fn sees_egress(&self) -> bool {
        self.sees_egress
    }

    /// Former ids of rules, which connections may name, with their present ones.
    pub fn aliases(&self) -> &[(u32, u32)] {
        &self.aliases
    }

    /// What these edits, together, take. They hold all at once or, on error, not at all.
    pub fn stage(&self, edits: Vec<Edit>) -> Result<Staged, EditError> {
        let (gone, added) = self.outcome(edits)?;
        let mut slots = self.slots.clone();
        let taken: Option<Vec<u32>> = added.iter().map(|_| slots.take()).collect();
        if let Some(taken) = taken
            && let Some(step) = self.in_place(&gone, &added, &taken)?
        {
            return Ok(Staged::InPlace(Box::new(step)));
        }
        self.rebuild(&gone, added)
            .map(|rebuild| Staged::Rebuild(Box::new(rebuild)))
    }

    /// Lays the whole out anew as it is, so that what was added is found as fast as the rest.
    pub fn stage_compaction(&self) -> Result<Rebuild, EditError> {
        self.rebuild(&BTreeSet::new(), Vec::new())
    }

    /// A step was done.
    pub fn commit(&mut self, step: Step) {
        let Change {
            gone,
            added,
            beside,
            half,
            found,
        } = step.change;
        // They were taken from the end.
        let left = self.slots.free.len() - added.len();
        self.slots.free.truncate(left);
        for id in gone {
            if let Some(entry) = self.entries.remove(&id) {
                self.slots.free.push(entry.slot);
                self.layout.tables.extend(entry.table);
                self.forget(id, entry);
            }
        }
        // They were taken from the front.
        let taken = added.iter().filter(|e| e.table.is_some()).count();
        self.layout.tables.drain(..taken);
        for entry in added {
            if let Some(name) = &entry.rule.name {
                self.names.insert(name.clone(), entry.rule.id);
            }
            self.next_id = entry.rule.id + 1;
            self.entries.insert(entry.rule.id, entry);
        }
        self.beside = beside;
        self.half = half;
        if let Some(found) = found {
            self.found[half as usize] = found;
        }
        self.generation = step.generation;
    }

    /// A rebuild was done.
    pub fn commit_rebuild(&mut self, rebuild: Rebuild) {
        *self = rebuild.book;
    }

    /// All rules by id.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.values()
    }

    /// The rule of an id.
    pub fn entry(&self, id: u32) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// Configured rules that a live edit deleted: id and text.
    pub fn missing(&self) -> impl ExactSizeIterator<Item = (u32, &str)> {
        self.missing.iter().map(|(id, text)| (*id, text.as_str()))
    }

    /// Whether the rules are not those of the policy file.
    pub fn drifted(&self) -> bool {
        let added = |entry: &Entry| entry.origin == Origin::Added;
        !self.missing.is_empty() || self.entries.values().rev().any(added)
    }

    /// The policy file has become what runs.
    pub fn saved(&mut self) {
        self.missing.clear();
        for entry in self.entries.values_mut() {
            entry.origin = Origin::Configured;
        }
    }

    /// Number of the present state of the rules. Every change raises it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The id that the next rule gets.
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Rules that are outside the plan.
    pub fn beside(&self) -> usize {
        self.beside.len()
    }

    /// How many rules fit beside the plan before the whole is laid out anew.
    pub fn room(&self) -> usize {
        self.layout.room.halves.rules as usize
    }

    /// Rules of the plan that were deleted and still take their place.
    pub fn dead(&self) -> usize {
        let alive = self.entries.len() - self.beside.len();
        self.layout.own.rules as usize - alive
    }

    /// Static bounds of the plan, without what lies beside it.
    pub fn bounds(&self) -> Bounds {
        self.layout.bounds
    }

    /// How connections are kept.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether there is a table of connections: there are stateful rules, or there were since the start.
    pub fn keeps_connections(&self) -> bool {
        self.layout.features & feature::STATE != 0
    }

    /// Number of slots for counters.
    pub fn slots(&self) -> usize {
        self.slots.capacity as usize
    }

    /// Ids that go, and rules that come, with the ids they get.
    fn outcome(&self, edits: Vec<Edit>) -> Result<(BTreeSet<u32>, Vec<Written>), EditError> {
        let mut gone = BTreeSet::new();
        let mut added: Vec<Written> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Delete(id) => {
                    if !self.entries.contains_key(&id) || !gone.insert(id) {
                        return Err(EditError::UnknownRule { id });
                    }
                }
                Edit::Flush => {
                    gone.extend(self.entries.keys());
                    added.clear();
                }
                Edit::Add(mut written) => {
                    if let Some(name) = &written.rule.name {
                        let taken = self.names.get(name).copied();
                        let taken = taken.filter(|id| !gone.contains(id));
                        let among = added.iter().find(|w| w.rule.name.as_ref() == Some(name));
                        if let Some(id) = taken.or(among.map(|w| w.rule.id)) {
                            let name = name.clone();
                            return Err(EditError::NameTaken { name, id });
                        }
                    }
                    let last = added.last().map_or(self.next_id - 1, |w| w.rule.id);
                    written.rule.id = last.checked_add(1).ok_or(EditError::NoIds)?;
                    added.push(*written);
                }
            }
        }
        Ok((gone, added))
    }

    /// The step, `None` if it does not fit the room.
    fn in_place(
        &self,
        gone: &BTreeSet<u32>,
        added: &[Written],
        slots: &[u32],
    ) -> Result<Option<Step>, EditError> {
        // Its table begins empty, and lists of former rules may lie wherever there is room: the tables are laid out anew.
        if (added.iter()).any(|written| written.rule.connections_at_a_time().is_some()) {
            return Ok(None);
        }
        let mut added: Vec<Entry> = (added.iter().zip(slots))
            .map(|(written, &slot)| Entry::new(written.clone(), slot, Origin::Added))
            .collect();
        let mut tables = self.layout.tables.clone();
        let mut emptied = Vec::new();
        for entry in added.iter_mut().filter(|e| e.rule.counts_apart()) {
            let Some(table) = tables.pop_front() else {
                return Ok(None);
            };
            entry.table = Some(table);
            let (first, values) = meters::empty(self.connections.limits, table);
            emptied.push(Write {
                map: "meters",
                first,
                width: size_of::<abi::Meter>(),
                values,
            });
        }
        let mut beside = self.beside.clone();
        beside.retain(|id| !gone.contains(id));
        let rewritten = beside.len() != self.beside.len() || !added.is_empty();
        let kept = beside.iter().filter_map(|id| self.entries.get(id));
        let rules: Vec<(&Rule, Seat)> = kept.chain(&added).map(Entry::seated).collect();
        let (mut writes, mut half, mut number) = (Vec::new(), None, self.half);
        let mut found = None;
        if rewritten {
            number = 1 - self.half;
            let Some(contents) = self.half_of(rules, number)? else {
                return Ok(None);
            };
            half = Some((number as usize, contents.header));
            writes = contents.writes;
            writes.append(&mut emptied);
            writes.extend(self.places(number, &contents.found));
            found = Some(contents.found);
        }
        beside.extend(added.iter().map(|entry| entry.rule.id));
        let ends = (gone.iter())
            .filter_map(|id| self.entries.get(id)?.planned_at)
            .collect();
        let generation = self.generation + 1;
        Ok(Some(Step {
            writes,
            fresh: slots.to_vec(),
            half,
            ends,
            now: generation << 1 | u64::from(number),
            generation,
            change: Change {
                gone: gone.clone(),
                added,
                beside,
                half: number,
                found,
            },
        }))
    }

    /// What to write so that packets that read a half find these stateful rules by id, and no longer those that it had.
    fn places(&self, number: u32, found: &Found) -> Vec<Write> {
        let former = &self.found[number as usize];
        let other = &self.found[1 - number as usize];
        let of = |found: &Found, id| found.get(&id).copied().unwrap_or(0);
        let ids: BTreeSet<u32> = former.keys().chain(found.keys()).copied().collect();
        let mut writes: Vec<Write> = Vec::new();
        for id in ids {
            let mut at = abi::RuleAt {
                place: [of(other, id); 2],
            };
            at.place[number as usize] = of(found, id);
            let first = id - 1;
            match writes.last_mut() {
                Some(run) if run.first + (run.values.len() / run.width) as u32 == first => {
                    run.values.extend(at.as_bytes());
                }
                _ => writes.push(Write {
                    map: "rule_at",
                    first,
                    width: size_of::<abi::RuleAt>(),
                    values: at.as_bytes().to_vec(),
                }),
            }
        }
        writes
    }

    /// The contents of a half that holds these rules; `None` if they do not fit.
    fn half_of(
        &self,
        rules: Vec<(&Rule, Seat)>,
        number: u32,
    ) -> Result<Option<Contents>, EditError> {
        let first = self.layout.own.behind(&self.layout.room.halves, number);
        if rules.is_empty() {
            return Ok(Some(Contents {
                header: first.header(0, 1),
                writes: Vec::new(),
                found: Found::new(),
            }));
        }
        let lowering = Lowering::new(&self.ports, self.sees_egress);
        let lowering = lowering
            .continuing(&self.layout.slot_of)
            .with_sets(self.layout.sets.clone());
        let lowered = match lower(rules.into_iter(), lowering) {
            Ok(lowered) => lowered,
            // Deleted rules may hold slots; laid out anew they do not.
            Err(PlanError::TooManyOptionKinds { .. } | PlanError::Sets(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let compiled_in = lowered.features() & !self.layout.features == 0
            && *lowered.lowering.slot_of() == self.layout.slot_of
            && lowered.lowering.filled == self.layout.sets;
        if !compiled_in || lowered.rules.len() > self.room() {
            return Ok(None);
        }
        let set = lowered.set();
        let built = weir_classify::build_from(&set, Scheme::Unpruned, first.0.tables)
            .map_err(PlanError::Classify)?;
        let worst = (self.layout.worst).with(Worst::of(&built, &set, &lowered.rules));
        let findable = |rule: &abi::Rule| {
            rule.flags & rule_flag::STATEFUL == 0 || rule.id <= self.layout.last_id
        };
        let fits = Sizes::of(&lowered, &built).fits(&self.layout.room.halves)
            && worst.stateful <= abi::FLOW_RULES
            && worst.hits() <= abi::HITS
            && lowered.rules.iter().all(findable);
        if !fits {
            return Ok(None);
        }
        let header = first.header(built.tables.len() as u32, built.cells.len() as u32);
        let rules = ordered(&built, &lowered.rules);
        let found = (first.0.rules + 1..).zip(&rules);
        let found = found
            .filter(|(_, rule)| rule.flags & rule_flag::STATEFUL != 0)
            .map(|(place, rule)| (rule.id, place))
            .collect();
        let built = built.moved_to(&first.place());
        Ok(Some(Contents {
            header,
            writes: elements(&lowered, &built, &first.0),
            found,
        }))
    }

    fn rebuild(&self, gone: &BTreeSet<u32>, added: Vec<Written>) -> Result<Rebuild, EditError> {
        let mut entries = self.entries.clone();
        let mut slots = self.slots.clone();
        let mut missing = self.missing.clone();
        for id in gone {
            let Some(entry) = entries.remove(id) else {
                continue;
            };
            // Packets on their way still count there, in the programs that are being replaced.
            slots.resting.push(entry.slot);
            if entry.origin == Origin::Configured {
                missing.insert(*id, entry.text);
            }
        }
        let before = slots.capacity;
        if slots.free.len() < added.len() + 1 {
            slots.grow_for(entries.len() + added.len());
        }
        let next_id = added.last().map_or(self.next_id, |w| w.rule.id + 1);
        let mut fresh = Vec::with_capacity(added.len());
        for written in added {
            let slot = slots.take().unwrap_or_default();
            fresh.push(slot);
            let entry = Entry::new(written, slot, Origin::Added);
            entries.insert(entry.rule.id, entry);
        }
        let counters_grew = slots.capacity > before;
        let blank = Blank {
            ports: self.ports.clone(),
            sees_egress: self.sees_egress,
            missing,
            next_id,
            generation: self.generation + 1,
            connections: self.connections.clone(),
            keep: self.layout.features & OF_CONNECTIONS,
            aliases: self.aliases.clone(),
            sets: self.layout.sets.without_tests(),
            tables: self.layout.all_tables,
        };
        let (mut book, plan) = blank.laid_out(entries, slots)?;
        let rested = std::mem::take(&mut book.slots.resting);
        book.slots.free.extend(rested);
        Ok(Rebuild {
            plan,
            counters_grew,
            fresh,
            book,
        })
    }

    /// Tables of limits that count addresses apart, or connections.
    pub fn limits(&self) -> Vec<LimitTable> {
        let rules = self.entries.values().map(|entry| &entry.rule);
        counts::limit_tables(rules, self.connections.limits)
    }

    /// Rules that limit connections at a time, and where their tables lie.
    fn counts(&self) -> impl Iterator<Item = (u32, counts::Place)> + '_ {
        (self.entries.values()).filter_map(|entry| Some((entry.counts_as, entry.count?)))
    }

    fn forget(&mut self, id: u32, entry: Entry) {
        if let Some(name) = &entry.rule.name {
            self.names.remove(name);
        }
        if entry.origin == Origin::Configured {
            self.missing.insert(id, entry.text);
        }
    }
}

/// What a book has before its rules are laid out.
struct Blank {
    ports: Vec<Port>,
    sees_egress: bool,
    missing: BTreeMap<u32, String>,
    next_id: u32,
    generation: u64,
    connections: Connections,
    keep: u32,
    aliases: Vec<(u32, u32)>,
    /// That have elements already.
    sets: SetPlan,
    /// Tables of limits of addresses that are there, of the same size.
    tables: u32,
}

/// Features whose tables connections live in.
const OF_CONNECTIONS: u32 = feature::STATE
    | feature::TRANSLATE
    | feature::NAT
    | feature::SEQUENCE
    | feature::MAPPING
    | feature::EXPECT;

impl Blank {
    fn laid_out(
        self,
        mut entries: BTreeMap<u32, Entry>,
        slots: Slots,
    ) -> Result<(RuleBook, InstancePlan), PlanError> {
        // Rules that stay keep their tables.
        let used: BTreeSet<u32> = entries.values().filter_map(|entry| entry.table).collect();
        let mut tables = (0..).filter(|table| !used.contains(table));
        let mut places = counts::Places::new(self.connections.limits);
        for entry in entries.values_mut() {
            entry.count = places.take(&entry.rule);
            if entry.table.is_none() && entry.rule.counts_apart() {
                entry.table = tables.next();
            }
        }
        let rules: Vec<(&Rule, Seat)> = entries.values().map(Entry::seated).collect();
        let room = EditCapacity::beside(rules.len());
        let lowering = Lowering::new(&self.ports, self.sees_egress).with_sets(self.sets);
        let lowered = lower(rules.into_iter(), lowering)?;
        let (plan, layout) = lay_out(
            &lowered,
            Scheme::Merged,
            room,
            slots.capacity as usize,
            self.generation,
            StateOf {
                connections: &self.connections,
                keep: self.keep,
                aliases: &self.aliases,
                last_id: self.next_id - 1,
                tables: self.tables,
            },
        )?;
        drop(lowered);
        for (entry, &at) in entries.values_mut().zip(&layout.positions) {
            entry.planned_at = Some(at);
        }
        let names = (entries.values())
            .filter_map(|e| Some((e.rule.name.clone()?, e.rule.id)))
            .collect();
        let book = RuleBook {
            ports: self.ports,
            sees_egress: self.sees_egress,
            entries,
            names,
            beside: Vec::new(),
            missing: self.missing,
            next_id: self.next_id,
            generation: self.generation,
            half: 0,
            slots,
            connections: self.connections,
            aliases: self.aliases,
            found: [Found::new(), Found::new()],
            layout,
        };
        Ok((book, plan))
    }
}

/// Places for counters.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// Free ones; the last is given next.
    free: Vec<u32>,
    /// Freed by the change under way.
    resting: Vec<u32>,
    capacity: u32,
}

impl Slots {
    fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Room for twice as many rules, so that growing is rare.
    fn grow_for(&mut self, rules: usize) {
        let capacity = (rules as u32 * 2).max(self.capacity) + 256;
        let mut free: Vec<u32> = (self.capacity..capacity).rev().collect();
        free.append(&mut self.free);
        self.free = free;
        self.capacity = capacity;
    }
}

/// What a half is to hold.
struct Contents {
    header: abi::Half,
    writes: Vec<Write>,
    found: Found,
}

/// The elements of a half, at their places.
fn elements(lowered: &Lowered<'_>, built: &weir_classify::Classifier, first: &Sizes) -> Vec<Write> {
    let mut rules = ordered(built, &lowered.rules);
    for rule in &mut rules {
        rule.cond_first += first.conds;
        rule.op_first += first.ops;
    }
    let mut conds = lowered.lowering.conds().to_vec();
    for cond in &mut conds {
        cond.set_first += first.intervals;
    }
    let mut ops = lowered.ops.clone();
    for op in &mut ops {
        connections::move_pool(op, first.intervals);
    }
    let mut writes = Vec::with_capacity(9);
    let mut push = |map, first, width, values: &[u8]| {
        if !values.is_empty() {
            writes.push(Write {
                map,
                first,
                width,
                values: values.to_vec(),
            });
        }
    };
    push(
        "tables",
        first.tables,
        size_of::<abi::Table>(),
        built.tables.as_bytes(),
    );
    push(
        "shapes",
        first.shapes,
        size_of::<abi::Table>(),
        built.shapes.as_bytes(),
    );
    push(
        "cells",
        first.cells,
        size_of::<abi::Cell>(),
        built.cells.as_bytes(),
    );
    push(
        "nodes",
        first.nodes,
        size_of::<abi::Node>(),
        built.nodes.as_bytes(),
    );
    push(
        "lists",
        first.lists,
        size_of::<u32>(),
        built.lists.as_bytes(),
    );
    push(
        "rules",
        first.rules,
        size_of::<abi::Rule>(),
        rules.as_bytes(),
    );
    push(
        "conds",
        first.conds,
        size_of::<abi::Cond>(),
        conds.as_bytes(),
    );
    push(
        "intervals",
        first.intervals,
        size_of::<abi::Interval>(),
        lowered.lowering.intervals().as_bytes(),
    );
    push("ops", first.ops, size_of::<abi::Op>(), ops.as_bytes());
    writes
}

fn last_id(entries: &BTreeMap<u32, Entry>) -> u32 {
    entries.keys().next_back().copied().unwrap_or(0)
}

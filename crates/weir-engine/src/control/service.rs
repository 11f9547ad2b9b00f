//! What requests mean: one desk for each running instance. Writers queue for a few seconds; who finds another one at work for longer is told so.
//!
//! Invariant: whatever is refused has changed nothing, neither rules nor file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use weir_functions::middlebox::flows::ConnectionFilter;
use weir_functions::middlebox::{Edit, Origin};
use weir_policy::dynamic::Element;

use super::{
    Ask, Change, ConnectionPage, Edited, ElementPage, Hello, Kind, Listed, Loaded, PolicyFile,
    Refused, Reply, Request, Rules, Sets, State, Tables, VERSION,
};
use crate::live::{FlowTable, LiveError, Running, SetError, SetTable, lock, written};

/// A writer waits so long for another one. Laying out a large policy anew takes a second or two.
const QUEUE: Duration = Duration::from_secs(5);
/// Connections in one answer at most.
const PAGE: u32 = 20_000;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Answers requests about one instance.
#[derive(Debug)]
pub(super) struct ControlService {
    hello: Mutex<Hello>,
    running: Arc<Mutex<Running>>,
    /// Who holds it may change rules.
    policy: Mutex<PolicyFile>,
}

impl ControlService {
    pub(super) fn new(
        running: Arc<Mutex<Running>>,
        policy: PolicyFile,
        interfaces: Vec<String>,
    ) -> ControlService {
        ControlService {
            hello: Mutex::new(Hello {
                pid: std::process::id(),
                interfaces,
                policy: policy.path().to_path_buf(),
            }),
            running,
            policy: Mutex::new(policy),
        }
    }

    /// Answers a line.
    pub(super) fn answer(&self, line: &str) -> Reply {
        let request: Request = match serde_json::from_str(line) {
            Ok(request) => request,
            Err(error) => {
                return refusal(Kind::Usage, format!("invalid request: {error}"));
            }
        };
        if request.version != VERSION {
            let ours = request.version;
            return refusal(
                Kind::Usage,
                format!("the running weir speaks version {VERSION}, not {ours}: use the same weir"),
            );
        }
        self.handle(request.ask).unwrap_or_else(Reply::Refused)
    }

    fn handle(&self, ask: Ask) -> Result<Reply, Refused> {
        match ask {
            Ask::Hello => Ok(Reply::Hello(self.hello())),
            Ask::Edit {
                edits,
                if_generation,
            } => self.edit(edits, if_generation),
            Ask::Compact => self.compact(),
            Ask::List => self.list(),
            Ask::Tables => self.tables().map(Reply::Tables),
            Ask::Load {
                file,
                flush_connections,
            } => self.load(file, flush_connections),
            Ask::Save { file, force } => self.save(file.as_deref(), force),
            Ask::Connections {
                filter,
                from,
                limit,
            } => self.connections(&filter, from, limit),
            Ask::Sets => Ok(Reply::Sets(Sets {
                instance: self.hello(),
                sets: self.sets()?.sets().map_err(of_set)?,
            })),
            Ask::Elements { set, from, limit } => {
                let limit = limit.clamp(1, PAGE) as usize;
                let page = self.sets()?.page(&set, from, limit).map_err(of_set)?;
                Ok(Reply::Elements(ElementPage {
                    elements: page.elements,
                    next: page.next,
                }))
            }
            Ask::AddElements {
                set,
                elements,
                stay,
            } => {
                let elements = parsed(&elements)?;
                let added = self.sets()?.add_all(&set, &elements, stay);
                Ok(Reply::ElementsAdded(added.map_err(of_set)?))
            }
            Ask::DeleteElements { set, elements } => {
                let table = self.sets()?;
                let gone = match elements {
                    None => table.flush(&set),
                    Some(elements) => table.delete_all(&set, &parsed(&elements)?),
                };
                Ok(Reply::ElementsDeleted(gone.map_err(of_set)?))
            }
            Ask::EndConnections { filter } => {
                let ended = self.flows()?.0.end(&filter);
                Ok(Reply::Ended(ended.map_err(|e| refused(e.into()))?))
            }
        }
    }

    fn edit(&self, changes: Vec<Change>, if_generation: Option<u64>) -> Result<Reply, Refused> {
        let policy = self.writer()?;
        let began = Instant::now();
        let mut edits = Vec::with_capacity(changes.len());
        let mut warnings = String::new();
        for change in changes {
            edits.push(match change {
                Change::Delete(id) => Edit::Delete(id),
                Change::Flush => Edit::Flush,
                Change::Add(line) => {
                    let parsed = policy.parse_rule(&line).map_err(usage)?;
                    warnings.push_str(&parsed.warnings.render(false));
                    let rule = written(&parsed).pop();
                    Edit::Add(Box::new(rule.ok_or_else(|| usage("no rule".to_owned()))?))
                }
            });
        }
        let mut running = lock(&self.running);
        let generation = running.book().generation();
        if let Some(wanted) = if_generation
            && wanted != generation
        {
            return Err(Refused {
                kind: Kind::Generation,
                message: format!(
                    "the rules are at generation {generation}, not {wanted}: modified concurrently; check `weir rule list` and retry"
                ),
            });
        }
        let edited = running.edit(edits).map_err(refused)?;
        warnings.push_str(&settle(&mut running));
        Ok(Reply::Edited(Edited {
            added: edited.added,
            generation: edited.generation,
            rebuilt: edited.rebuilt,
            micros: began.elapsed().as_micros() as u64,
            warnings,
        }))
    }

    fn compact(&self) -> Result<Reply, Refused> {
        let _writer = self.writer()?;
        let began = Instant::now();
        let mut running = lock(&self.running);
        running.compact().map_err(refused)?;
        Ok(Reply::Edited(Edited {
            added: Vec::new(),
            generation: running.book().generation(),
            rebuilt: true,
            micros: began.elapsed().as_micros() as u64,
            warnings: String::new(),
        }))
    }

    fn load(&self, file: Option<PathBuf>, flush_connections: bool) -> Result<Reply, Refused> {
        let mut policy = self.writer()?;
        let began = Instant::now();
        let path = file.unwrap_or_else(|| policy.path().to_path_buf());
        let parsed = PolicyFile::read(&path).map_err(usage)?;
        let mut running = lock(&self.running);
        let followed = running
            .follow(
                written(&parsed),
                &parsed.policy.connections,
                flush_connections,
            )
            .map_err(refused)?;
        *policy = PolicyFile::new(&path, &parsed, running.book());
        let mut hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        hello.policy.clone_from(&path);
        Ok(Reply::Loaded(Loaded {
            file: path,
            kept: followed.kept,
            renumbered: followed.renumbered,
            added: followed.added,
            removed: followed.removed,
            generation: running.book().generation(),
            rebuilt: followed.rebuilt,
            micros: began.elapsed().as_micros() as u64,
            warnings: parsed.warnings.render(false) + &settle(&mut running),
        }))
    }

    fn hello(&self) -> Hello {
        let hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        hello.clone()
    }

    fn list(&self) -> Result<Reply, Refused> {
        let running = lock(&self.running);
        let book = running.book();
        let counters = running.counters().map_err(refused)?;
        let here = book.entries().zip(counters).map(|(entry, counter)| Listed {
            id: entry.rule.id,
            state: match entry.origin {
                Origin::Configured => State::Configured,
                Origin::Added => State::AddedLive,
            },
            rule: entry.text.clone(),
            packets: counter.packets,
            bytes: counter.bytes,
        });
        let gone = book.missing().map(|(id, text)| Listed {
            id,
            state: State::DeletedLive,
            rule: text.to_owned(),
            packets: 0,
            bytes: 0,
        });
        let mut rules: Vec<Listed> = here.chain(gone).collect();
        rules.sort_by_key(|rule| rule.id);
        Ok(Reply::Rules(Rules {
            instance: self.hello(),
            generation: book.generation(),
            drifted: book.drifted(),
            rules,
        }))
    }

    fn tables(&self) -> Result<Tables, Refused> {
        let running = lock(&self.running);
        let book = running.book();
        let bounds = book.bounds();
        Ok(Tables {
            instance: self.hello(),
            generation: book.generation(),
            rules: book.entries().len(),
            beside: book.beside(),
            room: book.room(),
            dead: book.dead(),
            tables: bounds.tables,
            probes: bounds.probes,
            candidates: bounds.candidates,
            hits: bounds.hits,
            limits: running.limits().map_err(refused)?,
            maps: running.map_sizes(),
        })
    }

    /// Packets and writers go on while the table is read.
    fn connections(
        &self,
        filter: &ConnectionFilter,
        from: u32,
        limit: u32,
    ) -> Result<Reply, Refused> {
        let (table, capacity) = self.flows()?;
        let limit = limit.clamp(1, PAGE) as usize;
        let page = (table.page(filter, from, limit)).map_err(|e| refused(e.into()))?;
        Ok(Reply::Connections(ConnectionPage {
            instance: self.hello(),
            capacity,
            connections: page.connections,
            next: page.next,
        }))
    }

    /// The table, and how many connections it keeps at least.
    fn flows(&self) -> Result<(FlowTable, u32), Refused> {
        let running = lock(&self.running);
        let capacity = running.book().connections().capacity;
        let table = running.flows().map_err(refused)?;
        let none = || Refused {
            kind: Kind::Usage,
            message: "no rule keeps connections: `weir rule add-stateful` adds one that does"
                .to_owned(),
        };
        Ok((table.ok_or_else(none)?, capacity))
    }

    /// The sets that packets fill. Packets go on while they are read and changed.
    fn sets(&self) -> Result<SetTable, Refused> {
        let table = lock(&self.running).sets().map_err(refused)?;
        table.ok_or_else(|| Refused {
            kind: Kind::Usage,
            message: "no rule that runs names a dynamic set: a policy defines one with `set NAME = dynamic`".to_owned(),
        })
    }

    fn save(&self, file: Option<&Path>, force: bool) -> Result<Reply, Refused> {
        let mut policy = self.writer()?;
        let mut running = lock(&self.running);
        let to_own = file.is_none_or(|file| file == policy.path());
        let saved = policy
            .save(running.book(), file, force)
            .map_err(|error| Refused {
                kind: Kind::Failed,
                message: error.to_string(),
            })?;
        if to_own {
            running.saved();
        }
        Ok(Reply::Saved(saved))
    }

    /// The right to change rules.
    fn writer(&self) -> Result<MutexGuard<'_, PolicyFile>, Refused> {
        enter(&self.policy, QUEUE)
    }
}

/// Waits so long for somebody else to leave.
fn enter<T>(room: &Mutex<T>, patience: Duration) -> Result<MutexGuard<'_, T>, Refused> {
    let began = Instant::now();
    loop {
        match room.try_lock() {
            Ok(inside) => return Ok(inside),
            Err(TryLockError::Poisoned(inside)) => return Ok(PoisonError::into_inner(inside)),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => {
                std::thread::sleep(LOOK);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Refused {
                    kind: Kind::Busy,
                    message: "another command is changing the rules: retry".to_owned(),
                });
            }
        }
    }
}

fn parsed(elements: &[String]) -> Result<Vec<Element>, Refused> {
    elements
        .iter()
        .map(|text| text.parse().map_err(usage))
        .collect()
}

fn of_set(error: SetError) -> Refused {
    let kind = match error {
        SetError::Unknown { .. } => Kind::Usage,
        SetError::Kernel(_) => Kind::Failed,
    };
    Refused {
        kind,
        message: error.to_string(),
    }
}

fn usage(message: String) -> Refused {
    Refused {
        kind: Kind::Usage,
        message,
    }
}

fn refused(error: LiveError) -> Refused {
    let kind = match error.is_usage() {
        true => Kind::Usage,
        false => Kind::Failed,
    };
    Refused {
        kind,
        message: error.to_string(),
    }
}

fn refusal(kind: Kind, message: String) -> Reply {
    Reply::Refused(Refused { kind, message })
}

/// Tells the stack what rules make of sources; a line for each thing that is new, or why it cannot be told.
fn settle(running: &mut Running) -> String {
    match running.settle_host() {
        Ok(notes) => notes.iter().map(|note| format!("weir: {note}\n")).collect(),
        Err(e) => format!(
            "weir: the stack drops packets that get an address of this host as source: {e}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_who_finds_another_one_at_work_is_told_so() {
        let room = Mutex::new(());
        let inside = enter(&room, LOOK).expect("free");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| enter(&room, LOOK * 20).map(drop).expect_err("taken"));
            let refused = other.join().expect("no panic");
            assert_eq!(refused.kind, Kind::Busy);
            assert!(refused.message.contains("retry"), "{}", refused.message);
            // One who leaves in time is waited for.
            let other = scope.spawn(|| enter(&room, QUEUE).map(drop));
            std::thread::sleep(LOOK * 20);
            drop(inside);
            other.join().expect("no panic").expect("free by then");
        });
    }
}

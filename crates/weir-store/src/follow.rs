//! One edge that follows the store, in a thread: reads, watches, keeps what it knows on disk, writes the document that the agent applies, and reports
//! back what became of it.
//!
//! Whatever fails is tried again after a pause that doubles and is spread at random; until then the document on disk stays as it is.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::entry::{self, Alive, Presence, ResultEntry, ResultState, written};
use crate::etcd::{Client, Compare, Event, Header, Op, Range, spread};
use crate::http::StoreError;
use crate::layout;
use crate::local::{Local, write_whole};
use crate::reading::Reading;
use crate::settings::Settings;

/// Events of one transaction come in several messages, back to back.
const SETTLE: Duration = Duration::from_millis(3);

/// The pause before the store is tried again: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How a follower works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the store is reached.
    pub settings: Settings,
    /// The edge.
    pub edge: String,
    /// Where it keeps its files; it exists.
    pub folder: PathBuf,
    /// The host's name.
    pub host: String,
    /// What differs from boot to boot.
    pub boot: String,
    /// Version of weir.
    pub weir: String,
}

impl Options {
    /// The document that the agent applies.
    #[must_use]
    pub fn document(&self) -> PathBuf {
        self.folder.join(format!("{}.toml", self.edge))
    }

    fn state(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.edge))
    }
}

/// What the agent tells of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Version of the document.
    pub version: u64,
    /// What became of it.
    pub state: ResultState,
    /// Why it failed.
    pub error: Option<String>,
}

/// A document that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its version.
    pub version: u64,
    /// Revision of the store that it is of.
    pub revision: i64,
}

/// What the follower did or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It follows the store.
    Connected {
        /// Through this member.
        endpoint: String,
        /// From this revision on.
        revision: i64,
    },
    /// It does not.
    Lost {
        /// Why.
        why: String,
    },
    /// A document was written.
    Published(Published),
    /// The store lacks what this edge has seen there; that is kept.
    Held {
        /// How many entries.
        entries: usize,
        /// How the store looks.
        what: &'static str,
    },
    /// The store does not declare this edge.
    Undeclared,
}

/// Both sides' news.
#[derive(Debug, Default)]
struct Shared {
    reports: Mutex<Vec<Report>>,
}

/// The two leases of an edge. The registration ends with the first: the edge is suspect then. With the second it counts as removed. So no agent
/// has to watch another one, and nobody has to write down that one is silent.
#[derive(Clone, Copy, Debug)]
struct Leases {
    registration: i64,
    presence: i64,
    /// When the second is to be lengthened.
    due: Instant,
}

/// What wakes the follower.
#[derive(Debug)]
enum Input {
    Watched(Result<(Header, Vec<Event>), StoreError>),
    Applied(Applied),
    Stop,
}

/// A thread that follows. Dropping it ends the thread.
#[derive(Debug)]
pub struct Follower {
    /// Of this.
    pub options: Options,
    shared: Arc<Shared>,
    input: UnboundedSender<Input>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins. `wake` is called when there are reports.
    ///
    /// # Errors
    /// Certificates cannot be read, or the state.
    pub fn start(
        options: Options,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Follower, StoreError> {
        let file = |path: &Path, error: io::Error| StoreError::File {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        let client = Client::new(&options.settings)?;
        let state = options.state();
        let shared = Arc::new(Shared::default());
        let (input, inputs) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| file(&state, error))?;
        let document = options.document();
        let text = match std::fs::read_to_string(&document) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(file(&document, error)),
        };
        let mut local = Local::read(&state, &options.edge).map_err(|error| file(&state, error))?;
        // Where the state was lost, versions go on above what runs.
        let before = version_of(&text).unwrap_or_default();
        local.version = local.version.max(before);
        let mut following = Following {
            grace: Duration::from_secs(options.settings.grace),
            options: options.clone(),
            client,
            local,
            text,
            applied: None,
            said: None,
            lost: None,
            known: 0,
            leases: None,
            shared: Arc::clone(&shared),
            sender: input.clone(),
            inputs,
            wake: Box::new(wake),
        };
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || runtime.block_on(following.run()))
            .map_err(|error| file(&state, error))?;
        Ok(Follower {
            options,
            shared,
            input,
            thread: Some(thread),
        })
    }

    /// What became of a document.
    pub fn tell(&self, applied: Applied) {
        // A thread that has ended has nobody to tell.
        let _ = self.input.send(Input::Applied(applied));
    }

    /// News since the last call.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let mut reports = (self.shared.reports.lock()).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut reports)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.input.send(Input::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why following ended.
enum Ended {
    Stop,
    Failed(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Ended {
        Ended::Failed(error)
    }
}

struct Following {
    options: Options,
    grace: Duration,
    client: Client,
    local: Local,
    /// The document as it is on disk.
    text: String,
    /// What the agent said last.
    applied: Option<Applied>,
    /// What was written to the store last: digest, version, state, error, held.
    said: Option<(String, u64, ResultState, Option<String>, usize)>,
    /// Why it does not follow, as it was said last.
    lost: Option<String>,
    /// Revision of this edge's result in the store.
    known: i64,
    leases: Option<Leases>,
    shared: Arc<Shared>,
    sender: UnboundedSender<Input>,
    inputs: UnboundedReceiver<Input>,
    wake: Box<dyn Fn() + Send>,
}

impl Following {
    async fn run(&mut self) {
        let mut pause = PAUSE;
        loop {
            let begun = Instant::now();
            let error = match self.follow().await {
                Ok(()) | Err(Ended::Stop) => return self.end().await,
                Err(Ended::Failed(error)) => error,
            };
            if begun.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            let is_compacted = matches!(error, StoreError::Compacted { .. });
            let why = error.to_string();
            // The same failure is said once.
            if !is_compacted && self.lost.as_ref() != Some(&why) {
                self.report(Report::Lost { why: why.clone() });
                self.lost = Some(why);
            }
            self.client.leave();
            // Half of it is fixed, half spread: edges that lost the same member do not come back together.
            let half = pause / 2;
            let wait = half + Duration::from_micros(spread(half.as_micros() as u64));
            let until = Instant::now() + wait;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                match timeout(left, self.inputs.recv()).await {
                    Ok(Some(Input::Stop) | None) => return self.end().await,
                    Ok(Some(Input::Applied(applied))) => self.applied = Some(applied),
                    // Of a watch that has ended.
                    Ok(Some(Input::Watched(_))) => {}
                    Err(_) => break,
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// An agent that is stopped says so; where the store cannot be told, the lease ends.
    async fn end(&mut self) {
        if let Some(leases) = self.leases.take() {
            let ops = [
                Op::Delete(layout::alive(&self.options.edge)),
                self.presence(true, leases.presence),
            ];
            let _ = self.client.transact(&[], &ops).await;
        }
    }

    async fn follow(&mut self) -> Result<(), Ended> {
        self.register().await?;
        let mut beat = Instant::now() + self.heartbeat();
        let mut is_new = true;
        loop {
            let networks = self.local.networks();
            let reading = Reading::of(&mut self.client, &self.options.edge, &networks).await?;
            self.merge(&reading)?;
            self.say().await?;
            let ranges = self.local.ranges();
            let list: Vec<Range> = ranges.iter().cloned().collect();
            let watch = self
                .client
                .watch(&list, reading.header.revision + 1)
                .await?;
            if std::mem::take(&mut is_new) {
                self.lost = None;
                self.report(Report::Connected {
                    endpoint: self.client.endpoint(),
                    revision: reading.header.revision,
                });
            }
            let pump = Pump::start(watch, self.sender.clone());
            let outcome = self.watch(&ranges, &mut beat).await;
            drop(pump);
            // What it had read already is read again.
            self.drain();
            outcome?;
        }
    }

    /// Takes in events until something is to be read whole.
    async fn watch(&mut self, ranges: &BTreeSet<Range>, beat: &mut Instant) -> Result<(), Ended> {
        let mut settle: Option<Instant> = None;
        let mut whole = false;
        loop {
            let now = Instant::now();
            if now >= *beat {
                self.beat().await?;
                // After a new registration the result is written again.
                self.say().await?;
                *beat = Instant::now() + self.heartbeat();
            }
            if settle.is_some_and(|at| at <= now) {
                settle = None;
                if whole || self.local.ranges() != *ranges {
                    return Ok(());
                }
                self.publish()?;
                self.say().await?;
            }
            if self
                .local
                .next_expiry(self.grace)
                .is_some_and(|at| at <= now)
            {
                let is_less = self.local.expire(now, self.grace);
                self.publish()?;
                self.say().await?;
                if is_less && self.local.ranges() != *ranges {
                    return Ok(());
                }
            }
            let expiry = self.local.next_expiry(self.grace);
            let next = [settle, expiry]
                .into_iter()
                .flatten()
                .fold(*beat, Instant::min);
            let left = next.saturating_duration_since(Instant::now());
            match timeout(left, self.inputs.recv()).await {
                Err(_) => {}
                Ok(None | Some(Input::Stop)) => return Err(Ended::Stop),
                Ok(Some(Input::Applied(applied))) => {
                    self.applied = Some(applied);
                    self.give_way()?;
                    self.say().await?;
                }
                Ok(Some(Input::Watched(events))) => {
                    let (_, events) = events?;
                    for event in events {
                        match event {
                            // Whether a network begins or ends to concern this edge, or which store this is, is read whole.
                            Event::Put(one)
                                if one.key.starts_with(layout::NETWORKS)
                                    || one.key.starts_with(layout::EDGES) =>
                            {
                                self.local.take(&one);
                            }
                            // What is gone is taken from a complete reading only.
                            Event::Put(_) | Event::Delete(..) => whole = true,
                        }
                        settle.get_or_insert(Instant::now() + SETTLE);
                    }
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                Input::Applied(applied) => self.applied = Some(applied),
                Input::Watched(_) => {}
                Input::Stop => {
                    let _ = self.sender.send(Input::Stop);
                    return;
                }
            }
        }
    }

    fn merge(&mut self, reading: &Reading) -> Result<(), Ended> {
        let before = self.local.held().len();
        let merged = self.local.merge(reading, Instant::now());
        self.local.expire(Instant::now(), self.grace);
        self.known = reading.result.as_ref().map_or(0, |(_, revision)| *revision);
        let held = self.local.held().len();
        if merged.empty && !self.local.networks().is_empty() {
            self.report(Report::Held {
                entries: self.local.networks().len(),
                what: "the store is empty",
            });
        } else if merged.restored && held > 0 || held > before {
            self.report(Report::Held {
                entries: held,
                what: "the store is an older state or another one",
            });
        }
        self.publish()
    }

    /// Writes the document, if it says something else than the one on disk.
    fn publish(&mut self) -> Result<(), Ended> {
        let Some(text) = self.local.document()? else {
            if self.text.is_empty() {
                self.report(Report::Undeclared);
            }
            return self.save();
        };
        let body = |text: &str| {
            text.split_once('\n')
                .map_or(String::new(), |(_, rest)| rest.to_owned())
        };
        if body(&text) == body(&self.text) && self.local.version != 0 {
            return self.save();
        }
        self.local.version = self.local.generation().max(self.local.version + 1);
        let Some(text) = self.local.document()? else {
            return Ok(());
        };
        let path = self.options.document();
        write_whole(&path, text.as_bytes()).map_err(|error| broken(&path, error))?;
        self.text = text;
        self.report(Report::Published(Published {
            version: self.local.version,
            revision: self.local.revision,
        }));
        // The agent applies it meanwhile. Where this is not written, versions go on above that of the document.
        self.save()
    }

    fn save(&self) -> Result<(), Ended> {
        let path = self.options.state();
        Ok(self
            .local
            .write(&path)
            .map_err(|error| broken(&path, error))?)
    }

    /// What takes the place of something that is gone does not wait for the grace period.
    fn give_way(&mut self) -> Result<(), Ended> {
        let is_refused = self.applied.as_ref().is_some_and(|one| {
            one.state == ResultState::Failed && one.version == self.local.version
        });
        if is_refused && self.local.next_expiry(self.grace).is_some() {
            self.local.expire(Instant::now() + self.grace, self.grace);
            self.publish()?;
        }
        Ok(())
    }

    /// Writes this edge's result, if it is another than the one in the store.
    async fn say(&mut self) -> Result<(), Ended> {
        let (state, error) = match &self.applied {
            Some(one) if one.version == self.local.version => (one.state, one.error.clone()),
            _ => (ResultState::Pending, None),
        };
        if self.local.version == 0 {
            return Ok(());
        }
        let held = self.local.held().len();
        let now = (
            self.local.digest(),
            self.local.version,
            state,
            error.clone(),
            held,
        );
        // While the agent works on it there is nothing to say yet.
        if self.said.as_ref() == Some(&now)
            || (state == ResultState::Pending && self.said.is_some())
        {
            return Ok(());
        }
        let result = ResultEntry {
            serial: self.local.serial + 1,
            revision: self.local.revision,
            digest: now.0.clone(),
            version: now.1,
            state,
            error,
            held,
            time: entry::now() / 1_000_000,
        };
        let key = layout::result(&self.options.edge);
        let compare = [Compare::Revision(key.clone(), self.known)];
        let (header, done) = self
            .client
            .transact(&compare, &[Op::Put(key.clone(), written(&result))])
            .await?;
        if !done {
            return Err(Ended::Failed(StoreError::Conflict {
                what: format!("{key}, which only the agent of this edge writes"),
            }));
        }
        self.known = header.revision;
        self.local.serial = result.serial;
        self.said = Some(now);
        self.save()
    }

    /// Registers the edge under a lease. Another host under the same name is refused.
    async fn register(&mut self) -> Result<(), Ended> {
        let key = layout::alive(&self.options.edge);
        let (_, found) = self.client.range(&Range::Key(key.clone()), 0).await?;
        let mut revision = 0;
        if let Some(found) = found.first() {
            let other: Alive = entry::read(&found.key, &found.value)?;
            if other.boot != self.options.boot || other.host != self.options.host {
                return Err(Ended::Failed(StoreError::Conflict {
                    what: format!(
                        "edge {} is registered by host {}: stop the agent there, or name another edge in [store]",
                        self.options.edge, other.host
                    ),
                }));
            }
            revision = found.revision;
        }
        let settings = &self.options.settings;
        let (lease, remove_after) = (settings.lease, settings.remove_after);
        let registration = self.client.grant(lease).await?;
        // It is lengthened now and then only, and must not end too early for that.
        let spare = presence_pause(remove_after).as_secs();
        let presence = self.client.grant(lease + remove_after + spare).await?;
        let alive = Alive {
            host: self.options.host.clone(),
            boot: self.options.boot.clone(),
            weir: self.options.weir.clone(),
            since: entry::now() / 1_000_000,
        };
        let compare = [Compare::Revision(key.clone(), revision)];
        let (_, done) = self
            .client
            .transact(
                &compare,
                &[
                    Op::PutLeased(key.clone(), written(&alive), registration),
                    self.presence(false, presence),
                ],
            )
            .await?;
        if !done {
            return Err(Ended::Failed(StoreError::Conflict { what: key }));
        }
        self.leases = Some(Leases {
            registration,
            presence,
            due: Instant::now() + presence_pause(remove_after),
        });
        // The store may be another one.
        self.said = None;
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), Ended> {
        let Some(mut leases) = self.leases else {
            return Ok(());
        };
        let mut is_held = self.client.keep_alive(leases.registration).await?;
        if is_held && Instant::now() >= leases.due {
            is_held = self.client.keep_alive(leases.presence).await?;
            leases.due = Instant::now() + presence_pause(self.options.settings.remove_after);
            self.leases = Some(leases);
        }
        match is_held {
            true => Ok(()),
            // It ended while this edge was cut off.
            false => self.register().await,
        }
    }

    /// How often the registration is lengthened: one that is lost has time to come again. It also finds members that are cut off from the others.
    fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.options.settings.lease * 300)
    }

    fn presence(&self, stopped: bool, lease: i64) -> Op {
        let presence = Presence {
            host: self.options.host.clone(),
            stopped,
            time: entry::now() / 1_000_000,
        };
        let key = layout::present(&self.options.edge);
        Op::PutLeased(key, written(&presence), lease)
    }

    fn report(&self, report: Report) {
        let mut reports = (self.shared.reports.lock()).unwrap_or_else(PoisonError::into_inner);
        reports.push(report);
        drop(reports);
        (self.wake)();
    }
}

/// How often the second lease is lengthened.
fn presence_pause(remove_after: u64) -> Duration {
    Duration::from_secs((remove_after / 3).max(1))
}

fn broken(path: &Path, error: io::Error) -> StoreError {
    StoreError::File {
        path: path.display().to_string(),
        why: error.to_string(),
    }
}

/// Hands the messages of a watch to the follower until it is dropped.
struct Pump(tokio::task::JoinHandle<()>);

impl Pump {
    fn start(mut watch: crate::etcd::Watch, sender: UnboundedSender<Input>) -> Pump {
        Pump(tokio::spawn(async move {
            loop {
                let message = watch.next().await;
                let is_over = message.is_err();
                if sender.send(Input::Watched(message)).is_err() || is_over {
                    return;
                }
            }
        }))
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The version of a document that was written here.
#[must_use]
pub fn version_of(text: &str) -> Option<u64> {
    text.lines()
        .next()?
        .strip_prefix("version = ")?
        .parse()
        .ok()
}

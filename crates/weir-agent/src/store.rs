//! The edge of this host that follows a store: its document is one more file that the agent applies, and what became of it goes back.
//!
//! The file is in the state folder and stays there: a host boots and forwards without the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_store::{Applied, Follower, Options, Report, ResultState, Settings};

use crate::event::Event;

/// What wakes the agent's loop.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// What is followed.
#[derive(Default)]
pub(crate) struct Store {
    /// The settings that were last tried.
    settings: Option<Settings>,
    follower: Option<Follower>,
    /// The document and its edge, also while the store cannot be followed.
    file: Option<(PathBuf, String)>,
    /// Why it is not followed. Said once.
    error: Option<String>,
    waker: Option<Waker>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn wake_with(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Follows what the settings say, and tells what happened since the last call.
    pub(crate) fn hold(&mut self, settings: Option<&Settings>, state: &Path) -> Vec<Event> {
        if self.settings.as_ref() != settings || (self.error.is_some() && settings.is_some()) {
            self.settings = settings.cloned();
            self.follower = None;
            self.file = None;
            match settings
                .map(|settings| self.start(settings, state))
                .transpose()
            {
                Ok(follower) => {
                    self.follower = follower;
                    self.error = None;
                }
                Err(text) => {
                    let is_new = self.error.as_ref() != Some(&text);
                    self.error = Some(text.clone());
                    let text = format!("the store is not followed: {text}; edges run on");
                    return is_new
                        .then_some(Event::Warning { text })
                        .into_iter()
                        .collect();
                }
            }
        }
        let Some(follower) = &self.follower else {
            return Vec::new();
        };
        let edge = &follower.options.edge;
        let reports = follower.reports().into_iter();
        reports.map(|report| event(edge, report)).collect()
    }

    fn start(&mut self, settings: &Settings, state: &Path) -> Result<Follower, String> {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let edge = settings.edge.clone().unwrap_or_else(|| host.clone());
        if edge.is_empty() || edge.contains('/') {
            return Err(format!(
                "`{edge}` is not the name of an edge: write `edge = \"NAME\"` in [store]"
            ));
        }
        let folder = state.join("store");
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(told)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|error| error.to_string())?;
        let options = Options {
            settings: settings.clone(),
            edge: edge.clone(),
            folder,
            host,
            boot: boot.trim().to_owned(),
            weir: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // Even where a certificate is missing, what was written before is applied.
        self.file = Some((options.document(), edge));
        let waker = self.waker.clone();
        let wake = move || {
            if let Some(waker) = &waker {
                waker();
            }
        };
        Follower::start(options, wake).map_err(|error| error.to_string())
    }

    /// The document, if one was ever written.
    pub(crate) fn file(&self) -> Option<&Path> {
        let (path, _) = self.file.as_ref()?;
        path.exists().then_some(path.as_path())
    }

    /// The edge of a file, if it is the store's document.
    pub(crate) fn edge_of(&self, path: &Path) -> Option<&str> {
        let (file, edge) = self.file.as_ref()?;
        (file == path).then_some(edge.as_str())
    }

    /// The version that the store's document has on disk.
    pub(crate) fn version_of(&self, path: &Path) -> Option<u64> {
        self.edge_of(path)?;
        weir_store::version_of(&fs::read_to_string(path).ok()?)
    }

    /// Tells the store what became of its document.
    pub(crate) fn tell(&self, version: u64, state: ResultState, error: Option<&str>) {
        if let Some(follower) = &self.follower {
            follower.tell(Applied {
                version,
                state,
                error: error.map(str::to_owned),
            });
        }
    }
}

fn event(edge: &str, report: Report) -> Event {
    let (state, text) = match report {
        Report::Connected { endpoint, revision } => {
            ("connected", format!("follows the store at {endpoint} from revision {revision}"))
        }
        Report::Lost { why } => ("lost", format!("{why}; what runs goes on, and it is tried again")),
        Report::Published(one) => (
            "changed",
            format!("revision {} of the store is version {} of its document", one.revision, one.version),
        ),
        Report::Held { entries, what } => (
            "held",
            format!("{what}: {entries} entries that are missing there stay in force. `weir net store push` restores them, `weir net store accept` removes them"),
        ),
        Report::Undeclared => (
            "undeclared",
            "the store does not declare this edge: push a document with its `[[edge]]`, or correct `edge` of [store]".to_owned(),
        ),
    };
    Event::Store {
        edge: edge.to_owned(),
        state,
        text,
    }
}

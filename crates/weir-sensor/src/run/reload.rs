//! New rules while a run goes on: loaded beside it, and taken when they are whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::{Controls, Reload, Say, Setup};
use crate::config::SensorConfig;
use crate::worker::Engine;

/// How long a thread that freed much stays.
const LINGER: Duration = Duration::from_millis(1500);

/// Loads rules when somebody asks for it.
pub(super) struct Reloader<'a> {
    config: &'a SensorConfig,
    say: &'a (dyn Fn(Say<'_>) + Sync),
    load: Option<Arc<Reload>>,
    loading: Option<Receiver<Result<(Engine, Duration), String>>>,
}

/// What became of rules that were to be loaded.
pub(super) enum Reloaded {
    /// They are these.
    New(Arc<Engine>),
    /// The old ones stay in use, for this reason.
    Kept(String),
}

impl<'a> Reloader<'a> {
    pub(super) fn new(setup: &Setup<'a>) -> Reloader<'a> {
        Reloader {
            config: setup.config,
            say: setup.say,
            load: setup.reload.clone(),
            loading: None,
        }
    }

    /// Begins to load rules if somebody asked for it; says what became of them when that is known. `engine`: those in use.
    pub(super) fn poll(&mut self, controls: &Controls, engine: &Arc<Engine>) -> Option<Reloaded> {
        let Some(loading) = &self.loading else {
            self.begin(controls, engine);
            return None;
        };
        let why = match loading.try_recv() {
            Ok(Ok((new, _))) if self.is_worse(&new, engine) => {
                let [refused, _] = new.missing;
                format!(
                    "{} rules are left of {}, and {refused} are rejected (rule-reload.broken: load takes them all the same)",
                    new.rules(),
                    engine.rules()
                )
            }
            Ok(Ok((new, took))) => {
                (self.say)(Say::Reloaded(new.rules(), took));
                self.loading = None;
                return Some(Reloaded::New(Arc::new(new)));
            }
            Ok(Err(why)) => why,
            Err(mpsc::TryRecvError::Empty) => return None,
            Err(mpsc::TryRecvError::Disconnected) => "loading ended early".to_owned(),
        };
        (self.say)(Say::NotReloaded(&why));
        self.loading = None;
        Some(Reloaded::Kept(why))
    }

    fn begin(&mut self, controls: &Controls, engine: &Arc<Engine>) {
        if !controls.reload.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(load) = &self.load else { return };
        let (to, from) = mpsc::channel();
        let (load, before) = (Arc::clone(load), Arc::clone(engine));
        let started = Instant::now();
        let spawned = std::thread::Builder::new()
            .name("sensor-load".to_owned())
            .spawn(move || {
                let loaded = load(&before);
                drop(before);
                // Nobody waits for it any more if the run is over.
                let _ = to.send(loaded.map(|engine| (engine, started.elapsed())));
            });
        match spawned {
            Ok(_) => self.loading = Some(from),
            Err(e) => (self.say)(Say::NotReloaded(&e.to_string())),
        }
    }

    /// Whether rules that were loaded anew are rather a file that broke: fewer than before, and more that are refused, or none at all.
    fn is_worse(&self, new: &Engine, old: &Engine) -> bool {
        let none = new.rules() == 0 && old.rules() > 0;
        let broken = new.missing[0] > old.missing[0] && new.rules() < old.rules();
        !self.config.broken_reloads && (none || broken)
    }
}

/// Lets go of rules when nobody else refers to them any more: whoever works on packets does not stop for it. Without any: has the memory given back that loading them took.
pub(super) fn tidy(old: Option<Arc<Engine>>) {
    // If there can be no thread, the closure goes, and the rules with whoever refers to them last.
    let _ = std::thread::Builder::new()
        .name("sensor-tidy".to_owned())
        .spawn(move || {
            while old.as_ref().is_some_and(|old| Arc::strong_count(old) > 1) {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(old);
            // Allocators give free memory back to the system when somebody allocates or a thread ends, some time after it became free (mimalloc: a second). A quiet sensor does neither.
            std::thread::sleep(LINGER);
        });
}

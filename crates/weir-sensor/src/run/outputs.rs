//! Scripts that are outputs, while a run goes on: each has one state, and is called in the order of packets whatever the number of workers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::{OutputScript, Wants};
use crate::script::{Failure, Script, State, View};

/// All of them.
pub(super) struct Outputs {
    list: Vec<Output>,
    /// Calls that failed.
    pub(super) errors: u64,
    /// The first failure of each, until it is told.
    pub(super) told: Vec<String>,
}

struct Output {
    script: Arc<Script>,
    wants: Wants,
    /// None: it could not begin.
    state: Option<State>,
    failed: bool,
}

impl Outputs {
    /// Calls `setup` of each.
    pub(super) fn open(scripts: &[OutputScript], logs: &Path) -> Outputs {
        let mut all = Outputs {
            list: Vec::new(),
            errors: 0,
            told: Vec::new(),
        };
        for one in scripts {
            let mut output = Output {
                script: Arc::clone(&one.script),
                wants: one.wants,
                state: None,
                failed: false,
            };
            let made = State::new(&one.script, &[], Some(logs));
            output.state = all.count(&mut output.failed, &one.script, made);
            all.list.push(output);
        }
        all
    }

    /// What was called for, if it did not fail.
    fn count<T>(
        &mut self,
        failed: &mut bool,
        script: &Script,
        called: Result<T, Failure>,
    ) -> Option<T> {
        let failure = match called {
            Ok(value) => return Some(value),
            Err(failure) => failure,
        };
        self.errors += 1;
        if !std::mem::replace(failed, true) {
            self.told.push(failure.of(script));
        }
        None
    }

    /// Calls each script that is wanted.
    fn each(
        &mut self,
        wanted: impl Fn(&Output) -> bool,
        mut call: impl FnMut(&mut State) -> Result<(), Failure>,
    ) {
        let mut list = std::mem::take(&mut self.list);
        for output in list.iter_mut().filter(|o| wanted(o)) {
            let Some(state) = &mut output.state else {
                continue;
            };
            let called = call(state);
            self.count(&mut output.failed, &output.script, called);
        }
        self.list = list;
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Calls those that want it.
    pub(super) fn log(&mut self, wants: Wants, view: &mut View<'_>) {
        self.each(|o| o.wants == wants, |state| state.log(view));
    }

    /// Counters, for those that want them.
    pub(super) fn stats(&mut self, counters: &BTreeMap<String, u64>) {
        if self.list.iter().any(|o| o.wants == Wants::Stats) {
            let counters = counters.iter().map(|(name, n)| (name.clone(), *n));
            let mut view = View {
                counters: counters.collect(),
                ..View::default()
            };
            self.log(Wants::Stats, &mut view);
        }
    }

    /// The run is over: calls `deinit`.
    pub(super) fn end(&mut self) {
        self.each(|_| true, State::end);
    }
}

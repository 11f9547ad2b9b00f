//! Workers that take turns at slices of state: whoever is free takes the slice whose next share is of the earliest batch.
//!
//! A slice has a pipeline, which one worker at a time takes out of its seat, and a queue of shares, one of each batch that concerns it, in the order of batches. So what a slice
//! does is the same whoever does it and when. Workers own nothing but a detector: scratch memory that is too large to have one for each slice.
//!
//! All queues are behind one lock, taken once for a share and once for a batch: a share is tens of microseconds of work, so that even sixteen workers hardly meet there. Queues
//! without a lock would need either `unsafe` or a queue for each worker, between which slices would have to wander.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::config::SensorConfig;
use crate::detect::Detector;
use crate::run::Work;
use crate::source::Bypass;
use crate::worker::{Engine, Pipeline};

/// A batch all of whose shares are done; an error if a worker panics.
pub(crate) type Done = Result<Work, Panicked>;

/// A worker panics: its slice is lost, and the run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panicked;

/// What workers and the reader share.
pub(crate) struct WorkerPool {
    state: Mutex<State>,
    /// There is a share to take, or nothing will come any more, or there are new rules.
    wake: Condvar,
    /// Nothing is under way.
    settled: Condvar,
    /// The reader may go on, or will never again.
    more: Condvar,
    /// Batches that may be under way while nobody waits for work, and while somebody does.
    enough: usize,
    most: usize,
}

struct State {
    seats: Vec<Seat>,
    /// Slices that have shares and nobody who works on them, by the batch of the first share.
    ready: BinaryHeap<Reverse<(u64, u16)>>,
    engine: Arc<Engine>,
    /// Shares that are not done.
    under_way: usize,
    /// Batches that were admitted and are not written.
    batches: usize,
    /// Workers that wait.
    resting: usize,
    closed: bool,
    failed: bool,
    /// Nobody takes what is done any more.
    abandoned: bool,
}

struct Seat {
    /// Absent while somebody works on it.
    pipeline: Option<Box<Pipeline>>,
    /// Batches, and which of their shares is this slice's.
    shares: VecDeque<(Arc<Work>, usize)>,
}

/// What a worker has taken.
struct Taken {
    slice: u16,
    pipeline: Box<Pipeline>,
    work: Arc<Work>,
    share: usize,
}

impl State {
    fn take(&mut self) -> Option<Taken> {
        loop {
            let Reverse((_, slice)) = self.ready.pop()?;
            let seat = &mut self.seats[usize::from(slice)];
            // Both are there of every slice in the list.
            let Some(pipeline) = seat.pipeline.take() else {
                continue;
            };
            let Some((work, share)) = seat.shares.pop_front() else {
                seat.pipeline = Some(pipeline);
                continue;
            };
            return Some(Taken {
                slice,
                pipeline,
                work,
                share,
            });
        }
    }

    fn give_back(&mut self, slice: u16, pipeline: Box<Pipeline>) {
        self.under_way -= 1;
        let seat = &mut self.seats[usize::from(slice)];
        seat.pipeline = Some(pipeline);
        if let Some((work, _)) = seat.shares.front() {
            self.ready.push(Reverse((work.sequence, slice)));
        }
    }
}

impl WorkerPool {
    /// The reader is held back at `enough` batches under way, at `most` if a worker has nothing to do: what waits for workers that are busy only fills memory that is not in their caches.
    pub(crate) fn new(
        config: &SensorConfig,
        engine: &Arc<Engine>,
        bypass: Option<Arc<dyn Bypass>>,
        enough: usize,
        most: usize,
    ) -> WorkerPool {
        let seats = Pipeline::of_each(config, engine)
            .into_iter()
            .map(|mut pipeline| {
                pipeline.bypass_at(bypass.clone());
                Seat {
                    pipeline: Some(Box::new(pipeline)),
                    shares: VecDeque::new(),
                }
            });
        WorkerPool {
            state: Mutex::new(State {
                seats: seats.collect(),
                ready: BinaryHeap::new(),
                engine: Arc::clone(engine),
                under_way: 0,
                batches: 0,
                resting: 0,
                closed: false,
                failed: false,
                abandoned: false,
            }),
            wake: Condvar::new(),
            settled: Condvar::new(),
            more: Condvar::new(),
            enough,
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics with the lock held that leaves half a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's whole life.
    pub(crate) fn work(&self, done: &Sender<Done>) {
        let _watch = Watch { pool: self, done };
        let mut engine = Arc::clone(&self.lock().engine);
        let mut detector = Box::new(Detector::new(Arc::clone(&engine.ruleset)));
        let mut back: Option<(u16, Box<Pipeline>)> = None;
        loop {
            let mut state = self.lock();
            if let Some((slice, pipeline)) = back.take() {
                state.give_back(slice, pipeline);
                if state.under_way == 0 {
                    self.settled.notify_all();
                }
            }
            if !Arc::ptr_eq(&engine, &state.engine) {
                let new = Arc::clone(&state.engine);
                // Nobody waits while the old rules go.
                drop(state);
                *detector = Detector::new(Arc::clone(&new.ruleset));
                engine = new;
                continue;
            }
            let Some(mut taken) = state.take() else {
                if state.closed {
                    return;
                }
                state.resting += 1;
                self.more.notify_one();
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.resting -= 1;
                continue;
            };
            drop(state);
            taken
                .pipeline
                .share(&taken.work, taken.share, &mut detector);
            back = Some((taken.slice, taken.pipeline));
            if let Some(work) = Arc::into_inner(taken.work) {
                // Nobody listens only if the run has failed already.
                let _ = done.send(Ok(work));
            }
        }
    }

    /// Waits until another batch may come. Returns whether that makes sense.
    pub(crate) fn admit(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.failed || state.abandoned {
                return false;
            }
            let bound = if state.resting > 0 {
                self.most
            } else {
                self.enough
            };
            if state.batches < bound {
                state.batches += 1;
                return true;
            }
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A batch was written.
    pub(crate) fn written(&self) {
        self.lock().batches -= 1;
        self.more.notify_one();
    }

    /// Nothing will be written any more.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.more.notify_one();
    }

    /// Queues the shares of a batch. New rules wait until everything before them is done; nobody refers to the old ones then. Returns whether that makes sense: not if a worker panicked.
    pub(crate) fn hand_out(&self, work: Work, done: &Sender<Done>) -> bool {
        let work = Arc::new(work);
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.engine, &work.engine) {
            while state.under_way > 0 && !state.failed {
                state = self
                    .settled
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            for pipeline in state.seats.iter_mut().filter_map(|s| s.pipeline.as_mut()) {
                pipeline.take_engine(&work.engine);
            }
            state.engine = Arc::clone(&work.engine);
            self.wake.notify_all();
        }
        if state.failed {
            return false;
        }
        let mut fresh = 0;
        for (number, share) in work.shares().iter().enumerate() {
            let Some(seat) = state.seats.get_mut(usize::from(share.slice)) else {
                continue;
            };
            seat.shares.push_back((Arc::clone(&work), number));
            if seat.pipeline.is_some() && seat.shares.len() == 1 {
                fresh += 1;
                state.ready.push(Reverse((work.sequence, share.slice)));
            }
            state.under_way += 1;
        }
        let resting = state.resting;
        drop(state);
        for _ in 0..resting.min(fresh) {
            self.wake.notify_one();
        }
        // Its shares may be done by now, or it has none.
        if let Some(work) = Arc::into_inner(work) {
            let _ = done.send(Ok(work));
        }
        true
    }

    /// Nothing will come any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }
}

/// Ends the run if its worker panics.
struct Watch<'a> {
    pool: &'a WorkerPool,
    done: &'a Sender<Done>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.pool.lock();
            (state.failed, state.closed) = (true, true);
            state.ready.clear();
            drop(state);
            self.pool.wake.notify_all();
            self.pool.settled.notify_all();
            self.pool.more.notify_all();
            let _ = self.done.send(Err(Panicked));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::load::empty_book;
    use crate::matcher;
    use crate::rules::Dialect;

    fn pool(enough: usize, most: usize) -> WorkerPool {
        let config = SensorConfig::default();
        let mut book = empty_book(&config, Dialect::default(), &[]).expect("no file");
        let (engine, _) = Engine::new(&config, &mut book, matcher::Engine::default());
        WorkerPool::new(&config, &Arc::new(engine), None, enough, most)
    }

    /// How many batches a reader was admitted that never handed one out, when so many were written.
    fn admitted(pool: &WorkerPool, written: usize, waits_for: usize) -> usize {
        let (to, from) = mpsc::channel();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut count = 0;
                while pool.admit() {
                    count += 1;
                    let _ = to.send(count);
                }
                count
            });
            for _ in 0..written {
                let _ = from.recv();
                pool.written();
            }
            while from.recv().is_ok_and(|count| count < waits_for) {}
            pool.abandon();
            reader.join().expect("it does not panic")
        })
    }

    #[test]
    fn the_reader_is_held_back_while_workers_are_busy() {
        assert_eq!(admitted(&pool(3, 8), 5, 3 + 5), 3 + 5);
    }

    #[test]
    fn it_goes_on_while_a_worker_has_nothing_to_do() {
        let pool = pool(3, 8);
        let (done, _) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| pool.work(&done));
            let admitted = admitted(&pool, 5, 8 + 5);
            pool.close();
            assert_eq!(admitted, 8 + 5);
        });
    }
}

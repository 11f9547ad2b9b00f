//! A run: a source, workers, and one place where their results come together in the order of packets.
//!
//! With one worker everything happens in one thread. With more, a reader says of each batch which frames are about which slice of state, workers take turns at slices (`worker_pool`), and
//! what a batch yields is written when all slices are done with it. So what is written is the same for any number of workers, and memory is bounded by the batches under way.

mod ledger;
mod lend;
mod merge;
mod outputs;
mod reader;
mod reload;
mod rings;
mod setup;
mod tags;
mod work;
mod writer;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use weir_packet::pcap::CaptureError;

use crate::source::Source;
use crate::worker::{Pipeline, Report};
use crate::worker_pool::{Done, WorkerPool};
pub use ledger::Ledger;
pub(crate) use lend::Amounts;
use lend::{Loans, UNDER_WAY};
use reader::Reader;
use reload::tidy;
pub use setup::{Controls, Reload, RunError, Say, Setup, Summary};
use work::{BatchBuffer, BatchBuffers};
pub(crate) use work::{Tick, Work};
use writer::Writer;

/// Those of them for each worker, of a source that can wait, while no worker is idle.
const EACH: usize = 4;

/// Runs until the source ends or somebody says stop.
///
/// # Errors
/// The source or a log fails; what was decided until then is written.
pub fn run(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
) -> Result<Summary, RunError> {
    let started = Instant::now();
    if setup.workers > usize::from(setup.config.slices) {
        return Err(RunError::TooManyWorkers {
            workers: setup.workers,
            slices: setup.config.slices,
        });
    }
    let mut writer = Writer::open(&setup)?;
    writer.live = source.is_live();
    if writer.live {
        tidy(None);
    }
    let mut rings = source.rings();
    let result = if rings.len() == setup.workers && rings.len() > 1 {
        let result = rings::run(setup, &mut rings, controls, &mut writer);
        drop(rings);
        result
    } else {
        drop(rings);
        match setup.workers {
            0 | 1 => alone(setup, source, controls, &mut writer),
            _ => spread(setup, source, controls, &mut writer),
        }
        .map(|()| 0)
    };
    let mut counts = source.counts();
    counts.not_handed_over = result.as_ref().map_or(0, |n| *n);
    for (one, ring) in writer.summary.workers.iter_mut().zip(source.rings()) {
        *one = ring.counts();
    }
    let problems: Vec<(PathBuf, CaptureError)> = source.problems();
    let skipped = source.skipped();
    let written = writer.finish(&counts);
    result?;
    written?;
    let mut summary = writer.summary;
    summary.source = counts;
    summary.skipped = skipped;
    summary.partial = problems.iter().filter(|(_, e)| e.whole() > 0).count();
    summary.problems = problems
        .into_iter()
        .map(|(path, e)| (path, e.to_string()))
        .collect();
    summary.elapsed = started.elapsed();
    Ok(summary)
}

fn alone(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
    writer: &mut Writer,
) -> Result<(), RunError> {
    let mut pipeline = Pipeline::of_all(setup.config, &setup.engine);
    pipeline.bypass_at(setup.bypass_of(source));
    let mut loans = Loans::new(setup.config, UNDER_WAY as u64);
    let mut reader = Reader::new(setup, source, controls);
    let mut report = Report::default();
    let mut buffer = BatchBuffer::default();
    loop {
        let limits = loans.limits(reader.sequence());
        let (work, result) = reader.next(buffer, limits);
        pipeline.work(&work, &mut report);
        // Before anything is written: frames wait for it.
        reader.decided(&work, &report)?;
        loans.note(work.sequence, &report.uses);
        writer.write(&mut report, &work, controls)?;
        if work.ends {
            return result;
        }
        buffer = work.into();
    }
}

fn spread(
    setup: Setup<'_>,
    source: &mut dyn Source,
    controls: &Controls,
    writer: &mut Writer,
) -> Result<(), RunError> {
    let workers = setup.workers;
    // What is not read from an interface is lost.
    let enough = if source.is_live() {
        UNDER_WAY
    } else {
        (EACH * workers).min(UNDER_WAY)
    };
    let bypass = setup.bypass_of(source);
    let pool = WorkerPool::new(setup.config, &setup.engine, bypass, enough, UNDER_WAY);
    let buffers = BatchBuffers::new(Loans::new(setup.config, UNDER_WAY as u64));
    std::thread::scope(|scope| {
        let (done_to, done) = mpsc::channel::<Done>();
        let (pool, buffers) = (&pool, &buffers);
        let mut threads = Vec::new();
        for id in 0..workers {
            let done_to = done_to.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("sensor-{id}"))
                .spawn_scoped(scope, move || pool.work(&done_to));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    pool.close();
                    return Err(RunError::Worker(e.to_string()));
                }
            }
        }
        let reader = std::thread::Builder::new()
            .name("sensor-read".to_owned())
            .spawn_scoped(scope, move || {
                let mut reader = Reader::new(setup, source, controls);
                let result = feed(&mut reader, pool, buffers, &done_to);
                pool.close();
                result
            });
        let reader = match reader {
            Ok(reader) => reader,
            Err(e) => {
                pool.close();
                return Err(RunError::Worker(e.to_string()));
            }
        };
        let written = collect(&done, pool, buffers, writer, controls);
        pool.abandon();
        drop(done);
        let mut panicked = None;
        for thread in threads {
            if let Err(panic) = thread.join() {
                panicked = Some(RunError::of_panic(&*panic));
            }
        }
        let read = reader.join();
        if let Some(panic) = panicked {
            return Err(panic);
        }
        written?;
        match read {
            Ok(result) => result,
            Err(panic) => Err(RunError::of_panic(&*panic)),
        }
    })
}

/// The reader's loop: the next batch to those who take it, as soon as they want one.
fn feed(
    reader: &mut Reader<'_>,
    pool: &WorkerPool,
    buffers: &BatchBuffers,
    done: &Sender<Done>,
) -> Result<(), RunError> {
    while pool.admit() {
        let limits = buffers.limits(reader.sequence());
        let (work, result) = reader.next(buffers.take(), limits);
        let ends = work.ends;
        if !pool.hand_out(work, done) || ends {
            return result;
        }
    }
    Ok(())
}

/// Writes what batches yielded, one after the other.
fn collect(
    done: &Receiver<Done>,
    pool: &WorkerPool,
    buffers: &BatchBuffers,
    writer: &mut Writer,
    controls: &Controls,
) -> Result<(), RunError> {
    let mut first = 0_u64;
    let mut pending: VecDeque<Option<Work>> = VecDeque::new();
    for work in done {
        // Who panicked says more when its thread is joined.
        let Ok(work) = work else { return Ok(()) };
        let at = (work.sequence - first) as usize;
        if pending.len() <= at {
            pending.resize_with(at + 1, || None);
        }
        pending[at] = Some(work);
        while pending.front().is_some_and(Option::is_some) {
            let Some(mut work) = pending.pop_front().flatten() else {
                break;
            };
            first += 1;
            let mut found = std::mem::take(&mut work.found)
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            buffers.note(work.sequence, &found.uses);
            writer.write(&mut found, &work, controls)?;
            if work.ends {
                return Ok(());
            }
            let mut buffer = BatchBuffer::from(work);
            buffer.found = found;
            buffers.give_back(buffer);
            pool.written();
        }
    }
    Ok(())
}

//! Requests that change something. The agent's loop carries them out between its looks, so there is one writer; the client waits for the answer.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use hyper::StatusCode;
use serde_json::Value;
use tokio::sync::oneshot;

use super::host::Host;
use super::problem::Problem;
use crate::event::Event;

/// Requests that wait for the agent's loop.
const WAITING: usize = 16;

/// What a request does in the agent's loop: its answer, and what is to be reported if it changed something.
type Work = Box<dyn FnOnce(&dyn Host) -> Result<(Value, Option<Event>), Problem> + Send>;

/// What is asked for.
pub(crate) enum Task {
    /// Apply all files again; the answer is how the agent stands after it.
    Apply(Event),
    /// Compare files and edges now. It has no answer.
    Look,
    /// Anything else.
    Run(Work),
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Apply(_) => "Apply",
            Task::Look => "Look",
            Task::Run(_) => "Run",
        })
    }
}

pub(crate) type Reply = oneshot::Sender<Result<Value, Problem>>;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) task: Task,
    pub(crate) reply: Reply,
}

/// Both ends of the queue.
pub(crate) fn queue() -> (SyncSender<Ask>, Receiver<Ask>) {
    sync_channel(WAITING)
}

/// Puts a request into the queue.
///
/// # Errors
/// The queue is full, or the agent ends.
pub(crate) fn put(
    queue: &SyncSender<Ask>,
    task: Task,
) -> Result<oneshot::Receiver<Result<Value, Problem>>, Problem> {
    let (reply, answer) = oneshot::channel();
    match queue.try_send(Ask { task, reply }) {
        Ok(()) => Ok(answer),
        Err(TrySendError::Full(_)) => Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{WAITING} changes wait for the agent"),
            "try again later",
        )),
        Err(TrySendError::Disconnected(_)) => Err(ended()),
    }
}

/// 503: the agent ended, or did not come to it in time.
pub(crate) fn ended() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the agent did not carry it out in time, or ends",
        "GET /v1/agent and the history show what was done; then try again",
    )
}

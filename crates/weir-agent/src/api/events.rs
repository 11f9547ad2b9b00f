//! The event stream of one client (server-sent events): a task that reads the ring and waits until the client has taken what it got.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::hub::Hub;

/// Events that a client is given at once.
const BATCH: usize = 32;

/// A comment is sent when nothing happened for so long: it tells both ends that the other lives.
pub(super) const ALIVE: Duration = Duration::from_secs(15);

/// The events after a number, as they come. Ends when its receiver is dropped, or when its client may not see more, which is asked before each
/// piece.
pub(super) fn stream(
    hub: Arc<Hub>,
    after: u64,
    may_go_on: impl Fn() -> bool + Send + 'static,
) -> mpsc::Receiver<Bytes> {
    // One piece waits: the rest stays in the ring.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut newest = hub.follow();
        let mut at = after;
        let mut text = ": weir\n\n".to_owned();
        loop {
            if !may_go_on() {
                return;
            }
            if !text.is_empty() && sender.send(Bytes::from(text)).await.is_err() {
                return;
            }
            newest.mark_unchanged();
            (text, at) = hub.after(at, BATCH);
            if !text.is_empty() {
                continue;
            }
            let mut closed = pin!(sender.closed());
            let mut changed = pin!(timeout(ALIVE, newest.changed()));
            let woken = poll_fn(|cx| {
                if closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                changed.as_mut().poll(cx).map(Some)
            });
            match woken.await {
                Some(Ok(Ok(()))) => {}
                Some(Err(_)) => text = ": alive\n\n".to_owned(),
                // The client or the agent is gone.
                None | Some(Ok(Err(_))) => return,
            }
        }
    });
    receiver
}

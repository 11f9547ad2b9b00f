//! A request-response service and its client: one byte there, one byte back, over one connection, as the paper's netperf does it.
//!
//! Both block in the kernel between bytes. Invariant: threads end with their values.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::bed::{Precedence, bind, this_thread};
use crate::LabError;

/// How long a socket waits before its thread looks whether it should end.
const PATIENCE: Duration = Duration::from_millis(50);

/// The service: echoes what arrives on the newest connection.
pub(crate) struct Service {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(listener: TcpListener, cpu: usize) -> Result<Service, LabError> {
        listener
            .set_nonblocking(true)
            .map_err(LabError::io("make the service's socket non-blocking"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // A thread that is not bound is slower, not wrong; the figures are compared within the run.
            let _ = bind(this_thread(), cpu, Precedence::Service);
            serve(&listener, &over);
        });
        Ok(Service {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, over: &AtomicBool) {
    let mut connection: Option<TcpStream> = None;
    let mut byte = [0u8; 64];
    while !over.load(Ordering::Relaxed) {
        if let Ok((newer, _)) = listener.accept() {
            let _ = newer.set_nonblocking(false);
            let _ = newer.set_nodelay(true);
            let _ = newer.set_read_timeout(Some(PATIENCE));
            connection = Some(newer);
        }
        let Some(open) = &mut connection else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        // Looks for a newer connection only when this one is silent.
        loop {
            match open.read(&mut byte) {
                Ok(0) => connection = None,
                Ok(n) => {
                    if open.write_all(&byte[..n]).is_ok() {
                        continue;
                    }
                    connection = None;
                }
                Err(e) if is_patience(&e) => (),
                Err(_) => connection = None,
            }
            break;
        }
    }
}

/// A client that asks again as soon as it has the answer.
pub(crate) struct Client {
    stop: Arc<AtomicBool>,
    transactions: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// `cpu` may have the flood, too: the client goes first there.
    pub(crate) fn start(connection: TcpStream, cpu: usize) -> Result<Client, LabError> {
        connection
            .set_nodelay(true)
            .and_then(|()| connection.set_read_timeout(Some(PATIENCE)))
            .map_err(LabError::io("prepare the client's connection"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let transactions = Arc::new(AtomicU64::new(0));
        let (over, counter) = (Arc::clone(&stop), Arc::clone(&transactions));
        let thread = std::thread::spawn(move || {
            let _ = bind(this_thread(), cpu, Precedence::Service);
            ask(connection, &over, &counter);
        });
        Ok(Client {
            stop,
            transactions,
            thread: Some(thread),
        })
    }

    /// Answers so far.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask(mut connection: TcpStream, over: &AtomicBool, transactions: &AtomicU64) {
    let mut byte = [1u8];
    while !over.load(Ordering::Relaxed) {
        if connection.write_all(&byte).is_err() {
            return;
        }
        loop {
            match connection.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {
                    transactions.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(e) if is_patience(&e) && !over.load(Ordering::Relaxed) => (),
                Err(_) => return,
            }
        }
    }
}

fn is_patience(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

//! Precedence of threads, for measuring: a real-time thread runs before all ordinary ones of its CPU.

#![expect(unsafe_code, reason = "sched_setscheduler takes a pointer")]

use std::io;

use crate::KernelError;

/// Lets a thread, given by its number, run before all ordinary ones and before real-time threads of lower priority (1 to 99; sched(7), `SCHED_FIFO`).
///
/// A thread that never sleeps keeps its CPU, but for the twentieth that the kernel reserves for ordinary ones.
pub fn realtime(thread: u32, priority: u8) -> Result<(), KernelError> {
    let parameters = libc::sched_param {
        sched_priority: i32::from(priority),
    };
    // SAFETY: the pointer is valid for the call.
    let ret =
        unsafe { libc::sched_setscheduler(thread.cast_signed(), libc::SCHED_FIFO, &parameters) };
    if ret == 0 {
        return Ok(());
    }
    Err(KernelError::sys(
        format!("give thread {thread} real-time priority {priority}"),
        io::Error::last_os_error(),
    ))
}

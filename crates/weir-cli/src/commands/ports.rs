//! The account of user-engine ports on AF_XDP as text; what `weir run --engine user` and `weir prog serve --xsk` share.

use std::fmt::Write as _;

use weir_engine::ports::{XskLedger, XskPortsError};

use super::table::grouped;
use crate::failure::Failure;

impl From<XskPortsError> for Failure {
    fn from(error: XskPortsError) -> Failure {
        if error.is_usage() {
            Failure::usage(error)
        } else {
            Failure::failed(error)
        }
    }
}

/// A few lines for each interface, and what was lost by name.
pub(super) fn text(ledger: &XskLedger) -> String {
    let mut text = String::new();
    for port in &ledger.ports {
        let _ = write!(
            text,
            "{}  steered {} = {} received",
            port.interface,
            grouped(port.steered),
            grouped(port.received)
        );
        for (name, n) in port.losses().into_iter().take(2).filter(|(_, n)| *n > 0) {
            let _ = write!(text, " + {} {name}", grouped(n));
        }
        text.push('\n');
        let _ = write!(text, "    received {}", grouped(port.received));
        let mut sign = " =";
        for (name, n) in [
            ("aborted", port.aborted),
            ("drop", port.drop),
            ("pass", port.pass),
            ("tx", port.tx),
            ("redirect", port.redirect),
        ] {
            if n > 0 {
                let _ = write!(text, "{sign} {} {name}", grouped(n));
                sign = " +";
            }
        }
        text.push('\n');
        if let Some(tap) = &port.to_stack {
            let _ = writeln!(
                text,
                "    to the stack by {tap}: {}; from it: {}",
                grouped(port.stack),
                grouped(port.from_stack)
            );
        }
        let _ = writeln!(
            text,
            "    to leave {}, sent {}",
            grouped(port.leaving),
            grouped(port.sent)
        );
        for (name, n) in port.losses().into_iter().skip(2).filter(|(_, n)| *n > 0) {
            let _ = writeln!(text, "    lost {} {name}: {}", grouped(n), meaning(name));
        }
        if port.unserved > 0 {
            let _ = writeln!(
                text,
                "    {} came on queues without a socket and went to the interface's own stack unjudged",
                grouped(port.unserved)
            );
        }
        for socket in &port.sockets {
            let _ = write!(
                text,
                "    socket on queue {}, {}, {} system calls to send and wake",
                socket.queue,
                socket.mode,
                grouped(socket.calls)
            );
            if socket.busy_poll_effective == Some(false) {
                text.push_str(
                    ", busy polling does nothing: the driver names no NAPI for this queue",
                );
            }
            text.push('\n');
        }
    }
    for (what, n) in [
        ("further copies of broadcasts", ledger.copies),
        ("redirected to no interface that is served", ledger.no_port),
        ("redirected to a CPU beyond the first", ledger.no_worker),
        (
            "redirected to one of the program's own sockets",
            ledger.no_socket,
        ),
        (
            "redirected with a second program, which is not run",
            ledger.second_program,
        ),
        ("made the program fault", ledger.faults),
    ] {
        if n > 0 {
            let _ = writeln!(text, "{} {what}", grouped(n));
        }
    }
    if let Some(fault) = &ledger.first_fault {
        let _ = writeln!(text, "first fault: {fault}");
    }
    if !ledger.balanced {
        text.push_str("the counters do not add up: please report this\n");
    }
    text
}

fn meaning(name: &str) -> &'static str {
    match name {
        "no_stack" => "passed, but there is no path to the stack",
        "stack_down" => "passed, but the tap was down",
        "stack_full" => "passed, but the stack had no buffer",
        "stack_refused" => "passed, but the stack refused them",
        "refused" => "dropped by the device when sent",
        "no_room" => "no buffer to send them",
        "too_big" => "longer than a frame in memory",
        "tx_invalid" => "frames to send that the kernel did not take",
        _ => "still queued at the end",
    }
}

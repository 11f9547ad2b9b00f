//! Arguments of what serves AF_XDP queues from user space: `weir run --engine user`, `weir prog serve --xsk`.
//!
//! All are optional, so that it can be told which were given where they do not belong.

use weir_engine::ports::{Sockets, ToStack, Wanted};
use weir_xsk::{BusyPoll, Mode, SocketConfig, UmemConfig, Wait};

use super::xsk::{ModeName, WaitName};
use crate::failure::Failure;

/// The sockets, and the way to the stack.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "User engine over AF_XDP")]
pub(crate) struct PortArgs {
    /// Where frames go that pass: tap:NAME (made unless it is there; addresses belong on it), or none. Once for each interface, in their order
    #[arg(long, value_name = "WAY", value_parser = to_stack)]
    pub(crate) to_stack: Vec<ToStack>,
    /// Queue of the first socket of each interface [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) queue: Option<u32>,
    /// Sockets of each interface, one a queue [default: all queues from --queue on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) sockets: Option<u32>,
    /// Zero-copy or copy mode [default: auto]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// How to wait for frames [default: poll]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitName>,
    /// Busy polling: duration of a call: 20us
    #[arg(long, value_name = "TIME", value_parser = super::value::micros)]
    pub(crate) busy_poll: Option<u32>,
    /// Frames taken from a socket at once [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u16>,
    /// Frames in memory, for each socket [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) frames: Option<u32>,
    /// UMEM frame size in bytes [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_size: Option<u32>,
    /// Entries of each of a socket's four rings [default: 2048]
    #[arg(long, value_name = "N")]
    pub(crate) ring: Option<u32>,
    /// Frames may take several pieces of memory: for MTUs beyond --frame-size
    #[arg(long)]
    pub(crate) multi_buffer: bool,
}

impl PortArgs {
    /// The first of these flags that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        [
            ("--to-stack", !self.to_stack.is_empty()),
            ("--queue", self.queue.is_some()),
            ("--sockets", self.sockets.is_some()),
            ("--mode", self.mode.is_some()),
            ("--wait", self.wait.is_some()),
            ("--busy-poll", self.busy_poll.is_some()),
            ("--batch", self.batch.is_some()),
            ("--frames", self.frames.is_some()),
            ("--frame-size", self.frame_size.is_some()),
            ("--ring", self.ring.is_some()),
            ("--multi-buffer", self.multi_buffer),
        ]
        .into_iter()
        .find_map(|(flag, given)| given.then_some(flag))
    }

    /// What sockets are to be like.
    pub(crate) fn sockets(&self, generic: bool) -> Sockets {
        let umem = UmemConfig::default();
        let usual = SocketConfig::default();
        let ring = |usual| self.ring.unwrap_or(usual);
        Sockets {
            count: self.sockets,
            generic,
            umem: UmemConfig {
                frame_size: self.frame_size.unwrap_or(umem.frame_size),
                frames: self.frames.unwrap_or(umem.frames),
                ..umem
            },
            socket: SocketConfig {
                queue: self.queue.unwrap_or(0),
                rx: ring(usual.rx),
                tx: ring(usual.tx),
                fill: ring(usual.fill),
                completion: ring(usual.completion),
                mode: self.mode.map_or(Mode::Auto, Mode::from),
                multi_buffer: self.multi_buffer,
                busy_poll: self.busy_poll.map(|micros| BusyPoll {
                    micros,
                    budget: 64,
                    prefer: true,
                }),
                ..usual
            },
            wait: self.wait.map_or(Wait::Poll, Wait::from),
            batch: self.batch.unwrap_or(64).into(),
        }
    }

    /// The interfaces, each with its way to the stack.
    pub(crate) fn wanted(&self, interfaces: &[String]) -> Result<Vec<Wanted>, Failure> {
        if self.to_stack.is_empty() {
            return Err(Failure::usage(
                "what passes needs a way to the stack: --to-stack tap:NAME, or --to-stack none",
            ));
        }
        if self.to_stack.len() != interfaces.len() {
            return Err(Failure::usage(format!(
                "{} interfaces and {} ways to the stack: give --to-stack once for each -i, in their order",
                interfaces.len(),
                self.to_stack.len()
            )));
        }
        Ok(interfaces
            .iter()
            .zip(&self.to_stack)
            .map(|(interface, to)| Wanted {
                interface: interface.clone(),
                to: to.clone(),
            })
            .collect())
    }
}

fn to_stack(text: &str) -> Result<ToStack, String> {
    match text.strip_prefix("tap:") {
        Some(name) => Ok(ToStack::Tap(weir_value::interface(name)?)),
        None if text == "none" => Ok(ToStack::Nowhere),
        None => Err("tap:NAME, or none".to_owned()),
    }
}

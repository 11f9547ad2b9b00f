//! What a `weir run` that was killed left on interfaces: finding it, and deciding what of it goes on.
//!
//! Programs that are left behind are complete and carry all that is known about them (`kept`), so nothing beside them can be stale. Invariant:
//! until the new programs are in their place, they stay as they are.

use std::collections::HashSet;

use weir_kernel::iface::Interface;
use weir_kernel::pins::{self, Claim, PinnedLink};
use weir_kernel::{KernelError, LoadedProgram, XdpMode, iface};

use super::kept::{self, Kept};
use super::{AttachPoint, Attachment, Hook, LiveError, LoadedCopy, Packets};

/// What was left on the interfaces of a run that begins.
#[derive(Debug)]
pub(super) struct Left {
    /// Old programs, by place.
    pub(super) copies: Vec<LoadedCopy>,
    /// What holds them, and the index of their place.
    pub(super) attachments: Vec<(usize, Attachment)>,
    /// Those that the new run has no place for: they go once its programs run.
    pub(super) surplus: Vec<Attachment>,
    /// What they remember, or why that is of no use.
    pub(super) kept: Result<Kept, String>,
    /// The old counters have too little room, so what they counted is carried over but for these slots.
    pub(super) carried_but: Option<HashSet<u32>>,
}

impl Left {
    /// Whether it is on a port.
    pub(super) fn is_on(&self, port: usize) -> bool {
        self.copies.iter().any(|copy| copy.port == port)
    }
}

/// Claims all interfaces. Without bpffs there are no claims, and nothing can be left.
pub(super) fn claim_all(interfaces: &[Interface]) -> Result<Vec<Claim>, LiveError> {
    if pins::ensure_bpffs().is_err() {
        return Ok(Vec::new());
    }
    let mut claims = Vec::with_capacity(interfaces.len());
    for interface in interfaces {
        match pins::claim(interface.ifindex)? {
            Some(claim) => claims.push(claim),
            None => {
                let here = |pin: &PinnedLink| pin.ifindex == interface.ifindex;
                let prog_id = pins::list()?.into_iter().find(here).and_then(|p| p.prog_id);
                return Err(KernelError::AlreadyRunning {
                    iface: interface.name.clone(),
                    prog_id: prog_id.unwrap_or(0),
                }
                .into());
            }
        }
    }
    Ok(claims)
}

/// What was left on interfaces that are claimed; `None` if nothing was.
pub(super) fn find(
    interfaces: &[Interface],
    places: &[AttachPoint],
) -> Result<Option<Left>, LiveError> {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for pin in pins::list()?
        .into_iter()
        .filter(|pin| pin.prog_id.is_some())
    {
        match interfaces.iter().position(|i| i.ifindex == pin.ifindex) {
            Some(port) => here.push((port, pin)),
            None => elsewhere.push(pin),
        }
    }
    if here.is_empty() {
        return Ok(None);
    }
    let mut instance: Option<u32> = None;
    let mut left = Left {
        copies: Vec::new(),
        attachments: Vec::new(),
        surplus: Vec::new(),
        kept: Err("it left no programs".to_owned()),
        carried_but: None,
    };
    let on_xdp: Vec<usize> = (here.iter())
        .filter(|(_, pin)| pin.place == pins::PinnedHook::Xdp)
        .map(|(port, _)| *port)
        .collect();
    for (port, pin) in here {
        let name = &interfaces[port].name;
        let was_on_xdp = on_xdp.contains(&port);
        let found = place_of(places, port, was_on_xdp, &pin);
        // Beside a program on XDP, one on tc was for fragments.
        let is_surplus = found.is_none()
            && was_on_xdp
            && pin.place != pins::PinnedHook::Xdp
            && places.iter().any(|p| p.port == port && p.is_xdp());
        if found.is_none() && !is_surplus {
            return Err(other_hook(&pin, name));
        }
        let (attachment, program) = pins::open(&pin)?;
        let this = instance_of(&program);
        if *instance.get_or_insert(this) != this {
            return Err(LiveError::TwoRuns {
                iface: name.clone(),
            });
        }
        let Some(index) = found else {
            left.surplus.push(attachment.into());
            continue;
        };
        // A run that was killed while it replaced its programs left some of both; the later ones know more.
        let kept = kept::read(&program);
        let generation =
            |kept: &Result<Kept, String>| kept.as_ref().map_or(0, |k| k.past.generation);
        let later = generation(&kept) > generation(&left.kept);
        let copy = LoadedCopy {
            program,
            port,
            direction: places[index].direction,
        };
        if later || left.copies.is_empty() {
            left.kept = kept;
            left.copies.insert(0, copy);
            left.attachments.insert(0, (index, attachment.into()));
        } else {
            left.copies.push(copy);
            left.attachments.push((index, attachment.into()));
        }
    }
    let mut others = Vec::new();
    for pin in elsewhere {
        let (_attachment, program) = pins::open(&pin)?;
        if Some(instance_of(&program)) == instance {
            let name = pin.name.unwrap_or_else(|| format!("#{}", pin.ifindex));
            if !others.contains(&name) {
                others.push(name);
            }
        }
    }
    if !others.is_empty() {
        return Err(LiveError::MoreInterfaces {
            here: interfaces
                .iter()
                .map(|i| i.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            add: others.iter().map(|name| format!(" -i {name}")).collect(),
            others: others.join(", "),
        });
    }
    Ok(Some(left))
}

/// Programs of one run share the map of its ledger.
fn instance_of(program: &LoadedProgram) -> u32 {
    program.map_id("stats").unwrap_or(0)
}

/// The place that a pin belongs to. What was not on XDP is no copy for fragments.
fn place_of(
    places: &[AttachPoint],
    port: usize,
    was_on_xdp: bool,
    pin: &PinnedLink,
) -> Option<usize> {
    places.iter().position(|place| {
        place.port == port
            && (was_on_xdp || place.packets != Packets::Fragments)
            && match (pin.place, place.hook) {
                (pins::PinnedHook::Xdp, Hook::Xdp(mode)) => {
                    // The mode of a link is that of its interface, and stays.
                    let is = iface::xdp_mode(pin.ifindex).ok().flatten();
                    is.is_none_or(|is| is == mode)
                }
                (pins::PinnedHook::Tcx(direction), Hook::Tc) => place.direction == direction,
                (pins::PinnedHook::Clsact { direction, .. }, Hook::Tc | Hook::Clsact) => {
                    place.direction == direction
                }
                _ => false,
            }
    })
}

fn other_hook(pin: &PinnedLink, iface: &str) -> LiveError {
    let (had, options) = match pin.place {
        pins::PinnedHook::Xdp => match iface::xdp_mode(pin.ifindex) {
            Ok(Some(XdpMode::Generic)) => ("generic XDP".to_owned(), "--generic"),
            _ => ("native XDP".to_owned(), "--hook xdp"),
        },
        pins::PinnedHook::Tcx(direction) => {
            (format!("tc {direction}"), tc_options(direction, false))
        }
        pins::PinnedHook::Clsact { direction, .. } => {
            (format!("clsact {direction}"), tc_options(direction, true))
        }
    };
    LiveError::OtherHook {
        iface: iface.to_owned(),
        had,
        options,
    }
}

fn tc_options(direction: weir_kernel::Direction, clsact: bool) -> &'static str {
    match (direction, clsact) {
        (weir_kernel::Direction::Ingress, false) => "--hook tc",
        (weir_kernel::Direction::Egress, false) => "--hook tc --egress",
        (weir_kernel::Direction::Ingress, true) => "--hook clsact",
        (weir_kernel::Direction::Egress, true) => "--hook clsact --egress",
    }
}

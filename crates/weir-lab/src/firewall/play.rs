//! Plays all cases of a policy against one device, step by step side by side, and judges every step.
//!
//! All cases send their next packet, then the bed waits until everything is through, and what arrived goes to its case by its destination: each
//! case has addresses that no other one has. Invariant: a frame for a case that none of its steps expects is a failure of the step in which it came.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_packet::summary;

use super::bed::Bed;
use super::script::{Case, Check, Expect, L4, Line, Packet, Send, Side, Step};
use super::segment::{Unbound, World, block_of, is_own, reassembled};
use crate::LabError;

/// How long a packet may take that a device hands to a process.
const PATIENCE: Duration = Duration::from_millis(150);

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Came {
    /// It arrived as it must if it passes.
    Passed,
    /// Nothing arrived.
    Dropped,
    /// Something else arrived, or at the wrong side.
    Altered(String),
    /// A comparison that does not hold, with what was compared.
    Differs(String),
    /// A comparison that holds.
    Holds,
    /// It could not be sent: what it needs was not there before.
    Unsent(String),
}

/// A judged step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Line of the script.
    pub line: usize,
    /// As written.
    pub text: String,
    /// Whether the packet is one that must do no harm.
    pub abuse: bool,
    /// Whether it is expected to pass.
    pub passes: bool,
    /// The reason it must be counted under, by weir.
    pub reason: Option<String>,
    /// How often.
    pub times: u64,
    /// What became of it.
    pub came: Came,
}

impl Judged {
    /// Whether it is as the script says.
    pub fn ok(&self) -> bool {
        match self.came {
            Came::Passed => self.passes,
            Came::Dropped => !self.passes,
            Came::Holds => true,
            Came::Altered(_) | Came::Differs(_) | Came::Unsent(_) => false,
        }
    }
}

/// One case on one device.
struct Part<'a> {
    case: &'a Case,
    block: u8,
    world: World,
    /// All that came out at each side, for datagrams in pieces.
    pieces: Vec<(Side, Vec<u8>)>,
    judged: Vec<Judged>,
}

/// Plays cases, each with its block of addresses; the judged steps of each.
pub(crate) fn play(
    bed: &mut Bed,
    cases: &[(&Case, u8, World)],
) -> Result<Vec<Vec<Judged>>, LabError> {
    let mut parts: Vec<Part<'_>> = cases
        .iter()
        .map(|(case, block, world)| Part {
            case,
            block: *block,
            world: world.clone(),
            pieces: Vec::new(),
            judged: Vec::new(),
        })
        .collect();
    // The mark's connection.
    bed.round()?;
    let rounds = cases.iter().map(|(c, ..)| c.lines.len()).max().unwrap_or(0);
    for round in 0..rounds {
        play_round(bed, &mut parts, round)?;
    }
    Ok(parts.into_iter().map(|p| p.judged).collect())
}

fn play_round(bed: &mut Bed, parts: &mut [Part<'_>], round: usize) -> Result<(), LabError> {
    let mut unsent = BTreeMap::new();
    let mut pause = Duration::ZERO;
    for part in parts.iter_mut() {
        match part.case.lines.get(round).map(|l| &l.step) {
            Some(Step::Send(send)) => {
                if let Err(Unbound(name)) = transmit(bed, part, send)? {
                    unsent.insert(part.block, format!("no port is known as ?{name}"));
                }
            }
            Some(Step::Wait(time)) => pause = pause.max(*time),
            Some(Step::Isn(host, value)) => part.world.set_isn(*host, *value),
            Some(Step::Deliver { .. } | Step::Check(_)) | None => {}
        }
    }
    std::thread::sleep(pause);
    let mut came = group(bed.round()?);
    let mut waiting: Vec<u8> = (parts.iter())
        .filter(|p| p.lacks(round, &came) && !unsent.contains_key(&p.block))
        .map(|p| p.block)
        .collect();
    if !waiting.is_empty() {
        let late = bed.late(PATIENCE, |late| {
            waiting.retain(|b| !late.iter().any(|(_, f)| block_of(f) == Some(*b)));
            waiting.is_empty()
        })?;
        for (block, frames) in group(late) {
            came.entry(block).or_default().extend(frames);
        }
    }
    for part in parts {
        let came = came.remove(&part.block).unwrap_or_default();
        part.judge(round, came, unsent.remove(&part.block));
    }
    Ok(())
}

/// Sends what a step sends, unless a port is not known.
fn transmit(bed: &Bed, part: &Part<'_>, send: &Send) -> Result<Result<(), Unbound>, LabError> {
    let side = send.side.unwrap_or_else(|| part.world.side(&send.packet));
    for nth in 0..send.times {
        match part.world.frame(&send.packet, side, nth, send.stride) {
            Ok(frame) => bed.send(side, &frame)?,
            Err(unbound) => return Ok(Err(unbound)),
        }
    }
    Ok(Ok(()))
}

type Frames = Vec<(Side, Vec<u8>)>;

/// What came, by the case that it is for.
fn group(came: Frames) -> BTreeMap<u8, Frames> {
    let mut by_block: BTreeMap<u8, Frames> = BTreeMap::new();
    for (side, frame) in came {
        if let Some(block) = block_of(&frame) {
            by_block.entry(block).or_default().push((side, frame));
        }
    }
    by_block
}

impl Part<'_> {
    /// Whether this round's packet is to arrive and nothing has.
    fn lacks(&self, round: usize, came: &BTreeMap<u8, Frames>) -> bool {
        let Some(Step::Send(send)) = self.case.lines.get(round).map(|l| &l.step) else {
            return false;
        };
        let arrives = matches!(
            send.expect,
            Expect::Pass | Expect::As(_) | Expect::Error(..)
        );
        arrives && !came.contains_key(&self.block)
    }

    fn judge(&mut self, round: usize, mut came: Frames, unsent: Option<String>) {
        let errors = self.case.lines.get(round).map(|l| &l.step);
        if !matches!(errors, Some(Step::Send(s)) if matches!(s.expect, Expect::Error(..))) {
            // What the box itself says about a packet that it dropped is not judged.
            came.retain(|(_, frame)| !is_own(frame));
        }
        let Some(line) = self.case.lines.get(round) else {
            if !came.is_empty() {
                self.late(&came);
            }
            return;
        };
        self.pieces.extend(came.iter().cloned());
        let unsent = unsent.map(Came::Unsent);
        match &line.step {
            Step::Send(send) if send.expect != Expect::Any => {
                let outcome = unsent.unwrap_or_else(|| self.outcome(send, &came));
                let passes = !matches!(send.expect, Expect::Drop(_));
                let reason = match &send.expect {
                    Expect::Drop(reason) => reason.clone(),
                    _ => None,
                };
                self.note(
                    line,
                    send.abuse,
                    passes,
                    reason.map(|r| (r, send.times)),
                    outcome,
                );
            }
            Step::Send(_) => {}
            Step::Deliver {
                abuse,
                to,
                text,
                arrives,
            } => {
                let side = self.world.destination(*to);
                let text = self.world.text(text);
                let frames: Vec<Vec<u8>> = std::mem::take(&mut self.pieces)
                    .into_iter()
                    .filter_map(|(s, frame)| (s == side).then_some(frame))
                    .collect();
                let found = (reassembled(&frames).iter())
                    .any(|bytes| bytes.windows(text.len().max(1)).any(|w| w == text));
                let outcome = if found { Came::Passed } else { Came::Dropped };
                self.note(line, *abuse, *arrives, None, outcome);
            }
            Step::Check(check) => {
                let outcome = self.check(check);
                self.note(line, false, true, None, outcome);
            }
            Step::Wait(_) | Step::Isn(..) => {
                if !came.is_empty() {
                    self.late(&came);
                }
            }
        }
    }

    fn note(
        &mut self,
        line: &Line,
        abuse: bool,
        passes: bool,
        reason: Option<(String, u16)>,
        came: Came,
    ) {
        let (reason, times) = reason.unzip();
        self.judged.push(Judged {
            line: line.number,
            text: line.text.clone(),
            abuse,
            passes,
            reason,
            times: times.unwrap_or(1).into(),
            came,
        });
    }

    /// Something came after the step that it answers was judged.
    fn late(&mut self, came: &Frames) {
        if let Some(last) = self.judged.last_mut() {
            last.came = Came::Altered(format!("later came {}", list(came)));
        }
    }

    fn outcome(&mut self, send: &Send, came: &Frames) -> Came {
        let side = send.side.unwrap_or_else(|| self.world.side(&send.packet));
        let must = match send.expect {
            // What it would be if it passed.
            Expect::Drop(_) => Expect::Pass,
            ref other => other.clone(),
        };
        if came.is_empty() {
            return Came::Dropped;
        }
        if let Expect::Error(kind, code) = send.expect {
            return self.error(send, side, [kind, code], came);
        }
        if send.times > 1 {
            return Came::Passed;
        }
        let mut whole = None;
        for (at, frame) in came {
            if *at != self.arrives_at(send, side) {
                continue;
            }
            match self.world.expected(&send.packet, side, &must, frame) {
                Ok(Some(expected)) if same(&expected, frame, &send.packet) => {
                    whole = Some(Came::Passed);
                }
                Ok(Some(expected)) if whole.is_none() => {
                    whole = Some(Came::Altered(format!(
                        "came {}, expected {}",
                        describe(frame),
                        describe(&expected)
                    )));
                }
                Err(Unbound(name)) => {
                    return Came::Altered(format!(
                        "came {}, but ?{name} is not known",
                        describe(frame)
                    ));
                }
                Ok(_) => {}
            }
        }
        match whole {
            Some(Came::Passed) if came.len() > 1 => {
                Came::Altered(format!("came more than once: {}", list(came)))
            }
            // What must be dropped and comes out as something else passed all the same.
            Some(Came::Altered(_)) if matches!(send.expect, Expect::Drop(_)) => Came::Passed,
            Some(outcome) => outcome,
            None if matches!(send.expect, Expect::Drop(_)) => Came::Passed,
            None => Came::Altered(format!("came {}", list(came))),
        }
    }

    /// Whether the box answered the sender with an error that quotes the packet as it was sent, but for its TTL.
    fn error(&self, send: &Send, side: Side, kind: [u8; 2], came: &Frames) -> Came {
        let [(at, frame)] = &came[..] else {
            return Came::Altered(format!("came {}", list(came)));
        };
        let sent = self
            .world
            .frame(&send.packet, side, 0, 0)
            .unwrap_or_default();
        // Behind the outer IPv4 header, type and code; behind its eight bytes addresses and ports of the quote.
        let as_it_must = *at == side
            && is_own(frame)
            && frame.get(30..34) == sent.get(26..30)
            && frame.get(34..36) == Some(&kind)
            && frame.get(54..62) == sent.get(26..34)
            && frame.get(62..66) == sent.get(34..38);
        match as_it_must {
            true => Came::Passed,
            false => Came::Altered(format!("came {}", list(came))),
        }
    }

    /// The side by which a packet leaves: of a hairpin the one that it came in by.
    fn arrives_at(&self, send: &Send, side: Side) -> Side {
        use super::script::Host;
        match &send.expect {
            Expect::As(arrival) => match arrival.to.host {
                Host::C | Host::D => Side::Inside,
                Host::S | Host::T => Side::Outside,
                _ => side.other(),
            },
            _ => side.other(),
        }
    }

    fn check(&self, check: &Check) -> Came {
        let ports = match check {
            Check::Equal(a, b) | Check::Differ(a, b) | Check::SameParity(a, b) => {
                (self.world.port(a), self.world.port(b))
            }
            Check::AtLeast(a, least) => (self.world.port(a), Ok(*least)),
        };
        let (Ok(a), Ok(b)) = ports else {
            return Came::Unsent("a port is not known".to_owned());
        };
        let holds = match check {
            Check::Equal(..) => a == b,
            Check::Differ(..) => a != b,
            Check::SameParity(..) => a % 2 == b % 2,
            Check::AtLeast(..) => a >= b,
        };
        match holds {
            true => Came::Holds,
            false => Came::Differs(format!("{a} and {b}")),
        }
    }
}

/// Whether a frame is the expected one, beyond its Ethernet header. A checksum that was wrong before need not be wrong in the same way.
fn same(expected: &[u8], came: &[u8], packet: &Packet) -> bool {
    let (mut expected, mut came) = (expected.to_vec(), came.to_vec());
    // Padding of the device.
    came.truncate(expected.len());
    let bad = match &packet.l4 {
        L4::Tcp(tcp) if tcp.bad_checksum => Some(16),
        L4::Udp {
            bad_checksum: true, ..
        } => Some(6),
        L4::Icmp(icmp) if icmp.bad_checksum => Some(2),
        _ => None,
    };
    if let Some(at) = bad {
        for frame in [&mut expected, &mut came] {
            if let Some(field) = frame.get_mut(34 + at..36 + at) {
                field.fill(0);
            }
        }
    }
    expected.get(14..) == came.get(14..)
}

fn list(came: &Frames) -> String {
    let words: Vec<String> = came
        .iter()
        .map(|(side, frame)| {
            format!(
                "{} {}",
                if *side == Side::Inside {
                    "inside"
                } else {
                    "outside"
                },
                describe(frame)
            )
        })
        .collect();
    words.join("; ")
}

fn describe(frame: &[u8]) -> String {
    let checksum = frame.get(50..52).filter(|_| frame.get(23) == Some(&6));
    let checksum = checksum.map_or(String::new(), |c| format!(" sum {:02x}{:02x}", c[0], c[1]));
    format!("[{}{checksum}]", summary(frame))
}

//! Random conversations, and abuse of them, through weir on XDP, weir on tc and nftables side by side: what passes, how it is translated, and the states
//! of connections afterwards must be the same, but for the classes of differences in docs/differences-nftables.md.
//!
//! Every play has addresses of its own, so that many run one after the other on the same devices, and a failing one can be made smaller there. The packets of a
//! play follow from its events alone, never from what a device did, except that answers go to the port that the device chose. Ports of two devices
//! are thus compared up to renaming.

mod classes;
mod model;
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use weir_packet::summary;

use super::bed::{self, Bed};
use super::device::{self, Device, Standing};
use super::script::{self, Policy, Side};
use super::{POLICIES, failed};
use crate::LabError;
use crate::process::Scratch;
use model::{Model, Seen, Shot, View};

pub use classes::{CLASSES, Class, STATE_CLASSES};
pub use model::{Event, Kind, Op, Play, Shift, Talk};

/// Plays before the beds are built again: each has 16 addresses of 10.1.0.0/17, and tables are listed whole.
const PLAYS: u32 = 500;

/// Devices with one policy.
pub struct Differential {
    policy: Policy,
    weir: PathBuf,
    scratch: Scratch,
    boxes: Vec<(Device, Standing, Bed)>,
    plays: u32,
    /// Collect differences that no class explains.
    pub triage: bool,
}

/// What was compared, by kind; for a demand of coverage.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Packets by what became of them on nftables and what they were.
    pub packets: BTreeMap<String, u64>,
    /// States compared, by name.
    pub states: BTreeMap<String, u64>,
    /// Differences of each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// Where they are collected instead of ending the comparison: differences that no class explains, with how often and an example.
    pub unknown: BTreeMap<String, (u64, String)>,
    /// Packets not compared, because a difference of a class came before them in the same conversation.
    pub behind: u64,
}

/// A difference that no class explains.
#[derive(Clone, Debug)]
pub struct Difference(pub String);

impl Differential {
    /// Builds a bed for each device with a policy of `policies.fw`.
    pub fn build(weir: &Path, policy: &str) -> Result<Differential, LabError> {
        bed::pin()?;
        let policies = script::policies(POLICIES).map_err(|e| failed("policies.fw", &e))?;
        let policy = policies
            .into_iter()
            .find(|p| p.name == policy)
            .ok_or_else(|| LabError::Engine(format!("no policy `{policy}`")))?;
        let mut all = Differential {
            policy,
            weir: weir.to_owned(),
            scratch: Scratch::create("weir-firewall")?,
            boxes: Vec::new(),
            plays: 0,
            triage: false,
        };
        all.stand()?;
        Ok(all)
    }

    fn stand(&mut self) -> Result<(), LabError> {
        self.boxes.clear();
        self.plays = 0;
        for device in Device::ALL {
            let bed = Bed::build()?;
            let standing = device::stand(
                device,
                &self.policy,
                &[],
                &bed.middle,
                &self.weir,
                &self.scratch,
            )?;
            self.boxes.push((device, standing, bed));
        }
        Ok(())
    }

    /// Plays once on every device; the first difference that no class explains.
    pub fn play(
        &mut self,
        play: &Play,
        coverage: &mut Coverage,
    ) -> Result<Option<Difference>, LabError> {
        if self.plays >= PLAYS {
            self.stand()?;
        }
        self.plays += 1;
        let mut model = Model::new(play, self.plays, self.policy.name != "accept");
        let mut views: Vec<BTreeMap<usize, View>> = vec![BTreeMap::new(); self.boxes.len()];
        let mut tainted: BTreeSet<usize> = BTreeSet::new();
        let mut log: Vec<String> = Vec::new();
        for event in &play.events {
            for shot in model.shots(event) {
                let known = views.iter().all(|views| views.contains_key(&shot.talk));
                if model.needs_view(&shot) && !known {
                    // It would go to the client that has the port, whoever that is.
                    continue;
                }
                let mut seen = Vec::new();
                for ((_, _, bed), views) in self.boxes.iter_mut().zip(&mut views) {
                    seen.push(exchange(bed, &model, &shot, views)?);
                }
                log.push(format!("{} -> {}", shot.text, words(&seen)));
                if tainted.contains(&shot.talk) {
                    coverage.behind += 1;
                    continue;
                }
                let agree = seen.windows(2).all(|two| two[0].same(&two[1]));
                if agree && !matches!(seen[0], Seen::Wrong(_)) {
                    if seen[0] == Seen::Right {
                        model.passed(&shot);
                    }
                    if shot.is_incomplete() {
                        // weir follows fragments, nf_conntrack whole datagrams only.
                        tainted.extend(model.entangled(shot.talk));
                    }
                    let what = format!("{} {}", shot.kind, seen[0].word());
                    *coverage.packets.entry(what).or_default() += 1;
                    continue;
                }
                match classes::of_packet(&shot, &seen) {
                    Some(class) => {
                        *coverage.classes.entry(class).or_default() += 1;
                        tainted.extend(model.entangled(shot.talk));
                    }
                    None if self.triage => {
                        let what = format!("{} {}", shot.signature(), words(&seen));
                        unknown(coverage, what, &log, shot.talk);
                        tainted.extend(model.entangled(shot.talk));
                    }
                    None => return Ok(Some(difference(&log))),
                }
            }
        }
        self.states(&model, &views, &tainted, &log, coverage)
    }

    /// Compares the tables of connections.
    fn states(
        &self,
        model: &Model,
        views: &[BTreeMap<usize, View>],
        tainted: &BTreeSet<usize>,
        log: &[String],
        coverage: &mut Coverage,
    ) -> Result<Option<Difference>, LabError> {
        let mut tables = Vec::new();
        for (device, _, bed) in &self.boxes {
            tables.push(match device.is_weir() {
                true => states::of_weir(&bed.middle, &self.weir)?,
                false => states::of_conntrack(&bed.middle)?,
            });
        }
        for talk in 0..model.talks() {
            if tainted.contains(&talk) {
                continue;
            }
            let key = model.key(talk);
            let seen: Vec<_> = tables.iter().map(|table| table.get(&key)).collect();
            for (n, (entry, view)) in seen.iter().zip(views).enumerate() {
                // What the table says of the translation is what was seen.
                if let (Some(entry), Some(view)) = (entry, view.get(&talk))
                    && (entry.address, entry.port) != (view.address, view.port)
                {
                    let mut log = log.to_vec();
                    log.push(format!(
                        "the table of {} has talk {talk} as {}:{}, seen {}:{}",
                        self.boxes[n].0.name(),
                        entry.address,
                        entry.port,
                        view.address,
                        view.port
                    ));
                    return Ok(Some(difference(&log)));
                }
            }
            let names: Vec<&str> = seen
                .iter()
                .map(|entry| entry.map_or("none", |e| e.state.as_str()))
                .collect();
            match classes::of_states(names[0], names[1], names[2], model.class(talk)) {
                Some("same") => {
                    let what = format!("{} = {}", names[0], names[2]);
                    *coverage.states.entry(what).or_default() += 1;
                }
                Some(class) => *coverage.classes.entry(class).or_default() += 1,
                None => {
                    let mut log = log.to_vec();
                    let names = names.join(", ");
                    log.push(format!("state of talk {talk} {key:?}: {names}"));
                    if self.triage {
                        unknown(coverage, format!("state {names}"), &log, talk);
                        continue;
                    }
                    return Ok(Some(difference(&log)));
                }
            }
        }
        Ok(None)
    }
}

/// Notes a difference with what happened to its conversation.
fn unknown(coverage: &mut Coverage, what: String, log: &[String], talk: usize) {
    let of = format!("talk {talk} ");
    let lines: Vec<&str> = (log.iter().map(String::as_str))
        .filter(|line| line.contains(&of))
        .collect();
    let entry = coverage.unknown.entry(what).or_default();
    entry.0 += 1;
    // The shortest example says most.
    let text = lines.join("\n");
    if entry.1.is_empty() || text.len() < entry.1.len() {
        entry.1 = text;
    }
}

fn difference(log: &[String]) -> Difference {
    Difference(log.join("\n"))
}

fn words(seen: &[Seen]) -> String {
    let words: Vec<&str> = seen.iter().map(Seen::word).collect();
    words.join(" | ")
}

/// Sends the frames of a shot, and says what arrived.
fn exchange(
    bed: &mut Bed,
    model: &Model,
    shot: &Shot,
    views: &mut BTreeMap<usize, View>,
) -> Result<Seen, LabError> {
    let view = views
        .get(&shot.talk)
        .copied()
        .unwrap_or(model.guess(shot.talk));
    let side = shot.side();
    for frame in model.frames(shot, view) {
        bed.send(side, &frame)?;
    }
    let came: Vec<(Side, Vec<u8>)> = (bed.quick_round()?.into_iter())
        .filter(|(_, frame)| !super::segment::is_own(frame) && frame.get(12..14) == Some(&[8, 0]))
        .collect();
    if came.is_empty() {
        return Ok(Seen::Nothing);
    }
    if shot.is_pieces() {
        // Whether the receiver can put the datagram together.
        let frames: Vec<Vec<u8>> = came.into_iter().map(|(_, frame)| frame).collect();
        let whole = super::segment::reassembled(&frames);
        let text = model.text(shot);
        let found = whole
            .iter()
            .any(|bytes| bytes.windows(text.len()).any(|w| w == text));
        if found && shot.is_from_opener() {
            // A fragment's ports are at the same place as a whole packet's.
            let first = |frame: &&Vec<u8>| {
                frame.get(20).is_some_and(|b| b & 0x1f == 0) && frame.get(21) == Some(&0)
            };
            if let Some(view) = frames
                .iter()
                .filter(first)
                .find_map(|frame| View::of(frame))
            {
                views.insert(shot.talk, view);
            }
        }
        return Ok(if found { Seen::Right } else { Seen::Nothing });
    }
    let [(at, frame)] = &came[..] else {
        let list: Vec<String> = came.iter().map(|(_, frame)| summary(frame)).collect();
        return Ok(Seen::Wrong(list.join("; ")));
    };
    if *at == side {
        return Ok(Seen::Wrong(format!("came back: {}", summary(frame))));
    }
    let mut view = view;
    if shot.is_from_opener() && !shot.is_error() {
        view = View::of(frame).unwrap_or(view);
    }
    let expected = model.arrival(shot, view);
    // Padding of the device.
    let padded = frame.len() >= expected.len() && frame[14..expected.len()] == expected[14..];
    if !padded && !shot.has_bad_checksum() {
        return Ok(Seen::Wrong(format!(
            "came {} {}, expected {} {}",
            summary(frame),
            model::address_of(frame),
            summary(&expected),
            model::address_of(&expected)
        )));
    }
    if shot.is_from_opener() && !shot.is_error() {
        if view.address != model.public(shot.talk) {
            return Ok(Seen::Wrong(format!("came as {}", view.address)));
        }
        let taken = views
            .iter()
            .find(|(talk, other)| model.collide(**talk, shot.talk) && **other == view);
        if let Some(talk) = taken.map(|(talk, _)| *talk) {
            // Two connections to one server may share a port only if one of them is gone.
            if !model.is_over(talk) && model.class(talk).is_none() {
                let what = format!("port {} is that of talk {talk}", view.port);
                return Ok(Seen::Wrong(what));
            }
            views.remove(&talk);
        }
        views.insert(shot.talk, view);
    }
    Ok(Seen::Right)
}

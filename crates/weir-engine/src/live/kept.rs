//! What the programs of an instance remember for a control program that takes them over: rules with ids and slots, and the seed of the
//! table of connections, in a note that each of them carries.
//!
//! Invariant: an edit is in the note before packets see it, so no connection names an id that the note does not know.

use serde::{Deserialize, Serialize};
use weir_bpf::abi;
use weir_functions::middlebox::{Past, PastChange};
use weir_kernel::{KernelError, LoadedProgram, Note};

use super::LoadedCopy;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// [`abi::STATE_LAYOUT`] of the programs.
    layout: u32,
    pub(super) seed: u64,
    pub(super) past: Past,
}

/// The note of the programs that run: one line with all, then one for each edit in place.
#[derive(Debug)]
pub(super) struct Memory {
    note: Note,
    seed: u64,
}

/// Bytes for edits; what they need beyond that goes to another note.
const ROOM: usize = 64 << 10;

impl Memory {
    /// Of these programs, which carry it from now on.
    pub(super) fn new(seed: u64, past: Past, copies: &[LoadedCopy]) -> Result<Memory, KernelError> {
        let kept = Kept {
            layout: abi::STATE_LAYOUT,
            seed,
            past,
        };
        let text = line(&kept)?;
        // The longer the first line, the dearer it is to write it again.
        let note = Note::new(&text, ROOM + text.len())?;
        for copy in copies {
            note.bind(&copy.program)?;
        }
        Ok(Memory { note, seed })
    }

    /// Notes an edit. `past` is what it leads from.
    pub(super) fn follow(
        &mut self,
        change: PastChange,
        past: impl FnOnce() -> Past,
        copies: &[LoadedCopy],
    ) -> Result<(), KernelError> {
        if self.note.append(&line(&change)?)? {
            return Ok(());
        }
        let mut past = past();
        past.apply(change);
        *self = Memory::new(self.seed, past, copies)?;
        Ok(())
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

/// What a program that was left behind remembers, or why that is of no use.
pub(super) fn read(program: &LoadedProgram) -> Result<Kept, String> {
    let mut latest: Option<Kept> = None;
    for note in program.notes() {
        let text = note.read().map_err(|e| e.to_string())?;
        let kept = understand(&text)?;
        if (latest.as_ref()).is_none_or(|l| l.past.generation <= kept.past.generation) {
            latest = Some(kept);
        }
    }
    latest.ok_or_else(|| "its programs have no record of their rules".to_owned())
}

fn understand(text: &[u8]) -> Result<Kept, String> {
    /// The part that every version has.
    #[derive(Deserialize)]
    struct Version {
        layout: u32,
    }
    let strange = |e: serde_json::Error| format!("the record of its rules is damaged: {e}");
    let mut lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or_default();
    let version: Version = serde_json::from_slice(first).map_err(strange)?;
    if version.layout != abi::STATE_LAYOUT {
        return Err(format!(
            "it was another version of weir: its tables have layout {}, those of this one {}",
            version.layout,
            abi::STATE_LAYOUT
        ));
    }
    let mut kept: Kept = serde_json::from_slice(first).map_err(strange)?;
    for line in lines {
        kept.past
            .apply(serde_json::from_slice(line).map_err(strange)?);
    }
    Ok(kept)
}

fn line(what: &impl Serialize) -> Result<Vec<u8>, KernelError> {
    let mut text = serde_json::to_vec(what).map_err(|e| KernelError::Sys {
        what: "write down the rules".to_owned(),
        source: e.into(),
    })?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_layout_is_named() {
        let said = understand(b"{\"layout\":99,\"what\":\"ever\"}\n").expect_err("foreign");
        assert!(said.contains("layout 99"), "{said}");
        let said = understand(b"").expect_err("empty");
        assert!(said.contains("damaged"), "{said}");
    }

    #[test]
    fn edits_are_followed() {
        let rule = |id| weir_functions::middlebox::PastRule {
            id,
            slot: id,
            text: format!("udp-dport {id} drop"),
            meaning: 0,
            counts_as: id,
            table: None,
            count: None,
        };
        let kept = Kept {
            layout: abi::STATE_LAYOUT,
            seed: 7,
            past: Past {
                rules: vec![rule(1), rule(2)],
                next_id: 3,
                generation: 1,
                ..Past::default()
            },
        };
        let change = PastChange {
            gone: [1].into(),
            added: vec![rule(3)],
            generation: 2,
        };
        let mut text = line(&kept).expect("text");
        text.extend(line(&change).expect("text"));
        // An edit that failed after it was noted is noted again, as another one.
        text.extend(line(&change).expect("text"));
        let kept = understand(&text).expect("readable");
        assert_eq!(kept.past.rules, [rule(2), rule(3)]);
        assert_eq!((kept.past.next_id, kept.past.generation), (4, 2));
    }
}

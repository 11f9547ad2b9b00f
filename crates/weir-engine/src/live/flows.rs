//! The table of connections of a running instance, read and cleared from outside while packets use it.
//!
//! Nothing here is needed for connections to be right: dead ones are judged where they are met. Invariant: a record is taken away only by
//! exchanging the life that was seen, as the data plane does, so a connection that came into its place meanwhile stays.

use std::collections::HashMap;

use rustix::time::{ClockId, clock_gettime};
use weir_bpf::abi::{self, Flow, life};
use weir_functions::middlebox::flows::{self, Connection, ConnectionFilter};
use weir_kernel::{KernelError, LoadedProgram, Map, MmapArray};
use weir_policy::model::Connections;
use zerocopy::FromBytes;

/// The table as memory.
#[derive(Debug)]
pub struct FlowTable {
    records: MmapArray,
    settings: Connections,
    /// Former ids of rules, which records may have, with present ones.
    aliases: HashMap<u32, u32>,
}

/// Part of the table.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Connections, by place.
    pub connections: Vec<Connection>,
    /// Where to go on; `None`: this was the end.
    pub next: Option<u32>,
}

impl FlowTable {
    /// Of the copies that share it with `program`.
    pub(super) fn of(
        program: &LoadedProgram,
        settings: &Connections,
        aliases: &[(u32, u32)],
    ) -> Result<FlowTable, KernelError> {
        Ok(FlowTable {
            records: program.mmap_array("flows")?,
            settings: settings.clone(),
            aliases: aliases.iter().copied().collect(),
        })
    }

    /// Of an instance of a graph or of a network, by its map `flows`. Rules keep their ids as long as such an instance runs.
    pub fn of_map(map: &Map, settings: &Connections) -> Result<FlowTable, KernelError> {
        Ok(FlowTable {
            records: map.mmap()?,
            settings: settings.clone(),
            aliases: HashMap::new(),
        })
    }

    /// Places for connections.
    pub fn places(&self) -> u32 {
        (self.records.len() / size_of::<Flow>()) as u32
    }

    /// Connections that the filter means, from a place on, at most `limit`. What opens and ends meanwhile may be missing or there.
    pub fn page(
        &self,
        filter: &ConnectionFilter,
        from: u32,
        limit: usize,
    ) -> Result<Page, KernelError> {
        let now = monotonic_ns();
        let mut page = Page::default();
        for place in from..self.places() {
            if page.connections.len() == limit {
                page.next = Some(place);
                break;
            }
            let connection = self
                .record(place)?
                .and_then(|record| flows::read(&record, place, now, &self.settings));
            page.connections
                .extend(connection.filter(|connection| filter.covers(connection)));
        }
        Ok(page)
    }

    /// The connection at a place, if one lives there.
    pub(super) fn at(&self, place: u32) -> Result<Option<Connection>, KernelError> {
        if place >= self.places() {
            return Ok(None);
        }
        let record = self.record(place)?;
        Ok(record.and_then(|record| flows::read(&record, place, monotonic_ns(), &self.settings)))
    }

    /// Ends the connections that the filter means. Returns how many.
    pub fn end(&self, filter: &ConnectionFilter) -> Result<u64, KernelError> {
        let now = monotonic_ns();
        let mut ended = 0;
        for place in 0..self.places() {
            let Some(record) = self.record(place)? else {
                continue;
            };
            let meant = flows::read(&record, place, now, &self.settings)
                .is_some_and(|connection| filter.covers(&connection));
            if meant && self.free(place, record)? {
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// A record that is in use and was not changed while it was read.
    fn record(&self, place: u32) -> Result<Option<Flow>, KernelError> {
        let at = place as usize * size_of::<Flow>();
        let mut word = [0u8; 8];
        self.records.read(at, &mut word)?;
        if u64::from_ne_bytes(word) & life::MASK != life::LIVE {
            return Ok(None);
        }
        let mut bytes = [0u8; size_of::<Flow>()];
        self.records.read(at, &mut bytes)?;
        let mut after = [0u8; 8];
        self.records.read(at, &mut after)?;
        let same = u64::from_ne_bytes(word) >> 32 == u64::from_ne_bytes(after) >> 32;
        let record = Flow::read_from_bytes(&bytes).ok().filter(|_| same);
        Ok(record.map(|mut record| {
            for id in std::iter::once(&mut record.rule).chain(&mut record.more) {
                *id = self.aliases.get(id).copied().unwrap_or(*id);
            }
            record
        }))
    }

    /// Takes a record away, unless it became another's.
    fn free(&self, place: u32, mut record: Flow) -> Result<bool, KernelError> {
        let at = place as usize * size_of::<Flow>() + std::mem::offset_of!(Flow, life);
        // Packets may add flags in between: as often as there are flags.
        for _ in 0..9 {
            let gone = record.life & !life::MASK | life::FREE;
            if self.records.compare_exchange(at, record.life, gone)? {
                return Ok(true);
            }
            match self.record(place)? {
                Some(again) if again.life >> 32 == record.life >> 32 => record = again,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// The clock that connections are kept by.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

const _: () = assert!(
    size_of::<Flow>().is_multiple_of(8) && abi::STATE_LAYOUT == 2,
    "records lie back to back"
);

//! Connections of middleboxes that run in graphs and networks, read from their tables while packets use them.

use weir_engine::edge::EdgeError;
use weir_engine::live::FlowTable;

use crate::error::RuntimeError;
use crate::middleboxes;

/// The table of a function that keeps connections.
#[derive(Debug)]
pub struct Tracked {
    /// Its edge.
    pub edge: String,
    /// Its name: of a graph as configured, of a network as `network/function`.
    pub function: String,
    /// How many connections it keeps at least.
    pub capacity: u32,
    /// The table.
    pub table: FlowTable,
}

/// Map of a middlebox that holds its connections.
const FLOWS: &str = "flows";

/// Tables of connections of an edge, or of all edges of this network namespace.
///
/// # Errors
/// The state of an edge or a map cannot be read.
pub fn tracked(edge: Option<&str>) -> Result<Vec<Tracked>, RuntimeError> {
    let open = |one: middleboxes::Middlebox| {
        let settings = &one.policy.connections;
        let table = FlowTable::of_map(&one.map, settings).map_err(EdgeError::from)?;
        Ok(Tracked {
            edge: one.edge,
            function: one.function,
            capacity: settings.capacity,
            table,
        })
    };
    let all = middleboxes::with_map(edge, FLOWS)?;
    all.into_iter().map(open).collect()
}

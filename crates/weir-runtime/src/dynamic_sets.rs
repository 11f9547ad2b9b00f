//! Dynamic sets of middleboxes that run in graphs and networks, read and changed while packets use them.

use weir_engine::edge::EdgeError;
use weir_engine::live::SetTable;
use weir_functions::middlebox::dynamic::{ELEMENTS, of_policy};

use crate::error::RuntimeError;
use crate::middleboxes;

/// The sets of a function.
#[derive(Debug)]
pub struct Filled {
    /// Its edge.
    pub edge: String,
    /// Its name: of a graph as configured, of a network as `network/function`.
    pub function: String,
    /// The sets.
    pub table: SetTable,
}

/// Functions whose rules name dynamic sets, of an edge or of all edges of this network namespace.
///
/// # Errors
/// The state of an edge or a map cannot be read.
pub fn filled(edge: Option<&str>) -> Result<Vec<Filled>, RuntimeError> {
    let mut found = Vec::new();
    for one in middleboxes::with_map(edge, ELEMENTS)? {
        let sets = of_policy(&one.policy).map_err(|e| RuntimeError::Failed(e.to_string()))?;
        if sets.sets().iter().all(|set| set.group) {
            continue;
        }
        let seed = u64::from_ne_bytes(one.secret.unwrap_or_default());
        let table = SetTable::of_map(&one.map, &sets, seed).map_err(EdgeError::from)?;
        found.push(Filled {
            edge: one.edge,
            function: one.function,
            table,
        });
    }
    Ok(found)
}

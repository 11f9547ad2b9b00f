//! Connections of middleboxes that run in graphs and networks, read from their tables while packets use them.

use std::path::Path;

use weir_engine::edge::{self, EdgeError};
use weir_engine::live::FlowTable;
use weir_engine::network;
use weir_functions::kind::Request;
use weir_functions::middlebox;
use weir_graph::Folder;
use weir_kernel::Map;
use weir_policy::model::Policy;

use crate::error::RuntimeError;
use crate::{graph, networks};

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

/// The kind of function that keeps connections.
const MIDDLEBOX: &str = "middlebox";

/// Tables of connections of an edge, or of all edges of this network namespace.
///
/// # Errors
/// The state of an edge or a map cannot be read.
pub fn tracked(edge: Option<&str>) -> Result<Vec<Tracked>, RuntimeError> {
    let edges = match edge {
        Some(name) => vec![name.to_owned()],
        None => crate::edges()?,
    };
    let mut found = Vec::new();
    for edge in &edges {
        let of_graph = in_graph(edge, &mut found)?;
        let of_networks = in_networks(edge, &mut found)?;
        if !of_graph && !of_networks {
            return Err(RuntimeError::Usage(format!(
                "no edge {edge} is running in this network namespace"
            )));
        }
    }
    Ok(found)
}

/// Whether the edge has a graph.
fn in_graph(edge: &str, found: &mut Vec<Tracked>) -> Result<bool, RuntimeError> {
    let status = match edge::status(edge) {
        Ok(status) => status,
        Err(EdgeError::NotRunning { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let record = graph::Record::read(edge, &status.text)?;
    for (function, policy) in weir_graph::policies(&record.config()?, &record) {
        let policy = policy.map_err(|error| RuntimeError::Failed(error.message))?;
        let instance = status.instances.iter().find(|one| one.name == function);
        let maps = instance.into_iter().flat_map(|one| &one.maps);
        let id = maps.clone().find(|(name, _)| name == FLOWS);
        if let Some((_, id)) = id {
            found.push(open(edge, function, *id, &policy)?);
        }
    }
    Ok(true)
}

/// Whether the edge has networks.
fn in_networks(edge: &str, found: &mut Vec<Tracked>) -> Result<bool, RuntimeError> {
    let Some(look) = network::look(edge)? else {
        return Ok(false);
    };
    let record = networks::Record::read(&look.text)?;
    let document = record.parse()?;
    for network in &document.networks {
        for function in &network.functions {
            let name = weir_network::instance_name(network.name.as_str(), &function.name);
            let id = look.map_id(&name, FLOWS);
            let Some(id) = id.filter(|_| function.kind.as_str() == MIDDLEBOX) else {
                continue;
            };
            let request = Request {
                name: &name,
                keys: &function.keys,
                files: &Folder::of(Path::new(&record.path)),
                ports: &[],
                transmits: false,
            };
            let policy = middlebox::instance::policy(&request)
                .map_err(|error| RuntimeError::Failed(error.message))?;
            found.push(open(edge, name, id, &policy)?);
        }
    }
    Ok(true)
}

fn open(edge: &str, function: String, id: u32, policy: &Policy) -> Result<Tracked, RuntimeError> {
    let map = Map::by_id(id, FLOWS).map_err(EdgeError::from)?;
    let table = FlowTable::of_map(&map, &policy.connections).map_err(EdgeError::from)?;
    Ok(Tracked {
        edge: edge.to_owned(),
        function,
        capacity: policy.connections.capacity,
        table,
    })
}

//! Middleboxes that run in graphs and networks: the policy of each, and a map of it that is asked for.

use weir_engine::edge::{self, EdgeError};
use weir_engine::network;
use weir_functions::kind::Request;
use weir_functions::middlebox;
use weir_kernel::Map;
use weir_network::Carried;
use weir_policy::model::Policy;

use crate::error::RuntimeError;
use crate::{graph, networks};

/// A middlebox that runs.
#[derive(Debug)]
pub(crate) struct Middlebox {
    /// Its edge.
    pub(crate) edge: String,
    /// Its name: of a graph as configured, of a network as `network/function`.
    pub(crate) function: String,
    pub(crate) policy: Policy,
    /// The map that was asked for.
    pub(crate) map: Map,
    /// Key of its hashes.
    pub(crate) secret: Option<[u8; 8]>,
}

/// The kind of function that has a policy.
const MIDDLEBOX: &str = "middlebox";

/// Those of an edge, or of all edges of this network namespace, that have this map.
///
/// # Errors
/// The state of an edge or a map cannot be read.
pub(crate) fn with_map(edge: Option<&str>, map: &str) -> Result<Vec<Middlebox>, RuntimeError> {
    let edges = match edge {
        Some(name) => vec![name.to_owned()],
        None => crate::edges()?,
    };
    let mut found = Vec::new();
    for edge in &edges {
        let of_graph = in_graph(edge, map, &mut found)?;
        let of_networks = in_networks(edge, map, &mut found)?;
        if !of_graph && !of_networks {
            return Err(RuntimeError::Usage(format!(
                "no edge {edge} is running in this network namespace"
            )));
        }
    }
    Ok(found)
}

/// Whether the edge has a graph.
fn in_graph(edge: &str, map: &str, found: &mut Vec<Middlebox>) -> Result<bool, RuntimeError> {
    let status = match edge::status(edge) {
        Ok(status) => status,
        Err(EdgeError::NotRunning { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let record = graph::Record::read(edge, &status.text)?;
    for (function, policy) in weir_graph::policies(&record.config()?, &record) {
        let policy = policy.map_err(|error| RuntimeError::Failed(error.message))?;
        let Some(instance) = status.instances.iter().find(|one| one.name == function) else {
            continue;
        };
        if let Some((_, id)) = instance.maps.iter().find(|(name, _)| name == map) {
            found.push(Middlebox {
                edge: edge.to_owned(),
                function,
                policy,
                map: Map::by_id(*id, map).map_err(EdgeError::from)?,
                secret: instance.secret,
            });
        }
    }
    Ok(true)
}

/// Whether the edge has networks.
fn in_networks(edge: &str, map: &str, found: &mut Vec<Middlebox>) -> Result<bool, RuntimeError> {
    let Some(look) = network::look(edge)? else {
        return Ok(false);
    };
    let record = networks::Record::read(&look.text)?;
    let document = record.parse()?;
    let files = record.files(&|_, _| None);
    for network in &document.networks {
        for function in &network.functions {
            let name = weir_network::instance_name(network.name.as_str(), &function.name);
            let id = look.map_id(&name, map);
            let Some(id) = id.filter(|_| function.kind.as_str() == MIDDLEBOX) else {
                continue;
            };
            let request = Request {
                name: &name,
                keys: &function.keys,
                files: &Carried::new(network, &files),
                ports: &[],
                transmits: false,
            };
            let policy = middlebox::instance::policy(&request)
                .map_err(|error| RuntimeError::Failed(error.message))?;
            found.push(Middlebox {
                edge: edge.to_owned(),
                secret: look.secret(&name),
                function: name,
                policy,
                map: Map::by_id(id, map).map_err(EdgeError::from)?,
            });
        }
    }
    Ok(true)
}

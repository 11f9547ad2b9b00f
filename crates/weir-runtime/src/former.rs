//! What runs now, so that it can be gone back to.

use weir_engine::edge;
use weir_engine::network::{self, Networks};
use weir_graph::EdgePlan;

use crate::error::RuntimeError;
use crate::plan::Planned;
use crate::{graph, networks};

/// What ran of an edge before an apply.
#[derive(Debug)]
pub struct Former {
    edge: String,
    /// `None`: it is left as it is.
    graph: Option<Option<(EdgePlan, graph::Record)>>,
    /// `None`: they are left as they are.
    networks: Option<Option<networks::Record>>,
}

impl Former {
    /// Of what an apply would change. Whether it can be gone back to is found out here, before anything changes.
    ///
    /// # Errors
    /// What runs cannot be read, or planned again.
    pub fn of(planned: &Planned) -> Result<Former, RuntimeError> {
        let edge = &planned.edge;
        let mut former = match planned.configuration {
            Some(_) => Former::of_graph(edge)?,
            None => Former {
                edge: edge.clone(),
                graph: None,
                networks: None,
            },
        };
        let running = planned.running_networks()?;
        let is_removed = running.as_ref().is_some_and(|record| planned.owns(record));
        if planned.networks.is_some() || is_removed {
            if let Some(record) = &running {
                record.check()?;
            }
            former.networks = Some(running);
        }
        Ok(former)
    }

    /// Of the graph of an edge.
    pub(crate) fn of_graph(edge: &str) -> Result<Former, RuntimeError> {
        let record = graph::running(edge, &mut |_| ())?;
        let before = record.map(|record| Ok::<_, RuntimeError>((record.plan()?, record)));
        Ok(Former {
            edge: edge.to_owned(),
            graph: Some(before.transpose()?),
            networks: None,
        })
    }

    /// Both parts as they are to be.
    pub(crate) fn to(
        edge: &str,
        graph: Option<(EdgePlan, graph::Record)>,
        networks: Option<networks::Record>,
    ) -> Former {
        Former {
            edge: edge.to_owned(),
            graph: Some(graph),
            networks: Some(networks),
        }
    }

    /// Whether anything ran.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.graph.iter().any(Option::is_some) || self.networks.iter().any(Option::is_some)
    }

    /// Goes back; what did not run is taken down.
    ///
    /// # Errors
    /// What the kernel refused; a part may have gone back already.
    pub fn restore(&self) -> Result<(), RuntimeError> {
        match &self.graph {
            Some(Some((plan, record))) => drop(edge::apply(plan, &record.write()?)?),
            Some(None) => drop(edge::down(&self.edge)?),
            None => {}
        }
        match &self.networks {
            Some(Some(record)) => {
                networks::apply(&self.edge, record)?;
            }
            Some(None) if network::look(&self.edge)?.is_some() => {
                Networks::open(&self.edge)?.remove()?;
            }
            _ => {}
        }
        Ok(())
    }
}

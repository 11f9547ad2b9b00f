//! From a model to its plan, and what keeps a model from having one.

use std::collections::BTreeSet;

use weir_bpf::abi::panel;

use crate::edge::{EdgePlan, Mode, PortPlan, Target};
use crate::model::{Model, Source};
use crate::paths::{GUARD_BITS, Graph, MAX_CALLS, MAX_RECIRCULATIONS, Walks};
use crate::wired::wired;

/// Why a model has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Two things of one name.
    #[error("{what} {name} is there twice: name each once")]
    Twice {
        /// What sort of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A link from or to something that is not there, or that another link begins at.
    #[error("link {link} {why}")]
    Link {
        /// Place in [`Model::links`].
        link: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A guard on a link that closes no loop.
    #[error("link {link} has a guard and closes no loop: leave the guard out")]
    NeedlessGuard {
        /// Place in [`Model::links`].
        link: usize,
    },
    /// A loop without guard.
    #[error(
        "the links {path} go round in a loop: give one of them guard = N, the number of times a packet may take it"
    )]
    Loop {
        /// Instances on the loop.
        path: String,
    },
    /// Guards need more bits than there are.
    #[error(
        "{links} guarded links with limits up to {most} need more than the {GUARD_BITS} bits a packet has for them: lower the limits"
    )]
    Guards {
        /// Number of guarded links.
        links: usize,
        /// Highest limit.
        most: u32,
    },
    /// More combinations of passes over guarded links than can be followed.
    #[error(
        "the guards allow more combinations of passes than can be followed: lower them, or guard fewer links"
    )]
    Combinations,
    /// A path that is too long even with recirculation.
    #[error(
        "a packet could pass {functions} functions and be recirculated {times} times; {MAX_RECIRCULATIONS} times is the most: shorten the path"
    )]
    TooLong {
        /// Functions of the longest path.
        functions: usize,
        /// Recirculations of one packet.
        times: u32,
    },
    /// A long path begins where metadata does not survive.
    #[error(
        "a path from port {port} has more than {MAX_CALLS} functions in a row and must be recirculated, which mode = \"generic\" cannot: \
         use mode = \"native\" or a shorter path"
    )]
    LongGeneric {
        /// Port.
        port: String,
    },
    /// More instances than an edge holds.
    #[error(
        "the graph has {have} instances, guards and recirculations included; an edge holds {}",
        panel::VIDS - 1
    )]
    TooMany {
        /// Instances.
        have: usize,
    },
}

impl Model {
    /// Guards loops, recirculates long paths, and says where each output and each port leads.
    ///
    /// # Errors
    /// The first [`ModelError`] that was found.
    pub fn plan(self) -> Result<EdgePlan, ModelError> {
        self.check_names()?;
        self.check_links()?;
        let graph = Graph::of(self.instances.len(), &self.links);
        if let Some(&link) = graph.needless_guards(&self.links).first() {
            return Err(ModelError::NeedlessGuard { link });
        }
        if graph.guard_bits() > GUARD_BITS {
            return Err(ModelError::Guards {
                links: graph.guards.len(),
                most: graph.highest_guard(),
            });
        }
        if let Some(steps) = graph.endless_loops().first() {
            let from = steps.iter().map(|&at| graph.steps[at].from);
            let mut names: Vec<&str> = from.map(|at| self.instances[at].name.as_str()).collect();
            names.extend(names.first().copied());
            let path = names.join(" -> ");
            return Err(ModelError::Loop { path });
        }
        let walks = graph.walks().ok_or(ModelError::Combinations)?;
        if walks.recirculations > MAX_RECIRCULATIONS {
            return Err(ModelError::TooLong {
                functions: walks.longest.len(),
                times: walks.recirculations,
            });
        }
        if let Some(port) = self.generic_ports_that_recirculate(&graph, &walks).next() {
            let port = port.name.clone();
            return Err(ModelError::LongGeneric { port });
        }
        self.wired(&graph, &walks)
    }

    /// The plan, once everything but the number of instances was checked.
    pub(crate) fn wired(self, graph: &Graph, walks: &Walks) -> Result<EdgePlan, ModelError> {
        let plan = wired(self, graph, walks);
        match plan.instances.len() {
            have if have >= panel::VIDS => Err(ModelError::TooMany { have }),
            _ => Ok(plan),
        }
    }

    /// Generic XDP turns a redirected frame into a socket buffer, and what lies in front of it is lost.
    pub(crate) fn generic_ports_that_recirculate<'a>(
        &'a self,
        graph: &Graph,
        walks: &Walks,
    ) -> impl Iterator<Item = &'a PortPlan> {
        let recirculates = |port: &PortPlan| {
            let mut links = self.links.iter();
            let first = links.find(|link| link.from == Source::Port(port.number));
            let Some(Target::Instance(first)) = first.map(|link| link.to) else {
                return false;
            };
            let met = graph.reachable([first]);
            walks.cut.iter().any(|&at| met[graph.steps[at].from])
        };
        let generic = self.ports.iter();
        let generic = generic.filter(|port| port.mode == Mode::Generic && recirculates(port));
        generic.collect::<Vec<_>>().into_iter()
    }

    fn check_names(&self) -> Result<(), ModelError> {
        let mut seen = BTreeSet::new();
        let instances = self.instances.iter().map(|one| ("function", &one.name));
        let maps = self.maps.iter().map(|one| ("map", &one.name));
        let hooks = self.hooks.iter().map(|one| ("hook", &one.name));
        let ports = self.ports.iter().map(|one| ("port", &one.name));
        for (what, name) in instances.chain(maps).chain(hooks).chain(ports) {
            if !seen.insert((what, name)) {
                return Err(ModelError::Twice {
                    what,
                    name: name.clone(),
                });
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), ModelError> {
        let is_port = |number: u32| self.ports.iter().any(|port| port.number == number);
        for (at, link) in self.links.iter().enumerate() {
            let wrong = |why| Err(ModelError::Link { link: at, why });
            let is_there = match link.from {
                Source::Port(number) => is_port(number),
                Source::Out { instance, out } => {
                    let from = self.instances.get(instance);
                    from.is_some_and(|one| out < one.planned.outs.len())
                }
            };
            if !is_there {
                return wrong("begins at a port or an output that is not there");
            }
            let leads = match link.to {
                Target::Instance(at) => at < self.instances.len(),
                Target::Device(number) => is_port(number),
                Target::Stack | Target::Drop | Target::Tx => true,
                Target::Pair => false,
            };
            if !leads {
                return wrong("leads to a port or an instance that is not there");
            }
            if self.links[..at].iter().any(|other| other.from == link.from) {
                return wrong("begins where another one does");
            }
        }
        Ok(())
    }
}

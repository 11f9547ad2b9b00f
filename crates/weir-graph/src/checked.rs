//! From a model to its plan, and what keeps a model from having one.

use std::collections::BTreeSet;

use weir_bpf::abi::panel;

use crate::edge::{EdgePlan, Mode, PortPlan, Target};
use crate::misplaced::Misplaced;
use crate::model::{Model, Source};
use crate::paths::{GUARD_BITS, Graph, MAX_CALLS, MAX_RECIRCULATIONS, Walks};
use crate::wired::wired;

/// Why a model has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Two things of one name.
    #[error("{what} {name} is named twice: name each once")]
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
    /// A long path begins on tc, where there is no recirculation.
    #[error(
        "a path from port {port} has more than {MAX_CALLS} functions in a row and must be recirculated, which ports on tc cannot: \
         use a port on XDP or a shorter path"
    )]
    LongTc {
        /// Port.
        port: String,
    },
    /// A function that does not run where its packets come from.
    #[error("packets of port {port}, which is on tc, come to function {instance}: {why}")]
    NotOnTc {
        /// Port.
        port: String,
        /// Function.
        instance: String,
        /// Why it does not run there.
        why: String,
    },
    /// The other way round.
    #[error(
        "packets of port {port}, which is on XDP, come to function {instance}: {why}; set `hook = \"tc\"` for the port"
    )]
    NotOnXdp {
        /// Port.
        port: String,
        /// Function.
        instance: String,
        /// Why it does not run there.
        why: String,
    },
    /// Packets that leave by a port would be sent out of it once more.
    #[error(
        "link {link} sends packets that leave by port {port} out of it again: link it to the stack, which transmits them"
    )]
    TransmitBack {
        /// Port.
        port: String,
        /// Place in [`Model::links`].
        link: usize,
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
        if let Some(found) = self.ports_that_cannot_recirculate(&graph, &walks).next() {
            let port = found.name.clone();
            return Err(match found.mode {
                Mode::Tc => ModelError::LongTc { port },
                _ => ModelError::LongGeneric { port },
            });
        }
        let name = |number: u32| {
            let port = self.ports.iter().find(|port| port.number == number);
            port.map_or_else(|| number.to_string(), |port| port.name.clone())
        };
        if let Some(first) = self.misplaced(&graph).into_iter().next() {
            return Err(match first {
                Misplaced::Function {
                    port,
                    instance,
                    why,
                } => ModelError::NotOnTc {
                    port: name(port),
                    instance: self.instances[instance].name.clone(),
                    why,
                },
                Misplaced::OnXdp {
                    port,
                    instance,
                    why,
                } => ModelError::NotOnXdp {
                    port: name(port),
                    instance: self.instances[instance].name.clone(),
                    why,
                },
                Misplaced::Back { port, link } => ModelError::TransmitBack {
                    port: name(port),
                    link,
                },
            });
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

    /// Generic XDP turns a redirected frame into a socket buffer, and what lies in front of it is lost; on tc nothing lies there.
    pub(crate) fn ports_that_cannot_recirculate<'a>(
        &'a self,
        graph: &Graph,
        walks: &Walks,
    ) -> impl Iterator<Item = &'a PortPlan> {
        let recirculates = |port: &PortPlan| {
            let sources = [Source::Port(port.number), Source::Transmit(port.number)];
            let met = graph.reachable(sources.into_iter().flat_map(|one| self.firsts(one)));
            walks.cut.iter().any(|&at| met[graph.steps[at].from])
        };
        let cannot = |port: &&PortPlan| matches!(port.mode, Mode::Generic | Mode::Tc);
        let ports = self.ports.iter().filter(cannot);
        let ports = ports.filter(|port| recirculates(port));
        ports.collect::<Vec<_>>().into_iter()
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
            let is_on_tc = |port: &PortPlan| port.mode == Mode::Tc;
            let is_there = match link.from {
                Source::Port(number) => is_port(number),
                Source::Transmit(number) => {
                    let port = self.ports.iter().find(|port| port.number == number);
                    if port.is_some_and(|port| !is_on_tc(port)) {
                        return wrong(
                            "begins at packets that leave by a port on XDP, which sees none",
                        );
                    }
                    port.is_some()
                }
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

//! What a port's hook cannot carry: functions that do not run on tc, and transmitted packets that would leave by their port once more.

use weir_functions::kind::Planned;

use crate::edge::{Mode, Target};
use crate::model::{Model, Source};
use crate::paths::Graph;

/// Something that is in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// Packets of a port on tc come to an instance that does not run there.
    Function {
        /// weir's number of the port.
        port: u32,
        /// Place of the instance.
        instance: usize,
        /// Why it does not.
        why: String,
    },
    /// Packets of a port on XDP come to an instance that runs on tc only.
    OnXdp {
        /// weir's number of the port.
        port: u32,
        /// Place of the instance.
        instance: usize,
        /// Why it does not run there.
        why: String,
    },
    /// A link sends packets that leave by a port out of it: they would come to the same link for ever.
    Back {
        /// weir's number of the port.
        port: u32,
        /// Place of the link.
        link: usize,
    },
}

impl Model {
    /// All of it, in the order of ports.
    pub(crate) fn misplaced(&self, graph: &Graph) -> Vec<Misplaced> {
        let mut found = Vec::new();
        for port in self.ports.iter().filter(|port| port.mode != Mode::Tc) {
            let met = graph.reachable(self.firsts(Source::Port(port.number)));
            for (at, instance) in self.instances.iter().enumerate() {
                if met[at]
                    && let Some(why) = &instance.planned.tc_only
                {
                    found.push(Misplaced::OnXdp {
                        port: port.number,
                        instance: at,
                        why: why.clone(),
                    });
                }
            }
        }
        for port in self.ports.iter().filter(|port| port.mode == Mode::Tc) {
            let first = |source| self.firsts(source);
            let sources = [Source::Port(port.number), Source::Transmit(port.number)];
            let met = graph.reachable(sources.into_iter().flat_map(first));
            for (at, instance) in self.instances.iter().enumerate() {
                if met[at]
                    && let Some(why) = why_not_on_tc(&instance.kind, &instance.planned)
                {
                    found.push(Misplaced::Function {
                        port: port.number,
                        instance: at,
                        why,
                    });
                }
            }
            let leaving = Source::Transmit(port.number);
            let met = graph.reachable(first(leaving));
            for (at, link) in self.links.iter().enumerate() {
                let takes = match link.from {
                    Source::Out { instance, .. } => met[instance],
                    from => from == leaving,
                };
                if takes && [Target::Tx, Target::Device(port.number)].contains(&link.to) {
                    found.push(Misplaced::Back {
                        port: port.number,
                        link: at,
                    });
                }
            }
        }
        found
    }

    /// Instances that links from a port lead to.
    pub(crate) fn firsts(&self, source: Source) -> impl Iterator<Item = usize> {
        let links = self.links.iter().filter(move |link| link.from == source);
        links.filter_map(|link| match link.to {
            Target::Instance(at) => Some(at),
            _ => None,
        })
    }
}

/// Why an instance does not run on tc; `None`: it does.
fn why_not_on_tc(kind: &str, planned: &Planned) -> Option<String> {
    if planned.instance.object.for_graph_on_tc(false).is_none() {
        return Some(format!("functions of kind `{kind}` run on XDP only"));
    }
    if planned.asks.finished_checksums {
        return Some("it moves packets to other CPUs, which only XDP can".to_owned());
    }
    if planned.asks.syn_cookies {
        return Some("it answers SYNs with cookies, which only XDP can".to_owned());
    }
    None
}

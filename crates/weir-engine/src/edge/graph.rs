//! The plan of `weir_graph` as what this engine is asked for. Implicit instances are left out: `wiring` makes them by the same rule.

use weir_graph::{From as Start, Instance, Target as End};

use super::plan::{EdgeInstance, EdgePlan, LinkPlan, PortPlan, Source, Target};

impl From<&weir_graph::EdgePlan> for EdgePlan {
    fn from(plan: &weir_graph::EdgePlan) -> EdgePlan {
        let port = |port: &weir_graph::PortPlan| PortPlan {
            name: port.name.clone(),
            device: port.device.clone(),
            number: port.number,
            mode: port.mode,
            checksums: port.checksums,
            metadata: port.metadata,
        };
        EdgePlan {
            name: plan.edge.clone(),
            ports: plan.ports.iter().map(port).collect(),
            // Configured instances come first, so that places are VIDs less one.
            instances: plan.configured().map(instance).collect(),
            links: plan
                .links
                .iter()
                .filter_map(|one| link(plan, one))
                .collect(),
            maps: plan.maps.clone(),
            hooks: plan.hooks.clone(),
        }
    }
}

fn instance(instance: &Instance) -> EdgeInstance {
    EdgeInstance {
        name: instance.name.clone(),
        planned: instance.planned.clone(),
        maps: instance.shares.clone().into_iter().collect(),
        fresh: instance.fresh,
    }
}

/// `None` for what no plan has: the end of a link that is implicit.
fn link(plan: &weir_graph::EdgePlan, link: &weir_graph::Link) -> Option<LinkPlan> {
    let port = |number: u32| plan.ports.iter().position(|port| port.number == number);
    let place = |vid: u32| (vid as usize).checked_sub(1);
    Some(LinkPlan {
        from: match link.from {
            Start::Port(number) => Source::Port(port(number)?),
            Start::Out { vid, out } => Source::Out {
                instance: place(vid)?,
                out,
            },
        },
        to: match link.to {
            End::Instance(vid) => Target::Instance(place(vid)?),
            End::Device(number) => Target::Port(port(number)?),
            End::Stack => Target::Stack,
            End::Drop => Target::Drop,
            End::Tx => Target::Tx,
            End::Pair => return None,
        },
        guard: link.guard,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use weir_graph::{Folder, Numbers};

    use super::super::wiring::{Node, Way, wire};
    use super::*;

    /// What leads where, by names: what the plan of a configuration shows, and what runs.
    type Hops = BTreeMap<(String, usize), String>;

    /// What `weir apply --dry-run` shows of guards and recirculations is what runs, over random graphs with loops and long paths.
    #[test]
    fn what_is_planned_is_what_is_wired() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        let (mut guards, mut recirculations, mut refused) = (0, 0, 0);
        for case in 0..1000 {
            let text = configuration(&mut random);
            let config = weir_graph::parse(&text, "edge.toml").expect("TOML");
            // Loops that cannot be, guards that need too many bits, paths that are too long.
            let Ok((planned, _)) = weir_graph::plan(&config, &Folder::new(""), &Numbers::new())
            else {
                refused += 1;
                continue;
            };
            let plan = EdgePlan::from(&planned);
            let wiring = wire(&plan).unwrap_or_else(|e| panic!("case {case}: {e}\n{text}"));
            let name = |node: usize| match &wiring.nodes[node] {
                Node::Configured(at) => plan.instances[*at].name.clone(),
                Node::Guard { name, .. } | Node::Recirculate { name } => name.clone(),
            };
            let target = |way: Way| match way {
                Way::Node(node) => name(node),
                Way::Port(port) => plan.ports[port].name.clone(),
                Way::Away => "pair".to_owned(),
                Way::Stack => "stack".to_owned(),
                Way::Drop => "drop".to_owned(),
                Way::Tx => "tx".to_owned(),
            };
            let wired: Hops = (wiring.hops.iter())
                .map(|(node, out, way)| ((name(*node), *out), target(*way)))
                .collect();
            let shown: Hops = (planned.instances.iter())
                .flat_map(|one| {
                    let links = one.links.iter().enumerate();
                    links.map(|(out, to)| {
                        let to = planned.target_name(*to).to_owned();
                        ((one.name.clone(), out), to)
                    })
                })
                .collect();
            assert_eq!(wired, shown, "case {case}\n{text}");
            // Which bits a guard counts in may differ, how many and how far it counts may not.
            for node in &wiring.nodes {
                let Node::Guard {
                    name, mask, limit, ..
                } = node
                else {
                    continue;
                };
                let one = planned.named(name).expect("planned, too");
                for (constant, value) in [("weir_guard_mask", mask), ("weir_guard_limit", limit)] {
                    let mut all = one.planned.instance.constants.iter();
                    let found = all.find(|(name, _)| *name == constant);
                    let found = found.map(|(_, value)| value.as_slice());
                    assert_eq!(found, Some(&value.to_ne_bytes()[..]), "{name}\n{text}");
                }
            }
            let count = |of: fn(&Node) -> bool| wiring.nodes.iter().filter(|n| of(n)).count();
            guards += count(|node| matches!(node, Node::Guard { .. }));
            recirculations += count(|node| matches!(node, Node::Recirculate { .. }));
        }
        // The cases are worth something.
        assert!(
            guards > 100 && recirculations > 100 && refused < 700,
            "{guards} guards, {recirculations} recirculations, {refused} refused"
        );
    }

    /// Up to three ports and 90 functions; most links lead a little forward, some out, some back with a guard.
    fn configuration(random: &mut impl FnMut(usize) -> usize) -> String {
        let most = [5, 40, 90][random(3)];
        let functions = 1 + random(most);
        let mut text = String::from("edge = \"t\"\n");
        let link = |text: &mut String, from: &str, to: &str, guard: Option<usize>| {
            let _ = write!(text, "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
            if let Some(guard) = guard {
                let _ = writeln!(text, "guard = {guard}");
            }
        };
        let ports = 1 + random(3);
        for port in 0..ports {
            let _ = write!(text, "[[port]]\nname = \"p{port}\"\ndevice = \"d{port}\"\n");
        }
        for function in 0..functions {
            let _ = write!(
                text,
                "[[function]]\nname = \"f{function}\"\nkind = \"empty\"\n"
            );
        }
        for port in 0..ports {
            let first = random(functions.min(4));
            link(&mut text, &format!("p{port}"), &format!("f{first}"), None);
        }
        let mut loops = 0;
        for function in 0..functions {
            let from = format!("f{function}");
            match random(80) {
                0 if loops < 3 => {
                    loops += 1;
                    let back = format!("f{}", random(function + 1));
                    link(&mut text, &from, &back, Some(1 + random(4)));
                }
                1 => {
                    let end = ["stack", "drop", "tx", "p0"][random(4)];
                    link(&mut text, &from, end, None);
                }
                _ if function + 1 < functions => {
                    let next = (function + 1 + random(2)).min(functions - 1);
                    link(&mut text, &from, &format!("f{next}"), None);
                }
                _ => {}
            }
        }
        text
    }
}

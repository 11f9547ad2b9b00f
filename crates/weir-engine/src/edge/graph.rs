//! The plan of `weir_graph` as what this engine is asked for. Implicit instances are left out: `wiring` makes them by the same rule.

use weir_graph::{From as Start, Instance, Mode, Target as End};
use weir_kernel::MapDefinition;
use weir_kernel::hooks::BadHook;

use super::plan::{
    EdgeInstance, EdgePlan, HookPlan, LinkPlan, PortMode, PortPlan, SharedMap, Source, Target,
};

impl TryFrom<&weir_graph::EdgePlan> for EdgePlan {
    type Error = BadHook;

    /// # Errors
    /// A hook that this engine does not know.
    fn try_from(plan: &weir_graph::EdgePlan) -> Result<EdgePlan, BadHook> {
        let port = |port: &weir_graph::PortPlan| PortPlan {
            name: port.name.clone(),
            device: port.device.clone(),
            number: port.number,
            mode: match port.mode {
                Mode::Native => PortMode::Native,
                Mode::Generic => PortMode::Generic,
                Mode::Offload => PortMode::Offload,
            },
            checksums: port.checksums,
            metadata: port.metadata,
        };
        let map = |map: &weir_graph::SharedMap| SharedMap {
            name: map.name.clone(),
            definition: MapDefinition {
                kind: map.kind.number(),
                key: map.key,
                value: map.value,
                entries: map.entries,
                flags: map.kind.flags(),
            },
            fresh: map.fresh,
        };
        let hook = |hook: &weir_graph::HookPlan| {
            Ok(HookPlan {
                name: hook.name.clone(),
                object: hook.object.clone(),
                program: hook.program.clone(),
                point: hook.attach.to_string().parse()?,
                maps: hook.shares.clone().into_iter().collect(),
            })
        };
        Ok(EdgePlan {
            name: plan.edge.clone(),
            ports: plan.ports.iter().map(port).collect(),
            // Configured instances come first, so that places are VIDs less one.
            instances: plan.configured().map(instance).collect(),
            links: plan
                .links
                .iter()
                .filter_map(|one| link(plan, one))
                .collect(),
            maps: plan.maps.iter().map(map).collect(),
            hooks: plan.hooks.iter().map(hook).collect::<Result<_, _>>()?,
        })
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

//! Objects on other hooks: loaded with the edge's shared maps, attached and pinned.
//!
//! Their own maps begin anew with each load; what is to outlive that is shared.

use std::collections::BTreeMap;

use weir_graph::{Attach, Digest, HookPlan};
use weir_kernel::hooks::{self, HookPoint};
use weir_kernel::{KernelObject, Map};

use super::building::Building;
use super::error::EdgeError;
use super::load::shared_map;
use super::state::HookState;

/// Of everything that a hook is made from.
pub(super) fn digest(hook: &HookPlan, shared: &BTreeMap<String, Map>) -> String {
    let mut digest = Digest::new();
    digest
        .bytes(&hook.object)
        .text(&hook.program)
        .text(&hook.attach.to_string());
    for (map, with) in &hook.shares {
        let id = shared.get(with).map_or(0, Map::id);
        digest.text(map).text(with).number(id.into());
    }
    digest.finish()
}

/// Loads and attaches one. It runs from now on, beside the one that it replaces.
pub(super) fn attach(
    hook: &HookPlan,
    place: usize,
    generation: u64,
    shared: &BTreeMap<String, Map>,
    building: &mut Building<'_>,
) -> Result<HookState, EdgeError> {
    let who = format!("hook {}", hook.name);
    let of = |error| EdgeError::Of {
        who: who.clone(),
        error,
    };
    let mut object = KernelObject::open(&hook.object).map_err(of)?;
    for (map, with) in &hook.shares {
        let here = object.map_definition(map).map_err(of)?;
        let map_there = shared_map(&who, map, with, here, shared)?;
        object.share_map(map, &map_there).map_err(of)?;
    }
    let program = object.load(&hook.program).map_err(of)?;
    let pin = format!("hook-{place}-{generation}");
    let path = building.link(&pin);
    hooks::attach(&program, point(&hook.attach), &path).map_err(of)?;
    Ok(HookState {
        name: hook.name.clone(),
        point: hook.attach.to_string(),
        digest: digest(hook, shared),
        pin,
    })
}

/// The hook as the kernel knows it.
fn point(attach: &Attach) -> HookPoint<'_> {
    match attach {
        Attach::Tracepoint { category, name } => HookPoint::Tracepoint { category, name },
        Attach::Cgroup { path, hook } => HookPoint::Cgroup {
            path,
            hook: hook.text(),
            attach_type: hook.number(),
        },
    }
}

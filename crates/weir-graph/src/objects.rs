//! What objects say about their maps and programs, compared with what configuration says of them.

use weir_functions::plan::{InstancePlan, MapPlan};
use weir_vm::{MapDefinition, Object};

use crate::attach::{Attach, CgroupHook};
use crate::edge::SharedMap;

/// Maps of an object, as far as they are its own: those of the edge and data sections are not.
pub(crate) fn own_maps(object: &Object) -> Vec<&MapDefinition> {
    let is_own = |name: &&str| !name.starts_with("weir_") && !name.starts_with('.');
    let names = object.map_names().filter(is_own);
    names
        .filter_map(|name| object.map_definition(name))
        .collect()
}

/// Why an object's map cannot be `shared`.
pub(crate) fn mismatch(
    own: &MapDefinition,
    planned: Option<&MapPlan>,
    shared: &SharedMap,
) -> Option<String> {
    if planned.is_some_and(|map| !map.keys.is_empty()) {
        return Some(
            "its contents are configuration, which each instance has for itself".to_owned(),
        );
    }
    let kind = own.kind as u32;
    if kind != shared.kind.number() {
        let kind = format!("{:?}", own.kind).to_lowercase();
        return Some(format!(
            "it is of another type there ({kind}), not `{}`",
            shared.kind.text()
        ));
    }
    let differs = |what: &str, own: u32, shared: u32| {
        (own != shared)
            .then(|| format!("a {what} has {own} bytes there, {shared} in the shared map"))
    };
    let sizes = differs("key", own.key_size, shared.key)
        .or_else(|| differs("value", own.value_size, shared.value));
    if sizes.is_some() {
        return sizes;
    }
    let entries = planned.map_or(own.max_entries, |map| map.max_entries);
    (entries > shared.entries).then(|| {
        format!(
            "it has {entries} entries there, {} in the shared map",
            shared.entries
        )
    })
}

/// The plan of a map of an instance.
pub(crate) fn planned<'a>(instance: &'a InstancePlan, map: &str) -> Option<&'a MapPlan> {
    instance.maps.iter().find(|planned| planned.name == map)
}

/// Whether a program in that section of its object goes on that hook; else the sections that do.
pub(crate) fn fits(attach: &Attach, section: &str) -> Result<(), &'static [&'static str]> {
    let wanted: &[&str] = match attach {
        Attach::Tracepoint { .. } => &["tracepoint", "tp", "raw_tracepoint", "raw_tp"],
        Attach::Cgroup { hook, .. } => match hook {
            CgroupHook::Ingress => &["cgroup_skb/ingress", "cgroup/skb"],
            CgroupHook::Egress => &["cgroup_skb/egress", "cgroup/skb"],
            CgroupHook::SockCreate => &["cgroup/sock_create", "cgroup/sock"],
            CgroupHook::Bind4 => &["cgroup/bind4"],
            CgroupHook::Bind6 => &["cgroup/bind6"],
            CgroupHook::Connect4 => &["cgroup/connect4"],
            CgroupHook::Connect6 => &["cgroup/connect6"],
            CgroupHook::Sendmsg4 => &["cgroup/sendmsg4"],
            CgroupHook::Sendmsg6 => &["cgroup/sendmsg6"],
        },
    };
    let section = section.trim_start_matches('?');
    let is_one = |one: &&str| {
        let rest = section.strip_prefix(*one);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if wanted.iter().any(is_one) {
        return Ok(());
    }
    Err(wanted)
}

//! Where the packets of a plan can come to: which instances a port's packets meet, which devices they leave by, what leads to the stack.

use std::collections::BTreeSet;

use weir_functions::kind;

use crate::edge::{EdgePlan, Hooks, Instance, Mode, Target};

/// Map of a filter that answers SYNs.
const COOKIES: &str = "verified";

impl EdgePlan {
    /// Whether any instance sends packets through the pair for recirculation.
    pub fn recirculates(&self) -> bool {
        self.targets.iter().flatten().any(|to| *to == Target::Pair)
    }

    /// For each instance whether packets of a port, by its place, can come to it: those that it receives, and those that leave by it.
    pub fn met_by(&self, port: usize) -> Vec<bool> {
        let mut firsts = vec![self.entries[port]];
        firsts.extend(self.transmits[port]);
        self.met_from(firsts)
    }

    /// For each instance from where packets come to it: places of ports, and whether they leave by that port.
    pub fn comes_from(&self) -> Vec<Vec<(usize, bool)>> {
        let mut from = vec![Vec::new(); self.instances.len()];
        let received = self.entries.iter().map(|to| (*to, false)).enumerate();
        let left = self.transmits.iter().enumerate();
        let left = left.filter_map(|(port, to)| Some((port, (to.as_ref().copied()?, true))));
        for (port, (first, leaves)) in received.chain(left) {
            let met = self.met_from(vec![first]);
            for (from, _) in from.iter_mut().zip(met).filter(|(_, met)| *met) {
                from.push((port, leaves));
            }
        }
        from
    }

    /// Whether packets of an instance, by its place, can leave by the port with this number: by a link, or because a router sends them.
    pub fn may_return(&self, instance: usize, port: u32) -> bool {
        let met = self.met_from(vec![Target::Instance(instance)]);
        let met = met.iter().enumerate().filter(|(_, met)| **met);
        met.map(|(at, _)| at).any(|at| {
            let back = |to: &Target| *to == Target::Tx || *to == Target::Device(port);
            self.instances[at].kind == "router" || self.targets[at].iter().any(back)
        })
    }

    fn met_from(&self, mut open: Vec<Target>) -> Vec<bool> {
        let mut met = vec![false; self.instances.len()];
        while let Some(target) = open.pop() {
            if let Target::Instance(at) = target
                && !std::mem::replace(&mut met[at], true)
            {
                open.extend(&self.targets[at]);
            }
        }
        met
    }

    /// On which hooks each instance runs: those of the ports whose packets can come to it. One that no port leads to runs on XDP.
    pub fn instance_hooks(&self) -> Vec<Hooks> {
        let mut hooks = vec![Hooks::default(); self.instances.len()];
        for (at, port) in self.ports.iter().enumerate() {
            for (hooks, _) in hooks
                .iter_mut()
                .zip(self.met_by(at))
                .filter(|(_, met)| *met)
            {
                match port.mode {
                    Mode::Tc => hooks.tc = true,
                    Mode::Native | Mode::Generic | Mode::Offload => hooks.xdp = true,
                }
            }
        }
        for hooks in &mut hooks {
            hooks.xdp |= !hooks.tc;
        }
        hooks
    }

    /// Whether any port is on tc.
    pub fn has_tc(&self) -> bool {
        self.ports.iter().any(|port| port.mode == Mode::Tc)
    }

    /// Places of all instances, each behind those that its outputs lead to, but for loops.
    pub fn targets_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.instances.len());
        let mut seen = vec![false; self.instances.len()];
        for start in 0..self.instances.len() {
            // (place, how many of its targets were visited): paths may be longer than the stack is deep.
            let mut path = Vec::new();
            if !std::mem::replace(&mut seen[start], true) {
                path.push((start, 0));
            }
            while let Some((at, visited)) = path.last_mut() {
                match self.targets[*at].get(*visited) {
                    Some(target) => {
                        *visited += 1;
                        if let Target::Instance(to) = *target
                            && !std::mem::replace(&mut seen[to], true)
                        {
                            path.push((to, 0));
                        }
                    }
                    None => {
                        order.push(*at);
                        path.pop();
                    }
                }
            }
        }
        order
    }

    /// Devices that packets leave by, by redirect or, of native veths, by transmission (docs/design/redirect.md).
    pub fn leaves_by(&self) -> Vec<String> {
        let sends = |one: &Instance| {
            let planned = &one.planned.instance;
            let kind = kind::named(&planned.object.to_string());
            kind.is_some_and(|kind| kind.sends)
                || planned.maps.iter().any(|map| map.name == COOKIES)
        };
        let firsts = || self.entries.iter().chain(self.transmits.iter().flatten());
        let mut targets = self.targets.iter().flatten().chain(firsts());
        let all = self.instances.iter().any(sends) || targets.any(|to| *to == Target::Tx);
        let ports = self.ports.iter().filter(|port| {
            let mut targets = self.targets.iter().flatten().chain(firsts());
            all || targets.any(|to| *to == Target::Device(port.number))
        });
        let maps = self.instances.iter();
        let maps = maps.flat_map(|one| &one.planned.instance.maps);
        let redirected = maps.flat_map(|map| &map.devices);
        let mut names: Vec<String> = ports
            .map(|port| port.device.clone())
            .chain(redirected.map(|(_, name)| name.clone()))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether packets go on from an instance to the stack, and no function on the way sends them out by itself.
    pub fn leads_to_stack(&self, instance: &str) -> bool {
        let Some(start) = self.instances.iter().position(|one| one.name == instance) else {
            return false;
        };
        let mut seen = BTreeSet::new();
        let mut next = vec![start];
        while let Some(at) = next.pop() {
            if !seen.insert(at) {
                continue;
            }
            let object = self.instances[at].planned.instance.object.to_string();
            let forwards = kind::named(&object).is_some_and(|kind| kind.forwards);
            if at != start && forwards {
                continue;
            }
            for target in &self.targets[at] {
                match target {
                    Target::Stack => return true,
                    Target::Instance(to) => next.push(*to),
                    _ => {}
                }
            }
        }
        false
    }
}

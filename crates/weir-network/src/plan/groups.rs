//! Security groups: numbers for those that functions of an edge test, and an exact match for each address of a member.
//!
//! Programs know groups by number alone. A number stays as long as a function here tests the group, so members that come and go change exact
//! matches and no program.

use std::collections::BTreeSet;

use weir_bpf::abi::{element, exact_kind};
use weir_functions::kind::Planned;

use super::GroupMembers;
use super::network::OneNetwork;
use crate::values::{number, words};

impl OneNetwork<'_, '_> {
    /// A function that knows the numbers of the groups it tests.
    pub(super) fn with_groups(&mut self, planned: &Planned) -> Planned {
        let mut planned = planned.clone();
        for (_, name) in &planned.groups {
            let name = self.full(name);
            self.planner.group_numbers.of(name);
        }
        planned.number_groups(|name| self.group_number(name));
        planned
    }

    fn group_number(&self, name: &str) -> u32 {
        let number = self.planner.group_numbers.find(&self.full(name));
        number.unwrap_or(0)
    }

    /// Members of the groups that functions here test, those on other edges among them: their packets pass here.
    pub(super) fn groups(&mut self) {
        for group in &self.network.groups {
            let instance = self.group_number(&group.name);
            if instance == 0 {
                continue;
            }
            let members = self.network.workloads.iter().filter(|workload| {
                let mut groups = workload.groups.iter();
                groups.any(|name| name.value == group.name.value)
            });
            let (mut workloads, mut addresses) = (Vec::new(), BTreeSet::new());
            for member in members {
                workloads.push(member.name.value.clone());
                addresses.extend(member.addresses.known().iter().map(|one| one.value));
            }
            for address in &addresses {
                let kind = match address.is_ipv4() {
                    true => element::IP4,
                    false => element::IP6,
                };
                let key = words(number(*address));
                let kind = kind as u8;
                self.planner
                    .exact(exact_kind::GROUP, instance, kind, key, 1, 0);
            }
            self.planner.plan.groups.push(GroupMembers {
                network: self.network.name.value.clone(),
                name: group.name.value.clone(),
                workloads,
                addresses,
            });
        }
    }
}

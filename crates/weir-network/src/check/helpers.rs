//! What helpers are to do: DHCP needs addresses to lease, and the data plane looks at a limited number of selections.

use weir_policy::Report;

use super::chains::MOST_SELECTIONS;
use crate::model::Document;

pub(super) fn check(document: &Document, report: &mut Report) {
    for network in &document.networks {
        for subnet in &network.subnets {
            let Some(dhcp) = &subnet.dhcp else {
                continue;
            };
            if subnet.prefixes.iter().all(|prefix| prefix.is_ip6) {
                let text = format!(
                    "the subnet `{}` has no prefix of IPv4, and `dhcp` leases addresses of that only",
                    subnet.name.value
                );
                report
                    .error(0, dhcp.span, text)
                    .help("add a prefix: `prefix = \"10.1.0.0/24\"`, or leave `dhcp` out");
            }
        }
        for function in &network.functions {
            let count = function.punt.as_ref().map_or(0, |one| one.selections.len());
            if count > MOST_SELECTIONS {
                let name = &function.name.value;
                report
                    .error(
                        0,
                        function.name.span,
                        format!("the function `{name}` has {count} selections"),
                    )
                    .help(format!(
                        "{MOST_SELECTIONS} are the most; a helper can let packets pass that it does not want"
                    ));
            }
        }
    }
}

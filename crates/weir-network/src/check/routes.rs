//! Routes of routers: each leads somewhere, none is there twice, and a packet finds its own in few look-ups.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::NET_LENGTHS;
use weir_policy::Report;
use weir_policy::ast::Span;
use weir_value::Prefix;

use crate::model::{Document, Function, Way};

/// Gateways of one route.
const MOST_GATEWAYS: usize = 64;

pub(super) fn check(document: &Document, report: &mut Report) {
    for function in document
        .networks
        .iter()
        .flat_map(|network| &network.functions)
    {
        if function.is_router() {
            router(function, report);
        }
    }
}

fn router(function: &Function, report: &mut Report) {
    let name = &function.name.value;
    let own = || {
        function
            .interfaces
            .iter()
            .flat_map(|interface| &interface.addresses)
    };
    let mut seen: BTreeMap<Prefix, Span> = BTreeMap::new();
    let mut lengths: [BTreeSet<u8>; 2] = Default::default();
    let mut last = function.name.span;
    for net in own() {
        lengths[usize::from(net.address.is_ipv6())].insert(net.len);
        seen.entry(net.network()).or_insert(net.span);
    }
    for route in &function.routes {
        let to = route.to;
        match seen.get(&to) {
            None => drop(seen.insert(to, route.span)),
            Some(first) => {
                report
                    .error(0, route.span, format!("`{name}` has two routes to `{to}`"))
                    .help("several gateways of one route are written behind each other: `PREFIX via ADDRESS ADDRESS`")
                    .also(0, *first, "the first one");
            }
        }
        if lengths[usize::from(to.is_ip6)].insert(to.len) {
            last = route.span;
        }
        let Way::Via(gateways) = &route.way else {
            continue;
        };
        if gateways.len() > MOST_GATEWAYS {
            let text = format!("the route to `{to}` has {} gateways", gateways.len());
            report
                .error(0, route.span, text)
                .help(format!("there are {MOST_GATEWAYS} at most"));
        }
        for gateway in gateways {
            if gateway.is_ipv6() != to.is_ip6 {
                let text = format!("the gateway `{gateway}` is of another family than `{to}`");
                report
                    .error(0, route.span, text)
                    .help("name a gateway of the same family");
            } else if own().any(|net| net.address == *gateway) {
                let text = format!("the gateway `{gateway}` is `{name}` itself");
                report
                    .error(0, route.span, text)
                    .help("name the router behind one of its interfaces");
            } else if !own().any(|net| net.network().contains(*gateway)) {
                let text = format!("the gateway `{gateway}` is on no interface of `{name}`");
                let nets: Vec<String> = own().map(|net| format!("`{}`", net.network())).collect();
                let help = match nets.is_empty() {
                    true => "the router has no addresses".to_owned(),
                    false => format!("its interfaces are in {}", nets.join(", ")),
                };
                report.error(0, route.span, text).help(help);
            }
        }
    }
    for (lengths, family) in lengths.iter().zip(["IPv4", "IPv6"]) {
        if lengths.len() > NET_LENGTHS {
            let text = format!(
                "`{name}` has prefixes of {} different lengths of {family}, those of its interfaces included",
                lengths.len()
            );
            report.error(0, last, text).help(format!(
                "a router has {NET_LENGTHS} at most: split a prefix in two, or put a second router behind"
            ));
        }
    }
}

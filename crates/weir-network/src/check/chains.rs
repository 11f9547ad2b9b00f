//! Chains become functions and links: the link they are put into is cut, and what leads packets into and out of them stands in the gap.
//!
//! What is wrong with the links that come of it is found where all links are looked at, and points at the chain.

use std::collections::BTreeSet;

use weir_policy::Report;

use super::BALANCER;
use super::names::no_end;
use crate::graph::{End, Names};
use crate::model::{Chain, Document, Function, Link, Network, Places, Steer};
use crate::values::At;

/// Functions of one chain.
const MOST: usize = 32;

/// Selections of one chain, or of what goes to a helper: the data plane looks at one after the other.
pub(super) const MOST_SELECTIONS: usize = 1000;

/// The document with chains taken apart; `None` if there are none.
pub(super) fn expand(document: &Document, report: &mut Report) -> Option<Document> {
    if document
        .networks
        .iter()
        .all(|network| network.chains.is_empty())
    {
        return None;
    }
    let mut expanded = document.clone();
    for network in &mut expanded.networks {
        for chain in std::mem::take(&mut network.chains) {
            put_in(network, &chain, report);
        }
    }
    Some(expanded)
}

fn put_in(network: &mut Network, chain: &Chain, report: &mut Report) {
    let subnets = network.subnets.iter().map(|one| &one.name);
    let mut names = subnets.chain(network.functions.iter().map(|one| &one.name));
    if let Some(first) = names.find(|name| **name == chain.name) {
        report
            .error(
                0,
                chain.name.span,
                format!("`{}` is declared twice", chain.name.value),
            )
            .help("names of subnets, functions and chains must be unique within a network")
            .also(0, first.span, "the first one");
        return;
    }
    let Some(at) = link_of(network, chain, report) else {
        return;
    };
    if !functions_are_there(network, chain, report) {
        return;
    }
    let mut steer = Steer {
        sides: vec!["a".to_owned(), "b".to_owned()],
        stages: Vec::new(),
        selections: chain.select.clone(),
    };
    let name = &chain.name.value;
    let link = |from: At<String>, to: At<String>| Link {
        from,
        to,
        vlan: 0,
        identifier: None,
    };
    let mut links = Vec::new();
    for group in &chain.through {
        let mut stage = Vec::new();
        for function in group {
            stage.push(steer.sides.len());
            for side in ["a", "b"] {
                let own = format!("{}.{side}", function.value);
                links.push(link(
                    function.with(format!("{name}.{own}")),
                    function.with(own.clone()),
                ));
                steer.sides.push(own);
            }
        }
        steer.stages.push(stage);
    }
    // The end that the chain is named by stands behind `b`.
    let (place, is_from, own) = at;
    let cut = &mut network.links[place];
    let end = if is_from { &mut cut.from } else { &mut cut.to };
    *end = chain.at.with(format!("{name}.a"));
    let behind = chain.at.with(own);
    network
        .links
        .push(link(chain.at.with(format!("{name}.b")), behind));
    network.links.extend(links);
    network.functions.push(Function {
        name: chain.name.clone(),
        kind: chain.name.with("steer".to_owned()),
        home: None,
        interfaces: Vec::new(),
        routes: Vec::new(),
        punt: None,
        keys: toml::Table::new(),
        places: Places::default(),
        steer: Some(Box::new(steer)),
    });
}

/// The link that a chain is put into, whether it begins at the chain's interface, and that interface's name.
fn link_of(network: &Network, chain: &Chain, report: &mut Report) -> Option<(usize, bool, String)> {
    let names = Names::of(network);
    let own = match names.end(network, &chain.at, 0) {
        Ok(End::Side(function, side)) => (function, side),
        Ok(End::Subnet(_)) => {
            let text = format!(
                "a chain is put in at an interface of a function, and `{}` is a subnet",
                chain.at.value
            );
            report
                .error(0, chain.at.span, text)
                .help("name the other end of the link: `at = \"FUNCTION.INTERFACE\"`");
            return None;
        }
        Err(wrong) => {
            no_end(network, &names, &chain.at, &wrong, report);
            return None;
        }
    };
    let function = &network.functions[own.0];
    let name = format!("{}.{}", function.name.value, function.side_name(own.1));
    let found = network.links.iter().enumerate().find_map(|(at, link)| {
        let is = |text: &At<String>, bare| {
            names
                .end(network, text, bare)
                .is_ok_and(|end| end == End::Side(own.0, own.1))
        };
        match (is(&link.from, 1), is(&link.to, 0)) {
            (true, _) => Some((at, true, name.clone())),
            (_, true) => Some((at, false, name.clone())),
            _ => None,
        }
    });
    if found.is_none() {
        let text = format!(
            "no link ends at `{}`, so no chain can be put into it",
            chain.at.value
        );
        report
            .error(0, chain.at.span, text)
            .help("add the link first: `[[network.link]]`");
    }
    found
}

fn functions_are_there(network: &Network, chain: &Chain, report: &mut Report) -> bool {
    let names: Vec<&At<String>> = chain.through.iter().flatten().collect();
    let before = report.errors();
    if names.is_empty() || chain.through.iter().any(Vec::is_empty) || names.len() > MOST {
        report
            .error(
                0,
                chain.name.span,
                format!(
                    "the chain `{}` has {} functions",
                    chain.name.value,
                    names.len()
                ),
            )
            .help(format!(
                "name 1 to {MOST}: `through = [\"FIRST\", [\"ONE\", \"OR-THE-OTHER\"]]`"
            ));
    }
    if chain.select.len() > MOST_SELECTIONS {
        report
            .error(
                0,
                chain.name.span,
                format!(
                    "the chain `{}` has {} selections",
                    chain.name.value,
                    chain.select.len()
                ),
            )
            .help(format!(
                "{MOST_SELECTIONS} are the most; a filter in the chain can distinguish more"
            ));
    }
    let two_sided = |function: &&Function| !function.is_router() && function.steer.is_none();
    let known: Vec<&str> = network
        .functions
        .iter()
        .filter(two_sided)
        .map(|one| one.name.as_str())
        .collect();
    let is_balancer = |name: &str| {
        let mut functions = network.functions.iter();
        functions.any(|one| one.name.as_str() == name && one.kind.as_str() == BALANCER)
    };
    let mut seen = BTreeSet::new();
    for name in names {
        if !known.contains(&name.as_str()) {
            let text = format!(
                "no function that a chain can pass is named `{}`",
                name.value
            );
            let none = "declare it: `[[network.function]]` of a kind other than `router`";
            report
                .error(0, name.span, text)
                .help(crate::document::known(name, &known, none));
        } else if is_balancer(name) {
            let text = format!("a chain cannot pass the balancer `{}`", name.value);
            report.error(0, name.span, text).help(
                "put it into the link itself: a chain tells answers by the addresses that they come from, and those of servers are not the service's",
            );
        } else if !seen.insert(name.as_str()) {
            let text = format!(
                "the chain `{}` passes `{}` twice",
                chain.name.value, name.value
            );
            report
                .error(0, name.span, text)
                .help("name each function once");
        }
    }
    report.errors() == before
}

//! What is fuzzed of graphs: configurations, lists of prefixes, routes, and objects that are to be chained.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use weir_functions::filter::{Filter, Set, list, rule};
use weir_functions::kind::Files;
use weir_functions::router::interface::Interface;
use weir_functions::router::memory::{PlanMemory, Size};
use weir_functions::router::rib::{Rib, TableCapacity};
use weir_functions::router::route;
use weir_graph::Numbers;
use weir_object::{Request, chain, check};
use weir_value::{InterfaceAddress, Prefix};
use weir_vm::verify::VerifyOptions;

/// A list that configurations find under any name.
const LIST: &[u8] = include_bytes!("../../../fuzz/corpus/filter_list/mixed");

struct OneList;

impl Files for OneList {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(LIST.to_vec())
    }
}

/// Reads a configuration and plans it, with a list of prefixes for every file that it names.
///
/// A refusal has an error; a plan that is compared with itself has no difference.
pub fn graph_config(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let config = match weir_graph::parse(text, "fuzz.toml") {
        Ok(config) => config,
        Err(errors) => {
            assert!(
                !errors.is_empty(),
                "a configuration was refused without an error"
            );
            let _ = errors.render(false);
            return;
        }
    };
    match weir_graph::plan(&config, &OneList, &Numbers::new()) {
        Ok((plan, warnings)) => {
            let _ = warnings.render(true);
            let outline = plan.outline();
            assert!(weir_graph::diff(&outline, &outline).is_empty());
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "a plan was refused without an error");
            let _ = errors.render(false);
        }
    }
}

/// Reads a list of prefixes, and compiles a filter that drops what it names.
///
/// Errors name lines of the list, in order.
pub fn filter_list(text: &[u8]) {
    let lines = text.split(|b| *b == b'\n').count();
    let entries = match list::parse(text, Some(1_700_000_000)) {
        Ok(entries) => entries,
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= list::TOLD + 1);
            assert!(errors.is_sorted_by_key(|error| error.line));
            assert!(
                errors
                    .iter()
                    .all(|error| (1..=lines as u32).contains(&error.line))
            );
            return;
        }
    };
    assert!(entries.len() <= lines);
    let Ok(rule) = rule::parse("deny from @list") else {
        panic!("a rule as in the manual");
    };
    let filter = Filter {
        rules: vec![rule],
        sets: vec![Set {
            name: "list".to_owned(),
            entries,
        }],
        ..Filter::default()
    };
    let _ = filter.compile();
}

/// Reads routes and puts them into tables.
///
/// Errors name lines, in order; what the tables say of the first and last address of every prefix is what the list of routes says.
pub fn routes(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let lines = text.lines().count();
    let routes = match route::parse_lines(text, &interfaces()) {
        Ok(routes) => routes,
        Err(errors) => {
            assert!(
                !errors.is_empty() && errors.iter().all(|(line, _)| (1..=lines).contains(line))
            );
            assert!(errors.is_sorted_by_key(|(line, _)| *line));
            return;
        }
    };
    let size = Size {
        wide: false,
        nodes: 256,
        room: TableCapacity {
            routes: 64,
            hops: 32,
            groups: 8,
        },
        counted: text.len() % 2 == 0,
    };
    let mut rib = Rib::open(PlanMemory::new(size), size.counted);
    for (number, route) in routes.iter().enumerate() {
        let _ = rib.put(route.prefix, &route.way, route.metric, 0);
        if number % 5 == 4 {
            rib.remove(route.prefix, None);
        }
    }
    for route in &routes {
        let first = route.prefix.address();
        let last = Prefix {
            first: route.prefix.last(),
            len: route.prefix.width(),
            ..route.prefix
        };
        for address in [first, last.address()] {
            let listed = rib.lookup(address).map(|(_, way)| way);
            assert_eq!(rib.find(address), listed, "{address}");
        }
    }
}

/// Two interfaces with networks of both families.
fn interfaces() -> Vec<Interface> {
    let of = |name: &str, port, addresses: [(IpAddr, u8); 2]| Interface {
        name: name.to_owned(),
        port,
        vlan: 0,
        device: format!("{name}0"),
        addresses: addresses
            .map(|(address, len)| InterfaceAddress { address, len })
            .to_vec(),
        address4: None,
        address6: None,
        mtu: 0,
    };
    let net = |last: u8| IpAddr::from([192, 0, last, 254]);
    let net6 = |part: u16| IpAddr::from([0x2001, 0xdb8, part, 0, 0, 0, 0, 0xfe]);
    vec![
        of("wan", 1, [(net(2), 24), (net6(1), 64)]),
        of("lan", 2, [(net(3), 24), (net6(2), 64)]),
    ]
}

/// Puts an object behind weir's wrapper and asks the verifier about the result.
pub fn object_chain(elf: &[u8]) {
    let wrapper = weir_bpf::object("object_graph").unwrap_or_default();
    let request = Request {
        object: elf,
        program: None,
        wrapper,
    };
    match chain(&request) {
        Ok(chained) => {
            // A million instructions, as the kernel's limit is, take ten seconds when they are watched.
            let options = VerifyOptions {
                budget: 20_000,
                ..VerifyOptions::default()
            };
            let _ = check(&chained.elf, [], &options);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

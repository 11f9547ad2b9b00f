//! What is fuzzed of graphs: configurations, lists of prefixes, and objects that are to be chained.

use std::io;
use std::path::Path;

use weir_functions::filter::{Filter, Set, list, rule};
use weir_functions::kind::Files;
use weir_graph::Numbers;
use weir_object::{Request, chain, check};

/// A list that configurations find under any name.
const LIST: &[u8] = include_bytes!("../corpus/filter_list/mixed");

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
            let _ = check(&chained.elf, []);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

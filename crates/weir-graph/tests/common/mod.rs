//! What the tests of this crate share: files from memory, and plans of texts.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use weir_functions::kind::Files;
use weir_graph::{EdgePlan, Numbers};
use weir_policy::Diagnostics;

/// Files that exist in memory only.
pub(crate) struct Given(BTreeMap<String, Vec<u8>>);

impl Given {
    /// These.
    pub(crate) fn new(files: &[(&str, &str)]) -> Given {
        let owned = files.iter();
        Given(
            owned
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect(),
        )
    }
}

impl Files for Given {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = path.to_str().and_then(|path| self.0.get(path));
        found
            .cloned()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }
}

/// The plan of a configuration that must be right, and its warnings.
#[track_caller]
pub(crate) fn plan(text: &str, files: &Given) -> (EdgePlan, Diagnostics) {
    let config = weir_graph::parse(text, "edge.toml").unwrap_or_else(|found| panic!("{found}"));
    weir_graph::plan(&config, files, &Numbers::new()).unwrap_or_else(|found| panic!("{found}"))
}

/// What is wrong with a configuration, as it is shown.
#[track_caller]
pub(crate) fn mistakes(text: &str, files: &Given) -> String {
    match weir_graph::parse(text, "edge.toml") {
        Err(found) => found.render(false),
        Ok(config) => match weir_graph::plan(&config, files, &Numbers::new()) {
            Err(found) => found.render(false),
            Ok((plan, _)) => panic!("this was planned:\n{plan}"),
        },
    }
}

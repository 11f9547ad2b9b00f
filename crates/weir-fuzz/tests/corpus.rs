//! Every committed corpus input, through its target: inputs that once failed stay fixed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The corpora: one folder per target, below `fuzz/` at the root of the repository.
fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect()
}

#[test]
fn all_inputs_of_all_targets_return() {
    for name in weir_fuzz::targets() {
        let target = weir_fuzz::target(&name).unwrap();
        let folder = corpora().join(&name);
        let inputs = names(&folder);
        assert!(!inputs.is_empty(), "{}: no inputs", folder.display());
        for input in inputs {
            let path = folder.join(input);
            // libtest shows this only if the target panics: the last line names the input.
            println!("{}", path.display());
            target(&fs::read(path).unwrap());
        }
    }
}

/// A target has a corpus, and a corpus a target: it is what `scripts/fuzz` runs.
#[test]
fn targets_and_corpora_are_the_same_set() {
    let targets: BTreeSet<String> = weir_fuzz::targets().into_iter().collect();
    assert_eq!(names(&corpora()), targets, "folders of fuzz/corpus");
}

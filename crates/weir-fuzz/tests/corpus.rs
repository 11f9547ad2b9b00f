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
    for (name, target) in weir_fuzz::TARGETS {
        let folder = corpora().join(name);
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

/// A target is listed once for the mutator, and has a corpus and a libFuzzer program.
#[test]
fn targets_corpora_and_programs_are_the_same_set() {
    let targets: BTreeSet<String> = weir_fuzz::TARGETS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(names(&corpora()), targets, "folders of fuzz/corpus");

    let programs = names(&corpora().join("../fuzz_targets"));
    let expected = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(programs, expected, "files of fuzz/fuzz_targets");

    let manifest = fs::read_to_string(corpora().join("../Cargo.toml")).unwrap();
    let built: BTreeSet<String> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"))
        .map(|rest| rest.trim_end_matches(".rs\"").to_owned())
        .collect();
    assert_eq!(built, targets, "programs of fuzz/Cargo.toml");
}

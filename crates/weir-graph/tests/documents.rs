//! The configurations that documents and examples show are planned for real.

use std::path::{Path, PathBuf};

use weir_graph::{EdgePlan, Folder, Numbers};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn planned(text: &str, name: &str) -> EdgePlan {
    let config = weir_graph::parse(text, name).unwrap_or_else(|found| panic!("{found}"));
    let files = Folder::new(root().join("examples"));
    let (plan, warnings) = weir_graph::plan(&config, &files, &Numbers::new())
        .unwrap_or_else(|found| panic!("{found}"));
    assert!(warnings.is_empty(), "{warnings}");
    plan
}

#[test]
fn the_reference_shows_configurations_that_work() {
    let text =
        std::fs::read_to_string(root().join("docs/graph.md")).expect("docs/graph.md is there");
    let blocks: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let plans: Vec<EdgePlan> = blocks
        .iter()
        .map(|block| planned(block, "docs/graph.md"))
        .collect();
    let [office, on_tc, guarded, ..] = plans.as_slice() else {
        panic!("{} examples in docs/graph.md", plans.len());
    };
    assert_eq!(
        office.to_string(),
        "edge office
port 1 wan: eth0, native > rules
port 2 lan: eth1, native > stack
function 1 rules: middlebox > stack
longest path: 1 function
"
    );
    assert_eq!(
        on_tc.to_string().lines().nth(1),
        Some("port 1 wan: eth0, tc > firewall, transmit > firewall")
    );
    // Two functions, and twice more.
    assert_eq!((guarded.longest, guarded.instances.len()), (6, 3));
}

#[test]
fn the_examples_are_planned_without_a_warning() {
    let folder = std::fs::read_dir(root().join("examples")).expect("examples/ is there");
    let mut found = 0;
    for entry in folder
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "toml"))
        // Virtual networks have documents of their own, which weir-network plans.
        .filter(|entry| entry.file_name() != "network.toml")
    {
        let text = std::fs::read_to_string(entry.path()).expect("readable");
        planned(&text, &entry.path().display().to_string());
        found += 1;
    }
    assert!(found > 0, "examples/ holds configurations");
}

/// Keys and words that the reader of configurations knows are all in the reference.
#[test]
fn the_reference_names_every_key() {
    let text =
        std::fs::read_to_string(root().join("docs/graph.md")).expect("docs/graph.md is there");
    for key in [
        "edge",
        "name",
        "device",
        "hook",
        "mode",
        "checksums",
        "metadata",
        "kind",
        "maps",
        "fresh",
        "from",
        "to",
        "guard",
        "type",
        "key",
        "value",
        "entries",
        "file",
        "program",
        "attach",
    ] {
        assert!(
            text.contains(&format!("`{key}`")),
            "docs/graph.md does not name `{key}`"
        );
    }
    for kind in weir_graph::MapType::ALL {
        assert!(
            text.contains(&format!("`{}`", kind.text())),
            "{}",
            kind.text()
        );
    }
    for hook in weir_graph::CgroupHook::ALL {
        assert!(
            text.contains(&format!("`{}`", hook.text())),
            "{}",
            hook.text()
        );
    }
}

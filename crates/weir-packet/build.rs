//! Generates the `Reason` enum from `bpf/include/reasons.def`, the one list of reasons.
//!
//! Only the shape of that file is known here; what a reason means is said in its text.

use std::fmt::Write as _;
use std::path::Path;

const LIST: &str = "../../bpf/include/reasons.def";

fn main() {
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rerun-if-changed=build.rs");
    let text = std::fs::read_to_string(LIST).unwrap_or_else(|e| panic!("{LIST}: {e}"));
    let rows: Vec<(String, String, String)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("REASON("))
        .map(|(i, line)| {
            row(line).unwrap_or_else(|| {
                panic!("{LIST}:{}: not REASON(name, FATE, \"text\"): {line}", i + 1)
            })
        })
        .collect();
    assert!(!rows.is_empty(), "{LIST} holds no REASON line");
    let aliases: Vec<(String, String)> = text
        .lines()
        .filter(|line| line.starts_with("ALIAS("))
        .map(|line| alias(line).unwrap_or_else(|| panic!("{LIST}: not ALIAS(old, name): {line}")))
        .collect();
    for (old, name) in &aliases {
        assert!(
            rows.iter().any(|(known, ..)| known == name),
            "{LIST}: {old} is an alias of {name}, which is not a reason"
        );
    }

    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("reasons.rs"), source(&rows, &aliases))
        .expect("OUT_DIR is writable");
}

fn row(line: &str) -> Option<(String, String, String)> {
    let inner = line.strip_prefix("REASON(")?.trim_end().strip_suffix(')')?;
    let (name, rest) = inner.split_once(',')?;
    let (fate, rest) = rest.split_once(',')?;
    let text = rest.trim().strip_prefix('"')?.strip_suffix('"')?;
    let fate = match fate.trim() {
        "DROP" => "Drop",
        "NOTE" => "Note",
        _ => return None,
    };
    Some((name.trim().to_owned(), fate.to_owned(), text.to_owned()))
}

fn alias(line: &str) -> Option<(String, String)> {
    let inner = line.strip_prefix("ALIAS(")?.trim_end().strip_suffix(')')?;
    let (old, name) = inner.split_once(',')?;
    Some((old.trim().to_owned(), name.trim().to_owned()))
}

fn source(rows: &[(String, String, String)], aliases: &[(String, String)]) -> String {
    let mut s = String::new();
    let _ = writeln!(
        s,
        "/// Why a packet was dropped, or what was noted about it. The discriminant is the index in the data plane's counters.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u32)]\npub enum Reason {{"
    );
    for (i, (name, _, text)) in rows.iter().enumerate() {
        let _ = writeln!(s, "    /// {text}.\n    {} = {i},", camel(name));
    }
    let _ = writeln!(
        s,
        "}}\n\nimpl Reason {{\n    /// Every reason, by index.\n    pub const ALL: &'static [Reason] = &["
    );
    for (name, ..) in rows {
        let _ = writeln!(s, "        Reason::{},", camel(name));
    }
    let _ = writeln!(s, "    ];\n}}\n\nstatic ROWS: &[(&str, Fate, &str)] = &[");
    for (name, fate, text) in rows {
        let _ = writeln!(s, "    ({name:?}, Fate::{fate}, \"{text}\"),");
    }
    s.push_str(
        "];\n\n/// Names that reasons had before.\nstatic ALIASES: &[(&str, Reason)] = &[\n",
    );
    for (old, name) in aliases {
        let _ = writeln!(s, "    ({old:?}, Reason::{}),", camel(name));
    }
    s.push_str("];\n");
    s
}

fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut chars = word.chars();
            chars
                .next()
                .map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
        })
        .collect()
}

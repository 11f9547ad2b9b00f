//! What is written about the language stays true: the table of fields in docs/language.md is that of the program, the
//! rules shown there are valid, and so are all files in examples/.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use weir_policy::field::{FIELDS, FieldInfo, Kind};
use weir_policy::model::FlowState;
use weir_policy::{NoFiles, Source, format, parse, parse_file, read_source};

/// Tests that write the page with WEIR_UPDATE=1 take turns.
static PAGE: Mutex<()> = Mutex::new(());

const START: &str = "`the_table_of_fields`; WEIR_UPDATE=1 renews it -->\n";
const END: &str = "<!-- end of fields -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_table_of_fields() {
    let _one = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("docs/language.md");
    let page = read(&path);
    let start = page.find(START).map(|i| i + START.len());
    let (Some(start), Some(end)) = (start, page.find(END)) else {
        panic!("the page has no table")
    };
    let table = table();
    if std::env::var_os("WEIR_UPDATE").is_some() {
        let renewed = format!("{}{table}{}", &page[..start], &page[end..]);
        std::fs::write(&path, renewed).unwrap_or_else(|e| panic!("{e}"));
        return;
    }
    assert!(
        page[start..end] == table,
        "the table of fields is old: run this test with WEIR_UPDATE=1"
    );
}

const NAMES_START: &str = "`the_table_of_names`; WEIR_UPDATE=1 renews it -->\n";
const NAMES_END: &str = "<!-- end of names -->";

#[test]
fn the_table_of_names() {
    let _one = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("docs/language.md");
    let page = read(&path);
    let start = page.find(NAMES_START).map(|i| i + NAMES_START.len());
    let (Some(start), Some(end)) = (start, page.find(NAMES_END)) else {
        panic!("the page has no table of names")
    };
    let mut table = "| for | names |\n|---|---|\n".to_owned();
    for (what, names) in weir_policy::names() {
        let words: Vec<String> = names
            .chunk_by(|a, b| a.1 == b.1)
            .map(|same| {
                let same: Vec<String> = same.iter().map(|(name, _)| format!("`{name}`")).collect();
                same.join(" or ")
            })
            .zip(names.chunk_by(|a, b| a.1 == b.1))
            .map(|(words, same)| match *what {
                "`eth-type`" => format!("{words} x{:04x}", same[0].1),
                _ => format!("{words} {}", same[0].1),
            })
            .collect();
        table.push_str(&format!("| {what} | {} |\n", words.join(", ")));
    }
    if std::env::var_os("WEIR_UPDATE").is_some() {
        let renewed = format!("{}{table}{}", &page[..start], &page[end..]);
        std::fs::write(&path, renewed).unwrap_or_else(|e| panic!("{e}"));
        return;
    }
    assert!(
        page[start..end] == table,
        "the table of names is old: run this test with WEIR_UPDATE=1"
    );
}

fn table() -> String {
    let mut out =
        "| field | also written | value | `mod` | meaning |\n|---|---|---|---|---|\n".to_owned();
    for info in FIELDS {
        let aliases: Vec<String> = info.aliases.iter().map(|a| format!("`{a}`")).collect();
        let writable = if info.writable { "yes" } else { "" };
        out.push_str(&format!(
            "| `{}` | {} | {} | {writable} | {} |\n",
            info.name,
            aliases.join(" "),
            value(info),
            info.text
        ));
    }
    out
}

fn value(info: &FieldInfo) -> String {
    match info.kind {
        Kind::Number if info.name == "hour" => "time of day".to_owned(),
        Kind::Number if info.name == "day" => "day".to_owned(),
        Kind::Number => format!("{} bits", info.bits),
        Kind::Is(_) if info.bits == 1 => "flag".to_owned(),
        Kind::Is(_) | Kind::Exists | Kind::All | Kind::Ip4Option(_) | Kind::ExtHeader(_) => {
            "none".to_owned()
        }
        Kind::Addr4 => "IPv4 address".to_owned(),
        Kind::Addr6 => "IPv6 address".to_owned(),
        Kind::Payload => "bytes".to_owned(),
        Kind::TcpOption(Some(4)) => "none".to_owned(),
        Kind::TcpOption(_) if info.bits > 0 => format!("option, {} bits", info.bits),
        Kind::TcpOption(_) => "option, bytes".to_owned(),
        Kind::InPort | Kind::OutPort => "interface".to_owned(),
        Kind::NetProto => "`ip4` or `ip6`".to_owned(),
        Kind::L4Proto => format!("{} bits", info.bits),
        Kind::Mac => "MAC address".to_owned(),
        Kind::CtState => "state".to_owned(),
    }
}

/// All policies of the page, but the one that names a file; the grammar is no policy. Those of tutorials are run where tutorials are typed in.
#[test]
fn the_examples_of_the_page_are_valid() {
    let page = read(&root().join("docs/language.md"));
    let idioms = blocks(&page, "");
    let parsed = |text: &str| {
        let parsed = parse(&Source::new("language.md", text), &NoFiles)
            .unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert!(parsed.warnings.is_empty(), "{text}\n{}", parsed.warnings);
        parsed.policy
    };
    assert_eq!(parsed(&idioms[0]).rules.len(), 7);
    let stateful = idioms
        .iter()
        .filter(|block| parsed(block).rules.iter().any(|rule| rule.stateful));
    assert_eq!(stateful.count(), 10, "one for each idiom of stateful rules");
}

/// The contents of the fences of a kind.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let body = body.join("\n") + "\n";
        if info == kind && !body.starts_with("policy ") && !body.contains("= file") {
            found.push(body);
        }
    }
    found
}

/// The states and their timeouts stand in the page as the program has them.
#[test]
fn the_table_of_states() {
    let _one = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let page = read(&root().join("docs/language.md"));
    for state in FlowState::ALL {
        let row = format!("| `{}` |", state.name());
        let row = page
            .lines()
            .find(|line| line.starts_with(&row))
            .unwrap_or_else(|| panic!("no row {row}"));
        let timeout = match state.default_seconds() {
            seconds if seconds % 3600 == 0 => format!("{} h |", seconds / 3600),
            seconds => format!("{seconds} s |"),
        };
        assert!(row.ends_with(&timeout), "{row}: wanted {timeout}");
    }
}

#[test]
fn the_examples_are_valid_and_formatted() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap_or_else(|e| panic!("{e}")) {
        let path = entry.unwrap_or_else(|e| panic!("{e}")).path();
        if path.extension().is_none_or(|e| e != "weir") {
            continue;
        }
        count += 1;
        let parsed = parse_file(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(parsed.warnings.is_empty(), "{}", parsed.warnings);
        assert!(!parsed.policy.rules.is_empty(), "{}", path.display());
        let formatted = format(&parsed.ast);
        let source = read_source(&path).unwrap_or_else(|e| panic!("{e}"));
        if std::env::var_os("WEIR_UPDATE").is_some() {
            std::fs::write(&path, &formatted).unwrap_or_else(|e| panic!("{e}"));
        } else {
            assert!(
                source.text == formatted,
                "{} is not formatted:\n{formatted}",
                path.display()
            );
        }
    }
    assert!(count >= 10, "only {count} examples");
}

//! `include`: the files of a policy are one policy, and messages name the file and line of what they are about.

use std::collections::HashMap;
use std::io;

use weir_policy::{Diagnostics, Parsed, SetLoader, Source, format, format_source, parse};

/// Files of a folder.
struct Files(HashMap<&'static str, &'static str>);

impl SetLoader for Files {
    fn load(&self, path: &str) -> io::Result<Source> {
        match self.0.get(path) {
            Some(text) => Ok(Source::new(format!("etc/{path}"), *text)),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "No such file")),
        }
    }
}

fn read(text: &str, files: &[(&'static str, &'static str)]) -> Result<Parsed, Diagnostics> {
    let files = Files(files.iter().copied().collect());
    parse(&Source::new("etc/edge.weir", text), &files)
}

fn said(text: &str, files: &[(&'static str, &'static str)]) -> Vec<String> {
    let found = match read(text, files) {
        Ok(parsed) => parsed.warnings,
        Err(errors) => errors,
    };
    let one = |one: &weir_policy::Diagnostic| {
        format!("{}:{}:{}: {}", one.file, one.line, one.column, one.message)
    };
    found.iter().map(one).collect()
}

#[test]
fn included_rules_stand_where_they_are_included() {
    let files = [
        (
            "lib/web.weir",
            "# the web\nset ports = file \"ports.txt\"\nchain web {\n    tcp-dport in @ports accept\n}\ninclude \"../lib/more.weir\"",
        ),
        ("lib/ports.txt", "80\n443\n"),
        ("lib/more.weir", "more: udp-dport 443 accept\n"),
    ];
    let text =
        "ssh: tcp-dport 22 accept\ninclude \"./lib/web.weir\"  # why\nin wan0 jump web\ntcp drop\n";
    let parsed = read(text, &files).unwrap_or_else(|e| panic!("{e}"));
    let places: Vec<String> = parsed
        .policy
        .rules
        .iter()
        .map(|rule| format!("{} {}", rule.place(), rule.line_text()))
        .collect();
    assert_eq!(
        places,
        [
            "etc/edge.weir:1 line 1",
            "etc/lib/more.weir:1 etc/lib/more.weir:1",
            "etc/lib/web.weir:4 etc/lib/web.weir:4",
            "etc/edge.weir:4 line 4",
        ]
    );
    // As one file; sets are named from the folder of the policy on.
    let whole = format(&parsed.ast);
    assert_eq!(
        whole,
        "ssh: tcp-dport 22 accept\n# the web\nset ports = file \"lib/ports.txt\"\nchain web {\n    tcp-dport in @ports accept\n}\nmore: udp-dport 443 accept\n      in wan0       jump web\n      tcp           drop\n"
    );
    let again = read(&whole, &files).unwrap_or_else(|e| panic!("{e}"));
    let meaning = |parsed: &Parsed| -> Vec<_> {
        let rules = parsed.policy.rules.iter();
        rules
            .map(|rule| {
                (
                    rule.name.clone(),
                    rule.matches.clone(),
                    rule.targets.clone(),
                )
            })
            .collect()
    };
    assert_eq!(meaning(&parsed), meaning(&again));
    // One file alone.
    let alone =
        format_source(&Source::new("p", "include   \"x.weir\"# why\ntcp drop")).expect("valid");
    assert_eq!(alone, "include \"x.weir\"  # why\ntcp drop\n");
}

/// A policy, the other files with their texts, and what the message says.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

#[test]
fn mistakes_name_the_file_that_they_are_in() {
    let cases: &[Case] = &[
        (
            "include \"a.weir\"\ntcp-dprot 1 drop\n",
            &[("a.weir", "tcp drop\n\nudp-dprot 2 drop")],
            &[
                "etc/edge.weir:2:1: `tcp-dprot` is not a field or a target",
                "etc/a.weir:3:1: `udp-dprot` is not a field or a target",
            ],
        ),
        // Lints, sets and names across files.
        (
            "include \"a.weir\"\nx: tcp-dport 80 accept\n",
            &[("a.weir", "tcp-dport 80 drop\nset unused = { 1 }\n")],
            &[
                "etc/a.weir:1:14: this `drop` has no effect: rule `x` accepts every packet of this rule",
                "etc/a.weir:2:5: no rule uses the set `unused`",
            ],
        ),
        (
            "include \"a.weir\"\nx: tcp drop\n",
            &[("a.weir", "x: udp drop\n")],
            &["etc/edge.weir:2:1: two rules are named `x`"],
        ),
        (
            "include \"sub/a.weir\"\nall log\n",
            &[
                (
                    "sub/a.weir",
                    "set s = file \"s.txt\"\ntcp-dport in @s drop\n",
                ),
                ("sub/s.txt", "80\nx99999999\n"),
            ],
            &["etc/sub/s.txt:2:1: `x99999999` is too large for a field of 16 bits"],
        ),
        (
            "include \"none.weir\"\n",
            &[],
            &["etc/edge.weir:1:9: cannot read `none.weir`: No such file"],
        ),
        (
            "include \"*.weir\"\n",
            &[],
            &["etc/edge.weir:1:9: `*.weir` is a pattern, not a file"],
        ),
        (
            "include a.weir\n",
            &[],
            &["etc/edge.weir:1:9: expected the path of a file in quotes"],
        ),
        (
            "include \"a.weir\"\ninclude \"./a.weir\"\n",
            &[("a.weir", "tcp drop\n")],
            &["etc/edge.weir:2:9: `./a.weir` is included twice"],
        ),
        (
            "include \"a.weir\"\n",
            &[
                ("a.weir", "include \"b.weir\"\n"),
                ("b.weir", "\ninclude \"a.weir\"\n"),
            ],
            &[
                "etc/b.weir:2:9: files include each other in a circle: `etc/a.weir` -> `etc/b.weir` -> `a.weir`",
            ],
        ),
        (
            "include \"a.weir\"\n",
            &[
                ("a.weir", "include \"edge.weir\"\n"),
                ("edge.weir", "tcp drop\n"),
            ],
            &[
                "etc/a.weir:1:9: files include each other in a circle: `etc/edge.weir` is the policy itself",
            ],
        ),
        // A chain ends with its file.
        (
            "include \"a.weir\"\n}\n",
            &[("a.weir", "chain a {\ntcp drop\n")],
            &[
                "etc/edge.weir:2:1: this `}` closes nothing",
                "etc/a.weir:1:1: this chain is not closed",
            ],
        ),
        (
            "chain a {\ninclude \"a.weir\"\n}\nall jump a",
            &[("a.weir", "tcp drop\n")],
            &["etc/edge.weir:2:1: a chain holds rules only"],
        ),
    ];
    for (text, files, wanted) in cases {
        assert_eq!(&said(text, files), wanted, "{text}");
    }
    // Depth is bounded: each file is another one.
    struct Endless;
    impl SetLoader for Endless {
        fn load(&self, path: &str) -> io::Result<Source> {
            let number: u32 = path.trim_end_matches(".weir").parse().unwrap_or(0);
            Ok(Source::new(
                path,
                format!("include \"{}.weir\"\n", number + 1),
            ))
        }
    }
    let errors =
        parse(&Source::new("p.weir", "include \"1.weir\"\n"), &Endless).expect_err("endless");
    assert!(errors.to_string().contains("more than 16 deep"), "{errors}");
}

//! The kinds of functions: the one list. What a kind is stands in its row ([`Kind`]) beside its module.
//!
//! A kind is pure: files come through [`Files`], ports through the [`Request`]; the same request gives the same plan on every machine. What
//! every instance may have (`name`, `kind`, `maps`, `fresh`) belongs to the graph and never reaches a kind.

use crate::{balancer, decapsulate, empty, filter, middlebox, object, redirect, router};

pub use crate::request::{
    Asks, EdgePort, Files, FunctionError, Judge, Key, Keys, Kind, MAX_OUTS, Planned, Request,
    suggest,
};

/// Kinds that configuration can name, sorted.
pub static KINDS: &[Kind] = &[
    balancer::KIND,
    decapsulate::KIND,
    empty::KIND,
    filter::KIND,
    middlebox::instance::KIND,
    object::KIND,
    redirect::KIND,
    router::KIND,
];

/// The kind of that name; weir's own objects have the names of their kinds.
pub fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Plans one instance.
///
/// # Errors
/// The kind is not known, or what the kind says about its keys and files.
pub fn plan(kind: &str, request: &Request<'_>) -> Result<Planned, FunctionError> {
    match named(kind) {
        Some(kind) => (kind.plan)(request),
        None => {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            let message = format!("unknown function kind `{kind}`");
            Err(FunctionError::key("kind", message).advice(suggest(kind, &known)))
        }
    }
}

/// Who explains the drops of an instance; `None`: its reasons say all there is.
///
/// # Errors
/// As of [`plan`].
pub fn judge(kind: &str, request: &Request<'_>) -> Result<Option<Box<dyn Judge>>, FunctionError> {
    let judge = named(kind).and_then(|kind| kind.judge);
    judge.map(|judge| judge(request)).transpose()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn planned(kind: &str, keys: &str) -> Result<Planned, FunctionError> {
        let keys = keys.parse().expect("TOML");
        plan(
            kind,
            &Request {
                name: "it",
                keys: &keys,
                files: &NoFiles,
                ports: &[],
                transmits: false,
            },
        )
    }

    #[test]
    fn an_unknown_kind_and_unknown_keys_get_a_suggestion() {
        let error = planned("midlebox", "").expect_err("refused");
        assert_eq!(error.message, "unknown function kind `midlebox`");
        assert_eq!(error.advice.as_deref(), Some("did you mean `middlebox`?"));
        let error = planned("middlebox", "polcy = 1\nrule = 2").expect_err("refused");
        assert_eq!(
            error.message,
            "unknown key `polcy` in this kind of function"
        );
        assert_eq!(error.advice.as_deref(), Some("did you mean `policy`?"));
        assert_eq!(error.others.len(), 1);
    }

    #[test]
    fn keys_have_types() {
        let error = planned("middlebox", "policy = 1").expect_err("refused");
        assert_eq!(
            error.message,
            "`policy` is a text in quotes, not an integer"
        );
        let error = planned("middlebox", "policy = \"none.weir\"").expect_err("refused");
        assert_eq!(error.message, "cannot read `none.weir`: entity not found");
    }

    #[test]
    fn kinds_have_names_in_order() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.name));
        assert!(KINDS.iter().all(|kind| !kind.name.is_empty()));
    }

    /// The table of keys below each mark `<!-- keys: KIND TABLE -->` in the documentation.
    #[test]
    fn the_documentation_lists_the_keys() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages = ["balancer", "filter", "graph", "prog", "redirect", "router"];
        let mut seen = Vec::new();
        for page in pages {
            let path = folder.join(format!("{page}.md"));
            let old = std::fs::read_to_string(&path).expect("the page");
            let mut new = String::new();
            let mut rest = old.as_str();
            while let Some((head, tail)) = rest.split_once("<!-- keys: ") {
                let (mark, tail) = tail.split_once(" -->\n").expect("the mark ends");
                let end = tail.find("\n\n").map_or(tail.len(), |at| at + 1);
                new.push_str(&format!("{head}<!-- keys: {mark} -->\n{}", table(mark)));
                seen.push(mark.to_owned());
                rest = &tail[end..];
            }
            new.push_str(rest);
            if std::env::var_os("WEIR_UPDATE").is_some() {
                std::fs::write(&path, &new).expect("written");
            } else {
                assert!(
                    old == new,
                    "docs/{page}.md is out of date: WEIR_UPDATE=1 cargo test -p weir-functions lists_the_keys"
                );
            }
        }
        let mut all: Vec<String> = Vec::new();
        for kind in KINDS {
            all.extend(kind.keys.iter().map(|(path, _)| mark(kind.name, path)));
        }
        seen.sort();
        all.sort();
        assert_eq!(seen, all, "a mark for each table");
    }

    fn mark(kind: &str, path: &str) -> String {
        format!("{kind} {path}").trim_end().to_owned()
    }

    fn table(wanted: &str) -> String {
        let mut text = "| key | default | meaning |\n|---|---|---|\n".to_owned();
        for kind in KINDS {
            for (path, keys) in kind.keys {
                if mark(kind.name, path) != wanted {
                    continue;
                }
                for key in *keys {
                    let Key {
                        name,
                        default,
                        meaning,
                    } = key;
                    text.push_str(&format!("| `{name}` | {default} | {meaning} |\n"));
                }
            }
        }
        text
    }
}

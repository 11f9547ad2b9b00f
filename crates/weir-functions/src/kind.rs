//! The kinds of functions: the one list. What a kind is stands in its row ([`Kind`]) beside its module.
//!
//! A kind is pure: files come through [`Files`], ports through the [`Request`]; the same request gives the same plan on every machine. What
//! every instance may have (`name`, `kind`, `maps`, `fresh`) belongs to the graph and never reaches a kind.

use crate::{balancer, decapsulate, empty, filter, middlebox, object, redirect, router};

pub use crate::request::{
    Asks, EdgePort, Files, FunctionError, Judge, Kind, MAX_OUTS, Planned, Request, suggest,
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
            let message = format!("there is no kind of function named `{kind}`");
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
        assert_eq!(
            error.message,
            "there is no kind of function named `midlebox`"
        );
        assert_eq!(error.advice.as_deref(), Some("did you mean `middlebox`?"));
        let error = planned("middlebox", "polcy = 1\nrule = 2").expect_err("refused");
        assert_eq!(
            error.message,
            "there is no key `polcy` in this kind of function"
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
}

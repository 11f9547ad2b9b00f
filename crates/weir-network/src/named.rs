//! Which files a document names that it does not carry: whoever sends it to hosts without them puts them into it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use weir_functions::kind::Files;
use weir_policy::Report;

use crate::check::{has_own_program, plan_one};
use crate::files::{Carried, plain};
use crate::graph::Graph;
use crate::model::Document;

/// A file beside a document that functions of a network name.
#[derive(Debug)]
pub struct NamedFile {
    /// The network.
    pub network: String,
    /// Its path as the network would carry it.
    pub name: PathBuf,
    /// Its bytes, or why it cannot be read.
    pub content: io::Result<Vec<u8>>,
}

/// The files beside a document that its functions name, and those that these name, with their contents. What is wrong with either is for
/// [`crate::check`] to report.
pub fn named_files(document: &Document, files: &dyn Files) -> Vec<NamedFile> {
    let mut named = Vec::new();
    for network in &document.networks {
        let graph = Graph::of(document, network);
        let beside = Noted {
            files,
            read: RefCell::default(),
        };
        let carried = Carried::new(network, &beside);
        for (at, function) in network.functions.iter().enumerate() {
            if has_own_program(function) {
                let (report, texts) = (&mut Report::default(), &mut Vec::new());
                let _ = plan_one(network, &graph, at, &carried, report, texts);
            }
        }
        let read = beside.read.into_inner().into_iter();
        named.extend(read.map(|(name, content)| NamedFile {
            network: network.name.value.clone(),
            name,
            content,
        }));
    }
    named
}

/// Files, and what was read of them.
struct Noted<'f> {
    files: &'f dyn Files,
    read: RefCell<BTreeMap<PathBuf, io::Result<Vec<u8>>>>,
}

impl Files for Noted<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = self.files.read(path);
        let copy = match &content {
            Ok(bytes) => Ok(bytes.clone()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        self.read.borrow_mut().insert(plain(path), copy);
        content
    }

    fn modified(&self, _: &Path) -> Option<u64> {
        // As of a file that is carried.
        None
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        self.files.kept(instance, map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse;

    /// Files by their names.
    struct Beside<'f>(&'f [(&'f str, &'f str)]);

    impl Files for Beside<'_> {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let found = self
                .0
                .iter()
                .find(|(name, _)| Path::new(name) == plain(path));
            let text = found.map(|(_, text)| text.as_bytes().to_vec());
            text.ok_or_else(|| io::Error::other("not here"))
        }
    }

    const HEAD: &str = "[[edge]]\nname = \"e1\"\n[[tenant]]\nname = \"red\"\n\
        [[network]]\nname = \"shop\"\ntenant = \"red\"\n\
        [[network.subnet]]\nname = \"web\"\n[[network.subnet]]\nname = \"db\"\n\
        [[network.link]]\nfrom = \"web\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"db\"\n\
        [[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\npolicy = \"rules/wall.weir\"\n";

    const BESIDE: [(&str, &str); 3] = [
        (
            "rules/wall.weir",
            "include \"../lib.weir\"\nset bad = file \"bad.txt\"\nbad: ip-saddr in @bad drop\n",
        ),
        ("lib.weir", "db: udp-dport 5432 drop\n"),
        ("rules/bad.txt", "10.1.0.66\n"),
    ];

    fn carrying(files: &[(&str, &str)]) -> String {
        let mut text = HEAD.to_owned();
        for (name, content) in files {
            text.push_str(&format!(
                "[[network.file]]\nname = \"{name}\"\ntext = {content:?}\n"
            ));
        }
        text
    }

    #[test]
    fn a_document_that_carries_its_files_needs_none_beside_it() {
        let document = parse(HEAD, "net.toml").expect("read");
        let named = named_files(&document, &Beside(&BESIDE));
        let named: Vec<(String, String)> = named
            .into_iter()
            .map(|one| {
                let content = one.content.expect("read");
                assert_eq!(one.network, "shop");
                let text = String::from_utf8(content).expect("text");
                (one.name.display().to_string(), text)
            })
            .collect();
        let mut wanted: Vec<(String, String)> = BESIDE
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .to_vec();
        wanted.sort();
        assert_eq!(named, wanted, "the policy, what it includes, and its set");

        let whole = parse(&carrying(&BESIDE), "net.toml").expect("read");
        assert!(named_files(&whole, &Beside(&[])).is_empty());
        let (networks, warnings) =
            crate::check(whole, &Beside(&[])).unwrap_or_else(|found| panic!("{found}"));
        assert!(warnings.is_empty(), "{warnings}");
        let plan = |networks: &crate::Networks| {
            let planned = networks.planned[0][0].as_ref().expect("a program");
            format!("{:?}", planned.instance)
        };
        let (beside, _) = crate::check(document, &Beside(&BESIDE)).expect("right");
        assert_eq!(plan(&networks), plan(&beside));
        // What is carried comes before what lies beside.
        let mut other = BESIDE;
        other[1].1 = "db: udp-dport 5433 drop\n";
        let both = parse(&carrying(&other), "net.toml").expect("read");
        let (both, _) = crate::check(both, &Beside(&BESIDE)).expect("right");
        assert_ne!(plan(&both), plan(&beside));
    }

    #[test]
    fn mistakes_in_carried_files_have_their_lines() {
        let mut wrong = BESIDE;
        wrong[1].1 = "# one\ndb: udp-dprt 5432 drop\n";
        let document = parse(&carrying(&wrong), "net.toml").expect("read");
        let found = crate::check(document, &Beside(&[])).expect_err("a wrong word");
        let found = found.render(false);
        assert!(
            found.contains("lib.weir:2") && found.contains("udp-dprt"),
            "{found}"
        );
        let document = parse(&carrying(&BESIDE[..1]), "net.toml").expect("read");
        let found = crate::check(document, &Beside(&[])).expect_err("a file is missing");
        assert!(found.render(false).contains("not here"), "{found}");
        let mut more = BESIDE.to_vec();
        more.push(("spare.weir", ""));
        let document = parse(&carrying(&more), "net.toml").expect("read");
        let (_, warnings) = crate::check(document, &Beside(&[])).expect("right");
        assert!(warnings.render(false).contains("spare.weir"), "{warnings}");
    }
}

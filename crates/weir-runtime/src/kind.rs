//! What a file declares: a policy, an edge, or the virtual networks of many edges.

use std::path::Path;

use crate::files;

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rules (docs/language.md).
    Policy,
    /// An edge: ports, functions, links (docs/graph.md).
    Configuration,
    /// Virtual networks of many edges (docs/networks.md).
    Networks,
}

/// Sections that only a document of networks has. `edge` is a table there, and a name in a configuration.
const OF_NETWORKS: [&str; 3] = ["network", "tenant", "edge"];

impl Kind {
    /// By the name of the file, and of TOML by its sections, included ones among them. A file that cannot be read is a configuration: who reads it says why.
    #[must_use]
    pub fn of(path: &Path) -> Kind {
        if path.extension().is_none_or(|e| e != "toml") {
            return Kind::Policy;
        }
        match files::joined(path, "file") {
            Ok((source, _)) => Kind::of_toml(&source.text),
            // What it includes is wrong: it is what it says itself.
            Err(_) => std::fs::read_to_string(path)
                .map_or(Kind::Configuration, |text| Kind::of_toml(&text)),
        }
    }

    fn of_toml(text: &str) -> Kind {
        let is_document = match text.parse::<toml_edit::DocumentMut>() {
            Ok(document) => OF_NETWORKS.iter().any(|name| {
                let item = document.get(name);
                item.is_some_and(|item| item.is_array_of_tables() || item.is_array())
            }),
            // It has a mistake of syntax: its reader points at it.
            Err(_) => text.lines().any(|line| {
                OF_NETWORKS
                    .iter()
                    .any(|name| line.trim().starts_with(&format!("[[{name}]]")))
            }),
        };
        match is_document {
            true => Kind::Networks,
            false => Kind::Configuration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tell_kinds_apart() {
        for (text, kind) in [
            ("", Kind::Configuration),
            ("edge = 'a'\n[[port]]\nname = 'p'\n", Kind::Configuration),
            ("networks = 'n.toml'\n", Kind::Configuration),
            ("version = 1\n[[edge]]\nname = 'a'\n", Kind::Networks),
            ("[[tenant]]\nname = 't'\n", Kind::Networks),
            ("[[network]]\nname = \n", Kind::Networks),
            ("[[port]]\nname = \n", Kind::Configuration),
        ] {
            assert_eq!(Kind::of_toml(text), kind, "{text}");
        }
        let folder = std::env::temp_dir().join(format!("weir-kind-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("net.toml");
        std::fs::write(folder.join("e.toml"), "[[edge]]\nname = 'a'\n").expect("written");
        std::fs::write(&path, "version = 1\ninclude = 'e.toml'\n").expect("written");
        assert_eq!(Kind::of(&path), Kind::Networks);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(Kind::of(Path::new("rules.weir")), Kind::Policy);
        assert_eq!(Kind::of(Path::new("none/e.toml")), Kind::Configuration);
    }
}

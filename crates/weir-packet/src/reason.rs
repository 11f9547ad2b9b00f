//! The closed list of reasons, generated from `bpf/include/reasons.def`.
//!
//! Owns the names by which the counters of the data plane, the command line, JSON and the documentation
//! speak about dropped and odd packets. The order is the index of the counter: it only ever grows.

use std::fmt::Write as _;

/// What a reason means for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The packet is dropped; a dropped packet has exactly one such reason.
    Drop,
    /// The packet goes on; it may collect several.
    Note,
}

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

impl Reason {
    /// The reason of a counter index.
    pub fn from_index(index: u32) -> Option<Reason> {
        Reason::ALL.get(usize::try_from(index).ok()?).copied()
    }

    /// Index into the data plane's counters.
    pub fn index(self) -> u32 {
        self as u32
    }

    /// The name used everywhere: JSON key, metric label, C enum (`WEIR_R_<NAME>`).
    #[expect(clippy::indexing_slicing, reason = "there is a row for each reason")]
    pub fn name(self) -> &'static str {
        ROWS[self as usize].0
    }

    /// The reason of a name, or of one that it had before.
    pub fn from_name(name: &str) -> Option<Reason> {
        let mut all = Reason::ALL.iter().copied();
        let mut aliases = ALIASES.iter();
        all.find(|reason| reason.name() == name)
            .or_else(|| aliases.find(|(old, _)| *old == name).map(|(_, now)| *now))
    }

    /// Names that it had before; still accepted where a reason is named.
    pub fn aliases(self) -> impl Iterator<Item = &'static str> {
        let of_this = ALIASES.iter().filter(move |(_, now)| *now == self);
        of_this.map(|(old, _)| *old)
    }

    /// Whether it drops the packet.
    #[expect(clippy::indexing_slicing, reason = "there is a row for each reason")]
    pub fn fate(self) -> Fate {
        ROWS[self as usize].1
    }

    /// One sentence for people.
    #[expect(clippy::indexing_slicing, reason = "there is a row for each reason")]
    pub fn text(self) -> &'static str {
        ROWS[self as usize].2
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Renders `docs/reasons.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Drop reasons and notes\n\n\
         Why a packet was dropped, and what was unusual about packets that passed. The names are the keys of `reasons` in\n\
         `weir replay --json` and the labels of the counters. This page is generated from `bpf/include/reasons.def`;\n\
         `WEIR_UPDATE=1 cargo test -p weir-packet` writes it.\n",
    );
    for (fate, title, lead) in [
        (
            Fate::Drop,
            "Drops",
            "The packet is dropped. A dropped packet has exactly one of these.",
        ),
        (
            Fate::Note,
            "Notes",
            "The packet passes. One packet may have several.",
        ),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n{lead}\n\n| index | name | meaning |\n|---|---|---|\n"
        );
        for reason in Reason::ALL.iter().filter(|reason| reason.fate() == fate) {
            let before: Vec<String> = reason.aliases().map(|old| format!("`{old}`")).collect();
            let before = match before.is_empty() {
                true => String::new(),
                false => format!("; before: {}", before.join(", ")),
            };
            let _ = writeln!(
                page,
                "| {} | `{}` | {}{before} |",
                reason.index(),
                reason.name(),
                reason.text()
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_names_and_fates_agree() {
        for (i, &reason) in (0u32..).zip(Reason::ALL) {
            assert_eq!(reason.index(), i);
            assert_eq!(Reason::from_index(i), Some(reason));
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(Reason::from_index(u32::MAX), None);
        assert_eq!(Reason::RuleDrop.index(), 0);
        assert_eq!(Reason::Ip4BadIhl.name(), "ip4_bad_ihl");
        assert_eq!(Reason::Trailer.fate(), Fate::Note);
        assert_eq!(Reason::FrameShort.fate(), Fate::Drop);
    }

    #[test]
    fn names_of_before_are_accepted() {
        for (old, now) in [
            ("same_way", Reason::SplitHorizon),
            ("reverse_path", Reason::RpfFailed),
            ("punt_unheard", Reason::PuntNoListener),
            ("other_station", Reason::DstMacMismatch),
            ("vlan_barred", Reason::VlanNotAllowed),
            ("unlinked", Reason::NoLink),
            ("storm", Reason::FloodRateLimited),
            ("tunnel_peer", Reason::UnknownVtep),
            ("tunnel_nowhere", Reason::NoRemoteVtep),
        ] {
            assert_eq!(Reason::from_name(old), Some(now), "{old}");
            assert!(now.aliases().any(|alias| alias == old), "{old}");
            assert!(Reason::ALL.iter().all(|one| one.name() != old), "{old}");
        }
        assert_eq!(Reason::from_name("no_such_reason"), None);
    }

    #[test]
    fn the_committed_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
        if std::env::var_os("WEIR_UPDATE").is_some() {
            std::fs::write(path, markdown()).expect("docs/reasons.md is writable");
        }
        let page = std::fs::read_to_string(path).expect("docs/reasons.md exists");
        assert!(
            page == markdown(),
            "docs/reasons.md is stale: run WEIR_UPDATE=1 cargo test -p weir-packet"
        );
    }
}

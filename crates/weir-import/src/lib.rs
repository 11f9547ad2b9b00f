//! Rule sets of other firewalls as policies of weir, and policies as rule sets of nftables (`export`).
//!
//! Each format has a module that reads it to the common model: conditions on packets (`condition`), chains of rules (`chains`), translations (`nat`). What
//! chains say is made one list of decisions, and that a policy (`policy`). A line that cannot be translated is named with its reason and what that
//! means for packets ([`Finding`]); everything else means in weir what it meant there. Pure, and never panics, whatever the text is.

#![warn(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing)]

mod answers;
mod chains;
mod condition;
mod export;
mod finding;
mod hooks;
mod iptables;
mod nat;
mod nat_chains;
mod nft;
mod numbers;
mod options;
mod order;
mod packets_before;
mod pf;
mod policy;
mod state;
mod values;
mod writes;
mod xdp_filter;

pub use export::{Exported, Inexpressible, chain, export_nft, lines_of};
pub use finding::{Effect, Finding};
pub use options::{Error, Options};

use options::MAX_BYTES;
use state::State;
use values::Family;

/// What can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `iptables-save`.
    IptablesSave,
    /// `ip6tables-save`.
    Ip6tablesSave,
    /// `nft list ruleset`.
    Nft,
    /// pf.conf.
    Pf,
    /// `xdp-filter status`, or its commands.
    XdpFilter,
}

impl Format {
    /// All, as written on the command line.
    pub const ALL: [(&'static str, Format); 5] = [
        ("iptables-save", Format::IptablesSave),
        ("ip6tables-save", Format::Ip6tablesSave),
        ("nft", Format::Nft),
        ("pf", Format::Pf),
        ("xdp-filter", Format::XdpFilter),
    ];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        let found = Format::ALL.iter().find(|(_, format)| *format == self);
        found.map_or("", |(name, _)| name)
    }
}

/// What was made of a file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The policy.
    pub policy: String,
    /// Its rules.
    pub rules: usize,
    /// What is not translated as it stands, by line.
    pub findings: Vec<Finding>,
}

/// Translates a rule set. `source` is what the policy calls the file in its first line.
///
/// # Errors
/// The file as a whole says too little; see [`Error`]. Single lines are [`Imported::findings`].
pub fn import(
    format: Format,
    text: &str,
    source: &str,
    options: &Options,
) -> Result<Imported, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::TooLong(text.len()));
    }
    let mut state = State::new(options.clone());
    let draft = match format {
        Format::IptablesSave | Format::Ip6tablesSave => {
            let family = match format {
                Format::Ip6tablesSave => Family::Six,
                _ => Family::Four,
            };
            let rules = iptables::read(text, family, &mut state);
            hooks::assemble(rules, &mut state, source)?
        }
        Format::Pf => pf::read(text, &mut state, source),
        Format::XdpFilter => xdp_filter::read(text, &mut state, source),
        Format::Nft => {
            let rules = nft::read(text, &mut state);
            hooks::assemble(rules, &mut state, source)?
        }
    };
    state.findings.sort_by_key(|finding| finding.line);
    let (policy, rules) = policy::write(draft, &state.names, &mut state.findings);
    state.findings.sort_by_key(|finding| finding.line);
    state.findings.dedup_by(|later, first| {
        (later.line, &later.reason, later.effect) == (first.line, &first.reason, first.effect)
    });
    Ok(Imported {
        policy,
        rules,
        findings: state.findings,
    })
}

//! How a rule was written: its text and which option gave which condition. Kept only where somebody shows rules ([`LoadSettings::written`](super::LoadSettings)): a run needs none of it.

/// A rule as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// All of it, continuation lines joined.
    pub text: String,
    /// The protocol of its header.
    pub protocol: String,
    /// Its options, in their order.
    pub options: Vec<Written>,
    /// Of each of `Rule::packet`, the option that gave it; `None`: the header did.
    pub packet: Vec<Option<usize>>,
    /// Of each of `Rule::bits`, the option that gave it.
    pub bits: Vec<usize>,
    /// Of each condition of each of `Rule::groups`, the option that gave it.
    pub conditions: Vec<Vec<usize>>,
}

/// An option as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Its value, with quotation marks if it has them.
    pub value: String,
    /// Where it begins in the rule.
    pub start: usize,
}

impl Source {
    /// The option at a place of the rule.
    pub(super) fn option_at(&self, start: usize) -> usize {
        let behind = self.options.partition_point(|o| o.start <= start);
        behind.saturating_sub(1)
    }
}

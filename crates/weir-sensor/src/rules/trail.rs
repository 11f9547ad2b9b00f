//! Notes how a rule is written while it is parsed ([`Source`]).

use super::model::Rule;
use super::source::{Source, Written};
use super::text::Text;

/// Of a rule whose options, names with values, are not parsed yet.
pub(super) fn begin<'a>(
    text: Text<'_>,
    protocol: Text<'_>,
    options: impl Iterator<Item = (Text<'a>, Option<Text<'a>>)>,
) -> Source {
    let written = |(name, value): (Text<'_>, Option<Text<'_>>)| Written {
        name: name.lossy(),
        value: value.map(Text::lossy).unwrap_or_default(),
        start: name.start,
    };
    Source {
        text: text.lossy(),
        protocol: protocol.lossy(),
        options: options.map(written).collect(),
        ..Source::default()
    }
}

/// Notes what the option of this number added to a rule; `None`: its header.
pub(super) fn note(rule: &mut Rule, option: Option<usize>) {
    let (packet, bits) = (rule.packet.len(), rule.bits.len());
    if let Some(source) = &mut rule.source {
        source.packet.resize(packet, option);
        source.bits.resize(bits, option.unwrap_or_default());
    }
}

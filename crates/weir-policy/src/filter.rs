//! The match part of the rule language by itself: which packets are meant, and nothing about what happens to them.
//!
//! What a filter means is what a rule with the same matches means (docs/semantics.md sections 1 and 2): a packet that no rule would see
//! matches no filter.

use std::collections::BTreeSet;

use crate::diagnostic::Diagnostics;
use crate::field::{Header, Kind};
use crate::model::{Match, PortName, Rule, Target, Test};
use crate::reference::{Input, matches};
use crate::source::{NoFiles, Source};

/// A filter that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    rule: Rule,
}

/// Why a text is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The matches are wrong.
    #[error("{0}")]
    Matches(Diagnostics),
    /// There is more than matches.
    #[error(
        "`{0}` is more than one filter: write matches only, as in `tcp-dport 80 ip-saddr 192.0.2.0/24`"
    )]
    More(String),
    /// A test of what one packet does not tell.
    #[error("the filter tests `ct-state`, which rules of a policy know only")]
    State,
    /// A test of when the packet came in.
    #[error("the filter tests `{0}`, which rules of a policy know only")]
    Time(&'static str),
    /// A test of what a socket buffer has, not a packet.
    #[error("the filter tests `{0}`, which rules on tc know only")]
    Meta(&'static str),
    /// A port that is not there.
    #[error("the filter names port `{port}`, and there is none; ports: {there}")]
    NoPort {
        /// As written.
        port: String,
        /// Those there are.
        there: String,
    },
}

impl Filter {
    /// Reads matches as a rule has them, without targets.
    ///
    /// # Errors
    /// [`FilterError::Matches`] with the place, [`FilterError::More`].
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let source = Source::new("<filter>", format!("{text} \\\naccept"));
        let parsed = crate::parse(&source, &NoFiles).map_err(FilterError::Matches)?;
        let mut rules = parsed.policy.rules;
        let more = || FilterError::More(text.to_owned());
        let rule = rules.pop().ok_or_else(more)?;
        if !rules.is_empty() || rule.stateful || rule.targets != [Target::Accept] {
            return Err(more());
        }
        let of_state = |m: &Match| m.subject.field.info().kind == Kind::CtState;
        if rule.matches.iter().any(of_state) {
            return Err(FilterError::State);
        }
        let of_time = |m: &Match| m.subject.field.info().header == Header::Clock;
        if let Some(one) = rule.matches.iter().find(|m| of_time(m)) {
            return Err(FilterError::Time(one.subject.field.info().name));
        }
        let mut named = rule.matches.iter().map(|m| m.subject.field.info());
        if let Some(info) = named.find(|info| info.header == Header::Skb) {
            return Err(FilterError::Meta(info.name));
        }
        Ok(Filter { rule })
    }

    /// Gives ports one name: `alias` says what a name stands for, `None` if there is no such port.
    ///
    /// # Errors
    /// [`FilterError::NoPort`].
    pub fn resolve_ports(
        &mut self,
        there: &[&str],
        alias: impl Fn(&str) -> Option<String>,
    ) -> Result<(), FilterError> {
        for one in &mut self.rule.matches {
            let Test::Port(ports) = &mut one.test else {
                continue;
            };
            for port in ports {
                if let PortName::Name(name) = port {
                    *name = alias(name).ok_or_else(|| FilterError::NoPort {
                        port: name.clone(),
                        there: there.join(", "),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The rule that it is: its matches and the classes they require.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Whether a packet matches.
    pub fn matches(&self, input: &Input<'_>) -> bool {
        matches(&self.rule, input)
    }

    /// Whether the packet's payload is looked at, and not its headers alone.
    pub fn reads_payload(&self) -> bool {
        let mut subjects = self.rule.matches.iter().map(|one| one.subject);
        subjects.any(|subject| subject.field.info().kind == Kind::Payload)
    }

    /// Names of the ports it speaks of.
    pub fn ports(&self) -> BTreeSet<&str> {
        let tests = self.rule.matches.iter().map(|one| &one.test);
        tests
            .filter_map(|test| match test {
                Test::Port(ports) => Some(ports),
                _ => None,
            })
            .flatten()
            .filter_map(|port| match port {
                PortName::Name(name) => Some(name.as_str()),
                PortName::Index(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_matches_and_nothing_else() {
        assert!(Filter::parse("tcp-dport 80 ip-saddr 192.0.2.0/24").is_ok());
        assert!(Filter::parse("all").is_ok());
        for more in ["all drop", "all accept\nall", "add-stateful tcp-syn"] {
            assert!(Filter::parse(more).is_err(), "{more}");
        }
        let error = Filter::parse("all accept\nip-proto udp").expect_err("two rules");
        assert!(matches!(error, FilterError::More(_)), "{error}");
        for wrong in [
            "",
            "tcp-dport 80 accept",
            "tcp-dprt 80",
            "tcp-dport 80 # later",
        ] {
            let error = Filter::parse(wrong).expect_err(wrong);
            assert!(matches!(error, FilterError::Matches(_)), "{wrong}: {error}");
        }
    }

    #[test]
    fn ports_are_told_from_names_that_are_none() {
        let mut filter = Filter::parse("in eth0").expect("a filter");
        let alias = |name: &str| (name == "eth0").then(|| "wan".to_owned());
        filter.resolve_ports(&["wan"], alias).expect("there is one");
        assert_eq!(filter.ports(), BTreeSet::from(["wan"]));
        let error = filter.resolve_ports(&["wan"], alias).expect_err("no wan");
        assert_eq!(
            error.to_string(),
            "the filter names port `wan`, and there is none; ports: wan"
        );
    }
}

//! Lowering of sets that packets fill: tests of membership, and targets that change them.

use std::sync::Arc;
use std::time::Duration;

use super::{Lower, Required, classes_of};
use crate::ast::{self, ChangedAddress, Span};
use crate::dynamic::{Address, Change, ChangeSet, DynamicSet};
use crate::field::Kind;
use crate::model::{Match, Subject, Target, Test};
use crate::value;

impl Lower<'_> {
    /// The sets that packets fill, as their lines say.
    pub(super) fn dynamic_sets(&mut self, file: &ast::File) {
        for item in &file.items {
            let ast::Item::Set(set) = item else { continue };
            let ast::SetBody::Dynamic { size, timeout } = set.body else {
                continue;
            };
            let size = size.map_or(Some(DynamicSet::USUAL_SIZE), |span| self.set_size(span));
            let timeout_ns = match timeout {
                None => Some(None),
                Some(span) => self.element_timeout(span).map(Some),
            };
            let (Some(size), Some(timeout_ns)) = (size, timeout_ns) else {
                continue;
            };
            let name = self.of(set.name);
            self.sets.fill(
                name,
                Arc::new(DynamicSet {
                    name: name.to_owned(),
                    size,
                    timeout_ns,
                    group: false,
                }),
            );
        }
    }

    /// `FIELD in @SET` of a set that packets fill; `None`: it is no such set. The inner `None`: an error was reported.
    pub(super) fn membership(&mut self, m: &ast::Match, subject: Subject) -> Option<Option<Match>> {
        let ast::Test::Set(name) = m.test else {
            return None;
        };
        let set = self.sets.dynamic(self.of(name))?;
        let field = subject.field.info();
        if Address::of(subject.field).is_none() {
            let draft = self.report.error(
                0,
                name,
                format!(
                    "`{}` holds addresses, and `{}` is none",
                    self.of(name),
                    field.name
                ),
            );
            draft.help(match field.kind {
                Kind::InPort | Kind::OutPort => {
                    "list interfaces in a set of their own: `set lan = { eth0, eth1 }`".to_owned()
                }
                _ if set.as_ref().is_some_and(|set| set.group) => {
                    "test `ip-saddr`, `ip-daddr`, `ip6-saddr` or `ip6-daddr`".to_owned()
                }
                _ => "test `ip-saddr`, `ip-daddr`, `ip6-saddr`, `ip6-daddr`, `eth-saddr` or `eth-daddr`".to_owned(),
            });
            return Some(None);
        }
        // An error of its own line was reported.
        let Some(set) = set else { return Some(None) };
        if set.group && field.name.starts_with("eth-") {
            self.report
                .error(
                    0,
                    name,
                    format!(
                        "the group `{}` holds IP addresses, and `{}` is none",
                        set.name, field.name
                    ),
                )
                .help("test `ip-saddr`, `ip-daddr`, `ip6-saddr` or `ip6-daddr`");
            return Some(None);
        }
        Some(Some(Match {
            negated: m.negated,
            subject,
            test: Test::Dynamic(set),
        }))
    }

    /// `add @SET ADDRESS [TIME]`, `delete @SET ADDRESS`.
    pub(super) fn change_set(
        &mut self,
        deletes: bool,
        name: Span,
        address: &ChangedAddress,
        timeout: Option<Span>,
        stateful: bool,
        required: &mut Required,
    ) -> Option<Target> {
        let keyword = if deletes { "delete" } else { "add" };
        if stateful {
            let text = (self.of(name), self.of(address.span));
            self.report
                .error(0, name, format!("a stateful rule cannot {keyword} elements: it also covers the answers, whose source is the other side"))
                .help(format!("write `{keyword} @{} {}` in a rule of its own, without `add-stateful`, with the same matches; with `ct-state new` only first packets count", text.0, text.1));
            return None;
        }
        if let Some(field) = address.field {
            required.add(classes_of(field), address.span);
        }
        let own = match timeout {
            Some(span) => Some(self.element_timeout(span)?),
            None => None,
        };
        let set = match self.sets.dynamic(self.of(name)) {
            Some(Some(set)) if set.group => {
                let text = self.of(name);
                self.report
                    .error(
                        0,
                        name,
                        format!("`{text}` is a group of the network: packets cannot change it"),
                    )
                    .help(format!(
                        "workloads join it with `groups = [\"{text}\"]`; a set that packets fill is `set NAME = dynamic timeout 10m`"
                    ));
                return None;
            }
            Some(set) => set?,
            None => {
                if self.sets.known(name, self.report).is_some() {
                    let text = self.of(name);
                    self.report
                        .error(
                            0,
                            name,
                            format!("the set `{text}` is fixed: packets cannot change it"),
                        )
                        .help(format!(
                            "a set that packets fill is `set {text} = dynamic timeout 10m`"
                        ));
                }
                return None;
            }
        };
        let change = match deletes {
            true => Change::Delete,
            false => Change::Add {
                timeout_ns: own.or(set.timeout_ns),
            },
        };
        Some(Target::ChangeSet(ChangeSet {
            set,
            address: address.address,
            change,
        }))
    }

    fn set_size(&mut self, span: Span) -> Option<u32> {
        let word = self.of(span);
        match value::number(word, 32, &[]) {
            Ok(size) if (1..=u128::from(DynamicSet::MAX_SIZE)).contains(&size) => {
                u32::try_from(size).ok()
            }
            _ => {
                self.report
                    .error(0, span, format!("`{word}` is not a number of elements"))
                    .help(format!("it is a number from 1 to {}", DynamicSet::MAX_SIZE));
                None
            }
        }
    }

    fn element_timeout(&mut self, span: Span) -> Option<u64> {
        match value::any_case(self.of(span), weir_value::duration) {
            Ok(Duration::ZERO) => {
                self.report
                    .error(0, span, "an element stays longer than no time")
                    .help("write a duration above 0, or none for elements that stay for good");
                None
            }
            Ok(time) => Some(time.as_nanos() as u64),
            Err(invalid) => {
                self.report.error(0, span, invalid.to_string());
                None
            }
        }
    }
}

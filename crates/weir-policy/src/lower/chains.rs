//! Lowering of chains: what is wrong with the words of their rules is said once, however many ways lead to them, and ways that lead nowhere
//! are left out.

use std::collections::BTreeMap;

use super::{Lower, Required};
use crate::ast::{self, Choice, FieldRef, Key, Span};
use crate::flat::{Flat, Form, form, matches_of, rules};
use crate::model::{PortName, Rule, Test};

impl<'a> Lower<'a> {
    /// The rules that a file with chains has when they are laid flat, and which of `flats` they are. `None`: jumps were wrong.
    pub(super) fn rules_of_chains(
        &mut self,
        file: &'a ast::File,
        flats: Option<&[Flat]>,
    ) -> (Vec<Rule>, Vec<bool>) {
        for (chain, written) in rules(file) {
            let chain = chain.map(|name| self.of(name));
            self.named(chain.unwrap_or(""), written);
            let is_plain = chain.is_none() && matches!(form(&written.targets), Some(Form::Plain));
            if !is_plain || flats.is_none() {
                self.alone(written);
            }
        }
        let clean = !self.report.has_errors();
        let mut lowered: Vec<Rule> = Vec::new();
        let mut kept = Vec::new();
        // Of each rule of a chain, whether a way leads to it, and one that does not.
        let mut reached: BTreeMap<(u32, u32), (bool, Span, Span)> = BTreeMap::new();
        for flat in flats.unwrap_or_default() {
            let is_copy = flat.chain.is_some() || flat.choice.is_some();
            if is_copy && !clean {
                kept.push(false);
                continue;
            }
            let mark = self.report.mark();
            let errors = self.report.errors();
            let id = lowered.len() as u32 + 1;
            let (rule, contradicts) = self.rule(&flat.rule, id, flat.name.clone());
            let is_dead = is_copy && contradicts.is_some();
            if let (true, Some(before)) = (is_copy, contradicts) {
                self.report.take_back(before);
            }
            if is_copy {
                self.report.forget_repeats(mark);
                if let (true, Some(&jump)) = (self.report.errors() > errors, flat.way.last()) {
                    self.report.also_since(mark, jump, "this rule leads to it");
                }
            }
            if let Some(&jump) = flat.way.last() {
                let place = flat.choice.unwrap_or(flat.rule.span);
                let entry = reached.entry((flat.of, place.start));
                entry.or_insert((false, place, jump)).0 |= !is_dead;
            }
            kept.push(!is_dead);
            if !is_dead {
                self.warn_if_seen(&flat.rule, &rule, &lowered);
                lowered.push(rule);
            }
        }
        for (is_reached, place, jump) in reached.into_values() {
            if !is_reached {
                self.report
                    .warning(
                        0,
                        place,
                        "no packet reaches this rule: it excludes what leads to it",
                    )
                    .also(0, jump, "this rule leads to it")
                    .help("remove it, or jump to its chain from another rule");
            }
        }
        (lowered, kept)
    }

    /// Looks at the words of a rule of a chain, or of one that leads to others.
    fn alone(&mut self, written: &ast::Rule) {
        let with = |more: Vec<ast::Match>, targets: &[ast::Target]| {
            let mut rule = ast::Rule {
                targets: targets.to_vec(),
                ..written.clone()
            };
            rule.matches.retain(|one| {
                more.is_empty() || !matches!(one.field.field.info().kind, crate::field::Kind::All)
            });
            rule.matches.extend(more);
            rule
        };
        match form(&written.targets) {
            Some(Form::Plain) => {
                self.rule(written, 0, None);
            }
            Some(Form::Jump(_)) | None => {
                self.rule(&with(Vec::new(), &[]), 0, None);
            }
            Some(Form::Choose(field, choices)) => {
                let errors = self.report.errors();
                self.rule(&with(Vec::new(), &[]), 0, None);
                self.apart(*field, choices);
                if self.report.errors() > errors {
                    return;
                }
                for choice in choices {
                    let mark = self.report.mark();
                    let targets = match form(&choice.targets) {
                        Some(Form::Plain) => choice.targets.as_slice(),
                        _ => &[],
                    };
                    self.rule(&with(matches_of(*field, choices, choice), targets), 0, None);
                    self.report.forget_repeats(mark);
                }
            }
        }
    }

    /// Choices exclude each other.
    fn apart(&mut self, field: FieldRef, choices: &[Choice]) {
        let mut values: Vec<(u128, u128, Span)> = Vec::new();
        let mut ports: Vec<(PortName, Span)> = Vec::new();
        for choice in choices
            .iter()
            .filter(|one| !matches!(one.key, Key::Else(_)))
        {
            for written in matches_of(field, choices, choice) {
                let mut lowered = Vec::new();
                self.lower_match(&written, 2, &mut lowered, &mut Required::default());
                for one in lowered {
                    match one.test {
                        Test::In(ranges) => {
                            let all = ranges.intervals().iter();
                            values.extend(all.map(|&(lo, hi)| (lo, hi, written.span)));
                        }
                        Test::Port(names) => {
                            ports.extend(names.into_iter().map(|name| (name, written.span)));
                        }
                        _ => {}
                    }
                }
            }
        }
        values.sort_unstable_by_key(|&(lo, hi, span)| (lo, hi, span.start));
        let mut twice: Vec<(Span, Span)> = Vec::new();
        let mut widest: Option<(u128, Span)> = None;
        for (lo, hi, span) in values {
            match widest {
                Some((end, first)) if lo <= end && first != span => twice.push((first, span)),
                _ => {}
            }
            if widest.is_none_or(|(end, _)| hi > end) {
                widest = Some((hi, span));
            }
        }
        for (n, (name, span)) in ports.iter().enumerate() {
            if let Some((_, first)) = ports.iter().take(n).find(|(other, _)| other == name) {
                twice.push((*first, *span));
            }
        }
        for (a, b) in twice {
            let (first, second) = if a.start <= b.start { (a, b) } else { (b, a) };
            let mark = self.report.mark();
            self.report
                .error(0, second, "two choices are for the same value")
                .also(0, first, "this one, too")
                .help("choices exclude each other: write rules of their own where several are to apply");
            self.report.forget_repeats(mark);
        }
    }
}

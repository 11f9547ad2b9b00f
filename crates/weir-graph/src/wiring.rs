//! Links of outputs and ports: what they lead to, loops among them, functions nobody comes to, and walks that are too long.

use std::collections::BTreeMap;

use weir_functions::kind::{EdgePort, Planned, suggest};
use weir_policy::ast::Span;

use crate::config::Link;
use crate::edge::Target;
use crate::paths::{GUARD_BITS, Graph, MAX_RECIRCULATIONS, Step, Walks};
use crate::plan::{Planning, abridged};

/// A link that is an output of a function.
pub(crate) struct Wired<'a> {
    /// Place of the function.
    pub(crate) from: usize,
    pub(crate) out: usize,
    pub(crate) link: &'a Link,
    pub(crate) end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Function(usize),
    Out(Target),
}

impl<'a> Planning<'a> {
    /// Links of outputs. Those of functions that could not be planned keep their places, so that loops are still found.
    pub(crate) fn wire(
        &mut self,
        planned: &[Option<Planned>],
        ports: &[EdgePort],
    ) -> Vec<Wired<'a>> {
        let config = self.config;
        let mut wired = Vec::new();
        for link in &config.links {
            let Some(from) = self.place(&link.from.value) else {
                continue;
            };
            let Some(end) = self.end(&link.to.value, ports) else {
                continue;
            };
            let name = link.out.as_ref().map_or("next", |out| &out.value);
            let out = match &planned[from] {
                None => usize::MAX,
                Some(planned) => match planned.outs.iter().position(|out| out == name) {
                    Some(out) => out,
                    None => {
                        let text = format!("`{}` has no output `{name}`", link.from.value);
                        let names: Vec<&str> = planned.outs.iter().map(String::as_str).collect();
                        self.report
                            .error(0, link.from.span, text)
                            .help(suggest(name, &names));
                        continue;
                    }
                },
            };
            wired.push(Wired {
                from,
                out,
                link,
                end,
            });
        }
        wired
    }

    fn place(&self, function: &str) -> Option<usize> {
        self.config
            .functions
            .iter()
            .position(|one| one.name.value == function)
    }

    fn end(&self, name: &str, ports: &[EdgePort]) -> Option<End> {
        Some(match name {
            "stack" => End::Out(Target::Stack),
            "drop" => End::Out(Target::Drop),
            "tx" => End::Out(Target::Tx),
            _ => match self.place(name) {
                Some(at) => End::Function(at),
                None => {
                    let port = ports.iter().find(|port| port.name == name)?;
                    End::Out(Target::Device(port.number))
                }
            },
        })
    }

    /// Where packets of each port begin.
    pub(crate) fn entries(&mut self, ports: &[EdgePort]) -> BTreeMap<&'a str, End> {
        let config = self.config;
        let mut entries = BTreeMap::new();
        for link in &config.links {
            if !ports.iter().any(|port| port.name == link.from.value) {
                continue;
            }
            if let Some(guard) = &link.guard {
                self.needless_guard(guard.span);
            }
            if let Some(end) = self.end(&link.to.value, ports) {
                entries.insert(link.from.value.as_str(), end);
            }
        }
        entries
    }

    fn needless_guard(&mut self, at: Span) {
        self.report
            .error(0, at, "`guard` is on a link that closes no loop")
            .help("leave it out: packets take this link once");
    }

    /// The functions and the links between them. `None`: packets could go round for ever.
    pub(crate) fn graph(
        &mut self,
        wired: &[Wired<'_>],
        entries: &BTreeMap<&str, End>,
    ) -> Option<Graph> {
        let mut graph = Graph {
            nodes: self.config.functions.len(),
            ..Graph::default()
        };
        let starts = entries.values().filter_map(End::function);
        graph.entries = starts.collect();
        graph.entries.sort_unstable();
        graph.entries.dedup();
        let mut guards = Vec::new();
        for one in wired {
            let guard = one.link.guard.as_ref();
            let Some(to) = one.end.function() else {
                if let Some(guard) = guard {
                    self.needless_guard(guard.span);
                }
                continue;
            };
            let number = guard.map(|guard| {
                guards.push(guard.span);
                graph.guards.push(guard.value);
                graph.guards.len() - 1
            });
            graph.steps.push(Step {
                from: one.from,
                to,
                guard: number,
            });
        }
        for at in 0..graph.steps.len() {
            if let Some(guard) = graph.steps[at].guard.filter(|_| !graph.closes_loop(at)) {
                self.needless_guard(guards[guard]);
            }
        }
        let most = graph.guards.iter().copied().max().unwrap_or(0);
        let bits = (u32::BITS - most.leading_zeros()) * guards.len() as u32;
        if let Some(last) = guards.last().filter(|_| bits > GUARD_BITS) {
            let text = format!(
                "{} guards of up to {most} need {bits} bits of what a packet carries, and there are {GUARD_BITS}",
                guards.len()
            );
            self.report
                .error(0, *last, text)
                .help("lower the highest guard, or guard fewer links");
        }
        let endless = graph.endless_loops();
        for steps in &endless {
            self.endless(&graph, steps, wired);
        }
        endless.is_empty().then_some(graph)
    }

    fn endless(&mut self, graph: &Graph, steps: &[usize], wired: &[Wired<'_>]) {
        let name = |node: usize| {
            self.config
                .functions
                .get(node)
                .map_or("", |one| &one.name.value)
        };
        let mut names: Vec<&str> = steps.iter().map(|&at| name(graph.steps[at].from)).collect();
        names.extend(names.first().copied());
        let text = format!("packets could go round for ever: {}", names.join(" > "));
        let links: Vec<&Link> = steps
            .iter()
            .filter_map(|&at| {
                let Step { from, to, .. } = graph.steps[at];
                let link = wired.iter().find(|one| {
                    one.from == from && one.end == End::Function(to) && one.link.guard.is_none()
                });
                link.map(|one| one.link)
            })
            .collect();
        let Some((last, others)) = links.split_last() else {
            return;
        };
        let draft = self.report.error(0, last.to.span, text);
        draft
            .help("add `guard = N` to this link: how often a packet may take it")
            .label("this link closes the loop");
        for link in others {
            draft.also(0, link.to.span, "");
        }
    }

    pub(crate) fn unreachable(&mut self, graph: &Graph) {
        let met = graph.met();
        for (function, met) in self.config.functions.iter().zip(met) {
            if !met {
                let text = format!("no packet comes to `{}`", function.name.value);
                let help = format!(
                    "add a link to it: `[[link]]` with `to = \"{}\"`",
                    function.name.value
                );
                self.report.warning(0, function.name.span, text).help(help);
            }
        }
    }

    pub(crate) fn walks(&mut self, graph: &Graph, wired: &[Wired<'_>]) -> Option<Walks> {
        let Some(walks) = graph.walks() else {
            let mut guards = wired.iter().filter_map(|one| one.link.guard.as_ref());
            let last = guards
                .next_back()
                .map_or(Span::default(), |guard| guard.span);
            self.report
                .error(
                    0,
                    last,
                    "the guards allow more combinations of passes than can be followed",
                )
                .help("lower them, or guard fewer links");
            return None;
        };
        if walks.recirculations > MAX_RECIRCULATIONS {
            let text = format!(
                "a packet could pass {} functions ({}) and be recirculated {} times; {MAX_RECIRCULATIONS} times is the most",
                walks.longest.len(),
                self.walk(&walks),
                walks.recirculations
            );
            let first = walks
                .longest
                .first()
                .and_then(|&node| self.config.functions.get(node));
            let at = first.map_or(Span::default(), |one| one.name.span);
            self.report
                .error(0, at, text)
                .help("shorten the path; each pass of a guarded link counts");
            return None;
        }
        Some(walks)
    }

    fn walk(&self, walks: &Walks) -> String {
        let functions = walks
            .longest
            .iter()
            .filter_map(|&node| self.config.functions.get(node));
        abridged(
            &functions
                .map(|one| one.name.value.as_str())
                .collect::<Vec<_>>(),
        )
    }
}

impl End {
    fn function(&self) -> Option<usize> {
        match self {
            End::Function(at) => Some(*at),
            End::Out(_) => None,
        }
    }
}

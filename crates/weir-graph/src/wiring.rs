//! What links are written as: what they lead to, and mistakes of loops, guards and long walks with their places.

use weir_functions::kind::{EdgePort, Planned, suggest};
use weir_policy::ast::Span;

use crate::checked::ModelError;
use crate::config;
use crate::edge::{Mode, PortPlan, Target};
use crate::misplaced::Misplaced;
use crate::model::{Link, Source};
use crate::paths::{GUARD_BITS, Graph, MAX_CALLS, MAX_RECIRCULATIONS, Walks};
use crate::planning::Planning;
use crate::wired::abridged;

impl<'a> Planning<'a> {
    /// What links lead to, and where each is written. Those of functions that could not be planned keep their places, so that loops are still found.
    pub(crate) fn links(
        &mut self,
        planned: &[Option<Planned>],
        ports: &[EdgePort],
    ) -> (Vec<Link>, Vec<&'a config::Link>) {
        let config = self.config;
        let (mut links, mut written) = (Vec::new(), Vec::new());
        for link in &config.links {
            let (Some(from), Some(to)) = (
                self.source(link, planned, ports),
                self.target(&link.to.value, ports),
            ) else {
                continue;
            };
            links.push(Link {
                from,
                to,
                guard: link.guard.as_ref().map(|guard| guard.value),
            });
            written.push(link);
        }
        (links, written)
    }

    fn source(
        &mut self,
        link: &config::Link,
        planned: &[Option<Planned>],
        ports: &[EdgePort],
    ) -> Option<Source> {
        let Some(instance) = self.place(&link.from.value) else {
            let port = ports.iter().find(|port| port.name == link.from.value)?;
            return Some(match &link.out {
                Some(_) => Source::Transmit(port.number),
                None => Source::Port(port.number),
            });
        };
        let name = link.out.as_ref().map_or("next", |out| &out.value);
        let out = match &planned[instance] {
            None => usize::MAX,
            Some(planned) => match planned.outs.iter().position(|out| out == name) {
                Some(out) => out,
                None => {
                    let text = format!("`{}` has no output `{name}`", link.from.value);
                    let names: Vec<&str> = planned.outs.iter().map(String::as_str).collect();
                    self.report
                        .error(0, link.from.span, text)
                        .help(suggest(name, &names));
                    return None;
                }
            },
        };
        Some(Source::Out { instance, out })
    }

    fn place(&self, function: &str) -> Option<usize> {
        self.config
            .functions
            .iter()
            .position(|one| one.name.value == function)
    }

    fn target(&self, name: &str, ports: &[EdgePort]) -> Option<Target> {
        Some(match name {
            "stack" => Target::Stack,
            "drop" => Target::Drop,
            "tx" => Target::Tx,
            _ => match self.place(name) {
                Some(at) => Target::Instance(at),
                None => {
                    let port = ports.iter().find(|port| port.name == name)?;
                    Target::Device(port.number)
                }
            },
        })
    }

    /// The functions and the links between them. `None`: packets could go round for ever.
    pub(crate) fn graph(&mut self, links: &[Link], written: &[&config::Link]) -> Option<Graph> {
        let graph = Graph::of(self.config.functions.len(), links);
        for at in graph.needless_guards(links) {
            if let Some(guard) = &written[at].guard {
                self.report
                    .error(0, guard.span, "`guard` is on a link that closes no loop")
                    .help("leave it out: packets take this link once");
            }
        }
        let bits = graph.guard_bits();
        if let Some(last) = last_guard(written).filter(|_| bits > GUARD_BITS) {
            let text = format!(
                "{} guards of up to {} need {bits} bits of what a packet carries, and there are {GUARD_BITS}",
                graph.guards.len(),
                graph.highest_guard()
            );
            self.report
                .error(0, last, text)
                .help("lower the highest guard, or guard fewer links");
        }
        let endless = graph.endless_loops();
        for steps in &endless {
            self.endless(&graph, steps, written);
        }
        endless.is_empty().then_some(graph)
    }

    fn endless(&mut self, graph: &Graph, steps: &[usize], written: &[&config::Link]) {
        let name = |node: usize| {
            self.config
                .functions
                .get(node)
                .map_or("", |one| &one.name.value)
        };
        let mut names: Vec<&str> = steps.iter().map(|&at| name(graph.steps[at].from)).collect();
        names.extend(names.first().copied());
        let text = format!("packets could loop forever: {}", names.join(" > "));
        let links: Vec<&config::Link> = steps.iter().map(|&at| written[graph.links[at]]).collect();
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

    pub(crate) fn walks(&mut self, graph: &Graph, written: &[&config::Link]) -> Option<Walks> {
        let Some(walks) = graph.walks() else {
            let last = last_guard(written).unwrap_or_default();
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

    /// Ports whose packets would have to be recirculated and cannot be.
    pub(crate) fn cannot_recirculate(&mut self, port: &PortPlan) {
        let written = self.config.ports.iter();
        let at = written
            .map(|one| &one.name)
            .find(|name| name.value == port.name)
            .map_or(Span::default(), |name| name.span);
        let (which, instead) = match port.mode {
            Mode::Tc => ("ports on tc", "`hook = \"xdp\"`"),
            _ => ("generic XDP", "`mode = \"native\"`"),
        };
        let text = format!(
            "packets of the port `{}` could pass more than {MAX_CALLS} functions, and {which} cannot recirculate them",
            port.name
        );
        let help =
            format!("use {instead}, or shorten the path; each pass of a guarded link counts");
        self.report.error(0, at, text).help(help);
    }

    /// What a port's hook cannot carry.
    pub(crate) fn misplaced(
        &mut self,
        found: &Misplaced,
        ports: &[EdgePort],
        written: &[&config::Link],
    ) {
        let config = self.config;
        let port = |number: u32| {
            let at = ports.iter().position(|port| port.number == number);
            at.and_then(|at| config.ports.get(at))
        };
        match found {
            Misplaced::Function {
                port: number,
                instance,
                why,
            } => {
                let (Some(port), Some(function)) = (port(*number), config.functions.get(*instance))
                else {
                    return;
                };
                let text = format!(
                    "packets of the port `{}`, which is on tc, come to `{}`: {why}",
                    port.name.value, function.name.value
                );
                let draft = self.report.error(0, function.kind.span, text);
                draft
                    .help(
                        "use a port with `hook = \"xdp\"`, or lead its packets past this function",
                    )
                    .also(0, port.hook.unwrap_or(port.name.span), "the port's hook");
            }
            Misplaced::OnXdp {
                port: number,
                instance,
                why,
            } => {
                let (Some(port), Some(function)) = (port(*number), config.functions.get(*instance))
                else {
                    return;
                };
                let text = format!(
                    "packets of the port `{}`, which is on XDP, come to `{}`: {why}",
                    port.name.value, function.name.value
                );
                let draft = self.report.error(0, function.kind.span, text);
                draft.help("set `hook = \"tc\"` for the port").also(
                    0,
                    port.hook.unwrap_or(port.name.span),
                    "the port",
                );
            }
            Misplaced::Back { port: number, link } => {
                let (Some(port), Some(link)) = (port(*number), written.get(*link)) else {
                    return;
                };
                let name = &port.name.value;
                let text = format!(
                    "packets that leave by the port `{name}` would be sent out of it again, in an endless loop"
                );
                self.report
                    .error(0, link.to.span, text)
                    .help("write `to = \"stack\"`: then they leave by the port");
            }
        }
    }

    /// What is left to refuse when everything that has a place was checked.
    pub(crate) fn refused_as_a_whole(&mut self, error: &ModelError) {
        self.report.error(0, Span::default(), error.to_string());
    }
}

fn last_guard(written: &[&config::Link]) -> Option<Span> {
    let mut guards = written.iter().filter_map(|link| link.guard.as_ref());
    guards.next_back().map(|guard| guard.span)
}

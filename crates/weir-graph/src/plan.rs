//! Configuration -> [`EdgePlan`]: kinds turn their keys into instances, links get targets, loops get guards, long paths get recirculations.
//!
//! Deterministic: the same configuration, files and numbers of ports give the same plan on every machine. All errors of a configuration are
//! found in one go, as far as one does not hide another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_bpf::abi::panel;
use weir_functions::kind::{
    self, EdgePort, Files, FunctionError, MAX_OUTS, Planned, Request, suggest,
};
use weir_functions::plan::MapPlan;
use weir_policy::ast::Span;
use weir_policy::{Diagnostics, Report};
use weir_vm::Object;

use crate::config::{Config, Function, Hook, Link, Share};
use crate::edge::{EdgePlan, GUARD_BITS, HookPlan, Instance, PortPlan, SharedMap, Target};
use crate::objects;
use crate::outline::Outline;
use crate::paths::{Graph, MAX_FUNCTIONS, MAX_GUARDS, MAX_RECIRCULATIONS, Step, Walks};

/// Files below a folder; absolute paths are what they are.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Relative paths start at `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Folder {
        Folder(folder.into())
    }

    /// Relative paths start at the folder of `configuration`.
    pub fn of(configuration: &Path) -> Folder {
        Folder::new(configuration.parent().unwrap_or(Path::new("")))
    }
}

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(path))
    }
}

/// Plans an edge. Ports that `former` has keep their numbers, so that a change of the configuration does not renumber what runs; others
/// get the smallest free ones, in the order of the configuration. Also what is allowed and probably not meant.
///
/// # Errors
/// All that keeps the configuration from being carried out, with places in it or in the files it names.
pub fn plan(
    config: &Config,
    files: &dyn Files,
    former: Option<&Outline>,
) -> Result<(EdgePlan, Diagnostics), Diagnostics> {
    let mut planning = Planning {
        config,
        files,
        report: Report::default(),
        texts: Vec::new(),
    };
    let plan = planning.run(former);
    let Planning { report, texts, .. } = planning;
    let mut named = vec![(config.source.name.as_str(), config.source.text.as_str())];
    named.extend(
        texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    );
    let failed = report.has_errors();
    let (errors, warnings) = report.finish(&named);
    match plan {
        Some(plan) if !failed => Ok((plan, warnings)),
        _ => Err(errors),
    }
}

struct Planning<'a> {
    config: &'a Config,
    files: &'a dyn Files,
    report: Report,
    /// Files that mistakes were found in: name and text. The first is file number 1 of the report.
    texts: Vec<(String, String)>,
}

/// A link that is an output of a function.
struct Wired<'a> {
    /// Place of the function.
    from: usize,
    out: usize,
    link: &'a Link,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Function(usize),
    Out(Target),
}

impl<'a> Planning<'a> {
    fn run(&mut self, former: Option<&Outline>) -> Option<EdgePlan> {
        let config = self.config;
        let ports = self.ports(former);
        let planned: Vec<Option<Planned>> = config
            .functions
            .iter()
            .map(|one| self.function(one, &ports))
            .collect();
        let hooks: Vec<Option<HookPlan>> =
            config.hooks.iter().map(|hook| self.hook(hook)).collect();
        self.unused_maps();
        let wired = self.wire(&planned, &ports);
        let entries = self.entries(&ports);
        let (graph, guards) = self.graph(&wired, &entries)?;
        self.unreachable(&graph);
        let walks = self.walks(&graph, &wired)?;
        if self.report.has_errors() {
            return None;
        }
        let planned = planned.into_iter().collect::<Option<Vec<_>>>()?;
        let mut plan = EdgePlan {
            edge: config.edge.clone(),
            ports: Vec::new(),
            instances: self.instances(planned, &wired, &guards, &walks, &graph),
            maps: config.maps.iter().map(shared_map).collect(),
            hooks: hooks.into_iter().collect::<Option<_>>()?,
            longest: walks.longest.len() as u32,
            recirculations: walks.recirculations,
            notes: Vec::new(),
        };
        if plan.instances.len() >= panel::VIDS {
            let text = format!(
                "the graph has {} instances, guards and recirculations included; an edge holds {}",
                plan.instances.len(),
                panel::VIDS - 1
            );
            self.report.error(0, Span::default(), text);
            return None;
        }
        for (port, numbered) in config.ports.iter().zip(&ports) {
            let entry = match entries.get(numbered.name.as_str()) {
                Some(End::Function(at)) => Target::Instance(*at as u32 + 1),
                Some(End::Out(target)) => *target,
                None => Target::Stack,
            };
            plan.ports.push(PortPlan {
                number: numbered.number,
                name: numbered.name.clone(),
                device: numbered.device.clone(),
                mode: port.mode,
                checksums: port.checksums,
                entry,
            });
        }
        plan.ports.sort_by_key(|port| port.number);
        plan.notes = notes(&plan, &walks, &graph);
        Some(plan)
    }

    fn ports(&self, former: Option<&Outline>) -> Vec<EdgePort> {
        let known = former.map_or(&[][..], |outline| &outline.ports);
        let kept = |name: &str| {
            known
                .iter()
                .find(|port| port.name == name)
                .map(|port| port.number)
        };
        let ports = &self.config.ports;
        let mut used: BTreeSet<u32> = ports
            .iter()
            .filter_map(|port| kept(&port.name.value))
            .collect();
        let number = |name: &str| {
            kept(name).unwrap_or_else(|| {
                let free = (1..).find(|n| !used.contains(n)).unwrap_or(u32::MAX);
                used.insert(free);
                free
            })
        };
        let numbers: Vec<u32> = ports
            .iter()
            .map(|port| port.name.value.as_str())
            .map(number)
            .collect();
        let numbered = ports.iter().zip(numbers);
        numbered
            .map(|(port, number)| EdgePort {
                number,
                name: port.name.value.clone(),
                device: port.device.value.clone(),
            })
            .collect()
    }

    fn function(&mut self, function: &Function, ports: &[EdgePort]) -> Option<Planned> {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files: self.files,
            ports,
        };
        let planned = match kind::plan(&function.kind.value, &request) {
            Ok(planned) => planned,
            Err(error) => {
                self.refused(function, &error);
                return None;
            }
        };
        debug_assert!(planned.outs.len() <= MAX_OUTS);
        self.shares(function, &planned);
        Some(planned)
    }

    /// Reports what a kind said, at the key or in the file.
    fn refused(&mut self, function: &Function, error: &FunctionError) {
        let key = match error.key.as_deref() {
            None => function.name.span,
            Some("kind") => function.kind.span,
            Some(key) => place_of(function, key),
        };
        let (mut file, mut span, mut message) = (0, key, error.message.clone());
        if let Some((path, line)) = &error.file {
            match self
                .line(path, *line)
                .or_else(|| self.line_of_value(function, error, *line))
            {
                Some(found) => (file, span) = found,
                None => message = format!("{}:{line}: {message}", path.display()),
            }
        }
        let draft = self.report.error(file, span, message);
        if let Some(advice) = &error.advice {
            draft.help(advice.clone());
        }
        if file != 0 {
            draft.also(0, key, format!("for `{}`", function.name.value));
        }
        for other in &error.others {
            self.refused(function, other);
        }
    }

    /// A line of a file, as a place of the report.
    fn line(&mut self, path: &Path, line: usize) -> Option<(u32, Span)> {
        let name = path.display().to_string();
        let at = match self.texts.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                let text = String::from_utf8(self.files.read(path).ok()?).ok()?;
                self.texts.push((name, text));
                self.texts.len() - 1
            }
        };
        Some((at as u32 + 1, line_span(&self.texts[at].1, line)?))
    }

    /// The same for a text that stands in the configuration itself, which is a file of its own then.
    fn line_of_value(
        &mut self,
        function: &Function,
        error: &FunctionError,
        line: usize,
    ) -> Option<(u32, Span)> {
        let text = function.keys.get(error.key.as_deref()?)?.as_str()?;
        let name = format!("`{}` of {}", error.key.as_deref()?, function.name.value);
        let span = line_span(text, line)?;
        if !self.texts.iter().any(|(known, _)| *known == name) {
            self.texts.push((name.clone(), text.to_owned()));
        }
        let at = self.texts.iter().position(|(known, _)| *known == name)?;
        Some((at as u32 + 1, span))
    }

    /// Maps of an instance that are shared: they exist in its object and have the shared map's sizes.
    fn shares(&mut self, function: &Function, planned: &Planned) {
        if function.maps.is_empty() {
            return;
        }
        let object = planned.instance.object.for_graph(false).map(Object::parse);
        let Some(Ok(object)) = object else {
            let text = format!("the maps of `{}` cannot be read", planned.instance.object);
            self.report.error(0, function.name.span, text);
            return;
        };
        for share in &function.maps {
            let own = objects::planned(&planned.instance, &share.0.value);
            self.share(&function.name.value, share, &object, own);
        }
    }

    fn share(
        &mut self,
        user: &str,
        (own, shared): &Share,
        object: &Object,
        planned: Option<&MapPlan>,
    ) {
        let Some(map) = self
            .config
            .maps
            .iter()
            .find(|map| map.name.value == shared.value)
        else {
            return;
        };
        let maps = objects::own_maps(object);
        let Some(definition) = maps.iter().find(|map| map.name == own.value) else {
            let names: Vec<&str> = maps.iter().map(|map| map.name.as_str()).collect();
            let text = format!("the object of `{user}` has no map `{}`", own.value);
            self.report
                .error(0, own.span, text)
                .help(suggest(&own.value, &names));
            return;
        };
        if let Some(why) = objects::mismatch(definition, planned, &shared_map(map)) {
            let text = format!(
                "the map `{}` of `{user}` cannot be `{}`: {why}",
                own.value, shared.value
            );
            self.report
                .error(0, shared.span, text)
                .help("all users of a shared map must agree with its type and sizes")
                .also(0, map.name.span, "declared here");
        }
    }

    fn hook(&mut self, hook: &Hook) -> Option<HookPlan> {
        let path = PathBuf::from(&hook.file.value);
        let bytes = match self.files.read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let text = format!("cannot read `{}`: {error}", path.display());
                self.report
                    .error(0, hook.file.span, text)
                    .help("paths are relative to the folder of the configuration");
                return None;
            }
        };
        let object = match Object::parse(&bytes) {
            Ok(object) => object,
            Err(error) => {
                let text = format!("`{}` cannot be loaded: {error}", path.display());
                self.report.error(0, hook.file.span, text);
                return None;
            }
        };
        let Some(section) = object.program_section(&hook.program.value) else {
            let names: Vec<&str> = object.programs().collect();
            let text = format!(
                "`{}` has no program `{}`",
                path.display(),
                hook.program.value
            );
            self.report
                .error(0, hook.program.span, text)
                .help(suggest(&hook.program.value, &names));
            return None;
        };
        if let Err(wanted) = objects::fits(&hook.attach, section) {
            let text = format!(
                "`{}` is in section `{section}`: such a program does not go on `{}`",
                hook.program.value, hook.attach
            );
            self.report
                .error(0, hook.program.span, text)
                .help(format!("its section must be {}", wanted.join(" or ")));
            return None;
        }
        for share in &hook.maps {
            self.share(&hook.name.value, share, &object, None);
        }
        Some(HookPlan {
            name: hook.name.value.clone(),
            file: path,
            object: Arc::from(bytes),
            program: hook.program.value.clone(),
            attach: hook.attach.clone(),
            shares: names_of(&hook.maps),
        })
    }

    fn unused_maps(&mut self) {
        let functions = self.config.functions.iter().flat_map(|one| &one.maps);
        let hooks = self.config.hooks.iter().flat_map(|one| &one.maps);
        let used: BTreeSet<&str> = functions
            .chain(hooks)
            .map(|(_, shared)| shared.value.as_str())
            .collect();
        for map in &self.config.maps {
            if !used.contains(map.name.value.as_str()) {
                let text = format!("nobody uses the map `{}`", map.name.value);
                self.report.warning(0, map.name.span, text).help(
                    "name it in `maps = { MAP_OF_THE_OBJECT = \"NAME\" }` of a function or a hook",
                );
            }
        }
    }

    /// Links of outputs. Those of functions that could not be planned keep their places, so that loops are still found.
    fn wire(&mut self, planned: &[Option<Planned>], ports: &[EdgePort]) -> Vec<Wired<'a>> {
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
    fn entries(&mut self, ports: &[EdgePort]) -> BTreeMap<&'a str, End> {
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

    /// The functions and their links, and behind them a node for each guard. Also the guarded links, in the order of their nodes.
    fn graph<'w>(
        &mut self,
        wired: &'w [Wired<'a>],
        entries: &BTreeMap<&str, End>,
    ) -> Option<(Graph, Vec<&'w Wired<'a>>)> {
        let functions = self.config.functions.len();
        let mut graph = Graph {
            nodes: functions,
            ..Graph::default()
        };
        let mut guarded = Vec::new();
        let plain = |end: &End| match end {
            End::Function(to) => Some(*to),
            End::Out(_) => None,
        };
        graph.entries = entries.values().filter_map(plain).collect();
        graph.entries.sort_unstable();
        graph.entries.dedup();
        for one in wired {
            let Some(to) = plain(&one.end) else {
                if let Some(guard) = &one.link.guard {
                    self.needless_guard(guard.span);
                }
                continue;
            };
            let mut step = Step {
                from: one.from,
                to,
                guard: None,
            };
            if let Some(guard) = &one.link.guard {
                let node = graph.nodes;
                graph.nodes += 1;
                graph.steps.push(Step { to: node, ..step });
                step.from = node;
                step.guard = Some(graph.guards.len());
                graph.guards.push(guard.value);
                guarded.push(one);
            }
            graph.steps.push(step);
        }
        if let Some(one) = guarded.get(MAX_GUARDS) {
            let text = format!("an edge has at most {MAX_GUARDS} guarded links");
            let at = one
                .link
                .guard
                .as_ref()
                .map_or(one.link.to.span, |guard| guard.span);
            self.report.error(0, at, text);
            return None;
        }
        for at in 0..graph.steps.len() {
            let Some(guard) = graph.steps[at].guard else {
                continue;
            };
            if !graph.closes_loop(at) {
                let at = guarded[guard]
                    .link
                    .guard
                    .as_ref()
                    .map_or(Span::default(), |guard| guard.span);
                self.needless_guard(at);
            }
        }
        let endless = graph.endless_loops();
        for steps in &endless {
            self.endless(&graph, steps, wired);
        }
        endless.is_empty().then_some((graph, guarded))
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
        let draft = self.report.error(0, last.from.span.to(last.to.span), text);
        draft
            .help("add `guard = N` to this link: how often a packet may take it")
            .label("this link closes the loop");
        for link in others {
            draft.also(0, link.from.span.to(link.to.span), "");
        }
    }

    fn unreachable(&mut self, graph: &Graph) {
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

    fn walks(&mut self, graph: &Graph, wired: &[Wired<'_>]) -> Option<Walks> {
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
            let most = MAX_FUNCTIONS * (MAX_RECIRCULATIONS + 1);
            let help = format!(
                "a path of {most} functions is the longest; each pass of a guarded link counts"
            );
            self.report.error(0, at, text).help(help);
            return None;
        }
        Some(walks)
    }

    fn walk(&self, walks: &Walks) -> String {
        let name = |&node: &usize| {
            self.config
                .functions
                .get(node)
                .map_or("guard", |one| one.name.value.as_str())
        };
        abridged(&walks.longest.iter().map(name).collect::<Vec<_>>())
    }

    fn instances(
        &self,
        planned: Vec<Planned>,
        wired: &[Wired<'_>],
        guards: &[&Wired<'_>],
        walks: &Walks,
        graph: &Graph,
    ) -> Vec<Instance> {
        let functions = &self.config.functions;
        let mut instances: Vec<Instance> = Vec::new();
        for (function, planned) in functions.iter().zip(planned) {
            instances.push(Instance {
                vid: 0,
                name: function.name.value.clone(),
                kind: function.kind.value.clone(),
                fresh: function.fresh,
                // An output without a link leads to the stack.
                links: vec![Target::Stack; planned.outs.len()],
                planned,
                shares: names_of(&function.maps),
            });
        }
        for (number, one) in guards.iter().enumerate() {
            instances.push(guard(number, one));
        }
        // Recirculations, by the place they lead to.
        let mut rounds: BTreeMap<usize, usize> = BTreeMap::new();
        for &at in &walks.cut {
            let next = instances.len();
            let to = graph.steps[at].to;
            rounds.entry(to).or_insert_with(|| {
                let name = format!("recirculate:{}", instances[to].name);
                let mut round = implicit("recirculate", name, Planned::embedded("recirculate"));
                round.links = vec![Target::Instance(to as u32 + 1)];
                instances.push(round);
                next
            });
        }
        let mut guard_at = functions.len();
        let mut steps = (0..graph.steps.len()).peekable();
        for one in wired {
            let target = match one.end {
                End::Out(target) => target,
                End::Function(_) => {
                    // Each such link is one step, or two with its guard between them, in the order of links.
                    let at = steps.next().unwrap_or_default();
                    let target = behind(at, walks, graph, &rounds);
                    if one.link.guard.is_some() {
                        let over = steps.next().unwrap_or_default();
                        instances[guard_at].links = vec![behind(over, walks, graph, &rounds)];
                        guard_at += 1;
                    }
                    target
                }
            };
            instances[one.from].links[one.out] = target;
        }
        for (vid, instance) in (1..).zip(&mut instances) {
            instance.vid = vid;
        }
        instances
    }
}

fn behind(step: usize, walks: &Walks, graph: &Graph, rounds: &BTreeMap<usize, usize>) -> Target {
    let to = graph.steps[step].to;
    let place = match walks.cut.contains(&step) {
        true => rounds.get(&to).copied().unwrap_or(to),
        false => to,
    };
    Target::Instance(place as u32 + 1)
}

/// The function that counts the passes of a guarded link.
fn guard(number: usize, one: &Wired<'_>) -> Instance {
    let link = one.link;
    let from = match &link.out {
        Some(out) if out.value != "next" => format!("{}.{}", link.from.value, out.value),
        _ => link.from.value.clone(),
    };
    let most = link.guard.as_ref().map_or(1, |guard| guard.value);
    let shift = number as u32 * GUARD_BITS;
    let mut planned = Planned::embedded("guard");
    planned.instance.constants = vec![
        ("weir_guard".into(), most.to_ne_bytes().to_vec()),
        ("weir_guard_shift".into(), shift.to_ne_bytes().to_vec()),
    ];
    implicit("guard", format!("guard:{from}>{}", link.to.value), planned)
}

fn implicit(kind: &str, name: String, planned: Planned) -> Instance {
    Instance {
        vid: 0,
        name,
        kind: kind.to_owned(),
        fresh: false,
        planned,
        shares: BTreeMap::new(),
        links: vec![Target::Stack],
    }
}

fn notes(plan: &EdgePlan, walks: &Walks, graph: &Graph) -> Vec<String> {
    let mut notes = Vec::new();
    for instance in &plan.instances {
        let of = instance.planned.notes.iter();
        notes.extend(of.map(|note| format!("{}: {note}", instance.name)));
    }
    if !walks.cut.is_empty() {
        let names: Vec<&str> = walks
            .longest
            .iter()
            .map(|&at| plan.instances[at].name.as_str())
            .collect();
        let places: BTreeSet<&str> = walks
            .cut
            .iter()
            .map(|&at| plan.instances[graph.steps[at].to].name.as_str())
            .collect();
        let places: Vec<String> = places.iter().map(|name| format!("`{name}`")).collect();
        notes.push(format!(
            "a packet may pass {} functions ({}), and the kernel calls 33 in a row: packets are sent round through a veth pair in front of {}, \
             at most {} each, which costs about as much as receiving them once more",
            names.len(),
            abridged(&names),
            places.join(", "),
            match walks.recirculations {
                1 => "once".to_owned(),
                many => format!("{many} times"),
            },
        ));
    }
    notes
}

/// A walk, without its middle if it is long.
fn abridged(names: &[&str]) -> String {
    match names {
        [first, second, .., last] if names.len() > 6 => {
            format!("{first} > {second} > ... > {last}")
        }
        _ => names.join(" > "),
    }
}

fn names_of(shares: &[Share]) -> BTreeMap<String, String> {
    let pairs = shares.iter();
    pairs
        .map(|(own, shared)| (own.value.clone(), shared.value.clone()))
        .collect()
}

fn shared_map(map: &crate::config::Map) -> SharedMap {
    SharedMap {
        name: map.name.value.clone(),
        kind: map.kind,
        key: map.key,
        value: map.value,
        entries: map.entries,
    }
}

/// The place of a key, or of what it is below of; a key that should be there and is not: the name of the function.
fn place_of(function: &Function, key: &str) -> Span {
    let mut key = key;
    loop {
        if let Some(place) = function.places.get(key) {
            return *place;
        }
        match key.rsplit_once('.') {
            Some((above, _)) => key = above,
            None => return function.name.span,
        }
    }
}

/// The text of a line, from 1, without blanks around it.
fn line_span(text: &str, line: usize) -> Option<Span> {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(breaks) => text.match_indices('\n').nth(breaks)?.0 + 1,
    };
    let line = text[start..].split('\n').next().unwrap_or_default();
    let start = start + (line.len() - line.trim_start().len());
    let end = start + line.trim().len();
    Some(Span {
        start: start as u32,
        end: end as u32,
    })
}

//! Lowering of what keeps state: `map`, `shuffle`, `timeout`, and the lines about connections.
//!
//! Settles what docs/semantics.md section 7 leaves to the reader of a policy: which fields can be chosen for a connection,
//! how large a pool may be, and which rules could never open a connection.

use std::sync::Arc;
use std::time::Duration;

use super::Lower;
use crate::ast::{self, Action, Pool, SettingKind, Span};
use crate::field::{Field, Header};
use crate::model::{
    Classes, Connections, Filtering, FlowState, Helper, Match, Ranges, Rule, Target,
};
use crate::value::{self, Domain};
use crate::words::nearest;

/// Fields that `map` gives a value to.
const MAPPED: &[&str] = &[
    "ip-saddr",
    "ip-daddr",
    "ip6-saddr",
    "ip6-daddr",
    "tcp-sport",
    "tcp-dport",
    "udp-sport",
    "udp-dport",
    "ip-id",
    "ip6-flow-label",
];

/// Fields that `shuffle` moves, but for SACK blocks, which follow sequence numbers.
const SHUFFLED: &[&str] = &[
    "tcp-seq-num",
    "tcp-ack-num",
    "tcp-sport",
    "tcp-dport",
    "udp-sport",
    "udp-dport",
    "ip-id",
    "ip6-flow-label",
];

/// Most values a pool may have: one is chosen by a number of 32 bits.
const MAX_POOL: u128 = 1 << 32;

/// Most connections that can be asked for.
const MAX_CONNECTIONS: u128 = 1 << 24;

/// What the targets of one rule choose for its connections.
#[derive(Default)]
pub(super) struct Chosen {
    /// Fields of `map` and `shuffle`, and where.
    fields: Vec<(Field, Span)>,
    /// `shuffle tcp-opt-sack`
    sack: Option<Span>,
    timeout: Option<(u64, Span)>,
    /// `mapping`, and whether it does not depend on who is sent to.
    mapping: Option<(bool, Span)>,
    filtering: Option<(Filtering, Span)>,
    helper: Option<(Helper, Span)>,
}

/// Helpers of other firewalls that weir has not, and what works without.
const NO_HELPERS: &[(&str, &str)] = &[
    (
        "ftp",
        "FTP works in passive mode; active mode needs a rule for connections from port 20 of the server, and a client that is not translated",
    ),
    (
        "sip",
        "SIP needs rules for the ports of its media, or clients that find their outer address themselves (STUN, ICE)",
    ),
    ("amanda", ""),
    ("h323", ""),
    ("irc", ""),
    ("netbios-ns", ""),
    ("pptp", ""),
    ("sane", ""),
    ("snmp", ""),
];

impl Chosen {
    /// `timeout T` of the rule.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        self.timeout.map(|(ns, _)| ns)
    }

    /// Who may send to its mappings, if it has any.
    pub(super) fn filtering(&self) -> Option<Filtering> {
        let (independent, _) = self.mapping?;
        independent.then(|| self.filtering.map_or(Filtering::default(), |(f, _)| f))
    }

    /// `helper NAME` of the rule.
    pub(super) fn helper(&self) -> Option<Helper> {
        self.helper.map(|(helper, _)| helper)
    }
}

/// Whether a rule tests when packets come in.
fn tests_time(rules: &[Rule]) -> bool {
    let of_time = |one: &Match| one.subject.field.info().header == Header::Clock;
    rules.iter().any(|rule| rule.matches.iter().any(of_time))
}

impl<'a> Lower<'a> {
    /// The lines about connections and limits.
    pub(super) fn settings(&mut self, file: &'a ast::File, rules: &[Rule]) -> Connections {
        let mut connections = Connections::default();
        let mut capacity: Option<Span> = None;
        let mut loose: Option<Span> = None;
        let mut min_pmtu: Option<Span> = None;
        let mut limits: Option<Span> = None;
        let mut timezone: Option<Span> = None;
        let mut timeouts: [Option<Span>; FlowState::ALL.len()] = Default::default();
        for item in &file.items {
            let ast::Item::Setting(setting) = item else {
                continue;
            };
            let (first, what) = match setting.what {
                SettingKind::Connections(count) => {
                    if let Some(count) = self.capacity(count) {
                        connections.capacity = count;
                    }
                    (&mut capacity, "connections")
                }
                SettingKind::LooseTcp => {
                    connections.loose_tcp = true;
                    (&mut loose, "loose tcp")
                }
                SettingKind::MinPmtu(bytes) => {
                    if let Some(bytes) = self.min_pmtu(bytes) {
                        connections.min_pmtu = bytes;
                    }
                    (&mut min_pmtu, "min-pmtu")
                }
                SettingKind::Limits(count) => {
                    if let Some(count) = self.limits(count) {
                        connections.limits = count;
                    }
                    (&mut limits, "limits")
                }
                SettingKind::Timezone(offset) => {
                    if let Some(minutes) = self.timezone(offset) {
                        connections.timezone = minutes;
                    }
                    (&mut timezone, "timezone")
                }
                SettingKind::Timeout(name, duration) => {
                    let ns = self.duration(duration);
                    for &state in self.states(name) {
                        if let Some(ns) = ns {
                            connections.timeouts_ns[state as usize] = ns;
                        }
                        let what = format!("timeout {}", state.name());
                        self.once(&mut timeouts[state as usize], setting.span, &what);
                    }
                    continue;
                }
            };
            self.once(first, setting.span, what);
        }
        let first = [capacity, loose, min_pmtu].into_iter();
        let first = first.chain(timeouts).flatten();
        if let Some(span) = first.min_by_key(|span| span.start)
            && !rules.iter().any(|rule| rule.stateful)
        {
            self.report
                .warning(0, span, "no rule keeps connections, so this means nothing")
                .help("rules that open connections begin with `add-stateful`");
        }
        if let Some(span) = timezone
            && !tests_time(rules)
        {
            self.report
                .warning(0, span, "no rule tests the time, so this means nothing")
                .help("rules test it by `hour 08:00-17:00` and `day mon-fri`");
        }
        if let Some(span) = limits
            && !rules.iter().any(|rule| {
                let at_a_time = rule.connections_at_a_time();
                rule.counts_apart() || at_a_time.is_some_and(|(_, per)| per.is_some())
            })
        {
            self.report
                .warning(
                    0,
                    span,
                    "no limit counts addresses apart, so this means nothing",
                )
                .help("such a limit is `drop over 10/s burst 20 per source`");
        }
        connections
    }

    /// Takes down where a setting is written, and reports it if it was before.
    fn once(&mut self, first: &mut Option<Span>, span: Span, what: &str) {
        if let Some(first) = *first {
            self.report
                .error(0, span, format!("`{what}` is written twice"))
                .also(0, first, "first here")
                .help("remove one of them");
        }
        first.get_or_insert(span);
    }

    /// Whether a target needs a stateful rule, which is then reported.
    pub(super) fn refuse_stateful(&mut self, action: &Action, span: Span) -> bool {
        let keyword = match action {
            Action::Map(..) => "map",
            Action::Shuffle(_) => "shuffle",
            Action::Timeout(_) => "timeout",
            Action::Mapping(_) => "mapping",
            Action::Filtering(_) => "filtering",
            Action::Helper(_) => "helper",
            _ => return false,
        };
        let draft = self.report.error(
            0,
            span,
            format!("`{keyword}` is for connections, and this rule opens none"),
        );
        match action {
            Action::Map(reference, Pool::One(value)) if reference.field.info().writable => {
                let (name, value) = (reference.field.info().name, value.of(self.text));
                draft.help(format!(
                    "begin the rule with `add-stateful`, or write every packet anew: `mod {name} {value}`"
                ));
            }
            _ => {
                draft.help("begin the rule with `add-stateful`");
            }
        }
        true
    }

    pub(super) fn map(
        &mut self,
        reference: &ast::FieldRef,
        pool: &Pool,
        span: Span,
        chosen: &mut Chosen,
    ) -> Option<Target> {
        let field = reference.field;
        let name = field.info().name;
        let domain = Domain::of(field).filter(|_| MAPPED.contains(&name));
        let Some(domain) = domain else {
            let draft = self.report.error(
                0,
                reference.span,
                format!("`{name}` cannot be mapped for a connection"),
            );
            if SHUFFLED.contains(&name) {
                draft.help(format!("write `shuffle {name}`"));
            } else {
                draft.help(format!("these can: {}", MAPPED.join(", ")));
            }
            return None;
        };
        self.choose_once(field, span, chosen);
        let pool = match pool {
            Pool::One(value) => self.pool(field, domain, std::slice::from_ref(value)),
            Pool::List(elements) => self.pool(field, domain, elements),
            Pool::Set(set) => self
                .sets
                .numbers(*set, field, domain, self.loader, self.report),
        }?;
        let size = pool.size();
        if size > MAX_POOL {
            self.report
                .error(0, span, "this pool is too large to choose from")
                .label(if size == u128::MAX {
                    "more than 2^127 values".to_owned()
                } else {
                    format!("{size} values")
                })
                .help("a pool has at most 4294967296 values: of IPv6 addresses a /96");
            return None;
        }
        Some(Target::Map { field, pool })
    }

    pub(super) fn shuffle(
        &mut self,
        reference: &ast::FieldRef,
        span: Span,
        chosen: &mut Chosen,
    ) -> Option<Target> {
        let field = reference.field;
        let name = field.info().name;
        if name == "tcp-opt-sack" {
            if let Some(first) = chosen.sack {
                self.report
                    .error(0, span, "`shuffle tcp-opt-sack` is written twice")
                    .also(0, first, "first here");
            }
            chosen.sack.get_or_insert(span);
            return None;
        }
        if !SHUFFLED.contains(&name) {
            let draft = self.report.error(
                0,
                reference.span,
                format!("`{name}` cannot be shuffled for a connection"),
            );
            if MAPPED.contains(&name) {
                draft.help(format!("choose from a pool: `map {name} 192.0.2.0/28`"));
            } else {
                draft.help(format!("these can: {}", SHUFFLED.join(", ")));
            }
            return None;
        }
        self.choose_once(field, span, chosen);
        Some(Target::Shuffle { field })
    }

    pub(super) fn rule_timeout(&mut self, duration: Span, span: Span, chosen: &mut Chosen) {
        if let Some((_, first)) = chosen.timeout {
            self.report.error(0, span, "a rule has one `timeout`").also(
                0,
                first,
                "the first is here",
            );
        }
        if let Some(ns) = self.duration(duration) {
            chosen.timeout.get_or_insert((ns, span));
        }
    }

    /// `mapping WORD`: RFC 4787 section 4.1.
    pub(super) fn mapping(&mut self, word: Span, span: Span, chosen: &mut Chosen) {
        self.one_each("mapping", span, chosen.mapping.map(|(_, first)| first));
        let independent = match self.of(word).to_ascii_lowercase().as_str() {
            "endpoint-independent" => true,
            "address-and-port-dependent" => false,
            other => {
                self.report
                    .error(0, word, format!("unknown mapping `{other}`"))
                    .help("write `mapping endpoint-independent`; without, a mapping depends on address and port");
                return;
            }
        };
        chosen.mapping.get_or_insert((independent, span));
    }

    /// `filtering WORD`: RFC 4787 section 5.
    pub(super) fn filtering(&mut self, word: Span, span: Span, chosen: &mut Chosen) {
        self.one_each("filtering", span, chosen.filtering.map(|(_, first)| first));
        let text = self.of(word).to_ascii_lowercase();
        let known = Filtering::NAMES.iter().find(|(name, _)| *name == text);
        match known {
            Some(&(_, filtering)) => {
                chosen.filtering.get_or_insert((filtering, span));
            }
            None => {
                let names = Filtering::NAMES.map(|(name, _)| name).join(", ");
                self.report
                    .error(0, word, format!("unknown filtering `{text}`"))
                    .help(format!("these are known: {names}"));
            }
        }
    }

    /// `helper NAME`, and what packets must be that it reads.
    pub(super) fn helper(
        &mut self,
        word: Span,
        span: Span,
        chosen: &mut Chosen,
    ) -> Option<Classes> {
        self.one_each("helper", span, chosen.helper.map(|(_, first)| first));
        let text = self.of(word).to_ascii_lowercase();
        if let Some(&(_, helper)) = Helper::NAMES.iter().find(|(name, _)| *name == text) {
            chosen.helper.get_or_insert((helper, span));
            return Some(match helper {
                Helper::Tftp => Classes::UDP,
            });
        }
        match NO_HELPERS.iter().find(|(name, _)| *name == text) {
            Some(&(_, instead)) => {
                let draft =
                    (self.report).error(0, word, format!("there is no helper for `{text}`"));
                if !instead.is_empty() {
                    draft.help(instead);
                }
            }
            None => {
                let names = Helper::NAMES.map(|(name, _)| name).join(", ");
                self.report
                    .error(0, word, format!("unknown helper `{text}`"))
                    .help(format!("these are known: {names}"));
            }
        }
        None
    }

    fn one_each(&mut self, keyword: &str, span: Span, first: Option<Span>) {
        if let Some(first) = first {
            self.report
                .error(0, span, format!("a rule has one `{keyword}`"))
                .also(0, first, "the first is here");
        }
    }

    /// What can only be said of all targets of a rule together.
    pub(super) fn judge_chosen(&mut self, chosen: &Chosen, targets: &[Target]) {
        let numbers = |&(field, _): &(Field, Span)| {
            matches!(field.info().name, "tcp-seq-num" | "tcp-ack-num")
        };
        if let Some(span) = chosen.sack
            && !chosen.fields.iter().any(numbers)
        {
            self.report
                .error(0, span, "SACK blocks are not shuffled by themselves")
                .help("they follow `shuffle tcp-seq-num` and `shuffle tcp-ack-num`: write these, and this may be left out");
        }
        let maps_source = |&(field, _): &(Field, Span)| field.info().name.ends_with("-saddr");
        if let Some((true, span)) = chosen.mapping
            && !chosen.fields.iter().any(maps_source)
        {
            self.report
                .error(
                    0,
                    span,
                    "this rule maps no source address, so it has no mappings",
                )
                .help("write `map ip-saddr ...` or `map ip6-saddr ...` beside it");
        }
        if let Some((filtering, span)) = chosen.filtering
            && filtering != Filtering::AddressAndPortDependent
            && !chosen.mapping.is_some_and(|(independent, _)| independent)
        {
            self.report
                .error(
                    0,
                    span,
                    "only endpoint-independent mappings can be sent to by others",
                )
                .help("write `mapping endpoint-independent` beside it");
        }
        for &(field, span) in &chosen.fields {
            let written = |target: &Target| matches!(target, Target::Set { field: other, .. } if *other == field);
            if targets.iter().any(written) {
                let name = field.info().name;
                self.report
                    .warning(
                        0,
                        span,
                        format!("`mod {name}` in the same rule writes over this"),
                    )
                    .help("remove one of them: `mod` comes last, in both directions");
            }
        }
    }

    fn choose_once(&mut self, field: Field, span: Span, chosen: &mut Chosen) {
        let name = field.info().name;
        if let Some(&(_, first)) = chosen.fields.iter().find(|(other, _)| *other == field) {
            self.report
                .error(0, span, format!("`{name}` is chosen twice in this rule"))
                .also(0, first, "first here")
                .help("a connection has one value for it: remove one of them");
            return;
        }
        chosen.fields.push((field, span));
    }

    fn pool(&mut self, field: Field, domain: Domain, words: &[Span]) -> Option<Arc<Ranges>> {
        let mut intervals = Vec::with_capacity(words.len());
        let mut ok = true;
        for &span in words {
            match value::interval(self.of(span), domain) {
                Ok(found) => intervals.push((found.lo, found.hi)),
                Err(problem) => {
                    ok = false;
                    self.value_problem(span, field, problem);
                }
            }
        }
        ok.then(|| Arc::new(Ranges::new(intervals)))
    }

    fn capacity(&mut self, span: Span) -> Option<u32> {
        let word = self.of(span);
        match value::number(word, 32, &[]) {
            Ok(count) if (1..=MAX_CONNECTIONS).contains(&count) => u32::try_from(count).ok(),
            _ => {
                self.report
                    .error(0, span, format!("`{word}` is not a number of connections"))
                    .help(format!("it is a number from 1 to {MAX_CONNECTIONS}"));
                None
            }
        }
    }

    fn states(&mut self, span: Span) -> &'static [FlowState] {
        let word = self.of(span);
        let known = FlowState::named(word);
        if known.is_empty() {
            let names = FlowState::ALL.map(FlowState::name);
            let near = nearest(word, names);
            let draft =
                self.report
                    .error(0, span, format!("`{word}` is not a state of connections"));
            match near {
                Some(near) => draft.help(format!("did you mean `{near}`?")),
                None => draft.help(format!("the states are {}", names.join(", "))),
            };
        }
        known
    }

    /// The least path MTU that an ICMP error of IPv4 may name.
    fn min_pmtu(&mut self, span: Span) -> Option<u16> {
        let bytes: Option<u16> = self.of(span).parse().ok();
        let known = bytes.filter(|bytes| (68..=1500).contains(bytes));
        if known.is_none() {
            let word = self.of(span);
            self.report
                .error(0, span, format!("`{word}` is not a number from 68 to 1500"))
                .help("IPv4 links carry 68 bytes at least (RFC 791), and 552 is the default; of IPv6 it is always 1280");
        }
        known
    }

    /// Minutes ahead of UTC.
    fn timezone(&mut self, span: Span) -> Option<i16> {
        match value::timezone(self.of(span)) {
            Ok(minutes) => Some(minutes),
            Err(problem) => {
                self.problem(span, problem);
                None
            }
        }
    }

    /// A duration above 0, in ns.
    fn duration(&mut self, span: Span) -> Option<u64> {
        match value::any_case(self.of(span), weir_value::duration) {
            Ok(Duration::ZERO) => {
                self.report
                    .error(0, span, "a connection lasts longer than no time")
                    .help("write a duration above 0");
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

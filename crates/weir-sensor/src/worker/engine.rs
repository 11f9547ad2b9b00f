//! Rules of an engine: loaded, compiled, with what parsers must fill for them and what logs say of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::app::{App, Asked, Frames, Said, Sums, Wanted};
use crate::buffer::Buffer;
use crate::config::{SensorConfig, Wants};
use crate::detect::{Build, Built, Decision, Match, Part, Ruleset, SequenceCounts, Sequencer};
use crate::load::{Book, BookError, empty_book, kept_book};
use crate::matcher;
use crate::output::eve::{EveOptions, RuleText};
use crate::packet::Direction;
use crate::rules::{
    Dialect, Expressions, Keep, LiveSets, LoadSettings, PacketCondition, Rule, SourceLocation,
};
use crate::script::Library;

/// Rules, ready to be used by any number of workers.
#[derive(Debug)]
pub struct Engine {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) texts: Vec<Arc<RuleText>>,
    pub(crate) wanted: Asked,
    pub(crate) filters: Vec<crate::rules::EventFilter>,
    /// Whether rules are asked of bodies that are not whole.
    pub(super) grows: bool,
    /// Which directions have rules about streams.
    pub(super) streams: [bool; 2],
    /// Applications whose encrypted part is not inspected.
    pub(super) opaque: [Option<App>; 2],
    /// No other engine of this process has it, and it is not 0: an address in memory may be given out again.
    pub(super) number: u64,
    /// What decides over flows, where that is done for each packet at once.
    sequencer: Option<Mutex<Sequencer>>,
    /// Rules have packets after their alerts logged.
    pub(crate) tags: bool,
    /// Sets that rules change; they outlive the engine.
    pub(crate) sets: Arc<LiveSets>,
    /// Rules have scripts: the last transaction of a flow is kept for them.
    pub(super) scripted: bool,
    /// Rules that are not there: refused, and those that require something else than this sensor.
    pub(crate) missing: [usize; 2],
}

/// A rule that was read and that detection cannot decide.
#[derive(Clone, Debug)]
pub struct Uncompiled {
    /// Where it was written.
    pub place: SourceLocation,
    /// Its number.
    pub sid: u32,
    /// Why.
    pub reason: String,
}

/// Rules while they are loaded: what detection makes of each, and what logs say of it. Its text and its conditions are not kept.
struct RuleStore<'a> {
    build: Build,
    options: &'a EveOptions,
    /// What stands before the value of a reference, by its kind.
    references: BTreeMap<String, String>,
    texts: Vec<Arc<RuleText>>,
    before: Option<Before<'a>>,
    /// Where no rule is.
    nowhere: SourceLocation,
}

/// Rules that were loaded before.
struct Before<'a> {
    engine: &'a Engine,
    /// Generator, number, and the place of the rule that has them.
    places: Vec<(u32, u32, u32)>,
}

impl<'a> Before<'a> {
    fn new(engine: &'a Engine) -> Before<'a> {
        let rules = (0..).zip(engine.ruleset.rules());
        let mut places: Vec<_> = rules.map(|(at, r)| (r.gid, r.sid, at)).collect();
        places.sort_unstable();
        Before { engine, places }
    }

    /// The place of the rule of this number.
    fn place(&self, rule: &Rule) -> Option<usize> {
        let number = (rule.gid, rule.sid);
        let found = (self.places).binary_search_by_key(&number, |(gid, sid, _)| (*gid, *sid));
        Some(self.places.get(found.ok()?)?.2 as usize)
    }
}

impl<'a> RuleStore<'a> {
    fn new(
        config: &'a SensorConfig,
        settings: &LoadSettings,
        before: Option<&'a Engine>,
    ) -> RuleStore<'a> {
        let rules = before.map_or(0, Engine::rules);
        // A few rules more do not make lists twice as large.
        let room = rules + rules / 32;
        let mut build = Build::new(Arc::clone(&settings.reputation), room);
        build.actions = config.actions;
        RuleStore {
            build,
            options: &config.logs.options,
            references: settings.references.clone(),
            texts: Vec::with_capacity(room),
            before: before.map(Before::new),
            nowhere: SourceLocation {
                file: Arc::from(""),
                line: 0,
            },
        }
    }
}

impl Keep for RuleStore<'_> {
    fn keep(&mut self, rule: Rule, expressions: &mut Expressions) {
        let before = self.before.as_ref();
        let before = before.and_then(|b| Some((b.engine, b.place(&rule)?)));
        let text = RuleText::new(&rule, self.options, &self.references);
        self.texts
            .push(match before.and_then(|(e, at)| e.texts.get(at)) {
                Some(before) if **before == text => Arc::clone(before),
                _ => Arc::new(text),
            });
        let before = before.map(|(engine, at)| (&*engine.ruleset, at));
        let nowhere = &self.nowhere;
        self.build.add(rule, expressions, before, |rule| {
            // Most of a rule: its conditions, and what only records say. Its line is another one when something is written above it.
            rule.groups = Vec::new();
            rule.metadata = Vec::new();
            rule.references = Vec::new();
            rule.place = nowhere.clone();
            rule.message.shrink_to_fit();
            rule.apps.shrink_to_fit();
            rule.packet.shrink_to_fit();
            rule.bits.shrink_to_fit();
        });
    }

    fn kept(&self, at: usize) -> Option<(&SourceLocation, &Rule)> {
        self.build.added(at)
    }
}

impl Engine {
    /// Loads files of rules, each of which is compiled when it is read; those that cannot be decided are returned, and the book with everything but the rules.
    ///
    /// What is the same in an engine that was loaded before is shared with it, so that both together need little more than one of them.
    ///
    /// # Errors
    /// A file cannot be read. Broken lines are listed, and the rest is loaded.
    pub fn load(
        config: &SensorConfig,
        dialect: Dialect,
        files: &[PathBuf],
        matcher: matcher::Engine,
        before: Option<&Engine>,
    ) -> Result<(Engine, Book, Vec<Uncompiled>), BookError> {
        let mut empty = empty_book(config, dialect, files)?;
        let mut expressions = Expressions::new(empty.settings.match_limit);
        if let Some(before) = before {
            let ruleset = &before.ruleset;
            if empty.settings.reputation == *ruleset.reputation() {
                empty.settings.reputation = Arc::clone(ruleset.reputation());
            }
            ruleset.remember(&mut expressions);
            empty.settings.sets = Arc::clone(&before.sets);
        }
        let store = RuleStore::new(config, &empty.settings, before);
        let (mut book, store, replaced) = kept_book(config, empty, files, store, expressions)?;
        let left_out = |at: usize| replaced.get(at).copied().unwrap_or(false);
        let (engine, uncompiled) = Engine::of(config, &mut book, store, left_out, matcher);
        Ok((engine, book, uncompiled))
    }

    /// Compiles the rules of a book, which has none then; those that cannot be decided are returned.
    pub fn new(
        config: &SensorConfig,
        book: &mut Book,
        matcher: matcher::Engine,
    ) -> (Engine, Vec<Uncompiled>) {
        let mut store = RuleStore::new(config, &book.settings, None);
        for rule in std::mem::take(&mut book.loaded.rules) {
            store.keep(rule, &mut book.loaded.expressions);
        }
        Engine::of(config, book, store, |_| false, matcher)
    }

    /// Of rules that were loaded, but for some.
    fn of(
        config: &SensorConfig,
        book: &mut Book,
        store: RuleStore<'_>,
        left_out: impl Fn(usize) -> bool,
        matcher: matcher::Engine,
    ) -> (Engine, Vec<Uncompiled>) {
        let none = Expressions::new(book.settings.match_limit);
        let expressions = std::mem::replace(&mut book.loaded.expressions, none);
        let RuleStore { build, texts, .. } = store;
        let Built {
            mut ruleset,
            refused,
            order,
        } = build.finish(left_out, expressions, matcher);
        ruleset.profile = config.profile_rules;
        let texts = order.iter().map(|at| Arc::clone(&texts[*at])).collect();
        let limit = |bytes: u64| match bytes {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let mut buffers = ruleset.buffers();
        if config.logs.options.http_body || config.logs.options.http_printable {
            buffers.insert(Buffer::HttpRequestBody);
            buffers.insert(Buffer::HttpResponseBody);
        }
        if config.logs.options.forwarded.is_some() {
            buffers.insert(Buffer::HttpHeaderRaw);
        }
        if config.logs.certificates.is_some() && ruleset.rules().iter().any(|r| r.certificates) {
            buffers.insert(Buffer::TlsCerts);
        }
        let of_frames = || Buffer::ALL.iter().filter(|b| b.frame().is_some());
        let frames = match config.logs.kinds.said.frames {
            Frames::All => {
                of_frames().for_each(|b| buffers.insert(*b));
                Frames::All
            }
            _ if of_frames().any(|b| buffers.has(*b)) => Frames::OfRules,
            _ => Frames::None,
        };
        // What scripts of outputs ask for; those of rules have said so already.
        let outputs = &config.logs.scripts;
        let of_outputs = outputs.iter().flat_map(|s| &s.script.needs.libraries);
        for buffer in of_outputs.clone().flat_map(|library| library.buffers()) {
            buffers.insert(*buffer);
        }
        let of_rules = ruleset.rules().iter().flat_map(|rule| &rule.scripts);
        let scripted = of_rules.clone().next().is_some();
        let of_rules = of_rules.flat_map(|s| &s.script.needs.libraries);
        let libraries: Vec<Library> = of_outputs.chain(of_rules).copied().collect();
        let sums_of_files = config.logs.calls(Wants::Files);
        // Sums that rules ask for, and those that records are to have.
        let mut asked = Sums::default();
        let mut keys = false;
        for rule in ruleset.rules() {
            for condition in &rule.packet {
                if let PacketCondition::FileSum(name, ..) = condition {
                    asked.md5 |= *name == "md5";
                    asked.sha1 |= *name == "sha1";
                    asked.sha256 |= *name == "sha256";
                }
                if let PacketCondition::Record(name, value, _) = condition {
                    keys |= name == "ssl_state" && value.contains("client_keyx");
                }
            }
        }
        let logged = config.logs.options.sums;
        let sums = Sums {
            md5: asked.md5 || logged.md5 || sums_of_files,
            sha1: asked.sha1 || logged.sha1 || sums_of_files,
            sha256: asked.sha256 || logged.sha256 || sums_of_files,
            magic: logged.magic || buffers.has(Buffer::FileMagic) || sums_of_files,
            kept: config.logs.store.as_ref().is_some_and(|store| {
                store.all || ruleset.rules().iter().any(|rule| rule.store.is_some())
            }),
        };
        let kinds = &config.logs.kinds;
        // What costs something is read for records where rules ask for it, or where it is configured.
        let fingerprints = |asked: Option<bool>, of: &[Buffer]| {
            asked.unwrap_or_else(|| of.iter().any(|b| buffers.has(*b)))
        };
        let said = Said {
            ja3: fingerprints(
                config.app.ja3,
                &[
                    Buffer::Ja3Hash,
                    Buffer::Ja3String,
                    Buffer::Ja3sHash,
                    Buffer::Ja3sString,
                ],
            ),
            ja4: config.app.ja4.unwrap_or(true),
            hassh: fingerprints(
                config.app.hassh,
                &[
                    Buffer::SshHassh,
                    Buffer::SshHasshString,
                    Buffer::SshHasshServer,
                    Buffer::SshHasshServerString,
                ],
            ),
            mail: kinds.said.mail || libraries.contains(&Library::Smtp),
            frames,
            ..kinds.said
        };
        let records = !libraries.is_empty()
            || !config.logs.eve.is_empty()
                && (kinds.files
                    || config.logs.options.app_fields
                    || kinds.apps.as_ref().is_none_or(|list| !list.is_empty()));
        let all = &book.loaded.refused;
        let skipped = all.iter().filter(|r| r.is_skipped()).count();
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let grows = ruleset.asks_growing();
        let ruleset = Arc::new(ruleset);
        let engine = Engine {
            missing: [all.len() - skipped + refused.len(), skipped],
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            texts,
            wanted: Asked {
                wanted: Wanted {
                    buffers,
                    request_body: limit(config.app.request_body),
                    response_body: limit(config.app.response_body),
                    decompressed: limit(config.app.decompressed),
                    records,
                    sums,
                    whole_files: asked.any(),
                    keys,
                    said,
                },
                http: Arc::clone(&config.app.http),
                switches: config.app.switches.clone(),
                limits: config.app.limits.clone(),
            },
            sequencer: (config.ips)
                .then(|| Mutex::new(Sequencer::new(Arc::clone(&ruleset), &book.filters))),
            filters: book.filters.clone(),
            streams: [Direction::ToServer, Direction::ToClient]
                .map(|d| ruleset.inspects_streams(d)),
            opaque: [
                (!config.app.encrypted_tls).then_some(App::Tls),
                (!config.app.encrypted_ssh).then_some(App::Ssh),
            ],
            grows,
            tags: ruleset.rules().iter().any(|rule| !rule.tags.is_empty()),
            scripted,
            sets: Arc::clone(&book.settings.sets),
            ruleset,
        };
        let uncompiled = refused
            .into_iter()
            .map(|u| Uncompiled {
                place: u.place,
                sid: u.sid,
                reason: u.reason,
            })
            .collect();
        (engine, uncompiled)
    }

    /// Decides a match over flows, where that is done for each packet at once.
    pub(super) fn decide(&self, found: &Match) -> Option<Decision> {
        let mut sequencer = self
            .sequencer
            .as_ref()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(sequencer.decide(found))
    }

    /// What was counted where matches are decided for each packet at once.
    pub(crate) fn decided(&self) -> Option<SequenceCounts> {
        let sequencer = self
            .sequencer
            .as_ref()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(sequencer.counts())
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.ruleset.len()
    }

    /// All rules, without their conditions and places, with the part of detection that decides each.
    pub fn parts(&self) -> impl Iterator<Item = (&Rule, Option<Part>)> {
        let rules = self.ruleset.rules().iter().enumerate();
        rules.map(|(index, rule)| (&**rule, self.ruleset.part(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Loader;

    /// Loads a text as files are loaded.
    fn load(text: &str, before: Option<&Engine>) -> Engine {
        let config = SensorConfig::from_settings(&crate::settings::Settings::default()).unwrap();
        let mut book = empty_book(&config, Dialect::Suricata, &[]).unwrap();
        let mut expressions = Expressions::default();
        if let Some(before) = before {
            before.ruleset.remember(&mut expressions);
        }
        let store = RuleStore::new(&config, &book.settings, before);
        let mut loader = Loader::with(&book.settings, store, expressions);
        loader.text("test", text.as_bytes());
        let (loaded, store, replaced) = loader.finish_kept();
        assert!(loaded.refused.len() == replaced.iter().filter(|r| **r).count());
        drop(book.loaded);
        book.loaded = loaded;
        let left_out = |at: usize| replaced[at];
        Engine::of(
            &config,
            &mut book,
            store,
            left_out,
            matcher::Engine::Prefilter,
        )
        .0
    }

    /// Of each rule, by its number: whether both engines have its record, its text and its expressions once.
    fn shared(a: &Engine, b: &Engine) -> Vec<(u32, [bool; 3])> {
        let found = |e: &Engine, sid: u32| e.ruleset.rules().iter().position(|r| r.sid == sid);
        let expressions = |e: &Engine, at: usize| {
            let mut list = Vec::new();
            e.ruleset
                .expressions_of(at, &mut |e| list.push(Arc::clone(e)));
            list
        };
        let rules = a.ruleset.rules().iter().enumerate();
        let shared = rules.filter_map(|(at, rule)| {
            let other = found(b, rule.sid)?;
            let (mine, theirs) = (expressions(a, at), expressions(b, other));
            let same = mine.len() == theirs.len()
                && mine.iter().zip(&theirs).all(|(a, b)| Arc::ptr_eq(a, b));
            let record = Arc::ptr_eq(rule, &b.ruleset.rules()[other]);
            let text = Arc::ptr_eq(&a.texts[at], &b.texts[other]);
            Some((rule.sid, [record, text, same]))
        });
        let mut shared: Vec<_> = shared.collect();
        shared.sort_unstable();
        shared
    }

    #[test]
    fn what_stays_of_rules_is_shared_and_what_changes_is_not() {
        let one = "alert tcp any any -> any any (msg:\"one\"; content:\"first\"; pcre:\"/a[0-9]+/\"; sid:1;)\n";
        let two = "alert http any any -> any 80 (msg:\"two\"; http.uri; pcre:\"/b[0-9]+/i\"; flowbits:set,x; sid:2;)\n";
        let first = load(&format!("{one}{two}"), None);
        // Other lines, another order, another bit before the one that was there.
        let other = "alert udp any any -> any any (msg:\"three\"; content:\"third\"; flowbits:isset,a; sid:3;)\n";
        let second = load(&format!("# new\n{other}\n{two}{one}"), Some(&first));
        assert_eq!(second.rules(), 3);
        assert_eq!(
            shared(&first, &second),
            [(1, [true; 3]), (2, [true; 3])],
            "nothing changed"
        );
        // The message of one and the expression of the other: what else they say is the same.
        let one = one.replace("\"one\"", "\"uno\"");
        let two = two.replace("b[0-9]", "c[0-9]");
        let third = load(&format!("{one}{two}"), Some(&second));
        assert_eq!(
            shared(&second, &third),
            [(1, [false, false, true]), (2, [true, true, false])]
        );
        let messages = third.ruleset.rules().iter().map(|r| r.message.as_str());
        assert_eq!(messages.collect::<Vec<_>>(), ["uno", "two"]);
        // Nothing of another rule that had the number before.
        let fourth = load(&one.replace("sid:1", "sid:2"), Some(&third));
        assert_eq!(shared(&third, &fourth), [(2, [false, false, false])]);
        assert_eq!(fourth.ruleset.expressions(), 1);
    }

    #[test]
    fn a_rule_that_a_later_revision_replaces_is_left_out() {
        let old = "drop tcp any any -> any any (msg:\"old\"; content:\"needle\"; sid:1; rev:1;)\n";
        let new = "alert tcp any any -> any any (msg:\"new\"; content:\"needle\"; sid:1; rev:2;)\n";
        let other = "alert tcp any any -> any any (msg:\"other\"; content:\"other\"; sid:2;)\n";
        let engine = load(&format!("{old}{other}{new}"), None);
        let messages: Vec<&str> = (engine.ruleset.rules().iter())
            .map(|r| r.message.as_str())
            .collect();
        assert_eq!(messages, ["other", "new"]);
        let texts: Vec<bool> = (engine.texts.iter())
            .map(|t| String::from_utf8_lossy(&t.fast).contains("new"))
            .collect();
        assert_eq!(texts, [false, true]);
    }
}

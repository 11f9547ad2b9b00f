//! What single sections become: functions through their kinds, objects on other hooks, and the maps they share. All that a kind or an
//! object has against a section is reported at the section's keys, or in the files they name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_functions::kind::{self, EdgePort, FunctionError, MAX_OUTS, Planned, Request, suggest};
use weir_functions::plan::MapPlan;
use weir_policy::ast::Span;
use weir_vm::Object;

use crate::config::{Function, Hook, Share};
use crate::edge::HookPlan;
use crate::objects;
use crate::planning::Planning;

impl Planning<'_> {
    /// `transmits`: packets that leave by a port can come to it.
    pub(crate) fn function(
        &mut self,
        function: &Function,
        ports: &[EdgePort],
        transmits: bool,
    ) -> Option<Planned> {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files: self.files,
            ports,
            transmits,
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
        if let Some(why) = objects::mismatch(definition, planned, &map.shared()) {
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

    pub(crate) fn hook(&mut self, hook: &Hook) -> Option<HookPlan> {
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

    pub(crate) fn unused_maps(&mut self) {
        let functions = self.config.functions.iter().flat_map(|one| &one.maps);
        let hooks = self.config.hooks.iter().flat_map(|one| &one.maps);
        let used: BTreeSet<&str> = functions
            .chain(hooks)
            .map(|(_, shared)| shared.value.as_str())
            .collect();
        for map in &self.config.maps {
            if !used.contains(map.name.value.as_str()) {
                let text = format!("unused map `{}`", map.name.value);
                self.report.warning(0, map.name.span, text).help(
                    "name it in `maps = { MAP_OF_THE_OBJECT = \"NAME\" }` of a function or a hook",
                );
            }
        }
    }
}

pub(crate) fn names_of(shares: &[Share]) -> BTreeMap<String, String> {
    let pairs = shares.iter();
    pairs
        .map(|(own, shared)| (own.value.clone(), shared.value.clone()))
        .collect()
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

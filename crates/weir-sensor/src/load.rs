//! From a configuration and names of files to rules: which files are read, with which variables, classes and reputation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::SensorConfig;
use crate::rules::{
    Classes, Dialect, EventFilter, Expressions, Features, Keep, LiveSets, LoadError, LoadSettings,
    Loaded, Loader, Refused, Reputation, SetFiles, Variables, configure, read_classes,
    read_filters, read_references, rule_files,
};

/// Rules with what belongs to them.
#[derive(Debug)]
pub struct Book {
    /// Rules, and those that were refused.
    pub loaded: Loaded,
    /// Thresholds and suppressions beside the rules.
    pub filters: Vec<EventFilter>,
    /// What they were read with.
    pub settings: LoadSettings,
    /// Lines of classes, thresholds and reputation that were refused.
    pub refused: Vec<Refused>,
    /// Where classes came from.
    pub classes: Option<PathBuf>,
    /// Files beside the rules that the configuration names and that cannot be read: which part of the sensor wants them, and why not.
    pub missing: Vec<(&'static str, String)>,
}

/// Why rules cannot be loaded at all.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file of rules cannot be read.
    #[error(transparent)]
    Rules(#[from] LoadError),
    /// A pattern that no file has the name of.
    #[error("{}: no file has a name like this", path.display())]
    NoMatch {
        /// The pattern.
        path: PathBuf,
    },
    /// Reputation lists without names of their categories.
    #[error(
        "reputation-files: reputation-categories-file, which names the categories of these lists, is missing"
    )]
    Categories,
    /// A set that cannot be loaded.
    #[error("datasets.{0}: {1}")]
    Set(String, String),
    /// Reputation that cannot be read.
    #[error("{0}")]
    Reputation(String),
}

/// The files that a name means: itself, what a pattern with `*` or `?` in its last part finds, or the rule files of a folder.
///
/// # Errors
/// There is none.
pub fn named(path: &Path) -> Result<Vec<PathBuf>, BookError> {
    let pattern = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    if path.exists() || !pattern.contains(['*', '?']) {
        let read = |error| BookError::Read {
            path: path.to_path_buf(),
            error,
        };
        // The reason is said here, with the name, rather than by whoever reads it.
        let about = std::fs::metadata(path).map_err(read)?;
        return match about.is_dir() {
            true => Ok(rule_files(path)?),
            false => Ok(vec![path.to_path_buf()]),
        };
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(folder).map_err(|error| BookError::Read {
        path: folder.to_path_buf(),
        error,
    })?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|e| {
            e.file_name()
                .to_str()
                .is_some_and(|name| is_like(name.as_bytes(), pattern.as_bytes()))
        })
        .map(|e| folder.join(e.file_name()))
        .filter(|p| p.is_file())
        .collect();
    found.sort();
    match found.is_empty() {
        true => Err(BookError::NoMatch {
            path: path.to_path_buf(),
        }),
        false => Ok(found),
    }
}

/// Whether a name is like a pattern, in which `*` stands for any bytes and `?` for one.
fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    let (mut n, mut p) = (0, 0);
    // Where to go on after the last `*`, if what follows it does not fit.
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((n, p + 1));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                n += 1;
                p += 1;
            }
            _ => match back {
                Some((from, after)) => {
                    back = Some((from + 1, after));
                    (n, p) = (from + 1, after);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Loads rule files with all that the configuration says about rules.
///
/// # Errors
/// A file cannot be read. Broken lines are listed, and the rest is loaded.
pub fn book(config: &SensorConfig, dialect: Dialect, files: &[PathBuf]) -> Result<Book, BookError> {
    let empty = empty_book(config, dialect, files)?;
    let mut loader = Loader::new(&empty.settings);
    read(&mut loader, config, files)?;
    let loaded = loader.finish();
    Ok(Book { loaded, ..empty })
}

/// The same for somebody who keeps what is read of each rule: the book without rules, and which of them a later revision replaced.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn kept_book<K: Keep>(
    config: &SensorConfig,
    empty: Book,
    files: &[PathBuf],
    keep: K,
    expressions: Expressions,
) -> Result<(Book, K, Vec<bool>), BookError> {
    let mut loader = Loader::with(&empty.settings, keep, expressions);
    read(&mut loader, config, files)?;
    let (loaded, keep, replaced) = loader.finish_kept();
    Ok((Book { loaded, ..empty }, keep, replaced))
}

/// Reads the rules of the firewall, then those of the inspection.
fn read<K: Keep>(
    loader: &mut Loader<'_, K>,
    config: &SensorConfig,
    files: &[PathBuf],
) -> Result<(), LoadError> {
    loader.firewall(true);
    for file in config.firewall.iter().flatten() {
        loader.file(file)?;
    }
    loader.firewall(false);
    for file in files {
        loader.file(file)?;
    }
    Ok(())
}

/// Everything beside the rules of these files.
pub(crate) fn empty_book(
    config: &SensorConfig,
    dialect: Dialect,
    files: &[PathBuf],
) -> Result<Book, BookError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| BookError::Read {
            path: path.to_path_buf(),
            error,
        })
    };
    let mut refused = Vec::new();
    let mut classes = Classes::default();
    let folder = files.first().and_then(|f| f.parent());
    let beside = folder.map(|folder| folder.join("classification.config"));
    let place = config
        .classification
        .clone()
        .or_else(|| beside.filter(|path| path.is_file()));
    // Rules are loaded without classes and addresses of references: alerts then say less.
    let mut missing = Vec::new();
    let mut beside_rules = |part, path: &Path| match std::fs::read(path) {
        Ok(text) => Some(text),
        Err(error) => {
            let path = path.display();
            missing.push((part, format!("could not open: \"{path}\": {error}")));
            None
        }
    };
    let text = place.as_deref();
    let text = text.and_then(|path| Some((path, beside_rules("classification-config", path)?)));
    if let Some((path, text)) = text {
        let (list, bad) = read_classes(&path.display().to_string(), &text);
        classes = list;
        refused.extend(bad);
    }
    let mut references = BTreeMap::new();
    if config.logs.options.references {
        let beside = folder.map(|folder| folder.join("reference.config"));
        let named = config.references.clone();
        let path = named.or_else(|| beside.filter(|path| path.is_file()));
        let text = path.and_then(|path| Some((beside_rules("reference-config", &path)?, path)));
        if let Some((text, path)) = text {
            let (list, bad) = read_references(&path.display().to_string(), &text);
            references = list;
            refused.extend(bad);
        }
    }
    let mut variables = Variables::conventional();
    for (name, value) in &config.addresses {
        variables.addresses.insert(name.clone(), value.clone());
    }
    for (name, value) in &config.ports {
        variables.ports.insert(name.clone(), value.clone());
    }
    let mut reputation = Reputation::default();
    if !config.reputation.is_empty() {
        let Some(categories) = &config.reputation_categories else {
            return Err(BookError::Categories);
        };
        let (scores, bad) = Reputation::load(categories, &config.reputation)
            .map_err(|e| BookError::Reputation(e.to_string()))?;
        reputation = scores;
        refused.extend(bad);
    }
    let mut filters = Vec::new();
    if let Some(path) = &config.thresholds {
        let (list, bad) = read_filters(&path.display().to_string(), &read(path)?, &variables);
        filters = list;
        refused.extend(bad);
    }
    let usual = LoadSettings::default();
    let steps = config
        .regex_steps
        .map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let sets = LiveSets::default();
    for one in &config.sets.list {
        let text = match &one.load {
            Some(path) if path.exists() || !one.optional => read(path)?,
            _ => Vec::new(),
        };
        let memory = one.memory.or(config.sets.memory);
        let memory = memory.unwrap_or(usual.set_memory);
        let of = (one.name.as_str(), one.kind.as_str());
        configure(&sets, of, &text, memory, one.save.clone())
            .map_err(|why| BookError::Set(one.name.clone(), why))?;
    }
    let settings = LoadSettings {
        dialect,
        variables,
        classes,
        references,
        reputation: Arc::new(reputation),
        match_limit: steps.unwrap_or(usual.match_limit),
        features: Features {
            ja3: config.app.ja3 != Some(false),
            ja4: config.app.ja4 != Some(false),
        },
        stores: config.logs.store.is_some(),
        certificates: config.logs.certificates.is_some(),
        sets: Arc::new(sets),
        set_files: SetFiles {
            folder: config.data_folder.clone(),
            read_only: !config.sets.write,
            anywhere: config.sets.anywhere,
        },
        set_memory: config.sets.memory.unwrap_or(usual.set_memory),
        scripts: config.scripts,
        folder: config.rule_folder.clone(),
        ..usual
    };
    Ok(Book {
        loaded: Loader::new(&settings).finish(),
        filters,
        settings,
        refused,
        classes: place,
        missing,
    })
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn patterns() {
        for (name, pattern, expected) in [
            ("a.rules", "*.rules", true),
            ("a.rules", "a*", true),
            ("a.rules", "?.rul*s", true),
            ("a.rule", "*.rules", false),
            ("ab.rules", "?.rules", false),
            ("aXbXc", "a*X?", true),
        ] {
            assert_eq!(
                is_like(name.as_bytes(), pattern.as_bytes()),
                expected,
                "{name} {pattern}"
            );
        }
    }
}

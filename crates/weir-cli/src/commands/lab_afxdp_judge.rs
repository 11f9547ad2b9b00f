//! `weir lab afxdp`, the half that judges: a sweep's results to clusters, effects, a report and a profile. Needs no privileges.
//!
//! Exit status 0 if it was judged; with `--compare`, 1 if the two sweeps do not agree; 2 for results that are none.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::afxdp::Beside;
use weir_lab::afxdp::cluster::{Comparison, Features, compare};
use weir_lab::afxdp::density::Bandwidth;
use weir_lab::afxdp::judgement::{Judgement, Options, ResultsError, judge, read_results};
use weir_lab::afxdp::profile::{self, Profile, ProfileError};
use weir_lab::afxdp::recommend::{ChangedAdvice, changed};
use weir_lab::afxdp::report;
use weir_lab::afxdp::results::Results;

use crate::failure::Failure;
use crate::output;

/// How results are judged, and what becomes of the judgement.
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// Judge the results of an earlier sweep (results.json) instead of running one
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["document", "dry_run", "show", "restore"])]
    pub(crate) from: Option<PathBuf>,
    /// Compare the best clusters of two sweeps (results.json); exit with 1 unless they share 0.8 of their members and the same relevant parameters
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["from", "recommend", "document", "dry_run", "show", "restore"])]
    pub(crate) compare: Option<Vec<PathBuf>>,
    /// What configurations are clustered by
    #[arg(long, value_enum, default_value = "calm")]
    pub(crate) features: FeatureName,
    /// So many clusters, instead of as many as the criteria say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=10))]
    pub(crate) clusters: Option<u8>,
    /// Bandwidth of densities
    #[arg(long, value_enum, default_value = "scott")]
    pub(crate) bandwidth: BandwidthName,
    /// Write the best configurations for latency, throughput and CPU economy into a profile, which `weir xsk --profile measured` uses
    #[arg(long)]
    pub(crate) recommend: bool,
    /// The profile's file [default: /etc/weir/afxdp.toml for root, else $XDG_CONFIG_HOME/weir/afxdp.toml]
    #[arg(long, value_name = "FILE", requires = "recommend")]
    pub(crate) profile_out: Option<PathBuf>,
}

/// What configurations are clustered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FeatureName {
    /// Mean, median, deviation and quartiles, without what is beyond each run's p99
    Calm,
    /// Mean, median, deviation and quartiles
    Paper,
    /// Minimum and maximum as well: the paper's failed first try
    All,
}

/// Bandwidth of densities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BandwidthName {
    /// n^(-1/5)
    Scott,
    /// (3n/4)^(-1/5)
    Silverman,
}

impl JudgeArgs {
    fn options(&self) -> Options {
        Options {
            features: match self.features {
                FeatureName::Calm => Features::Calm,
                FeatureName::Paper => Features::Paper,
                FeatureName::All => Features::All,
            },
            clusters: self.clusters.map(usize::from),
            bandwidth: match self.bandwidth {
                BandwidthName::Scott => Bandwidth::Scott,
                BandwidthName::Silverman => Bandwidth::Silverman,
            },
            ..Options::default()
        }
    }

    /// Does what needs no sweep. None: a sweep is to be run, and [`JudgeArgs::finish`] called with its results.
    pub(crate) fn without_sweep(
        &self,
        out: Option<&Path>,
        json: bool,
    ) -> Result<Option<ExitCode>, Failure> {
        if let Some(files) = &self.compare {
            return self.run_compare(files, json).map(Some);
        }
        let Some(from) = &self.from else {
            return Ok(None);
        };
        let results = read_results(from).map_err(unreadable)?;
        let judgement = self.judge(&results);
        if json {
            output::json(&judgement)?;
        }
        self.finish(&judgement, out, json)?;
        Ok(Some(ExitCode::SUCCESS))
    }

    /// Judges results as these arguments say.
    pub(crate) fn judge(&self, results: &Results) -> Judgement {
        judge(results, &self.options())
    }

    /// Which cells are measured under load (two of each cluster) and over rows of forwarders (the best and the worst of those that count).
    pub(crate) fn beside(&self, results: &Results) -> Beside {
        let judgement = self.judge(results);
        Beside {
            load: judgement.for_load(),
            chains: judgement.for_chains(),
        }
    }

    /// Shows a judgement unless it is quiet, and writes what is wanted.
    pub(crate) fn finish(
        &self,
        judgement: &Judgement,
        out: Option<&Path>,
        quiet: bool,
    ) -> Result<(), Failure> {
        if !quiet {
            output::out(&report::summary(judgement))?;
        }
        if let Some(folder) = out {
            for file in report::write_report(judgement, folder).map_err(Failure::failed)? {
                output::tell(&format!("wrote {}\n", file.display()));
            }
        }
        if self.recommend {
            self.write_profile(judgement)?;
        }
        Ok(())
    }

    fn write_profile(&self, judgement: &Judgement) -> Result<(), Failure> {
        let Some(profile) = Profile::of(judgement) else {
            return Err(Failure::failed(
                "nothing can be recommended, so no profile was written: no valid cell was measured",
            ));
        };
        let path = match &self.profile_out {
            Some(path) => path.clone(),
            None => profile::place_to_write(rustix::process::geteuid().is_root(), environment)
                .map_err(failure)?,
        };
        profile.write(&path).map_err(failure)?;
        output::tell(&format!(
            "wrote {}; `weir xsk --profile {}` uses it\n",
            path.display(),
            match self.profile_out {
                Some(_) => path.display().to_string(),
                None => "measured".to_owned(),
            }
        ));
        Ok(())
    }

    fn run_compare(&self, files: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
        let [first, second] = files else {
            return Err(Failure::usage("--compare takes two files"));
        };
        let judged = |path: &Path| {
            let results = read_results(path).map_err(unreadable)?;
            Ok::<_, Failure>(judge(&results, &self.options()))
        };
        let (a, b) = (judged(first)?, judged(second)?);
        let found = compare(&a.clustering, &b.clustering);
        let advice = changed(&a.recommendation, &b.recommendation);
        if json {
            output::json(&Compared {
                clusters: &found,
                advice: &advice,
            })?;
        } else {
            let names = [first, second].map(|path| path.display().to_string());
            let names = [names[0].as_str(), names[1].as_str()];
            output::out(&report::comparison(&found, &advice, names))?;
        }
        Ok(ExitCode::from(u8::from(!found.agrees())))
    }
}

/// What `--compare --json` prints.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    clusters: &'a Comparison,
    /// Goals for which the advice changed.
    advice: &'a [ChangedAdvice],
}

/// The environment, as profiles' places want it.
pub(crate) fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The profile that `--profile` names: `measured`, or a file.
pub(crate) fn named_profile(name: &Path) -> Result<(PathBuf, Profile), Failure> {
    let found = if name == Path::new("measured") {
        Profile::measured(&profile::places(environment))
    } else {
        Profile::read(name).map(|profile| (name.to_owned(), profile))
    };
    found.map_err(failure)
}

/// A profile that cannot be used is a mistake of configuration; one that cannot be written is not.
pub(crate) fn failure(error: ProfileError) -> Failure {
    match error {
        ProfileError::Write { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    }
}

fn unreadable(error: ResultsError) -> Failure {
    Failure::usage(error)
}

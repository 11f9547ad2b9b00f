//! `weir net store`: the networks of many edges in etcd. What is written is checked before as one document with what is there.
//!
//! Exit status 2: the document or a name is wrong, and nothing was written; 1: the store refused, or an edge does not run what it says.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_agent::Settings;
use weir_network::Diff;
use weir_runtime::history::Author;
use weir_runtime::networks::Record;
use weir_runtime::workloads::{Workload, section};
use weir_store::catalogue::{Catalogue, Plan};
use weir_store::{
    Client, Compare, Op, Parts, Sizes, Standing, StoreError, layout, next_generation,
};

use super::names::workload_of;
use crate::args::net::{StoreArgs, StoreCommand, StoreWorkloadCommand};
use crate::commands::edge::networks::columns;
use crate::failure::Failure;
use crate::output;

/// How often a change that another command crossed is tried.
const TRIES: usize = 5;

/// The pause between two looks at edges: the first, and the longest.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            StoreError::File { .. } => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

pub(super) fn run(args: &StoreArgs, as_json: bool) -> Result<ExitCode, Failure> {
    let mut store = Store::open(&args.config)?;
    match &args.command {
        StoreCommand::Push {
            document,
            force,
            dry_run,
            wait,
        } => {
            let pushed = store.push(document, *force, *dry_run)?;
            show_push(&pushed, *dry_run, as_json)?;
            if let Some(wait) = wait {
                return store.wait(*wait, as_json);
            }
        }
        StoreCommand::Diff { document } => {
            let pushed = store.push(document, true, true)?;
            show_push(&pushed, true, as_json)?;
        }
        StoreCommand::Status { wait } => {
            return store.wait(wait.unwrap_or_default(), as_json);
        }
        StoreCommand::Export { edge } => {
            let catalogue = store.read()?;
            let text = match edge {
                None => catalogue.document()?,
                Some(edge) => {
                    known(&catalogue, edge)?;
                    catalogue.document_of_edge(edge)?
                }
            };
            output::out(&text)?;
        }
        StoreCommand::Workload(command) => {
            let revision = store.change(command)?;
            show_change(command.workload(), revision, as_json)?;
        }
        StoreCommand::Accept => store.accept(as_json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A client, and what it waits with.
pub(super) struct Store {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// What a push wrote, or would write.
struct Pushed {
    diff: Diff,
    /// `None`: there was nothing to write.
    sizes: Option<Sizes>,
    tenants: Vec<String>,
    version: u64,
}

impl Store {
    pub(super) fn open(folder: &Path) -> Result<Store, Failure> {
        let settings = Settings::of(folder)?;
        let Some(store) = settings.store else {
            return Err(Failure::Usage(format!(
                "{}/agent.toml has no section [store]: name the members of etcd there, `endpoints = [\"https://HOST:2379\"]`, and `ca`",
                folder.display()
            )));
        };
        Ok(Store {
            client: Client::new(&store)?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(Failure::failed)?,
        })
    }

    pub(super) fn read(&mut self) -> Result<Catalogue, Failure> {
        Ok(self.runtime.block_on(Catalogue::read(&mut self.client))?)
    }

    fn write(&mut self, plan: &Plan) -> Result<Sizes, StoreError> {
        self.runtime
            .block_on(weir_store::write(&mut self.client, plan))
    }

    fn push(&mut self, path: &Path, force: bool, dry_run: bool) -> Result<Pushed, Failure> {
        let record = Record::of_file(path)?;
        let mut tries = 0;
        loop {
            let catalogue = self.read()?;
            let (plan, pushed) = planned(&catalogue, path, &record, force)?;
            if dry_run || plan.is_empty() {
                return Ok(pushed);
            }
            tries += 1;
            match self.write(&plan) {
                Ok(sizes) => {
                    return Ok(Pushed {
                        sizes: Some(sizes),
                        ..pushed
                    });
                }
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Changes a workload: the revision that was written; `None`: there was nothing to change.
    pub(super) fn change(
        &mut self,
        command: &StoreWorkloadCommand,
    ) -> Result<Option<i64>, Failure> {
        let mut tries = 0;
        loop {
            let catalogue = self.read()?;
            let plan = changed(&catalogue, command)?;
            if plan.is_empty() {
                return Ok(None);
            }
            tries += 1;
            match self.write(&plan) {
                Ok(sizes) => return Ok(Some(sizes.revision)),
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn accept(&mut self, as_json: bool) -> Result<(), Failure> {
        let catalogue = self.read()?;
        let Some(mut store) = catalogue.store()? else {
            return Err(Failure::Usage(
                "the store is empty: push the documents of all tenants before edges may remove what it lacks".to_owned(),
            ));
        };
        store.accepted = next_generation(store.accepted);
        let held: usize = catalogue.standing()?.iter().map(|one| one.held).sum();
        let revision = catalogue
            .entries
            .get(layout::STORE)
            .map_or(0, |(_, revision)| *revision);
        let plan = Plan {
            compare: vec![Compare::Revision(layout::STORE.to_owned(), revision)],
            steps: vec![vec![Op::Put(
                layout::STORE.to_owned(),
                serde_json::to_vec(&store).map_err(Failure::failed)?,
            )]],
            tenants: Vec::new(),
        };
        self.write(&plan)?;
        match as_json {
            true => output::json(&json!({ "accepted": store.accepted, "held": held }))?,
            false => output::out(&format!(
                "accepted: edges remove {held} entries that this store lacks\n"
            ))?,
        }
        Ok(())
    }

    /// Shows how all edges stand when they run what the store says, or when the time is over.
    fn wait(&mut self, limit: Duration, as_json: bool) -> Result<ExitCode, Failure> {
        let begun = Instant::now();
        let mut pause = LOOK;
        loop {
            let catalogue = self.read()?;
            let edges = catalogue.standing()?;
            let is_converged = edges.iter().all(Standing::is_settled);
            // Without entries no edge differs, and none runs what was declared.
            let is_empty = catalogue.store()?.is_none();
            if is_empty && begun.elapsed() >= limit {
                return Err(Failure::Failed(
                    "the store is empty: nothing was pushed yet, or it was wiped. Edges keep what they run; `weir net store push FILE` declares their networks"
                        .to_owned(),
                ));
            }
            if (is_converged && !is_empty) || begun.elapsed() >= limit {
                show_status(&catalogue, &edges, begun.elapsed(), as_json)?;
                return Ok(match is_converged {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::from(1),
                });
            }
            std::thread::sleep(pause.min(limit.saturating_sub(begun.elapsed())));
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

/// What a document writes, checked as one with everything that is there.
fn planned(
    catalogue: &Catalogue,
    path: &Path,
    record: &Record,
    force: bool,
) -> Result<(Plan, Pushed), Failure> {
    let mut parts = weir_store::split(&record.text).map_err(Failure::usage)?;
    let shown = path.display();
    if parts.tenants.is_empty() && parts.edges.is_empty() {
        return Err(Failure::Usage(format!(
            "{shown} declares neither tenants nor edges: not a document of networks"
        )));
    }
    if !parts.edges.is_empty() {
        // The document alone is checked first, because its messages then have the lines of the file.
        let (_, warnings) = record.check()?;
        output::tell(&warnings.render(output::stderr_has_color()));
    }
    carry(&mut parts, record)?;
    // Which links leave an edge is known of the checked document only, and what a link has as identifier does not change that.
    let merged = merged(catalogue, &parts)?;
    let (checked, _) = merged.check()?;
    let mut links = Vec::new();
    for network in &parts.networks {
        let leaves = checked.links_that_leave(&network.name);
        links.push(leaves.ok_or_else(|| {
            Failure::Usage(format!(
                "network {}: a chain leads to another edge, and the store cannot give its links identifiers: set `home` of its functions to the edge of the workloads",
                network.name
            ))
        })?);
    }
    catalogue
        .identify(&mut parts.networks, &links)
        .map_err(Failure::usage)?;
    let author = Author::of_process().user;
    let plan = catalogue
        .push(&parts, &author, force)?
        .map_err(Failure::usage)?;
    let after = catalogue.after(&plan).document()?;
    let after = Record::of_text("the store with this document", after);
    drop(after.check()?);
    let before = Record::of_text("the store", catalogue.document()?).parse()?;
    let diff = weir_network::diff(&before, &after.parse()?);
    let pushed = Pushed {
        diff,
        sizes: None,
        tenants: parts.tenants,
        version: parts.version,
    };
    Ok((plan, pushed))
}

/// Puts the files beside a document that its functions name into it: edges do not have them.
fn carry(parts: &mut Parts, record: &Record) -> Result<(), Failure> {
    for file in record.named_files()? {
        let shown = file.name.display();
        let wrong = |why: String| {
            Failure::Usage(format!(
                "network {}: the file `{shown}` {why}",
                file.network
            ))
        };
        let bytes = file
            .content
            .map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            wrong(format!("is not text: byte {at} is not UTF-8"))
        })?;
        let name = file
            .name
            .to_str()
            .ok_or_else(|| wrong("has no UTF-8 name".to_owned()))?;
        if let Some(network) = parts
            .networks
            .iter_mut()
            .find(|one| one.name == file.network)
        {
            network.carry(name, &text);
        }
    }
    Ok(())
}

/// The store with a document in it, before identifiers are given.
fn merged(catalogue: &Catalogue, parts: &Parts) -> Result<Record, Failure> {
    let plan = catalogue.push(parts, "", true)?.map_err(Failure::usage)?;
    let text = catalogue.after(&plan).document()?;
    Ok(Record::of_text("the store with this document", text))
}

/// What a command on a workload writes, checked as the document of its edge.
fn changed(catalogue: &Catalogue, command: &StoreWorkloadCommand) -> Result<Plan, Failure> {
    let workload = command.workload();
    let (network, name) = workload_of(workload)?;
    let networks = catalogue.networks();
    if !networks.contains(network) {
        let names: Vec<&str> = networks.iter().map(String::as_str).collect();
        return Err(Failure::Usage(format!(
            "no network named `{network}` in the store; available: {}",
            names.join(", ")
        )));
    }
    let before = catalogue.workload(network, name)?;
    let missing = || {
        Failure::Usage(format!(
            "no workload `{workload}` in the store; available: {}",
            catalogue.workloads(network).join(", ")
        ))
    };
    let to = match command {
        StoreWorkloadCommand::Add {
            subnet,
            on,
            device,
            address,
            mac,
            group,
            ..
        } => {
            let one = Workload {
                network: network.to_owned(),
                name: name.to_owned(),
                subnet: subnet.clone(),
                device: device.clone(),
                addresses: address.clone(),
                mac: mac.map(|mac| mac.to_string()),
                edge: Some(on.clone()),
                groups: group.clone(),
            };
            Some((section(&one, on), on.clone()))
        }
        StoreWorkloadCommand::Move { to, device, .. } => {
            let before = before.as_ref().ok_or_else(missing)?;
            if to.is_none() && device.is_none() {
                return Err(Failure::usage(
                    "where to? Name an edge with --to, or an interface with --device",
                ));
            }
            let edge = to.clone().unwrap_or_else(|| before.edge.clone());
            let mut keys = vec![("edge", edge.as_str())];
            keys.extend(device.as_deref().map(|device| ("device", device)));
            let text = weir_store::with_keys(&before.text, &keys).map_err(Failure::failed)?;
            Some((text, edge))
        }
        StoreWorkloadCommand::Groups { group, .. } => {
            let before = before.as_ref().ok_or_else(missing)?;
            let text = weir_store::with_groups(&before.text, group).map_err(Failure::failed)?;
            Some((text, before.edge.clone()))
        }
        StoreWorkloadCommand::Delete { .. } => {
            before.as_ref().ok_or_else(missing)?;
            None
        }
    };
    if let Some((_, edge)) = &to {
        known(catalogue, edge)?;
    }
    let edge = to.as_ref().map(|(_, edge)| edge.clone());
    let plan = catalogue.change(network, name, to)?;
    if let (StoreWorkloadCommand::Add { .. }, Some(_), false) = (command, &before, plan.is_empty())
    {
        return Err(Failure::Usage(format!(
            "workload {workload} is in the store, with other values: `weir net store workload move` or `delete` it first"
        )));
    }
    let after = catalogue.after(&plan);
    if let Some(edge) = edge.or(before.map(|one| one.edge)) {
        let text = after.document_of_edge(&edge)?;
        drop(Record::of_text(&format!("the networks of edge {edge}"), text).check()?);
    }
    Ok(plan)
}

fn known(catalogue: &Catalogue, edge: &str) -> Result<(), Failure> {
    let edges = catalogue.edges();
    match edges.contains(edge) {
        true => Ok(()),
        false => {
            let names: Vec<&str> = edges.iter().map(String::as_str).collect();
            Err(Failure::Usage(format!(
                "no edge named `{edge}` in the store; available: {}",
                names.join(", ")
            )))
        }
    }
}

fn show_change(workload: &str, revision: Option<i64>, as_json: bool) -> Result<(), Failure> {
    match (revision, as_json) {
        (None, true) => output::json(&json!({ "workload": workload, "changed": false }))?,
        (None, false) => output::out("nothing to change\n")?,
        (Some(revision), true) => {
            output::json(&json!({ "workload": workload, "changed": true, "revision": revision }))?
        }
        (Some(revision), false) => output::out(&format!(
            "{workload}: written as revision {revision}; `weir net store status --wait 10s` waits for the edges\n"
        ))?,
    }
    Ok(())
}

fn show_push(pushed: &Pushed, dry_run: bool, as_json: bool) -> Result<(), Failure> {
    let is_same = pushed.diff.is_empty() && (dry_run || pushed.sizes.is_none());
    if as_json {
        let mut value = json!({
            "tenants": pushed.tenants,
            "version": pushed.version,
            "changed": !is_same,
            "difference": pushed.diff.to_string(),
        });
        if let Some(sizes) = &pushed.sizes {
            value["entries"] = json!(sizes.entries);
            value["transactions"] = json!(sizes.transactions);
            value["revision"] = json!(sizes.revision);
        }
        return Ok(output::json(&value)?);
    }
    let mut text = pushed.diff.to_string();
    match &pushed.sizes {
        Some(sizes) => text.push_str(&format!(
            "pushed version {} of {}: {} entries, revision {}\n",
            pushed.version,
            match pushed.tenants.as_slice() {
                [] => "the edges".to_owned(),
                names => names.join(", "),
            },
            sizes.entries,
            sizes.revision
        )),
        None if is_same => text.push_str("the store says the same\n"),
        None => {}
    }
    Ok(output::out(&text)?)
}

fn show_status(
    catalogue: &Catalogue,
    edges: &[Standing],
    waited: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let tenants = catalogue.tenants()?;
    if as_json {
        let converged = edges.iter().all(Standing::is_settled);
        return Ok(output::json(&json!({
            "revision": catalogue.header.revision,
            "converged": converged,
            "waited_ms": waited.as_millis() as u64,
            "edges": edges,
            "tenants": tenants,
        }))?);
    }
    let mut text = format!("store: revision {}\n", catalogue.header.revision);
    let mut rows = vec![["tenant", "version", "author", "document"].map(str::to_owned)];
    for (name, one) in &tenants {
        let state = match one.complete {
            true => "complete",
            false => "incomplete: push it again",
        };
        rows.push([
            name.clone(),
            one.version.to_string(),
            one.author.clone(),
            state.to_owned(),
        ]);
    }
    text.push_str(&columns(&rows));
    let mut rows = vec![["edge", "networks", "agent", "state"].map(str::to_owned)];
    for one in edges {
        let state = if one.converged {
            "applied"
        } else {
            "not applied"
        };
        rows.push([
            one.edge.clone(),
            one.networks.to_string(),
            one.stage.name().to_owned(),
            state.to_owned(),
        ]);
    }
    text.push_str(&columns(&rows));
    for one in edges {
        if let Some(why) = &one.why {
            text.push_str(&format!("{}: {}\n", one.edge, why.trim_end()));
        }
    }
    Ok(output::out(&text)?)
}

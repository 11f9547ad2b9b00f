//! Writing a plan: one transaction where it fits, else several, of which each leaves something that every edge can live with.

use std::collections::BTreeSet;

use crate::catalogue::Plan;
use crate::entry::written;
use crate::etcd::{Client, Compare, MOST_BYTES, MOST_OPERATIONS, Op};
use crate::http::StoreError;
use crate::layout;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Entries.
    pub entries: usize,
    /// Transactions.
    pub transactions: usize,
    /// The store's revision after it.
    pub revision: i64,
}

/// Writes a plan. With more entries or bytes than a transaction holds, additions come first, then what makes them known, then removals; the tenant's entry says
/// until the end that this goes on.
///
/// # Errors
/// [`StoreError::Conflict`]: something was changed since it was read. Then nothing is written, or the tenant is marked incomplete and the same push
/// goes on where it stopped.
pub async fn write(client: &mut Client, plan: &Plan) -> Result<Sizes, StoreError> {
    let mut sizes = Sizes::default();
    let all: Vec<&Op> = plan.steps.iter().flatten().collect();
    let completed: Vec<Op> = plan
        .tenants
        .iter()
        .map(|(name, entry)| Op::Put(layout::tenant(name), written(entry)))
        .collect();
    let is_one = all.len() <= MOST_OPERATIONS
        && plan.compare.len() <= MOST_OPERATIONS
        && all.iter().map(|op| op.size()).sum::<usize>() <= MOST_BYTES;
    if is_one {
        // A key is written once in a transaction.
        let begun = |op: &&&Op| !completed.iter().any(|one| one.key() == op.key());
        let mut ops: Vec<Op> = all.iter().filter(begun).map(|op| (*op).clone()).collect();
        ops.extend(completed);
        return send(client, &plan.compare, &ops, &mut sizes)
            .await
            .map(|()| sizes);
    }
    let written: BTreeSet<&str> = all.iter().map(|op| op.key()).collect();
    let chunks = plan.steps.iter().flat_map(|step| chunks(step));
    for (at, ops) in chunks.enumerate() {
        // Each entry is compared where it is written; what is only compared, at first.
        let here = |Compare::Revision(key, _): &&Compare| {
            ops.iter().any(|op| op.key() == key) || (at == 0 && !written.contains(key.as_str()))
        };
        let compare: Vec<Compare> = plan.compare.iter().filter(here).cloned().collect();
        send(client, &compare, ops, &mut sizes).await?;
    }
    send(client, &[], &completed, &mut sizes).await?;
    Ok(sizes)
}

/// What fits one transaction each, in order.
fn chunks(mut ops: &[Op]) -> Vec<&[Op]> {
    let mut all = Vec::new();
    while !ops.is_empty() {
        let mut size = 0;
        let fits = ops.iter().take(MOST_OPERATIONS).take_while(|op| {
            size += op.size();
            size <= MOST_BYTES
        });
        // One that is too large for any is refused before it comes here.
        let (chunk, rest) = ops.split_at(fits.count().max(1));
        all.push(chunk);
        ops = rest;
    }
    all
}

async fn send(
    client: &mut Client,
    compare: &[Compare],
    ops: &[Op],
    sizes: &mut Sizes,
) -> Result<(), StoreError> {
    let (header, done) = client.transact(compare, ops).await?;
    if !done {
        let keys: Vec<&str> = compare
            .iter()
            .map(|Compare::Revision(key, _)| key.as_str())
            .collect();
        return Err(StoreError::Conflict {
            what: match keys.as_slice() {
                [one] => (*one).to_owned(),
                [one, ..] => format!("{one} or another of {} entries", keys.len()),
                [] => "entries of the store".to_owned(),
            },
        });
    }
    sizes.entries += ops.len();
    sizes.transactions += 1;
    sizes.revision = header.revision;
    Ok(())
}

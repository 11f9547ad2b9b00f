//! How flows are spread over servers: how far from the weights, how many move when a server goes, and whether those that are known stay.

use super::Balancing;
use super::bed::{Bed, DEVICE};
use super::service::{SERVERS, balancer, servers};
use super::traffic::Traffic;
use crate::LabError;
use crate::bench::edge::{End, Standing};
use crate::bench::measure::Samples;
use crate::bench::report::Figure;

/// Flows of the figures. Of fewer, chance alone would put some server off its part by more than the target.
const FLOWS: u32 = 1_000_000;
/// Flows that are all remembered.
const KNOWN: u32 = 100_000;
/// Targets in percent: load off the weights; flows of other servers that move when one of 100 goes.
const OFF: f64 = 5.0;
const MOVED: f64 = 2.0;
/// The server that goes.
const GONE: u32 = 42;

/// Measures it.
pub(crate) fn run(balancing: &mut Balancing<'_, '_>) -> Result<(), LabError> {
    let flows = FLOWS;
    let all = servers();
    // Every second server with twice the weight.
    let weighted: Vec<(u32, u32)> = all.iter().map(|(n, _)| (*n, 1 + n % 2)).collect();
    let without: Vec<(u32, u32)> = all.iter().copied().filter(|s| s.0 != GONE).collect();
    balancing
        .bench
        .say(&format!("{flows} flows over {SERVERS} servers"))?;
    let equal = once(balancing, &all, flows)?;
    let unequal = once(balancing, &weighted, flows)?;
    let fewer = once(balancing, &without, flows)?;
    let (Some(equal), Some(unequal), Some(fewer)) = (equal, unequal, fewer) else {
        return Ok(());
    };
    for (name, places, weights) in [("equal", &equal, &all), ("weighted", &unequal, &weighted)] {
        let figure = Figure::new(
            format!("balancer.load.{name}.deviation"),
            "%",
            Samples(vec![deviation(places, weights)]),
        );
        balancing.bench.outcome.bound(figure, OFF);
    }
    let figure = |name: &str, value| {
        let name = format!("balancer.moved.{name}.percent");
        Figure::new(name, "%", Samples(vec![value]))
    };
    let by_ring = figure("unknown", moved(&equal, &fewer));
    balancing.bench.outcome.bound(by_ring, MOVED);
    if let Some((before, after)) = reconfigured(balancing, &all, &without)? {
        let kept = figure("known", moved(&before, &after));
        balancing.bench.outcome.none(kept);
    }
    Ok(())
}

/// The server of each flow of a balancer that knows none; `None` if it could not be had.
fn once(
    balancing: &mut Balancing<'_, '_>,
    servers: &[(u32, u32)],
    flows: u32,
) -> Result<Option<Vec<u32>>, LabError> {
    let bed = Bed::build(false, flows)?;
    let function = balancer("ipip", servers, flows);
    let stood = Standing::apply(&bed.middle, &[DEVICE], &function, End::Drop);
    let Some(_edge) = balancing.stood("balancer.load", stood) else {
        return Ok(None);
    };
    Ok(Some(sent(&bed, flows, balancing.cpu)?))
}

/// Packets by server, before and after.
type Loads = (Vec<u32>, Vec<u32>);

/// Servers of flows before and after a balancer that knows them lost a server.
fn reconfigured(
    balancing: &mut Balancing<'_, '_>,
    all: &[(u32, u32)],
    without: &[(u32, u32)],
) -> Result<Option<Loads>, LabError> {
    let bed = Bed::build(false, KNOWN)?;
    let room = 4 * KNOWN;
    let stood = Standing::apply(
        &bed.middle,
        &[DEVICE],
        &balancer("ipip", all, room),
        End::Drop,
    );
    let Some(edge) = balancing.stood("balancer.moved.known", stood) else {
        return Ok(None);
    };
    // A flow is known for good from its second packet on.
    let first = sent(&bed, KNOWN, balancing.cpu)?;
    let before = sent(&bed, KNOWN, balancing.cpu)?;
    if first != before {
        return Err(LabError::Engine(
            "flows changed their servers while nothing else changed".to_owned(),
        ));
    }
    edge.change(&[DEVICE], &balancer("ipip", without, room), End::Drop)?;
    Ok(Some((before, sent(&bed, KNOWN, balancing.cpu)?)))
}

/// Sends a packet of each flow and tells where they went.
fn sent(bed: &Bed, flows: u32, cpu: usize) -> Result<Vec<u32>, LabError> {
    let traffic = Traffic {
        clients: flows,
        in_turn: true,
        bad: 0,
    };
    let generator = traffic.generator()?;
    let burst = bed.burst(&generator, flows, u64::from(flows), cpu)?;
    let back = burst.back();
    if back != u64::from(flows) {
        return Err(LabError::Engine(format!(
            "of {flows} flows {back} reached a server"
        )));
    }
    bed.places()
}

/// The largest deviation of a server's part from its weight's, in percent of that.
fn deviation(places: &[u32], servers: &[(u32, u32)]) -> f64 {
    let weights: u32 = servers.iter().map(|s| s.1).sum();
    let off = servers.iter().map(|(n, weight)| {
        let has = places.iter().filter(|p| *p == n).count() as f64;
        let due = places.len() as f64 * f64::from(*weight) / f64::from(weights);
        (has - due).abs() / due * 100.0
    });
    off.fold(0.0, f64::max)
}

/// Flows of servers that stayed which have another one now, in percent.
fn moved(before: &[u32], after: &[u32]) -> f64 {
    let stayed = before.iter().zip(after).filter(|(b, _)| **b != GONE);
    let (mut all, mut other) = (0u32, 0u32);
    for (b, a) in stayed {
        all += 1;
        other += u32::from(a != b);
    }
    100.0 * f64::from(other) / f64::from(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_is_counted_of_those_that_could_stay() {
        let before = [1, 1, 2, GONE, GONE];
        assert_eq!(moved(&before, &[1, 1, 2, 1, 2]), 0.0);
        assert!((moved(&before, &[1, 2, 2, 1, 2]) - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn deviations_are_of_the_due_part() {
        assert_eq!(deviation(&[1, 1, 2, 2], &[(1, 1), (2, 1)]), 0.0);
        assert_eq!(deviation(&[1, 1, 1, 2], &[(1, 1), (2, 1)]), 50.0);
        assert_eq!(deviation(&[1, 2, 2, 2], &[(1, 1), (2, 3)]), 0.0);
    }
}

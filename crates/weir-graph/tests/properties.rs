//! What holds for every configuration: nothing panics, plans are deterministic, and no walk over a plan makes more calls in a row than
//! the kernel allows.

use std::collections::BTreeMap;

use crate::common::Given;
use proptest::prelude::*;
use weir_graph::{EdgePlan, MAX_CALLS, MAX_RECIRCULATIONS, Numbers, Target};

const GOOD: &str = "\
edge = \"e\"
[[port]]
name = \"wan\"
device = \"veth0\"
mode = \"native\"
[[map]]
name = \"load\"
type = \"array\"
key = 4
value = 8
entries = 1
[[function]]
name = \"a\"
kind = \"middlebox\"
rules = \"all accept\"
fresh = true
maps = { counters = \"load\" }
[[hook]]
name = \"h\"
file = \"h.bpf.o\"
program = \"p\"
attach = \"cgroup:/c:ingress\"
[[link]]
from = \"wan\"
to = \"a\"
[[link]]
from = \"a.next\"
to = \"a\"
guard = 3
";

fn try_plan(text: &str) -> Option<EdgePlan> {
    let config = weir_graph::parse(text, "edge.toml").ok()?;
    let (plan, _) = weir_graph::plan(&config, &Given::new(&[]), &Numbers::new()).ok()?;
    Some(plan)
}

/// A chain of functions, ports that lead into it at places, and guarded links of its last function or back into ever earlier ones.
#[derive(Clone, Debug)]
struct Shape {
    functions: usize,
    ports: Vec<usize>,
    /// (from, to, guard): each function's only output leads on or, here, back.
    back: Option<(usize, usize, u32)>,
}

fn shape() -> impl Strategy<Value = Shape> {
    (1usize..120).prop_flat_map(|functions| {
        let port = 0..functions;
        let back = (0..functions, 0..functions, 1u32..6);
        (prop::collection::vec(port, 1..4), prop::option::of(back)).prop_map(
            move |(ports, back)| Shape {
                functions,
                ports,
                back: back.map(|(a, b, guard)| (a.max(b), a.min(b), guard)),
            },
        )
    })
}

fn text(shape: &Shape) -> String {
    let mut text = String::new();
    for (n, first) in shape.ports.iter().enumerate() {
        text += &format!(
            "[[port]]\nname = 'p{n}'\ndevice = 'd{n}'\n[[link]]\nfrom = 'p{n}'\nto = 'f{first}'\n"
        );
    }
    for n in 0..shape.functions {
        text += &format!("[[function]]\nname = 'f{n}'\nkind = 'empty'\n");
        match shape.back {
            Some((from, to, guard)) if from == n => {
                text += &format!("[[link]]\nfrom = 'f{n}'\nto = 'f{to}'\nguard = {guard}\n");
            }
            _ if n + 1 < shape.functions => {
                text += &format!("[[link]]\nfrom = 'f{n}'\nto = 'f{}'\n", n + 1)
            }
            _ => {}
        }
    }
    text
}

/// What one packet meets when it always takes the first output, guards counted as the data plane does.
#[derive(Debug, Default)]
struct Walk {
    /// Most calls in a row.
    calls: u32,
    configured: u32,
    recirculations: u32,
}

fn walk(plan: &EdgePlan, start: Target) -> Walk {
    let mut walk = Walk::default();
    let mut passes: BTreeMap<usize, u32> = BTreeMap::new();
    let (mut at, mut calls) = (start, 0);
    while let Target::Instance(place) = at {
        let instance = &plan.instances[place];
        calls += 1;
        walk.calls = walk.calls.max(calls);
        match instance.kind.as_str() {
            "guard" => {
                let constants = &instance.planned.instance.constants;
                let (_, limit) = constants
                    .iter()
                    .find(|(name, _)| name == "weir_guard_limit")
                    .expect("a limit");
                let limit = u32::from_ne_bytes(limit.as_slice().try_into().expect("4 bytes"));
                let taken = passes.entry(place).or_default();
                if *taken == limit {
                    break;
                }
                *taken += 1;
            }
            "recirculate" => {
                assert_eq!(plan.targets[place][1], Target::Pair);
                walk.recirculations += 1;
                calls = 0;
            }
            _ => walk.configured += 1,
        }
        at = plan.targets[place][0];
    }
    walk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = try_plan(&text);
    }

    /// A good configuration with pieces of it taken out, put in again elsewhere, or replaced.
    #[test]
    fn damaged_configurations_are_read_or_refused(
        cuts in prop::collection::vec((0..GOOD.len(), 0..40usize, 0..GOOD.len(), "\\PC{0,6}"), 1..6)
    ) {
        let mut text = GOOD.to_owned();
        for (from, length, to, more) in cuts {
            let from = text.floor_char_boundary(from.min(text.len()));
            let end = text.ceil_char_boundary((from + length).min(text.len()));
            let piece: String = text.drain(from..end).collect();
            let at = text.floor_char_boundary(to.min(text.len()));
            text.insert_str(at, &piece);
            text.insert_str(at, &more);
        }
        if let Err(found) = weir_graph::parse(&text, "edge.toml") {
            prop_assert!(!found.is_empty());
            let _ = found.render(true);
        }
        let _ = try_plan(&text);
    }

    #[test]
    fn no_walk_makes_more_calls_in_a_row_than_there_are(shape in shape()) {
        let text = text(&shape);
        let config = weir_graph::parse(&text, "edge.toml").expect("well formed");
        let planned = weir_graph::plan(&config, &Given::new(&[]), &Numbers::new());
        let plan = match planned {
            Ok((plan, _)) => plan,
            Err(found) => {
                let only = found.iter().all(|one| one.message.contains("be recirculated"));
                prop_assert!(only, "{found}");
                return Ok(());
            }
        };
        prop_assert!(try_plan(&text).is_some_and(|again| again == plan));
        let walks: Vec<Walk> = plan.entries.iter().map(|entry| walk(&plan, *entry)).collect();
        for walk in &walks {
            prop_assert!(walk.calls <= MAX_CALLS, "{walk:?} {plan}");
            prop_assert!(walk.recirculations <= plan.recirculations.min(MAX_RECIRCULATIONS), "{walk:?} {plan}");
        }
        // There is one way only, so that the longest walk is known without any rule.
        let longest = walks.iter().map(|walk| walk.configured).max();
        prop_assert_eq!(longest, Some(plan.longest));
        let most = walks.iter().map(|walk| walk.recirculations).max();
        prop_assert_eq!(most, Some(plan.recirculations));
    }
}

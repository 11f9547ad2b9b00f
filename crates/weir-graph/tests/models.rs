//! Models that are built by hand: what their links become, and what keeps them from becoming a plan.

use std::collections::BTreeMap;

use weir_functions::kind::Planned;
use weir_graph::{
    EdgePlan, Instance, Link, MAX_CALLS, Mode, Model, ModelError, PortPlan, Source, Target,
};

/// A port in front of so many functions in a row; the last leads to the stack. Each has an output `again` besides.
fn chain(functions: usize) -> Model {
    let instance = |at: usize| {
        let mut planned = Planned::embedded("empty");
        planned.outs.push("again".to_owned());
        Instance::new(format!("f{at}"), "empty", planned)
    };
    let link = |at: usize| Link {
        from: match at.checked_sub(1) {
            None => Source::Port(1),
            Some(instance) => Source::Out { instance, out: 0 },
        },
        to: Target::Instance(at),
        guard: None,
    };
    Model {
        edge: "t".to_owned(),
        ports: vec![PortPlan {
            number: 1,
            name: "in".to_owned(),
            device: "d".to_owned(),
            mode: Mode::Native,
            checksums: None,
            metadata: false,
        }],
        instances: (0..functions).map(instance).collect(),
        links: (0..functions).map(link).collect(),
        ..Model::default()
    }
}

fn again(from: usize, to: usize, guard: Option<u32>) -> Link {
    Link {
        from: Source::Out {
            instance: from,
            out: 1,
        },
        to: Target::Instance(to),
        guard,
    }
}

fn planned(model: &Model) -> EdgePlan {
    model.clone().plan().unwrap_or_else(|e| panic!("{e}"))
}

fn refused(model: &Model) -> ModelError {
    model.clone().plan().expect_err("refused")
}

/// A constant of a guard.
fn constant(plan: &EdgePlan, at: usize, name: &str) -> u32 {
    let mut constants = plan.instances[at].planned.instance.constants.iter();
    let (_, value) = constants.find(|(known, _)| known == name).expect("a guard");
    u32::from_ne_bytes(value.as_slice().try_into().expect("4 bytes"))
}

/// Calls of the longest stretch, by walking: at every guard the packet goes round as often as it may.
fn most_calls(plan: &EdgePlan) -> u32 {
    fn walk(plan: &EdgePlan, to: Target, calls: u32, passes: &mut BTreeMap<usize, u32>) -> u32 {
        let Target::Instance(at) = to else {
            return calls;
        };
        let calls = calls + 1;
        let next = |calls, passes: &mut BTreeMap<usize, u32>| {
            let targets = plan.targets[at].iter();
            let all = targets.map(|to| walk(plan, *to, calls, passes));
            all.max().unwrap_or(calls)
        };
        match plan.instances[at].kind.as_str() {
            "guard" => {
                let taken = passes.get(&at).copied().unwrap_or(0);
                if taken >= constant(plan, at, "weir_guard_limit") {
                    return calls;
                }
                passes.insert(at, taken + 1);
                let most = next(calls, passes);
                passes.insert(at, taken);
                most
            }
            // What comes back starts from nothing.
            "recirculate" => calls.max(next(0, passes)),
            _ => next(calls, passes),
        }
    }
    walk(plan, plan.entries[0], 0, &mut BTreeMap::new())
}

#[test]
fn chains_up_to_the_kernels_limit_stay_whole_and_longer_ones_are_split() {
    for (functions, splits) in [
        (1, 0),
        (5, 0),
        (32, 0),
        (33, 0),
        (34, 1),
        (40, 1),
        (64, 1),
        (65, 1),
        (66, 2),
        (200, 6),
    ] {
        let plan = planned(&chain(functions));
        assert_eq!(plan.instances.len() - functions, splits, "{functions}");
        assert_eq!(plan.recirculates(), splits > 0);
        let calls = most_calls(&plan);
        assert!(calls <= MAX_CALLS);
        assert!(splits > 0 || calls == functions as u32, "{functions}");
    }
}

#[test]
fn a_loop_needs_a_guard() {
    let mut model = chain(4);
    model.links.push(again(2, 1, None));
    let e = refused(&model).to_string();
    assert!(e.contains("f1 -> f2 -> f1") && e.contains("guard"), "{e}");
    model.links[4].guard = Some(3);
    let plan = planned(&model);
    assert!(!plan.recirculates());
    assert_eq!(plan.instances[4].name, "guard behind f2.again");
    // f0, then f1 f2 and the guard three times, then f1 f2 f3 or the guard that ends the walk.
    assert_eq!(most_calls(&plan), 1 + 3 * 3 + 3);
}

#[test]
fn a_loop_that_may_be_long_recirculates() {
    let mut model = chain(10);
    model.links.push(again(8, 1, Some(5)));
    let plan = planned(&model);
    assert!(plan.recirculates());
    assert!(most_calls(&plan) <= MAX_CALLS);
    model.ports[0].mode = Mode::Generic;
    assert!(matches!(refused(&model), ModelError::LongGeneric { .. }));
}

/// A port on tc instead, whose packets come to the first function in both directions.
fn on_tc(mut model: Model) -> Model {
    model.ports[0].mode = Mode::Tc;
    model.links.push(Link {
        from: Source::Transmit(1),
        to: Target::Instance(0),
        guard: None,
    });
    model
}

#[test]
fn a_port_on_tc_has_both_directions_and_instances_run_where_packets_come_from() {
    let mut model = on_tc(chain(3));
    let second = PortPlan {
        number: 2,
        name: "other".to_owned(),
        device: "e".to_owned(),
        ..chain(1).ports.remove(0)
    };
    model.ports.push(second);
    model.links.push(Link {
        from: Source::Port(2),
        to: Target::Instance(2),
        guard: None,
    });
    model.instances.push(chain(1).instances.remove(0));
    model.instances[3].name = "alone".to_owned();
    let plan = planned(&model);
    assert_eq!(plan.entries, [Target::Instance(0), Target::Instance(2)]);
    assert_eq!(plan.transmits, [Some(Target::Instance(0)), None]);
    assert!(plan.has_tc());
    let on: Vec<(bool, bool)> = (plan.instance_hooks().iter())
        .map(|hooks| (hooks.xdp, hooks.tc))
        .collect();
    // The one that both lead to runs on both, the one that none leads to on XDP.
    assert_eq!(
        on,
        [(false, true), (false, true), (true, true), (true, false)]
    );
    assert_eq!(plan.met_by(0), [true, true, true, false]);
}

#[test]
fn what_a_port_on_tc_cannot_carry_is_refused() {
    let long = refused(&on_tc(chain(34)));
    assert!(matches!(long, ModelError::LongTc { .. }), "{long}");
    planned(&on_tc(chain(33)));
    // XDP sees nothing that leaves.
    let mut xdp = on_tc(chain(1));
    xdp.ports[0].mode = Mode::Native;
    let e = refused(&xdp).to_string();
    assert!(e.contains("on XDP, which sees none"), "{e}");
    for to in [Target::Tx, Target::Device(1)] {
        let mut back = on_tc(chain(1));
        back.links.push(Link {
            from: Source::Out {
                instance: 0,
                out: 0,
            },
            to,
            guard: None,
        });
        let e = refused(&back);
        assert!(matches!(e, ModelError::TransmitBack { link: 2, .. }), "{e}");
        // Received packets may go back.
        back.links.remove(1);
        planned(&back);
    }
    let mut router = on_tc(chain(1));
    router.instances[0] = Instance::new("r", "router", Planned::embedded("router"));
    let e = refused(&router).to_string();
    assert!(
        e.contains("port in") && e.contains("function r") && e.contains("`router`"),
        "{e}"
    );
}

#[test]
fn the_guard_that_ends_a_walk_is_called_too() {
    // 8 functions, then 5 times the guard and 4 functions are 33 calls; the guard's last one would be the 34th.
    let mut model = chain(8);
    model.links.push(again(7, 4, Some(5)));
    assert!(most_calls(&planned(&model)) <= MAX_CALLS);
}

#[test]
fn a_loop_that_leads_behind_where_packets_come_in_begins_anew() {
    let mut model = chain(100);
    model.links[0].to = Target::Instance(50);
    model.links.push(again(90, 10, Some(1)));
    assert!(most_calls(&planned(&model)) <= MAX_CALLS);
}

#[test]
fn guards_share_the_bits_of_a_packet() {
    let mut model = chain(6);
    model.links.push(again(2, 1, Some(5)));
    model.links.push(again(4, 3, Some(7)));
    let plan = planned(&model);
    let bits = [6, 7].map(|at| {
        (
            constant(&plan, at, "weir_guard_shift"),
            constant(&plan, at, "weir_guard_mask"),
        )
    });
    assert_eq!(bits, [(0, 7), (3, 7)]);
    model.links.push(again(5, 0, Some(1 << 20)));
    let e = refused(&model);
    assert!(matches!(e, ModelError::Guards { links: 3, .. }), "{e}");
    assert!(e.to_string().contains("32 bits"), "{e}");
}

#[test]
fn a_generic_port_in_front_of_a_long_path_is_refused() {
    let mut model = chain(40);
    model.ports[0].mode = Mode::Generic;
    assert!(matches!(refused(&model), ModelError::LongGeneric { .. }));
    let mut model = chain(33);
    model.ports[0].mode = Mode::Generic;
    planned(&model);
}

#[test]
fn a_guard_on_a_link_that_closes_no_loop_is_refused() {
    for link in [0, 1] {
        let mut model = chain(3);
        model.links[link].guard = Some(2);
        assert_eq!(refused(&model), ModelError::NeedlessGuard { link });
    }
}

#[test]
fn names_and_ends_must_be_there_once() {
    let mut model = chain(3);
    model.instances[1].name = "f0".to_owned();
    let e = refused(&model).to_string();
    assert_eq!(e, "function f0 is named twice: name each once");
    for (at, link) in [
        (0, again(7, 1, None)),
        (2, again(0, 7, None)),
        (
            2,
            Link {
                to: Target::Pair,
                ..again(0, 0, None)
            },
        ),
        (
            2,
            Link {
                to: Target::Device(2),
                ..again(0, 0, None)
            },
        ),
        (
            1,
            Link {
                from: Source::Port(1),
                ..again(0, 0, None)
            },
        ),
    ] {
        let mut model = chain(3);
        model.links[at] = link;
        let e = refused(&model);
        assert!(
            matches!(e, ModelError::Link { link, .. } if link == at),
            "{e}"
        );
    }
}

/// Which instances packets of a port meet, what they leave by, and what comes to the stack.
#[test]
fn a_plan_says_where_packets_come_to() {
    let mut model = chain(3);
    let mut second = model.ports[0].clone();
    (second.number, second.name, second.device) = (9, "out".to_owned(), "e".to_owned());
    model.ports.push(second);
    // f0 and f1 lead out of the second port; nothing leads to f2, which leads to the stack.
    model.links[2].to = Target::Device(9);
    let plan = planned(&model);
    assert_eq!(plan.met_by(0), [true, true, false]);
    assert_eq!(plan.met_by(1), [false; 3]);
    assert_eq!(plan.leaves_by(), ["e"]);
    // The second outputs have no link: they lead to the stack.
    assert!(plan.leads_to_stack("f0") && plan.leads_to_stack("f2"));
    for instance in 0..2 {
        let drop = Link {
            to: Target::Drop,
            ..again(instance, 0, None)
        };
        model.links.push(drop);
    }
    let plan = planned(&model);
    assert!(!plan.leads_to_stack("f0") && plan.leads_to_stack("f2"));
    assert_eq!(plan.targets_first(), [1, 0, 2]);
    // Any function that sends packets by itself may use every port.
    model.links[2].to = Target::Tx;
    assert_eq!(planned(&model).leaves_by(), ["d", "e"]);
}

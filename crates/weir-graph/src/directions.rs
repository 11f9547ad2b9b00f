//! Middleboxes that see one direction of the connections that they keep. TCP segments are judged by numbers of both directions
//! (docs/semantics.md section 7), so such a middlebox drops most of them. A port may carry both, as a trunk does: this is a warning.

use weir_functions::kind::Request;
use weir_functions::middlebox;
use weir_policy::model::{Classes, Match, Rule};

use crate::config;
use crate::edge::{EdgePlan, Mode};
use crate::planning::Planning;

impl Planning<'_> {
    /// Middleboxes that keep TCP connections, and to which packets of one direction come only.
    pub(crate) fn half_seen(&mut self, plan: &EdgePlan) {
        let from = plan.comes_from();
        // Instances are those of the configuration in its order, and others behind them.
        for (at, (function, from)) in self.config.functions.iter().zip(&from).enumerate() {
            let [(port, leaves)] = from[..] else { continue };
            let port = &plan.ports[port];
            // Both directions are received by one port where packets go back the way they came.
            if function.kind.value != "middlebox"
                || plan.may_return(at, port.number)
                || !self.tracks_tcp(function)
            {
                continue;
            }
            let name = &function.name.value;
            let (seen, other) = match leaves {
                true => ("leave by", port.name.clone()),
                false => ("are received by", format!("{}.transmit", port.name)),
            };
            let text = format!(
                "`{name}` keeps TCP connections, and only packets that {seen} `{}` come to it: where answers take another way, it drops what follows the first segments",
                port.name
            );
            let on_tc = match port.mode {
                Mode::Tc => "",
                _ => " and `hook = \"tc\"` for the port",
            };
            let help = format!(
                "link the other direction: `from = \"{other}\"`, `to = \"{name}\"`{on_tc}; or the port that the answers come by; or write `loose tcp` in the policy"
            );
            self.report.warning(0, function.name.span, text).help(help);
        }
    }

    /// Whether a rule of a middlebox opens TCP connections, whose segments are judged by their numbers.
    fn tracks_tcp(&self, function: &config::Function) -> bool {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files: self.files,
            ports: &[],
            transmits: false,
        };
        // What was planned can be read.
        let Ok(policy) = middlebox::instance::policy(&request) else {
            return false;
        };
        let others = [Classes::UDP, Classes::ICMP, Classes::ICMP6];
        let names_protocol = |one: &Match| {
            let name = one.subject.field.info().name;
            matches!(name, "ip-proto" | "ip6-next" | "l4-proto")
        };
        let opens_tcp = |rule: &Rule| {
            let is_other = others.iter().any(|&class| rule.requires.contains(class));
            let is_named = rule.matches.iter().any(names_protocol);
            rule.stateful && (rule.requires.contains(Classes::TCP) || !(is_other || is_named))
        };
        !policy.connections.loose_tcp && policy.rules.iter().any(opens_tcp)
    }
}

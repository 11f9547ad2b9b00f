//! Configurations that are wrong: what is said, where, and what to do about it, against `mistakes.snap`.
//!
//! `WEIR_UPDATE=1 cargo test -p weir-graph mistakes::` writes the file anew; read the difference before keeping it.

use std::path::Path;

use crate::common::{Given, mistakes};

/// A port and three functions in a row.
const CHAIN: &str = "\
[[port]]
name = \"wan\"
device = \"veth0\"
[[function]]
name = \"a\"
kind = \"empty\"
[[function]]
name = \"b\"
kind = \"empty\"
[[function]]
name = \"c\"
kind = \"empty\"
[[link]]
from = \"wan\"
to = \"a\"
[[link]]
from = \"a\"
to = \"b\"
[[link]]
from = \"b\"
to = \"c\"
";

/// One policy between a port and the stack.
const RULES: &str = "\
[[port]]
name = \"wan\"
device = \"veth0\"
[[function]]
name = \"rules\"
kind = \"middlebox\"
policy = \"p.weir\"
[[link]]
from = \"wan\"
to = \"rules\"
";

const MAPS: &str = "\
[[map]]
name = \"load\"
type = \"array\"
key = 4
value = 8
entries = 1
";

const HOOKS: &str = "\
[[port]]
name = \"wan\"
device = \"veth0\"
[[hook]]
name = \"one\"
file = \"none.bpf.o\"
program = \"p\"
attach = \"tracepoint:sched\"
[[hook]]
name = \"two\"
file = \"text.bpf.o\"
program = \"p\"
attach = \"cgroup:/sys/fs/cgroup:conect4\"
";

/// A port on tc, what leaves by which comes to the first of two functions.
const TC: &str = "\
[[port]]
name = \"wan\"
device = \"veth0\"
hook = \"tc\"
[[function]]
name = \"a\"
kind = \"empty\"
[[function]]
name = \"b\"
kind = \"empty\"
[[link]]
from = \"wan.transmit\"
to = \"a\"
";

/// A filter with a list.
const FILTER: &str = "\
[[port]]
name = \"wan\"
device = \"veth0\"
[[function]]
name = \"shield\"
kind = \"filter\"
rules = [
  \"deny from @bad\",
  \"allow form 10.0.0.0/8\",
]
[function.sets]
bad = { file = \"block.txt\" }
[[link]]
from = \"wan\"
to = \"shield\"
";

struct Case {
    title: &'static str,
    text: String,
    files: Vec<(&'static str, &'static str)>,
}

fn cases() -> Vec<Case> {
    let plain = |title, text: String| Case {
        title,
        text,
        files: Vec::new(),
    };
    let with = |title, more: &str| plain(title, format!("{CHAIN}{more}"));
    let rules = |title, text: &str, policy| Case {
        title,
        text: text.to_owned(),
        files: vec![("p.weir", policy)],
    };
    let inline = RULES.replace(
        "policy = \"p.weir\"",
        "rules = \"\"\"\nall accept\nip-tll 3 drop\n\"\"\"",
    );
    let shares = "maps = { counters = \"load\", rates = \"load\", nothing = \"load\", tables = \"load\", stats = \"load\" }";
    let shared = RULES.replace(
        "policy = \"p.weir\"",
        &format!("rules = \"all accept\"\n{shares}"),
    );
    let hooks = HOOKS
        .replace("sched\"", "sched/sched_switch\"")
        .replace("conect4", "connect4");
    let other_hooks = HOOKS
        .replace("tracepoint:sched", "kprobe:do_exit")
        .replace("cgroup:/sys/fs/cgroup:conect4", "cgroup:here:ingress");
    vec![
        plain("nothing", String::new()),
        plain("no TOML", "[[port]\nname = \"wan\"\n".to_owned()),
        plain("a section that is none", "[port]\nname = \"wan\"\n".to_owned()),
        plain(
            "unknown keys, wrong types, words and names",
            "egde = \"my edge\"\n[[port]]\nname = 1\ndevise = \"veth0\"\nmode = \"nativ\"\nchecksums = \"offload\"\nmetadata = 1\n\
             [[port]]\nname = \"tx\"\ndevice = \"a very long interface\"\n[[prot]]\n"
                .to_owned(),
        ),
        with(
            "names that are taken",
            "[[port]]\nname = \"a\"\ndevice = \"veth0\"\n[[link]]\nfrom = \"a\"\nto = \"c\"\n",
        ),
        with(
            "links that lead nowhere",
            "[[link]]\nfrom = \"c\"\nto = \"stck\"\n[[link]]\nfrom = \"lan\"\nto = \"a.next\"\n[[link]]\nfrom = \"drop\"\nto = \"tx\"\n\
             [[link]]\nfrom = \"wan.next\"\nto = \"a\"\n",
        ),
        with("an output that is not there", "[[link]]\nfrom = \"c.syn\"\nto = \"drop\"\n"),
        with("a loop without guard", "[[link]]\nfrom = \"c\"\nto = \"a\"\n"),
        with("two loops", "[[link]]\nfrom = \"c\"\nto = \"c\"\n").and(RULES),
        with("a guard where no loop is", "[[link]]\nfrom = \"c\"\nto = \"stack\"\nguard = 2\n"),
        plain(
            "a guard on the link of a port and one on the way",
            CHAIN.replace("to = \"a\"\n", "to = \"a\"\nguard = 2\n").replace("to = \"c\"\n", "to = \"c\"\nguard = 2\n"),
        ),
        with("a guard of nothing", "[[link]]\nfrom = \"c\"\nto = \"a\"\nguard = 0\n"),
        plain(
            "guards that need too many bits",
            CHAIN.replace("to = \"c\"\n", "to = \"b\"\nguard = 65535\n[[link]]\nfrom = \"a.next\"\nto = \"a\"\nguard = 65535\n")
                .replacen("from = \"a\"\nto = \"b\"\n", "from = \"c\"\nto = \"c\"\nguard = 65535\n", 1),
        ),
        plain("a path over the budget", long(600, "native")),
        plain("a long path behind a generic port", long(40, "generic")),
        rules("a mistake in a policy", RULES, "all accept\ntcp-dprot 80 drop\nip-ttl 300 drop\n"),
        rules("a mistake in rules that stand in the configuration", &inline, ""),
        rules("an interface by its index", RULES, "all accept\nin 3 drop\n"),
        plain("a policy that is not there", RULES.to_owned()),
        plain("a middlebox without policy", RULES.replace("policy = \"p.weir\"\n", "")),
        plain("an unknown key of a kind", RULES.replace("policy =", "polcy =")),
        plain("an unknown kind", RULES.replace("middlebox", "midlebox")),
        Case {
            files: vec![("block.txt", "10.0.0.0/8\n10.1.0.0/33\n# fine\n2001:db8::1\nten\n")],
            ..plain("a list with bad prefixes", FILTER.replace("allow form", "allow from"))
        },
        Case {
            files: vec![("block.txt", "10.0.0.0/8\n")],
            ..plain("a mistake in a rule of a filter", FILTER.to_owned())
        },
        plain("a list that is not there", FILTER.replace("allow form", "allow from")),
        plain("shared maps that do not fit", format!("{MAPS}{shared}")),
        plain("a shared map that is not declared", format!("{MAPS}{}", shared.replace("rates = \"load\"", "rates = \"lod\""))),
        plain("a map of the edge", format!("{MAPS}{}", shared.replace("nothing", "weir_links"))),
        plain("maps that cannot be", MAPS.replace("key = 4", "key = 8").replace("array", "arry").replace("entries = 1\n", "") + MAPS),
        plain("hooks that are none", HOOKS.to_owned()),
        plain(
            "keys of XDP in a port on tc, and a hook that is none",
            "[[port]]\nname = \"a\"\ndevice = \"veth0\"\nhook = \"tc\"\nmode = \"native\"\nchecksums = \"complete\"\n\
             [[port]]\nname = \"b\"\ndevice = \"veth1\"\nhook = \"tcx\"\n"
                .to_owned(),
        ),
        with(
            "what leaves by a port that does not see it, and an output of a port on tc that is none",
            "[[link]]\nfrom = \"wan.transmit\"\nto = \"a\"\n[[port]]\nname = \"lan\"\ndevice = \"veth1\"\nhook = \"tc\"\n\
             [[link]]\nfrom = \"lan.egress\"\nto = \"a\"\n",
        ),
        plain(
            "two links of what leaves by a port",
            format!("{TC}[[link]]\nfrom = \"wan.transmit\"\nto = \"b\"\n"),
        ),
        plain(
            "functions that do not run on tc",
            format!(
                "{TC}[[link]]\nfrom = \"a\"\nto = \"r\"\n[[function]]\nname = \"r\"\nkind = \"redirect\"\ncpu = [0]\n\
                 [[link]]\nfrom = \"wan\"\nto = \"f\"\n[[function]]\nname = \"f\"\nkind = \"filter\"\nrules = [\"allow tcp cpu 0\"]\n\
                 [[link]]\nfrom = \"f\"\nto = \"c\"\n[[function]]\nname = \"c\"\nkind = \"filter\"\nrules = [\"syncookie to-port 80\"]\n"
            ),
        ),
        plain(
            "what leaves by a port, and is sent out of it once more",
            format!("{TC}[[link]]\nfrom = \"a\"\nto = \"b\"\n[[link]]\nfrom = \"b\"\nto = \"wan\"\n"),
        ),
        plain(
            "a long path behind a port on tc",
            long(40, "native").replace("mode = 'native'", "hook = 'tc'"),
        ),
        rules(
            "`out` where nothing that leaves is seen",
            RULES,
            "out wan tcp-dport 25 drop\n",
        ),
        plain("other hooks that are none", other_hooks),
        Case {
            files: vec![("text.bpf.o", "no object")],
            ..plain("objects of hooks", hooks)
        },
    ]
}

impl Case {
    fn and(mut self, more: &str) -> Case {
        let more = more.replace("\"wan\"", "\"lan\"").replace("veth0", "veth1");
        self.text += &more
            .replace("to = \"rules\"", "to = \"c\"")
            .replace("policy = \"p.weir\"", "rules = \"all accept\"");
        self.text += "[[link]]\nfrom = \"rules\"\nto = \"rules\"\n";
        self
    }
}

fn long(functions: usize, mode: &str) -> String {
    let mut text = format!(
        "[[port]]\nname = 'wan'\ndevice = 'veth0'\nmode = '{mode}'\n[[link]]\nfrom = 'wan'\nto = 'f1'\n"
    );
    for n in 1..=functions {
        let to = match n == functions {
            true => "stack".to_owned(),
            false => format!("f{}", n + 1),
        };
        text += &format!(
            "[[function]]\nname = 'f{n}'\nkind = 'empty'\n[[link]]\nfrom = 'f{n}'\nto = '{to}'\n"
        );
    }
    text
}

#[test]
fn every_mistake_is_shown_as_recorded() {
    let mut found = String::new();
    for case in cases() {
        let said = mistakes(&case.text, &Given::new(&case.files));
        found += &format!("## {}\n{said}\n", case.title);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes.snap");
    if std::env::var_os("WEIR_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).expect("the record can be written");
    }
    let recorded = std::fs::read_to_string(&path).expect("tests/mistakes.snap is there");
    for (number, (found, recorded)) in (1..).zip(found.lines().zip(recorded.lines())) {
        assert_eq!(found, recorded, "line {number} of mistakes.snap");
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
}

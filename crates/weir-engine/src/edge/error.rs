//! Why an edge is not what was asked for. Nothing that runs was changed when one of these comes back, unless it says so.

use weir_functions::router::rib::RibError;
use weir_kernel::{KernelError, MapDefinition};

/// Why an edge cannot be changed, looked at or taken down.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// A name that no folder can have.
    #[error(
        "`{0}` cannot be the name of an edge: use letters, digits, - and _, at most 32 of them"
    )]
    BadName(String),
    /// Another process changes the edge.
    #[error("another process is changing edge {0}: retry later")]
    Busy(String),
    /// Nothing runs under that name.
    #[error("no edge {name} is running{}", running(.others))]
    NotRunning {
        /// The name.
        name: String,
        /// What does run.
        others: Vec<String>,
    },
    /// It has no balancer of that name.
    #[error("edge {edge} has no balancer `{instance}`")]
    NoBalancer {
        /// The edge.
        edge: String,
        /// What was asked for.
        instance: String,
    },
    /// It was applied in another namespace.
    #[error(
        "edge {name} runs in another network namespace (inode {there}): its devices belong to that one; use another edge name for this configuration, or run this there"
    )]
    OtherNamespace {
        /// The edge.
        name: String,
        /// Inode of its namespace.
        there: u64,
    },
    /// It was applied by another version.
    #[error(
        "edge {name} was applied by another version of weir ({what}): forwarding continues; run `weir down --edge {name}` and apply again to change it, which ends its state"
    )]
    OtherVersion {
        /// The edge.
        name: String,
        /// What is different.
        what: String,
    },
    /// Its state cannot be read.
    #[error(
        "the state of edge {name} cannot be read ({why}): run `weir down --edge {name}`, then apply again"
    )]
    Damaged {
        /// The edge.
        name: String,
        /// Why.
        why: String,
    },
    /// Two things of one name, or one device twice.
    #[error("{what} {name} is named twice: name each once")]
    Twice {
        /// What sort of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A number or an index is out of range.
    #[error("{what} {value} is out of range: {range}")]
    Range {
        /// What.
        what: String,
        /// Its value.
        value: u64,
        /// What is allowed.
        range: String,
    },
    /// A device that runs would get another number.
    #[error(
        "port {port} ({device}) runs as number {have} and would become number {want}: plan with the numbers of the running edge, or run `weir down` first"
    )]
    Renumbered {
        /// Port.
        port: String,
        /// Its device.
        device: String,
        /// Number it has.
        have: u32,
        /// Number it would get.
        want: u32,
    },
    /// A port that runs would be attached in another mode.
    #[error(
        "port {port} ({device}) runs in {have} mode and would change to {want}, which would leave it without a program for a moment: apply the configuration without the port first"
    )]
    ModeChanged {
        /// Port.
        port: String,
        /// Its device.
        device: String,
        /// Mode it has.
        have: String,
        /// Mode it would get.
        want: &'static str,
    },
    /// Marks have no way to the stack.
    #[error(
        "port {port}: metadata = true needs tcx, which this kernel does not have (Linux 6.6 has): leave it out"
    )]
    NoHandover {
        /// Port.
        port: String,
    },
    /// A port on tc without tcx.
    #[error(
        "port {port}: hook = \"tc\" needs tcx, which this kernel does not have (Linux 6.6 has): use hook = \"xdp\", or `weir run`, which attaches with clsact there"
    )]
    NoTcx {
        /// Port.
        port: String,
    },
    /// Offload where there is none.
    #[error(
        "port {port}: {device} (driver {driver}) cannot run XDP in hardware: use mode = \"native\" or \"generic\""
    )]
    NoOffload {
        /// Port.
        port: String,
        /// Its device.
        device: String,
        /// Driver.
        driver: String,
    },
    /// Offload of something that hardware cannot hold.
    #[error(
        "port {port}: {device} runs XDP in hardware, but not programs that call each other: use mode = \"native\", or load one object with `weir prog attach`"
    )]
    GraphOffload {
        /// Port.
        port: String,
        /// Its device.
        device: String,
    },
    /// VLAN tags are not where a function looks for them.
    #[error(
        "function {instance} reads VLAN tags, and {device} of port {port} hides them from XDP: run `ethtool -K {device} rxvlan off`{veth}, then apply again"
    )]
    VlanHidden {
        /// Function.
        instance: String,
        /// Port.
        port: String,
        /// Its device.
        device: String,
        /// What more a veth needs.
        veth: &'static str,
    },
    /// A function was not built for the packets of a port.
    #[error(
        "function {instance} was not built for packets of several buffers, which port {port} may receive ({why}): build it with SEC(\"xdp.frags\"), or {cure}"
    )]
    SeveralBuffers {
        /// Function.
        instance: String,
        /// Port.
        port: String,
        /// Why.
        why: String,
        /// What else helps.
        cure: String,
    },
    /// A port that cannot carry the packets of a tunnel.
    #[error(
        "function {instance} makes tunnels, and port {port} has an MTU of {mtu}: packets that every host may send would not fit; \
         run `ip link set dev {device} mtu {least}` or more"
    )]
    SmallMtu {
        /// Function.
        instance: String,
        /// Port.
        port: String,
        /// Its device.
        device: String,
        /// What it carries.
        mtu: u32,
        /// What it should.
        least: u32,
    },
    /// No router with tables of its own to edit.
    #[error("{}", no_router(.edge, .wanted.as_deref(), .routers))]
    NoRouter {
        /// The edge.
        edge: String,
        /// The function that was asked for.
        wanted: Option<String>,
        /// Those there are.
        routers: Vec<String>,
    },
    /// A route has no place.
    #[error(
        "function {function}: the route to {prefix} cannot be held: {error}; raise `prefixes`, `prefixes6` or `next_hops` in the configuration"
    )]
    Route {
        /// The router.
        function: String,
        /// The prefix.
        prefix: String,
        /// Why.
        error: RibError,
    },
    /// No object of that name.
    #[error("function {instance}: this build of weir has no object {object}")]
    NoObject {
        /// Instance.
        instance: String,
        /// Name of the object.
        object: String,
    },
    /// A shared map that is not declared.
    #[error("{who} shares its map {map} as `{shared}`, and no [[map]] has that name")]
    NoSharedMap {
        /// Function or hook.
        who: String,
        /// Map of its object.
        map: String,
        /// Name that is missing.
        shared: String,
    },
    /// A map has another shape than the one it is to be shared with.
    #[error("{who}: its map {map} is {here}, and [[map]] {shared} is {there}: make them equal")]
    SharedMapDiffers {
        /// Function or hook.
        who: String,
        /// Map of its object.
        map: String,
        /// In the object.
        here: MapDefinition,
        /// Name of the shared map.
        shared: String,
        /// As configured.
        there: MapDefinition,
    },
    /// A shared map would change its shape.
    #[error(
        "[[map]] {map} runs as {have} and would become {want}, which would lose what is in it: keep its type and sizes, rename it, or set fresh = true to start empty"
    )]
    SharedMapChanged {
        /// Name.
        map: String,
        /// Runs as.
        have: MapDefinition,
        /// Would be.
        want: MapDefinition,
    },
    /// State of an instance would change its shape.
    #[error(
        "function {instance}: its map {map} runs as {have} and would become {want}, so its state cannot be kept: keep the size, or set fresh = true to start empty"
    )]
    MapChanged {
        /// Instance.
        instance: String,
        /// Map.
        map: String,
        /// Runs as.
        have: MapDefinition,
        /// Would be.
        want: MapDefinition,
    },
    /// Everything that can be numbered is.
    #[error(
        "the edge would have {have} {what}, and {most} is the most: use several edges, or change it in several steps"
    )]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        have: usize,
        /// How many can be.
        most: usize,
    },
    /// Of one function, hook or port.
    #[error("{who}: {error}")]
    Of {
        /// Which.
        who: String,
        /// Why.
        error: KernelError,
    },
    /// Of the host.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Somebody who watched the steps ended it.
    #[error("stopped before the step `{0}`")]
    GivenUp(&'static str),
}

impl EdgeError {
    /// Whether what the user asked for is wrong, rather than the host.
    pub fn is_usage(&self) -> bool {
        let unknown = |e: &KernelError| matches!(e, KernelError::NoSuchInterface { .. });
        match self {
            EdgeError::Kernel(e) | EdgeError::Of { error: e, .. } => unknown(e),
            EdgeError::Busy(_) | EdgeError::GivenUp(_) | EdgeError::Damaged { .. } => false,
            _ => true,
        }
    }
}

fn no_router(edge: &str, wanted: Option<&str>, routers: &[String]) -> String {
    let own = "of kind router with table = \"own\"";
    match (wanted, routers) {
        (Some(name), []) => format!("edge {edge} has no function {name} {own}"),
        (Some(name), some) => format!(
            "edge {edge} has no function {name} {own}; it has {}",
            some.join(", ")
        ),
        (None, []) => format!(
            "edge {edge} has no function {own}: other routers use the kernel's routes: change them with `ip route`"
        ),
        (None, some) => format!(
            "edge {edge} has several routers: name one of {} with --function",
            some.join(", ")
        ),
    }
}

fn running(others: &[String]) -> String {
    match others {
        [] => ", and no other is".to_owned(),
        some => format!("; running: {}", some.join(", ")),
    }
}

//! Arguments of `weir init`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Subcommand;
use weir_value::{PortRange, Prefix};

/// Arguments of `weir init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    #[command(subcommand)]
    pub(crate) job: Job,
    /// File to write; `-`: standard output; default: JOB.toml, of a sensor sensor.yaml
    #[arg(short = 'o', long, value_name = "FILE", global = true)]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long, global = true)]
    pub(crate) force: bool,
    /// Ask nothing, also on a terminal: use what options say and what was found on the host
    #[arg(long, global = true)]
    pub(crate) defaults: bool,
    /// Name of the edge; default: the job
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) edge: Option<String>,
}

/// What a configuration is for.
#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Firewall for this host
    Firewall(FirewallArgs),
    /// Gateway with NAT between a network inside and the Internet
    Gateway(GatewayArgs),
    /// Guard against floods, at XDP
    Guard(GuardArgs),
    /// Load balancer for one service
    Balancer(BalancerArgs),
    /// Virtual network of two workloads on this host
    Networks(NetworksArgs),
    /// Signature sensor on an interface
    Sensor(SensorArgs),
}

/// Arguments of `weir init firewall`.
#[derive(Debug, clap::Args)]
pub(crate) struct FirewallArgs {
    /// Interface; default: that of the default route
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// TCP ports that others may connect to, besides SSH: names or numbers, with commas
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub(crate) tcp: Vec<PortRange>,
    /// UDP ports that others may send to
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    pub(crate) udp: Vec<PortRange>,
    /// Networks that SSH is for; default: all
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) ssh_from: Vec<Prefix>,
}

/// Arguments of `weir init gateway`.
#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    /// Interface outside; default: that of the default route
    #[arg(long, value_name = "IF")]
    pub(crate) wan: Option<String>,
    /// Interface inside; default: the only other one with an address
    #[arg(long, value_name = "IF")]
    pub(crate) lan: Option<String>,
    /// Address that hosts inside get outside; default: that of the interface outside
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// Networks inside; default: those of the interface inside
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) inside: Vec<Prefix>,
    /// Forward a TCP port of the address to a server inside: `8080=10.1.0.5:80`. Repeatable
    #[arg(long, value_name = "PORT=SERVER", value_parser = forward)]
    pub(crate) forward: Vec<Forward>,
}

/// A port of the gateway and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// The port outside.
    pub(crate) port: u16,
    /// The server.
    pub(crate) server: IpAddr,
    /// Its port.
    pub(crate) server_port: u16,
}

fn forward(text: &str) -> Result<Forward, String> {
    let parts = text.split_once('=').and_then(|(port, server)| {
        let (address, server_port) = server.rsplit_once(':')?;
        Some((port, address, server_port))
    });
    let Some((port, address, server_port)) = parts else {
        return Err(format!(
            "`{text}` is not PORT=ADDRESS:PORT, such as 8080=10.1.0.5:80"
        ));
    };
    Ok(Forward {
        port: weir_value::port(port)?,
        server: weir_value::address(address)?,
        server_port: weir_value::port(server_port)?,
    })
}

/// Arguments of `weir init guard`.
#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// Interface; default: that of the default route
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Networks that are never limited; default: those of the interface
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) friends: Vec<Prefix>,
}

/// Arguments of `weir init balancer`.
#[derive(Debug, clap::Args)]
pub(crate) struct BalancerArgs {
    /// Interfaces that clients and servers are behind; default: that of the default route. Repeatable
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Vec<String>,
    /// Address of the service
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// Port of the service
    #[arg(long, value_name = "PORT", value_parser = weir_value::port, default_value = "443")]
    pub(crate) port: u16,
    /// Spread UDP flows, not TCP connections
    #[arg(long)]
    pub(crate) udp: bool,
    /// Addresses of the servers. Repeatable, or with commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(crate) server: Vec<IpAddr>,
}

/// Arguments of `weir init networks`.
#[derive(Debug, clap::Args)]
pub(crate) struct NetworksArgs {
    /// Devices of the two workloads: ends of veths or taps on this host; default: `web1,db1`
    #[arg(long, value_name = "IF,IF", value_delimiter = ',', num_args = 1)]
    pub(crate) devices: Vec<String>,
}

/// Arguments of `weir init sensor`.
#[derive(Debug, clap::Args)]
pub(crate) struct SensorArgs {
    /// Interface; default: that of the default route
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Networks that are protected; default: those of the interface
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) home: Vec<Prefix>,
    /// Folder with rule files
    #[arg(long, value_name = "DIR", default_value = "/etc/weir/rules")]
    pub(crate) rules: PathBuf,
}

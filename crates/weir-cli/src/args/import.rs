//! Arguments of `weir import` and `weir export`.

use std::path::PathBuf;

use weir_import::Format;
use weir_value::Prefix;

/// Arguments of `weir import`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// iptables-save, ip6tables-save, nft (nft list ruleset), pf (pf.conf) or xdp-filter (xdp-filter status)
    #[arg(value_name = "FORMAT", value_parser = format)]
    pub(crate) format: Format,
    /// The rule set; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write the policy to this file instead of standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Packets that the policy is for, if the file has rules for both
    #[arg(long, value_name = "CHAIN", value_parser = ["input", "forward"])]
    pub(crate) chain: Option<String>,
    /// An address of the host, with its interface if rules translate to it; repeatable
    #[arg(long, value_name = "[IF=]ADDRESS", value_parser = local)]
    pub(crate) local: Vec<(Option<String>, Prefix)>,
    /// Addresses that are reached by an interface, for rules on outgoing interfaces; repeatable
    #[arg(long, value_name = "IF=PREFIX", value_parser = route)]
    pub(crate) route: Vec<(String, Prefix)>,
    /// MTU of the paths, for rules that clamp TCP segments to it
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: Option<u16>,
    /// Exit with status 1 if a line is not translated as it stands
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `weir export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// What is written: nft, for `nft -f`
    #[arg(value_name = "FORMAT", value_parser = ["nft"])]
    pub(crate) format: String,
    /// Policy file
    #[arg(value_name = "POLICY")]
    pub(crate) policy: PathBuf,
    /// Interface whose received packets the rule set is for; repeatable
    #[arg(short = 'i', long = "interface", value_name = "IF", value_parser = weir_value::interface, required = true)]
    pub(crate) interface: Vec<String>,
    /// Write the rule set to this file instead of standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Exit with status 1 if a rule cannot be exported as it stands
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn format(text: &str) -> Result<Format, String> {
    let found = Format::ALL.iter().find(|(name, _)| *name == text);
    let names: Vec<&str> = Format::ALL.iter().map(|(name, _)| *name).collect();
    found
        .map(|(_, format)| *format)
        .ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn local(text: &str) -> Result<(Option<String>, Prefix), weir_value::Invalid> {
    match text.split_once('=') {
        Some((interface, address)) => {
            let address = weir_value::address(address)?;
            Ok((
                Some(weir_value::interface(interface)?),
                Prefix::one(address),
            ))
        }
        None => Ok((None, Prefix::one(weir_value::address(text)?))),
    }
}

fn route(text: &str) -> Result<(String, Prefix), String> {
    let (interface, prefix) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}`: expected IF=PREFIX"))?;
    let interface = weir_value::interface(interface).map_err(|e| e.to_string())?;
    let prefix: Prefix = prefix
        .parse()
        .map_err(|e: weir_value::Invalid| e.to_string())?;
    Ok((interface, prefix))
}

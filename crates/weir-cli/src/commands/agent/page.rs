//! `weir page`: asks the agent, by its socket, for a login link of its page.

use std::process::ExitCode;

use weir_agent::api::{AgentClient, Method};

use crate::args::agent::PageArgs;
use crate::commands::reach;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &PageArgs) -> Result<ExitCode, Failure> {
    let target = reach::here(args.socket.as_deref(), &args.folder)?;
    let mut agent = AgentClient::new(target).map_err(Failure::failed)?;
    let link = agent
        .ask(Method::POST, "/v1/session/link", None)
        .map_err(Failure::failed)?;
    if args.json {
        output::json(&link)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |name: &str| link[name].as_str().unwrap_or_default();
    let seconds = link["seconds"].as_u64().unwrap_or_default();
    let url = text("url");
    output::out(&format!("{url}\n"))?;
    output::tell(&format!(
        "valid once, for {seconds} s, with the role {}\n",
        text("role")
    ));
    // `http://HOST:PORT/...`
    if let Some(address) = url.split('/').nth(2)
        && let Some((_, port)) = address.rsplit_once(':')
    {
        output::tell(&format!(
            "from another host, first: ssh -L {port}:{address} THIS-HOST\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

//! `weir page`: asks the agent, by its socket, for a login link of its page.

use std::process::ExitCode;

use weir_agent::Settings;
use weir_agent::api::{ask, socket_path};

use crate::args::agent::PageArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &PageArgs) -> Result<ExitCode, Failure> {
    let socket = match &args.socket {
        Some(path) => path.clone(),
        None => {
            let settings = Settings::of(&args.folder).map_err(|error| {
                Failure::usage(format!(
                    "{}\nname the agent's socket with --socket to do without that file",
                    error.to_string().trim_end()
                ))
            })?;
            socket_path(&settings.api.socket).ok_or_else(|| {
                Failure::usage("agent.toml has `socket = \"off\"`: `weir page` needs the socket")
            })?
        }
    };
    let link = ask(&socket, "POST", "/v1/session/link").map_err(Failure::failed)?;
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

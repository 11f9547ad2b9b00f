//! The agent's HTTP API: what runs, its history and its metrics for programs, by a Unix socket; and the page, which is a client of it.
//!
//! The server is one thread with its own single-threaded runtime, so no client can hold up the agent's loop. What it asks of the host is the
//! trait [`Host`]; what both threads share is the hub. `routes::ROUTES` is the one list of requests. Design: docs/design/api.md.

mod access;
mod answer;
mod asks;
mod client;
mod conversation;
mod events;
mod host;
mod hub;
mod keys;
mod limits;
mod openapi;
mod page;
mod payload;
mod problem;
mod remote;
mod routes;
mod server;
mod sessions;
mod stall;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use tokio::sync::oneshot;

pub use client::{AgentClient, ClientError, Events, Target};
pub use host::Host;
pub use hyper::Method;
pub use openapi::document;
pub use problem::Problem;

use crate::agent::View;
use crate::event::Event;
use crate::settings::{ApiSettings, Socket};
use access::Access;
use asks::{Ask, Reply, Task};
use hub::Hub;
use keys::{Keys, Renewal};
use limits::Limits;
use remote::Remote;
use server::{Places, Server};

/// Where run folders of weir are, if systemd names no other.
const RUN: &str = "/run/weir";

/// Why [`Api::wait`] returned.
#[derive(Debug)]
pub enum Woken {
    /// The time is over, or nothing was changed.
    Time,
    /// Files and edges are to be compared now.
    Look,
    /// All files are to be applied.
    Apply(Event),
    /// Something was changed.
    Changed(Event),
}

/// The API of an agent. Without [`Api::hold`] it serves nothing.
pub struct Api {
    hub: Arc<Hub>,
    host: Arc<dyn Host>,
    /// The settings that were last tried.
    settings: Option<ApiSettings>,
    server: Option<Server>,
    /// Certificates for other hosts.
    keys: Keys,
    /// Where requests come from that change something.
    asks: Receiver<Ask>,
    /// Its other end, for the next server.
    queue: SyncSender<Ask>,
    /// Who waits for all files to be applied.
    applies: Vec<Reply>,
    /// Why it does not serve. Said once.
    error: Option<String>,
}

impl Api {
    /// Of a host.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Api {
        let (queue, asks) = asks::queue();
        Api {
            asks,
            queue,
            applies: Vec::new(),
            hub: Arc::default(),
            host,
            settings: None,
            server: None,
            keys: Keys::default(),
            error: None,
        }
    }

    /// Serves as the settings say: begins, begins again if they changed, takes certificates that were renewed, and tries again what failed.
    /// Edges need no API, so a failure is an event.
    pub fn hold(&mut self, settings: &ApiSettings) -> Vec<Event> {
        // Open connections end with a server, so it is only replaced where that changes something.
        let is_current = match &self.server {
            Some(server) => !server.can_bind_more(),
            None => self.error.is_none(),
        };
        let is_same = self.settings.as_ref() == Some(settings) && is_current;
        let (mut events, is_new_authority) = match self.keys.look(settings) {
            Renewal::Nothing => (Vec::new(), false),
            Renewal::Certificate(event) | Renewal::Failed(event) => (vec![event], false),
            Renewal::Authority => (Vec::new(), true),
        };
        if is_same && !is_new_authority {
            return events;
        }
        self.settings = Some(settings.clone());
        // Before the next begins: it may be at the same place.
        self.server = None;
        let places = Places {
            socket: socket_path(&settings.socket),
            access: Access {
                read: settings.read_group.map(|group| group.0),
                operate: settings.operate_group.map(|group| group.0),
            },
            metrics: settings.metrics.map(|address| address.0),
            page: settings.page.map(|address| address.0),
            remote: settings.listen.and_then(|address| {
                Some(Remote {
                    address: address.0,
                    roles: Arc::new(settings.clients.clone()),
                    keys: self.keys.follow()?,
                })
            }),
        };
        if places.is_empty() {
            self.error = None;
            return events;
        }
        let (hub, host) = (Arc::clone(&self.hub), Arc::clone(&self.host));
        let queue = self.queue.clone();
        match Server::start(&places, Limits::default(), hub, host, queue) {
            Ok(server) => {
                events.extend(
                    places
                        .without(server.unbound())
                        .map(|at| Event::Serving { at }),
                );
                let text = server.errors().join("; ");
                let is_new = self.error.as_ref() != Some(&text);
                self.error = (!text.is_empty()).then(|| text.clone());
                if self.error.is_some() && is_new {
                    let text = format!("API: {text}");
                    events.push(Event::Warning { text });
                }
                self.server = Some(server);
                events
            }
            Err(text) => {
                let is_new = self.error.as_ref() != Some(&text);
                self.error = Some(text.clone());
                let event = Event::Warning {
                    text: format!("no API: {text}"),
                };
                events.extend(is_new.then_some(event));
                events
            }
        }
    }

    /// Tells clients how the agent stands after a look.
    pub fn show(&mut self, mut view: View) {
        let problems = self.keys.error().into_iter().chain(self.error.as_deref());
        view.problems.extend(problems.map(str::to_owned));
        self.hub.show(view);
        for reply in self.applies.drain(..) {
            // A client that is gone needs no answer.
            let _ = reply.send(Ok(self.hub.view()));
        }
    }

    /// What ends a wait from another thread.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let queue = self.queue.clone();
        move || {
            // Where the queue is full, the loop is about to look anyway.
            let reply = oneshot::channel().0;
            let _ = queue.try_send(Ask {
                task: Task::Look,
                reply,
            });
        }
    }

    /// Waits for a request that changes something, and carries it out.
    pub fn wait(&mut self, limit: Duration) -> Woken {
        // The other end is here, too: the only error is time.
        let Ok(ask) = self.asks.recv_timeout(limit) else {
            return Woken::Time;
        };
        // The client has got a timeout. A comparison has no client.
        if ask.reply.is_closed() && !matches!(ask.task, Task::Look) {
            return Woken::Time;
        }
        match ask.task {
            Task::Apply(event) => {
                self.applies.push(ask.reply);
                Woken::Apply(event)
            }
            Task::Look => Woken::Look,
            Task::Run(work) => {
                let (result, event) = match work(&*self.host) {
                    Ok((value, event)) => (Ok(value), event),
                    Err(problem) => (Err(problem), None),
                };
                let _ = ask.reply.send(result);
                event.map_or(Woken::Time, Woken::Changed)
            }
        }
    }

    /// Tells clients what happened.
    pub fn publish(&self, event: &Event) {
        self.hub.publish(event);
    }
}

/// The path of a socket; `None`: there is to be none.
#[must_use]
pub fn socket_path(socket: &Socket) -> Option<PathBuf> {
    match socket {
        Socket::Off => None,
        Socket::Path(path) => Some(path.clone()),
        Socket::Default => {
            // systemd joins several by colons; units of weir have one.
            let given = std::env::var_os("RUNTIME_DIRECTORY").filter(|value| !value.is_empty());
            let folder = given.map_or_else(|| PathBuf::from(RUN), PathBuf::from);
            Some(folder.join("agent.sock"))
        }
    }
}

#[cfg(test)]
mod tests;

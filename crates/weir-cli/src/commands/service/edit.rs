//! Edits of the text of a configuration: services and servers of one balancer. What is not touched stays as it was written, comments included.
//!
//! Nothing here says what fits: the edited text is planned like any other.

use std::fmt;
use std::net::IpAddr;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};
use weir_functions::balancer::Protocol;

use crate::args::service::{How, ServiceMode};
use crate::failure::Failure;

/// A service by what it is reached by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Which {
    pub(super) protocol: Protocol,
    /// Address or prefix.
    pub(super) address: String,
    pub(super) port: Option<u16>,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Which { address, port, .. } = self;
        match (port, address.contains(':')) {
            (None, _) => write!(f, "{} {address}", self.protocol.name()),
            (Some(port), false) => write!(f, "{} {address}:{port}", self.protocol.name()),
            (Some(port), true) => write!(f, "{} [{address}]:{port}", self.protocol.name()),
        }
    }
}

/// A mode, and the port of GUE with a header of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) mode: ServiceMode,
    pub(super) gue: Option<u16>,
}

/// The text, and which of its functions is the balancer.
pub(super) struct Text {
    document: DocumentMut,
    function: String,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document.fmt(f)
    }
}

impl Text {
    pub(super) fn parse(text: &str, function: &str) -> Result<Text, Failure> {
        let document = text.parse().map_err(|error| {
            Failure::Failed(format!("the running configuration cannot be read: {error}"))
        })?;
        Ok(Text {
            document,
            function: function.to_owned(),
        })
    }

    pub(super) fn add(
        &mut self,
        which: &Which,
        mode: Option<Way>,
        name: Option<&str>,
    ) -> Result<(), Failure> {
        let services = self.services()?;
        if services.iter().any(|table| is(table, which)) {
            return Err(Failure::Failed(format!(
                "service {which} exists; nothing was changed"
            )));
        }
        let mut table = Table::new();
        if let Some(name) = name {
            table["name"] = value(name);
        }
        table["address"] = value(&which.address);
        table["protocol"] = value(which.protocol.name());
        if let Some(port) = which.port {
            table["port"] = value(i64::from(port));
        }
        // As ipvsadm, where nothing else is said.
        let usual = Way {
            mode: ServiceMode::Dsr,
            gue: None,
        };
        write_mode(&mut table, mode.unwrap_or(usual));
        table["server"] = value(Array::new());
        services.push(table);
        Ok(())
    }

    pub(super) fn edit(
        &mut self,
        which: &Which,
        mode: Option<Way>,
        name: Option<&str>,
    ) -> Result<(), Failure> {
        let table = self.service(which)?;
        if let Some(mode) = mode {
            write_mode(table, mode);
        }
        if let Some(name) = name {
            table["name"] = value(name);
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, which: &Which) -> Result<(), Failure> {
        let services = self.services()?;
        let before = services.len();
        services.retain(|table| !is(table, which));
        match services.len() < before {
            true => self.settle(),
            false => Err(none(which)),
        }
    }

    /// Takes all services out; how many there were.
    pub(super) fn clear(&mut self) -> Result<usize, Failure> {
        let services = self.services()?;
        let count = services.len();
        services.clear();
        self.settle()?;
        Ok(count)
    }

    /// A balancer without services says so.
    fn settle(&mut self) -> Result<(), Failure> {
        let function = self.balancer()?;
        if tables(function, "service")?.is_empty() {
            function["service"] = value(Array::new());
        }
        Ok(())
    }

    pub(super) fn add_server(
        &mut self,
        which: &Which,
        address: IpAddr,
        port: Option<u16>,
        how: &How,
        mode: Option<Way>,
    ) -> Result<(), Failure> {
        let service = self.service(which)?;
        let servers = tables(service, "server")?;
        if servers.iter().any(|table| is_server(table, address, port)) {
            return Err(Failure::Failed(format!(
                "server {address} is already in {which}; nothing was changed"
            )));
        }
        let is_first = servers.is_empty();
        let mut table = Table::new();
        table["address"] = value(address.to_string());
        servers.push(table);
        set_mode(service, which, mode, is_first)?;
        self.fill(which, address, None, port, how)
    }

    pub(super) fn edit_server(
        &mut self,
        which: &Which,
        address: IpAddr,
        port: Option<u16>,
        how: &How,
        mode: Option<Way>,
    ) -> Result<(), Failure> {
        let service = self.service(which)?;
        set_mode(service, which, mode, false)?;
        self.fill(which, address, port, None, how)
    }

    pub(super) fn delete_server(
        &mut self,
        which: &Which,
        address: IpAddr,
        port: Option<u16>,
    ) -> Result<(), Failure> {
        let service = self.service(which)?;
        let servers = tables(service, "server")?;
        let before = servers.len();
        servers.retain(|table| !is_server(table, address, port));
        let after = servers.len();
        if after == before {
            return Err(no_server(which, address));
        }
        if after == 0 {
            service["server"] = value(Array::new());
        }
        Ok(())
    }

    /// In one service or in all; in how many it was.
    pub(super) fn drain(
        &mut self,
        which: Option<&Which>,
        address: IpAddr,
        drain: bool,
    ) -> Result<usize, Failure> {
        let mut count = 0;
        for service in self.services()?.iter_mut() {
            if which.is_some_and(|which| !is(service, which)) {
                continue;
            }
            for server in tables(service, "server")?.iter_mut() {
                if !is_server(server, address, None) {
                    continue;
                }
                count += 1;
                match drain {
                    true => server["drain"] = value(true),
                    false => drop(server.remove("drain")),
                }
            }
        }
        match count {
            0 => Err(Failure::Failed(format!(
                "none of the selected services has server {address}; nothing was changed"
            ))),
            count => Ok(count),
        }
    }

    /// Writes what is said of a server; `new_port`: of one that was just added.
    fn fill(
        &mut self,
        which: &Which,
        address: IpAddr,
        port: Option<u16>,
        new_port: Option<u16>,
        how: &How,
    ) -> Result<(), Failure> {
        let service = self.service(which)?;
        let mode = service
            .get("mode")
            .and_then(Item::as_str)
            .unwrap_or_default();
        let (is_nat, is_dsr) = (mode == "nat", mode == "dsr");
        let has_port = new_port.filter(|port| is_nat || which.port != Some(*port));
        let servers = tables(service, "server")?;
        let server = servers
            .iter_mut()
            .filter(|table| is_server(table, address, port))
            .last()
            .ok_or_else(|| no_server(which, address))?;
        if let Some(port) = has_port {
            server["port"] = value(i64::from(port));
        }
        if let Some(weight) = how.weight {
            server["weight"] = value(i64::from(weight));
        }
        if let Some(mac) = &how.mac {
            server["mac"] = value(mac.to_string());
        }
        if let Some(to) = &how.to {
            server["to"] = value(to);
        }
        if is_dsr && server.get("mac").is_none() && server.get("cpu").is_none() {
            let mac = neighbour(address).ok_or_else(|| {
                Failure::Usage(format!(
                    "the host does not know the MAC address of {address}: ping it first, or give --mac; nothing was changed"
                ))
            })?;
            server["mac"] = value(mac.to_string());
        }
        Ok(())
    }

    fn service(&mut self, which: &Which) -> Result<&mut Table, Failure> {
        let found = self.services()?.iter_mut().find(|table| is(table, which));
        found.ok_or_else(|| none(which))
    }

    fn services(&mut self) -> Result<&mut ArrayOfTables, Failure> {
        tables(self.balancer()?, "service")
    }

    fn balancer(&mut self) -> Result<&mut Table, Failure> {
        let lost =
            || Failure::Failed("the balancer is not in the running configuration".to_owned());
        let functions = tables(self.document.as_table_mut(), "function")?;
        let name = |table: &Table| table.get("name").and_then(Item::as_str).map(str::to_owned);
        functions
            .iter_mut()
            .find(|table| name(table).as_deref() == Some(&self.function))
            .ok_or_else(lost)
    }
}

/// The list of tables at a key, however it was written.
fn tables<'t>(table: &'t mut Table, key: &str) -> Result<&'t mut ArrayOfTables, Failure> {
    let item = table
        .entry(key)
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if !item.is_array_of_tables() {
        let is_empty = item.as_array().is_some_and(Array::is_empty);
        let taken = std::mem::take(item);
        *item = match taken.into_array_of_tables() {
            Ok(tables) => Item::ArrayOfTables(tables),
            Err(_) if is_empty => Item::ArrayOfTables(ArrayOfTables::new()),
            Err(other) => other,
        };
    }
    item.as_array_of_tables_mut().ok_or_else(|| {
        Failure::Failed(format!(
            "`{key}` is not a list of tables in the running configuration"
        ))
    })
}

fn is(table: &Table, which: &Which) -> bool {
    let text = |key: &str| table.get(key).and_then(Item::as_str).unwrap_or_default();
    let port = table.get("port").and_then(Item::as_integer);
    let same = |a: &str, b: &str| match (a.parse::<IpAddr>(), b.parse::<IpAddr>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    };
    text("protocol") == which.protocol.name()
        && same(text("address"), &which.address)
        && port == which.port.map(i64::from)
}

fn is_server(table: &Table, address: IpAddr, port: Option<u16>) -> bool {
    let has = table.get("address").and_then(Item::as_str);
    let has_port = table.get("port").and_then(Item::as_integer);
    let same = |port: u16| has_port.is_none_or(|has| has == i64::from(port));
    has.and_then(|text| text.parse::<IpAddr>().ok()) == Some(address) && port.is_none_or(same)
}

/// A service has one mode; the first server says which where none was said before.
fn set_mode(
    service: &mut Table,
    which: &Which,
    mode: Option<Way>,
    is_first: bool,
) -> Result<(), Failure> {
    let Some(mode) = mode else {
        return Ok(());
    };
    let has = service
        .get("mode")
        .and_then(Item::as_str)
        .unwrap_or_default()
        .to_owned();
    if has == word(mode.mode) && mode.gue.is_none() {
        return Ok(());
    }
    let mut other = service.clone();
    write_mode(&mut other, mode);
    let same = |key: &str| {
        let text = |table: &Table| {
            table
                .get(key)
                .map(|item| item.to_string().trim().to_owned())
        };
        text(&other) == text(service)
    };
    if ["mode", "gue_version", "gue_port"].into_iter().all(same) {
        return Ok(());
    }
    if is_first {
        write_mode(service, mode);
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "service {which} has mode {has}, and all of its servers with it: `weir service edit` changes it for all; nothing was changed"
    )))
}

fn write_mode(service: &mut Table, way: Way) {
    service["mode"] = value(word(way.mode));
    for key in ["gue_version", "gue_port"] {
        if way.mode != ServiceMode::Gue || way.gue.is_some() {
            service.remove(key);
        }
    }
    if let Some(port) = way.gue {
        service["gue_version"] = value(0);
        service["gue_port"] = value(i64::from(port));
    }
}

fn word(mode: ServiceMode) -> &'static str {
    match mode {
        ServiceMode::Ipip => "ipip",
        ServiceMode::Gue => "gue",
        ServiceMode::Nat => "nat",
        ServiceMode::Dsr => "dsr",
    }
}

fn none(which: &Which) -> Failure {
    Failure::Failed(format!("no service {which}; nothing was changed"))
}

fn no_server(which: &Which, address: IpAddr) -> Failure {
    Failure::Failed(format!(
        "service {which} has no server {address}; nothing was changed"
    ))
}

/// What the kernel knows of an IPv4 neighbour.
fn neighbour(address: IpAddr) -> Option<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/arp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [ip, _, flags, mac, ..] if ip.parse().ok() == Some(address) && *flags != "0x0" => {
                Some((*mac).to_owned())
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "edge = \"e\" # mine\n\n[[function]]\nname = \"lb\"\nkind = \"balancer\"\n\n# the shop\n[[function.service]]\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\"\nserver = [{ address = \"10.0.0.1\" }]\n";

    fn which(port: u16) -> Which {
        Which {
            protocol: Protocol::Tcp,
            address: "192.0.2.1".to_owned(),
            port: Some(port),
        }
    }

    #[test]
    fn an_edit_leaves_the_rest_as_it_was_written() {
        let mut text = Text::parse(TEXT, "lb").expect("parses");
        let server = "10.0.0.2".parse().expect("an address");
        let how = How {
            weight: Some(3),
            ..How::default()
        };
        text.add_server(&which(80), server, Some(8080), &how, None)
            .expect("added");
        let shown = text.to_string();
        for part in [
            "edge = \"e\" # mine",
            "# the shop",
            "address = \"10.0.0.2\"\nport = 8080\nweight = 3\n",
            "address = \"10.0.0.1\"",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        text.drain(None, server, true).expect("there");
        assert!(text.to_string().contains("drain = true"));
        text.drain(None, server, false).expect("there");
        assert!(!text.to_string().contains("drain"));
        text.delete_server(&which(80), server, None).expect("there");
        text.delete_server(&which(80), "10.0.0.1".parse().expect("an address"), None)
            .expect("there");
        assert!(text.to_string().contains("server = []"), "{text}");
        text.delete(&which(80)).expect("there");
        assert!(!text.to_string().contains("192.0.2.1"));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let mut text = Text::parse(TEXT, "lb").expect("parses");
        let error = text.delete(&which(81)).expect_err("refused").to_string();
        assert_eq!(error, "no service tcp 192.0.2.1:81; nothing was changed");
        let server = "10.0.0.1".parse().expect("an address");
        let error = text.add_server(&which(80), server, None, &How::default(), None);
        let error = error.expect_err("refused").to_string();
        assert_eq!(
            error,
            "server 10.0.0.1 is already in tcp 192.0.2.1:80; nothing was changed"
        );
        let other = "10.0.0.9".parse().expect("an address");
        let error = text.add_server(
            &which(80),
            other,
            None,
            &How::default(),
            Some(Way {
                mode: ServiceMode::Ipip,
                gue: None,
            }),
        );
        assert!(
            error
                .expect_err("refused")
                .to_string()
                .contains("has mode nat")
        );
    }
}

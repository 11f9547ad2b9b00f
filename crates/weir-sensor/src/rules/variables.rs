//! Variables of rules: names for groups of addresses and of ports.

use std::collections::BTreeMap;

/// Variables. Values are in the rule language themselves and may name other variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Groups of addresses, by name without `$`.
    pub addresses: BTreeMap<String, String>,
    /// Groups of ports.
    pub ports: BTreeMap<String, String>,
}

impl Variables {
    /// The names that published rule sets expect, with the values that sensors are shipped with: private networks are at home, the rest is not.
    pub fn conventional() -> Variables {
        let addresses = [
            ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
            ("EXTERNAL_NET", "!$HOME_NET"),
            ("HTTP_SERVERS", "$HOME_NET"),
            ("SMTP_SERVERS", "$HOME_NET"),
            ("SQL_SERVERS", "$HOME_NET"),
            ("DNS_SERVERS", "$HOME_NET"),
            ("TELNET_SERVERS", "$HOME_NET"),
            ("FTP_SERVERS", "$HOME_NET"),
            ("SSH_SERVERS", "$HOME_NET"),
            ("SIP_SERVERS", "$HOME_NET"),
            ("AIM_SERVERS", "$EXTERNAL_NET"),
            ("DC_SERVERS", "$HOME_NET"),
            ("DNP3_SERVER", "$HOME_NET"),
            ("DNP3_CLIENT", "$HOME_NET"),
            ("MODBUS_CLIENT", "$HOME_NET"),
            ("MODBUS_SERVER", "$HOME_NET"),
            ("ENIP_CLIENT", "$HOME_NET"),
            ("ENIP_SERVER", "$HOME_NET"),
        ];
        let ports = [
            ("HTTP_PORTS", "80"),
            ("SHELLCODE_PORTS", "!80"),
            ("ORACLE_PORTS", "1521"),
            ("SSH_PORTS", "22"),
            ("DNP3_PORTS", "20000"),
            ("MODBUS_PORTS", "502"),
            ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
            ("FTP_PORTS", "21"),
            ("SIP_PORTS", "[5060,5061]"),
            ("MAIL_PORTS", "[25,110,143]"),
            ("GENEVE_PORTS", "6081"),
            ("VXLAN_PORTS", "4789"),
            ("TEREDO_PORTS", "3544"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Variables {
            addresses: addresses.into_iter().map(owned).collect(),
            ports: ports.into_iter().map(owned).collect(),
        }
    }
}

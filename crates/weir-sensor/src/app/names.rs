//! Application protocols by name. What else is known of each stands in its row of the table in `app`.

macro_rules! apps {
    ($($variant:ident: $name:literal;)*) => {
        /// An application protocol.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum App {
            /// Not known yet.
            #[default]
            Unknown,
            /// Not known, and will not be.
            Failed,
            $(#[doc = $name] $variant,)*
        }

        impl App {
            /// All of them.
            pub const ALL: &'static [App] = &[App::Unknown, App::Failed, $(App::$variant,)*];

            /// As rules and EVE name it.
            pub fn name(self) -> &'static str {
                match self {
                    App::Unknown => "unknown",
                    App::Failed => "failed",
                    $(App::$variant => $name,)*
                }
            }
        }
    };
}

apps! {
    Http1: "http";
    Http2: "http2";
    Dns: "dns";
    Tls: "tls";
    Smtp: "smtp";
    Ftp: "ftp";
    FtpData: "ftp-data";
    Ssh: "ssh";
    Smb: "smb";
    Dcerpc: "dcerpc";
    Quic: "quic";
    Imap: "imap";
    Pop3: "pop3";
    Tftp: "tftp";
    Snmp: "snmp";
    Sip: "sip";
    Ntp: "ntp";
    Dhcp: "dhcp";
    Krb5: "krb5";
    Rdp: "rdp";
    Rfb: "rfb";
    Nfs: "nfs";
    Ike: "ike";
    Mqtt: "mqtt";
    Telnet: "telnet";
    Ldap: "ldap";
    Mdns: "mdns";
    Websocket: "websocket";
    Pgsql: "pgsql";
    Enip: "enip";
    Dnp3: "dnp3";
    Doh2: "doh2";
    Modbus: "modbus";
    BittorrentDht: "bittorrent-dht";
}

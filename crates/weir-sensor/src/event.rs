//! What is odd about packets and streams, by the names that `decode-event` and `stream-event` rules use. The one list; an event that is listed is raised somewhere.
//!
//! `docs/design/reassembly.md` has the same table, checked by `tests/run/events.rs`.

macro_rules! events {
    (decode { $($variant:ident: $name:literal $(| $alias:literal)*, $what:literal;)* } stream { $($svariant:ident: $sname:literal, $swhat:literal;)* }) => {
        /// An event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Event {
            $(#[doc = $what] $variant,)*
            $(#[doc = $swhat] $svariant,)*
        }

        impl Event {
            /// All of them, those of decoding and defragmentation first.
            pub const ALL: &'static [Event] = &[$(Event::$variant,)* $(Event::$svariant,)*];

            /// The name in rules.
            pub fn name(self) -> &'static str {
                match self { $(Event::$variant => $name,)* $(Event::$svariant => $sname,)* }
            }

            /// One line for people.
            pub fn what(self) -> &'static str {
                match self { $(Event::$variant => $what,)* $(Event::$svariant => $swhat,)* }
            }

            /// Whether it is of a stream (`stream-event`), not of a packet by itself (`decode-event`).
            pub fn is_stream(self) -> bool {
                match self { $(Event::$variant => false,)* $(Event::$svariant => true,)* }
            }

            /// The event of a `decode-event` rule.
            pub fn decode(name: &str) -> Option<Event> {
                Some(match name { $($name $(| $alias)* => Event::$variant,)* _ => return None })
            }

            /// The event of a `stream-event` rule.
            pub fn stream(name: &str) -> Option<Event> {
                Some(match name { $($sname => Event::$svariant,)* _ => return None })
            }
        }
    };
}

/// Events that published rules ask for and nothing here raises, as records of anomalies write them: such a rule loads, with a note, and never matches.
const UNRAISED: &[&str] = &[
    "decoder.afp.trunc_pkt",
    "decoder.afpacket.trunc_pkt",
    "decoder.dce.pkt_too_small",
    "decoder.erspan.too_many_vlan_layers",
    "decoder.gre.version0_malformed_sre_hdr",
    "decoder.gre.version1_malformed_sre_hdr",
    "decoder.ipv4.opt_eol_required",
    "decoder.ipv4.opt_pad_required",
    "decoder.ipv6.exthdr_dupl_eh",
    "decoder.udp.hlen_invalid",
    "decoder.vntag.unknown_type",
    "stream.3whs_ack_data_inject",
    "stream.3whs_async_wrong_seq",
    "stream.4whs_invalid_ack",
    "stream.4whs_wrong_seq",
    "stream.pkt_bad_window_update",
    "stream.reassembly_depth_reached",
    "stream.reassembly_insert_invalid",
    "stream.reassembly_insert_limit",
    "stream.reassembly_insert_memcap",
    "stream.reassembly_no_segment",
    "stream.reassembly_urgent_oob_limit_reached",
    "stream.wrong_thread",
];

/// Whether an event is known by name, and raised by nothing.
pub fn is_unraised(name: &str) -> bool {
    UNRAISED.contains(&name)
}

events! {
    decode {
        EthernetTooSmall: "ethernet.pkt_too_small", "Ethernet header cut off.";
        EthernetUnknownType: "ethernet.unknown_ethertype", "Ethertype that is not decoded.";
        VlanTooSmall: "vlan.header_too_small", "VLAN tag cut off.";
        VlanUnknownType: "vlan.unknown_type", "Ethertype after a VLAN tag that is not decoded.";
        VlanTooMany: "vlan.too_many_layers", "More than three VLAN tags.";
        BackboneTooSmall: "ieee8021ah.header_too_small", "Provider backbone tag cut off.";
        VnTagTooSmall: "vntag.header_too_small", "VN tag cut off.";
        NshTooSmall: "nsh.header_too_small", "Network service header cut off.";
        NshVersion: "nsh.unsupported_version", "Network service header of another version than 0.";
        NshLength: "nsh.bad_header_length", "Network service header whose length does not fit its type, or the packet.";
        NshReserved: "nsh.reserved_type", "Network service header with the reserved type 0 of metadata.";
        NshUnsupported: "nsh.unsupported_type", "Network service header with a type of metadata that is not known.";
        NshUnknownPayload: "nsh.unknown_payload", "Neither IP, Ethernet nor MPLS after a network service header.";
        ArpTooSmall: "arp.pkt_too_small", "ARP packet without its fixed part.";
        ArpHardware: "arp.unsupported_hardware", "ARP for another link layer than Ethernet.";
        ArpProtocol: "arp.unsupported_protocol", "ARP for another protocol than IPv4.";
        ArpTruncated: "arp.invalid_pkt", "ARP packet whose addresses are cut off.";
        ArpHardwareSize: "arp.invalid_hardware_size", "ARP for Ethernet with addresses of other than 6 bytes.";
        ArpProtocolSize: "arp.invalid_protocol_size", "ARP for IPv4 with addresses of other than 4 bytes.";
        ArpOpcode: "arp.unsupported_opcode", "ARP packet with an operation that is not known.";
        MplsTooSmall: "mpls.header_too_small", "MPLS label cut off.";
        MplsPayloadTooSmall: "mpls.pkt_too_small", "Nothing after the MPLS labels.";
        MplsRouterAlert: "mpls.bad_label_router_alert", "Router alert label at the bottom of the stack.";
        MplsImplicitNull: "mpls.bad_label_implicit_null", "Implicit null label on the wire.";
        MplsReserved: "mpls.bad_label_reserved", "Reserved MPLS label.";
        MplsUnknownPayload: "mpls.unknown_payload_type", "Neither IP nor Ethernet after the MPLS labels.";
        ChdlcTooSmall: "chdlc.pkt_too_small", "Header of Cisco's HDLC cut off.";
        PppoeTooSmall: "pppoe.pkt_too_small", "PPPoE header cut off.";
        PppoeWrongCode: "pppoe.wrong_code", "PPPoE session packet with a code other than 0.";
        PppoeMalformedTags: "pppoe.malformed_tags", "Tag of PPPoE discovery whose length leaves the packet.";
        PppTooSmall: "ppp.pkt_too_small", "PPP header cut off.";
        PppVjTooSmall: "ppp.vju_pkt_too_small", "Header of a packet of PPP with a compressed TCP header cut off (RFC 1144).";
        PppIp4TooSmall: "ppp.ip4_pkt_too_small", "IPv4 header cut off in PPP.";
        PppIp6TooSmall: "ppp.ip6_pkt_too_small", "IPv6 header cut off in PPP.";
        PppUnsupported: "ppp.unsup_proto", "PPP protocol that is known and not decoded.";
        PppWrongType: "ppp.wrong_type", "Number that is no PPP protocol.";
        SllTooSmall: "sll.pkt_too_small", "Linux cooked header cut off.";
        Sll2TooSmall: "sll2.pkt_too_small", "Linux cooked header of version 2 cut off.";
        NullTooSmall: "ltnull.pkt_too_small", "Header of a loopback capture cut off.";
        NullUnsupported: "ltnull.unsupported_type", "Address family of a loopback capture that is not decoded.";
        RawInvalidVersion: "ipraw.invalid_ip_version", "Raw packet that is neither IPv4 nor IPv6.";
        LinkUnsupported: "link.unsupported_type", "Link type that is not decoded.";
        Ipv4TooSmall: "ipv4.pkt_too_small", "IPv4 header cut off.";
        Ipv4HeaderTooSmall: "ipv4.hlen_too_small", "IPv4 header length below 20 bytes.";
        Ipv4LengthTooSmall: "ipv4.iplen_smaller_than_hlen", "IPv4 total length below the header length.";
        Ipv4Truncated: "ipv4.trunc_pkt", "IPv4 packet shorter than its total length.";
        Ipv4WrongVersion: "ipv4.wrong_ip_version", "IPv4 expected, other version found.";
        Ipv4OptionInvalid: "ipv4.opt_invalid", "IPv4 option with a length that its type does not have.";
        Ipv4OptionLength: "ipv4.opt_invalid_len", "IPv4 option whose length leaves the header.";
        Ipv4OptionMalformed: "ipv4.opt_malformed", "IPv4 option whose content contradicts itself.";
        Ipv4OptionUnknown: "ipv4.opt_unknown", "IPv4 option of unknown type.";
        Ipv4OptionDuplicate: "ipv4.opt_duplicate", "IPv4 option twice.";
        Ipv4Icmpv6: "ipv4.icmpv6", "ICMPv6 in IPv4.";
        Ipv4Checksum: "ipv4.invalid_checksum", "IPv4 header checksum wrong.";
        Ipv4FragmentTooLarge: "ipv4.frag_pkt_too_large" | "ipv4.frag.too_large", "IPv4 fragment that ends beyond 65,535 bytes.";
        Ipv4FragmentOverlap: "ipv4.frag_overlap" | "ipv4.frag.overlap", "IPv4 fragments that overlap.";
        Ipv4FragmentIgnored: "ipv4.frag_ignored", "IPv4 fragment given up: over a cap, or of a datagram already given up.";
        Ipv6TooSmall: "ipv6.pkt_too_small", "IPv6 header cut off.";
        Ipv6Truncated: "ipv6.trunc_pkt", "IPv6 packet shorter than its payload length.";
        Ipv6WrongVersion: "ipv6.wrong_ip_version", "IPv6 expected, other version found.";
        Ipv6HeaderTruncated: "ipv6.trunc_exthdr", "IPv6 extension header cut off.";
        Ipv6DuplicateFragment: "ipv6.exthdr_dupl_fh", "Two fragment headers.";
        Ipv6UselessFragment: "ipv6.exthdr_useless_fh", "Fragment header of a whole packet.";
        Ipv6DuplicateRouting: "ipv6.exthdr_dupl_rh", "Two routing headers.";
        Ipv6DuplicateHopByHop: "ipv6.exthdr_dupl_hh", "Two hop-by-hop headers.";
        Ipv6DuplicateDestination: "ipv6.exthdr_dupl_dh", "More than two destination options headers.";
        Ipv6DuplicateAuthentication: "ipv6.exthdr_dupl_ah", "Two authentication headers.";
        Ipv6OptionLength: "ipv6.exthdr_invalid_optlen", "Option whose length leaves its extension header.";
        Ipv6AuthenticationReserved: "ipv6.exthdr_ah_res_not_null", "Reserved field of the authentication header not 0.";
        Ipv6ZeroPad: "ipv6.zero_len_padn", "Padding option without padding.";
        Ipv6HopByHopUnknown: "ipv6.hopopts_unknown_opt", "Hop-by-hop header with unknown options only.";
        Ipv6HopByHopPadding: "ipv6.hopopts_only_padding", "Hop-by-hop header with padding only.";
        Ipv6DestinationUnknown: "ipv6.dstopts_unknown_opt", "Destination options with unknown options only.";
        Ipv6DestinationPadding: "ipv6.dstopts_only_padding", "Destination options with padding only.";
        Ipv6RoutingType0: "ipv6.rh_type_0", "Routing header of type 0.";
        Ipv6FragmentReserved: "ipv6.fh_non_zero_reserved_field", "Reserved field of the fragment header not 0.";
        Ipv6DataAfterNone: "ipv6.data_after_none_header", "Bytes after the header that says there are none.";
        Ipv6UnknownNext: "ipv6.unknown_next_header", "Next header that is not decoded.";
        Ipv6TooManyHeaders: "ipv6.exthdr_too_many", "More extension headers than are followed.";
        Ipv6In6TooSmall: "ipv6.ipv6_in_ipv6_too_small", "IPv6 in IPv6, its header cut off.";
        Ipv6In6WrongVersion: "ipv6.ipv6_in_ipv6_wrong_version", "IPv6 in IPv6, other version found.";
        Ipv6In4TooSmall: "ipv6.ipv4_in_ipv6_too_small", "IPv4 in IPv6, its header cut off.";
        Ipv6In4WrongVersion: "ipv6.ipv4_in_ipv6_wrong_version", "IPv4 in IPv6, other version found.";
        Ipv6Icmpv4: "ipv6.icmpv4", "ICMPv4 in IPv6.";
        Ipv6FragmentTooLarge: "ipv6.frag_pkt_too_large" | "ipv6.frag.too_large", "IPv6 fragment that ends beyond 65,535 bytes.";
        Ipv6FragmentOverlap: "ipv6.frag_overlap" | "ipv6.frag.overlap", "IPv6 fragments that overlap: all of the datagram is given up (RFC 5722).";
        Ipv6FragmentIgnored: "ipv6.frag_ignored", "IPv6 fragment given up: over a cap, or of a datagram already given up.";
        Ipv6FragmentLength: "ipv6.frag_invalid_length", "IPv6 fragment, not the last, whose length is not a multiple of 8.";
        Icmpv4TooSmall: "icmpv4.pkt_too_small", "ICMP header cut off.";
        Icmpv4UnknownType: "icmpv4.unknown_type", "ICMP type unknown.";
        Icmpv4UnknownCode: "icmpv4.unknown_code", "ICMP code unknown for its type.";
        Icmpv4Truncated: "icmpv4.ipv4_trunc_pkt", "Packet quoted by ICMP cut off.";
        Icmpv4UnknownVersion: "icmpv4.ipv4_unknown_ver", "Packet quoted by ICMP is not IPv4.";
        Icmpv4Checksum: "icmpv4.invalid_checksum", "ICMP checksum wrong.";
        Icmpv6TooSmall: "icmpv6.pkt_too_small", "ICMPv6 header cut off.";
        Icmpv6UnknownType: "icmpv6.unknown_type", "ICMPv6 type unknown.";
        Icmpv6UnknownCode: "icmpv6.unknown_code", "ICMPv6 code unknown for its type.";
        Icmpv6UnassignedType: "icmpv6.unassigned_type", "ICMPv6 type that is not assigned.";
        Icmpv6ExperimentationType: "icmpv6.experimentation_type", "ICMPv6 type for private experiments.";
        Icmpv6Truncated: "icmpv6.ipv6_trunc_pkt", "Packet quoted by ICMPv6 cut off.";
        Icmpv6UnknownVersion: "icmpv6.ipv6_unknown_version", "Packet quoted by ICMPv6 is not IPv6.";
        Icmpv6MulticastHopLimit: "icmpv6.mld_message_with_invalid_hl", "Multicast listener message with a hop limit other than 1.";
        Icmpv6Checksum: "icmpv6.invalid_checksum", "ICMPv6 checksum wrong.";
        TcpTooSmall: "tcp.pkt_too_small", "TCP header cut off.";
        TcpHeaderTooSmall: "tcp.hlen_too_small", "TCP header length beyond the packet.";
        TcpOptionsNegative: "tcp.invalid_optlen", "TCP header length below 20 bytes.";
        TcpOptionLength: "tcp.opt_invalid_len", "TCP option with an invalid length.";
        TcpOptionDuplicate: "tcp.opt_duplicate", "TCP option twice.";
        TcpChecksum: "tcp.invalid_checksum", "TCP checksum wrong.";
        UdpHeaderTooSmall: "udp.hlen_too_small", "UDP header cut off.";
        UdpTooSmall: "udp.pkt_too_small", "UDP packet shorter than its length says.";
        UdpLength: "udp.len_invalid", "UDP length below 8 bytes.";
        UdpChecksum: "udp.invalid_checksum", "UDP checksum wrong.";
        SctpTooSmall: "sctp.pkt_too_small", "SCTP header cut off.";
        EspTooSmall: "esp.pkt_too_small", "ESP header cut off.";
        GreTooSmall: "gre.pkt_too_small", "GRE header cut off.";
        GreWrongVersion: "gre.wrong_version", "GRE version unknown.";
        Gre0Recursion: "gre.version0_recur", "GRE recursion control set.";
        Gre0Flags: "gre.version0_flags", "GRE reserved flags set.";
        Gre0TooBig: "gre.version0_hdr_too_big", "GRE header beyond the packet.";
        Gre1Checksum: "gre.version1_chksum", "GRE version 1 with a checksum.";
        Gre1Route: "gre.version1_route", "GRE version 1 with routing.";
        Gre1StrictRoute: "gre.version1_ssr", "GRE version 1 with a strict source route.";
        Gre1Recursion: "gre.version1_recur", "GRE version 1 with recursion control.";
        Gre1Flags: "gre.version1_flags", "GRE version 1 with reserved flags.";
        Gre1NoKey: "gre.version1_no_key", "GRE version 1 without a key.";
        Gre1WrongProtocol: "gre.version1_wrong_protocol", "GRE version 1 that does not carry PPP.";
        Gre1TooBig: "gre.version1_hdr_too_big", "GRE version 1 header beyond the packet.";
        ErspanTooSmall: "erspan.header_too_small", "ERSPAN header cut off.";
        ErspanVersion: "erspan.unsupported_version", "ERSPAN version that is not decoded.";
        VxlanUnknownPayload: "vxlan.unknown_payload_type", "VXLAN header over an Ethernet frame of unknown type.";
        GeneveUnknownPayload: "geneve.unknown_payload_type", "Geneve header with a payload that is not decoded.";
        TooManyLayers: "too_many_layers", "More tunnels, or labels over Ethernet over labels, in each other than are followed.";
    }
    stream {
        WrongAckDirection: "3whs_ack_in_wrong_dir", "ACK of the handshake from the server.";
        AckWithWrongSequence: "3whs_wrong_seq_wrong_ack", "ACK of the handshake with wrong numbers.";
        AckRightSequenceWrongAck: "3whs_right_seq_wrong_ack_evasion", "ACK of the handshake with the right sequence and a wrong acknowledgement.";
        SynAckInWrongDirection: "3whs_synack_in_wrong_direction", "SYN/ACK from the side that sent the SYN.";
        SynAckToServerOnSynReceived: "3whs_synack_toserver_on_syn_recv", "SYN/ACK to the server after the server's.";
        SynAckDifferentAck: "3whs_synack_resend_with_different_ack", "SYN/ACK again, with another acknowledgement.";
        SynAckDifferentSequence: "3whs_synack_resend_with_diff_seq", "SYN/ACK again, with another sequence.";
        SynAckWrongAck: "3whs_synack_with_wrong_ack", "SYN/ACK that acknowledges no SYN seen.";
        SynAckFlood: "3whs_synack_flood", "More different SYN/ACKs than are remembered.";
        SynAckIgnoredData: "3whs_synack_tfo_data_ignored", "SYN/ACK that does not acknowledge the data of the SYN.";
        SynToClientOnSynReceived: "3whs_syn_toclient_on_syn_recv", "SYN from the server after its SYN/ACK.";
        SynDifferentSequence: "3whs_syn_resend_diff_seq_on_syn_recv", "SYN again with another sequence, after the SYN/ACK.";
        SynFlood: "3whs_syn_flood", "More different SYNs of one session than a client sends.";
        FourWayWrongAck: "4whs_synack_with_wrong_ack", "Simultaneous open: SYN/ACK with a wrong acknowledgement.";
        FourWayWrongSyn: "4whs_synack_with_wrong_syn", "Simultaneous open: SYN/ACK with a sequence other than its SYN's.";
        FinSyn: "fin_syn", "SYN and FIN together.";
        EstablishedOutOfWindow: "est_packet_out_of_window", "Data outside of the window.";
        EstablishedBeforeLastAck: "est_pkt_before_last_ack", "Acknowledgement from before the last one of the other end.";
        EstablishedSynAckResend: "est_synack_resend", "SYN/ACK again on an established session.";
        EstablishedSynAckDifferentAck: "est_synack_resend_with_different_ack", "SYN/ACK with another acknowledgement on an established session.";
        EstablishedSynAckDifferentSequence: "est_synack_resend_with_diff_seq", "SYN/ACK with another sequence on an established session.";
        EstablishedSynAckToServer: "est_synack_toserver", "SYN/ACK to the server on an established session.";
        EstablishedSynResend: "est_syn_resend", "SYN again on an established session.";
        EstablishedSynDifferentSequence: "est_syn_resend_diff_seq", "SYN with another sequence on an established session.";
        EstablishedSynToClient: "est_syn_toclient", "SYN to the client on an established session.";
        EstablishedInvalidAck: "est_invalid_ack", "Acknowledgement of what cannot have been sent, on an established session.";
        FinInvalidAck: "fin_invalid_ack", "FIN with an invalid acknowledgement.";
        FinOutOfWindow: "fin_out_of_window", "FIN outside of the window.";
        CloseWaitInvalidAck: "closewait_invalid_ack", "Acknowledgement of what cannot have been sent, in CLOSE-WAIT.";
        CloseWaitOutOfWindow: "closewait_ack_out_of_window", "Segment outside of the window, in CLOSE-WAIT.";
        CloseWaitFinOutOfWindow: "closewait_fin_out_of_window", "FIN outside of the window, in CLOSE-WAIT.";
        FinWait1InvalidAck: "fin1_invalid_ack", "Acknowledgement of what cannot have been sent, in FIN-WAIT-1.";
        FinWait1OutOfWindow: "fin1_ack_wrong_seq", "Segment outside of the window, in FIN-WAIT-1.";
        FinWait1FinOutOfWindow: "fin1_fin_wrong_seq", "FIN outside of the window, in FIN-WAIT-1.";
        FinWait2InvalidAck: "fin2_invalid_ack", "Acknowledgement of what cannot have been sent, in FIN-WAIT-2.";
        FinWait2OutOfWindow: "fin2_ack_wrong_seq", "Segment outside of the window, in FIN-WAIT-2.";
        FinWait2FinOutOfWindow: "fin2_fin_wrong_seq", "FIN outside of the window, in FIN-WAIT-2.";
        ClosingInvalidAck: "closing_invalid_ack", "Acknowledgement of what cannot have been sent, in CLOSING.";
        ClosingOutOfWindow: "closing_ack_wrong_seq", "Segment outside of the window, in CLOSING.";
        LastAckInvalidAck: "lastack_invalid_ack", "Acknowledgement of what cannot have been sent, in LAST-ACK.";
        LastAckOutOfWindow: "lastack_ack_wrong_seq", "Segment outside of the window, in LAST-ACK.";
        TimeWaitInvalidAck: "timewait_invalid_ack", "Acknowledgement of what cannot have been sent, in TIME-WAIT.";
        TimeWaitOutOfWindow: "timewait_ack_wrong_seq", "Segment outside of the window, in TIME-WAIT.";
        CloseWaitBeforeLastAck: "closewait_pkt_before_last_ack", "Data or acknowledgement from before the last one of the other end, in CLOSE-WAIT.";
        FinNoSession: "fin_but_no_session", "FIN without a session.";
        RstNoSession: "rst_but_no_session", "RST without a session.";
        RstInvalidAck: "rst_invalid_ack", "RST that does not acknowledge the SYN.";
        RstWithData: "rst_with_data", "RST with payload.";
        ShutdownSynResend: "shutdown_syn_resend", "SYN while a session closes.";
        InvalidTimestamp: "pkt_invalid_timestamp", "Timestamp option older than the last one taken.";
        InvalidAck: "pkt_invalid_ack", "Acknowledgement of what cannot have been sent.";
        BrokenAck: "pkt_broken_ack", "Acknowledgement number without the ACK flag.";
        Retransmission: "pkt_retransmission", "Data seen before.";
        SpuriousRetransmission: "pkt_spurious_retransmission", "Data that its receiver acknowledged already.";
        BeforeBase: "reassembly_segment_before_base_seq", "Segment that lies wholly before what was handed on.";
        Gap: "reassembly_seq_gap", "Bytes that the receiver acknowledged and the sensor never saw.";
        OverlapDifferentData: "reassembly_overlap_different_data", "Overlapping segments with different bytes.";
        MismatchedApplications: "applayer_mismatch_protocol_both_directions", "The two directions look like different applications; asked for by `app-layer-event`.";
        OneDirectionApplication: "applayer_detect_protocol_only_one_direction", "Only one direction looks like the application; asked for by `app-layer-event`.";
        WrongDirectionApplication: "applayer_wrong_direction_first_data", "The server spoke first in an application whose client does; asked for by `app-layer-event`.";
        UnexpectedApplication: "applayer_unexpected_protocol", "A stream went on in another application than it had announced; asked for by `app-layer-event`.";
        NoTlsAfterStarttls: "applayer_no_tls_after_starttls", "TLS was announced, and what came is of no known application; asked for by `app-layer-event`.";
        RecognitionSkipped: "applayer_proto_detection_skipped", "Much data in one direction showed no application, and the other said nothing; asked for by `app-layer-event`.";
        SuspectedRstInjection: "suspected_rst_inject", "Packet of an end behind its own RST, or a RST that its receiver drops.";
    }
}

const _: () = assert!(Event::ALL.len() <= 256);

/// A set of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events([u64; 4]);

impl Events {
    /// Adds one.
    pub fn insert(&mut self, event: Event) {
        self.0[event as usize / 64] |= 1 << (event as usize % 64);
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: Events) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }

    /// Whether it is there.
    pub fn has(self, event: Event) -> bool {
        self.0[event as usize / 64] & (1 << (event as usize % 64)) != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Those of the set, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                // Of an empty word there is no bit 64.
                let event = *Event::ALL.get(word * 64 + bit).filter(|_| bit < 64)?;
                bits &= bits - 1;
                Some(event)
            })
        })
    }
}

/// How often each event happened.
#[derive(Clone, Debug)]
pub struct EventCounts([u64; Event::ALL.len()]);

impl Default for EventCounts {
    fn default() -> Self {
        EventCounts([0; Event::ALL.len()])
    }
}

impl EventCounts {
    /// Counts each event of a set once.
    pub fn add(&mut self, events: Events) {
        if !events.is_empty() {
            for event in events.iter() {
                self.0[event as usize] += 1;
            }
        }
    }

    /// Adds all that another one counted.
    pub fn merge(&mut self, other: &EventCounts) {
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine += others;
        }
    }

    /// How often one happened.
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Those that happened.
    pub fn iter(&self) -> impl Iterator<Item = (Event, u64)> {
        Event::ALL
            .iter()
            .map(|&e| (e, self.get(e)))
            .filter(|(_, n)| *n > 0)
    }
}

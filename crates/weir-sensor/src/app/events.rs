//! What parsers find wrong with traffic, by the names that rules (`app-layer-event`) and records have for it. A rule that asks for any other name is refused, as it could never hold.

/// The events of an application, as rules name them without the application; sorted.
const EVENTS: &[(&str, &[&str])] = &[
    (
        "dns",
        &[
            "infinite_loop",
            "invalid_additionals",
            "invalid_authorities",
            "invalid_opcode",
            "malformed_data",
            "name_too_long",
            "not_request",
            "not_response",
            "too_many_labels",
            "too_many_records",
            "too_many_transactions",
            "z_flag_set",
        ],
    ),
    (
        "ftp",
        &[
            "body_gap",
            "request_command_too_long",
            "response_command_too_long",
            "too_many_transactions",
        ],
    ),
    ("ftp-data", &["body_gap", "too_many_transactions"]),
    (
        "http",
        &[
            "100_continue_already_seen",
            "abnormal_ce_header",
            "compression_bomb",
            "content_length_extra_data_end",
            "content_length_extra_data_start",
            "double_encoded_uri",
            "duplicate_content_length_field_in_request",
            "duplicate_content_length_field_in_response",
            "file_name_too_long",
            "gzip_decompression_failed",
            "host_header_ambiguous",
            "invalid_content_length_field_in_request",
            "invalid_content_length_field_in_response",
            "invalid_request_chunk_len",
            "invalid_request_field_folding",
            "invalid_response_chunk_len",
            "invalid_response_field_folding",
            "invalid_transfer_encoding_value_in_request",
            "lzma_memlimit_reached",
            "method_delim_non_compliant",
            "missing_host_header",
            "multipart_invalid_header",
            "multipart_no_filedata",
            "range_invalid",
            "request_auth_unrecognized",
            "request_body_unexpected",
            "request_chunk_extension",
            "request_field_missing_colon",
            "request_field_too_long",
            "request_header_host_invalid",
            "request_header_invalid",
            "request_header_repetition",
            "request_invalid_lws_after_name",
            "request_line_incomplete",
            "request_line_invalid",
            "request_line_leading_whitespace",
            "request_line_missing_protocol",
            "request_too_many_headers",
            "request_uri_host_invalid",
            "response_abnormal_transfer_encoding",
            "response_body_unexpected",
            "response_chunk_extension",
            "response_chunked_old_proto",
            "response_field_missing_colon",
            "response_field_too_long",
            "response_header_name_not_token",
            "response_header_repetition",
            "response_invalid_lws_after_name",
            "response_line_invalid_protocol",
            "response_line_invalid_response_status",
            "response_too_many_headers",
            "switching_proto_with_content_length",
            "too_many_encoding_layers",
            "too_many_transactions",
            "unable_to_match_response_to_request",
            "uri_delim_non_compliant",
        ],
    ),
    ("quic", &["too_many_transactions"]),
    (
        "smb",
        &[
            "file_overlap",
            "file_skip",
            "malformed_data",
            "too_many_transactions",
        ],
    ),
    (
        "smtp",
        &[
            "body_gap",
            "data_command_rejected",
            "duplicate_fields",
            "invalid_bdat",
            "invalid_pipelined_sequence",
            "invalid_reply",
            "max_command_line_len_exceeded",
            "max_reply_line_len_exceeded",
            "mime_invalid_base64",
            "mime_invalid_qp",
            "mime_long_boundary",
            "mime_long_enc_line",
            "mime_long_filename",
            "mime_long_header_name",
            "mime_long_header_value",
            "mime_long_line",
            "mime_too_many_files",
            "no_server_welcome_message",
            "tls_rejected",
            "too_many_recipients",
            "too_many_transactions",
        ],
    ),
    ("snmp", &["malformed_data", "too_many_transactions"]),
    (
        "ssh",
        &[
            "invalid_banner",
            "invalid_record",
            "long_banner",
            "long_kex_record",
            "too_many_transactions",
        ],
    ),
    ("tftp", &["too_many_transactions"]),
    (
        "tls",
        &[
            "certificate_invalid_algorithmidentifier",
            "certificate_invalid_date",
            "certificate_invalid_der",
            "certificate_invalid_length",
            "certificate_invalid_serial",
            "certificate_invalid_x509name",
            "handshake_invalid_length",
            "invalid_certificate",
            "invalid_handshake_message",
            "invalid_heartbeat_message",
            "invalid_record_length",
            "invalid_record_type",
            "invalid_record_version",
            "invalid_sni_length",
            "invalid_sni_type",
            "invalid_ssl_record",
            "invalid_sslv2_header",
            "invalid_tls_header",
            "multiple_sni_extensions",
            "overflow_heartbeat_message",
            "too_many_transactions",
        ],
    ),
];

/// Names that older rules have for events.
const OLDER: &[(&str, &str, &str)] = &[
    (
        "http",
        "response_invalid_protocol",
        "response_line_invalid_protocol",
    ),
    (
        "http",
        "response_invalid_status",
        "response_line_invalid_response_status",
    ),
    (
        "http",
        "response_header_invalid",
        "response_header_name_not_token",
    ),
];

/// The application and the event that a rule names; `None`: no parser reports it.
pub(crate) fn named(app: &str, event: &str) -> Option<(&'static str, &'static str)> {
    let app = if app == "http1" { "http" } else { app };
    let older = OLDER.iter().find(|(a, o, _)| *a == app && *o == event);
    let event = older.map_or(event, |(_, _, now)| now);
    let (app, events) = EVENTS.iter().find(|(a, _)| *a == app)?;
    Some((app, events.iter().find(|e| **e == event)?))
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, OLDER, named};

    #[test]
    fn lists_are_sorted_and_older_names_lead_to_what_there_is() {
        assert!(EVENTS.is_sorted_by_key(|(app, _)| app));
        assert!(EVENTS.iter().all(|(_, events)| events.is_sorted()));
        for (app, older, now) in OLDER {
            assert_eq!(named(app, older), Some((*app, *now)));
        }
        assert_eq!(
            named("http1", "range_invalid"),
            Some(("http", "range_invalid"))
        );
        assert_eq!(named("http", "range_inavlid"), None);
    }
}

//! What numbers of IKE are called in records: of its first version by RFC 2409, of its second as IANA's registry has them.

/// A list of numbers and their names.
type Names = &'static [(u64, &'static str)];

pub(super) const PAYLOADS: Names = &[
    (0, "NoNextPayload"),
    (1, "SecurityAssociation"),
    (2, "Proposal"),
    (3, "Transform"),
    (4, "KeyExchange"),
    (5, "Identification"),
    (6, "Certificate"),
    (7, "CertificateRequest"),
    (8, "Hash"),
    (9, "Signature"),
    (10, "Nonce"),
    (11, "Notification"),
    (12, "Delete"),
    (13, "VendorID"),
    (15, "SaKekPayload"),
    (16, "SaTekPayload"),
    (17, "KeyDownload"),
    (18, "SequenceNumber"),
    (19, "ProofOfPossession"),
    (20, "NatDiscovery"),
    (21, "NatOriginalAddress"),
    (22, "GroupAssociatedPolicy"),
    (33, "SecurityAssociation"),
    (34, "KeyExchange"),
    (35, "IDInitiator"),
    (36, "IDResponder"),
    (37, "Certificate"),
    (38, "CertificateRequest"),
    (39, "Authentication"),
    (40, "Nonce"),
    (41, "Notify"),
    (42, "Delete"),
    (43, "VendorID"),
    (44, "TrafficSelectorInitiator"),
    (45, "TrafficSelectorResponder"),
    (46, "EncryptedAndAuthenticated"),
    (47, "Configuration"),
    (48, "ExtensibleAuthentication"),
    (49, "GenericSecurePasswordMethod"),
    (53, "EncryptedAndAuthenticatedFragment"),
];

pub(super) const EXCHANGES: Names = &[
    (0, "None"),
    (1, "Base"),
    (2, "Identity Protection"),
    (3, "Authentication Only"),
    (4, "Aggressive"),
    (5, "Informational"),
    (6, "Transaction (Config Mode)"),
    (32, "Quick Mode"),
    (33, "New Group Mode"),
];

/// An attribute of the first version: its type, its key in records and rules, and what its values are called.
pub(super) struct Attribute {
    pub(super) number: u16,
    pub(super) key: &'static str,
    pub(super) values: Names,
}

pub(super) const ATTRIBUTES: &[Attribute] = &[
    Attribute {
        number: 1,
        key: "alg_enc",
        values: &[
            (1, "EncDesCbc"),
            (2, "EncIdeaCbc"),
            (3, "EncBlowfishCbc"),
            (4, "EncRc5R16B64Cbc"),
            (5, "Enc3DesCbc"),
            (6, "EncCastCbc"),
            (7, "EncAesCbc"),
            (8, "EncCamelliaCbc"),
        ],
    },
    Attribute {
        number: 2,
        key: "alg_hash",
        values: &[
            (1, "HashMd5"),
            (2, "HashSha"),
            (3, "HashTiger"),
            (4, "HashSha2_256"),
            (5, "HashSha2_384"),
            (6, "HashSha2_512"),
        ],
    },
    Attribute {
        number: 3,
        key: "alg_auth",
        values: &[
            (1, "AuthPreSharedKey"),
            (2, "AuthDssSignatures"),
            (3, "AuthRsaSignatures"),
            (4, "AuthEncryptionWithRsa"),
            (5, "AuthRevisedEncryptionWithRsa"),
        ],
    },
    Attribute {
        number: 4,
        key: "alg_dh",
        values: &[
            (1, "GroupDefault768BitModp"),
            (2, "GroupAlternate1024BitModpGroup"),
            (3, "GroupEc2nOnGp2p155"),
            (4, "GroupEc2nOnGp2p185"),
            (5, "GroupModp1536Bit"),
            (14, "GroupModp2048Bit"),
            (15, "GroupModp3072Bit"),
            (16, "GroupModp4096Bit"),
            (17, "GroupModp6144Bit"),
            (18, "GroupModp8192Bit"),
            (19, "GroupEcp256"),
            (20, "GroupEcp384"),
            (21, "GroupEcp521"),
        ],
    },
    Attribute {
        number: 5,
        key: "sa_group_type",
        values: &[
            (1, "GroupTypeModp"),
            (2, "GroupTypeEcp"),
            (3, "GroupTypeEc2n"),
        ],
    },
    Attribute {
        number: 11,
        key: "sa_life_type",
        values: &[(1, "LifeTypeSeconds"), (2, "LifeTypeKilobytes")],
    },
    Attribute {
        number: 12,
        key: "sa_life_duration",
        values: &[],
    },
    Attribute {
        number: 13,
        key: "alg_prf",
        values: &[],
    },
    Attribute {
        number: 14,
        key: "sa_key_length",
        values: &[],
    },
    Attribute {
        number: 15,
        key: "sa_field_size",
        values: &[],
    },
];

pub(super) const ENCRYPTIONS: Names = &[
    (1, "ENCR_DES_IV64"),
    (2, "ENCR_DES"),
    (3, "ENCR_3DES"),
    (4, "ENCR_RC5"),
    (5, "ENCR_IDEA"),
    (6, "ENCR_CAST"),
    (7, "ENCR_BLOWFISH"),
    (8, "ENCR_3IDEA"),
    (9, "ENCR_DES_IV32"),
    (11, "ENCR_NULL"),
    (12, "ENCR_AES_CBC"),
    (13, "ENCR_AES_CTR"),
    (14, "ENCR_AES_CCM_8"),
    (15, "ENCR_AES_CCM_12"),
    (16, "ENCR_AES_CCM_16"),
    (18, "ENCR_AES_GCM_8"),
    (19, "ENCR_AES_GCM_12"),
    (20, "ENCR_AES_GCM_16"),
    (21, "ENCR_NULL_AUTH_AES_GMAC"),
    (23, "ENCR_CAMELLIA_CBC"),
    (24, "ENCR_CAMELLIA_CTR"),
    (25, "ENCR_CAMELLIA_CCM_8"),
    (26, "ENCR_CAMELLIA_CCM_12"),
    (27, "ENCR_CAMELLIA_CCM_16"),
    (28, "ENCR_CHACHA20_POLY1305"),
];

pub(super) const FUNCTIONS: Names = &[
    (1, "PRF_HMAC_MD5"),
    (2, "PRF_HMAC_SHA1"),
    (3, "PRF_HMAC_TIGER"),
    (4, "PRF_AES128_XCBC"),
    (5, "PRF_HMAC_SHA2_256"),
    (6, "PRF_HMAC_SHA2_384"),
    (7, "PRF_HMAC_SHA2_512"),
    (8, "PRF_AES128_CMAC"),
];

pub(super) const INTEGRITIES: Names = &[
    (0, "NONE"),
    (1, "AUTH_HMAC_MD5_96"),
    (2, "AUTH_HMAC_SHA1_96"),
    (3, "AUTH_DES_MAC"),
    (4, "AUTH_KPDK_MD5"),
    (5, "AUTH_AES_XCBC_96"),
    (6, "AUTH_HMAC_MD5_128"),
    (7, "AUTH_HMAC_SHA1_160"),
    (8, "AUTH_AES_CMAC_96"),
    (9, "AUTH_AES_128_GMAC"),
    (10, "AUTH_AES_192_GMAC"),
    (11, "AUTH_AES_256_GMAC"),
    (12, "AUTH_HMAC_SHA2_256_128"),
    (13, "AUTH_HMAC_SHA2_384_192"),
    (14, "AUTH_HMAC_SHA2_512_256"),
];

pub(super) const GROUPS: Names = &[
    (0, "None"),
    (1, "768-bit MODP Group"),
    (2, "1024-bit MODP Group"),
    (5, "1536-bit MODP Group"),
    (14, "2048-bit MODP Group"),
    (15, "3072-bit MODP Group"),
    (16, "4096-bit MODP Group"),
    (17, "6144-bit MODP Group"),
    (18, "8192-bit MODP Group"),
    (19, "256-bit random ECP group"),
    (20, "384-bit random ECP group"),
    (21, "521-bit random ECP group"),
    (22, "1024-bit MODP Group with 160-bit Prime Order Subgroup"),
    (23, "2048-bit MODP Group with 224-bit Prime Order Subgroup"),
    (24, "2048-bit MODP Group with 256-bit Prime Order Subgroup"),
    (25, "192-bit Random ECP Group"),
    (26, "224-bit Random ECP Group"),
    (31, "Curve25519"),
    (32, "Curve448"),
];

/// The name of a number; `None`: the list has none.
pub(super) fn known(names: Names, number: u64) -> Option<&'static str> {
    let found = names.iter().find(|(n, _)| *n == number);
    found.map(|(_, name)| *name)
}

/// The same, or the number itself.
pub(super) fn name(names: Names, number: u64) -> String {
    known(names, number).map_or_else(|| format!("Unknown ({number})"), str::to_owned)
}

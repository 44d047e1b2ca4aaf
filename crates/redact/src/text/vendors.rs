//! How the tokens of well-known vendors begin.

use self::Tail::{Any, Digit, Dotted, Hex, Upper};
use crate::words::bits;

/// What follows the prefix of a token.
#[derive(Clone, Copy)]
pub(super) enum Tail {
    /// Letters, digits, `_` and `-`.
    Any,
    /// The same with a digit among them, or capitals and small letters: the prefix alone could
    /// begin a word.
    Digit,
    /// As [`Any`](Self::Any), and dots.
    Dotted,
    /// Hexadecimal digits only.
    Hex,
    /// Capitals and digits only.
    Upper,
}

/// The tail, its prefix, and how many characters it has at least.
pub(super) type Vendor = (Tail, &'static str, usize);

#[rustfmt::skip]
pub(super) const VENDORS: &[Vendor] = &[
    // Clouds
    (Upper, "AKIA", 16), (Upper, "ASIA", 16), (Upper, "ABIA", 16), (Upper, "ACCA", 16), (Any, "AWSA", 60), (Digit, "ABSK", 60), (Digit, "bedrock-api-key-", 20),
    (Digit, "AIza", 30), (Any, "GOCSPX-", 16), (Any, "ya29.", 10), (Any, "1//0", 20),
    (Hex, "dop_v1_", 32), (Hex, "doo_v1_", 32), (Hex, "dor_v1_", 32), (Digit, "dapi", 30), (Digit, "dkea", 30),
    (Digit, "LTAI", 16), (Digit, "fo1_", 20), (Any, "FlyV1", 10), (Any, "fm2_", 20), (Any, "fm1r_", 20), (Any, "fm1a_", 20), (Any, "heroku_", 30), (Any, "HRKU-", 30),
    (Digit, "pscale_tkn_", 20), (Digit, "pscale_pw_", 20), (Digit, "pscale_oauth_", 20), (Digit, "sbp_", 30), (Any, "sb_secret_", 16), (Digit, "rnd_", 24),
    (Digit, "v1.0-", 60), (Digit, "cfut_", 30), (Digit, "cfat_", 30), (Digit, "cfk_", 30), (Digit, "nfp_", 30), (Digit, "nfc_", 30), (Digit, "nfo_", 30), (Digit, "nfu_", 30), (Digit, "nfb_", 30),
    (Any, "vcp_", 20), (Any, "vck_", 20), (Digit, "vci_", 20), (Digit, "vca_", 20), (Digit, "vcr_", 20), (Any, "vercel_", 20), (Digit, "ucat_", 20), (Digit, "napi_", 40), (Digit, "xau_", 24),
    (Digit, "dnkey-", 30), (Digit, "tk-us-", 40), (Digit, "apify_api_", 20), (Digit, "apify_proxy_", 20), (Any, "aio_", 28), (Dotted, "t1.9euelZ", 40), (Digit, "AQVN", 35),
    (Hex, "API-", 26), (Digit, "koyeb_", 30), (Digit, "rpa_", 30), (Digit, "turso_", 30), (Digit, "sha256~", 40),
    // Code
    (Any, "ghp_", 16), (Any, "gho_", 16), (Any, "ghu_", 16), (Any, "ghs_", 16), (Any, "ghr_", 16), (Any, "github_pat_", 16),
    (Any, "glpat-", 16), (Any, "gldt-", 16), (Any, "glrt-", 16), (Any, "glrtr-", 16), (Any, "glcbt-", 16), (Any, "glptt-", 16), (Any, "glft-", 16), (Any, "glffct-", 16), (Any, "glsoat-", 16),
    (Any, "glagent-", 16), (Any, "gloas-", 16), (Any, "glimt-", 16), (Any, "glwt-", 16), (Any, "GR1348941", 16),
    (Digit, "npm_", 30), (Any, "pypi-AgE", 30), (Digit, "pypi-", 40), (Any, "oy2", 43), (Any, "rubygems_", 30), (Any, "cio", 32), (Digit, "dckr_pat_", 20), (Digit, "dckr_oat_", 20),
    (Digit, "ATATT3", 20), (Digit, "ATBB", 24), (Digit, "ATCTT3", 20), (Digit, "ATOA", 40), (Digit, "BBDC-", 30), (Digit, "CCIPAT_", 20), (Digit, "CCIPRJ_", 20), (Digit, "sqp_", 30), (Digit, "sqa_", 30),
    (Digit, "squ_", 30), (Digit, "sgp_", 30), (Digit, "sgd_", 40), (Digit, "slk_", 40), (Digit, "bkua_", 30), (Digit, "bkct_", 30), (Digit, "bkaj_", 30), (Digit, "tskey-", 16), (Any, "cloudsmith_", 20),
    (Digit, "CLOJARS_", 40), (Any, "AKCp", 40), (Digit, "cmVmdGtu", 40), (Digit, "pnu_", 30), (Digit, "pnb_", 30), (Digit, "rdme_", 40), (Digit, "depot_", 30), (Digit, "ico-", 32), (Digit, "dbtc_", 30), (Digit, "dbtu_", 30),
    (Digit, "sm_pat_", 16), (Digit, "sm_aat_", 16), (Digit, "sm_sat_", 16), (Digit, "waka_", 30), (Digit, "codecov_", 30), (Digit, "snyk_", 30), (Digit, "polar_", 30),
    // Models
    (Any, "sk-proj-", 10), (Any, "sk-ant-", 10), (Any, "sk-or-v1-", 16), (Any, "sk-svcacct-", 10), (Any, "sk-admin-", 10), (Any, "sk-lf-", 16), (Digit, "pk-lf-", 16), (Any, "sk-helicone-", 16),
    (Digit, "sk-", 16), (Hex, "sk_", 32), (Any, "gsk_", 20), (Digit, "hf_", 20), (Digit, "api_org_", 20), (Digit, "r8_", 20), (Any, "xai-", 20), (Any, "pplx-", 20), (Digit, "csk-", 24),
    (Any, "lsv2_", 16), (Digit, "ls__", 20), (Digit, "nvapi-", 20), (Digit, "fw_", 20), (Digit, "tgp_v1_", 20), (Digit, "voy", 40), (Digit, "pa-", 40), (Digit, "llx-", 30), (Digit, "nk-", 40),
    (Digit, "jina_", 20), (Digit, "tvly-", 16), (Digit, "fc-", 30), (Digit, "e2b_", 20), (Digit, "wandb_v1_", 20), (Digit, "pcsk_", 20), (Digit, "sk_car_", 16), (Digit, "eleven_", 30), (Digit, "bb_live_", 16), (Digit, "rf_", 30),
    (Digit, "ak-", 22), (Digit, "as-", 22), (Digit, "cmlp_", 30), (Digit, "lmnt_", 30),
    // Messages
    (Any, "xoxb-", 10), (Any, "xoxp-", 10), (Any, "xoxa-", 10), (Any, "xoxs-", 10), (Any, "xoxr-", 10), (Any, "xoxo-", 10), (Any, "xoxe-", 10), (Any, "xoxe.", 10), (Any, "xoxc-", 10), (Any, "xoxd-", 10),
    (Any, "xapp-", 10), (Any, "xwfp-", 10), (Hex, "SK", 32), (Dotted, "SG.", 30), (Hex, "key-", 32), (Hex, "pubkey-", 32), (Digit, "re_", 24), (Digit, "xkeysib-", 30), (Digit, "xsmtpsib-", 30), (Digit, "mlsn.", 30),
    (Digit, "nyk_", 20), (Digit, "KEY0", 40), (Digit, "loops_", 30),
    // Money and shops
    (Any, "sk_live_", 8), (Any, "sk_test_", 8), (Any, "rk_live_", 8), (Any, "rk_test_", 8), (Any, "sk_prod_", 16), (Any, "sk_dev_", 16), (Any, "sk_sbox_", 16), (Any, "pk_live_", 16), (Any, "pk_test_", 16), (Any, "whsec_", 16),
    (Any, "testsk_", 16), (Hex, "shpat_", 16), (Hex, "shpss_", 16), (Hex, "shpca_", 16), (Hex, "shppa_", 16), (Digit, "sq0atp-", 16), (Digit, "sq0csp-", 16), (Digit, "sq0idp-", 16), (Digit, "EAAA", 50),
    (Digit, "rzp_live_", 12), (Digit, "rzp_test_", 12), (Digit, "FLWSECK", 16), (Digit, "FLWPUBK", 16), (Digit, "live_", 30), (Digit, "test_", 30), (Digit, "duffel_live_", 20), (Digit, "duffel_test_", 20),
    (Digit, "access-production-", 30), (Digit, "access-sandbox-", 30), (Digit, "access-development-", 30), (Digit, "pdl_live_", 20), (Digit, "pdl_sdbx_", 20), (Digit, "ion_", 40),
    (Digit, "A21AA", 60), (Digit, "AQE", 60), (Digit, "secret-live-", 20), (Digit, "secret-test-", 20), (Digit, "sk_org_", 20),
    // Work
    (Digit, "PMAK-", 20), (Digit, "PMAT-", 20), (Digit, "lin_api_", 16), (Digit, "lin_oauth_", 16), (Digit, "secret_", 32), (Digit, "ntn_", 30), (Digit, "figd_", 16), (Digit, "figo_", 16), (Digit, "figu_", 16),
    (Digit, "pat-na1-", 16), (Digit, "pat-eu1-", 16), (Digit, "CFPAT-", 20), (Any, "pul-", 36), (Dotted, "sl.", 60), (Digit, "typeform_", 30), (Digit, "tfp_", 40), (Any, "ATTA", 60), (Digit, "fio-u-", 40),
    (Digit, "dsapi", 32), (Digit, "ClickUp_", 20), (Digit, "pk_", 36), (Digit, "asana_", 30), (Digit, "EZAK", 40), (Digit, "EZTK", 40), (Digit, "shippo_live_", 20), (Digit, "shippo_test_", 20),
    (Digit, "private-", 32), (Dotted, "pk.eyJ", 40), (Dotted, "sk.eyJ", 40), (Dotted, "tk.eyJ", 40), (Digit, "cnvca", 40), (Digit, "_mmk", 10), (Digit, "u-s4t2ud-", 40), (Digit, "s-s4t2ud-", 40),
    // Operations
    (Dotted, "hvs.", 16), (Dotted, "hvb.", 16), (Dotted, "hvr.", 16), (Digit, "s.", 24), (Digit, "b.AAAAAQ", 60), (Digit, "sntrys_", 20), (Digit, "sntryu_", 20), (Digit, "sntrya_", 20), (Digit, "sntryi_", 20),
    (Digit, "NRAK-", 16), (Digit, "NRJS-", 16), (Digit, "NRII-", 16), (Digit, "NRIQ-", 16), (Digit, "NRRA-", 16), (Digit, "NRSP-", 16),
    (Dotted, "dp.pt.", 16), (Dotted, "dp.st.", 16), (Dotted, "dp.ct.", 16), (Dotted, "dp.sa.", 16), (Dotted, "dp.scim.", 16), (Dotted, "dp.audit.", 16), (Dotted, "dp.said.", 16),
    (Any, "glsa_", 16), (Any, "glc_", 20), (Digit, "eyJrIjoi", 40), (Any, "AGE-SECRET-KEY-", 10), (Any, "phc_", 20), (Any, "phx_", 20), (Any, "phs_", 20), (Any, "akca_", 16), (Dotted, "dt0c01.", 20), (Hex, "01000000d08c9ddf0115d1118c7a00c04fc297eb", 40), (Dotted, "base64url.bearer.authorization.k8s.io.", 20), (Dotted, "dt0s0", 20),
    (Digit, "sdk-", 30), (Digit, "api-", 36), (Digit, "mob-", 30), (Digit, "ddp_", 30), (Digit, "pdus+_", 16), (Digit, "opsgenie_", 20), (Any, "ops_eyJ", 20), (Digit, "A3-", 30), (Any, "infisical_", 20), (Dotted, "st.", 60), (Any, "nsec1", 50),
    (Digit, "xaat-", 30), (Digit, "xapt-", 30), (Digit, "xait-", 30), (Any, "pylf_v1_", 20), (Any, "pylf_v2_", 20), (Digit, "hcaik_", 30), (Digit, "hcbik_", 30), (Digit, "hcxik_", 30), (Digit, "hcamk_", 30), (Digit, "rootly_", 40),
    (Dotted, "v2.local.", 30), (Dotted, "v4.local.", 30),
    // People
    (Digit, "EAA", 40), (Digit, "AAAAAAAAAAAAAAAAAAAA", 20), (Digit, "IGQV", 40), (Any, "tiktok_", 30), (Digit, "oauth_", 30), (Digit, "BQ", 100),
];

const SETS: usize = 6;

/// For the first two bytes of a prefix, mixed: the vendors that have them, a bit each.
static BY_FIRST: [[u64; SETS]; 256] = {
    assert!(VENDORS.len() <= 64 * SETS);
    let mut table = [[0; SETS]; 256];
    let mut i = 0;
    while i < VENDORS.len() {
        let prefix = VENDORS[i].1.as_bytes();
        table[mixed(prefix[0], prefix[1])][i / 64] |= 1 << (i % 64);
        i += 1;
    }
    table
};

const fn mixed(first: u8, second: u8) -> usize {
    first.wrapping_mul(37).wrapping_add(second) as usize
}

/// Returns whether a prefix may begin with these two bytes.
pub(super) fn may_begin(text: &[u8]) -> bool {
    matches!(text, [first, second, ..] if BY_FIRST[mixed(*first, *second)] != [0; SETS])
}

/// The vendors whose prefix may begin as `text`.
pub(super) fn beginning_as(text: &[u8]) -> impl Iterator<Item = Vendor> {
    let sets = match text {
        [first, second, ..] => BY_FIRST[mixed(*first, *second)],
        _ => [0; SETS],
    };
    bits(sets).map(|i| VENDORS[i])
}

//! How the tokens of well-known vendors begin.

/// What has to follow a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Letters, digits, `_` and `-`.
    Any,
    /// The same with a digit among them, or capitals and small letters: the prefix alone could begin a word.
    Digit,
    /// As [`Any`](Self::Any), and dots.
    Dotted,
    /// Hexadecimal digits only.
    Hex,
    /// Capitals and digits only.
    Upper,
}

/// A prefix, and how many characters follow at least.
pub(super) struct Vendor {
    pub(super) prefix: &'static str,
    pub(super) min: usize,
    pub(super) tail: Tail,
}

const fn any(prefix: &'static str, min: usize) -> Vendor {
    Vendor {
        prefix,
        min,
        tail: Tail::Any,
    }
}

const fn digit(prefix: &'static str, min: usize) -> Vendor {
    Vendor {
        prefix,
        min,
        tail: Tail::Digit,
    }
}

const fn dotted(prefix: &'static str, min: usize) -> Vendor {
    Vendor {
        prefix,
        min,
        tail: Tail::Dotted,
    }
}

const fn hex(prefix: &'static str, min: usize) -> Vendor {
    Vendor {
        prefix,
        min,
        tail: Tail::Hex,
    }
}

const fn upper(prefix: &'static str, min: usize) -> Vendor {
    Vendor {
        prefix,
        min,
        tail: Tail::Upper,
    }
}

#[rustfmt::skip]
pub(super) const VENDORS: &[Vendor] = &[
    // Clouds
    upper("AKIA", 16), upper("ASIA", 16), upper("ABIA", 16), upper("ACCA", 16), any("AWSA", 60), digit("ABSK", 60), digit("bedrock-api-key-", 20),
    digit("AIza", 30), any("GOCSPX-", 16), any("ya29.", 10), any("1//0", 20),
    hex("dop_v1_", 32), hex("doo_v1_", 32), hex("dor_v1_", 32), digit("dapi", 30), digit("dkea", 30),
    digit("LTAI", 16), digit("fo1_", 20), any("FlyV1", 10), any("fm2_", 20), any("fm1r_", 20), any("fm1a_", 20), any("heroku_", 30), any("HRKU-", 30),
    digit("pscale_tkn_", 20), digit("pscale_pw_", 20), digit("pscale_oauth_", 20), digit("sbp_", 30), any("sb_secret_", 16), digit("rnd_", 24),
    digit("v1.0-", 60), digit("cfut_", 30), digit("cfat_", 30), digit("cfk_", 30), digit("nfp_", 30), digit("nfc_", 30), digit("nfo_", 30), digit("nfu_", 30), digit("nfb_", 30),
    any("vcp_", 20), any("vck_", 20), digit("vci_", 20), digit("vca_", 20), digit("vcr_", 20), any("vercel_", 20), digit("ucat_", 20), digit("napi_", 40), digit("xau_", 24),
    digit("dnkey-", 30), digit("tk-us-", 40), digit("apify_api_", 20), digit("apify_proxy_", 20), any("aio_", 28), dotted("t1.9euelZ", 40), digit("AQVN", 35), 
    hex("API-", 26), digit("koyeb_", 30), digit("rpa_", 30), digit("turso_", 30), digit("sha256~", 40), 
    // Code
    any("ghp_", 16), any("gho_", 16), any("ghu_", 16), any("ghs_", 16), any("ghr_", 16), any("github_pat_", 16),
    any("glpat-", 16), any("gldt-", 16), any("glrt-", 16), any("glrtr-", 16), any("glcbt-", 16), any("glptt-", 16), any("glft-", 16), any("glffct-", 16), any("glsoat-", 16),
    any("glagent-", 16), any("gloas-", 16), any("glimt-", 16), any("glwt-", 16), any("GR1348941", 16),
    digit("npm_", 30), any("pypi-AgE", 30), digit("pypi-", 40), any("oy2", 43), any("rubygems_", 30), any("cio", 32), digit("dckr_pat_", 20), digit("dckr_oat_", 20),
    digit("ATATT3", 20), digit("ATBB", 24), digit("ATCTT3", 20), digit("ATOA", 40), digit("BBDC-", 30), digit("CCIPAT_", 20), digit("CCIPRJ_", 20), digit("sqp_", 30), digit("sqa_", 30),
    digit("squ_", 30), digit("sgp_", 30), digit("sgd_", 40), digit("slk_", 40), digit("bkua_", 30), digit("bkct_", 30), digit("bkaj_", 30), digit("tskey-", 16), any("cloudsmith_", 20),
    digit("CLOJARS_", 40), any("AKCp", 40), digit("cmVmdGtu", 40), digit("pnu_", 30), digit("pnb_", 30), digit("rdme_", 40), digit("depot_", 30), digit("ico-", 32), digit("dbtc_", 30), digit("dbtu_", 30),
    digit("sm_pat_", 16), digit("sm_aat_", 16), digit("sm_sat_", 16), digit("waka_", 30), digit("codecov_", 30), digit("snyk_", 30), digit("polar_", 30),
    // Models
    any("sk-proj-", 10), any("sk-ant-", 10), any("sk-or-v1-", 16), any("sk-svcacct-", 10), any("sk-admin-", 10), any("sk-lf-", 16), digit("pk-lf-", 16), any("sk-helicone-", 16),
    digit("sk-", 16), hex("sk_", 32), any("gsk_", 20), digit("hf_", 20), digit("api_org_", 20), digit("r8_", 20), any("xai-", 20), any("pplx-", 20), digit("csk-", 24),
    any("lsv2_", 16), digit("ls__", 20), digit("nvapi-", 20), digit("fw_", 20), digit("tgp_v1_", 20), digit("voy", 40), digit("pa-", 40), digit("llx-", 30), digit("nk-", 40),
    digit("jina_", 20), digit("tvly-", 16), digit("fc-", 30), digit("e2b_", 20), digit("wandb_v1_", 20), digit("pcsk_", 20), digit("sk_car_", 16), digit("eleven_", 30), digit("bb_live_", 16), digit("rf_", 30),
    digit("ak-", 22), digit("as-", 22), digit("cmlp_", 30), digit("lmnt_", 30), 
    // Messages
    any("xoxb-", 10), any("xoxp-", 10), any("xoxa-", 10), any("xoxs-", 10), any("xoxr-", 10), any("xoxo-", 10), any("xoxe-", 10), any("xoxe.", 10), any("xoxc-", 10), any("xoxd-", 10),
    any("xapp-", 10), any("xwfp-", 10), hex("SK", 32), dotted("SG.", 30), hex("key-", 32), hex("pubkey-", 32), digit("re_", 24), digit("xkeysib-", 30), digit("xsmtpsib-", 30), digit("mlsn.", 30),
    digit("nyk_", 20), digit("KEY0", 40), digit("loops_", 30),
    // Money and shops
    any("sk_live_", 8), any("sk_test_", 8), any("rk_live_", 8), any("rk_test_", 8), any("sk_prod_", 16), any("sk_dev_", 16), any("sk_sbox_", 16), any("pk_live_", 16), any("pk_test_", 16), any("whsec_", 16),
    any("testsk_", 16), hex("shpat_", 16), hex("shpss_", 16), hex("shpca_", 16), hex("shppa_", 16), digit("sq0atp-", 16), digit("sq0csp-", 16), digit("sq0idp-", 16), digit("EAAA", 50),
    digit("rzp_live_", 12), digit("rzp_test_", 12), digit("FLWSECK", 16), digit("FLWPUBK", 16), digit("live_", 30), digit("test_", 30), digit("duffel_live_", 20), digit("duffel_test_", 20),
    digit("access-production-", 30), digit("access-sandbox-", 30), digit("access-development-", 30), digit("pdl_live_", 20), digit("pdl_sdbx_", 20), digit("ion_", 40),
    digit("A21AA", 60), digit("AQE", 60), digit("secret-live-", 20), digit("secret-test-", 20), digit("sk_org_", 20),
    // Work
    digit("PMAK-", 20), digit("PMAT-", 20), digit("lin_api_", 16), digit("lin_oauth_", 16), digit("secret_", 32), digit("ntn_", 30), digit("figd_", 16), digit("figo_", 16), digit("figu_", 16),
    digit("pat-na1-", 16), digit("pat-eu1-", 16), digit("CFPAT-", 20), any("pul-", 36), dotted("sl.", 60), digit("typeform_", 30), digit("tfp_", 40), any("ATTA", 60), digit("fio-u-", 40),
    digit("dsapi", 32), digit("ClickUp_", 20), digit("pk_", 36), digit("asana_", 30), digit("EZAK", 40), digit("EZTK", 40), digit("shippo_live_", 20), digit("shippo_test_", 20),
    digit("private-", 32), dotted("pk.eyJ", 40), dotted("sk.eyJ", 40), dotted("tk.eyJ", 40), digit("cnvca", 40), digit("_mmk", 10), digit("u-s4t2ud-", 40), digit("s-s4t2ud-", 40), 
    // Operations
    dotted("hvs.", 16), dotted("hvb.", 16), dotted("hvr.", 16), digit("s.", 24), digit("b.AAAAAQ", 60), digit("sntrys_", 20), digit("sntryu_", 20), digit("sntrya_", 20), digit("sntryi_", 20),
    digit("NRAK-", 16), digit("NRJS-", 16), digit("NRII-", 16), digit("NRIQ-", 16), digit("NRRA-", 16), digit("NRSP-", 16),
    dotted("dp.pt.", 16), dotted("dp.st.", 16), dotted("dp.ct.", 16), dotted("dp.sa.", 16), dotted("dp.scim.", 16), dotted("dp.audit.", 16), dotted("dp.said.", 16),
    any("glsa_", 16), any("glc_", 20), digit("eyJrIjoi", 40), any("AGE-SECRET-KEY-", 10), any("phc_", 20), any("phx_", 20), any("phs_", 20), any("akca_", 16), dotted("dt0c01.", 20), hex("01000000d08c9ddf0115d1118c7a00c04fc297eb", 40), dotted("base64url.bearer.authorization.k8s.io.", 20), dotted("dt0s0", 20),
    digit("sdk-", 30), digit("api-", 36), digit("mob-", 30), digit("ddp_", 30), digit("pdus+_", 16), digit("opsgenie_", 20), any("ops_eyJ", 20), digit("A3-", 30), any("infisical_", 20), dotted("st.", 60), any("nsec1", 50),
    digit("xaat-", 30), digit("xapt-", 30), digit("xait-", 30), any("pylf_v1_", 20), any("pylf_v2_", 20), digit("hcaik_", 30), digit("hcbik_", 30), digit("hcxik_", 30), digit("hcamk_", 30), digit("rootly_", 40),
    dotted("v2.local.", 30), dotted("v4.local.", 30),
    // People
    digit("EAA", 40), digit("AAAAAAAAAAAAAAAAAAAA", 20), digit("IGQV", 40), any("tiktok_", 30), digit("oauth_", 30), digit("BQ", 100),
];

const SETS: usize = 6;

/// For the first two bytes of a prefix, mixed: the vendors that have them, a bit each.
static BY_FIRST: [[u64; SETS]; 256] = {
    assert!(VENDORS.len() <= 64 * SETS);
    let mut table = [[0; SETS]; 256];
    let mut i = 0;
    while i < VENDORS.len() {
        let prefix = VENDORS[i].prefix.as_bytes();
        table[mixed(prefix[0], prefix[1])][i / 64] |= 1 << (i % 64);
        i += 1;
    }
    table
};

const fn mixed(first: u8, second: u8) -> usize {
    first.wrapping_mul(37).wrapping_add(second) as usize
}

/// Whether a prefix may begin with these two bytes.
pub(super) fn may_begin(text: &[u8]) -> bool {
    matches!(text, [first, second, ..] if BY_FIRST[mixed(*first, *second)] != [0; SETS])
}

/// The vendors whose prefix may begin as `text`.
pub(super) fn beginning_as(text: &[u8]) -> impl Iterator<Item = &'static Vendor> {
    let sets = match text {
        [first, second, ..] => &BY_FIRST[mixed(*first, *second)],
        _ => &[0; SETS],
    };
    sets.iter().enumerate().flat_map(|(i, set)| {
        let mut set = *set;
        std::iter::from_fn(move || {
            let bit = set.trailing_zeros() as usize;
            set &= set.wrapping_sub(1);
            VENDORS.get(i * 64 + bit).filter(|_| bit < 64)
        })
    })
}

//! How the tokens of well-known vendors begin.

/// What has to follow a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Letters, digits, `_` and `-`.
    Any,
    /// The same with a digit among them: the prefix alone could begin a word.
    Digit,
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
    digit("LTAI", 16), digit("fo1_", 20), any("FlyV1", 10), any("fm2_", 20), any("fm1r_", 20), any("heroku_", 30), any("HRKU-", 30),
    digit("pscale_tkn_", 20), digit("pscale_pw_", 20), digit("pscale_oauth_", 20), digit("sbp_", 30), any("sb_secret_", 16), digit("rnd_", 24),
    digit("v1.0-", 60), digit("cfut_", 30), digit("cfat_", 30), any("nfp_", 30), any("vcp_", 20), any("vercel_", 20),
    // Code
    any("ghp_", 16), any("gho_", 16), any("ghu_", 16), any("ghs_", 16), any("ghr_", 16), any("github_pat_", 16),
    any("glpat-", 16), any("gldt-", 16), any("glrt-", 16), any("glcbt-", 16), any("glptt-", 16), any("glft-", 16), any("glsoat-", 16),
    any("glagent-", 16), any("gloas-", 16), any("glimt-", 16), any("GR1348941", 16),
    digit("npm_", 30), any("pypi-AgE", 30), digit("pypi-", 40), any("oy2", 43), any("rubygems_", 30), any("cio", 32), digit("dckr_pat_", 20), digit("dckr_oat_", 20),
    digit("ATATT3", 20), digit("ATBB", 24), digit("ATCTT3", 20), digit("BBDC-", 30), digit("CCIPAT_", 20), digit("sqp_", 30), digit("sqa_", 30),
    digit("squ_", 30), digit("sgp_", 30), digit("bkua_", 30), digit("tskey-", 16), any("cloudsmith_", 20),
    // Models
    any("sk-proj-", 10), any("sk-ant-", 10), any("sk-or-v1-", 16), any("sk-svcacct-", 10), any("sk-admin-", 10), any("sk-lf-", 16), digit("pk-lf-", 16),
    digit("sk-", 16), any("gsk_", 20), digit("hf_", 20), digit("api_org_", 20), digit("r8_", 20), any("xai-", 20), any("pplx-", 20), digit("csk-", 24),
    any("lsv2_", 16), digit("ls__", 20), digit("nvapi-", 20), digit("fw_", 20), digit("tgp_v1_", 20), digit("voy", 40), digit("pa-", 40),
    digit("jina_", 20), digit("tvly-", 16), digit("fc-", 30), digit("e2b_", 20), digit("wandb_v1_", 20), digit("pcsk_", 20), digit("sk_car_", 16), digit("eleven_", 30),
    // Messages
    any("xoxb-", 10), any("xoxp-", 10), any("xoxa-", 10), any("xoxs-", 10), any("xoxr-", 10), any("xoxe-", 10), any("xoxe.", 10), any("xoxc-", 10), any("xoxd-", 10),
    any("xapp-", 10), hex("SK", 32), hex("AC", 32), any("SG.", 16), hex("key-", 32), digit("re_", 24), digit("xkeysib-", 30), digit("xsmtpsib-", 30), digit("mlsn.", 30),
    // Money and shops
    any("sk_live_", 8), any("sk_test_", 8), any("rk_live_", 8), any("rk_test_", 8), any("pk_live_", 16), any("pk_test_", 16), any("whsec_", 16),
    hex("shpat_", 16), hex("shpss_", 16), hex("shpca_", 16), hex("shppa_", 16), digit("sq0atp-", 16), digit("sq0csp-", 16), digit("sq0idp-", 16), digit("EAAAE", 40),
    digit("rzp_live_", 12), digit("rzp_test_", 12), digit("FLWSECK", 16), digit("access_token$production$", 10), digit("live_", 30), digit("test_", 36),
    // Work
    digit("PMAK-", 20), digit("lin_api_", 16), digit("lin_oauth_", 16), digit("secret_", 32), digit("ntn_", 30), digit("figd_", 16), digit("figo_", 16),
    digit("pat-na1-", 16), digit("pat-eu1-", 16), digit("CFPAT-", 20), any("pul-", 36), digit("sl.", 60), digit("typeform_", 30), digit("tfp_", 40),
    digit("dsapi", 32), digit("ClickUp_", 20), digit("pk_", 36), digit("asana_", 30), digit("EZAK", 40), digit("EZTK", 40), digit("shippo_live_", 20),
    // Operations
    any("hvs.", 16), any("hvb.", 16), any("hvr.", 16), any("s.", 24), digit("sntrys_", 20), digit("sntryu_", 20), digit("NRAK-", 16), digit("NRJS-", 16), digit("NRII-", 16),
    digit("NRIQ-", 16), digit("NRRA-", 16), any("dp.pt.", 16), any("dp.st.", 16), any("dp.ct.", 16), any("dp.sa.", 16), any("dp.scim.", 16), any("dp.audit.", 16),
    any("glsa_", 16), any("glc_", 20), any("AGE-SECRET-KEY-", 10), any("phc_", 20), any("phx_", 20), any("akca_", 16), digit("dt0c01.", 20), digit("sdk-", 30),
    digit("mob-", 30), digit("ddp_", 30), digit("pdus+_", 16), digit("opsgenie_", 20), any("ops_eyJ", 20), any("A3-", 30), any("dapi-", 30), any("infisical_", 20), any("nsec1", 50),
    // People
    digit("EAA", 40), digit("AAAAAAAAAAAAAAAAAAAA", 20), digit("IGQV", 40), any("tiktok_", 30), digit("oauth_", 30), digit("BQ", 100),
];

/// For the first byte of a prefix: the vendors that have it, a bit each.
static BY_FIRST: [[u64; 4]; 128] = {
    assert!(VENDORS.len() <= 256);
    let mut table = [[0; 4]; 128];
    let mut i = 0;
    while i < VENDORS.len() {
        table[VENDORS[i].prefix.as_bytes()[0] as usize][i / 64] |= 1 << (i % 64);
        i += 1;
    }
    table
};

/// The vendors whose prefix begins with `first`.
pub(super) fn beginning_with(first: u8) -> impl Iterator<Item = &'static Vendor> {
    let sets = BY_FIRST
        .get(usize::from(first))
        .copied()
        .unwrap_or_default();
    sets.into_iter().enumerate().flat_map(|(i, mut set)| {
        std::iter::from_fn(move || {
            let bit = set.trailing_zeros() as usize;
            set &= set.wrapping_sub(1);
            VENDORS.get(i * 64 + bit).filter(|_| bit < 64)
        })
    })
}

//! How the tokens of well-known vendors begin.

use self::Tail::{Any, Digit, Dotted, Hex, Lower, Plain, Upper};
use std::sync::LazyLock;

use crate::words::Index;

/// The part of a token that follows its prefix.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Tail {
    /// Letters, digits, `_` and `-`.
    Any,
    /// As above, with a digit among them, or capitals and small letters: the prefix alone could
    /// begin a word.
    Digit,
    /// As [`Any`](Self::Any), with `.`, `+`, `~` and `/` between them, which do not count.
    Dotted,
    /// Hexadecimal digits only.
    Hex,
    /// Capitals and digits only.
    Upper,
    /// Letters and digits only, with a digit among them.
    Plain,
    /// As [`Digit`](Self::Digit), with a small letter first.
    Lower,
}

impl Tail {
    /// A description, and characters of this form for examples.
    pub(crate) fn form(self) -> (&'static str, &'static str) {
        match self {
            Any => ("letters, digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Digit => ("letters and digits, `_` and `-`", "Zq7hX2vT9kLw4bRn"),
            Dotted => ("letters, digits, `_`, `-` and dots", "Zq7hX2vT9kLw4bRn"),
            Hex => ("hexadecimal digits", "0a1b2c3d4e5f6789"),
            Plain => ("letters and digits", "Zq7hX2vT9kLw4bRn"),
            Lower => (
                "letters, digits, `_` and `-`, a small letter first",
                "q7hX2vT9kLw4bRnZ",
            ),
            Upper => ("capitals and digits", "Z7X2V9K4B1N8M3Q6"),
        }
    }
}

/// The vendor, how its tokens begin (prefixes with blanks between them), what follows, and how many
/// characters of it at least.
pub(crate) type Vendor = (&'static str, &'static str, Tail, usize);

#[rustfmt::skip]
pub(crate) const VENDORS: &[Vendor] = &[
    ("aws", "AKIA ASIA ABIA ACCA", Upper, 16), ("aws", "AWSA", Any, 60), ("aws", "ABSK", Digit, 60), ("aws", "bedrock-api-key-", Digit, 20),
    ("google", "AIza", Digit, 30), ("google", "GOCSPX-", Any, 16), ("google", "ya29.", Any, 10), ("google", "1//0", Any, 20),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", Hex, 32), ("databricks", "dapi dkea", Digit, 30), ("alibaba", "LTAI", Digit, 16), ("fly", "fo1_", Digit, 20),
    ("fly", "FlyV1", Any, 10), ("fly", "fm2_ fm1r_ fm1a_", Any, 20), ("heroku", "heroku_ HRKU-", Any, 30),
    ("planetscale", "pscale_tkn_ pscale_pw_ pscale_oauth_", Digit, 20), ("supabase", "sbp_", Digit, 30), ("supabase", "sb_secret_", Any, 16),
    ("render", "rnd_", Digit, 24), ("cloudflare", "v1.0-", Digit, 60), ("cloudflare", "cfut_ cfat_ cfk_", Digit, 30),
    ("netlify", "nfp_ nfc_ nfo_ nfu_ nfb_", Digit, 30), ("vercel", "vcp_ vck_", Any, 20), ("vercel", "vci_ vca_ vcr_", Digit, 20),
    ("vercel", "vercel_", Any, 20), ("ubuntu", "ucat_", Digit, 20), ("neon", "napi_", Digit, 40), ("xata", "xau_", Digit, 24), ("deno", "dnkey-", Digit, 30),
    ("tigris", "tk-us-", Digit, 40), ("apify", "apify_api_ apify_proxy_", Digit, 20), ("adafruit", "aio_", Any, 28), ("yandex", "t1.9euelZ", Dotted, 40),
    ("yandex", "AQVN", Digit, 35), ("octopus", "API-", Hex, 26), ("koyeb", "koyeb_", Digit, 30), ("runpod", "rpa_", Digit, 30),
    ("turso", "turso_", Digit, 30), ("openshift", "sha256~", Digit, 40), ("github", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", Any, 16),
    ("gitlab", "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glffct- glsoat- glagent- gloas- glimt- glwt- GR1348941", Any, 16), ("npm", "npm_", Digit, 30),
    ("pypi", "pypi-AgE", Any, 30), ("pypi", "pypi-", Digit, 40), ("nuget", "oy2", Any, 43), ("rubygems", "rubygems_", Any, 30), ("cargo", "cio", Any, 32),
    ("docker", "dckr_pat_ dckr_oat_", Digit, 20), ("atlassian", "ATATT3", Digit, 20), ("atlassian", "ATBB", Digit, 24), ("atlassian", "ATCTT3", Digit, 20),
    ("atlassian", "ATOA", Digit, 40), ("atlassian", "BBDC-", Digit, 30), ("atlassian", "ATTA", Any, 60), ("circleci", "CCIPAT_ CCIPRJ_", Digit, 20),
    ("sonarqube", "sqp_ sqa_ squ_", Digit, 30), ("sourcegraph", "sgp_", Digit, 30), ("sourcegraph", "sgd_ slk_", Digit, 40),
    ("buildkite", "bkua_ bkct_ bkaj_", Digit, 30), ("tailscale", "tskey-", Digit, 16), ("cloudsmith", "cloudsmith_", Any, 20),
    ("clojars", "CLOJARS_", Digit, 40), ("artifactory", "AKCp", Any, 40), ("artifactory", "cmVmdGtu", Digit, 40), ("pulumi", "pnu_ pnb_", Digit, 30),
    ("pulumi", "pul-", Any, 36), ("readme", "rdme_", Digit, 40), ("depot", "depot_", Digit, 30), ("infracost", "ico-", Digit, 32),
    ("dbt", "dbtc_ dbtu_", Digit, 30), ("semaphore", "sm_pat_ sm_aat_ sm_sat_", Digit, 16), ("wakatime", "waka_", Digit, 30),
    ("codecov", "codecov_", Digit, 30), ("snyk", "snyk_", Digit, 30), ("polar", "polar_", Digit, 30), ("openai", "sk-proj- sk-svcacct- sk-admin-", Any, 10),
    ("openai", "sk-", Digit, 16), ("anthropic", "sk-ant-", Any, 10), ("openrouter", "sk-or-v1-", Any, 16), ("langfuse", "sk-lf-", Any, 16),
    ("langfuse", "pk-lf-", Digit, 16), ("helicone", "sk-helicone-", Any, 16), ("elevenlabs", "sk_", Hex, 32), ("elevenlabs", "eleven_", Digit, 30),
    ("groq", "gsk_", Any, 20), ("huggingface", "hf_ api_org_", Digit, 20), ("replicate", "r8_", Digit, 20), ("xai", "xai-", Any, 20),
    ("perplexity", "pplx-", Any, 20), ("cerebras", "csk-", Digit, 24), ("langsmith", "lsv2_", Any, 16), ("langsmith", "ls__", Digit, 20),
    ("nvidia", "nvapi-", Digit, 20), ("fireworks", "fw_", Digit, 20), ("together", "tgp_v1_", Digit, 20), ("voyage", "voy pa-", Digit, 40),
    ("llamaindex", "llx-", Digit, 30), ("nomic", "nk-", Digit, 40), ("jina", "jina_", Digit, 20), ("tavily", "tvly-", Digit, 16),
    ("firecrawl", "fc-", Digit, 30), ("e2b", "e2b_", Digit, 20), ("wandb", "wandb_v1_", Digit, 20), ("pinecone", "pcsk_", Digit, 20),
    ("cartesia", "sk_car_", Digit, 16), ("browserbase", "bb_live_", Digit, 16), ("roboflow", "rf_", Digit, 30), ("modal", "ak- as-", Digit, 22),
    ("comet", "cmlp_", Digit, 30), ("lmnt", "lmnt_", Digit, 30),
    ("slack", "xoxb- xoxp- xoxa- xoxs- xoxr- xoxo- xoxe- xoxe. xoxc- xoxd- xapp- xwfp-", Any, 10), ("twilio", "SK", Hex, 32),
    ("sendgrid", "SG.", Dotted, 30), ("mailgun", "key- pubkey-", Hex, 32), ("resend", "re_", Digit, 24), ("brevo", "xkeysib- xsmtpsib-", Digit, 30),
    ("mailersend", "mlsn.", Digit, 30), ("nylas", "nyk_", Digit, 20), ("telnyx", "KEY0", Digit, 40), ("loops", "loops_", Digit, 30),
    ("stripe", "sk_live_ sk_test_ rk_live_ rk_test_", Any, 8), ("stripe", "sk_prod_ sk_dev_ sk_sbox_ pk_live_ pk_test_", Any, 16),
    ("stripe", "sk_org_", Digit, 20), ("svix", "whsec_ testsk_", Any, 16), ("shopify", "shpat_ shpss_ shpca_ shppa_", Hex, 16),
    ("square", "sq0atp- sq0csp- sq0idp-", Digit, 16), ("square", "EAAA", Digit, 50), ("razorpay", "rzp_live_ rzp_test_", Digit, 12),
    ("flutterwave", "FLWSECK FLWPUBK", Digit, 16), ("mollie", "live_ test_", Plain, 30), ("duffel", "duffel_live_ duffel_test_", Digit, 20),
    ("plaid", "access-production- access-sandbox- access-development-", Digit, 30), ("plaid", "secret-live- secret-test-", Digit, 20),
    ("paddle", "pdl_live_ pdl_sdbx_", Digit, 20), ("cesium", "ion_", Digit, 40), ("paypal", "A21AA", Digit, 60), ("adyen", "AQE", Lower, 60),
    ("postman", "PMAK- PMAT-", Digit, 20), ("linear", "lin_api_ lin_oauth_", Digit, 16), ("notion", "secret_", Digit, 32), ("notion", "ntn_", Digit, 30),
    ("figma", "figd_ figo_ figu_", Digit, 16), ("hubspot", "pat-na1- pat-eu1-", Digit, 16), ("contentful", "CFPAT-", Digit, 20),
    ("dropbox", "sl.", Dotted, 60), ("typeform", "typeform_", Digit, 30), ("typeform", "tfp_", Digit, 40), ("frameio", "fio-u-", Digit, 40),
    ("docusign", "dsapi", Digit, 32), ("clickup", "ClickUp_", Digit, 20), ("clickup", "pk_", Digit, 36), ("asana", "asana_", Digit, 30),
    ("easypost", "EZAK EZTK", Digit, 40), ("shippo", "shippo_live_ shippo_test_", Digit, 20), ("segment", "private-", Digit, 32),
    ("mapbox", "pk.eyJ sk.eyJ tk.eyJ", Dotted, 40), ("canva", "cnvca", Digit, 40), ("intra42", "u-s4t2ud- s-s4t2ud-", Digit, 40),
    ("vault", "hvs. hvb. hvr.", Dotted, 16), ("vault", "s.", Digit, 24), ("vault", "b.AAAAAQ", Digit, 60),
    ("sentry", "sntrys_ sntryu_ sntrya_ sntryi_", Digit, 20), ("newrelic", "NRAK- NRJS- NRII- NRIQ- NRRA- NRSP-", Digit, 16),
    ("doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. dp.said.", Dotted, 16), ("grafana", "glsa_", Any, 16), ("grafana", "glc_", Any, 20),
    ("age", "AGE-SECRET-KEY-", Any, 10), ("posthog", "phc_ phx_ phs_", Any, 20), ("akeyless", "akca_", Any, 16), ("dynatrace", "dt0c01. dt0s0", Dotted, 20),
    ("dpapi", "01000000d08c9ddf0115d1118c7a00c04fc297eb", Hex, 40), ("kubernetes", "base64url.bearer.authorization.k8s.io.", Dotted, 20),
    ("launchdarkly", "sdk-", Digit, 30), ("launchdarkly", "api-", Digit, 36), ("launchdarkly", "mob-", Digit, 30), ("datadog", "ddp_", Digit, 30),
    ("pagerduty", "pdus+_", Digit, 16), ("opsgenie", "opsgenie_", Digit, 20), ("onepassword", "ops_eyJ", Any, 20), ("onepassword", "A3-", Digit, 30),
    ("infisical", "infisical_", Any, 20), ("infisical", "st.", Dotted, 60), ("nostr", "nsec1", Any, 50), ("axiom", "xaat- xapt- xait-", Digit, 30),
    ("logfire", "pylf_v1_ pylf_v2_", Any, 20), ("honeycomb", "hcaik_ hcbik_ hcxik_ hcamk_", Digit, 30), ("rootly", "rootly_", Digit, 40),
    ("paseto", "v2.local. v4.local.", Dotted, 30), ("facebook", "EAA", Digit, 40), ("twitter", "AAAAAAAAAAAAAAAAAAAA", Digit, 20),
    ("instagram", "IGQV", Digit, 40), ("tiktok", "tiktok_", Any, 30), ("oauth", "oauth_", Digit, 30), ("spotify", "BQ", Digit, 100),
];

/// The vendors by their prefixes.
static BY_PREFIX: LazyLock<Index<Vendor>> =
    LazyLock::new(|| Index::new(vendors().map(|vendor| (vendor.1, vendor))));

/// The vendors, a row for each prefix.
pub(crate) fn vendors() -> impl Iterator<Item = Vendor> {
    let rows = VENDORS.iter();
    rows.flat_map(|(id, prefixes, tail, min)| prefixes.split(' ').map(|p| (*id, p, *tail, *min)))
}

/// Returns whether a prefix may begin with these two bytes.
pub(super) fn may_begin(text: &[u8]) -> bool {
    BY_PREFIX.may_begin(text)
}

/// The vendors with whose prefix a text begins.
pub(super) fn beginning(text: &str) -> impl Iterator<Item = Vendor> {
    BY_PREFIX.beginnings(text).map(|(_, vendor)| vendor)
}

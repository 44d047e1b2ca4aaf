//! The words by which keys are judged: lower case, separators removed.

/// Parts that make a key sensitive wherever they stand, and whose name alone announces a secret in
/// prose.
#[rustfmt::skip]
pub(super) const STRONG: &[&str] = &[
    "password", "passwd", "passw", "paswd", "pasword", "pswd", "passphrase", "passcode", "pwd", "secret", "apikey",
    "accesskey", "privatekey", "privkey", "jwt", "kennwort", "wachtwoord", "contrasen", "contrasena", "motdepasse", "senha",
    "mnemonic", "seedphrase", "recoveryphrase", "recoverycode", "backupcode", "clientassertion", "samlresponse",
    "codeverifier", "sessionid", "sessid",
];

/// Parts that make a key sensitive wherever they stand, but that prose uses for many other things.
#[rustfmt::skip]
pub(super) const WEAK: &[&str] = &[
    "token", "key", "auth", "authoriz", "authoris", "authenticat", "credential", "cookie",
];

/// Passwords in other scripts.
#[rustfmt::skip]
pub(super) const FOREIGN: &[&str] = &[
    "пароль", "Пароль", "ПАРОЛЬ", "密码", "密碼", "口令", "暗証番号", "パスワード", "비밀번호", "암호", "şifre", "Şifre", "lösenord", "Lösenord", "mật khẩu", "סיסמה", "كلمة المرور", "κωδικός",
];

/// Words that make a key sensitive only as whole words; digits may follow.
#[rustfmt::skip]
pub(super) const WHOLE: &[&str] = &[
    "pass", "pw", "psk", "otp", "totp", "hotp", "sig", "sid", "pin", "cvv", "cvc", "cred", "creds", "sess", "csrf", "xsrf", "bearer", "passe", "mdp", "haslo",
];

/// Three letters of each of the parts and words above: a key without any of them is not sensitive.
/// (`pw` has two; the filter looks for it by itself.)
#[rustfmt::skip]
pub(super) const TRIGRAMS: &[&str] = &[
    "pas", "psw", "pwd", "tok", "key", "uth", "cre", "kie", "jwt", "nnw", "ras", "nha", "mne", "edp", "ryp", "ryc", "upc", "sse", "mlr",
    "rif", "ssi", "psk", "otp", "sig", "sid", "pin", "cvv", "cvc", "ses", "srf", "bea", "mdp", "asl", "nst", "wac",
];

/// Digits that stand for letters: `p4ssw0rd`.
pub(super) const DISGUISED: &[(u8, u8)] = &[
    (b'4', b'a'),
    (b'3', b'e'),
    (b'1', b'i'),
    (b'0', b'o'),
    (b'5', b's'),
];

/// Words that hold a sensitive part by accident. They count at the beginning of a word:
/// `author_id`, `authorname`; what follows is judged as usual (`author_token`).
#[rustfmt::skip]
pub(super) const HARMLESS: &[&str] = &[
    // author
    "author", "coauthor", "authentic", "inauthentic", "authorized", "authorised", "unauthorized", "unauthorised",
    "authenticated", "unauthenticated",
    // key
    "monkey", "donkey", "turkey", "hockey", "jockey", "whiskey", "mickey", "lackey", "malarkey", "turnkey", "smokey",
    "flunkey", "keyboard", "keyword", "keynote", "keyframe", "keypoint", "keypad", "keystroke", "keypress", "keydown",
    "keyup", "keyhole", "keystone", "keyspace", "keycode", "keymap", "keybind", "keyed", "keying", "keyless", "keycloak",
    "keynes", "latchkey", "lowkey", "keyline",
    // token
    "tokeniz", "tokenis", "detokeniz", "detokenis", "maxtokens", "mintokens", "numtokens", "ntokens", "totaltokens",
    "inputtokens", "outputtokens", "prompttokens", "completiontokens", "cachedtokens", "reasoningtokens", "tokencount",
    "tokenusage", "tokenlimit", "tokenbudget", "tokentype",
    // secret
    "secretar", "secretion", "secretive", "secreted", "secretory",
    // pass
    "compass", "bypass", "surpass", "trespass", "underpass", "overpass", "encompass", "passive", "passenger",
    // cookie
    "cookiecutter",
];

/// Harmless names of several words; they count as whole words only.
#[rustfmt::skip]
pub(super) const PHRASES: &[&str] = &[
    "primarykey", "primarykeys", "foreignkey", "foreignkeys", "sortkey", "sortkeys", "partitionkey", "partitionkeys",
    "keycount", "keyscount", "keysize", "keylength", "keytype", "keyusage", "keycolumn", "keycode", "ishotkey", "keyup", "keydown",
    "oautherror", "authtype", "authmethod", "authmode", "authscheme", "authrequired", "requiresauth", "authenabled", "tokentype",
    "eostoken", "bostoken", "padtoken", "unktoken", "septoken", "clstoken", "masktoken", "stoptoken", "specialtokens",
    "eostokenid", "bostokenid", "padtokenid", "stoptokens", "stoptokenids", "tokentypeids", "tokenendpoint", "authorizationendpoint",
    "passrate", "passrates", "passcount", "passratio", "passpercentage", "passfail", "passthrough", "passband", "passmark", "passnumber", "passid",
    "pinboard", "pinboards", "pincount", "pinmode", "pinmap", "pinout", "pinheight", "pintype", "cookierecipe", "cookierecipes", "cookieconsent",
    "cookiepolicy", "cookiebanner", "cookiebaking", "cookiedough", "cookieflavor", "cookieflavour", "cookiejarsize", "cachekey", "cachekeys", "promptcachekey",
    "publickey", "outputkey", "parameterkey", "publickeys", "nextpagetoken", "pagetoken", "hotkey", "hotkeys", "dedupkey", "objectkey", "rowkey",
    "newkey", "keyout", "keyfile", "iskeyword", "indentkeys", "minipass", "keyring", "keyrings", "secrete", "secretes", "cookiesbaked", "bakedcookies",
    "resultkey", "limitkey", "inputtoken", "outputtoken", "buckeye", "hawkeye", "pinkeye", "secretariat",
    "tokenspersecond", "tokensperminute", "tokensperday",
    "maxnewtokens", "minnewtokens",
];

/// Words that make a number of the `tokens` after them.
#[rustfmt::skip]
pub(super) const QUANTITIES: &[&str] = &[
    "max", "maximum", "min", "minimum", "num", "n", "total", "input", "output", "prompt", "completion", "cached", "cache",
    "creation", "read", "reasoning", "thinking", "thoughts", "candidates", "used", "remaining", "budget", "text", "audio", "image",
    "video", "prediction", "generated", "estimated", "context", "avg", "average", "limit", "reset", "consumed", "count",
    "ratelimit", "billed", "saved", "sampled", "generation", "response", "request",
];

/// Words that make a number of the `token` before them.
#[rustfmt::skip]
pub(super) const COUNTS: &[&str] = &[
    "count", "counts", "limit", "limits", "budget", "usage", "used", "remaining", "per", "consumed", "length", "total", "cost", "price",
    "max", "generated", "details",
];

/// Last words of names of failures: the value is the reason, not a secret.
#[rustfmt::skip]
pub(super) const FAILURES: &[&str] = &[
    "error", "exception", "err", "fault", "failed", "failure", "expired", "required", "missing", "invalid", "warning", "denied",
    "mismatch", "notfound", "policy", "changed", "updated", "rotated", "reset", "wrong", "incorrect", "rejected", "unsupported",
    "strength", "found", "service", "provider", "manager", "middleware", "handler", "controller", "module", "test",
];

/// Last words of names of properties of a secret, or of its place.
#[rustfmt::skip]
pub(super) const DESCRIBED: &[&str] = &[
    "file", "filename", "path", "dir", "directory", "ref", "reference", "name", "type", "ttl", "seconds", "secs", "minutes", "hours",
    "days", "ms", "expiry", "expires", "expiration", "lifetime", "age", "min", "max", "size", "length", "count", "version",
    "algorithm", "format", "types", "names", "files", "paths", "hint", "hints", "issuer", "driver", "external", "field", "column", "endpoint", "at", "index", "arn", "style", "usage",
];

/// First words of names of failures: `missing key: city`.
#[rustfmt::skip]
pub(super) const FAILING: &[&str] = &[
    "missing", "unexpected", "invalid", "unknown", "duplicate", "primary", "foreign", "no", "bad", "expired", "required", "illegal",
    "unrecognized", "unsupported", "sort", "partition",
];

/// Nouns that announce a secret when they end a name of several words.
#[rustfmt::skip]
pub(super) const NOUNS: &[&str] = &[
    "key", "keys", "token", "tokens", "auth", "credential", "credentials", "cookie", "cookies", "authorization",
];

/// Weak parts with the word before them that makes them sure.
#[rustfmt::skip]
pub(super) const KINDS: &[&str] = &[
    "accesstoken", "securitytoken", "authtoken", "apitoken", "bearertoken", "refreshtoken", "sessiontoken", "bottoken", "usertoken", "idtoken", "authorization",
    "authkey", "signingkey", "encryptionkey", "masterkey", "sharedkey", "accountkey", "licensekey", "storagekey", "subscriptionkey", "hubtoken",
];

/// Words, and which of them begin with a byte.
pub(super) struct Index {
    words: &'static [&'static str],
    by_first: [[u64; 3]; 128],
}

impl Index {
    const fn new(words: &'static [&'static str]) -> Self {
        assert!(words.len() <= 192);
        let mut by_first = [[0; 3]; 128];
        let mut i = 0;
        while i < words.len() {
            by_first[words[i].as_bytes()[0] as usize][i / 64] |= 1 << (i % 64);
            i += 1;
        }
        Self { words, by_first }
    }

    /// The words that `text` begins with.
    pub(super) fn prefixes_of<'t>(&'t self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let first = text.bytes().next().map_or(0, usize::from);
        let sets = self.by_first.get(first).copied().unwrap_or_default();
        let words = bits(sets).map(|i| self.words[i]);
        words.filter(|word| text.starts_with(word))
    }
}

/// The places of the bits that are set.
pub(super) fn bits<const N: usize>(sets: [u64; N]) -> impl Iterator<Item = usize> {
    sets.into_iter().enumerate().flat_map(|(i, mut set)| {
        std::iter::from_fn(move || {
            let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
            set &= set - 1;
            Some(i * 64 + bit)
        })
    })
}

pub(super) static STRONG_INDEX: Index = Index::new(STRONG);
pub(super) static WEAK_INDEX: Index = Index::new(WEAK);
pub(super) static HARMLESS_INDEX: Index = Index::new(HARMLESS);
pub(super) static PHRASES_INDEX: Index = Index::new(PHRASES);

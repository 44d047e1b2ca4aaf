//! Callers by JSON Web Tokens of an authorization server.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use arc_swap::ArcSwap;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Uri, body::Bytes};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use jsonwebtoken::{
    Algorithm::{self, ES256, EdDSA, PS256, RS256},
    DecodingKey,
    DecodingKeyKind::{RsaModulusExponent, SecretOrDer},
    Validation,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    decode, decode_header,
    errors::ErrorKind,
    jwk::{Jwk, JwkSet, PublicKeyUse},
};
use ring::signature::{self as of, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use signature::Verifier;
use tokio::{
    fs::File,
    io::AsyncReadExt as _,
    time::{Instant, timeout},
};
use tower_toolcall::settings::ServerUrl;
use tracing::warn;

use super::hosts::LOOPBACK;

/// Keys are read again after this time, so that a withdrawn key does not hold for ever.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The shortest time between two requests for keys: a token may name any key.
const MIN_GAP: Duration = Duration::from_secs(60);

/// The shortest time between them as long as there are no keys.
const FIRST_GAP: Duration = Duration::from_secs(1);

/// How far the clocks of the authorization server and of this machine may differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// How long the keys may take to arrive, and how many bytes they may have.
const FETCH_TIME: Duration = Duration::from_secs(5);
const MAX_KEYS: u32 = 1 << 20;

/// With public keys alone: a secret of both sides would be one of the gateway, too.
const ALGORITHMS: [Algorithm; 4] = [RS256, PS256, ES256, EdDSA];

/// The section `[auth.jwt]` of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtFile {
    issuer: String,
    /// By default `auth.resource`.
    audience: Option<String>,
    /// The path of a file, or an address.
    jwks: String,
}

/// The rules for tokens, and the keys of their issuer.
pub(crate) struct Jwt {
    issuer: String,
    audience: String,
    keys: Arc<Keys>,
}

/// The keys of an issuer.
struct Keys {
    from: Source,
    set: ArcSwap<JwkSet>,
    times: Mutex<Times>,
    /// Of a reader: others wait for it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    /// When the keys were last asked for, and last read.
    asked: Option<Instant>,
    read: Option<Instant>,
}

#[derive(Debug, PartialEq)]
enum Source {
    File(PathBuf),
    Url(ServerUrl),
}

/// Why a token names no caller.
pub(crate) enum Refused {
    /// The token is wrong, for this reason.
    Token(String),
    /// No key has been read yet.
    NoKeys,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl Jwt {
    pub(crate) fn new(file: JwtFile, resource: Option<&str>) -> anyhow::Result<Self> {
        let _ = CryptoProvider::install_default(&PROVIDER);
        let audience = file.audience.as_deref().or(resource);
        let audience = audience.context("auth.jwt.audience is missing, and so is auth.resource")?;
        let is_https = file.jwks.starts_with("https://");
        let from = match is_https || file.jwks.starts_with("http://") {
            true => {
                let uri: Uri = file.jwks.parse().context("auth.jwt.jwks")?;
                let is_here = uri.host().is_some_and(|host| LOOPBACK.contains(&host));
                ensure!(
                    is_https || is_here,
                    "auth.jwt.jwks: valid are https:// and the path of a file, and http:// of this machine"
                );
                Source::Url(ServerUrl::from(&*file.jwks))
            }
            false => Source::File(file.jwks.into()),
        };
        let keys = Keys {
            from,
            set: ArcSwap::from_pointee(JwkSet { keys: Vec::new() }),
            times: Mutex::default(),
            turn: Default::default(),
        };
        Ok(Self {
            issuer: file.issuer,
            audience: audience.to_owned(),
            keys: Arc::new(keys),
        })
    }

    /// Takes over the keys that have been read of the same issuer.
    pub(crate) fn keep_keys(&mut self, of: &Self) {
        if self.issuer == of.issuer && self.keys.from == of.keys.from {
            self.keys = Arc::clone(&of.keys);
        }
    }

    pub(crate) fn shown(&self) -> String {
        let keys = match &self.keys.from {
            Source::File(path) => path.display().to_string(),
            Source::Url(url) => url.to_string(),
        };
        let Self {
            issuer, audience, ..
        } = self;
        format!("JWT of {issuer} for {audience}, {ALGORITHMS:?}, keys of {keys}")
    }

    /// Reads the keys. Those of a file have to be there; a server may come later.
    pub(crate) async fn load(&self) -> anyhow::Result<()> {
        match (self.keys.read().await, &self.keys.from) {
            (Err(error), Source::File(_)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the caller that a token names, or why there is none.
    pub(crate) async fn caller(&self, token: &str) -> Result<Arc<str>, Refused> {
        let read = self.keys.times().read;
        if read.is_none_or(|read| read.elapsed() >= MAX_AGE) {
            self.keys.refresh().await;
        }
        let caller = match self.verified(token) {
            Err(None) => {
                self.keys.refresh().await;
                self.verified(token)
            }
            caller => caller,
        };
        caller.map_err(|why| match (why, self.keys.times().read) {
            (Some(why), _) => Refused::Token(why),
            (None, Some(_)) => Refused::Token("the key of the token is not known".into()),
            (None, None) => Refused::NoKeys,
        })
    }

    /// Returns `Err(None)` if no key is that of the token.
    fn verified(&self, token: &str) -> Result<Arc<str>, Option<String>> {
        let header = decode_header(token).map_err(|_| Some("the token is not a JWT".to_owned()))?;
        let found = header.alg;
        if !ALGORITHMS.contains(&found) {
            let why = format!("its algorithm is {found:?}: valid are {ALGORITHMS:?}");
            return Err(Some(why));
        }
        let mut validation = Validation::new(found);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let keys = self.keys.set.load();
        let (is_named, mut has_named) = (header.kid.is_some(), false);
        let is_of_token = |jwk: &&Jwk| {
            let id = &jwk.common.key_id;
            let signs = jwk.common.public_key_use.as_ref();
            let algorithm = jwk.common.key_algorithm;
            (!is_named || id.is_none() || *id == header.kid)
                && signs.is_none_or(|it| *it == PublicKeyUse::Signature)
                && algorithm.is_none_or(|it| format!("{it:?}") == format!("{found:?}"))
        };
        for jwk in keys.keys.iter().filter(is_of_token) {
            has_named |= is_named && jwk.common.key_id == header.kid;
            let Ok(key) = DecodingKey::from_jwk(jwk) else {
                continue;
            };
            match decode::<Claims>(token, &key, &validation) {
                Ok(token) if token.claims.sub.is_empty() => {
                    return Err(Some("its `sub` is empty".to_owned()));
                }
                Ok(token) => {
                    let caller = format!("{} of {}", token.claims.sub, self.issuer);
                    return Ok(caller.into());
                }
                Err(error) => match error.kind() {
                    // Another key may be that of the token.
                    ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => {}
                    _ => return Err(Some(format!("the token is refused: {error}"))),
                },
            }
        }
        Err(has_named.then(|| "the token's signature is wrong".to_owned()))
    }
}

impl Keys {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the keys again, if they have not just been asked for. Callers at the same time wait
    /// for one reader. Its task goes on when they give up.
    async fn refresh(self: &Arc<Self>) {
        let keys = Arc::clone(self);
        let reads = async move {
            let _turn = keys.turn.lock().await;
            let Times { asked, read } = *keys.times();
            let gap = if read.is_none() { FIRST_GAP } else { MIN_GAP };
            if asked.is_none_or(|asked| asked.elapsed() >= gap) {
                let _ = keys.read().await;
            }
        };
        let _ = tokio::spawn(reads).await;
    }

    async fn read(&self) -> anyhow::Result<()> {
        let keys = async {
            let text = match &self.from {
                Source::File(path) => {
                    let (file, mut text) = (File::open(path).await?, Vec::new());
                    file.take(MAX_KEYS.into()).read_to_end(&mut text).await?;
                    text
                }
                Source::Url(url) => fetched(url.expose()).await?,
            };
            anyhow::Ok(serde_json::from_slice::<JwkSet>(&text)?)
        };
        let keys = timeout(FETCH_TIME, keys).await;
        self.times().asked = Some(Instant::now());
        let keys = keys.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within 5 s")));
        let keys = keys.with_context(|| format!("the keys of auth.jwt.jwks, {:?}", self.from));
        let keys = keys.inspect_err(|error| warn!("{error:#}"))?;
        self.set.store(Arc::new(keys));
        self.times().read = Some(Instant::now());
        Ok(())
    }
}

/// Fetches the keys of an authorization server.
async fn fetched(url: &str) -> anyhow::Result<Vec<u8>> {
    let tls = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
        .https_or_http()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(tls);
    let answer = client.get(url.parse()?).await?;
    anyhow::ensure!(answer.status().is_success(), "HTTP {}", answer.status());
    let body = Limited::new(answer.into_body(), MAX_KEYS as usize)
        .collect()
        .await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(body.to_bytes().to_vec())
}

/// Verifies signatures by `ring`, which TLS has as well.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(Ring(*algorithm, key.clone()))),
    key_utils: KeyUtils::new_unimplemented(),
};

struct Ring(Algorithm, DecodingKey);

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let Self(algorithm, key) = self;
        let verified = match (algorithm, key.kind()) {
            (RS256, RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&of::RSA_PKCS1_2048_8192_SHA256, message, signed)
            }
            (PS256, RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&of::RSA_PSS_2048_8192_SHA256, message, signed)
            }
            (ES256, SecretOrDer(key)) => {
                let key = UnparsedPublicKey::new(&of::ECDSA_P256_SHA256_FIXED, key);
                key.verify(message, signed)
            }
            (EdDSA, SecretOrDer(key)) => {
                UnparsedPublicKey::new(&of::ED25519, key).verify(message, signed)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use futures_util::FutureExt as _;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    struct File(PathBuf);

    impl File {
        fn new(name: &str) -> Self {
            Self(env::temp_dir().join(format!("gateway-{name}-{}.json", process::id())))
        }

        fn write(&self, id: &str) {
            let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": "AAAA" });
            fs::write(&self.0, json!({ "keys": [key] }).to_string()).unwrap();
        }

        fn keys(&self) -> Arc<Keys> {
            let file = JwtFile {
                issuer: "i".to_owned(),
                audience: Some("a".to_owned()),
                jwks: self.0.display().to_string(),
            };
            Jwt::new(file, None).unwrap().keys
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn id(keys: &Keys) -> Option<String> {
        let keys = keys.set.load();
        keys.keys.first().and_then(|key| key.common.key_id.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_read_again_after_a_minute() {
        let file = File::new("again");
        file.write("a");
        let keys = file.keys();
        keys.refresh().await;
        file.write("b");
        keys.refresh().await;
        assert_eq!(id(&keys).as_deref(), Some("a"));
        advance(MIN_GAP).await;
        keys.refresh().await;
        assert_eq!(id(&keys).as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_were_never_read_are_read_after_a_second() {
        let file = File::new("first");
        let keys = file.keys();
        keys.refresh().await;
        file.write("a");
        keys.refresh().await;
        assert_eq!(id(&keys), None);
        advance(FIRST_GAP).await;
        keys.refresh().await;
        assert_eq!(id(&keys).as_deref(), Some("a"));
    }

    /// A failure does not make old keys young.
    #[tokio::test(start_paused = true)]
    async fn keys_that_cannot_be_read_stay_old() {
        let file = File::new("old");
        file.write("a");
        let keys = file.keys();
        keys.refresh().await;
        let read = keys.times().read;
        drop(file);
        advance(MIN_GAP).await;
        keys.refresh().await;
        assert_eq!((keys.times().read, id(&keys).as_deref()), (read, Some("a")));
        assert_ne!(keys.times().asked, read);
    }

    #[tokio::test]
    async fn keys_arrive_though_the_caller_hangs_up() {
        let file = File::new("gone");
        file.write("a");
        let keys = file.keys();
        assert!(keys.refresh().now_or_never().is_none());
        while keys.times().read.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(id(&keys).as_deref(), Some("a"));
    }
}

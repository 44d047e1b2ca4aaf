//! Callers by JSON Web Tokens of an authorization server.

use std::{
    fmt, fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
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
    jwk::JwkSet,
};
use ring::signature::{self as of, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use signature::Verifier;
use tokio::time::{Instant, timeout};
use tower_toolcall::settings::ServerUrl;
use tracing::warn;

/// Keys are read again after this time, so that a withdrawn key does not hold for ever.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The shortest time between two requests for keys: a token may name any key.
const MIN_GAP: Duration = Duration::from_secs(60);

/// How long the keys may take to arrive, and how many bytes they may have.
const FETCH_TIME: Duration = Duration::from_secs(5);
const MAX_KEYS: usize = 1 << 20;

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
    jwks: Source,
    keys: ArcSwap<JwkSet>,
    /// When the keys were asked for.
    asked: Mutex<Option<Instant>>,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Url(ServerUrl),
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
        let jwks = match file.jwks.starts_with("http://") || file.jwks.starts_with("https://") {
            true => Source::Url(ServerUrl::from(&*file.jwks)),
            false => Source::File(file.jwks.into()),
        };
        Ok(Self {
            issuer: file.issuer,
            audience: audience.to_owned(),
            jwks,
            keys: ArcSwap::from_pointee(JwkSet { keys: Vec::new() }),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn shown(&self) -> String {
        let keys = match &self.jwks {
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
        match (self.refresh().await, &self.jwks) {
            (Err(error), Source::File(_)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn refresh(&self) -> anyhow::Result<()> {
        let own = |at: &mut Option<Instant>| *at = Some(Instant::now());
        own(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        let keys = async {
            let text = match &self.jwks {
                Source::File(path) => fs::read(path)?,
                Source::Url(url) => fetched(url.expose()).await?,
            };
            anyhow::Ok(serde_json::from_slice::<JwkSet>(&text)?)
        };
        let keys = timeout(FETCH_TIME, keys).await;
        let keys = keys.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within 5 s")));
        let keys = keys.with_context(|| format!("the keys of auth.jwt.jwks, {:?}", self.jwks));
        match keys {
            Ok(keys) => {
                self.keys.store(Arc::new(keys));
                Ok(())
            }
            Err(error) => {
                warn!("{error:#}");
                Err(error)
            }
        }
    }

    fn asked_before(&self, age: Duration) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_none_or(|asked| asked.elapsed() >= age)
    }

    /// Returns the caller that a token names, or why there is none.
    pub(crate) async fn caller(&self, token: &str) -> Result<Arc<str>, String> {
        if self.asked_before(MAX_AGE) {
            let _ = self.refresh().await;
        }
        let caller = match self.verified(token) {
            Err(None) if self.asked_before(MIN_GAP) => {
                let _ = self.refresh().await;
                self.verified(token)
            }
            caller => caller,
        };
        caller.map_err(|why| why.unwrap_or_else(|| "the key of the token is not known".to_owned()))
    }

    /// Returns `Err(None)` if no key is that of the token.
    fn verified(&self, token: &str) -> Result<Arc<str>, Option<String>> {
        let header = decode_header(token).map_err(|_| Some("the token is not a JWT".to_owned()))?;
        let found = header.alg;
        if !ALGORITHMS.contains(&found) {
            let why = format!("its algorithm is {found:?}: valid are {ALGORITHMS:?}");
            return Err(Some(why));
        }
        let mut validation = Validation::new(header.alg);
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let keys = self.keys.load();
        let named = |id: &Option<String>| header.kid.is_none() || *id == header.kid;
        for jwk in keys.keys.iter().filter(|jwk| named(&jwk.common.key_id)) {
            let Ok(key) = DecodingKey::from_jwk(jwk) else {
                continue;
            };
            match decode::<Claims>(token, &key, &validation) {
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
        Err(None)
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
    let body = Limited::new(answer.into_body(), MAX_KEYS).collect().await;
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

//! Texts that people debug with: nothing in them is a secret.

use super::*;

#[rustfmt::skip]
const INNOCENTS: &[&str] = &[
    // Prose
    "connection refused", "basic auth failed", "Basic Authentication required", "bearer token required", "KeyError: 'city'", "KeyError: '2024-01-01'",
    "Missing key: city", "missing required key: 'city'", "Unexpected token: identifier", "Unexpected token < in JSON at position 0", "KeyNotFoundException: no such city",
    "TokenExpiredError: jwt expired", "AuthenticationError: token expired", "unauthorized: authentication required", "401 Unauthorized: Bad credentials", "the basic SELECT statement",
    "digest SHA256 of the file", "token expired", "password is required", "password is too short", "Password must have at least 8 characters", "password: must be at least 8 characters",
    "password: field required", "invalid password", "wrong password for user ada", "the bearer of bad news", "basic income", "a universal basic income of 1000", "secret santa", "the key to success",
    "press any key to continue", "no token provided", "token: missing", "password: required", "the standard bearer carried the flag", "Bearer bonds are rare", "Bearer authentication is on",
    "Authorization: required", "the secret of good code", "tokens per second: 42", "authentication failed: timeout after 30s", "please reset your password at https://x.com/reset",
    "the author is Ada", "author: Ada", "keyboard: qwerty", "monkey: 3", "secretary: Grace", "max_tokens: 4096", "max_tokens=4096", "prompt_tokens: 12, total_tokens: 30",
    "token count: 1234", "Invalid API key provided", "duplicate key value violates unique constraint \"users_pkey\"", "Duplicate entry '5' for key 'users.email_unique'",
    "foreign key constraint fails", "pass the salt", "all tests pass: 42", "PASS: test_login", "key not found: user_id", "unknown key `colour` in table", "the password field was left empty",
    // Identifiers and data
    "550e8400-e29b-41d4-a716-446655440000", "id=550e8400-e29b-41d4-a716-446655440000", "commit 63fa4dd0c1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", "v1.2.3-beta.4+build.567", "2024-01-01T12:34:56.789Z", "/usr/lib/x86_64-linux-gnu/libssl.so.3", "C:\\Users\\ada\\Documents",
    "ada@example.com", "git@github.com:ada/repo.git", "ssh://git@github.com/a/b", "http://localhost:8080/a@b", "https://x.com/a?page=2&limit=10#top", "10.0.0.1:8080", "[::1]:8080", "+49 30 1234567",
    "gpt-4o-mini", "claude-3-5-sonnet-20241022", "sk-learn", "scikit-learn sk-learn-contrib", "task-1234", "AKIA alone", "npm_config_registry is not set", "hf_hub_download failed",
    "sk_buff_alloc_failed in net/core", "ASIA-PACIFIC-SOUTH1 is down", "-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY----- MIIB -----END PUBLIC KEY-----",
    "{\"prompt_tokens\": 12, \"completion_tokens\": 3}", "{\"usage\":{\"total_tokens\":15,\"cached_tokens\":1}}", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ ada@host", "W/\"33a64df551425fcc55e4d42a148795d9f25f89d4\"",
    // Code
    "key = row[\"id\"]", "for key, value in map.items():", "sorted(xs, key=lambda x: x[1])", "let token = lexer.next();", "password = config.password", "token = process.env.TOKEN", "password = os.environ[\"DB_PASS\"]",
    "auth::login(user)", "use crate::token::Kind;", "at auth.login (/app/src/auth.js:12:5)", "src/token.rs:123:5: error", "PRIMARY KEY (id)", "CREATE TABLE t (id INT PRIMARY KEY, password VARCHAR(255))",
    "SELECT key, value FROM t WHERE key IN (1, 2)", "HTTP/1.1 200 OK", "Content-Type: application/json", "color: #fff; margin: 0 auto", "@keyframes spin { from { top: 0 } }", "Arc<Token> is not Send",
    "password=***", "token: <token>", "password=${DB_PASSWORD}", "Authorization: Bearer <token>", "Vec<Key> and HashMap<Key, V>", "docker run -p 80:80 nginx", "PWD=/home/ada", "GET /auth/login HTTP/1.1",
    "kubectl get secret my-secret", "--no-auth is set", "Traceback (most recent call last):\n  File \"auth.py\", line 3, in token\n    raise KeyError(key)", "com.example.auth.LoginService: started", "auth-service:8080 is up",
    "| Plan | Secrets | Price |\n|---|---|---|\n| Free | 5 | 0 |\n| Pro | 500 | 9 |", "kind: ConfigMap\ndata:\n  a: b", "kind: Secret\nis what the manifest says, and\ndata: is its content",
    "<label>Password</label><span>must have 8 characters</span>", "<dt>Password</dt><dd>Forgot your password?</dd>", "<td>Secret</td><td>Not set</td>", "<label>Password</label> <div class=\"hint\">Minimum 12 characters, 1 digit</div>",
    "| Feature | Password | OAuth |\n|---|---|---|\n| MFA | Supported | Not supported |\n| SSO | \u{2713} | \u{274c} |\n| Expiry | 90 days | never |", "feature,password,oauth\nMFA,supported,unsupported\n",
    "Error in line 3: user,password\nexpected 2 columns, found 3", "error: columns id,token,name\n12:03:05 INFO worker-17 started,pid=4711,ok", "('bearer', '2026-01-01')",
    "aws ssm put-parameter --name /app/db_password --value file://x.txt", "The token bucket has --value 5 left", "Set-Item Env:TOKEN -Value (Get-Content token.txt)", "COPY t (id, password) FROM stdin;\n1\t\\N\n\\.",
    "INSERT INTO t (id, password) VALUES (1, ?); SELECT * FROM data WHERE x IN ('alpha7beta9', 'gamma8delta0')",
    // As they are met
    "Error: ENOENT: no such file or directory, open '/etc/ssl/private/key.pem'", "the key is under the mat", "a key-value store", "key=value pairs", "key: value", "Tokens: 42", "token usage: 1234/8192 tokens",
    "authenticated as ada", "authorization failed", "Authorization header missing", "Authorization: missing header", "cookie policy", "accept cookies?", "secrets are hard", "secret sauce", "The secret is out.", "pin the version to 1.2.3",
    "otp is not installed", "the password was changed yesterday", "password changed by ada", "password reset link sent to ada@example.com", "Your password has expired", "password must contain a digit", "forgot password?",
    "passwords do not match", "password strength: weak", "no password supplied", "fe_sendauth: no password supplied", "FATAL: password authentication failed for user \"ada\"", "Access denied for user 'ada'@'localhost' (using password: YES)",
    "pq: password authentication failed for user \"ada\"", "ORA-01017: invalid username/password; logon denied", "invalid_grant: Token has been expired or revoked.", "JsonWebTokenError: invalid signature", "invalid token at line 3 column 14",
    "SyntaxError: Unexpected token '}' at 12:34", "expected token `;`, found `}`", "unexpected end of input, expected one of 3 tokens", "error: unknown token kind 17", "tokenization failed at offset 1024", "Bearer error=\"invalid_token\"",
    "WWW-Authenticate: Basic realm=\"x\"", "WWW-Authenticate: Bearer realm=\"x\", error=\"invalid_token\"", "HTTP 401: token_expired", "error_code=auth_failed", "status=unauthorized reason=token_expired", "auth=none", "auth: none",
    "authType: basic", "\"token_type\": \"bearer\"", "{\"max_tokens\":100,\"model\":\"gpt-4o\"}", "{\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}", "x-ratelimit-remaining-tokens: 149984",
    "https://example.com/auth/callback?state=ok", "https://example.com/keys/list", "https://github.com/tokio-rs/tokio/blob/63fa4dd0c1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6/src/lib.rs#L12-L34", "https://x.com/@ada/status/1234567890123456789",
    "https://user@example.com/path", "postgres://localhost:5432/db", "postgres://ada@localhost/db", "redis://cache:6379/0", "http://[::1]:8080/a", "see http://[2001:db8::1]:8080", "http://[fe80::1%25eth0]/", "connecting to https://[2001:db8::a:1]", "https://example.com:8443/path:with:colons@x", "mailto:ada@example.com", "sip:1234@example.com",
    "image: registry.io/a/b@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "ETag: \"5d8c72a5edda8d6a:0\"", "md5=d41d8cd98f00b204e9800998ecf8427e", "trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "request_id: req_011CSHoEeqs5C35K2UUqR7Fy", "call_abc123DEF456ghi789", "toolu_01A09q90qw90lq917835lq9", "chatcmpl-123abc456DEF789", "msg_01XFDUDYJgAACzvnptvVoYEL",
    "cus_NffrFeUfNV2Hib", "pi_3MtwBwLkdIwHu7ix28a3tqPa", "arn:aws:iam::123456789012:role/admin", "AWS account 123456789012", "i-0abcd1234efgh5678", "s3://bucket/key/with/path.txt", "gs://bucket/a", "projects/my-proj/secrets/db-pass/versions/3",
    "us-east-1a", "claude-sonnet-4-20250514", "text-embedding-3-large", "meta-llama/Llama-3.1-8B-Instruct", "ISBN 978-3-16-148410-0", "4111-1111", "DE89 3704 0044 0532 0130 00", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    "fn is_sensitive_key(key: &str) -> bool {", "pub fn token(&self) -> &Token {", "match token { Token::Eof => break, _ => {} }", "if (!token) return;", "if (key === 'Enter') submit();", "onKeyDown={handleKey}", "const { key, value } = entry;",
    "Object.keys(x).map(key => x[key])", "dict.get(key)", "map.insert(key, value)", "foo(key=None)", "def login(username, password):", "def login(self, password: str) -> bool:", "function auth(token, secret) {}", "password: String,", "pub password: Option<String>,",
    "\"required\": [\"username\", \"password\"]", "username, password, token", "ALTER USER ada WITH PASSWORD NULL", "INSERT INTO t (key, value) VALUES (1, 2)", "KEY idx_user (user_id)", "ON DUPLICATE KEY UPDATE x = 1", "KEYS *", "keyspace: 12",
    "<key>", "<input type=\"password\" name=\"password\">", "<label for=\"password\">Password</label>", "key.pem: No such file", "authorized_keys not found", "Enter password: ", "Password:", "sk-toggleable__content", "sk-estimator-doc-link",
    "pk_id_sequence_value", "test_token_refresh_works ... ok", "test auth::tests::login_ok ... ok", "auth.rs:12", "auth/mod.rs", "tokens.json", "key_vault_name", "re_compile_pattern", "live_reload_enabled_by_default_in_version_2", "secret_santa_participants_list",
    "data-key-id", "A3-size-paper", "s.toLowerCase().includes", "oauth_callback_handler_registered_1", "BQ table", "SKU 12345", "AC power", "fc-list", "pa-system", "user:ada role:admin", "key-0.9.1.tar.gz", "Content-Length: 123", "Set max_tokens to 4096",
    "Basic knowledge of SQL2019", "Digest of yesterday's news", "--password is deprecated", "use --token to authenticate", "option --api-key not given", "missing --password flag", "curl -u", "mysql -h db -P 3306", "mysql --port=3306", "mysql -u root shop",
    "docker run -p 127.0.0.1:80:80 nginx", "cp -p a b", "mkdir -p out/a", "tar -p", "ssh -p 2222 host", "0 passed; 1 failed", "Keyboard interrupt", "AuthorizationError", "12:34:56:78:90:ab", "a:b:c:d:e", "src/main.rs:12:5:error:bad", "{}", "[]", "null", "\"\"",
    "password=", "token: ", "password=\"\"", "password: null", "password: None", "token=undefined", "password: [REDACTED]", "password=********", "Token(len=12)", "sha512-AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789ABCDEFGH==",
    "key: 42", "keys: a, b, c", "token #5 of 10", "the token bucket holds 100 tokens", "tokens/s: 55.3", "secret not found: my-secret", "Secret \"db-credentials\" not found", "secrets \"db\" is forbidden",
    "auth provider: google", "auth: google", "authentication: basic", "Authentication successful for ada", "session expired", "session id missing", "cookie expired at 2024-01-01T00:00:00Z", "cookies: disabled",
    "API key not valid. Please pass a valid API key.", "Incorrect API key provided.", "You didn't provide an API key.", "error: password too weak", "password: too short", "passphrase required",
    "token is invalid", "token was revoked on 2024-01-01", "token expires in 3600s", "token expired at 2024-01-01T12:00:00Z", "the key 'user_id' was not found", "no such key: user:1234:profile", "key 'abc' not found", "KeyError: 'user_id2'",
    "unable to find key with id 550e8400-e29b-41d4-a716-446655440000", "primary key 42 already exists", "Error 1062: Duplicate entry '1234567890' for key 'PRIMARY'", "press Ctrl+C", "basic-auth", "Basic auth is off",
    "Basic plan costs $10", "digest mismatch", "negotiate TLS1.3", "token ring network", "hockey score 3:2", "sort key=name", "order by key", "keyof typeof x", "key={item.id}", "<li key={i}>", "v-bind:key=\"item.id\"",
    "foo.key == bar.key", "if key == \"city\"", "let key = map.keys().next();", "key := range m", "for key := range m {", "KeyCode: 13", "event.key === \"Enter\"", "switch (key) {", "case 'token':", "token.kind != Kind::Eof", "self.token = token",
    // Code that has no secret in it, and words that stand for one
    "let tokens: Vec<Token> = tokenize(&source);", "type AuthToken = { token: string; expires: Date };", "password = getpass.getpass(\"Password: \")", "secret := os.Getenv(\"APP_SECRET\")",
    "fn f(tokens: &mut TokenStream, s: &str) {", "pub const EKEYREVOKED: u32 = 128;", "let tokens = quote! { a };", "sid = unsafe { next(sid) };", "password = var.db_password", "if otp.ident == tp.ident {",
    "at com.example.PasswordPolicy.check(PasswordPolicy.java:1771)", "#define KEY_7157 0x2b7c2fbb", "$cred = Get-Credential -UserName ada", "export TOKEN=$(cat /run/token)", "export TOKEN=\"$(pass show db)\"",
    "UPDATE users SET password = $1 WHERE id = $2;", "curl -u \"$USER:$PASSWORD\" https://x", "https://USER:PASSWORD@host/x", "api_key: YOUR_API_KEY", "key={key}&id=1", "read -s -p \"Password: \" PASSWORD",
    "token_file = /run/token", "password_min_length = 12", "--password-file /run/pw", "tls:\n  secretName: my-tls", "secrets:\n  db_password:\n    file: /run/db", "auth:\n  type: oidc\n  issuer: https://h",
    "permissions:\n  id-token: write", "sort --key=3 file", "key=user:1234 ttl=5", "gpg: key a9be5f892e10cc8a: imported", "--- PASS: TestTokenExpired (0.01s)", "Digest: sha256:e3b0c44298fc1c149afbf4c8996fb924",
    "openssl req -newkey rsa:4096 -keyout a.key", "keyring==27.25.26", "keywords = [\"token\", \"harbor\"]", "[pin-project]: https://github.com/taiki-e/pin-project", "Authorization: Bearer <access_token>",
    // Tables
    "| Field | Type |\n|---|---|\n| password | string |\n| token | text |", "| Key | Action |\n|---|---|\n| Ctrl+C | copy |\n| F12 | paste |", "key,value\nriver,1\nlake,2\n", "user,password\n",
    "def login(user, password):\n    check(user, password)", "INSERT INTO t (key, value) VALUES ('river', 'lake')", "NAME   TYPE   AGE\ntls    kubernetes.io/tls   3d", "CREATE TABLE t (id INT, password TEXT);\nINSERT INTO t (id) VALUES (1);",
    "pass", "pass: 3 fail: 1", "passed=12 failed=0", "PASS 12/12", "pin=", "sid: ok", "https://docs.x.com/authentication#bearer", "GET /api/keys 200 12ms", "POST /oauth/token 401", "/etc/ssl/private/server.key", "id_rsa.pub", "~/.ssh/id_ed25519",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 ada@host", "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8", "fingerprint: 43:51:43:a1:b5:fc:8b:b7:0a:3a:a9:b1:0f:66:73:a8", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPBdG", "1HGCM82633A004352", "AAPL 189.30", "eyJ", "eyJhbGciOi", "sk-", "ghp_", "xoxb-", "sha1-abc=", "chunk-2d0c8a3f.7b1e9d4c.js", "main.8f3a2b1c.css", "libfoo-1.2.3-py3-none-any.whl",
];

#[test]
fn innocent_text_is_left_alone() {
    let mut wrong = String::new();
    for text in INNOCENTS {
        let shown = redact_text(text);
        if shown != *text {
            wrong += &format!("{text}\n    {shown}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

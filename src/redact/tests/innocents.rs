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

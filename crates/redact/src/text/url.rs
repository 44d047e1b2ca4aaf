//! Credentials in URLs: before the host, and in the paths of webhooks.

use super::{command::ORACLE, prelude::*, token::is_plain};

/// How far the end of a URL's user is looked for, in bytes.
const NEAR: usize = 512;

/// `scheme://user:password@host`, `redis://:password@host`, `https://key@host`.
pub(super) fn user_info(run: &Run<'_>) -> Option<Range<usize>> {
    const MARKS: &[&str] = &["://", ":\\/\\/", "%3A%2F%2F", "%3a%2f%2f"];
    let text = run.text;
    if run.after().starts_with('(') {
        return data_source(run);
    }
    let mark = prefix_of(run.after(), MARKS)?;
    let start = run.end + mark.len();
    let near = ahead(text, start, NEAR);
    let stops = |c: char| c.is_whitespace() || "\"<>`|".contains(c);
    let mut url = near.split(stops).next()?;
    let seen = url.len();
    let mut authority = until(url, "/?#");
    // `https%3A%2F%2Fh%2Fa%40b`: the slash behind the host has an escape, too.
    if let Some(slash) = mark.get(3..6) {
        authority = authority.split(slash).next().unwrap_or(authority);
    }
    // `jdbc:sqlserver://h:1433;user=a;password=x`, `Endpoint=https://h;Secret=x`: the host ends
    // there.
    if let Some((host, fields)) = authority.cut(";")
        && !host.has_of("@")
        && let Some((name, _)) = fields.cut("=")
        && !name.is_empty()
        && is_made_of(name, " _-")
    {
        (url, authority) = (host, host);
    }
    let whole = || start..bare_end(text, start).max(start + near.len());
    if let Some(sign) = authority.rfind('@').or_else(|| authority.rfind("%40")) {
        // The authority may go on beyond the bytes that were read, and have another sign there. A
        // second pass finds it after this part is redacted.
        let goes_on = authority.len() == near.len() && near.len() + 4 > NEAR;
        let end = start + sign;
        let user = if goes_on { whole() } else { start..end };
        return is_credential(&authority[..sign]).then_some(user);
    }
    if !has_password(authority) {
        return None;
    }
    // A password may hold a raw slash or question mark.
    if let Some(sign) = url.rfind('@') {
        return Some(start..start + sign);
    }
    // The end of the user is missing: beyond the bytes that were read, or cut off.
    let hidden = seen == near.len() && start + near.len() >= text.len().min(start + NEAR - 4);
    // A host may have a placeholder for its port.
    let port = after_last(authority, |c| c == ':');
    let capitals = port.len() <= 4 && port.bytes().all(|b| b.is_ascii_uppercase());
    (hidden && !capitals && !port.starts_of("{$<")).then(whole)
}

/// Returns whether what stands before the host is a secret: a user with a password, or a token.
fn is_credential(user: &str) -> bool {
    // `cvs://:pserver:anoncvs@h`
    let public = user.strip_prefix(":pserver:");
    let user = public.filter(|it| it.starts_with("anon")).unwrap_or(user);
    let secret = user.has_of(":") || user.holds("%3A") || user.holds("%3a");
    let (name, password) = user.cut(":").unwrap_or(("", user));
    let example = is_one_of(name, "user username") && is_one_of(password, "pass password");
    // `https://ghp_x@github.com`
    let token = user.len() >= 16 && has_digit(user) || user.len() >= 12 && is_random(user);
    (secret || token) && !is_placeholder(password) && !example
}

/// Returns whether a colon in `authority`, which has no user, may stand before a password: a port
/// is a number.
fn has_password(authority: &str) -> bool {
    let port = |host: &str| host.cut(":").is_none_or(|(_, port)| is_digits(port));
    let (_, password) = authority.cut(":").unwrap_or_default();
    // `http://[::1]:8080`, `mongodb://a:1,b:2/x`
    !password.is_empty() && !authority.starts_with('[') && !authority.split_of(",").all(port)
}

/// `user:password@host:port`, without a scheme.
pub(super) fn bare_user_info(run: &Run<'_>) -> Option<Range<usize>> {
    const SCHEMES: &str = "sip sips mailto xmpp npm git ssh";
    if !run.after().starts_with(':') || run.before().ends_of("/:@.") {
        return None;
    }
    let start = run.end + 1;
    let near = ahead(run.text, start, 128);
    let mut parts = near.split(|c: char| c.is_whitespace() || "\"'<>`,;/".contains(c));
    let (password, host) = parts.next()?.cut_last("@")?;
    let (name, port) = host.cut(":")?;
    let host = !name.is_empty() && is_made_of(name, "-._");
    let port = (2..=5).contains(&port.len()) && is_digits(port);
    let secret = host && port && is_mixed(password) && !is_one_of(run.word(), SCHEMES);
    secret.then(|| start..start + password.len())
}

/// `user:password@tcp(db:3306)/x`, as Go's drivers write it: the network follows the password.
fn data_source(run: &Run<'_>) -> Option<Range<usize>> {
    let head = run.before().strip_suffix('@')?;
    let parts = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '/');
    let user = after_last(behind(head, head.len(), 256), parts);
    let (_, password) = user.cut(":")?;
    let network = ["tcp", "unix", "tcp6", "udp"].contains(&run.word());
    network.then(|| head.len() - password.len()..head.len())
}

/// Hosts and beginnings of paths after which the secret of a webhook stands.
#[rustfmt::skip]
const WEBHOOKS: &[&str] = &[
    "hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/", "hooks.slack-gov.com/services/",
    "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "ptb.discord.com/api/webhooks/", "canary.discord.com/api/webhooks/",
    "discord.com/api/v10/webhooks/", "hooks.zapier.com/hooks/catch/", "hook.integromat.com/", "hook.eu1.make.com/", "hook.us1.make.com/",
    "events.pagerduty.com/integration/", "hooks.airtable.com/workflows/", "hc-ping.com/", "outlook.office.com/webhook/", "open.feishu.cn/open-apis/bot/v2/hook/",
];

/// The secret part of a webhook's address.
pub(super) fn webhook(run: &Run<'_>) -> Option<Range<usize>> {
    let word = run.word();
    let others = [telegram, oracle, path_segment];
    if let Some(found) = others.iter().find_map(|find| find(run)) {
        return Some(found);
    }
    let url = word.trim_start_of("/");
    let host = prefix_of(url, WEBHOOKS).map(|host| word.len() - url.len() + host.len());
    // Teams: `https://x.webhook.office.com/webhookb2/id@id/IncomingWebhook/secret`
    let teams = || {
        let (path, _) = ahead(word, 0, 128).cut("/IncomingWebhook/")?;
        let id = run.before().ends_with('@');
        id.then_some(path.len() + "/IncomingWebhook/".len())
    };
    let from = run.at + host.or_else(teams)?;
    (from < run.end).then(|| from..bare_end(run.text, from))
}

/// `https://h/trigger/x/with/key/<secret>`: the word before the last slash says what follows.
fn path_segment(run: &Run<'_>) -> Option<Range<usize>> {
    static NAMES: Words = Words::of(
        "key apikey api_key api-key token access_token secret hook hooks webhook webhooks reset magic \
        invite ical reset-password password-reset verify confirm unsubscribe",
    );
    let word = run.word();
    if !word.starts_with("//") || word.len() < 24 {
        return None;
    }
    let (mut at, mut before) = (run.at, "");
    word.split_of("/").find_map(|part| {
        let bare = part.strip_prefix("private-").unwrap_or(part);
        // What has a version as its parent is a number of something, unless it is nothing else.
        let long = || bare.len() > 32 && bare.bytes().any(|b| b.is_ascii_uppercase());
        let numbered = is_one_of(before, "v2 v3");
        let known = numbered && (bare.len() == 32 || long()) || !numbered && NAMES.has(before);
        let start = at;
        (before, at) = (part, at + part.len() + 1);
        let secret = (known || bare.len() < part.len()) && is_random_segment(bare);
        secret.then(|| start..bare_end(run.text, start))
    })
}

/// Returns whether a part of a path is long, and letters and digits change places again and again
/// in it.
fn is_random_segment(part: &str) -> bool {
    let digits = part.bytes().map(|b| b.is_ascii_digit());
    let before = std::iter::once(false).chain(digits.clone());
    let changes = digits.zip(before).filter(|(digit, before)| digit != before);
    part.len() >= 20 && changes.count() >= 5 && is_made_of(part, "-_") && !is_uuid(part)
}

/// `jdbc:oracle:thin:user/password@host`, `sqlplus user/password@host`
fn oracle(run: &Run<'_>) -> Option<Range<usize>> {
    let (user, _) = run.word().cut("/")?;
    let driver = ends_with_one_of(run.before(), "thin: oci: oci8:")
        || prefix_of(run.after(), &["@//", "@(DESCRIPTION"]).is_some()
        || run.is_argument_of(ORACLE);
    (driver && run.after().starts_with('@')).then(|| run.at + user.len() + 1..run.end)
}

/// `123456789:AAF...`, with `bot` before it in URLs.
fn telegram(run: &Run<'_>) -> Option<Range<usize>> {
    run.after().strip_prefix(":AA")?;
    let word = run.word();
    let digits = word.len() - word.trim_end_of(DIGITS).len();
    let end = skip(run.text, run.end + 1, is_plain);
    (digits >= 6 && end - run.end > 30).then(|| run.end - digits..end)
}

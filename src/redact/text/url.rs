//! Credentials in URLs: before the host, and in the paths of webhooks.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{after_last, ahead, behind, is_one_of, skip},
    command::Command,
    look::{is_mixed, is_placeholder, is_random, is_uuid},
    value::bare_end,
};

/// How far the end of a URL's user is looked for, in bytes.
const NEAR: usize = 512;

/// `scheme://user:password@host`, `redis://:password@host`, `https://key@host`.
pub(super) fn user_info(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let text = scan.text;
    if scan.after(run).starts_with('(') {
        return data_source(scan, run);
    }
    if !scan.after(run).starts_with([':', '%']) {
        return None;
    }
    let marks = ["://", ":\\/\\/", "%3A%2F%2F", "%3a%2f%2f"];
    let mark = marks
        .iter()
        .find(|mark| scan.after(run).starts_with(**mark))?;
    let start = run.end + mark.len();
    let near = ahead(text, start, NEAR);
    let end = near
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`' | '|'))
        .unwrap_or(near.len());
    let url = &near[..end];
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // `jdbc:sqlserver://h:1433;user=a;password=x`, `Endpoint=https://h;Secret=x`: the host ends there.
    let authority = match authority.split_once(';') {
        Some((host, fields)) if !host.contains('@') && is_field(fields) => host,
        _ => authority,
    };
    let url = if authority.len() < url.len() && url[authority.len()..].starts_with(';') {
        authority
    } else {
        url
    };
    let sign = authority.rfind('@').or_else(|| authority.rfind("%40"));
    if let Some(sign) = sign {
        let user = &authority[..sign];
        let secret =
            user.contains(':') || user.contains("%3A") || user.contains("%3a") || is_token(user);
        let (name, password) = user.split_once(':').unwrap_or(("", user));
        let example =
            is_one_of(name, &["user", "username"]) && is_one_of(password, &["pass", "password"]);
        if is_placeholder(password) || example {
            return None;
        }
        // `jdbc:oracle:thin:user/pw@//host` has none here; the password alone is hidden elsewhere.
        return secret.then(|| start..start + sign);
    }
    // `http://[::1]:8080`
    if authority.starts_with('[') {
        return None;
    }
    // A password may hold a raw slash or question mark; a port is a number.
    let (_, port) = authority.split_once(':')?;
    let number = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    // `mongodb://a:1,b:2/x`
    let mut hosts = authority.split(',');
    if port.is_empty()
        || hosts.all(|host| host.split_once(':').is_none_or(|(_, port)| number(port)))
    {
        return None;
    }
    match url.rfind('@') {
        Some(sign) => Some(start..start + sign),
        // Its end is out of sight: beyond what was looked at, or cut off.
        None if end == near.len()
            && start + end >= text.len().min(start + NEAR - 4)
            && !is_host(authority) =>
        {
            Some(start..bare_end(text, start).max(start + end))
        }
        None => None,
    }
}

/// `user:password@host:port`, without a scheme.
pub(super) fn bare_user_info(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    const SCHEMES: &[&str] = &["sip", "sips", "mailto", "xmpp", "npm", "git", "ssh"];
    let text = scan.text;
    if !scan.after(run).starts_with(':') || scan.before(run).ends_with(['/', ':', '@', '.']) {
        return None;
    }
    let start = run.end + 1;
    let near = ahead(text, start, 128);
    if !near.as_bytes().contains(&b'@') {
        return None;
    }
    let end = near.find(|c: char| c.is_whitespace() || "\"'<>`,;/".contains(c));
    let (password, host) = near[..end.unwrap_or(near.len())].rsplit_once('@')?;
    let (name, port) = host.split_once(':')?;
    let host = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let number = (2..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    let secret = host && number && is_mixed(password) && !is_one_of(scan.word(run), SCHEMES);
    secret.then(|| start..start + password.len())
}

/// Whether a field begins here: `name=`.
fn is_field(text: &str) -> bool {
    let name = skip(text, 0, |c| {
        c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-')
    });
    name > 0 && text[name..].starts_with('=')
}

/// Whether `authority` has nothing but a name and what stands where its port would.
fn is_host(authority: &str) -> bool {
    let port = authority.rsplit(':').next().unwrap_or_default();
    port.starts_with('{')
        || port.starts_with('$')
        || port.starts_with('<')
        || port.len() <= 4 && port.bytes().all(|b| b.is_ascii_uppercase())
}

/// Whether a URL's user is a token: `https://ghp_x@github.com`.
fn is_token(user: &str) -> bool {
    let digits = user.bytes().any(|b| b.is_ascii_digit());
    user.len() >= 16 && digits || user.len() >= 12 && is_random(user)
}

/// `user:password@tcp(db:3306)/x`, as Go's drivers write it: told by what follows the password.
fn data_source(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let network = matches!(scan.word(run), "tcp" | "unix" | "tcp6" | "udp");
    if !network || !scan.after(run).starts_with('(') || !scan.before(run).ends_with('@') {
        return None;
    }
    let before = behind(scan.text, run.at - 1, 256);
    let parts = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '/');
    let (_, password) = after_last(before, parts).split_once(':')?;
    let end = run.at - 1;
    Some(end - password.len()..end)
}

/// Hosts and beginnings of paths after which the secret of a webhook stands.
#[rustfmt::skip]
const WEBHOOKS: &[&str] = &[
    "hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/", "hooks.slack-gov.com/services/",
    "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "ptb.discord.com/api/webhooks/", "canary.discord.com/api/webhooks/",
    "discord.com/api/v10/webhooks/", "hooks.zapier.com/hooks/catch/", "hook.integromat.com/", "hook.eu1.make.com/", "hook.us1.make.com/",
    "events.pagerduty.com/integration/", "hooks.airtable.com/workflows/", "hc-ping.com/", "outlook.office.com/webhook/", "open.feishu.cn/open-apis/bot/v2/hook/",
];

/// A webhook's address, and what of the run is its secret.
pub(super) fn webhook(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word.len() < 8 && !scan.after(run).starts_with('@')
        || !word.contains('/') && !scan.after(run).starts_with(':')
    {
        return None;
    }
    if let Some(bot) = telegram(scan, run)
        .or_else(|| oracle(scan, run))
        .or_else(|| path_segment(scan, run))
    {
        return Some(bot);
    }
    let slashes = word.len() - word.trim_start_matches('/').len();
    let of_host = |host: &&str| {
        word[slashes..]
            .starts_with(*host)
            .then_some(slashes + host.len())
    };
    // Teams: `https://x.webhook.office.com/webhookb2/id@id/IncomingWebhook/secret`
    let teams = || {
        let mark = "/IncomingWebhook/";
        let after = scan.before(run).ends_with('@');
        after.then(|| ahead(word, 0, 128).find(mark).map(|i| i + mark.len()))?
    };
    let from = run.at + WEBHOOKS.iter().find_map(of_host).or_else(teams)?;
    (from < run.end).then(|| from..bare_end(scan.text, from))
}

/// `https://h/trigger/x/with/key/<secret>`: the word before the last slash says what follows.
fn path_segment(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const NAMES: &[&str] = &[
        "key", "apikey", "api_key", "api-key", "token", "access_token", "secret", "hook", "hooks", "webhook", "webhooks", "reset", "magic", "invite", "ical", "v2", "v3",
        "reset-password", "password-reset", "verify", "confirm", "unsubscribe",
    ];
    let word = scan.word(run);
    if !word.starts_with("//") || word.len() < 24 {
        return None;
    }
    let mut at = 0;
    let mut before = "";
    for part in word.split('/') {
        let bare = part.strip_prefix("private-").unwrap_or(part);
        let mut changes = 0;
        let mut last = b' ';
        for b in bare.bytes() {
            changes += usize::from(b.is_ascii_digit() != last.is_ascii_digit());
            last = b;
        }
        let capitals = bare.bytes().any(|b| b.is_ascii_uppercase());
        let random = bare.len() >= 20
            && changes >= 5
            && bare
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        // What has a version as its parent is a number of something, unless it is nothing else.
        let version = matches!(before, "v2" | "v3");
        let known = is_one_of(before, NAMES)
            && (!version || bare.len() >= 32 && (capitals || bare.len() == 32));
        if random && !is_uuid(bare) && (known || bare.len() < part.len()) {
            return Some(run.at + at..bare_end(scan.text, run.at + at));
        }
        before = part;
        at += part.len() + 1;
    }
    None
}

/// `jdbc:oracle:thin:user/password@host`, `sqlplus user/password@host`
fn oracle(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let driver = ["thin:", "oci:", "oci8:"]
        .iter()
        .any(|d| scan.before(run).ends_with(d))
        || scan.after(run).starts_with("@//")
        || scan.after(run).starts_with("@(DESCRIPTION")
        || scan.is_command(Command::Oracle, run);
    let slash = scan
        .word(run)
        .find('/')
        .filter(|_| driver && scan.after(run).starts_with('@'))?;
    Some(run.at + slash + 1..run.end)
}

/// `123456789:AAF...`, with `bot` before it in URLs.
fn telegram(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    if !scan.after(run).starts_with(":AA") {
        return None;
    }
    let word = scan.word(run);
    let digits = word.len() - word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let end = skip(scan.text, run.end + 1, |c| {
        c.is_ascii_alphanumeric() || c == '_' || c == '-'
    });
    (digits >= 6 && end - run.end > 30).then(|| run.end - digits..end)
}

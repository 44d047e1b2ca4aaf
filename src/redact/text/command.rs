//! Credentials in command lines.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{is_one_of, skip},
    look::is_placeholder,
    pair,
    value::{self, Style},
};

/// How far from the command its flags are looked for, in bytes.
const LINE: usize = 1024;

/// A command that takes a password in a short flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redact) enum Command {
    /// `-u user:password`
    Curl,
    /// `-pPASSWORD`
    Mysql,
    /// `-p PASSWORD`
    PasswordInP,
    /// `-a PASSWORD`
    Redis,
    /// `-w PASSWORD`
    Ldap,
}

impl Command {
    /// The command of a word, its path aside.
    pub(in crate::redact) fn of(word: &str) -> Option<Self> {
        if !(2..=64).contains(&word.len()) {
            return None;
        }
        let name = word.rsplit('/').next().unwrap_or(word);
        // Most words are none, and are told by their beginning.
        if !matches!(
            name.as_bytes(),
            [b'c', b'u', ..]
                | [b'h', b't' | b'e', ..]
                | [b'x', b'h', ..]
                | [b'm', b'y' | b'a' | b'o', ..]
                | [b's', b's' | b'k' | b'q', ..]
                | [b'd', b'o', ..]
                | [b'p', b'o', ..]
                | [b'b', b'u' | b'c', ..]
                | [b'o', b'c', ..]
                | [b'r', b'e', ..]
                | [b'l', b'd', ..]
        ) {
            return None;
        }
        Some(match name {
            "curl" | "http" | "https" | "httpie" | "xh" => Self::Curl,
            "mysql" | "mysqldump" | "mysqladmin" | "mariadb" | "mariadb-dump" | "mysqlimport"
            | "mysqlsh" => Self::Mysql,
            "sshpass" | "docker" | "podman" | "mongo" | "mongosh" | "mongodump"
            | "mongorestore" | "buildah" | "skopeo" | "helm" | "oc" | "sqlcmd" | "bcp" => {
                Self::PasswordInP
            }
            "redis-cli" => Self::Redis,
            "ldapsearch" | "ldapadd" | "ldapmodify" | "ldapwhoami" => Self::Ldap,
            _ => return None,
        })
    }

    /// Whether the word after `flag` holds a password.
    pub(in crate::redact) fn announces(self, flag: &str) -> bool {
        match self {
            Self::Curl => matches!(
                flag,
                "-u" | "--user" | "-U" | "--proxy-user" | "-a" | "--auth"
            ),
            Self::Mysql => false,
            Self::PasswordInP => matches!(flag, "-p" | "-P"),
            Self::Redis => flag == "-a",
            Self::Ldap => flag == "-w",
        }
    }

    /// Whether a word is a flag with the password in it.
    pub(in crate::redact) fn is_password(self, word: &str) -> bool {
        self.glued(word).is_some()
    }

    /// Where in a word the password begins.
    fn glued(self, word: &str) -> Option<usize> {
        let flag = match self {
            Self::Mysql => "-p",
            Self::Curl => "-u",
            Self::Ldap => "-w",
            Self::PasswordInP | Self::Redis => return None,
        };
        let rest = word.strip_prefix(flag)?;
        (!rest.is_empty()).then_some(flag.len())
    }
}

/// `named` says that the word may hold the name of a secret.
pub(super) fn find(scan: &mut Scan<'_>, run: Run, named: bool) -> Option<Range<usize>> {
    let word = scan.word(run);
    if let Some(command) = Command::of(word) {
        scan.command = Some((command, run.end));
        return None;
    }
    if !word.starts_with('-') {
        return named.then(|| after_name(scan, run))?;
    }
    if let Some((command, at)) = scan.command
        && run.at - at <= LINE
        && !scan.text[at..run.at].contains('\n')
    {
        if command == Command::Mysql && word == "-p" && scan.after(run).starts_with(['"', '\'']) {
            return Some(value::extent(scan.text, run.end, Style::Plain));
        }
        if let Some(from) = command.glued(word) {
            return Some(run.at + from..value::bare_end(scan.text, run.at + from));
        }
        let start = skip(scan.text, run.end, |c| {
            matches!(c, ' ' | '=' | ',' | '"' | '\'' | '\\')
        });
        if command.announces(word) && start > run.end {
            let start = if scan.text[..start].ends_with(['"', '\'']) {
                start - 1
            } else {
                start
            };
            return credential(
                scan.text,
                command,
                value::glance(scan.text, start, Style::Plain),
            );
        }
    }
    named.then(|| pair::flag(scan, run))?
}

fn credential(text: &str, command: Command, value: Range<usize>) -> Option<Range<usize>> {
    let word = &text[value.clone()];
    let user_only = command == Command::Curl && !word.contains(':');
    // `docker run -p 80:80`
    let ports = word
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
    let none = user_only
        || command == Command::PasswordInP && ports && word.contains(':')
        || word.starts_with('-');
    (!none && !is_placeholder(word)).then_some(value)
}

/// `aws configure set aws_secret_access_key x`, `-passin pass:x`: a setting's name, then its value.
fn after_name(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if !word.contains('_') && !is_one_of(word, &["pass"]) || !scan.after(run).starts_with(' ') {
        return None;
    }
    if !scan.rules.is_sensitive_key(word) {
        return None;
    }
    let start = run.end + 1;
    let end = value::bare_end(scan.text, start);
    let value = &scan.text[start..end];
    (super::look::is_random(value) && !super::look::is_uuid(value)).then_some(start..end)
}

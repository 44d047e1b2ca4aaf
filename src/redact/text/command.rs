//! Credentials in command lines.

use std::ops::Range;

use super::{
    Run, Scan,
    bytes::{ahead, behind, last_line, skip},
    filter,
    look::{is_key_id, is_placeholder, is_random, is_uuid},
    pair,
    value::{self, Style},
};

/// How far from the command its flags are looked for, in bytes.
pub(super) const LINE: usize = 1024;

/// A command that takes a password in a short flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redact) enum Command {
    /// `-u user:password`
    Curl,
    /// `-u user,password`
    Lftp,
    /// `-pPASSWORD`
    Mysql,
    /// `-p PASSWORD`
    PasswordInP,
    /// `-a PASSWORD`
    Redis,
    /// `-w PASSWORD`
    Ldap,
    /// `user/PASSWORD@host`
    Oracle,
    /// `-passin pass:PASSWORD`, `-k PASSWORD`
    Openssl,
    /// `-U user%PASSWORD`
    Samba,
}

impl Command {
    /// The command of a word, its path aside.
    pub(in crate::redact) fn of(word: &str) -> Option<Self> {
        if !(2..=64).contains(&word.len()) {
            return None;
        }
        let name = word.rsplit('/').next().unwrap_or(word);
        // Most words are none, and are told by their beginning.
        if !filter::may_trigger(name) {
            return None;
        }
        Some(match name {
            "lftp" => Self::Lftp,
            "curl" | "http" | "https" | "httpie" | "xh" => Self::Curl,
            "mysql" | "mysqldump" | "mysqladmin" | "mariadb" | "mariadb-dump" | "mysqlimport"
            | "mysqlsh" | "mysqlshow" | "7z" | "7za" | "rar" | "unrar" => Self::Mysql,
            "sshpass" | "docker" | "podman" | "nerdctl" | "mongo" | "mongosh" | "mongodump"
            | "mongoimport" | "mongoexport" | "mongorestore" | "buildah" | "skopeo" | "crane"
            | "helm" | "oc" | "sqlcmd" | "bcp" | "az" | "twine" | "cqlsh" | "snowsql"
            | "influx" | "ipmitool" | "unzip" | "zip" | "cf" | "ibmcloud" | "rabbitmqadmin" => {
                Self::PasswordInP
            }
            "redis-cli" | "valkey-cli" | "keydb-cli" => Self::Redis,
            "ldapsearch" | "ldapadd" | "ldapmodify" | "ldapwhoami" | "ldapdelete"
            | "ldappasswd" => Self::Ldap,
            "sqlplus" | "expdp" | "impdp" | "exp" | "imp" | "rman" | "sqlldr" => Self::Oracle,
            "openssl" => Self::Openssl,
            "smbclient" | "rpcclient" => Self::Samba,
            _ => return None,
        })
    }

    /// Whether the word after `flag` holds a password.
    pub(in crate::redact) fn announces(self, flag: &str) -> bool {
        match self {
            Self::Curl => matches!(
                flag,
                "-u" | "--user" | "-U" | "--proxy-user" | "-a" | "--auth" | "-b" | "--cookie"
            ),
            Self::Lftp => flag == "-u",
            Self::Mysql | Self::Oracle => false,
            Self::Openssl => matches!(flag, "-k" | "-K"),
            Self::Samba => matches!(flag, "-U" | "--user"),
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
            _ => return None,
        };
        let rest = word.strip_prefix(flag)?;
        (!rest.is_empty()).then_some(flag.len())
    }
}

/// `named` says that the word may hold the name of a secret.
pub(super) fn find(scan: &mut Scan<'_>, run: Run, named: bool) -> Option<Range<usize>> {
    let word = scan.word(run);
    if let Some(secret) = positional(scan, run) {
        return Some(secret);
    }
    if let Some(command) = Command::of(word) {
        scan.command = Some((command, run.end));
        return None;
    }
    if word == "--from-literal" && last_line(behind(scan.text, run.at, LINE)).contains(" secret ") {
        // `kubectl create secret generic db --from-literal=name=x`
        let near = ahead(scan.text, run.end, 128);
        let sign = near.strip_prefix(['=', ' '])?.find('=')? + 1;
        return Some(value::extent(scan.text, run.end + sign + 1, Style::Plain));
    }
    if !word.starts_with('-') {
        return named.then(|| after_name(scan, run))?;
    }
    if let Some(command) = scan.command_of(run) {
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

/// `echo x | docker login --password-stdin`, `echo ada:x | chpasswd`, `htpasswd -b file ada x`: a secret that only
/// its place tells.
fn positional(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const READERS: &[&str] = &[
        "--password-stdin", "--with-token", "chpasswd", "sudo -S", "--passphrase-fd 0", "-passin stdin", "--stdin",
    ];
    let word = scan.word(run);
    let pipes = matches!(word, "echo" | "printf");
    let shares = word == "net" && scan.after(run).starts_with(" use ");
    if !pipes && !shares && word != "htpasswd" || !scan.after(run).starts_with(' ') {
        return None;
    }
    let line = ahead(scan.text, run.end, 512);
    let cut = line.len() >= 508;
    let line = line.split('\n').next().unwrap_or(line);
    if cut && line.len() >= 508 {
        return None;
    }
    if pipes {
        let (said, read) = line.split_once('|')?;
        let logs_in = read.contains(" login") && is_random(said.trim());
        if !logs_in && !READERS.iter().any(|reader| read.contains(reader)) {
            return None;
        }
        let flags = said.len() - said.trim_start_matches([' ', '-', 'n', 'e']).len();
        let flags = said[..flags].rfind(' ').map_or(0, |i| i + 1);
        // `printf '%s' x`
        let format = said[flags..]
            .split(' ')
            .next()
            .filter(|first| first.contains('%') && word == "printf");
        let flags = flags + format.map_or(0, |format| format.len() + 1);
        let said = &scan.text[..run.end + said.trim_end().len()];
        if run.end + flags >= said.len() {
            return None;
        }
        let secret = value::extent(said, run.end + flags, Style::Plain);
        return (!is_placeholder(&scan.text[secret.clone()])).then_some(secret);
    }
    let line = line
        .split(['|', ';', '&', '>'])
        .next()
        .unwrap_or(line)
        .trim_end();
    if shares {
        // `net use Z: \\\\host\\share /user:ada x`
        let named = |word: &str| word.starts_with('/') || word.contains(['\\', ':', '*']);
        let mut places = line.split(' ').scan(run.end, |next, word| {
            let at = *next;
            *next += word.len() + 1;
            Some((at, word))
        });
        let secret = places.find(|(_, word)| !word.is_empty() && *word != "use" && !named(word));
        let (start, word) = secret.filter(|_| line.contains("\\\\"))?;
        return Some(start..start + word.len());
    }
    let mut words = line.split(' ').filter(|w| !w.is_empty());
    let batch = words
        .clone()
        .any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('b'));
    let last = words.next_back().filter(|w| batch && !w.starts_with('-'))?;
    (words.count() >= 2).then(|| run.end + line.len() - last.len()..run.end + line.len())
}

fn credential(text: &str, command: Command, value: Range<usize>) -> Option<Range<usize>> {
    let word = &text[value.clone()];
    let user_only = command == Command::Curl && !word.contains([':', '=']);
    // `docker run -p 80:80`
    let ports = word
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
    let none = user_only
        || command == Command::Lftp && !word.contains(',')
        || command == Command::Samba && !word.contains('%')
        || command == Command::PasswordInP && ports && word.contains(':')
        || word.starts_with('-');
    (!none && !is_placeholder(word)).then_some(value)
}

/// `aws configure set aws_secret_access_key x`, `-passin pass:x`: a setting's name, then its value.
fn after_name(scan: &Scan<'_>, run: Run) -> Option<Range<usize>> {
    let word = scan.word(run);
    if word == "pass" && scan.after(run).starts_with(':') && scan.is_command(Command::Openssl, run)
    {
        return Some(run.end + 1..value::bare_end(scan.text, run.end + 1));
    }
    if !scan.after(run).starts_with(' ') || !scan.rules.announces(word) {
        return None;
    }
    let start = run.end + 1;
    if [
        "configure set ",
        "config set ",
        "setx ",
        "setenv ",
        "set -x ",
        "set -gx ",
        "set -Ux ",
    ]
    .iter()
    .any(|set| scan.before(run).ends_with(set))
    {
        let value = value::extent(scan.text, start, Style::Plain);
        let shown = &scan.text[value.clone()];
        return (!shown.starts_with('-') && !is_placeholder(shown)).then_some(value);
    }
    if !word.contains('_') && !word.ends_with("pass") {
        return None;
    }
    let end = value::bare_end(scan.text, start);
    let value = &scan.text[start..end];
    (is_random(value) && !is_uuid(value) && !is_key_id(value)).then_some(start..end)
}

//! Credentials in command lines.

use std::ops::Range;

use super::{
    Run,
    bytes::*,
    filter,
    look::*,
    pair,
    quote::Quote,
    shape::{self, Shape},
    value,
};

use crate::hidden::is_format;

/// How far from the command its flags are looked for, in bytes.
pub(super) const LINE: usize = 1024;

/// A command that takes a password in a short flag.
#[derive(Debug)]
pub(crate) struct Command {
    pub(super) names: &'static str,
    /// The flags before a word with the password.
    flags: &'static [&'static str],
    /// The flag that has the password in the same word.
    glued: Option<&'static str>,
    /// The word after a flag has one of these marks (`user:password`); any word will do if there
    /// are none.
    marks: &'static str,
}

#[rustfmt::skip]
pub(super) static COMMANDS: &[Command] = &[
    Command {
        names: "curl http https httpie xh",
        flags: &["-u", "--user", "-U", "--proxy-user", "-a", "--auth", "-b", "--cookie"], glued: Some("-u"), marks: ":=",
    },
    Command { names: "lftp", flags: &["-u"], glued: None, marks: "," },
    Command {
        names: "mysql mysqldump mysqladmin mariadb mariadb-dump mysqlimport mysqlsh mysqlshow 7z 7za rar unrar",
        flags: &[], glued: Some("-p"), marks: "",
    },
    Command {
        names: "sshpass docker podman nerdctl mongo mongosh mongodump mongoimport mongoexport mongorestore buildah skopeo crane helm oc sqlcmd bcp az twine cqlsh snowsql influx ipmitool unzip zip cf ibmcloud rabbitmqadmin",
        flags: &["-p", "-P"], glued: None, marks: "",
    },
    Command { names: "redis-cli valkey-cli keydb-cli", flags: &["-a"], glued: None, marks: "" },
    Command {
        names: "ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ldappasswd",
        flags: &["-w"], glued: Some("-w"), marks: "",
    },
    Command { names: ORACLE, flags: &[], glued: None, marks: "" },
    Command { names: OPENSSL, flags: &["-k", "-K"], glued: None, marks: "" },
    Command { names: "smbclient rpcclient", flags: &["-U", "--user"], glued: None, marks: "%" },
];

/// They take `user/PASSWORD@host`.
pub(super) const ORACLE: &str = "sqlplus expdp impdp exp imp rman sqlldr";

/// It takes `-passin pass:PASSWORD`.
const OPENSSL: &str = "openssl";

impl Command {
    /// The command that a word names, with or without a path.
    pub(crate) fn of(word: &str) -> Option<&'static Self> {
        let name = word.rsplit('/').next().unwrap_or(word);
        // A line of a diff, or behind the mark of a file's encoding.
        let name = name.trim_start_matches(|c| c == '+' || is_format(c));
        // Most words are none, as their first and last letters show.
        let may_be = word.len() <= 64 && filter::may_trigger(name.as_bytes());
        let find = || COMMANDS.iter().find(|c| is_one_of(name, c.names));
        may_be.then(find)?
    }

    /// Returns whether the word after `flag` holds a password.
    pub(crate) fn announces(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns whether a word is a flag with the password in it.
    pub(crate) fn is_password(&self, word: &str) -> bool {
        let flag = self.glued.filter(|flag| word.starts_with(flag));
        flag.is_some_and(|flag| word.len() > flag.len())
    }

    /// Returns whether what follows `flag` holds a password.
    fn takes(&self, flag: &str, value: &str) -> bool {
        // `docker run -p 80:80`
        let ports = flag.eq_ignore_ascii_case("-p")
            && value.contains(':')
            && value.split([':', '.', '-']).all(is_digits);
        let marked = self.marks.is_empty() || value.contains(|c| self.marks.contains(c));
        marked && !ports && !value.starts_with('-') && !is_placeholder(value)
    }
}

pub(super) fn find(run: Run<'_>) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    if let Some(secret) = positional(run) {
        return Some(secret);
    }
    if let Some(command) = Command::of(word) {
        run.scan.command.set(Some((command, run.end)));
        return None;
    }
    if word == "--from-literal" && run.line_before(LINE).contains(" secret ") {
        // `kubectl create secret generic db --from-literal=name=x`
        let sign = run.ahead(128).strip_prefix(['=', ' '])?.find('=')?;
        return Some(value::extent(text, run.end + sign + 2));
    }
    if !word.starts_with('-') {
        return run.named.then(|| after_name(run))?;
    }
    let password = run.command().and_then(|command| flag(run, command));
    password.or_else(|| run.named.then(|| pair::flag(run))?)
}

/// The password in the run or behind it, if the run is a flag of this command. Empty if it has
/// none.
fn flag(run: Run<'_>, command: &Command) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    if word == "-p" && command.glued == Some(word) && run.after().starts_with(['"', '\'']) {
        return Some(value::extent(text, run.end));
    }
    if let Some(flag) = command.glued.filter(|_| command.is_password(word)) {
        let start = run.at + flag.len();
        return Some(start..value::bare_end(text, start));
    }
    let start = skip(text, run.end, |c| " =,\"'\\".contains(c));
    // `curl -su ada:x`
    let last = word.len() - word.chars().next_back().map_or(0, char::len_utf8);
    let bundled = command.marks == ":="
        && last > 1
        && word[1..last].bytes().all(|b| b.is_ascii_alphabetic())
        && command.announces(&format!("-{}", &word[last..]));
    if !command.announces(word) && !bundled || start == run.end {
        return None;
    }
    let open = start - Quote::before(text, start).map_or(0, |quote| quote.len());
    let takes = |value: &str| command.takes(word, value);
    value::secret(text, open, takes).or(Some(start..start))
}

/// A secret that is recognised by its position alone.
fn positional(run: Run<'_>) -> Option<Range<usize>> {
    if !run.after().starts_with(' ') {
        return None;
    }
    let find: fn(Run<'_>, &str) -> Option<Range<usize>> = match run.word() {
        "echo" | "printf" => piped,
        "net" if run.after().starts_with(" use ") => shared,
        "htpasswd" => last_argument,
        _ => return None,
    };
    let near = run.ahead(512);
    let line = until(near, "\n");
    let cut = line.len() >= 508;
    (!cut).then(|| find(run, line))?
}

/// `echo x | docker login --password-stdin`, `echo ada:x | chpasswd`
fn piped(run: Run<'_>, line: &str) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const READERS: &[&str] = &[
        "--password-stdin", "--with-token", "chpasswd", "sudo -S", "--passphrase-fd 0", "-passin stdin", "--stdin",
    ];
    let (said, read) = line.split_once('|')?;
    let logs_in = read.contains(" login") && is_random(said.trim());
    if !logs_in && !READERS.iter().any(|reader| read.contains(reader)) {
        return None;
    }
    let flags = said.len() - said.trim_start_matches([' ', '-', 'n', 'e']).len();
    let flags = said[..flags].rfind(' ').map_or(0, |i| i + 1);
    // `printf '%s' x`
    let format = until(&said[flags..], " ");
    let formatted = run.word() == "printf" && format.contains('%');
    let start = run.end + flags + if formatted { format.len() + 1 } else { 0 };
    let said = &run.text[..run.end + said.trim_end().len()];
    if start >= said.len() {
        return None;
    }
    let secret = value::extent(said, start);
    (!is_placeholder(&run.text[secret.clone()])).then_some(secret)
}

/// The line up to the next command.
fn one_command(line: &str) -> &str {
    until(line, "|;&>").trim_end()
}

/// `net use Z: \\\\host\\share /user:ada x`
fn shared(run: Run<'_>, line: &str) -> Option<Range<usize>> {
    let named = |word: &str| word.starts_with('/') || word.contains(['\\', ':', '*']);
    let line = one_command(line);
    let mut at = run.end;
    for word in line.split(' ') {
        if !word.is_empty() && word != "use" && !named(word) {
            return line.contains("\\\\").then(|| at..at + word.len());
        }
        at += word.len() + 1;
    }
    None
}

/// `htpasswd -b file ada x`
fn last_argument(run: Run<'_>, line: &str) -> Option<Range<usize>> {
    let line = one_command(line);
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let batch = |w: &str| w.starts_with('-') && !w.starts_with("--") && w.contains('b');
    let batch = words.clone().any(batch);
    let last = words.next_back().filter(|w| batch && !w.starts_with('-'))?;
    let start = run.end + line.len() - last.len();
    (words.count() >= 2).then(|| value::extent(run.text, start))
}

/// `aws configure set aws_secret_access_key x`, `-passin pass:x`: a setting's name, then its value.
fn after_name(run: Run<'_>) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const SETTERS: &[&str] = &["configure set ", "config set ", "setx ", "setenv ", "set -x ", "set -gx ", "set -Ux ", "ENV "];
    let (text, word) = (run.text, run.word());
    let start = run.end + 1;
    if word == "pass" && run.after().starts_with(':') && run.is_argument_of(OPENSSL) {
        return Some(start..value::bare_end(text, start));
    }
    if !run.after().starts_with(' ') || !run.rules.announces(word) {
        return None;
    }
    if SETTERS.iter().any(|set| run.before().ends_with(set)) {
        return value::secret(text, start, |shown| {
            !shown.starts_with('-') && !is_placeholder(shown) && !shape::is_innocent(shown, word)
        });
    }
    if !word.contains('_') && !word.ends_with("pass") {
        return None;
    }
    let end = value::bare_end(text, start);
    let value = &text[start..end];
    (is_random(value) && shape::of(value) == Shape::Secret && !is_uuid(value) && !is_key_id(value))
        .then_some(start..end)
}

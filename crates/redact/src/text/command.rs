//! Credentials in command lines.

use std::ops::Range;

use super::{
    Run, Secret,
    bytes::*,
    filter,
    look::*,
    pair,
    quote::Quote,
    shape::{self, Shape},
    value,
};

use crate::{hidden::is_format, rule::Rule, rules::Rules};

/// How far from the command its flags are looked for, in bytes.
pub(super) const LINE: usize = 1024;

/// A command that takes a password behind a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'r> {
    /// The rule that it is a row of.
    pub(crate) id: &'r str,
    /// Its names, with blanks between them.
    pub(crate) names: &'r str,
    /// The flags before a word with the password, with blanks between them.
    pub(crate) flags: &'r str,
    /// The flag that has the password in the same word; empty if there is none.
    pub(crate) glued: &'r str,
    /// The word after a flag has one of these marks (`user:password`); any word will do if there
    /// are none.
    pub(crate) marks: &'r str,
}

const fn row(
    names: &'static str,
    flags: &'static str,
    glued: &'static str,
    marks: &'static str,
) -> Command<'static> {
    Command {
        id: "command",
        names,
        flags,
        glued,
        marks,
    }
}

#[rustfmt::skip]
pub(super) const COMMANDS: &[Command<'static>] = &[
    row("curl http https httpie xh", "-u --user -U --proxy-user -a --auth -b --cookie", "-u", ":="),
    row("lftp", "-u", "", ","),
    row("mysql mysqldump mysqladmin mariadb mariadb-dump mysqlimport mysqlsh mysqlshow 7z 7za rar unrar", "", "-p", ""),
    row("sshpass docker podman nerdctl mongo mongosh mongodump mongoimport mongoexport mongorestore buildah skopeo crane helm oc \
        sqlcmd bcp az twine cqlsh snowsql influx ipmitool unzip zip cf ibmcloud rabbitmqadmin", "-p -P", "", ""),
    row("redis-cli valkey-cli keydb-cli", "-a", "", ""),
    row("ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ldappasswd", "-w", "-w", ""),
    row(ORACLE, "", "", ""),
    row(OPENSSL, "-k -K", "", ""),
    row("smbclient rpcclient", "-U --user", "", "%"),
];

/// They take `user/PASSWORD@host`.
pub(super) const ORACLE: &str = "sqlplus expdp impdp exp imp rman sqlldr";

/// It takes `-passin pass:PASSWORD`.
const OPENSSL: &str = "openssl";

/// Commands and settings with a secret as an argument: their names, the subcommand, a letter that a
/// flag or a path has, and how many arguments stand before the secret.
#[rustfmt::skip]
pub(super) const ARGUMENTS: &[(&str, &str, &str, usize)] = &[
    ("requirepass masterauth bindpw rootpw mkpasswd", "", "", 0), ("auth-pass wpa_passphrase", "", "", 1), ("htpasswd", "", "n", 1), ("htpasswd", "", "b", 2),
    ("net", "use", "\\", 0), ("net", "user", "", 1), ("rclone", "obscure", "", 0), ("openssl", "passwd", "", 0), ("vault", "login", "", 0),
];

impl<'r> Command<'r> {
    /// The command that a word names, with or without a path.
    pub(crate) fn of(rules: &'r Rules, word: &str) -> Option<Self> {
        let name = word.rsplit('/').next().unwrap_or(word);
        // A line of a diff, or behind the mark of a file's encoding.
        let name = name.trim_start_matches(|c| c == '+' || is_format(c));
        let own = rules.rows().iter().filter_map(Rule::command);
        let is = |command: &Command<'_>| is_one_of(name, command.names);
        // Most words are none, as their first and last letters show.
        let may_be = filter::may_trigger(name.as_bytes());
        let built_in = || may_be.then(|| COMMANDS.iter().copied().find(is))?;
        own.filter(|own| rules.allows(own.id))
            .find(is)
            .or_else(built_in)
    }

    /// Returns whether the word after `flag` holds a password.
    pub(crate) fn announces(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|known| known == flag)
    }

    /// Returns whether a word is a flag with the password in it.
    pub(crate) fn is_password(&self, word: &str) -> bool {
        let tail = word.strip_prefix(self.glued);
        !self.glued.is_empty() && tail.is_some_and(|tail| !tail.is_empty())
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

pub(super) fn find(run: Run<'_>) -> Option<Secret<'_>> {
    let (text, word) = (run.text, run.word());
    if Command::of(run.rules, word).is_some() {
        run.scan.command.set(Some((run.at, run.end)));
        return None;
    }
    if word.starts_with('-')
        && let Some(command) = run.command()
        && let Some(secret) = flag(run, command)
    {
        return Some((command.id, secret));
    }
    let secret = if word == "--from-literal" && run.line_before(LINE).contains(" secret ") {
        // `kubectl create secret generic db --from-literal=name=x`
        let sign = run.ahead(128).strip_prefix(['=', ' '])?.find('=')?;
        Some(value::extent(text, run.end + sign + 2))
    } else if matches!(word, "echo" | "printf") {
        piped(run)
    } else if word.starts_with('-') {
        run.named.then(|| pair::flag(run))?
    } else {
        run.named.then(|| after_name(run))?
    };
    Some((COMMANDS[0].id, secret?))
}

/// The password in the run or behind it, if the run is a flag of this command. Empty if it has
/// none.
fn flag(run: Run<'_>, command: Command<'_>) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    if word == "-p" && word == command.glued && run.after().starts_with(['"', '\'']) {
        return Some(value::extent(text, run.end));
    }
    if command.is_password(word) {
        let start = run.at + command.glued.len();
        return Some(start..value::bare_end(text, start));
    }
    let start = skip(text, run.end, |c| " =,\"'\\".contains(c));
    // `curl -su ada:x`
    let last = word.char_indices().next_back().map_or(0, |(last, _)| last);
    let bundled = command.marks == ":="
        && last > 1
        && is_made_of(&word[1..last], "")
        && command.announces(&format!("-{}", &word[last..]));
    if !command.announces(word) && !bundled || start == run.end {
        return None;
    }
    let open = start - Quote::before(text, start).map_or(0, |quote| quote.len());
    let takes = |value: &str| command.takes(word, value);
    value::secret(text, open, takes).or(Some(start..start))
}

/// `echo x | docker login --password-stdin`, `echo ada:x | chpasswd`
fn piped(run: Run<'_>) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const READERS: &[&str] = &[
        "--password-stdin", "--with-token", "chpasswd", "sudo -S", "--passphrase-fd 0", "-passin stdin", "--stdin",
    ];
    let line = until(run.ahead(NEAR), "\n");
    let (said, read) = line.split_once('|').filter(|_| line.len() < NEAR - 4)?;
    let logs_in = read.contains(" login") && is_random(said.trim());
    if !logs_in && !READERS.iter().any(|reader| read.contains(reader)) {
        return None;
    }
    let end = run.end + said.trim_end().len();
    let mut start = run.end;
    // `echo -n x`, `printf '%s' x`
    while let Some(word) = run.text[start..end].strip_prefix(' ')
        && (word.starts_with("-n")
            || word.starts_with("-e")
            || until(word, " ").contains('%') && run.word() == "printf")
    {
        start += 1 + until(word, " ").len();
    }
    let start = skip_blanks(run.text, start);
    let secret = value::extent(&run.text[..end], start.min(end));
    (!secret.is_empty() && !is_placeholder(&run.text[secret.clone()])).then_some(secret)
}

/// How far the arguments of a command are read, in bytes.
const NEAR: usize = 512;

/// The secret among the words behind one of [`ARGUMENTS`]: `requirepass x`, `vault login x`.
pub(super) fn argument(run: Run<'_>) -> Option<Range<usize>> {
    /// Flags with an argument of their own.
    const VALUED: &str = "-m -S -R -C -salt -in";
    let name = after_last(run.word(), |c| c == '/');
    if !run.after().starts_with(' ') || !filter::may_trigger(name.as_bytes()) && !run.named {
        return None;
    }
    let mut rows = ARGUMENTS
        .iter()
        .filter(|row| is_one_of(name, row.0))
        .peekable();
    rows.peek()?;
    let line = until(run.ahead(NEAR), "|;&>\n");
    let text = &run.text[..run.end + line.len()];
    let (mut words, mut at) = (Vec::new(), run.end);
    while text[at..].starts_with(' ') {
        let start = skip_blanks(text, at);
        let end = skip(text, start, |c| c != ' ');
        at = Quote::string_end(text, start).unwrap_or(end);
        words.push((start, &text[start..at]));
    }
    let flags = words
        .iter()
        .filter(|(_, word)| word.starts_with(['-', '\\']));
    let flags: String = flags.map(|(_, word)| *word).collect();
    let mut before = "";
    words.retain(|(_, word)| {
        let behind = std::mem::replace(&mut before, word);
        let valued = VALUED.split(' ').any(|flag| flag == behind);
        // `/user:ada`, `Z:`
        let option =
            word.starts_with(['-', '\\']) || word.rfind('/') == Some(0) || word.ends_with(':');
        !valued && !option && !word.is_empty()
    });
    let (start, _) = rows.find_map(|(_, sub, letter, place)| {
        let first = usize::from(words.first().is_some_and(|(_, word)| sub == word));
        let fits = first == 1 || sub.is_empty();
        let word = words.get(place + first);
        // `vault login -method=userpass username=ada`
        let setting = |word: &str| !sub.is_empty() && word.contains('=');
        word.filter(|(_, word)| fits && flags.contains(letter) && !setting(word))
    })?;
    // Prose has names of commands, too.
    let head = run.line_before(64).trim_end();
    let alone = head.is_empty() || head.ends_with(['"', '\'', '`', '$', '#', '>', '(', ':', ';']);
    value::secret(run.text, *start, |shown| {
        // `net use \\\\h\\s /user:ada $p`
        let absent = is_null(shown) || is_prose(shown) || name != "net" && is_placeholder(shown);
        !absent && (alone || is_mixed(shown) || looks_secret(shown))
    })
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
    (is_random(value) && shape::of(value) == Shape::Secret && !is_uuid(value)).then_some(start..end)
}

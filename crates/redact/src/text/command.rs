//! Credentials in command lines.

use super::{filter, pair, prelude::*};
use crate::hidden::is_format;

/// How far from the command its flags are looked for, in bytes.
pub(super) const LINE: usize = 1024;

/// A command that takes a password in a short flag.
#[derive(Debug)]
pub(crate) struct Command {
    pub(super) names: &'static str,
    /// The flags before a word with the password, with blanks between them.
    flags: &'static str,
    /// The flag that has the password in the same word; empty if there is none.
    glued: &'static str,
    /// The word after a flag has one of these marks (`user:password`); any word will do if there
    /// are none.
    marks: &'static str,
}

#[rustfmt::skip]
pub(super) static COMMANDS: &[Command] = &[
    Command { names: "curl http https httpie xh", flags: "-u --user -U --proxy-user -a --auth -b --cookie", glued: "-u", marks: ":=" },
    Command { names: "lftp", flags: "-u", glued: "", marks: "," },
    Command { names: "mysql mysqldump mysqladmin mariadb mariadb-dump mysqlimport mysqlsh mysqlshow 7z 7za rar unrar", flags: "", glued: "-p", marks: "" },
    Command { names: "sshpass docker podman nerdctl mongo mongosh mongodump mongoimport mongoexport mongorestore buildah skopeo crane helm oc sqlcmd bcp az twine cqlsh snowsql influx ipmitool unzip zip cf ibmcloud rabbitmqadmin psexec psexec64 psexec.exe", flags: "-p -P", glued: "", marks: "" },
    Command { names: "redis-cli valkey-cli keydb-cli", flags: "-a", glued: "", marks: "" },
    Command { names: "ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ldappasswd", flags: "-w", glued: "-w", marks: "" },
    Command { names: ORACLE, flags: "", glued: "", marks: "" },
    Command { names: "schtasks schtasks.exe", flags: "/rp /p /RP /P", glued: "", marks: "" },
    Command { names: "snmpget snmpgetnext snmpwalk snmpbulkget snmpbulkwalk snmpset snmptrap", flags: "-c -A -X", glued: "", marks: "" },
    Command { names: "openssl", flags: "-k -K", glued: "", marks: "" },
    Command { names: "smbclient rpcclient", flags: "-U --user", glued: "", marks: "%" },
];

/// They take `user/PASSWORD@host`.
pub(super) const ORACLE: &str = "sqlplus expdp impdp exp imp rman sqlldr";

impl Command {
    /// The command that a word names, with or without a path.
    pub(crate) fn of(word: &str) -> Option<&'static Self> {
        let name = word.cut_last("/").map_or(word, |(_, name)| name);
        // A line of a diff, or behind the mark of a file's encoding.
        let name = name.trim_start_matches(|c| c == '+' || is_format(c));
        // Most words are none, as their first and last letters show.
        let may_be = word.len() <= 64 && filter::TRIGGERS.has(name);
        let find = || COMMANDS.iter().find(|c| is_one_of(name, c.names));
        may_be.then(find)?
    }

    /// Returns whether the word after `flag` holds a password.
    pub(crate) fn announces(&self, flag: &str) -> bool {
        !flag.is_empty() && self.flags.split_of(" ").any(|known| known == flag)
    }

    /// Returns whether a word is a flag with the password in it.
    pub(crate) fn is_password(&self, word: &str) -> bool {
        let tail = word.strip_prefix(self.glued).unwrap_or_default();
        !self.glued.is_empty() && !tail.is_empty()
    }

    /// Returns whether what follows `flag` holds a password.
    fn takes(&self, flag: &str, value: &str) -> bool {
        // `docker run -p 80:80`
        let ports = flag.eq_ignore_ascii_case("-p")
            && value.has_of(":")
            && value.split_of(":.-").all(is_digits);
        let marked = self.marks.is_empty() || value.has_of(self.marks);
        marked && !ports && !value.starts_with('-') && !is_placeholder(value)
    }
}

pub(super) fn find(run: &Run<'_>) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    if let Some(secret) = positional(run) {
        return Some(secret);
    }
    if let Some(command) = Command::of(word) {
        run.scan.command.set(Some((command, run.end)));
        return None;
    }
    if word == "--from-literal" && run.line_before(LINE).holds(" secret ") {
        // `kubectl create secret generic db --from-literal=name=x`
        let sign = run.ahead(128).strip_prefix(['=', ' '])?.find_of("=")?;
        return Some(value::extent(text, run.end + sign + 2));
    }
    if !word.starts_with('-') && !run.command().is_some_and(|it| it.announces(word)) {
        return run.is_named().then(|| after_name(run))?;
    }
    let password = run.command().and_then(|command| flag(run, command));
    password.or_else(|| run.is_named().then(|| pair::flag(run))?)
}

/// The password in the run or behind it, if the run is a flag of this command. Empty if it has
/// none.
fn flag(run: &Run<'_>, command: &Command) -> Option<Range<usize>> {
    let (text, word) = (run.text, run.word());
    if word == "-p" && command.glued == word && run.after().starts_of("\"'") {
        return Some(value::extent(text, run.end));
    }
    if command.is_password(word) {
        let start = run.at + command.glued.len();
        return Some(start..value::bare_end(text, start));
    }
    let start = skip(text, run.end, |c| " \t=,\"'\\".contains(c));
    // `curl -su ada:x`
    let last = word.len() - word.chars().next_back().map_or(0, char::len_utf8);
    let bundled = command.marks == ":="
        && last > 1
        && is_letters(&word[1..last])
        && command.announces(&format!("-{}", &word[last..]));
    if !command.announces(word) && !bundled || start == run.end {
        return None;
    }
    let open = start - Quote::before(text, start).map_or(0, |quote| quote.len());
    let takes = |value: &str| command.takes(word, value);
    value::secret(text, open, takes).or(Some(start..start))
}

/// A secret that is recognised by its position alone.
fn positional(run: &Run<'_>) -> Option<Range<usize>> {
    let name = after_last(run.word(), |c| c == '/');
    if !is_one_of(name, "echo printf net htpasswd") {
        return None;
    }
    let line = until(run.ahead(512), "\n");
    if line.len() >= 508 || !line.starts_of(" \t") {
        return None;
    }
    let secret = match name.to_ascii_lowercase().as_str() {
        "net" => net_password(one_command(line)),
        "htpasswd" => last_argument(one_command(line)),
        name => piped(name, line),
    }?;
    (!secret.is_empty()).then(|| run.end + secret.start..run.end + secret.end)
}

/// The argument that begins with a word of [`words`], without its quotes.
pub(super) fn argument(line: &str, (start, word): (usize, &str)) -> Range<usize> {
    let value = value::extent(line, start);
    if Quote::at(line, start).is_some() {
        return value;
    }
    // It ends at a blank, or at the quote around the line.
    let mut quotes = word.match_indices(['"', '\'', '`']);
    let close = quotes.find(|(at, _)| ends_value(&word[at + 1..]));
    let word = &word[..close.map_or(word.len(), |(at, _)| at)];
    start..value.end.max(start + word.trim_end_of("\\").len())
}

/// The words of a line, and where each begins. A quoted text is one.
pub(super) fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = skip_blanks(line, at);
        let quoted = Quote::string_end(line, start).unwrap_or(start);
        at = skip(line, quoted, |c| !c.is_whitespace());
        (at > start).then(|| (start, &line[start..at]))
    })
}

/// `echo x | docker login --password-stdin`, `echo ada:x | chpasswd`
fn piped(name: &str, line: &str) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const READERS: &[&str] = &[
        "--password-stdin", "--with-token", "sudo -S", "--passphrase-fd 0", "-passin stdin", "--stdin",
    ];
    let (said, read) = line.cut("|")?;
    let said = said.trim_end();
    // `echo -n x`, `printf '%s' x`
    let flag = |word: &str| word.starts_with('-') && word.bytes().all(|b| b"-neE".contains(&b));
    let words: Vec<_> = words(said).skip_while(|(_, word)| flag(word)).collect();
    let mut first = *words.first()?;
    if name == "printf" && first.1.has_of("%") {
        let alone = (shape::of(first.1) != Shape::Format).then_some(&first);
        first = *words.get(1).or(alone)?;
    }
    let shown = said[first.0..].trim_of("\"'");
    let looks = || is_mixed(shown) || is_random(shown) || said.trim_start().starts_with("-n");
    let flags = READERS.iter().any(|reader| read.holds(reader));
    let reads = flags || read.split_of("|").any(is_reader);
    let secret = argument(said, first);
    (!is_placeholder(&said[secret.clone()]) && (reads || read.holds(" login") && looks()))
        .then_some(secret)
}

/// Returns whether a command reads a password, or runs another command that does.
fn is_reader(command: &str) -> bool {
    let apart = |c: char| c.is_whitespace() || "\"'`;)".contains(c);
    let mut words = command.trim_start().split(apart);
    let reads = |word| ends_with_one_of(word, "chpasswd cryptsetup kinit smbpasswd");
    let first = words.next().unwrap_or_default();
    reads(first) || is_one_of(first, "sudo doas ssh docker podman kubectl") && words.any(reads)
}

/// `net use Z: \\\\host\\share /user:ada x`, with the password behind the share or before it.
fn net_password(line: &str) -> Option<Range<usize>> {
    let words: Vec<_> = words(line).collect();
    let ((_, first), rest) = words.split_first()?;
    if first.eq_ignore_ascii_case("user") {
        // `net user ada x /add`
        let mut names = rest.iter().filter(|(_, word)| !word.starts_with('/'));
        let password = names.nth(1).filter(|(_, word)| *word != "*")?;
        let added = line.to_ascii_lowercase().holds(" /add");
        return (added || has_secret(password.1)).then(|| argument(line, *password));
    }
    let share = rest.iter().position(|(_, word)| word.holds("\\\\"))?;
    let is_device = |word: &str| word == "*" || word.len() <= 5 && word.ends_with(':');
    let mut words = rest[share + 1..].iter().chain(&rest[..share]);
    let password = words.find(|(_, word)| !word.starts_with('/') && !is_device(word))?;
    let secret = argument(line, *password);
    first.eq_ignore_ascii_case("use").then_some(secret)
}

/// `htpasswd -b file ada x`
fn last_argument(line: &str) -> Option<Range<usize>> {
    let batch = |w: &str| w.starts_with('-') && !w.starts_with("--") && w.has_of("b");
    let words: Vec<_> = words(line).collect();
    let last = *words.last()?;
    let batch = words.iter().any(|(_, word)| batch(word));
    (batch && !last.1.starts_with('-') && words.len() > 2).then(|| argument(line, last))
}

/// The line up to the next command.
fn one_command(line: &str) -> &str {
    until(line, "|;&>").trim_end()
}

/// `aws configure set aws_secret_access_key x`, `-passin pass:x`: a setting's name, then its value.
fn after_name(run: &Run<'_>) -> Option<Range<usize>> {
    #[rustfmt::skip]
    const SETTERS: &[&str] = &["configure set ", "config set ", "setx ", "setenv ", "set -x ", "set -gx ", "set -Ux ", "ENV "];
    let (text, word) = (run.text, run.word());
    let start = run.end + 1;
    if word == "pass" && run.after().starts_with(':') && run.is_argument_of("openssl") {
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
    if !word.has_of("_") && !word.ends_with("pass") {
        return None;
    }
    let end = value::bare_end(text, start);
    let value = &text[start..end];
    let secret = is_random(value) && has_secret(value);
    (secret && !is_uuid(value) && !is_key_id(value)).then_some(start..end)
}

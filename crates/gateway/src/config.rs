//! The file of `--config`, and what applies of it, the command line and the environment.

use std::{
    collections::{BTreeMap, HashSet},
    env, fs,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use toml::{Table, Value};
use tower_toolcall::{call::Secret, settings::Settings};

use super::{
    auth::{Auth, AuthFile},
    current::Plan,
    options::{Given, Options},
    pin::PinsFile,
    upstream::{Server, words},
};

/// A text that the file has, or that it names. It may be a secret, so nothing shows it.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "valid are a text, { env = \"VARIABLE\" } and { file = \"PATH\" }"
)]
pub(crate) enum Text {
    Plain(String),
    Env { env: String },
    File { file: PathBuf },
}

impl Text {
    pub(crate) fn read(&self) -> anyhow::Result<Secret> {
        Ok(match self {
            Self::Plain(text) => Secret::from(&**text),
            Self::Env { env: name } => {
                let value = env::var(name).ok().filter(|value| !value.is_empty());
                value
                    .with_context(|| format!("the variable {name} is not set"))?
                    .into()
            }
            Self::File { file } => {
                let text = fs::read_to_string(file);
                let text = text.with_context(|| format!("the file {}", file.display()))?;
                Secret::from(text.trim_end())
            }
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<SocketAddr>,
    hosts: Vec<String>,
    origins: Vec<String>,
    sessions: Option<usize>,
    calls: Option<u32>,
    /// Times in seconds.
    grace: Option<u64>,
    head_timeout: Option<u64>,
    body_timeout: Option<u64>,
    servers: BTreeMap<String, ServerFile>,
    auth: Option<AuthFile>,
    pins: Option<PinsFile>,
    settings: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerFile {
    command: Option<Command>,
    #[serde(default)]
    environment: BTreeMap<String, Text>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    trust: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "valid are a text and a list of texts")]
enum Command {
    Line(String),
    Words(Vec<String>),
}

/// Returns what holds.
pub(crate) fn load(given: &Given) -> anyhow::Result<(Options, Plan)> {
    let file: File = match &given.config {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(anyhow::Error::from);
            let file =
                text.and_then(|text| toml::from_str(&text).map_err(|error| shown(&error, &text)));
            file.with_context(|| path.display().to_string())?
        }
        None => File::default(),
    };
    let variables = file.variables();
    let mut servers = given.servers.clone();
    for (name, server) in file.servers {
        let field = format!("servers.{name}");
        servers.push(server_of(&name, server).context(field)?);
    }
    let mut seen = HashSet::new();
    let mut names = servers.iter().map(|server| &server.name);
    if let Some(name) = names.find(|name| !seen.insert(*name)) {
        bail!("two servers have the name '{name}'");
    }
    let default = Options::default();
    let seconds = |given: Option<u64>| given.map(Duration::from_secs);
    let mut options = Options {
        listen: file.listen.unwrap_or(default.listen),
        hosts: [file.hosts, given.hosts.clone()].concat(),
        origins: file.origins,
        sessions: given.sessions.or(file.sessions).unwrap_or(default.sessions),
        calls: given.calls.or(file.calls).unwrap_or(default.calls),
        grace: given.grace.or(file.grace).unwrap_or(default.grace),
        head: seconds(file.head_timeout).unwrap_or(default.head),
        body: seconds(file.body_timeout).unwrap_or(default.body),
    };
    if let Some(port) = given.port {
        options.listen.set_port(port);
    }
    check(&options)?;
    let settings = settings(file.settings).context("settings")?;
    let has_local_tool = servers.is_empty();
    if has_local_tool {
        servers = Server::installed()?;
    }
    let auth = file.auth.map(Auth::new).transpose()?;
    let plan = Plan {
        settings,
        servers,
        has_local_tool,
        auth: auth.map(Arc::new),
        pins: file.pins,
        variables,
    };
    Ok((options, plan))
}

/// Refuses values with which nothing could work.
fn check(options: &Options) -> anyhow::Result<()> {
    for (field, is_zero) in [
        ("sessions", options.sessions == 0),
        ("calls", options.calls == 0),
        ("head_timeout", options.head.is_zero()),
        ("body_timeout", options.body.is_zero()),
    ] {
        ensure!(!is_zero, "{field} is 0: valid are 1 and more");
    }
    for host in &options.hosts {
        let has_port = host.rsplit_once(':').is_some_and(|_| !host.ends_with(']'));
        ensure!(
            !has_port,
            "hosts: '{host}' has a port: valid are names and addresses"
        );
    }
    for origin in &options.origins {
        let host = origin.split_once("://").map(|(_, host)| host);
        let is_valid = host.is_some_and(|host| !host.is_empty() && !host.contains('/'));
        ensure!(
            is_valid,
            "origins: '{origin}' is not one: valid is https://app.example.com"
        );
    }
    Ok(())
}

impl File {
    /// Returns the variables that it names. They are secrets of the gateway and of single servers.
    fn variables(&self) -> Vec<String> {
        let servers = self.servers.values();
        let servers = servers.flat_map(|it| it.environment.values().chain(it.headers.values()));
        let tokens = self.auth.iter().flat_map(|auth| auth.tokens.values());
        let named = servers.chain(tokens).filter_map(|text| match text {
            Text::Env { env } => Some(env.clone()),
            _ => None,
        });
        named.collect()
    }
}

/// Returns an error without the line of the file, and without a text that was found: they may be
/// secrets.
fn shown(error: &toml::de::Error, file: &str) -> anyhow::Error {
    let message = error.message();
    let message = match (message.find(": string \""), message.rfind(", expected ")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}: a text{}", &message[..from], &message[to..])
        }
        _ => message.to_owned(),
    };
    match error.span().and_then(|span| file.get(..span.start)) {
        Some(before) => anyhow::anyhow!("line {}: {message}", before.matches('\n').count() + 1),
        None => anyhow::anyhow!("{message}"),
    }
}

/// The settings of the layers: those of the environment over those of the file, over the preset.
fn settings(mut table: Table) -> anyhow::Result<Settings> {
    let preset = table.entry("preset");
    preset.or_insert_with(|| Value::String("gateway".to_owned()));
    let settings: Settings = table.try_into().map_err(|error| shown(&error, ""))?;
    let settings = settings.with_env()?;
    let _ = settings.stack().build()?;
    Ok(settings)
}

fn server_of(name: &str, file: ServerFile) -> anyhow::Result<Server> {
    Server::check_name(name).map_err(anyhow::Error::msg)?;
    let read = |field: &str, texts: &BTreeMap<String, Text>| {
        let texts = texts.iter();
        let texts = texts.map(|(key, text)| {
            let text = text.read().with_context(|| format!("{field}.{key}"))?;
            anyhow::Ok((key.clone(), text))
        });
        texts.collect::<anyhow::Result<Vec<_>>>()
    };
    let words = match file.command {
        Some(Command::Line(line)) => words(&line).map_err(anyhow::Error::msg)?,
        Some(Command::Words(list)) => {
            let is_named = list.first().is_some_and(|program| !program.is_empty());
            ensure!(is_named, "`command` names no program");
            list.into_iter().map(Into::into).collect()
        }
        None => Vec::new(),
    };
    match (&words[..], &file.url) {
        ([], None) => bail!("it has neither `command` nor `url`"),
        ([_, ..], Some(_)) => bail!("it has both `command` and `url`: valid is one of them"),
        ([], Some(_)) => ensure!(file.environment.is_empty(), "`environment` needs `command`"),
        ([_, ..], None) => ensure!(file.headers.is_empty(), "`headers` needs `url`"),
    }
    if let Some(url) = &file.url {
        let is_plain = url.starts_with("http://");
        ensure!(
            is_plain,
            "url: valid are addresses with http://; a proxy of yours speaks TLS"
        );
    }
    let server = Server {
        name: name.into(),
        // This program starts it, so its annotations are believed, replay safety included.
        is_trusted: file.trust.unwrap_or(file.url.is_none()),
        words,
        environment: read("environment", &file.environment)?,
        url: file.url.as_deref().map(Into::into),
        headers: read("headers", &file.headers)?,
    };
    server.headers()?;
    Ok(server)
}

/// Says what would run, without secrets.
pub(crate) fn explained(options: &Options, plan: &Plan) -> String {
    let mut text = format!("listens at {}\n", options.listen);
    text += &format!("hosts: {}\n", options.hosts().join(", "));
    text += &format!("origins: {}\n", options.origins.join(", "));
    let Options {
        sessions,
        calls,
        grace,
        head,
        body,
        ..
    } = options;
    text += &format!("sessions: {sessions}, calls: {calls}, grace: {grace}s, ");
    text += &format!("head_timeout: {head:?}, body_timeout: {body:?}\n");
    for server in &plan.servers {
        text += &format!("server {}: {}\n", server.name, server.shown());
    }
    match &plan.auth {
        Some(auth) => {
            for caller in auth.shown() {
                text += &format!("takes {caller}\n");
            }
        }
        None => text += "takes requests without a token\n",
    }
    text + &plan.settings.explain()
}

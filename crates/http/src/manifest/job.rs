//! Jobs of tools, and how they are polled.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    ToolManifest,
    file::{Mode, PollConfig, Profile},
    header_name, with_path,
};
use crate::{HttpJob, HttpTool, job::word, refuse_if};
use tower_toolcall::{
    ConfigError,
    backoff::{Backoff, MAX_DELAY},
    poll::PollLayer,
};

/// The defaults for the schedule of a manifest.
pub(crate) struct Schedule {
    pub(crate) interval: Duration,
    pub(crate) factor: f64,
    /// The longest interval, unless the first one is longer.
    pub(crate) cap: Duration,
    pub(crate) polls: u32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            factor: 1.5,
            cap: Duration::from_secs(30),
            polls: 60,
        }
    }
}

impl Profile {
    /// Returns the settings of the tool's jobs, if it has jobs.
    fn jobs(&self) -> Result<Option<&PollConfig>, ConfigError> {
        let refuse = |field, reason| Err(ConfigError::new(field, reason));
        match (&self.poll_config, self.mode()) {
            (None, Mode::Sync) => Ok(None),
            (Some(_), Mode::Sync) => refuse("poll_config", "is there, and the mode is `sync_http`"),
            (None, Mode::Poll) => refuse("poll_config", "is missing"),
            (Some(_), Mode::Poll) if self.result_field_path.is_some() => refuse(
                "result_field_path",
                "belongs into `poll_config`, where the mode is `async_poll`",
            ),
            (Some(config), Mode::Poll) => Ok(Some(config)),
        }
    }
}

impl PollConfig {
    /// Returns the statuses by which a job goes on.
    fn pending(&self) -> Result<Vec<StatusCode>, ConfigError> {
        let refuse = |reason| ConfigError::new("pending_statuses", reason);
        let pending = self.pending_statuses.iter().flatten().map(|n| {
            let status = StatusCode::from_u16(*n).ok().filter(StatusCode::is_success);
            match status.ok_or_else(|| refuse(format!("{n} is not a 2xx")))? {
                StatusCode::OK => Err(refuse(
                    "200 is the status of a result: a job has another one, for example 202"
                        .to_owned(),
                )),
                status => Ok(status),
            }
        });
        pending.collect()
    }

    /// Returns the URL that is asked for a job's state, and whether it is the tool's own, or one of
    /// its host.
    fn asked_url<'a>(
        &'a self,
        profile: &'a Profile,
        has_pending: bool,
    ) -> Result<(&'a str, bool), ConfigError> {
        match (&self.status_url_template, &self.status_url_header) {
            (Some(url), None) => Ok((url, false)),
            (None, Some(_)) => Ok((&profile.url_template, true)),
            // By its URL alone, another request would ask for the job of another call.
            (None, None) if has_pending && profile.method().eq_ignore_ascii_case("GET") => {
                Ok((&profile.url_template, true))
            }
            (None, None) => Err(ConfigError::new("status_url_template", "is missing")),
            (Some(_), Some(_)) => {
                let reason = "is there, and `status_url_template` too";
                Err(ConfigError::new("status_url_header", reason))
            }
        }
    }

    fn layer(
        &self,
        all: &Schedule,
        layer: impl FnOnce() -> Result<PollLayer<HttpJob>, ConfigError>,
    ) -> Result<PollLayer<HttpJob>, ConfigError> {
        let seconds = |field: &'static str, n: Option<f64>, default: Duration| match n {
            None => Ok(default),
            Some(n) if n > MAX_DELAY.as_secs_f64() => Err(ConfigError::new(
                field,
                format!("{n} s is longer than a year"),
            )),
            Some(n) => Duration::try_from_secs_f64(n)
                .map_err(|_| ConfigError::new(field, format!("{n} is not a time in seconds"))),
        };
        let base = seconds("interval_seconds", self.interval_seconds, all.interval)?;
        let longest = self.max_interval_seconds;
        let cap = seconds("max_interval_seconds", longest, all.cap.max(base))?;
        refuse_if(
            cap < base,
            "max_interval_seconds",
            "is shorter than the interval",
        )?;
        let factor = self.backoff_multiplier.unwrap_or(all.factor);
        let interval = Backoff::exponential(base, factor).map_err(|e| match e.field() {
            "base" => e.with_field("interval_seconds"),
            _ => e.with_field("backoff_multiplier"),
        })?;
        let layer = layer()?.with_interval(interval.with_cap(cap));
        let layer = layer.map_err(|e| e.with_field("interval_seconds"))?;
        let layer = layer.with_polls(self.max_attempts.unwrap_or(all.polls));
        layer.map_err(|e| e.with_field("max_attempts"))
    }
}

/// States, as texts.
fn states(
    field: &'static str,
    states: Option<&[Value]>,
    default: &str,
) -> Result<Vec<String>, ConfigError> {
    let Some(states) = states else {
        return Ok(vec![default.to_owned()]);
    };
    let words = states.iter().map(|state| {
        let is_no_state = || ConfigError::new(field, format!("{state} is not a state"));
        word(state).ok_or_else(is_no_state)
    });
    words.collect()
}

impl ToolManifest {
    /// Returns the jobs of the tool: `None` unless its mode is `async_poll`.
    ///
    /// # Errors
    ///
    /// `poll_config`, if it is missing, or the part of it that cannot work.
    pub fn job(&self) -> Result<Option<HttpJob>, ConfigError> {
        self.to_job().map_err(|error| self.naming(error))
    }

    fn to_job(&self) -> Result<Option<HttpJob>, ConfigError> {
        let profile = &self.file.execution_profile;
        let Some(config) = profile.jobs()? else {
            return Ok(None);
        };
        let pending = config.pending()?;
        let (url, is_own) = config.asked_url(profile, !pending.is_empty())?;
        let status = self.request(Method::GET, url, false);
        let status = status.map_err(|e| e.with_field("status_url_template"))?;
        let names = self.fields_of_job(&status, config, is_own)?;
        let [completed, failed] = [
            ("completed_values", &config.completed_values, "completed"),
            ("failed_values", &config.failed_values, "failed"),
        ]
        .map(|(field, values, default)| states(field, values.as_deref(), default));
        let state = config.status_field_path.as_deref();
        let job = match state {
            None if !pending.is_empty() => HttpJob::by_status(status),
            state => HttpJob::new(status, state.unwrap_or("$.status"), completed?, failed?),
        };
        let mut job = job.map_err(|e| match e.field() {
            "state" => e.with_field("status_field_path"),
            _ => e.with_field("completed_values"),
        })?;
        job = job.with_pending(pending);
        if let Some(name) = &config.status_url_header {
            job = job.with_location(header_name("status_url_header", name)?);
        }
        for name in &names {
            job = job.with_value(name, &format!("$[{}]", Value::from(name.as_str())))?;
        }
        for (name, path) in config.job_values.iter().flatten() {
            let set = job.with_value(name, path);
            job = set.map_err(|e| e.with_field("job_values"))?;
        }
        let [result, error] = [&config.result_field_path, &config.error_field_path];
        job = with_path(job, result, "result_field_path", HttpJob::with_result)?;
        job = with_path(job, error, "error_field_path", HttpJob::with_error)?;
        Ok(Some(job))
    }

    /// Returns the variables of the URL that are fields of the answer that has started a job, and
    /// have no path of their own.
    fn fields_of_job(
        &self,
        status: &HttpTool,
        config: &PollConfig,
        is_own: bool,
    ) -> Result<BTreeSet<String>, ConfigError> {
        // Never those of headers: a caller could name another's job.
        let mut names = status.templates.names("url");
        let none = BTreeMap::new();
        let named = config.job_values.as_ref().unwrap_or(&none);
        // A value that the template does not use cannot distinguish jobs.
        if let Some(unused) = named.keys().find(|name| !names.contains(*name)) {
            let reason = format!("`{unused}` is not in the `status_url_template`");
            return Err(ConfigError::new("job_values", reason));
        }
        let schema = self.file.input_schema.as_ref();
        match schema.and_then(|schema| schema.get("properties")) {
            Some(all) => names.retain(|name| all.get(name).is_none()),
            None => {
                let arguments = self.to_tool()?.templates.names("url");
                names.retain(|name| !arguments.contains(name));
            }
        }
        // A value that names a job is a text, a number or a boolean.
        let variables = status.templates.variables("url");
        let is_part = |name: &&String| {
            let path = name.split_once('.');
            path.is_some_and(|(top, _)| names.contains(top) || named.contains_key(top))
        };
        if let Some(part) = variables.iter().find(is_part) {
            let reason = format!(
                "`{part}` is within a value of the job: use a name without a dot, and give its path in `job_values`"
            );
            return Err(ConfigError::new("status_url_template", reason));
        }
        names.retain(|name| !named.contains_key(name));
        let is_same_for_all = names.is_empty() && named.is_empty() && !is_own;
        refuse_if(
            is_same_for_all,
            "status_url_template",
            "names no value of the job",
        )?;
        Ok(names)
    }

    /// Returns the layer that waits for its jobs: `None` unless its mode is `async_poll`. For
    /// `ServiceBuilder::option_layer`, above the layers for single requests.
    ///
    /// # Errors
    ///
    /// `poll_config`, or the part of it that cannot work.
    pub fn poll_layer(&self) -> Result<Option<PollLayer<HttpJob>>, ConfigError> {
        self.poll_layer_over(&Schedule::default(), |job| Ok(PollLayer::new(job)))
    }

    /// Returns the poll layer of the manifest over other defaults: the schedule `all`, and the
    /// settings of `layer`.
    pub(crate) fn poll_layer_over(
        &self,
        all: &Schedule,
        layer: impl FnOnce(HttpJob) -> Result<PollLayer<HttpJob>, ConfigError>,
    ) -> Result<Option<PollLayer<HttpJob>>, ConfigError> {
        let (Some(job), Some(config)) = (self.job()?, &self.file.execution_profile.poll_config)
        else {
            return Ok(None);
        };
        let layer = config.layer(all, || layer(job));
        layer.map(Some).map_err(|error| self.naming(error))
    }
}

//! `[http]` and `[poll]` of settings.

use tower_toolcall::{ConfigError, poll::PollLayer, settings::Settings};

use crate::{HttpJob, HttpTool, ToolManifest, manifest::job::Schedule};

impl HttpTool {
    /// Applies `[http]` to the tool: `max_bytes`, if it was set by a file, a variable or in code,
    /// in place of the tool's own limit; and its two switches, where they are on. All else is as
    /// the tool has it.
    ///
    /// For a folder of tools: `manifest.tool()?.with_settings(&settings)?`.
    ///
    /// # Errors
    ///
    /// `http.max_bytes`: 0.
    pub fn with_settings(self, settings: &Settings) -> Result<Self, ConfigError> {
        let (http, mut tool) = (&settings.http, self);
        if settings.is_set("http.max_bytes") {
            let set = tool.with_max_bytes(http.max_bytes);
            tool = set.map_err(|error| settings.name_error("http", error))?;
        }
        if http.empty_undefined {
            tool = tool.with_empty_undefined();
        }
        if http.bare_idempotency_key {
            tool = tool.with_bare_idempotency_key();
        }
        Ok(tool)
    }
}

impl ToolManifest {
    /// Returns the layer that waits for the jobs of the tool, as
    /// [`Settings::poll_layer`] makes it: the numbers of the manifest take precedence over those of
    /// `[poll]`. `None` unless its mode is `async_poll`.
    ///
    /// # Errors
    ///
    /// If a setting, or a part of its `poll_config`, cannot work.
    pub fn poll_layer_with(
        &self,
        settings: &Settings,
    ) -> Result<Option<PollLayer<HttpJob>>, ConfigError> {
        let poll = settings.in_force().poll;
        let all = Schedule {
            interval: poll.interval,
            factor: poll.factor,
            cap: poll.cap,
            polls: poll.polls,
        };
        self.poll_layer_over(&all, |job| settings.poll_layer(job))
    }
}

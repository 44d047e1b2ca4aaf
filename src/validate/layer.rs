use std::sync::Arc;

use serde_json::Value;
use tower_layer::Layer;

use super::{errors::ValidationErrors, schema::Schema, schemas::Schemas, service::Validate};
use crate::{
    call::{CallInfo, Record, ToolCall},
    config::ConfigError,
    error::{ErrorKind, ToolError},
    event::{InertReason, Listener, emit},
    kit::{
        inert::Inert,
        per_tool::{PerTool, ToolNames},
    },
    text::Bounded,
};

/// How much of the list of paths to repaired arguments is in the event, in bytes.
const MAX_PATHS: usize = 512;

/// The setting that turns the check of arguments on or off.
///
/// As an [extension](ToolCall::extensions) of a call it holds for that call, and takes precedence
/// over the layer's setting for the tool, which takes precedence over the layer's setting for all
/// tools. Only code can set an extension: a remote caller cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Validation {
    /// Check them, and refuse arguments that do not fit. The default.
    #[default]
    On,
    /// Do not check them.
    Off,
    /// Check them, and [repair](Schema::repaired) arguments that do not fit if possible, else
    /// refuse.
    Repair,
}

/// Layer that checks the arguments of calls. See the [module docs](super) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct ValidateLayer {
    pub(super) settings: Arc<Settings>,
}

/// Shared by all services of one layer value.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    schemas: Schemas,
    all: Validation,
    tools: PerTool<Validation>,
    strict: bool,
    heading: Option<Arc<str>>,
    inert: Arc<Inert>,
}

impl ValidateLayer {
    /// Makes a layer with these schemas, also those that come later. Calls of tools that have none
    /// pass; the first is the event `tool.inert`.
    pub fn new(schemas: &Schemas) -> Self {
        Self {
            settings: Arc::new(Settings {
                schemas: schemas.clone(),
                all: Validation::On,
                tools: PerTool::new("validate"),
                strict: false,
                heading: None,
                inert: Arc::new(Inert::new("validate")),
            }),
        }
    }

    /// Sets whether arguments are checked, of tools of which nothing else is said. Default:
    /// [`Validation::On`].
    pub fn with_validation(self, validation: Validation) -> Self {
        self.edit(|s| s.all = validation)
    }

    /// Repairs arguments that do not fit, if that makes them fit:
    /// `with_validation(Validation::Repair)`.
    pub fn repair(self) -> Self {
        self.with_validation(Validation::Repair)
    }

    /// Sets whether the arguments of one tool are checked.
    ///
    /// Both names of a [resolved](crate::identity) call are known: its flat name (`pay__charge`),
    /// which goes first, and the tool's own (`charge`), which holds for the tools of this name of
    /// all servers.
    pub fn with_tool(self, name: impl Into<Box<str>>, validation: Validation) -> Self {
        self.edit(|s| s.tools.set(name.into(), validation))
    }

    /// Refuses calls of a tool with a [refused](Schemas::refused) schema, with
    /// [`Internal`](ErrorKind::Internal), and arguments that are too large to be [checked in
    /// full](Schema::covers), with [`InvalidInput`](ErrorKind::InvalidInput). Default: they pass,
    /// because the server will check them.
    pub fn strict(self) -> Self {
        self.edit(|s| s.strict = true)
    }

    /// Sets how the message for developers begins, where another system's is expected: `Argument
    /// validation failed`. Default: it begins with the name of the argument.
    pub fn with_heading(self, heading: &str) -> Self {
        self.edit(|s| s.heading = Some(heading.into()))
    }

    /// Returns the names of tools that have settings of their own, and whether calls have matched
    /// them.
    pub fn tool_names(&self) -> ToolNames {
        self.settings.tools.names()
    }

    /// Returns how many calls passed unchecked because their tool has no schema, or a schema that
    /// was [refused](Schemas::refused). The first one is the event `tool.inert`.
    pub fn inert(&self) -> u64 {
        self.settings.inert.calls()
    }

    fn edit(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Validate::new(inner, self.clone())
    }
}

impl Settings {
    /// Returns whether the call may be sent, with its arguments repaired if they need it.
    #[inline]
    pub(super) fn admit(&self, call: &mut ToolCall, info: &CallInfo) -> Result<(), ToolError> {
        let validation = self.validation(call);
        if validation == Validation::Off {
            return Ok(());
        }
        let admitted = self.schemas.of(info, |schema| {
            let schema = match schema {
                Ok(schema) => schema,
                Err(error) => return self.unchecked(info, error),
            };
            match !call.is_too_deep() && schema.is_valid(call.arguments_value()) {
                true => self.covered(info, schema, call.arguments_value()),
                false => self.refuse(call, info, schema, validation),
            }?;
            schema.hide_secrets(call);
            Ok(())
        });
        admitted.unwrap_or_else(|| {
            self.pass(info);
            Ok(())
        })
    }

    #[cold]
    fn pass(&self, info: &CallInfo) {
        let help = "set its schema in `Schemas`, or turn this check off";
        let listener = Listener::default();
        self.inert
            .pass(&listener, info, InertReason::NoSchema, help);
    }

    #[inline]
    fn validation(&self, call: &ToolCall) -> Validation {
        let own = call.extensions().get::<Validation>();
        let of_tool = || match self.tools.is_empty() {
            true => None,
            false => self.tools.get(call),
        };
        *own.or_else(of_tool).unwrap_or(&self.all)
    }

    /// Handles a call of a tool with a refused schema.
    #[cold]
    fn unchecked(&self, info: &CallInfo, error: &ConfigError) -> Result<(), ToolError> {
        if !self.strict {
            self.pass(info);
            return Ok(());
        }
        info.record(Record::set_known);
        let message = format!("the arguments cannot be checked: {error}");
        Err(ToolError::refusal(ErrorKind::Internal, message))
    }

    /// Handles a call with arguments that fit, as far as they were checked.
    #[inline]
    fn covered(
        &self,
        info: &CallInfo,
        schema: &Schema,
        arguments: &Value,
    ) -> Result<(), ToolError> {
        match self.strict && !schema.covers(arguments) {
            true => Err(self.refusal(info, &ValidationErrors::too_large())),
            false => Ok(()),
        }
    }

    /// Handles a call with arguments that do not fit.
    #[cold]
    fn refuse(
        &self,
        call: &mut ToolCall,
        info: &CallInfo,
        schema: &Schema,
        validation: Validation,
    ) -> Result<(), ToolError> {
        info.record(Record::set_known);
        // What is nested too deeply is not looked at.
        call.check().map_err(ToolError::into_own_refusal)?;
        let arguments = call.arguments_value();
        if validation == Validation::Repair
            && let Some((Value::Object(repaired), paths)) = schema.repaired(arguments)
        {
            let repaired = call.copy().with_arguments(repaired);
            if repaired.check().is_ok() {
                self.covered(info, schema, repaired.arguments_value())?;
                emit!(DEBUG REPAIRED, info, PATHS = Bounded::print(MAX_PATHS, &paths.join(", ")).as_str());
                *call = repaired;
                return Ok(());
            }
        }
        Err(self.refusal(info, &schema.errors(arguments)))
    }

    fn refusal(&self, call: &CallInfo, errors: &ValidationErrors) -> ToolError {
        call.record(Record::set_known);
        errors.refusal(self.heading.as_deref())
    }
}

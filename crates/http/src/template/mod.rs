//! Templates of the parts of a request. Pure: no clock, no network, no global state.
//!
//! The engine never sees where in a request it writes. So the values are kept out of its text,
//! behind [marks], and put in by [place], which knows that a value stands in a segment of a path,
//! in a JSON string, or outside of one.

mod json;
mod marks;
mod names;
mod place;
mod scope;

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, error::Error as StdError, fmt, sync::atomic::Ordering::Relaxed};

use http::{HeaderValue, Uri};
use minijinja::{AutoEscape, Environment, ErrorKind as Cause, Template, UndefinedBehavior, Value};

pub(super) use self::{
    marks::MAX_BYTES,
    place::encoded,
    scope::{IDEMPOTENCY_KEY, Scope, TOKEN, is_ours},
};
use self::{
    marks::{MARK, Marked, Slots},
    names::Prints,
    place::is_token,
    scope::Anything,
};
use tower_toolcall::{ConfigError, ErrorKind, ToolError};

/// The longest template, in bytes.
const MAX_TEMPLATE: usize = 64 << 10;

/// How many steps a rendering may take: about one for each instruction, each item and each 64 bytes
/// of data.
const MAX_STEPS: u64 = 20_000;

/// How deep blocks and calls may nest.
const MAX_DEPTH: usize = 50;

/// Why a template gives no part of a request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A variable is not defined.
    Undefined,
    /// A value cannot stand at its place; which one, where that is known.
    Value(Option<usize>, &'static str),
    /// The values, or the steps, are too many.
    TooMuch,
    /// The template itself.
    Template(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value at a place where it cannot be")
    }
}

impl StdError for Fault {}

/// For the engine's callbacks; [`Fault::of`] takes it out again.
impl From<Fault> for minijinja::Error {
    fn from(fault: Fault) -> Self {
        Self::new(Cause::InvalidOperation, "").with_source(fault)
    }
}

impl Fault {
    /// Converts an error of the engine. Its texts are not used, because they may quote values.
    fn of(error: &minijinja::Error) -> Self {
        let ours = error.source().and_then(|source| source.downcast_ref());
        match (ours, error.kind()) {
            (Some(&fault), _) => fault,
            (None, Cause::UndefinedError) => Self::Undefined,
            (None, Cause::OutOfFuel) => Self::TooMuch,
            (None, Cause::UnknownFilter | Cause::UnknownFunction | Cause::UnknownTest) => {
                Self::Template("uses an unknown filter, test or function")
            }
            (None, Cause::UnknownMethod) => Self::Template("calls a method: values have none"),
            (None, Cause::InvalidOperation) if is_no_function(error) => Self::Template(NO_FUNCTION),
            (None, Cause::MissingArgument | Cause::TooManyArguments) => {
                Self::Template("gives a filter, test or function too few arguments, or too many")
            }
            // What a filter or an operator does not take, as a rule.
            (None, _) => Self::Value(None, "does not fit the template"),
        }
    }
}

/// Returns whether a value is called that is not a function: the engine has no kind for it.
fn is_no_function(error: &minijinja::Error) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.ends_with("is not callable")
}

/// The reason for refusing a function call.
const NO_FUNCTION: &str = "calls a value that is not a function";

/// A template with a stand-in for each unknown value, to check whether it can be a part of a
/// request.
#[derive(Default)]
pub(super) struct Sketch {
    /// None if it may be rendered in more than one way.
    marked: Option<Marked>,
    /// The lines of the values, as far as they are known.
    lines: Vec<usize>,
}

impl Sketch {
    /// Refuses a template that is not a URL with a word for each value.
    pub(super) fn check_url(self, origin: &str) -> Result<(), ConfigError> {
        self.check("url", |_, _| false, |marked| place::url(marked, origin))?;
        Ok(())
    }

    /// Refuses a template that is not JSON with stand-ins: a number for each value that touches
    /// another value or a part of a number, a text for each other value.
    pub(super) fn check_json(self, part: &str) -> Result<(), ConfigError> {
        self.check(part, touches_number, place::json)?;
        Ok(())
    }

    /// Refuses a template that is not a header, or always empty.
    pub(super) fn check_header(self, part: &str) -> Result<(), ConfigError> {
        match self.check(part, |_, _| true, place::header)? {
            Some(None) => Err(ConfigError::new(part.to_owned(), "is always empty")),
            _ => Ok(()),
        }
    }

    /// Refuses a template that is not a field of a form.
    pub(super) fn check_field(self, part: &str) -> Result<(), ConfigError> {
        self.check(part, |_, _| true, place::field)?;
        Ok(())
    }

    fn check<T>(
        self,
        part: &str,
        is_number: fn(&str, &str) -> bool,
        put_in: impl Fn(&Marked) -> Result<T, Fault>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(marked) = self.marked else {
            return Ok(None);
        };
        put_in(&marked.with_numbers(is_number))
            .map(Some)
            .map_err(|fault| {
                let reason = match fault {
                    Fault::Value(Some(n), why) if n < self.lines.len() => {
                        format!("has a value in line {} that {why}", self.lines[n])
                    }
                    Fault::Template(why) | Fault::Value(_, why) => why.to_owned(),
                    Fault::Undefined | Fault::TooMuch => "is too long".to_owned(),
                };
                ConfigError::new(part.to_owned(), reason)
            })
    }
}

/// Returns whether only a number can stand between these words of a JSON text.
fn touches_number(before: &str, after: &str) -> bool {
    let in_number = |c: char| matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    let ends = [before.chars().next_back(), after.chars().next()];
    ends.iter().any(|end| end.is_none_or(in_number))
}

/// The compiled templates of a tool, by the names of their parts.
#[derive(Clone)]
pub(super) struct Templates {
    env: Environment<'static>,
    /// The parts that name the token.
    with_token: BTreeSet<String>,
}

impl Default for Templates {
    fn default() -> Self {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_formatter(marks::write_mark);
        env.set_fuel(Some(MAX_STEPS));
        env.set_recursion_limit(MAX_DEPTH);
        env.add_filter("tojson", marks::to_json);
        env.add_filter("path", marks::path);
        env.add_filter("segment", marks::segment);
        env.add_filter("urlencode", marks::urlencode);
        for name in ["safe", "escape", "e"] {
            env.add_filter(name, marks::same);
        }
        env.remove_filter("pprint");
        env.remove_global("debug");
        env.add_function("uuid", scope::uuid);
        Self {
            env,
            with_token: BTreeSet::new(),
        }
    }
}

impl Templates {
    /// Compiles the template of a part, and gives a [`Sketch`] of it.
    pub(super) fn add(&mut self, part: &str, source: String) -> Result<Sketch, ConfigError> {
        let refused = |reason: String| ConfigError::new(part.to_owned(), reason);
        if source.len() > MAX_TEMPLATE {
            return Err(refused(format!("is longer than {MAX_TEMPLATE} bytes")));
        }
        if source.contains(MARK) {
            return Err(refused("has the character U+10FFFE".to_owned()));
        }
        let mut words = BTreeSet::new();
        let prints =
            names::check(&self.env, &source, part == "url", &mut words).map_err(refused)?;
        if words.contains(TOKEN) {
            self.with_token.insert(part.to_owned());
        }
        // Their names are free for arguments where nothing calls them.
        for name in ["range", "dict", "namespace"] {
            let calls = |source: &str| names::may_call(source, name);
            let is_called =
                calls(&source) || self.env.templates().any(|(_, other)| calls(other.source()));
            if words.contains(name) && !is_called {
                self.env.remove_global(name);
            }
        }
        let added = self.env.add_template_owned(part.to_owned(), source.clone());
        added.map_err(|error| {
            // The text is the operator's own, so it may be quoted.
            let line = error.line().map(|line| format!(" in line {line}"));
            let (line, detail) = (line.unwrap_or_default(), error.detail().unwrap_or_default());
            refused(format!("is not a template{line}: {detail}"))
        })?;
        self.try_out(part, prints).map_err(refused)
    }

    /// Refuses what no arguments can mend, as far as trials without arguments find it.
    fn try_out(&self, part: &str, prints: Prints<'_>) -> Result<Sketch, String> {
        let template = self.env.get_template(part).map_err(|_| "is unknown")?;
        let mut constant = None;
        for (is_true, is_list) in [(true, false), (false, false), (true, true)] {
            let anything = Anything::new(is_true, is_list);
            constant = trial(&template, anything, 1)?;
        }
        let slots = prints.tags.iter().map(|tag| {
            if !tag.is_always {
                return Ok(None);
            }
            let alone = self.env.template_from_named_str(part, tag.text);
            let Ok(alone) = alone else { return Ok(None) };
            let marked = trial(&alone, Anything::new(true, false), tag.line)?;
            Ok(marked.and_then(|marked| marked.slot(0).cloned()))
        });
        let slots = slots.collect::<Result<Vec<_>, String>>()?;
        if !prints.is_one {
            return Ok(Sketch {
                marked: constant,
                lines: Vec::new(),
            });
        }
        Ok(Sketch {
            lines: prints.tags.iter().map(|tag| tag.line).collect(),
            marked: Some(Marked::sketch(prints.sketch, slots)),
        })
    }

    /// Returns whether a part names the token, in whatever way.
    pub(super) fn has_token(&self, part: &str) -> bool {
        self.with_token.contains(part)
    }

    /// Lets undefined variables print nothing.
    pub(super) fn print_undefined(&mut self) {
        let lenient = UndefinedBehavior::Lenient;
        self.env.set_undefined_behavior(lenient);
    }

    /// Returns whether undefined variables print nothing.
    pub(super) fn prints_undefined(&self) -> bool {
        self.env.undefined_behavior() == UndefinedBehavior::Lenient
    }

    /// Returns the text that the operator wrote.
    pub(super) fn source(&self, part: &str) -> String {
        let template = self.env.get_template(part);
        template.map_or_else(|_| String::new(), |template| template.source().to_owned())
    }

    /// The variables of a part that it does not set itself, those of nested values as `a.b`, as far
    /// as they are found (not all of them are): for hints.
    pub(super) fn variables(&self, part: &str) -> BTreeSet<String> {
        let template = self.env.get_template(part);
        let names = template.map(|template| template.undeclared_variables(true));
        names.into_iter().flatten().collect()
    }

    /// The URL of a call.
    pub(super) fn url(&self, scope: &Scope, origin: &str) -> Result<Uri, ToolError> {
        self.part("url", scope, |marked| place::url(marked, origin))
    }

    pub(super) fn header(
        &self,
        part: &str,
        scope: &Scope,
    ) -> Result<Option<HeaderValue>, ToolError> {
        let token = scope.token().filter(|_| self.has_token(part));
        if token.is_some_and(|token| !is_token(token)) {
            let text = "the upstream token cannot be in a header";
            return Err(ToolError::new(ErrorKind::TokenExchange, text));
        }
        if token.is_none() && self.prints_undefined() && self.has_token(part) {
            return Err(no_token());
        }
        self.part_of(part, scope, scope.values_with(token), place::header)
    }

    pub(super) fn json(&self, part: &str, scope: &Scope) -> Result<String, ToolError> {
        self.part(part, scope, place::json)
    }

    pub(super) fn field(&self, part: &str, scope: &Scope) -> Result<String, ToolError> {
        self.part(part, scope, place::field)
    }

    fn part<T>(
        &self,
        part: &str,
        scope: &Scope,
        put_in: impl FnOnce(&Marked) -> Result<T, Fault>,
    ) -> Result<T, ToolError> {
        self.part_of(part, scope, scope.values_with(None), put_in)
    }

    fn part_of<T>(
        &self,
        part: &str,
        scope: &Scope,
        values: Value,
        put_in: impl FnOnce(&Marked) -> Result<T, Fault>,
    ) -> Result<T, ToolError> {
        let marked = self.marked(part, values);
        let marked = marked.map_err(|fault| self.error(part, scope, None, fault))?;
        put_in(&marked).map_err(|fault| self.error(part, scope, Some(&marked), fault))
    }

    fn marked(&self, part: &str, values: Value) -> Result<Marked, Fault> {
        let template = self.env.get_template(part);
        let rendered = template.and_then(|template| rendered(&template, values));
        rendered.map_err(|error| Fault::of(&error))
    }

    /// The error of a part that could not be made. It names arguments as the template does, and
    /// never a value.
    #[cold]
    fn error(&self, part: &str, scope: &Scope, marked: Option<&Marked>, fault: Fault) -> ToolError {
        let mut names = self.variables(part);
        names.remove(TOKEN);
        let invalid = |text: String| ToolError::refusal(ErrorKind::InvalidInput, text);
        let has_values = names.iter().any(|name| name != "uuid" && scope.has(name));
        let fault = match fault {
            Fault::Value(..) | Fault::TooMuch if !has_values => {
                Fault::Template("cannot be rendered, whatever the arguments are")
            }
            fault => fault,
        };
        match fault {
            Fault::Undefined if self.lacks_only_token(part, scope) => no_token(),
            Fault::Undefined => match self.missing(part, scope) {
                none if none.is_empty() => invalid(may_be_missing(&names, scope)),
                names => invalid(are_missing(&names)),
            },
            Fault::Value(n, why) => {
                let slot = n.zip(marked).and_then(|(n, marked)| marked.slot(n));
                let name = scope.name_of(&names, slot.map(|slot| slot.text()));
                invalid(format!("{name} {why} ({part})"))
            }
            Fault::TooMuch => invalid(format!("the arguments are too large for the {part}")),
            // Refused, so that no layer takes it for a failure of the server.
            Fault::Template(why) => ToolError::refusal(
                ErrorKind::Internal,
                format!("the template of the {part} {why}"),
            ),
        }
    }

    /// The arguments without which a call has no request: those of all parts, if undefined
    /// variables are errors.
    fn missing(&self, part: &str, scope: &Scope) -> BTreeSet<String> {
        let lacks = |part: &str| {
            let names = self.variables(part).into_iter();
            let absent: Vec<_> = names.filter(|name| !scope.has(name)).collect();
            let is_needed = |name: &String| {
                let others = absent.iter().filter(|other| *other != name);
                let rendered = self.marked(part, scope.filled(others));
                self.prints_undefined() || matches!(rendered, Err(Fault::Undefined))
            };
            let needed = absent
                .iter()
                .filter(|name| *name != TOKEN && is_needed(name));
            needed.cloned().collect::<Vec<_>>()
        };
        if self.prints_undefined() {
            return lacks(part).into_iter().collect();
        }
        self.env
            .templates()
            .flat_map(|(part, _)| lacks(part))
            .collect()
    }

    /// Returns whether nothing would be undefined if the call had a token.
    fn lacks_only_token(&self, part: &str, scope: &Scope) -> bool {
        let with_token = || self.marked(part, scope.values_with(Some("x")));
        let lacks_token = self.has_token(part) && scope.token().is_none();
        lacks_token && !matches!(with_token(), Err(Fault::Undefined))
    }

    /// Refuses variables that are neither ours nor properties of the arguments' schema.
    pub(super) fn check_arguments(&self, known: &BTreeSet<String>) -> Result<(), ConfigError> {
        for (part, _) in self.env.templates() {
            if let Some(name) = self.names(part).difference(known).next() {
                let reason = format!("uses `{name}`, which is not a property of the schema");
                return Err(ConfigError::new(part.to_owned(), reason));
            }
        }
        Ok(())
    }

    /// The variables of a part that are not ours, as far as they are found.
    pub(super) fn names(&self, part: &str) -> BTreeSet<String> {
        let ours = |name: &str| {
            scope::is_ours(name) || self.env.globals().any(|(global, _)| global == name)
        };
        let names = self.variables(part).into_iter();
        let top = names.map(|name| name.split('.').next().unwrap_or_default().to_owned());
        top.filter(|name| !ours(name)).collect()
    }

    /// Returns whether a part has nothing that the caller knows, as far as it is found.
    pub(super) fn is_own(&self, part: &str) -> bool {
        let is_known = |name: &String| name != TOKEN && scope::is_ours(name);
        self.names(part).is_empty() && !self.variables(part).iter().any(is_known)
    }
}

fn rendered(template: &Template<'_, '_>, values: Value) -> Result<Marked, minijinja::Error> {
    let mut rendered = template.render_captured(values)?;
    let slots = rendered.with_state_mut(|state| state.get_extension_mut().map(Slots::take));
    let slots = slots.unwrap_or_default();
    Ok(Marked::new(rendered.into_output(), slots))
}

/// Renders a template that begins in this line, without arguments. Gives a rendering that uses no
/// variable, and refuses what fails with any arguments.
fn trial(
    template: &Template<'_, '_>,
    anything: Anything,
    line: usize,
) -> Result<Option<Marked>, String> {
    let used = anything.used();
    let rendered = rendered(template, Value::from_object(anything));
    let is_constant = !used.load(Relaxed);
    let error = match rendered {
        Ok(marked) => return Ok(is_constant.then_some(marked)),
        Err(error) => error,
    };
    let line = line + error.line().unwrap_or(1) - 1;
    match Fault::of(&error) {
        Fault::Template(why) => Err(format!("{why} (line {line})")),
        // It may print nothing.
        Fault::Undefined => Ok(None),
        Fault::Value(..) | Fault::TooMuch if !is_constant => Ok(None),
        Fault::TooMuch => Err(format!("takes too many steps (line {line})")),
        // The text is the operator's own, so it may be quoted.
        Fault::Value(_, why) => {
            let why = error.detail().filter(|why| !why.is_empty()).unwrap_or(why);
            Err(format!("fails with any arguments (line {line}): {why}"))
        }
    }
}

/// Returns the sentence that names the missing variables.
fn are_missing(names: &BTreeSet<String>) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => {
            format!("{} and {last} are missing", first.join(", "))
        }
        names => format!("{} is missing", names.concat()),
    }
}

/// The sentence where any of several arguments would do, or where one has too few members.
fn may_be_missing(names: &BTreeSet<String>, scope: &Scope) -> String {
    let all_that = |is_it: &dyn Fn(&str) -> bool| {
        let names = names.iter().filter(|name| is_it(name));
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        names.join(" or ")
    };
    let absent = all_that(&|name| !scope.has(name));
    let nested = all_that(&|name| scope.has_members(name));
    match (&*absent, &*nested) {
        ("", "") => "an argument is missing".to_owned(),
        ("", nested) => format!("a member of {nested} is missing"),
        (absent, _) => format!("{absent} is missing"),
    }
}

#[cold]
fn no_token() -> ToolError {
    ToolError::new(ErrorKind::TokenExchange, "no upstream token on this call")
}

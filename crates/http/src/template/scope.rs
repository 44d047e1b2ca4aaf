//! The variables of a template.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use minijinja::{
    Error, State, Value,
    value::{Enumerator, Object, ObjectRepr, Serde, ValueKind},
};

use super::{super::job::Asked, Fault, NO_FUNCTION};
use tower_toolcall::{ToolCall, call::UpstreamToken, flow::CallExt};

/// The variable that has the upstream's token.
pub(in super::super) const TOKEN: &str = "upstream_token";
pub(in super::super) const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// Variables that no argument can shadow.
const OURS: &[&str] = &[TOKEN, "request_id", "trace_id", IDEMPOTENCY_KEY, "uuid"];

pub(in super::super) fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

/// The variables that one call gives its templates: all arguments, except those that would shadow
/// [ours](is_ours).
pub(in super::super) struct Scope(Arc<Variables>);

struct Variables {
    call: ToolCall,
    ours: [(&'static str, Option<Value>); 3],
    /// The arguments that templates have used so far, so that each is converted once.
    used: Mutex<BTreeMap<String, Value>>,
}

impl Variables {
    fn get(&self, name: &str) -> Option<Value> {
        if is_ours(name) {
            let ours = self.ours.iter().find(|(ours, _)| *ours == name);
            return ours.and_then(|(_, value)| value.clone());
        }
        if let Some(value) = Asked::of(&self.call).and_then(|asked| asked.value(name)) {
            return value.map(|value| Value::from(Serde(value)));
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = used.get(name) {
            return Some(value.clone());
        }
        let value = Value::from(Serde(self.call.arguments().get(name)?));
        used.insert(name.to_owned(), value.clone());
        Some(value)
    }
}

/// The variables of one part of a request.
struct Context {
    variables: Arc<Variables>,
    /// In headers only.
    token: Option<Value>,
    /// Arguments that go before those of the call.
    filled: Option<serde_json::Value>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// Has every member, and is true or not, for a trial of a template without arguments.
#[derive(Clone, Debug)]
pub(super) struct Anything {
    is_true: bool,
    /// A list with one item; else an object.
    is_list: bool,
    /// A variable has been looked up.
    used: Arc<AtomicBool>,
}

impl Anything {
    pub(super) fn new(is_true: bool, is_list: bool) -> Self {
        Self {
            is_true,
            is_list,
            used: Arc::default(),
        }
    }

    /// Returns what becomes true with the first variable that is looked up.
    pub(super) fn used(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.used)
    }
}

impl Object for Anything {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match self.is_list {
            true => ObjectRepr::Seq,
            false => ObjectRepr::Map,
        }
    }

    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        const FUNCTIONS: &[&str] = &["uuid", "range", "dict", "namespace"];
        self.used.store(true, Relaxed);
        if name.as_str().is_some_and(|name| FUNCTIONS.contains(&name)) {
            return None;
        }
        // Items are no lists, so that a walk ends.
        let is_list = self.is_list && name.as_str().is_some();
        Some(Value::from_object(Self {
            is_list,
            ..Self::clone(self)
        }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.is_list {
            true => Enumerator::Seq(1),
            // The engine panics when it compares objects that cannot list their members.
            false => Enumerator::Empty,
        }
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.is_true
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        Err(Fault::Template(NO_FUNCTION).into())
    }
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        match name {
            TOKEN => self.token.clone(),
            name => {
                let filled = self.filled.as_ref().filter(|_| !is_ours(name));
                let filled = filled.and_then(|filled| filled.get(name));
                let filled = filled.map(|value| Value::from(Serde(value)));
                filled.or_else(|| self.variables.get(name))
            }
        }
    }
}

impl Scope {
    pub(in super::super) fn new(call: &ToolCall) -> Self {
        let request_id = match call.id() {
            Some(id) => id.into(),
            None => uuid(),
        };
        let key = call.idempotency_key().map(|key| key.to_string());
        Self(Arc::new(Variables {
            call: call.copy_to_read(),
            ours: [
                ("request_id", Some(request_id.into())),
                ("trace_id", call.trace_id().map(Value::from)),
                (IDEMPOTENCY_KEY, key.map(Value::from)),
            ],
            used: Mutex::default(),
        }))
    }

    /// Only headers get a token.
    pub(super) fn values_with(&self, token: Option<&str>) -> Value {
        Value::from_object(Context {
            variables: Arc::clone(&self.0),
            token: token.map(Value::from),
            filled: None,
        })
    }

    /// For a trial: a call that has a token, and an empty value for each of these names, `a.b` too.
    pub(super) fn filled<'n>(&self, names: impl Iterator<Item = &'n String>) -> Value {
        let mut filled = serde_json::Value::Object(self.0.call.arguments().clone());
        for name in names {
            let mut place = &mut filled;
            for step in name.split('.') {
                if !place.is_object() {
                    *place = serde_json::json!({});
                }
                place = &mut place[step];
            }
            if place.is_null() {
                *place = serde_json::json!([]);
            }
        }
        Value::from_object(Context {
            variables: Arc::clone(&self.0),
            token: Some("x".into()),
            filled: Some(filled),
        })
    }

    pub(super) fn token(&self) -> Option<&str> {
        let token = self.0.call.extensions().get::<UpstreamToken>();
        token.map(UpstreamToken::expose)
    }

    /// Returns whether a variable is defined, one of a nested value too.
    pub(super) fn has(&self, name: &str) -> bool {
        name == "uuid" || self.value(name).is_some()
    }

    /// Returns whether a variable is an array or an object.
    pub(super) fn has_members(&self, name: &str) -> bool {
        let value = self.value(name);
        value.is_some_and(|value| matches!(value.kind(), ValueKind::Seq | ValueKind::Map))
    }

    fn value(&self, name: &str) -> Option<Value> {
        let mut steps = name.split('.');
        let first = self.0.get(steps.next()?);
        steps.fold(first, |value, step| {
            let inner = value?.get_attr(step).ok()?;
            (!inner.is_undefined()).then_some(inner)
        })
    }

    /// The argument that a template has printed as this text, for a person: one of `names`, if it
    /// is clear which.
    pub(super) fn name_of(&self, names: &BTreeSet<String>, text: Option<&str>) -> String {
        let given = names.iter().filter(|name| !is_ours(name) && self.has(name));
        let given: Vec<&String> = given.collect();
        let is_it = |name: &str| {
            let value = self.value(name);
            text.is_some() && value.as_ref().and_then(Value::as_str) == text
        };
        let mut same = given.iter().filter(|name| is_it(name));
        match (same.next(), same.next(), &*given) {
            (Some(name), None, _) | (None, None, [name]) => format!("`{name}`"),
            _ => "an argument".to_owned(),
        }
    }
}

/// A random UUID (version 4). Unique; no secret.
pub(super) fn uuid() -> String {
    let random = RandomState::new();
    let (a, b) = (random.hash_one(0), random.hash_one(1));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0x3fff | 0x8000,
        b & 0xffff_ffff_ffff,
    )
}

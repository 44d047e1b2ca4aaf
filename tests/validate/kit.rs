use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tower_toolcall::validate::Schema;

pub(crate) fn compile(schema: Value) -> Schema {
    Schema::compile(&schema).unwrap()
}

pub(crate) fn search() -> Schema {
    compile(json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1 },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
            "filters": { "type": "array", "items": {
                "type": "object",
                "properties": { "op": { "enum": ["eq", "ne", "lt", "gt"] }, "value": {} },
                "required": ["op"],
            } },
        },
        "required": ["query"],
        "additionalProperties": false,
    }))
}

/// Runs on the stack that a thread of tokio has, and tells how long it took.
pub(crate) fn on_a_small_stack<T: Send + 'static>(
    test: impl FnOnce() -> T + Send + 'static,
) -> (T, Duration) {
    let thread = thread::Builder::new().stack_size(2 << 20);
    let begun = Instant::now();
    let result = thread.spawn(test).unwrap().join().unwrap();
    (result, begun.elapsed())
}

use super::{names, nearest::Nearest, table::Table};
use crate::{
    call::ToolCall,
    error::{ErrorKind, ToolError},
    text::Short,
};

/// The longest text for a model, in characters (E4).
const MAX: usize = 200;

/// The longest part of the unknown name that is shown to a model: the rest belongs to the names that exist.
const MAX_ASKED: usize = 40;

/// The error of a call of a tool that is not there (X4).
pub(super) fn error<Res>(table: &Table<Res>, call: &ToolCall) -> ToolError {
    let near = near(table, call);
    let error = if near.is_empty() {
        ToolError::new(ErrorKind::NotFound, "there is no tool of this name")
    } else {
        let names = near.join("`, `");
        let message = format!("there is no tool of this name; near it: `{names}`");
        ToolError::new(ErrorKind::NotFound, message).with_model_message(for_model(call, &near))
    };
    error.into_own_refusal().about(&call.info())
}

fn near<Res>(table: &Table<Res>, call: &ToolCall) -> Vec<String> {
    let asked = table.asked(call);
    let bare = names::split(&asked, &table.separator).map_or(&*asked, |(_, tool)| tool);
    let mut nearest = Nearest::to(&asked, bare);
    table.for_each(|flat, bare| nearest.offer(flat, bare));
    nearest.into_names()
}

/// As many names as there is room for: half a name is of no use.
fn for_model(call: &ToolCall, near: &[String]) -> String {
    let mut near = near;
    loop {
        let asked = Short::new(call.tool(), MAX_ASKED);
        let text = match near {
            [] => {
                return format!(
                    "Tool '{asked}' does not exist. Call only tools that you were given."
                );
            }
            [one] => format!("Tool '{asked}' does not exist. Did you mean '{one}'?"),
            [some @ .., last] => format!(
                "Tool '{asked}' does not exist. Did you mean '{}' or '{last}'?",
                some.join("', '")
            ),
        };
        if text.chars().count() <= MAX {
            return text;
        }
        near = &near[..near.len() - 1];
    }
}

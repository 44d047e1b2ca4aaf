//! `anyhow::Error` as the error of a tool.

use crate::error::ToolError;

/// As [`ToolError::from_box`] has it: what stands below the context chooses the kind.
impl From<anyhow::Error> for ToolError {
    fn from(error: anyhow::Error) -> Self {
        Self::from_box(error.into())
    }
}

//! The program `gateway`.

use std::path::Path;

/// The program, built with this test.
pub(crate) async fn gateway() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_gateway"))
}

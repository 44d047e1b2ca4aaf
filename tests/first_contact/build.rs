//! Cuts out what a newcomer copies: the first code of the docs' landing page, and the README's program.

use std::{env, fs, path::Path};

const README: &str = "../../README.md";
const LANDING: &str = "../../src/lib.rs";
const MAIN: &str = "#[tokio::main]\nasync fn main() -> Result<(), AnyError> {\n";
const CALL: &str = "println!(\"{}\", stack.oneshot(call).await?);";

fn main() {
    // The same tool and stack, for several calls at once.
    let calls = "let results = Parallel::new(stack).run([call.clone(), call]).await; \
                 for result in &results { println!(\"{}\", result.model_text()); }";
    let landing: Vec<_> = read(LANDING)
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
        .collect();
    let (uses, body) = program(&landing.join("\n"), "```\n");
    write("batch.rs", &replaced(&body, CALL, calls));
    write("uses.rs", &uses);
    write("body.rs", &body);

    // The server that `tests/run` has installed, and half a second instead of ten.
    let (uses, body) = program(&read(README), "```rust,no_run\n");
    let body = replaced(&body, "\"npx\"", "\"node\"");
    let body = replaced(
        &body,
        "\"-y\", \"@modelcontextprotocol/server-everything\"",
        "SERVER",
    );
    let body = replaced(&body, "from_secs(10)", "from_millis(500)");
    write("readme_uses.rs", &uses);
    write("readme_body.rs", &body);
}

fn read(file: &str) -> String {
    println!("cargo::rerun-if-changed={file}");
    fs::read_to_string(file).expect("the file is there")
}

/// The imports of the first code of a page, and the body of its `main` as a block.
fn program(page: &str, fence: &str) -> (String, String) {
    let (_, code) = page.split_once(fence).expect("it has code");
    let (code, _) = code.split_once("```").expect("which ends");
    let (uses, main) = code.split_once(MAIN).expect("it has a `main`");
    let body = main.trim_end().strip_suffix('}').expect("which ends");
    (uses.to_owned(), format!("{{{body}}}"))
}

fn replaced(body: &str, old: &str, new: &str) -> String {
    assert!(body.contains(old), "there is no `{old}` in the program");
    body.replace(old, new)
}

fn write(name: &str, text: &str) {
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join(name), text).expect("the directory is there");
}

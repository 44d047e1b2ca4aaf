//! Cuts out what a newcomer copies: the first code of the docs' landing page, and the README's
//! program.

use std::{env, fs, path::Path};

const README: &str = "../../README.md";
const LANDING: &str = "../../src/lib.rs";
const MAIN: &str = "#[tokio::main]\nasync fn main() -> Result<(), AnyError> {\n";
const CALL: &str = "println!(\"{}\", stack.oneshot(call).await?);";

fn main() {
    // The same tool and stack, for several calls at once.
    let calls = "let results = Parallel::new(stack).run([call.clone(), call]).await; \
                 for result in &results { println!(\"{}\", result.model_text()); }";
    // Calls without the argument before it.
    let refused = format!("for _ in 0..50 {{ refuse(stack.clone()).await; }} {CALL}");
    let landing: Vec<_> = read(LANDING)
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
        .collect();
    let landing = code(&landing.join("\n"), "```rust\n");
    let (uses, body) = program(&landing);
    write("batch.rs", &replaced(&body, CALL, calls));
    write("refused.rs", &replaced(&body, CALL, &refused));
    write("uses.rs", &uses);
    write("body.rs", &body);

    // The program as it is; its imports, its server and its stack for tests that make calls of
    // their own.
    let readme = code(&read(README), "```rust,no_run\n");
    let (uses, body) = program(&readme);
    write("readme.rs", &readme);
    write("readme_uses.rs", &uses);
    let server = between(&body, "McpServer::command", ";");
    write("readme_server.rs", &replaced(&server, "\"npx\"", "&npx"));
    write(
        "readme_stack.rs",
        &between(&body, "ServiceBuilder::new()", ";"),
    );
}

fn read(file: &str) -> String {
    println!("cargo::rerun-if-changed={file}");
    fs::read_to_string(file).expect("the file is there")
}

/// The first code of a page.
fn code(page: &str, fence: &str) -> String {
    between(page, fence, "```").replacen(fence, "", 1)
}

/// The imports of a program, and the body of its `main` as a block.
fn program(code: &str) -> (String, String) {
    let (uses, main) = code.split_once(MAIN).expect("it has a `main`");
    let body = main.trim_end().strip_suffix('}').expect("which ends");
    (uses.to_owned(), format!("{{{body}}}"))
}

/// From the first `start` up to the next `end`.
fn between(text: &str, start: &str, end: &str) -> String {
    let at = text.find(start).expect("it begins");
    let rest = &text[at..];
    let length = rest[start.len()..].find(end).expect("it ends");
    rest[..start.len() + length].to_owned()
}

fn replaced(body: &str, old: &str, new: &str) -> String {
    assert!(body.contains(old), "there is no `{old}` in the program");
    body.replace(old, new)
}

fn write(name: &str, text: &str) {
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join(name), text).expect("the directory is there")
}

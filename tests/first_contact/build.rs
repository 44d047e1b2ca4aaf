//! Cuts the quick start out of the README: its imports, and the body of its `main`.

use std::{env, fs, path::Path};

const README: &str = "../../README.md";
const MAIN: &str = "#[tokio::main]\nasync fn main() -> Result<(), AnyError> {\n";
const CALL: &str = "println!(\"{}\", stack.oneshot(call).await?);";

fn main() {
    println!("cargo::rerun-if-changed={README}");
    let readme = fs::read_to_string(README).expect("the README is there");
    let (_, code) = readme.split_once("```rust\n").expect("it has code");
    let (code, _) = code.split_once("```").expect("which ends");
    let (uses, main) = code.split_once(MAIN).expect("it has a `main`");
    let body = main.trim_end().strip_suffix('}').expect("which ends");
    assert!(
        body.contains(CALL),
        "the quick start calls its tool otherwise"
    );

    // The same tool and stack, for several calls at once.
    let calls = "let results = Parallel::new(stack).run([call.clone(), call]).await; \
                 for result in &results { println!(\"{}\", result.model_text()); }";
    let batch = body.replace(CALL, calls);

    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).expect("the directory is there");
    };
    write("uses.rs", uses.to_owned());
    write("body.rs", format!("{{{body}}}"));
    write("batch.rs", format!("{{{batch}}}"));
}

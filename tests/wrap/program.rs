//! The program `gateway`.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use tokio::{process::Command, sync::OnceCell};

/// The program, built with this test.
pub(crate) async fn gateway() -> &'static Path {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_init(build).await
}

async fn build() -> PathBuf {
    // `target/debug/deps/wrap-...`
    let own = env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    // What cargo says to this test is not for the build scripts that read it, and would run again.
    for (name, _) in env::vars_os() {
        let is_cargos = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG") || name.starts_with("CARGO_MANIFEST")
        });
        if is_cargos {
            cargo.env_remove(name);
        }
    }
    // As the tests are built: there is nothing left to compile.
    // What it waits for, as another build, is seen.
    cargo.args(["build", "--locked", "--all-features"]);
    cargo.args(["--example", "gateway", "--profile"]);
    cargo.arg(match profile.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(other) => other,
    });
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().await.unwrap().success());
    profile.join("examples/gateway")
}

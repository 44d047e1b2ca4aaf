//! Folders of manifests.

use std::{collections::BTreeSet, fs, io::Read, path::Path as FilePath};

use super::ToolManifest;
use tower_toolcall::{
    ConfigError,
    event::{
        TARGET,
        names::{event, field},
    },
};
use tracing::Level;

/// The longest file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The most files of a folder.
const MAX_FILES: usize = 1000;

/// The most files that are not read and are named.
const MAX_NAMED: usize = 10;

impl ToolManifest {
    /// Returns the manifests of a folder, by the names of their files: all that end in `.json`.
    /// They are checked. The event `tool.settings` reports at WARN an empty folder, and up to ten
    /// files that are not read, unless they are hidden or end in `.md`. Of more files it reports
    /// the number.
    ///
    /// # Errors
    ///
    /// Names the file if it cannot be read, has more than 1 MiB, or is not a manifest of a valid
    /// tool. Also two files with the same tool name, and more than 1,000 files.
    pub fn read_dir(folder: impl AsRef<FilePath>) -> Result<Vec<Self>, ConfigError> {
        let folder = folder.as_ref();
        let unread = |error: std::io::Error| {
            ConfigError::new(
                folder.display().to_string(),
                format!("cannot be read: {error}"),
            )
        };
        let (mut files, mut others) = (Vec::new(), 0);
        for entry in fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let ends_in = |end| {
                let extension = path.extension();
                extension.is_some_and(|extension| extension.eq_ignore_ascii_case(end))
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // A pipe of that name would be waited for.
            if !path.is_file() || name.starts_with('.') || ends_in("md") {
                continue;
            }
            if !ends_in("json") {
                others += 1;
                if others <= MAX_NAMED {
                    warn(&path, "is not read: a tool is a file that ends in `.json`");
                }
                continue;
            }
            files.push(path);
            if files.len() > MAX_FILES {
                let folder = folder.display().to_string();
                return Err(ConfigError::new(folder, "has more than 1,000 files"));
            }
        }
        files.sort();
        if others > MAX_NAMED {
            warn(folder, &format!("has {others} files that are not read"));
        }
        if files.is_empty() {
            warn(folder, "has no file that ends in `.json`: no tool is read");
        }
        let mut names = BTreeSet::new();
        let read = files.iter().map(|path| {
            let of_file = |reason: String| ConfigError::new(path.display().to_string(), reason);
            let manifest = read(path).map_err(of_file)?;
            // Whether the token may go without an audience is asked when the tool is made.
            let lenient = manifest.clone().pass_subject_without_audience();
            let checked = lenient.tool().and_then(|_| lenient.poll_layer());
            checked.map_err(|e| of_file(format!("`{}`: {}", e.field(), e.reason())))?;
            match names.insert(manifest.name().to_owned()) {
                true => Ok(manifest),
                false => Err(of_file(format!(
                    "`{}` is another file's tool",
                    manifest.name()
                ))),
            }
        });
        read.collect()
    }
}

/// Reports a file or folder that is not read, as settings that look wrong are reported.
fn warn(path: &FilePath, reason: &str) {
    tracing::event!(
        name: event::SETTINGS,
        target: TARGET,
        Level::WARN,
        { field::SETTING } = path.display().to_string(),
        { field::REASON } = reason,
        "{}", event::SETTINGS
    );
}

fn read(path: &FilePath) -> Result<ToolManifest, String> {
    let file = fs::File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    read.map_err(|e| format!("cannot be read: {e}"))?;
    if text.len() as u64 > MAX_FILE {
        return Err("has more than 1 MiB".to_owned());
    }
    serde_json::from_str(&text).map_err(|e| format!("is not a manifest: {e}"))
}

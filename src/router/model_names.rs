//! Names of tools as providers of models take them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

/// The longest name of a tool that all providers take, in bytes.
pub const MAX_TOOL_NAME: usize = 64;

/// Names of tools as providers take them, and back: letters, digits, `_` and `-`, at most
/// [`MAX_TOOL_NAME`], no digit and no `-` first.
///
/// A name that fits passes unchanged. In any other each character that does not fit becomes `_`,
/// and a hash of the whole name is appended, so that it is the same name in each turn and process,
/// whichever other tools there are.
///
/// ```
/// use tower_toolcall::router::Names;
///
/// let names = Names::new(["docs/search", "docs__search"]);
/// assert_eq!(names.to_model("docs__search"), "docs__search");
/// assert_eq!(names.to_model("docs/search"), "docs_search_5af14947");
/// assert_eq!(names.to_tool("docs_search_5af14947"), "docs/search");
/// assert_eq!(names.to_tool("unknown"), "unknown");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Only those that differ.
    to_model: HashMap<String, String>,
    to_tool: HashMap<String, String>,
}

impl Names {
    /// Returns the names of the tools that the model may call.
    pub fn new<N: AsRef<str>>(tools: impl IntoIterator<Item = N>) -> Self {
        let tools: Vec<N> = tools.into_iter().collect();
        let mut taken: HashSet<String> = HashSet::new();
        let fits = |tool: &&N| is_name(tool.as_ref());
        let fitting = tools.iter().filter(fits);
        taken.extend(fitting.map(|tool| tool.as_ref().to_owned()));
        let mut names = Self::default();
        for tool in tools.iter().map(AsRef::as_ref) {
            if is_name(tool) || names.to_model.contains_key(tool) {
                continue;
            }
            // The first is free, but for a collision of hashes.
            let mut names_of = (0_u32..).map(|n| made(tool, n));
            let free = names_of.find(|name| !taken.contains(name));
            let name = free.unwrap_or_default();
            taken.insert(name.clone());
            names.to_tool.insert(name.clone(), tool.to_owned());
            names.to_model.insert(tool.to_owned(), name);
        }
        names
    }

    /// Returns the name under which the model knows a tool: for the list of tools in the request.
    pub fn to_model<'a>(&'a self, tool: &'a str) -> Cow<'a, str> {
        match self.to_model.get(tool) {
            Some(name) => Cow::Borrowed(name),
            None if is_name(tool) => Cow::Borrowed(tool),
            None => Cow::Owned(made(tool, 0)),
        }
    }

    /// Returns the tools with a name that is not made of their own alone, because another tool has
    /// that name. Such a name may change with the list of tools.
    pub fn collisions(&self) -> impl Iterator<Item = &str> {
        let differs = |(tool, name): &(&String, &String)| made(tool, 0) != **name;
        self.to_model
            .iter()
            .filter(differs)
            .map(|(tool, _)| &**tool)
    }

    /// Returns whether a name looks as if it was made of another.
    pub fn may_be_made(name: &str) -> bool {
        let hash = name.rsplit_once('_').map_or("", |(_, hash)| hash);
        hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit())
    }

    /// Returns the tool of a name that the model used; an unknown name as it is.
    pub fn to_tool<'a>(&'a self, name: &'a str) -> &'a str {
        self.to_tool.get(name).map_or(name, String::as_str)
    }
}

fn is_name(name: &str) -> bool {
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MAX_TOOL_NAME
        && name.bytes().next().is_some_and(begins)
        && name.chars().all(is_allowed)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A name that fits, made of any; `n` counts collisions.
fn made(tool: &str, n: u32) -> String {
    let hash = hash(tool).wrapping_add(n);
    let begins_badly = tool.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let first = begins_badly.then_some('_');
    let fitting = tool.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let head = first.into_iter().chain(fitting).take(MAX_TOOL_NAME - 9);
    format!("{}_{hash:08x}", head.collect::<String>())
}

/// FNV-1a: the same in every process and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

//! The URL of a job, out of a header of the answer that has started it.

use http::{Uri, uri::PathAndQuery};

/// Returns the path and the query of a reference in an answer to `base` (RFC 9110, section 10.2.2),
/// if it names a URL of this origin. The fragment is not sent.
pub(super) fn resolve(reference: &str, base: &Uri, origin: &str) -> Option<String> {
    let text = reference.split('#').next().unwrap_or_default();
    let (scheme, rest) = scheme(text);
    let (authority, rest) = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(authority), rest)
        }
        None => (None, rest),
    };
    // `http:jobs/7` is read in two ways (RFC 3986, section 5.2.2).
    if reference.is_empty() || scheme.is_some() && authority.is_none() {
        return None;
    }
    let host = authority.or(base.authority().map(|of| of.as_str()))?;
    let (our_scheme, our_host) = origin.split_once("://")?;
    if normal(scheme.or(base.scheme_str())?, host) != normal(our_scheme, our_host) {
        return None;
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let (path, query) = match path {
        "" if authority.is_none() => (base.path().to_owned(), query.or(base.query())),
        path if authority.is_some() || path.starts_with('/') => (without_dots(path), query),
        path => {
            let (folder, _) = base.path().rsplit_once('/')?;
            (without_dots(&format!("{folder}/{path}")), query)
        }
    };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let whole = PathAndQuery::try_from(path + &query).ok()?;
    Some(whole.to_string())
}

/// Splits the scheme off, if there is one (RFC 3986, section 3.1).
fn scheme(text: &str) -> (Option<&str>, &str) {
    let is_in = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match text.split_once(':') {
        Some((scheme, rest)) if scheme.chars().all(is_in) => (Some(scheme), rest),
        _ => (None, text),
    }
}

/// An origin in small letters, without the port that its scheme has by default.
fn normal(scheme: &str, host: &str) -> String {
    let origin = format!("{scheme}://{host}").to_ascii_lowercase();
    let port = match origin.starts_with("https:") {
        true => ":443",
        false => ":80",
    };
    let bare = origin.strip_suffix(port).map(str::to_owned);
    bare.unwrap_or(origin)
}

/// A path without the segments `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut out = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => {
                if segment == ".." {
                    out.pop();
                }
                if segments.peek().is_none() {
                    out.push("");
                }
            }
            segment => out.push(segment),
        }
    }
    format!("/{}", out.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3986, sections 5.4.1 and 5.4.2, but for other schemes and hosts.
    #[test]
    fn the_examples_of_the_specification_are_resolved() {
        let base = Uri::from_static("http://a/b/c/d;p?q");
        for (reference, path) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x", "/b/c/g;x"),
            ("g;x?y#s", "/b/c/g;x?y"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
            ("g#s/../x", "/b/c/g"),
        ] {
            let found = resolve(reference, &base, "http://a");
            assert_eq!(found.as_deref(), Some(path), "{reference}");
        }
        for reference in ["g:h", "//g", "http:g", "https://a/g", "", "http://a:81/g"] {
            assert_eq!(resolve(reference, &base, "http://a"), None, "{reference}");
        }
        assert!(resolve("//A:80/g", &base, "http://a").is_some());
    }
}

//! The URL of a job, out of a header of the answer that has started it.

use fluent_uri::{Uri, UriRef};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters that RFC 3986 does not allow, and clients and servers send all the same.
const STRAY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Brackets are allowed in a host.
const STRAY_IN_QUERY: &AsciiSet = &STRAY.add(b'[').add(b']');

/// Returns the path and the query of a reference in an answer to `base` (RFC 9110, section 10.2.2),
/// if it names a URL of this origin. The fragment is not sent.
pub(super) fn resolve(reference: &str, base: &http::Uri, origin: &str) -> Option<String> {
    let reference = UriRef::parse(encoded(reference)).ok()?;
    // `http:jobs/7` is read in two ways (RFC 3986, section 5.2.2).
    let is_unclear = reference.has_scheme() && !reference.has_authority();
    if reference.as_str().is_empty() || is_unclear {
        return None;
    }
    let base = Uri::parse(encoded(&base.to_string())).ok()?;
    let found = reference.resolve_against(&base).ok()?;
    // In small letters, without a default port.
    let (theirs, ours) = (found.normalize(), Uri::parse(origin).ok()?.normalize());
    let [their_host, our_host] = [&theirs, &ours].map(|url| url.authority().map(|of| of.as_str()));
    if theirs.scheme() != ours.scheme() || their_host != our_host {
        return None;
    }
    let path = match found.path().as_str() {
        "" => "/",
        path => path,
    };
    let query = found.query().map(|query| format!("?{query}"));
    Some(path.to_owned() + &query.unwrap_or_default())
}

fn encoded(url: &str) -> String {
    let (before, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let before = utf8_percent_encode(before, STRAY);
    format!("{before}{}", utf8_percent_encode(query, STRAY_IN_QUERY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3986, sections 5.4.1 and 5.4.2, but for other schemes and hosts.
    #[test]
    fn the_examples_of_the_specification_are_resolved() {
        let base = http::Uri::from_static("http://a/b/c/d;p?q");
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
        // As the server wrote it: its signature may cover the text.
        let found = resolve("//A:80/%7eg?a=%2f", &base, "http://a");
        assert_eq!(found.as_deref(), Some("/%7eg?a=%2f"));
    }

    /// H-6: `http::Uri` takes what RFC 3986 does not allow, in the URL of a tool as well.
    #[test]
    fn stray_characters_are_encoded() {
        let base = http::Uri::from_static("http://a/jobs?page[size]=10");
        for (reference, path) in [
            ("/jobs/7?filter[id]=3", "/jobs/7?filter%5Bid%5D=3"),
            ("7|8", "/7%7C8"),
            ("a b", "/a%20b"),
            ("http://a/jobs/ö", "/jobs/%C3%B6"),
        ] {
            let found = resolve(reference, &base, "http://a");
            assert_eq!(found.as_deref(), Some(path), "{reference}");
        }
        let base = http::Uri::from_static("http://[::1]:80/jobs");
        let found = resolve("http://[::1]/jobs/7", &base, "http://[::1]:80");
        assert_eq!(found.as_deref(), Some("/jobs/7"));
    }
}

//! Which names are near another one: pure, and bounded.

use std::ops::ControlFlow;

use strsim::osa_distance;

use crate::text::Short;

/// How many are shown.
const MAX_NAMES: usize = 3;

/// Longer names, in characters, are compared for equality only.
const MAX_CHARS: usize = 128;

/// How many names are looked at, characters of them counted and pairs of these compared, in all:
/// some milliseconds. Then the search ends, wherever it is: names that come later in a list of many
/// thousands are not seen.
const MAX_WORK: usize = 1_000_000;

/// The cost of looking at a name, whatever the result.
const LOOK: usize = 24;

/// The names nearest to an unknown name.
pub(crate) struct Nearest<'a> {
    asked: Letters<'a>,
    bare: Letters<'a>,
    exact: Option<String>,
    /// Sorted.
    best: Vec<Near>,
    work: usize,
}

/// The order: a name from a server comes after a name of the program.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Near {
    distance: usize,
    of_server: bool,
    name: String,
}

impl<'a> Nearest<'a> {
    /// `bare`: the tool's own part of the name.
    pub(crate) fn to(asked: &'a str, bare: &'a str) -> Self {
        Self {
            asked: Letters::of(asked),
            bare: Letters::of(bare),
            exact: None,
            best: Vec::new(),
            work: MAX_WORK,
        }
    }

    pub(crate) fn bare(&self) -> &'a str {
        self.bare.text
    }

    /// A tool has the very name that was asked for, and was missed for another reason.
    pub(crate) fn is(&mut self, flat: &str) {
        self.exact = Some(flat.to_owned()).filter(|name| is_showable(name));
    }

    /// Offers a tool of the program.
    pub(crate) fn offer_local(&mut self, name: &str) -> ControlFlow<()> {
        self.look_at(name, name, false)
    }

    /// Offers a tool of a server: its flat name, and its own part of it.
    pub(crate) fn offer(&mut self, flat: &str, bare: &str) -> ControlFlow<()> {
        self.look_at(flat, bare, true)
    }

    /// Spends the cost of a look without a name. Breaks when the work is used up.
    pub(crate) fn skip(&mut self) -> ControlFlow<()> {
        match spend(&mut self.work, LOOK) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn look_at(&mut self, flat: &str, bare: &str, of_server: bool) -> ControlFlow<()> {
        self.skip()?;
        let Some(distance) = self.distance(flat, bare) else {
            return ControlFlow::Continue(());
        };
        let near = Near {
            distance,
            of_server,
            name: flat.to_owned(),
        };
        let at = self.best.partition_point(|other| *other < near);
        // The unknown name itself is not a suggestion.
        let is_shown = flat == self.asked.text
            || self.exact.as_deref() == Some(flat)
            || self.best.get(at) == Some(&near);
        if at < MAX_NAMES && !is_shown && is_showable(flat) {
            self.best.insert(at, near);
            self.best.truncate(MAX_NAMES);
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn into_names(self) -> Vec<String> {
        let best = self.best.into_iter().map(|near| near.name);
        self.exact.into_iter().chain(best).take(MAX_NAMES).collect()
    }

    fn distance(&mut self, flat: &str, bare: &str) -> Option<usize> {
        if self.bare.text.eq_ignore_ascii_case(bare) || self.asked.text.eq_ignore_ascii_case(flat) {
            return Some(0);
        }
        let mut near = self.asked.distance(flat, &mut self.work);
        if bare.len() != flat.len() || self.bare.text.len() != self.asked.text.len() {
            let by_part = self.bare.distance(bare, &mut self.work);
            near = [near, by_part].into_iter().flatten().min();
        }
        near
    }
}

/// Returns the known names that are nearest to an unknown name, three at most, for
/// [`ToolError::with_near`](crate::ToolError::with_near).
///
/// The names may come from servers: those that would not be shown as they are are left out, and the
/// work is bounded to some milliseconds, so of many thousands of names the last are not compared.
///
/// ```
/// let known = ["search", "fetch"];
/// assert_eq!(tower_toolcall::nearest("serach", known), ["search"]);
/// ```
pub fn nearest<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut nearest = Nearest::to(asked, asked);
    let _ = known
        .into_iter()
        .try_for_each(|name| nearest.offer_local(name));
    nearest.into_names()
}

/// A name, and how often it has which letter.
struct Letters<'a> {
    text: &'a str,
    chars: usize,
    counts: [i16; 64],
}

impl<'a> Letters<'a> {
    fn of(text: &'a str) -> Self {
        let mut counts = [0; 64];
        let mut chars = 0;
        for c in text.chars().take(MAX_CHARS + 1) {
            counts[slot(c)] += 1;
            chars += 1;
        }
        Self {
            text,
            chars,
            counts,
        }
    }

    /// Returns the distance: at most a third of the longer name, or nothing.
    fn distance(&self, other: &str, work: &mut usize) -> Option<usize> {
        // A character has at most four bytes.
        if other.len() > 4 * MAX_CHARS || self.chars > MAX_CHARS || !spend(work, other.len()) {
            return None;
        }
        let theirs = Letters::of(other);
        let limit = (self.chars.max(theirs.chars) / 3).max(1);
        if theirs.chars > MAX_CHARS
            || self.at_least(&theirs) > limit
            || !spend(work, self.chars * theirs.chars)
        {
            return None;
        }
        Some(osa_distance(self.text, other)).filter(|distance| *distance <= limit)
    }

    /// Each edit takes away one letter at the most, and adds one at the most.
    fn at_least(&self, other: &Letters<'_>) -> usize {
        let (mut more, mut less) = (0, 0);
        for (a, b) in self.counts.iter().zip(&other.counts) {
            more += usize::from(a.abs_diff(*b)) * usize::from(a > b);
            less += usize::from(a.abs_diff(*b)) * usize::from(a < b);
        }
        more.max(less)
    }
}

/// Returns whether there is so much left. What is not enough once is used up, so that no name is
/// counted in vain.
fn spend(work: &mut usize, cost: usize) -> bool {
    let enough = *work >= cost;
    *work = work.saturating_sub(cost);
    enough
}

/// Letters may share a place: the bound is a lower one all the same.
fn slot(c: char) -> usize {
    c as usize % 64
}

/// Returns whether a name can be called as it is shown, and is not a sentence, because names come
/// from servers.
fn is_showable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    name.chars().all(plain) && Short::name(name).to_string() == name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(asked: &str, names: &[&str]) -> Vec<String> {
        let bare = |name| str::split_once(name, "__").map_or(name, |(_, tool)| tool);
        let mut nearest = Nearest::to(asked, bare(asked));
        for name in names {
            let _ = nearest.offer(name, bare(name));
        }
        nearest.into_names()
    }

    #[test]
    fn the_three_nearest_come_in_their_order() {
        let names = ["docs__seach", "docs__sear", "web__fetch", "docs__searches"];
        assert_eq!(
            near("docs__search", &names),
            ["docs__seach", "docs__sear", "docs__searches"]
        );
        assert_eq!(near("pay", &names), [""; 0]);
    }

    #[test]
    fn a_bare_name_finds_its_server_and_a_wrong_server_is_put_right() {
        let names = ["docs__search", "pay"];
        for asked in [
            "search",
            "serach",
            "Search",
            "web__search",
            "doc__search",
            "DOCS__SEARCH",
        ] {
            assert_eq!(near(asked, &names), ["docs__search"], "{asked}");
        }
    }

    #[test]
    fn names_that_are_no_names_are_not_shown() {
        let secret = format!(
            "search{}",
            "§ghp_1234567890abcdefghijklmnopqrstuvwxyz".trim_start_matches('§')
        );
        let odd = [
            "search\n",
            "search ",
            "search'",
            "searc\u{202e}h",
            &*secret,
            &*"search".repeat(20),
        ];
        assert_eq!(near("search", &odd), [""; 0]);
    }

    #[test]
    fn long_names_are_compared_for_equality_only() {
        let long = "x".repeat(10_000);
        let other = format!("{long}y");
        assert_eq!(near(&long, &[&other]), [""; 0]);
        assert_eq!(near(&other, &["xxx"]), [""; 0]);
    }

    proptest! {
        /// The bound by letters never excludes a near name.
        #[test]
        fn the_lower_bound_is_one(a in "[abc_é]{0,12}", b in "[abc_é]{0,12}") {
            let bound = Letters::of(&a).at_least(&Letters::of(&b));
            prop_assert!(bound <= osa_distance(&a, &b));
        }
    }

    /// Ten thousand names of the same letters, so that no short cut helps. In release it takes some
    /// milliseconds.
    #[test]
    fn the_work_is_bounded() {
        let asked: String = ('a'..='z').cycle().take(MAX_CHARS).collect();
        let names: Vec<String> = (0..10_000)
            .map(|i| [&asked[i % 128..], &asked[..i % 128], "s"].concat()[1..].to_owned())
            .collect();
        let start = tokio::time::Instant::now();
        let mut nearest = Nearest::to(&asked, &asked);
        for name in &names {
            if nearest.offer(name, name).is_break() {
                break;
            }
        }
        println!("10,000 names of 128 characters: {:?}", start.elapsed());
        assert_eq!(nearest.work, 0);
        assert!(nearest.offer(&asked[1..], &asked[1..]).is_break());
        assert_eq!(
            nearest.into_names(),
            [""; 0],
            "nothing is compared any more"
        );
    }

    /// Names that are nothing like the one asked for are counted as well.
    #[test]
    fn a_million_names_are_not_all_looked_at() {
        let mut nearest = Nearest::to("x", "x");
        let looks = (0..1_000_000).take_while(|_| nearest.offer("docs__t", "t").is_continue());
        let looks = looks.count();
        assert!((10_000..42_000).contains(&looks), "{looks}");
    }

    /// A name of a server's never stands before one of the program's that is as near.
    #[test]
    fn local_tools_come_before_those_of_servers() {
        let mut nearest = Nearest::to("Pay", "Pay");
        for name in ["PAY", "pay", "PAy"] {
            let _ = nearest.offer(&format!("evil__{name}"), name);
        }
        let _ = nearest.offer_local("pay");
        assert_eq!(nearest.into_names(), ["pay", "evil__PAY", "evil__PAy"]);
    }

    #[test]
    fn the_longest_name_that_is_compared_has_128_characters() {
        for (len, is_near) in [(128, true), (129, false)] {
            let name = "x".repeat(len);
            let mut work = usize::MAX;
            let distance = Letters::of(&name).distance(&name, &mut work);
            assert_eq!(distance.is_some(), is_near, "{len}");
        }
    }

    /// A list of this many names of a usual length is searched to its end.
    #[test]
    fn a_list_of_thousands_is_searched_to_its_end() {
        let mut nearest = Nearest::to("docs__serch_in_files", "serch_in_files");
        for i in 0..10_000 {
            let name = format!("docs__tool_number_{i}");
            assert!(nearest.offer(&name, &name[6..]).is_continue());
        }
        let _ = nearest.offer("docs__search_in_files", "search_in_files");
        assert_eq!(nearest.into_names(), ["docs__search_in_files"]);
    }
}

//! What this process tells, until it is over or taken back.

use std::{
    collections::{BTreeSet, HashMap},
    mem::discriminant,
    time::Duration,
};

use super::{
    fleet::{FORCED, MAX_KEYS, Word},
    store::{Entry, MAX_ENTRIES},
};

/// Within what time words of others are told again to a store that has lost them, unless somebody
/// else was faster.
const COPIES: Duration = Duration::from_secs(10);

/// A word that holds.
#[derive(Debug)]
pub(super) struct Own {
    word: Word,
    /// Until when it is of use to anybody.
    until: Duration,
    told_at: Option<Duration>,
    /// Another process has said it first.
    is_copy: bool,
}

#[derive(Debug)]
pub(super) struct Words {
    words: HashMap<String, Own>,
    /// The keys whose words are to be told.
    due: BTreeSet<String>,
    /// From 0 to 1, different in each process: what all would repeat is repeated by one.
    turn: f64,
}

impl Words {
    pub(super) fn new(turn: f64) -> Self {
        Self {
            words: HashMap::new(),
            due: BTreeSet::new(),
            turn,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Word> {
        self.words.get(key).map(|own| own.word)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.due.is_empty()
    }

    /// Keeps a word, to be told with the next exchange. False: there is no place for another key.
    pub(super) fn say(&mut self, key: String, word: Word, now: Duration) -> bool {
        if self.words.len() >= MAX_KEYS && !self.words.contains_key(&key) {
            self.forget(now);
            // Each kind has its own places. How many are forced is bounded elsewhere.
            let is_alike = |own: &&Own| discriminant(&own.word) == discriminant(&word);
            let is_forced = matches!(word, Word::Forced { .. });
            if !is_forced && self.words.values().filter(is_alike).count() >= MAX_KEYS {
                return false;
            }
        }
        let until = match word {
            // It holds until it is taken back.
            Word::Forced { .. } => Duration::MAX,
            word => now.saturating_add(word.lasts()),
        };
        let own = Own {
            word,
            until,
            told_at: None,
            is_copy: false,
        };
        self.due.insert(key.clone());
        self.words.insert(key, own);
        true
    }

    /// Keeps the word of another process, to be told again when the store has forgotten it.
    pub(super) fn copy(&mut self, key: String, word: Word, now: Duration) {
        let own = Own {
            word,
            until: Duration::MAX,
            told_at: Some(now),
            is_copy: true,
        };
        self.due.remove(&key);
        self.words.insert(key, own);
    }

    pub(super) fn take_back(&mut self, key: &str) -> Option<Own> {
        self.due.remove(key);
        self.words.remove(key)
    }

    /// Tells a word that was taken back, as one that comes after the forced state of this number.
    pub(super) fn say_after(&mut self, key: String, mut own: Own, number: u64) {
        if let Word::Open { after, .. } | Word::Cooling { after, .. } = &mut own.word {
            *after = number;
        }
        own.told_at = None;
        self.due.insert(key.clone());
        self.words.insert(key, own);
    }

    /// The store has this word, from this process or another one.
    pub(super) fn is_told(&mut self, key: &str, now: Duration) {
        if let Some(own) = self.words.get_mut(key) {
            own.told_at = Some(now);
        }
    }

    /// Tells the words of these keys once more, if they still hold.
    pub(super) fn repeat(&mut self, keys: Vec<String>) {
        self.due.extend(keys);
    }

    /// Another store than before knows only these keys. What others have said first they tell
    /// first.
    pub(super) fn repeat_all_but(&mut self, told: &[String], now: Duration) {
        let told: BTreeSet<_> = told.iter().collect();
        let delay = COPIES.mul_f64(self.turn);
        let is_due_at = (now + delay).saturating_sub(self.forced_period());
        for (key, own) in &mut self.words {
            match own.is_copy {
                true => own.told_at = Some(is_due_at),
                false if told.contains(key) => {}
                false => _ = self.due.insert(key.clone()),
            }
        }
    }

    /// How long after it was told a forced state is told again: before the store forgets it, and by
    /// one process.
    fn forced_period(&self) -> Duration {
        FORCED / 2 + (FORCED / 4).mul_f64(self.turn)
    }

    fn forget(&mut self, now: Duration) {
        self.words.retain(|_, own| own.until > now);
    }

    /// The words of the next exchange, with their keys.
    pub(super) fn next(&mut self, now: Duration) -> (Vec<String>, Vec<Entry>) {
        self.forget(now);
        let period = self.forced_period();
        let is_old = |own: &Own| {
            let at = own.told_at.unwrap_or(now);
            matches!(own.word, Word::Forced { .. }) && now >= at.saturating_add(period)
        };
        let old = self.words.iter().filter(|(_, own)| is_old(own));
        self.due.extend(old.map(|(key, _)| key.clone()));
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        while entries.len() < MAX_ENTRIES
            && let Some(key) = self.due.pop_first()
        {
            let Some(own) = self.words.get(&key) else {
                continue;
            };
            entries.push(Entry {
                key: key.clone(),
                value: own.word.encode(),
                // What has passed since it was said is over.
                lasts: own.word.lasts().min(own.until.saturating_sub(now)),
            });
            keys.push(key);
        }
        (keys, entries)
    }
}

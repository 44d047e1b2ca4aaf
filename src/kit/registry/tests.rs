use std::{
    sync::{OnceLock, atomic::AtomicUsize, mpsc},
    thread,
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{Key, ToolCall};

type Run = fn(&Registry<State>);

/// A state that says itself how long it has to stay.
#[derive(Debug, Default)]
struct State {
    keep: AtomicU8,
    calls: AtomicUsize,
    /// Runs once, at this look at it for an eviction.
    considered: OnceLock<(usize, Run)>,
    of: OnceLock<Registry<State>>,
}

const KEEPS: [Eviction; 3] = [Eviction::Free, Eviction::Costly, Eviction::Forbidden];

impl State {
    fn set(&self, keep: Eviction) {
        self.keep.store(keep as u8, Relaxed);
    }
}

impl Evict for State {
    const IS_KNOWN: bool = false;

    fn eviction(&self) -> Eviction {
        let keep = KEEPS[usize::from(self.keep.load(Relaxed))];
        if let (Some((at, run)), Some(registry)) = (self.considered.get(), self.of.get())
            && self.calls.fetch_add(1, Relaxed) == *at
        {
            run(registry);
        }
        keep
    }
}

fn registry(max: usize) -> Registry<State> {
    Registry::new(
        "layer",
        Key::Tool,
        max,
        State::default(),
        Listener::default(),
    )
}

fn look(registry: &Registry<State>, name: &str) -> Arc<Entry<State>> {
    registry.entry(&ToolCall::new(name).info(), State::default)
}

/// Returns a call that succeeds.
fn succeeds(registry: &Registry<State>, name: &str) -> bool {
    let entry = look(registry, name);
    entry.prove(&ToolCall::new(name).info());
    entry.name().is_some()
}

/// A call that leaves its state in need of this.
fn leaves(registry: &Registry<State>, name: &str, keep: Eviction) -> bool {
    let entry = look(registry, name);
    if entry.name().is_some() {
        entry.value().set(keep);
    }
    entry.name().is_some()
}

fn invent(registry: &Registry<State>, names: usize) {
    (0..names).for_each(|n| drop(look(registry, &format!("invented-{n}"))));
}

fn is_there(registry: &Registry<State>, name: &str) -> bool {
    registry.peek(&ToolCall::new(name).info()).is_some()
}

#[test]
fn a_key_has_one_entry_that_clones_share() {
    let a = registry(10);
    let b = a.clone();
    let entry = look(&a, "x");
    assert!(Arc::ptr_eq(&entry, &look(&b, "x")));
    assert!(!Arc::ptr_eq(&entry, &look(&b, "y")));
    assert_eq!(
        (a.len(), entry.name(), entry.server()),
        (2, Some("x"), None)
    );
}

#[test]
fn calls_on_other_threads_share_the_value_and_not_the_reference_count() {
    let registry = registry(10);
    let mine = look(&registry, "x");
    let other = thread::scope(|scope| scope.spawn(|| look(&registry, "x")).join().unwrap());
    assert!(!Arc::ptr_eq(&mine, &other));
    assert!(std::ptr::eq(mine.value(), other.value()));
    assert_eq!((other.name(), registry.len()), (Some("x"), 1));
}

/// With a lock held meanwhile it would wait for itself.
#[test]
fn key_functions_and_listeners_may_look_at_the_keys() {
    let own: Arc<OnceLock<Registry<State>>> = Arc::default();
    let (of_key, of_listener) = (Arc::clone(&own), Arc::clone(&own));
    let key = Key::by(move |call| {
        of_key.get().map(Registry::len);
        call.tool()
    });
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let listener = Listener::new(move |event: &Event<'_>| {
        let Event::Evicted { keys, kept } = event else {
            panic!("{event:?}");
        };
        assert_eq!(Some(keys + kept), of_listener.get().map(Registry::len));
        count.fetch_add(*keys, Relaxed);
    });
    let registry = Registry::new("layer", key, 100, State::default(), listener);
    assert!(own.set(registry.clone()).is_ok());
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        invent(&registry, 1000);
        done.send(registry.len())
    });
    let len = ended.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(heard.load(Relaxed) + len, 1000);
}

/// V2: half of them.
#[test]
fn a_hundred_thousand_invented_names_never_exceed_the_bound() {
    let registry = registry(1000);
    leaves(&registry, "open", Eviction::Forbidden);
    for n in 0..100_000 {
        look(&registry, &format!("invented-{n}"));
        assert!(registry.len() <= 500);
    }
    let kept = look(&registry, "open").value().keep.load(Relaxed);
    assert_eq!(kept, Eviction::Forbidden as u8);
}

#[test]
fn keys_in_use_and_keys_that_should_stay_outlive_idle_ones() {
    let registry = registry(200);
    let in_use = look(&registry, "in use");
    leaves(&registry, "dirty", Eviction::Costly);
    look(&registry, "idle").value().calls.store(7, Relaxed);
    for n in 0..10_000 {
        look(&registry, &format!("busy-{}", n % 70));
        look(&registry, &format!("invented-{n}"));
    }
    assert!(Arc::ptr_eq(&in_use, &look(&registry, "in use")));
    assert!(is_there(&registry, "dirty"));
    assert_eq!(look(&registry, "idle").value().calls.load(Relaxed), 0);
}

#[test]
fn of_too_many_keys_that_should_stay_those_that_are_used_do() {
    let registry = registry(200);
    leaves(&registry, "used", Eviction::Costly);
    let value = std::ptr::from_ref(look(&registry, "used").value());
    for n in 0..10_000 {
        assert!(leaves(&registry, &format!("{n}"), Eviction::Costly));
        let used = look(&registry, "used");
        assert!(std::ptr::eq(used.value(), value), "{n}");
    }
}

#[test]
fn new_keys_share_the_overflow_entry_until_there_is_a_place() {
    let registry = registry(16);
    let open: Vec<_> = (0..8).map(|n| look(&registry, &format!("{n}"))).collect();
    let (a, b) = (look(&registry, "a"), look(&registry, "b"));
    assert!(Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&a, &registry.0.overflow));
    assert_eq!((registry.len(), registry.entries().len()), (8, 8));
    drop(open);
    assert_eq!(look(&registry, "a").name(), Some("a"));
}

#[test]
fn of_a_long_name_little_is_kept_and_it_has_its_own_entry() {
    let registry = registry(10);
    let name = "ä".repeat(1 << 19);
    let entry = look(&registry, &name);
    assert_eq!(entry.name().unwrap().len(), MAX_NAME_BYTES);
    let look = |server: char| {
        let server = format!("{}{server}", "x".repeat(300));
        let call = ToolCall::new(&*name).with_server(server).info();
        registry.entry(&call, State::default)
    };
    assert!(!Arc::ptr_eq(&look('a'), &look('b')) && !Arc::ptr_eq(&look('a'), &entry));
}

/// While a thread considers its eviction: a state that a call has made one to keep is not lost.
#[test]
fn a_value_that_is_looked_up_during_an_eviction_stays() {
    static HELD: Mutex<Vec<Arc<Entry<State>>>> = Mutex::new(Vec::new());
    let runs: [Run; 2] = [
        |registry| look(registry, "x").value().set(Eviction::Forbidden),
        |registry| HELD.lock().unwrap().push(look(registry, "x")),
    ];
    for (at, run) in [(0, runs[0]), (1, runs[0]), (0, runs[1]), (1, runs[1])] {
        let registry = registry(2);
        let entry = look(&registry, "x");
        entry.value().considered.set((at, run)).unwrap();
        assert!(entry.value().of.set(registry.clone()).is_ok());
        drop(entry);
        assert_eq!(look(&registry, "new").name(), None);
        assert_ne!(look(&registry, "x").value().calls.load(Relaxed), 0);
    }
    HELD.lock().unwrap().clear();
}

/// V2.
#[test]
fn keys_that_are_not_known_have_half_of_the_places() {
    let registry = registry(100);
    let found =
        (0..1000).filter(|n| leaves(&registry, &format!("invented-{n}"), Eviction::Forbidden));
    assert_eq!(found.count(), 50);
    // Known ones have the rest: each has a place once it has succeeded without one.
    for n in 0..50 {
        let name = format!("real-{n}");
        assert!(!succeeds(&registry, &name) && succeeds(&registry, &name));
    }
    assert_eq!(registry.len(), 100);
    assert!((0..50).all(|n| is_there(&registry, &format!("real-{n}"))));
}

/// V2: those that are not known are evicted first.
#[test]
fn known_keys_that_are_idle_outlive_invented_ones() {
    let registry = registry(100);
    registry.declare(&ToolCall::new("declared").info(), State::default);
    (0..40).for_each(|n| assert!(succeeds(&registry, &format!("real-{n}"))));
    invent(&registry, 10_000);
    assert!((0..40).all(|n| is_there(&registry, &format!("real-{n}"))));
    // More real ones than there is room for: what is declared stays.
    (0..1000).for_each(|n| _ = succeeds(&registry, &format!("another-{n}")));
    assert!(is_there(&registry, "declared") && registry.len() == 100);
}

/// V2: what has a state to lose is not evicted while there is room.
#[test]
fn a_state_stays_if_others_of_its_half_have_become_known() {
    let registry = registry(100);
    assert!(leaves(&registry, "failing", Eviction::Costly));
    (0..49).for_each(|n| assert!(succeeds(&registry, &format!("real-{n}"))));
    assert_eq!(look(&registry, "new").name(), Some("new"));
    assert!(is_there(&registry, "failing"));
}

#[test]
fn keys_that_wait_for_a_place_are_bounded() {
    let registry = registry(1);
    assert!(leaves(&registry, "open", Eviction::Forbidden));
    for n in 0..10_000 {
        assert!(!succeeds(&registry, &format!("real-{n}")));
    }
    assert_eq!(lock(&registry.0.proofs.waiting).len(), MOST_PROVED);
}

/// Counts the values that live, and looks at the keys when it is dropped.
#[derive(Debug)]
struct Live {
    count: Arc<AtomicUsize>,
    registry: Arc<OnceLock<std::sync::Weak<Shared<Live>>>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
        if let Some(shared) = self.registry.get().and_then(std::sync::Weak::upgrade) {
            Registry(shared).len();
        }
    }
}

impl Evict for Live {
    fn eviction(&self) -> Eviction {
        Eviction::Free
    }
}

/// On eight threads: each call has the entry of its key, or the overflow one, and the calls that
/// are in flight together have the same value; no value is left when all have ended.
#[test]
fn keys_that_come_and_go_on_many_threads_are_what_they_seem() {
    for max in [1, 7, 63] {
        let (count, own) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let make = || {
            count.fetch_add(1, Relaxed);
            Live {
                count: Arc::clone(&count),
                registry: Arc::clone(&own),
            }
        };
        let registry = Registry::new("layer", Key::Tool, max, make(), Listener::default());
        own.set(Arc::downgrade(&registry.0)).unwrap();
        let ended = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for thread in 0..8 {
                let (registry, ended, make) = (&registry, &ended, &make);
                scope.spawn(move || {
                    for i in 0..3000 {
                        let name = match i % 4 {
                            0 => format!("invented-{thread}-{i}"),
                            _ => format!("known-{}", (i + thread) % 5),
                        };
                        let call = ToolCall::new(&*name).info();
                        let held = [(); 2].map(|()| registry.entry(&call, make));
                        assert!(held.iter().all(|it| it.name().is_none_or(|n| n == name)));
                        if let [Some(_), Some(_)] = held.each_ref().map(|it| it.name()) {
                            assert!(std::ptr::eq(held[0].value(), held[1].value()));
                        }
                        assert!(registry.len() <= max);
                        // Dropped by another thread.
                        drop(std::mem::replace(&mut *ended.lock().unwrap(), held.into()));
                    }
                });
            }
        });
        drop(ended);
        assert_eq!(count.load(Relaxed), 1 + registry.len());
        let new = |n| registry.entry(&ToolCall::new(format!("{n}")).info(), make);
        let new: Vec<_> = (0..max).map(new).collect();
        assert!(new.iter().all(|new| new.name().is_some()));
        drop((new, registry));
        assert_eq!(count.load(Relaxed), 0);
    }
}

/// What a test does to a key.
#[derive(Clone, Debug)]
enum Act {
    Look,
    Hold,
    Release,
    Leave(Eviction),
    Succeed,
}

fn acts() -> impl Strategy<Value = Vec<(u8, Act)>> {
    let act = prop_oneof![
        4 => Just(Act::Look),
        2 => Just(Act::Hold),
        2 => Just(Act::Release),
        3 => (0..3usize).prop_map(|keep| Act::Leave(KEEPS[keep])),
        2 => Just(Act::Succeed),
    ];
    prop::collection::vec((0..24u8, act), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The bounds hold, what is held or must stay is never lost, and a key that is held has one
    /// value.
    #[test]
    fn random_calls_keep_what_must_stay(max in 1..12usize, acts in acts()) {
        let registry = registry(max);
        let mut held: HashMap<u8, Vec<Arc<Entry<State>>>> = HashMap::new();
        let mut open = HashMap::new();
        for (n, act) in acts {
            let name = n.to_string();
            let entry = look(&registry, &name);
            let value = std::ptr::from_ref(entry.value());
            let has_place = entry.name().is_some();
            prop_assert!(entry.name().is_none_or(|found| found == name));
            if let Some(known) = held.get(&n).and_then(|all| all.first()) {
                prop_assert_eq!(std::ptr::from_ref(known.value()), value);
            }
            prop_assert!(open.get(&n).is_none_or(|known| *known == value));
            match act {
                Act::Hold if has_place => held.entry(n).or_default().push(entry),
                Act::Release => drop(held.remove(&n)),
                Act::Leave(keep) if has_place => {
                    entry.value().set(keep);
                    match keep {
                        Eviction::Forbidden => drop(open.insert(n, value)),
                        _ => drop(open.remove(&n)),
                    }
                }
                Act::Succeed => entry.prove(&ToolCall::new(name).info()),
                _ => {}
            }
            let entries = registry.entries();
            prop_assert!(entries.len() <= max && registry.len() == entries.len());
            let unknown = entries.iter().filter(|entry| !entry.is_known()).count();
            prop_assert!(unknown <= max.div_ceil(2));
        }
    }
}

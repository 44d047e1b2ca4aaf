use super::*;
use crate::{Key, ToolCall};
use std::sync::{OnceLock, Weak, atomic::AtomicUsize, mpsc};

/// May be evicted unless told otherwise.
#[derive(Debug, Default)]
struct State {
    open: AtomicBool,
    dirty: AtomicBool,
    calls: AtomicUsize,
}

impl Evict for State {
    fn keep(&self) -> Keep {
        match self.open.load(Relaxed) {
            true => Keep::Always,
            false if self.dirty.load(Relaxed) => Keep::IfPossible,
            false => Keep::IfUsed,
        }
    }
}

impl<V: Evict> Registry<V> {
    /// The entry of a stranger's call.
    fn get(&self, call: &CallInfo, make: impl FnOnce() -> V) -> Arc<Entry<V>> {
        self.with(call, make, Arc::clone)
    }
}

fn look(registry: &Registry<State>, name: &str) -> Arc<Entry<State>> {
    let call = ToolCall::new(name).info();
    registry.get(&call, State::default)
}

/// Marks an entry without keeping it, which would pin it.
fn mark(entry: &Entry<State>) {
    entry.value().calls.store(7, Relaxed);
}

fn is_marked(entry: &Entry<State>) -> bool {
    entry.value().calls.load(Relaxed) == 7
}

fn registry(max: usize) -> Registry<State> {
    Registry::new(Key::Tool, max, State::default(), Listener::default())
}

#[test]
fn the_same_key_finds_the_same_entry_and_clones_share_it() {
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

/// With a lock held meanwhile it would wait for itself.
#[test]
fn a_key_function_may_look_at_the_keys() {
    let own: Arc<OnceLock<Registry<State>>> = Arc::default();
    let of = Arc::clone(&own);
    let key = Key::by(move |call| {
        of.get().map(Registry::len);
        call.tool()
    });
    let registry = Registry::new(key, 10, State::default(), Listener::default());
    assert!(own.set(registry.clone()).is_ok());
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(look(&registry, "x").name() == Some("x")));
    let found = ended.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(found, Ok(true));
}

#[test]
fn the_default_bound_is_ten_thousand_keys() {
    let registry = Registry::<State>::default();
    for i in 0..11_000 {
        let entry = look(&registry, &format!("{i}"));
        entry.value().open.store(true, Relaxed);
    }
    assert_eq!(registry.len(), 10_000);
}

#[test]
fn a_hundred_thousand_invented_names_never_exceed_the_bound() {
    let registry = registry(1000);
    let open = look(&registry, "open");
    open.value().open.store(true, Relaxed);
    for i in 0..100_000 {
        look(&registry, &format!("invented-{i}"));
        assert!(registry.len() <= 1000);
    }
    assert!(Arc::ptr_eq(&open, &look(&registry, "open")));
}

#[test]
fn a_key_that_is_used_outlives_keys_that_are_not() {
    let registry = registry(100);
    let used = look(&registry, "used");
    for i in 0..10_000 {
        look(&registry, &format!("invented-{i}"));
        assert!(Arc::ptr_eq(&used, &look(&registry, "used")), "{i}");
    }
}

#[test]
fn an_idle_key_is_evicted_and_starts_afresh() {
    let registry = registry(100);
    mark(&look(&registry, "idle"));
    for i in 0..1000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert!(!is_marked(&look(&registry, "idle")));
}

/// A breaker that has counted four failures of five, between two of its calls.
#[test]
fn a_key_that_should_stay_outlives_idle_and_busy_ones() {
    let registry = registry(100);
    let dirty = look(&registry, "dirty");
    dirty.value().dirty.store(true, Relaxed);
    mark(&dirty);
    drop(dirty);
    for i in 0..10_000 {
        look(&registry, &format!("busy-{}", i % 80));
        look(&registry, &format!("invented-{i}"));
    }
    assert!(is_marked(&look(&registry, "dirty")));
}

#[test]
fn of_too_many_keys_that_should_stay_those_that_are_used_do() {
    let registry = registry(100);
    for i in 0..10_000 {
        let entry = look(&registry, &format!("invented-{i}"));
        entry.value().dirty.store(true, Relaxed);
        let used = look(&registry, "used");
        used.value().dirty.store(true, Relaxed);
        if i == 0 {
            mark(&used);
        }
    }
    assert!(is_marked(&look(&registry, "used")));
    assert_eq!(look(&registry, "another").name(), Some("another"));
}

#[test]
fn a_key_with_a_call_in_flight_is_not_evicted() {
    let registry = registry(100);
    let in_flight = look(&registry, "x");
    for i in 0..10_000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert!(Arc::ptr_eq(&in_flight, &look(&registry, "x")));
}

/// C9.
#[test]
fn a_listener_hears_of_evictions_and_may_look_at_the_keys() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let listener = Listener::new(move |event: &Event<'_>| {
        let Event::Evicted { keys, kept } = event else {
            panic!("{event:?}");
        };
        assert!(*keys > 0 && keys + kept == 100);
        count.fetch_add(*keys, Relaxed);
    });
    let registry = Registry::new(Key::Tool, 100, State::default(), listener);
    for i in 0..1000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert_eq!(heard.load(Relaxed) + registry.len(), 1000);
}

#[test]
fn when_nothing_may_be_evicted_new_keys_share_the_overflow_entry() {
    let registry = registry(100);
    for i in 0..100 {
        let entry = look(&registry, &format!("open-{i}"));
        entry.value().open.store(true, Relaxed);
    }
    let (a, b) = (look(&registry, "a"), look(&registry, "b"));
    assert!(Arc::ptr_eq(&a, &b));
    assert!(Arc::ptr_eq(&a, &registry.0.overflow));
    assert_eq!(registry.len(), 100);
    assert_eq!(registry.entries().len(), 100);
}

#[test]
fn a_key_finds_a_place_again_once_others_may_be_evicted() {
    let registry = registry(8);
    let open: Vec<_> = (0..8).map(|i| look(&registry, &format!("{i}"))).collect();
    open.iter()
        .for_each(|e| e.value().open.store(true, Relaxed));
    assert_eq!(look(&registry, "new").name(), None);
    open.iter()
        .for_each(|e| e.value().open.store(false, Relaxed));
    drop(open);
    assert!((0..3).any(|_| look(&registry, "new").name() == Some("new")));
}

#[test]
fn of_a_name_of_a_megabyte_little_is_kept_and_it_has_its_own_entry() {
    let registry = registry(10);
    let name = "ä".repeat(1 << 19);
    let entry = look(&registry, &name);
    assert!(Arc::ptr_eq(&entry, &look(&registry, &name)));
    let other = look(&registry, &format!("{}x", &name[2..]));
    assert!(!Arc::ptr_eq(&entry, &other));
    assert_eq!(entry.name().unwrap().len(), MAX_NAME_BYTES);
}

#[test]
fn two_servers_with_long_addresses_have_their_own_entries() {
    let registry = registry(10);
    let look = |server: String| {
        let call = ToolCall::new("t").with_server(server).info();
        registry.get(&call, State::default)
    };
    let a = look(format!("{}a", "x".repeat(300)));
    let b = look(format!("{}b", "x".repeat(300)));
    assert!(!Arc::ptr_eq(&a, &b));
}

/// Counts the values that live.
#[derive(Debug)]
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Evict for Live {
    fn keep(&self) -> Keep {
        Keep::IfUsed
    }
}

#[test]
fn what_is_evicted_is_gone_whoever_has_looked_at_it() {
    let live = Arc::new(AtomicUsize::new(0));
    let listener = Listener::default();
    let registry = Registry::new(Key::Tool, 100, Live::new(&live), listener);
    let mut idle = Vec::new();
    for i in 0..10_000 {
        let call = ToolCall::new(format!("invented-{i}")).info();
        registry.get(&call, || Live::new(&live));
        if i % 100 == 0 {
            let clone = registry.clone();
            clone.get(&call, || Live::new(&live));
            idle.push(clone);
        }
        // The overflow entry and the table's.
        assert!(live.load(Relaxed) <= 1 + 100);
    }
}

#[test]
fn a_key_that_was_evicted_and_made_anew_is_one_key_for_all() {
    let a = registry(100);
    let idle = a.clone();
    mark(&look(&idle, "y"));
    for i in 0..1000 {
        look(&a, &format!("invented-{i}"));
    }
    let new = look(&a, "y");
    assert!(!is_marked(&new));
    assert!(Arc::ptr_eq(&new, &look(&idle, "y")));
}

#[test]
fn a_key_that_is_not_used_any_more_loses_its_place_in_the_end() {
    let registry = registry(100);
    mark(&look(&registry, "y"));
    look(&registry, "y");
    for i in 0..1000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert!(!is_marked(&look(&registry, "y")));
}

/// Three threads look, again and again, while names are invented; nobody gets another key's entry.
fn while_names_are_invented(
    names: u32,
    invented: impl Fn(&str) -> Arc<Entry<State>>,
    again: impl Fn() + Sync,
) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    again();
                }
            });
        }
        for i in 0..names {
            is_of_or_nameless(&invented(&i.to_string()), &i.to_string());
        }
        done.store(true, Relaxed);
    });
}

/// The overflow entry, when there is no place, has no name.
fn is_of_or_nameless(entry: &Entry<State>, name: &str) {
    assert!(entry.name().is_none_or(|found| found == name));
}

/// Tables change while others look up.
#[test]
fn a_key_finds_its_own_entry_while_tables_change() {
    let shared = registry(64);
    let known: Vec<_> = (0..8).map(|i| format!("known-{i}")).collect();
    let again = || {
        for name in &known {
            is_of_or_nameless(&look(&shared, name), name);
        }
    };
    while_names_are_invented(300_000, |name| look(&shared, name), again);
}

#[test]
fn a_bound_of_one_holds() {
    let registry = registry(1);
    for i in 0..100 {
        let name = format!("{i}");
        assert_eq!(look(&registry, &name).name(), Some(&*name));
        assert_eq!(registry.len(), 1);
    }
}

#[test]
fn an_instance_that_has_not_looked_since_sees_the_present_table() {
    let a = registry(64);
    let idle = a.clone();
    let entry = look(&a, "x");
    for i in 0..10_000 {
        look(&a, &format!("invented-{i}"));
        look(&a, "x");
    }
    assert!(Arc::ptr_eq(&entry, &look(&idle, "x")));
}

#[test]
fn threads_that_add_the_same_keys_at_once_agree_on_them() {
    let shared = registry(1000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mine = shared.clone();
            scope.spawn(move || {
                for i in 0..500 {
                    let entry = look(&mine, &format!("{i}"));
                    entry.value().calls.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(shared.len(), 500);
    for entry in shared.entries() {
        assert_eq!(entry.value().calls.load(Relaxed), 4);
    }
}

/// Tells when a sweep decides on it, and waits until somebody else has looked it up.
#[derive(Debug, Default)]
struct Swept {
    looks: AtomicUsize,
    race: OnceLock<(mpsc::SyncSender<()>, Weak<Entry<Swept>>)>,
    kept: AtomicBool,
}

impl Evict for Swept {
    fn keep(&self) -> Keep {
        // The first look only counts.
        if self.looks.fetch_add(1, Relaxed) == 1
            && let Some((decides, entry)) = self.race.get()
        {
            let holders = entry.strong_count();
            decides.send(()).unwrap();
            while entry.strong_count() == holders {
                std::thread::yield_now();
            }
        }
        Keep::IfUsed
    }
}

/// It must not be one that a sweep under way has just given up.
#[test]
fn a_value_that_is_made_one_to_keep_stays() {
    let registry = Registry::new(Key::Tool, 2, Swept::default(), Listener::default());
    let [a, b, c] = ["a", "b", "c"].map(|name| ToolCall::new(name).info());
    let (decides, decided) = mpsc::sync_channel(1);
    let entry = registry.get(&a, Swept::default);
    entry
        .value()
        .race
        .set((decides, Arc::downgrade(&entry)))
        .unwrap();
    drop(entry);
    registry.get(&b, Swept::default);
    std::thread::scope(|scope| {
        let (registry, a) = (&registry, &a);
        scope.spawn(move || {
            decided.recv().unwrap();
            registry.with_kept(a, Swept::default, |e| e.value().kept.store(true, Relaxed));
        });
        registry.get(&c, Swept::default);
    });
    let there = registry.peek(&a).expect("it is kept");
    assert!(there.value().kept.load(Relaxed));
}

fn keep(registry: &Registry<State>, name: &str) -> Arc<Entry<State>> {
    registry.keep(&ToolCall::new(name).info(), State::default)
}

/// The hot keys of this thread's lane.
fn hot(registry: &Registry<State>) -> usize {
    registry.lane().read().hot.len()
}

/// Makes a key hot in this thread's lane, and lets it be idle.
fn heat(registry: &Registry<State>, name: &str) {
    let held = keep(registry, name);
    keep(registry, name);
    drop(held);
}

/// Two names that have the same place.
fn neighbours() -> (String, String) {
    let registry = registry(1000);
    let entry = look(&registry, "a");
    let mut others = (0..).map(|i| format!("b-{i}"));
    let other = others.find(|name| hot::place(&look(&registry, name)) == hot::place(&entry));
    ("a".to_owned(), other.unwrap())
}

#[test]
fn a_key_becomes_hot_only_while_somebody_else_has_it_in_flight() {
    let registry = registry(10);
    for _ in 0..10_000 {
        let alone = keep(&registry, "x");
        assert!(Arc::ptr_eq(
            &alone,
            &registry.peek(&ToolCall::new("x").info()).unwrap()
        ));
    }
    assert!(registry.lane().read().hot.is_empty());
    let elsewhere = registry.clone();
    let in_flight = std::thread::spawn(move || keep(&elsewhere, "x"));
    let in_flight = in_flight.join().unwrap();
    let mine = keep(&registry, "x");
    assert!(mine.is_of(&in_flight));
    assert_eq!(hot(&registry), 1);
}

#[test]
fn what_stands_for_an_entry_has_its_value_and_its_name() {
    let registry = registry(10);
    let entry = look(&registry, "x");
    let held = keep(&registry, "x");
    assert!(!Arc::ptr_eq(&held, &entry));
    assert!(std::ptr::eq(held.value(), entry.value()));
    assert_eq!((held.name(), held.server()), (Some("x"), None));
}

/// Otherwise threads would write to the same cache line as before.
#[test]
fn calls_with_a_hot_key_leave_the_count_of_its_entry_alone() {
    let registry = registry(10);
    heat(&registry, "x");
    let entry = look(&registry, "x");
    let before = Arc::strong_count(&entry);
    let held: Vec<_> = (0..100).map(|_| keep(&registry, "x")).collect();
    assert_eq!(Arc::strong_count(&entry), before);
    assert!(held.iter().all(|held| held.is_of(&entry)));
}

#[test]
fn a_hot_key_is_forgotten_by_a_sweep_once_it_is_idle() {
    let registry = registry(100);
    heat(&registry, "x");
    mark(&look(&registry, "x"));
    assert_eq!(hot(&registry), 1);
    for i in 0..1000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert_eq!(hot(&registry), 0);
    assert!(!is_marked(&keep(&registry, "x")));
}

/// Threads that are gone leave their lanes as they were.
#[test]
fn keys_that_are_hot_in_every_lane_are_forgotten_once_they_are_idle() {
    for max in [1, 16] {
        let registry = registry(max);
        std::thread::scope(|scope| {
            for _ in 0..2 * lanes() {
                let heat = || (0..max).for_each(|i| heat(&registry, &format!("{i}")));
                scope.spawn(heat).join().unwrap();
            }
        });
        assert_eq!(keep(&registry, "new").name(), Some("new"));
    }
}

#[test]
fn a_hot_key_with_a_call_in_flight_is_not_evicted() {
    let registry = registry(100);
    heat(&registry, "x");
    let in_flight = keep(&registry, "x");
    for i in 0..10_000 {
        look(&registry, &format!("invented-{i}"));
    }
    assert!(in_flight.is_of(&look(&registry, "x")));
}

/// A call that was in flight during a sweep, and one after it, are of the same entry.
#[test]
fn a_hot_key_stays_one_key_when_tables_change() {
    let registry = registry(100);
    heat(&registry, "x");
    let before = keep(&registry, "x");
    for i in 0..1000 {
        keep(&registry, &format!("invented-{i}"));
        let now = keep(&registry, "x");
        assert!(std::ptr::eq(now.value(), before.value()));
    }
}

#[test]
fn a_lane_has_a_bounded_number_of_hot_keys() {
    let registry = registry(1000);
    for i in 0..1000 {
        heat(&registry, &format!("{i}"));
        assert!(hot(&registry) <= hot::PLACES);
    }
    assert_eq!(hot(&registry), hot::PLACES);
}

/// A number of the tenant, for one.
#[test]
fn keys_whose_hashes_are_small_numbers_have_places_of_their_own() {
    let key = Key::hashed(|call| call.tool().parse().unwrap());
    let registry = Registry::new(key, 100, State::default(), Listener::default());
    for i in 0..hot::PLACES {
        heat(&registry, &format!("{i}"));
    }
    assert!(hot(&registry) > hot::PLACES / 2);
}

#[test]
fn the_place_of_a_key_that_is_not_used_any_more_is_taken_over() {
    let (registry, (first, second)) = (registry(10_000), neighbours());
    heat(&registry, &first);
    let entry = look(&registry, &second);
    let is_hot = || keep(&registry, &second).is_of(&entry);
    let in_vain = (0..2 * hot::PATIENCE).position(|_| is_hot());
    assert_eq!(in_vain, Some(hot::PATIENCE as usize));
    assert_eq!(hot(&registry), 1);
}

#[test]
fn two_hot_keys_do_not_take_a_place_from_each_other() {
    let (registry, (first, second)) = (registry(10_000), neighbours());
    heat(&registry, &first);
    let [a, b] = [&first, &second].map(|name| look(&registry, name));
    let [first, second] = [first, second].map(|name| ToolCall::new(name).info());
    let counted = allocation_counter::measure(|| {
        for _ in 0..10 * hot::PATIENCE {
            assert!(registry.keep(&first, State::default).is_of(&a));
            assert!(Arc::ptr_eq(&registry.keep(&second, State::default), &b));
        }
    });
    assert_eq!(counted.count_total, 0);
}

/// One of its calls now and then would otherwise keep the place for ever.
#[test]
fn a_hot_key_takes_the_place_of_one_that_is_seldom_called() {
    let (registry, (seldom, often)) = (registry(10_000), neighbours());
    heat(&registry, &seldom);
    let entry = look(&registry, &often);
    let is_hot = |i| {
        if i % (2 * hot::WORTH) == 0 {
            keep(&registry, &seldom);
        }
        keep(&registry, &often).is_of(&entry)
    };
    assert!((0..10 * hot::PATIENCE).any(is_hot));
    // And it keeps it.
    assert!((0..10 * hot::PATIENCE).all(is_hot));
}

/// While a table is replaced, for instance.
#[test]
fn nobody_waits_for_a_key_to_become_hot() {
    let registry = registry(10);
    let in_flight = keep(&registry, "x");
    let reader = registry.lane().read();
    assert!(Arc::ptr_eq(&keep(&registry, "x"), &in_flight));
    drop(reader);
    assert!(keep(&registry, "x").is_of(&in_flight));
}

/// In any of the sizes that the map has had.
#[test]
fn a_key_that_nobody_has_is_looked_up_without_a_lock() {
    let registry = registry(1000);
    let names: Vec<_> = (0..100).map(|i| format!("{i}")).collect();
    for name in &names {
        keep(&registry, name);
    }
    let lanes: Vec<_> = registry.0.lanes.iter().map(Lane::write).collect();
    let writer = registry.lock();
    let (done, ended) = mpsc::channel();
    let other = registry.clone();
    std::thread::spawn(move || {
        let found = |name: &String| keep(&other, name).name() == Some(name);
        done.send(names.iter().all(found))
    });
    let found = ended.recv_timeout(std::time::Duration::from_secs(20));
    drop((lanes, writer));
    assert_eq!(found, Ok(true));
}

/// What is dropped while a lane is locked is never the last that has a value.
#[derive(Debug)]
struct LooksAtItsEnd(Arc<OnceLock<Registry<LooksAtItsEnd>>>);

impl Evict for LooksAtItsEnd {
    fn keep(&self) -> Keep {
        Keep::IfUsed
    }
}

impl Drop for LooksAtItsEnd {
    fn drop(&mut self) {
        if let Some(registry) = self.0.get() {
            for lane in &registry.0.lanes {
                assert!(lane.0.try_write().is_ok());
            }
        }
    }
}

#[test]
fn no_value_is_dropped_while_a_lane_is_locked() {
    let own = Arc::new(OnceLock::new());
    let make = || LooksAtItsEnd(Arc::clone(&own));
    let registry = Registry::new(Key::Tool, 20, make(), Listener::default());
    assert!(own.set(registry.clone()).is_ok());
    for i in 0..1000 {
        let call = ToolCall::new(format!("{i}")).info();
        let held = registry.keep(&call, make);
        registry.keep(&call, make);
        drop(held);
    }
}

/// Keys become hot and are forgotten on several threads: nobody gets another key's entry, and while
/// a call is in flight all find its entry.
#[test]
fn hot_keys_are_what_they_seem_while_tables_change() {
    let shared = registry(64);
    let pinned: Vec<_> = (0..4)
        .map(|i| look(&shared, &format!("known-{i}")))
        .collect();
    let again = || {
        for entry in &pinned {
            let held = keep(&shared, entry.name().unwrap());
            assert!(std::ptr::eq(held.value(), entry.value()));
        }
    };
    while_names_are_invented(100_000, |name| keep(&shared, name), again);
}

#[test]
fn that_an_entry_may_stand_for_another_takes_no_room() {
    assert_eq!(size_of::<Entry<u64>>(), 5 * 8 + size_of::<u64>());
}

/// A key may be evicted while it is hot in one lane, in flight in another, and dropped in a third.
#[test]
fn of_hot_keys_that_come_and_go_no_value_is_left() {
    let live = Arc::new(AtomicUsize::new(0));
    // From 64 on a sweep that frees nothing is not tried again at once.
    for max in [1, 7, 63] {
        let make = || Live::new(&live);
        let registry = Registry::new(Key::Tool, max, make(), Listener::default());
        let ended = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (registry, ended) = (&registry, &ended);
                scope.spawn(move || {
                    for i in 0..3000 {
                        let name = match i % 4 {
                            0 => format!("invented-{thread}-{i}"),
                            _ => format!("known-{}", (i + thread) % 5),
                        };
                        let call = ToolCall::new(&*name).info();
                        let held = [(); 2].map(|()| registry.keep(&call, make));
                        for held in &held {
                            assert!(held.name().is_none_or(|found| found == name));
                        }
                        assert!(registry.len() <= max);
                        // Dropped by whoever comes next.
                        let before =
                            std::mem::replace(&mut *ended.lock().unwrap(), Vec::from(held));
                        drop(before);
                    }
                });
            }
        });
        drop(ended);
        assert_eq!(live.load(Relaxed), 1 + registry.len());
        let new = (0..max).map(|i| registry.keep(&ToolCall::new(format!("{i}")).info(), make));
        assert!(
            new.collect::<Vec<_>>()
                .iter()
                .all(|new| new.name().is_some())
        );
        drop(registry);
        assert_eq!(live.load(Relaxed), 0);
    }
}

/// Of a tool whose name somebody may have invented; open if it says so.
#[derive(Debug, Default)]
struct Invented(AtomicBool);

impl Evict for Invented {
    const IS_KNOWN: bool = false;

    fn keep(&self) -> Keep {
        match self.0.load(Relaxed) {
            true => Keep::Always,
            false => Keep::IfUsed,
        }
    }
}

impl Registry<Invented> {
    fn of_invented(max: usize) -> Self {
        Self::new(Key::Tool, max, Invented::default(), Listener::default())
    }

    /// A call that leaves its breaker open.
    fn fails(&self, name: &str) -> bool {
        let entry = self.keep(&ToolCall::new(name).info(), Invented::default);
        entry.value().0.store(entry.name().is_some(), Relaxed);
        entry.name().is_some()
    }

    fn succeeds(&self, name: &str) -> bool {
        let call = ToolCall::new(name).info();
        let entry = self.keep(&call, Invented::default);
        entry.prove(&call);
        entry.name().is_some()
    }
}

/// V2.
#[test]
fn keys_that_nobody_knows_have_half_of_the_places() {
    let registry = Registry::of_invented(100);
    let found = (0..1000).filter(|n| registry.fails(&format!("invented{n}")));
    assert_eq!(found.count(), 50);
    // Known ones have the rest: each has a place once it has succeeded without one.
    for n in 0..50 {
        let name = format!("real{n}");
        assert!(!registry.succeeds(&name) && registry.succeeds(&name), "{n}");
    }
    assert_eq!(registry.len(), 100);
    assert!((0..50).all(|n| registry.fails(&format!("real{n}"))));
}

/// V2: those that are idle give way first.
#[test]
fn a_known_key_that_is_idle_outlives_keys_that_nobody_knows() {
    let registry = Registry::of_invented(100);
    let look = |name: &str| registry.peek(&ToolCall::new(name).info());
    for n in 0..40 {
        registry.succeeds(&format!("real{n}"));
    }
    for n in 0..10_000 {
        registry.keep(
            &ToolCall::new(format!("invented{n}")).info(),
            Invented::default,
        );
    }
    assert!((0..40).all(|n| look(&format!("real{n}")).is_some()));
}

/// V2.
#[test]
fn a_declared_key_is_never_forgotten() {
    let registry = Registry::of_invented(4);
    let declared = ToolCall::new("real").info();
    registry.declare(&declared, Invented::default);
    for n in 0..100 {
        registry.succeeds(&format!("another{n}"));
    }
    assert!(registry.peek(&declared).is_some());
}

/// What was proved beyond the bound is bounded too.
#[test]
fn keys_that_wait_for_a_place_are_bounded() {
    let registry = Registry::of_invented(1);
    assert!(registry.fails("open"));
    for n in 0..10_000 {
        assert!(!registry.succeeds(&format!("real{n}")));
    }
    assert!(registry.0.beyond.lock().len() <= MOST_PROVED);
}

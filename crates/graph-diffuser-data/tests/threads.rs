//! The limit on threads of a process, which is why this test has a process of its own.

use std::thread;

use graph_diffuser_data::{map_ranges, max_threads, set_max_threads};

#[test]
fn process_limited_to_one_thread_starts_no_others() {
    assert_eq!(max_threads(), thread::available_parallelism().map_or(1, usize::from));
    set_max_threads(1);
    let own = thread::current().id();
    assert_eq!(map_ranges(10_000, 1, |range| (range, thread::current().id())), [(0..10_000, own)]);
    set_max_threads(3);
    let used = map_ranges(10_000, 1, |_| thread::current().id());
    assert!(used.len() == 3 && !used.contains(&own), "{used:?}");
}

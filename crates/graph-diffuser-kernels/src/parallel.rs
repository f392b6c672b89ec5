//! Work shared out over threads that wait for it awake.
//!
//! A step of training is hundreds of short pieces of parallel work. A thread that went to sleep between two
//! of them takes longer to wake than most pieces take to do, above all on a virtual machine. So threads
//! spin for about a millisecond before they sleep, and a piece starts within a microsecond.
//!
//! Every thread begins with a share of its own, the same part of each piece of work, so that it finds in its
//! cache what it wrote in the piece before; who is done takes from the end of others' shares. Results do not
//! depend on who did what: tasks are cut by size, write to places of their own, and whatever they return
//! comes back in their order.

use std::cell::RefCell;
use std::fmt::Debug;
use std::hint::spin_loop;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

/// Rounds of looking for work before a thread sleeps: about a millisecond.
const ROUNDS: usize = 1 << 14;

/// Threads that compute together: the one that asks, and helpers.
#[derive(Debug)]
pub struct Threads {
    team: Arc<Team>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Team {
    /// Threads that take part, the one that asks included.
    threads: usize,
    /// Held while a job runs; who finds it held works alone.
    busy: Mutex<()>,
    job: AtomicPtr<Job<'static>>,
    /// Jobs published so far.
    published: AtomicUsize,
    /// Helpers that may be looking at the job.
    inside: AtomicUsize,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
    over: AtomicBool,
}

/// Tasks by number, and what every thread that takes part does with them.
struct Job<'a> {
    work: &'a (dyn Fn(&Job<'_>, usize) + Sync),
    /// One for each thread.
    shares: Vec<Share>,
    panicked: AtomicBool,
}

impl Job<'_> {
    /// The next task for this thread that nobody has.
    fn take(&self, thread: usize) -> Option<usize> {
        let others =
            (1..self.shares.len()).map(|step| &self.shares[(thread + step) % self.shares.len()]);
        self.shares[thread].take_first().or_else(|| others.into_iter().find_map(Share::take_last))
    }
}

/// Tasks that are left of neighbouring ones: the first, and behind it in the lower half the end. No two shares
/// are in one line of the cache.
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn new(tasks: Range<usize>) -> Self {
        assert!(u32::try_from(tasks.end).is_ok(), "{} tasks", tasks.end);
        Self(AtomicU64::new((tasks.start as u64) << 32 | tasks.end as u64))
    }

    fn take_first(&self) -> Option<usize> {
        let with_first =
            self.0.fetch_update(SeqCst, SeqCst, |left| (!is_empty(left)).then(|| left + (1 << 32)));
        with_first.ok().map(|left| (left >> 32) as usize)
    }

    fn take_last(&self) -> Option<usize> {
        let with_last =
            self.0.fetch_update(SeqCst, SeqCst, |left| (!is_empty(left)).then(|| left - 1));
        with_last.ok().map(|left| (left as u32 - 1) as usize)
    }
}

fn is_empty(left: u64) -> bool {
    left >> 32 >= u64::from(left as u32)
}

static EVERYWHERE: OnceLock<Threads> = OnceLock::new();

thread_local! {
    static HERE: RefCell<Option<Arc<Team>>> = const { RefCell::new(None) };
}

/// Lets this process compute with so many threads; without it, with as many as there are cores.
///
/// Returns whether it could: work that has begun keeps its threads.
pub fn use_threads(count: usize) -> bool {
    EVERYWHERE.set(Threads::new(count)).is_ok()
}

impl Threads {
    /// Starts the helpers of the thread that will ask: one less than `count`.
    pub fn new(count: usize) -> Self {
        let team = Arc::new(Team {
            threads: count.max(1),
            busy: Mutex::new(()),
            job: AtomicPtr::new(std::ptr::null_mut()),
            published: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let start = |number: usize| {
            let team = team.clone();
            let name = format!("compute-{number}");
            // Without a helper its work is done by the others.
            thread::Builder::new().name(name).spawn(move || team.help(number)).ok()
        };
        let helpers = (1..count).filter_map(start).collect();
        Self { team, helpers }
    }

    /// Does `work` with these threads, where it would else be done by those of the process.
    pub fn install<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = HERE.replace(Some(self.team.clone()));
        let result = catch_unwind(AssertUnwindSafe(work));
        HERE.set(before);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.team.over.store(true, SeqCst);
        self.team.publish();
        for helper in self.helpers.drain(..) {
            // A helper catches what its work throws.
            let _ = helper.join();
        }
    }
}

impl Team {
    /// Says that there is something new, to whoever spins or sleeps.
    fn publish(&self) {
        self.published.fetch_add(1, SeqCst);
        if self.sleeping.load(SeqCst) > 0 {
            let _bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
            self.bell.notify_all();
        }
    }

    /// A helper's life; the thread that asks has number 0.
    fn help(&self, number: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.over.load(SeqCst) {
                return;
            }
            self.inside.fetch_add(1, SeqCst);
            let job = self.job.load(SeqCst);
            if !job.is_null() {
                // SAFETY: a job is withdrawn before its owner counts who is inside, and its owner waits
                // for them. This thread went inside before it read the job, so it is waited for.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| (job.work)(job, number))).is_err() {
                    job.panicked.store(true, SeqCst);
                }
            }
            self.inside.fetch_sub(1, SeqCst);
        }
    }

    /// Waits until more than `seen` jobs have been published, and returns their number.
    fn wait(&self, seen: usize) -> usize {
        for _ in 0..ROUNDS {
            let published = self.published.load(SeqCst);
            if published != seen {
                return published;
            }
            spin_loop();
        }
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted before the last look: whoever publishes after it sees a sleeper and rings.
        self.sleeping.fetch_add(1, SeqCst);
        while self.published.load(SeqCst) == seen {
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, SeqCst);
        self.published.load(SeqCst)
    }

    /// Lets all threads that are free take tasks until none is left.
    fn run(&self, count: usize, work: &(dyn Fn(&Job<'_>, usize) + Sync)) {
        let share = |thread: usize| {
            Share::new(count * thread / self.threads..count * (thread + 1) / self.threads)
        };
        let shares = (0..self.threads).map(share).collect();
        let job = Job { work, shares, panicked: AtomicBool::new(false) };
        let _busy = match self.busy.try_lock() {
            Ok(busy) => busy,
            // A job that panicked leaves nothing behind that the next could find broken.
            Err(TryLockError::Poisoned(busy)) => busy.into_inner(),
            Err(TryLockError::WouldBlock) => return work(&job, 0), // another thread's job, or this one's own
        };
        let withdraw = Withdraw(self);
        self.job.store((&raw const job).cast_mut().cast(), SeqCst);
        self.publish();
        work(&job, 0);
        drop(withdraw);
        assert!(!job.panicked.load(SeqCst), "a helper panicked");
    }
}

/// Ends a job, also while a panic passes: nobody may hold on to it.
struct Withdraw<'a>(&'a Team);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.0.job.store(std::ptr::null_mut(), SeqCst);
        let mut rounds = 0;
        while self.0.inside.load(SeqCst) > 0 {
            rounds += 1;
            if rounds < ROUNDS { spin_loop() } else { thread::yield_now() }
        }
    }
}

fn with_team<R>(work: impl FnOnce(&Team) -> R) -> R {
    if let Some(team) = HERE.with_borrow(Clone::clone) {
        return work(&team);
    }
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    work(&EVERYWHERE.get_or_init(|| Threads::new(cores())).team)
}

/// Does `run` for every task.
pub(crate) fn for_each<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync) {
    for_each_init(tasks, || (), |(), task| run(task));
}

/// The same with what `init` makes, once for each thread.
pub(crate) fn for_each_init<S, T: Send>(
    tasks: Vec<T>,
    init: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, T) + Sync,
) {
    map_init(tasks, init, |state, _, task| run(state, task));
}

/// What `run` makes of every task and its number, in their order.
pub(crate) fn map_init<S, T: Send, R: Send>(
    tasks: Vec<T>,
    init: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, usize, T) -> R + Sync,
) -> Vec<R> {
    let count = tasks.len();
    if count < 2 {
        let mut state = init();
        return tasks
            .into_iter()
            .enumerate()
            .map(|(number, task)| run(&mut state, number, task))
            .collect();
    }
    // Tasks are read out one by one; the vector is left with their memory alone.
    let mut tasks = ManuallyDrop::new(tasks);
    let mut results: Vec<R> = Vec::with_capacity(count);
    let (from, to) = (Place(tasks.as_mut_ptr()), Place(results.spare_capacity_mut().as_mut_ptr()));
    let work = |job: &Job<'_>, thread: usize| {
        let (from, to) = (from, to);
        let mut state = None;
        while let Some(number) = job.take(thread) {
            // SAFETY: a number below `count` is taken once, so nobody else reads or writes these places.
            unsafe {
                let task = from.at(number).read();
                let result = run(state.get_or_insert_with(&init), number, task);
                to.at(number).write(MaybeUninit::new(result));
            }
        }
    };
    with_team(|team| team.run(count, &work));
    // SAFETY: all numbers were taken, and `run` has returned for each, or a panic would have passed.
    unsafe {
        results.set_len(count);
        tasks.set_len(0);
    }
    drop(ManuallyDrop::into_inner(tasks));
    results
}

/// Where threads read or write places of their own.
struct Place<T>(*mut T);

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

// SAFETY: what is behind it is sent to the thread that takes the number of its place.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    /// # Safety
    /// There is a place of this number.
    unsafe fn at(self, number: usize) -> *mut T {
        // SAFETY: the caller's.
        unsafe { self.0.add(number) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_task_is_done_once_and_results_keep_their_order() {
        for threads in [1, 2, 5] {
            let threads = Threads::new(threads);
            threads.install(|| {
                for count in (0..40).chain([1000]) {
                    let tasks: Vec<String> = (0..count).map(|number| number.to_string()).collect();
                    let lengths = map_init(tasks.clone(), || (), |(), number, task| (number, task));
                    assert_eq!(lengths, tasks.into_iter().enumerate().collect::<Vec<_>>());
                }
            });
        }
    }

    #[test]
    fn a_thread_takes_its_own_tasks_from_the_front_and_those_of_others_from_the_end() {
        let shares = [0..2, 2..5, 5..5].map(Share::new).into();
        let job = Job { work: &|_, _| {}, shares, panicked: AtomicBool::new(false) };
        let taken: Vec<usize> =
            [1, 0, 0, 0, 2].into_iter().filter_map(|thread| job.take(thread)).collect();
        assert_eq!(taken, [2, 0, 1, 4, 3]);
        assert_eq!([0, 1, 2].map(|thread| job.take(thread)), [None; 3]);
    }

    #[test]
    fn work_within_work_and_beside_work_is_done() {
        let threads = Threads::new(3);
        let sum = AtomicUsize::new(0);
        let nested = || {
            for_each((0..20).collect(), |task: usize| {
                for_each((0..10).collect(), |inner: usize| {
                    sum.fetch_add(task * inner, SeqCst);
                });
            });
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| threads.install(nested));
            }
        });
        assert_eq!(sum.into_inner(), 4 * 190 * 45);
    }

    #[test]
    fn helpers_that_fell_asleep_wake_up() {
        let threads = Threads::new(4);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(20));
            let done = AtomicUsize::new(0);
            threads.install(|| {
                for_each(vec![(); 64], |()| {
                    thread::sleep(Duration::from_micros(100));
                    done.fetch_add(1, SeqCst);
                });
            });
            assert_eq!(done.into_inner(), 64);
        }
    }

    #[test]
    fn a_panic_reaches_who_asked_and_the_threads_live_on() {
        for threads in [1, 3] {
            let threads = Threads::new(threads);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                threads.install(|| {
                    for_each((0..100).collect(), |task: usize| assert!(task != 50, "task 50"))
                });
            }));
            assert!(panicked.is_err());
            // All of them take part in what comes next: each task waits until every thread has one.
            let count = threads.helpers.len() + 1;
            let together = Barrier::new(count);
            threads.install(|| {
                for_each(vec![(); count], |()| {
                    together.wait();
                });
            });
        }
    }

    #[test]
    fn state_is_made_for_threads_and_not_for_tasks() {
        let made = AtomicUsize::new(0);
        Threads::new(3).install(|| {
            for_each_init(vec![(); 1000], || made.fetch_add(1, SeqCst), |_, ()| {});
        });
        assert!((1..=3).contains(&made.into_inner()));
    }
}

//! Many entries, deep trees, and millions of creations and removals: nothing is lost, and nothing
//! grows.
//!
//! `VELLUM_ENTRIES`, `VELLUM_DEPTH` and `VELLUM_PAIRS` set the numbers; the defaults take seconds.
//!
//! Each test has a process of its own, because counters and memory use belong to the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vellum::media::{HeapMemory, MediaChoice, Real, SimPool, Simulated, count};
use vellum::{
    Clock, CreateOptions, Cred, Error, FormatOptions, Fs, ListPosition, MountOptions, Node,
    OpenOptions, Pool, RealFs, RenameFlags, attach, format,
};
use vellum_testing::in_own_process;

const CREATE: OpenOptions = OpenOptions::new()
    .read(false)
    .write(true)
    .append(false)
    .truncate(false)
    .create(false)
    .create_new(true)
    .no_follow(false)
    .directory(false)
    .no_atime(false)
    .mode(0o644);

fn asked(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect(variable))
}

/// The location of a pool: in memory if there is space for it, in a file that can be opened again.
struct Home {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let path = dir.path().join("pool");
        Self { path, _dir: dir }
    }

    fn create(&self, metadata_bytes: u64) -> Pool {
        let mut options = CreateOptions::new(2 * metadata_bytes + (16 << 20));
        options.metadata_bytes = Some(metadata_bytes);
        options.media = MediaChoice::File;
        options.create(&self.path).expect("a pool")
    }

    fn open(path: &Path) -> Pool {
        Pool::open(path).expect("it opens")
    }
}

fn root() -> Cred {
    Cred::root()
}

fn name(number: u64) -> String {
    format!("entry-{number:07}")
}

fn dir(fs: &Arc<RealFs>, path: &str) -> Node<Real> {
    fs.find(&root(), &fs.root(), path.as_bytes(), true)
        .expect("a directory")
}

fn create(fs: &Arc<RealFs>, dir: &Node<Real>, name: &str) {
    drop(fs.open(&root(), dir, name.as_bytes(), &CREATE).expect(name));
}

/// Waits until no background work is left. The pool's own thread may be doing some, so for a while
/// no work must have been found.
fn settle(fs: &RealFs) {
    let mut quiet = 0;
    let mut before = count::snapshot();
    while quiet < 20 {
        let done = fs.maintain().expect("background work");
        let now = count::snapshot();
        quiet = if done == 0 && now == before {
            quiet + 1
        } else {
            0
        };
        before = now;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The numbers below `count` in a scattered order.
fn jumping(count: u64) -> impl Iterator<Item = u64> {
    // A prime far from any count, so that every number occurs once.
    (0..count).map(move |i| i * 1_000_000_007 % count)
}

/// Checks that every name is listed once and nothing else, with ascending cookies.
fn list_all(fs: &RealFs, dir: &Node<Real>, count: u64) {
    let mut seen = vec![false; count as usize];
    let (mut position, mut last) = (ListPosition::default(), 0);
    fs.list(dir, 0, &mut position, &mut |entry| {
        assert!(entry.cookie > last);
        last = entry.cookie;
        let text = std::str::from_utf8(entry.name).expect("a name");
        let number: usize = text.trim_start_matches("entry-").parse().expect(text);
        assert!(!std::mem::replace(&mut seen[number], true), "{text} twice");
        true
    })
    .expect("listed");
    assert_eq!(seen.iter().filter(|&&seen| !seen).count(), 0, "not listed");
}

fn stat_all(fs: &Arc<RealFs>, dir: &Node<Real>, count: u64) {
    for number in jumping(count) {
        let name = name(number);
        let attr = fs.stat(&root(), dir, name.as_bytes(), true).expect(&name);
        assert_eq!((attr.nlink, attr.mode), (1, 0o644), "{name}");
    }
    let missing = fs.stat(&root(), dir, name(count).as_bytes(), true);
    assert!(matches!(missing, Err(Error::NotFound)));
}

fn remove_all(fs: &Arc<RealFs>, dir: &Node<Real>, count: u64) {
    for number in jumping(count) {
        let name = name(number);
        fs.unlink(&root(), dir, name.as_bytes()).expect(&name);
    }
    list_all(fs, dir, 0);
    settle(fs);
}

/// Probes of `run` for each of `operations`.
fn probes_of(operations: u64, run: impl FnOnce()) -> f64 {
    let before = count::snapshot().probes;
    run();
    (count::snapshot().probes - before) as f64 / operations as f64
}

fn sound(path: &Path) {
    let image = std::fs::File::open(path).expect("it can be read");
    let report = vellum_check::check(&image, vellum_check::Options::default());
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn a_directory_of_many_entries() {
    in_own_process(a_directory_of_many_entries, || {
        let count = asked("VELLUM_ENTRIES", 100_000);
        let home = Home::new();
        let pool = home.create(count * 400 + (8 << 20));
        let fs = pool.fs();
        fs.mkdir(&root(), &fs.root(), b"many", 0o755).expect("made");
        let many = dir(&fs, "/many");
        (0..count).for_each(|number| create(&fs, &many, &name(number)));
        println!("created {count}");
        list_all(&fs, &many, count);
        let probes = probes_of(count, || stat_all(&fs, &many, count));
        assert!(probes < 1.5, "{probes} probes a lookup");
        println!("listed, looked at ({probes:.3} probes each)");

        // The state after a kill: the file as it is now. Its locks are not part of it.
        settle(&fs);
        let copy = home.path.with_extension("copy");
        std::fs::copy(&home.path, &copy).expect("copied");
        drop((fs, many));
        pool.close().expect("closed");
        for path in [&copy, &home.path] {
            let pool = Home::open(path);
            assert_eq!(pool.opened().was_clean, path == &home.path);
            let fs = pool.fs();
            let many = dir(&fs, "/many");
            // The first lookup rebuilds the directory's index.
            stat_all(&fs, &many, count);
            list_all(&fs, &many, count);
            assert_eq!(fs.children(&many).expect("counted"), count);
            drop((fs, many));
            pool.close().expect("closed");
            println!("opened again, {}", path.display());
        }
        std::fs::remove_file(&copy).expect("removed");

        let pool = Home::open(&home.path);
        let fs = pool.fs();
        let many = dir(&fs, "/many");
        remove_all(&fs, &many, count);
        println!("removed");
        // Chunks that got a kind in the first round are available in the second.
        let free = fs.stat_fs().files_free;
        (0..count).for_each(|number| create(&fs, &many, &name(number)));
        remove_all(&fs, &many, count);
        let left = free.saturating_sub(fs.stat_fs().files_free);
        assert!(
            left < 1000,
            "the metadata of {left} files did not become free"
        );
        drop(many);
        fs.rmdir(&root(), &fs.root(), b"many").expect("removed");
        drop(fs);
        pool.close().expect("closed");
        sound(&home.path);
        println!("created and removed again");
    });
}

#[test]
fn a_deep_tree() {
    in_own_process(a_deep_tree, || {
        let depth = asked("VELLUM_DEPTH", 1000);
        let home = Home::new();
        let pool = home.create(depth * 512 + (8 << 20));
        let fs = pool.fs();
        let mut at = fs.root();
        for _ in 0..depth {
            fs.mkdir(&root(), &at, b"d", 0o755).expect("made");
            at = fs.lookup(&root(), &at, b"d").expect("found");
        }
        create(&fs, &at, "file");
        let path = |depth: u64| "/d".repeat(depth as usize);
        let within = |depth: u64| depth.min(2000);
        let found = dir(&fs, &path(within(depth)));
        assert_eq!(
            fs.path_of(&found).expect("a path"),
            path(within(depth)).as_bytes()
        );
        let up = "../".repeat(within(depth).min(1300) as usize);
        let above = fs.find(&root(), &found, up.as_bytes(), true).expect("up");
        let expected = path(within(depth) - within(depth).min(1300));
        assert_eq!(
            String::from_utf8(fs.path_of(&above).expect("a path")).expect("text"),
            if expected.is_empty() { "/" } else { &expected }
        );
        println!("created and walked {depth} levels");

        // The top cannot move below the bottom, but can move elsewhere with everything below it.
        let flags = RenameFlags::empty();
        let into_itself = fs.rename(&root(), &fs.root(), b"d", &at, b"loop", flags);
        assert!(
            matches!(into_itself, Err(Error::Invalid(_))),
            "{into_itself:?}"
        );
        fs.mkdir(&root(), &fs.root(), b"new", 0o755).expect("made");
        let new = dir(&fs, "/new");
        fs.rename(&root(), &fs.root(), b"d", &new, b"d", flags)
            .expect("moved");
        fs.rename(&root(), &new, b"d", &fs.root(), b"d", flags)
            .expect("moved back");
        drop((at, found, above, new, fs));
        pool.close().expect("closed");

        let pool = Home::open(&home.path);
        let fs = pool.fs();
        let mut levels = vec![fs.root()];
        for level in 0..depth as usize {
            let below = fs.lookup(&root(), &levels[level], b"d").expect("found");
            levels.push(below);
        }
        fs.unlink(&root(), &levels[depth as usize], b"file")
            .expect("removed");
        while levels.len() > 1 {
            drop(levels.pop());
            let parent = levels.last().expect("the root");
            fs.rmdir(&root(), parent, b"d").expect("removed");
        }
        drop((levels, fs));
        pool.close().expect("closed");
        sound(&home.path);
        println!("removed");
    });
}

/// Quantities that must not grow while files come and go.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    files_free: u64,
    blocks_free: u64,
    cachelets: u64,
    index_buckets: u64,
    /// Probes of a lookup, averaged over hits and misses.
    probes: f64,
    /// Lines stored for each pair, background work included.
    lines: f64,
    resident_bytes: u64,
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.expect("a size") * 1024
}

/// Live files of each thread.
const LIVE: usize = 500;
const THREADS: usize = 2;

/// The live files of a thread: the file's number at each place.
type Live = Vec<u64>;

fn churn_name(thread: usize, place: usize, number: u64) -> String {
    format!("t{thread}-{place}-{number}")
}

/// Removes `pairs` files at scattered places, and creates another at each.
fn churn(fs: &Arc<RealFs>, dir: &Node<Real>, thread: usize, live: &mut Live, pairs: u64) {
    let from = live.iter().max().map_or(0, |last| last + 1);
    for number in from..from + pairs {
        let place = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % live.len();
        let gone = churn_name(thread, place, live[place]);
        fs.unlink(&root(), dir, gone.as_bytes()).expect(&gone);
        create(fs, dir, &churn_name(thread, place, number));
        live[place] = number;
    }
}

fn footprint(fs: &Arc<RealFs>, dir: &Node<Real>, lives: &[Live], lines: f64) -> Footprint {
    let lookups = 2 * lives.iter().map(Vec::len).sum::<usize>();
    let probes = probes_of(lookups as u64, || {
        for (thread, live) in lives.iter().enumerate() {
            for (place, &number) in live.iter().enumerate() {
                let there = churn_name(thread, place, number);
                fs.stat(&root(), dir, there.as_bytes(), true).expect(&there);
                let gone = churn_name(thread, place, u64::MAX - number);
                let gone = fs.stat(&root(), dir, gone.as_bytes(), true);
                assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
            }
        }
    });
    let (space, cache) = (fs.stat_fs(), fs.cache_usage());
    Footprint {
        files_free: space.files_free,
        blocks_free: space.blocks_free,
        cachelets: cache.cachelets,
        index_buckets: cache.index_buckets,
        probes,
        lines,
        resident_bytes: resident_bytes(),
    }
}

impl Footprint {
    /// Checks that this is no larger than `before`, apart from unsettled counters of threads.
    fn assert_flat(&self, before: &Self) {
        let told = || format!("before: {before:?}\nnow: {self:?}");
        assert!(self.files_free + 2000 > before.files_free, "{}", told());
        assert!(self.blocks_free + 16 > before.blocks_free, "{}", told());
        assert!(self.cachelets < before.cachelets + 1000, "{}", told());
        assert!(
            self.index_buckets < before.index_buckets + 200,
            "{}",
            told()
        );
        assert!(self.probes < before.probes * 1.1 + 0.05, "{}", told());
        assert!(self.lines < before.lines * 1.1 + 0.5, "{}", told());
        assert!(
            self.resident_bytes < before.resident_bytes + (4 << 20),
            "{}",
            told()
        );
    }
}

#[test]
fn creations_and_removals_leave_nothing_behind() {
    in_own_process(creations_and_removals_leave_nothing_behind, || {
        const LEGS: u64 = 10;
        let pairs = asked("VELLUM_PAIRS", 100_000) / THREADS as u64 / LEGS;
        let home = Home::new();
        let pool = home.create(16 << 20);
        let fs = pool.fs();
        fs.mkdir(&root(), &fs.root(), b"churn", 0o755)
            .expect("made");
        let churned = dir(&fs, "/churn");
        let mut lives = vec![Live::new(); THREADS];
        for (thread, live) in lives.iter_mut().enumerate() {
            live.extend(0..LIVE as u64);
            for (place, &number) in live.iter().enumerate() {
                create(&fs, &churned, &churn_name(thread, place, number));
            }
        }
        let mut first: Option<Footprint> = None;
        for leg in 0..LEGS {
            let before = count::snapshot().lines_flushed;
            std::thread::scope(|scope| {
                for (thread, live) in lives.iter_mut().enumerate() {
                    let (fs, churned) = (&fs, &churned);
                    scope.spawn(move || churn(fs, churned, thread, live, pairs));
                }
            });
            settle(&fs);
            let done = THREADS as u64 * pairs;
            let lines = (count::snapshot().lines_flushed - before) as f64 / done as f64;
            let now = footprint(&fs, &churned, &lives, lines);
            println!("{} pairs: {now:?}", (leg + 1) * done);
            match &first {
                Some(first) => now.assert_flat(first),
                // The first leg uses up what later legs may keep.
                None => first = Some(now),
            }
        }
        assert_eq!(fs.children(&churned).expect("counted"), 2 * LIVE as u64);
        drop((churned, fs));
        pool.close().expect("closed");
        sound(&home.path);
    });
}

/// The smallest pool, open.
fn small_pool() -> Arc<Fs<Simulated>> {
    let pool = SimPool::new(1 << 20);
    let options = FormatOptions {
        metadata_bytes: Some(256 << 10),
        thread_slots: Some(2),
        uuid: [1; 16],
        hash_seed: 7,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).expect("formatted");
    let options = MountOptions {
        clock: Clock::Counter(10.into()),
        ..MountOptions::default()
    };
    let arena = |bytes| Ok(HeapMemory::new(bytes));
    let opened = attach::<Simulated>(pool, arena, options);
    opened.expect("attached").0
}

/// Without a background thread everything is recycled only when the metadata are full. Then there
/// must be enough left to compact the directory's log.
#[test]
fn a_full_pool_frees_metadata_by_itself() {
    in_own_process(a_full_pool_frees_metadata_by_itself, || {
        const KEPT_EVERY: u64 = 400;
        let fs = small_pool();
        let top = fs.root();
        for number in 0..20_000 {
            let name = name(number);
            fs.create(&root(), &top, name.as_bytes(), &CREATE)
                .expect(&name);
            if !number.is_multiple_of(KEPT_EVERY) {
                fs.unlink(&root(), &top, name.as_bytes()).expect(&name);
            }
        }
        let mut listed = Vec::new();
        fs.list(&top, 0, &mut ListPosition::default(), &mut |entry| {
            listed.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .expect("listed");
        let kept: Vec<_> = (0..20_000).step_by(KEPT_EVERY as usize).map(name).collect();
        assert_eq!(listed, kept);
        fs.close().expect("closed");
    });
}

/// Even a single removed name makes room for another in a full pool, although a directory's dead
/// entries are otherwise recycled a hundred at a time.
#[test]
fn one_removed_name_makes_room_for_another() {
    in_own_process(one_removed_name_makes_room_for_another, || {
        let fs = small_pool();
        let top = fs.root();
        let file = fs.create(&root(), &top, b"file", &CREATE).expect("made");
        let link = |number| fs.link(&root(), file.node(), &top, name(number).as_bytes());
        let made = (0..).take_while(|&number| link(number).is_ok()).count() as u64;
        assert!(matches!(link(made), Err(Error::NoSpace(_))));
        for number in 0..3 {
            fs.unlink(&root(), &top, name(number).as_bytes())
                .expect("removed");
            link(made + number).expect("there is room for one");
            assert!(matches!(link(20_000), Err(Error::NoSpace(_))));
        }
        drop((file, top));
        fs.close().expect("closed");
    });
}

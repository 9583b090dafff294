//! Arguments that callers choose: paths, names, symlink targets, offsets, positions in listings.
//! Whatever they are, the result is that of the model, nothing panics, and the pool stays sound.

use std::sync::Arc;

use vellum::{
    Allocate, Cred, Error, FileKind, FormatOptions, Fs, ListPosition, Node, OpenOptions,
    RenameFlags, SetAttr, format,
};
use vellum_check::{Options, check};
use vellum_driver::Driver;
use vellum_fuzz::{Input, Memories, Watchdog, mount};
use vellum_layout::POOL_MIN_BYTES;
use vellum_media::SimPool;
use vellum_model::{Model, Op, Outcome, Payload, Range, apply, pattern};

/// The number of cases of a target in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 300;

type Volume = Arc<Fs<Memories>>;

const WRITE: OpenOptions = OpenOptions::new()
    .read(true)
    .write(true)
    .append(false)
    .truncate(false)
    .create(true)
    .create_new(false)
    .no_follow(false)
    .directory(false)
    .no_atime(false)
    .mode(0o644);

fn new_volume() -> Volume {
    let pool = SimPool::new(POOL_MIN_BYTES);
    let options = FormatOptions {
        uuid: [1; 16],
        hash_seed: 9,
        now_ns: 1,
        known_zero: true,
        ..FormatOptions::default()
    };
    format(&pool, &options).expect("a pool is made");
    mount(pool.image(), false).expect("it opens").0
}

/// Closes cleanly; nothing may be wrong then.
fn close(fs: &Volume) {
    fs.close().expect("nothing is open");
    let strict = Options {
        strict_clean: true,
        progress: None,
    };
    let report = check(&fs.pool().image(), strict);
    assert!(report.is_sound(), "{report}");
}

/// A name or path made of parts that matter, and of raw bytes.
fn text(input: &mut Input<'_>) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b"/",
        b"/",
        b"//",
        b".",
        b"..",
        b"d",
        b"file",
        b"up",
        b"round",
        b"to-d",
        b"shut",
        b"\0",
        b"\xff\xfe",
        b"d/e/",
    ];
    let mut text = Vec::new();
    for _ in 0..input.u8() % 16 {
        match input.u8() {
            byte @ 0..100 => text.extend_from_slice(PIECES[usize::from(byte) % PIECES.len()]),
            100..150 => text.push(input.u8()),
            150..200 => text.extend(vec![b'n'; 250 + usize::from(input.u8() % 8)]),
            200..230 => text.extend(b"d/../".repeat(usize::from(input.u8()))),
            _ => text.extend(vec![input.u8(); usize::from(input.u16() % 4200)]),
        }
    }
    text
}

/// A file system and its model, with the same tree.
struct Twins {
    fs: Volume,
    model: Model,
}

impl Twins {
    fn new() -> Self {
        let mut twins = Self {
            fs: new_volume(),
            model: Model::new(1),
        };
        for line in [
            "mkdir d 755",
            "mkdir d/e 755",
            "mkdir shut 700",
            "create file 644 -",
            "create shut/in 644 -",
            "symlink .. d/up",
            "symlink round round",
            "symlink /d/e to-d",
            "symlink nowhere d/e/lost",
        ] {
            twins.set_up(line);
        }
        twins
    }

    fn set_up(&mut self, line: &str) {
        let op: Op = line.parse().expect("a step of the model");
        apply(&mut self.model, &op, &vellum_model::Cred::superuser(), 1);
        let made = Driver::new(Arc::clone(&self.fs)).apply(&op, &Cred::root());
        made.expect("the tree is made");
    }

    /// Compares a result with the model's; attributes that the model lacks are not compared.
    fn compare(&mut self, op: &Op, user: u32, answer: vellum::Result<Payload>) {
        let cred = match user {
            0 => vellum_model::Cred::superuser(),
            user => vellum_model::Cred::user(user, user, &[]),
        };
        let expected = apply(&mut self.model, op, &cred, 1);
        let answer = match answer {
            Ok(payload) => Outcome::Ok(payload),
            Err(error) => Outcome::Err(vellum_model::Errno(error.errno())),
        };
        assert_eq!(answer, expected, "{op}");
    }
}

fn cred_of(user: u32) -> Cred {
    match user {
        0 => Cred::root(),
        user => Cred::user(user, user),
    }
}

#[test]
fn paths() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        let mut twins = Twins::new();
        let mut input = Input::new(bytes);
        for _ in 0..16 {
            if input.is_empty() {
                break;
            }
            path_step(&mut twins, &mut input);
        }
        close(&twins.fs);
    });
}

fn path_step(twins: &mut Twins, input: &mut Input<'_>) {
    let how = input.u8();
    let user = u32::from(how >> 6 & 1);
    let follow = how & 0x80 == 0;
    let path = text(input);
    let has_null = path.contains(&0);
    let op = match how % 4 {
        0 | 1 => Op::Stat { path, follow },
        2 => Op::Readlink { path },
        _ => Op::Create {
            path,
            mode: 0o644,
            exclusive: !follow,
        },
    };
    let answer = Driver::new(Arc::clone(&twins.fs)).apply(&op, &cred_of(user));
    if has_null {
        // No system call accepts such a path.
        assert!(answer.is_err(), "{op}");
    } else {
        twins.compare(&op, user, answer);
    }
}

/// The entries after a cookie, with their cookies.
fn list(
    fs: &Volume,
    dir: &Node<Memories>,
    after: u64,
    position: &mut ListPosition,
) -> Vec<(u64, Vec<u8>)> {
    let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
    let listed = fs.list(dir, after, position, &mut |entry| {
        let last = entries.last().map_or(after, |entry| entry.0);
        assert!(entry.cookie > last, "{} behind {last}", entry.cookie);
        entries.push((entry.cookie, entry.name.to_vec()));
        true
    });
    listed.expect("a directory is listed");
    entries
}

#[test]
fn names() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        let fs = new_volume();
        let mut input = Input::new(bytes);
        let mut dirs = vec![fs.root()];
        for _ in 0..24 {
            if input.is_empty() {
                break;
            }
            name_step(&fs, &mut dirs, &mut input);
        }
        for dir in &dirs {
            for (_, name) in list(&fs, dir, 0, &mut ListPosition::default()) {
                fs.lookup(&Cred::root(), dir, &name).expect("it is listed");
            }
        }
        drop(dirs);
        close(&fs);
    });
}

fn name_step(fs: &Volume, dirs: &mut Vec<Node<Memories>>, input: &mut Input<'_>) {
    let (cred, how) = (Cred::root(), input.u8());
    let dir = input.pick(dirs).clone();
    let name = text(input);
    let made = match how % 8 {
        0 => fs.mkdir(&cred, &dir, &name, 0o755).map(|made| {
            dirs.push(made);
        }),
        1 => fs.create(&cred, &dir, &name, &WRITE).map(drop),
        2 => {
            let target = text(input);
            let made = fs.symlink(&cred, &dir, &name, &target);
            if let Ok(link) = &made {
                assert_eq!(fs.read_link(link).expect("it was just made"), target);
            }
            made.map(drop)
        }
        3 => {
            let other = input.pick(dirs).clone();
            let from = text(input);
            let flags = RenameFlags::from_bits_retain(u32::from(input.u8() % 4));
            fs.rename(&cred, &other, &from, &dir, &name, flags)
        }
        4 => {
            let file = fs.lookup(&cred, &dir, &text(input));
            file.and_then(|file| fs.link(&cred, &file, &dir, &name))
        }
        5 => fs.unlink(&cred, &dir, &name),
        6 => fs.rmdir(&cred, &dir, &name),
        _ => fs.lookup(&cred, &dir, &name).map(drop),
    };
    let possible = (1..=255).contains(&name.len()) && !name.iter().any(|b| matches!(b, b'/' | 0));
    if made.is_ok() {
        assert!(possible, "{how}: {name:?}");
    }
    if let Err(error) = made {
        assert!(!matches!(error, Error::Damaged { .. }), "{error}");
    }
}

/// Any cookie, with a position of this or another directory, from now or from earlier.
#[test]
fn positions() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        let fs = new_volume();
        let mut input = Input::new(bytes);
        let cred = Cred::root();
        let top = fs.root();
        let made = [b"one", b"two"].map(|name| fs.mkdir(&cred, &top, name, 0o755));
        let dirs = made.map(|dir| dir.expect("it is made"));
        let mut positions = [ListPosition::default(); 4];
        let mut next = 0;
        for _ in 0..24 {
            if input.is_empty() {
                break;
            }
            position_step(&fs, &dirs, &mut positions, &mut next, &mut input);
        }
        drop((dirs, top));
        close(&fs);
    });
}

fn position_step(
    fs: &Volume,
    dirs: &[Node<Memories>; 2],
    positions: &mut [ListPosition; 4],
    next: &mut u32,
    input: &mut Input<'_>,
) {
    let cred = Cred::root();
    let dir = input.pick(dirs);
    match input.u8() % 4 {
        0 => {
            for _ in 0..input.u8() {
                // When the pool is full, the other steps continue.
                let _ = fs.mknod(
                    &cred,
                    dir,
                    next.to_string().as_bytes(),
                    FileKind::Fifo,
                    0,
                    0,
                );
                *next += 1;
            }
        }
        1 => {
            for (_, name) in list(fs, dir, 0, &mut ListPosition::default()) {
                if !input.u8().is_multiple_of(3) {
                    fs.unlink(&cred, dir, &name).expect("it is there");
                }
            }
            fs.maintain().expect("nothing is damaged");
        }
        _ => {
            let whole = list(fs, dir, 0, &mut ListPosition::default());
            let (after, given) = match input.u8() % 3 {
                0 => (input.u64(), false),
                1 => (input.u8().into(), false),
                _ if whole.is_empty() => (0, true),
                _ => (input.pick(&whole).0, true),
            };
            let position = &mut positions[usize::from(input.u8() % 4)];
            let mut listed = list(fs, dir, after, position);
            if given {
                let behind: Vec<_> = whole.into_iter().filter(|entry| entry.0 > after).collect();
                assert_eq!(listed, behind, "behind {after}");
            } else {
                // A position that no listing returned begins somewhere: with names of the
                // directory, each once.
                let mut names: Vec<_> = listed.iter().map(|entry| &entry.1).collect();
                let all: Vec<_> = whole.iter().map(|entry| &entry.1).collect();
                assert!(
                    names.iter().all(|name| all.contains(name)),
                    "behind {after}"
                );
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), listed.len(), "behind {after}");
            }
            // In two calls, where the second continues after the first.
            let half = listed.split_off(listed.len() / 2);
            let last = listed.last().map_or(after, |entry| entry.0);
            assert_eq!(list(fs, dir, last, position), half, "behind {last}");
        }
    }
}

/// Offsets and lengths up to the limits and beyond.
#[test]
fn offsets() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        let mut twins = Twins::new();
        let mut input = Input::new(bytes);
        for _ in 0..24 {
            if input.is_empty() || !offset_step(&mut twins, &mut input) {
                break;
            }
        }
        close(&twins.fs);
    });
}

/// A number as system calls take them: small, near a power of two, or any that is not negative.
fn offset(input: &mut Input<'_>) -> u64 {
    let near = |bit: u32, off: u8| (1u64 << bit).wrapping_add_signed(i64::from(off as i8));
    let value = match input.u8() {
        0..120 => input.u16().into(),
        120..220 => near(u32::from(input.u8() % 64), input.u8()),
        _ => input.u64(),
    };
    value.min(i64::MAX as u64)
}

/// Returns `false` if the pool is full, which the model never is.
fn offset_step(twins: &mut Twins, input: &mut Input<'_>) -> bool {
    let (cred, path) = (Cred::root(), b"file".to_vec());
    let fs = Arc::clone(&twins.fs);
    let options = WRITE.create(false);
    let file = fs.open(&cred, &fs.root(), &path, &options);
    let file = file.expect("it was made");
    let (how, at) = (input.u8(), offset(input));
    let (answer, op) = match how % 6 {
        0 => {
            let (seed, len) = (u64::from(input.u8()), u64::from(input.u16() % 9000));
            let written = file.write_at(at, &pattern(seed, len));
            let op = Op::Write {
                path,
                offset: at,
                seed,
                len,
            };
            (written.map(|count| Payload::Count(count as u64)), op)
        }
        1 => {
            let mut buffer = vec![1; usize::from(input.u16() % 9000)];
            let range = Range {
                offset: at,
                len: buffer.len() as u64,
            };
            let read = file.read_at(at, &mut buffer);
            let bytes = read.map(|count| Payload::Bytes(buffer[..count].to_vec()));
            (bytes, Op::Read { path, range })
        }
        2 => {
            let set = SetAttr::new().size(Some(at));
            let done = fs.set_attr(&cred, file.node(), &set);
            (done.map(|_| Payload::Done), Op::Truncate { path, size: at })
        }
        3 => {
            let range = Range {
                offset: at,
                len: offset(input),
            };
            let (mode, allocate) = *input.pick(&[
                (0, Allocate::Grow),
                (1, Allocate::KeepSize),
                (3, Allocate::PunchHole),
            ]);
            let done = file.allocate(allocate, range.offset, range.len);
            let op = Op::Fallocate { path, mode, range };
            (done.map(|()| Payload::Done), op)
        }
        4 => {
            let found = file.seek_data(at);
            (
                found.map(Payload::Offset),
                Op::SeekData { path, offset: at },
            )
        }
        _ => {
            let found = file.seek_hole(at);
            (
                found.map(Payload::Offset),
                Op::SeekHole { path, offset: at },
            )
        }
    };
    if let Err(Error::NoSpace(_)) = answer {
        return false;
    }
    twins.compare(&op, 0, answer);
    true
}

/// Such a position once led into the other directory's log, which was reported as damage.
#[test]
fn a_position_of_another_directory() {
    let fs = new_volume();
    let (cred, top) = (Cred::root(), fs.root());
    let dirs = [b"one", b"two"].map(|name| {
        let dir = fs.mkdir(&cred, &top, name, 0o755).expect("it is made");
        for file in [b"a", b"b"] {
            fs.mkdir(&cred, &dir, file, 0o755).expect("it is made");
        }
        dir
    });
    let mut position = ListPosition::default();
    let first = list(&fs, &dirs[0], 0, &mut position)[1].0;
    assert_eq!(list(&fs, &dirs[1], first, &mut position), []);
    fs.mkdir(&cred, &dirs[1], b"c", 0o755).expect("it is made");
    assert_eq!(list(&fs, &dirs[1], first, &mut position), []);
    assert_eq!(list(&fs, &dirs[1], 0, &mut position).len(), 3);
    drop((dirs, top));
    close(&fs);
}

/// A rename once accepted names that no other operation accepts.
#[test]
fn a_rename_to_an_impossible_name() {
    let fs = new_volume();
    let (cred, top) = (Cred::root(), fs.root());
    fs.mkdir(&cred, &top, b"a", 0o755).expect("it is made");
    fs.mkdir(&cred, &top, b"b", 0o755).expect("it is made");
    for name in [&b"c/d"[..], b"c\0"] {
        for flags in [RenameFlags::empty(), RenameFlags::NO_REPLACE] {
            let renamed = fs.rename(&cred, &top, b"a", &top, name, flags);
            assert!(matches!(renamed, Err(Error::Invalid(_))), "{renamed:?}");
        }
    }
    drop(top);
    close(&fs);
}

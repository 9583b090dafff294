//! Logged pools whose process is killed: the next process adopts the image in shared memory, or
//! reports that it is gone.
//!
//! The tests start this program again and kill it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vellum::media::{MediaChoice, MediaError};
use vellum::{CreateOptions, Error, FoundImage, ImageLocation, MappingKind, Pool, PoolOptions};
use vellum_check::{Options, check};

/// Environment variables of the process to be killed: its pool, and the directory of its image.
const POOL: &str = "VELLUM_TEST_POOL";
const IMAGE: &str = "VELLUM_TEST_IMAGE";
/// Number of files.
const FILES: u64 = 40;
/// Offset of the version in an image.
const VERSION_AT: u64 = 8;

fn making() -> CreateOptions {
    CreateOptions::new(16 << 20)
        .media(MediaChoice::Logged)
        .mapping(MappingKind::Extent)
        .metadata_bytes(Some(1 << 19))
}

fn made(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("pool");
    making().create(&path).unwrap().close().unwrap();
    path
}

/// The contents of a file in a round. The log journals small ones, and each round overwrites those
/// of the previous round.
fn content(number: u64) -> Vec<u8> {
    let len = 100 + (number % 7) as usize * 3000;
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Works on a pool for ever, and prints each step that is done.
fn work(path: &Path) -> ! {
    let place = match std::env::var_os(IMAGE) {
        None => ImageLocation::Shared,
        Some(dir) if dir.is_empty() => ImageLocation::Process,
        Some(dir) => ImageLocation::In(dir.into()),
    };
    let options = PoolOptions::new().image(place);
    let pool = options.open(path).unwrap();
    let volume = pool.volume();
    println!(
        "open {:?} {}",
        pool.opened().image,
        pool.fs().image_dir().is_some()
    );
    let mut input = String::new();
    for number in 0.. {
        let name = format!("/{}", number % FILES);
        if number >= FILES && number / FILES % 3 == 1 {
            volume.remove_file(&name).unwrap();
        }
        volume.write(&name, content(number)).unwrap();
        match number % 50 {
            20 => volume.sync().unwrap(),
            30 => {
                let dir = format!("/d{}-{number}", std::process::id());
                volume.create_dir(&dir).unwrap();
                volume.rename(&name, format!("{dir}/moved")).unwrap();
                volume.rename(format!("{dir}/moved"), &name).unwrap();
            }
            _ => {}
        }
        println!("{number}");
        if number % 8 == 7 {
            // The killer triggers each further batch, so that it reads all of the output.
            input.clear();
            std::io::stdin().read_line(&mut input).unwrap();
        }
    }
    unreachable!("numbers do not end");
}

/// Not a test, but the process to be killed. Ends at once if the environment names no pool.
#[test]
fn the_process_that_is_killed() {
    if let Some(path) = std::env::var_os(POOL) {
        work(Path::new(&path));
    }
}

/// A process that works on a pool.
struct Worker {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    /// What it printed about its opening.
    opened: String,
    /// The last number that it printed as done.
    done: Option<u64>,
}

impl Worker {
    fn start(path: &Path, image: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "adoption::the_process_that_is_killed",
                "--nocapture",
            ])
            .env(POOL, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(image) = image {
            command.env(IMAGE, image);
        }
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut new = Self {
            child,
            said,
            opened: String::new(),
            done: None,
        };
        new.opened = loop {
            let line = new
                .line()
                .expect("the worker ended before the pool was open");
            if let Some((_, opened)) = line.split_once("open ") {
                break opened.to_owned();
            }
        };
        new
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.said.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits until the worker has printed `count` more steps.
    fn go_on(&mut self, count: u64) {
        let until = self.done.map_or(0, |done| done + 1) + count;
        while self.done.map_or(0, |done| done + 1) < until {
            let number: u64 = self.line().unwrap().parse().unwrap();
            self.done = Some(number);
            if number % 8 == 7 {
                self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            }
        }
    }

    /// Kills the worker at any point. Returns the last number that it printed.
    fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole.lines().last().map(|line| line.parse().unwrap());
        last.or(self.done).unwrap()
    }
}

/// The images in this directory.
fn images(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("vellum-")
    });
    found
}

/// A directory in memory for the images of one test.
fn shared() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn options(image: &Path) -> PoolOptions {
    PoolOptions::new().image(ImageLocation::In(image.into()))
}

/// Checks that every file is as after step `last`, except the file of the running step.
#[track_caller]
fn assert_done(pool: &Pool, last: u64) {
    for number in (last + 1).saturating_sub(FILES)..=last {
        // The step that ran at the kill is the next one.
        if number % FILES == (last + 1) % FILES {
            continue;
        }
        let name = format!("/{}", number % FILES);
        let found = pool.volume().read(&name).unwrap();
        assert!(
            found == content(number),
            "{name} as of {number}, {last} done"
        );
    }
}

#[track_caller]
fn assert_sound(path: &Path) {
    let report = check(&std::fs::File::open(path).unwrap(), Options::default());
    assert!(report.is_sound(), "{report}");
}

#[test]
fn a_kill_loses_no_step_that_had_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut last = None;
    for round in 0..12_u64 {
        let mut worker = Worker::start(&path, Some(shm.path()));
        assert_eq!(worker.opened, "None true", "round {round}");
        worker.go_on(FILES + round * 31);
        let done = worker.kill();
        assert_eq!(images(shm.path()).len(), 1);
        let pool = options(shm.path()).open(&path).unwrap();
        assert_eq!(pool.opened().image, FoundImage::Adopted);
        assert!(!pool.opened().was_clean);
        assert_done(&pool, done);
        pool.close().unwrap();
        assert_eq!(images(shm.path()), [] as [PathBuf; 0]);
        assert_sound(&path);
        last = Some(done);
    }
    let pool = options(shm.path()).open(&path).unwrap();
    assert!(pool.opened().was_clean && pool.opened().image == FoundImage::None);
    assert_done(&pool, last.unwrap());
}

/// After a dataset is removed, the image that a killed process left of it is useless and removed;
/// that of another dataset in the same file stays.
#[test]
fn an_image_goes_with_its_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let made = Pool::add_dataset(&path, "x", &making()).unwrap();
    made.close().unwrap();
    let shm = shared();
    let mut done = Vec::new();
    for place in ["pool", "pool:x"] {
        let mut worker = Worker::start(&dir.path().join(place), Some(shm.path()));
        worker.go_on(FILES);
        done.push(worker.kill());
    }
    assert_eq!(images(shm.path()).len(), 2);
    Pool::remove_dataset(&path, "x").unwrap();
    assert_eq!(images(shm.path()).len(), 1);
    let pool = options(shm.path()).open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::Adopted);
    assert_done(&pool, done[0]);
    pool.close().unwrap();
    assert_eq!(images(shm.path()), [] as [PathBuf; 0]);
}

#[test]
fn an_adopting_process_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut last = 0;
    for round in 0..4 {
        let mut worker = Worker::start(&path, Some(shm.path()));
        let before = if round == 0 {
            "None true"
        } else {
            "Adopted true"
        };
        assert_eq!(worker.opened, before);
        worker.go_on(FILES + 13);
        last = worker.kill();
    }
    let pool = options(shm.path()).open(&path).unwrap();
    assert_done(&pool, last);
    pool.close().unwrap();
    assert_sound(&path);
}

/// A read-only opening reads the image, and leaves image and pool for the next opening.
#[test]
fn a_read_only_opening_sees_what_a_kill_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(130);
    let last = worker.kill();
    let before = std::fs::read(&path).unwrap();
    let readonly = PoolOptions::new().read_only(true);
    let pool = readonly.open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::Adopted);
    assert_done(&pool, last);
    drop(pool);
    assert!(
        before == std::fs::read(&path).unwrap(),
        "the pool was written to"
    );
    let pool = options(shm.path()).open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::Adopted);
    assert_done(&pool, last);
}

/// Another process cannot open the pool meanwhile, and does not touch its image.
#[test]
fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(60);
    let second = options(shm.path()).open(&path);
    assert!(matches!(second, Err(Error::Media(MediaError::Busy { .. }))));
    assert_eq!(images(shm.path()).len(), 1);
    worker.go_on(10);
    let last = worker.kill();
    assert_done(&options(shm.path()).open(&path).unwrap(), last);
}

/// Without its image a killed process loses as much as in a power cut: the opening finds the last
/// epoch, and reports that.
#[test]
fn without_an_image_the_last_commit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let synced = |pool: &Pool| {
        // Step 70 synced.
        for number in 71 - FILES..=70 {
            let name = format!("/{}", number % FILES);
            let found = pool
                .volume()
                .read(&name)
                .map(|bytes| bytes == content(number));
            assert_eq!(found.ok(), Some(true), "{name} as of {number}");
        }
    };
    let mut worker = Worker::start(&path, Some(Path::new("")));
    assert_eq!(worker.opened, "None false");
    worker.go_on(71);
    worker.kill();
    let pool = options(shm.path()).open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::None, "there was none");
    synced(&pool);
    drop(pool);

    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(71);
    let [image] = &images(shm.path())[..] else {
        panic!("no image")
    };
    std::fs::remove_file(image).unwrap();
    worker.kill();
    let pool = options(shm.path()).open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::Lost);
    synced(&pool);
    drop(pool);
    assert_sound(&path);
}

/// An opening removes an image of an earlier session of the pool. It leaves an image that it does
/// not understand, or that is newer than the log, and refuses the pool.
#[test]
fn foreign_images_are_distinguished_from_the_pools_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let old_pool = std::fs::read(&path).unwrap();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(100);
    let last = worker.kill();
    let image = images(shm.path()).remove(0);
    let kept = std::fs::read(&image).unwrap();

    let opened = |path: &Path| options(shm.path()).open(path);
    let refused = |opened: Result<Pool, Error>, what: &str| {
        let error = opened.expect_err(what);
        let told = error.to_string();
        assert!(
            matches!(error, Error::Media(MediaError::Image { .. })),
            "{told}"
        );
        assert!(told.contains(what) && told.contains("remove it"), "{told}");
    };
    let change = |at: u64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    change(VERSION_AT, &[9]);
    refused(opened(&path), "another release");
    change(VERSION_AT, &[1]);
    change(0, b"X");
    refused(opened(&path), "not an image of this pool");
    change(0, b"V");

    // Restores the earlier bytes of the pool's file, and then those from the kill.
    let killed_pool = std::fs::read(&path).unwrap();
    std::fs::write(&path, &old_pool).unwrap();
    let read_only = options(shm.path()).read_only(true);
    for how in [options(shm.path()), read_only] {
        let error = how.open(&path).unwrap_err().to_string();
        assert!(error.contains("put back from a copy"), "{error}");
    }
    assert!(std::fs::read(&image).unwrap() == kept, "the image stays");
    std::fs::write(&path, &killed_pool).unwrap();
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let other = opened(&copy).unwrap();
    assert_eq!(
        other.opened().image,
        FoundImage::Lost,
        "a copy has another key"
    );
    drop(other);

    let adopted = opened(&path).unwrap();
    assert_eq!(adopted.opened().image, FoundImage::Adopted);
    assert_done(&adopted, last);
    adopted.close().unwrap();
    // The image reappears after the close, as a foreign one.
    std::fs::write(&image, &kept).unwrap();
    set_private(&image);
    let pool = opened(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::None);
    assert!(pool.opened().was_clean);
    assert_done(&pool, last);
    pool.close().unwrap();
    assert_eq!(images(shm.path()), [] as [PathBuf; 0]);
    assert_sound(&path);
}

fn set_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Opens the pool with the option to discard an image newer than the pool's file. The pool opens as
/// of its file's last epoch, and no image stays in memory. Works also if the file is a copy of a
/// closed pool, which names no image, or names another image.
fn gives_the_image_up(path: &Path, shm: &tempfile::TempDir) {
    let forgetting = options(shm.path()).discard_image(true);
    let pool = forgetting.open(path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::None);
    pool.close().unwrap();
    assert_eq!(images(shm.path()), [] as [PathBuf; 0]);
    assert_sound(path);
}

#[test]
fn a_newer_image_is_discarded_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(15);
    let used = std::fs::read(&path).unwrap();
    worker.kill();
    options(shm.path()).open(&path).unwrap().close().unwrap();
    let closed = std::fs::read(&path).unwrap();
    for copy in [closed, used] {
        let mut worker = Worker::start(&path, Some(shm.path()));
        worker.go_on(60);
        worker.kill();
        std::fs::write(&path, &copy).unwrap();
        assert!(options(shm.path()).open(&path).is_err());
        assert_eq!(images(shm.path()).len(), 1);
        gives_the_image_up(&path, &shm);
    }
}

/// A copy of the file taken while a process ran, and restored after that was killed, lacks bytes
/// that the image builds on.
#[test]
fn a_restored_copy_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(15);
    let copy = std::fs::read(&path).unwrap();
    worker.go_on(60);
    worker.kill();
    std::fs::write(&path, &copy).unwrap();
    let error = options(shm.path()).open(&path).unwrap_err();
    assert!(
        error.to_string().contains("put back from a copy"),
        "{error}"
    );
    gives_the_image_up(&path, &shm);
}

/// A file with an image's name that others may have put there is not used.
#[test]
fn links_and_open_files_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let shm = shared();
    let mut worker = Worker::start(&path, Some(shm.path()));
    worker.go_on(71);
    worker.kill();
    let image = images(shm.path()).remove(0);
    let away = shm.path().join("elsewhere");
    std::fs::rename(&image, &away).unwrap();
    std::os::unix::fs::symlink(&away, &image).unwrap();
    let readonly = PoolOptions::new().read_only(true);
    let found = |options: &PoolOptions| options.open(&path).unwrap().opened().image;
    assert_eq!(found(&readonly), FoundImage::Lost, "a link");
    std::fs::remove_file(&image).unwrap();
    std::fs::copy(&away, &image).unwrap();
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&image, open_to_all).unwrap();
    assert_eq!(found(&readonly), FoundImage::Lost, "others may write");
    set_private(&image);
    assert_eq!(found(&readonly), FoundImage::Adopted);
    assert_eq!(found(&options(shm.path())), FoundImage::Adopted);
}

#[test]
fn an_unsuitable_directory_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let gone = dir.path().join("gone");
    assert!(options(&gone).open(&path).is_err());
    assert_eq!(images(dir.path()), [] as [PathBuf; 0]);
    let pool = Pool::open(&path).unwrap();
    assert_eq!(pool.fs().image_dir(), Some(PathBuf::from("/dev/shm")));
    let [image] = &images_of(&path)[..] else {
        panic!("no image")
    };
    std::fs::remove_file(image).unwrap();
    assert!(pool.fs().has_lost_image() && pool.fs().image_dir().is_none());
    pool.close().unwrap();
    assert!(Pool::open(&path).unwrap().opened().was_clean);
}

/// The images in `/dev/shm` of the pool at `path`.
fn images_of(path: &Path) -> Vec<PathBuf> {
    let mut found = images(Path::new("/dev/shm"));
    found.retain(|image| names(image, path));
    found
}

/// If a process is killed while it opens a pool, the next opening removes its image, wherever that
/// opening keeps its own.
#[test]
fn images_of_killed_openings_do_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let alone = PoolOptions::new().image(ImageLocation::Process);
    // The last round checks that nothing is left.
    for round in 0..=30_u64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "adoption::the_process_that_is_killed",
                "--nocapture",
            ])
            .env(POOL, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = images_of(&path);
        assert!(left.len() <= 1, "{left:?}");
        if round % 3 == 0 {
            alone.open(&path).unwrap().close().unwrap();
            assert_eq!(images_of(&path), [] as [PathBuf; 0], "round {round}");
        }
    }
    assert_sound(&path);
}

/// The next opening removes a named image that the log does not name, even if it puts its own image
/// elsewhere.
#[test]
fn an_image_that_no_log_names_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(&dir);
    let pool = Pool::open(&path).unwrap();
    let [image] = &images_of(&path)[..] else {
        panic!("no image")
    };
    let kept = std::fs::read(image).unwrap();
    pool.close().unwrap();
    std::fs::write(image, kept).unwrap();
    set_private(image);
    let shm = shared();
    let readonly = PoolOptions::new().read_only(true);
    drop(readonly.open(&path).unwrap());
    assert_eq!(
        images_of(&path).len(),
        1,
        "a read-only opening changes nothing"
    );
    let pool = options(shm.path()).open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::None);
    assert_eq!(images_of(&path), [] as [PathBuf; 0]);
    pool.close().unwrap();
}

/// Whether an image names the pool at `path` as its own.
fn names(image: &Path, path: &Path) -> bool {
    let path = path.canonicalize().unwrap();
    let path = path.as_os_str().as_encoded_bytes();
    let mut said = vec![0; path.len()];
    let file = std::fs::File::open(image);
    file.and_then(|file| file.read_exact_at(&mut said, 128))
        .is_ok()
        && said == path
}

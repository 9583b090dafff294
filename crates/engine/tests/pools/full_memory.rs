//! Logged pools while another process fills the directory in memory that holds their image.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use vellum::media::MediaChoice;
use vellum::{CreateOptions, Error, FoundImage, Pool};

/// Environment variable of a test that has its own `/dev/shm`.
const OWN: &str = "VELLUM_TEST_OWN_SHM";
/// Exit code of the script if it may not mount.
const NOT_ALLOWED: i32 = 77;

/// Whether this process has a `/dev/shm` of `size` for itself. If not, runs the test `name` again
/// in a process that has.
fn has_own_shm(name: &str, size: &str) -> bool {
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let script = "mount -t tmpfs -o size=\"$1\" none /dev/shm || exit 77; shift; exec \"$@\"";
    let program = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", size])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(OWN, "1")
        .output()
        .map(|output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code().unwrap_or(-1), said)
        });
    match status {
        Ok((0, _)) => {}
        Ok((code, said)) if code != NOT_ALLOWED && !said.starts_with("unshare:") => {
            panic!("exit {code}: {said}")
        }
        refused => {
            // Not through the test harness, which hides the output of passing tests.
            let note = format!("SKIPPED {name}: no mount namespace of its own ({refused:?})\n");
            let terminal = std::fs::OpenOptions::new().append(true).open("/dev/stderr");
            let _ = terminal.and_then(|mut to| to.write_all(note.as_bytes()));
        }
    }
    false
}

/// Fills all of `/dev/shm`, as another process might.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// While others leave no memory, exactly the files reported as free can be created; the next one is
/// refused with the reason. When they free memory, there is more, without another opening.
#[test]
fn files_reported_as_free_have_their_memory() {
    if !has_own_shm(
        "full_memory::files_reported_as_free_have_their_memory",
        "40m",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let making = CreateOptions::new(64 << 20)
        .media(MediaChoice::Logged)
        .metadata_bytes(Some(24 << 20));
    making.create(&path).unwrap().close().unwrap();
    let pool = Pool::open(&path).unwrap();
    assert_eq!(
        pool.fs().image_dir().as_deref(),
        Some(Path::new("/dev/shm"))
    );
    let free = || pool.fs().stat_fs().files_free;
    let volume = pool.volume();
    let before = free();
    let other = Path::new("/dev/shm/other");
    fill(other);
    let left = free();
    assert!(
        (60_000..before - 20_000).contains(&left),
        "{left} of {before}"
    );

    let mut made = 0;
    let refused = loop {
        match volume.write(format!("/{made}"), b"") {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    // The directory's log takes some of it.
    assert!(
        (left / 10 * 7..left + 500).contains(&made),
        "{made} of {left}"
    );
    assert!(matches!(refused, Error::NoSpace(_)), "{refused:?}");
    assert!(refused.to_string().contains("/dev/shm"), "{refused}");
    assert!(free() < left / 3, "{}", free());

    std::fs::remove_file(other).unwrap();
    assert!(free() > 20_000, "{}", free());
    for more in 0..1000 {
        volume.write(format!("/more{more}"), b"x").unwrap();
    }
    drop(volume);
    pool.close().unwrap();
    let pool = Pool::open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::None);
    assert_eq!(pool.volume().read("/more999").unwrap(), b"x");
    pool.close().unwrap();
}

/// Memory is taken away from the image, and others fill it. The operation that stores there reports
/// an error, as does the next sync. The next opening finds what was synced before.
#[test]
fn lost_memory_is_reported() {
    if !has_own_shm("full_memory::lost_memory_is_reported", "40m") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let making = CreateOptions::new(16 << 20).media(MediaChoice::Logged);
    making.create(&path).unwrap().close().unwrap();
    let pool = Pool::open(&path).unwrap();
    let volume = pool.volume();
    volume.write("/a", b"kept").unwrap();
    volume.sync().unwrap();
    volume.write("/b", b"not synced").unwrap();

    let entries = std::fs::read_dir("/dev/shm").unwrap();
    let images: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let image = std::fs::OpenOptions::new().write(true).open(&images[0]);
    let image = image.unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let metadata_at = 2 << 20;
    let len = image.metadata().unwrap().len() - metadata_at;
    fallocate(&image, punch, metadata_at, len).unwrap();
    fill(Path::new("/dev/shm/other"));
    assert!(volume.write("/c", b"c").is_err());
    assert!(volume.sync().is_err());
    drop(volume);
    assert!(pool.close().is_err());

    std::fs::remove_file("/dev/shm/other").unwrap();
    let pool = Pool::open(&path).unwrap();
    assert_eq!(pool.opened().image, FoundImage::Lost);
    assert_eq!(pool.volume().read("/a").unwrap(), b"kept");
    assert!(pool.volume().read("/b").is_err());
    pool.close().unwrap();
}

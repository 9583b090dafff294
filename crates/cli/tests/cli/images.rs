//! The images that killed processes left in memory: they are listed, kept for their pools, and
//! removed once the pools are gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ALONE, Bench, Mounted, has_fuse, kill, namespaces, vellum};
use serde_json::Value;

/// The line of the list about this pool.
fn listed(bench: &Bench, pool: &Path) -> Option<Value> {
    let out = bench.run(&["info", "--images", "--json"]).ok().out;
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let lines = all["images"].as_array().expect("a list").clone();
    lines
        .into_iter()
        .find(|line| line["pool"] == pool.to_str().expect("text"))
}

fn state(line: &Option<Value>) -> &str {
    line.as_ref()
        .map_or("none", |line| line["state"].as_str().expect("text"))
}

/// The image of a line.
fn image(line: &Option<Value>) -> PathBuf {
    let line = line.as_ref().expect("a line");
    line["image"].as_str().expect("a path").into()
}

#[test]
fn the_image_of_a_killed_mount_is_listed_and_kept() {
    if !has_fuse("the_image_of_a_killed_mount_is_listed_and_kept") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    let line = listed(bench, &pool);
    assert_eq!(state(&line), "in use");
    let by_name = image(&line);
    let by_name = by_name.to_str().expect("text");
    bench.run(&["prune", by_name]).failed(3, &["uses it"]);
    std::fs::write(mounted.path("a"), "not synced").expect("written");
    kill(&mounted);

    let line = listed(bench, &pool);
    assert_eq!(state(&line), "can be adopted");
    assert!(
        line.as_ref()
            .is_some_and(|line| line["memory_bytes"].as_u64() > Some(1 << 20))
    );
    bench.run(&["prune"]).ok();
    bench
        .run(&["prune", by_name])
        .failed(1, &["adopts it", "repair --discard-image"]);
    let moved = bench.join("q.img");
    std::fs::rename(&pool, &moved).expect("renamed");
    // Only root can see its new path.
    let line = listed(bench, &moved).or_else(|| listed(bench, &pool));
    assert!(
        ["can be adopted", "unknown"].contains(&state(&line)),
        "{line:?}"
    );
    bench.run(&["prune"]).ok();
    assert_eq!(bench.run(&["cat", "q.img:/a"]).ok().out, "not synced");
    bench.run(&["mkdir", "q.img:/d"]).ok();
    assert!(listed(bench, &moved).is_none() && listed(bench, &pool).is_none());
}

#[test]
fn the_image_of_a_lost_pool_is_removed() {
    if !has_fuse("the_image_of_a_lost_pool_is_removed") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    kill(&mounted);
    // Another pool in the same file.
    let remade = ["mkfs", "p.img", "--force", "--quiet"];
    let left = image(&listed(bench, &pool));
    bench.run(&remade).ok();
    assert!(!left.exists());

    // `mkfs` of other tests removes such images, too, and may come first.
    let tries = (0..5).map(|_| {
        mounted.mount(&[]);
        kill(&mounted);
        std::fs::remove_file(&pool).expect("removed");
        let removed = lists_and_removes_the_image_of(bench, &pool);
        bench
            .run(&["mkfs", "p.img", "--size", "64M", "--quiet"])
            .ok();
        removed
    });
    let failed: Vec<String> = tries.map_while(Result::err).collect();
    assert!(failed.len() < 5, "{failed:?}");
}

/// Lists and removes the image of a pool that is gone. Fails with what was said otherwise.
fn lists_and_removes_the_image_of(bench: &Bench, pool: &Path) -> Result<(), String> {
    let expect = |is_so: bool, said: String| if is_so { Ok(()) } else { Err(said) };
    let line = listed(bench, pool);
    expect(line.is_some(), "not listed".into())?;
    let left = image(&line);
    if state(&line) == "unknown" {
        // This needs permission, and support by the file system.
        bench.run(&["prune", left.to_str().expect("text")]).ok();
        return expect(!left.exists(), "not removed".into());
    }
    expect(state(&line) == "pool gone", format!("{line:?}"))?;
    let told = bench.run(&["info", "--images"]).ok().out;
    expect(told.contains("`vellum prune` removes it"), told)?;
    let said = bench.run(&["prune", "--dry-run"]).ok().out;
    expect(said.contains("would remove") && left.exists(), said)?;
    let said = bench.run(&["prune"]).ok().out;
    expect(said.contains(left.to_str().expect("text")), said)?;
    expect(!left.exists(), "not removed".into())
}

/// A mounted pool that was unmounted before, with two copies: one from between, and one from before
/// the last kill.
fn put_back() -> (Mounted, [Vec<u8>; 2]) {
    let mounted = Mounted::new("64M", &[]);
    std::fs::write(mounted.path("a"), "old").expect("written");
    mounted.umount();
    let file = mounted.bench.join("p.img");
    let copy = || std::fs::read(&file).expect("read");
    let closed = copy();
    mounted.mount(&[]);
    let used = copy();
    std::fs::write(mounted.path("b"), "synced").expect("written");
    mounted.bench.run(&["sync", "mnt"]).ok();
    std::fs::write(mounted.path("c"), "not synced").expect("written");
    kill(&mounted);
    (mounted, [closed, used])
}

/// Asserts that all commands that open the pool fail, with all `parts` in the message.
fn all_refuse(bench: &Bench, parts: &[&str]) {
    for command in [
        &["check", "p.img"][..],
        &["info", "p.img"],
        &["ls", "p.img:/"],
        &["mount", "p.img", "mnt"],
        &["repair", "--yes", "p.img"],
        &["mkdir", "p.img:/d"],
    ] {
        let did = bench.run(command);
        assert!(did.code != 0, "{command:?}");
        for part in parts {
            assert!(did.err.contains(part), "{command:?}: {}", did.err);
        }
    }
}

/// An older copy in place of the pool's file does not adopt the newer image, whether the copied
/// pool was closed or not. The image stays until the user decides.
#[test]
fn an_image_newer_than_the_file_stays() {
    if !has_fuse("an_image_newer_than_the_file_stays") {
        return;
    }
    let (mounted, copies) = put_back();
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    let right = std::fs::read(&pool).expect("read");
    let line = listed(bench, &pool);
    assert_eq!(state(&line), "can be adopted");
    let left = image(&line);
    let name = left.to_str().expect("text");
    for copy in &copies {
        std::fs::write(&pool, copy).expect("written");
        assert_eq!(state(&listed(bench, &pool)), "does not fit");
        all_refuse(
            bench,
            &[
                "later time",
                "vellum repair --discard-image ",
                "vellum mount --discard-image ",
            ],
        );
        bench.run(&["prune"]).ok();
        let said = bench.run(&["prune", name]).failed(1, &["it is newer than"]);
        assert!(
            said.err.contains("vellum repair --discard-image "),
            "{}",
            said.err
        );
        assert!(left.exists());
        assert!(std::fs::read(&pool).expect("read") == *copy);
    }
    std::fs::write(&pool, &right).expect("written");
    assert_eq!(state(&listed(bench, &pool)), "can be adopted");
    bench.run(&["mkdir", "p.img:/d"]).ok();
    assert_eq!(bench.run(&["cat", "p.img:/c"]).ok().out, "not synced");
}

#[test]
fn discarding_a_newer_image_keeps_the_copy() {
    if !has_fuse("discarding_a_newer_image_keeps_the_copy") {
        return;
    }
    for command in [
        &["repair", "--discard-image", "--yes", "p.img"][..],
        &["mount", "--discard-image", "p.img", "mnt"],
        &["prune", "--force", "IMAGE"],
    ] {
        let (mounted, [closed, _]) = put_back();
        let bench = &mounted.bench;
        let pool = bench.join("p.img");
        let left = image(&listed(bench, &pool));
        std::fs::write(&pool, closed).expect("written");
        let name = left.to_str().expect("text");
        let command: Vec<&str> = command
            .iter()
            .map(|word| if *word == "IMAGE" { name } else { word })
            .collect();
        bench.run(&command).ok();
        if command[0] == "mount" {
            mounted.umount();
        }
        assert!(!left.exists(), "{command:?}");
        assert_eq!(bench.run(&["ls", "p.img:/"]).ok().out, "a\n");
    }
}

/// Tools that restore files create a new file and rename it to the old name.
fn in_its_place(bench: &Bench, copy: &[u8]) {
    std::fs::write(bench.join("restored.img"), copy).expect("written");
    std::fs::rename(bench.join("restored.img"), bench.join("p.img")).expect("renamed");
}

#[test]
fn an_older_copy_is_refused_if_the_right_file_is_gone() {
    if !has_fuse("an_older_copy_is_refused_if_the_right_file_is_gone") {
        return;
    }
    for (number, discard) in [
        &["repair", "--discard-image", "--yes", "p.img"][..],
        &["mount", "--discard-image", "p.img", "mnt"],
    ]
    .into_iter()
    .enumerate()
    {
        let (mounted, copies) = put_back();
        let bench = &mounted.bench;
        let pool = bench.join("p.img");
        let left = image(&listed(bench, &pool));
        in_its_place(bench, &copies[number]);
        let said = bench.run(&["info", "--images"]).ok().out;
        assert!(said.contains(left.to_str().expect("text")), "{said}");
        assert_eq!(state(&listed(bench, &pool)), "does not fit");
        all_refuse(bench, &["later time", "vellum repair --discard-image "]);
        // Other commands do not remove it either.
        bench.run(&["prune"]).ok();
        let made = ["mkfs", "other.img", "--size", "4M", "--quiet"];
        bench.run(&made).ok();
        assert!(left.exists());
        bench.run(discard).ok();
        if discard[0] == "mount" {
            mounted.umount();
        }
        assert!(!left.exists(), "{discard:?}");
        assert_eq!(bench.run(&["ls", "p.img:/"]).ok().out, "a\n");
        bench.run(&["mkdir", "p.img:/d"]).ok();
    }
}

/// Nothing is lost: the image belongs to the other file.
#[test]
fn an_older_copy_opens_beside_the_right_file() {
    if !has_fuse("an_older_copy_opens_beside_the_right_file") {
        return;
    }
    let (mounted, [closed, used]) = put_back();
    let bench = &mounted.bench;
    for copy in [closed, used] {
        std::fs::write(bench.join("copy.img"), copy).expect("written");
        assert_eq!(bench.run(&["ls", "copy.img:/"]).ok().out, "a\n");
        bench.run(&["mkdir", "copy.img:/d"]).ok();
    }
    assert_eq!(bench.run(&["cat", "p.img:/c"]).ok().out, "not synced");
}

/// A file that was moved to another file system is a copy of a deleted file.
#[test]
fn a_full_copy_adopts_the_image_of_a_deleted_file() {
    if !has_fuse("a_full_copy_adopts_the_image_of_a_deleted_file") {
        return;
    }
    let (mounted, _) = put_back();
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    let left = image(&listed(bench, &pool));
    in_its_place(bench, &std::fs::read(&pool).expect("read"));
    assert_eq!(state(&listed(bench, &pool)), "can be adopted");
    bench
        .run(&["mkfs", "o.img", "--size", "4M", "--quiet"])
        .ok();
    assert!(left.exists());
    assert_eq!(bench.run(&["cat", "p.img:/c"]).ok().out, "not synced");
    mounted.mount(&[]);
    assert_eq!(
        std::fs::read(mounted.path("c")).expect("read"),
        b"not synced"
    );
    mounted.umount();
    bench.run(&["prune"]).ok();
    assert!(!left.exists());
}

/// An image that the next opening would adopt is removed only if it is named and --force is given.
#[test]
fn a_named_image_is_removed_by_force() {
    if !has_fuse("a_named_image_is_removed_by_force") {
        return;
    }
    let mounted = Mounted::new("16M", &[]);
    let bench = &mounted.bench;
    let pool = bench.join("p.img");
    let left = image(&listed(bench, &pool));
    let name = left.to_str().expect("text");
    let force = ["prune", "--force", name];
    bench.run(&force).failed(3, &["uses it"]);
    kill(&mounted);
    bench
        .run(&["prune", name])
        .failed(1, &["vellum prune --force "]);
    let did = bench.run(&force).ok();
    assert!(
        did.out.contains("removed ") && did.err.contains("are lost"),
        "{}",
        did.err
    );
    assert!(!left.exists());
    bench.run(&["mkdir", "p.img:/d"]).ok();
    bench.sound();
}

/// The device number may belong to another device by now, so its image is removed only by name.
#[test]
fn the_image_of_a_lost_device_is_removed_by_name() {
    let test = "the_image_of_a_lost_device_is_removed_by_name";
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("mnt")).expect("made");
    let place = bench.path().to_owned();
    let losetup = |args: &[&str]| {
        let mut command = Command::new("losetup");
        let output = command.args(args).current_dir(&place).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let file = std::fs::File::create(bench.join("device.img"));
    file.and_then(|file| file.set_len(32 << 20)).expect("made");
    let attach = ["--find", "--show", "device.img"];
    let Some(device) = has_fuse(test).then(|| losetup(&attach)).flatten() else {
        crate::support::skipped(test, "no loop device");
        return;
    };
    let detach = || assert!(losetup(&["-d", &device]).is_some());
    bench.run(&["mkfs", &device, "--quiet"]).ok();
    bench.run(&["mount", &device, "mnt"]).ok();
    let dir = bench.join("mnt");
    let mounted = Mounted { bench, dir };
    kill(&mounted);
    let Mounted { bench, .. } = &mounted;
    let line = listed(bench, Path::new(&device));
    let left = image(&line);
    let state_now = || {
        let out = bench.run(&["info", "--images", "--json"]).ok().out;
        let all: Value = serde_json::from_str(&out).expect("JSON");
        let lines = all["images"].as_array().expect("a list").clone();
        let found = lines
            .into_iter()
            .find(|line| line["image"] == left.to_str().expect("text"));
        state(&found).to_owned()
    };
    let was = state(&line).to_owned();
    // The device has another pool.
    bench.run(&["mkfs", &device, "--force", "--quiet"]).ok();
    let with_another = state_now();
    detach();
    assert_eq!(was, "can be adopted");
    assert_eq!(with_another, "unknown");
    // The device has nothing, unless another program uses it by now.
    assert_eq!(state_now(), "unknown");
    bench.run(&["prune"]).ok();
    assert!(left.exists());
    let did = bench.run(&["prune", left.to_str().expect("text")]).ok();
    assert!(
        did.err.contains("are lost") && !left.exists(),
        "{}",
        did.err
    );
}

/// A user who cannot remove an image learns who can.
#[test]
fn images_of_other_users_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let bench = Bench::empty();
    let open_to_all = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(bench.path(), open_to_all(0o755)).expect("set");
    let name = format!("vellum-{}", "0".repeat(96));
    let left = bench.join(&name);
    std::fs::write(&left, "").expect("written");
    std::fs::set_permissions(&left, open_to_all(0o600)).expect("set");
    let run = |args: &[&str]| {
        let mut command = vellum();
        command.args(args).current_dir(bench.path());
        command.uid(NOBODY).gid(NOBODY).output()
    };
    let dir = bench.path().to_str().expect("text");
    let Ok(listed) = run(&["info", "--images", dir]) else {
        crate::support::skipped("images_of_other_users_are_kept", "no other user");
        return;
    };
    let told = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(told.contains("it belongs to root, and only root"), "{told}");
    assert!(!told.contains("prune"), "{told}");
    let all = run(&["prune", "--force", "--image", dir]).expect("it runs");
    assert!(all.status.success() && left.exists());
    let one = run(&["prune", "--force", "--image", dir, &name]).expect("it runs");
    let said = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(
        said.contains("it belongs to root") && left.exists(),
        "{said}"
    );
    assert_eq!(one.status.code(), Some(1));
}

/// A file system that is not mounted here may be mounted again.
#[test]
fn the_image_of_an_unreachable_pool_stays() {
    let test = "the_image_of_an_unreachable_pool_stays";
    if !has_fuse(test) {
        return;
    }
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("fs")).expect("made");
    std::fs::create_dir(bench.join("mnt")).expect("made");
    // The mount's process holds the file system until it is killed.
    let script = "mount -t tmpfs none fs || exit 77
        set -e
        \"$VELLUM\" mkfs fs/p.img --size 64M --medium disk --quiet
        \"$VELLUM\" mount fs/p.img mnt
        pid=$(\"$VELLUM\" info --json mnt | sed -n 's/^ *\"pid\": \\([0-9]*\\).*/\\1/p' | tail -n 1)
        kill -9 \"$pid\"
        while kill -0 \"$pid\" 2>/dev/null; do sleep 0.01; done";
    let alone = namespaces();
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-c", &format!("{ALONE}{script}")])
        .env("VELLUM", vellum().get_program())
        .current_dir(bench.path())
        .output();
    drop(alone);
    match output.map(|output| output.status.code()) {
        Ok(Some(0)) => {}
        refused => {
            crate::support::skipped(
                test,
                &format!("no mount namespace of its own ({refused:?})"),
            );
            return;
        }
    }
    let pool = bench.join("fs/p.img");
    let line = listed(&bench, &pool);
    assert_eq!(state(&line), "unknown", "{line:?}");
    let left = image(&line);
    bench.run(&["prune"]).ok();
    assert!(left.exists());
    let name = left.file_name().and_then(|name| name.to_str());
    bench.run(&["prune", name.expect("a name")]).ok();
    assert!(!left.exists());
}

//! A mount, from `vellum mount` to its end. The real-world tests through a mount are in
//! `tests/mount`.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Bench, Mounted, has_fuse, is_mounted, kill, vellum};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_mount_keeps_what_was_written() {
    if !has_fuse("a_mount_keeps_what_was_written") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    std::fs::write(mounted.path("a"), "first").expect("written");
    std::fs::create_dir(mounted.path("dir")).expect("made");
    std::fs::rename(mounted.path("a"), mounted.path("dir/b")).expect("renamed");
    std::os::unix::fs::symlink("dir/b", mounted.path("link")).expect("linked");
    std::fs::hard_link(mounted.path("dir/b"), mounted.path("c")).expect("linked");
    assert_eq!(std::fs::read(mounted.path("link")).expect("read"), b"first");
    assert_eq!(mounted.path("c").metadata().expect("attributes").nlink(), 2);
    mounted.umount();
    assert!(mounted.dir.read_dir().expect("listed").next().is_none());
    assert_eq!(mounted.bench.run(&["cat", "p.img:/c"]).ok().out, "first");
    mounted.mount(&["-o", "ro"]);
    assert_eq!(
        std::fs::read(mounted.path("dir/b")).expect("read"),
        b"first"
    );
    let refused = std::fs::write(mounted.path("d"), "").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.umount();
}

#[test]
fn requests_are_counted_of_a_mount_and_of_nothing_else() {
    if !has_fuse("requests_are_counted_of_a_mount_and_of_nothing_else") {
        return;
    }
    let mounted = Mounted::new("64M", &["-o", "uring=off"]);
    std::fs::create_dir(mounted.path("dir")).expect("made");
    let told = told(&mounted);
    assert_eq!(told["mount"]["door"], "/dev/fuse");
    assert_eq!(told["mount"]["requests"]["mkdir"], 1);
    let told = mounted.bench.run(&["info", "--requests", "p.img"]).ok().out;
    assert!(told.contains("           1  mkdir\n"), "{told}");
    assert!(told.ends_with("  all, by /dev/fuse\n"), "{told}");
    mounted.umount();
    let refused = mounted.bench.run(&["info", "--requests", "p.img"]);
    refused.failed(1, &["p.img is not mounted", "only a mount has requests"]);
}

fn told(mounted: &Mounted) -> serde_json::Value {
    let told = mounted.bench.run(&["info", "--json", "p.img"]).ok().out;
    serde_json::from_str(&told).expect("JSON")
}

#[test]
fn gathered_writes_reach_the_pool_when_their_file_is_synced_or_closed() {
    if !has_fuse("gathered_writes_reach_the_pool_when_their_file_is_synced_or_closed") {
        return;
    }
    const WRITES: usize = 1000;
    let mounted = Mounted::new("64M", &["-o", "writeback"]);
    let write = |name| {
        let mut file = File::create(mounted.path(name)).expect("made");
        for _ in 0..WRITES {
            file.write_all(b"sixteen bytes...").expect("written");
        }
        file
    };
    let synced = write("synced");
    synced.sync_all().expect("synced");
    drop(write("closed"));
    let _open = write("open");
    let requests = told(&mounted)["mount"]["requests"]["write"].as_u64();
    let requests = requests.expect("a number");
    assert!((2..WRITES as u64 / 2).contains(&requests), "{requests}");
    let promised = told(&mounted)["media"]["survives"]["killed_process"].to_string();
    assert!(promised.contains("-o writeback"), "{promised}");
    kill(&mounted);
    mounted.mount(&[]);
    for name in ["synced", "closed"] {
        let found = std::fs::read(mounted.path(name)).expect("read");
        assert!(found == b"sixteen bytes...".repeat(WRITES), "{name}");
    }
    mounted.umount();
}

/// Neither a write nor a change of owner asks for attributes then.
#[test]
fn a_mount_may_be_without_extended_attributes() {
    if !has_fuse("a_mount_may_be_without_extended_attributes") {
        return;
    }
    for (options, asks) in [(&[][..], true), (&["-o", "noxattr"], false)] {
        let mounted = Mounted::new("64M", options);
        let path = mounted.path("f");
        for _ in 0..20 {
            std::fs::write(&path, "text").expect("written");
            std::fs::remove_file(&path).expect("removed");
        }
        let asked = told(&mounted)["mount"]["requests"]["getxattr"].as_u64();
        assert_eq!(asked.unwrap_or(0) > 1, asks, "{asked:?}");
        mounted.umount();
    }
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    if !has_fuse("an_unlinked_file_lives_while_it_is_open") {
        return;
    }
    for options in [&[][..], &["-o", "open_requests"]] {
        let mounted = Mounted::new("64M", options);
        let path = mounted.path("gone");
        std::fs::write(&path, "still here").expect("written");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        std::fs::remove_file(&path).expect("removed");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "still here");
        file.write_all_at(b"more", 1 << 20).expect("written");
        assert_eq!(file.metadata().expect("attributes").size(), (1 << 20) + 4);
        assert_eq!(file.metadata().expect("attributes").nlink(), 0);
        // A new file of that name is another file.
        std::fs::write(&path, "new").expect("written");
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
        drop(file);
        mounted.umount();
    }
}

#[test]
fn opening_truncates_appends_and_refuses() {
    if !has_fuse("opening_truncates_appends_and_refuses") {
        return;
    }
    for options in [&[][..], &["-o", "open_requests"]] {
        let mounted = Mounted::new("64M", options);
        let path = mounted.path("file");
        for round in 0..3 {
            std::fs::write(&path, format!("a long content {round}")).expect("written");
            std::fs::write(&path, "cut").expect("written");
            assert_eq!(std::fs::read(&path).expect("read"), b"cut");
        }
        let mut first = OpenOptions::new().append(true).open(&path).expect("opened");
        let mut second = OpenOptions::new().append(true).open(&path).expect("opened");
        first.write_all(b"+1").expect("written");
        second.write_all(b"+2").expect("written");
        first.write_all(b"+3").expect("written");
        assert_eq!(std::fs::read(&path).expect("read"), b"cut+1+2+3");
        let exists = File::create_new(&path).expect_err("it exists");
        assert_eq!(exists.kind(), std::io::ErrorKind::AlreadyExists);
        drop((first, second));
        mounted.umount();
    }
}

#[test]
fn writing_and_owning_drop_set_id_bits() {
    if !has_fuse("writing_and_owning_drop_set_id_bits") || !rustix::process::geteuid().is_root() {
        return;
    }
    let mounted = Mounted::new("64M", &["-o", "suid"]);
    let path = mounted.path("program");
    std::fs::write(&path, "x").expect("written");
    let mode = || path.metadata().expect("attributes").mode() & 0o7777;
    std::fs::set_permissions(&path, Permissions::from_mode(0o6777)).expect("changed");
    // As another user, whose writes must clear the bits.
    let as_nobody = |script: &str| {
        let status = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(&path)
            .status();
        assert!(status.expect("setpriv runs").success(), "{script}");
    };
    std::fs::set_permissions(mounted.bench.path(), Permissions::from_mode(0o755)).expect("open");
    as_nobody("echo more >> \"$1\"");
    assert_eq!(mode(), 0o777);
    std::fs::set_permissions(&path, Permissions::from_mode(0o6777)).expect("changed");
    as_nobody(": > \"$1\"");
    assert_eq!(mode(), 0o777);
    std::fs::set_permissions(&path, Permissions::from_mode(0o6777)).expect("changed");
    std::os::unix::fs::chown(&path, Some(1), Some(1)).expect("owned");
    assert_eq!(mode(), 0o777);
    mounted.umount();
}

#[test]
fn large_directories_are_listed_whole() {
    if !has_fuse("large_directories_are_listed_whole") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    let names: Vec<String> = (0..3000)
        .map(|index| format!("a-rather-long-name-{index:05}"))
        .collect();
    for name in &names {
        File::create_new(mounted.path(name)).expect("made");
    }
    let listed = || {
        let mut listed: Vec<String> = mounted
            .dir
            .read_dir()
            .expect("listed")
            .map(|entry| {
                entry
                    .expect("read")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        listed.sort();
        listed
    };
    assert_eq!(listed(), names);
    assert_eq!(listed(), names);
    for name in names.iter().step_by(2) {
        std::fs::remove_file(mounted.path(name)).expect("removed");
    }
    let left: Vec<String> = names.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(listed(), left);
    for entry in mounted.dir.read_dir().expect("listed") {
        std::fs::remove_file(entry.expect("read").path()).expect("removed");
    }
    assert!(listed().is_empty());
    mounted.umount();
}

#[test]
fn holes_are_found_and_made() {
    if !has_fuse("holes_are_found_and_made") {
        return;
    }
    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
    let mounted = Mounted::new("64M", &[]);
    let file = File::create_new(mounted.path("sparse")).expect("made");
    file.set_len(1 << 20).expect("long");
    file.write_all_at(&[1; 8192], 65536).expect("written");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(65536));
    assert_eq!(seek(&file, SeekFrom::Hole(65536)), Ok(65536 + 8192));
    fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        65536,
        4096,
    )
    .expect("punched");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(65536 + 4096));
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 65536).expect("allocated");
    let refused = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).expect("zeroed");
    let copy = File::create_new(mounted.path("copy")).expect("made");
    let (mut from, mut to) = (65536 + 4096, 10);
    let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4096);
    assert_eq!(copied, Ok(4096));
    let mut bytes = [0; 4096];
    File::open(mounted.path("copy"))
        .expect("opened")
        .read_exact_at(&mut bytes, 10)
        .expect("read");
    assert_eq!(bytes, [1; 4096]);
    drop((file, copy));
    mounted.umount();
}

/// The mount's answer is longer than one exchange.
#[test]
fn areas_of_a_mounted_pool_are_shown_and_evolve() {
    const AREAS: usize = 16;
    const NAMES: usize = 257;
    if !has_fuse("areas_of_a_mounted_pool_are_shown_and_evolve") {
        return;
    }
    let bench = Bench::empty();
    let make = ["mkfs", "p.img", "--size", "64M", "-O", "metadata=12M"];
    bench
        .run(&[&make[..], &["-O", "namespace=adaptive"]].concat())
        .ok();
    let mounted = Mounted::of(bench, &["--evolve-every", "3600"]);
    let above = mounted.path(&"long/".repeat(120));
    std::fs::create_dir_all(&above).expect("directories");
    let dir = |number: usize| above.join(number.to_string());
    for number in 0..AREAS {
        let made = mounted.path("made");
        std::fs::create_dir(&made).expect("made");
        for name in 0..NAMES {
            std::fs::write(made.join(name.to_string()), "").expect("a file");
        }
        std::fs::rename(&made, dir(number)).expect("renamed");
    }
    let run = |args: &[&str]| mounted.bench.run(args).ok().out;
    for asked in ["p.img", "mnt"] {
        let text = run(&["inspect", "--json", "areas", asked]);
        let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let areas = shown["areas"].as_array().expect("areas");
        assert_eq!(areas.len(), 1 + AREAS);
        let whole = serde_json::to_string(areas).expect("JSON");
        assert!(whole.len() > 9000, "it fits in one exchange");
        assert!(
            areas[1..].iter().all(|area| area["names"] == NAMES),
            "{text}"
        );
        run(&["map", asked, "--out", "map.svg"]);
        let map = std::fs::read_to_string(mounted.bench.join("map.svg")).expect("a map");
        assert!(map.contains("/7: area 9, cold, 257 names"), "{map}");
    }
    // Their paths in the area above would be long.
    for name in 10..NAMES {
        std::fs::remove_file(dir(7).join(name.to_string())).expect("removed");
    }
    let said = run(&["evolve", "p.img", "--rounds", "1"]);
    assert!(
        said.contains("0 merged") && said.contains("areas now: 17"),
        "{said}"
    );
    let said = run(&["evolve", "p.img"]);
    assert!(
        said.contains("1 merged") && said.contains("areas now: 16"),
        "{said}"
    );
    mounted.umount();
}

#[test]
fn a_mounted_pool_answers_and_refuses() {
    if !has_fuse("a_mounted_pool_answers_and_refuses") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    std::fs::write(mounted.path("file"), vec![1; 100_000]).expect("written");
    for asked in ["p.img", "mnt"] {
        let info = mounted.bench.run(&["info", "--json", asked]).ok().out;
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        assert_eq!(info["space"]["files"], 2, "{info}");
        assert!(info["mount"]["pid"].is_u64(), "{info}");
        assert!(
            info["counters"]["pool_bytes_written"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0)
        );
    }
    let dir = mounted.dir.display().to_string();
    mounted
        .bench
        .run(&["convert", "p.img", "--namespace", "tree"])
        .failed(3, &["EBUSY", &dir, "vellum umount"]);
    mounted
        .bench
        .run(&["check", "p.img"])
        .failed(8, &["EBUSY", &dir]);
    mounted
        .bench
        .run(&["repair", "--yes", "p.img"])
        .failed(8, &["EBUSY", &dir, "vellum umount"]);
    mounted
        .bench
        .run(&["mount", "p.img", "mnt"])
        .failed(3, &["in use"]);
    let open = File::open(mounted.path("file")).expect("opened");
    mounted
        .bench
        .run(&["umount", "mnt"])
        .failed(3, &["busy", "--lazy"]);
    drop(open);
    mounted.umount();
    mounted
        .bench
        .run(&["umount", "mnt"])
        .failed(1, &["no Vellum pool is mounted"]);
    mounted
        .bench
        .run(&["mount", "p.img", "none"])
        .failed(1, &["none", "mkdir"]);
    mounted
        .bench
        .run(&["mount", "-o", "odd", "p.img", "mnt"])
        .failed(2, &["odd"]);
    mounted.bench.sound();
}

/// Starts a mount in the foreground, and waits until it is ready.
pub(crate) fn foreground(mounted: &Mounted) -> Child {
    start(mounted, Stdio::inherit())
}

/// The same, with the log of its process.
pub(crate) fn foreground_with_log(mounted: &Mounted) -> (Child, BufReader<ChildStderr>) {
    let mut child = start(mounted, Stdio::piped());
    let log = BufReader::new(child.stderr.take().expect("a pipe"));
    (child, log)
}

fn start(mounted: &Mounted, log: Stdio) -> Child {
    let mut child = vellum()
        .args(["mount", "--foreground", "--ready-fd", "1", "p.img", "mnt"])
        .current_dir(mounted.bench.path())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("vellum runs");
    let mut said = [0; 6];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut said)
        .expect("it says so");
    assert_eq!(&said, b"ready\n");
    child
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

#[test]
fn signals_end_a_mount_cleanly() {
    if !has_fuse("signals_end_a_mount_cleanly") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    mounted.umount();
    for end in [Signal::TERM, Signal::INT] {
        let mut child = foreground(&mounted);
        std::fs::write(mounted.path("file"), format!("{end:?}")).expect("written");
        signal(&child, end);
        assert!(child.wait().expect("it ends").success());
        mounted.bench.sound();
        let kept = mounted.bench.run(&["cat", "p.img:/file"]).ok().out;
        assert_eq!(kept, format!("{end:?}"));
    }
}

#[test]
fn a_second_signal_cuts_users_off() {
    if !has_fuse("a_second_signal_cuts_users_off") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    mounted.umount();
    let mut child = foreground(&mounted);
    let path = mounted.path("file");
    let mut file = File::create(&path).expect("made");
    file.write_all(b"written").expect("written");
    std::fs::remove_file(&path).expect("removed");
    signal(&child, Signal::TERM);
    // The first signal detaches the mount. Of two equal signals at once, only one would arrive.
    while is_mounted(&mounted.dir) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    signal(&child, Signal::TERM);
    assert!(child.wait().expect("it ends").success());
    // Without the second signal, users would have ten seconds.
    assert!(began.elapsed() < Duration::from_secs(9));
    assert!(file.write_all(b"more").is_err());
    drop(file);
    mounted.bench.sound();
}

#[test]
fn a_killed_mount_loses_nothing() {
    if !has_fuse("a_killed_mount_loses_nothing") {
        return;
    }
    let mounted = Mounted::new("64M", &[]);
    mounted.umount();
    let mut child = foreground(&mounted);
    for index in 0..100 {
        std::fs::write(mounted.path(&format!("file-{index}")), format!("{index}"))
            .expect("written");
    }
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let _ = Command::new("umount").arg("-l").arg(&mounted.dir).output();
    mounted.mount(&[]);
    for index in 0..100 {
        let kept = std::fs::read_to_string(mounted.path(&format!("file-{index}"))).expect("read");
        assert_eq!(kept, format!("{index}"));
    }
    mounted.umount();
}

#[test]
fn umount_exports_a_replica() {
    if !has_fuse("umount_exports_a_replica") {
        return;
    }
    let bench = Bench::empty();
    let memory = ["--medium", "memory"];
    let make = ["mkfs", "p.img", "--data", "d.img", "--data-size", "32M"];
    bench.run(&[&make[..], &memory].concat()).ok();
    let mounted = Mounted::of(bench, &memory);
    std::fs::create_dir_all(mounted.path("a/b")).expect("made");
    std::fs::write(mounted.path("a/b/file"), vec![7; 100_000]).expect("written");
    let run = |args: &[&str]| mounted.bench.run(args);
    run(&["replica", "export", "p.img", "--medium", "memory"]).failed(3, &["EBUSY", "mounted on"]);
    run(&[
        "replica", "import", "n.img", "--data", "d.img", "--medium", "memory",
    ])
    .failed(3, &["EBUSY"]);
    run(&["umount", "--export-replica", "--lazy", "mnt"]).failed(2, &["--lazy"]);
    let did = run(&["umount", "--export-replica", "--medium", "memory", "mnt"]).ok();
    assert!(did.out.contains("has everything"), "{}", did.out);
    run(&[
        "replica", "import", "n.img", "--data", "d.img", "--medium", "memory",
    ])
    .ok();
    let found = run(&["ls", "n.img:/a/b", "--medium", "memory"]).ok().out;
    assert_eq!(found.trim(), "file");
    run(&["check", "--strict", "n.img"]).ok();
}

#[test]
fn another_mount_of_the_same_pool_is_not_waited_for() {
    if !has_fuse("another_mount_of_the_same_pool_is_not_waited_for") {
        return;
    }
    let mounted = Mounted::of(Bench::with_pool("4M"), &["-o", "ro"]);
    let run = |args: &[&str]| mounted.bench.run(args);
    std::fs::create_dir(mounted.bench.join("other")).expect("made");
    run(&["mount", "-o", "ro", "p.img", "other"]).ok();
    run(&["umount", "--timeout", "5", "mnt"]).ok();
    run(&["umount", "--timeout", "5", "other"]).ok();
}

#[test]
fn direct_mounts_bypass_the_page_cache() {
    if !has_fuse("direct_mounts_bypass_the_page_cache") {
        return;
    }
    let bench = Bench::empty();
    let run = |args: &[&str]| bench.run(args);
    let make = ["mkfs", "p.img", "--data", "d.img", "--data-size", "32M"];
    run(&[&make[..], &["--medium", "disk"]].concat()).ok();
    let in_memory = ["mkfs", "m.img", "--size", "4M", "--medium", "memory"];
    run(&in_memory).ok();
    std::fs::create_dir(bench.join("m")).expect("made");
    run(&["mount", "--direct", "m.img", "m"]).failed(1, &["m.img", "--direct", "with a log"]);
    let mounted = Mounted::of(bench, &["--direct"]);
    let info = || mounted.bench.run(&["info", "--verbose", "p.img"]).ok().out;
    assert!(info().contains("past the page cache"));
    let content: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(mounted.path("a"), &content).expect("written");
    let file = OpenOptions::new().write(true).open(mounted.path("a"));
    let file = file.expect("opened");
    file.write_all_at(b"in the middle", 1_234_567)
        .expect("written");
    file.sync_all().expect("synced");
    drop(file);
    mounted.umount();
    for options in [&["-o", "direct"][..], &["-o", "direct,ro"], &[]] {
        mounted.mount(options);
        assert_eq!(info().contains("past the page cache"), !options.is_empty());
        let found = std::fs::read(mounted.path("a")).expect("read");
        assert!(found[1_234_567..].starts_with(b"in the middle"));
        assert!(found[..1_234_567] == content[..1_234_567]);
        assert!(found[1_234_580..] == content[1_234_580..]);
        mounted.umount();
    }
}

#[test]
fn a_mount_promises_what_its_options_say() {
    if !has_fuse("a_mount_promises_what_its_options_say") {
        return;
    }
    let bench = Bench::empty();
    bench
        .run(&["mkfs", "p.img", "--size", "16M", "--medium", "disk"])
        .ok();
    let mounted = Mounted::of(bench, &["-o", "sync,dirsync,commit=9,nobarrier,commit=2"]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let told = |words: &[&str]| {
        let info = run(&["info", "--verbose", "p.img"]).ok().out;
        for word in words {
            assert!(info.contains(word), "{word}: {info}");
        }
    };
    told(&[
        ", dirsync\n",
        "WARNING",
        "whatever fsync said (--no-barrier)",
    ]);
    std::fs::write(mounted.path("f"), b"flushed by unmounting").expect("written");
    mounted.umount();
    mounted.mount(&[
        "--commit-every",
        "2",
        "--durability",
        "dirsync",
        "-o",
        "barrier",
        "--no-barrier",
    ]);
    told(&[
        "all but the last 2 seconds",
        "creates, links, removes or renames something, fsync",
    ]);
    let found = std::fs::read(mounted.path("f")).expect("read");
    assert_eq!(found, b"flushed by unmounting");
    mounted.umount();
    let warned = run(&["mount", "--no-barrier", "p.img", "mnt"]).ok();
    assert!(warned.err.contains("warning: ") && warned.err.contains("power cut"));
    mounted.umount();
    for (bad, told) in [
        ("commit=", "write a number of seconds"),
        ("commit=-1", "write a number of seconds"),
        ("barrier=2", "unknown"),
    ] {
        run(&["mount", "-o", bad, "p.img", "mnt"]).failed(2, &[bad, told]);
    }
    run(&["mount", "--commit-every", "0", "p.img", "mnt"]).failed(2, &["--commit-every"]);
}

/// Changes before a sync survive a power cut. A copy of the pool's file without the image is the
/// state after a power cut.
#[test]
fn promised_calls_make_changes_durable() {
    if !has_fuse("promised_calls_make_changes_durable") {
        return;
    }
    let bench = Bench::empty();
    let make = ["mkfs", "p.img", "--size", "4M", "--medium", "disk"];
    bench.run(&make).ok();
    let mounted = Mounted::of(bench, &["--commit-every", "1000"]);
    let run = |args: &[&str]| drop(mounted.bench.run(args).ok());
    let open = |name: &str| File::open(mounted.path(name)).expect("opened");
    let written_with = |flag: OFlags| {
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(flag.bits() as i32);
        let mut file = options.open(mounted.path("file")).expect("opened");
        file.write_all(b"!").expect("written");
    };
    std::fs::create_dir(mounted.path("dir")).expect("made");
    let ways: [(&str, &dyn Fn()); 8] = [
        ("fsync", &|| open("file").sync_all().expect("synced")),
        ("fdatasync", &|| open("file").sync_data().expect("synced")),
        ("of a directory", &|| {
            open("dir").sync_all().expect("synced")
        }),
        ("O_SYNC", &|| written_with(OFlags::SYNC)),
        ("O_DSYNC", &|| written_with(OFlags::DSYNC)),
        ("sync mnt", &|| run(&["sync", "mnt"])),
        ("sync p.img", &|| run(&["sync", "p.img"])),
        ("umount", &|| run(&["umount", "mnt"])),
    ];
    for (round, (way, make_durable)) in ways.into_iter().enumerate() {
        let text = format!("written {round}");
        std::fs::write(mounted.path("file"), &text).expect("written");
        std::fs::write(mounted.path(&text), "").expect("made");
        make_durable();
        std::fs::copy(mounted.bench.join("p.img"), mounted.bench.join("c.img")).expect("copied");
        let kept = mounted.bench.run(&["cat", "c.img:/file"]).ok().out;
        assert_eq!(kept.trim_end_matches('!'), text, "{way}");
        mounted.bench.run(&["stat", &format!("c.img:/{text}")]).ok();
    }
    mounted
        .bench
        .run(&["sync", "mnt"])
        .failed(1, &["no Vellum pool is mounted"]);
}

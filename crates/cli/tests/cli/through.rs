//! Commands on files of a mounted pool, which work through the mount.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use serde_json::Value;

use crate::support::{Bench, Did, Mounted, has_fuse, kill, skipped};

/// A pool with files of all kinds, from the directory `src` beside it.
fn filled() -> Bench {
    let bench = Bench::with_pool("64M");
    let src = bench.join("src");
    std::fs::create_dir_all(src.join("d/e")).expect("made");
    std::fs::write(src.join("d/f"), "text\n").expect("written");
    std::fs::hard_link(src.join("d/f"), src.join("hard")).expect("linked");
    std::fs::set_permissions(src.join("d/f"), PermissionsExt::from_mode(0o640)).expect("set");
    std::fs::write(src.join(".hidden"), "").expect("written");
    let hole = std::fs::File::create(src.join("hole")).expect("made");
    hole.set_len(1 << 20).expect("extended");
    symlink("/d/f", src.join("inside")).expect("linked");
    symlink(bench.join("secret"), src.join("absolute")).expect("linked");
    symlink("../../../../../../../..", src.join("up")).expect("linked");
    symlink("/", src.join("root")).expect("linked");
    symlink("/new", src.join("dangling")).expect("linked");
    let made = Command::new("mkfifo").arg(src.join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    std::fs::write(bench.join("secret"), "secret\n").expect("written");
    bench.run(&["import", "src", "p.img:/", "--quiet"]).ok();
    bench
}

/// Removes the generations of files that cannot be opened: a mount does not tell them.
fn comparable(mut did: Did) -> (String, String, i32) {
    if let Ok(mut files) = serde_json::from_str::<Vec<Value>>(&did.out) {
        for file in &mut files {
            if !["file", "directory"].contains(&file["kind"].as_str().unwrap_or("")) {
                let fields = file.as_object_mut().expect("an object");
                fields.remove("generation");
            }
        }
        did.out = serde_json::to_string(&files).expect("text");
    }
    (did.out, did.err, did.code)
}

#[test]
fn commands_tell_of_a_mounted_pool_what_they_tell_at_rest() {
    if !has_fuse("commands_tell_of_a_mounted_pool_what_they_tell_at_rest") {
        return;
    }
    let bench = filled();
    let commands: &[&[&str]] = &[
        &["ls", "p.img:/"],
        &["ls", "-la", "p.img:/", "p.img:/d"],
        &["ls", "--json", "-a", "p.img:/"],
        &["ls", "-l", "p.img:/inside"],
        &["ls", "p.img:/up/d"],
        &["ls", "p.img:/none"],
        &["tree", "-a", "p.img:/", "p.img:/root"],
        &["tree", "-d", "-L", "1", "p.img:/"],
        &["tree", "--json", "p.img:/d", "p.img:/hole"],
        &["tree", "p.img:/none"],
        &["du", "-a", "-h", "p.img:/"],
        &["du", "--apparent-size", "-s", "p.img:/d/", "p.img:/"],
        &["du", "--json", "-a", "-d", "1", "p.img:/"],
        &["du", "p.img:/none"],
        &["stat", "p.img:/", "p.img:/d/", "p.img:/d/f", "p.img:/hole"],
        &["stat", "-L", "p.img:/inside", "p.img:/root"],
        &[
            "stat",
            "--json",
            "p.img:/pipe",
            "p.img:/inside",
            "p.img:/d/../hard",
        ],
        &["stat", "p.img:/hole/"],
        &["stat", "p.img"],
        &["cat", "p.img:/d/f", "p.img:/inside", "p.img:/root/up/hard"],
        &["cat", "p.img:/d"],
        &["cat", "p.img:/pipe"],
        &["cat", "p.img:/absolute"],
        &["get", "p.img:/hard", "-"],
        &["get", "p.img:/d", "-"],
        &["export", "p.img:/hard", "copy"],
        &["rm", "p.img:/d"],
        &["rm", "p.img:/none"],
        &["mkdir", "p.img:/d"],
        &["mkdir", "p.img:/"],
        &["mkdir", "p.img:/d/.."],
        &["mkdir", "p.img:/none/x"],
        &["mkdir", "-p", "p.img:/hole/x"],
        &["mv", "p.img:/none", "p.img:/x"],
        &["mv", "p.img:/d", "p.img:/d/e"],
        &["mv", "-n", "p.img:/d/f", "p.img:/hole"],
        &["put", "secret", "p.img:/none/x"],
        &["put", "secret", "p.img:/pipe"],
        &["put", "-", "p.img:/d"],
        &["cp", "p.img:/d", "copy"],
        &["cp", "p.img:/none", "copy"],
    ];
    let told = |bench: &Bench| {
        let one = |args: &&[&str]| comparable(bench.run(args));
        commands.iter().map(one).collect::<Vec<_>>()
    };
    let at_rest = told(&bench);
    let mounted = Mounted::of(bench, &["-o", "noatime"]);
    let through = told(&mounted.bench);
    for ((args, at_rest), through) in commands.iter().zip(at_rest).zip(through) {
        assert_eq!(through, at_rest, "{args:?}");
    }
    mounted.umount();
}

#[test]
fn commands_change_a_mounted_pool() {
    if !has_fuse("commands_change_a_mounted_pool") {
        return;
    }
    let mounted = Mounted::of(filled(), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let read = |name: &str| std::fs::read_to_string(mounted.path(name)).expect("read");
    run(&["put", "secret", "p.img:/d/"]).ok();
    assert_eq!(read("d/secret"), "secret\n");
    let put = ["put", "-", "p.img:/dangling"];
    mounted.bench.run_with_input(&put, b"new").ok();
    assert_eq!(read("new"), "new");
    run(&["mkdir", "-p", "p.img:/a/b/c"]).ok();
    run(&["mkdir", "-m", "700", "p.img:/a/m"]).ok();
    let mode = mounted.path("a/m").metadata().expect("attributes").mode();
    assert_eq!(mode & 0o7777, 0o700);
    run(&["mv", "p.img:/d/secret", "p.img:/a/b"]).ok();
    assert_eq!(read("a/b/secret"), "secret\n");
    run(&["rm", "p.img:/a"]).failed(1, &["directory", "vellum rm -r p.img:/a"]);
    run(&["rm", "-r", "p.img:/a"]).ok();
    run(&["rm", "-f", "p.img:/a", "p.img:/hole"]).ok();
    assert!(!mounted.path("a").exists() && !mounted.path("hole").exists());
    let said = run(&["import", "src", "p.img:/in/deep"]).ok().out;
    assert!(said.contains("imported"), "{said}");
    run(&["import", "src", "p.img:/in/deep"]).failed(1, &["exists"]);
    run(&["import", "--overwrite", "--quiet", "src", "p.img:/in/deep"]).ok();
    assert_eq!(read("in/deep/d/f"), "text\n");
    run(&["get", "p.img:/in/deep/hard", "got"]).ok();
    run(&["export", "--quiet", "p.img:/in/deep", "out"]).ok();
    std::fs::create_dir(mounted.bench.join("copies")).expect("made");
    run(&["cp", "-a", "--quiet", "p.img:/in", "copies"]).ok();
    run(&["cp", "-a", "--quiet", "src", "p.img:/in", "p.img:/d"]).ok();
    for copy in ["out", "copies/in/deep", "mnt/d/src", "mnt/d/in/deep"] {
        let differ = Command::new("diff")
            .args(["-r", "--no-dereference", "src", copy])
            .current_dir(mounted.bench.path())
            .output();
        let differ = String::from_utf8(differ.expect("diff runs").stdout).expect("text");
        assert!(differ.lines().all(|line| line.contains("fifo")), "{differ}");
        let links = mounted.bench.join(copy).join("hard").metadata();
        assert_eq!(links.expect("attributes").nlink(), 2, "{copy}");
    }
    let other = ["mkfs", "other.img", "--size", "16M", "--quiet"];
    run(&other).ok();
    run(&["cp", "p.img:/d/f", "other.img:/"]).ok();
    run(&["cp", "other.img:/f", "p.img:/back"]).ok();
    assert_eq!(read("back"), "text\n");
    run(&["rm", "-r", "p.img:/"]).ok();
    assert_eq!(mounted.dir.read_dir().expect("listed").count(), 0);
    mounted.umount();
}

/// Flags, projects, access control lists and attributes as well.
#[test]
fn copies_within_mounted_pools_keep_all_attributes() {
    if !has_fuse("copies_within_mounted_pools_keep_all_attributes") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped(
            "copies_within_mounted_pools_keep_all_attributes",
            "not root",
        );
    }
    let bench = Bench::with_pool("64M");
    {
        let pool = vellum::PoolOptions::default()
            .open(bench.join("p.img"))
            .expect("opened");
        let volume = pool.volume().with_cred(vellum::Cred::root());
        volume.create_dir("/d").expect("made");
        volume.write("/d/f", b"text").expect("written");
        volume.set_xattr("/d/f", "user.a", b"value").expect("set");
        volume.set_project("/d/f", 7).expect("set");
        let flags = vellum::FileFlags::IMMUTABLE | vellum::FileFlags::NO_ATIME;
        volume.set_flags("/d/f", flags).expect("set");
        drop(volume);
        pool.close().expect("closed");
    }
    let mounted = Mounted::of(bench, &[]);
    let run = |args: &[&str]| mounted.bench.run(args).ok().out;
    run(&["cp", "-a", "--quiet", "p.img:/d", "p.img:/copy"]);
    for path in ["p.img:/d/f", "p.img:/copy/f"] {
        let told = run(&["stat", path]);
        let expected = "flags   immutable, no atime\nproject 7\n";
        assert!(
            told.contains(expected) && told.contains("generation"),
            "{told}"
        );
        let told: Value = serde_json::from_str(&run(&["stat", "--json", path])).expect("JSON");
        assert_eq!(told[0]["xattrs"][0], "user.a");
    }
    mounted.umount();
}

#[test]
fn no_link_leads_out_of_a_mount() {
    if !has_fuse("no_link_leads_out_of_a_mount") {
        return;
    }
    let mounted = Mounted::of(filled(), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    let missing = ["p.img:/absolute", "no such file"];
    run(&["cat", "p.img:/absolute"]).failed(1, &missing);
    run(&["get", "p.img:/absolute", "got"]).failed(1, &missing);
    run(&["put", "src/hard", "p.img:/absolute"]).failed(1, &missing);
    let secret = mounted.bench.join("secret");
    let secret_in_pool = format!("p.img:/up{}", secret.display());
    run(&["cat", &secret_in_pool]).failed(1, &["no such file"]);
    run(&["rm", &secret_in_pool]).failed(1, &["no such file"]);
    assert_eq!(std::fs::read(secret).expect("read"), b"secret\n");
    assert_eq!(run(&["cat", "p.img:/up/d/f"]).ok().out, "text\n");
    let there = ["mount", "-t", "tmpfs", "none", "mnt/d/e"];
    let mut command = Command::new(there[0]);
    let other = command.args(&there[1..]).current_dir(mounted.bench.path());
    match other.output().is_ok_and(|output| output.status.success()) {
        true => {
            for args in [
                &["ls", "p.img:/d/e"][..],
                &["stat", "p.img:/d/e"],
                &["put", "secret", "p.img:/d/e/x"],
                &["export", "p.img:/d", "out"],
                &["cp", "-r", "p.img:/d", "copy"],
                &["du", "-a", "p.img:/d"],
            ] {
                run(args).failed(1, &["another file system is mounted there"]);
            }
            let drawn = run(&["tree", "p.img:/d"]).failed(1, &["one file"]).out;
            assert!(drawn.contains("e  [another file system"), "{drawn}");
            assert!(drawn.ends_with("0 directories, 1 file\n"), "{drawn}");
            let ended = Command::new("umount").arg(mounted.path("d/e")).status();
            assert!(ended.expect("umount runs").success());
        }
        false => skipped("no_link_leads_out_of_a_mount", "tmpfs cannot be mounted"),
    }
    mounted.umount();
}

/// A mount makes it possible to name a file twice: in the pool, and by its path.
#[test]
fn a_file_is_not_copied_to_itself_through_its_mount() {
    if !has_fuse("a_file_is_not_copied_to_itself_through_its_mount") {
        return;
    }
    let mounted = Mounted::of(filled(), &[]);
    let run = |args: &[&str]| mounted.bench.run(args);
    for args in [
        &["get", "p.img:/hard", "mnt/d/f"][..],
        &["put", "mnt/d/f", "p.img:/hard"],
        &["cp", "p.img:/hard", "mnt/d/f"],
        &["cp", "mnt/hard", "p.img:/d/f"],
    ] {
        run(args).failed(1, &["same file"]);
        assert_eq!(
            std::fs::read(mounted.path("hard")).expect("read"),
            b"text\n"
        );
    }
    for args in [
        &["export", "--overwrite", "p.img:/", "mnt/d"][..],
        &["export", "--overwrite", "p.img:/", "mnt"],
        &["import", "--overwrite", "mnt", "p.img:/d/new"],
        &["cp", "-r", "mnt/d", "p.img:/d/e"],
        &["cp", "-r", "p.img:/d", "mnt/d/e"],
        &["cp", "-r", "p.img:/d", "p.img:/d/e"],
    ] {
        run(args).failed(1, &["not copied into itself"]);
    }
    assert_eq!(
        std::fs::read(mounted.path("hard")).expect("read"),
        b"text\n"
    );
    mounted.umount();
}

#[test]
fn a_read_only_mount_and_a_dead_one() {
    if !has_fuse("a_read_only_mount_and_a_dead_one") {
        return;
    }
    let mounted = Mounted::of(filled(), &["-o", "ro"]);
    let run = |args: &[&str]| mounted.bench.run(args);
    assert_eq!(run(&["cat", "p.img:/d/f"]).ok().out, "text\n");
    for args in [
        &["put", "secret", "p.img:/x"][..],
        &["mkdir", "p.img:/x"],
        &["cp", "secret", "p.img:/x"],
        &["import", "src", "p.img:/x"],
    ] {
        let dir = mounted.dir.to_str().expect("text");
        run(args).failed(1, &["p.img", dir, "read-only", "vellum umount"]);
    }
    run(&["umount", "mnt"]).ok();
    mounted.mount(&[]);
    kill(&mounted);
    assert_eq!(run(&["cat", "p.img:/d/f"]).ok().out, "text\n");
    run(&["mkdir", "p.img:/x"]).ok();
    mounted.bench.sound();
}

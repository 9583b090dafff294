//! What a mount tells systemd, where its messages go, and what it needs of the machine if its user
//! is not root.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{ALONE, Bench, Mounted, PATIENCE, done, has_fuse, namespaces, vellum};

/// A level that has a message for each request.
const EVERYTHING: &str = "debug";

/// Mounts in the background, with standard error in a file.
fn mount(mounted: &Mounted, errors: &File, options: &[&str], environment: &[(&str, &str)]) {
    let mut command = vellum();
    command
        .args(["mount", "p.img", "mnt"])
        .args(options)
        .current_dir(mounted.bench.path())
        .env("VELLUM_LOG", EVERYTHING)
        .envs(environment.iter().copied())
        .stderr(errors.try_clone().expect("duplicated"));
    assert!(command.status().expect("it runs").success());
}

/// The text of a file behind its first `from` bytes.
fn text(path: &Path, from: usize) -> String {
    let all = std::fs::read(path).expect("read");
    String::from_utf8_lossy(&all[from..]).into_owned()
}

#[test]
fn messages_go_to_the_journal_if_that_reads_them() {
    if !has_fuse("messages_go_to_the_journal_if_that_reads_them") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    let path = mounted.bench.join("errors");
    let errors = File::create(&path).expect("created");
    let found = errors.metadata().expect("stat");
    let stream = format!("{}:{}", found.dev(), found.ino());
    for (stream, is_journal) in [(&*stream, true), ("1:1", false)] {
        let begin = text(&path, 0).len();
        mount(&mounted, &errors, &[], &[("JOURNAL_STREAM", stream)]);
        let while_mounting = text(&path, 0).len();
        std::fs::write(mounted.path("file"), "").expect("written");
        mounted.umount();
        let said = text(&path, begin);
        let later = text(&path, while_mounting);
        assert!(!said.contains('\x1b'), "{said}");
        if is_journal {
            assert!(
                later
                    .lines()
                    .any(|line| line.starts_with("<7>") && line.contains("a request"))
            );
            assert!(later.lines().all(|line| line.starts_with('<')), "{later}");
        } else {
            assert_eq!(later, "");
            assert!(!said.contains("<7>"), "{said}");
        }
    }
}

#[test]
fn messages_are_appended_to_a_file_without_colours() {
    if !has_fuse("messages_are_appended_to_a_file_without_colours") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    let errors = File::create(mounted.bench.join("errors")).expect("created");
    for options in [["--log", "first"], ["-o", "log=second"]] {
        mount(&mounted, &errors, &options, &[]);
        std::fs::write(mounted.path("file"), "").expect("written");
        mounted.umount();
    }
    for log in ["first", "second"] {
        let said = text(&mounted.bench.join(log), 0);
        assert!(
            said.lines()
                .any(|line| line.contains("DEBUG") && line.contains("a request"))
        );
        assert!(!said.contains('\x1b'), "{said}");
    }
    let refused = mounted
        .bench
        .run(&["mount", "--log", "none/log", "p.img", "mnt"]);
    refused.failed(1, &["none/log"]);
}

#[test]
fn a_service_of_type_notify_is_ready_once_the_directory_can_be_used() {
    if !has_fuse("a_service_of_type_notify_is_ready_once_the_directory_can_be_used") {
        return;
    }
    let mounted = Mounted::not_yet(Bench::with_pool("4M"));
    let socket = UnixDatagram::bind(mounted.bench.join("notify")).expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut server = vellum()
        .args(["mount", "--foreground", "p.img", "mnt"])
        .current_dir(mounted.bench.path())
        .env("NOTIFY_SOCKET", mounted.bench.join("notify"))
        .stdin(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut told = [0; 256];
    let len = socket.recv(&mut told).expect("told");
    assert_eq!(&told[..len], b"READY=1\n");
    std::fs::write(mounted.path("file"), "").expect("written");
    let pid = server.id().to_string();
    let kill = Command::new("kill").arg(&pid).status().expect("it runs");
    assert!(kill.success());
    let len = socket.recv(&mut told).expect("told");
    assert_eq!(&told[..len], b"STOPPING=1\n");
    assert!(server.wait().expect("it ends").success());
    mounted.bench.sound();
}

/// A mount namespace of its own, with a `/dev/fuse` of the mode `$MODE`. A user who is not root
/// mounts the pool there, with the programs on `$PROGRAMS`.
const AS_USER: &str = r#"
    chmod 755 . && cp "$VELLUM" vellum && mkdir -p empty && chown 65534 p.img mnt
    mount -t tmpfs tmpfs empty && mknod -m "$MODE" empty/fuse c 10 229
    mount --bind empty/fuse /dev/fuse
    as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups env PATH="$PROGRAMS" "$@"; }
    as_user "$PWD/vellum" mount p.img mnt || exit
    as_user /bin/ls mnt && as_user "$PWD/vellum" umount mnt
"#;

#[test]
fn a_user_learns_what_a_mount_needs() {
    if !has_fuse("a_user_learns_what_a_mount_needs") || !rustix::process::geteuid().is_root() {
        return;
    }
    let _alone = namespaces();
    let as_user = |mode: &str, programs: &str| {
        let mounted = Mounted::not_yet(Bench::with_pool("4M"));
        let script = format!("{ALONE}{AS_USER}");
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                &script,
                "sh",
                "",
            ])
            .current_dir(mounted.bench.path())
            .env("VELLUM", vellum().get_program())
            .env("MODE", mode)
            .env("PROGRAMS", programs)
            .env_remove("VELLUM_LOG");
        done(command.output().expect("it runs"))
    };
    as_user("666", "/usr/bin:/bin").ok();
    as_user("600", "/usr/bin:/bin").failed(1, &["/dev/fuse", "0600", "chmod 666 /dev/fuse"]);
    as_user("666", "/none").failed(1, &["fusermount3", "the package fuse3"]);
}

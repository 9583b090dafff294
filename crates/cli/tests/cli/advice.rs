//! Tests execute the advice in messages literally: it must help, or lead to a message that says why
//! nothing does.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, Did, Mounted, done, has_fuse, is_mounted};
use vellum_check::survey;
use zerocopy::IntoBytes;

/// The most steps of advice in a row. More of them lead nowhere.
const STEPS_MAX: usize = 5;
/// The text of a message that ends the advice, because no command helps.
const NOTHING_HELPS: &str = "only a copy of the pool helps";

/// The commands in a message, in their order, as the user would write them. A command is between
/// backquotes, or is a line of advice by itself, and begins with the name of a program.
fn advised(did: &Did) -> Vec<String> {
    let said = format!("{}\n{}", did.out, did.err);
    let quoted = said.split('`').skip(1).step_by(2);
    let alone = did.err.lines().filter_map(|line| line.strip_prefix("  "));
    let is_command = |text: &&str| text.starts_with("vellum ") || text.starts_with("truncate ");
    let commands = quoted.chain(alone).filter(is_command).map(|text| {
        let text = text.replace("4G", "16M").replace(" DIR", " mnt");
        match &*text {
            "vellum check" => "vellum check p.img".into(),
            "vellum mount -o ro" => "vellum mount -o ro p.img mnt".into(),
            // There is no terminal, and the overwritten bytes are not needed.
            "vellum repair" => "vellum repair --yes --no-undo p.img".into(),
            _ => match text.strip_prefix("vellum repair ") {
                Some(rest) if !rest.contains("--dry-run") => {
                    format!("vellum repair --yes --no-undo {rest}")
                }
                _ => text,
            },
        }
    });
    commands.collect()
}

/// Executes a line in a shell.
fn run(bench: &Bench, line: &str) -> Did {
    let vellum = format!("vellum() {{ {} \"$@\"; }}", env!("CARGO_BIN_EXE_vellum"));
    let output = Command::new("bash")
        .args(["-c", &format!("{vellum}\n{line}")])
        .current_dir(bench.path())
        .stdin(std::process::Stdio::null())
        .env_remove("VELLUM_LOG")
        .output();
    let did = done(output.expect("bash runs"));
    // The next command accesses the pool itself.
    if is_mounted(&bench.join("mnt")) && line.starts_with("vellum mount") {
        bench.run(&["umount", "mnt"]).ok();
    }
    did
}

/// Whether a command succeeded. A repair returns 1 if it repaired something, or would.
fn went_well(line: &str, did: &Did) -> bool {
    let repairs = line.starts_with("vellum repair");
    did.code == 0 || repairs && did.code == 1
}

/// Executes `line`, which fails, then the advice in its message, and so on. Returns the last
/// message.
#[track_caller]
fn follow(bench: &Bench, line: &str) -> String {
    let mut line = line.to_owned();
    let mut trail = Vec::new();
    for _ in 0..STEPS_MAX {
        let did = run(bench, &line);
        trail.push(format!("$ {line} [{}]\n{}{}", did.code, did.out, did.err));
        let next = advised(&did);
        if next.is_empty() {
            return did.err;
        }
        // A check reports damage, but repairs nothing.
        let failed = next.iter().find(|step| {
            let did = run(bench, step);
            trail.push(format!("$ {step} [{}]\n{}{}", did.code, did.out, did.err));
            !went_well(step, &did) && (next.len() == 1 || !step.starts_with("vellum check"))
        });
        match failed {
            None => return String::new(),
            Some(step) => line.clone_from(step),
        }
    }
    panic!("leads nowhere:\n{}", trail.join("\n"));
}

/// A pool `p.img` with a file.
fn pool(options: &[&str]) -> Bench {
    let bench = Bench::empty();
    std::fs::create_dir(bench.join("mnt")).expect("made");
    let size: &[&str] = match options.contains(&"--data") {
        true => &[],
        false => &["--size", "16M"],
    };
    let make = ["mkfs", "p.img", "--quiet"];
    bench.run(&[&make[..], size, options].concat()).ok();
    std::fs::write(bench.join("file"), "kept").expect("written");
    bench.run(&["put", "file", "p.img:/file"]).ok();
    bench
}

fn cut(path: &Path, len: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(len)).expect("cut");
}

#[test]
fn a_truncated_pool_is_extended_and_repaired() {
    for durability in ["log", "none"] {
        for command in [
            "vellum info p.img",
            "vellum check p.img",
            "vellum repair --yes p.img",
        ] {
            for kept in [15 << 20, 5 << 20] {
                let bench = pool(&["--medium", "disk", "--durability", durability]);
                cut(&bench.join("p.img"), kept);
                let said = follow(&bench, command);
                assert_eq!(said, "", "{durability}, {kept}: {command}");
                bench.run(&["check", "p.img"]).ok();
                // The lost data are zeros.
                let read = bench.run(&["cat", "p.img:/file"]).ok().out;
                assert!(["kept", "\0\0\0\0"].contains(&&*read), "{read:?}");
                assert!(kept < 15 << 20 || read == "kept");
            }
        }
    }
}

/// Advice names the right pool, even if its name contains special characters.
#[test]
fn names_with_special_characters_are_quoted() {
    let bench = pool(&["--medium", "disk", "--durability", "none"]);
    for other in ["a", "b.img"] {
        std::fs::write(bench.join(other), "another's").expect("written");
    }
    let name = "a b.img";
    std::fs::rename(bench.join("p.img"), bench.join(name)).expect("renamed");
    cut(&bench.join(name), 15 << 20);
    assert_eq!(follow(&bench, "vellum info 'a b.img'"), "");
    for other in ["a", "b.img"] {
        let kept = std::fs::read(bench.join(other)).expect("read");
        assert_eq!(kept, b"another's", "{other}");
    }
    for command in [
        "vellum ls 'a b.img:'",
        "vellum evolve 'a b.img'",
        "vellum dataset add 'a b.img' more",
        "vellum mkfs 'a b.img:third' --size 16M",
        "vellum mkfs 'a b.img:third' --size 16M",
        "vellum get 'a b.img:/' 'to be'",
        "vellum export 'a b.img:/file' 'to have'",
        "vellum info 'none of it.img'",
    ] {
        let said = follow(&bench, command);
        assert!(said.is_empty(), "{command}: {said}");
    }
    bench
        .run(&["mkfs", "not here/p.img"])
        .failed(1, &["mkdir -p 'not here'` creates it"]);
    assert_eq!(bench.run(&["cat", "a b.img:/file"]).ok().out, "kept");
}

/// If the log and the root are lost, messages promise nothing false.
#[test]
fn a_pool_without_log_and_root_is_reported() {
    for command in ["vellum info p.img", "vellum check p.img"] {
        let bench = pool(&["--medium", "disk"]);
        cut(&bench.join("p.img"), 5000);
        let said = follow(&bench, command);
        assert!(said.contains(NOTHING_HELPS), "{command}: {said}");
        for command in ["vellum ls p.img:/", "vellum mount -o ro p.img mnt"] {
            let said = follow(&bench, command);
            assert!(said.contains(NOTHING_HELPS), "{command}: {said}");
        }
    }
}

/// A pool of a later release is not damaged.
#[test]
fn a_pool_of_a_later_release_is_refused() {
    let bench = pool(&[]);
    let path = bench.join("p.img");
    let mut bytes = std::fs::read(&path).expect("read");
    let mut superblock = survey::header(&&bytes[..]).expect("a superblock");
    superblock.version += 1;
    superblock.seal();
    let of_one = superblock.as_bytes();
    for at in [0, of_one.len(), bytes.len() - of_one.len()] {
        bytes[at..][..of_one.len()].copy_from_slice(of_one);
    }
    std::fs::write(&path, &bytes).expect("written");
    for (command, code) in [("check", 8), ("repair --yes", 8), ("info", 1)] {
        let did = run(&bench, &format!("vellum {command} p.img"));
        let did = did.failed(code, &["format version 2", "a later one"]);
        assert!(!did.out.contains("damage"), "{}", did.out);
    }
    assert!(std::fs::read(&path).expect("read") == bytes);
}

/// No message advises to create a pool where that is impossible, or under a name in use.
#[test]
fn no_advice_to_create_an_impossible_pool() {
    let bench = pool(&[]);
    for command in ["check", "info", "repair --dry-run"] {
        let did = run(&bench, &format!("vellum {command} /dev/null"));
        assert!(did.err.contains("character device"), "{}", did.err);
        assert!(!did.err.contains("mkfs"), "{}", did.err);
    }
    bench
        .run(&["dataset", "add", "p.img", "x", "--size", "4M"])
        .ok();
    for name in ["main", "x"] {
        let did = run(&bench, &format!("vellum mkfs p.img:{name} --size 16M"));
        assert!(
            did.err.contains("it exists already") && !did.err.contains("dataset add"),
            "{}",
            did.err
        );
    }
    let bench = pool(&["--data", "data.img", "--data-size", "16M"]);
    std::fs::write(bench.join("data.img"), "").expect("written");
    let did = run(&bench, "vellum check p.img");
    assert!(
        did.err.contains("it has no bytes") && !did.err.contains("created"),
        "{}",
        did.err
    );
}

#[test]
fn truncated_external_data_are_extended() {
    let bench = pool(&["--data", "data.img", "--data-size", "16M"]);
    cut(&bench.join("data.img"), 8 << 20);
    for command in ["vellum ls p.img:/", "vellum check p.img"] {
        assert_eq!(follow(&bench, command), "", "{command}");
        run(&bench, command).ok();
        cut(&bench.join("data.img"), 8 << 20);
    }
}

/// Without anchors the last commit is unknown. No repair is possible, but everything that
/// checkpoints wrote home can be copied.
#[test]
fn a_pool_whose_anchors_are_lost_can_be_read() {
    let mount = has_fuse("a_pool_whose_anchors_are_lost_can_be_read");
    let bench = pool(&["--medium", "disk"]);
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(bench.join("p.img"))
        .expect("opened");
    let log_at = survey::header(&file).expect("a superblock").log_at;
    file.write_all_at(&[0; 8192], log_at).expect("written");
    for command in ["vellum check p.img", "vellum mkdir p.img:/d"] {
        let said = follow(&bench, command);
        assert!(said.contains("mount it with -o ro"), "{command}: {said}");
    }
    assert_eq!(bench.run(&["cat", "p.img:/file"]).ok().out, "kept");
    if mount {
        bench.run(&["mount", "-o", "ro", "p.img", "mnt"]).ok();
        let read = std::fs::read_to_string(bench.join("mnt/file"));
        bench.run(&["umount", "mnt"]).ok();
        assert_eq!(read.expect("read"), "kept");
    }
}

/// No message advises to overwrite a file that is not a pool, or may have been one.
#[test]
fn a_file_that_is_not_a_pool_is_left_alone() {
    for bytes in [&b"root:x:0:0:root:/root:/bin/bash\n"[..], &[0; 1 << 21]] {
        for command in ["info", "check", "repair --yes", "ls", "mount"] {
            let bench = Bench::empty();
            std::fs::create_dir(bench.join("mnt")).expect("made");
            std::fs::write(bench.join("passwd"), bytes).expect("written");
            let line = match command {
                "ls" => "vellum ls passwd:/".into(),
                "mount" => "vellum mount passwd mnt".into(),
                _ => format!("vellum {command} passwd"),
            };
            let said = follow(&bench, &line);
            assert!(said.contains(NOTHING_HELPS), "{line}: {said}");
            assert!(!said.contains("mkfs"), "{line}: {said}");
            assert_eq!(std::fs::read(bench.join("passwd")).expect("read"), bytes);
        }
    }
}

#[test]
fn a_missing_or_empty_pool_is_created() {
    for command in [
        "vellum info p.img",
        "vellum ls p.img:/",
        "vellum mkfs p.img",
    ] {
        for is_there in [false, true] {
            let bench = Bench::empty();
            if is_there {
                std::fs::write(bench.join("p.img"), "").expect("written");
            }
            assert_eq!(follow(&bench, command), "", "{command}");
            bench.run(&["ls", "p.img:/"]).ok();
        }
    }
}

/// All commands report the same for an empty file, and for one that is too short for a pool.
#[test]
fn a_file_that_is_too_short_is_not_a_pool() {
    let commands = [
        "vellum info p.img",
        "vellum check p.img",
        "vellum repair --dry-run p.img",
        "vellum repair --yes p.img",
        "vellum mount p.img mnt",
    ];
    for bytes in ["", "short"] {
        let bench = Bench::empty();
        std::fs::create_dir(bench.join("mnt")).expect("made");
        std::fs::write(bench.join("p.img"), bytes).expect("written");
        let said = commands.map(|command| {
            let did = run(&bench, command);
            assert!(
                did.out.is_empty() && did.code != 0,
                "{command}: {}",
                did.out
            );
            // A mount reports the absolute path.
            did.err.replace(&format!("{}/", bench.path().display()), "")
        });
        let what = if bytes.is_empty() {
            "is empty"
        } else {
            "not a Vellum pool"
        };
        assert!(said[0].contains(what), "{}", said[0]);
        assert!(said.iter().all(|other| *other == said[0]), "{said:#?}");
        if bytes.is_empty() {
            assert_eq!(follow(&bench, "vellum check p.img"), "");
            bench.run(&["ls", "p.img:/"]).ok();
        }
    }
}

#[test]
fn quotas_that_are_off_are_turned_on() {
    let bench = pool(&[]);
    for command in [
        "vellum quota p.img",
        "vellum quota set p.img --user 1 --hard 1G",
        "vellum quota default p.img",
    ] {
        bench.run(&["quota", "off", "p.img"]).ok();
        follow(&bench, command);
        run(&bench, command).ok();
    }
}

#[test]
fn no_advice_repeats_the_failed_command() {
    let bench = Bench::empty();
    for command in [
        "vellum mkfs none/p.img",
        "vellum mkfs none/p.img --size 16M",
        "vellum mkfs p.img --data none/data.img --data-size 16M",
        "vellum info none/p.img",
    ] {
        let said = follow(&bench, command);
        assert!(
            said.contains("there is no directory none"),
            "{command}: {said}"
        );
    }
    let said = follow(&bench, "vellum mkfs p.img --size 900T");
    assert!(
        said.contains("its file system has ") && said.contains("iB free"),
        "{said}"
    );
    assert!(!bench.join("p.img").exists());
}

#[test]
fn an_old_data_device_is_accepted_by_force() {
    let bench = pool(&["--data", "data.img", "--data-size", "16M"]);
    let old = std::fs::read(bench.join("data.img")).expect("read");
    for command in ["vellum ls p.img:/", "vellum check p.img"] {
        bench.run(&["put", "file", "p.img:/more"]).ok();
        std::fs::write(bench.join("data.img"), &old).expect("written");
        assert_eq!(follow(&bench, command), "", "{command}");
        run(&bench, command).ok();
    }
    let accept = [
        "repair",
        "--force-data-device",
        "--yes",
        "--no-undo",
        "p.img",
    ];
    let did = bench.run(&accept).ok();
    assert!(
        did.out.contains("its data device was accepted as it is"),
        "{}",
        did.out
    );
}

/// Naming the external data device instead of the pool is reported.
#[test]
fn an_external_data_device_is_not_a_damaged_pool() {
    let bench = pool(&["--data", "data.img", "--data-size", "16M"]);
    let info = bench.run(&["info", "--json", "p.img"]).ok().out;
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let what = format!(
        "data.img is the external data device of the pool {}",
        info["pool"]["uuid"].as_str().expect("text")
    );
    for command in [
        "vellum info data.img",
        "vellum check data.img",
        "vellum repair --dry-run data.img",
        "vellum repair --yes data.img",
        "vellum mount data.img mnt",
        "vellum ls data.img:/",
    ] {
        let did = run(&bench, command);
        assert!(
            did.err.contains(&what) && did.code != 0,
            "{command}: {}",
            did.err
        );
        assert!(!did.out.contains("damage"), "{command}: {}", did.out);
    }
}

/// Another program may use the device in the meantime.
#[test]
fn a_loop_device_without_a_file_is_reported() {
    let bench = Bench::empty();
    let is_free = |device: &str| {
        let name = device.trim_start_matches("/dev/");
        let sys = Path::new("/sys/class/block").join(name);
        sys.exists() && !sys.join("loop/backing_file").exists()
    };
    for _ in 0..5 {
        let found = Command::new("losetup").arg("--find").output();
        let Some(found) = found.ok().filter(|output| output.status.success()) else {
            break;
        };
        let device = done(found).out.trim().to_owned();
        if std::fs::File::open(&device).is_err() {
            break;
        }
        let commands = [
            "info",
            "check",
            "mkfs",
            "mkfs --size 16M",
            "repair --discard-image",
        ];
        let said = commands.map(|command| {
            let was_free = is_free(&device);
            let did = run(&bench, &format!("vellum {command} {device}"));
            (was_free && is_free(&device)).then_some(did)
        });
        if said.iter().any(Option::is_none) {
            continue;
        }
        for did in said.into_iter().flatten() {
            assert!(
                did.err.contains("a loop device without a backing file"),
                "{}",
                did.err
            );
            assert!(advised(&did).is_empty(), "{}", did.err);
        }
        return;
    }
    crate::support::skipped("a_loop_device_without_a_file_is_reported", "no loop device");
}

#[test]
fn other_advice_works() {
    let bench = pool(&["--medium", "disk", "--durability", "none"]);
    for command in [
        "vellum ls p.img:",
        "vellum evolve p.img",
        "vellum dataset add p.img more",
        "vellum mkfs p.img:third --size 16M",
    ] {
        assert_eq!(follow(&bench, command), "", "{command}");
    }
    // One superblock is lost.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.join("p.img"));
    file.and_then(|file| file.write_all_at(&[0; 4096], 0))
        .expect("written");
    assert_eq!(follow(&bench, "vellum check p.img"), "");
    bench.run(&["check", "p.img"]).ok();
}

#[test]
fn a_busy_mounted_pool_advises_how_to_unmount() {
    if !has_fuse("a_busy_mounted_pool_advises_how_to_unmount") {
        return;
    }
    let mounted = Mounted::new("16M", &[]);
    let did = mounted
        .bench
        .run(&["convert", "p.img", "--namespace", "tree"])
        .failed(3, &["unmount it: vellum umount "]);
    let (_, advice) = did
        .err
        .trim_end()
        .split_once("unmount it: ")
        .expect("advice");
    assert_eq!(run(&mounted.bench, advice).code, 0, "{advice}");
    mounted.bench.run(&["ls", "p.img:/"]).ok();
}

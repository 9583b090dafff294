//! The command as mount(8), umount(8), fstab, mkfs(8) and fsck(8) call it.
//!
//! `mount -t vellum POOL DIR -o OPTIONS` runs `mount.vellum POOL DIR [-sfnrvw] [-o OPTIONS] [-t
//! TYPE]`, a link to this program. With `-t fuse.vellum` it runs `mount.fuse.vellum` in the same
//! way, or else the helper of libfuse, which runs `vellum POOL DIR -o OPTIONS`. All of these are
//! translated to `vellum mount` before they are parsed. The kernel's table shows the type
//! fuse.vellum, so umount(8) runs `umount.fuse.vellum`, which is `vellum umount`: it returns when
//! the pool is closed. `mkfs.vellum` is `vellum mkfs`. `fsck.vellum` is `vellum check`, and with
//! -a, -p or -y `vellum repair --yes`.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

use vellum::PoolPath;
use vellum_terminal::status;

use crate::spelling::{self, Current};
use crate::units::parse_size;

/// The names of this program as a helper of mount(8).
const MOUNT_NAMES: [&str; 2] = ["mount.vellum", "mount.fuse.vellum"];
/// Its names as a helper of umount(8).
const UMOUNT_NAMES: [&str; 2] = ["umount.vellum", "umount.fuse.vellum"];
/// Its name as a helper of mkfs(8).
const MKFS_NAME: &str = "mkfs.vellum";
/// Its names as a helper of fsck(8).
const FSCK_NAMES: [&str; 2] = ["fsck.vellum", "fsck.fuse.vellum"];
/// Options that mount(8) does not pass to a helper, because they are the defaults for mounts of
/// root.
const DEFAULTS: &str = "suid,dev";

/// The exit statuses that mount(8) and umount(8) expect of a helper.
mod helper_status {
    pub(super) const USAGE: u8 = 1;
    pub(super) const FAILED: u8 = 32;
}

/// The command line, translated to a `vellum` command in the current spelling.
pub(crate) fn arguments() -> Current {
    let is_pool = |word: &OsStr| PoolPath::of(Path::new(word)).resolved().pool.exists();
    spelling::current(translated(std::env::args_os().collect(), is_pool))
}

/// Whether this program was called by one of these names.
fn is_one_of(names: &[&str]) -> bool {
    names.contains(&program_name(std::env::args_os().next()).as_str())
}

/// Whether mount(8) called this program.
pub(crate) fn is_of_mount() -> bool {
    is_one_of(&MOUNT_NAMES)
}

/// Whether umount(8) called this program.
pub(crate) fn is_of_umount() -> bool {
    is_one_of(&UMOUNT_NAMES)
}

/// Whether fsck(8) called this program.
pub(crate) fn is_of_fsck() -> bool {
    is_one_of(&FSCK_NAMES)
}

/// Translates an exit status of the command to that of a helper of mount(8) or umount(8), if this
/// is one.
pub(crate) fn exit(status: u8) -> ExitCode {
    ExitCode::from(match (is_of_mount() || is_of_umount(), status) {
        (false, status) => status,
        (true, status::USAGE) => helper_status::USAGE,
        (true, _) => helper_status::FAILED,
    })
}

/// The name by which a program was called, without the directory.
fn program_name(program: Option<impl AsRef<OsStr>>) -> String {
    let name = program
        .as_ref()
        .map(|program| Path::new(program).file_name());
    name.flatten()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn translated(given: Vec<OsString>, is_pool: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    match program_name(given.first()).as_str() {
        MKFS_NAME => return as_mkfs(given),
        name if FSCK_NAMES.contains(&name) => return as_fsck(given),
        name if MOUNT_NAMES.contains(&name) => return as_mount(given),
        name if UMOUNT_NAMES.contains(&name) => return as_umount(given),
        _ => {}
    }
    // A command stays a command, even if a file has the same name.
    let is_command = |word: &OsStr| {
        use clap::CommandFactory;
        let command = crate::args::Cli::command();
        word == "help"
            || word.to_str().is_some_and(|word| {
                spelling::is_former_command(word) || command.find_subcommand(word).is_some()
            })
    };
    match given.get(1) {
        Some(first) if given.len() > 2 && !is_command(first) && is_pool(first) => {
            let mut words = given;
            words.insert(1, "mount".into());
            words
        }
        _ => given,
    }
}

fn words_after(first: &[&str], given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    first.iter().map(Into::into).chain(given).collect()
}

/// Translates `mkfs.vellum [OPTIONS] POOL [SIZE]`. As with other helpers of mkfs(8), a size without
/// a unit counts KiB.
fn as_mkfs(given: Vec<OsString>) -> Vec<OsString> {
    let words = words_after(&["vellum", "mkfs"], given.into_iter().skip(1));
    let Some((last, others)) = words.split_last().filter(|_| !is_command_line(&words)) else {
        return words;
    };
    let Some(size) = last.to_str().filter(|size| parse_size(size).is_ok()) else {
        return words;
    };
    let is_number = size.bytes().all(|byte| byte.is_ascii_digit());
    let size = format!("--size={size}{}", if is_number { "K" } else { "" });
    let sized = words_after(&[], others.iter().cloned().chain([size.into()]));
    if is_command_line(&sized) {
        sized
    } else {
        words
    }
}

fn is_command_line(words: &[OsString]) -> bool {
    use clap::Parser;
    crate::args::Cli::try_parse_from(words).is_ok()
}

/// Translates `fsck.vellum [-a | -p | -y | -n] [-f] [-C FD] POOL`, in any order. Without -a, -p or
/// -y it is a check. -a and -p leave a pool alone that was closed cleanly, unless -f is given.
fn as_fsck(given: Vec<OsString>) -> Vec<OsString> {
    let mut flags = String::new();
    let mut rest = Vec::new();
    let mut given = given.into_iter().skip(1);
    while let Some(word) = given.next() {
        let text = word.to_str().unwrap_or_default();
        // The descriptor of -C is ignored: progress is shown on a terminal.
        let (known, descriptor) = match text.split_once('C') {
            Some((before, descriptor)) => (before, Some(descriptor)),
            None => (text, None),
        };
        match known.strip_prefix('-') {
            Some(known)
                if (!known.is_empty() || descriptor.is_some())
                    && known.chars().all(|flag| "apynfvVAMT".contains(flag))
                    && descriptor.is_none_or(|fd| fd.bytes().all(|byte| byte.is_ascii_digit())) =>
            {
                flags.push_str(known);
                if descriptor == Some("") {
                    given.next();
                }
            }
            // The command rejects unknown options, by name.
            _ => rest.push(word),
        }
    }
    let has = |any: &str| flags.contains(|flag| any.contains(flag));
    if has("V") {
        return words_after(&["vellum", "version"], std::iter::empty());
    }
    let is_device = |path: &OsString| {
        let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
        kind.is_ok_and(|kind| kind.is_block_device())
    };
    let mends = has("apy");
    let mut first = vec!["vellum", if mends { "repair" } else { "check" }];
    for (applies, option) in [
        (mends, "--yes"),
        // The command rejects it beside --yes.
        (mends && has("n"), "--dry-run"),
        (mends && !has("yf"), "--unless-clean"),
        // There is no place beside a device for the overwritten bytes.
        (mends && rest.iter().any(is_device), "--no-undo"),
    ] {
        if applies {
            first.push(option);
        }
    }
    words_after(&first, rest.into_iter())
}

/// Translates `umount.vellum DIR [-flnrv] [-t TYPE]`, in any order.
fn as_umount(given: Vec<OsString>) -> Vec<OsString> {
    let mut flags = String::new();
    let mut rest = Vec::new();
    let mut given = given.into_iter().skip(1);
    while let Some(word) = given.next() {
        let text = word.to_str().unwrap_or_default();
        match text.strip_prefix('-').filter(|flags| !flags.is_empty()) {
            Some("t") => drop(given.next()),
            // -n, -r and -v have no effect: only the kernel keeps a table of mounts, a mount that
            // is in use stays as it is, and there are no further messages.
            Some(known) if known.chars().all(|flag| "flnrv".contains(flag)) => {
                flags.push_str(known);
            }
            // The command rejects unknown options, by name.
            _ => rest.push(word),
        }
    }
    let mut first = vec!["vellum", "umount"];
    if flags.contains('f') {
        first.push("--force");
    } else if flags.contains('l') {
        first.push("--lazy");
    }
    words_after(&first, rest.into_iter())
}

/// Translates `mount.vellum POOL DIR [-sfnrvw] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, in any
/// order.
fn as_mount(given: Vec<OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["vellum", "mount"].map(Into::into).to_vec();
    if rustix::process::geteuid().is_root() {
        words.extend(["-o", DEFAULTS].map(Into::into));
    }
    let mut given = given.into_iter().skip(1);
    while let Some(word) = given.next() {
        let text = word.to_str().unwrap_or_default();
        match text.strip_prefix('-').filter(|flags| !flags.is_empty()) {
            Some("o") => words.extend(std::iter::once("-o".into()).chain(given.next())),
            Some("t") => drop(given.next()),
            Some(flags) if flags.chars().all(|flag| "sfnrvw".contains(flag)) => {
                for flag in flags.chars() {
                    words.extend(match flag {
                        's' => vec!["--sloppy".into()],
                        'f' => vec!["--fake".into()],
                        'r' => ["-o", "ro"].map(Into::into).to_vec(),
                        'w' => ["-o", "rw"].map(Into::into).to_vec(),
                        // -n and -v have no effect: only the kernel keeps a table of mounts, and
                        // there are no further messages.
                        _ => Vec::new(),
                    });
                }
            }
            // The command rejects unknown options, by name.
            _ => words.push(word),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        let given = words.iter().map(OsString::from).collect();
        let translated = translated(given, |word| word == "p.img" || word == "ls");
        let words: Vec<String> = translated
            .into_iter()
            .map(|word| word.into_string().expect("text"))
            .collect();
        words.join(" ").replace("-o suid,dev ", "")
    }

    #[test]
    fn helpers_are_translated_to_commands() {
        for name in ["/sbin/mount.vellum", "mount.fuse.vellum"] {
            assert_eq!(said(&[name, "p", "d"]), "vellum mount p d");
            assert_eq!(
                said(&[name, "p", "d", "-o", "ro,noexec", "-t", "fuse.vellum", "-n"]),
                "vellum mount p d -o ro,noexec"
            );
            assert_eq!(
                said(&[name, "-sfv", "p", "d", "-r", "-w"]),
                "vellum mount --sloppy --fake p d -o ro -o rw"
            );
            assert_eq!(said(&[name, "p", "d", "-N", "7"]), "vellum mount p d -N 7");
        }
    }

    #[test]
    fn mkfs_fsck_and_umount_are_commands() {
        for (given, words) in [
            (
                &["mkfs.vellum", "p", "--size", "1G"][..],
                "vellum mkfs p --size 1G",
            ),
            (&["mkfs.vellum", "p"], "vellum mkfs p"),
            (&["mkfs.vellum", "-L", "5", "6"], "vellum mkfs -L 5 6"),
            (
                &["mkfs.vellum", "-L", "x", "p", "65536"],
                "vellum mkfs -L x p --size=65536K",
            ),
            (&["mkfs.vellum", "p", "4G"], "vellum mkfs p --size=4G"),
            (&["mkfs.vellum", "p", "x"], "vellum mkfs p x"),
            (&["/sbin/fsck.vellum", "p"], "vellum check p"),
            (&["fsck.vellum", "-nf", "-C0", "p"], "vellum check p"),
            (&["fsck.fuse.vellum", "-fC", "0", "p"], "vellum check p"),
            (
                &["fsck.vellum", "-a", "-T", "-C9", "p"],
                "vellum repair --yes --unless-clean p",
            ),
            (&["fsck.vellum", "p", "-pf"], "vellum repair --yes p"),
            (&["fsck.vellum", "p", "-fy"], "vellum repair --yes p"),
            (
                &["fsck.vellum", "-ny", "p"],
                "vellum repair --yes --dry-run p",
            ),
            (&["fsck.vellum", "-V"], "vellum version"),
            (&["fsck.vellum", "-x", "p"], "vellum check -x p"),
            (&["umount.vellum", "d"], "vellum umount d"),
            (
                &["umount.fuse.vellum", "d", "-nv", "-t", "fuse.vellum"],
                "vellum umount d",
            ),
            (&["umount.vellum", "d", "-l"], "vellum umount --lazy d"),
            (&["umount.vellum", "-lf", "d"], "vellum umount --force d"),
            (&["umount.vellum", "-x", "d"], "vellum umount -x d"),
        ] {
            assert_eq!(said(given), words);
        }
    }

    #[test]
    fn a_pool_in_place_of_a_command_is_mounted() {
        assert_eq!(
            said(&["vellum", "p.img", "d", "-o", "rw,suid"]),
            "vellum mount p.img d -o rw,suid"
        );
        for other in [
            &["vellum", "ls", "p.img:/"][..],
            &["vellum", "p.img"],
            &["vellum"],
        ] {
            assert_eq!(said(other), other.join(" "));
        }
        assert_eq!(said(&["vellum", "none", "d"]), "vellum none d");
    }
}

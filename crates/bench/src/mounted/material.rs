//! What the programs are given: made once, outside of the measured file systems.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::error::doing;
use crate::repository::{self, Repository};
use crate::tool;
use crate::tree::Tree;

/// Files of the source tree for each crate, and for each package of npm; and the most of them.
const FILES_PER_CRATE: usize = 1000;
const CRATES_MAX: usize = 12;
const FILES_PER_PACKAGE: usize = 100;
const PACKAGES_MAX: usize = 120;
/// Modules of a crate and of a package.
const MODULES: usize = 8;

/// An archive of the source tree.
pub(super) fn archive(dir: &Path, files: usize) -> Result<()> {
    let tree = dir.join("tree");
    Tree::drawn(files).write(&tree, 1)?;
    let tar = ["cf", "tree.tar", "tree"];
    tool::run(Command::new("tar").args(tar).current_dir(dir))?;
    std::fs::remove_dir_all(tree).map_err(doing("remove a tree"))
}

/// A repository with the source tree, packed.
pub(super) fn repository(dir: &Path, files: usize) -> Result<()> {
    let made = Repository::create(dir.join("repository"), &Tree::drawn(files))?;
    made.git(&["repack", "-a", "-d", "--quiet", "--window=0"])?;
    Ok(())
}

/// A workspace of crates without dependencies from elsewhere; each needs the one before.
pub(super) fn workspace(dir: &Path, files: usize) -> Result<()> {
    let crates = (files / FILES_PER_CRATE).clamp(2, CRATES_MAX);
    let root = dir.join("workspace");
    let all = "[workspace]\nmembers = [\"crate-*\"]\nresolver = \"2\"\n";
    write(&root.join("Cargo.toml"), all)?;
    for number in 0..crates {
        let at = root.join(format!("crate-{number}"));
        let mut manifest = format!(
            "[package]\nname = \"crate-{number}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"
        );
        let mut library = String::new();
        if let Some(before) = number.checked_sub(1) {
            let _ = write!(
                manifest,
                "[dependencies]\ncrate-{before} = {{ path = \"../crate-{before}\" }}\n"
            );
            let _ = writeln!(library, "pub use crate_{before}::m0 as before;");
        }
        for module in 0..MODULES {
            let _ = writeln!(library, "pub mod m{module};");
            let text = format!("pub fn value() -> usize {{\n    {number} + {module}\n}}\n");
            write(&at.join(format!("src/m{module}.rs")), &text)?;
        }
        write(&at.join("Cargo.toml"), &manifest)?;
        write(&at.join("src/lib.rs"), &library)?;
    }
    Ok(())
}

/// Local packages of npm, and an application that needs all of them.
pub(super) fn packages(dir: &Path, files: usize) -> Result<()> {
    let packages = (files / FILES_PER_PACKAGE).clamp(2, PACKAGES_MAX);
    let mut needed = serde_json::Map::new();
    for number in 0..packages {
        let name = format!("package-{number}");
        let at = dir.join("packages").join(&name);
        let manifest = serde_json::json!({ "name": name, "version": "1.0.0" });
        write(&at.join("package.json"), &manifest.to_string())?;
        for module in 0..MODULES {
            let text = format!("module.exports = {number} + {module};\n");
            write(&at.join(format!("lib/m{module}.js")), &text)?;
        }
        needed.insert(name, format!("file:{}", at.display()).into());
    }
    let application = serde_json::json!({
        "name": "application", "version": "1.0.0", "dependencies": needed,
    });
    let at = dir.join("application/package.json");
    write(&at, &application.to_string())
}

/// A package of Python, ready to install (a wheel).
pub(super) fn wheel(dir: &Path, files: usize) -> Result<()> {
    let about = dir.join("bench-1.0.dist-info");
    let metadata = "Metadata-Version: 2.1\nName: bench\nVersion: 1.0\n";
    write(&about.join("METADATA"), metadata)?;
    let tag = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    write(&about.join("WHEEL"), tag)?;
    let mut record = String::new();
    for module in 0..(files / FILES_PER_PACKAGE).max(2) {
        let path = format!("bench/m{module}.py");
        write(&dir.join(&path), &format!("value = {module}\n"))?;
        let _ = writeln!(record, "{path},,");
    }
    for name in ["METADATA", "WHEEL", "RECORD"] {
        let _ = writeln!(record, "bench-1.0.dist-info/{name},,");
    }
    write(&about.join("RECORD"), &record)?;
    let mut zip = Command::new("python3");
    zip.args(["-m", "zipfile", "-c", "bench-1.0-py3-none-any.whl"])
        .args(["bench", "bench-1.0.dist-info"]);
    tool::run(zip.current_dir(dir)).map(drop)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let what = || doing(format!("write {}", path.display()));
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(what())?;
    }
    std::fs::write(path, text).map_err(what())
}

/// The first word of a command line as a command, independent of the machine's settings. What it
/// keeps for itself is in `dir`.
pub(super) fn command(program: &str, dir: &Path) -> Command {
    let mut command = match program {
        "git" => repository::git(),
        _ => Command::new(program),
    };
    command
        .env("TMPDIR", dir)
        .env_remove("CARGO_TARGET_DIR")
        .env("npm_config_cache", dir.join("npm-cache"))
        .env("npm_config_userconfig", "/dev/null")
        .env("npm_config_update_notifier", "false")
        .env("PIP_CONFIG_FILE", "/dev/null")
        .env("PIP_NO_CACHE_DIR", "1")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command
}

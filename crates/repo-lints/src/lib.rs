//! Rules of this repository that the compiler cannot check.
//!
//! [`plan`] compares the crates' dependencies with the plan, [`wings`] the engine's modules,
//! [`style`] reads the Rust sources, [`sites`] the engine's list of persistent steps,
//! [`documents`] the Markdown files, and [`words`] all of these.
//! Each rule is a function from text to [`Finding`]s; `tests/house.rs` applies them all to this
//! repository.
#![forbid(unsafe_code)]

pub mod documents;
pub mod plan;
pub mod sites;
pub mod style;
pub mod wings;
pub mod words;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// A place where the repository breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What was found, and what to do about it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

impl Finding {
    /// A line of `source` is too long.
    fn too_wide(source: &Source, line: usize, columns: usize, most: usize) -> Self {
        Self {
            path: source.path.clone(),
            line,
            rule: "width",
            message: format!("{columns} columns, at most {most}"),
        }
    }
}

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path relative to the repository's root, with `/` between its parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The root of the repository that this crate was built in.
pub fn repository_root() -> PathBuf {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_root
        .ancestors()
        .nth(2)
        .expect("crates/repo-lints lies two levels below the root")
        .to_owned()
}

/// The existing paths below `root` that git tracks, or would track if they were added; sorted and
/// relative.
pub fn list_files(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("git ls-files: {}", reason.trim())));
    }
    let listed = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    let mut paths: Vec<String> = listed
        .split_terminator('\0')
        .filter(|path| root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Reads the files of `paths` whose names end in `suffix`.
pub fn read_sources(root: &Path, paths: &[String], suffix: &str) -> io::Result<Vec<Source>> {
    paths
        .iter()
        .filter(|path| path.ends_with(suffix))
        .map(|path| {
            let text = fs::read_to_string(root.join(path))
                .map_err(|error| io::Error::other(format!("{path}: {error}")))?;
            Ok(Source {
                path: path.clone(),
                text,
            })
        })
        .collect()
}

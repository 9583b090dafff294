//! Applies the house rules to this repository.

use std::{env, fs, path::Path, process::Command};
use vellum_repo_lints::{
    Finding, Source, documents, list_files, plan, read_sources, repository_root, sites, style,
    wings, words,
};

fn assert_kept(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(
        lines.is_empty(),
        "the house rules are broken:\n  {}\n",
        lines.join("\n  ")
    );
}

/// The files of the repository whose names end in `suffix`.
fn files(suffix: &str) -> Vec<Source> {
    let root = repository_root();
    let paths = list_files(&root).expect("git lists the files");
    read_sources(&root, &paths, suffix).expect("the files can be read")
}

#[test]
fn dependencies_follow_the_plan() {
    let root = repository_root();
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(&root)
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert_kept(plan::check_crates(&metadata, &root, read));
}

#[test]
fn rust_sources_keep_the_style() {
    let sources = files(".rs");
    assert!(!sources.is_empty(), "no Rust file was found");
    assert_kept(sources.iter().flat_map(style::check_style).collect());
}

#[test]
fn the_engines_persistent_steps_are_listed() {
    assert_kept(sites::check_sites(&files(".rs")));
}

#[test]
fn wings_of_the_engine_use_wings_below_them() {
    assert_kept(wings::check_wings(&files(".rs")));
}

#[test]
fn links_in_documents_resolve() {
    let root = repository_root();
    let exists = |path: &str| root.join(path).exists();
    assert_kept(
        files(".md")
            .iter()
            .flat_map(|d| documents::check_links(d, exists))
            .collect(),
    );
}

#[test]
fn lines_of_documents_have_at_most_120_columns() {
    assert_kept(
        files(".md")
            .iter()
            .flat_map(documents::check_width)
            .collect(),
    );
}

#[test]
fn decision_records_are_numbered() {
    let paths = list_files(&repository_root()).expect("git lists the files");
    assert_kept(documents::check_records(&paths));
}

#[test]
fn former_words_are_gone() {
    let suffixes = [".rs", ".md", ".sh", ".bash", ".txt", "Makefile"].into_iter();
    let sources = suffixes.flat_map(files);
    assert_kept(
        sources
            .flat_map(|source| words::check_words(&source))
            .collect(),
    );
}

//! The plan of dependencies between crates. They point down only: adapters, engine, layout, media.

use crate::Finding;
use serde_json::Value;
use std::path::Path;

/// A crate of the workspace, and the workspace crates on which it may depend.
struct Crate {
    package: &'static str,
    may_use: &'static [&'static str],
}

const CRATES: &[Crate] = &[
    Crate {
        package: "vellum-media",
        may_use: &[],
    },
    Crate {
        package: "vellum-layout",
        may_use: &["vellum-media"],
    },
    Crate {
        package: "vellum",
        may_use: &["vellum-layout", "vellum-media"],
    },
    Crate {
        package: "vellum-model",
        may_use: &[],
    },
    Crate {
        package: "vellum-driver",
        may_use: &["vellum", "vellum-model"],
    },
    Crate {
        package: "vellum-check",
        may_use: &["vellum-layout", "vellum-media"],
    },
    Crate {
        package: "vellum-repair",
        may_use: &["vellum-check", "vellum-layout", "vellum-media"],
    },
    Crate {
        package: "vellum-crash",
        may_use: &[
            "vellum",
            "vellum-check",
            "vellum-driver",
            "vellum-model",
            "vellum-layout",
            "vellum-media",
            "vellum-terminal",
        ],
    },
    Crate {
        package: "vellum-fuzz",
        may_use: &[
            "vellum",
            "vellum-check",
            "vellum-layout",
            "vellum-media",
            "vellum-transport",
        ],
    },
    Crate {
        package: "vellum-transport",
        may_use: &["vellum-media"],
    },
    Crate {
        package: "vellum-fuse",
        may_use: &["vellum", "vellum-transport"],
    },
    Crate {
        package: "vellum-capi",
        may_use: &["vellum"],
    },
    Crate {
        package: "vellum-cli",
        may_use: &[
            "vellum",
            "vellum-fuzz",
            "vellum-fuse",
            "vellum-check",
            "vellum-repair",
            "vellum-terminal",
        ],
    },
    Crate {
        package: "vellum-bench",
        may_use: &[
            "vellum",
            "vellum-fuse",
            "vellum-terminal",
            "vellum-transport",
        ],
    },
    Crate {
        package: "vellum-terminal",
        may_use: &["vellum"],
    },
    Crate {
        package: "vellum-testing",
        may_use: &[],
    },
    Crate {
        package: "vellum-repo-lints",
        may_use: &[],
    },
];

/// Crates that the tests of every crate may use in addition. A crate's tests may also use the crate
/// itself with other features.
const TESTS_MAY_USE: &[&str] = &[
    "vellum-testing",
    "vellum-model",
    "vellum-driver",
    "vellum-check",
    "vellum-repair",
    "vellum-crash",
];

const RULE: &str = "plan";

/// Compares the output of `cargo metadata --no-deps` with the plan. `read` returns the text of a
/// manifest, in which the line of a dependency is found.
pub fn check_crates(metadata: &Value, root: &Path, read: impl Fn(&Path) -> String) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in array(metadata, "packages") {
        let name = text(package, "name");
        let manifest = Path::new(text(package, "manifest_path"));
        let path = manifest
            .strip_prefix(root)
            .unwrap_or(manifest)
            .display()
            .to_string();
        let manifest = read(manifest);
        let mut report = |needle: &str, message: String| {
            let line = line_of(&manifest, needle);
            findings.push(Finding {
                path: path.clone(),
                line,
                rule: RULE,
                message,
            });
        };
        let Some(known) = CRATES.iter().find(|known| known.package == name) else {
            report(
                name,
                format!(
                    "`{name}` isn't in the plan: give it a row in crates/repo-lints/src/plan.rs \
                     and a decision record"
                ),
            );
            continue;
        };
        for dependency in array(package, "dependencies") {
            let target = text(dependency, "name");
            let in_tests = dependency["kind"] == "dev";
            if is_ours(dependency) && !allowed(known, target, in_tests) {
                let kind = if in_tests { "the tests of " } else { "" };
                let may_use = known.may_use.join(", ");
                let may_use = if may_use.is_empty() {
                    "none of ours"
                } else {
                    &may_use
                };
                report(
                    target,
                    format!(
                        "{kind}`{name}` may not depend on `{target}`; `{name}` may use: {may_use}"
                    ),
                );
            }
        }
    }
    findings
}

fn allowed(known: &Crate, target: &str, in_tests: bool) -> bool {
    let for_tests = in_tests && (TESTS_MAY_USE.contains(&target) || target == known.package);
    known.may_use.contains(&target) || for_tests
}

/// Whether a dependency is a workspace crate. A dependency by path counts as one whatever its name,
/// and a crate with a name of ours wherever it comes from.
fn is_ours(dependency: &Value) -> bool {
    let name = text(dependency, "name");
    dependency["path"].is_string() || name == "vellum" || name.starts_with("vellum-")
}

fn line_of(manifest: &str, package: &str) -> usize {
    let named = |line: &str| {
        let key = line.trim_start().trim_start_matches('"');
        let rest = key.strip_prefix(package).unwrap_or("-");
        !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let quoted = format!("\"{package}\"");
    manifest
        .lines()
        .position(|line| named(line) || line.contains(&quoted))
        .map_or(1, |position| position + 1)
}

fn array<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arrow(from: &str, to: &str, kind: Option<&str>) -> Vec<Finding> {
        let metadata = json!({"packages": [{
            "name": from,
            "manifest_path": format!("/repo/crates/{from}/Cargo.toml"),
            "dependencies": [
                {"name": "libc", "kind": null},
                {"name": to, "kind": kind, "path": format!("/repo/crates/{to}")},
            ],
        }]});
        let manifest =
            format!("[package]\nname = \"{from}\"\n[dependencies]\n{to}.workspace = true");
        check_crates(&metadata, Path::new("/repo"), |_| manifest.clone())
    }

    #[test]
    fn dependencies_point_down() {
        assert_eq!(arrow("vellum-layout", "vellum-media", None), []);
        assert_eq!(arrow("vellum", "vellum-layout", None), []);
        assert_eq!(arrow("vellum-cli", "vellum-repair", None), []);
        for (from, to) in [
            ("vellum-media", "vellum-layout"),
            ("vellum-layout", "vellum"),
            ("vellum-check", "vellum"),
            ("vellum-model", "vellum-media"),
            ("vellum-fuse", "vellum-layout"),
            ("vellum-bench", "vellum-check"),
            ("vellum-cli", "vellum-crash"),
            ("vellum", "vellum-check"),
        ] {
            assert_eq!(arrow(from, to, None).len(), 1, "{from} -> {to}");
            assert_eq!(
                arrow(from, to, Some("build")).len(),
                1,
                "{from} -> {to} in build.rs"
            );
        }
    }

    #[test]
    fn tests_may_use_the_instruments() {
        assert_eq!(arrow("vellum", "vellum-crash", Some("dev")), []);
        assert_eq!(arrow("vellum-fuse", "vellum-model", Some("dev")), []);
        assert_eq!(arrow("vellum-media", "vellum-media", Some("dev")), []);
        assert_eq!(arrow("vellum", "vellum-fuse", Some("dev")).len(), 1);
        assert_eq!(arrow("vellum-model", "vellum", Some("dev")).len(), 1);
    }

    #[test]
    fn a_finding_names_the_line_of_the_dependency() {
        let findings = arrow("vellum-media", "vellum", None);
        assert_eq!(
            findings[0].to_string(),
            "crates/vellum-media/Cargo.toml:4: plan: `vellum-media` may not depend on `vellum`; \
             `vellum-media` may use: none of ours"
        );
    }

    #[test]
    fn an_unknown_crate_is_reported() {
        let findings = arrow("vellum-attic", "libc", None);
        assert_eq!((findings.len(), findings[0].line), (1, 2));
        assert_eq!(arrow("vellum", "stranger", None).len(), 1);
    }

    #[test]
    fn the_plan_names_its_own_crates_only() {
        for known in CRATES {
            for target in known.may_use {
                assert!(
                    CRATES.iter().any(|other| other.package == *target),
                    "{target}"
                );
            }
        }
    }
}

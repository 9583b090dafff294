//! `include/vellum.h` is what cbindgen makes of the sources.

use std::path::Path;

/// The environment variable that asks for the header to be written.
const WRITE: &str = "VELLUM_WRITE_HEADER";

/// What cbindgen makes, without the names that parameters have in Rust.
fn made() -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_crate(package).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    with_c_types(&String::from_utf8(made).unwrap())
}

/// Replaces the names of the pointers in `borrowed.rs` by their types in C.
fn with_c_types(header: &str) -> String {
    let (typedefs, others): (Vec<_>, Vec<_>) = header
        .split("\n\n")
        .partition(|block| pointer_of(block).is_some());
    let mut header = others.join("\n\n");
    for (name, pointer) in typedefs.into_iter().filter_map(pointer_of) {
        let pointer = pointer.replace("const CPath *", "const char *const *");
        header = header
            .replace(&format!(" {name} "), &format!(" {pointer}"))
            .replace(&format!("({name} "), &format!("({pointer}"));
    }
    header
}

/// The name and the type of a pointer that a block of the header declares.
fn pointer_of(block: &str) -> Option<(&str, &str)> {
    let typedef = block.lines().last()?.strip_prefix("typedef ")?;
    let (pointer, name) = typedef.strip_suffix(';')?.rsplit_once('*')?;
    Some((name, &typedef[..=pointer.len()]))
}

#[test]
fn the_header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/vellum.h");
    let made = made();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/vellum.h is not what the sources say: {WRITE}=1 cargo test -p vellum-capi \
         up_to_date"
    );
}

/// The functions that the header declares.
fn functions() -> Vec<String> {
    let header = made();
    let declared = header.lines().filter(|line| !line.starts_with(" *"));
    let names = declared.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let names = names.filter(|name| name.starts_with("vellum_"));
    names.map(str::to_owned).collect()
}

#[test]
fn the_guide_names_every_function() {
    let functions = functions();
    assert!(functions.len() > 60, "{functions:?}");
    let guide = include_str!("../../../../docs/guide/from-c.md");
    let calls = include_str!("calls.c");
    let pools = include_str!("pools.c");
    for function in functions {
        assert!(
            guide.contains(&format!("`{function}`")),
            "{function} is not in the guide"
        );
        let called = format!("{function}(");
        let is_called = calls.contains(&called) || pools.contains(&called);
        assert!(is_called, "no test calls {function}");
    }
}

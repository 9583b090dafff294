//! Figures of names and directories on small directories.

use vellum_bench::namespace::{Figure, NamespaceOptions};
use vellum_bench::report::Output;

use crate::MEMORY;

pub(crate) fn options(figure: Figure) -> NamespaceOptions {
    NamespaceOptions {
        figure: vec![figure],
        output: Output::default(),
        peer: vec![MEMORY.into()],
        rounds: 1,
        files: 300,
        children: 120,
        threads: 2,
        seconds: 1,
        tree: None,
        pool_dir: MEMORY.into(),
    }
}

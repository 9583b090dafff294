//! Every operation with every class of arguments, alone (seq-1). A name is the operation and the
//! class: `rename-over-link`.

mod attributes;
mod background;
mod failing;
mod making;
mod opening;
mod removing;
mod renaming;
mod sizing;
mod writing;

use super::FILE;
use crate::workload::Workload;

/// A class of arguments: its name, what makes a pool for it, and the operation.
type Class = (&'static str, &'static [&'static str], &'static str);

const TABLES: [(&str, &[Class]); 37] = [
    ("create", making::CREATE),
    ("create", failing::CREATE),
    ("mkdir", making::MKDIR),
    ("mkdir", failing::MKDIR),
    ("symlink", making::SYMLINK),
    ("symlink", failing::SYMLINK),
    ("link", making::LINK),
    ("link", failing::LINK),
    ("unlink", removing::UNLINK),
    ("unlink", failing::UNLINK),
    ("rmdir", removing::RMDIR),
    ("rmdir", failing::RMDIR),
    ("rename", renaming::RENAME),
    ("rename", failing::RENAME),
    ("exchange", renaming::EXCHANGE),
    ("exchange", failing::EXCHANGE),
    ("write", writing::WRITE),
    ("write", failing::WRITE),
    ("append", writing::APPEND),
    ("truncate", sizing::TRUNCATE),
    ("truncate", failing::TRUNCATE),
    ("fallocate", sizing::FALLOCATE),
    ("fallocate", failing::FALLOCATE),
    ("punch", sizing::PUNCH),
    ("chmod", attributes::CHMOD),
    ("chown", attributes::CHOWN),
    ("utimens", attributes::UTIMENS),
    ("", failing::ATTRIBUTES),
    ("open", opening::OPEN),
    ("open", failing::OPEN),
    ("close", opening::CLOSE),
    ("read", opening::READ),
    ("sync", opening::SYNC),
    ("maintain", background::MAINTAIN),
    ("closing", background::CLOSING),
    ("opening", background::OPENING),
    ("recovery", background::RECOVERY),
];

/// The workloads of a single operation each.
pub fn single_operations() -> Vec<Workload> {
    let of = |&(operation, classes): &(&'static str, &'static [Class])| {
        classes.iter().map(move |&(class, setup, explored)| {
            let words = [operation, class];
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            Workload::new(&words.join("-"), setup, &[explored])
        })
    };
    TABLES.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_operation() {
        for workload in single_operations() {
            let (first, _) = workload
                .name
                .split_once('-')
                .unwrap_or((&workload.name, ""));
            assert_eq!(first, workload.operation(), "{}", workload.name);
        }
    }
}

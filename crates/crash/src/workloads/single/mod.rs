//! Every operation with every class of arguments, alone (seq-1). A name is the operation and the
//! class: `rename-over-link`.

mod attributes;
mod background;
mod failing;
mod making;
mod opening;
mod removing;
mod renaming;
mod scarce;
mod sizing;
mod writing;

use super::FILE;
use crate::workload::Workload;

/// A class of arguments: its name, what makes a pool for it, and the operation.
type Class = (&'static str, &'static [&'static str], &'static str);

const TABLES: [(&str, &[Class]); 58] = [
    ("create", making::CREATE),
    ("create", failing::CREATE),
    ("create", scarce::CREATE),
    ("mkdir", making::MKDIR),
    ("mkdir", failing::MKDIR),
    ("mkdir", scarce::MKDIR),
    ("mknod", making::MKNOD),
    ("mknod", failing::MKNOD),
    ("mknod", scarce::MKNOD),
    ("symlink", making::SYMLINK),
    ("symlink", failing::SYMLINK),
    ("symlink", scarce::SYMLINK),
    ("link", making::LINK),
    ("link", failing::LINK),
    ("link", scarce::LINK),
    ("unlink", removing::UNLINK),
    ("unlink", failing::UNLINK),
    ("rmdir", removing::RMDIR),
    ("rmdir", failing::RMDIR),
    ("rename", renaming::RENAME),
    ("rename", failing::RENAME),
    ("rename", scarce::RENAME),
    ("exchange", renaming::EXCHANGE),
    ("exchange", failing::EXCHANGE),
    ("exchange", scarce::EXCHANGE),
    ("write", writing::WRITE),
    ("write", failing::WRITE),
    ("write", scarce::WRITE),
    ("append", writing::APPEND),
    ("append", scarce::APPEND),
    ("truncate", sizing::TRUNCATE),
    ("truncate", failing::TRUNCATE),
    ("truncate", scarce::TRUNCATE),
    ("fallocate", sizing::FALLOCATE),
    ("fallocate", failing::FALLOCATE),
    ("fallocate", scarce::FALLOCATE),
    ("punch", sizing::PUNCH),
    ("punch", scarce::PUNCH),
    ("blocks", sizing::BLOCKS),
    ("chmod", attributes::CHMOD),
    ("chown", attributes::CHOWN),
    ("utimens", attributes::UTIMENS),
    ("attributes", attributes::TOGETHER),
    ("attributes", failing::TOGETHER),
    ("", failing::ATTRIBUTES),
    ("open", opening::OPEN),
    ("open", failing::OPEN),
    ("close", opening::CLOSE),
    ("read", opening::READ),
    ("sync", opening::SYNC),
    ("maintain", background::MAINTAIN),
    ("maintain", scarce::MAINTAIN),
    ("closing", background::CLOSING),
    ("closing", scarce::CLOSING),
    ("opening", background::OPENING),
    ("opening", scarce::OPENING),
    ("recovery", background::RECOVERY),
    ("recovery", scarce::RECOVERY),
];

/// The workloads of a single operation each.
pub fn single_operations() -> Vec<Workload> {
    let evicting = table("", scarce::EVICTING);
    let evicting = evicting.into_iter().map(Workload::crowded);
    let tables = TABLES.iter();
    let plain = tables.flat_map(|(operation, classes)| table(operation, classes));
    plain.chain(evicting).collect()
}

fn table(operation: &str, classes: &[Class]) -> Vec<Workload> {
    let of = |&(class, setup, explored): &Class| {
        let words = [operation, class];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        Workload::new(&words.join("-"), setup, &[explored])
    };
    classes.iter().map(of).collect()
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

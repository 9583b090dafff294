//! Walking a path a component at a time.

use vellum_layout::FileKind;
use vellum_media::Memories;

use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::Result;
use crate::namespace::Walked;

/// The next plain component of `path` from `at`: its range, or `None` at the end.
fn component(path: &[u8], mut at: usize) -> Option<std::ops::Range<usize>> {
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    let len = path[at..]
        .iter()
        .position(|&b| b == b'/')
        .unwrap_or(path.len() - at);
    (len > 0).then_some(at..at + len)
}

/// Implements [`crate::namespace::Namespace::walk`] by one `lookup` for each component.
pub(crate) fn walk<M: Memories>(
    op: &Op<'_, M>,
    start: Cachelet,
    path: &[u8],
    enter: &mut dyn FnMut(Cachelet) -> Result<()>,
    lookup: impl Fn(Cachelet, &[u8]) -> Result<Cachelet>,
) -> Result<Walked> {
    let mut walked = Walked {
        at: start,
        parent: start,
        used: 0,
    };
    while let Some(range) = component(path, walked.used) {
        let name = &path[range.clone()];
        if name == b"." || name == b".." {
            walked.used = range.start;
            return Ok(walked);
        }
        enter(walked.at)?;
        let found = lookup(walked.at, name)?;
        walked = Walked {
            at: found,
            parent: walked.at,
            used: range.end,
        };
        if op.core.kind(found) == FileKind::Symlink {
            return Ok(walked);
        }
    }
    walked.used = path.len();
    Ok(walked)
}

#[cfg(test)]
mod tests {
    use super::component;

    #[test]
    fn components_skip_separators() {
        let path = b"//ab/c///";
        let first = component(path, 0).unwrap();
        assert_eq!(&path[first.clone()], b"ab");
        let second = component(path, first.end).unwrap();
        assert_eq!(&path[second.clone()], b"c");
        assert_eq!(component(path, second.end), None);
    }
}

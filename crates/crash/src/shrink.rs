//! Reduces lists: those that show a violation (delta debugging), and those that are too long.

/// Removes as much of `all` as it can such that `holds` stays true, as it is for `all`: first
/// halves, then smaller parts, then single elements. Calls `holds` at most `questions` times.
pub(crate) fn fewest<T: Clone>(
    all: Vec<T>,
    mut questions: usize,
    mut holds: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut left = all;
    let mut size = left.len().div_ceil(2);
    while size > 0 && questions > 0 {
        let mut at = 0;
        while at < left.len() && questions > 0 {
            let end = (at + size).min(left.len());
            let without = [&left[..at], &left[end..]].concat();
            questions -= 1;
            if holds(&without) {
                left = without;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    left
}

/// At most `most` elements of `all`, evenly spread.
pub(crate) fn spread<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let count = all.len();
    let keep = |i: &usize| i * most / count != (i + 1) * most / count;
    let all = all.into_iter().enumerate();
    all.filter(|(i, _)| count <= most || keep(i))
        .map(|(_, one)| one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays() {
        let all: Vec<_> = (0..100).collect();
        let matters = |left: &[i32]| [3, 50, 51].iter().all(|of| left.contains(of));
        assert_eq!(fewest(all.clone(), 1000, matters), [3, 50, 51]);
        assert_eq!(fewest(all.clone(), 1000, |_| true), []);
        assert_eq!(fewest(all.clone(), 1000, |left| left.len() == 100), all);
    }

    #[test]
    fn questions_are_counted() {
        let mut asked = 0;
        let left = fewest((0..64).collect(), 5, |_| {
            asked += 1;
            false
        });
        assert_eq!((asked, left.len()), (5, 64));
        assert_eq!(fewest(Vec::<u8>::new(), 5, |_| true), []);
    }

    #[test]
    fn a_part_is_spread_over_the_whole() {
        assert_eq!(spread((0..9).collect(), 3), [2, 5, 8]);
        assert_eq!(spread(vec![1, 2], 3), [1, 2]);
        assert_eq!(spread(vec![1, 2], 0), []);
    }
}

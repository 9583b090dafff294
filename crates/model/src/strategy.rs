//! Random operations over a small namespace, for `proptest`.

use crate::{
    ACL_ACCESS, ACL_DEFAULT, APPEND_ONLY, Acl, AclEntry, AclTag, BLOCK_SIZE, CAPABILITY, Cred,
    FILE_SIZE_MAX, IMMUTABLE, LockKind, LockOwner, NAME_MAX, NO_ATIME, NO_DUMP, Op,
    PROJECT_INHERIT, QuotaKind, Range, Space, Step, TimeSet, XATTR_NAME_MAX, XATTR_VALUE_MAX,
    XattrMode, XattrValue,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// The users of random steps: the superuser, two users that share group 30, and one without a
/// common group.
pub fn creds() -> Vec<Cred> {
    vec![
        Cred::superuser(),
        Cred::user(1001, 10, &[30]),
        Cred::user(1002, 20, &[30]),
        Cred::user(1003, 40, &[]),
    ]
}

/// A user, the superuser half of the time.
pub fn cred() -> impl Strategy<Value = Cred> {
    let all = creds();
    prop_oneof![Just(all[0].clone()), prop::sample::select(all)]
}

/// A name: mostly `a` to `d`, sometimes one of the two longest ones, one of 100 bytes, or one that
/// is too long.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let long = |byte: u8, len: usize| Just([vec![byte; len - 1], vec![b'z']].concat());
    prop_oneof![
        40 =>
            prop::sample::select(vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec(), b"d".to_vec()]),
        2 => long(b'x', NAME_MAX),
        2 => long(b'y', NAME_MAX),
        2 => long(b'w', 100),
        2 => prop::sample::select(vec![b".".to_vec(), b"..".to_vec()]),
        1 => long(b'v', NAME_MAX + 1),
    ]
}

/// The source of paths for operations.
pub type Paths = BoxedStrategy<Vec<u8>>;

/// A path of one to three names, sometimes absolute, with doubled or trailing slashes, or empty.
pub fn path() -> Paths {
    let names = prop_oneof![
        6 => vec(name(), 1),
        4 => vec(name(), 2),
        1 => vec(name(), 3),
    ];
    let dress = prop_oneof![
        60 => Just(("", "/", "")),
        3 => Just(("/", "/", "")),
        4 => Just(("", "/", "/")),
        1 => Just(("//", "//", "//")),
    ];
    let plain = (names, dress).prop_map(|(names, (before, between, after))| {
        [
            before.as_bytes(),
            &names.join(between.as_bytes()),
            after.as_bytes(),
        ]
        .concat()
    });
    prop_oneof![
        300 => plain,
        1 => Just(Vec::new()),
        1 => Just(b"/".to_vec()),
        1 => Just([b"a/".repeat(2047), b"a".to_vec()].concat()),
        1 => Just(b"a/".repeat(2048)),
    ]
    .boxed()
}

/// A path of one or two of two names: so few that most operations find their files.
pub fn few_paths() -> Paths {
    let name = || prop::sample::select(vec!["a", "b"]);
    prop_oneof![
        10 => name().prop_map(str::to_owned),
        5 => (name(), name()).prop_map(|(dir, name)| format!("{dir}/{name}")),
        1 => name().prop_map(|name| format!("{name}/")),
        1 => Just(".".to_owned()),
    ]
    .prop_map(String::into_bytes)
    .boxed()
}

/// A length in bytes, small or near a multiple of a block or of 32 KiB.
fn len() -> impl Strategy<Value = u64> {
    let block = BLOCK_SIZE as u64;
    prop_oneof![
        1 => Just(0),
        3 => 1..200u64,
        4 => near(block, 4),
        3 => near(8 * block, 2),
    ]
}

/// An offset in bytes, small or near a multiple of a block or of 32 KiB, up to 256 KiB.
fn offset() -> impl Strategy<Value = u64> {
    let block = BLOCK_SIZE as u64;
    prop_oneof![
        3 => Just(0),
        2 => 0..200u64,
        5 => near(block, 20),
        3 => near(8 * block, 8),
    ]
}

/// An offset or size that is rarely too large.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        60 => offset(),
        1 => Just(FILE_SIZE_MAX * 2),
        1 => Just(1 << 40),
    ]
}

fn near(unit: u64, units: u64) -> impl Strategy<Value = u64> {
    (1..=units, -2..=2i64)
        .prop_map(move |(count, shift)| (count * unit).saturating_add_signed(shift))
}

fn range() -> impl Strategy<Value = Range> {
    (offset(), len()).prop_map(|(offset, len)| Range { offset, len })
}

fn allocation() -> impl Strategy<Value = (i32, Range)> {
    let mode = prop_oneof![
        6 => Just(0),
        6 => Just(libc::FALLOC_FL_KEEP_SIZE),
        10 => Just(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
        4 => Just(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE),
        1 => Just(libc::FALLOC_FL_PUNCH_HOLE),
    ];
    (mode, range())
}

/// Permission bits for a new file or for `chmod`: mostly permissive, sometimes any.
fn mode() -> impl Strategy<Value = u32> {
    let usual = vec![
        0o644, 0o666, 0o755, 0o777, 0o1777, 0o2775, 0o4755, 0o6777, 0o2666, 0o700, 0o070, 0o007,
    ];
    prop_oneof![6 => prop::sample::select(usual), 1 => 0..0o10000u32]
}

fn uid() -> impl Strategy<Value = Option<u32>> {
    option::of(prop::sample::select(vec![0, 1001, 1002, 1003]))
}

fn gid() -> impl Strategy<Value = Option<u32>> {
    option::of(prop::sample::select(vec![0, 10, 20, 30, 40]))
}

/// Whole microseconds between 1930 and 2200, which every medium can hold.
fn time() -> impl Strategy<Value = Option<TimeSet>> {
    option::of(prop_oneof![
        Just(TimeSet::Now),
        (-1_262_000_000_000_000..7_258_000_000_000_000i64)
            .prop_map(|micros| TimeSet::At(micros * 1000)),
    ])
}

fn open_flags() -> impl Strategy<Value = i32> {
    let extra = |bit: i32, weight: f64| {
        prop::bool::weighted(weight).prop_map(move |set| if set { bit } else { 0 })
    };
    (
        prop::sample::select(vec![
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_RDWR,
        ]),
        extra(libc::O_CREAT, 0.5),
        extra(libc::O_EXCL, 0.2),
        extra(libc::O_TRUNC, 0.2),
        extra(libc::O_APPEND, 0.2),
        extra(libc::O_DIRECTORY, 0.1),
        extra(libc::O_NOFOLLOW, 0.1),
    )
        .prop_map(
            |(access, create, exclusive, truncate, append, directory, nofollow)| {
                // O_EXCL without O_CREAT is undefined.
                let exclusive = if create == 0 { 0 } else { exclusive };
                access | create | exclusive | truncate | append | directory | nofollow
            },
        )
}

/// Which extended attributes operations may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xattrs {
    /// None.
    None,
    /// All but access control lists.
    Plain,
    /// All.
    WithLists,
}

fn xattr_name() -> impl Strategy<Value = Vec<u8>> {
    let of_length = |len: usize| [b"user.", &vec![b'n'; len - 5][..]].concat();
    let usual = ["user.a", "user.b", "user.c", "trusted.a", "security.a"];
    let rare = ["user.", "trusted.", "security.", "system.a", "a", "a.a", ""];
    prop_oneof![
        30 => prop::sample::select(usual.map(Vec::from).to_vec()),
        3 => prop::sample::select(rare.map(Vec::from).to_vec()),
        3 => Just(of_length(XATTR_NAME_MAX)),
        1 => Just(of_length(XATTR_NAME_MAX + 1)),
    ]
}

fn xattr_value() -> impl Strategy<Value = XattrValue> {
    let block = BLOCK_SIZE as u64;
    let most = XATTR_VALUE_MAX as u64;
    let len = prop_oneof![
        8 => 4..100u64,
        8 => 100..900u64,
        3 => near(block, 3),
        1 => most - 100..=most,
        1 => most + 1..most + 5,
    ];
    let pattern = (0..1000u64, len).prop_map(|(seed, len)| XattrValue::Pattern { seed, len });
    prop_oneof![
        8 => vec(b'a'..=b'c', 0..4).prop_map(XattrValue::Bytes),
        10 => pattern,
    ]
}

fn xattr_mode() -> impl Strategy<Value = XattrMode> {
    prop_oneof![
        4 => Just(XattrMode::Any),
        1 => Just(XattrMode::Create),
        1 => Just(XattrMode::Replace),
    ]
}

/// Capabilities, rarely damaged.
fn capability() -> impl Strategy<Value = XattrValue> {
    let valid = (any::<u8>(), any::<bool>()).prop_map(|(byte, effective)| {
        let head = [u8::from(effective), 0, 0, 2];
        XattrValue::Bytes([&head[..], &[byte; 16]].concat())
    });
    prop_oneof![6 => valid, 1 => Just(XattrValue::Bytes(b"damaged".to_vec()))]
}

/// The entries of a valid list with these users, groups, and permissions, which are octal digits.
fn entries(users: Vec<u32>, groups: Vec<u32>, masked: bool, mut permissions: u64) -> Vec<AclEntry> {
    let is_masked = masked || !users.is_empty() || !groups.is_empty();
    let users = users.into_iter().map(AclTag::User);
    let groups = groups.into_iter().map(AclTag::NamedGroup);
    let tags = std::iter::once(AclTag::Owner).chain(users);
    let tags = tags.chain([AclTag::Group]).chain(groups);
    let tags = tags.chain(is_masked.then_some(AclTag::Mask));
    let tags = tags.chain([AclTag::Other]);
    let next = |tag| {
        let entry = AclEntry {
            tag,
            permissions: (permissions & 7) as u16,
        };
        permissions >>= 3;
        entry
    };
    tags.map(next).collect()
}

/// An access control list, rarely invalid.
fn list() -> impl Strategy<Value = XattrValue> {
    let users = vec(prop::sample::select(vec![0, 1001, 1002, 1003]), 0..3);
    let groups = vec(prop::sample::select(vec![0, 10, 20, 30, 40]), 0..3);
    let valid = (users, groups, prop::bool::weighted(0.2), any::<u64>());
    let valid = valid
        .prop_map(|(users, groups, masked, digits)| entries(users, groups, masked, digits))
        .boxed();
    let changed = (valid.clone(), any::<prop::sample::Index>(), 0..4).prop_map(
        |(mut entries, at, change)| {
            let at = at.index(entries.len());
            match change {
                0 => drop(entries.remove(at)),
                1 => entries.insert(at, entries[at]),
                2 => entries[at].permissions |= 8,
                _ => entries.rotate_left(at),
            }
            entries
        },
    );
    let lists = prop_oneof![8 => valid, 1 => changed];
    let lists = lists.prop_map(|entries| XattrValue::Acl(Acl(entries)));
    let bytes = prop::sample::select(vec![&b""[..], b"\x02\0\0\0", b"\x01\0\0\0", b"\x02\0"]);
    let bytes = bytes.prop_map(|bytes| XattrValue::Bytes(bytes.to_vec()));
    prop_oneof![12 => lists, 1 => bytes]
}

/// A name and a value that belong together.
fn xattr(xattrs: Xattrs) -> BoxedStrategy<(Vec<u8>, XattrValue)> {
    let plain = prop_oneof![
        6 => (xattr_name(), xattr_value()),
        1 => (Just(CAPABILITY.to_vec()), capability()),
    ];
    if xattrs == Xattrs::Plain {
        return plain.boxed();
    }
    let lists = prop::sample::select(vec![ACL_ACCESS.to_vec(), ACL_DEFAULT.to_vec()]);
    prop_oneof![3 => plain, 2 => (lists, list())].boxed()
}

/// An operation on extended attributes, by path; none of these if `xattrs` says so, but other
/// attributes.
pub fn xattr_op(paths: &Paths, xattrs: Xattrs) -> BoxedStrategy<Op> {
    if xattrs == Xattrs::None {
        return attribute_op(paths).boxed();
    }
    let of = || (paths.clone(), xattr(xattrs), any::<bool>());
    prop_oneof![
        10 => (of(), xattr_mode()).prop_map(|((path, (name, value), follow), mode)| {
            Op::SetXattr { path, name, value, mode, follow }
        }),
        3 => of().prop_map(|(path, (name, _), follow)| Op::RemoveXattr { path, name, follow }),
        4 => of().prop_map(|(path, (name, _), follow)| Op::GetXattr { path, name, follow }),
        3 => (paths.clone(), any::<bool>())
            .prop_map(|(path, follow)| Op::ListXattr { path, follow }),
    ]
    .boxed()
}

/// An operation on flags and project ids, by path. Most clear the flags, so that other operations
/// go on.
pub fn flag_op(paths: &Paths) -> BoxedStrategy<Op> {
    const FLAGS: [u32; 5] = [IMMUTABLE, APPEND_ONLY, NO_DUMP, NO_ATIME, PROJECT_INHERIT];
    const UNKNOWN: u32 = 0x0080_0000;
    let one = || prop::sample::select(&FLAGS[..]);
    let flags = prop_oneof![
        6 => Just(0),
        5 => one(),
        2 => (one(), one()).prop_map(|(one, other)| one | other),
        1 => one().prop_map(|one| one | UNKNOWN),
    ];
    let project = prop_oneof![20 => 0..3u32, 1 => Just(u32::MAX)];
    let path = || paths.clone();
    prop_oneof![
        5 => (path(), flags).prop_map(|(path, flags)| Op::SetFlags { path, flags }),
        2 => (path(), project).prop_map(|(path, project)| Op::SetProject { path, project }),
        2 => path().prop_map(|path| Op::GetFlags { path }),
    ]
    .boxed()
}

/// An operation on quotas. Limits are low.
pub fn quota_op() -> BoxedStrategy<Op> {
    let users = (
        Just(QuotaKind::User),
        prop::sample::select(vec![0, 1001, 1002]),
    );
    let groups = (Just(QuotaKind::Group), prop::sample::select(vec![10, 30]));
    let projects = (Just(QuotaKind::Project), 0..3u32);
    let id = move || prop_oneof![4 => users.clone(), 2 => groups.clone(), 2 => projects.clone()];
    let limit = |most| prop_oneof![1 => Just(0), 4 => 1..most];
    let space = (limit(12 * BLOCK_SIZE as u64), limit(6));
    let limits = option::weighted(0.8, space)
        .prop_map(|space| space.map(|(bytes, inodes)| Space { bytes, inodes }));
    prop_oneof![
        8 => (id(), limits).prop_map(|((kind, id), limits)| Op::SetQuota { kind, id, limits }),
        8 => id().prop_map(|(kind, id)| Op::GetQuota { kind, id }),
        1 => any::<bool>().prop_map(|is_on| Op::SetQuotas { is_on }),
    ]
    .boxed()
}

/// Steps of users with quotas, which the kernel's file system does not know.
pub fn quota_steps(longest: usize, xattrs: Xattrs) -> BoxedStrategy<Vec<Step>> {
    let few = few_paths();
    let two = prop::sample::select(vec![b"a".to_vec(), b"b".to_vec()]).boxed();
    let steps = prop_oneof![
        6 => step(namespace_op(&few)),
        6 => step(content_op(&two)),
        2 => step(slot_op(&two)),
        2 => step(attribute_op(&few)),
        1 => step(xattr_op(&few, xattrs)),
        2 => step(flag_op(&few)),
        1 => step(shift_op(&two)),
        4 => quota_op().prop_map(|op| Step { cred: Cred::superuser(), op }),
        1 => step(quota_op()),
    ];
    vec(steps, 1..longest)
        .prop_map(|mut steps| {
            let op = Op::SetQuotas { is_on: true };
            steps.insert(
                0,
                Step {
                    cred: Cred::superuser(),
                    op,
                },
            );
            steps
        })
        .boxed()
}

/// Any operation, on any path, except `Times`, whose outcome depends on the implementation's clock.
pub fn op() -> impl Strategy<Value = Op> {
    op_over(&path(), Xattrs::WithLists)
}

/// Any operation but `Times` on these paths.
pub fn op_over(paths: &Paths, xattrs: Xattrs) -> impl Strategy<Value = Op> + use<> {
    prop_oneof![
        30 => namespace_op(paths),
        22 => content_op(paths),
        12 => attribute_op(paths),
        10 => xattr_op(paths, xattrs),
        4 => flag_op(paths),
        14 => slot_op(paths),
        3 => lock_op(),
    ]
}

/// An operation from `ops` by some user.
pub fn step(ops: impl Strategy<Value = Op>) -> impl Strategy<Value = Step> {
    (cred(), ops).prop_map(|(cred, op)| Step { cred, op })
}

/// Related steps: of all kinds over many or few paths, or mostly on names, on the content of two
/// files, or on attributes.
pub fn steps(longest: usize, xattrs: Xattrs) -> impl Strategy<Value = Vec<Step>> {
    let (many, few) = (path(), few_paths());
    let two = prop::sample::select(vec![b"a".to_vec(), b"b".to_vec()]).boxed();
    let create = (two.clone(), mode()).prop_map(|(path, mode)| Op::Create {
        path,
        mode,
        exclusive: false,
    });
    let content = prop_oneof![
        6 => content_op(&two),
        4 => slot_op(&two),
        1 => attribute_op(&two),
        1 => xattr_op(&two, xattrs),
        1 => flag_op(&two),
        1 => shift_op(&two),
        1 => create
    ];
    let names = prop_oneof![
        12 => namespace_op(&few),
        1 => attribute_op(&few),
        1 => xattr_op(&few, xattrs),
        1 => flag_op(&few),
    ];
    let attributes = prop_oneof![
        4 => namespace_op(&few),
        1 => content_op(&few),
        3 => attribute_op(&few),
        8 => xattr_op(&few, xattrs),
        3 => flag_op(&few),
    ];
    let open = (0..3u8, two.clone(), open_flags(), mode()).prop_map(|(slot, path, flags, mode)| {
        Op::Open {
            slot,
            path,
            flags,
            mode,
        }
    });
    let locks = prop_oneof![
        16 => lock_op(),
        3 => open,
        1 => slot_op(&two),
        1 => content_op(&two),
    ];
    prop_oneof![
        vec(step(op_over(&many, xattrs)), 1..longest),
        vec(step(op_over(&few, xattrs)), 1..longest),
        vec(step(names), 1..longest),
        vec(step(content), 1..longest),
        vec(step(attributes), 1..longest),
        vec(step(locks), 1..longest),
    ]
}

/// An operation that creates, moves, removes or lists names.
pub fn namespace_op(paths: &Paths) -> impl Strategy<Value = Op> + use<> {
    let path = || paths.clone();
    prop_oneof![
        5 => (path(), mode(), any::<bool>())
            .prop_map(|(path, mode, exclusive)| Op::Create { path, mode, exclusive }),
        5 => (path(), mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        2 => (path(), path()).prop_map(|(target, path)| Op::Symlink { target, path }),
        3 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        8 => (path(), path(), prop::sample::select(vec![0, 0, 0, 1, 2, 2, 3]))
            .prop_map(|(from, to, flags)| Op::Rename { from, to, flags }),
        1 => path().prop_map(|path| Op::Readlink { path }),
        2 => path().prop_map(|path| Op::Readdir { path }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Op::Stat { path, follow }),
    ]
}

/// An operation on the bytes of a file, by path.
pub fn content_op(paths: &Paths) -> impl Strategy<Value = Op> + use<> {
    let path = || paths.clone();
    let seed = || 0..1000u64;
    prop_oneof![
        6 => (path(), size(), seed(), len())
            .prop_map(|(path, offset, seed, len)| Op::Write { path, offset, seed, len }),
        3 => (path(), seed(), len()).prop_map(|(path, seed, len)| Op::Append { path, seed, len }),
        4 => (path(), range()).prop_map(|(path, range)| Op::Read { path, range }),
        3 => (path(), size()).prop_map(|(path, size)| Op::Truncate { path, size }),
        4 => (path(), allocation())
            .prop_map(|(path, (mode, range))| Op::Fallocate { path, mode, range }),
        2 => (path(), offset()).prop_map(|(path, offset)| Op::SeekData { path, offset }),
        2 => (path(), offset()).prop_map(|(path, offset)| Op::SeekHole { path, offset }),
        1 => path().prop_map(|path| Op::Fsync { path }),
    ]
}

/// Removes or inserts a range of a file. The kernel does not ask a mount for this.
pub fn shift_op(paths: &Paths) -> impl Strategy<Value = Op> + use<> {
    let mode = prop_oneof![
        Just(libc::FALLOC_FL_COLLAPSE_RANGE),
        Just(libc::FALLOC_FL_INSERT_RANGE)
    ];
    let blocks = (0..12u64, 0..6u64).prop_map(|(offset, len)| Range {
        offset: offset * BLOCK_SIZE as u64,
        len: len * BLOCK_SIZE as u64,
    });
    let range = prop_oneof![8 => blocks, 1 => range()];
    (paths.clone(), mode, range).prop_map(|(path, mode, range)| Op::Fallocate { path, mode, range })
}

/// An operation on attributes, by path.
pub fn attribute_op(paths: &Paths) -> impl Strategy<Value = Op> + use<> {
    let path = || paths.clone();
    prop_oneof![
        4 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        4 => (path(), uid(), gid(), any::<bool>())
            .prop_map(|(path, uid, gid, follow)| Op::Chown { path, uid, gid, follow }),
        3 => (path(), time(), time(), any::<bool>())
            .prop_map(|(path, atime, mtime, follow)| Op::Utimens { path, atime, mtime, follow }),
        2 => (path(), 0..8u32).prop_map(|(path, mask)| Op::Access { path, mask }),
    ]
}

/// An operation on one of four slots of open handles.
pub fn slot_op(paths: &Paths) -> impl Strategy<Value = Op> + use<> {
    let path = || paths.clone();
    let slot = || 0..3u8;
    prop_oneof![
        6 => (slot(), path(), open_flags(), mode())
            .prop_map(|(slot, path, flags, mode)| Op::Open { slot, path, flags, mode }),
        2 => slot().prop_map(|slot| Op::CloseSlot { slot }),
        3 => (slot(), range()).prop_map(|(slot, range)| Op::ReadSlot { slot, range }),
        4 => (slot(), offset(), 0..1000u64, len())
            .prop_map(|(slot, offset, seed, len)| Op::WriteSlot { slot, offset, seed, len }),
        2 => (slot(), size()).prop_map(|(slot, size)| Op::TruncateSlot { slot, size }),
        2 => (slot(), allocation())
            .prop_map(|(slot, (mode, range))| Op::FallocateSlot { slot, mode, range }),
        2 => slot().prop_map(|slot| Op::StatSlot { slot }),
        1 => slot().prop_map(|slot| Op::ReaddirSlot { slot }),
        1 => slot().prop_map(|slot| Op::FsyncSlot { slot }),
    ]
}

/// A range for a lock: mostly of a few bytes, rarely without a limit, backwards or invalid.
fn lock_range() -> impl Strategy<Value = Range> {
    let last = i64::MAX as u64;
    prop_oneof![
        30 => (0..24u64, 1..8u64),
        3 => (0..24u64, Just(0)),
        2 => (0..24u64, (1..8u64).prop_map(u64::wrapping_neg)),
        1 => (last - 2..=last + 1, 0..4u64),
        1 => prop::sample::select(vec![(0, last), (1, last), (2, last), (5, 1 << 63)]),
    ]
    .prop_map(|(offset, len)| Range { offset, len })
}

/// An operation on the locks of one of the slots of [`slot_op`].
pub fn lock_op() -> impl Strategy<Value = Op> {
    let slot = || 0..3u8;
    let kind = || prop::sample::select(vec![LockKind::Shared, LockKind::Exclusive]);
    let maybe = || prop_oneof![3 => kind().prop_map(Some), 1 => Just(None)];
    let owner = || prop_oneof![3 => Just(LockOwner::Handle), 1 => Just(LockOwner::Process)];
    prop_oneof![
        3 => (slot(), maybe()).prop_map(|(slot, kind)| Op::FlockSlot { slot, kind }),
        8 => (slot(), owner(), maybe(), lock_range())
            .prop_map(|(slot, owner, kind, range)| Op::LockSlot { slot, owner, kind, range }),
        4 => (slot(), owner(), kind(), lock_range())
            .prop_map(|(slot, owner, kind, range)| Op::GetLockSlot { slot, owner, kind, range }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn every_step_is_a_line(step in step(prop_oneof![9 => op().boxed(), 1 => quota_op()])) {
            prop_assert_eq!(step.to_string().parse::<Step>(), Ok(step));
        }
    }
}

//! Random arguments through the functions, by several threads: each call succeeds, or fails with an
//! errno and a text, and nothing else happens. Handles are open ones of every kind, closed ones,
//! and numbers that never were any. Pointers are good or NULL: others are undefined in C, too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use libc::{iovec, timespec};
use vellum_c::{vellum_handle, vellum_lock_range};
use vellum_testing::Random;

use crate::functions::*;

const THREADS: u64 = 3;
const CALLS: u32 = 40_000;
/// Kinds of calls, which are drawn equally often.
const KINDS: usize = 40;
const BUFFER_BYTES: usize = 1 << 16;

/// Handles that any thread may use or close.
type Handles = Mutex<Vec<vellum_handle>>;

struct Caller<'h> {
    random: Random,
    handles: &'h Handles,
    buffer: Vec<u8>,
    /// Views that this thread took. It releases them before its next call, so nobody waits long.
    views: Vec<vellum_handle>,
    succeeded: [u32; KINDS],
}

impl Caller<'_> {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize]
    }

    /// A handle: mostly an open one, or one that was open.
    fn handle(&mut self) -> vellum_handle {
        let word = self.random.word();
        let handles = self.handles.lock().unwrap();
        let known = handles[word as usize % handles.len()];
        match word >> 60 {
            0 => (word >> 8) as vellum_handle,
            1 => known ^ 1 << (word % 64),
            _ => known,
        }
    }

    /// A handle: more often than others that of an open file.
    fn file(&mut self) -> vellum_handle {
        for _ in 0..4 {
            let handle = self.handle();
            // SAFETY: takes no pointer.
            if unsafe { vellum_lseek(handle, 0, libc::SEEK_CUR) } >= 0 {
                return handle;
            }
        }
        self.handle()
    }

    fn path(&mut self) -> CString {
        let name = [
            "/a", "/b", "/c", "/e", "/f", "/g", "/h", "/i", "/d", "/d/f", "a", "b", "d/e", ".",
            "..", "", "/",
        ];
        let mut path = self.pick(&name).to_owned();
        while self.random.below(8) == 0 && path.len() < 5000 {
            path.push('/');
            path.push_str(self.pick(&name));
        }
        if self.random.below(200) == 0 {
            path = path.repeat(3000);
        }
        CString::new(path).unwrap()
    }

    /// An offset, size or length: small ones, ends of ranges, any.
    fn number(&mut self) -> i64 {
        let word = self.random.word() as i64;
        let near = [
            0,
            1,
            -1,
            4095,
            4096,
            1 << 20,
            16 << 40,
            i64::MAX,
            i64::MIN,
            1 << 31,
        ];
        match self.random.below(10) {
            0 => self.pick(&near).wrapping_add(word % 3),
            1 => word,
            _ => word.rem_euclid(100_000),
        }
    }

    /// Flags: some of these, rarely any.
    fn flags(&mut self, of: &[c_int]) -> c_int {
        if self.random.below(20) == 0 {
            return self.random.word() as c_int;
        }
        (0..self.random.below(8) / 6).fold(self.pick(of), |flags, _| flags | self.pick(of))
    }

    /// A length that fits the buffer; with a NULL pointer any.
    fn buffer(&mut self) -> (*mut c_void, usize) {
        match self.random.below(20) {
            0 => (null_mut(), self.random.word() as usize),
            _ => {
                let len = self.random.below(BUFFER_BYTES as u64) as usize;
                (self.buffer.as_mut_ptr().cast(), len)
            }
        }
    }

    fn keep(&self, handle: vellum_handle) -> i64 {
        if handle > 0 {
            let mut handles = self.handles.lock().unwrap();
            // Others stay open, and fall out of the list.
            let place = handle as usize % 40;
            match handles.get_mut(3 + place) {
                Some(old) => *old = handle,
                None => handles.push(handle),
            }
        }
        handle
    }

    /// Checks the result of a call.
    fn check(&mut self, call: u64, returned: i64) {
        if returned >= 0 {
            self.succeeded[call as usize] += 1;
            return;
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
        // SAFETY: a text that ends at a zero byte, of this thread.
        let text = unsafe { CStr::from_ptr(vellum_last_error()) };
        let text = text.to_string_lossy().into_owned();
        assert_eq!(returned, -1, "call {call}: {text}");
        assert!(
            errno > 0 && errno < 134,
            "call {call}: errno {errno}: {text}"
        );
        assert!(text.starts_with("vellum_"), "call {call}: {text}");
        assert!(!text.contains("fault of Vellum"), "call {call}: {text}");
    }

    fn call(&mut self) {
        let which = self.random.below(KINDS as u64);
        let returned = match which {
            0..12 => self.on_file(which),
            12..30 => self.on_path(which),
            _ => self.on_others(which),
        };
        self.check(which, returned);
        // SAFETY: takes no pointer.
        let release = |view| unsafe { vellum_view_release(view) };
        self.views.drain(..).for_each(|view| {
            release(view);
        });
    }

    fn on_file(&mut self, which: u64) -> i64 {
        let (file, offset) = (self.file(), self.number());
        let (at, len) = self.buffer();
        let parts = [iovec {
            iov_base: at,
            iov_len: len,
        }; 3];
        let count = self.pick(&[0, 1, 3, 3, -1]);
        let whence = self.flags(&[0, 1, 2, 3, 4]);
        let mode = self.flags(&[0, 1, 2, 3, 8, 16, 17, 32]);
        let length = self.number() % (1 << 20);
        // SAFETY: the pointers are NULL or good for their lengths.
        unsafe {
            match which {
                0 => vellum_read(file, at, len) as i64,
                1 => vellum_pread(file, at, len, offset) as i64,
                2 => vellum_write(file, at, len) as i64,
                3 => vellum_pwrite(file, at, len, offset) as i64,
                4 => vellum_preadv(file, parts.as_ptr(), count, offset) as i64,
                5 => vellum_pwritev(file, parts.as_ptr(), count, offset) as i64,
                6 => vellum_lseek(file, offset, whence),
                7 => vellum_ftruncate(file, offset).into(),
                8 => vellum_fallocate(file, mode, offset, length).into(),
                9 => vellum_fsync(file).into(),
                10 => vellum_sync(file).into(),
                _ => self.view_or_copy(file, offset, len),
            }
        }
    }

    fn view_or_copy(&mut self, file: vellum_handle, mut offset: i64, len: usize) -> i64 {
        let (mut bytes, mut shown) = (null(), 0);
        let (other, mut at) = (self.file(), self.number());
        // SAFETY: the places are there. The bytes of a view are read while it is held.
        unsafe {
            if self.random.below(2) == 0 {
                let offset = self.pick(&[null_mut(), &raw mut offset]);
                let len = len % (2 * BUFFER_BYTES);
                return vellum_copy_file_range(file, offset, other, &raw mut at, len, 0) as i64;
            }
            let view = vellum_view(file, offset, len, &raw mut bytes, &raw mut shown);
            if view > 0 {
                self.views.push(view);
                let sum = (0..shown)
                    .map(|i| u64::from(*bytes.cast::<u8>().add(i)))
                    .sum::<u64>();
                assert!(sum <= 255 * shown as u64);
                assert_eq!(vellum_view_check(view), 0);
            }
            view
        }
    }

    fn on_path(&mut self, which: u64) -> i64 {
        let (at, to_at) = (self.handle(), self.handle());
        let (path, to) = (self.path(), self.path());
        let [p, to] = [&path, &to].map(|path| path.as_ptr());
        let p = if self.random.below(100) == 0 {
            null()
        } else {
            p
        };
        let (out, size) = self.buffer();
        let mut stat = MaybeUninit::uninit();
        let (number, mode) = (self.number(), self.random.word() as u32);
        let ids = [0, 1000, u32::MAX];
        let (uid, gid) = (self.pick(&ids), self.pick(&ids));
        let times = [0; 2].map(|_| timespec {
            tv_sec: self.number(),
            tv_nsec: self.pick(&[0, 999_999_999, -1, 1 << 30, (1 << 30) - 1, (1 << 30) - 2]),
        });
        let open = [
            0,
            1,
            2,
            0o100,
            0o200,
            0o1000,
            0o2000,
            0o200_000,
            0o400_000,
            0o20_200_000,
        ];
        let flags = self.flags(&open);
        let size_of_stat = size_of::<vellum_c::vellum_stat>();
        // SAFETY: the pointers are NULL or good for what they point to.
        let returned = unsafe {
            match which {
                12..15 => vellum_open(at, p, flags, mode),
                15 => vellum_opendir(at, p),
                16 => vellum_stat(at, p, stat.as_mut_ptr(), size_of_stat).into(),
                17 => vellum_lstat(at, p, stat.as_mut_ptr(), size_of_stat).into(),
                18 => vellum_mkdir(at, p, mode | 0o700).into(),
                19 => vellum_mknod(at, p, mode & 0o177_777, number as u64).into(),
                20 => vellum_rmdir(at, p).into(),
                21 => vellum_unlink(at, p).into(),
                22 => vellum_rename(at, p, to_at, to, self.flags(&[0, 0, 1, 2, 4]) as u32).into(),
                23 => vellum_link(at, p, to_at, to, self.flags(&[0, 0x400])).into(),
                24 => vellum_symlink(to, at, p).into(),
                25 => vellum_readlink(at, p, out, size) as i64,
                26 => vellum_access(at, p, mode as c_int % 9).into(),
                27 => vellum_truncate(at, p, number).into(),
                28 => vellum_chmod(at, p, mode | 0o600).into(),
                _ => match self.random.below(4) {
                    0 => vellum_chown(at, p, uid, gid).into(),
                    1 => vellum_lchown(at, p, uid, gid).into(),
                    2 => vellum_utimens(at, p, times.as_ptr()).into(),
                    _ => vellum_lutimens(at, p, times.as_ptr()).into(),
                },
            }
        };
        match which {
            12..16 => self.keep(returned),
            _ => returned,
        }
    }

    fn on_others(&mut self, which: u64) -> i64 {
        let (at, number) = (self.handle(), self.number());
        let path = self.path();
        let name: *const c_char = self
            .pick(&[c"user.a", c"user.b", c"trusted.c", c"x", c""])
            .as_ptr();
        let (out, size) = self.buffer();
        let (mut entry, mut found) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let (mut stat, times) = (MaybeUninit::uninit(), null());
        let mut range = vellum_lock_range {
            kind: self.pick(&[0, 1, 2, 3]),
            whence: self.pick(&[0, 1, 2, 3]),
            pid: 0,
            start: self.number(),
            length: self.number(),
        };
        // SAFETY: the pointers are NULL or good for what they point to.
        unsafe {
            match which {
                30 if self.random.below(8) == 0 => self.keep(vellum_volume_open(at, null(), 0)),
                30 => vellum_fsync(at).into(),
                31 | 32 => vellum_readdir(at, entry.as_mut_ptr(), 280).into(),
                33 => vellum_telldir(at),
                34 => vellum_seekdir(at, number).into(),
                35 => vellum_flock(at, self.pick(&[5, 6, 8, 9])).into(),
                36 => vellum_lock(at, self.pick(&[5, 6, 36, 37, 99]), &raw mut range).into(),
                37 => match self.random.below(8) {
                    0 => vellum_getxattr(at, path.as_ptr(), name, out, size) as i64,
                    1 => vellum_lgetxattr(at, path.as_ptr(), name, out, size) as i64,
                    2 => vellum_setxattr(at, path.as_ptr(), name, out, size, 0).into(),
                    3 => vellum_lsetxattr(at, path.as_ptr(), name, out, size % 9, 1).into(),
                    4 => vellum_listxattr(at, path.as_ptr(), out, size) as i64,
                    5 => vellum_llistxattr(at, path.as_ptr(), out, size) as i64,
                    6 => vellum_removexattr(at, path.as_ptr(), name).into(),
                    _ => vellum_lremovexattr(at, path.as_ptr(), name).into(),
                },
                38 => match self.random.below(6) {
                    0 => vellum_statfs(at, found.as_mut_ptr(), 48).into(),
                    1 => vellum_fstat(at, stat.as_mut_ptr(), 80).into(),
                    2 => vellum_fchmod(at, 0o700).into(),
                    3 => vellum_futimens(at, times).into(),
                    4 => vellum_fsetxattr(at, name, out, size % 100, 0).into(),
                    _ => vellum_flink(at, self.handle(), path.as_ptr()).into(),
                },
                _ if self.random.below(8) == 0 => vellum_close(at).into(),
                _ => vellum_fdatasync(at).into(),
            }
        }
    }
}

#[test]
fn any_argument_gives_a_result_or_an_errno() {
    let seed = std::env::var("VELLUM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    // SAFETY: takes no pointer.
    let pool = || unsafe { vellum_pool_memory(32 << 20) };
    let pools = [pool(), pool()];
    let handles = Handles::new(vec![pools[0], pools[1], pools[0]]);
    let succeeded = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let handles = &handles;
            let random = Random::new(seed.unwrap_or(1u64) * THREADS + thread);
            scope.spawn(move || {
                let mut caller = Caller {
                    random,
                    handles,
                    buffer: vec![7; BUFFER_BYTES],
                    views: Vec::new(),
                    succeeded: [0; KINDS],
                };
                (0..CALLS).for_each(|_| caller.call());
                caller.succeeded
            })
        });
        let threads: Vec<_> = threads.collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.fold([0; KINDS], |sum, counts| {
            std::array::from_fn(|kind| sum[kind] + counts[kind])
        })
    });
    let least = succeeded.iter().min().unwrap();
    assert!(
        *least > 0,
        "some kind of call never succeeds: {succeeded:?}"
    );
    // SAFETY: takes no pointer.
    let close = |handle| unsafe { vellum_close(handle) };
    handles.lock().unwrap().iter().skip(3).for_each(|&handle| {
        close(handle);
    });
    for pool in pools {
        // SAFETY: takes no pointer. Removed files may be open.
        unsafe { vellum_pool_close(pool) };
    }
}

//! Tests of the server without a kernel: its answers, and how long it holds files.

use std::os::unix::fs::FileExt;

use vellum::media::MediaChoice;
use vellum::{CreateOptions, Cred, Pool, SetAttr};

use super::{Answer, Errno, Seek, Server, Through};

const ROOT: u64 = 1;

fn pool() -> Pool {
    Pool::memory(16 << 20).expect("a pool")
}

fn make(server: &Server, dir: u64, name: &str) -> u64 {
    let cred = Cred {
        uid: 7,
        gid: 8,
        groups: Vec::new(),
        privileged: true,
        umask: 0,
    };
    let kind = vellum::FileKind::File;
    server
        .mknod(&cred, dir, name.as_bytes(), kind, 0o640, 0)
        .expect("made")
        .ino
}

fn read(server: &Server, ino: u64) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; 100];
    let len = server.read(ino, 0, &mut bytes, false, Through::Cache)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// The names after a cookie, at most `room`, and the cookie of the last.
fn list(server: &Server, after: u64, room: usize, plus: bool) -> (Vec<String>, u64) {
    let mut names = Vec::new();
    let mut last = after;
    let mut add = |name: &[u8], cookie| {
        if names.len() == room {
            return false;
        }
        names.push(String::from_utf8_lossy(name).into_owned());
        last = cookie;
        true
    };
    if plus {
        let done = server.list_plus(ROOT, after, &mut |entry, told| {
            assert_eq!((entry.ino, true), (told.attr.ino, told.is_true));
            add(entry.name, entry.cookie)
        });
        done.expect("listed");
    } else {
        server
            .list(ROOT, after, &mut |entry| add(entry.name, entry.cookie))
            .expect("listed");
    }
    (names, last)
}

#[test]
fn an_unlinked_file_is_kept_until_it_is_forgotten() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let ino = make(&server, ROOT, "file");
    assert_eq!(
        server
            .lookup(ROOT, b"file")
            .expect("found")
            .map(|attr| attr.ino),
        Some(ino)
    );
    assert_eq!(
        server.write(ino, 0, b"content", (0, Through::Cache), 0),
        Ok(7)
    );
    server
        .unlink(&Cred::root(), ROOT, b"file")
        .expect("removed");
    assert_eq!(server.lookup(ROOT, b"file").expect("looked up"), None);
    assert_eq!(read(&server, ino), Ok(b"content".to_vec()));
    server.forget(ino, 1);
    assert_eq!(read(&server, ino), Ok(b"content".to_vec()));
    server.forget(ino, 1);
    assert_eq!(read(&server, ino), Err(Errno::STALE));
    assert_eq!(server.known_files(), 1);
    server.close();
    drop(server);
    pool.close().expect("nothing is held any more");
}

#[test]
fn a_new_file_belongs_to_the_user_of_the_request() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let attr = server
        .attr(make(&server, ROOT, "file"))
        .expect("attributes");
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, 0o640));
    let set = SetAttr::new().mode(Some(0o4711)).size(Some(9));
    let attr = server.set_attr(attr.ino, &set, 0, None).expect("set");
    assert_eq!((attr.mode, attr.size), (0o4711, 9));
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let made: Vec<String> = (0..100).map(|index| format!("file-{index}")).collect();
    for name in &made {
        server.forget(make(&server, ROOT, name), 1);
    }
    assert_eq!(server.known_files(), 1);
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    expected.extend(made);
    for plus in [false, true] {
        for room in [1, 7, 16, 17, 1000] {
            let (mut all, mut after) = (Vec::new(), 0);
            loop {
                let (names, last) = list(&server, after, room, plus);
                if names.is_empty() {
                    break;
                }
                all.extend(names);
                after = last;
            }
            assert_eq!(all, expected, "room for {room}, with attributes: {plus}");
        }
    }
    // The listings with attributes counted each name.
    assert_eq!(server.known_files(), 101);
    let ino = server
        .lookup(ROOT, b"file-3")
        .expect("found")
        .expect("there")
        .ino;
    server.forget(ino, 6);
    assert_eq!(server.known_files(), 100);
}

/// A listing with attributes ended at a name whose inode could not be read.
#[test]
fn a_listing_with_attributes_goes_on_behind_a_lost_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pool");
    let options = CreateOptions::new(1 << 20).media(MediaChoice::File);
    let pool = options.create(&path).expect("a pool");
    let volume = pool.volume();
    let made: Vec<String> = (0..40).map(|index| format!("file-{index}")).collect();
    for name in &made {
        volume.write(format!("/{name}"), b"content").expect("made");
    }
    let lost = volume.metadata("/file-7").expect("there").ino();
    let lost_at = pool.fs().superblock().geometry().slot_at(lost);
    drop(volume);
    pool.close().expect("closed");
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("the pool's file");
    // A damaged generation no longer matches the checksum.
    file.write_all_at(&[0xFF; 4], lost_at + 4).expect("damaged");
    let pool = Pool::open(&path).expect("opened");
    let server = Server::new(pool.fs());
    let mut seen = Vec::new();
    let done = server.list_plus(ROOT, 0, &mut |entry, told| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        assert_eq!((entry.ino, entry.kind), (told.attr.ino, told.attr.kind));
        assert_eq!(told.is_true, entry.ino != lost, "{name}");
        seen.push(name);
        true
    });
    assert_eq!(done, Ok(()));
    assert_eq!(seen[2..], made);
    // The lost file is not among the known files.
    assert_eq!(server.known_files(), 40);
    server.forget(lost, 1);
    let found = server.lookup(ROOT, b"file-7").map(drop);
    assert_eq!(found, Err(Errno::UCLEAN));
}

#[test]
fn copies_stay_inside() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let (from, to) = (make(&server, ROOT, "from"), make(&server, ROOT, "to"));
    server
        .write(from, 100, b"content", (0, Through::Cache), 0)
        .expect("written");
    assert_eq!(server.bytes_from(from, 102), 5);
    assert_eq!(server.bytes_from(from, 500), 0);
    assert_eq!(server.copy_range((from, 102), (to, 1), 1 << 30, 0), Ok(5));
    assert_eq!(read(&server, to), Ok(b"\0ntent".to_vec()));
    assert_eq!(server.copy_range((from, 500), (to, 0), 10, 0), Ok(0));
    assert_eq!(server.seek(to, 0, Seek::Hole), Ok(6));
    assert_eq!(server.seek(to, 7, Seek::Data), Err(Errno::NXIO));
}

#[test]
fn a_closed_server_answers_nothing() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let ino = make(&server, ROOT, "file");
    server.close();
    assert_eq!(read(&server, ino), Err(Errno::NOTCONN));
    assert_eq!(server.stat_fs(ROOT).map(drop), Err(Errno::NOTCONN));
    server.forget(ino, 1);
}

#[test]
fn kinds_and_modes_that_do_not_exist_are_refused() {
    let pool = pool();
    let server = Server::new(pool.fs());
    let ino = make(&server, ROOT, "file");
    let cred = Cred::root();
    let unknown = 8;
    let done = server.rename(&cred, (ROOT, b"file"), (ROOT, b"other"), unknown);
    assert_eq!(done, Err(Errno::INVAL));
    let collapse = libc::FALLOC_FL_COLLAPSE_RANGE;
    assert_eq!(
        server.allocate(ino, collapse, (0, 4096), 0),
        Err(Errno::OPNOTSUPP)
    );
    assert_eq!(
        server.mkdir(&cred, ino, b"x", 0o755).map(drop),
        Err(Errno::NOTDIR)
    );
}

/// A direct write makes the kernel drop cached pages only if the page cache may hold some, because
/// another request went through it.
#[test]
fn only_what_may_be_cached_has_to_be_dropped() {
    use Through::{Cache, Direct};
    let pool = pool();
    let server = Server::new(pool.fs());
    let read = |ino, through| server.read(ino, 0, &mut [0; 100], false, through);
    let direct = make(&server, ROOT, "direct");
    server
        .write(direct, 0, b"content", (0, Direct), 0)
        .expect("written");
    assert_eq!(read(direct, Direct), Ok(7));
    assert!(!server.may_be_cached(direct));
    assert_eq!(read(direct, Cache), Ok(7));
    assert!(server.may_be_cached(direct));
    let cached = make(&server, ROOT, "cached");
    server
        .write(cached, 0, b"content", (0, Cache), 0)
        .expect("written");
    assert!(server.may_be_cached(cached));
}

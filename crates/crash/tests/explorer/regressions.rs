//! Violations that the explorer once found; each test is named after one. The workloads are written
//! here, and not looked up in the catalog or drawn by a number, because a change there would turn a
//! test into one of something else.

use vellum::MappingKind;
use vellum_crash::{
    Bounds, Mode, Options, Progress, ThreadWorkload, Workload, WorkloadFile, run_these_threads,
    run_workloads,
};
use vellum_testing::{own_source, slice};

const FILE: &str = "create f 644 -";

#[track_caller]
fn explored(mode: Mode, workloads: &[Workload]) {
    let options = Options {
        modes: vec![mode],
        states_per_point: 4096,
        lazy_states: 64,
        kills: 16,
        ..Options::default()
    };
    let report = run_workloads(workloads, &options);
    assert_eq!(report.workloads.len(), workloads.len());
    assert!(report.workloads.iter().all(|of| of.counts.checked > 0));
    assert_eq!(report.totals().violations, 0, "{report}");
}

fn of(name: &str, setup: &[&str], explored: &[&str]) -> Workload {
    Workload::new(name, setup, explored)
}

/// Recovery refused the pool because of an inode whose checksum had not arrived, though nothing
/// named it.
#[test]
fn a_torn_inode_without_a_name_was_taken_for_damage() {
    let removed = [FILE, "append f 5 5000", "unlink f"];
    let workloads = [
        of("create", &[FILE], &["create g 600 exclusive"]),
        of("mkdir", &["mkdir d 755"], &["mkdir e 700"]),
        of("maintain-create", &removed, &["maintain", "create g 600 -"]),
    ];
    explored(Mode::X86, &workloads);
}

/// Words of a directory's log once had a mark for *perhaps not durable yet*, which a plain store
/// removed. After a clean close and a power cut the mark could still be there, and listings skipped
/// the word forever.
#[test]
fn a_clean_pool_hid_entries_whose_log_words_a_cache_had_kept() {
    let tree = ["mkdir d 755", FILE, "append f 5 9000", "link f d/g"];
    let closed = [&tree[..], &["close-pool"]].concat();
    let again = [
        FILE,
        "close-pool",
        "open-pool",
        "unlink f",
        "create g 644 -",
        "close-pool",
    ];
    let workloads = [
        of("closing", &tree, &["close-pool"]),
        of("opening", &closed, &["open-pool"]),
        of("opening-again", &again, &["open-pool"]),
    ];
    explored(Mode::Lazy, &workloads);
}

/// Blocks go from limbo to free by a plain store, so after a power cut a cleanly closed pool may
/// have blocks in limbo. The checker called that damage.
#[test]
fn a_block_left_in_limbo_by_a_close_was_taken_for_damage() {
    let written = [FILE, "append f 5 9000"];
    let removed = ["mkdir d 755", "link f d/g", "unlink d/g", "unlink f"];
    let workloads = [
        of("unlink-closing", &written, &["unlink f", "close-pool"]),
        of(
            "closing-with-work",
            &[written.as_slice(), &removed].concat(),
            &["close-pool"],
        ),
    ];
    explored(Mode::X86, &workloads);
}

/// When an ordinary user truncated, punched or preallocated, the set-id bits were dropped after the
/// change. A crash in between left a set-user-id file with content that its owner did not write.
#[test]
fn a_crash_left_set_id_bits_on_content_that_a_user_changed() {
    let setup = [FILE, "append f 5 20000", "chmod f 6777"];
    let workloads = [
        "user: write f 4000 7 500",
        "user: append f 7 500",
        "user: truncate f 9001",
        "user: fallocate f 0 0 30000",
        "user: fallocate f 3 0 5000",
        "user: open+rdwr+trunc 1 f 0",
    ]
    .map(|change| of("by-user", &setup, &[change]));
    let source = own_source!();
    let key = |one: &Workload| format!("{:?} {source}", one.explored);
    explored(Mode::X86, &slice(3, workloads, key));
}

/// `stat` reported a link that was not durable yet.
#[test]
fn a_link_count_that_somebody_saw_survives() {
    explored_threads(&[FILE], [&["link f g"], &["stat f -"]], false);
}

/// A rename that lost against another left the log word of its entry flushed but not fenced, and
/// the clean close of another thread took the word for durable.
#[test]
fn a_clean_pool_missed_the_log_word_of_a_rename_that_lost() {
    let setup = ["mkdir d 755", "mkdir e 755", "create d/f 644 -"];
    let renames: [&[&str]; 2] = [&["rename d/f d/h 0"], &["rename d/f e/h 0"]];
    explored_threads(&setup, renames, true);
}

/// If the attributes of a directory changed while a name was made in it, the directory could have
/// its old modification time after a power cut: recovery uses an entry's time only if it is later
/// than the last change of attributes.
#[test]
fn a_change_of_attributes_covered_a_name_that_it_did_not_know_of() {
    for change in ["chmod d 700", "rename d e 0"] {
        explored_threads(&["mkdir d 755"], [&[change], &["create d/f 644 -"]], false);
    }
}

#[track_caller]
fn explored_threads(setup: &[&str], threads: [&[&str]; 2], closes: bool) {
    let options = Options {
        states_per_point: 64,
        nested_recoveries: [0, 0],
        schedules: Bounds {
            once: usize::MAX,
            twice: 0,
            often: 0,
        },
        ..Options::default()
    };
    let workload = ThreadWorkload {
        closes,
        ..ThreadWorkload::new("regression", setup, &threads)
    };
    let report = run_these_threads(&[workload], &options, &Progress::default());
    assert_eq!(report.totals().violations, 0, "{report}");
    assert!(report.totals().schedules > 5, "{report}");
}

/// The numbers of journal records started again at each opening, and a retired record kept its
/// checksum. A power cut after the first word of a new record restored the record of the same
/// number that an earlier opening had left there.
#[test]
fn a_new_record_brought_back_one_of_an_earlier_opening() {
    let setup = [
        FILE,
        "chmod f 600",
        "create g 644 -",
        "close-pool",
        "open-pool",
        "append f 5 100",
    ];
    explored(Mode::X86, &[of("chmod-again", &setup, &["chmod g 640"])]);
}

/// Recovery and the next clean close took for durable what a killed process had stored without
/// flushing it. A later power cut reverted that, and the saved allocator state was wrong.
#[test]
fn a_power_cut_took_back_what_a_killed_process_had_stored() {
    let removed = [FILE, "append f 5 9000", "unlink f", "maintain"];
    let closed = [&removed[..], &["recover", "close-pool"]].concat();
    let workloads = [
        of("recover-closing", &removed, &["recover", "close-pool"]),
        of("opening", &closed, &["open-pool"]),
    ];
    explored(Mode::Lazy, &workloads);
}

/// Recovery took for durable what a process had stored that was killed during the recovery after a
/// power cut. The next clean close called a journal record retired, which another power cut
/// restored.
#[test]
fn a_power_cut_took_back_what_a_killed_recovery_had_done() {
    let workloads = WorkloadFile::parse(
        "here",
        "workload chmod-truncate
           setup create f 644 -
           cut done journal/record-durable: chmod f 600
           crash open-pool | truncate f 5000
         workload create-close
           setup create f 644 -
           cut undone create/entry-durable: create g 644 -
           crash open-pool | close-pool",
    );
    explored(Mode::Kill, &workloads.expect("two workloads").sequences);
}

/// Bytes inside the size that a killed write or punch had changed were read, synced and closed, but
/// never flushed.
#[test]
fn a_power_cut_took_back_bytes_of_a_killed_write_that_readers_had_seen() {
    let workloads = [
        "write f 4001 7 333",
        "write f 100 7 40000",
        "fallocate f 3 4100 99",
        "fallocate f 3 3000 9001",
    ]
    .map(|change| of("over", &[FILE, "append f 5 45000"], &[change]));
    explored(Mode::Kill, &workloads);
}

/// A thread slot still named the file that it had overwritten last, when that file's slot had
/// become a symbolic link's. The checksum of the link's text was taken for the word that leads to a
/// tree, and the pool could not be opened.
#[test]
fn a_note_of_a_file_that_is_gone_kept_a_pool_from_being_opened() {
    let setup = [
        FILE,
        "append f 5 9000",
        "write f 0 3 100",
        "unlink f",
        "close-pool",
        "open-pool",
    ];
    let workload = of("overwritten-then-symlink", &setup, &["symlink x f"]);
    explored(Mode::Kill, &[workload.on(MappingKind::Radix)]);
}

/// Leaves no node for another extent of `f`, which `first` makes: other files take all of them.
fn without_nodes<'a>(first: &[&'a str]) -> Vec<&'a str> {
    let others = [
        "create e 644 -",
        "fallocate e 0 0 4096",
        "create g 644 -",
        "fallocate g 0 0 4096",
        "fallocate g 0 16384 4096",
        "create h 644 -",
        "fallocate h 0 0 4096",
        "55* symlink %(74x4000) s#",
        "fallocate h 0 16384 4096",
        "fallocate e 0 16384 4096",
    ];
    [first, &others].concat()
}

/// The block beyond the end needed no node of the extent tree, the preallocated block in front of
/// it did, and none was free. The block beyond the end stayed, and the size moved over it.
#[test]
fn the_bytes_of_a_write_that_failed_came_to_light_where_the_file_was_extended() {
    let first = [FILE, "fallocate f 0 0 16384", "write f 0 1 100"];
    let steps = ["full: write f 12288 7 8192", "truncate f 24576"];
    let workload = of("preallocated", &without_nodes(&first), &steps);
    explored(Mode::Eadr, &[workload.on(MappingKind::Extent)]);
}

/// The first of two preallocated ranges became the file's, and bytes between them were overwritten;
/// then there was no node for the second. The times were stored before all that.
#[test]
fn a_write_that_failed_left_its_times_and_the_bytes_in_front_of_where_it_failed() {
    let first = [
        FILE,
        "fallocate f 0 12288 16384",
        "fallocate f 0 0 8192",
        "write f 8192 3 100",
        "write f 28672 4 100",
    ];
    let steps = ["full: write f 0 7 16384", "append f 9 100"];
    let workload = of("behind-filled", &without_nodes(&first), &steps);
    explored(Mode::Eadr, &[workload.on(MappingKind::Extent)]);
}

/// The blocks that an experiment allocates for a file whose tree begins in the inode were freed
/// without a change of the word there. After a power cut the file had blocks that were free.
#[test]
fn a_power_cut_gave_a_file_back_what_an_experiment_had_taken() {
    let cut = [FILE, "append f 5 9000", "truncate f 0", "truncate f 90000"];
    let data = [FILE, "append f 5 9000", "truncate f 90000"];
    let blocks = |name, setup: &[&str]| of(name, setup, &["blocks f 3 2"]);
    let workloads = [
        blocks("in-place-of-cut", &cut).on(MappingKind::Radix),
        blocks("in-place-of-cut", &cut).on(MappingKind::Extent),
        blocks("behind-data", &data).on(MappingKind::Extent),
    ];
    explored(Mode::X86, &workloads);
}

//! What the explorer found, each named after what went wrong.

use vellum_crash::{Bounds, Mode, Options, Progress, find, run, run_threads, run_workloads};

#[track_caller]
fn explored(mode: Mode, names: &[&str]) {
    let options = Options {
        modes: vec![mode],
        only: names.iter().map(ToString::to_string).collect(),
        states_per_point: 4096,
        lazy_states: 64,
        kills: 16,
        ..Options::default()
    };
    let named: Option<Vec<_>> = names.iter().map(|name| find(name)).collect();
    let report = match named {
        Some(workloads) => run_workloads(&workloads, &options),
        None => run(&options),
    };
    assert!(report.totals().checked > 0);
    assert_eq!(report.totals().violations, 0, "{report}");
}

/// Recovery refused the pool because of an inode whose checksum had not arrived, though nothing
/// named it.
#[test]
fn a_torn_inode_without_a_name_was_taken_for_damage() {
    explored(
        Mode::X86,
        &["create-second", "mkdir-second", "maintain-create"],
    );
}

/// Words of a directory's log once had a mark that said *perhaps not durable yet* and was taken off
/// by a plain store. After a close in order and a power cut it could still be there, and listings
/// skipped the word for ever.
#[test]
fn a_clean_pool_hid_entries_whose_log_words_a_cache_had_kept() {
    explored(Mode::Lazy, &["closing", "opening"]);
}

/// Blocks go from limbo to free by a plain store, so a pool that was closed in order may hold
/// blocks in limbo after a power cut; the checker called that damage.
#[test]
fn a_block_left_in_limbo_by_a_close_was_taken_for_damage() {
    explored(Mode::X86, &["unlink-closing", "closing-with-work"]);
}

/// Truncating, punching and preallocating by an ordinary user dropped the set-id bits after the
/// change: a crash in between left a set-user-id file with content that its owner did not write.
#[test]
fn a_crash_left_set_id_bits_on_content_that_a_user_changed() {
    explored(
        Mode::X86,
        &[
            "by-user-of-set-id",
            "by-user-to-set-id",
            "truncating-by-user",
        ],
    );
}

/// `stat` told of a link that was not durable yet.
#[test]
fn a_link_count_that_somebody_saw_survives() {
    explored_threads("threads/link+stat");
}

/// A rename that lost against another left the log word of its entry flushed, not fenced, and another
/// thread's clean close took it for durable.
#[test]
fn a_clean_pool_missed_the_log_word_of_a_rename_that_lost() {
    explored_threads("threads/rename+rename-away-close");
}

/// A directory whose attributes were changed while a name was made in it had, after a power cut, the
/// modification time of before the name: recovery takes an entry's time only if it is later than the last
/// change of attributes.
#[test]
fn a_change_of_attributes_covered_a_name_that_it_did_not_know_of() {
    explored_threads("threads/chmod-directory+create-in-it");
    explored_threads("threads/rename-directory+create-in-it");
}

#[track_caller]
fn explored_threads(workload: &str) {
    let options = Options {
        only: vec![workload.into()],
        states_per_point: 64,
        nested_recoveries: [0, 0],
        schedules: Bounds {
            once: usize::MAX,
            twice: 0,
            often: 0,
        },
        ..Options::default()
    };
    let report = run_threads(&options, &Progress::default());
    assert_eq!(report.totals().violations, 0, "{report}");
    assert!(report.totals().schedules > 5, "{report}");
}

/// Numbers of journal records began anew at each opening, and a retired record kept its checksum: a
/// power cut after the first word of a new record brought back the one of the same number that an
/// earlier opening had left there.
#[test]
fn a_new_record_brought_back_one_of_an_earlier_opening() {
    explored(Mode::X86, &["beside-record-of-earlier-opening"]);
}

/// What a killed process had stored but not flushed, recovery and the next clean close took for
/// durable: a later power cut took it back, and the saved aids were wrong.
#[test]
fn a_power_cut_took_back_what_a_killed_process_had_stored() {
    explored(Mode::Lazy, &["random/12", "random/183"]);
}

/// Recovery took for durable what a process had stored that was killed while it recovered after a power
/// cut: the next clean close called a journal record retired that another power cut brought back.
#[test]
fn a_power_cut_took_back_what_a_killed_recovery_had_done() {
    explored(
        Mode::Kill,
        &["recover-chmod-truncate", "recover-create-close"],
    );
}

/// Bytes that a killed write, or a killed punch, had changed inside the size were read, synced and closed, but
/// nobody had flushed them.
#[test]
fn a_power_cut_took_back_bytes_of_a_killed_write_that_readers_had_seen() {
    let writes = ["write-over-unaligned", "write-over-many-blocks"];
    let punches = ["punch-in-block", "punch-unaligned"];
    explored(Mode::Kill, &[writes, punches].concat());
}

/// A thread slot still named the file that it overwrote last when that file's slot was a symbolic link's: what checks
/// the link's text was taken for the word that leads to a tree, and the pool could not be opened.
#[test]
fn a_note_of_a_file_that_is_gone_kept_a_pool_from_being_opened() {
    explored(Mode::Kill, &["radix-tree-overwritten-then-symlink"]);
}

/// The block beyond the end needed no node of the extent tree, the preallocated one in front of it did, and there
/// was none: the block beyond stayed, and the size moved over it.
#[test]
fn the_bytes_of_a_write_that_failed_came_to_light_where_the_file_was_extended() {
    explored(
        Mode::Eadr,
        &["extent-full-of-nodes-in-preallocated-and-beyond"],
    );
}

/// The first of two preallocated ranges became the file's, and bytes between them were written over; then there was no node
/// for the second. Times were stored before all that.
#[test]
fn a_write_that_failed_left_its_times_and_the_bytes_in_front_of_where_it_failed() {
    explored(Mode::Eadr, &["extent-full-of-nodes-behind-filled"]);
}

/// What an experiment takes from a file whose tree begins in the inode was given up without the word there: behind a power cut
/// the file had blocks again that were free.
#[test]
fn a_power_cut_gave_a_file_back_what_an_experiment_had_taken() {
    explored(
        Mode::X86,
        &[
            "radix-blocks-in-place-of-cut",
            "extent-blocks-in-place-of-cut",
            "extent-blocks-right-behind-data",
        ],
    );
}

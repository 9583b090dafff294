//! The kernel bounds the number of a process's memory areas. When windows have used their share,
//! reading continues by search. The test has a process of its own,
//! because the areas belong to the whole process.

use vellum::experiments::page_table;
use vellum::reading::Rule;
use vellum::{CreateOptions, File};
use vellum_testing::in_own_process;

const BLOCK: u64 = 4096;
const PIECE: usize = 1 << 20;
/// The usual bound of Linux. Windows may use three quarters of it.
const USUAL_AREAS: u64 = 65_530;

fn areas() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let said = text.ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(USUAL_AREAS)
}

/// The file's contents from `at` on: each block contains its number.
fn bytes(at: u64) -> Vec<u8> {
    let blocks = at / BLOCK..(at + PIECE as u64) / BLOCK;
    blocks
        .flat_map(|block| block.to_le_bytes().repeat(BLOCK as usize / 8))
        .collect()
}

fn read_through(file: &File, len: u64) {
    let mut out = vec![0; PIECE];
    for at in (0..len).step_by(PIECE) {
        assert_eq!(file.read_at(&mut out, at).unwrap(), PIECE);
        assert!(out == bytes(at), "at {at}");
    }
}

#[test]
fn when_areas_run_out_reading_continues_by_search() {
    in_own_process(when_areas_run_out_reading_continues_by_search, || {
        let areas = areas();
        if areas > 2 * USUAL_AREAS {
            println!("skipped: {areas} areas are more than a quick test can use up");
            return;
        }
        // No block follows its predecessor, so that nearly each needs an area of its own.
        let len = (areas * BLOCK).next_multiple_of(PIECE as u64);
        let options = CreateOptions::new((len * 2).next_multiple_of(64 << 20)).fragmentation(1000);
        let pool = options.create_in_memory().unwrap();
        let file = pool.volume().create("/file").unwrap();
        for at in (0..len).step_by(PIECE) {
            file.write_at(&bytes(at), at).unwrap();
        }
        pool.fs().set_read_rule(Rule::Mmu);
        assert!(file.handle().read_costs().is_some());
        read_through(&file, len);
        let table = page_table(file.handle());
        assert!(table.gave_up, "{table:?}");
        let part = table.blocks as f64 / (len / BLOCK) as f64;
        assert!((0.5..1.0).contains(&part), "{part}");

        // Blocks outside the page table are found and can be changed; views of them are copies.
        file.write_at(&bytes(0), len - PIECE as u64).unwrap();
        let mut out = vec![0; PIECE];
        file.read_at(&mut out, len - PIECE as u64).unwrap();
        assert!(out == bytes(0));
        let view = file.view_by(len - PIECE as u64..len, Rule::Mmu).unwrap();
        assert!(*view == *bytes(0));
        drop(view);

        // The last close frees the areas for other files.
        let other = pool.volume().create("/other").unwrap();
        other.write_at(&bytes(0), 0).unwrap();
        drop((file, other));
        let other = pool.volume().open("/other").unwrap();
        (0..2).for_each(|_| read_through(&other, PIECE as u64));
        assert_eq!(page_table(other.handle()).blocks, PIECE as u64 / BLOCK);
    });
}

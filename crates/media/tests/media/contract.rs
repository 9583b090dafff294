//! The contract of every memory, tested on each of them.

use proptest::prelude::*;
use std::sync::atomic::Ordering::{Relaxed, Release};
use vellum_media::{
    FlushVariant, HeapMemory, Isa, MappedArena, MappedPool, Medium, Memory, SimPool, Site,
    VectorVariant,
};

const LEN: u64 = 80 << 10;

/// Every combination of variants, if the processor supports it.
fn variants() -> impl Iterator<Item = (String, Option<Isa>)> {
    FlushVariant::ALL.into_iter().flat_map(|flush| {
        VectorVariant::ALL.into_iter().map(move |vector| {
            let name = format!("{} + {}", flush.name(), vector.name());
            (name, Isa::new(flush, vector))
        })
    })
}

fn anonymous() -> MappedPool {
    MappedPool::anonymous(LEN).expect("anonymous pool")
}

/// All pools: mapped with each variant, and simulated.
fn each_pool(mut check: impl FnMut(&str, &dyn Medium)) {
    for (name, isa) in variants() {
        match isa {
            Some(isa) => check(&name, &anonymous().with_isa(isa)),
            None => eprintln!("skipped: this processor lacks {name}"),
        }
    }
    check("sim", &SimPool::new(LEN));
    let recorded = SimPool::new(LEN);
    recorded.start_recording();
    check("sim, recording", &recorded);
}

/// All memories.
fn each_memory(mut check: impl FnMut(&str, &dyn Memory)) {
    each_pool(|name, pool| check(name, pool));
    check("heap", &HeapMemory::new(LEN));
    check("arena", &MappedArena::new(LEN).expect("arena"));
}

fn all(memory: &dyn Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() as usize];
    memory.read(0, &mut bytes);
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + 1) as u8).collect()
}

#[test]
fn cells() {
    each_memory(|name, memory| {
        assert_eq!(memory.len(), LEN, "{name}");
        assert!(!memory.is_empty(), "{name}");
        memory.store(8, 5, Release);
        assert_eq!(memory.load(8, Relaxed), 5, "{name}");
        assert_eq!(memory.compare_exchange(8, 4, 9), Err(5), "{name}");
        assert_eq!(memory.compare_exchange(8, 5, 9), Ok(5), "{name}");
        assert_eq!(memory.fetch_add(8, u64::MAX), 9, "{name}");
        assert_eq!(memory.fetch_or(8, 0x30), 8, "{name}");
        assert_eq!(memory.fetch_and(8, 0x18), 0x38, "{name}");
        assert_eq!(memory.fetch_max(8, 0x17), 0x18, "{name}");
        assert_eq!(memory.fetch_max(8, 0x19), 0x18, "{name}");
        assert_eq!(memory.load(8, Relaxed), 0x19, "{name}");
        memory.prefetch(8);
        memory.prefetch(u64::MAX);
        memory.evict(5, 200);
        memory.evict(LEN, 0);
        assert_eq!(memory.load(8, Relaxed), 0x19, "{name}");
        assert_eq!(memory.damaged(), None, "{name}");
    });
}

#[test]
fn outside_is_recorded_and_harmless() {
    type Access = fn(&dyn Memory);
    let accesses: [(u64, Access); 12] = [
        (LEN, |m| assert_eq!(m.load(LEN, Relaxed), 0)),
        (4, |m| assert_eq!(m.load(4, Relaxed), 0)),
        (LEN, |m| m.store(LEN, 1, Relaxed)),
        (u64::MAX - 7, |m| m.store(u64::MAX - 7, 1, Relaxed)),
        (LEN, |m| assert_eq!(m.compare_exchange(LEN, 0, 1), Ok(0))),
        (LEN, |m| assert_eq!(m.compare_exchange(LEN, 1, 2), Err(0))),
        (LEN, |m| assert_eq!(m.fetch_max(LEN, 1), 0)),
        (LEN - 8, |m| {
            let mut out = [1; 9];
            m.read(LEN - 8, &mut out);
            assert_eq!(out, [0; 9]);
        }),
        (LEN - 8, |m| m.write(LEN - 8, &[1; 9])),
        (u64::MAX - 1, |m| {
            assert!(!m.bytes_equal(u64::MAX - 1, &[0; 8]))
        }),
        (32, |m| assert_eq!(m.match_line(32, 0, 0), 0)),
        (LEN, |m| assert_eq!(m.load_line(LEN), [0; 8])),
    ];
    for (at, access) in accesses {
        each_memory(|name, memory| {
            memory.write(0, &pattern(LEN as usize));
            assert_eq!(memory.damaged(), None, "{name}");
            access(memory);
            assert_eq!(memory.damaged(), Some(at.min(u64::MAX - 1)), "{name}");
            assert_eq!(all(memory), pattern(LEN as usize), "{name}");
        });
    }
    each_pool(|name, pool| {
        pool.flush(Site::UNNAMED, LEN - 1, 2);
        pool.write_through(Site::UNNAMED, LEN - 1, &[1; 2]);
        pool.zero_through(Site::UNNAMED, LEN, u64::MAX);
        assert_eq!(pool.damaged(), Some(LEN - 1), "{name}");
        assert_eq!(all(pool), vec![0; LEN as usize], "{name}");
    });
}

#[test]
fn nothing_at_the_end_is_inside() {
    each_pool(|name, pool| {
        pool.read(LEN, &mut []);
        pool.write(LEN, &[]);
        assert!(pool.bytes_equal(LEN, &[]), "{name}");
        pool.flush(Site::UNNAMED, LEN, 0);
        pool.write_through(Site::UNNAMED, LEN, &[]);
        pool.zero_through(Site::UNNAMED, LEN, 0);
        pool.fence(Site::UNNAMED);
        pool.sync().expect("sync");
        assert_eq!(pool.damaged(), None, "{name}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_of_bytes(at in 0..LEN, len in prop_oneof![0..200_u64, 0..LEN], shift in 0..64_usize) {
        let len = len.min(LEN - at) as usize;
        let at_usize = at as usize;
        let source = pattern(len + shift);
        let data = &source[shift..];
        each_pool(|name, pool| {
            let mut expected = pattern(LEN as usize);
            pool.write(0, &expected);
            assert_eq!(all(pool), expected, "{name}: filling");
            let mut out = vec![0xee; len + shift];
            pool.read(at, &mut out[shift..]);
            assert_eq!(&out[shift..], &expected[at_usize..at_usize + len], "{name}: read");
            assert!(out[..shift].iter().all(|&byte| byte == 0xee), "{name}: read");

            pool.write(at, data);
            pool.flush(Site::UNNAMED, at, len as u64);
            pool.fence(Site::UNNAMED);
            expected[at_usize..at_usize + len].copy_from_slice(data);
            assert_eq!(all(pool), expected, "{name}: write");

            pool.zero_through(Site::UNNAMED, at, len as u64);
            pool.fence(Site::UNNAMED);
            expected[at_usize..at_usize + len].fill(0);
            assert_eq!(all(pool), expected, "{name}: zero_through");

            pool.write_through(Site::UNNAMED, at, data);
            pool.fence(Site::UNNAMED);
            expected[at_usize..at_usize + len].copy_from_slice(data);
            assert_eq!(all(pool), expected, "{name}: write_through");

            let cell = at & !7;
            pool.store_through(Site::UNNAMED, cell, at ^ 0x5A5A_5A5A);
            assert_eq!(pool.load(cell, Relaxed), at ^ 0x5A5A_5A5A, "{name}: store_through");
            pool.fence(Site::UNNAMED);
            expected[cell as usize..][..8].copy_from_slice(&(at ^ 0x5A5A_5A5A).to_ne_bytes());
            assert_eq!(all(pool), expected, "{name}: store_through");
            assert_eq!(pool.damaged(), None, "{name}");
        });
    }

    #[test]
    fn comparing(at in 0..LEN - 300, len in 0..300_usize, wrong in any::<prop::sample::Index>()) {
        let image = pattern(LEN as usize);
        let right = &image[at as usize..at as usize + len];
        each_memory(|name, memory| {
            memory.write(0, &image);
            assert!(memory.bytes_equal(at, right), "{name}");
            if len > 0 {
                let mut other = right.to_vec();
                other[wrong.index(len)] ^= 0x40;
                assert!(!memory.bytes_equal(at, &other), "{name}");
            }
        });
    }

    #[test]
    fn searching_a_line(
        cells in prop::array::uniform8(0..4_u64),
        high in any::<u64>(),
        mask in any::<u64>(),
        want in 0..4_u64,
        line in 0..LEN / 64,
    ) {
        each_memory(|name, memory| {
            for (i, cell) in (0..).zip(cells) {
                memory.store(line * 64 + i * 8, cell | high << 2, Relaxed);
            }
            assert_eq!(memory.load_line(line * 64), cells.map(|cell| cell | high << 2), "{name}");
            for (mask, want) in [(3, want), (mask, want & mask), (u64::MAX, want | high << 2)] {
                let expected = (0..8).fold(0, |bits, i| {
                    bits | u8::from((cells[i] | high << 2) & mask == want) << i
                });
                assert_eq!(memory.match_line(line * 64, mask, want), expected, "{name}");
            }
        });
    }
}

#[test]
fn two_mappings_of_one_arena() {
    let one = MappedArena::new(LEN).expect("arena");
    let other = one.again().expect("second mapping");
    one.store(0, 7, Release);
    assert_eq!(other.load(0, Relaxed), 7);
    assert_eq!(other.fetch_add(0, 1), 7);
    drop(one);
    assert_eq!(other.load(0, Relaxed), 8);
    let third = other.again().expect("third mapping");
    assert!(third.bytes_equal(0, &8_u64.to_le_bytes()));
}

#[test]
fn words_are_never_torn() {
    const WORDS: usize = 5000;
    let copy_bytes = [3 * 8, 24 * 8, 100 * 8, WORDS * 8];
    for (name, isa) in variants().filter_map(|(name, isa)| Some((name, isa?))) {
        if isa.flush_variant() != FlushVariant::Generic {
            continue;
        }
        let pool = anonymous().with_isa(isa);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2000_u64 {
                    let word = (round % 251) * 0x0101_0101_0101_0101;
                    let bytes = word.to_le_bytes().repeat(WORDS);
                    let len = copy_bytes[round as usize % copy_bytes.len()];
                    // Misaligned in our memory, aligned in the pool.
                    pool.write(8, &bytes[round as usize % 8..][..len - 8]);
                }
                done.store(true, Relaxed);
            });
            let mut out = vec![0; 5 + WORDS * 8];
            while !done.load(Relaxed) {
                for len in copy_bytes {
                    pool.read(3, &mut out[..5 + len]);
                    for word in out[5..5 + len].chunks(8) {
                        assert!(word.iter().all(|byte| *byte == word[0]), "{name}: {word:?}");
                    }
                }
            }
        });
    }
}

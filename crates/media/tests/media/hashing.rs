//! Every variant hashes like the plain one, and the plain one like the formula.

use proptest::prelude::*;
use vellum_media::{FlushVariant, Isa, LANES, VectorVariant, mix, place_among};

/// The variants that this processor has.
fn variants() -> impl Iterator<Item = Isa> {
    VectorVariant::ALL.into_iter().filter_map(|vector| {
        let isa = Isa::new(FlushVariant::Generic, vector);
        if isa.is_none() {
            eprintln!("skipped: this processor lacks {}", vector.name());
        }
        isa
    })
}

/// Numbers of every size, including those with carries.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        any::<u32>().prop_map(u64::from),
        any::<u32>().prop_map(|high| u64::from(high) << 32 | 0xFFFF_FFFF),
        (0..8u64).prop_map(|back| u64::MAX - back),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn lanes_are_the_same_in_every_variant(seed in word(), first in word(), slots in any::<u32>()) {
        let plain = Isa::generic().hash_lanes(seed, first, slots);
        for lane in 0..LANES {
            let hash = mix(seed ^ first.wrapping_add(lane as u64));
            let product = u128::from(hash) * u128::from(slots);
            prop_assert_eq!(plain.hashes[lane], hash);
            prop_assert_eq!(u128::from(plain.places[lane]), product >> 64);
        }
        for isa in variants() {
            let name = isa.vector_variant().name();
            prop_assert_eq!(isa.hash_lanes(seed, first, slots), plain, "{}", name);
        }
    }

    #[test]
    fn places_are_the_upper_half_of_a_product(hash in word(), slots in any::<u32>()) {
        let product = u128::from(hash) * u128::from(slots);
        prop_assert_eq!(u128::from(place_among(hash, slots)), product >> 64);
    }

    #[test]
    fn mixing_loses_nothing(value in word(), bit in 0..64) {
        // Each of its steps is reversible, so different words stay different.
        prop_assert_ne!(mix(value), mix(value ^ 1u64 << bit));
    }
}

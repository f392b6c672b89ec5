//! Reductions over the units of a cube, as trees in shared memory.

use cubecl::prelude::*;

/// Returns the sum of `value` over all units, to every unit.
///
/// All `units` units of the cube must call it; their number is a power of two.
#[cube]
pub(crate) fn sum_over_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(units / 2).runtime();
    while half > 0usize {
        if unit < half {
            let other = shared[unit + half];
            shared[unit] += other;
        }
        sync_cube();
        half /= 2usize;
    }
    shared[0]
}

/// Returns the maximum of `value` over all units, to every unit.
///
/// All `units` units of the cube must call it; their number is a power of two.
#[cube]
pub(crate) fn max_over_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(units / 2).runtime();
    while half > 0usize {
        if unit < half {
            let other = shared[unit + half];
            let own = shared[unit];
            shared[unit] = max(own, other);
        }
        sync_cube();
        half /= 2usize;
    }
    shared[0]
}

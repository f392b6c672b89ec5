//! Reductions over the units of a cube, as trees in shared memory.

use cubecl::prelude::*;

use crate::UNITS;

/// Returns the sum of `value` over all units, to every unit.
///
/// All units of the cube must call it.
#[cube]
pub(crate) fn sum_over_units(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(UNITS / 2).runtime();
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
/// All units of the cube must call it.
#[cube]
pub(crate) fn max_over_units(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = value;
    sync_cube();
    let mut half = comptime!(UNITS / 2).runtime();
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

//! Sums over the parts of a batch that the cubes of a kernel have computed.

use std::ops::Range;

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::buffer::units;
use crate::{Buffer, UNITS};

/// Number of neighboring sums that a cube computes.
const WIDTH: usize = 4;

/// Number of units that share the parts of a sum.
const SLICES: usize = UNITS / WIDTH;

/// Adds the entries `range` of all parts, with one launch.
///
/// # Shapes
/// - `parts`: `[parts, entries]`
/// - `sums`: `[entries]`, of which `range` is written
pub(crate) fn sum_parts(client: &Client, parts: &Buffer, sums: &Buffer, range: Range<usize>) {
    let entries = sums.len();
    assert!(range.end <= entries && parts.len().is_multiple_of(entries), "parts of these sums");
    if range.is_empty() {
        return;
    }
    sum_of_parts::launch(
        client,
        CubeCount::new_1d(range.len().div_ceil(WIDTH) as u32),
        units(),
        parts.arg(),
        sums.arg(),
        (parts.len() / entries) as u32,
        entries as u32,
        range.start as u32,
        range.end as u32,
    );
}

#[cube(launch)]
fn sum_of_parts(
    parts: &[f32],
    sums: &mut [f32],
    num_parts: u32,
    entries: u32,
    start: u32,
    end: u32,
) {
    let unit = UNIT_POS as usize;
    let entry = start as usize + CUBE_POS_X as usize * WIDTH + unit % WIDTH;
    let mut sum = 0.0f32;
    if entry < end as usize {
        let mut part = UNIT_POS as usize / WIDTH;
        while part < num_parts as usize {
            sum += parts[part * entries as usize + entry];
            part += SLICES;
        }
    }
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    shared[unit] = sum;
    sync_cube();
    // Slices of the same sum are `WIDTH` units apart.
    let mut half = comptime!(UNITS / 2).runtime();
    while half >= WIDTH {
        if unit < half {
            let other = shared[unit + half];
            shared[unit] += other;
        }
        sync_cube();
        half /= 2usize;
    }
    if unit < WIDTH && entry < end as usize {
        sums[entry] = shared[unit];
    }
}

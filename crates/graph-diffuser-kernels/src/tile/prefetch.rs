//! Software prefetching of the next group of tiles.

use crate::buffer::Buffer;
use crate::simd::prefetch;

/// Software prefetcher for the next group of tiles. Each block of a product or sum first prefetches
/// the few cache lines that are due, which overlaps memory access with computation. Only few lines
/// can be outstanding, and loads from nearby caches queue behind them, so prefetches are spread
/// evenly over the steps of a group. They target the second-level cache, because a group does not
/// fit into the first.
pub(crate) struct Prefetch {
    /// Start of each row in the next group, its length, and its distance to the group after it.
    rows: Vec<(*const f32, usize, usize)>,
    /// Index of the row to prefetch after the current one.
    row: usize,
    /// Remaining part of the current row.
    line: *const f32,
    end: *const f32,
    /// Number of cache lines of a group.
    lines: usize,
    /// Number of steps since the last call of `advance`.
    steps: usize,
    /// Lines per step, and lines that are due, in units of `1 / FIXED_POINT_ONE`.
    pace: usize,
    due: usize,
}

impl Prefetch {
    const FIXED_POINT_ONE: usize = 1 << 16;

    pub(crate) fn new() -> Self {
        let nowhere = std::ptr::null();
        Self {
            rows: vec![],
            row: 0,
            line: nowhere,
            end: nowhere,
            lines: 0,
            steps: 0,
            // The first group has no predecessor to measure: a line in four steps.
            pace: Self::FIXED_POINT_ONE / 4,
            due: 0,
        }
    }

    /// Adds rows; the first group of the chunk starts at `start`, and a group has `pairs` pairs.
    pub(crate) fn add_rows(
        &mut self,
        rows: impl IntoIterator<Item = *const f32>,
        start: usize,
        pairs: usize,
    ) {
        let before = self.rows.len();
        self.rows.extend(rows.into_iter().map(|row| (row.wrapping_add(start), pairs, pairs)));
        self.lines += (self.rows.len() - before) * pairs.div_ceil(Buffer::LINE);
    }

    /// Adds contiguous groups of `size` values, starting with the first group of the chunk.
    pub(crate) fn add_groups(&mut self, groups: &[f32], size: usize) {
        self.rows.push((groups.as_ptr(), size, size));
        self.lines += size.div_ceil(Buffer::LINE);
    }

    /// Moves on to the next group, which is expected to take as many steps as the previous one.
    pub(crate) fn advance(&mut self) {
        for (row, _, step) in &mut self.rows {
            *row = row.wrapping_add(*step);
        }
        (self.row, self.line, self.end) = (0, std::ptr::null(), std::ptr::null());
        if self.steps > 0 {
            self.pace = (self.lines * Self::FIXED_POINT_ONE).div_ceil(self.steps);
        }
        (self.steps, self.due) = (0, 0);
    }

    /// Announces `steps` steps, and prefetches the lines that are due during them.
    #[inline(always)]
    pub(super) fn issue(&mut self, steps: usize) {
        self.steps += steps;
        self.due += self.pace * steps;
        while self.due >= Self::FIXED_POINT_ONE {
            self.due -= Self::FIXED_POINT_ONE;
            if self.line >= self.end && !self.next_row() {
                self.due = 0;
                return;
            }
            prefetch::<2>(self.line);
            self.line = self.line.wrapping_add(Buffer::LINE);
        }
    }

    /// Continues with the next row; returns false if no rows remain.
    #[cold]
    fn next_row(&mut self) -> bool {
        let Some(&(start, len, _)) = self.rows.get(self.row) else { return false };
        (self.row, self.line, self.end) = (self.row + 1, start, start.wrapping_add(len));
        true
    }
}

//! Linear maps of rows, `y = x Wᵀ + b`, with the `ReLU` and the dropout that often follow.
//!
//! All three products, that of the forward pass and the two of the backward pass, are tiles of a few rows
//! by a few vectors that stay in registers while they are summed. Their second factor is packed once into
//! panels as wide as a tile. A number of a result is summed in one order, whichever task does it.

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use crate::fresh::Fresh;
use crate::parallel;
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// Rows of a tile: with four vectors of columns these are 24 of the 32 registers of AVX-512, with two
/// 12 of the 16 of AVX2.
const TILE: usize = 6;

/// Rows of a task, whole tiles.
const ROWS: usize = 8 * TILE;

/// Steps of a sum before the next tile is turned to: the part of the second factor that they read, as wide as
/// a tile, stays in the fastest cache for all tiles.
const DEPTH: usize = 128;

/// Tasks that share a gradient of the weights; each reads all rows.
const TASKS: usize = 8;

/// Products below which one thread is done before it pays to share the work: some microseconds.
const PARALLEL: usize = 1 << 18;

/// What happens to a row, and in what sizes.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// Width of a row before.
    pub inputs: usize,
    /// Width of a row after.
    pub outputs: usize,
    /// `[outputs, inputs]`
    pub weight: &'a [f32],
    /// `[outputs]`
    pub bias: Option<&'a [f32]>,
    /// What follows.
    pub then: LinearActivation,
}

/// What follows a linear map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinearActivation {
    /// Nothing.
    None,
    /// Negative numbers become zero; of the others some are dropped.
    Relu(Option<Dropout>),
}

/// Derivatives of all that [`forward`] took.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// `[rows, inputs]`
    pub x: Vec<f32>,
    /// `[outputs, inputs]`
    pub weight: Vec<f32>,
    /// `[outputs]`
    pub bias: Vec<f32>,
}

impl Linear<'_> {
    #[track_caller]
    fn rows(&self, x: &[f32]) -> usize {
        assert!(self.inputs > 0 && self.outputs > 0, "rows without numbers");
        assert_eq!(
            self.weight.len(),
            self.outputs * self.inputs,
            "one weight from each input to each output"
        );
        assert!(self.bias.is_none_or(|bias| bias.len() == self.outputs), "one bias an output");
        assert!(
            x.len().is_multiple_of(self.inputs),
            "{} numbers in rows of {}",
            x.len(),
            self.inputs
        );
        x.len() / self.inputs
    }
}

/// Maps every row.
///
/// # Shapes
/// - `x`: `[rows, inputs]`
/// - returns `[rows, outputs]`
pub fn forward(isa: Isa, map: &Linear<'_>, x: &[f32]) -> Vec<f32> {
    map.rows(x);
    let (inputs, outputs) = (map.inputs, map.outputs);
    let panels =
        isa.run(Pack { from: map.weight, depth: inputs, columns: outputs, transposed: true });
    multiply(isa, x, &panels, map.bias, map.then)
}

/// Rows times panels, and what follows.
fn multiply(
    isa: Isa,
    x: &[f32],
    panels: &Panels,
    bias: Option<&[f32]>,
    then: LinearActivation,
) -> Vec<f32> {
    let (depth, columns) = (panels.depth, panels.columns);
    let mut y = Fresh::new(x.len() / depth * columns);
    let tasks =
        x.chunks(ROWS * depth).zip(y.room().chunks_mut(ROWS * columns)).enumerate().collect();
    run_all(x.len() * columns, tasks, |(chunk, (x, y))| {
        isa.run(Rows { x, panels, bias, then, first: chunk * ROWS, y });
    });
    // SAFETY: `Rows` writes every row of its piece.
    unsafe { y.written() }
}

/// Derivatives of all inputs; `y` is the result of [`forward`], which is read where something followed.
///
/// # Shapes
/// - `x`: `[rows, inputs]`
/// - `y`, `d_y`: `[rows, outputs]`
pub fn backward(isa: Isa, map: &Linear<'_>, x: &[f32], y: &[f32], d_y: &[f32]) -> Gradients {
    let rows = map.rows(x);
    let (inputs, outputs) = (map.inputs, map.outputs);
    assert_eq!(d_y.len(), rows * outputs, "a derivative comes for each number");
    let before;
    let d_z = match map.then {
        LinearActivation::None => d_y,
        LinearActivation::Relu(dropout) => {
            assert_eq!(y.len(), d_y.len(), "a derivative comes for each number");
            let kept = dropout.map_or(1.0, |dropout| dropout.kept);
            let mut d_z = Fresh::new(d_y.len());
            let chunk = ROWS * outputs;
            let tasks =
                d_z.room().chunks_mut(chunk).zip(y.chunks(chunk).zip(d_y.chunks(chunk))).collect();
            run_all(8 * d_y.len(), tasks, |(d_z, (y, d_y))| {
                isa.run(BeforeRelu { y, d_y, kept, d_z })
            });
            // SAFETY: `BeforeRelu` writes all of its piece.
            before = unsafe { d_z.written() };
            &before
        }
    };
    let panels =
        isa.run(Pack { from: map.weight, depth: outputs, columns: inputs, transposed: false });
    let d_x = multiply(isa, d_z, &panels, None, LinearActivation::None);
    let mut d_bias = vec![0.0; outputs];
    let mut d_weight = Fresh::new(outputs * inputs);
    let share = outputs.div_ceil(TASKS).next_multiple_of(TILE);
    let tasks = d_weight
        .room()
        .chunks_mut(share * inputs)
        .zip(d_bias.chunks_mut(share))
        .enumerate()
        .collect();
    run_all(rows * inputs * outputs, tasks, |(task, (d_weight, d_bias))| {
        isa.run(Outer { x, inputs, d_z, outputs, first: task * share, d_weight, d_bias });
    });
    // SAFETY: `Outer` writes the weights of all its outputs.
    let d_weight = unsafe { d_weight.written() };
    Gradients { x: d_x, weight: d_weight, bias: d_bias }
}

/// In parallel where it pays.
fn run_all<T: Send>(products: usize, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if products < PARALLEL {
        tasks.into_iter().for_each(run);
    } else {
        parallel::for_each(tasks, run);
    }
}

/// The second factor of a product: `columns` in panels of a few vectors, each row after row.
struct Panels {
    depth: usize,
    columns: usize,
    /// Numbers in a row of a panel, the last one excepted, which may be narrower.
    width: usize,
    /// Padded with zeros to whole vectors.
    values: Vec<f32>,
}

/// Vectors in a row of a tile.
#[inline(always)]
const fn widest<S: Simd>() -> usize {
    if S::LANES == 16 { 4 } else { 2 }
}

/// Numbers in a row of a tile for so many columns: panels about equal.
#[inline(always)]
fn tile_width<S: Simd>(columns: usize) -> usize {
    let vectors = columns.div_ceil(S::LANES);
    vectors.div_ceil(vectors.div_ceil(widest::<S>())) * S::LANES
}

/// Makes [`Panels`] of `[depth, columns]`, or of its transpose.
struct Pack<'a> {
    from: &'a [f32],
    depth: usize,
    columns: usize,
    transposed: bool,
}

impl Kernel for Pack<'_> {
    type Output = Panels;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Panels {
        let Self { from, depth, columns, transposed } = self;
        let width = tile_width::<S>(columns);
        let mut values = vec![0.0; columns.next_multiple_of(S::LANES) * depth];
        for (panel, first) in values.chunks_mut(width * depth).zip((0..columns).step_by(width)) {
            let (row, count) = (panel.len() / depth, (columns - first).min(width));
            if transposed {
                for (column, line) in
                    from[first * depth..(first + count) * depth].chunks(depth).enumerate()
                {
                    for (to, value) in panel[column..].iter_mut().step_by(row).zip(line) {
                        *to = *value;
                    }
                }
            } else {
                for (to, line) in panel.chunks_mut(row).zip(from.chunks(columns)) {
                    to[..count].copy_from_slice(&line[first..first + count]);
                }
            }
        }
        Panels { depth, columns, width, values }
    }
}

/// Rows of `x` times the panels, and what follows.
struct Rows<'a> {
    x: &'a [f32],
    panels: &'a Panels,
    bias: Option<&'a [f32]>,
    then: LinearActivation,
    /// The first of these rows among all, which dropout counts by.
    first: usize,
    y: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Panels { depth, columns, width, ref values } = *self.panels;
        assert_eq!(self.x.len() / depth * columns, self.y.len(), "rows of both");
        for (panel, first) in values.chunks(width * depth).zip((0..columns).step_by(width)) {
            // SAFETY: a panel has `depth` rows of that many whole vectors; `x` and `y` have equally many rows.
            unsafe {
                match panel.len() / depth / S::LANES {
                    1 => self.panel::<S, 1>(simd, panel, first),
                    2 => self.panel::<S, 2>(simd, panel, first),
                    3 => self.panel::<S, 3>(simd, panel, first),
                    _ => self.panel::<S, 4>(simd, panel, first),
                }
            }
        }
    }
}

impl Rows<'_> {
    /// # Safety
    /// `panel` has `depth` rows of `W` vectors, and `y` as many rows as `x`.
    #[inline(always)]
    unsafe fn panel<S: Simd, const W: usize>(&mut self, simd: S, panel: &[f32], first: usize) {
        let Panels { depth, columns, .. } = *self.panels;
        let rows = self.x.len() / depth;
        let last = (columns - first - (W - 1) * S::LANES).min(S::LANES);
        // SAFETY: the tile lies within both.
        unsafe {
            let mut bias = [simd.zero(); W];
            if let Some(values) = self.bias {
                for (v, bias) in bias.iter_mut().enumerate() {
                    let count = if v + 1 < W { S::LANES } else { last };
                    *bias = simd.load_up_to(values.as_ptr().add(first + v * S::LANES), count);
                }
            }
            for from in (0..depth).step_by(DEPTH) {
                let steps = (depth - from).min(DEPTH);
                let second = Second {
                    from: panel.as_ptr().add(from * W * S::LANES),
                    step: W * S::LANES,
                    last: S::LANES,
                };
                for row in (0..rows).step_by(TILE) {
                    let count = (rows - row).min(TILE);
                    let to = self.y.as_mut_ptr().cast::<f32>().add(row * columns + first);
                    let mut start = [bias; TILE];
                    if from > 0 {
                        for (m, row) in start.iter_mut().enumerate().take(count) {
                            *row = Second { from: to, step: columns, last }.row::<S, W>(simd, m);
                        }
                    }
                    let left =
                        First::Rows { from: self.x.as_ptr().add(row * depth + from), step: depth };
                    let tile = products::<S, W>(simd, left, count, second, steps, start);
                    for (m, values) in tile.into_iter().enumerate().take(count) {
                        let place = ((self.first + row + m) * columns + first) as u64;
                        for (v, value) in values.into_iter().enumerate() {
                            let count = if v + 1 < W { S::LANES } else { last };
                            let value = if from + steps == depth {
                                self.follow(simd, value, place + (v * S::LANES) as u64)
                            } else {
                                value
                            };
                            simd.store_up_to(to.add(m * columns + v * S::LANES), value, count);
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn follow<S: Simd>(&self, simd: S, value: S::V, place: u64) -> S::V {
        match self.then {
            LinearActivation::None => value,
            // The value comes second: it is what `max` returns if it is not a number.
            LinearActivation::Relu(None) => simd.max(simd.zero(), value),
            LinearActivation::Relu(Some(dropout)) => {
                simd.mul(simd.max(simd.zero(), value), simd.dropout_mask(dropout, place))
            }
        }
    }
}

/// The first factor of a product, seen by rows of a tile `m` and steps of the sum `k`.
#[derive(Clone, Copy)]
enum First {
    /// `(m, k)` is `from[m · step + k]`.
    Rows { from: *const f32, step: usize },
    /// `(m, k)` is `from[k · step + m]`.
    Columns { from: *const f32, step: usize },
}

/// The second factor: rows of vectors, of which the last has `last` numbers.
#[derive(Clone, Copy)]
struct Second {
    from: *const f32,
    step: usize,
    last: usize,
}

/// `start[m][v] + Σ_k first(m, k) · second(k, v)`. Rows of the tile beyond `rows` repeat the last.
///
/// # Safety
/// Both factors have `depth` steps, the first at least one row and the second `W` vectors.
#[inline(always)]
unsafe fn products<S: Simd, const W: usize>(
    simd: S,
    first: First,
    rows: usize,
    second: Second,
    depth: usize,
    start: [[S::V; W]; TILE],
) -> [[S::V; W]; TILE] {
    let mut tile = start;
    let row = |m: usize| m.min(rows - 1);
    // SAFETY: the caller's.
    unsafe {
        match first {
            First::Rows { from, step } => {
                let from: [*const f32; TILE] = std::array::from_fn(|m| from.add(row(m) * step));
                for k in 0..depth {
                    let vectors = second.row::<S, W>(simd, k);
                    for m in 0..TILE {
                        let factor = simd.splat(*from[m].add(k));
                        for v in 0..W {
                            tile[m][v] = simd.mul_add(factor, vectors[v], tile[m][v]);
                        }
                    }
                }
            }
            First::Columns { from, step } => {
                let from: [*const f32; TILE] = std::array::from_fn(|m| from.add(row(m)));
                for k in 0..depth {
                    let vectors = second.row::<S, W>(simd, k);
                    for m in 0..TILE {
                        let factor = simd.splat(*from[m].add(k * step));
                        for v in 0..W {
                            tile[m][v] = simd.mul_add(factor, vectors[v], tile[m][v]);
                        }
                    }
                }
            }
        }
    }
    tile
}

impl Second {
    /// # Safety
    /// There is a row `k` of `W` vectors.
    #[inline(always)]
    unsafe fn row<S: Simd, const W: usize>(self, simd: S, k: usize) -> [S::V; W] {
        let mut vectors = [simd.zero(); W];
        for (v, vector) in vectors.iter_mut().enumerate() {
            let count = if v + 1 < W { S::LANES } else { self.last };
            // SAFETY: the caller's; only the last vector may be short.
            *vector =
                unsafe { simd.load_up_to(self.from.add(k * self.step + v * S::LANES), count) };
        }
        vectors
    }
}

/// The derivative before `ReLU` and dropout: what was dropped or negative is zero in `y`.
struct BeforeRelu<'a> {
    y: &'a [f32],
    d_y: &'a [f32],
    kept: f32,
    d_z: &'a mut [MaybeUninit<f32>],
}

impl Kernel for BeforeRelu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let len = self.d_z.len();
        assert!(self.y.len() == len && self.d_y.len() == len, "one derivative a number");
        let (kept, to) = (simd.splat(self.kept), self.d_z.as_mut_ptr().cast::<f32>());
        for at in (0..len).step_by(S::LANES) {
            let count = (len - at).min(S::LANES);
            // SAFETY: `count` numbers are left in each.
            unsafe {
                let y = simd.load_up_to(self.y.as_ptr().add(at), count);
                let d_y = simd.mul(simd.load_up_to(self.d_y.as_ptr().add(at), count), kept);
                simd.store_up_to(to.add(at), simd.select_positive(y, d_y, simd.zero()), count);
            }
        }
    }
}

/// `d_weight = d_zᵀ x` and `d_bias`, the sum of the rows of `d_z`, for some of the outputs.
struct Outer<'a> {
    x: &'a [f32],
    inputs: usize,
    d_z: &'a [f32],
    outputs: usize,
    /// The first of these outputs.
    first: usize,
    d_weight: &'a mut [MaybeUninit<f32>],
    d_bias: &'a mut [f32],
}

impl Kernel for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (inputs, width) = (self.inputs, tile_width::<S>(self.inputs));
        assert_eq!(self.d_weight.len(), self.d_bias.len() * inputs, "weights of these outputs");
        assert_eq!(self.x.len() / inputs * self.outputs, self.d_z.len(), "rows of both");
        let rows = self.x.len() / inputs;
        // Without rows there is still a gradient to write.
        for from in (0..rows.max(1)).step_by(DEPTH) {
            let depth = (rows - from).min(DEPTH);
            for row in self.d_z[from * self.outputs..].chunks(self.outputs).take(depth) {
                for (sum, d_z) in self.d_bias.iter_mut().zip(&row[self.first..]) {
                    *sum += d_z;
                }
            }
            for column in (0..inputs).step_by(width) {
                // SAFETY: as many vectors as the columns that are left need, and rows that both have.
                unsafe {
                    match (inputs - column).min(width).div_ceil(S::LANES) {
                        1 => self.columns::<S, 1>(simd, from, depth, column),
                        2 => self.columns::<S, 2>(simd, from, depth, column),
                        3 => self.columns::<S, 3>(simd, from, depth, column),
                        _ => self.columns::<S, 4>(simd, from, depth, column),
                    }
                }
            }
        }
    }
}

impl Outer<'_> {
    /// Adds `depth` rows from `from` to the columns from `column`.
    ///
    /// # Safety
    /// `W` vectors are what the columns need, at most; the rows are there.
    #[inline(always)]
    unsafe fn columns<S: Simd, const W: usize>(
        &mut self,
        simd: S,
        from: usize,
        depth: usize,
        column: usize,
    ) {
        let (inputs, count) = (self.inputs, self.d_bias.len());
        let last = (inputs - column - (W - 1) * S::LANES).min(S::LANES);
        // SAFETY: tiles end with the outputs of this task, vectors with the row.
        unsafe {
            for output in (0..count).step_by(TILE) {
                let rows = (count - output).min(TILE);
                let to = self.d_weight.as_mut_ptr().cast::<f32>().add(output * inputs + column);
                let mut start = [[simd.zero(); W]; TILE];
                if from > 0 {
                    for (m, row) in start.iter_mut().enumerate().take(rows) {
                        *row = Second { from: to, step: inputs, last }.row::<S, W>(simd, m);
                    }
                }
                let d_z = self.d_z.as_ptr().add(from * self.outputs + self.first + output);
                let left = First::Columns { from: d_z, step: self.outputs };
                let second = Second {
                    from: self.x.as_ptr().add(from * inputs + column),
                    step: inputs,
                    last,
                };
                let tile = products::<S, W>(simd, left, rows, second, depth, start);
                for (m, values) in tile.into_iter().enumerate().take(rows) {
                    for (v, value) in values.into_iter().enumerate() {
                        let count = if v + 1 < W { S::LANES } else { last };
                        simd.store_up_to(to.add(m * inputs + v * S::LANES), value, count);
                    }
                }
            }
        }
    }
}

//! Linear layers `y = x Wᵀ + b`, fused with `ReLU` and dropout.
//!
//! All three products, one of the forward and two of the backward pass, are computed in register
//! tiles of a few rows by a few vectors. The right factor is packed into panels of the width of a
//! tile. Each result is summed in a fixed order, independent of the task that computes it.

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use crate::parallel;
use crate::simd::{Dropout, Isa, Kernel, Simd};
use crate::uninit::UninitBuffer;

/// Rows of a tile: with four vectors of columns they use 24 of the 32 registers of AVX-512, with
/// two they use 12 of the 16 registers of AVX2.
const TILE_ROWS: usize = 6;

/// Rows per task, a multiple of the tile.
const ROWS: usize = 8 * TILE_ROWS;

/// Depth of a cache block: the part of the right factor that it covers, of the width of a tile,
/// stays in the first-level cache for all tiles.
const DEPTH: usize = 128;

/// Maximum number of tasks for the gradient of the weights; each reads all rows.
const TASKS: usize = 8;

/// Number of multiplications below which the work stays on one thread: a few microseconds.
const PARALLEL: usize = 1 << 18;

/// Parameters of a linear layer and the activation that follows it.
#[derive(Debug, Clone, Copy)]
pub struct LinearParams<'a> {
    /// Number of input features.
    pub inputs: usize,
    /// Number of output features.
    pub outputs: usize,
    /// `[outputs, inputs]`
    pub weight: &'a [f32],
    /// `[outputs]`
    pub bias: Option<&'a [f32]>,
    /// Activation that follows the layer.
    pub activation: LinearActivation,
}

/// Activation after a linear layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinearActivation {
    /// Identity.
    None,
    /// `ReLU`, followed by dropout if there is a mask.
    Relu(Option<Dropout>),
}

/// Gradients computed by [`backward`].
#[derive(Debug, Clone, PartialEq)]
pub struct LinearGradients {
    /// `[rows, inputs]`
    pub x: Vec<f32>,
    /// `[outputs, inputs]`
    pub weight: Vec<f32>,
    /// `[outputs]`
    pub bias: Vec<f32>,
}

impl LinearParams<'_> {
    /// Checks the shapes and returns the number of rows of `x`.
    #[track_caller]
    fn rows(&self, x: &[f32]) -> usize {
        assert!(self.inputs > 0 && self.outputs > 0, "inputs and outputs must not be zero");
        assert_eq!(
            self.weight.len(),
            self.outputs * self.inputs,
            "weight must be [outputs, inputs]"
        );
        assert!(self.bias.is_none_or(|bias| bias.len() == self.outputs), "bias must be [outputs]");
        assert!(
            x.len().is_multiple_of(self.inputs),
            "{} values cannot be split into rows of {} features",
            x.len(),
            self.inputs
        );
        x.len() / self.inputs
    }
}

/// Applies the layer to every row.
///
/// # Shapes
/// - `x`: `[rows, inputs]`
/// - returns `[rows, outputs]`
pub fn forward(isa: Isa, params: &LinearParams<'_>, x: &[f32]) -> Vec<f32> {
    params.rows(x);
    let (inputs, outputs) = (params.inputs, params.outputs);
    let panels =
        isa.run(Pack { from: params.weight, depth: inputs, columns: outputs, transposed: true });
    multiply(isa, x, &panels, params.bias, params.activation)
}

/// Multiplies rows by panels and applies the activation.
fn multiply(
    isa: Isa,
    x: &[f32],
    panels: &Panels,
    bias: Option<&[f32]>,
    activation: LinearActivation,
) -> Vec<f32> {
    let (depth, columns) = (panels.depth, panels.columns);
    let mut y = UninitBuffer::new(x.len() / depth * columns);
    let tasks =
        x.chunks(ROWS * depth).zip(y.as_uninit().chunks_mut(ROWS * columns)).enumerate().collect();
    run_all(x.len() * columns, tasks, |(chunk, (x, y))| {
        isa.run(Rows { x, panels, bias, activation, first: chunk * ROWS, y });
    });
    // SAFETY: `Rows` writes every row of its chunk.
    unsafe { y.assume_init() }
}

/// Computes the gradients of [`forward`]; its result `y` is read only if there is an activation.
///
/// # Shapes
/// - `x`: `[rows, inputs]`
/// - `y`, `d_y`: `[rows, outputs]`
pub fn backward(
    isa: Isa,
    params: &LinearParams<'_>,
    x: &[f32],
    y: &[f32],
    d_y: &[f32],
) -> LinearGradients {
    let rows = params.rows(x);
    let (inputs, outputs) = (params.inputs, params.outputs);
    assert_eq!(d_y.len(), rows * outputs, "d_y must be [rows, outputs]");
    let before;
    let d_z = match params.activation {
        LinearActivation::None => d_y,
        LinearActivation::Relu(dropout) => {
            assert_eq!(y.len(), d_y.len(), "y must be [rows, outputs]");
            let scale = dropout.map_or(1.0, |dropout| dropout.scale);
            let mut d_z = UninitBuffer::new(d_y.len());
            let chunk = ROWS * outputs;
            let tasks = d_z
                .as_uninit()
                .chunks_mut(chunk)
                .zip(y.chunks(chunk).zip(d_y.chunks(chunk)))
                .collect();
            run_all(8 * d_y.len(), tasks, |(d_z, (y, d_y))| {
                isa.run(ReluBackward { y, d_y, scale, d_z });
            });
            // SAFETY: `ReluBackward` writes every value of its chunk.
            before = unsafe { d_z.assume_init() };
            &before
        }
    };
    let panels =
        isa.run(Pack { from: params.weight, depth: outputs, columns: inputs, transposed: false });
    let d_x = multiply(isa, d_z, &panels, None, LinearActivation::None);
    let mut d_bias = vec![0.0; outputs];
    let mut d_weight = UninitBuffer::new(outputs * inputs);
    let outputs_per_task = outputs.div_ceil(TASKS).next_multiple_of(TILE_ROWS);
    let tasks = d_weight
        .as_uninit()
        .chunks_mut(outputs_per_task * inputs)
        .zip(d_bias.chunks_mut(outputs_per_task))
        .enumerate()
        .collect();
    run_all(rows * inputs * outputs, tasks, |(task, (d_weight, d_bias))| {
        isa.run(WeightGradient {
            x,
            inputs,
            d_z,
            outputs,
            first: task * outputs_per_task,
            d_weight,
            d_bias,
        });
    });
    // SAFETY: `WeightGradient` writes the weights of all its outputs.
    let d_weight = unsafe { d_weight.assume_init() };
    LinearGradients { x: d_x, weight: d_weight, bias: d_bias }
}

/// Runs the tasks, in parallel if the number of multiplications is large enough.
fn run_all<T: Send>(products: usize, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if products < PARALLEL {
        tasks.into_iter().for_each(run);
    } else {
        parallel::for_each(tasks, run);
    }
}

/// Right factor of a product: `columns` columns in panels of a few vectors, each in row-major
/// order.
struct Panels {
    depth: usize,
    columns: usize,
    /// Values in a row of a panel; the last panel may be narrower.
    width: usize,
    /// Values, padded with zeros to whole vectors.
    values: Vec<f32>,
}

/// Returns the maximum number of vectors in a row of a tile.
#[inline(always)]
const fn max_tile_vectors<S: Simd>() -> usize {
    if S::LANES == 16 { 4 } else { 2 }
}

/// Returns the number of values in a row of a tile, such that panels have nearly equal widths.
#[inline(always)]
fn tile_width<S: Simd>(columns: usize) -> usize {
    let vectors = columns.div_ceil(S::LANES);
    vectors.div_ceil(vectors.div_ceil(max_tile_vectors::<S>())) * S::LANES
}

/// Packs `[depth, columns]`, or its transpose, into [`Panels`].
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

/// Multiplies rows of `x` by the panels and applies the activation.
struct Rows<'a> {
    x: &'a [f32],
    panels: &'a Panels,
    bias: Option<&'a [f32]>,
    activation: LinearActivation,
    /// Index of the first row in the whole input, for dropout.
    first: usize,
    y: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Panels { depth, columns, width, ref values } = *self.panels;
        assert_eq!(
            self.x.len() / depth * columns,
            self.y.len(),
            "factors must have the same number of rows"
        );
        for (panel, first) in values.chunks(width * depth).zip((0..columns).step_by(width)) {
            // SAFETY: a panel has `depth` rows of this number of vectors; `x` and `y` have the same
            // number of rows.
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
    /// Computes the columns of one panel, starting at column `first`.
    ///
    /// # Safety
    /// `panel` has `depth` rows of `W` vectors, and `y` as many rows as `x`.
    #[inline(always)]
    unsafe fn panel<S: Simd, const W: usize>(&mut self, simd: S, panel: &[f32], first: usize) {
        let Panels { depth, columns, .. } = *self.panels;
        let rows = self.x.len() / depth;
        let last = (columns - first - (W - 1) * S::LANES).min(S::LANES);
        // SAFETY: the tile is within both factors.
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
                let right = RightFactor {
                    from: panel.as_ptr().add(from * W * S::LANES),
                    step: W * S::LANES,
                    last: S::LANES,
                };
                for row in (0..rows).step_by(TILE_ROWS) {
                    let count = (rows - row).min(TILE_ROWS);
                    let to = self.y.as_mut_ptr().cast::<f32>().add(row * columns + first);
                    let mut start = [bias; TILE_ROWS];
                    if from > 0 {
                        for (m, row) in start.iter_mut().enumerate().take(count) {
                            *row =
                                RightFactor { from: to, step: columns, last }.row::<S, W>(simd, m);
                        }
                    }
                    let left = LeftFactor::Rows {
                        from: self.x.as_ptr().add(row * depth + from),
                        step: depth,
                    };
                    let tile = products::<S, W>(simd, left, count, right, steps, start);
                    for (m, values) in tile.into_iter().enumerate().take(count) {
                        let index = ((self.first + row + m) * columns + first) as u64;
                        for (v, value) in values.into_iter().enumerate() {
                            let count = if v + 1 < W { S::LANES } else { last };
                            let value = if from + steps == depth {
                                self.activate(simd, value, index + (v * S::LANES) as u64)
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
    fn activate<S: Simd>(&self, simd: S, value: S::V, index: u64) -> S::V {
        match self.activation {
            LinearActivation::None => value,
            // The value is the second operand, which `max` returns for NaN.
            LinearActivation::Relu(None) => simd.max(simd.zero(), value),
            LinearActivation::Relu(Some(dropout)) => {
                simd.mul(simd.max(simd.zero(), value), simd.dropout_mask(dropout, index))
            }
        }
    }
}

/// Left factor of a product, indexed by row `m` of the tile and step `k` of the sum.
#[derive(Clone, Copy)]
enum LeftFactor {
    /// The entry `(m, k)` is `from[m · step + k]`.
    Rows { from: *const f32, step: usize },
    /// The entry `(m, k)` is `from[k · step + m]`.
    Columns { from: *const f32, step: usize },
}

/// Right factor: rows of vectors, of which the last has `last` values.
#[derive(Clone, Copy)]
struct RightFactor {
    from: *const f32,
    step: usize,
    last: usize,
}

/// Computes `start[m][v] + Σ_k left(m, k) · right(k, v)`. Rows of the tile beyond `rows` repeat the
/// last one.
///
/// # Safety
/// Both factors have `depth` steps, the left one at least one row and the right one `W` vectors.
#[inline(always)]
unsafe fn products<S: Simd, const W: usize>(
    simd: S,
    left: LeftFactor,
    rows: usize,
    right: RightFactor,
    depth: usize,
    start: [[S::V; W]; TILE_ROWS],
) -> [[S::V; W]; TILE_ROWS] {
    let mut tile = start;
    let row = |m: usize| m.min(rows - 1);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match left {
            LeftFactor::Rows { from, step } => {
                let from: [*const f32; TILE_ROWS] =
                    std::array::from_fn(|m| from.add(row(m) * step));
                for k in 0..depth {
                    let vectors = right.row::<S, W>(simd, k);
                    for m in 0..TILE_ROWS {
                        let factor = simd.splat(*from[m].add(k));
                        for v in 0..W {
                            tile[m][v] = simd.mul_add(factor, vectors[v], tile[m][v]);
                        }
                    }
                }
            }
            LeftFactor::Columns { from, step } => {
                let from: [*const f32; TILE_ROWS] = std::array::from_fn(|m| from.add(row(m)));
                for k in 0..depth {
                    let vectors = right.row::<S, W>(simd, k);
                    for m in 0..TILE_ROWS {
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

impl RightFactor {
    /// Loads row `k`.
    ///
    /// # Safety
    /// There is a row `k` of `W` vectors.
    #[inline(always)]
    unsafe fn row<S: Simd, const W: usize>(self, simd: S, k: usize) -> [S::V; W] {
        let mut vectors = [simd.zero(); W];
        for (v, vector) in vectors.iter_mut().enumerate() {
            let count = if v + 1 < W { S::LANES } else { self.last };
            // SAFETY: guaranteed by the caller; only the last vector may be partial.
            *vector =
                unsafe { simd.load_up_to(self.from.add(k * self.step + v * S::LANES), count) };
        }
        vectors
    }
}

/// Computes the gradient before `ReLU` and dropout, which is zero for zero entries of `y`.
struct ReluBackward<'a> {
    y: &'a [f32],
    d_y: &'a [f32],
    scale: f32,
    d_z: &'a mut [MaybeUninit<f32>],
}

impl Kernel for ReluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let len = self.d_z.len();
        assert!(
            self.y.len() == len && self.d_y.len() == len,
            "y, d_y and d_z must have the same length"
        );
        let (scale, to) = (simd.splat(self.scale), self.d_z.as_mut_ptr().cast::<f32>());
        for at in (0..len).step_by(S::LANES) {
            let count = (len - at).min(S::LANES);
            // SAFETY: `count` values remain in each slice.
            unsafe {
                let y = simd.load_up_to(self.y.as_ptr().add(at), count);
                let d_y = simd.mul(simd.load_up_to(self.d_y.as_ptr().add(at), count), scale);
                simd.store_up_to(to.add(at), simd.select_positive(y, d_y, simd.zero()), count);
            }
        }
    }
}

/// Computes `d_weight = d_zᵀ x` and `d_bias`, the sum of the rows of `d_z`, for some of the
/// outputs.
struct WeightGradient<'a> {
    x: &'a [f32],
    inputs: usize,
    d_z: &'a [f32],
    outputs: usize,
    /// Index of the first of these outputs.
    first: usize,
    d_weight: &'a mut [MaybeUninit<f32>],
    d_bias: &'a mut [f32],
}

impl Kernel for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (inputs, width) = (self.inputs, tile_width::<S>(self.inputs));
        assert_eq!(
            self.d_weight.len(),
            self.d_bias.len() * inputs,
            "d_weight must be [outputs of the task, inputs]"
        );
        assert_eq!(
            self.x.len() / inputs * self.outputs,
            self.d_z.len(),
            "factors must have the same number of rows"
        );
        let rows = self.x.len() / inputs;
        // Runs at least once, so that the gradient is also written for an empty batch.
        for from in (0..rows.max(1)).step_by(DEPTH) {
            let depth = (rows - from).min(DEPTH);
            for row in self.d_z[from * self.outputs..].chunks(self.outputs).take(depth) {
                for (sum, d_z) in self.d_bias.iter_mut().zip(&row[self.first..]) {
                    *sum += d_z;
                }
            }
            for column in (0..inputs).step_by(width) {
                // SAFETY: `W` is the number of vectors of the remaining columns, and both factors
                // have these rows.
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

impl WeightGradient<'_> {
    /// Adds `depth` rows from `from` to the columns from `column`.
    ///
    /// # Safety
    /// The columns need `W` vectors, and the rows exist.
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
            for output in (0..count).step_by(TILE_ROWS) {
                let rows = (count - output).min(TILE_ROWS);
                let to = self.d_weight.as_mut_ptr().cast::<f32>().add(output * inputs + column);
                let mut start = [[simd.zero(); W]; TILE_ROWS];
                if from > 0 {
                    for (m, row) in start.iter_mut().enumerate().take(rows) {
                        *row = RightFactor { from: to, step: inputs, last }.row::<S, W>(simd, m);
                    }
                }
                let d_z = self.d_z.as_ptr().add(from * self.outputs + self.first + output);
                let left = LeftFactor::Columns { from: d_z, step: self.outputs };
                let right = RightFactor {
                    from: self.x.as_ptr().add(from * inputs + column),
                    step: inputs,
                    last,
                };
                let tile = products::<S, W>(simd, left, rows, right, depth, start);
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

//! Linear layers `y = x Wᵀ + b`, fused with `ReLU` and dropout.
//!
//! All three products, one of the forward and two of the backward pass, are computed in register
//! tiles of a few rows by a few vectors. The right factor is packed into panels of the width of a
//! tile. Each result is summed in a fixed order, independent of the task that computes it.

mod tile;

mod gradients;
mod rows;

#[cfg(test)]
mod tests;

use crate::buffer::UninitBuffer;
use crate::parallel;
use crate::simd::{Dropout, Isa};
use gradients::{ReluBackward, WeightGradient};
use rows::Rows;
use tile::{DEPTH, Pack, Panels, TILE_ROWS};

/// Rows per task, a multiple of the tile.
const ROWS: usize = 8 * TILE_ROWS;

/// Groups of outputs for the gradient of the weights, and the maximum number of outputs of a group,
/// from which there are more groups. A task computes one group from all rows of its part: with
/// larger groups, more of the loads come from the first-level cache. Groups of 24 of 336 outputs
/// made forward and backward pass 4 to 8 % slower than groups of 42.
const GROUPS: usize = 8;
const MAX_GROUP: usize = 8 * TILE_ROWS;

/// Minimum number of rows of a part of the gradient of the weights. Sums of parts round differently
/// from the sum of all rows, so batches of up to twice as many rows are one part.
const PART_ROWS: usize = 8192;

/// Number of values per task when parts are added.
const VALUES_PER_TASK: usize = 4096;

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
    parallel::for_each_if(x.len() * columns >= PARALLEL, tasks, |(chunk, (x, y))| {
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
            parallel::for_each_if(8 * d_y.len() >= PARALLEL, tasks, |(d_z, (y, d_y))| {
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
    let (weight, bias) = parameter_gradients(isa, params, x, d_z);
    LinearGradients { x: d_x, weight, bias }
}

/// Computes `d_zᵀ x` and the sum of the rows of `d_z`: sums of parts of the rows, which are then
/// added in the order of the rows.
fn parameter_gradients(
    isa: Isa,
    params: &LinearParams<'_>,
    x: &[f32],
    d_z: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let (rows, inputs, outputs) = (x.len() / params.inputs, params.inputs, params.outputs);
    let part_rows = rows_per_part(rows);
    let parts = rows.div_ceil(part_rows).max(1);
    let group = outputs.div_ceil(GROUPS).next_multiple_of(TILE_ROWS).min(MAX_GROUP);
    let mut d_bias = vec![0.0; parts * outputs];
    let mut d_weight = UninitBuffer::new(parts * outputs * inputs);
    let by_part = d_weight.as_uninit().chunks_mut(outputs * inputs).zip(d_bias.chunks_mut(outputs));
    let mut tasks = Vec::new();
    for (part, (d_weight, d_bias)) in by_part.enumerate() {
        let rows = part * part_rows..((part + 1) * part_rows).min(rows);
        let x = &x[rows.start * inputs..rows.end * inputs];
        let d_z = &d_z[rows.start * outputs..rows.end * outputs];
        let by_group = d_weight.chunks_mut(group * inputs).zip(d_bias.chunks_mut(group));
        for (index, (d_weight, d_bias)) in by_group.enumerate() {
            let first = index * group;
            tasks.push(WeightGradient { x, inputs, d_z, outputs, first, d_weight, d_bias });
        }
    }
    parallel::for_each_if(rows * inputs * outputs >= PARALLEL, tasks, |task| isa.run(task));
    // SAFETY: `WeightGradient` writes the weights of all its outputs.
    let mut d_weight = unsafe { d_weight.assume_init() };
    add_parts(&mut d_weight, outputs * inputs);
    add_parts(&mut d_bias, outputs);
    (d_weight, d_bias)
}

/// Returns the number of rows of a part of the gradient of the weights, except the last.
fn rows_per_part(rows: usize) -> usize {
    let parts = (rows / PART_ROWS).max(1);
    rows.div_ceil(parts).next_multiple_of(DEPTH).max(DEPTH)
}

/// Adds all parts of `len` values to the first one and removes them.
fn add_parts(values: &mut Vec<f32>, len: usize) {
    let (total, parts) = values.split_at_mut(len);
    if !parts.is_empty() {
        let tasks = total.chunks_mut(VALUES_PER_TASK).enumerate().collect();
        parallel::for_each_if(parts.len() >= PARALLEL, tasks, |(task, total)| {
            for part in parts.chunks(len) {
                for (sum, value) in total.iter_mut().zip(&part[task * VALUES_PER_TASK..]) {
                    *sum += value;
                }
            }
        });
    }
    values.truncate(len);
    values.shrink_to_fit();
}

//! Prediction targets of a batch, as the loss needs them.

use std::fmt::Debug;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use graph_diffuser_data::{Graph, SeedTree, Targets};

use super::index_tensor;

/// Targets of a batch.
#[derive(Debug, Clone)]
pub struct BatchTargets {
    /// Targets as the loss needs them.
    pub tensor: TargetTensor,
    /// Targets of each graph, as metrics need them.
    pub graphs: Vec<Targets>,
}

/// Targets of a batch as tensors.
#[derive(Debug, Clone)]
pub enum TargetTensor {
    /// Class of each row of the output, `[rows]`.
    Classes(Tensor<1, Int>),
    /// Classes of some rows of the output; the others are missing.
    SomeClasses {
        /// Rows with a class, `[observed]`.
        rows: Tensor<1, Int>,
        /// Their classes, `[observed]`.
        classes: Tensor<1, Int>,
    },
    /// Values of each row of the output, some of which may be missing.
    Values {
        /// Values, `[rows, columns]`; 0 if missing.
        values: Tensor<2>,
        /// Mask, `[rows, columns]`; 1 for present values, 0 for missing ones.
        mask: Tensor<2>,
    },
    /// Node pairs, linked or not.
    Links {
        /// First node of each pair, `[q]`.
        first: Tensor<1, Int>,
        /// Second node of each pair, `[q]`.
        second: Tensor<1, Int>,
        /// Labels, `[q, 1]`; 1 for linked pairs, 0 for others.
        labels: Tensor<2>,
    },
}

impl TargetTensor {
    /// Returns the number of observed targets.
    pub fn observed(&self) -> f64 {
        match self {
            Self::Classes(classes) | Self::SomeClasses { classes, .. } => classes.dims()[0] as f64,
            Self::Values { mask, .. } => mask.clone().sum().into_scalar::<f64>(),
            Self::Links { labels, .. } => labels.dims()[0] as f64,
        }
    }
}

/// Collates the targets of graphs; implemented by tasks.
pub trait TargetCollator: Debug + Send + Sync {
    /// Returns the targets of a batch.
    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor;
}

/// Graphs of a batch whose targets are collated.
#[derive(Debug, Clone, Copy)]
pub struct TargetInput<'a> {
    /// Graphs in the order of the batch.
    pub graphs: &'a [&'a Graph],
    /// Indices of the graphs in their dataset, or empty.
    pub indices: &'a [usize],
    /// Seeds of sampled targets, with one random stream per graph.
    pub seeds: SeedTree,
    /// Device of the tensors.
    pub device: &'a Device,
    /// Data type of float tensors.
    pub dtype: DType,
}

impl TargetInput<'_> {
    /// Returns the index of the graph at `position` in its dataset, or `position` if unknown.
    pub fn index(&self, position: usize) -> usize {
        self.indices.get(position).copied().unwrap_or(position)
    }

    /// Creates an index tensor on the device of the batch.
    pub fn integers(&self, values: Vec<usize>) -> Tensor<1, Int> {
        index_tensor(values, self.device)
    }

    /// Creates a float tensor on the device of the batch.
    pub fn floats(&self, values: Vec<f32>, shape: [usize; 2]) -> Tensor<2> {
        Tensor::from_data(TensorData::new(values, shape), (self.device, self.dtype))
    }
}

//! Dropout masks that kernels can recompute.

use burn::tensor::{Device, Tensor, TensorData};
use graph_diffuser_kernels::Dropout;

/// Dropout mask of one layer in one forward pass.
///
/// An entry is dropped depending on a hash of the mask's key and the index of the entry. A fused
/// kernel can therefore recompute the mask in its backward pass, for any number of threads.
#[derive(Debug, Clone, Copy)]
pub struct DropoutMask(pub(crate) Dropout);

impl DropoutMask {
    /// Applies the mask to `x`, if any.
    pub(crate) fn apply(mask: Option<Self>, x: Tensor<2>) -> Tensor<2> {
        match mask {
            Some(mask) => {
                let factors = mask.mask(x.dims(), &x.device()).cast(x.dtype());
                x * factors
            }
            None => x,
        }
    }

    /// Returns the factors of a tensor: 0 if dropped, `1 / (1 - probability)` if kept.
    pub(crate) fn mask<const D: usize>(&self, shape: [usize; D], device: &Device) -> Tensor<D> {
        let count: usize = shape.iter().product();
        let mask: Vec<f32> = (0..count as u64).map(|index| self.0.factor(index)).collect();
        Tensor::from_data(TensorData::new(mask, shape), device)
    }
}

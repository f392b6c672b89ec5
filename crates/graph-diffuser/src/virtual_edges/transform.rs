//! Pointwise transform of the diffusion stack before the edge-wise network.
//!
//! Distant pairs have tiny entries, which a batch norm cannot distinguish but a logarithm can.

use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pointwise transform of the diffusion stack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StackTransform {
    /// No transform, as in the paper.
    None {},
    /// `log(E + eps)`.
    Log {
        /// Offset that keeps the logarithm of zero entries finite.
        eps: f64,
    },
    /// `sign(E) √|E|`, with gradient zero at zero.
    SignedSquareRoot {},
}

impl Default for StackTransform {
    fn default() -> Self {
        Self::None {}
    }
}

impl StackTransform {
    /// Applies the transform to every entry.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]`
    /// - returns `[c, p]`
    pub fn apply(self, stack: Tensor<2>) -> Tensor<2> {
        match self {
            Self::None {} => stack,
            Self::Log { eps } => (stack + eps).log(),
            Self::SignedSquareRoot {} => {
                // The derivative of the root is infinite at zero, so zero entries are masked.
                let zero = stack.clone().equal_scalar(0.0);
                let safe = stack.clone().mask_fill(zero.clone(), 1.0);
                (safe.clone().abs().sqrt() * safe.sign()).mask_fill(zero, 0.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn signed_square_root_preserves_signs_and_has_zero_gradient_at_zero() {
        let device = Device::flex().autodiff();
        let stack = Tensor::<2>::from_floats([[4.0, 0.0, -0.25]], &device).require_grad();
        let root = (StackTransform::SignedSquareRoot {}).apply(stack.clone());
        assert_eq!(root.to_data().try_to_vec::<f32>().expect("f32"), [2.0, 0.0, -0.5]);
        let slope = stack.grad(&root.sum().backward()).expect("tracked");
        assert_eq!(slope.to_data().try_to_vec::<f32>().expect("f32"), [0.25, 0.0, 1.0]);
    }
}

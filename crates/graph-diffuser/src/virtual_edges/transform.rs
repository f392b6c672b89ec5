//! A pointwise transform of the stack before the edge-wise network.
//!
//! Far pairs have tiny entries that a batch norm cannot tell apart; a logarithm can.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// What is done to every entry of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StackTransform {
    /// Nothing: the paper.
    None {},
    /// `log(E + eps)`.
    Log {
        /// Keeps the logarithm finite where no walk arrives.
        eps: f64,
    },
    /// `sign(E) √|E|`, with slope zero at zero.
    SignedSquareRoot {},
}

impl Default for StackTransform {
    fn default() -> Self {
        Self::None {}
    }
}

impl StackTransform {
    /// # Shapes
    /// - `stack`: any, returned in the same
    pub fn apply(self, stack: Tensor<2>) -> Tensor<2> {
        match self {
            Self::None {} => stack,
            Self::Log { eps } => (stack + eps).log(),
            Self::SignedSquareRoot {} => {
                // The root's slope is infinite at zero, where most entries are; they stay zero.
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
    fn the_signed_root_keeps_signs_and_has_no_slope_at_zero() {
        let device = Device::flex().autodiff();
        let stack = Tensor::<2>::from_floats([[4.0, 0.0, -0.25]], &device).require_grad();
        let root = (StackTransform::SignedSquareRoot {}).apply(stack.clone());
        assert_eq!(root.to_data().try_to_vec::<f32>().expect("f32"), [2.0, 0.0, -0.5]);
        let slope = stack.grad(&root.sum().backward()).expect("tracked");
        assert_eq!(slope.to_data().try_to_vec::<f32>().expect("f32"), [0.25, 0.0, 1.0]);
    }
}

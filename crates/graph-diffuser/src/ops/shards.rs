//! Sums over the shards of a batch, as differentiable tensor operation and as callback of kernels.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Bytes, DType, Tensor};
use graph_diffuser_kernels::Reduction;

/// Combines the values of one shard with those of all other shards of a batch.
///
/// All shards make the same calls in the same order. The result is bit-identical on all of them and
/// does not depend on how shards are distributed over threads and processes.
pub trait ShardExchange: Debug + Send + Sync {
    /// Replaces `values` by the combination of the values of all shards.
    ///
    /// Kernels cannot return errors. If another shard fails or is at another site, the call unwinds
    /// with an error as payload, which the caller of the forward or backward pass catches.
    fn reduce(&self, site: Site, reduction: Reduction, values: &mut [f64]);
}

/// Place in a forward or backward pass at which shards exchange sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Index of the operation in the order of the forward pass.
    pub index: u32,
    /// If `true`, it is the backward pass of the operation.
    pub backward: bool,
}

/// Operation that exchanges sums with the other shards of a batch.
#[derive(Debug, Clone)]
pub struct ShardSite {
    /// Connection to the other shards.
    pub(crate) exchange: Arc<dyn ShardExchange>,
    /// Index of the operation in the order of the forward pass.
    pub(crate) index: u32,
}

impl ShardSite {
    /// Returns the callback of the forward pass of a kernel.
    pub(crate) fn forward(&self) -> impl Fn(Reduction, &mut [f64]) + '_ {
        self.callback(false)
    }

    /// Returns the callback of the backward pass of a kernel.
    pub(crate) fn backward(&self) -> impl Fn(Reduction, &mut [f64]) + '_ {
        self.callback(true)
    }

    /// Returns the sum of a count over all shards.
    pub(crate) fn total(&self, count: usize) -> usize {
        let mut sum = [count as f64];
        self.forward()(Reduction::Sum, &mut sum);
        sum[0] as usize
    }

    fn callback(&self, backward: bool) -> impl Fn(Reduction, &mut [f64]) + '_ {
        let site = Site { index: self.index, backward };
        move |reduction, values| self.exchange.reduce(site, reduction, values)
    }
}

/// Returns the elementwise sum of `x` over all shards.
///
/// The gradient of `x` is the sum of the gradients of all shards.
pub(crate) fn shard_sum<const D: usize>(x: Tensor<D>, site: &ShardSite) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::shard_sum(x.into_dispatch(), site.clone(), false))
}

/// Backends that sum tensors over shards.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait ShardSum: Backend {
    fn shard_sum(x: FloatTensor<Self>, site: ShardSite, backward: bool) -> FloatTensor<Self>;
}

impl ShardSum for Flex {
    fn shard_sum(x: FlexTensor, site: ShardSite, backward: bool) -> FlexTensor {
        let (shape, dtype) = (x.shape(), x.dtype());
        let x = if x.is_contiguous() { x } else { x.to_contiguous() };
        let mut values: Vec<f64> = if dtype == DType::F64 {
            x.as_slice::<f64>().expect("the tensor is f64 and contiguous").to_vec()
        } else {
            let values = x.as_slice::<f32>().expect("the tensor is f32 and contiguous");
            values.iter().map(|&value| f64::from(value)).collect()
        };
        site.callback(backward)(Reduction::Sum, &mut values);
        let bytes = if dtype == DType::F64 {
            Bytes::from_elems(values)
        } else {
            Bytes::from_elems(values.iter().map(|&value| value as f32).collect())
        };
        FlexTensor::new(bytes, Layout::contiguous(shape), dtype)
    }
}

/// Autodiff node of [`shard_sum`].
#[derive(Debug)]
struct Node;

impl<B: ShardSum> Backward<B, 1> for Node {
    type State = ShardSite;

    fn backward(self, ops: Ops<ShardSite, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let gradient = B::shard_sum(gradient, ops.state, true);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, gradient);
        }
    }
}

impl<B: ShardSum, C: CheckpointStrategy> ShardSum for Autodiff<B, C> {
    fn shard_sum(x: FloatTensor<Self>, site: ShardSite, backward: bool) -> FloatTensor<Self> {
        let output = B::shard_sum(x.primitive().clone(), site.clone(), backward);
        match Node.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(site, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

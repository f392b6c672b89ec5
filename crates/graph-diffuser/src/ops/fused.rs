//! How a kernel on slices becomes an operation on tensors, with a backward pass of its own.
//!
//! A [`SliceOp`] reads slices and makes vectors, forward and backward. Everything that the framework
//! wants to know about it is here and nowhere else: routing to the CPU backend, a node in the graph
//! of gradients, and several outputs from one node.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};

/// What an operation keeps from its forward pass for its backward pass.
pub(crate) type Saved = Arc<dyn Any + Send + Sync>;

/// A tensor on its way out of an operation.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) values: Vec<f32>,
    pub(crate) shape: Vec<usize>,
}

/// A gradient, on its way into an operation or out of it; a clone shares its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Gradient(FlexTensor);

impl From<Vec<f32>> for Gradient {
    fn from(values: Vec<f32>) -> Self {
        let shape = Shape::from([values.len()]);
        Self(tensor(values, shape))
    }
}

impl AsRef<[f32]> for Gradient {
    fn as_ref(&self) -> &[f32] {
        self.as_slice()
    }
}

impl Gradient {
    pub(crate) fn as_slice(&self) -> &[f32] {
        slice(&self.0)
    }
}

/// An operation on slices with a hand-written backward pass.
pub(crate) trait SliceOp: Debug + Send + Sync {
    /// Outputs, and what the backward pass will need of this one.
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved);

    /// Whether the backward pass reads an input; one that it does not read is not kept, and empty there.
    fn reads_input(&self, _index: usize) -> bool {
        true
    }

    /// Whether the backward pass reads the outputs, which are then kept.
    fn reads_outputs(&self) -> bool {
        false
    }

    /// Gradients of the inputs, in their order.
    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient>;
}

/// Whether kernels can run on what `tensor` is: single precision on the CPU backend.
pub(crate) fn can_run<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && tensor.device().inner() == Device::flex()
}

/// Applies `op`; the outputs are part of the graph of gradients.
pub(crate) fn apply<const D: usize>(
    op: impl SliceOp + 'static,
    inputs: Vec<Tensor<D>>,
) -> (Vec<Tensor<2>>, Saved) {
    let op: Arc<dyn SliceOp> = Arc::new(op);
    let saved = Arc::new(Mutex::new(None));
    let inputs: Vec<_> = inputs.into_iter().map(Tensor::into_dispatch).collect();
    let outputs = match <[_; 1]>::try_from(inputs) {
        Ok([a]) => Dispatch::fused_1(a, op, saved.clone()),
        Err(inputs) => match <[_; 2]>::try_from(inputs) {
            Ok([a, b]) => Dispatch::fused_2(a, b, op, saved.clone()),
            Err(inputs) => match <[_; 3]>::try_from(inputs) {
                Ok([a, b, c]) => Dispatch::fused_3(a, b, c, op, saved.clone()),
                Err(inputs) => match <[_; 4]>::try_from(inputs) {
                    Ok([a, b, c, d]) => Dispatch::fused_4(a, b, c, d, op, saved.clone()),
                    Err(inputs) => panic!("no operation takes {} tensors", inputs.len()),
                },
            },
        },
    };
    let saved = saved
        .lock()
        .expect("no kernel panics while it holds this")
        .take()
        .expect("the forward pass saves");
    (outputs.into_iter().map(Tensor::from_dispatch).collect(), saved)
}

/// Where the forward pass leaves what it saved.
type SavedCell = Arc<Mutex<Option<Saved>>>;

/// A backend that has slices to give.
pub(crate) trait Slices: Backend {
    fn forward(op: &dyn SliceOp, inputs: &[FloatTensor<Self>]) -> (Vec<FloatTensor<Self>>, Saved);
    fn backward(
        op: &dyn SliceOp,
        inputs: &[KeptInput<Self>],
        outputs: &[FloatTensor<Self>],
        saved: &Saved,
        gradients: Vec<Option<FloatTensor<Self>>>,
    ) -> Vec<FloatTensor<Self>>;
    /// A tensor of one zero, which stands for the operation in the graph.
    fn stand_in() -> FloatTensor<Self>;
}

#[backend_extension(Autodiff, Flex)]
pub(crate) trait Fused: Backend {
    fn fused_1(
        a: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_2(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_4(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
}

impl Slices for Flex {
    fn forward(op: &dyn SliceOp, inputs: &[FlexTensor]) -> (Vec<FlexTensor>, Saved) {
        let inputs: Vec<FlexTensor> = inputs.iter().map(contiguous).collect();
        let (outputs, saved) = op.forward(&slices(&inputs));
        (
            outputs
                .into_iter()
                .map(|output| tensor(output.values, Shape::from(output.shape)))
                .collect(),
            saved,
        )
    }

    fn backward(
        op: &dyn SliceOp,
        inputs: &[KeptInput<Self>],
        outputs: &[FlexTensor],
        saved: &Saved,
        gradients: Vec<Option<FlexTensor>>,
    ) -> Vec<FlexTensor> {
        let values: Vec<Option<FlexTensor>> =
            inputs.iter().map(|input| input.values.as_ref().map(contiguous)).collect();
        let slices_of_inputs: Vec<&[f32]> =
            values.iter().map(|values| values.as_ref().map_or(&[][..], slice)).collect();
        let gradients = gradients
            .into_iter()
            .map(|gradient| gradient.map(|gradient| Gradient(contiguous(&gradient))));
        let made = op.backward(&slices_of_inputs, &slices(outputs), saved, gradients.collect());
        made.into_iter()
            .zip(inputs)
            .map(|(Gradient(made), input)| made.reshape(input.shape.clone()))
            .collect()
    }

    fn stand_in() -> FlexTensor {
        tensor(vec![0.0], Shape::from([1]))
    }
}

fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn contiguous(tensor: &FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor.clone() } else { tensor.to_contiguous() }
}

fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("single precision, made contiguous")
}

fn slices(tensors: &[FlexTensor]) -> Vec<&[f32]> {
    tensors.iter().map(slice).collect()
}

fn plain(op: &dyn SliceOp, inputs: &[FlexTensor], cell: &SavedCell) -> Vec<FlexTensor> {
    let (outputs, saved) = Flex::forward(op, inputs);
    *cell.lock().expect("no kernel panics while it holds this") = Some(saved);
    outputs
}

impl Fused for Flex {
    fn fused_1(a: FlexTensor, op: Arc<dyn SliceOp>, saved: SavedCell) -> Vec<FlexTensor> {
        plain(&*op, &[a], &saved)
    }
    fn fused_2(
        a: FlexTensor,
        b: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        plain(&*op, &[a, b], &saved)
    }
    fn fused_3(
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        plain(&*op, &[a, b, c], &saved)
    }
    fn fused_4(
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        d: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        plain(&*op, &[a, b, c, d], &saved)
    }
}

impl<B: Slices, C: CheckpointStrategy> Fused for Autodiff<B, C> {
    fn fused_1(
        a: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 1>([a], op, &saved)
    }
    fn fused_2(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 2>([a, b], op, &saved)
    }
    fn fused_3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 3>([a, b, c], op, &saved)
    }
    fn fused_4(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 4>([a, b, c, d], op, &saved)
    }
}

/// Gradients of the outputs, as they arrive.
type GradientCell<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// An input as the backward pass finds it: its numbers only where it reads them.
#[derive(Debug, Clone)]
pub(crate) struct KeptInput<B: Backend> {
    shape: Shape,
    values: Option<FloatTensor<B>>,
}

/// All that the backward pass of an operation needs.
#[derive(Debug, Clone)]
struct State<B: Slices> {
    op: Arc<dyn SliceOp>,
    inputs: Vec<KeptInput<B>>,
    outputs: Vec<FloatTensor<B>>,
    saved: SavedBox,
    /// Where the taps of several outputs leave their gradients; absent for a single output.
    gradients: Option<GradientCell<B>>,
}

/// [`Saved`], which cannot show itself.
#[derive(Clone)]
struct SavedBox(Saved);

impl Debug for SavedBox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Saved")
    }
}

/// The operation's node.
#[derive(Debug)]
struct Node;

impl<B: Slices, const N: usize> Backward<B, N> for Node {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let arrived = grads.consume::<B>(&ops.node);
        let State { op, inputs, outputs, saved, gradients } = ops.state;
        let gradients = match gradients {
            Some(cell) => std::mem::take(&mut *cell.lock().expect("taps do not panic")),
            None => vec![Some(arrived)],
        };
        let made = B::backward(&*op, &inputs, &outputs, &saved.0, gradients);
        for (parent, gradient) in ops.parents.into_iter().zip(made) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// One of several outputs: hands its gradient to the operation's node, which the graph visits later.
#[derive(Debug)]
struct Tap;

impl<B: Slices> Backward<B, 1> for Tap {
    type State = (GradientCell<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let arrived = grads.consume::<B>(&ops.node);
        let (cell, place) = ops.state;
        cell.lock().expect("taps do not panic")[place] = Some(arrived);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::stand_in());
        }
    }
}

fn tracked<B: Slices, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    op: Arc<dyn SliceOp>,
    cell: &SavedCell,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let plain: Vec<FloatTensor<B>> = inputs.iter().map(|input| input.primitive().clone()).collect();
    let (mut outputs, saved) = B::forward(&*op, &plain);
    *cell.lock().expect("no kernel panics while it holds this") = Some(saved.clone());
    let kept = if op.reads_outputs() { outputs.clone() } else { Vec::new() };
    let gradients: Option<GradientCell<B>> =
        (outputs.len() > 1).then(|| Arc::new(Mutex::new(outputs.iter().map(|_| None).collect())));
    let keep = |(index, input): (usize, FloatTensor<B>)| KeptInput {
        shape: input.shape(),
        values: op.reads_input(index).then_some(input),
    };
    let plain = plain.into_iter().enumerate().map(keep).collect();
    let state = State {
        op,
        inputs: plain,
        outputs: kept,
        saved: SavedBox(saved),
        gradients: gradients.clone(),
    };
    let prepared = Node
        .prepare::<C>(inputs.each_ref().map(FloatTensor::<Autodiff<B, C>>::node))
        .compute_bound()
        .stateful();
    let finish = |output: FloatTensor<B>| match prepared {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    let Some(gradients) = gradients else {
        return vec![finish(outputs.remove(0))];
    };
    let node = finish(B::stand_in());
    let tap = |(place, output): (usize, FloatTensor<B>)| match Tap
        .prepare::<C>([node.node()])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => prepared.finish((gradients.clone(), place), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    outputs.into_iter().enumerate().map(tap).collect()
}

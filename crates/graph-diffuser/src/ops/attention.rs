//! Multi-head attention with content and position scores (Eq. 6–8).

mod scores;

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::attention::{
    self as kernel, AttentionGradients, AttentionKernelOptions, AttentionOutput, AttentionPosition,
};

use crate::batch::BatchLayout;

use super::fused::{self, Gradient, Output, SliceOp};

pub use scores::{AttentionComponents, AttentionOptions, PairScores, ScoreCombination};

/// Computes attention between all nodes of each graph.
///
/// The weights are `softmax_j(q_i·k_j/√d_head + log σ(position_ij))`, which equals the normalized
/// product of Eq. 8 and cannot overflow. Without position scores this is standard attention;
/// without queries and keys, the softmax is taken of the position scores alone.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` queries, keys and values, or `[r, d]` values only
/// - returns `[r, d]`
pub fn attention(
    qkv: Tensor<2>,
    d: usize,
    position: Option<PairScores>,
    layout: &Arc<BatchLayout>,
    options: &AttentionOptions,
) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if super::cube::supports_attention(&qkv, d, layout, options) {
        return super::cube::attention(qkv, d, position, layout, options);
    }
    if !fused::can_run(&qkv) {
        return attention_reference(qkv, d, position, layout, options);
    }
    let mut inputs = vec![qkv];
    let starts = position.map(|PairScores { scores, starts, cls }| {
        inputs.push(scores);
        inputs.extend(cls);
        starts
    });
    let op = FusedAttention {
        options: options.kernel(d, inputs[0].dims()[1] == 3 * d),
        layout: layout.clone(),
        starts,
    };
    fused::apply_single(op, inputs)
}

/// Reference implementation of [`attention()`] in plain tensor operations.
pub fn attention_reference(
    qkv: Tensor<2>,
    d: usize,
    position: Option<PairScores>,
    layout: &BatchLayout,
    options: &AttentionOptions,
) -> Tensor<2> {
    let [_, columns] = qkv.dims();
    let (h, parts) = (options.heads, columns / d);
    let d_head = d / h;
    let mask =
        options.dropout.map(|mask| mask.mask([h, layout.pairs()], &qkv.device()).cast(qkv.dtype()));
    let gathered = layout
        .equal_size_runs()
        .into_iter()
        .map(|(first, count, n)| {
            let rows = layout.node_starts[first]..layout.node_starts[first + count];
            let pairs = layout.pair_starts[first]..layout.pair_starts[first + count];
            let part = |which: usize| {
                let part = qkv.clone().slice([rows.clone(), which * d..(which + 1) * d]);
                part.reshape([count, n, h, d_head]).swap_dims(1, 2) // [count, h, n, d_head]
            };
            let content = (parts == 3).then(|| {
                let scale = 1.0 / (d_head as f64).sqrt();
                (part(0) * scale).matmul(part(1).transpose()) // Eq. 7
            });
            let position = position.as_ref().map(|position| position.of_graphs(first, count, n)); // [count, h, n, n]
            let scores = options.combined(content, position); // Eq. 6
            let weights = softmax(scores, 3); // Eq. 8
            let weights = match &mask {
                Some(mask) => {
                    let mask = mask.clone().slice([0..h, pairs]).reshape([h, count, n, n]);
                    weights * mask.swap_dims(0, 1)
                }
                None => weights,
            };
            weights.matmul(part(parts - 1)).swap_dims(1, 2).reshape([count * n, d])
        })
        .collect();
    Tensor::cat(gathered, 0)
}

/// Fused operation of [`attention`] with inputs `qkv` and optional position and CLS scores.
#[derive(Debug)]
struct FusedAttention {
    options: AttentionKernelOptions,
    layout: Arc<BatchLayout>,
    starts: Option<Arc<Vec<usize>>>,
}

impl FusedAttention {
    fn position<'a>(&'a self, inputs: &[&'a [f32]]) -> Option<AttentionPosition<'a>> {
        let cls = inputs.get(2).copied();
        self.starts.as_ref().map(|starts| AttentionPosition { scores: inputs[1], starts, cls })
    }
}

impl SliceOp for FusedAttention {
    /// Statistics of each row.
    type Saved = Vec<f32>;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Vec<f32>) {
        let (graphs, position) = (self.layout.offsets(), self.position(inputs));
        let AttentionOutput { out, statistics } =
            kernel::forward(Isa::best(), graphs, &self.options, inputs[0], position);
        (vec![Output::rows(out, self.options.width)], statistics)
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        statistics: &Vec<f32>,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let AttentionGradients { qkv, scores, cls } = kernel::backward(
            Isa::best(),
            self.layout.offsets(),
            &self.options,
            inputs[0],
            self.position(inputs),
            (outputs[0], statistics),
            fused::single(&gradients),
        );
        [qkv, scores, cls].into_iter().take(inputs.len()).map(Gradient::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;

    fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(
            burn::tensor::TensorData::new(values, shape),
            (&Device::flex(), DType::F64),
        )
    }

    fn options(heads: usize, combine: ScoreCombination, clamp: Option<f64>) -> AttentionOptions {
        AttentionOptions { heads, combine, clamp, dropout: None }
    }

    /// Creates scores with one block per graph.
    fn unshared(scores: Tensor<2>, layout: &BatchLayout) -> PairScores {
        let starts = Arc::new(layout.pair_starts[..layout.graphs()].to_vec());
        PairScores { scores, starts, cls: None }
    }

    fn to_vec(tensor: Tensor<2>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    fn assert_close(ours: &[f64], expected: &[f64]) {
        assert_eq!(ours.len(), expected.len());
        for (ours, expected) in ours.iter().zip(expected) {
            assert!((ours - expected).abs() < 1e-12, "{ours} is not {expected}");
        }
    }

    #[test]
    fn attention_of_two_nodes_matches_hand_computed_values() {
        // One head of dimension one: q = (ln 2, 0), k = (1, 0), v = (10, 20), so that exp(content)
        // is (2, 1) in the first row and (1, 1) in the second. With gates of 1/4 and 1/2, the
        // products are (2·1/4, 1·1/2) in the first row and (1·1/2, 1·1/2) in the second.
        let qkv = tensor(vec![2_f64.ln(), 1.0, 10.0, 0.0, 0.0, 20.0], [2, 3]);
        let quarter = -(3_f64.ln()); // σ(-ln 3) = 1/4
        let position = tensor(vec![quarter, 0.0, 0.0, 0.0], [1, 4]);
        let layout = BatchLayout::new(vec![2]);
        let out = attention_reference(
            qkv.clone(),
            1,
            Some(unshared(position, &layout)),
            &layout,
            &options(1, ScoreCombination::Gate, None),
        );
        assert_close(&to_vec(out), &[15.0, 15.0]);
        // Content only: weights 2/3 and 1/3 in the first row.
        let out = attention_reference(
            qkv.clone(),
            1,
            None,
            &layout,
            &options(1, ScoreCombination::Gate, None),
        );
        assert_close(&to_vec(out), &[(2.0 * 10.0 + 20.0) / 3.0, 15.0]);
        // Added position scores: exp(ln 3) triples the weight of the first pair.
        let position = tensor(vec![3_f64.ln(), 0.0, 0.0, 0.0], [1, 4]);
        let out = attention_reference(
            qkv.clone(),
            1,
            Some(unshared(position.clone(), &layout)),
            &layout,
            &options(1, ScoreCombination::Add, None),
        );
        assert_close(&to_vec(out), &[(6.0 * 10.0 + 20.0) / 7.0, 15.0]);
        // A clamp at ln 2 limits the factor to 2 and does not affect the content scores.
        let out = attention_reference(
            qkv,
            1,
            Some(unshared(position.clone(), &layout)),
            &layout,
            &options(1, ScoreCombination::Add, Some(2_f64.ln())),
        );
        assert_close(&to_vec(out), &[(4.0 * 10.0 + 20.0) / 5.0, 15.0]);
        // Position only.
        let values = tensor(vec![10.0, 20.0], [2, 1]);
        let out = attention_reference(
            values,
            1,
            Some(unshared(position, &layout)),
            &layout,
            &options(1, ScoreCombination::Add, None),
        );
        assert_close(&to_vec(out), &[(3.0 * 10.0 + 20.0) / 4.0, 15.0]);
    }

    #[test]
    fn attention_weights_sum_to_one() {
        // If all values are one, so is the output.
        let layout = BatchLayout::new(vec![3, 1, 4, 4]);
        let mut stream = graph_diffuser_data::SeedTree::new(0).stream("scores");
        let mut draw =
            |count: usize| (0..count).map(|_| 3.0 * stream.normal()).collect::<Vec<f64>>();
        let (r, d, h) = (layout.nodes(), 4, 2);
        let mut qkv = draw(r * 3 * d);
        for row in qkv.chunks_mut(3 * d) {
            row[2 * d..].fill(1.0);
        }
        let position = tensor(draw(h * layout.pairs()), [h, layout.pairs()]);
        for combine in [ScoreCombination::Gate, ScoreCombination::Add] {
            let qkv = tensor(qkv.clone(), [r, 3 * d]);
            let out = attention_reference(
                qkv,
                d,
                Some(unshared(position.clone(), &layout)),
                &layout,
                &options(h, combine, None),
            );
            assert_close(&to_vec(out), &vec![1.0; r * d]);
        }
    }

    #[test]
    fn shared_blocks_and_cls_scores_equal_expanded_scores() {
        let (h, d) = (2, 4);
        let mut stream = graph_diffuser_data::SeedTree::new(1).stream("scores");
        let mut draw = |count: usize| (0..count).map(|_| stream.normal()).collect::<Vec<f64>>();
        let device = Device::flex().autodiff();
        // Number of nodes with scores and index of the block of each graph.
        let graphs = [(2, 0), (2, 0), (3, 1), (3, 2), (2, 0), (3, 1), (1, 3)];
        let block_starts = [0, 4, 13, 22, 23];
        for cls in [false, true] {
            let extra = usize::from(cls);
            let layout =
                BatchLayout::new(graphs.iter().map(|&(scored, _)| scored + extra).collect());
            let mut columns = Vec::new();
            for (scored, block) in graphs {
                for (i, j) in
                    (0..scored + extra).flat_map(|i| (0..scored + extra).map(move |j| (i, j)))
                {
                    let is_scored = i < scored && j < scored;
                    columns.push(if is_scored {
                        (block_starts[block] + i * scored + j) as i64
                    } else {
                        23
                    });
                }
            }
            let columns = Tensor::<1, burn::tensor::Int>::from_data(columns.as_slice(), &device);
            let floats = |values, shape| {
                let data = burn::tensor::TensorData::new(values, shape);
                Tensor::<2>::from_data(data, (&device, DType::F64)).require_grad()
            };
            let qkv = draw(layout.nodes() * 3 * d);
            let (scores, cls_score) = (draw(h * 23), draw(h));
            let upstream = floats(draw(layout.nodes() * d), [layout.nodes(), d]);
            let run = |expanded: bool| {
                let qkv = floats(qkv.clone(), [layout.nodes(), 3 * d]);
                let (scores, cls_score) =
                    (floats(scores.clone(), [h, 23]), floats(cls_score.clone(), [h, 1]));
                let position = if expanded {
                    let all = Tensor::cat(vec![scores.clone(), cls_score.clone()], 1);
                    unshared(all.select(1, columns.clone()), &layout)
                } else {
                    let starts =
                        Arc::new(graphs.iter().map(|&(_, block)| block_starts[block]).collect());
                    PairScores {
                        scores: scores.clone(),
                        starts,
                        cls: cls.then(|| cls_score.clone()),
                    }
                };
                let out = attention_reference(
                    qkv.clone(),
                    d,
                    Some(position),
                    &layout,
                    &options(h, ScoreCombination::Gate, None),
                );
                let gradients = (out.clone() * upstream.clone()).sum().backward();
                let mut results = vec![to_vec(out)];
                let inputs =
                    [Some(qkv), Some(scores), cls.then_some(cls_score)].into_iter().flatten();
                results.extend(inputs.map(|input| {
                    to_vec(Tensor::from_inner(input.grad(&gradients).expect("every input is used")))
                }));
                results
            };
            for (ours, expected) in run(false).iter().zip(&run(true)) {
                assert_close(ours, expected);
            }
        }
    }

    #[test]
    fn extreme_scores_do_not_overflow() {
        let layout = BatchLayout::new(vec![2]);
        let qkv = tensor(vec![1e4, 1e4, 1.0, -1e4, -1e4, 2.0], [2, 3]).cast(DType::F32);
        let position = tensor(vec![-1e4, 1e4, 1e4, -1e4], [1, 4]).cast(DType::F32);
        let out = attention_reference(
            qkv,
            1,
            Some(unshared(position, &layout)),
            &layout,
            &options(1, ScoreCombination::Gate, None),
        );
        assert!(to_vec(out).iter().all(|value| value.is_finite()));
    }
}

//! Attention directed by position scores (Eq. 6–8).

use burn::tensor::Tensor;
use burn::tensor::activation::{log_sigmoid, softmax};
use serde::{Deserialize, Serialize};

use crate::batch::Layout;
use crate::nn::DropoutSite;

/// How position scores enter the softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// `exp(content) · σ(position)`, normalised: Eq. 8 of the paper.
    Gate,
    /// `exp(content + position)`, normalised: the authors' script.
    Add,
}

/// How attention weights follow from content and position scores.
#[derive(Debug, Clone, Copy)]
pub struct ScoreRule {
    /// Number of heads, `h`.
    pub heads: usize,
    /// How position enters.
    pub combine: Combine,
    /// Both terms are first brought into `±clamp`.
    pub clamp: Option<f64>,
    /// The mask on the weights, in training.
    pub(crate) dropout: Option<DropoutSite>,
}

/// Each node gathers from every node of its own graph.
///
/// `softmax_j(q_i·k_j/√d_head + log σ(position_ij))`: the normalised product of Eq. 8, in a form
/// that cannot overflow. Without position scores it is plain attention; with values alone, the
/// softmax is that of the position term.
///
/// # Shapes
/// - `qkv`: `[r, 3d]` queries, keys and values, or `[r, d]` values alone
/// - `position`: `[h, p]`
/// - returns `[r, d]`
pub fn attend(
    qkv: Tensor<2>,
    d: usize,
    position: Option<Tensor<2>>,
    layout: &Layout,
    rule: &ScoreRule,
) -> Tensor<2> {
    let [_, columns] = qkv.dims();
    let (h, parts) = (rule.heads, columns / d);
    let d_head = d / h;
    assert!(parts == 3 || position.is_some(), "attention needs content or position scores");
    let mask = rule
        .dropout
        .map(|site| site.mask([h, layout.pairs()], &qkv.device()).cast(qkv.dtype()));
    let clamped = |scores: Tensor<4>| match rule.clamp {
        Some(bound) => scores.clamp(-bound, bound),
        None => scores,
    };
    let gathered = layout
        .runs()
        .into_iter()
        .map(|(first, count, n)| {
            let rows = layout.node_starts[first]..layout.node_starts[first + count];
            let pairs = layout.pair_starts[first]..layout.pair_starts[first + count];
            let by_head = |values: &Tensor<2>| {
                let values = values.clone().slice([0..h, pairs.clone()]);
                values.reshape([h, count, n, n]).swap_dims(0, 1) // [count, h, n, n]
            };
            let part = |which: usize| {
                let part = qkv.clone().slice([rows.clone(), which * d..(which + 1) * d]);
                part.reshape([count, n, h, d_head]).swap_dims(1, 2) // [count, h, n, d_head]
            };
            let position = position.as_ref().map(|scores| {
                let scores = clamped(by_head(scores)); // Eq. 6
                match rule.combine {
                    Combine::Gate => log_sigmoid(scores),
                    Combine::Add => scores,
                }
            });
            let content = (parts == 3).then(|| {
                let scale = 1.0 / (d_head as f64).sqrt();
                clamped((part(0) * scale).matmul(part(1).transpose())) // Eq. 7
            });
            let scores = match (content, position) {
                (Some(content), Some(position)) => content + position,
                (Some(scores), None) | (None, Some(scores)) => scores,
                (None, None) => unreachable!("checked above"),
            };
            let weights = softmax(scores, 3); // Eq. 8
            let weights = match &mask {
                Some(mask) => weights * by_head(mask),
                None => weights,
            };
            weights.matmul(part(parts - 1)).swap_dims(1, 2).reshape([count * n, d])
        })
        .collect();
    Tensor::cat(gathered, 0)
}

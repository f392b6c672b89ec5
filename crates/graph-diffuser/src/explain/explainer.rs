//! Attention traces of a trained run.
//!
//! [`Explainer::trace`] runs the model on one graph and records position, content and attention
//! weights (Eq. 6–8) of every layer and head.

use burn::module::Module as _;
use burn::tensor::{Device, Tensor};
use graph_diffuser_data::benchmarks::grid_histogram;
use graph_diffuser_data::chem::MoleculeError;
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::{
    Dataset, Diagnostic, FeatureSchema, Features, Graph, Split, TargetSchema, Targets,
};

use crate::batch::{Batcher, GraphBatch};
use crate::model::GraphDiffuser;
use crate::ops::AttentionComponents;
use crate::recipe::Recipe;
use crate::run::{Run, RunError};
use crate::task::sub_tokens::decode_tokens;
use crate::train::EvalBatcher;
use crate::transformer::AttentionScores;

use super::atoms;
use super::scores::SCORE_BATCH;
use super::trace::{
    AttentionTrace, HeadAttention, LayerAttention, NestedMatrix, PredictionAndTarget, Structure,
    TracedGraph,
};

/// Largest graph of which all rows are traced by default.
///
/// A full trace of such a graph takes about 10 MB of JSON per layer of four heads.
pub(super) const MAX_FULLY_TRACED_NODES: usize = 256;

/// Error of [`Explainer`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The model has no attention layer.
    #[error("`{recipe}` has no Transformer layer, so there is no attention to explain")]
    NoAttention {
        /// Name of the recipe.
        recipe: String,
    },
    /// An index is out of range.
    #[error("{what} {index} is out of range: {owner} has {what}s 0 to {last}")]
    OutOfRange {
        /// `graph`, `node`, `layer`, `head` or `color`.
        what: &'static str,
        /// Requested index.
        index: usize,
        /// Object that the index refers to, such as `graph 12`.
        owner: String,
        /// Largest valid index.
        last: usize,
    },
    /// The graph is not a grid with one categorical feature per node.
    #[error("graph {index} is not a colored grid")]
    NotAColoredGrid {
        /// Index of the graph in the dataset.
        index: usize,
    },
    /// The model inputs cannot be derived from SMILES.
    #[error("`{recipe}` does not accept SMILES: its inputs cannot be derived from a SMILES string")]
    SmilesUnsupported {
        /// Name of the recipe.
        recipe: String,
    },
    /// The SMILES is invalid or contains atoms unknown to the model.
    #[error(transparent)]
    Molecule(#[from] MoleculeError),
    /// The run cannot be loaded.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Diagnostic for ExplainError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoAttention { .. } => Some("use a run with `model.layers` of at least 1".into()),
            Self::OutOfRange { what, last, .. } => {
                Some(format!("use a {what} index from 0 to {last}"))
            }
            Self::NotAColoredGrid { .. } => Some("use a run trained on grids".into()),
            Self::SmilesUnsupported { .. } => {
                Some("use a run trained on ZINC, ogbg-mol, peptides or a SMILES CSV file".into())
            }
            Self::Molecule(MoleculeError::Empty | MoleculeError::NoAtoms) => {
                Some("pass a SMILES string such as `CCO`".into())
            }
            Self::Molecule(error) => error.hint(),
            Self::Run(error) => error.hint(),
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::OutOfRange { .. } | Self::SmilesUnsupported { .. } | Self::Molecule(_) => true,
            Self::Run(error) => error.is_usage_error(),
            Self::NoAttention { .. } | Self::NotAColoredGrid { .. } => false,
        }
    }
}

/// Records the attention of a trained model.
///
/// # Examples
/// ```no_run
/// use graph_diffuser::Device;
/// use graph_diffuser::explain::Explainer;
/// use graph_diffuser::recipe::DataDirs;
/// use graph_diffuser::run::Run;
/// use graph_diffuser_data::Split;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = Run::open("runs/grid-quick-s0".as_ref())?;
/// let dataset = run.recipe().dataset(&DataDirs::from_env())?;
/// let explainer = Explainer::open(&run, &dataset, &Device::flex())?;
/// let index = explainer.graph_index(Split::Test, 0)?;
/// let graph = dataset.graphs.get(index);
/// let trace = explainer.trace(&graph, Some(index), &[5]);
/// println!("{:?}", trace.head(0, None).attention[0]); // attention of node 5 in the first layer
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Explainer<'a> {
    recipe: &'a Recipe,
    dataset: &'a Dataset,
    pub(super) model: GraphDiffuser,
    pub(super) batcher: EvalBatcher,
}

impl<'a> Explainer<'a> {
    /// Loads the best checkpoint of a run.
    ///
    /// # Errors
    /// Returns an error if the run has no usable checkpoint or its model has no attention layer.
    pub fn open(run: &'a Run, dataset: &'a Dataset, device: &Device) -> Result<Self, ExplainError> {
        let model = run.best_model(dataset, device)?;
        Self::new(run.recipe(), dataset, model, run.batcher(device))
    }

    /// Creates an explainer of `model`, which was built from `recipe`.
    ///
    /// # Errors
    /// Returns an error if the model has no attention layer.
    pub fn new(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        model: GraphDiffuser,
        batcher: Batcher,
    ) -> Result<Self, ExplainError> {
        if recipe.model.layers == 0 {
            return Err(ExplainError::NoAttention { recipe: recipe.name.clone() });
        }
        let batcher = EvalBatcher::new(batcher, SCORE_BATCH);
        Ok(Self { recipe, dataset, model: model.valid(), batcher })
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &Dataset {
        self.dataset
    }

    /// Returns the recipe of the model.
    pub fn recipe(&self) -> &Recipe {
        self.recipe
    }

    /// Returns the dataset index of the graph at `position` of a split.
    ///
    /// # Errors
    /// Returns an error if the split has no graph at `position`.
    pub fn graph_index(&self, split: Split, position: usize) -> Result<usize, ExplainError> {
        let indices = self.dataset.split(split);
        let name = match split {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        };
        indices.get(position).copied().ok_or_else(|| ExplainError::OutOfRange {
            what: "graph",
            index: position,
            owner: format!("the {name} split"),
            last: indices.len().saturating_sub(1),
        })
    }

    /// Checks that a node, a layer and a head exist; `name` denotes the graph in the error message.
    ///
    /// # Errors
    /// Returns an error for the first index that is out of range.
    pub fn check(
        &self,
        graph: &Graph,
        name: &str,
        node: Option<usize>,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> Result<(), ExplainError> {
        let heads = self.recipe.model.attention.as_ref().map_or(1, |attention| attention.heads);
        let nodes = graph.num_nodes + usize::from(self.has_cls());
        for (what, requested, count, owner) in [
            ("node", node, nodes, name.to_owned()),
            ("layer", layer, self.recipe.model.layers, format!("`{}`", self.recipe.name)),
            ("head", head, heads, "each layer".to_owned()),
        ] {
            if let Some(index) = requested.filter(|&index| index >= count) {
                return Err(ExplainError::OutOfRange { what, index, owner, last: count - 1 });
            }
        }
        Ok(())
    }

    /// Returns whether the model appends a CLS node to every graph.
    pub fn has_cls(&self) -> bool {
        self.recipe.model.head.uses_cls()
    }

    /// Returns the rows traced by default: all rows, or [`Explainer::most_focused_node`] of a large
    /// graph.
    pub fn default_rows(&self, graph: &Graph) -> Vec<usize> {
        if self.traces_all_rows(graph.num_nodes) {
            (0..graph.num_nodes + usize::from(self.has_cls())).collect()
        } else {
            vec![self.most_focused_node(graph)]
        }
    }

    /// Returns whether all rows of a graph with `nodes` nodes are traced by default.
    pub fn traces_all_rows(&self, nodes: usize) -> bool {
        nodes <= MAX_FULLY_TRACED_NODES
    }

    /// Returns the number of colors of a grid cell, or `None` unless nodes have a single
    /// categorical feature.
    pub fn num_colors(&self) -> Option<usize> {
        match &self.dataset.schema.node_features {
            FeatureSchema::Categorical(sizes) if sizes.len() == 1 => Some(sizes[0]),
            _ => None,
        }
    }

    /// Returns a grid of the dataset with the colors of some cells replaced.
    ///
    /// Labels that count colors are recomputed.
    ///
    /// # Errors
    /// Returns an error if the graph is not a colored grid, or a cell or color is out of range.
    pub fn recolored(&self, index: usize, cells: &[(usize, u32)]) -> Result<Graph, ExplainError> {
        let mut graph = self.dataset.graphs.get(index).into_owned();
        let nodes = graph.num_nodes;
        let structure = atoms::structure(&graph, &self.dataset.schema);
        let (Structure::Grid { columns, .. }, Some(colors)) = (structure, self.num_colors()) else {
            return Err(ExplainError::NotAColoredGrid { index });
        };
        let Features::Categorical { values, .. } = &mut graph.node_features else {
            return Err(ExplainError::NotAColoredGrid { index });
        };
        let counts = |values: &[u32], highest: u32| -> Vec<u32> {
            grid_histogram::labels(values, columns)
                .into_iter()
                .map(|label| label.min(highest))
                .collect()
        };
        let highest = (self.dataset.schema.targets.outputs() as u32).saturating_sub(1);
        let has_count_labels = matches!(
            &graph.targets,
            Targets::NodeClasses(classes) if *classes == counts(values, highest)
        );
        for &(cell, color) in cells {
            for (what, requested, count) in
                [("node", cell, nodes), ("color", color as usize, colors)]
            {
                if requested >= count {
                    let owner = format!("graph {index}");
                    return Err(ExplainError::OutOfRange {
                        what,
                        index: requested,
                        owner,
                        last: count - 1,
                    });
                }
            }
            values[cell] = color;
        }
        if has_count_labels {
            graph.targets = Targets::NodeClasses(counts(values, highest));
        }
        Ok(graph)
    }

    /// Returns whether the model accepts molecules given as SMILES.
    pub fn accepts_smiles(&self) -> bool {
        self.recipe.data.featurizer() != Featurizer::Graphs
    }

    /// Converts a SMILES string to the graph that the model expects; its targets are placeholders.
    ///
    /// # Errors
    /// Returns an error if the SMILES is invalid, contains atoms unknown to the model, or if the
    /// model does not accept SMILES.
    pub fn molecule(&self, smiles: &str) -> Result<Graph, ExplainError> {
        if !self.accepts_smiles() {
            return Err(ExplainError::SmilesUnsupported { recipe: self.recipe.name.clone() });
        }
        Ok(self.recipe.data.featurizer().featurize_smiles(smiles, self.dataset.schema.targets)?)
    }

    /// Returns the query node shown by default.
    ///
    /// This is the CLS node if there is one, the first node with the highest class in node
    /// classification, the first node with the highest out-degree in a large graph, and otherwise
    /// the node whose mean attention in the last layer is most concentrated (has the lowest
    /// entropy).
    pub fn most_focused_node(&self, graph: &Graph) -> usize {
        if self.has_cls() {
            return graph.num_nodes;
        }
        let first_argmax = |values: &mut dyn Iterator<Item = f64>| {
            let best = values.enumerate().fold(
                None,
                |best: Option<(usize, f64)>, (node, value)| match best {
                    Some((_, max)) if value <= max => best,
                    _ => Some((node, value)),
                },
            );
            best.map_or(0, |(node, _)| node)
        };
        if let Targets::NodeClasses(classes) = &graph.targets {
            return first_argmax(&mut classes.iter().map(|&class| f64::from(class)));
        }
        if graph.num_nodes > MAX_FULLY_TRACED_NODES {
            let mut degrees = vec![0.0; graph.num_nodes];
            graph.edges.iter().for_each(|edge| degrees[edge[0] as usize] += 1.0);
            return first_argmax(&mut degrees.into_iter());
        }
        let trace = self.trace(graph, None, &(0..graph.num_nodes).collect::<Vec<_>>());
        let last = &trace.layers[trace.layers.len() - 1].mean.attention;
        let negative_entropy = |row: &Vec<f32>| {
            let weights = row.iter().map(|weight| f64::from(*weight));
            weights.map(|weight| weight * weight.max(1e-30).ln()).sum::<f64>()
        };
        first_argmax(&mut last.iter().map(negative_entropy))
    }

    /// Records the attention of the query nodes `rows` of one graph.
    ///
    /// Row `graph.num_nodes` is the CLS node. `index` is the position of the graph in the dataset,
    /// or `None` for a graph that is not part of it and has no label.
    pub fn trace(&self, graph: &Graph, index: Option<usize>, rows: &[usize]) -> AttentionTrace {
        // The model expects the CLS node last and at least one ordinary node.
        let mut rows: Vec<usize> = rows.to_vec();
        rows.sort_unstable();
        rows.dedup();
        if rows.iter().all(|&row| row >= graph.num_nodes) {
            rows.insert(0, 0);
        }
        let batch = self.collate(&[graph], index.unwrap_or(0));
        let (output, internals) = self.model.forward_traced(&batch, &rows);
        let node_rows = rows.iter().filter(|&&row| row < graph.num_nodes).count();
        let virtual_edges = internals.virtual_edges.as_ref();
        AttentionTrace {
            format: AttentionTrace::FORMAT.to_owned(),
            recipe: self.recipe.name.clone(),
            graph: TracedGraph::new(graph, index, &self.dataset.schema),
            cls: self.has_cls(),
            combine: self.recipe.model.attention.as_ref().and_then(|attention| {
                match attention.scores {
                    AttentionScores::PositionAndContent { combine, .. } => Some(combine),
                    AttentionScores::Position { .. } | AttentionScores::Content {} => None,
                }
            }),
            layers: internals.layers.iter().map(layer).collect(),
            edge_weights: virtual_edges.map(|edges| host(edges.weights.clone())),
            walks: virtual_edges.map(|edges| {
                let values = host(edges.walks.clone());
                let steps: Vec<&[f32]> = values.chunks(node_rows * graph.num_nodes).collect();
                let from = |row: usize| {
                    let to = |step: &&[f32]| {
                        step[row * graph.num_nodes..(row + 1) * graph.num_nodes].to_vec()
                    };
                    steps.iter().map(to).collect()
                };
                (0..node_rows).map(from).collect()
            }),
            outcome: {
                let [_, columns] = output.dims();
                let mut outcome = self.outcome(graph, &host(output), columns, &rows[..node_rows]);
                if let (PredictionAndTarget::GraphClass { target, .. }, None) =
                    (&mut outcome, index)
                {
                    *target = None;
                }
                outcome
            },
            rows,
        }
    }

    /// Predicts probabilities or values of several variants of the graph at `index`.
    pub(super) fn predictions(&self, graphs: &[&Graph], index: usize) -> Vec<NestedMatrix> {
        let output = self
            .model
            .forward(&self.collate(graphs, index), &crate::nn::ForwardContext::evaluate());
        let [rows, columns] = output.dims();
        assert!(
            rows.is_multiple_of(graphs.len()),
            "{rows} output rows for {} graphs of equal size",
            graphs.len()
        );
        let values: NestedMatrix =
            host(output).chunks(columns).map(|row| self.activate(row)).collect();
        values.chunks(rows / graphs.len()).map(<[Vec<f32>]>::to_vec).collect()
    }

    fn collate(&self, graphs: &[&Graph], index: usize) -> GraphBatch {
        self.batcher.collate_graphs(graphs, vec![index; graphs.len()])
    }

    /// Applies softmax or sigmoid to one output row, as the task requires.
    fn activate(&self, row: &[f32]) -> Vec<f32> {
        match self.dataset.schema.targets {
            TargetSchema::NodeMulticlass(_)
            | TargetSchema::Multiclass(_)
            | TargetSchema::SubTokens(_) => softmax(row),
            TargetSchema::Multilabel(_) => row.iter().copied().map(sigmoid).collect(),
            TargetSchema::Regression(_) | TargetSchema::LinkPrediction => row.to_vec(),
        }
    }

    /// Decodes the output of one graph; links are reported for the source nodes `rows`.
    pub(super) fn outcome(
        &self,
        graph: &Graph,
        values: &[f32],
        columns: usize,
        rows: &[usize],
    ) -> PredictionAndTarget {
        let matrix: NestedMatrix = values.chunks(columns).map(|row| self.activate(row)).collect();
        let (names, classes) =
            (self.dataset.schema.names.targets.clone(), self.dataset.schema.names.classes.clone());
        let labeled = |values: &[f32]| {
            values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
        };
        match (&graph.targets, self.dataset.schema.targets) {
            (Targets::NodeClasses(targets), _) => PredictionAndTarget::NodeClasses {
                predicted: matrix.iter().map(|row| argmax(row)).collect(),
                probabilities: matrix,
                targets: targets.clone(),
                names: classes,
            },
            (Targets::GraphValues(targets), TargetSchema::Multilabel(_)) => {
                PredictionAndTarget::GraphLabels {
                    probabilities: matrix.concat(),
                    targets: labeled(targets),
                    names,
                }
            }
            (Targets::GraphValues(targets), _) => PredictionAndTarget::GraphValues {
                predicted: matrix.concat(),
                targets: labeled(targets),
                names,
            },
            (Targets::GraphClass(target), _) => {
                let probabilities = matrix.concat();
                PredictionAndTarget::GraphClass {
                    predicted: argmax(&probabilities),
                    probabilities,
                    target: Some(*target),
                    names: classes,
                }
            }
            (Targets::SubTokens(tokens), _) => {
                let predicted = decode_tokens(values, columns);
                PredictionAndTarget::SubTokens {
                    predicted,
                    targets: tokens.clone(),
                    names: classes,
                }
            }
            (Targets::Links(pairs), _) => {
                let dot = |left: &[f32], right: &[f32]| {
                    left.iter().zip(right).map(|(left, right)| left * right).sum()
                };
                let row = |&row: &usize| {
                    matrix.iter().map(|other| sigmoid(dot(&matrix[row], other))).collect()
                };
                PredictionAndTarget::Links {
                    probabilities: rows.iter().map(row).collect(),
                    targets: pairs.clone(),
                }
            }
        }
    }
}

/// Converts the recorded tensors of one layer to nested vectors.
fn layer(parts: &AttentionComponents) -> LayerAttention {
    let heads = |part: &Tensor<3>| -> Vec<NestedMatrix> {
        let [_, rows, n] = part.dims();
        let values = host(part.clone());
        values.chunks(rows * n).map(|head| head.chunks(n).map(<[f32]>::to_vec).collect()).collect()
    };
    let (position, content) =
        (parts.position.as_ref().map(heads), parts.content.as_ref().map(heads));
    let of_head = |(head, attention): (usize, NestedMatrix)| HeadAttention {
        position: position.as_ref().map(|heads| heads[head].clone()),
        content: content.as_ref().map(|heads| heads[head].clone()),
        attention,
    };
    LayerAttention::new(heads(&parts.attention).into_iter().enumerate().map(of_head).collect())
}

/// Copies a tensor to a host vector.
pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn argmax(probabilities: &[f32]) -> u32 {
    let max = probabilities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    probabilities.iter().position(|&probability| probability == max).unwrap_or(0) as u32
}

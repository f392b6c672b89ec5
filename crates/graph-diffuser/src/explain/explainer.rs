//! From a trained run to the trace of one graph.

use burn::module::Module as _;
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::inference_input::Featurizer;
use graph_diffuser_data::molecule::MoleculeError;
use graph_diffuser_data::{
    Dataset, Diagnostic as _, FeatureSchema, Features, Graph, Split, TargetSchema, Targets,
    grid_histogram,
};

use crate::batch::{Batcher, ChunkedEval, GraphBatch};
use crate::model::GraphDiffuser;
use crate::ops::AttentionComponents;
use crate::recipe::Recipe;
use crate::run::{Run, RunError};
use crate::task::sub_tokens::predicted_words;
use crate::transformer::AttentionScores;

use super::atoms;
use super::trace::{
    AttentionTrace, HeadAttention, LayerAttention, Matrix, PredictionAndTarget, Structure,
    TracedGraph,
};

/// Graphs of up to so many nodes are traced whole; of larger ones only the asked rows. All rows of such a graph
/// are some 10 MB of JSON a layer of four heads.
pub(super) const WHOLE_UP_TO: usize = 256;

/// Why something cannot be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// Nothing attends.
    #[error("`{recipe}` has no Transformer layer, so nothing attends to anything")]
    NoAttention {
        /// Name of the recipe.
        recipe: String,
    },
    /// A number beyond what there is.
    #[error("there is no {what} {number}: {whose} has {what}s 0 to {last}")]
    OutOfRange {
        /// `graph`, `node`, `layer`, `head` or `color`.
        what: &'static str,
        /// What was asked for.
        number: usize,
        /// Who has them.
        whose: String,
        /// The last there is.
        last: usize,
    },
    /// The nodes have no colours that could be changed.
    #[error("graph {number} is no coloured grid, so nothing in it can be recoloured")]
    NoColours {
        /// Number of the graph.
        number: usize,
    },
    /// The model knows no molecules.
    #[error("`{recipe}` was not trained on molecules that a SMILES says all about")]
    NoMolecules {
        /// Name of the recipe.
        recipe: String,
    },
    /// The molecule cannot be read, or the model does not know its atoms.
    #[error(transparent)]
    Molecule(#[from] MoleculeError),
    /// The run cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl ExplainError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoAttention { .. } => {
                Some("choose a run whose recipe has `model.layers` above 0".into())
            }
            Self::OutOfRange { what, last, .. } => {
                Some(format!("give a {what} between 0 and {last}"))
            }
            Self::NoColours { .. } => Some("choose a graph of a run on grids".into()),
            Self::NoMolecules { .. } => {
                Some("choose a run on ZINC, ogbg-mol, peptides, or molecules of your own".into())
            }
            Self::Molecule(MoleculeError::Empty | MoleculeError::NoAtoms) => {
                Some("write one such as `CCO`".into())
            }
            Self::Molecule(fault) => fault.hint(),
            Self::Run(error) => error.hint(),
        }
    }
}

/// Asks a trained model what it looks at.
#[derive(Debug)]
pub struct Explainer<'a> {
    recipe: &'a Recipe,
    dataset: &'a Dataset,
    pub(super) model: GraphDiffuser,
    pub(super) batcher: Batcher,
}

impl<'a> Explainer<'a> {
    /// Opens the best weights of a run.
    ///
    /// # Errors
    /// Where there are none, or the model has no attention.
    pub fn open(run: &'a Run, dataset: &'a Dataset, device: &Device) -> Result<Self, ExplainError> {
        let model = run.best_model(dataset, device)?;
        Self::new(run.recipe(), dataset, model, device)
    }

    /// Explains `model`, which `recipe` built.
    ///
    /// # Errors
    /// Where it has no attention.
    pub fn new(
        recipe: &'a Recipe,
        dataset: &'a Dataset,
        model: GraphDiffuser,
        device: &Device,
    ) -> Result<Self, ExplainError> {
        if recipe.model.layers == 0 {
            return Err(ExplainError::NoAttention { recipe: recipe.name.clone() });
        }
        let batcher = recipe.model.batcher(&device.clone().inner(), DType::F32);
        let batcher = Batcher { chunked_eval: Some(ChunkedEval::default()), ..batcher };
        Ok(Self { recipe, dataset, model: model.valid(), batcher })
    }

    /// What the model learned from.
    pub fn dataset(&self) -> &Dataset {
        self.dataset
    }

    /// What the model was built by.
    pub fn recipe(&self) -> &Recipe {
        self.recipe
    }

    /// Number in the dataset of a graph of one split.
    ///
    /// # Errors
    /// Where the split has no such graph.
    pub fn graph(&self, split: Split, place: usize) -> Result<usize, ExplainError> {
        let numbers = self.dataset.split(split);
        let name = match split {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        };
        numbers.get(place).copied().ok_or_else(|| ExplainError::OutOfRange {
            what: "graph",
            number: place,
            whose: format!("the {name} split"),
            last: numbers.len().saturating_sub(1),
        })
    }

    /// Finds whether a node of a graph, a layer and a head exist; `name` is what the graph is called.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(
        &self,
        graph: &Graph,
        name: &str,
        node: Option<usize>,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> Result<(), ExplainError> {
        let heads = self.recipe.model.attention.as_ref().map_or(1, |attention| attention.heads);
        let nodes = graph.nodes + usize::from(self.has_cls());
        for (what, traced, count, whose) in [
            ("node", node, nodes, name.to_owned()),
            ("layer", layer, self.recipe.model.layers, format!("`{}`", self.recipe.name)),
            ("head", head, heads, "each layer".to_owned()),
        ] {
            if let Some(number) = traced.filter(|&traced| traced >= count) {
                return Err(ExplainError::OutOfRange { what, number, whose, last: count - 1 });
            }
        }
        Ok(())
    }

    /// Whether the model adds a CLS node, which is then the last.
    pub fn has_cls(&self) -> bool {
        self.recipe.model.head.uses_cls()
    }

    /// The rows to trace when none are asked for: all, or the telling one of a large graph.
    pub fn default_rows(&self, graph: &Graph) -> Vec<usize> {
        if self.is_traced_whole(graph.nodes) {
            (0..graph.nodes + usize::from(self.has_cls())).collect()
        } else {
            vec![self.most_focused_node(graph)]
        }
    }

    /// Whether a graph of so many nodes is small enough for all its rows.
    pub fn is_traced_whole(&self, nodes: usize) -> bool {
        nodes <= WHOLE_UP_TO
    }

    /// How many colours a cell of a grid can have; nothing where graphs are not coloured by one category a node.
    pub fn colors(&self) -> Option<usize> {
        match &self.dataset.schema.node_features {
            FeatureSchema::Categorical(sizes) if sizes.len() == 1 => Some(sizes[0]),
            _ => None,
        }
    }

    /// A grid of the dataset with other colours on some cells; where labels count colours, they are counted anew.
    ///
    /// # Errors
    /// Where it is no coloured grid, or there is no such cell or colour.
    pub fn recolored(&self, number: usize, cells: &[(usize, u32)]) -> Result<Graph, ExplainError> {
        let mut graph = self.dataset.graphs.get(number).into_owned();
        let nodes = graph.nodes;
        let structure = atoms::structure(&graph, &self.dataset.schema);
        let (Structure::Grid { columns, .. }, Some(colors)) = (structure, self.colors()) else {
            return Err(ExplainError::NoColours { number });
        };
        let Features::Categorical { values, .. } = &mut graph.node_features else {
            return Err(ExplainError::NoColours { number });
        };
        let counts = |values: &[u32], highest: u32| -> Vec<u32> {
            grid_histogram::labels(values, columns)
                .into_iter()
                .map(|label| label.min(highest))
                .collect()
        };
        let highest = (self.dataset.schema.targets.outputs() as u32).saturating_sub(1);
        let counted = matches!(&graph.targets, Targets::NodeClasses(classes) if *classes == counts(values, highest));
        for &(cell, color) in cells {
            for (what, traced, count) in [("node", cell, nodes), ("colour", color as usize, colors)]
            {
                if traced >= count {
                    let whose = format!("graph {number}");
                    return Err(ExplainError::OutOfRange {
                        what,
                        number: traced,
                        whose,
                        last: count - 1,
                    });
                }
            }
            values[cell] = color;
        }
        if counted {
            graph.targets = Targets::NodeClasses(counts(values, highest));
        }
        Ok(graph)
    }

    /// Whether [`Explainer::molecule`] can be asked.
    pub fn reads_molecules(&self) -> bool {
        self.recipe.data.featurizer() != Featurizer::Graphs
    }

    /// A molecule as the model is given it; its targets say nothing.
    ///
    /// # Errors
    /// Where it is none, or the model knows no such atoms or no molecules at all.
    pub fn molecule(&self, smiles: &str) -> Result<Graph, ExplainError> {
        if !self.reads_molecules() {
            return Err(ExplainError::NoMolecules { recipe: self.recipe.name.clone() });
        }
        Ok(self.recipe.data.featurizer().molecule(smiles, self.dataset.schema.targets)?)
    }

    /// The node with most to tell: the CLS node, the one with the highest class where classes count
    /// something, else the one whose attention in the last layer is the least spread out.
    pub fn most_focused_node(&self, graph: &Graph) -> usize {
        if self.has_cls() {
            return graph.nodes;
        }
        let first_of_most = |values: &mut dyn Iterator<Item = f64>| {
            let best = values.enumerate().fold(
                None,
                |best: Option<(usize, f64)>, (node, value)| match best {
                    Some((_, most)) if value <= most => best,
                    _ => Some((node, value)),
                },
            );
            best.map_or(0, |(node, _)| node)
        };
        if let Targets::NodeClasses(classes) = &graph.targets {
            return first_of_most(&mut classes.iter().map(|&class| f64::from(class)));
        }
        if graph.nodes > WHOLE_UP_TO {
            let mut degrees = vec![0.0; graph.nodes];
            graph.edges.iter().for_each(|edge| degrees[edge[0] as usize] += 1.0);
            return first_of_most(&mut degrees.into_iter());
        }
        let trace = self.trace(graph, None, &(0..graph.nodes).collect::<Vec<_>>());
        let last = &trace.layers[trace.layers.len() - 1].mean.attention;
        let plain = |weight: &f32| f64::from(*weight);
        let focus = |row: &Vec<f32>| {
            row.iter().map(plain).map(|weight| weight * weight.max(1e-30).ln()).sum::<f64>()
        };
        first_of_most(&mut last.iter().map(focus))
    }

    /// What the model looks at from the nodes `rows` of one graph; the number of nodes stands for the CLS node.
    /// One that is not of the dataset has no number, and nobody knows its targets.
    pub fn trace(&self, graph: &Graph, number: Option<usize>, rows: &[usize]) -> AttentionTrace {
        // The model takes the CLS node last, and wants a node beside it.
        let mut rows: Vec<usize> = rows.to_vec();
        rows.sort_unstable();
        rows.dedup();
        if rows.iter().all(|&row| row >= graph.nodes) {
            rows.insert(0, 0);
        }
        let batch = self.collate(&[graph], number.unwrap_or(0));
        let (output, inside) = self.model.forward_traced(&batch, &rows);
        let own = rows.iter().filter(|&&row| row < graph.nodes).count();
        let schema = &self.dataset.schema;
        let weighed = inside.relations.as_ref();
        AttentionTrace {
            format: AttentionTrace::FORMAT.to_owned(),
            recipe: self.recipe.name.clone(),
            graph: TracedGraph {
                number,
                nodes: graph.nodes,
                edges: graph.edges.clone(),
                node_features: feature_rows(&graph.node_features),
                edge_features: feature_rows(&graph.edge_features),
                labels: atoms::labels(graph, schema),
                structure: atoms::structure(graph, schema),
            },
            cls: self.has_cls(),
            combine: self.recipe.model.attention.as_ref().and_then(|attention| {
                match attention.scores {
                    AttentionScores::PositionAndContent { combine, .. } => Some(combine),
                    AttentionScores::Position { .. } | AttentionScores::Content {} => None,
                }
            }),
            layers: inside.layers.iter().map(layer).collect(),
            edge_weights: weighed.map(|relations| host(relations.weights.clone())),
            walks: weighed.map(|relations| {
                let values = host(relations.walks.clone());
                let steps: Vec<&[f32]> = values.chunks(own * graph.nodes).collect();
                let from = |row: usize| {
                    let to =
                        |step: &&[f32]| step[row * graph.nodes..(row + 1) * graph.nodes].to_vec();
                    steps.iter().map(to).collect()
                };
                (0..own).map(from).collect()
            }),
            outcome: {
                let [_, columns] = output.dims();
                let mut outcome = self.outcome(graph, &host(output), columns, &rows[..own]);
                if let (PredictionAndTarget::GraphClass { target, .. }, None) =
                    (&mut outcome, number)
                {
                    *target = None;
                }
                outcome
            },
            rows,
        }
    }

    /// Predictions for several graphs that look like `number`, one after another: probabilities or values.
    pub(super) fn predictions(&self, graphs: &[&Graph], number: usize) -> Vec<Matrix> {
        let output = self
            .model
            .forward(&self.collate(graphs, number), &crate::nn::ForwardContext::evaluate());
        let [rows, columns] = output.dims();
        assert!(
            rows.is_multiple_of(graphs.len()),
            "{rows} rows of {} graphs of one size",
            graphs.len()
        );
        let values: Matrix = host(output).chunks(columns).map(|row| self.readable(row)).collect();
        values.chunks(rows / graphs.len()).map(<[Vec<f32>]>::to_vec).collect()
    }

    fn collate(&self, graphs: &[&Graph], number: usize) -> GraphBatch {
        self.batcher.collate_graphs(graphs, self.dataset.schema.targets, vec![number; graphs.len()])
    }

    /// A row of the output as probabilities, where it is scores.
    fn readable(&self, row: &[f32]) -> Vec<f32> {
        match self.dataset.schema.targets {
            TargetSchema::NodeMulticlass(_)
            | TargetSchema::Multiclass(_)
            | TargetSchema::SubTokens(_) => softmax(row),
            TargetSchema::Multilabel(_) => row.iter().copied().map(sigmoid).collect(),
            TargetSchema::Regression(_) | TargetSchema::LinkPrediction => row.to_vec(),
        }
    }

    /// What the rows of the output mean; links are told from the nodes `rows`.
    pub(super) fn outcome(
        &self,
        graph: &Graph,
        values: &[f32],
        columns: usize,
        rows: &[usize],
    ) -> PredictionAndTarget {
        let matrix: Matrix = values.chunks(columns).map(|row| self.readable(row)).collect();
        let (names, classes) =
            (self.dataset.schema.names.targets.clone(), self.dataset.schema.names.classes.clone());
        let known = |values: &[f32]| {
            values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
        };
        match (&graph.targets, self.dataset.schema.targets) {
            (Targets::NodeClasses(targets), _) => PredictionAndTarget::NodeClasses {
                predicted: matrix.iter().map(|row| likeliest(row)).collect(),
                probabilities: matrix,
                targets: targets.clone(),
                names: classes,
            },
            (Targets::GraphValues(targets), TargetSchema::Multilabel(_)) => {
                PredictionAndTarget::GraphLabels {
                    probabilities: matrix.concat(),
                    targets: known(targets),
                    names,
                }
            }
            (Targets::GraphValues(targets), _) => PredictionAndTarget::GraphValues {
                predicted: matrix.concat(),
                targets: known(targets),
                names,
            },
            (Targets::GraphClass(target), _) => {
                let probabilities = matrix.concat();
                PredictionAndTarget::GraphClass {
                    predicted: likeliest(&probabilities),
                    probabilities,
                    target: Some(*target),
                    names: classes,
                }
            }
            (Targets::SubTokens(words), _) => {
                let positions = values.len() / columns;
                let predicted = predicted_words(values, columns, positions).concat();
                PredictionAndTarget::Words { predicted, targets: words.clone(), names: classes }
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

fn layer(parts: &AttentionComponents) -> LayerAttention {
    let heads = |part: &Tensor<3>| -> Vec<Matrix> {
        let [_, rows, n] = part.dims();
        let values = host(part.clone());
        values.chunks(rows * n).map(|head| head.chunks(n).map(<[f32]>::to_vec).collect()).collect()
    };
    let (position, content) =
        (parts.position.as_ref().map(heads), parts.content.as_ref().map(heads));
    let of_head = |(head, attention): (usize, Matrix)| HeadAttention {
        position: position.as_ref().map(|heads| heads[head].clone()),
        content: content.as_ref().map(|heads| heads[head].clone()),
        attention,
    };
    LayerAttention::new(heads(&parts.attention).into_iter().enumerate().map(of_head).collect())
}

pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn feature_rows(features: &Features) -> Matrix {
    match features {
        Features::None => vec![],
        Features::Categorical { columns, values } => values
            .chunks(*columns)
            .map(|row| row.iter().map(|&value| value as f32).collect())
            .collect(),
        Features::Float { columns, values } => {
            values.chunks(*columns).map(<[f32]>::to_vec).collect()
        }
    }
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn likeliest(probabilities: &[f32]) -> u32 {
    let most = probabilities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    probabilities.iter().position(|&probability| probability == most).unwrap_or(0) as u32
}

//! Attention traces of a trained run.
//!
//! [`Explainer::trace`] runs the model on one graph and records position, content and attention
//! weights (Eq. 6–8) of every layer and head.

use std::sync::Arc;

use burn::tensor::{DType, Device};
use graph_diffuser_data::benchmarks::grid_histogram;
use graph_diffuser_data::{Dataset, FeatureSchema, Features, Graph, MISSING_CLASS, Split, Targets};

use crate::batch::Batcher;
use crate::model::GraphDiffuser;
use crate::nn::CancelFlag;
use crate::recipe::Recipe;
use crate::run::{Run, SavedModel};

use super::atoms::structure;
use super::decode::{activate, decode};
use super::error::ExplainError;
use super::structure::Structure;
use super::trace::{AttentionTrace, NestedMatrix, TracedGraph};
use super::traced_model::{TracedModel, score_combination};

/// Largest graph of which all rows are traced by default.
///
/// A full trace of such a graph takes about 10 MB of JSON per layer of four heads.
pub(super) const MAX_FULLY_TRACED_NODES: usize = 256;

/// Records the attention of a trained model.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
///
/// use graph_diffuser::Device;
/// use graph_diffuser::explain::Explainer;
/// use graph_diffuser::recipe::DataDirs;
/// use graph_diffuser::run::Run;
/// use graph_diffuser_data::Split;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = Run::open("runs/grid-quick-s0".as_ref())?;
/// let dataset = Arc::new(run.recipe().dataset(&DataDirs::from_env())?);
/// let explainer = Explainer::open(&run, dataset.clone(), &Device::flex())?;
/// let index = explainer.graph_index(Split::Test, None)?;
/// let graph = dataset.graphs.get(index);
/// let trace = explainer.trace(&graph, Some(index), &[5]);
/// println!("{:?}", trace.head(0, None).attention[0]); // attention of node 5 in the first layer
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Explainer {
    recipe: Recipe,
    dataset: Arc<Dataset>,
    pub(super) model: TracedModel,
}

impl Explainer {
    /// Loads the best checkpoint of a run.
    ///
    /// # Errors
    /// Returns an error if the run has no usable checkpoint or its model has no attention layer.
    pub fn open(run: &Run, dataset: Arc<Dataset>, device: &Device) -> Result<Self, ExplainError> {
        let model = run.best_model(&dataset, device)?;
        Self::new(run.recipe().clone(), dataset, model, run.batcher(device))
    }

    /// Creates the explainer of a saved model, which needs no run directory; its dataset is empty.
    /// `member` is the index of the member of an ensemble, or 0.
    ///
    /// # Errors
    /// Returns an error if the weights are corrupt, there is no such member, or the model has no
    /// attention layer.
    pub fn from_saved(
        saved: &SavedModel,
        member: usize,
        device: &Device,
    ) -> Result<Self, ExplainError> {
        let model = saved.model(member, device)?;
        let batcher = saved.recipe.model.batcher(device, DType::F32);
        Self::new(saved.recipe.clone(), Arc::new(saved.empty_dataset()), model, batcher)
    }

    /// Creates an explainer of `model`, which was built from `recipe`.
    ///
    /// # Errors
    /// Returns an error if the model has no attention layer.
    pub fn new(
        recipe: Recipe,
        dataset: Arc<Dataset>,
        model: GraphDiffuser,
        batcher: Batcher,
    ) -> Result<Self, ExplainError> {
        if recipe.model.layers == 0 {
            return Err(ExplainError::NoAttention { recipe: recipe.name });
        }
        Ok(Self { recipe, dataset, model: TracedModel::new(model, batcher) })
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Returns the recipe of the model.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Returns a dataset index: `index` itself, or that of the first graph of a split.
    ///
    /// # Errors
    /// Returns an error if there is no such graph.
    pub fn graph_index(&self, split: Split, index: Option<usize>) -> Result<usize, ExplainError> {
        let graphs = self.dataset.graphs.len();
        let (index, owner) = if let Some(index) = index {
            (index, "the dataset".to_owned())
        } else {
            let first = self.dataset.split(split).first().copied();
            (first.unwrap_or(graphs), format!("the {split} split"))
        };
        if index < graphs {
            return Ok(index);
        }
        let last = graphs.saturating_sub(1);
        Err(ExplainError::OutOfRange { what: "graph", index, owner, last })
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
        let structure = structure(&graph, &self.dataset.schema);
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
        self.recipe.data.featurizer().accepts_smiles()
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
        Ok(self.recipe.data.featurizer().featurize_smiles(smiles, &self.dataset.schema.targets)?)
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
        if let Targets::NodeClasses(classes) = &graph.targets
            && classes.iter().any(|&class| class != MISSING_CLASS)
        {
            let value = |&class: &u32| if class == MISSING_CLASS { -1.0 } else { f64::from(class) };
            return first_argmax(&mut classes.iter().map(value));
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
        let trace = self.trace_until(graph, index, rows, &CancelFlag::default());
        trace.expect("the flag is never set")
    }

    /// Records attention as [`Explainer::trace`] does, until another thread sets `cancel`, which is
    /// looked at between the layers of the model, and between chunks of a large graph.
    ///
    /// # Errors
    /// Returns [`ExplainError::Canceled`] if the flag was set before the end.
    pub fn trace_until(
        &self,
        graph: &Graph,
        index: Option<usize>,
        rows: &[usize],
        cancel: &CancelFlag,
    ) -> Result<AttentionTrace, ExplainError> {
        // The model expects the CLS node last and at least one ordinary node.
        let mut rows: Vec<usize> = rows.to_vec();
        rows.sort_unstable();
        rows.dedup();
        if rows.iter().all(|&row| row >= graph.num_nodes) {
            rows.insert(0, 0);
        }
        let schema = &self.dataset.schema;
        let traced = self.model.trace(graph, index.unwrap_or(0), &rows, cancel);
        let (output, internals) = traced.ok_or(ExplainError::Canceled)?;
        let node_rows = rows.partition_point(|&row| row < graph.num_nodes);
        let outcome = decode(graph, &output.values, output.columns, &rows[..node_rows], schema);
        Ok(AttentionTrace {
            format: AttentionTrace::FORMAT.to_owned(),
            recipe: self.recipe.name.clone(),
            graph: TracedGraph::new(graph, index, schema),
            rows,
            cls: self.has_cls(),
            combine: score_combination(&self.recipe.model),
            layers: internals.layers,
            edge_weights: internals.edge_weights,
            walks: internals.walks,
            outcome,
        })
    }

    /// Predicts probabilities or values of several variants of the graph at `index`.
    pub(super) fn predictions(&self, graphs: &[&Graph], index: usize) -> Vec<NestedMatrix> {
        let targets = &self.dataset.schema.targets;
        let output = self.model.predict_variants(graphs, index);
        assert!(
            output.rows.is_multiple_of(graphs.len()),
            "{} output rows for {} graphs of equal size",
            output.rows,
            graphs.len()
        );
        let values: NestedMatrix =
            output.values.chunks(output.columns).map(|row| activate(row, targets)).collect();
        values.chunks(output.rows / graphs.len()).map(<[Vec<f32>]>::to_vec).collect()
    }
}

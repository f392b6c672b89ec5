//! Random forests for the targets of a dataset.

use std::sync::atomic::AtomicBool;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::chem::MoleculeFeatures;
use graph_diffuser_data::{Dataset, Schema, SeedTree, Split, TargetKind, TargetSchema, Targets};
use graph_diffuser_kernels::parallel_map;

use crate::batch::GraphBatch;
use crate::task::{Predictions, SampleRows};

use super::{ForestTask, RandomForest};

/// Number of trees of a forest.
const TREES: usize = 100;

/// Maximum number of training molecules of a forest; of larger datasets, evenly spaced molecules
/// are used.
const MAX_MOLECULES: usize = 40_000;

/// Maximum number of training values of all forests: with several targets, they have fewer
/// molecules, which limits the time that a comparison takes to minutes.
const MAX_VALUES: usize = 80_000;

/// Random forests trained on the training molecules of a dataset, one for each target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetForests {
    /// Forest and kind of each target.
    pub(super) forests: Vec<(RandomForest, TargetKind)>,
}

impl TargetForests {
    /// Checks that there are training values of every target.
    ///
    /// # Errors
    /// Returns the name of the first target without training values.
    pub fn check(dataset: &Dataset) -> Result<(), String> {
        let TargetSchema::Graph(kinds) = &dataset.schema.targets else { return Ok(()) };
        let mut missing = vec![true; kinds.len()];
        for graph in training_sample(dataset, kinds.len()) {
            if let Targets::GraphValues(values) = &dataset.graphs.get(graph).targets {
                missing
                    .iter_mut()
                    .zip(values)
                    .for_each(|(missing, value)| *missing &= value.is_nan());
            }
        }
        match missing.iter().position(|&missing| missing) {
            None => Ok(()),
            Some(target) => Err(dataset.schema.names.target(target, kinds.len())),
        }
    }

    /// Trains the forests; `None` if the graphs are not molecules with OGB features, the targets
    /// are not graph-level, a target has no training values, or `stop` is set meanwhile.
    pub fn fit(dataset: &Dataset, seed: u64, stop: &AtomicBool) -> Option<Self> {
        let TargetSchema::Graph(kinds) = &dataset.schema.targets else { return None };
        let mut molecules = Vec::new();
        for graph in training_sample(dataset, kinds.len()) {
            let graph = dataset.graphs.get(graph);
            let Targets::GraphValues(values) = &graph.targets else { return None };
            molecules.push((MoleculeFeatures::of(&graph)?, values.clone()));
        }
        let fit = |(target, &kind): (usize, &TargetKind)| {
            let observed = molecules.iter().filter(|(_, values)| !values[target].is_nan());
            let (molecules, values): (Vec<&MoleculeFeatures>, Vec<f64>) =
                observed.map(|(molecule, values)| (molecule, f64::from(values[target]))).unzip();
            if molecules.is_empty() {
                return None;
            }
            let (targets, task) = match kind {
                TargetKind::Regression(_) => (values, ForestTask::Regression),
                TargetKind::Binary => (values, ForestTask::Classification),
                TargetKind::Multiclass(classes) => {
                    let one_hot = |value: f64| {
                        (0..classes).map(move |class| f64::from(class == value as usize))
                    };
                    (values.into_iter().flat_map(one_hot).collect(), ForestTask::Classification)
                }
            };
            // Forests of different targets draw different samples.
            let seeds = SeedTree::new(SeedTree::new(seed).stream_at("target", target as u64).key());
            let forest = RandomForest::fit(&molecules, &targets, task, TREES, seeds, stop)?;
            Some((forest, kind))
        };
        let forests: Option<Vec<_>> = kinds.iter().enumerate().map(fit).collect();
        forests.map(|forests| Self { forests })
    }

    /// Returns the maximum number of training molecules for a number of targets.
    pub fn max_molecules(targets: usize) -> usize {
        MAX_MOLECULES.min(MAX_VALUES / targets.max(1)).max(1)
    }

    /// Returns whether the forests predict the graph-level targets of a schema.
    pub fn has_targets_of(&self, schema: &Schema) -> bool {
        let TargetSchema::Graph(kinds) = &schema.targets else { return false };
        self.forests.iter().map(|(_, kind)| kind).eq(kinds)
    }

    /// Predicts a molecule: values, log-odds and log-probabilities, as in
    /// [`Predictions::outputs`](crate::task::Predictions::outputs).
    pub fn outputs(&self, molecule: &MoleculeFeatures) -> Vec<f64> {
        let outputs = |(forest, kind): &(RandomForest, TargetKind)| {
            let mut values = forest.predict(molecule);
            // No tree is certain: half a vote for each class.
            let smooth = |probability: f64, classes: usize| {
                (probability * TREES as f64 + 0.5) / (TREES as f64 + 0.5 * classes as f64)
            };
            match kind {
                TargetKind::Regression(_) => {}
                TargetKind::Binary => {
                    let probability = smooth(values[0], 2);
                    values[0] = probability.ln() - (1.0 - probability).ln();
                }
                TargetKind::Multiclass(classes) => {
                    for value in &mut values {
                        *value = smooth(*value, *classes).ln();
                    }
                }
            }
            values
        };
        self.forests.iter().flat_map(outputs).collect()
    }

    /// Predicts the molecules of a batch in the form of a model output, whose regression values are
    /// standardized; `like` is the output of a model for the batch.
    ///
    /// # Shapes
    /// - `like`, returned tensor: `[b, outputs]`
    pub fn batch_output(
        &self,
        dataset: &Dataset,
        batch: &GraphBatch,
        like: &Tensor<2>,
    ) -> Tensor<2> {
        let row = |graph: usize| {
            let mut outputs = self.graph_outputs(dataset, graph);
            let mut column = 0;
            for (_, kind) in &self.forests {
                if let TargetKind::Regression(standardization) = kind {
                    let value = outputs[column] as f32;
                    outputs[column] = f64::from(standardization.apply(value));
                }
                column += kind.outputs();
            }
            outputs
        };
        let rows: Vec<f64> = parallel_map(batch.indices.clone(), row).concat();
        Tensor::from_data(TensorData::new(rows, like.dims()), (&like.device(), like.dtype()))
    }

    pub(super) fn graph_outputs(&self, dataset: &Dataset, graph: usize) -> Vec<f64> {
        let molecule = MoleculeFeatures::of(&dataset.graphs.get(graph));
        self.outputs(&molecule.expect("all graphs of a dataset have the same features"))
    }

    /// Predicts the molecules of other predictions.
    pub fn predictions(&self, dataset: &Dataset, others: &Predictions) -> Predictions {
        let row = |graph: u32| self.graph_outputs(dataset, graph as usize);
        let rows = parallel_map(others.graphs.clone(), row);
        let outputs = SampleRows { columns: others.outputs.columns, values: rows.concat() };
        Predictions { outputs, ..others.clone() }
    }
}

/// Returns the training molecules of a forest, evenly spaced if there are too many.
fn training_sample(dataset: &Dataset, targets: usize) -> impl Iterator<Item = usize> {
    let train = dataset.split(Split::Train);
    let step = train.len().div_ceil(TargetForests::max_molecules(targets)).max(1);
    train.iter().copied().step_by(step)
}

#[cfg(test)]
pub(super) mod tests {
    use graph_diffuser_data::chem::{Molecule, ogb_schema};
    use graph_diffuser_data::{Graph, Graphs, Splits, Standardization};

    use crate::task::{Metric, TargetScores};

    use super::*;

    /// Returns alkanes and alcohols with their number of atoms, whether they are alcohols, and a
    /// class; some values of the second target are missing.
    pub(in crate::forest) fn dataset() -> Dataset {
        let smiles = |index: usize| "C".repeat(1 + index / 2) + ["", "O"][index % 2];
        let graph = |index: usize| {
            let molecule = Molecule::from_smiles(&smiles(index)).expect("valid SMILES");
            let alcohol = (index % 2) as f32;
            let label = if index % 7 == 3 { f32::NAN } else { alcohol };
            let values = vec![(1 + index / 2) as f32 + alcohol, label, alcohol];
            Graph { targets: Targets::GraphValues(values), ..molecule.ogb_graph() }
        };
        let kinds = vec![
            TargetKind::Regression(Standardization::IDENTITY),
            TargetKind::Binary,
            TargetKind::Multiclass(2),
        ];
        Dataset {
            graphs: Graphs::InMemory((0..60).map(graph).collect()),
            schema: ogb_schema(TargetSchema::Graph(kinds)),
            splits: Splits {
                train: (0..60).filter(|index| index % 5 != 0).collect(),
                valid: vec![],
                test: (0..60).step_by(5).collect(),
            },
        }
    }

    #[test]
    fn forest_scores_every_kind_of_target() {
        let dataset = dataset();
        let go = AtomicBool::new(false);
        let forest =
            TargetForests::fit(&dataset, 0, &go).expect("molecules with graph-level targets");
        let TargetSchema::Graph(kinds) = dataset.schema.targets.clone() else { panic!("graphs") };
        let graphs: Vec<u32> = dataset.splits.test.iter().map(|&graph| graph as u32).collect();
        let targets = graphs.iter().flat_map(|&graph| {
            let Targets::GraphValues(values) = &dataset.graphs.get(graph as usize).targets else {
                panic!("graph values")
            };
            values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>()
        });
        let untrained = Predictions {
            metrics: vec![Metric::Loss],
            kinds,
            samples: vec![1; graphs.len()],
            outputs: SampleRows { columns: 4, values: vec![0.0; 4 * graphs.len()] },
            targets: SampleRows { columns: 3, values: targets.collect() },
            graphs,
        };
        let predictions = forest.predictions(&dataset, &untrained);
        let scores = TargetScores::compute(&untrained, &dataset.schema, None);
        let scores = TargetScores::with_forest(scores, &predictions);
        let score =
            |target: usize, metric| scores[target].metrics[&metric].forest.expect("defined");
        assert!(score(0, Metric::R2) > 0.95, "{}", score(0, Metric::R2));
        assert_eq!(score(1, Metric::RocAuc), 1.0);
        assert_eq!(score(2, Metric::Accuracy), 1.0);
        assert_eq!(
            TargetForests::fit(&dataset, 0, &go),
            Some(forest),
            "equal seeds, equal forests"
        );
    }

    #[test]
    fn fitting_ends_when_it_is_stopped() {
        assert_eq!(TargetForests::fit(&dataset(), 0, &AtomicBool::new(true)), None);
    }

    #[test]
    fn many_targets_limit_the_number_of_molecules() {
        assert_eq!([1, 2, 12, 165].map(TargetForests::max_molecules), [40_000, 40_000, 6_666, 484]);
        assert_eq!(TargetForests::max_molecules(1_000_000), 1);
    }
}

//! Random forest on Morgan fingerprints and descriptors: the method that chemists compare with, and
//! whose predictions can be blended with those of a model.

mod target_forests;
mod blend;
mod tree;
mod file;

use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser_data::SeedTree;
use graph_diffuser_data::chem::{Fingerprint, MoleculeFeatures, NUM_DESCRIPTORS};
use graph_diffuser_kernels::parallel_map;

use tree::{BinnedFeatures, Growth, Tree};

pub(crate) use blend::BlendSelection;
pub use blend::ForestBlend;
pub use target_forests::TargetForests;

/// Number of quantile bins of a descriptor.
const DESCRIPTOR_BINS: usize = 64;

/// Kind of the targets of a forest, which determines how many columns a split considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForestTask {
    /// A third of the columns per split.
    Regression,
    /// The square root of the number of columns per split.
    Classification,
}

/// Random forest on fingerprints and descriptors of molecules.
///
/// Trees predict the mean target of their leaves, so that a forest on 0/1 labels predicts
/// probabilities. The result does not depend on the number of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomForest {
    trees: Vec<Tree>,
    outputs: usize,
    /// Fingerprint bin of each of the first columns.
    bins: Vec<u16>,
    /// Upper limits of the bins of each descriptor.
    limits: Vec<Vec<f64>>,
}

impl RandomForest {
    /// Trains `trees` trees on bootstrap samples of the rows; `None` if `stop` is set meanwhile.
    ///
    /// # Shapes
    /// - `targets`: `[molecules, outputs]`, in row-major order
    ///
    /// # Panics
    /// Panics if there are no molecules, or the number of targets is not a multiple of theirs.
    pub fn fit(
        molecules: &[&MoleculeFeatures],
        targets: &[f64],
        task: ForestTask,
        trees: usize,
        seeds: SeedTree,
        stop: &AtomicBool,
    ) -> Option<Self> {
        assert!(!molecules.is_empty(), "a forest needs training molecules");
        let outputs = targets.len() / molecules.len();
        assert_eq!(targets.len(), outputs * molecules.len(), "one row of targets per molecule");
        let mut used = vec![false; Fingerprint::BINS];
        for molecule in molecules {
            for &(bin, _) in molecule.fingerprint.counts() {
                used[usize::from(bin)] = true;
            }
        }
        let bins: Vec<u16> =
            (0..Fingerprint::BINS as u16).filter(|&bin| used[usize::from(bin)]).collect();
        let limits = (0..NUM_DESCRIPTORS).map(|column| quantiles(molecules, column)).collect();
        let mut forest = Self { trees: Vec::new(), outputs, bins, limits };
        let columns = forest.bins.len() + NUM_DESCRIPTORS;
        let rows = molecules.iter().map(|molecule| forest.row(molecule));
        let features = BinnedFeatures::new(rows, columns);
        let columns_per_split = match task {
            ForestTask::Regression => columns.div_ceil(3),
            ForestTask::Classification => (columns as f64).sqrt().ceil() as usize,
        };
        let growth = Growth { columns_per_split, min_leaf: 1 };
        let grow = |tree: usize| {
            let mut stream = seeds.stream_at("forest", tree as u64);
            let is_stopped = stop.load(Ordering::Relaxed);
            (!is_stopped).then(|| Tree::grow(&features, targets, outputs, growth, &mut stream))
        };
        let trees = parallel_map((0..trees).collect(), grow);
        forest.trees = trees.into_iter().collect::<Option<_>>()?;
        Some(forest)
    }

    /// Predicts the targets of a molecule, `[outputs]`.
    pub fn predict(&self, molecule: &MoleculeFeatures) -> Vec<f64> {
        let row = self.row(molecule);
        let mut sums = vec![0.0; self.outputs];
        for tree in &self.trees {
            let values = tree.predict(self.outputs, |column| row[column as usize]);
            sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sums.into_iter().map(|sum| sum / self.trees.len() as f64).collect()
    }

    /// Returns the binned features of a molecule.
    fn row(&self, molecule: &MoleculeFeatures) -> Vec<u8> {
        let mut counts = vec![0; Fingerprint::BINS];
        for &(bin, count) in molecule.fingerprint.counts() {
            counts[usize::from(bin)] = u8::try_from(count).unwrap_or(u8::MAX);
        }
        let fingerprint = self.bins.iter().map(|&bin| counts[usize::from(bin)]);
        let descriptors = self.limits.iter().zip(&molecule.descriptors);
        let descriptors =
            descriptors.map(|(limits, value)| limits.partition_point(|limit| limit < value) as u8);
        fingerprint.chain(descriptors).collect()
    }
}

/// Returns the distinct quantiles of a descriptor.
fn quantiles(molecules: &[&MoleculeFeatures], column: usize) -> Vec<f64> {
    let mut values: Vec<f64> =
        molecules.iter().map(|molecule| molecule.descriptors[column]).collect();
    values.sort_unstable_by(f64::total_cmp);
    let mut limits: Vec<f64> =
        (1..DESCRIPTOR_BINS).map(|bin| values[bin * values.len() / DESCRIPTOR_BINS]).collect();
    limits.dedup();
    limits
}

#[cfg(test)]
mod tests {
    use graph_diffuser_kernels::ThreadPool;

    use super::*;

    /// Returns molecules whose first descriptors are a uniform random number and its index.
    fn molecules(count: usize) -> Vec<MoleculeFeatures> {
        let mut stream = SeedTree::new(1).stream("molecules");
        let molecule = |index: usize| {
            let mut descriptors = [0.0; NUM_DESCRIPTORS];
            (descriptors[0], descriptors[1]) = (stream.uniform(), index as f64);
            let bins = vec![(stream.below(8) as u16, 1 + stream.below(3) as u16)];
            MoleculeFeatures { fingerprint: Fingerprint::from_counts(bins), descriptors }
        };
        (0..count).map(molecule).collect()
    }

    fn fit(molecules: &[MoleculeFeatures], targets: &[f64]) -> RandomForest {
        let molecules: Vec<&MoleculeFeatures> = molecules.iter().collect();
        RandomForest::fit(
            &molecules,
            targets,
            ForestTask::Regression,
            50,
            SeedTree::new(0),
            &AtomicBool::new(false),
        )
        .expect("not stopped")
    }

    #[test]
    fn forest_learns_a_step_function() {
        let molecules = molecules(400);
        let step = |molecule: &MoleculeFeatures| f64::from(molecule.descriptors[0] > 0.4);
        let (train, test) = molecules.split_at(300);
        let forest = fit(train, &train.iter().map(step).collect::<Vec<_>>());
        let errors =
            test.iter().map(|molecule| (forest.predict(molecule)[0] - step(molecule)).abs());
        let mean = errors.sum::<f64>() / test.len() as f64;
        assert!(mean < 0.05, "{mean}");
    }

    #[test]
    fn forest_does_not_depend_on_the_unit_of_the_targets() {
        let molecules = molecules(100);
        let targets: Vec<f64> = molecules.iter().map(|one| one.descriptors[0].sin()).collect();
        let forest = fit(&molecules, &targets);
        // A power of two, so that all sums are scaled exactly.
        let unit = 2.0_f64.powi(-30);
        let scaled = fit(&molecules, &targets.iter().map(|y| unit * y).collect::<Vec<_>>());
        for molecule in &molecules {
            assert_eq!(scaled.predict(molecule)[0], unit * forest.predict(molecule)[0]);
        }
    }

    #[test]
    fn forest_learns_counts_of_a_fingerprint_bin() {
        let molecules = molecules(400);
        let count = |molecule: &MoleculeFeatures| {
            let counts = molecule.fingerprint.counts();
            counts.iter().find(|(bin, _)| *bin == 3).map_or(0.0, |(_, count)| f64::from(*count))
        };
        let forest = fit(&molecules, &molecules.iter().map(count).collect::<Vec<_>>());
        for molecule in &molecules {
            assert!((forest.predict(molecule)[0] - count(molecule)).abs() < 0.3);
        }
    }

    #[test]
    fn number_of_threads_does_not_change_the_forest() {
        let molecules = molecules(100);
        let targets: Vec<f64> = molecules.iter().map(|one| one.descriptors[0].sin()).collect();
        let with = |threads| ThreadPool::new(threads).install(|| fit(&molecules, &targets));
        assert_eq!(with(1), with(3));
    }

    #[test]
    fn constant_targets_are_predicted_exactly() {
        let molecules = molecules(10);
        let forest = fit(&molecules, &[2.5; 10]);
        assert!(molecules.iter().all(|molecule| forest.predict(molecule) == [2.5]));
    }

    #[test]
    fn several_outputs_are_predicted_by_the_same_trees() {
        let molecules = molecules(200);
        let targets = |one: &MoleculeFeatures| {
            let positive = f64::from(one.descriptors[0] > 0.5);
            [positive, 1.0 - positive]
        };
        let forest = fit(&molecules, &molecules.iter().flat_map(targets).collect::<Vec<_>>());
        for molecule in &molecules {
            let [positive, negative] = forest.predict(molecule)[..] else { panic!("two outputs") };
            assert!((positive + negative - 1.0).abs() < 1e-6);
        }
    }
}

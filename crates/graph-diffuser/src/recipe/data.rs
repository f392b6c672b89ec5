//! Data section of a recipe: a generated dataset, a benchmark, or user files, and its split.

mod dirs;
mod error;
mod split;
mod benchmark;
mod user_files;

use std::path::PathBuf;

use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use graph_diffuser_data::formats::{Featurizer, RowLabels};
use graph_diffuser_data::summary::{Summary, Warning, warnings_from_summary};
use graph_diffuser_data::{Dataset, DatasetReport, ProgressFn, Schema, SplitError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use benchmark::Benchmark;
use user_files::UserDataset;

pub use benchmark::{BenchmarkConfig, Code2Config};
pub use dirs::DataDirs;
pub use error::DataError;
pub use split::SplitConfig;
pub use user_files::{JsonlConfig, OgbCsvConfig, SmilesCsvConfig, TuConfig};

/// Dataset of a recipe, selected by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DataConfig {
    /// Grid Histogram Counting, generated.
    GridHistogram(GridHistogram),
    /// ZINC-12k: penalized logP of molecules (graph regression).
    Zinc(BenchmarkConfig),
    /// Training and validation graphs of ZINC-12k with 10,000 other molecules as test set, for
    /// model development.
    ZincDev(BenchmarkConfig),
    /// ogbg-molhiv, or any other ogbg-mol dataset with binary labels in its layout.
    OgbgMolhiv(BenchmarkConfig),
    /// ogbg-molpcba: 128 binary labels of molecules.
    OgbgMolpcba(BenchmarkConfig),
    /// ogbg-ppa: taxonomic group of protein association networks, 37 classes.
    OgbgPpa(BenchmarkConfig),
    /// ogbg-code2: sub-tokens of method names from abstract syntax trees.
    OgbgCode2(Code2Config),
    /// `PCQM4Mv2`: HOMO-LUMO gap of molecules (graph regression).
    #[serde(rename = "pcqm4mv2")]
    Pcqm4mv2(BenchmarkConfig),
    /// PCQM-Contact: contacts between atoms of a molecule (link prediction).
    PcqmContact(BenchmarkConfig),
    /// Peptides-func: ten binary labels of peptides.
    PeptidesFunc(BenchmarkConfig),
    /// Peptides-struct: eleven structural properties of peptides (graph regression).
    PeptidesStruct(BenchmarkConfig),
    /// CSV file of SMILES and target columns.
    SmilesCsv(SmilesCsvConfig),
    /// JSON or JSON Lines file of graphs.
    Jsonl(JsonlConfig),
    /// Directory in the CSV layout of OGB.
    OgbCsv(OgbCsvConfig),
    /// Directory in the format of the TU datasets.
    Tu(TuConfig),
}

/// Dataset, and how its files were understood.
#[derive(Debug)]
pub struct LoadedDataset {
    /// The dataset.
    pub dataset: Dataset,
    /// Description of the files of a user as they were understood; absent for benchmarks.
    pub report: Option<DatasetReport>,
    /// SMILES and identifiers of the graphs of user files.
    pub rows: RowLabels,
    /// Reason why the dataset is not split, if so.
    pub(super) split_error: Option<SplitError>,
}

impl From<UserDataset> for LoadedDataset {
    fn from(user: UserDataset) -> Self {
        let UserDataset { dataset, mut read, molecules, split, error } = user;
        let rows = std::mem::take(&mut read.rows);
        let split = error.as_ref().map_or(split, |error| format!("not possible, {error}"));
        let report = DatasetReport::new(&dataset, read, molecules, split);
        Self { dataset, report: Some(report), rows, split_error: error }
    }
}

impl LoadedDataset {
    /// Wraps a dataset that was not read from user files.
    pub fn without_report(dataset: Dataset) -> Self {
        Self { dataset, report: None, rows: RowLabels::default(), split_error: None }
    }

    /// Returns the warnings about the dataset; `summary` is its summary.
    ///
    /// Those that the report contains, and those that every small table of molecules would get,
    /// are left out.
    pub fn warnings(&self, summary: &Summary) -> Vec<Warning> {
        let (molecules, splits_nodes) = self
            .report
            .as_ref()
            .map_or((false, false), |report| (report.molecules, report.splits_nodes));
        let mut found = warnings_from_summary(&self.dataset, summary);
        found.retain(|warning| match warning {
            // Few molecules have every kind of atom and bond.
            Warning::ConstantFeature { .. } => !molecules,
            // Duplicate molecules are in the report, and a node split copies graphs.
            Warning::InTwoSplits { .. } => !molecules && !splits_nodes,
            _ => true,
        });
        let not_split = |error: &SplitError| Warning::NotSplit { reason: error.to_string() };
        found.extend(self.split_error.as_ref().map(not_split));
        found
    }
}

/// Kinds of datasets by their reader.
enum Source<'a> {
    GridHistogram(&'a GridHistogram),
    Benchmark(Benchmark, &'a BenchmarkConfig),
    Code2(&'a Code2Config),
    SmilesCsv(&'a SmilesCsvConfig),
    Jsonl(&'a JsonlConfig),
    OgbCsv(&'a OgbCsvConfig),
    Tu(&'a TuConfig),
}

impl DataConfig {
    /// Returns the reason why a generated dataset is impossible, if any.
    pub(super) fn check(&self) -> Option<&'static str> {
        match self {
            Self::GridHistogram(grid) => grid.check(),
            _ => None,
        }
    }

    /// Returns the reader of this kind of dataset and its configuration.
    fn source(&self) -> Source<'_> {
        use Source::Benchmark;
        match self {
            Self::GridHistogram(grid) => Source::GridHistogram(grid),
            Self::Zinc(config) => Benchmark(benchmark::ZINC, config),
            Self::ZincDev(config) => Benchmark(benchmark::ZINC_DEV, config),
            Self::OgbgMolhiv(config) => Benchmark(benchmark::OGBG_MOLHIV, config),
            Self::OgbgMolpcba(config) => Benchmark(benchmark::OGBG_MOLPCBA, config),
            Self::OgbgPpa(config) => Benchmark(benchmark::OGBG_PPA, config),
            Self::OgbgCode2(config) => Source::Code2(config),
            Self::Pcqm4mv2(config) => Benchmark(benchmark::PCQM4MV2, config),
            Self::PcqmContact(config) => Benchmark(benchmark::PCQM_CONTACT, config),
            Self::PeptidesFunc(config) => Benchmark(benchmark::PEPTIDES_FUNC, config),
            Self::PeptidesStruct(config) => Benchmark(benchmark::PEPTIDES_STRUCT, config),
            Self::SmilesCsv(file) => Source::SmilesCsv(file),
            Self::Jsonl(file) => Source::Jsonl(file),
            Self::OgbCsv(files) => Source::OgbCsv(files),
            Self::Tu(files) => Source::Tu(files),
        }
    }

    /// Returns the name of the dataset: that of the benchmark, or of the file or directory.
    pub fn name(&self) -> String {
        let name = match self {
            Self::GridHistogram(_) => "Grid Histogram Counting",
            Self::Zinc(_) => "ZINC-12k",
            Self::ZincDev(_) => "ZINC-12k (development)",
            Self::OgbgMolhiv(_) => "ogbg-molhiv",
            Self::OgbgMolpcba(_) => "ogbg-molpcba",
            Self::OgbgPpa(_) => "ogbg-ppa",
            Self::OgbgCode2(_) => "ogbg-code2",
            Self::Pcqm4mv2(_) => "PCQM4Mv2",
            Self::PcqmContact(_) => "PCQM-Contact",
            Self::PeptidesFunc(_) => "Peptides-func",
            Self::PeptidesStruct(_) => "Peptides-struct",
            Self::SmilesCsv(SmilesCsvConfig { path, .. })
            | Self::Jsonl(JsonlConfig { path, .. })
            | Self::OgbCsv(OgbCsvConfig { path, .. })
            | Self::Tu(TuConfig { path, .. }) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                return name.to_string_lossy().into_owned();
            }
        };
        name.to_owned()
    }

    /// Returns the path of user files; `None` for benchmarks and generated datasets.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::SmilesCsv(SmilesCsvConfig { path, .. })
            | Self::Jsonl(JsonlConfig { path, .. })
            | Self::OgbCsv(OgbCsvConfig { path, .. })
            | Self::Tu(TuConfig { path, .. }) => Some(path),
            _ => None,
        }
    }

    /// Describes the split if it is known without reading the data.
    pub fn split_description(&self) -> Option<String> {
        match self {
            Self::SmilesCsv(SmilesCsvConfig { split, .. })
            | Self::Jsonl(JsonlConfig { split, .. })
            | Self::OgbCsv(OgbCsvConfig { split, .. })
            | Self::Tu(TuConfig { split, .. }) => split.as_ref().map(ToString::to_string),
            Self::GridHistogram(_) => Some("generated".to_owned()),
            _ => Some("defined by the benchmark".to_owned()),
        }
    }

    /// Returns whether the dataset is read from user files, not a benchmark or generated.
    pub fn is_user_data(&self) -> bool {
        matches!(self, Self::SmilesCsv(_) | Self::Jsonl(_) | Self::OgbCsv(_) | Self::Tu(_))
    }

    /// Returns the featurizer of inference inputs for models trained on this dataset.
    pub fn featurizer(&self) -> Featurizer {
        match self.source() {
            Source::Benchmark(benchmark, _) => benchmark.featurizer,
            Source::SmilesCsv(_) => Featurizer::Ogb,
            Source::OgbCsv(files) if files.add_reverse_edges => Featurizer::UndirectedGraphs,
            Source::GridHistogram(_)
            | Source::Code2(_)
            | Source::Jsonl(_)
            | Source::OgbCsv(_)
            | Source::Tu(_) => Featurizer::Graphs,
        }
    }

    /// Returns the SMILES column named by the recipe, if any.
    pub fn smiles_column(&self) -> Option<&str> {
        match self {
            Self::SmilesCsv(file) => file.smiles_column.as_deref(),
            _ => None,
        }
    }

    /// Returns the schema if it is known without reading the data.
    pub fn schema(&self) -> Option<Schema> {
        match self.source() {
            Source::GridHistogram(grid) => Some(grid.schema()),
            Source::Benchmark(benchmark, _) => Some((benchmark.schema)()),
            Source::Code2(config) => Some(config.schema()),
            Source::SmilesCsv(_) | Source::Jsonl(_) | Source::OgbCsv(_) | Source::Tu(_) => None,
        }
    }

    /// Generates or reads the dataset and splits it, unless a user's dataset is too small.
    ///
    /// # Errors
    /// Returns an error if files are missing or invalid, or the split does not apply to them.
    pub fn read(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedDataset, DataError> {
        let dataset = match self.source() {
            Source::GridHistogram(grid) => grid.generate(),
            Source::Benchmark(benchmark, config) => benchmark.read(config, dirs, progress)?,
            Source::Code2(config) => config.read(dirs, progress)?,
            Source::SmilesCsv(file) => return Ok(file.read()?.into()),
            Source::Jsonl(file) => return Ok(file.read()?.into()),
            Source::OgbCsv(files) => return Ok(files.read(&dirs.graph_cache(), progress)?.into()),
            Source::Tu(files) => return Ok(files.read()?.into()),
        };
        Ok(LoadedDataset::without_report(dataset))
    }
}

//! Data section of a recipe: a generated dataset, a benchmark, or user files, and its split.

use std::path::{Path, PathBuf};

use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use graph_diffuser_data::benchmarks::ogbg_code2::Code2Options;
use graph_diffuser_data::benchmarks::{
    ogbg_code2, ogbg_mol, ogbg_ppa, pcqm_contact, pcqm4mv2, peptides, zinc,
};
use graph_diffuser_data::chem::ogb_schema;
use graph_diffuser_data::formats::ogb_csv::{self, OgbCsvOptions};
use graph_diffuser_data::formats::smiles_csv::{OnInvalid, SmilesCsvOptions, SmilesTask};
use graph_diffuser_data::formats::{Featurizer, jsonl, smiles_csv, tu};
use graph_diffuser_data::{
    Dataset, Diagnostic as _, Graphs, LocatedError, ProgressFn, Schema, SplitError, Splits, Targets,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// JSON Lines file with one graph per line.
    Jsonl(JsonlConfig),
    /// Directory in the CSV layout of OGB.
    OgbCsv(OgbCsvConfig),
    /// Directory in the format of the TU datasets.
    Tu(TuConfig),
}

/// Configuration of a benchmark dataset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BenchmarkConfig {
    /// Directory of the files; default: the dataset's name inside the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Split that replaces the official one; default: the official split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of ogbg-code2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Code2Config {
    /// Directory of the files; default: the dataset's name inside the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Number of sub-tokens in the vocabulary, without the unknown and end tokens; default 5000.
    pub vocab_size: usize,
    /// Maximum number of nodes per tree, larger trees are truncated; default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<usize>,
}

impl Default for Code2Config {
    fn default() -> Self {
        let Code2Options { vocab_size, max_nodes } = Code2Options::default();
        Self { directory: None, vocab_size, max_nodes }
    }
}

/// Configuration of a CSV file with a SMILES column and target columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmilesCsvConfig {
    /// Path of the file, delimited by commas, semicolons or tabs, optionally gzip-compressed.
    pub path: PathBuf,
    /// Name of the SMILES column; default: `smiles` or `smi`, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smiles_column: Option<String>,
    /// Names of the target columns; default: all other columns that can be targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_columns: Option<Vec<String>>,
    /// Task type; default: inferred from the target columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<SmilesTask>,
    /// Handling of rows with an invalid SMILES; default `fail`.
    pub on_invalid: OnInvalid,
    /// Split; default: the `split` column if the file has one, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a JSON Lines file of graphs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JsonlConfig {
    /// Path of the file, optionally gzip-compressed.
    pub path: PathBuf,
    /// Task type; default: inferred from the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<jsonl::JsonlTask>,
    /// Split; default: the `split` key of the graphs if present, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a directory in the CSV layout of OGB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OgbCsvConfig {
    /// Directory that contains `raw/` and optionally `split/`.
    pub directory: PathBuf,
    /// Adds the reverse of every edge; default `false`.
    pub add_reverse_edges: bool,
    /// Split; default: the one in `split/` if present, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a directory in the format of the TU datasets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TuConfig {
    /// Directory that contains `NAME_A.txt` and the other files of the dataset.
    pub directory: PathBuf,
    /// Node features to use if the dataset has both labels and attributes; default `labels`.
    pub features: tu::NodeFeatureSource,
    /// Split; default: random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Split into training, validation and test graphs, selected by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitConfig {
    /// Random split.
    Random {
        /// Seed of the split, independent of the recipe's seed; default 0.
        #[serde(default)]
        seed: u64,
        /// Fractions of training, validation and test graphs; default `[0.8, 0.1, 0.1]`.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// Scaffold split: molecules with the same Bemis–Murcko scaffold share a split, and the most
    /// frequent scaffolds are training data.
    Scaffold {
        /// Fractions of training, validation and test graphs; default `[0.8, 0.1, 0.1]`.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// Stratified k-fold split: `fold` is the test set, the next fold the validation set.
    KFold {
        /// Number of folds.
        k: usize,
        /// Index of the test fold, from 0.
        fold: usize,
        /// Seed of the assignment to folds; default 0.
        #[serde(default)]
        seed: u64,
    },
    /// Split read from a JSON file with the lists of graph indices `train`, `valid` and `test`.
    File {
        /// Path of the file.
        path: PathBuf,
    },
}

fn default_fractions() -> [f64; 3] {
    Splits::DEFAULT_FRACTIONS
}

/// Directories of datasets and caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirs {
    /// Directory of datasets, one subdirectory per dataset.
    pub data: PathBuf,
    /// Directory of files that can be regenerated.
    pub cache: PathBuf,
}

impl DataDirs {
    /// Returns `$GRAPH_DIFFUSER_DATA` (default `data`) and `$GRAPH_DIFFUSER_CACHE` (default: the
    /// user's cache directory).
    pub fn from_env() -> Self {
        let var =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = || {
            let caches = var("XDG_CACHE_HOME").or_else(|| var("LOCALAPPDATA"));
            caches
                .or_else(|| Some(var("HOME")?.join(".cache")))
                .map(|caches| caches.join("graph-diffuser"))
        };
        Self {
            data: var("GRAPH_DIFFUSER_DATA").unwrap_or_else(|| "data".into()),
            cache: var("GRAPH_DIFFUSER_CACHE")
                .or_else(caches)
                .unwrap_or_else(|| ".graph-diffuser-cache".into()),
        }
    }
}

/// Error of reading or splitting a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The files of a benchmark are missing.
    #[error("dataset `{name}` not found in `{directory}`")]
    Missing {
        /// Name of the dataset.
        name: &'static str,
        /// Directory that was searched.
        directory: PathBuf,
    },
    /// The recipe does not name a file or directory.
    #[error("`data.{key}` is not set")]
    NoFile {
        /// Required key.
        key: &'static str,
    },
    /// The files are invalid.
    #[error("{}", first_and_count(.0))]
    Problems(Vec<LocatedError>),
    /// The dataset cannot be split as configured.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The dataset has no split and the recipe does not define one.
    #[error("`{directory}` has no train/valid/test split")]
    NoSplit {
        /// Directory of the dataset.
        directory: PathBuf,
    },
    /// A scaffold split of graphs that are not molecules.
    #[error("a scaffold split requires SMILES, and this dataset has none")]
    NoScaffolds,
    /// A k-fold split of graphs without classes.
    #[error("a k-fold split requires class targets, and this dataset has none")]
    NoClasses,
}

fn first_and_count(problems: &[LocatedError]) -> String {
    match problems {
        [] => "cannot read the dataset".to_owned(),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} (and {} more problems)", others.len()),
    }
}

impl From<LocatedError> for DataError {
    fn from(problem: LocatedError) -> Self {
        Self::Problems(vec![problem])
    }
}

impl DataError {
    /// Returns a suggested fix, if one is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { name: name @ "zinc-dev", .. } => format!(
                "build it with `scripts/zinc_labels.py dev`, or set the environment variable \
                 `GRAPH_DIFFUSER_DATA` to the directory that contains `{name}`"
            ),
            Self::Missing { name, .. } => format!(
                "download it with `graph-diffuser data fetch {name}`, or set the environment \
                 variable `GRAPH_DIFFUSER_DATA` to the directory that contains `{name}`"
            ),
            Self::NoFile { key: "directory" } => "use `--set data.directory=DIR`".to_owned(),
            Self::NoFile { key } => format!("use `--set data.{key}=FILE`"),
            Self::Problems(problems) => {
                let hint = problems.first().and_then(LocatedError::hint);
                let all = (problems.len() > 1).then(|| {
                    "run `graph-diffuser data check FILE` to list all problems".to_owned()
                });
                return hint.or(all);
            }
            Self::Split(error) => return error.hint(),
            Self::NoSplit { .. } | Self::NoScaffolds | Self::NoClasses => {
                "use a random split with `--set data.split.kind=random`".to_owned()
            }
        })
    }
}

impl DataConfig {
    /// Returns the reason why a generated dataset is impossible, if any.
    pub(super) fn check(&self) -> Option<&'static str> {
        match self {
            Self::GridHistogram(grid) => grid.check(),
            _ => None,
        }
    }

    /// Returns the name of a benchmark, which is also the name of its directory.
    fn name(&self) -> &'static str {
        match self {
            Self::Zinc(_) => "zinc",
            Self::ZincDev(_) => "zinc-dev",
            Self::OgbgMolhiv(_) => "ogbg-molhiv",
            Self::OgbgMolpcba(_) => "ogbg-molpcba",
            Self::OgbgPpa(_) => "ogbg-ppa",
            Self::OgbgCode2(_) => "ogbg-code2",
            Self::Pcqm4mv2(_) => "pcqm4mv2",
            Self::PcqmContact(_) => "pcqm-contact",
            Self::PeptidesFunc(_) => "peptides-func",
            Self::PeptidesStruct(_) => "peptides-struct",
            Self::GridHistogram(_)
            | Self::SmilesCsv(_)
            | Self::Jsonl(_)
            | Self::OgbCsv(_)
            | Self::Tu(_) => "",
        }
    }

    /// Returns the featurizer of inference inputs for models trained on this dataset.
    pub fn featurizer(&self) -> Featurizer {
        match self {
            Self::SmilesCsv(_)
            | Self::OgbgMolhiv(_)
            | Self::OgbgMolpcba(_)
            | Self::Pcqm4mv2(_)
            | Self::PeptidesFunc(_)
            | Self::PeptidesStruct(_) => Featurizer::Ogb,
            Self::Zinc(_) | Self::ZincDev(_) => Featurizer::Zinc,
            // PCQM-Contact has explicit hydrogens and no perceived aromaticity, so a SMILES string
            // would give another graph.
            Self::PcqmContact(_)
            | Self::GridHistogram(_)
            | Self::OgbgPpa(_)
            | Self::OgbgCode2(_)
            | Self::Jsonl(_)
            | Self::OgbCsv(_)
            | Self::Tu(_) => Featurizer::Graphs,
        }
    }

    /// Returns the SMILES column named by the recipe, if any.
    pub fn smiles_column(&self) -> Option<&str> {
        match self {
            Self::SmilesCsv(table) => table.smiles_column.as_deref(),
            _ => None,
        }
    }

    /// Returns the schema if it is known without reading the data.
    pub fn schema(&self) -> Option<Schema> {
        Some(match self {
            Self::GridHistogram(grid) => grid.schema(),
            Self::Zinc(_) | Self::ZincDev(_) => zinc::schema(),
            Self::OgbgMolhiv(_) => ogb_schema(ogbg_mol::HIV),
            Self::OgbgMolpcba(_) => ogb_schema(ogbg_mol::PCBA),
            Self::OgbgPpa(_) => ogbg_ppa::schema(),
            Self::OgbgCode2(code) => ogbg_code2::schema(code.vocab_size),
            Self::Pcqm4mv2(_) => pcqm4mv2::schema(),
            Self::PcqmContact(_) => pcqm_contact::schema(),
            Self::PeptidesFunc(_) => peptides::func_schema(),
            Self::PeptidesStruct(_) => peptides::struct_schema(),
            Self::SmilesCsv(_) | Self::Jsonl(_) | Self::OgbCsv(_) | Self::Tu(_) => return None,
        })
    }

    /// Generates or reads the dataset and splits it.
    ///
    /// # Errors
    /// Returns an error if files are missing or invalid, or the split is impossible.
    pub fn read(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let cache = dirs.cache.join("graphs");
        let resolve = |directory: &Option<PathBuf>| {
            let directory = directory.clone().unwrap_or_else(|| dirs.data.join(self.name()));
            let exists = directory.is_dir();
            exists
                .then_some(directory.clone())
                .ok_or(DataError::Missing { name: self.name(), directory })
        };
        match self {
            Self::GridHistogram(grid) => Ok(grid.generate()),
            Self::OgbgCode2(code) => {
                let reader =
                    Code2Options { vocab_size: code.vocab_size, max_nodes: code.max_nodes };
                Ok(reader.read(&resolve(&code.directory)?, &cache, progress)?)
            }
            Self::Zinc(benchmark)
            | Self::ZincDev(benchmark)
            | Self::OgbgMolhiv(benchmark)
            | Self::OgbgMolpcba(benchmark)
            | Self::OgbgPpa(benchmark)
            | Self::Pcqm4mv2(benchmark)
            | Self::PcqmContact(benchmark)
            | Self::PeptidesFunc(benchmark)
            | Self::PeptidesStruct(benchmark) => {
                let directory = resolve(&benchmark.directory)?;
                let mut dataset = self.read_benchmark(&directory, &cache, progress)?;
                if let Some(split) = &benchmark.split {
                    dataset.splits = split.apply(&dataset, None)?;
                } else if dataset.splits.train.is_empty() {
                    return Err(DataError::NoSplit { directory });
                }
                Ok(dataset)
            }
            Self::SmilesCsv(table) => table.read(),
            Self::Jsonl(file) => file.read(),
            Self::OgbCsv(OgbCsvConfig { directory, add_reverse_edges, split }) => {
                require(directory, "directory")?;
                let options = OgbCsvOptions {
                    add_reverse_edges: *add_reverse_edges,
                    ..OgbCsvOptions::default()
                };
                let mut dataset = ogb_csv::read(directory, &options, &cache, progress)?;
                if split.is_some() || dataset.splits.train.is_empty() {
                    dataset.splits = split.clone().unwrap_or_default().apply(&dataset, None)?;
                }
                Ok(dataset)
            }
            Self::Tu(TuConfig { directory, features, split }) => {
                require(directory, "directory")?;
                let mut dataset = tu::read(directory, *features)?;
                dataset.splits = split.clone().unwrap_or_default().apply(&dataset, None)?;
                Ok(dataset)
            }
        }
    }

    /// Reads a benchmark from the CSV layout of OGB if present, otherwise from its published files.
    fn read_benchmark(
        &self,
        directory: &Path,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let has_ogb_csv = directory.join("raw").join("num-node-list.csv.gz").is_file();
        let published = |names: &[&str]| {
            let found = names.iter().map(|name| directory.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| DataError::Missing {
                name: self.name(),
                directory: directory.to_owned(),
            })
        };
        let split = || published(&["splits_random_stratified_peptide.pickle"]);
        let targets = self.schema().map(|schema| schema.targets);
        let mut dataset = match self {
            Self::Zinc(_) | Self::ZincDev(_) if has_ogb_csv => {
                zinc::read(directory, cache, progress)?
            }
            Self::Zinc(_) | Self::ZincDev(_) => {
                zinc::read_smiles(&published(&["smiles.csv.gz", "smiles.csv"])?)?
            }
            Self::OgbgPpa(_) => ogbg_ppa::read(directory, cache, progress)?,
            Self::PcqmContact(_) if has_ogb_csv => {
                ogbg_mol::read_contacts(directory, cache, progress)?
            }
            Self::PcqmContact(_) => {
                pcqm_contact::read(&published(&["pcqm4m-contact.tsv.gz"])?, cache, progress)?
            }
            // Other ogbg-mol datasets share this layout, so the number of labels comes from the
            // file.
            Self::OgbgMolhiv(_) => ogbg_mol::read(directory, None, cache, progress)?,
            _ if has_ogb_csv => ogbg_mol::read(directory, targets, cache, progress)?,
            Self::Pcqm4mv2(_) => {
                let table = published(&["raw/data.csv.gz", "data.csv.gz"])?;
                let split = published(&["split_dict.pt"]).ok();
                pcqm4mv2::read(&table, split.as_deref(), cache, progress)?
            }
            Self::PeptidesFunc(_) => peptides::read_func(
                &published(&["peptide_multi_class_dataset.csv.gz"])?,
                &split()?,
            )?,
            Self::PeptidesStruct(_) => {
                let names = [
                    "peptide_structure_normalized_dataset.csv.gz",
                    "peptide_structure_dataset.csv.gz",
                ];
                let table = published(&names)?;
                peptides::read_struct(
                    &table,
                    peptides::StructScale::from_file_name(&table),
                    &split()?,
                )?
            }
            _ => {
                return Err(DataError::Missing {
                    name: self.name(),
                    directory: directory.to_owned(),
                });
            }
        };
        if let Some(schema) = self.schema().filter(|schema| schema.same_layout(&dataset.schema)) {
            dataset.schema.names = schema.names;
        }
        Ok(dataset)
    }
}

fn require(path: &Path, key: &'static str) -> Result<(), DataError> {
    if path.as_os_str().is_empty() { Err(DataError::NoFile { key }) } else { Ok(()) }
}

impl SmilesCsvConfig {
    fn read(&self) -> Result<Dataset, DataError> {
        require(&self.path, "path")?;
        let options = SmilesCsvOptions {
            smiles_column: self.smiles_column.clone(),
            target_columns: self.target_columns.clone(),
            task: self.task,
            on_invalid: self.on_invalid,
            scaffolds: matches!(self.split, Some(SplitConfig::Scaffold { .. })),
            ..SmilesCsvOptions::default()
        };
        let read = smiles_csv::read(&self.path, &options).map_err(DataError::Problems)?;
        let file_split = read.splits.filter(|_| self.split.is_none());
        let mut dataset = Dataset {
            graphs: Graphs::InMemory(read.graphs),
            schema: read.schema,
            splits: file_split.clone().unwrap_or(Splits {
                train: vec![],
                valid: vec![],
                test: vec![],
            }),
        };
        if file_split.is_none() {
            dataset.splits =
                self.split.clone().unwrap_or_default().apply(&dataset, Some(&read.scaffolds))?;
        }
        Ok(dataset)
    }
}

impl JsonlConfig {
    fn read(&self) -> Result<Dataset, DataError> {
        require(&self.path, "path")?;
        let options = jsonl::JsonlOptions { task: self.task, ..jsonl::JsonlOptions::default() };
        let mut read = jsonl::read(&self.path, &options).map_err(DataError::Problems)?;
        if self.split.is_some() {
            read.splits = None;
        }
        let mut dataset = read.into_dataset();
        if dataset.splits.train.is_empty() {
            dataset.splits = self.split.clone().unwrap_or_default().apply(&dataset, None)?;
        }
        Ok(dataset)
    }
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self::Random { seed: 0, fractions: Splits::DEFAULT_FRACTIONS }
    }
}

impl SplitConfig {
    /// Splits the graphs of `dataset`, whose scaffolds are `scaffolds` if they are molecules.
    fn apply(&self, dataset: &Dataset, scaffolds: Option<&[String]>) -> Result<Splits, DataError> {
        let count = dataset.graphs.len();
        Ok(match self {
            Self::Random { seed, fractions } => Splits::random(count, *fractions, *seed)?,
            Self::Scaffold { fractions } => {
                Splits::by_group(scaffolds.ok_or(DataError::NoScaffolds)?, *fractions)?
            }
            Self::KFold { k, fold, seed } => {
                let classes = dataset.graphs.iter().map(|graph| match &graph.targets {
                    Targets::GraphClass(class) => Some(*class),
                    Targets::GraphValues(values) => match values[..] {
                        [value] if value == 0.0 || value == 1.0 => Some(value as u32),
                        _ => None,
                    },
                    _ => None,
                });
                let classes: Option<Vec<u32>> = classes.collect();
                Splits::k_fold(&classes.ok_or(DataError::NoClasses)?, *k, *fold, *seed)?
            }
            Self::File { path } => Splits::from_json(path, count)?,
        })
    }
}

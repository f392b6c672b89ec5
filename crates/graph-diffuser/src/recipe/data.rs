//! What a recipe learns from: drawn, one of the benchmarks, or files of the user's own.

use std::path::{Path, PathBuf};

use graph_diffuser_data::error::{Diagnostic as _, LocatedError};
use graph_diffuser_data::grid_histogram::GridHistogram;
use graph_diffuser_data::inference_input::Featurizer;
use graph_diffuser_data::molecule::{Molecule, scaffold_groups};
use graph_diffuser_data::ogb_csv::{self, OgbCsvOptions};
use graph_diffuser_data::ogbg_code2::Code2;
use graph_diffuser_data::progress::ProgressFn;
use graph_diffuser_data::smiles_csv::{OnInvalid, SmilesCsvOptions, SmilesTask};
use graph_diffuser_data::split::{DEFAULT_FRACTIONS, SplitError};
use graph_diffuser_data::{
    Dataset, Graphs, Schema, Splits, Targets, jsonl, ogbg_code2, ogbg_mol, ogbg_ppa, pcqm_contact,
    pcqm4mv2, peptides, smiles_csv, tu, zinc,
};
use serde::{Deserialize, Serialize};

/// What is learned from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DataConfig {
    /// Grid Histogram Counting.
    GridHistogram(GridHistogram),
    /// ZINC-12k.
    Zinc(BenchmarkConfig),
    /// ZINC-12k's training graphs with 10,000 further molecules as test set, for choosing between configurations.
    ZincDev(BenchmarkConfig),
    /// ogbg-molhiv, or any other set of labelled molecules in its layout.
    OgbgMolhiv(BenchmarkConfig),
    /// ogbg-molpcba.
    OgbgMolpcba(BenchmarkConfig),
    /// ogbg-ppa.
    OgbgPpa(BenchmarkConfig),
    /// ogbg-code2.
    OgbgCode2(Code2Config),
    /// `PCQM4Mv2`.
    #[serde(rename = "pcqm4mv2")]
    Pcqm4mv2(BenchmarkConfig),
    /// PCQM-Contact.
    PcqmContact(BenchmarkConfig),
    /// Peptides-func.
    PeptidesFunc(BenchmarkConfig),
    /// Peptides-struct.
    PeptidesStruct(BenchmarkConfig),
    /// A table of molecules of the user's own.
    SmilesCsv(SmilesCsvConfig),
    /// Graphs of the user's own, one JSON object a line.
    Jsonl(JsonlConfig),
    /// Graphs of the user's own in the csv layout of OGB.
    OgbCsv(OgbCsvConfig),
    /// A folder of the TU collection.
    Tu(TuConfig),
}

/// One of the benchmarks on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BenchmarkConfig {
    /// Where its files are; a folder of its name in the data directory if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Another split than the official one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// ogbg-code2 on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Code2Config {
    /// Where its files are; a folder of its name in the data directory if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// How many words the vocabulary has, beside the unknown word and the end.
    pub vocab_size: usize,
    /// Trees are cut to so many nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<usize>,
}

impl Default for Code2Config {
    fn default() -> Self {
        let Code2 { vocab_size, max_nodes } = Code2::default();
        Self { directory: None, vocab_size, max_nodes }
    }
}

/// A table of molecules: a column of SMILES and columns to be learned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmilesCsvConfig {
    /// The file, with commas, semicolons or tabs, gzip or not.
    pub path: PathBuf,
    /// The column of SMILES; `smiles` or `smi` if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smiles_column: Option<String>,
    /// The columns to be learned; all other columns of numbers if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_columns: Option<Vec<String>>,
    /// What they are learned as; inferred if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<SmilesTask>,
    /// What happens to a row whose SMILES is no molecule.
    pub on_invalid: OnInvalid,
    /// How the rows are split; by a column `split` if there is one, else at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Graphs as JSON lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonlConfig {
    /// The file, gzip or not.
    pub path: PathBuf,
    /// What is learned; inferred if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<jsonl::JsonlTask>,
    /// How the graphs are split; by their `split` if they have it, else at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Graphs in the csv layout of OGB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OgbCsvConfig {
    /// What holds `raw/` and perhaps `split/`.
    pub directory: PathBuf,
    /// Whether edges are written once and go both ways.
    pub add_reverse_edges: bool,
    /// How the graphs are split; by `split/` if there is one, else at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// A folder of the TU collection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TuConfig {
    /// What holds `NAME_A.txt` and the others.
    pub directory: PathBuf,
    /// Whether node labels or node attributes are read, where there are both.
    pub features: tu::NodeFeatureSource,
    /// How the graphs are split; at random if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Which graphs are for training, validation and test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitConfig {
    /// At random.
    Random {
        /// Draws it.
        #[serde(default)]
        seed: u64,
        /// Shares of train, valid and test.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// Molecules of one Bemis–Murcko scaffold stay together; the most common ones are for training.
    Scaffold {
        /// Shares of train, valid and test.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// One of several folds is the test, the next validation; classes are spread evenly.
    KFold {
        /// How many folds.
        k: usize,
        /// Which is the test.
        fold: usize,
        /// Draws them.
        #[serde(default)]
        seed: u64,
    },
    /// By a JSON file of three lists of numbers, `train`, `valid` and `test`.
    File {
        /// Which.
        path: PathBuf,
    },
}

fn default_fractions() -> [f64; 3] {
    DEFAULT_FRACTIONS
}

/// Where data sets and cached files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirs {
    /// Data sets, each in a folder of its name.
    pub data: PathBuf,
    /// Files that can be made again.
    pub cache: PathBuf,
}

impl DataDirs {
    /// `GRAPH_DIFFUSER_DATA` or `data`, and `GRAPH_DIFFUSER_CACHE` or where the system keeps caches.
    pub fn here() -> Self {
        let named =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = || {
            let caches = named("XDG_CACHE_HOME").or_else(|| named("LOCALAPPDATA"));
            caches
                .or_else(|| Some(named("HOME")?.join(".cache")))
                .map(|caches| caches.join("graph-diffuser"))
        };
        Self {
            data: named("GRAPH_DIFFUSER_DATA").unwrap_or_else(|| "data".into()),
            cache: named("GRAPH_DIFFUSER_CACHE")
                .or_else(caches)
                .unwrap_or_else(|| ".graph-diffuser-cache".into()),
        }
    }
}

/// Why there is no dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A benchmark's files are not there.
    #[error("`{name}` is not in `{directory}`")]
    Missing {
        /// Its name.
        name: &'static str,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The recipe names no file.
    #[error("the recipe does not say what to learn from: `data.{key}` is empty")]
    NoFile {
        /// The key to set.
        key: &'static str,
    },
    /// What is wrong with the files.
    #[error("{}", first_and_count(.0))]
    Problems(Vec<LocatedError>),
    /// The graphs cannot be split so.
    #[error("the graphs cannot be split")]
    Split(#[from] SplitError),
    /// There is no split, and none was asked for.
    #[error("`{directory}` has no split into train, valid and test")]
    NoSplit {
        /// Where.
        directory: PathBuf,
    },
    /// Only molecules have scaffolds.
    #[error("these graphs have no scaffolds")]
    NoScaffolds,
    /// Only classes can be spread over folds.
    #[error("these graphs have no classes to spread over folds")]
    NoClasses,
}

fn first_and_count(problems: &[LocatedError]) -> String {
    match problems {
        [] => "the files cannot be read".to_owned(),
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
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { name: name @ "zinc-dev", .. } => format!(
                "build `{name}` with `scripts/zinc_labels.py dev`, or give its path with `--set data.directory=DIR`"
            ),
            Self::Missing { name, .. } => format!(
                "fetch it with `graph-diffuser data fetch {name}`, or say where it is with `--set data.directory=DIR`"
            ),
            Self::NoFile { key } => format!("name it with `--set data.{key}=FILE`"),
            Self::Problems(problems) => {
                let hint = problems.first().and_then(LocatedError::hint);
                let all = (problems.len() > 1)
                    .then(|| "`graph-diffuser data check FILE` lists all of them".to_owned());
                return hint.or(all);
            }
            Self::Split(fault) => return fault.hint(),
            Self::NoSplit { .. } => {
                "choose one, such as `--set 'data.split={kind=\"random\"}'`".to_owned()
            }
            Self::NoScaffolds | Self::NoClasses => {
                "choose `random` or `file` for `data.split.kind`".to_owned()
            }
        })
    }
}

impl DataConfig {
    /// What cannot be drawn or read, found before anything is.
    pub(super) fn check(&self) -> Option<&'static str> {
        match self {
            Self::GridHistogram(grid) => grid.check(),
            _ => None,
        }
    }

    /// The name of a benchmark, which its folder has too.
    fn folder(&self) -> &'static str {
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

    /// What a model that was trained on this is given: molecules, or graphs as they are.
    pub fn featurizer(&self) -> Featurizer {
        match self {
            Self::SmilesCsv(_)
            | Self::OgbgMolhiv(_)
            | Self::OgbgMolpcba(_)
            | Self::Pcqm4mv2(_)
            | Self::PeptidesFunc(_)
            | Self::PeptidesStruct(_) => Featurizer::Ogb,
            Self::Zinc(_) | Self::ZincDev(_) => Featurizer::Zinc,
            // Hydrogens are nodes there, and nothing is perceived: a plain SMILES would be another graph.
            Self::PcqmContact(_)
            | Self::GridHistogram(_)
            | Self::OgbgPpa(_)
            | Self::OgbgCode2(_)
            | Self::Jsonl(_)
            | Self::OgbCsv(_)
            | Self::Tu(_) => Featurizer::Graphs,
        }
    }

    /// The column of SMILES, where the recipe names one.
    pub fn smiles_column(&self) -> Option<&str> {
        match self {
            Self::SmilesCsv(table) => table.smiles_column.as_deref(),
            _ => None,
        }
    }

    /// What the numbers mean, where that is known before the data.
    pub fn schema(&self) -> Option<Schema> {
        Some(match self {
            Self::GridHistogram(grid) => grid.schema(),
            Self::Zinc(_) | Self::ZincDev(_) => zinc::schema(),
            Self::OgbgMolhiv(_) => ogbg_mol::schema(ogbg_mol::HIV),
            Self::OgbgMolpcba(_) => ogbg_mol::schema(ogbg_mol::PCBA),
            Self::OgbgPpa(_) => ogbg_ppa::schema(),
            Self::OgbgCode2(code) => ogbg_code2::schema(code.vocab_size),
            Self::Pcqm4mv2(_) => pcqm4mv2::schema(),
            Self::PcqmContact(_) => pcqm_contact::schema(),
            Self::PeptidesFunc(_) => peptides::func_schema(),
            Self::PeptidesStruct(_) => peptides::struct_schema(),
            Self::SmilesCsv(_) | Self::Jsonl(_) | Self::OgbCsv(_) | Self::Tu(_) => return None,
        })
    }

    /// Draws or reads the graphs.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn read(
        &self,
        places: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let cache = places.cache.join("graphs");
        let own = |directory: &Option<PathBuf>| {
            let directory = directory.clone().unwrap_or_else(|| places.data.join(self.folder()));
            let there = directory.is_dir();
            there
                .then_some(directory.clone())
                .ok_or(DataError::Missing { name: self.folder(), directory })
        };
        match self {
            Self::GridHistogram(grid) => Ok(grid.generate()),
            Self::OgbgCode2(code) => {
                let reader = Code2 { vocab_size: code.vocab_size, max_nodes: code.max_nodes };
                Ok(reader.read(&own(&code.directory)?, &cache, progress)?)
            }
            Self::Zinc(stored)
            | Self::ZincDev(stored)
            | Self::OgbgMolhiv(stored)
            | Self::OgbgMolpcba(stored)
            | Self::OgbgPpa(stored)
            | Self::Pcqm4mv2(stored)
            | Self::PcqmContact(stored)
            | Self::PeptidesFunc(stored)
            | Self::PeptidesStruct(stored) => {
                let directory = own(&stored.directory)?;
                let mut dataset = self.read_stored(&directory, &cache, progress)?;
                if let Some(split) = &stored.split {
                    dataset.splits = split.of(&dataset, None)?;
                } else if dataset.splits.train.is_empty() {
                    return Err(DataError::NoSplit { directory });
                }
                Ok(dataset)
            }
            Self::SmilesCsv(table) => table.read(),
            Self::Jsonl(file) => file.read(),
            Self::OgbCsv(OgbCsvConfig { directory, add_reverse_edges, split }) => {
                named(directory, "directory")?;
                let layout = OgbCsvOptions {
                    add_reverse_edges: *add_reverse_edges,
                    ..OgbCsvOptions::default()
                };
                let mut dataset = ogb_csv::read(directory, &layout, &cache, progress)?;
                if split.is_some() || dataset.splits.train.is_empty() {
                    dataset.splits = split.clone().unwrap_or_default().of(&dataset, None)?;
                }
                Ok(dataset)
            }
            Self::Tu(TuConfig { directory, features, split }) => {
                named(directory, "directory")?;
                let mut dataset = tu::read(directory, *features)?;
                dataset.splits = split.clone().unwrap_or_default().of(&dataset, None)?;
                Ok(dataset)
            }
        }
    }

    /// Reads a benchmark: the csv layout where there is one, else the files as they are published.
    fn read_stored(
        &self,
        directory: &Path,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let layout = directory.join("raw").join("num-node-list.csv.gz").is_file();
        let published = |names: &[&str]| {
            let found = names.iter().map(|name| directory.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| DataError::Missing {
                name: self.folder(),
                directory: directory.to_owned(),
            })
        };
        let split = || published(&["splits_random_stratified_peptide.pickle"]);
        let targets = self.schema().map(|schema| schema.targets);
        let mut dataset = match self {
            Self::Zinc(_) | Self::ZincDev(_) if layout => zinc::read(directory, cache, progress)?,
            Self::Zinc(_) | Self::ZincDev(_) => {
                graph_diffuser_data::zinc_smiles::read(&published(&[
                    "smiles.csv.gz",
                    "smiles.csv",
                ])?)?
            }
            Self::OgbgPpa(_) => ogbg_ppa::read(directory, cache, progress)?,
            Self::PcqmContact(_) if layout => ogbg_mol::read_contacts(directory, cache, progress)?,
            Self::PcqmContact(_) => {
                pcqm_contact::read(&published(&["pcqm4m-contact.tsv.gz"])?, cache, progress)?
            }
            // Any labelled molecules in this layout will do: how many labels there are is seen from them.
            Self::OgbgMolhiv(_) => ogbg_mol::read(directory, None, cache, progress)?,
            _ if layout => ogbg_mol::read(directory, targets, cache, progress)?,
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
                peptides::read_struct(&table, peptides::StructValues::of_file(&table), &split()?)?
            }
            _ => {
                return Err(DataError::Missing {
                    name: self.folder(),
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

fn named(path: &Path, key: &'static str) -> Result<(), DataError> {
    if path.as_os_str().is_empty() { Err(DataError::NoFile { key }) } else { Ok(()) }
}

impl SmilesCsvConfig {
    fn read(&self) -> Result<Dataset, DataError> {
        named(&self.path, "path")?;
        let options = SmilesCsvOptions {
            smiles_column: self.smiles_column.clone(),
            target_columns: self.target_columns.clone(),
            task: self.task,
            on_invalid: self.on_invalid,
            ..SmilesCsvOptions::default()
        };
        let read = smiles_csv::read(&self.path, &options).map_err(DataError::Problems)?;
        let given = read.given_split.filter(|_| self.split.is_none());
        let mut dataset = Dataset {
            graphs: Graphs::Listed(read.graphs),
            schema: read.schema,
            splits: given.clone().unwrap_or(Splits { train: vec![], valid: vec![], test: vec![] }),
        };
        if given.is_none() {
            dataset.splits =
                self.split.clone().unwrap_or_default().of(&dataset, Some(&read.smiles))?;
        }
        Ok(dataset)
    }
}

impl JsonlConfig {
    fn read(&self) -> Result<Dataset, DataError> {
        named(&self.path, "path")?;
        let options = jsonl::JsonlOptions { task: self.task, ..jsonl::JsonlOptions::default() };
        let mut read = jsonl::read(&self.path, &options).map_err(DataError::Problems)?;
        if self.split.is_some() {
            read.splits = None;
        }
        let none = || Splits { train: vec![], valid: vec![], test: vec![] };
        let mut dataset = read.into_dataset(|_| none());
        if dataset.splits.train.is_empty() {
            dataset.splits = self.split.clone().unwrap_or_default().of(&dataset, None)?;
        }
        Ok(dataset)
    }
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self::Random { seed: 0, fractions: DEFAULT_FRACTIONS }
    }
}

impl SplitConfig {
    /// The split of these graphs; `smiles` are the molecules they were made from.
    fn of(&self, dataset: &Dataset, smiles: Option<&[String]>) -> Result<Splits, DataError> {
        let count = dataset.graphs.len();
        Ok(match self {
            Self::Random { seed, fractions } => Splits::random(count, *fractions, *seed)?,
            Self::Scaffold { fractions } => {
                let molecules = smiles
                    .ok_or(DataError::NoScaffolds)?
                    .iter()
                    .map(|smiles| Molecule::from_smiles(smiles));
                let molecules: Option<Vec<Molecule>> = molecules.map(Result::ok).collect();
                Splits::by_group(
                    &scaffold_groups(&molecules.ok_or(DataError::NoScaffolds)?),
                    *fractions,
                )?
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
                Splits::fold(&classes.ok_or(DataError::NoClasses)?, *k, *fold, *seed)?
            }
            Self::File { path } => Splits::from_json(path, count)?,
        })
    }
}

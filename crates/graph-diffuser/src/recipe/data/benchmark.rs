//! Benchmark datasets: their name, schema and files.

use std::path::PathBuf;

use graph_diffuser_data::benchmarks::ogbg_code2::{self, Code2Options};
use graph_diffuser_data::benchmarks::peptides::StructScale;
use graph_diffuser_data::benchmarks::{
    lrgb, ogbg_mol, ogbg_ppa, pcqm_contact, pcqm4mv2, peptides, zinc,
};
use graph_diffuser_data::chem::ogb_schema;
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::{Dataset, ProgressFn, Schema, TargetSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DataDirs, DataError, SplitConfig};

/// Configuration of a benchmark dataset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BenchmarkConfig {
    /// Directory of the files; default: the dataset's name inside the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
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
    pub path: Option<PathBuf>,
    /// Number of sub-tokens in the vocabulary, without the unknown and end tokens; default 5000.
    pub vocab_size: usize,
    /// Maximum number of nodes per tree, larger trees are truncated; default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<usize>,
}

impl Default for Code2Config {
    fn default() -> Self {
        let Code2Options { vocab_size, max_nodes } = Code2Options::default();
        Self { path: None, vocab_size, max_nodes }
    }
}

impl Code2Config {
    /// Name of the dataset and of its directory.
    const NAME: &str = "ogbg-code2";

    pub(super) fn schema(&self) -> Schema {
        ogbg_code2::schema(self.vocab_size)
    }

    pub(super) fn read(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let Files { directory, cache, .. } = Files::find(Self::NAME, self.path.as_ref(), dirs)?;
        let reader = Code2Options { vocab_size: self.vocab_size, max_nodes: self.max_nodes };
        Ok(reader.read(&directory, &cache, progress)?)
    }
}

/// Benchmark with a fixed schema.
pub(super) struct Benchmark {
    /// Name of the dataset and of its directory.
    name: &'static str,
    /// Featurizer of inference inputs.
    pub(super) featurizer: Featurizer,
    /// Schema of the published dataset.
    pub(super) schema: fn() -> Schema,
    /// Reads the CSV layout of OGB if present, otherwise the published files.
    read: fn(&Files, &mut ProgressFn<'_>) -> Result<Dataset, DataError>,
}

pub(super) const ZINC: Benchmark = Benchmark {
    name: "zinc",
    featurizer: Featurizer::Zinc,
    schema: zinc::schema,
    read: |files, progress| {
        if files.has_ogb_csv() {
            return Ok(zinc::read(&files.directory, &files.cache, progress)?);
        }
        Ok(zinc::read_smiles(&files.published(&["smiles.csv.gz", "smiles.csv"])?)?)
    },
};

pub(super) const ZINC_DEV: Benchmark = Benchmark { name: "zinc-dev", ..ZINC };

pub(super) const OGBG_MOLHIV: Benchmark = Benchmark {
    name: "ogbg-molhiv",
    featurizer: Featurizer::Ogb,
    schema: || ogb_schema(TargetSchema::binary(ogbg_mol::HIV_LABELS)),
    // Other ogbg-mol datasets share this layout, so the number of labels comes from the file.
    read: |files, progress| Ok(ogbg_mol::read(&files.directory, None, &files.cache, progress)?),
};

pub(super) const OGBG_MOLPCBA: Benchmark = Benchmark {
    name: "ogbg-molpcba",
    featurizer: Featurizer::Ogb,
    schema: || ogb_schema(TargetSchema::binary(ogbg_mol::PCBA_LABELS)),
    read: |files, progress| {
        if !files.has_ogb_csv() {
            return Err(files.missing());
        }
        files.read_ogb_csv(|| ogb_schema(TargetSchema::binary(ogbg_mol::PCBA_LABELS)), progress)
    },
};

pub(super) const OGBG_PPA: Benchmark = Benchmark {
    name: "ogbg-ppa",
    featurizer: Featurizer::UndirectedGraphs,
    schema: ogbg_ppa::schema,
    read: |files, progress| Ok(ogbg_ppa::read(&files.directory, &files.cache, progress)?),
};

pub(super) const PCQM4MV2: Benchmark = Benchmark {
    name: "pcqm4mv2",
    featurizer: Featurizer::Ogb,
    schema: pcqm4mv2::schema,
    read: |files, progress| {
        if files.has_ogb_csv() {
            return files.read_ogb_csv(pcqm4mv2::schema, progress);
        }
        let table = files.published(&["raw/data.csv.gz", "data.csv.gz"])?;
        let split = files.published(&["split_dict.pt"]).ok();
        Ok(pcqm4mv2::read(&table, split.as_deref(), &files.cache, progress)?)
    },
};

pub(super) const PCQM_CONTACT: Benchmark = Benchmark {
    name: "pcqm-contact",
    // Explicit hydrogens and no perceived aromaticity: a SMILES string would give another graph.
    featurizer: Featurizer::Graphs,
    schema: pcqm_contact::schema,
    read: |files, progress| {
        if files.has_ogb_csv() {
            return Ok(ogbg_mol::read_contacts(&files.directory, &files.cache, progress)?);
        }
        if let Some(parts) = lrgb::find_files(&files.directory) {
            return Ok(lrgb::read(&parts, pcqm_contact::schema())?);
        }
        let table = files.published(&["pcqm4m-contact.tsv.gz"])?;
        let split = files.published(&["530k_shuffle_split_dict.pt"]).ok();
        Ok(pcqm_contact::read(&table, split.as_deref(), &files.cache, progress)?)
    },
};

pub(super) const PEPTIDES_FUNC: Benchmark = Benchmark {
    name: "peptides-func",
    featurizer: Featurizer::Ogb,
    schema: peptides::func_schema,
    read: |files, progress| {
        if files.has_ogb_csv() {
            return files.read_ogb_csv(peptides::func_schema, progress);
        }
        if let Some(parts) = lrgb::find_files(&files.directory) {
            return Ok(lrgb::read(&parts, peptides::func_schema())?);
        }
        let table = files.published(&["peptide_multi_class_dataset.csv.gz"])?;
        Ok(peptides::read_func(&table, &files.published(&[PEPTIDE_SPLIT])?)?)
    },
};

pub(super) const PEPTIDES_STRUCT: Benchmark = Benchmark {
    name: "peptides-struct",
    featurizer: Featurizer::Ogb,
    schema: peptides::struct_schema,
    read: |files, progress| {
        if files.has_ogb_csv() {
            return files.read_ogb_csv(peptides::struct_schema, progress);
        }
        if let Some(parts) = lrgb::find_files(&files.directory) {
            return Ok(lrgb::read(&parts, peptides::struct_schema())?);
        }
        let table = files.published(&[
            "peptide_structure_normalized_dataset.csv.gz",
            "peptide_structure_dataset.csv.gz",
        ])?;
        let scale = StructScale::from_file_name(&table);
        Ok(peptides::read_struct(&table, scale, &files.published(&[PEPTIDE_SPLIT])?)?)
    },
};

const PEPTIDE_SPLIT: &str = "splits_random_stratified_peptide.pickle";

impl Benchmark {
    /// Reads and splits the dataset.
    pub(super) fn read(
        &self,
        config: &BenchmarkConfig,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let files = Files::find(self.name, config.path.as_ref(), dirs)?;
        let mut dataset = (self.read)(&files, progress)?;
        let schema = (self.schema)();
        if schema.same_layout(&dataset.schema) {
            dataset.schema.names = schema.names;
        }
        if let Some(split) = &config.split {
            dataset.splits = split.apply(&dataset, None)?;
        } else if dataset.splits.train.is_empty() {
            return Err(DataError::NoSplit { directory: files.directory });
        }
        Ok(dataset)
    }
}

/// Directory of a benchmark.
struct Files {
    name: &'static str,
    directory: PathBuf,
    /// Directory of parsed graphs.
    cache: PathBuf,
}

impl Files {
    /// Finds the configured directory, or the one inside the data directory.
    fn find(
        name: &'static str,
        configured: Option<&PathBuf>,
        dirs: &DataDirs,
    ) -> Result<Self, DataError> {
        let directory = configured.cloned().unwrap_or_else(|| dirs.data.join(name));
        let files = Self { name, directory, cache: dirs.graph_cache() };
        if files.directory.is_dir() { Ok(files) } else { Err(files.missing()) }
    }

    fn missing(&self) -> DataError {
        DataError::Missing { name: self.name, directory: self.directory.clone() }
    }

    /// Returns the first of the published files that exists.
    fn published(&self, names: &[&str]) -> Result<PathBuf, DataError> {
        let mut paths = names.iter().map(|name| self.directory.join(name));
        paths.find(|path| path.is_file()).ok_or_else(|| self.missing())
    }

    fn has_ogb_csv(&self) -> bool {
        self.directory.join("raw").join("num-node-list.csv.gz").is_file()
    }

    /// Reads molecules in the CSV layout of OGB.
    fn read_ogb_csv(
        &self,
        schema: fn() -> Schema,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        let targets = Some(schema().targets);
        Ok(ogbg_mol::read(&self.directory, targets, &self.cache, progress)?)
    }
}

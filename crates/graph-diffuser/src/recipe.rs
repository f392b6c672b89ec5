//! Recipes: dataset, model, task, optimizer and training as typed TOML.
//!
//! Unknown keys are errors. A recipe together with its seed determines a run: training it twice
//! gives identical weights and scores.

mod data;
mod spelling;
mod error;
mod training;
mod check;
mod overrides;
mod reference;
mod settings;

use std::path::Path;

use burn::tensor::Device;
use graph_diffuser_data::formats::Format;
use graph_diffuser_data::{Dataset, ProgressFn, Schema, SeedTree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::model::{GraphDiffuser, ModelConfig};
use crate::nn::ParamInit;
use crate::optim::OptimConfig;
use crate::parameters;
use crate::task::{Metric, Task, TaskConfig};

use error::is_data;
use overrides::{in_toml_terms, suggestion};

pub use data::{
    BenchmarkConfig, Code2Config, DataConfig, DataDirs, DataError, JsonlConfig, LoadedDataset,
    OgbCsvConfig, SmilesCsvConfig, SplitConfig, TuConfig,
};
pub use error::RecipeError;
pub use settings::distinct_settings;
pub use training::{SelectBy, TrainConfig};

/// Configuration of a training run.
///
/// # Examples
/// ```
/// use graph_diffuser::recipe::Recipe;
///
/// let recipe = Recipe::find("grid-diffuser", &["optim.lr=3e-4".to_owned()])?;
/// assert_eq!(recipe.optim.lr, 3e-4);
/// # Ok::<(), graph_diffuser::recipe::RecipeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the recipe and prefix of its run directories (letters, digits, `-`, `_`, `.`).
    pub name: String,
    /// Seed of weight initialization, shuffling and dropout; default 0.
    #[serde(default)]
    pub seed: u64,
    /// Dataset and split.
    pub data: DataConfig,
    /// Model architecture.
    pub model: ModelConfig,
    /// Loss and selection metric; default: those of the dataset's task.
    #[serde(default, skip_serializing_if = "TaskConfig::is_default")]
    pub task: TaskConfig,
    /// Optimizer and learning-rate schedule.
    #[serde(default)]
    pub optim: OptimConfig,
    /// Epochs, batches, evaluation and early stopping.
    pub train: TrainConfig,
    /// Result that the paper reports for this recipe, shown in reports; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperResult>,
}

/// Result reported in the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperResult {
    /// Metric that the paper reports.
    pub metric: Metric,
    /// Mean over seeds.
    pub mean: f64,
    /// Standard deviation over seeds; default: not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std: Option<f64>,
    /// Number of trainable parameters, to the nearest thousand; default: not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<usize>,
}

impl PaperResult {
    /// Formats the result as `mean ± std`, with four decimals.
    pub fn formatted(&self) -> String {
        self.std.map_or_else(
            || format!("{:.4}", self.mean),
            |std| format!("{:.4} ± {std:.4}", self.mean),
        )
    }
}

/// Embeds `recipes/<name>.toml` for each name.
macro_rules! embed_recipes {
    ($($name:literal,)+) => {
        [$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/", $name, ".toml")),
        ),)+]
    };
}

/// Built-in recipes: name and TOML text.
pub const BUILT_IN: [(&str, &str); 35] = embed_recipes![
    "graphs",
    "grid-diffuser",
    "grid-diffuser-authors",
    "grid-diffuser-position",
    "grid-diffuser-text",
    "grid-gnn",
    "grid-gnn-then-transformer",
    "grid-gps-rwpe",
    "grid-quick",
    "grid-transformer",
    "grid-transformer-rwpe",
    "grid-transformer-signnet",
    "molecules",
    "molecules-pretraining",
    "ogbg-code2",
    "ogbg-molhiv",
    "ogbg-molpcba",
    "ogbg-ppa",
    "pcqm-contact",
    "pcqm4mv2",
    "peptides-func",
    "peptides-func-short",
    "peptides-struct",
    "zinc",
    "zinc-ablation-gnn-then-transformer-fixed",
    "zinc-ablation-gnn-then-transformer-plain",
    "zinc-ablation-gnn-then-transformer-weighted",
    "zinc-ablation-gps-fixed",
    "zinc-ablation-gps-plain",
    "zinc-ablation-gps-weighted",
    "zinc-ablation-transformer-fixed",
    "zinc-ablation-transformer-plain",
    "zinc-ablation-transformer-weighted",
    "zinc-dev",
    "zinc-short",
];

impl Recipe {
    /// Loads a built-in recipe by name or a recipe file by path, or chooses the recipe of a data
    /// file or directory, and applies `overrides` such as `optim.lr=1e-3`.
    ///
    /// # Errors
    /// Returns an error if no such recipe exists or it is invalid.
    pub fn find(name_or_path: &str, overrides: &[String]) -> Result<Self, RecipeError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(text, &format!("recipe `{name}`"), overrides);
        }
        let path = Path::new(name_or_path);
        if is_data(path) {
            return Self::for_data(path, overrides);
        }
        if !path.exists() && path.extension().is_none() {
            return Err(RecipeError::Unknown { name: name_or_path.to_owned() });
        }
        Self::read(path, overrides)
    }

    /// Returns the recipe that trains on a data file or directory: `molecules` for tables of
    /// SMILES, `graphs` for other formats, named after the file.
    ///
    /// # Errors
    /// Returns an error if the path does not exist or its format is not supported.
    pub fn for_data(path: &Path, overrides: &[String]) -> Result<Self, RecipeError> {
        if path.join("recipe.toml").is_file() {
            return Err(RecipeError::IsRun { directory: path.to_owned() });
        }
        let format = Format::detect(path).map_err(DataError::from)?;
        let (recipe, kind) = match format {
            Format::SmilesCsv | Format::Smi | Format::Sdf | Format::Parquet => {
                ("molecules", "smiles_csv")
            }
            Format::Jsonl => ("graphs", "jsonl"),
            Format::OgbCsv => ("graphs", "ogb_csv"),
            Format::Tu => ("graphs", "tu"),
        };
        // A recipe is TOML, which is UTF-8.
        let Some(text) = path.to_str() else {
            return Err(RecipeError::NotUtf8 { path: path.to_owned() });
        };
        let data_path = Value::String(text.to_owned());
        let defaults = [
            format!("data={{kind=\"{kind}\",path={data_path}}}"),
            format!("name={}", Value::String(data_name(path))),
        ];
        let overrides: Vec<String> =
            defaults.into_iter().chain(overrides.iter().cloned()).collect();
        Self::find(recipe, &overrides)
    }

    /// Reads a recipe file and applies `overrides`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or the recipe is invalid.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self, RecipeError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| RecipeError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &format!("`{}`", path.display()), overrides)
    }

    /// Parses TOML, applies `overrides` such as `optim.lr=1e-3`, and checks the result.
    ///
    /// `origin` names the source of the text in errors.
    ///
    /// # Errors
    /// Returns the first error found.
    pub fn parse(text: &str, origin: &str, overrides: &[String]) -> Result<Self, RecipeError> {
        let parse_error = |error: toml::de::Error| RecipeError::Parse {
            origin: origin.to_owned(),
            message: in_toml_terms(error.to_string().trim_end()),
            suggestion: suggestion(error.message()),
        };
        let mut recipe: Self = toml::from_str(text).map_err(parse_error)?;
        if !overrides.is_empty() {
            recipe = overrides::apply(&recipe, overrides)?;
        }
        recipe.check()?;
        Ok(recipe)
    }

    fn to_table(&self) -> Table {
        Table::try_from(self).expect("a recipe is a table of plain values")
    }

    /// Serializes the recipe as TOML, including defaults.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a recipe is a table of plain values")
    }

    /// Returns all settings as pairs of path, such as `optim.lr`, and TOML value.
    pub fn settings(&self) -> Vec<(String, String)> {
        settings::flatten(&self.to_table())
    }

    /// Returns the settings that differ from `other`, as overrides such as `optim.lr=1e-3`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let theirs = other.settings();
        let ours = self.settings().into_iter().filter(|setting| !theirs.contains(setting));
        ours.map(|(path, value)| format!("{path}={value}")).collect()
    }

    /// Creates the task of the model on a dataset with the given schema.
    pub fn task_for(&self, schema: &Schema) -> Task {
        self.task.init(&schema.targets, self.model.head)
    }

    /// Generates the dataset, or reads it from `dirs`.
    ///
    /// # Errors
    /// Returns an error if the dataset is missing or invalid, or does not match the model's head.
    pub fn dataset(&self, dirs: &DataDirs) -> Result<Dataset, RecipeError> {
        Ok(self.load(dirs, &mut |_, _| {})?.dataset)
    }

    /// Generates the dataset or reads it from `dirs`, with a description of how its files were
    /// understood.
    ///
    /// # Errors
    /// Returns an error if the dataset is missing or invalid, or does not match the model's head.
    pub fn load(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedDataset, RecipeError> {
        let mut loaded = self.data.read(dirs, progress)?;
        if let Some(error) = loaded.split_error {
            return Err(DataError::Split(error).into());
        }
        loaded.dataset.check()?;
        self.check_schema(&loaded.dataset.schema)?;
        if self.task.standardize != Some(false) {
            loaded.dataset.standardize_targets();
        }
        Ok(loaded)
    }

    /// Returns the recipe for a training split of this size: the number of epochs is limited by
    /// `train.max_samples`.
    pub fn for_training_graphs(&self, count: usize) -> Self {
        let mut recipe = self.clone();
        if let Some(max_samples) = self.train.max_samples {
            let epochs = max_samples.div_ceil(count.max(1)).max(1);
            recipe.train.epochs = self.train.epochs.min(epochs);
        }
        recipe
    }

    /// Initializes the model to train on data with this schema, with weights drawn from the seed of
    /// the recipe.
    pub fn init_model(&self, schema: &Schema, device: &Device) -> GraphDiffuser {
        let device = device.clone().autodiff();
        self.model.init_for(schema, &mut ParamInit::new(SeedTree::new(self.seed), &device))
    }

    /// Counts the trainable parameters of the model for data with this schema; the model is not
    /// built, so the count takes no memory.
    pub fn num_parameters(&self, schema: &Schema) -> usize {
        parameters::count(&self.model.init_for(schema, &mut ParamInit::shapes_only()))
    }

    /// Counts the trainable parameters of each part of the model for data with this schema, in
    /// model order.
    pub fn parameters_by_part(&self, schema: &Schema) -> Vec<(String, usize)> {
        let model = self.model.init_for(schema, &mut ParamInit::shapes_only());
        let mut parts: Vec<(String, usize)> = Vec::new();
        for entry in parameters::named_params(&model).into_iter().filter(|entry| entry.trainable) {
            let part = entry.name.split('.').next().unwrap_or_default();
            match parts.last_mut() {
                Some((last, count)) if last == part => *count = count.saturating_add(entry.count()),
                _ => parts.push((part.to_owned(), entry.count())),
            }
        }
        parts
    }
}

/// Returns a recipe name for a data path: the file name without extensions, in valid characters.
fn data_name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = match name.split_once('.') {
        Some((stem, _)) if !stem.is_empty() && !path.is_dir() => stem,
        _ => &name,
    };
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_".contains(char);
    let plain: String = stem.chars().map(|char| if is_plain(char) { char } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "data".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::Diagnostic as _;

    use super::*;

    fn quick(overrides: &[&str]) -> Result<Recipe, RecipeError> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        Recipe::find("grid-quick", &overrides)
    }

    #[test]
    fn built_in_recipes_are_valid_and_survive_a_round_trip() {
        for (name, _) in BUILT_IN {
            let recipe = Recipe::find(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(recipe.name, name);
            let reread = Recipe::parse(&recipe.to_toml(), name, &[]).expect("serialized recipe");
            assert_eq!(recipe, reread);
        }
    }

    #[test]
    fn grid_parameter_counts_match_the_paper_text_and_the_authors_script() {
        let count = |name: &str, set: &[&str]| -> usize {
            let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
            let recipe = Recipe::find(name, &set).expect("valid recipe");
            let schema = recipe.data.schema().expect("the schema of a benchmark is known");
            recipe.parameters_by_part(&schema).into_iter().map(|(_, count)| count).sum()
        };
        for name in ["grid-diffuser", "grid-diffuser-text"] {
            assert_eq!(count(name, &[]), 33_073);
        }
        assert_eq!(count("grid-diffuser-authors", &[]), 43_000);
        let position_only = "model.attention.scores={kind=\"position\",combine=\"add\"}";
        assert_eq!(count("grid-diffuser-authors", &[position_only]), 34_552);
    }

    #[test]
    fn parameter_counts_are_within_five_percent_of_the_paper_except_documented_ones() {
        // docs/paper-map.md explains these differences.
        let explained =
            ["grid-diffuser", "grid-diffuser-position", "grid-diffuser-text", "pcqm-contact"];
        for (name, _) in BUILT_IN {
            let recipe = Recipe::find(name, &[]).expect("valid recipe");
            let (Some(schema), Some(printed)) =
                (recipe.data.schema(), recipe.paper.as_ref().and_then(|paper| paper.parameters))
            else {
                continue;
            };
            let count: usize =
                recipe.parameters_by_part(&schema).into_iter().map(|(_, count)| count).sum();
            let error = (count as f64 / printed as f64 - 1.0).abs();
            assert_eq!(error <= 0.05, !explained.contains(&name), "{name}: {count} of {printed}");
        }
    }

    #[test]
    fn parameters_are_counted_without_building_the_model() {
        for (name, _) in BUILT_IN {
            let recipe = Recipe::find(name, &[]).expect("valid recipe");
            let Some(schema) = recipe.data.schema() else { continue };
            let built = recipe.init_model(&schema, &Device::flex());
            let shapes = recipe.model.init_for(&schema, &mut ParamInit::shapes_only());
            assert_eq!(parameters::named_params(&shapes), parameters::named_params(&built));
            assert_eq!(recipe.num_parameters(&schema), parameters::count(&built), "{name}");
        }
        let large = ["model.virtual_edges.ffn.expansion=1000", "data.colors=16777216"];
        let recipe = quick(&large).expect("valid recipe");
        let schema = recipe.data.schema().expect("known");
        assert!(recipe.num_parameters(&schema) > 16_777_216 * recipe.model.hidden_dim);
    }

    #[test]
    fn override_sets_a_value_by_its_path() {
        let recipe = quick(&["optim.lr=0.25", "train.batch_size=7", "name=mine", "seed=3"])
            .expect("valid recipe");
        assert_eq!((recipe.optim.lr, recipe.train.batch_size), (0.25, 7));
        assert_eq!((recipe.name.as_str(), recipe.seed), ("mine", 3));
    }

    #[test]
    fn override_of_kind_drops_the_keys_of_the_previous_variant() {
        let recipe = quick(&["model.virtual_edges.transform.kind=none"]).expect("`eps` is dropped");
        let edges = recipe.model.virtual_edges.expect("grid-quick has virtual edges");
        assert_eq!(edges.transform, crate::virtual_edges::StackTransform::None {});
    }

    #[test]
    fn misspelled_key_is_rejected_with_a_suggestion() {
        let cases = [
            ("model.hiden_dim=32", "model.hidden_dim"),
            ("optim.learning=1", ""),
            ("model.attention.scores.combine=gaet", "gate"),
            ("model.virtual_edges.adjacency.kernal=exp", ""),
            ("data.colours=3", "data.colors"),
            ("model.virtual_edges.transform={kind=\"none\",eps=1e-3}", ""),
        ];
        for (text, expected) in cases {
            let error = quick(&[text]).expect_err("invalid key");
            let hint = error.hint().unwrap_or_default();
            assert!(hint.contains(expected), "{text}: {error} / {hint}");
        }
        let error = Recipe::find("grid-quik", &[]).expect_err("unknown recipe");
        assert!(error.hint().expect("a hint").contains("grid-quick"));
    }

    #[test]
    fn file_names_that_look_like_toml_values_are_names() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["2024", "true", "1e5", "0x10", "nan"] {
            let path = directory.path().join(format!("{name}.csv"));
            std::fs::write(&path, "smiles,y\nC,1\n").expect("writable");
            assert_eq!(Recipe::for_data(&path, &[]).expect("valid").name, name);
        }
    }

    #[test]
    fn invalid_settings_are_found_before_data_is_read() {
        let cases = [
            ("model.hidden_dim=33", "not divisible by 4 heads"),
            ("model.dropout=1.0", "not a dropout probability"),
            ("model.layers=0", "`model.layers` is 0"),
            ("optim.lr=-1", "`optim.lr` is -1"),
            ("optim.lr=nan", "`optim.lr` is NaN"),
            ("train.epochs=0", "`train.epochs` is 0"),
            ("train.batch_size=0", "`train.batch_size` is 0"),
            ("data.rows=0", "`rows` must be at least 1"),
            (
                "model.head={kind=\"graph\",pooling=\"sum\",mlp={kind=\"halving\"}}",
                "the dataset has node classes",
            ),
            ("model.attention.scores={kind=\"content\"}", ""),
            ("name=../elsewhere", "directory names"),
            ("model.hidden_dim=100000000000", "`model.hidden_dim` is 100000000000"),
            ("data.train=100000000000000", "100 million nodes"),
            ("data.colors=1000000000", "`colors` and `classes` must be at most 16,777,216"),
            ("model.virtual_edges.ffn.layers=1000000", "exceeds the maximum of 1024"),
            ("model.virtual_edges.ffn.expansion=1000000", "exceeds the maximum of 1024"),
            (
                "model.head={kind=\"node\",mlp={kind=\"plain\",hidden_layers=1000000000}}",
                "`model.head.mlp.hidden_layers` is 1000000000",
            ),
            ("task.loss=mse", "`task.loss` has no effect"),
            ("model.head.dropout=0.1", "`model.head.dropout` has no effect"),
            ("task.metric=mae", "`task.metric` is mae"),
            ("task.metric=macro_f1", ""),
            ("optim.lr", "expected KEY=VALUE"),
            ("optim.lr.x=1", "not a table"),
        ];
        for (text, message) in cases {
            match quick(&[text]) {
                Ok(_) => assert_eq!(message, "", "{text} was accepted"),
                Err(error) => assert!(error.to_string().contains(message), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn number_of_epochs_is_limited_on_large_datasets() {
        let recipe = quick(&["train.epochs=100", "train.max_samples=5000"]).expect("valid recipe");
        for (graphs, epochs) in [(0, 100), (50, 100), (51, 99), (1000, 5), (3000, 2), (9000, 1)] {
            assert_eq!(recipe.for_training_graphs(graphs).train.epochs, epochs, "{graphs} graphs");
        }
        let unlimited = quick(&["train.epochs=100"]).expect("valid recipe");
        assert_eq!(unlimited.for_training_graphs(1_000_000), unlimited);
    }

    #[test]
    fn recipe_of_a_data_path_follows_from_its_format_and_is_named_after_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(&path, content).expect("written");
            path.to_string_lossy().into_owned()
        };
        let find = |path: &str| Recipe::find(path, &["train.epochs=2".into()]).expect("a recipe");
        let csv = find(&write("my data (1).csv", "smiles,y\nC,1\n"));
        assert_eq!((csv.name.as_str(), csv.train.epochs), ("my-data--1", 2));
        assert!(matches!(csv.data, DataConfig::SmilesCsv(_)));
        let jsonl = find(&write("a.b.jsonl", "{\"nodes\": 1, \"target\": 1}\n"));
        assert_eq!(jsonl.name, "a");
        assert!(matches!(jsonl.data, DataConfig::Jsonl(_)));
        write("MUTAG/MUTAG_A.txt", "1, 2\n");
        let tu = find(&directory.path().join("MUTAG").to_string_lossy());
        assert!(matches!(tu.data, DataConfig::Tu(_)) && tu.name == "MUTAG");
        let run = directory.path().join("run");
        write("run/recipe.toml", "");
        let error = Recipe::find(&run.to_string_lossy(), &[]).expect_err("a run directory");
        assert!(error.hint().expect("a hint").contains("train --resume"));
        let error = Recipe::find("missing.csv", &[]).expect_err("no such file");
        assert!(error.to_string().contains("no such file or directory"), "{error}");
    }
}

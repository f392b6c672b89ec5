//! A recipe: dataset, model and training as typed TOML. Unknown keys are errors.

mod data;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use graph_diffuser_data::dataset::DatasetError;
use graph_diffuser_data::progress::ProgressFn;
use graph_diffuser_data::{Dataset, Schema, SeedTree};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::model::{ModelConfig, ModelError};
use crate::nn::ParamInit;
use crate::parameters;
use crate::task::{Metric, TaskConfig, TaskError};
use crate::train::{OptimConfig, Schedule, TrainConfig};

pub use data::{
    BenchmarkConfig, Code2Config, DataConfig, DataDirs, DataError, JsonlConfig, OgbCsvConfig,
    SmilesCsvConfig, SplitConfig, TuConfig,
};

/// Everything that decides a run: the same recipe gives the same bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Its name, which run directories start with.
    pub name: String,
    /// Draws weights, order and dropout.
    #[serde(default)]
    pub seed: u64,
    /// What is learned from.
    pub data: DataConfig,
    /// What learns.
    pub model: ModelConfig,
    /// What of the task is chosen otherwise than usual.
    #[serde(default, skip_serializing_if = "TaskConfig::is_default")]
    pub task: TaskConfig,
    /// How weights change.
    #[serde(default)]
    pub optim: OptimConfig,
    /// How long, on what batches, and how it is judged.
    pub train: TrainConfig,
    /// What the paper reports, where the recipe is a row of one of its tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperResult>,
}

/// A figure of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperResult {
    /// What is measured.
    pub metric: Metric,
    /// Mean over seeds.
    pub mean: f64,
    /// Deviation over seeds, where it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Parameters, printed to the nearest thousand, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<usize>,
}

impl PaperResult {
    /// Mean and deviation as they are printed.
    pub fn printed(&self) -> String {
        self.sd
            .map_or_else(|| format!("{:.4}", self.mean), |sd| format!("{:.4} ± {sd:.4}", self.mean))
    }
}

/// Why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("cannot read recipe `{path}`")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Neither a built-in recipe nor a file.
    #[error("there is no recipe `{name}`")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Not the TOML of a recipe.
    #[error("{origin}: {message}")]
    Parse {
        /// File or recipe.
        origin: String,
        /// What the parser says, with line and column.
        message: String,
        /// A key or value that was probably meant.
        suggestion: Option<String>,
    },
    /// `--set` without a value.
    #[error("`{assignment}` does not set anything")]
    Assignment {
        /// What was given.
        assignment: String,
    },
    /// A path that goes through a plain value.
    #[error("cannot set `{path}`: `{value}` is not a table")]
    NotATable {
        /// The whole path.
        path: String,
        /// The part that is a plain value.
        value: String,
    },
    /// A number that cannot be used.
    #[error("`{field}` is {value}; it must be {expected}")]
    Value {
        /// Which.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The dataset cannot be made.
    #[error("the dataset cannot be made: {fault}")]
    Data {
        /// Why.
        fault: &'static str,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task cannot be set so.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Unread(#[from] DataError),
    /// The dataset is not sound.
    #[error("the dataset cannot be used")]
    Dataset(#[from] DatasetError),
}

impl RecipeError {
    /// What the user can do about it, when we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some("list the built-in recipes with `graph-diffuser recipe list`".into()),
            Self::Unknown { name } => Some(match nearest(name, BUILT_IN.iter().map(|(name, _)| *name)) {
                Some(near) => format!("did you mean `{near}`? `graph-diffuser recipe list` shows all"),
                None => {
                    "list the built-in ones with `graph-diffuser recipe list`, or give the path of a TOML file".into()
                }
            }),
            Self::Parse { suggestion, .. } => suggestion.as_ref().map(|near| format!("did you mean `{near}`?")),
            Self::Assignment { .. } => Some("write it as `--set optim.lr=1e-3`".into()),
            Self::NotATable { .. } => Some("`graph-diffuser recipe show NAME` prints every key".into()),
            Self::Model(error) => error.hint(),
            Self::Task(error) => error.hint(),
            Self::Unread(error) => error.hint(),
            Self::Value { .. } | Self::Data { .. } | Self::Dataset(_) => None,
        }
    }
}

/// Recipes inside the program, by name.
pub const BUILT_IN: [(&str, &str); 33] = [
    ("graphs", include_str!("../../../recipes/graphs.toml")),
    ("grid-diffuser", include_str!("../../../recipes/grid-diffuser.toml")),
    ("grid-diffuser-authors", include_str!("../../../recipes/grid-diffuser-authors.toml")),
    ("grid-diffuser-position", include_str!("../../../recipes/grid-diffuser-position.toml")),
    ("grid-diffuser-text", include_str!("../../../recipes/grid-diffuser-text.toml")),
    ("grid-gnn", include_str!("../../../recipes/grid-gnn.toml")),
    ("grid-gnn-then-transformer", include_str!("../../../recipes/grid-gnn-then-transformer.toml")),
    ("grid-gps-rwpe", include_str!("../../../recipes/grid-gps-rwpe.toml")),
    ("grid-quick", include_str!("../../../recipes/grid-quick.toml")),
    ("grid-transformer", include_str!("../../../recipes/grid-transformer.toml")),
    ("grid-transformer-rwpe", include_str!("../../../recipes/grid-transformer-rwpe.toml")),
    ("grid-transformer-signnet", include_str!("../../../recipes/grid-transformer-signnet.toml")),
    ("molecules", include_str!("../../../recipes/molecules.toml")),
    ("ogbg-code2", include_str!("../../../recipes/ogbg-code2.toml")),
    ("ogbg-molpcba", include_str!("../../../recipes/ogbg-molpcba.toml")),
    ("ogbg-ppa", include_str!("../../../recipes/ogbg-ppa.toml")),
    ("pcqm-contact", include_str!("../../../recipes/pcqm-contact.toml")),
    ("pcqm4mv2", include_str!("../../../recipes/pcqm4mv2.toml")),
    ("peptides-func", include_str!("../../../recipes/peptides-func.toml")),
    ("peptides-func-short", include_str!("../../../recipes/peptides-func-short.toml")),
    ("peptides-struct", include_str!("../../../recipes/peptides-struct.toml")),
    ("zinc", include_str!("../../../recipes/zinc.toml")),
    (
        "zinc-ablation-gnn-then-transformer-fixed",
        include_str!("../../../recipes/zinc-ablation-gnn-then-transformer-fixed.toml"),
    ),
    (
        "zinc-ablation-gnn-then-transformer-plain",
        include_str!("../../../recipes/zinc-ablation-gnn-then-transformer-plain.toml"),
    ),
    (
        "zinc-ablation-gnn-then-transformer-weighted",
        include_str!("../../../recipes/zinc-ablation-gnn-then-transformer-weighted.toml"),
    ),
    ("zinc-ablation-gps-fixed", include_str!("../../../recipes/zinc-ablation-gps-fixed.toml")),
    ("zinc-ablation-gps-plain", include_str!("../../../recipes/zinc-ablation-gps-plain.toml")),
    (
        "zinc-ablation-gps-weighted",
        include_str!("../../../recipes/zinc-ablation-gps-weighted.toml"),
    ),
    (
        "zinc-ablation-transformer-fixed",
        include_str!("../../../recipes/zinc-ablation-transformer-fixed.toml"),
    ),
    (
        "zinc-ablation-transformer-plain",
        include_str!("../../../recipes/zinc-ablation-transformer-plain.toml"),
    ),
    (
        "zinc-ablation-transformer-weighted",
        include_str!("../../../recipes/zinc-ablation-transformer-weighted.toml"),
    ),
    ("zinc-dev", include_str!("../../../recipes/zinc-dev.toml")),
    ("zinc-short", include_str!("../../../recipes/zinc-short.toml")),
];

impl Recipe {
    /// The built-in recipe of this name, or the recipe in this file, with `assignments` made.
    ///
    /// # Errors
    /// Where there is none, or it is not sound.
    pub fn find(name_or_path: &str, assignments: &[String]) -> Result<Self, RecipeError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(text, &format!("recipe `{name}`"), assignments);
        }
        let path = Path::new(name_or_path);
        if !path.exists() && path.extension().is_none() {
            return Err(RecipeError::Unknown { name: name_or_path.to_owned() });
        }
        Self::read(path, assignments)
    }

    /// The recipe in this file, with `assignments` made.
    ///
    /// # Errors
    /// Where it cannot be read or is not sound.
    pub fn read(path: &Path, assignments: &[String]) -> Result<Self, RecipeError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| RecipeError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &format!("`{}`", path.display()), assignments)
    }

    /// Reads TOML, makes `assignments` such as `optim.lr=1e-3`, and checks everything.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(text: &str, origin: &str, assignments: &[String]) -> Result<Self, RecipeError> {
        let fault = |error: toml::de::Error| RecipeError::Parse {
            origin: origin.to_owned(),
            message: error.to_string().trim_end().to_owned(),
            suggestion: suggestion(error.message()),
        };
        let mut recipe: Self = toml::from_str(text).map_err(fault)?;
        if !assignments.is_empty() {
            let mut table = recipe.to_table();
            for assignment in assignments {
                assign(&mut table, assignment)?;
            }
            recipe = Value::Table(table).try_into().map_err(|error: toml::de::Error| {
                RecipeError::Parse {
                    origin: "after `--set`".to_owned(),
                    message: error.to_string().trim_end().to_owned(),
                    suggestion: suggestion(error.message()),
                }
            })?;
        }
        recipe.check()?;
        Ok(recipe)
    }

    fn to_table(&self) -> Table {
        Table::try_from(self).expect("a recipe is a table of plain values")
    }

    /// The recipe as TOML with every default written out.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a recipe is a table of plain values")
    }

    /// What is set otherwise than in `other`, as assignments.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        fn flatten(table: &Table, path: &str, settings: &mut Vec<(String, String)>) {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match value {
                    Value::Table(inner) => flatten(inner, &path, settings),
                    value => settings.push((path, value.to_string())),
                }
            }
        }
        let settings = |recipe: &Self| {
            let mut settings = Vec::new();
            flatten(&recipe.to_table(), "", &mut settings);
            settings
        };
        let theirs = settings(other);
        let ours = settings(self).into_iter().filter(|setting| !theirs.contains(setting));
        ours.map(|(path, value)| format!("{path}={value}")).collect()
    }

    /// Finds what is wrong before any data is read.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), RecipeError> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(plain) {
            return Err(RecipeError::Value {
                field: "name",
                value: format!("{:?}", self.name),
                expected: "letters, digits, `-`, `_` and `.`, for it names directories",
            });
        }
        if let Some(fault) = self.data.check() {
            return Err(RecipeError::Data { fault });
        }
        self.model.check()?;
        if let Some(schema) = self.data.schema() {
            self.check_targets(&schema)?;
        }
        let wrong =
            |field, value: String, expected| Err(RecipeError::Value { field, value, expected });
        let OptimConfig { lr, weight_decay, grad_clip_norm, beta_1, beta_2, eps, schedule } =
            self.optim;
        for (field, value) in [("optim.lr", lr), ("optim.eps", eps)] {
            if !(value.is_finite() && value > 0.0) {
                return wrong(field, value.to_string(), "a number above 0");
            }
        }
        for (field, value) in
            [("optim.weight_decay", weight_decay), ("optim.grad_clip_norm", grad_clip_norm)]
        {
            if !(value.is_finite() && value >= 0.0) {
                return wrong(field, value.to_string(), "0 or a number above it");
            }
        }
        for (field, value) in [("optim.beta_1", beta_1), ("optim.beta_2", beta_2)] {
            if !(0.0..1.0).contains(&value) {
                return wrong(field, value.to_string(), "at least 0 and below 1");
            }
        }
        let TrainConfig {
            epochs,
            batch_size,
            max_pairs,
            eval_every,
            bn_recalibration_batches,
            ema_decay,
            patience,
            ..
        } = self.train;
        let counts = [
            ("train.epochs", epochs),
            ("train.batch_size", batch_size),
            ("train.max_pairs", max_pairs.unwrap_or(1)),
            ("train.eval_every", eval_every),
        ];
        for (field, value) in counts {
            if value == 0 {
                return wrong(field, value.to_string(), "at least 1");
            }
        }
        if let Schedule::Cosine { warmup_epochs, .. } = schedule
            && !(0.0..=epochs as f64).contains(&warmup_epochs)
        {
            return wrong(
                "optim.schedule.warmup_epochs",
                warmup_epochs.to_string(),
                "between 0 and `train.epochs`",
            );
        }
        if patience == Some(0) {
            return wrong("train.patience", "0".into(), "at least 1");
        }
        if let Some(decay) = ema_decay {
            if !(0.0..1.0).contains(&decay) {
                return wrong("train.ema_decay", decay.to_string(), "at least 0 and below 1");
            }
            if bn_recalibration_batches == 0 {
                // Running statistics are those of the weights before averaging.
                return wrong(
                    "train.bn_recalibration_batches",
                    "0".into(),
                    "at least 1 where weights are averaged",
                );
            }
        }
        Ok(())
    }

    fn check_targets(&self, schema: &Schema) -> Result<(), RecipeError> {
        self.model.check_targets(schema.targets)?;
        Ok(self.task.check(schema.targets)?)
    }

    /// Draws or reads the dataset, from where data and cached files usually are.
    ///
    /// # Errors
    /// Where it is not there, not sound, or not what the model predicts.
    pub fn dataset(&self) -> Result<Dataset, RecipeError> {
        self.dataset_from(&DataDirs::here(), &mut |_, _| {})
    }

    /// The same from other places, telling `progress` how far it is.
    ///
    /// # Errors
    /// The same.
    pub fn dataset_from(
        &self,
        places: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, RecipeError> {
        let dataset = self.data.read(places, progress)?;
        dataset.check()?;
        self.check_targets(&dataset.schema)?;
        Ok(dataset)
    }

    /// Trainable parameters of each part of the model, in order, for data of this schema.
    pub fn parameters_by_part(&self, schema: &Schema) -> Vec<(String, usize)> {
        let mut init = ParamInit::new(SeedTree::new(0), &Device::flex());
        let model = self.model.init_for(schema, &mut init);
        let mut parts: Vec<(String, usize)> = Vec::new();
        for entry in parameters::named_params(&model).into_iter().filter(|entry| entry.trainable) {
            let part = entry.name.split('.').next().unwrap_or_default();
            match parts.last_mut() {
                Some((last, count)) if last == part => *count += entry.count(),
                _ => parts.push((part.to_owned(), entry.count())),
            }
        }
        parts
    }
}

/// Sets one value of a table by its path.
fn assign(table: &mut Table, assignment: &str) -> Result<(), RecipeError> {
    let malformed = || RecipeError::Assignment { assignment: assignment.to_owned() };
    let (path, value) = assignment.split_once('=').ok_or_else(malformed)?;
    let (path, value) = (path.trim(), value.trim());
    let mut keys: Vec<&str> = path.split('.').collect();
    if value.is_empty() || keys.iter().any(|key| key.is_empty()) {
        return Err(malformed());
    }
    // Bare words are strings, so that a shell needs no quotes.
    let value = match format!("value = {value}").parse::<Table>() {
        Ok(mut parsed) => parsed.remove("value").ok_or_else(malformed)?,
        Err(_) => Value::String(value.to_owned()),
    };
    let last = keys.pop().ok_or_else(malformed)?;
    let mut place = table;
    for key in keys {
        let inner = place.entry(key).or_insert_with(|| Value::Table(Table::new()));
        place = inner.as_table_mut().ok_or_else(|| RecipeError::NotATable {
            path: path.to_owned(),
            value: key.to_owned(),
        })?;
    }
    let names_a_variant = last == "kind" && place.get(last) != Some(&value);
    if names_a_variant {
        place.clear(); // the other keys belonged to the other variant
    }
    place.insert(last.to_owned(), value);
    Ok(())
}

/// The nearest of the names that serde expected, read off its message: the unknown one comes first.
fn suggestion(message: &str) -> Option<String> {
    if !message.contains("unknown ") {
        return None;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    nearest(unknown, quoted).map(str::to_owned)
}

fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = candidates.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    close
        .filter(|(score, _)| *score > 0.75)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(assignments: &[&str]) -> Result<Recipe, RecipeError> {
        let assignments: Vec<String> = assignments.iter().map(|text| (*text).to_owned()).collect();
        Recipe::find("grid-quick", &assignments)
    }

    #[test]
    fn every_built_in_recipe_is_sound_and_bears_its_name() {
        for (name, _) in BUILT_IN {
            let recipe = Recipe::find(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(recipe.name, name);
            let again =
                Recipe::parse(&recipe.to_toml(), name, &[]).expect("what is written can be read");
            assert_eq!(recipe, again);
        }
    }

    #[test]
    fn parameter_counts_are_those_of_the_text_and_of_the_authors_script() {
        let count = |name: &str, set: &[&str]| -> usize {
            let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
            let recipe = Recipe::find(name, &set).expect("sound");
            let schema = recipe.data.schema().expect("known before the data");
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
    fn counts_are_within_five_percent_of_the_printed_ones_but_for_those_explained() {
        // The paper map says why these differ.
        let explained =
            ["grid-diffuser", "grid-diffuser-position", "grid-diffuser-text", "pcqm-contact"];
        for (name, _) in BUILT_IN {
            let recipe = Recipe::find(name, &[]).expect("sound");
            let (Some(schema), Some(printed)) =
                (recipe.data.schema(), recipe.paper.as_ref().and_then(|paper| paper.parameters))
            else {
                continue;
            };
            let count: usize =
                recipe.parameters_by_part(&schema).into_iter().map(|(_, count)| count).sum();
            let apart = (count as f64 / printed as f64 - 1.0).abs();
            assert_eq!(apart <= 0.05, !explained.contains(&name), "{name}: {count} of {printed}");
        }
    }

    #[test]
    fn a_value_is_set_by_its_path() {
        let recipe =
            quick(&["optim.lr=0.25", "train.batch_size=7", "name=mine", "seed=3"]).expect("sound");
        assert_eq!((recipe.optim.lr, recipe.train.batch_size), (0.25, 7));
        assert_eq!((recipe.name.as_str(), recipe.seed), ("mine", 3));
    }

    #[test]
    fn a_new_kind_forgets_the_keys_of_the_old_one() {
        let recipe = quick(&["train.max_pairs=1000"]).expect("`graphs` went");
        assert_eq!(recipe.train.max_pairs, Some(1000));
        let recipe =
            quick(&["model.virtual_edges.transform.kind=none"]).expect("`epsilon` went with `log`");
        let edges = recipe.model.virtual_edges.expect("grid-quick diffuses");
        assert_eq!(edges.transform, crate::virtual_edges::StackTransform::None {});
    }

    #[test]
    fn a_misspelt_key_is_refused_with_a_suggestion() {
        let cases = [
            ("model.widht=32", "width"),
            ("optim.learning=1", ""),
            ("model.attention.scores.combine=gaet", "gate"),
            ("model.virtual_edges.adjacency.kernal=exp", ""),
            ("data.colors=3", "colours"),
            ("model.virtual_edges.transform={kind=\"none\",eps=1e-3}", ""),
        ];
        for (assignment, meant) in cases {
            let error = quick(&[assignment]).expect_err("refused");
            let hint = error.hint().unwrap_or_default();
            assert!(hint.contains(meant), "{assignment}: {error} / {hint}");
        }
        let error = Recipe::find("grid-quik", &[]).expect_err("refused");
        assert!(error.hint().expect("a hint").contains("grid-quick"));
    }

    #[test]
    fn faults_are_found_before_data_is_read() {
        let cases = [
            ("model.hidden_dim=33", "4 heads cannot share"),
            ("model.dropout=1.0", "not a dropout probability"),
            ("model.layers=0", "`model.layers` is 0"),
            ("optim.lr=-1", "`optim.lr` is -1"),
            ("optim.lr=nan", "`optim.lr` is NaN"),
            ("train.epochs=0", "`train.epochs` is 0"),
            ("train.batch_size=0", "`train.batch_size` is 0"),
            ("data.rows=0", "`rows` is 0"),
            (
                "model.head={kind=\"graph\",pooling=\"sum\",mlp={kind=\"halving\"}}",
                "a class for every node",
            ),
            ("model.attention.scores={kind=\"content\"}", ""),
            ("name=../elsewhere", "for it names directories"),
            ("model.hidden_dim=100000000000", "`model.hidden_dim` is 100000000000"),
            ("data.train=100000000000000", "more than 100 million nodes"),
            ("task.loss=mse", "`task.loss` changes nothing"),
            ("task.metric=mae", "`task.metric` is mae"),
            ("task.metric=macro_f1", ""),
            ("optim.lr", "does not set anything"),
            ("optim.lr.x=1", "not a table"),
        ];
        for (assignment, message) in cases {
            match quick(&[assignment]) {
                Ok(_) => assert_eq!(message, "", "{assignment} was taken"),
                Err(error) => assert!(error.to_string().contains(message), "{assignment}: {error}"),
            }
        }
    }
}

//! Infers which columns are targets and of which kind, and converts their cells to values.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::SmilesCsvError;
use super::cells::{
    has_decimal_comma, is_date, is_missing, may_be_thousands, negative_first, parse_decimal_comma,
    parse_number, words,
};
use super::notes::{ColumnNote, IgnoredColumn, IgnoredReason};
use crate::schema::{Standardization, TargetKind};

/// Maximum cell length of a target column that was not requested by name; longer text is not a
/// target.
const MAX_CELL_LEN: usize = 200;

/// Maximum number of classes of a text column that is inferred to be a target.
const MAX_CLASSES: usize = 50;

/// Maximum number of classes of an integer column that is inferred to be multi-class by its name.
const MAX_INTEGER_CLASSES: usize = 20;

/// Minimum number of rows from which consecutive integers are a row index.
const MIN_INDEX_ROWS: usize = 10;

/// Task of a target column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetTask {
    /// Regression of a real value.
    Regression,
    /// Binary classification: 0 and 1, or two class names.
    Binary,
    /// Multi-class classification.
    Multiclass,
}

/// Task of the target columns: one for all of them, or by column name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TargetTasks {
    /// Task of all target columns.
    All(TargetTask),
    /// Tasks by column name; those of other columns are inferred.
    ByColumn(BTreeMap<String, TargetTask>),
}

impl<'de> Deserialize<'de> for TargetTasks {
    // A derived implementation would not name the value that is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TasksVisitor;

        impl<'de> Visitor<'de> for TasksVisitor {
            type Value = TargetTasks;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a task, or a table of tasks by column name")
            }

            fn visit_str<E: de::Error>(self, task: &str) -> Result<TargetTasks, E> {
                TargetTask::deserialize(task.into_deserializer()).map(TargetTasks::All)
            }

            fn visit_map<A: MapAccess<'de>>(self, tasks: A) -> Result<TargetTasks, A::Error> {
                let tasks = BTreeMap::deserialize(MapAccessDeserializer::new(tasks))?;
                Ok(TargetTasks::ByColumn(tasks))
            }
        }

        deserializer.deserialize_any(TasksVisitor)
    }
}

impl TargetTasks {
    /// Iterates over the columns whose task is given by name.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        let tasks = match self {
            Self::All(_) => None,
            Self::ByColumn(tasks) => Some(tasks),
        };
        tasks.into_iter().flatten().map(|(column, _)| column.as_str())
    }

    fn of(&self, column: &str) -> Option<TargetTask> {
        match self {
            Self::All(task) => Some(*task),
            Self::ByColumn(tasks) => tasks.get(column).copied(),
        }
    }
}

/// Cells of a column that may be a target.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    cells: Vec<String>,
    /// `true` if the column was found to be free text and its cells were dropped.
    dropped: bool,
}

/// One target: its name, kind, class names and the value of each row, NaN if missing.
#[derive(Debug)]
pub(super) struct InferredTarget {
    pub(super) name: String,
    pub(super) kind: TargetKind,
    pub(super) classes: Vec<String>,
    pub(super) values: Vec<f32>,
}

/// Targets, and what was done with the other columns.
#[derive(Debug, Default)]
pub(super) struct InferredTargets {
    pub(super) targets: Vec<InferredTarget>,
    pub(super) ignored: Vec<IgnoredColumn>,
    pub(super) notes: Vec<ColumnNote>,
}

/// Error with the row index and the column name of its cell.
pub(super) type CellError = (Option<usize>, String, SmilesCsvError);

/// Notation of the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Point,
    Comma,
}

impl Notation {
    fn parse(self, cell: &str) -> Option<f64> {
        match self {
            Self::Point => parse_number(cell),
            Self::Comma => parse_decimal_comma(cell),
        }
    }
}

/// Interpretation of a column.
enum Role {
    Target(TargetKind, Vec<String>),
    Ignored(IgnoredReason),
}

impl Column {
    pub(super) fn new(name: String) -> Self {
        Self { name, cells: Vec::new(), dropped: false }
    }

    pub(super) fn push(&mut self, cell: &str, requested: bool) {
        if !requested && cell.len() > MAX_CELL_LEN {
            self.dropped = true;
            self.cells = Vec::new();
        }
        if !self.dropped {
            self.cells.push(cell.trim().to_owned());
        }
    }

    fn observed(&self) -> impl Iterator<Item = &str> + Clone {
        self.cells.iter().map(String::as_str).filter(|cell| !is_missing(cell))
    }

    /// Returns whether most observed cells satisfy `predicate`; the others are then errors.
    fn mostly(&self, predicate: impl Fn(&str) -> bool) -> bool {
        let matching = self.observed().filter(|cell| predicate(cell)).count();
        2 * matching > self.observed().count()
    }

    /// Returns the notation of the numbers if most cells are numbers; an error if a comma may be a
    /// decimal comma or separate thousands.
    ///
    /// Spreadsheets separate columns by semicolons where the decimal separator is a comma.
    fn notation(&self, delimiter: u8) -> Result<Option<Notation>, String> {
        if self.mostly(|cell| parse_number(cell).is_some()) {
            return Ok(Some(Notation::Point));
        }
        if !self.mostly(|cell| parse_decimal_comma(cell).is_some()) {
            return Ok(None);
        }
        let mut with_comma = self.observed().filter(|cell| has_decimal_comma(cell));
        if delimiter != b';' && with_comma.clone().all(may_be_thousands) {
            return Err(with_comma.next().unwrap_or_default().to_owned());
        }
        Ok(Some(Notation::Comma))
    }

    /// Returns the distinct cells: numbers by value, then strings.
    fn classes(&self) -> Vec<String> {
        let mut classes: Vec<&str> = self.observed().collect();
        classes.sort_unstable_by(|a, b| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(first), Ok(second)) => first.total_cmp(&second).then_with(|| a.cmp(b)),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        });
        classes.dedup();
        classes.into_iter().map(ToOwned::to_owned).collect()
    }

    /// Returns whether the name or the values are those of an identifier or a row index.
    fn is_identifier(&self) -> bool {
        let words = words(&self.name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        const NAMES: [&str; 11] = [
            "name", "names", "compound", "molecule", "mol", "title", "row", "nr", "no", "index",
            "unnamed",
        ];
        let by_name = match words[..] {
            // The latter two are row indices that pandas writes to CSV and Parquet files.
            [] | ["unnamed", _] | ["index", "level", _] => true,
            [only] => {
                NAMES.contains(&only)
                    || is_identifier_word(only, true)
                    || is_identifier_word(only, false)
            }
            [first, .., last] => is_identifier_word(first, true) || is_identifier_word(last, false),
        };
        by_name || self.is_row_index() || self.has_id_suffix()
    }

    /// Returns whether the cells are consecutive integers.
    fn is_row_index(&self) -> bool {
        let integers: Option<Vec<i64>> = self.cells.iter().map(|cell| cell.parse().ok()).collect();
        integers.is_some_and(|integers| {
            integers.len() >= MIN_INDEX_ROWS
                && integers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
        })
    }

    /// Returns whether the name ends with `id` and the cells are distinct words or integers, such
    /// as `CHEMBLID`.
    fn has_id_suffix(&self) -> bool {
        let is_plain = |cell: &str| parse_number(cell).is_none_or(|number| number.fract() == 0.0);
        self.name.to_lowercase().ends_with("id")
            && self.observed().all(is_plain)
            && self.classes().len() == self.observed().count()
    }

    /// Returns whether the column holds dates or years.
    fn is_date(&self) -> bool {
        let words = words(&self.name);
        let has_word =
            |candidates: &[&str]| words.iter().any(|word| candidates.contains(&word.as_str()));
        let is_year = |cell: &str| {
            parse_number(cell)
                .is_some_and(|year| (1900.0..2100.0).contains(&year) && year.fract() == 0.0)
        };
        self.mostly(is_date)
            || has_word(&["date", "datetime", "timestamp"])
            || has_word(&["year", "yr"]) && self.observed().all(is_year)
    }
}

fn is_identifier_word(word: &str, is_first: bool) -> bool {
    match word {
        "id" | "ids" | "uuid" | "guid" | "barcode" | "inchikey" | "cid" | "sid" => true,
        "cas" | "casrn" | "batch" | "plate" | "lot" | "well" | "inchi" => is_first,
        "idx" => !is_first,
        _ => false,
    }
}

/// Infers the targets and converts their cells.
///
/// Columns `requested` by name are targets whatever they contain. Otherwise identifiers, dates,
/// free text and constant columns are ignored. Numbers are regression targets, columns of 0
/// and 1 or of two words are binary, and other columns with few repeated words are multi-class.
pub(super) fn infer_targets(
    columns: Vec<Column>,
    requested: bool,
    tasks: Option<&TargetTasks>,
    delimiter: u8,
) -> Result<InferredTargets, Vec<CellError>> {
    let mut inferred = InferredTargets::default();
    let mut errors = Vec::new();
    let candidates = columns.len();
    for column in columns {
        let task = tasks.and_then(|tasks| tasks.of(&column.name));
        let must_be_target =
            requested || matches!(tasks, Some(TargetTasks::ByColumn(_))) && task.is_some();
        match interpret(&column, must_be_target, task, delimiter, &mut inferred.notes) {
            Ok(Role::Ignored(reason)) => {
                inferred.ignored.push(IgnoredColumn { name: column.name, reason });
            }
            Ok(Role::Target(kind, classes)) => match values(&column, kind, &classes, delimiter) {
                Ok(values) => {
                    let name = column.name;
                    inferred.targets.push(InferredTarget { name, kind, classes, values });
                }
                Err(cell_errors) => errors.extend(cell_errors),
            },
            Err(error) => errors.push((None, column.name, error)),
        }
    }
    if !errors.is_empty() {
        errors.sort_by_key(|(row, ..)| *row); // report errors in file order
        return Err(errors);
    }
    if inferred.targets.is_empty() {
        let error = SmilesCsvError::NoTargets { candidates, ignored: inferred.ignored };
        return Err(vec![(None, String::new(), error)]);
    }
    Ok(inferred)
}

/// Decides whether a column is a target, and of which kind.
fn interpret(
    column: &Column,
    must_be_target: bool,
    task: Option<TargetTask>,
    delimiter: u8,
    notes: &mut Vec<ColumnNote>,
) -> Result<Role, SmilesCsvError> {
    if column.dropped {
        return Ok(Role::Ignored(IgnoredReason::Text));
    }
    let ignored = |reason| Ok(Role::Ignored(reason));
    if !must_be_target {
        if column.observed().next().is_none() {
            return ignored(IgnoredReason::Empty);
        }
        if column.is_date() {
            return ignored(IgnoredReason::Date);
        }
        if column.is_identifier() {
            return ignored(IgnoredReason::Identifier);
        }
    }
    let notation = match column.notation(delimiter) {
        Ok(notation) => notation,
        Err(cell) if must_be_target => return Err(SmilesCsvError::AmbiguousComma { cell }),
        Err(cell) => return ignored(IgnoredReason::AmbiguousComma { cell }),
    };
    let regression = TargetKind::Regression(Standardization::IDENTITY);
    let classes = column.classes();
    let by_words = |classes: Vec<String>| match <[String; 2]>::try_from(classes) {
        Ok([first, second]) => {
            let classes = negative_first(first, second);
            Role::Target(TargetKind::Binary, classes.to_vec())
        }
        Err(classes) => Role::Target(TargetKind::Multiclass(classes.len()), classes),
    };
    match (task, notation) {
        (Some(TargetTask::Regression), notation) => {
            note_commas(column, notation, notes);
            return Ok(Role::Target(regression, Vec::new()));
        }
        (Some(TargetTask::Multiclass), _) if classes.len() < 2 => {
            return Err(SmilesCsvError::TooFewClasses { classes: classes.len() });
        }
        (Some(TargetTask::Multiclass), _) => {
            return Ok(Role::Target(TargetKind::Multiclass(classes.len()), classes));
        }
        (Some(TargetTask::Binary), None) if classes.len() == 2 => return Ok(by_words(classes)),
        (Some(TargetTask::Binary), _) => {
            return Ok(Role::Target(TargetKind::Binary, Vec::new()));
        }
        (None, _) => {}
    }
    let Some(notation) = notation else {
        let repeats = 2 * classes.len() <= column.cells.len().max(3);
        return match classes.len() {
            0 | 1 if !must_be_target => ignored(IgnoredReason::Constant),
            2..=MAX_CLASSES if repeats => Ok(by_words(classes)),
            _ if !must_be_target => ignored(IgnoredReason::Text),
            0 | 1 => Err(SmilesCsvError::TooFewClasses { classes: classes.len() }),
            count => Err(SmilesCsvError::TooManyClasses { classes: count }),
        };
    };
    let numbers: Vec<f64> = column.observed().filter_map(|cell| notation.parse(cell)).collect();
    if !must_be_target && numbers.windows(2).all(|pair| pair[0] == pair[1]) && numbers.len() > 1 {
        return ignored(IgnoredReason::Constant);
    }
    if numbers.iter().all(|&number| number == 0.0 || number == 1.0) {
        return Ok(Role::Target(TargetKind::Binary, Vec::new()));
    }
    let are_integers = numbers.iter().all(|number| number.fract() == 0.0);
    if are_integers && (2..=MAX_INTEGER_CLASSES).contains(&classes.len()) {
        let words = words(&column.name);
        let names_classes = ["class", "label", "category", "cluster", "type", "group"];
        if words.iter().any(|word| names_classes.contains(&word.as_str())) {
            return Ok(Role::Target(TargetKind::Multiclass(classes.len()), classes));
        }
        notes.push(ColumnNote::IntegerRegression {
            column: column.name.clone(),
            values: classes.len(),
        });
    }
    note_commas(column, Some(notation), notes);
    Ok(Role::Target(regression, Vec::new()))
}

fn note_commas(column: &Column, notation: Option<Notation>, notes: &mut Vec<ColumnNote>) {
    if notation == Some(Notation::Comma) && column.observed().any(has_decimal_comma) {
        notes.push(ColumnNote::DecimalCommas { column: column.name.clone() });
    }
}

/// Converts the cells of a target column.
fn values(
    column: &Column,
    kind: TargetKind,
    classes: &[String],
    delimiter: u8,
) -> Result<Vec<f32>, Vec<CellError>> {
    let indices: HashMap<&str, f32> =
        classes.iter().enumerate().map(|(index, class)| (class.as_str(), index as f32)).collect();
    let notation = column.notation(delimiter).ok().flatten().unwrap_or(Notation::Point);
    let value = |cell: &str| {
        let owned = || cell.to_owned();
        if is_missing(cell) {
            return Ok(f32::NAN);
        }
        if !classes.is_empty() {
            return Ok(indices[cell]);
        }
        let value =
            notation.parse(cell).ok_or_else(|| SmilesCsvError::NotANumber { cell: owned() })?;
        match kind {
            TargetKind::Binary if value != 0.0 && value != 1.0 => {
                Err(SmilesCsvError::NotALabel { cell: owned() })
            }
            _ if !(value as f32).is_finite() => Err(SmilesCsvError::NotFinite { cell: owned() }),
            _ => Ok(value as f32),
        }
    };
    let (mut values, mut errors) = (Vec::with_capacity(column.cells.len()), Vec::new());
    for (row, cell) in column.cells.iter().enumerate() {
        match value(cell) {
            Ok(value) => values.push(value),
            Err(error) => errors.push((Some(row), column.name.clone(), error)),
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

//! Infers the task from the target columns and converts their cells to targets.

use super::error::has_decimal_comma;
use super::{SmilesCsvError, SmilesTask};
use crate::graph::Targets;
use crate::schema::TargetSchema;

/// Maximum cell length of a target column that was not requested by name; longer text is not a
/// target.
const MAX_CELL_LEN: usize = 200;

/// Maximum number of classes of an inferred multi-class task.
const MAX_CLASSES: usize = 50;

/// Maximum absolute value of an integer that is inferred to be a class.
const MAX_CLASS_VALUE: f64 = 99.0;

/// Cells of a target column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    cells: Vec<String>,
    /// `true` if the column was found to be free text and its cells were dropped.
    dropped: bool,
}

/// Task, names and values of the target columns.
#[derive(Debug)]
pub(super) struct InferredTargets {
    pub(super) schema: TargetSchema,
    pub(super) target_names: Vec<String>,
    pub(super) class_names: Vec<String>,
    /// One per row.
    pub(super) targets: Vec<Targets>,
}

/// Error with the row index and the column name of its cell.
pub(super) type CellError = (Option<usize>, String, SmilesCsvError);

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

    fn non_missing(&self) -> impl Iterator<Item = &String> {
        self.cells.iter().filter(|cell| !is_missing(cell))
    }

    /// Returns `true` if most cells are numbers; the others are then errors rather than free text.
    fn is_numeric(&self) -> bool {
        let (mut numeric, mut total) = (0_usize, 0_usize);
        for cell in self.non_missing() {
            total += 1;
            numeric += usize::from(cell.parse::<f64>().is_ok());
        }
        numeric > 0 && 2 * numeric > total
    }

    /// Returns the first cell if most cells are numbers with a decimal comma.
    fn decimal_comma(&self) -> Option<&String> {
        let matching = self.non_missing().filter(|cell| has_decimal_comma(cell)).count();
        (2 * matching > self.non_missing().count())
            .then(|| self.non_missing().find(|cell| has_decimal_comma(cell)))?
    }

    /// Returns the sorted classes if there are few and they repeat.
    fn repeated_classes(&self) -> Option<Vec<String>> {
        let classes = self.classes();
        let repeats = 2 * classes.len() <= self.cells.len().max(3);
        (!self.dropped && classes.len() > 1 && classes.len() <= MAX_CLASSES && repeats)
            .then_some(classes)
    }

    /// Returns the distinct cells: numbers by value, then strings.
    fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> =
            self.cells.iter().filter(|cell| !cell.is_empty()).cloned().collect();
        classes.sort_unstable_by(|a, b| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(first), Ok(second)) => first.total_cmp(&second).then_with(|| a.cmp(b)),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        });
        classes.dedup();
        classes
    }

    /// Returns `true` if every cell is a small integer and none is missing.
    fn all_small_integers(&self) -> bool {
        self.cells.iter().all(|cell| {
            cell.parse::<f64>()
                .is_ok_and(|number| number.fract() == 0.0 && number.abs() <= MAX_CLASS_VALUE)
        })
    }
}

/// Infers the task unless `task` is given, and converts the cells to targets.
///
/// The task is multi-label if every cell is 0, 1 or missing, multi-class if there is one column
/// with few strings or small integers, and regression otherwise.
pub(super) fn infer_targets(
    columns: Vec<Column>,
    requested: bool,
    task: Option<SmilesTask>,
    rows: usize,
) -> Result<InferredTargets, Vec<CellError>> {
    let columns = if requested { columns } else { select_columns(columns, task)? };
    if columns.is_empty() {
        return Err(vec![(None, String::new(), SmilesCsvError::NoTargets { candidates: 0 })]);
    }
    let task = task.unwrap_or_else(|| infer_task(&columns));
    match task {
        SmilesTask::Multiclass => match &columns[..] {
            [column] => class_targets(column),
            _ => Err(vec![(
                None,
                String::new(),
                SmilesCsvError::MultipleClassColumns { columns: columns.len() },
            )]),
        },
        SmilesTask::Multilabel | SmilesTask::Regression => numeric_targets(&columns, task, rows),
    }
}

/// Selects all numeric columns, or else the only column with few classes.
fn select_columns(
    columns: Vec<Column>,
    task: Option<SmilesTask>,
) -> Result<Vec<Column>, Vec<CellError>> {
    let candidates = columns.len();
    let (numeric, text): (Vec<Column>, Vec<Column>) =
        columns.into_iter().partition(Column::is_numeric);
    if !numeric.is_empty() && task != Some(SmilesTask::Multiclass) {
        return Ok(numeric);
    }
    let (mut classes, other): (Vec<Column>, Vec<Column>) =
        text.into_iter().partition(|column| column.repeated_classes().is_some());
    match (numeric.len(), classes.len()) {
        (_, 1) => Ok(classes),
        (1, 0) => Ok(numeric),
        (0, 0) => Err(vec![no_targets(&other, candidates)]),
        _ if task == Some(SmilesTask::Multiclass) => {
            classes.extend(numeric);
            Ok(classes)
        }
        _ => {
            let names = classes.into_iter().map(|column| column.name).collect();
            Err(vec![(None, String::new(), SmilesCsvError::AmbiguousTargets { names })])
        }
    }
}

/// Explains why none of the columns is a target.
fn no_targets(columns: &[Column], candidates: usize) -> CellError {
    for column in columns {
        if let Some(cell) = column.decimal_comma() {
            let error = SmilesCsvError::DecimalComma { cell: cell.clone() };
            return (None, column.name.clone(), error);
        }
    }
    (None, String::new(), SmilesCsvError::NoTargets { candidates })
}

fn infer_task(columns: &[Column]) -> SmilesTask {
    let is_label =
        |cell: &String| matches!(cell.parse::<f64>(), Ok(number) if number == 0.0 || number == 1.0);
    if columns.iter().all(|column| column.non_missing().all(is_label)) {
        return SmilesTask::Multilabel;
    }
    match columns {
        [column] if !column.is_numeric() => SmilesTask::Multiclass,
        [column] if column.all_small_integers() && column.repeated_classes().is_some() => {
            SmilesTask::Multiclass
        }
        _ => SmilesTask::Regression,
    }
}

fn class_targets(column: &Column) -> Result<InferredTargets, Vec<CellError>> {
    let class_names = column.classes();
    let mut cell_errors = Vec::new();
    let mut targets = Vec::with_capacity(column.cells.len());
    let indices: std::collections::HashMap<&str, u32> =
        class_names.iter().enumerate().map(|(index, name)| (name.as_str(), index as u32)).collect();
    for (row, cell) in column.cells.iter().enumerate() {
        match indices.get(cell.as_str()) {
            Some(&index) => targets.push(Targets::GraphClass(index)),
            None => {
                cell_errors.push((Some(row), column.name.clone(), SmilesCsvError::MissingClass));
            }
        }
    }
    if !cell_errors.is_empty() {
        return Err(cell_errors);
    }
    let schema = TargetSchema::Multiclass(class_names.len());
    Ok(InferredTargets { schema, target_names: vec![column.name.clone()], class_names, targets })
}

fn numeric_targets(
    columns: &[Column],
    task: SmilesTask,
    rows: usize,
) -> Result<InferredTargets, Vec<CellError>> {
    let mut cell_errors = Vec::new();
    let mut values = vec![Vec::with_capacity(columns.len()); rows];
    for column in columns {
        for (row, cell) in column.cells.iter().enumerate() {
            match parse_target(cell, task) {
                Ok(value) => values[row].push(value),
                Err(error) => cell_errors.push((Some(row), column.name.clone(), error)),
            }
        }
    }
    if !cell_errors.is_empty() {
        // Report errors in file order.
        cell_errors.sort_by_key(|(row, ..)| *row);
        return Err(cell_errors);
    }
    let schema = match task {
        SmilesTask::Multilabel => TargetSchema::Multilabel(columns.len()),
        _ => TargetSchema::Regression(columns.len()),
    };
    Ok(InferredTargets {
        schema,
        target_names: columns.iter().map(|column| column.name.clone()).collect(),
        class_names: Vec::new(),
        targets: values.into_iter().map(Targets::GraphValues).collect(),
    })
}

fn parse_target(cell: &str, task: SmilesTask) -> Result<f32, SmilesCsvError> {
    if is_missing(cell) {
        return Ok(f32::NAN);
    }
    let owned = || cell.to_owned();
    let value = cell.parse::<f32>().map_err(|_| SmilesCsvError::NotANumber { cell: owned() })?;
    match task {
        SmilesTask::Multilabel if value != 0.0 && value != 1.0 => {
            Err(SmilesCsvError::NotALabel { cell: owned() })
        }
        _ if !value.is_finite() => Err(SmilesCsvError::NotFinite { cell: owned() }),
        _ => Ok(value),
    }
}

/// Returns `true` for an empty cell or a common marker of a missing value.
pub(super) fn is_missing(cell: &str) -> bool {
    cell.is_empty()
        || ["nan", "na", "n/a", "null", "none"].iter().any(|word| word.eq_ignore_ascii_case(cell))
}

//! What the columns of a table have to be learned as.

use super::{SmilesCsvError, SmilesTask};
use crate::dataset::TargetSchema;
use crate::graph::Targets;

/// The longest cell that is kept for a column that nobody asked for: longer text is no target.
const LONGEST_CELL: usize = 200;

/// More classes than this are taken for numbers or free text unless classes are asked for.
const MOST_CLASSES: usize = 50;

/// Whole numbers up to this may be classes.
const LARGEST_CLASS: f64 = 99.0;

/// The cells of one column, row after row.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    cells: Vec<String>,
    /// Free text that was not asked for, and is no longer kept.
    dropped: bool,
}

/// What the columns turned out to be.
#[derive(Debug)]
pub(super) struct Learned {
    pub(super) schema: TargetSchema,
    pub(super) target_names: Vec<String>,
    pub(super) class_names: Vec<String>,
    /// One for each row.
    pub(super) targets: Vec<Targets>,
}

/// A fault of the cell of this row and column.
pub(super) type CellFault = (Option<usize>, String, SmilesCsvError);

impl Column {
    pub(super) fn new(name: String) -> Self {
        Self { name, cells: Vec::new(), dropped: false }
    }

    pub(super) fn push(&mut self, cell: &str, wanted: bool) {
        if !wanted && cell.len() > LONGEST_CELL {
            self.dropped = true;
            self.cells = Vec::new();
        }
        if !self.dropped {
            self.cells.push(cell.trim().to_owned());
        }
    }

    fn filled(&self) -> impl Iterator<Item = &String> {
        self.cells.iter().filter(|cell| !is_missing(cell))
    }

    /// Most of what stands in it are numbers: the rest are slips and not free text.
    fn is_numeric(&self) -> bool {
        let (mut numbers, mut all) = (0_usize, 0_usize);
        for cell in self.filled() {
            all += 1;
            numbers += usize::from(cell.parse::<f64>().is_ok());
        }
        numbers > 0 && 2 * numbers > all
    }

    /// The classes in order, if there are few and they repeat: numbers by value, words by name.
    fn few_classes(&self) -> Option<Vec<String>> {
        let classes = self.classes();
        let repeat = 2 * classes.len() <= self.cells.len().max(3);
        (!self.dropped && classes.len() > 1 && classes.len() <= MOST_CLASSES && repeat)
            .then_some(classes)
    }

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

    /// Whether every cell is a small whole number; nothing may be missing.
    fn is_small_integers(&self) -> bool {
        self.cells.iter().all(|cell| {
            cell.parse::<f64>()
                .is_ok_and(|number| number.fract() == 0.0 && number.abs() <= LARGEST_CLASS)
        })
    }
}

/// Decides what is learned and turns the cells into targets.
///
/// Labels if every number is 0, 1 or missing; classes if one column holds a few words or small whole numbers; values
/// otherwise. `task` decides instead where it is given.
pub(super) fn learn(
    columns: Vec<Column>,
    named: bool,
    task: Option<SmilesTask>,
    rows: usize,
) -> Result<Learned, Vec<CellFault>> {
    let columns = if named { columns } else { guess(columns, task) };
    if columns.is_empty() {
        return Err(vec![(None, String::new(), SmilesCsvError::NoTargets)]);
    }
    let task = task.unwrap_or_else(|| infer(&columns));
    match task {
        SmilesTask::Multiclass => match &columns[..] {
            [column] => classes(column),
            _ => Err(vec![(
                None,
                String::new(),
                SmilesCsvError::OneClassColumn { columns: columns.len() },
            )]),
        },
        SmilesTask::Multilabel | SmilesTask::Regression => numbers(&columns, task, rows),
    }
}

/// All columns of numbers, or else the one column with a few classes.
fn guess(columns: Vec<Column>, task: Option<SmilesTask>) -> Vec<Column> {
    let (numeric, text): (Vec<Column>, Vec<Column>) =
        columns.into_iter().partition(Column::is_numeric);
    if !numeric.is_empty() && task != Some(SmilesTask::Multiclass) {
        return numeric;
    }
    let mut few: Vec<Column> =
        text.into_iter().filter(|column| column.few_classes().is_some()).collect();
    match (numeric.len(), few.len()) {
        (_, 1) => few,
        (1, 0) => numeric,
        // More than one could be meant.
        _ => {
            few.extend(numeric);
            if task == Some(SmilesTask::Multiclass) { few } else { Vec::new() }
        }
    }
}

fn infer(columns: &[Column]) -> SmilesTask {
    let is_label =
        |cell: &String| matches!(cell.parse::<f64>(), Ok(number) if number == 0.0 || number == 1.0);
    if columns.iter().all(|column| column.filled().all(is_label)) {
        return SmilesTask::Multilabel;
    }
    match columns {
        [column] if !column.is_numeric() => SmilesTask::Multiclass,
        [column] if column.is_small_integers() && column.few_classes().is_some() => {
            SmilesTask::Multiclass
        }
        _ => SmilesTask::Regression,
    }
}

fn classes(column: &Column) -> Result<Learned, Vec<CellFault>> {
    let class_names = column.classes();
    let mut faults = Vec::new();
    let mut targets = Vec::with_capacity(column.cells.len());
    let places: std::collections::HashMap<&str, u32> =
        class_names.iter().enumerate().map(|(place, name)| (name.as_str(), place as u32)).collect();
    for (row, cell) in column.cells.iter().enumerate() {
        match places.get(cell.as_str()) {
            Some(&place) => targets.push(Targets::GraphClass(place)),
            None => faults.push((Some(row), column.name.clone(), SmilesCsvError::NoClass)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let schema = TargetSchema::Multiclass(class_names.len());
    Ok(Learned { schema, target_names: vec![column.name.clone()], class_names, targets })
}

fn numbers(columns: &[Column], task: SmilesTask, rows: usize) -> Result<Learned, Vec<CellFault>> {
    let mut faults = Vec::new();
    let mut values = vec![Vec::with_capacity(columns.len()); rows];
    for column in columns {
        for (row, cell) in column.cells.iter().enumerate() {
            match number(cell, task) {
                Ok(number) => values[row].push(number),
                Err(fault) => faults.push((Some(row), column.name.clone(), fault)),
            }
        }
    }
    if !faults.is_empty() {
        // In the order of the file: row by row.
        faults.sort_by_key(|(row, ..)| *row);
        return Err(faults);
    }
    let schema = match task {
        SmilesTask::Multilabel => TargetSchema::Multilabel(columns.len()),
        _ => TargetSchema::Regression(columns.len()),
    };
    Ok(Learned {
        schema,
        target_names: columns.iter().map(|column| column.name.clone()).collect(),
        class_names: Vec::new(),
        targets: values.into_iter().map(Targets::GraphValues).collect(),
    })
}

fn number(cell: &str, task: SmilesTask) -> Result<f32, SmilesCsvError> {
    if is_missing(cell) {
        return Ok(f32::NAN);
    }
    let owned = || cell.to_owned();
    let number = cell.parse::<f32>().map_err(|_| SmilesCsvError::NotANumber { cell: owned() })?;
    match task {
        SmilesTask::Multilabel if number != 0.0 && number != 1.0 => {
            Err(SmilesCsvError::NotALabel { cell: owned() })
        }
        _ if !number.is_finite() => Err(SmilesCsvError::NotFinite { cell: owned() }),
        _ => Ok(number),
    }
}

/// Nothing, or one of the usual words for it.
pub(super) fn is_missing(cell: &str) -> bool {
    cell.is_empty()
        || ["nan", "na", "n/a", "null", "none"].iter().any(|word| word.eq_ignore_ascii_case(cell))
}

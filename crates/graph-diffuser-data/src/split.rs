//! Train, validation and test splits: random, stratified, by group, from a file, or k-fold.
//!
//! Splits depend only on their arguments; random ones use the stream `"split"` of the seed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Diagnostic, LocatedError};
use crate::random::SeedTree;

/// A split of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Training split.
    Train,
    /// Validation split, used for model selection.
    Valid,
    /// Test split.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "test",
        })
    }
}

/// Graph indices of the three splits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Splits {
    /// Indices of the training graphs.
    pub train: Vec<usize>,
    /// Indices of the validation graphs, used for model selection.
    pub valid: Vec<usize>,
    /// Indices of the test graphs.
    pub test: Vec<usize>,
}

/// Errors of creating or reading splits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The fractions are invalid.
    #[error("invalid split fractions {0:?}: they must be between 0 and 1 and sum to 1")]
    Fractions([f64; 3]),
    /// The number of folds or the fold index is invalid.
    #[error("cannot create fold {fold} of {folds} from {graphs} graphs")]
    Folds {
        /// Number of folds.
        folds: usize,
        /// Index of the fold.
        fold: usize,
        /// Number of graphs.
        graphs: usize,
    },
    /// A split has no graphs.
    #[error("{0} split is empty")]
    Empty(Split),
    /// A row is not assigned to a split.
    #[error("expected train, valid or test, found no value")]
    MissingLabel,
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(std::io::Error),
    /// The file is not valid JSON.
    #[error("invalid JSON: {0}")]
    NotJson(serde_json::Error),
    /// A JSON value has the wrong type.
    #[error("expected {expected}")]
    WrongType {
        /// The expected value.
        expected: &'static str,
    },
    /// The file has a key other than `train`, `valid` and `test`.
    #[error("unknown key `{0}`")]
    UnknownKey(String),
    /// A graph index is out of range.
    #[error("graph index {graph} is out of range for {graphs} graphs")]
    GraphOutOfRange {
        /// The index as written in the file.
        graph: String,
        /// Number of graphs.
        graphs: usize,
    },
    /// A graph is listed more than once.
    #[error("duplicate graph {graph}, already in the {earlier} split")]
    Duplicate {
        /// Index of the graph.
        graph: usize,
        /// Split that lists it first.
        earlier: Split,
    },
}

impl Diagnostic for SplitError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Fractions(_) => Some("use fractions such as [0.8, 0.1, 0.1]".into()),
            Self::Folds { .. } => {
                Some("use 3 folds or more, at most one per graph; folds are numbered from 0".into())
            }
            Self::Empty(_) => Some(
                "provide at least 10 graphs, or set the split of each graph in the file".into(),
            ),
            Self::MissingLabel => Some("assign every row to a split".into()),
            Self::NotJson(_) | Self::WrongType { .. } | Self::UnknownKey(_) => {
                Some(r#"expected {"train": [0, 1], "valid": [2], "test": [3]}"#.into())
            }
            Self::GraphOutOfRange { .. } => {
                Some("indices are positions in the data file, starting at 0".into())
            }
            Self::Duplicate { .. } => Some("list each graph once".into()),
            Self::Read(_) => None,
        }
    }
}

impl Splits {
    /// Default fractions of the train, validation and test splits.
    pub const DEFAULT_FRACTIONS: [f64; 3] = [0.8, 0.1, 0.1];

    /// Splits graphs `0..count` at random.
    ///
    /// ```
    /// use graph_diffuser_data::Splits;
    ///
    /// let splits = Splits::random(100, [0.8, 0.1, 0.1], 0)?;
    /// assert_eq!(splits.train.len(), 80);
    /// # Ok::<(), graph_diffuser_data::SplitError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the fractions are invalid or a split is empty.
    pub fn random(count: usize, fractions: [f64; 3], seed: u64) -> Result<Self, SplitError> {
        Self::stratified(&vec![0; count], fractions, seed)
    }

    /// Splits graphs at random, with nearly equal class frequencies in all splits.
    ///
    /// A class with at least three graphs occurs in every split, if the splits are large enough.
    ///
    /// # Errors
    /// Returns an error if the fractions are invalid or a split is empty.
    pub fn stratified(classes: &[u32], fractions: [f64; 3], seed: u64) -> Result<Self, SplitError> {
        let sizes = sizes(classes.len(), fractions)?;
        let rows = shuffled_by_class(classes, seed);
        // Rows are sorted by class, and each goes to the split furthest below its fraction, so
        // every class is divided in nearly the same proportions.
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        let count = classes.len() as f64;
        for (done, &row) in rows.iter().enumerate() {
            let deficit = |part: usize| {
                sizes[part] as f64 * (done + 1) as f64 / count - parts[part].len() as f64
            };
            let open = (0..3).filter(|&part| parts[part].len() < sizes[part]);
            let part = open.max_by(|&left, &right| {
                deficit(left).total_cmp(&deficit(right)).then(right.cmp(&left))
            });
            parts[part.expect("the sizes sum to the number of rows")].push(row);
        }
        spread_rare_classes(&mut parts, classes);
        Self::of(parts)
    }

    /// Assigns whole groups to splits, as in the scaffold splits of the OGB molecule datasets.
    ///
    /// Groups are assigned from the largest to the smallest: to train if they fit into its
    /// fraction, otherwise to valid if they fit, otherwise to test. Of groups of equal size, the
    /// one whose first graph comes last is assigned first. The result is deterministic.
    ///
    /// # Errors
    /// Returns an error if the fractions are invalid or a split is empty.
    pub fn by_group<Group: AsRef<str>>(
        groups: &[Group],
        fractions: [f64; 3],
    ) -> Result<Self, SplitError> {
        check_fractions(fractions)?;
        let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (row, group) in groups.iter().enumerate() {
            members.entry(group.as_ref()).or_default().push(row);
        }
        let mut sets: Vec<Vec<usize>> = members.into_values().collect();
        sets.sort_by_key(|rows| std::cmp::Reverse((rows.len(), rows[0])));
        let count = groups.len() as f64;
        let (train_size, valid_size) =
            (fractions[0] * count, (fractions[0] + fractions[1]) * count);
        let [mut train, mut valid, mut test] = [Vec::new(), Vec::new(), Vec::new()];
        for rows in sets {
            if (train.len() + rows.len()) as f64 <= train_size {
                train.extend(rows);
            } else if (train.len() + valid.len() + rows.len()) as f64 <= valid_size {
                valid.extend(rows);
            } else {
                test.extend(rows);
            }
        }
        Self::of([train, valid, test])
    }

    /// Creates splits from a label for each row.
    ///
    /// # Errors
    /// Returns an error if a row has no label (with the row index), or if a split is empty.
    pub fn given(labels: &[Option<Split>]) -> Result<Self, (Option<usize>, SplitError)> {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for (row, label) in labels.iter().enumerate() {
            let label = label.ok_or((Some(row), SplitError::MissingLabel))?;
            parts[label as usize].push(row);
        }
        Self::of(parts).map_err(|error| (None, error))
    }

    /// Creates the splits of one fold of stratified k-fold cross-validation.
    ///
    /// Fold `fold` is the test split, the next one the validation split, and the others the
    /// training split. The folds of one seed are a partition with nearly equal class frequencies.
    ///
    /// # Errors
    /// Returns an error if there are fewer than three folds or fewer graphs than folds, or if
    /// `fold` is out of range.
    pub fn k_fold(
        classes: &[u32],
        folds: usize,
        fold: usize,
        seed: u64,
    ) -> Result<Self, SplitError> {
        if folds < 3 || fold >= folds || classes.len() < folds {
            return Err(SplitError::Folds { folds, fold, graphs: classes.len() });
        }
        let mut dealt = vec![Vec::new(); folds];
        for (position, row) in shuffled_by_class(classes, seed).into_iter().enumerate() {
            dealt[position % folds].push(row);
        }
        let test = std::mem::take(&mut dealt[fold]);
        let valid = std::mem::take(&mut dealt[(fold + 1) % folds]);
        Self::of([dealt.concat(), valid, test])
    }

    /// Reads a JSON file `{"train": […], "valid": […], "test": […]}` of indices below `count`.
    ///
    /// Graphs that are not listed are not used.
    ///
    /// # Errors
    /// Returns the first error found, with its key.
    pub fn from_json(path: &Path, count: usize) -> Result<Self, LocatedError> {
        let text = std::fs::read(path)
            .map_err(|error| LocatedError::new(path, SplitError::Read(error)))?;
        Self::parse(&text, count).map_err(|(key, error)| {
            let error = LocatedError::new(path, error);
            if key.is_empty() { error } else { error.in_column(key) }
        })
    }

    fn parse(text: &[u8], count: usize) -> Result<Self, (String, SplitError)> {
        let value = serde_json::from_slice(text)
            .map_err(|error| (String::new(), SplitError::NotJson(error)))?;
        let Value::Object(map) = value else {
            return Err((
                String::new(),
                SplitError::WrongType {
                    expected: "an object with the lists train, valid and test",
                },
            ));
        };
        let names = [("train", Split::Train), ("valid", Split::Valid), ("test", Split::Test)];
        if let Some(key) = map.keys().find(|key| names.iter().all(|(name, _)| name != key)) {
            return Err((key.clone(), SplitError::UnknownKey(key.clone())));
        }
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        let mut seen: Vec<Option<Split>> = vec![None; count];
        for (name, split) in names {
            let Some(Value::Array(items)) = map.get(name) else {
                return Err((
                    name.into(),
                    SplitError::WrongType { expected: "a list of graph indices" },
                ));
            };
            for (position, item) in items.iter().enumerate() {
                let located = |error| (format!("{name}[{position}]"), error);
                if !item.is_i64() && !item.is_u64() {
                    return Err(located(SplitError::WrongType { expected: "a graph index" }));
                }
                let index = item.as_u64().and_then(|index| usize::try_from(index).ok());
                let Some(graph) = index.filter(|&index| index < count) else {
                    return Err(located(SplitError::GraphOutOfRange {
                        graph: item.to_string(),
                        graphs: count,
                    }));
                };
                if let Some(earlier) = seen[graph].replace(split) {
                    return Err(located(SplitError::Duplicate { graph, earlier }));
                }
                parts[split as usize].push(graph);
            }
        }
        Self::of(parts).map_err(|error| (String::new(), error))
    }

    /// Returns the graph indices of a split.
    pub(crate) fn part_mut(&mut self, split: Split) -> &mut Vec<usize> {
        match split {
            Split::Train => &mut self.train,
            Split::Valid => &mut self.valid,
            Split::Test => &mut self.test,
        }
    }

    fn of([train, valid, test]: [Vec<usize>; 3]) -> Result<Self, SplitError> {
        for (part, split) in [(&train, Split::Train), (&valid, Split::Valid), (&test, Split::Test)]
        {
            if part.is_empty() {
                return Err(SplitError::Empty(split));
            }
        }
        Ok(Self { train, valid, test })
    }
}

/// Exchanges rows between splits until every class with at least three rows occurs in each of them.
fn spread_rare_classes(parts: &mut [Vec<usize>; 3], classes: &[u32]) {
    // Rows of each class in each split.
    let mut counts: BTreeMap<u32, [usize; 3]> = BTreeMap::new();
    for (part, rows) in parts.iter().enumerate() {
        for &row in rows {
            counts.entry(classes[row]).or_default()[part] += 1;
        }
    }
    let rare = counts.iter().filter(|(_, counts)| counts.contains(&0));
    let rare: Vec<u32> = rare
        .filter(|(_, counts)| counts.iter().sum::<usize>() >= 3)
        .map(|(&class, _)| class)
        .collect();
    for class in rare {
        for part in 0..3 {
            let of_class = counts[&class];
            if of_class[part] > 0 {
                continue;
            }
            let donor = (0..3).rev().max_by_key(|&other| of_class[other]).unwrap_or(0);
            // In exchange for a row of the class that is most frequent in this split.
            let frequent = counts.iter().max_by_key(|(_, counts)| counts[part]);
            let Some((&other, _)) = frequent.filter(|(_, counts)| counts[part] >= 2) else {
                continue;
            };
            let find = |part: usize, class: u32| {
                parts[part].iter().rposition(|&row| classes[row] == class)
            };
            let (Some(given), Some(taken)) = (find(donor, class), find(part, other)) else {
                continue;
            };
            let (row, exchanged) = (parts[donor][given], parts[part][taken]);
            (parts[donor][given], parts[part][taken]) = (exchanged, row);
            for (class, from, to) in [(class, donor, part), (other, part, donor)] {
                let counts = counts.get_mut(&class).expect("the class was counted");
                counts[from] -= 1;
                counts[to] += 1;
            }
        }
    }
}

fn check_fractions(fractions: [f64; 3]) -> Result<(), SplitError> {
    let in_range = fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction));
    let sum_to_one = (fractions.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    if in_range && sum_to_one { Ok(()) } else { Err(SplitError::Fractions(fractions)) }
}

/// Returns the split sizes, rounded so that they sum to `count`.
fn sizes(count: usize, fractions: [f64; 3]) -> Result<[usize; 3], SplitError> {
    check_fractions(fractions)?;
    let cut = |fraction: f64| ((fraction * count as f64).round() as usize).min(count);
    let (first, second) = (cut(fractions[0]), cut(fractions[0] + fractions[1]));
    Ok([first, second - first, count - second])
}

/// Returns all rows in random order.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..count).collect();
    SeedTree::new(seed).stream("split").shuffle(&mut rows);
    rows
}

/// Returns all rows sorted by class, in random order within each class.
fn shuffled_by_class(classes: &[u32], seed: u64) -> Vec<usize> {
    let mut rows = shuffled(classes.len(), seed);
    rows.sort_by_key(|&row| classes[row]);
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(splits: &Splits) -> Vec<usize> {
        let mut rows = [splits.train.clone(), splits.valid.clone(), splits.test.clone()].concat();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn scaffolds_fill_train_then_valid_then_test() {
        // Sizes: a 4, b 2 (first row 1), c 2 (first row 3), d 1, e 1; train takes 8, valid 1, test
        // 1. Ties are broken by the last first row.
        let groups = ["a", "b", "a", "c", "b", "a", "c", "a", "d", "e"];
        let splits = Splits::by_group(&groups, Splits::DEFAULT_FRACTIONS).unwrap();
        assert_eq!(splits.train, [0, 2, 5, 7, 3, 6, 1, 4]);
        assert_eq!((splits.valid, splits.test), (vec![9], vec![8]));
    }

    #[test]
    fn group_too_large_for_train_goes_to_the_next_split_that_fits() {
        // Train holds 3: a (3) fits; b (2) does not and goes to valid (5 with train); c goes to
        // test.
        let splits = Splits::by_group(&["a", "a", "a", "b", "b", "c"], [0.5, 0.34, 0.16]).unwrap();
        assert_eq!((splits.train, splits.valid, splits.test), (vec![0, 1, 2], vec![3, 4], vec![5]));
    }

    #[test]
    fn json_splits_are_parsed_and_errors_name_the_key() {
        let read = |text: &str| {
            Splits::parse(text.as_bytes(), 4).map_err(|(key, error)| format!("{key}: {error}"))
        };
        let valid = read(r#"{"train": [3, 0], "valid": [1], "test": [2]}"#).unwrap();
        assert_eq!((valid.train, valid.valid, valid.test), (vec![3, 0], vec![1], vec![2]));
        let cases = [
            (
                r#"{"train": [4], "valid": [], "test": []}"#,
                "train[0]: graph index 4 is out of range for 4 graphs",
            ),
            (
                r#"{"train": [-1], "valid": [], "test": []}"#,
                "train[0]: graph index -1 is out of range for 4 graphs",
            ),
            (
                r#"{"train": [0], "valid": [1, 0], "test": []}"#,
                "valid[1]: duplicate graph 0, already in the training split",
            ),
            (r#"{"train": [0], "valid": [], "test": [1]}"#, ": validation split is empty"),
            (r#"{"train": ["0"], "valid": [], "test": []}"#, "train[0]: expected a graph index"),
            (r#"{"train": [0.5], "valid": [], "test": []}"#, "train[0]: expected a graph index"),
            (r#"{"train": [0], "val": [], "test": []}"#, "val: unknown key `val`"),
            (r#"{"train": [0], "test": [1]}"#, "valid: expected a list of graph indices"),
            ("[]", ": expected an object with the lists train, valid and test"),
            ("", ": invalid JSON: EOF while parsing a value at line 1 column 0"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn invalid_fractions_and_folds_are_rejected() {
        assert!(matches!(Splits::random(10, [0.9, 0.2, 0.1], 0), Err(SplitError::Fractions(_))));
        assert!(matches!(
            Splits::random(10, [f64::NAN, 0.5, 0.5], 0),
            Err(SplitError::Fractions(_))
        ));
        assert!(matches!(
            Splits::random(2, Splits::DEFAULT_FRACTIONS, 0),
            Err(SplitError::Empty(_))
        ));
        assert!(matches!(Splits::k_fold(&[0; 5], 10, 0, 0), Err(SplitError::Folds { .. })));
        let (row, _) = Splits::given(&[Some(Split::Train), None]).unwrap_err();
        assert_eq!(row, Some(1));
    }

    proptest! {
        #[test]
        fn random_split_is_a_partition_with_the_requested_sizes(
            count in 20_usize..300, seed in any::<u64>(),
        ) {
            let splits = Splits::random(count, Splits::DEFAULT_FRACTIONS, seed).unwrap();
            prop_assert_eq!(all(&splits), (0..count).collect::<Vec<_>>());
            for (part, fraction) in [(&splits.train, 0.8), (&splits.valid, 0.1), (&splits.test, 0.1)] {
                prop_assert!((part.len() as f64 - fraction * count as f64).abs() <= 1.0);
            }
            let again = |seed| Splits::random(count, Splits::DEFAULT_FRACTIONS, seed).unwrap();
            prop_assert_eq!(&splits, &again(seed));
            prop_assert_ne!(&splits, &again(seed.wrapping_add(1)));
        }

        #[test]
        fn stratified_split_preserves_class_frequencies(
            classes in prop::collection::vec(0_u32..3, 60..300), seed in any::<u64>(),
        ) {
            let splits = Splits::stratified(&classes, Splits::DEFAULT_FRACTIONS, seed).unwrap();
            prop_assert_eq!(all(&splits), (0..classes.len()).collect::<Vec<_>>());
            for class in 0..3 {
                let in_class = |rows: &[usize]| {
                    rows.iter().filter(|&&row| classes[row] == class).count() as f64
                };
                let total = classes.iter().filter(|&&other| other == class).count() as f64;
                prop_assert!((in_class(&splits.train) - 0.8 * total).abs() <= 2.5);
            }
        }

        #[test]
        fn folds_are_a_stratified_partition(
            classes in prop::collection::vec(0_u32..3, 30..200),
            folds in 3_usize..11,
            seed in any::<u64>(),
        ) {
            let made: Vec<_> = (0..folds)
                .map(|fold| Splits::k_fold(&classes, folds, fold, seed).unwrap())
                .collect();
            let mut tested: Vec<usize> = made.iter().flat_map(|splits| splits.test.clone()).collect();
            tested.sort_unstable();
            prop_assert_eq!(tested, (0..classes.len()).collect::<Vec<_>>());
            for class in 0..3 {
                let in_class = |rows: &[usize]| {
                    rows.iter().filter(|&&row| classes[row] == class).count()
                };
                let counts = made.iter().map(|splits| in_class(&splits.test));
                let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
                prop_assert!(most - least <= 1);
            }
            for (fold, splits) in made.iter().enumerate() {
                prop_assert_eq!(all(splits), (0..classes.len()).collect::<Vec<_>>());
                prop_assert_eq!(&splits.valid, &made[(fold + 1) % folds].test);
            }
        }

        #[test]
        fn split_by_group_is_equivariant_to_row_permutations(
            sizes in prop::collection::btree_set(1_usize..60, 6..12), seed in any::<u64>(),
        ) {
            // Groups of different sizes: ties are broken by the first row, which a permutation
            // changes.
            let groups: Vec<String> = sizes
                .iter()
                .flat_map(|&size| std::iter::repeat_n(format!("group {size}"), size))
                .collect();
            let Ok(splits) = Splits::by_group(&groups, [0.6, 0.2, 0.2]) else { return Ok(()) };
            prop_assert_eq!(all(&splits), (0..groups.len()).collect::<Vec<_>>());
            let order = shuffled(groups.len(), seed);
            let permuted: Vec<&String> = order.iter().map(|&row| &groups[row]).collect();
            let again = Splits::by_group(&permuted, [0.6, 0.2, 0.2]).unwrap();
            let pairs =
                [(splits.train, again.train), (splits.valid, again.valid), (splits.test, again.test)];
            for (part, other) in pairs {
                let mut back: Vec<usize> = other.iter().map(|&row| order[row]).collect();
                back.sort_unstable();
                let mut part = part;
                part.sort_unstable();
                prop_assert_eq!(part, back);
            }
        }
    }
}

//! Which graphs are for what: at random, by class, by group, by file, by fold.
//!
//! Nothing here depends on anything but its arguments; what is random comes from the stream `"split"` of a seed.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::dataset::{Split, Splits};
use crate::error::{Diagnostic, LocatedError};
use crate::random::SeedTree;

/// The usual shares of train, valid and test.
pub const DEFAULT_FRACTIONS: [f64; 3] = [0.8, 0.1, 0.1];

/// What can be wrong with a split that a user asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// Shares that are no shares.
    #[error("shares of {0:?} are not three numbers from 0 to 1 with the sum 1")]
    Shares([f64; 3]),
    /// Folds that cannot be made.
    #[error("fold {fold} of {folds} cannot be made from {graphs} graphs")]
    Folds {
        /// How many folds.
        folds: usize,
        /// Which of them, from zero.
        fold: usize,
        /// How many graphs there are.
        graphs: usize,
    },
    /// A part without graphs.
    #[error("the {0:?} part is empty")]
    Empty(Split),
    /// A row that is for nothing.
    #[error("the row says no part")]
    Unlabelled,
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// The file is not JSON.
    #[error("not JSON: {0}")]
    NotJson(serde_json::Error),
    /// A value of another kind.
    #[error("expected {expected}")]
    WrongType {
        /// What should be there.
        expected: &'static str,
    },
    /// A key other than the three.
    #[error("unknown key `{0}`")]
    UnknownKey(String),
    /// A graph that does not exist.
    #[error("there is no graph {graph}: there are {graphs}, numbered from 0")]
    NoSuchGraph {
        /// Its number.
        graph: String,
        /// How many there are.
        graphs: usize,
    },
    /// A graph in two places.
    #[error("graph {graph} is already in the {earlier:?} part")]
    Twice {
        /// Its number.
        graph: usize,
        /// Where it was first.
        earlier: Split,
    },
}

impl Diagnostic for SplitError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Shares(_) => Some("write shares such as 0.8, 0.1, 0.1".into()),
            Self::Folds { .. } => {
                Some("take from 3 folds up to as many as there are graphs, counted from 0".into())
            }
            Self::Empty(_) => Some("give the part a larger share, or add graphs".into()),
            Self::Unlabelled => Some("write train, valid or test".into()),
            Self::NotJson(_) | Self::WrongType { .. } | Self::UnknownKey(_) => {
                Some(r#"write {"train": [0, 1], "valid": [2], "test": [3]}"#.into())
            }
            Self::NoSuchGraph { .. } => Some("numbers are places in the data file, from 0".into()),
            Self::Twice { .. } => Some("a graph belongs to one part, once".into()),
            Self::Read(_) => None,
        }
    }
}

impl Splits {
    /// Graphs `0..count` in random order, cut by shares.
    ///
    /// # Errors
    /// If the shares are none, or a part would be empty.
    pub fn random(count: usize, shares: [f64; 3], seed: u64) -> Result<Self, SplitError> {
        Self::stratified(&vec![0; count], shares, seed)
    }

    /// As [`Splits::random`], with every class in nearly the same share in each part.
    ///
    /// # Errors
    /// If the shares are none, or a part would be empty.
    pub fn stratified(classes: &[u32], shares: [f64; 3], seed: u64) -> Result<Self, SplitError> {
        let sizes = sizes(classes.len(), shares)?;
        let places = by_class(classes, seed);
        // Row after row to the part that is furthest behind its share: then every stretch of rows, and so every
        // class, is shared out alike.
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        let count = classes.len() as f64;
        for (done, &row) in places.iter().enumerate() {
            let due = |part: usize| {
                sizes[part] as f64 * (done + 1) as f64 / count - parts[part].len() as f64
            };
            let open = (0..3).filter(|&part| parts[part].len() < sizes[part]);
            let part = open
                .max_by(|&left, &right| due(left).total_cmp(&due(right)).then(right.cmp(&left)));
            parts[part.expect("the sizes sum to the rows")].push(row);
        }
        Self::of(parts)
    }

    /// Whole groups, the largest first, into train until it has its share, then into valid, then into test: the
    /// scaffold split of the molecule benchmarks. Of groups of one size the one that begins last goes first, as there;
    /// nothing is random.
    ///
    /// # Errors
    /// If the shares are none, or a part would be empty.
    pub fn by_group<Group: AsRef<str>>(
        groups: &[Group],
        shares: [f64; 3],
    ) -> Result<Self, SplitError> {
        check(shares)?;
        let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (row, group) in groups.iter().enumerate() {
            members.entry(group.as_ref()).or_default().push(row);
        }
        let mut sets: Vec<Vec<usize>> = members.into_values().collect();
        sets.sort_by_key(|rows| std::cmp::Reverse((rows.len(), rows[0])));
        let count = groups.len() as f64;
        let (train_size, valid_size) = (shares[0] * count, (shares[0] + shares[1]) * count);
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

    /// What each row says of itself.
    ///
    /// # Errors
    /// If a row says nothing (with its number), or a part is empty.
    pub fn given(labels: &[Option<Split>]) -> Result<Self, (Option<usize>, SplitError)> {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for (row, label) in labels.iter().enumerate() {
            let label = label.ok_or((Some(row), SplitError::Unlabelled))?;
            parts[label as usize].push(row);
        }
        Self::of(parts).map_err(|fault| (None, fault))
    }

    /// Fold `fold` of `folds` for cross validation: that fold is the test part, the next one valid, the others
    /// train. Every fold has every class in nearly the same share, and the folds of one seed are a partition.
    ///
    /// # Errors
    /// If there are fewer than three folds, or fewer graphs than folds, or no such fold.
    pub fn fold(classes: &[u32], folds: usize, fold: usize, seed: u64) -> Result<Self, SplitError> {
        if folds < 3 || fold >= folds || classes.len() < folds {
            return Err(SplitError::Folds { folds, fold, graphs: classes.len() });
        }
        let mut dealt = vec![Vec::new(); folds];
        for (place, row) in by_class(classes, seed).into_iter().enumerate() {
            dealt[place % folds].push(row);
        }
        let test = std::mem::take(&mut dealt[fold]);
        let valid = std::mem::take(&mut dealt[(fold + 1) % folds]);
        Self::of([dealt.concat(), valid, test])
    }

    /// Reads `{"train": […], "valid": […], "test": […]}` with numbers of `count` graphs.
    ///
    /// Graphs that are in no part are left out of training and scores.
    ///
    /// # Errors
    /// The first thing wrong, with its key.
    pub fn from_json(path: &Path, count: usize) -> Result<Self, LocatedError> {
        let text = std::fs::read(path)
            .map_err(|error| LocatedError::new(path, SplitError::Read(error)))?;
        Self::parse(&text, count).map_err(|(key, fault)| {
            let problem = LocatedError::new(path, fault);
            if key.is_empty() { problem } else { problem.in_column(key) }
        })
    }

    fn parse(text: &[u8], count: usize) -> Result<Self, (String, SplitError)> {
        let value = serde_json::from_slice(text)
            .map_err(|error| (String::new(), SplitError::NotJson(error)))?;
        let Value::Object(map) = value else {
            return Err((
                String::new(),
                SplitError::WrongType { expected: "an object with three lists" },
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
                    SplitError::WrongType { expected: "a list of graph numbers" },
                ));
            };
            for (place, item) in items.iter().enumerate() {
                let refuse = |fault| (format!("{name}[{place}]"), fault);
                if !item.is_i64() && !item.is_u64() {
                    return Err(refuse(SplitError::WrongType { expected: "a graph number" }));
                }
                let number = item.as_u64().and_then(|number| usize::try_from(number).ok());
                let Some(graph) = number.filter(|&number| number < count) else {
                    return Err(refuse(SplitError::NoSuchGraph {
                        graph: item.to_string(),
                        graphs: count,
                    }));
                };
                if let Some(earlier) = seen[graph].replace(split) {
                    return Err(refuse(SplitError::Twice { graph, earlier }));
                }
                parts[split as usize].push(graph);
            }
        }
        Self::of(parts).map_err(|fault| (String::new(), fault))
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

fn check(shares: [f64; 3]) -> Result<(), SplitError> {
    let sound = shares.iter().all(|share| (0.0..=1.0).contains(share));
    let whole = (shares.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    if sound && whole { Ok(()) } else { Err(SplitError::Shares(shares)) }
}

/// Sizes within one of their shares, with the sum `count`.
fn sizes(count: usize, shares: [f64; 3]) -> Result<[usize; 3], SplitError> {
    check(shares)?;
    let cut = |share: f64| ((share * count as f64).round() as usize).min(count);
    let (first, second) = (cut(shares[0]), cut(shares[0] + shares[1]));
    Ok([first, second - first, count - second])
}

/// All rows in random order.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..count).collect();
    SeedTree::new(seed).stream("split").shuffle(&mut rows);
    rows
}

/// All rows class after class, each class in random order.
fn by_class(classes: &[u32], seed: u64) -> Vec<usize> {
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
        // Sizes: a 4, b 2 (first row 1), c 2 (first row 3), d 1, e 1; train takes 8, valid 1, test 1; ties backwards.
        let groups = ["a", "b", "a", "c", "b", "a", "c", "a", "d", "e"];
        let splits = Splits::by_group(&groups, DEFAULT_FRACTIONS).unwrap();
        assert_eq!(splits.train, [0, 2, 5, 7, 3, 6, 1, 4]);
        assert_eq!((splits.valid, splits.test), (vec![9], vec![8]));
    }

    #[test]
    fn a_group_too_large_for_train_goes_on_to_where_it_fits() {
        // train may hold 3: a (3) fits, b (2) does not and fits valid (up to 5 in all), c goes to test.
        let splits = Splits::by_group(&["a", "a", "a", "b", "b", "c"], [0.5, 0.34, 0.16]).unwrap();
        assert_eq!((splits.train, splits.valid, splits.test), (vec![0, 1, 2], vec![3, 4], vec![5]));
    }

    #[test]
    fn a_file_of_numbers_is_a_split() {
        let read = |text: &str| {
            Splits::parse(text.as_bytes(), 4).map_err(|(key, fault)| format!("{key}: {fault}"))
        };
        let sound = read(r#"{"train": [3, 0], "valid": [1], "test": [2]}"#).unwrap();
        assert_eq!((sound.train, sound.valid, sound.test), (vec![3, 0], vec![1], vec![2]));
        let cases = [
            (
                r#"{"train": [4], "valid": [], "test": []}"#,
                "train[0]: there is no graph 4: there are 4, numbered from 0",
            ),
            (
                r#"{"train": [-1], "valid": [], "test": []}"#,
                "train[0]: there is no graph -1: there are 4, numbered from 0",
            ),
            (
                r#"{"train": [0], "valid": [1, 0], "test": []}"#,
                "valid[1]: graph 0 is already in the Train part",
            ),
            (r#"{"train": [0], "valid": [], "test": [1]}"#, ": the Valid part is empty"),
            (r#"{"train": ["0"], "valid": [], "test": []}"#, "train[0]: expected a graph number"),
            (r#"{"train": [0.5], "valid": [], "test": []}"#, "train[0]: expected a graph number"),
            (r#"{"train": [0], "val": [], "test": []}"#, "val: unknown key `val`"),
            (r#"{"train": [0], "test": [1]}"#, "valid: expected a list of graph numbers"),
            ("[]", ": expected an object with three lists"),
            ("", ": not JSON: EOF while parsing a value at line 1 column 0"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn shares_and_folds_that_cannot_be_are_refused() {
        assert!(matches!(Splits::random(10, [0.9, 0.2, 0.1], 0), Err(SplitError::Shares(_))));
        assert!(matches!(Splits::random(10, [f64::NAN, 0.5, 0.5], 0), Err(SplitError::Shares(_))));
        assert!(matches!(Splits::random(2, DEFAULT_FRACTIONS, 0), Err(SplitError::Empty(_))));
        assert!(matches!(Splits::fold(&[0; 5], 10, 0, 0), Err(SplitError::Folds { .. })));
        let (row, _) = Splits::given(&[Some(Split::Train), None]).unwrap_err();
        assert_eq!(row, Some(1));
    }

    proptest! {
        #[test]
        fn a_random_split_is_a_partition_of_the_asked_sizes(count in 20_usize..300, seed in any::<u64>()) {
            let splits = Splits::random(count, DEFAULT_FRACTIONS, seed).unwrap();
            prop_assert_eq!(all(&splits), (0..count).collect::<Vec<_>>());
            for (part, share) in [(&splits.train, 0.8), (&splits.valid, 0.1), (&splits.test, 0.1)] {
                prop_assert!((part.len() as f64 - share * count as f64).abs() <= 1.0);
            }
            prop_assert_eq!(&splits, &Splits::random(count, DEFAULT_FRACTIONS, seed).unwrap());
            prop_assert_ne!(&splits, &Splits::random(count, DEFAULT_FRACTIONS, seed.wrapping_add(1)).unwrap());
        }

        #[test]
        fn a_stratified_split_keeps_the_share_of_every_class(
            classes in prop::collection::vec(0_u32..3, 60..300), seed in any::<u64>(),
        ) {
            let splits = Splits::stratified(&classes, DEFAULT_FRACTIONS, seed).unwrap();
            prop_assert_eq!(all(&splits), (0..classes.len()).collect::<Vec<_>>());
            for class in 0..3 {
                let of_class = |rows: &[usize]| rows.iter().filter(|&&row| classes[row] == class).count() as f64;
                let total = classes.iter().filter(|&&other| other == class).count() as f64;
                prop_assert!((of_class(&splits.train) - 0.8 * total).abs() <= 2.5);
            }
        }

        #[test]
        fn the_folds_of_a_seed_are_a_partition_with_the_classes_in_each(
            classes in prop::collection::vec(0_u32..3, 30..200), folds in 3_usize..11, seed in any::<u64>(),
        ) {
            let made: Vec<_> = (0..folds).map(|fold| Splits::fold(&classes, folds, fold, seed).unwrap()).collect();
            let mut tested: Vec<usize> = made.iter().flat_map(|splits| splits.test.clone()).collect();
            tested.sort_unstable();
            prop_assert_eq!(tested, (0..classes.len()).collect::<Vec<_>>());
            for class in 0..3 {
                let counts = made.iter().map(|splits| splits.test.iter().filter(|&&row| classes[row] == class).count());
                let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
                prop_assert!(most - least <= 1);
            }
            for (fold, splits) in made.iter().enumerate() {
                prop_assert_eq!(all(splits), (0..classes.len()).collect::<Vec<_>>());
                prop_assert_eq!(&splits.valid, &made[(fold + 1) % folds].test);
            }
        }

        #[test]
        fn groups_stay_whole_and_renumbered_rows_give_the_renumbered_split(
            sizes in prop::collection::btree_set(1_usize..60, 6..12), seed in any::<u64>(),
        ) {
            // Groups of different sizes: with ties the first row decides, and renumbering moves it.
            let groups: Vec<String> =
                sizes.iter().flat_map(|&size| std::iter::repeat_n(format!("group {size}"), size)).collect();
            let Ok(splits) = Splits::by_group(&groups, [0.6, 0.2, 0.2]) else { return Ok(()) };
            prop_assert_eq!(all(&splits), (0..groups.len()).collect::<Vec<_>>());
            let order = shuffled(groups.len(), seed);
            let moved: Vec<&String> = order.iter().map(|&row| &groups[row]).collect();
            let again = Splits::by_group(&moved, [0.6, 0.2, 0.2]).unwrap();
            for (part, other) in [(splits.train, again.train), (splits.valid, again.valid), (splits.test, again.test)] {
                let mut back: Vec<usize> = other.iter().map(|&row| order[row]).collect();
                back.sort_unstable();
                let mut part = part;
                part.sort_unstable();
                prop_assert_eq!(part, back);
            }
        }
    }
}

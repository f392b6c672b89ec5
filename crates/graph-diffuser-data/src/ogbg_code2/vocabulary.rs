//! The words of all labels, and which of them a model can say.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{END, UNKNOWN};
use crate::error::LocatedError;
use crate::numeric_csv::NumericCsvReader;

/// The words of every graph, by number in order of first appearance.
pub(super) struct Labels {
    distinct: Vec<String>,
    /// All labels in a row, and where each ends.
    words: Vec<u32>,
    ends: Vec<usize>,
}

impl Labels {
    /// Reads one label a line, words separated by blanks.
    pub(super) fn read(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        let mut labels = Self { distinct: vec![], words: vec![], ends: vec![] };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut rows = NumericCsvReader::open(path, read)?;
        while let Some(line) = rows.next_text()? {
            for word in line.split_ascii_whitespace() {
                let number = numbers.get(word).copied().unwrap_or_else(|| {
                    let number = labels.distinct.len() as u32;
                    numbers.insert(word.to_owned(), number);
                    labels.distinct.push(word.to_owned());
                    number
                });
                labels.words.push(number);
            }
            labels.ends.push(labels.words.len());
        }
        Ok(labels)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn words_of(&self, graph: usize) -> &[u32] {
        let start = if graph == 0 { 0 } else { self.ends[graph - 1] };
        &self.words[start..self.ends[graph]]
    }
}

/// The words a model can say, and the number of every word there is.
pub(super) struct Vocabulary {
    /// The most frequent first; the last two are the unknown word and the end.
    pub(super) words: Vec<String>,
    /// Of each distinct word of the labels; those beyond the vocabulary are numbered on from it.
    pub(super) numbers: Vec<u32>,
}

impl Vocabulary {
    /// Of the most frequent words of the training labels; of equally frequent ones, those that appear first.
    pub(super) fn of(labels: &Labels, train: &[usize], most: usize) -> Self {
        let mut counts = vec![0_u64; labels.distinct.len()];
        let mut appeared = vec![];
        for &word in train.iter().flat_map(|&graph| labels.words_of(graph)) {
            counts[word as usize] += 1;
            if counts[word as usize] == 1 {
                appeared.push(word);
            }
        }
        appeared.sort_by_key(|&word| std::cmp::Reverse(counts[word as usize]));
        appeared.truncate(most);
        let mut numbers = vec![u32::MAX; labels.distinct.len()];
        let mut words: Vec<String> = Vec::with_capacity(appeared.len() + 2);
        for &word in &appeared {
            numbers[word as usize] = words.len() as u32;
            words.push(labels.distinct[word as usize].clone());
        }
        words.extend([UNKNOWN.to_owned(), END.to_owned()]);
        let beyond = numbers.iter_mut().filter(|number| **number == u32::MAX);
        beyond.zip(words.len() as u32..).for_each(|(number, next)| *number = next);
        Self { words, numbers }
    }
}

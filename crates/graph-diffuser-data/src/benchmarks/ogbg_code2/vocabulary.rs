//! Sub-tokens of the labels and the vocabulary of the model.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{END_TOKEN, UNKNOWN_TOKEN};
use crate::error::LocatedError;
use crate::io::numeric_csv::NumericCsvReader;

/// Sub-tokens of every graph, as indices in order of first occurrence.
pub(super) struct TokenLabels {
    distinct: Vec<String>,
    /// Concatenated labels, and the end of each.
    tokens: Vec<u32>,
    ends: Vec<usize>,
}

impl TokenLabels {
    /// Reads one label per line; its sub-tokens are separated by spaces.
    pub(super) fn read(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        let mut labels = Self { distinct: vec![], tokens: vec![], ends: vec![] };
        let mut indices: HashMap<String, u32> = HashMap::new();
        let mut rows = NumericCsvReader::open(path, read)?;
        while let Some(line) = rows.next_text()? {
            for token in line.split_ascii_whitespace() {
                let index = indices.get(token).copied().unwrap_or_else(|| {
                    let index = labels.distinct.len() as u32;
                    indices.insert(token.to_owned(), index);
                    labels.distinct.push(token.to_owned());
                    index
                });
                labels.tokens.push(index);
            }
            labels.ends.push(labels.tokens.len());
        }
        Ok(labels)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn tokens_of(&self, graph: usize) -> &[u32] {
        let start = if graph == 0 { 0 } else { self.ends[graph - 1] };
        &self.tokens[start..self.ends[graph]]
    }
}

/// Vocabulary of the model, and the index of every sub-token of the labels.
pub(super) struct Vocabulary {
    /// Most frequent first; the last two are [`UNKNOWN_TOKEN`] and [`END_TOKEN`].
    pub(super) tokens: Vec<String>,
    /// Index of each distinct sub-token of the labels; those outside the vocabulary get the
    /// following indices.
    pub(super) indices: Vec<u32>,
}

impl Vocabulary {
    /// Selects the `max_size` most frequent sub-tokens of the training labels; ties are broken by
    /// first occurrence.
    pub(super) fn build(labels: &TokenLabels, train: &[usize], max_size: usize) -> Self {
        let mut counts = vec![0_u64; labels.distinct.len()];
        let mut vocabulary = vec![];
        for &token in train.iter().flat_map(|&graph| labels.tokens_of(graph)) {
            counts[token as usize] += 1;
            if counts[token as usize] == 1 {
                vocabulary.push(token);
            }
        }
        vocabulary.sort_by_key(|&token| std::cmp::Reverse(counts[token as usize]));
        vocabulary.truncate(max_size);
        let mut indices = vec![u32::MAX; labels.distinct.len()];
        let mut tokens: Vec<String> = Vec::with_capacity(vocabulary.len() + 2);
        for &token in &vocabulary {
            indices[token as usize] = tokens.len() as u32;
            tokens.push(labels.distinct[token as usize].clone());
        }
        tokens.extend([UNKNOWN_TOKEN.to_owned(), END_TOKEN.to_owned()]);
        let unknown = indices.iter_mut().filter(|index| **index == u32::MAX);
        unknown.zip(tokens.len() as u32..).for_each(|(index, next)| *index = next);
        Self { tokens, indices }
    }
}

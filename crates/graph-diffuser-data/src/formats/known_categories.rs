//! Categories of a trained model, for inputs in which categories are integers.

use std::collections::HashMap;

use crate::error::Diagnostic;
use crate::graph::Features;
use crate::schema::FeatureSchema;

/// A category that did not occur in the training data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown category `{value}`")]
pub(super) struct UnknownCategoryError {
    value: i64,
    known: String,
}

impl Diagnostic for UnknownCategoryError {
    fn hint(&self) -> Option<String> {
        Some(format!("known categories: {}", self.known))
    }
}

/// Categories of the node or edge features of a model, column by column.
#[derive(Debug)]
pub(super) struct KnownCategories {
    columns: Vec<Column>,
}

#[derive(Debug)]
enum Column {
    /// Categories with these names.
    Named(HashMap<String, u32>),
    /// Categories without names, which are indices below this size.
    Indexed(usize),
}

impl KnownCategories {
    /// Creates the categories of a schema, of which `names` are the names.
    pub(super) fn new(schema: &FeatureSchema, names: &[Vec<String>]) -> Self {
        let column = |(column, size): (usize, usize)| match names.get(column) {
            Some(names) if !names.is_empty() => {
                Column::Named(names.iter().cloned().zip(0..).collect())
            }
            _ => Column::Indexed(size),
        };
        Self { columns: schema.category_sizes().into_iter().enumerate().map(column).collect() }
    }

    /// Replaces the categories of a graph by those of the model; `value_of` returns the value of a
    /// category of a column.
    ///
    /// # Errors
    /// Returns row and column of the first unknown category.
    pub(super) fn encode(
        &self,
        features: Features,
        value_of: impl Fn(usize, u32) -> i64,
    ) -> Result<Features, (usize, usize, UnknownCategoryError)> {
        let columns = self.columns.len();
        let encode = |(position, category): (usize, &mut u32)| {
            let (row, column) = (position / columns, position % columns);
            let index = self.index(column, value_of(column, *category));
            *category = index.map_err(|error| (row, column, error))?;
            Ok(())
        };
        let mut features = features;
        match &mut features {
            Features::Categorical { values: categories, .. }
            | Features::Mixed { categories, .. } => {
                categories.iter_mut().enumerate().try_for_each(encode)?;
            }
            Features::None | Features::Float { .. } => {}
        }
        Ok(features)
    }

    fn index(&self, column: usize, value: i64) -> Result<u32, UnknownCategoryError> {
        let column = &self.columns[column];
        let index = match column {
            Column::Named(indices) => indices.get(&value.to_string()).copied(),
            Column::Indexed(size) => {
                u32::try_from(value).ok().filter(|&index| (index as usize) < *size)
            }
        };
        index.ok_or_else(|| {
            let known = match column {
                Column::Named(indices) => {
                    let mut names: Vec<(&u32, &String)> =
                        indices.iter().map(|(name, index)| (index, name)).collect();
                    names.sort();
                    let shown: Vec<String> =
                        names.iter().take(20).map(|(_, name)| format!("`{name}`")).collect();
                    let more = if names.len() > 20 { ", …" } else { "" };
                    format!("{}{more}", shown.join(", "))
                }
                Column::Indexed(size) => format!("0 to {}", size.saturating_sub(1)),
            };
            UnknownCategoryError { value, known }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_found_by_name_or_by_index() {
        let schema = FeatureSchema::Categorical(vec![2, 3]);
        let known = KnownCategories::new(&schema, &[vec!["6".into(), "8".into()]]);
        let features = |values| Features::Categorical { columns: 2, values };
        let value_of = |_, category| i64::from(category);
        assert_eq!(
            known.encode(features(vec![8, 2, 6, 0]), value_of).unwrap(),
            features(vec![1, 2, 0, 0])
        );
        let (row, column, error) = known.encode(features(vec![8, 2, 7, 0]), value_of).unwrap_err();
        assert_eq!((row, column), (1, 0));
        assert_eq!(error.to_string(), "unknown category `7`");
        assert_eq!(error.hint().unwrap(), "known categories: `6`, `8`");
        let (_, _, error) = known.encode(features(vec![8, 3]), value_of).unwrap_err();
        assert_eq!(error.hint().unwrap(), "known categories: 0 to 2");
    }
}

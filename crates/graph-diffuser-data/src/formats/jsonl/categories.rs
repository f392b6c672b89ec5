//! Names of categories and classes.

use std::collections::HashMap;

use serde_json::Value;

/// Category names and their indices.
#[derive(Debug, Clone, Default)]
pub(super) struct Categories {
    pub(super) names: Vec<String>,
    indices: HashMap<String, u32>,
}

impl Categories {
    pub(super) fn new(names: &[String]) -> Self {
        let indices = names.iter().zip(0..).map(|(name, index)| (name.clone(), index)).collect();
        Self { names: names.to_vec(), indices }
    }

    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.indices.get(name).copied()
    }

    pub(super) fn get_or_insert(&mut self, name: &str) -> u32 {
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), index);
        index
    }

    /// Sorts the names, by value if all are integers, and returns them with the new index of each
    /// old one.
    ///
    /// The result does not depend on the order of the lines.
    pub(super) fn into_sorted(self) -> (Vec<String>, Vec<u32>) {
        let integers: Option<Vec<i64>> = self.names.iter().map(|name| name.parse().ok()).collect();
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        match &integers {
            Some(values) => order.sort_by_key(|&old| (values[old], &self.names[old])),
            None => order.sort_by_key(|&old| &self.names[old]),
        }
        let mut new_indices = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            new_indices[old] = new as u32;
        }
        (order.iter().map(|&old| self.names[old].clone()).collect(), new_indices)
    }
}

/// Returns the name of a category: a string, or an integer as written.
pub(super) fn category_name(cell: &Value) -> Option<String> {
    match cell {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => number.as_i64().map(|integer| integer.to_string()),
        Value::Bool(truth) => Some(u8::from(*truth).to_string()),
        _ => None,
    }
}

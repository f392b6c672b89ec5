//! JSON values with a limit on their memory.
//!
//! A value takes up to a hundred times the memory of its text: `[0]` is 3 bytes long, and its list
//! takes 96 bytes. The limit on the length of a graph alone would allow several gigabytes.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Maximum memory of the values of a graph in bytes.
pub(super) const MAX_VALUE_MEMORY: usize = 512 << 20;

/// Memory of a map with up to eleven keys, the smallest size that is allocated.
const MAP_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
/// Memory of an allocation besides its content.
const ALLOCATION_BYTES: usize = 16;

/// Memory that the values of a graph may still take.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl MemoryBudget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(MAX_VALUE_MEMORY), is_exceeded: Cell::new(false) }
    }

    /// Returns whether reading failed because of the limit.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        if let Some(left) = self.left.get().checked_sub(bytes) {
            self.left.set(left);
            Ok(())
        } else {
            self.is_exceeded.set(true);
            Err(E::custom("the graph takes too much memory"))
        }
    }
}

/// Reads a value within a budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundedValue<'b>(pub(super) &'b MemoryBudget);

impl BoundedValue<'_> {
    fn text<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.take(if text.is_empty() { 0 } else { text.len() + ALLOCATION_BYTES })
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.text(value)?;
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.text(&value)?;
        Ok(value.into())
    }

    fn visit_seq<List: SeqAccess<'de>>(self, mut list: List) -> Result<Value, List::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            if values.is_empty() {
                // Most lists are pairs of nodes.
                values.reserve_exact(2);
                self.0.take(ALLOCATION_BYTES)?;
            }
            self.0.take(size_of::<Value>())?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<Entries: MapAccess<'de>>(
        self,
        mut entries: Entries,
    ) -> Result<Value, Entries::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            // Nodes of a map are at least half full.
            let per_key = 2 * (size_of::<String>() + size_of::<Value>());
            self.0.take(if map.is_empty() { MAP_BYTES } else { per_key })?;
            self.text(&key)?;
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, limit: usize) -> Result<Value, bool> {
        let budget = MemoryBudget { left: Cell::new(limit), ..MemoryBudget::new() };
        let mut reader = serde_json::Deserializer::from_str(text);
        BoundedValue(&budget).deserialize(&mut reader).map_err(|_| budget.is_exceeded())
    }

    #[test]
    fn values_equal_those_of_the_json_crate() {
        let text = r#"{"a": [1, -2, 0.5, 1e300, true, null, "x\n", [], {}], "b": {"c": [[0, 1]]}}"#;
        assert_eq!(read(text, 10_000), Ok(serde_json::from_str(text).unwrap()));
        assert_eq!(read("[1,", 10_000), Err(false));
    }

    #[test]
    fn memory_of_lists_objects_and_strings_is_limited() {
        let pairs = format!("[{}[0,1]]", "[0,1],".repeat(999));
        // Two values in a list of their own, and the value of the list.
        let expected = 1000 * (3 * size_of::<Value>() + ALLOCATION_BYTES) + ALLOCATION_BYTES;
        assert!(read(&pairs, expected).is_ok());
        assert_eq!(read(&pairs, expected - 1), Err(true));
        let objects = format!("[{}{{\"id\":0}}]", "{\"id\":0},".repeat(999));
        assert_eq!(read(&objects, 500_000), Err(true));
        assert!(read(&objects, 1_000_000).is_ok());
        assert_eq!(read(&format!("\"{}\"", "x".repeat(1000)), 1000), Err(true));
    }
}

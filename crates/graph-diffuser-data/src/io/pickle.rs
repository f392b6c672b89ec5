//! Reader for pickles of arrays, numbers, texts and containers.
//!
//! Published splits are pickled dictionaries of NumPy arrays or of tensors, and the molecules of
//! ZINC are pickled lists of dictionaries of tensors. No code of a pickle is executed: the few
//! functions that build arrays are emulated, every other object is represented by its name. Lengths
//! are checked against the file, arrays are not copied before they are used, and depth, stack and
//! memo are bounded, so the memory for a file is proportional to its size.

mod error;
mod value;

mod objects;

mod machine;

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;

pub(crate) use error::PickleError;
pub(crate) use objects::{Context, StorageId};
pub(crate) use value::{Item, RawStorage, Storage, Tensor, Value};

use machine::{Machine, Step};

/// Integer arrays by name.
pub(crate) type Arrays = BTreeMap<String, Vec<i64>>;

/// Reads one pickle; bytes after its end are left in `input`.
///
/// # Errors
/// Returns an error if the pickle is truncated or has opcodes that data files do not use.
pub(crate) fn read_value(input: impl BufRead, context: Context<'_>) -> Result<Item, PickleError> {
    let mut machine = Machine::new(input, context, false);
    loop {
        if let Step::Stop(value) = machine.step()? {
            return Ok(value);
        }
    }
}

/// Returns the entries of a dictionary of one-dimensional integer arrays.
///
/// # Errors
/// Returns an error if the value is not such a dictionary.
pub(crate) fn arrays_of(value: &Value) -> Result<Arrays, PickleError> {
    let entries = match value {
        Value::Dictionary(entries) => entries,
        Value::Instance { class, .. } => {
            return Err(PickleError::UnsupportedObject { name: class.clone() });
        }
        _ => return Err(PickleError::Array { what: "is not in a dictionary" }),
    };
    let arrays = entries.iter().map(|(name, array)| match &**name {
        Value::Text(name) => {
            let array = array.tensor()?;
            match array.shape() {
                [_] => Ok((name.clone(), array.integers()?)),
                _ => Err(PickleError::Array { what: "has more than one dimension" }),
            }
        }
        _ => Err(PickleError::Array { what: "has no name" }),
    });
    arrays.collect()
}

/// Iterator over the items of a pickled list, which are not kept.
///
/// Items of a list that share objects with items far apart are not supported.
pub(crate) struct ListItems<'a, R> {
    machine: Machine<'a, R>,
    items: VecDeque<Item>,
    has_ended: bool,
}

impl<'a, R: BufRead> ListItems<'a, R> {
    /// Starts to read a pickled list.
    pub(crate) fn new(input: R, context: Context<'a>) -> Self {
        Self {
            machine: Machine::new(input, context, true),
            items: VecDeque::new(),
            has_ended: false,
        }
    }

    fn read(&mut self) -> Result<Option<Item>, PickleError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            match self.machine.step()? {
                Step::Continue => {}
                Step::Items(items) => self.items = items.into(),
                Step::Stop(value) => {
                    if matches!(&*value, Value::List(_)) {
                        return Ok(None);
                    }
                    let at = self.machine.at();
                    return Err(PickleError::Expected { at, what: "a list" });
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for ListItems<'_, R> {
    type Item = Result<Item, PickleError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let item = self.read().transpose();
        self.has_ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: Context<'_> = Context {
        storages: &|_| Err(PickleError::Torch { what: "a storage is missing" }),
        load: |_| Err(PickleError::Torch { what: "no storage" }),
    };

    fn read_arrays(bytes: &[u8]) -> Result<Arrays, PickleError> {
        arrays_of(&*read_value(bytes, CONTEXT)?)
    }

    #[test]
    fn arrays_of_protocols_2_and_4_are_read() {
        for bytes in [
            &include_bytes!("../../tests/fixtures/split_protocol2.pickle")[..],
            &include_bytes!("../../tests/fixtures/split_protocol4.pickle")[..],
        ] {
            let arrays = read_arrays(bytes).unwrap();
            assert_eq!(arrays["train"], [3, 1, 4, 15, 9]);
            assert_eq!(arrays["val"], [2, 6]);
            assert!(arrays["test"].is_empty());
            for end in 0..bytes.len() {
                read_arrays(&bytes[..end]).unwrap_err();
            }
        }
    }

    #[test]
    fn function_calls_are_rejected_by_name() {
        let bytes = b"cposix\nsystem\n(X\x02\x00\x00\x00lstR.";
        assert_eq!(
            read_arrays(bytes),
            Err(PickleError::UnsupportedObject { name: "posix.system".into() })
        );
    }

    #[test]
    fn lengths_beyond_the_file_deep_nesting_and_long_stacks_are_rejected() {
        assert_eq!(
            read_arrays(b"\x8e\x00\x00\x00\x01\x00\x00\x00\x00."),
            Err(PickleError::Truncated { at: 10 })
        );
        for bytes in [
            &b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."[..],
            &[&b"N"[..], &[0x85; 5_000], b"."].concat(),
            &[&vec![b'N'; 100_000][..], b"."].concat(),
            &[&vec![b'('; 100_000][..], b"."].concat(),
        ] {
            let error = read_arrays(bytes).unwrap_err();
            assert!(matches!(error, PickleError::TooLarge { .. }), "{error}");
        }
    }

    #[test]
    fn list_memoized_before_it_is_filled_is_not_read_as_empty() {
        // [[1], the same list]
        let value = read_value(&b"](]q\x00K\x01ah\x00e."[..], CONTEXT).unwrap();
        let items = value.items().unwrap();
        assert_eq!(items[0].items().unwrap().len(), 1);
        assert!(matches!(*items[1], Value::Reference));
    }

    #[test]
    fn items_of_a_list_are_returned_in_order() {
        // Two batches and a single item: [1, [2], 3, "a"]
        let bytes = &b"](K\x01](K\x02ee(K\x03eX\x01\x00\x00\x00aa."[..];
        let items: Vec<Item> =
            ListItems::new(bytes, CONTEXT).collect::<Result<_, PickleError>>().unwrap();
        assert_eq!(items.len(), 4);
        assert!(matches!(*items[0], Value::Integer(1)) && matches!(*items[1], Value::List(_)));
        assert!(matches!(&*items[3], Value::Text(text) if text == "a"));
        let mut items = ListItems::new(&bytes[..bytes.len() - 1], CONTEXT);
        assert!(items.by_ref().take(4).all(|item| item.is_ok()));
        assert!(items.next().unwrap().is_err() && items.next().is_none());
        assert!(ListItems::new(&b"K\x01."[..], CONTEXT).next().unwrap().is_err());
    }
}

//! Interpreter of pickle opcodes.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use super::error::PickleError;
use super::objects::{Context, build, call, storage};
use super::value::{Item, Value, little_endian};

/// Maximum number of values on the stack; containers are pickled in batches of 1,000 items.
const MAX_STACK: usize = 1 << 16;
/// Maximum number of memoized values.
const MAX_MEMO: usize = 1 << 24;
/// Maximum length of a value in bytes.
const MAX_VALUE_BYTES: usize = 1 << 28;
/// Maximum length of the name of a function or class.
const MAX_NAME_BYTES: u64 = 256;
/// Maximum length of a text that is kept in the memo when the items of a list are returned.
const MAX_SHARED_TEXT: usize = 64;

/// Outcome of one opcode.
pub(super) enum Step {
    Continue,
    /// Items of the outermost list, if they are returned one by one.
    Items(Vec<Item>),
    Stop(Item),
}

/// State of the interpreter.
pub(super) struct Machine<'a, R> {
    input: R,
    at: usize,
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: BTreeMap<usize, Item>,
    /// Number of values memoized so far, including those that were removed.
    memoized: usize,
    /// Indices of memoized values that are removed when the items of a list are returned.
    large: Vec<usize>,
    context: Context<'a>,
    /// True if the items of the outermost list are returned one by one.
    by_item: bool,
}

impl<'a, R: BufRead> Machine<'a, R> {
    pub(super) fn new(input: R, context: Context<'a>, by_item: bool) -> Self {
        Self {
            input,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
            memoized: 0,
            large: Vec::new(),
            context,
            by_item,
        }
    }

    /// Returns the position in bytes.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Interprets one opcode.
    pub(super) fn step(&mut self) -> Result<Step, PickleError> {
        let at = self.at;
        let code = self.array::<1>()?[0];
        match code {
            b'.' => return self.pop().map(Step::Stop),
            // PROTO and FRAME need no action.
            0x80 => drop(self.array::<1>()?),
            0x95 => drop(self.array::<8>()?),
            b'(' => {
                self.check_stack(self.marks.len())?;
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => self.push_unsigned(1)?,
            b'M' => self.push_unsigned(2)?,
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Integer(i64::from(value)))?;
            }
            0x8a => {
                let length = self.unsigned(1)?;
                if length > 8 {
                    return Err(self.expected("a 64-bit integer"));
                }
                let value = little_endian(&self.take(length)?);
                self.push(Value::Integer(value))?;
            }
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(value))?;
            }
            0x8c => self.push_text(1)?,
            b'X' => self.push_text(4)?,
            0x8d => self.push_text(8)?,
            b'C' | b'U' => self.push_bytes(1)?,
            b'B' | b'T' => self.push_bytes(4)?,
            0x8e => self.push_bytes(8)?,
            0x94 => self.memoize(self.memoized)?,
            b'q' | b'r' => {
                let index = self.unsigned(if code == b'q' { 1 } else { 4 })?;
                self.memoize(index)?;
            }
            b'h' | b'j' => {
                let index = self.unsigned(if code == b'h' { 1 } else { 4 })?;
                let value = self.memo.get(&index).cloned();
                let value = value.ok_or_else(|| self.expected("a memoized value"))?;
                self.push_item(value)?;
            }
            b'c' => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                self.push(Value::Global(name))?;
            }
            0x93 => match (&*self.pop()?, &*self.pop()?) {
                (Value::Text(name), Value::Text(module)) => {
                    self.push(Value::Global(format!("{module}.{name}")))?;
                }
                _ => return Err(self.expected("a module and a name")),
            },
            b')' => self.push(Value::Tuple(Vec::new()))?,
            0x85..=0x87 => self.push_tuple(usize::from(code - 0x84))?,
            b't' => {
                let items = self.since_mark()?;
                self.push(Value::Tuple(items))?;
            }
            b']' => self.push(Value::List(Vec::new()))?,
            b'a' => {
                let item = self.pop()?;
                return self.append(vec![item]);
            }
            b'e' => {
                let items = self.since_mark()?;
                return self.append(items);
            }
            b'}' => self.push(Value::Dictionary(Vec::new()))?,
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set_items(&items)?;
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let value = call(&self.context, &function, &arguments, self.at)?;
                self.push(value)?;
            }
            0x81 => match (&*self.pop()?, &*self.pop()?) {
                (Value::Tuple(_), Value::Global(class)) => {
                    self.push(Value::Instance { class: class.clone(), state: None })?;
                }
                _ => return Err(self.expected("a class and its arguments")),
            },
            b'b' => {
                let (state, object) = (self.pop()?, self.pop()?);
                match build(&object, &state, self.at)? {
                    Some(built) => self.push(built)?,
                    None => self.push_item(object)?,
                }
            }
            b'Q' => {
                let id = self.pop()?;
                let value = storage(&self.context, &id, self.at)?;
                self.push(value)?;
            }
            code => return Err(PickleError::UnsupportedOpcode { at, code }),
        }
        Ok(Step::Continue)
    }

    fn expected(&self, what: &'static str) -> PickleError {
        PickleError::Expected { at: self.at, what }
    }

    fn too_large(&self, what: &'static str) -> PickleError {
        PickleError::TooLarge { at: self.at, what }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut bytes = [0; N];
        let mut read = 0;
        while read < N {
            match self.input.read(&mut bytes[read..]) {
                Ok(0) => return Err(PickleError::Truncated { at: self.at + read }),
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PickleError::Read { message: error.to_string() }),
            }
        }
        self.at += N;
        Ok(bytes)
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, PickleError> {
        if count > MAX_VALUE_BYTES {
            return Err(self.too_large("a value of more than 256 MiB"));
        }
        // Grows with the bytes that are there, not with the claimed length.
        let mut taken = Vec::with_capacity(count.min(1 << 12));
        let read = self.input.by_ref().take(count as u64).read_to_end(&mut taken);
        read.map_err(|error| PickleError::Read { message: error.to_string() })?;
        self.at += taken.len();
        if taken.len() == count { Ok(taken) } else { Err(PickleError::Truncated { at: self.at }) }
    }

    /// Reads a length or index of up to eight bytes.
    fn unsigned(&mut self, size: usize) -> Result<usize, PickleError> {
        let mut wide = [0; 8];
        for byte in &mut wide[..size] {
            *byte = self.array::<1>()?[0];
        }
        usize::try_from(u64::from_le_bytes(wide)).map_err(|_| self.expected("a length"))
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<String, PickleError> {
        let mut line = Vec::new();
        let read = self.input.by_ref().take(MAX_NAME_BYTES).read_until(b'\n', &mut line);
        read.map_err(|error| PickleError::Read { message: error.to_string() })?;
        self.at += line.len();
        match line.pop() {
            Some(b'\n') => String::from_utf8(line).map_err(|_| self.expected("text")),
            _ => Err(PickleError::Truncated { at: self.at }),
        }
    }

    fn check_stack(&self, length: usize) -> Result<(), PickleError> {
        if length < MAX_STACK { Ok(()) } else { Err(self.too_large("too many values in a batch")) }
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        let item = Item::new(value).ok_or_else(|| self.too_large("too deeply nested values"))?;
        self.push_item(item)
    }

    fn push_item(&mut self, item: Item) -> Result<(), PickleError> {
        self.check_stack(self.stack.len())?;
        self.stack.push(item);
        Ok(())
    }

    fn pop(&mut self) -> Result<Item, PickleError> {
        self.stack.pop().ok_or_else(|| self.expected("a value"))
    }

    fn push_unsigned(&mut self, size: usize) -> Result<(), PickleError> {
        let value = self.unsigned(size)? as i64;
        self.push(Value::Integer(value))
    }

    fn push_text(&mut self, size: usize) -> Result<(), PickleError> {
        let length = self.unsigned(size)?;
        let text = String::from_utf8(self.take(length)?).map_err(|_| self.expected("text"))?;
        self.push(Value::Text(text))
    }

    fn push_bytes(&mut self, size: usize) -> Result<(), PickleError> {
        let length = self.unsigned(size)?;
        let bytes = self.take(length)?;
        self.push(Value::Bytes(bytes))
    }

    fn push_tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let start = self.stack.len().checked_sub(count).ok_or_else(|| self.expected("values"))?;
        let items = self.stack.split_off(start);
        self.push(Value::Tuple(items))
    }

    fn since_mark(&mut self) -> Result<Vec<Item>, PickleError> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        let mark = mark.ok_or_else(|| self.expected("a mark"))?;
        Ok(self.stack.split_off(mark))
    }

    /// Memoizes the top of the stack. Containers are memoized before they are filled, so only the
    /// fact that they were is kept.
    fn memoize(&mut self, index: usize) -> Result<(), PickleError> {
        let item = self.stack.last().cloned().ok_or_else(|| self.expected("a value"))?;
        let (item, is_large) = match &*item {
            Value::List(_) | Value::Dictionary(_) => {
                (Item::new(Value::Reference).ok_or_else(|| self.expected("a value"))?, true)
            }
            Value::Text(text) if text.len() <= MAX_SHARED_TEXT => (item, false),
            Value::Global(_) | Value::Dtype(_) => (item, false),
            _ => (item, true),
        };
        if self.memo.len() >= MAX_MEMO {
            return Err(self.too_large("too many values"));
        }
        if is_large && self.by_item {
            self.large.push(index);
        }
        if self.memo.insert(index, item).is_none() {
            self.memoized += 1;
        }
        Ok(())
    }

    /// Appends items to the list on top of the stack.
    fn append(&mut self, items: Vec<Item>) -> Result<Step, PickleError> {
        if self.by_item && self.stack.len() == 1 && matches!(&*self.stack[0], Value::List(_)) {
            // No other item may refer to what is removed, so memory does not grow with the list.
            for index in self.large.drain(..) {
                self.memo.remove(&index);
            }
            return Ok(Step::Items(items));
        }
        match self.pop()?.into_value() {
            Some(Value::List(mut list)) => {
                list.extend(items);
                self.push(Value::List(list))?;
                Ok(Step::Continue)
            }
            _ => Err(self.expected("a list")),
        }
    }

    /// Adds items to the dictionary on top of the stack.
    fn set_items(&mut self, items: &[Item]) -> Result<(), PickleError> {
        match self.pop()?.into_value() {
            Some(Value::Dictionary(mut entries)) => {
                entries
                    .extend(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
                self.push(Value::Dictionary(entries))
            }
            // Attributes of other objects are set by their state.
            _ => Err(self.expected("a dictionary")),
        }
    }
}

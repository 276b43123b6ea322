//! JSON arrays of any length, an element at a time, within a budget.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde_json::de::IoRead;
use serde_json::{Map, Number, Value};

use crate::budget::{Budget, Exhaustion};
use crate::error::{Fault, Place};

/// Bytes read at once.
const BLOCK: usize = 64 << 10;
/// No text of a table or rule set is longer.
const MAX_LEN: usize = 1 << 20;
/// Memory of an object's members: the tree has nodes of this size, each with at least so many members.
const NODE: usize = 640;
const MEMBERS: usize = 6;
/// Memory of a text beside its bytes.
const TEXT: usize = 16;

/// What reads JSON from content.
pub(crate) type Reader<R> = serde_json::Deserializer<IoRead<BufReader<TextLimit<R>>>>;

/// Calls `take` with each element of the array that `content` is, and its number from 1.
pub(crate) fn elements<T: DeserializeOwned>(
    content: impl Read,
    budget: &Budget,
    mut take: impl FnMut(u64, T) -> Result<(), String>,
) -> Result<(), Fault> {
    let mut each = |number, value: Value, _: usize| {
        let element = serde_json::from_value(value).map_err(|error| error.to_string())?;
        take(number, element)
    };
    read(content, budget, |json, number| {
        let elements = Elements {
            budget,
            number,
            take: &mut each,
        };
        elements.deserialize(json)
    })
}

/// Reads JSON by `visit`, which counts elements in the cell. A file that costs too much is refused at one of them,
/// as listings often have all of them in one line.
pub(crate) fn read<R: Read>(
    content: R,
    budget: &Budget,
    visit: impl FnOnce(&mut Reader<R>, &Cell<u64>) -> serde_json::Result<()>,
) -> Result<(), Fault> {
    let number = Cell::new(0);
    let content = BufReader::with_capacity(BLOCK, TextLimit::new(content));
    let mut json = serde_json::Deserializer::from_reader(content);
    let read = visit(&mut json, &number).and_then(|()| json.end());
    read.map_err(|error| match budget.exhaustion() {
        Some(exhausted) => Fault::new(Place::Entry(number.get()), exhausted),
        None => Fault::json(error),
    })
}

/// An array. `take` is called with each element, its number, and the memory that it takes, which is charged only until
/// `take` is done.
pub(crate) struct Elements<'a, F> {
    pub(crate) budget: &'a Budget,
    pub(crate) number: &'a Cell<u64>,
    pub(crate) take: &'a mut F,
}

impl<'de, F> DeserializeSeed<'de> for Elements<'_, F>
where
    F: FnMut(u64, Value, usize) -> Result<(), String>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, F> Visitor<'de> for Elements<'_, F>
where
    F: FnMut(u64, Value, usize) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<(), S::Error> {
        loop {
            self.number.set(self.number.get() + 1);
            let before = self.budget.memory();
            let Some(element) = elements.next_element_seed(ValueSeed(self.budget))? else {
                self.number.set(self.number.get() - 1);
                return Ok(());
            };
            let memory = self.budget.memory() - before;
            self.budget.release(memory);
            (self.take)(self.number.get(), element, memory).map_err(S::Error::custom)?;
        }
    }
}

/// Any value; its memory is charged while it grows.
#[derive(Clone, Copy)]
struct ValueSeed<'a>(&'a Budget);

impl ValueSeed<'_> {
    fn hold<E: Error>(self, bytes: usize) -> Result<(), E> {
        let charged = self.0.work(1).and_then(|()| self.0.hold(bytes));
        charged.map_err(|exhausted: Exhaustion| E::custom(exhausted))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
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
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.hold(TEXT + text.len())?;
        Ok(text.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<Value, S::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            if all.len() == all.capacity() {
                // It grows to twice its size, and at least to four.
                self.hold(all.len().max(4) * size_of::<Value>())?;
            }
            all.push(element);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let nodes = if all.len().is_multiple_of(MEMBERS) {
                NODE
            } else {
                0
            };
            self.hold(nodes + TEXT + name.len())?;
            let value = map.next_value_seed(self)?;
            if all.contains_key(&name) {
                return Err(M::Error::custom(format!(
                    "{name:?} is there twice in an object"
                )));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

/// JSON none of whose texts is long: readers keep a text whole, whatever becomes of it.
#[derive(Debug)]
pub(crate) struct TextLimit<R> {
    input: R,
    /// Bytes of the text that is being read; none between texts.
    text: Option<usize>,
    escaped: bool,
}

impl<R> TextLimit<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            text: None,
            escaped: false,
        }
    }

    fn byte(&mut self, byte: u8) -> io::Result<()> {
        let Some(length) = self.text else {
            self.text = (byte == b'"').then_some(0);
            return Ok(());
        };
        if length == MAX_LEN {
            let what = "a text of more than 1 MiB in JSON: this is no list of routes or rules";
            return Err(io::Error::other(what));
        }
        self.text = (byte != b'"' || self.escaped).then_some(length + 1);
        self.escaped = byte == b'\\' && !self.escaped;
        Ok(())
    }
}

impl<R: Read> Read for TextLimit<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        for byte in &buffer[..count] {
            self.byte(*byte)?;
        }
        Ok(count)
    }
}

//! JSON arrays of any length, an element at a time.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Deserializer, Error, SeqAccess, Visitor};

use crate::error::Fault;

/// Calls `take` with each element of the array that `content` is.
pub(crate) fn elements<T: DeserializeOwned>(
    content: impl Read,
    take: &mut impl FnMut(T) -> Result<(), String>,
) -> Result<(), Fault> {
    let mut json = serde_json::Deserializer::from_reader(content);
    let elements = Elements {
        take,
        element: PhantomData,
    };
    json.deserialize_seq(elements).map_err(Fault::json)?;
    json.end().map_err(Fault::json)
}

struct Elements<'a, T, F> {
    take: &'a mut F,
    element: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> Result<(), String>> Visitor<'de>
    for Elements<'_, T, F>
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<(), S::Error> {
        while let Some(element) = elements.next_element()? {
            (self.take)(element).map_err(S::Error::custom)?;
        }
        Ok(())
    }
}

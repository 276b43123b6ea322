//! CAIDA's prefix-to-AS lists: address, length, origin. An origin is an AS, several that announce
//! the prefix (`1_2`) or a set of them (`1,2`). There are no next hops in these lists: the origin
//! stands for one, as it is written, and `Routes::spread` makes few of many.

use std::io::BufRead;

use super::format::Importer;
use super::table::Builder;
use super::{Target, text};
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(recognizes(&head.words)),
    read: |content, _, table| read(content, table),
};

/// Three columns, of which the second is a length.
fn recognizes(words: &[&str]) -> bool {
    let [address, length, _] = words else {
        return false;
    };
    let is_address = text::prefix(address).is_ok() && !address.contains('/');
    is_address && length.parse::<u8>().is_ok()
}

pub(super) fn read(content: impl BufRead, table: &mut Builder<'_>) -> Result<(), Fault> {
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, length, origin] = words[..] else {
            if words.is_empty() || line.starts_with('#') {
                continue;
            }
            let count = words.len();
            let what = format!("{count} columns: write address, length and AS");
            return Err(Fault::line(number, what));
        };
        let prefix = text::prefix(&format!("{address}/{length}"))
            .map_err(|what| Fault::line(number, what))?;
        if !is_origin(origin) {
            return Err(Fault::line(number, format!("{origin:?} is no AS")));
        }
        let target = Target::Origin(origin.into());
        table
            .route(prefix, 0, target, Place::Line(number))
            .map_err(|exhausted| Fault::line(number, exhausted))?;
    }
    Ok(())
}

fn is_origin(text: &str) -> bool {
    let numbers = |set: &str| set.split(',').all(|number| number.parse::<u32>().is_ok());
    text.split('_')
        .all(|origin| numbers(origin.trim_matches(['{', '}'])))
}

//! A schema without some of its columns: for a datapath that cannot give them, or to save their room.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Rows, Schema};
use crate::column::Column;

/// Every choice that was made, once each: schemas live as long as the program.
static NARROWER: Mutex<Option<HashMap<Choice, &'static Schema>>> = Mutex::new(None);

/// A schema's name, and the columns that are left out, in order.
type Choice = (&'static str, Vec<String>);

impl Schema {
    /// This schema without these columns; or the name that is none of its columns.
    pub fn without(&'static self, names: &[String]) -> Result<&'static Self, String> {
        let columns = self.columns();
        let known = |name: &&String| columns.iter().any(|column| column.name == **name);
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(unknown.clone());
        }
        if names.is_empty() {
            return Ok(self);
        }
        let mut names = names.to_vec();
        names.sort();
        names.dedup();
        let mut made = NARROWER.lock().unwrap_or_else(PoisonError::into_inner);
        let made = made.get_or_insert_default();
        let narrower = made
            .entry((self.name, names))
            .or_insert_with_key(|(_, names)| Box::leak(Box::new(self.narrower(names))));
        Ok(narrower)
    }

    fn narrower(&self, names: &[String]) -> Self {
        Self {
            name: self.name,
            about: self.about,
            rules: self.rules,
            rows: match self.rows {
                Rows::Flows(columns) => Rows::Flows(kept(columns, names)),
                Rows::Packets(columns) => Rows::Packets(kept(columns, names)),
                Rows::Bits(columns) => Rows::Bits(kept(columns, names)),
            },
        }
    }
}

fn kept<R>(
    groups: &'static [&'static [Column<R>]],
    names: &[String],
) -> &'static [&'static [Column<R>]] {
    let columns = groups.iter().copied().flatten().copied();
    let kept = columns.filter(|column| !names.iter().any(|name| name == column.name));
    let kept: &'static [Column<R>] = kept.collect::<Vec<_>>().leak();
    vec![kept].leak()
}

#[cfg(test)]
mod tests {
    use crate::schema::find;

    #[test]
    fn columns_that_are_left_out_are_gone_and_the_others_stay() {
        let schema = find("packet.v1").unwrap();
        let names = ["ttl", "payload_entropy", "ttl"].map(str::to_owned);
        let narrower = schema.without(&names).unwrap();
        assert_eq!(narrower.columns().len() + 2, schema.columns().len());
        assert!(schema.needs_payload() && !narrower.needs_payload());
        assert!(std::ptr::eq(narrower, schema.without(&names).unwrap()));
        let other = ["ttl", "nonsense"].map(str::to_owned);
        assert_eq!(schema.without(&other).unwrap_err(), "nonsense");
    }
}

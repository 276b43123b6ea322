//! A schema without some of its columns, or with null in them: for a datapath that cannot give them, or to save
//! their room.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Rows, Schema};
use crate::column::Column;

/// Every choice that was made, once each: schemas live as long as the program.
static NARROWER: Mutex<Option<HashMap<Choice, &'static Schema>>> = Mutex::new(None);

/// A schema's name, and the columns that are left out, in order.
type Choice = (&'static str, Vec<String>);

/// The same of schemas with null in some columns.
static WITH_NULLS: Mutex<Option<HashMap<NullChoice, &'static Schema>>> = Mutex::new(None);

/// A schema's address, which tells schemas without some of their columns apart, and the columns with null, in order.
type NullChoice = (usize, Vec<String>);

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

    /// This schema with null in these columns where they need the packets themselves.
    pub fn with_null(&'static self, names: &[String]) -> &'static Self {
        let mut names = names.to_vec();
        names.sort();
        let mut made = WITH_NULLS.lock().unwrap_or_else(PoisonError::into_inner);
        let choice = (std::ptr::from_ref(self).addr(), names);
        let made = made.get_or_insert_default();
        made.entry(choice)
            .or_insert_with_key(|(_, names)| Box::leak(Box::new(self.clear(names))))
    }

    fn narrower(&self, names: &[String]) -> Self {
        Self {
            name: self.name,
            about: self.about,
            rules: self.rules,
            rows: match self.rows {
                Rows::Flows(columns) => Rows::Flows(retain(columns, names)),
                Rows::Packets(columns) => Rows::Packets(retain(columns, names)),
                Rows::Bits(columns) => Rows::Bits(retain(columns, names)),
            },
        }
    }

    fn clear(&self, names: &[String]) -> Self {
        Self {
            name: self.name,
            about: self.about,
            rules: self.rules,
            rows: match self.rows {
                Rows::Flows(columns) => Rows::Flows(clear_payload(columns, names)),
                Rows::Packets(columns) => Rows::Packets(clear_payload(columns, names)),
                Rows::Bits(columns) => Rows::Bits(columns),
            },
        }
    }
}

/// Columns of which these ask for no payload. Their values are null where no payload is read.
fn clear_payload<R>(
    groups: &'static [&'static [Column<R>]],
    names: &[String],
) -> &'static [&'static [Column<R>]] {
    let columns = groups.iter().copied().flatten().copied();
    let columns = columns.map(|column| {
        let is_null = names.iter().any(|name| name == column.name);
        Column {
            needs_payload: column.needs_payload && !is_null,
            needs_connection: column.needs_connection && !is_null,
            ..column
        }
    });
    let columns: &'static [Column<R>] = columns.collect::<Vec<_>>().leak();
    vec![columns].leak()
}

fn retain<R>(
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
    fn columns_with_null_stay_and_need_no_payload() {
        let schema = find("flow.v1").unwrap();
        let columns = schema.columns();
        let needing = columns.iter().filter(|column| column.needs_payload);
        let names: Vec<String> = needing.map(|column| column.name.to_owned()).collect();
        let (one, all) = (schema.with_null(&names[..1]), schema.with_null(&names));
        assert!(names.len() > 1 && one.needs_payload() && !all.needs_payload());
        assert_eq!(all.columns().len(), columns.len());
        assert!(std::ptr::eq(all, schema.with_null(&names)));
        let narrower = schema.without(&["packets".to_owned()]).unwrap();
        assert_eq!(
            narrower.with_null(&names).columns().len() + 1,
            columns.len()
        );
    }

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

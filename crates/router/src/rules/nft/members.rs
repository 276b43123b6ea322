//! Members of JSON objects.

use serde_json::Value;

/// The name and the value of an object of one member.
pub(super) fn only(value: &Value) -> Option<(&str, &Value)> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let (name, value) = members.iter().next()?;
    Some((name, value))
}

pub(super) fn text<'a>(body: &'a Value, member: &str) -> Result<&'a str, String> {
    let found = body.get(member).and_then(Value::as_str);
    found.ok_or_else(|| format!("no {member:?}, or no text in it"))
}

/// A member that is an array, or by itself if it is one alone.
pub(super) fn list<'a>(body: &'a Value, member: &str) -> &'a [Value] {
    match body.get(member) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(all)) => all,
        Some(one) => std::slice::from_ref(one),
    }
}

//! The OpenAPI files of `packaging/openapi` describe the paths and the answers that services have.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sys::require::{self, Class};

use crate::deployment::{ROOT, documents, files, has_yaml};
use crate::http;
use crate::relay_server::Relay;
use crate::router_topology::{answer, serve_between, topology};

const HTTP: &str = include_str!("../../../control/src/http.rs");
const ERROR: &str = include_str!("../../../control/src/error.rs");
/// A method's name follows, at the arm that carries it out.
const DISPATCH: &str = "match request.method.as_str() {";
const JOBS: [&str; 4] = ["relay", "router", "replicate", "features"];
/// The answers that [`HTTP`] refers to by name. `BAD_GATEWAY` is of clients: a service does not answer with it.
const STATUSES: [(&str, u16); 12] = [
    ("OK", 200),
    ("BAD_REQUEST", 400),
    ("UNAUTHORIZED", 401),
    ("NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("CONFLICT", 409),
    ("PAYLOAD_TOO_LARGE", 413),
    ("UNSUPPORTED_MEDIA_TYPE", 415),
    ("MISDIRECTED_REQUEST", 421),
    ("INTERNAL_SERVER_ERROR", 500),
    ("NOT_IMPLEMENTED", 501),
    ("BAD_GATEWAY", 502),
];

fn file(job: &str) -> PathBuf {
    Path::new(ROOT).join(format!("packaging/openapi/{job}.yaml"))
}

/// The lines of a file's section that are indented by two spaces: its paths, or the names of its components.
fn keys<'a>(text: &'a str, section: &str) -> BTreeSet<&'a str> {
    let (_, section) = text.split_once(&format!("\n{section}:\n")).unwrap();
    let lines = section.lines().take_while(|line| line.starts_with(' '));
    let keys = lines.filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
    keys.filter(|key| !key.starts_with(' ')).collect()
}

/// The methods that a crate's handler carries out.
fn methods(job: &str) -> BTreeSet<String> {
    let sources = files(&format!("crates/{job}/src"), &[".rs"]);
    let texts = sources.iter().map(|path| fs::read_to_string(path).unwrap());
    let handlers: Vec<String> = texts.filter(|text| text.contains(DISPATCH)).collect();
    let expected = usize::from(job != "features");
    assert_eq!(handlers.len(), expected, "handlers of {job}");
    let arms = handlers.iter().flat_map(|text| {
        let (_, arms) = text.split_once(DISPATCH).unwrap();
        let arms = arms.split("other =>").next().unwrap();
        arms.lines().filter_map(|line| {
            let (name, _) = line.trim().strip_prefix('"')?.split_once("\" =>")?;
            Some(name.to_owned())
        })
    });
    arms.collect()
}

#[test]
fn paths_are_those_that_are_served() {
    let version = format!("\n  version: {}\n", env!("CARGO_PKG_VERSION"));
    for job in JOBS {
        let text = fs::read_to_string(file(job)).unwrap();
        assert!(text.contains(&version), "{job}: not {version}");
        let mut served: BTreeSet<String> = methods(job)
            .iter()
            .map(|name| format!("/v1/{name}"))
            .collect();
        served.insert("/metrics".to_owned());
        let described: BTreeSet<String> =
            keys(&text, "paths").into_iter().map(Into::into).collect();
        assert_eq!(described, served, "{job}");
    }
    let present = files("packaging/openapi", &[".yaml"]);
    assert_eq!(present.len(), JOBS.len(), "{present:?}");
}

#[test]
fn errors_are_those_of_the_interface() {
    let (_, kinds) = ERROR.split_once("pub enum Kind {").unwrap();
    let kinds = kinds.split("\n}").next().unwrap().lines();
    let variants = kinds.filter_map(|line| line.trim().strip_suffix(','));
    let kinds: Vec<String> = variants.map(kebab_case).collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    let kinds = format!("enum: [{}]\n", kinds.join(", "));
    let named: BTreeSet<&str> = HTTP
        .split("StatusCode::")
        .skip(1)
        .map(|text| {
            text.split(|c: char| !c.is_ascii_uppercase() && c != '_')
                .next()
                .unwrap()
        })
        .collect();
    let known: BTreeSet<&str> = STATUSES.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, known);
    for job in JOBS {
        let text = fs::read_to_string(file(job)).unwrap();
        assert!(text.contains(&kinds), "{job}: {kinds}");
        // `/metrics` has no body and so no errors of one.
        for (name, code) in STATUSES {
            let described = text.contains(&format!("\n        \"{code}\": "))
                || text.contains(&format!("\n        \"{code}\":\n"));
            let expected = match name {
                "BAD_GATEWAY" => false,
                "OK"
                | "UNAUTHORIZED"
                | "METHOD_NOT_ALLOWED"
                | "MISDIRECTED_REQUEST"
                | "INTERNAL_SERVER_ERROR" => true,
                _ => job != "features",
            };
            assert_eq!(described, expected, "{job}: {code}");
        }
    }
}

#[test]
fn files_are_valid_openapi() {
    if !require::requested("validates the files with openapi-spec-validator") {
        return;
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let needs = ["openapi-spec-validator==0.9.0"];
    let Some(interpreter) = require::python(Class::OptIn, home, &needs) else {
        return;
    };
    for job in JOBS {
        let mut validator = Command::new(&interpreter);
        validator.args(["-m", "openapi_spec_validator"]);
        let output = validator.arg(file(job)).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{job}: {said}");
    }
}

fn kebab_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The description of one job's interface.
pub(crate) struct Description(Value);

impl Description {
    /// None, after a skip was reported, where YAML cannot be read.
    pub(crate) fn read(job: &str) -> Option<Self> {
        has_yaml().then(|| Self(documents(&file(job)).remove(0)))
    }

    fn paths(&self) -> impl Iterator<Item = &String> {
        self.0["paths"].as_object().unwrap().keys()
    }

    /// Panics unless the description has this result of a method.
    pub(crate) fn assert_result(&self, method: &str, result: &Value) {
        self.assert_answer(&format!("/v1/{method}"), 200, &json!({ "result": result }));
    }

    /// Panics unless the description has this answer of a path.
    fn assert_answer(&self, path: &str, status: u16, body: &Value) {
        let response = &self.0["paths"][path]["post"]["responses"][status.to_string()];
        let response = self.resolve(response);
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} does not answer with {status}");
        if let Err(why) = self.check(schema, body, "answer") {
            panic!("{path}: {why}\n{body:#}");
        }
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(to) => self.0.pointer(to.strip_prefix('#').unwrap()).unwrap(),
            None => schema,
        }
    }

    /// Why a value does not fit a schema. Knows the keywords that the files have.
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schema = self.resolve(schema);
        let fault = |what: String| Err(format!("{at}: {what}"));
        let has_type = |name: &Value| match name.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("{at}: type {other}"),
        };
        let fits = match &schema["type"] {
            Value::Null => true,
            Value::Array(names) => names.iter().any(has_type),
            name => has_type(name),
        };
        if !fits {
            return fault(format!("{value} is not of type {}", schema["type"]));
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            return fault(format!("{value} is not one of {allowed:?}"));
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let fitting = choices
                .iter()
                .filter(|choice| self.check(choice, value, at).is_ok());
            let count = fitting.count();
            if count != 1 {
                return fault(format!("{value} fits {count} choices"));
            }
        }
        match value {
            Value::Object(object) => {
                for name in schema["required"].as_array().into_iter().flatten() {
                    if !object.contains_key(name.as_str().unwrap()) {
                        return fault(format!("{name} is missing"));
                    }
                }
                for (name, inner) in object {
                    let at = format!("{at}.{name}");
                    match (&schema["properties"][name], &schema["additionalProperties"]) {
                        (Value::Null, Value::Bool(false)) => {
                            return Err(format!("{at}: not described"));
                        }
                        (Value::Null, Value::Null) => {}
                        (Value::Null, of_others) => self.check(of_others, inner, &at)?,
                        (of_name, _) => self.check(of_name, inner, &at)?,
                    }
                }
                Ok(())
            }
            Value::Array(list) => {
                let mut each = list.iter().enumerate();
                each.try_for_each(|(index, inner)| {
                    self.check(&schema["items"], inner, &format!("{at}[{index}]"))
                })
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn schemas_refuse_what_they_do_not_describe() {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": ["integer", "null"] }, "b": { "enum": ["x"] } },
    });
    let description = Description(Value::Null);
    let check = |value: Value| description.check(&schema, &value, "").is_ok();
    assert!(check(json!({ "a": 1 })) && check(json!({ "a": null, "b": "x" })));
    for wrong in [
        json!({}),
        json!({ "a": "1" }),
        json!({ "a": 1, "b": "y" }),
        json!({ "a": 1, "c": 1 }),
        json!([]),
    ] {
        assert!(!check(wrong.clone()), "{wrong}");
    }
}

#[test]
fn answers_of_a_relay_are_described() {
    let Some(description) = Description::read("relay") else {
        return;
    };
    if !require::root() {
        return;
    }
    let (folder, streams) = http::with_token(0o600);
    let relay = Relay::serve_in(folder, "openapi-relay", &streams);
    let stream = json!({
        "name": "more", "listen": "127.0.0.1:5006", "datapath": "recv", "source": ["10.0.0.0/8"],
        "rate": { "stream": "10kpps" }, "fec": { "group": 10 }, "work": "1us",
        "subscriber": [{ "name": "s", "to": "127.0.0.1:6006", "from": "127.0.0.1:5006", "expires": "60s" }],
    });
    let subscriber =
        json!({ "stream": "good", "subscriber": { "name": "b", "to": "127.0.0.1:6001" } });
    let mut described: BTreeSet<&String> = description.paths().collect();
    described.retain(|path| *path != "/metrics");
    for (method, body, status) in [
        ("stream.add", &stream, 200),
        ("stream.add", &stream, 400),
        ("subscriber.add", &subscriber, 200),
        ("subscriber.list", &json!({ "stream": "good" }), 200),
        ("stream.list", &json!({}), 200),
        ("counters", &json!({}), 200),
        ("explain", &json!({ "stream": "more" }), 200),
        ("explain", &json!({ "stream": "none" }), 404),
        ("metrics", &json!({}), 200),
        (
            "switch",
            &json!({ "stream": "good", "datapath": "mmsg" }),
            200,
        ),
        (
            "switch",
            &json!({ "stream": "good", "datapath": "fly" }),
            400,
        ),
        (
            "subscriber.remove",
            &json!({ "stream": "good", "subscriber": "b" }),
            200,
        ),
        ("stream.remove", &json!({ "stream": "more" }), 200),
        ("stream.remove", &json!({ "streams": "more" }), 400),
        ("reload", &json!({}), 200),
    ] {
        let path = format!("/v1/{method}");
        described.retain(|other| **other != path);
        let (answered, body) = http::ask(&relay, &format!("POST {path}"), &[], &body.to_string());
        assert_eq!(answered, status, "{path}: {body}");
        let body = serde_json::from_str(&body).unwrap();
        description.assert_answer(&path, status, &body);
    }
    assert!(described.is_empty(), "not called: {described:?}");
}

#[test]
fn answers_of_a_router_are_described() {
    let Some(description) = Description::read("router") else {
        return;
    };
    if !require::root() {
        return;
    }
    let peers = ["client", "server"];
    let bed = testbed::Bed::up(&topology(&peers), "openapi-router").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.csv");
    fs::write(
        &rules,
        "action,destination,protocol\ndrop,10.9.0.0/16,udp\n",
    )
    .unwrap();
    let section = format!("[rules]\nfile = {rules:?}\n");
    let router = bed.host("router").unwrap();
    let _served = serve_between(router, &peers, folder.path(), "xdp", &section);
    let control = folder.path().join("r.sock");
    for method in ["status", "routes", "next-hops", "rules", "reload"] {
        let result = answer(&control, &[method]);
        description.assert_result(method, &result);
    }
}

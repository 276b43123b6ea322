//! The HTTP interface with requests written by hand, good and bad.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::http::{Config, Server};
use control::metrics::MetricSet;
use control::{Error, Limits, Request, StartError};
use serde_json::{Value, json};
use test_support::exposition::Page;

/// An answer takes longer only when something is wrong.
const TIMEOUT: Duration = Duration::from_secs(30);
const TOKEN: &str = "correct-horse-battery-staple";

struct Site {
    server: Server,
    _folder: tempfile::TempDir,
}

fn token_file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

fn start(token: PathBuf, limits: Limits) -> Result<Server, StartError> {
    let config = Config {
        address: "127.0.0.1:0".parse().unwrap(),
        token,
        hosts: vec!["Relay.example".into()],
        limits,
    };
    let handler = |request: &Request| match request.method.as_str() {
        "echo" => Ok(request.params.clone()),
        other => Err(Error::unknown_method(other)),
    };
    let metrics = || {
        let mut metrics = MetricSet::new();
        metrics.gauge("up", "Whether it is up.").sample(&[], true);
        metrics
    };
    Server::start(config, handler, metrics)
}

impl Site {
    fn start() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let (folder, path) = token_file(&format!("{TOKEN}\n"), 0o600);
        Self {
            server: start(path, limits).unwrap(),
            _folder: folder,
        }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Sends bytes and reads until the server closes; the status and the whole answer.
    fn send(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // A server that has heard enough may close while we still send.
        let _ = stream.write_all(bytes);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), answer)
    }

    /// A request as a well-behaved client sends it, with headers added or replaced.
    fn request(&self, line: &str, changes: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut headers = vec![
            ("Host", self.address().to_string()),
            ("Authorization", format!("Bearer {TOKEN}")),
            ("Content-Type", "application/json".into()),
            ("Content-Length", body.len().to_string()),
            ("Connection", "close".into()),
        ];
        for (name, value) in changes {
            headers.retain(|(known, _)| known != name);
            headers.push((name, (*value).into()));
        }
        let mut text = format!("{line} HTTP/1.1\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{text}\r\n{body}").as_bytes())
    }
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_method_is_called() {
    let site = Site::start();
    let (status, answer) = site.request("POST /v1/echo", &[], "{\"stream\":\"cam1\"}");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(body(&answer), json!({ "result": { "stream": "cam1" } }));
    assert!(
        !answer.to_lowercase().contains("access-control"),
        "{answer}"
    );

    let (status, answer) = site.request("POST /v1/fly", &[], "");
    assert_eq!(status, 404);
    assert_eq!(body(&answer)["error"]["kind"], "unknown-method");
}

#[test]
fn metrics_are_open_metrics_for_a_client_that_accepts_them() {
    let site = Site::start();
    for (accept, content_type) in [
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let (status, answer) = site.request("GET /metrics", &[("Accept", accept)], "");
        assert_eq!(status, 200, "{answer}");
        let header = format!("content-type: {content_type}\r\n");
        assert!(answer.to_lowercase().contains(&header), "{answer}");
        let page = Page::of_answer(&answer);
        assert_eq!(page.families.len(), 2, "{answer}");
        assert!(page.value("up", &[]) > 0.0);
    }
}

#[test]
fn only_the_token_opens() {
    let site = Site::start();
    let longer = format!("Bearer {TOKEN}{TOKEN}");
    for given in [
        "",
        "Bearer ",
        "Bearer wrong-horse-battery-staple",
        "Bearer correct-horse-battery-stapl",
        &longer,
        TOKEN,
        "Basic Y29ycmVjdA==",
    ] {
        for line in ["POST /v1/echo", "GET /metrics"] {
            let (status, answer) = site.request(line, &[("Authorization", given)], "");
            assert_eq!(status, 401, "{given}: {answer}");
            assert!(!answer.contains(TOKEN));
        }
    }
}

#[test]
fn only_our_own_host_names_are_answered() {
    let site = Site::start();
    let port = site.address().port();
    for (host, expected) in [
        (format!("localhost:{port}"), 200),
        (format!("relay.EXAMPLE:{port}"), 200),
        ("localhost".into(), 421),
        (format!("attacker.example:{port}"), 421),
        ("127.0.0.1:1".into(), 421),
    ] {
        let (status, _) = site.request("POST /v1/echo", &[("Host", &host)], "{}");
        assert_eq!(status, expected, "{host}");
    }
}

#[test]
fn only_json_is_read_and_only_these_paths_exist() {
    let site = Site::start();
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    for (line, changes, text, expected) in [
        ("POST /v1/echo", &form[..], "{}", 415),
        (
            "POST /v1/echo",
            &[("Content-Type", "application/json; charset=utf-8")],
            "{}",
            200,
        ),
        ("POST /v1/echo", &[], "{", 400),
        ("GET /v1/echo", &[], "", 405),
        ("OPTIONS /v1/echo", &[], "", 405),
        ("POST /metrics", &[], "", 405),
        ("GET /", &[], "", 404),
    ] {
        let (status, answer) = site.request(line, changes, text);
        assert_eq!(status, expected, "{line}: {answer}");
    }
    let (status, _) = site.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n");
    assert_eq!(status, 400, "TLS on a plain port");
    assert_eq!(
        site.request("POST /v1/echo", &[], "{}").0,
        200,
        "and it goes on"
    );
}

#[test]
fn an_oversized_body_is_refused_and_the_server_goes_on() {
    let site = Site::start();
    let port = site.address().port();
    let head = format!(
        "POST /v1/echo HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 10000000\r\n\r\n"
    );
    // The first megabyte and a little: the server answers without wanting the rest.
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + 1_100_000, b' ');
    let mut stream = TcpStream::connect(site.address()).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    assert_eq!(site.request("POST /v1/echo", &[], "{}").0, 200);
}

#[test]
fn unfinished_request_times_out() {
    let site = Site::with_limits(Limits {
        arrival: Duration::from_millis(20),
        clients: 1,
        ..Limits::default()
    });
    site.send(b"POST /v1/echo HTTP/1.1\r\nHost: loc");
    // Whoever has no turn for that long is let go of as well, unanswered, and asks again.
    let asks = |changes: &[_], body| {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (status, answer) = site.request("POST /v1/echo", changes, body);
            if status != 0 || Instant::now() > deadline {
                return (status, answer);
            }
        }
    };
    let (status, answer) = asks(&[("Content-Length", "9")], "{");
    assert_eq!(status, 400, "{answer}");
    assert_eq!(asks(&[], "{}").0, 200);
}

#[test]
fn incomplete_requests_block_nobody() {
    let site = Site::with_limits(Limits {
        arrival: TIMEOUT * 20,
        ..Limits::default()
    });
    let half = |_| {
        let mut stream = TcpStream::connect(site.address()).unwrap();
        stream
            .write_all(b"POST /v1/echo HTTP/1.1\r\nHost: loc")
            .unwrap();
        stream
    };
    let _crowd: Vec<_> = (0..300).map(half).collect();
    assert_eq!(site.request("POST /v1/echo", &[], "{}").0, 200);
}

#[test]
fn without_a_private_token_file_it_does_not_start() {
    let refused = |path: PathBuf| start(path, Limits::default()).unwrap_err().to_string();
    let missing = refused("/nonexistent/token".into());
    assert!(
        missing.contains("HTTP is off until a token file exists"),
        "{missing}"
    );
    for (text, mode, reason) in [
        (TOKEN, 0o640, "others can open the file; chmod 600 it"),
        ("short", 0o600, "the token is shorter than 16 characters"),
        ("", 0o600, "the token is shorter than 16 characters"),
    ] {
        let (_folder, path) = token_file(text, mode);
        let message = refused(path.clone());
        assert_eq!(message, format!("{}: {reason}", path.display()));
    }
}

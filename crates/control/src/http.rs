//! The same methods over HTTP/1.1: `POST /v1/METHOD` with JSON, `GET /metrics` for Prometheus.
//!
//! Off until a token file exists. Every request shows the token and names a host that is ours, so
//! that a page in a user's browser can neither guess nor rebind its way in; there is no CORS.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::connection_limit::{ConnectionLimit, Permit};
use crate::metrics::{Format, MetricSet};
use crate::serve::{Handler, Limits, Reactor, Request, StartError, handle};
use crate::token::Token;
use crate::{Error, Kind};

/// The address, the token and the limits of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Port 0 lets the kernel choose: [`Server::address`] tells.
    pub address: SocketAddr,
    /// A file of mode 0600 whose first line is the bearer token.
    pub token: PathBuf,
    /// Names under which clients may ask besides the address itself and, on loopback,
    /// `localhost`; without a port, which is always the one served.
    pub hosts: Vec<String>,
    pub limits: Limits,
}

/// A served address. Dropping it ends all connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _reactor: Reactor,
}

struct Site {
    token: Token,
    hosts: Vec<String>,
    limits: Limits,
    handler: Arc<Handler>,
    metrics: Arc<dyn Fn() -> MetricSet + Send + Sync>,
}

type Answer = Response<Full<Bytes>>;

impl Server {
    /// Serves `handler`, and at `/metrics` what `metrics` returns; returns once clients can connect. Each call of either
    /// has a thread of its own, so it may block.
    pub fn start(
        config: Config,
        handler: impl Fn(&Request) -> Result<Value, Error> + Send + Sync + 'static,
        metrics: impl Fn() -> MetricSet + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let token = Token::read(&config.token)?;
        let refuse = |cause| StartError::Address {
            address: config.address.to_string(),
            cause,
        };
        let listener = BlockingListener::bind(config.address).map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        let site = Arc::new(Site {
            token,
            hosts: hosts(address, config.hosts),
            limits: config.limits,
            handler: Arc::new(handler),
            metrics: Arc::new(metrics),
        });
        let reactor = Reactor::start("control-http", move || async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, site).await,
                Err(error) => tracing::error!("control address: {error}"),
            }
        })?;
        Ok(Self {
            address,
            _reactor: reactor,
        })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The values of `Host` that are ours.
fn hosts(address: SocketAddr, named: Vec<String>) -> Vec<String> {
    let port = address.port();
    let local = address.ip().is_loopback().then(|| "localhost".to_owned());
    let mut hosts: Vec<_> = named
        .into_iter()
        .chain(local)
        .map(|name| format!("{}:{port}", name.to_ascii_lowercase()))
        .collect();
    hosts.push(address.to_string());
    hosts
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let connection_limit = ConnectionLimit::new(&site.limits);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let permit = connection_limit.acquire().await;
                tokio::spawn(converse(stream, permit.into(), site.clone()));
            }
            Err(error) => {
                tracing::warn!("control address: {error}");
                // Out of descriptors, most likely: accepting again at once would spin.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, permit: Arc<Permit>, site: Arc<Site>) {
    let arrival = site.limits.arrival;
    let serving = permit.clone();
    let service = service_fn(move |request| {
        let (site, permit) = (site.clone(), serving.clone());
        async move { Ok::<_, Infallible>(site.answer(request, &permit).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(arrival)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // An error here is the client's connection ending.
    if permit.unless_evicted(connection.as_mut()).await.is_none() && permit.is_busy() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

impl Site {
    async fn answer(&self, request: hyper::Request<Incoming>, permit: &Permit) -> Answer {
        if !self.is_ours(request.headers()) {
            let error = Error::bad_request("the Host header names another host");
            return refusal(StatusCode::MISDIRECTED_REQUEST, &error);
        }
        if !self.is_authorised(request.headers()) {
            let error = Error::new(Kind::Unauthorised, "needs the bearer token");
            let mut answer = refusal(StatusCode::UNAUTHORIZED, &error);
            let scheme = hyper::header::HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return answer;
        }
        let path = request.uri().path().to_owned();
        match (path.strip_prefix("/v1/"), request.method()) {
            (Some(method), &Method::POST) => self.call(method, request, permit).await,
            (None, &Method::GET) if path == "/metrics" => {
                let accept = request.headers().get_all(ACCEPT).iter();
                let format = Format::negotiate(accept.filter_map(|value| value.to_str().ok()));
                self.scrape(format, permit).await
            }
            (None, _) if path != "/metrics" => {
                refusal(StatusCode::NOT_FOUND, &Error::not_found("no such path"))
            }
            _ => {
                let error = Error::bad_request("POST /v1/METHOD or GET /metrics");
                refusal(StatusCode::METHOD_NOT_ALLOWED, &error)
            }
        }
    }

    fn is_ours(&self, headers: &HeaderMap) -> bool {
        headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .is_some_and(|host| self.hosts.contains(&host.to_ascii_lowercase()))
    }

    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        headers
            .get(AUTHORIZATION)
            .is_some_and(|value| self.token.matches(value.as_bytes()))
    }

    async fn scrape(&self, format: Format, permit: &Permit) -> Answer {
        let metrics = self.metrics.clone();
        let page = tokio::task::spawn_blocking(move || metrics().encode(format));
        match permit.work(page).await {
            Ok(page) => response(StatusCode::OK, format.content_type(), page),
            Err(_) => {
                let error = Error::new(Kind::Failed, "collecting the metrics panicked");
                refusal(status(error.kind), &error)
            }
        }
    }

    async fn call(
        &self,
        method: &str,
        request: hyper::Request<Incoming>,
        permit: &Permit,
    ) -> Answer {
        if !is_json(request.headers()) {
            let error = Error::bad_request("needs Content-Type: application/json");
            return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error);
        }
        let result = match self.read(request).await {
            Ok(params) => {
                let method = method.to_owned();
                let request = Request { method, params };
                permit.work(handle(self.handler.clone(), request)).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(result) => {
                let text = json!({ "result": result }).to_string();
                response(StatusCode::OK, "application/json", text)
            }
            Err(error) => refusal(status(error.kind), &error),
        }
    }

    /// The body as parameters; an empty one is none.
    async fn read(&self, request: hyper::Request<Incoming>) -> Result<Value, Error> {
        let limit = self.limits.request;
        let body = Limited::new(request.into_body(), limit).collect();
        let body = match timeout(self.limits.arrival, body).await {
            Err(_) => return Err(Error::bad_request("no whole request arrived in time")),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(Error::too_large(limit));
            }
            Ok(Err(error)) => return Err(Error::bad_request(error.to_string())),
            Ok(Ok(body)) => body.to_bytes(),
        };
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| Error::bad_request(format!("the body is not JSON: {error}")))
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the token.
        f.debug_struct("Site").field("hosts", &self.hosts).finish()
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::BadRequest => StatusCode::BAD_REQUEST,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Unauthorised => StatusCode::UNAUTHORIZED,
        Kind::UnknownMethod | Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Missing => StatusCode::NOT_IMPLEMENTED,
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Unreachable => StatusCode::BAD_GATEWAY,
    }
}

fn refusal(status: StatusCode, error: &Error) -> Answer {
    response(
        status,
        "application/json",
        json!({ "error": error }).to_string(),
    )
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

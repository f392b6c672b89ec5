//! The explorer over HTTP, for browsers on this machine alone.
//!
//! The server reads and writes no file. It answers requests whose `Host` is this machine and its port, so that a
//! foreign page cannot reach it under a name of its own, and takes questions from its own page alone.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use graph_diffuser::explain::ExplainError;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::printer::Misuse;

use super::{Question, page};

/// Tried first, so that an address stays the same.
const USUAL_PORT: u16 = 8617;
/// The longest question: some thousand recoloured cells, or a very long SMILES.
const BODY_LIMIT: usize = 64 << 10;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A question of the page, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Result<String, ExplainError>>,
}

/// Why a request gets no answer, as the page shows it.
#[derive(Debug, Serialize)]
struct Refusal {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = serde_json::to_string(&self).expect("plain data serialises");
        (self.status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
    }
}

impl From<ExplainError> for Refusal {
    fn from(error: ExplainError) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            hint: error.hint(),
            error: error.to_string(),
        }
    }
}

/// What every handler knows.
#[derive(Debug, Clone)]
struct Desk {
    /// `Host` of a request that is meant for this server.
    hosts: [String; 3],
    traced: mpsc::Sender<Asked>,
}

impl Desk {
    async fn ask(&self, question: Question) -> Result<Response, Refusal> {
        let gone = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the program is ending");
        let (answer, answered) = oneshot::channel();
        self.traced.send(Asked { question, answer }).map_err(|_| gone())?;
        let json = answered.await.map_err(|_| gone())??;
        Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
    }
}

/// Listens on this machine alone: on `port`, or on the usual one or any that is free.
pub(crate) fn listen(port: Option<u16>) -> anyhow::Result<TcpListener> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match port {
        Some(port) => bind(port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                let what = format!("port {port} is taken");
                anyhow::Error::new(Misuse {
                    what,
                    hint: "give another, or none: one that is free is found",
                })
            }
            _ => anyhow::Error::new(error).context(format!("cannot listen on port {port}")),
        })?,
        None => bind(USUAL_PORT).or_else(|_| bind(0)).context("cannot listen on any port")?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves in a thread of its own until the program ends; questions come out of the channel.
pub(crate) fn start(listener: TcpListener) -> anyhow::Result<mpsc::Receiver<Asked>> {
    let (traced, questions) = mpsc::channel();
    let router = router(listener.local_addr()?.port(), traced);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    std::thread::Builder::new().name("server".into()).spawn(move || {
        runtime.block_on(async {
            // Ends with the program, or where the listener breaks; the channel closes then.
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                let _ = axum::serve(listener, router).await;
            }
        });
    })?;
    Ok(questions)
}

fn router(port: u16, traced: mpsc::Sender<Asked>) -> Router {
    let hosts = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}"));
    let desk = Desk { hosts, traced };
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let mut router = Router::new()
        .route("/", text("text/html; charset=utf-8", page::HTML))
        .route("/style.css", text("text/css; charset=utf-8", page::STYLE))
        .route(
            "/api/run",
            get(|State(desk): State<Desk>| async move { desk.ask(Question::Introduction).await }),
        )
        .route("/api/scores/{from}", get(scores))
        .route("/api/trace", post(trace));
    for (path, script) in page::SCRIPTS {
        router = router.route(path, text("text/javascript; charset=utf-8", script));
    }
    router
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

async fn scores(State(desk): State<Desk>, Path(from): Path<String>) -> Result<Response, Refusal> {
    let from =
        from.parse().map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the place is a number"))?;
    desk.ask(Question::EvalMetrics(from)).await
}

async fn trace(
    State(desk): State<Desk>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    // A form of a foreign page cannot have this type.
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a question is `application/json`",
        ));
    }
    let body = body.map_err(|rejection| {
        Refusal::new(rejection.status(), format!("a question has {BODY_LIMIT} bytes at most"))
    })?;
    let question = serde_json::from_slice(&body).map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the question is not understood: {error}"))
    })?;
    desk.ask(Question::Trace(question)).await
}

/// Lets in what comes from this machine's own page, and tells browsers to load nothing else.
async fn guard(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let mut response = match refuse(&desk, request.headers(), request.method()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

fn refuse(desk: &Desk, headers: &HeaderMap, method: &Method) -> Option<Refusal> {
    let forbidden = |error: &str| Some(Refusal::new(StatusCode::FORBIDDEN, error));
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
    let Some(host) = host.filter(|host| desk.hosts.iter().any(|own| own == host)) else {
        return forbidden("this server is for its own machine; ask for `localhost` and its port");
    };
    let is_own = |origin: &HeaderValue| {
        origin.to_str().is_ok_and(|origin| origin.strip_prefix("http://") == Some(host))
    };
    if headers.get_all(header::ORIGIN).iter().any(|origin| !is_own(origin)) {
        return forbidden("another page may not ask");
    }
    if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
        return Some(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and POST are answered",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> Desk {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:80"));
        Desk { hosts, traced: mpsc::channel().0 }
    }

    fn status(headers: &[(HeaderName, &'static str)], method: &Method) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_static(value));
        }
        refuse(&desk(), &map, method).map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn only_this_machine_by_its_own_names_and_port_is_let_in() {
        for host in ["localhost:80", "127.0.0.1:80", "[::1]:80"] {
            assert_eq!(status(&[(header::HOST, host)], &Method::GET), None, "{host}");
        }
        for host in [
            "localhost",
            "localhost:81",
            "example.org:80",
            "localhost:80.example.org",
            "",
            "127.0.0.2:80",
        ] {
            assert_eq!(status(&[(header::HOST, host)], &Method::GET), Some(403), "{host}");
        }
        assert_eq!(status(&[], &Method::GET), Some(403));
        let twice = [(header::HOST, "localhost:80"), (header::HOST, "example.org")];
        assert_eq!(status(&twice, &Method::GET), Some(403));
    }

    #[test]
    fn another_origin_may_not_ask() {
        let from = |origin| {
            status(&[(header::HOST, "localhost:80"), (header::ORIGIN, origin)], &Method::POST)
        };
        assert_eq!(from("http://localhost:80"), None);
        for origin in
            ["http://localhost:3000", "https://localhost:80", "null", "http://example.org"]
        {
            assert_eq!(from(origin), Some(403), "{origin}");
        }
        assert_eq!(status(&[(header::HOST, "localhost:80")], &Method::DELETE), Some(405));
    }
}

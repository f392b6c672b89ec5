//! HTTP server of the explorer, bound to localhost.
//!
//! Besides the metrics of the run, the server accesses no files. It requires a `Host` header of
//! this machine and port, which prevents DNS rebinding, and rejects requests from other origins.
//!
//! Requests wait in queues of limited length. Traces of long SMILES have a queue of their own, so
//! that they delay no others. A request whose client has closed the connection, or that has waited
//! for too long, is dropped before it is computed, or canceled between two layers of the model.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use graph_diffuser::explain::ExplainError;
use graph_diffuser::nn::CancelFlag;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, oneshot};

use crate::error::{CommandError, Failure, UsageError};

use super::api_error::ApiError;
use super::live::with_live_view;
use super::{ApiRequest, page};

/// Tried first, so that the address stays the same between sessions.
const DEFAULT_PORT: u16 = 8617;
/// Maximum size of a request: several thousand recolored cells, or a very long SMILES.
const BODY_LIMIT: usize = 64 << 10;

/// Time limit for the header of a request, which also closes idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the response to a request, including the time in its queue.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of open connections; further clients wait.
const MAX_CONNECTIONS: usize = 128;
/// Maximum number of waiting requests in each queue.
const QUEUE_LENGTH: usize = 64;
/// SMILES with more characters are computed one at a time.
const LONG_SMILES: usize = 400;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A request waiting for its response.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    request: ApiRequest,
    /// Set when nobody waits for the response anymore.
    abandoned: CancelFlag,
    response: oneshot::Sender<Result<String, ExplainError>>,
}

impl PendingRequest {
    /// Sends the response of `respond`, unless the client has gone.
    pub(crate) fn answer(
        self,
        respond: impl FnOnce(&ApiRequest, &CancelFlag) -> Result<String, ExplainError>,
    ) {
        if !self.response.is_closed() {
            // Sending fails only if the client has gone in the meantime.
            let _ = self.response.send(respond(&self.request, &self.abandoned));
        }
    }
}

/// Sets a flag when it is dropped, which a handler is when its client closes the connection.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Queues of requests, by the time that they take.
#[derive(Debug)]
pub(crate) struct RequestQueues {
    /// Lists, which take no time.
    pub(crate) lists: mpsc::Receiver<PendingRequest>,
    /// Traces of graphs and molecules.
    pub(crate) traces: mpsc::Receiver<PendingRequest>,
    /// Traces of long SMILES.
    pub(crate) long_traces: mpsc::Receiver<PendingRequest>,
}

/// Sending ends of [`RequestQueues`].
#[derive(Debug, Clone)]
struct QueueSenders {
    lists: mpsc::SyncSender<PendingRequest>,
    traces: mpsc::SyncSender<PendingRequest>,
    long_traces: mpsc::SyncSender<PendingRequest>,
}

fn queues() -> (QueueSenders, RequestQueues) {
    let [lists, traces, long_traces] = [(); 3].map(|()| mpsc::sync_channel(QUEUE_LENGTH));
    (
        QueueSenders { lists: lists.0, traces: traces.0, long_traces: long_traces.0 },
        RequestQueues { lists: lists.1, traces: traces.1, long_traces: long_traces.1 },
    )
}

/// State shared by the handlers.
#[derive(Debug, Clone)]
pub(super) struct AppState {
    /// Accepted values of the `Host` header.
    hosts: [String; 3],
    queues: QueueSenders,
    /// Time limit for a response.
    timeout: Duration,
}

impl AppState {
    /// Passes a request to the explorer and waits for its response.
    async fn request(&self, request: ApiRequest) -> Result<Response, ApiError> {
        let closed = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
        let queue = match &request {
            ApiRequest::Info | ApiRequest::Scores { .. } => &self.queues.lists,
            ApiRequest::Trace(trace)
                if trace.smiles.as_ref().is_some_and(|smiles| smiles.len() > LONG_SMILES) =>
            {
                &self.queues.long_traces
            }
            ApiRequest::Trace(_) => &self.queues.traces,
        };
        let (response, receiver) = oneshot::channel();
        let abandoned = CancelFlag::default();
        let _guard = CancelOnDrop(abandoned.clone());
        queue.try_send(PendingRequest { request, abandoned, response }).map_err(
            |error| match error {
                mpsc::TrySendError::Full(_) => {
                    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting")
                }
                mpsc::TrySendError::Disconnected(_) => closed(),
            },
        )?;
        // A request that waits in its queue is dropped with the receiver, and one that is being
        // computed is canceled by the guard.
        let Ok(response) = tokio::time::timeout(self.timeout, receiver).await else {
            return Err(ApiError {
                status: StatusCode::SERVICE_UNAVAILABLE,
                error: format!("no response within {} seconds", self.timeout.as_secs()),
                hint: Some("use `predict` or `explain` for large graphs".into()),
            });
        };
        let json = response.map_err(|_| closed())??;
        Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
    }
}

/// Binds to localhost: to `port`, or else to `DEFAULT_PORT` or any free port.
pub(crate) fn listen(port: Option<u16>) -> Result<TcpListener, CommandError> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match port {
        Some(port) => bind(port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                let message = format!("port {port} is already in use");
                let hint = "choose another port, or omit `--port` to use any free port".to_owned();
                UsageError { message, hint }.into()
            }
            _ => {
                CommandError::from(Failure::caused(format!("cannot listen on port {port}"))(error))
            }
        })?,
        None => bind(DEFAULT_PORT)
            .or_else(|_| bind(0))
            .map_err(Failure::caused("cannot listen on any port"))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Starts the server of a run directory in a background thread; returns the queues of its requests.
pub(crate) fn start(listener: TcpListener, directory: PathBuf) -> std::io::Result<RequestQueues> {
    let (senders, requests) = queues();
    spawn(listener, with_live_view(explorer_routes(), directory), senders)?;
    Ok(requests)
}

/// Starts a server of the live view of a run directory in a background thread.
pub(crate) fn start_live(listener: TcpListener, directory: PathBuf) -> std::io::Result<()> {
    let router = Router::new().route("/", get(|| async { Redirect::temporary("/live") }));
    spawn(listener, with_live_view(router, directory), queues().0)
}

fn spawn(
    listener: TcpListener,
    router: Router<AppState>,
    queues: QueueSenders,
) -> std::io::Result<()> {
    let router = guarded(router, listener.local_addr()?.port(), queues);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    std::thread::Builder::new().name("server".into()).spawn(move || {
        runtime.block_on(async {
            // Runs until the process exits or the listener fails, which closes the channel.
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                accept(listener, router).await;
            }
        });
    })?;
    Ok(())
}

/// Serves connections with a time limit for the header of each request.
async fn accept(listener: tokio::net::TcpListener, router: Router) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // For example too many open files; a connection may be closed soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // Errors, such as a closed connection, concern this client alone.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

fn explorer_routes() -> Router<AppState> {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let mut router =
        Router::new()
            .route("/", text("text/html; charset=utf-8", page::HTML))
            .route("/style.css", text("text/css; charset=utf-8", page::STYLE))
            .route(
                "/api/run",
                get(|State(state): State<AppState>| async move {
                    state.request(ApiRequest::Info).await
                }),
            )
            .route("/api/scores/{from}", get(scores))
            .route("/api/scores/{from}/{target}", get(target_scores))
            .route("/api/trace", post(trace));
    for (path, script) in page::SCRIPTS {
        router = router.route(path, text("text/javascript; charset=utf-8", script));
    }
    router
}

/// Adds the checks and limits that apply to all requests.
fn guarded(router: Router<AppState>, port: u16, queues: QueueSenders) -> Router {
    let hosts = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}"));
    let state = AppState { hosts, queues, timeout: RESPONSE_TIMEOUT };
    router
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not found") })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

async fn scores(
    State(state): State<AppState>,
    Path(from): Path<String>,
) -> Result<Response, ApiError> {
    let from = parse_index(&from, "expected a position")?;
    state.request(ApiRequest::Scores { from, target: None }).await
}

async fn target_scores(
    State(state): State<AppState>,
    Path([from, target]): Path<[String; 2]>,
) -> Result<Response, ApiError> {
    let from = parse_index(&from, "expected a position")?;
    let target = Some(parse_index(&target, "expected the index of a target")?);
    state.request(ApiRequest::Scores { from, target }).await
}

fn parse_index(text: &str, error: &str) -> Result<usize, ApiError> {
    text.parse().map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, error))
}

async fn trace(State(state): State<AppState>, request: Request) -> Result<Response, ApiError> {
    // An HTML form of another site cannot send this content type.
    if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "expected content type `application/json`",
        ));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &state));
    let Ok(body) = body.await else {
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request takes too long"));
    };
    let body = body.map_err(|rejection| {
        ApiError::new(rejection.status(), format!("the request exceeds {BODY_LIMIT} bytes"))
    })?;
    // A list is not a request, although the fields of a struct can be read from one.
    let request = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&body)
        .and_then(|object| serde_json::from_value(object.into()))
        .map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, format!("invalid request: {error}"))
        })?;
    state.request(ApiRequest::Trace(request)).await
}

/// Rejects foreign requests and adds the security headers to every response.
async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let mut response = match reject(&state, request.headers(), request.method()) {
        Some(error) => error.into_response(),
        None => next.run(request).await,
    };
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// Returns the error of a request with a foreign host, a foreign origin or an unsupported method.
fn reject(state: &AppState, headers: &HeaderMap, method: &Method) -> Option<ApiError> {
    let forbidden = |error: &str| Some(ApiError::new(StatusCode::FORBIDDEN, error));
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
    let Some(host) = host.filter(|host| state.hosts.iter().any(|own| own == host)) else {
        return forbidden("this server accepts requests for `localhost` and its port only");
    };
    let is_own = |origin: &HeaderValue| {
        origin.to_str().is_ok_and(|origin| origin.strip_prefix("http://") == Some(host))
    };
    if headers.get_all(header::ORIGIN).iter().any(|origin| !is_own(origin)) {
        return forbidden("cross-origin requests are not allowed");
    }
    if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
        return Some(ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and POST are supported",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> AppState {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:80"));
        AppState { hosts, queues: queues().0, timeout: RESPONSE_TIMEOUT }
    }

    #[test]
    fn request_that_takes_too_long_is_answered_and_dropped() {
        let (senders, receivers) = queues();
        let state = AppState { queues: senders, timeout: Duration::from_millis(20), ..state() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let error = runtime.block_on(state.request(ApiRequest::Info)).unwrap_err();
        assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(error.error.starts_with("no response within"), "{}", error.error);
        let pending = receivers.lists.try_recv().expect("the request is in the queue");
        assert!(pending.abandoned.is_canceled());
        pending.answer(|_, _| panic!("nobody waits for the response"));
    }

    fn status(headers: &[(HeaderName, &'static str)], method: &Method) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_static(value));
        }
        reject(&state(), &map, method).map(|error| error.status.as_u16())
    }

    #[test]
    fn requests_for_other_hosts_are_rejected() {
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
    fn cross_origin_requests_are_rejected() {
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

//! Live view of a run: learning curves that grow while it trains.
//!
//! The page polls [`RunProgress`], which is read from the metrics of the run directory, so that any
//! process can show a run that another one trains.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use graph_diffuser::run::{Run, RunError};
use graph_diffuser::train::EpochRecord;
use serde::Serialize;

use super::api_error::ApiError;

const HTML: &str = include_str!("live/index.html");
const STYLE: &str = include_str!("live/live.css");
const SCRIPT: &str = include_str!("live/live.js");

/// Maximum number of epochs in one response; the page requests the next ones at once.
const MAX_RECORDS: usize = 5_000;

/// Epochs of a run, from a given position on.
#[derive(Debug, Serialize)]
struct RunProgress {
    run: String,
    /// Hash of the path of the run directory: after a program has ended, another one may serve
    /// another run at the same address.
    id: String,
    recipe: String,
    /// Number of epochs of each member.
    epochs: usize,
    /// Number of members of an ensemble, or 1.
    members: usize,
    /// Number of completed epochs of all members.
    total: usize,
    is_finished: bool,
    /// Completed epochs after the requested position, in the order of members.
    records: Vec<MemberRecord>,
}

/// Epoch of one member.
#[derive(Debug, Serialize)]
struct MemberRecord {
    member: usize,
    #[serde(flatten)]
    record: EpochRecord,
}

impl RunProgress {
    /// Reads the epochs of a run from position `from` on; all of them if there are fewer, as after
    /// a resume.
    fn read(run: &Run, from: usize) -> Result<Self, RunError> {
        let histories: Vec<Vec<EpochRecord>> = if run.is_ensemble() {
            run.members()?.iter().map(Run::history).collect()
        } else {
            vec![run.history()]
        };
        let records: Vec<MemberRecord> = histories
            .into_iter()
            .enumerate()
            .flat_map(|(member, history)| {
                history.into_iter().map(move |record| MemberRecord { member, record })
            })
            .collect();
        let total = records.len();
        let from = if from <= total { from } else { 0 };
        let path = run.directory();
        let mut id = DefaultHasher::new();
        path.canonicalize().unwrap_or_else(|_| path.to_owned()).hash(&mut id);
        Ok(Self {
            run: run.name(),
            id: format!("{:016x}", id.finish()),
            recipe: run.recipe().name.clone(),
            epochs: run.recipe().train.epochs,
            members: run.num_members(),
            total,
            is_finished: run.result()?.is_some(),
            records: records.into_iter().skip(from).take(MAX_RECORDS).collect(),
        })
    }
}

/// Adds the page `/live` of a run, which is read again for every request.
pub(super) fn with_live_view<State: Clone + Send + Sync + 'static>(
    router: Router<State>,
    directory: std::path::PathBuf,
) -> Router<State> {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    let progress = move |Path(from): Path<String>| {
        let directory = directory.clone();
        async move {
            let from = from
                .parse()
                .map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "expected a position"))?;
            let read = Run::open(&directory).and_then(|run| RunProgress::read(&run, from));
            let progress = read.map_err(|error| {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            })?;
            let json = serde_json::to_string(&progress).expect("progress is plain data");
            Ok::<_, ApiError>(([(header::CONTENT_TYPE, "application/json")], json).into_response())
        }
    };
    router
        .route("/live", text("text/html; charset=utf-8", HTML))
        .route("/live.css", text("text/css; charset=utf-8", STYLE))
        .route("/live.js", text("text/javascript; charset=utf-8", SCRIPT))
        .route("/api/progress/{from}", get(progress))
}

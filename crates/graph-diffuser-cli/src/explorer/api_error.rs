//! Error responses of the API.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use graph_diffuser::explain::ExplainError;
use graph_diffuser_data::Diagnostic as _;
use serde::Serialize;

/// Error response, shown by the page.
#[derive(Debug, Serialize)]
pub(super) struct ApiError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    pub(super) error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = serde_json::to_string(&self).expect("the error is plain data");
        (self.status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
    }
}

impl From<ExplainError> for ApiError {
    fn from(error: ExplainError) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            hint: error.hint(),
            error: error.to_string(),
        }
    }
}

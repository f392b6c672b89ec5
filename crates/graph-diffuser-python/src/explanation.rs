//! Attention of one graph.

use graph_diffuser::explain::AttentionTrace;
use graph_diffuser::explain::summary::headline;
use graph_diffuser_viz::Canvas;
use graph_diffuser_viz::figure::{FigureView, draw_attention};
use graph_diffuser_viz::npz::to_npz;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::invalid_input;

/// Attention of one graph and the query node shown in figures.
#[pyclass(frozen, module = "graph_diffuser._native")]
#[derive(Debug)]
pub(crate) struct Explanation {
    pub(crate) trace: AttentionTrace,
    /// Query node.
    #[pyo3(get)]
    pub(crate) node: usize,
}

impl Explanation {
    fn draw(
        &self,
        py: Python<'_>,
        node: Option<usize>,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> PyResult<Canvas> {
        let trace = &self.trace;
        let node = node.unwrap_or(self.node);
        let layer = layer.unwrap_or(trace.layers.len() - 1);
        let heads = trace.layers.first().map_or(0, |layer| layer.heads.len());
        if trace.row_of(node).is_none() {
            let message = format!("the attention of node {node} was not recorded");
            let hint = "pass the node to `explain`; nodes are numbered from 0";
            return Err(invalid_input(py, &message, Some(hint)));
        }
        if layer >= trace.layers.len() || head.is_some_and(|head| head >= heads) {
            let message = format!(
                "no layer {layer} or head {}: the model has {} layers of {heads} heads",
                head.unwrap_or(0),
                trace.layers.len()
            );
            return Err(invalid_input(py, &message, Some("layers and heads are numbered from 0")));
        }
        Ok(py.detach(|| draw_attention(trace, FigureView { node, layer, head })))
    }
}

#[pymethods]
impl Explanation {
    /// Draws the attention of a node as SVG.
    #[pyo3(signature = (node=None, layer=None, head=None))]
    fn svg(
        &self,
        py: Python<'_>,
        node: Option<usize>,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> PyResult<String> {
        Ok(self.draw(py, node, layer, head)?.to_svg())
    }

    /// Draws the attention of a node as PNG.
    #[pyo3(signature = (node=None, layer=None, head=None))]
    fn png<'py>(
        &self,
        py: Python<'py>,
        node: Option<usize>,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.draw(py, node, layer, head)?.to_png()))
    }

    /// Returns the trace as JSON.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.trace.to_json())
    }

    /// Returns the arrays of the trace as an npz archive.
    fn npz<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| to_npz(&self.trace)))
    }

    /// Returns prediction and target in one line.
    fn headline(&self) -> String {
        headline(&self.trace, self.node)
    }

    /// Returns the label of each node in figures.
    fn labels(&self) -> Vec<String> {
        self.trace.graph.labels.clone()
    }
}

//! Traces for tests.

use graph_diffuser::explain::{
    AttentionTrace, HeadAttention, LayerAttention, NestedMatrix, PredictionAndTarget, TracedGraph,
};

/// Returns the trace of a colored 2 x 3 grid with synthetic weights, one layer and two heads.
pub(crate) fn small_grid() -> AttentionTrace {
    let json = include_str!("../../../graph-diffuser/tests/fixtures/small_grid_trace.json");
    serde_json::from_str(json).unwrap()
}

/// Returns a trace of content-only attention on an arbitrary graph.
pub(crate) fn content_only_trace(
    graph: TracedGraph,
    outcome: PredictionAndTarget,
    cls: bool,
) -> AttentionTrace {
    let columns = graph.nodes + usize::from(cls);
    let rows: Vec<usize> = (0..columns).collect();
    let weights = |row: usize| (0..columns).map(move |other| 1.0 + ((row + 2 * other) % 5) as f32);
    let row = |row: usize| weights(row).map(|weight| weight / weights(row).sum::<f32>()).collect();
    let attention: NestedMatrix = rows.iter().map(|&node| row(node)).collect();
    let head = HeadAttention { position: None, content: Some(attention.clone()), attention };
    AttentionTrace {
        format: AttentionTrace::FORMAT.to_owned(),
        recipe: "any <&>".into(),
        rows,
        cls,
        combine: None,
        layers: vec![LayerAttention::new(vec![head])],
        edge_weights: None,
        walks: None,
        graph,
        outcome,
    }
}

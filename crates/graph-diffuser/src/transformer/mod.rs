//! Transformer layers with attention gated by virtual edges (Eq. 6–9).

mod attention;
mod cls;
mod layer;
mod mpnn;
mod self_edge_encoding;

pub use attention::{AttentionConfig, AttentionScores, DiffuserAttention, TracedRows};
pub use cls::ClsToken;
pub use layer::{Layer, LayerConfig, LayerState};
pub use mpnn::{LocalMpnn, MpnnConfig, MpnnKind};
pub use self_edge_encoding::SelfEdgeEncoding;

//! Transformer layers with attention gated by virtual edges (Eq. 7–8).

mod attention;
mod cls;
mod mpnn;
mod layer;

pub use attention::{AttentionConfig, AttentionScores, DiffuserAttention};
pub use cls::ClsToken;
pub use layer::{Layer, LayerConfig};
pub use mpnn::{LocalMpnn, MpnnConfig, MpnnKind};

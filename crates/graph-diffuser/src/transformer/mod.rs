//! The Transformer: nodes attend to each other, directed by virtual edges (Eq. 6–9).

mod attention;
mod cls;
mod layer;
mod mpnn;
mod self_edge_encoding;

pub use attention::{AskedRows, AttentionConfig, DiffuserAttention, Scores};
pub use cls::ClsToken;
pub use layer::{Layer, LayerConfig, Stream};
pub use mpnn::{LocalBranch, MpnnConfig, MpnnKind};
pub use self_edge_encoding::SelfEdgeEncoding;

//! Positional encodings computed from the graph structure, before any learned layer.

mod cache;
mod random_walks;
mod eigenvectors;

use graph_diffuser_data::Graph;

use eigenvectors::laplacian_eigenvectors;
use random_walks::return_probabilities;

pub use cache::PositionalEncodingCache;

/// Positional encoding computed from the graph structure, before any learned layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEncoding {
    /// Return probabilities of random walks.
    ReturnProbabilities {
        /// Maximum number of steps.
        num_steps: usize,
    },
    /// Laplacian eigenvectors of the smallest eigenvalues.
    Eigenvectors {
        /// Number of eigenvectors.
        count: usize,
    },
}

impl RawEncoding {
    /// Returns the number of values per node.
    pub fn columns(self) -> usize {
        match self {
            Self::ReturnProbabilities { num_steps } => num_steps,
            Self::Eigenvectors { count } => 3 * count,
        }
    }

    fn compute(self, graph: &Graph) -> Vec<f64> {
        match self {
            Self::ReturnProbabilities { num_steps } => return_probabilities(graph, num_steps),
            Self::Eigenvectors { count } => laplacian_eigenvectors(graph, count),
        }
    }

    /// Returns the name of the cache file, whose version number is raised whenever the values
    /// change.
    fn file_name(self) -> String {
        match self {
            Self::ReturnProbabilities { num_steps } => {
                format!("return-probabilities-1-{num_steps}.tables")
            }
            Self::Eigenvectors { count } => format!("eigenvectors-1-{count}.tables"),
        }
    }
}

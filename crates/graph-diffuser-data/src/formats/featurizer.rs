//! Conversion of molecules to graphs, the same for training and inference.

use serde::{Deserialize, Serialize};

use crate::chem::{Molecule, MoleculeError, ogb_schema, zinc_schema};
use crate::graph::Graph;
use crate::schema::{Schema, TargetSchema};

/// Conversion of an input row to a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Featurizer {
    /// SMILES with the atom and bond features of OGB.
    Ogb,
    /// SMILES with the atom and bond types of ZINC.
    Zinc,
    /// Graphs in any format; OGB CSV files list both directions of undirected edges.
    Graphs,
    /// Graphs in any format; OGB CSV files list each undirected edge once.
    UndirectedGraphs,
}

impl Featurizer {
    /// Returns `true` if inputs are molecules, `false` if they are graphs.
    pub fn accepts_smiles(self) -> bool {
        match self {
            Self::Ogb | Self::Zinc => true,
            Self::Graphs | Self::UndirectedGraphs => false,
        }
    }

    /// Returns the graph of a SMILES string with placeholder targets.
    ///
    /// # Errors
    /// Returns an error if the SMILES is invalid or has atoms or bonds that the features do not
    /// cover.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "chem")] {
    /// use graph_diffuser_data::TargetSchema;
    /// use graph_diffuser_data::formats::Featurizer;
    ///
    /// let ethanol = Featurizer::Ogb.featurize_smiles("CCO", &TargetSchema::regression(1))?;
    /// assert_eq!(ethanol.num_nodes, 3);
    /// # }
    /// # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
    /// ```
    pub fn featurize_smiles(
        self,
        smiles: &str,
        targets: &TargetSchema,
    ) -> Result<Graph, MoleculeError> {
        self.featurize_molecule(&Molecule::from_smiles(smiles.trim())?, targets)
    }

    /// Returns the graph of a molecule with placeholder targets.
    ///
    /// # Errors
    /// Returns an error if the molecule has atoms or bonds that the features do not cover.
    pub fn featurize_molecule(
        self,
        molecule: &Molecule,
        targets: &TargetSchema,
    ) -> Result<Graph, MoleculeError> {
        let graph = self.featurize(molecule)?;
        Ok(Graph { targets: targets.placeholder(graph.num_nodes), ..graph })
    }

    /// Returns the schema of the graphs of molecules.
    pub(crate) fn schema(self, targets: TargetSchema) -> Schema {
        match self {
            Self::Zinc => zinc_schema(targets),
            Self::Ogb | Self::Graphs | Self::UndirectedGraphs => ogb_schema(targets),
        }
    }

    /// Returns the graph of a molecule, with empty targets.
    pub(crate) fn featurize(self, molecule: &Molecule) -> Result<Graph, MoleculeError> {
        match self {
            Self::Zinc => molecule.zinc_graph(),
            Self::Ogb | Self::Graphs | Self::UndirectedGraphs => Ok(molecule.ogb_graph()),
        }
    }
}

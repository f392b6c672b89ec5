//! SMILES and identifiers of the rows of a file.

/// SMILES and identifier of each graph of a file, as written in the file.
///
/// They are for display and search only; all cells of a column are stored in one string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowLabels {
    smiles: TextColumn,
    ids: TextColumn,
}

impl RowLabels {
    /// Appends the labels of a graph; an empty text is a missing label.
    pub fn push(&mut self, id: &str, smiles: &str) {
        self.ids.push(id);
        self.smiles.push(smiles);
    }

    /// Returns the SMILES of a graph, if the file has one.
    pub fn smiles(&self, graph: usize) -> Option<&str> {
        self.smiles.get(graph)
    }

    /// Returns the identifier or name of a graph, if the file has one.
    pub fn id(&self, graph: usize) -> Option<&str> {
        self.ids.get(graph)
    }
}

/// Cells of a column in one string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TextColumn {
    text: String,
    /// End of each cell in the string.
    ends: Vec<usize>,
}

impl TextColumn {
    fn push(&mut self, cell: &str) {
        self.text.push_str(cell);
        self.ends.push(self.text.len());
    }

    fn get(&self, row: usize) -> Option<&str> {
        let end = *self.ends.get(row)?;
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end]).filter(|cell| !cell.is_empty())
    }
}

/// Returns whether a column with this name identifies a molecule, such as `compound_id` or `Name`.
pub(crate) fn is_label_column(name: &str) -> bool {
    const WORDS: [&str; 14] = [
        "id",
        "name",
        "title",
        "cid",
        "sid",
        "identifier",
        "compound",
        "molecule",
        "cas",
        "casrn",
        "chemblid",
        "zincid",
        "molid",
        "chembl",
    ];
    let lower = name.to_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_alphanumeric());
    words.any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kept_by_graph_and_empty_ones_are_missing() {
        let mut rows = RowLabels::default();
        rows.push("CID 7", "CCO");
        rows.push("", "C");
        rows.push("x", "");
        assert_eq!((rows.id(0), rows.smiles(0)), (Some("CID 7"), Some("CCO")));
        assert_eq!((rows.id(1), rows.smiles(1)), (None, Some("C")));
        assert_eq!((rows.id(2), rows.smiles(2), rows.id(3)), (Some("x"), None, None));
    }

    #[test]
    fn identifier_columns_are_found_by_their_words() {
        assert!(
            ["Compound ID", "mol_id", "Name", "CID", "chembl-id"].into_iter().all(is_label_column)
        );
        assert!(!["logS", "acid", "activity", "nameless"].into_iter().any(is_label_column));
    }
}

//! Quoting of CSV cells.

/// Joins cells to a line of CSV, delimited by commas, without a line terminator.
pub fn csv_line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| csv_quote(cell, b',')).collect();
    cells.join(",")
}

/// Quotes a CSV cell if necessary.
pub fn csv_quote(cell: &str, delimiter: u8) -> String {
    let is_special = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    if cell.bytes().any(is_special) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_is_quoted_only_if_necessary() {
        assert_eq!(csv_quote("a;b", b','), "a;b");
        assert_eq!(csv_quote("a,\"b\"", b','), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_line(&["a;b".into(), "a,b".into()]), "a;b,\"a,b\"");
    }
}

//! Quoting of command-line arguments that messages print.

use std::path::Path;

/// Quotes an argument for a POSIX shell if necessary.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use graph_diffuser::run::shell_quote;
///
/// assert_eq!(shell_quote(Path::new("runs/zinc-s0")), "runs/zinc-s0");
/// assert_eq!(shell_quote(Path::new("my runs")), "'my runs'");
/// ```
pub fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+=:@,".contains(char);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

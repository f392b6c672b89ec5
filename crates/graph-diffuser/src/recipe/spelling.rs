//! Suggestions for misspelled names.

/// Returns the candidate that is most similar to `name`, if one is similar.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.75)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, near)| near)
}

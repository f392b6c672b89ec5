//! Snapshots of figures and reports.

/// Compares a text with the snapshot `name`.
#[track_caller]
pub(crate) fn assert_text_snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

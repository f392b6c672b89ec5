//! Tests of the HTML report in a browser; skipped with a message if none is installed.

use serde_json::json;

use crate::TestDir;
use crate::browser::Browser;

/// Expression for the texts of one column of the table of targets.
fn column(index: usize) -> String {
    format!(
        "[...document.querySelectorAll('table.sortable tbody tr')]\
         .map((row) => row.cells[{index}].textContent)"
    )
}

/// True when the page does not scroll horizontally.
const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

/// True if every box that scrolls horizontally can be reached with the keyboard.
const REACHABLE: &str = "[...document.querySelectorAll('*')].filter((element) => \
    getComputedStyle(element).overflowX === 'auto' && element.scrollWidth > element.clientWidth)\
    .every((element) => element.tabIndex === 0)";

#[test]
fn report_of_several_rows_fits_every_screen_and_paper() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_targets();
    // Two configurations of the same data, and an ensemble.
    for (output, setting) in [("wide", "model.hidden_dim=16"), ("three", "train.ensemble=3")] {
        let command = ["train", "run/recipe.toml", "--output", output, "--set", setting];
        let trained = dir.run(&command);
        assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    }
    let output = dir.run(&["report", "run", "wide", "three", "--output", "report"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    browser.resize(1440, 900);
    browser.open(&format!("file://{}", dir.path("report/report.html").display()));
    let rows = "document.querySelector('table').tBodies[0].rows.length";
    assert_eq!(browser.evaluate(rows), 3);
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.resize(width, height);
        browser.wait_for(FITS);
        assert_eq!(browser.evaluate(REACHABLE), true, "{width}");
        assert_eq!(browser.violations(), Vec::<String>::new());
        browser.screenshot(&format!("report-rows-{width}"));
    }
    browser.resize(1440, 900);
    browser.use_dark_theme();
    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.screenshot("report-rows-dark");
    browser.use_print_media();
    browser.wait_for(FITS);
    let collapsed = "[...document.querySelectorAll('details:not([open]) > :not(summary)')]\
        .filter((element) => element.getBoundingClientRect().height === 0).length";
    assert_eq!(browser.evaluate(collapsed), 0);
    // Worst predictions are named by identifier and SMILES.
    let worst = browser.text("ol.worst li");
    assert!(worst.contains("CID10") && worst.contains('('), "{worst}");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn report_is_sorted_printed_and_fits_every_screen() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_targets();
    let output = dir.run(&["report", "run", "--output", "report"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    browser.resize(1440, 900);
    browser.open(&format!("file://{}", dir.path("report/report.html").display()));

    // A click on a heading sorts by its column, a second one in the other direction.
    let names = browser.evaluate(&column(0));
    assert_eq!(names, json!(["logS", "active", "pKa"]));
    let heading = "table.sortable th:nth-child(1)";
    browser.click(&format!("{heading} button"));
    assert_eq!(browser.evaluate(&column(0)), json!(["active", "logS", "pKa"]));
    let sort = format!("document.querySelector('{heading}').getAttribute('aria-sort')");
    assert_eq!(browser.evaluate(&sort), "ascending");
    browser.evaluate(&format!("document.querySelector('{heading} button').focus()"));
    browser.press("Enter");
    assert_eq!(browser.evaluate(&column(0)), json!(["pKa", "logS", "active"]));
    assert_eq!(browser.evaluate(&sort), "descending");
    browser.click("table.sortable th:nth-child(3) button");
    let scores = browser.evaluate(&format!("{}.map(Number)", column(2)));
    let scores: Vec<Option<f64>> =
        scores.as_array().expect("a column").iter().map(serde_json::Value::as_f64).collect();
    assert!(scores.iter().flatten().is_sorted(), "{scores:?}");

    // Nothing is cut off: wide tables scroll in a box of their own, which the keyboard can reach.
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.resize(width, height);
        browser.wait_for(FITS);
        assert_eq!(browser.evaluate(REACHABLE), true, "{width}");
        assert_eq!(browser.violations(), Vec::<String>::new());
        browser.screenshot(&format!("report-{width}"));
    }
    browser.resize(1440, 900);
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.evaluate(background);
    browser.use_dark_theme();
    assert_ne!(browser.evaluate(background), light);
    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.screenshot("report-dark");

    // Paper has no navigation, and shows what is collapsed on the screen.
    browser.use_print_media();
    assert_eq!(browser.evaluate("getComputedStyle(document.querySelector('nav')).display"), "none");
    let collapsed = "[...document.querySelectorAll('details:not([open]) > :not(summary)')]\
        .filter((element) => element.getBoundingClientRect().height === 0).length";
    assert_eq!(browser.evaluate(collapsed), 0);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

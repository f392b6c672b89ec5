//! Tests of the page in a browser; skipped with a message if none is installed.

use crate::TestDir;
use crate::browser::Browser;

/// Expression for the fills of one of the three figures.
fn fills(figure: usize) -> String {
    format!(
        "[...document.querySelectorAll('#equations .panel')[{figure}].querySelectorAll('.body')]\
         .map((body) => body.getAttribute('fill')).join()"
    )
}

/// True when the figures are drawn and all rows are loaded.
pub(crate) const READY: &str = "document.querySelectorAll('#equations .panel .body').length > 0 && document.body.dataset.rows === 'all'";

/// True when the page does not scroll horizontally.
pub(crate) const FITS: &str =
    "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

#[track_caller]
pub(crate) fn assert_no_errors(browser: &mut Browser) {
    let errors = browser.errors();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn figures_follow_clicks_keys_and_recoloring() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_grid();
    let explorer = dir.explore(&[]);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    assert_eq!(browser.evaluate("document.querySelectorAll('#equations .panel').length"), 3);
    assert!(browser.text("#summary").contains("predicted"));

    // A click on a node changes all three figures and the URL.
    let before = [0, 1, 2].map(|figure| browser.evaluate(&fills(figure)));
    let other = browser.evaluate("String(state.node === 1 ? 2 : 1)");
    let other = other.as_str().expect("a node").to_owned();
    browser.click(&format!("#graph-stage [data-node='{other}']"));
    browser.wait_for(&format!("location.hash.includes('node={other}&')"));
    let after = [0, 1, 2].map(|figure| browser.evaluate(&fills(figure)));
    for (figure, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_ne!(before, after, "figure {figure}");
    }
    assert!(
        browser.text("#summary").contains(&format!("node {other} (")),
        "{}",
        browser.text("#summary")
    );

    // Heads and layers can be selected by mouse and keyboard.
    browser.click("#heads .option:nth-of-type(2)");
    browser.wait_for("location.hash.includes('head=0')");
    let of_head = browser.evaluate(&fills(2));
    assert_ne!(of_head, after[2]);
    browser.evaluate("document.activeElement.blur()");
    browser.press("[");
    browser.wait_for("location.hash.includes('layer=1')");
    assert_ne!(browser.evaluate(&fills(2)), of_head);

    // Hovering over the graph previews a query node; leaving restores the selected one.
    browser.press("m");
    let pinned = browser.evaluate(&fills(0));
    browser.hover("#graph-stage [data-node='7']");
    browser.wait_for(&format!("{} !== {pinned}", fills(0)));
    assert!(browser.evaluate("document.getElementById('tooltip').hidden") == false);
    browser.hover("#run");
    browser.wait_for(&format!("{} === {pinned}", fills(0)));

    // Keys control the query node, the diffusion step and the comparison.
    browser.click("#graph-stage [data-node='0']");
    browser.evaluate("document.activeElement.blur()");
    browser.press("ArrowRight");
    browser.wait_for("location.hash.includes('node=1&')");
    let walk = "[...document.querySelectorAll('#walk-stage .body')].map((body) => body.getAttribute('fill')).join()";
    let before = browser.evaluate(walk);
    browser.press(",");
    browser.wait_for(&format!("{walk} !== {before}"));
    browser.press("c");
    browser.click("#graph-stage [data-node='6']");
    browser
        .wait_for("location.hash.includes('other=6') && document.querySelectorAll('#equations .panel').length === 6");
    browser.press("x");
    browser.wait_for("location.hash.includes('node=6&other=1')");
    browser.press("c");
    browser.wait_for("document.querySelectorAll('#equations .panel').length === 3");
    assert_no_errors(&mut browser);

    // Recoloring a cell changes the predictions.
    browser.click("#paint");
    let probabilities = browser.evaluate("JSON.stringify(current.outcome.probabilities)");
    let other =
        browser.evaluate("(current.graph.node_features[5][0] + 1) % 4").as_u64().expect("a color");
    browser.click(&format!("#palette button:nth-child({})", other + 1));
    browser.click("#graph-stage [data-node='5']");
    browser.wait_for(&format!("location.hash.includes('colors=5%3A{other}')"));
    assert_ne!(browser.evaluate("JSON.stringify(current.outcome.probabilities)"), probabilities);
    assert!(
        browser.text("#graph-note").starts_with("1 recolored"),
        "{}",
        browser.text("#graph-note")
    );
    browser.click("#reset");
    browser.wait_for("!location.hash.includes('colors')");
    assert_eq!(browser.evaluate("JSON.stringify(current.outcome.probabilities)"), probabilities);

    // The list can be sorted by error and searched.
    browser
        .wait_for("scores.size === run.graphs.length && document.getElementById('scoring').hidden");
    browser.evaluate("$('sort').value = 'worst'; $('sort').dispatchEvent(new Event('change'))");
    let sorted =
        "[...document.querySelectorAll('#list .error')].map((error) => Number(error.textContent))";
    browser
        .wait_for(&format!("{sorted}.every((error, at, all) => at === 0 || error <= all[at - 1])"));
    let last = browser.evaluate("run.graphs.at(-1)[0]");
    browser.click("#search");
    browser.insert(&last.to_string());
    browser.wait_for("document.querySelectorAll('#list button').length === 1");
    browser.click("#list button");
    browser.wait_for(&format!("document.getElementById('graph').textContent === 'Graph {last}'"));

    // Theme, help dialog and a linked view.
    let theme = "document.documentElement.dataset.theme";
    let before = browser.evaluate(theme);
    browser.click("#theme");
    assert_ne!(browser.evaluate(theme), before);
    browser.evaluate("document.activeElement.blur()");
    browser.press("?");
    browser.wait_for("document.getElementById('help-dialog').open");
    let first = browser.evaluate("run.graphs[0][0]");
    browser.open("about:blank");
    browser
        .open(&format!("{}#graph={first}&node=3&other=4&layer=0&head=2&step=1", explorer.address));
    browser.wait_for("document.querySelectorAll('#equations .panel').length === 6");
    let seen =
        browser.evaluate("[state.node, state.other, state.layer, state.head, state.step].join()");
    assert_eq!(seen, "3,4,0,2,1");

    // A narrow screen needs no horizontal scrolling, and the list is collapsed.
    browser.resize(360, 740);
    browser.wait_for(FITS);
    assert_eq!(browser.evaluate("document.getElementById('graphs').open"), false);
    assert_no_errors(&mut browser);
}

#[test]
fn smiles_are_predicted_and_invalid_ones_show_an_error() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&[]);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    let before = browser.text("#summary");
    browser.click("#smiles");
    browser.insert("c1ccccc1CO");
    browser.click("#smiles-form button");
    browser.wait_for("document.getElementById('graph').textContent === 'Your molecule'");
    assert_ne!(browser.text("#summary"), before);
    assert_eq!(browser.text("#size"), "8 atoms, 8 bonds");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#graph-stage .node').length >= 8"),
        true
    );
    assert!(browser.evaluate("location.hash.includes('smiles=c1ccccc1CO')") == true);
    assert_no_errors(&mut browser);

    browser.evaluate("$('smiles').value = 'c1cc<b>C'");
    browser.click("#smiles-form button");
    browser.wait_for("!document.getElementById('error').hidden");
    let error = browser.text("#error");
    assert!(error.contains("SMILES syntax error at character"), "{error}");
    // The previous molecule stays but is marked as such, and the input is not interpreted as HTML.
    assert_eq!(browser.text("#graph"), "Your molecule");
    browser.wait_for("document.body.classList.contains('stale')");
    assert!(browser.text("#summary").starts_with("No prediction"), "{}", browser.text("#summary"));
    assert_eq!(browser.evaluate("getComputedStyle($('equations')).opacity < 0.5"), true);
    browser.screenshot("invalid");
    assert_eq!(browser.evaluate("document.querySelector('#error b')"), serde_json::Value::Null);
    let errors = browser.errors();
    assert!(errors.iter().all(|error| error.contains("422")), "unexpected errors: {errors:?}");

    // A graph of the list can be opened again.
    browser.click("#list button");
    browser.wait_for("document.getElementById('graph').textContent.startsWith('Graph ')");
    assert_eq!(browser.evaluate("document.getElementById('error').hidden"), true);
    assert_eq!(browser.evaluate("document.body.classList.contains('stale')"), false);
    assert!(browser.text("#summary").contains("predicted"), "{}", browser.text("#summary"));
    browser.resize(360, 740);
    browser.wait_for(FITS);
}

#[test]
fn exported_page_works_without_a_server() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_grid();
    let output = dir.run(&["explore", "run", "--output", "page.html", "--num-graphs", "3"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    browser.open(&format!("file://{}", dir.path("page.html").display()));
    browser.wait_for(
        "document.querySelectorAll('#equations .panel .body').length > 0 && scores.size === 3",
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('#list button').length"), 3);
    let before = browser.evaluate(&fills(2));
    let other = browser.evaluate("state.node === 1 ? 2 : 1");
    browser.click(&format!("#equations [data-node='{other}']"));
    browser.wait_for(&format!("{} !== {before}", fills(2)));
    // Attention is computed from position and content, and rows sum to one.
    let sum = browser.evaluate(
        "[...current.components(state.node, 0, null).attention].reduce((sum, weight) => sum + weight, 0)",
    );
    assert!((sum.as_f64().expect("a number") - 1.0).abs() < 1e-6, "{sum}");
    let walk = browser
        .evaluate("[...current.walk(state.node, 2)].reduce((sum, weight) => sum + weight, 0)");
    assert!((walk.as_f64().expect("a number") - 1.0).abs() < 1e-2, "{walk}");
    browser.press("n");
    browser.wait_for("document.querySelector('#list li:nth-child(2) button').getAttribute('aria-current') === 'true'");
    // Controls that need a server are hidden.
    assert_eq!(browser.evaluate("$('paint-switch').hidden && $('smiles-form').hidden"), true);
    assert_no_errors(&mut browser);
}

#[test]
fn rows_are_identified_and_targets_are_chosen() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_targets();
    let explorer = dir.explore(&["--split", "train"]);
    browser.resize(1440, 900);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    assert_eq!(browser.text("#run"), "run · molecules · train split");
    assert_eq!(browser.text("#row"), "CID1000 · CCO");

    // Identifiers and SMILES are listed and searched.
    browser.wait_for("scores.size === run.graphs.length");
    browser.click("#search");
    browser.insert("cid1003");
    browser.wait_for("document.querySelectorAll('#list button').length === 1");
    assert_eq!(browser.text("#list .row-label"), "CID1003");
    browser
        .evaluate("$('search').value = 'c1ccccc1'; $('search').dispatchEvent(new Event('input'))");
    browser.wait_for("document.querySelectorAll('#list button').length === 1");
    browser.click("#list button");
    browser.wait_for("$('row').textContent === 'CID1002 · c1ccccc1'");
    browser.evaluate("$('search').value = ''; $('search').dispatchEvent(new Event('input'))");

    // Entries name their target; choosing one changes the list, the summary and the URL.
    assert!(browser.text("#list .prediction").starts_with("logS: "));
    browser.evaluate("$('target').value = '1'; $('target').dispatchEvent(new Event('change'))");
    browser.wait_for(
        "document.querySelector('#list .prediction')?.textContent.startsWith('active: ')",
    );
    assert!(browser.text("#summary").starts_with("active"), "{}", browser.text("#summary"));
    assert!(browser.text("#list-note").ends_with("Error: error of active."));
    assert_eq!(browser.evaluate("location.hash.includes('target=1')"), true);
    browser.screenshot("molecules-1440");
    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.evaluate("setTheme('dark')");
    browser.screenshot("molecules-dark");
    browser.resize(390, 844);
    browser.wait_for(FITS);
    browser.screenshot("molecules-390");
    assert_no_errors(&mut browser);

    // An exported file has the same labels and targets.
    let output = dir.run(&["explore", "run", "--split", "train", "-o", "page.html"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    browser.resize(1280, 900);
    browser.open(&format!("file://{}#target=2", dir.path("page.html").display()));
    browser
        .wait_for("document.querySelector('#list .prediction')?.textContent.startsWith('pKa: ')");
    assert_eq!(browser.text("#row"), "CID1000 · CCO");
    assert_no_errors(&mut browser);
}

#[test]
fn figures_are_zoomed_compared_and_shown_for_all_heads() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_grid();
    let explorer = dir.explore(&[]);
    browser.resize(1440, 900);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    browser.screenshot("grid-1440");

    // Wheel, buttons and keys change the same zoom of all figures; dragging moves them.
    let boxes = "new Set(figures().map((figure) => figure.root.getAttribute('viewBox'))).size";
    let whole = browser.evaluate("graphFigure.root.getAttribute('viewBox')");
    browser.wheel("#graph-stage", -300.0);
    browser.wait_for("zoom.scale > 1.2");
    assert_eq!(browser.evaluate(boxes), 1, "all figures show the same part");
    browser.click("#zoom-in");
    browser.wait_for("zoom.scale > 1.9");
    let selected = browser.evaluate("state.node");
    let before = browser.evaluate("zoom.x");
    browser.drag("#graph-stage", [-60.0, 0.0]);
    browser.wait_for(&format!("zoom.x > {before}"));
    assert_eq!(browser.evaluate("state.node"), selected, "dragging selects no node");
    browser.evaluate("document.activeElement.blur()");
    browser.press("0");
    browser.wait_for("zoom.scale === 1");
    assert_eq!(browser.evaluate("graphFigure.root.getAttribute('viewBox')"), whole);
    browser.press("+");
    browser.wait_for("zoom.scale > 1.4");
    browser.press("-");
    browser.wait_for("zoom.scale === 1");

    // The comparison says what to do.
    browser.click("#compare");
    browser.wait_for("!$('compare-hint').hidden");
    let other = browser.evaluate("state.node === 6 ? 7 : 6");
    browser.click(&format!("#graph-stage [data-node='{other}']"));
    browser.wait_for("$('compare-hint').hidden && state.other !== null");
    browser.click("#compare");
    browser.wait_for("state.other === null");

    // Thumbnails of all layers and heads select a layer and a head.
    browser.evaluate("document.activeElement.blur()");
    browser.press("g");
    browser.wait_for(
        "document.querySelectorAll('#thumbnails button').length === current.layers * current.heads",
    );
    let drawn = "[...document.querySelectorAll('#thumbnails canvas')].every((canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))";
    assert_eq!(browser.evaluate(drawn), true, "every thumbnail has a drawing");
    browser.screenshot("heads-1440");
    browser.click("#thumbnails button[data-layer='0'][data-head='1']");
    browser
        .wait_for("state.layer === 0 && state.head === 1 && location.hash.includes('heads=all')");
    assert_eq!(browser.evaluate("document.querySelector('#layers input:checked').value + document.querySelector('#heads input:checked').value"), "01");
    browser.press("g");
    browser.wait_for("$('multiples').hidden");

    // Recoloring neither moves the graph nor leaves an old tooltip.
    browser.click("#paint");
    let color =
        browser.evaluate("(current.graph.node_features[5][0] + 1) % 4").as_u64().expect("a color");
    browser.click(&format!("#palette button:nth-child({})", color + 1));
    let top =
        "document.querySelector(\"#graph-stage [data-node='5']\").getBoundingClientRect().top";
    browser.hover("#graph-stage [data-node='5']");
    let before = browser.evaluate(top);
    browser.click("#graph-stage [data-node='5']");
    browser.wait_for("state.colors.size === 1 && current.query.colors.length === 1");
    assert_eq!(browser.evaluate(top), before);
    let letter = browser.evaluate("current.label(5)");
    let tooltip = browser.text("#tooltip b");
    assert!(tooltip.contains(&format!("5 ({})", letter.as_str().expect("a letter"))), "{tooltip}");
    assert_no_errors(&mut browser);

    // Equal weights are not painted as the largest, and high ones not from zero.
    let uniform = browser.evaluate("[0, 1].map((weight) => colorScale([[0.9, 0.25, 0.25, 0.25]], [0]).shade(0.25)).concat(colorScale([[1, 0, 0.5]], [0]).shade(0.25))");
    assert_eq!(uniform, serde_json::json!([0.3, 0.3, 0.5]));
    let high =
        browser.evaluate("(({ low, high }) => [low, high])(colorScale([[0.95, 0.9, 1]], [0]))");
    assert_eq!(high, serde_json::json!([0.9, 1]));

    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.resize(390, 844);
    browser.wait_for(FITS);
    browser.screenshot("grid-390");

    // Two fingers zoom the figures, not the page.
    browser.press("0");
    browser.wait_for("zoom.scale === 1");
    let selected = browser.evaluate("state.node");
    browser.pinch("#graph-stage", 2.0);
    browser.wait_for("zoom.scale > 1.5 && zoom.scale < 2.5");
    assert_eq!(browser.evaluate("visualViewport.scale"), 1);
    assert_eq!(browser.evaluate(boxes), 1, "all figures show the same part");
    browser.screenshot("pinch-390");
    browser.pinch("#graph-stage", 0.4);
    browser.wait_for("zoom.scale === 1");
    assert_eq!(browser.evaluate("visualViewport.scale"), 1);
    assert_eq!(browser.evaluate("state.node"), selected, "pinching selects no node");
    assert_no_errors(&mut browser);
}

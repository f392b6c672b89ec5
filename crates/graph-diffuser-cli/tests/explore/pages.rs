//! The page in a real browser; skipped, with a message, where there is none.

use crate::Workplace;
use crate::browser::Browser;

/// The colours of one of the three pictures, as text.
fn shades(picture: usize) -> String {
    format!(
        "[...document.querySelectorAll('#equations .panel')[{picture}].querySelectorAll('.body')]\
         .map((body) => body.getAttribute('fill')).join()"
    )
}

/// Whether the pictures are there and all rows with them.
const READY: &str = "document.querySelectorAll('#equations .panel .body').length > 0 && document.body.dataset.rows === 'all'";

const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

#[track_caller]
fn assert_faultless(browser: &mut Browser) {
    let faults = browser.faults();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_pictures_follow_clicks_keys_and_colours() {
    let Some(mut browser) = Browser::start() else { return };
    let work = Workplace::new();
    work.train_grid();
    let explorer = work.explore(&[]);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    assert_eq!(browser.evaluate("document.querySelectorAll('#equations .panel').length"), 3);
    assert!(browser.text("#verdicts").contains("predicted"));

    // A click on a node changes all three pictures, and the address.
    let before = [0, 1, 2].map(|picture| browser.evaluate(&shades(picture)));
    let other = browser.evaluate("String(state.node === 1 ? 2 : 1)");
    let other = other.as_str().expect("a node").to_owned();
    browser.click(&format!("#graph-stage [data-node='{other}']"));
    browser.wait_for(&format!("location.hash.includes('node={other}&')"));
    let after = [0, 1, 2].map(|picture| browser.evaluate(&shades(picture)));
    for (picture, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_ne!(before, after, "picture {picture}");
    }
    assert!(
        browser.text("#verdicts").contains(&format!("node {other} (")),
        "{}",
        browser.text("#verdicts")
    );

    // So do another head and another layer, by mouse and by key.
    browser.click("#heads .choice:nth-of-type(2)");
    browser.wait_for("location.hash.includes('head=0')");
    let of_head = browser.evaluate(&shades(2));
    assert_ne!(of_head, after[2]);
    browser.evaluate("document.activeElement.blur()");
    browser.press("[");
    browser.wait_for("location.hash.includes('layer=1')");
    assert_ne!(browser.evaluate(&shades(2)), of_head);

    // The graph's own picture previews what the pointer is on; leaving it goes back.
    browser.press("m");
    let pinned = browser.evaluate(&shades(0));
    browser.hover("#graph-stage [data-node='7']");
    browser.wait_for(&format!("{} !== {pinned}", shades(0)));
    assert!(browser.evaluate("document.getElementById('tip').hidden") == false);
    browser.hover("#run");
    browser.wait_for(&format!("{} === {pinned}", shades(0)));

    // Keys move the node, the walk and the comparison.
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
    assert_faultless(&mut browser);

    // Another colour on a cell is another prediction.
    browser.click("#paint");
    let probabilities = browser.evaluate("JSON.stringify(known.outcome.probabilities)");
    let other =
        browser.evaluate("(known.graph.node_features[5][0] + 1) % 4").as_u64().expect("a colour");
    browser.click(&format!("#palette button:nth-child({})", other + 1));
    browser.click("#graph-stage [data-node='5']");
    browser.wait_for(&format!("location.hash.includes('colours=5%3A{other}')"));
    assert_ne!(browser.evaluate("JSON.stringify(known.outcome.probabilities)"), probabilities);
    assert!(
        browser.text("#graph-note").starts_with("1 recoloured"),
        "{}",
        browser.text("#graph-note")
    );
    browser.click("#reset");
    browser.wait_for("!location.hash.includes('colours')");
    assert_eq!(browser.evaluate("JSON.stringify(known.outcome.probabilities)"), probabilities);

    // The list is sorted by error once graphs are scored, and searched.
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

    // Light and dark, help, and a view that is linked.
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

    // A phone shows it without scrolling sideways; the list is folded away.
    browser.resize(360, 740);
    browser.wait_for(FITS);
    assert_eq!(browser.evaluate("document.getElementById('chooser').open"), false);
    assert_faultless(&mut browser);
}

#[test]
fn a_smiles_is_answered_and_a_bad_one_explained() {
    let Some(mut browser) = Browser::start() else { return };
    let work = Workplace::new();
    work.train_molecules();
    let explorer = work.explore(&[]);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    let before = browser.text("#verdicts");
    browser.click("#smiles");
    browser.insert("c1ccccc1CO");
    browser.click("#smiles-form button");
    browser.wait_for("document.getElementById('graph').textContent === 'Your molecule'");
    assert_ne!(browser.text("#verdicts"), before);
    assert_eq!(browser.text("#size"), "8 atoms, 8 bonds");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#graph-stage .node').length >= 8"),
        true
    );
    assert!(browser.evaluate("location.hash.includes('smiles=c1ccccc1CO')") == true);
    assert_faultless(&mut browser);

    browser.evaluate("$('smiles').value = 'c1cc<b>C'");
    browser.click("#smiles-form button");
    browser.wait_for("!document.getElementById('fault').hidden");
    let fault = browser.text("#fault");
    assert!(fault.contains("the SMILES breaks off at character"), "{fault}");
    // What was there stays, and nothing typed becomes an element.
    assert_eq!(browser.text("#graph"), "Your molecule");
    assert_eq!(browser.evaluate("document.querySelector('#fault b')"), serde_json::Value::Null);
    let faults = browser.faults();
    assert!(faults.iter().all(|fault| fault.contains("422")), "only the refusal: {faults:?}");

    // A graph of the list is a click away.
    browser.click("#list button");
    browser.wait_for("document.getElementById('graph').textContent.startsWith('Graph ')");
    assert_eq!(browser.evaluate("document.getElementById('fault').hidden"), true);
    browser.resize(360, 740);
    browser.wait_for(FITS);
}

#[test]
fn an_exported_page_works_without_the_program() {
    let Some(mut browser) = Browser::start() else { return };
    let work = Workplace::new();
    work.train_grid();
    let said = work.run(&["explore", "run", "--export", "page.html", "--graphs", "3"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    browser.open(&format!("file://{}", work.path("page.html").display()));
    browser.wait_for(
        "document.querySelectorAll('#equations .panel .body').length > 0 && scores.size === 3",
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('#list button').length"), 3);
    let before = browser.evaluate(&shades(2));
    let other = browser.evaluate("state.node === 1 ? 2 : 1");
    browser.click(&format!("#equations [data-node='{other}']"));
    browser.wait_for(&format!("{} !== {before}", shades(2)));
    // Attention is made of its parts, and rows sum to one.
    let sum = browser.evaluate(
        "[...known.parts(state.node, 0, null).attention].reduce((sum, weight) => sum + weight, 0)",
    );
    assert!((sum.as_f64().expect("a number") - 1.0).abs() < 1e-6, "{sum}");
    let walk =
        browser.evaluate("[...known.walk(state.node, 2)].reduce((sum, weight) => sum + weight, 0)");
    assert!((walk.as_f64().expect("a number") - 1.0).abs() < 1e-2, "{walk}");
    browser.press("n");
    browser.wait_for("document.querySelector('#list li:nth-child(2) button').getAttribute('aria-current') === 'true'");
    // What needs the program is not offered.
    assert_eq!(browser.evaluate("$('paint-switch').hidden && $('smiles-form').hidden"), true);
    assert_faultless(&mut browser);
}

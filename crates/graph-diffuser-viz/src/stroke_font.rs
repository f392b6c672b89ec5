//! Built-in stroke font of PNG figures, independent of installed fonts.
//!
//! A glyph is a list of polylines on an integer grid. Points are digit pairs `xy`, and a space
//! starts a new polyline. The baseline is `y = 2`; capitals reach 8, small letters 6, and
//! descenders 0.

/// Height of a capital letter in grid units.
const CAPITAL_HEIGHT: f64 = 6.0;
const BASELINE: f64 = 2.0;
/// Space between letters in grid units.
const LETTER_SPACING: f64 = 1.7;

/// Returns the polylines of a glyph; a box for unsupported characters.
fn strokes(letter: char) -> &'static str {
    match letter {
        ' ' => "",
        '0' | 'O' => "120307183847433212",
        '1' => "062822 0242",
        '2' => "07183847460242",
        '3' => "07183847463515 354443321203",
        '4' => "32380444",
        '5' => "480805354443321203",
        '6' => "473818070312324344351504",
        '7' => "084812",
        '8' => "1506071838474635150403123243443515",
        '9' => "031232434738180706153546",
        'A' => "022842 1434",
        'B' => "02083847463505 3544433202",
        'C' => "4738180703123243",
        'D' => "02082846442202",
        'E' => "48080242 0535",
        'F' => "480802 0535",
        'G' => "47381807031232434525",
        'H' => "0208 4248 0545",
        'I' | 'l' | '|' => "0208",
        'J' => "3833221203",
        'K' => "0208 4804 1542",
        'L' => "080242",
        'M' => "0208254842",
        'N' => "02084248",
        'P' => "02083847463505",
        'Q' => "120307183847433212 2442",
        'R' => "02083847463505 2542",
        'S' => "473818070615354443321203",
        'T' => "0848 2822",
        'U' => "080312324348",
        'V' => "082248",
        'W' => "0812263248",
        'X' => "0248 0842",
        'Y' => "082548 2522",
        'Z' => "08480242",
        'a' => "0516263532 341403122233",
        'b' => "0802 0516263533221203",
        'c' => "3526160503122233",
        'd' => "3832 3526160503122233",
        'e' => "043435261605031232",
        'f' => "38281712 0626",
        'g' => "3631201001 3526160503122233",
        'h' => "0802 0516263532",
        'i' => "0206 0808",
        'j' => "161100 1818",
        'k' => "0802 360432",
        'm' => "0206 05162522 25364542",
        'n' => "0206 0516263532",
        'o' => "120305162635332212",
        'p' => "0006 0516263533221203",
        'q' => "3036 3526160503122233",
        'r' => "0206 051626",
        's' => "35261605142433221203",
        't' => "18132232 0626",
        'u' => "0603122233 3632",
        'v' => "062246",
        'w' => "0612243246",
        'x' => "0236 0632",
        'y' => "0622 462210",
        'z' => "06360232",
        '.' => "0202",
        ',' => "1201",
        ':' => "0202 0505",
        ';' => "1201 1515",
        '-' | '–' => "0535",
        '+' => "0545 2723",
        '=' => "0444 0646",
        '(' => "18060412",
        ')' => "08161402",
        '[' => "18080212",
        ']' => "08181202",
        '/' => "0248",
        '%' => "0248 0818170708 3242433332",
        '*' | '×' => "0337 0733",
        '<' => "370533",
        '>' => "073503",
        '_' => "0141",
        '\'' => "0806",
        '"' => "0806 1816",
        '!' => "0804 0202",
        '?' => "071838474624 2222",
        '#' => "1218 3238 0444 0646",
        '&' => "42061728273604031222 2244",
        'σ' => "46160503122233352616",
        '…' => "0202 2222 4242",
        _ => "0208484202",
    }
}

/// Returns the polylines and the width of a text.
///
/// The baseline starts at `[0, 0]` and `y` points down.
pub(crate) fn polylines(text: &str, size: f64) -> (Vec<Vec<[f64; 2]>>, f64) {
    // Capital letters of common fonts are 0.72 of the font size.
    let (up, across) = (0.72 * size / CAPITAL_HEIGHT, 0.1 * size);
    let (mut x, mut lines) = (0.0, Vec::new());
    for letter in text.chars() {
        let mut width = if letter == ' ' { 1.6 } else { 0.0_f64 };
        for stroke in strokes(letter).split(' ').filter(|stroke| !stroke.is_empty()) {
            let digits: Vec<f64> = stroke.bytes().map(|digit| f64::from(digit - b'0')).collect();
            let points = digits.chunks_exact(2).map(|point| {
                width = width.max(point[0]);
                [x + point[0] * across, (BASELINE - point[1]) * up]
            });
            lines.push(points.collect());
        }
        x += (width + LETTER_SPACING) * across;
    }
    (lines, (x - LETTER_SPACING * across).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_ascii_characters_have_glyphs() {
        let unsupported = strokes('\u{1}');
        for letter in (b'!'..=b'~').map(char::from).filter(|letter| !"$@\\^`{}~".contains(*letter))
        {
            assert_ne!(strokes(letter), unsupported, "{letter}");
        }
    }

    #[test]
    fn capitals_rest_on_the_baseline_and_width_grows_with_the_text() {
        let (lines, width) = polylines("H", 10.0);
        let heights: Vec<f64> = lines.iter().flatten().map(|point| point[1]).collect();
        assert!(heights.iter().all(|y| (-7.21..=0.01).contains(y)), "{heights:?}");
        assert!((width - 4.0).abs() < 1e-9);
        assert!(polylines("HH", 10.0).1 > 2.0 * width);
        assert_eq!(polylines("", 10.0).1, 0.0);
    }
}

//! SVG output of a [`Canvas`].
//!
//! Presentation attributes of the root element are defaults of all shapes: no fill, round caps and
//! joins. The background and the shapes of charts have classes that a style sheet may override.

use crate::color::Color;
use crate::font::FAMILY;

use super::{Anchor, Canvas, Shape, Style, TextStyle};

pub(super) fn render(canvas: &Canvas) -> String {
    let [width, height] = [canvas.width, canvas.height].map(|size| number(size.round()));
    let title = escape(&canvas.title);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"{FAMILY}\" fill=\"none\" stroke-linecap=\"round\" \
         stroke-linejoin=\"round\">\n<title>{title}</title>\n\
         <rect class=\"background\" width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for shape in &canvas.shapes {
        text.push_str(&to_element(shape));
    }
    text.push_str("</svg>\n");
    text
}

fn to_element(shape: &Shape) -> String {
    match shape {
        Shape::Path { points, closed, style } => {
            let points: Vec<String> =
                points.iter().map(|[x, y]| format!("{} {}", number(*x), number(*y))).collect();
            let end = if *closed { "Z" } else { "" };
            format!("<path d=\"M{}{end}\"{}/>\n", points.join("L"), attributes(style))
        }
        Shape::Circle { center: [x, y], radius, style } => format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"{}/>\n",
            number(*x),
            number(*y),
            number(*radius),
            attributes(style)
        ),
        Shape::Text { at: [x, y], text, style } => {
            let TextStyle { size, color, anchor, bold, vertical } = *style;
            let (x, y, size) = (number(*x), number(*y), number(size));
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = if bold { " font-weight=\"bold\"" } else { "" };
            let turn = if vertical {
                format!(" transform=\"rotate(-90 {x} {y})\"")
            } else {
                String::new()
            };
            format!(
                "<text{} x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{anchor}{weight}{turn} \
                 fill=\"{}\">{}</text>\n",
                class(color),
                color.hex(),
                escape(text)
            )
        }
    }
}

fn attributes(style: &Style) -> String {
    let Style { fill, opacity, stroke, width, dashes } = style;
    let mut text = String::new();
    if let Some(color) = stroke.or(*fill) {
        text.push_str(&class(color));
    }
    if let Some(color) = fill {
        text.push_str(&format!(" fill=\"{}\"", color.hex()));
        if *opacity < 1.0 {
            text.push_str(&format!(" fill-opacity=\"{opacity}\""));
        }
    }
    if let Some(color) = stroke {
        text.push_str(&format!(" stroke=\"{}\" stroke-width=\"{}\"", color.hex(), number(*width)));
        if !dashes.is_empty() {
            let dashes: Vec<String> = dashes.iter().map(|&length| number(length)).collect();
            text.push_str(&format!(
                " stroke-dasharray=\"{}\" stroke-linecap=\"butt\"",
                dashes.join(" ")
            ));
        }
    }
    text
}

fn class(color: Color) -> String {
    color.class().map_or(String::new(), |class| format!(" class=\"{class}\""))
}

/// Formats a number with at most two decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes text for XML and HTML, including attribute values.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters are not allowed in XML.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use crate::color::{FOREGROUND, SKY, VERMILLION};

    use super::*;

    #[test]
    fn elements_have_the_attributes_of_their_style() {
        let mut canvas = Canvas::new(40.0, 20.4, "<&>");
        canvas.polyline(
            vec![[0.0, 1.0], [2.25, -0.001]],
            Style::stroke(SKY, 2.0).dashed(&[4.0, 1.5]),
        );
        canvas.rectangle([1.0, 2.0], [3.0, 4.0], Style::fill(VERMILLION).opacity(0.5));
        canvas.circle([5.0, 5.0], 2.0, Style::fill(SKY).outlined(FOREGROUND, 1.0));
        let style = TextStyle::new(12.0, FOREGROUND).bold().vertical().anchor(Anchor::Middle);
        canvas.text([9.0, 9.5], "a < b", style);
        let svg = canvas.to_svg();
        let lines: Vec<&str> = svg.lines().collect();
        assert!(
            lines[0].contains("viewBox=\"0 0 40 20\"") && lines[0].contains("=\"&lt;&amp;&gt;\"")
        );
        assert_eq!(
            lines[3..],
            [
                "<path d=\"M0 1L2.25 0\" stroke=\"#56b4e9\" stroke-width=\"2\" \
                 stroke-dasharray=\"4 1.5\" stroke-linecap=\"butt\"/>",
                "<path d=\"M1 2L4 2L4 6L1 6Z\" fill=\"#d55e00\" fill-opacity=\"0.5\"/>",
                "<circle cx=\"5\" cy=\"5\" r=\"2\" class=\"foreground\" fill=\"#56b4e9\" \
                 stroke=\"#222222\" stroke-width=\"1\"/>",
                "<text class=\"foreground\" x=\"9\" y=\"9.5\" font-size=\"12\" \
                 text-anchor=\"middle\" font-weight=\"bold\" transform=\"rotate(-90 9 9.5)\" \
                 fill=\"#222222\">a &lt; b</text>",
                "</svg>"
            ]
        );
    }

    #[test]
    fn markup_and_control_characters_are_escaped() {
        let escaped = escape("<script>alert('1')</script> & \"x\"\u{1b}");
        assert_eq!(escaped, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot; ");
    }
}

//! Colors of all figures: palette, ramp, and fills of categories and atoms.
//!
//! Lines use the color-blind safe palette of Okabe and Ito. The ramp is perceptually uniform, so
//! that figures stay readable in grayscale.

/// Color in sRGB, optionally with a class that a style sheet may override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color {
    channels: [u8; 3],
    class: Option<&'static str>,
}

impl Color {
    /// Creates a color from `0xRRGGBB`.
    pub const fn rgb(rgb: u32) -> Self {
        Self { channels: [(rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8], class: None }
    }

    /// Creates a color whose shapes have the CSS class `class` in SVG.
    const fn themed(class: &'static str, rgb: u32) -> Self {
        Self { class: Some(class), ..Self::rgb(rgb) }
    }

    /// Returns red, green and blue.
    pub fn channels(self) -> [u8; 3] {
        self.channels
    }

    /// Formats the color as `#rrggbb`.
    pub fn hex(self) -> String {
        let [red, green, blue] = self.channels;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    pub(crate) fn class(self) -> Option<&'static str> {
        self.class
    }

    /// Returns whether white text is more readable on this color than [`INK`].
    pub(crate) fn is_dark(self) -> bool {
        let [red, green, blue] = self.channels.map(u32::from);
        3 * red + 6 * green + blue < 1200
    }
}

pub(crate) const WHITE: Color = Color::rgb(0xff_ff_ff);
pub(crate) const INK: Color = Color::rgb(0x22_22_22);
pub(crate) const OUTLINE: Color = Color::rgb(0x66_66_66);
pub(crate) const GRAY: Color = Color::rgb(0xbb_bb_bb);
/// Fill of a node without category.
pub(crate) const PLAIN: Color = Color::rgb(0xf4_f4_f4);

/// Text and axes of charts.
pub(crate) const FOREGROUND: Color = Color::themed("foreground", 0x22_22_22);
/// Grid lines of charts.
pub(crate) const GRID: Color = Color::themed("grid", 0xdd_dd_dd);

pub(crate) const BLUE: Color = Color::rgb(0x00_72_b2);
pub(crate) const SKY: Color = Color::rgb(0x56_b4_e9);
pub(crate) const VERMILLION: Color = Color::rgb(0xd5_5e_00);
pub(crate) const GREEN: Color = Color::rgb(0x00_9e_73);
pub(crate) const ORANGE: Color = Color::rgb(0xe6_9f_00);
pub(crate) const PURPLE: Color = Color::rgb(0xcc_79_a7);

/// Sequential color ramp from zero to the maximum, with uniformly decreasing lightness.
pub const RAMP: [Color; 6] = [
    Color::rgb(0xf7_fb_ff),
    Color::rgb(0xcf_e1_f2),
    Color::rgb(0x94_c4_df),
    Color::rgb(0x4a_98_c9),
    Color::rgb(0x17_64_ab),
    Color::rgb(0x08_30_6b),
];

/// Interpolates [`RAMP`] at a value between 0 and 1.
pub(crate) fn ramp(value: f64) -> Color {
    let position = value.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let first = (position as usize).min(RAMP.len() - 2);
    let part = position - first as f64;
    let channels = [0, 1, 2].map(|channel| {
        let [low, high] = [first, first + 1].map(|index| f64::from(RAMP[index].channels[channel]));
        (low + part * (high - low)).round() as u8
    });
    Color { channels, class: None }
}

/// Light fill colors of categories; labels identify the category.
const FILLS: [Color; 20] = [
    Color::rgb(0x9e_d0_f0),
    Color::rgb(0xf5_c0_6b),
    Color::rgb(0x8f_dc_bf),
    Color::rgb(0xf6_ee_9a),
    Color::rgb(0xe8_b4_d0),
    Color::rgb(0xf2_a3_7c),
    Color::rgb(0xc9_c9_c9),
    Color::rgb(0xb9_b6_e8),
    Color::rgb(0xcd_e8_8f),
    Color::rgb(0xe3_cd_ae),
    Color::rgb(0xc8_e6_f8),
    Color::rgb(0xfb_de_b0),
    Color::rgb(0xc4_ee_de),
    Color::rgb(0xfb_f7_cf),
    Color::rgb(0xf6_dc_e9),
    Color::rgb(0xfa_d1_bd),
    Color::rgb(0xe6_e6_e6),
    Color::rgb(0xdd_db_f5),
    Color::rgb(0xe5_f3_c4),
    Color::rgb(0xf1_e6_d6),
];

/// Returns the fill color of a category.
pub fn category_fill(category: usize) -> Color {
    FILLS[category % FILLS.len()]
}

/// Returns the fill color of an atom, similar to the CPK convention.
///
/// A label is an element symbol, optionally followed by hydrogens and a charge.
pub(crate) fn atom_fill(label: &str) -> Color {
    let is_symbol = |(index, letter): &(usize, char)| {
        if *index == 0 { letter.is_uppercase() } else { letter.is_lowercase() }
    };
    let symbol: String =
        label.chars().enumerate().take_while(is_symbol).map(|(_, letter)| letter).collect();
    match symbol.as_str() {
        "C" => Color::rgb(0xf0_f0_f0),
        "N" => Color::rgb(0x9e_d0_f0),
        "O" => Color::rgb(0xf2_a3_7c),
        "S" => Color::rgb(0xf6_ee_9a),
        "P" => Color::rgb(0xf5_c0_6b),
        "F" | "Cl" | "Br" | "I" => Color::rgb(0x8f_dc_bf),
        _ => Color::rgb(0xdd_db_f5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramp_darkens_monotonically() {
        let lightness =
            |value: f64| ramp(value).channels.iter().map(|&part| u32::from(part)).sum::<u32>();
        assert!((0..100).all(
            |step| lightness(f64::from(step) / 100.0) >= lightness(f64::from(step + 1) / 100.0)
        ));
        assert_eq!((ramp(0.0), ramp(1.0)), (RAMP[0], RAMP[5]));
        assert_eq!(ramp(0.1).hex(), "#e3eef9"); // halfway between the first two
    }

    #[test]
    fn atoms_are_filled_by_element() {
        assert_eq!(atom_fill("NH+"), atom_fill("N"));
        assert_ne!(atom_fill("Cl"), atom_fill("C"));
        assert!(RAMP[5].is_dark() && !RAMP[0].is_dark());
    }
}

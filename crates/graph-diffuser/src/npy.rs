//! Header of `NumPy`'s `.npy` format.
//!
//! The crates for this format also read it, and for that depend on a parser of Python literals and
//! other packages; a writer needs only this header.

/// Alignment of the values.
const ALIGNMENT: usize = 64;
/// Length of magic string, version and header length.
const PREFIX: usize = 10;

/// Returns the header of an array in C order, in version 1.0 of the format.
///
/// `dtype` is a type descriptor of `NumPy`, such as `<f4`. The header is a multiple of 64 bytes and
/// at least `min_len` bytes long, which reserves space for a shape that is not known yet.
///
/// # Examples
/// ```
/// let header = graph_diffuser::npy::header("<f4", &[2, 3], 0);
/// assert!(header.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', "));
/// assert_eq!(header.len(), 128);
/// ```
pub fn header(dtype: &str, shape: &[usize], min_len: usize) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" }; // a Python tuple of one element
    let dictionary = format!(
        "{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        sizes.join(", ")
    );
    // The dictionary is padded with spaces and terminated by a line feed.
    let len = (PREFIX + dictionary.len() + 1).max(min_len).next_multiple_of(ALIGNMENT);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(((len - PREFIX) as u16).to_le_bytes());
    header.extend(dictionary.into_bytes());
    header.resize(len - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_matches_numpy() {
        // Written by `numpy.save` for a float32 array of shape (2, 1).
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
        let header = header("<f4", &[2, 1], 0);
        assert_eq!(header[..10], *b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end(), expected);
        assert_eq!((header.len(), header[127]), (128, b'\n'));
    }

    #[test]
    fn shapes_are_python_tuples_and_long_headers_are_aligned() {
        let shape = |shape: &[usize]| {
            let header = String::from_utf8_lossy(&header("<i8", shape, 0)).into_owned();
            let start = header.find('(').unwrap();
            header[start..=header.find(')').unwrap()].to_owned()
        };
        assert_eq!([shape(&[]), shape(&[7]), shape(&[1, 2, 3])], ["()", "(7,)", "(1, 2, 3)"]);
        assert_eq!(header("<f4", &[usize::MAX; 2], 128).len(), 128);
        assert_eq!(header("<f4", &[usize::MAX; 5], 0).len(), 192);
    }
}

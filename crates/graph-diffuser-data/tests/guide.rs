//! Reads the examples of `docs/guide/graphs.md`.

use std::io::Cursor;
use std::path::Path;

use graph_diffuser_data::formats::jsonl::{JsonlOptions, read_from};

#[test]
fn json_examples_of_the_guide_can_be_read() {
    let guide = include_str!("../../../docs/guide/graphs.md");
    let blocks = guide.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut examples = 0;
    for example in blocks {
        let reader = Cursor::new(example.to_owned());
        let read = read_from(Path::new("example"), reader, &JsonlOptions::default());
        assert!(read.is_ok(), "{example}\n{read:?}");
        examples += 1;
    }
    assert_eq!(examples, 6);
}

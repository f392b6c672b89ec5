//! End-to-end tests of the program: output, files and exit codes, one module per command.
//!
//! Texts are compared with snapshots; `INSTA_UPDATE=always cargo test --workspace --test cli`
//! updates them after an intended change.

mod best_weights;
mod data;
mod ensemble;
mod explain;
mod faults;
mod fine_tuning;
mod help;
mod predict;
#[path = "../program/mod.rs"]
mod program;
mod recipe;
mod resume;
mod scripting;
mod shell;
mod sweep;
mod tensorboard;
mod test_dir;
mod train;

//! Benchmark datasets: readers of published files, and generated datasets.

pub mod grid_histogram;
pub mod lrgb;
pub mod ogbg_code2;
pub mod ogbg_mol;
pub mod ogbg_ppa;
pub mod pcqm4mv2;
pub mod pcqm_contact;
pub mod peptides;
pub mod synthetic_molecules;
pub mod zinc;

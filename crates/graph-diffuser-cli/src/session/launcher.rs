//! Launchers of several processes, such as `mpirun` and `srun`, recognized by their variables.

use std::env;
use std::process::Command;

/// Variables that launchers set in each process: number of processes and index of this one.
const VARIABLES: [[&str; 2]; 4] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
    ["PMI_SIZE", "PMI_RANK"],
    ["MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"],
    ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID"],
];

/// Prefixes of the variables by which an MPI library finds its launcher.
const PREFIXES: [&str; 6] = ["OMPI_", "PMI_", "PMIX_", "PRTE_", "MPI_", "MV2_"];

/// Warns if a launcher has started several processes that each do all of the work of a command.
pub(crate) fn warn_about_processes(is_distributed: bool) {
    let reason = match (is_distributed, cfg!(feature = "mpi")) {
        (true, true) => return,
        (true, false) => "the program was built without the feature `mpi`",
        (false, _) => "this command does not share its work",
    };
    let number = |name: &str| env::var(name).ok()?.parse::<usize>().ok();
    let found = VARIABLES.iter().find_map(|[size, rank]| Some((number(size)?, number(rank)?)));
    if let Some((size @ 2.., 0)) = found {
        crate::printer::print_note(&format!(
            "warning: a launcher has started {size} processes, but {reason}: each of them does \
             all of it"
        ));
    }
}

/// Removes the variables of launchers, so that a child process is not one of the processes that
/// were launched.
pub(crate) fn remove_variables(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            command.env_remove(name);
        }
    }
}

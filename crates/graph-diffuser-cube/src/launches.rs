//! Counts of kernel launches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use cubecl::logging::{LaunchObservation, LaunchObserver};

/// Numbers of launches by the path of the kernel, such as
/// `graph_diffuser_cube::diffusion::stack_rows::StackRows`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchCounts(pub BTreeMap<&'static str, usize>);

impl LaunchCounts {
    /// Counts the launches that `run` issues on this thread, by all libraries on CubeCL.
    ///
    /// Waits until no other thread counts, because CubeCL has one observer.
    pub fn of<T>(run: impl FnOnce() -> T) -> (T, Self) {
        static COUNTING: Mutex<()> = Mutex::new(());
        let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let counter =
            Arc::new(Counter { thread: thread::current().id(), counts: Mutex::default() });
        let observation = LaunchObservation::new(counter.clone());
        let output = run();
        drop(observation);
        let counts = counter.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (output, Self(counts))
    }

    /// Returns the number of launches of all kernels.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Returns the number of launches of the kernels of this crate.
    pub fn own(&self) -> usize {
        let own = self.0.iter().filter(|(kernel, _)| kernel.contains(env!("CARGO_CRATE_NAME")));
        own.map(|(_, count)| count).sum()
    }
}

/// Observer of the launches of one thread.
struct Counter {
    thread: ThreadId,
    counts: Mutex<BTreeMap<&'static str, usize>>,
}

impl LaunchObserver for Counter {
    fn launched(&self, kernel: &'static str) {
        if thread::current().id() == self.thread {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(kernel).or_default() += 1;
        }
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::edge_ffn::{CubeEdgeFfn, CubePairInputs, CubePairTransform, backward, forward};
    use crate::testing::{Batch, client, upload, values};

    #[test]
    fn launches_of_the_edge_network_do_not_depend_on_the_graphs() {
        let Some(client) = client() else { return };
        let network = CubeEdgeFfn {
            channels: 5,
            hidden: 5,
            layers: 2,
            heads: 2,
            position_layers: 3,
            transform: CubePairTransform::None,
        };
        let count = |sizes: &[usize]| {
            let batch = Batch { sizes: sizes.to_vec(), edges: vec![] };
            let (p, r) = (batch.num_pairs(), batch.num_nodes());
            let layout = batch.layout(&client);
            let [stack, parameters, d_diagonal] = [5 * p, network.num_parameters(), 5 * r]
                .map(|n| upload(&client, &values(1, n, 1.0)));
            let d_scores = upload(&client, &values(2, 2 * p, 1.0));
            let inputs = CubePairInputs { stack: &stack, parameters: &parameters, counts: None };
            let run = || forward(&client, &network, &inputs, None, Some(&layout));
            let (output, of_forward) = LaunchCounts::of(run);
            let run = || {
                backward(
                    &client,
                    &network,
                    &inputs,
                    &output.statistics,
                    Some(p as f64),
                    &[Some(&d_scores); 3],
                    Some((&layout, &d_diagonal)),
                )
            };
            let (_, of_backward) = LaunchCounts::of(run);
            assert_eq!(of_forward.own(), of_forward.total());
            [of_forward.own(), of_backward.own()]
        };
        // As documented at the module.
        assert_eq!(count(&[4]), [2 * 3 + 1 + 1, 3 + 1 + 2 * 3 + 1]);
        assert_eq!(count(&[4, 1, 9, 2, 30]), count(&[4]));
    }
}

//! A few thousand simulated worlds in every test run. `countermand-sim` runs as many as one likes.

use countermand_sim::coverage::{Counter, Coverage};
use countermand_sim::world::run;
use countermand_sim::{scenario, shrink};

const WORLDS: u64 = 2_000;

#[test]
fn i1_to_i15_hold_in_simulated_worlds() {
    let mut coverage = Coverage::default();
    for seed in 0..WORLDS {
        let outcome = run(seed);
        if let Some(failure) = outcome.failure {
            let short = shrink::shrink(&failure);
            panic!("seed {seed}: {:?}\n{}", short.breach, scenario::scenario(&short));
        }
        coverage.add(&outcome.coverage);
    }
    for &counter in Counter::ALL {
        assert!(coverage.count(counter) > 0, "never happened: {}", counter.name());
    }
}

#[test]
fn a_seed_always_gives_the_same_world() {
    for seed in [1, 77, 4_242] {
        let [first, second] = [run(seed), run(seed)];
        assert_eq!(first.steps, second.steps);
        for &counter in Counter::ALL {
            assert_eq!(first.coverage.count(counter), second.coverage.count(counter));
        }
    }
}

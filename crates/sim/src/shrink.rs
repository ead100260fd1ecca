//! Makes a schedule that broke something as short as it can: takes steps out, as long as what is left
//! still breaks the same invariant.

use countermand_core::Config;

use crate::audit::Breach;
use crate::step::Step;
use crate::trial::{Seen, Trial};
use crate::world::Failure;

/// Runs a schedule; the breach, if there is one, and the steps that meant anything up to it.
pub fn replay(configs: &[Config], steps: &[Step]) -> Option<(Breach, Vec<Step>)> {
    let mut trial = Trial::new(configs);
    let mut meant = Vec::new();
    for step in steps {
        match trial.apply(step) {
            Ok(Seen::Skipped) => {}
            Ok(_) => meant.push(step.clone()),
            Err(breach) => {
                meant.push(step.clone());
                return Some((breach, meant));
            }
        }
    }
    None
}

/// The shortest schedule found that breaks the same invariant.
pub fn shrink(failure: &Failure) -> Failure {
    let invariant = failure.breach.invariant;
    let breaks = |steps: &[Step]| {
        replay(&failure.configs, steps).filter(|(breach, _)| breach.invariant == invariant)
    };
    let mut best = failure.clone();
    let Some((breach, steps)) = breaks(&best.steps) else {
        // Only the whole schedule shows it.
        return best;
    };
    (best.breach, best.steps) = (breach, steps);
    let mut piece = best.steps.len() / 2;
    while piece > 0 {
        let mut from = 0;
        let mut shorter = false;
        while from < best.steps.len() {
            let to = (from + piece).min(best.steps.len());
            let left = [&best.steps[..from], &best.steps[to..]].concat();
            if let Some((breach, steps)) = breaks(&left) {
                shorter |= steps.len() < best.steps.len();
                (best.breach, best.steps) = (breach, steps);
            } else {
                from = to;
            }
        }
        if !shorter {
            piece /= 2;
        }
    }
    best
}

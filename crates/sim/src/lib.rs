//! The proof room: everything here exists to find what is wrong with `countermand-core`.
//!
//! What lives here: simulated worlds (`world`) whose every event is applied to real
//! [`Connection`](countermand_core::Connection)s, to the reference model (`model`) and to the
//! auditor of the invariants (`audit`) at once (`trial`); the shrinking of a schedule that broke
//! something (`shrink`), and how it becomes a scenario file (`scenario`). What does not: anything
//! that ships.
// Nobody reads this crate's documentation for when it fails: failing is what it is for. And what is
// remembered of a request is a list of facts, each true or false.
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::struct_excessive_bools)]

pub mod audit;
pub mod coverage;
pub mod fuzz;
pub mod model;
mod races;
pub mod rng;
pub mod scenario;
pub mod shrink;
pub mod step;
pub mod trial;
pub mod world;

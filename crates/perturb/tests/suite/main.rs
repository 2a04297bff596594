//! The harness itself: each known mistake of a controller is found, and by the right oracle; a controller
//! without one passes.

mod toy;
mod verdicts;

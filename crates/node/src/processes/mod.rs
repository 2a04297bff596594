//! Processes of containers: started through the launcher, on record before they run, ended as a whole.
//!
//! Owns pids, process groups, records on disk and logs. It knows neither pods nor the API.

pub(crate) mod logs;
mod record;
mod spawn;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use logs::{Output, Tail};
pub(crate) use record::reap;
pub(crate) use spawn::{Exit, Process, ProcessSpec, Signal, Spawner};

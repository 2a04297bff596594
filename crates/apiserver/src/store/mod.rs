//! The objects: one resource-version counter, an in-memory state for reads, history for watches, and a
//! durable log behind them.

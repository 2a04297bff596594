//! crates/openai

//! The product as its users meet it: the binary, kubectl, and client libraries that nobody here wrote.

mod agent;
mod bad_input;
mod clients;
mod commands;
mod documents;
mod jobs;
mod kubectl;
mod logs;
mod models;
mod operator;
mod quickstart;
mod rollout;
mod team;
mod tools;
mod up;

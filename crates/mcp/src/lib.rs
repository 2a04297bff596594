//! Tools over the Model Context Protocol (MCP), both sides of it.
//!
//! [`client`] lists and calls the tools of any MCP server: the agent uses it, and so does the controller
//! that shows a server's tools. [`server`] serves Python functions as tools: the role `kaos serve tools`.
//! [`bridge`] serves a stdio server of anybody's over HTTP: the role `kaos serve bridge`.
//!
//! The official SDK (`rmcp`) changes fast; none of its types appears in this crate's API, so that only this
//! crate follows it. Nothing here knows Kubernetes, except that a name can be that of a Service.

mod body;
pub mod bridge;
pub mod client;
mod message;
pub mod packages;
pub mod server;
pub mod settings;

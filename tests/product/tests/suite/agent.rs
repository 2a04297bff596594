//! The role of an agent by itself: what it logs.

use std::io::{Read, Write};
use std::{fs, net::TcpStream};

use anyhow::{Result, ensure};
use kaos_product::{Folder, Role};

/// An agent whose model nobody asks.
const AGENT: [(&str, &str); 3] = [
    ("AGENT_NAME", "ann"),
    ("MODEL_API_URL", "http://127.0.0.1:1"),
    ("MODEL_NAME", "none"),
];

/// The lines about requests in the log of an agent that was asked for its health.
fn logged(more: &[(&str, &str)]) -> Result<Vec<String>> {
    let folder = Folder::new()?;
    let role = Role::start(&folder, &["agent"], &[&AGENT, more].concat())?;
    let mut connection = TcpStream::connect(role.address())?;
    connection.write_all(b"GET /health?a=b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(role);
    let log = fs::read_to_string(folder.path().join("role.log"))?;
    let lines = log.lines().filter(|line| line.contains("/health"));
    Ok(lines.map(str::to_owned).collect())
}

#[test]
fn requests_are_logged_where_that_is_asked_for() -> Result<()> {
    ensure!(logged(&[])?.is_empty());
    let lines = logged(&[("AGENT_ACCESS_LOG", "true"), ("LOG_FORMAT", "json")])?;
    ensure!(
        matches!(&lines[..], [line] if line.contains(r#""path":"/health""#) && line.contains(r#""status":200"#)),
        "{lines:?}"
    );
    let quiet = [("AGENT_ACCESS_LOG", "true"), ("AGENT_LOG_LEVEL", "error")];
    ensure!(logged(&quiet)?.is_empty(), "either variable sets the level");
    Ok(())
}

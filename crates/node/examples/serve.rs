//! A container's program for the tests of this crate: an HTTP server where `KAOS_LISTEN` says.
//!
//! `GET /health` answers 200, `GET /env/NAME` a variable, `GET /file/PATH` a file's text.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
};

fn main() -> std::io::Result<()> {
    let listen = env::var("KAOS_LISTEN").map_err(std::io::Error::other)?;
    println!(
        "listening on {listen}, arguments {:?}",
        env::args().skip(1).collect::<Vec<_>>()
    );
    for connection in TcpListener::bind(listen)?.incoming() {
        // A client that goes away is no reason to end.
        let _ = answer(connection?);
    }
    Ok(())
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let found = if path == "/health" {
        Some(String::new())
    } else if let Some(name) = path.strip_prefix("/env/") {
        env::var(name).ok()
    } else {
        path.strip_prefix("/file")
            .and_then(|path| fs::read_to_string(path).ok())
    };
    let (status, body) = found.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
    write!(
        connection,
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

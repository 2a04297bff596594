//! What the tests of this crate run in pods: a launcher when its first argument says so, else an HTTP server where
//! `KAOS_LISTEN` says, which answers every request with its path.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
};

fn main() -> std::io::Result<()> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "launch") {
        std::process::exit(kaos_node::launcher::main(arguments));
    }
    let listen = env::var("KAOS_LISTEN").map_err(std::io::Error::other)?;
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
    write!(
        connection,
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{path}",
        path.len()
    )
}

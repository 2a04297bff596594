//! One role of the binary, started by itself.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{Folder, kaos};

/// A running `kaos serve …`. Dropping it kills it.
pub struct Role {
    child: Child,
    address: SocketAddr,
}

impl Role {
    /// Starts a role with these arguments and variables, and waits until it accepts connections.
    ///
    /// # Errors
    /// When it ends instead; the error holds its log.
    pub fn start(folder: &Folder, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = folder.path().join("role.log");
        let child = folder
            .command(kaos())
            .arg("serve")
            .args(arguments)
            .envs(variables.iter().copied())
            .env("KAOS_LISTEN", address.to_string())
            .stderr(File::create(&log)?)
            .stdout(File::create(folder.path().join("role.out"))?)
            .spawn()?;
        let mut role = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = role.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > Duration::from_secs(240) {
                bail!(
                    "{arguments:?} does not listen: {}",
                    std::fs::read_to_string(&log)?
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(role)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Programs that a probe or a hook runs: with the container's environment and folder, beside its process.

use std::path::PathBuf;

use crate::{
    kubelet::volumes::Mounts,
    processes::{Output, Process, ProcessSpec, Signal, Spawner, Tail},
};

/// Runs programs as if inside one run of a container.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    pub(crate) spawner: Spawner,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: PathBuf,
    pub(crate) mounts: Mounts,
    /// The program of the container's image, and the names that a command may call it.
    pub(crate) program: PathBuf,
    pub(crate) names: Vec<String>,
}

impl Executor {
    /// Runs `command` and waits for its end; an error says how it failed and what it printed. The first word is
    /// the image's program by its name, or any program of this machine. Dropping the future kills it.
    pub(crate) async fn run(&self, command: &[String]) -> Result<(), String> {
        let mut words = command.iter().map(|word| self.mounts.rewrite(word));
        let first = words.next().unwrap_or_default();
        let base = first.rsplit('/').next().unwrap_or_default();
        let program = match self.names.iter().any(|name| name == base) {
            true => self.program.clone(),
            false => first.into(),
        };
        let tail = Tail::default();
        let process = self.spawner.spawn(ProcessSpec {
            program,
            args: words.collect(),
            env: self.env.clone(),
            working_dir: self.working_dir.clone(),
            output: Output::Tail(tail.clone()),
        });
        let process = process.await.map_err(|error| error.to_string())?;
        let mut ended = Ended(process);
        let exit = ended.0.wait().await;
        let said = tail.text();
        match (exit.code, said.trim()) {
            (0, _) => Ok(()),
            (code, "") => Err(format!("command {command:?} exited with {code}")),
            (_, said) => Err(said.to_owned()),
        }
    }
}

/// A program that ends with whoever waits for it. One that has ended gets no signal.
struct Ended(Process);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

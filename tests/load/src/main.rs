//! Many Agents on a real API server, and what the operator does about them: `cargo xtask bench` runs this and
//! reads the figures, one JSON object, from standard output.
//!
//! There are no nodes and no controllers of Kubernetes: every Deployment is said to be rolled out as soon as it is
//! seen.

mod counts;
mod operator;
mod rollouts;
mod world;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use counts::Counts;
use operator::Operator;
use world::World;

/// After the last change, before anything is counted as calm.
const SETTLE: Duration = Duration::from_secs(5);

#[derive(Parser)]
struct Arguments {
    /// A kubeconfig of an API server that has nothing of KAOS
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The `kaos` binary
    #[arg(long)]
    kaos: PathBuf,
    #[arg(long, default_value_t = 1000)]
    agents: usize,
    #[arg(long, default_value_t = 20)]
    model_apis: usize,
    #[arg(long, default_value_t = 50)]
    mcp_servers: usize,
    /// Seconds in which nothing is to be written
    #[arg(long, default_value_t = 300)]
    idle: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    kaos_telemetry::install_crypto_provider();
    let kubeconfig = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let world = World::new(
        client.clone(),
        arguments.agents,
        arguments.model_apis,
        arguments.mcp_servers,
    );
    world.prepare().await?;
    let rollouts = tokio::spawn(rollouts::run(client.clone()));
    let operator = Operator::start(&arguments.kaos, &arguments.kubeconfig).await?;

    let before = Counts::read(&client).await?;
    let started = Instant::now();
    world.create().await?;
    let created = started.elapsed();
    world.all_ready().await?;
    let ready = started.elapsed();
    let processor = operator.processor_seconds()?;
    sleep(SETTLE).await;
    let made = Counts::read(&client).await?.since(&before);

    let before = Counts::read(&client).await?;
    sleep(Duration::from_secs(arguments.idle)).await;
    let idle = Counts::read(&client).await?.since(&before);

    let before = Counts::read(&client).await?;
    world.annotate_model_apis().await?;
    sleep(SETTLE).await;
    let annotated = Counts::read(&client).await?.since(&before);

    let peak = operator.peak_mib()?;
    operator.end().await?;
    rollouts.abort();
    let agents = u32::try_from(arguments.agents).context("more agents than can be counted")?;
    let figures = json!({
        "createdSeconds": created.as_secs_f64(),
        "readySeconds": ready.as_secs_f64(),
        "creations": made.creations(),
        "writesPerAgent": f64::from(made.beyond_creations("agents")) / f64::from(agents),
        "idleSeconds": arguments.idle,
        "idleWrites": idle.operators(),
        "agentWritesAfterAnnotation": annotated.of_kind("agents"),
        "writesAfterAnnotation": annotated.operators(),
        "processorSeconds": processor,
        "peakMib": peak,
        "writes": made.shown(),
    });
    println!("{figures}");
    Ok(())
}

//! The command line as people type it. No behaviour here.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use kaos_local::Origin;
use kaos_operator::ProbeAddress;

/// Runs AI agents, their tools and their models, declared as Kubernetes resources: on this machine, with no
/// cluster, or on any Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "kaos",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = crate::exit::TABLE
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// The data folder of the local instance.
    ///
    /// Without it: `.kaos` in this folder, or in the nearest folder above that has one.
    #[arg(long, global = true, env = "KAOS_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// A kubeconfig: talk to its cluster instead of the local instance.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig: talk to its cluster instead of the local instance.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace. Without it: that of the kubeconfig's context, else `default`.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// What to log to standard error: a level such as info or debug, or target=level pairs. Default: warn.
    #[arg(long, global = true, env = "KAOS_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: the API, the controllers, and the pods as processes.
    ///
    /// Applies the manifests, shows how far each resource has come, and runs until Ctrl-C. Without a path
    /// it resumes what the data folder holds.
    Up(UpArgs),
    /// Stop the local instance and every process it started. Its objects stay.
    Down,
    /// Show the agents, tools and models and how they are.
    Status {
        /// In every namespace.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Print for programs instead of people.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Format>,
    },
    /// Show the logs of a resource's pods.
    Logs {
        /// A name, or KIND/NAME with kind agent, mcpserver, modelapi or pod.
        #[arg(value_name = "RESOURCE")]
        resource: String,
        /// Keep printing as lines are written.
        #[arg(short, long)]
        follow: bool,
        /// Only the last lines of each pod.
        #[arg(long, value_name = "LINES")]
        tail: Option<i64>,
        /// Of the container's previous run.
        #[arg(short, long)]
        previous: bool,
    },
    /// Talk to an agent.
    ///
    /// The answer goes to standard output as it is written; tool calls and errors go to standard error.
    Chat {
        /// The agent.
        agent: String,
        /// What to say. Without it: a conversation on a terminal, else all of standard input.
        message: Option<String>,
    },
    /// Say what is wrong with manifests, with file and line: fields, rules, references. Needs no cluster.
    ///
    /// They are given to the same API and the same controllers that `kaos up` runs, in memory. What only a running
    /// pod finds out (a wrong key, a mistake in Python) is not found here. Secrets and ConfigMaps that are in none of
    /// the files are warnings.
    Validate {
        /// Manifest files, or folders of them. Files that refer to each other belong together.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// Print for programs instead of people.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Format>,
    },
    /// Print the objects that manifests become: Deployments, Services, ConfigMaps, HTTPRoutes. Needs no cluster.
    ///
    /// They are those of local mode. On a cluster the operator's environment chooses images, timeouts and telemetry.
    Render {
        /// Manifest files, or folders of them.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// YAML documents, or one JSON list.
        #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
        output: Format,
    },
    /// Rewrite older spellings in manifests as today's.
    ///
    /// The new text goes to standard output, what was changed to standard error. Documents that need no change stay
    /// as they are; in the others comments are lost.
    Convert {
        /// Manifest files, or folders of them.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// Write the files instead of printing them.
        #[arg(long)]
        write: bool,
    },
    /// Look whether this machine has what local mode needs: Python, ports, the data folder, the store, providers.
    Doctor {
        /// Manifest files, or folders of them, whose providers are asked whether they answer. No key is sent.
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print for programs instead of people.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Format>,
    },
    /// Print the objects of the data folder as YAML: what was applied to it, without what became of it.
    ///
    /// Secrets are among them, readable. An instance may run meanwhile. Of a damaged store it prints what can be read,
    /// says so on standard error, and fails.
    Export,
    /// Run one of the roles that pods run.
    Serve {
        #[command(subcommand)]
        role: Role,
    },
    /// Print the CustomResourceDefinitions as YAML, for kubectl apply.
    Crds,
    /// Print a script that completes commands and options in a shell.
    ///
    /// For bash: `source <(kaos completions bash)`. For zsh: the same, after `compinit`. For fish:
    /// `kaos completions fish | source`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the version.
    Version,
    /// Print this reference as Markdown.
    #[command(hide = true)]
    Reference,
    /// Become a container's process.
    #[command(hide = true)]
    Launch {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// What `kaos up` runs, and how.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Manifest files, or folders of them.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A file of lines NAME=VALUE, which becomes the Secret `kaos-env` in every namespace that manifests go to.
    ///
    /// Manifests name a value as they name that of any Secret: `secretKeyRef: {name: kaos-env, key: NAME}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Apply the files again whenever one of them changes. A mistake is told, and what ran goes on.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Remove what an earlier `kaos up` applied and is in none of the files any more. Without it, it is listed.
    #[arg(long, requires = "paths")]
    pub(crate) prune: bool,
    /// Begin without objects: remove all that the data folder holds. Its ports and its kubeconfig stay.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Go on in the background, and return once everything is ready. `kaos down` stops it.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// How many seconds to wait for everything to be ready, with --detach.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "detach")]
    pub(crate) timeout: u64,
    /// The port of the Kubernetes API on 127.0.0.1. Without it: the last one while it is free, else any.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The port of the gateway on 127.0.0.1, the one address of everything that has a route.
    ///
    /// Without it: the one of this data folder, chosen at its first start: 8888, or the next that is free.
    #[arg(long, value_name = "PORT")]
    pub(crate) gateway_port: Option<u16>,
    /// Let web pages of this origin call the gateway, such as http://localhost:3000. Repeatable.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) gateway_allow_origin: Vec<Origin>,
}

/// How results are printed for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The roles of a cluster's pods.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The controllers, for the cluster of a kubeconfig or of the pod's ServiceAccount.
    ///
    /// Configured by its environment (DEFAULT_AGENT_IMAGE, GATEWAY_API_ENABLED, SYSTEM_NAMESPACE, ...): see
    /// docs/operator.md.
    Operator(OperatorFlags),
    /// An agent, configured by its environment (AGENT_NAME, MODEL_API_URL, MODEL_NAME, MCP_SERVERS, ...).
    Agent {
        #[command(flatten)]
        listen: Listen,
    },
    /// The Python functions of MCP_TOOLS_STRING as tools over MCP, at /mcp.
    Tools {
        #[command(flatten)]
        listen: Listen,
    },
    /// An MCP server that speaks over stdio, over HTTP, at /mcp: kaos serve bridge -- npx -y my-server.
    Bridge {
        #[command(flatten)]
        listen: Listen,
        /// The server and its arguments. Without them: the command line in MCP_COMMAND.
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// An OpenAI-compatible front for the models of a LiteLLM configuration file.
    Proxy {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        #[command(flatten)]
        listen: Listen,
    },
    /// What stands beside Ollama in a pod: has it pull a model, and tells how far it is at /progress and /ready.
    ModelPull {
        /// The model, as Ollama names it: smollm2:135m.
        #[arg(long, value_name = "MODEL")]
        model: kaos_ollama::ModelName,
        /// Where Ollama is.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:11434")]
        ollama: String,
        #[command(flatten)]
        listen: Listen,
    },
}

/// How the operator runs.
#[derive(Args, Debug)]
pub(crate) struct OperatorFlags {
    /// Work only as the leader, elected by the Lease kaos-operator.kaos.tools in SYSTEM_NAMESPACE, so that another
    /// replica can stand by. Without a value it is true; one is written after a sign: --leader-elect=false.
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        value_name = "BOOL"
    )]
    pub(crate) leader_elect: bool,
    /// Where /healthz and /readyz are served: a port on every address, an address and port, or 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub(crate) health_probe_bind_address: ProbeAddress,
    #[command(flatten)]
    pub(crate) former: FormerFlags,
}

/// Flags of earlier operators of KAOS, which would do nothing here. They are known so that they can be refused
/// with what to do instead.
#[derive(Args, Debug)]
pub(crate) struct FormerFlags {
    #[arg(long, hide = true, value_name = "ADDRESS")]
    metrics_bind_address: Option<String>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_log_level: Option<String>,
}

impl FormerFlags {
    /// What to do in place of each flag that was given.
    pub(crate) fn refusals(&self) -> Vec<&'static str> {
        [
            (
                self.metrics_bind_address.is_some(),
                "--metrics-bind-address: there are no metrics yet; remove it",
            ),
            (
                self.zap_log_level.is_some(),
                "--zap-log-level: write --log debug, or LOG_LEVEL=debug in the environment",
            ),
        ]
        .into_iter()
        .filter_map(|(given, refusal)| given.then_some(refusal))
        .collect()
    }
}

/// Where a role listens.
#[derive(Args, Debug)]
pub(crate) struct Listen {
    /// The port on every address.
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub(crate) port: u16,
    /// An address and port; wins over --port. The local node sets it, so that many pods run side by side.
    #[arg(long, env = "KAOS_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

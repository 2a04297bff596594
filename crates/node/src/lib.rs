//! The local node: runs the pods of a Kubernetes API as processes of this machine, with no cluster, no
//! container engine and no root.
//!
//! It owns what a cluster's nodes and built-in controllers do for a Deployment or a Job: ReplicaSets and pods
//! ([`workloads`]), binding to the one node, processes with probes, restarts and logs, and the addresses of
//! Services. It talks to nothing but a Kubernetes API and this machine, and knows no kind of this project:
//! which program stands for an image is data ([`ImageMapping`]).
//!
//! Limits that follow from having no containers, each reported where it matters or listed here:
//!
//! - Every container sees the machine's file system and network. Mount paths exist only as text: where a
//!   mount path stands in a container's command, args or env, it is replaced by the folder that stands for it.
//! - A container listens where `KAOS_LISTEN` (or `PORT`) says, or where its image's [`PortNotice`] tells it.
//!   One that cannot be told listens on its own port and waits while another program has it.
//! - The containers of a pod share the machine's loopback with all others, each with ports of its own: where
//!   one names another as `localhost:PORT` in env or args, the other's port is written instead.
//! - Probes and hooks by `exec` run programs of this machine with the container's environment and folder.
//! - A PersistentVolumeClaim is a folder of the node's own, whatever its class; its size is not enforced.
//! - Names of Services are rewritten in env, args and mounted files ([`services::rewrite`]); names that a
//!   program puts together at run time are not found.
//! - Resource limits (`resources`, `overhead`, `resizePolicy`) and security contexts take no effect:
//!   processes run as the user who started the node. `hostNetwork`, `hostPID`, `hostIPC` and
//!   `shareProcessNamespace` are what every pod has; `hostUsers` cannot take it away.
//! - Nothing is pulled, so `imagePullPolicy` and `imagePullSecrets` take no effect. No token is mounted, so
//!   neither do `serviceAccountName` and `automountServiceAccountToken`. There is no cluster DNS, and no env
//!   for the Services there are: neither do `dnsPolicy` and `enableServiceLinks`.
//! - There is one node, without taints and never full: tolerations, priorities, preemption, preferred
//!   affinity, spread constraints and `evictionResponders` have nothing to choose between. What must hold and
//!   cannot (`nodeSelector`, required affinity) is refused.
//! - Jobs count completions: indexes and policies about single pods fail the Job at once.
//! - `terminationMessagePath` is not read: last words come from the log, where the policy says so.
//! - Of a running pod, as on a cluster, only another image takes effect: its container is restarted. A field
//!   that is refused and comes later lets what runs go on, and nothing start any more.

mod access;
mod claims;
mod events;
mod files;
mod image;
mod kubelet;
pub mod launcher;
mod node;
mod ports;
mod processes;
mod scheduler;
pub mod services;
mod watch;
pub mod workloads;

pub use access::AccessError;
pub use image::{ImageMapping, PortNotice, Program};
pub use launcher::Launcher;
pub use node::{Node, NodeError, NodeOptions};
pub use processes::logs::{LogOptions, LogStream};
pub use services::ServiceTable;

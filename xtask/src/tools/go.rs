//! Go modules (`xtask/go`): the programs of the test cluster, built, and the files that others are generated from.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Tool, build_once};
use crate::process;
use crate::workspace::{Workspace, short_hash};

/// The programs of the test cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPrograms {
    /// The store.
    pub(crate) etcd: PathBuf,
    /// The API server.
    pub(crate) kube_apiserver: PathBuf,
    /// Kubernetes' own controllers.
    pub(crate) kube_controller_manager: PathBuf,
    /// The command-line client.
    pub(crate) kubectl: PathBuf,
}

const ETCD: GoModule = GoModule {
    folder: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    packages: &["go.etcd.io/etcd/server/v3"],
};

const KUBERNETES: GoModule = GoModule {
    folder: "kubernetes",
    module: "k8s.io/kubernetes",
    packages: &[
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kubectl",
    ],
};

/// Only files are taken from it.
const GATEWAY_API: GoModule = GoModule {
    folder: "gateway-api",
    module: "sigs.k8s.io/gateway-api",
    packages: &[],
};

/// Builds the programs of the test cluster, or says why that is not possible here.
pub(crate) fn cluster_programs(workspace: &Workspace) -> Result<Tool<ClusterPrograms>> {
    let (etcd, kubernetes) = (ETCD.place(workspace)?, KUBERNETES.place(workspace)?);
    if (!etcd.exists() || !kubernetes.exists()) && !process::exists("go", "version") {
        return Ok(Tool::Missing(
            "the real API server is built from its Go modules, and there is no `go` in PATH (1.26 or newer)"
                .into(),
        ));
    }
    ETCD.build(workspace, &etcd)?;
    KUBERNETES.build(workspace, &kubernetes)?;
    Ok(Tool::Ready(ClusterPrograms {
        // Go names a program after the last part of its package that is not a version.
        etcd: etcd.join("server"),
        kube_apiserver: kubernetes.join("kube-apiserver"),
        kube_controller_manager: kubernetes.join("kube-controller-manager"),
        kubectl: kubernetes.join("kubectl"),
    }))
}

/// The table of cases for merging pod specs (a file) with Kubernetes' own answers, or why there are none here.
pub(crate) fn merge_cases(workspace: &Workspace, table: &Path) -> Result<Tool<String>> {
    if !process::exists("go", "version") {
        return Ok(Tool::Missing(
            "Kubernetes merges in Go, and there is no `go` in PATH".into(),
        ));
    }
    let folder = KUBERNETES.source(workspace);
    process::output(
        go(&folder)
            .args(["run", "-mod=readonly", "./strategicmerge"])
            .arg(table),
    )
    .map(Tool::Ready)
}

/// What Kubernetes' Go types say of their form in protobuf.
#[derive(Clone, Debug)]
pub(crate) struct ProtobufForms {
    /// For each message the numbers, names and types of its fields.
    pub(crate) messages: String,
    /// Objects in both forms, as Kubernetes keeps them for its own tests.
    pub(crate) cases: String,
}

/// The forms of kinds such as `apps/v1/Deployment` in protobuf, or why they are not known here.
pub(crate) fn protobuf_forms(workspace: &Workspace, kinds: &[String]) -> Result<Tool<ProtobufForms>> {
    if !process::exists("go", "version") {
        return Ok(Tool::Missing(
            "the forms are taken from Go types, and there is no `go` in PATH".into(),
        ));
    }
    let folder = KUBERNETES.source(workspace);
    let modules = ["k8s.io/api", "k8s.io/apiextensions-apiserver"];
    let folders = process::output(go(&folder).args(["list", "-m", "-f", "{{.Dir}}"]).args(modules))?;
    let run = |verb: &str| {
        let mut command = go(&folder);
        command.args(["run", "-mod=readonly", "./protobuf", verb]);
        command
    };
    Ok(Tool::Ready(ProtobufForms {
        messages: process::output(run("table").args(kinds))?,
        cases: process::output(run("cases").args(folders.lines()).args(kinds))?,
    }))
}

/// Commands of one Go module, pinned by the go.mod and go.sum of a folder of `xtask/go`.
struct GoModule {
    folder: &'static str,
    module: &'static str,
    packages: &'static [&'static str],
}

impl GoModule {
    /// The folder with the go.mod that pins the module.
    fn source(&self, workspace: &Workspace) -> PathBuf {
        workspace.root.join("xtask/go").join(self.folder)
    }

    /// The folder of the built programs, named by everything that decides what they are.
    fn place(&self, workspace: &Workspace) -> Result<PathBuf> {
        let source = self.source(workspace);
        let read = |name: &str| {
            let path = source.join(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let version = required_version(&String::from_utf8_lossy(&go_mod), self.module)?;
        let hash = short_hash([go_mod.as_slice(), &go_sum, ldflags(&version).as_bytes()]);
        Ok(workspace
            .cache
            .join("tools")
            .join(format!("{}-{version}-{hash}", self.folder)))
    }

    fn build(&self, workspace: &Workspace, place: &Path) -> Result<()> {
        let source = self.source(workspace);
        build_once(place, self.folder, |partial| {
            let version = required_version(&std::fs::read_to_string(source.join("go.mod"))?, self.module)?;
            process::run(
                go(&source)
                    .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath"])
                    .arg(format!("-ldflags={}", ldflags(&version)))
                    .arg("-o")
                    .arg(partial)
                    .args(self.packages),
            )
        })
    }

    /// The folder of the module's sources, checked against go.sum.
    fn sources(&self, workspace: &Workspace) -> Result<Tool<PathBuf>> {
        if !process::exists("go", "version") {
            return Ok(Tool::Missing(format!(
                "{} is a Go module, and there is no `go` in PATH",
                self.module
            )));
        }
        let source = self.source(workspace);
        process::run(go(&source).args(["mod", "download", self.module]))?;
        let folder = process::output(go(&source).args(["list", "-m", "-f", "{{.Dir}}", self.module]))?;
        Ok(Tool::Ready(PathBuf::from(folder.trim())))
    }
}

/// The command `go` in a folder with a go.mod.
fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "")
        .env("GOWORK", "off");
    command
}

/// What the linker is told: no debug information, and the version the programs say they are.
fn ldflags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    )
}

/// The version of `module` a go.mod requires.
fn required_version(go_mod: &str, module: &str) -> Result<String> {
    go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix(module)?
                .strip_prefix(' ')
        })
        .filter_map(|rest| rest.split_whitespace().next())
        .find(|version| version.starts_with('v'))
        .map(str::to_owned)
        .with_context(|| format!("go.mod does not require {module}"))
}

/// The folder of Kubernetes' sources.
pub(crate) fn kubernetes_sources(workspace: &Workspace) -> Result<Tool<PathBuf>> {
    KUBERNETES.sources(workspace)
}

/// The folder of the Gateway API's sources.
pub(crate) fn gateway_api_sources(workspace: &Workspace) -> Result<Tool<PathBuf>> {
    GATEWAY_API.sources(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module_and_not_of_one_with_a_longer_name() {
        let go_mod = "module x\nrequire (\n\tk8s.io/kubernetes-more v1.0.0\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";
        assert_eq!(
            required_version(go_mod, "k8s.io/kubernetes").expect("it is there"),
            "v1.36.3"
        );
        assert!(required_version(go_mod, "k8s.io/api").is_err());
    }

    #[test]
    fn the_programs_say_their_version() {
        assert!(ldflags("v1.36.3").contains("gitVersion=v1.36.3"));
        assert!(ldflags("v1.36.3").ends_with("gitMinor=36"));
    }
}

//! `cargo xtask generate`: the files that are made from others, and the check that they are up to date.
//!
//! All generators stand in one list. A generator owns its files: what it no longer makes is removed.

mod crds;
mod reference;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::builtin_schemas;
use crate::external;
use crate::tools::{Tool, go};
use crate::workspace::{Workspace, in_ci};

/// Whether to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write what differs.
    Write,
    /// Fail if anything differs.
    Check,
}

/// A file a generator makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GeneratedFile {
    /// The path under the root.
    pub(crate) path: PathBuf,
    /// What is in it.
    pub(crate) text: String,
}

struct Generator {
    /// What it makes, for messages.
    name: &'static str,
    /// A folder under the root in which every file is this generator's.
    folder: Option<&'static str>,
    make: Make,
}

/// What a generator works from.
enum Make {
    /// Files outside the clone. They may be missing here, and what they make is built into the binary.
    FromWorkspace(fn(&Workspace, Mode) -> Result<Tool<Vec<GeneratedFile>>>),
    /// The built binary: what it says about itself is what its users meet.
    FromBinary(fn(&Path) -> Result<Vec<GeneratedFile>>),
}

/// Every generator, those that change the binary before those that ask it.
const GENERATORS: &[Generator] = &[
    Generator {
        name: "schemas of built-in kinds",
        folder: None,
        make: Make::FromWorkspace(make_builtin_schemas),
    },
    Generator {
        name: "forms of built-in kinds in protobuf",
        folder: None,
        make: Make::FromWorkspace(make_protobuf_forms),
    },
    Generator {
        name: "definitions of other projects' kinds",
        folder: None,
        make: Make::FromWorkspace(external::definitions),
    },
    Generator {
        name: "definitions of other projects' kinds, compact",
        folder: None,
        make: Make::FromWorkspace(external::compact),
    },
    Generator {
        name: "types of other projects' kinds",
        folder: None,
        make: Make::FromWorkspace(external::types),
    },
    Generator {
        name: "answers to the cases of merging pod specs",
        folder: None,
        make: Make::FromWorkspace(make_merge_cases),
    },
    Generator {
        name: "custom resource definitions, compact",
        folder: None,
        make: Make::FromWorkspace(crds::compact),
    },
    Generator {
        name: "custom resource definitions",
        folder: Some(crds::FOLDER),
        make: Make::FromBinary(crds::generate),
    },
    Generator {
        name: "command-line reference",
        folder: None,
        make: Make::FromBinary(reference::generate),
    },
];

/// The file that the embedded API server includes.
const BUILTIN_SCHEMAS: &str = "crates/apiserver/src/builtin/schemas.json";

fn make_builtin_schemas(workspace: &Workspace, _mode: Mode) -> Result<Tool<Vec<GeneratedFile>>> {
    Ok(match go::kubernetes_sources(workspace)? {
        Tool::Ready(module) => Tool::Ready(vec![GeneratedFile {
            path: BUILTIN_SCHEMAS.into(),
            text: builtin_schemas::generate(&module)?,
        }]),
        Tool::Missing(reason) => Tool::Missing(reason),
    })
}

/// The folder of the files that the embedded API server includes, and the file of its tests.
const PROTOBUF: &str = "crates/apiserver/src/protobuf";

fn make_protobuf_forms(workspace: &Workspace, _mode: Mode) -> Result<Tool<Vec<GeneratedFile>>> {
    Ok(match go::protobuf_forms(workspace, &builtin_schemas::bodies())? {
        Tool::Ready(go::ProtobufForms { messages, cases }) => {
            let file = |name: &str, text: String| GeneratedFile {
                path: Path::new(PROTOBUF).join(name),
                text,
            };
            Tool::Ready(vec![file("messages.json", messages), file("cases.json", cases)])
        }
        Tool::Missing(reason) => Tool::Missing(reason),
    })
}

/// Cases by hand, with the answers that Kubernetes gives to them.
const MERGE_CASES: &str = "crates/kube-ext/src/merge/cases.json";

fn make_merge_cases(workspace: &Workspace, _mode: Mode) -> Result<Tool<Vec<GeneratedFile>>> {
    Ok(
        match go::merge_cases(workspace, &workspace.root.join(MERGE_CASES))? {
            Tool::Ready(text) => Tool::Ready(vec![GeneratedFile {
                path: MERGE_CASES.into(),
                text,
            }]),
            Tool::Missing(reason) => Tool::Missing(reason),
        },
    )
}

/// Runs every generator. `build` builds the binary, once and only after what it is built from is written.
pub(crate) fn run(workspace: &Workspace, mode: Mode, build: impl Fn() -> Result<PathBuf>) -> Result<()> {
    let mut stale = Vec::new();
    let mut binary = None;
    for generator in GENERATORS {
        let name = generator.name;
        let files = match generator.make {
            Make::FromWorkspace(generate) => generate(workspace, mode),
            Make::FromBinary(generate) => {
                let kaos = match binary.take() {
                    Some(kaos) => kaos,
                    None => build()?,
                };
                let files = generate(&kaos);
                binary = Some(kaos);
                files.map(Tool::Ready)
            }
        };
        match files.with_context(|| format!("cannot generate the {name}"))? {
            Tool::Ready(files) => stale.extend(settle(&workspace.root, generator, &files, mode)?),
            Tool::Missing(reason) if in_ci() => bail!("cannot generate the {name}: {reason}"),
            Tool::Missing(reason) => eprintln!("skipped: {name}: {reason}"),
        }
    }
    if mode == Mode::Write {
        stale
            .iter()
            .for_each(|path| eprintln!("updated {}", path.display()));
    } else if !stale.is_empty() {
        let names: Vec<String> = stale.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "out of date: {}; run `cargo xtask generate` and commit what it changes",
            names.join(", ")
        );
    }
    Ok(())
}

/// Compares the files with those on disk, writes them if asked to, and returns the paths that differed.
fn settle(root: &Path, generator: &Generator, files: &[GeneratedFile], mode: Mode) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for file in files {
        let path = root.join(&file.path);
        if fs::read_to_string(&path).is_ok_and(|text| text == file.text) {
            continue;
        }
        if mode == Mode::Write {
            let folder = path.parent().context("a file lies in a folder")?;
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            fs::write(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        stale.push(file.path.clone());
    }
    let Some(folder) = generator.folder else {
        return Ok(stale);
    };
    let made: BTreeSet<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    let Ok(entries) = fs::read_dir(root.join(folder)) else {
        return Ok(stale);
    };
    for entry in entries {
        let path = Path::new(folder).join(entry?.file_name());
        if made.contains(path.as_path()) {
            continue;
        }
        if mode == Mode::Write {
            fs::remove_file(root.join(&path)).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        stale.push(path);
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_owns_its_folder() {
        let root = std::env::temp_dir().join(format!("kaos-generate-{}", std::process::id()));
        fs::create_dir_all(root.join("made")).expect("a folder");
        fs::write(root.join("made/old"), "").expect("a file");
        let generator = Generator {
            name: "test",
            folder: Some("made"),
            make: Make::FromBinary(|_| Ok(Vec::new())),
        };
        let files = [GeneratedFile {
            path: "made/new".into(),
            text: "text".into(),
        }];

        let found = settle(&root, &generator, &files, Mode::Check).expect("compared");
        assert_eq!(found, [PathBuf::from("made/new"), PathBuf::from("made/old")]);
        assert!(root.join("made/old").exists(), "a check changes nothing");

        settle(&root, &generator, &files, Mode::Write).expect("written");
        assert_eq!(
            settle(&root, &generator, &files, Mode::Check).expect("compared"),
            Vec::<PathBuf>::new()
        );
        fs::remove_dir_all(&root).expect("removed");
    }
}
